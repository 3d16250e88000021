"""Systems of several outputs of one B by conjugate gradients, preconditioned by R + D + Bᵀ diag(tr Kᵢ/K) B."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernelopt.solvers.row_reduction import Products, Reduced, Solver, factored, joined, squared, times_penalty
from kernelopt.support.types import Array

# Conjugate gradients end where the residual, measured by the preconditioner, is that share of the first, or after
# MOST steps, which take up to half as long as a Cholesky factor. A smaller share takes more than it saves Newton
# steps.
ENOUGH, MOST = 1e-2, 40
# Steps of one system after which the next one has a preconditioner of its own, which takes as long as 10 to 20 steps.
FRESH = 20


def by_gradients(
    products: Products, inner: Reduced, R: Array, columns: Array, T: Array
) -> Callable[[Array], Array | None]:
    """Conjugate gradients for v and the y that are left; the local ones follow. None after too many steps."""
    problem = products.problem
    count, B, p = len(problem.blocks), problem.blocks[0], problem.p
    if products.conditioner is None:
        mean = np.maximum(inner.K.diagonal().reshape(count, -1).mean(axis=0), 0.0)
        small = squared(B, mean)
        small[np.diag_indices_from(small)] += float(np.trace(R)) / count
        products.conditioner = factored(small)
    one = products.conditioner

    def of_v(r: Array) -> Array:
        side_by_side = np.hstack(list(r.reshape(count, B.shape[1], -1)))
        return one(side_by_side).reshape(B.shape[1], count, -1).swapaxes(0, 1).reshape(r.shape)

    border = problem.lifted(inner.border)
    moved = of_v(border) if len(inner.rest) else border
    floor = ENOUGH * np.diag(inner.corner) if len(inner.rest) else np.zeros(0)
    S = inner.corner - border.T @ moved
    of_rest = _raised(S, floor)
    # The columns of YTYᵀ that belong to local entries of y are rare: they are left to the later Newton steps.
    keep = np.concatenate([np.arange(p), p + inner.rest])
    Y = columns[keep]

    def product(x: Array) -> Array:
        v, rest = x[:p], x[p:]
        d = problem.predictions(v)
        top = times_penalty(problem, R, v) + problem.lifted(inner.K @ d + inner.border @ rest)
        full = np.concatenate([top, inner.border.T @ d + inner.corner @ rest])
        return full + Y @ (T @ (Y.T @ x)) if Y.shape[1] else full

    def conditioned(r: Array) -> Array:
        v = of_v(r[:p])
        rest = of_rest @ (r[p:] - border.T @ v)
        return np.concatenate([v - moved @ rest, rest])

    def solve(r: Array) -> Array | None:
        bottom = r[p:]
        local = bottom[inner.local] / inner.diagonal
        top = r[:p] - problem.lifted(inner.of_d @ local) if len(inner.local) else r[:p]
        right = np.concatenate([top, bottom[inner.rest] - inner.of_rest @ local])
        x, steps = _conjugate(product, conditioned, right, p)
        if steps > FRESH:
            products.conditioner = None
        return None if x is None else joined(problem, inner, x[:p], x[p:], local)

    return solve


def _raised(S: Array, floor: Array) -> Array:
    """The inverse of S with eigenvalues, in units of the floor, of at least 1."""
    if not len(S):
        return S
    unit = np.sqrt(np.maximum(floor, 1e-300))
    values, V = np.linalg.eigh(0.5 * (S + S.T) / np.outer(unit, unit))
    inner = (V / np.maximum(values, 1.0)) @ V.T
    return np.asarray(inner / np.outer(unit, unit))


def _conjugate(product: Solver, conditioned: Solver, r: Array, p: int) -> tuple[Array | None, int]:
    """Preconditioned conjugate gradients for a positive definite product, with y from p on, and their steps; None after
    MOST of them.

    The residual of y counts by itself, too: what a gradient in y costs a bound is of first order.
    """
    x, left = np.zeros_like(r), r
    z = conditioned(left)
    direction, size = z, float(left @ z)
    first, of_y = size, float(np.linalg.norm(r[p:]))
    for step in range(MOST):
        if size <= ENOUGH**2 * first and np.linalg.norm(left[p:]) <= ENOUGH * of_y:
            return x, step
        moved = product(direction)
        bent = float(direction @ moved)
        if not bent > 0:
            return None, MOST
        x = x + (size / bent) * direction
        left = left - (size / bent) * moved
        z = conditioned(left)
        size, before = float(left @ z), size
        direction = z + (size / before) * direction
    return None, MOST
