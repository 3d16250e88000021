"""Costs of free columns that cancel exactly, as those of the stated problem do.

A common intercept of all classes moves no row of Crammer and Singer's loss: the columns of the maxima and of the
intercepts depend on each other. Their costs cancel too, unless sums were rounded: in 0.3·Σ the cost of an intercept is
off by 1e-17, and the rounded problem is unbounded. The difference then becomes a second part of one column's cost,
which stands in a column and a row of its own, x′ = x.
"""

from __future__ import annotations

from dataclasses import replace
from math import fsum, inf

import numpy as np
import scipy.sparse as sp

from kernelopt.certificate import pivots
from kernelopt.certificate.checker import Free
from kernelopt.pieces.form import Pieces
from kernelopt.support.arithmetic import checked_product, gamma
from kernelopt.support.types import Array

# Widest columns that are tried as combinations of the others, such as intercepts; each takes a least-squares solution.
MANY = 20


@np.errstate(all="ignore")  # weights that are not finite are no combination
def with_exact_costs(pieces: Pieces, free: Free) -> tuple[Pieces, Array] | None:
    """Pieces in which costs of free columns cancel wherever they do up to rounding, and the multipliers of their
    further rows; None where nothing changes.

    Columns that add up to 0 exactly, Σ wⱼAⱼ = 0 over all rows, have costs with |Σ wⱼcⱼ| ≤ γₙ₊₈Σ|wⱼcⱼ|, n the number of
    them: a cost is a sum of fewer than n products that were rounded.
    """
    m, count = len(pieces.s0), len(free.owners)
    A = sp.csc_array(free.matrix(m, free.values)[:-1])
    if not _may_depend(A):
        return None
    own = np.flatnonzero(free.owners < 0)
    widest = own[np.argsort(-np.diff(A.indptr)[own], kind="stable")[:MANY]]
    basis, moved, by = np.ones(count, dtype=bool), list[int](), list[float]()
    basis[widest] = False  # they join one by one: weights are unique where the basis is independent
    for j in widest[np.diff(A.indptr)[widest] > 0].tolist():
        weights = np.zeros(count)
        weights[basis] = pivots.rounded(pivots.least_squares(A[:, basis], A[:, [j]].toarray()))[:, 0]
        weights[j] = -1.0
        difference, size = _left(free, weights, m)  # Σ wₖcₖ − cⱼ
        if not np.isfinite(difference):
            basis[j] = True
        elif 0 < abs(difference) <= gamma(np.count_nonzero(weights) + 8) * size:
            moved.append(int(free.columns[j]))
            by.append(difference)
    return (_extended(pieces, np.array(moved), np.array(by)), np.array(by)) if moved else None


def _may_depend(A: sp.csc_array) -> bool:
    """Whether columns may depend on each other: not where x is the shortest solution of A·solution = Ax, x random."""
    if not A.nnz:
        return False
    x = np.random.default_rng(0).normal(size=(A.shape[1], 1))
    return float(np.abs(pivots.least_squares(A, A @ x) - x).max()) > pivots.NEAR


def _left(free: Free, weights: Array, m: int) -> tuple[float, float]:
    """Σ wⱼcⱼ, which is a double, and the sum of the sizes of its terms; ∞ where Σ wⱼAⱼ = 0 does not hold exactly."""
    weight = np.repeat(weights, np.diff(free.starts))
    rows, values, weight = free.rows[weight != 0], free.values[weight != 0], weight[weight != 0]
    hi, lo, inexact = checked_product(values, weight)
    if inexact.any():
        return inf, inf
    both, place = np.concatenate([hi, lo]), np.concatenate([rows, rows])
    order = np.argsort(place, kind="stable")
    both, place = both[order], place[order]
    starts = np.flatnonzero(np.diff(place, prepend=-1))
    # Most rows have two entries; sums of ±1 are exact.
    rough, sizes = np.add.reduceat(both, starts), np.add.reduceat(np.abs(both), starts)
    of_rows = place[starts] < m
    if not np.all((np.abs(rough) <= gamma(np.diff(np.append(starts, len(both)))) * sizes)[of_rows]):
        return inf, inf
    parts = np.split(both, starts[1:])
    if any(fsum(part) for part, inside in zip(parts, of_rows, strict=True) if inside):
        return inf, inf
    costs = [] if of_rows.all() else parts[-1].tolist()
    found = fsum(costs)
    return (found if not fsum([*costs, -found]) else inf), float(np.abs(costs).sum())


def _extended(pieces: Pieces, columns: Array, by: Array) -> Pieces:
    """Costs c + by of these columns: a column x′ of cost `by` each, and a row x − x′ = 0."""
    (m, n), count = pieces.S.shape, len(by)
    more = sp.csr_array(
        (np.repeat([1.0, -1.0], count), (np.tile(np.arange(count), 2), np.append(columns, n + np.arange(count)))),
        shape=(count, n + count),
    )
    S = sp.csr_array(sp.vstack([sp.hstack([pieces.S, sp.csr_array((m, count))]), more]))
    return replace(
        pieces, n=n + count, c=np.append(pieces.c, by), S=S, s0=np.append(pieces.s0, np.zeros(count)),
        equal=np.append(pieces.equal, m + np.arange(count)),
    )  # fmt: skip
