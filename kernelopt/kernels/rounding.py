"""A priori bounds on rounding errors, with u = 2⁻⁵³ and γₙ = nu/(1 − nu) (Higham 2002, chapter 3).

A kernel states r with |κ̂(x, z) − κ(x, z)| ≤ r√(s(x)s(z)): κ̂ is the computed value, κ the exact value of the formula
for the same numbers, and s the size of κ, which is κ(x, x) where κ is positive semidefinite. Sums may be taken in any
order, as BLAS does. Counts of operations are rounded up, which covers the rounding of the bounds themselves.
"""

from __future__ import annotations

from math import exp, expm1, inf, log1p
from typing import NamedTuple

import numpy as np

from kernelopt.kernels.sparse_rows import are_nonzero, stacked, terms
from kernelopt.support.arithmetic import UNIT, gamma
from kernelopt.support.types import Array

# Relative error assumed of exp, log1p, pow, tanh, sin and cos: four units in the last place, each at most 2u. This
# leaves room for vectorized routines, which may be less accurate than scalar ones; larger values loosen all bounds.
FUNCTION = 8 * UNIT
LEAST = 2.0**-1022  # smallest normal double; an operation that underflows has an absolute error up to it
# Operations of a derivative by the chain rule, without those of its factors: 15 partitions of 4 derivatives, two in x
# and two in z, each a product of up to 4 blocks.
CHAIN = 60
PARTITIONS = (1, 1, 2, 5, 15)  # number of partitions of m derivatives into blocks, by m (Bell numbers)


class Inexact(NamedTuple):
    """Points that a kernel is evaluated at.

    points : canonical rows; error : bounds on the errors of their entries, None for 0; order : the highest order of a
    derivative in x, and in z
    """

    points: Array
    error: Array | None = None
    order: int = 0

    def beside(self, others: Array) -> Inexact:
        """These points, followed by others without errors."""
        error = None if self.error is None else np.concatenate([self.error, np.zeros(others.shape)])
        return self._replace(points=stacked([self.points, others]), error=error)

    def shift(self, norm: float = 2) -> float:
        """2·maxᵢ‖eᵢ‖, a bound on the error of a difference of two points."""
        return 0.0 if self.error is None else 2 * float(np.linalg.norm(self.error, norm, axis=1).max())

    def relative(self) -> float:
        """maxᵢ ‖eᵢ‖/‖xᵢ‖."""
        if self.error is None:
            return 0.0
        return largest_ratio(np.linalg.norm(self.error, axis=1), np.linalg.norm(self.points, axis=1))

    def relative_entries(self) -> float:
        """maxᵢⱼ eᵢⱼ/|xᵢⱼ|."""
        return 0.0 if self.error is None else largest_ratio(self.error, np.abs(self.points))


def compounded(*errors: float) -> float:
    """(1 + e₁)(1 + e₂)⋯ − 1."""
    return exponential(sum(log1p(e) for e in errors))


def repeated(error: float, times: float) -> float:
    """(1 + e)ⁿ − 1."""
    return exponential(times * log1p(error)) if times else 0.0


def exponential(error: float) -> float:
    """eᵉ − 1: the relative error of an exponential, from the absolute one of its exponent."""
    # math.expm1 and math.exp raise OverflowError from 710 on.
    return expm1(error) if error < 700 else inf


def growth(error: float) -> float:
    """e·eᵉ, as in |g(ρ + e) − g(ρ)| ≤ e·eᵉ|g′(ρ)|, which holds where |g″| ≤ |g′|."""
    return error * exp(error) if error < 700 else inf


def largest_ratio(numerator: Array, denominator: Array) -> float:
    """The largest of aᵢ/bᵢ, where 0/0 is 0."""
    used = numerator > 0
    with np.errstate(divide="ignore", over="ignore"):
        return float((numerator[used] / denominator[used]).max()) if used.any() else 0.0


def spread(X: Array) -> Array:
    """The largest |xᵢⱼ − cⱼ| for any c in the box that holds the points, (n, d)."""
    low, high = X.min(axis=0), X.max(axis=0)
    return np.maximum(X - low, high - X)


def underflow(size: Array, alive: Array, operations: float = 1) -> float:
    """n·2⁻¹⁰²²/min sᵢ, the relative error of n operations that may underflow; γₙ leaves it out.

    The minimum is over the rows whose size is not exactly 0 (`alive`). It is ∞ where such a size underflowed to 0.
    """
    return largest_ratio(np.full(int(alive.sum()), operations * LEAST), size[alive])


def sum_of_squares_error(X: Array, error: float, squares: Array, floor: float = 0.0) -> float:
    """ε with |x̂ᵀz − xᵀz| ≤ ε(f + ‖x‖‖z‖): γ_d, underflow, and (1 + η)² for points with errors up to η‖x‖."""
    d = terms(X)
    return compounded(gamma(d), error, error) + underflow(floor + squares, are_nonzero(X), d)


def relative_to(diagonal: Array, size: Array, error: float) -> float:
    """A bound relative to √(qᵢqⱼ) from the bound r relative to √(sᵢsⱼ): r·max sᵢ(1 + r)/(|qᵢ| − r·sᵢ).

    The computed q and s have errors up to r·s themselves.
    """
    used = size > 0
    if not error < inf:
        return inf
    if error == 0 or not used.any():
        return 0.0
    left = np.abs(diagonal[used]) - error * size[used]
    return error * (1 + error) * largest_ratio(size[used], left) if left.min() > 0 else inf
