"""cvxpy's solvers on the reduced problem."""

from __future__ import annotations

from typing import Any, NamedTuple

import cvxpy as cp
import cvxpy.error

from kernelopt.errors import DCPError, ParameterError, SolverError
from kernelopt.solution import Status


class ConicSolver(NamedTuple):
    """How a cvxpy solver takes our tolerance, and how to get it."""

    install: str
    options: Any = lambda tol: {}


def _clarabel(tol: float) -> dict[str, Any]:
    return {"tol_gap_abs": tol, "tol_gap_rel": tol, "tol_feas": tol}


def _osqp(tol: float) -> dict[str, Any]:
    return {"eps_abs": tol, "eps_rel": tol, "max_iter": 100_000}


def _ecos(tol: float) -> dict[str, Any]:
    return {"abstol": tol, "reltol": tol, "feastol": tol}


def _scs(tol: float) -> dict[str, Any]:
    return {"eps_abs": tol, "eps_rel": tol, "max_iters": 100_000}


# The solvers that are tested here; every other one that cvxpy has installed works by name, with its own defaults.
CONIC_SOLVERS = {
    "CLARABEL": ConicSolver("comes with cvxpy", _clarabel),
    "OSQP": ConicSolver("comes with kernelopt", _osqp),
    "ECOS": ConicSolver("pip install ecos (Python < 3.13)", _ecos),
    "SCS": ConicSolver("comes with cvxpy", _scs),
    "HIGHS": ConicSolver("comes with cvxpy"),
    "ECOS_BB": ConicSolver("pip install ecos (Python < 3.13)"),
}

# Claims that a solver itself calls inaccurate, and errors, are no answer: user_limit.
STATUSES = {
    cp.OPTIMAL: Status.OPTIMAL,
    cp.OPTIMAL_INACCURATE: Status.OPTIMAL_INACCURATE,
    cp.INFEASIBLE: Status.INFEASIBLE,
    cp.UNBOUNDED: Status.UNBOUNDED,
}


def solve(problem: cp.Problem, solvers: list[str], tol: float, options: dict[str, Any]) -> Status:
    """Solve a reduced problem by the first solver that comes to a point.

    One that breaks down is followed by the next. A claim that there is no point is believed when all solvers that have
    an answer make it, and is user_limit where they differ: two have been seen to call a feasible problem infeasible.
    Values and multipliers stay on the problem's variables and constraints. Raises SolverError, DCPError or
    ParameterError with cvxpy's own words.
    """
    claims: list[Status] = []
    for number, solver in enumerate(solvers, start=1):
        try:
            status = _solve(problem, solver, tol, options)
        except SolverError:
            if number == len(solvers) and not claims:
                raise
            continue
        if status.has_point:
            return status
        claims.append(status)
    return claims[0] if len(set(claims)) == 1 else Status.USER_LIMIT


def _solve(problem: cp.Problem, solver: str, tol: float, options: dict[str, Any]) -> Status:
    ours = CONIC_SOLVERS[solver].options(1e-2 * tol) if solver in CONIC_SOLVERS else {}
    try:
        # The SciPy backend compiles every atom, and a dense B as fast as the others.
        problem.solve(solver=solver, **{"canon_backend": cp.SCIPY_CANON_BACKEND, **ours, **options})
    except cvxpy.error.ParameterError as error:
        raise ParameterError(str(error)) from error
    except cvxpy.error.DCPError as error:
        raise DCPError(str(error)) from error
    except cvxpy.error.SolverError as error:
        raise SolverError(f"{solver}: {error}") from error
    except (TypeError, ValueError) as error:
        given = sorted(set(options) - {"verbose", "warm_start"})
        raise SolverError(
            f"{solver} did not take the options {', '.join(given) or 'that it was given'}: {error}"
        ) from error
    return STATUSES.get(problem.status, Status.USER_LIMIT)
