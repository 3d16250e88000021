"""Affine atoms of cvxpy as matrices, and those that only move entries as orders of them."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.support.cvxpy_parts import coefficients
from kernelopt.support.types import Array, Ints

# Atoms whose entries are entries of their arguments, or 0. Where these go they tell on arrays of numbers.
MOVES = {
    "index", "special_index", "reshape", "transpose", "Hstack", "Vstack", "Concatenate", "Promote", "broadcast_to",
    "vec", "upper_tri", "diag_mat", "diag_vec", "swapaxes", "permute_dims",
}  # fmt: skip


def flat(value: Any) -> Array:
    """The entries of a number, array or sparse matrix, by columns."""
    return np.ravel(value.toarray() if sp.issparse(value) else np.asarray(value, dtype=float), order="F")


def moved(node: Any) -> Ints:
    """For each entry of an atom that moves entries, which entry of its arguments, counted through, it is; −1 for 0."""
    at, numbers = 1, []
    for a in node.args:
        numbers.append(np.arange(at, at + a.size, dtype=float).reshape(a.shape, order="F"))
        at += a.size
    return flat(node.numeric(numbers)).astype(int) - 1


def matrix(node: Any) -> tuple[sp.csr_array, Array]:
    """L and l of an affine atom, L·(entries of its arguments that are not constant) + l."""
    arguments = [cp.Constant(a.value) if a.is_constant() else cp.Variable(a.shape) for a in node.args]
    return coefficients(node.copy(arguments), [a for a in arguments if isinstance(a, cp.Variable)])
