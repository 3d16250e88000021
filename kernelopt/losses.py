"""Losses by name, elementwise, in scikit-learn's argument order (y, f).

Plain functions that return cvxpy expressions, after a check of shapes and of the values of `y`. Writing a
loss in cvxpy atoms gives the same problem. `y` may be an array, list, pandas Series or cp.Parameter, `f` any
cvxpy expression of predictions. Sum losses with `cp.sum`, weigh them with `w @ loss`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelopt.errors import DataError, DataTypeError, OptionError
from kernelopt.kernels.domains import check_finite, real_array
from kernelopt.language.survival import CoxLikelihood, RiskSets
from kernelopt.support.checks import shown
from kernelopt.support.keywords import no_such_name

__all__ = [
    "absolute_error",
    "cox",
    "crammer_singer",
    "epsilon_insensitive",
    "expectile",
    "hinge",
    "huber",
    "log_loss",
    "margin",
    "multinomial",
    "ordinal",
    "pinball",
    "poisson",
    "squared_error",
    "squared_hinge",
]

_SQUARES, _ABSOLUTE, _LOGISTIC = "squared_error(y, f)", "absolute_error(y, f)", "log_loss(y, f), for labels −1 and +1"
# Names in scikit-learn, PyTorch, statsmodels, R and textbooks.
_ELSEWHERE = {
    "mse": f"{_SQUARES}, one value per row: its mean is cp.sum(…)/N",
    "meansquarederror": f"{_SQUARES}, one value per row: its mean is cp.sum(…)/N",
    "squared": _SQUARES,
    "square": _SQUARES,
    "squares": _SQUARES,
    "leastsquares": _SQUARES,
    "quadratic": _SQUARES,
    "l2": _SQUARES,
    "mae": f"{_ABSOLUTE}, one value per row: its mean is cp.sum(…)/N",
    "meanabsoluteerror": f"{_ABSOLUTE}, one value per row: its mean is cp.sum(…)/N",
    "absolute": _ABSOLUTE,
    "leastabsolutedeviations": _ABSOLUTE,
    "l1": _ABSOLUTE,
    "smoothl1": "huber(y, f, M)",
    "quantile": "pinball(y, f, tau), with tau between 0 and 1",
    "check": "pinball(y, f, tau), with tau between 0 and 1",
    "logistic": _LOGISTIC,
    "deviance": _LOGISTIC,
    "bce": _LOGISTIC,
    "bcewithlogits": _LOGISTIC,
    "binarycrossentropy": _LOGISTIC,
    "crossentropy": f"{_LOGISTIC}, or multinomial(y, F), for classes",
    "categoricalcrossentropy": "multinomial(y, F), for classes",
    "softmax": "multinomial(y, F), for classes",
    "svm": "hinge(y, f)",
    "svr": "epsilon_insensitive(y, f, epsilon)",
    "l2svm": "squared_hinge(y, f)",
    "squarehinge": "squared_hinge(y, f)",
    "coxph": "cox(time, event, f)",
    "poissonnll": "poisson(y, f)",
}
if not TYPE_CHECKING:  # type checkers would take any name for one that the module has
    __getattr__ = no_such_name(__name__, _ELSEWHERE, __all__, "loss")

CHECKED = "_checked"  # the attribute of a node that lists its cp.Parameters with labels or counts


def margin(y: Any, f: Any) -> cp.Expression:
    """yᵢfᵢ, for labels y of −1 and +1.

    Parameters
    ----------
    y : array of −1 and +1, or cp.Parameter (N,)
    f : predictions of y's shape

    Returns
    -------
    cvxpy expression of f's shape

    Examples
    --------
    >>> import cvxpy as cp, kernelopt as ko
    >>> ko.margin([1, -1], cp.Constant([3.0, 2.0])).value
    array([ 3., -2.])
    """
    y, f = _pair(y, f)
    return _checked(cp.multiply(y, f), y, "labels")


def hinge(y: Any, f: Any) -> cp.Expression:
    """max(0, 1 − yᵢfᵢ), for labels y of −1 and +1.

    Parameters
    ----------
    y : array of −1 and +1, or cp.Parameter (N,)
    f : predictions of y's shape

    Returns
    -------
    cvxpy expression of f's shape

    Examples
    --------
    >>> import cvxpy as cp, kernelopt as ko
    >>> ko.losses.hinge([1, -1], cp.Constant([3.0, 2.0])).value
    array([0., 3.])
    """
    return cp.pos(1 - margin(y, f))


def squared_hinge(y: Any, f: Any) -> cp.Expression:
    """max(0, 1 − yᵢfᵢ)², for labels y of −1 and +1.

    Parameters
    ----------
    y : array of −1 and +1, or cp.Parameter (N,)
    f : predictions of y's shape

    Returns
    -------
    cvxpy expression of f's shape

    Examples
    --------
    >>> import cvxpy as cp, kernelopt as ko
    >>> ko.losses.squared_hinge([1, -1], cp.Constant([3.0, 2.0])).value
    array([0., 9.])
    """
    return cp.square(hinge(y, f))


def log_loss(y: Any, f: Any) -> cp.Expression:
    """log(1 + exp(−yᵢfᵢ)), for labels y of −1 and +1.

    Parameters
    ----------
    y : array of −1 and +1, or cp.Parameter (N,)
    f : predictions of y's shape

    Returns
    -------
    cvxpy expression of f's shape

    Examples
    --------
    >>> import cvxpy as cp, kernelopt as ko
    >>> ko.losses.log_loss([1, -1], cp.Constant([0.0, 2.0])).value.round(4)
    array([0.6931, 2.1269])
    """
    return cp.logistic(-margin(y, f))


def squared_error(y: Any, f: Any) -> cp.Expression:
    """(yᵢ − fᵢ)².

    Parameters
    ----------
    y : array, or cp.Parameter (N,) or (N, K)
    f : predictions of y's shape

    Returns
    -------
    cvxpy expression of f's shape

    Examples
    --------
    >>> import cvxpy as cp, kernelopt as ko
    >>> ko.losses.squared_error([1, -1], cp.Constant([3.0, 2.0])).value
    array([4., 9.])
    """
    return cp.square(_residual(y, f))


def absolute_error(y: Any, f: Any) -> cp.Expression:
    """|yᵢ − fᵢ|.

    Parameters
    ----------
    y : array, or cp.Parameter (N,) or (N, K)
    f : predictions of y's shape

    Returns
    -------
    cvxpy expression of f's shape

    Examples
    --------
    >>> import cvxpy as cp, kernelopt as ko
    >>> ko.losses.absolute_error([1, -1], cp.Constant([3.0, 2.0])).value
    array([2., 3.])
    """
    return cp.abs(_residual(y, f))


def huber(y: Any, f: Any, M: Any = 1.0) -> cp.Expression:
    """cvxpy's Huber function of r = y − f: r² for |r| ≤ M, else 2M|r| − M² (twice the textbook one).

    Parameters
    ----------
    y : array, or cp.Parameter (N,) or (N, K)
    f : predictions of y's shape
    M : number > 0, in units of y

    Returns
    -------
    cvxpy expression of f's shape

    Examples
    --------
    >>> import cvxpy as cp, kernelopt as ko
    >>> ko.losses.huber([1.0, 2.0], cp.Constant([1.5, 5.0]), M=1.0).value
    array([0.25, 5.  ])
    """
    _check_height(M)
    return _noted(cp.huber(_residual(y, f), M), M, "heights")


def pinball(y: Any, f: Any, tau: Any = 0.5) -> cp.Expression:
    """max(τ(yᵢ − fᵢ), (τ − 1)(yᵢ − fᵢ)): slope τ where y > f; its minimizer is the τ-quantile.

    For predictions of shape (N, K), `tau` may be a list of K levels, one per column; y has shape (N, K) or (N,).

    Parameters
    ----------
    y : array (N,) or (N, K)
    f : predictions of the same shape, or (N, K) for y of shape (N,)
    tau : number between 0 and 1, or K of them

    Returns
    -------
    cvxpy expression of f's shape

    Examples
    --------
    >>> import cvxpy as cp, kernelopt as ko
    >>> ko.losses.pinball([1.0, 2.0], cp.Constant([0.0, 3.0]), tau=0.9).value.round(12)
    array([0.9, 0.1])
    """
    r, levels = _levelled(y, f, tau)
    return _noted(cp.maximum(cp.multiply(levels, r), cp.multiply(levels - 1, r)), tau, "levels")


def expectile(y: Any, f: Any, tau: Any = 0.5) -> cp.Expression:
    """τ max(0, yᵢ − fᵢ)² + (1 − τ) max(0, fᵢ − yᵢ)²: squares with weight τ where y > f.

    Its minimizer is the τ-expectile (Newey and Powell, Econometrica 55, 1987). For predictions of shape (N, K), `tau`
    may be a list of K levels, one per column; y has shape (N, K) or (N,).

    Parameters
    ----------
    y : array (N,) or (N, K)
    f : predictions of the same shape, or (N, K) for y of shape (N,)
    tau : number between 0 and 1, or K of them

    Returns
    -------
    cvxpy expression of f's shape

    Examples
    --------
    >>> import cvxpy as cp, kernelopt as ko
    >>> ko.losses.expectile([1.0, 2.0], cp.Constant([0.0, 4.0]), tau=0.9).value.round(12)
    array([0.9, 0.4])
    """
    r, levels = _levelled(y, f, tau)
    if isinstance(tau, cp.Expression) and tau.parameters():
        raise DataError(
            "Expected tau as numbers, since 1 − tau of a parameter has no sign that cvxpy knows; got an expression "
            f"with the parameter {tau.parameters()[0].name()}. Write cp.multiply(up, cp.square(cp.pos(y - f))) + "
            "cp.multiply(down, cp.square(cp.neg(y - f))) with up and down as parameters ≥ 0."
        )
    return cp.multiply(levels, cp.square(cp.pos(r))) + cp.multiply(1 - levels, cp.square(cp.neg(r)))


def ordinal(y: Any, f: Any, thresholds: Any) -> cp.Expression:
    """−log(σ(b_yᵢ − fᵢ) − σ(b_yᵢ₋₁ − fᵢ)), for ordered classes y in 0 … K−1 and thresholds b₀ < … < b_K₋₂.

    σ is the logistic function, b₋₁ = −∞ and b_K₋₁ = ∞: the negative log-likelihood of proportional odds, P(yᵢ ≤ k) =
    σ(bₖ − fᵢ) (McCullagh, JRSS B 42, 1980). It is convex in predictions and thresholds together, since it equals

        log(1 + e^(fᵢ − b_y)) + log(1 + e^(b_y₋₁ − fᵢ)) − log(1 − e^(b_y₋₁ − b_y)).

    The last term keeps thresholds in order if each class between them has a row. A constant added to f and thresholds
    does not change the loss, so that f needs no intercept. After a solve, `np.searchsorted(thresholds.value, f)` is the
    median class at f.

    Parameters
    ----------
    y : array (N,)
        Classes 0 … K−1, in their order.
    f : predictions (N,)
    thresholds : cp.Variable (K−1,), or an increasing array

    Returns
    -------
    cvxpy expression (N,)

    Raises
    ------
    DataError
        For shapes that do not fit, and classes that are not 0 … K−1.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> y, f, b = [0, 1, 2], cp.Constant([-2.0, 0.0, 2.0]), np.array([-1.0, 1.0])
    >>> ko.losses.ordinal(y, f, b).value.round(4)
    array([0.3133, 0.7719, 0.3133])
    """
    f, b = _expression(f, "the predictions"), _expression(thresholds, "thresholds")
    classes = real_array(y, "y")
    if f.ndim != 1 or classes.shape != f.shape or b.ndim != 1:
        raise DataError(
            f"Expected classes and predictions of one shape (N,), and K − 1 thresholds; got y of shape "
            f"{classes.shape}, predictions of shape {f.shape} and thresholds of shape {b.shape}. The order is "
            "(y, f, thresholds)."
        )
    K = b.shape[0] + 1
    if not np.isin(classes, np.arange(K)).all():
        raise DataError(
            f"Expected classes 0 … {K - 1}, one more than thresholds; got {np.setdiff1d(classes, np.arange(K))[0]:g}. "
            "Number them in their order with np.unique(y, return_inverse=True)."
        )
    k, n = classes.astype(int), len(classes)
    above, below = np.flatnonzero(k < K - 1), np.flatnonzero(k > 0)
    found = _scattered(cp.logistic(f[above] - b[k[above]]), above, n)
    found = found + _scattered(cp.logistic(b[k[below] - 1] - f[below]), below, n)
    between = np.flatnonzero((k > 0) & (k < K - 1))
    if len(between):
        found = found - _scattered(cp.log(1 - cp.exp(b[:-1] - b[1:]))[k[between] - 1], between, n)
    return found


def _scattered(values: cp.Expression, rows: NDArray[np.int64], n: int) -> cp.Expression:
    """A vector (n,) with the values at some rows, and 0 at the others."""
    return sp.csr_array((np.ones(len(rows)), (rows, np.arange(len(rows)))), shape=(n, len(rows))) @ values


def epsilon_insensitive(y: Any, f: Any, epsilon: Any = 0.1) -> cp.Expression:
    """max(0, |yᵢ − fᵢ| − ε).

    Parameters
    ----------
    y : array, or cp.Parameter (N,) or (N, K)
    f : predictions of y's shape
    epsilon : number ≥ 0, in units of y

    Returns
    -------
    cvxpy expression of f's shape

    Examples
    --------
    >>> import cvxpy as cp, kernelopt as ko
    >>> ko.losses.epsilon_insensitive(
    ...     [1.0, 2.0], cp.Constant([1.5, 5.0]), epsilon=1.0
    ... ).value
    array([0., 2.])
    """
    _check_width(epsilon)
    return _noted(cp.pos(cp.abs(_residual(y, f)) - epsilon), epsilon, "widths")


def poisson(y: Any, f: Any) -> cp.Expression:
    """exp(fᵢ) − yᵢfᵢ, for counts y ≥ 0: the negative log-likelihood of rate exp(f), up to log y!.

    Parameters
    ----------
    y : array of counts ≥ 0, or cp.Parameter (N,)
    f : predictions of y's shape

    Returns
    -------
    cvxpy expression of f's shape

    Examples
    --------
    >>> import cvxpy as cp, kernelopt as ko
    >>> ko.losses.poisson([0, 2], cp.Constant([0.0, 1.0])).value.round(4)
    array([1.    , 0.7183])
    """
    y, f = _pair(y, f)
    return cp.exp(f) - _checked(cp.multiply(y, f), y, "counts")


def multinomial(y: Any, F: Any) -> cp.Expression:
    """log Σₖ exp(F[i, k]) − F[i, yᵢ], for classes y in 0 … K−1 and predictions F of shape (N, K).

    Parameters
    ----------
    y : array (N,)
        Classes 0 … K−1.
    F : predictions (N, K)

    Returns
    -------
    cvxpy expression (N,)

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> ko.losses.multinomial([0, 1], cp.Constant(np.diag([0.0, 1.0]))).value.round(4)
    array([0.6931, 0.3133])
    """
    F, indicator = _classes(y, F)
    return cp.log_sum_exp(F, axis=1) - cp.sum(cp.multiply(indicator, F), axis=1)


def crammer_singer(y: Any, F: Any) -> cp.Expression:
    """maxₖ (F[i, k] + [k ≠ yᵢ]) − F[i, yᵢ], for classes y in 0 … K−1 and predictions F of shape (N, K).

    Crammer and Singer, JMLR 2, 2001.

    Parameters
    ----------
    y : array (N,)
        Classes 0 … K−1.
    F : predictions (N, K)

    Returns
    -------
    cvxpy expression (N,)

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> ko.losses.crammer_singer([0, 1], cp.Constant(np.diag([0.0, 3.0]))).value.round(4)
    array([1., 0.])
    """
    F, indicator = _classes(y, F)
    return cp.max(F + (1 - indicator), axis=1) - cp.sum(cp.multiply(indicator, F), axis=1)


def cox(time: Any, event: Any, f: Any, ties: str = "breslow") -> cp.Expression:
    """Σ over rows i with an event of  log Σ{exp(fⱼ) : timeⱼ ≥ timeᵢ} − fᵢ, one number for all rows.

    The negative logarithm of the partial likelihood of proportional hazards exp(f) (Cox 1972). These are Breslow's
    terms for d events at one time; Efron's (1977) are log(R − (l/d)T) − fᵢ, l = 0 … d−1, with the sums R over all rows
    at risk and T over these d. They approximate the likelihood of rounded times better. Rows without an event are
    censored: their event came later. A constant in f does not change the loss, so that f needs no intercept. Rows have
    no weights, so that each fold is a separate problem. The size of the problem is proportional to the number of rows,
    and with Efron's terms also to Σ d².

    Parameters
    ----------
    time : array (N,)
        Times of the events, or of the ends of observation; only their order counts.
    event : array (N,)
        True or 1 where there was an event, False or 0 where the row is censored.
    f : predictions (N,)
    ties : "breslow" or "efron"
        The terms of events at one time. Both are the same where all times of events differ.

    Returns
    -------
    cvxpy expression ()

    Raises
    ------
    OptionError
        For other words for ties.
    DataError
        For shapes that differ, times that are not finite, events that are neither 0 nor 1, and where there is none.

    Examples
    --------
    >>> import cvxpy as cp, kernelopt as ko
    >>> loss = ko.losses.cox([1.0, 2.0, 3.0], [1, 1, 0], cp.Constant([0.0, 0.0, 0.0]))
    >>> round(loss.value, 4)  # log 3 + log 2
    1.7918
    """
    if not isinstance(ties, str) or ties not in ("breslow", "efron"):
        raise OptionError(f'Expected ties to be "breslow" or "efron"; got {ties!r}.')
    f, times, events = _expression(f, "the predictions"), real_array(time, "time"), real_array(event, "event")
    check_finite(times, "time")
    if f.ndim != 1 or {times.shape, events.shape} != {f.shape}:
        raise DataError(
            f"Expected times, events and predictions of one shape (N,); got times of shape {times.shape}, events of "
            f"shape {events.shape} and predictions of shape {f.shape}. The order is (time, event, f)."
        )
    if not np.isin(events, (0.0, 1.0)).all():
        raise DataError(
            f"Expected events of 0 (censored) and 1; got {events[~np.isin(events, (0.0, 1.0))][0]:g}. The order is "
            "(time, event, f)."
        )
    if not events.any():
        raise DataError("Expected an event in at least one row; all rows are censored.")
    return CoxLikelihood(f, RiskSets(times, events.astype(bool), efron=ties == "efron"))


def _expression(f: Any, what: str) -> cp.Expression:
    """An expression, or numbers as one. Raises DataTypeError for other objects, and for complex ones."""
    if isinstance(f, cp.Expression):
        if not f.is_real():
            raise DataTypeError(f"Expected {what} to be real; got the complex expression {f!r}. Write cp.real of it.")
        return f
    numbers = real_array(f, what)
    check_finite(numbers, what)
    return cp.Constant(numbers)


def _pair(y: Any, f: Any) -> tuple[cp.Expression, cp.Expression]:
    """`y` and `f` as expressions of one shape. Raises DataError for shapes that differ, which cvxpy would broadcast."""
    f = _expression(f, "the predictions")
    if isinstance(y, cp.Expression) and y.variables():
        raise DataError("Expected data for y, an array or a cp.Parameter; got an expression. The order is (y, f).")
    y = _expression(y, "y")
    if y.shape != f.shape:
        hint = " Write y.ravel()." if y.size == f.size and y.ndim > f.ndim else ""
        if f.ndim == 2 and y.shape == f.shape[:1]:
            hint = (
                f" For {f.shape[1]} quantiles or expectiles pass {f.shape[1]} levels; for classes 0 … {f.shape[1] - 1} "
                "see ko.losses.multinomial and crammer_singer."
            )
        raise DataError(
            f"Expected y and the predictions to have one shape; got y of shape {y.shape} and "
            f"predictions of shape {f.shape}.{hint}"
        )
    return y, f


def _residual(y: Any, f: Any) -> cp.Expression:
    y, f = _pair(y, f)
    return y - f


def _levelled(y: Any, f: Any, tau: Any) -> tuple[cp.Expression, Any]:
    """y − f and the level of each entry; y of shape (N,) stands for a column per level."""
    f = _expression(f, "the predictions")
    tau = tau if isinstance(tau, cp.Expression) else real_array(tau, "tau")
    several = tau.ndim == 1 and f.ndim == 2 and tau.shape[0] == f.shape[1]
    if several and np.shape(y) == f.shape[:1]:
        column = y if isinstance(y, cp.Expression) else cp.Constant(real_array(y, "y"))
        y = cp.reshape(column, (f.shape[0], 1), order="C") @ np.ones((1, f.shape[1]))
        if column.value is not None:
            check_finite(column.value, "y")
    r = _residual(y, f)
    if several and isinstance(tau, cp.Expression) and tau.parameters():
        if tau.value is not None:
            _check_levels(tau)
        return r, np.ones((r.shape[0], 1)) @ cp.reshape(tau, (1, tau.size), order="C")
    if several:
        values = tau.value if isinstance(tau, cp.Expression) else tau
        levels = np.broadcast_to(real_array(values, "tau"), r.shape)
        inside = lambda value: np.min(value) > 0 and np.max(value) < 1  # noqa: E731
        _check_number(levels, "tau", "between 0 and 1", inside, r.shape, _percent)
        return r, levels
    _check_number(tau, "tau", "a number between 0 and 1", lambda value: 0 < value < 1, remedy=_percent)
    return r, tau


def _percent(levels: NDArray[np.float64]) -> str:
    """The remedy for levels in percent; "" for others."""
    if not (np.min(levels) >= 1 and np.max(levels) < 100):
        return ""
    first = np.ravel(levels)[0]
    return f" tau is a share: write {first / 100:g} for {first:g} %."


def check_parameters(nodes: Iterable[Any]) -> None:
    """Check the present values of labels and counts in losses. Raises DataError."""
    for node in nodes:
        for parameter, role in getattr(node, CHECKED, ()):
            CHECKS[role](parameter)


def _checked(node: cp.Expression, y: cp.Expression, role: str) -> cp.Expression:
    """The node, after a check of y. A cp.Parameter y is recorded on the node, and checked again before each solve."""
    CHECKS[role](y)
    return _noted(node, y, role)


def _noted(node: cp.Expression, data: Any, role: str) -> cp.Expression:
    """The node, on which data with parameters are recorded, to be checked before each solve."""
    if isinstance(data, cp.Expression) and data.parameters():
        setattr(node, CHECKED, ((data, role),))
    return node


def _check_labels(y: cp.Expression) -> None:
    """−1 and +1 only."""
    if y.value is not None and not np.isin(y.value, (-1.0, 1.0)).all():
        seen = ", ".join(f"{v:g}" for v in np.unique(y.value)[:4])
        values = set(np.unique(y.value))
        if values == {-1.0, 0.0, 1.0}:
            advice = "Where 0 means unlabelled, write the loss of f[y != 0] and y[y != 0]."
        elif values <= {0.0, 1.0}:
            advice = "For labels 0 and 1 write 2*y - 1."
        else:
            advice = "For more than two classes see ko.losses.multinomial."
        raise DataError(
            f"Expected labels of −1 and +1; got {seen}{', …' if np.unique(y.value).size > 4 else ''}. {advice}"
        )


def _check_counts(y: cp.Expression) -> None:
    """y ≥ 0."""
    if y.value is not None and np.min(y.value) < 0:
        raise DataError(f"Expected counts y ≥ 0; got {float(np.min(y.value)):g} at {int(np.argmin(y.value))}.")


def _check_levels(tau: cp.Expression) -> None:
    """Between 0 and 1."""
    inside = lambda value: np.min(value) > 0 and np.max(value) < 1  # noqa: E731
    _check_number(tau, "tau", "between 0 and 1", inside, tau.shape, _percent)


def _check_height(M: Any) -> None:
    """M > 0, of a parameter by its declaration."""
    if isinstance(M, cp.Parameter) and not M.is_nonneg():
        raise DataError(f"Expected M to be a number > 0, or a cp.Parameter(nonneg=True); got {M!r} without a sign.")
    _check_number(M, "M", "a number > 0", lambda value: value > 0)


def _check_width(epsilon: Any) -> None:
    """ε ≥ 0."""
    _check_number(epsilon, "epsilon", "a number ≥ 0", lambda value: value >= 0)


CHECKS: dict[str, Callable[[cp.Expression], None]] = {
    "labels": _check_labels, "counts": _check_counts, "levels": _check_levels, "heights": _check_height,
    "widths": _check_width,
}  # fmt: skip


def _check_number(  # noqa: PLR0917
    value: Any, name: str, expected: str, valid: Any, shape: tuple[int, ...] = (),
    remedy: Callable[[NDArray[np.float64]], str] = lambda numbers: "",
) -> None:  # fmt: skip
    """Raise DataError unless the value is a finite number, or an array of the shape, that is `valid`."""
    if isinstance(value, cp.Expression):
        if value.variables() or value.shape != shape:
            raise DataError(f"Expected {name} to be {expected}; got the expression {value!r}.")
        if value.value is None:  # a parameter, which is checked when it has a value
            return
        value = value.value
    numbers = real_array(value, name)
    if numbers.shape != shape:
        raise DataError(f"Expected {name} to be {expected}; got an array of shape {numbers.shape}.")
    if not np.isfinite(numbers).all() or not valid(numbers):
        got = shown(value) if shape else repr(numbers.item()).removesuffix(".0")
        raise DataError(f"Expected {name} to be {expected}; got {got}.{remedy(numbers)}")


def _classes(y: Any, F: Any) -> tuple[cp.Expression, NDArray[np.float64]]:
    """Predictions (N, K) and the N×K indicator matrix of the classes y."""
    F = _expression(F, "the predictions")
    labels = real_array(y, "y")
    if F.ndim != 2 or labels.shape != F.shape[:1]:
        raise DataError(
            f"Expected predictions of shape (N, K), from ko.Theta(kernel, outputs=K), and one class per row; got "
            f"predictions of shape {F.shape} and y of shape {labels.shape}."
        )
    n, K = F.shape
    if not np.isin(labels, np.arange(K)).all():
        seen = ", ".join(f"{v:g}" for v in np.unique(labels)[:4])
        raise DataError(
            f"Expected classes 0 … {K - 1}; got {seen}. Number them with np.unique(y, return_inverse=True)."
        )
    indicator = np.zeros((n, K))
    indicator[np.arange(n), labels.astype(int)] = 1.0
    return F, indicator
