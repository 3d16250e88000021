"""Floating-point arithmetic with known errors: exact products, and sums that are rounded once."""

from __future__ import annotations

from math import fsum
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

UNIT = 2.0**-53  # unit roundoff of double precision
# Products up to this size count as inexact: of their 106 binary digits, which reach down by 2⁻¹⁰⁵, some may lie below
# the smallest double, 2⁻¹⁰⁷⁴. A factor of 2⁹ is a margin.
FINE = 2.0**-960
# Terms that one sum of `summed_product` adds up. Smaller numbers cost more calls of BLAS, larger ones more rounding.
SUMMED = 256


def gamma(n: Any) -> Any:
    """γₙ = nu/(1 − nu), ∞ where nu ≥ 1: a bound on the error of a sum of n products, in any order (Higham 2002, 3.1).

    It is relative to the sum of the absolute values of the products.
    """
    u = n * UNIT
    return np.where(u < 1, u / np.where(u < 1, 1 - u, 1.0), np.inf)[()]


def summed_product(M: Array, W: Array) -> Array:
    """MW as a sum over SUMMED columns of M at a time: the bound on its rounding counts `additions`, not all terms."""
    found = np.asarray(M[:, :SUMMED] @ W[:SUMMED])
    for i in range(SUMMED, M.shape[1], SUMMED):
        found += M[:, i : i + SUMMED] @ W[i : i + SUMMED]
    return found


def summed_inner(V: Array, W: Array) -> Array:
    """VᵀW as a sum over SUMMED rows at a time."""
    return summed_product(V.T, W)


def additions(count: int, terms: int) -> int:
    """The n of γₙ for `summed_product` over `terms` columns, of which `count` are not zero."""
    return min(count, SUMMED) + -(-terms // SUMMED)


def median(values: Array) -> float:
    """The (lower) median of some numbers; numpy's takes ten times as long for a thousand."""
    place = (len(values) - 1) // 2
    return float(np.partition(values, place)[place])


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """(hi, lo) with ab = hi + lo exactly, unless a part underflows (Dekker 1971, with Veltkamp's splitting)."""
    # The factor 2²⁷ + 1 splits a double into two halves, whose products have at most 53 digits and so no rounding.
    c, d = (2.0**27 + 1) * a, (2.0**27 + 1) * b
    a1, b1 = c - (c - a), d - (d - b)
    hi, a2, b2 = a * b, a - a1, b - b1
    return hi, a2 * b2 - (((hi - a1 * b1) - a2 * b1) - a1 * b2)


def checked_product(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """(hi, lo, doubtful) with ab = hi + lo, which underflow may make inexact where `doubtful`."""
    hi, lo = two_product(a, b)
    return hi, lo, (np.abs(hi) <= FINE) & (a != 0) & (b != 0)


def euclidean(x: Array) -> float:
    """‖x‖ of an array of any shape. No entry is squared, so that none underflows."""
    return float(np.hypot.reduce(np.ravel(x)))


def exact_product(A: Array, B: Array) -> Array:
    """AB; each entry is a sum of exact products that is rounded once."""
    found = np.empty((len(A), B.shape[1]))
    for i, row in enumerate(A):
        for j, column in enumerate(B.T):
            hi, lo = two_product(row, column)
            found[i, j] = fsum([*hi.tolist(), *lo.tolist()])
    return found


def in_columns(values: Array) -> Array:
    """A row for each entry of the first axis, (n, K), also where n is 0."""
    return values.reshape(len(values), int(np.prod(values.shape[1:])))
