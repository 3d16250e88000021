"""Products with small sparse matrices: scipy takes longer to make and check a matrix than to multiply with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from kernelopt.support.types import Array, Ints

FILLED = 10  # times the entries of a matrix, those of its root up to which products with that are cheap


def adjoint(M: sp.csr_array, v: Array) -> Array:
    """Mᵀv, added up in the order of the rows, as scipy does."""
    return np.bincount(M.indices, M.data * np.repeat(v, np.diff(M.indptr)), M.shape[1])


def entries(M: sp.csr_array, rows: Ints) -> tuple[Ints, Ints, Array]:
    """(k, column, value) of the entries of the rows with numbers rows[k], row by row."""
    lengths = np.diff(M.indptr)[rows]
    ends = np.cumsum(lengths)
    at = np.repeat(M.indptr[rows] - ends + lengths, lengths) + np.arange(lengths.sum())
    return np.repeat(np.arange(len(rows)), lengths), M.indices[at], M.data[at]


def stacked(parts: Sequence[sp.csr_array], n: int) -> sp.csr_array:
    """Matrices of at most n columns, one below the other."""
    starts = np.cumsum([0, *(len(part.data) for part in parts)])
    indptr = np.concatenate([[0], *(start + part.indptr[1:] for start, part in zip(starts, parts, strict=False))])
    none = np.zeros(0), np.zeros(0, dtype=int)
    data, indices = (
        np.concatenate([empty, *(getattr(part, name) for part in parts)])
        for empty, name in zip(none, ("data", "indices"), strict=True)
    )
    return sp.csr_array((data, indices, indptr), shape=(len(indptr) - 1, n))


def columns(S: sp.csr_array, place: Ints, n: int) -> sp.csr_array:
    """Column j of S as column place[j] of n, without those with a negative place."""
    to = place[S.indices]
    keep = to >= 0
    indptr = np.append(0, np.cumsum(keep))[S.indptr]
    return sp.csr_array((S.data[keep], to[keep], indptr), shape=(S.shape[0], n))


def is_diagonal(M: sp.sparray) -> bool:
    """Whether all entries but those on the diagonal are 0."""
    place = sp.coo_array(M)
    return bool(np.array_equal(place.row[place.data != 0], place.col[place.data != 0]))


def root(T: sp.sparray) -> sp.csr_array | None:
    """A sparse G with GᵀG = T, by LDLᵀ; None where T is not positive definite on its rows with a diagonal entry > 0, or
    G has many entries."""
    T = sp.csc_array(T)
    busy = np.flatnonzero(T.diagonal() > 0)
    if not len(busy) or T.nnz > len(busy) ** 2 // FILLED:
        return None
    try:
        found = splu(
            sp.csc_array(T[busy][:, busy]), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )  # fmt: skip
    except RuntimeError:  # a pivot of 0
        return None
    pivots = found.U.diagonal()
    if not (np.array_equal(found.perm_r, found.perm_c) and np.all(pivots > 0) and found.L.nnz <= FILLED * T.nnz):
        return None
    L = sp.coo_array(found.L)
    columns = busy[np.argsort(found.perm_r)]
    return sp.csr_array((L.data * np.sqrt(pivots)[L.col], (L.col, columns[L.row])), shape=(len(busy), T.shape[0]))


def squares(B: Array, T: sp.sparray) -> Array:
    """BᵀTB for a symmetric T ≥ 0: as SᵀS with S = GB it takes half the flops."""
    G = root(T)
    if G is None:
        return np.asarray(B.T @ (T @ B))
    S = G @ B
    return np.asarray(S.T @ S)
