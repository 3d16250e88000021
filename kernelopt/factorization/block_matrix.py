"""B as blocks of rows, for factors that are not one array: in single precision, or on the workers of a cluster.

Sums are taken in double precision, whatever the precision of the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from kernelopt.errors import SolverError
from kernelopt.factorization import memory
from kernelopt.factorization.tall import MOST_CHOSEN, TallMatrix
from kernelopt.support import clock
from kernelopt.support.types import Array, Ints

# Bytes of a block, in double precision, that are converted and multiplied at a time. 2 MB still fit the cache, so that
# the product reads what was just converted; smaller pieces make more and smaller products.
CACHED = 2**21
# Rows of B that are collected in this process at once, 8·FEW·r bytes. For more rows, products with B are computed where
# the blocks are, at the price of passes over all of B.
FEW = 4096
CONNECTED = (
    "Expected terms and constraints of one prediction each where B is not one array in double precision; these "
    "connect predictions of different rows, or of several θs. Leave out backend and dtype."
)

Block = Array | tuple[Array, ...]
Work = Callable[..., Any]
Arguments = tuple[Any, ...]


class Executor(Protocol):
    """Where tasks on blocks run: in this process, or on a cluster."""

    @property
    def threads(self) -> int:
        """The number of tasks that run at the same time."""

    @property
    def latency(self) -> float:
        """The time of a pass over all blocks besides the work itself, counted in multiplications of all threads."""

    def allowed_bytes(self, limit: float | None) -> float:
        """Bytes that B may take: the limit, or by default a share of the available memory."""

    def send(self, blocks: Sequence[Any]) -> list[Any]:
        """Move blocks of this process to where tasks on them will run."""

    def each(self, function: Work, blocks: Sequence[Any], arguments: Sequence[Arguments]) -> list[Any]:
        """function(block, *arguments) for each block; the results come to this process."""

    def keep(self, function: Work, blocks: Sequence[Any], arguments: Sequence[Arguments]) -> list[Any]:
        """As `each`, but the results stay where they were computed, as new blocks."""

    def total(self, function: Work, blocks: Sequence[Any], arguments: Sequence[Arguments]) -> Any:
        """The sum of the results of `each`."""


@dataclass(frozen=True)
class Here:
    """Tasks run in this process, one block after the other."""

    threads = 1
    latency = 0.0

    def allowed_bytes(self, limit: float | None) -> float:
        return memory.allowed_bytes(limit)

    def send(self, blocks: Sequence[Any]) -> list[Any]:
        return list(blocks)

    def each(self, function: Work, blocks: Sequence[Any], arguments: Sequence[Arguments]) -> list[Any]:
        return list(self._results(function, blocks, arguments))

    keep = each

    def total(self, function: Work, blocks: Sequence[Any], arguments: Sequence[Arguments]) -> Any:
        return reduce(add, self._results(function, blocks, arguments))

    @staticmethod
    def _results(function: Work, blocks: Sequence[Any], arguments: Sequence[Arguments]) -> Iterator[Any]:
        for k, (block, rest) in enumerate(zip(blocks, arguments, strict=True)):
            if k:
                clock.check()
            yield function(block, *rest)


@dataclass(frozen=True, eq=False)
class BlockMatrix(TallMatrix):
    """A tall matrix in blocks of rows, of which the first `width` columns count.

    Attributes
    ----------
    blocks : arrays; while a factor grows, tuples of arrays side by side; or the executor's handles of either
    starts : the row at which each block begins, followed by the number of rows
    width : number of columns
    executor : where tasks on the blocks run
    """

    blocks: tuple[Any, ...]
    starts: Ints
    width: int
    executor: Executor

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.starts[-1]), self.width

    @property
    def latency(self) -> float:
        return float(self.executor.latency)

    def __matmul__(self, v: Array) -> Array:
        found = self.executor.each(_times, self.blocks, [(np.asarray(v),)] * len(self.blocks))
        return np.concatenate(found)

    def _split(self, values: Array) -> list[Array]:
        return [values[a:b] for a, b in pairwise(self.starts)]

    def first(self, count: int) -> BlockMatrix:
        return replace(self, width=min(self.width, count))

    def rows(self, chosen: Ints) -> Array:
        owner = np.searchsorted(self.starts, chosen, side="right") - 1
        used = np.unique(owner)
        wanted = [(chosen[owner == k] - self.starts[k], self.width) for k in used]
        parts = self.executor.each(_rows, [self.blocks[k] for k in used], wanted)
        found = np.empty((len(chosen), self.width))
        for k, part in zip(used, parts, strict=True):
            found[owner == k] = part
        return found

    def gram(self, weights: Array, D: Array | None = None) -> Array:
        D = np.zeros((len(self), 0)) if D is None else D
        arguments = [(w, d, self.width) for w, d in zip(self._split(weights), self._split(D), strict=True)]
        return np.asarray(self.executor.total(_gram, self.blocks, arguments))

    def cross(self, other: TallMatrix, weights: Array) -> Array:
        """BᵀWC for a C in the same blocks of rows. Raises SolverError where C is not in blocks."""
        if not isinstance(other, BlockMatrix):
            raise SolverError(CONNECTED)
        parts = zip(other.blocks, self._split(weights), strict=True)
        arguments = [(right, w, self.width, other.width) for right, w in parts]
        return np.asarray(self.executor.total(_cross, self.blocks, arguments))

    def row_squares(self) -> Array:
        return np.concatenate(self.executor.each(_row_squares, self.blocks, [(self.width,)] * len(self.blocks)))

    def connected(self, other: TallMatrix, T: sp.csr_array) -> Array:
        """Raises SolverError: T connects rows of different blocks, and a task holds one block."""
        raise SolverError(CONNECTED)

    def column_squares(self, weights: Array | None = None) -> Array:
        weights = np.ones(len(self)) if weights is None else weights
        arguments = [(w, self.width) for w in self._split(weights)]
        return np.asarray(self.executor.total(_column_squares, self.blocks, arguments))

    def adjoint(self, d: Array) -> Array:
        arguments = [(part, self.width) for part in self._split(d)]
        return np.asarray(self.executor.total(_adjoint, self.blocks, arguments))

    def joined(self) -> BlockMatrix:
        """The same matrix with one array per block."""
        return replace(self, blocks=tuple(self.executor.keep(_joined, self.blocks, [()] * len(self.blocks))))

    def combined(self, E: sp.csr_array) -> Array:
        used, places = np.unique(E.indices, return_inverse=True)
        if len(used) <= FEW:
            few = sp.csr_array((E.data, places, E.indptr), shape=(E.shape[0], len(used)))
            return np.asarray(few @ self.rows(used))
        step = max(CACHED // (8 * len(self)), 1)  # rows of E that are made dense at a time
        parts = [self.adjoint(sp.csr_array(E[i : i + step]).toarray().T) for i in range(0, E.shape[0], step)]
        return np.hstack([np.zeros((self.width, 0)), *parts]).T

    def least_squares(self, target: Array) -> Array:
        """By the normal equations, since they need sums over blocks only."""
        return np.asarray(np.linalg.lstsq(self.gram(np.ones(len(self))), self.adjoint(target), rcond=None)[0])

    def spectrum(self) -> Array:
        return np.asarray(np.linalg.eigvalsh(self.gram(np.ones(len(self))))[::-1])

    def beside(self, T: Array, room: Any = None, limit: float | None = None) -> tuple[BlockMatrix, None]:
        """[B, T]. Each block keeps its part of T as one more array, so that no room behind B is needed."""
        arguments = [(part, self.width) for part in self._split(T)]
        blocks = self.executor.keep(_beside, self.blocks, arguments)
        return replace(self, blocks=tuple(blocks), width=self.width + T.shape[1]), None


# ------------------------------------------------------------ tasks on one block


def _stretches(B: Block, width: int, most: int = 0) -> Iterator[Array]:
    """The first `width` columns of a block in double precision, some rows at a time.

    There are as many rows as for max(width, most) columns, so that two blocks can be read in step. Each array that is
    yielded is overwritten by the next one.
    """
    parts = B if isinstance(B, tuple) else (B,)
    n = len(parts[0])
    widest = max(width, most)
    step = max(CACHED // (8 * widest), 1) if widest else max(n, 1)
    if len(parts) == 1 and parts[0].dtype == np.float64:
        for i in range(0, n, step):
            yield parts[0][i : i + step, :width]
        return
    room = np.empty((min(step, n), width))
    for i in range(0, n, step):
        rows, at = room[: min(step, n - i)], 0
        for part in parts:
            np.copyto(rows[:, at : at + part.shape[1]], part[i : i + step, : width - at])
            at += part.shape[1]
        yield rows


def _times(B: Block, v: Array) -> Array:
    return np.concatenate([part @ v for part in _stretches(B, len(v))])


def _rows(B: Block, chosen: Ints, width: int) -> Array:
    parts = B if isinstance(B, tuple) else (B,)
    return np.hstack([part[chosen] for part in parts])[:, :width].astype(float)


def _joined(B: Block) -> Array:
    return np.hstack(B) if isinstance(B, tuple) else B


def _gram(B: Block, weights: Array, D: Array, width: int) -> Array:
    whole, i = np.zeros((width, width + D.shape[1])), 0
    found, room = whole[:, :width], np.empty(max(CACHED // 8, width))
    for part in _stretches(B, width):
        clock.check()
        w = weights[i : i + len(part)]
        whole[:, width:] += part.T @ D[i : i + len(part)]
        i += len(part)
        chosen = np.flatnonzero(w)
        some = len(chosen) < MOST_CHOSEN * len(w)
        L, w = (part[chosen], w[chosen]) if some else (part, w)
        S = room[: L.size].reshape(L.shape)
        if np.all(w >= 0):
            # With the roots of the weights the product is SᵀS, which numpy computes in half the flops.
            np.multiply(np.sqrt(w)[:, None], L, out=S)
            found += S.T @ S
        else:
            np.multiply(w[:, None], L, out=S)
            found += L.T @ S
    return whole


def _cross(B: Block, C: Block, weights: Array, width: int, other: int) -> Array:
    found, i = np.zeros((width, other)), 0
    most = max(width, other)
    for left, right in zip(_stretches(B, width, most), _stretches(C, other, most), strict=True):
        found += left.T @ (weights[i : i + len(left), None] * right)
        i += len(left)
    return found


def _row_squares(B: Block, width: int) -> Array:
    return np.concatenate([np.einsum("ij,ij->i", part, part) for part in _stretches(B, width)])


def _column_squares(B: Block, weights: Array, width: int) -> Array:
    found, i = np.zeros(width), 0
    for part in _stretches(B, width):
        found += np.einsum("ij,ij,i->j", part, part, weights[i : i + len(part)])
        i += len(part)
    return found


def _adjoint(B: Block, d: Array, width: int) -> Array:
    found, i = np.zeros((width, *d.shape[1:])), 0
    for part in _stretches(B, width):
        found += part.T @ d[i : i + len(part)]
        i += len(part)
    return found


def _beside(B: Block, T: Array, width: int) -> Block:
    parts = B if isinstance(B, tuple) else (B[:, :width],)
    return (*parts, T.astype(parts[0].dtype))
