"""The quadratic model of a structured problem around its optimum, and how that moves when terms are taken out.

    minimize over Δ  ½ΔᵀHΔ + (what is taken out)   subject to  GΔ = 0

H = R + CᵀWC has the curvature of all functions where they are smooth. G has the rows of C whose s is at a kink with a
multiplier inside of its interval: such an s stays where it is while other terms change a little.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg as sl

from kernelopt.solvers.dual_point import Point
from kernelopt.solvers.structured import Structured
from kernelopt.support.types import Array, Ints

# Relative to the length of its interval, or to the largest slope where that is unbounded: a multiplier this near to an
# end counts as at the end. Multipliers of solvers miss an end by about their tolerance.
INSIDE = 1e-6
# Relative to the largest singular value of G: smaller ones count as 0, and its rank is the number of the others.
SAME = 1e-10
# Relative to the largest diagonal entry of H: directions with less curvature are flat, and the model leaves them out.
FLAT = 1e-12
# Eigenvalues of I − (projector on the range of G), from 0 to 1, up to which rows of G count as independent of others;
# and the stiffness of kinks, in units of the largest row, up to which it counts as 0.
SPANNED = 1e-8
# Smallest singular value of I − WM up to which only the rows that are left out determine their predictions.
EMPTY = 1e-12


@dataclass(frozen=True, eq=False)
class ModelRows:
    """Some rows of C, here called C, in the model: L with LLᵀ = CPCᵀ; held = CY; size : their norms in its units."""

    L: Array
    held: Array
    size: Array

    def __getitem__(self, chosen: Ints) -> ModelRows:
        return ModelRows(self.L[chosen], self.held[chosen], self.size[chosen])


@dataclass(frozen=True, eq=False)
class LocalModel:
    """The model's inverse P = ZZᵀ on {Δ : GΔ = 0}, and its answer to a change of GΔ.

    unit : of every entry of x, so that R = 1; kinks : rows of s in G; Z : orthonormal basis of {Δ : GΔ = 0} that
    diagonalizes H, scaled by 1/√λ, without flat directions, in which the model does not move; Y : Δ of least ½ΔᵀHΔ
    with GΔ = 1 for each row of G; stiffness : Γ = YᵀHY; spanned : I − (projector on the range of G), nonzero where rows
    of G depend on each other
    """

    unit: Array
    kinks: Ints
    Z: Array
    Y: Array
    stiffness: Array
    spanned: Array

    def moved_by(self, rows: Array) -> ModelRows:
        """The products of the model with some rows of C, for all of them at once."""
        C = rows * self.unit
        size = np.linalg.norm(C, axis=1)
        return ModelRows(C @ self.Z, C @ self.Y, size)

    def without(self, rows: ModelRows, curvature: Array, at_kink: Ints, slopes: Array) -> Array:
        """P₋Cᵀg, the step to the optimum without the terms of some rows C, in the coordinates of `steps`.

            P′ = P + YΓ⁻¹Yᵀ (for these rows of G),  M = CP′Cᵀ,  P₋Cᵀ = P′Cᵀ(I − WM)⁻¹

        rows : C (J rows); curvature : W (J,); at_kink : the rows of G that are left out; slopes : g (J,). nan where P₋
        is unbounded along one of the rows.
        """
        M, released = rows.L @ rows.L.T, np.zeros((len(self.kinks), len(rows.L)))
        if len(at_kink):
            released[at_kink] = self._released(rows, at_kink)
            M += rows.held @ released
        left = np.eye(len(M)) - curvature[:, None] * M
        if not np.isfinite(M).all() or np.linalg.svd(left, compute_uv=False)[-1] <= EMPTY:
            return np.full(self.Z.shape[1] + len(self.kinks), np.nan)
        a = np.linalg.solve(left, slopes)
        return np.concatenate([rows.L.T @ a, released @ a])

    def steps(self, coordinates: Array) -> Array:
        """Steps in x, a row each, from their coordinates: in the columns of Z, and as changes of GΔ."""
        return np.asarray(coordinates @ np.hstack([self.Z, self.Y]).T * self.unit)

    def _released(self, rows: ModelRows, at_kink: Ints) -> Array:
        """Γ⁻¹YᵀCᵀ. Directions of these rows that other rows of G span stay fixed, as if Γ were infinite there."""
        here = np.ix_(at_kink, at_kink)
        held, basis = np.linalg.eigh(self.spanned[here])
        loose = basis[:, held <= SPANNED]
        moved, stiffness = rows.held[:, at_kink] @ loose, loose.T @ self.stiffness[here] @ loose
        if loose.shape[1] and np.linalg.eigvalsh(stiffness)[0] * float(rows.size.max()) ** 2 <= SPANNED:
            return np.full((len(at_kink), len(moved)), np.nan)
        return np.asarray(loose @ np.linalg.solve(stiffness, moved.T))


def weights_and_kinks(problem: Structured, point: Point) -> tuple[Array, Array]:
    """The curvature of each s at an optimum, (m,), and whether it is at a kink, (m,) bool."""
    a, low, high = point.a, problem.low, problem.high
    unit = float(np.abs(np.concatenate([a, point.slopes])).max(initial=0.0))
    width = np.where(np.isfinite(high - low), high - low, unit)
    inside = np.minimum(a - low, high - a) > INSIDE * width
    with np.errstate(divide="ignore"):
        curved = np.where(inside & (problem.rho > 0), 1 / problem.rho, 0.0)
    at_kink = problem.of_kinks((inside & (problem.rho == 0)).astype(float)) > 0
    return problem.smooth_curvature(point.s) + problem.of_kinks(curved), at_kink


def local_model(problem: Structured, weights: Array, kinks: Ints) -> LocalModel:
    """The model for given curvatures and kinks."""
    unit = _units(problem)
    H = problem.gram(weights)
    H[np.diag_indices_from(H)] += problem.penalty
    H *= unit[:, None] * unit
    G = rows_of(problem, kinks) * unit
    U, sigma, Vt = np.linalg.svd(G) if len(G) else (np.zeros((0, 0)), np.zeros(0), np.eye(len(H)))
    rank = int(np.count_nonzero(sigma > SAME * sigma.max(initial=0.0)))
    null = Vt[rank:].T
    values, vectors = sl.eigh(null.T @ H @ null) if null.shape[1] else (np.zeros(0), np.zeros((0, 0)))
    flat = values <= FLAT * max(float(H.diagonal().max(initial=0.0)), 1.0)
    Z = null @ (vectors[:, ~flat] / np.sqrt(values[~flat]))
    # G⁺ answers GΔ = 1 with the least norm; a step within the null space of G makes ½ΔᵀHΔ least.
    lifted = (Vt[:rank].T / sigma[:rank]) @ U[:, :rank].T
    Y = lifted - Z @ (Z.T @ (H @ lifted))
    spanned = np.eye(len(G)) - U[:, :rank] @ U[:, :rank].T
    return LocalModel(unit, kinks, Z, Y, Y.T @ H @ Y, spanned)


def rows_of(problem: Structured, chosen: Ints) -> Array:
    """Some rows of C = (EB, F), (len(chosen), size)."""
    return np.hstack([problem.rows(chosen), problem.F[chosen]])


def _units(problem: Structured) -> Array:
    """1/√R for v; for each y the amount that moves predictions as far as a v of that size does."""
    end = problem.ends[-1]
    unit = np.ones(problem.size)
    unit[:end] = 1 / np.sqrt(problem.penalty[:end])
    largest = np.abs(problem.F).max(axis=0, initial=0.0)
    reach = float(np.sqrt(problem.row_squares.max(initial=0.0))) or 1.0
    unit[end:] = np.where(largest > 0, reach / np.where(largest > 0, largest, 1.0), 1.0)
    return unit
