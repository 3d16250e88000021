"""Smooth functions of one number: exponential, logistic, logarithm, entropy and powers."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from scipy.special import expit, wrightomega, xlogy

from kernelopt.pieces.function import ULPS, Bounded, OfOneNumber
from kernelopt.support.arithmetic import UNIT
from kernelopt.support.types import Array


def _log_ratio(x: Array, w: Array) -> Bounded:
    """x ln(x/w) for x ≥ 0, which is 0 at 0; NaN below."""
    value = np.where(x == 0, 0.0, x * np.log(x / w))
    return Bounded(value, np.where(x > 0, ULPS * (np.abs(value) + x), 0.0))


def _refused(bound: Bounded, outside: Array) -> Bounded:
    """∞ where the multiplier is outside of the domain."""
    return Bounded(np.where(outside, inf, bound.value), np.where(outside, 0.0, bound.rounding))


# Powers |s|ᵖ below this fraction of their typical size count as rounding.
ROUNDED = 1e-12


class Smooth(OfOneNumber):
    """Functions with one slope at each point; all m of them are one function."""

    def slopes(self, q: Array) -> tuple[Array, Array]:
        slope = self.derivative(q)
        return slope, slope

    def derivative(self, q: Array) -> Array:
        """h′(q)."""
        raise NotImplementedError

    def third(self, q: Array) -> Array:
        """h‴(q)."""
        raise NotImplementedError

    def bounded_curvature(self, q: Array, unit: float) -> Array:
        """h″(q); where it is unbounded within the domain, that at the distance at which h is rounding, for arguments of
        the size `unit`."""
        return self.curvature(q)


class Exp(Smooth):
    """h(s) = eˢ, (wh)*(a) = a ln(a/w) − a on a ≥ 0. Reads exp."""

    is_smooth = True

    def of(self, q: Array) -> Array:
        return np.exp(q)

    def derivative(self, q: Array) -> Array:
        return np.exp(q)

    def curvature(self, q: Array) -> Array:
        return np.exp(q)

    def third(self, q: Array) -> Array:
        return np.exp(q)

    def ends(self, w: Array) -> tuple[Array, Array]:
        return np.zeros(len(w)), np.full(len(w), inf)

    def at(self, a: Array, w: Array) -> Bounded:
        value, rounding = _log_ratio(a, w)
        return _refused(Bounded(value - a, rounding + ULPS * np.abs(a)), a < 0)

    def minimizer(self, z: Array, tau: Array, w: Array) -> Array:
        """τx = z − τω(z/τ + ln(w/τ)) with Wright's ω, ω + ln ω = its argument."""
        return np.asarray(z / tau - wrightomega(z / tau + np.log(w / tau)))


class Logistic(Smooth):
    """h(s) = ln(1 + eˢ), (wh)*(a) = a ln(a/w) + (w − a) ln(1 − a/w) on 0 ≤ a ≤ w. Reads logistic."""

    is_smooth = True

    def of(self, q: Array) -> Array:
        return np.logaddexp(0.0, q)

    def derivative(self, q: Array) -> Array:
        return np.asarray(expit(q))

    def curvature(self, q: Array) -> Array:
        return np.asarray(expit(q) * expit(-q))

    def third(self, q: Array) -> Array:
        return -self.curvature(q) * np.tanh(q / 2)

    def ends(self, w: Array) -> tuple[Array, Array]:
        return np.zeros(len(w)), w

    def at(self, a: Array, w: Array) -> Bounded:
        """The difference w − a is off by a rounding, which moves its term by |1 + ln|."""
        rest = w - a
        parts, bent = (_log_ratio(x, w) for x in (a, rest)), np.where(rest > 0, np.abs(np.log(rest / w)), 0.0)
        (first, of_first), (second, of_second) = parts
        rounding = of_first + of_second + 2 * UNIT * w * (1 + bent)
        return _refused(Bounded(first + second, rounding), (a < 0) | (a > w))


class NegativeLog(Smooth):
    """h(s) = −ln s on s > 0, (wh)*(a) = −w − w ln(−a/w) on a < 0. Reads log, log1p, kl_div."""

    inside = (0.0, inf)

    def of(self, q: Array) -> Array:
        return np.where(q > 0, -np.log(q), inf)

    def rounding(self, q: Array, value: Array) -> Array:
        return np.where(q > 0, ULPS * np.abs(np.log(q)), 0.0)

    def derivative(self, q: Array) -> Array:
        return -1 / q

    def curvature(self, q: Array) -> Array:
        return 1 / q**2

    def third(self, q: Array) -> Array:
        return -2 / q**3

    def ends(self, w: Array) -> tuple[Array, Array]:
        return np.full(len(w), -inf), np.full(len(w), -np.finfo(float).tiny)

    def at(self, a: Array, w: Array) -> Bounded:
        log = np.log(-a / w)
        return _refused(Bounded(-w - w * log, ULPS * w * (2 + np.abs(log))), ~(a < 0))

    def minimizer(self, z: Array, tau: Array, w: Array) -> Array:
        """The positive root of τx² − zx − w; for z < 0 without cancellation."""
        width = np.hypot(z, 2 * np.sqrt(tau * w))
        return np.where(z > 0, (z + width) / (2 * tau), 2 * w / (width - z))


class NegativeLogComplement(Smooth):
    """h(s) = −ln(1 − eˢ) on s < 0, (wh)*(a) = a ln(a/(w + a)) + w ln(w/(w + a)) on a ≥ 0. Reads log(1 − exp)."""

    inside = (-inf, 0.0)

    def of(self, q: Array) -> Array:
        return np.where(q < 0, -np.log(-np.expm1(np.minimum(q, 0.0))), inf)

    def rounding(self, q: Array, value: Array) -> Array:
        """The logarithm's argument is off by a few roundings, which count most where it is near 1."""
        return np.where(q < 0, ULPS * (np.abs(value) + 1), 0.0)

    def derivative(self, q: Array) -> Array:
        return 1 / np.expm1(-q)

    def curvature(self, q: Array) -> Array:
        odds = self.derivative(q)
        return odds * (1 + odds)

    def third(self, q: Array) -> Array:
        odds = self.derivative(q)
        return odds * (1 + odds) * (1 + 2 * odds)

    def ends(self, w: Array) -> tuple[Array, Array]:
        return np.zeros(len(w)), np.full(len(w), inf)

    def at(self, a: Array, w: Array) -> Bounded:
        first = np.where(a > 0, -a * np.log1p(w / a), 0.0)
        second = -w * np.log1p(a / w)
        rounding = ULPS * (np.abs(first) + np.abs(second) + np.abs(a) + w)
        return _refused(Bounded(first + second, np.where(a == 0, 0.0, rounding)), a < 0)


class NegativeEntropy(Smooth):
    """h(s) = s ln s on s ≥ 0, (wh)*(a) = w exp(a/w − 1). Reads entr and xlogy."""

    inside = (0.0, inf)

    def of(self, q: Array) -> Array:
        return np.where(q >= 0, xlogy(q, np.maximum(q, 0.0)), inf)

    def rounding(self, q: Array, value: Array) -> Array:
        return np.where(q > 0, ULPS * (np.abs(xlogy(q, np.maximum(q, 0.0))) + q), 0.0)

    def derivative(self, q: Array) -> Array:
        return 1 + np.log(q)

    def curvature(self, q: Array) -> Array:
        return 1 / q

    def third(self, q: Array) -> Array:
        return -1 / q**2

    def ends(self, w: Array) -> tuple[Array, Array]:
        return np.full(len(w), -inf), np.full(len(w), inf)

    def at(self, a: Array, w: Array) -> Bounded:
        value = w * np.exp(a / w - 1)
        return Bounded(value, ULPS * value * (2 + np.abs(a / w)))

    def minimizer(self, z: Array, tau: Array, w: Array) -> Array:
        """With y = τx/w: ln y + y = z/w − 1 + ln(τ/w)."""
        return np.asarray(w / tau * wrightomega(z / w - 1 + np.log(tau / w)))


@dataclass(frozen=True, eq=False)
class AbsolutePower(Smooth):
    """h(s) = |s|ᵖ, p > 1, (wh)*(a) = w(p − 1)(|a|/(wp))^q, q = p/(p − 1). Reads power, pnorm of one number."""

    p: float

    @property
    def is_smooth(self) -> bool:
        return self.p >= 2

    def base(self, q: Array) -> Array:
        """The number ≥ 0 that is raised to the power."""
        return np.abs(q)

    def of(self, q: Array) -> Array:
        return self.base(q) ** self.p

    def derivative(self, q: Array) -> Array:
        return self.p * np.sign(q) * self.base(q) ** (self.p - 1)

    def curvature(self, q: Array) -> Array:
        """∞ at 0 for p < 2."""
        return self.p * (self.p - 1) * self.base(q) ** (self.p - 2)

    def bounded_curvature(self, q: Array, unit: float) -> Array:
        least = unit * ROUNDED ** (1 / self.p) if self.p < 2 else 0.0
        return self.p * (self.p - 1) * np.maximum(self.base(q), least) ** (self.p - 2)

    def third(self, q: Array) -> Array:
        """0 at 0."""
        base, factor = self.base(q), self.p * (self.p - 1) * (self.p - 2)
        return np.where(base > 0, factor * np.sign(q) * base ** (self.p - 3), 0.0)

    def ends(self, w: Array) -> tuple[Array, Array]:
        return np.full(len(w), -inf), np.full(len(w), inf)

    def at(self, a: Array, w: Array) -> Bounded:
        q = self.p / (self.p - 1)
        value = w * (self.p - 1) * (np.abs(a) / (w * self.p)) ** q
        # The exponent is off by 2 roundings, relative to itself.
        bent = np.where(a != 0, np.abs(np.log(np.abs(a) / (w * self.p))), 0.0)
        return Bounded(value, value * (ULPS * (3 + q) + 4 * UNIT * q * bent))


@dataclass(frozen=True, eq=False)
class PositivePower(AbsolutePower):
    """h(s) = max(s, 0)ᵖ, p > 1, (wh)*(a) = w(p − 1)(a/(wp))^q on a ≥ 0, q = p/(p − 1). Reads power of pos."""

    def base(self, q: Array) -> Array:
        return np.maximum(q, 0.0)

    def curvature(self, q: Array) -> Array:
        """From the right: ∞ at 0 for p < 2."""
        return np.where(q >= 0, super().curvature(q), 0.0)

    def ends(self, w: Array) -> tuple[Array, Array]:
        return np.zeros(len(w)), np.full(len(w), inf)

    def at(self, a: Array, w: Array) -> Bounded:
        return _refused(super().at(a, w), a < 0)


@dataclass(frozen=True, eq=False)
class InversePower(Smooth):
    """h(s) = s⁻ᵖ on s > 0, p > 0, (wh)*(a) = −w(p + 1)(−a/(wp))^(p/(p + 1)) on a ≤ 0. Reads power, inv_pos."""

    p: float
    inside = (0.0, inf)

    def of(self, q: Array) -> Array:
        return np.where(q > 0, q**-self.p, inf)

    def rounding(self, q: Array, value: Array) -> Array:
        return np.where(q > 0, ULPS * q**-self.p, 0.0)

    def derivative(self, q: Array) -> Array:
        return -self.p * q ** (-self.p - 1)

    def curvature(self, q: Array) -> Array:
        return self.p * (self.p + 1) * q ** (-self.p - 2)

    def third(self, q: Array) -> Array:
        return -self.p * (self.p + 1) * (self.p + 2) * q ** (-self.p - 3)

    def ends(self, w: Array) -> tuple[Array, Array]:
        return np.full(len(w), -inf), np.zeros(len(w))

    def at(self, a: Array, w: Array) -> Bounded:
        q = self.p / (self.p + 1)
        value = np.where(a == 0, 0.0, -w * (self.p + 1) * (-a / (w * self.p)) ** q)
        bent = np.where(a != 0, np.abs(np.log(-a / (w * self.p))), 0.0)
        return _refused(Bounded(value, np.abs(value) * (4 * ULPS + 4 * UNIT * q * bent)), a > 0)


@dataclass(frozen=True, eq=False)
class NegativeRoot(Smooth):
    """h(s) = −sᵖ on s ≥ 0, 0 < p < 1, (wh)*(a) = w(1 − p)(wp/−a)^(p/(1 − p)) on a < 0. Reads sqrt, power."""

    p: float
    inside = (0.0, inf)

    def of(self, q: Array) -> Array:
        return np.where(q >= 0, -(np.maximum(q, 0.0) ** self.p), inf)

    def rounding(self, q: Array, value: Array) -> Array:
        return ULPS * np.maximum(q, 0.0) ** self.p

    def derivative(self, q: Array) -> Array:
        return -self.p * q ** (self.p - 1)

    def curvature(self, q: Array) -> Array:
        return self.p * (1 - self.p) * q ** (self.p - 2)

    def third(self, q: Array) -> Array:
        return self.p * (1 - self.p) * (self.p - 2) * q ** (self.p - 3)

    def ends(self, w: Array) -> tuple[Array, Array]:
        return np.full(len(w), -inf), np.full(len(w), -np.finfo(float).tiny)

    def at(self, a: Array, w: Array) -> Bounded:
        q = self.p / (1 - self.p)
        ratio = -w * self.p / a
        value = w * (1 - self.p) * ratio**q
        bent = np.abs(np.log(ratio))
        return _refused(Bounded(value, value * (ULPS * (3 + q) + 4 * UNIT * (q + 1) ** 2 * bent)), ~(a < 0))
