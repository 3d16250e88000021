"""Active sets in kernel space: from the solution of a neighbouring problem to that of this one in a few systems.

Without smooth functions the optimum is known once each kink's side is known: a = low where k = s − anchor − ρa < 0,
a = high where k > 0, and k = 0 for the free ones. With K = EBR⁻¹BᵀEᵀ, the free multipliers and y solve

    s_M − (K_MM + ρ)δ + F_M dy = anchor_M + ρa_M,   F_Mᵀδ = −(linear_y + Fᵀ(slopes)),

whose matrix is looked up, not computed. Sides are then judged anew, all at once (a primal-dual active set method:
Hintermüller, Ito and Kunisch, SIAM J. Optim. 2003). From a good guess it ends after a few steps; from a bad one it may
cycle, and gives up. Where a point with some kinks on their wrong sides has a gap that suffices, it ends there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelopt.solvers.dual_point import Point, judged, with_balance
from kernelopt.solvers.free_kinks import continued, forget, keep, kept, system
from kernelopt.solvers.kernel_space import KernelSpace
from kernelopt.solvers.structured import Structured
from kernelopt.solvers.watch import Watch
from kernelopt.support.arithmetic import median
from kernelopt.support.clock import OutOfTimeError
from kernelopt.support.types import Array

MOST = 40  # systems
# The method gives up after PATIENCE systems without fewer kinks on a wrong side, or where a multiplier leaves its box
# by more than FAR typical widths: K is nearly singular on the free kinks then, whose number grows from step to step.
PATIENCE, FAR = 4, 10.0
WRONG = 1e-10  # relative to a typical s: k on a wrong side by less counts as 0
# Share of the gap that suffices: where an estimate of the gap is less, the point is judged before all kinks are on
# their sides. The estimate is right to a factor of two as a rule; judging takes as long as half a system.
NEARLY = 0.5


def solve(problem: Structured, watch: Watch, start: Point, fits: bool = False) -> Point | None:
    """The optimum, as the watch judges it; None where the method does not apply, or does not get there.

    fits : whether s of the start belongs to its a and y; of x only y is read
    """
    space = None if problem.smooth or sp.issparse(problem.F) else problem.kernel_space
    if space is None:
        return None
    run = _Run(problem, space, start, fits)
    try:
        found = _found(run, watch)
        return None if found is None else replace(found, kept=start.kept)
    except (OutOfTimeError, KeyboardInterrupt) as stop:
        return replace(run.point(), stopped=stop)
    finally:
        keep(run.known)


def _found(run: _Run, watch: Watch) -> Point | None:
    """The point where all kinks are on the sides where they belong, or an earlier one that suffices; None otherwise."""
    best, since = np.inf, 0
    for _ in range(MOST):
        if not run.step():
            return None
        watch.systems += 1
        gap = run.estimated_gap() if watch.enough else np.inf
        overshoot, wrong = run.overshoot(), run.turned()
        if wrong == 0:
            point = run.point()
            return point if watch(point, run.p.size) else None
        if gap <= NEARLY * watch.enough * watch.size(*run.values()):
            point = run.point(apart=True)
            if watch.suffices(point):
                return point
        best, since = (wrong, 0) if wrong < best else (best, since + 1)
        if since == PATIENCE or overshoot > FAR:
            return None
        watch.check_time()
    return None


class _Run:
    """Multipliers a, s and y that belong to them, and the side of each kink: −1 (low), 0 (free), 1 (high)."""

    def __init__(self, problem: Structured, space: KernelSpace, start: Point, fits: bool) -> None:
        self.p, self.space, self.known = problem, space, kept(space, problem.rho)
        self.a = np.clip(start.a, problem.low, problem.high)
        self.fixed = problem.low == problem.high
        # The sides of the augmented Lagrangian at the start: a multiplier close to an end, with k on the same side.
        moved = self.a + problem.sigma * (start.s[problem.of] - problem.anchor - problem.rho * self.a)
        self.side = np.where(moved <= problem.low, -1, np.where(moved >= problem.high, 1, 0))
        self.y = start.x[problem.ends[-1] :]
        self.s = start.s if fits else self._arguments()
        self.unit = _unit(problem)

    def _slopes(self) -> Array:
        return self.p.slope + self.p.of_kinks(self.a)

    def _arguments(self) -> Array:
        p = self.p
        return p._spread(-self.space.times(p._gathered(self._slopes()) + p.linear_d)) + p.F @ self.y

    def step(self) -> bool:
        """Solve for the free kinks; False where there is no solution."""
        p = self.p
        ends = np.where(self.side < 0, p.low, np.where(self.side > 0, p.high, self.a))
        self._move(ends - self.a)
        self.a = ends
        free = np.flatnonzero(self.side == 0)
        rows = p.of[free]
        k = self.s[rows] - p.anchor[free] - p.rho[free] * self.a[free]
        residual = p.linear_y + p.F.T @ self._slopes()
        F = p.F[rows]
        try:
            both = np.column_stack([F, k])
            if len(free):
                self.known = continued(self.known, self.space, p.of, p.rho, free)
                if self.known is None:
                    forget(self.space)
                    self.known = system(self.space, p.of, p.rho, free)
                both = self.known.solve(free, both)
        except np.linalg.LinAlgError:
            return False
        HF, Hk = both[:, : p.q], both[:, p.q :].ravel()
        dy = _solution(F.T @ HF, -residual - F.T @ Hk)
        delta = np.zeros(len(self.a))
        delta[free] = Hk + HF @ dy
        if not np.isfinite(delta).all() or not np.isfinite(dy).all():
            return False
        self._move(delta)
        self.a = self.a + delta
        self.y = self.y + dy
        self.s = self.s + p.F @ dy
        return True

    def _move(self, delta: Array) -> None:
        if delta.any():
            p = self.p
            self.s = self.s - p._spread(self.space.times(p._gathered(p.of_kinks(delta))))

    def overshoot(self) -> float:
        """How far multipliers are outside of their boxes, in units of a typical multiplier."""
        outside = np.maximum(self.p.low - self.a, self.a - self.p.high)
        return float(outside.max(initial=0.0)) / (2 * self.p.sigma * self.unit)

    def estimated_gap(self) -> float:
        """About the gap of the point with multipliers moved into their boxes, without a product with K.

        A multiplier that is δ outside costs ½K_ii δ², and a kink on its wrong side what it would gain at the other end.
        """
        p = self.p
        beyond = np.sign(self.side) * -(self.s[p.of] - p.anchor - p.rho * self.a)
        wrong = beyond > 0
        outside = np.maximum(np.maximum(p.low - self.a, self.a - p.high), 0.0)
        gain = float((p.high - p.low)[wrong] @ beyond[wrong])
        return gain + 0.5 * self.space.typical * float(outside @ outside)

    def values(self) -> tuple[float, float]:
        """½xᵀRx = ½gᵀKg for the slopes g, and the dual objective, which is near the primal one."""
        p, a = self.p, self.a
        if p.linear_d.any():
            g = p._gathered(self._slopes()) + p.linear_d
            square = 0.5 * float(g @ self.space.times(g))
        else:
            square = -0.5 * float(self._slopes() @ (self.s - p.F @ self.y))
        return square, p.constant - float(p.anchor @ a) - 0.5 * float(p.rho @ a**2) - square

    def turned(self) -> int:
        """Put kinks on the sides where they belong, and say how many were not."""
        p, before = self.p, self.side
        k = self.s[p.of] - p.anchor - p.rho * self.a
        up, down = (before < 0) & (k > WRONG * self.unit), (before > 0) & (k < -WRONG * self.unit)
        side = np.where(self._nearest(up, p.anchor) | self._nearest(down, -p.anchor), 0, before)
        side = np.where((before == 0) & (self.a < p.low), -1, np.where((before == 0) & (self.a > p.high), 1, side))
        self.side = np.where(self.fixed, before, side)
        return int(np.sum(self.side != before))

    def _nearest(self, crossed: NDArray[np.bool_], anchor: Array) -> NDArray[np.bool_]:
        """Of the kinks that s has crossed, the first of each row: s can be at one of them only."""
        first = np.full(self.p.m, np.inf)
        np.minimum.at(first, self.p.of[crossed], anchor[crossed])
        found: NDArray[np.bool_] = crossed & (anchor == first[self.p.of])
        return found

    def point(self, apart: bool = False) -> Point:
        """The point of these multipliers, judged anew: steps have added up roundings.

        Multipliers are moved into their boxes. With `apart` x stays that of multipliers outside of them, for which
        free kinks are at k = 0: where s moves by Kδ, each of them would cost in first order.
        """
        p = self.p
        a = with_balance(p, np.clip(self.a, p.low, p.high))
        back = self._back(a)
        end = p.ends[-1]
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.append(-(self._back(self.a) if apart else back)[:end] / p.penalty[:end], self.y)
        return judged(p, x, p.products(x), a, np.zeros(p.m), p.penalty * x + back)

    def _back(self, a: Array) -> Array:
        """The gradient Cᵀ(slopes) + g at multipliers a, without Rx."""
        p, slopes = self.p, self.p.slope + self.p.of_kinks(a)
        return p._back(p._gathered(slopes) + p.linear_d, p.linear_y + p.F.T @ slopes)


def _solution(S: Array, r: Array) -> Array:
    """S⁻¹r for a small S, which may be singular."""
    if len(r) == 1:
        return r / S[0, 0] if S[0, 0] else np.zeros(1)
    return np.linalg.lstsq(S, r, rcond=1e-14)[0] if len(r) else np.zeros(0)


def _unit(problem: Structured) -> float:
    """A typical argument of a kink."""
    sizes = np.abs(problem.anchor)
    return median(sizes[sizes > 0]) if np.any(sizes > 0) else 1.0
