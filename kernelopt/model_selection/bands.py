"""Intervals around predictions from fits without rows: jackknife+ and CV+.

    [q⁻{f₋ᵢ(x) − Rᵢ}, q⁺{f₋ᵢ(x) + Rᵢ}],   Rᵢ = |yᵢ − f₋ᵢ(xᵢ)|

with quantiles of finite samples (`conformal`), and f₋ᵢ the fit without row i, or without its fold
(`left_out_functions`). (Barber, Candès, Ramdas and Tibshirani, Annals of Statistics 49, 2021.)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.driver.statement import one_at_a_time
from kernelopt.errors import DataError, OptionError
from kernelopt.kernels.domains import real_array
from kernelopt.model_selection.conformal import (
    Band,
    cross_bound,
    jackknife_minmax,
    jackknife_plus,
    percent,
    rank_of,
)
from kernelopt.model_selection.cross_validation import _folds
from kernelopt.model_selection.leave_one_out import require_affine
from kernelopt.model_selection.left_out_functions import LeftOutValues, left_out_values
from kernelopt.problem import Problem, require_problem
from kernelopt.support.checks import require_flag, shown
from kernelopt.support.types import Array, Ints

PREMISE = "if rows are exchangeable, and λ and the kernel chosen without them"
RULES = {"plus": jackknife_plus, "minmax": jackknife_minmax}


@one_at_a_time
def jackknife(
    problem: Problem,
    f: cp.Expression,
    y: Any,
    new: cp.Expression,
    *,
    level: float = 0.9,
    method: str = "plus",
    cv: Any = None,
    refit: bool = False,
    random_state: int | np.random.Generator | None = 0,
) -> Band:
    """An interval for y at each new point, without a model of the errors: jackknife+.

    With f₋ᵢ the fit without row i and Rᵢ = |yᵢ − f₋ᵢ(xᵢ)|, the interval for the level 1 − α is

        [⌊(n + 1)α⌋-th smallest of f₋ᵢ(x) − Rᵢ,   ⌈(n + 1)(1 − α)⌉-th smallest of f₋ᵢ(x) + Rᵢ].

    If the n rows and the new one are exchangeable, as independent draws are, it holds y with probability ≥ 1 − 2α,
    whatever the distribution, and in most cases with about 1 − α. "minmax" is wider and holds y with probability
    ≥ 1 − α: [minᵢ f₋ᵢ(x) − Q, maxᵢ f₋ᵢ(x) + Q], with Q the ⌈(n + 1)(1 − α)⌉-th smallest Rᵢ. (Barber, Candès, Ramdas
    and Tibshirani, Annals of Statistics 49, 2021.) All f₋ᵢ come from one decomposition, as in
    `ko.leave_one_out_predictions`.

    Parameters
    ----------
    problem : Problem
        Solved and convex, with λ‖θ‖² for each θ.
    f : expression (N,) or (N, K)
        The predictions of y in the rows of the fit, such as `theta(X) + b`.
    y : array of the shape of f
        The targets of the fit.
    new : expression (M,) or (M, K)
        The same expression at new points, `theta(X_new) + b`.
    level : number between 0 and 1
        1 − α.
    method : "plus" or "minmax"
    cv : int, splitter, or iterable of (train, test), optional
        Leave out folds in place of single rows, as in `ko.cross_validate`; each row is in one fold. "plus" is CV+ then,
        with a probability ≥ 1 − 2α − √(2/n) for folds of equal size.
    refit : whether to fit again without each row or fold, for losses other than squares
        Otherwise f₋ᵢ is that of the quadratic model around the optimum, which is exact for squares alone, and good for
        single rows of a smooth loss. For folds of other losses choose refit=True.
    random_state : seed, or generator, of the folds where `cv` is a number

    Returns
    -------
    Band
        lower and upper (M,) or (M, K), in the units of y, and the guarantee in words. With several outputs it holds for
        each of them alone.

    Raises
    ------
    DataError
        For y of another shape, fewer than level/(1 − level) rows, and expressions as in `ko.leave_one_out_predictions`.
    OptionError
        For a level that is not between 0 and 1, and another method.
    KernelOptError
        Before a solve, and for problems without a quadratic model, as in `ko.approximate_leave_one_out`.

    Notes
    -----
    The probability is over the rows of the fit and the new one together: at some x it may be lower. λ and the kernel
    are those of the problem. If they were chosen by the same rows, the guarantee does not count that choice; choose
    them by other rows. If θ is restricted to a factor of lower rank, all f₋ᵢ are in the span of the pivots for all
    rows. Where a row alone determines its prediction, f₋ᵢ is not known, and its interval counts as infinite.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 6, size=(100, 1))
    >>> y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=100)
    >>> theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    >>> f = lambda X: theta(X) + b
    >>> objective = cp.sum_squares(y - f(X)) + 0.5 * ko.sum_squares(theta)
    >>> problem = ko.Problem(cp.Minimize(objective))
    >>> _ = problem.solve()
    >>> band = ko.jackknife(problem, f(X), y, f([[1.5], [4.5]]), level=0.9)
    >>> band.lower.round(1), band.upper.round(1)
    (array([ 0.5, -1.6]), array([ 1.5, -0.6]))
    >>> print(band)
    90 % intervals at 2 points, mean width ...; each holds y with probability ≥ 80 %, if rows are exchangeable, and λ
    and the kernel chosen without them (jackknife+)
    """
    require_problem(problem)
    require_flag(refit, "refit")
    require_method(method)
    require_affine(f)
    targets = real_array(y, "y")
    if targets.shape != f.shape or not np.isfinite(targets).all():
        got = f"shape {targets.shape}" if targets.shape != f.shape else "others"
        raise DataError(f"Expected y to be finite numbers of the shape of f, {f.shape}; got {got}.")
    n = f.shape[0]
    rank_of(n, level)
    groups = groups_of(cv, n, random_state)
    found = left_out_values(problem, f, new, groups, refit=refit)
    return band(found, groups, targets.reshape(n, -1), level, method, (new.shape[0], *f.shape[1:]))


def band(  # noqa: PLR0917
    found: LeftOutValues, groups: list[Ints], y: Array, level: float, method: str, shape: tuple[int, ...],
    lacks: Sequence[str] = (),
) -> Band:  # fmt: skip
    """The band of a shape from fits without groups of rows; y (n, K); lacks : why its coverage is not proven."""
    of = np.empty(len(y), dtype=int)
    for k, group in enumerate(groups):
        of[group] = k
    lower, upper = RULES[method](found.own, found.new[of], y, level)
    if not found.is_exact:
        lacks = ["f₋ are those of a quadratic model (refit=True: of fits)", *lacks]
    coverage, words = _guarantee(len(y), groups, float(level), method, lacks)
    each = "holds" if shape[0] == 1 else "each holds"
    return Band(lower.reshape(shape), upper.reshape(shape), float(level), coverage, f"{each} y {words}")


def _guarantee(n: int, groups: list[Ints], level: float, method: str, lacks: Sequence[str]) -> tuple[float, str]:
    """The proven coverage, nan where there is none, and the sentence."""
    single, equal = len(groups) == n, len({len(group) for group in groups}) == 1
    if single:
        name, bound = ("jackknife-minmax", level) if method == "minmax" else ("jackknife+", max(2 * level - 1, 0.0))
    else:  # the interval of "minmax" contains that of "plus"
        name = f"{'CV-minmax' if method == 'minmax' else 'CV+'} with {len(groups)} folds"
        bound = cross_bound(n, len(groups), level)
    if not equal:
        lacks = [*lacks, "folds differ in size"]
    if lacks:
        return nan, f"with a probability near {percent(level)}, which is not proven: {' and '.join(lacks)} ({name})"
    return bound, f"with probability ≥ {percent(bound)}, {PREMISE} ({name})"


def require_method(method: Any) -> None:
    """Raise OptionError unless it is a name of a rule."""
    if not isinstance(method, str) or method not in RULES:
        raise OptionError(
            f"Expected method to be 'plus' or 'minmax'; got {shown(method)}. cv=10 leaves out folds in place of rows."
        )


def groups_of(cv: Any, n: int, random_state: Any) -> list[Ints]:
    """The rows of each fold, single rows where cv is None.

    Raises DataError where a row is in none of the folds or in several, or in neither part of one.
    """
    if cv is None:
        return [np.array([i]) for i in range(n)]
    folds = _folds(cv, np.ones(n), random_state)
    tests = [test for _, test in folds]
    each_once = np.array_equal(np.sort(np.concatenate(tests)), np.arange(n))
    if not each_once or any(len(train) != n - len(test) for train, test in folds):
        raise DataError(
            "Expected folds that leave out each row once and train on all others, as cv=5 and sklearn's KFold do; got "
            "others."
        )
    return tests
