"""Checks of claims that no answer exists: "infeasible" takes a Farkas vector, and "unbounded" a ray, found here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite, nan
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from kernelopt import certificate as certificates
from kernelopt.certificate import FULL, Request
from kernelopt.certificate.report import Lower
from kernelopt.compiler import feasibility, representer
from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.conic_form import ConicForm
from kernelopt.compiler.feasibility import Question
from kernelopt.compiler.iterate import Iterate, in_columns
from kernelopt.compiler.outer import Outer, outer_of
from kernelopt.compiler.projection import ROUNDING
from kernelopt.compiler.representer import Reduction
from kernelopt.compiler.residuals import relative_violation
from kernelopt.compiler.separable import Separable
from kernelopt.compiler.terms import LogSumExp
from kernelopt.driver.strategy import Task
from kernelopt.errors import MemoryLimitError, SolverError
from kernelopt.factorization import Guide
from kernelopt.language.expressions import Theta
from kernelopt.pieces.elementary import Exp, Logistic
from kernelopt.pieces.extremes import RowLogSumExp
from kernelopt.pieces.form import Pieces
from kernelopt.results.solution import Status
from kernelopt.solvers import cvxpy_solvers, rays
from kernelopt.support import clock
from kernelopt.support.types import Array, Ints

# Violation of rows of unit size that counts as zero. A least violation, found as a sum of squares, is compared with
# its square. Larger values take infeasible problems for feasible ones, smaller ones a solver's errors for violations.
RAY_FEASIBILITY = 1e-7
ANSWER = 1e-8  # the solver's tolerance for the least violation, which Clarabel usually reaches
DIRECTION = 1e-10  # its tolerance for directions: a tenth of GROWING, the growth that must be told from rounding
# A lower bound on the violation proves infeasibility if it is so many times the bound's own allowance for rounding.
# The bound contains that allowance already. The factor is a margin, since the proof ends the search.
PROVEN = 100.0
# Least fall of exponents along a direction of unit size, weighted by their multipliers over the largest one. Larger
# values miss slow falls; smaller ones may take an error of the solver for a fall.
FALL = 1e-3
GROWING = 1e-9  # growth along a direction, in units of its terms, that can't be rounding
# An exponent below this may be on its way to −∞: e⁻¹² = 6e-6. Larger values look for a direction more often than
# needed, smaller ones overlook exponents at which a solver stopped early.
FADED = -12.0
ROUNDED = 9  # digits of a direction of size 1: those beyond are a solver's errors


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """INFEASIBLE with a Farkas vector for the full kernel, UNBOUNDED with a ray, or None.

    guides : how factors should grow to meet the constraints, where θ is too restricted for a proof
    """

    status: Status | None = None
    guides: Mapping[Theta, Guide] = field(default_factory=dict)


def diagnose(task: Task, outer: Outer, given_up: Iterate | None, feasible_only: bool = False) -> Diagnosis:
    """Whether the problem is feasible and bounded. `given_up` has the multipliers with which a solver of ours claims
    that it is infeasible; with `feasible_only`, it is not asked whether the problem is bounded."""
    if clock.seconds_left() <= 0:  # the cone data alone may take seconds
        return Diagnosis()
    if any(_is_false(constraint) for constraint in task.reduction.form.outer.constraints):
        return Diagnosis(Status.INFEASIBLE)
    form, data = task.reduction.form, outer.form
    # Rows that contradict each other are looked for first: this needs no kernel values, and holds for every rank.
    found = _least_violation(task, feasibility.phase_one_of_rows(form, data))
    if not found.proven:
        guides = None if given_up is None else _guides_beyond(task, data, given_up)
        if guides is not None:
            return Diagnosis(None, guides)
        found = _least_violation(task, feasibility.phase_one(form, data))
    if found.proven or (found.violation > RAY_FEASIBILITY**2 and _is_infeasible_as_stated(task)):
        return Diagnosis(Status.INFEASIBLE)
    if feasible_only:
        return Diagnosis(None, found.guides)
    if not form.has_cones:  # the cone data do not hold a user's function, nor its growth along a ray
        return Diagnosis(Status.UNBOUNDED if _has_bare_cost(outer) else None, found.guides)
    if not found.violation <= RAY_FEASIBILITY**2:
        return Diagnosis(None, found.guides)
    return Diagnosis(Status.UNBOUNDED if has_ray(task, outer) else None, found.guides)


def _is_false(constraint: Any) -> bool:
    """Whether a constraint of numbers alone, as is left where θ = 0, does not hold, by more than rounding."""
    return not constraint.variables() and relative_violation(constraint, {}, {}) > ROUNDING


def guides_of(reduction: Reduction, latest: Lower | None) -> dict[Theta, Guide]:
    """ν of each θ that is not idle, and Qν where the certificate's pass over the kernel gave it."""
    found: dict[Theta, Guide] = {}
    if latest is None or not latest.multipliers:
        return found
    products = latest.products or (None,) * len(latest.multipliers)
    idle = latest.idle if latest.idle and not all(latest.idle) else (False,) * len(products)
    for link, m, product, waits in zip(reduction.form.predictions, latest.multipliers, products, idle, strict=True):
        if waits:  # more columns would be 0
            continue
        width = sum(m.widths)
        found[link.theta] = Guide(m.stack[:, :width], None if product is None else product[:, :width])
    return found


# ---------------------------------------------------------------- infeasible


@dataclass(frozen=True, eq=False)
class _Violation:
    """The square of the least violation or the largest one, nan where it was not found, and whether it is proven to be
    positive."""

    violation: float
    proven: bool = False
    guides: Mapping[Theta, Guide] = field(default_factory=dict)


def _least_violation(task: Task, question: Question | None) -> _Violation:
    if question is None:
        return _Violation(0.0)
    asked = _asked(task, question)
    if asked is None:
        return _Violation(nan)
    reduction, point = asked
    if point.value <= RAY_FEASIBILITY**2:
        return _Violation(point.value)
    found, own = certificates.certified(reduction, outer_of(reduction.form), point, Request())
    proven = not found.assumptions and found.scope == FULL and found.lower > PROVEN * found.rounding > 0
    helps = not proven and task.reduction.is_restriction
    return _Violation(point.value, proven, guides_of(reduction, own) if helps else {})


def _is_infeasible_as_stated(task: Task) -> bool:
    """Whether the largest violation of stated inequalities is proven to be positive."""
    question = feasibility.phase_one_as_stated(task.reduction.form)
    return question is not None and _least_violation(task, question).proven


def _guides_beyond(task: Task, data: ConicForm, given_up: Iterate) -> dict[Theta, Guide] | None:
    """The multipliers with which a solver of ours gave up, as guides; None where the least violation is needed.

    Where θ is restricted and norms are not bounded, it proves nothing: a longer θ in a larger span may be feasible.
    """
    form = task.reduction.form
    if not task.reduction.is_restriction or feasibility.limits_lengths(form, data):
        return None
    known = [part for part in given_up.nu if part is not None]
    if not all(np.isfinite(part).all() for part in known) or not any(part.any() for part in known):
        return None
    return {
        link.theta: Guide(link.summed(part).reshape(len(link.rows), -1))
        for link, part in zip(form.predictions, given_up.nu, strict=True)
        if part is not None
    }


# ---------------------------------------------------------------- unbounded


def may_be_unbounded(task: Task) -> bool:
    """Whether some θ may grow at no cost, and f may fall along some line.

    A solver may stop anywhere on a slow fall, so that its answer does not show that a minimum exists.
    """
    outer, form = task.data, task.reduction.form
    if outer is None or not form.has_cones or not _has_free_theta(form, outer):
        return False
    split = outer.split
    if split is None:
        return True
    if split.linear_u.any() or split.linear_y.any():
        return not split.is_bounded
    low, high = split.slopes()
    return bool(np.any(low > 0) or np.any(high < 0))


def _has_free_theta(form: CanonicalForm, outer: Outer) -> bool:
    """Whether some θ has no norm that is penalized or bounded."""
    found = outer.lengths
    if found is None:
        return feasibility.has_free_theta(form, outer.form)
    felt = (found.slope != 0) | (found.curvature != 0) | np.isfinite(found.limit)
    links = (link for link in form.predictions if link.u is not None)
    return any(not any(felt[j] for j in form.norms_of(link.theta)) for link in links)


def has_ray(task: Task, outer: Outer) -> bool:
    """Whether a ray is found along which the objective falls without bound."""
    if outer.split is not None and _falls(outer.split):
        return True
    question = feasibility.recession(task.reduction.form, outer.form)
    asked = _asked(task, question, DIRECTION)
    if asked is None:
        return False
    reduction, point = asked
    prices = question.prices(point.duals)
    return any(ray.falls(prices) for ray in rays.rays(question, reduction, point, outer.form))


# ---------------------------------------------------------------- not attained


def is_receding(task: Task, outer: Outer, point: Iterate) -> bool:
    """Whether f falls forever along a direction without reaching its infimum, as exponentials go to 0."""
    pieces, form, facts = outer.split, task.reduction.form, outer.facts
    penalized = bool(np.all((facts.slopes > 0) | (facts.bends > 0))) and len(form.norms) > 0
    everywhere = all(form.norms_of(link.theta) for link in form.predictions)
    if not form.has_cones or not facts.exponentials:
        return False
    only_y = penalized and everywhere  # where its length has a cost, θ is bounded
    if only_y and (not form.y or (pieces is not None and _grows(pieces))):
        return False
    if outer.pieces is None or not _has_faded(form, point, outer.pieces):
        return False
    data = outer.form
    exponents = data.cones.exponentials
    weights = _that_cost(data, exponents)
    question = feasibility.flat_recession(form, data, weights)
    asked = None if question is None else _asked(task, question, DIRECTION, with_theta=not only_y)
    if question is None or asked is None or -asked[1].value <= FALL:
        return False
    share = weights / weights.max()
    return any(
        ray.is_flat and -float(share @ ray.s[exponents]) > FALL
        for ray in rays.rays(question, *asked, data, flat=True)
    )  # fmt: skip


def _that_cost(data: ConicForm, exponents: Ints) -> Array:
    """1 for exponential cones with an auxiliary variable that has a cost, else 0: losses of weight 0 don't count."""
    costs = (data.c != 0) | (data.P > 0)
    costs[np.concatenate([data.linked, data.y])] = False
    touched = (abs(data.A) @ costs.astype(float) > 0).astype(float)
    return np.asarray(np.maximum.reduce([touched[exponents + j] for j in range(3)]))


def _grows(split: Separable) -> bool:
    """Whether the sum grows in both directions of y, where y is one number; False where this is not known."""
    with np.errstate(invalid="ignore"):
        if any(isinstance(term, LogSumExp) for term in split.terms):
            return False
        return len(split.y) == 1 and all(split.growth(np.array([d])) > GROWING for d in (1.0, -1.0))


def _falls(split: Separable) -> bool:
    """Whether the sum falls forever along a direction d of y, found by a linear program with the steepest slopes."""
    if not len(split.y) or any(isinstance(term, LogSumExp) for term in split.terms):
        return False
    (low, high), F = split.slopes(), split.F
    costs = [np.where(np.isfinite(part), sign * part, 0.0) for part, sign in ((high, 1.0), (low, -1.0))]
    most = [np.where(np.isfinite(part), np.inf, 0.0) for part in (high, low)]
    m, q = F.shape
    bounds = [*zip([-1.0] * q, [1.0] * q, strict=True), *((0.0, end) for end in np.concatenate(most).tolist())]
    equal = sp.hstack([F, -sp.eye_array(m), sp.eye_array(m)])
    found = linprog(np.concatenate([split.linear_y, *costs]), A_eq=equal, b_eq=np.zeros(m), bounds=bounds)
    return found.x is not None and split.growth(np.round(found.x[:q], ROUNDED)) < -GROWING


def _has_bare_cost(outer: Outer) -> bool:
    """Whether the objective falls along a variable of the user's that stands nowhere else."""
    pieces = outer.pieces
    if pieces is None:
        return False
    known = (pieces.columns.get(variable.id, np.arange(0)) for variable in outer.canonical.y)
    y = np.concatenate([np.arange(0), *known]).astype(int)
    return bool(np.any((pieces.c[y] != 0) & (pieces.counts[y] == 0)))


def _has_faded(form: CanonicalForm, point: Iterate, pieces: Pieces) -> bool:
    """Whether some exponential or logistic function is nearly zero at a point, or one that a graph form has."""
    s = pieces.rows(pieces.settled(in_columns(form, pieces, point)))
    smooth = [s[group.rows] for group in pieces.groups if isinstance(group.family, (Exp, Logistic, RowLogSumExp))]
    return any(cone.kind == "exp" for cone in pieces.cones) or any(bool(np.any(part < FADED)) for part in smooth)


# ---------------------------------------------------------------- questions


def _asked(
    task: Task, question: Question, tol: float = ANSWER, with_theta: bool = True
) -> tuple[Reduction, Iterate] | None:
    """The answer to a question about the problem, with the same factors or with θ = 0; None where no solver has one."""
    factors = task.reduction.factors
    if not with_theta:
        factors = {theta: replace(f, B=f.B[:, :0], pivots=f.pivots[:0]) for theta, f in factors.items()}
    seconds = task.goal.seconds_left()
    if seconds <= 0:
        return None
    try:
        rows = {link.theta: link.rows for link in task.reduction.form.predictions}
        whole = {theta: f.in_one_array(rows[theta]) for theta, f in factors.items() if f.rank}
        reduction = Reduction(question.form, {**factors, **whole})
        cvxpy_solvers.require_memory(reduction, task.goal.memory_limit)
        answer = cvxpy_solvers.solve_reduction(
            reduction, "CLARABEL", tol, {}, None, seconds if isfinite(seconds) else None, task.goal.memory_limit
        )
    except (SolverError, MemoryLimitError):
        return None
    if not answer.has_point or answer.point is None:
        return None
    return reduction, representer.evaluate(reduction, answer.point)
