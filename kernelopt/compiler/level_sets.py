"""Functions of one number that stand in constraints, as linear constraints; see `sums`.

w·h(s) ≤ c:             l ≤ s ≤ u
r(x) + w·h(s) ≤ 0:      r(x) + w(c₁s + c₀) ≤ 0 for each line of h, as |s| ≤ z
r(x) + Σ wᵢhᵢ(sᵢ) ≤ 0:  r(x) + Σ wᵢzᵢ ≤ 0 with c₁sᵢ + c₀ ≤ zᵢ for each line of hᵢ, as the worst of groups of losses
r(x) + w·(sum of the c largest x) ≤ 0:  r(x) + w(ct + Σ zₖ) ≤ 0 with xₖ − t ≤ zₖ and 0 ≤ zₖ
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelopt.compiler.collecting import Collected, at_most, with_column
from kernelopt.compiler.terms import SumOfLosses
from kernelopt.compiler.units import row_exponents
from kernelopt.pieces.extremes import Largest, SumOfLargest
from kernelopt.pieces.form import Group, Pieces
from kernelopt.pieces.quadratics import Piecewise
from kernelopt.support.arithmetic import UNIT
from kernelopt.support.types import Array, Ints

# Functions of lines in constraints, from which each has a variable of its own that bounds it, for the interior point.
# 3000 hinge losses in five groups, the worst of which counts, take 3 s so, and 26 by a cone solver; 300 take the same
# time either way. Fewer ones are functions with kinks to the method of multipliers, which takes many steps for more.
MANY = 200
# Roundings of an entry that are left where terms of a row cancel: none of its own.
CANCELLED = 8 * UNIT


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
    if not _are_of_lines(group) or not _are_alone(pieces, group):
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
    """Constraints of sums of many functions of lines each, or of their largest ones, with further columns.

    The numbers of the groups, all functions of which are such ones, and the rows of their constraints.
    """
    able = {number for number in among if _may_be_bounded(pieces, pieces.groups[number], on_t)}
    while able:  # rows that hold other functions, too, are none of this kind
        other = [g.weights.indices for number, g in enumerate(pieces.groups) if number not in able]
        taken = np.setdiff1d(np.concatenate([np.arange(0), *other]), [0])
        kept = {number for number in able if not np.isin(pieces.groups[number].weights.indices, taken).any()}
        if kept == able:
            break
        able = kept
    groups = [pieces.groups[number] for number in sorted(able)]
    # What the method of multipliers does not take, however few there are.
    several = any(np.any(np.diff(group.weights.indptr) > 1) for group in groups)
    several |= bool(groups) and any(isinstance(group.family, SumOfLargest) for group in pieces.groups)
    if sum(group.rows.size for group in groups) <= (0 if several else MANY):
        return frozenset(), np.arange(0)
    more, alone = list[_More](), [np.arange(0)]
    for group in groups:
        if isinstance(group.family, (Largest, SumOfLargest)):
            more += _of_largest(parts, group, pieces, S)
        elif _are_alone(pieces, group):
            if not added_lines(parts, group, pieces, S):
                return frozenset(), np.arange(0)
            alone.append(pieces.below[group.weights.indices - 1])
        else:
            more.append(_of_sums(parts, group, pieces, S))
    held = _added_sums(parts, pieces, S, more)
    return frozenset(able), np.concatenate([*alone, held])


class _More(NamedTuple):
    """Entries that rows get beside their own: rows, columns and values, all of one length."""

    rows: Ints
    columns: Ints
    values: Array


def _of_sums(parts: Collected, group: Group, pieces: Pieces, S: sp.csr_array) -> _More:
    """A column z for each function, with c₁s + c₀ ≤ z for each line, in all rows and costs of the function."""
    h, of, rates = group.family, group.rows[:, 0], 2.0 ** -row_exponents(pieces)[group.rows[:, 0]]
    assert isinstance(h, Piecewise)
    z = S.shape[1] + len(parts.extra) + np.arange(len(of))
    parts.extra += group.costs.tolist()
    used = np.hstack([np.ones((len(h), 1), dtype=bool), np.isfinite(h.knots)])
    for stretch in range(used.shape[1]):
        some = np.flatnonzero(used[:, stretch])
        c0, c1 = h.coefficients[some, stretch, 0], h.coefficients[some, stretch, 1]
        sloped = sp.csr_array(sp.diags_array(c1) @ S[of[some]])
        line = sp.csr_array(sp.diags_array(rates[some]) @ with_column(sloped, z[some], -1.0))
        line.eliminate_zeros()
        at = parts.put(line)
        parts.use(at_most(at, -rates[some] * (c1 * pieces.s0[of[some]] + c0)))
        parts.returns(of[some], at, rates[some] * c1)
    W = group.weights
    inner = W.indices > 0
    owner = np.repeat(z, np.diff(W.indptr))[inner]
    return _More(pieces.below[W.indices[inner] - 1], owner, W.data[inner])


def _of_largest(parts: Collected, group: Group, pieces: Pieces, S: sp.csr_array) -> list[_More]:
    """Columns t with x ≤ t for maxima; t and z with x − t ≤ z and 0 ≤ z for sums of largest entries, the least ct + Σz.

    The entries are x − x̄ and 0; what the row has of x̄, c times, is taken off.
    """
    family, (m, k), w = group.family, group.rows.shape, group.weights.data
    count = family.count if isinstance(family, SumOfLargest) else 1
    rows, owner, below = group.rows.ravel(), np.repeat(np.arange(m), k), pieces.below[group.weights.indices - 1]
    last = sp.csr_array((m, S.shape[1])) if group.base is None else group.base
    every = sp.csr_array(sp.vstack([S[rows] + last[owner], last]))
    every.eliminate_zeros()
    owner = np.append(owner, np.arange(m))
    t = S.shape[1] + len(parts.extra) + np.arange(m)
    parts.extra += [0.0] * m
    lines, found = with_column(every, t[owner], -1.0), [_More(below, t, w * count)]
    if isinstance(family, SumOfLargest):
        z = S.shape[1] + len(parts.extra) + np.arange(len(owner))
        parts.extra += [0.0] * len(z)
        lines = with_column(lines, z, -1.0)
        parts.use(at_most(parts.put(with_column(sp.csr_array((len(z), S.shape[1])), z, -1.0)), np.zeros(len(z))))
        found.append(_More(below[owner], z, w[owner]))
    at = parts.put(lines)
    if isinstance(family, SumOfLargest):
        bounds = _bounds(pieces, every)
        for i in np.flatnonzero(bounds[m * k :] >= 0).tolist():
            own = np.append(bounds[: m * k].reshape(m, k)[i], bounds[m * k + i])
            parts.sums.append(SumOfLosses(group.rows[i], own, at[[m * k + i]], w[i], count, int(below[i])))
    parts.use(at_most(at, -np.append(pieces.s0[rows], np.zeros(m))))
    parts.returns(rows, at[: m * k], np.ones(m * k))
    mean = sp.coo_array(last)
    return [*found, _More(below[mean.row], mean.col, -(w * count)[mean.row] * mean.data)]


def _bounds(pieces: Pieces, every: sp.csr_array) -> Ints:
    """The row in which each entry bounds a function, where it is such a bound alone; else −1."""
    own, number = np.full(pieces.n, -1), np.full(every.shape[0], -1)
    own[pieces.bounds[:, 0]] = pieces.below[pieces.bounds[:, 1]]
    alone = np.flatnonzero(np.diff(every.indptr) == 1)
    at = every.indptr[alone]
    number[alone] = np.where(every.data[at] == 1, own[every.indices[at]], -1)
    return number


def _added_sums(parts: Collected, pieces: Pieces, S: sp.csr_array, more: list[_More]) -> Ints:
    """The rows r(x) + Σ wᵢzᵢ ≤ 0, in units of means."""
    if not more:
        return np.arange(0)
    rows, columns, values = (np.concatenate(part) for part in zip(*more, strict=True))
    held, place = np.unique(rows, return_inverse=True)
    shape = len(held), S.shape[1] + len(parts.extra)
    own = sp.csr_array((S[held].data, S[held].indices, S[held].indptr), shape=shape)
    added = sp.csr_array((values, (place.ravel(), columns)), shape=shape)
    whole, terms = sp.csr_array(own + added), sp.csr_array(abs(own) + abs(added))
    whole = sp.csr_array(whole.multiply(abs(whole) > CANCELLED * terms))
    whole.eliminate_zeros()
    rate = 2.0 ** -np.frexp(np.asarray(abs(added).sum(axis=1)).ravel())[1]
    at = parts.put(sp.csr_array(sp.diags_array(rate) @ whole))
    parts.use(at_most(at, -rate * pieces.s0[held]))
    parts.returns(held, at, rate)
    return held


def _may_be_bounded(pieces: Pieces, group: Group, on_t: NDArray[np.bool_]) -> bool:
    """Whether all functions of a group are functions of lines of predictions and variables, or their largest ones, in
    constraints with others beside them or below bounds that stand for functions."""
    W, largest = group.weights, isinstance(group.family, (Largest, SumOfLargest))
    if group.is_outer or np.any(W.data <= 0):
        return False
    if largest and (np.any(np.diff(W.indptr) != 1) or not W.indices.all()):
        return False
    if not largest and (not _are_of_lines(group) or (_are_alone(pieces, group) and not len(pieces.bounds))):
        return False
    rows = np.concatenate([group.rows.ravel(), pieces.below[W.indices[W.indices > 0] - 1]])
    return not on_t[rows].any()


def _are_alone(pieces: Pieces, group: Group) -> bool:
    """Whether each function is the only one of its only constraint."""
    W, of_all = group.weights, np.concatenate([one.weights.indices for one in pieces.groups])
    counts = np.bincount(of_all, minlength=W.shape[1])
    single = np.all(np.diff(W.indptr) == 1) and W.indices.all() and np.all(W.data > 0)
    return bool(single and np.all(counts[W.indices] == 1))


def _are_of_lines(group: Group) -> bool:
    """Whether all functions are functions of lines of one number."""
    h = group.family
    if not isinstance(h, Piecewise) or len(h) != len(group.rows) or group.rows.shape[1] > 1:
        return False
    used = np.hstack([np.ones((len(h), 1), dtype=bool), np.isfinite(h.knots)])
    return not np.where(used, h.coefficients[..., 2], 0.0).any()
