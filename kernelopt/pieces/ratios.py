"""Squares of a row over a number of it: ‖x‖²/y."""

from __future__ import annotations

from math import inf

import numpy as np

from kernelopt.pieces.function import Bounded, Family, Jacobian
from kernelopt.pieces.norms import length_above, length_of
from kernelopt.support.arithmetic import UNIT
from kernelopt.support.types import Array

STEPS = 100  # of Newton's method for a root: a few from a start that is near, and convergence is from one side
TINY = 1e-290
LEAST = 2.0**-1000  # more than a square loses that underflows


class SquaresOverLinear(Family):
    """h(x, y) = ‖x‖²/y on y > 0, 0 at (0, 0), else ∞; (wh)*(a, b) = 0 where b ≤ −‖a‖²/(4w), else ∞.

    Reads quad_over_lin whose denominator is no constant.
    """

    @property
    def is_support(self) -> bool:
        return True

    def value(self, s: Array) -> Array:
        return _ratio(length_of(s[:, :-1]), s[:, -1])

    def slope(self, s: Array) -> Array:
        """(2x/y, −‖x‖²/y²), and 0 at (0, 0)."""
        y = s[:, -1:]
        share = np.divide(s[:, :-1], y, out=np.zeros_like(s[:, :-1]), where=y > 0)
        return np.hstack([2 * share, -(length_of(share)[:, None] ** 2)])

    def slopes_near(self, s: Array, near: Array) -> tuple[Array, Array]:
        """Near (0, 0) any number, and any that is at most 0."""
        slope, apex = self.slope(s), (length_of(s) <= near)[:, None]
        high = np.append(np.full(s.shape[1] - 1, inf), 0.0)
        return np.where(apex, -inf, slope), np.where(apex, high, slope)

    def highest(self, s: Array, e: Array) -> Array:
        """It rises with |x| and falls with y."""
        least = np.nextafter(s[:, -1] - e[:, -1], -inf)
        least = np.where(e[:, -1] > 0, least, s[:, -1])
        most = (length_above(s[:, :-1]) + length_above(e[:, :-1])) * (1 + 2 * UNIT)
        return np.asarray(_ratio(most, least) * (1 + 8 * UNIT) + LEAST * (most > 0))

    def conjugate(self, a: Array, r: Array, low: Array, high: Array) -> Bounded:
        """The domain grows with w: ‖a‖ ≤ 2√(−wb) for the longest a, the largest b and the least w."""
        most = a[:, -1] + r[:, -1]
        most = np.where(r[:, -1] > 0, np.nextafter(most, inf), most)
        longest = length_above(np.abs(a[:, :-1]) + r[:, :-1])
        reach = 2 * np.sqrt(np.maximum(low, 0.0)) * np.sqrt(np.maximum(-most, 0.0)) * (1 - 8 * UNIT)
        return Bounded(np.where((most <= 0) & (longest <= reach), 0.0, inf), np.zeros(len(a)))

    def nearest(self, a: Array, w: Array) -> Array:
        """The projection, with b some roundings lower."""
        found = self.prox(a, w, w)
        length = length_above(found[:, :-1]) * (1 + 16 * UNIT)
        least = -(np.divide(length, 2 * np.sqrt(w), out=np.zeros_like(length), where=w > 0) ** 2)
        found[:, -1] = np.minimum(found[:, -1], least * (1 + 16 * UNIT))
        return found

    def prox(self, z: Array, tau: Array, w: Array) -> Array:
        """The projection on b ≤ −‖a‖²/(4w): a = x/q and b = −‖a‖²/(4w) with q³ − (1 + y/(2w))q² = ‖x‖²/(8w²)."""
        q, found = _divisor(z, w), z.copy()
        found[:, :-1] = z[:, :-1] / q[:, None]
        half = np.divide(length_of(found[:, :-1]), 2 * np.sqrt(w), out=np.zeros(len(z)), where=w > 0)
        found[:, -1] = np.where(q == 1, z[:, -1], np.minimum(-(half**2), z[:, -1]))
        return found

    def prox_slope(self, z: Array, tau: Array, w: Array) -> Jacobian:
        """D − Dnn′D/(n′Dn) with D = diag(1/q, …, 1/q, 1) and n = (a/(2w), 1), the normal; I inside of the domain."""
        q, a, k = _divisor(z, w)[:, None], self.prox(z, tau, w)[:, :-1], z.shape[1]
        d = np.hstack([np.repeat(1 / q, k - 1, axis=1), np.ones((len(z), 1))])
        n = np.hstack([a / np.maximum(2 * w, TINY)[:, None], np.ones((len(z), 1))])
        n /= length_of(n)[:, None]
        normal = np.where(q > 1, d * n, 0.0)
        rest = np.sum(n * d * n, axis=1)
        return Jacobian(d, normal[:, :, None], -1 / np.maximum(rest, TINY)[:, None, None])


def _ratio(length: Array, y: Array) -> Array:
    """length²/y, without overflow where that is finite."""
    share = np.divide(length, y, out=np.zeros_like(length), where=y > 0) * length
    return np.where(y > 0, share, np.where((y == 0) & (length == 0), 0.0, inf))


def _divisor(z: Array, w: Array) -> Array:
    """q ≥ 1 of the projection (a, b) = (x/q, y − 2w(q − 1)); 1 where z is inside, ∞ where w = 0 and x ≠ 0.

    Newton's method for q³ − cq² − d, which is convex and rises beyond its root, from above.
    """
    length, y, safe = length_of(z[:, :-1]), z[:, -1], np.where(w > 0, w, 1.0)
    inside = (y <= 0) & (length <= 2 * np.sqrt(safe) * np.sqrt(np.maximum(-y, 0.0))) & (w > 0)
    c, root = 1 + y / (2 * safe), length / (np.sqrt(8.0) * safe)
    q = np.maximum(c, 0.0) + np.cbrt(root) ** 2
    q = np.where(c < 0, np.minimum(q, root / np.sqrt(np.maximum(-c, TINY))), q)
    for _ in range(STEPS):
        slope = q * (3 * q - 2 * c)
        move = np.divide(q * q * (q - c) - root**2, slope, out=np.zeros_like(q), where=slope > 0)
        q = q - np.maximum(move, 0.0)
        if np.all(move <= 2 * UNIT * q):
            break
    q = np.where(inside, 1.0, np.maximum(q, 1.0))
    return np.where(w > 0, q, np.where(length > 0, inf, np.where(y > 0, np.nextafter(1.0, 2.0), 1.0)))
