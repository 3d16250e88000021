"""Pivots of a kernel matrix that is never formed, chosen in blocks, wherever the columns of B are stored.

With the residual E = Q − BBᵀ of the pivots so far, each round

1. draws candidates C, row i with probability ∝ Eᵢᵢ, as randomly pivoted Cholesky does (Chen, Epperly, Tropp, Webber,
   CPAM 2025, arXiv 2207.06503; in blocks: Epperly, Tropp, Webber, arXiv 2410.03969);
2. takes the best quarter of them, S, one by one: the j with the largest Σ_{i∈C} Eᵢⱼ²/Eⱼⱼ, E_CC deflated after each;
3. appends the columns E_{·S}L⁻ᵀ, with E_SS = LLᵀ.

An outlier is drawn only as often as its share of the trace, whereas the rule of the largest Eᵢᵢ takes every outlier
first. Of candidates that are nearly equal, step 2 takes one. To leave a trace of 1e-2·trace(Q), this takes about 5 %
fewer columns than random pivots and 15 to 22 % fewer than the largest Eᵢᵢ; to leave 1e-8·trace(Q), 1 to 3 % fewer than
either (tests/benchmarks/factorization.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import log

import numpy as np
from scipy.linalg.blas import dsymv
from scipy.linalg.lapack import dpotrf

from kernelopt.factorization.dense import SAMPLE, Settings, negligible, refuse_declared, refuse_indefinite, units
from kernelopt.factorization.factor import FLOOR
from kernelopt.language.rows import Rows
from kernelopt.support import clock
from kernelopt.support.types import Array, Ints

# Columns per round, at most. Larger blocks make larger matrix products; smaller ones draw more often, from a diag(E)
# that is up to date.
BLOCK = 96
# Rounds until full rank, at least, from 512 rows on: a round has n/ROUNDS columns or fewer. The (CANDIDATES·block)²
# kernel values of E_CC are then at most CANDIDATES²/ROUNDS = 1/2 of the n·block that the columns take.
ROUNDS = 32
# Candidates per column that is taken. More of them find better pivots, at CANDIDATES² times the kernel values in E_CC.
CANDIDATES = 4
# Rows of kernel values that are computed at a time: 3 MB for the columns of a round, instead of N rows of them.
STRETCH = 4096
# Relative to Qᵢᵢ: rows with a smaller Eᵢᵢ are no candidates where a certificate asks for pivots. The pivots so far span
# them up to 1e-4 of their length, and a score hⱼ²/Eⱼⱼ of so small an Eⱼⱼ would amplify rounding in h.
LEAST = 1e-8
# In units of the relative precision of kernel values or of B, and of Qᵢᵢ: a smaller Eᵢᵢ is rounding. A pivot taken from
# rounding would add a meaningless column.
NOISE = 10.0


class GrowingColumns(ABC):
    """B while it grows, for Q of unit mean diagonal (of unit diagonal where rows are of mixed kinds)."""

    precision = float(np.finfo(float).eps)  # relative rounding error of its entries

    @abstractmethod
    def rows(self, chosen: Ints) -> Array:
        """Some rows of B."""

    def rows_exactly(self, work: Elimination, chosen: Ints) -> Array:
        """Rows of pivots, in double precision."""
        return self.rows(chosen)

    @abstractmethod
    def adjoint(self, d: Array) -> Array:
        """Bᵀd."""

    @abstractmethod
    def append(self, work: Elimination, chosen: Ints, here: Array, L: Array) -> Array:
        """Append the columns E_{·S}L⁻ᵀ for the rows S = chosen, and return ‖·‖² of the new part of each row.

        `here` are the rows S of B before, and E_SS = LLᵀ. Raises MemoryLimitError before memory is taken that the limit
        does not allow.
        """

    @abstractmethod
    def squares(self, first: int) -> Array:
        """Σᵢ Bᵢⱼ² of each column from `first` on."""

    @abstractmethod
    def drop(self, end: int) -> Array:
        """Keep the first `end` columns, and return ‖·‖² of the dropped part of each row."""


class Elimination:
    """The pivots so far, diag(E) after them, and the rounds that choose more."""

    def __init__(self, rows: Rows, settings: Settings, limit: float | None, precision: float) -> None:
        n, start = len(rows), clock.now()
        self.rows, self.limit, self.seed = rows, limit, settings.seed
        diagonal = rows.diagonal()
        self.kernel_seconds = clock.now() - start
        self.scale, self.row_scale = units(rows, diagonal)
        self.d = diagonal / self.scale / self.row_scale**2
        self.pivots = np.zeros(0, dtype=np.intp)
        precision = max(rows.kernel.precision, precision)
        self.by_rule, self.negligible = rows.kernel.is_psd is True, max(negligible(rows), NOISE * precision)
        self.diagonal, self.noise = self.d.copy(), NOISE * precision * self.d
        self.trace, self.checked = float(self.d.sum()), settings.checked
        self.goal, self.most = max(settings.rank_tol, FLOOR) * self.trace, min(n, settings.max_rank or n)
        self._require_nonnegative(np.zeros(0, dtype=np.intp))

    def refuse_what_samples_show(self) -> None:
        """Raise NotPSDError where random rows show that the kernel is indefinite.

        Where a rule proves the kernel positive semidefinite, only its declarations are checked.
        """
        if not self.checked:
            return
        if self.by_rule:
            refuse_declared(self.rows)
            return
        drawn = np.random.default_rng(self.seed).permutation(len(self.rows))[:SAMPLE]
        refuse_indefinite(self.rows.subset(np.sort(drawn)), self.limit, negligible(self.rows))

    def resume(self, pivots: Ints, residual_diagonal: Array) -> None:
        """Continue from pivots that are known."""
        self.pivots, self.d = pivots, residual_diagonal / self.row_scale**2

    @property
    def rank(self) -> int:
        return len(self.pivots)

    @property
    def left(self) -> float:
        """trace(E)."""
        return float(self.d.sum())

    def run(self, columns: GrowingColumns) -> None:
        """Run rounds until trace(E) is small enough, the largest rank is reached, or E is rounding."""
        rng = np.random.default_rng([self.seed, self.rank])
        while self.rank < self.most and self.left > self.goal and self._advance(columns, rng):
            pass

    def run_towards(self, columns: GrowingColumns, nu: Array, products: Array | None, count: int, most: int) -> None:
        """Add `count` pivots that reduce νᵀEν most, at most `most` of them per draw; `products` are Qν."""
        rng, end = np.random.default_rng([self.seed, self.rank]), min(self.rank + count, self.most)
        while self.rank < end and self._advance_towards(columns, nu, products, min(most, end - self.rank), rng):
            pass

    def _advance(self, columns: GrowingColumns, rng: np.random.Generator) -> bool:
        """One round: candidates, the best of them, their columns. False where all of E is rounding."""
        n, k = len(self.d), self.rank
        # Entries of diag(E) up to goal/n stay within the goal even where all are of that size.
        least = np.maximum(self.goal / n, self.noise)
        block = min(max(n // ROUNDS, 16), BLOCK)
        drawn = _drawn(np.where(self.d > least, self.d, 0.0), CANDIDATES * block, rng)
        if drawn is None:
            return False
        best, L = best_of(self._residual(columns, drawn), min(block, self.most - k), least[drawn])
        self._append(columns, drawn[best], L)
        if self.left <= self.goal:
            self._trim(columns, k)
        return True

    def _advance_towards(
        self, columns: GrowingColumns, nu: Array, products: Array | None, count: int, rng: np.random.Generator
    ) -> bool:
        """One round of pivots that reduce νᵀEν most, of candidates drawn with p ∝ νᵢ²Eᵢᵢ. False without candidates."""
        multipliers = nu * self.row_scale[:, None]
        least = np.maximum(LEAST * self.diagonal, self.noise)
        weights = np.where(self.d > least, self.d * np.sum(multipliers**2, axis=1), 0.0)
        drawn = _drawn(weights, CANDIDATES * count, rng)
        if drawn is None:
            return False
        # h = Eν = Qν − B(Bᵀν) on the candidates.
        h = self._product(drawn, multipliers, products) - columns.rows(drawn) @ columns.adjoint(multipliers)
        best, L = best_towards(self._residual(columns, drawn), h, count, least[drawn])
        self._append(columns, drawn[best], L)
        return True

    def _product(self, chosen: Ints, multipliers: Array, products: Array | None) -> Array:
        """Some rows of the normalized Q times multipliers."""
        if products is not None:
            return np.asarray(products[chosen] / self.scale / self.row_scale[chosen, None])
        support, found = np.flatnonzero(multipliers.any(axis=1)), np.zeros((len(chosen), multipliers.shape[1]))
        for i in range(0, len(support), STRETCH):
            clock.check()
            part = support[i : i + STRETCH]
            found += self.kernel(chosen, part) @ multipliers[part]
        return found

    def kernel(self, i: Ints, j: Ints) -> Array:
        """A block of the normalized Q."""
        start = clock.now()
        Q = self.rows.block(i, j)
        self.kernel_seconds += clock.now() - start
        if self.scale != 1:
            Q /= self.scale
        if self.rows.mixed:
            Q /= self.row_scale[i, None] * self.row_scale[j]
        return Q

    def expected_rank(self, columns: GrowingColumns) -> float:
        """The rank at which trace(E) is likely to reach its goal.

        y(k) = log(trace(Q)/trace(E)) = a·kᵖ is fitted at the present rank and at half of it. While y(k) < 1, the pivots
        may have been outliers, from which the rest can't be extrapolated: then twice the present rank is returned.
        """
        k, half = self.rank, self.rank // 2
        if self.left <= self.goal:
            return k
        if half == 0:
            return 2 * k
        squares = float(columns.squares(half).sum())
        before, now = log(self.trace / (self.left + squares)), log(self.trace / self.left)
        if now < 1 or not 0 < before < now:
            return 2 * k
        return float(k * (log(self.trace / self.goal) / now) ** (log(k / half) / log(now / before)))

    def _residual(self, columns: GrowingColumns, drawn: Ints) -> Array:
        """E_CC. Raises NotPSDError where E_CC + δI has no Cholesky factor, and eigenvalues confirm it."""
        E, B = self.kernel(drawn, drawn), columns.rows(drawn)
        E -= B @ B.T
        np.fill_diagonal(E, self.d[drawn])
        if not self.by_rule:
            _, info = dpotrf(E + self.negligible * np.eye(len(E)), lower=1, overwrite_a=1)
            if info > 0:
                self._refuse_indefinite(drawn)
        return E

    def _append(self, columns: GrowingColumns, chosen: Ints, L: Array) -> None:
        clock.check()
        here = columns.rows_exactly(self, chosen)
        self.d = self.d - columns.append(self, chosen, here, L)
        self.pivots = np.concatenate([self.pivots, chosen])
        self.d[self.pivots] = 0.0
        # Negative entries of diag(E) show how large rounding has become: pivots within NOISE times that are not taken.
        self.noise = np.maximum(self.noise, -NOISE * self.d.min(initial=0.0))
        self._require_nonnegative(chosen)

    def _trim(self, columns: GrowingColumns, first: int) -> None:
        """Drop the last columns of a round, which begins at `first`, that the goal does not need."""
        left = self.left + np.append(np.cumsum(columns.squares(first)[:0:-1])[::-1], 0.0)
        end = first + 1 + int(np.argmax(left <= self.goal))
        if end < self.rank:
            self.d += columns.drop(end)
            self.pivots = self.pivots[:end]

    def _require_nonnegative(self, chosen: Ints) -> None:
        """Clip diag(E) at 0. Raises NotPSDError where rounding does not explain a negative entry."""
        if self.d.min(initial=0.0) < -self.negligible:
            self._refuse_indefinite(np.append(chosen, self.d.argmin()))
        np.clip(self.d, 0.0, None, out=self.d)

    def _refuse_indefinite(self, suspects: Ints) -> None:
        """Raise NotPSDError if Q is indefinite on the pivots and these rows, and not by rounding."""
        refuse_indefinite(self.rows.subset(np.union1d(self.pivots, suspects)), self.limit, negligible(self.rows))


def _drawn(weights: Array, count: int, rng: np.random.Generator) -> Ints | None:
    """Rows with probabilities in proportion to weights, without replacement; None where all weights are 0."""
    eligible = int(np.count_nonzero(weights))
    if not eligible or count < 1:
        return None
    return np.sort(rng.choice(len(weights), min(eligible, count), replace=False, p=weights / weights.sum()))


def best_of(E: Array, count: int, least: Array) -> tuple[Ints, Array]:
    """Rows S of a residual matrix, chosen one by one to take most from its trace, and L with E_SS = LLᵀ.

    The next row is the j with the largest Σᵢ Eᵢⱼ²/Eⱼⱼ among those with Eⱼⱼ > leastⱼ; then E ← E − ccᵀ with
    c = E_{·j}/√Eⱼⱼ. Where Σᵢ Eᵢⱼ²/Eⱼⱼ² > len(E), the elimination would amplify the rounding in Eⱼⱼ in other rows: then
    Eⱼⱼ itself is the score.
    """
    d, squares = E.diagonal().copy(), np.einsum("ij,ij->j", E, E)
    C, chosen = np.empty((count, len(E))), np.empty(count, dtype=np.intp)
    k = 0
    while k < count and (d > least).any():
        stable = (d > least) & (squares <= len(E) * d**2)
        taken = np.maximum(d, np.divide(squares, d, out=np.zeros(len(d)), where=stable))
        j = chosen[k] = np.where(d > least, taken, -1.0).argmax()
        c = C[k] = (E[j] - C[:k, j] @ C[:k]) / np.sqrt(d[j])
        # Σᵢ (Eᵢⱼ − cᵢcⱼ)² = Σᵢ Eᵢⱼ² − 2cⱼ(Ec)ⱼ + cⱼ²‖c‖². The deflated E is never formed: it is the first E less CᵀC.
        squares += c * (c * (c @ c) - 2 * (dsymv(1.0, E.T, c) - (C[:k] @ c) @ C[:k]))
        d -= c * c
        d[j] = 0.0
        k += 1
    return chosen[:k], np.tril(C[:k, chosen[:k]].T)


def best_towards(E: Array, h: Array, count: int, least: Array) -> tuple[Ints, Array]:
    """Rows S of a residual matrix, chosen one by one to take most from νᵀEν, and L with E_SS = LLᵀ.

    The next row is the j with the largest ‖hⱼ‖²/Eⱼⱼ among those with Eⱼⱼ > leastⱼ, for h = Eν (n, K); then E ← E − ccᵀ
    and h ← h − c·hⱼ/√Eⱼⱼ with c = E_{·j}/√Eⱼⱼ.
    """
    d, h = E.diagonal().copy(), h.copy()
    C, chosen = np.empty((count, len(E))), np.empty(count, dtype=np.intp)
    k = 0
    while k < count and (d > least).any():
        gain = np.divide(np.einsum("ij,ij->i", h, h), d, out=np.full(len(d), -1.0), where=d > least)
        j = chosen[k] = gain.argmax()
        root = np.sqrt(d[j])
        c = C[k] = (E[j] - C[:k, j] @ C[:k]) / root
        h -= np.outer(c, h[j] / root)
        d -= c * c
        d[j] = 0.0
        k += 1
    return chosen[:k], np.tril(C[:k, chosen[:k]].T)
