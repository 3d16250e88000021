"""Kernels of the difference x − y."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any, Self

import numpy as np
from scipy.spatial.distance import cdist, pdist, squareform

from kernelopt.errors import DataError, KernelError
from kernelopt.kernels.base import Kernel, Verdict, is_number, require, require_positive
from kernelopt.kernels.chain import Order, Step, chain, steps
from kernelopt.kernels.domains import (
    ANYTHING,
    HISTOGRAMS,
    VECTORS,
    Array,
    Domain,
    frozen,
    key,
    name_of,
    real_array,
    refuse_pickling,
)

TINY = 1e-300
FAR = 300.0  # scales from the median; beyond, an error of 1e-16·FAR² ≈ 1e-11 would be passed


class _Stationary(Kernel):
    """κ(x, x) = 1, a function of (x − y)/σ."""

    is_stationary = True
    sigma: float

    @classmethod
    def from_gamma(cls, gamma: float, **others: float) -> Self:
        """With γ = 1/(2σ²), as in exp(−γ‖x − y‖²)."""
        require_positive_value(gamma, "gamma")
        return cls(sigma=1 / sqrt(2 * gamma), **others)  # type: ignore[call-arg]

    @classmethod
    def from_beta(cls, beta: float, **others: float) -> Self:
        """With β = 1/σ², as in exp(−β‖x − y‖²/2)."""
        require_positive_value(beta, "beta")
        return cls(sigma=1 / sqrt(beta), **others)  # type: ignore[call-arg]

    def _diagonal(self, X: Array) -> Array:
        return np.ones(len(X))


class _Isotropic(_Stationary):
    """κ(x, y) = g(ρ) with ρ = ‖x − y‖²/(2σ²): ∂ρ/∂xⱼ = (xⱼ − yⱼ)/σ² = −∂ρ/∂yⱼ, ∂²ρ = ±[i = j]/σ², and no others."""

    is_isotropic = True

    def _outer(self, rho: Array, count: int) -> list[Array]:
        """g(ρ), g′(ρ), …"""
        raise NotImplementedError

    def _derivative(self, X: Array, dx: Order, Z: Array, dz: Order) -> Array:
        def inner(block: list[Step]) -> Any:
            sign = 1.0 if sum(not step.left for step in block) % 2 == 0 else -1.0
            if len(block) == 1:
                j = block[0].column
                return (sign / self.sigma**2) * (X[:, j, None] - Z[:, j])
            same = len(block) == 2 and block[0].column == block[1].column
            return sign / self.sigma**2 if same else 0.0

        taken = steps(dx, dz)
        return chain(self._outer(half_squared_distances(X, Z, self.sigma), len(taken)), inner, taken)


@dataclass(frozen=True)
class Gaussian(_Isotropic):
    """κ(x, y) = exp(−‖x − y‖²/(2σ²)), with infinitely many features.

    Parameters
    ----------
    sigma : float > 0
        Length scale, in the units of x. `from_gamma(γ)`: γ = 1/(2σ²), as in scikit-learn; `from_beta(β)`: β = 1/σ².

    Raises
    ------
    KernelError
        For a sigma that is not a positive number.

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.kernels.Gaussian(sigma=1.0)([[0.0], [1.0]]).round(4)
    array([[1.    , 0.6065],
           [0.6065, 1.    ]])
    >>> ko.kernels.Gaussian.from_gamma(0.5), ko.kernels.Gaussian.from_beta(4.0)
    (Gaussian(sigma=1.0), Gaussian(sigma=0.5))
    """

    sigma: float

    def __post_init__(self) -> None:
        require_positive(self, "sigma")

    def _verdict(self) -> Verdict:
        return Verdict(True, "exp(−‖x−y‖²/2σ²) (Schoenberg 1938)")

    @property
    def _smoothness(self) -> int:
        return 3

    def _outer(self, rho: Array, count: int) -> list[Array]:
        g = np.exp(-rho)
        return [g if k % 2 == 0 else -g for k in range(count + 1)]

    def _modulus(self, order: Order, radius: float) -> float | None:
        """√(2(κ(0) − min κ)) with κ = e^−ρ, and (1 − s²/σ²)e^−ρ/σ² along a column, least at s = √3σ."""
        if len(order) > 1:
            return None
        s = radius / self.sigma if not order else min(radius / self.sigma, sqrt(3))
        if not order:
            return sqrt(-2 * np.expm1(-(s**2) / 2))
        return sqrt(2 * (1 - (1 - s**2) * np.exp(-(s**2) / 2))) / self.sigma

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        return radial(X, Z, self.sigma, exp_minus)


@dataclass(frozen=True)
class Laplacian(_Stationary):
    """κ(x, y) = exp(−‖x − y‖₁/σ), with the ℓ1 distance, as in scikit-learn.

    Parameters
    ----------
    sigma : float > 0
        Length scale. `from_gamma(γ)`: γ = 1/σ.

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.kernels.Laplacian(sigma=2.0)([[0.0, 0.0]], [[1.0, 1.0]]).round(4)
    array([[0.3679]])
    """

    sigma: float

    def __post_init__(self) -> None:
        require_positive(self, "sigma")

    @classmethod
    def from_gamma(cls, gamma: float, **others: float) -> Self:
        """exp(−γ‖x − y‖₁): γ = 1/σ."""
        require_positive_value(gamma, "gamma")
        return cls(1 / gamma, **others)

    @classmethod
    def from_beta(cls, beta: float, **others: float) -> Self:
        """exp(−‖x − y‖₁·√β): β = 1/σ²."""
        require_positive_value(beta, "beta")
        return cls(1 / sqrt(beta), **others)

    def _verdict(self) -> Verdict:
        return Verdict(True, "product over columns of exp(−|xⱼ−yⱼ|/σ), with Cauchy spectra (Bochner 1932)")

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        if Z is None:
            K = squareform(exp_minus(pdist(X, "cityblock") / self.sigma))
            np.fill_diagonal(K, 1.0)
            return K
        K = cdist(X, Z, "cityblock")
        K /= self.sigma
        return exp_minus(K)


@dataclass(frozen=True)
class Matern(_Isotropic):
    """κ(x, y) = p(s)e⁻ˢ with s = √(2ν)‖x − y‖/σ and p = 1 (ν = ½), 1 + s (ν = 3/2), 1 + s + s²/3 (ν = 5/2).

    Parameters
    ----------
    nu : 0.5, 1.5 or 2.5
        Smoothness: functions have ν − ½ derivatives.
    sigma : float > 0
        Length scale.

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.kernels.Matern(nu=1.5, sigma=1.0)([[0.0]], [[1.0]]).round(4)
    array([[0.4834]])
    """

    nu: float
    sigma: float

    def __post_init__(self) -> None:
        require(is_number(self.nu) and self.nu in (0.5, 1.5, 2.5), "nu", "0.5, 1.5 or 2.5", self.nu)
        require_positive(self, "sigma")

    def _verdict(self) -> Verdict:
        return Verdict(True, "Student-t spectrum (Matérn 1960)")

    @property
    def _smoothness(self) -> int:
        return 0 if self.nu == 0.5 else 1

    def _outer(self, rho: Array, count: int) -> list[Array]:
        """g, g′ = −3e⁻ˢ (ν = 3/2) or −(5/3)(1 + s)e⁻ˢ (5/2), g″ = (9/s)e⁻ˢ or (25/3)e⁻ˢ, with s = √(4νρ)."""
        s = np.sqrt(4 * self.nu * rho)
        e = np.exp(-s)
        if self.nu == 1.5:
            # At s = 0 g″ meets factors that vanish like s².
            return [(1 + s) * e, -3 * e, np.divide(9 * e, s, out=np.zeros_like(s), where=s > 0)][: count + 1]
        return [(1 + s + s**2 / 3) * e, -5 / 3 * (1 + s) * e, 25 / 3 * e][: count + 1]

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        # The root of a small ρ would pass on the error of a product.
        return radial(X, Z, self.sigma, self._profile, direct=True)

    def _profile(self, rho: Array) -> Array:
        s = np.sqrt(4 * self.nu * rho)
        K = exp_minus(s.copy())
        if self.nu == 0.5:
            return K
        return K * (1 + s) if self.nu == 1.5 else K * (s * (s / 3 + 1) + 1)


@dataclass(frozen=True)
class RationalQuadratic(_Isotropic):
    """κ(x, y) = (1 + ‖x − y‖²/(2ασ²))^(−α), a scale mixture of Gaussian kernels.

    Parameters
    ----------
    sigma, alpha : float > 0
        Length scale, and the weight of long scales; α → ∞ is the Gaussian kernel.

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.kernels.RationalQuadratic(sigma=1.0, alpha=1.0)([[0.0]], [[2.0]]).round(4)
    array([[0.3333]])
    """

    sigma: float
    alpha: float = 1.0

    def __post_init__(self) -> None:
        require_positive(self, "sigma", "alpha")

    def _verdict(self) -> Verdict:
        return Verdict(True, "mixture of Gaussian kernels with nonnegative weights")

    @property
    def _smoothness(self) -> int:
        return 3

    def _outer(self, rho: Array, count: int) -> list[Array]:
        base, values = 1 + rho / self.alpha, []
        factor = 1.0
        for k in range(count + 1):
            values.append(factor * base ** (-self.alpha - k))
            factor *= -(self.alpha + k) / self.alpha
        return values

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        return radial(X, Z, self.sigma, lambda rho: (1 + rho / self.alpha) ** -self.alpha)


@dataclass(frozen=True)
class Periodic(_Stationary):
    """κ(x, y) = exp(−2Σⱼ sin²(π(xⱼ − yⱼ)/period)/σ²), periodic in every column.

    The sine is taken column by column: of the distance ‖x − y‖ it is no kernel beyond one column.

    Parameters
    ----------
    period, sigma : float > 0
        In the units of x; relative to the period's circle.

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.kernels.Periodic(period=2.0, sigma=1.0)([[0.0]], [[1.0], [2.0]]).round(4)
    array([[0.1353, 1.    ]])
    """

    period: float
    sigma: float = 1.0

    def __post_init__(self) -> None:
        require_positive(self, "period", "sigma")

    def _verdict(self) -> Verdict:
        return Verdict(True, "Gaussian kernel of points on circles (MacKay 1998)")

    @property
    def _smoothness(self) -> int:
        return 3

    def _derivative(self, X: Array, dx: Order, Z: Array, dz: Order) -> Array:
        """exp(−φ) with φ = Σⱼ (1 − cos(2πdⱼ/period))/σ², d = x − z."""

        def inner(block: list[Step]) -> Any:
            j, m = block[0].column, len(block)
            if any(step.column != j for step in block):
                return 0.0
            sign = 1.0 if sum(not step.left for step in block) % 2 == 0 else -1.0
            w = 2 * np.pi / self.period
            return -sign * w**m * np.cos(w * (X[:, j, None] - Z[:, j]) + m * np.pi / 2) / self.sigma**2

        taken, K = steps(dx, dz), self._matrix(X, Z)
        return chain([K if k % 2 == 0 else -K for k in range(len(taken) + 1)], inner, taken)

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        # 2 sin²(πd/p) = ½‖(cos, sin)(2πx/p) − (cos, sin)(2πy/p)‖²
        return radial(self._circle(X), None if Z is None else self._circle(Z), self.sigma, exp_minus)

    def _circle(self, X: Array) -> Array:
        angle = (2 * np.pi / self.period) * np.remainder(X, self.period)
        return np.hstack([np.cos(angle), np.sin(angle)])


DISTANCES = {
    "l1": ("cityblock", None, "the squared ℓ1 distance is not of negative type: decided for each data set"),
    "l2": ("euclidean", True, "exp(−‖x−y‖²/β) (Schoenberg 1938)"),
    "linf": ("chebyshev", None, "the squared ℓ∞ distance is not of negative type: decided for each data set"),
    "chi2": (None, True, "χ² is a sum of terms of negative type (Fowlkes et al. 2004)"),
    "hellinger": (None, True, "a Gaussian kernel of √x"),
    "mahalanobis": (None, True, "a Gaussian kernel of S^½x, S ≻ 0"),
}


@dataclass(frozen=True, eq=False)
class GeneralizedGaussian(Kernel):
    """κ(x, y) = exp(−D(x, y)²/β) for a distance D.

    Positive semidefinite by rule for "l2", "chi2", "hellinger" and "mahalanobis"; squares of "l1", "linf" and of a
    metric in general are not of negative type, so that it is then decided for each data set.

    Parameters
    ----------
    distance : "l1", "l2", "linf", "chi2", "hellinger", "mahalanobis", or a callable (X, Z) → matrix of distances
        D² = Σⱼ(xⱼ − yⱼ)²/(xⱼ + yⱼ) for "chi2", Σⱼ(√xⱼ − √yⱼ)² for "hellinger" (histograms, entries ≥ 0),
        (x − y)ᵀS(x − y) for "mahalanobis".
    beta : float > 0
    S : matrix, for "mahalanobis"
        Symmetric positive definite.

    Raises
    ------
    KernelError
        For an unknown distance, a beta that is not positive, an S that is not positive definite.

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.kernels.GeneralizedGaussian("l1", beta=2.0)([[0.0, 0.0]], [[1.0, 1.0]]).round(4)
    array([[0.1353]])
    >>> ko.kernels.GeneralizedGaussian("l1", beta=2.0).is_psd is None
    True
    """

    distance: str | Callable[[Any, Any], Any]
    beta: float = 1.0
    S: Any = None

    def __post_init__(self) -> None:
        names = ", ".join(DISTANCES)
        known = callable(self.distance) or (isinstance(self.distance, str) and self.distance in DISTANCES)
        require(known, "distance", f"one of {names}, or a callable", self.distance)
        require_positive(self, "beta")
        if self.distance == "mahalanobis":
            object.__setattr__(self, "S", positive_definite(self.S))
        else:
            require(self.S is None, "S", "None, except for the distance mahalanobis", self.S)

    @classmethod
    def from_gamma(cls, distance: str | Callable[[Any, Any], Any], gamma: float, S: Any = None) -> Self:
        """exp(−γD²): γ = 1/β."""
        require_positive_value(gamma, "gamma")
        return cls(distance, 1 / gamma, S)

    @property
    def domain(self) -> Domain:
        if callable(self.distance):
            return ANYTHING
        return HISTOGRAMS if self.distance in ("chi2", "hellinger") else VECTORS

    @property
    def is_stationary(self) -> bool:
        return self.distance in ("l1", "l2", "linf", "mahalanobis")

    @property
    def is_isotropic(self) -> bool:
        return self.distance == "l2"

    def _verdict(self) -> Verdict:
        if callable(self.distance):
            return Verdict(None, "not every metric gives a kernel: decided for each data set")
        return Verdict(*DISTANCES[self.distance][1:])

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        K = self._squared(X, Z)
        K /= self.beta
        return exp_minus(K)

    def _squared(self, X: Array, Z: Array | None) -> Array:
        """D(xᵢ, zⱼ)²."""
        other = X if Z is None else Z
        if callable(self.distance):
            D = real_array(self.distance(X, other), f"the distances of {self!r}")
            if D.shape != (len(X), len(other)):
                raise KernelError(
                    f"Expected {name_of(self.distance)}(X, Z) of shape {(len(X), len(other))}; got {D.shape}."
                )
            return D**2
        if self.distance == "chi2":
            return column_sums(X, Z, chi_squared)
        root = sqrt(0.5)
        if self.distance == "l2":
            return half_squared_distances(X, Z, root)
        if self.distance == "hellinger":
            return half_squared_distances(np.sqrt(X), None if Z is None else np.sqrt(Z), root)
        if self.distance == "mahalanobis":
            if X.shape[1] != len(self.S):
                raise DataError(f"Expected points with {len(self.S)} columns, as S has; got shape {X.shape}.")
            L = np.linalg.cholesky(self.S)
            return half_squared_distances(X @ L, None if Z is None else Z @ L, root)
        D = cdist(X, other, str(DISTANCES[self.distance][0]))
        return np.square(D, out=D)

    def _diagonal(self, X: Array) -> Array:
        if callable(self.distance):
            return np.concatenate([np.diag(self._matrix(X[i : i + 1], None)) for i in range(len(X))])
        return np.ones(len(X))

    def _name(self) -> object:
        return self.distance, self.beta, None if self.S is None else key(self.S)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GeneralizedGaussian) and self._name() == other._name()

    def __hash__(self) -> int:
        return hash(self._name())

    def __getstate__(self) -> dict[str, Any]:
        return refuse_pickling(self, self.distance)

    def __repr__(self) -> str:
        distance = name_of(self.distance) if callable(self.distance) else repr(self.distance)
        return (
            f"GeneralizedGaussian({distance}, beta={self.beta!r}{'' if self.S is None else f', S={self.S.tolist()}'})"
        )


def exp_minus(D: Array) -> Array:
    """e⁻ᴰ, in place."""
    np.negative(D, out=D)
    return np.exp(D, out=D)


def require_positive_value(value: float, name: str) -> None:
    """Raise KernelError unless a constructor's number is positive."""
    require(isinstance(value, (int, float, np.number)) and 0 < value < np.inf, name, "a number > 0", value)


def positive_definite(S: Any) -> Array:
    """S as a read-only symmetric matrix with positive eigenvalues. Raises KernelError."""
    require(S is not None, "S", "a symmetric positive definite matrix", S)
    matrix = real_array(S, "S")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size or not np.isfinite(matrix).all():
        raise KernelError(f"Expected S to be a square matrix of finite numbers; got shape {matrix.shape}.")
    if np.abs(matrix - matrix.T).max() > 1e-12 * np.abs(matrix).max():
        raise KernelError("Expected S to be symmetric positive definite; it is not symmetric.")
    eigenvalues = np.linalg.eigvalsh((matrix + matrix.T) / 2)
    if eigenvalues[0] <= 0:
        raise KernelError(
            f"Expected S to be symmetric positive definite; its smallest eigenvalue is {eigenvalues[0]:.3g}."
        )
    return frozen((matrix + matrix.T) / 2)


def column_sums(X: Array, Z: Array | None, term: Callable[[Array, Array, Array], Array]) -> Array:
    """Σⱼ term(xⱼ, zⱼ), column by column in tiles that fit into the cache; `term` may use the buffer it gets."""
    right = X if Z is None else Z

    def tile(i: slice, j: slice) -> Array:
        total, buffer = (np.zeros((i.stop - i.start, j.stop - j.start)) for _ in range(2))
        for a, b in zip(X[i].T, right[j].T, strict=True):
            total += term(a[:, None], b, buffer)
        return total

    return tiled(len(X), None if Z is None else len(Z), tile, size=192)


def chi_squared(a: Array, b: Array, buffer: Array) -> Array:
    """(a − b)²/(a + b), 0 where both are."""
    np.subtract(a, b, out=buffer)
    buffer *= buffer
    buffer /= a + (b + TINY)
    return buffer


def half_squared_distances(X: Array, Z: Array | None, scale: float) -> Array:
    """‖xᵢ − zⱼ‖²/(2·scale²)."""
    return radial(X, Z, scale, lambda rho: rho)


def radial(X: Array, Z: Array | None, scale: float, profile: Callable[[Array], Array], direct: bool = False) -> Array:
    """g(‖xᵢ − zⱼ‖²/(2·scale²)), with g applied in place to tiles that fit into the cache.

    ½‖x‖² + ½‖z‖² − xᵀz is one matrix product of (−x, ½‖x‖², 1) and (z, 1, ½‖z‖²). It cancels to an error of about
    1e-16·(‖x‖² + ‖z‖²); points are therefore taken from their median, and those that are still more than `FAR` scales
    away, or with `direct` all, are computed directly.
    """
    centre = np.median(X if Z is None else Z, axis=0)
    left = (X - centre) / scale
    right = left if Z is None else (Z - centre) / scale
    x = 0.5 * np.einsum("ij,ij->i", left, left)
    z = x if Z is None else 0.5 * np.einsum("ij,ij->i", right, right)
    L = np.column_stack([-left, x, np.ones(len(x))])
    R = np.column_stack([right, np.ones(len(z)), z])
    far = 0.5 * FAR**2

    def tile(i: slice, j: slice) -> Array:
        if direct:
            return profile(0.5 * cdist(left[i], right[j], "sqeuclidean"))
        D = L[i] @ R[j].T
        np.maximum(D, 0.0, out=D)
        far_x, far_z = x[i] > far, z[j] > far
        if far_x.any():
            D[far_x] = 0.5 * cdist(left[i][far_x], right[j], "sqeuclidean")
        if far_z.any():
            D[:, far_z] = 0.5 * cdist(left[i], right[j][far_z], "sqeuclidean")
        if Z is None and i == j:
            np.fill_diagonal(D, 0.0)
        return profile(D)

    return tiled(len(x), None if Z is None else len(z), tile)


def tiled(n: int, m: int | None, tile: Callable[[slice, slice], Array], size: int = 384) -> Array:
    """An n×m matrix from its tiles; where m is None a symmetric one, from the tiles on and below the diagonal."""
    K = np.empty((n, n if m is None else m))
    for a in range(0, n, size):
        i = slice(a, min(a + size, n))
        for b in range(0, a + 1 if m is None else m, size):
            j = slice(b, min(b + size, K.shape[1]))
            K[i, j] = tile(i, j)
            if m is None and a != b:
                K[j, i] = K[i, j].T
    return K
