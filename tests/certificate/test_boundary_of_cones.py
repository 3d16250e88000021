"""Multipliers on the boundary of a cone, beside a free intercept: proven from the first answer, without an assumption.

The truth is the same problem in an explicit θ, by cvxpy.
"""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko

NORMS = {
    "2": cp.norm,
    "1.5": lambda r: cp.pnorm(r, 1.5),
    "3": lambda r: cp.pnorm(r, 3),
    "of norms": lambda r: cp.norm(cp.hstack([cp.norm(r[::2]), 2 * cp.norm(r[1::2])])),
    "with a square": lambda r: cp.square(1 + cp.norm(r)),
    "log-sum-exp": lambda r: cp.log_sum_exp(cp.hstack([r, -r])),
}


def data(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n)


def solved(norm, n, seed, penalty, size=1.0):
    """The problem, and its optimum in an explicit θ."""
    X, y = data(n, seed)
    theta, b = ko.Theta(ko.kernels.Linear()), cp.Variable()
    problem = ko.Problem(cp.Minimize(norm(size * y - theta(X) - b) + penalty(theta)))
    problem.solve()
    return problem, by_hand(norm, X, y, penalty)


def by_hand(norm, X, y, penalty):
    w, c = cp.Variable(3), cp.Variable()
    length = cp.norm(w) if penalty is ko.norm else cp.sum_squares(w)
    return cp.Problem(cp.Minimize(norm(y - X @ w - c) + length)).solve(solver="CLARABEL")


@pytest.mark.one_row
@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")  # of the truth
@pytest.mark.parametrize("penalty", [ko.norm, ko.sum_squares])
@pytest.mark.parametrize(
    ("name", "n"), [*((name, 15) for name in NORMS), ("1.5", 2), ("2", 1), ("with a square", 1), ("log-sum-exp", 1)]
)
def test_a_norm_of_residuals_with_an_intercept(name, n, penalty):
    problem, truth = solved(NORMS[name], n, 0, penalty)
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(truth, rel=1e-5, abs=1e-6)
    assert problem.certificate.assumptions == ()
    assert problem.certificate.lower <= truth + 1e-6 * (1 + abs(truth))


@pytest.mark.slow
@pytest.mark.parametrize("size", [1e-6, 1e5])
@pytest.mark.parametrize("name", ["2", "1.5"])
def test_targets_in_other_units(name, size):
    """The problem is homogeneous: its optimum is that of size 1, times the size."""
    problem, truth = solved(NORMS[name], 15, 1, ko.norm, size)
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(size * truth, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "seed"), [(500, 2), (1000, 1)])
def test_many_residuals_in_one_norm(n, seed):
    """The norm is flat along its residual: a weak hold on predictions left gaps of 1e-5."""
    problem, truth = solved(cp.norm, n, seed, ko.sum_squares)
    assert problem.status == "optimal"
    assert problem.certificate.relative_gap < 1e-7
    assert problem.value == pytest.approx(truth, rel=1e-7)
    assert len(problem.solver_stats.attempts) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("n", "seed"), [(10, 0), (20, 0), (20, 1)])
def test_powers_of_residuals(n, seed):
    """Power cones at whose boundary auxiliary columns did not vanish: an assumption about them was left."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n)
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    problem = ko.Problem(cp.Minimize(cp.pnorm(y - theta(X) - b, 1.5) + 0.1 * ko.sum_squares(theta)))
    problem.solve()
    B, w, c = np.linalg.cholesky(ko.kernels.Gaussian(sigma=1.0)(X)), cp.Variable(n), cp.Variable()
    truth = cp.Problem(cp.Minimize(cp.pnorm(y - B @ w - c, 1.5) + 0.1 * cp.sum_squares(w))).solve(solver="CLARABEL")
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(truth, rel=1e-6)
    assert problem.certificate.assumptions == ()
    assert len(problem.solver_stats.attempts) == 1


@pytest.mark.later
def test_a_maximize():
    X, y = data(15, 3)
    theta, b = ko.Theta(ko.kernels.Linear()), cp.Variable()
    problem = ko.Problem(cp.Maximize(-cp.pnorm(y - theta(X) - b, 1.5) - 0.1 * ko.sum_squares(theta)))
    problem.solve()
    w, c = cp.Variable(3), cp.Variable()
    truth = cp.Problem(cp.Maximize(-cp.pnorm(y - X @ w - c, 1.5) - 0.1 * cp.sum_squares(w))).solve(solver="CLARABEL")
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(truth, rel=1e-6)
    assert problem.certificate.assumptions == ()


@pytest.mark.later
def test_repeated_rows():
    X, y = data(8, 4)
    X, y = np.repeat(X, 2, axis=0), np.repeat(y, 2)
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    problem = ko.Problem(cp.Minimize(cp.pnorm(y - theta(X) - b, 1.5) + 0.1 * ko.sum_squares(theta)))
    problem.solve()
    assert problem.status == "optimal"
    assert problem.certificate.assumptions == ()


BOUNDS = {
    "a bound": (lambda s: [s >= 0, s <= 100], lambda s: 0.0),
    "a norm": (lambda s: [s >= 0, cp.norm(s) <= 100], lambda s: 0.0),
    "a sum": (lambda s: [s >= 0, cp.sum(s) <= 100], lambda s: 0.0),
    "a square": (lambda s: [s >= 0], lambda s: 1e-3 * cp.sum_squares(s)),
    "a price": (lambda s: [s >= 0], lambda s: 1e-2 * cp.sum(s)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOUNDS)
def test_what_bounds_a_variable_replaces_an_assumption(name):
    """‖r‖²/(1 + s) falls as s grows: a stated bound, or a term that grows in s, is all that a proof needs."""
    bounds, price = BOUNDS[name]
    X, y = data(6, 0)
    theta, b, s = ko.Theta(ko.kernels.Linear()), cp.Variable(name="b"), cp.Variable(1, name="s")
    loss = cp.quad_over_lin(y - theta(X) - b, 1 + s[0])
    problem = ko.Problem(cp.Minimize(loss + 0.1 * ko.norm(theta) + price(s)), bounds(s))
    problem.solve()
    w, c = cp.Variable(3), cp.Variable()
    by_hand = cp.quad_over_lin(y - X @ w - c, 1 + s[0]) + 0.1 * cp.norm(w) + price(s)
    truth = cp.Problem(cp.Minimize(by_hand), bounds(s)).solve(solver="CLARABEL")
    assert problem.status == "optimal"
    assert problem.certificate.assumptions == ()
    assert problem.value == pytest.approx(truth, rel=1e-5)


@pytest.mark.slow
def test_the_bounds_of_an_attribute():
    X, y = data(6, 0)
    theta, b = ko.Theta(ko.kernels.Linear()), cp.Variable()
    s = cp.Variable(bounds=[0, 100])
    problem = ko.Problem(cp.Minimize(cp.quad_over_lin(y - theta(X) - b, 1 + s) + 0.1 * ko.norm(theta)))
    problem.solve()
    assert problem.status == "optimal"
    assert s.value == pytest.approx(100, rel=1e-3)
