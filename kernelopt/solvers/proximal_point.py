"""The proximal point method in kernel space, for maxima of affine functions: their multipliers stand in simplices.

With multipliers a of all kinks, K = EBR⁻¹BᵀEᵀ and k = s − anchor, an iteration minimizes over θ and y

    ½θᵀRθ + gᵀ(θ, y) + Σ sup {aᵀk − ½ρa² − ‖a − a₀‖²/2σ : a in its box, or in the simplex of its maximum},

by semismooth Newton steps (Rockafellar, 1976; Li, Sun and Toh, SIAM J. Optim. 2018), and takes the a at which the
supremum is attained as the next a₀. θ stays of the form θ = −R⁻¹AᵀEᵀ(slope + δ), so that steps are taken in δ. With the
directions G in which a moves freely (entries inside of their boxes; differences of positive entries of one simplex),
w their curvature and r = a − δ,

    (GᵀG/w + GᵀKG)z − GᵀF dy = −GᵀKr,   FᵀGz = −(g_y + Fᵀ(slope + a)),   dδ = r + Gz.

Bounds t of maxima are minimized out. Steps of an accelerated gradient method on the dual come first: they leave few
positive entries in each simplex, so that the systems are small.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import NamedTuple

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp

from kernelopt.compiler.terms import Kinks
from kernelopt.errors import SolverError
from kernelopt.factorization import memory
from kernelopt.solvers import maxima
from kernelopt.solvers.assemble import Shape
from kernelopt.solvers.dual_point import Point, judged
from kernelopt.solvers.engine import Engine, needs_convexity
from kernelopt.solvers.semismooth import LEAST_WEIGHT
from kernelopt.solvers.structured import Structured, factored
from kernelopt.solvers.watch import Watch
from kernelopt.support.clock import OutOfTimeError
from kernelopt.support.types import Array

# Steps of the accelerated gradient method, with maxima and without. More of them cost more than the systems that they
# make smaller.
GRADIENT_STEPS, WITHOUT_MAXIMA = 150, 30
POWER_STEPS, SAFE = 15, 1.1  # power iterations for the largest eigenvalue of K, and the factor that makes up for few
# σ·(mean of K's diagonal) at first, its growth from one iteration to the next, and its divisor after one that fails. A
# larger first value makes the first systems harder, a smaller one takes more iterations.
FIRST, GROWTH, SHRINK = 3.0, 3.0, 20.0
# σ stays after an iteration that leaves at most this share of the gap: larger values make systems ill-conditioned.
FAST = 0.05
MOST, STEPS, TRIALS = 60, 40, 14  # iterations, Newton steps in each, and lengths that a line search tries
FLAT = 6  # iterations without better merit, or that fail, before the method gives up
SHARE = 0.1  # accuracy of an iteration's minimum, relative to its proximal term
ROOM = 0.01  # the same, relative to the gap that is wanted
FLATTER = 0.5  # a line search ends where the slope has this share of its first value
HELD = 0.3  # share of the free memory that a system may take


class ProximalPoint(Engine):
    """Semismooth Newton steps in kernel space, for maxima over few or many affine functions."""

    sparse = True
    in_rows = True

    def lacks(self, shape: Shape) -> str | None:
        if not shape.maxima:
            return "is for maxima of several affine functions; there are none"
        if shape.smooth:
            return "takes piecewise linear and quadratic losses only"
        return needs_convexity(shape)

    def solve(self, problem: Structured, watch: Watch, start: Point | None = None) -> Point:
        return solve(problem, watch, start)


class _Place(NamedTuple):
    """δ, y without the bounds of maxima, and k = s − anchor that belongs to them."""

    delta: Array
    y: Array
    k: Array


def solve(problem: Structured, watch: Watch, start: Point | None = None) -> Point:
    """The best point found; the watch decides when it is good enough."""
    run = _KernelRun(problem)
    a, y = run.first(watch) if start is None else (run.projected(start.a), start.x[problem.ends[-1] :][run.kept])
    best, sigma, flat = run.point(a, y), FIRST / run.unit, 0
    state = run.state(a, y)
    try:
        for _ in range(MOST):
            if watch(best, problem.size) or flat >= FLAT:
                break
            goal = ROOM * max(watch.tol * best.unit, watch.floor)
            found = _minimized(run, state, a, sigma, goal, watch)
            if found is None:
                sigma, flat = sigma / SHRINK, flat + 1
                continue
            # The attained a is δ at the minimum; from k it would take over k's rounding, multiplied by σ.
            a, y = run.projected(found.delta), found.y
            before, state, point = best.gap, run.state(a, y), run.point(a, y)
            sigma *= GROWTH if point.gap > FAST * before else 1.0
            flat = 0 if _error(point, watch) < _error(best, watch) else flat + 1
            best = point if flat == 0 else best
    except (OutOfTimeError, KeyboardInterrupt) as stop:
        return replace(best, stopped=stop)
    return best


def _error(point: Point, watch: Watch) -> float:
    """The gap, and the violation in units of the objective; ½xᵀRx, which falls by orders of magnitude, is no unit."""
    return point.merit + point.violation / watch.unit * abs(point.primal)


def _minimized(  # noqa: PLR0917
    run: _KernelRun, state: _Place, a0: Array, sigma: float, goal: float, watch: Watch
) -> _Place | None:
    """The minimum over θ and y for multipliers a₀, to `goal` or SHARE of the proximal term; None where that fails."""
    for _ in range(STEPS):
        a = run.multipliers(a0, sigma, state.k)
        r, residual = a - state.delta, run.residual(a)
        Kr = run.moved_by(r)
        moved = float(np.sum((a - a0) ** 2)) / (2 * sigma)
        if 0.5 * float(r @ Kr) + float(np.abs(residual) @ np.abs(state.y)) <= max(SHARE * moved, goal):
            return state
        step = run.step(a, sigma, r, Kr, residual)
        watch.systems += 1
        watch.check_time()
        if step is None:
            return None
        length = _length(run, state, a0, sigma, step)
        if length == 0.0:  # rounding: there is no lower point on the way
            return state
        state = _Place(*(here + length * change for here, change in zip(state, step, strict=True)))
    return None


def _length(run: _KernelRun, state: _Place, a0: Array, sigma: float, step: _Place) -> float:
    """The length of a step at which the slope along it is small, by doubling and bisection; 0 where it rises."""
    through_theta = step.k - run.F @ step.y  # −K dδ

    def slope(t: float) -> float:
        a = run.multipliers(a0, sigma, state.k + t * step.k)
        along_theta = float((a - state.delta - t * step.delta) @ through_theta)
        return along_theta + float(run.residual(a) @ step.y)

    first, low, high, t = slope(0.0), 0.0, inf, 1.0
    if not first < 0:
        return 0.0
    for _ in range(TRIALS):
        here = slope(t)
        if abs(here) <= FLATTER * abs(first):
            break
        low, high = (t, high) if here < 0 else (low, t)
        t = 2 * t if high == inf else 0.5 * (low + high)
    return t


class _KernelRun:
    """The problem in kernel space, with one entry for each kink."""

    def __init__(self, problem: Structured) -> None:
        p = problem
        self.p, self.space = p, p.dual_space
        nothing = np.zeros(0)
        kinks = Kinks(nothing, nothing, p.of, p.anchor, p.low, p.high, p.rho)
        self.maxima = maxima.found(p.F, p.linear_y, p.slope, kinks)
        self.grouped = np.flatnonzero(self.maxima.inside)
        self.kept = np.setdiff1d(np.arange(p.q), self.maxima.columns)
        if 8.0 * (p.m + len(p.of)) * len(self.kept) > HELD * memory.available_bytes():
            raise SolverError("PROXIMAL_POINT has too many free variables beside its maxima for the free memory.")
        self.F0 = sp.csr_array(p.F)[:, self.kept].toarray()
        self.F, self.E = self.F0[p.of], sp.csr_array(p.E[p.of])
        self.linear_y = p.linear_y[self.kept]
        typical = self.space.typical
        self.unit = typical if typical > 0 else 1 / p.sigma

    # ------------------------------------------------------------ multipliers

    def projected(self, a: Array) -> Array:
        """The nearest multipliers in their boxes and simplices."""
        return maxima.on_simplices(np.where(self.maxima.inside, a, np.clip(a, self.p.low, self.p.high)), self.maxima)

    def multipliers(self, a0: Array, sigma: float, k: Array) -> Array:
        """The a at which the supremum of the module's formula is attained."""
        return self.projected((a0 + sigma * k) / (1 + sigma * self.p.rho))

    def residual(self, a: Array) -> Array:
        """g_y + Fᵀ(slope + a)."""
        return self.linear_y + self.F0.T @ self.p.slope + self.F.T @ a

    # ------------------------------------------------------------ products

    def moved_by(self, c: Array) -> Array:
        """Kc."""
        p = self.p
        return p._spread(self.space.times(p._gathered(p.of_kinks(c))))[p.of]

    def state(self, a: Array, y: Array) -> _Place:
        p = self.p
        d = -self.space.times(p._gathered(p.slope + p.of_kinks(a)) + p.linear_d)
        return _Place(a, y, p._spread(d)[p.of] + self.F @ y - p.anchor)

    def point(self, a: Array, y: Array) -> Point:
        """The point at multipliers a and y, with the bounds of all maxima."""
        p, end = self.p, self.p.ends[-1]
        back = p._back(p._gathered(p.slope + p.of_kinks(a)) + p.linear_d, np.zeros(p.q))
        with np.errstate(divide="ignore", invalid="ignore"):
            v = np.where(p.penalty[:end] > 0, -back[:end] / p.penalty[:end], 0.0)
        x = np.concatenate([v, np.zeros(p.q)])
        x[end + self.kept] = y
        k = p.products(x)[p.of] - p.anchor
        for which, places in self.maxima.places:
            x[end + self.maxima.columns[which]] = -k[places].max(axis=1) / self.maxima.units[which]
        return judged(p, x, p.products(x), a, np.zeros(p.m))

    # ------------------------------------------------------------ steps

    def step(self, a: Array, sigma: float, r: Array, Kr: Array, residual: Array) -> _Place | None:
        """Newton's step; None where its system has no solution. Raises SolverError where it takes too much memory."""
        G, weight = self.free_directions(a, sigma)
        if 16.0 * G.shape[0] ** 2 > HELD * memory.available_bytes():
            raise SolverError("PROXIMAL_POINT has too many multipliers between their bounds for the free memory.")
        M = self.space.gram(sp.csr_array(G @ self.E))
        inner = sp.coo_array(sp.diags_array(1 / weight) @ (G @ G.T))
        M[inner.row, inner.col] += inner.data
        GF = G @ self.F
        try:
            both = np.column_stack([GF, -(G @ Kr)])
            both = sl.cho_solve(factored(M), both, check_finite=False) if len(M) else both
        except np.linalg.LinAlgError:
            return None
        # Where few directions are free, the function may be a line in y: a ridge bounds the step.
        A = GF.T @ both[:, :-1]
        curved = np.einsum("ij,ij,i->j", GF, GF, weight)
        A[np.diag_indices_from(A)] += np.maximum(LEAST_WEIGHT * sigma * np.sum(self.F**2, axis=0) - curved, 0.0)
        dy = np.linalg.lstsq(A, -residual - GF.T @ both[:, -1], rcond=1e-13)[0] if len(self.kept) else np.zeros(0)
        z = both[:, -1] + both[:, :-1] @ dy
        delta = r + G.T @ z
        if not np.isfinite(delta).all() or not np.isfinite(dy).all():
            return None
        return _Place(delta, dy, self.F @ dy - self.moved_by(delta))

    def free_directions(self, a: Array, sigma: float) -> tuple[sp.csr_array, Array]:
        """G, a direction a row, and its curvature w: entries inside of their boxes, and eₖ − e₁ for the positive
        entries of each simplex."""
        p = self.p
        boxes = np.flatnonzero(~self.maxima.inside & (a > p.low) & (a < p.high))
        positive = self.grouped[a[self.grouped] > 0]
        positive = positive[np.argsort(self.maxima.of[positive], kind="stable")]
        owner = self.maxima.of[positive]
        starts = np.append(True, owner[1:] != owner[:-1]) if len(owner) else np.zeros(0, dtype=bool)
        leader = positive[starts][np.cumsum(starts) - 1] if len(owner) else positive
        others = ~starts
        number = len(boxes) + np.arange(int(others.sum()))
        rows = np.concatenate([np.arange(len(boxes)), number, number])
        columns = np.concatenate([boxes, positive[others], leader[others]])
        entries = np.concatenate([np.ones(len(boxes) + len(number)), -np.ones(len(number))])
        size = len(boxes) + len(number)
        G = sp.csr_array((entries, (rows, columns)), shape=(size, len(a)))
        return G, np.concatenate([sigma / (1 + sigma * p.rho[boxes]), np.full(len(number), sigma)])

    # ------------------------------------------------------------ a first point

    def first(self, watch: Watch) -> tuple[Array, Array]:
        """(a, y) after steps of the accelerated gradient method with restarts, with −residual²/2μ in place of y."""
        p, mu = self.p, self.unit
        a = self.projected(np.where(np.isfinite(p.low + p.high), 0.5 * (p.low + p.high), 0.0))
        length = self._largest_eigenvalue(mu) * SAFE + float(p.rho.max(initial=0.0))
        z, t = a, 1.0
        for _ in range(GRADIENT_STEPS if len(self.grouped) else WITHOUT_MAXIMA):
            if watch.is_over:
                break
            y = -mu * self.residual(z)
            gradient = p.rho * z - self.state(z, y).k
            new = self.projected(z - gradient / length)
            t = 1.0 if float((z - new) @ (new - a)) > 0 else t
            following = 0.5 * (1 + np.sqrt(1 + 4 * t * t))
            z, a, t = new + (t - 1) / following * (new - a), new, following
        return a, -mu * self.residual(a)

    def _largest_eigenvalue(self, mu: float) -> float:
        """That of K + μFFᵀ, by power iterations from a vector of ones."""
        v, size = np.ones(len(self.p.of)), 1.0
        for _ in range(POWER_STEPS):
            v = self.moved_by(v) + mu * (self.F @ (self.F.T @ v))
            size = float(np.linalg.norm(v))
            if size == 0.0:
                return 1.0
            v = v / size
        return size
