"""Values of atoms that cvxpy computes otherwise than its cones state."""

import cvxpy as cp
import numpy as np
import pytest
from scipy.linalg import logm
from scipy.optimize import minimize

import kernelopt as ko

X = np.arange(3.0)[:, None]
KERNEL = ko.kernels.Gaussian(sigma=1.0)
B = np.linalg.cholesky(KERNEL(X))


def minimum(f):
    """By another method, of f(u) + ‖θ‖²."""
    return minimize(lambda w: f(B @ w) + w @ w, np.zeros(3), tol=1e-12).fun


@pytest.mark.later
@pytest.mark.parametrize("Y", [np.eye(2), np.diag([1.0, 3.0])])
def test_relative_entropy_of_matrices_whose_trace_is_not_one(Y):
    """cvxpy 1.9 divides the eigenvalues of the first matrix by their sum: its value is -0.6 where 2.7 is right."""
    theta = ko.Theta(KERNEL)
    f = theta(X)
    M = cp.bmat([[2 + 0.2 * f[0], 0.1 * f[1]], [0.1 * f[1], 2 + 0.2 * f[1]]])
    problem = ko.Problem(cp.Minimize(cp.quantum_rel_entr(cp.symmetric_wrap(M), Y) + ko.sum_squares(theta)))
    problem.solve()

    def entropy(u):
        P = np.array([[2 + 0.2 * u[0], 0.1 * u[1]], [0.1 * u[1], 2 + 0.2 * u[1]]])
        return np.trace(P @ (logm(P) - logm(Y))).real

    truth = minimum(entropy)
    assert problem.value == pytest.approx(truth, rel=1e-6)
    assert problem.certificate.lower <= truth <= problem.certificate.upper + 1e-8


def test_entries_above_a_diagonal_times_a_column():
    """cvxpy's value of them is a row, which times a column is a matrix."""
    theta, A, weights = ko.Theta(KERNEL), np.random.default_rng(0).normal(size=(9, 3)), np.array([[0.1], [0.2], [0.3]])
    entries = cp.upper_tri(cp.reshape(A @ theta(X) - 1, (3, 3), order="F"))
    problem = ko.Problem(cp.Minimize(cp.sum(cp.exp(cp.multiply(weights, entries))) + ko.sum_squares(theta)))
    problem.solve()
    above = [3, 6, 7]
    truth = minimum(lambda u: np.exp(weights[:, 0] * (A @ u - 1)[above]).sum())
    assert (problem.status, problem.value) == ("optimal", pytest.approx(truth, rel=1e-8))


@pytest.mark.later
def test_a_graph_form_with_products_of_parameters():
    """cvxpy says that dotsort(x − p, q) follows its rules for parameters, and fails on its own form of it."""
    theta = ko.Theta(KERNEL)
    p, q = cp.Parameter(3, value=[-0.3, -0.5, 0.7]), cp.Parameter(2, value=[2.6, 0.5])
    problem = ko.Problem(cp.Minimize(cp.dotsort(theta(X) - p, q) + ko.sum_squares(theta)))
    for shift in (0.0, 1.0):
        p.value = np.array([-0.3, -0.5, 0.7]) + shift
        problem.solve()
        truth = minimum(lambda u: np.sort(u - p.value)[::-1] @ [2.6, 0.5, 0])
        assert (problem.status, problem.value) == ("optimal", pytest.approx(truth, abs=1e-3))
        assert problem.value <= truth + 1e-6
    assert problem.solvers()


@pytest.mark.slow
def test_a_sign_that_is_only_declared_is_no_bound():
    """nonneg_wrap of what may be negative: the objective falls without bound, whatever its terms are said to be."""
    theta = ko.Theta(KERNEL)
    declared = cp.sum(cp.atoms.affine.wraps.nonneg_wrap(1 + theta(X)))
    problem = ko.Problem(cp.Minimize(declared + 0.1 * ko.norm(theta)))
    problem.solve()
    assert problem.status == "unbounded"
    bounded = ko.Problem(cp.Minimize(declared + 0.1 * ko.sum_squares(theta)))
    bounded.solve()
    assert bounded.certificate.of_terms is None and bounded.status == "optimal" and bounded.value < 0


WEIGHTS = {"decreasing": [3.0, 2.5, 1.0, 0.5, 0.1], "signed": [1.0, -2.0, 0.5, 0.0, -1.0], "few": [2.0, 1.0]}


@pytest.mark.parametrize("name", WEIGHTS)
def test_sorted_entries_with_weights(name):
    """dotsort is a sum of sums of largest entries; beside plain cvxpy, and proven."""
    points, y, w = np.linspace(0, 2, 5)[:, None], np.array([1.0, -0.5, 2.0, 0.3, -1.0]), np.array(WEIGHTS[name])
    kernel, theta = ko.kernels.Gaussian(sigma=0.7), ko.Theta(ko.kernels.Gaussian(sigma=0.7))
    problem = ko.Problem(cp.Minimize(cp.dotsort(theta(points) - y, w) + 0.5 * ko.sum_squares(theta)))
    problem.solve()
    v = cp.Variable(5)
    B = np.linalg.cholesky(kernel(points))
    known = cp.Problem(cp.Minimize(cp.dotsort(B @ v - y, w) + 0.5 * cp.sum_squares(v))).solve(solver="CLARABEL")
    assert problem.status == "optimal" and problem.value == pytest.approx(known, abs=1e-6)
    assert all(attempt.solver == "INTERIOR_POINT" for attempt in problem.solver_stats.attempts)


SORTED = {
    "entries": (lambda f, y, c: f - y, lambda w: w),
    "moduli": (lambda f, y, c: cp.abs(f - y), np.abs),
    "positive parts": (lambda f, y, c: cp.pos(1 - cp.multiply(c, f)), np.abs),
    "a maximum with 0": (lambda f, y, c: cp.maximum(0, f - y), lambda w: np.append(0.0, np.abs(w[:24]))),
}


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("name", SORTED)
def test_many_sorted_entries_with_weights(name, within):
    """One function, in the objective and in a bound; beside plain cvxpy, whose form has N² rows."""
    rng = np.random.default_rng(5)
    points, y, c, w = rng.normal(size=(25, 2)), rng.normal(size=25), np.sign(rng.normal(size=25)), rng.normal(size=25)
    (of, weights), kernel, values = SORTED[name], ko.kernels.Gaussian(sigma=1.0), []
    B, v, theta = np.linalg.cholesky(kernel(points)), cp.Variable(25), ko.Theta(kernel)
    for make, f, square in ((ko.Problem, theta(points), ko.sum_squares(theta)), (cp.Problem, B @ v, cp.sum_squares(v))):
        cost = cp.dotsort(of(f, y, c), weights(w))
        bounded = (cp.sum_squares(f - y) + 0.1 * square, [cost <= 6.0]) if within else (cost + 0.3 * square, [])
        problem = make(cp.Minimize(bounded[0]), bounded[1])
        values.append(problem.solve() if make is ko.Problem else problem.solve(solver="CLARABEL"))
        if make is ko.Problem:
            assert problem.status == "optimal" and problem.solver_stats.solver_name == "METHOD_OF_MULTIPLIERS"
    assert values[0] == pytest.approx(values[1], rel=1e-5)


def test_the_largest_entries_of_a_matrix_with_values():
    """cvxpy's form of it begins at values where there are some, and fails for a matrix."""
    rng = np.random.default_rng(0)
    points, Y, theta = (
        rng.normal(size=(2, 1)),
        rng.normal(size=(2, 2)),
        ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=2),
    )
    F = theta(points)
    loss = cp.sum(cp.huber(Y - F, 0.5)) + cp.sum_largest(cp.abs(Y - F), 2)
    problem = ko.Problem(cp.Minimize(loss + 0.3 * ko.sum_squares(theta)), [F <= Y + 0.3])
    for solver in (None, "INTERIOR_POINT", "CLARABEL"):
        problem.solve(solver=solver)
        assert problem.status == "optimal" and problem.value == pytest.approx(1.72315, abs=1e-5)
