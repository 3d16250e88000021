"""Streamed Cholesky with B in blocks of rows: in single precision, or on the workers of a cluster.

Pivots are chosen here, as `streamed` and `growing` choose them, from diag(Q − BBᵀ) and a few rows of B; columns are
made where the blocks are, by tasks that know their points, the pivots and L alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as sl
from scipy.linalg.lapack import dpotrf

from kernelopt.factorization import memory
from kernelopt.factorization.block_matrix import Block, BlockMatrix, Executor
from kernelopt.factorization.dense import (
    SAMPLE,
    CholeskyFactor,
    Settings,
    negligible,
    refuse_declared,
    refuse_indefinite,
    relative_trace,
    units,
)
from kernelopt.factorization.factor import FLOOR, Factor
from kernelopt.factorization.streamed import BLOCK, CANDIDATES, LEAST, NOISE, ROUNDS, best_of, best_towards
from kernelopt.kernels.kernel import Kernel
from kernelopt.language.functions import Function
from kernelopt.language.rows import Rows
from kernelopt.support import clock
from kernelopt.support.types import Array, Ints

TILE = 1024  # rows and columns of kernel values that stand in memory at a time
PANELS = 8  # tasks of a pass over the kernel, for each thread at least


@dataclass(frozen=True)
class Layout:
    """Where blocks are and what they hold.

    executor : who works on them; rows : rows of a block; dtype : of B's entries
    """

    executor: Executor
    rows: int
    dtype: Any = np.float64


@dataclass(frozen=True, eq=False)
class BlockFactor(CholeskyFactor):
    """B = K_XS L⁻ᵀ in blocks, with L in double precision; `points` are the blocks of X, where B's are.

    Attributes
    ----------
    L : (r, r) lower triangular, K_SS = scale·LLᵀ
    residual_diagonal : (n,), diag(Q)/scale − diag(BBᵀ)
    points : blocks of points; kernel : κ
    layout : where blocks are; spans : whether the rank is the number of rows or features
    """

    L: Array
    residual_diagonal: Array
    points: tuple[Any, ...]
    kernel: Kernel
    layout: Layout
    spans: bool

    method = "streamed Cholesky, B in blocks"
    grows = True

    @property
    def is_exact(self) -> bool:  # type: ignore[override]
        return self.layout.dtype == np.float64

    @property
    def is_restriction(self) -> bool:
        """What single precision leaves of the trace is none."""
        return super().is_restriction and (self.is_exact or not self.spans)

    def in_one_array(self, rows: Rows) -> Factor:
        """B in double precision, from kernel values. Raises MemoryLimitError."""
        memory.require(8.0 * len(rows) * self.rank, f"B of {len(rows)} rows as one array", None)
        K = rows.block(self.pivots, np.arange(len(rows))) / self.scale
        B = np.ascontiguousarray(sl.solve_triangular(self.L, K, lower=True, overwrite_b=True, check_finite=False).T)
        return CholeskyFactor(B, self.scale, self.pivots, self.residual, 0.0, 0.0)

    def coefficients(self, v: Array) -> Array:
        c: Array = sl.solve_triangular(self.L, v, trans="T", lower=True) / self.scale
        return c

    def predictions(self, rows: Rows, v: Array) -> Array:
        return self._at_rows(*rows.expansion(self.pivots, self.coefficients(v)))

    def product(self, rows: Rows, V: Array) -> Array:
        """QV: tasks for pairs of blocks, and sums for each block."""
        support = np.flatnonzero(V.any(axis=1))
        if 2 * len(support) < len(rows):
            return self._at_rows(*rows.expansion(support, V[support]))
        executor, found = self.layout.executor, np.zeros((len(rows), V.shape[1]))
        panels = self._panels(V)
        parts = executor.keep(_panel_product, [p.block for p in panels], [p.arguments for p in panels])
        mine: list[list[tuple[Any, int, int]]] = [[] for _ in self.points]
        for panel, part in zip(panels, parts, strict=True):
            mine[panel.i].append((part, 0, panel.arguments[-2]))
            mine[panel.j].append((part, 1, 0))
        sizes, sums = np.diff(self.B.starts), []
        for summands, size in zip(mine, sizes, strict=True):
            sums.append((int(size), [c[1:] for c in summands], *(c[0] for c in summands[1:])))
        totals = executor.each(_sum_of_sides, [summands[0][0] for summands in mine], sums)
        np.concatenate(totals, out=found)
        return found

    def quadratic(self, rows: Rows, V: Array) -> Array:
        """VᵀQV: tasks for pairs of blocks, and one sum."""
        panels = self._panels(V)
        total = self.layout.executor.total(
            _panel_quadratic, [p.block for p in panels], [p.arguments for p in panels]
        )  # fmt: skip
        return np.asarray(total + total.T) / 2

    def product_error(self, rows: Rows, V: Array) -> Array:
        """Of sums over a tile, the tiles of a panel, and the panels of a block; or over all rows with V ≠ 0."""
        few = 2 * int(np.count_nonzero(V.any(axis=1))) < len(rows)
        return rows.product_error(V, additions=None if few else TILE + self._summands(V) + 8)

    def quadratic_error(self, rows: Rows, V: Array) -> Array:
        """Of two sums over a tile, the tiles of a panel, and all panels."""
        return rows.quadratic_error(V, additions=2 * TILE + self._summands(V) + 8)

    def _summands(self, V: Array) -> int:
        """The most tiles of a panel, and the number of panels."""
        panels, largest = self._panels(V), int(np.diff(self.B.starts).max())
        tall = max(p.arguments[-1] - p.arguments[-2] for p in panels)
        return -(-tall // TILE) * (-(-largest // TILE) + 1) + len(panels)

    def _at_rows(self, centers: Array, coefficients: Array) -> Array:
        arguments = [(self.kernel, centers, coefficients)] * len(self.points)
        return np.concatenate(self.layout.executor.each(_values, self.points, arguments))

    def _panels(self, V: Array) -> list[_Panel]:
        """Pairs of blocks i ≥ j, some rows of i at a time, so that there are several for each thread."""
        parts, count = [V[a:b] for a, b in pairwise(self.B.starts)], len(self.points)
        pieces = -(-PANELS * self.layout.executor.threads // (count * (count + 1) // 2))
        found = []
        for i, j in np.column_stack(np.tril_indices(count)).tolist():
            cuts = np.unique(np.linspace(0, len(parts[i]), pieces + 1).astype(int))
            other = (None, None) if i == j else (self.points[j], parts[j])
            for a, b in pairwise(cuts.tolist()):
                found.append(_Panel(self.points[i], (other[0], self.kernel, parts[i], other[1], a, b), i, j))
        return found


class _Panel(NamedTuple):
    """Rows a to b of block i of the kernel matrix, in block column j."""

    block: Any
    arguments: tuple[Any, ...]
    i: int
    j: int


def blocked_cholesky(
    rows: Rows, settings: Settings, memory_limit: float | None, layout: Layout, start: Factor | None = None
) -> BlockFactor:
    """Q = scale·BBᵀ as `streamed_cholesky` makes it, with B in blocks."""
    begin = perf_counter()
    work = _Elimination(rows, settings, memory_limit, layout, start if isinstance(start, BlockFactor) else None)
    rng = np.random.default_rng([settings.seed, work.rank])
    while work.rank < work.most and work.left > work.goal and work.advance(rng):
        pass
    return work.factor(perf_counter() - begin)


def grown(  # noqa: PLR0917
    rows: Rows, known: BlockFactor, nu: Array, products: Array | None, count: int, settings: Settings,
    memory_limit: float | None,
) -> BlockFactor:  # fmt: skip
    """`count` more pivots that take most from νᵀEν."""
    begin = perf_counter()
    work = _Elimination(rows, settings, memory_limit, known.layout, known)
    rng = np.random.default_rng([settings.seed, work.rank])
    end = min(work.rank + count, work.most)
    while work.rank < end and work.advance_towards(nu, products, min(BLOCK, end - work.rank), rng):
        pass
    return work.factor(perf_counter() - begin)


class _Elimination:
    """Pivots, columns in blocks, and diag(E)."""

    def __init__(
        self, rows: Rows, settings: Settings, limit: float | None, layout: Layout, known: BlockFactor | None
    ) -> None:
        n = len(rows)
        self.rows, self.layout, self.limit = rows, layout, limit
        diagonal = rows.diagonal()
        self.scale, _ = units(rows, diagonal)
        self.diagonal = diagonal / self.scale
        precision = max(rows.kernel.precision, float(np.finfo(layout.dtype).eps))
        self.noise, self.negligible = NOISE * precision * self.diagonal, max(negligible(rows), NOISE * precision)
        self.trace = float(self.diagonal.sum())
        self.goal, self.most = max(settings.rank_tol, FLOOR) * self.trace, min(n, settings.max_rank or n)
        if known is None:
            if rows.kernel.is_psd is not True:
                drawn = np.random.default_rng(settings.seed).permutation(n)[:SAMPLE]
                refuse_indefinite(rows.subset(np.sort(drawn)), limit)
            refuse_declared(rows)
            starts = np.append(np.arange(0, n, layout.rows), n)
            parts = [rows.points[a:b] for a, b in pairwise(starts)]
            self.points = tuple(layout.executor.send(parts))
            empty = layout.executor.keep(_empty, self.points, [(layout.dtype,)] * len(parts))
            self.B = BlockMatrix(tuple(empty), starts, 0, layout.executor)
            self.d, self.pivots = self.diagonal.copy(), np.zeros(0, dtype=np.intp)
            self.L: Array = np.zeros((0, 0))
        else:
            self.points, self.B = known.points, known.B
            self.d, self.pivots, self.L = known.residual_diagonal.copy(), known.pivots, known.L

    @property
    def rank(self) -> int:
        return len(self.pivots)

    @property
    def left(self) -> float:
        return float(self.d.sum())

    def advance(self, rng: np.random.Generator) -> bool:
        n = len(self.d)
        least = np.maximum(self.goal / n, self.noise)
        weights = np.where(self.d > least, self.d, 0.0)
        count = min(max(n // ROUNDS, 16), BLOCK, self.most - self.rank)
        drawn = self._drawn(weights, count, rng)
        if drawn is None:
            return False
        best, L = best_of(self._residual(drawn), count, least[drawn])
        self._append(drawn[best], L)
        return True

    def advance_towards(self, nu: Array, products: Array | None, count: int, rng: np.random.Generator) -> bool:
        least = np.maximum(LEAST * self.diagonal, self.noise)
        weights = np.where(self.d > least, self.d * np.sum(nu**2, axis=1), 0.0)
        drawn = self._drawn(weights, count, rng)
        if drawn is None:
            return False
        support = np.flatnonzero(nu.any(axis=1))
        if products is not None:
            h = products[drawn] / self.scale
        else:
            h = np.zeros((len(drawn), nu.shape[1]))
            for i in range(0, len(support), TILE):
                some = support[i : i + TILE]
                h += self.rows.block(drawn, some) @ nu[some] / self.scale
        h -= self.B[drawn] @ (self.B.T @ nu)
        best, L = best_towards(self._residual(drawn), h, count, least[drawn])
        self._append(drawn[best], L)
        return True

    def _drawn(self, weights: Array, count: int, rng: np.random.Generator) -> Ints | None:
        eligible = int(np.count_nonzero(weights))
        if not eligible or count < 1:
            return None
        size = min(eligible, CANDIDATES * count)
        return np.sort(rng.choice(len(weights), size, replace=False, p=weights / weights.sum()))

    def _residual(self, drawn: Ints) -> Array:
        E, B = self.rows.block(drawn, drawn) / self.scale, self.B[drawn]
        E -= B @ B.T
        np.fill_diagonal(E, self.d[drawn])
        if self.rows.kernel.is_psd is not True:
            _, info = dpotrf(E + self.negligible * np.eye(len(E)), lower=1, overwrite_a=1)
            if info > 0:
                self._refuse_indefinite(drawn)
        return E

    def _refuse_indefinite(self, suspects: Ints) -> None:
        """Raise NotPSDError if Q is indefinite on the pivots and these rows, and not by rounding."""
        refuse_indefinite(self.rows.subset(np.union1d(self.pivots, suspects)), self.limit)

    def _append(self, chosen: Ints, L: Array) -> None:
        """The columns E_{·S}L⁻ᵀ, made where the blocks are."""
        clock.check()
        k = self.rank
        self._require_memory(k + len(chosen))
        here = self._on_pivots(chosen)
        job = (self.rows.kernel, self.rows.points[chosen], here, L, self.scale, k)
        executor, blocks = self.layout.executor, self.B.blocks
        finer = executor.keep(_with_columns, blocks, [(X, *job) for X in self.points])
        self.B = replace(self.B, blocks=tuple(finer), width=k + len(chosen))
        squares = executor.each(_last_squares, finer, [()] * len(finer))
        self.d = self.d - np.concatenate(squares)
        if self.d.min() < -self.negligible:
            self._refuse_indefinite(np.append(chosen, self.d.argmin()))
        np.clip(self.d, 0.0, None, out=self.d)
        self.pivots = np.concatenate([self.pivots, chosen])
        self.L = np.block([[self.L, np.zeros((k, len(chosen)))], [here, L]])
        self.d[self.pivots] = 0.0

    def _require_memory(self, columns: int) -> None:
        """Of this process, or of all workers."""
        n, entry = len(self.d), np.dtype(self.layout.dtype).itemsize
        most = self.most if self.most < n else columns
        what = f"A solve with a factor of {n} distinct rows and {most} columns"
        remedy, whole = "Set max_rank or a larger rank_tol, use fewer rows", memory.of_solve(n, most, entry)
        memory.require(float(entry) * n * columns, what, self.layout.executor.allowed_bytes(self.limit), remedy, whole)

    def _on_pivots(self, chosen: Ints) -> Array:
        """Rows of B that are pivots from now on, in double precision: K_{chosen,S}L⁻ᵀ."""
        if self.layout.dtype == np.float64 or not self.rank:
            return np.asarray(self.B[chosen])
        K = self.rows.block(self.pivots, chosen) / self.scale
        return np.asarray(sl.solve_triangular(self.L, K, lower=True, check_finite=False).T)

    def _rounded(self) -> None:
        """B anew from kernel values and L in double precision, off by its own rounding and no more; without pivots that
        are independent in single precision only."""
        L, failed = sl.lapack.dpotrf(self.rows.block(self.pivots, self.pivots) / self.scale, lower=1, clean=1)
        rank = failed - 1 if failed > 0 else len(L)
        self.pivots, self.L = self.pivots[:rank], np.asarray(L[:rank, :rank])
        points = self.rows.points[self.pivots]
        job, executor = (self.rows.kernel, points, self.L, self.scale), self.layout.executor
        blocks = executor.keep(_from_kernel, self.B.blocks, [(X, *job) for X in self.points])
        self.B = replace(self.B, blocks=tuple(blocks), width=rank)
        self.d = np.clip(self.diagonal - self.B.row_squares(), 0.0, None)
        self.d[self.pivots] = 0.0

    def factor(self, seconds: float) -> BlockFactor:
        if self.layout.dtype != np.float64 and self.rank:
            self._rounded()
        self.B = self.B.joined()
        return BlockFactor(
            B=self.B, scale=self.scale, pivots=self.pivots,
            residual=relative_trace(self.d, self.diagonal, np.ones(len(self.d))),
            kernel_seconds=0.0, factor_seconds=seconds, L=self.L, residual_diagonal=self.d,
            points=self.points, kernel=self.rows.kernel, layout=self.layout,
            spans=self.rank in (len(self.d), self.rows.features),
        )  # fmt: skip


# ------------------------------------------------------------ tasks


def _empty(X: Array, dtype: Any) -> Array:
    return np.empty((len(X), 0), dtype=dtype)


def _with_columns(  # noqa: PLR0917
    B: Block, X: Array, kernel: Kernel, pivots: Array, here: Array, L: Array, scale: float, k: int
) -> Block:
    """(K_XS/scale − BB_Sᵀ)L⁻ᵀ behind the columns of B, some rows at a time; B itself is not copied."""
    parts = B if isinstance(B, tuple) else (B[:, :k],)
    n = len(parts[0])
    found = np.empty((n, len(L)), dtype=parts[0].dtype)
    for i in range(0, n, TILE):
        E, at = kernel._matrix(X[i : i + TILE], pivots) / scale, 0
        for part in parts:
            E -= part[i : i + TILE].astype(float, copy=False) @ here[:, at : at + part.shape[1]].T
            at += part.shape[1]
        found[i : i + TILE] = sl.solve_triangular(L, E.T, lower=True, check_finite=False).T
    return (*parts, found) if k else (found,)


def _from_kernel(B: Block, X: Array, kernel: Kernel, pivots: Array, L: Array, scale: float) -> Array:  # noqa: PLR0917
    """K_XS L⁻ᵀ/scale in the precision of B."""
    found = np.empty((len(X), len(L)), dtype=B[0].dtype)
    for i in range(0, len(X), TILE):
        K = kernel._matrix(X[i : i + TILE], pivots) / scale
        found[i : i + TILE] = sl.solve_triangular(L, K.T, lower=True, check_finite=False).T
    return found


def _last_squares(B: tuple[Array, ...]) -> Array:
    part = B[-1].astype(float, copy=False)
    return np.einsum("ij,ij->i", part, part)


def _values(X: Array, kernel: Kernel, centers: Array, coefficients: Array) -> Array:
    return Function._of_rows(kernel, centers, coefficients)._evaluate(X)


def _tiles(n: int, a: int, b: int) -> Iterator[tuple[slice, slice]]:
    """Tiles of rows a to b and n columns; for n = 0, of those below the diagonal."""
    for i in range(a, b, TILE):
        end = n or i
        for j in range(0, end, TILE):
            yield slice(i, min(i + TILE, b)), slice(j, min(j + TILE, end))


def _diagonal_tiles(a: int, b: int) -> Iterator[slice]:
    for i in range(a, b, TILE):
        yield slice(i, min(i + TILE, b))


def _panel_product(  # noqa: PLR0917
    X: Array, Z: Array | None, kernel: Kernel, V: Array, W: Array | None, a: int, b: int
) -> tuple[Array, Array]:
    """κ(X, Z)W for rows a to b of X, and κ(Z, X)V from the same kernel values; for Z None, of κ(X, X) the part on and
    below the diagonal, and below it."""
    other, U = (X, V) if Z is None or W is None else (Z, W)
    left, right = np.zeros((b - a, V.shape[1])), np.zeros_like(U)
    for rows in _diagonal_tiles(a, b) if Z is None else ():
        left[rows.start - a : rows.stop - a] = kernel._matrix(X[rows], None) @ V[rows]
    for rows, columns in _tiles(0 if Z is None else len(Z), a, b):
        K = kernel._matrix(X[rows], other[columns])
        left[rows.start - a : rows.stop - a] += K @ U[columns]
        right[columns] += K.T @ V[rows]
    return left, right


def _sum_of_sides(
    part: tuple[Array, Array], n: int, places: list[tuple[int, int]], *others: tuple[Array, Array]
) -> Array:
    """The n rows that parts add up to; each place is a side of a part, and its first row."""
    total = np.zeros((n, part[0].shape[1]))
    for pair, (side, first) in zip((part, *others), places, strict=True):
        total[first : first + len(pair[side])] += pair[side]
    return total


def _panel_quadratic(  # noqa: PLR0917
    X: Array, Z: Array | None, kernel: Kernel, V: Array, W: Array | None, a: int, b: int
) -> Array:
    """What a panel and its mirror image add to VᵀQV; rows without multipliers cost nothing."""
    chosen = np.flatnonzero(V.any(axis=1))
    a, b = np.searchsorted(chosen, (a, b))
    X, V = X[chosen], V[chosen]
    other, U = (X, V) if Z is None or W is None else _filled(Z, W)
    total = np.zeros((V.shape[1], V.shape[1]))
    if not len(other):
        return total
    for rows, columns in _tiles(0 if Z is None else len(other), a, b):
        part = V[rows].T @ (kernel._matrix(X[rows], other[columns]) @ U[columns])
        total += part + part.T
    for rows in _diagonal_tiles(a, b) if Z is None else ():
        total += V[rows].T @ kernel._matrix(X[rows], None) @ V[rows]
    return total


def _filled(Z: Array, W: Array) -> tuple[Array, Array]:
    chosen = np.flatnonzero(W.any(axis=1))
    return Z[chosen], W[chosen]
