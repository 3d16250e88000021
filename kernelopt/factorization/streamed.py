"""Factors of a kernel matrix that is never formed: pivoted Cholesky, a block of columns at a time (`elimination.py`).

It takes (r+1)N kernel values and those of the E_CC, N r² flops in matrix products, and O(N r) memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.blas import dtrsm

from kernelopt.factorization import memory
from kernelopt.factorization.dense import CholeskyFactor, Settings, relative_trace
from kernelopt.factorization.elimination import BLOCK, STRETCH, Elimination, GrowingColumns
from kernelopt.factorization.factor import Factor
from kernelopt.factorization.tall import Room
from kernelopt.language.rows import Rows
from kernelopt.support import clock
from kernelopt.support.types import Array, Ints

# Bytes of the first array of B, 64 MB. A smaller one is copied more often while B grows, a larger one is wasted on
# factors of low rank.
ROOM = 2**26
# Pivots per draw of candidates, where a certificate asks for them. E_CC then has (CANDIDATES·CHUNK)² entries, 8 MB.
# Smaller chunks take more draws, each with a pass over B for Bᵀν.
CHUNK = 256


@dataclass(frozen=True, eq=False)
class StreamedFactor(CholeskyFactor):
    """B = K_XS L⁻ᵀ from columns of Q alone; nested: the first k columns are the factor of the first k pivots.

    Attributes
    ----------
    residual_diagonal : (n,), diag(Q)/scale − diag(BBᵀ)
    """

    residual_diagonal: Array

    method = "streamed Cholesky"
    grows = True


def streamed_cholesky(
    rows: Rows, settings: Settings, memory_limit: float | None = None, start: Factor | None = None
) -> Factor:
    """Q = scale·BBᵀ from (r+1)n kernel values, in O(n r²) flops and O(n r) memory.

    It stops as the dense factor does. `start` is a streamed factor of the same rows, whose pivots are kept. A kernel
    that is not positive semidefinite by rule is tried on random rows, and on the candidates of each round; NotPSDError
    is raised where a principal submatrix of Q is indefinite. A kernel that is indefinite on other rows only passes.
    """
    begin = clock.now()
    known = start if isinstance(start, StreamedFactor) else None
    work, columns = _begun(rows, settings, memory_limit, known)
    work.run(columns)
    return columns.factor(work, begin)


def with_pivots(  # noqa: PLR0917
    rows: Rows, known: StreamedFactor, nu: Array, products: Array | None, count: int, spare: int, settings: Settings,
    memory_limit: float | None,
) -> StreamedFactor:  # fmt: skip
    """`count` more pivots that take most from νᵀEν, and room for `spare` columns of functions behind them."""
    begin = clock.now()
    work, columns = _begun(rows, settings, memory_limit, known, known.rank + count + spare)
    columns.spare = spare
    work.run_towards(columns, nu, products, count, CHUNK)
    return columns.factor(work, begin)


def _begun(
    rows: Rows, settings: Settings, limit: float | None, known: StreamedFactor | None, wanted: int | None = None
) -> tuple[Elimination, ArrayColumns]:
    """The elimination and its columns, as the known factor left them or before the first pivot."""
    work = Elimination(rows, settings, limit, GrowingColumns.precision)
    columns = ArrayColumns(len(rows), wanted)
    if known is None:
        work.refuse_what_samples_show()
        return work, columns
    work.resume(known.pivots, known.residual_diagonal)
    columns.B, columns.rank = known.B, known.rank
    columns.make_room(work, wanted or known.rank + 1)
    columns.B[:, : known.rank] /= work.row_scale[:, None]
    columns.bring_forward(known.pivots, 0)
    return work, columns


class ArrayColumns(GrowingColumns):
    """B as one array, with room for more columns; for `wanted` columns in all, where that number is known.

    Its rows are permuted so that pivots come first: the other rows are then one slice, to which columns are added
    without copies.
    """

    def __init__(self, n: int, wanted: int | None) -> None:
        self.B, self.rank, self.wanted, self.spare = np.empty((n, 0)), 0, wanted, 0
        self.order, self.place = np.arange(n), np.arange(n)

    def rows(self, chosen: Ints) -> Array:
        return self.B[self.place[chosen], : self.rank]

    def adjoint(self, d: Array) -> Array:
        return np.asarray(self.B[:, : self.rank].T @ d[self.order])

    def append(self, work: Elimination, chosen: Ints, here: Array, L: Array) -> Array:
        n, k, end = len(self.B), self.rank, self.rank + len(L)
        self.make_room(work, end)
        self.bring_forward(chosen, k)
        B, squares = self.B, np.zeros(n)
        B[:k, k:end], B[k:end, k:end] = 0.0, L
        for i in range(end, n, STRETCH):
            clock.check()
            some = slice(i, min(i + STRETCH, n))
            E = work.kernel(chosen, self.order[some])
            E -= here @ B[some, :k].T
            C = dtrsm(1.0, L.T, E.T, side=1, overwrite_b=True)
            B[some, k:end] = C
            squares[self.order[some]] = np.einsum("ij,ij->i", C, C)
        self.rank = end
        return squares

    def bring_forward(self, chosen: Ints, first: int) -> None:
        """Exchange the chosen rows with those at the places from `first` on."""
        places, known = np.arange(first, first + len(chosen)), self.place[chosen]
        to = np.r_[places, np.setdiff1d(known, places)]
        come = np.r_[known, np.setdiff1d(places, known)]
        self.order[to], self.B[to, : self.rank] = self.order[come], self.B[come, : self.rank]
        self.place[self.order[to]] = to

    def squares(self, first: int) -> Array:
        part = self.B[:, first : self.rank]
        return np.asarray(np.einsum("ij,ij->j", part, part))

    def drop(self, end: int) -> Array:
        part, found = self.B[:, end : self.rank], np.empty(len(self.B))
        found[self.order] = np.einsum("ij,ij->i", part, part)
        self.rank = end
        return found

    def make_room(self, work: Elimination, needed: int) -> None:
        """Copy B into an array with at least `needed` columns: as many as are likely, and within the memory limit.

        The new array owns its memory, as `shrink` requires.
        """
        n, old = self.B.shape
        if needed <= old:
            return
        # The old array counts against a limit that the user set; from the available memory it is already missing.
        held = 0 if work.limit is None else 8.0 * n * old
        affordable = (memory.allowed_bytes(work.limit) - held) / (8 * n)
        if self.wanted is None:
            # 15 % more than extrapolated and the columns of one more round, since a copy costs more; from 1.25 to 8
            # times the old width, since the extrapolation is rough.
            expected = 1.15 * work.expected_rank(self) + needed - self.rank
            likely = max(min(expected, 8 * old), 1.25 * old, ROOM / (8 * n))
        else:
            likely = self.wanted
        width = max(int(min(likely, work.most, affordable)), needed)
        most = max(work.most if work.most < n and self.wanted is None else 0, width)
        what = f"A solve with a factor of {n} distinct rows and {most} columns"
        remedy, whole = "Set max_rank or a larger rank_tol, use fewer rows", memory.of_solve(n, most)
        memory.require(held + 8.0 * n * width, what, work.limit, remedy, whole)
        wider = np.empty((n, width))
        for i in range(0, n, STRETCH):
            clock.check()
            wider[i : i + STRETCH, : self.rank] = self.B[i : i + STRETCH, : self.rank]
        self.B = wider

    def factor(self, work: Elimination, begin: float) -> StreamedFactor:
        # Rows return to their own order a few columns at a time, without a second B.
        moved = np.flatnonzero(self.order != np.arange(len(self.order)))
        for columns in (slice(j, min(j + BLOCK, self.rank)) for j in range(0, self.rank, BLOCK)):
            self.B[self.order[moved], columns] = self.B[moved, columns]
        shrink(self.B, min(self.rank + self.spare, self.B.shape[1]))
        B = self.B[:, : self.rank] if self.spare else self.B
        if work.rows.mixed:
            B *= work.row_scale[:, None]
        return StreamedFactor(
            B=B, scale=work.scale, pivots=work.pivots, residual=relative_trace(work.d, work.diagonal, work.row_scale),
            kernel_seconds=work.kernel_seconds, factor_seconds=clock.now() - begin - work.kernel_seconds,
            residual_diagonal=work.d * work.row_scale**2, room=Room(self.B, self.rank) if self.spare else None,
        )  # fmt: skip


def shrink(B: Array, width: int) -> None:
    """Drop all but the first `width` columns of B, in place."""
    n, flat = len(B), B.reshape(-1)
    for i in range(0, n, STRETCH // 8):
        rows = B[i : i + STRETCH // 8, :width].ravel()
        flat[i * width : i * width + rows.size] = rows  # writes never overtake what is still to be read
    B.resize((n, width), refcheck=False)
