"""Semismooth Newton steps for convex functions of s = Cx whose gradient is piecewise smooth."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kernelopt.solvers.newton_systems import Systems
from kernelopt.solvers.structured import Structured
from kernelopt.support.types import Array

ARMIJO = 1e-4  # ratio of the actual decrease to that by the slope, at least (Nocedal and Wright 2006, 3.1)
TRIALS = 40  # lengths that a line search tries: bisection by then reaches 2⁻⁴⁰ ≈ 1e-12, where rounding decides
# Least diagonal entry of the system for a column of y, relative to its value with all rows curved. Without it, steps of
# y have no bound where no row is curved; larger values shorten good steps.
LEAST_WEIGHT = 1e-3


class Values(NamedTuple):
    """A function of s at one point: its value, gradient and curvature, entry by entry.

    moved : the proximal term Σ(a − a₀)²/2σⱼ, which the value contains with a minus
    """

    value: float
    gradient: Array
    curvature: Array
    moved: float


Function = Callable[[Array], Values]


class InnerIterate(NamedTuple):
    """x, s = Cx, the function's values there, the gradient in x, and the squared Newton decrement of the last step."""

    x: Array
    s: Array
    at: Values
    gradient: Array
    decrement: float


def begin(problem: Structured, function: Function, x: Array, s: Array) -> InnerIterate:
    at = function(s)
    return InnerIterate(x, s, at, _gradient(problem, x, at), np.inf)


def step(
    problem: Structured, function: Function, here: InnerIterate, full_weight: float, systems: Systems
) -> InnerIterate | None:
    """One damped Newton step on ½xᵀRx + gᵀx + function(Cx); None where rounding prevents a decrease.

    The objective never increases (Armijo's rule), except for rounding. `full_weight` is the largest curvature of a row.
    """
    ridge = _ridge(problem, here.at.curvature, full_weight)
    dx = -systems.solve(here.at.curvature, ridge, here.gradient)
    descent = float(here.gradient @ dx)
    if not descent < 0:
        return None
    ds = problem.products(dx)
    q1 = float((problem.penalty * here.x + problem.linear) @ dx)
    q2 = float(problem.penalty @ dx**2)
    # The quadratic part of the rise is a polynomial in t: a difference of values would lose small decreases.
    t, low, high = 1.0, 0.0, np.inf
    for _ in range(TRIALS):
        s = here.s + t * ds
        at = function(s)
        rise = q1 * t + 0.5 * q2 * t**2 + at.value - here.at.value
        slope = q1 + q2 * t + float(at.gradient @ ds) if np.isfinite(at.value) else np.inf
        noise = 1e-15 * (abs(at.value) + abs(here.at.value)) if np.isfinite(at.value) else 0.0
        # The strong Wolfe conditions, but for rounding: at a slope that is still steep, another length gains more.
        if rise <= ARMIJO * t * descent + noise and abs(slope) <= 0.9 * abs(descent) + noise:
            x = here.x + t * dx
            return InnerIterate(x, s, at, _gradient(problem, x, at), -descent)
        if slope < 0 and rise <= ARMIJO * t * descent + noise:
            low = t
            t = 2 * t if np.isinf(high) else 0.5 * (low + high)
        else:
            high = t
            secant = t * descent / (descent - slope) if np.isfinite(slope) and slope > descent and low == 0 else 0.0
            t = max(secant, 0.1 * t) if low == 0 else 0.5 * (low + high)
    return None


def _gradient(problem: Structured, x: Array, at: Values) -> Array:
    return problem.penalty * x + problem.linear + problem.adjoint(at.gradient)


def _ridge(problem: Structured, curvature: Array, full_weight: float) -> Array:
    """The diagonal added for y, which keeps its steps moderate where few rows are curved."""
    if not problem.q:
        return np.zeros(0)
    squares = problem.F**2
    return np.maximum(LEAST_WEIGHT * full_weight * squares.sum(axis=0) - curvature @ squares, 0.0)
