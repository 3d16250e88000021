"""The cone data of a box of integers: bounds as rows, fixed integers as constants, equations without integer points."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from fractions import Fraction
from math import gcd, inf, lcm
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from kernelopt.solvers.branch_and_bound import INTEGRAL
from kernelopt.support.cvxpy_parts import Compiled
from kernelopt.support.types import Array, Ints

# Coefficients of equations of integers count as rational where fractions of such denominators are so near, relatively.
LARGEST_DENOMINATOR, EXACTLY = 1000, 1e-12


def beside(data: dict[str, Any], columns: Sequence[int]) -> list[int]:
    """The columns z, and those that equations set equal to sums of them."""
    equations = _without_zeros(data["A"])[: data["dims"].zero]
    rows = np.unique(sp.csc_array(equations)[:, columns].nonzero()[0])
    others = sp.coo_array(equations[rows][:, np.setdiff1d(np.arange(equations.shape[1]), columns)])
    rows = rows[np.bincount(others.row, minlength=len(rows)) <= 1]
    return [int(j) for j in np.union1d(columns, equations[rows].nonzero()[1])]


def shifted(data: dict[str, Any], x: Array) -> float:
    """Put x + x̂ in the place of columns x̂ of Clarabel's data, in place; return what that adds to the objective.

    ½(x̂ + x)ᵀP(x̂ + x) + cᵀ(x̂ + x) with A(x̂ + x) + s = b: integers of 1e6 would leave the relaxations of a box no digits.
    """
    P = data.get("P")
    half = np.zeros(len(x)) if P is None else sp.csc_array(P) @ x
    added = float(data["c"] @ x + 0.5 * x @ half)
    data["b"], data["c"] = data["b"] - data["A"] @ x, data["c"] + half
    return added


class Pins(NamedTuple):
    """Columns that equations tie to an integer each, z among them: x_j = ratio·z_i + shift, j = columns[k] and
    i = owners[k]. `tied` are the rows of these equations."""

    columns: Ints
    owners: Ints
    ratio: Array
    shift: Array
    tied: Ints


def pins(data: dict[str, Any], first: int, n: int) -> Pins:
    """The columns that equations of two columns set equal to an integer, up to a factor and a constant."""
    A, zero = _without_zeros(data["A"]), data["dims"].zero
    rows = np.flatnonzero(np.diff(A.indptr[: zero + 1]) == 2)
    pairs, values = (part[A.indptr[rows][:, None] + [0, 1]] for part in (A.indices, A.data))
    is_z = (pairs >= first) & (pairs < first + n)
    one = is_z.sum(axis=1) == 1
    rows, pairs, values, is_z = rows[one], pairs[one], values[one], is_z[one]
    z, of_z = (np.where(is_z[:, 0], part[:, 0], part[:, 1]) for part in (pairs, values))
    other, of_other = (np.where(is_z[:, 0], part[:, 1], part[:, 0]) for part in (pairs, values))
    plain = np.arange(n)
    return Pins(
        np.concatenate([first + plain, other]), np.concatenate([plain, z - first]),
        np.concatenate([np.ones(n), -of_z / of_other]), np.concatenate([np.zeros(n), data["b"][rows] / of_other]), rows,
    )  # fmt: skip


def _without_zeros(A: Any) -> sp.csr_array:
    """A by rows, without the zeros that cvxpy keeps where a parameter has entries of 0."""
    found = sp.csr_array(A, copy=True)
    found.eliminate_zeros()
    return found


def lacks_integers(data: dict[str, Any], pins: Pins) -> bool:
    """Whether some equation Σ aᵢzᵢ = b of integers alone has no integer solution: b is no multiple of gcd(aᵢ).

    Without bounds of z, no number of boxes would tell.
    """
    A = _without_zeros(data["A"])[: data["dims"].zero]
    is_whole = np.isin(np.arange(A.shape[1]), pins.columns[(pins.ratio == 1) & (pins.shift == 0)])
    others = np.bincount(
        np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))[~is_whole[A.indices]], minlength=A.shape[0]
    )
    for row in np.flatnonzero((others == 0) & (np.diff(A.indptr) > 0)):
        a = A.data[A.indptr[row] : A.indptr[row + 1]]
        shares = [Fraction(x).limit_denominator(LARGEST_DENOMINATOR) for x in a / np.abs(a).min()]
        if any(abs(float(share) - x) > EXACTLY * abs(x) for share, x in zip(shares, a / np.abs(a).min(), strict=True)):
            continue
        unit = Fraction(gcd(*(share.numerator for share in shares)), lcm(*(share.denominator for share in shares)))
        b = data["b"][row] / np.abs(a).min() / float(unit)
        if abs(b - round(b)) > INTEGRAL * max(1.0, abs(b)):
            return True
    return False


def boxed(found: Compiled, first: int, lower: Array, upper: Array, pins: Pins) -> tuple[Compiled, Array]:
    """Clarabel's data with rows that keep columns from `first` on within bounds; and which rows these are.

    Equal bounds are equations, in front of all rows; others follow the inequalities. Elsewhere integers that are fixed
    are put in: the error of Clarabel's z times a large constant, as in |f| ≤ Mz, would leave f what it may not have.
    """
    data = _put_in(found.data, lower, upper, pins)
    zero, nonneg, n = data["dims"].zero, data["dims"].nonneg, len(data["c"])
    same = lower == upper
    at = np.concatenate(
        [np.flatnonzero(same), np.flatnonzero(~same & (upper < inf)), np.flatnonzero(~same & (lower > -inf))]
    )
    equal, above = int(same.sum()), int((~same & (upper < inf)).sum())
    signs = np.where(np.arange(len(at)) < equal + above, 1.0, -1.0)
    E = sp.csr_array((signs, (np.arange(len(at)), first + at)), shape=(len(at), n))
    e = signs * np.where(signs > 0, upper[at], lower[at])
    A, b, dims = sp.csr_array(data["A"]), data["b"], copy(data["dims"])
    dims.zero, dims.nonneg = zero + equal, nonneg + len(at) - equal
    A = sp.vstack([E[:equal], A[: zero + nonneg], E[equal:], A[zero + nonneg :]], format="csc")
    b = np.concatenate([e[:equal], b[: zero + nonneg], e[equal:], b[zero + nonneg :]])
    added = np.r_[0:equal, equal + zero + nonneg : len(at) + zero + nonneg]
    return found._replace(data={**data, "A": sp.csc_array(A), "b": b, "dims": dims}), added


def _put_in(data: dict[str, Any], lower: Array, upper: Array, pins: Pins) -> dict[str, Any]:
    """The data with fixed integers, and what is tied to them, as constants in all rows but those that tie them."""
    fixed = (lower == upper)[pins.owners]
    if not fixed.any():
        return data
    A, x = sp.csc_array(data["A"]), np.zeros(len(data["c"]))
    x[pins.columns[fixed]] = pins.ratio[fixed] * lower[pins.owners[fixed]] + pins.shift[fixed]
    owners = np.repeat(np.arange(A.shape[1]), np.diff(A.indptr))
    out = np.isin(owners, pins.columns[fixed]) & ~np.isin(A.indices, pins.tied)
    constant = np.bincount(A.indices[out], A.data[out] * x[owners[out]], minlength=A.shape[0])
    b, linear = data["b"] - constant, np.arange(len(data["b"])) < data["dims"].zero + data["dims"].nonneg
    rest = sp.csc_array((A.data[~out], (A.indices[~out], owners[~out])), shape=A.shape)
    # Clarabel's tolerance is relative to the largest b: f ≤ M·1 is stated as f/M ≤ 1.
    largest = np.maximum(np.abs(b), abs(rest).max(axis=1).toarray().ravel() if rest.nnz else 0.0)
    shrink = np.where(linear & (constant != 0) & (largest > 1), 1 / np.where(largest > 0, largest, 1.0), 1.0)
    return {**data, "A": sp.csc_array(sp.diags_array(shrink) @ rest), "b": shrink * b}
