"""Matérn kernels as mixtures of Gaussian kernels, for any smoothness ν.

κ = E e^{−ρ/g}, where ρ = ‖x − y‖²/2σ² and g has a gamma distribution of shape ν and mean 1 (Matérn 1960). With g = eᵗ
it is an integral over all t with weights ∝ e^{−ν(eᵗ − 1 − t)}. The trapezoidal rule of step h has an error of at most
2M/(e^{2πa/h} − 1), M = sup over |b| < a of ∫|f(t + ib)|dt (Trefethen and Weideman, SIAM Review 56, 2014, theorem 5.1).
Here M = (cos a)^{−ν} relative to κ at ρ cos²a, for a < π/2. All terms of the sum are positive, so that none cancel.
Differentiated k times by ρ, a term gets the factor (−e⁻ᵗ)ᵏ.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import frexp, fsum, log, log1p, pi, sqrt

import numpy as np

from kernelopt.kernels.rounding import FUNCTION
from kernelopt.support.arithmetic import UNIT, gamma
from kernelopt.support.types import Array

# Logarithm of the reciprocal of the error of the rule, 2⁻⁶⁰, and of the first terms left out, e⁻⁵⁰. Larger ones need
# more nodes, and would be lost in the rounding of the sum.
RULE, LEFT_OUT = 60 * log(2), 50.0
MISSED = 4 * UNIT  # covers the rule and the terms left out
# The least t, which keeps e⁻⁴ᵗ within range. With ρ ≥ LEAST_RHO, e^{−ρ/g} < e⁻⁶⁰⁰ there.
LOWEST, LEAST_RHO = -170.0, 1e-72
VANISHED = 90.0  # e⁻⁹⁰ times any term is lost beside the others
# Terms in one partial sum of nodes; partial sums are added up afterwards, which keeps the bound on rounding small.
GROUP = 16
CHUNK = 8192  # values of ρ that are worked on at once, 64 kB


@dataclass(frozen=True, eq=False)
class GammaMixture:
    """Nodes 1/g, increasing; weights of sum 1 − those of nodes that are left out; and relative errors of weighted sums.

    error : bounds Σⱼ wⱼ|ŵⱼ/wⱼ − 1|gⱼ^{−m/2}/Σⱼ wⱼgⱼ^{−m/2}, for m derivatives
    """

    rates: Array
    weights: Array
    error: float

    def values(self, rho: Array, count: int) -> list[Array]:
        """Σⱼ wⱼcⱼᵏe^{−cⱼρ} for k = 0 … count and ρ > 0, each in the shape of ρ."""
        shape, flat = rho.shape, np.maximum(rho, LEAST_RHO).ravel()
        found = np.zeros((count + 1, flat.size))
        if flat.size:
            most = int(np.searchsorted(self.rates, VANISHED / flat.min(), side="right"))
            powers = self.weights[:most] * self.rates[:most] ** np.arange(count + 1)[:, None]
            for start in range(0, flat.size, CHUNK):
                part = slice(start, start + CHUNK)
                _add_terms(flat[part], self.rates[:most], powers, found[:, part])
        return [values.reshape(shape) for values in found]

    def rounding(self, k: int) -> float:
        """The relative error of a weighted sum with factors cᵏ, for exact e^{−cρ}: weights, powers, the sum."""
        return self.error + (k + 2) * FUNCTION + float(gamma(GROUP + len(self.rates) / GROUP + 4)) + MISSED


@np.errstate(over="ignore")  # e^−∞ = 0
def _add_terms(rho: Array, rates: Array, powers: Array, total: Array) -> None:
    """Add Σⱼ powers[k, j]·e^{−rates[j]·ρ} to total[k], entry by entry in the same order."""
    terms, product = np.empty_like(rho), np.empty_like(rho)
    for start in range(0, len(rates), GROUP):
        sums = np.zeros_like(total)
        for j in range(start, min(start + GROUP, len(rates))):
            np.multiply(rho, -rates[j], out=terms)
            np.exp(terms, out=terms)
            for k in range(len(total)):
                np.multiply(terms, powers[k, j], out=product)
                sums[k] += product
        total += sums


@lru_cache(maxsize=64)
def gamma_mixture(nu: float, derivatives: int = 0) -> GammaMixture:
    """The rule for one ν, and up to so many derivatives of κ; nodes are multiples of a step of few binary digits."""
    h = _step(nu)
    t = h * np.arange(-int(_reach(nu, derivatives / 2) / h), int(_end(nu) / h) + 1)
    exponents = nu * _bend(t)
    weights = np.exp(-exponents)
    # Below the first node eᵗ is negligible, and the weights left are a geometric series.
    left = np.exp(nu * (t[0] - h - np.expm1(t[0]))) / -np.expm1(-nu * h)
    weights /= fsum([*weights.tolist(), left])
    tilted = weights * np.exp(-derivatives / 2 * t)
    # Errors of exponents are 24u of them: 20u of eᵗ − 1 − t, and of products. The sum of the weights has their average.
    average = float(tilted @ exponents / tilted.sum() + weights @ exponents + left)
    error = 24 * UNIT * average + 3 * FUNCTION + float(gamma(6))
    return GammaMixture(np.exp(-t)[::-1], weights[::-1], error)


def _step(nu: float) -> float:
    """The largest h with 2(cos a)^{−ν}/(e^{2πa/h} − 1) ≤ 2⁻⁶⁰ for some a, rounded down to 20 binary digits."""
    angles = np.concatenate([np.linspace(0.02, 1.55, 100), sqrt(2 * RULE / nu) * np.linspace(0.5, 1.0, 9)])
    angles = angles[angles < 1.56]
    h = float((2 * pi * angles / (RULE + log(4) - nu * np.log(np.cos(angles)))).max())
    unit = 2.0 ** (frexp(h)[1] - 20)
    return unit * float(np.floor(h / unit))


def _end(nu: float) -> float:
    """t > 0 with ν(eᵗ − 1 − t) ≥ 50, from y − log(1 + y) ≥ y²/2(1 + y) for y = eᵗ − 1."""
    a = min(LEFT_OUT / nu, 1e305)
    return log1p(a + sqrt(a) * sqrt(a + 2))


def _reach(nu: float, a: float) -> float:
    """τ with ν(e^{−τ} − 1 + τ) − aτ ≥ 50, from e^{−τ} − 1 + τ ≥ τ²/(2 + τ); at most −LOWEST."""
    b = 2 * a + LEFT_OUT
    return min((b + sqrt(b * b + 8 * LEFT_OUT * (nu - a))) / (2 * (nu - a)), -LOWEST) if nu > a else -LOWEST


def _bend(t: Array) -> Array:
    """eᵗ − 1 − t, by its series where |t| < 1: there the terms of the difference would cancel."""
    small, series = np.clip(t, -1.0, 1.0), np.zeros_like(t)
    for n in range(22, 2, -1):
        series = (1 + series) * small / n
    return np.where(np.abs(t) < 1, small * small / 2 * (1 + series), np.expm1(t) - t)
