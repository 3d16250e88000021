"""Rows along which multipliers can be moved so that all free columns vanish exactly, and radii of these moves.

With residuals r = c_J + A_Jᵀz, a Δ on a square part of A_J, one pivot row per column, solves A_Jᵀ(z + Δ) = −c_J. The
chosen rows have room in the dual cone. This module proves nothing: the checker proves that such a Δ exists.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lstsq, qr
from scipy.sparse.csgraph import connected_components, min_weight_full_bipartite_matching
from scipy.sparse.linalg import lsmr

from kernelopt.support.types import Array, Ints

# Entries per column: a column with more (an intercept) gets its pivot row by QR of the Schur complement, after narrow
# columns chose theirs greedily. Moving their pivot rows changes the wide column too, which the complement takes in.
WIDE = 12
MOST = 400  # wide columns up to which QR is used; it takes rows·columns² operations on a dense array
# Iterations in which radii grow until they are consistent, beside one for each link of the longest chain of pivot rows,
# which are at most as many as rows. They end where a radius is beyond its row's room, as in a divergent iteration.
ROUNDS = 60
# Relative to the largest room: a smaller one is none. It is far below rounding, since multipliers of rows in different
# units differ by many orders of magnitude.
SMALL = 1e-25
# The least radius within a block of rows, relative to the block's largest.
SLIGHT = 1e-6
TURNS = 12  # rounds of the greedy choice, each O(entries); columns still without a row are then matched
STEPS = 6  # terms of the Neumann series of an inverse; it is exact where no chain of pivot rows is longer
FEW = 1000  # columns up to which a matching, or a joint choice by QR, is computed where the greedy choice fails
MANY_WIDE = 50  # columns wider than WIDE from which they count as narrow
SPARE = 1e-4  # relative: a radius exceeds its lower bound by this much, so that the checker's strict inequality holds
ROUNDING = 2e-16  # relative; of one operation, a little more than u = 2⁻⁵³ = 1.1e-16
# Relative to a column: it depends on others if less of it lies outside of their span. Smaller values take the rounding
# of QR for independence, larger ones give up columns that could vanish.
DEPENDENT = 1e-11
ENOUGH = 100.0  # times what a column lacks: room of its own row, which takes what other moves disturb, too
MANY = 20  # columns for which weights of others are sought; each takes a least-squares solution
# Entries up to which this least-squares problem is solved as a dense one. Beyond, iterations take a fraction of the
# time, and end at weights as precise as their rounding to integers needs, or after ITERATIONS.
DENSE, PRECISE, ITERATIONS = 250_000, 1e-12, 300
# Weights nearer to a multiple of one of these units than this share of it are rounded to it. The checker accepts exact
# combinations only, and the usual ones (sums, differences and halves of columns) have such weights.
UNITS, NEAR = (2.0**-12, 1.0), 1e-6


class Moves(NamedTuple):
    """How multipliers can be moved; see `Dual` for the meaning of the fields.

    inverse : Z ≈ M⁻¹ for M = S_rows,columnsᵀ; radius : of every row; others, weights : columns that are linear
    combinations of further ones, and the weights
    """

    rows: Ints
    columns: Ints
    inverse: sp.csr_array
    radius: Array
    others: Ints
    weights: sp.csc_array


def none(m: int) -> Moves:
    nothing = np.arange(0)
    return Moves(nothing, nothing, sp.csr_array((0, 0)), np.zeros(m), nothing, sp.csc_array((0, 0)))


@np.errstate(all="ignore")  # the checker refuses a radius that is not finite
def moves(W: sp.csc_array, left: Array, room: Array) -> Moves:
    """Moves and radii for columns W, whose last row is their cost, with residuals |left|; room : of each multiplier."""
    S = sp.csc_array(W[:-1])
    if not left.any() or not np.isfinite(W.data).all():  # NaN stands for a product that underflows
        return none(len(room))
    room = np.where(room > SMALL * _unit_of(S, room), room, 0.0)
    most = _widest(S)
    found = _moves(W, S, left, room, np.arange(S.shape[1]), most)
    if not _is_hopeless(S, left, room, found):
        return found
    if S.shape[1] > FEW:
        again = _moves(W, S, left, _with_own_first(S, left, room), np.arange(S.shape[1]), most)
        return found if _is_hopeless(S, left, room, again) else again
    # Rows that were chosen one by one may be linearly dependent: then an independent set of columns is chosen first,
    # and at last all rows together by QR (width 0).
    for width in (most, 0):
        again = _moves(W, S, left, room, _independent(S, room), width)
        if not _is_hopeless(S, left, room, again):
            return again
    return found


def _widest(S: sp.csc_array) -> int:
    """The most entries of a column that takes the row with most room: WIDE, or more for many columns that share few
    rows, such as the bounds of maxima."""
    degree = np.sort(np.diff(S.indptr))
    wider = degree[(np.cumsum(degree) <= S.shape[0]) & (degree > WIDE)]
    return int(wider[-1]) if len(wider) > MANY_WIDE else WIDE


def _is_hopeless(S: sp.csc_array, left: Array, room: Array, found: Moves) -> bool:
    unmoved = left + abs(S).T @ found.radius > 0
    unmoved[np.concatenate([found.columns, found.others])] = False
    return bool(unmoved.any()) or not np.all(found.radius <= room)


def _with_own_first(S: sp.csc_array, left: Array, room: Array) -> Array:
    """Rooms in which rows of one column come first where they have enough: they disturb no other column."""
    rows, columns, sizes = S.indices, np.repeat(np.arange(S.shape[1]), np.diff(S.indptr)), np.abs(S.data)
    alone = (np.bincount(rows, minlength=S.shape[0]) == 1)[rows] & (room[rows] * sizes > ENOUGH * left[columns])
    found = room.copy()
    found[rows[alone]] += room.max(initial=0.0)
    return found


def _independent(S: sp.csc_array, room: Array) -> Ints:
    """A maximal set of columns that are linearly independent in rows with room."""
    dense = S[room > 0].toarray()
    size = np.linalg.norm(dense, axis=0)
    R, order = qr(dense / np.where(size > 0, size, 1.0), mode="r", pivoting=True)
    rank = int(np.sum(np.abs(np.diag(R)) > DEPENDENT * abs(R[0, 0]))) if R.size else 0
    return np.sort(order[:rank])


def _moves(  # noqa: PLR0917
    W: sp.csc_array, S: sp.csc_array, left: Array, room: Array, among: Ints, width: int
) -> Moves:
    """Moves for the columns `among`, and combinations for the other columns that these moves disturb."""
    m, count = S.shape
    rows, columns = _chosen(sp.csc_array(S[:, among]), room, width)
    columns = among[columns]
    if not len(rows):
        return none(m)
    row_of = np.full(count, -1)
    row_of[columns] = rows
    singles, blocks = _blocks(S, rows, columns)
    columns = np.concatenate([singles, *blocks])
    rows = row_of[columns]
    M = sp.csr_array(S[:, columns][rows].T)
    try:
        inverse = _inverse(M, [len(block) for block in blocks])
    except np.linalg.LinAlgError:
        return none(m)
    radius, Z, size = np.zeros(m), abs(inverse), abs(M)
    off = abs(inverse @ M - sp.eye_array(len(rows), format="csr"))  # |ZM − I|, the error of the inverse
    group = np.repeat(np.arange(len(singles) + len(blocks)), [1] * len(singles) + [len(block) for block in blocks])
    for _ in range(ROUNDS + len(rows)):
        rho = radius[rows]
        rounding = ROUNDING * (len(rows) + 20) * (Z @ (size @ rho) + rho)
        new = (Z @ left[columns] + off @ rho + rounding) * (1 + SPARE)
        largest = np.zeros(len(singles) + len(blocks))
        np.maximum.at(largest, group, new)
        new = np.maximum(new, SLIGHT * largest[group])  # the checker needs a positive radius for all rows of a block
        settled = bool(np.all(new <= radius[rows]))
        radius[rows] = np.maximum(new, radius[rows])
        if settled or not np.all(radius[rows] <= room[rows]):
            break
    busy = np.flatnonzero(radius[rows] > 0)
    kept = columns[busy], sp.csr_array(inverse[busy][:, busy])
    load = abs(S).T @ radius + left
    return Moves(rows[busy], *kept, radius, *_combinations(W, columns[busy], load, room))


def _inverse(M: sp.csr_array, blocks: list[int]) -> sp.csr_array:
    """The inverse of M: single diagonal entries first, then blocks."""
    alone, at = M.shape[0] - sum(blocks), M.shape[0] - sum(blocks)
    parts = [sp.diags_array(1 / M.diagonal()[:alone])] if alone else []
    for size in blocks:
        parts.append(np.linalg.inv(M[at : at + size, at : at + size].toarray()))
        at += size
    return sp.csr_array(sp.block_diag(parts))


def _combinations(W: sp.csc_array, moved: Ints, load: Array, room: Array) -> tuple[Ints, sp.csc_array]:
    """Columns with a residual that no row was chosen for, and the weights with which other columns add up to them.

    Weights are those of an equal column, or of a least-squares solution, rounded to units where they are near.
    """
    rest = load > 0
    rest[moved] = False
    others, basis, counted = np.flatnonzero(rest), np.flatnonzero(~rest), np.append(room > 0, True)
    if not 0 < len(others) <= MANY:
        return np.arange(0), sp.csc_array((len(load), 0))
    weights, A = np.zeros((len(load), len(others))), sp.csr_array(W[:, basis])[counted]
    equal = {_key(W, j): j for j in basis[np.isin(np.diff(W.indptr)[basis], np.diff(W.indptr)[others])].tolist()}
    known = np.array([_key(W, j) in equal for j in others.tolist()])
    for k in np.flatnonzero(known).tolist():
        weights[equal[_key(W, others[k])], k] = 1.0
    new = np.flatnonzero(~known)
    if len(new):
        found = least_squares(sp.csr_array(A), W[:, others[new]].toarray()[counted])
        weights[np.ix_(basis, new)] = rounded(found)
    return others, sp.csc_array(weights)


def rounded(weights: Array) -> Array:
    """Weights of combinations, with those near a multiple of a unit rounded to it."""
    for unit in UNITS:
        near = np.round(weights / unit) * unit
        weights = np.where(np.abs(weights - near) < NEAR * unit, near, weights)
    return weights


def least_squares(A: sp.sparray, targets: Array) -> Array:
    """X with the least ‖AX − targets‖, a column for each target."""
    if A.shape[0] * A.shape[1] <= DENSE:
        return np.asarray(lstsq(A.toarray(), targets, check_finite=False)[0])
    found = [lsmr(A, column, atol=PRECISE, btol=PRECISE, maxiter=ITERATIONS)[0] for column in targets.T]
    return np.column_stack(found)


def _key(W: sp.csc_array, j: int) -> tuple[bytes, bytes]:
    part = slice(W.indptr[j], W.indptr[j + 1])
    return W.indices[part].tobytes(), W.data[part].tobytes()


def on_grid(z: Array) -> Array:
    """z rounded to multiples of 2⁻⁴⁶ of its largest entry."""
    return np.asarray(np.round(z / _unit(z)) * _unit(z))


def _unit(z: Array) -> float:
    """2⁻⁴⁶ of the largest entry, rounded to a power of two; all doubles are multiples of the least one."""
    exponent = np.frexp(float(np.abs(z).max(initial=0.0)) or 1.0)[1] - 46
    return max(float(2.0**exponent), float(np.finfo(float).smallest_subnormal))


def corrected(z: Array, left: Array, moves: Moves) -> tuple[Array, bool]:
    """z with the residuals of columns removed along their rows, and whether all residuals were 0 before."""
    z, unit = z.copy(), _unit(z)
    found = z[moves.rows] - moves.inverse @ left[moves.columns]
    in_block = np.diff(moves.inverse.indptr) > 1
    z[moves.rows] = np.where(in_block, np.round(found / unit) * unit, found)
    return z, not left.any()


def _unit_of(S: sp.csc_array, room: Array) -> float:
    """The largest room of a row that some column meets; multipliers of constant rows are in other units."""
    met = np.zeros(S.shape[0], dtype=bool)
    met[S.indices] = True
    return float(room[met].max(initial=0.0)) or 1.0


def _chosen(S: sp.csc_array, room: Array, width: int) -> tuple[Ints, Ints]:
    """A row with room for each column, each row at most once.

    Columns with up to `width` entries take the row with most room; those for wider ones come from a pivoted QR.
    """
    degree = np.diff(S.indptr)
    wide = np.flatnonzero(degree > width)
    narrow = np.flatnonzero((degree <= width) & (degree > 0))
    rows = _greedy(S, room, narrow)
    kept = rows >= 0
    narrow, rows = narrow[kept], rows[kept]
    if not len(wide) or len(wide) > MOST:
        return rows, narrow
    untaken = room > 0
    untaken[rows] = False
    free = np.flatnonzero(untaken)
    if len(free) < len(wide):
        return rows, narrow
    left_over, able = _schur(S, room, rows, narrow, wide, free)
    weighted = left_over * able[:, None]
    size = np.abs(weighted).max(axis=0)
    if not np.all(size > 0):
        keep = size > 0  # no free row moves the other columns
        wide, weighted, size = wide[keep], weighted[:, keep], size[keep]
    if not len(wide):
        return rows, narrow
    _, R, order = qr((weighted / size).T, mode="economic", pivoting=True)
    enough = int(np.sum(np.abs(np.diag(R)) > 1e-12 * abs(R[0, 0])))
    if enough < len(wide):
        # Some wide columns depend on others: only a maximal independent set gets rows.
        _, _, which = qr(weighted / size, mode="economic", pivoting=True)
        wide = np.sort(wide[which[:enough]])
    return np.concatenate([rows, free[order[:enough]]]), np.concatenate([narrow, wide])


def _greedy(S: sp.csc_array, room: Array, columns: Ints) -> Ints:
    """For each of these columns the free row of largest |entry|·room, −1 where there is none.

    The room of a row counts for all columns that it meets together: it may be the only one of some of them. Where
    several columns choose one row, the column with the fewest other choices gets it. If a column remains without a row,
    all of them are matched at once.
    """
    part = sp.csc_array(S[:, columns])
    meets = np.bincount(part.indices, minlength=len(room))
    score = np.abs(part.data) * room[part.indices] / meets[part.indices]
    owner = np.repeat(np.arange(len(columns)), np.diff(part.indptr))
    rows, taken = np.full(len(columns), -1), np.zeros(len(room), dtype=bool)
    for _ in range(TURNS):
        able = (score > 0) & ~taken[part.indices] & (rows[owner] < 0)
        if not able.any():
            break
        entries = np.flatnonzero(able)
        choices = np.bincount(owner[entries], minlength=len(columns))
        order = entries[np.lexsort((-score[entries], owner[entries]))]
        best = order[np.append(True, np.diff(owner[order]) > 0)]
        best = best[np.lexsort((choices[owner[best]], part.indices[best]))]
        first = best[np.append(True, np.diff(part.indices[best]) > 0)]
        rows[owner[first]] = part.indices[first]
        taken[part.indices[first]] = True
    stuck = (rows < 0) & (np.bincount(owner[score > 0], minlength=len(columns)) > 0)
    return _matched(part, score, owner, len(room)) if stuck.any() and len(columns) <= FEW else rows


def _matched(part: sp.csc_array, score: Array, owner: Ints, m: int) -> Ints:
    """The matching of columns to rows with the largest product of scores; columns without one get a dummy row: −1."""
    count = part.shape[1]
    good = score > 0
    top = float(score.max(initial=1.0))
    cost = 1.0 + np.log(top) - np.log(score[good])
    dummy = 1.0 + float(cost.max(initial=0.0)) * (count + 1)
    rows = np.concatenate([owner[good], np.arange(count)])
    columns = np.concatenate([part.indices[good], m + np.arange(count)])
    graph = sp.csr_array((np.concatenate([cost, np.full(count, dummy)]), (rows, columns)), shape=(count, m + count))
    matched, to = min_weight_full_bipartite_matching(graph)
    found = np.full(count, -1)
    found[matched] = np.where(to < m, to, -1)
    return found


def _schur(  # noqa: PLR0917
    S: sp.csc_array, room: Array, rows: Ints, narrow: Ints, wide: Ints, free: Ints
) -> tuple[Array, Array]:
    """The Schur complement of the narrow columns in the wide ones, and how far each free row can be moved.

    Row i of the complement is the change of the wide columns when free row i moves by 1, and pivot rows move so that
    narrow columns keep their values. The limit is the room of all rows that move.
    """
    whole = sp.csr_array(S)
    here = whole[free]
    if not len(narrow):
        return here[:, wide].toarray(), room[free]
    # T = (here)·(inner)⁻¹ by a Neumann series: inner is the identity plus a part that is nilpotent as a rule.
    pivot_rows = whole[rows]
    inner, T = pivot_rows[:, narrow], here[:, narrow]
    pivot = inner.diagonal()
    T.data /= pivot[T.indices]
    inner.data /= pivot[inner.indices]
    inner.data[inner.indices == np.repeat(np.arange(len(rows)), np.diff(inner.indptr))] = 0.0
    inner.eliminate_zeros()
    step = T
    for _ in range(STEPS if inner.nnz else 0):
        step = step @ inner
        if not step.nnz:
            break
        step.data *= -1.0
        T = T + step
    able = room[free].copy()
    with np.errstate(divide="ignore"):
        limit = room[rows[T.indices]] / np.abs(T.data)
    np.minimum.at(able, np.repeat(np.arange(len(free)), np.diff(T.indptr)), limit)
    return here[:, wide].toarray() - T @ pivot_rows[:, wide].toarray(), able


def _blocks(S: sp.csc_array, rows: Ints, columns: Ints) -> tuple[Ints, list[Ints]]:
    """Columns on no cycle of columns and pivot rows, and the others as strongly connected blocks."""
    part = sp.csr_array(S[:, columns])[rows]
    _, labels = connected_components(part, directed=True, connection="strong")
    counts = np.bincount(labels)
    alone = counts[labels] == 1
    groups = [columns[labels == label] for label in np.flatnonzero(counts > 1)]
    return columns[alone], groups
