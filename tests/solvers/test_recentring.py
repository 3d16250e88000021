"""λ‖θ − f₀‖² by our own solvers, which find θ − f₀."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko

RNG = np.random.default_rng(0)
KERNEL = ko.kernels.Gaussian(sigma=1.5)
X = np.random.default_rng(1).normal(size=(60, 2))
Y = np.sign(X[:, 0] + 0.5 * np.random.default_rng(2).normal(size=60))
NEAR = ko.Function(KERNEL, X[:3], np.array([1.0, -1.0, 0.5]))
AWAY = ko.Function(KERNEL, X[:3] + 4.0, np.array([1.0, -1.0, 0.5]))  # not in the span of the data

LOSSES = {
    "logistic": lambda f: cp.sum(cp.logistic(-cp.multiply(Y, f))),
    "hinge": lambda f: cp.sum(cp.pos(1 - cp.multiply(Y, f))),
    "squares": lambda f: cp.sum_squares(Y - f),
    "powers": lambda f: cp.sum(cp.power(cp.abs(Y - f), 3)),
    "entropies": lambda f: -cp.sum(cp.entr(3 + f)),
    "log-sum-exp": lambda f: 10 * cp.log_sum_exp(-cp.multiply(Y, f)),
    "own loss": lambda f: cp.sum(ko.losses.poisson(np.round(1 + Y), f)),
}


def checked(problem, solver="CLARABEL"):
    """The optimum as the reference finds it; by one of our own solvers."""
    value = problem.solve()
    assert problem.status == "optimal"
    assert problem.verify().passed
    assert problem.solver_stats.solver_name not in cp.installed_solvers()
    (theta, *_), rows = problem.thetas(), X[:7] + 0.1
    predictions = theta.value(rows)
    assert problem.solve(solver=solver, warm_start=False) == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(predictions, theta.value(rows), atol=2e-3)


@pytest.mark.later
@pytest.mark.one_row
@pytest.mark.parametrize("f0", [NEAR, AWAY], ids=["near", "away"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses(name, f0):
    theta, b = ko.Theta(KERNEL), cp.Variable()
    f = theta(X) + b if name in ("logistic", "hinge") else theta(X)
    checked(ko.Problem(cp.Minimize(LOSSES[name](f) + 0.3 * ko.sum_squares(theta - f0))))


@pytest.mark.later
def test_a_large_penalty_leaves_f0():
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(LOSSES["logistic"](theta(X)) + 1e7 * ko.sum_squares(theta - AWAY)))
    problem.solve()
    np.testing.assert_allclose(theta.value(X), AWAY(X), atol=1e-5)


@pytest.mark.slow
def test_constraints_and_their_multipliers():
    theta = ko.Theta(KERNEL)
    f = theta(X)
    constraints = [f[:10] >= -0.2, cp.sum(f) == 1]
    problem = ko.Problem(cp.Minimize(LOSSES["hinge"](f) + 0.3 * ko.sum_squares(theta - NEAR)), constraints)
    checked(problem)
    reference = [c.dual_value for c in constraints]
    problem.solve(warm_start=False)
    for constraint, expected in zip(constraints, reference, strict=True):
        np.testing.assert_allclose(constraint.dual_value, expected, atol=1e-4)


@pytest.mark.later
def test_several_outputs():
    coefficients = np.random.default_rng(3).normal(size=(3, 2))
    f0 = ko.Function(KERNEL, X[:3], coefficients)
    theta = ko.Theta(KERNEL, outputs=2)
    targets = np.column_stack([np.sin(X[:, 0]), Y])
    checked(ko.Problem(cp.Minimize(cp.sum(cp.huber(theta(X) - targets)) + 0.3 * ko.sum_squares(theta - f0))))


@pytest.mark.slow
def test_two_functions_of_which_one_is_shifted():
    near, other = ko.Theta(KERNEL), ko.Theta(ko.kernels.Gaussian(sigma=0.5))
    loss = cp.sum(cp.abs(near(X) + other(X) - Y))
    checked(ko.Problem(cp.Minimize(loss + 0.3 * ko.sum_squares(near - NEAR) + ko.sum_squares(other))))


@pytest.mark.slow
def test_a_path():
    """Warm starts are those of θ − f₀."""
    theta, lam = ko.Theta(KERNEL), cp.Parameter(nonneg=True, name="lam")
    problem = ko.Problem(cp.Minimize(LOSSES["hinge"](theta(X)) + lam * ko.sum_squares(theta - AWAY)))
    table = ko.path(problem, lam, [1.0, 0.5, 0.2])
    for value, objective in zip(table["lam"], table["objective"], strict=True):
        lam.value = value
        assert problem.solve(solver="CLARABEL", warm_start=False) == pytest.approx(objective, rel=1e-5)


@pytest.mark.later
def test_a_coarse_factor():
    """The columns of B hold part of f₀ only; constraints and bounds are those of the stated problem."""
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(LOSSES["logistic"](theta(X)) + 0.3 * ko.sum_squares(theta - AWAY)))
    lower = problem.solve()
    coarse = problem.solve(max_rank=5, warm_start=False)
    assert coarse >= lower * (1 - 1e-6)
    assert problem.certificate.lower <= lower * (1 + 1e-6)


@pytest.mark.later
def test_not_squared():
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(LOSSES["logistic"](theta(X)) + ko.norm(theta - NEAR)))
    assert "not ‖θ − f₀‖ or a bound on it" in problem.solvers()["NEWTON"]
    problem.solve()
    assert problem.status == "optimal"


def test_leaving_one_out_says_that_it_needs_the_norm_of_theta():
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(LOSSES["squares"](theta(X)) + ko.sum_squares(theta - NEAR)))
    problem.solve()
    with pytest.raises(ko.errors.KernelOptError):
        ko.leave_one_out(problem)
    with pytest.raises(ko.errors.KernelOptError, match="the norm of θ itself"):
        ko.approximate_leave_one_out(problem, theta(X))
