"""The method of multipliers on pieces: for any sum of functions and constraints whose proximal maps are known.

With multipliers a₀ of the rows and b₀ of v, each round minimizes

    ½ΣRₖ‖vₖ‖² + c·x + M(s; a₀, σ) + M(v; b₀, σ)

over x by Newton's method, M of `row_multipliers`, and takes the multipliers at the minimum as the next a₀ and b₀.
Rounds begin with few columns of B. See Rockafellar (1976), "Augmented Lagrangians and applications of the proximal
point algorithm in convex programming"; for the inner method Li, Sun and Toh (2018), "A highly efficient semismooth
Newton augmented Lagrangian method".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, isfinite

import numpy as np
import scipy.sparse as sp

from kernelopt.solvers import row_systems
from kernelopt.solvers.dual_point import Point
from kernelopt.solvers.row_multipliers import OfLengths, RowStep, curvature, of_lengths, step, weighed
from kernelopt.solvers.row_problem import RowProblem, VectorNorm
from kernelopt.solvers.row_reduction import Products
from kernelopt.solvers.watch import Watch
from kernelopt.support import clock
from kernelopt.support.clock import OutOfTimeError
from kernelopt.support.types import Array, Ints

# Columns of B with which rounds begin, each where it is at most SOME of all of them. Later ones start from there.
RANKS, SOME = (100, 300), 0.6
# σ in units of the problem's steps: at first, its growth after a round that left more than SLOW of the gap, its largest
# value, and what it is divided by after an inner problem that took too many steps.
FIRST, GROWTH, SLOW, LARGEST, SHRINK = 3.0, 5.0, 0.05, 1e10, 16.0
BACK = 0.002  # share of σ with which a problem with more columns begins
# Rounds of one rank, Newton steps of one round, trials of a step length.
ROUNDS, STEPS, TRIALS = 60, 40, 40
# Systems of all rounds of one rank, after which another solver may do better; problems of 1000 rows take 10 to 300.
WORK = 400
# A round ends where the inner problem's error is that share of the proximal terms, or of the gap that is asked for.
SHARE, FINE = 0.1, 0.01
# Of a step length: least decrease relative to the slope (Armijo), and largest slope at its end (Wolfe).
DECREASE, FLATTER = 1e-4, 0.9
ROUNDING = 2e-15  # relative: values that differ by less count as equal in a line search
# Relative to the diagonal that all rows of y would have: a smaller one is raised to it, so that y does not go far along
# directions in which no function is active now. After a step of at least WHOLE of its direction the share is LESS of
# what it was: an intercept has little curvature of its own beside a kernel that has nearly all constants.
RIDGE, LEAST, WHOLE, LESS = 1e-3, 1e-10, 0.99, 0.1
ROUGH = 1e3  # times the error that is allowed: a larger one, where no step reduces it, comes of a large σ
NEARLY = 3e-13  # relative to the value: inner errors of that size are rounding
SHORT = 1e-6  # of a usual length: shorter v are 0 where their multipliers say so
LAST_DIGITS = 1e-10  # relative to the value: where θ = 0 is optimal, the gap has no other unit
# The same where the costs of norms are at most NO_SIZE of the value: a third of the 1e-8 that a certificate asks for.
DIGITS_AT_ZERO, NO_SIZE = 3e-9, 1e-9
RUNAWAY = 1e8  # in units of rows: a step that still falls there shows an inner problem without a minimum
IDLE = 6  # rounds without a better point, after which there is none


@dataclass(frozen=True, eq=False)
class InnerPoint:
    """A point of an inner problem: x, s, the steps of rows and of lengths there, and the inner objective."""

    x: Array
    s: Array
    rows: RowStep
    lengths: OfLengths
    value: float

    def gradient(self, problem: RowProblem) -> Array:
        """The gradient of the inner objective."""
        found = problem.cost + problem.adjoint(self.rows.a) + self.lengths.b
        found[: problem.p] += problem.penalty * self.x[: problem.p]
        return found


@dataclass(frozen=True, eq=False)
class RowPoint:
    """The best point, the multipliers b of v, σ with which its round began, and where each vₖ begins."""

    point: Point
    b: Array
    scale: float
    ends: Ints


def solve(problem: RowProblem, watch: Watch, start: RowPoint | None = None) -> RowPoint:
    """The best point found; the watch decides when it is good enough.

    The point's `a` are multipliers of all rows but those of norms, its `slopes` those of v.
    """
    ranks = [] if start is not None else [r for r in RANKS if r <= SOME * max(B.shape[1] for B in problem.blocks)]
    found: RowPoint | None = start
    coarse = problem
    for rank in ranks:
        before, coarse = coarse, problem.truncated(rank)
        found = _rounds(coarse, watch, _carried(found, before, coarse), rank, coarse=True)
        if found.point.stopped is not None:
            return _carried(found, coarse, problem) or found
    return _rounds(problem, watch, _carried(found, coarse, problem), max(B.shape[1] for B in problem.blocks))


def _carried(found: RowPoint | None, old: RowProblem, new: RowProblem) -> RowPoint | None:
    """A point of a problem with fewer columns as one of another."""
    if found is None or old is new:
        return found
    x, b = (new.extended(part, old) for part in (found.point.x, found.b))
    return balanced(new, RowPoint(replace(found.point, x=x), b, smaller(found.scale), new.ends))


def smaller(scale: float) -> float:
    """σ with which a problem with more columns begins."""
    return max(FIRST, BACK * scale)


def balanced(problem: RowProblem, found: RowPoint) -> RowPoint:
    """The point with the b of lengths at which nothing is left of the gradient: those of new columns are not 0."""
    at = [one.columns for one in problem.lengths]
    at += [np.array([problem.p + one.t]) for one in problem.lengths if one.t >= 0]
    columns, x = np.concatenate([np.arange(0), *at]).astype(int), found.point.x
    left = problem.cost + problem.adjoint(found.point.a)
    left[: problem.p] += problem.penalty * x[: problem.p]
    b = np.zeros(len(x))
    b[columns] = -left[columns]
    return replace(found, b=b)


def _rounds(problem: RowProblem, watch: Watch, start: RowPoint | None, rank: int, coarse: bool = False) -> RowPoint:
    """Rounds with all columns of a problem."""
    products, scale = Products(problem), FIRST if start is None else start.scale
    x = np.zeros(problem.p + problem.q) if start is None else start.point.x
    a0 = np.zeros(len(problem.shift)) if start is None else np.where(problem.explicit, start.point.a, 0.0)
    b0 = np.zeros(problem.p + problem.q) if start is None else start.b
    best, idle, last, unit, before = None, 0, inf, 0.0, watch.systems
    try:
        for _ in range(ROUNDS):
            if watch.systems - before > WORK:
                break
            state = _state(problem, x, problem.moved(x) + problem.shift, a0, b0, scale, None)
            if not isfinite(state.value):
                break
            state, is_solved = _minimized(problem, products, watch, state, a0, b0, scale)
            if not is_solved:
                scale /= SHRINK
                idle += 1
                if idle > IDLE:
                    break
                continue
            found = RowPoint(judged(problem, state), state.lengths.b, scale, problem.ends)
            is_enough = watch(found.point, rank, coarse)
            unit = max(unit, found.point.unit)
            merit = watch.merit(found.point, unit)
            if best is None or merit < watch.merit(best.point, unit) or not isfinite(watch.merit(best.point, unit)):
                best, idle = found, 0
            else:
                idle += 1
            point = found.point
            vanishes = problem.p and point.unit <= NO_SIZE * abs(point.primal)
            digits = DIGITS_AT_ZERO if vanishes else LAST_DIGITS
            is_near = point.gap <= digits * abs(point.primal) and isfinite(point.primal)
            is_settled = is_near and point.violation <= LAST_DIGITS * problem.unit
            best = (is_enough and not coarse and _zeroed(problem, found, state, a0, b0)) or best
            if is_enough or is_settled or idle > IDLE:
                break
            x, a0, b0 = state.x, np.where(problem.explicit, state.rows.a, 0.0), state.lengths.b
            if merit > SLOW * last or not isfinite(merit):  # outside of a domain
                scale = min(scale * GROWTH, LARGEST)
            last = merit
    except (OutOfTimeError, KeyboardInterrupt) as stop:
        if best is None:
            raise
        return replace(best, point=replace(best.point, stopped=stop))
    if best is None:
        raise np.linalg.LinAlgError("The first round found no point.")
    return best


def _zeroed(problem: RowProblem, found: RowPoint, state: InnerPoint, a0: Array, b0: Array) -> RowPoint | None:
    """The point with v = 0 where norms' multipliers are inside of their balls; None where that is no better."""
    x, point = _with_zeros(problem, state, inf), found.point
    if np.array_equal(x, point.x):
        return None
    there = judged(problem, _state(problem, x, problem.moved(x) + problem.shift, a0, b0, found.scale, None))
    if not there.primal <= point.primal or there.violation > max(point.violation, LAST_DIGITS * problem.unit):
        return None
    gap = max(point.gap + there.primal - point.primal, 0.0)
    return replace(found, point=replace(point, x=x, s=there.s, primal=there.primal, violation=there.violation, gap=gap))


def _state(  # noqa: PLR0917
    problem: RowProblem, x: Array, s: Array, a0: Array, b0: Array, scale: float, guess: Array | None
) -> InnerPoint:
    rows = step(problem, s, a0, scale, guess)
    v, lengths = x[: problem.p], of_lengths(problem, x, b0, scale)
    value = float(problem.cost @ x) + 0.5 * float(problem.penalty @ v**2) + rows.value + lengths.value
    return InnerPoint(x, s, rows, lengths, value if np.isfinite(rows.a).all() else inf)


def _minimized(  # noqa: PLR0917
    problem: RowProblem, products: Products, watch: Watch, state: InnerPoint, a0: Array, b0: Array, scale: float
) -> tuple[InnerPoint, bool]:
    """The minimum of the inner problem, and whether it was found: by Newton's method.

    After a direction along which nothing falls v has a ridge, a share of σ: norms that are not squared, beside losses
    with kinks, have no curvature where none of these is active. That of y falls with each step that was not cut short.
    """
    share, of_y = 0.0, RIDGE
    for number in range(STEPS):
        gradient = state.gradient(problem)
        error, allowed = _error(problem, state, gradient), _allowed(problem, watch, state, a0, b0, scale)
        if number and error <= allowed:
            return state, True
        clock.check()
        found = curvature(problem, state.s, state.rows)
        ridge = _ridge(problem, found.H, state.rows, of_y)
        try:
            lengths = state.lengths._replace(W=state.lengths.W + np.diag(share * scale * problem.steps_of_blocks))
            direction = -row_systems.solver(products, found, lengths, ridge)(gradient)
        except np.linalg.LinAlgError:
            return state, False
        watch.systems += 1
        slope = float(gradient @ direction)
        new = _searched(problem, state, direction, slope, a0, b0, scale) if slope < 0 else None
        if new is None and error > ROUGH * allowed and share < RIDGE:
            share = RIDGE
            continue
        if new is None:  # no lower value can be told from this one
            return state, number == 0 or error <= ROUGH * allowed
        whole = np.linalg.norm(new.x - state.x) >= WHOLE * np.linalg.norm(direction)
        of_y = max(of_y * LESS, LEAST) if whole else RIDGE
        state = new
    return state, False


def _squares_of_y(problem: RowProblem, weights: Array) -> Array:
    """diag(Fᵀ diag(weights) F)."""
    return np.asarray((problem.F * problem.F).T @ weights)


def _ridge(problem: RowProblem, H: sp.csr_array, rows: RowStep, share: float) -> Array:
    whole = _squares_of_y(problem, np.where(problem.explicit, rows.sigma, 0.0))
    now = _squares_of_y(problem, H.diagonal())
    return np.asarray(np.maximum(share * whole - now, 0.0) + LEAST * (whole + now) + 1e-300)


def _error(problem: RowProblem, state: InnerPoint, gradient: Array) -> float:
    """About how much the inner objective is above its minimum."""
    v, y = gradient[: problem.p], gradient[problem.p :]
    moving = np.maximum(_squares_of_y(problem, state.rows.sigma), 1e-300)
    along = float(np.abs(y @ state.x[problem.p :])) + float(np.sum(y**2 / moving))
    return 0.5 * float(np.sum(v**2 / problem.steps_v)) + along


def _allowed(  # noqa: PLR0917
    problem: RowProblem, watch: Watch, state: InnerPoint, a0: Array, b0: Array, scale: float
) -> float:
    own, rows, v = problem.explicit, state.rows, state.x[: problem.p]
    moved = float(np.sum((rows.a[own] - a0[own]) ** 2 / (2 * rows.sigma[own])))
    moved += float(np.sum((state.lengths.b - b0)[: problem.p] ** 2 / problem.steps_v)) / (2 * scale)
    unit = 0.5 * float(problem.steps_v @ v**2)
    return max(SHARE * moved, FINE * watch.tol * unit, NEARLY * abs(state.value))


def _searched(  # noqa: PLR0917
    problem: RowProblem, state: InnerPoint, direction: Array, slope: float, a0: Array, b0: Array, scale: float
) -> InnerPoint | None:
    """The state after a step along a direction that meets Wolfe's conditions; None where none is found."""
    moved, p = problem.moved(direction), problem.p
    longest = RUNAWAY / max(float((np.abs(moved) / problem.sizes).max(initial=0.0)), 1e-300)
    linear = float(problem.cost @ direction)
    t, low, high = 1.0, 0.0, inf
    for _ in range(TRIALS):
        clock.check()
        x = state.x + t * direction
        new = _state(problem, x, state.s + t * moved, a0, b0, scale, state.rows.multipliers)
        rise, noise = new.value - state.value, ROUNDING * (abs(new.value) + abs(state.value))
        if not isfinite(rise):
            high = t
            t = 0.5 * (low + high)
            continue
        of_v = float((problem.penalty * x[:p]) @ direction[:p] + new.lengths.b @ direction)
        here = linear + float(new.rows.a @ moved) + of_v
        falls = rise <= DECREASE * t * slope + noise
        if falls and abs(here) <= FLATTER * abs(slope):
            return new
        if falls and here < 0:
            if high == inf and t > longest:
                raise np.linalg.LinAlgError("Columns without a norm run away.")
            low = t
            t = 2 * t if high == inf else 0.5 * (low + high)
        else:
            high = t
            by_secant = max(t * slope / (slope - here), 0.1 * t) if low == 0 and here > slope else 0.0
            t = by_secant if low < by_secant < high else 0.5 * (low + high)
    return None


def judged(problem: RowProblem, state: InnerPoint) -> Point:
    """The point with its gap.

    At p, a are slopes, so that Σ(ωh)*(a) = a·p − Σw₀h(p), and the gap is Σw₀(h(s) − h(p)) − a·(s − p), beside the same
    for lengths. A violation counts at twice the price of its multipliers, and what is left of the inner problem's
    gradient at what it costs the bound: ½‖g‖²/R, or the product with v and y where they have no square.
    """
    s, rows, x, p = state.s, state.rows, state.x, problem.p
    v, own = x[:p], problem.explicit
    held, losses, gap = s[problem.below].copy(), 0.0, -float(rows.a[own] @ (s[own] - rows.p[own]))
    violation = price = 0.0
    for f in problem.functions:
        if f.hard:
            apart = np.abs(s[f.rows] - rows.p[f.rows])
            violation = max(violation, float((apart / problem.sizes[f.rows]).max(initial=0.0)))
            price += 2 * float(np.sum(np.abs(rows.a[f.rows]) * apart))
            continue
        here = f.family.value(s[f.rows])
        losses += weighed(f.weight, here)
        gap += weighed(f.weight, here - f.family.value(rows.p[f.rows]))
        held += f.by_row(here, len(held))
    over = np.maximum(held[~problem.apart[problem.below]], 0.0)
    off, sizes = np.abs(s[problem.equal]), problem.sizes[problem.below[~problem.apart[problem.below]]]
    relative = np.concatenate([over / sizes, off / problem.sizes[problem.equal]])
    violation = max(violation, float(relative.max(initial=0.0)))
    price += 2 * float(rows.multipliers[~problem.apart[problem.below]] @ over)
    price += 2 * float(np.abs(rows.a[problem.equal]) @ off)
    lengths, of_lengths_dual = 0.0, 0.0
    gap -= float(state.lengths.b @ (x - state.lengths.p))
    for one in problem.lengths:
        size, near = (_length(one, point[one.columns]) for point in (x, state.lengths.p))
        lengths += one.slope * size
        gap += one.slope * (size - near)
        size_b = float(np.linalg.norm(state.lengths.b[one.columns]))
        limit = one.limit if one.t < 0 else one.head * float(x[problem.p + one.t])
        beyond = max(size - limit, 0.0)
        price += 2 * beyond * size_b
        violation = max(violation, beyond / one.typical)
        bounded = one.limit if one.t < 0 else 0.5 * size
        of_lengths_dual += size_b * bounded if isfinite(bounded) else 0.0
    square = 0.5 * float(problem.penalty @ v**2)
    primal = problem.constant + float(problem.cost @ x) + square + losses + lengths
    unit = square + lengths + of_lengths_dual
    price += _of_gradient(problem, x, state.gradient(problem))
    x, violation = _with_zeros(problem, state, SHORT), violation * problem.unit
    return Point(x, s, rows.a, state.lengths.b, abs(gap) + price, unit, violation, primal)


def _with_zeros(problem: RowProblem, state: InnerPoint, most: float) -> Array:
    """x with v = 0 where a norm's multipliers are inside of their ball, and v is at most that share of a usual one."""
    x = state.x.copy()
    for one in problem.lengths:
        size = float(np.linalg.norm(x[one.columns]))
        if one.t < 0 and not state.lengths.p[one.columns].any() and size <= most * one.typical:
            x[one.columns] = 0.0
    return x


def _of_gradient(problem: RowProblem, x: Array, gradient: Array) -> float:
    total = float(np.abs(gradient[problem.p :]) @ np.abs(x[problem.p :]))
    for a, b, R in zip(problem.ends, problem.ends[1:], problem.R, strict=False):
        size = float(np.linalg.norm(gradient[a:b]))
        linear = size * float(np.linalg.norm(x[a:b]))
        total += min(0.5 * size * size / R, linear) if R > 0 else linear
    return total


def _length(one: VectorNorm, v: Array) -> float:
    """‖v‖ of a norm."""
    if one.p == 2.0 or not len(v):
        return float(np.linalg.norm(v))
    found = np.linalg.svd(v.reshape(len(one.blocks), -1), compute_uv=False)
    return float(found.sum() if one.p == 1.0 else found.max())
