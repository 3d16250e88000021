"""Both problems at one point: the stated one at functions, the reduced one at values of its variables.

What a point leaves open is chosen best: variables of the stated problem that no expression gives, and variables of the
reduced problem, such as slacks, that determine no function. Each side is then a function of θ alone,

    P(θ) = min over y of f(Aθ, ‖θ‖, y)    and    R(x) = min over z of r(x, z),

and the reduction is right at x where R(x) = P(θ(x)).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.compiler import atom_domains, representer, violations
from kernelopt.compiler.attributes import dense, nearest, rounded
from kernelopt.compiler.canonical_form import rewrite
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
from kernelopt.support.cvxpy_parts import distinct_nodes
from kernelopt.support.types import Array

BEYOND = 10 * FEASIBLE  # a violation that no solver's accuracy explains
ACCURACY = 1e-8  # relative, of a solve for what a point leaves open
SHORT = 80  # characters of a term or a constraint in a sentence
SIZES = (1e-2, 1e-1, 1.0, 10.0, 1e3)  # of random steps from the reduced answer, relative to the size of its predictions
Values = Mapping[cp.Variable, Any]


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
    filled_ids = {v.id for v in problem.variables() if values.get(v) is None}
    if outside_of(tuple(c for c in problem._imposed if _ids(c) & filled_ids)) > FEASIBLE:
        return None
    constraints = [*problem._imposed, *atom_domains.of_problem(problem).whole]
    return _point_value(problem.objective, constraints, problem._notation(), point.value, violation)


def reduced_at(problem: cp.Problem, values: Mapping[cp.Variable, Any]) -> PointValue | None:
    """The reduced problem at values of some variables, with the best ones of the others.

    The value is ∞ (−∞ for a Maximize) where it is proven that there are none; None where solvers do not tell.
    """
    place(values)
    others = {v.id for v in problem.variables() if not any(v is known for known in values)}
    if not others:
        return at_present(problem)
    open_ones = tuple(c for c in problem.constraints if _ids(c) & others)
    domain = tuple(c for c in atom_domains.of_problem(problem).whole if not _ids(c) & others)
    if domain and outside_of(domain) > FEASIBLE:
        return _of_nothing(problem)
    rest = cp.Problem(problem.objective, open_ones)
    fixed = [node for node in (*distinct_nodes(rest), *values) if not _ids(node) & others]
    rest = rewrite(rest, {id(node): cp.Constant(dense(node.value)) for node in fixed})
    try:
        answer = cvxpy_solvers.solve(rest, "CLARABEL", ACCURACY, {})
        if answer.status == Status.INFEASIBLE and _is_infeasible(rest):
            return _of_nothing(problem)
    except KernelOptError:
        return None
    return at_present(problem) if answer.has_point and outside_of(open_ones) <= FEASIBLE else None


def _ids(node: Any) -> set[int]:
    return {v.id for v in node.variables()}


def _of_nothing(problem: cp.Problem) -> PointValue:
    """Where no point meets the constraints."""
    return PointValue(_worst(problem), (), inf, amount=inf)


def _is_infeasible(problem: cp.Problem) -> bool:
    """Whether it is proven that no point meets the constraints."""
    twin = Problem(cp.Minimize(0), problem.constraints)
    twin.solve()
    return twin.status == Status.INFEASIBLE


def _worst(problem: Any) -> float:
    return -inf if isinstance(problem.objective, cp.Maximize) else inf


def at_present(problem: cp.Problem) -> PointValue:
    """A cvxpy problem at the values that its variables have; infinite outside of the domain of an atom."""
    named, domain = text.notation([], [problem.objective, *problem.constraints]), atom_domains.of_problem(problem)
    constraints = (*problem.constraints, *domain.whole)
    outside = max((violations.outside(v, v.value) for v in problem.variables()), default=0.0)
    violation = max(outside, outside_of(constraints)) if constraints else outside
    with np.errstate(all="ignore"):  # outside of the domain of an atom
        value = float(dense(problem.objective.value))
    value = _worst(problem) if domain.objective and outside_of(domain.objective) > FEASIBLE else value
    return _point_value(problem.objective, constraints, named, value, violation)


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
    covered: Sequence[cp.Variable], answer: Mapping[cp.Variable, Any], effect: Callable[[Values], float], length: float
) -> list[dict[cp.Variable, Any]]:
    """Seeded random points around an answer, near and far, within the signs, bounds and structure of variables.

    The farthest ones, a point and its mirror image, come last: one of the two violates any inequality that is affine.

    effect : the size of what a step means; length : the size of what the answer means, which steps are relative to
    """
    rng, found = np.random.default_rng(0), []
    centers = {v: dense(answer[v]) if answer.get(v) is not None else np.zeros(v.shape) for v in covered}
    for size in SIZES:
        steps = {v: size * length * _of_effect_one(v, rng.normal(size=v.shape), effect) for v in covered}
        for sign in (1.0, -1.0) if size == max(SIZES) else (1.0,):
            found.append({v: rounded(v, nearest(v, centers[v] + sign * steps[v])) for v in covered})
    return found


def _of_effect_one(v: cp.Variable, step: Any, effect: Callable[[Values], float]) -> Array:
    """The step, of such a length that its effect is 1, if it has one."""
    return np.asarray(step / (effect({v: step}) or 1.0))
