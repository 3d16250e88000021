"""How s = EBv moves with the slopes of its functions: K = EBR⁻¹BᵀEᵀ, by look-ups in BBᵀ where that is at hand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from kernelopt.factorization.tall import SPARSE, TallMatrix
from kernelopt.support.properties import cached_property
from kernelopt.support.submatrix import submatrix
from kernelopt.support.types import Array, Ints


@dataclass(frozen=True, eq=False)
class KernelSpace:
    """K = EBR⁻¹BᵀEᵀ (m, m).

    blocks, R : Bₖ and Rₖ of each block; E : (m, Σnₖ) sparse; ends : where the rows of each block end among the columns
    of E
    """

    blocks: tuple[TallMatrix, ...]
    R: Array
    E: sp.csr_array
    ends: Ints

    @cached_property
    def _shared(self) -> list[tuple[TallMatrix, list[int]]]:
        """The distinct matrices, and the numbers of the blocks that have them: outputs of one θ share theirs."""
        found: dict[int, tuple[TallMatrix, list[int]]] = {}
        for k, B in enumerate(self.blocks):
            found.setdefault(id(B), (B, []))[1].append(k)
        return list(found.values())

    @cached_property
    def _block(self) -> Ints:
        """The block of each row, for an E with one entry per row."""
        return np.searchsorted(self.ends, self.E.indices, side="right") - 1

    def among(self, rows: Ints) -> Array:
        """K[rows][:, rows], a new array, for an E with one entry per row and BBᵀ at hand."""
        return self.entries(rows, rows)

    def entries(self, rows: Ints, columns: Ints) -> Array:
        """K[rows][:, columns], likewise."""
        found = np.zeros((len(rows), len(columns)))
        for k, (B, R) in enumerate(zip(self.blocks, self.R, strict=True)):
            i, j = (np.flatnonzero(self._block[some] == k) for some in (rows, columns))
            of, to = self.E.data[rows[i]], self.E.data[columns[j]]
            part = _entries(B, self.E.indices[rows[i]] - self.ends[k], self.E.indices[columns[j]] - self.ends[k])
            if len(of) and len(to) and np.all(of == of[0]) and np.all(to == to[0]):
                part *= of[0] * to[0] / R
            else:
                part *= of[:, None] * (to / R)
            if part.shape == found.shape:
                return part
            found[np.ix_(i, j)] = part
        return found

    def gram(self, C: sp.csr_array) -> Array:
        """CBR⁻¹BᵀCᵀ for a sparse C, whose rows combine few predictions."""
        found, entries = np.zeros((C.shape[0], C.shape[0])), sp.coo_array(C)
        block = np.searchsorted(self.ends, entries.col, side="right") - 1
        for k in np.unique(block).tolist():
            here = block == k
            mine, row = np.unique(entries.row[here], return_inverse=True)
            used, column = np.unique(entries.col[here] - self.ends[k], return_inverse=True)
            part = sp.csr_array((entries.data[here], (row, column)), shape=(len(mine), len(used)))
            found[np.ix_(mine, mine)] += part @ (part @ _entries(self.blocks[k], used, used)).T / self.R[k]
        return found

    def times(self, g: Array) -> Array:
        """BR⁻¹Bᵀg for g in terms of predictions."""
        parts: list[Array] = [np.zeros(0)] * len(self.blocks)
        for B, members in self._shared:
            G = [g[self.ends[k] : self.ends[k + 1]] for k in members]
            product = _product(B, G[0])[:, None] if len(G) == 1 else _products(B, np.column_stack(G))
            for k, column in zip(members, product.T, strict=True):
                parts[k] = column / self.R[k]
        return np.concatenate(parts)

    @cached_property
    def typical(self) -> float:
        """The mean of the diagonal of BR⁻¹Bᵀ; 0 without blocks."""
        if not self.blocks:
            return 0.0
        squares = [B.row_squares() / R for B, R in zip(self.blocks, self.R, strict=True)]
        return float(np.mean(np.concatenate(squares)))


def _entries(B: TallMatrix, rows: Ints, columns: Ints) -> Array:
    """BBᵀ at some rows and columns, a new array."""
    Q = B.outer()
    if Q is None:
        some = B.rows(rows)
        return np.asarray(some @ (some if columns is rows else B.rows(columns)).T)
    whole = len(rows) == len(columns) == len(Q)
    if whole and np.array_equal(rows, np.arange(len(Q))) and np.array_equal(columns, rows):
        return Q.copy()
    return submatrix(Q, rows, columns)


def _product(B: TallMatrix, g: Array) -> Array:
    """BBᵀg, with few columns of the symmetric BBᵀ where g has few entries."""
    Q = B.outer()
    if Q is None or not B.orthonormal:
        return np.asarray(B @ B.adjoint(g))
    some = np.flatnonzero(g)
    return np.asarray(g[some] @ Q[some] if len(some) < SPARSE * len(g) else Q @ g)


def _products(B: TallMatrix, G: Array) -> Array:
    """BBᵀG."""
    Q = B.outer()
    return B @ B.adjoint(G) if Q is None else np.asarray(Q @ G)
