"""Support vector machines with ν, the share of rows outside, in place of C or ε."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any, ClassVar, NamedTuple, Self

import cvxpy as cp
import numpy as np
from sklearn.utils.multiclass import _ovr_decision_function

from kernelopt import losses
from kernelopt.certificate import Certificate
from kernelopt.errors import OptionError
from kernelopt.estimators import keywords
from kernelopt.estimators.classification import class_weights, numbered_classes
from kernelopt.estimators.model import HalfNorm, positive, solved, take
from kernelopt.estimators.sample import Sample, explained, row_weights
from kernelopt.estimators.scoring import Classifier, Regressor
from kernelopt.kernels import Kernel
from kernelopt.language.expressions import Theta, sum_squares
from kernelopt.problem import Problem
from kernelopt.support.checks import is_real
from kernelopt.support.types import Array, Ints


def _share(estimator: Any) -> float:
    """ν. Raises OptionError."""
    if not is_real(estimator.nu) or not 0 < estimator.nu <= 1:
        raise OptionError(f"Expected nu to be a number in (0, 1]; got {estimator.nu!r}.")
    return float(estimator.nu)


class Pair(NamedTuple):
    """The fit of two classes: its certificate, the rows of the sample, θ, b, ρ, and a multiplier for each row."""

    certificate: Certificate | None
    rows: Ints
    theta: Any
    intercept: float
    margin: float
    multipliers: Array | None


class NuKernelClassifier(Classifier, HalfNorm):
    """Two classes: minimize ½‖θ‖² + Σᵢ wᵢ max(0, ρ − yᵢf(xᵢ))/W − νρ over f(x) = θᵀF(x) + b and ρ ≥ 0, W = Σ wᵢ.

    At most a fraction ν of the weight lies on the wrong side of the margin ρ, and at least a fraction ν on it or there
    (Schölkopf, Smola, Williamson and Bartlett, Neural Computation 12, 2000). `decision_function` is f/ρ, as that of
    scikit-learn's `NuSVC(nu=nu)`. For K > 2 classes each of the K(K − 1)/2 pairs is fitted, as in `NuSVC`: a fit of one
    class against the rest has a margin only for ν up to twice the fraction of that class.

    Parameters
    ----------
    nu : float in (0, 1]
        ν; in each pair at most twice the fraction of the smaller class.
    class_weight : as in `KernelClassifier`; the fractions count weights. `NuSVC` takes one and ignores it.
    kernel, gamma, degree, coef0, fit_intercept, tol, solve_options : as in `KernelRegressor`

    Attributes
    ----------
    margin_ : ρ, a number, or one for each pair, (0, 1), (0, 2), …, (1, 2), …
    function_, intercept_, pivots_, coefficients_, certificate_ : as in `KernelClassifier`, of f, with an output or an
        entry for each pair in place of each class
    support_, dual_coef_ : the training rows with a multiplier, (m,), and their coefficients in f/ρ, those of `NuSVC`,
        (1, m), or (pairs, m)
    classes_, n_iter_ : as in `KernelClassifier`

    Raises
    ------
    ValueError
        For invalid parameters and data, a single class, and ν that no f can have.

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> y = X[:, 0] * X[:, 1] > 0
    >>> model = ko.estimators.NuKernelClassifier(nu=0.3).fit(X, y)
    >>> model.predict([[1.0, 1.0], [1.0, -1.0]])
    array([ True, False])
    """

    _instead_of: ClassVar[Mapping[str, str]] = keywords.NU_CLASSIFIER

    def __init__(
        self, nu: float = 0.5, *, kernel: Any = "rbf", gamma: Any = "scale", degree: int = 3, coef0: float = 1.0,
        fit_intercept: bool = True, class_weight: Any = None, tol: float = 1e-6,
        solve_options: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.nu = nu
        self.class_weight = class_weight
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.solve_options = solve_options

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to points X (n, columns), or kernel values (n, n), and classes y (n,) of any kind."""
        nu = _share(self)
        X, y = self._read(X, y)
        weights = row_weights(sample_weight, len(X))
        of_classes = None if self.class_weight is None else class_weights(self.class_weight, y, weights)
        self.classes_, numbers = numbered_classes(y, weights if of_classes is None else weights * of_classes)
        sample, kernel, points = self._sample(X, numbers, sample_weight, of_classes)
        numbers = numbers[sample.rows]
        pairs = [
            self._fit_pair(nu, kernel, points, sample, first, second, numbers)
            for first, second in combinations(range(len(self.classes_)), 2)
        ]
        multipliers: Array | None = np.zeros((len(numbers), len(pairs)))
        for column, pair in enumerate(pairs):
            if multipliers is not None and pair.multipliers is not None:
                multipliers[pair.rows, column] = pair.multipliers / pair.margin
            else:
                multipliers = None
        self._keep(kernel, points, sample, [pair.theta for pair in pairs], multipliers, [pair.rows for pair in pairs])
        self.certificate_: Any = [pair.certificate for pair in pairs]
        self.intercept_: Any = np.array([pair.intercept for pair in pairs])
        self.margin_: Any = np.array([pair.margin for pair in pairs])
        if len(pairs) == 1:
            self.certificate_, self.intercept_, self.margin_ = pairs[0].certificate, pairs[0].intercept, pairs[0].margin
        return self

    def _fit_pair(  # noqa: PLR0917
        self, nu: float, kernel: Kernel, points: Any, sample: Sample, first: int, second: int, numbers: Ints
    ) -> Pair:
        """Fit the rows of two classes, −1 and 1. Raises OptionError for ν without a margin."""
        rows = np.flatnonzero((numbers == first) | (numbers == second))
        labels, weights = np.where(numbers[rows] == second, 1.0, -1.0), sample.weights[rows]
        total = float(weights.sum())
        several = len(self.classes_) > 2
        names = " and ".join(repr(self.classes_.tolist()[k]) for k in (first, second)) if several else ""
        of_pair = f" (classes {names})" if several else ""
        most = 2 * min(weights[labels > 0].sum(), weights[labels < 0].sum()) / total
        if self.fit_intercept and nu > most:
            raise OptionError(
                f"Expected nu ≤ {most:.3g}, twice the fraction of the smaller class{of_pair}; got {nu!r}."
            )
        theta, rho = Theta(kernel), cp.Variable(name="rho")  # ρ ≥ 0 at every optimum
        b = cp.Variable(name="b") if self.fit_intercept else None
        u = theta(take(points, rows))
        f = u if b is None else u + b
        short = weights @ cp.pos(rho - losses.margin(labels, f)) / total
        certificate = solved(self, Problem(cp.Minimize(0.5 * sum_squares(theta) + short - nu * rho)), tol=self.tol)
        margin = float(rho.value)
        if margin <= 0 or (certificate is not None and certificate.upper >= 0):  # θ = 0 is as good, to rounding
            largest = most if self.fit_intercept else 1.0  # which has the largest margin
            Problem(cp.Minimize(0.5 * sum_squares(theta) + short - largest * rho)).solve(tol=self.tol)
            has_one = nu < largest and rho.value is not None and rho.value > 0
            remedy = "Take a larger nu." if has_one else "No nu has one here: points of both classes are alike."
            raise OptionError(f"Expected a nu with a margin ρ > 0{of_pair}; for {nu!r} it is 0. {remedy}")
        return Pair(certificate, rows, theta.value, 0.0 if b is None else float(b.value), margin, u.dual_value)

    def decision_function(self, X: Any) -> Array:
        """f/ρ at points X, (n,): above 1 or below −1 outside of the margin, positive for `classes_[1]`.

        For K > 2 classes (n, K): the number of pairs that each class wins, plus the sum of its f/ρ scaled to (−⅓, ⅓),
        as in `NuSVC`.
        """
        f = (self._theta_at(X) + self.intercept_) / self.margin_
        return f if f.ndim == 1 else np.asarray(_ovr_decision_function(f > 0, f, len(self.classes_)))

    def predict(self, X: Any) -> Array:
        """The class of each point, (n,)."""
        f = self.decision_function(X)
        return self.classes_[(f > 0).astype(int) if f.ndim == 1 else f.argmax(axis=1)]


class NuKernelRegressor(Regressor, HalfNorm):
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
    function_, intercept_, pivots_, coefficients_, support_, dual_coef_, certificate_, n_iter_ : as in `KernelRegressor`

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

    _instead_of: ClassVar[Mapping[str, str]] = keywords.NU_REGRESSOR

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
        # Targets near 0 leave the digits of small residuals; those of a constant y are then exactly 0.
        shift = float(np.median(targets)) if self.fit_intercept else 0.0
        shifted = targets[sample.rows] - shift
        # For ν < 1, a negative width costs more than 0. An optimum of 0 is proven by the sign of all terms.
        theta, width = Theta(kernel), cp.Variable(nonneg=nu == 1 or not shifted.any(), name="epsilon")
        b = cp.Variable(name="b") if self.fit_intercept else None
        u = theta(points)
        r = shifted - (u if b is None else u + b)
        outside = cp.pos(r - width) + cp.pos(-r - width)
        cost = sample.weights @ outside + nu * float(sample.weights.sum()) * width
        problem = Problem(cp.Minimize(0.5 * sum_squares(theta) + C * cost))
        self.certificate_ = solved(self, problem, tol=self.tol)
        self._keep(kernel, points, sample, [theta.value], u.dual_value)
        self.intercept_, self.epsilon_ = 0.0 if b is None else float(b.value) + shift, float(width.value)
        return self

    def predict(self, X: Any) -> Array:
        """f at points X, (n,)."""
        f = self._theta_at(X)
        return f + self.intercept_
