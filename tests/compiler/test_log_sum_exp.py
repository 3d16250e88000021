"""Log-sum-exp over many rows, as exponentials of one number each and one more variable."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko

RNG = np.random.default_rng(1)
N = 30
X = RNG.normal(size=(N, 2))
Y = np.sign(X[:, 0] + 0.3 * RNG.normal(size=N))
Q = np.exp(-((X[:, None] - X[None]) ** 2).sum(2) / 2)
L = np.linalg.cholesky(Q + 1e-13 * np.eye(N))
AFTER = np.argsort(RNG.random(N))

OBJECTIVES = {
    "margins": lambda u, b: cp.log_sum_exp(-cp.multiply(Y, u + b)),
    "weight and shift": lambda u, b: 3 * cp.log_sum_exp(2 * u - np.arange(N) / N) - cp.sum(u) / 5 + cp.square(b),
    "two": lambda u, b: cp.log_sum_exp(u + b) + cp.log_sum_exp(-u[:12] - b),
    "beside losses": lambda u, b: cp.log_sum_exp(u + b) + cp.sum(cp.pos(1 - cp.multiply(Y, u + b))),
    "risk sets": lambda u, b: sum(cp.log_sum_exp(u[AFTER[: k + 1]]) - u[AFTER[k]] for k in range(N)) + cp.square(b),
    "of squares": lambda u, b: cp.log_sum_exp(cp.square(u + b - Y)),
}
PENALTIES = {"squared": (ko.sum_squares, cp.sum_squares), "norm": (ko.norm, cp.norm)}


@pytest.mark.slow
@pytest.mark.one_row
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_problems(name, penalty):
    ours, theirs = PENALTIES[penalty]
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    problem = ko.Problem(cp.Minimize(OBJECTIVES[name](theta(X), b) + 0.1 * ours(theta)), [b <= 0.5])
    problem.solve()
    w, c = cp.Variable(N), cp.Variable()
    bound = c <= 0.5
    explicit = cp.Problem(cp.Minimize(OBJECTIVES[name](L @ w, c) + 0.1 * theirs(w)), [bound])
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(explicit.solve(solver="CLARABEL"), rel=1e-6, abs=1e-7)
    assert problem.constraints[0].dual_value == pytest.approx(bound.dual_value, abs=1e-3)
    if name != "of squares":
        assert problem.solver_stats.solver_name in {"NEWTON", "INTERIOR_POINT"}


@pytest.mark.later
def test_a_log_sum_exp_in_a_constraint():
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    u, w = theta(X), cp.Variable(N)
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta) - cp.sum(u) / 5), [cp.log_sum_exp(u) <= 3.6])
    problem.solve()
    explicit = cp.Problem(cp.Minimize(cp.sum_squares(w) - cp.sum(L @ w) / 5), [cp.log_sum_exp(L @ w) <= 3.6])
    assert problem.status == "optimal" and problem.value == pytest.approx(explicit.solve(solver="CLARABEL"), rel=1e-5)


@pytest.mark.later
@pytest.mark.parametrize("max_rank", [None, 15])
def test_the_certificate_of_an_unsquared_norm_needs_no_other_solver(max_rank):
    """Slopes must add up to 1, so that they cannot be scaled down where ‖Aᵀν‖ exceeds what the norm costs."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(cp.log_sum_exp(-cp.multiply(Y, theta(X))) + 0.1 * ko.norm(theta)))
    problem.solve(max_rank=max_rank)
    assert {a.solver for a in problem.solver_stats.attempts} == {"NEWTON"}
    assert problem.certificate.scope == "full kernel" and not problem.certificate.assumptions
    assert problem.certificate.relative_gap < (1e-6 if max_rank is None else 1.0)
