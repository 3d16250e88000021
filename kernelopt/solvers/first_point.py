"""A starting point at which the smooth functions are finite."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isfinite

import numpy as np

from kernelopt.compiler.terms import Curved, LogSumExp
from kernelopt.errors import SolverError
from kernelopt.pieces.elementary import NegativeLogComplement
from kernelopt.solvers import augmented_lagrangian
from kernelopt.solvers.structured import Structured
from kernelopt.solvers.watch import Watch
from kernelopt.support.types import Array

INSIDE = 0.25  # relative to a bounded domain's width: distance from its ends, where slopes are moderate
# Penalties W of squared distances, in units of the penalty of ‖v‖². The first of them that suffices gives the smallest
# v; beyond 1e12, the penalty of v would be lost in rounding.
STIFF = 10.0 ** np.arange(2, 13, 2)


def with_origin(problem: Structured, watch: Watch) -> Structured:
    """The problem; where s = 0 is outside of a domain, with an `origin` inside of all domains.

    That point minimizes ½‖v‖² + ½W·dist²(s, a smaller domain), for the first of a series of growing W at which s is
    inside.

    Raises SolverError where no such point is found.
    """
    if _is_inside(problem, np.zeros(problem.m)):
        return problem
    low, high = np.full(problem.m, -inf), np.full(problem.m, inf)
    for h in problem.smooth:
        low[h.at], high[h.at] = _interval(h)
    below, above = np.flatnonzero(np.isfinite(low)), np.flatnonzero(np.isfinite(high))
    size = np.concatenate([np.zeros(len(below)), np.full(len(above), inf)])
    nothing = replace(
        problem, R=np.ones(len(problem.R)), smooth=(), constant=0.0,
        linear_d=np.zeros_like(problem.linear_d), linear_y=np.zeros_like(problem.linear_y), slope=np.zeros(problem.m),
        of=np.concatenate([below, above]), anchor=np.concatenate([low[below], high[above]]),
        low=np.where(size == 0, -inf, 0.0), high=size,
    )  # fmt: skip
    for part in (nothing.truncated(0), nothing) if problem.q else (nothing,):  # with θ = 0 at first
        for stiffness in STIFF:
            trial = replace(part, rho=np.full(len(nothing.of), 1 / stiffness))
            x = part.lifted(
                augmented_lagrangian.newton(trial, replace(watch, verbose=False, bar=False, systems=0)).x, problem
            )
            if _is_inside(problem, problem.products(x)):
                return replace(problem, origin=x)
    raise SolverError(
        "Found no θ for which the arguments of all losses are inside of their domains. Add an intercept, or state "
        "constraints that keep them there."
    )


def _is_inside(problem: Structured, s: Array) -> bool:
    """Whether values and slopes are finite."""
    return isfinite(problem.smooth_value(s)) and bool(np.isfinite(problem.smooth_gradient(s)).all())


def _interval(h: Curved) -> tuple[Array, Array]:
    """An interval of s well inside of the domain: by 1 in the argument rate·s + shift where that is a half-line, or
    by 1 over all n arguments together for −log(1 − e^q)."""
    if isinstance(h, LogSumExp):
        return np.full(len(h.at), -inf), np.full(len(h.at), inf)
    low, high = h.family.inside
    width = INSIDE * (high - low) if isfinite(low) and isfinite(high) else 1.0
    if isinstance(h.family, NegativeLogComplement):
        width = 1 / len(h.at)  # such arguments are differences of a chain: all of it is about 1 long
    ends = (low + width - h.shift) / h.rate, (high - width - h.shift) / h.rate
    return np.minimum(*ends), np.maximum(*ends)
