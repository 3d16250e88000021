"""Few features without a norm of θ: our own engines take v among the free columns, beside plain cvxpy."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko

rng = np.random.default_rng(1)
X = rng.normal(size=(120, 4))
Y = X[:, 0] + np.sin(X[:, 1]) + 0.3 * rng.normal(size=120)
SIGNS = np.sign(X[:, 0] + rng.logistic(size=120))
LOSSES = {
    "squares": lambda f: cp.sum_squares(Y - f),
    "logistic": lambda f: cp.sum(ko.losses.log_loss(SIGNS, f)),
    "absolute": lambda f: cp.norm1(Y - f),
    "Huber": lambda f: cp.sum(ko.losses.huber(Y, f, 0.5)),
    "hinge": lambda f: cp.sum(ko.losses.hinge(SIGNS, f)),
    "pinball": lambda f: cp.sum(ko.losses.pinball(Y, f, 0.3)),
    "power": lambda f: cp.sum(cp.power(cp.abs(Y - f), 1.5)),
    "mixed": lambda f: cp.sum_squares(Y - f) + cp.sum(cp.exp(f[:40])) + cp.sum(cp.pos(f[40:])),
}
OURS = ("NEWTON", "INTERIOR_POINT")


def by_hand(loss, constrained, intercept):
    w, b = cp.Variable(4), cp.Variable()
    f = X @ w + (b if intercept else 0)
    problem = cp.Problem(cp.Minimize(loss(f)), [f[:20] <= 0.5] if constrained else [])
    return problem.solve(solver="CLARABEL", tol_gap_rel=1e-10, tol_gap_abs=1e-10, tol_feas=1e-10)


@pytest.mark.later
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_beside_plain_cvxpy(loss, constrained, intercept):
    theta, b = ko.Theta(ko.kernels.Linear()), cp.Variable()
    f = theta(X) + (b if intercept else 0)
    problem = ko.Problem(cp.Minimize(loss(f)), [f[:20] <= 0.5] if constrained else [])
    problem.solve()
    truth = by_hand(loss, constrained, intercept)
    found = problem.certificate
    assert problem.status == "optimal" and problem.value == pytest.approx(truth, rel=1e-7)
    assert found.scope == "full kernel" and found.lower - 1e-6 <= truth <= found.upper + 1e-6
    assert constrained or problem.solver_stats.solver_name in OURS


@pytest.mark.later
def test_outputs():
    """Columns of B for each output."""
    T, theta = np.column_stack([Y, np.abs(Y)]), ko.Theta(ko.kernels.Linear(), outputs=2)
    residuals = T - theta(X)
    problem = ko.Problem(cp.Minimize(cp.sum(cp.huber(residuals[:, 0])) + cp.norm1(residuals[:, 1])))
    problem.solve()
    W = cp.Variable((4, 2))
    loss = cp.sum(cp.huber(T[:, 0] - X @ W[:, 0])) + cp.norm1(T[:, 1] - X @ W[:, 1])
    truth = cp.Problem(cp.Minimize(loss)).solve(solver="CLARABEL")
    assert problem.status == "optimal" and problem.value == pytest.approx(truth, rel=1e-6)
    assert problem.solver_stats.solver_name in OURS


@pytest.mark.later
def test_solved_again_and_differentiated():
    delta = cp.Parameter(nonneg=True, value=0.5)
    theta = ko.Theta(ko.kernels.Linear())
    problem = ko.Problem(cp.Minimize(cp.sum(cp.huber(Y - theta(X), 1.0)) + delta * cp.sum_squares(theta(X[:30]) - 1)))
    values = []
    for value in (0.5, 0.7):
        delta.value = value
        problem.solve()
        w = cp.Variable(4)
        plain = cp.sum(cp.huber(Y - X @ w, 1.0)) + value * cp.sum_squares(X[:30] @ w - 1)
        assert problem.value == pytest.approx(cp.Problem(cp.Minimize(plain)).solve(solver="CLARABEL"), rel=1e-7)
        values.append(float(np.sum((X[:30] @ w.value - 1) ** 2)))
    assert values[1] < values[0] and problem.solver_stats.solver_name in OURS


@pytest.mark.later
def test_an_infimum_that_is_not_attained():
    theta = ko.Theta(ko.kernels.Linear())
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.log_loss(np.sign(X[:, 0]), theta(X)))))
    problem.solve()
    assert problem.status == "not_attained" and problem.value <= 1e-4


def test_as_many_features_as_rows_go_to_a_cone_solver():
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.huber(Y[:20], theta(X[:20]), 0.5))))
    problem.solve()
    assert problem.value == pytest.approx(0, abs=1e-6) and problem.solver_stats.solver_name not in OURS


@pytest.mark.parametrize("loss", ["hinge", "squares"])
def test_as_many_features_as_rows_in_blocks(loss):
    """Cone solvers take no B in blocks."""
    few = slice(0, 14)
    losses = {
        "hinge": lambda f: cp.sum(ko.losses.hinge(SIGNS[few], f)),
        "squares": lambda f: cp.sum_squares(Y[few] - f),
    }
    theta = ko.Theta(ko.kernels.Polynomial(degree=3))
    problem = ko.Problem(cp.Minimize(losses[loss](theta(X[few]))))
    problem.solve(factorization="streamed", dtype="float32")
    assert problem.status == "optimal" and problem.value == pytest.approx(0, abs=1e-9)
    assert problem.solver_stats.solver_name in OURS


# name: the loss of 40 rows with counts y, the solver, None where it is unbounded
BALANCED = {
    "counts": (lambda f, y: cp.sum(cp.exp(f) - cp.multiply(y, f)), "NEWTON"),
    "gamma": (lambda f, y: cp.sum(cp.multiply(y + 0.5, cp.exp(-f)) + f), "NEWTON"),
    "logistic": (lambda f, y: cp.sum(cp.logistic(f)) - 0.4 * cp.sum(f), "NEWTON"),
    "hinge": (lambda f, y: cp.sum(cp.pos(1 - f)) + 0.5 * cp.sum(f), "INTERIOR_POINT"),
    "a cost of one sign": (lambda f, y: cp.sum(cp.exp(f) + f), None),
    "a cost beyond all slopes": (lambda f, y: cp.sum(cp.logistic(f)) - 2 * cp.sum(f), None),
    "a cost of one row": (lambda f, y: cp.sum(cp.exp(f)) - np.sum(y) * f[0], "NEWTON"),
}


@pytest.mark.parametrize("name", BALANCED)
def test_linear_costs_that_slopes_balance(name):
    """Σ eᶠ − yf is at least Σ y − y log y: it needs no search for a direction in which it falls for ever."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.poisson(1.0, 40).astype(float)
    loss, solver = BALANCED[name]
    theta, b, w = ko.Theta(ko.kernels.Linear()), cp.Variable(), cp.Variable(4)
    problem = ko.Problem(cp.Minimize(loss(theta(X) + b, y)))
    problem.solve()
    by_hand = cp.Problem(cp.Minimize(loss(np.column_stack([X, np.ones(40)]) @ w, y)))
    by_hand.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10)
    assert problem.status == ("unbounded" if solver is None else "optimal") == by_hand.status
    if solver is not None:
        assert problem.value == pytest.approx(by_hand.value, rel=1e-7)
        assert problem.solver_stats.solver_name == solver
