"""Factors of a kernel matrix that is never formed: pivoted Cholesky, a block of columns at a time.

With E = Q − BBᵀ what the pivots so far leave, each round

1. draws candidates C, row i with probability ∝ Eᵢᵢ, as randomly pivoted Cholesky does (Chen, Epperly, Tropp, Webber,
   CPAM 2025, arXiv 2207.06503; in blocks: Epperly, Tropp, Webber, arXiv 2410.03969);
2. takes the best quarter of them, S, one by one: the j with the largest Σ_{i∈C} Eᵢⱼ²/Eⱼⱼ, E_CC deflated after each;
3. appends the columns E_{·S}L⁻ᵀ, with E_SS = LLᵀ.

(r+1)N kernel values and those of the E_CC, N r² flops in matrix products, O(N r) memory. An outlier is drawn as seldom
as it matters, where the largest Eᵢᵢ chases it; and of candidates that say the same, one is taken. To leave a trace of
1e-2, this takes about 5 % fewer columns than random pivots and 15 to 22 % fewer than the largest Eᵢᵢ; to leave 1e-8,
1 to 3 % fewer than either (tests/benchmarks/factorization.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from time import perf_counter

import numpy as np
from scipy.linalg.blas import dsymv, dtrsm
from scipy.linalg.lapack import dpotrf

from kernelopt.factorization import memory
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
from kernelopt.factorization.tall import Room
from kernelopt.language.rows import Rows
from kernelopt.support import clock
from kernelopt.support.types import Array, Ints

BLOCK = 96  # columns a round; fewer for few rows
ROUNDS = 32  # at least so many for full rank, so that the E_CC cost little beside the columns
CANDIDATES = 4  # for each column that is taken
STRETCH = 4096  # rows of B that are computed at a time
ROOM = 2**26  # bytes of B at first
LEAST = 1e-8  # of Qᵢᵢ: less of Eᵢᵢ is no reason for a pivot that a certificate asks for
NOISE = 10.0  # in units of the kernel's precision and of Qᵢᵢ: a smaller Eᵢᵢ is rounding


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

    Stops as the dense factor does. `start` is a streamed factor of the same rows, whose pivots are kept. A kernel that
    is not positive semidefinite by rule is tried on random rows, and on the candidates of each round; NotPSDError is
    raised where a principal minor of Q shows it. What those rows don't show is not seen.
    """
    begin = perf_counter()
    known = start if isinstance(start, StreamedFactor) else None
    if known is None and rows.kernel.is_psd is not True:
        drawn = np.random.default_rng(settings.seed).permutation(len(rows))[:SAMPLE]
        refuse_indefinite(rows.subset(np.sort(drawn)), memory_limit)
    elif known is None:
        refuse_declared(rows)
    work = Elimination(rows, settings, memory_limit, known)
    rng = np.random.default_rng([settings.seed, work.rank])
    while work.rank < work.most and work.left > work.goal and work.advance(rng):
        pass
    return work.factor(perf_counter() - begin)


class Elimination:
    """Pivots, their columns and what they leave, while they grow. Rows stand in an order with the pivots first.

    B and d = diag(E) belong to Q of unit mean diagonal, or of unit diagonal where rows are of mixed kinds.
    """

    def __init__(  # noqa: PLR0917
        self, rows: Rows, settings: Settings, limit: float | None, known: StreamedFactor | None,
        count: int | None = None, spare: int = 0,
    ) -> None:  # fmt: skip
        """`count` columns are to be added, and `spare` more may be by others."""
        n, start = len(rows), perf_counter()
        diagonal = rows.diagonal()
        self.kernel_seconds = perf_counter() - start
        self.rows, self.mixed, self.limit = rows, rows.mixed, limit
        self.spare = spare
        self.order, self.rank, self.B = np.arange(n), 0, np.empty((n, 0))
        self.by_rule, self.negligible = rows.kernel.is_psd is True, negligible(rows)
        self.scale, self.row_scale = units(rows, diagonal)
        self.d = diagonal / self.scale / self.row_scale**2
        self._require_nonnegative()
        self.diagonal, self.noise = self.d.copy(), NOISE * rows.kernel.precision * self.d
        self.trace = float(self.d.sum())
        self.goal = max(settings.rank_tol, FLOOR) * self.trace
        self.most = min(n, settings.max_rank or n)
        self.wanted: int | None = None
        if known is not None:
            self.wanted = None if count is None else known.rank + count + spare
            self.B, self.d, self.rank = known.B, known.residual_diagonal / self.row_scale**2, known.rank
            self._make_room(self.wanted or self.rank + 1)
            self.B[:, : self.rank] /= self.row_scale[:, None]
            self._bring_forward(known.pivots, 0)

    @property
    def left(self) -> float:
        """trace(E)."""
        return float(self.d.sum())

    def advance(self, rng: np.random.Generator) -> bool:
        """One round: candidates, the best of them, their columns. False where all that is left is rounding."""
        clock.check()
        n, k = len(self.d), self.rank
        least = np.maximum(self.goal / n, self.noise[self.order])
        weights = np.where(self.d > least, self.d, 0.0)
        eligible, block = int(np.count_nonzero(weights)), min(max(n // ROUNDS, 16), BLOCK)
        if not eligible:
            return False
        count = min(eligible, CANDIDATES * block)
        candidates = np.sort(rng.choice(n, count, replace=False, p=weights / weights.sum()))
        E, B = self._kernel(candidates, candidates), self.B[candidates, :k]
        E -= B @ B.T
        np.fill_diagonal(E, self.d[candidates])
        if not self.by_rule:
            self._require_psd(E, candidates)
        best, L = best_of(E, min(block, self.most - k), least[candidates])
        self._make_room(k + len(best))
        self._bring_forward(candidates[best], k)
        self._append(L)
        self.noise = np.maximum(self.noise, -NOISE * self.d.min())
        self._require_nonnegative()
        if self.left <= self.goal:
            self._trim(k)
        return True

    def advance_towards(self, nu: Array, count: int, rng: np.random.Generator) -> bool:
        """Pivots that take most from νᵀEν: candidates are drawn with p ∝ νᵢ²Eᵢᵢ. False where none is left."""
        clock.check()
        k, multipliers = self.rank, nu[self.order] * self.row_scale[self.order, None]
        least = np.maximum(LEAST * self.diagonal[self.order], self.noise[self.order])
        weights = np.where(self.d > least, self.d * np.sum(multipliers**2, axis=1), 0.0)
        eligible = int(np.count_nonzero(weights))
        if not eligible:
            return False
        drawn = rng.choice(len(weights), min(eligible, CANDIDATES * count), replace=False, p=weights / weights.sum())
        candidates, support = np.sort(drawn), np.flatnonzero(multipliers.any(axis=1))
        h = -self.B[candidates, :k] @ (self.B[:, :k].T @ multipliers)
        for i in range(0, len(support), STRETCH):
            part = support[i : i + STRETCH]
            h += self._kernel(candidates, part) @ multipliers[part]
        E, B = self._kernel(candidates, candidates), self.B[candidates, :k]
        E -= B @ B.T
        np.fill_diagonal(E, self.d[candidates])
        if not self.by_rule:
            self._require_psd(E, candidates)
        best, L = best_towards(E, h, count, least[candidates])
        self._make_room(k + len(best))
        self._bring_forward(candidates[best], k)
        self._append(L)
        self._require_nonnegative()
        return True

    def _kernel(self, left: Ints, right: Ints) -> Array:
        """A block of the normalised Q."""
        start = perf_counter()
        i, j = self.order[left], self.order[right]
        Q = self.rows.block(i, j)
        self.kernel_seconds += perf_counter() - start
        if self.scale != 1:
            Q /= self.scale
        if self.mixed:
            Q /= self.row_scale[i, None] * self.row_scale[j]
        return Q

    def _bring_forward(self, chosen: Ints, first: int) -> None:
        """Chosen rows change places with those that stand from `first` on."""
        places = np.arange(first, first + len(chosen))
        to = np.r_[places, np.setdiff1d(chosen, places)]
        come = np.r_[chosen, np.setdiff1d(places, chosen)]
        self.order[to], self.d[to] = self.order[come], self.d[come]
        self.B[to, : self.rank] = self.B[come, : self.rank]

    def _append(self, L: Array) -> None:
        """Columns E_{·S}L⁻ᵀ for the rows S that follow the pivots, E_SS = LLᵀ."""
        n, k, end = len(self.d), self.rank, self.rank + len(L)
        B, S = self.B, np.arange(k, end)
        B[:k, k:end], B[k:end, k:end] = 0.0, L
        self.d[k:end] = 0.0
        for i in range(end, n, STRETCH):
            j = min(i + STRETCH, n)
            E = self._kernel(S, np.arange(i, j))
            E -= B[k:end, :k] @ B[i:j, :k].T
            C = dtrsm(1.0, L.T, E.T, side=1, overwrite_b=True)
            B[i:j, k:end] = C
            self.d[i:j] -= np.einsum("ij,ij->i", C, C)
        self.rank = end

    def _trim(self, k: int) -> None:
        """As few of the columns from k on as meet the goal."""
        squares = np.einsum("ij,ij->j", self.B[:, k : self.rank], self.B[:, k : self.rank])
        left = self.left + np.append(np.cumsum(squares[:0:-1])[::-1], 0.0)
        end = k + 1 + int(np.argmax(left <= self.goal))
        dropped = self.B[:, end : self.rank]
        self.d += np.einsum("ij,ij->i", dropped, dropped)
        self.rank = end

    def _make_room(self, needed: int) -> None:
        """B, still in its own memory, with more columns: as many as are likely to be needed, and affordable."""
        n, old = len(self.d), self.B.shape[1]
        if needed <= old:
            return
        held = 0 if self.limit is None else 8.0 * n * old
        affordable = (memory.allowed_bytes(self.limit) - held) / (8 * n)
        likely = max(min(1.1 * self._expected_rank(), 8 * old), 1.25 * old, ROOM / (8 * n))
        likely = likely if self.wanted is None else self.wanted
        width = max(int(min(likely, self.most, affordable)), needed)
        most = max(self.most if self.most < n and self.wanted is None else 0, width)
        what = f"A solve with a factor of {n} distinct rows and {most} columns"
        remedy, whole = "Set max_rank or a larger rank_tol, use fewer rows", memory.of_solve(n, most)
        memory.require(held + 8.0 * n * width, what, self.limit, remedy, whole)
        wider = np.empty((n, width))
        wider[:, : self.rank] = self.B[:, : self.rank]
        self.B = wider

    def _expected_rank(self) -> float:
        """k with y(k) at its goal, for y(k) = log(trace(Q)/trace(E)) = a·kᵖ through k and k/2 of the columns so far.

        While y(k) < 1, outliers may be all that was eliminated, and twice as many columns are expected.
        """
        k, half = self.rank, self.rank // 2
        if self.left <= self.goal:
            return k
        squares = np.einsum("ij,ij->", self.B[:, half:k], self.B[:, half:k])
        before, now = log(self.trace / (self.left + squares)), log(self.trace / self.left)
        if half == 0 or now < 1 or not 0 < before < now:
            return 2 * k
        return float(k * (log(self.trace / self.goal) / now) ** (log(k / half) / log(now / before)))

    def _require_nonnegative(self) -> None:
        """diag(E) ≥ 0, but for rounding, which is taken away."""
        if self.d.min() < -self.negligible:
            self._refuse_indefinite(np.array([self.d.argmin()]))
        np.clip(self.d, 0.0, None, out=self.d)

    def _require_psd(self, E: Array, candidates: Ints) -> None:
        """Where E_CC + δI has no Cholesky factor, the eigenvalues decide."""
        _, info = dpotrf(E + self.negligible * np.eye(len(E)), lower=1, overwrite_a=1)
        if info > 0:
            self._refuse_indefinite(candidates)

    def _refuse_indefinite(self, suspects: Ints) -> None:
        """Raise NotPSDError if Q is indefinite on the pivots and these rows, and not by rounding."""
        chosen = np.unique(self.order[np.r_[np.arange(self.rank), suspects]])
        refuse_indefinite(self.rows.subset(chosen), self.limit)

    def factor(self, seconds: float) -> StreamedFactor:
        """Rows in their own order."""
        d, self.d = self.d, np.empty_like(self.d)
        self.d[self.order] = d
        moved = np.flatnonzero(self.order != np.arange(len(self.order)))
        for columns in (slice(j, min(j + BLOCK, self.rank)) for j in range(0, self.rank, BLOCK)):
            self.B[self.order[moved], columns] = self.B[moved, columns]
        width = min(self.rank + self.spare, self.B.shape[1])
        shrink(self.B, width)
        B = self.B[:, : self.rank] if self.spare else self.B
        if self.mixed:
            B *= self.row_scale[:, None]
        return StreamedFactor(
            B=B, scale=self.scale, pivots=self.order[: self.rank].copy(),
            residual=relative_trace(self.d, self.diagonal, self.row_scale),
            kernel_seconds=self.kernel_seconds, factor_seconds=seconds - self.kernel_seconds,
            residual_diagonal=self.d * self.row_scale**2,
            room=Room(self.B, self.rank) if self.spare else None,
        )  # fmt: skip


def best_of(E: Array, count: int, least: Array) -> tuple[Ints, Array]:
    """Rows of a residual matrix, one by one those that take most from it, and L with E_SS = LLᵀ for these rows S.

    Next is the j with the largest Σᵢ Eᵢⱼ²/Eⱼⱼ among those with Eⱼⱼ > leastⱼ; then E ← E − ccᵀ with c = E_{·j}/√Eⱼⱼ.
    Where Σᵢ Eᵢⱼ²/Eⱼⱼ² > len(E), rounding in Eⱼⱼ would grow in the other rows, and Eⱼⱼ stands for the sum.
    """
    d, squares = E.diagonal().copy(), np.einsum("ij,ij->j", E, E)
    C, chosen = np.empty((count, len(E))), np.empty(count, dtype=np.intp)
    k = 0
    while k < count and (d > least).any():
        stable = (d > least) & (squares <= len(E) * d**2)
        taken = np.maximum(d, np.divide(squares, d, out=np.zeros(len(d)), where=stable))
        j = chosen[k] = np.where(d > least, taken, -1.0).argmax()
        c = C[k] = (E[j] - C[:k, j] @ C[:k]) / np.sqrt(d[j])
        squares += c * (c * (c @ c) - 2 * (dsymv(1.0, E.T, c) - (C[:k] @ c) @ C[:k]))
        d -= c * c
        d[j] = 0.0
        k += 1
    return chosen[:k], np.tril(C[:k, chosen[:k]].T)


def best_towards(E: Array, h: Array, count: int, least: Array) -> tuple[Ints, Array]:
    """Rows of a residual matrix, one by one those that take most from νᵀEν, and L with E_SS = LLᵀ for these rows S.

    Next is the j with the largest ‖hⱼ‖²/Eⱼⱼ among those with Eⱼⱼ > leastⱼ, for h = Eν (n, K); then E ← E − ccᵀ and
    h ← h − c·hⱼ/√Eⱼⱼ with c = E_{·j}/√Eⱼⱼ.
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


def shrink(B: Array, width: int) -> None:
    """Only the first columns of B, in its own memory."""
    n, flat = len(B), B.reshape(-1)
    for i in range(0, n, STRETCH // 8):
        rows = B[i : i + STRETCH // 8, :width].ravel()
        flat[i * width : i * width + rows.size] = rows  # never ahead of what is still to be read
    B.resize((n, width), refcheck=False)
