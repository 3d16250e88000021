"""Some rows of θ's data, as a task on a block gets them: points, or combinations of points."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from kernelopt.kernels.kernel import Kernel
from kernelopt.language.functions import Function
from kernelopt.language.rows import BLOCK, Rows
from kernelopt.support.types import Array, Ints


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Rows ΣₘW[m, i]F(zₘ)ᵀ of a kernel κ; rows F(zᵢ)ᵀ where W is None."""

    kernel: Kernel
    points: Array
    weights: sp.csc_array | None = None

    @classmethod
    def of(cls, rows: Rows, chosen: Ints) -> RowBlock:
        """The chosen rows, with the points that they take alone."""
        if rows.are_points:
            return cls(rows.kernel, rows.points[chosen])
        return cls(rows.kernel, *rows.among(chosen))

    def __len__(self) -> int:
        return len(self.points) if self.weights is None else int(self.weights.shape[1])

    def __getitem__(self, chosen: slice | Ints) -> RowBlock:
        if self.weights is None:
            return replace(self, points=self.points[chosen])
        W = self.weights[:, chosen]
        used, place = np.unique(W.indices, return_inverse=True)
        W = sp.csc_array((W.data, place.reshape(-1), W.indptr), shape=(len(used), W.shape[1]))
        return replace(self, points=self.points[used], weights=W)

    def gram(self, other: RowBlock | None = None) -> Array:
        """Inner products of the rows with others, or among each other: WᵀKV in tiles, never K as a whole."""
        if self.weights is None:
            return self.kernel._matrix(self.points, None if other is None else other.points)
        other = self if other is None else other
        assert other.weights is not None  # rows of one θ are points, or combinations
        W, V = self.weights.tocsr(), other.weights.tocsr()
        found = np.zeros((len(self), len(other)))
        for i in range(0, len(self.points), BLOCK):
            inner = np.zeros((len(self.points[i : i + BLOCK]), len(other)))
            for j in range(0, len(other.points), BLOCK):
                K = self.kernel._matrix(self.points[i : i + BLOCK], other.points[j : j + BLOCK])
                inner += K @ V[j : j + BLOCK]
            found += W[i : i + BLOCK].T @ inner
        return found

    def predictions(self, centers: Array, coefficients: Array) -> Array:
        """The rows times Σⱼ cⱼF(zⱼ)."""
        values = Function._of_rows(self.kernel, centers, coefficients)._evaluate(self.points)
        return values if self.weights is None else np.asarray(self.weights.T @ values)
