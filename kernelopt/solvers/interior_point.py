"""A primal-dual interior point method for structured problems, with B dense.

With multipliers z of low ≤ a ≤ high, the central path satisfies, for each kink:

    k − ρa + z_low − z_high = 0,  z_low(a − low) = z_high(high − a) = μ,  k = s − anchor.

Steps are Mehrotra's predictor and corrector (SIAM J. Optim. 1992), with Gondzio's further correctors (COAP 1996).
Large problems begin with fewer columns of B, where a step takes a fifth of the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from kernelopt.solvers import active_set
from kernelopt.solvers.assemble import Shape
from kernelopt.solvers.coupling import LinearMap
from kernelopt.solvers.dual_feasibility import corrected
from kernelopt.solvers.dual_point import Point, judged
from kernelopt.solvers.engine import Engine, needs_convexity
from kernelopt.solvers.structured import Structured
from kernelopt.solvers.watch import FEASIBLE, Watch
from kernelopt.support.clock import OutOfTimeError
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array

MOST = 100  # iterations: three times what hard problems take (8 to 35 at a gap of 1e-6)
# Gondzio's correctors per iteration, which reuse the factor of its system: 41 systems instead of 52 without any
# (tests/solvers/test_counts.py).
CORRECTORS = 2
# Without a better merit, the method ends after STUCK consecutive steps shorter than SHORT, or one shorter than TINY.
# Higher limits recover from more blocked steps, lower ones give up sooner.
SHORT, STUCK, TINY = 0.1, 12, 1e-10
# Least gap from which a warm start takes its μ, relative to ½xᵀRx. A smaller one starts close to the boundary, where
# steps are short; a larger one starts further from the solution than needed.
LEAST_START = 1e-4
# 1/weight of a kink whose multiplier is free (an equality), in units of how far its s moves with it: its weight would
# be infinite. Refinement removes the error, in fewer rounds for smaller values, which make the system ill-conditioned.
FREE = 1e-10
# Consecutive iterations without a better merit after which the method ends: rounding keeps the gap open, however small
# μ becomes. Hard problems take 35 iterations in all.
STALLED = 15
# The same while equations do not hold, nor their violation falls to that share: full steps make them hold wherever some
# θ in the factor's span meets them; those that a domain cuts short do so in time.
UNMET, FALLS = 4, 0.95
BACKTRACKS = 30  # halvings of a step that leaves a domain: down to 2⁻³⁰ ≈ 1e-9 of it
# Largest distance of a warm start's multiplier from the finite end of its box, in units of its last value or of a
# typical one. For k near 0 the central path has it far out, where it would spoil the next steps.
FAR = 10.0
LONG = 0.9  # length of a step from which corrections would gain less than their solve costs
LONGER = 0.01  # least gain in length for which a correction is kept
# Share of the way to the boundary that a step takes. Near the solution it tends to 1, for fast convergence. LEFT of it
# stays in any case, so that no distance becomes 0 while smooth functions still converge: 40 steps lead to 1e-320.
LEAST_SHARE, LEFT = 0.995, 1e-8
# What a direction may leave of the gradient by rounding without refinement: a part of it, or a part of ‖Rx‖.
ROUNDED, EXACT = 0.1, 1e-10
# Share of the columns of B with which problems of LARGE of them begin, all outputs together. At 1000 rows 4 of 13 steps
# are left for all of them; with half the columns 6 are, and with a third 9.
SHARE, LARGE = 0.6, 600
SOON = 20  # iterations of such a start; those that gain take 8 to 17
# Rounds of refinement where multipliers are free: one removes what FREE added, another the rounding of the first.
REFINEMENTS = 2


@dataclass
class _State:
    """An iterate. below = a − low and above = high − a are updated on their own, since rounding in a would hide small
    distances. Where an end of the box is infinite, its distance is 1 and z is 0."""

    x: Array
    s: Array
    a: Array
    below: Array
    above: Array
    z_low: Array
    z_high: Array
    gradient: Array = field(default_factory=lambda: np.zeros(0))


class _Change(NamedTuple):
    """Changes of the parts of an iterate."""

    x: Array
    s: Array
    a: Array
    z_low: Array
    z_high: Array


@dataclass(frozen=True, eq=False)
class _Newton:
    """Newton's equations at an iterate, without the changes of z:

        [ R + CᵀHC   Cᵀ  ] [dx]   [ −gradient ]          H = curvature of the smooth functions,
        [    C     −exact ] [da] = [ −d − low + high ]     exact = ρ + z_low/(a − low) + z_high/(high − a),

    by `solve`, a factor of R + Cᵀ(H + 1/inverse)C. A multiplier that is free has exact = 0 and a small `inverse` in its
    place, which refinement takes out again.
    """

    problem: Structured
    state: _State
    has_low: Array
    has_high: Array
    d: Array
    exact: Array
    inverse: Array
    curvature: Array
    solve: LinearMap

    def direction(self, target_low: Array | float, target_high: Array | float) -> _Change:
        """The step towards z_low(a − low) = target_low, z_high(high − a) = target_high."""
        p, st = self.problem, self.state
        low = np.where(self.has_low, target_low / st.below - st.z_low, 0.0)
        high = np.where(self.has_high, target_high / st.above - st.z_high, 0.0)
        g = self.d + low - high
        dx = self.solve(-st.gradient - p.adjoint(p.of_kinks(g / self.inverse)))
        ds = p.products(dx)
        da = (ds[p.of] + g) / self.inverse
        dx, ds, da = self._refined(g, dx, ds, da)
        dz_low = np.where(self.has_low, low - st.z_low / st.below * da, 0.0)
        return _Change(dx, ds, da, dz_low, np.where(self.has_high, high + st.z_high / st.above * da, 0.0))

    def _refined(self, g: Array, dx: Array, ds: Array, da: Array) -> tuple[Array, Array, Array]:
        """The solution for `exact`, by iterative refinement with the factor for `inverse`.

        Without free multipliers it removes rounding, which is large where weights differ by many orders of magnitude.
        """
        p, gradient = self.problem, self.state.gradient
        free = np.any(self.inverse > self.exact)
        most = max(ROUNDED * np.linalg.norm(gradient), EXACT * np.linalg.norm(p.penalty * self.state.x))
        for _ in range(REFINEMENTS):
            left = -gradient - p.penalty * dx - p.adjoint(p.of_kinks(da) + self.curvature * ds)
            if not free and np.linalg.norm(left) <= most:
                break
            missing = ds[p.of] + g - self.exact * da
            more = self.solve(left - p.adjoint(p.of_kinks(missing / self.inverse)))
            dx = dx + more
            ds = p.products(dx)
            da = da + (p.products(more)[p.of] + missing) / self.inverse
        return dx, ds, da


class InteriorPoint(Engine):
    """Mehrotra's predictor and corrector: few iterations, each with one dense system."""

    free_columns, sparse = True, True

    def lacks(self, shape: Shape) -> str | None:
        return needs_convexity(shape)

    def solve(self, problem: Structured, watch: Watch, start: Point | None = None) -> Point:
        return solve(problem, watch, start)


def solve(problem: Structured, watch: Watch, start: Point | None = None) -> Point:
    """The best iterate; the watch decides when it is good enough. If a warm start fails, a cold start follows."""
    found = None if start is None else active_set.solve(problem, watch, start)
    if found is not None:
        return found
    first = _of_fewer_columns(problem, watch) if start is None else start
    if first is not None and first.stopped is not None:
        return first
    method = _Method(problem, first)
    point, enough = method.run(watch)
    if first is None or enough or point.stopped is not None:
        return point
    again, _ = _Method(problem, None).run(watch)
    return again if method.merit(again) < method.merit(point) else point


def _of_fewer_columns(problem: Structured, watch: Watch) -> Point | None:
    """The point with the first columns of B alone, as one of all; None where there is none, or for small problems."""
    if problem.ends[-1] < LARGE:
        return None
    part = problem.truncated(int(SHARE * problem.rank))
    if problem.origin is not None and part.origin is None:
        return None
    try:
        point, enough = _Method(part, None).run(watch, coarse=True)
    except np.linalg.LinAlgError:  # all columns may do
        return None
    x = part.lifted(point.x, problem)
    if point.stopped is not None:
        return replace(judged(problem, x, point.s, point.a, point.slopes), stopped=point.stopped)
    return replace(point, x=x) if enough else None


class _Method:
    def __init__(self, problem: Structured, start: Point | None) -> None:
        self.p = problem
        self.has_low, self.has_high = np.isfinite(problem.low), np.isfinite(problem.high)
        self.free = ~self.has_low & ~self.has_high
        self.sides = max(int(self.has_low.sum() + self.has_high.sum()), 1)
        self.state = self._start() if start is None else self._warm(start)
        self.first_mu = self._mu(self.state) or 1.0

    # ------------------------------------------------------------ starting points

    def _start(self) -> _State:
        """A cold start: x from the problem, a in the middle of its box, z from the residual, shifted to be positive."""
        p = self.p
        x = p.first.copy()
        s = p.products(x)
        a = self._middle(s)
        h = -(s[p.of] - p.anchor - p.rho * a)
        shift = max(float(np.mean(np.abs(h))) if len(h) else 0.0, self._unit_of_s)
        z_low = np.where(self.has_low, np.maximum(h, 0.0) + shift, 0.0)
        z_high = np.where(self.has_high, np.maximum(-h, 0.0) + shift, 0.0)
        return self._state(x, s, a, z_low, z_high)

    def _middle(self, s: Array) -> Array:
        p, unit = self.p, self._unit_of_a
        both = self.has_low & self.has_high
        with np.errstate(invalid="ignore"):
            a = np.where(both, 0.5 * (p.low + p.high), 0.0)
        a = np.where(self.has_low & ~self.has_high, p.low + unit, a)
        a = np.where(self.has_high & ~self.has_low, p.high - unit, a)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.free & (p.rho > 0), (s[p.of] - p.anchor) / p.rho, a)

    @cached_property
    def _unit_of_s(self) -> float:
        """A typical prediction: the median of the points where slopes of losses change.

        Constraints say little about predictions: θ′F ≥ 1e-7 is nearly θ′F ≥ 0. Where these alone have such points, the
        largest counts, and beside smooth functions 1 at least, as a start with too small multipliers diverges.
        """
        sizes = np.abs(self.p.anchor)
        of_losses = sizes[(self.has_low & self.has_high) | (self.free & (self.p.rho > 0))]
        if np.any(of_losses > 0):
            return float(np.median(of_losses[of_losses > 0]))
        entries = np.asarray(abs(self.p.E).sum(axis=1)).ravel()[self.p.of]  # of means and sums of predictions
        largest = float((sizes / np.maximum(entries, 1.0)).max(initial=0.0)) or 1.0
        return max(largest, 1.0) if self.p.smooth else largest

    @cached_property
    def _least_inverse(self) -> Array:
        """1/weight of the free multipliers; that of a prediction of size 1 where s depends on y alone."""
        p = self.p
        moved = np.where(p.moves_by_rounding, 0.0, p.row_squares)[p.of] if self.free.any() else np.zeros(len(p.of))
        return FREE * np.where(moved > 0, moved, 1 / (p.R.max(initial=0.0) or 1.0))

    @cached_property
    def _unit_of_a(self) -> float:
        """A typical multiplier: the width of a box, else the slope of a square, else that of the penalty R of v."""
        p, unit = self.p, self._unit_of_s
        both = self.has_low & self.has_high
        found = (p.high - p.low)[both]
        if not len(found):
            found = (unit / p.rho[p.rho > 0]) if np.any(p.rho > 0) else p.R * unit
        usual = float(np.median(found)) if len(found) else 0.0
        return max(usual, 0.0 if len(found) and both.any() else self._of_costs()) or 1.0

    def _of_costs(self) -> float:
        """The largest of the least multipliers that balance the costs of y."""
        p = self.p
        if not p.q or not len(p.of):
            return 0.0
        columns = sp.csr_array(p.F)[p.of]
        target = -(p.linear_y + p.F.T @ p.slope)
        least, _ = corrected(columns, target, np.zeros(len(p.of)), lambda z: z, np.ones_like)
        return float(np.abs(least).max())

    def _warm(self, start: Point) -> _State:
        """A warm start: x of a neighbouring problem, with a and z on the central path for its gap, where
        k − ρa + μ/(a − low) − μ/(high − a) = 0. Its own a is at the ends of boxes, where steps would be short."""
        p = self.p
        s = p.products(start.x)
        k = s[p.of] - p.anchor
        here = judged(p, start.x, s, np.clip(start.a, p.low, p.high), p.smooth_gradient(s))
        mu = max(here.gap, LEAST_START * here.unit) / self.sides
        known = start.a if len(start.a) == len(k) else np.zeros(len(k))
        a = _central(k, p.low, p.high, p.rho, mu, FAR * np.maximum(np.abs(known), self._unit_of_a))
        a = np.where(self.free, known, a)
        with np.errstate(divide="ignore"):
            z_low = np.where(self.has_low, mu / (a - p.low), 0.0)
            z_high = np.where(self.has_high, mu / (p.high - a), 0.0)
        return self._state(start.x.copy(), s, a, z_low, z_high)

    def _state(self, x: Array, s: Array, a: Array, z_low: Array, z_high: Array) -> _State:
        p = self.p
        with np.errstate(invalid="ignore"):
            below, above = np.where(self.has_low, a - p.low, 1.0), np.where(self.has_high, p.high - a, 1.0)
        return _State(x, s, a, below, above, z_low, z_high)

    # ------------------------------------------------------------ iterations

    def run(self, watch: Watch, coarse: bool = False) -> tuple[Point, bool]:
        """The best iterate, and whether the watch calls it good enough."""
        rank, best, short, since, least, still = self.p.rank, self._judged(), 0, 0, np.inf, 0
        has_equations = bool(np.any(self.free & (self.p.rho == 0)))
        try:
            for _ in range(SOON if coarse else MOST):
                if watch(best, rank, coarse):
                    return best, True
                length = self._step()
                watch.systems += 1
                short = short + 1 if length < SHORT else 0
                point = self._judged()
                if not np.isfinite(point.x).all():
                    break
                since, still = since + 1, still + 1
                if self.merit(point) < self.merit(best):
                    best, since = point, 0
                if point.violation < FALLS * least:
                    least, still = point.violation, 0
                unmet = has_equations and best.violation > FEASIBLE * watch.unit
                is_stuck = since >= STALLED or (unmet and min(since, still) >= UNMET)
                if since and (length < TINY or short >= STUCK or is_stuck):
                    break
        except (OutOfTimeError, KeyboardInterrupt) as stop:
            return replace(best, stopped=stop), False
        return best, False

    def merit(self, point: Point) -> float:
        """The gap plus the violation, which a typical multiplier brings to the units of the gap."""
        return point.merit + self._unit_of_a * point.violation

    def _judged(self) -> Point:
        st = self.state
        with np.errstate(all="ignore"):
            slopes = self.p.smooth_gradient(st.s)
            st.gradient = self.p.penalty * st.x + self.p.linear + self.p.adjoint(self.p.of_kinks(st.a) + slopes)
            return judged(self.p, st.x, st.s, st.a, slopes, st.gradient)

    def _mu(self, st: _State) -> float:
        return float(st.z_low @ st.below + st.z_high @ st.above) / self.sides

    def _step(self) -> float:
        """One step; returns its length."""
        st, mu = self.state, self._mu(self.state)
        newton = self._newton(st)
        predicted = newton.direction(0.0, 0.0)
        after = self._mu(_moved(st, predicted, self._longest(predicted)))
        # Mehrotra's centring: little where the predictor can go far, since it then lowers μ by itself.
        centring = min(max(after / mu, 0.0), 1.0) ** 3 if mu > 0 else 0.0
        best = self._corrected(newton, predicted, centring * mu)
        # A full step may end at the boundary exactly, where a product of 0 would leave no equation.
        share = max(LEAST_SHARE, 1 - max(mu / self.first_mu, LEFT))
        length = min(1.0, share * self._longest(best, 2.0))
        length = self._globalized(best, length)
        self.state = _moved(st, best, length)
        return length

    def _newton(self, st: _State) -> _Newton:
        """The system at an iterate, factored."""
        p = self.p
        exact = p.rho + st.z_low / st.below + st.z_high / st.above
        inverse = np.where(exact > 0, exact, self._least_inverse)
        curvature = p.smooth_curvature(st.s)
        solve = p.system(p.of_kinks(1 / inverse) + curvature)
        d = st.s[p.of] - p.anchor - p.rho * st.a + st.z_low - st.z_high
        return _Newton(p, st, self.has_low, self.has_high, d, exact, inverse, curvature, solve)

    def _corrected(self, newton: _Newton, predicted: _Change, target: float) -> _Change:
        """Mehrotra's direction towards products of `target`.

        Gondzio's corrections are added as long as each makes the step longer by LONGER.
        """
        low, high = target - predicted.a * predicted.z_low, target + predicted.a * predicted.z_high
        best = newton.direction(low, high)
        alpha = self._longest(best)
        for _ in range(CORRECTORS):
            if alpha >= LONG:
                break
            # The complementarity products that a longer step would lead to are brought back to within [0.1, 10]·target.
            trial = _moved(newton.state, best, min(1.08 * alpha + 0.08, 1.0))
            low = low + _correction(trial.z_low * trial.below, target, self.has_low)
            high = high + _correction(trial.z_high * trial.above, target, self.has_high)
            corrected = newton.direction(low, high)
            longer = self._longest(corrected)
            if longer < alpha + LONGER:
                break
            best, alpha = corrected, longer
        return best

    def _longest(self, step: _Change, most: float = 1.0) -> float:
        """The longest step ≤ `most` that keeps a inside its box and z ≥ 0."""
        st, low, high = self.state, self.has_low, self.has_high
        values = np.concatenate([st.below[low], st.above[high], st.z_low[low], st.z_high[high]])
        changes = np.concatenate([step.a[low], -step.a[high], step.z_low[low], step.z_high[high]])
        falling = changes < 0
        return float(np.min(-values[falling] / changes[falling], initial=most))

    def _globalized(self, step: _Change, alpha: float) -> float:
        """The length, halved until smooth functions are finite and their curvature spoils stationarity little."""
        p, st = self.p, self.state
        if not p.smooth:
            return alpha
        size = float(np.linalg.norm(st.gradient))
        slack = float(np.linalg.norm(p.adjoint(p.of_kinks(step.a)))) + float(np.linalg.norm(p.penalty * step.x))
        # At a solution the terms of the gradient cancel up to rounding, which is relative to their sizes.
        slack += float(np.linalg.norm(p.adjoint(p.smooth_gradient(st.s))))
        for _ in range(BACKTRACKS):
            s = st.s + alpha * step.s
            if np.isfinite(p.smooth_value(s)):
                with np.errstate(all="ignore"):
                    after = p.penalty * (st.x + alpha * step.x) + p.linear
                    after = after + p.adjoint(p.of_kinks(st.a + alpha * step.a) + p.smooth_gradient(s))
                if np.linalg.norm(after) <= (1 - 0.01 * alpha) * size + 0.5 * alpha * size + 1e-12 * slack:
                    return alpha
            alpha *= 0.5
        return alpha


def _moved(st: _State, step: _Change, alpha: float) -> _State:
    return _State(
        st.x + alpha * step.x, st.s + alpha * step.s, st.a + alpha * step.a,
        np.where(st.z_low > 0, st.below + alpha * step.a, st.below),
        np.where(st.z_high > 0, st.above - alpha * step.a, st.above),
        st.z_low + alpha * step.z_low, st.z_high + alpha * step.z_high,
    )  # fmt: skip


def _correction(products: Array, target: float, here: Array) -> Array:
    """Gondzio's correction, from products outside of [0.1, 10]·target to its ends, and by at most 10·target down."""
    with np.errstate(invalid="ignore"):
        change = np.clip(products, 0.1 * target, 10 * target) - products
    return np.where(here, np.maximum(change, -10 * target), 0.0)


def _central(k: Array, low: Array, high: Array, rho: Array, mu: float, most: Array) -> Array:  # noqa: PLR0917
    """a in (low, high) with k − ρa + μ/(a − low) − μ/(high − a) = 0, by bisection on this decreasing function.

    Where one end is infinite, a stays within about `most` of the other: for k near 0 and ρ = 0 it would be near μ/0.
    """
    has_low, has_high = np.isfinite(low), np.isfinite(high)
    with np.errstate(divide="ignore", invalid="ignore"):
        reach = np.where(rho > 0, np.abs(k) / rho + np.sqrt(mu / rho), 0.0) + most
        reach = reach + np.abs(np.where(has_low, low, 0.0)) + np.abs(np.where(has_high, high, 0.0))
        left, right = np.where(has_low, low, -reach), np.where(has_high, high, reach)
        for _ in range(60):
            a = 0.5 * (left + right)
            f = k - rho * a + np.where(has_low, mu / (a - low), 0.0) - np.where(has_high, mu / (high - a), 0.0)
            left, right = np.where(f > 0, a, left), np.where(f > 0, right, a)
    return np.asarray(0.5 * (left + right))
