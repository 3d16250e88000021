"""The functions of rows as the method of multipliers takes them.

A bound on one function of one row, wh(s) ≤ c with c a number, becomes a set in which s lies: a ball, or an interval.
The method projects on it, where a function within a constraint takes a root for its multiplier in each step, and more
rounds. With a the multipliers of s, that of the bound is ‖a‖/(wφ′) at the end of the set, for h = φ of a length or of
one number. A bound ω‖s‖ ≤ −r beside another number r becomes a cone in which (r, s) lies; its multiplier is that of r.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.level_sets import MANY
from kernelopt.pieces.bounds import Ball, BelowNorm, Between
from kernelopt.pieces.extremes import SumOfLargest
from kernelopt.pieces.form import Group, Pieces
from kernelopt.pieces.function import Family
from kernelopt.pieces.norms import Radial, RowNorm, SecondOrderCone, dual_exponent, length_of
from kernelopt.pieces.quadratics import Piecewise
from kernelopt.pieces.spectral import Semidefinite
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array, Ints

# Relative to an end of a set: by how much it is tightened, so that answers, which are in it nearly, are in it.
MARGIN = 2e-9


@dataclass(frozen=True, eq=False)
class RowFunctions:
    """m functions of k rows of s each: weight·h in the objective, share·h in the row number `inside` of those below.

    rows : (m, k); inside : (m,), −1 for none; hard : whether h is 0 or ∞
    """

    family: Family
    rows: Ints
    weight: Array
    inside: Ints
    share: Array
    hard: bool = False

    @cached_property
    def is_smooth(self) -> bool:
        return self.family.is_smooth

    @cached_property
    def is_nested(self) -> bool:
        return bool(np.any(self.inside >= 0))

    def weights(self, multipliers: Array) -> Array:
        """ω = weight + share·(multiplier of its row), for the multipliers of rows below."""
        if not self.is_nested:
            return self.weight
        inner = self.inside >= 0
        return np.asarray(self.weight + np.where(inner, self.share * np.maximum(multipliers[self.inside], 0.0), 0.0))

    def take(self, which: Ints) -> RowFunctions:
        """Some of the functions."""
        family = self.family.take(which)
        return RowFunctions(
            family, self.rows[which], self.weight[which], self.inside[which], self.share[which], self.hard
        )

    def by_row(self, values: Array, count: int) -> Array:
        """Σ share·values for each of `count` rows below."""
        inner = self.inside >= 0
        return np.bincount(self.inside[inner], (self.share * values)[inner], count)


class Level(NamedTuple):
    """Bounds that became sets: rows below, the rows (m, k) of s in each set, and w φ′ where a ≤ 0 and where a ≥ 0.

    order : of the norm of a
    """

    below: Ints
    rows: Ints
    slopes: tuple[Array, Array]
    order: float

    def multipliers(self, a: Array) -> Array:
        """Those of the bounds, from those of all rows."""
        of_set = a[self.rows]
        slopes = np.where(of_set[:, 0] < 0, *self.slopes) if of_set.shape[1] == 1 else self.slopes[1]
        return length_of(of_set, self.order) / slopes


def functions_of(pieces: Pieces, of_t: Array) -> tuple[tuple[RowFunctions, ...], tuple[Level, ...]] | str:
    """The functions of all rows but those of t alone, and bounds that are sets; or why there are none, as a phrase."""
    found, levels = list[RowFunctions](), list[Level]()
    members = _members(pieces)
    counts = np.where(np.diff(pieces.S.indptr)[pieces.below] == 0, members, inf)  # ∞ in a row that is no number beside
    for group in pieces.groups:
        kept = np.flatnonzero(~of_t[group.rows[:, 0]])
        if not len(kept):
            continue
        made = _of_group(group, kept)
        if made is None:
            return "needs functions that stand in one constraint each"
        for part in _with_sums(made, counts):
            parts, level = _as_sets(part, pieces, counts)
            levels += level
            for left in parts:
                parts, level = _as_cones(left, pieces, members)
                found += parts
                levels += level
    for kind, k in sorted({(cone.kind, len(cone.rows)) for cone in pieces.cones}):
        same = [cone for cone in pieces.cones if (cone.kind, len(cone.rows)) == (kind, k)]
        family = SecondOrderCone() if kind == "soc" else Semidefinite(int(same[0].extra))
        rows, ones = np.array([cone.rows for cone in same]), np.ones(len(same))
        found.append(RowFunctions(family, rows, ones, np.full(len(rows), -1), 0 * ones, hard=True))
    inner = [f for f in found if f.is_nested and not f.is_smooth]
    nested = [f.family for f in inner]
    if sum(len(f.rows) for f in inner if isinstance(f.family, Piecewise)) > MANY:
        return "takes many steps for many losses with kinks within constraints or other losses"
    if nested and any(isinstance(f.family, SumOfLargest) for f in found):
        return "takes many steps for the largest of losses with kinks"
    if any(isinstance(family, RowNorm) and 1 < family.p < inf for family in nested):
        return "takes many steps for norms of other orders than 1, 2 and ∞ within functions"
    return tuple(f for f in found if f.hard or f.is_nested or f.weight.any()), tuple(levels)


def _of_group(group: Group, kept: Ints) -> RowFunctions | None:
    W = sp.csr_array(group.weights[kept])
    weight, inner = W[:, [0]].toarray().ravel(), sp.csr_array(W[:, 1:])
    inner.eliminate_zeros()
    counts = np.diff(inner.indptr)
    if counts.max(initial=0) > 1:
        return None
    inside, share = np.full(len(kept), -1), np.zeros(len(kept))
    inside[counts == 1], share[counts == 1] = inner.indices, inner.data
    return RowFunctions(group.family.take(kept), group.rows[kept], weight, inside, share)


def _members(pieces: Pieces) -> Array:
    """How many functions stand in each row below."""
    found = np.zeros(1 + len(pieces.below))
    for group in pieces.groups:
        found += np.bincount(group.weights.indices[group.weights.data != 0], minlength=len(found))
    return found[1:]


def _with_sums(f: RowFunctions, counts: Array) -> list[RowFunctions]:
    """The functions, with Σ w|sₖ| alone in a row as one norm of order 1, which `counts` then tells."""
    if not isinstance(f.family, Piecewise) or f.is_smooth:
        return [f]
    shape, inner = f.family, f.inside >= 0
    w = f.share * shape.slopes(np.zeros(len(shape)))[1]
    able = inner & (f.weight == 0) & (w > 0) & _are_even(shape)
    numbers = f.inside[able]
    members = np.bincount(numbers, minlength=len(counts))
    least, most = np.full(len(counts), inf), np.zeros(len(counts))
    np.minimum.at(least, numbers, w[able])
    np.maximum.at(most, numbers, w[able])
    whole = (members == counts) & (members > 1) & (least == most)
    taken = able.copy()
    taken[able] = whole[numbers]
    found = [f.take(np.flatnonzero(~taken))] if not taken.all() else []
    order = np.flatnonzero(taken)[np.argsort(f.inside[taken], kind="stable")]
    for k in np.unique(members[whole]).tolist():
        some = order[members[f.inside[order]] == k].reshape(-1, k)
        rows, inside = f.rows[some, 0], f.inside[some[:, 0]]
        found.append(RowFunctions(RowNorm(1.0), rows, np.zeros(len(rows)), inside, w[some[:, 0]]))
        counts[inside] = 1
    return found


def _are_even(shape: Piecewise) -> Array:
    """Which functions are multiples of |s|."""
    if shape.knots.shape[1] != 1:
        return np.zeros(len(shape), dtype=bool)
    at_zero, (first, second) = shape.knots[:, 0] == 0, (shape.coefficients[:, side] for side in (0, 1))
    straight = ~(first[:, [0, 2]].any(axis=1) | second[:, [0, 2]].any(axis=1))
    return at_zero & straight & (first[:, 1] == -second[:, 1])


def _as_sets(f: RowFunctions, pieces: Pieces, counts: Array) -> tuple[list[RowFunctions], list[Level]]:
    """The functions that are left, and sets with the bounds that they stand for."""
    able = (f.inside >= 0) & (f.weight == 0) & (f.share > 0)
    able[able] = counts[f.inside[able]] == 1
    if f.is_smooth or not able.any():
        return [f], []
    at = np.flatnonzero(able)
    c = -pieces.s0[pieces.below[f.inside[at]]] / f.share[at]
    some = _has_interior(f.family.take(at), f.share[at], c)
    at, c = at[some], c[some]
    if not len(at):
        return [f], []
    able[:] = False
    able[at] = True
    below = pieces.below[f.inside[at]]
    family, slopes, order = _set(f.family.take(at), f.share[at], c)
    none = np.full(len(at), -1)
    one = RowFunctions(family, f.rows[at], np.ones(len(at)), none, np.zeros(len(at)), hard=True)
    left = [] if able.all() else [f.take(np.flatnonzero(~able))]
    return [*left, one], [Level(below, f.rows[at], slopes, order)]


def _as_cones(f: RowFunctions, pieces: Pieces, members: Array) -> tuple[list[RowFunctions], list[Level]]:
    """The functions that are left, and cones of norms that are alone in their row, with the bounds they stand for."""
    if f.hard or f.is_smooth or not f.is_nested:
        return [f], []
    able = (f.inside >= 0) & (f.weight == 0) & (f.share > 0)
    able[able] = members[f.inside[able]] == 1
    factor = _steepness_of_norms(f.family, f.share)
    at = np.flatnonzero(able & (factor > 0))
    if not len(at):
        return [f], []
    below = pieces.below[f.inside[at]][:, None]
    rows, none = np.hstack([below, f.rows[at]]), np.full(len(at), -1)
    one = RowFunctions(BelowNorm(factor[at]), rows, np.ones(len(at)), none, np.zeros(len(at)), hard=True)
    rest = np.setdiff1d(np.arange(len(able)), at)
    left = [f.take(rest)] if len(rest) else []
    return [*left, one], [Level(below[:, 0], below, (np.ones(len(at)), np.ones(len(at))), 2.0)]


def _steepness_of_norms(family: Family, share: Array) -> Array:
    """ω of functions ω‖s‖ with their share, 0 for other ones."""
    if isinstance(family, RowNorm) and family.p == 2:
        return share
    if not isinstance(family, Radial) or family.shape.knots.shape[1] != 1:
        return np.zeros(len(share))
    (first, second), at_zero = (family.shape.coefficients[:, side] for side in (0, 1)), family.shape.knots[:, 0] == 0
    plain = at_zero & ~first.any(axis=1) & ~second[:, [0, 2]].any(axis=1)
    return np.asarray(share * np.where(plain, second[:, 1], 0.0))


class _Ends(NamedTuple):
    """{φ ≤ c} = [low, high], and the slopes of wφ there towards outside."""

    low: Array
    high: Array
    rates: tuple[Array, Array]


def _ends(shape: Piecewise, share: Array, c: Array) -> _Ends:
    low, high = shape.level(c)
    first, last = (share * _steepness(shape, end, sign) for sign, end in ((-1, low), (1, high)))
    return _Ends(low, high, (first, last))


def _has_interior(family: Family, share: Array, c: Array) -> Array:
    """Whether each {h ≤ c} is a set that is known here, with an interior, and h rises at its end."""
    if isinstance(family, RowNorm):
        return np.asarray(c > 0)
    shape = family.shape if isinstance(family, Radial) else family
    if not isinstance(shape, Piecewise):
        return np.zeros(len(c), dtype=bool)
    low, high, rates = _ends(shape, share, c)
    if isinstance(family, Radial):
        return np.asarray((high > 0) & (high < inf) & (rates[1] > 0))
    return np.asarray((low < high) & (rates[0] > 0) & (rates[1] > 0))


def _set(family: Family, share: Array, c: Array) -> tuple[Family, tuple[Array, Array], float]:
    """{h ≤ c} with an interior, the slopes of wh at its ends, and the order of the norm of its multipliers."""
    if isinstance(family, RowNorm):
        return Ball(family.p, c * (1 - MARGIN)), (share, share), dual_exponent(family.p)
    shape = family.shape if isinstance(family, Radial) else family
    assert isinstance(shape, Piecewise)
    low, high, rates = _ends(shape, share, c)
    if isinstance(family, Radial):
        return Ball(2.0, high * (1 - MARGIN)), (rates[1], rates[1]), 2.0
    width = np.minimum(high - low, np.maximum(_finite(low), _finite(high)))
    return Between(low + MARGIN * width, high - MARGIN * width), rates, 2.0


def _finite(end: Array) -> Array:
    """|end|, 0 where there is none."""
    return np.where(np.isfinite(end), np.abs(end), 0.0)


def _steepness(shape: Piecewise, end: Array, sign: float) -> Array:
    """The smaller slope towards outside that is positive, else the larger one; 1 without an end."""
    sides = [sign * side for side in shape.slopes(np.where(np.isfinite(end), end, 0.0))]
    low, high = np.minimum(*sides), np.maximum(*sides)
    return np.where(np.isinf(end), 1.0, np.where(low > 0, low, high))
