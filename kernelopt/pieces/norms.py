"""Functions of the length of a row: ‖s‖, (‖s‖ − ε)₊, ‖s‖², Huber's function of ‖s‖, and other norms of a row."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from kernelopt.pieces.function import Bounded, Family, Jacobian
from kernelopt.pieces.quadratics import Piecewise
from kernelopt.support.arithmetic import UNIT, gamma
from kernelopt.support.types import Array, Ints

BRACKET, NEWTON = 120, 60  # steps of the roots that projections on balls of other orders need


def length_of(x: Array, p: float = 2.0) -> Array:
    """‖xᵢ‖ₚ of each row, without over- or underflow."""
    size = np.abs(x).max(axis=1, initial=0.0)
    unit = np.where((size > 0) & np.isfinite(size), size, 1.0)
    return np.asarray(unit * np.linalg.norm(x / unit[:, None], p, axis=1))


def length_above(x: Array, p: float = 2.0) -> Array:
    """An upper bound on ‖xᵢ‖ₚ. Sums of powers are off by their rounding, which the root divides by p."""
    exact = p in (1.0, inf)
    return length_of(x, p) * (1 + gamma(x.shape[1] + 8) + (0.0 if exact else 64 * UNIT))


def dual_exponent(p: float) -> float:
    """q with 1/p + 1/q = 1."""
    return 1.0 if p == inf else inf if p == 1 else p / (p - 1)


@dataclass(frozen=True, eq=False)
class Radial(Family):
    """h(s) = φ(‖s‖₂) with φ piecewise quadratic, constant on r ≤ 0 and not decreasing; (wh)*(a) = (wφ)*(‖a‖₂).

    Reads norm2, pnorm(2), and pos, square, huber, … of them.
    """

    shape: Piecewise

    @property
    def kind(self) -> Hashable:
        return Radial, self.shape.kind

    def joined(self, others: Sequence[Radial]) -> Radial:
        return Radial(self.shape.joined([f.shape for f in others]))

    def take(self, which: Array) -> Radial:
        return Radial(self.shape.take(which))

    def value(self, s: Array) -> Array:
        return self.shape.of(length_of(s))

    def slope(self, s: Array) -> Array:
        """φ′(‖s‖)s/‖s‖, and 0 at s = 0."""
        length = length_of(s)
        rate = self.shape.slopes(length)[0]
        return np.asarray(np.where(length > 0, rate / np.where(length > 0, length, 1.0), 0.0)[:, None] * s)

    def slopes_near(self, s: Array, near: Array) -> tuple[Array, Array]:
        length = length_of(s)
        at_zero, unit = (length <= near)[:, None], s / np.where(length > 0, length, 1.0)[:, None]
        least, most = self.shape.slopes(length - near)[0], self.shape.slopes(length + near)[1]
        both = least[:, None] * unit, most[:, None] * unit
        high = np.where(at_zero, most[:, None], np.maximum(*both))
        return np.where(at_zero, -high, np.minimum(*both)), high

    def highest(self, s: Array, e: Array) -> Array:
        most = (length_above(s) + length_above(e)) * (1 + 2 * UNIT)
        value = self.shape.of(most)
        return np.asarray(value + self.shape.rounding(most, value))

    def conjugate(self, a: Array, r: Array, low: Array, high: Array) -> Bounded:
        """(wφ)* does not decrease on lengths ≥ 0, so that the longest a counts."""
        longest = length_above(np.abs(a) + r)[:, None]
        return self.shape.conjugate(longest, np.zeros_like(longest), low, high)

    def nearest(self, a: Array, w: Array) -> Array:
        """a shortened to the domain, a few roundings inside of it."""
        most = self.shape.ends(w)[1]
        length = length_above(a)
        with np.errstate(all="ignore"):
            share = np.where(length > most, most / length * (1 - 2 * gamma(a.shape[1] + 12) - 128 * UNIT), 1.0)
        return np.asarray(share[:, None] * a)

    def prox(self, z: Array, tau: Array, w: Array) -> Array:
        """z/‖z‖ times the prox of (wφ)* at ‖z‖."""
        length = length_of(z)[:, None]
        return np.asarray(
            z * np.where(length > 0, self.shape.prox(length, tau, w) / np.where(length > 0, length, 1), 0)
        )

    def prox_slope(self, z: Array, tau: Array, w: Array) -> Jacobian:
        """βI + (ρ′ − β)ẑẑᵀ with ρ the prox at ‖z‖ and β = ρ/‖z‖; at z = 0, β = ρ′."""
        length = length_of(z)[:, None]
        safe = np.where(length > 0, length, 1.0)
        rate = self.shape.prox_slope(length, tau, w).d
        beta = np.where(length > 0, self.shape.prox(length, tau, w) / safe, rate)
        return Jacobian(np.repeat(beta, z.shape[1], axis=1), (z / safe)[:, :, None], (rate - beta)[:, :, None])


def _root_of_power(z: Array, mu: Array, q: float) -> Array:
    """a with a + μa^(q − 1) = z for z ≥ 0, μ ≥ 0 and q > 1, by Newton's steps for ln a, of which the ln of the left
    side is convex or concave.
    """
    a = np.minimum(z, (z / np.maximum(mu, 1e-300)) ** (1 / (q - 1)))
    for _ in range(NEWTON):
        g = mu * a ** (q - 1)
        new = a * np.exp(-np.log((a + g) / z) * (a + g) / (a + (q - 1) * g))
        new = np.where((z > 0) & np.isfinite(new), new, 0.0)
        if np.all(np.abs(new - a) <= 2 * UNIT * a):
            return new
        a = new
    return a


def _within(z: Array, w: Array) -> Array:
    """min(1, w/‖z‖₂) of each row."""
    size = length_of(z)
    return np.where(size > w, w / np.where(size > 0, size, 1.0), 1.0)


@dataclass(frozen=True, eq=False)
class RowNorm(Family):
    """h(s) = ‖s‖ₚ, 1 ≤ p ≤ ∞; (wh)*(a) = 0 where ‖a‖_q ≤ w, 1/p + 1/q = 1, else ∞. Reads pnorm, norm_inf."""

    p: float

    @property
    def is_support(self) -> bool:
        return True

    def value(self, s: Array) -> Array:
        return length_of(s, self.p)

    def slope(self, s: Array) -> Array:
        """sign(s)(|s|/‖s‖ₚ)^(p − 1); for p = ∞ one of the largest entries, 0 at s = 0."""
        length = length_of(s, self.p)[:, None]
        share = np.abs(s) / np.where(length > 0, length, 1.0)
        if self.p == inf:
            first = np.arange(s.shape[1]) == np.abs(s).argmax(axis=1)[:, None]
            return np.sign(s) * first * (length > 0)
        return np.asarray(np.sign(s) * np.where(share > 0, share ** (self.p - 1), 0.0))

    def slopes_near(self, s: Array, near: Array) -> tuple[Array, Array]:
        slope, size, near = self.slope(s), np.abs(s), near[:, None]
        length = length_of(s, self.p)[:, None]
        at_zero = size <= near if self.p == 1 else length <= near
        tied = (size >= length - near) & (self.p == inf)
        low, high = (
            np.where(tied, np.minimum(np.sign(s), 0.0), slope),
            np.where(tied, np.maximum(np.sign(s), 0.0), slope),
        )
        return np.where(at_zero, -1.0, low), np.where(at_zero, 1.0, high)

    def highest(self, s: Array, e: Array) -> Array:
        return np.asarray((length_above(s, self.p) + length_above(e, self.p)) * (1 + 2 * UNIT))

    def conjugate(self, a: Array, r: Array, low: Array, high: Array) -> Bounded:
        zero = np.zeros(len(a))
        longest = length_above((np.abs(a) + r) * (1 + 2 * UNIT), dual_exponent(self.p))
        return Bounded(np.where(longest <= low, 0.0, inf), zero)

    def nearest(self, a: Array, w: Array) -> Array:
        length = length_above(a, dual_exponent(self.p))
        inside = 1 - 2 * gamma(a.shape[1] + 12) - 128 * UNIT
        share = np.where(length > w, w / np.where(length > 0, length, 1.0) * inside, 1.0)
        return np.asarray(share[:, None] * a)

    def prox(self, z: Array, tau: Array, w: Array) -> Array:
        """The projection on the ball ‖a‖_q ≤ w.

        Outside of it, for 1 < p < ∞, a + μ sign(a)|a|^(q − 1) = z with the μ for which ‖a‖_q = w.
        """
        if self.p == 1:
            return np.clip(z, -w[:, None], w[:, None])
        if self.p == 2:
            return np.asarray(_within(z, w)[:, None] * z)
        if self.p != inf:
            return self._shortened(z, w)[0]
        return np.asarray(np.sign(z) * (np.maximum(np.abs(z) - self._level(z, w)[:, None], 0.0)))

    def prox_slope(self, z: Array, tau: Array, w: Array) -> Jacobian:
        """Where z is outside of the ball, for p = ∞ diag(busy) − gg′/n with g the signs of the n busy entries, for
        p = 2 w(I − ẑẑᵀ)/‖z‖.
        """
        if self.p == 1:
            return Jacobian.diagonal((np.abs(z) <= w[:, None]) * 1.0)
        if self.p == 2:
            share, size = _within(z, w)[:, None], length_of(z)[:, None]
            unit = z / np.where(size > 0, size, 1.0)
            return Jacobian(
                np.repeat(share, z.shape[1], axis=1), unit[:, :, None], np.where(share < 1, -share, 0.0)[:, :, None]
            )
        if self.p != inf:
            return self._bent(z, w)
        level = self._level(z, w)
        busy = np.abs(z) > level[:, None]
        outside = (level > 0) & busy.any(axis=1)
        share = np.where(outside, -1.0 / np.maximum(busy.sum(axis=1), 1), 0.0)
        return Jacobian(busy * 1.0, (np.sign(z) * busy)[:, :, None], share[:, None, None])

    def _shortened(self, z: Array, w: Array) -> tuple[Array, Array]:
        """(a, μ), in units of the largest entry: ln‖a‖ falls with ln μ, by Newton's steps within a bracket.

        They begin at the μ with ‖(|z|/μ)^(p − 1)‖ = w, which is too large, and near for large ones.
        """
        q = dual_exponent(self.p)
        unit = np.abs(z).max(axis=1, initial=0.0)
        unit = np.where(unit > 0, unit, 1.0)[:, None]
        size, target = np.abs(z) / unit, w / unit[:, 0]
        outside = length_of(size, q) > target
        a, low = size, np.full(len(z), -750.0)
        with np.errstate(all="ignore"):
            high = np.clip((q - 1) * np.log(length_of(size ** (self.p - 1), q) / target), -700.0, 750.0)
            log = high
            for step in range(BRACKET):
                mu = np.exp(log)[:, None]
                a = _root_of_power(size, mu, q)
                excess = np.log(length_of(a, q) / target)
                low, high = np.where(excess >= 0, log, low), np.where(excess <= 0, log, high)
                if np.all(~outside | (np.abs(excess) <= 4 * UNIT) | (high - low <= 2 * UNIT * np.abs(log))):
                    break
                g = mu * a ** (q - 1)
                slope = -np.sum(a ** (q - 1) * g / (1 + (q - 1) * g / a), axis=1) / np.sum(a**q, axis=1)
                new = log - excess / slope
                log = np.where((new > low) & (new < high) & (step % 8 < 7), new, 0.5 * (low + high))
        found = np.where(outside[:, None], np.sign(z) * a * unit, z)
        return found, np.where(outside, np.exp(log) * unit[:, 0] ** (2 - q), 0.0)

    def _bent(self, z: Array, w: Array) -> Jacobian:
        """D − Dg(gᵀDg)⁻¹gᵀD with g = sign(a)|a|^(q − 1) and D = diag(1/(1 + μ(q − 1)|a|^(q − 2))); I in the ball."""
        q = dual_exponent(self.p)
        a, mu = self._shortened(z, w)
        with np.errstate(all="ignore"):
            bent = mu[:, None] * (q - 1) * np.abs(a) ** (q - 2)
            d = np.where(mu[:, None] > 0, 1 / (1 + np.where(np.isnan(bent), inf, bent)), 1.0)
        g = np.sign(a) * np.abs(a) ** (q - 1)
        size = np.sum(d * g * g, axis=1)
        share = np.where((mu > 0) & (size > 0), -1 / np.where(size > 0, size, 1.0), 0.0)
        return Jacobian(d, (d * g)[:, :, None], share[:, None, None])

    @staticmethod
    def _level(z: Array, w: Array) -> Array:
        """The λ ≥ 0 with Σ (|z| − λ)₊ = w, or 0 inside of the ball (Duchi et al. 2008)."""
        return np.maximum(level(np.abs(z), w), 0.0)


class SecondOrderCone(Family):
    """h(s) = 0 where s₀ ≥ ‖(s₁, …)‖, else ∞; (wh)*(a) = 0 where −a is in the cone. Reads cones of graph forms."""

    @property
    def heads(self) -> Ints:
        return np.array([0])

    def value(self, s: Array) -> Array:
        return np.where(s[:, 0] >= length_above(s[:, 1:]), 0.0, inf)

    def slope(self, s: Array) -> Array:
        """0, which is one inside."""
        return np.zeros_like(s)

    def highest(self, s: Array, e: Array) -> Array:
        least = s[:, 0] - e[:, 0] - UNIT * np.abs(s[:, 0])
        inside = least >= (length_above(s[:, 1:]) + length_above(e[:, 1:])) * (1 + 2 * UNIT)
        return np.where(inside, 0.0, inf)

    def conjugate(self, a: Array, r: Array, low: Array, high: Array) -> Bounded:
        found = self.highest(-a, r)
        return Bounded(found, np.zeros(len(a)))

    def nearest(self, a: Array, w: Array) -> Array:
        """a with a longer or shorter first entry, a few roundings inside of the cone."""
        found = self.prox(a, w, w)
        found[:, 0] = np.minimum(found[:, 0], -length_above(found[:, 1:]) * (1 + 4 * UNIT))
        return np.where((self.highest(-a, 0 * a) == 0)[:, None], a, found)

    def prox(self, z: Array, tau: Array, w: Array) -> Array:
        """The projection on −K: with l = ‖(z₁, …)‖ and ρ = ½(l − z₀) that is (−ρ, ρz₁/l, …), where |z₀| < l."""
        length, head = length_of(z[:, 1:]), -z[:, 0]
        rho = np.clip(0.5 * (head + length), 0.0, None)
        inside, polar = head >= length, -head >= length
        share = np.where(length > 0, rho / np.where(length > 0, length, 1.0), 0.0)
        found = np.hstack([-rho[:, None], share[:, None] * z[:, 1:]])
        return np.asarray(np.where(inside[:, None], z, np.where(polar[:, None], 0.0, found)))

    def prox_slope(self, z: Array, tau: Array, w: Array) -> Jacobian:
        """½[1, −ẑᵀ; −ẑ, (1 + κ)I − κẑẑᵀ] with ẑ = (z₁, …)/l and κ = −z₀/l; I inside of −K, 0 inside of K."""
        length, head = length_of(z[:, 1:]), -z[:, 0]
        safe = np.where(length > 0, length, 1.0)
        inside, polar = (head >= length), (-head >= length)
        kappa, between = head / safe, ~(inside | polar)
        d = 0.5 * (1 + np.repeat(kappa[:, None], z.shape[1], axis=1)) * between[:, None] + inside[:, None]
        first = np.zeros_like(z)
        first[:, 0] = 1.0
        Z = np.stack([first, np.hstack([np.zeros((len(z), 1)), z[:, 1:] / safe[:, None]])], axis=2)
        T = np.zeros((len(z), 2, 2))
        T[:, 0, 0], T[:, 1, 1], T[:, 0, 1], T[:, 1, 0] = -0.5 * kappa, -0.5 * kappa, -0.5, -0.5
        return Jacobian(d, Z, T * between[:, None, None])


def level(z: Array, w: Array) -> Array:
    """The λ with Σₖ (zₖ − λ)₊ = w in each row, w ≥ 0."""
    down = -np.sort(-z, axis=1)
    count = np.arange(1, z.shape[1] + 1)
    means = (np.cumsum(down, axis=1) - w[:, None]) / count
    last = np.maximum((down > means).sum(axis=1), 1) - 1
    return np.asarray(means[np.arange(len(z)), last])
