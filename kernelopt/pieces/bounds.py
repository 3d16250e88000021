"""Indicators of sets that bound one row: balls of a norm, and intervals. The proof has no need of them, since a bound
on a function of a row is one there; a solver that knows projections on them needs no multiplier of the bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from kernelopt.pieces.function import Bounded, Family, Jacobian
from kernelopt.pieces.norms import RowNorm, dual_exponent, length_above, length_of
from kernelopt.support.arithmetic import UNIT
from kernelopt.support.types import Array


@dataclass(frozen=True, eq=False)
class Ball(Family):
    """h(s) = 0 where ‖s‖ₚ ≤ ρ, else ∞; (wh)*(a) = ρ‖a‖_q with 1/p + 1/q = 1."""

    p: float
    radius: Array

    def take(self, which: Array) -> Ball:
        return Ball(self.p, self.radius[which])

    @property
    def dual(self) -> RowNorm:
        """‖·‖_q, the projection of whose slopes is that on the ball."""
        return RowNorm(dual_exponent(self.p))

    def value(self, s: Array) -> Array:
        return np.where(length_of(s, self.p) <= self.radius, 0.0, inf)

    def slope(self, s: Array) -> Array:
        """0, which is one inside."""
        return np.zeros_like(s)

    def highest(self, s: Array, e: Array) -> Array:
        most = (length_above(s, self.p) + length_above(e, self.p)) * (1 + 2 * UNIT)
        return np.where(most <= self.radius, 0.0, inf)

    def conjugate(self, a: Array, r: Array, low: Array, high: Array) -> Bounded:
        q = self.dual.p
        value, most = self.radius * length_of(a, q), length_above((np.abs(a) + r) * (1 + 2 * UNIT), q)
        return Bounded(value, np.maximum(most * self.radius * (1 + 2 * UNIT) - value, 0.0))

    def nearest(self, a: Array, w: Array) -> Array:
        return a

    def prox(self, z: Array, tau: Array, w: Array) -> Array:
        """By Moreau's identity z − τx, with x the projection of z/τ on the ball."""
        return np.asarray(z - self.dual.prox(z, tau, tau * self.radius))

    def prox_slope(self, z: Array, tau: Array, w: Array) -> Jacobian:
        J = self.dual.prox_slope(z, tau, tau * self.radius)
        return Jacobian(1 - J.d, J.Z, -J.T)


@dataclass(frozen=True, eq=False)
class Between(Family):
    """h(s) = 0 where l ≤ s ≤ u, else ∞, for one number each; (wh)*(a) = ua₊ − la₋."""

    low: Array
    high: Array

    def take(self, which: Array) -> Between:
        return Between(self.low[which], self.high[which])

    def value(self, s: Array) -> Array:
        return np.where((s[:, 0] >= self.low) & (s[:, 0] <= self.high), 0.0, inf)

    def slope(self, s: Array) -> Array:
        """0, which is one inside."""
        return np.zeros_like(s)

    def highest(self, s: Array, e: Array) -> Array:
        off = e[:, 0] + UNIT * (np.abs(s[:, 0]) + e[:, 0]) * (e[:, 0] > 0)
        return np.where((s[:, 0] - off >= self.low) & (s[:, 0] + off <= self.high), 0.0, inf)

    def conjugate(self, a: Array, r: Array, low: Array, high: Array) -> Bounded:
        found = np.maximum(*(self._support(end) for end in ((a - r)[:, 0], (a + r)[:, 0])))
        return Bounded(found, np.where(np.isfinite(found), 4 * UNIT * np.abs(found), 0.0))

    def _support(self, a: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return np.where(a == 0, 0.0, np.maximum(a * self.low, a * self.high))

    def nearest(self, a: Array, w: Array) -> Array:
        ends = np.where(np.isfinite(self.low), -inf, 0.0), np.where(np.isfinite(self.high), inf, 0.0)
        return np.clip(a, ends[0][:, None], ends[1][:, None])

    def prox(self, z: Array, tau: Array, w: Array) -> Array:
        """z − τx, with x the projection of z/τ."""
        return np.asarray(z - np.clip(z, (tau * self.low)[:, None], (tau * self.high)[:, None]))

    def prox_slope(self, z: Array, tau: Array, w: Array) -> Jacobian:
        inside = (z > (tau * self.low)[:, None]) & (z < (tau * self.high)[:, None])
        return Jacobian.diagonal(np.where(inside, 0.0, 1.0))
