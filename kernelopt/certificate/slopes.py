"""Slopes of functions of one number each: in their intervals, with Fᵀv + c_y = 0, or those that ν determines."""

from __future__ import annotations

from functools import partial

import numpy as np

from kernelopt.compiler.separable import Separable
from kernelopt.solvers.dual_feasibility import corrected, room
from kernelopt.support.types import Array

# Relative to the length of an interval of slopes: a slope nearer to an end is set to that end, so that rounding leaves
# no small multipliers. Where Fᵀv + c_y = 0 then fails, slopes stay as they are (0).
SNAPS = (1e-12, 0.0)
FEW = 30  # variables y up to which F is taken as dense; more of them are bounds of maxima as a rule, in few rows each
ORTHOGONAL = 1e-14  # |Fᵀv + c_y| relative to |F|ᵀ|v| + |c_y| that counts as rounding: about 90 roundings u


def is_orthogonal(pieces: Separable, v: Array) -> bool:
    """Whether Fᵀv + c_y = 0 but for rounding."""
    F = pieces.F
    each = F.data * np.repeat(v, np.diff(F.indptr))
    terms = np.bincount(F.indices, np.abs(each), F.shape[1]) + np.abs(pieces.linear_y)
    return bool(np.all(np.abs(np.bincount(F.indices, each, F.shape[1]) + pieces.linear_y) <= ORTHOGONAL * terms))


def feasible_slopes(pieces: Separable, v: Array) -> Array | None:
    """v moved into dom h* with Fᵀv + c_y = 0: entries move in proportion to their distance from the domain's ends.

    Entries of 0 stay where the others suffice: rows without a multiplier take no kernel values.
    """
    low, high = pieces.slopes()
    v = np.clip(v, low, high)
    if not np.isfinite(v).all():
        return None
    if not len(pieces.y):
        return v
    F, length = pieces.F.toarray() if len(pieces.y) <= FEW else pieces.F, high - low
    length = np.where(np.isfinite(length), length, np.abs(v).max(initial=0.0))
    for share in SNAPS:
        start = np.where(v - low <= share * length, low, np.where(high - v <= share * length, high, v))
        busy = start != 0
        for able in (busy, np.ones_like(busy)) if not busy.all() else (busy,):
            weights = partial(_movable, low, high, able)
            found, _ = corrected(F, -pieces.linear_y, start, lambda v: np.clip(v, low, high), weights)
            if is_orthogonal(pieces, found):
                return found
    return None


def _movable(low: Array, high: Array, able: Array, v: Array) -> Array:
    """The room of entries that may move."""
    return room(v, low, high) * able
