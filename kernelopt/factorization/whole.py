"""Q itself in place of a factor: θ = Σ cᵢ·(row i), so that u = Qc and ‖θ‖² = cᵀQc.

Where the factor would have a large share of N columns, and the solver needs products with Q and a few of its entries
alone, the factor and BBᵀ take most of the time. In the formulas of solvers B stands for Q and v for c. The coordinates
c belong to no orthonormal basis: the inner product of two of them is cᵀQd, and with it Bᵀd is d.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np
import scipy.sparse as sp

from kernelopt.errors import SolverError
from kernelopt.factorization import memory
from kernelopt.factorization.factor import Factor
from kernelopt.factorization.tall import SPARSE, DenseMatrix, Room, TallMatrix
from kernelopt.language.rows import Rows
from kernelopt.support import clock
from kernelopt.support.arithmetic import UNIT
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array, Ints

# Products Qv that are kept: an engine, the point's value and its certificate ask for the same one or nearly so, and the
# next problem of a path for one near the last. A vector with fewer entries than 1/SHORT of n is a step; its product
# takes little time, and is not kept.
REMEMBERED, SHORT = 3, 16
# Multipliers and coefficients are multiples of each other up to rounding. A product is that of a known vector where
# entries differ by SAME, relatively. With the factor and the last rounding these are six roundings, which the errors
# below count.
SAME, ROUNDINGS = 4 * UNIT, 8
# Share of entries that may differ for a product to be made from a known one: their rows of Q are copied, which takes
# three times as long as a product with them.
NEAR = 0.2
SMALL = 1e-140  # products of smaller numbers may underflow


class _Product(NamedTuple):
    """Qv as it was computed, with |error| ≤ γ(roundings)·√Qᵢᵢ·size and size = Σ √Qⱼⱼ|vⱼ|."""

    v: Array
    value: Array
    size: float
    roundings: float


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
        for asked, value in self._asked:
            if np.array_equal(asked, v):
                return value.copy()
        sizes = np.abs(v)
        largest = float(v[sizes.argmax()]) if len(v) else 0.0
        if not SMALL < abs(largest) < 1 / SMALL:
            return np.asarray(self.array @ v)
        unit = v / largest
        if np.count_nonzero(sizes > SMALL * abs(largest)) < np.count_nonzero(v):
            return np.asarray(self.array @ v)
        found = largest * self._product(unit)
        self._asked[:] = [(np.array(v), found), *self._asked][:REMEMBERED]
        return found.copy()

    def _product(self, v: Array) -> Array:
        """Qv, also from a known product, or by few rows of Q."""
        nearest, few = None, np.arange(len(v))
        for known in self._last:
            others = np.flatnonzero(np.abs(known.v - v) > SAME * np.abs(known.v))
            if not len(others):
                return known.value
            nearest, few = (known, others) if len(others) < len(few) else (nearest, few)
        some = np.flatnonzero(v)
        if SHORT * len(some) < len(v):
            return self._of_rows(some, v[some])
        size = float(self._lengths @ np.abs(v))
        found = None
        if nearest is not None and len(few) <= NEAR * len(v) and len(few) < len(some) and size:
            found = self._moved(nearest, v, few, size)
        if found is None:
            value = self._of_rows(some, v[some]) if len(some) < SPARSE * len(v) else np.asarray(self.array @ v)
            found = _Product(v, value, size, len(some))
        self._last[:] = [found, *self._last][:REMEMBERED]
        return found.value

    def _moved(self, known: _Product, v: Array, few: Ints, size: float) -> _Product | None:
        """Q(v + δ) = Qv + Qδ; None where that may round more than a product of its own.

        With n entries in δ its part has γ(n + 2) relative to Σ √Qⱼⱼ|δⱼ|, the entries left out SAME, and the sum one
        rounding more. Where v + δ is far smaller than v, the roundings of the latter would count many times.
        """
        step = v[few] - known.v[few]
        of_step = float(self._lengths[few] @ np.abs(step))
        roundings = (known.roundings * known.size + (len(few) + 2) * of_step) / size + SAME / UNIT + 2
        if not roundings <= len(v):
            return None
        return _Product(v, known.value + self._of_rows(few, step), size, roundings)

    def _of_rows(self, some: Ints, v: Array) -> Array:
        return np.asarray(v @ self.array[some])

    @cached_property
    def _lengths(self) -> Array:
        """√Qᵢᵢ."""
        return np.sqrt(np.clip(self.array.diagonal(), 0.0, None))

    @cached_property
    def _last(self) -> list[_Product]:
        """Products with vectors that were divided by their largest entry."""
        return []

    @cached_property
    def _asked(self) -> list[tuple[Array, Array]]:
        """The last vectors and their products, for equal ones."""
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
    start, n = clock.now(), len(rows)
    memory.require(needed(n), f"The kernel matrix of {n} distinct rows", memory_limit)
    Q = rows.gram_to_read()
    rows.require_digits(float(Q.diagonal().mean()))
    return WholeFactor(WholeMatrix(Q.T), 1.0, np.arange(n), 0.0, clock.now() - start, 0.0)


def needed(n: int) -> float:
    """Bytes of Q, and of the copies of a part of it that solvers make."""
    return 24.0 * n * n
