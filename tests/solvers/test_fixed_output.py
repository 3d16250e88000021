"""Combinations of outputs that equations fix at all rows are no unknowns of our engines."""

import cvxpy as cp
import numpy as np
import pytest
from inside import reduction_of

import kernelopt as ko
from kernelopt.compiler.outer import outer_of
from kernelopt.solvers import assemble
from kernelopt.solvers.fixed_output import without_fixed_output

N, K = 30, 3
KERNEL = ko.kernels.Gaussian(sigma=1.0)
rng = np.random.default_rng(0)
X = rng.normal(size=(N, 2))
P = rng.dirichlet(np.ones(K), size=N)
C = KERNEL(X, X[:4]) @ [1.0, -0.7, 0.4, 0.2]  # of a function with a small norm
b = cp.Variable()

# name: the loss and the constraints of f, whether an output is left out
STATED = {
    "probabilities": (lambda f: cp.sum_squares(P - f), lambda f: [f >= 0, cp.sum(f, axis=1) == 1], True),
    "sums of 0, log loss": (
        lambda f: cp.sum(cp.log_sum_exp(f, axis=1)) - cp.sum(cp.multiply(P, f)),
        lambda f: [cp.sum(f, axis=1) == 0], True
    ),
    "other numbers": (
        lambda f: cp.sum(cp.abs(P - f - b)) + cp.sum(f[:, 1]) / 7,
        lambda f: [2 * f[:, 0] + f[:, 1] - 0.5 * f[:, 2] == C, cp.abs(f[:5, 0]) <= 0.5], True
    ),
    "in other units": (
        lambda f: cp.sum_squares(P - f),
        lambda f: [cp.multiply(np.where(C > 0, 3.0, -0.2), cp.sum(f, axis=1)) == C, f[:, 0] <= f[:, 1]], True
    ),
    "all but one row": (lambda f: cp.sum_squares(P - f), lambda f: [f >= 0, cp.sum(f[1:], axis=1) == 1], False),
    "another direction at one row": (
        lambda f: cp.sum_squares(P - f),
        lambda f: [cp.sum(f[1:], axis=1) == 1, f[0] @ np.array([1, 1, 2.0]) == 1], False
    ),
    "with a variable": (lambda f: cp.sum_squares(P - f) + b**2, lambda f: [cp.sum(f, axis=1) + b == 1], False),
    "smooth beside a shift": (
        lambda f: cp.sum(cp.logistic(f[:, 0])) + cp.sum(cp.exp(f[:, 1])), lambda f: [cp.sum(f, axis=1) == 1], False
    ),
}  # fmt: skip


def stated(name, lam, kernel=KERNEL):
    loss, constraints, _ = STATED[name]
    theta = ko.Theta(kernel, outputs=K)
    f = theta(X)
    return theta, ko.Problem(cp.Minimize(loss(f) + lam * ko.sum_squares(theta)), constraints(f))


def by_hand(name, lam):
    """Value and multipliers of the first constraint, by Clarabel."""
    loss, constraints, _ = STATED[name]
    values, vectors = np.linalg.eigh(KERNEL(X, X))
    w = cp.Variable((N, K))
    f = vectors * np.sqrt(np.maximum(values, 0)) @ w
    stated = constraints(f)
    problem = cp.Problem(cp.Minimize(loss(f) + lam * cp.sum_squares(w)), stated)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return problem.value, stated


@pytest.mark.slow
@pytest.mark.parametrize("name", STATED)
def test_the_optimum(name):
    """With its multipliers, again after λ has changed."""
    lam = cp.Parameter(nonneg=True, value=0.5)
    theta, problem = stated(name, lam)
    for value in (0.5, 0.4):
        lam.value = value
        problem.solve(tol=1e-7)
        expected, constraints = by_hand(name, value)
        assert problem.status == "optimal"
        assert problem.value == pytest.approx(expected, rel=1e-6, abs=1e-6)
        for ours, theirs in zip(problem.constraints, constraints, strict=True):
            assert np.abs(ours.violation()).max() < 1e-8
            assert ours.dual_value == pytest.approx(theirs.dual_value, abs=2e-3)
    assert theta.value.norm > 0


@pytest.mark.parametrize("name", STATED)
def test_what_is_left_out(name):
    _, problem = stated(name, 0.5)
    problem.solve(tol=1e-2)
    reduction = reduction_of(problem)
    [factor] = reduction.factors.values()
    whole = assemble.structured(reduction, outer_of(reduction.form), {0: 1.0})
    found = without_fixed_output(whole, factor.pivots)
    assert (found is not None) is STATED[name][2]
    if found is not None:
        assert found.problem.size == whole.size - factor.rank and found.problem.m == whole.m - N
        assert found.basis.T @ found.basis == pytest.approx(np.eye(K), abs=1e-14)


@pytest.mark.slow
def test_equal_rows_have_equations_of_their_own():
    """Two equations for one row of B stay, and contradict each other here."""
    Z, theta = X[[0, 1, 2, 2]], ko.Theta(KERNEL, outputs=2)
    f = theta(Z)
    problem = ko.Problem(
        cp.Minimize(cp.sum_squares(f - 1) + ko.sum_squares(theta)), [cp.sum(f, axis=1) == [1, 1, 1, 2]]
    )
    problem.solve()
    assert problem.status == "infeasible"


@pytest.mark.slow
def test_what_the_span_does_not_reach():
    """Features x ↦ x can't sum up to 1 at all rows."""
    _, problem = stated("probabilities", 0.5, ko.kernels.Linear())
    problem.solve()
    assert problem.status == "infeasible"
