"""Rays and directions that fade, in the rows as they were stated."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.compiler import feasibility
from kernelopt.compiler.conic_form import conic_form
from kernelopt.language.functions import Function
from kernelopt.solvers.rays import judged

X = np.arange(4.0)[:, None]


def stated(objective, constraints=lambda u, z: []):
    theta, z = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(name="z")
    problem = ko.Problem(cp.Minimize(objective(theta(X), z, theta)), constraints(theta(X), z))
    return problem, conic_form(problem.canonical_form())


def direction(data, u=(0.0, 0.0, 0.0, 0.0), z=0.0):
    x = np.zeros(len(data.c))
    x[np.concatenate(data.u)], x[data.y] = u, z
    return x


def test_a_row_is_judged_by_its_own_numbers():
    """|1e-11·z| ≤ 1 bounds z: along z the row grows by all of its size."""
    problem, data = stated(
        lambda u, z, theta: cp.sum_squares(u) - z + ko.sum_squares(theta),
        lambda u, z: [cp.norm(cp.hstack([1e-11 * z, u[0]])) <= 1],
    )
    assert judged(data, direction(data, z=1.0), np.zeros(len(data.c))) is None
    problem.solve()
    assert problem.status not in ("unbounded", "infeasible")


def test_a_small_slope_is_one():
    """minimize 1e-8·u₀ + |u₁ − 1|: u₀ → −∞ costs nothing, if predictions are what they are to better than 1e-8."""
    _, data = stated(lambda u, z, theta: 1e-8 * u[0] + cp.abs(u[1] - 1))
    x, noise = direction(data, -np.eye(4)[0]), np.zeros(len(data.c))
    noise[data.u[0]] = 1e-15
    prices = np.ones(len(data.b))
    assert judged(data, x, noise).falls(prices)
    assert not judged(data, x, 1e8 * noise).falls(prices)
    assert judged(data, direction(data, np.array([-1.0, 1e-3, 0, 0])), noise) is None


def test_a_quadratic_cone_hides_a_slope():
    """√(1 + z²) − z does not fall along z for ever; one that is wrong by ε may fall by √ε."""
    _, data = stated(lambda u, z, theta: cp.norm(cp.hstack([z, u[0]])) - z + ko.norm(theta))
    for slack in (0.0, 1e-9):
        x = direction(data, z=1.0)
        auxiliary = np.setdiff1d(np.arange(len(x)), np.r_[data.linked, data.y])
        x[auxiliary] = 1.0 - slack
        ray = judged(data, x, np.full(len(x), 1e-9))
        assert ray is None or not ray.falls(np.ones(len(data.b)))


def test_the_norm_of_a_difference_grows_as_that_of_theta():
    f0 = Function(ko.kernels.Gaussian(sigma=1.0), X, np.ones(4))
    problem, data = stated(lambda u, z, theta: cp.sum(u) + ko.sum_squares(theta - f0))
    question = feasibility.recession(problem.canonical_form(), data)
    assert [norm.view.shift for norm in question.norms] == [None]


@pytest.mark.parametrize("weight", [1e-6, 1e-10])
def test_a_small_penalty_outweighs_what_fades(weight):
    """log(1 + e^(−b − c)) fades along b + c, which costs; the optimum is attained far away."""
    theta, b, c = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(), cp.Variable()
    loss = cp.sum(ko.losses.log_loss(np.ones(4), theta(X) + b + c))
    problem = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta) + weight * (cp.abs(b) + cp.abs(c))))
    problem.solve()
    assert problem.status not in ("not_attained", "unbounded")
    free = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta) + weight * cp.abs(b - c)))
    free.solve()
    assert free.status == "not_attained"


def test_a_slow_fall_is_unbounded():
    """The kernel matrix is positive definite, so that u₀ → −∞ moves no other prediction."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    u, lam = theta(X), cp.Parameter(nonneg=True, value=0.0)
    fall = 1e-8 * u[0] + cp.abs(u[1] - 1) + cp.abs(u[2] - 1)
    for objective in (fall, fall + lam * ko.sum_squares(theta)):
        problem = ko.Problem(cp.Minimize(objective))
        assert problem.solve() == -np.inf
        assert problem.status == "unbounded"
    lam.value = 1e-9
    assert np.isfinite(problem.solve())
    bounded = ko.Problem(cp.Minimize(fall), [u[0] >= -5])
    bounded.solve()
    assert bounded.status != "unbounded"
