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
IN_CACHE = 2**16  # products of `exact_product` that are worked on at once


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
    """AB; each entry is a sum of exact products with an error of at most (1 + 2⁻⁶)u of itself, unless parts underflow.

    That is a sum that is rounded once, nearly: the rounding errors of the sum, which are numbers, are summed like the
    products, as are theirs (T. Ogita, S. M. Rump, S. Oishi, Accurate sum and dot product, SIAM Journal on Scientific
    Computing 26, 2005). Entries that cancel more than this tells are summed by `fsum`. A is finite.
    """
    busy = B.any(axis=1)  # other products are exactly 0
    if not busy.all():
        A, B = A[:, busy], B[busy]
    found, step = np.empty((len(A), B.shape[1])), max(1, IN_CACHE // max(A.shape[1], 1))
    for start in range(0, len(A), step):
        rows = A[start : start + step]
        for j, column in enumerate(B.T):
            hi, lo = two_product(rows, column)
            terms = np.hstack([hi, lo])
            sums, is_sure = _sums(terms)
            for i in np.flatnonzero(~is_sure):
                sums[i] = fsum(terms[i].tolist())
            found[start : start + step, j] = sums
    return found


@np.errstate(over="ignore", invalid="ignore")  # such entries are not sure
def _sums(terms: Array) -> tuple[Array, Array]:
    """Sums of rows, and which of them have an error of at most (1 + 2⁻⁶)u of themselves."""
    first, errors = _errors_of_sum(terms)
    second, of_errors = _errors_of_sum(errors)
    high, low = two_sum(first, second)
    rest = of_errors.sum(axis=1)
    found = high + (low + rest)
    left = gamma(4 * terms.shape[1]) * np.abs(of_errors).sum(axis=1) + UNIT * (np.abs(low) + np.abs(rest))
    return found, left <= UNIT / 64 * np.abs(found)


def _errors_of_sum(terms: Array) -> tuple[Array, Array]:
    """(s, e) for each row x, where s is a sum in pairs and Σx = s + Σe exactly."""
    errors = [terms[:, :0]]
    while terms.shape[1] > 1:
        half = terms.shape[1] // 2
        sums, lost = two_sum(terms[:, :half], terms[:, half : 2 * half])
        errors.append(lost)
        terms = np.hstack([sums, terms[:, 2 * half :]]) if terms.shape[1] % 2 else sums
    return terms.sum(axis=1), np.hstack(errors)


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """(s, e) with a + b = s + e exactly (Knuth 1969)."""
    s = a + b
    b1 = s - a
    return s, (a - (s - b1)) + (b - b1)


def in_columns(values: Array) -> Array:
    """A row for each entry of the first axis, (n, K), also where n is 0."""
    return values.reshape(len(values), int(np.prod(values.shape[1:])))
