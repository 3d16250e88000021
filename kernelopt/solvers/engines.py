"""Our own solvers on a reduction: which problems they take, and their answers as iterates."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import inf, isfinite, log, nan
from operator import is_

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from kernelopt import factorization
from kernelopt.compiler import representer, violations
from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.outer import Outer
from kernelopt.compiler.representer import Reduction
from kernelopt.compiler.separable import Lengths
from kernelopt.errors import SolverError
from kernelopt.factorization import Factor
from kernelopt.factorization.tall import TallMatrix
from kernelopt.language.expressions import Theta
from kernelopt.results.solution import Status
from kernelopt.solvers import assemble, first_point, nonconvex, on_rows, recentring
from kernelopt.solvers.assemble import Shape
from kernelopt.solvers.augmented_lagrangian import AugmentedLagrangian, Newton
from kernelopt.solvers.cvxpy_solvers import Answer
from kernelopt.solvers.dual_point import Point
from kernelopt.solvers.engine import Engine
from kernelopt.solvers.fixed_output import without_fixed_output
from kernelopt.solvers.interior_point import InteriorPoint
from kernelopt.solvers.least_squares import KeptSpectrum, LeastSquares
from kernelopt.solvers.method_of_multipliers import RowPoint
from kernelopt.solvers.nonconvex import LevenbergMarquardt
from kernelopt.solvers.proximal_point import ProximalPoint
from kernelopt.solvers.structured import Structured
from kernelopt.solvers.watch import Watch
from kernelopt.support import clock
from kernelopt.support.cvxpy_parts import SolverStats as CvxpyStats
from kernelopt.support.types import Array, Ints

# An engine's target gap, relative to the certified gap that is wanted, which adds the factor's error. Engines converge
# fast near the optimum, so that two more digits cost few systems.
TIGHTER = 1e-2
# The gap at which a point of libsvm's is taken as it is, relative to the certified gap that is wanted: one half leaves
# room for the factor's error, and a certified gap is relative to P₀ − P, which is larger than ½xᵀRx.
ENOUGH = 0.5
# Target gap, relative to ½xᵀRx, for optima that others are computed from (`optimum`) and for nonconvex losses. Where a
# norm's strength R is searched for, max(EXACT, tol²) is the target for each R: the error of ν, and with it that of
# ‖Aᵀν‖, which enters the bound in first order, is of the order of the gap's square root. For Newton's method it is
# max(LEAST, tol²), with the rounding of gaps; an interior point takes many steps in vain between EXACT and LEAST.
EXACT, LEAST = 1e-12, 1e-15
# The point counts as an optimum if its gap, relative to ½xᵀRx or to κ, and its violation, relative to σ, are at most
# NEARLY although EXACT was not reached; above CLOSE another engine is asked, too, since columns that cost little are
# off by the gap's square root and more.
NEARLY, CLOSE = 1e-6, 1e-11
# Absolute gap, in units of κ, that suffices: where the optimum is θ = 0, a gap relative to ½xᵀRx is out of reach.
FLOOR = 1e-10
# Relative: a larger gap of a warm start for another R sends the search astray. From a cold one the engine gets there.
LOST = 1e-3
# Violation of constraints, in units of right-hand sides, from which an engine's answer is a claim of infeasibility.
# Smaller values mistake slow convergence for infeasibility, larger ones let violated constraints pass as solved.
INFEASIBLE = 1e-5
# Relative to P₀: the gap up to which a point counts as an optimum at θ = 0. An engine ends without an error, too, where
# it makes no more steps.
ACCURATE = 1e-9
NEXT = 1e-7  # in units of y: how far from the least value along one y slopes must have both signs
WIDEST = 40.0  # how far log R is searched from its first guess: a double does not resolve sums of e⁴⁰ ≈ 2e17 and 1
MOST_AT_ZERO = 1e8  # entries of a dense system at θ = 0, above which P₀ is not sought: a second of time
# Both log(R‖θ‖) and log(L/‖θ‖) rise with log R by a slope between 0 and 1. RISE: the first guess of the slope, rather
# too steep, as systems with a smaller R take longer; BEYOND: steps go farther than to the root of the secant, so that
# they end on its other side; FIRST: the longest first step.
RISE, BEYOND, FIRST = 0.8, 1.25, 8.0
# ROOT: relative accuracy of a norm's multiplier or length at which the search for R ends; REPEATED: the same where
# another R has left ‖θ‖ as it was. NARROW: width of the interval of log R at which it ends in any case.
ROOT, REPEATED, NARROW = 1e-10, 1e-9, 1e-11


LOCAL = "LEVENBERG_MARQUARDT"
ENGINES: dict[str, Engine] = {
    "LEAST_SQUARES": LeastSquares(),
    "NEWTON": Newton(),
    "AUGMENTED_LAGRANGIAN": AugmentedLagrangian(),
    "PROXIMAL_POINT": ProximalPoint(),
    "INTERIOR_POINT": InteriorPoint(),
    LOCAL: LevenbergMarquardt(),
}


# Takes pieces as they are, where the others need sums of functions of one number each.
MULTIPLIERS = "METHOD_OF_MULTIPLIERS"
OURS = (*ENGINES, MULTIPLIERS)


@dataclass(frozen=True, eq=False)
class Start:
    """The last point of an earlier answer: x in blocks of v and y, kink multipliers, and data its engine reuses.

    blocks, d : matrices B and the predictions Bv, which hold for the next problem if it has the same B; at : the
    prediction of each kink, where it is one; rows : the last point of the method of multipliers, beside which v and y
    are empty
    """

    v: tuple[Array, ...]
    y: Array
    a: Array | None = None
    R: float = 0.0
    kept: object = None
    blocks: tuple[TallMatrix, ...] = ()
    d: Array | None = None
    at: Ints | None = None
    rows: RowPoint | None = None


def lacks(name: str, shape: Shape) -> str | None:
    """Why a solver of ours can't take a problem of this shape."""
    if shape.wide and not (ENGINES[name].sparse and shape.local):
        return "needs fewer variables beside θ: they make a dense array of more than 2 GiB"
    without_norms = shape.free and ENGINES[name].free_columns
    return (None if without_norms else shape.lacks) or ENGINES[name].lacks(shape)


def solve(  # noqa: PLR0917
    reduction: Reduction, outer: Outer, name: str, tol: float, deadline: float = inf,
    start: Start | None = None, verbose: bool = False, progress: bool = False, at_zero: float | None = None,
) -> Answer:  # fmt: skip
    """Solve a reduced problem by one of our own solvers.

    at_zero : P₀, where gaps are relative to P₀ − P, as certified ones are. Raises SolverError where the solver does not
    take the problem, and OutOfTimeError where the deadline is reached before there is a point.
    """
    if name == MULTIPLIERS:
        return _by_multipliers(reduction, outer, tol, deadline, start, verbose, progress, at_zero)
    began = clock.now()
    shape = assemble.shape_of(reduction.form, outer)
    reason = lacks(name, shape)
    if reason is not None:
        raise SolverError(f"{name} {reason}.")
    at = recentring.centres(reduction) if shape.shifted else None
    outer = outer if at is None else recentring.recentred(reduction, outer, at)
    sigma, kappa = outer.units
    exact = shape.odd is not None or shape.nonconvex is not None
    least = LEAST if ENGINES[name].to_rounding else EXACT
    wanted = EXACT if shape.nonconvex is not None else max(least, tol**2)
    target, floor = (wanted, EXACT * FLOOR * kappa) if exact else (TIGHTER * tol, FLOOR * kappa)
    enough = 0.0 if exact else ENOUGH * tol
    zero = -inf if exact or at is not None or at_zero is None else at_zero
    watch = Watch(
        name, target, floor, outer.data_unit or sigma, deadline, verbose, progress, enough, zero,
        outer.offset,
    )  # fmt: skip
    engine = ENGINES[name]
    try:
        # A step too far may overflow; it is taken back. Products with B look at the deadline between blocks of rows.
        with np.errstate(all="ignore"), clock.limited(deadline):
            point, problem, R = _solved(reduction, outer, shape, engine, watch, start)
    except np.linalg.LinAlgError as error:
        raise SolverError(f"{name} broke down. {error}") from error
    finally:
        watch.close()
    if not np.isfinite(point.x).all() or not np.isfinite(point.total(problem)).all():
        raise SolverError(f"{name} broke down. Try another solver, or verbose=True for more.")
    total = point.total(problem)
    of_norms = _of_norms(reduction, problem, shape, point, R)
    found, rows = assemble.iterate(reduction, outer, point.x, total, of_norms)
    if at is not None:
        found = recentring.back(found, at)
    if point.violation > INFEASIBLE * watch.unit and point.stopped is None:
        if _is_met_at_zero(problem):
            raise SolverError(f"{name} ended before constraints were met. Try another solver.")
        return Answer(Status.INFEASIBLE, False, _stats(name, began, watch), found)  # ν says where it is violated
    status = Status.OPTIMAL if point.stopped is None else Status.USER_LIMIT
    ends = problem.ends
    d = problem.predictions(point.x)
    left_off = Start(
        tuple(point.x[a:b] for a, b in pairwise(ends)), point.x[ends[-1] :], point.a, R, point.kept, problem.blocks, d,
        problem.of_kinks_at,
    )  # fmt: skip
    interrupted = isinstance(point.stopped, KeyboardInterrupt)
    gap = point.gap if shape.odd is None and at is None else nan  # else that of another problem
    predictions = None if at is not None or shape.free else assemble.by_link(reduction, d)
    return Answer(
        status, True, _stats(name, began, watch), found, left_off, interrupted, gap, predictions, rows=rows
    )  # fmt: skip


def _is_met_at_zero(problem: Structured) -> bool:
    """Whether x = 0 meets all constraints: they are feasible, then."""
    k = -problem.anchor[problem.rho == 0]
    low, high = (end[problem.rho == 0] for end in (problem.low, problem.high))
    return not np.any(((k > 0) & np.isinf(high)) | ((k < 0) & np.isinf(low)))


def _by_multipliers(  # noqa: PLR0917
    reduction: Reduction, outer: Outer, tol: float, deadline: float, start: Start | None, verbose: bool,
    progress: bool, at_zero: float | None,
) -> Answer:  # fmt: skip
    """The answer of the method of multipliers, with the multipliers of all rows of the pieces.

    Its gap is an estimate, in which errors of inner problems do not count: the certificate's first look decides.
    """
    began, (sigma, kappa) = clock.now(), outer.units
    zero = -inf if at_zero is None else at_zero
    watch = Watch(
        MULTIPLIERS, TIGHTER * tol, FLOOR * kappa, outer.data_unit or sigma, deadline, verbose, progress,
        at_zero=zero, offset=outer.offset,
    )  # fmt: skip
    try:
        with np.errstate(all="ignore"), clock.limited(deadline):
            problem, found = on_rows.solve(reduction, outer, watch, None if start is None else start.rows)
    finally:
        watch.close()
    pieces = outer.pieces
    assert pieces is not None
    if not on_rows.is_finite(found):
        raise SolverError(f"{MULTIPLIERS} broke down. Try another solver, or verbose=True for more.")
    a = on_rows.multipliers(problem, pieces, found)
    point, last = on_rows.iterate(problem, reduction, pieces, found, a), found.point
    violated = last.violation > INFEASIBLE * watch.unit and last.stopped is None
    if violated and reduction.form.proximal:  # bounds of inner functions are no constraints that are stated
        there = representer.evaluate(reduction, point)
        met = violations.violation(reduction, there, outer.data_unit) <= INFEASIBLE
        violated = not (met and isfinite(there.value))
    grows = reduction.is_restriction and any(factor.grows for factor in reduction.factors.values())
    if violated and grows and not reduction.form.proximal:
        return Answer(Status.INFEASIBLE, False, _stats(MULTIPLIERS, began, watch), point)  # ν says where it is violated
    if violated:
        known = "without solver= it is found out whether there is one"
        if reduction.form.proximal:
            known = "whether there is one is not known, as no other solver takes a ProximalLoss"
        raise SolverError(f"{MULTIPLIERS} found no feasible point; {known}.")
    status = Status.OPTIMAL if last.stopped is None else Status.USER_LIMIT
    predictions = assemble.by_link(reduction, problem.predictions(last.x[: problem.p]))
    return Answer(
        status, True, _stats(MULTIPLIERS, began, watch), point, Start((), np.zeros(0), rows=found),
        isinstance(last.stopped, KeyboardInterrupt), nan, predictions, rows=a,
    )  # fmt: skip


def _of_norms(reduction: Reduction, problem: Structured, shape: Shape, point: Point, R: float) -> Array:
    """The multiplier of ‖θ‖ ≤ L for each norm: the part of R‖θ‖ that exceeds the penalty's slope."""
    found = np.zeros(len(reduction.form.norms))
    lengths, odd = shape.lengths, shape.odd
    if lengths is not None and odd is not None and isfinite(lengths.limit[odd]):
        t = float(np.linalg.norm(point.x[_columns(reduction, problem, odd)]) / _root_scale(reduction, odd))
        found[odd] = max(R * t - lengths.slope[odd] - lengths.curvature[odd] * t, 0.0)
    return found


def _columns(reduction: Reduction, problem: Structured, norm: int) -> Ints:
    """The entries of x that make up the θ of a norm."""
    theta, ends = reduction.form.norms[norm].view.theta, problem.ends
    owners = [link.theta for link in reduction.form.predictions for _ in range(link.theta.outputs or 1)]
    blocks = [np.arange(ends[k], ends[k + 1]) for k, owner in enumerate(owners) if owner is theta]
    return np.concatenate([np.arange(0), *blocks])


def _root_scale(reduction: Reduction, norm: int) -> float:
    """‖v‖/‖θ‖ for the θ of a norm."""
    return float(np.sqrt(reduction.factors[reduction.form.norms[norm].view.theta].scale))


def _stats(name: str, began: float, watch: Watch) -> CvxpyStats:
    return CvxpyStats(name, solve_time=clock.now() - began, num_iters=watch.systems)


def _solved(  # noqa: PLR0917
    reduction: Reduction, outer: Outer, shape: Shape, engine: Engine, watch: Watch, start: Start | None
) -> tuple[Point, Structured, float]:
    """The engine's point, the problem that it solves, and R, searched for where a norm's penalty is no square."""
    lengths = shape.lengths
    assert lengths is not None
    fixed = {j: float(c) for j, c in enumerate(lengths.curvature)}
    odd = shape.odd
    if shape.free:
        problem = first_point.with_origin(assemble.freed(reduction, outer), watch)
        return engine.solve(problem, watch, _point(problem, start)), problem, 0.0
    if odd is None:
        problem = first_point.with_origin(assemble.structured(reduction, outer, fixed, engine.sparse), watch)
        return _with_fixed_output(reduction, problem, engine, watch, _point(problem, start)), problem, 0.0
    return _NormSearch(reduction, outer, engine, watch, fixed, odd, lengths).run(start)


def _with_fixed_output(
    reduction: Reduction, problem: Structured, engine: Engine, watch: Watch, start: Point | None
) -> Point:
    """The engine's point, without the combination of outputs that equations fix."""
    factors = [reduction.factors[link.theta] for link in reduction.form.predictions]
    fewer = without_fixed_output(problem, factors[0].pivots) if len(factors) == 1 else None
    if fewer is None:
        return engine.solve(problem, watch, start)
    return fewer.back(engine.solve(fewer.problem, watch, fewer.inside(start)))


def optimum(reduction: Reduction, outer: Outer, start: Start | None) -> tuple[Point, Structured]:
    """The optimum for the present values of parameters, to a gap of `EXACT`; no values are written to variables.

    For convex problems whose shape our engines take, with multiples of ‖θ‖² only. Raises SolverError where no engine
    reaches a gap of `NEARLY`.
    """
    shape = assemble.shape_of(reduction.form, outer)
    assert shape.lengths is not None
    fixed = {j: float(c) for j, c in enumerate(shape.lengths.curvature)}
    problem = assemble.structured(reduction, outer, fixed)
    sigma, kappa = outer.units
    with np.errstate(all="ignore"):
        problem = first_point.with_origin(problem, Watch("", EXACT, EXACT * FLOOR * kappa, sigma))
    return optimum_near(problem, outer, _point(problem, start)), problem


def optimum_near(problem: Structured, outer: Outer, start: Point | None) -> Point:
    """The optimum of a structured problem, from a nearby point."""
    sigma, kappa = outer.units
    kinked, best = bool(np.any(problem.rho == 0)), None
    for name in ("AUGMENTED_LAGRANGIAN" if kinked else "NEWTON", "INTERIOR_POINT"):
        watch = Watch(name, EXACT, EXACT * FLOOR * kappa, sigma)
        with suppress(SolverError), np.errstate(all="ignore"):
            point = ENGINES[name].solve(problem, watch, start)
            if point.stopped is not None:
                raise point.stopped
            if point.violation <= NEARLY * sigma and (best is None or point.gap < best.gap):
                best = point
            if best is not None and best.gap <= CLOSE * max(best.unit, kappa):
                break
    if best is not None and best.gap <= NEARLY * max(best.unit, kappa):
        return best
    raise SolverError("Found no optimum to the accuracy that is needed. Scale data and penalties to sizes of about 1.")


def smallest_curvature(reduction: Reduction, outer: Outer, point: Iterate) -> float:
    """The smallest eigenvalue of the Hessian, in units of the penalty of θ; for θ in the factor's span."""
    shape = assemble.shape_of(reduction.form, outer)
    assert shape.lengths is not None
    problem = assemble.structured(reduction, outer, {j: float(c) for j, c in enumerate(shape.lengths.curvature)})
    return nonconvex.smallest_curvature(problem, assemble.vector(reduction, outer, point))


def value_at_zero(reduction: Reduction, outer: Outer) -> float | None:
    """P₀ of the minimized problem, the optimum over y at θ = 0; None where it is infeasible or not found."""
    known = None if outer.pieces is None else on_rows.value_without_variables(reduction.form, outer.pieces)
    if known is not None:
        return known
    shape = assemble.shape_of(reduction.form, outer)
    if shape.lacks is not None and not shape.free:
        sigma, kappa = outer.units
        watch = Watch("", 0.0, FLOOR * kappa, sigma, clock.now() + clock.for_last_steps())
        return on_rows.value_at_zero(reduction, outer, watch)
    ones = dict.fromkeys(range(len(reduction.form.norms)), 1.0)
    proximal = bool(shape.maxima and not shape.smooth and reduction.form.predictions)
    if proximal and reduction.form.y:  # few columns that all rows share: a sparse program takes a tenth of the time
        return None
    engine = "PROXIMAL_POINT" if proximal else "INTERIOR_POINT" if shape.kinked else "NEWTON"
    problem = assemble.structured(reduction, outer, ones, ENGINES[engine].sparse).truncated(0)
    if proximal and problem.m * problem.q > MOST_AT_ZERO:
        return None
    sigma, kappa = outer.units
    # ½xᵀRx = 0 without v: only the absolute gap can close
    watch = Watch("", 0.0, FLOOR * kappa, sigma, clock.now() + clock.for_last_steps())
    if not problem.q:
        return problem.value(np.zeros(0), np.zeros(problem.m))
    along_one = _least_along_one(problem) if problem.q == 1 and not (shape.hard or reduction.form.smooth) else None
    if along_one is not None:
        return along_one
    try:
        with np.errstate(all="ignore"), clock.limited(watch.deadline):
            problem = first_point.with_origin(problem, watch)
            point = ENGINES[engine].solve(problem, watch)
    except (SolverError, clock.OutOfTimeError, np.linalg.LinAlgError):
        return None
    if isinstance(point.stopped, KeyboardInterrupt):
        raise point.stopped
    exact = point.gap <= max(watch.floor, ACCURATE * abs(point.primal)) and point.violation <= INFEASIBLE * sigma
    return point.primal if point.stopped is None and exact else None


def _least_along_one(problem: Structured) -> float | None:
    """The least value over a single y, without v; None where none is found.

    Without smooth functions the slope in y is piecewise linear: between two of its knots it has the root. Else Brent's
    method is tried.
    """
    column = problem.F[:, 0]
    if not np.any(column):  # it stands in no function
        return None

    def value(y: float) -> float:
        return problem.value(np.array([y]), column * y)

    with np.errstate(all="ignore"):  # f may be ∞
        if not problem.smooth:
            found = _root_of_slope(problem, column)
            least = inf if found is None else value(found)
            return least if isfinite(least) else None
        try:
            by_brent = minimize_scalar(value, method="brent")
        except RuntimeError:  # no bracket
            return None
        y, far = float(by_brent.x), NEXT * (abs(float(by_brent.x)) + problem.sigma / float(np.abs(column).max()))
        before, after = (_slope_along_one(problem, column, at) for at in (y - far, y + far))
        # By convexity the least value is at most far·|slope| below those at both ends.
        exact = before <= 0 <= after and far * max(-before, after) <= ACCURATE * abs(by_brent.fun)
    return float(by_brent.fun) if isfinite(by_brent.fun) and exact else None


def _slope_along_one(problem: Structured, column: Array, y: float) -> float:
    """The slope in a single y, without v."""
    s = column * y
    k = s[problem.of] - problem.anchor
    with np.errstate(all="ignore"):
        a = np.where(problem.rho > 0, k / problem.rho, np.where(k == 0, 0.0, np.copysign(inf, k)))
        of_rows = problem.smooth_gradient(s) + problem.of_kinks(np.clip(a, problem.low, problem.high))
        return float(problem.linear[-1]) + float(column[column != 0] @ of_rows[column != 0])


def _root_of_slope(problem: Structured, column: Array) -> float | None:
    """The y at which g + Σ Fₖ·clip((Fₖy − anchorₖ)/ρₖ, lowₖ, highₖ) is 0, or jumps over 0; None without such a y."""
    F, anchor, low, high = column[problem.of], problem.anchor, problem.low, problem.high
    used, rho = F != 0, problem.rho
    F, anchor, low, high, rho = F[used], anchor[used], low[used], high[used], rho[used]
    ends = [(anchor + rho * end)[np.isfinite(end)] / F[np.isfinite(end)] for end in (low, high)]
    knots, cost = np.unique(np.concatenate(ends)), float(problem.linear[-1])
    along = partial(_slope_along_one, problem, column)
    if not len(knots):
        bend = float(np.sum(F**2 / rho))
        return float(np.sum(F * anchor / rho) - cost) / bend if 0 < bend < inf else None
    first, last = 0, len(knots) - 1
    if along(np.nextafter(knots[0], -inf)) > 0 or along(np.nextafter(knots[-1], inf)) < 0:
        bend = float(np.sum(F**2 / rho)) if np.all(rho > 0) else inf
        beyond = 0 if along(np.nextafter(knots[0], -inf)) > 0 else -1
        at = along(float(knots[beyond]))
        return None if not 0 < bend < inf else float(knots[beyond] - at / bend)
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (middle, last) if along(knots[middle]) <= 0 else (first, middle)
    left, right = float(knots[first]), float(knots[last])
    before, after = along(np.nextafter(left, inf)), along(np.nextafter(right, -inf))
    if before >= 0:
        return left
    return right if after <= 0 else left - before * (right - left) / (after - before)


def carried(
    start: Start | None, form: CanonicalForm, old: Mapping[Theta, Factor], new: Mapping[Theta, Factor]
) -> Start | None:
    """A start in the coordinates of new factors; unchanged where the new columns of B only follow the old ones.

    What least squares keep is widened where that is possible; what others keep belongs to the old columns.
    """
    owners = [link.theta for link in form.predictions for _ in range(link.theta.outputs or 1)]
    moved = {theta for theta in old if theta in new and old[theta] is not new[theta] and not old[theta].is_nested}
    if start is not None and start.rows is not None:
        if not moved or len(owners) != len(start.rows.ends) - 1:
            return start
        return replace(start, rows=on_rows.carried(start.rows, owners, moved, old, new))
    if start is None or not moved or len(owners) != len(start.v):
        return start
    v = list(start.v)
    for k, theta in enumerate(owners):
        if theta in moved:  # an earlier start lacks columns that were added since
            known = np.pad(v[k], (0, old[theta].rank - len(v[k])))
            v[k] = factorization.carried(old[theta], new[theta], known)
    kept = start.kept if isinstance(start.kept, KeptSpectrum) else None
    return replace(start, v=tuple(v), kept=kept, d=None)


def _point(problem: Structured, start: Start | None) -> Point | None:
    """An earlier answer as a starting point, padded with zeros; None where shapes have changed or f is infinite."""
    if start is None or start.rows is not None or len(start.v) != len(problem.blocks):
        return None
    before, at = start.at, problem.of_kinks_at
    of_others = before is not None and at is not None and not np.array_equal(before, at)
    if start.a is not None and len(start.a) != len(problem.of) and not of_others:
        return None
    if len(start.y) != problem.q or any(len(v) > B.shape[1] for v, B in zip(start.v, problem.blocks, strict=True)):
        return None
    parts = zip(start.v, problem.blocks, strict=True)
    padded = [np.append(v, np.zeros(B.shape[1] - len(v))) if len(v) < B.shape[1] else v for v, B in parts]
    x = np.concatenate([*padded, start.y])
    same = len(start.blocks) == len(problem.blocks) and all(map(is_, start.blocks, problem.blocks))
    s = problem.arguments(start.d, start.y) if same and start.d is not None else problem.products(x)
    if not isfinite(problem.smooth_value(s)):
        return None
    known = np.zeros(len(problem.of)) if start.a is None else start.a
    if of_others and start.a is not None:
        assert before is not None
        assert at is not None
        known = _for_other_rows(problem, start.a, before, at, s)
    a = np.clip(known, problem.low, problem.high)
    unit = problem.quadratic(x) if problem.orthonormal else 0.0  # a product with Q: no engine reads it before a step
    return Point(x, s, a, problem.smooth_gradient(s), inf, unit, inf, inf, kept=start.kept)


def _for_other_rows(problem: Structured, a: Array, before: Ints, at: Ints, s: Array) -> Array:
    """Multipliers of kinks from those of a problem with other rows, as of another fold.

    before, at : the prediction of each kink. Kinks of rows that had none before get the multiplier at the end of their
    box on whose side s is.
    """
    k = s[problem.of] - problem.anchor
    sides = np.where(k > 0, problem.high, problem.low)
    numbers = _numbers(np.append(before, at).max(initial=0) + 1, before, at)
    known = np.full(max(part.max(initial=0) for part in numbers) + 1, np.nan)
    known[numbers[0]] = a
    found = known[numbers[1]]
    return np.where(np.isnan(found), np.where(np.isfinite(sides), sides, 0.0), found)


def _numbers(predictions: int, *ats: Ints) -> list[Ints]:
    """A number for each kink: its prediction, plus `predictions` for each kink before it of the same prediction."""
    found = []
    for at in ats:
        order = np.argsort(at, kind="stable")
        first = np.flatnonzero(np.diff(at[order], prepend=-1))
        before = np.arange(len(at)) - np.repeat(first, np.diff(np.append(first, len(at))))
        numbers = np.empty(len(at), dtype=np.int64)
        numbers[order] = at[order] + predictions * before
        found.append(numbers)
    return found


def _next_width(width: float, before: float, value: float, number: int) -> float:
    """How far to go on to a root after step `number`: by the secant and a little more after the first one, at least.

    No slope is above 1, so that the root is at least as far as the value is from 0. Where the secant asks for more than
    twice the width, or the second step has not reached the root, the secant is a poor guide, as along e^x + ε.
    """
    gained = abs(value - before)
    by_secant = BEYOND * width * abs(value) / gained if 0 < gained < inf else inf
    if by_secant > 2 * width:
        return max(2 * width, 1.0)
    return max(by_secant, abs(value), 2 * width if number > 1 else 0.0)


class _NormSearch:
    """Replace c‖θ‖ + ½P‖θ‖² with ‖θ‖ ≤ L by ½R‖θ‖², for the R at which R‖θ‖ = c + P‖θ‖ or ‖θ‖ = L.

    As R grows, ‖θ‖ decreases and R‖θ‖ increases, so that this R is the root of an increasing function of log R.
    """

    def __init__(  # noqa: PLR0917
        self, reduction: Reduction, outer: Outer, engine: Engine, watch: Watch,
        fixed: dict[int, float], odd: int, lengths: Lengths,
    ) -> None:  # fmt: skip
        self.reduction, self.outer, self.engine, self.watch = reduction, outer, engine, watch
        self.fixed, self.odd = fixed, odd
        self.slope, self.curvature, self.limit = (
            float(part[odd]) for part in (lengths.slope, lengths.curvature, lengths.limit)
        )
        self.root_scale = _root_scale(reduction, odd)
        self.first: Start | None = None
        self.point: Point | None = None
        self.problem: Structured | None = None
        self.at = 1.0
        self.known: dict[float, float] = {}
        self.small = FLOOR * outer.units[1]

    def solve_at(self, R: float, start: Point | None) -> float:
        """‖θ‖ for ½R‖θ‖²."""
        self.problem = assemble.structured(self.reduction, self.outer, self.fixed | {self.odd: R}, self.engine.sparse)
        if start is None and self.first is not None and self.first.kept is not None:
            start = _point(self.problem, self.first)
        warm, self.at, before = start is not None, R, self.watch.systems
        self.problem = self.problem if warm else first_point.with_origin(self.problem, self.watch)
        self.point = self.engine.solve(self.problem, self.watch, start)
        if self.engine.to_rounding and warm and self.point.stopped is None and self.watch.systems == before:
            # Another R's point will do, as gaps are rounding, but its ‖θ‖ says nothing about this R.
            with self.watch.to_the_end():
                self.point = self.engine.solve(self.problem, self.watch, self.point)
        if warm and self.point.stopped is None and (self._is_infeasible() or self._is_lost()):  # by the start, maybe
            self.problem = first_point.with_origin(self.problem, self.watch)
            self.point = self.engine.solve(self.problem, self.watch, None)
        if self.point.stopped is not None:
            raise _EndedError
        columns = _columns(self.reduction, self.problem, self.odd)
        return float(np.linalg.norm(self.point.x[columns]) / self.root_scale)

    def excess(self, log_R: float) -> float:
        """The smaller of log(R‖θ‖/(c + P‖θ‖)) and log(L/‖θ‖); raises _EndedError at a root."""
        if log_R not in self.known:
            t = self.solve_at(float(np.exp(log_R)), self.point)
            tiny = float(np.finfo(float).tiny)
            wanted = self.slope + self.curvature * t
            by_penalty = log_R + log(max(t, tiny)) - log(wanted) if wanted > 0 else inf
            by_limit = log(self.limit / max(t, tiny)) if isfinite(self.limit) else inf
            value = min(by_penalty, by_limit)
            repeats = value in self.known.values()
            self.known[log_R] = value
            if self.known[log_R] > 0 and wanted == 0 and np.exp(log_R) * t * self.limit <= self.small:
                raise _EndedError  # an inactive bound, whose multiplier R‖θ‖ costs at most this
            if by_penalty < 0 and by_penalty <= by_limit and wanted * t <= self.small:
                self._shortened(0.0)  # θ = 0 is optimal
                raise _EndedError
            # Where ‖θ‖ does not change, the engine found its start accurate enough, and tells no finer R apart.
            is_root = abs(value) <= (REPEATED if repeats else ROOT)
            if is_root or self._is_infeasible():
                raise _EndedError
        return self.known[log_R]

    def run(self, start: Start | None) -> tuple[Point, Structured, float]:
        self.first = start
        sigma, kappa = self.outer.units
        # R = P + c/‖θ‖ for a θ that predicts about σ, and for a bound the R with R‖θ‖² = κ at ‖θ‖ = L.
        length = sigma / self.root_scale
        bounded = kappa / self.limit / self.limit if isfinite(self.limit) else 0.0
        guess = self.curvature + self.slope / length + bounded if length > 0 else inf
        guess = start.R if start is not None and start.R > 0 else guess
        if not 0 < guess < inf:
            raise SolverError(
                "‖θ‖² exceeds the range of double precision. Change units: multiply data and targets by a constant."
            )
        with suppress(_EndedError):
            self._bracketed(log(guess))
        self._shortened(self.limit)
        assert self.point is not None
        assert self.problem is not None
        return self.point, self.problem, self.at

    def _bracketed(self, middle: float) -> None:
        """Find an interval around the root, by secants that go a little too far, then the root."""
        low = high = middle
        value, number = self.excess(middle), 0
        width = min(abs(value) * BEYOND / RISE, FIRST)
        while value < 0 and high - middle < WIDEST:
            low, high, before, number = high, high + min(width, WIDEST), value, number + 1
            value = self.excess(high)
            width = _next_width(width, before, value, number)
        while value > 0 and high <= middle and middle - low < WIDEST:
            high, low, before, number = low, max(low - min(width, WIDEST), self._least(low)), value, number + 1
            value = self.excess(low)
            width = _next_width(width, before, value, number)
        if self.known[low] * self.known[high] < 0:
            brentq(self.excess, low, high, xtol=NARROW, rtol=1e-14)

    def _least(self, log_R: float) -> float:
        """log of the R at which an inactive bound costs nothing, the end of a search; −∞ below it or with a penalty."""
        if self.slope > 0 or self.curvature > 0 or not isfinite(self.limit):
            return -inf
        least = log(self.small) - 2 * log(self.limit)
        return least if least < log_R else -inf

    def _is_infeasible(self) -> bool:
        return self.point is not None and self.point.violation > INFEASIBLE * self.watch.unit

    def _is_lost(self) -> bool:
        """Whether the engine ended far from the optimum: all multipliers at ends of their boxes leave y unbalanced."""
        assert self.point is not None
        size = self.watch.size(self.point.unit, self.point.primal)
        return not self.point.gap <= max(LOST * size, self.watch.floor)

    def _shortened(self, limit: float) -> None:
        """Scale θ down to ‖θ‖ ≤ limit, since a root is accurate to `ROOT` only."""
        assert self.point is not None
        assert self.problem is not None
        columns, x = _columns(self.reduction, self.problem, self.odd), self.point.x.copy()
        length = float(np.linalg.norm(x[columns])) / self.root_scale
        if length > limit:
            x[columns] *= limit / length
            self.point = replace(self.point, x=x)


class _EndedError(Exception):
    """Ends the search: a root was found, none exists, or the engine was stopped. The last point is the answer."""
