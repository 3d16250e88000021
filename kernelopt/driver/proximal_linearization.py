"""Nonconvex losses beside constraints, losses with kinks and any norms: convex models, each with its certificate.

At a point θₖ, losses that are declared nonconvex are replaced by convex models with their values and slopes there (see
`compiler.linearization`). The optimum of the model is the next point where the stated objective falls; where it does
not fall by a share of what the model promises, the damping of the model rises. The certificate of the last model proves
stationarity: F(θₖ) less the model's lower bound is what any step can gain, to first order and beyond the damping.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, isfinite, nan

import numpy as np

from kernelopt.certificate import FULL, Certificate
from kernelopt.compiler import linearization, representer, violations
from kernelopt.compiler.attributes import dense
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.linearization import ConvexModel
from kernelopt.compiler.outer import Outer, outer_of
from kernelopt.compiler.representer import Reduction
from kernelopt.compiler.residuals import FEASIBLE
from kernelopt.driver import convex
from kernelopt.driver.local_optima import LocalOptima
from kernelopt.driver.strategy import Goal, Outcome, Plan, Task, attempted, without_answer
from kernelopt.results.solution import Attempt, Status
from kernelopt.solvers import choice, cvxpy_solvers
from kernelopt.solvers.engines import Start
from kernelopt.support import clock
from kernelopt.support.types import Array

STEPS = 200  # models at most, far more than usual; then the last point is returned
# Dampings, relative to the largest curvature of the loss. Below LEAST, models are those of Newton's method where losses
# are convex; at LARGEST steps are as short as rounding. The first is that of Levenberg and Marquardt's method.
LEAST, FIRST, LARGEST = 1e-6, 0.1, 1e12
FACTOR = 4.0  # of successive dampings, as in `solvers.nonconvex`
GOOD, POOR = 0.75, 0.25  # ratios of actual to promised decreases, as there
# Dampings up to which a small promise of the model counts: stronger ones promise little anywhere.
MODERATE = 1.0
FINEST = 1e-13  # relative to the models' P₀ − P: a smaller gap is beyond double precision
ROUNDED = 1e-8  # of the stated problem's unit: the largest allowance for rounding, as `Certificate.floor` has it
SHARE = 0.1  # of tol: the gap of each model, so that the promise is known to a tenth of what counts


@dataclass(frozen=True, eq=False)
class Stationarity:
    """What the model at a point promises: the proven largest decrease of the objective, and the one that the answer of
    the model attains; P₀ − P of the model; and the decrease that is rounding."""

    decrease: float
    attained: float
    unit: float
    rounding: float

    @property
    def relative(self) -> float:
        """The decrease relative to P₀ − P, as `Certificate.relative_gap`."""
        if self.decrease <= self.rounding:
            return 0.0
        return self.decrease / self.unit if self.unit > 0 else inf

    def holds(self, tol: float) -> bool:
        return self.relative <= tol

    def is_known(self, tol: float) -> bool:
        """Whether a more accurate model could promise no more: what is left is its own gap."""
        return self.attained <= max(tol * self.unit, self.rounding)


@dataclass(frozen=True, eq=False)
class LocalPoint:
    """A point of the stated problem with its minimized value, ∞ where a constraint is violated.

    unit : the size of the value and of its improvement on θ = 0 with the same y; the models' own P₀ − P may be far
    larger, where predictions are far from 0
    """

    point: Iterate
    value: float
    unit: float


@dataclass(frozen=True, eq=False)
class EndOfModels:
    """The last point, the outcome of the model that led there, and the number of models.

    stationarity : what the model at the point promises, if that is little
    """

    here: LocalPoint
    outcome: Outcome | None
    stationarity: Stationarity | None
    models: int
    interrupted: bool = False

    @property
    def promised(self) -> float:
        return nan if self.stationarity is None else self.stationarity.relative

    def holds(self, tol: float) -> bool:
        return self.stationarity is not None and self.stationarity.holds(tol)


class Linearized:
    """The models of one reduction, which differ in their data alone."""

    def __init__(self, task: Task) -> None:
        self.task = task
        form = task.reduction.form
        self.model: ConvexModel = linearization.model_of(form)
        self.reduction = Reduction(self.model.form, task.reduction.factors)
        self.outer: Outer | None = None
        self.names: list[str] = []
        self.start: Start | None = None

    def here(self, point: Iterate) -> LocalPoint:
        """A point of the stated problem, evaluated."""
        task = self.task
        found = representer.evaluate(task.reduction, point)
        feasible = violations.violation(task.reduction, found, task.data_unit) <= FEASIBLE
        value = task.sign * found.value
        nothing = replace(point, v=tuple(np.zeros_like(v) for v in point.v))
        at_zero = task.sign * representer.evaluate(task.reduction, nothing).value
        sizes = [abs(value - task.sign * task.reduction.form.constant), abs(at_zero - value)]
        unit = max(size for size in [*sizes, 0.0] if isfinite(size))
        return LocalPoint(found, value if feasible and isfinite(value) else inf, unit)

    def solved(self, here: LocalPoint, damping: float, goal: Goal) -> Outcome:
        """The model at a point, solved and certified. Raises SolverError where no solver takes it."""
        linearization.linearize(self.model, self.task.reduction.form, here.point, damping)
        self.outer = outer_of(self.model.form, self.outer)
        if not self.names:
            form, factors = self.model.form, representer.thin_factors(self.model.form)
            self.names = choice.candidates(lambda: representer.substitute(form, factors).problem, form, self.outer)
        work = convex.begin(self.outer, self.names, self.reduction, goal, self.start)
        outcome = attempted(work)
        self.start = outcome.left_off or self.start
        return outcome

    def moved(self, outcome: Outcome) -> LocalPoint | None:
        """The point of a model's outcome in the stated problem; None where there is none."""
        if outcome.point is None:
            return None
        form = self.task.reduction.form
        point = linearization.as_stated(self.model, form, outcome.point)
        return self.here(point)

    def promise(self, here: LocalPoint, outcome: Outcome) -> Stationarity | None:
        """What the model at a point promises; None without a certificate."""
        found = outcome.solution.certificate
        if found is None:
            return None
        decrease = max(here.value - _least(found), 0.0)
        attained = max(decrease - found.absolute_gap, 0.0)
        if found.scope != FULL or found.assumptions:
            decrease = inf  # the bound is for θ in the factor's span, or rests on more than the statement
        rounding = min(found.floor, ROUNDED * here.unit)  # that of the model's P₀ is none of the stated problem
        return Stationarity(decrease, attained, min(found.unit, here.unit), rounding)


def _least(found: Certificate) -> float:
    """The proven lower bound of the minimized model."""
    return -found.upper if found.maximize else found.lower


def solve(run: Linearized, point: Iterate) -> EndOfModels:
    """Models from one starting point, until the one at the last point promises no more than tol, or a limit is reached.

    The optimum of the first model that promises so little is more accurate, and is the last point where its own model
    promises no more, too.
    """
    goal = run.task.goal
    inner = replace(goal, tol=SHARE * goal.tol, n_init=1, certify=True, known=None, aim=0.0, products=False)
    here, damping, last, promised, near = run.here(point), FIRST, None, None, False
    finer = 1.0  # by which the models' tolerances, relative to their own P₀ − P, fall below the stated problem's
    for number in range(1, STEPS + 1):
        outcome = run.solved(here, damping, replace(inner, tol=max(finer * inner.tol, FINEST)))
        new = run.moved(outcome)
        if outcome.interrupted or new is None:
            return EndOfModels(here, last or outcome, None, number, outcome.interrupted)
        promised = run.promise(here, outcome) if isfinite(here.value) else None
        finer = _finer(new, outcome.solution.certificate)
        settled = promised is not None and damping <= MODERATE and promised.holds(goal.tol)
        gained = here.value - new.value if isfinite(here.value) else inf if isfinite(new.value) else 0.0
        share = gained / promised.attained if promised is not None and promised.attained > 0 else 1.0
        if settled and (near or gained <= 0):
            return EndOfModels(here, outcome, promised, number)
        near = settled
        if gained > 0:
            here, last = new, outcome
        known = promised is not None and damping <= MODERATE and promised.is_known(SHARE * goal.tol)
        if known and not settled:
            return EndOfModels(here, outcome, None, number)  # the rest of the promise is the gap of the model
        if gained <= 0 or share < POOR:
            damping *= FACTOR
        elif share >= GOOD:
            damping = max(damping / FACTOR, LEAST)
        if damping > LARGEST or clock.now() >= goal.deadline:
            break
    return EndOfModels(here, last, None, number)


def _finer(here: LocalPoint, found: Certificate | None) -> float:
    """The unit of the stated problem relative to that of a model; 1 at most."""
    return 1.0 if found is None or not found.unit > here.unit > 0 else here.unit / found.unit


def stationarity(reduction: Reduction, outer: Outer, point: Iterate, tol: float) -> Stationarity | None:
    """What a model of moderate damping promises at a point of the stated problem."""
    task = Task(reduction, outer, Goal(SHARE * tol))
    run = Linearized(task)
    here = run.here(point)
    if not isfinite(here.value):
        return None
    outcome = run.solved(here, MODERATE, task.goal)
    finer = _finer(here, outcome.solution.certificate)
    if finer < 1:
        outcome = run.solved(here, MODERATE, replace(task.goal, tol=max(finer * task.goal.tol, FINEST)))
    return run.promise(here, outcome)


class ByModels(LocalOptima):
    """Starts, the point where each ends, and the best of these."""

    def __init__(self, task: Task, outer: Outer, start: Start | None) -> None:
        super().__init__(task, outer, choice.LINEARIZED, start)
        self.run = Linearized(task)
        self.found: EndOfModels | None = None

    def attempt(self, plan: Plan) -> None:
        """Raises SolverError where no solver takes the models."""
        began, task = clock.now(), self.task
        found = solve(self.run, self._begun(plan.start))
        self.last = replace(cvxpy_solvers.nothing(plan.solver), interrupted=found.interrupted)
        if self.found is None or found.here.value < self.found.here.value:
            self.found, self.best = found, (found.here.value, self.last, found.here.point)
        ranks = tuple(f.rank for f in task.reduction.factors.values())
        claimed = "locally_optimal" if found.holds(task.goal.tol) else str(Status.USER_LIMIT)
        self.attempts.append(Attempt(plan.solver, plan.tol, None, ranks, claimed, found.promised, clock.now() - began))

    def _begun(self, start: Start | None) -> Iterate:
        """The point of a start, 0 without one."""
        form, factors = self.task.reduction.form, self.task.reduction.factors
        columns = iter(() if start is None else start.v)
        v = []
        for link in form.predictions:
            rank, outputs = factors[link.theta].rank, link.theta.outputs
            parts = [next(columns, np.zeros(rank)) for _ in range(outputs or 1)]
            parts = [np.pad(part, (0, rank - len(part))) for part in parts]  # columns that were added since
            v.append(parts[0] if outputs is None else np.column_stack(parts))
        known, y, at = self._y() if start is None else start.y, [], 0
        for variable in form.y:
            y.append(np.reshape(known[at : at + variable.size], variable.shape, order="F"))
            at += variable.size
        return Iterate(tuple(v), tuple(y), nu=(None,) * len(v))

    def _y(self) -> Array:
        """The values of all of y that the user has set, 0 elsewhere: no columns of a structured problem."""
        form = self.task.reduction.form
        known = zip(form.y, form.users_values(), strict=True)
        parts = [np.zeros(y.size) if value is None else np.ravel(dense(value), order="F") for y, value in known]
        return np.concatenate([np.zeros(0), *parts])

    def outcome(self) -> Outcome:
        """The best point. Where a model has no answer, nor has the stated problem, whose constraints are the same."""
        found, task = self.found, self.task
        assert found is not None
        last = found.outcome
        if not isfinite(found.here.value):
            status = Status.USER_LIMIT if last is None else last.solution.status
            status = status if status == Status.INFEASIBLE else Status.USER_LIMIT
            stats = cvxpy_solvers.nothing(choice.LINEARIZED).stats
            grows = last is not None and last.may_grow
            return Outcome(without_answer(status, task.sign), tuple(self.attempts), stats, grows)
        duals = {} if last is None or last.point is None else last.point.duals
        solution, point = representer.invert(task.reduction, replace(found.here.point, duals=duals))
        holds = found.holds(task.goal.tol) and not found.interrupted
        status = Status.LOCALLY_OPTIMAL if holds else Status.USER_LIMIT
        may_grow = task.reduction.is_restriction and not holds and last is not None and last.may_grow
        return Outcome(
            replace(solution, status=status, certificate=None), tuple(self.attempts),
            replace(cvxpy_solvers.nothing(choice.LINEARIZED).stats, num_iters=found.models), may_grow, point,
            left_off=self._left(point), interrupted=found.interrupted, guides={} if last is None else last.guides,
        )  # fmt: skip

    def _left(self, point: Iterate) -> Start:
        """The point as a start with another factor."""
        v = [column for part in point.v for column in np.reshape(part, (len(part), -1)).T]
        return Start(tuple(v), point.y_flat)


def begin(outer: Outer, reduction: Reduction, goal: Goal, start: Start | None = None) -> ByModels:
    """The work on one reduction, with `goal.n_init` starts."""
    return ByModels(Task(reduction, outer, goal), outer, start)
