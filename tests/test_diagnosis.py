"""What the driver says of a problem that may have no optimum, step by step."""

import cvxpy as cp
import numpy as np
import pytest
from inside import point_of

import kernelopt as ko
from kernelopt import losses
from kernelopt.driver import diagnosis

X = np.random.default_rng(0).normal(size=(12, 2))
LABELS = np.where(X[:, 0] > 0, 1.0, -1.0)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (lambda f: cp.sum(losses.log_loss(LABELS, f)), True),
        (lambda f: cp.sum(losses.log_loss(np.ones(12), f)), False),  # falls for ever as y grows
        # falls for ever as y falls
        (lambda f: cp.sum(cp.log_sum_exp(cp.reshape(f, (4, 3), order="C"), axis=1)), False),
    ],
)
def test_whether_a_sum_grows_both_ways(loss, expected):
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    problem = ko.Problem(cp.Minimize(loss(theta(X) + b) + ko.sum_squares(theta)))
    assert diagnosis._grows(problem._outer().split) is expected


@pytest.mark.parametrize(("strength", "expected"), [(1e-1, False), (1e-9, True)])
def test_whether_exponentials_have_faded(strength, expected):
    """Only then is a direction looked for along which they fall for ever, which takes a solve of its own."""
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    loss = cp.sum(losses.log_loss(LABELS, theta(X) + b))
    problem = ko.Problem(cp.Minimize(loss + strength * ko.sum_squares(theta)))
    problem.solve()
    assert diagnosis._has_faded(point_of(problem), problem._outer().split) is expected
