"""A proven lower bound of g over a box, by branch and bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from kernelopt.support.types import Array, Ints

SHARE = 0.1  # of the least value, where it is negative: the bound is that close to it
STEPS = 6  # of the search for local minima: distances shrink to a thousandth of the first ones
MOST_CELLS = 400_000  # evaluated cells, after which a proof ends with what it has


@dataclass(frozen=True)
class LeastValue:
    """min g ≥ bound over the box.

    found : the least value at an evaluated point; points, values : evaluated points where g < 0, (n, d) and (n,)
    cells : evaluated cells; rounding : the largest error of a value; largest : the largest |g| at these points
    """

    bound: float
    found: float
    points: Array
    values: Array
    cells: int
    rounding: float
    largest: float

    @property
    def unproven(self) -> float:
        """What the bound is below 0 because cells were not cut further: new points do not lessen it."""
        return max(0.0, (1 + SHARE) * min(self.found, 0.0) - self.bound)


class Cells(NamedTuple):
    """Cells by their lower corners (n, d) and sides (n, d), their distinct corners, and where these have each cell's.

    corners : (m, d); places : (n, 2^d), in the order of `unit_corners`
    """

    low: Array
    size: Array
    corners: Array
    places: Ints

    @classmethod
    def of(cls, low: Array, size: Array) -> Cells:
        d = low.shape[1]
        P = (low[:, None, :] + unit_corners(d) * size[:, None, :]).reshape(-1, d)
        distinct, inverse = np.unique(P, axis=0, return_inverse=True)
        return cls(low, size, distinct, inverse.reshape(len(low), -1))


def unit_corners(d: int) -> Array:
    """The corners of the unit cube, (2^d, d)."""
    return np.array(list(product((0.0, 1.0), repeat=d)))


class CellBounds(NamedTuple):
    """How far gₖ may be below the multilinear interpolant of its corner values, Σⱼ Mⱼhⱼ²/8 + Lⱼhⱼ/2 + rⱼ(hⱼ).

    bend, slope : M and L, (K, d); rough : further parts r, functions of sides h (n, d) with values (n, K, d)
    """

    bend: Array
    slope: Array
    rough: tuple[Callable[[Array], Array], ...] = ()

    def drop(self, sides: Array) -> Array:
        """Mⱼhⱼ²/8 + Lⱼhⱼ/2 + rⱼ(hⱼ) for cells with these sides, (n, K, d)."""
        h = sides[:, None, :]
        smooth = self.bend * h**2 / 8 + self.slope * h / 2
        return np.asarray(smooth + sum(r(sides) for r in self.rough))

    @property
    def has_bend_alone(self) -> bool:
        return not self.slope.any() and not self.rough


def chord_bound(a: Array, b: Array, m: Array) -> Array:
    """min over an interval of length h of g with |g″| ≤ m/h², by its values a and b at the ends.

    g lies above the parabola through both ends with second derivative m/h²: its least value is
    (a + b)/2 − m/8 − (b − a)²/(2m) where |b − a| < m/2, and min(a, b) else.
    """
    inside = np.abs(b - a) < m / 2
    safe = np.where(inside, m, 1.0)
    return np.where(inside, (a + b) / 2 - m / 8 - (b - a) ** 2 / (2 * safe), np.minimum(a, b))


def least_value(  # noqa: PLR0917
    g: Callable[[Array], Array],
    bounds: CellBounds,
    rounding: Array,
    box: tuple[Array, Array],
    parts: int = 1,
    examine: Callable[[Cells], None] = lambda cells: None,
    is_over: Callable[[], bool] = lambda: False,
) -> LeastValue:
    """A lower bound of min g over a box, up to 0 at least where that is possible.

    g : points (n, d) to values (n, K); bounds : how far they are below multilinear interpolants at most
    rounding : (K,) errors of the values
    parts : cells per column at first; examine : called with all cells before they are judged
    is_over : whether to halve no more cells
    """
    lower, upper = box
    d = len(lower)
    steps = np.array(list(product(range(parts), repeat=d)))
    ends = [lower + k * ((upper - lower) / parts) for k in (steps, steps + 1)]
    low, size = ends[0], ends[1] - ends[0]
    best, bound, cells, largest = np.inf, np.inf, 0, 0.0
    below: list[tuple[Array, Array]] = []
    while len(low):
        cells += len(low)
        these = Cells.of(low, size)
        examine(these)
        distinct = these.corners
        values = g(distinct) - rounding
        largest = max(largest, float(np.abs(values).max()))
        least = values.min(axis=1)
        best = min(best, float(least.min()))
        below.append((distinct[least < 0], least[least < 0]))
        at_corners = values[these.places]
        drop = bounds.drop(size)  # (cells, K, d)
        if d == 1 and bounds.has_bend_alone:
            proven = chord_bound(at_corners[:, 0], at_corners[:, 1], 8 * drop[:, :, 0]).min(axis=1)
        else:
            proven = (at_corners.min(axis=1) - drop.sum(axis=2)).min(axis=1)
        enough = 0.0 if best >= 0 else (1 + SHARE) * best
        done = proven >= enough
        if cells > MOST_CELLS or is_over():
            done[:] = True
        bound = min(bound, float(proven[done].min(initial=np.inf)))
        low, size, drop = low[~done], size[~done], drop[~done]
        if len(low):
            low, size = _halved(low, size, drop.max(axis=1))
    points, values = (np.concatenate(part) for part in zip(*below, strict=True))
    return LeastValue(bound, best, points, values, cells, float(rounding.max()), largest)


def _halved(low: Array, size: Array, drop: Array) -> tuple[Array, Array]:
    """Each cell in two, along the column in which g drops most."""
    rows, column = np.arange(len(low)), drop.argmax(axis=1)
    half = size.copy()
    half[rows, column] /= 2
    other = low.copy()
    other[rows, column] += half[rows, column]
    return np.concatenate([low, other]), np.concatenate([half, half])


def apart(points: Array, values: Array, width: Array, most: int, share: float = 0.04) -> Array:
    """The points of the least values, at most `most`, no two within a share of the box."""
    chosen: list[int] = []
    for i in np.argsort(values, kind="stable"):
        if all(np.abs((points[i] - points[j]) / width).max() > share for j in chosen):
            chosen.append(int(i))
        if len(chosen) == most:
            break
    return points[chosen]


def located(g: Callable[[Array], Array], points: Array, box: tuple[Array, Array], share: float = 0.02) -> Array:
    """Points moved to local minima of min over k of gₖ, by parabolas through three values along each column.

    At first these are a share of the box apart, and a quarter of that with each step. A point stays where it gains
    nothing.
    """
    lower, upper = box
    step, rows = share * (upper - lower), np.arange(len(points))

    def values(tried: list[Array]) -> Array:
        return g(np.concatenate(tried)).reshape(len(tried), len(points), -1)

    for _ in range(STEPS):
        for j in np.flatnonzero(upper > lower):
            middle = np.clip(points[:, j], lower[j] + step[j], upper[j] - step[j])
            tried = [points, *(points.copy() for _ in range(4))]
            for P, shift in zip(tried[1:4], (-step[j], 0.0, step[j]), strict=True):
                P[:, j] = middle + shift
            known = values(tried[:4])
            a, b, c = known[1:, rows, known[0].argmin(axis=1)]
            bent = a - 2 * b + c
            vertex = np.where(bent > 0, (a - c) / (2 * np.where(bent > 0, bent, 1.0)), np.where(a < c, -1.0, 1.0))
            tried[4][:, j] = middle + step[j] * np.clip(vertex, -1.0, 1.0)
            least = np.concatenate([known, values(tried[4:])]).min(axis=2)
            points = np.stack(tried)[least.argmin(axis=0), rows]
        step = step / 4
    return points


def around(g: Callable[[Array], Array], points: Array, box: tuple[Array, Array], h: float = 1e-3) -> Array:
    """The points, and two beside each along every column, a quarter of the width w of the dip that g has there.

    With g at most 0 in between, w = √(8|g|/g″). Points a quarter of w apart leave a sixteenth of the violation.
    """
    lower, upper = box
    value, found = g(points), [points]
    component = value.argmin(axis=1)
    rows = np.arange(len(points))
    for j in np.flatnonzero(upper > lower):
        step = h * (upper[j] - lower[j])
        ends = [points.copy(), points.copy()]
        for P, sign in zip(ends, (-1, 1), strict=True):
            P[:, j] += sign * step
        at_ends = g(np.concatenate(ends)).reshape(2, len(points), -1)
        bent = at_ends[:, rows, component].sum(axis=0) - 2 * value[rows, component]
        width = np.sqrt(8 * np.abs(value[rows, component]) / np.maximum(bent, 1e-300)) * step
        width = np.minimum(width, 0.2 * (upper[j] - lower[j]))
        for P, sign in zip(ends, (-1, 1), strict=True):
            P[:, j] = np.clip(points[:, j] + sign * width / 4, lower[j], upper[j])
        found += ends
    return np.concatenate(found)
