"""Levenberg and Marquardt's damped Newton steps on differentiable functions that need not be convex.

With H the Hessian and D a fixed diagonal metric, steps solve (H + μD)dx = −gradient. The damping μ rises by a factor
until the matrix is positive definite and the objective decreases, and falls after steps that decrease it as predicted
(Marquardt, 1963; Nocedal and Wright, 2006, chapters 4 and 10). Where the gradient vanishes and H has a negative
eigenvalue, the step is along its eigenvector. The objective never increases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, isfinite

import numpy as np
import scipy.linalg as sl

from kernelopt.solvers import augmented_lagrangian
from kernelopt.solvers.assemble import Shape
from kernelopt.solvers.dual_point import Point
from kernelopt.solvers.engine import Engine
from kernelopt.solvers.semismooth import Values
from kernelopt.solvers.structured import Structured
from kernelopt.solvers.watch import Watch
from kernelopt.support.clock import OutOfTimeError
from kernelopt.support.types import Array

STEPS = 1000  # steps at most, far more than usual; then the last point is returned, whatever its gradient
# Smallest and largest damping μ besides 0, relative to the metric D. Below LEAST, steps are Newton's; at LARGEST they
# are as short as rounding, so that no larger damping helps.
LEAST, LARGEST = 1e-6, 1e14
FACTOR = 4.0  # ratio of successive μ: larger ones overshoot the best damping, smaller ones factor more matrices
# Ratios of the actual to the predicted decrease: μ falls from GOOD on, and rises below POOR (Nocedal and Wright, 2006,
# algorithm 4.1).
GOOD, POOR = 0.75, 0.25
# Relative to the metric D: an eigenvalue of H above −FLAT does not count as negative curvature, as it may be rounding,
# and its direction gains little.
FLAT = 1e-6
HALVINGS = 40  # halvings of a step along negative curvature: down to 2⁻⁴⁰ ≈ 1e-12 of it


@dataclass(frozen=True)
class _Here:
    """x, s = Cx, the objective there, its derivatives in s, and its gradient in x."""

    x: Array
    s: Array
    total: float
    at: Values
    gradient: Array


class LevenbergMarquardt(Engine):
    """Damped Newton steps to a local optimum, and down directions of negative curvature."""

    def lacks(self, shape: Shape) -> str | None:
        if shape.nonconvex is None:
            return "is for losses that are declared nonconvex"
        if shape.odd is not None:
            return "needs multiples of ‖θ‖² with a nonconvex loss; a norm is penalized in another way, or bounded"
        if shape.shifted:
            return "needs ‖θ‖ itself with a nonconvex loss, not ‖θ − f₀‖"
        if shape.kinked:
            return "needs a differentiable objective and no constraints with a nonconvex loss"
        return None

    def solve(self, problem: Structured, watch: Watch, start: Point | None = None) -> Point:
        return solve(problem, watch, start)


def solve(problem: Structured, watch: Watch, start: Point | None = None) -> Point:
    """A point with a small gradient and without negative curvature, or the last one when the search is ended early.

    Its `gap` is the decrease that a step in the metric D predicts, ½‖gradient‖² in D⁻¹; it is no bound.
    """
    rank = problem.rank
    here = _evaluated(problem, problem.first if start is None else start.x)
    metric, damping = _metric(problem, here.at), LEAST
    H = _hessian(problem, here)
    try:
        for _ in range(STEPS):
            moved = None
            if not watch(_point(problem, here, metric), rank):
                moved, damping = _damped(problem, here, H, metric, damping)
                watch.systems += 1
            if moved is None:
                moved = _downwards(problem, here, H, metric)
                if moved is None:
                    break
            here, H = moved, _hessian(problem, moved)
    except (OutOfTimeError, KeyboardInterrupt) as stop:
        return replace(_point(problem, here, metric), stopped=stop)
    return _point(problem, here, metric)


def smallest_curvature(problem: Structured, x: Array) -> float:
    """The smallest eigenvalue of D^(−½) H D^(−½), where D is the penalty for θ, and Fᵀ|curvature|F's diagonal for y.

    It is ∞ for a problem without unknowns.
    """
    here = _evaluated(problem, x)
    return _smallest(_hessian(problem, here), _metric(problem, here.at))[0]


def _evaluated(problem: Structured, x: Array) -> _Here:
    s = problem.products(x)
    at = augmented_lagrangian.smoothed(problem, np.zeros(len(problem.of)), inf)(s)
    total = problem.constant + problem.quadratic(x) + float(problem.linear @ x) + at.value
    gradient = problem.penalty * x + problem.linear + problem.adjoint(at.gradient)
    return _Here(x, s, total if isfinite(total) else inf, at, gradient)


def _metric(problem: Structured, at: Values) -> Array:
    """D: the diagonal of R for v, and the diagonal of Fᵀ|curvature|F for y."""
    D = problem.penalty.copy()
    if problem.q:
        sizes = np.abs(at.curvature) @ problem.F**2
        D[problem.ends[-1] :] = np.maximum(sizes, LEAST * max(float(sizes.max()), float(problem.R.max())))
    return D


def _hessian(problem: Structured, here: _Here) -> Array:
    H = problem.gram(here.at.curvature)
    H[np.diag_indices_from(H)] += problem.penalty
    return H


def _point(problem: Structured, here: _Here, metric: Array) -> Point:
    a = augmented_lagrangian.next_multipliers(problem, np.zeros(len(problem.of)), inf, here.s)
    slopes = problem.smooth_gradient(here.s)
    gap = 0.5 * float(np.sum(here.gradient**2 / metric))
    return Point(here.x, here.s, a, slopes, gap, problem.quadratic(here.x), 0.0, here.total)


def _damped(problem: Structured, here: _Here, H: Array, metric: Array, damping: float) -> tuple[_Here | None, float]:
    """A step that lowers the objective, and the damping for the next one; None where rounding prevents a decrease."""
    while damping <= LARGEST:
        damped = H.copy()
        damped[np.diag_indices_from(H)] += damping * metric
        try:
            factor = sl.cho_factor(damped, lower=True, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError:
            damping = max(FACTOR * damping, LEAST)
            continue
        dx = -sl.cho_solve(factor, here.gradient, check_finite=False)
        promised = -float(here.gradient @ dx + 0.5 * dx @ (H @ dx))
        moved = _evaluated(problem, here.x + dx)
        gained = here.total - moved.total
        if gained > 0:
            share = gained / promised if promised > 0 else 0.0
            if share >= GOOD:
                damping = damping / FACTOR if damping > LEAST else 0.0
            elif share < POOR:
                damping = max(FACTOR * damping, LEAST)
            return moved, damping
        damping = max(FACTOR * damping, LEAST)
    return None, LEAST


def _smallest(H: Array, metric: Array) -> tuple[float, Array]:
    """The smallest eigenvalue of D^(−½)HD^(−½), and D^(−½) times its eigenvector."""
    if not len(H):
        return inf, np.zeros(0)
    root = 1 / np.sqrt(metric)
    values, vectors = sl.eigh(root[:, None] * H * root, subset_by_index=[0, 0], check_finite=False)
    return float(values[0]), root * vectors[:, 0]


def _downwards(problem: Structured, here: _Here, H: Array, metric: Array) -> _Here | None:
    """The best point found along a direction of negative curvature; None where no such direction or point exists."""
    value, direction = _smallest(H, metric)
    if value >= -FLAT:
        return None
    direction = direction if float(here.gradient @ direction) <= 0 else -direction
    length = float(np.sqrt(np.sum(metric * here.x**2))) or 1.0
    best = None
    for _ in range(HALVINGS):
        moved = _evaluated(problem, here.x + length * direction)
        if moved.total < here.total and (best is None or moved.total < best.total):
            best = moved
        elif best is not None:
            return best
        length /= 2
    return best
