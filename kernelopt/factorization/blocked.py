"""Streamed Cholesky with B in blocks of rows: in single precision, or on the workers of a cluster.

Pivots are chosen in this process (`elimination.py`), from diag(Q − BBᵀ) and a few rows of B. Columns are computed where
the blocks are, by tasks that get only their points, the pivots and L.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as sl

from kernelopt.factorization import memory
from kernelopt.factorization.block_matrix import Block, BlockMatrix, Executor
from kernelopt.factorization.dense import CholeskyFactor, Settings, relative_trace
from kernelopt.factorization.elimination import BLOCK, Elimination, GrowingColumns
from kernelopt.factorization.factor import Factor
from kernelopt.factorization.row_block import RowBlock
from kernelopt.language.rows import Rows
from kernelopt.support import clock
from kernelopt.support.types import Array, Ints

# Rows of kernel values that a task holds at a time, and columns in a pass over the kernel: 8 MB. Larger tiles take more
# memory per thread, smaller ones call the kernel more often.
TILE = 1024
# Tasks per thread, at least, in a pass over the kernel. More tasks divide the work more evenly; each has a latency.
PANELS = 8


@dataclass(frozen=True)
class Layout:
    """Where blocks are and what they hold.

    executor : where tasks on them run; rows : rows per block; dtype : of B's entries
    """

    executor: Executor
    rows: int
    dtype: Any = np.float64


@dataclass(frozen=True, eq=False)
class BlockFactor(CholeskyFactor):
    """B = K_XS L⁻ᵀ in blocks, with L in double precision.

    Attributes
    ----------
    L : (r, r) lower triangular, K_SS = scale·LLᵀ
    residual_diagonal : (n,), diag(Q)/scale − diag(BBᵀ)
    parts : the blocks of rows, stored where those of B are
    layout : where blocks are; spans : whether the rank is the number of rows or features
    """

    L: Array
    residual_diagonal: Array
    parts: tuple[Any, ...]
    layout: Layout
    spans: bool

    method = "streamed Cholesky, B in blocks"
    grows = True

    @property
    def is_exact(self) -> bool:  # type: ignore[override]
        return self.layout.dtype == np.float64

    @property
    def is_restriction(self) -> bool:
        """In single precision, a factor with as many columns as rows or features leaves a residual of rounding only."""
        return super().is_restriction and (self.is_exact or not self.spans)

    def in_one_array(self, rows: Rows) -> Factor:
        """B in double precision, from kernel values. Raises MemoryLimitError."""
        memory.require(8.0 * len(rows) * self.rank, f"B of {len(rows)} rows as one array", None)
        K = rows.block(self.pivots, np.arange(len(rows))) / self.scale
        B = np.ascontiguousarray(sl.solve_triangular(self.L, K, lower=True, overwrite_b=True, check_finite=False).T)
        return CholeskyFactor(B, self.scale, self.pivots, self.residual, 0.0, 0.0)

    def _coefficients(self, v: Array) -> Array:
        c: Array = sl.solve_triangular(self.L, v, trans="T", lower=True) / self.scale
        return c

    def predictions(self, rows: Rows, v: Array) -> Array:
        return self._at_rows(*rows.expansion(self.pivots, self.coefficients(v)))

    def product(self, rows: Rows, V: Array) -> Array:
        """QV, by tasks for pairs of blocks, whose results are summed per block."""
        support = np.flatnonzero(V.any(axis=1))
        # The columns of the support take n·|support| kernel values; panels use the symmetry of Q and take n²/2.
        if 2 * len(support) < len(rows):
            return self._at_rows(*rows.expansion(support, V[support]))
        executor, found = self.layout.executor, np.zeros((len(rows), V.shape[1]))
        panels = self._panels(V)
        parts = executor.keep(_panel_product, [p.block for p in panels], [p.arguments for p in panels])
        mine: list[list[tuple[Any, int, int]]] = [[] for _ in self.parts]
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
        """VᵀQV, by tasks for pairs of blocks and one sum."""
        panels = self._panels(V)
        total = self.layout.executor.total(
            _panel_quadratic, [p.block for p in panels], [p.arguments for p in panels]
        )  # fmt: skip
        return np.asarray(total + total.T) / 2

    def product_error(self, rows: Rows, V: Array) -> Array:
        """For sums over a tile, then the tiles of a panel, then the panels of a block; or over all rows with V ≠ 0."""
        count = int(np.count_nonzero(V.any(axis=1)))
        few = count + 2 * len(rows.centers) + 8
        return rows.product_error(V, few if 2 * count < len(rows) else TILE + self._summands(V) + 8)

    def quadratic_error(self, rows: Rows, V: Array) -> Array:
        """For two sums over a tile, then the tiles of a panel, then all panels."""
        return rows.quadratic_error(V, additions=2 * TILE + self._summands(V) + 8)

    def _summands(self, V: Array) -> int:
        """The largest number of tiles in a panel, plus the number of panels."""
        panels, largest = self._panels(V), int(np.diff(self.B.starts).max())
        tall = max(p.arguments[-1] - p.arguments[-2] for p in panels)
        return -(-tall // TILE) * (-(-largest // TILE) + 1) + len(panels)

    def _at_rows(self, centers: Array, coefficients: Array) -> Array:
        arguments = [(centers, coefficients)] * len(self.parts)
        return np.concatenate(self.layout.executor.each(RowBlock.predictions, self.parts, arguments))

    def _panels(self, V: Array) -> list[_Panel]:
        """Panels of the pairs of blocks i ≥ j, with some rows of i each, so that every thread gets several."""
        factors, count = [V[a:b] for a, b in pairwise(self.B.starts)], len(self.parts)
        pieces = -(-PANELS * self.layout.executor.threads // (count * (count + 1) // 2))
        found = []
        for i, j in np.column_stack(np.tril_indices(count)).tolist():
            cuts = np.unique(np.linspace(0, len(factors[i]), pieces + 1).astype(int))
            other = (None, None) if i == j else (self.parts[j], factors[j])
            for a, b in pairwise(cuts.tolist()):
                found.append(_Panel(self.parts[i], (other[0], factors[i], other[1], a, b), i, j))
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
    begin = clock.now()
    work, columns = _begun(rows, settings, memory_limit, layout, start if isinstance(start, BlockFactor) else None)
    work.run(columns)
    return columns.factor(work, begin)


def grown(  # noqa: PLR0917
    rows: Rows, known: BlockFactor, nu: Array, products: Array | None, count: int, settings: Settings,
    memory_limit: float | None,
) -> BlockFactor:  # fmt: skip
    """`count` more pivots that take most from νᵀEν."""
    begin = clock.now()
    work, columns = _begun(rows, settings, memory_limit, known.layout, known)
    work.run_towards(columns, nu, products, count, BLOCK)
    return columns.factor(work, begin)


def _begun(
    rows: Rows, settings: Settings, limit: float | None, layout: Layout, known: BlockFactor | None
) -> tuple[Elimination, BlockColumns]:
    """The elimination and its columns, as the known factor left them or before the first pivot."""
    work = Elimination(rows, settings, limit, float(np.finfo(layout.dtype).eps))
    if known is not None:
        work.resume(known.pivots, known.residual_diagonal)
        return work, BlockColumns(layout, known.parts, known.B, known.L)
    work.refuse_what_samples_show()
    starts = _starts(rows, layout.rows)
    parts = tuple(layout.executor.send([RowBlock.of(rows, np.arange(a, b)) for a, b in pairwise(starts)]))
    empty = layout.executor.keep(_empty, parts, [(layout.dtype,)] * len(parts))
    return work, BlockColumns(layout, parts, BlockMatrix(tuple(empty), starts, 0, layout.executor), np.zeros((0, 0)))


def _starts(rows: Rows, size: int) -> Ints:
    """Where blocks begin, and the end: each takes `size` points, as rows or in combinations, or one row."""
    taken = np.cumsum(rows.mass())
    first = np.flatnonzero(np.diff((taken - 1) // size, prepend=-1))
    return np.append(first, len(rows))


class BlockColumns(GrowingColumns):
    """B in blocks, computed where the points are, and the Cholesky factor L of Q on the pivots in double precision."""

    def __init__(
        self, layout: Layout, parts: tuple[Any, ...], B: BlockMatrix, L: Array
    ) -> None:  # fmt: skip
        self.layout, self.parts, self.B, self.L = layout, parts, B, L

    def rows(self, chosen: Ints) -> Array:
        return self.B.rows(chosen)

    def adjoint(self, d: Array) -> Array:
        return self.B.adjoint(d)

    def append(self, work: Elimination, chosen: Ints, here: Array, L: Array) -> Array:
        k, n = self.B.width, len(self.B)
        self._require_memory(work, k + len(chosen))
        job = (RowBlock.of(work.rows, chosen), here, L, work.scale, k)
        executor, blocks = self.layout.executor, self.B.blocks
        finer = executor.keep(_with_columns, blocks, [(X, *job) for X in self.parts])
        self.B = replace(self.B, blocks=tuple(finer), width=k + len(chosen))
        self.L = np.block([[self.L, np.zeros((k, len(chosen)))], [here, L]])
        return np.concatenate(executor.each(_last_squares, finer, [()] * len(finer))).reshape(n)

    def squares(self, first: int) -> Array:
        return self.B.column_squares()[first:]

    def drop(self, end: int) -> Array:
        before = self.B.row_squares()
        self.B, self.L = self.B.first(end), self.L[:end, :end]
        return np.clip(before - self.B.row_squares(), 0.0, None)

    def _require_memory(self, work: Elimination, columns: int) -> None:
        """Raise MemoryLimitError where this process, or all workers together, can't hold so many columns."""
        n, entry, most = len(self.B), np.dtype(self.layout.dtype).itemsize, work.most
        most = most if most < n else columns
        what = f"A solve with a factor of {n} distinct rows and {most} columns"
        remedy, whole = "Set max_rank or a larger rank_tol, use fewer rows", memory.of_solve(n, most, entry)
        allowed = self.layout.executor.allowed_bytes(work.limit)
        memory.require(float(entry) * n * columns, what, allowed, remedy, whole)

    def rows_exactly(self, work: Elimination, chosen: Ints) -> Array:
        """K_{chosen,S}L⁻ᵀ. They become rows of L, which has to be in double precision whatever B is in."""
        if self.layout.dtype == np.float64 or not work.rank:
            return self.rows(chosen)
        return np.asarray(sl.solve_triangular(self.L, work.kernel(work.pivots, chosen), lower=True).T)

    def _rounded(self, work: Elimination) -> None:
        """Recompute L from kernel values in double precision and B from L, so that B has no error but the rounding of
        its entries.

        Where the Cholesky factorization breaks down, the pivots from there on are dropped: they were independent only
        by rounding in single precision.
        """
        executor = self.layout.executor
        L, failed = sl.lapack.dpotrf(work.kernel(work.pivots, work.pivots), lower=1, clean=1)
        rank = failed - 1 if failed > 0 else len(L)
        pivots, self.L = work.pivots[:rank], np.asarray(L[:rank, :rank])
        job = (RowBlock.of(work.rows, pivots), self.L, work.scale)
        blocks = executor.keep(_from_kernel, self.B.blocks, [(X, *job) for X in self.parts])
        self.B = replace(self.B, blocks=tuple(blocks), width=rank)
        left = np.clip(work.diagonal - self.B.row_squares(), 0.0, None)
        left[pivots] = 0.0
        work.resume(pivots, left)

    def factor(self, work: Elimination, begin: float) -> BlockFactor:
        if self.layout.dtype != np.float64 and work.rank:
            self._rounded(work)
        self.B = self.B.joined()
        return BlockFactor(
            B=self.B, scale=work.scale, pivots=work.pivots,
            residual=relative_trace(work.d, work.diagonal, work.row_scale),
            kernel_seconds=0.0, factor_seconds=clock.now() - begin, L=self.L, residual_diagonal=work.d,
            parts=self.parts, layout=self.layout,
            spans=work.rank in (len(work.d), work.rows.features),
        )  # fmt: skip


# ------------------------------------------------------------ tasks


def _empty(X: RowBlock, dtype: Any) -> Array:
    return np.empty((len(X), 0), dtype=dtype)


def _with_columns(  # noqa: PLR0917
    B: Block, X: RowBlock, pivots: RowBlock, here: Array, L: Array, scale: float, k: int
) -> Block:
    """Append (K_XS/scale − BB_Sᵀ)L⁻ᵀ to the columns of B, some rows at a time; B itself is not copied."""
    parts = B if isinstance(B, tuple) else (B[:, :k],)
    n = len(parts[0])
    found = np.empty((n, len(L)), dtype=parts[0].dtype)
    for i in range(0, n, TILE):
        clock.check()  # where this process runs the task: the workers of a cluster know no deadline
        E, at = X[i : i + TILE].gram(pivots) / scale, 0
        for part in parts:
            E -= part[i : i + TILE].astype(float, copy=False) @ here[:, at : at + part.shape[1]].T
            at += part.shape[1]
        found[i : i + TILE] = sl.solve_triangular(L, E.T, lower=True, check_finite=False).T
    return (*parts, found) if k else (found,)


def _from_kernel(B: Block, X: RowBlock, pivots: RowBlock, L: Array, scale: float) -> Array:
    """K_XS L⁻ᵀ/scale in the precision of B."""
    found = np.empty((len(X), len(L)), dtype=B[0].dtype)
    for i in range(0, len(X), TILE):
        clock.check()
        K = X[i : i + TILE].gram(pivots) / scale
        found[i : i + TILE] = sl.solve_triangular(L, K.T, lower=True, check_finite=False).T
    return found


def _last_squares(B: tuple[Array, ...]) -> Array:
    part = B[-1].astype(float, copy=False)
    return np.einsum("ij,ij->i", part, part)


def _tiles(n: int, a: int, b: int) -> Iterator[tuple[slice, slice]]:
    """Tiles of rows a to b and n columns; for n = 0, the tiles below the diagonal."""
    for i in range(a, b, TILE):
        end = n or i
        for j in range(0, end, TILE):
            yield slice(i, min(i + TILE, b)), slice(j, min(j + TILE, end))


def _diagonal_tiles(a: int, b: int) -> Iterator[slice]:
    for i in range(a, b, TILE):
        yield slice(i, min(i + TILE, b))


def _panel_product(  # noqa: PLR0917
    X: RowBlock, Z: RowBlock | None, V: Array, W: Array | None, a: int, b: int
) -> tuple[Array, Array]:
    """κ(X, Z)W for rows a to b of X, and κ(Z, X)V from the same kernel values.

    For Z None, the first product takes the tiles of κ(X, X) on and below the diagonal, the second the mirror images of
    those below it.
    """
    other, U = (X, V) if Z is None or W is None else (Z, W)
    left, right = np.zeros((b - a, V.shape[1])), np.zeros_like(U)
    for rows in _diagonal_tiles(a, b) if Z is None else ():
        left[rows.start - a : rows.stop - a] = X[rows].gram() @ V[rows]
    for rows, columns in _tiles(0 if Z is None else len(Z), a, b):
        K = X[rows].gram(other[columns])
        left[rows.start - a : rows.stop - a] += K @ U[columns]
        right[columns] += K.T @ V[rows]
    return left, right


def _sum_of_sides(
    part: tuple[Array, Array], n: int, places: list[tuple[int, int]], *others: tuple[Array, Array]
) -> Array:
    """The sum of parts of panels, n rows. Each place is (side, first): which array of the part, and its first row."""
    total = np.zeros((n, part[0].shape[1]))
    for pair, (side, first) in zip((part, *others), places, strict=True):
        total[first : first + len(pair[side])] += pair[side]
    return total


def _panel_quadratic(  # noqa: PLR0917
    X: RowBlock, Z: RowBlock | None, V: Array, W: Array | None, a: int, b: int
) -> Array:
    """The share of a panel and its mirror image in VᵀQV, from the rows with V ≠ 0 only."""
    chosen = np.flatnonzero(V.any(axis=1))
    a, b = np.searchsorted(chosen, (a, b))
    X, V = X[chosen], V[chosen]
    other, U = (X, V) if Z is None or W is None else _filled(Z, W)
    total = np.zeros((V.shape[1], V.shape[1]))
    if not len(other):
        return total
    for rows, columns in _tiles(0 if Z is None else len(other), a, b):
        part = V[rows].T @ (X[rows].gram(other[columns]) @ U[columns])
        total += part + part.T
    for rows in _diagonal_tiles(a, b) if Z is None else ():
        total += V[rows].T @ X[rows].gram() @ V[rows]
    return total


def _filled(Z: RowBlock, W: Array) -> tuple[RowBlock, Array]:
    chosen = np.flatnonzero(W.any(axis=1))
    return Z[chosen], W[chosen]
