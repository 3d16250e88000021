"""A dual point of a structured problem, made feasible, and the gap that it proves."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.terms import LogSumExp
from kernelopt.solvers.dual_feasibility import corrected, room
from kernelopt.solvers.structured import Structured
from kernelopt.support.types import Array

# Newton steps in y for log-sum-exps, and halvings of each step. More of them cost time at every point that is judged,
# fewer leave a residual, so that the dual point proves less.
STEPS, HALVINGS = 20, 6
# Residual of the equations of y, relative to its terms, from which a dual point proves nothing. Below, what it costs is
# far less than any gap that is asked for; the certificate counts it in full.
LEFT = 1e-6


@dataclass(frozen=True, eq=False)
class Point:
    """x with s = Cx, kink multipliers a and slopes of the smooth functions, with their primal and dual values.

    primal : value of the reduced problem; gap : primal minus dual value, ∞ without a dual value; unit : ½xᵀRx, a lower
    bound of the improvement over θ = 0 at the optimum; violation : the largest of any constraint, in units of s;
    stopped : the exception that ended the search early; kept : data that the engine reuses when it starts from this
    point
    """

    x: Array
    s: Array
    a: Array
    slopes: Array
    gap: float
    unit: float
    violation: float
    primal: float
    stopped: BaseException | None = None
    kept: object = None

    @property
    def merit(self) -> float:
        """The quantity that iterations reduce: |gap|, or ∞ where it is not finite."""
        return abs(self.gap) if np.isfinite(self.gap) else np.inf

    def total(self, problem: Structured) -> Array:
        """The slope of each function of s, (m,)."""
        return problem.slope + problem.of_kinks(self.a) + self.slopes


def judged(  # noqa: PLR0917
    problem: Structured, x: Array, s: Array, a: Array, slopes: Array, gradient: Array | None = None
) -> Point:
    """The point with its gap, after a and slopes were moved to Fᵀ(slopes) + g_y = 0.

    `gradient` = Rx + g + Cᵀ(of_kinks(a) + slopes), where it is known.
    """
    if gradient is None:
        combined = problem.adjoint(problem.of_kinks(a) + slopes) + problem.linear
    else:
        combined = gradient - problem.penalty * x
    end = problem.ends[-1]
    if problem.q and problem.joint:
        before, slopes = slopes, _at_best_y(problem, s, a, slopes)
        combined = combined + problem.adjoint(slopes - before)
    left = 0.0
    if problem.q:
        moved, others, left = balanced(problem, a, slopes, combined[end:])
        combined = combined + problem.adjoint(problem.of_kinks(moved - a) + others - slopes)
        a, slopes = moved, others
    # f is ∞ at iterates that violate a constraint slightly. The primal value counts a violation at twice the price of
    # its multiplier instead; to first order, a repair costs that price once.
    k = s[problem.of] - problem.anchor
    hard = problem.rho == 0
    over = np.where(hard & np.isinf(problem.high), np.maximum(k, 0.0), 0.0)
    under = np.where(hard & np.isinf(problem.low), np.maximum(-k, 0.0), 0.0)
    violation = over + under
    with np.errstate(invalid="ignore"):
        kinks = np.where(violation > 0, 2 * np.abs(a) * violation, problem.kink_values(s))
    square = problem.quadratic(x)
    primal = problem.constant + square + problem.linear_value(x) + problem.smooth_value(s) + float(kinks.sum())
    dual = problem.dual_value(a, slopes, combined) if left <= LEFT else -inf
    return Point(x, s, a, slopes, primal - dual, square, float(violation.max(initial=0.0)), primal)


def _at_best_y(problem: Structured, s: Array, a: Array, slopes: Array) -> Array:
    """The slopes of the smooth functions at s + F·dy with Fᵀ(of_kinks(a) + slopes) + g_y = 0, as nearly as it gets.

    The slopes of a log-sum-exp add up to its weight, so that `balanced` can't move them one by one. A step in y keeps
    them slopes of some point.
    """
    fixed = problem.linear_y + problem.F.T @ (problem.slope + problem.of_kinks(a))
    residual = fixed + problem.F.T @ slopes
    F = sp.csr_array(problem.F)
    for _ in range(STEPS):
        curved = problem.smooth_curvature(s)
        busy = np.flatnonzero(curved)
        J = np.sqrt(curved[busy])[:, None] * F[busy].toarray()
        if not np.isfinite(J).all() or not np.isfinite(residual).all():
            break
        dy = _shortest(J, -residual)
        for _ in range(HALVINGS):
            trial = problem.smooth_gradient(s + problem.F @ dy)
            after = fixed + problem.F.T @ trial
            if np.linalg.norm(after) < np.linalg.norm(residual):
                break
            dy *= 0.5
        else:
            break
        s, slopes, residual = s + problem.F @ dy, trial, after
    return slopes


def _shortest(J: Array, right: Array) -> Array:
    """The shortest least-squares solution of JᵀJ·dy = right."""
    if len(J) >= J.shape[1]:
        return np.asarray(np.linalg.lstsq(J.T @ J, right, rcond=1e-12)[0])
    _, size, V = np.linalg.svd(J, full_matrices=False)
    kept = size**2 > 1e-12 * size.max(initial=0.0) ** 2
    return np.asarray(V[kept].T @ ((V[kept] @ right) / size[kept] ** 2))


def with_balance(problem: Structured, a: Array) -> Array:
    """Kink multipliers moved to Fᵀ(of_kinks(a)) + g_y = 0, for a problem without smooth functions."""
    residual = problem.linear_y + problem.F.T @ (problem.slope + problem.of_kinks(a))
    return balanced(problem, a, np.zeros(problem.m), residual)[0] if problem.q else a


def balanced(problem: Structured, a: Array, slopes: Array, residual: Array) -> tuple[Array, Array, float]:
    """(a, slopes) with Fᵀ(of_kinks(a) + slopes) + g_y = 0, and the residual that is left, relative to its terms.

    Each entry moves in proportion to its squared distance from the ends of its interval. Where all a are at ends, as
    with one label more of one class, none moves. Slopes of a log-sum-exp stay: steps in x remove what they leave, and
    the residual counts as 0.
    """
    alone = [h for h in problem.smooth if not isinstance(h, LogSumExp)]
    at = np.concatenate([np.arange(0), *(h.at for h in alone)]).astype(int)
    low, high = problem.low, problem.high
    for h in alone:
        ends = h.slopes()
        low, high = np.concatenate([low, ends[0]]), np.concatenate([high, ends[1]])
    z = np.concatenate([a, slopes[at]])
    parts = [problem.F[problem.of], problem.F[at]]
    F = sp.csr_array(sp.vstack(parts)) if sp.issparse(problem.F) else np.vstack(parts)
    target = F.T @ z - residual
    z, left = corrected(F, target, z, lambda z: np.clip(z, low, high), lambda z: room(z, low, high))
    moved = slopes.copy()
    moved[at] = z[len(a) :]
    return z[: len(a)], moved, left if len(alone) == len(problem.smooth) else 0.0
