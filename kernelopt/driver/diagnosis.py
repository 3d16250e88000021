"""Claims that there is no answer, believed only with a Farkas vector or a ray that is found here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite, nan

import numpy as np

from kernelopt import certificate as certificates
from kernelopt.certificate import FULL, Certificate, Request
from kernelopt.certificate.report import Lower
from kernelopt.compiler import feasibility, representer
from kernelopt.compiler.conic_form import ConicForm
from kernelopt.compiler.feasibility import Question
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.pieces import ExponentialPiece, LogSumExp
from kernelopt.compiler.representer import Reduction
from kernelopt.compiler.separable import Outer, Separable, outer_of
from kernelopt.driver.strategy import Task
from kernelopt.errors import MemoryLimitError, SolverError
from kernelopt.factorization import Guide
from kernelopt.language.expressions import Theta
from kernelopt.results.solution import Status
from kernelopt.solvers import cvxpy_solvers, rays
from kernelopt.support.types import Array, Ints

RAY_FEASIBILITY = 1e-7  # violation of homogeneous constraints, for a direction of unit size, up to which it is one
ANSWER = 1e-8  # the solver's tolerance for the least violation
DIRECTION = 1e-10  # its tolerance for directions, whose growth is judged to 1e-9
PROVEN = 100.0  # times its rounding, from which a positive lower bound on the violation proves infeasibility
FALL = 1e-3  # of exponents along a direction of unit size, weighted by what the exponentials cost
GROWING = 1e-9  # growth along a direction, in units of its terms, that is no rounding
FADED = -12.0  # an exponent below this may be on its way to −∞: e⁻¹² = 6e-6


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """INFEASIBLE with a Farkas vector for the full kernel, UNBOUNDED with a ray, or None; and rows that would help most
    to meet the constraints, where θ is too restricted to say."""

    status: Status | None = None
    guides: Mapping[Theta, Guide] = field(default_factory=dict)


def diagnose(task: Task, outer: Outer, given_up: Iterate | None) -> Diagnosis:
    """Whether there is a point at all, and a least value. `given_up` has the multipliers with which a solver of ours
    says that there is no point."""
    form, data = task.reduction.form, outer.form
    # Rows that contradict each other are asked about first: that takes no kernel, and no rank can hide it.
    found = _least_violation(task, feasibility.phase_one_of_rows(form, data))
    if not found.proven:
        guides = None if given_up is None else _guides_beyond(task, data, given_up)
        if guides is not None:
            return Diagnosis(None, guides)
        found = _least_violation(task, feasibility.phase_one(form, data))
    if found.proven:
        return Diagnosis(Status.INFEASIBLE)
    if data.smooth or not found.violation <= RAY_FEASIBILITY**2:
        return Diagnosis(None, found.guides)  # cones don't tell how a smooth loss grows along a ray
    return Diagnosis(Status.UNBOUNDED if has_ray(task, outer) else None, found.guides)


def guides_of(reduction: Reduction, latest: Lower | None) -> dict[Theta, Guide]:
    """ν of each θ with rows, and Qν where the certificate's pass gave it."""
    found: dict[Theta, Guide] = {}
    if latest is None or not latest.multipliers:
        return found
    products = latest.products or (None,) * len(latest.multipliers)
    for link, m, product in zip(reduction.form.predictions, latest.multipliers, products, strict=True):
        width = sum(m.widths)
        found[link.theta] = Guide(m.stack[:, :width], None if product is None else product[:, :width])
    return found


# ---------------------------------------------------------------- infeasible


@dataclass(frozen=True, eq=False)
class _Violation:
    """The square of the least violation, nan where it is not found, and whether it is proven to be positive."""

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


def _guides_beyond(task: Task, data: ConicForm, given_up: Iterate) -> dict[Theta, Guide] | None:
    """The multipliers that a solver of ours gave up with, where no violation of this restricted θ proves anything;
    else None."""
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
    """Whether θ may be as long as it likes at no cost, and what an answer was found for falls along some lines: a
    solver may stop anywhere on a slow fall."""
    outer, form = task.data, task.reduction.form
    if outer is None or outer.form.smooth or not feasibility.has_free_theta(form, outer.form):
        return False
    split = outer.split
    if split is None or split.linear_u.any() or split.linear_y.any():
        return True
    low, high = split.slopes()
    return bool(np.any(low > 0) or np.any(high < 0))


def has_ray(task: Task, outer: Outer) -> bool:
    """Whether a ray is found along which the objective falls for ever."""
    question = feasibility.recession(task.reduction.form, outer.form)
    asked = _asked(task, question, DIRECTION)
    if asked is None:
        return False
    reduction, point = asked
    prices = question.prices(point.duals)
    return any(ray.falls(prices) for ray in rays.rays(question, reduction, point, outer.form))


# ---------------------------------------------------------------- not attained


def is_receding(task: Task, outer: Outer, point: Iterate, found: Certificate) -> bool:
    """Whether f falls for ever along a direction without reaching its infimum: exponentials that die out."""
    data, pieces, form = outer.form, outer.split, task.reduction.form
    penalized = bool(np.all((data.c[data.t] > 0) | (data.P[data.t] > 0))) and len(data.t) > 0
    everywhere = all(form.norms_of(link.theta) for link in form.predictions)
    if data.smooth:
        return False
    only_y = penalized and everywhere  # θ can't recede where its length costs something
    if found.evidence is None or not data.cones.exp or (only_y and not len(data.y)):
        return False
    if only_y and pieces is not None and _grows(pieces):
        return False
    exponents = data.cones.exponentials
    if found.evidence.point is not None:
        s = data.b - data.A @ found.evidence.point.x
        faded = bool(np.any(s[exponents] < FADED * np.maximum(s[exponents + 1], 0.0)))
        weights = np.clip(found.evidence.point.z[exponents + 2], 0.0, None)
    else:
        faded = pieces is not None and _has_faded(point, pieces)
        weights = _that_cost(data, exponents)
    question = feasibility.flat_recession(form, data, weights) if faded else None
    asked = None if question is None else _asked(task, question, DIRECTION, with_theta=not only_y)
    if question is None or asked is None or -asked[1].value <= FALL:
        return False
    share = weights / weights.max()
    return any(
        ray.is_flat and -float(share @ ray.s[exponents]) > FALL
        for ray in rays.rays(question, *asked, data, flat=True)
    )  # fmt: skip


def _that_cost(data: ConicForm, exponents: Ints) -> Array:
    """1 for exponential cones with an auxiliary variable that costs something, else 0: a loss without weight may go
    where it will."""
    costs = (data.c != 0) | (data.P > 0)
    costs[np.concatenate([data.linked, data.y])] = False
    touched = (abs(data.A) @ costs.astype(float) > 0).astype(float)
    return np.asarray(np.maximum.reduce([touched[exponents + j] for j in range(3)]))


def _grows(pieces: Separable) -> bool:
    """Whether the sum grows along the one y that there is, both ways; False where that is not known."""
    with np.errstate(invalid="ignore"):
        if any(isinstance(piece, LogSumExp) for piece in pieces.pieces):
            return False
        return len(pieces.y) == 1 and all(pieces.growth(np.array([d])) > GROWING for d in (1.0, -1.0))


def _has_faded(point: Iterate, pieces: Separable) -> bool:
    """Whether some exponential or logistic piece is all but zero at a point."""
    y = point.y_flat
    if len(y) != len(pieces.y):
        return True  # auxiliary variables among them: unknown
    s = pieces.arguments(point.u_flat, y)
    exponentials = [piece for piece in pieces.pieces if isinstance(piece, ExponentialPiece)]
    return any(bool(np.any(p.rate * s[p.at] + p.shift < FADED)) for p in exponentials)


# ---------------------------------------------------------------- questions


def _asked(
    task: Task, question: Question, tol: float = ANSWER, with_theta: bool = True
) -> tuple[Reduction, Iterate] | None:
    """The answer to a question about the problem, with the same factors, or θ = 0; None where there is none to rely
    on."""
    factors = task.reduction.factors
    if not with_theta:
        factors = {theta: replace(f, B=f.B[:, :0], pivots=f.pivots[:0]) for theta, f in factors.items()}
    seconds = task.goal.seconds_left()
    try:
        rows = {link.theta: link.rows for link in task.reduction.form.predictions}
        whole = {theta: f.in_one_array(rows[theta]) for theta, f in factors.items() if f.rank}
        reduction = Reduction(question.form, {**factors, **whole})
        answer = cvxpy_solvers.solve_reduction(
            reduction, "CLARABEL", tol, {}, None, max(seconds, 1.0) if isfinite(seconds) else None
        )
    except (SolverError, MemoryLimitError):
        return None
    if not answer.has_point or answer.point is None:
        return None
    return reduction, representer.evaluate(reduction, answer.point)
