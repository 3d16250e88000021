"""Nuclear and spectral norms of matrices, m of one shape."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import inf, sqrt

import numpy as np

from kernelopt.pieces.function import Bounded, Family, Jacobian
from kernelopt.pieces.norms import level
from kernelopt.support.arithmetic import UNIT, euclidean, gamma
from kernelopt.support.types import Array, Ints


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


@cache
def _triangle(n: int) -> tuple[Ints, Ints]:
    """The lower triangle of an (n, n) matrix by rows."""
    i, j = np.tril_indices(n)
    i.flags.writeable = j.flags.writeable = False
    return i, j


@dataclass(frozen=True, eq=False)
class Semidefinite(Family):
    """h(X) = 0 where X ⪰ 0, else ∞; (wh)*(A) = 0 where −A ⪰ 0. Reads the cones of graph forms.

    A matrix is a row of s: its lower triangle by rows, entries off the diagonal times √2.

    order : n, of k = n(n + 1)/2 entries
    """

    order: int

    @property
    def heads(self) -> Ints:
        """The diagonal."""
        i, j = _triangle(self.order)
        return np.flatnonzero(i == j)

    def matrices(self, s: Array) -> Array:
        """(m, n, n)."""
        i, j = _triangle(self.order)
        found = np.zeros((len(s), self.order, self.order))
        found[:, i, j] = found[:, j, i] = s / np.where(i == j, 1.0, sqrt(2))
        return found

    def rows(self, X: Array) -> Array:
        """The inverse of `matrices`."""
        i, j = _triangle(self.order)
        return np.asarray(X[:, i, j] * np.where(i == j, 1.0, sqrt(2)))

    def _least(self, s: Array, e: Array) -> Array:
        """A lower bound of the eigenvalues: they are backward stable, and move by at most ‖E‖_F."""
        lengths = np.array([euclidean(row) for row in s]) * gamma(16 * self.order + 16)
        off = np.array([euclidean(row) for row in e])
        return np.asarray(np.linalg.eigvalsh(self.matrices(s))[:, 0] - (lengths + off) * (1 + 8 * UNIT))

    def value(self, s: Array) -> Array:
        return np.where(self._least(s, 0 * s) >= 0, 0.0, inf)

    def slope(self, s: Array) -> Array:
        """0, which is one inside."""
        return np.zeros_like(s)

    def highest(self, s: Array, e: Array) -> Array:
        return np.where(self._least(s, e) >= 0, 0.0, inf)

    def conjugate(self, a: Array, r: Array, low: Array, high: Array) -> Bounded:
        return Bounded(self.highest(-a, r), np.zeros(len(a)))

    def nearest(self, a: Array, w: Array) -> Array:
        """The projection on −K, less a multiple of I of the size of its rounding."""
        found = self.prox(a, w, w)
        short = np.minimum(self._least(-found, 0 * found), 0.0) * 2
        lower = found + self.rows(short[:, None, None] * np.eye(self.order))
        return np.where((self._least(-a, 0 * a) >= 0)[:, None], a, lower)

    def prox(self, z: Array, tau: Array, w: Array) -> Array:
        """The projection on −K: positive eigenvalues become 0."""
        values, V = np.linalg.eigh(self.matrices(z))
        return self.rows((V * np.minimum(values, 0.0)[:, None, :]) @ V.swapaxes(1, 2))

    def prox_slope(self, z: Array, tau: Array, w: Array) -> Jacobian:
        """H ↦ V(Ω ∘ VᵀHV)Vᵀ, Ωᵢⱼ = (λᵢ⁻ − λⱼ⁻)/(λᵢ − λⱼ) with λ⁻ = min(λ, 0), as a matrix T with Z = I."""
        k, (values, V) = z.shape[1], np.linalg.eigh(self.matrices(z))
        low = np.minimum(values, 0.0)
        gap, size = values[:, :, None] - values[:, None, :], np.abs(values[:, :, None]) + np.abs(values[:, None, :])
        apart = np.abs(gap) > 8 * UNIT * size
        same = (values < 0)[:, :, None] * 1.0
        omega = np.where(apart, (low[:, :, None] - low[:, None, :]) / np.where(apart, gap, 1.0), same)
        units = self.matrices(np.eye(k))
        turned = np.einsum("mai,kab,mbj->mkij", V, units, V, optimize=True) * omega[:, None]
        moved = np.einsum("mai,mkij,mbj->mkab", V, turned, V, optimize=True)
        T = self.rows(moved.reshape(-1, self.order, self.order)).reshape(len(z), k, k).swapaxes(1, 2)
        return Jacobian(np.zeros(z.shape), np.broadcast_to(np.eye(k), (len(z), k, k)), T)


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

    def parts(self, one: int) -> tuple[Array, Array, Array]:
        """W, Z, T of one of the maps, whose derivative is W ⊗ I + ZTZᵀ: W (K, K), Z (nK, K²) with columns uᵢvⱼᵀ.

        For n ≥ K. W = V diag(f/σ)Vᵀ acts on each row; T is what the formula of the class adds in the ranges of U and V.
        """
        U, V, s, f, df = self.U[one], self.V[one], self.sigma[one], self.f[one], self.df[one]
        K, rate = len(s), np.where(s > 0, f / np.where(s > 0, s, 1.0), 1.0)
        gap, total = s[:, None] - s, s[:, None] + s
        same = np.diag(df)[:, None] - df
        apart = np.abs(gap) > 8 * UNIT * total
        minus = np.where(apart, (f[:, None] - f) / np.where(apart, gap, 1.0), same)
        plus = np.where(total > 0, (f[:, None] + f) / np.where(total > 0, total, 1.0), 1.0)
        i, j = np.divmod(np.arange(K * K), K)
        T = np.zeros((K * K, K * K))
        off = i != j
        T[off, off] = 0.5 * (minus + plus)[i[off], j[off]]
        T[np.flatnonzero(off), (j * K + i)[off]] = 0.5 * (minus - plus)[i[off], j[off]]
        T[np.ix_(np.flatnonzero(~off), np.flatnonzero(~off))] = df
        T[np.arange(K * K), np.arange(K * K)] -= rate[j]
        return (V.T * rate) @ V, np.einsum("ni,jk->knij", U, V).reshape(-1, K * K), T

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
