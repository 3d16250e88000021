"""Problems with a nonconvex loss: many starts, the best answer, and the conditions of a local optimum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import nan

import numpy as np
from tqdm.auto import tqdm

from kernelopt.compiler import representer
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.outer import Outer
from kernelopt.compiler.representer import Reduction
from kernelopt.driver.strategy import Goal, Outcome, Plan, Task, Work, without_answer
from kernelopt.kernels.lifts import lift_of
from kernelopt.results.solution import Attempt, Solution, Status
from kernelopt.solvers import assemble, choice, engines
from kernelopt.solvers.cvxpy_solvers import Answer
from kernelopt.solvers.engines import Start
from kernelopt.solvers.nonconvex import FLAT
from kernelopt.support import clock
from kernelopt.support.types import Array

# Largest ‖gradient‖ at a local optimum, relative to its terms and in units of √tol: gaps are of second order in it, so
# that 0.1·√tol goes with a gap of about tol/100.
SHARE = 0.1
# Random starts have predictions from 1/SPREAD to SPREAD times their unit. Larger values reach local optima of other
# sizes, and spend more starts far from the data.
SPREAD = 10.0


@dataclass(frozen=True)
class Conditions:
    """The conditions of a local optimum.

    gradient : relative to its terms, for the full kernel; curvature : the smallest eigenvalue of the Hessian, in units
    of the penalty of θ, for θ in the factor's span
    """

    gradient: float
    curvature: float

    def hold(self, tol: float) -> bool:
        return self.gradient <= SHARE * float(np.sqrt(tol)) and self.curvature >= -FLAT


def conditions(reduction: Reduction, outer: Outer, point: Iterate) -> Conditions:
    """The largest of ‖Aᵀν − Pθ‖ over θs and of |Fᵀv + c| for y, each relative to its terms; and curvature."""
    split, form = outer.split, reduction.form
    assert split is not None
    v = split.derivative(split.arguments(point.u_flat, point.y_flat))
    nu, at, worst = -(split.E.T @ v + split.linear_u), 0, 0.0
    for link, u in zip(form.predictions, point.u, strict=True):
        if link.u is None:
            continue
        total = link.summed(nu[at : at + u.size])
        at += u.size
        predictions = np.zeros_like(total)
        predictions[link.take] = np.reshape(u, (len(link.take), -1))
        j = next(iter(form.norms_of(link.theta)))
        strength, length = float(outer.facts.bends[j]), float(point.t[j])
        square, own_square = float(np.trace(link.rows.quadratic(total))), (strength * length) ** 2
        # ‖Aᵀν − Pθ‖² = νᵀQν − 2P·νᵀAθ + P²‖θ‖², from kernel values: the factor's span would hide part of the gradient.
        left = square - 2 * strength * float(np.sum(total * predictions)) + own_square
        terms = max(square, own_square, float(link.rows.diagonal() @ np.sum(total**2, axis=1)))
        worst = max(worst, float(np.sqrt(max(left, 0.0) / terms)) if terms else 0.0)
    terms_y = abs(split.F).T @ np.abs(v) + np.abs(split.linear_y)
    on_y = np.abs(split.F.T @ v + split.linear_y) / np.where(terms_y > 0, terms_y, 1.0)
    worst = max(worst, float(on_y.max(initial=0.0)))
    return Conditions(worst, engines.smallest_curvature(reduction, outer, point))


def begin(outer: Outer, names: list[str], reduction: Reduction, goal: Goal, start: Start | None = None) -> LocalOptima:
    """The work on one reduction, with `goal.n_init` starts."""
    solver = choice.ordered(names, reduction.form, outer, reduction.size)[0]
    return LocalOptima(Task(reduction, outer, goal), outer, solver, start)


class LocalOptima(Work):
    """Starts, their outcomes, and the best point."""

    def __init__(self, task: Task, outer: Outer, solver: str, start: Start | None) -> None:
        self.task, self.outer, self.solver, self.start = task, outer, solver, start
        self.attempts: list[Attempt] = []
        self.best: tuple[float, Answer, Iterate] | None = None
        self.last: Answer | None = None
        self.random = np.random.default_rng(task.goal.random_state)

    def plans(self) -> Iterator[Plan]:
        """The first start is the given one, else `theta.value` with `warm_start`, else zero. Later ones are random."""
        goal = self.task.goal
        for number in tqdm(range(goal.n_init), self.solver, disable=not goal.progress):
            yield Plan(self.solver, goal.tol, None, self._drawn() if number else self._given())
            if self.last is None or self.last.interrupted or goal.seconds_left() <= 0:
                return

    def attempt(self, plan: Plan) -> None:
        """Raises SolverError where the solver does not take the problem."""
        task, began = self.task, clock.now()
        answer = self.last = engines.solve(
            task.reduction, self.outer, plan.solver, plan.tol, task.goal.deadline, plan.start, task.goal.verbose
        )
        if answer.has_point:
            assert answer.point is not None
            point = representer.evaluate(task.reduction, answer.point)
            value = task.sign * point.value
            if self.best is None or value < self.best[0]:
                self.best = value, answer, point
        ranks = tuple(f.rank for f in task.reduction.factors.values())
        claimed = "locally_optimal" if answer.status == Status.OPTIMAL else str(answer.status)
        self.attempts.append(Attempt(plan.solver, plan.tol, None, ranks, claimed, nan, clock.now() - began))

    def outcome(self) -> Outcome:
        """The best point, and whether it is locally optimal. If not, a finer factor may help where θ is restricted."""
        assert self.last is not None
        if self.best is None:
            nothing = without_answer(Status.USER_LIMIT, self.task.sign)
            return Outcome(nothing, tuple(self.attempts), self.last.stats, False)
        _, answer, point = self.best
        reduction, tol = self.task.reduction, self.task.goal.tol
        solution, point = representer.invert(reduction, point)
        found = conditions(reduction, self.outer, point)
        holds = found.hold(tol) and not self.last.interrupted
        status = Status.LOCALLY_OPTIMAL if holds else Status.USER_LIMIT
        solution = Solution(status, solution.value, solution.functions, solution.duals, None)
        may_grow = reduction.is_restriction and not holds and answer.status == Status.OPTIMAL
        return Outcome(
            solution, tuple(self.attempts), answer.stats, may_grow, point, answer.left_off, self.last.interrupted
        )

    # ------------------------------------------------------------ starts

    def _given(self) -> Start | None:
        return self.start or (self._present() if self.task.goal.options.get("warm_start") else None)

    def _present(self) -> Start | None:
        """θ and y as the user or an earlier solve has set them; None where some θ has no value."""
        v: list[Array] = []
        for link in self.task.reduction.form.predictions:
            f, B = link.theta.value, self.task.reduction.factors[link.theta].matrix
            if f is None:
                return None
            f = f if f._kernel == link.rows.kernel else f._lifted(lift_of(link.rows.kernel))
            predictions = link.rows.predictions(f).reshape(len(B), -1)
            v += list(B.least_squares(predictions).T)
        return Start(tuple(v), self._y())

    def _drawn(self) -> Start:
        """Random functions Bv, with v standard normal, times the larger of the sizes of data and best predictions."""
        unit = self.outer.units[0]
        if self.best is not None:
            unit = max(unit, self.best[2].prediction_unit())
        unit *= SPREAD ** self.random.uniform(-1, 1)
        v: list[Array] = []
        for link in self.task.reduction.form.predictions:
            rank = self.task.reduction.factors[link.theta].rank
            v += list(unit * self.random.standard_normal((link.theta.outputs or 1, rank)))
        return Start(tuple(v), self._y())

    def _y(self) -> Array:
        """The values of y that the user has set, 0 elsewhere."""
        return assemble.vector_of_y(self.outer, self.task.reduction.form.users_values())
