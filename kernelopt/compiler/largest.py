"""Recognise the maximum of several convex quadratics of one number s in cvxpy's cone data.

There, rows bound each auxiliary variable from below by sums of others, of s, and of squares t ≥ q(s)². At an optimum
all auxiliary variables are as small as possible. Each is then a maximum of quadratics in s, and so is h.
"""

from __future__ import annotations

from itertools import combinations, product

import numpy as np

from kernelopt.compiler.pieces import Quadratic
from kernelopt.support.types import Array, Ints

EPS = 8 * np.finfo(float).eps  # relative rounding of a coefficient, a sum of a few terms; relative to these terms
# Quadratics in one maximum. All K(K − 1)/2 pairs are intersected, and sums of maxima multiply K. Larger maxima are left
# to the cone solvers.
MOST = 8
SQUARE = "soc 3"  # the kind of a row in a second-order cone of order 3, which is how cvxpy states a square

Polynomials = list[Array]  # (n, 3) each: constant, slope and half of the curvature


def largest(at: Ints, kinds: tuple[str, ...], rows: tuple[Array, Array, Array], c: Array) -> Quadratic | None:
    """h(s) = min cᵀx over `rows` Ax + as + (slack) = b of linear inequalities and squares.

    A (n, m, k), a and b (n, m), c (n, k). None where this is no maximum of quadratics.
    """
    A, a, b = rows
    linear_rows = [j for j, kind in enumerate(kinds) if kind == "nonneg"]
    squares = [j for j, kind in enumerate(kinds) if kind == SQUARE]
    costly = np.flatnonzero(c.any(axis=0)).tolist()
    if len(linear_rows) + len(squares) < len(kinds) or len(costly) != 1 or np.any(c < 0):
        return None
    known: dict[int, Polynomials] = {}
    for j in squares[::3]:
        found = _square(A[:, j : j + 3], a[:, j : j + 3], b[:, j : j + 3])
        if found is None or found[0] in known:
            return None
        known[found[0]] = [found[1]]
    below = _bounded(A[:, linear_rows])
    if below is None or any(x in known for x in below.values()):
        return None
    while len(known) < A.shape[2]:
        ready = [
            x for x in set(below.values()) - set(known)
            if all(_others(A, linear_rows[i], x) <= set(known) for i, y in below.items() if y == x)
        ]  # fmt: skip
        if not ready:
            return None
        for x in ready:
            parts = [
                _sums(A[:, row], a[:, row], b[:, row], x, known)
                for row in (linear_rows[i] for i, y in below.items() if y == x)
            ]
            known[x] = [p for part in parts for p in part]
            if len(known[x]) > MOST:
                return None
    x = costly[0]
    return _envelope(at, np.stack(known[x], axis=1) * c[:, x][:, None, None])


def _square(A: Array, a: Array, b: Array) -> tuple[int, Array] | None:
    """For (t + 1)² ≥ (t − 1)² + r², with r a function of s alone: the number of t, and its least value r²/4."""
    t = np.flatnonzero(A[:, 0].any(axis=0))
    plain = (
        len(t) == 1 and not A[:, 2].any() and not a[:, :2].any()
        and bool(np.all(A[:, :2, t[0]] == -1)) and np.count_nonzero(A[:, :2]) == 2 * len(A)
        and bool(np.all(b[:, 0] == 1)) and bool(np.all(b[:, 1] == -1))
    )  # fmt: skip
    if not plain:
        return None
    r, rate = b[:, 2], -a[:, 2]
    return int(t[0]), np.stack([r**2, 2 * r * rate, rate**2], axis=1) / 4


def _bounded(A: Array) -> dict[int, int] | None:
    """The auxiliary variable that each row bounds from below: the only one with a negative coefficient."""
    found = {}
    for i in range(A.shape[1]):
        negative, positive = (A[:, i] < 0), (A[:, i] > 0)
        x = np.flatnonzero(negative.all(axis=0))
        everywhere = np.array_equal(positive.any(axis=0), positive.all(axis=0))
        if len(x) != 1 or np.count_nonzero(negative) != len(A) or not everywhere:
            return None
        found[i] = int(x[0])
    return found


def _others(A: Array, row: int, x: int) -> set[int]:
    return set(np.flatnonzero(A[:, row].any(axis=0)).tolist()) - {x}


def _sums(A: Array, a: Array, b: Array, x: int, known: dict[int, Polynomials]) -> Polynomials:
    """Lower bounds of x by a row, (Σ A·(others) + as − b)/(−A_x), one for each choice of the others' quadratics."""
    unit = -A[:, x][:, None]
    rest = np.stack([-b, a, np.zeros(len(b))], axis=1) / unit
    others = [y for y in np.flatnonzero(A.any(axis=0)) if y != x]
    choices = product(*([A[:, y][:, None] / unit * p for p in known[int(y)]] for y in others))
    return [rest + sum(choice) for choice in choices]


def _envelope(at: Ints, p: Array) -> Quadratic | None:
    """The pointwise maximum of K quadratics, (n, K, 3)."""
    pairs = [_roots(p[:, i], p[:, j]) for i, j in combinations(range(p.shape[1]), 2)]
    found = [np.hstack([p[:, 0, :0], *(pair[k] for pair in pairs)]) for k in range(2)]
    ends = _apart(found[0], found[1])
    which = _largest_between(p, ends)
    # An intersection with the same quadratic on both sides is no breakpoint.
    ends = np.sort(np.where(which[:, 1:] == which[:, :-1], np.inf, ends))
    which = _largest_between(p, ends)
    n, open_end = len(p), np.full((len(p), 1), np.inf)
    left, right = np.hstack([-open_end, ends]), np.hstack([ends, open_end])
    parts = [p[np.arange(n)[:, None], which, d] for d in range(3)]
    unused = np.isposinf(left)
    arrays = [np.where(unused, np.nan, part) for part in (left, right, parts[0], parts[1], 2 * parts[2])]
    used = int((~unused).sum(axis=1).max())
    piece = Quadratic(at, *(part[:, :used] for part in arrays))
    return piece if piece.is_convex() else None


def _apart(ends: Array, errors: Array) -> Array:
    """The ends in increasing order. Those that equal the one before up to rounding are replaced by ∞."""
    order = np.argsort(ends, axis=1)
    ends, errors = np.take_along_axis(ends, order, axis=1), np.take_along_axis(errors, order, axis=1)
    with np.errstate(invalid="ignore"):
        again = np.diff(ends, axis=1) <= errors[:, 1:] + errors[:, :-1]
    return np.sort(np.where(np.hstack([np.zeros((len(ends), 1), dtype=bool), again])[:, : ends.shape[1]], np.inf, ends))


def _largest_between(p: Array, ends: Array) -> Ints:
    """The number of the largest polynomial between neighbouring ends, (n, ends + 1), compared halfway."""
    finite = np.where(np.isfinite(ends), ends, np.nan)
    if ends.shape[1]:
        last = np.nanmax(np.hstack([finite, np.full((len(p), 1), -np.inf)]), axis=1)
    else:
        last = np.full(len(p), -np.inf)
    last = np.where(np.isfinite(last), last, 0.0)[:, None]
    unit = 1.0 + np.abs(last)
    filled = np.where(np.isfinite(ends), ends, last + unit)
    points = np.hstack([filled[:, :1] - unit if ends.shape[1] else last, filled, filled[:, -1:] + unit])
    middle = 0.5 * (points[:, 1:] + points[:, :-1]) if ends.shape[1] else last
    values = p[:, None, :, 0] + middle[:, :, None] * (p[:, None, :, 1] + middle[:, :, None] * p[:, None, :, 2])
    return np.asarray(values.argmax(axis=2))


def _roots(one: Array, other: Array) -> tuple[Array, Array]:
    """The points (n, 2) at which two quadratics (n, 3) are equal, ∞ where there are fewer, and the errors of these.

    Coefficients that are equal up to rounding count as equal. An error ε of the value moves a root by ε/|slope|, and by
    no more than √(ε/|curvature|).
    """
    p, size = one - other, np.abs(one) + np.abs(other)
    c, b, a = np.where(np.abs(p) <= EPS * size, 0.0, p).T
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        root = np.sqrt(b**2 - 4 * a * c)
        q = -0.5 * (b + np.where(b >= 0, root, -root))  # terms of one sign, which do not cancel
        found = np.stack([q / a, c / q], axis=1)
        found = np.where(np.isfinite(found), found, np.inf)
        powers = np.stack([np.ones_like(found), np.abs(found), found**2], axis=2)
        noise = EPS * np.sum(size[:, None, :] * powers, axis=2)
        slope, bend = np.abs(2 * a[:, None] * found + b[:, None]), np.abs(a)[:, None]
        errors = np.fmin(noise / slope, np.sqrt(noise / bend))
    return found, np.where(np.isfinite(errors), errors, 0.0)
