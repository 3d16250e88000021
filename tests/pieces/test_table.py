"""Each row of the table of functions, with its formulas written once more."""

from itertools import accumulate

import mpmath as mp
import numpy as np
import pytest
from check_function import check_function
from mpmath import mpf

from kernelopt.language.smooth import SmoothLoss
from kernelopt.pieces import (
    bounds,
    by_size,
    custom,
    elementary,
    extremes,
    norms,
    quadratics,
    ratios,
    spectral,
)

M = 12  # functions, of each row
RNG = np.random.default_rng(0)
NEARLY = mpf(1e-13)  # relative: points of a prox are on the boundary of a cone
RADII = np.exp(0.5 * RNG.normal(size=M))


def xlogx(x, w):
    return x * mp.log(x / w) if x > 0 else mpf(0) if x == 0 else mp.inf


def inside(condition):
    return mpf(0) if condition else mp.inf


def _power(a, p):
    return mp.inf if a < 0 else a**p


def total(a, w):
    """Σ aₖ ln(aₖ/w) with a₀ = w − Σa."""
    rest = [*a, w - sum(a)]
    return mp.inf if min(rest) < 0 else sum(xlogx(x, w) for x in rest)


def capped(a, w, k):
    return inside(min(a) >= 0 and max(a) <= w and (k - 1) * w <= sum(a) <= k * w)


def majorized(a, w):
    """Whether the j largest of a add up to at most the j largest of w, for each j; for all of them up to rounding."""
    sums = list(zip(accumulate(sorted(a, reverse=True)), accumulate(sorted(w, reverse=True)), strict=True))
    return all(x <= y for x, y in sums[:-1]) and sums[-1][0] <= sums[-1][1] + mpf(10) ** -40 * (1 + abs(sums[-1][1]))


def lengths(a, p):
    return max(abs(x) for x in a) if p == mp.inf else sum(abs(x) ** mpf(p) for x in a) ** (1 / mpf(p))


def singular(a, shape):
    A = mp.matrix(*shape)
    for j, x in enumerate(a):
        A[j % shape[0], j // shape[0]] = x
    return list(mp.svd_r(A, compute_uv=False))


def largest_of(s, k):
    down = sorted([*s, mpf(0)], reverse=True)
    whole = int(k)
    return sum(down[:whole]) + (mpf(k) - whole) * (down[whole] if whole < len(down) else 0)


def positive(s):
    return np.abs(s) + 1e-3


def within_cone(s):
    """Heads longer than tails."""
    return np.column_stack([np.linalg.norm(s[:, 1:], axis=1) * 1.1 + 1e-3, s[:, 1:]])


def semidefinite(s):
    """The triangles of A + μI ≻ 0."""
    family = spectral.Semidefinite(3)
    A = family.matrices(s)
    lift = np.abs(np.linalg.eigvalsh(A)[:, 0]) * 1.1 + 1e-3
    return family.rows(A + lift[:, None, None] * np.eye(3))


def least_eigenvalue(s):
    A, at = mp.matrix(3), 0
    for i in range(3):
        for j in range(i + 1):
            A[i, j] = A[j, i] = s[at] / (1 if i == j else mp.sqrt(2))
            at += 1
    return min(mp.eigsy(A, eigvals_only=True))


PLAIN, POSITIVE = (lambda s: s), positive
HUBER = quadratics.many(quadratics.huber(0.7), M)


def insensitive(eps):
    """max(r − ε, 0)."""
    return quadratics.many(quadratics.one([eps], [[0, 0, 0], [-eps, 1, 0]]), M)


HYPERBOLA, CENTRES = SmoothLoss(
    lambda u, y: np.hypot(1.0, u - y), lambda u, y: (u - y) / np.hypot(1.0, u - y),
    lambda u, y: np.hypot(1.0, u - y) ** -3.0,
), np.linspace(-1.0, 1.0, M)  # fmt: skip

SQUARE_OF_LENGTH = quadratics.many(quadratics.one([0], [[0, 0, 0], [0, 0, 2]]), M)

ROWS = {
    "exponential": (elementary.Exp(), 1, PLAIN, lambda i, s: mp.exp(s[0]), lambda i, a, w: xlogx(a[0], w) - a[0]),
    "logistic": (
        elementary.Logistic(), 1, PLAIN,
        lambda i, s: mp.log(1 + mp.exp(s[0])), lambda i, a, w: xlogx(a[0], w) + xlogx(w - a[0], w),
    ),
    "negative logarithm": (
        elementary.NegativeLog(), 1, POSITIVE,
        lambda i, s: -mp.log(s[0]) if s[0] > 0 else mp.inf,
        lambda i, a, w: -w - w * mp.log(-a[0] / w) if a[0] < 0 else mp.inf,
    ),
    "negative entropy": (
        elementary.NegativeEntropy(), 1, POSITIVE,
        lambda i, s: xlogx(s[0], 1), lambda i, a, w: w * mp.exp(a[0] / w - 1),
    ),
    **{
        f"power {p}": (
            elementary.AbsolutePower(p), 1, PLAIN, lambda i, s, p=p: abs(s[0]) ** mpf(p),
            lambda i, a, w, p=p: w * (mpf(p) - 1) * (abs(a[0]) / (w * mpf(p))) ** (mpf(p) / (mpf(p) - 1)),
        )
        for p in (1.5, 2.0, 3.0, 4.0)
    },
    **{
        f"positive power {p}": (
            elementary.PositivePower(p), 1, PLAIN, lambda i, s, p=p: max(s[0], mpf(0)) ** mpf(p),
            lambda i, a, w, p=p: w * (mpf(p) - 1) * (a[0] / (w * mpf(p))) ** (mpf(p) / (mpf(p) - 1))
            if a[0] >= 0 else mp.inf,
        )
        for p in (1.5, 3.0)
    },
    "log complement": (
        elementary.NegativeLogComplement(), 1, lambda s: -positive(s),
        lambda i, s: -mp.log(1 - mp.exp(s[0])) if s[0] < 0 else mp.inf,
        lambda i, a, w: xlogx(a[0], w + a[0]) + xlogx(w, w + a[0]) if a[0] >= 0 else mp.inf,
    ),
    "stated": (
        custom.StatedFunction(HYPERBOLA, (CENTRES,)), 1, PLAIN,
        lambda i, s: mp.sqrt(1 + (s[0] - mpf(float(CENTRES[i]))) ** 2),
        lambda i, a, w: mpf(float(CENTRES[i])) * a[0] - mp.sqrt(w**2 - a[0] ** 2) if abs(a[0]) < w else mp.inf,
    ),
    **{
        f"inverse power {p}": (
            elementary.InversePower(p), 1, POSITIVE, lambda i, s, p=p: s[0] ** -mpf(p) if s[0] > 0 else mp.inf,
            lambda i, a, w, p=p: -w * (mpf(p) + 1) * _power(-a[0] / (w * mpf(p)), mpf(p) / (mpf(p) + 1))
            if a[0] <= 0 else mp.inf,
        )
        for p in (0.5, 1.0, 2.0)
    },
    **{
        f"negative root {p}": (
            elementary.NegativeRoot(p), 1, POSITIVE, lambda i, s, p=p: -_power(s[0], mpf(p)) if s[0] >= 0 else mp.inf,
            lambda i, a, w, p=p: w * (1 - mpf(p)) * (w * mpf(p) / -a[0]) ** (mpf(p) / (1 - mpf(p)))
            if a[0] < 0 else mp.inf,
        )
        for p in (0.25, 0.5)
    },
    "absolute value": (
        quadratics.many(quadratics.ABS, M), 1, PLAIN, lambda i, s: abs(s[0]), lambda i, a, w: inside(abs(a[0]) <= w),
    ),
    "positive part": (
        quadratics.many(quadratics.POS, M), 1, PLAIN,
        lambda i, s: max(s[0], mpf(0)), lambda i, a, w: inside(0 <= a[0] <= w),
    ),
    "square": (
        quadratics.many(quadratics.SQUARE, M), 1, PLAIN, lambda i, s: s[0] ** 2, lambda i, a, w: a[0] ** 2 / (4 * w),
    ),
    "Huber": (
        HUBER, 1, PLAIN,
        lambda i, s: s[0] ** 2 if abs(s[0]) <= mpf(0.7) else 2 * mpf(0.7) * abs(s[0]) - mpf(0.7) ** 2,
        lambda i, a, w: a[0] ** 2 / (4 * w) if abs(a[0]) <= 2 * mpf(0.7) * w else mp.inf,
    ),
    "length": (
        norms.Radial(quadratics.many(quadratics.POS, M)), 3, PLAIN,
        lambda i, s: lengths(s, 2), lambda i, a, w: inside(lengths(a, 2) <= w),
    ),
    "length beyond": (
        norms.Radial(insensitive(0.5)), 3, PLAIN,
        lambda i, s: max(lengths(s, 2) - mpf(0.5), mpf(0)),
        lambda i, a, w: mpf(0.5) * lengths(a, 2) if lengths(a, 2) <= w else mp.inf,
    ),
    "squared length": (
        norms.Radial(SQUARE_OF_LENGTH), 2, PLAIN,
        lambda i, s: lengths(s, 2) ** 2, lambda i, a, w: lengths(a, 2) ** 2 / (4 * w),
    ),
    **{
        f"{p}-norm": (
            norms.RowNorm(p), 4, PLAIN, lambda i, s, p=p: lengths(s, p),
            lambda i, a, w, p=p: inside(lengths(a, norms.dual_exponent(p) if p != 1.5 else 3) <= w),
        )
        for p in (1.0, 1.5, 2.0, 3.0, np.inf)
    },
    **{
        f"ball of order {p}": (
            bounds.Ball(p, RADII), 4, lambda s, p=p: s * (RADII / norms.length_of(s, p) / 1.5)[:, None],
            lambda i, s, p=p: inside(lengths(s, p) <= mpf(RADII[i]) * (1 + NEARLY)),
            lambda i, a, w, p=p: mpf(RADII[i]) * lengths(a, norms.dual_exponent(p) if p != 1.5 else 3),
        )
        for p in (1.0, 1.5, 2.0, 3.0, np.inf)
    },
    "below a norm": (
        bounds.BelowNorm(RADII), 4,
        lambda s: np.column_stack([-1.1 * RADII * np.linalg.norm(s[:, 1:], axis=1), s[:, 1:]]),
        lambda i, s: inside(s[0] + mpf(RADII[i]) * lengths(s[1:], 2) <= NEARLY * lengths(s, 2)),
        lambda i, a, w: inside(lengths(a[1:], 2) <= mpf(RADII[i]) * a[0]),
    ),
    "interval": (
        bounds.Between(-RADII, 2 * RADII), 1, lambda s: np.clip(s, -RADII[:, None], RADII[:, None]),
        lambda i, s: inside(-RADII[i] * (1 + NEARLY) <= s[0] <= 2 * RADII[i] * (1 + NEARLY)),
        lambda i, a, w: mpf(RADII[i]) * max(2 * a[0], -a[0]),
    ),
    "maximum": (
        extremes.Largest(), 4, PLAIN,
        lambda i, s: max(*s, mpf(0)), lambda i, a, w: inside(min(a) >= 0 and sum(a) <= w),
    ),
    **{
        f"{k} largest": (
            extremes.SumOfLargest(k), 5, PLAIN, lambda i, s, k=k: largest_of(s, k),
            lambda i, a, w, k=k: capped(a, w, mpf(k)),
        )
        for k in (1.0, 2.0, 2.5)
    },
    **{
        f"sorted, {name}": (
            by_size.Sorted(w), 4, PLAIN,
            lambda i, s, w=w: sum(mpf(x) * y for x, y in zip(w, sorted([*s, mpf(0)], reverse=True), strict=True)),
            lambda i, a, c, w=w: inside(majorized([*a, c * sum(map(mpf, w)) - sum(a)], [c * mpf(x) for x in w])),
        )
        for name, w in {"rising": (3.0, 2.0, 1.0, 0.5, 0.25), "of any sign": (1.0, 1.0, 0.0, -0.5, -2.0)}.items()
    },
    **{
        f"sorted moduli, {name}": (
            by_size.SortedSizes(w), 4, PLAIN,
            lambda i, s, w=w: sum(mpf(x) * y for x, y in zip(w, sorted(map(abs, s), reverse=True), strict=True)),
            lambda i, a, c, w=w: inside(majorized([abs(x) for x in a], [c * mpf(x) for x in w])),
        )
        for name, w in {"rising": (3.0, 2.0, 1.0, 0.5), "with zeros": (1.0, 1.0, 0.0, 0.0)}.items()
    },
    "sorted positive parts": (
        by_size.SortedSizes((3.0, 2.0, 1.0, 0.0), positive=True), 4, PLAIN,
        lambda i, s: sum(k * y for k, y in enumerate(sorted(max(x, mpf(0)) for x in s))),
        lambda i, a, c: inside(min(a) >= 0 and majorized(a, [c * x for x in (3, 2, 1, 0)])),
    ),
    "log-sum-exp": (
        extremes.RowLogSumExp(), 4, PLAIN,
        lambda i, s: mp.log(1 + sum(mp.exp(x) for x in s)), lambda i, a, w: total(a, w),
    ),
    "squares over linear": (
        ratios.SquaresOverLinear(), 3, lambda s: np.hstack([s[:, :-1], positive(s[:, -1:])]),
        lambda i, s: lengths(s[:-1], 2) ** 2 / s[-1] if s[-1] > 0 else inside(lengths(s, 2) == 0),
        lambda i, a, w: inside(a[-1] <= -(lengths(a[:-1], 2) ** 2) / (4 * w)),
    ),
    "second-order cone": (
        norms.SecondOrderCone(), 4, within_cone,
        lambda i, s: inside(s[0] >= lengths(s[1:], 2) * (1 - NEARLY)),
        lambda i, a, w: inside(-a[0] >= lengths(a[1:], 2)),
    ),
    "semidefinite cone": (
        spectral.Semidefinite(3), 6, semidefinite,
        lambda i, s: inside(least_eigenvalue(s) >= -NEARLY * lengths(s, 2)),
        lambda i, a, w: inside(least_eigenvalue([-x for x in a]) >= 0),
    ),
    "nuclear norm": (
        spectral.Schatten((3, 2), 1.0), 6, PLAIN,
        lambda i, s: sum(singular(s, (3, 2))), lambda i, a, w: inside(max(singular(a, (3, 2))) <= w),
    ),
    "spectral norm": (
        spectral.Schatten((2, 3), np.inf), 6, PLAIN,
        lambda i, s: max(singular(s, (2, 3))), lambda i, a, w: inside(sum(singular(a, (2, 3))) <= w),
    ),
}  # fmt: skip


@pytest.mark.parametrize("size", [1.0, 1e-4, 30.0])
@pytest.mark.parametrize("name", ROWS)
def test_row(name, size):
    family, k, shaped, formula, conjugate = ROWS[name]
    check_function(family, (formula, conjugate), shaped(size * RNG.normal(size=(M, k))), RNG)
