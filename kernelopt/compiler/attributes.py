"""The attributes of cvxpy's variables (nonneg, bounds, diag, PSD, integer, …): the nearest value that has them.

cvxpy projects a solver's value only where a variable has one attribute that is no structure; here all attributes count.
"""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelopt.errors import DataError
from kernelopt.support.checks import shown
from kernelopt.support.types import Array


def dense(value: Any) -> Array:
    """The value as an array. cvxpy keeps the value of a diagonal variable as a sparse matrix."""
    return np.asarray(value.toarray() if sp.issparse(value) else value)


def integral(variable: cp.Variable) -> NDArray[np.bool_]:
    """Which entries are boolean or integer, in the variable's shape."""
    return _boolean(variable) | _marked(variable, "integer_idx")


def nearest(variable: cp.Variable, value: Array) -> Array:
    """The nearest value with the variable's signs, bounds and structure. Entries may be fractional.

    A value that must be definite and within bounds is projected on the definite matrices first, then on the bounds. The
    result may then be indefinite.
    """
    has = variable.attributes
    x = np.array(value, dtype=float)
    if has["diag"]:
        x = np.diag(np.diagonal(x))
    if has["symmetric"] or has["PSD"] or has["NSD"]:
        x = (x + np.swapaxes(x, -2, -1)) / 2
    if has["PSD"] or has["NSD"]:
        x = definite(x, 1.0 if has["PSD"] else -1.0)
    lower, upper = limits(variable)
    return np.clip(x, lower, upper)


def limits(variable: cp.Variable) -> tuple[Array, Array]:
    """Lower and upper bounds of the entries, from signs, bounds and booleans, in the variable's shape."""
    has = variable.attributes
    given = [-np.inf, np.inf] if variable.bounds is None else variable.bounds
    low, high = (np.asarray(b.value if isinstance(b, cp.Expression) else b, dtype=float) for b in given)
    lower, upper = (np.array(np.broadcast_to(b, variable.shape)) for b in (low, high))
    if has["nonneg"] or has["pos"]:
        lower = np.maximum(lower, 0.0)
    if has["nonpos"] or has["neg"]:
        upper = np.minimum(upper, 0.0)
    boolean = _boolean(variable)
    return np.where(boolean, np.maximum(lower, 0.0), lower), np.where(boolean, np.minimum(upper, 1.0), upper)


def rounded(variable: cp.Variable, value: Array) -> Array:
    """The value with boolean and integer entries at the nearest integers within their bounds."""
    lower, upper = limits(variable)
    return np.where(integral(variable), np.clip(np.round(value), np.ceil(lower), np.floor(upper)), value)


def _boolean(variable: cp.Variable) -> NDArray[np.bool_]:
    return _marked(variable, "boolean_idx")


def _marked(variable: cp.Variable, name: str) -> NDArray[np.bool_]:
    """Which entries an attribute marks. cvxpy keeps their coordinates, one array per axis."""
    mask = np.zeros(variable.shape or (1,), dtype=bool)
    where = getattr(variable, name, ())
    if len(where):
        try:
            mask[tuple(np.asarray(i, dtype=int) for i in where)] = True
        except IndexError:
            raise DataError(
                f"Expected positions of marked entries of {variable.name()} as one sequence for each of its axes, as "
                f"[(0, 2)] for entries 0 and 2 of a vector; got {shown([tuple(i) for i in where])}."
            ) from None
    return mask.reshape(variable.shape)


def definite(x: Array, sign: float) -> Array:
    """The positive semidefinite matrix nearest to a symmetric or hermitian one; for sign −1 the negative one."""
    eigenvalues, V = np.linalg.eigh(sign * x)
    # A definite value is returned as it is: composing it again from V would round it.
    if np.all(eigenvalues >= 0):
        return x
    return np.asarray(sign * (V * np.clip(eigenvalues, 0.0, None)[..., None, :]) @ np.swapaxes(V, -2, -1).conj())
