"""Systems (K_MM + ρ)x = r for sets M of kinks that change little from one system to the next.

The Cholesky factor L of the first set is kept. Kinks A that joined M add a border X = L⁻¹K_MA, and

    [L 0; Xᵀ L_A] with L_A L_Aᵀ = K_AA + ρ − XᵀX

is the factor for both. Kinks D that left are held at 0 by a projection: with W an orthonormal basis of the range of
(its inverse)·I_D, the solution is that of the factor with 1 − WWᵀ between its two halves. For the next strength of a
penalty, K is the same up to a factor.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg as sl

from kernelopt.factorization import memory
from kernelopt.solvers.kernel_space import KernelSpace
from kernelopt.solvers.structured import factored
from kernelopt.support.types import Array, Ints

RIDGE = 1e-13  # relative to the mean diagonal of K, and added to it: repeated rows make K singular
# Kinks from which a factor is kept, as a new one of fewer takes less than comparisons. Where more than these shares of
# its kinks left or joined, a new factor takes less.
FEW, GONE, JOINED = 100, 0.1, 0.5
HELD = 0.1  # share of the free memory that a factor may take which is kept for the next problem


@dataclass(frozen=True, eq=False)
class FreeKinks:
    """The factor of K_MM/scale + ρ + ridge for kinks M, in the order in which they joined.

    kinks : those in the factor; order : of `kinks`, so that they are sorted; rho : of `kinks`, where scale ≠ 1 it is 0;
    L, X, L_A : the factor; W : the projection for kinks that left
    """

    space: KernelSpace
    kinks: Ints
    order: Ints
    rho: Array
    ridge: float
    L: Array
    X: Array
    L_A: Array
    W: Array
    scale: float = 1.0

    def solve(self, free: Ints, rhs: Array) -> Array:
        """The solution for the set of `free` kinks, which is sorted, for a right-hand side per column."""
        at, n = self._places(free), len(self.L)
        r = np.zeros((len(self.kinks), rhs.shape[1]), order="F")
        r[at] = rhs
        r = self.forward(r)
        if self.W.shape[1]:
            r -= self.W @ (self.W.T @ r)
        if self.X.shape[1]:
            r[n:] = _solved(self.L_A, r[n:], trans=1)
            r[:n] -= self.X @ r[n:]
        r[:n] = _solved(self.L, r[:n], trans=1)
        return np.asarray(r[at] / self.scale)

    def forward(self, r: Array) -> Array:
        """The solution of the lower triangle."""
        n = len(self.L)
        z = _solved(self.L, r[:n])
        return np.vstack([z, _solved(self.L_A, r[n:] - self.X.T @ z)]) if self.X.shape[1] else z

    def _places(self, kinks: Ints) -> Ints:
        """Where kinks that are in the factor stand in it."""
        return self.order[np.searchsorted(self.kinks[self.order], kinks)]

    def of_next(self, space: KernelSpace, rho: Array) -> FreeKinks | None:
        """The same for the next problem's K and ρ; None where its K is no multiple of this one, or ρ is another."""
        old, scale = self.space, float(self.space.R[0] / space.R[0])
        same = len(old.blocks) == len(space.blocks) and all(map(operator.is_, old.blocks, space.blocks))
        same = same and len(rho) > self.kinks.max() and np.array_equal(self.rho, rho[self.kinks])
        same = same and np.array_equal(old.R, scale * space.R)
        same = same and np.array_equal(old.E.indices, space.E.indices) and np.array_equal(old.E.data, space.E.data)
        if not same or (scale != 1 and rho.any()):
            return None
        return replace(self, space=space, scale=self.scale * scale)


def keep(system: FreeKinks | None) -> None:
    """Keep a factor beside its matrix for the next problem, where that may use it, and memory allows."""
    if system is None or system.rho.any() or len(system.kinks) < FEW:
        return
    if system.L.nbytes <= HELD * memory.available_bytes():
        system.space.blocks[0].kept[:] = [system]


def kept(space: KernelSpace, rho: Array) -> FreeKinks | None:
    """The factor that was kept, for this problem's K and ρ."""
    for known in space.blocks[0].kept if space.blocks else []:
        if isinstance(known, FreeKinks):
            return known.of_next(space, rho)
    return None


def forget(space: KernelSpace) -> None:
    """Let go of the factor that was kept, before another takes as much memory."""
    if space.blocks:
        space.blocks[0].kept.clear()


def system(space: KernelSpace, rows: Ints, rho: Array, free: Ints) -> FreeKinks:
    """The factor for the set of `free` kinks, which is sorted.

    rows, rho : of all kinks. Raises LinAlgError where there is none.
    """
    H = space.entries(rows[free], rows[free])
    ridge = RIDGE * float(np.mean(H.diagonal()))
    H[np.diag_indices_from(H)] += rho[free] + ridge
    n, L = len(free), factored(H)[0]
    return FreeKinks(
        space, free, np.arange(n), rho[free], ridge, L, np.zeros((n, 0)), np.zeros((0, 0)), np.zeros((n, 0))
    )


def continued(known: FreeKinks | None, space: KernelSpace, rows: Ints, rho: Array, free: Ints) -> FreeKinks | None:
    """The same from a known factor, where that takes less time; else None."""
    if known is None or len(known.kinks) < FEW:
        return None
    try:
        return _continued(known, space, rows, rho, free)
    except np.linalg.LinAlgError:  # rounding has added up
        return None


def _continued(known: FreeKinks, space: KernelSpace, rows: Ints, rho: Array, free: Ints) -> FreeKinks | None:
    """The known factor with a border for kinks that joined, and a projection for those that left; None where they are
    many."""
    is_new = np.zeros(len(rho), dtype=bool)
    is_new[free] = True
    gone = np.flatnonzero(~is_new[known.kinks])
    is_new[known.kinks] = False
    new, n = np.flatnonzero(is_new), len(known.L)
    if len(gone) > GONE * n or len(known.kinks) - n + len(new) > JOINED * n:
        return None
    found = known if not len(new) else _bordered(known, space, rows, rho, new)
    W = np.zeros((len(found.kinks), len(gone)), order="F")
    W[gone, np.arange(len(gone))] = 1.0
    return replace(found, W=sl.qr(found.forward(W), mode="economic", check_finite=False)[0] if len(gone) else W)


def _bordered(known: FreeKinks, space: KernelSpace, rows: Ints, rho: Array, new: Ints) -> FreeKinks:
    """With kinks that joined. Raises LinAlgError where the larger matrix is singular."""
    n, before = len(known.L), known.X.shape[1]
    both = known.forward(space.entries(rows[known.kinks], rows[new]) / known.scale)
    H = space.entries(rows[new], rows[new]) / known.scale - both.T @ both
    H[np.diag_indices_from(H)] += rho[new] + known.ridge
    L_A = np.zeros((before + len(new),) * 2, order="F")
    L_A[:before, :before], L_A[before:, :before] = known.L_A, both[n:].T
    L_A[before:, before:] = sl.cholesky(H, lower=True, check_finite=False)
    kinks = np.append(known.kinks, new)
    return replace(
        known, kinks=kinks, order=np.argsort(kinks), rho=rho[kinks], X=np.hstack([known.X, both[:n]]), L_A=L_A
    )


def _solved(L: Array, r: Array, trans: int = 0) -> Array:
    return np.asarray(sl.solve_triangular(L, r, lower=True, trans=trans, check_finite=False))
