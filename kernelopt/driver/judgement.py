"""What an answer is worth: moved into its constraints, certified for the full kernel, and given a status.

The certificate decides. A solver's claim counts only with integer variables, where no proof is possible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Any

import numpy as np

from kernelopt import certificate as certificates
from kernelopt.certificate import FULL, Certificate, Certified, Request
from kernelopt.certificate.report import Lower
from kernelopt.compiler import projection, representer, violations
from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.iterate import Iterate, place
from kernelopt.compiler.outer import Outer
from kernelopt.compiler.residuals import FEASIBLE, terms_of
from kernelopt.driver.diagnosis import Diagnosis, guides_of
from kernelopt.driver.mixed_integer import Rest
from kernelopt.driver.strategy import Outcome, Task, without_answer
from kernelopt.language.expressions import Theta
from kernelopt.results.solution import Solution, Status
from kernelopt.solvers import cvxpy_solvers
from kernelopt.support import clock
from kernelopt.support.cvxpy_parts import Inequality
from kernelopt.support.types import Array

# Most steps into the constraints. Each leaves a violation of second order, so that 1e-6 becomes about 1e-12 in one
# step; the others are a margin.
MOVES = 4
NEAR = 1e-3  # largest relative change of the value when a point is moved: with a larger one it is another answer
# Relative changes of v and y, in units of the violation, that are tried in turn to scale a point into its constraints:
# the least that suffices changes the value least.
STEPS = (2.0, 8.0, 32.0, 128.0, 512.0, 2048.0)
SHARE = 1e-2  # a moved point is taken for an optimum of 0 if its value is below this share of the one before
FINE = 1e-10  # a solver's tolerance for y beside θ = 0, well below the default tol of 1e-6
# Errors of predictions, relative to their size, above which predictions are recomputed from the kernel: as large as the
# default tol, they would decide whether the gap closes.
APART = 1e-6
# Share of the certified gap that the reduced problem's own gap has, from which the solver, and not the restriction of
# θ, is to blame: one half, since the shares add up.
INEXACT = 0.5
BEYOND = (1e-14, 1e-12, 1e-10)  # relative: by how much θ and y become longer where a value of 0 is short by rounding
NOTHING_LEFT = 1e-12  # in units of the objective's data: a value that may be 0
# In the same units: a value that solvers, accurate to 1e-8 of their own accord, may leave of an optimum of 0. Larger
# numbers search for a point of value 0 more often, in vain; smaller ones keep what a solver left.
LEFT = 1e-8
ROUNDED = 1e-14  # multipliers of predictions, in units of costs per prediction, that are rounding of 0
SLACK = 1e-9  # relative to the terms of a constraint: slacks up to this may be rounding
NOTHING = (Status.INFEASIBLE, Status.UNBOUNDED)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A feasible point, and what is known about it.

    gap : absolute, of the reduced problem; closed : whether it is small enough; limited : whether the solver stopped
    at a limit; claimed : the minimized value at the solver's own point, constants included
    """

    gap: float
    closed: bool
    limited: bool
    point: Iterate
    answer: cvxpy_solvers.Answer
    claimed: float = -inf


@dataclass(frozen=True, eq=False)
class Inverted:
    """A solution in terms of θ, its point, and whether the point is feasible."""

    solution: Solution
    point: Iterate
    is_feasible: bool


def judged(
    task: Task, best: Candidate, rest: Rest | None, diagnose: Callable[[], Diagnosis], known: Status | None
) -> Outcome:
    """The best point with its certificate, and the status that follows from it.

    rest : the problem with integers fixed; diagnose : finds out whether an answer exists, where the
    certificate leaves this open; known : a status that is known already
    """
    reduction, stopped = task.reduction, best.answer.interrupted
    try:
        afresh = _is_recomputed(task, best.point)
        inverted = _inverted(task, best.point, afresh)
    except KeyboardInterrupt:
        (solution, point), stopped = representer.invert(reduction, best.point), True
        inverted = Inverted(solution, point, _violation(task, point) <= FEASIBLE)
    if task.data is None:
        status, told = _without_proof(task, best, inverted, rest)
        solution = replace(inverted.solution, status=status, certificate=told)
        return _outcome(best, solution, inverted.point, may_grow=False)
    found, stopped = _certified(task, task.data, best.answer, inverted.point, stopped)
    closed = found.certificate.closes(task.goal.tol, task.goal.abs_tol)
    # A value of nearly 0 closes, and says less than 0.
    nearly = 0 < abs(_bare(task, inverted.point)) <= LEFT * task.data.units[1]
    better = towards_zero(task, task.data, found.certificate, inverted.point) if nearly or not closed else None
    if better is not None:
        solution, point = representer.invert(reduction, better, from_kernel=_is_recomputed(task, better))
        inverted = replace(inverted, solution=solution, point=point)
        found, stopped = _certified(task, task.data, best.answer, point, stopped, found.certificate.evidence)
    if certificates.AS_COMPUTED in found.certificate.rests_on:  # that bound is for predictions as exact sums
        solution, point = representer.invert(reduction, inverted.point, exactly=True)
        inverted = replace(inverted, solution=solution, point=point)
    for theta, function in inverted.solution.functions.items():
        function._distance = found.certificate.distance.get(theta)
    asked = Diagnosis if stopped else diagnose  # an answer that was interrupted is handed over at once
    outcome = _with_status(task, best, inverted, found.certificate, asked, known)
    if outcome.point is not None and outcome.point.duals:
        duals = _multipliers_within(reduction.form, outcome.point, found.certificate.absolute_gap)
        outcome = replace(outcome, point=replace(outcome.point, duals=duals))
    of_predictions = _with_exact_zeros(outcome.solution.duals, task.data)
    outcome = replace(outcome, solution=replace(outcome.solution, duals=of_predictions))
    guides = guides_of(reduction, found.own) if outcome.solution.certificate is not None else {}
    return replace(outcome, guides=guides, interrupted=stopped)


def _with_exact_zeros(duals: Mapping[Theta, Mapping[object, Array]], outer: Outer) -> dict[Theta, dict[object, Array]]:
    """The multipliers of predictions, 0 for a θ all of whose are rounding of 0: none of its rows counts, then."""
    sigma, kappa = outer.units
    least = ROUNDED * kappa / (outer.data_unit or sigma)
    found = {}
    for theta, known in duals.items():
        largest = max((float(np.abs(nu).max(initial=0.0)) for nu in known.values()), default=0.0)
        found[theta] = {name: np.zeros_like(nu) if largest <= least else nu for name, nu in known.items()}
    return found


def _multipliers_within(form: CanonicalForm, point: Iterate, gap: float) -> dict[int, tuple[Any, ...]]:
    """The multipliers of constraints, of inequalities at most gap/slack, where the slack is more than rounding.

    Multipliers that prove the gap have Σ multiplier·slack ≤ gap. Those of a solver may be others than these.
    """
    found = dict(point.duals)
    place(form, point)
    for constraint in form.outer.constraints:
        (dual,) = found.get(constraint.id, (None,)) if isinstance(constraint, Inequality) else (None,)
        if dual is None or not isfinite(gap):
            continue
        with np.errstate(all="ignore"):  # NaN at an end of a domain
            slack = np.nan_to_num(-np.asarray(constraint.expr.value, dtype=float))
            beyond = (slack > 0) & (np.asarray(dual) * slack > gap)
            if not beyond.any():
                continue
            beyond &= slack > SLACK * terms_of(constraint)
            found[constraint.id] = (np.where(beyond, np.minimum(dual, gap / slack), dual),)
    return found


def _outcome(best: Candidate, solution: Solution, point: Iterate, may_grow: bool) -> Outcome:
    answer = best.answer
    return Outcome(solution, (), answer.stats, may_grow, point, answer.left_off, answer.interrupted)


def _violation(task: Task, point: Iterate) -> float:
    return violations.violation(task.reduction, point, task.data_unit)


def _bare(task: Task, point: Iterate) -> float:
    """The minimized objective without constants."""
    return task.sign * representer.bare_value(task.reduction.form, point)


# ---------------------------------------------------------------- in terms of θ


def _is_recomputed(task: Task, point: Iterate) -> bool:
    """Whether predictions and norms are recomputed from kernel values.

    Bv and ‖v‖ may differ from them where B restricts θ, and where coefficients are large enough to magnify rounding.
    """
    factors = task.reduction.factors.values()
    if any(f.is_projected for f in factors) or task.goal.certify is not True:
        return False
    # A point with integers is moved into its constraints before.
    if task.is_continuous and (task.reduction.is_restriction or not all(f.is_exact for f in factors)):
        return True
    errors = certificates.errors_of_predictions(task.reduction, point)
    largest = max((float(e.max(initial=0.0)) for e in errors), default=0.0)
    return largest > APART * point.prediction_unit(task.data_unit)


def _inverted(task: Task, point: Iterate, afresh: bool) -> Inverted:
    """The solution at v, moved into constraints that it violates slightly."""
    reduction, data = task.reduction, task.data
    solution, point = representer.invert(reduction, point, from_kernel=afresh, evaluated=True)
    violation = _violation(task, point)
    if data is None:
        return Inverted(solution, point, violation <= FEASIBLE)
    for _ in range(MOVES):
        moved = projection.moved(reduction, data, point) if 0 < violation <= FEASIBLE else None
        if moved is None:
            break
        nearer, there = representer.invert(reduction, moved, from_kernel=afresh)
        left = _violation(task, there)
        if not left < violation or not _is_as_good(task, data, there, point):
            break
        solution, point, violation = nearer, there, left
    if projection.ROUNDING < violation <= FEASIBLE and not projection.is_rounding(reduction, data, point):
        return _scaled(task, data, Inverted(solution, point, True), violation, afresh)
    return Inverted(solution, point, violation <= FEASIBLE)


def _scaled(task: Task, data: Outer, found: Inverted, violation: float, afresh: bool) -> Inverted:
    """θ and y scaled by nearly 1 where this meets the constraints: margins need longer ones, bounds shorter ones."""
    for factor in (1 + s * n * violation for n in STEPS for s in (1.0, -1.0)):
        point = found.point
        scaled = _times(point, factor)
        nearer, there = representer.invert(task.reduction, scaled, from_kernel=afresh)
        if _violation(task, there) == 0 and _is_as_good(task, data, there, point):
            return replace(found, solution=nearer, point=there)
    return found


def _is_as_good(task: Task, data: Outer, new: Iterate, old: Iterate) -> bool:
    """Whether a point that was moved into the constraints has nearly the same value."""
    known = task.sign * (old.value - task.reduction.form.constant)
    size = abs(known - data.offset) + data.units[1]
    return isfinite(new.value) and abs(new.value - old.value) <= NEAR * size


# ---------------------------------------------------------------- at 0


def towards_zero(task: Task, data: Outer, found: Certificate, point: Iterate) -> Iterate | None:
    """θ = 0, or a point near the answer with a value of 0 to rounding, if it is better; None where neither is found."""
    zero = _zero_is_better(task, found, point)
    if zero is not None:
        return _at_zero(task, data, zero) or zero
    return _is_nearly_zero(task, data, found, point)


def _zero_is_better(task: Task, found: Certificate, point: Iterate) -> Iterate | None:
    """θ = 0 with the best y that is known, where its value is below the answer's; else None."""
    form, reduction, zero = task.reduction.form, task.reduction, (found.bare or found).at_zero
    value = _bare(task, point)
    # P₀ is a solver's: what it is above the answer's value by less than its tolerance may be no difference.
    if zero is None or task.data is None or task.sign * zero - value > FINE * task.data.units[1]:
        return None
    most = max(_violation(task, point), projection.ROUNDING)
    plain = representer.evaluate(reduction, replace(point, v=reduction.at_zero(point.y).v))
    bare = representer.evaluate(reduction, replace(plain, y=tuple(np.zeros(y.shape) for y in form.y)))
    seconds = task.goal.for_last_steps()
    # P₀ comes from a solver: where it is no better, the y of the answer may be, to the last digit.
    fills = task.sign * zero <= value and form.y and form.has_cones
    filled = cvxpy_solvers.fill_in(form, plain, FINE, seconds) if fills else None
    trials = [plain, bare] if filled is None else [representer.evaluate(reduction, filled), plain, bare]
    return next((there for there in trials if _bare(task, there) < value and _violation(task, there) <= most), None)


def _is_nearly_zero(task: Task, data: Outer, found: Certificate, point: Iterate) -> Iterate | None:
    """A point near the answer at which losses and penalties are 0 to rounding; None where none is found."""
    value, bare = _bare(task, point), found.bare or found
    zero = found.absolute_gap <= task.goal.tol * abs(value - task.sign * (bare.at_zero or 0.0))
    if not zero or not isfinite(found.absolute_gap):
        return None
    return _at_zero(task, data, point)


def _at_zero(task: Task, data: Outer, point: Iterate) -> Iterate | None:
    """The point, moved to where losses and penalties are 0 to rounding; None where that lowers its value by less than
    all but a small share."""
    reduction, value, start = task.reduction, _bare(task, point), point
    most = max(_violation(task, point), projection.ROUNDING)
    for _ in range(MOVES):
        moved = projection.towards_zero(reduction, data, point)
        if moved is None:
            break
        point = representer.evaluate(reduction, moved)
        near = _violation(task, point) <= most
        _, of_theta = representer.invert(reduction, point, from_kernel=True)
        if near and abs(_bare(task, of_theta)) < SHARE * value:
            return point
    for factor in (1 + step for step in BEYOND) if 0 < value <= NOTHING_LEFT * data.units[1] else ():
        longer = representer.evaluate(reduction, _times(start, factor))  # margins that are short by their rounding
        _, of_theta = representer.invert(reduction, longer, from_kernel=True)
        if _violation(task, longer) <= most and _bare(task, of_theta) == 0:
            return longer
    return None


def _times(point: Iterate, factor: float) -> Iterate:
    """θ and y times a number."""
    return replace(point, v=tuple(factor * v for v in point.v), y=tuple(factor * y for y in point.y))


# ---------------------------------------------------------------- certificate and status


def _certified(  # noqa: PLR0917
    task: Task, data: Outer, answer: cvxpy_solvers.Answer, point: Iterate, interrupted: bool, known: Lower | None = None
) -> tuple[Certified, bool]:
    """The certificate, and whether it was interrupted.

    After an interruption, or at the deadline, it is made without a pass over the kernel. A `known` lower bound counts
    beside that of the multipliers.
    """
    goal, reduction = task.goal, task.reduction
    known = known or goal.known
    products = goal.products and any(f.grows for f in reduction.factors.values())
    in_time = goal.seconds_left() > 0  # a search for better multipliers can take longer than the rest of the solve
    request = Request(goal.scope, goal.tol, goal.abs_tol, known, products, in_time, answer.rows)
    known, cheap = known if goal.certify is True else None, None
    if not interrupted:
        try:
            if in_time and isfinite(goal.deadline) and reduction.is_restriction and goal.scope == FULL:
                # The time may be over in the middle of the pass, which takes far longer.
                cheap = _without_pass(task, data, answer, point, known)
            with clock.limited(goal.deadline):
                return certificates.certified(reduction, data, point, request), False
        except (KeyboardInterrupt, clock.OutOfTimeError) as stop:
            interrupted = isinstance(stop, KeyboardInterrupt)
    return Certified(cheap or _without_pass(task, data, answer, point, known), None), interrupted


def _without_pass(
    task: Task, data: Outer, answer: cvxpy_solvers.Answer, point: Iterate, known: Lower | None
) -> Certificate:
    """What is known of the gap without a pass over the kernel, also where the time is over."""
    try:
        with clock.limited(clock.now() + task.goal.for_last_steps()):
            return certificates.certify_without_pass(task.reduction, data, point, known, answer.rows)
    except clock.OutOfTimeError:
        with clock.limited(clock.now() + task.goal.for_last_steps()):
            return certificates.without_lower_bound(task.reduction, data, point)


def _without_proof(
    task: Task, best: Candidate, found: Inverted, rest: Rest | None
) -> tuple[Status, Certificate | None]:
    """The status of an answer with integers, which rests on the solver's word, or without a requested certificate.

    The word is its claim and its bound; where it tells no bound, its own value stands for it.
    """
    told, trusted = None, False
    if rest is not None:
        bound = best.answer.bound if isfinite(best.answer.bound) else min(best.claimed, task.sign * found.point.value)
        told = rest.certificate(task, found.point, bound, best.answer.stats.solver_name)
        trusted = best.answer.status == Status.OPTIMAL and not representer.may_lack(task.reduction, found.point)
        trusted = trusted and violations.has_integers(task.reduction.form, found.point)
        trusted = trusted and rest.meets_constraints(found.point)
        trusted = trusted and told is not None and rest.confirms(task, found.point, told)
    shown = told if task.goal.certify is not False and isfinite(best.answer.bound) else None
    if best.limited:
        return Status.USER_LIMIT, shown
    return Status.OPTIMAL if trusted else Status.OPTIMAL_INACCURATE, shown


def _with_status(  # noqa: PLR0917
    task: Task, best: Candidate, inverted: Inverted, found: Certificate, diagnose: Callable[[], Diagnosis],
    known: Status | None,
) -> Outcome:  # fmt: skip
    """The solution with the status that its certificate proves, and whether a finer factor may improve it."""
    goal = task.goal
    # A gap that is infinite, or as large as the improvement on θ = 0, suggests that no answer exists. Where the reduced
    # problem has one, and its factor grows, the next factor says more.
    grows = task.reduction.is_restriction and any(f.grows for f in task.reduction.factors.values())
    waits = best.closed and grows and goal.certify is True and known is None
    if (not isfinite(found.absolute_gap) and not waits) or not (best.closed or found.relative_gap < 1):
        known = known or diagnose().status
    if known in NOTHING:
        assert known is not None
        return _outcome(best, without_answer(known, task.sign), inverted.point, may_grow=False)
    closed = found.scope == FULL and not found.assumptions and found.closes(goal.tol, goal.abs_tol)
    # Without P₀ the gap is relative to |P|, which may be far more than P₀ − P.
    closed = closed and not (task.data is not None and certificates.lacks_zero(task.reduction, task.data))
    if known == Status.NOT_ATTAINED:
        status = Status.NOT_ATTAINED
    elif closed and inverted.is_feasible and found.is_feasible:
        status = Status.OPTIMAL
    else:
        limited = best.limited or goal.seconds_left() <= 0
        status = Status.USER_LIMIT if limited else Status.OPTIMAL_INACCURATE
    inexact = best.gap > INEXACT * found.absolute_gap and goal.solver_tol > goal.tol
    may_grow = (task.reduction.is_restriction or inexact) and best.closed and not closed and goal.certify is True
    may_grow = may_grow and status != Status.NOT_ATTAINED
    solution = replace(inverted.solution, status=status, certificate=found)
    return replace(_outcome(best, solution, inverted.point, may_grow), inexact=inexact)
