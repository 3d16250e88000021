"""Sums of entries with weights by their order, Σ wⱼx₍ⱼ₎ with x and w decreasing: of a row and a 0, and of moduli.

(wh)* is the indicator of all a whose j largest entries add up to at most the j largest weights (Hardy, Littlewood and
Pólya); the prox is an isotonic regression. See Bogdan et al. (2015), "SLOPE: adaptive variable selection via convex
optimization".
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from scipy.optimize import isotonic_regression

from kernelopt.pieces.extremes import around
from kernelopt.pieces.function import Bounded, Family, Jacobian
from kernelopt.support.arithmetic import UNIT, gamma
from kernelopt.support.types import Array

CENTRE = 4.0  # in units of what sums may have lost by rounding: how far inside of the domain multipliers are moved


@dataclass(frozen=True, eq=False)
class _BySize(Family):
    """weights : w₁ ≥ w₂ ≥ …, one for each entry."""

    weights: tuple[float, ...]

    @property
    def is_support(self) -> bool:
        return True

    def _falling(self) -> Array:
        return np.array(self.weights)

    def _lost(self, x: Array) -> Array:
        """What running sums of the entries of x may have lost by rounding."""
        return np.asarray(2 * gamma(x.shape[-1] + 2) * np.cumsum(np.abs(x), axis=-1))

    def _weights_near(self, x: Array, near: Array) -> tuple[Array, Array]:
        """The least and the largest weight that each entry may have."""
        up, w = np.sort(x, axis=1), self._falling()
        n, pairs = x.shape[1], list(zip(up, x, near, strict=True))
        above = np.array([n - np.searchsorted(row, own + r, side="right") for row, own, r in pairs])
        least = np.array([n - 1 - np.searchsorted(row, own - r, side="left") for row, own, r in pairs])
        return w[np.maximum(least, above)], w[above]


class Sorted(_BySize):
    """h(s) = Σ wⱼx₍ⱼ₎ for x = (s₁, …, s_k, 0), with w₁ ≥ … ≥ w_{k+1} of any signs.

    (wh)*(a) = 0 where any j entries of a add up to between the sums of the j smallest and of the j largest weights,
    times w, else ∞. Reads dotsort.
    """

    def value(self, s: Array) -> Array:
        return np.asarray(-np.sort(-_with_zero(s), axis=1) @ self._falling())

    def slope(self, s: Array) -> Array:
        order, w = np.argsort(-_with_zero(s), axis=1, kind="stable"), self._falling()
        found = np.zeros(order.shape)
        np.put_along_axis(found, order, np.broadcast_to(w, order.shape), axis=1)
        return found[:, :-1]

    def slopes_near(self, s: Array, near: Array) -> tuple[Array, Array]:
        low, high = self._weights_near(_with_zero(s), near)
        return low[:, :-1], high[:, :-1]

    def sums_near(self, s: Array, near: Array) -> tuple[Array, Array]:
        low, high = (end[:, -1] for end in self._weights_near(_with_zero(s), near))
        total = self._falling().sum()
        return total - high, total - low

    def highest(self, s: Array, e: Array) -> Array:
        """h(s) + h(δ) ≤ h(s) + Σ |w|₍ⱼ₎|δ|₍ⱼ₎ for all |δ| ≤ e."""
        size, w = -np.sort(-np.abs(_with_zero(s)), axis=1), -np.sort(-np.abs(self._falling()))
        moved = -np.sort(-_with_zero(e), axis=1) @ w * (1 + 4 * gamma(len(w)))
        return np.asarray(self.value(s) + moved + 4 * gamma(len(w) + 2) * (size @ w))

    def conjugate(self, a: Array, r: Array, low: Array, high: Array) -> Bounded:
        least, most = around(a, r)
        w, inside = self._falling(), np.ones(len(a), dtype=bool)
        for falling, sums in ((-np.sort(-most, axis=1), w), (-np.sort(least, axis=1), -w[::-1])):
            bounds = np.cumsum(sums)[: a.shape[1]]
            limit = np.minimum(low[:, None] * bounds, high[:, None] * bounds)
            lost = self._lost(falling) + high[:, None] * self._lost(sums)[: a.shape[1]]
            inside &= np.all(np.cumsum(falling, axis=1) + lost <= limit, axis=1)
        return Bounded(np.where(inside, 0.0, inf), np.zeros(len(a)))

    def nearest(self, a: Array, w: Array) -> Array:
        """The projection, moved towards the centre by what the sums may lose."""
        a = np.where(self.conjugate(a, np.zeros_like(a), w, w).value[:, None] == 0, a, self._inner(a, w))
        return np.asarray(a)

    def _inner(self, a: Array, w: Array) -> Array:
        falling = self._falling()
        n, mean = len(falling), falling.mean()
        room = (np.cumsum(falling) - mean * np.arange(1, n + 1))[:-1]
        lost = 2 * gamma(n + 2) * float(np.abs(falling).sum() + n * abs(mean))
        share = min(CENTRE * lost / max(float(room.min(initial=inf)), 1e-300), 1.0)
        return np.asarray((1 - share) * self.prox(a, np.ones(len(a)), w) + share * mean * w[:, None])

    def prox(self, z: Array, tau: Array, w: Array) -> Array:
        return np.asarray(z - self._minimizers(z, w)[0])

    def prox_slope(self, z: Array, tau: Array, w: Array) -> Jacobian:
        x, blocks = self._minimizers(z, w)
        return _without_means(blocks, x != 0)

    def _minimizers(self, z: Array, w: Array) -> tuple[Array, Array]:
        """argmin over x of ½‖x − z‖² + wh(x), and the number of each entry's block of equal ones."""
        falling = self._falling()
        order = np.argsort(-z, axis=1, kind="stable")
        found, blocks = np.zeros_like(z), np.zeros(z.shape, dtype=int)
        for i, (row, one) in enumerate(zip(z, w, strict=True)):
            down = row[order[i]]
            # Entries above 0 have the first weights, those below 0 one further: 0 itself has the one between.
            upper = isotonic_regression(down - one * falling[:-1], increasing=False).x
            lower = isotonic_regression(down - one * falling[1:], increasing=False).x
            x = np.maximum(upper, 0.0) + np.minimum(lower, 0.0)
            found[i, order[i]] = x
            blocks[i, order[i]] = np.cumsum(np.append(0, np.diff(x) != 0))
        return found, blocks


@dataclass(frozen=True, eq=False)
class SortedSizes(_BySize):
    """h(s) = Σ wⱼx₍ⱼ₎ for x = |s|, or for `positive` parts x = max(s, 0), with w₁ ≥ … ≥ w_k ≥ 0.

    (wh)*(a) = 0 where the j largest |a| add up to at most the j largest weights, times w, and for positive parts a ≥ 0,
    else ∞. Reads dotsort of moduli and of positive parts.
    """

    positive: bool = False

    def _sizes(self, s: Array) -> Array:
        return np.maximum(s, 0.0) if self.positive else np.abs(s)

    def value(self, s: Array) -> Array:
        return np.asarray(-np.sort(-self._sizes(s), axis=1) @ self._falling())

    def slope(self, s: Array) -> Array:
        order = np.argsort(-self._sizes(s), axis=1, kind="stable")
        found = np.zeros(s.shape)
        np.put_along_axis(found, order, np.broadcast_to(self._falling(), s.shape), axis=1)
        return np.asarray((np.maximum(np.sign(s), 0.0) if self.positive else np.sign(s)) * found)

    def slopes_near(self, s: Array, near: Array) -> tuple[Array, Array]:
        small, large = self._weights_near(self._sizes(s), near)
        r = near[:, None]
        high = np.where(s >= -r, large, 0.0 if self.positive else -small)
        return np.where(s > r, small, 0.0 if self.positive else -large), high

    def highest(self, s: Array, e: Array) -> Array:
        most = -np.sort(-self._sizes(np.abs(s) + e if not self.positive else s + e + UNIT * np.abs(s)), axis=1)
        return np.asarray(most @ self._falling() * (1 + 4 * gamma(s.shape[1] + 4)))

    def conjugate(self, a: Array, r: Array, low: Array, high: Array) -> Bounded:
        falling, w = -np.sort(-(np.abs(a) + r) * (1 + UNIT), axis=1), self._falling()
        lost = self._lost(falling) + low[:, None] * self._lost(w)
        inside = np.all(np.cumsum(falling, axis=1) + lost <= low[:, None] * np.cumsum(w), axis=1)
        inside |= ~falling.any(axis=1)
        if self.positive:
            inside &= np.all(a >= r, axis=1)
        return Bounded(np.where(inside, 0.0, inf), np.zeros(len(a)))

    def nearest(self, a: Array, w: Array) -> Array:
        """The projection, smaller by what the sums may lose."""
        inside = self.conjugate(a, np.zeros_like(a), w, w).value == 0
        inner = 1 - 4 * CENTRE * gamma(a.shape[1] + 2)
        projected = self.prox(a, np.ones(len(a)), w)
        projected = np.maximum(projected, 0.0) if self.positive else projected
        return np.where(inside[:, None], a, inner * projected)

    def prox(self, z: Array, tau: Array, w: Array) -> Array:
        return np.asarray(z - self._minimizers(z, w)[0])

    def prox_slope(self, z: Array, tau: Array, w: Array) -> Jacobian:
        x, blocks = self._minimizers(z, w)
        return _without_means(blocks, x != 0, np.sign(z))

    def _minimizers(self, z: Array, w: Array) -> tuple[Array, Array]:
        """As those of `Sorted`; negative entries stay as they are where positive parts count."""
        falling, size, k = self._falling(), self._sizes(z), z.shape[1]
        order = np.argsort(-size, axis=1, kind="stable")
        found, blocks = np.zeros_like(z), np.zeros(z.shape, dtype=int)
        for i, (row, one) in enumerate(zip(size, w, strict=True)):
            x = np.maximum(isotonic_regression(row[order[i]] - one * falling, increasing=False).x, 0.0)
            found[i, order[i]] = x
            blocks[i, order[i]] = np.cumsum(np.append(0, np.diff(x) != 0))
        if self.positive:
            return np.where(z > 0, found, z), np.where(z > 0, blocks, k + np.arange(k))
        return np.sign(z) * found, blocks


def _with_zero(s: Array) -> Array:
    return np.hstack([s, np.zeros((len(s), 1))])


def _without_means(blocks: Array, moving: Array, signs: Array | None = None) -> Jacobian:
    """I − (the means over blocks of moving entries, times their signs)."""
    signs = np.ones(blocks.shape) if signs is None else signs
    counts = np.array([np.bincount(row)[row] for row in blocks])
    alone = moving & (counts == 1)
    wide = moving & (counts > 1)
    names = [np.unique(row[some]) for row, some in zip(blocks, wide, strict=True)]
    most = max(map(len, names), default=0)
    Z, T = np.zeros((*blocks.shape, most)), np.zeros((len(blocks), most, most))
    for i, own in enumerate(names):
        at = np.searchsorted(own, blocks[i][wide[i]])
        Z[i, np.flatnonzero(wide[i]), at] = signs[i][wide[i]]
        T[i, np.arange(len(own)), np.arange(len(own))] = -1.0 / np.bincount(at, minlength=len(own))
    return Jacobian(np.where(alone, 0.0, 1.0), Z, T)
