"""Mixed-integer problems: which of several points counts, and what is known of its optimality.

A point passes through several hands: the solver's own, with integers rounded, solved again with these fixed, and moved
into its constraints. None of these is replaced by a worse one. Integers have no
multipliers: a lower bound is the solver's word, unless boxes of the integers prove it (`integer_proof`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isfinite

from kernelopt import certificate as certificates
from kernelopt.certificate import Certificate
from kernelopt.compiler import projection, representer, violations
from kernelopt.compiler.attributes import dense, rounded
from kernelopt.compiler.integers import Fixed
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.least import least
from kernelopt.compiler.outer import Outer
from kernelopt.compiler.representer import Reduction
from kernelopt.compiler.residuals import FEASIBLE
from kernelopt.driver.strategy import Task
from kernelopt.results.solution import Attempt
from kernelopt.support import clock

# A point that meets constraints to rounding replaces one that violates them by δ ≤ FEASIBLE where it raises the value
# by no more than δ times this, relatively: the price of meeting them. With more it is another answer, worse.
PRICE = 1e3
# In units of the objective's data: what sums of such numbers leave where the optimum is 0.
NOTHING_LEFT = 1e-10


@dataclass(frozen=True, eq=False)
class ProvenBound:
    """A lower bound of the minimized problem, constants included; the boxes that it took; and what it rests on."""

    bound: float
    boxes: int
    rests_on: tuple[str, ...]


@dataclass(eq=False)
class Rest:
    """A mixed-integer problem with its integers fixed, a continuous problem.

    attempts : the runs of solvers on it; answer : what they found, None where all failed
    """

    reduction: Reduction
    outer: Outer
    fixed: Fixed
    attempts: tuple[Attempt, ...] = ()
    answer: Iterate | None = None

    def near(self, task: Task, point: Iterate) -> Iterator[Iterate]:
        """The point with its integers fixed, and the same moved into the constraints."""
        y = tuple(rounded(v, dense(known)) for v, known in zip(task.reduction.form.y, point.y, strict=True))
        yield representer.evaluate(task.reduction, replace(point, y=y))
        for one in projection.nearby(self.reduction, self.outer, self._point(replace(point, y=y))):
            yield self.whole(task, point, one)

    def whole(self, task: Task, point: Iterate, rest: Iterate) -> Iterate:
        """A point of the problem with its integers fixed, as one of the mixed-integer problem."""
        return representer.evaluate(task.reduction, replace(point, v=rest.v, y=self.fixed.whole(rest)))

    def is_better(self, task: Task, new: Iterate, old: Iterate) -> bool:
        """Whether a point of the mixed-integer problem replaces another one."""
        if self._counts(task, new) != self._counts(task, old):
            return self._counts(task, new)
        if not self._counts(task, new):
            return False
        gain = self._value(old) - self._value(new)
        of_new, of_old = self._exactness(new), self._exactness(old)
        if of_new == of_old:
            return gain > 0
        loose = old if of_new > of_old else new
        size = abs(self._value(old) - self.outer.offset) + self.outer.units[1]
        price = PRICE * violations.violation(task.reduction, loose, self.outer.data_unit) * size
        return gain >= -price if loose is old else gain > price

    def moved(self, task: Task, point: Iterate, rest: Iterate) -> Iterator[Iterate]:
        """A point of the problem with its integers fixed, and the same moved into its constraints, as `whole` ones."""
        for one in [rest, *projection.nearby(self.reduction, self.outer, rest)]:
            yield self.whole(task, point, one)

    def _exactness(self, whole: Iterate) -> int:
        """0 where constraints are violated by more than rounding, 1 where by rounding, 2 where they hold."""
        if not self.meets_constraints(whole):
            return 0
        return 2 if violations.violation(self.reduction, self._point(whole), self.outer.data_unit) == 0 else 1

    def meets_constraints(self, whole: Iterate) -> bool:
        """Whether constraints hold to rounding."""
        point = self._point(whole)
        met = violations.violation(self.reduction, point, self.outer.data_unit) <= projection.ROUNDING
        return met or projection.is_rounding(self.reduction, self.outer, point)

    def certificate(self, task: Task, whole: Iterate, bound: float, solver: str) -> Certificate | None:
        """The bounds of an answer, the lower one by the solver's word; None where the time for it is over.

        Where the objective's terms say more for all integers, as 0 for losses that are nowhere negative, that counts.
        """
        confined, form = representer.may_lack(task.reduction, whole), task.reduction.form
        bound = max(bound, least(form.bare.objective.args[0], task.sign) + task.sign * form.constant)
        try:
            with clock.limited(clock.now() + task.goal.for_last_steps()):
                return certificates.by_word(self.reduction, self.outer, self._point(whole), bound, solver, confined)
        except clock.OutOfTimeError:
            return None

    def confirms(self, task: Task, whole: Iterate, found: Certificate) -> bool:
        """Whether the answer's value is the optimum that the solver tells, to `tol` of the objective's terms."""
        bare = found.bare or found
        bound = -bare.upper if found.maximize else bare.lower
        allowed = max(found.floor, NOTHING_LEFT * self.outer.units[1])
        return self._value(whole) - bound <= max(task.goal.tol * max(found.unit, found.terms), allowed)

    def wanted(self, task: Task, found: Certificate) -> float:
        """The gap at which a proof closes, or less than which double precision hardly resolves."""
        return max(task.goal.tol * found.unit, found.last_digit, NOTHING_LEFT * self.outer.units[1])

    def is_a_point(self, task: Task, whole: Iterate) -> bool:
        """Whether an answer has integers, and meets constraints to rounding."""
        return violations.has_integers(task.reduction.form, whole) and self.meets_constraints(whole)

    def proven(self, whole: Iterate, found: ProvenBound) -> Certificate:
        """The bounds of an answer, the lower one proven by boxes of the integers."""
        made = certificates.by_boxes(self.reduction, self.outer, self._point(whole), found.bound, found.boxes)
        return replace(made, rests_on=tuple(dict.fromkeys([*made.rests_on, *found.rests_on])))

    def is_feasible(self, task: Task, whole: Iterate) -> bool:
        """Whether the mixed-integer problem's constraints and attributes hold to `FEASIBLE`."""
        return self.violation(task.reduction, whole) <= FEASIBLE and isfinite(whole.value)

    def violation(self, reduction: Reduction, whole: Iterate) -> float:
        """The largest violation of the mixed-integer problem's constraints, and of those with its integers fixed:
        beside M·0, the size of f in |f| ≤ Mz is not that of M."""
        unit, point = self.outer.data_unit, self._point(whole)
        return max(violations.violation(reduction, whole, unit), violations.violation(self.reduction, point, unit))

    def _counts(self, task: Task, whole: Iterate) -> bool:
        """Whether a point is feasible, with integers that are integers."""
        return violations.has_integers(task.reduction.form, whole) and self.is_feasible(task, whole)

    def _value(self, whole: Iterate) -> float:
        """The minimized objective without constants, those of fixed integers included."""
        return self.outer.sign * representer.bare_value(self.reduction.form, self._point(whole))

    def _point(self, whole: Iterate) -> Iterate:
        """A point of the mixed-integer problem as one with its integers fixed, evaluated, with multipliers."""
        point = replace(whole, y=self.fixed.rest(whole))
        if self.answer is not None:
            point = replace(point, nu=self.answer.nu, duals=self.answer.duals)
        return representer.valued(self.reduction.form, point)
