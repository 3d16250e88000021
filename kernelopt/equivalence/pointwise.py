"""Both problems at one point: the stated one at functions, the reduced one at values of its variables.

What a point leaves open is chosen best: variables of the stated problem that no expression gives, and variables of the
reduced problem, such as slacks, that determine no function. Each side is then a function of θ alone,

    P(θ) = min over y of f(Aθ, ‖θ‖, y)    and    R(x) = min over z of r(x, z),

and the reduction is right at x where R(x) = P(θ(x)).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.compiler import representer, violations
from kernelopt.compiler.attributes import dense, nearest, rounded
from kernelopt.compiler.residuals import FEASIBLE, outside_of, residual
from kernelopt.driver import audits
from kernelopt.equivalence.reduction_report import PointValue
from kernelopt.errors import KernelOptError
from kernelopt.language import text
from kernelopt.language.expressions import Theta
from kernelopt.language.functions import Function
from kernelopt.problem import Problem
from kernelopt.results.solution import Status
from kernelopt.solvers import cvxpy_solvers
from kernelopt.solvers.culprits import summands
from kernelopt.support.types import Array

BEYOND = 10 * FEASIBLE  # a violation that no solver's accuracy explains
ACCURACY = 1e-8  # relative, of a solve for what a point leaves open
SHORT = 80  # characters of a term or a constraint in a sentence
SIZES = (1e-2, 1e-1, 1.0, 1.0, 1e3)  # of random steps from the reduced answer, relative to its largest entry


def stated_at(
    problem: Problem, functions: Mapping[Theta, Function], values: Mapping[cp.Variable, Any]
) -> PointValue | None:
    """The stated problem at functions, with the values of some variables, and the best ones of the others.

    None where no values of the others were found. Values of the user's objects are those of the point afterwards.
    """
    for theta, function in functions.items():
        theta._set_solution(function, {})
    for variable in problem.variables():
        variable.save_value(values.get(variable))
    form, data = problem._private_form(as_stated=True), problem._outer(as_stated=True)
    reduction, point = audits.placed(form, functions, form.users_values())
    filled = audits.with_others(form, point, keeps=True)
    if filled is None:
        return None
    point = representer.valued(form, filled)
    violation = violations.violation(reduction, point, data.data_unit if data else 0.0)
    for variable, value in zip(form.y, point.y, strict=True):
        form.users[variable.id].save_value(value)
    return _point_value(problem.objective, problem._imposed, problem._notation(), point.value, violation)


def reduced_at(problem: cp.Problem, values: Mapping[cp.Variable, Any]) -> PointValue | None:
    """The reduced problem at values of some variables, with the best ones of the others.

    The value is ∞ (−∞ for a Maximize) where there are none; None where no solver tells.
    """
    others = [v for v in problem.variables() if not any(v is known for known in values)]
    if others:
        # A twin of the statement: the user's own problem does not become a solved one.
        fixed = [v == value for v, value in values.items()]
        twin = cp.Problem(problem.objective, [*problem.constraints, *fixed])
        try:
            answer = cvxpy_solvers.solve(twin, "CLARABEL", ACCURACY, {})
        except KernelOptError:
            return None
        if not answer.has_point:
            worst = -inf if isinstance(problem.objective, cp.Maximize) else inf
            return PointValue(worst, (), inf) if answer.status == Status.INFEASIBLE else None
    place(values)
    return at_present(problem)


def at_present(problem: cp.Problem) -> PointValue:
    """A cvxpy problem at the values that its variables have."""
    named = text.notation([], [problem.objective, *problem.constraints])
    outside = max((violations.outside(v, v.value) for v in problem.variables()), default=0.0)
    violation = max(outside, outside_of(tuple(problem.constraints))) if problem.constraints else outside
    with np.errstate(all="ignore"):  # outside of the domain of an atom
        value = float(dense(problem.objective.value))
    return _point_value(problem.objective, problem.constraints, named, value, violation)


def _point_value(
    objective: Any, constraints: Sequence[Any], named: text.Notation, value: float, violation: float
) -> PointValue:  # fmt: skip
    with np.errstate(all="ignore"):
        terms = tuple(float(np.sum(dense(part.value))) for part in summands(objective))
    amounts = [float(residual(c).max(initial=0.0)) for c in constraints]
    if not amounts or max(amounts) == 0:
        return PointValue(value, terms, violation)
    worst = int(np.argmax(amounts))
    return PointValue(value, terms, violation, text.describe(constraints[worst], SHORT, named), amounts[worst])


def place(values: Mapping[cp.Variable, Any]) -> None:
    """Set values of variables."""
    for variable, value in values.items():
        variable.save_value(value)


def random_values(
    covered: Sequence[cp.Variable], answer: Mapping[cp.Variable, Any], least: float
) -> list[dict[cp.Variable, Any]]:
    """Seeded random points around an answer, near and far, within the signs, bounds and structure of variables.

    The farthest ones, a point and its mirror image, come last: one of the two violates any inequality that is affine.

    least : the least size of an answer, where it is 0 but for rounding
    """
    rng, found = np.random.default_rng(0), []
    centers = {v: dense(answer[v]) if answer.get(v) is not None else np.zeros(v.shape) for v in covered}
    for size in SIZES:
        steps = {v: size * max(_size(centers[v]), least) * rng.normal(size=v.shape) for v in covered}
        for sign in (1.0, -1.0) if size == max(SIZES) else (1.0,):
            found.append({v: rounded(v, nearest(v, centers[v] + sign * steps[v])) for v in covered})
    return found


def _size(value: Array) -> float:
    return float(np.abs(value).max(initial=0.0))


def distance(f: Function, g: Function) -> float:
    """‖f − g‖/‖g‖ over all outputs; the absolute distance where g = 0."""
    square = f.inner(f) - 2 * f.inner(g) + g.inner(g)
    return float(np.sqrt(max(square, 0.0)) / (g.norm or 1.0))
