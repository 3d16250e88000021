"""Units of slacks and of multipliers at an optimum, in which they are near 0, or not."""

from __future__ import annotations

import numpy as np

from kernelopt.sensitivity.active import NEAR
from kernelopt.sensitivity.stated_cones import StatedCones
from kernelopt.support.arithmetic import median
from kernelopt.support.types import Array

# Relative to slopes of the objective and right-hand sides: multipliers and predictions up to this are rounding of 0.
NOTHING = 1e-12
# The least units of slacks and multipliers, relative to the largest: polished points are exact to 1e-12 of those.
FINEST = 1e-5


def units_of(data: StatedCones, x: Array, z: Array) -> tuple[float, float]:
    """Units of slacks and of multipliers: those of predictions or small right-hand sides, the largest multiplier; less,
    where the median slack of inactive rows, or the first decile of the objective's slopes, is less.

    A constant that all labels share is no slack, and the weight of one row is none of the others. Multipliers that are
    rounding of 0, as where all rows are inactive, are no unit: slopes of the objective are.
    """
    of_slacks, sizes = unit_of_slacks(data, x), np.abs(z * data.row_norms)
    largest, slope = float(sizes.max(initial=0.0)), slope_of(data, of_slacks)
    if not largest > NOTHING * slope:
        return of_slacks, slope or 1.0
    slopes = np.abs(data.c) + data.sizes[0] @ np.abs(x)
    slopes = slopes[slopes > NOTHING * slopes.max(initial=0.0)]
    small = float(np.quantile(slopes, 0.1)) if len(slopes) else largest
    linear = np.zeros(len(z), dtype=bool)
    for kind, rows, _ in data.cones.slices:
        linear[rows] = kind == "nonneg"
    linear[data.vacuous] = False
    slacks = np.abs(data.b - data.A @ x)[linear] / data.row_norms[linear]
    of_multipliers = min(largest, max(small, FINEST * largest))
    inactive = slacks[(slacks > NOTHING * of_slacks) & (sizes[linear] <= NEAR * of_multipliers)]
    if len(inactive):
        of_slacks = min(of_slacks, max(median(inactive), FINEST * of_slacks))
    return of_slacks, of_multipliers


def slope_of(data: StatedCones, of_slacks: float) -> float:
    """A size of the objective's slopes."""
    P = float(np.abs(data.P.data).max(initial=0.0))
    return max(float(np.abs(data.c).max(initial=0.0)), P * of_slacks)


def unit_of_slacks(data: StatedCones, x: Array) -> float:
    """1 where all right-hand sides are 0, and predictions are rounding of it."""
    u = np.concatenate([np.zeros(0), *(x[columns] for columns in data.u)])
    b, size = np.abs(data.b[data.b != 0]), float(np.abs(u).max(initial=0.0))
    if not len(b):
        return size if size > NOTHING else 1.0
    return max(size, float(np.quantile(b, 0.1)))
