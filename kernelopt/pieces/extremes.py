"""Maxima, sums of largest entries and log-sum-exp of a row and of a further entry 0.

A maximum of k + 1 numbers is the last one plus a function of the k differences from it: the multipliers of all k + 1
add up to the weight by construction, and need no equation.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, fsum, inf

import numpy as np
from scipy.special import wrightomega

from kernelopt.pieces.function import ULPS, Bounded, Family, Jacobian, root
from kernelopt.pieces.norms import level
from kernelopt.support.arithmetic import UNIT, gamma, two_product
from kernelopt.support.types import Array


def around(a: Array, r: Array) -> tuple[Array, Array]:
    """Bounds on a ± r; a itself where r is 0."""
    return np.where(r > 0, np.nextafter(a - r, -inf), a), np.where(r > 0, np.nextafter(a + r, inf), a)


def totals(x: Array) -> Array:
    """Sums of rows, rounded once each."""
    return np.array([fsum(row) for row in x.tolist()])


def at_most(x: Array, w: Array, factor: float) -> Array:
    """Whether Σx ≤ factor·w for each row, by exact sums."""
    parts = zip(x.tolist(), *(part.tolist() for part in two_product(w, np.full(len(w), factor))), strict=True)
    return np.array([fsum([*row, -hi, -lo]) <= 0 for row, hi, lo in parts], dtype=bool)


def _with_zero(s: Array) -> Array:
    return np.hstack([s, np.zeros((len(s), 1))])


def _last(s: Array, count: float) -> Array:
    """The least of the `count` largest of s₁, …, s_k, 0."""
    down = -np.sort(-_with_zero(s), axis=1)
    return np.asarray(down[:, ceil(count) - 1])


def _shares_near(s: Array, count: float, near: Array) -> tuple[Array, Array]:
    """How much of each entry may count: 1 if it is above the last one that counts, 0 to 1 within `near` of that."""
    more = s - _last(s, count)[:, None]
    return (more > near[:, None]) * 1.0, (more >= -near[:, None]) * 1.0


class Largest(Family):
    """h(s) = max(0, s₁, …, s_k); (wh)*(a) = 0 where a ≥ 0 and Σa ≤ w, else ∞. Reads max, maximum, min, minimum."""

    @property
    def is_support(self) -> bool:
        return True

    def value(self, s: Array) -> Array:
        return np.asarray(np.maximum(s.max(axis=1), 0.0))

    def slope(self, s: Array) -> Array:
        """1 for the first largest entry above 0."""
        first = np.arange(s.shape[1]) == s.argmax(axis=1)[:, None]
        return first * (s.max(axis=1) > 0)[:, None] * 1.0

    def slopes_near(self, s: Array, near: Array) -> tuple[Array, Array]:
        return _shares_near(s, 1.0, near)

    def sums_near(self, s: Array, near: Array) -> tuple[Array, Array]:
        return 1.0 * (s.max(axis=1) > near), np.ones(len(s))

    def highest(self, s: Array, e: Array) -> Array:
        return self.value((s + e) + UNIT * (np.abs(s) + e))

    def conjugate(self, a: Array, r: Array, low: Array, high: Array) -> Bounded:
        least, most = around(a, r)
        inside = (least >= 0).all(axis=1) & at_most(most, low, 1.0)
        return Bounded(np.where(inside, 0.0, inf), np.zeros(len(a)))

    def nearest(self, a: Array, w: Array) -> Array:
        """a without what is negative, or rounding beside w, divided where its sum exceeds w."""
        a = np.where(a > UNIT * w[:, None], a, 0.0)
        total, inner = totals(a), 1 - 8 * UNIT
        share = np.where(at_most(a, w, 1.0), 1.0, w / np.where(total > 0, total, 1.0) * inner)
        return np.asarray(a * share[:, None])

    def prox(self, z: Array, tau: Array, w: Array) -> Array:
        """(z − λ)₊ with the least λ ≥ 0 for which the sum is at most w."""
        return np.asarray(np.maximum(z - np.maximum(level(z, w), 0.0)[:, None], 0.0))

    def prox_slope(self, z: Array, tau: Array, w: Array) -> Jacobian:
        """diag(busy) − 11ᵀ/n over the n busy entries, where their sum is w."""
        lam = level(z, w)
        busy = z > np.maximum(lam, 0.0)[:, None]
        share = np.where((lam > 0) & busy.any(axis=1), -1.0 / np.maximum(busy.sum(axis=1), 1), 0.0)
        return Jacobian(busy * 1.0, (busy * 1.0)[:, :, None], share[:, None, None])


def _capped_level(z: Array, w: Array, target: Array) -> Array:
    """The λ with Σₖ clip(zₖ − λ, 0, w) = target in each row: the sum falls between the ends zₖ − w and zₖ of terms."""
    k = z.shape[1]
    ends, change = np.hstack([z - w[:, None], z]), np.repeat([1.0, -1.0], k)
    order = np.argsort(ends, axis=1)
    ends, busy = np.take_along_axis(ends, order, axis=1), np.cumsum(change[order], axis=1)
    fallen = np.cumsum(busy[:, :-1] * np.diff(ends, axis=1), axis=1)
    totals_there = (k * w)[:, None] - np.hstack([np.zeros((len(z), 1)), fallen])
    last = np.maximum((totals_there >= target[:, None]).sum(axis=1) - 1, 0)
    row = np.arange(len(z))
    left = totals_there[row, last] - target
    return np.asarray(ends[row, last] + np.where(busy[row, last] > 0, left / np.maximum(busy[row, last], 1.0), 0.0))


def capped(z: Array, w: Array, target: Array) -> Array:
    """The nearest a with 0 ≤ a ≤ w and Σa = target in each row: z − λ clipped."""
    return np.clip(z - _capped_level(z, w, target)[:, None], 0.0, w[:, None])


@dataclass(frozen=True, eq=False)
class SumOfLargest(Family):
    """h(s) = the sum of the `count` largest of s₁, …, s_k, 0 (a fraction of the next one included), 1 ≤ count ≤ k.

    (wh)*(a) = 0 where 0 ≤ a ≤ w and (count − 1)w ≤ Σa ≤ count·w, else ∞. Reads sum_largest, cvar.
    """

    count: float

    def _shares(self, k: int) -> Array:
        """How much of the 1st, 2nd … largest counts."""
        return np.clip(self.count - np.arange(k), 0.0, 1.0)

    @property
    def is_support(self) -> bool:
        return True

    def value(self, s: Array) -> Array:
        down = -np.sort(-_with_zero(s), axis=1)
        return np.asarray(down @ self._shares(down.shape[1]))

    def slope(self, s: Array) -> Array:
        order = np.argsort(-_with_zero(s), axis=1, kind="stable")
        found = np.zeros(order.shape)
        np.put_along_axis(found, order, np.broadcast_to(self._shares(order.shape[1]), order.shape), axis=1)
        return found[:, :-1]

    def slopes_near(self, s: Array, near: Array) -> tuple[Array, Array]:
        return _shares_near(s, self.count, near)

    def sums_near(self, s: Array, near: Array) -> tuple[Array, Array]:
        return self.count - 1.0 * (_last(s, self.count) <= near), np.full(len(s), float(self.count))

    def highest(self, s: Array, e: Array) -> Array:
        down = -np.sort(-_with_zero(s + e + UNIT * (np.abs(s) + e)), axis=1)
        shares = self._shares(down.shape[1])
        return np.asarray(down @ shares + 2 * gamma(np.count_nonzero(shares) + 2) * (np.abs(down) @ shares))

    def conjugate(self, a: Array, r: Array, low: Array, high: Array) -> Bounded:
        least, most = around(a, r)
        inside = (least >= 0).all(axis=1) & (most <= low[:, None]).all(axis=1)
        inside &= at_most(most, low, self.count) & at_most(-least, high, 1.0 - self.count)
        return Bounded(np.where(inside, 0.0, inf), np.zeros(len(a)))

    def nearest(self, a: Array, w: Array) -> Array:
        """The projection on a domain that is smaller by some roundings."""
        inner = 16 * UNIT * (a.shape[1] + 2) * w
        return self._projected(a, w - inner * 0.5, (self.count - 1) * w + inner, self.count * w - inner)

    @staticmethod
    def _projected(z: Array, w: Array, least: Array, most: Array) -> Array:
        """The nearest a with 0 ≤ a ≤ w and least ≤ Σa ≤ most: z − λ clipped, λ = 0 where its sum is between."""
        total = np.clip(z, 0.0, w[:, None]).sum(axis=1)
        target = np.clip(total, least, most)
        lam = _capped_level(z, w, target)
        return np.clip(z - np.where(total == target, 0.0, lam)[:, None], 0.0, w[:, None])

    def prox(self, z: Array, tau: Array, w: Array) -> Array:
        with np.errstate(all="ignore"):
            return self._projected(z, w, (self.count - 1) * w, self.count * w)

    def prox_slope(self, z: Array, tau: Array, w: Array) -> Jacobian:
        """diag(busy) − 11ᵀ/n over the n entries between 0 and w, where the sum is at one of its ends."""
        total = np.clip(z, 0.0, w[:, None]).sum(axis=1)
        fixed = (total < (self.count - 1) * w) | (total > self.count * w)
        a = self.prox(z, tau, w)
        busy = (a > 0) & (a < w[:, None])
        share = np.where(fixed & busy.any(axis=1), -1.0 / np.maximum(busy.sum(axis=1), 1), 0.0)
        return Jacobian(busy * 1.0, (busy * 1.0)[:, :, None], share[:, None, None])


def _times_log(x: Array, w: Array) -> Bounded:
    """x ln(x/w), 0 for x ≤ 0, and its rounding."""
    value = np.where(x > 0, x * np.log(x / w), 0.0)
    return Bounded(value, np.where(x > 0, ULPS * (np.abs(value) + x), 0.0))


class RowLogSumExp(Family):
    """h(s) = ln(1 + Σ exp(sₖ)); (wh)*(a) = Σ aₖ ln(aₖ/w) + a₀ ln(a₀/w), a₀ = w − Σa, on a ≥ 0, a₀ ≥ 0.

    Reads log_sum_exp.
    """

    def value(self, s: Array) -> Array:
        return np.asarray(np.logaddexp.reduce(_with_zero(s), axis=1))

    def slope(self, s: Array) -> Array:
        return np.exp(s - self.value(s)[:, None])

    def highest(self, s: Array, e: Array) -> Array:
        most = (s + e) + UNIT * (np.abs(s) + e)
        found = self.value(most)
        return np.asarray(found + ULPS * (2 + s.shape[1]) * (1 + np.abs(found)))

    def conjugate(self, a: Array, r: Array, low: Array, high: Array) -> Bounded:
        """The sum of the largest values of its terms, each convex in (aₖ, w)."""
        with np.errstate(all="ignore"):
            least, most = around(a, r)
            rest = np.maximum(low - totals(most), 0.0), high - totals(least)
            ends = [np.hstack([end, part[:, None]]) for end, part in ((least, rest[0]), (most, rest[1]))]
            terms = [_times_log(x, w[:, None]) for x in ends for w in (low, high)]
            value, rounding = (np.max([term[i] for term in terms], axis=0) for i in (0, 1))
            # a₀ is rounded itself, which moves its term by |1 + ln(a₀/w)| times that.
            share = np.where(high > 0, rest[0] / high, 1.0)
            rounding[:, -1] += 4 * UNIT * high * (1 + np.minimum(np.abs(np.log(share)), 750.0))
            inside = (least >= 0).all(axis=1) & at_most(most, low, 1.0)
            total, size = value.sum(axis=1), np.abs(value).sum(axis=1)
        costs = rounding.sum(axis=1) + UNIT * value.shape[1] * size
        return Bounded(np.where(inside, total, inf), np.where(inside, costs, 0.0))

    def nearest(self, a: Array, w: Array) -> Array:
        return Largest().nearest(a, w)

    def prox(self, z: Array, tau: Array, w: Array) -> Array:
        """aₖ = τω(zₖ/τ + ln(a₀/τ)), Wright's ω, with the a₀ for which all add up to w."""
        return self._split(z, tau, w)[0]

    @staticmethod
    def _split(z: Array, tau: Array, w: Array) -> tuple[Array, Array]:
        """(a, a₀); the unknown is ln(a₀/w)."""
        T = tau[:, None]

        def of(log: Array) -> Array:
            return np.asarray(T * wrightomega(z / T + (log + np.log(w / tau))[:, None]))

        def slope(log: Array) -> Array:
            a = of(log)
            return np.asarray(w * np.exp(log) + (T * a / (T + a)).sum(axis=1))

        with np.errstate(all="ignore"):
            start = -np.logaddexp.reduce(_with_zero(z / T), axis=1)  # for a that are small beside z
            log = root(lambda log: w * np.exp(log) + of(log).sum(axis=1) - w, slope, (-750.0, 1e-300), len(z), start)
            return of(log), w * np.exp(log)

    def prox_slope(self, z: Array, tau: Array, w: Array) -> Jacobian:
        """D − τD11ᵀD/(a₀ + τΣDₖ), D = diag(aₖ/(aₖ + τ))."""
        a, rest = self._split(z, tau, w)
        d = a / (a + tau[:, None])
        return Jacobian(d, d[:, :, None], (-tau / (rest + tau * d.sum(axis=1)))[:, None, None])
