"""Piecewise quadratic functions: compositions, and their conjugates in exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

from kernelopt.pieces.quadratics import ABS, POS, SQUARE, Piecewise, huber, many, one

RNG = np.random.default_rng(0)
M = 30


def random_inner():
    """wg(s) + c of one of the basic functions, each row with other numbers."""
    basic = [ABS, SQUARE, POS, huber(float(np.exp(RNG.normal())))][RNG.integers(4)]
    return many(basic, M).times(np.exp(RNG.normal(size=M))).plus(-np.exp(RNG.normal(size=M)))


@pytest.mark.parametrize("trial", range(10))
def test_composition(trial):
    inner = random_inner()
    s = 3 * RNG.normal(size=(M, 1))
    found = POS.of_piecewise(inner)
    assert found.value(s) == pytest.approx(np.maximum(inner.value(s), 0), rel=1e-12, abs=1e-12)
    capped = huber(0.5).of_piecewise(found)
    if capped is not None:
        q = np.maximum(inner.value(s), 0)
        expected = np.where(q <= 0.5, q**2, 2 * 0.5 * q - 0.25)
        assert capped.value(s) == pytest.approx(expected, rel=1e-11, abs=1e-12)
        low, high = capped.slopes(s[:, 0])
        h = 1e-7
        difference = (capped.value(s + h) - capped.value(s - h)) / (2 * h)
        between = (low - 1e-5 <= difference) & (difference <= high + 1e-5)
        assert np.all(between | (np.abs(difference - low) < 1e-4 * (1 + np.abs(low))))


def test_a_square_of_a_square_has_no_composition():
    assert SQUARE.of_piecewise(SQUARE) is None


def exact(h, i, a, w):
    """(wh)*(a) as a fraction; None where it is ∞."""
    knots = [Fraction(float(x)) for x in h.knots[i] if np.isfinite(x)]
    best, a, w = None, Fraction(float(a)), Fraction(float(w))
    for k, row in enumerate(h.coefficients[i][: len(knots) + 1]):
        c0, c1, c2 = (Fraction(float(x)) for x in row)
        low, high = knots[k - 1] if k else None, knots[k] if k < len(knots) else None
        points, slope = [x for x in (low, high) if x is not None], a - w * c1
        if c2 > 0:
            q = slope / (w * c2)
            if (low is None or q >= low) and (high is None or q <= high):
                points.append(q)
        elif (high is None and slope > 0) or (low is None and slope < 0):
            return None
        for s in points or [Fraction(0)]:
            value = a * s - w * (c0 + c1 * s + c2 * s * s / 2)
            best = value if best is None else max(best, value)
    return best


@pytest.mark.parametrize("trial", range(10))
def test_conjugates_are_bounds(trial):
    """Also at ends of the domain, a rounding beyond them, and for compositions, whose stretches do not quite join."""
    inner = random_inner()
    h = POS.of_piecewise(inner) if RNG.random() < 0.7 else inner
    w = np.exp(3 * RNG.normal(size=M))
    high = h.ends(w)[1]
    a = w * RNG.uniform(-1.5, 1.5, size=M)
    chosen = RNG.random(M)
    a = np.where((chosen < 0.3) & np.isfinite(high), high, a)
    a = np.where(chosen < 0.1, np.nextafter(a, np.inf), a)
    zero = np.zeros((M, 1))
    value, rounding = h.conjugate(a[:, None], zero, w, w)
    for i in range(M):
        truth = exact(h, i, a[i], w[i])
        assert (truth is None) == np.isinf(value[i])
        if truth is not None:
            assert Fraction(float(value[i])) + Fraction(float(rounding[i])) >= truth
            farthest = np.abs(h.knots[i][np.isfinite(h.knots[i])]).max(initial=0)
            assert rounding[i] <= 1e-12 * (1 + abs(a[i]) + w[i]) * (1 + farthest) ** 2


def test_the_same_function_many_times():
    both = many(ABS, 3)
    assert isinstance(both, Piecewise) and len(both) == 3
    assert both.value(np.array([[-1.0], [0.0], [2.0]])).tolist() == [1.0, 0.0, 2.0]


def test_conjugates_whose_squares_underflow():
    """a²/(4w) for a² < 2⁻¹⁰⁷⁴: it was 0, and a lower bound too large."""
    square = one([], [[0.0, 0.0, 2.0]])
    for a, w in ((1e-170, 1e-300), (3e-168, 1e-290), (1e-160, 1e-20)):
        zero, weights = np.zeros((1, 1)), np.array([w])
        found = square.conjugate(np.array([[a]]), zero, weights, weights)
        true = Fraction(a) ** 2 / (4 * Fraction(w))
        assert Fraction(float(found.value[0])) + Fraction(float(found.rounding[0])) >= true
        assert float(found.value[0]) == pytest.approx(float(true), rel=1e-12)


def test_a_curvature_of_few_digits_bounds_nothing():
    square = one([], [[0.0, 0.0, 1e-20]])
    zero, weights = np.zeros((1, 1)), np.array([1e-300])
    assert square.conjugate(np.array([[1e-170]]), zero, weights, weights).value[0] == np.inf
