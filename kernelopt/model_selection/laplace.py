"""Laplace's approximation of a posterior of θ and of free variables y, around the mode.

    J(θ, y) = ½R‖θ‖² + ℓᵀd + l_yᵀy + Σᵢ hᵢ(sᵢ),   d = Aθ,   s = Ed + Fy,   Q = AAᵀ,   K = EQEᵀ

At the mode θ = (1/R)Aᵀ(Eᵀp − ℓ) with p = −h′(s), and Fᵀp = l_y. With W = diag h″(s) = V² and
M = RI + VKV, the inverse of the Hessian of J has

    cov(gᵀθ + mᵀy) = (1/R)[gᵀg − kᵀVM⁻¹Vk] + rᵀP⁻¹r,   k = EAg,   r = m − FᵀVM⁻¹Vk,   P = R·FᵀVM⁻¹VF

(Rasmussen and Williams, Gaussian Processes for ML, 2006, equations 2.41, 3.21 to 3.24). Only M, whose
eigenvalues are at least R, is factored. Rows with h″ = 0 drop out of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.linalg as sl

from kernelopt.errors import SolverError
from kernelopt.solvers.structured import Structured
from kernelopt.support.types import Array, Ints

# Steps of Newton's method; the first point is near the mode, and squares take one.
STEPS = 100
# A change of J, relative to the sizes of its terms, that is rounding; and the steps that are taken after the first such
# change. J is flat at the mode, where θ still has half of its digits to gain, and Newton's method doubles the digits.
ROUNDING, LAST = 1e-14, 3
NOTHING = 1e-290  # curvature up to which a row has none: its square root has an inverse that stays far from overflow
HALVINGS = 40  # of a step; 2⁻⁴⁰ is less than the rounding of J
# The smallest singular value of VF (columns of norm 1) with M⁻¹ between, up to which y counts as undetermined.
DETERMINED = 1e-10


@dataclass(frozen=True, eq=False)
class LaplaceSystem:
    """The Hessian of J at a point, factored.

    active : rows with curvature; V : square roots of these curvatures; L : M = LLᵀ; H = L⁻¹VF = (orthogonal)·T, so
    that P = R·TᵀT; F : of these rows
    """

    R: float
    active: Ints
    V: Array
    L: Array
    F: Array
    H: Array
    T: Array

    @property
    def determines_y(self) -> bool:
        """Whether P is nonsingular."""
        size = np.linalg.norm(self.H, axis=0)
        if not self.H.shape[1]:
            return True
        if self.H.shape[0] < self.H.shape[1] or not size.all():
            return False
        return bool(np.linalg.svd(self.H / size, compute_uv=False)[-1] > DETERMINED)

    @property
    def log_det_theta(self) -> float:
        """log det(I + VKV/R)."""
        return float(2 * np.sum(np.log(np.diag(self.L))) - len(self.L) * np.log(self.R))

    @property
    def log_det_y(self) -> float:
        """log det P."""
        return float(2 * np.sum(np.log(np.abs(np.diag(self.T)))) + len(self.T) * np.log(self.R))

    def whitened(self, k: Array) -> Array:
        """L⁻¹Vk for columns k (m, r)."""
        return _below(self.L, self.V[:, None] * k[self.active])


def laplace_system(problem: Structured, K: Array, R: float, s: Array) -> LaplaceSystem:
    """The factored Hessian at s."""
    W = curvature(problem, s)
    active = np.flatnonzero(W > NOTHING)
    V, F = np.sqrt(W[active]), problem.F[active]
    M = V[:, None] * K[np.ix_(active, active)] * V
    M[np.diag_indices_from(M)] += R
    L = sl.cholesky(M, lower=True, overwrite_a=True) if len(M) else M
    H = _below(L, V[:, None] * F)
    return LaplaceSystem(R, active, V, L, F, H, np.asarray(np.linalg.qr(H, mode="r")))


def covariance(system: LaplaceSystem, prior: Array, k: Array, m: Array) -> Array:
    """The covariance, (r, r), of gᵀθ + mᵀy for r pairs: prior = (gᵀg′), k : columns EAg, (all rows, r), m : (r, q)."""
    half, of_y = _halves(system, k, m)
    found = (prior - half.T @ half) / system.R + of_y.T @ of_y
    return np.asarray((found + found.T) / 2)


def variance(system: LaplaceSystem, prior: Array, k: Array, m: Array) -> Array:
    """The diagonal of `covariance`, (r,), with prior = (gᵀg); rounding below 0 is 0."""
    half, of_y = _halves(system, k, m)
    found = (prior - np.sum(half**2, axis=0)) / system.R + np.sum(of_y**2, axis=0)
    return np.maximum(found, 0.0)


def _halves(system: LaplaceSystem, k: Array, m: Array) -> tuple[Array, Array]:
    """L⁻¹Vk, and T⁻ᵀr/√R, whose squares are the two terms of the covariance."""
    half = system.whitened(k)
    r = m.T - system.H.T @ half
    of_y = sl.solve_triangular(system.T, r, trans="T") if len(system.T) else r
    return half, of_y / np.sqrt(system.R)


class PosteriorMode(NamedTuple):
    """The minimizer of J: θ = (1/R)Aᵀc with c (n,), and y; s = Ed + Fy; value : J."""

    c: Array
    y: Array
    s: Array
    value: float


def mode(problem: Structured, Q: Array, R: float, s: Array, y: Array) -> tuple[PosteriorMode, LaplaceSystem]:
    """The mode by Newton's method from the slopes at s, and the system there.

    With z = Ws − h′(s) the next point has p = z − Ws⁺ and Rs⁺ = Kp − EQℓ + RFy. p is z in rows without curvature
    (their part of K is K₀), and V·M⁻¹(R·V⁻¹z − V(K₀z − EQℓ) − RVFy) in the others, so that Py = Fᵀp₀ − l_y with p₀
    that of y = 0. No multiple of K/R is subtracted from z, which would cost digits where R is small.
    """
    E = problem.E
    EQ = np.asarray(E @ Q)
    K = np.asarray(E @ EQ.T)
    costs = EQ @ problem.linear_d
    at = _mode_at(problem, Q, R, E.T @ -slopes(problem, s) - problem.linear_d, y)
    system, last = laplace_system(problem, K, R, at.s), 0
    for _ in range(STEPS):
        if last == LAST or not system.determines_y:
            break
        z = curvature(problem, at.s) * at.s - slopes(problem, at.s)
        p, y = _newton_point(problem, system, K, z, costs)
        move = E.T @ p - problem.linear_d - at.c, y - at.y
        found = _shorter(problem, Q, R, at, move)
        if found is None:
            break
        last += found.value >= at.value - _rounding(at, Q, R)
        bent = not np.array_equal(curvature(problem, found.s), curvature(problem, at.s))
        at = found
        system = laplace_system(problem, K, R, at.s) if bent else system
    else:
        raise SolverError("Found no optimum with the full kernel matrix. Scale data and penalties to sizes of about 1.")
    return at, system


def _newton_point(problem: Structured, system: LaplaceSystem, K: Array, z: Array, costs: Array) -> tuple[Array, Array]:
    """p and y of the minimizer of the quadratic model."""
    V, active, p = system.V, system.active, z.copy()
    p[active] = 0.0
    right = system.R * z[active] / V - V * (K[active] @ p - costs[active])
    p[active] = V * _above(system.L, _below(system.L, right))
    y = np.zeros(0)
    if problem.q:
        left = problem.F.T @ p - problem.linear_y
        y = sl.solve_triangular(system.T, sl.solve_triangular(system.T, left, trans="T")) / system.R
        p[active] -= system.R * V * _above(system.L, system.H @ y)
    return p, y


def _shorter(
    problem: Structured, Q: Array, R: float, at: PosteriorMode, move: tuple[Array, Array]
) -> PosteriorMode | None:
    """The point after the longest of the steps 1, ½, ¼ … that raises J by no more than rounding; None without one."""
    t, rounding = 1.0, _rounding(at, Q, R)
    for _ in range(HALVINGS):
        found = _mode_at(problem, Q, R, at.c + t * move[0], at.y + t * move[1])
        if found.value <= at.value + rounding:
            return found
        t /= 2
    return None


def _rounding(at: PosteriorMode, Q: Array, R: float) -> float:
    return ROUNDING * (abs(at.value) + float(at.c @ Q @ at.c) / R)


def _mode_at(problem: Structured, Q: Array, R: float, c: Array, y: Array) -> PosteriorMode:
    d = Q @ c / R
    s = problem.E @ d + problem.F @ y
    value = 0.5 * float(c @ d) + float(problem.linear_d @ d) + float(problem.linear_y @ y) + float(problem.slope @ s)
    with np.errstate(all="ignore"):
        value += problem.constant + problem.smooth_value(s) + float(problem.kink_values(s).sum())
    return PosteriorMode(c, y, s, value if np.isfinite(value) else np.inf)


def slopes(problem: Structured, s: Array) -> Array:
    """h′(s), with ρ > 0 in all pieces."""
    a = np.clip((s[problem.of] - problem.anchor) / problem.rho, problem.low, problem.high)
    return np.asarray(problem.slope + problem.of_kinks(a) + problem.smooth_gradient(s))


def curvature(problem: Structured, s: Array) -> Array:
    """h″(s); 0 at an end of a curved piece."""
    a = (s[problem.of] - problem.anchor) / problem.rho
    inside = (problem.low < a) & (a < problem.high)
    return np.asarray(problem.of_kinks(np.where(inside, 1 / problem.rho, 0.0)) + problem.smooth_curvature(s))


def _below(L: Array, right: Array) -> Array:
    """L⁻¹·right."""
    return np.asarray(sl.solve_triangular(L, right, lower=True)) if right.size else right


def _above(L: Array, right: Array) -> Array:
    """L⁻ᵀ·right."""
    return np.asarray(sl.solve_triangular(L, right, lower=True, trans="T")) if right.size else right
