"""Atoms of symmetric matrices whose argument cvxpy does not know to be symmetric, beside plain cvxpy."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.representer import valued

rng = np.random.default_rng(3)
X, y, G, C = rng.normal(size=(6, 2)), rng.normal(size=6), rng.normal(size=(9, 4)), rng.normal(size=9)
A = rng.normal(size=(3, 3))
KERNEL = ko.kernels.Gaussian(sigma=1.0)


def matrix(v, c=C):
    return cp.reshape(G @ v - c, (3, 3), order="F")


def twice(M):
    return M + M.T


SUMS = {  # functions of v, u = predictions of three rows
    "lambda_max": lambda v, u: cp.lambda_max(twice(matrix(v))),
    "lambda_min": lambda v, u: -cp.lambda_min(twice(matrix(v))),
    "half": lambda v, u: cp.lambda_max(0.5 * twice(matrix(v)) - cp.diag(u)),
    "lambda_sum_largest": lambda v, u: cp.lambda_sum_largest(twice(matrix(v)), 2),
    "lambda_sum_smallest": lambda v, u: -cp.lambda_sum_smallest(twice(matrix(v)), 2),
    "congruence": lambda v, u: cp.lambda_max(A.T @ twice(matrix(v)) @ A),
    "blocks": lambda v, u: cp.lambda_max(cp.bmat([[twice(matrix(v)), A @ cp.diag(u)], [cp.diag(u) @ A.T, np.eye(3)]])),
    "matrix_frac": lambda v, u: cp.matrix_frac(np.ones(3), twice(matrix(v)) + 20 * np.eye(3)),
    "parameter": lambda v, u: cp.lambda_max(cp.Parameter(nonneg=True, value=0.7) * twice(matrix(v))),
}


def stated(term, v, f, u, squares):
    return cp.Minimize(cp.sum_squares(y - f) + cp.sum_squares(v - 0.3) + 0.4 * squares + term(v, u))


@pytest.mark.later
@pytest.mark.parametrize("term", SUMS.values(), ids=SUMS)
def test_beside_plain_cvxpy(term):
    """X = Xᵀ to rounding are no equations: 1e-16·v = 1e-17 would rule v out."""
    v, theta = cp.Variable(4), ko.Theta(KERNEL)
    problem = ko.Problem(stated(term, v, theta(X), theta(X[:3]), ko.sum_squares(theta)))
    problem.solve()
    v, B = cp.Variable(4), np.linalg.cholesky(KERNEL(X))
    w = cp.Variable(6)
    by_hand = cp.Problem(stated(term, v, B @ w, B[:3] @ w, cp.sum_squares(w)))
    by_hand.solve(solver="CLARABEL")
    assert problem.status == "optimal" and problem.value == pytest.approx(by_hand.value, rel=1e-6)
    certificate = problem.certificate
    assert certificate.lower - 1e-6 <= by_hand.value <= certificate.upper + 1e-6


@pytest.mark.later
def test_in_constraints():
    v, theta = cp.Variable(4), ko.Theta(KERNEL)
    objective = cp.sum_squares(y - theta(X)) + cp.sum_squares(v - 3) + ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(objective), [cp.lambda_max(twice(matrix(v))) <= 6])
    problem.solve()
    assert problem.status == "optimal" and np.linalg.eigvalsh(twice(matrix(v)).value)[-1] == pytest.approx(6, rel=1e-6)


@pytest.mark.later
def test_a_matrix_that_is_not_symmetric_has_to_be():
    """cvxpy's λ_max of a general X has X = Xᵀ as its domain."""
    v, theta = cp.Variable(4), ko.Theta(KERNEL)
    M = cp.reshape(v, (2, 2), order="F")
    objective = cp.sum_squares(y - theta(X)) + cp.sum_squares(v - np.array([1, 2, 3, 4])) + ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(objective + cp.lambda_max(M)))
    problem.solve()
    assert problem.status == "optimal" and v.value[1] == pytest.approx(v.value[2], abs=1e-8)


def test_an_inverse_that_does_not_exist():
    """P = 0 is a point that is tried where a limit leaves no other; cvxpy inverts it."""
    theta, P = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable((4, 4), PSD=True)
    X = np.random.default_rng(0).normal(size=(4, 2))
    objective = cp.matrix_frac(theta(X) - np.arange(4.0), P) + ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(objective), [cp.trace(P) <= 1, P >> 0.01 * np.eye(4)])
    form = problem.canonical_form()
    point = Iterate((np.zeros(4),), tuple(np.zeros(v.shape) for v in form.y), (np.zeros(4),), np.zeros(len(form.norms)))
    assert not np.isfinite(valued(form, point).value)
