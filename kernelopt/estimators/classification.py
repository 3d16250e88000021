"""Classification: any loss of the margin, one class against the rest, or a joint loss of several classes."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, ClassVar, Self

import cvxpy as cp
import numpy as np
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from kernelopt import losses
from kernelopt.errors import DataError, DataTypeError, OptionError
from kernelopt.estimators import keywords
from kernelopt.estimators.intercepts import midpoint, of_hinge
from kernelopt.estimators.model import KernelModel, Loss, loss_terms, solved
from kernelopt.estimators.sample import Sample, row_weights
from kernelopt.estimators.scoring import Classifier
from kernelopt.kernels import Kernel
from kernelopt.language.expressions import Theta
from kernelopt.problem import Problem
from kernelopt.support.checks import shown
from kernelopt.support.types import Array

# Losses of y·f with y = ±1, and joint losses of all K outputs, by name.
OF_MARGINS: dict[str, Loss] = {
    "hinge": losses.hinge,
    "squared_hinge": losses.squared_hinge,
    "log_loss": losses.log_loss,
    "squared_error": losses.squared_error,
}
JOINT: dict[str, Loss] = {"multinomial": losses.multinomial, "crammer_singer": losses.crammer_singer}


def numbered_classes(y: Any, weights: Array) -> tuple[Array, Array]:
    """The classes of rows of positive weight, and for each row the number of its class (−1 for a class without weight).

    Raises ValueError for targets that are not classes, and for fewer than two classes; DataTypeError for labels of
    types without an order.
    """
    _require_order(y)
    check_classification_targets(y)
    classes = np.unique(y[weights > 0])
    if len(classes) < 2:
        got = f"one class, {classes.tolist()[0]!r}, with" if len(classes) else "no row with"
        raise DataError(
            f"Expected rows of at least two classes; got {got} sample_weight times class_weight > 0. "
            "Add rows of another class, or give them positive weight."
        )
    numbers = np.searchsorted(classes, y)
    found = classes[np.minimum(numbers, len(classes) - 1)] == y
    return classes, np.where(found, numbers, -1)


def _require_order(y: Any) -> None:
    labels = np.asarray(y)
    if labels.dtype != object:
        return
    try:
        np.sort(labels, axis=None)
    except TypeError:
        kinds = sorted({type(label).__name__ for label in labels.ravel()})
        raise DataTypeError(
            f"Expected labels of one type, which can be sorted; got {', '.join(kinds)}. Make them strings, as by "
            "[str(label) for label in y], and leave out rows without a label."
        ) from None


def class_weights(class_weight: Any, y: Any, weights: Array) -> Array:
    """The weight of each row's class; "balanced" ones are in inverse proportion to the weights of its rows.

    Raises OptionError for other values than "balanced" and a dict of weights ≥ 0.
    """
    is_name = isinstance(class_weight, str) and class_weight == "balanced"
    if not isinstance(class_weight, Mapping) and not is_name:
        raise OptionError(
            f'Expected class_weight to be "balanced", a dict of classes and weights, or None; got '
            f"{shown(class_weight)}."
        )
    if not is_name:
        wrong = {name: w for name, w in class_weight.items() if not _is_weight(w)}
        if wrong:
            raise OptionError(f"Expected class_weight with finite numbers ≥ 0; got {shown(wrong)}.")
        return np.asarray(compute_sample_weight(class_weight, y), dtype=float)
    _, numbers = np.unique(y, return_inverse=True)
    of_class = np.bincount(numbers, weights)
    there = of_class > 0
    share = np.where(there, weights.sum() / (np.count_nonzero(there) * np.where(there, of_class, 1.0)), 0.0)
    return np.asarray(share[numbers])


def _is_weight(w: Any) -> bool:
    return isinstance(w, (int, float, np.number)) and 0 <= float(w) < inf


def _gives_probabilities(estimator: Any) -> bool:
    if isinstance(estimator.loss, str) and estimator.loss in ("log_loss", "multinomial"):
        return True
    raise AttributeError(
        f"predict_proba needs loss='log_loss' or 'multinomial', which define probabilities; got {estimator.loss!r}. "
        "Calibrate other losses: sklearn.calibration.CalibratedClassifierCV(estimator)."
    )


class KernelClassifier(Classifier, KernelModel):
    """Classification with any loss: minimize Σᵢ wᵢ ℓ(yᵢ, f(xᵢ)) + α‖θ‖² over f(x) = θᵀF(x) + b, with yᵢ = ±1.

    α multiplies ‖θ‖², and the loss is a sum, not a mean: `loss="hinge"` is scikit-learn's `SVC(C=1/(2*alpha))`.

    With K > 2 classes, a loss of margins is fitted once for each class against the rest; the K problems share one
    factor of the kernel matrix, and `predict` returns the class with the largest fₖ. The joint losses "multinomial" and
    "crammer_singer" state one problem in a p×K matrix θ: minimize Σᵢ wᵢ ℓ(yᵢ, F(xᵢ)) + α‖θ‖². For K > 2 "log_loss" is
    "multinomial", as in `LogisticRegression`; `OneVsRestClassifier` fits each class against the rest.

    Parameters
    ----------
    loss : str or callable, default "hinge"
        "hinge" max(0, 1 − yf), "squared_hinge", "log_loss" log(1 + exp(−yf)), "squared_error" (1 − yf)²; joint:
        "multinomial" log Σₖ exp(fₖ) − f[y], "crammer_singer" maxₖ(fₖ + [k ≠ y]) − f[y]. Or a `ko.SmoothLoss`, or a
        function of (y, f), y an array of ±1, that returns a `SmoothLoss` or a cvxpy expression with an entry per row.
    alpha : float > 0 or None
        The coefficient of ‖θ‖². None is ½, C = 1 as in `SVC` and `LogisticRegression`.
    class_weight : dict, "balanced" or None
        Weights of the classes, which multiply those of rows; "balanced" is W/(K·Wₖ), with the sums W of all weights of
        rows and Wₖ of a class's, as in scikit-learn's `LogisticRegression`. A class of weight 0 is left out. The
        variance in gamma="scale" does not count them, as in `SVC`.
    C : float > 0, optional
        scikit-learn's C, in place of alpha: α = 1/(2C).
    kernel, gamma, degree, coef0, fit_intercept, tol, solve_options : as in `KernelRegressor`

    Attributes
    ----------
    classes_ : the K classes, those of rows of positive weight
    function_ : the fitted θ, a `ko.Function` (with K outputs for K > 2); None for kernel="precomputed"
    intercept_ : b, a number, or (K,) for K > 2
    pivots_, coefficients_, n_iter_ : as in `KernelRegressor`
    support_, dual_coef_ : as in `KernelRegressor`, (1, m) for two classes and (K, m) for more
    certificate_ : how close the answer is to the optimum; a list of K where each class is fitted against the rest
    n_features_in_, feature_names_in_ : as in scikit-learn

    Notes
    -----
    `predict_proba` exists for "log_loss" and "multinomial". No other loss defines probabilities: wrap the estimator in
    `sklearn.calibration.CalibratedClassifierCV`.
    `fit(X, y, sample_weight=w)` takes weights w ≥ 0; 0 leaves a row out, and 2 counts it twice.

    Raises
    ------
    ValueError
        For invalid parameters, data and weights, and for a single class.

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(80, 2))
    >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same", "opposite")
    >>> model = ko.estimators.KernelClassifier("log_loss", alpha=0.1).fit(X, y)
    >>> model.predict([[1.0, 1.0], [1.0, -1.0]]).tolist()
    ['same', 'opposite']
    >>> model.predict_proba([[1.0, 1.0]]).shape, model.certificate_.relative_gap < 1e-6
    ((1, 2), True)
    """

    _instead_of: ClassVar[Mapping[str, str]] = keywords.CLASSIFIER

    def __init__(
        self, loss: Any = "hinge", *, alpha: float | None = None, kernel: Any = "rbf", gamma: Any = "scale",
        degree: int = 3, coef0: float = 1.0, fit_intercept: bool = True, class_weight: Any = None,
        C: float | None = None, tol: float = 1e-6, solve_options: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.loss = loss
        self.alpha = alpha
        self.class_weight = class_weight
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.solve_options = solve_options

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to points X (n, columns), or kernel values (n, n), and classes y (n,) of any kind."""
        X, y = self._read(X, y)
        weights = row_weights(sample_weight, len(X))
        of_classes = None if self.class_weight is None else class_weights(self.class_weight, y, weights)
        self.classes_, numbers = numbered_classes(y, weights if of_classes is None else weights * of_classes)
        sample, kernel, points = self._sample(X, numbers, sample_weight, of_classes)
        numbers = numbers[sample.rows]
        joint = self._joint(len(self.classes_))
        if joint is not None:
            self._fit_jointly(joint, kernel, points, numbers, sample)
        elif len(self.classes_) == 2:
            (self.certificate_,), function, self.intercept_, nu = self._fit_each(
                kernel, points, [2.0 * numbers - 1], sample
            )
            self._keep(kernel, points, sample, function, nu)
        else:
            labels = [np.where(numbers == k, 1.0, -1.0) for k in range(len(self.classes_))]
            self.certificate_, functions, self.intercept_, nu = self._fit_each(kernel, points, labels, sample)
            self._keep(kernel, points, sample, functions, nu)
        return self

    def _fit_each(
        self, kernel: Kernel, points: Any, labels: list[Array], sample: Sample
    ) -> tuple[list[Any], Any, Any, Array | None]:
        """Fit a function to each array of labels ±1: certificates, functions, intercepts and multipliers."""
        theta, b = Theta(kernel), self._intercept(())
        u = theta(points)
        f = u if b is None else u + b
        # Losses by name take labels as a cp.Parameter, so that one problem serves all classes. A user's function gets
        # the labels as an array, and may depend on them in any way: its problem is stated for each class.
        named = isinstance(self.loss, str)
        y = cp.Parameter(len(labels[0])) if named and len(labels) > 1 else None
        problem, found = None, []
        for each in labels:
            if y is not None:
                y.value = each
            if problem is None or y is None:
                terms = loss_terms(self.loss, OF_MARGINS | JOINT, each if y is None else y, f)
                problem = Problem(self._objective(terms, sample, theta))
            certificate = solved(self, problem, tol=self.tol)
            intercept = 0.0 if b is None else float(b.value)
            if b is not None and named and self.loss == "hinge":
                middle = midpoint(of_hinge(each, np.asarray(u.value), sample.weights))
                intercept = intercept if middle is None else middle
            found.append((certificate, theta.value, intercept, u.dual_value))
        certificates, functions, intercepts, columns = zip(*found, strict=True)
        together = None if any(column is None for column in columns) else np.column_stack(columns)
        return list(certificates), functions, intercepts[0] if len(labels) == 1 else np.array(intercepts), together

    def _joint(self, K: int) -> str | None:
        """The name of the joint loss for K classes; None where each class is fitted against the rest."""
        name = self.loss if isinstance(self.loss, str) else None
        if name == "log_loss" and K > 2:
            return "multinomial"
        return name if name in JOINT else None

    def _fit_jointly(self, joint: str, kernel: Kernel, points: Any, numbers: Array, sample: Sample) -> None:
        """One p×K matrix θ for all classes; for two classes f = f₁ − f₀ is stored."""
        K = len(self.classes_)
        theta, b = Theta(kernel, K), self._intercept(K)
        U = theta(points)
        F = U if b is None else U + b[None, :]
        problem = Problem(self._objective(JOINT[joint](numbers, F), sample, theta))
        self.certificate_ = solved(self, problem, tol=self.tol)
        self._keep(kernel, points, sample, [theta.value], U.dual_value)
        self.intercept_ = np.zeros(K) if b is None else np.array(b.value)
        if K == 2:
            first = np.array([-1.0, 1.0])
            self.coefficients_, self.intercept_ = self.coefficients_ @ first, float(self.intercept_ @ first)
            self.function_ = None if self.function_ is None else self.function_.right(first)
            if hasattr(self, "dual_coef_"):
                self.dual_coef_ = first[None, :] @ np.asarray(self.dual_coef_)

    def _intercept(self, shape: Any) -> Any:
        return cp.Variable(shape, name="b") if self.fit_intercept else None

    def decision_function(self, X: Any) -> Array:
        """f at points X, (n,), positive for `classes_[1]`; for K > 2 classes one column per class, (n, K)."""
        return self._theta_at(X) + self.intercept_

    def predict(self, X: Any) -> Array:
        """The class of each point, (n,)."""
        f = self.decision_function(X)
        return self.classes_[(f > 0).astype(int) if f.ndim == 1 else f.argmax(axis=1)]

    @available_if(_gives_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, (n, K); for the losses that define it, "log_loss" and "multinomial"."""
        f = self.decision_function(X)
        if f.ndim == 1:
            return np.column_stack([expit(-f), expit(f)])
        return np.asarray(softmax(f, axis=1))

    @available_if(_gives_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Array:
        """The logarithm of each probability, (n, K), without underflow."""
        f = self.decision_function(X)
        if f.ndim == 1:
            return np.column_stack([log_expit(-f), log_expit(f)])
        return np.asarray(log_softmax(f, axis=1))
