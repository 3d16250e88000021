"""A row of the table of functions against 50-digit arithmetic."""

import mpmath as mp
import numpy as np
from mpmath import mpf

from kernelopt.pieces.norms import Radial

DIGITS = 50
# What the value of h, and the gap of the Fenchel-Young inequality at a prox, may be off by, relative to their terms.
CLOSE = 1e-11


def check_function(family, formulas, s, rng):
    """Check h, (wh)*, their bounds, the domain, prox and its Jacobian at points s (m, k).

    formulas : functions of (i, s) and (i, a, w) for hᵢ and (whᵢ)* in mpmath's numbers, lists for rows
    """
    formula, conjugate = formulas
    with mp.workdps(DIGITS):
        w = np.exp(rng.normal(size=len(s)))
        _values(family, formula, s, rng)
        inside = _conjugates_at_slopes(family, formula, conjugate, s, w)
        anywhere = 2 * rng.normal(size=s.shape)
        _domain(family, conjugate, anywhere, w)
        nearest = family.nearest(anywhere, w)
        assert np.isfinite(_at(family, nearest, w).value).all(), "nearest is in the domain"
        _boxes(family, conjugate, np.vstack([inside, nearest]), np.concatenate([w, w]), rng)
        _prox(family, formulas, 3 * rng.normal(size=s.shape), w, rng)
        _near(family, s, rng)


def _exact(function, i, x, *more):
    return mpf(function(i, [mpf(float(v)) for v in x], *(mpf(float(v)) for v in more)))


def _at(family, a, w):
    return family.conjugate(a, np.zeros_like(a), w, w)


def _values(family, formula, s, rng):
    m, value = len(s), family.value(s)
    above = family.highest(s, np.zeros_like(s))
    for i in range(m):
        exact = _exact(formula, i, s[i])
        assert mp.isinf(exact) == np.isinf(value[i])
        if not mp.isinf(exact):
            size = 1 + abs(exact) + sum(abs(float(x)) for x in s[i]) ** 2
            assert mpf(above[i]) >= exact, "highest is above h"
            assert abs(mpf(value[i]) - exact) <= CLOSE * size and mpf(above[i]) - exact <= CLOSE * size
    e = 0.3 * np.abs(s) * rng.random(s.shape)
    most = family.highest(s, e)
    for t in (s - e, s + e, s + e * rng.uniform(-1, 1, size=s.shape)):
        assert all(mpf(most[i]) >= _exact(formula, i, t[i]) for i in range(m)), "highest holds in the box"


def _near(family, s, rng):
    """Slopes at points nearby are between the ends, and their sums within the limits; a support function is
    homogeneous. Lengths are told along their direction."""
    near = np.exp(rng.normal(size=len(s)))
    for at in (s, np.round(s)):  # where entries tie, too
        low, high = family.slopes_near(at, near)
        least, most = family.sums_near(at, near)
        for _ in range(5):
            share = rng.uniform(-1, 1, size=(len(at), 1 if isinstance(family, Radial) else at.shape[1]))
            direction = at / np.maximum(np.linalg.norm(at, axis=1, keepdims=True), 1e-300)
            step = direction * share if isinstance(family, Radial) else share / (2 * np.sqrt(at.shape[1]))
            moved = at + near[:, None] * step
            slope, room = family.slope(moved), CLOSE * (1 + np.abs(low) + np.abs(high))
            finite = np.isfinite(family.value(at - near[:, None])) & np.isfinite(family.value(at + near[:, None]))
            bent = np.isfinite(low) & np.isfinite(high) & (low < high) & finite[:, None]
            assert np.all(((slope >= low - room) & (slope <= high + room))[bent]), "slopes nearby are between the ends"
            total, off = slope.sum(axis=1), CLOSE * np.abs(slope).sum(axis=1)
            assert np.all(((total >= least - off) & (total <= most + off))[finite]), "their sums are within the limits"
    if family.is_support:
        np.testing.assert_allclose(family.value(2 * s), 2 * family.value(s), rtol=CLOSE)


def _conjugates_at_slopes(family, formula, conjugate, s, w):
    """h*(a) = a·s − h(s) at a ∈ ∂h(s), and its bound is between that and a rounding more."""
    a = family.nearest(w[:, None] * family.slope(s), w)
    value, rounding = _at(family, a, w)
    for i in range(len(s)):
        exact = _exact(conjugate, i, a[i], w[i])
        reached = sum(mpf(float(x)) * mpf(float(y)) for x, y in zip(a[i], s[i], strict=True))
        reached -= mpf(float(w[i])) * _exact(formula, i, s[i])
        size = 1 + abs(reached) + abs(exact) + sum(abs(x * y) for x, y in zip(a[i], s[i], strict=True))
        assert exact >= reached - mpf(10) ** -40 * size, "Fenchel-Young inequality: the formulas fit together"
        assert exact - reached <= CLOSE * size, "Fenchel-Young equality: the slope is one"
        assert exact <= mpf(value[i]) + mpf(rounding[i]), f"a bound at {a[i]}: {value[i]} + {rounding[i]}, {exact}"
        assert mpf(value[i]) + mpf(rounding[i]) - exact <= CLOSE * size
    return a


def _domain(family, conjugate, a, w):
    """What is outside counts as outside, and what is well inside as inside."""
    found, shorter = _at(family, a, w).value, _at(family, family.nearest(a, w), w).value
    for i in range(len(a)):
        assert not mp.isinf(_exact(conjugate, i, a[i], w[i])) or np.isinf(found[i]), f"{a[i]} is outside"
        assert np.isfinite(shorter[i])


def _boxes(family, conjugate, a, w, rng):
    """The bound of a box is above what its points have."""
    m = len(w) // 2
    r, off = 1e-9 * (1 + np.abs(a)) * rng.random(a.shape), 1e-9 * w * rng.random(len(w))
    for radius, spread in ((r, off), (r, 0 * off), (0 * r, off)):
        for half in (slice(0, m), slice(m, None)):
            b, t, low, high = a[half], radius[half], (w - spread)[half], (w + spread)[half]
            value, rounding = family.conjugate(b, t, low, high)
            for sign in (-1, 1, rng.uniform(-1, 1, size=b.shape)):
                for weight in (low, high):
                    for i in np.flatnonzero(np.isfinite(value)):
                        exact = _exact(conjugate, i, (b + sign * t)[i], weight[i])
                        assert mpf(value[i]) + mpf(rounding[i]) >= exact


def _prox(family, formulas, z, w, rng):
    """z − a = τx with a ∈ ∂(wh)(x), so that (wh)*(a) + wh(x) = a·x; the Jacobian by differences."""
    (formula, conjugate), tau = formulas, np.exp(rng.normal(size=len(z)))
    a = family.prox(z, tau, w)
    b = family.nearest(a, w)
    assert np.all(np.abs(b - a) <= CLOSE * (1 + np.abs(a)))
    x = (z - a) / tau[:, None]
    for i in range(len(z)):
        gap = _exact(conjugate, i, b[i], w[i]) + mpf(float(w[i])) * _nearby(formula, i, x[i])
        gap -= sum(mpf(float(p)) * mpf(float(q)) for p, q in zip(b[i], x[i], strict=True))
        assert gap <= CLOSE * (1 + abs(float(w[i])) * (1 + float(np.abs(x[i]).sum()) ** 2)), f"prox at {z[i]}: {gap}"
    J, direction, h = family.prox_slope(z, tau, w), rng.normal(size=z.shape), 1e-6
    ahead, behind = (family.prox(z + sign * h * direction, tau, w) for sign in (1, -1))
    assert np.allclose((ahead - behind) / (2 * h), J.dot(direction), rtol=1e-5, atol=1e-6)


def _nearby(formula, i, x):
    """h at x, or next to it where rounding moved x out of the domain."""
    exact = _exact(formula, i, x)
    return exact if not mp.isinf(exact) else _exact(formula, i, np.abs(x))
