"""Functions of one number that stand in constraints, as linear constraints; see `sums`.

w·h(s) ≤ c:             l ≤ s ≤ u
r(x) + w·h(s) ≤ 0:      r(x) + w(c₁s + c₀) ≤ 0 for each line of h, as |s| ≤ z
r(x) + Σ wᵢhᵢ(sᵢ) ≤ 0:  r(x) + Σ wᵢzᵢ ≤ 0 with c₁sᵢ + c₀ ≤ zᵢ for each line of hᵢ, as the worst of groups of losses
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelopt.compiler.collecting import Collected, at_most, with_column
from kernelopt.compiler.units import row_exponents
from kernelopt.pieces.form import Group, Pieces
from kernelopt.pieces.quadratics import Piecewise
from kernelopt.support.types import Array, Ints

# Functions of lines in constraints, from which each has a variable of its own that bounds it, for the interior point.
# 3000 hinge losses in five groups, the worst of which counts, take 6 s so, and 26 by a cone solver; 300 take the same
# time either way. Fewer ones are functions with kinks to the method of multipliers, which takes many steps for more.
MANY = 200


def added_level_sets(parts: Collected, group: Group, pieces: Pieces, S: sp.csr_array, empty: NDArray[np.bool_]) -> bool:
    """Constraints w·h(s) ≤ c of one function each, as bounds l ≤ s ≤ u; False for others.

    A multiplier v of s ≤ u is w·h′(u) times that of the constraint.
    """
    W, h = group.weights, group.family
    if not isinstance(h, Piecewise) or group.rows.shape[1] > 1 or np.any(np.diff(W.indptr) != 1) or not W.indices.all():
        return False
    rows, of, w = pieces.below[W.indices - 1], group.rows[:, 0], W.data
    alone = np.bincount(np.concatenate([g.weights.indices for g in pieces.groups]), minlength=W.shape[1]) == 1
    if not alone[W.indices].all() or not empty[rows].all() or not np.all(w > 0):
        return False
    bare = empty[of]  # of constants, as differences of a row with itself are
    if np.any(w[bare] * h.take(np.flatnonzero(bare)).value(pieces.s0[of[bare], None]) + pieces.s0[rows[bare]] > 0):
        return False  # a contradiction, which no engine of ours proves
    keep = np.flatnonzero(~bare)
    rows, of, w, h = rows[keep], of[keep], w[keep], h.take(keep)
    ends = h.level(-pieces.s0[rows] / w)
    if np.isnan(ends).any():
        return False  # an empty set
    for sign, end in ((1.0, ends[1]), (-1.0, ends[0])):
        some = np.flatnonzero(np.isfinite(end))
        if not len(some):
            continue
        below, above = h.take(some).slopes(end[some])
        slope = np.maximum(sign * below, sign * above)
        if np.any(slope <= 0):
            return False  # an interior is needed
        unit = 2.0 ** row_exponents(pieces)[of[some]]
        at = parts.put(sp.csr_array(sp.diags_array(sign / unit) @ S[of[some]]), rows[some])
        parts.use(at_most(at, sign * (end[some] - pieces.s0[of[some]]) / unit))
        parts.returns(of[some], at, sign / unit)
        parts.returns(rows[some], at, 1 / (unit * w[some] * slope))
    return True


def added_lines(parts: Collected, group: Group, pieces: Pieces, S: sp.csr_array) -> bool:
    """Constraints r(x) + w·h(s) ≤ 0 of one function of lines each, as |s| ≤ z: r(x) + w(c₁s + c₀) ≤ 0 for each line.

    False for others.
    """
    W, h = group.weights, group.family
    if len(pieces.bounds) or not _are_of_lines(group) or not _are_alone(pieces, group):
        return False
    assert isinstance(h, Piecewise)
    used = np.hstack([np.ones((len(h), 1), dtype=bool), np.isfinite(h.knots)])
    rows, of, w, exponents = pieces.below[W.indices - 1], group.rows[:, 0], W.data, row_exponents(pieces)
    for stretch in range(used.shape[1]):
        some = np.flatnonzero(used[:, stretch])
        slope, rate = w[some] * h.coefficients[some, stretch, 1], 2.0 ** -exponents[rows[some]]
        line = sp.csr_array(sp.diags_array(rate) @ (S[rows[some]] + sp.diags_array(slope) @ S[of[some]]))
        line.eliminate_zeros()
        if not np.diff(line.indptr).all():
            return False
        at = parts.put(line)
        level = pieces.s0[rows[some]] + slope * pieces.s0[of[some]] + w[some] * h.coefficients[some, stretch, 0]
        parts.use(at_most(at, -rate * level))
        parts.returns(of[some], at, rate * slope)
        parts.returns(rows[some], at, rate)
    return True


def added_epigraphs(
    parts: Collected, pieces: Pieces, among: list[int], S: sp.csr_array, on_t: NDArray[np.bool_]
) -> tuple[frozenset[int], Ints]:
    """Constraints of sums of many functions of lines each, with a further column z for each function.

    The numbers of the groups, all functions of which are such ones, and the rows of their constraints.
    """
    able = {number for number in among if _may_be_bounded(pieces, pieces.groups[number], S, on_t)}
    while True:  # rows that hold other functions, too, are none of this kind
        other = [g.weights.indices for number, g in enumerate(pieces.groups) if number not in able]
        taken = np.unique(np.concatenate([np.arange(0), *other]))
        kept = {number for number in able if not np.isin(pieces.groups[number].weights.indices, taken).any()}
        if kept == able:
            break
        able = kept
    if sum(len(pieces.groups[number].rows) for number in able) <= MANY:
        return frozenset(), np.arange(0)
    exponents = row_exponents(pieces)
    places, columns, weights = list[Ints](), list[Ints](), list[Array]()
    for number in sorted(able):
        group = pieces.groups[number]
        h, of, at = group.family, group.rows[:, 0], np.arange(len(group.rows))
        assert isinstance(h, Piecewise)
        z, rate = S.shape[1] + len(parts.extra) + at, 2.0 ** -exponents[of]
        parts.extra += [0.0] * len(z)
        places, columns = [*places, pieces.below[group.weights.indices - 1]], [*columns, z]
        weights.append(group.weights.data)
        used = np.hstack([np.ones((len(h), 1), dtype=bool), np.isfinite(h.knots)])
        for stretch in range(used.shape[1]):
            some = np.flatnonzero(used[:, stretch])
            c0, c1 = h.coefficients[some, stretch, 0], h.coefficients[some, stretch, 1]
            sloped = sp.csr_array(sp.diags_array(c1) @ S[of[some]])
            line = sp.csr_array(sp.diags_array(rate[some]) @ with_column(sloped, z[some], -1.0))
            line.eliminate_zeros()
            at = parts.put(line)
            parts.use(at_most(at, -rate[some] * (c1 * pieces.s0[of[some]] + c0)))
            parts.returns(of[some], at, rate[some] * c1)
    row, z, w = (np.concatenate(part) for part in (places, columns, weights))
    held, place = np.unique(row, return_inverse=True)
    n, rate = S.shape[1] + len(parts.extra), 2.0 ** -np.frexp(np.bincount(place.ravel(), w))[1]  # of means
    own = sp.csr_array((S[held].data, S[held].indices, S[held].indptr), shape=(len(held), n))
    whole = sp.csr_array(sp.diags_array(rate) @ (own + sp.csr_array((w, (place.ravel(), z)), shape=own.shape)))
    at = parts.put(whole)
    parts.use(at_most(at, -rate * pieces.s0[held]))
    parts.returns(held, at, rate)
    return frozenset(able), held


def _may_be_bounded(pieces: Pieces, group: Group, S: sp.csr_array, on_t: NDArray[np.bool_]) -> bool:
    """Whether all functions of a group are functions of lines of predictions and variables, with others beside them."""
    if not _are_of_lines(group) or (_are_alone(pieces, group) and not len(pieces.bounds)):
        return False
    rows = np.append(group.rows[:, 0], pieces.below[group.weights.indices - 1])
    return bool(np.diff(S.indptr)[group.rows[:, 0]].all() and not on_t[rows].any())


def _are_alone(pieces: Pieces, group: Group) -> bool:
    """Whether each function is the only one of its constraint."""
    of_all = np.concatenate([one.weights.indices for one in pieces.groups])
    counts = np.bincount(of_all, minlength=group.weights.shape[1])
    return bool(np.all(counts[group.weights.indices] == 1))


def _are_of_lines(group: Group) -> bool:
    """Whether all functions are functions of lines of one number, in one constraint each."""
    W, h = group.weights, group.family
    if not isinstance(h, Piecewise) or len(h) != len(group.rows) or group.rows.shape[1] > 1:
        return False
    if np.any(np.diff(W.indptr) != 1) or not W.indices.all() or np.any(W.data <= 0):
        return False
    used = np.hstack([np.ones((len(h), 1), dtype=bool), np.isfinite(h.knots)])
    return not np.where(used, h.coefficients[..., 2], 0.0).any()
