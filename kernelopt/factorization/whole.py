"""Q itself in place of a factor: θ = Σ cᵢ·(row i), so that u = Qc and ‖θ‖² = cᵀQc.

Where the factor would have a large share of N columns, and the solver needs products with Q and a few of its entries
alone, the factor and BBᵀ take most of the time. In the formulas of solvers B stands for Q and v for c. The coordinates
c belong to no orthonormal basis: the inner product of two of them is cᵀQd, and with it Bᵀd is d.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp

from kernelopt.errors import SolverError
from kernelopt.factorization import memory
from kernelopt.factorization.factor import Factor
from kernelopt.factorization.tall import SPARSE, DenseMatrix, Room, TallMatrix
from kernelopt.language.rows import Rows
from kernelopt.support.arithmetic import UNIT
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array, Ints

REMEMBERED = 3  # products Qv, which an engine, the point's value and its certificate ask for in turn
# Multipliers and coefficients are multiples of each other up to rounding. A product is that of a known vector where
# entries differ by SAME, relatively. With the factor and the last rounding these are six roundings, which the errors
# below count.
SAME, ROUNDINGS = 4 * UNIT, 8
SMALL = 1e-140  # products of smaller numbers may underflow


@dataclass(frozen=True, eq=False)
class WholeMatrix(TallMatrix):
    """Q in place of B, for solvers in kernel space."""

    array: Array
    orthonormal = False

    @property
    def shape(self) -> tuple[int, int]:
        return self.array.shape[0], self.array.shape[0]

    def __matmul__(self, v: Array) -> Array:
        if v.ndim == 2 and v.shape[1] == 1:
            return (self @ v[:, 0])[:, None]
        if v.ndim == 2:
            return np.asarray(self.array @ v)
        largest = float(v[np.argmax(np.abs(v))]) if len(v) else 0.0
        if not SMALL < abs(largest) < 1 / SMALL:
            return np.asarray(self.array @ v)
        unit = v / largest
        if np.any((np.abs(unit) < SMALL) & (unit != 0)):
            return np.asarray(self.array @ v)
        for known, product in self._last:
            if np.all(np.abs(known - unit) <= SAME * np.abs(known)):
                return largest * product
        some = np.flatnonzero(unit)
        product = np.asarray(unit[some] @ self.array[some] if len(some) < SPARSE * len(v) else self.array @ unit)
        self._last[:] = [(unit, product), *self._last][:REMEMBERED]
        return largest * product

    @cached_property
    def _last(self) -> list[tuple[Array, Array]]:
        return []

    def adjoint(self, d: Array) -> Array:
        return np.array(d)

    def inner(self, V: Array) -> Array:
        return np.asarray(V.T @ (self @ V))

    def rows(self, chosen: Ints) -> Array:
        return np.asarray(self.array[chosen])

    def first(self, count: int) -> TallMatrix:
        """All columns, or none."""
        if count >= len(self):
            return self
        return DenseMatrix(np.zeros((len(self), 0))) if count == 0 else _refuse()

    def combined(self, E: sp.csr_array) -> Array:
        return np.asarray(E @ self.array)

    def outer(self) -> Array | None:
        return self.array

    def entries(self) -> str:
        return "looked up in Q"

    def row_squares(self) -> Array:
        return self.array.diagonal().copy()

    def gram(self, weights: Array, D: Array | None = None) -> Array:
        return _refuse()

    def cross(self, other: TallMatrix, weights: Array) -> Array:
        return _refuse()

    def connected(self, other: TallMatrix, T: sp.csr_array) -> Array:
        return _refuse()

    def column_squares(self, weights: Array | None = None) -> Array:
        return _refuse()

    def least_squares(self, target: Array) -> Array:
        return _refuse()

    def spectrum(self) -> Array:
        return _refuse()

    def beside(self, T: Array, room: Room | None = None, limit: float | None = None) -> tuple[Any, Room | None]:
        return _refuse()


def _refuse() -> NoReturn:
    raise SolverError("Expected a solver in kernel space; this one needs a factor of the kernel matrix.")


class WholeFactor(Factor):
    """Q itself, N kernel values per prediction; fewer where multipliers are 0."""

    method = "none"
    is_nested = False
    is_whole = True

    def _coefficients(self, v: Array) -> Array:
        return v

    def predictions(self, rows: Rows, v: Array) -> Array:
        return np.asarray(self.matrix @ v)

    def product(self, rows: Rows, V: Array) -> Array:
        return np.asarray(self.matrix @ V)

    def quadratic(self, rows: Rows, V: Array) -> Array:
        return self.matrix.inner(V)

    def product_error(self, rows: Rows, V: Array) -> Array:
        return rows.product_error(V, len(rows) + ROUNDINGS)

    def quadratic_error(self, rows: Rows, V: Array) -> Array:
        return rows.quadratic_error(V, 2 * len(rows) + ROUNDINGS)


def whole(rows: Rows, memory_limit: float | None = None) -> Factor:
    """Q of rows whose kernel is positive semidefinite by rule, as nothing is checked here."""
    start, n = perf_counter(), len(rows)
    memory.require(needed(n), f"The kernel matrix of {n} distinct rows", memory_limit)
    Q = rows.gram_to_read()
    rows.require_digits(float(Q.diagonal().mean()))
    return WholeFactor(WholeMatrix(Q.T), 1.0, np.arange(n), 0.0, perf_counter() - start, 0.0)


def needed(n: int) -> float:
    """Bytes of Q, and of the copies of a part of it that solvers make."""
    return 24.0 * n * n
