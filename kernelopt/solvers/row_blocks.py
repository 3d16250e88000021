"""Systems R ⊗ I + (I ⊗ B)ᵀK(I ⊗ B) of several outputs of one B, where K couples the outputs of the same row alone.

With t the least eigenvalue of each row's block, K = diag(t) ⊗ I + GᵀG, and G has a row for each larger eigenvalue:
few, where losses are smooth and some rows are on the boundary of a set. With the r × r matrix M = ρI + Bᵀdiag(t)B,

    x = y − (I ⊗ M⁻¹Bᵀ)Gᵀ(I + G(I ⊗ BM⁻¹Bᵀ)Gᵀ)⁻¹G(I ⊗ B)y,   y = (I ⊗ M⁻¹)b
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp

from kernelopt.support.types import Array, Ints

POSITIVE = 1e-12  # relative to the largest eigenvalue of a block: smaller differences are rounding


class Split(NamedTuple):
    """t (n,) of each row, and G: its rows' prediction (f,) and numbers (f, outputs)."""

    t: Array
    at: Ints
    G: Array


def split(K: sp.csr_array, outputs: int) -> Split | None:
    """K as in the module's formula; None where it couples different rows."""
    n, entries = K.shape[0] // outputs, sp.coo_array(K)
    at = entries.row % n
    if np.any(at != entries.col % n):
        return None
    blocks = np.zeros((n, outputs, outputs))
    np.add.at(blocks, (at, entries.row // n, entries.col // n), entries.data)
    values, V = np.linalg.eigh(blocks)
    t = np.maximum(values[:, 0], 0.0)
    left = values - t[:, None]
    row, which = np.nonzero(left > POSITIVE * np.abs(values).max(axis=1, initial=0.0)[:, None])
    return Split(t, row, np.sqrt(left[row, which])[:, None] * V[row, :, which])


def cost(parts: Split, n: int, r: int) -> float:
    """Multiplications of a factor: M and its factor, BM⁻¹Bᵀ for the rows of G, and the factor of f × f."""
    f, used = float(len(parts.at)), float(min(len(parts.at), n))
    return n * r**2 / 2 + r**3 / 6 + used * r**2 / 2 + used**2 * r / 2 + f**3 / 6 + 4 * f**2


def solver(parts: Split, B: Array, rho: float) -> Callable[[Array], Array]:
    """The map b ↦ x, for b (outputs·r,) or (outputs·r, j). Raises LinAlgError where M is not positive definite."""
    outputs, r = parts.G.shape[1], B.shape[1]
    busy = parts.t > 0
    scaled = B[busy] * np.sqrt(parts.t[busy])[:, None]
    M = scaled.T @ scaled
    M[np.diag_indices_from(M)] += rho
    L = np.linalg.cholesky(M)
    used, place = np.unique(parts.at, return_inverse=True)
    moved = sl.solve_triangular(L, B[used].T, lower=True, check_finite=False)  # L⁻¹Bᵀ
    small = (moved.T @ moved)[np.ix_(place, place)] * (parts.G @ parts.G.T)
    small[np.diag_indices_from(small)] += 1.0
    factor = sl.cho_factor(small, lower=True, overwrite_a=True, check_finite=False)
    spread = sp.csr_array((np.ones(len(place)), (place, np.arange(len(place)))), shape=(len(used), len(place)))

    def solve(b: Array) -> Array:
        half = np.stack(
            [sl.solve_triangular(L, part, lower=True, check_finite=False) for part in b.reshape(outputs, r, -1)]
        )
        d = np.einsum("ru,krj->ukj", moved, half, optimize=True)
        z = sl.cho_solve(factor, np.einsum("fk,fkj->fj", parts.G, d[place]), check_finite=False)
        back = np.stack([spread @ (parts.G[:, k, None] * z) for k in range(outputs)])
        half = half - np.einsum("ru,kuj->krj", moved, back, optimize=True)
        x = [sl.solve_triangular(L, part, lower=True, trans=1, check_finite=False) for part in half]
        return np.stack(x).reshape(b.shape)

    return solve
