"""Boxes and normal distributions as a user gives them, checked."""

from __future__ import annotations

from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np

from kernelopt.errors import DataError
from kernelopt.kernels.domains import Names, check_finite, check_order, column_names, real_array
from kernelopt.kernels.sources import gathered
from kernelopt.support.types import Array

ROWS = "One of several columns is a row of a matrix, as in [[0.0, 0.0]]; entries of a vector are of one column."


class Boxes(NamedTuple):
    """Boxes by centres and half-widths (G, d), with volumes (G,)."""

    centres: Array
    halves: Array
    volumes: Array
    names: Names


def boxes(lower: Any, upper: Any) -> Boxes:
    """The boxes [lower, upper]. Raises DataError for those that are upside down or infinite."""
    low, high, names = _alike(lower, upper, "lower", "upper")
    for i, j in np.argwhere(low > high)[:1]:
        raise DataError(
            f"Expected boxes with lower ≤ upper; got row {i} with lower {low[i, j]:g} > upper {high[i, j]:g} in column "
            f"{j}. Exchange them: ko.integral(lower, upper, kernel)."
        )
    with np.errstate(over="ignore"):
        halves = high / 2 - low / 2
        volumes = np.prod(high - low, axis=1)
    for i in np.flatnonzero(~np.isfinite(volumes))[:1]:
        raise DataError(
            f"Expected boxes whose volume doubles can store; got row {i} from {low[i]} to {high[i]}. Change the units "
            "of the columns."
        )
    return Boxes(low / 2 + high / 2 + 0.0, halves, volumes, names)


def normals(mean: Any, sd: Any) -> tuple[Array, Array, Names]:
    """Means and standard deviations (G, d). Raises DataError for negative ones."""
    means, deviations, names = _alike(mean, sd, "mean", "sd")
    for i, j in np.argwhere(deviations < 0)[:1]:
        raise DataError(f"Expected standard deviations sd ≥ 0; got {deviations[i, j]:g} in row {i}, column {j}.")
    return means, deviations, names


def _alike(one: Any, other: Any, name: str, its: str) -> tuple[Array, Array, Names]:
    """Both as matrices of one shape: numbers and vectors beside a matrix stand for all of its rows."""
    names = column_names(one), column_names(other)
    check_order(names[1], names[0])
    a, b = _numbers(one, name), _numbers(other, its)
    if max(a.ndim, b.ndim) < 2:
        if a.ndim == b.ndim == 1 and len(a) != len(b):
            raise DataError(f"Expected as many entries in {name} as in {its}; got {len(a)} and {len(b)}. {ROWS}")
        a, b = np.broadcast_arrays(np.atleast_1d(a), b)
        return a[:, None] + 0.0, b[:, None] + 0.0, names[0] or names[1]
    columns = (a if a.ndim == 2 else b).shape[1]
    fit = all(v.ndim == 0 or v.shape[-1] == columns for v in (a, b))
    if not fit or (a.ndim == b.ndim and len(a) != len(b) and 1 not in (len(a), len(b))):
        raise DataError(
            f"Expected {name} and {its} of equal shapes (G, d), or one of them (d,) for all rows; got {a.shape} and "
            f"{b.shape}. {ROWS}"
        )
    a, b = np.broadcast_arrays(a, b)
    return a + 0.0, b + 0.0, names[0] or names[1]


def _numbers(value: Any, name: str) -> Array:
    if isinstance(value, cp.Expression):
        raise DataError(
            f"Expected {name} to be numbers; got the expression {value!r} of cvxpy. Write {name}.value, and state the "
            "problem again when it changes."
        )
    X = real_array(gathered(value, name), name)
    if X.ndim > 2 or 0 in X.shape:
        raise DataError(f"Expected {name} to be a number, a vector or a matrix (G, d), not empty; got shape {X.shape}.")
    check_finite(X, name)
    return X
