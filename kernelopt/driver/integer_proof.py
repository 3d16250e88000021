"""A proven bound of mixed-integer problems: branch and bound whose boxes are solved and certified as convex problems.

On a box lower ≤ z ≤ upper of the integers, the relaxation is the stated problem with z = lower + (upper − lower)∘t and
0 ≤ t ≤ 1, for every θ. The certificate of its answer bounds all integer points of the box from below; the least bound
of boxes that hold all integers bounds the optimum. A box is cut while its bound is below the value of the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, isfinite

import cvxpy as cp
import numpy as np

from kernelopt.certificate import FULL, Certificate, Request, certify
from kernelopt.compiler import integers, representer
from kernelopt.compiler.attributes import dense
from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.outer import Outer, outer_of
from kernelopt.compiler.representer import Reduction
from kernelopt.driver.mixed_integer import ProvenBound
from kernelopt.driver.strategy import Goal, Outcome, Task
from kernelopt.errors import DataError, MemoryLimitError, SolverError
from kernelopt.results.solution import Status
from kernelopt.solvers import choice, engines
from kernelopt.solvers.branch_and_bound import Relaxed, search
from kernelopt.solvers.engines import OURS, Start
from kernelopt.support import clock
from kernelopt.support.types import Array

BOXES = 100  # boxes without a time limit: .1 s each at 200 rows. With a limit, they take what is left of it
MET = "constraints met to"
UNSOLVED = 3  # boxes that no solver solves to the gap that is left: after so many, more of them follow
SHARE = 0.1  # of tol: the gap of each box

# Solves and certifies a convex problem.
Solve = Callable[[Reduction, Outer, Goal, Start | None], Outcome]


@dataclass(frozen=True, eq=False)
class Boxed:
    """The relaxation of a form, whose box is set by parameters."""

    form: CanonicalForm
    z: cp.Variable
    origin: cp.Parameter
    width: cp.Parameter
    lower: Array
    upper: Array


def boxed(form: CanonicalForm) -> Boxed | None:
    """The relaxation; None for integers without bounds, and for problems that cvxpy's atoms do not state alone."""
    found = integers.relaxation(form.outer)
    if form.smooth or not np.isfinite(found.lower).all() or not np.isfinite(found.upper).all():
        return None
    n = len(found.lower)
    t, origin, width = cp.Variable(n), cp.Parameter(n), cp.Parameter(n, nonneg=True)
    rows = [found.z == origin + cp.multiply(width, t), t >= 0, t <= 1]
    outer = cp.Problem(found.problem.objective, [*found.problem.constraints, *rows])
    return Boxed(replace(form, outer=outer, smooth=()), found.z, origin, width, found.lower, found.upper)


def proven(task: Task, value: float, gap: float, solve: Solve) -> ProvenBound | None:
    """The bound for an answer with this minimized value, of which a gap is left; None where no box has a bound."""
    found = boxed(task.reduction.form)
    if found is None:
        return None
    run = _Boxes(found, task, gap, solve)
    searched = search(run.relaxed, found.lower, found.upper, lambda _: gap, known=value)
    return ProvenBound(searched.bound, run.number, tuple(run.rests_on)) if isfinite(searched.bound) else None


class _Boxes:
    """Relaxations, one after the other."""

    def __init__(self, boxed: Boxed, task: Task, gap: float, solve: Solve) -> None:
        self.boxed, self.goal, self.gap, self.solve = boxed, task.goal, gap, solve
        self.reduction = Reduction(boxed.form, task.reduction.factors)
        self.outer: Outer | None = None
        self.start: Start | None = None
        self.number, self.unsolved, self.rests_on = 0, 0, dict[str, None]()

    def relaxed(self, lower: Array, upper: Array) -> Relaxed:
        """The relaxation on a box. Raises OutOfTimeError where no more boxes are looked at."""
        most = inf if isfinite(self.goal.deadline) else BOXES
        if self.number >= most or self.unsolved >= UNSOLVED or self.goal.seconds_left() <= 0:
            raise clock.OutOfTimeError
        self.number += 1
        self.boxed.origin.value, self.boxed.width.value = lower, upper - lower
        goal = replace(
            self.goal, tol=SHARE * self.goal.tol, options={}, own_options=False, known=None, progress=False, aim=0.0,
            products=False,
        )  # fmt: skip
        try:
            self.outer = outer_of(self.boxed.form, self.outer)
            found = self._at_once(self.outer, goal) or self._by_all_solvers(self.outer, goal)
        except (SolverError, DataError, MemoryLimitError):
            found = Relaxed(Status.USER_LIMIT)
        self.unsolved += found.status != Status.INFEASIBLE and not found.value - found.bound <= self.gap
        return found

    def _at_once(self, outer: Outer, goal: Goal) -> Relaxed | None:
        """The relaxation by the first solver, where that is ours: its multipliers are all that counts."""
        form = self.boxed.form
        names = choice.candidates(lambda: self.reduction.inner.problem, form, outer)
        name = choice.ordered(names, form, outer, self.reduction.size)[0]
        if name not in OURS:
            return None
        try:
            answer = engines.solve(self.reduction, outer, name, goal.tol, goal.deadline, self.start)
        except SolverError:
            return None
        if answer.interrupted:
            raise KeyboardInterrupt
        if answer.status != Status.OPTIMAL or answer.point is None:
            return None
        self.start = answer.left_off or self.start
        point = representer.evaluate(self.reduction, answer.point, answer.predictions)
        found = certify(self.reduction, outer, point, Request(tol=goal.tol, rows=answer.rows))
        return self._relaxed(answer.status, point, found) if isfinite(_least(found)) else None

    def _by_all_solvers(self, outer: Outer, goal: Goal) -> Relaxed:
        """The relaxation as any convex problem, with its status."""
        outcome = self.solve(self.reduction, outer, goal, self.start)
        if outcome.interrupted:
            raise KeyboardInterrupt
        status, found = outcome.solution.status, outcome.solution.certificate
        if found is None or outcome.point is None:
            proven = status == Status.INFEASIBLE and not representer.may_lack(self.reduction)
            return Relaxed(Status.INFEASIBLE if proven else Status.USER_LIMIT)
        return self._relaxed(status, outcome.point, found)

    def _relaxed(self, status: Status, point: Iterate, found: Certificate) -> Relaxed:
        bound, box = _least(found), self.boxed
        told = (fact for fact in found.rests_on if not fact.startswith(MET))  # by the point, on which no bound rests
        self.rests_on |= dict.fromkeys(told if isfinite(bound) else ())
        place = next(k for k, y in enumerate(box.form.y) if y.id == box.z.id)
        value = -found.lower if found.maximize else found.upper
        lower, upper = box.origin.value, box.origin.value + box.width.value
        return Relaxed(status, np.clip(dense(point.y[place]), lower, upper), value, bound)


def _least(found: Certificate) -> float:
    """The proven lower bound of a minimized relaxation, for every θ; −∞ where there is none."""
    if found.scope != FULL or found.assumptions:
        return -inf
    return -found.upper if found.maximize else found.lower
