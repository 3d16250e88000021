"""Semismooth Newton steps on an augmented Lagrangian, from coarse to fine restrictions of θ.

With σ > 0 and multipliers a₀ of the kinks, minimize over x

    ½xᵀRx + gᵀx + Σhᵢ(sᵢ) + Σⱼ sup {a(sⱼ − anchorⱼ) − ½ρⱼa² − (a − a₀ⱼ)²/2σ : lowⱼ ≤ a ≤ highⱼ},

where each kink has a σⱼ of its own, in inverse proportion to how far sⱼ moves with aⱼ. The suprema are attained at
a = clip((a₀ + σk)/(1 + σρ)) with k = s − anchor, which are the next multipliers (Rockafellar, 1976; Li, Sun and Toh,
SIAM J. Optim. 2018). Where every ρ > 0 the objective is differentiable by itself: σ = ∞, and the method is Newton's.
Only rows with a inside of its box have curvature, so that systems are small. The columns of B are nested: a solution
for the first of them, padded with zeros, starts the next rank.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import inf, isfinite, isinf
from typing import NamedTuple

import numpy as np

from kernelopt.solvers import active_set, libsvm, proximal_point, semismooth
from kernelopt.solvers.assemble import Shape
from kernelopt.solvers.dual_point import Point, judged
from kernelopt.solvers.engine import Engine, needs_convexity
from kernelopt.solvers.newton_systems import Known, Systems
from kernelopt.solvers.semismooth import Function, Values
from kernelopt.solvers.structured import Structured
from kernelopt.solvers.watch import Watch
from kernelopt.support.clock import OutOfTimeError
from kernelopt.support.types import Array

# Columns of B of the coarse problems. A Newton system takes about N r² flops, so that each rank costs a tenth of the
# next.
RANKS = (100, 300, 800)
# Share of the full rank up to which a coarser rank is used. At 0.6 its systems cost a third of the full ones; closer
# ranks would save little at the full rank.
NEXT = 0.6
# Newton steps per inner problem. If they do not suffice, σ is too large: more steps find that out later, fewer give up
# on problems that would converge.
STEPS = 30
# Kinks that are farther from their anchors than CLEAR, relatively, count as clearly on one side. Where more than a
# share of OTHERS is on another side than multipliers of the last problem say, it was no neighbour, as with other
# labels; where more than WRONG is at libsvm's point, too many rows were left out.
CLEAR, OTHERS, WRONG = 0.1, 0.15, 0.01
MOST_FAILURES = 4  # in turn, of active sets from neighbours: after 8 problems at most they are tried again
# Consecutive updates that lower the merit by less than a tenth, or that fail for their σ, before the method gives up.
# More of them waste time before the interior point takes over.
FLAT = 12
# Flops that all ranks together may take, in units of a full-rank system with all rows active: about twice the systems
# that the interior point method needs, so that trying this method first costs little.
BUDGET = 40.0
# The first σ of a rank or of the next problem, relative to the last σ before it: the multipliers are near their values
# then, but a large σ at once would make the inner problem as hard as the last one was.
BACK = 0.02
# σ is multiplied by GROWTH after an update that leaves more than the fraction FAST of the gap. Faster growth makes
# inner problems harder, slower growth takes more updates.
GROWTH, FAST = 2.0, 0.2
SHRINK = 16.0  # divisor of σ after an inner problem that is not solved within STEPS: undoes four doublings
LARGEST = 1e6  # relative to the first σ: weights beyond it make the systems ill-conditioned
# Accuracy of inner problems, relative to the gap that is left and to the proximal term. More accurate ones would spend
# Newton steps on multipliers that the next update changes.
SHARE = 0.1


NOT_SMOOTH = "needs a differentiable objective and no constraints"


class KeptPenalty(NamedTuple):
    """What helps the next problem.

    sigma : the last σ; known : a system that was factored; failures : how often in turn active sets did not get from
    one problem's solution to the next one's; wait : problems for which they are not tried from there
    """

    sigma: float = 0.0
    known: Known | None = None
    failures: int = 0
    wait: int = 0


class AugmentedLagrangian(Engine):
    """Semismooth Newton steps, whose systems have the size of the active set."""

    in_rows = True

    def lacks(self, shape: Shape) -> str | None:
        return needs_convexity(shape)

    def solve(self, problem: Structured, watch: Watch, start: Point | None = None) -> Point:
        return solve(problem, watch, start)


class Newton(Engine):
    """Newton's method, from coarse factors to fine ones."""

    sparse = True
    to_rounding = True
    free_columns = True

    def lacks(self, shape: Shape) -> str | None:
        if shape.kinked:
            return NOT_SMOOTH
        return needs_convexity(shape)

    def solve(self, problem: Structured, watch: Watch, start: Point | None = None) -> Point:
        return newton(problem, watch, start)


def solve(problem: Structured, watch: Watch, start: Point | None = None) -> Point:
    """The best point found; the watch decides when it is good enough.

    Where entries of K are at hand, active sets and libsvm's point are tried first.
    """
    kept, first, found = _kept(start), None, None
    near = start if start is not None and _on_other_sides(problem, start) <= OTHERS else None
    if not problem.smooth and problem.kernel_space is not None:
        found, first, kept = _in_kernel_space(problem, watch, near, kept)
    elif near is not None and watch.enough >= libsvm.TOL / 2:
        found, kept = _from_few_rows(problem, watch, near, kept)
    if found is not None:
        return replace(found, kept=kept)
    if not problem.orthonormal:
        finer = _from_finer_points(problem, watch) if first is not None else None
        return replace(finer or proximal_point.solve(problem, watch, start), kept=kept)
    if start is None and first is not None:
        start = libsvm.completed(problem, first)
    found = _coarse_to_fine(problem, watch, start, problem.sigma, watch.flops + BUDGET * problem.cost(problem.m))
    return replace(found, kept=_kept(found)._replace(failures=kept.failures, wait=kept.wait))


def _in_kernel_space(
    problem: Structured, watch: Watch, near: Point | None, kept: KeptPenalty
) -> tuple[Point | None, Point | None, KeptPenalty]:
    """The answer that active sets find from the solution of a neighbouring problem, or from libsvm's point, which is
    the second. Where they failed from neighbours, the next 1, 2, 4, … problems begin with libsvm's point."""
    if kept.wait:
        kept = kept._replace(wait=kept.wait - 1)
        found, first = _by_libsvm(problem, watch, near)
        if found is not None or first is not None:
            return found, first, kept
    if near is not None:
        found = active_set.solve(problem, watch, near)
        if found is not None:
            return found, None, kept._replace(failures=0, wait=0)
        kept = _failed(kept)
    found, first = _by_libsvm(problem, watch, near)
    return found, first, kept


def _failed(kept: KeptPenalty) -> KeptPenalty:
    failures = min(kept.failures + 1, MOST_FAILURES)
    return kept._replace(failures=failures, wait=2 ** (failures - 1))


def _on_other_sides(problem: Structured, point: Point) -> float:
    """The share of kinks that are clearly on another side than their multipliers."""
    k, width = point.s[problem.of] - problem.anchor, problem.high - problem.low
    with np.errstate(invalid="ignore"):
        at = np.where(k > 0, problem.high, problem.low)
        other = (np.abs(point.a - at) > 0.5 * width) & (np.abs(k) > CLEAR * np.abs(problem.anchor))
    return float(np.sum(other)) / max(len(k), 1)


def _by_libsvm(problem: Structured, watch: Watch, start: Point | None) -> tuple[Point | None, Point | None]:
    """The answer from libsvm's point, where there is one, and that point: first without rows that a neighbour leaves
    out."""
    first = None
    for near in (start, None) if start is not None else (None,):
        first = libsvm.first_point(problem, watch.left, near=near)
        if first is None or (near is not None and _on_other_sides(problem, first) > WRONG):
            continue
        found = _from_libsvm(problem, watch, first)
        if found is not None:
            return found, first
    return None, first


def _from_few_rows(
    problem: Structured, watch: Watch, near: Point, kept: KeptPenalty
) -> tuple[Point | None, KeptPenalty]:
    """Libsvm's answer for the rows that a neighbour leaves open, where it will do; for a B of few columns."""
    if kept.wait:
        return None, kept._replace(wait=kept.wait - 1)
    first = libsvm.first_point(problem, watch.left, near=near)
    if first is None:  # too many rows are open, as a rule, which takes no time to see
        return None, kept
    if _on_other_sides(problem, first) <= WRONG:
        found = libsvm.completed(problem, first)
        if watch.suffices(found):
            return found, kept._replace(failures=0)
    return None, _failed(kept)


def _from_finer_points(problem: Structured, watch: Watch) -> Point | None:
    """The same from libsvm's points at finer tolerances."""
    for tol in libsvm.FINER:
        first = libsvm.first_point(problem, watch.left, tol)
        found = None if first is None else _from_libsvm(problem, watch, first, tol)
        if found is not None:
            return found
    return None


def _from_libsvm(problem: Structured, watch: Watch, first: Point, tol: float = libsvm.TOL) -> Point | None:
    """Libsvm's point where it will do, else the one that active sets find from there; None where they do not."""
    if watch.enough >= tol / 2:
        whole = libsvm.completed(problem, first)
        if watch.suffices(whole):
            return whole
    return active_set.solve(problem, watch, first, fits=True)


def newton(problem: Structured, watch: Watch, start: Point | None = None) -> Point:
    """The same for σ = ∞: every ρ must be positive."""
    return _coarse_to_fine(problem, watch, start, inf, inf)


def _coarse_to_fine(problem: Structured, watch: Watch, start: Point | None, sigma: float, budget: float) -> Point:
    full = problem.rank
    has_coarse = problem.origin is None or problem.truncated(0).origin is not None
    ranks = [k for k in RANKS if k < NEXT * full] if start is None and has_coarse else []
    parts = [*(problem.truncated(k) for k in ranks), problem]
    point, systems = _started(parts[0], start), Systems(parts[0], watch, _kept(start).known)
    for part, finer in pairwise(parts):
        point = _at_rank(part, systems, point, sigma, budget, coarse=True)
        x = part.lifted(point.x, finer)
        if point.stopped is not None:
            x = part.lifted(point.x, problem)
            here = judged(problem, x, point.s, point.a, point.slopes)
            return replace(here, stopped=point.stopped)
        point, systems = replace(point, x=x), Systems(finer, watch, systems.known)
    return _at_rank(problem, systems, point, sigma, budget, coarse=False)


def _kept(start: Point | None) -> KeptPenalty:
    return start.kept if start is not None and isinstance(start.kept, KeptPenalty) else KeptPenalty()


def _started(problem: Structured, start: Point | None) -> Point:
    if start is not None:
        return start
    x, a = problem.first, _middle(problem)
    s = problem.products(x)
    return Point(x, s, a, problem.smooth_gradient(s), inf, 0.0, inf, inf)


def _at_rank(  # noqa: PLR0917
    problem: Structured, systems: Systems, start: Point, sigma: float, budget: float, coarse: bool
) -> Point:
    """The method at one rank."""
    watch, x, a, rank = systems.watch, start.x, start.a, problem.rank
    s = problem.products(x)
    largest, flat = sigma * LARGEST, 0
    if isfinite(sigma):
        sigma = max(sigma, BACK * _kept(start).sigma)
    best = point = first = judged(problem, x, s, a, problem.smooth_gradient(s))
    here: semismooth.InnerIterate | None = None
    try:
        while not watch(best, rank, coarse) and watch.flops < budget and flat < FLAT:
            known = None if isfinite(sigma) else here  # for σ = ∞ the function does not depend on multipliers
            here, steps = _minimized(problem, (x, s, a), sigma, SHARE * best.gap, systems, known)
            x, s = here.x, here.s
            if steps == STEPS and isfinite(sigma):  # too hard for this σ: x stays, multipliers are not updated
                sigma, flat = sigma / SHRINK, flat + 1
                continue
            a = next_multipliers(problem, a, sigma, s)
            before, point = point.gap, judged(problem, x, s, a, problem.smooth_gradient(s), here.gradient)
            # For σ = ∞ nothing is violated: a gap that falls is progress, even where ½xᵀRx falls faster, as after a
            # start from a much weaker penalty.
            unit = max(point.unit, best.unit)
            now, least = (m.gap if isinf(sigma) else watch.merit(m, unit) for m in (point, best))
            flat = 0 if now < 0.9 * least else flat + 1
            # The first point is replaced in any case: a multiplier of 0 hides the cost of a violation.
            best = point if now < least or best is first else best
            if steps == 0 or (not isfinite(sigma) and flat):
                break
            if isfinite(sigma) and not point.gap < FAST * before:
                sigma = min(GROWTH * sigma, largest)
    except (OutOfTimeError, KeyboardInterrupt) as stop:
        return replace(best, stopped=stop)
    return replace(best, kept=KeptPenalty(sigma, systems.known))


def _minimized(  # noqa: PLR0917
    problem: Structured, start: tuple[Array, Array, Array], sigma: float, goal: float, systems: Systems,
    known: semismooth.InnerIterate | None,
) -> tuple[semismooth.InnerIterate, int]:  # fmt: skip
    """Newton steps on an inner problem, from `start` = (x, s, a₀), and their number.

    They end where `_inexactness` is below the goal, or below SHARE of the proximal term Σ(a − a₀)²/2σⱼ, and at the
    deadline: the steps made so far count.
    """
    x, s, a = start
    function = smoothed(problem, a, sigma)
    here = known or semismooth.begin(problem, function, x, s)
    full = sigma if isfinite(sigma) else float(np.max(1 / problem.rho, initial=0.0))
    for number in range(1, STEPS + 1):
        try:
            found = semismooth.step(problem, function, here, full, systems)
        except OutOfTimeError:
            return here, number - 1
        if found is None:
            return here, number - 1
        here = found
        if _inexactness(problem, here.gradient) <= max(goal, SHARE * here.at.moved) or systems.watch.is_over:
            break
    return here, number


def next_multipliers(problem: Structured, a: Array, sigma: float, s: Array) -> Array:
    """clip((a + σk)/(1 + σρ)); clip(k/ρ) for σ = ∞."""
    k = s[problem.of] - problem.anchor
    if isfinite(sigma):
        sigmas = sigma * problem.steps
        moved = (a + sigmas * k) / (1 + sigmas * problem.rho)
    else:
        moved = k / problem.rho
    return np.clip(moved, problem.low, problem.high)


def smoothed(problem: Structured, a0: Array, sigma: float) -> Function:
    """The sum of all smooth functions and of the suprema of the module's formula, as a function of s."""
    sigmas = sigma * problem.steps if isfinite(sigma) else np.full(len(a0), inf)
    weight = sigmas / (1 + sigmas * problem.rho) if isfinite(sigma) else 1 / problem.rho
    distance = 1 / (2 * sigmas)

    def function(s: Array) -> Values:
        k = s[problem.of] - problem.anchor
        a = next_multipliers(problem, a0, sigma, s)
        moved = float(distance @ (a - a0) ** 2)
        value = float(a @ k - 0.5 * problem.rho @ a**2) - moved + problem.smooth_value(s)
        inside = (a > problem.low) & (a < problem.high)
        gradient = problem.of_kinks(a) + problem.smooth_gradient(s)
        curvature = problem.of_kinks(np.where(inside, weight, 0.0)) + problem.smooth_curvature(s)
        return Values(value, gradient, curvature, moved)

    return function


def _middle(problem: Structured) -> Array:
    # The multipliers of a cold start: the middle of each box, or the point nearest to 0 where it has no two ends.
    both = np.isfinite(problem.low) & np.isfinite(problem.high)
    with np.errstate(invalid="ignore"):
        return np.where(both, 0.5 * (problem.low + problem.high), np.clip(0.0, problem.low, problem.high))


def _inexactness(problem: Structured, gradient: Array) -> float:
    """½‖gradient_v‖²/R: the loss in the dual value where the gradient does not vanish."""
    v = gradient[: problem.ends[-1]]
    return 0.5 * float(np.sum(v**2 / problem.penalty[: problem.ends[-1]]))
