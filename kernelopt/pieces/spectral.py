"""Nuclear and spectral norms of matrices, m of one shape."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt

import numpy as np

from kernelopt.pieces.function import Bounded, Family
from kernelopt.pieces.norms import level
from kernelopt.support.arithmetic import UNIT, euclidean, gamma
from kernelopt.support.types import Array


@dataclass(frozen=True, eq=False)
class Schatten(Family):
    """h(S) = Σ σᵢ(S) for p = 1, max σᵢ(S) for p = ∞; (wh)*(A) = 0 where the other norm of A is at most w, else ∞.

    Reads normNuc, sigma_max. A matrix is a row of s, by columns.

    shape : (n, K)
    """

    shape: tuple[int, int]
    p: float

    def matrices(self, s: Array) -> Array:
        """(m, n, K)."""
        return np.asarray(s.reshape(len(s), *self.shape[::-1]).swapaxes(1, 2))

    def rows(self, S: Array) -> Array:
        """The inverse of `matrices`."""
        return np.asarray(S.swapaxes(1, 2).reshape(len(S), -1))

    def _norms(self, s: Array, p: float) -> tuple[Array, Array]:
        """Norms, and bounds on their errors: singular values are backward stable (Higham 2002)."""
        sigma = np.linalg.svd(self.matrices(s), compute_uv=False)
        found = sigma.sum(axis=1) if p == 1 else sigma.max(axis=1, initial=0.0)
        lengths = np.array([euclidean(row) for row in s])
        factor = sqrt(min(self.shape)) if p == 1 else 1.0
        return found, factor * (gamma(16 * max(self.shape) + 16) * lengths) + gamma(min(self.shape) + 2) * found

    def value(self, s: Array) -> Array:
        return self._norms(s, self.p)[0]

    def slope(self, s: Array) -> Array:
        """UVᵀ of the singular values above rounding; u₁v₁ᵀ for p = ∞."""
        U, sigma, V = np.linalg.svd(self.matrices(s), full_matrices=False)
        busy = sigma > UNIT * max(self.shape) * sigma[:, :1] if self.p == 1 else np.arange(sigma.shape[1]) == 0 * sigma
        return self.rows((U * (busy & (sigma > 0))[:, None, :]) @ V)

    def highest(self, s: Array, e: Array) -> Array:
        """By the triangle inequality; a matrix of entries up to e has ‖E‖ ≤ ‖E‖_F, and ‖E‖_* ≤ √min(n, K)‖E‖_F."""
        found, error = self._norms(s, self.p)
        factor = sqrt(min(self.shape)) if self.p == 1 else 1.0
        return np.asarray(found + (error + factor * np.array([euclidean(row) for row in e])) * (1 + 8 * UNIT))

    def conjugate(self, a: Array, r: Array, low: Array, high: Array) -> Bounded:
        other = 1.0 if self.p == inf else inf
        found, error = self._norms(a, other)
        factor = sqrt(min(self.shape)) if other == 1 else 1.0
        most = found + (error + factor * np.array([euclidean(row) for row in r])) * (1 + 8 * UNIT)
        return Bounded(np.where(most <= low, 0.0, inf), np.zeros(len(a)))

    def nearest(self, a: Array, w: Array) -> Array:
        """a times a number ≤ 1."""
        found, error = self._norms(a, 1.0 if self.p == inf else inf)
        most = (found + error) * (1 + 8 * UNIT)
        share = np.where(most > w, w / np.where(most > 0, most, 1.0) * (1 - 2 * gamma(16 * max(self.shape) + 32)), 1.0)
        return np.asarray(a * share[:, None])

    def _clipped(self, sigma: Array, w: Array) -> tuple[Array, Array]:
        """Singular values of the projection, and their derivatives (m, k, k) by those before."""
        k = sigma.shape[1]
        if self.p == 1:
            return np.minimum(sigma, w[:, None]), np.eye(k) * (sigma < w[:, None])[:, None, :]
        lam = level(sigma, w)
        busy = sigma > np.maximum(lam, 0.0)[:, None]
        share = np.where(lam > 0, 1.0 / np.maximum(busy.sum(axis=1), 1), 0.0)[:, None, None]
        both = busy[:, :, None] & busy[:, None, :]
        return np.maximum(sigma - np.maximum(lam, 0.0)[:, None], 0.0), np.eye(k) * busy[:, None, :] - share * both

    def prox(self, z: Array, tau: Array, w: Array) -> Array:
        """The projection on the ball of the other norm: singular values are clipped, or lowered to a sum of w."""
        U, sigma, V = np.linalg.svd(self.matrices(z), full_matrices=False)
        return self.rows((U * self._clipped(sigma, w)[0][:, None, :]) @ V)

    def prox_slope(self, z: Array, tau: Array, w: Array) -> Spectral:  # type: ignore[override]
        U, sigma, V = np.linalg.svd(self.matrices(z), full_matrices=False)
        return Spectral(self, U, sigma, V, *self._clipped(sigma, w))


@dataclass(frozen=True, eq=False)
class Spectral:
    """The derivative of S = U diag(σ) Vᵀ ↦ U diag(f(σ)) Vᵀ (Lewis and Sendov 2001).

    With H̃ = UᵀHV, parts of H̃ + H̃ᵀ are multiplied by (fᵢ − fⱼ)/(σᵢ − σⱼ), those of H̃ − H̃ᵀ by (fᵢ + fⱼ)/(σᵢ + σⱼ), what
    is outside of the ranges of U and V by fᵢ/σᵢ, and the diagonal by f′.
    """

    family: Schatten
    U: Array
    sigma: Array
    V: Array
    f: Array
    df: Array

    def dot(self, x: Array) -> Array:
        """The derivative in the direction x, (m, k)."""
        H, U, V = self.family.matrices(x), self.U, self.V
        s, f, k = self.sigma, self.f, self.sigma.shape[1]
        inner = U.swapaxes(1, 2) @ H @ V.swapaxes(1, 2)
        diagonal = np.einsum("mii->mi", inner)
        with np.errstate(all="ignore"):
            gap, total = s[:, :, None] - s[:, None, :], s[:, :, None] + s[:, None, :]
            same = np.einsum("mii->mi", self.df)[:, :, None] - self.df
            minus = np.where(np.abs(gap) > 8 * UNIT * total, (f[:, :, None] - f[:, None, :]) / gap, same)
            plus = np.where(total > 0, (f[:, :, None] + f[:, None, :]) / total, 1.0)
            rate = np.where(s > 0, f / s, 1.0)
        minus[:, np.arange(k), np.arange(k)] = 0.0
        even, odd = 0.5 * (inner + inner.swapaxes(1, 2)), 0.5 * (inner - inner.swapaxes(1, 2))
        core = minus * even + plus * odd + np.eye(k) * np.einsum("mij,mj->mi", self.df, diagonal)[:, None, :]
        right = H @ V.swapaxes(1, 2) - U @ inner
        left = U.swapaxes(1, 2) @ H - inner @ V
        found = U @ core @ V + (right * rate[:, None, :]) @ V + U @ (rate[:, :, None] * left)
        return self.family.rows(found)
