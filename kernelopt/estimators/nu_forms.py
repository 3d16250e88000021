"""Support vector machines with ν, the share of rows outside, in place of C or ε."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import cvxpy as cp
import numpy as np

from kernelopt import losses
from kernelopt.errors import DataError, OptionError
from kernelopt.estimators.classification import numbered_classes
from kernelopt.estimators.model import KernelModel, positive, solved
from kernelopt.estimators.sample import explained, row_weights
from kernelopt.estimators.scoring import Classifier, Regressor
from kernelopt.language.expressions import Theta, sum_squares
from kernelopt.problem import Problem
from kernelopt.support.checks import is_real
from kernelopt.support.types import Array


def _share(estimator: Any) -> float:
    """ν. Raises OptionError."""
    if not is_real(estimator.nu) or not 0 < estimator.nu <= 1:
        raise OptionError(f"Expected nu to be a number in (0, 1]; got {estimator.nu!r}.")
    return float(estimator.nu)


class NuKernelClassifier(Classifier, KernelModel):
    """Two classes: minimize ½‖θ‖² + Σᵢ wᵢ max(0, ρ − yᵢf(xᵢ))/W − νρ over f(x) = θᵀF(x) + b and ρ ≥ 0, W = Σ wᵢ.

    At most a fraction ν of the weight lies on the wrong side of the margin ρ, and at least a fraction ν on it or there
    (Schölkopf, Smola, Williamson and Bartlett, Neural Computation 12, 2000). `decision_function` is f/ρ, as that of
    scikit-learn's `NuSVC(nu=nu)`.

    Parameters
    ----------
    nu : float in (0, 1]
        ν; at most twice the fraction of the smaller class.
    kernel, gamma, degree, coef0, fit_intercept, tol, solve_options : as in `KernelRegressor`

    Attributes
    ----------
    margin_ : ρ
    classes_, function_, intercept_, pivots_, coefficients_, certificate_, n_iter_ : as in `KernelClassifier`, of f

    Raises
    ------
    ValueError
        For invalid parameters and data, other numbers of classes than two, and ν that no f can have.

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> y = X[:, 0] * X[:, 1] > 0
    >>> model = ko.estimators.NuKernelClassifier(nu=0.3).fit(X, y)
    >>> model.predict([[1.0, 1.0], [1.0, -1.0]])
    array([ True, False])
    """

    def __init__(
        self, nu: float = 0.5, *, kernel: Any = "rbf", gamma: Any = "scale", degree: int = 3, coef0: float = 1.0,
        fit_intercept: bool = True, tol: float = 1e-6, solve_options: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.nu = nu
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.solve_options = solve_options

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to points X (n, columns), or kernel values (n, n), and two classes y (n,)."""
        nu = _share(self)
        X, y = self._read(X, y)
        self.classes_, numbers = numbered_classes(y, row_weights(sample_weight, len(X)))
        if len(self.classes_) != 2:
            raise DataError(
                f"Only binary classification is supported: expected two classes; got {len(self.classes_)}. Write "
                "sklearn.multiclass.OneVsRestClassifier(NuKernelClassifier(...))."
            )
        sample, kernel, points = self._sample(X, numbers, sample_weight)
        labels, total = 2.0 * numbers[sample.rows] - 1, float(sample.weights.sum())
        most = 2 * min(sample.weights[labels > 0].sum(), sample.weights[labels < 0].sum()) / total
        if self.fit_intercept and nu > most:
            raise OptionError(f"Expected nu ≤ {most:.3g}, twice the fraction of the smaller class; got {nu!r}.")
        theta, rho = Theta(kernel), cp.Variable(nonneg=True, name="rho")
        b = cp.Variable(name="b") if self.fit_intercept else None
        f = theta(points) if b is None else theta(points) + b
        short = sample.weights @ cp.pos(rho - losses.margin(labels, f)) / total
        problem = Problem(cp.Minimize(0.5 * sum_squares(theta) + short - nu * rho))
        self.certificate_ = solved(self, problem, tol=self.tol)
        self._keep(kernel, points, sample, [theta.value])
        self.intercept_, self.margin_ = 0.0 if b is None else float(b.value), float(rho.value)
        found = self.certificate_
        if self.margin_ <= 0 or (found is not None and found.upper >= 0):  # θ = 0 is as good, to rounding
            largest = most if self.fit_intercept else 1.0  # which has the largest margin
            Problem(cp.Minimize(0.5 * sum_squares(theta) + short - largest * rho)).solve(tol=self.tol)
            has_one = nu < largest and rho.value is not None and rho.value > 0
            remedy = "Take a larger nu." if has_one else "No nu has one here: points of both classes are alike."
            raise OptionError(f"Expected a nu with a margin ρ > 0; for {nu!r} it is 0. {remedy}")
        return self

    def decision_function(self, X: Any) -> Array:
        """f/ρ at points X, (n,): above 1 or below −1 outside of the margin, positive for `classes_[1]`."""
        f = self._theta_at(X)
        return (f + self.intercept_) / self.margin_

    def predict(self, X: Any) -> Array:
        """The class of each point, (n,)."""
        f = self.decision_function(X)
        return self.classes_[(f > 0).astype(int)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class NuKernelRegressor(Regressor, KernelModel):
    """Regression in a tube of free width: minimize ½‖θ‖² + C Σᵢ wᵢ(max(0, |yᵢ − f(xᵢ)| − ε) + νε) over f and ε ≥ 0.

    f(x) = θᵀF(x) + b. At most a fraction ν of the weight lies outside the tube, and at least a fraction ν on its edge
    or outside (Schölkopf et al., Neural Computation 12, 2000). It is scikit-learn's `NuSVR(nu=nu, C=C)`.

    Parameters
    ----------
    nu : float in (0, 1]
    C : float > 0
    kernel, gamma, degree, coef0, fit_intercept, tol, solve_options : as in `KernelRegressor`

    Attributes
    ----------
    epsilon_ : ε, in units of y
    function_, intercept_, pivots_, coefficients_, certificate_, n_iter_ : as in `KernelRegressor`

    Raises
    ------
    ValueError
        For invalid parameters, data and weights.

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=60)
    >>> model = ko.estimators.NuKernelRegressor(nu=0.2, C=10.0).fit(X, y)
    >>> bool(np.mean(np.abs(model.predict(X) - y) > model.epsilon_ + 1e-4) <= 0.2)
    True
    """

    def __init__(
        self, nu: float = 0.5, *, C: float = 1.0, kernel: Any = "rbf", gamma: Any = "scale", degree: int = 3,
        coef0: float = 1.0, fit_intercept: bool = True, tol: float = 1e-6,
        solve_options: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.nu = nu
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.solve_options = solve_options

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to points X (n, columns), or kernel values (n, n), and targets y (n,)."""
        nu, C = _share(self), positive(self, "C")
        X, y = self._read(X, y, y_numeric=True)
        with explained("y"):
            targets = np.asarray(y, dtype=np.float64)
        sample, kernel, points = self._sample(X, targets, sample_weight)
        theta, width = Theta(kernel), cp.Variable(nonneg=True, name="epsilon")
        b = cp.Variable(name="b") if self.fit_intercept else None
        f = theta(points) if b is None else theta(points) + b
        # Targets near 0 leave the digits of small residuals; those of a constant y are then exactly 0.
        shift = float(np.median(targets)) if self.fit_intercept else 0.0
        r = targets[sample.rows] - shift - f
        outside = cp.maximum(r - width, -r - width, 0)
        cost = sample.weights @ outside + nu * float(sample.weights.sum()) * width
        problem = Problem(cp.Minimize(0.5 * sum_squares(theta) + C * cost))
        self.certificate_ = solved(self, problem, tol=self.tol)
        self._keep(kernel, points, sample, [theta.value])
        self.intercept_, self.epsilon_ = 0.0 if b is None else float(b.value) + shift, float(width.value)
        return self

    def predict(self, X: Any) -> Array:
        """f at points X, (n,)."""
        f = self._theta_at(X)
        return f + self.intercept_
