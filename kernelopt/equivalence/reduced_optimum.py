"""The optimum of a problem without θ, proven by a certificate.

A status is never taken on trust: "infeasible" and "unbounded" count where they are proven.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import inf, isfinite
from typing import Any

import cvxpy as cp

from kernelopt.certificate import FULL, Certificate
from kernelopt.compiler.residuals import FEASIBLE
from kernelopt.equivalence import flat_directions, pointwise
from kernelopt.equivalence.reduction_report import Enclosure
from kernelopt.errors import DataError, DCPError, KernelOptError
from kernelopt.problem import Problem
from kernelopt.results.solution import Status
from kernelopt.solvers import cvxpy_solvers

NOTHING = Enclosure(-inf, inf, "user_limit", False, "no bound")
Values = Mapping[cp.Variable, Any]


def of_certificate(problem: Problem, tol: float) -> Enclosure:
    """Solve a problem; its certificate, or its proven status, as an enclosure of its optimum."""
    problem.solve(tol=tol)
    worst = -inf if isinstance(problem.objective, cp.Maximize) else inf
    status, certificate = problem.status, problem.certificate
    if status == Status.INFEASIBLE:
        return Enclosure(worst, worst, str(status), True, "proven")
    if status == Status.UNBOUNDED:
        return Enclosure(-worst, -worst, str(status), True, "proven by a ray")
    if certificate is None:
        return Enclosure(-inf, inf, str(status), False, f"no bound: the solve ended as {status}")
    source, is_proven = _source(certificate, bool(problem.thetas()))
    return Enclosure(certificate.lower, certificate.upper, str(status), is_proven, source)


def _source(certificate: Certificate, in_theta: bool) -> tuple[str, bool]:
    """What bounds come from, and whether they are proven for every θ."""
    if certificate.solver:
        return f"by {certificate.solver}'s word, not proven", False
    if certificate.scope != FULL:
        return f"for θ in the span of {certificate.ranks[0][0] if certificate.ranks else 0} columns, not proven", False
    if certificate.assumptions:
        return f"assumed: {certificate.assumptions[0]}", False
    return "proven, full kernel" if in_theta else "proven", True


def enclosed(reduced: cp.Problem, tol: float, allowed: float) -> tuple[Enclosure, Values | None]:
    """The optimum of a reduced problem, and the values of its variables at an answer; None without one.

    allowed : the gap that suffices

    Its certificate is that of the same problem as a `Problem` without θ. Where the gap stays open, as with free
    coefficients of a singular Q, whose multipliers have to cancel exactly, it is that without flat directions.
    """
    if not reduced.is_dcp():
        raise DCPError(
            "Expected a reduced problem that follows the rules of disciplined convex programming; got one that does "
            "not. Write αᵀQα as cp.quad_form(alpha, cp.psd_wrap(Q)), or as cp.sum_squares(B.T @ alpha) with Q = BBᵀ."
        )
    rest, set_back = flat_directions.without(reduced) or (reduced, None)
    best, values = NOTHING, None
    # Where directions are left out, the problem with them is much harder to solve, and its bounds stay open.
    both = [True, False] if _size(rest) < _size(reduced) else [False, True]
    for is_rest in both if set_back is not None else [False]:
        found, own = _certified(rest if is_rest else reduced, tol)
        if is_rest and set_back is not None:
            found = replace(found, source=f"{found.source}, α without flat directions of Q")
            set_back()
        own = None if own is None else _values(reduced)
        if found.is_known and not found.width >= best.width:
            best, values = found, own
        values = values or own
        if best.width <= allowed:
            if not _is_contradicted(reduced, rest, set_back, best, allowed):
                return best, values
            best, values = NOTHING, None
    return best, values


def _is_contradicted(
    reduced: cp.Problem, rest: cp.Problem, set_back: Callable[[], None] | None, bounds: Enclosure, allowed: float
) -> bool:
    """Whether a solver's point that meets the constraints to its accuracy has a better value than the proven bound.

    Bounds hold for the numbers as they are: an equation 1e-16·x = 0 between rows that are equal but for rounding makes
    x = 0, which nobody means.
    """
    try:
        with _without_warnings():
            found = cvxpy_solvers.solve(cp.Problem(rest.objective, rest.constraints), "CLARABEL", FEASIBLE, {})
    except KernelOptError:
        return False
    if not found.has_point:
        return False
    if set_back is not None:
        set_back()
    there = pointwise.at_present(reduced)
    if there.violation > FEASIBLE or not isfinite(there.value):
        return False
    maximize = isinstance(reduced.objective, cp.Maximize)
    return there.value > bounds.upper + allowed if maximize else there.value < bounds.lower - allowed


def _size(problem: cp.Problem) -> int:
    return sum(v.size for v in problem.variables())


def _certified(problem: cp.Problem, tol: float) -> tuple[Enclosure, Values | None]:
    """The enclosure by the problem's certificate, and the values of an answer."""
    twin = Problem(problem.objective, problem.constraints)
    try:
        with _without_warnings():
            found = of_certificate(twin, tol)
    except DataError:
        raise
    except KernelOptError:
        return NOTHING, None
    has_point = twin.value is not None and isfinite(twin.value)
    return found, _values(problem) if has_point else None


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Without cvxpy's warning of matrices that are indefinite by rounding, which flat directions are left out for."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Forming a nonconvex expression", UserWarning)
        yield


def _values(problem: cp.Problem) -> dict[cp.Variable, Any]:
    return {v: v.value for v in problem.variables()}
