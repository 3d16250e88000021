"""Rows that are linear functionals of θ: combinations of values, derivatives and integrals, as sums and differences.

The functional Σₘ cₘ(∂F(zₘ))ᵀθ is the inner product of θ with a function of feature space, so that the representer
theorem holds with these functions in place of the F(xᵢ). Several functionals are the outputs of one `Function`.
"""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.errors import DataError
from kernelopt.kernels.chain import Order
from kernelopt.kernels.derivatives import lifted, with_order
from kernelopt.kernels.domains import check_finite, distinct, real_array, stack
from kernelopt.kernels.kernel import Kernel
from kernelopt.kernels.sources import refuse_masked
from kernelopt.kernels.spreads import WithMeans, spread_rows
from kernelopt.language.functions import Function, alike
from kernelopt.support.arithmetic import in_columns
from kernelopt.support.types import Array


def combined(kernel: Kernel, X: Array, order: Order, W: Any) -> Function:
    """The functionals Σᵢ Wᵣᵢ F(xᵢ)ᵀθ, or of derivatives of F, one for each row of W."""
    if order:
        kernel, X = lifted(kernel), with_order(X, order)
    return merged(kernel, X, weights(W, len(X)).T)


def recombined(f: Function, W: Any) -> Function:
    """The combinations W of the outputs of a function."""
    c = in_columns(f.coefficients)
    W = weights(W, c.shape[1])
    return merged(f._kernel, f._centers, (W @ c.T).T)


def added(f: Function, g: Function) -> Function:
    """The sums of the outputs of two functions, output by output."""
    f, g = alike(f, g)
    parts = [in_columns(h.coefficients) for h in (f, g)]
    return merged(f._kernel, stack([f._centers, g._centers]), np.vstack(parts))


def of_means(kernel: Kernel, X: Array, halves: Array | float, deviations: Array | float, factors: Array) -> Function:
    """The functionals cᵢ·E F(xᵢ + U)ᵀθ, with U uniform in a box or normal."""
    return merged(WithMeans(kernel), spread_rows(X, halves, deviations), sp.diags_array(factors))


def merged(kernel: Kernel, centers: Array, coefficients: Any) -> Function:
    """The function with equal centers once, and without those of coefficient 0."""
    first, inverse = distinct(centers)
    one = sp.csr_array((np.ones(len(inverse)), (inverse, np.arange(len(inverse)))), shape=(len(first), len(inverse)))
    c = one @ coefficients
    c = c.toarray() if sp.issparse(c) else np.asarray(c)
    used = np.flatnonzero(np.any(c != 0, axis=1))
    used = used if len(used) else np.arange(1)
    return Function._of_rows(kernel, centers[first[used]], c[used])


def weights(W: Any, columns: int) -> Any:
    """W as a float array or sparse array (R, columns). Raises DataError for others."""
    if isinstance(W, cp.Expression):
        if not W.is_constant() or W.parameters():
            raise DataError("Expected W in W @ A to be numbers; got an expression. Write W @ (A @ theta).")
        W = W.value
    W = sp.csr_array(W).astype(float) if sp.issparse(W) else real_array(W, "W in W @ A")
    if W.ndim not in (1, 2) or W.shape[-1] != columns:
        raise DataError(f"Expected W in W @ A with {columns} columns, one for each row of A; got shape {W.shape}.")
    if W.ndim == 1:
        W = W[None, :]
    check_finite(W.data if sp.issparse(W) else W, "W in W @ A")
    return W


def means(count: int, groups: Any, given: Any) -> sp.csr_array:
    """The matrix of weighted means over groups of `count` rows. Raises DataError."""
    refuse_masked(groups, "groups")
    try:
        labels = np.zeros(count) if groups is None else np.asarray(groups)
    except ValueError as error:
        raise DataError("Expected a group for each point; got rows of different lengths.") from error
    if labels.shape != (count,):
        raise DataError(f"Expected a group for each point, shape ({count},); got shape {labels.shape}.")
    w = np.ones(count) if given is None else real_array(given, "the weights")
    if w.shape != (count,) or not np.isfinite(w).all() or np.any(w < 0):
        raise DataError(f"Expected a weight ≥ 0 for each point, shape ({count},), all finite; got {given!r}.")
    try:
        names, number = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise DataError(f"Expected groups that can be sorted, as numbers or text; got {error}.") from error
    missing = np.not_equal(labels, labels)  # NaN and NaT
    if missing.any():
        row = int(np.argmax(missing))
        raise DataError(f"Expected a group for each point; got {labels[row]} in row {row}.")
    totals = np.bincount(number, w)
    if np.any(totals == 0):
        raise DataError(f"Expected groups with a positive weight; group {names[np.argmin(totals)]} has none.")
    return sp.csr_array((w / totals[number], (number, np.arange(count))), shape=(len(names), count))
