"""Floating point that is known to the last bit: products without an error, and sums that are rounded once."""

from __future__ import annotations

from math import fsum
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

UNIT = 2.0**-53  # unit roundoff of double precision
FINE = 2.0**-960  # products up to it may have digits below the smallest double, 2⁻¹⁰⁷⁴


def gamma(n: Any) -> Any:
    """n·u/(1 − n·u), ∞ from nu = 1 on: the relative error of a sum of n products, in any order (Higham 2002, 3.1)."""
    u = n * UNIT
    return np.where(u < 1, u / np.where(u < 1, 1 - u, 1.0), np.inf)[()]


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """(hi, lo) with ab = hi + lo exactly, but for underflow (Dekker 1971; upper 26 bits by Veltkamp)."""
    c, d = (2.0**27 + 1) * a, (2.0**27 + 1) * b
    a1, b1 = c - (c - a), d - (d - b)
    hi, a2, b2 = a * b, a - a1, b - b1
    return hi, a2 * b2 - (((hi - a1 * b1) - a2 * b1) - a1 * b2)


def checked_product(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """(hi, lo) with ab = hi + lo, and where underflow may keep that from being exact."""
    hi, lo = two_product(a, b)
    return hi, lo, (np.abs(hi) <= FINE) & (a != 0) & (b != 0)


def euclidean(x: Array) -> float:
    """‖x‖, entries of any shape, where no square underflows."""
    return float(np.hypot.reduce(np.ravel(x)))


def exact_product(A: Array, B: Array) -> Array:
    """AB, each entry a sum of exact products that is rounded once."""
    found = np.empty((len(A), B.shape[1]))
    for i, row in enumerate(A):
        for j, column in enumerate(B.T):
            hi, lo = two_product(row, column)
            found[i, j] = fsum([*hi.tolist(), *lo.tolist()])
    return found
