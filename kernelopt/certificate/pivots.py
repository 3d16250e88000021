"""Rows along which a dual point can be moved so that all free columns vanish exactly, and how far.

With residuals r = c_J + A_Jᵀz, some Δ on a square part of A_J, one pivot row a column, solves A_Jᵀ(z + Δ) = −c_J. The
rows that are chosen have room in the dual cone. Nothing is proven here: the checker proves that such a Δ exists.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lstsq, qr
from scipy.sparse.csgraph import connected_components, min_weight_full_bipartite_matching

from kernelopt.support.types import Array, Ints

WIDE = 12  # entries of a column from which its row is chosen by what others leave
MOST = 400  # such columns
ROUNDS = 60  # in which radii grow until none is too small; without an end, there is none
SMALL = 1e-25  # multipliers below this, of the largest, have no room
SLIGHT = 1e-6  # how far entries in curved cones move, relatively
TURNS = 12  # in which columns choose rows
STEPS = 6  # terms of a Neumann series, which ends where columns lead back to none
FEW = 1000  # columns that are matched to rows all at once where a greedy choice fails
SPARE = 1e-4  # by how much a radius is larger than it must be
ROUNDING = 2e-16  # of one operation, a little more than 2⁻⁵³ = 1.1e-16
DEPENDENT = 1e-11  # of a column: where less of it is outside of the others' span, it depends on them
MANY = 20  # columns that may be combinations of others
DENSE = 4_000_000  # entries of a matrix in which such combinations are looked for
NEAR = 1e-6  # of an integer, which a weight is then taken for

Cones = list[tuple[str, slice, object]]


class Moves(NamedTuple):
    """Rows and columns, Z ≈ M⁻¹ for M the transposed part of S in these, the radius of each row, and other columns that
    are combinations of them."""

    rows: Ints
    columns: Ints
    inverse: sp.csr_array
    radius: Array
    others: Ints
    weights: sp.csc_array


def none(m: int) -> Moves:
    nothing = np.arange(0)
    return Moves(nothing, nothing, sp.csr_array((0, 0)), np.zeros(m), nothing, sp.csc_array((0, 0)))


@np.errstate(all="ignore")  # a radius that is no number is refused
def moves(W: sp.csc_array, left: Array, z: Array, cones: Cones) -> Moves:
    """Moves and radii for columns W, their cost as a last row, with residuals |left|."""
    S = sp.csc_array(W[:-1])
    if not left.any() or not np.isfinite(W.data).all():  # products that underflow are no numbers
        return none(len(z))
    room = room_of(z, cones, _unit_of(S, z))
    found = _moves(W, S, left, room, np.arange(S.shape[1]), WIDE)
    if not _is_hopeless(S, left, room, found) or S.shape[1] > FEW:
        return found
    # Rows that were chosen one by one may be dependent: then all of them are chosen together.
    for width in (WIDE, 0):
        again = _moves(W, S, left, room, _independent(S, room), width)
        if not _is_hopeless(S, left, room, again):
            return again
    return found


def _is_hopeless(S: sp.csc_array, left: Array, room: Array, found: Moves) -> bool:
    unmoved = left + abs(S).T @ found.radius > 0
    unmoved[np.concatenate([found.columns, found.others])] = False
    return bool(unmoved.any()) or not np.all(found.radius <= room)


def _independent(S: sp.csc_array, room: Array) -> Ints:
    """Columns, in rows with room, that no others make up."""
    dense = S[room > 0].toarray()
    size = np.linalg.norm(dense, axis=0)
    R, order = qr(dense / np.where(size > 0, size, 1.0), mode="r", pivoting=True)
    rank = int(np.sum(np.abs(np.diag(R)) > DEPENDENT * abs(R[0, 0]))) if R.size else 0
    return np.sort(order[:rank])


def _moves(  # noqa: PLR0917
    W: sp.csc_array, S: sp.csc_array, left: Array, room: Array, among: Ints, width: int
) -> Moves:
    """Moves of some of the columns, and what they make of the others."""
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
    off = abs(inverse @ M - sp.eye_array(len(rows), format="csr"))  # what moving a row leaves in other columns
    group = np.repeat(np.arange(len(singles) + len(blocks)), [1] * len(singles) + [len(block) for block in blocks])
    for _ in range(ROUNDS):
        rho = radius[rows]
        rounding = ROUNDING * (len(rows) + 20) * (Z @ (size @ rho) + rho)
        new = (Z @ left[columns] + off @ rho + rounding) * (1 + SPARE)
        largest = np.zeros(len(singles) + len(blocks))
        np.maximum.at(largest, group, new)
        new = np.maximum(new, SLIGHT * largest[group])  # all rows of a block move
        settled = bool(np.all(new <= radius[rows]))
        radius[rows] = np.maximum(new, radius[rows])
        if settled or not np.isfinite(radius).all():
            break
    busy = np.flatnonzero(radius[rows] > 0)
    kept = columns[busy], sp.csr_array(inverse[busy][:, busy])
    load = abs(S).T @ radius + left
    return Moves(rows[busy], *kept, radius, *_combinations(W, columns[busy], load, room))


def _inverse(M: sp.csr_array, blocks: list[int]) -> sp.csr_array:
    """The inverses of single entries, and of blocks at the end."""
    alone, at = M.shape[0] - sum(blocks), M.shape[0] - sum(blocks)
    parts = [sp.diags_array(1 / M.diagonal()[:alone])] if alone else []
    for size in blocks:
        parts.append(np.linalg.inv(M[at : at + size, at : at + size].toarray()))
        at += size
    return sp.csr_array(sp.block_diag(parts))


def _combinations(W: sp.csc_array, moved: Ints, load: Array, room: Array) -> tuple[Ints, sp.csc_array]:
    """Columns with a load that nothing moves, and the weights of others that they are sums of: entries of a least
    squares solution, rounded."""
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
    if len(new) and A.shape[0] * A.shape[1] <= DENSE:
        found = lstsq(A.toarray(), W[:, others[new]].toarray()[counted], check_finite=False)[0]
        near = np.round(found)
        weights[np.ix_(basis, new)] = np.where(np.abs(found - near) < NEAR, near, found)
    return others, sp.csc_array(weights)


def _key(W: sp.csc_array, j: int) -> tuple[bytes, bytes]:
    part = slice(W.indptr[j], W.indptr[j + 1])
    return W.indices[part].tobytes(), W.data[part].tobytes()


def on_grid(z: Array) -> Array:
    """z rounded to multiples of 2⁻⁴⁶ of its largest entry."""
    return np.asarray(np.round(z / _unit(z)) * _unit(z))


def _unit(z: Array) -> float:
    return float(2.0 ** (np.frexp(float(np.abs(z).max(initial=0.0)) or 1.0)[1] - 46))


def corrected(z: Array, left: Array, moves: Moves) -> tuple[Array, bool]:
    """z with the residuals of columns taken out along their rows, and whether none was left."""
    z, unit = z.copy(), _unit(z)
    found = z[moves.rows] - moves.inverse @ left[moves.columns]
    in_block = np.diff(moves.inverse.indptr) > 1
    z[moves.rows] = np.where(in_block, np.round(found / unit) * unit, found)
    return z, not left.any()


def _unit_of(S: sp.csc_array, z: Array) -> float:
    """The largest multiplier of a row that some column meets: those of constants have the objective's unit."""
    met = np.zeros(len(z), dtype=bool)
    met[S.indices] = True
    return float(np.abs(z[met]).max(initial=0.0)) or 1.0


def room_of(z: Array, cones: Cones, unit: float) -> Array:
    """How far each entry of z may move inside of the dual cone, about."""
    room = np.zeros(len(z))
    for kind, rows, _ in cones:
        part = z[rows]
        if kind == "zero":
            room[rows] = unit
        elif kind == "nonneg":
            room[rows] = np.where(part > SMALL * unit, part, 0.0)
        elif kind == "soc":
            room[rows] = max(float(part[0] - np.linalg.norm(part[1:])), 0.0) / 2
        else:
            room[rows] = SLIGHT * np.abs(part)
    return room


def _chosen(S: sp.csc_array, room: Array, width: int) -> tuple[Ints, Ints]:
    """A row with room for each column, no row twice: for columns up to a width the one with most, by QR for others."""
    degree = np.diff(S.indptr)
    wide = np.flatnonzero(degree > width)
    narrow = np.flatnonzero((degree <= width) & (degree > 0))
    rows = _greedy(S, room, narrow)
    kept = rows >= 0
    narrow, rows = narrow[kept], rows[kept]
    if not len(wide) or len(wide) > MOST:
        return rows, narrow
    free = np.setdiff1d(np.flatnonzero(room > 0), rows)
    if len(free) < len(wide):
        return rows, narrow
    left_over, able = _schur(S, room, rows, narrow, wide, free)
    weighted = left_over * able[:, None]
    size = np.abs(weighted).max(axis=0)
    if not np.all(size > 0):
        keep = size > 0  # what nothing moves
        wide, weighted, size = wide[keep], weighted[:, keep], size[keep]
    if not len(wide):
        return rows, narrow
    _, R, order = qr((weighted / size).T, mode="economic", pivoting=True)
    enough = int(np.sum(np.abs(np.diag(R)) > 1e-12 * abs(R[0, 0])))
    if enough < len(wide):
        # Columns that depend on others: a maximal set of independent ones.
        _, _, which = qr(weighted / size, mode="economic", pivoting=True)
        wide = np.sort(wide[which[:enough]])
    return np.concatenate([rows, free[order[:enough]]]), np.concatenate([narrow, wide])


def _greedy(S: sp.csc_array, room: Array, columns: Ints) -> Ints:
    """For each of these columns the row of largest |entry|·room that nobody has taken, −1 where there is none.

    Of several columns that want one row the one with fewest others gets it. What is left over is matched.
    """
    part = sp.csc_array(S[:, columns])
    score = np.abs(part.data) * room[part.indices]
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
    """What moving each free row by 1 does to wide columns when narrow ones are held by their pivots, and how far it can
    be moved by the room of all rows that move."""
    whole = sp.csr_array(S)
    here = whole[free]
    if not len(narrow):
        return here[:, wide].toarray(), room[free]
    # T = (here)·(inner)⁻¹, where the rows of narrow columns lead back to no column, after a few steps.
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
    """Columns whose pivot rows don't lead back to them, and the others in strongly connected blocks."""
    part = sp.csr_array(S[:, columns])[rows]
    _, labels = connected_components(part, directed=True, connection="strong")
    counts = np.bincount(labels)
    alone = counts[labels] == 1
    groups = [columns[labels == label] for label in np.flatnonzero(counts > 1)]
    return columns[alone], groups
