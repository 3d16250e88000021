"""‖Aᵀν‖² for rows that combine points, where it nearly cancels: against exact rationals."""

from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

import kernelopt as ko

RNG = np.random.default_rng(3)
X = RNG.normal(size=(300, 4)) * [1.0, 30.0, 2.0, 1.0]
TARGET = X[:40] + 0.2


def statement(penalty):
    """Entropy balancing of means; its dual has a row that averages points."""
    theta = ko.Theta(ko.kernels.Linear())
    mean = cp.sum(ko.average(TARGET, theta.kernel) @ theta)
    return theta, ko.Problem(cp.Minimize(cp.log_sum_exp(theta(X)) - mean + penalty(theta)))


def test_nearly_no_penalty():
    """Kernel values of rows would round to 1e-13 of their size, and their sum is far below that."""
    theta, problem = statement(lambda t: 1e-8 * ko.sum_squares(t))
    problem.solve()
    assert problem.status == "optimal" and problem.certificate.relative_gap <= 1e-7
    centred = X - TARGET.mean(axis=0)
    scale = centred.std(axis=0)
    dual = minimize(
        lambda v: logsumexp(centred @ (v / scale)),
        np.zeros(4),
        jac=lambda v: softmax(centred @ (v / scale)) @ centred / scale,
        method="BFGS",
        options={"gtol": 1e-10},
    )
    np.testing.assert_allclose(softmax(theta(X).value), softmax(centred @ (dual.x / scale)), rtol=1e-4, atol=1e-9)


def test_lower_bound_in_rationals():
    """The certified lower bound is below the dual value at the weights that the answer gives, computed exactly."""
    theta, problem = statement(lambda t: 1e-6 * ko.norm(t))
    problem.solve()
    assert problem.certificate.relative_gap <= 1e-6
    w = softmax(theta(X).value)
    columns = [[Fraction(x) for x in column] for column in X.T]
    means = [sum(Fraction(x) for x in column) / len(TARGET) for column in TARGET.T]
    total = sum(Fraction(v) for v in w)
    residual = [
        sum(Fraction(v) / total * x for v, x in zip(w, c, strict=True)) - m for c, m in zip(columns, means, strict=True)
    ]
    assert float(sum(r * r for r in residual)) ** 0.5 == pytest.approx(1e-6, rel=1e-3)
    entropy = -np.sum(w * np.log(w))
    assert problem.certificate.lower <= entropy * (1 + 1e-9)
    assert entropy <= problem.certificate.upper * (1 + 1e-9)
