"""Kernels of the difference x − y."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import ceil, e, exp, factorial, inf, isfinite, lgamma, log, log1p, pi, prod, sqrt
from typing import Any, ClassVar, Self

import numpy as np
from scipy.spatial.distance import cdist, pdist, squareform

from kernelopt.kernels.adjoints import columnwise, differences, share_entries, signs, total
from kernelopt.kernels.chain import ChainStep, Order, chain, steps
from kernelopt.kernels.domains import SPARSE, Domain
from kernelopt.kernels.gamma_mixture import LEAST_RHO, gamma_mixture
from kernelopt.kernels.interval_means import Pairs, Spread, exponential_means, gaussian_means
from kernelopt.kernels.kernel import (
    Adjoint,
    Kernel,
    RealField,
    Verdict,
    no_means,
    require,
    require_positive,
    require_positive_value,
)
from kernelopt.kernels.rounding import CHAIN, FUNCTION, PARTITIONS, Inexact, compounded, growth, spread, underflow
from kernelopt.kernels.tiles import direct_error, exp_minus, half_square_error, half_squared_distances, radial
from kernelopt.support.arithmetic import UNIT, gamma
from kernelopt.support.checks import is_real
from kernelopt.support.types import Array, Bools

# The coefficients of p in the Matérn kernels p(s)e⁻ˢ, by ν.
MATERN = {0.5: (1.0,), 1.5: (1.0, 1.0), 2.5: (1.0, 1.0, 1 / 3)}
HIGHEST_DEGREE = 10  # of p; of higher ones the coefficients take longer than the rule for all ν
# Points whose entries are 0 or at least this, in length scales, are equal or at least 2√LEAST_RHO apart.
MERGED = 1e-19
# Error of a mean over intervals of one column relative to the root of the diagonal entries, for half-widths up to one
# length scale. `_means_rounding` counts 480u; the largest errors that tests find are 6u.
SPREAD = 500 * UNIT


class _Stationary(Kernel):
    """κ(x, x) = 1, a function of (x − y)/σ."""

    is_stationary = True
    sigma: float
    _reals: ClassVar = {"sigma": RealField()}
    _elsewhere: ClassVar = dict.fromkeys(("length_scale", "lengthscale", "bandwidth"), "sigma")

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

    def _mean(self, pairs: Pairs) -> Array:
        """E κ in one column, for a kernel that is a product over columns."""
        raise NotImplementedError

    def _means(self, X: Spread, Z: Spread) -> Array:
        columns = range(X.centres.shape[1])
        return reduce(np.multiply, (self._mean(Pairs.of(X, Z, j)) for j in columns))

    def _means_diagonal(self, X: Spread) -> Array:
        columns = range(X.centres.shape[1])
        return reduce(np.multiply, (self._mean(Pairs.with_itself(X, j)) for j in columns))

    def _means_rounding(self, X: Spread, error: Array | None = None) -> float:
        """Π(1 + 500u√max(1, h) + 4e/σ)(1 + γ) − 1 over columns, h the largest half-width there in length scales.

        In one column and in length scales, with half-widths a ≤ b: a diagonal entry is at least ½·min(1, 1/h), so that
        √(Q_aa·Q_bb) ≥ ½/√(max(a, 1)max(b, 1)). exp is taken to be accurate to 8u, erf, erfc and erfcx to 16u.
        1. Areas are ≥ 0 and have relative errors of 30u, of which a difference I − J keeps a third: 90u·√(Q_aa·Q_bb).
        2. Means at nodes have errors of 40u, miss 1e-17, and are at most min(1, 1.25/b): 100u√max(b, 1).
        3. Differences of antiderivatives for b > ½ have terms of at most 1.25/b in sum for a ≤ ½, and of 1.25/b + 1/ab
           else, which is at most 13√(Q_aa·Q_bb); D has a relative error of 32u: 416u.
        4. The mean has slope ≤ min(1, A/a)/2b in the ends of the intervals, A = ∫g ≤ 8/3, and these have errors of
           24ub where t ≤ 2(a + b): 32u/max(a, 1), relative to the entries at most 64u√max(b, 1). For larger t the mean
           decays faster than the errors, of 4ut, grow.
        In all this is at most 480u√max(b, 1). For Gaussian
        kernels, normal parts multiply κ by σ/τ ≤ √(σ/τ_x·σ/τ_z) with τ_x² = σ² + 2s², as τ² is the mean of τ_x² and
        τ_z². Errors e of centres change the mean by at most 2e/σ, relative to this 4e/σ.
        """
        d = X.centres.shape[1]
        shift = np.zeros(d) if error is None else 2 * error.max(axis=0)
        by_column = SPREAD * np.sqrt(np.maximum(1.0, X.halves.max(axis=0) / self._scale)) + 4 * shift / self._scale
        lost = underflow(self._means_diagonal(X), np.ones(len(X.centres), dtype=bool), 2 * d)
        return compounded(*by_column.tolist(), gamma(4 * d)) + lost

    @property
    def _scale(self) -> float:
        """The length in which half-widths count."""
        return self.sigma


class _Isotropic(_Stationary):
    """κ(x, y) = g(ρ) with ρ = ‖x − y‖²/(2σ²): ∂ρ/∂xⱼ = (xⱼ − yⱼ)/σ² = −∂ρ/∂yⱼ, ∂²ρ = ±[i = j]/σ²; higher ones are 0."""

    is_isotropic = True
    _direct = False  # whether ρ is a sum of squares, whose error is relative to ρ, or may come from a matrix product

    def _outer(self, rho: Array, count: int) -> list[Array]:
        """g(ρ), g′(ρ), …"""
        raise NotImplementedError

    def _derivative(self, X: Array, dx: Order, Z: Array, dz: Order) -> Array:
        def inner(block: list[ChainStep]) -> Any:
            sign = 1.0 if sum(not step.left for step in block) % 2 == 0 else -1.0
            if len(block) == 1:
                j = block[0].column
                # Two divisions by σ, as σ² may overflow or underflow where the quotient does not.
                return sign * ((X[:, j, None] - Z[:, j]) / self.sigma) / self.sigma
            same = len(block) == 2 and block[0].column == block[1].column
            return sign / self.sigma / self.sigma if same else 0.0

        taken = steps(dx, dz)
        rho = half_squared_distances(X, Z, self.sigma, self._direct)
        return chain(self._outer(rho, len(taken)), inner, taken)

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """With M = G∘g′(ρ): −2ΣMρ/σ, and Σⱼ Mᵢⱼ(xᵢ − zⱼ)/σ² for points."""
        # Beyond 1e300 a product with g′ = 0 would be nan for ρ = ∞.
        rho = np.minimum(half_squared_distances(X, Z, self.sigma, self._direct), 1e300)
        M, fields = G * self._slope(rho), {}
        if "sigma" in wanted:
            fields["sigma"] = -2 / self.sigma * total(M, rho)
        if "alpha" in wanted:
            fields["alpha"] = total(G, self._slope_of_shape(rho))
        if not points:
            return Adjoint(fields)
        left, right = differences(M, X, Z, self.sigma, self._apart(rho))
        return Adjoint(fields, left / self.sigma / self.sigma, right / self.sigma / self.sigma)

    def _slope(self, rho: Array) -> Array:
        """g′(ρ); 0 for ρ = 0 where it is infinite there."""
        return self._outer(rho, 1)[1]

    def _slope_of_shape(self, rho: Array) -> Array:
        """∂g/∂α, for a kernel with a field α."""
        raise NotImplementedError

    def _apart(self, rho: Array) -> Array | None:
        """The pairs at which g′ is so large that xᵢ − zⱼ is to be taken without cancellation."""
        return None

    def _peak(self, k: int, p: float) -> float:
        """supₜ |g⁽ᵏ⁾(t²/2)|tᵖ, with t = ‖x − y‖/σ."""
        raise NotImplementedError

    def _evaluation(self, k: int, p: int) -> float:
        """The error of g⁽ᵏ⁾(ρ)tᵖ for an exact ρ."""
        return FUNCTION * self._peak(k, p)

    def _rounding(self, at: Inexact) -> float:
        """A sum over the partitions of m derivatives into k blocks, of which p = 2k − m are single.

        A partition contributes g⁽ᵏ⁾(ρ)Π(dⱼ/σ), which is at most |g⁽ᵏ⁾|tᵖ. Let E be the error of ρ for points near the
        median, γρ that for points far from it, and s the error of t from inexact points. Then its error is at most
        E·|g⁽ᵏ⁺¹⁾|tᵖ + γ|g⁽ᵏ⁺¹⁾|tᵖ⁺² + s(|g⁽ᵏ⁺¹⁾|tᵖ⁺¹ + p|g⁽ᵏ⁾|tᵖ⁻¹) + 8u|g⁽ᵏ⁾|tᵖ, each term at its maximum over t; for
        values of a Gaussian kernel this is E + γ + s + 8u. In units of σ, sizes are at least 1, 1 and g″(0) for zero,
        one and two derivatives. Values are in [0, 1], so that their error is at most 1.
        """
        near, apart = half_square_error(at.points, self.sigma), direct_error(at.points)
        shift = at.shift() / self.sigma
        chained = gamma(CHAIN if at.order else 4)

        def error(k: int, p: int) -> float:
            steeper = self._peak(k + 2, 0) / self._peak(k + 1, 0)  # |g⁽ᵏ⁺²⁾/g⁽ᵏ⁺¹⁾| at most
            moved = growth(steeper * near) / steeper * self._peak(k + 1, p) + apart * self._peak(k + 1, p + 2)
            shifted = shift * (self._peak(k + 1, p + 1) + (p * self._peak(k, p - 1) if p else 0.0))
            return moved + shifted + chained * self._peak(k, p) + self._evaluation(k, p)

        def total(m: int) -> float:
            return PARTITIONS[m] * max(error(k, 2 * k - m) for k in range((m + 1) // 2, m + 1))

        if not at.order:
            return min(total(0), 1.0)
        lengths = [1.0, 1.0, sqrt(self._peak(2, 0))][: at.order + 1]
        return max(total(a + b) / (lengths[a] * lengths[b]) for a in range(len(lengths)) for b in range(len(lengths)))


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

    _decreases = True

    def __post_init__(self) -> None:
        require_positive(self, "sigma")

    @property
    def domain(self) -> Domain:
        return SPARSE

    def _verdict(self) -> Verdict:
        return Verdict(True, "exp(−‖x−y‖²/2σ²) (Schoenberg 1938)")

    @property
    def _smoothness(self) -> int:
        return 4

    def _outer(self, rho: Array, count: int) -> list[Array]:
        g = np.exp(-rho)
        return [g if k % 2 == 0 else -g for k in range(count + 1)]

    def _modulus(self, order: Order, radius: float) -> float | None:
        """√(2(k(0) − min k)) over the ball, with k = e^−ρ for values and k = (1 − s²/σ²)e^−ρ/σ² for first derivatives.

        The latter is for a distance s along the column of the derivative, with its minimum at s = √3σ.
        """
        if len(order) > 1:
            return None
        s = radius / self.sigma if not order else min(radius / self.sigma, sqrt(3))
        if not order:
            return sqrt(-2 * np.expm1(-s * s / 2))  # 1 − exp would lose the digits of a small radius
        return sqrt(2 * (s * s * np.exp(-s * s / 2) - np.expm1(-s * s / 2))) / self.sigma

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        return radial(X, Z, self.sigma, exp_minus)

    def _require_means(self, columns: int, normal: bool) -> None:
        """Intervals and normal distributions, in any number of columns."""

    def _mean(self, pairs: Pairs) -> Array:
        return gaussian_means(pairs, self.sigma)

    def _peak(self, k: int, p: float) -> float:
        return gaussian_peak(p)


def _require_boxes(kernel: Kernel, normal: bool) -> None:
    if normal:
        raise no_means(kernel, "means over normal distributions are known for Gaussian and polynomial kernels")


def gaussian_peak(p: float) -> float:
    """supₜ tᵖe^{−t²/2} = (p/e)^{p/2}."""
    return float((p / e) ** (p / 2)) if p else 1.0


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

    _decreases = _is_convex = True

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

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """With M = G∘κ: ΣMs/σ for s = ‖x − z‖₁/σ, and −ΣⱼMᵢⱼ sign(xᵢ − zⱼ)/σ, where sign(0) = 0, for points."""
        s = np.minimum(cdist(X, Z, "cityblock") / self.sigma, 1e300)
        M = G * np.exp(-s)
        fields = {"sigma": total(M, s) / self.sigma} if "sigma" in wanted else {}
        if not points:
            return Adjoint(fields)
        left, right = columnwise(M, X, Z, signs)
        return Adjoint(fields, -left / self.sigma, -right / self.sigma)

    def _kinks(self, X: Array, Z: Array) -> Bools | None:
        return share_entries(X, Z)

    def _require_means(self, columns: int, normal: bool) -> None:
        _require_boxes(self, normal)

    def _mean(self, pairs: Pairs) -> Array:
        return exponential_means(pairs, self.sigma, (1.0,))

    def _rounding(self, at: Inexact) -> float:
        """Rounding of s = ‖x − z‖₁/σ, γ_{d+1}s, changes e⁻ˢ by less than γ_{d+1}; errors of points and of exp add."""
        return min(gamma(at.points.shape[1] + 4) + at.shift(1) / self.sigma + FUNCTION, 1.0)


@dataclass(frozen=True)
class Matern(_Isotropic):
    """κ(x, y) = 2^{1−ν}/Γ(ν)·sᵛK_ν(s) with s = √(2ν)‖x − y‖/σ and the Bessel function K_ν of the second kind.

    It is p(s)e⁻ˢ with a polynomial p where ν is half an odd number: p = 1 for ν = ½, 1 + s for 3/2, 1 + s + s²/3 for
    5/2. The limit for ν → ∞ is the Gaussian kernel. For other ν values come from a table.

    Parameters
    ----------
    nu : float > 0
        Smoothness: F has derivatives of orders below ν, here up to 2.
    sigma : float > 0
        Length scale.

    Raises
    ------
    KernelError
        For a nu or sigma that is not a positive number; nu cannot be a parameter.

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.kernels.Matern(nu=1.5, sigma=1.0)([[0.0]], [[1.0]]).round(4)
    array([[0.4834]])
    >>> ko.kernels.Matern(nu=2.2, sigma=1.0)([[0.0]], [[1.0]]).round(4)
    array([[0.5148]])
    """

    nu: float
    sigma: float

    _direct = True  # the root of a small ρ would magnify the error of a matrix product

    _decreases = True

    @property
    def _is_convex(self) -> bool:
        return self.nu <= 0.5

    def __post_init__(self) -> None:
        require(is_real(self.nu) and 0 < self.nu < inf, "nu", "a number > 0", self.nu)
        object.__setattr__(self, "nu", float(self.nu))  # numpy takes no root of a fraction
        require_positive(self, "sigma")

    def _verdict(self) -> Verdict:
        return Verdict(True, "Student-t spectrum (Matérn 1960)")

    @property
    def _smoothness(self) -> int:
        return min(ceil(self.nu) - 1, 2)

    @property
    def _degree(self) -> int | None:
        """The degree of p, where κ = p(s)e⁻ˢ is computed so."""
        degree = self.nu - 0.5
        return int(degree) if degree.is_integer() and degree <= HIGHEST_DEGREE else None

    def _kinks(self, X: Array, Z: Array) -> Bools | None:
        """Equal points, for ν ≤ ½."""
        return cdist(X, Z, "chebyshev") == 0 if self.nu <= 0.5 else None

    def _outer(self, rho: Array, count: int) -> list[Array]:
        """g⁽ᵏ⁾ = (−2ν)ᵏ2^{1−ν}/Γ(ν)·s^{ν−k}K_{ν−k}(s), with s = √(4νρ).

        At s = 0 it is (−1)ᵏΠ_{i≤k} ν/(ν − i) for k < ν. For k ≥ ν it is unbounded there, but its factors make the
        product 0.
        """
        if self._degree is None:
            values = gamma_mixture(self.nu, count).values(rho, count)
        else:
            s = self._lengths(np.where(rho > 0, np.maximum(rho, LEAST_RHO), 0.0))
            values = [half_integer_slope(self._degree, k, s) for k in range(count + 1)]
        found, start = [], 1.0
        for k, value in enumerate(values):
            start = start * (self.nu / (self.nu - k) if k else 1.0) if k < self.nu else 0.0
            found.append((-1.0) ** k * np.where(rho > 0, value, start))
        return found

    def _apart(self, rho: Array) -> Array | None:
        """For ν < 1, whose g′ grows as s^{2ν−2}, the pairs where it is over 1000; else products keep 1e-13 of it."""
        return self._lengths(rho) < 1e-3 ** (0.5 / (1 - self.nu)) if self.nu < 1 else None

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        return radial(X, Z, self.sigma, self._profile, direct=self._direct)

    def _lengths(self, rho: Array) -> Array:
        """s = √(4νρ), at most 800: e⁻⁸⁰⁰ = 0 in double precision, while for ρ = ∞ a polynomial times 0 would be nan."""
        s = np.sqrt(4 * self.nu * rho)
        return np.minimum(s, 800.0, out=s)

    def _profile(self, rho: Array) -> Array:
        if self._degree is None:
            return np.where(rho > 0, gamma_mixture(self.nu).interpolated(rho), 1.0)
        return half_integer_slope(self._degree, 0, self._lengths(rho))

    def _require_means(self, columns: int, normal: bool) -> None:
        """One column: in several, a function of ‖x − y‖ is no product over columns."""
        _require_boxes(self, normal)
        if self.nu not in MATERN:
            raise no_means(self, "of Matérn kernels, those with ν = ½, 3/2 and 5/2 have one here")
        if columns != 1:
            raise no_means(
                self,
                f"in {columns} columns a Matérn kernel is no product over columns. A product of kernels of one column "
                f"each, {self!r}.on([0]) * {self!r}.on([1]), has one",
            )

    def _mean(self, pairs: Pairs) -> Array:
        return exponential_means(pairs, self._scale, MATERN[self.nu])

    @property
    def _scale(self) -> float:
        return self.sigma / sqrt(2 * self.nu)

    def _rounding(self, at: Inexact) -> float:
        """A sum over partitions as for `_Isotropic`, where each term is a mixture of those of Gaussian kernels.

        κ = E e^{−ρ/g}, so that with τ = t/√g and m derivatives a partition contributes E g^{−m/2}τᵖe^{−τ²/2} at most:
        the peak of τᵖe^{−τ²/2} times μ_{m/2}, where μₐ = E g⁻ᵃ. Sizes are μ₀ = 1, μ₁ and at least μ₂, and
        μ_{(a+b)/2} ≤ √(μₐμ_b). So an error relative to peaks of Gaussian kernels is one relative to sizes.
        """
        places, shift = at.points / self.sigma, at.shift() / self.sigma
        if (self._degree is None or at.order) and np.any((places != 0) & (np.abs(places) < MERGED)):
            shift += 2 * sqrt(LEAST_RHO)  # distances below are taken to be this, or 0

        def error(m: int, k: int) -> float:
            p, apart = 2 * k - m, direct_error(at.points) + FUNCTION + 4 * UNIT
            formula = (
                gamma_mixture(self.nu, m).rounding(k)
                if self._degree is None
                else FUNCTION + float(gamma(6 * self._degree + 6 * k + 12))
            )
            own = (formula + FUNCTION + gamma(CHAIN if at.order else 4)) * gaussian_peak(p)
            return apart * gaussian_peak(p + 2) + own + self._shifted(m, p, shift)

        def total(m: int) -> float:
            return PARTITIONS[m] * max(error(m, k) for k in range((m + 1) // 2, m + 1))

        if not at.order:
            return min(total(0), 1.0)
        return max(total(m) for m in range(2 * at.order + 1))

    def _shifted(self, m: int, p: int, shift: float) -> float:
        """The change of a term if t changes by a shift δ, relative to μ_{m/2}.

        A term of a Gaussian kernel changes by at most min(2c, lδ/√g) ≤ (2c)^{1−α}(lδ)^αg^{−α/2}, for its peak c and
        slope l. E g^{−(m+α)/2} is finite where m + α < 2ν.
        """
        if not m or not shift:
            return self._change(shift)
        peak = gaussian_peak(p)
        slope = gaussian_peak(p + 1) + (p * gaussian_peak(p - 1) if p else 0.0)
        most = 2 * self.nu - m
        powers = [1.0] if most > 1 else [most * (1 - 0.5**i) for i in range(1, 12)]
        return min(
            (2 * peak) ** (1 - a) * (slope * shift) ** a * inverse_moment(self.nu, (m + a) / 2) for a in powers
        ) / inverse_moment(self.nu, m / 2)

    def _change(self, shift: float) -> float:
        """The change of a value if t changes by δ.

        It is at most δ for ν ≥ ½: −dκ/dt = √(2ν)2^{1−ν}/Γ(ν)·sᵛK_{ν−1}(s) ≤ 1, as K_{ν−1} ≤ K_½ for ½ ≤ ν ≤ 3/2, and
        −dκ/dt ≤ μ_½e^{−½} beyond. For ν < ½, κ is convex in t, so that it changes by 1 − κ(δ) at most. By the series of
        κ in s = √(2ν)δ this is at most Γ(1 − ν)/Γ(1 + ν)·(s/2)^{2ν}(1 + s²).
        """
        if self.nu >= 0.5:
            return shift
        s = sqrt(2 * self.nu) * shift
        return min(exp(lgamma(1 - self.nu) - lgamma(1 + self.nu)) * (s / 2) ** (2 * self.nu) * (1 + s * s), 1.0)


def inverse_moment(nu: float, a: float) -> float:
    """E g⁻ᵃ = νᵃΓ(ν − a)/Γ(ν), a < ν, for g of a gamma distribution of shape ν and mean 1; it decreases with ν."""
    nu = min(nu, 1e6)  # beyond, the difference of logarithms cancels
    return exp(a * log(nu) + lgamma(nu - a) - lgamma(nu))


def half_integer_slope(n: int, k: int, s: Array) -> Array:
    """(2ν)ᵏ2^{1−ν}/Γ(ν)·s^{ν−k}K_{ν−k}(s) for ν = n + ½, as q(s)e⁻ˢ for k ≤ n and q(1/s)e⁻ˢ else; 0 at s = 0 then.

    K_{j+½}(s) = √(π/2s)e⁻ˢΣᵢ aᵢ(2s)⁻ⁱ with aᵢ = (j + i)!/(i!(j − i)!), i = 0 … j.
    """
    j = n - k if k <= n else k - n - 1
    a = [Fraction(factorial(j + i), factorial(i) * factorial(j - i) * 2**i) for i in range(j + 1)]
    # 2^{1−ν}√(π/2)/Γ(ν) = 2ⁿn!/(2n)!
    front = Fraction(2 * n + 1) ** k * Fraction(2**n * factorial(n), factorial(2 * n))
    e = np.exp(-s)
    if k <= n:
        return _horner([front * value for value in a], s) * e
    r = np.divide(1.0, s, out=np.zeros_like(s), where=s > 0)
    return _horner([front * value for value in a[::-1]], r) * r ** (j + 1) * e


def _horner(coefficients: list[Fraction], x: Array) -> Array:
    """Σᵢ cᵢx^{n−i}, from the highest power down."""
    total = np.full_like(x, float(coefficients[0]))
    for c in coefficients[1:]:
        total *= x
        total += float(c)
    return total


@dataclass(frozen=True)
class RationalQuadratic(_Isotropic):
    """κ(x, y) = (1 + ‖x − y‖²/(2ασ²))^(−α), a scale mixture of Gaussian kernels.

    Parameters
    ----------
    sigma, alpha : float > 0
        Length scale, and shape: a smaller α gives long scales more weight; α → ∞ is the Gaussian kernel.

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.kernels.RationalQuadratic(sigma=1.0, alpha=1.0)([[0.0]], [[2.0]]).round(4)
    array([[0.3333]])
    """

    sigma: float
    alpha: float = 1.0

    _reals: ClassVar = {"sigma": RealField(), "alpha": RealField()}

    _decreases = True

    def __post_init__(self) -> None:
        require_positive(self, "sigma", "alpha")

    def _verdict(self) -> Verdict:
        return Verdict(True, "mixture of Gaussian kernels with nonnegative weights")

    @property
    def _smoothness(self) -> int:
        return 4

    def _outer(self, rho: Array, count: int) -> list[Array]:
        logarithm, values = np.log1p(rho / self.alpha), []
        factor = 1.0
        for k in range(count + 1):
            values.append(factor * np.exp((-self.alpha - k) * logarithm))
            factor *= -(self.alpha + k) / self.alpha
        return values

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        return radial(X, Z, self.sigma, self._profile)

    def _slope_of_shape(self, rho: Array) -> Array:
        """κ·(t/(1 + t) − log(1 + t)), t = ρ/α; by the series −Σₙ(1 − 1/n)(−t)ⁿ for small t, where terms cancel."""
        t = rho / self.alpha
        logarithm = np.log1p(t)
        small = np.minimum(t, 0.01)
        series = np.zeros_like(t)
        for n in range(9, 1, -1):
            series = (series + (1 / n - 1)) * -small
        return np.where(t < 0.01, -small * series, t / (1 + t) - logarithm) * np.exp(-self.alpha * logarithm)

    def _profile(self, rho: Array) -> Array:
        """exp(−α·log(1 + ρ/α)), in place; 1 + ρ/α would lose ρ where α is large."""
        rho /= self.alpha
        np.log1p(rho, out=rho)
        rho *= self.alpha
        return exp_minus(rho)

    def _rounding(self, at: Inexact) -> float:
        """The bound for kernels of ρ; ∞ where ρ overflows, as κ may decay so slowly that the computed 0 is wrong."""
        with np.errstate(over="ignore"):
            largest = float(np.sum((spread(at.points) / self.sigma) ** 2))
        return super()._rounding(at) if isfinite(largest) else inf

    def _peak(self, k: int, p: float, share: float = 1.0) -> float:
        """|g⁽ᵏ⁾|tᵖ at its maximum, v = (p/2)/(a − p/2).

        |g⁽ᵏ⁾| = Π_{i<k}(1 + i/α)·(1 + v)^{−a} with a = α + k and t = √(2αv); a `share` of a is for `_evaluation`.
        """
        a, half = share * (self.alpha + k), p / 2
        v = half / (a - half)
        powers = (2 * self.alpha * v) ** half * exp(-a * log1p(v))
        return float(prod(1 + i / self.alpha for i in range(k)) * powers)

    def _evaluation(self, k: int, p: int) -> float:
        """The errors of exp and of its exponent, (8u + γ₄)s for s = (α + k)·log(1 + ρ/α).

        The latter makes (8u + γ₄)s·e^{−s} ≤ (8u + γ₄)(2/e)e^{−s/2}: the peak with half the exponent.
        """
        return FUNCTION * self._peak(k, p) + (FUNCTION + gamma(6)) * self._peak(k, p, share=0.5)


@dataclass(frozen=True)
class Periodic(_Stationary):
    """κ(x, y) = exp(−2Σⱼ sin²(π(xⱼ − yⱼ)/period)/σ²), periodic in every column.

    The sine is taken per column: for two or more columns, the sine of ‖x − y‖ does not give a kernel.

    Parameters
    ----------
    period, sigma : float > 0
        `period` is in the units of x, `sigma` relative to the circle of radius 1 that a period is mapped to.

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.kernels.Periodic(period=2.0, sigma=1.0)([[0.0]], [[1.0], [2.0]]).round(4)
    array([[0.1353, 1.    ]])
    """

    period: float
    sigma: float = 1.0

    _reals: ClassVar = {"period": RealField(), "sigma": RealField()}
    _elsewhere: ClassVar = {**_Stationary._elsewhere, "periodicity": "period"}

    def __post_init__(self) -> None:
        require_positive(self, "period", "sigma")

    def _verdict(self) -> Verdict:
        return Verdict(True, "Gaussian kernel of points on circles (MacKay 1998)")

    @property
    def _smoothness(self) -> int:
        return 4

    def _derivative(self, X: Array, dx: Order, Z: Array, dz: Order) -> Array:
        """exp(−φ) with φ = Σⱼ (1 − cos(2πdⱼ/period))/σ², d = x − z."""

        def inner(block: list[ChainStep]) -> Any:
            j, m = block[0].column, len(block)
            if any(step.column != j for step in block):
                return 0.0
            sign = 1.0 if sum(not step.left for step in block) % 2 == 0 else -1.0
            w = 2 * np.pi / self.period
            slope = np.cos(w * (P[:, j, None] - R[:, j]) + m * np.pi / 2) / self.sigma / self.sigma
            return -sign * np.power(w, m) * slope

        P, R = np.remainder(X, self.period), np.remainder(Z, self.period)
        taken, K = steps(dx, dz), self._matrix(X, Z)
        return chain([K if k % 2 == 0 else -K for k in range(len(taken) + 1)], inner, taken)

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """As for a Gaussian kernel of points on circles, (cos a, sin a) for angles a = wx with w = 2π/period.

        From the gradients (p, q) to these coordinates, that to an angle is q cos a − p sin a, and that to the period
        −w/period·Σ x∘angles; it depends on differences only, so that x may be shifted.
        """
        P, R = self._circle(X), self._circle(Z)
        rho = half_squared_distances(P, R, self.sigma)
        M, fields = -G * np.exp(-rho), {}
        if "sigma" in wanted:
            fields["sigma"] = -2 / self.sigma * total(M, rho)
        if "period" not in wanted and not points:
            return Adjoint(fields)
        w, centre = 2 * pi / self.period, np.median(Z, axis=0)
        left, right = (
            _to_angles(C, g / self.sigma / self.sigma)
            for C, g in zip((P, R), differences(M, P, R, self.sigma), strict=True)
        )
        if "period" in wanted:
            fields["period"] = -w / self.period * (total(left, X - centre) + total(right, Z - centre))
        return Adjoint(fields, w * left, w * right) if points else Adjoint(fields)

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        # 2 sin²(πd/p) = ½‖(cos, sin)(2πx/p) − (cos, sin)(2πy/p)‖²
        return radial(self._circle(X), None if Z is None else self._circle(Z), self.sigma, exp_minus)

    def _rounding(self, at: Inexact) -> float:
        """The bound of a Gaussian kernel for points on circles, whose coordinates have errors up to η = 40u.

        Of these, 4u·2π are from angles and 8u from cos. A derivative is e^{−φ} times sines; in units of period and σ
        each sine is at most √(2φ), with an error of 2η/σ.
        """
        circle, order, d = self._circle(at.points), 2 * at.order, at.points.shape[1]
        eta = 40 * UNIT + pi / self.period * at.shift()
        shift = 2 * eta * sqrt(2 * d) / self.sigma
        exponent = growth(half_square_error(circle, self.sigma)) + direct_error(circle) + FUNCTION
        if not order:
            return min(exponent + shift, 1.0)
        sines = order * (2 * eta + FUNCTION) * max(1.0, 1 / self.sigma)
        return PARTITIONS[order] * (exponent + shift + sines + gamma(CHAIN)) * gaussian_peak(order + 2)

    def _circle(self, X: Array) -> Array:
        # Without the remainder, the rounding of an angle would grow with x.
        angle = (2 * np.pi / self.period) * np.remainder(X, self.period)
        return np.hstack([np.cos(angle), np.sin(angle)])


def _to_angles(circle: Array, gradient: Array) -> Array:
    """The gradient to angles from that to (cos a, sin a)."""
    d = circle.shape[1] // 2
    cos, sin = circle[:, :d], circle[:, d:]
    return gradient[:, d:] * cos - gradient[:, :d] * sin
