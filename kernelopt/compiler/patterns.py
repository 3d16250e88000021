"""Recognise functions of one number in small blocks of cone data, many blocks of one pattern at a time.

A block has rows  A x + a s + (slack) = b  in given cones and costs ½xᵀPx + cᵀx. Minimizing over the auxiliary x leaves
h(s). To add a function, recognise its rows here, and add a class to `pieces.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import combinations

import numpy as np

from kernelopt.compiler.largest import SQUARE, largest
from kernelopt.compiler.pieces import (
    JOINT,
    Entropy,
    ExponentialPiece,
    Logarithm,
    LogComplement,
    Piece,
    PowerPiece,
    Quadratic,
    without_weight,
)
from kernelopt.support.types import Array, Ints

# Rows of a block with linear rows only. All sets of active rows are tried, and their number grows exponentially: larger
# blocks are left to the cone solvers.
LARGEST = 8
EPS = 4 * np.finfo(float).eps  # relative rounding of a few operations; relative to the terms of a sum
SQUARED = 2.0**-500  # the smallest unit of s: its square, by which costs are multiplied, is a normal double
# Entries of |K⁻¹||K|, which bound the growth of relative errors. Above 1e8, half of a double's 16 digits are lost, and
# rounding would decide which numbers count as 0.
ILL_CONDITIONED = 1e8


@dataclass(frozen=True, eq=False)
class Batch:
    """n pieces of one pattern, stacked: coefficients of their m rows in k auxiliary columns x and in s, and costs."""

    at: Ints
    A: Array  # (n, m, k)
    a: Array  # (n, m), of s
    b: Array  # (n, m)
    P: Array  # (n, k)
    c: Array  # (n, k)
    kinds: tuple[str, ...]  # of each row


def pieces_of(batch: Batch) -> tuple[Piece, ...] | None:
    """The functions of a batch, those of weight 0 apart from others; None where the pattern is not recognised."""
    if "exp" in batch.kinds:
        return without_weight(_exponential(batch))
    if any(kind.startswith("power") for kind in batch.kinds):
        return without_weight(_power(batch))
    if SQUARE in batch.kinds and not batch.P.any():
        found: Piece | None = largest(batch.at, batch.kinds, (batch.A, batch.a, batch.b), batch.c)
    else:
        found = _quadratic(batch)
    return None if found is None else (found,)


@dataclass(frozen=True, eq=False)
class _Lines:
    """Numbers that are affine in s, value[:, :, 0] + value[:, :, 1]·s, with bounds of the rounding errors of both."""

    value: Array
    error: Array

    def plus(self, other: _Lines) -> _Lines:
        value = self.value + other.value
        return _Lines(value, self.error + other.error + EPS * np.abs(value)).without_rounding()

    def times(self, A: Array) -> _Lines:
        """A·(these), with A (n, i, j)."""
        size = np.abs(A)
        terms = A.shape[2] * EPS * (size @ np.abs(self.value))
        return _Lines(A @ self.value, size @ self.error + terms)

    def without_rounding(self) -> _Lines:
        """The same with 0 for every coefficient that is no larger than its error."""
        return _Lines(np.where(np.abs(self.value) <= self.error, 0.0, self.value), self.error)


@dataclass(frozen=True, eq=False)
class _Part:
    """h on the intervals [left, right] on which one set of rows is active, arrays (n,).

    first, last : the interval of s for which x is feasible; left_error, right_error : rounding errors of left and right
    """

    left: Array
    right: Array
    constant: Array
    slope: Array
    curvature: Array
    first: Array
    last: Array
    left_error: Array
    right_error: Array


def _quadratic(batch: Batch) -> Quadratic | None:
    """Minimize x out of  ½xᵀPx + cᵀx  over  Ax + as + (slack) = b  for every s.

    For each set W of active rows, x and the multipliers are affine in s. They are optimal on the interval on which
    multipliers and slacks are nonnegative, and the intervals of all W cover the domain. A number counts as 0 where
    rounding of its own terms explains it: compared with the largest number of the block, small coefficients would be
    lost.
    """
    m = batch.A.shape[1]
    if any(kind not in ("zero", "nonneg") for kind in batch.kinds) or m > LARGEST:
        return None
    batch, dead = _with_costs(batch)
    for of_costs in (False, True) if batch.P.any() and batch.c.any() else (False,):
        piece = _in_units(batch, dead, of_costs)
        if piece is not None:
            return piece
    return None


def _in_units(batch: Batch, dead: Array, of_costs: bool) -> Quadratic | None:
    """The pieces of a batch with costs, computed in their own units; None where these do not determine them."""
    m, k = batch.A.shape[1:]
    batch, width, height, wider = _in_own_units(batch, of_costs)
    height = np.where(dead, 0.0, height)
    equal = [j for j, kind in enumerate(batch.kinds) if kind == "zero"]
    found: list[_Part] = []
    for active in _active_sets(equal, [j for j in range(m) if j not in equal], k):
        part = _on_active(batch, list(active), equal)
        if part is not None:
            if np.isnan(part.left).any():
                return None
            found.append(part)
    arrays = _joined(found, wider) if found else None
    if arrays is None:
        return None
    s, h = width[:, None], height[:, None]  # back from a piece's own units
    left, right, constant, slope, curvature = arrays
    piece = Quadratic(batch.at, left * s, right * s, constant * h, slope * (h / s), curvature * (h / s) / s)
    return piece if piece.is_convex() else None


def _joined(found: list[_Part], wider: Array) -> tuple[Array, ...] | None:
    """left, right, constant, slope and curvature of the parts, sorted by left, nan where unused; None where the
    intervals leave a gap, or do not cover all s for which some x is feasible.

    wider : of which pieces no end may be as small as rounding in their units is; None where one is
    """
    left, right, constant, slope, curvature, first, last, left_error, right_error = (
        np.stack([getattr(part, f.name) for part in found], axis=1) for f in fields(_Part)
    )
    with np.errstate(invalid="ignore"):
        empty = ~(right - left > left_error + right_error)
    order = np.argsort(np.where(empty, np.inf, left), axis=1, kind="stable")
    table = (left, right, constant, slope, curvature, left_error, right_error, empty)
    left, right, constant, slope, curvature, left_error, right_error, empty = (
        np.take_along_axis(part, order, axis=1) for part in table
    )
    again = np.zeros_like(empty)  # two active sets may give the same interval
    again[:, 1:] = _close(left[:, 1:], left[:, :-1], left_error[:, 1:] + left_error[:, :-1]) & ~empty[:, 1:]
    drop = empty | again
    if drop.all(axis=1).any():
        return None
    order = np.argsort(drop, axis=1, kind="stable")[:, : int((~drop).sum(axis=1).max())]
    known = [np.where(drop, np.nan, part) for part in (left, right, constant, slope, curvature)]
    arrays = [np.take_along_axis(part, order, axis=1) for part in (*known, left_error, right_error)]
    left, right, errors = arrays[0], arrays[1], arrays[5:]
    joint = ~np.isnan(left[:, 1:])
    if not np.all(_close(left[:, 1:], right[:, :-1], errors[0][:, 1:] + errors[1][:, :-1]) | ~joint):
        return None
    if np.any(errors[0][:, 1:] > JOINT * np.abs(left[:, 1:]), where=joint & wider[:, None]):
        return None
    left[:, 1:] = np.where(joint, right[:, :-1], np.nan)
    feasible, end = first <= last, (~np.isnan(left)).sum(axis=1, keepdims=True) - 1
    begin = np.min(np.where(feasible, first, np.inf), axis=1)
    stop = np.max(np.where(feasible, last, -np.inf), axis=1)
    whole = _close(left[:, 0], begin, 2 * errors[0][:, 0]) & _close(
        np.take_along_axis(right, end, axis=1)[:, 0], stop, 2 * np.take_along_axis(errors[1], end, axis=1)[:, 0]
    )
    return tuple(arrays[:5]) if whole.all() else None


def _close(a: Array, b: Array, error: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.asarray((a == b) | (np.abs(a - b) <= error))


def _with_costs(batch: Batch) -> tuple[Batch, Array]:
    """The batch with costs for pieces that have none, and which ones these are.

    They get the costs of a piece that has some, or ½x², so that their x is determined too; h is set to 0 afterwards.
    """
    costs = np.hstack([batch.P, batch.c])
    dead = np.asarray(~costs.any(axis=1))
    if not dead.any():
        return batch, dead
    if not costs.any():
        return (replace(batch, P=np.ones_like(batch.P)), dead) if dead.all() else (batch, np.zeros_like(dead))
    live = int(np.flatnonzero(costs.any(axis=1))[0])
    P, c = (np.where(dead[:, None], part[live], part) for part in (batch.P, batch.c))
    return replace(batch, P=P, c=c), dead


def _in_own_units(batch: Batch, of_costs: bool) -> tuple[Batch, Array, Array, Array]:
    """The batch with right-hand sides, rows, columns and costs of size about 1, the units of s and of h, and which
    units of s are those of costs.

    All units are powers of 2, so that scaling is exact.

    of_costs : s has at least the unit in which both costs weigh the same, as for the ends of a Huber loss whose target
    is far smaller than they are
    """
    steepest = _unit(np.abs(batch.a).max(axis=1, initial=0.0))
    a = batch.a / steepest[:, None]
    rows = _unit(np.maximum(np.abs(batch.A).max(axis=2, initial=0.0), np.abs(a)))
    b = batch.b / rows
    of_rows = np.maximum(_unit(np.abs(b).max(axis=1, initial=0.0)), SQUARED)
    A = batch.A / rows[:, :, None]
    columns = _unit(np.abs(A).max(axis=1, initial=0.0))  # units of x, by which costs are multiplied
    wider = np.zeros(len(b), dtype=bool)
    if of_costs:
        linear, square = (np.abs(part).max(axis=1) for part in (batch.c / columns, batch.P / columns**2))
        balanced = _unit(linear / np.where(square > 0, square, np.inf))
        wider, of_rows = balanced > of_rows, np.maximum(of_rows, balanced)
    width, w = of_rows / steepest, of_rows[:, None]
    unit = w / columns
    P, c = batch.P * unit * unit, batch.c * unit
    costs = [np.abs(part).max(axis=1, initial=0.0) for part in (P, c)]
    height = _unit(np.maximum(*costs))
    h = height[:, None]
    scaled = Batch(batch.at, A / columns[:, None, :], a / rows, b / w, P / h, c / h, batch.kinds)
    return scaled, width, height, wider


def _unit(sizes: Array) -> Array:
    """The largest power of 2 that is no larger than each size; 1 for 0."""
    return np.where(sizes > 0, np.ldexp(1.0, np.frexp(sizes)[1] - 1), 1.0)


def _active_sets(equal: list[int], rest: list[int], k: int) -> Iterator[tuple[int, ...]]:
    # No more rows than columns: further active rows would be dependent.
    for size in range(min(len(rest), max(k - len(equal), 0)) + 1):
        for chosen in combinations(rest, size):
            yield (*equal, *chosen)


def _on_active(batch: Batch, active: list[int], equal: list[int]) -> _Part | None:
    """h where just these rows are active; None where they do not determine x."""
    n, m, k = batch.A.shape
    w = len(active)
    W = batch.A[:, active]
    K = np.zeros((n, k + w, k + w))
    K[:, np.arange(k), np.arange(k)] = batch.P
    K[:, :k, k:], K[:, k:, :k] = np.swapaxes(W, 1, 2), W
    if k + w and _is_singular(K):
        return None
    fixed = np.concatenate([-batch.c, batch.b[:, active]], axis=1)
    moving = np.concatenate([np.zeros((n, k)), -batch.a[:, active]], axis=1)
    solved = _solved(K, np.stack([fixed, moving], axis=2))
    if solved is None:
        return _Part(*(np.full(n, np.nan) for _ in fields(_Part)))  # singular for some pieces: the batch is refused
    x, z = _Lines(solved.value[:, :k], solved.error[:, :k]), _Lines(solved.value[:, k:], solved.error[:, k:])
    inactive = [j for j in range(m) if j not in active]
    given = np.stack([batch.b[:, inactive], -batch.a[:, inactive]], axis=2)
    slack = _Lines(given, np.zeros_like(given)).plus(x.times(-batch.A[:, inactive]))
    held = [i for i, j in enumerate(active) if j not in equal]
    # Multipliers of active inequalities and slacks of inactive rows must be ≥ 0; both are affine in s.
    left, right, left_error, right_error = _interval(_Lines(z.value[:, held], z.error[:, held]))
    first, last, first_error, last_error = _interval(slack)
    left_error = np.where(left > first, left_error, np.where(left < first, first_error, left_error + first_error))
    right_error = np.where(right < last, right_error, np.where(right > last, last_error, right_error + last_error))
    at, rate = x.value[:, :, 0], x.value[:, :, 1]
    constant = np.sum(batch.c * at + 0.5 * batch.P * at**2, axis=1)
    slope = np.sum((batch.c + batch.P * at) * rate, axis=1)
    curvature = np.sum(batch.P * rate**2, axis=1)
    left, right = np.maximum(left, first), np.minimum(right, last)
    return _Part(left, right, constant, slope, curvature, first, last, left_error, right_error)


def _solved(K: Array, rhs: Array) -> _Lines | None:
    """K⁻¹rhs with a bound of its error, |K⁻¹|(|rhs − Kx| + ε(|K||x| + |rhs|)); None where some K is near singular."""
    n, size, _ = K.shape
    if not size:
        return _Lines(np.zeros((n, 0, 2)), np.zeros((n, 0, 2)))
    K = K[:1] if np.all(K[0] == K) else K  # one inverse serves all pieces with the same K
    try:
        inverse = np.linalg.inv(K)
    except np.linalg.LinAlgError:
        return None
    sizes, of_inverse = np.abs(K), np.abs(inverse)
    if not np.all(of_inverse @ sizes < ILL_CONDITIONED):
        return None
    x = inverse @ rhs
    x += inverse @ (rhs - K @ x)  # one step of iterative refinement
    error = of_inverse @ (np.abs(rhs - K @ x) + size * EPS * (sizes @ np.abs(x) + np.abs(rhs)))
    return _Lines(x, error).without_rounding()


def _is_singular(K: Array) -> bool:
    """Whether all of these matrices are singular. Where only some are, `_solved` returns None."""
    if np.linalg.matrix_rank(K[0]) == K.shape[1]:
        return False
    return bool(np.all(K[0] == K)) or bool(np.all(np.linalg.matrix_rank(K) < K.shape[1]))


def _interval(lines: _Lines) -> tuple[Array, Array, Array, Array]:
    """The ends of the interval of s on which all lines are ≥ 0, and the errors of both ends."""
    offset, rate = lines.value[:, :, 0], lines.value[:, :, 1]
    n = len(offset)
    if not offset.shape[1]:
        return np.full(n, -np.inf), np.full(n, np.inf), np.zeros(n), np.zeros(n)
    with np.errstate(divide="ignore", invalid="ignore"):
        zero = -offset / rate
        errors = (lines.error[:, :, 0] + np.abs(zero) * lines.error[:, :, 1]) / np.abs(rate) + EPS * np.abs(zero)
    lower, upper = np.where(rate > 0, zero, -np.inf), np.where(rate < 0, zero, np.inf)
    ends = lower.argmax(axis=1)[:, None], upper.argmin(axis=1)[:, None]
    left, right = (np.take_along_axis(part, i, axis=1)[:, 0] for part, i in zip((lower, upper), ends, strict=True))
    errors = np.where(rate == 0, 0.0, errors)
    left_error, right_error = (np.take_along_axis(errors, i, axis=1)[:, 0] for i in ends)
    impossible = ((rate == 0) & (offset < 0)).any(axis=1)
    left, right = np.where(impossible, np.inf, left), np.where(impossible, -np.inf, right)
    return left, right, np.where(np.isinf(left), 0.0, left_error), np.where(np.isinf(right), 0.0, right_error)


def _exponential(batch: Batch) -> Piece | None:
    """The function of a block with exponential cones, y·e^(x/y) ≤ z:

    one cone with y = 1: e^x, or −log z; with z = 1: y log y; two cones: −log(1 − e^(βs + γ)), or, with a row
    z₁ + z₂ ≤ 1, log(1 + e^(βs + γ)).
    """
    if batch.P.any():
        return None
    k = batch.A.shape[2]
    if batch.kinds == ("nonneg",) + ("exp",) * 6 and k == 3:
        return _logistic(batch)
    if batch.kinds == ("exp",) * 6 and k == 2:
        return _complement(batch)
    if batch.kinds == ("exp",) * 3 and k == 1:
        return _single_cone(batch)
    return None


def _single_cone(batch: Batch) -> Piece | None:
    """One exponential cone with one auxiliary variable in one of its entries."""
    X, a, b, c = batch.A[:, :, 0], batch.a, batch.b, batch.c[:, 0]
    with_x = X != 0
    if not (with_x == with_x[0]).all() or with_x[0].sum() != 1:
        return None
    place = int(np.flatnonzero(with_x[0])[0])
    fixed = [~a[:, j].any() and bool(np.all(b[:, j] == 1)) for j in range(3)]
    # Entry j of the cone is b − X·x − a·s; x has coefficient −X.
    scale = -X[:, place]
    if place == 2 and fixed[1] and np.all(scale > 0) and np.all(c >= 0):  # at the optimum, x = (e^q + a₂s)/scale
        weight = c / scale
        linear = weight * a[:, 2]
        plain = not b[:, 2].any()
        good = plain and bool(np.all(a[:, 0] != 0))
        return ExponentialPiece(batch.at, weight, -a[:, 0], b[:, 0], linear, False) if good else None
    # With x in entry 0, scale·x ≤ y·log(z/y) + a₀s. The cost c·x with c/scale < 0 makes this an equality.
    weight = -c / np.where(scale == 0, 1.0, scale)
    if place != 0 or np.any(weight < 0) or b[:, 0].any():
        return None
    linear = -weight * a[:, 0]
    if fixed[1] and np.all(a[:, 2] != 0):
        return Logarithm(batch.at, weight, -a[:, 2], b[:, 2], linear)
    if fixed[2] and np.all(a[:, 1] != 0):
        return Entropy(batch.at, weight, -a[:, 1], b[:, 1], linear)
    return None


def _logistic(batch: Batch) -> ExponentialPiece | None:
    """α·log(1 + e^(βs + γ)) = min α·x subject to e^(−x) + e^(βs + γ − x) ≤ 1."""
    n, _, k = batch.A.shape
    for j in (1, 4):  # y = 1, and the third entry is one auxiliary variable
        constant = not batch.A[:, j + 1].any() and not batch.a[:, j + 1].any() and np.all(batch.b[:, j + 1] == 1)
        plain = not batch.a[:, j + 2].any() and not batch.b[:, j + 2].any()
        plain = plain and bool(np.all(np.sort(batch.A[:, j + 2], axis=1)[:, 0] == -1))
        if not constant or not plain or np.any(np.count_nonzero(batch.A[:, j + 2], axis=1) != 1):
            return None
    epigraph = np.argmax(batch.A[:, 1] != 0, axis=1)  # x in e^(βs + γ − x): its cost may be 0
    pick = np.arange(n)
    weight = batch.c[pick, epigraph]
    moving = np.abs(batch.a[:, 1]) > 0
    mover, still = np.where(moving, 1, 4), np.where(moving, 4, 1)
    rate, shift = -batch.a[pick, mover], batch.b[pick, mover]
    only = np.zeros((n, k))
    only[pick, epigraph] = 1.0
    good = (
        np.array_equal(batch.A[pick, mover], only) and np.array_equal(batch.A[pick, still], only)
        and not batch.a[pick, still].any() and not batch.b[pick, still].any() and not batch.a[:, 0].any()
        and bool(np.all(batch.b[:, 0] == 1)) and np.array_equal(batch.A[:, 0], 1.0 - only)
        and np.count_nonzero(batch.c) == np.count_nonzero(weight)
    )  # fmt: skip
    if not good or np.any(rate == 0) or np.any(weight < 0):
        return None
    return ExponentialPiece(batch.at, weight, rate, shift, np.zeros(n), True)


def halves(batch: Batch) -> tuple[int, int]:
    """The first rows of the two cones of −log(1 − e^q): that of e^q, and that of the logarithm, whose x costs."""
    t = int(np.argmax(np.abs(batch.c).max(axis=0)))
    return (3, 0) if batch.A[:, 0, t].any() else (0, 3)


def _complement(batch: Batch) -> LogComplement | None:
    """−α·log(1 − e^(βs + γ)) = min −α·x subject to x ≤ log(1 − z) and e^(βs + γ) ≤ z."""
    inner, outer = halves(batch)
    x = int(np.argmax(batch.A[0, outer] != 0))
    expected = np.zeros_like(batch.A)
    expected[:, outer, x] = -1.0
    expected[:, inner + 2, 1 - x], expected[:, outer + 2, 1 - x] = -1.0, 1.0
    right, of_s = np.zeros_like(batch.b), np.zeros_like(batch.a)
    right[:, [inner + 1, outer + 1, outer + 2]], right[:, inner] = 1.0, batch.b[:, inner]
    of_s[:, inner] = batch.a[:, inner]
    good = (
        np.array_equal(batch.A, expected) and np.array_equal(batch.b, right) and np.array_equal(batch.a, of_s)
        and np.all(batch.a[:, inner] != 0) and np.all(batch.c[:, x] <= 0) and not batch.c[:, 1 - x].any()
    )  # fmt: skip
    if not good:
        return None
    return LogComplement(batch.at, -batch.c[:, x], -batch.a[:, inner], batch.b[:, inner], np.zeros(len(batch.c)))


def _power(batch: Batch) -> PowerPiece | None:
    """The function of a block with one power cone, xᵅ·y^(1−α) ≥ |z| (x, y ≥ 0), and a cost of one auxiliary t:

    |z|^(1/α) where x is t and y = 1; −xᵅ where z is t and y = 1; x^(−α/(1−α)) where y is t and z = 1. In the first, z
    may be another auxiliary variable that rows bound from below by |q| or max(q, 0).
    """
    if batch.P.any() or batch.kinds.count(batch.kinds[-1]) != 3:
        return None
    costly = np.flatnonzero(batch.c.any(axis=0))
    if len(costly) > 1:
        return None
    found = (_power_at(batch, int(t)) for t in (costly if len(costly) else range(batch.A.shape[2])))
    return next((piece for piece in found if piece is not None), None)


def _power_at(batch: Batch, t: int) -> PowerPiece | None:
    """The same with auxiliary column t as the one with a cost."""
    cone = slice(len(batch.kinds) - 3, None)
    X, a, b = batch.A[:, cone], batch.a[:, cone], batch.b[:, cone]
    alpha = float(batch.kinds[-1].split()[1])
    constant = [bool(not X[:, j].any() and not a[:, j].any() and np.all(b[:, j] == 1)) for j in range(3)]
    place = np.flatnonzero(X[:, :, t].any(axis=0))
    if len(place) != 1 or np.any(X[:, place[0], t] >= 0) or a[:, place[0]].any() or b[:, place[0]].any():
        return None
    if np.count_nonzero(X[:, place[0]]) != len(X) or batch.A[:, : cone.start, t].any():
        return None
    weight = batch.c[:, t] / -X[:, place[0], t]
    which = int(place[0]), constant.index(True) if any(constant) else -1
    given = {(0, 1): 2, (2, 1): 0, (1, 2): 0}.get(which)
    if given is None:
        return None
    p = {(0, 1): 1 / alpha, (2, 1): alpha, (1, 2): -alpha / (1 - alpha)}[which]
    weight = -weight if which == (2, 1) else weight
    if np.any(weight < 0):
        return None
    if len(batch.kinds) == 3 and batch.A.shape[2] == 1:
        rate, shift, positive = -a[:, given], b[:, given], False
    elif which == (0, 1) and batch.A.shape[2] == 2 and not a[:, 2].any() and not b[:, 2].any():
        found = _at_least(batch, 1 - t, cone.start, -X[:, 2, 1 - t])
        if found is None or np.any(X[:, 2, 1 - t] >= 0):
            return None
        rate, shift, positive = found
    else:
        return None
    return PowerPiece(batch.at, weight, rate, shift, np.zeros(len(rate)), p, positive)


def _at_least(batch: Batch, x: int, rows: int, unit: Array) -> tuple[Array, Array, bool] | None:
    """q = rate·s + shift where the first rows are unit·x ≥ |q| (False) or unit·x ≥ max(q, 0) (True); else None."""
    if any(kind != "nonneg" for kind in batch.kinds[:rows]) or np.any(batch.A[:, :rows, x] >= 0):
        return None
    moving = np.flatnonzero(batch.a[:, :rows].any(axis=0) | batch.b[:, :rows].any(axis=0))
    size = -unit[:, None] / batch.A[:, moving, x]
    rate, shift = batch.a[:, moving] * size, -batch.b[:, moving] * size
    if len(moving) == 1 and rows > 1:
        return rate[:, 0], shift[:, 0], True
    if len(moving) == 2 and np.array_equal(rate[:, 0], -rate[:, 1]) and np.array_equal(shift[:, 0], -shift[:, 1]):
        return rate[:, 0], shift[:, 0], False
    return None
