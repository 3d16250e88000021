"""Branch and bound for convex problems with integers: best bound first, on boxes lower ≤ z ≤ upper of the integers.

The relaxation on a box bounds its integer points from below; a box whose bound is not below the best point's value by
more than a gap holds none that counts. Else it is cut at a fractional entry zᵢ, into zᵢ ≤ ⌊zᵢ⌋ and zᵢ ≥ ⌈zᵢ⌉.

A. H. Land, A. G. Doig, An automatic method of solving discrete programming problems, Econometrica 28, 1960.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import count
from math import inf
from typing import Any, NamedTuple

import numpy as np

from kernelopt.results.solution import Status
from kernelopt.support.clock import OutOfTimeError
from kernelopt.support.types import Array

MORE = 2  # boxes for each integer that are looked at with the finer gap: those beside the best point
INTEGRAL = 1e-6  # an entry this near to an integer is not cut there: the relaxation is solved again with it fixed


class Relaxed(NamedTuple):
    """The relaxation on a box: its status, its z and value where it has a point, and a lower bound.

    kept : what the caller needs of the point
    """

    status: Status
    z: Array | None = None
    value: float = inf
    bound: float = -inf
    kept: Any = None


class Searched(NamedTuple):
    """The best point's `kept`, None where there is none; its value, and a lower bound of all points."""

    status: Status
    kept: Any = None
    value: float = inf
    bound: float = -inf


def search(  # noqa: PLR0917
    relaxed: Callable[[Array, Array], Relaxed], lower: Array, upper: Array, gap: Callable[[float], float],
    finer: Callable[[float], float] | None = None, known: float = inf,
) -> Searched:  # fmt: skip
    """The best integer point of a box; bounds may be infinite.

    relaxed : solves the relaxation on a box, raises OutOfTimeError where there is no time for it
    gap : for the value of a point, by how much the optimum may be below it; with a smaller `finer` gap a few more boxes
        are looked at, as a gap that is small beside the data may be all of the value
    known : the value of a point that is known
    """
    numbers, best, given_up = count(), Searched(Status.INFEASIBLE, value=known), inf
    spare = 0 if finer is None else MORE * len(lower)
    open_boxes: list[tuple[float, int, Array, Array]] = [(-inf, next(numbers), lower, upper)]

    def keep(found: Relaxed) -> None:
        """Keep the point of a box that is a point, if it is the best so far. Where the solver leaves it inaccurate, its
        box counts as given up."""
        nonlocal best
        if found.z is not None and found.value < best.value:
            best = Searched(Status.OPTIMAL, found.kept, found.value)

    def counts(bound: float) -> bool:
        wide = not bound >= best.value - gap(best.value)
        return wide or (spare > 0 and finer is not None and not bound >= best.value - finer(best.value))

    while open_boxes:
        bound, _, low, high = heapq.heappop(open_boxes)
        if not counts(bound):
            given_up = min(given_up, bound)
            break
        spare -= bound >= best.value - gap(best.value)
        try:
            found = relaxed(low, high)
            if found.status == Status.INFEASIBLE:
                continue
            if found.status == Status.UNBOUNDED and (low == high).all():
                return Searched(Status.UNBOUNDED)
            bound = max(bound, found.bound)
            if found.z is not None and (low < high).any() and counts(bound):
                nearest = np.clip(np.round(found.z), low, high)
                if not np.isfinite(best.value) or np.abs(found.z - nearest).max() <= INTEGRAL:
                    keep(relaxed(nearest, nearest))
            elif (low == high).all():
                keep(found)
        except OutOfTimeError:
            left = min([bound, given_up, *(one[0] for one in open_boxes)])
            return best._replace(status=Status.USER_LIMIT, bound=left)
        if not counts(bound):
            given_up = min(given_up, bound)
            continue
        parts = list(_cut(low, high, found.z))
        if not parts:  # a box of one point, or one that nothing tells where to cut
            given_up = min(given_up, bound if found.status != Status.OPTIMAL else found.bound)
        for part in parts:
            heapq.heappush(open_boxes, (bound, next(numbers), *part))
    left = min([best.value, given_up])
    if best.kept is None and given_up < inf:
        return Searched(Status.USER_LIMIT, bound=left)
    closed = best.kept is None or left >= best.value - gap(best.value)
    return best._replace(status=best.status if closed else Status.OPTIMAL_INACCURATE, bound=left)


def _cut(low: Array, high: Array, z: Array | None) -> Iterator[tuple[Array, Array]]:
    """Two boxes that hold all integers of a box; none where it is a point, or without a bound and a z."""
    free = np.flatnonzero(low < high)
    if not free.size:
        return
    if z is not None:
        i = free[np.argmax(np.abs(z - np.round(z))[free])]
        first = np.clip(np.floor(z[i] + INTEGRAL), low[i], high[i] - 1)
    else:
        width = high[free] - low[free]
        i = free[np.argmax(np.where(np.isfinite(width), width, -1.0))]
        if not np.isfinite(high[i] - low[i]):
            return
        first = np.floor((low[i] + high[i]) / 2)
    below, above = high.copy(), low.copy()
    below[i], above[i] = first, first + 1
    yield low, below
    yield above, high
