"""Convex functions of one number each, the terms of the outer problem, evaluated many at a time.

Every class holds n functions hᵢ and the indices `at` of their arguments in s. It computes values, an element of the
subdifferential, the curvature, the conjugate h*ᵢ(v) = sup over s of vs − hᵢ(s), and the interval where h*ᵢ is finite.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp, rel_entr, softmax, xlogy

from kernelopt.language.smooth import SmoothLoss
from kernelopt.pieces.custom import range_of_slopes
from kernelopt.pieces.inverse import attained
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array, Ints

# Relative distance at which s still belongs to an interval that it misses: rounding in the sum s, with a margin. Powers
# |q|^p below this fraction of their typical size count as rounding.
SAME = 1e-12
# Relative accuracy to which neighbouring intervals, values and slopes of one function must fit together. Larger values
# accept a wrong reading of the cone data, smaller ones refuse a right one for its rounding.
JOINT = 1e-9
# Jump of a slope, relative to the terms on both sides, that rounding explains. As a kink, such a jump would keep a
# smooth loss from Newton's method.
JUMP = 64 * np.finfo(float).eps
SIMPLEX = 1e-14  # relative error of Σₖ vₖ = weight that rounding of a sum of few numbers explains (45 ulps)
STEEPEST = 700.0  # exponents are cut here: e^700 ≈ 1e304 is a double, e^710 is none


class Kinks(NamedTuple):
    """hᵢ(s) = value + slope·s + Σ over k with of[k] = i of  sup {a(s − anchorₖ) − ½ρₖa² : lowₖ ≤ a ≤ highₖ}.

    A jump of the slope by J is a box [0, J] with ρ = 0; a stretch of curvature κ and length l is [0, κl] with ρ = 1/κ;
    an end of the domain is a half-line with ρ = 0, an equality the whole line.
    """

    value: Array
    slope: Array
    of: Ints
    anchor: Array
    low: Array
    high: Array
    rho: Array


@dataclass(frozen=True, eq=False)
class Quadratic:
    """hᵢ(s) = constantⱼ + slopeⱼ s + ½ curvatureⱼ s² for s in [leftⱼ, rightⱼ]; arrays (n, pieces), nan where unused."""

    at: Ints
    left: Array
    right: Array
    constant: Array
    slope: Array
    curvature: Array

    def value(self, s: Array) -> Array:
        """hᵢ(sᵢ); inf outside of the domain."""
        s = s[:, None]
        inside = (s >= self.left - SAME * np.abs(self.left)) & (s <= self.right + SAME * np.abs(self.right))
        return np.asarray(
            np.min(np.where(inside, self.constant + s * (self.slope + 0.5 * self.curvature * s), np.inf), axis=1)
        )

    def derivative(self, s: Array) -> Array:
        """An element of ∂hᵢ(sᵢ), from the right."""
        s = s[:, None]
        inside = (s >= self.left) & (s <= self.right)
        slopes = np.where(inside, self.slope + self.curvature * s, -np.inf)
        return np.asarray(np.max(slopes, axis=1))

    def conjugate(self, v: Array) -> Array:
        """h*ᵢ(v) = sup over s of vs − hᵢ(s), the largest over the pieces."""
        v = v[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            best = np.where(self.curvature > 0, (v - self.slope) / self.curvature, np.inf * np.sign(v - self.slope))
        flat = (self.curvature == 0) & (v == self.slope)
        anywhere = np.where(np.isfinite(self.left), self.left, np.where(np.isfinite(self.right), self.right, 0.0))
        s = np.where(flat, anywhere, np.clip(best, self.left, self.right))
        with np.errstate(invalid="ignore"):
            reached = v * s - self.constant - s * (self.slope + 0.5 * self.curvature * s)
            reached = np.where(np.isinf(s), np.inf, reached)
        return np.asarray(np.fmax.reduce(np.where(np.isnan(self.slope), -np.inf, reached), axis=1))

    def second(self, s: Array) -> Array:
        """The curvature at s, from the right."""
        s = s[:, None]
        inside = (s >= self.left) & (s < self.right)
        return np.asarray(np.max(np.where(inside, self.curvature, 0.0), axis=1))

    def kinks(self) -> Kinks:
        """The functions as sums of a line and of one term for each jump and each curved stretch."""
        n, m = self.slope.shape
        last = (~np.isnan(self.slope)).sum(axis=1) - 1
        rows = np.arange(n)
        left, right, kappa, slope, constant = (
            part[:, 0] for part in (self.left, self.right, self.curvature, self.slope, self.constant)
        )
        # The line is the tangent of the first stretch where the terms below are 0: at its left end if that is finite,
        # else at its right end, or at the minimum of a stretch without ends.
        whole = np.isneginf(left) & np.isposinf(right) & (kappa > 0)
        point = left == right
        with np.errstate(divide="ignore", invalid="ignore"):
            start = np.where(np.isfinite(left), left, np.where(kappa > 0, right, 0.0))
            start = np.where(whole, -slope / kappa, start)
        tangent = np.where(point, 0.0, slope + kappa * start)
        value = constant + start * (slope + 0.5 * kappa * start) - tangent * start
        found: list[tuple[Array, ...]] = []

        def add(mask: Array, anchor: Array, low: Array, high: Array, rho: Array) -> None:
            parts = np.broadcast_arrays(anchor, low, high, rho)
            found.append((rows[mask], *(np.asarray(p, dtype=float)[mask] for p in parts)))

        zero, endless = np.zeros(n), np.full(n, np.inf)
        add(np.isfinite(left), left, -endless, np.where(point, np.inf, 0.0), zero)  # a domain's left end, or a point
        for j in range(m):
            a, b, kappa = self.left[:, j], self.right[:, j], self.curvature[:, j]
            with np.errstate(divide="ignore", invalid="ignore"):
                curved, rho = kappa > 0, 1 / kappa
                reach = kappa * (b - a)
                add(curved & np.isfinite(a), a, zero, reach, rho)
                add(curved & ~np.isfinite(a) & np.isfinite(b), b, -endless, zero, rho)
                add(curved & ~np.isfinite(a) & ~np.isfinite(b), -self.slope[:, j] / kappa, -endless, endless, rho)
            if j + 1 < m:
                with np.errstate(invalid="ignore"):
                    terms = np.stack(
                        [self.slope[:, j + 1], self.curvature[:, j + 1] * b, -self.slope[:, j], -kappa * b]
                    )
                    jump, rounding = terms.sum(axis=0), JUMP * np.abs(terms).sum(axis=0)
                add(np.nan_to_num(jump) > np.nan_to_num(rounding), b, zero, jump, zero)
        ends = self.right[rows, last]
        add(np.isfinite(ends) & ~point, ends, zero, endless, zero)
        of, anchor, low, high, rho = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return Kinks(value, tangent, of, anchor, low, high, rho)

    def is_convex(self) -> bool:
        """Whether the intervals join, values are continuous and slopes do not decrease, up to rounding of the numbers
        at each joint."""
        ends, starts = self.right[:, :-1], self.left[:, 1:]
        joint = ~np.isnan(starts)

        def at(j: slice, s: Array) -> tuple[Array, Array, Array, Array]:
            terms = np.stack([self.constant[:, j], s * self.slope[:, j], 0.5 * s**2 * self.curvature[:, j]])
            slopes = np.stack([self.slope[:, j], s * self.curvature[:, j]])
            return terms.sum(axis=0), np.abs(terms).sum(axis=0), slopes.sum(axis=0), np.abs(slopes).sum(axis=0)

        with np.errstate(invalid="ignore"):
            before, size_before, slope_before, steep_before = at(slice(0, -1), ends)
            after, size_after, slope_after, steep_after = at(slice(1, None), ends)
            steep = steep_before + steep_after
            joins = np.abs(ends - starts) <= JOINT * np.abs(ends)
            continuous = np.abs(after - before) <= JOINT * (size_before + size_after)
            increasing = slope_after - slope_before >= -JOINT * steep
        return bool(np.all(joins | ~joint) and np.all(continuous | ~joint) and np.all(increasing | ~joint))

    def slopes(self) -> tuple[Array, Array]:
        """The interval of all subgradients, on which h* is finite."""
        return self._slopes

    @cached_property
    def _slopes(self) -> tuple[Array, Array]:
        known = ~np.isnan(self.slope)
        left_open = known & np.isneginf(self.left) & (self.curvature == 0)
        right_open = known & np.isposinf(self.right) & (self.curvature == 0)
        low = np.where(left_open.any(axis=1), np.max(np.where(left_open, self.slope, -np.inf), axis=1), -np.inf)
        high = np.where(right_open.any(axis=1), np.min(np.where(right_open, self.slope, np.inf), axis=1), np.inf)
        return low, high


@dataclass(frozen=True, eq=False)
class ExponentialPiece:
    """hᵢ(s) = weight·e^q + linear·s, or weight·log(1 + e^q) + linear·s where `logistic`; q = rate·s + shift."""

    at: Ints
    weight: Array
    rate: Array
    shift: Array
    linear: Array
    logistic: bool

    def value(self, s: Array) -> Array:
        q = self.rate * s + self.shift
        grown = np.logaddexp(0.0, q) if self.logistic else np.exp(np.minimum(q, STEEPEST))
        return self.weight * grown + self.linear * s

    def derivative(self, s: Array) -> Array:
        q = self.rate * s + self.shift
        grown = 0.5 * (1 + np.tanh(q / 2)) if self.logistic else np.exp(np.minimum(q, STEEPEST))
        return self.weight * self.rate * grown + self.linear

    def second(self, s: Array) -> Array:
        q = self.rate * s + self.shift
        if self.logistic:
            return self.weight * self.rate**2 * 0.25 / np.cosh(np.clip(q / 2, -350.0, 350.0)) ** 2
        return self.weight * self.rate**2 * np.exp(np.minimum(q, STEEPEST))

    def third(self, s: Array) -> Array:
        q = self.rate * s + self.shift
        return self.second(s) * self.rate * (-np.tanh(q / 2) if self.logistic else 1.0)

    def conjugate(self, v: Array) -> Array:
        """With w = (v − linear)/rate:  w ln(w/weight) − w − w·shift; or, where `logistic`,
        w ln(w/weight) + (weight − w) ln(1 − w/weight) − w·shift."""
        w = (v - self.linear) / self.rate
        w = np.clip(w, 0.0, self.weight) if self.logistic else np.maximum(w, 0.0)
        if self.logistic:
            rest = self.weight - w
            return np.asarray(rel_entr(w, self.weight) + rel_entr(rest, self.weight) - w * self.shift)
        return np.asarray(rel_entr(w, self.weight) - w - w * self.shift)

    def slopes(self) -> tuple[Array, Array]:
        end = self.linear + self.rate * self.weight if self.logistic else self.linear + np.inf * self.rate
        return np.minimum(self.linear, end), np.maximum(self.linear, end)


@dataclass(frozen=True, eq=False)
class Logarithm:
    """hᵢ(s) = −weight·log(rate·s + shift) + linear·s."""

    at: Ints
    weight: Array
    rate: Array
    shift: Array
    linear: Array

    def value(self, s: Array) -> Array:
        q = self.rate * s + self.shift
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(q > 0, -self.weight * np.log(q) + self.linear * s, np.inf)

    def derivative(self, s: Array) -> Array:
        return -self.weight * self.rate / (self.rate * s + self.shift) + self.linear

    def second(self, s: Array) -> Array:
        return self.weight * (self.rate / (self.rate * s + self.shift)) ** 2

    def third(self, s: Array) -> Array:
        return -2 * self.second(s) * self.rate / (self.rate * s + self.shift)

    def conjugate(self, v: Array) -> Array:
        """With w = (linear − v)/rate > 0:  weight·log(weight/w) − weight + w·shift."""
        w = (self.linear - v) / self.rate
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(w > 0, self.weight * (np.log(self.weight / w) - 1) + w * self.shift, np.inf)

    def slopes(self) -> tuple[Array, Array]:
        rising = self.rate < 0
        return np.where(rising, self.linear, -np.inf), np.where(rising, np.inf, self.linear)


@dataclass(frozen=True, eq=False)
class LogComplement:
    """hᵢ(s) = −weight·log(1 − e^q) + linear·s, q = rate·s + shift < 0."""

    at: Ints
    weight: Array
    rate: Array
    shift: Array
    linear: Array

    def value(self, s: Array) -> Array:
        q = self.rate * s + self.shift
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(q < 0, -self.weight * np.log(-np.expm1(np.minimum(q, 0.0))) + self.linear * s, np.inf)

    def _odds(self, s: Array) -> Array:
        """e^q/(1 − e^q), the derivative by q for weight 1."""
        with np.errstate(divide="ignore", over="ignore"):
            return 1 / np.expm1(-np.minimum(self.rate * s + self.shift, 0.0))

    def derivative(self, s: Array) -> Array:
        return self.weight * self.rate * self._odds(s) + self.linear

    def second(self, s: Array) -> Array:
        odds = self._odds(s)
        return self.weight * self.rate**2 * odds * (1 + odds)

    def third(self, s: Array) -> Array:
        return self.second(s) * self.rate * (1 + 2 * self._odds(s))

    def conjugate(self, v: Array) -> Array:
        """With w = (v − linear)/rate ≥ 0:  w ln(w/(weight + w)) + weight·ln(weight/(weight + w)) − w·shift."""
        w = (v - self.linear) / self.rate
        whole = self.weight + w
        with np.errstate(invalid="ignore", divide="ignore"):
            found = rel_entr(self.weight, whole) + rel_entr(w, whole) - w * self.shift
        return np.where(w >= 0, found, np.inf)

    def slopes(self) -> tuple[Array, Array]:
        rising = self.rate > 0
        return np.where(rising, self.linear, -np.inf), np.where(rising, np.inf, self.linear)


@dataclass(frozen=True, eq=False)
class Entropy:
    """hᵢ(s) = weight·q log q + linear·s, q = rate·s + shift ≥ 0."""

    at: Ints
    weight: Array
    rate: Array
    shift: Array
    linear: Array

    def value(self, s: Array) -> Array:
        q = self.rate * s + self.shift
        return np.where(q >= 0, self.weight * xlogy(q, np.maximum(q, 0.0)) + self.linear * s, np.inf)

    def derivative(self, s: Array) -> Array:
        return self.weight * self.rate * (1 + np.log(self.rate * s + self.shift)) + self.linear

    def second(self, s: Array) -> Array:
        return self.weight * self.rate**2 / (self.rate * s + self.shift)

    def third(self, s: Array) -> Array:
        return -self.second(s) * self.rate / (self.rate * s + self.shift)

    def conjugate(self, v: Array) -> Array:
        """With w = (v − linear)/rate:  weight·exp(w/weight − 1) − w·shift."""
        w = (v - self.linear) / self.rate
        return self.weight * np.exp(np.minimum(w / self.weight - 1, STEEPEST)) - w * self.shift

    def slopes(self) -> tuple[Array, Array]:
        return np.full(len(self.at), -np.inf), np.full(len(self.at), np.inf)


@dataclass(frozen=True, eq=False)
class PowerPiece:
    """hᵢ(s) = (a power of q = rate·s + shift) + linear·s. The power is, with its domain,

    weight·|q|^p for p > 1, or weight·max(q, 0)^p where `positive`; weight·q^p on q > 0 for p < 0; −weight·q^p on q ≥ 0
    for 0 < p < 1.
    """

    at: Ints
    weight: Array
    rate: Array
    shift: Array
    linear: Array
    p: float
    positive: bool

    @property
    def has_domain(self) -> bool:
        """Whether h is infinite for q < 0."""
        return self.p < 1

    def _base(self, s: Array) -> tuple[Array, Array]:
        """The number ≥ 0 that is raised to a power, and its derivative by q."""
        q = self.rate * s + self.shift
        if self.has_domain:
            return np.maximum(q, 0.0), np.ones(len(q))
        return (np.maximum(q, 0.0), (q > 0) * 1.0) if self.positive else (np.abs(q), np.sign(q))

    @property
    def _strength(self) -> Array:
        return -self.weight if 0 < self.p < 1 else self.weight

    def value(self, s: Array) -> Array:
        base, _ = self._base(s)
        with np.errstate(divide="ignore", over="ignore"):
            found = self._strength * base**self.p + self.linear * s
        return np.where(self.rate * s + self.shift < 0, np.inf, found) if self.has_domain else found

    def derivative(self, s: Array) -> Array:
        base, sign = self._base(s)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            slope = np.where(sign == 0, 0.0, self.p * base ** (self.p - 1) * sign)
        return self._strength * self.rate * slope + self.linear

    def second(self, s: Array) -> Array:
        """The curvature. For 1 < p < 2, where it is unbounded at q = 0, it is cut where |q|^p is rounding."""
        base, _ = self._base(s)
        sizes = np.abs(self.shift[self.shift != 0])
        unit = float(np.median(sizes)) if len(sizes) else float(base.max(initial=0.0)) or 1.0
        least = unit * SAME ** (1 / self.p) if 1 < self.p < 2 else 0.0
        with np.errstate(divide="ignore", over="ignore"):
            return self._strength * self.p * (self.p - 1) * self.rate**2 * np.maximum(base, least) ** (self.p - 2)

    def third(self, s: Array) -> Array:
        base, sign = self._base(s)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(base > 0, self.second(s) * self.rate * (self.p - 2) * sign / base, 0.0)

    def conjugate(self, v: Array) -> Array:
        """With w = (v − linear)/rate, q where the slope of ±weight·q^p is w:  wq ∓ weight·q^p − w·shift."""
        w = (v - self.linear) / self.rate
        z = w / (self._strength * self.p)
        if self.has_domain or self.positive:
            outside = z < 0
        else:
            z, outside = np.abs(z), np.zeros(len(z), dtype=bool)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            q = np.where(z > 0, np.abs(z) ** (1 / (self.p - 1)), 0.0 if self.p > 1 else np.inf)
            size = w if (self.has_domain or self.positive) else np.abs(w)
            found = size * q - self._strength * q**self.p - w * self.shift
        if self.p < 0:
            found = np.where(z == 0, -w * self.shift, found)
        return np.where(outside | np.isnan(found), np.inf, found)

    def slopes(self) -> tuple[Array, Array]:
        low, high = np.full(len(self.at), -np.inf), np.full(len(self.at), np.inf)
        if self.positive or self.has_domain:  # monotone in q
            falls = (self.rate > 0) == self.has_domain
            low, high = np.where(falls, low, self.linear), np.where(falls, self.linear, high)
        return low, high


@dataclass(frozen=True, eq=False)
class LogSumExp:
    """n functions of K numbers each, weightᵢ·log Σₖ exp(sₖᵢ + shiftₖᵢ), as functions of these numbers and of their
    differences.

    The Hessian weight·(diag(p) − ppᵀ), p = softmax(s + shift), is Σ over k < l of weight·pₖpₗ(eₖ − eₗ)(eₖ − eₗ)ᵀ: all
    curvature belongs to differences, one number each, and all slopes to the sₖ.

    at : ((K + K(K−1)/2)·n,), all s₁, all s₂ …, then all differences of the pairs (1, 2), (1, 3) …; shift : (K, n)
    """

    at: Ints
    weight: Array
    shift: Array

    def scores(self, s: Array) -> Array:
        """s + shift, (K, n)."""
        return s[: self.shift.size].reshape(self.shift.shape) + self.shift

    def _padded(self, of_scores: Array) -> Array:
        return np.concatenate([of_scores.ravel(), np.zeros(len(self.at) - of_scores.size)])

    def value(self, s: Array) -> Array:
        return np.asarray(self.weight * logsumexp(self.scores(s), axis=0))

    def derivative(self, s: Array) -> Array:
        return self._padded(self.weight * softmax(self.scores(s), axis=0))

    def second(self, s: Array) -> Array:
        p = softmax(self.scores(s), axis=0)
        k, other = pairs_of(len(p))
        return np.concatenate([np.zeros(p.size), (self.weight * p[k] * p[other]).ravel()])

    def conjugate(self, v: Array) -> Array:
        """Σₖ vₖ log(vₖ/weight) − vₖ·shiftₖ on the simplex Σₖ vₖ = weight, v ≥ 0; ∞ outside, up to rounding."""
        w = v[: self.shift.size].reshape(self.shift.shape)
        outside = np.abs(w.sum(axis=0) - self.weight) > SIMPLEX * self.weight
        found = np.sum(rel_entr(w, self.weight) - w * self.shift, axis=0)
        return np.where(outside | (w < 0).any(axis=0), np.inf, found)

    def slopes(self) -> tuple[Array, Array]:
        return np.zeros(len(self.at)), self._padded(np.tile(self.weight, (len(self.shift), 1)))


def pairs_of(classes: int) -> tuple[Ints, Ints]:
    """The pairs k < l, in the order of the differences in `LogSumExp`."""
    return np.triu_indices(classes, 1)


@dataclass(frozen=True, eq=False)
class Custom:
    """hᵢ(s) = weight·ℓ(rate·s + shift, data): a user's own loss."""

    at: Ints
    loss: SmoothLoss
    data: tuple[Array, ...]
    weight: Array
    rate: Array
    shift: Array
    _last: list[Array] = field(default_factory=list, repr=False)  # the last argument of ℓ′: a start for Newton

    def _argument(self, s: Array) -> Array:
        return np.asarray(self.rate * s + self.shift)

    def value(self, s: Array) -> Array:
        return self.weight * self.loss.value(self._argument(s), self.data)

    def derivative(self, s: Array) -> Array:
        self._last[:] = [self._argument(s)]
        return self.weight * self.rate * self.loss.gradient(self._last[0], self.data)

    def second(self, s: Array) -> Array:
        return self.weight * self.rate**2 * self.loss.hessian(self._argument(s), self.data)

    def third(self, s: Array) -> Array:
        """The central difference of ℓ″, to fourth order, as ℓ has no third derivative of its own.

        Steps are a thousandth of the argument, of all arguments near 0, and of the distance to an end of the domain.
        """
        q = self._argument(s)
        room = np.minimum(q - self.loss.low, self.loss.high - q)
        h = np.minimum(1e-3 * np.maximum(np.abs(q), float(np.median(np.abs(q))) or 1.0), 0.1 * room)
        second = [self.loss.hessian(q + k * h, self.data) for k in (-2, -1, 1, 2)]
        slope = (second[0] - 8 * second[1] + 8 * second[2] - second[3]) / (12 * h)
        return self.weight * self.rate**3 * slope

    def conjugate(self, v: Array) -> Array:
        """weight·(ℓ*(z) − z·shift) with z = v/(weight·rate), and ℓ*(z) = zq − ℓ(q) where ℓ′(q) = z; an upper bound
        of that where q is approximate. Where ℓ is linear, no other slope than its own has a finite one, so that the
        last argument of ℓ′ counts where v is its slope to the last bit."""
        fixed = self.rate == 0
        z = v / np.where(fixed, 1.0, self.weight * self.rate)
        constant = np.where(v == 0, -self.weight * self.loss.value(self.shift, self.data), np.inf)
        if fixed.all():
            return constant
        hint = self._last[0] if self._last else np.full(len(z), self.loss.anywhere)
        hint = np.where(self.loss.inside(hint), hint, self.loss.anywhere)
        slope = self.loss.gradient(hint, self.data)
        z = np.where(v == self.weight * self.rate * slope, slope, z)
        found = attained(
            lambda q: self.loss.gradient(q, self.data), lambda q: self.loss.hessian(q, self.data),
            z, hint, (self.loss.low, self.loss.high),
        )  # fmt: skip
        with np.errstate(invalid="ignore"):
            reached = z * found.q - self.loss.value(found.q, self.data) + found.excess
            conjugate = self.weight * (reached - z * self.shift)
        return np.where(fixed, constant, np.where(np.isnan(conjugate), np.inf, conjugate))

    def slopes(self) -> tuple[Array, Array]:
        return self._slopes

    @cached_property
    def _slopes(self) -> tuple[Array, Array]:
        return range_of_slopes(self.loss, self.data, self.weight * self.rate)


Smooth = ExponentialPiece | Logarithm | LogComplement | Entropy | PowerPiece | LogSumExp | Custom
Piece = Quadratic | Smooth


def without_weight(piece: Piece | None) -> tuple[Piece, ...] | None:
    """The functions of positive weight, and those of weight 0 as lines on their domains.

    A tiny positive weight in place of 0 would have another conjugate than the line.
    """
    if piece is None or isinstance(piece, (Quadratic, Custom)) or np.all(piece.weight > 0):
        return None if piece is None else (piece,)
    keep = piece.weight > 0
    rest = _without_curve(piece, ~keep)
    if not keep.any():
        return (rest,)
    at = piece.at.reshape(-1, len(keep))[:, keep].ravel()
    return (replace(piece, at=at, **{name: getattr(piece, name)[..., keep] for name in _ENTRIES[type(piece)]}), rest)


def _without_curve(piece: Smooth, chosen: Array) -> Quadratic:
    """The line and the domain of some functions: q = rate·s + shift ≥ 0, or all numbers."""
    at = piece.at.reshape(-1, len(chosen))[:, chosen].ravel()
    zero, endless = np.zeros(len(at)), np.full(len(at), np.inf)
    linear = zero if isinstance(piece, (LogSumExp, Custom)) else piece.linear[chosen]
    left, right = -endless, endless
    if isinstance(piece, (Logarithm, LogComplement, Entropy)) or (isinstance(piece, PowerPiece) and piece.has_domain):
        end, rate = -piece.shift[chosen] / piece.rate[chosen], piece.rate[chosen]
        rate = -rate if isinstance(piece, LogComplement) else rate
        left, right = np.where(rate > 0, end, left), np.where(rate < 0, end, right)
    return Quadratic(at, *(part[:, None] for part in (left, right, zero, linear, zero)))


# The arrays of each class with one entry per function.
_ENTRIES: dict[type, tuple[str, ...]] = {
    LogSumExp: ("weight", "shift"),
    **dict.fromkeys(
        (ExponentialPiece, Logarithm, LogComplement, Entropy, PowerPiece), ("weight", "rate", "shift", "linear")
    ),
}
