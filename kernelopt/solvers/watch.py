"""When an iteration may stop, and what it prints meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, log10
from time import perf_counter
from typing import Any

from tqdm.auto import tqdm

from kernelopt.solvers.dual_point import Point

FEASIBLE = 1e-9  # violation of constraints, in units of their right-hand sides, that counts as none
COARSE = 1e-3  # relative gap and violation to which coarser restrictions of θ are solved


class OutOfTimeError(Exception):
    """The time limit was reached; engines keep their best point."""


@dataclass(eq=False)
class Watch:
    """Judges points by their gap, and keeps the time.

    tol : relative to ½xᵀRx, which the improvement over θ = 0 exceeds; floor : absolute gap that is as good as none;
    unit : of the arguments s, for violations; deadline : on `perf_counter`; systems, flops : linear
    systems solved so far, and what they cost
    """

    solver: str
    tol: float
    floor: float
    unit: float
    deadline: float = inf
    verbose: bool = False
    bar: bool = False
    systems: int = 0
    flops: float = 0.0
    started: float = field(default_factory=perf_counter)
    _shown: Any = None
    _first: float | None = None

    def __call__(self, point: Point, rank: int, coarse: bool = False) -> bool:
        """Whether the point is good enough; raises OutOfTimeError after the deadline."""
        self._show(point, rank)
        tol, feasible = (max(COARSE, self.tol), COARSE) if coarse else (self.tol, FEASIBLE)
        enough = point.gap <= max(tol * point.unit, self.floor) and point.violation <= feasible * self.unit
        if not enough:
            self.check_time()
        return enough

    def merit(self, point: Point) -> float:
        """What an iteration should make small: the relative gap, and violations in units of right-hand sides."""
        return point.merit / max(point.unit, self.floor) + point.violation / self.unit

    def check_time(self) -> None:
        """Raise OutOfTimeError after the deadline."""
        if perf_counter() > self.deadline:
            raise OutOfTimeError

    def _show(self, point: Point, rank: int) -> None:
        if self.verbose:
            if self._shown is None:
                print(f"{self.solver}\n systems   rank       primal           gap   rel. gap  violation   seconds")
                self._shown = True
            relative = point.gap / point.unit if point.unit > 0 else inf
            seconds = perf_counter() - self.started
            print(
                f"{self.systems:>8}{rank:>7}{point.primal:>16.8e}{point.gap:>11.2e}{relative:>11.2e}"
                f"{point.violation:>11.1e}{seconds:>9.2f}s"
            )
        if self.bar and 0 < point.gap < inf:
            goal = max(self.tol * point.unit, self.floor)
            if self._shown is None or isinstance(self._shown, bool):
                self._first = max(point.gap, goal)
                total = max(log10(self._first / goal), 1e-9) if goal > 0 else 1.0
                self._shown = tqdm(total=total, desc=self.solver, bar_format="{desc}: {bar} {postfix} {elapsed}")
            assert self._first is not None
            self._shown.n = max(min(log10(self._first / max(point.gap, goal)), self._shown.total), self._shown.n)
            self._shown.set_postfix_str(f"gap {point.gap:.1e}", refresh=True)

    def close(self) -> None:
        """End the bar."""
        if self.bar and isinstance(self._shown, tqdm):
            self._shown.close()
