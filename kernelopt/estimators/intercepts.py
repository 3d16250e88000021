"""The intercept where several are optimal: the midpoint of their interval, as libsvm's.

For fixed θ, Σᵢ wᵢℓᵢ(uᵢ + b) is piecewise linear in b for the losses here. With knots k₁ ≤ k₂ ≤ … and jumps of the slope
there, the optimal b are an interval where the slope between two knots is 0, and else a single knot.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernelopt.support.types import Array

# Relative to the sum of all jumps: a slope up to this is 0, as of a level τ where τN is an integer but for rounding.
LEVEL = 1e-12


class KnotSlopes(NamedTuple):
    """The slope of a loss of b by its knots: before the first knot, and the jump at each."""

    first: float
    knots: Array
    jumps: Array


def of_hinge(y: Array, u: Array, w: Array) -> KnotSlopes:
    """Σ wᵢ max(0, 1 − yᵢ(uᵢ + b)) with y = ±1."""
    return KnotSlopes(-float(w[y > 0].sum()), y - u, w)


def of_level(y: Array, u: Array, w: Array, tau: float) -> KnotSlopes:
    """Σ wᵢ max(τrᵢ, (τ − 1)rᵢ), rᵢ = yᵢ − uᵢ − b; half of the absolute error for τ = ½."""
    return KnotSlopes(-tau * float(w.sum()), y - u, w)


def of_tube(y: Array, u: Array, w: Array, epsilon: float) -> KnotSlopes:
    """Σ wᵢ max(0, |yᵢ − uᵢ − b| − ε)."""
    r = y - u
    return KnotSlopes(-float(w.sum()), np.concatenate([r - epsilon, r + epsilon]), np.concatenate([w, w]))


def midpoint(slopes: KnotSlopes) -> float | None:
    """The midpoint of the interval of optimal b; None for a single one."""
    order = np.argsort(slopes.knots)
    knots, after = slopes.knots[order], slopes.first + np.cumsum(slopes.jumps[order])
    level = np.flatnonzero(np.abs(after[:-1]) <= LEVEL * float(slopes.jumps.sum()))
    return (float(knots[level[0]]) + float(knots[level[-1] + 1])) / 2 if len(level) else None
