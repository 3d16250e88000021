"""What the driver says of a problem that may have no optimum, step by step."""

import cvxpy as cp
import numpy as np
import pytest

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
