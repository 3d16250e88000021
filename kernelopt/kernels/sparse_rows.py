"""Points with many columns, few of which are not 0, as texts have: rows of a sparse matrix as objects of their own.

Inner products, lengths and counts are all that kernels of xᵀz and ‖x − z‖ need of them. These functions take canonical
rows of both kinds, arrays (n, d) and arrays of `SparseRow`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelopt.support.types import Array, Bools, Ints

# Sparse matrices with more entries, zeros included, and fewer of them other than 0, stay sparse. Smaller ones are made
# dense: 8 MB, for which derivatives, boxes and means are known, too.
SMALL, DENSE = 2**20, 0.1
AT_ONCE = 2**24  # entries of a product of sparse matrices that are formed at a time: 200 MB where all are other than 0


class SparseRow:
    """One point: the numbers of its columns that are not 0, ascending, their values, and the number of all columns.

    Equal rows are equal, and have equal hashes.
    """

    __slots__ = ("columns", "values", "width")

    def __init__(self, columns: Ints, values: Array, width: int) -> None:
        self.columns, self.values, self.width = columns, values, width

    @property
    def name(self) -> tuple[int, bytes, bytes]:
        """The row as bytes."""
        return self.width, self.columns.tobytes(), self.values.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SparseRow) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"<{len(self.columns)} of {self.width} columns>"


def _are_none(rows: Any) -> bool:
    return isinstance(rows, np.ndarray) and rows.dtype == object and len(rows) == 0


def stays_sparse(X: Any) -> bool:
    """Whether a matrix is sparse, and large enough to stay so."""
    if not sp.issparse(X) or X.ndim != 2:
        return False
    size = float(X.shape[0]) * X.shape[1]
    return size > SMALL and X.nnz < DENSE * size


def sparse_rows(X: Any) -> Array:
    """The rows of a sparse matrix or of an array; only entries other than 0 count."""
    X = sp.csr_array(X, dtype=np.float64, copy=True)
    X.sum_duplicates()
    X.eliminate_zeros()
    columns, values = X.indices.astype(np.int64), X.data
    columns.flags.writeable = values.flags.writeable = False
    found = np.empty(X.shape[0], dtype=object)
    for i, (a, b) in enumerate(zip(X.indptr[:-1], X.indptr[1:], strict=True)):
        found[i] = SparseRow(columns[a:b], values[a:b], X.shape[1])
    found.flags.writeable = False
    return found


def is_sparse(rows: Any) -> bool:
    """Whether rows are those of a sparse matrix."""
    return isinstance(rows, np.ndarray) and rows.dtype == object and len(rows) > 0 and type(rows[0]) is SparseRow


def matrix(rows: Any) -> Any:
    """The rows as one matrix, sparse or an array as they are; without columns where sparse rows are none."""
    if not is_sparse(rows):
        return np.zeros((0, 0)) if _are_none(rows) else rows
    ends = np.cumsum([0, *(len(row.columns) for row in rows)])
    columns, values = (np.concatenate([getattr(row, name) for row in rows]) for name in ("columns", "values"))
    return sp.csr_array((values, columns, ends), shape=(len(rows), rows[0].width))


def dense(rows: Array) -> Array:
    """The rows as an array."""
    return matrix(rows).toarray() if is_sparse(rows) else np.asarray(matrix(rows))


def width(rows: Array) -> int:
    """The number of columns."""
    return int(rows[0].width if is_sparse(rows) else matrix(rows).shape[1])


def terms(rows: Array) -> int:
    """The most terms of an inner product with one of the rows."""
    return max(len(row.columns) for row in rows) if is_sparse(rows) else int(matrix(rows).shape[1])


def are_nonzero(rows: Array) -> Bools:
    """The rows other than 0."""
    return np.array([len(row.columns) > 0 for row in rows]) if is_sparse(rows) else (matrix(rows) != 0).any(axis=1)


def inner_products(X: Any, Z: Any | None) -> Array:
    """xᵢᵀzⱼ of rows, or of matrices; Z = X where Z is None, and the answer is symmetric then."""
    left = matrix(X)
    right = left if Z is None else matrix(Z)
    if not left.shape[0] or not right.shape[0]:
        return np.zeros((left.shape[0], right.shape[0]))
    if not sp.issparse(left) and not sp.issparse(right):
        return np.asarray(left @ right.T)  # numpy evaluates X Xᵀ by a symmetric product
    if not sp.issparse(left):
        return np.ascontiguousarray((right @ left.T).T)
    if not sp.issparse(right):
        return np.asarray(left @ right.T)
    # Sums run over the columns of both in ascending order, so that the product is symmetric where Z = X.
    found, step, back = np.empty((left.shape[0], right.shape[0])), max(AT_ONCE // max(right.shape[0], 1), 1), right.T
    for i in range(0, len(found), step):
        found[i : i + step] = (left[i : i + step] @ back).toarray()
    return found


def squared_lengths(X: Any) -> Array:
    """xᵢᵀxᵢ of rows, or of a matrix."""
    X = matrix(X)
    return np.asarray(X.multiply(X).sum(axis=1)) if sp.issparse(X) else np.einsum("ij,ij->i", X, X)


def stacked(blocks: list[Array]) -> Array:
    """Rows of several blocks, one under the other; all are sparse where some are."""
    blocks = [b for b in blocks if len(b)] or blocks[:1]
    some = any(map(is_sparse, blocks))
    return np.concatenate([sparse_rows(b) if some and b.ndim == 2 else b for b in blocks])
