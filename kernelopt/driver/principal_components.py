"""Kernel principal components: the maximizer in the factor's span, its certificate, and its verification."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf, isfinite, nan

import numpy as np
import scipy.linalg as sl

from kernelopt.certificate import Certificate
from kernelopt.compiler import representer, violations
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.representer import Reduction
from kernelopt.compiler.residuals import FEASIBLE
from kernelopt.driver import audits, verification
from kernelopt.driver.diagnosis import RAY_FEASIBILITY
from kernelopt.driver.strategy import Goal, Outcome, Plan, Work, without_answer
from kernelopt.driver.verification import Check, Report
from kernelopt.factorization import memory
from kernelopt.language.expressions import Theta
from kernelopt.language.functions import Function
from kernelopt.results.solution import Attempt, Solution, SolverStats, Status
from kernelopt.solvers.engines import Start
from kernelopt.spectral import enclosure as certificates
from kernelopt.spectral.eigenvalues import NAME
from kernelopt.spectral.spectral_form import Numbers, SpectralForm
from kernelopt.spectral.spectral_problems import decomposed
from kernelopt.support import clock
from kernelopt.support.types import Array

# Largest eigen-residual that passes, relative to ‖QMᵀMAθ‖: the gap is of second order in it, so that this goes with a
# gap of about 1e-8.
STATIONARY = 1e-4
BYTES = 40  # bytes per entry of B, five doubles: MB with and without the projection, its square, and a shifted copy


def begin(form: SpectralForm, reduction: Reduction, goal: Goal, start: Start | None = None) -> PrincipalComponent:
    """The work on one reduction: one decomposition, for which a start is of no use."""
    return PrincipalComponent(form, reduction, goal)


class PrincipalComponent(Work):
    """One decomposition, and its outcome."""

    def __init__(self, form: SpectralForm, reduction: Reduction, goal: Goal) -> None:
        self.form, self.reduction, self.goal = form, reduction, goal
        self.found: Outcome | None = None

    def plans(self) -> Iterator[Plan]:
        yield Plan(NAME, self.goal.tol)

    def attempt(self, plan: Plan) -> None:
        """Raises MemoryLimitError."""
        entries = sum(f.B.size for f in self.reduction.factors.values())
        memory.require(BYTES * entries, "Solving the reduced problem", self.goal.memory_limit)
        self.found = _maximized(self.reduction, self.form, self.goal)

    def outcome(self) -> Outcome:
        assert self.found is not None
        return self.found


def _maximized(reduction: Reduction, form: SpectralForm, goal: Goal) -> Outcome:
    """The maximizer in the factor's span, with its certificate and status."""
    start = clock.now()
    numbers = form.numbers()
    if numbers.radius < 0:
        return _nothing(form, Status.INFEASIBLE, start)
    solved = decomposed(form, numbers, reduction)
    afresh = reduction.is_restriction and not solved.factor.is_projected
    solution, point = representer.invert(reduction, solved.point, from_kernel=afresh)
    solved = solved._replace(point=point)
    violation = violations.violation(reduction, point)
    # Where ‖θ‖ has no bound, a feasible θ with MAθ ≠ 0 may be scaled to any length.
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
    attempt = Attempt(NAME, goal.tol, None, (solved.factor.rank,), str(status), gap, clock.now() - start)
    solution = Solution(status, solution.value, solution.functions, solution.duals, None, found)
    may_grow = reduction.is_restriction and found is not None and not closed and goal.certify is True
    return Outcome(solution, (attempt,), _stats(start), may_grow, point)


def _nothing(form: SpectralForm, status: Status, start: float) -> Outcome:
    """The outcome without an answer, of an infeasible or unbounded problem."""
    attempt = Attempt(NAME, nan, None, (), str(status), nan, clock.now() - start)
    return Outcome(without_answer(status, -form.sign), (attempt,), _stats(start), may_grow=False)


def _stats(start: float) -> SolverStats:
    return SolverStats(NAME, clock.now() - start, None, None, 0.0, 0.0, 0.0)


# ---------------------------------------------------------------- verification


def verify(reduction: Reduction, form: SpectralForm, point: Iterate, solution: Solution, tol: float) -> Report:
    """Check the reduction and the point, recomputed from kernel values."""
    solved = decomposed(form, form.numbers(), reduction, point)
    found = certificates.certify(solved, tol, None, may_pass=True)
    checks = verification.reduction_checks(reduction, point, solution.functions)
    return Report((*checks, *_checks(reduction, form, point, found, tol)), found)


def audit(form: SpectralForm, functions: Mapping[Theta, Function], best: Certificate | None, tol: float) -> Report:
    """Check a function that was fitted elsewhere; `best` is the certificate of an answer of our own."""
    reduction, point = audits.placed(form.form, functions, ())
    point = representer.valued(form.form, point)
    found = None if best is None else replace(best, bare=None, lower=point.value)
    return Report(tuple(_checks(reduction, form, point, found, tol)), found)


def _checks(
    reduction: Reduction, form: SpectralForm, point: Iterate, found: Certificate | None, tol: float
) -> Iterator[Check]:
    """Feasibility, the eigen-residual, and the gap."""
    numbers = form.numbers()
    violation = violations.violation(reduction, point)
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
