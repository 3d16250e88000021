"""Functions of the length of a row: ‖s‖, (‖s‖ − ε)₊, ‖s‖², Huber's function of ‖s‖, and other norms of a row."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from kernelopt.pieces.function import Bounded, Family, Jacobian
from kernelopt.pieces.quadratics import Piecewise
from kernelopt.support.arithmetic import UNIT, gamma
from kernelopt.support.types import Array


def _length(x: Array, p: float = 2.0) -> Array:
    """‖xᵢ‖ₚ of each row, without over- or underflow."""
    size = np.abs(x).max(axis=1, initial=0.0)
    unit = np.where((size > 0) & np.isfinite(size), size, 1.0)
    return np.asarray(unit * np.linalg.norm(x / unit[:, None], p, axis=1))


def _length_above(x: Array, p: float = 2.0) -> Array:
    """An upper bound on ‖xᵢ‖ₚ. Sums of powers are off by their rounding, which the root divides by p."""
    exact = p in (1.0, inf)
    return _length(x, p) * (1 + gamma(x.shape[1] + 8) + (0.0 if exact else 64 * UNIT))


def dual_exponent(p: float) -> float:
    """q with 1/p + 1/q = 1."""
    return 1.0 if p == inf else inf if p == 1 else p / (p - 1)


@dataclass(frozen=True, eq=False)
class Radial(Family):
    """h(s) = φ(‖s‖₂) with φ piecewise quadratic, constant on r ≤ 0 and not decreasing; (wh)*(a) = (wφ)*(‖a‖₂).

    Reads norm2, pnorm(2), and pos, square, huber, … of them.
    """

    shape: Piecewise

    def value(self, s: Array) -> Array:
        return self.shape.of(_length(s))

    def slope(self, s: Array) -> Array:
        """φ′(‖s‖)s/‖s‖, and 0 at s = 0."""
        length = _length(s)
        rate = self.shape.slopes(length)[0]
        return np.asarray(np.where(length > 0, rate / np.where(length > 0, length, 1.0), 0.0)[:, None] * s)

    def highest(self, s: Array, e: Array) -> Array:
        most = (_length_above(s) + _length_above(e)) * (1 + 2 * UNIT)
        return np.asarray(self.shape.of(most) + self.shape.rounding(most))

    def conjugate(self, a: Array, r: Array, low: Array, high: Array) -> Bounded:
        """(wφ)* does not decrease on lengths ≥ 0, so that the longest a counts."""
        longest = _length_above(np.abs(a) + r)[:, None]
        return self.shape.conjugate(longest, np.zeros_like(longest), low, high)

    def nearest(self, a: Array, w: Array) -> Array:
        """a shortened to the domain, a few roundings inside of it."""
        most = self.shape.ends(w)[1]
        length = _length_above(a)
        with np.errstate(all="ignore"):
            share = np.where(length > most, most / length * (1 - 2 * gamma(a.shape[1] + 12) - 128 * UNIT), 1.0)
        return np.asarray(share[:, None] * a)

    def prox(self, z: Array, tau: Array, w: Array) -> Array:
        """z/‖z‖ times the prox of (wφ)* at ‖z‖."""
        length = _length(z)[:, None]
        return np.asarray(
            z * np.where(length > 0, self.shape.prox(length, tau, w) / np.where(length > 0, length, 1), 0)
        )

    def prox_slope(self, z: Array, tau: Array, w: Array) -> Jacobian:
        """βI + (ρ′ − β)ẑẑᵀ with ρ the prox at ‖z‖ and β = ρ/‖z‖; at z = 0, β = ρ′."""
        length = _length(z)[:, None]
        safe = np.where(length > 0, length, 1.0)
        rate = self.shape.prox_slope(length, tau, w).d
        beta = np.where(length > 0, self.shape.prox(length, tau, w) / safe, rate)
        return Jacobian(np.repeat(beta, z.shape[1], axis=1), (z / safe)[:, :, None], (rate - beta)[:, :, None])


@dataclass(frozen=True, eq=False)
class RowNorm(Family):
    """h(s) = ‖s‖ₚ, 1 ≤ p ≤ ∞; (wh)*(a) = 0 where ‖a‖_q ≤ w, 1/p + 1/q = 1, else ∞. Reads pnorm, norm_inf."""

    p: float

    def value(self, s: Array) -> Array:
        return _length(s, self.p)

    def slope(self, s: Array) -> Array:
        """sign(s)(|s|/‖s‖ₚ)^(p − 1); for p = ∞ one of the largest entries, 0 at s = 0."""
        length = _length(s, self.p)[:, None]
        share = np.abs(s) / np.where(length > 0, length, 1.0)
        if self.p == inf:
            first = np.arange(s.shape[1]) == np.abs(s).argmax(axis=1)[:, None]
            return np.sign(s) * first * (length > 0)
        return np.asarray(np.sign(s) * np.where(share > 0, share ** (self.p - 1), 0.0))

    def highest(self, s: Array, e: Array) -> Array:
        return np.asarray((_length_above(s, self.p) + _length_above(e, self.p)) * (1 + 2 * UNIT))

    def conjugate(self, a: Array, r: Array, low: Array, high: Array) -> Bounded:
        zero = np.zeros(len(a))
        longest = _length_above((np.abs(a) + r) * (1 + 2 * UNIT), dual_exponent(self.p))
        return Bounded(np.where(longest <= low, 0.0, inf), zero)

    def nearest(self, a: Array, w: Array) -> Array:
        length = _length_above(a, dual_exponent(self.p))
        inside = 1 - 2 * gamma(a.shape[1] + 12) - 128 * UNIT
        share = np.where(length > w, w / np.where(length > 0, length, 1.0) * inside, 1.0)
        return np.asarray(share[:, None] * a)

    def prox(self, z: Array, tau: Array, w: Array) -> Array:
        """The projection on the ball ‖a‖_q ≤ w, for p = 1 and ∞."""
        if self.p == 1:
            return np.clip(z, -w[:, None], w[:, None])
        if self.p != inf:
            return super().prox(z, tau, w)
        return np.asarray(np.sign(z) * (np.maximum(np.abs(z) - self._level(z, w)[:, None], 0.0)))

    def prox_slope(self, z: Array, tau: Array, w: Array) -> Jacobian:
        """For p = ∞, diag(busy) − gg′/n with g the signs of the n busy entries, where z is outside of the ball."""
        if self.p == 1:
            return Jacobian.diagonal((np.abs(z) <= w[:, None]) * 1.0)
        if self.p != inf:
            return super().prox_slope(z, tau, w)
        level = self._level(z, w)
        busy = np.abs(z) > level[:, None]
        outside = (level > 0) & busy.any(axis=1)
        share = np.where(outside, -1.0 / np.maximum(busy.sum(axis=1), 1), 0.0)
        return Jacobian(busy * 1.0, (np.sign(z) * busy)[:, :, None], share[:, None, None])

    @staticmethod
    def _level(z: Array, w: Array) -> Array:
        """The λ ≥ 0 with Σ (|z| − λ)₊ = w, or 0 inside of the ball (Duchi et al. 2008)."""
        return np.maximum(level(np.abs(z), w), 0.0)


def level(z: Array, w: Array) -> Array:
    """The λ with Σₖ (zₖ − λ)₊ = w in each row, w ≥ 0."""
    down = -np.sort(-z, axis=1)
    count = np.arange(1, z.shape[1] + 1)
    means = (np.cumsum(down, axis=1) - w[:, None]) / count
    last = np.maximum((down > means).sum(axis=1), 1) - 1
    return np.asarray(means[np.arange(len(z)), last])
