"""Solve a reduced problem, and don't believe the answer until its certificate closes.

A solver that falls short is asked again with tighter tolerances and in other units, then another solver is asked. A
claim that there is no answer is believed only with a Farkas vector or a ray.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf, isfinite, nan
from time import perf_counter
from typing import Any

import numpy as np

from kernelopt import certificate as certificates
from kernelopt.certificate import ESTIMATE, FULL, REDUCED, Certificate
from kernelopt.certificate.report import Lower
from kernelopt.compiler import feasibility, integers, projection, representer
from kernelopt.compiler.conic_form import ConicForm
from kernelopt.compiler.feasibility import Question
from kernelopt.compiler.pieces import Exponential, LogSumExp
from kernelopt.compiler.representer import FEASIBLE, Reduction
from kernelopt.compiler.separable import Outer, Separable, outer_of
from kernelopt.errors import DataError, MemoryLimitError, SolverError
from kernelopt.factorization import Guide, memory
from kernelopt.factorization.dense import ProjectedFactor
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

    `restore` puts its values back on the variables, after another attempt has used them. `guides` say how a factor
    should grow; the answer is `inexact` where the solver is to blame for most of the gap.
    """

    solution: Solution
    attempts: tuple[Attempt, ...]
    stats: Any
    may_grow: bool
    restore: Callable[[], None] = lambda: None
    left_off: Start | None = None
    interrupted: bool = False
    guides: Mapping[Theta, Guide] = field(default_factory=dict)
    inexact: bool = False


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A feasible point, the values that make it up, and what is known about it."""

    gap: float
    closed: bool
    limited: bool
    values: tuple[tuple[Any, Any], ...]
    duals: tuple[tuple[Any, Any], ...]
    answer: cvxpy_solvers.Answer

    def restore(self) -> None:
        """Put the values back on the reduced problem."""
        for variable, value in self.values:
            variable.save_value(value)
        for dual, value in self.duals:
            dual.save_value(value)


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
        search.best.restore()
        return search.judged(search.best)
    status = search.diagnosed if search.diagnosed in _NOTHING else Status.USER_LIMIT
    assert status is not None
    grows = status == Status.USER_LIMIT and reduction.is_restriction
    solution, guides = search.without_answer(status), search.guides if grows else {}
    return Outcome(solution, tuple(search.attempts), search.stats, grows, guides=guides)


def certify_elsewhere(reduction: Reduction, known: Certificate) -> Certificate:
    """A certificate for the values that parameters have now, from the θ and multipliers of an answer for others."""
    data = outer_of(reduction.form)
    for smooth in reduction.form.smooth:
        smooth.place()
    feasible = representer.violation(reduction, data.form.data_unit) <= FEASIBLE
    value = float(reduction.form.outer.objective.value) if feasible else inf * data.form.sign
    found = certificates.certify_again(reduction, data, value, known)
    if found is None or (not isfinite(found.absolute_gap) and feasible):
        found = certificates.certify(reduction, data, value, known.scope)
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
        self.fixed: tuple[Reduction, Outer, tuple[Attempt, ...]] | None = None
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

    def _units(self) -> Units | None:
        """The sizes of the predictions and multipliers that a solver has left."""
        links = [link for link in self.reduction.form.predictions if link.u is not None]
        u = representer.prediction_unit(self.reduction.form, self.data_unit)
        constraints = [self.reduction.links[link.theta] for link in links]
        nu = _size([c.dual_value for c in constraints if c is not None])
        return (u, nu) if u > 0 and nu > 0 else None

    def _attempt(self, solver: str, tol: float, units: Units | None) -> None:
        start = perf_counter()
        seconds = self.goal.seconds_left()
        if self.attempts and not isfinite(seconds):
            seconds = max(LEAST_PATIENCE, PATIENCE * (self.attempts[0].seconds or 0.0))
        answer = self._answer(solver, tol, units, seconds)
        self.stats = answer.stats
        gap = nan
        self.units = self._units() if answer.has_point else None
        if answer.has_point:
            if not self.continuous:
                self._settle_integers()
            value = representer.evaluate(self.reduction)
            feasible = representer.violation(self.reduction, self.data_unit) <= FEASIBLE
            feasible = feasible and isfinite(value)
            if self.data is None:
                candidate = self._candidate(answer, 0.0 if feasible else inf, False)
            else:
                found = certificates.certify(
                    self.reduction, self.data, value, REDUCED, slopes=answer.slopes, check=False
                )
                gap = found.relative_gap
                closed = found.closes(self.goal.solver_tol, self.goal.abs_tol)
                closed = closed or found.absolute_gap <= LAST_DIGITS * found.terms  # no solver has more of them
                if self._is_receding(found, self.data):
                    self.diagnosed = Status.NOT_ATTAINED
                candidate = self._candidate(answer, found.absolute_gap, closed)
            if feasible and (self.best is None or candidate.gap < self.best.gap):
                self.best = candidate
        elif answer.status in (Status.INFEASIBLE, Status.UNBOUNDED):
            self.claims.add(answer.status)
        self._log((solver, tol, units), str(answer.status), gap, perf_counter() - start)
        self.attempts += self.fixed[2] if self.fixed is not None else ()
        if answer.status in _NOTHING:
            self._question()
            proven = answer.status == Status.UNBOUNDED or not representer.may_lack(self.reduction, for_a_point=True)
            if not self.continuous and proven:
                self.diagnosed = answer.status  # a mixed-integer solver's word is all there is

    def _settle_integers(self) -> None:
        """Fix integers at their rounded values, and solve the rest as the convex problem that it is, with all that is
        done to meet constraints; round only, where that leads nowhere."""
        before = [(v, v.value) for v in self.reduction.problem.variables()]
        self.fixed, fixed = None, integers.fixed(self.reduction.form)
        goal = replace(
            self.goal, certify=self.goal.certify or ESTIMATE, options={}, own_options=False, known=None,
            progress=False, products=False,
        )  # fmt: skip
        try:
            outer = outer_of(fixed.form)
            rest = representer.reduce(fixed.form, self.reduction.factors)
            names = choice.candidates(rest.problem, fixed.form, outer)
            outcome = pursue(outer, names, rest, goal)
        except (SolverError, DataError, MemoryLimitError):
            outcome = None
        if outcome is not None and outcome.solution.value is not None and isfinite(outcome.solution.value):
            outcome.restore()
            for theta, v in rest.v.items():
                known = self.reduction.v[theta]
                if v is not None and known is not None:
                    known.save_value(v.value)
            fixed.save()
            self.fixed = rest, outer, outcome.attempts
            return
        for variable, value in before:
            variable.save_value(value)
        representer.round_integers(self.reduction, self.data_unit)

    def _answer(self, solver: str, tol: float, units: Units | None, seconds: float) -> cvxpy_solvers.Answer:
        """What a solver says; the point is on the reduction's variables."""
        goal = self.goal
        if solver in ENGINES:
            if self.outer is None:
                raise SolverError(f"{solver} takes no integer variables.")
            verbose, deadline = bool(goal.options.get("verbose")), perf_counter() + seconds
            return engines.solve(self.reduction, self.outer, solver, tol, deadline, self.start, verbose, goal.progress)
        entries = sum(f.B.size * (theta.outputs or 1) for theta, f in self.reduction.factors.items())
        memory.require(COMPILED_BYTES * entries, "Compiling and solving the reduced problem", goal.memory_limit)
        return cvxpy_solvers.solve(
            self.reduction.problem, solver, tol, goal.options, units,
            seconds if isfinite(seconds) else None, [v for v in self.reduction.v.values() if v is not None],
        )  # fmt: skip

    def _candidate(self, answer: cvxpy_solvers.Answer, gap: float, closed: bool) -> _Candidate:
        problem = self.reduction.problem
        limited = answer.status == Status.USER_LIMIT
        return _Candidate(
            gap, closed, limited,
            tuple((v, v.value) for v in problem.variables()),
            tuple((d, d.value) for c in problem.constraints for d in c.dual_variables),
            answer,
        )  # fmt: skip

    def _log(self, run: tuple[str, float, Units | None], claimed: str, gap: float, seconds: float) -> None:
        solver, tol, units = run
        ranks = tuple(f.rank for f in self.reduction.factors.values())
        self.attempts.append(Attempt(solver, tol, units, ranks, claimed, gap, seconds))

    # ------------------------------------------------------------ what an answer is worth

    def judged(self, best: _Candidate) -> Outcome:
        """The best point with its certificate, and the status that follows from it."""
        goal, reduction = self.goal, self.reduction
        projected = any(isinstance(f, ProjectedFactor) for f in reduction.factors.values())
        read_off = all(f.is_exact for f in reduction.factors.values()) and not reduction.is_restriction
        afresh = not read_off and not projected and goal.certify is True and self.continuous
        stopped = best.answer.interrupted
        try:
            solution, feasible = self._inverted(afresh)
        except KeyboardInterrupt:
            solution, stopped = representer.invert(reduction, Status.OPTIMAL, from_kernel=False), True
            feasible = representer.violation(reduction, self.data_unit) <= FEASIBLE
        best = replace(best, values=tuple((v, v.value) for v, _ in best.values))
        if self.data is None:
            trusted = not self.continuous and feasible and best.answer.status == Status.OPTIMAL
            trusted = trusted and representer.has_integers(reduction) and not representer.may_lack(reduction)
            trusted = trusted and self._meets_the_rest()
            status = Status.OPTIMAL if trusted else Status.OPTIMAL_INACCURATE
            status = Status.USER_LIMIT if best.limited else status
            return self._outcome(best, replace(solution, status=status), may_grow=False)
        found, stopped = self._certified(best.answer, self.data, _attained(solution), stopped)
        if self._zero_is_better(found, solution) or self._is_nearly_zero(found, solution):
            solution = representer.invert(reduction, Status.OPTIMAL, from_kernel=False)
            best = replace(best, values=tuple((v, v.value) for v, _ in best.values))
            found, stopped = self._certified(best.answer, self.data, _attained(solution), stopped, found.evidence)
        if certificates.AS_COMPUTED in found.rests_on:  # predictions are now exact sums
            solution = representer.invert(reduction, Status.OPTIMAL, exactly=True)
        solution = replace(solution, certificate=replace(found, latest=None))
        for theta, function in solution.functions.items():
            function._distance = found.distance.get(theta)
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
        may_grow = (reduction.is_restriction or inexact) and best.closed and not closed and goal.certify is True
        outcome = self._outcome(best, replace(solution, status=status), may_grow and status != Status.NOT_ATTAINED)
        guides = _guides(reduction, found.latest)
        return replace(outcome, guides=guides, inexact=inexact, interrupted=stopped)

    def _inverted(self, afresh: bool) -> tuple[Solution, bool]:
        """The solution at v, moved into constraints that it meets only nearly, and whether it is feasible."""
        reduction, data = self.reduction, self.data
        solution = representer.invert(reduction, Status.OPTIMAL, from_kernel=afresh)
        violation = representer.violation(reduction, self.data_unit)
        for _ in range(MOVES):
            if data is None or not 0 < violation <= FEASIBLE:
                break
            before = [(v, v.value) for v in reduction.problem.variables()]
            if not projection.moved(reduction, data.form):
                break
            nearer = representer.invert(reduction, Status.OPTIMAL, from_kernel=afresh)
            left = representer.violation(reduction, self.data_unit)
            if not left < violation or not self._is_as_good(nearer, solution):
                for variable, value in before:
                    variable.save_value(value)
                solution = representer.invert(reduction, Status.OPTIMAL, from_kernel=afresh)
                break
            solution, violation = nearer, left
        if data is not None and ROUNDING < violation <= FEASIBLE and not _is_rounding(self.reduction, data):
            return self._scaled(solution, violation, afresh)
        return solution, violation <= FEASIBLE

    def _meets_the_rest(self) -> bool:
        """Whether constraints hold to rounding, with integers fixed."""
        if self.fixed is None:
            return False
        reduction, outer, _ = self.fixed
        representer.evaluate(reduction)
        return representer.violation(reduction, outer.form.data_unit) <= ROUNDING or _is_rounding(reduction, outer)

    def _scaled(self, solution: Solution, violation: float, afresh: bool) -> tuple[Solution, bool]:
        """θ and y a little longer or shorter where that meets the constraints, as it does margins and bounds."""
        reduction = self.reduction
        ours = [v for v in (*reduction.v.values(), *reduction.form.y) if v is not None]
        before = [(v, v.value) for v in ours]
        for step in (s * n * violation for n in STEPS for s in (1.0, -1.0)):
            for variable, value in before:
                variable.save_value((1 + step) * value)
            nearer = representer.invert(reduction, Status.OPTIMAL, from_kernel=afresh)
            if representer.violation(reduction, self.data_unit) == 0 and self._is_as_good(nearer, solution):
                return nearer, True
        for variable, value in before:
            variable.save_value(value)
        return representer.invert(reduction, Status.OPTIMAL, from_kernel=afresh), True

    def _zero_is_better(self, found: Certificate, solution: Solution) -> bool:
        """Whether θ = 0 beats the answer, with the best y that is known: it is then in place."""
        form, zero = self.reduction.form, (found.bare or found).at_zero
        value = self._bare(_attained(solution))
        if zero is None or self.sign * zero > value or found.closes(self.goal.tol, self.goal.abs_tol):
            return False
        before = [(v, v.value) for v in self.reduction.problem.variables()]
        most = max(representer.violation(self.reduction, self.data_unit), ROUNDING)
        nothing = [(v, np.zeros(v.shape)) for v in self.reduction.v.values() if v is not None]
        for best in (True, False):
            for variable, known in (*before, *nothing):
                variable.save_value(known)
            there = self._bare(representer.evaluate(self.reduction))
            if best and form.y and not form.smooth and cvxpy_solvers.fill_in(form, FINE):
                there = self._bare(representer.evaluate(self.reduction))
            if there < value and representer.violation(self.reduction, self.data_unit) <= most:
                return True
        for variable, known in before:
            variable.save_value(known)
        representer.invert(self.reduction, Status.OPTIMAL, from_kernel=False)
        return False

    def _bare(self, value: float) -> float:
        """The minimized objective without constants at the point that stands on the variables, where it has `value`."""
        bare = self.reduction.form.bare
        return self.sign * (value if bare is self.reduction.form.outer else float(bare.objective.value))

    def _is_nearly_zero(self, found: Certificate, solution: Solution) -> bool:
        """Whether losses and penalties are 0 but for rounding near a point where a solver came close: they then are."""
        assert self.data is not None
        reduction, value, bare = self.reduction, self._bare(_attained(solution)), found.bare or found
        zero = found.absolute_gap <= self.goal.tol * abs(value - self.sign * (bare.at_zero or 0.0))
        if found.closes(self.goal.tol, self.goal.abs_tol) or not zero or not isfinite(found.absolute_gap):
            return False
        before = [(v, v.value) for v in reduction.problem.variables()]
        most = max(representer.violation(reduction, self.data_unit), ROUNDING)
        for _ in range(MOVES):
            if not projection.towards_zero(reduction, self.data.form):
                break
            representer.evaluate(reduction)
            near = representer.violation(reduction, self.data_unit) <= most
            solution = representer.invert(reduction, Status.OPTIMAL, from_kernel=True)  # what θ says
            if near and abs(self._bare(_attained(solution))) < SHARE * value:
                return True
        for variable, known in before:
            variable.save_value(known)
        representer.invert(reduction, Status.OPTIMAL, from_kernel=False)
        return False

    def _is_as_good(self, new: Solution, old: Solution) -> bool:
        """Whether a point that was moved into the constraints has a value nearby."""
        assert self.data is not None
        known = self.sign * (_attained(old) - self.reduction.form.constant)
        size = abs(known - self.data.form.offset) + self.data.form.units[1]
        return isfinite(_attained(new)) and abs(_attained(new) - _attained(old)) <= NEAR * size

    def _certified(
        self, answer: cvxpy_solvers.Answer, data: Outer, value: float, interrupted: bool, known: Lower | None = None
    ) -> tuple[Certificate, bool]:
        """The certificate, and whether it was interrupted: then it is what can be said without a pass over the kernel,
        as where time is over. A `known` lower bound counts beside that of the multipliers."""
        goal, reduction = self.goal, self.reduction
        known = known or goal.known
        if not interrupted:
            try:
                with clock.limited(goal.deadline):
                    found = certificates.certify(
                        reduction, data, value, goal.scope, goal.tol, goal.abs_tol, answer.slopes, known,
                        products=goal.products and any(f.grows for f in reduction.factors.values()),
                    )  # fmt: skip
                return found, False
            except (KeyboardInterrupt, clock.OutOfTimeError) as stop:
                interrupted = isinstance(stop, KeyboardInterrupt)
        known = known if goal.certify is True else None
        return certificates.certify_without_pass(reduction, data, value, answer.slopes, known), interrupted

    def _outcome(self, best: _Candidate, solution: Solution, may_grow: bool) -> Outcome:
        answer = best.answer
        return Outcome(
            solution, tuple(self.attempts), answer.stats, may_grow, best.restore, answer.left_off, answer.interrupted
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
        prices = question.prices({c.id: c.dual_value for c in asked[0].problem.constraints})
        return any(ray.falls(prices) for ray in rays.rays(question, asked[0], self.data.form))

    def _may_be_feasible_beyond(self, data: Outer) -> bool:
        """Whether no violation of this restricted θ proves anything; the guides are then the multipliers that a solver
        of ours gave up with."""
        form = self.reduction.form
        claimed = self.attempts and self.attempts[-1].solver in ENGINES and Status.INFEASIBLE in self.claims
        if not claimed or not self.reduction.is_restriction or feasibility.limits_lengths(form, data.form):
            return False
        nu = certificates.solver_multipliers(self.reduction)
        if not all(np.isfinite(part).all() for part in nu) or not any(part.any() for part in nu):
            return False
        for link, part in zip(form.predictions, nu, strict=True):
            if link.u is not None:
                self.guides[link.theta] = Guide(link.summed(part).reshape(len(link.rows), -1))
        return True

    def _least_violation(self, question: Question | None) -> tuple[float, bool]:
        """The square of the least violation, nan where it is not found, and whether it is proven to be positive."""
        asked = None if question is None else self._ask(question)
        if asked is None:
            return 0.0 if question is None else nan, False
        reduction, violated = asked
        if violated <= RAY_FEASIBILITY**2:
            return violated, False
        found = certificates.certify(reduction, outer_of(reduction.form), violated, FULL)
        proven = not found.assumptions and found.scope == FULL and found.lower > 100 * found.rounding > 0
        if not proven and self.reduction.is_restriction:  # rows that would help most to meet the constraints
            self.guides = _guides(reduction, found.latest)
        return violated, proven

    def _ask(self, question: Question, tol: float = 1e-8, theta: bool = True) -> tuple[Reduction, float] | None:
        """The answer to a question about the problem, with the same factors, or θ = 0; None where there is none to
        rely on."""
        factors = self.reduction.factors
        if not theta:
            factors = {name: replace(f, B=f.B[:, :0], pivots=f.pivots[:0]) for name, f in factors.items()}
        seconds = self.goal.seconds_left()
        try:
            rows = {link.theta: link.rows for link in self.reduction.form.predictions}
            whole = {name: f.in_one_array(rows[name]) for name, f in factors.items() if f.rank}
            reduction = representer.reduce(question.form, {**factors, **whole})
            answer = cvxpy_solvers.solve(
                reduction.problem, "CLARABEL", tol, {}, None, max(seconds, 1.0) if isfinite(seconds) else None
            )
        except (SolverError, MemoryLimitError):
            return None
        return (reduction, representer.evaluate(reduction)) if answer.has_point else None

    def _is_receding(self, found: Certificate, outer: Outer) -> bool:
        """Whether f falls for ever along a direction without reaching its infimum: exponentials that die out."""
        data, pieces = outer.form, outer.split or outer.pieces
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
            faded = pieces is not None and _has_faded(self.reduction, pieces)
            weights = _that_cost(data, exponents)
        question = feasibility.flat_recession(self.reduction.form, data, weights) if faded else None
        asked = None if question is None else self._ask(question, DIRECTION, theta=not only_y)
        if question is None or asked is None or -asked[1] <= FALL:
            return False
        share = weights / weights.max()
        return any(
            ray.is_flat and -float(share @ ray.s[exponents]) > FALL
            for ray in rays.rays(question, asked[0], data, flat=True)
        )


def _is_rounding(reduction: Reduction, data: Outer) -> bool:
    """Whether only linear rows are violated, and by no more than rounding."""
    violated = [c for c in reduction.form.outer.constraints if representer.residual(c).any()]
    linear = all(part.is_affine() for c in violated for part in c.args if not isinstance(part, list))
    return linear and projection.is_met(reduction, data.form)


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


def _has_faded(reduction: Reduction, pieces: Separable) -> bool:
    """Whether some exponential or logistic piece is all but zero at the present point."""
    y = np.concatenate([np.zeros(0), *(np.ravel(v.value, order="F") for v in reduction.form.y)])
    if len(y) != len(pieces.y):
        return True  # auxiliary variables among them: unknown
    s = pieces.arguments(reduction.form.u_values, y)
    exponentials = [piece for piece in pieces.pieces if isinstance(piece, Exponential)]
    return any(bool(np.any(p.rate * s[p.at] + p.shift < FADED)) for p in exponentials)


def _broken(solvers: list[str], last: SolverError) -> SolverError:
    return SolverError(
        f"No solver found a point; {', '.join(solvers)} were tried. Change units, so that data, targets and the "
        f"objective have sizes of about 1, or see what a solver says with verbose=True. The last one: {last}"
    )


def _attained(solution: Solution) -> float:
    """The value of a solution that has a point."""
    assert solution.value is not None
    return solution.value


def _size(values: list[Any]) -> float:
    """The largest finite entry."""
    sizes = [float(np.abs(v).max(initial=0.0)) for v in values if v is not None]
    return max((s for s in sizes if isfinite(s)), default=0.0)


_NOTHING = (Status.INFEASIBLE, Status.UNBOUNDED)
