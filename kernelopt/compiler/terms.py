"""The terms of a sum of functions of one number each: functions of the table along lines, intervals, log-sum-exp.

Every class holds n functions hᵢ and the indices `at` of their arguments in s. It computes values, an element of the
subdifferential, the conjugate h*ᵢ(v) = sup over s of vs − hᵢ(s), and the interval where h*ᵢ is finite. Smooth ones have
a curvature, others kinks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp, rel_entr, softmax

from kernelopt.pieces.elementary import Smooth as SmoothFunction
from kernelopt.pieces.quadratics import Piecewise
from kernelopt.support.arithmetic import UNIT
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array, Ints

# Relative distance at which s still belongs to an interval that it misses: rounding in the sum s, with a margin.
SAME = 1e-12
# Jump of a slope, relative to the terms on both sides, that rounding explains. As a kink, such a jump would keep a
# smooth loss from Newton's method.
JUMP = 64 * np.finfo(float).eps
SIMPLEX = 1e-14  # relative error of Σₖ vₖ = weight that rounding of a sum of few numbers explains (45 ulps)
# Of functions that are finite everywhere, larger numbers are cut: products with weights remain doubles.
LARGEST = 1e304
FAR = 1e6  # times the constants of lines near 0: those of lines that are met far off
CLOSE = 16 * UNIT  # relative distance of a slope from the end of its interval that a division explains


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
class Bent:
    """Piecewise linear-quadratic hᵢ(s)."""

    at: Ints
    family: Piecewise

    def value(self, s: Array) -> Array:
        return self.family.of(s)

    def derivative(self, s: Array) -> Array:
        """From the right."""
        return self.family.slopes(s)[1]

    def conjugate(self, v: Array) -> Array:
        with np.errstate(all="ignore"):
            return self.family.at(v, np.ones(len(v))).value

    def slopes(self) -> tuple[Array, Array]:
        return self.family.ends(np.ones(len(self.at)))

    def kinks(self) -> Kinks:
        """The functions as sums of a line and of one term for each jump and each curved stretch."""
        (left, right), c = self.family.stretches, self.family.coefficients
        found = list[tuple[Array, ...]]()

        def add(mask: Array, *parts: Array | float) -> None:
            rows = np.flatnonzero(mask)
            if len(rows):
                found.append((rows, *(np.broadcast_to(part, mask.shape)[rows] for part in parts)))

        # The line is the tangent of one stretch, where the terms below are 0: at its right end, or next to its minimum.
        every, of = np.arange(len(c)), self._base()
        c0, c1, c2 = c[every, of].T
        low, high = left[every, of], right[every, of]
        curved, inner = c2 > 0, (low > -np.inf) | (high == np.inf)
        with np.errstate(all="ignore"):
            start = np.where(curved, np.where(inner, np.clip(-c1 / c2, low, high), high), 0.0)
            tangent = np.where(curved, c1 + c2 * start, c1)
            tangent = np.where(curved & (start == -c1 / c2), 0.0, tangent)
            value = c0 + start * (c1 + 0.5 * c2 * start) - tangent * start
            add(curved & ~inner, high, -np.inf, 0.0, 1 / c2)
            add(curved & inner, start, c2 * (low - start), c2 * (high - start), 1 / c2)
            for j in range(1, c.shape[1]):
                knot, before, after = left[:, j], c[:, j - 1], c[:, j]
                terms = np.stack([after[:, 1], after[:, 2] * knot, -before[:, 1], -before[:, 2] * knot])
                jump, rounding = terms.sum(axis=0), JUMP * np.abs(terms).sum(axis=0)
                used, bend, below = knot < np.inf, after[:, 2], j <= of
                add(used & (jump > rounding), knot, np.where(below, -jump, 0.0), np.where(below, 0.0, jump), 0.0)
                add(used & ~below & (bend > 0), knot, 0.0, bend * (right[:, j] - knot), 1 / bend)
                bend = before[:, 2]
                add(below & (bend > 0), knot, bend * (left[:, j - 1] - knot), 0.0, 1 / bend)
        return _kinks(value, tangent, found)

    def _base(self) -> Ints:
        """The stretch whose tangent is the line: the first one; where its constant is far larger than that of the
        stretch at 0, as beyond the threshold 1e9 of Huber's function, the latter, since sums with such numbers round.
        """
        c0, count = np.abs(self.family.coefficients[..., 0]), len(self.at)
        at_zero = np.asarray((self.family.knots < 0).sum(axis=1))
        near = c0[np.arange(count), at_zero]
        typical = float(np.median(near)) if count else 0.0
        return np.where(c0[:, 0] > FAR * np.maximum(near, typical), at_zero, 0)


@dataclass(frozen=True, eq=False)
class Interval:
    """hᵢ(s) = 0 for leftᵢ ≤ s ≤ rightᵢ, ∞ elsewhere."""

    at: Ints
    left: Array
    right: Array

    def value(self, s: Array) -> Array:
        off = np.maximum(self.left - s - SAME * np.abs(self.left), s - self.right - SAME * np.abs(self.right))
        return np.where(off <= 0, 0.0, np.inf)

    def derivative(self, s: Array) -> Array:
        return np.zeros(len(s))

    def conjugate(self, v: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return np.where(v == 0, 0.0, np.where(v > 0, v * self.right, v * self.left))

    def slopes(self) -> tuple[Array, Array]:
        return np.where(np.isfinite(self.left), -np.inf, 0.0), np.where(np.isfinite(self.right), np.inf, 0.0)

    def kinks(self) -> Kinks:
        """A half-line for each end; a line for a point."""
        point, nothing = self.left == self.right, np.zeros(len(self.at))
        parts = [
            (np.isfinite(self.left), self.left, -np.inf, np.where(point, np.inf, 0.0)),
            (np.isfinite(self.right) & ~point, self.right, 0.0, np.full(len(point), np.inf)),
        ]
        found = [
            (np.flatnonzero(mask), anchor[mask], np.full(mask.sum(), low), high[mask], nothing[mask])
            for mask, anchor, low, high in parts
        ]
        return _kinks(nothing, nothing, found)


def _kinks(value: Array, slope: Array, found: Sequence[tuple[Array, ...]]) -> Kinks:
    """One after the other."""
    none = np.zeros(0)
    of, *parts = (np.concatenate([none, *several]) for several in zip(*found, strict=True)) if found else [none] * 5
    return Kinks(value, slope, of.astype(int), *parts)


@dataclass(frozen=True, eq=False)
class Along:
    """hᵢ(s) = weightᵢφᵢ(rateᵢs + shiftᵢ) for smooth functions φ of the table, weights > 0 and rates ≠ 0."""

    at: Ints
    family: SmoothFunction
    weight: Array
    rate: Array
    shift: Array
    _last: list[tuple[Array, Array]] = field(default_factory=list, repr=False)  # slopes by s, and of weight·φ

    def _argument(self, s: Array) -> Array:
        return np.asarray(self.rate * s + self.shift)

    def _cut(self, numbers: Array) -> Array:
        """Numbers that overflow at LARGEST, where the function is finite everywhere."""
        low, high = self.family.inside
        return numbers if isfinite(low) or isfinite(high) else np.clip(numbers, -LARGEST, LARGEST)

    def value(self, s: Array) -> Array:
        with np.errstate(all="ignore"):
            return self.weight * self._cut(self.family.of(self._argument(s)))

    def derivative(self, s: Array) -> Array:
        with np.errstate(all="ignore"):
            inner = self.weight * self._cut(self.family.derivative(self._argument(s)))
            slope = self.rate * inner
        self._last[:] = [(slope, inner)]
        return slope

    def second(self, s: Array) -> Array:
        """The curvature."""
        q = self._argument(s)
        with np.errstate(all="ignore"):
            return self.weight * self.rate**2 * self._cut(self.family.bounded_curvature(q, self._unit(q)))

    def _unit(self, q: Array) -> float:
        """A typical argument."""
        sizes = np.abs(self.shift[self.shift != 0])
        return float(np.median(sizes)) if len(sizes) else float(np.abs(q).max(initial=0.0)) or 1.0

    def third(self, s: Array) -> Array:
        with np.errstate(all="ignore"):
            return self.weight * self.rate**3 * self._cut(self.family.third(self._argument(s)))

    def conjugate(self, v: Array) -> Array:
        """(weight·φ)*(v/rate) − v·shift/rate. Slopes that were computed last count as they were before the product with
        the rate: where φ is linear, no other slope than its own has a finite conjugate."""
        a = v / self.rate
        for known, inner in self._last:
            a = np.where(v == known, inner, a)
        low, high = self.family.ends(self.weight)
        near = np.clip(a, low, high)
        with np.errstate(all="ignore"):
            a = np.where(np.abs(a - near) <= CLOSE * np.abs(near), near, a)
            found = self.family.at(a, self.weight).value - a * self.shift
        return np.where(np.isnan(found), np.inf, found)

    def slopes(self) -> tuple[Array, Array]:
        return self._slopes

    @cached_property
    def _slopes(self) -> tuple[Array, Array]:
        with np.errstate(over="ignore"):
            ends = [self.rate * end for end in self.family.ends(self.weight)]
        return np.minimum(*ends), np.maximum(*ends)

    def apart(self) -> list[Along | Interval]:
        """The functions of positive weight, and the domains of those of weight 0.

        A tiny positive weight in place of 0 would have another conjugate than 0 has.
        """
        if np.all(self.weight > 0):
            return [self]
        keep, (low, high) = np.flatnonzero(self.weight > 0), self.family.inside
        rest = np.flatnonzero(self.weight == 0)
        ends = [(end - self.shift[rest]) / self.rate[rest] for end in (low, high)]
        family = self.family.take(keep)
        assert isinstance(family, SmoothFunction)
        curved = Along(self.at[keep], family, self.weight[keep], self.rate[keep], self.shift[keep])
        return [curved, Interval(self.at[rest], np.minimum(*ends), np.maximum(*ends))]


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
        """The curvature."""
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


Kinked = Bent | Interval
Curved = Along | LogSumExp
Term = Kinked | Curved


class SumOfLosses(NamedTuple):
    """The sum of the c largest of k + 1 losses: their multipliers a have 0 ≤ a ≤ w and Σa = cw.

    rows : those of k losses, without the last one; bounds : of all k + 1, the rows in which they bound their columns,
    or −1; last : slopes whose sum is the last multiplier; largest : c; cost : w, or what it is of the multiplier of the
    row `below`, if that is not −1
    """

    rows: Ints
    bounds: Ints
    last: Ints
    cost: float
    largest: float
    below: int = -1
