"""What a family of convex functions tells of itself.

A family holds m functions hᵢ of k numbers each, evaluated together: s and a are arrays (m, k), weights w ≥ 0 are (m,),
and results have one entry, or one row, for each function. Nothing here knows of problems, kernels or cvxpy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from itertools import product
from math import inf
from typing import Any, NamedTuple

import numpy as np

from kernelopt.support.arithmetic import UNIT
from kernelopt.support.types import Array, Ints

# Relative error of numpy's exp, log and powers with the operations around them, which is taken for granted; they are
# within a few units in the last place.
ULPS = 16 * UNIT
STEPS = 200  # of a root: each third one halves the 2⁶⁴ doubles that it may be
FAST = 0.1  # share of the last value, down to which Newton's steps go on by themselves; 1/e is usual far out on e^q
ENDS = 2.0  # units in the last place: a shorter step is rounding


class Bounded(NamedTuple):
    """Computed values (m,), and bounds on their rounding errors: the exact number is at most value + rounding."""

    value: Array
    rounding: Array


@dataclass(frozen=True, eq=False)
class Jacobian:
    """The derivative of m maps of k numbers, diag(dᵢ) + ZᵢTᵢZᵢᵀ; d (m, k), Z (m, k, j), T (m, j, j)."""

    d: Array
    Z: Array
    T: Array

    def dot(self, x: Array) -> Array:
        """J x for x (m, k)."""
        inner = np.einsum("mij,mj->mi", self.T, np.einsum("mkj,mk->mj", self.Z, x))
        return np.asarray(self.d * x + np.einsum("mkj,mj->mk", self.Z, inner))

    @classmethod
    def diagonal(cls, d: Array) -> Jacobian:
        """diag(dᵢ)."""
        return cls(d, np.zeros((*d.shape, 0)), np.zeros((len(d), 0, 0)))


class Family(ABC):
    """m convex functions hᵢ of k numbers each.

    is_smooth : whether h is finite and differentiable everywhere, so that `slope` is continuous
    """

    @property
    def is_smooth(self) -> bool:
        return False

    @property
    def is_support(self) -> bool:
        """Whether h is a support function, so that (wh)* is 0 on its domain."""
        return False

    @property
    def heads(self) -> Ints:
        """Of a cone, the entries that grow towards its inside."""
        return np.arange(0)

    @property
    def kind(self) -> Hashable | None:
        """What families have in common whose functions may stand in one; None where they stay apart.

        That is here the class with its numbers, where all m are one function.
        """
        known: list[Any] = [getattr(self, field.name) for field in fields(self)] if is_dataclass(self) else []
        return (type(self), *known) if all(isinstance(value, (int, float, tuple)) for value in known) else None

    def take(self, which: Array) -> Family:
        """Some of the functions; the family itself where all m are one function."""
        return self

    def joined(self, others: Sequence[Any]) -> Family:
        """The functions of families of one kind, of this one first."""
        return self

    @abstractmethod
    def value(self, s: Array) -> Array:
        """hᵢ(sᵢ); ∞ outside of the domain."""

    @abstractmethod
    def slope(self, s: Array) -> Array:
        """An element of ∂hᵢ(sᵢ), (m, k)."""

    def slopes_near(self, s: Array, near: Array) -> tuple[Array, Array]:
        """The least and the largest value of each entry of subgradients at points within `near` (m,) of s, nearly."""
        slope = self.slope(s)
        return slope, slope

    def sums_near(self, s: Array, near: Array) -> tuple[Array, Array]:
        """The least and the largest sum of the entries of these subgradients; infinite where that is not known."""
        return np.full(len(s), -inf), np.full(len(s), inf)

    @abstractmethod
    def highest(self, s: Array, e: Array) -> Array:
        """An upper bound on hᵢ over all points within e (m, k) of s, entry by entry, with rounding."""

    @abstractmethod
    def conjugate(self, a: Array, r: Array, low: Array, high: Array) -> Bounded:
        """The largest (whᵢ)*(a′) = sup over s of a′·s − whᵢ(s) for |a′ − a| ≤ r and low ≤ w ≤ high.

        (wh)*(a) is jointly convex in (a, w), so that it is largest at a corner. It is ∞ unless all of the box is proven
        to be in the domain.
        """

    @abstractmethod
    def nearest(self, a: Array, w: Array) -> Array:
        """A point of the domain of (whᵢ)* near a: a itself where it is inside."""

    @abstractmethod
    def prox(self, z: Array, tau: Array, w: Array) -> Array:
        """argmin over a of ½‖a − z‖² + τ(whᵢ)*(a)."""

    @abstractmethod
    def prox_slope(self, z: Array, tau: Array, w: Array) -> Jacobian:
        """An element of the generalized Jacobian of `prox` by z."""


class OfOneNumber(Family):
    """Functions of one number. A family gives those of the following methods that have no argument of shape (m, k).

    `inside` is the open interval on which h is finite; at its ends h may be finite too.
    """

    inside: tuple[float, float] = (-inf, inf)

    @abstractmethod
    def of(self, q: Array) -> Array:
        """h(q), (m,)."""

    @abstractmethod
    def slopes(self, q: Array) -> tuple[Array, Array]:
        """The least and the largest element of ∂h(q) inside of the domain."""

    @abstractmethod
    def curvature(self, q: Array) -> Array:
        """h″(q), from the right."""

    @abstractmethod
    def ends(self, w: Array) -> tuple[Array, Array]:
        """The interval whose interior and attained ends are the domain of (wh)*."""

    @abstractmethod
    def at(self, a: Array, w: Array) -> Bounded:
        """(wh)*(a)."""

    def rounding(self, q: Array, value: Array) -> Array:
        """A bound on the error of the value that `of` finds."""
        return ULPS * np.abs(value)

    def value(self, s: Array) -> Array:
        with np.errstate(all="ignore"):
            return self.of(s[:, 0])

    def slope(self, s: Array) -> Array:
        with np.errstate(all="ignore"):
            low, high = self.slopes(s[:, 0])
        return np.where(np.isfinite(high), high, low)[:, None]

    def slopes_near(self, s: Array, near: Array) -> tuple[Array, Array]:
        with np.errstate(all="ignore"):
            return self.slopes(s[:, 0] - near)[0][:, None], self.slopes(s[:, 0] + near)[1][:, None]

    def highest(self, s: Array, e: Array) -> Array:
        """A convex function is largest at an end."""
        with np.errstate(all="ignore"):
            q, off = s[:, 0], e[:, 0]
            both = [np.where(off > 0, np.nextafter(q + sign * off, sign * inf), q) for sign in (-1.0, 1.0)]
            found = [(end, self.of(end)) for end in (both if off.any() else both[:1])]
            return np.asarray(np.max([value + self.rounding(end, value) for end, value in found], axis=0))

    def conjugate(self, a: Array, r: Array, low: Array, high: Array) -> Bounded:
        with np.errstate(all="ignore"):
            signs, weights = (-1, 1) if r.any() else (0,), (low, high) if np.any(high > low) else (low,)
            found = [self._weighed(a[:, 0] + sign * r[:, 0], w) for sign, w in product(signs, weights)]
        value, rounding = (np.max([one[i] for one in found], axis=0) for i in (0, 1))
        return Bounded(value, rounding)

    def _weighed(self, a: Array, w: Array) -> Bounded:
        """(wh)*(a); for w = 0 that is the support function of h's domain, as at an end of it, or ∞."""
        value, rounding = self.at(a, np.where(w > 0, w, 1.0))
        low, high = self.inside
        zero = np.where(a == 0, 0.0, np.where(a > 0, a * high, a * low))
        value, rounding = np.where(w > 0, value, zero), np.where(w > 0, rounding, ULPS * np.abs(zero))
        return Bounded(value, np.where(np.isfinite(value), rounding, 0.0))

    def nearest(self, a: Array, w: Array) -> Array:
        low, high = self.ends(w)
        if not w.all():  # the domain of (0·h)*, the support function of h's domain
            low = np.where(w > 0, low, -inf if np.isfinite(self.inside[0]) else 0.0)
            high = np.where(w > 0, high, inf if np.isfinite(self.inside[1]) else 0.0)
        return np.clip(a[:, 0], low, high)[:, None]

    def prox(self, z: Array, tau: Array, w: Array) -> Array:
        """By Moreau's identity z − τx, with x the root of τx + wh′(x) = z."""
        with np.errstate(all="ignore"):
            a = z[:, 0] - tau * self.minimizer(z[:, 0], tau, w)
            low, high = self.ends(w)
            return np.clip(a, low, high)[:, None]

    def minimizer(self, z: Array, tau: Array, w: Array) -> Array:
        """argmin over x of ½τx² + wh(x) − zx."""
        return root(
            lambda x: tau * x + w * self.slopes(x)[1] - z, lambda x: tau + w * self.curvature(x), self.inside, len(z)
        )

    def prox_slope(self, z: Array, tau: Array, w: Array) -> Jacobian:
        """wh″/(τ + wh″) at the minimizer; 1 on a kink."""
        with np.errstate(all="ignore"):
            curved = w * self.curvature(self.minimizer(z[:, 0], tau, w))
            return Jacobian.diagonal(np.where(np.isinf(curved), 1.0, curved / (tau + curved))[:, None])


def root(
    f: Callable[[Array], Array], df: Callable[[Array], Array], inside: tuple[float, float], m: int,
    start: Array | None = None,
) -> Array:  # fmt: skip
    """The roots of m increasing functions on an open interval, to the last digits.

    Newton's steps within a bracket, as long as values fall fast; else each third step halves the number of doubles in
    it, so that 200 steps suffice wherever the root is. Without a root, the end of the interval towards which it would
    lie.
    """
    low, high = np.full(m, np.nextafter(inside[0], inf)), np.full(m, np.nextafter(inside[1], -inf))
    x = _middle(low, high) if start is None else np.clip(start, low, high)
    before = np.full(m, inf)
    with np.errstate(all="ignore"):
        for number in range(STEPS):
            value, slope = f(x), df(x)
            low, high = np.where(value <= 0, x, low), np.where(value >= 0, x, high)
            step = value / slope
            done = (np.nextafter(low, inf) >= high) | ((np.abs(step) <= ENDS * np.spacing(np.abs(x))) & (slope < inf))
            if done.all():
                break
            new, size = x - step, np.abs(value)
            inner = (new > low) & (new < high) & ((size <= FAST * before) | (number % 3 < 2))
            before, x = np.where(inner, size, inf), np.where(done, x, np.where(inner, new, _middle(low, high)))
    return x


def _middle(low: Array, high: Array) -> Array:
    """The double in the middle of those between low and high; doubles have the order of integers (IEEE 754)."""
    first, last = (_ranks(x) for x in (low, high))
    return _of_ranks(first // 2 + last // 2 + (first % 2 + last % 2) // 2)


def _ranks(x: Array) -> Array:
    bits = np.asarray(x, dtype=float).view(np.int64)
    return np.where(bits < 0, np.iinfo(np.int64).min - bits, bits)


def _of_ranks(ranks: Array) -> Array:
    return np.where(ranks < 0, np.iinfo(np.int64).min - ranks, ranks).view(float)
