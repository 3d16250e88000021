"""Costs of free columns that cancel exactly, as those of the stated problem do.

A common intercept of all classes moves no row of Crammer and Singer's loss: the columns of the maxima and of the
intercepts depend on each other. Their costs cancel too, unless cvxpy rounds the sums: in 0.3·Σ the cost of an intercept
is off by 1e-17, and the rounded problem is unbounded. The difference then becomes a second part of one column's cost,
which stands in a column and a row of its own, x′ = x.
"""

from __future__ import annotations

from math import fsum, inf

import numpy as np
import scipy.sparse as sp

from kernelopt.certificate import checker, pivots
from kernelopt.certificate.claim import Array, Link, Program, still
from kernelopt.support.arithmetic import checked_product, gamma

# Widest columns that are tried as combinations of the others, such as intercepts; each takes a least-squares solution.
MANY = 20


@np.errstate(all="ignore")  # weights that are not finite are no combination
def with_exact_costs(program: Program, links: list[Link]) -> Program | None:
    """The program in which costs of free columns cancel wherever they do up to rounding; None where nothing changes.

    Columns that add up to 0 exactly, Σ wⱼAⱼ = 0 over all rows, have costs with |Σ wⱼcⱼ| ≤ γₙ₊₈Σ|wⱼcⱼ|, n the number of
    them: a cost is a sum of fewer than n products that cvxpy has rounded.
    """
    free = checker.free_columns(program, links, still(np.zeros(len(program.b)), np.zeros_like(program.c)))
    columns = free.columns[free.owners < 0]
    A, costs = sp.csc_array(program.A[:, columns]), program.c[columns]
    if not _may_depend(A):
        return None
    widest = np.argsort(-np.diff(A.indptr), kind="stable")[:MANY]
    basis, moved, by = np.ones(len(columns), dtype=bool), [], []
    basis[widest] = False  # they join one by one: weights are unique where the basis is independent
    for j in widest[np.diff(A.indptr)[widest] > 0].tolist():
        weights = np.zeros(len(columns))
        found = pivots.least_squares(A[:, basis], A[:, [j]].toarray())
        weights[basis] = pivots.rounded(found)[:, 0]
        weights[j] = -1.0
        if not _vanishes(A, weights):
            basis[j] = True
            continue
        difference, size = _sum(costs, weights)  # Σ wₖcₖ − cⱼ
        if 0 < abs(difference) <= gamma(np.count_nonzero(weights) + 8) * size:
            moved.append(columns[j])
            by.append(difference)
    return _extended(program, np.array(moved), np.array(by)) if moved else None


def _may_depend(A: sp.csc_array) -> bool:
    """Whether columns may depend on each other: not where x is the shortest solution of A·solution = Ax, x random."""
    if not A.nnz:
        return False
    x = np.random.default_rng(0).normal(size=(A.shape[1], 1))
    return float(np.abs(pivots.least_squares(A, A @ x) - x).max()) > pivots.NEAR


def _vanishes(A: sp.csc_array, weights: Array) -> bool:
    """Whether Σ wⱼAⱼ = 0 exactly."""
    terms = sp.csc_array(A[:, np.flatnonzero(weights)])
    hi, lo, inexact = checked_product(terms.data, np.repeat(weights[weights != 0], np.diff(terms.indptr)))
    if inexact.any():
        return False
    rows = np.concatenate([terms.indices, terms.indices])
    order = np.argsort(rows, kind="stable")
    values, starts = np.concatenate([hi, lo])[order], np.flatnonzero(np.diff(rows[order], prepend=-1))
    # Most rows have two entries; sums of ±1 are exact.
    rough, sizes = np.add.reduceat(values, starts), np.add.reduceat(np.abs(values), starts)
    if not np.all(np.abs(rough) <= gamma(np.diff(np.append(starts, len(values)))) * sizes):
        return False
    return not any(fsum(part) for part in np.split(values, starts[1:]))


def _sum(costs: Array, weights: Array) -> tuple[float, float]:
    """Σ wⱼcⱼ, ∞ where it is no double, and the sum of the sizes of its terms."""
    hi, lo, inexact = checked_product(costs, weights)
    terms = [*hi.tolist(), *lo.tolist()]
    found = fsum(terms)
    exact = not inexact.any() and not fsum([*terms, -found])
    return found if exact else inf, float(np.abs(hi).sum())


def _extended(program: Program, columns: Array, by: Array) -> Program:
    """The program with costs c + by of these columns: a column x′ of cost `by` each, and a row x − x′ = 0."""
    (m, n), count = program.A.shape, len(by)
    more = sp.csr_array(
        (np.repeat([1.0, -1.0], count), (np.tile(np.arange(count), 2), np.append(columns, n + np.arange(count)))),
        shape=(count, n + count),
    )
    A = sp.vstack([sp.hstack([program.A, sp.csc_array((m, count))]), more])
    return program._replace(
        P=np.append(program.P, np.zeros(count)), c=np.append(program.c, by), A=sp.csc_array(A),
        b=np.append(program.b, np.zeros(count)), cones=[*program.cones, ("zero", slice(m, m + count), None)],
    )  # fmt: skip
