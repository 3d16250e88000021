"""Which engine finds the optimum at θ = 0."""

import cvxpy as cp
import numpy as np
import pytest
from inside import reduction_of

import kernelopt as ko
from kernelopt import losses
from kernelopt.solvers import engines

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, 2)), RNG.normal(size=30)
LABELS = np.sign(Y)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (lambda f: cp.sum(losses.hinge(LABELS, f)), "INTERIOR_POINT"),
        (lambda f: cp.sum(losses.log_loss(LABELS, f)), "NEWTON"),
    ],
)
def test_engines(monkeypatch, loss, expected):
    class Noted(dict):
        def __getitem__(self, name):
            asked.append(name)
            return super().__getitem__(name)

    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    problem = ko.Problem(cp.Minimize(loss(theta(X) + b) + ko.sum_squares(theta)))
    problem.solve()
    asked = []
    monkeypatch.setattr(engines, "ENGINES", Noted(engines.ENGINES))
    c = cp.Variable()
    at_zero = cp.Problem(cp.Minimize(loss(c * np.ones(30)))).solve(solver="CLARABEL")
    assert engines.value_at_zero(reduction_of(problem), problem._outer()) == pytest.approx(at_zero, rel=1e-6)
    assert set(asked) == {expected}
