"""Matérn kernels as mixtures of Gaussian kernels, for any smoothness ν.

κ = E e^{−ρ/g}, where ρ = ‖x − y‖²/2σ² and g has a gamma distribution of shape ν and mean 1 (Matérn 1960). With g = eᵗ
it is an integral over all t with weights ∝ e^{−ν(eᵗ − 1 − t)}. The trapezoidal rule of step h has an error of at most
2M/(e^{2πa/h} − 1), M = sup over |b| < a of ∫|f(t + ib)|dt (Trefethen and Weideman, SIAM Review 56, 2014, theorem 5.1).
Here M = (cos a)^{−ν} relative to κ at ρ cos²a, for a < π/2. All terms of the sum are positive, so that none cancel.
Differentiated k times by ρ, a term gets the factor (−e⁻ᵗ)ᵏ.

The sum takes some dozens of exponentials. So values of κ, without derivatives, come from a table: polynomials of degree
n that interpolate the sum at Chebyshev points of [a, b], a sixteenth of an interval [2ᵉ, 2ᵉ⁺¹]. |κ| ≤ 1 where Re ρ ≥ 0,
which holds in the ellipse of parameter r = 66 around a and b; so the error is at most 4r⁻ⁿ/(r − 1) (Trefethen,
Approximation Theory and Approximation Practice, 2013, theorem 8.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import frexp, fsum, log, log1p, pi, sqrt
from typing import NamedTuple

import numpy as np

from kernelopt.kernels.rounding import FUNCTION
from kernelopt.support.arithmetic import UNIT, gamma
from kernelopt.support.properties import cached_property
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
# Of the table: the degree, for an error of 3e-18, and the bits of a double that number a cell, with 4 of its mantissa.
DEGREE, CELL = 9, 48
# The Lebesgue constant of 10 Chebyshev points is below 2.5; Horner's rule and the coefficients add 40u.
LEBESGUE, OF_TABLE = 2.5, 40 * UNIT
MOST_NODES = 2000  # more of them, for ν < 1e-6 only, make the table take seconds: then sums are taken


class CellPolynomials(NamedTuple):
    """Polynomials Σₖ cₖvᵏ, v = factor·(ρ − start) − 1, for each cell: (cells,) and (DEGREE + 1, cells)."""

    factors: Array
    coefficients: Array


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

    def interpolated(self, rho: Array) -> Array:
        """κ for ρ > 0, from the table."""
        shape, flat = rho.shape, np.clip(rho, LEAST_RHO, self._largest).ravel()
        if len(self.rates) > MOST_NODES:
            return self.values(rho, 0)[0]
        found = np.empty(flat.size)
        for start in range(0, flat.size, CHUNK):
            part = flat[start : start + CHUNK]
            cells = part.view(np.int64) >> CELL
            v = part - (cells << CELL).view(np.float64)  # exact, as is the product: its factor is a power of 2
            cells -= self._first
            v *= self._table.factors.take(cells)
            v -= 1.0
            total = self._table.coefficients[DEGREE].take(cells)
            for k in range(DEGREE - 1, -1, -1):
                total *= v
                total += self._table.coefficients[k].take(cells)
            found[start : start + CHUNK] = total
        return found.reshape(shape)

    @property
    def _first(self) -> int:
        return int(np.array([LEAST_RHO]).view(np.int64)[0] >> CELL)

    @cached_property
    def _largest(self) -> float:
        """ρ beyond which all terms are 0."""
        return min(800.0 / float(self.rates[0]), 1e307)

    @cached_property
    def _table(self) -> CellPolynomials:
        last = int(np.array([self._largest]).view(np.int64)[0] >> CELL)
        starts = np.arange(self._first, last + 2, dtype=np.int64) << CELL
        ends = starts.view(np.float64)
        middles, halves = (ends[1:] + ends[:-1]) / 2, (ends[1:] - ends[:-1]) / 2
        at = np.cos((np.arange(DEGREE + 1) + 0.5) * pi / (DEGREE + 1))
        center = self.values(middles, 0)[0]
        change = self.values(middles + np.outer(at, halves), 0)[0] - center
        in_chebyshev = 2 / (DEGREE + 1) * np.polynomial.chebyshev.chebvander(at, DEGREE).T @ change
        in_chebyshev[0] /= 2
        powers = np.zeros((DEGREE + 1, DEGREE + 1))  # column k: the coefficients of the k-th Chebyshev polynomial
        for k in range(DEGREE + 1):
            powers[: k + 1, k] = np.polynomial.chebyshev.cheb2poly(np.eye(DEGREE + 1)[k])[: k + 1]
        coefficients = powers @ in_chebyshev
        coefficients[0] += center
        return CellPolynomials(1 / halves, coefficients)

    def rounding(self, k: int) -> float:
        """The relative error of a weighted sum with factors cᵏ, for exact e^{−cρ}, and of the table."""
        of_sum = self._rounding_of_sum(k)
        return of_sum if k else LEBESGUE * of_sum + OF_TABLE

    def _rounding_of_sum(self, k: int) -> float:
        """Of weights, powers and the sum."""
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
    total = fsum([*weights.tolist(), left])
    weights /= total
    tilted = weights * np.exp(-derivatives / 2 * t)
    # Errors of exponents are 24u of them: 20u of eᵗ − 1 − t, and of products. The sum of the weights has their average.
    average = float(tilted @ exponents / tilted.sum() + weights @ exponents + left / total)
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
