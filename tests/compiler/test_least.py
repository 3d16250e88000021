"""The lower bound of an expression by its terms: never above a value, and exact where terms are."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.compiler.least import least

u, F, t = cp.Variable(5, name="u"), cp.Variable((5, 3), name="F"), cp.Variable(nonneg=True, name="t")
b, b1 = cp.Variable(bounds=[-2, 3], name="b"), cp.Variable(1, bounds=[-2, 3], name="b1")
y, w = np.array([1.0, -1.0, 1.0, 2.0, 3.0]), cp.Parameter(5, nonneg=True, value=np.arange(5.0))
p = cp.Parameter(value=-2.0)
EXACT = [
    (lambda: cp.sum(ko.losses.log_loss(np.sign(y), u)) + 0.5 * cp.square(t), 0.0),
    (lambda: cp.sum(ko.losses.hinge(np.sign(y), u + b)), 0.0),
    (lambda: cp.sum(ko.losses.expectile(y, u, 0.3)) / 5, 0.0),
    (lambda: w @ ko.losses.huber(y, u) + cp.normNuc(F), 0.0),
    (lambda: cp.norm(y - u) + 3 + t, 3.0),
    (lambda: 2 * b + cp.norm1(u), -4.0),
    (lambda: cp.sum(cp.square(u) - y), -6.0),
    (lambda: -p * cp.square(t) - cp.multiply(w, -cp.abs(u)) @ np.ones(5), 0.0),
    (lambda: (cp.sum_squares(u) - 8) / 4 - (-(cp.pos(t) + 1)) * 2, 0.0),
    (lambda: cp.sum(ko.losses.pinball(y, u, 0.3)) + cp.sum(ko.losses.pinball(y, F, [0.1, 0.5, 0.9])), 0.0),
    (lambda: cp.sum(cp.maximum(u, -2, cp.exp(u) - 1)), -5.0),
    (lambda: 0 * cp.sum(u) + 1e-300 * t, 0.0),
    (lambda: cp.sum(cp.maximum(u + w[:, None] @ cp.reshape(t, (1,), order="F"), 1)), 5.0),  # (5, 1) @ (1,) is (5,)
    (lambda: cp.sum(np.ones((5, 1)) @ b1 + cp.square(u)), -10.0),
    (lambda: cp.sum(cp.reshape(cp.Constant(2.0), (1, 1), order="F") @ cp.square(F[:1])), 0.0),
]
OPEN = [
    lambda: cp.sum(ko.losses.poisson(np.abs(y), u)),
    lambda: cp.sum(u) + cp.sum_squares(u),
    lambda: p * cp.square(t),
    lambda: -cp.sum(cp.abs(u)) + 5,
    lambda: cp.log_sum_exp(u),
    lambda: cp.sum(cp.maximum(0.3 * u, 0.5 * u)),
]


@pytest.mark.parametrize(("stated", "expected"), EXACT)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_terms_with_bounds(stated, expected, sign):
    """sign·f, minimized for sign = 1; the mirror image of a problem that maximizes −f."""
    found = least(stated() if sign > 0 else -stated(), sign)
    assert found <= expected and found == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("stated", OPEN)
def test_terms_without_bounds(stated):
    assert least(stated()) == -np.inf


@pytest.mark.parametrize("stated", [s for s, _ in EXACT])
def test_no_value_is_below(stated):
    rng, expression = np.random.default_rng(0), stated()
    bound = least(expression)
    for _ in range(20):
        for variable in (u, F):
            variable.value = rng.normal(size=variable.shape) * 10.0 ** rng.integers(-9, 3)
        t.value, b.value = abs(rng.normal()) * 10.0 ** rng.integers(-9, 3), rng.uniform(-2, 3)
        b1.value = rng.uniform(-2, 3, 1)
        assert bound <= expression.value


def test_constants_are_rounded_down():
    """0.1 + 0.2 + … in doubles may be more than the sum of the doubles."""
    parts = [cp.square(t) + c for c in (0.1, 0.2, 0.3, 1e16, -1e16)]
    assert least(sum(parts[1:], parts[0])) <= 0.6
    assert least(cp.sum(cp.square(u) + np.array([1e16, 1.0, -1e16, 0.1, 0.2]))) == pytest.approx(1.3, rel=1e-15)
