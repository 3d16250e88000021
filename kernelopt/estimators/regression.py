"""Regression: any loss, and several quantiles that do not cross."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from inspect import signature
from math import nan
from typing import Any, ClassVar, Self

import cvxpy as cp
import numpy as np
from sklearn.metrics import d2_pinball_score, d2_tweedie_score
from sklearn.utils.validation import check_is_fitted

from kernelopt import losses
from kernelopt.errors import OptionError
from kernelopt.estimators import keywords
from kernelopt.estimators.intercepts import KnotSlopes, midpoint, of_level, of_tube
from kernelopt.estimators.intervals import FittedRows, interval
from kernelopt.estimators.model import HALF, KernelModel, Loss, loss_terms, solved
from kernelopt.estimators.sample import Sample, explained, row_weights
from kernelopt.estimators.scoring import Regressor, score_weights
from kernelopt.kernels.domains import real_array
from kernelopt.language.expressions import Theta
from kernelopt.model_selection.conformal import Band
from kernelopt.problem import Problem
from kernelopt.support.checks import is_real, shown
from kernelopt.support.types import Array

# Losses that grow like |y − f|: in other units of y another α gives the same fit.
OF_UNITS = {"absolute_error", "huber", "epsilon_insensitive", "quantile", "pinball"}
MEDIAN = 0.5
# Losses by the parameter that they alone use.
USERS = {"epsilon": ("epsilon_insensitive",), "delta": ("huber",), "quantile": ("quantile", "pinball")}
FAR = 10.0  # standard deviations of y above this, or below its inverse, are far from 1
CONSTANT = 1e-12  # relative to the largest |y|: a standard deviation up to this is rounding
LITTLE = 0.3  # the share of the loss at θ = 0 below which a fit explains little


class _Regressor(Regressor, KernelModel):
    """Minimize Σᵢ wᵢ ℓ(yᵢ, f(xᵢ)) + α‖θ‖² over f(x) = θᵀF(x) + b."""

    fit_intercept: Any

    def _read_targets(self, X: Any, y: Any, **checks: Any) -> tuple[Any, Array]:
        X, y = self._read(X, y, y_numeric=True, **checks)
        with explained("y"):
            return X, np.asarray(y, dtype=np.float64)

    def _prediction(self, theta: Theta, points: Any) -> tuple[Any, Any]:
        """(f at the points, b), with b a variable or None."""
        outputs = theta.outputs
        f = theta(points)
        if not self.fit_intercept:
            return f, None
        b = cp.Variable(() if outputs is None else outputs, name="b")
        return (f + b if outputs is None else f + b[None, :]), b

    def _store(  # noqa: PLR0917
        self, theta: Theta, b: Any, kernel: Any, points: Any, sample: Sample, y: Array
    ) -> None:
        """Store θ and b; y : the targets of the sample."""
        u = theta(points)
        self._keep(kernel, points, sample, [theta.value], u.dual_value)
        zero = 0.0 if theta.outputs is None else np.zeros(theta.outputs)
        self.intercept_ = zero if b is None else self._midpoints(y, np.asarray(u.value), sample.weights, b.value)

    def _midpoints(self, y: Array, u: Array, w: Array, b: Any) -> Any:
        """b, with the midpoint of an interval of optima for each output that has one."""
        columns = np.broadcast_to(y if y.ndim == u.ndim else y[:, None], u.shape).reshape(len(u), -1).T
        each = zip(columns, u.reshape(len(u), -1).T, range(np.size(b)), strict=True)
        found = [self._slopes(of_output, at, w, k) for of_output, at, k in each]
        middles = [None if slopes is None else midpoint(slopes) for slopes in found]
        values = [float(own) if m is None else m for own, m in zip(np.ravel(b), middles, strict=True)]
        return values[0] if np.ndim(b) == 0 else np.array(values)

    def _slopes(self, y: Array, u: Array, w: Array, k: int) -> KnotSlopes | None:
        """The loss of output k as a function of b, where it is piecewise linear."""
        raise NotImplementedError


class KernelRegressor(_Regressor):
    """Regression with any loss: minimize Σᵢ wᵢ ℓ(yᵢ, f(xᵢ)) + α‖θ‖² over f(x) = θᵀF(x) + b.

    α multiplies ‖θ‖², and the loss is a sum, not a mean. `loss="squared_error", fit_intercept=False` is
    scikit-learn's `KernelRidge(alpha=alpha)`, `loss="epsilon_insensitive"` its `SVR(C=1/(2*alpha), epsilon=epsilon)`.

    Parameters
    ----------
    loss : str or callable, default "squared_error"
        "squared_error" (y − f)², "absolute_error" |y − f|, "huber" (`ko.losses.huber` with M = `delta`),
        "epsilon_insensitive" max(0, |y − f| − ε), "quantile" or "pinball" (`ko.losses.pinball` of level `quantile`),
        "poisson" exp(f) − yf, for counts y ≥ 0, where predictions are exp(f). Or a `ko.SmoothLoss`, or a function of
        (y, f) that returns a `SmoothLoss` or a cvxpy expression with an entry per row.
    alpha : float ≥ 0, array (outputs,) or None
        The coefficient of ‖θ‖² (the squared Frobenius norm if y has several columns), or one for each column of y. None
        is 1 for "squared_error", as in `KernelRidge`, and ½ for other losses, C = 1 as in `SVR`. For 0 some θ of least
        loss is returned, if there is one. Zeros beside other values leave the gap unproven, and `fit` warns.
    kernel : kernel of `ko.kernels`, str or callable, default "rbf"
        A name as in scikit-learn: "linear", "poly", "rbf", "laplacian", "sigmoid", "cosine", or "precomputed", where X
        is the matrix of kernel values. A function takes two points and returns their kernel value.
    gamma : "scale", "auto", None or float > 0
        γ of a kernel by name, as in `SVC`: exp(−γ‖x − y‖²), (γxᵀy + coef0)^degree. "scale" is 1/(columns·variance of
        X), "auto" 1/columns, and None as well, as in `KernelRidge`. The variance counts rows by `sample_weight`, so
        that a weight of 2 is two rows; scikit-learn's does not.
    degree : int
        Degree of "poly".
    coef0 : float
        Constant in "poly" and "sigmoid".
    fit_intercept : bool
        Whether f has an intercept b, which is not penalized.
    epsilon : float ≥ 0
        ε of "epsilon_insensitive", in units of y.
    delta : float > 0
        M of "huber", in units of y.
    quantile : float in (0, 1)
        τ of "quantile" and "pinball", two names of one loss.
    C : float > 0, optional
        scikit-learn's C, in place of alpha: α = 1/(2C).
    tol : float
        Largest certified gap that counts as optimal, relative to the improvement over θ = 0; see `Problem.solve`.
    solve_options : dict, optional
        Other options of `Problem.solve`, such as {"max_rank": 300} or {"indefinite": "clip"}.

    Attributes
    ----------
    function_ : the fitted θ, a `ko.Function` of points; None for kernel="precomputed"
    intercept_ : b, or 0 for fit_intercept=False
    pivots_, coefficients_ : the training rows s, (m,), and c, (m,) or (m, outputs), of θ = Σₛ cₛF(xₛ)
    support_, dual_coef_ : the training rows with a multiplier, (m,), and their coefficients in θ = Aᵀν/(2α), (1, m) or
        (outputs, m); for α = 0 the pivots, in order
    n_iter_ : iterations of the solver, or linear systems
    certificate_ : how close the answer is to the optimum, `problem.certificate`; None for a loss declared nonconvex
    n_features_in_, feature_names_in_ : as in scikit-learn

    Notes
    -----
    `fit(X, y, sample_weight=w)` takes weights w ≥ 0; 0 leaves a row out, and 2 counts it twice. y may have several
    columns. Rows are sorted and repeated rows merged, so that the fit does not depend on their order. If the answer is
    not optimal, `fit` warns (ConvergenceWarning) and says what to do.

    Raises
    ------
    ValueError
        For invalid parameters, data and weights (OptionError, DataError, NotPSDError).

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> y[::10] += 5  # outliers
    >>> model = ko.estimators.KernelRegressor("absolute_error", alpha=0.1).fit(X, y)
    >>> model.predict([[1.5], [4.5]]).round(1)
    array([ 1., -1.])
    >>> model.certificate_.relative_gap < 1e-6
    True
    """

    _instead_of: ClassVar[Mapping[str, str]] = keywords.REGRESSOR
    _elsewhere: ClassVar[Mapping[str, str]] = {"tau": "quantile", "M": "delta"}  # names in ko.losses

    def __init__(
        self, loss: Any = "squared_error", *, alpha: Any = None, kernel: Any = "rbf", gamma: Any = "scale",
        degree: int = 3, coef0: float = 1.0, fit_intercept: bool = True, epsilon: float = 0.1, delta: float = 1.0,
        quantile: float = 0.5, C: float | None = None, tol: float = 1e-6,
        solve_options: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.loss = loss
        self.alpha = alpha
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.epsilon = epsilon
        self.delta = delta
        self.quantile = quantile
        self.tol = tol
        self.solve_options = solve_options

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to points X (n, columns), or kernel values (n, n), and targets y (n,) or (n, outputs)."""
        X, y = self._read_targets(X, y, multi_output=True)
        self._warn_of_unused()
        sample, kernel, points = self._sample(X, y, sample_weight)
        theta, _, b, terms = self._stated(kernel, points, y[sample.rows])
        problem = Problem(self._objective(terms, sample, theta))
        self.certificate_ = solved(self, problem, tol=self.tol)
        self._warn_of_units(problem, y)
        self._store(theta, b, kernel, points, sample, y[sample.rows])
        self._fitted_rows = FittedRows(X, y, row_weights(sample_weight, len(X)), kernel)
        return self

    def _warn_of_unused(self) -> None:
        """Warn where a parameter was set that another loss uses, and the loss is the default one."""
        usual = signature(type(self)).parameters
        if not isinstance(self.loss, str) or self.loss != usual["loss"].default:
            return
        for name, losses_ in USERS.items():
            if getattr(self, name) != usual[name].default:
                warnings.warn(
                    f"{name}={getattr(self, name)!r} is not used by the loss {self.loss!r}: write "
                    f"loss={losses_[0]!r}, or leave {name} out.",
                    UserWarning,
                    stacklevel=4,
                )

    def _warn_of_units(self, problem: Problem, y: Array) -> None:
        """Warn where y is in units far from 1, the loss grows like |y − f|, and θ explains little of it."""
        if not isinstance(self.loss, str) or self.loss not in OF_UNITS or problem.certificate is None:
            return
        spread = float(np.std(y))
        if spread <= CONSTANT * float(np.abs(y).max()):
            return
        zero, value = problem.certificate.at_zero, problem.value
        if (
            zero is None
            or value is None
            or not 0 < zero < np.inf
            or 1 / FAR < spread < FAR
            or (zero - value) / zero > LITTLE
        ):
            return
        if hasattr(self, "alphas"):
            rescale = f"divide alphas by {spread:.2g}"
        elif self.C is not None:
            rescale = f"multiply C by {spread:.2g}"
        elif self.alpha is not None:
            rescale = f"divide alpha by {spread:.2g}"
        else:
            rescale = f"set alpha={self._usual() / spread:.2g}"
        warnings.warn(
            f"The fit explains {max(0.0, (zero - value) / zero):.0%} of the loss. y has a standard deviation of "
            f"{spread:.2g}, and {self.loss!r} grows like |y − f|, α‖θ‖² like its square: α has the units of 1/y. "
            f"Standardize y, TransformedTargetRegressor(model, transformer=StandardScaler()), or {rescale}.",
            UserWarning,
            stacklevel=3,
        )

    def _usual(self) -> float:
        return 1.0 if isinstance(self.loss, str) and self.loss == "squared_error" else HALF

    def _alpha(self, outputs: int | None) -> float | Array:
        """α ≥ 0, or a value for each of several outputs."""
        several = np.ndim(self.alpha) == 1 and not isinstance(self.alpha, str)
        values = list(self.alpha) if several else [self.alpha]
        if not all(is_real(value) and value >= 0 for value in values):
            raise OptionError(
                f"Expected alpha to be a number ≥ 0, or one for each column of y; got {shown(self.alpha)}."
            )
        if several and len(values) != (outputs or 1):
            raise OptionError(
                f"Expected alpha to be a number, or {outputs or 1}, one for each column of y; got {len(values)}."
            )
        numbers = [float(value) for value in values]
        return np.array(numbers) if outputs is not None and len(set(numbers)) > 1 else numbers[0]

    def _stated(self, kernel: Any, points: Any, y: Array) -> tuple[Theta, Any, Any, Any]:
        """θ, f at the points, b, and the loss of each row (and output)."""
        theta = Theta(kernel, None if y.ndim == 1 else y.shape[1])
        f, b = self._prediction(theta, points)
        return theta, f, b, loss_terms(self.loss, self._named_losses(), y, f)

    def predict(self, X: Any) -> Array:
        """f at points X, or from their kernel values with the training points: (n,) or (n, outputs)."""
        f = self._theta_at(X) + self.intercept_
        return np.exp(f) if isinstance(self.loss, str) and self.loss == "poisson" else f

    def predict_interval(
        self, X: Any, level: float = 0.9, *, method: str = "plus", cv: Any = None, refit: bool = False
    ) -> Band:
        """Intervals that hold y at points X, by jackknife+ or CV+, from the rows of the fit: see `ko.jackknife`.

        For rows that are exchangeable with new ones, as independent draws are, they hold y with probability ≥ 2·level −
        1, and in most cases with about the level, whatever the distribution. The fit is made once more; fits without a
        row come from one decomposition, which is exact for "squared_error". `fit` keeps a reference to its X and y for
        this: do not change them in place.

        Parameters
        ----------
        X : points (m, columns)
        level : number between 0 and 1
        method : "plus", or "minmax" for wider intervals with a probability ≥ level
        cv : int, splitter, or iterable of (train, test), optional
            Leave out folds in place of single rows.
        refit : whether to fit again without each row or fold, for losses other than squares

        Returns
        -------
        Band
            lower and upper (m,) or (m, outputs), in the units of y, and the guarantee in words. It takes the kernel as
            given, also for gamma="scale", which depends on the X of all rows.

        Raises
        ------
        ValueError
            For kernel="precomputed", for α = 0 or an α for each column, and for a quantile other than the median; for a
            wrong level or method, and fewer than level/(1 − level) rows.
        KernelOptError
            For losses without a quadratic model around the optimum, such as nonconvex ones.

        Examples
        --------
        >>> import numpy as np, kernelopt as ko
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(0, 6, size=(60, 1))
        >>> y = np.sin(X[:, 0]) + 0.2 * rng.normal(size=60)
        >>> model = ko.estimators.KernelRegressor(alpha=0.5).fit(X, y)
        >>> band = model.predict_interval([[1.5], [4.5]], level=0.8)
        >>> band.lower.round(1), band.upper.round(1)
        (array([ 0.6, -1.2]), array([ 1.2, -0.7]))
        """
        check_is_fitted(self)
        if self._is_precomputed:
            raise OptionError(
                'Expected a kernel of points; kernel="precomputed" has no points for fits without a row. Give the '
                "kernel as an object or function, or state the problem and use ko.jackknife."
            )
        alpha = self._strength(self._fitted_rows.y.shape[1] if self._fitted_rows.y.ndim == 2 else None)
        if np.ndim(alpha) or not alpha:
            raise OptionError(
                f"Expected one alpha > 0, as fits without a row need one norm; got {shown(self.alpha)}. Fit each "
                "column of y by an estimator of its own, with alpha > 0."
            )
        if isinstance(self.loss, str) and self.loss in ("quantile", "pinball") and self.quantile != MEDIAN:
            raise OptionError(
                f"Expected a loss whose predictions are in the middle of y; got {self.loss!r} of level {self.quantile}."
                " Fit two levels with KernelQuantileRegressor, and move them with ko.conformal_interval."
            )
        scale = np.exp if isinstance(self.loss, str) and self.loss == "poisson" else None
        chosen = ["alpha was chosen by the same rows"] if hasattr(self, "alpha_") else []
        X = self._read(X, reset=False)
        return interval(self, self._fitted_rows, X, scale, level, method, cv, refit, chosen)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R², or D² of the loss for "quantile", "pinball" and "poisson": 1 is best, 0 that of the best constant.

        These are `sklearn.metrics.d2_pinball_score` and, for counts, `d2_tweedie_score` with power 1; NaN where all
        counts are equal.
        """
        loss = self.loss if isinstance(self.loss, str) else None
        if loss not in ("quantile", "pinball") and (loss != "poisson" or np.ndim(y) != 1):
            return super().score(X, y, sample_weight)
        weights = score_weights(X, y, sample_weight)
        if loss == "poisson":
            if np.ptp(np.asarray(y)[weights > 0] if weights is not None else y) == 0:
                return nan  # the best constant has no deviance
            return float(d2_tweedie_score(y, self.predict(X), sample_weight=weights, power=1))
        return float(d2_pinball_score(y, self.predict(X), sample_weight=weights, alpha=self.quantile))

    def _slopes(self, y: Array, u: Array, w: Array, k: int) -> KnotSlopes | None:
        if not isinstance(self.loss, str):
            return None
        if self.loss == "epsilon_insensitive":
            return of_tube(y, u, w, float(self.epsilon))
        levels = {"absolute_error": MEDIAN, "quantile": self.quantile, "pinball": self.quantile}
        return of_level(y, u, w, float(levels[self.loss])) if self.loss in levels else None

    def _named_losses(self) -> dict[str, Loss]:
        return {
            "squared_error": losses.squared_error,
            "absolute_error": losses.absolute_error,
            "huber": partial(losses.huber, M=self.delta),
            "epsilon_insensitive": partial(losses.epsilon_insensitive, epsilon=self.epsilon),
            "quantile": partial(losses.pinball, tau=self.quantile),
            "pinball": partial(losses.pinball, tau=self.quantile),
            "poisson": losses.poisson,
        }

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.positive_only = isinstance(self.loss, str) and self.loss == "poisson"
        return tags


class KernelQuantileRegressor(_Regressor):
    """Quantiles: minimize Σₖ Σᵢ wᵢρ(yᵢ − fₖ(xᵢ), τₖ) + α‖θ‖², with f₁(xᵢ) ≤ f₂(xᵢ) ≤ … at the training rows.

    ρ(r, τ) = max(τr, (τ − 1)r) is the pinball loss, and fₖ(x) = θₖᵀF(x) + bₖ. All levels are fitted jointly, by one
    convex problem.

    Parameters
    ----------
    quantiles : float or sequence of floats in (0, 1), default 0.5
        The levels τ₁ < τ₂ < …
    non_crossing : bool
        Whether the quantiles of several levels are constrained not to cross at the training rows of positive weight.
    alpha : float > 0
        The coefficient of ‖θ‖², the squared Frobenius norm over all levels; ½ is C = 1, the default of `SVR`.
    kernel, gamma, degree, coef0, fit_intercept, tol, solve_options : as in `KernelRegressor`

    Attributes
    ----------
    function_, intercept_, pivots_, coefficients_, certificate_ : as in `KernelRegressor`

    Raises
    ------
    ValueError
        For levels that do not increase or are not between 0 and 1, and as in `KernelRegressor`.

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 6, size=(80, 1))
    >>> y = np.sin(X[:, 0]) + rng.normal(size=80)
    >>> model = ko.estimators.KernelQuantileRegressor([0.1, 0.5, 0.9], alpha=0.1).fit(X, y)
    >>> levels = model.predict(X)
    >>> levels.shape, bool(np.diff(levels).min() > -1e-6)
    ((80, 3), True)
    """

    _instead_of: ClassVar[Mapping[str, str]] = keywords.QUANTILES
    _elsewhere: ClassVar[Mapping[str, str]] = {"tau": "quantiles", "quantile": "quantiles"}

    def __init__(
        self, quantiles: Any = 0.5, *, non_crossing: bool = True, alpha: float = 0.5, kernel: Any = "rbf",
        gamma: Any = "scale", degree: int = 3, coef0: float = 1.0, fit_intercept: bool = True, tol: float = 1e-6,
        solve_options: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.quantiles = quantiles
        self.non_crossing = non_crossing
        self.alpha = alpha
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.solve_options = solve_options

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to points X (n, columns), or kernel values (n, n), and targets y (n,)."""
        levels = self._levels()
        X, y = self._read_targets(X, y)
        sample, kernel, points = self._sample(X, y, sample_weight)
        theta = Theta(kernel, None if np.ndim(self.quantiles) == 0 else len(levels))
        f, b = self._prediction(theta, points)
        targets = y[sample.rows]
        if theta.outputs is None:
            terms, constraints = losses.pinball(targets, f, levels[0]), []
        else:
            terms = losses.pinball(targets, f, levels)
            constraints = [cp.diff(f, axis=1) >= 0] if self.non_crossing and len(levels) > 1 else []
        self.certificate_ = solved(self, Problem(self._objective(terms, sample, theta), constraints), tol=self.tol)
        self._store(theta, b, kernel, points, sample, targets)
        self._fitted_levels = levels
        return self

    def _midpoints(self, y: Array, u: Array, w: Array, b: Any) -> Any:
        """The midpoints, unless quantiles would cross at them."""
        found = super()._midpoints(y, u, w, b)
        crossing = self.non_crossing and u.ndim == 2 and np.any(np.diff(u + found, axis=1) < 0)
        return np.array(b) if crossing else found

    def _slopes(self, y: Array, u: Array, w: Array, k: int) -> KnotSlopes | None:
        return of_level(y, u, w, self._levels()[k])

    def predict(self, X: Any) -> Array:
        """The quantiles at points X: (n,) for one level, (n, levels) for a sequence of them."""
        return self._theta_at(X) + self.intercept_

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The mean over levels of D² = 1 − pinball loss/pinball loss of the empirical quantile; 1 is best."""
        weights = score_weights(X, y, sample_weight)
        predictions, levels = self.predict(X), self._levels()
        if levels != self._fitted_levels:
            raise OptionError(
                f"Expected the quantiles of the fit, {self._fitted_levels}; got {levels}, which were set since. Call "
                "fit."
            )
        y = real_array(y, "y")
        predictions = predictions.reshape(len(predictions), -1)
        scores = [
            d2_pinball_score(y, predictions[:, k], sample_weight=weights, alpha=level) for k, level in enumerate(levels)
        ]
        return float(np.mean(scores))

    def _levels(self) -> list[float]:
        quantiles = self.quantiles
        several = isinstance(quantiles, (list, tuple)) or getattr(quantiles, "ndim", 0) == 1
        levels = list(quantiles) if several else [quantiles]
        numbers = all(is_real(t) and 0 < t < 1 for t in levels)
        if not levels or not numbers or not all(np.diff([float(t) for t in levels]) > 0):
            raise OptionError(
                f"Expected quantiles to be a level between 0 and 1, or several that increase; got {self.quantiles!r}."
            )
        return [float(t) for t in levels]
