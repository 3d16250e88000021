"""Quantiles of finite samples, and bands and sets that hold with them whatever the distribution.

Of n + 1 exchangeable numbers the last is at most the k-th smallest of the others with probability ≥ k/(n + 1). With

    k = ⌈(n + 1)·level⌉

that is at least the level. (Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005; Romano, Patterson
and Candès, NeurIPS 2019; Barber, Candès, Ramdas and Tibshirani, Annals of Statistics 49, 2021.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, isnan
from typing import Any

import numpy as np

from kernelopt.errors import DataError, OptionError
from kernelopt.kernels.domains import as_array, real_array
from kernelopt.support.checks import is_integer, require_number, shown
from kernelopt.support.types import Array, Bools

# Relative: a product (n + 1)·level this near to an integer is that integer, as 10·0.7 = 7.000000000000001 is 7.
ROUNDING = 1e-12
# How far the sum of probabilities of a row may be from 1.
UNIT_SUM = 1e-6


@dataclass(frozen=True, eq=False, repr=False)
class Band:
    """An interval for y at each of some new points; made by `ko.jackknife` and `ko.conformal_interval`.

    It prints as a sentence with the guarantee, as of `KernelRegressor.predict_interval`.

    Attributes
    ----------
    lower, upper : array (M,) or (M, K), in the units of y; ±inf where nothing is known
    level : the level that was asked for, (1 − α)
    coverage : the proven lower bound on the probability that an interval holds y, over the given rows and the new one;
        nan where there is no proof
    guarantee : the same in words, with what it requires

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> y = np.arange(9.0)
    >>> band = ko.conformal_interval(y - 1, y + 1, y + 0.5, [3.0], [5.0], level=0.8)
    >>> band.lower, band.upper, band.width
    (array([3.5]), array([4.5]), array([1.]))
    >>> print(band)
    80 % interval at 1 point, mean width 1; holds y with probability ≥ 80 %, if rows are exchangeable
    """

    lower: Array
    upper: Array
    level: float
    coverage: float
    guarantee: str

    def __iter__(self) -> Iterator[Array]:
        """`lower, upper = band`."""
        return iter((self.lower, self.upper))

    @property
    def width(self) -> Array:
        """upper − lower, in the units of y."""
        return np.asarray(self.upper - self.lower)

    def covers(self, y: Any) -> Bools:
        """Whether each interval holds the value of y there, an array of the shape of `lower`."""
        y = real_array(y, "y")
        if y.shape != self.lower.shape:
            raise DataError(f"Expected y of shape {self.lower.shape}, a number for each interval; got {y.shape}.")
        return np.asarray((self.lower <= y) & (y <= self.upper))

    def __str__(self) -> str:
        M = len(self.lower)
        width = float(np.mean(self.width)) if self.width.size else 0.0
        points = "1 point" if M == 1 else f"{M} points"
        intervals = f"{percent(self.level)} interval{'' if M == 1 else 's'} at {points}"
        return f"{intervals}, mean width {width:.4g}; {self.guarantee}"

    __repr__ = __str__


@dataclass(frozen=True, eq=False, repr=False)
class ClassSets:
    """A set of classes for each of some new points; made by `ko.conformal_sets`.

    `sets[i]` is the array of the classes in the i-th set. It prints as a sentence.

    Attributes
    ----------
    members : array (M, K) of bool, whether the set of a point (row) has a class (column)
    classes : array (K,)
    level, coverage, guarantee : as of a band

    Examples
    --------
    >>> import kernelopt as ko
    >>> sets = ko.conformal_sets(
    ...     [2.0, -1.0, 0.5, -2.0], [1, -1, -1, -1], [3.0, 0.2], level=0.8
    ... )
    >>> sets[0], sets[1], sets.size
    (array([1]), array([-1,  1]), array([1, 2]))
    >>> print(sets)
    80 % sets at 2 points, mean size 1.5 of 2; hold the class with probability ≥ 80 %, if rows are exchangeable
    """

    members: Bools
    classes: Array
    level: float
    coverage: float
    guarantee: str

    @property
    def size(self) -> Array:
        """The number of classes in each set, (M,)."""
        return np.asarray(self.members.sum(axis=1))

    def covers(self, y: Any) -> Bools:
        """Whether each set has the class y of its point, (M,)."""
        return np.asarray(self.members[np.arange(len(self)), _numbers(y, self.classes, len(self))])

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Array]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> Array:
        if not is_integer(i) or not -len(self) <= i < len(self):
            raise DataError(f"Expected the number of a point, from 0 to {len(self) - 1}; got {shown(i)}.")
        return np.asarray(self.classes[self.members[i]])

    def __str__(self) -> str:
        M, K = self.members.shape
        points, mean = "1 point" if M == 1 else f"{M} points", float(self.size.mean()) if M else 0.0
        sets = f"{percent(self.level)} set{'' if M == 1 else 's'} at {points}"
        return f"{sets}, mean size {mean:.3g} of {K}; {self.guarantee}"

    __repr__ = __str__


def conformal_interval(low: Any, high: Any, y: Any, low_new: Any, high_new: Any, *, level: float = 0.9) -> Band:
    """Two fitted quantiles, moved so that the interval between them holds y with the stated probability.

    For rows that no fit has seen, with predictions lᵢ and uᵢ of a lower and an upper quantile,

        [l(x) − Q, u(x) + Q],   Q = the ⌈(n + 1)·level⌉-th smallest of max(lᵢ − yᵢ, yᵢ − uᵢ).

    If these n rows and the new one are exchangeable, the interval holds y with probability ≥ level, whatever the
    distribution and the fit (Romano, Patterson and Candès, NeurIPS 2019). Q < 0 where the quantiles were too wide. With
    low = high = f this is the split conformal interval f ± Q. The probability is over all points: at some x it may be
    lower.

    Parameters
    ----------
    low, high : array (n,)
        Predictions of both quantiles in rows held out from the fit, such as `f(X_cal).value[:, 0]`.
    y : array (n,)
        The targets there.
    low_new, high_new : array (M,)
        The same predictions at new points.
    level : number between 0 and 1

    Returns
    -------
    Band
        lower and upper (M,), in the units of y. Where the moved quantiles cross, both are their mean.

    Raises
    ------
    DataError
        For other shapes, entries that are not finite, and fewer than level/(1 − level) rows.
    OptionError
        For a level that is not between 0 and 1.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 6, size=(200, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * X[:, 0] * rng.normal(size=200)
    >>> theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=2), cp.Variable((1, 2))
    >>> f = lambda X: theta(X) + b
    >>> loss = cp.sum(ko.losses.pinball(y[:100], f(X[:100]), [0.05, 0.95]))
    >>> _ = ko.Problem(cp.Minimize(loss + 0.1 * ko.sum_squares(theta))).solve()
    >>> held_out, new = f(X[100:]).value, f([[1.0], [5.0]]).value
    >>> ko.conformal_interval(*held_out.T, y[100:], *new.T, level=0.9).width.round(1)
    array([0.3, 1.8])
    """
    low, high, y = (_vector(v, name) for v, name in ((low, "low"), (high, "high"), (y, "y")))
    low_new, high_new = (_vector(v, name) for v, name in ((low_new, "low_new"), (high_new, "high_new")))
    if not len(low) == len(high) == len(y):
        raise DataError(
            f"Expected low, high and y of the same held-out rows; got lengths {len(low)}, {len(high)} and {len(y)}."
        )
    if len(low_new) != len(high_new):
        raise DataError(
            f"Expected low_new and high_new at the same points; got lengths {len(low_new)} and {len(high_new)}."
        )
    Q = sample_quantile(np.maximum(low - y, y - high), level)
    lower, upper = low_new - Q, high_new + Q
    middle = np.where(lower > upper, (lower + upper) / 2, np.nan)
    crossed = np.isfinite(middle)
    return Band(
        np.where(crossed, middle, lower), np.where(crossed, middle, upper), float(level), float(level),
        f"{'holds' if len(lower) == 1 else 'each holds'} y with probability ≥ {percent(level)}, "
        "if rows are exchangeable",
    )  # fmt: skip


def conformal_sets(
    scores: Any, y: Any, new: Any, *, level: float = 0.9, method: str = "lac", classes: Any = None
) -> ClassSets:
    """The sets of classes at new points that hold the class with the stated probability.

    For rows that no fit has seen, with the score fᵢₖ of each class k, larger for likelier ones, a set is {k : aₖ ≤ Q},

        Q = the ⌈(n + 1)·level⌉-th smallest of the a of the true classes,
        "lac":  aₖ = −fₖ,                    the smallest sets on average;
        "aps":  aₖ = Σⱼ pⱼ over pⱼ ≥ pₖ,     more even over the points, for probabilities p.

    If these n rows and the new one are exchangeable, the set holds the class with probability ≥ level, whatever the
    distribution and the fit. Sets may be empty, where no class is like the true ones of other rows. (Sadinle, Lei and
    Wasserman, JASA 114, 2019; Romano, Sesia and Candès, NeurIPS 2020, here without their random tie-breaks, so that
    sets are somewhat larger.)

    Parameters
    ----------
    scores : array (n, K) or (n,)
        Probabilities or decision values of the classes in held-out rows; or the decision values of two classes,
        positive for the second: their scores are −f and f.
    y : array (n,)
        The classes there.
    new : array (M, K) or (M,)
        The scores at new points.
    level : number between 0 and 1
    method : "lac" or "aps"
    classes : array (K,), optional
        The class of each column, such as `model.classes_`; by default 0 … K − 1, and −1 and 1 for scores (n,).

    Returns
    -------
    ClassSets

    Raises
    ------
    DataError
        For other shapes, entries that are not finite, labels that are no classes, rows that are no probabilities with
        "aps", and fewer than level/(1 − level) rows.
    OptionError
        For a level that is not between 0 and 1, and another method.

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y = np.where(X[:, 0] + 0.5 * rng.normal(size=300) > 0, "up", "down")
    >>> model = ko.estimators.KernelClassifier("log_loss").fit(X[:100], y[:100])
    >>> p = model.predict_proba(X[100:])
    >>> sets = ko.conformal_sets(p[:100], y[100:200], p[100:], classes=model.classes_)
    >>> bool(sets.covers(y[200:]).mean() > 0.8)
    True
    """
    if not isinstance(method, str) or method not in ("lac", "aps"):
        raise OptionError(f"Expected method to be 'lac' or 'aps'; got {shown(method)}.")
    F, F_new = _scores(scores, "scores"), _scores(new, "new")
    two = F.ndim == 1
    if F.shape[1:] != F_new.shape[1:]:
        raise DataError(f"Expected scores and new with the same columns; got shapes {F.shape} and {F_new.shape}.")
    if two:
        F, F_new = np.column_stack([-F, F]), np.column_stack([-F_new, F_new])
    known = _classes(classes, F.shape[1], two)
    at = _numbers(y, known, len(F))
    if method == "aps":
        for P, name in ((F, "scores"), (F_new, "new")):
            _require_probabilities(P, name, two)
        a, a_new = _mass_above(F), _mass_above(F_new)
    else:
        a, a_new = -F, -F_new
    Q = sample_quantile(a[np.arange(len(a)), at], level)
    return ClassSets(
        a_new <= Q, known, float(level), float(level),
        f"{'holds' if len(F_new) == 1 else 'hold'} the class with probability ≥ {percent(level)}, "
        "if rows are exchangeable",
    )  # fmt: skip


# ------------------------------------------------------------ quantiles


def rank_of(n: int, level: Any) -> int:
    """k = ⌈(n + 1)·level⌉. Raises OptionError for a level outside of (0, 1), DataError where k > n."""
    require_number(level, "level", "a number between 0 and 1, such as 0.9", lambda value: 0 < value < 1)
    exact = (n + 1) * float(level)
    k = max(ceil(exact * (1 - ROUNDING)), 1)
    if k > n:
        needed = ceil(float(level) / (1 - float(level)) * (1 - ROUNDING))
        lower = "" if n == 0 else f", or a level of at most {n}/{n + 1}"
        raise DataError(
            f"Expected at least {needed} rows for the level {level:g}; got {n}. An interval from fewer is infinite. "
            f"Take more rows{lower}."
        )
    return k


def sample_quantile(values: Array, level: Any) -> float:
    """The ⌈(n + 1)·level⌉-th smallest of n numbers. Raises as `rank_of`."""
    k = rank_of(len(values), level)
    return float(np.partition(values, k - 1)[k - 1])


def jackknife_plus(own: Array, new: Array, y: Array, level: float) -> tuple[Array, Array]:
    """The jackknife+ interval at M points from f₋ᵢ(xᵢ), (n, K), f₋ᵢ at the points, (n, M, K), and y (n, K).

        lower = the ⌊(n + 1)α⌋-th smallest of f₋ᵢ(x) − Rᵢ,  upper = the ⌈(n + 1)(1 − α)⌉-th smallest of f₋ᵢ(x) + Rᵢ,

    Rᵢ = |yᵢ − f₋ᵢ(xᵢ)|. Where f₋ᵢ is not known (nan), its interval is all numbers.
    """
    n, (R, new) = len(y), _residuals(own, new, y)
    k = rank_of(n, level)
    lower, upper = new - R[:, None], new + R[:, None]
    lower[np.isnan(lower)], upper[np.isnan(upper)] = -np.inf, np.inf
    return np.partition(lower, n - k, axis=0)[n - k], np.partition(upper, k - 1, axis=0)[k - 1]


def jackknife_minmax(own: Array, new: Array, y: Array, level: float) -> tuple[Array, Array]:
    """[minᵢ f₋ᵢ(x) − Q, maxᵢ f₋ᵢ(x) + Q], Q the ⌈(n + 1)(1 − α)⌉-th smallest Rᵢ; arguments as of `jackknife_plus`."""
    k = rank_of(len(y), level)
    R, new = _residuals(own, new, y)
    Q = np.partition(np.where(np.isnan(R), np.inf, R), k - 1, axis=0)[k - 1]
    known = ~np.isnan(new)
    return np.where(known, new, -np.inf).min(axis=0) - Q, np.where(known, new, np.inf).max(axis=0) + Q


def _residuals(own: Array, new: Array, y: Array) -> tuple[Array, Array]:
    """R, and f₋ᵢ at the points with nan for rows of which R is nan."""
    R = np.abs(y - own)
    return R, np.where(np.isnan(R)[:, None], np.nan, new)


def cross_bound(n: int, folds: int, level: float) -> float:
    """The least coverage of CV+ for folds of equal size: 1 − 2α − min{2(1 − 1/K)/(n/K + 1), (1 − K/n)/(K + 1)}."""
    loss = min(2 * (1 - 1 / folds) / (n / folds + 1), (1 - folds / n) / (folds + 1))
    return max(2 * level - 1 - loss, 0.0)


def percent(share: float) -> str:
    """A share as a percentage, with the digits that it has."""
    return "unknown" if isnan(share) else f"{100 * share:.4g} %"


def _mass_above(P: Array) -> Array:
    """Σⱼ pⱼ over pⱼ ≥ pₖ for each class k, (n, K)."""
    order = np.argsort(-P, axis=1, kind="stable")
    sorted_p = np.take_along_axis(P, order, axis=1)
    sums = np.cumsum(sorted_p, axis=1)
    # Of equal probabilities all count: the sum at the last of them.
    for j in range(P.shape[1] - 2, -1, -1):
        sums[:, j] = np.where(sorted_p[:, j] == sorted_p[:, j + 1], sums[:, j + 1], sums[:, j])
    found = np.empty_like(P)
    np.put_along_axis(found, order, sums, axis=1)
    return found


# ------------------------------------------------------------ checks


def _vector(values: Any, name: str) -> Array:
    found = np.array(real_array(values, name))
    if found.ndim != 1 or not np.isfinite(found).all():
        got = f"shape {found.shape}" if found.ndim != 1 else "entries that are not"
        raise DataError(f"Expected {name} to be finite numbers of shape (n,), one per row; got {got}.")
    return found


def _scores(values: Any, name: str) -> Array:
    found = np.array(real_array(values, name))
    if found.ndim not in (1, 2) or (found.ndim == 2 and found.shape[1] < 2) or not np.isfinite(found).all():
        raise DataError(
            f"Expected {name} to be finite numbers, (n, K) for K ≥ 2 classes or (n,) for two; got shape {found.shape}"
            f"{'' if np.isfinite(found).all() else ' with other entries'}."
        )
    return found


def _classes(classes: Any, K: int, two: bool) -> Array:
    if classes is None:
        return np.array([-1, 1]) if two else np.arange(K)
    found: Array = as_array(classes, "classes") if isinstance(classes, (list, tuple, np.ndarray)) else np.zeros(0)
    if found.shape != (K,) or len(set(found.tolist())) < K:
        raise DataError(f"Expected {K} distinct classes, one per column of scores; got {shown(classes)}.")
    return found


def _numbers(y: Any, classes: Array, n: int) -> Array:
    """The column of each label. Raises DataError for labels that are no classes."""
    labels: Array = as_array(y, "y") if isinstance(y, (list, tuple)) or hasattr(y, "__array__") else np.zeros(())
    if labels.shape != (n,):
        raise DataError(f"Expected y of shape ({n},), the class of each row; got {shown(y)}.")
    where = {label: k for k, label in enumerate(classes.tolist())}
    try:
        return np.array([where[label] for label in labels.reshape(-1).tolist()], dtype=int)
    except (KeyError, TypeError) as error:
        raise DataError(
            f"Expected labels among the classes {shown(classes.tolist())}; got {error}. Give classes=, the class of "
            "each column of scores."
        ) from error


def _require_probabilities(P: Array, name: str, two: bool) -> None:
    if two or (P < 0).any() or (np.abs(P.sum(axis=1) - 1) > UNIT_SUM).any():
        raise DataError(
            f"Expected {name} to be probabilities (n, K) with 'aps', ≥ 0 with sum 1 in each row; got others. Decision "
            "values are for method='lac'."
        )
