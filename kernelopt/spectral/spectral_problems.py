"""Solve a problem of the spectral form, say what the answer is worth, and verify it in the original terms.

With u = Bv, the leading right singular vector of MB on the null space of GᵀB, of length √scale·R, maximizes ‖Mu‖ over
θ in the factor's span; the certificate tells how much the full kernel could add.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import inf, isfinite, nan, sqrt
from time import perf_counter

import cvxpy as cp
import numpy as np
import scipy.linalg as sl

from kernelopt.certificate import Certificate
from kernelopt.compiler import representer
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.representer import FEASIBLE, Reduction
from kernelopt.driver import verification
from kernelopt.driver.attempts import RAY_FEASIBILITY, Goal, Outcome
from kernelopt.driver.verification import Check, Report
from kernelopt.errors import OptionError, SolverError
from kernelopt.factorization import Factor, memory
from kernelopt.language.expressions import Theta
from kernelopt.language.functions import Function
from kernelopt.results.solution import Attempt, Solution, SolverStats, Status
from kernelopt.solvers.choice import SolverTable
from kernelopt.solvers.cvxpy_solvers import CONIC_SOLVERS
from kernelopt.spectral import eigenvalues
from kernelopt.spectral import enclosure as certificates
from kernelopt.spectral.eigenvalues import NAME, Constrained, Leading
from kernelopt.spectral.enclosure import NEGLIGIBLE, Solved
from kernelopt.spectral.spectral_form import Numbers, SpectralForm
from kernelopt.support.types import Array

STATIONARY = 1e-4  # eigen-residual that passes: its square is of the order of the gap
BYTES = 40  # per entry of B: MB with and without the projection, its square, and a shifted copy
LEADING = 9  # singular vectors that are computed; all but the last serve the certificate
TIE = 1e-9  # relative; entries of Aθ this near to the largest are as large, so that rounding does not choose the sign


def pursue(reduction: Reduction, form: SpectralForm, goal: Goal) -> Outcome:
    """The maximizer in the factor's span, with its certificate and status."""
    start = perf_counter()
    entries = sum(f.B.size for f in reduction.factors.values())
    memory.require(BYTES * entries, "Solving the reduced problem", goal.memory_limit)
    numbers = form.numbers()
    if numbers.radius < 0:
        return _nothing(form, Status.INFEASIBLE, start)
    solved = _decomposed(form, numbers, reduction)
    afresh = reduction.is_restriction and not solved.factor.is_projected
    solution, point = representer.invert(reduction, solved.point, from_kernel=afresh)
    solved = solved._replace(point=point)
    violation = representer.violation(reduction, point)
    if not isfinite(numbers.radius) and certificates.lengths(solved)[0] > 0 and violation <= RAY_FEASIBILITY:
        return _nothing(form, Status.UNBOUNDED, start)
    found = None
    closed = False
    if goal.certify is not False:
        found = certificates.certify(solved, goal.tol, goal.abs_tol, goal.certify is True)
        closed = found.closes(goal.tol, goal.abs_tol)
    status = Status.OPTIMAL if closed and violation <= FEASIBLE else Status.OPTIMAL_INACCURATE
    if not closed and goal.seconds_left() <= 0:
        status = Status.USER_LIMIT
    gap = nan if found is None else found.relative_gap
    attempt = Attempt(NAME, goal.tol, None, (solved.factor.rank,), str(status), gap, perf_counter() - start)
    solution = Solution(status, solution.value, solution.functions, solution.duals, None, found)
    may_grow = reduction.is_restriction and found is not None and not closed and goal.certify is True
    return Outcome(solution, (attempt,), _stats(start), may_grow, point)


def solver_names(form: SpectralForm | None, wanted: str | None, options: Mapping[str, object]) -> list[str] | None:
    """[SPECTRAL] for a problem of the spectral form, None for others.

    Raises SolverError where problem and solver do not fit, OptionError for options, of which there are none.
    """
    asked = None if wanted is None else wanted.upper()
    if form is None:
        if asked == NAME:
            raise SolverError(f"{NAME} {_TAKES}; this problem is convex. Leave `solver` out, or see problem.solvers().")
        return None
    if asked not in (None, NAME):
        raise SolverError(f"{asked} {_CONVEX}, and this one is of the spectral form, which {NAME} takes.")
    if options:
        raise OptionError(f"Expected no solver options, as {NAME} has none; got {', '.join(options)}.")
    return [NAME]


def require_cones(form: SpectralForm | None) -> None:
    """Raise SolverError for a problem that has no cone data."""
    if form is not None:
        raise SolverError(f"Expected a convex problem, which has cone data; this one is solved by {NAME}.")


def solver_table(form: SpectralForm | None, of_others: Callable[[], SolverTable]) -> SolverTable:
    """The table of solvers with SPECTRAL in it, which takes the spectral form as others don't."""
    if form is None:
        others = of_others()
        return SolverTable({NAME: f"{_TAKES}; this problem is convex", **others.reasons}, others.chosen)
    names = dict.fromkeys([*CONIC_SOLVERS, *sorted(cp.installed_solvers())], _CONVEX)
    return SolverTable({NAME: None, **names}, NAME)


_TAKES = "takes the spectral form only, maximize ‖Aθ‖ with ‖θ‖ ≤ R and u @ (A @ theta) == 0"
_CONVEX = "takes convex problems only"


def _decomposed(form: SpectralForm, numbers: Numbers, reduction: Reduction, point: Iterate | None = None) -> Solved:
    """MB on the null space of GᵀB, and its leading singular vectors; by default the point that they give."""
    factor = reduction.factors[form.link.theta]
    side = eigenvalues.constrained(np.asarray(numbers.M @ factor.B), np.asarray(numbers.G.T @ factor.B))
    top = eigenvalues.leading(side, LEADING)
    point = Iterate((_leading(factor, numbers, side, top),), (), nu=(None,)) if point is None else point
    return Solved(form, numbers, factor, side, top, point)


def _leading(factor: Factor, numbers: Numbers, side: Constrained, top: Leading) -> Array:
    """v = ±√scale·R·x, with the first of the largest entries of Bv positive; for R = inf a ray of unit length.

    v = 0 where the largest eigenvalue is not told from zero.
    """
    if not factor.rank or top.values[0] <= NEGLIGIBLE * side.total:
        return np.zeros(factor.rank)
    x = top.vectors[:, 0]
    u = factor.B @ x
    first = int(np.argmax(np.abs(u) >= (1 - TIE) * np.abs(u).max()))
    length = numbers.radius if isfinite(numbers.radius) else 1.0
    return np.asarray(x * (np.sign(u[first]) * sqrt(factor.scale) * length))


def _nothing(form: SpectralForm, status: Status, start: float) -> Outcome:
    """No answer: infeasible, or unbounded."""
    value = form.sign * (-inf if status == Status.INFEASIBLE else inf)
    attempt = Attempt(NAME, nan, None, (), str(status), nan, perf_counter() - start)
    return Outcome(Solution(status, value, {}, {}, None), (attempt,), _stats(start), may_grow=False)


def _stats(start: float) -> SolverStats:
    return SolverStats(NAME, perf_counter() - start, None, None, 0.0, 0.0, 0.0)


# ---------------------------------------------------------------- verification


def verify(reduction: Reduction, form: SpectralForm, point: Iterate, solution: Solution, tol: float) -> Report:
    """Check the reduction and the point, recomputed from kernel values."""
    solved = _decomposed(form, form.numbers(), reduction, point)
    found = certificates.certify(solved, tol, None, may_pass=True)
    checks = verification.reduction_checks(reduction, point, solution.functions)
    return Report((*checks, *_checks(reduction, form, point, found, tol)), found)


def audit(form: SpectralForm, functions: Mapping[Theta, Function], best: Certificate | None, tol: float) -> Report:
    """Check a function that was found elsewhere; `best` is the certificate of an answer of our own."""
    reduction, point = verification.placed(form.form, functions, ())
    point = representer.valued(form.form, point)
    found = None if best is None else verification.against(best, point.value)
    return Report(tuple(_checks(reduction, form, point, found, tol)), found)


def _checks(
    reduction: Reduction, form: SpectralForm, point: Iterate, found: Certificate | None, tol: float
) -> Iterator[Check]:
    """Feasibility, the eigen-residual, and the gap."""
    numbers = form.numbers()
    violation = representer.violation(reduction, point)
    yield Check("primal feasibility", violation, FEASIBLE, "largest violation, relative to a constraint's terms")
    if not reduction.factors[form.link.theta].is_projected:
        residual = certificates.eigen_residual(form, numbers, point)
        yield Check("eigen-residual", residual, STATIONARY, "‖Q(MᵀMAθ − Gη) − σ²Aθ‖, of ‖QMᵀMAθ‖, from the kernel")
    if found is not None:
        yield verification.gap(found, tol)
    else:
        yield Check("duality gap", inf, tol, "no certificate")
    explicit = _explicit_features(form, numbers)
    if explicit is not None:
        yield verification.compared("θ ∈ Rᵖ solved", point.value, explicit, found, tol)


def _explicit_features(form: SpectralForm, numbers: Numbers) -> float | None:
    """The optimum in θ ∈ Rᵖ, with A = [F(xᵢ)ᵀ], where p is finite and small: σ_max(MA on the null space of GᵀA)."""
    A: Array | None = verification.explicit_matrix(form.link)
    if A is None or not isfinite(numbers.radius):
        return None
    free = sl.null_space(numbers.G.T @ A) if numbers.G.shape[1] else np.eye(A.shape[1])
    largest = float(np.linalg.norm(numbers.M @ A @ free, 2)) if free.size else 0.0
    return form.objective_at(numbers.radius * largest)
