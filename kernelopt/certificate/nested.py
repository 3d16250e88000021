"""Intervals of multipliers of rows that hold functions, from the multipliers of these functions.

A function h inside of row j has a multiplier a ∈ ω[l, r], ω = w₀ + w·(the multiplier of row j) ≥ 0, for the slopes
[l, r] of h near the point. An interval of a gives one of ω, and so of the multiplier of row j, from the inside out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernelopt.pieces.form import Group, Pieces
from kernelopt.pieces.function import Family, OfOneNumber
from kernelopt.support.types import Array, Ints

TURNS = 6  # of functions within functions
HALVINGS = 50  # of an interval of ω for a function of several numbers
DOUBLINGS = 40  # until that interval has an upper end
SAME = 1e-12  # relative: multipliers that a projection moves by no more are in the domain


class Intervals(NamedTuple):
    """low ≤ a ≤ high for the multipliers of all rows."""

    low: Array
    high: Array


class _Inner(NamedTuple):
    """Functions that stand in one row below only: which of a group, the number of that row, and their weight in it."""

    group: Group
    slopes: tuple[Array, Array]
    which: Ints
    number: Ints
    weight: Array


@np.errstate(all="ignore")  # ends are infinite
def permitted(pieces: Pieces, slopes: list[tuple[Array, Array]], a: Array, known: np.ndarray) -> Intervals:
    """The intervals that known multipliers leave; slopes : the least and the largest near the point, of each group."""
    low, high = np.where(known, a, -np.inf), np.where(known, a, np.inf)
    low[pieces.below] = np.maximum(low[pieces.below], 0.0)
    inner = [_inner(group, own) for group, own in zip(pieces.groups, slopes, strict=True) if not group.is_outer]
    for _ in range(TURNS):
        before = Intervals(low.copy(), high.copy())
        for functions in inner:
            least, most = _of_rows(functions, before)
            rows = pieces.below[functions.number]
            np.maximum.at(low, rows, least)
            np.minimum.at(high, rows, most)
        low, high = _with_twins(pieces, low, high)
        low, high = np.where(known, a, low), np.where(known, a, high)
        if np.array_equal(low, before.low) and np.array_equal(high, before.high):
            break
    return Intervals(low, high)


def _inner(group: Group, slopes: tuple[Array, Array]) -> _Inner:
    W = group.weights
    owner = np.repeat(np.arange(len(group.rows)), np.diff(W.indptr))
    inside = (W.indices > 0) & (W.data > 0)
    inside &= (np.bincount(owner, inside, len(group.rows)) == 1)[owner]
    return _Inner(group, slopes, owner[inside], W.indices[inside] - 1, W.data[inside])


def _of_rows(functions: _Inner, known: Intervals) -> Intervals:
    """Intervals of the multipliers of the rows that the functions stand in."""
    group, which = functions.group, functions.which
    left, right = (end[which] for end in functions.slopes)
    low, high = (end[group.rows[which]] for end in known)
    of_low, of_high = low / right, high / left  # ω·right ≥ low and ω·left ≤ high
    least = np.maximum(np.where((right > 0) & (low > 0), of_low, 0.0), np.where((left < 0) & (high < 0), of_high, 0.0))
    most = np.minimum(
        np.where((right < 0) & (low < 0), of_low, np.inf), np.where((left > 0) & (high >= 0), of_high, np.inf)
    )
    least = least.max(axis=1)
    told = np.flatnonzero((low == high).all(axis=1)) if not isinstance(group.family, OfOneNumber) else np.arange(0)
    if len(told):
        least[told] = _least_weights(group.family.take(which[told]), low[told], least[told])
    costs, w = group.costs[which], functions.weight
    return Intervals(np.maximum((least - costs) / w, 0.0), np.maximum((most.min(axis=1) - costs) / w, 0.0))


def _least_weights(family: Family, a: Array, low: Array) -> Array:
    """The least ω from `low` on with a in the domain of (ωh)*, nearly, by halving; `low` where none is found."""
    size = np.abs(a).max(axis=1)

    def inside(w: Array) -> np.ndarray:
        return np.asarray(np.abs(family.nearest(a, w) - a).max(axis=1) <= SAME * size)

    out, inner, found = low.copy(), np.maximum(low, SAME * size), inside(low)
    for _ in range(DOUBLINGS):
        is_in = inside(inner)
        if is_in.all():
            break
        out, inner = np.where(is_in, out, inner), np.where(is_in, inner, 2 * inner)
    for _ in range(HALVINGS):
        middle = (out + inner) / 2
        is_in = inside(middle)
        out, inner = np.where(is_in, out, middle), np.where(is_in, middle, inner)
    return np.asarray(np.where(found | ~inside(inner), low, inner))


def _with_twins(pieces: Pieces, low: Array, high: Array) -> tuple[Array, Array]:
    """The intersections of the intervals of rows whose multipliers are the same but for a sign."""
    row, flip = pieces.twins.row, pieces.twins.sign < 0
    least, most = np.where(flip, -high, low), np.where(flip, -low, high)
    low, high = np.full(len(low), -np.inf), np.full(len(low), np.inf)
    np.maximum.at(low, row, least)
    np.minimum.at(high, row, most)
    return np.where(flip, -high[row], low[row]), np.where(flip, -low[row], high[row])
