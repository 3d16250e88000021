"""Rows in which a t = ‖θMⱼ − fⱼ‖ stands alone: their multipliers follow from what g_t has to be."""

from __future__ import annotations

from math import inf, isfinite
from typing import NamedTuple

import numpy as np

from kernelopt.pieces.form import Pieces
from kernelopt.support.arithmetic import UNIT
from kernelopt.support.types import Array, Ints


class Single(NamedTuple):
    """Rows in which t stands alone, and its coefficients; those that are t ≤ L; those that are −t ≤ 0, whose
    multipliers are not needed; and whether some may have any multiplier: a bound t ≤ L, or a curved function of t."""

    rows: Ints
    values: Array
    below: Ints
    signs: Ints
    is_endless: bool


def single(pieces: Pieces, t: int) -> Single:
    """Found once for the rows."""
    return pieces.once(("single", t), lambda _: _found(pieces, t))


def _found(pieces: Pieces, t: int) -> Single:
    S = pieces.by_columns
    rows, values = (part[S.indptr[t] : S.indptr[t + 1]] for part in (S.indices, S.data))
    alone = (np.diff(pieces.S.indptr)[rows] == 1) & ~pieces.holds[rows]
    rows, values = rows[alone], values[alone]
    below = pieces.is_below[rows]
    growing = rows[values > 0]
    curved, grows = False, np.zeros(len(pieces.s0), dtype=bool)
    grows[growing] = True
    for group in pieces.groups if len(growing) else ():
        mine = np.asarray(grows[group.rows].all(axis=1))
        if mine.any():
            most = group.family.nearest(np.full(group.rows.shape, inf), np.ones(len(mine)))
            curved |= bool(np.any(most[mine] == inf) and group.rows.shape[1] == 1)
    signs = rows[below & (values < 0) & (pieces.s0[rows] == 0)]
    return Single(rows, values, rows[below], signs, curved or bool(pieces.is_below[growing].any()))


def raised(pieces: Pieces, t: int, a: Array, need: float) -> float:
    """Move multipliers of rows of t alone so that g_t grows by `need`, or falls; what is left of it.

    The slope of functions at the least bound t ≤ L is the most that they take; the rest is that bound's. That at t = 0
    is the least, as a smaller one would be of a t < 0.
    """
    rows, values, below, _, _ = single(pieces, t)
    bounds = [(pieces.s0[r] / -v, r, v) for r, v in zip(rows, values, strict=True) if v > 0 and r in below]
    limit, tightest, coefficient = min(bounds, default=(inf, -1, 1.0))
    if not isfinite(need) or not len(rows):
        return max(need, 0.0)
    for _, row, value in bounds:
        need, a[row] = need + float(a[row] * value), 0.0
    w, grows = np.append(1.0, a[pieces.below]), np.zeros(len(a), dtype=bool)
    grows[rows[values > 0]] = True
    for group in pieces.groups:
        for i in np.flatnonzero(grows[group.rows[:, 0]]) if group.rows.shape[1] == 1 else ():
            row, omega, wanted = int(group.rows[i, 0]), group.omega(w), a[group.rows]
            value, before = float(values[rows == row][0]), float(a[row])
            at_zero = float(omega[i] * group.family.slope(np.full_like(wanted, pieces.s0[row]))[i, 0])
            wanted[i] = max(before + need / value, at_zero if isfinite(at_zero) else 0.0, 0.0)
            if isfinite(limit):
                at = np.full_like(wanted, value * limit + pieces.s0[row])
                wanted[i] = min(float(wanted[i, 0]), float(omega[i] * group.family.slope(at)[i, 0]))
            a[row] = group.family.nearest(wanted, omega)[i, 0]
            need -= (float(a[row]) - before) * value
    if bounds and need > 0:
        a[tightest], need = need / coefficient * (1 + 4 * UNIT), 0.0
    return max(need, 0.0)
