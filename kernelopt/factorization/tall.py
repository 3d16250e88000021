"""B as solvers, certificates and plots see it: a tall matrix with few operations, whatever holds its entries.

To hold B in another way (on another device, in another library), write a subclass of `TallMatrix` and a factorization
that makes one. `DenseMatrix` is one numpy array; `block_matrix.BlockMatrix` has blocks of rows, in this process or on a
cluster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelopt.factorization import memory
from kernelopt.support import clock, sparse
from kernelopt.support.properties import cached_property
from kernelopt.support.submatrix import submatrix
from kernelopt.support.types import Array, Ints

# Columns of room behind those that a new array begins with. A certificate adds about one function per output, so that B
# is copied once in about SPARE of them; each spare column takes 8N bytes.
SPARE = 8
# Bytes of B that are scaled by weights at a time, at least: 4 MB instead of a second B.
SCALED = 2**22
# Share of rows with nonzero weight from which all rows enter a Gram matrix. Leaving out the rest would save less than
# 10 % of the flops, and cost a copy of the rows that stay.
MOST_CHOSEN = 0.9
# Columns per row from which BBᵀ is formed: systems in active rows then look up what costs 2r flops per entry.
WIDE = 0.2
# Share of nonzero entries up to which a product with BBᵀ copies their rows: a copy reads and writes.
SPARSE = 0.3
HELD = 0.25  # share of the free memory that BBᵀ may take
MOST_KEPT = 2**26  # bytes of a part of BBᵀ, 2900 rows: to copy a larger one takes little beside what is done with it


class TallMatrix(ABC):
    """B (n, r). Arguments and results are numpy arrays in double precision; only B itself may be stored elsewhere.

    Where a factor's B is not a numpy array, it is a TallMatrix: B @ v, B.T @ d, B[rows] and B[:, :k] are written as
    those of an array are.
    """

    __array_ufunc__ = None  # numpy then leaves products with its arrays to this class
    ndim = 2
    orthonormal = True  # whether v are coordinates in an orthonormal basis, so that ‖θ‖² is a multiple of Σvᵢ²
    few = 0.0  # share of rows up to which a copy of them and a product take less time than a product with all

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(n, r)."""

    @abstractmethod
    def __matmul__(self, v: Array) -> Array:
        """Bv."""

    @abstractmethod
    def adjoint(self, d: Array) -> Array:
        """Bᵀd."""

    def inner(self, V: Array) -> Array:
        """The inner products of the columns of V (r, k), as coordinates: VᵀV. A number for V of shape (r,)."""
        return np.asarray(V.T @ V)

    @abstractmethod
    def rows(self, chosen: Ints) -> Array:
        """Some rows of B."""

    @abstractmethod
    def first(self, count: int) -> TallMatrix:
        """The first `count` columns, B[:, :count]."""

    def begins_with(self, other: TallMatrix) -> bool:
        """Whether the first columns are those of `other`, seen without a comparison of numbers."""
        return self is other

    @abstractmethod
    def combined(self, E: sp.csr_array) -> Array:
        """EB for a sparse E of few rows."""

    @abstractmethod
    def gram(self, weights: Array, D: Array | None = None) -> Array:
        """BᵀWB, or [BᵀWB, BᵀD] in one pass, with W = diag(weights)."""

    @abstractmethod
    def cross(self, other: TallMatrix, weights: Array) -> Array:
        """BᵀWC for another matrix C with as many rows."""

    @abstractmethod
    def connected(self, other: TallMatrix, T: sp.csr_array) -> Array:
        """BᵀTC for a sparse T, which connects different rows. Raises SolverError where that can't be done."""

    def squares(self, T: sp.csr_array) -> Array:
        """BᵀTB for a symmetric T ≥ 0."""
        return self.connected(self, T)

    @abstractmethod
    def row_squares(self) -> Array:
        """‖bᵢ‖² of each row."""

    @abstractmethod
    def column_squares(self, weights: Array | None = None) -> Array:
        """Σᵢ wᵢBᵢⱼ² of each column."""

    @abstractmethod
    def least_squares(self, target: Array) -> Array:
        """The v with the smallest ‖Bv − target‖."""

    @abstractmethod
    def spectrum(self) -> Array:
        """The eigenvalues of BᵀB, from large to small: those of BBᵀ without its n − r zeros."""

    @abstractmethod
    def beside(self, T: Array, room: Room | None = None, limit: float | None = None) -> tuple[Any, Room | None]:
        """[B, T] as a factor holds it, and the room behind it.

        Raises MemoryLimitError where B must be copied and the limit forbids it.
        """

    @property
    def latency(self) -> float:
        """The time of a product besides its flops, counted in flops."""
        return 0.0

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def whole(self) -> Array:
        """B as one numpy array."""
        return self.rows(np.arange(len(self)))

    @cached_property
    def kept(self) -> list[object]:
        """What a solver keeps for its next problem with this matrix, one object at most."""
        return []

    def outer(self) -> Array | None:
        """BBᵀ (n, n), made once; None where B is elsewhere, where products with B take far less, or memory is short."""
        return None

    def outer_among(self, rows: Ints) -> Array:
        """BBᵀ at some rows and columns, read-only; the last small one is kept, for the next value of a path."""
        Q = self.outer()
        if Q is None:
            some = self.rows(rows)
            return np.asarray(some @ some.T)
        if len(rows) == len(Q) and np.array_equal(rows, np.arange(len(Q))):
            return Q
        for known, found in self._last_among:  # one at most
            if np.array_equal(known, rows):
                return found
        found = submatrix(Q, rows, rows)
        self._last_among[:] = [(rows.copy(), found)] if found.nbytes <= MOST_KEPT else []
        return found

    @cached_property
    def _last_among(self) -> list[tuple[Ints, Array]]:
        return []

    def entries(self) -> str:
        """Where entries of BBᵀ come from, and why, in words."""
        return "from blocks of B, which is not one array"

    @property
    def T(self) -> _Transposed:
        """Bᵀ, for products."""
        return _Transposed(self)

    def __getitem__(self, at: Any) -> Any:
        """The first columns as B[:, :k]; or some rows, as an array in double precision."""
        if isinstance(at, tuple):
            rows, columns = at
            if isinstance(rows, slice) and rows == slice(None) and isinstance(columns, slice) and not columns.start:
                return self.first(self.shape[1] if columns.stop is None else columns.stop)
            return self[rows][:, columns]
        rows = np.arange(len(self))[at] if isinstance(at, slice) else np.asarray(at)
        return self.rows(np.flatnonzero(rows) if rows.dtype == bool else rows)


@dataclass(frozen=True, eq=False)
class _Transposed:
    of: TallMatrix
    __array_ufunc__ = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.of.shape[::-1]

    def __matmul__(self, d: Array) -> Array:
        return self.of.adjoint(np.asarray(d))


@dataclass(frozen=True, eq=False)
class DenseMatrix(TallMatrix):
    """B as one numpy array, and the number of rows up to which a BBᵀ pays: it takes longer than a few systems."""

    array: Array
    most_outer: float = inf
    few = 0.2

    @property
    def shape(self) -> tuple[int, int]:
        return self.array.shape[0], self.array.shape[1]

    def __matmul__(self, v: Array) -> Array:
        return np.asarray(self.array @ v)

    def adjoint(self, d: Array) -> Array:
        return np.asarray(self.array.T @ d)

    def rows(self, chosen: Ints) -> Array:
        return self.array[chosen]

    def first(self, count: int) -> DenseMatrix:
        return DenseMatrix(self.array[:, :count], self.most_outer if count >= self.array.shape[1] else 0)

    def begins_with(self, other: TallMatrix) -> bool:
        """Whether both are in the same memory."""
        if not isinstance(other, DenseMatrix):
            return False
        (at, mine), (start, first) = ((a.__array_interface__["data"][0], a) for a in (self.array, other.array))
        fits = len(self) == len(other) and self.shape[1] >= other.shape[1]
        return fits and at == start and mine.strides == first.strides

    def combined(self, E: sp.csr_array) -> Array:
        return np.asarray(E @ self.array)

    def gram(self, weights: Array, D: Array | None = None) -> Array:
        """Without a copy of all of B."""
        if D is None:
            return self._weighted(self, weights)
        chosen = self._chosen(weights)
        if isinstance(chosen, slice) or np.any(D[weights == 0]) or np.any(weights < 0):
            return np.hstack([self._weighted(self, weights), self.array.T @ D])
        L = self.array[chosen]
        return np.hstack([_symmetric(L, weights[chosen]), L.T @ D[chosen]])

    def cross(self, other: TallMatrix, weights: Array) -> Array:
        return self._weighted(_dense(other), weights)

    def connected(self, other: TallMatrix, T: sp.csr_array) -> Array:
        return np.asarray(self.array.T @ _dense(other).combined(T))

    def squares(self, T: sp.csr_array) -> Array:
        return sparse.squares(self.array, T)

    def outer(self) -> Array | None:
        return self._outer

    @cached_property
    def _outer(self) -> Array | None:
        if self._no_outer:
            return None
        return np.asarray(self.array @ self.array.T)  # numpy takes one half of the work for such a product

    @cached_property
    def _no_outer(self) -> str:
        """Why BBᵀ is not formed; empty where it is."""
        n, r = self.shape
        if r < WIDE * n:
            return f"its {r} columns are fewer than N/{1 / WIDE:.0f}"
        if n > self.most_outer:
            return f"there are more than {self.most_outer} rows, and the factor may grow"
        if 8.0 * n**2 > HELD * memory.available_bytes():
            return f"all of them take {8e-9 * n**2:.2g} GB, more than {HELD:.0%} of the free memory"
        return ""

    def entries(self) -> str:
        return f"from B, as {self._no_outer}" if self._no_outer else f"looked up, as r ≥ N/{1 / WIDE:.0f}"

    def row_squares(self) -> Array:
        return np.asarray(np.einsum("ij,ij->i", self.array, self.array))

    def column_squares(self, weights: Array | None = None) -> Array:
        if weights is None:
            return self._column_squares
        chosen = self._chosen(weights)
        B = self.array[chosen]
        return np.asarray(np.einsum("ij,ij,i->j", B, B, weights[chosen]))

    @cached_property
    def _column_squares(self) -> Array:
        return np.asarray(np.einsum("ij,ij->j", self.array, self.array))

    def least_squares(self, target: Array) -> Array:
        return np.asarray(np.linalg.lstsq(self.array, target, rcond=None)[0])

    def spectrum(self) -> Array:
        return np.asarray(np.linalg.svd(self.array, compute_uv=False) ** 2)

    def beside(self, T: Array, room: Room | None = None, limit: float | None = None) -> tuple[Array, Room | None]:
        B = self.array
        found = None if room is None else room.take(B, T)
        if found is None:
            n, old, width = len(B), B.shape[1], B.shape[1] + T.shape[1] + SPARE
            held = 0.0 if limit is None else 8.0 * n * old
            memory.require(held + 8.0 * n * width, f"A factor of {n} rows and {width} columns", limit, "Set max_rank")
            room = Room(np.empty((n, width)), old)
            room.array[:, :old] = B
            found = room.take(B, T)
        assert found is not None
        return found, room

    def whole(self) -> Array:
        return self.array

    def _weighted(self, other: DenseMatrix, weights: Array) -> Array:
        chosen = self._chosen(weights)
        L, w = self.array[chosen], weights[chosen]
        if other is self and np.all(w >= 0):
            return _symmetric(L, w)
        return np.asarray(L.T @ (w[:, None] * other.array[chosen]))

    @staticmethod
    def _chosen(weights: Array) -> Ints | slice:
        """The rows with a weight, all of them where these are most."""
        chosen = np.flatnonzero(weights)
        return chosen if len(chosen) < MOST_CHOSEN * len(weights) else slice(None)


def tall(B: Any, most_outer: float = inf) -> TallMatrix:
    """B as a `TallMatrix`; a numpy array is wrapped in a `DenseMatrix`."""
    return B if isinstance(B, TallMatrix) else DenseMatrix(np.asarray(B), most_outer)


def _dense(B: TallMatrix) -> DenseMatrix:
    return B if isinstance(B, DenseMatrix) else DenseMatrix(B.whole())


def _symmetric(B: Array, w: Array) -> Array:
    """BᵀWB with W ≥ 0, some rows at a time."""
    # With the roots of the weights each product is SᵀS, which numpy computes in half the flops. With at least r rows at
    # a time, adding up the r×r products costs little beside them.
    r, roots = B.shape[1], np.sqrt(w)[:, None]
    step, found = max(SCALED // (8 * max(r, 1)), r, 1), np.zeros((r, r))
    room = np.empty((min(step, len(B)), r))
    for i in range(0, len(B), step):
        if i:
            clock.check()
        S = np.multiply(roots[i : i + step], B[i : i + step], out=room[: min(step, len(B) - i)])
        found += S.T @ S
    return found


@dataclass(eq=False)
class Room:
    """An array whose first `used` columns are taken. The first B that ends there may take the next ones."""

    array: Array
    used: int

    def take(self, B: Array, T: Array) -> Array | None:
        """[B, T] without a copy of B; None where B does not end where the room begins, or T does not fit."""
        end = B.shape[1] + T.shape[1]
        if B.shape[1] != self.used or end > self.array.shape[1] or len(B) != len(self.array):
            return None
        self.array[:, self.used : end] = T
        self.used = end
        return self.array[:, :end]
