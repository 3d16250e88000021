"""Solve g(q) = z for increasing functions g, entry by entry, with a bound of the error."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kernelopt.support.types import Array

# Most steps of a loop. About 60 halvings narrow a bracket down to neighbouring doubles; the others are for Newton steps
# between them, and for doublings until there is a bracket.
STEPS = 120
# Relative rounding of a few operations: a narrower interval, and a smaller residual, count as 0.
ULPS = 4 * float(np.finfo(float).eps)

Elementwise = Callable[[Array], Array]


class Inverse(NamedTuple):
    """q with g(q) ≈ z, and `excess` ≥ (z − g(q))(s − q) for the s that solves g(s) = z; ∞ where no bound is known.

    For a convex ℓ with ℓ′ = g, ℓ(s) ≥ ℓ(q) + g(q)(s − q) gives ℓ*(z) ≤ zq − ℓ(q) + excess. The supremum of zs − ℓ(s)
    is attained between q and any point at which g is on the other side of z (or the end of the domain), which bounds
    |s − q|.
    """

    q: Array
    excess: Array


def attained(g: Elementwise, slope: Elementwise, z: Array, start: Array, ends: tuple[float, float]) -> Inverse:
    """Solve g(q) = z by Newton's method from `start` (inside of the ends), kept inside of an interval with the root.

    A Newton step that leaves the interval, or follows one that did not halve the residual, is replaced by a bisection.
    Towards an infinite end steps have length `reach`, which doubles with each replaced step.
    """
    q, low, high = start.copy(), np.full(len(z), ends[0]), np.full(len(z), ends[1])
    reach = np.maximum(np.abs(q), 1.0)
    before = np.full(len(z), np.inf)
    for _ in range(STEPS):
        rest = _rest(g, z, q, start)
        low, high = np.where(rest >= 0, q, low), np.where(rest <= 0, q, high)
        width, steep = high - low, slope(q)
        with np.errstate(invalid="ignore"):
            tight = np.abs(rest) <= ULPS * (np.abs(z) + np.nan_to_num(steep) * np.abs(q))
            tight |= np.isfinite(width) & (width <= ULPS * np.abs(low + high))
        if tight.all():
            break
        with np.errstate(all="ignore"):
            newton = q + rest / steep
            middle = np.where(np.isinf(low), high - reach, np.where(np.isinf(high), low + reach, 0.5 * (low + high)))
            slow = np.abs(rest) > 0.5 * before
            good = (newton > low) & (newton < high) & (np.abs(newton - q) <= reach) & ~slow
            before = np.where(good, np.abs(rest), np.inf)  # Newton is tried after a bisection
            reach = np.where(good, reach, 2 * reach)
            q = np.where(tight, q, np.where(good, newton, middle))
    return Inverse(q, _excess(g, slope, z, q, (low, high), start))


def _rest(g: Elementwise, z: Array, q: Array, start: Array) -> Array:
    """z − g(q). A NaN by overflow becomes the limit of an increasing g: −∞ to the right of `start`, ∞ to its left."""
    with np.errstate(invalid="ignore"):
        rest = z - g(q)
    return np.where(np.isnan(rest), np.copysign(np.inf, start - q), rest)


def _excess(  # noqa: PLR0917
    g: Elementwise, slope: Elementwise, z: Array, q: Array, between: tuple[Array, Array], start: Array
) -> Array:
    """|z − g(q)| times the distance to a point on the other side of the root, searched by doubling if unknown."""
    rest = _rest(g, z, q, start)
    other = np.where(rest > 0, between[1], between[0])
    with np.errstate(all="ignore"):
        newton = 2 * np.abs(rest) / slope(q)
    step = np.maximum(np.where(np.isfinite(newton), newton, 0.0), ULPS * np.maximum(np.abs(q), 1.0))
    for _ in range(STEPS):
        unknown = np.isinf(other) & (rest != 0)
        if not unknown.any():
            break
        trial = np.where(unknown, q + np.copysign(step, rest), q)
        crossed = unknown & (_rest(g, z, trial, start) * rest <= 0)
        other, step = np.where(crossed, trial, other), 2 * step
    with np.errstate(invalid="ignore"):
        return np.where(rest == 0, 0.0, np.abs(rest) * np.abs(other - q))
