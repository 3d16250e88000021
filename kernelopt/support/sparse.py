"""Products with small sparse matrices: scipy takes longer to make and check a matrix than to multiply with it."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from kernelopt.support.types import Array, Ints


def adjoint(M: sp.csr_array, v: Array) -> Array:
    """Mᵀv, added up in the order of the rows, as scipy does."""
    return np.bincount(M.indices, M.data * np.repeat(v, np.diff(M.indptr)), M.shape[1])


def entries(M: sp.csr_array, rows: Ints) -> tuple[Ints, Ints, Array]:
    """(k, column, value) of the entries of the rows with numbers rows[k], row by row."""
    lengths = np.diff(M.indptr)[rows]
    ends = np.cumsum(lengths)
    at = np.repeat(M.indptr[rows] - ends + lengths, lengths) + np.arange(lengths.sum())
    return np.repeat(np.arange(len(rows)), lengths), M.indices[at], M.data[at]


def is_diagonal(M: sp.sparray) -> bool:
    """Whether all entries but those on the diagonal are 0."""
    place = sp.coo_array(M)
    return bool(np.array_equal(place.row[place.data != 0], place.col[place.data != 0]))
