"""Piecewise linear-quadratic functions of one number: |s|, max(s, 0), s², Huber's, and what they compose to."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from math import inf, prod

import numpy as np

from kernelopt.pieces.function import ULPS, Bounded, Jacobian, OfOneNumber
from kernelopt.support.arithmetic import two_product
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array

SMALLEST, FEWEST = 2.0**-1022, 2.0**-1000  # the smallest normal double, and one whose products lose no digits


@dataclass(frozen=True, eq=False)
class Piecewise(OfOneNumber):
    """hᵢ(s) = c₀ + c₁s + ½c₂s² on the stretch between two knots, convex and continuous on all numbers.

    Reads abs, pos, neg, max, maximum, square, sum_squares, quad_over_lin, norm1, huber, scalene and their sums,
    multiples and compositions.

    knots : (m, j) ascending, ∞ where unused; coefficients : (m, j + 1, 3), those of unused stretches are ignored
    """

    knots: Array
    coefficients: Array

    def __len__(self) -> int:
        return len(self.knots)

    @cached_property
    def is_smooth(self) -> bool:
        """Whether no slope jumps at a knot, by more than rounding of the coefficients."""
        knots = np.where(np.isfinite(self.knots), self.knots, 0.0)
        before, after = self.coefficients[:, :-1], self.coefficients[:, 1:]
        terms = np.stack([after[..., 1], after[..., 2] * knots, -before[..., 1], -before[..., 2] * knots])
        jumps = np.abs(terms.sum(axis=0)) > ULPS * np.abs(terms).sum(axis=0)
        return not bool(np.any(jumps & np.isfinite(self.knots)))

    @property
    def kind(self) -> Hashable:
        return Piecewise, self.knots.shape[1]

    def joined(self, others: Sequence[Piecewise]) -> Piecewise:
        parts = [self, *others]
        return Piecewise(np.vstack([f.knots for f in parts]), np.vstack([f.coefficients for f in parts]))

    def take(self, which: Array) -> Piecewise:
        """Some of the functions, in an order; all of them many times where there is one."""
        return Piecewise(self.knots[which], self.coefficients[which])

    def times(self, w: Array) -> Piecewise:
        """wᵢhᵢ for wᵢ ≥ 0."""
        return replace(self, coefficients=self.coefficients * np.asarray(w)[:, None, None])

    def plus(self, constant: Array) -> Piecewise:
        """hᵢ + constantᵢ."""
        added = self.coefficients.copy()
        added[..., 0] += np.asarray(constant)[:, None]
        return replace(self, coefficients=added)

    def lines(self) -> tuple[Array, Array] | None:
        """Slopes and values at 0 of the lines whose maximum each function is, (j + 1, m); None where one is curved."""
        if self.coefficients[..., 2].any() or not np.isfinite(self.knots).all():
            return None
        return self.coefficients[..., 1].T, self.coefficients[..., 0].T

    @cached_property
    def stretches(self) -> tuple[Array, Array]:
        """The ends of all stretches, (m, j + 1)."""
        end = np.full((len(self), 1), inf)
        return np.hstack([-end, self.knots]), np.hstack([self.knots, end])

    def _in_force(self, q: Array) -> Array:
        """The coefficients at q (m, …), (m, …, 3): at a knot, those of the stretch on its left."""
        if not self.knots.shape[1]:
            one = self.coefficients.reshape(len(q), *[1] * (q.ndim - 1), 3)
            return np.broadcast_to(one, (*q.shape, 3))
        if q.ndim == 1:
            return self.coefficients[np.arange(len(q)), (q[:, None] > self.knots).sum(axis=1)]
        shape = (len(q), *[1] * (q.ndim - 1), self.knots.shape[1])
        stretch = (q[..., None] > self.knots.reshape(shape)).sum(axis=-1).reshape(len(q), prod(q.shape[1:]))
        found = np.take_along_axis(self.coefficients, stretch[:, :, None], axis=1)
        return found.reshape(*q.shape, 3)

    def constants(self, reach: Array) -> Array:
        """The largest |c₀| of the stretches that meet |s| ≤ reach: others do not count, as 1e18 beyond the threshold
        1e9 of Huber's function."""
        (low, high), reach = self.stretches, reach[:, None]
        inside = (low <= reach) & (high >= -reach)
        return np.asarray(np.max(np.where(inside, np.abs(self.coefficients[..., 0]), 0.0), axis=1))

    def of(self, q: Array) -> Array:
        c0, c1, c2 = _columns(self._in_force(q))
        return np.asarray(c0 + q * (c1 + 0.5 * c2 * q))

    def rounding(self, q: Array, value: Array) -> Array:
        c0, c1, c2 = _columns(np.abs(self._in_force(q)))
        size = np.abs(q)
        return ULPS * (c0 + size * (c1 + 0.5 * c2 * size))

    def slopes(self, q: Array) -> tuple[Array, Array]:
        sides = self._in_force(q), self._in_force(np.nextafter(q, inf))
        low, high = (c[..., 1] + c[..., 2] * q for c in sides)
        return low, np.maximum(low, high)

    def curvature(self, q: Array) -> Array:
        """∞ on a kink."""
        low, high = self.slopes(q)
        jumps = np.isin(q, self.knots) & (high - low > ULPS * (np.abs(low) + np.abs(high)))
        return np.where(jumps, inf, self._in_force(np.nextafter(q, inf))[..., 2])

    def ends(self, w: Array) -> tuple[Array, Array]:
        last = np.isfinite(self.knots).sum(axis=1)
        low, high = (
            self._end(self.coefficients[np.arange(len(self)), stretch], w, inwards)
            for stretch, inwards in ((np.zeros_like(last), inf), (last, -inf))
        )
        return low, high

    @staticmethod
    def _end(coefficients: Array, w: Array, inwards: float) -> Array:
        """wc₁, rounded towards the inside; infinite where the last stretch is curved."""
        hi, lo = two_product(w, coefficients[:, 1])
        within = np.where(lo * np.sign(inwards) > 0, np.nextafter(hi, inwards), hi)
        return np.where(w * coefficients[:, 2] > 0, -inwards, within)

    def at(self, a: Array, w: Array) -> Bounded:
        """The largest over the stretches of sup as − w(c₀ + c₁s + ½c₂s²).

        With d = a − wc₁ that is d²/(2wc₂) − wc₀ where s = d/(wc₂) is inside, else the value at an end. On a line
        without an end the sign of d decides, which is exact.
        """
        low, high = self.stretches
        c0, c1, c2 = _columns(self.coefficients)
        A, W = a[:, None], np.broadcast_to(w[:, None], c1.shape)
        hi, lo = two_product(W, c1)
        d = np.where(hi == A, -lo, A - hi)
        endless, used = ((high == inf) & (d > 0)) | ((low == -inf) & (d < 0)), low < inf
        whole = (low == -inf) & (high == inf)
        # Of what is below the largest value by more than its rounding, the rounding does not count.
        ends = np.full_like(d, -inf), np.full_like(d, -inf)
        if self.knots.shape[1]:
            left, right = (_reached(A, W, self.coefficients, end) for end in (low, high))
            ends = np.maximum(left[0], right[0]), np.maximum(_most(*left), _most(*right))
        flat = -W * c0, _most(-W * c0, W * np.abs(c0))
        found = [np.where(endless, inf, np.where(whole, *parts)) for parts in zip(flat, ends, strict=True)]
        curved = W * c2 > 0
        if curved.any():
            s = d / (W * c2)
            # d·d could underflow before it is divided by a small number, and below FEWEST a product has few digits.
            vertex, inside = 0.5 * d * s - W * c0, (s > low) & (s < high)
            size = np.abs(d * s) + W * np.abs(c0) + np.abs(s) * (np.abs(A) + W * np.abs(c1) + SMALLEST)
            vertex = np.where((d != 0) & (W * c2 < FEWEST), inf, vertex)
            pairs = zip((vertex, _most(vertex, size)), ends, found, strict=True)
            found = [np.where(curved, np.where(inside, top, end), line) for top, end, line in pairs]
        value, most = (np.where(used, part, -inf).max(axis=1) for part in found)
        with np.errstate(invalid="ignore"):
            more = np.where(most > value, np.nextafter(most - value, inf), 0.0)
        return Bounded(value, more)

    def minimizer(self, z: Array, tau: Array, w: Array) -> Array:
        """The knot at which τx + wh′(x) jumps over z, or the point of a stretch where it is z."""
        low, high = self.stretches
        c1, c2 = self.coefficients[..., 1], self.coefficients[..., 2]
        W, T, Z = w[:, None], tau[:, None], z[:, None]
        with np.errstate(all="ignore"):
            found = np.clip((Z - W * c1) / (T + W * c2), low, high)
            reached = np.where(low < inf, T * found + W * (c1 + c2 * found) - Z, inf)
        best = np.abs(np.where(np.isnan(reached), inf, reached))
        # Of stretches that end at one knot each is as good: x is the same.
        return np.take_along_axis(found, best.argmin(axis=1)[:, None], axis=1)[:, 0]

    def prox_slope(self, z: Array, tau: Array, w: Array) -> Jacobian:
        with np.errstate(all="ignore"):
            x = self.minimizer(z[:, 0], tau, w)
            curved = w * self.curvature(x)
            return Jacobian.diagonal(np.where(np.isinf(curved), 1.0, curved / (tau + curved))[:, None])

    def of_piecewise(self, inner: Piecewise) -> Piecewise | None:
        """h∘inner for an h that does not decrease on the range of the inner one; None where a square meets a square.

        Knots are those of the inner function and the points at which it takes the value of a knot of h.
        """
        if len(self) != len(inner):
            return many(self, len(inner)).of_piecewise(inner)
        low, high = inner.stretches
        c0, c1, c2 = _columns(inner.coefficients)
        found = [inner.knots]
        with np.errstate(all="ignore"):
            for knot in self.knots.T:
                d = c0 - knot[:, None]
                width = np.sqrt(c1 * c1 - 2 * c2 * d)
                for sign in (-1.0, 1.0):
                    at = np.where(c2 != 0, (-c1 + sign * width) / c2, np.where(c1 != 0, -d / c1, np.nan))
                    found.append(np.where((at >= low) & (at <= high), at, inf))
        knots = _distinct(np.concatenate(found, axis=1))
        points = Piecewise(knots, np.zeros((len(knots), knots.shape[1] + 1, 3)))._middles()
        H = inner._in_force(points)
        G = self._in_force(H[..., 0] + points * (H[..., 1] + 0.5 * H[..., 2] * points))
        if np.any((G[..., 2] != 0) & (H[..., 2] != 0)):
            return None
        parts = (
            G[..., 0] + H[..., 0] * (G[..., 1] + 0.5 * G[..., 2] * H[..., 0]),
            H[..., 1] * (G[..., 1] + G[..., 2] * H[..., 0]),
            G[..., 1] * H[..., 2] + G[..., 2] * H[..., 1] ** 2,
        )
        return Piecewise(knots, np.stack(parts, axis=-1))

    def along(self, rate: Array, shift: Array) -> Piecewise:
        """hᵢ(rateᵢ·s + shiftᵢ), for rates that are not 0; those of one sign at a time, since others turn the order."""
        falls = rate < 0
        r, d = rate[:, None], shift[:, None]
        knots = np.where(np.isfinite(self.knots), (self.knots - d) / r, inf)
        c0, c1, c2 = _columns(self.coefficients)
        parts = c0 + d * (c1 + 0.5 * c2 * d), r * (c1 + c2 * d), r * r * c2
        coefficients = np.stack(parts, axis=-1)
        if falls.any():  # used stretches from the last to the first; unused ones stay last
            number, count = np.arange(coefficients.shape[1]), 1 + np.isfinite(self.knots).sum(axis=1)
            order = np.where(falls[:, None] & (number < count[:, None]), count[:, None] - 1 - number, number)
            coefficients = np.take_along_axis(coefficients, order[:, :, None], axis=1)
            knots = np.sort(knots, axis=1)
        return Piecewise(knots, coefficients)

    def with_line(self, r: Array, d: Array) -> Piecewise:
        """h + rs + d."""
        return replace(self, coefficients=self.coefficients + np.stack([d, r, np.zeros_like(r)], axis=-1)[:, None])

    def above(self, other: Piecewise) -> Piecewise:
        """max(h, g): h plus what g exceeds it by."""
        knots = _distinct(np.concatenate([self.knots, other.knots], axis=1))
        middles = Piecewise(knots, np.zeros((len(knots), knots.shape[1] + 1, 3)))._middles()
        excess = other._in_force(middles) - self._in_force(middles)
        beyond = many(POS, len(self)).of_piecewise(Piecewise(knots, excess))
        assert beyond is not None  # a square never meets a square
        return Piecewise(beyond.knots, self._in_force(beyond._middles()) + beyond.coefficients)

    def level(self, c: Array) -> tuple[Array, Array]:
        """The interval on which hᵢ ≤ cᵢ; NaN where it is empty."""
        low, high = self.stretches
        c0, c1, c2 = _columns(self.coefficients)
        roots = []
        with np.errstate(all="ignore"):
            d = c0 - c[:, None]
            width = np.sqrt(c1 * c1 - 2 * c2 * d)
            for sign in (-1.0, 1.0):
                at = np.where(c2 != 0, (-c1 + sign * width) / c2, np.where(c1 != 0, -d / c1, np.nan))
                roots.append(np.where((at >= low) & (at <= high), at, np.nan))
            found = np.concatenate(roots, axis=1)
            left, right = np.fmin.reduce(found, axis=1), np.fmax.reduce(found, axis=1)
        flat, last = c2 == 0, np.isfinite(self.knots).sum(axis=1)[:, None]
        endless = [flat & ((sign * c1 < 0) | ((c1 == 0) & (d <= 0))) for sign in (-1.0, 1.0)]
        right_end = np.take_along_axis(endless[1], last, axis=1)[:, 0]
        return np.where(endless[0][:, 0], -inf, left), np.where(right_end, inf, right)

    def _middles(self) -> Array:
        """A point inside of each stretch, (m, j + 1); 0 of unused ones."""
        low, high = self.stretches
        with np.errstate(invalid="ignore"):
            one = np.where(
                np.isfinite(low), low + 1 + np.abs(low), np.where(np.isfinite(high), high - 1 - np.abs(high), 0.0)
            )
            both = 0.5 * low + 0.5 * high
        return np.where(low == inf, 0.0, np.where(np.isfinite(low) & np.isfinite(high), both, one))


def _columns(coefficients: Array) -> tuple[Array, Array, Array]:
    """c₀, c₁ and c₂."""
    return coefficients[..., 0], coefficients[..., 1], coefficients[..., 2]


def _reached(A: Array, W: Array, coefficients: Array, s: Array) -> tuple[Array, Array]:
    """As − W(c₀ + c₁s + ½c₂s²), −∞ at infinite s, and the size of its terms."""
    c0, c1, c2 = _columns(coefficients)
    finite = np.isfinite(s)
    s = np.where(finite, s, 0.0)
    value = A * s - W * (c0 + s * (c1 + 0.5 * c2 * s))
    size = np.abs(A * s) + W * (np.abs(c0) + np.abs(s) * (np.abs(c1) + 0.5 * c2 * np.abs(s)))
    return np.where(finite, value, -inf), np.where(finite, size, 0.0)


def _most(value: Array, size: Array) -> Array:
    """At most what a sum of terms of this size is: the number itself where there are none."""
    return np.where(size > 0, np.nextafter(value + ULPS * size, inf), value)


def _distinct(knots: Array) -> Array:
    """Each row ascending, without equal entries, as wide as the longest."""
    knots = np.sort(np.where(np.isnan(knots), inf, knots), axis=1)
    knots[:, 1:] = np.where(knots[:, 1:] == knots[:, :-1], inf, knots[:, 1:])
    knots = np.sort(knots, axis=1)
    return np.asarray(knots[:, : int(np.isfinite(knots).sum(axis=1).max(initial=0))])


def one(knots: list[float], coefficients: list[list[float]]) -> Piecewise:
    """One function."""
    return Piecewise(np.array([knots], dtype=float).reshape(1, -1), np.array([coefficients], dtype=float))


def nothing(m: int) -> Piecewise:
    """The function 0, m times."""
    return Piecewise(np.zeros((m, 0)), np.zeros((m, 1, 3)))


POS = one([0], [[0, 0, 0], [0, 1, 0]])
ABS = one([0], [[0, -1, 0], [0, 1, 0]])
SQUARE = one([], [[0, 0, 2]])


def huber(M: float) -> Piecewise:
    """s² for |s| ≤ M, else 2M|s| − M²."""
    return one([-M, M], [[-M * M, -2 * M, 0], [0, 0, 2], [-M * M, 2 * M, 0]])


def many(function: Piecewise, m: int) -> Piecewise:
    """One function m times."""
    return function.take(np.zeros(m, dtype=int))
