"""What the functions of a separable problem read, s = Cx = Σₖ EₖBₖvₖ + Fy with x = (v₁ … v_K, y): products with C."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from kernelopt.factorization.tall import TallMatrix
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array, Ints

# Entries up to which a row of E enters the sparse EᵀWE, to which it adds the square of their number. A longer row is
# multiplied with B once instead, and takes a dense row of memory.
DENSE_ROW = 16
# Time per flop of a product with a vector, relative to one of products of matrices: it reads each entry of B for two
# flops. `Systems` weighs conjugate gradients against factors with it.
MEMORY_BOUND = 4
# Entries of B from which adjoints are made from known ones: of a smaller B a product takes little beside the search.
# REMEMBERED are kept, and after CHAIN of them in turn a new product is made, as each adds a rounding.
LARGE, REMEMBERED, CHAIN = 2**17, 3, 50
HALF = 0.5  # share of rows with a weight up to which a copy of them pays for some products with CᵀWC

LinearMap = Callable[[Array], Array]


class _Adjoint(NamedTuple):
    """Cᵀg without y, and how many adjoints in turn it was made from."""

    g: Array
    value: Array
    after: int


@dataclass(frozen=True, eq=False)
class _Pair:
    """How EₖᵀWEₗ depends on weights: two entries of row `of` add products·(weight of the row) to the entry `to`.

    rows, columns : where the entries stand; columns is None for a diagonal matrix
    """

    rows: Ints
    columns: Ints | None
    to: Ints
    products: Array
    of: Ints

    def weighted(self, weights: Array) -> Array:
        """The entries of EₖᵀWEₗ."""
        return np.bincount(self.to, self.products * weights[self.of], minlength=len(self.rows))


@dataclass(frozen=True, eq=False)
class Coupling:
    """C of the module's formula.

    blocks : Bₖ (nₖ, rₖ); E : (m, Σnₖ) sparse; F : (m, q), sparse where many columns share few rows
    """

    blocks: tuple[TallMatrix, ...]
    E: sp.csr_array
    F: Array | sp.csr_array

    # ------------------------------------------------------------ sizes

    @cached_property
    def ends(self) -> Ints:
        """The bounds of the vₖ in x, from 0 to Σrₖ: vₖ is x[ends[k] : ends[k + 1]]."""
        return np.cumsum([0, *(B.shape[1] for B in self.blocks)])

    @cached_property
    def _rows(self) -> Ints:
        """The bounds of the Bₖvₖ in d, from 0 to Σnₖ."""
        return np.cumsum([0, *(len(B) for B in self.blocks)])

    @property
    def m(self) -> int:
        return int(self.E.shape[0])

    @property
    def q(self) -> int:
        return int(self.F.shape[1])

    @property
    def size(self) -> int:
        return int(self.ends[-1]) + self.q

    @property
    def rank(self) -> int:
        """The columns of the widest B; 0 without any."""
        return max((B.shape[1] for B in self.blocks), default=0)

    # ------------------------------------------------------------ products

    def products(self, x: Array) -> Array:
        """s = Cx."""
        return self.arguments(self.predictions(x), x[self.ends[-1] :])

    def arguments(self, d: Array, y: Array) -> Array:
        """s = Ed + Fy."""
        return self._spread(d) + self.F @ y

    def predictions(self, x: Array) -> Array:
        """d = (Bₖvₖ), with one product for all outputs of a θ."""
        parts = [x[a:b] for a, b in pairwise(self.ends)]
        if self.one_factor:
            return np.asarray(self.blocks[0] @ np.column_stack(parts)).ravel(order="F")
        return np.concatenate([np.zeros(0), *(B @ v for B, v in zip(self.blocks, parts, strict=True))])

    def adjoint(self, g: Array) -> Array:
        """Cᵀg.

        Engines change few multipliers at a time, so that it is made from a known one, Cᵀg + Cᵀδ, where δ has few
        entries. A g with few entries is such a δ.
        """
        if g.ndim != 1 or not self._few:
            return self._back(self._gathered(g), self.F.T @ g)
        known, some = None, np.flatnonzero(g)
        for one in self._adjoints:
            others = np.flatnonzero(one.g != g)
            known, some = (one, others) if len(others) < len(some) else (known, some)
        step = g[some] if known is None else g[some] - known.g[some]
        y, after = self.F.T @ g, 0
        if known is None and len(some) <= self._few * len(g):
            return np.append(self._of_rows(some, step), y)
        if known is None or not self._is_near(known, some, step, g):
            value = self._back(self._gathered(g), np.zeros(0))
        else:
            value, after = known.value + self._of_rows(some, step), known.after + 1
        self._adjoints[:] = [_Adjoint(np.array(g), value, after), *self._adjoints][:REMEMBERED]
        return np.append(value, y)

    def curved(self, weights: Array) -> LinearMap:
        """The map x ↦ CᵀWCx, from rows with a weight where these are few."""
        some = np.flatnonzero(weights)
        if not self._few or len(some) > HALF * self.m or sp.issparse(self.F):
            return lambda x: self.adjoint(weights * self.products(x))
        end, G, F, w = self.ends[-1], self.rows(some), self.F[some], weights[some]

        def product(x: Array) -> Array:
            s = w * (G @ x[:end] + F @ x[end:])
            return np.append(G.T @ s, F.T @ s)

        return product

    def rows(self, chosen: Ints) -> Array:
        """Some rows of EB, (len(chosen), Σrₖ)."""
        if len(self.blocks) == 1 and np.all(np.diff(self.E.indptr)[chosen] == 1):
            first = self.E.indptr[chosen]
            return self.E.data[first][:, None] * self.blocks[0].rows(self.E.indices[first])
        E = sp.csr_array(self.E[chosen])
        return np.hstack(
            [np.zeros((len(chosen), 0))]
            + [
                B.combined(sp.csr_array(E[:, a:b]))
                for B, a, b in zip(self.blocks, self._rows[:-1], self._rows[1:], strict=True)
            ]
        )

    @cached_property
    def product_cost(self) -> float:
        """Flops of a product with C or Cᵀ, in terms of the time of flops of matrix products."""
        entries = max(sum(B.size for B in self.blocks), 1)
        return MEMORY_BOUND * 2.0 * entries + sum(B.latency for B in self.blocks)

    # ------------------------------------------------------------ CᵀWC

    def gram(self, weights: Array) -> Array:
        """CᵀWC."""
        p, v = self.size, [slice(a, b) for a, b in pairwise(self.ends)]
        H, y = np.zeros((p, p)), slice(self.ends[-1], p)
        WF = weights[:, None] * self.F
        D = self._gathered(WF[:, 0])[:, None] if self.q == 1 else self._gathered(WF)
        for k, (B, rows) in enumerate(zip(self.blocks, map(slice, self._rows[:-1], self._rows[1:]), strict=True)):
            pair = self._pairs.get((k, k))
            if pair is None:
                H[v[k], y] = B.adjoint(D[rows])
            else:
                found = _with_border(B, pair, pair.weighted(weights), D[rows])
                H[v[k], v[k]], H[v[k], y] = found[:, : B.shape[1]], found[:, B.shape[1] :]
        for (k, other), pair in self._pairs.items():
            if k != other:
                H[v[k], v[other]] = _weighted(self.blocks[k], self.blocks[other], pair, pair.weighted(weights))
                H[v[other], v[k]] = H[v[k], v[other]].T
        if self._long.any():
            long = self._long_rows
            H[: y.start, : y.start] += long.T @ (weights[self._long][:, None] * long)
        H[y, : y.start] = H[: y.start, y].T
        H[y, y] = self.F.T @ WF
        return H

    def gram_diagonal(self, weights: Array) -> Array:
        """The diagonal of CᵀWC, approximate: products of two entries of one row of E are left out."""
        squares = self.E.multiply(self.E).T @ weights
        parts = [
            B.column_squares(squares[a:b]) for B, a, b in zip(self.blocks, self._rows[:-1], self._rows[1:], strict=True)
        ]
        return np.concatenate([*parts, self.F.T**2 @ weights])

    # ------------------------------------------------------------ how products are made

    @cached_property
    def _one_each(self) -> bool:
        """Whether each row of E has one entry: products with E are then done by indexing."""
        return self.E.nnz == self.m and bool(np.all(np.diff(self.E.indptr) == 1))

    @cached_property
    def one_factor(self) -> bool:
        """Whether several blocks are one matrix, as those of a θ with several outputs."""
        return len(self.blocks) > 1 and all(B is self.blocks[0] for B in self.blocks)

    def _spread(self, d: Array) -> Array:
        """Ed."""
        return self.E.data * d[self.E.indices] if self._one_each else np.asarray(self.E @ d)

    def _gathered(self, g: Array) -> Array:
        """Eᵀg."""
        if self._one_each and g.ndim == 1:
            return np.bincount(self.E.indices, self.E.data * g, minlength=self.E.shape[1])
        return np.asarray(self._E_back @ g)

    @cached_property
    def _E_back(self) -> sp.csr_array:
        """Eᵀ, cached since scipy would convert it at each product."""
        return sp.csr_array(self.E.T)

    def _back(self, d: Array, y: Array) -> Array:
        parts = [d[a:b] for a, b in pairwise(self._rows)]
        if self.one_factor:
            return np.append(self.blocks[0].adjoint(np.column_stack(parts)).ravel(order="F"), y)
        return np.concatenate([*(B.adjoint(one) for B, one in zip(self.blocks, parts, strict=True)), y])

    def _is_near(self, known: _Adjoint, some: Ints, step: Array, g: Array) -> bool:
        """Whether g differs from a known one in few entries, and is not much less, so that roundings stay small."""
        return (
            len(some) <= self._few * len(g)
            and known.after < CHAIN
            and bool(np.abs(step).sum() <= np.abs(g).sum())
        )  # fmt: skip

    @cached_property
    def _few(self) -> float:
        """The share of rows up to which an adjoint is made from theirs; 0 where that does not pay."""
        small = sum(B.size for B in self.blocks) < LARGE
        return 0.0 if small or not self._one_each or self.one_factor else min(B.few for B in self.blocks)

    @cached_property
    def _adjoints(self) -> list[_Adjoint]:
        return []

    def _of_rows(self, some: Ints, g: Array) -> Array:
        """Cᵀg without y, for the entries g of some rows."""
        at, values = self.E.indices[some], self.E.data[some] * g
        if len(self.blocks) == 1:
            return np.asarray(values @ self.blocks[0].rows(at))
        inside = [(at >= a) & (at < b) for a, b in pairwise(self._rows)]
        parts = zip(self.blocks, self._rows[:-1], inside, strict=True)
        return np.concatenate([values[here] @ B.rows(at[here] - start) for B, start, here in parts])

    @cached_property
    def _long(self) -> Array:
        """The rows of E with so many entries that they would make EᵀWE dense."""
        return np.diff(self.E.indptr) > DENSE_ROW

    @cached_property
    def _long_rows(self) -> Array:
        """The rows of EB for the long rows of E, (few, Σrₖ)."""
        return self.rows(np.flatnonzero(self._long))

    @cached_property
    def _pairs(self) -> dict[tuple[int, int], _Pair]:
        """EₖᵀWEₗ for each pair of blocks that some row of E connects."""
        short = sp.csr_array(sp.diags_array((~self._long).astype(float)) @ self.E) if self._long.any() else self.E
        found = {}
        stretches = list(zip(self._rows[:-1], self._rows[1:], strict=True))
        parts = [short] if len(stretches) == 1 else [sp.csr_array(short[:, a:b]) for a, b in stretches]
        for k, left in enumerate(parts):
            for other in range(k, len(parts)):
                pair = _pair(left, parts[other])
                if pair is not None:
                    found[k, other] = pair
        return found


def _pair(a: sp.csr_array, b: sp.csr_array) -> _Pair | None:
    """The products of each two entries of two blocks in the same row; None where no row has entries in both."""
    counts_a, counts_b = np.diff(a.indptr), np.diff(b.indptr)
    number = counts_a * counts_b
    total = int(number.sum())
    if total == 0:
        return None
    row = np.repeat(np.arange(len(number)), number)
    within = np.arange(total) - np.repeat(np.cumsum(number) - number, number)
    i = a.indptr[row] + within // counts_b[row]
    j = b.indptr[row] + within % counts_b[row]
    products = a.data[i] * b.data[j]
    r, c = a.indices[i], b.indices[j]
    if a.shape[1] == b.shape[1] and np.array_equal(r, c):
        n = a.shape[1]
        return _Pair(np.arange(n), None, r, products, row)
    entries, which = np.unique(r.astype(np.int64) * b.shape[1] + c, return_inverse=True)
    return _Pair(entries // b.shape[1], entries % b.shape[1], which.ravel(), products, row)


def _with_border(B: TallMatrix, pair: _Pair, t: Array, D: Array) -> Array:
    """[BᵀTB, BᵀD], with T given by its entries."""
    if pair.columns is None:
        return B.gram(t, D)
    return np.hstack([B.squares(_matrix(B, B, pair, t)), B.adjoint(D)])


def _weighted(left: TallMatrix, right: TallMatrix, pair: _Pair, t: Array) -> Array:
    """leftᵀ T right, with T given by its entries."""
    if pair.columns is None:
        return left.cross(right, t)
    return left.connected(right, _matrix(left, right, pair, t))


def _matrix(left: TallMatrix, right: TallMatrix, pair: _Pair, t: Array) -> sp.csr_array:
    """T with the entries t."""
    return sp.csr_array((t, (pair.rows, pair.columns)), shape=(len(left), len(right)))
