"""A function of one number that a user states by its value, slope and curvature."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from kernelopt.pieces.elementary import Smooth
from kernelopt.pieces.function import ULPS, Bounded
from kernelopt.pieces.inverse import attained
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array, Ints

# Relative difference between the slopes at the two points around a multiplier. A larger one costs more of the bound; a
# smaller one may be rounding of the slopes.
NEARBY = 1e-10
DOUBLINGS = 60  # of a step, until the slope has changed by that much
FLAT = 1e-9  # relative to an argument with a curvature of 0: the first step from there
# Distance of slopes from the ends of their interval, relative to these. At an end no finite argument may have the
# slope; a larger distance costs accuracy of the dual point.
INSIDE = 1e-9


class Loss(Protocol):
    """What is asked of a stated function ℓ(q, data): all of it entry by entry."""

    low: float
    high: float
    rounding: float  # of values, beyond that of their own size

    @property
    def anywhere(self) -> float: ...

    def outwards(self) -> Array: ...

    def inside(self, u: Array) -> Array: ...

    def value(self, u: Array, data: tuple[Array, ...]) -> Array: ...

    def gradient(self, u: Array, data: tuple[Array, ...]) -> Array: ...

    def hessian(self, u: Array, data: tuple[Array, ...]) -> Array: ...


def range_of_slopes(loss: Loss, data: tuple[Array, ...], factor: Array) -> tuple[Array, Array]:
    """The least and the largest slope factor·ℓ′ at points towards both ends of the domain.

    Since ℓ′ increases, they are close to the ends of its range.
    """
    low, high = np.full(len(factor), np.inf), np.full(len(factor), -np.inf)
    for q in loss.outwards():
        slope = factor * loss.gradient(np.full(len(factor), q), data)
        low, high = np.fmin(low, slope), np.fmax(high, slope)
    # A margin relative to each end keeps slopes that some point attains. A slope of 0 is attained, to double precision.
    margins = [INSIDE * np.where(np.isfinite(end) & (high > low), np.abs(end), 0.0) for end in (low, high)]
    return low + margins[0], high - margins[1]


@dataclass(frozen=True, eq=False)
class StatedFunction(Smooth):
    """hᵢ(s) = ℓ(s, dataᵢ) for low < s < high. That ℓ is convex, and ℓ′ its slope, is taken for granted.

    (wh)*(a) by tangents: with slopes L₋ ≤ a ≤ L₊ of wℓ at two points, which have the constants C₋ and C₊ there,
    wh(s) − as ≥ (1 − λ)C₋ + λC₊ for the λ with (1 − λ)L₋ + λL₊ = a. Where L₋ = L₊ = a however far apart these points
    are, h is linear. Reads SmoothLoss.
    """

    loss: Loss
    data: tuple[Array, ...]
    _last: list[Array] = field(default_factory=list, repr=False)  # the last argument of ℓ′: a start for Newton's method

    @property
    def inside(self) -> tuple[float, float]:  # type: ignore[override]
        return self.loss.low, self.loss.high

    @property
    def is_smooth(self) -> bool:
        return self.inside == (-np.inf, np.inf)

    def take(self, which: Ints) -> StatedFunction:
        return StatedFunction(self.loss, tuple(part[which] for part in self.data))

    def of(self, q: Array) -> Array:
        return self.loss.value(q, self.data)

    def rounding(self, q: Array, value: Array) -> Array:
        return super().rounding(q, value) + self.loss.rounding

    def derivative(self, q: Array) -> Array:
        self._last[:] = [q]
        return self.loss.gradient(q, self.data)

    def curvature(self, q: Array) -> Array:
        return self.loss.hessian(q, self.data)

    def third(self, q: Array) -> Array:
        """The central difference of ℓ″, to fourth order, as ℓ has no third derivative of its own.

        Steps are a thousandth of the argument, of all arguments near 0, and of the distance to an end of the domain.
        """
        room = np.minimum(q - self.loss.low, self.loss.high - q)
        h = np.minimum(1e-3 * np.maximum(np.abs(q), float(np.median(np.abs(q))) or 1.0), 0.1 * room)
        second = [self.curvature(q + k * h) for k in (-2, -1, 1, 2)]
        return (second[0] - 8 * second[1] + 8 * second[2] - second[3]) / (12 * h)

    def ends(self, w: Array) -> tuple[Array, Array]:
        low, high = (np.where(w > 0, w * end, 0.0) for end in self._ends)  # 0·∞ is no end
        return low, high

    @cached_property
    def _ends(self) -> tuple[Array, Array]:
        return range_of_slopes(self.loss, self.data, np.ones(len(self.data[0]) if self.data else 1))

    def argument(self, slope: Array) -> Array:
        """q with ℓ′(q) = slope, nearly."""
        hint = self._last[0] if self._last and self._last[0].shape == slope.shape else np.zeros_like(slope)
        hint = np.where(self.loss.inside(hint), hint, self.loss.anywhere)
        return attained(
            lambda q: self.loss.gradient(q, self.data), lambda q: self.loss.hessian(q, self.data), slope, hint,
            self.inside,
        ).q  # fmt: skip

    def at(self, a: Array, w: Array) -> Bounded:
        middle = self.argument(a / w)
        points = np.stack(self._around(middle))
        value = w * np.stack([self.loss.value(q, self.data) for q in points])
        low, high = slope = w * np.stack([self.loss.gradient(q, self.data) for q in points])
        slack = ULPS * (np.abs(low) + np.abs(high))
        constant = value - slope * points
        rate = (constant[1] - constant[0]) / (high - low)
        error = (ULPS * (np.abs(value) + np.abs(slope * points)) + w * self.loss.rounding).sum(axis=0)
        rounding = (np.abs(rate) + error / (high - low)) * 4 * slack + 2 * error
        found = -(constant[0] + (a - low) * rate)
        known = (low + slack <= a) & (a <= high - slack) & np.isfinite(found) & np.isfinite(rounding)
        found, rounding = np.where(known, found, np.inf), np.where(known, rounding, 0.0)
        for there, at in zip(slope, value, strict=True):  # wh is at least its value where its slope is 0
            flat, own = (a == 0) & (there == 0) & np.isfinite(at), ULPS * np.abs(at) + w * self.loss.rounding
            flat &= ~(found + rounding < own - at)
            found, rounding = np.where(flat, -at, found), np.where(flat, own, rounding)
        straight, at, along = (low == a) & (high == a), w * self.loss.value(middle, self.data), a * middle
        straight &= np.isfinite(at) & ~np.isfinite(found)
        own = ULPS * (np.abs(at) + np.abs(along)) + w * self.loss.rounding
        return Bounded(np.where(straight, along - at, found), np.where(straight, own, rounding))

    def _around(self, q: Array) -> list[Array]:
        """Points below and above q at which the slope differs by a little more than rounding, inside of the domain."""
        slope, found = self.loss.gradient(q, self.data), []
        typical = float(np.median(np.abs(slope))) if len(q) else 0.0
        wanted = NEARBY * (np.abs(slope) + typical) + float(np.finfo(float).tiny)
        for sign, end in zip((-1.0, 1.0), self.inside, strict=True):
            curvature = self.loss.hessian(q, self.data)
            with np.errstate(divide="ignore", over="ignore"):
                longest = 1e6 * np.maximum(np.abs(q), 1.0)
                step = np.clip(wanted / curvature, 1e-12 * np.maximum(np.abs(q), 1e-3), longest)
                step = np.where(curvature > 0, step, FLAT * np.maximum(np.abs(q), 1e-3))
            for _ in range(DOUBLINGS):
                point = q + sign * step
                point = np.where(sign * (point - end) >= 0, 0.5 * (q + end), point)
                short = sign * (self.loss.gradient(point, self.data) - slope) < 0.5 * wanted
                if not short.any():
                    break
                step = np.where(short, 2 * step, step)
            found.append(point)
        return found

    def units(self) -> tuple[Array, Array]:
        """|ℓ′/ℓ″| and ℓ′²/ℓ″ in the middle of the domain: the length of Newton's step, and twice its decrease."""
        middle = np.full(len(self.data[0]) if self.data else 1, self.loss.anywhere)
        first, second = (found(middle, self.data) for found in (self.loss.gradient, self.loss.hessian))
        with np.errstate(all="ignore"):
            length = np.where(second > 0, np.abs(first / second), 0.0)
        return length, np.abs(first) * length
