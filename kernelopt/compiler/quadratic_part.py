"""Quadratic terms xᵀPx of several columns as sums of squares: P = RᵀR with R as sparse as it can be had."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.linalg.lapack import dpstrf

from kernelopt.errors import DataError
from kernelopt.support.types import Array, Ints

# Rows of R per column of P up to which each pair of columns gets a row of its own. Such rows have two entries; those of
# a Cholesky factor have up to as many as P has columns.
PAIRS = 32
ROUNDING = 2.0**-53  # relative; of one operation
# Relative to the diagonal: what pivoted Cholesky may leave of a positive semidefinite matrix. It is cvxpy's tolerance
# for eigenvalues of such matrices; more of it shows that P is indefinite.
INDEFINITE = 1e-10


def coupled(P: sp.csc_array) -> Ints:
    """The columns with an entry off the diagonal."""
    rows, columns = P.indices, np.repeat(np.arange(P.shape[1]), np.diff(P.indptr))
    off = (rows != columns) & (P.data != 0)
    return np.unique(np.concatenate([rows[off], columns[off]])) if off.any() else np.arange(0)


def root(P: sp.csc_array) -> sp.csr_array:
    """R with P = RᵀR for a symmetric, positive semidefinite P.

    P = Σᵢ<ⱼ |Pᵢⱼ|(eᵢ ± eⱼ)(eᵢ ± eⱼ)ᵀ + Σᵢ (Pᵢᵢ − Σⱼ|Pᵢⱼ|)eᵢeᵢᵀ where P is diagonally dominant, as the Laplacian of a
    graph is, and pivoted Cholesky else. An indefinite P raises DataError.
    """
    by_pairs = _by_pairs(P)
    return _cholesky(P.toarray()) if by_pairs is None else by_pairs


def _by_pairs(P: sp.csc_array) -> sp.csr_array | None:
    """A row for each pair of columns with an entry; None where there are many, or P is not diagonally dominant."""
    diagonal, entries = P.diagonal(), sp.triu(P, k=1).tocoo()
    i, j, value = entries.row, entries.col, entries.data
    size, terms = np.abs(value), np.bincount(np.append(i, j), minlength=len(diagonal)) + 2
    rest = diagonal - np.bincount(i, size, len(diagonal)) - np.bincount(j, size, len(diagonal))
    rounding = ROUNDING * terms * diagonal  # of the sum, and of a matrix that was computed as such a sum
    if len(value) > PAIRS * len(diagonal) or np.any(rest < -rounding):
        return None
    alone = np.flatnonzero(rest > rounding)
    rows = len(value) + np.arange(len(alone))
    data = np.concatenate([np.sqrt(size), np.sign(value) * np.sqrt(size), np.sqrt(rest[alone])])
    places = np.concatenate([np.tile(np.arange(len(value)), 2), rows]), np.concatenate([i, j, alone])
    return sp.csr_array((data, places), shape=(len(value) + len(alone), len(diagonal)))


def _cholesky(P: Array) -> sp.csr_array:
    """R by pivoted Cholesky of P with a unit diagonal, as exact as rounding permits for each entry of P."""
    unit = np.sqrt(np.clip(np.diag(P), 0.0, None))
    unit[unit == 0] = 1.0
    scaled = P / np.outer(unit, unit)
    factor, order, rank, _ = dpstrf(scaled, lower=1)
    R = np.zeros((rank, len(P)))
    R[:, order - 1] = np.tril(factor)[:, :rank].T
    if not np.abs(scaled - R.T @ R).max() <= INDEFINITE:
        raise DataError(
            "Expected a positive semidefinite matrix in a quadratic form of a convex objective; got one with the "
            f"eigenvalue {np.linalg.eigvalsh(P)[0]:.3g}. Leave out its negative part, or correct the matrix."
        )
    return sp.csr_array(R * unit)
