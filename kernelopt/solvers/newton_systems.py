"""A sequence of Newton systems: conjugate gradients where an earlier factor is a preconditioner, else a new factor.

(R + CᵀWC)x = b takes N r² flops to set up, and 4 N r for each iteration of conjugate gradients. Weights W change little
from step to step, and columns of B after the first k contribute little beside R already for a moderate k. The Cholesky
factor of an earlier system, or of one for k columns, is therefore a good preconditioner M, with the diagonal of
R + CᵀWC for the other columns. Conjugate gradients may take at most half of the flops of the system itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from kernelopt.solvers.coupling import LinearMap
from kernelopt.solvers.structured import Structured
from kernelopt.solvers.watch import Watch
from kernelopt.support.types import Array, Ints

ACCURACY = 1e-2  # residual of a step, relative to ‖b‖: the gap, quadratic in it, can still fall by a factor of 1e-4
# Flops of conjugate gradients, relative to those of factoring the system: where they fail, the step costs 1.5 times as
# much as without them. More iterations would cost more then, fewer would succeed less often.
SHARE = 0.5
LEAST = 3  # iterations: if SHARE allows fewer, they are not tried, as a few rarely suffice


@dataclass(frozen=True, eq=False)
class Known:
    """The inverse of an earlier system in some of the unknowns: the first `widths` columns of each B, and y."""

    widths: tuple[int, ...]
    q: int
    solve: LinearMap


class Systems:
    """Solves the systems of one problem.

    known : the latest inverse, at first that of a coarser restriction or of an earlier problem
    """

    def __init__(self, problem: Structured, watch: Watch, known: Known | None = None) -> None:
        self.problem, self.watch = problem, watch
        self.known = known if known is None or _fits(known, problem) else None

    def solve(self, weights: Array, ridge: Array, rhs: Array) -> Array:
        """(R + ridge + CᵀWC)⁻¹rhs, exactly or to `ACCURACY`."""
        problem, watch = self.problem, self.watch
        active = int(np.count_nonzero(weights))
        watch.systems += 1
        if problem.is_small(active):
            watch.flops += problem.cost(active)
            return problem.system(weights, ridge)(rhs)
        found = None if self.known is None else self._iterated(self.known, weights, ridge, rhs, active)
        if found is None:
            watch.flops += problem.cost(active)
            self.known = Known(tuple(B.shape[1] for B in problem.blocks), problem.q, problem.system(weights, ridge))
            found = self.known.solve(rhs)
        return found

    def _iterated(self, known: Known, weights: Array, ridge: Array, rhs: Array, active: int) -> Array | None:
        """The solution by conjugate gradients; None where they do not converge within the allowed iterations."""
        problem = self.problem
        products = 2 * problem.product_cost
        most = int(SHARE * problem.cost(active) / products)
        if most < LEAST:
            return None
        diagonal = problem.penalty.copy()
        diagonal[problem.ends[-1] :] += ridge
        inner, iterations = _columns(problem, known.widths), [0]
        outside = np.ones(problem.size)
        if len(inner) < problem.size:
            outside = diagonal + problem.gram_diagonal(weights)

        curved = problem.curved(weights)

        def times(x: Array) -> Array:
            return diagonal * x + curved(x)

        def preconditioned(x: Array) -> Array:
            found = x / outside
            found[inner] = known.solve(x[inner])
            return found

        shape = (problem.size, problem.size)
        found, failed = cg(
            LinearOperator(shape, matvec=times, dtype=float), rhs, rtol=ACCURACY, maxiter=most,
            M=LinearOperator(shape, matvec=preconditioned, dtype=float),
            callback=lambda _: iterations.append(1),
        )  # fmt: skip
        self.watch.flops += products * sum(iterations)
        return None if failed or not np.isfinite(found).all() else np.asarray(found)


def _fits(known: Known, problem: Structured) -> bool:
    widths = [B.shape[1] for B in problem.blocks]
    same = len(known.widths) == len(widths) and known.q == problem.q
    return same and all(k <= width for k, width in zip(known.widths, widths, strict=True))


def _columns(problem: Structured, widths: tuple[int, ...]) -> Ints:
    """The indices in x of the first columns of each block, and of y."""
    starts = problem.ends[:-1]
    parts = [np.arange(start, start + width) for start, width in zip(starts, widths, strict=True)]
    return np.concatenate([*parts, np.arange(problem.ends[-1], problem.size)])
