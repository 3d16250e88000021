"""Indicators of sets that bound one row: balls of a norm, intervals, and cones of a norm beside a number.

The proof has no need of them, since a bound on a function of a row is one there; a solver that knows projections on
them needs no multiplier of the bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from kernelopt.pieces.function import Bounded, Family, Jacobian
from kernelopt.pieces.norms import RowNorm, dual_exponent, length_above, length_of
from kernelopt.support.arithmetic import UNIT
from kernelopt.support.types import Array

INNER = 8 * UNIT  # relative: how far inside of the polar cone multipliers are moved


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


@dataclass(frozen=True, eq=False)
class BelowNorm(Family):
    """h(r, s) = 0 where r + ω‖s‖ ≤ 0, with r the first entry, else ∞; (wh)*(a) = 0 where ‖a_s‖ ≤ ωa_r, else ∞."""

    factor: Array

    def take(self, which: Array) -> BelowNorm:
        return BelowNorm(self.factor[which])

    def value(self, s: Array) -> Array:
        return np.where(s[:, 0] + self.factor * length_of(s[:, 1:], 2.0) <= 0, 0.0, inf)

    def slope(self, s: Array) -> Array:
        """0, which is one inside."""
        return np.zeros_like(s)

    def highest(self, s: Array, e: Array) -> Array:
        most = self.factor * (length_above(s[:, 1:]) + length_above(e[:, 1:])) * (1 + 4 * UNIT)
        head = s[:, 0] + e[:, 0] + UNIT * (np.abs(s[:, 0]) + e[:, 0])
        return np.where(head + most <= 0, 0.0, inf)

    def conjugate(self, a: Array, r: Array, low: Array, high: Array) -> Bounded:
        length = length_above((np.abs(a[:, 1:]) + r[:, 1:]) * (1 + UNIT))
        room = self.factor * (a[:, 0] - r[:, 0] - UNIT * (np.abs(a[:, 0]) + r[:, 0])) * (1 - 2 * UNIT)
        return Bounded(np.where(length <= room, 0.0, inf), np.zeros(len(a)))

    def nearest(self, a: Array, w: Array) -> Array:
        found = self.prox(a, np.ones(len(a)), w)
        found[:, 0] = np.maximum(found[:, 0], length_above(found[:, 1:]) / self.factor * (1 + 2 * INNER)) * (1 + INNER)
        inside = self.conjugate(a, np.zeros_like(a), w, w).value == 0
        return np.where(inside[:, None], a, found)

    def _parts(self, z: Array) -> tuple[Array, Array, Array, Array]:
        """‖s‖, how far z is outside, the length that is left of s, and 1/(1 + ω²)."""
        length, share = length_of(z[:, 1:], 2.0), 1 / (1 + self.factor**2)
        out = np.maximum(z[:, 0] + self.factor * length, 0.0) * share
        return length, out, length - self.factor * out, share

    def prox(self, z: Array, tau: Array, w: Array) -> Array:
        """z less its projection: λ(1, ωs/‖s‖) with λ = (r + ω‖s‖)/(1 + ω²), or z where the apex is nearest."""
        length, out, left, _ = self._parts(z)
        away = np.where(length > 0, self.factor * out / np.where(length > 0, length, 1.0), 0.0)
        found = np.hstack([out[:, None], away[:, None] * z[:, 1:]])
        return np.asarray(np.where((left < 0)[:, None], z, found))

    def prox_slope(self, z: Array, tau: Array, w: Array) -> Jacobian:
        length, out, left, share = self._parts(z)
        safe = np.where(length > 0, length, 1.0)
        apex, between = (left < 0) & (out > 0), (left >= 0) & (out > 0)
        d = np.zeros_like(z)
        d[:, 1:] = (self.factor * out / safe)[:, None] * between[:, None]
        first = np.zeros_like(z)
        first[:, 0] = 1.0
        Z = np.stack([first, np.hstack([np.zeros((len(z), 1)), z[:, 1:] / safe[:, None]])], axis=2)
        T = np.zeros((len(z), 2, 2))
        T[:, 0, 0], T[:, 0, 1], T[:, 1, 0] = share, share * self.factor, share * self.factor
        T[:, 1, 1] = share * self.factor**2 - self.factor * out / safe
        return Jacobian(np.where(apex[:, None], 1.0, d), Z, T * between[:, None, None])
