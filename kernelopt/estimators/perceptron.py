"""The perceptron with a kernel, which counts mistakes and solves no problem."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from kernelopt.errors import OptionError
from kernelopt.estimators import keywords
from kernelopt.estimators.classification import numbered_classes
from kernelopt.estimators.model import KernelModel, positive, take
from kernelopt.estimators.sample import every_row
from kernelopt.estimators.scoring import Classifier
from kernelopt.factorization import memory
from kernelopt.language.functions import Function
from kernelopt.support.checks import is_integer
from kernelopt.support.types import Array, Ints


class KernelPerceptron(Classifier, KernelModel):
    """Rosenblatt's perceptron: f(x) = η Σᵢ mᵢyᵢ(κ(xᵢ, x) + 1), with mᵢ the number of mistakes made on row i.

    Each pass visits the rows in their order and adds one to mᵢ if yᵢf(xᵢ) ≤ 0. If some function separates the rows with
    margin γ = minᵢ yᵢf(xᵢ)/‖f‖, the perceptron makes at most (R/γ)² mistakes, with R² = max κ(x, x) + 1 (Novikoff
    1962). It stops after a pass without mistakes, or with a warning after `max_iter` passes. K > 2 classes: one against
    the rest.

    Parameters
    ----------
    kernel, gamma, degree, coef0 : as in `KernelRegressor`
    learning_rate : float > 0
        η, which scales f; predicted classes do not depend on it.
    max_iter : int ≥ 1
        Largest number of passes over the rows.
    fit_intercept : bool
        Whether the formula contains the 1.

    Attributes
    ----------
    classes_ : the K classes
    mistakes_ : m, shape (n,), or (n, K) for K > 2
    n_iter_ : number of passes, including the last one without mistakes; for K > 2 the largest of the K numbers
    function_, intercept_, pivots_, coefficients_ : as in `KernelClassifier`; pivots are rows with mistakes

    Raises
    ------
    ValueError
        For invalid parameters and data, and for a single class.

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> model = ko.estimators.KernelPerceptron(kernel=ko.kernels.Polynomial(degree=2)).fit(
    ...     X, [0, 1, 1, 0]
    ... )
    >>> model.predict(X).tolist()
    [0, 1, 1, 0]
    """

    _instead_of: ClassVar[Mapping[str, str]] = keywords.PERCEPTRON

    def __init__(
        self, kernel: Any = "rbf", *, gamma: Any = "scale", degree: int = 3, coef0: float = 1.0,
        learning_rate: float = 1.0, max_iter: int = 1000, fit_intercept: bool = True,
    ) -> None:  # fmt: skip
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to points X (n, columns), or kernel values (n, n), and classes y (n,) of any kind."""
        rate = positive(self, "learning_rate")
        if not is_integer(self.max_iter) or self.max_iter < 1:
            raise OptionError(f"Expected max_iter to be an integer ≥ 1; got {self.max_iter!r}.")
        X, y = self._read(X, y)
        self.classes_, numbers = numbered_classes(y, np.ones(len(X)))
        kernel, points = self._points(X, every_row(X))
        K = len(self.classes_)
        labels = np.where(numbers[:, None] == ([1] if K == 2 else np.arange(K)), 1.0, -1.0)
        # The intercept is the coefficient of a constant feature 1, which adds 1 to the kernel.
        memory.require(16 * len(points) ** 2, "The kernel matrix", None)
        Q = kernel(points) + (1.0 if self.fit_intercept else 0.0)
        counted = [mistakes(Q, column, self.max_iter) for column in labels.T]
        self.n_iter_ = max(passes for _, passes, _ in counted)
        if not all(separated for _, _, separated in counted):
            warnings.warn(
                f"KernelPerceptron still makes mistakes after {self.max_iter} passes. Raise max_iter, or choose a "
                "kernel in which the classes can be separated.",
                ConvergenceWarning,
                stacklevel=2,
            )
        self.mistakes_ = np.column_stack([m for m, _, _ in counted])
        signed = rate * self.mistakes_ * labels
        self.pivots_ = np.flatnonzero(self.mistakes_.any(axis=1))
        self.coefficients_ = signed[self.pivots_]
        self.intercept_ = signed.sum(axis=0) if self.fit_intercept else np.zeros(labels.shape[1])
        if K == 2:
            self.mistakes_, self.coefficients_ = self.mistakes_[:, 0], self.coefficients_[:, 0]
            self.intercept_ = float(self.intercept_[0])
        self.function_ = None
        if not self._is_precomputed:
            self.function_ = Function(kernel, take(points, self.pivots_), self.coefficients_)
        return self

    def decision_function(self, X: Any) -> Array:
        """f at points X, (n,), positive for `classes_[1]`; for K > 2 classes one column per class, (n, K)."""
        return self._theta_at(X) + self.intercept_

    def predict(self, X: Any) -> Array:
        """The class of each point, (n,)."""
        f = self.decision_function(X)
        return self.classes_[(f > 0).astype(int) if f.ndim == 1 else f.argmax(axis=1)]


def mistakes(Q: Array, y: Array, max_iter: int) -> tuple[Ints, int, bool]:
    """The number of mistakes on each row, the number of passes, and whether the last pass made none.

    A mistake on row i adds yᵢ times column i of Q to f = Q(m∘y). Each step of a pass jumps to the next mistake.
    """
    counts, yf = np.zeros(len(y), dtype=np.intp), np.zeros(len(y))
    for passes in range(1, max_iter + 1):
        row, before = 0, counts.sum()
        while (wrong := yf[row:] <= 0).any():
            row += int(wrong.argmax())
            counts[row] += 1
            yf += y * (y[row] * Q[row])
            row += 1
        if counts.sum() == before:
            return counts, passes, True
    return counts, max_iter, False
