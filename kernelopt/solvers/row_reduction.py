"""What systems of the method of multipliers share: products made once, and the system without local entries of y."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp

from kernelopt.solvers.row_problem import RowProblem
from kernelopt.support.properties import cached_property
from kernelopt.support.sparse import is_diagonal
from kernelopt.support.types import Array, Ints

Solver = Callable[[Array], Array]

# Entries of y from which those that meet no other one are eliminated first, and rows in which such a one may stand.
MANY, FEW_ROWS = 30, 12
WIDEST = 12  # predictions that a part of K may connect so that it is factored by itself
JITTER = 1e-14  # relative to the largest diagonal entry, where a Cholesky factor breaks down; then 100 times that …
TRIES = 5


@dataclass(eq=False)
class Products:
    """What systems of one problem share, made once.

    gram : BBᵀ by the id of B; eigen : (eigenvalues, vectors) of BᵀB; is_stiff : whether conjugate gradients took too
    many steps, as where outputs of some rows are on a sphere, with curvatures that differ by σ
    conditioner : (R + D + Bᵀ diag(…) B)⁻¹ of an earlier system, while it takes few steps
    before : H, or K with local entries of y, and BᵀKB of the last system by columns
    """

    problem: RowProblem
    gram: dict[int, Array] = field(default_factory=dict)
    is_stiff: bool = False
    conditioner: Solver | None = None
    before: tuple[sp.csr_array, Array] | None = None

    def of_rows(self, number: int) -> Array:
        """BₖBₖᵀ."""
        B = self.problem.blocks[number]
        if id(B) not in self.gram:
            self.gram[id(B)] = B @ B.T
        return self.gram[id(B)]

    @cached_property
    def eigen(self) -> tuple[Array, Array]:
        B = self.problem.blocks[0]
        values, vectors = sl.eigh(B.T @ B, check_finite=False)
        return np.maximum(values, 0.0), vectors

    @cached_property
    def whole(self) -> Array:
        """C = [EB, F]."""
        problem, ends = self.problem, [*pairwise(self.problem.starts)]
        parts = [problem.E[:, a:b] @ B for B, (a, b) in zip(problem.blocks, ends, strict=True)]
        return np.hstack([*parts, problem.F.toarray()])

    @cached_property
    def is_mixed(self) -> bool:
        """Whether rows are sums of many predictions, as with a kernel of each column: K then has large blocks."""
        count = len(self.problem.blocks)
        return count > WIDEST and 2 * self.problem.E.nnz >= self.problem.E.shape[0] * count

    @cached_property
    def is_sum(self) -> bool:
        """Whether each row has the same entries for the predictions of all blocks, as of a sum of functions."""
        E, starts = self.problem.E, self.problem.starts
        if len(set(np.diff(starts).tolist())) != 1:
            return False
        first = E[:, : starts[1]]
        return all((E[:, a:b] != first).nnz == 0 for a, b in pairwise(starts))

    @cached_property
    def is_one(self) -> bool:
        """Whether there are several outputs of one B."""
        first, *others = self.problem.blocks
        return bool(others) and all(B is first for B in others)


@dataclass(frozen=True, eq=False)
class Reduced:
    """K for the predictions d, its border for the y that are left (`rest`), and how the `local` ones follow.

    K (n, n), border (n, g) and corner (g, g); of_d (n, l), of_rest (g, l) and their diagonal
    E, H : K is EᵀHE, without what the local ones take off
    """

    E: sp.csr_array
    H: sp.csr_array
    border: Array
    corner: Array
    rest: Ints
    local: Ints
    of_d: sp.csr_array
    of_rest: sp.csr_array
    diagonal: Array

    @cached_property
    def K(self) -> sp.csr_array:
        found = sp.csr_array(self.E.T @ (self.H @ self.E))
        if not len(self.local):
            return found
        return sp.csr_array(found - sp.csr_array(self.of_d @ sp.diags_array(1 / self.diagonal)) @ self.of_d.T)

    @cached_property
    def root(self) -> sp.csr_array | None:
        """G with K = GᵀG, one row for each entry of a diagonal H; None for other H."""
        if len(self.local) or not is_diagonal(self.H):
            return None
        h = self.H.diagonal()
        busy = np.flatnonzero(h > 0)
        return sp.csr_array(sp.diags_array(np.sqrt(h[busy])) @ self.E[busy])


def reduced(problem: RowProblem, H: sp.csr_array, ridge: Array) -> Reduced:
    """[E, F]ᵀH[E, F] + ridge without the local entries of y."""
    HF = H @ problem.F
    of_y, corner = sp.csr_array(problem.E.T @ HF), sp.csr_array(problem.F.T @ HF + sp.diags_array(ridge))
    local = _local(problem, corner)
    rest = np.setdiff1d(np.arange(problem.q), local)
    of_d, of_rest = sp.csr_array(of_y[:, local]), sp.csr_array(corner[rest][:, local])
    diagonal, border, inner = corner.diagonal()[local], of_y[:, rest], corner[rest][:, rest]
    if len(local):
        scaled = sp.csr_array(of_d @ sp.diags_array(1 / diagonal))
        border = border - scaled @ of_rest.T
        inner = inner - of_rest @ sp.diags_array(1 / diagonal) @ of_rest.T
    return Reduced(problem.E, H, border.toarray(), inner.toarray(), rest, local, of_d, of_rest, diagonal)


def _local(problem: RowProblem, corner: sp.csr_array) -> Ints:
    """Entries of y in few rows each that meet no other one of them."""
    if problem.q <= MANY:
        return np.arange(0)
    few = np.flatnonzero(np.diff(sp.csc_array(problem.F).indptr) <= FEW_ROWS)
    inner = sp.coo_array(corner[few][:, few])
    meets = (inner.row != inner.col) & (inner.data != 0)
    return few if not meets.any() else np.arange(0)


def joined(problem: RowProblem, inner: Reduced, v: Array, rest: Array, local: Array) -> Array:
    """x, with the local entries of y that follow from the others."""
    y = np.zeros((problem.q, *v.shape[1:]))
    y[inner.rest] = rest
    if len(inner.local):
        follows = inner.of_d.T @ problem.predictions(v) + inner.of_rest.T @ rest
        y[inner.local] = local - (follows.T / inner.diagonal).T
    return np.concatenate([v, y])


def factored(M: Array) -> Solver:
    """M⁻¹ by Cholesky, with a multiple of I added where that breaks down; M is overwritten."""
    size = float(np.abs(np.diag(M)).max(initial=0.0))
    for number in range(TRIES):
        try:
            copy = M.copy() if number < TRIES - 1 else M
            factor = sl.cho_factor(copy, lower=True, overwrite_a=True, check_finite=False)
            return lambda r: np.asarray(sl.cho_solve(factor, r, check_finite=False))
        except np.linalg.LinAlgError:
            M[np.diag_indices_from(M)] += JITTER * 100.0**number * size
    raise np.linalg.LinAlgError("A system is not positive definite.")


def times_penalty(problem: RowProblem, R: Array, v: Array) -> Array:
    """(R ⊗ I)v, where R is a matrix of pairs of blocks."""
    ends = problem.ends
    if not (R - np.diag(np.diag(R))).any():
        return np.asarray((v.T * np.repeat(np.diag(R), np.diff(ends))).T)
    parts = [v[a:b] for a, b in pairwise(ends)]
    found = [[w * part for w, part in zip(row, parts, strict=True) if w] for row in R]
    return np.concatenate([np.sum(row, axis=0) if row else 0 * part for row, part in zip(found, parts, strict=True)])


def squared(B: Array, w: Array) -> Array:
    """Bᵀ diag(w) B for w ≥ 0, from rows with w > 0."""
    busy = np.flatnonzero(w > 0)
    scaled = B[busy] * np.sqrt(w[busy])[:, None]
    return np.asarray(scaled.T @ scaled)
