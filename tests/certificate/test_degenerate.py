"""Degenerate fits: separable, repeated and equal rows, opposite labels, one class, weights of zero, λ from 1e3 to 1e-4.

Each is certified to 1e-6, relative to what θ improves, or, where θ improves nothing, to 1e-9 of a loss. Logistic losses
that free columns alone make as small as one likes have no minimizer, and are said to have none.
"""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko

POINTS = np.random.default_rng(0).normal(size=(40, 2))
NOISY = np.sign(POINTS[:, 0] + 0.5 * np.random.default_rng(1).normal(size=40))
LINE = np.linspace(-1, 1, 30)
GAUSSIAN = ko.kernels.Gaussian(sigma=1.0)
DATA = {
    "noisy": (POINTS, NOISY, GAUSSIAN),
    "separable": (POINTS, np.sign(POINTS[:, 0]), GAUSSIAN),
    "repeated, opposite labels": (np.tile(POINTS[:20], (2, 1)), np.r_[NOISY[:20], -NOISY[:20]], GAUSSIAN),
    "one class": (POINTS, np.ones(40), GAUSSIAN),
    "one point": (np.tile([[1.0, -0.5]], (20, 1)), NOISY[:20], GAUSSIAN),
    "rank one": (np.outer(LINE, [1.0, 2.0]), np.sign(LINE + 0.01), ko.kernels.Linear()),
    "far apart": (1e3 * POINTS, NOISY, GAUSSIAN),
}
LOSSES = {
    "hinge": ko.losses.hinge,
    "absolute": ko.losses.absolute_error,
    "epsilon-insensitive": lambda y, f: ko.losses.epsilon_insensitive(y, f, 0.3),
    "pinball": lambda y, f: ko.losses.pinball(y, f, 0.2),
    "squared hinge": ko.losses.squared_hinge,
    "logistic": ko.losses.log_loss,
}


@pytest.mark.slow
@pytest.mark.one_row
@pytest.mark.parametrize("free", [0, 1, 3], ids=lambda free: f"{free} free")
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", DATA)
def test_degenerate(name, loss, free):
    X, y, kernel = DATA[name]
    theta, lam = ko.Theta(kernel), cp.Parameter(nonneg=True)
    f = theta(X) + np.column_stack([np.ones(len(y)), X])[:, :free] @ cp.Variable(free) if free else theta(X)
    for weights in (np.ones(len(y)), (np.arange(len(y)) % 3 > 0).astype(float)):
        problem = ko.Problem(cp.Minimize(weights @ LOSSES[loss](y, f) + lam * ko.sum_squares(theta)))
        for lam.value in (1e3, 0.1, 1e-4):
            problem.solve()
            if problem.status == "not_attained":
                assert loss == "logistic"
                assert free
                continue
            certificate = problem.certificate
            assert problem.status == "optimal" or certificate.absolute_gap <= 1e-9, (lam.value, str(certificate))
            assert certificate.relative_gap <= 1e-6 or certificate.absolute_gap <= 1e-9


def test_a_gap_without_a_unit_says_why():
    """For a constant target the optimum is that of θ = 0, to rounding."""
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    X = np.random.default_rng(0).normal(size=(40, 2))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(np.full(40, 3.3) - theta(X) - b) + ko.sum_squares(theta)))
    problem.solve()
    assert (problem.status, problem.certificate.relative_gap) == ("optimal", np.inf)
    for text in (str(problem.certificate), problem.certificate._repr_html_(), str(problem.derivation())):
        assert "no relative one: no θ improves on θ = 0" in text
