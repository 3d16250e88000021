"""A convex function of rows that a user states by its value, conjugate and proximal map."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import inf
from typing import Protocol

import numpy as np

from kernelopt.pieces.function import ULPS, Bounded, Family, Jacobian
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array, Ints

ROUNDINGS = 4 * ULPS  # of a user's value and conjugate, relative to the sizes of their terms
# Steps of a slope (z − prox(z))/t, and of differences of the proximal map, relative to data and arguments: smaller
# ones leave fewer digits of the difference, larger ones are farther from the point.
SHORT, STEP = 1e-7, 1e-6
FLAT = 1e-13  # relative to multipliers: the weight of the conjugate in a projection on its domain
INWARDS = (1e-12, 1e-10, 1e-8, 1e-6, 1.0)  # shares of the way to a centre of the domain, until a point is inside


class RowLoss(Protocol):
    """What is asked of a stated function h(s, data) of rows, for all of them at once."""

    def value(self, s: Array, data: tuple[Array, ...]) -> Array: ...

    def conjugate(self, a: Array, w: Array, data: tuple[Array, ...]) -> Array: ...

    def prox(self, z: Array, t: Array, data: tuple[Array, ...]) -> Array: ...


@dataclass(frozen=True, eq=False)
class ProximalFunction(Family):
    """hᵢ(s) = h(s, dataᵢ). That h is convex, and that conjugate and proximal map are its own, is taken for granted.

    A convex function on a box |δ| ≤ r around a point is at most its largest value at the 2k points that are k·rⱼ away
    along one axis, whose hull contains the box. Reads ProximalLoss.
    """

    loss: RowLoss
    data: tuple[Array, ...]
    m: int
    k: int

    def take(self, which: Ints) -> ProximalFunction:
        return ProximalFunction(self.loss, tuple(part[which] for part in self.data), len(which), self.k)

    def value(self, s: Array) -> Array:
        return self.loss.value(s, self.data)

    def slope(self, s: Array) -> Array:
        """(s − prox(s))/t for a short t, which is a slope at prox(s)."""
        t = SHORT * np.maximum(self._unit, np.abs(s).max(axis=1, initial=0.0))
        return np.asarray((s - self.loss.prox(s, t, self.data)) / t[:, None])

    def highest(self, s: Array, e: Array) -> Array:
        with np.errstate(all="ignore"):
            points = _around(s, e)
            most = np.max([self.value(point) for point in points], axis=0)
            size = np.sum(np.abs(self.slope(s)) * (np.abs(s) + e + self._size[:, None]), axis=1)
            found = most + ROUNDINGS * (np.abs(most) + size)
        return np.where(np.isnan(found), inf, found)

    def conjugate(self, a: Array, r: Array, low: Array, high: Array) -> Bounded:
        weights = (low, high) if np.any(high > low) else (low,)
        with np.errstate(all="ignore"):
            found = [self._weighed(point, w) for point, w in product(_around(a, r), weights)]
            value = np.max(found, axis=0)
            size = np.abs(value) + np.sum(np.abs(a) + r, axis=1) * self._size
        value = np.where(np.isnan(value), inf, value)
        return Bounded(value, np.where(np.isfinite(value), ROUNDINGS * size, 0.0))

    def _weighed(self, a: Array, w: Array) -> Array:
        """(wh)*(a); for w = 0 it is 0 at a = 0, and taken to be ∞ elsewhere."""
        found = self.loss.conjugate(a, np.where(w > 0, w, 1.0), self.data)
        return np.where(w > 0, found, np.where(a.any(axis=1), inf, 0.0))

    def nearest(self, a: Array, w: Array) -> Array:
        """a itself, or the proximal point of nearly 0·(wh)*, moved towards the inside until it is in the domain."""
        out = ~np.isfinite(self._weighed(a, w))
        if not out.any():
            return a
        tau = FLAT * np.maximum(np.abs(a).max(axis=1, initial=0.0), FLAT * w)
        near = np.where(out[:, None], self.prox(a, np.where(tau > 0, tau, 1.0), w), a)
        found, centre = near, w[:, None] * self._centre
        for share in INWARDS:
            out &= ~np.isfinite(self._weighed(found, w))
            if not out.any():
                break
            found = np.where(out[:, None], near + share * (centre - near), found)
        return np.asarray(found)

    @cached_property
    def _centre(self) -> Array:
        """The mean of some slopes: a point inside of the domain of h*."""
        t = self._unit
        points = [np.zeros((self.m, self.k))]
        points += [sign * t[:, None] * row for row in np.eye(self.k) for sign in (1.0, -1.0)]
        return np.asarray(np.mean([(z - self.loss.prox(z, t, self.data)) / t[:, None] for z in points], axis=0))

    def prox(self, z: Array, tau: Array, w: Array) -> Array:
        """By Moreau's identity z − τx, with x the minimizer of ½‖x − z/τ‖² + (w/τ)h(x)."""
        with np.errstate(all="ignore"):
            least = np.finfo(float).tiny
            x = self.loss.prox(z / tau[:, None], np.maximum(w, least) / tau, self.data)
        return np.asarray(z - tau[:, None] * x)

    def prox_slope(self, z: Array, tau: Array, w: Array) -> Jacobian:
        """By central differences, with eigenvalues between 0 and 1."""
        step = STEP * np.maximum(np.abs(z).max(axis=1, initial=0.0), tau * self._unit)
        columns = []
        for row in np.eye(self.k):
            above, below = (self.prox(z + sign * step[:, None] * row, tau, w) for sign in (1.0, -1.0))
            columns.append((above - below) / (2 * step[:, None]))
        J = np.stack(columns, axis=2)
        values, Z = np.linalg.eigh(0.5 * (J + J.transpose(0, 2, 1)))
        return Jacobian(np.zeros_like(z), Z, np.clip(values, 0.0, 1.0)[:, :, None] * np.eye(self.k))

    @cached_property
    def _unit(self) -> Array:
        """A length for each function: that of its data, or 1 without any."""
        return np.where(
            self._size > 0, self._size, float(self._size[self._size > 0].mean()) if self._size.any() else 1.0
        )

    @cached_property
    def _size(self) -> Array:
        """The largest number of each row's data."""
        found = [np.abs(part.reshape(self.m, -1)).max(axis=1, initial=0.0) for part in self.data]
        return np.asarray(np.max([np.zeros(self.m), *found], axis=0))


def _around(x: Array, r: Array) -> list[Array]:
    """x, or points whose hull contains the box |δ| ≤ r around it."""
    if not r.any():
        return [x]
    k = x.shape[1]
    far = [np.where(r > 0, np.nextafter(x + sign * k * r, sign * inf), x) for sign in (1.0, -1.0)]
    return [np.where(row, there, x) for there in far for row in np.eye(k, dtype=bool)]
