"""Moving a dual point to linear equations inside of its domain: one correction for all kinds of dual points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelopt.support import clock
from kernelopt.support.long_rows import are_long, solution
from kernelopt.support.types import Array

ROUNDS = 8  # corrections: the first moves most, the others make up for the projections onto the domain
EXACT = 1e-15  # relative to the sizes of its terms: a residual up to this, 4.5 eps, is the rounding of their sum
# Relative to the largest singular value: singular values up to this, 45 eps, count as 0, since columns may depend on
# each other. The residual stays in their directions.
SINGULAR = 1e-14
# Relative to the unit diagonal of scaled sparse normal equations, which may be singular. A larger ridge slows down the
# corrections, a smaller one is lost in rounding.
RIDGE = 1e-12
LARGE = 1e6  # entries of C up to which a first correction is made when the time is over, too


@np.errstate(over="ignore", invalid="ignore")  # dual points may be of any size; a step that is not finite is not taken
def corrected(
    columns: Any, target: Array, z: Array, project: Callable[[Array], Array], weights: Callable[[Array], Array]
) -> tuple[Array, float]:
    """z in the domain with Cᵀz = target, as nearly as it gets in the time, and the largest entry of the residual.

    A residual is relative to |target| + (largest entry of its column)·(largest entry of z).

    z := project(z − WC(CᵀWC)⁻¹(Cᵀz − target)) with W = diag(weights(z)): entries at the boundary of their domain hardly
    move, so that the projection undoes little. C is an array with few columns, or sparse.
    """
    z = project(z)
    sizes = _largest(columns)
    best, least = z, np.inf
    for number in range(ROUNDS):
        residual = columns.T @ z - target
        terms = np.abs(target) + sizes * float(np.abs(z).max(initial=0.0))
        worst = float((np.abs(residual) / np.where(terms > 0, terms, 1.0)).max(initial=0.0))
        if worst < least:
            best, least = z, worst
        if worst <= EXACT or (clock.seconds_left() <= 0 and (number or columns.size > LARGE)):
            break
        step = _step(columns, weights(z), residual)
        if not np.isfinite(step).all():
            break
        z = project(z - step)
    return best, least


def room(z: Array, low: Array, high: Array) -> Array:
    """Weights for entries in intervals: squared distances from the nearer end, at most that of the largest |z|."""
    unit = float(np.abs(z).max(initial=0.0)) or 1.0
    return np.asarray(np.minimum(np.minimum(z - low, high - z), unit) ** 2)


def _largest(columns: Any) -> Array:
    """The largest entry of each column."""
    if not columns.size:
        return np.zeros(columns.shape[1])
    if not sp.issparse(columns):
        return np.asarray(np.abs(columns).max(axis=0))
    by_columns, found = sp.csc_array(columns), np.zeros(columns.shape[1])
    filled = np.flatnonzero(np.diff(by_columns.indptr))
    if len(filled):
        found[filled] = np.maximum.reduceat(np.abs(by_columns.data), by_columns.indptr[filled])
    return found


def _step(columns: Any, weights: Array, residual: Array) -> Array:
    """WC(CᵀWC)⁻¹r; not finite where the system can't be solved."""
    if sp.issparse(columns):
        return np.asarray(weights * (columns @ _sparse_solution(sp.csr_array(columns), weights, residual)))
    weighted = weights[:, None] * columns
    normal = columns.T @ weighted
    if not np.isfinite(normal).all():
        return np.full(len(weights), np.nan)
    if len(normal) == 1:  # an intercept; lstsq takes longer than all the rest here
        return np.asarray(weighted[:, 0] * (residual[0] / normal[0, 0] if normal[0, 0] else 0.0))
    return np.asarray(weighted @ np.linalg.lstsq(normal, residual, rcond=SINGULAR)[0])


def _sparse_solution(columns: sp.csr_array, weights: Array, residual: Array) -> Array:
    """The solution of normal equations with a small ridge; nan where they can't be solved."""
    long = are_long(columns) & (weights > 0)
    normal = columns.T @ (np.where(long, 0.0, weights)[:, None] * columns)
    try:
        return solution(normal, columns[long], weights[long], residual, RIDGE)
    except np.linalg.LinAlgError:
        return np.full(len(residual), np.nan)
