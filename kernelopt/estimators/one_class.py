"""The one-class support vector machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import cvxpy as cp
import numpy as np
from sklearn.base import OutlierMixin

from kernelopt.errors import OptionError
from kernelopt.estimators import keywords
from kernelopt.estimators.intercepts import midpoint, of_level
from kernelopt.estimators.model import HalfNorm, solved
from kernelopt.language.expressions import Theta, sum_squares
from kernelopt.problem import Problem
from kernelopt.support.checks import is_real
from kernelopt.support.types import Array


class OneClass(OutlierMixin, HalfNorm):
    """Outliers: minimize ½‖θ‖² + Σᵢ wᵢ max(0, ρ − θᵀF(xᵢ)) − νρ Σᵢ wᵢ over θ and ρ.

    At most a fraction ν of the training rows lies below ρ, and at least a fraction ν on or below it (Schölkopf, Platt,
    Shawe-Taylor, Smola and Williamson, Neural Computation 13, 2001). θ and ρ have the scale of those in
    scikit-learn's `OneClassSVM`.

    Parameters
    ----------
    nu : float in (0, 1]
        ν, the largest fraction of training rows that are outliers.
    kernel, gamma, degree, coef0, tol, solve_options : as in `KernelRegressor`

    Attributes
    ----------
    offset_ : ρ; `decision_function` is `score_samples` − ρ
    function_, pivots_, coefficients_, support_, dual_coef_, certificate_ : as in `KernelRegressor`
    n_features_in_, feature_names_in_ : as in scikit-learn

    Raises
    ------
    ValueError
        For invalid parameters, data and weights.

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> model = ko.estimators.OneClass(nu=0.1).fit(X)
    >>> model.predict([[1.0, 1.0], [5.0, 5.0]])
    array([ 1, -1])
    >>> bool((model.decision_function(X) < -1e-6).mean() <= 0.1)
    True
    """

    _instead_of: ClassVar[Mapping[str, str]] = keywords.ONE_CLASS

    def __init__(
        self, nu: float = 0.5, *, kernel: Any = "rbf", gamma: Any = "scale", degree: int = 3, coef0: float = 1.0,
        tol: float = 1e-6, solve_options: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.nu = nu
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.tol = tol
        self.solve_options = solve_options

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to points X (n, columns), or kernel values (n, n); y is ignored."""
        if not is_real(self.nu) or not 0 < self.nu <= 1:
            raise OptionError(f"Expected nu to be a number in (0, 1]; got {self.nu!r}.")
        X = self._read(X)
        sample, kernel, points = self._sample(X, None, sample_weight)
        theta, rho = Theta(kernel), cp.Variable(name="rho")
        u = theta(points)
        short = sample.weights @ cp.pos(rho - u)
        objective = 0.5 * sum_squares(theta) + short - float(self.nu) * sample.weights.sum() * rho
        self.offset_: float
        self.certificate_ = solved(self, Problem(cp.Minimize(objective)), tol=self.tol)
        self._keep(kernel, points, sample, [theta.value], u.dual_value)
        # ρ is a quantile of level ν of the values, which is an interval where νW is a sum of weights.
        at = np.asarray(u.value)
        middle = midpoint(of_level(at, np.zeros(len(at)), sample.weights, float(self.nu)))
        self.offset_ = float(rho.value) if middle is None else middle
        return self

    def score_samples(self, X: Any) -> Array:
        """θᵀF(x), (n,): larger values for more typical points."""
        return self._theta_at(X)

    def decision_function(self, X: Any) -> Array:
        """θᵀF(x) − ρ, (n,): negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> Array:
        """+1 for inliers, −1 for outliers, (n,)."""
        return np.where(self.decision_function(X) < 0, -1, 1)
