"""Solve a reduced problem, and don't believe the answer until its certificate closes.

A solver that falls short is asked again with tighter tolerances and in other units, then another solver is asked. A
claim that there is no answer is believed only with a Farkas vector or a ray.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf, isfinite, nan
from time import perf_counter
from typing import Any

import numpy as np

from kernelopt import certificate as certificates
from kernelopt.certificate import ESTIMATE, FULL, Certificate, Certified, Request
from kernelopt.certificate.report import Lower
from kernelopt.compiler import feasibility, integers, projection, representer
from kernelopt.compiler.conic_form import ConicForm
from kernelopt.compiler.feasibility import Question
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.pieces import Exponential, LogSumExp
from kernelopt.compiler.representer import FEASIBLE, Reduction
from kernelopt.compiler.separable import Outer, Separable, outer_of
from kernelopt.errors import DataError, MemoryLimitError, SolverError
from kernelopt.factorization import Guide, memory
from kernelopt.language.expressions import Theta
from kernelopt.results.solution import Attempt, Solution, Status
from kernelopt.solvers import choice, cvxpy_solvers, engines, rays
from kernelopt.solvers.engines import ENGINES, Start
from kernelopt.support import clock
from kernelopt.support.types import Array, Ints

TIGHTER = 1e-3  # the second attempt's tolerance, in units of the first
PATIENCE = 3.0  # seconds that a remedy may take in units of the first attempt, where no time limit is set
LEAST_PATIENCE = 5.0  # seconds
RAY_FEASIBILITY = 1e-7
DIRECTION = 1e-10  # to which directions are found
FALL = 1e-3  # of exponents along a direction of unit size, weighted by what the exponentials cost
COMPILED_BYTES = 160  # per entry of B, taken by cvxpy and its solvers (measured: 110 to 170)
GROWING = 1e-9  # growth along a direction, in units of its terms, that is no rounding
STEPS = (2.0, 8.0, 32.0, 128.0, 512.0, 2048.0)  # violations by which all of a point is scaled into its constraints
LAST_DIGITS = 1e-14  # of the objective's terms
SHARE = 1e-2  # of a value near 0 that is left where an optimum of 0 is found
FINE = 1e-10  # a solver's tolerance for y beside θ = 0
ROUNDING = 1e-12  # a violation relative to a constraint's terms that is none
MOVES, NEAR = 4, 1e-3  # steps into the constraints, and how far the value may move, relatively
INEXACT = 0.5  # share of the certified gap that the reduced problem has already, from which its solver is to blame
APART = 1e-6  # errors of predictions, relative to their size, that are more than a certificate may leave
FADED = -12.0  # an exponent below this may be on its way to −∞

Units = tuple[float, float]


@dataclass(frozen=True)
class Goal:
    """What the caller wants: accuracy, kind of certificate, limits, and the solver's own options.

    `known` is the best lower bound so far; `products`: that a certificate's pass over the kernel should give Qν.
    """

    tol: float
    abs_tol: float | None = None
    certify: bool | str = True
    deadline: float = inf
    options: dict[str, Any] = field(default_factory=dict)
    own_options: bool = False
    memory_limit: float | None = None
    progress: bool = False
    n_init: int = 1
    random_state: Any = None
    aim: float = 0.0
    known: Lower | None = None
    products: bool = False

    @property
    def solver_tol(self) -> float:
        """The gap of the reduced problem that is good enough: `tol`, or more where the factor is still coarse."""
        return max(self.tol, self.aim)

    @property
    def scope(self) -> str:
        return ESTIMATE if self.certify == "estimate" else FULL

    def seconds_left(self) -> float:
        return self.deadline - perf_counter()


@dataclass(frozen=True, eq=False)
class Outcome:
    """A solution with its attempts, and whether a factor of higher rank might do better.

    point : what the solution stands on, None where there is no answer; left_off : where to start another time;
    guides : how a factor should grow; inexact : whether the solver is to blame for most of the gap
    """

    solution: Solution
    attempts: tuple[Attempt, ...]
    stats: Any
    may_grow: bool
    point: Iterate | None = None
    left_off: Start | None = None
    interrupted: bool = False
    guides: Mapping[Theta, Guide] = field(default_factory=dict)
    inexact: bool = False


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A feasible point, and what is known about it."""

    gap: float
    closed: bool
    limited: bool
    point: Iterate
    answer: cvxpy_solvers.Answer


def pursue(
    outer: Outer | None, names: list[str], reduction: Reduction, goal: Goal, start: Start | None = None
) -> Outcome:
    """Solve with remedies, and say what the answer is worth; `outer` is None for mixed-integer problems.

    Raises SolverError when every solver breaks down.
    """
    solvers = choice.ordered(names, reduction.form, outer, reduction.size)
    search = _Search(reduction, outer, goal, start)
    try:
        search.run(solvers)
    except SolverError:
        if search.best is None and not search.claims:
            raise
    if search.best is not None and search.diagnosed != Status.INFEASIBLE:
        return search.judged(search.best)
    status = search.diagnosed if search.diagnosed in _NOTHING else Status.USER_LIMIT
    assert status is not None
    grows = status == Status.USER_LIMIT and reduction.is_restriction
    solution, guides = search.without_answer(status), search.guides if grows else {}
    return Outcome(solution, tuple(search.attempts), search.stats, grows, guides=guides)


def certify_elsewhere(reduction: Reduction, data: Outer, point: Iterate, known: Certificate) -> Certificate:
    """A certificate for the values that parameters have now, from the θ and multipliers of an answer for others."""
    feasible = representer.violation(reduction, point, data.form.data_unit) <= FEASIBLE
    here = representer.valued(reduction.form, point) if feasible else replace(point, value=inf * data.form.sign)
    found = certificates.certify_again(reduction, data, here, known)
    if found is None or (not isfinite(found.absolute_gap) and feasible):
        found = certificates.certify(reduction, data, here, Request(known.scope))
    return found


class _Search:
    """One reduced problem on its way to an answer."""

    def __init__(self, reduction: Reduction, outer: Outer | None, goal: Goal, start: Start | None) -> None:
        self.reduction, self.goal, self.start = reduction, goal, start
        self.attempts: list[Attempt] = []
        self.claims: set[str] = set()
        self.best: _Candidate | None = None
        self.stats: Any = None
        self.units: Units | None = None
        self.diagnosed: Status | None = None
        self.guides: dict[Theta, Guide] = {}
        self.questioned = False
        self.fixed: tuple[Reduction, Outer, Iterate, tuple[Attempt, ...]] | None = None
        self.claimed: Iterate | None = None
        self.continuous = outer is not None
        self.outer = outer
        self.data: Outer | None = outer if goal.certify is not False else None
        self.data_unit = outer.form.data_unit if outer is not None else 0.0
        self.sign = -1.0 if reduction.form.outer.objective.NAME == "maximize" else 1.0

    def run(self, solvers: list[str]) -> None:
        """Attempts in order, until one closes the gap or proves that there is nothing to find."""
        failure: SolverError | MemoryLimitError | None = None
        for solver, tol, units in self._plans(solvers):
            try:
                self._attempt(solver, tol, units)
            except (SolverError, MemoryLimitError) as error:
                failure = error
                self._log((solver, tol, units), "failed", nan, nan)
        if failure is not None and self.best is None and not self.claims:
            raise failure if len(solvers) == 1 or isinstance(failure, MemoryLimitError) else _broken(solvers, failure)
        if self.best is not None and self.diagnosed is None and self._may_be_unbounded() and self._has_ray():
            self.diagnosed = Status.UNBOUNDED

    def _plans(self, solvers: list[str]) -> Iterator[tuple[str, float, Units | None]]:
        tol = self.goal.solver_tol
        for solver in solvers:
            known = cvxpy_solvers.CONIC_SOLVERS.get(solver, cvxpy_solvers.ConicSolver(""))
            gap = min((a.gap for a in self.attempts if isfinite(a.gap)), default=inf)
            if self.best is not None and gap <= known.finest:
                continue
            yield solver, tol, None
            if self._is_settled():
                return
            if solver not in ENGINES and not self.goal.own_options and self.attempts[-1].claimed not in _NOTHING:
                yield solver, tol * TIGHTER, self.units
                if self._is_settled():
                    return
        if self.best is None and not self._is_settled():
            self._question()

    def _is_settled(self) -> bool:
        out_of_time = bool(self.attempts) and self.goal.seconds_left() <= 0
        if self.best is not None and self.best.answer.interrupted:
            return True
        if self.best is not None and (self.best.closed or self.data is None):
            return True
        return self.diagnosed is not None or bool(self.guides) or out_of_time

    def _units(self, point: Iterate) -> Units | None:
        """The sizes of the predictions and multipliers of a point."""
        u, nu = point.prediction_unit(self.data_unit), _size(list(point.nu))
        return (u, nu) if u > 0 and nu > 0 else None

    def _attempt(self, solver: str, tol: float, units: Units | None) -> None:
        start = perf_counter()
        seconds = self.goal.seconds_left()
        if self.attempts and not isfinite(seconds):
            seconds = max(LEAST_PATIENCE, PATIENCE * (self.attempts[0].seconds or 0.0))
        answer = self._answer(solver, tol, units, seconds)
        self.stats = answer.stats
        gap, self.units, point = nan, None, answer.point
        if answer.has_point:
            assert point is not None
            point = representer.evaluate(self.reduction, point)
            self.units = self._units(point)
            if not self.continuous:
                point = self._with_integers(point)
            feasible = representer.violation(self.reduction, point, self.data_unit) <= FEASIBLE
            feasible = feasible and isfinite(point.value)
            if self.data is None:
                candidate = self._candidate(answer, point, 0.0 if feasible else inf, False)
            else:
                found = certificates.first_look(self.reduction, self.data, point, answer.slopes)
                gap = found.relative_gap
                closed = found.closes(self.goal.solver_tol, self.goal.abs_tol)
                closed = closed or found.absolute_gap <= LAST_DIGITS * found.terms  # no solver has more of them
                if self._is_receding(point, found, self.data):
                    self.diagnosed = Status.NOT_ATTAINED
                candidate = self._candidate(answer, point, found.absolute_gap, closed)
            if feasible and (self.best is None or candidate.gap < self.best.gap):
                self.best = candidate
        elif answer.status in (Status.INFEASIBLE, Status.UNBOUNDED):
            self.claims.add(answer.status)
            self.claimed = point
        self._log((solver, tol, units), str(answer.status), gap, perf_counter() - start)
        self.attempts += self.fixed[3] if self.fixed is not None else ()
        if answer.status in _NOTHING:
            self._question()
            proven = answer.status == Status.UNBOUNDED or not representer.may_lack(self.reduction)
            if not self.continuous and proven:
                self.diagnosed = answer.status  # a mixed-integer solver's word is all there is

    def _with_integers(self, point: Iterate) -> Iterate:
        """Integers at their rounded values, and the rest solved as the convex problem that it is, with all that is done
        to meet constraints; rounded only, where that leads nowhere."""
        self.fixed, fixed = None, integers.fixed(self.reduction.form, point)
        goal = replace(
            self.goal, certify=self.goal.certify or ESTIMATE, options={}, own_options=False, known=None,
            progress=False, products=False,
        )  # fmt: skip
        try:
            outer = outer_of(fixed.form)
            rest = Reduction(fixed.form, self.reduction.factors)
            names = choice.candidates(rest.inner.problem, fixed.form, outer)
            outcome = pursue(outer, names, rest, goal)
        except (SolverError, DataError, MemoryLimitError):
            outcome = None
        known = None if outcome is None else outcome.solution.value
        if outcome is not None and outcome.point is not None and known is not None and isfinite(known):
            self.fixed = rest, outer, outcome.point, outcome.attempts
            found = replace(point, v=outcome.point.v, y=fixed.whole(outcome.point))
            return representer.evaluate(self.reduction, found)
        return representer.with_integers(self.reduction, point, self.data_unit)

    def _answer(self, solver: str, tol: float, units: Units | None, seconds: float) -> cvxpy_solvers.Answer:
        """What a solver says."""
        goal = self.goal
        if solver in ENGINES:
            if self.outer is None:
                raise SolverError(f"{solver} takes no integer variables.")
            verbose, deadline = bool(goal.options.get("verbose")), perf_counter() + seconds
            return engines.solve(self.reduction, self.outer, solver, tol, deadline, self.start, verbose, goal.progress)
        entries = sum(f.B.size * (theta.outputs or 1) for theta, f in self.reduction.factors.items())
        memory.require(COMPILED_BYTES * entries, "Compiling and solving the reduced problem", goal.memory_limit)
        return cvxpy_solvers.solve_reduction(
            self.reduction, solver, tol, goal.options, units, seconds if isfinite(seconds) else None
        )

    def _candidate(self, answer: cvxpy_solvers.Answer, point: Iterate, gap: float, closed: bool) -> _Candidate:
        return _Candidate(gap, closed, answer.status == Status.USER_LIMIT, point, answer)

    def _log(self, run: tuple[str, float, Units | None], claimed: str, gap: float, seconds: float) -> None:
        solver, tol, units = run
        ranks = tuple(f.rank for f in self.reduction.factors.values())
        self.attempts.append(Attempt(solver, tol, units, ranks, claimed, gap, seconds))

    # ------------------------------------------------------------ what an answer is worth

    def judged(self, best: _Candidate) -> Outcome:
        """The best point with its certificate, and the status that follows from it."""
        reduction, stopped = self.reduction, best.answer.interrupted
        try:
            afresh = self._is_recomputed(best.point)
            solution, point, feasible = self._inverted(best.point, afresh)
        except KeyboardInterrupt:
            (solution, point), stopped = representer.invert(reduction, best.point), True
            feasible = representer.violation(reduction, point, self.data_unit) <= FEASIBLE
        if self.data is None:
            status = self._status_without_certificate(best, point, feasible)
            return self._outcome(replace(best, point=point), replace(solution, status=status), may_grow=False)
        found, stopped = self._certified(best.answer, self.data, point, stopped)
        better = self._zero_is_better(found.certificate, point) or self._is_nearly_zero(found.certificate, point)
        if better is not None:
            solution, point = representer.invert(reduction, better, from_kernel=self._is_recomputed(better))
            found, stopped = self._certified(best.answer, self.data, point, stopped, found.certificate.evidence)
        if certificates.AS_COMPUTED in found.certificate.rests_on:  # predictions are exact sums
            solution, point = representer.invert(reduction, point, exactly=True)
        for theta, function in solution.functions.items():
            function._distance = found.certificate.distance.get(theta)
        solution = replace(solution, certificate=found.certificate)
        outcome = self._with_status(replace(best, point=point), solution, found.certificate, feasible)
        guides = _guides(reduction, found.own) if outcome.solution.certificate is not None else {}
        return replace(outcome, guides=guides, interrupted=stopped)

    def _is_recomputed(self, point: Iterate) -> bool:
        """Whether predictions and norms are computed afresh from kernel values: those of the factor differ where
        it restricts θ, and where coefficients are so large that rounding tells them apart."""
        factors = self.reduction.factors.values()
        if any(f.is_projected for f in factors) or self.goal.certify is not True or not self.continuous:
            return False
        if self.reduction.is_restriction or not all(f.is_exact for f in factors):
            return True
        errors = certificates.errors_of_predictions(self.reduction, point)
        largest = max((float(e.max(initial=0.0)) for e in errors), default=0.0)
        return largest > APART * point.prediction_unit(self.data_unit)

    def _status_without_certificate(self, best: _Candidate, point: Iterate, feasible: bool) -> Status:
        """Of an answer with integers, which rests on a solver's word, or of one that no certificate was asked for."""
        trusted = not self.continuous and feasible and best.answer.status == Status.OPTIMAL
        trusted = trusted and representer.has_integers(self.reduction.form, point)
        trusted = trusted and not representer.may_lack(self.reduction, point) and self._meets_the_rest()
        if best.limited:
            return Status.USER_LIMIT
        return Status.OPTIMAL if trusted else Status.OPTIMAL_INACCURATE

    def _with_status(self, best: _Candidate, solution: Solution, found: Certificate, feasible: bool) -> Outcome:
        """What the certificate says of a solution, and whether a finer factor may do better."""
        goal = self.goal
        if not isfinite(found.absolute_gap) or not (best.closed or found.relative_gap < 1):
            self._question()
        if self.diagnosed in _NOTHING:
            return self._outcome(best, self.without_answer(self.diagnosed), may_grow=False)
        closed = found.scope == FULL and not found.assumptions and found.closes(goal.tol, goal.abs_tol)
        if self.diagnosed == Status.NOT_ATTAINED:
            status = Status.NOT_ATTAINED
        elif closed and feasible and found.is_feasible:
            status = Status.OPTIMAL
        else:
            limited = best.limited or goal.seconds_left() <= 0
            status = Status.USER_LIMIT if limited else Status.OPTIMAL_INACCURATE
        inexact = best.gap > INEXACT * found.absolute_gap and goal.solver_tol > goal.tol
        may_grow = (self.reduction.is_restriction or inexact) and best.closed and not closed and goal.certify is True
        may_grow = may_grow and status != Status.NOT_ATTAINED
        return replace(self._outcome(best, replace(solution, status=status), may_grow), inexact=inexact)

    def _inverted(self, point: Iterate, afresh: bool) -> tuple[Solution, Iterate, bool]:
        """The solution at v, moved into constraints that it meets only nearly, and whether it is feasible."""
        reduction, data = self.reduction, self.data
        solution, point = representer.invert(reduction, point, from_kernel=afresh)
        violation = representer.violation(reduction, point, self.data_unit)
        for _ in range(MOVES):
            moved = None
            if data is not None and 0 < violation <= FEASIBLE:
                moved = projection.moved(reduction, data.form, point)
            if moved is None:
                break
            nearer, there = representer.invert(reduction, moved, from_kernel=afresh)
            left = representer.violation(reduction, there, self.data_unit)
            if not left < violation or not self._is_as_good(there, point):
                break
            solution, point, violation = nearer, there, left
        if data is not None and ROUNDING < violation <= FEASIBLE and not _is_rounding(reduction, data, point):
            return *self._scaled(solution, point, violation, afresh), True
        return solution, point, violation <= FEASIBLE

    def _meets_the_rest(self) -> bool:
        """Whether constraints hold to rounding, with integers fixed."""
        if self.fixed is None:
            return False
        reduction, outer, point, _ = self.fixed
        point = representer.evaluate(reduction, point)
        met = representer.violation(reduction, point, outer.form.data_unit) <= ROUNDING
        return met or _is_rounding(reduction, outer, point)

    def _scaled(self, solution: Solution, point: Iterate, violation: float, afresh: bool) -> tuple[Solution, Iterate]:
        """θ and y a little longer or shorter where that meets the constraints, as it does margins and bounds."""
        reduction = self.reduction
        for factor in (1 + s * n * violation for n in STEPS for s in (1.0, -1.0)):
            scaled = replace(point, v=tuple(factor * v for v in point.v), y=tuple(factor * y for y in point.y))
            nearer, there = representer.invert(reduction, scaled, from_kernel=afresh)
            met = representer.violation(reduction, there, self.data_unit) == 0
            if met and self._is_as_good(there, point):
                return nearer, there
        return solution, point

    def _zero_is_better(self, found: Certificate, point: Iterate) -> Iterate | None:
        """θ = 0 with the best y that is known, where it beats the answer."""
        form, reduction, zero = self.reduction.form, self.reduction, (found.bare or found).at_zero
        value = self._bare(point)
        if zero is None or self.sign * zero > value or found.closes(self.goal.tol, self.goal.abs_tol):
            return None
        most = max(representer.violation(reduction, point, self.data_unit), ROUNDING)
        plain = representer.evaluate(reduction, replace(point, v=reduction.at_zero(point.y).v))
        filled = cvxpy_solvers.fill_in(form, plain, FINE) if form.y and not form.smooth else None
        trials = [plain] if filled is None else [representer.evaluate(reduction, filled), plain]
        for there in trials:
            if self._bare(there) < value and representer.violation(reduction, there, self.data_unit) <= most:
                return there
        return None

    def _bare(self, point: Iterate) -> float:
        """The minimized objective without constants."""
        return self.sign * representer.bare_value(self.reduction.form, point)

    def _is_nearly_zero(self, found: Certificate, point: Iterate) -> Iterate | None:
        """A point at which losses and penalties are 0 but for rounding, near one where a solver came close to it."""
        assert self.data is not None
        reduction, value, bare = self.reduction, self._bare(point), found.bare or found
        zero = found.absolute_gap <= self.goal.tol * abs(value - self.sign * (bare.at_zero or 0.0))
        if found.closes(self.goal.tol, self.goal.abs_tol) or not zero or not isfinite(found.absolute_gap):
            return None
        most = max(representer.violation(reduction, point, self.data_unit), ROUNDING)
        for _ in range(MOVES):
            moved = projection.towards_zero(reduction, self.data.form, point)
            if moved is None:
                break
            point = representer.evaluate(reduction, moved)
            near = representer.violation(reduction, point, self.data_unit) <= most
            _, of_theta = representer.invert(reduction, point, from_kernel=True)
            if near and abs(self._bare(of_theta)) < SHARE * value:
                return point
        return None

    def _is_as_good(self, new: Iterate, old: Iterate) -> bool:
        """Whether a point that was moved into the constraints has a value nearby."""
        assert self.data is not None
        known = self.sign * (old.value - self.reduction.form.constant)
        size = abs(known - self.data.form.offset) + self.data.form.units[1]
        return isfinite(new.value) and abs(new.value - old.value) <= NEAR * size

    def _certified(
        self, answer: cvxpy_solvers.Answer, data: Outer, point: Iterate, interrupted: bool, known: Lower | None = None
    ) -> tuple[Certified, bool]:
        """The certificate, and whether it was interrupted: then it is what can be said without a pass over the kernel,
        as where time is over. A `known` lower bound counts beside that of the multipliers."""
        goal, reduction = self.goal, self.reduction
        known = known or goal.known
        products = goal.products and any(f.grows for f in reduction.factors.values())
        request = Request(goal.scope, goal.tol, goal.abs_tol, answer.slopes, known, products)
        if not interrupted:
            try:
                with clock.limited(goal.deadline):
                    return certificates.certified(reduction, data, point, request), False
            except (KeyboardInterrupt, clock.OutOfTimeError) as stop:
                interrupted = isinstance(stop, KeyboardInterrupt)
        known = known if goal.certify is True else None
        found = certificates.certify_without_pass(reduction, data, point, answer.slopes, known)
        return Certified(found, None), interrupted

    def _outcome(self, best: _Candidate, solution: Solution, may_grow: bool) -> Outcome:
        answer = best.answer
        return Outcome(
            solution, tuple(self.attempts), answer.stats, may_grow, best.point, answer.left_off, answer.interrupted
        )

    # ------------------------------------------------------------ claims that there is no answer

    def without_answer(self, status: Status) -> Solution:
        """A solution without a point, whose value is that of a problem without one."""
        values = {Status.INFEASIBLE: self.sign * inf, Status.UNBOUNDED: -self.sign * inf}
        return Solution(status, values.get(status), {}, {}, None)

    def _question(self) -> None:
        """Find out, once, whether there is a point at all, and a least value."""
        if self.data is not None and self.diagnosed is None and not self.questioned:
            self.questioned = True
            self.diagnosed = self._diagnose(self.data)

    def _diagnose(self, data: Outer) -> Status | None:
        """INFEASIBLE with a Farkas vector for the full kernel, UNBOUNDED with a ray, or None."""
        # Rows that contradict each other are asked about first: that takes no kernel, and no rank can hide it.
        violated, proven = self._least_violation(feasibility.phase_one_of_rows(self.reduction.form, data.form))
        if not proven and self._may_be_feasible_beyond(data):
            return None
        if not proven:
            violated, proven = self._least_violation(feasibility.phase_one(self.reduction.form, data.form))
        if proven:
            return Status.INFEASIBLE
        if data.form.smooth or not violated <= RAY_FEASIBILITY**2:
            return None  # cones don't tell how a smooth loss grows along a ray
        return Status.UNBOUNDED if self._has_ray() else None

    def _may_be_unbounded(self) -> bool:
        """Whether θ may be as long as it likes at no cost, and what an answer was found for falls along some lines: a
        solver may stop anywhere on a slow fall."""
        outer, form = self.data, self.reduction.form
        if outer is None or outer.form.smooth or not feasibility.has_free_theta(form, outer.form):
            return False
        split = outer.split
        if split is None or split.linear_u.any() or split.linear_y.any():
            return True
        low, high = split.slopes()
        return bool(np.any(low > 0) or np.any(high < 0))

    def _has_ray(self) -> bool:
        """Whether a ray is found along which the objective falls for ever."""
        assert self.data is not None
        question = feasibility.recession(self.reduction.form, self.data.form)
        asked = self._ask(question, DIRECTION)
        if asked is None:
            return False
        reduction, point = asked
        prices = question.prices(point.duals)
        return any(ray.falls(prices) for ray in rays.rays(question, reduction, point, self.data.form))

    def _may_be_feasible_beyond(self, data: Outer) -> bool:
        """Whether no violation of this restricted θ proves anything; the guides are then the multipliers that a solver
        of ours gave up with."""
        form = self.reduction.form
        claimed = self.attempts and self.attempts[-1].solver in ENGINES and Status.INFEASIBLE in self.claims
        if not claimed or not self.reduction.is_restriction or feasibility.limits_lengths(form, data.form):
            return False
        nu = () if self.claimed is None else self.claimed.nu
        known = [part for part in nu if part is not None]
        if not all(np.isfinite(part).all() for part in known) or not any(part.any() for part in known):
            return False
        for link, part in zip(form.predictions, nu, strict=True):
            if part is not None:
                self.guides[link.theta] = Guide(link.summed(part).reshape(len(link.rows), -1))
        return True

    def _least_violation(self, question: Question | None) -> tuple[float, bool]:
        """The square of the least violation, nan where it is not found, and whether it is proven to be positive."""
        asked = None if question is None else self._ask(question)
        if asked is None:
            return 0.0 if question is None else nan, False
        reduction, point = asked
        violated = point.value
        if violated <= RAY_FEASIBILITY**2:
            return violated, False
        found, own = certificates.certified(reduction, outer_of(reduction.form), point, Request())
        proven = not found.assumptions and found.scope == FULL and found.lower > 100 * found.rounding > 0
        if not proven and self.reduction.is_restriction:  # rows that would help most to meet the constraints
            self.guides = _guides(reduction, own)
        return violated, proven

    def _ask(self, question: Question, tol: float = 1e-8, theta: bool = True) -> tuple[Reduction, Iterate] | None:
        """The answer to a question about the problem, with the same factors, or θ = 0; None where there is none to
        rely on."""
        factors = self.reduction.factors
        if not theta:
            factors = {name: replace(f, B=f.B[:, :0], pivots=f.pivots[:0]) for name, f in factors.items()}
        seconds = self.goal.seconds_left()
        try:
            rows = {link.theta: link.rows for link in self.reduction.form.predictions}
            whole = {name: f.in_one_array(rows[name]) for name, f in factors.items() if f.rank}
            reduction = Reduction(question.form, {**factors, **whole})
            answer = cvxpy_solvers.solve_reduction(
                reduction, "CLARABEL", tol, {}, None, max(seconds, 1.0) if isfinite(seconds) else None
            )
        except (SolverError, MemoryLimitError):
            return None
        if not answer.has_point or answer.point is None:
            return None
        return reduction, representer.evaluate(reduction, answer.point)

    def _is_receding(self, point: Iterate, found: Certificate, outer: Outer) -> bool:
        """Whether f falls for ever along a direction without reaching its infimum: exponentials that die out."""
        data, pieces = outer.form, outer.split
        penalized = bool(np.all((data.c[data.t] > 0) | (data.P[data.t] > 0))) and len(data.t) > 0
        everywhere = all(self.reduction.form.norms_of(link.theta) for link in self.reduction.form.predictions)
        if data.smooth:
            return False
        only_y = penalized and everywhere  # θ can't recede where its length costs something
        if found.evidence is None or not data.cones.exp or (only_y and not len(data.y)):
            return False
        if only_y and pieces is not None and _grows(pieces):
            return False
        exponents = data.cones.exponentials
        if found.evidence.point is not None:
            s = data.b - data.A @ found.evidence.point.x
            faded = bool(np.any(s[exponents] < FADED * np.maximum(s[exponents + 1], 0.0)))
            weights = np.clip(found.evidence.point.z[exponents + 2], 0.0, None)
        else:
            faded = pieces is not None and _has_faded(point, pieces)
            weights = _that_cost(data, exponents)
        question = feasibility.flat_recession(self.reduction.form, data, weights) if faded else None
        asked = None if question is None else self._ask(question, DIRECTION, theta=not only_y)
        if question is None or asked is None or -asked[1].value <= FALL:
            return False
        share = weights / weights.max()
        return any(
            ray.is_flat and -float(share @ ray.s[exponents]) > FALL
            for ray in rays.rays(question, *asked, data, flat=True)
        )


def _is_rounding(reduction: Reduction, data: Outer, point: Iterate) -> bool:
    """Whether only linear rows are violated, and by no more than rounding."""
    constraints, residuals = reduction.form.outer.constraints, representer.residuals(reduction.form, point)
    violated = [c for c, residual in zip(constraints, residuals, strict=True) if residual.any()]
    linear = all(part.is_affine() for c in violated for part in c.args if not isinstance(part, list))
    return linear and projection.is_met(reduction, data.form, point)


def _guides(reduction: Reduction, latest: Lower | None) -> dict[Theta, Guide]:
    """ν of each θ with rows, and Qν where the certificate's pass gave it."""
    found: dict[Theta, Guide] = {}
    if latest is None or not latest.multipliers:
        return found
    products = latest.products or (None,) * len(latest.multipliers)
    for link, m, product in zip(reduction.form.predictions, latest.multipliers, products, strict=True):
        width = sum(m.widths)
        found[link.theta] = Guide(m.stack[:, :width], None if product is None else product[:, :width])
    return found


def _that_cost(data: ConicForm, exponents: Ints) -> Array:
    """1 for exponential cones with an auxiliary variable that costs something, else 0: a loss without weight may go
    where it will."""
    costs = (data.c != 0) | (data.P > 0)
    costs[np.concatenate([data.linked, data.y])] = False
    touched = (abs(data.A) @ costs.astype(float) > 0).astype(float)
    return np.asarray(np.maximum.reduce([touched[exponents + j] for j in range(3)]))


def _grows(pieces: Separable) -> bool:
    """Whether the sum grows along the one y that there is, both ways; False where that is not known."""
    with np.errstate(invalid="ignore"):
        if any(isinstance(piece, LogSumExp) for piece in pieces.pieces):
            return False
        return len(pieces.y) == 1 and all(pieces.growth(np.array([d])) > GROWING for d in (1.0, -1.0))


def _has_faded(point: Iterate, pieces: Separable) -> bool:
    """Whether some exponential or logistic piece is all but zero at a point."""
    y = point.y_flat
    if len(y) != len(pieces.y):
        return True  # auxiliary variables among them: unknown
    s = pieces.arguments(point.u_flat, y)
    exponentials = [piece for piece in pieces.pieces if isinstance(piece, Exponential)]
    return any(bool(np.any(p.rate * s[p.at] + p.shift < FADED)) for p in exponentials)


def _broken(solvers: list[str], last: SolverError) -> SolverError:
    return SolverError(
        f"No solver found a point; {', '.join(solvers)} were tried. Change units, so that data, targets and the "
        f"objective have sizes of about 1, or see what a solver says with verbose=True. The last one: {last}"
    )


def _size(values: list[Any]) -> float:
    """The largest finite entry."""
    sizes = [float(np.abs(v).max(initial=0.0)) for v in values if v is not None]
    return max((s for s in sizes if isfinite(s)), default=0.0)


_NOTHING = (Status.INFEASIBLE, Status.UNBOUNDED)
