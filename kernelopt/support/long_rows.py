"""Sparse systems G + Lᵀ diag(w) L in which rows of L have so many entries that their products would fill the matrix."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from kernelopt.support.types import Array

# Entries of a row that is long. Products of each two entries of shorter rows fill a matrix less than an unknown more.
LONG = 40


def are_long(A: sp.sparray) -> Array:
    """Which rows have more than LONG entries."""
    return np.diff(sp.csr_array(A).indptr) > LONG


def bordered(G: sp.sparray, L: sp.sparray, w: Array) -> sp.csc_array:
    """[[G, Lᵀ], [L, −diag(w)⁻¹]], of which x solves (G + Lᵀ diag(w) L)x = r for the right-hand side (r, 0), w ≠ 0.

    The unknowns beside x are diag(w)Lx.
    """
    if not len(w):
        return sp.csc_array(G)
    return sp.csc_array(sp.block_array([[G, L.T], [L, -sp.diags_array(1 / w)]]))


def solution(G: sp.sparray, L: sp.sparray, w: Array, r: Array, ridge: float) -> Array:
    """x with (G + Lᵀ diag(w) L)x = r, where G has a ridge relative to the diagonal of all; entries without one are 0.

    Raises LinAlgError where numbers are not finite or the system is singular.
    """
    diagonal = np.maximum(G.diagonal() + (L * L).T @ np.abs(w), 0.0)
    unit = np.where(diagonal > 0, 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)), 0.0)
    scaled = unit[:, None] * sp.csr_array(G) * unit + ridge * sp.eye_array(len(r))
    K = bordered(scaled, np.sqrt(np.abs(w))[:, None] * sp.csr_array(L) * unit, np.sign(w))
    right = np.append(unit * r, np.zeros(len(w)))
    if not (np.isfinite(K.data).all() and np.isfinite(right).all()):  # LAPACK would print its complaint
        raise np.linalg.LinAlgError("numbers of a sparse system are too far apart")
    try:
        return np.asarray(unit * splu(K).solve(right)[: len(r)])
    except RuntimeError as error:  # SuperLU found a pivot of 0
        raise np.linalg.LinAlgError("a sparse system is singular") from error
