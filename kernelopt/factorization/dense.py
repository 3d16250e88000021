"""Factors of a kernel matrix that fits into memory.

Pivoted Cholesky: LAPACK's dpstrf (Lucas, LAPACK Working Note 161), stopped at a relative trace
residual. Eigenfactor: B = V√Λ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.linalg as sl
from scipy.linalg.lapack import dpotrf, dpstrf

from kernelopt.errors import NotPSDError
from kernelopt.factorization import memory
from kernelopt.factorization.factor import FLOOR, Factor
from kernelopt.kernels import Precomputed
from kernelopt.language.rows import Rows
from kernelopt.support import clock
from kernelopt.support.threads import for_factoring
from kernelopt.support.types import Array

# Rows on which a kernel is tried whose definiteness is only declared, or unknown. More rows find more violations, at
# SAMPLE³ flops for their eigenvalues.
SAMPLE = 512
# Relative to the largest eigenvalue: a negative eigenvalue beyond this contradicts a declaration. Kernel values in
# single precision, with errors of 6e-8, must not be taken for a contradiction.
DECLARED = 1e-6
# Relative to the largest eigenvalue: a negative eigenvalue beyond this is more than rounding. Rounding makes about
# N·eps, 4e-13 for 2000 rows; larger values would accept slightly indefinite kernels.
INDEFINITE = 1e-10
# A negative eigenvalue below this share of the largest may be the rounding of entries to single precision.
SINGLE = 1e-5


class RoundedError(NotPSDError):
    """A kernel matrix that is indefinite by no more than the rounding of its entries, which were given in float32."""


class CholeskyFactor(Factor):
    """B = K_XS L⁻ᵀ with K_SS = LLᵀ: F(x) = L⁻¹k_S(x), r kernel values per prediction."""

    method = "pivoted Cholesky"

    def _coefficients(self, v: Array) -> Array:
        """c = L⁻ᵀv/scale; the pivot rows of B are L."""
        U = self.B[self.pivots].T  # in LAPACK's order: a lower triangle would be copied
        c: Array = sl.solve_triangular(U, v, check_finite=False) / self.scale
        return c


class EigenFactor(Factor):
    """B = V√Λ: F(x) = B†k(x), N kernel values per prediction."""

    method = "eigenfactor"

    def _coefficients(self, v: Array) -> Array:
        """c = BΛ⁻¹v/scale."""
        eigenvalues = np.einsum("ij,ij->j", self.B, self.B)
        c: Array = self.B @ (v.T / eigenvalues).T / self.scale
        return c


@dataclass(frozen=True, eq=False)
class ProjectedFactor(EigenFactor):
    """The eigenfactor of Q̃, the positive semidefinite projection of an indefinite kernel matrix Q.

    distance = ‖Q − Q̃‖/‖Q‖ (Frobenius). Predictions at the rows belong to Q̃: c fulfils Qc = Bv where eigenvalues are
    clipped or flipped (`signs`), and (Q + shift·I)c = Bv where they are shifted, which adds shift·[x = y] to κ.
    """

    is_projected = True

    indefinite: str
    distance: float
    signs: Array
    shift: float

    @property
    def method(self) -> str:  # type: ignore[override]
        return f"eigenfactor, {self.indefinite} (‖Q − Q̃‖ = {self.distance:.2g}·‖Q‖)"

    def _coefficients(self, v: Array) -> Array:
        return super()._coefficients((self.signs * v.T).T)


class _Normalized(NamedTuple):
    Q: Array
    scale: float
    row_scale: Array
    seconds: float


@dataclass(frozen=True)
class Settings:
    """When a factorization stops, and what it does with negative eigenvalues.

    rank_tol: stop at trace(Q − scale·BBᵀ) ≤ rank_tol·trace(Q); max_rank: or at this rank; indefinite: "raise", or the
    projection "clip", "flip" or "shift"; seed: of the random candidates of a streamed factor; finest: ignore the trace
    and stop where the remaining pivots are rounding; checked: whether a streamed factor looks for negative eigenvalues
    on random rows first.
    """

    rank_tol: float
    max_rank: int | None
    indefinite: str = "raise"
    seed: int = 0
    finest: bool = False
    checked: bool = True


def pivoted_cholesky(rows: Rows, settings: Settings, memory_limit: float | None = None) -> Factor:
    """Q = scale·BBᵀ by greedy pivots, in O(n r²) flops and one n×n array."""
    Q, scale, row_scale, kernel_seconds = _normalized_gram(rows, memory_limit)
    start = clock.now()
    n, trace = len(Q), float(np.trace(Q))
    diagonal = Q.diagonal().copy()
    refuse_declared(rows, Q, scale)
    tol = max(settings.rank_tol, FLOOR)
    # dpstrf stops when the largest residual diagonal entry is at most tol, so that the trace is at most n·tol. For a
    # negative tol it stops at rounding, n·eps times the largest entry of the diagonal.
    with for_factoring(len(Q)):
        C, order, rank, _ = dpstrf(Q, tol=-1.0 if settings.finest else tol * trace / n, lower=1, overwrite_a=1)
    rank = 0 if trace <= 0 else int(rank)
    for j in range(rank):
        C[:j, j] = 0.0  # dpstrf leaves entries of Q above the diagonal
    residuals = trace - np.cumsum(np.einsum("ij,ij->j", C[:, :rank], C[:, :rank]))
    enough = np.flatnonzero(residuals <= (-np.inf if settings.finest else tol * trace))
    rank = min(rank, int(enough[0]) + 1 if enough.size else rank, settings.max_rank or rank)
    B = np.empty((n, rank))  # C-ordered: solvers gather rows
    B[order - 1] = C[:, :rank]
    del C, Q
    left = np.clip(diagonal - np.einsum("ij,ij->i", B, B), 0.0, None)
    if rows.kernel.is_psd is not True:
        refuse_indefinite(rows, memory_limit, INDEFINITE)
    if rows.mixed:
        B *= row_scale[:, None]
    return CholeskyFactor(
        B, scale, order[:rank] - 1, relative_trace(left, diagonal, row_scale), kernel_seconds, clock.now() - start,
    )  # fmt: skip


def eigenfactor(rows: Rows, settings: Settings, memory_limit: float | None = None) -> Factor:
    """Q = scale·BBᵀ with B = V√Λ, in O(n³) flops; orthogonal columns, largest eigenvalues first."""
    Q, scale, row_scale, kernel_seconds = _normalized_gram(rows, memory_limit)
    start = clock.now()
    if rows.mixed:  # eigenvalues belong to Q itself, not to its rescaled rows
        Q *= row_scale[:, None] * row_scale
    trace = float(np.trace(Q))
    with for_factoring(len(Q)):
        eigenvalues, V = sl.eigh(Q, overwrite_a=True)
    eigenvalues, V = eigenvalues[::-1], V[:, ::-1]
    _require_nonnegative(rows, float(eigenvalues[-1]), float(eigenvalues[0]), INDEFINITE, scale)
    tail = trace - np.cumsum(np.clip(eigenvalues, 0.0, None))
    enough = np.flatnonzero(tail <= max(settings.rank_tol, FLOOR) * trace)
    rank = int(enough[0]) + 1 if enough.size else len(eigenvalues)
    # Smaller eigenvalues are rounding, and may be negative; B needs square roots and full column rank.
    rank = min(rank, int((eigenvalues > FLOOR * trace / len(Q)).sum()), settings.max_rank or rank)
    B = np.multiply(V[:, :rank], np.sqrt(eigenvalues[:rank]), order="C")
    residual = max(trace - float(eigenvalues[:rank].sum()), 0.0)
    return EigenFactor(
        B, scale, np.arange(len(Q)), residual / trace if trace > 0 else 0.0,
        kernel_seconds, clock.now() - start,
    )  # fmt: skip


def _normalized_gram(rows: Rows, memory_limit: float | None) -> _Normalized:
    """Q of unit mean diagonal; of unit diagonal where rows are of mixed kinds, whose units differ."""
    n = len(rows)
    memory.require(needed(n), f"Factoring the kernel matrix of {n} distinct rows", memory_limit)
    start = clock.now()
    Q = rows.gram()
    scale, row_scale = units(rows, Q.diagonal())
    Q /= scale
    if rows.mixed:
        Q /= row_scale[:, None] * row_scale
    return _Normalized(Q, scale, row_scale, clock.now() - start)


def needed(n: int) -> float:
    """Bytes of Q and its factor."""
    return 16.0 * n * n


def units(rows: Rows, diagonal: Array) -> tuple[float, Array]:
    """The mean of diag(Q), 1 where that is zero; and √diag(Q) in this unit where rows are of mixed kinds, else 1."""
    mean = float(diagonal.mean())
    rows.require_digits(mean)
    scale = mean if mean > 0 else 1.0
    row_scale = np.sqrt((diagonal / scale).clip(0.0)) if rows.mixed else np.ones(len(rows))
    row_scale[row_scale == 0] = 1.0
    return scale, row_scale


def relative_trace(left: Array, diagonal: Array, row_scale: Array) -> float:
    """trace(E)/trace(Q) from both diagonals, where rows were divided by `row_scale`."""
    trace = float(diagonal @ row_scale**2)
    return float(left @ row_scale**2) / trace if trace > 0 else 0.0


def negligible(rows: Rows) -> float:
    """The relative size up to which the precision of kernel values explains a negative eigenvalue."""
    return max(INDEFINITE, 10 * rows.kernel.precision)


def refuse_indefinite(rows: Rows, memory_limit: float | None, tolerance: float) -> None:
    """Raise NotPSDError if λ_min(Q) < −tolerance·λ_max(Q), RoundedError where the precision of the entries explains it.

    The residual trace of a factor does not show it: [[1,0,0],[0,0,1],[0,1,0]] leaves a zero trace at rank 1. A Cholesky
    factor of Q + δI proves λ_min(Q) ≥ −δ, with δ = tolerance·(a Rayleigh quotient, at most λ_max). Eigenvalues, which
    cost more, are computed only where that factorization fails.
    """
    Q, _, _, _ = _normalized_gram(rows, memory_limit)
    Q[np.diag_indices_from(Q)] += tolerance * max(float(Q.sum()) / len(Q), float(Q.diagonal().max()), 0.0)
    with for_factoring(len(Q)):
        _, info = dpotrf(Q, lower=1, overwrite_a=1)
    if info == 0:
        return
    Q, scale, _, _ = _normalized_gram(rows, memory_limit)  # dpotrf overwrote it
    with for_factoring(len(Q)):
        eigenvalues = sl.eigvalsh(Q, overwrite_a=True)
    _require_nonnegative(rows, float(eigenvalues[0]), float(eigenvalues[-1]), tolerance, scale)


def _require_nonnegative(rows: Rows, smallest: float, largest: float, tolerance: float, scale: float) -> None:
    """Raise NotPSDError where the smallest eigenvalue is below −tolerance times the largest one."""
    if smallest < -tolerance * max(largest, 0.0):
        rounded = smallest >= -negligible(rows) * max(largest, 0.0)
        raise (RoundedError if rounded else NotPSDError)(_indefinite_message(rows, smallest * scale, largest * scale))


def refuse_declared(rows: Rows, Q: Array | None = None, scale: float = 1.0) -> None:
    """Raise NotPSDError where a kernel with declarations, as psd=True, is indefinite on up to `SAMPLE` random rows.

    Their submatrix is taken from scale·Q where that is given.
    """
    if not rows.kernel.declarations():
        return
    drawn = np.sort(np.random.default_rng(0).permutation(len(rows))[:SAMPLE])
    minor = rows.subset(drawn).gram() if Q is None else Q[np.ix_(drawn, drawn)]
    eigenvalues = sl.eigvalsh(minor, overwrite_a=True)
    if eigenvalues[0] < -DECLARED * max(eigenvalues[-1], 0.0):
        raise NotPSDError(_indefinite_message(rows, eigenvalues[0] * scale, eigenvalues[-1] * scale))


def projected(rows: Rows, settings: Settings, memory_limit: float | None = None, label: str | None = None) -> Factor:
    """The factor of Q̃, Q with its negative eigenvalues clipped to 0, flipped to |λ|, or all shifted by −λ_min.

    `label` says what was done, by default the setting. With a label, for rounding, eigenvalues up to −λ_min are 0, too.
    """
    Q, scale, row_scale, kernel_seconds = _normalized_gram(rows, memory_limit)
    start = clock.now()
    if rows.mixed:
        Q *= row_scale[:, None] * row_scale
    with for_factoring(len(Q)):
        values, V = sl.eigh(Q, overwrite_a=True)
    shift = max(-float(values[0]), 0.0) if settings.indefinite == "shift" else 0.0
    changed = {"clip": values.clip(0.0), "flip": np.abs(values), "shift": values + shift}[settings.indefinite]
    if label is not None:
        changed[changed <= -values[0]] = 0.0
    order = np.argsort(changed)[::-1]
    total, tail = float(changed.sum()), float(changed.sum()) - np.cumsum(changed[order])
    enough = np.flatnonzero(tail <= max(settings.rank_tol, FLOOR) * total)
    rank = min(int(enough[0]) + 1 if enough.size else len(values), settings.max_rank or len(values))
    kept = order[:rank][changed[order[:rank]] > FLOOR * total / len(values)]
    return ProjectedFactor(
        B=np.multiply(V[:, kept], np.sqrt(changed[kept]), order="C"),
        scale=scale,
        pivots=np.arange(len(values)),
        residual=max(total - float(changed[kept].sum()), 0.0) / (total or 1.0),
        kernel_seconds=kernel_seconds,
        factor_seconds=clock.now() - start,
        indefinite=label or settings.indefinite,
        distance=float(np.linalg.norm(changed - values) / np.linalg.norm(values)),
        signs=np.where(values[kept] < 0, -1.0, 1.0) if settings.indefinite == "flip" else np.ones(len(kept)),
        shift=shift * scale,
    )


def _indefinite_message(rows: Rows, smallest: float, largest: float) -> str:
    sentences = "; ".join(rows.kernel.declarations())
    declared = f" (stated was: {sentences})" if sentences else ""
    Q = rows.kernel.Q if isinstance(rows.kernel, Precomputed) else None
    rounded = Q is not None and -smallest < SINGLE * largest and np.array_equal(Q, Q.astype(np.float32))
    single = " Its entries are float32 numbers: Precomputed(Q.astype(np.float32)) allows for that." if rounded else ""
    return (
        f"Expected a positive semidefinite kernel matrix; that of {rows.kernel!r} on {len(rows)} rows has the "
        f"eigenvalue {smallest:.3g} and its largest is {largest:.3g}{declared}.{single} The representer theorem needs "
        "inner products: use another kernel, or let the matrix be changed by "
        'solve(indefinite="clip"), "flip" or "shift" '
        "(negative eigenvalues to zero, to their absolute values, or all eigenvalues raised)."
    )
