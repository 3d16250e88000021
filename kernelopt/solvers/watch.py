"""When an iteration may stop, and what it prints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf, isfinite

from kernelopt.solvers.dual_point import Point
from kernelopt.support import clock
from kernelopt.support.clock import OutOfTimeError
from kernelopt.support.progress import GapBar

# Violation of constraints, in units of their right-hand sides, that an answer may have: near what engines reach, and
# far below the 1e-6 of their terms at which constraints count as met.
FEASIBLE = 1e-9
# Relative gap and violation to which coarser restrictions of θ are solved: they only start the next rank, which changes
# more than the digits that follow.
COARSE = 1e-3
# P₀ − P counts up to that many times the objective beside its constant, as differences of a larger one are rounding.
MOST = 1e3


@dataclass(eq=False)
class Watch:
    """Judges points by their gap, and keeps the time.

    tol : target gap, relative to `size`; floor : absolute gap that suffices in any case; enough : relative gap at which
    no better point is sought from one that a finder gave; unit : of the arguments s, for violations; deadline : on
    `clock.now`; at_zero, offset : P₀ and the objective's constant, where gaps are relative to P₀ − P; systems,
    flops : linear systems solved so far, and their cost
    """

    solver: str
    tol: float
    floor: float
    unit: float
    deadline: float = inf
    verbose: bool = False
    bar: bool = False
    enough: float = 0.0
    at_zero: float = -inf
    offset: float = 0.0
    systems: int = 0
    flops: float = 0.0
    started: float = field(default_factory=clock.now)
    _headed: bool = False
    _bar: GapBar | None = None

    def __call__(self, point: Point, rank: int, coarse: bool = False) -> bool:
        """Whether the point is good enough; raises OutOfTimeError after the deadline."""
        self._show(point, rank)
        tol, feasible = (max(COARSE, self.tol), COARSE) if coarse else (self.tol, FEASIBLE)
        size = self.size(point.unit, point.primal)
        enough = point.gap <= max(tol * size, self.floor) and point.violation <= feasible * self.unit
        if not enough:
            self.check_time()
        return enough

    def size(self, unit: float, primal: float) -> float:
        """What gaps are relative to: `unit` = ½xᵀRx, a lower bound of the improvement over θ = 0 at the optimum, or
        that improvement itself where P₀ is known."""
        return max(unit, min(self.at_zero - primal, MOST * abs(primal - self.offset)))

    @contextmanager
    def to_the_end(self) -> Iterator[None]:
        """Within it no gap is small enough: a method ends where it makes no progress."""
        tol, floor = self.tol, self.floor
        self.tol = self.floor = 0.0
        try:
            yield
        finally:
            self.tol, self.floor = tol, floor

    def suffices(self, point: Point) -> bool:
        """Whether a point that was found elsewhere needs no steps."""
        size = self.size(point.unit, point.primal)
        return point.gap <= self.enough * size and point.violation <= FEASIBLE * self.unit

    def merit(self, point: Point, unit: float = 0.0) -> float:
        """The quantity that iterations reduce: the relative gap plus the violation in units of right-hand sides.

        unit : the largest unit of points that are compared. Where θ = 0 is optimal, their own units fall with gaps.
        """
        scale = max(point.unit, unit if isfinite(unit) else 0.0, self.floor)
        gap = point.merit / scale if scale > 0 else (inf if point.merit > 0 else 0.0)  # 0: θ = 0 is optimal
        return gap + point.violation / self.unit

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return clock.now() > self.deadline

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - clock.now()

    def check_time(self) -> None:
        """Raise OutOfTimeError after the deadline."""
        if self.is_over:
            raise OutOfTimeError

    def _show(self, point: Point, rank: int) -> None:
        if self.verbose:
            if not self._headed:
                print(f"{self.solver}\n systems   rank       primal           gap   rel. gap  violation   seconds")
                self._headed = True
            relative = point.gap / point.unit if point.unit > 0 else inf
            seconds = clock.now() - self.started
            print(
                f"{self.systems:>8}{rank:>7}{point.primal:>16.8e}{point.gap:>11.2e}{relative:>11.2e}"
                f"{point.violation:>11.1e}{seconds:>9.2f}s"
            )
        self._bar = self._bar or GapBar(self.solver, self.bar)
        self._bar.show(point.gap, max(self.tol * point.unit, self.floor))

    def close(self) -> None:
        """Close the progress bar."""
        if self._bar is not None:
            self._bar.close()
