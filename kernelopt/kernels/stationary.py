"""Kernels of the difference x − y."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any, Self

import numpy as np
from scipy.spatial.distance import cdist, pdist, squareform

from kernelopt.kernels.base import Kernel, Verdict, is_number, require, require_positive, require_positive_value
from kernelopt.kernels.chain import Order, Step, chain, steps
from kernelopt.kernels.domains import Array
from kernelopt.kernels.tiles import exp_minus, half_squared_distances, radial


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
    _direct = False  # whether ρ is computed with an error relative to it

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
        rho = half_squared_distances(X, Z, self.sigma, self._direct)
        return chain(self._outer(rho, len(taken)), inner, taken)


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

    _direct = True  # the root of a small ρ would magnify the error of a matrix product

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
        return radial(X, Z, self.sigma, self._profile, direct=self._direct)

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
        logarithm, values = np.log1p(rho / self.alpha), []
        factor = 1.0
        for k in range(count + 1):
            values.append(factor * np.exp((-self.alpha - k) * logarithm))
            factor *= -(self.alpha + k) / self.alpha
        return values

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        return radial(X, Z, self.sigma, self._profile)

    def _profile(self, rho: Array) -> Array:
        """exp(−α·log(1 + ρ/α)), in place; 1 + ρ/α would lose ρ where α is large."""
        rho /= self.alpha
        np.log1p(rho, out=rho)
        rho *= self.alpha
        return exp_minus(rho)


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
            return -sign * w**m * np.cos(w * (P[:, j, None] - R[:, j]) + m * np.pi / 2) / self.sigma**2

        P, R = np.remainder(X, self.period), np.remainder(Z, self.period)
        taken, K = steps(dx, dz), self._matrix(X, Z)
        return chain([K if k % 2 == 0 else -K for k in range(len(taken) + 1)], inner, taken)

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        # 2 sin²(πd/p) = ½‖(cos, sin)(2πx/p) − (cos, sin)(2πy/p)‖²
        return radial(self._circle(X), None if Z is None else self._circle(Z), self.sigma, exp_minus)

    def _circle(self, X: Array) -> Array:
        angle = (2 * np.pi / self.period) * np.remainder(X, self.period)
        return np.hstack([np.cos(angle), np.sin(angle)])
