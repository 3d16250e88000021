"""Convex problems, also with integers: solvers are tried in turn until a certificate closes the gap.

A solver that leaves the gap open runs again with a tighter tolerance and in other units; then the next solver runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from math import inf, isfinite, nan
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt import certificate as certificates
from kernelopt.certificate import ESTIMATE, Certificate, Request
from kernelopt.compiler import comparison, integers, projection, representer, violations
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.outer import Outer, outer_of
from kernelopt.compiler.representer import Reduction
from kernelopt.compiler.residuals import FEASIBLE
from kernelopt.driver import diagnosis, integer_proof
from kernelopt.driver.diagnosis import Diagnosis
from kernelopt.driver.judgement import NOTHING, Candidate, judged, towards_zero
from kernelopt.driver.mixed_integer import Rest
from kernelopt.driver.strategy import Goal, Outcome, Plan, Task, Units, Work, attempted, least_gap, without_answer
from kernelopt.errors import ClusterError, DataError, MemoryLimitError, SolverError
from kernelopt.results.solution import Attempt, Status
from kernelopt.solvers import choice, cvxpy_solvers, engines
from kernelopt.solvers.assemble import shape_of
from kernelopt.solvers.engines import OURS, Start
from kernelopt.support import clock

# Solvers run in the order of `choice.ordered` until a certificate closes. Each runs with the wanted tolerance first.
# One of cvxpy's then runs with TIGHTER times that tolerance, in the units of the point that was found: cvxpy's solvers
# measure tolerances in terms of their own, which a certified gap may exceed. At the default tol of 1e-6 this makes
# 1e-9; a smaller factor asks for more than solvers in double precision reach.
TIGHTER = 1e-3
# A first-order method gets no second run, which takes seconds, where its gap is that many times another solver's.
HOPELESS = 1e3
# Longest time of a later attempt, in units of the first one's, where no time limit is set: larger values wait longer
# for solvers that get nowhere, smaller ones stop solvers that are slower than the first but would succeed.
PATIENCE = 3.0
LEAST_PATIENCE = 5.0  # seconds that a later attempt has in any case: the time of a very quick first one is no guide
# Relative gap that our own engines reach on a first factor, from which cvxpy's solvers, which take seconds there, wait
# for a finer one. Larger values grow factors from points that say little, smaller ones polish what is thrown away.
EARLY = 1e-4
LAST_DIGITS = 1e-14  # of the objective's terms, 45 eps: a gap that no solver in double precision improves
# In units of the objective's data: where θ gains no more than this, a gap of this size ends the search for losses with
# kinks, and for problems that are no sum of functions of one number, since no relative gap can be reached, and other
# solvers find the same. Differentiable losses are solved to the last digit; multipliers of constraints are of the size
# of the gap's square root.
NOTHING_LEFT = 1e-10
PRUNED = 0.5  # of the gap that counts: boxes with less are not cut, so that a bound that rounds still closes
DIGITS = 1e-9  # of the objective's terms: a smaller gap that the proof leaves is worth no other solver


def begin(
    outer: Outer | None, names: list[str], reduction: Reduction, goal: Goal, start: Start | None = None
) -> Convex:
    """The work on one reduction; `outer` is None for mixed-integer problems."""
    tried = choice.ordered(names, reduction.form, outer, reduction.size, warm=start is not None)
    return Convex(Task(reduction, outer, goal), tried, start)


def _certified_alone(reduction: Reduction, outer: Outer, goal: Goal, start: Start | None) -> Outcome:
    """The outcome of a convex problem that nobody asked for by name."""
    names = choice.candidates(lambda: reduction.inner.problem, reduction.form, outer)
    return attempted(begin(outer, names, reduction, goal, start))


def certify_elsewhere(reduction: Reduction, data: Outer, point: Iterate, known: Certificate) -> Certificate:
    """A certificate for the present values of parameters, from θ and multipliers of an answer for other values."""
    feasible = violations.violation(reduction, point, data.data_unit) <= FEASIBLE
    here = representer.valued(reduction.form, point) if feasible else replace(point, value=inf * data.sign)
    found = certificates.certify_again(reduction, data, here, known)
    if found is None or (not isfinite(found.absolute_gap) and feasible):
        found = certificates.certify(reduction, data, here, Request(known.scope))
    return found


class Convex(Work):
    """The attempts so far, the best point, and the evidence for the case that no answer exists."""

    def __init__(self, task: Task, solvers: list[str], start: Start | None) -> None:
        self.task, self.solvers, self.start = task, solvers, start
        self.attempts: list[Attempt] = []
        self.claims: set[str] = set()
        self.best: Candidate | None = None
        self.stats: Any = None
        self.units: Units | None = None
        self.status: Status | None = None  # set where no answer exists, or where the infimum is not attained
        self.diagnosed: Diagnosis | None = None
        self.is_open = True  # whether it is not known yet if the problem is bounded
        self.given_up: Iterate | None = None
        self.rest: Rest | None = None
        self.failure: SolverError | MemoryLimitError | None = None
        self.is_unbounded = False  # proven with the integers of a point fixed, which a claim of a solver is not

    # ------------------------------------------------------------ which solver runs next

    def plans(self) -> Iterator[Plan]:
        goal = self.task.goal
        for solver in self.solvers:
            known = cvxpy_solvers.CONIC_SOLVERS.get(solver, cvxpy_solvers.ConicSolver(""))
            if self.best is not None and least_gap(self.attempts) <= known.finest:
                continue  # this solver improves no gap that is already so small
            if solver not in OURS and self._is_enough_for_now():
                assert self.best is not None
                self.best = replace(self.best, closed=True)
                return
            yield Plan(solver, goal.solver_tol, None, self.start)
            if self._is_settled():
                return
            hopeless = known.finest > 0 and self.attempts[-1].gap > HOPELESS * least_gap(self.attempts)
            if solver not in OURS and not (hopeless or goal.own_options or self.attempts[-1].claimed in NOTHING):
                yield Plan(solver, goal.solver_tol * TIGHTER, self.units)
                if self._is_settled():
                    return

    def _is_enough_for_now(self) -> bool:
        """Whether engines of ours alone ran, and left a small gap, on a first factor that is coarser than asked for.

        Its restriction of θ costs more as a rule. Later rounds know how small a gap they need, and run all solvers.
        """
        goal, ours = self.task.goal, all(attempt.solver in OURS for attempt in self.attempts)
        first = goal.coarse and goal.certify is True and not goal.own_options
        return first and ours and self.best is not None and least_gap(self.attempts) <= EARLY

    def _is_settled(self) -> bool:
        out_of_time = bool(self.attempts) and self.task.goal.seconds_left() <= 0
        if self.best is not None and (self.best.answer.interrupted or self.best.closed or self.task.data is None):
            return True
        guided = self.diagnosed is not None and bool(self.diagnosed.guides)
        return self.status is not None or guided or out_of_time

    def _seconds(self) -> float:
        """Seconds that the next attempt may take."""
        seconds = self.task.goal.seconds_left()
        ran = [attempt for attempt in self.attempts if attempt.claimed != "memory_limit"]
        if not ran or isfinite(seconds):
            return seconds
        return max(LEAST_PATIENCE, PATIENCE * (ran[0].seconds or 0.0))

    # ------------------------------------------------------------ one attempt

    def attempt(self, plan: Plan) -> None:
        began = clock.now()
        try:
            answer = self._answer(plan, self._seconds())
            gap = self._taken(answer)
            self._log(plan, str(answer.status), gap, clock.now() - began)
            self.attempts += self.rest.attempts if self.rest is not None else ()
            if answer.status in NOTHING:
                self._heard(answer.status)
        except ClusterError:
            raise  # no other solver would do better
        except (SolverError, MemoryLimitError) as error:
            self.stats = self.stats or cvxpy_solvers.nothing(plan.solver).stats
            # Too little memory tells the caller more than another solver's refusal.
            self.failure = self.failure if isinstance(self.failure, MemoryLimitError) else error
            claimed = "memory_limit" if isinstance(error, MemoryLimitError) else "failed"
            self._log(plan, claimed, nan, clock.now() - began)

    def _heard(self, claim: Status) -> None:
        """Check a solver's claim that no answer exists. With integers the claim itself decides."""
        self._diagnose(feasible_only=claim == Status.INFEASIBLE)
        # A θ that is restricted may miss feasible points of the stated problem; "unbounded" carries over in any case.
        proven = claim == Status.UNBOUNDED or not representer.may_lack(self.task.reduction)
        if not self.task.is_continuous and (proven or self._is_infeasible_anywhere()):
            self.status = claim

    def _is_infeasible_anywhere(self) -> bool:
        """Whether no predictions at all meet the constraints beside integers, by a solver's word."""
        form = self.task.reduction.form
        free = cp.Problem(cp.Minimize(0), form.outer.constraints)
        if form.smooth or not free.is_mixed_integer():
            return False
        try:
            goal, name = self.task.goal, cvxpy_solvers.BRANCH_AND_BOUND
            seconds = goal.seconds_left() if isfinite(goal.deadline) else None
            found = cvxpy_solvers.solve(free, name, goal.tol, {}, seconds=seconds)
        except (SolverError, MemoryLimitError):
            return False
        return found.status == Status.INFEASIBLE

    def _answer(self, plan: Plan, seconds: float) -> cvxpy_solvers.Answer:
        """Run a solver. Raises SolverError or MemoryLimitError."""
        task, goal = self.task, self.task.goal
        if plan.solver in OURS:
            if task.outer is None:
                raise SolverError(f"{plan.solver} takes no integer variables.")
            try:
                return engines.solve(
                    task.reduction, task.outer, plan.solver, plan.tol, clock.now() + seconds, plan.start, goal.verbose,
                    goal.progress, task.value_at_zero(),
                )  # fmt: skip
            except clock.OutOfTimeError:
                return cvxpy_solvers.nothing(plan.solver)
        form = None if task.outer is None else task.outer.form
        cvxpy_solvers.require_memory(task.reduction, goal.memory_limit, plan.solver, form)
        return cvxpy_solvers.solve_reduction(
            task.reduction, plan.solver, plan.tol, goal.options, plan.units, seconds if isfinite(seconds) else None,
            goal.memory_limit,
        )  # fmt: skip

    def _taken(self, answer: cvxpy_solvers.Answer, look: bool = True) -> float:
        """The relative gap of an answer for the reduced problem; the answer is kept if it is the best so far.

        look : whether its bounds are looked at before its certificate is made
        """
        task, self.stats, self.units = self.task, answer.stats, None
        if not answer.has_point:
            if answer.status in NOTHING:
                self.claims.add(answer.status)
                self.given_up = answer.point
            return nan
        assert answer.point is not None
        point = representer.evaluate(task.reduction, answer.point, answer.predictions)
        self._require_same(answer, point)
        self.units = _units(point, task.data_unit)
        claimed = task.sign * point.value
        point = self._met(point) if task.is_continuous else self._with_integers(point)
        feasible = violations.violation(task.reduction, point, task.data_unit) <= FEASIBLE and isfinite(point.value)
        feasible = feasible if self.rest is None else self.rest.is_feasible(task, point)
        limited, gap = answer.status == Status.USER_LIMIT, nan
        candidate = Candidate(0.0 if feasible else inf, False, limited, point, answer, claimed)
        data, known = task.data, nan
        if data is not None:
            with clock.limited(clock.now() + task.goal.for_last_steps()):  # P₀ is sought
                known = certificates.gap_of_solver(task.reduction, data, point, answer.gap)
        found = self._first_look(point, answer) if look and not known <= task.goal.solver_tol else None
        if known <= task.goal.solver_tol:
            candidate, gap = replace(candidate, gap=abs(answer.gap), closed=True), known
        elif task.data is not None and found is not None:
            closed = found.closes(task.goal.solver_tol, task.goal.abs_tol)
            shape = shape_of(task.reduction.form, task.data)
            nothing = NOTHING_LEFT * task.data.units[1]
            rough = (shape.kinked and not shape.hard) or task.data.split is None
            floor = nothing if rough and found.unit <= nothing else 0.0
            closed = closed or found.absolute_gap <= max(LAST_DIGITS * found.terms, floor)
            # Where θ has no norm, our engines end far from an infimum that is not attained; a cone solver gets near.
            ours = shape.free and answer.stats.solver_name in OURS
            if not ours and diagnosis.is_receding(task, task.data, point):
                if diagnosis.has_ray(task, task.data):  # a cost may fall along the direction, too
                    self.status = Status.UNBOUNDED
                elif isfinite(-found.upper if found.maximize else found.lower):  # and may do so ever more slowly
                    self.status = Status.NOT_ATTAINED
            candidate, gap = replace(candidate, gap=found.absolute_gap, closed=closed), found.relative_gap
        if feasible and (self.best is None or candidate.gap < self.best.gap):
            self.best = candidate
        return gap

    def _met(self, point: Iterate) -> Iterate:
        """The point, or one near it that is feasible where it is not, as x = 1e-12 is not for x = 0."""
        task = self.task
        if task.outer is None or violations.violation(task.reduction, point, task.data_unit) <= FEASIBLE:
            return point
        for other in projection.nearby(task.reduction, task.outer, point) if isfinite(point.value) else ():
            if violations.violation(task.reduction, other, task.data_unit) <= FEASIBLE:
                return other
        return point

    def _require_same(self, answer: cvxpy_solvers.Answer, point: Iterate) -> None:
        """Raise ReadingError where the pieces that a solver took have other values than the stated problem."""
        form, outer = self.task.reduction.form, self.task.outer
        pieces = None if outer is None else outer.pieces
        if pieces is not None:
            comparison.require_same(form, pieces, point)

    def _first_look(self, point: Iterate, answer: cvxpy_solvers.Answer) -> Certificate | None:
        """Bounds of the reduced problem; None without a certificate, and where the time is over."""
        if self.task.data is None:
            return None
        try:
            goal = self.task.goal
            with clock.limited(clock.now() + goal.for_last_steps()):
                return certificates.first_look(self.task.reduction, self.task.data, point, answer.rows)
        except clock.OutOfTimeError:
            return None

    def _with_integers(self, point: Iterate) -> Iterate:
        """The best of the solver's own point, that with integers rounded, and that solved again with these fixed."""
        task, self.rest = self.task, None
        rounded = violations.with_integers(task.reduction, point, task.data_unit)
        fixed = integers.fixed(task.reduction.form, point)
        try:
            outer = outer_of(fixed.form)
            is_finite = outer.form is not None if outer.pieces is None else outer.pieces.is_finite
        except (SolverError, DataError):
            return rounded
        if not is_finite:  # as 1/z at z = 0
            return rounded
        self.rest = rest = Rest(Reduction(fixed.form, task.reduction.factors), outer, fixed)
        best = rounded
        for other in [*rest.near(task, rounded), *self._solved_again(rest, rounded)]:
            best = other if rest.is_better(task, other, best) else best
        return best

    def _solved_again(self, rest: Rest, point: Iterate) -> list[Iterate]:
        """Points of the mixed-integer problem from the convex one with its integers fixed, none where that fails."""
        goal = replace(
            self.task.goal, certify=self.task.goal.certify or ESTIMATE, options={}, own_options=False, known=None,
            progress=False, products=False,
        )  # fmt: skip
        try:
            names = choice.candidates(lambda: rest.reduction.inner.problem, rest.reduction.form, rest.outer)
            outcome = attempted(begin(rest.outer, names, rest.reduction, goal))
        except (SolverError, DataError, MemoryLimitError):
            return []
        rest.attempts = outcome.attempts
        if outcome.solution.status == Status.UNBOUNDED:
            self.is_unbounded = True  # with integers that are feasible: so is the whole problem
        known, told = outcome.solution.value, outcome.solution.certificate
        if outcome.point is None or known is None or not isfinite(known):
            return []
        rest.answer = outcome.point
        found, better = [outcome.point], None
        if told is not None and told.relative_gap > goal.tol:  # closed by rounding, which no certificate tells the user
            better = towards_zero(Task(rest.reduction, rest.outer, goal), rest.outer, told, outcome.point)
        found += [] if better is None else [better]
        return [whole for one in found for whole in rest.moved(self.task, point, one)]

    def _log(self, plan: Plan, claimed: str, gap: float, seconds: float) -> None:
        ranks = tuple(f.rank for f in self.task.reduction.factors.values())
        self.attempts.append(Attempt(plan.solver, plan.tol, plan.units, ranks, claimed, gap, seconds))

    # ------------------------------------------------------------ the outcome

    def outcome(self) -> Outcome:
        task, failure = self.task, self.failure
        lacks_memory = isinstance(failure, MemoryLimitError) and not self.claims
        if self.best is None and not self._is_settled() and not lacks_memory:  # a proof would take as much
            self._diagnose()
        over, claims = task.goal.seconds_left() <= 0, {attempt.claimed for attempt in self.attempts}
        rough = {str(Status.USER_LIMIT), str(Status.OPTIMAL_INACCURATE)}
        limited = over or (bool(claims & rough) and not task.reduction.is_restriction)
        if self.best is None and self.status not in NOTHING and limited:
            self._take_zero()
        if failure is not None and self.best is None and not (over or self.claims) and self.status not in NOTHING:
            raise failure if len(self.solvers) == 1 or isinstance(failure, MemoryLimitError) else self._broken(failure)
        stopped = self.best is not None and self.best.answer.interrupted
        if self.best is not None and self.status is None and not stopped and diagnosis.may_be_unbounded(task):
            assert task.data is not None
            self.status = Status.UNBOUNDED if diagnosis.has_ray(task, task.data) else None
        if self.is_unbounded:
            self.status = Status.UNBOUNDED
        elif self.best is not None and (self.status != Status.INFEASIBLE or not task.is_continuous):
            outcome = judged(task, self.best, self.rest, self._diagnose, self.status)
            if self._costs_too_much_to_meet(outcome):
                outcome = self._met_at_less_cost(outcome)
            elif self._lacks_proof(outcome):
                outcome = self._proven_by_another(outcome)
            elif self.rest is not None and not stopped:
                outcome = self._proven_by_boxes(outcome, self.rest)
            return replace(outcome, attempts=tuple(self.attempts))
        status = self.status if self.status in NOTHING else Status.USER_LIMIT
        assert status is not None
        grows = status == Status.USER_LIMIT and task.reduction.is_restriction
        guides = self.diagnosed.guides if grows and self.diagnosed is not None else {}
        return Outcome(without_answer(status, task.sign), tuple(self.attempts), self.stats, grows, guides=guides)

    def _proven_by_boxes(self, outcome: Outcome, rest: Rest) -> Outcome:
        """The outcome of a mixed-integer problem with a proven bound where that closes; else with the solver's word and
        with what is proven beside it."""
        task, point, solution = self.task, outcome.point, outcome.solution
        if point is None or task.goal.certify is not True or not rest.is_a_point(task, point):
            return outcome
        told = solution.certificate or rest.certificate(task, point, -inf, outcome.stats.solver_name)
        if told is None:
            return outcome
        value = task.sign * point.value
        found = integer_proof.proven(task, value, PRUNED * rest.wanted(task, told), _certified_alone)
        if found is None:
            return outcome
        proven = rest.proven(point, found)
        if proven.closes(task.goal.tol, task.goal.abs_tol) and not proven.assumptions:
            return replace(outcome, solution=replace(solution, certificate=proven, status=Status.OPTIMAL))
        if solution.certificate is None:
            return outcome
        side, outward = ("at most", ROUND_CEILING) if told.maximize else ("at least", ROUND_FLOOR)
        bound = float(Context(6, outward).create_decimal(task.sign * found.bound))
        said = f"proven without it: the optimum is {side} {bound:.6g}"
        told = replace(told, rests_on=(*told.rests_on, said))
        return replace(outcome, solution=replace(solution, certificate=told))

    def _costs_too_much_to_meet(self, outcome: Outcome) -> bool:
        """Whether a gap that was closed is open since the point was moved into constraints that it met nearly."""
        goal, found, best = self.task.goal, outcome.solution.certificate, self.best
        if found is None or best is None or not best.closed or goal.own_options or goal.seconds_left() <= 0:
            return False
        last = self.attempts[-1]
        fresh = last.solver not in OURS and last.tol == goal.solver_tol and self.task.is_continuous
        return fresh and isfinite(found.absolute_gap) and not found.closes(goal.tol, goal.abs_tol)

    def _met_at_less_cost(self, outcome: Outcome) -> Outcome:
        """The outcome of a finer answer of the same solver where its gap is smaller, else the one that is known."""
        before, last = self.best, self.attempts[-1]
        self.attempt(Plan(last.solver, last.tol * TIGHTER, self.units))
        if self.best is None or self.best is before:
            return outcome
        finer = judged(self.task, self.best, self.rest, self._diagnose, self.status)
        old, new = outcome.solution.certificate, finer.solution.certificate
        return finer if old is not None and new is not None and new.absolute_gap < old.absolute_gap else outcome

    def _lacks_proof(self, outcome: Outcome) -> bool:
        """Whether an engine of ours closed its own gap, and its multipliers left another one open, not by rounding."""
        goal, found, best = self.task.goal, outcome.solution.certificate, self.best
        if found is None or best is None or not best.closed or goal.own_options or goal.seconds_left() <= 0:
            return False
        if self.task.reduction.is_restriction or self.attempts[-1].solver not in OURS or found.rests_on:
            return False
        beyond = found.absolute_gap - found.rounding
        is_open = not found.closes(goal.tol, goal.abs_tol) and beyond > max(goal.tol * found.unit, DIGITS * found.terms)
        return isfinite(beyond) and is_open and bool(self._others())

    def _others(self) -> list[str]:
        """The cone solvers, best first, that have not run."""
        ran = {attempt.solver for attempt in self.attempts}
        return [name for name in self.solvers if name not in OURS and name not in ran]

    def _proven_by_another(self, outcome: Outcome) -> Outcome:
        """The outcome of a cone solver's answer where its gap is smaller, else the one that is known."""
        before, self.best = self.best, None
        self.attempt(Plan(self._others()[0], self.task.goal.solver_tol))
        if self.best is not None:
            other = judged(self.task, self.best, self.rest, self._diagnose, self.status)
            old, new = outcome.solution.certificate, other.solution.certificate
            if old is not None and new is not None and new.absolute_gap < old.absolute_gap:
                return other
        self.best = before
        return outcome

    def _take_zero(self) -> None:
        """Take θ = 0, with the best y that is found quickly, as the answer of solvers that have none."""
        form, reduction = self.task.reduction.form, self.task.reduction
        nu = tuple(None if link.u is None else np.zeros(link.u.shape) for link in form.predictions)
        plain = replace(reduction.at_zero(tuple(np.zeros(y.shape) for y in form.y)), nu=nu)
        plain = representer.evaluate(reduction, plain)
        seconds = self.task.goal.for_last_steps()
        filled = cvxpy_solvers.fill_in(form, plain, self.task.goal.tol, seconds) if form.y and form.has_cones else None
        for point in (filled, plain):
            if point is not None:
                self._taken(cvxpy_solvers.Answer(Status.USER_LIMIT, True, self.stats, point), look=False)
            if self.best is not None:
                return

    def _diagnose(self, feasible_only: bool = False) -> Diagnosis:
        """Find out, once, whether the problem is feasible and bounded."""
        if self.diagnosed is None or (self.is_open and not feasible_only):
            self.is_open = feasible_only
            ours = bool(self.attempts) and self.attempts[-1].solver in OURS and Status.INFEASIBLE in self.claims
            given_up = self.given_up if ours else None
            data = None if self.status is not None else self.task.data
            self.diagnosed = Diagnosis()
            with suppress(clock.OutOfTimeError), clock.limited(self.task.goal.deadline):
                if data is not None:
                    self.diagnosed = diagnosis.diagnose(self.task, data, given_up, feasible_only)
            self.status = self.status or self.diagnosed.status
        return self.diagnosed

    def _broken(self, last: SolverError) -> SolverError:
        return SolverError(
            f"No solver found a point; {', '.join(self.solvers)} were tried. Change units, so that data, targets and "
            f"the objective have sizes of about 1, or see what a solver says with verbose=True. The last one: {last}"
        )


def _units(point: Iterate, data_unit: float) -> Units | None:
    """The sizes of the predictions and multipliers of a point."""
    u, nu = point.prediction_unit(data_unit), _size(list(point.nu))
    return (u, nu) if u > 0 and nu > 0 else None


def _size(values: list[Any]) -> float:
    """The largest finite entry."""
    sizes = [float(np.abs(v).max(initial=0.0)) for v in values if v is not None]
    return max((s for s in sizes if isfinite(s)), default=0.0)
