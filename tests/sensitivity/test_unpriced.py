"""Gradients by weights that are 0, or so small that the columns of their terms cost nothing beside others."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import kernelopt as ko
from kernelopt.errors import KernelOptError

N = 6
RNG = np.random.default_rng(1)
X, Y = RNG.normal(size=(N, 2)), RNG.normal(size=N) + 1
SIGN = np.sign(RNG.normal(size=N))
ROWS = {
    "absolute": lambda f: ko.losses.absolute_error(Y, f),
    "huber": lambda f: ko.losses.huber(Y, f, 0.5),
    "hinge": lambda f: ko.losses.hinge(SIGN, f),
    "log": lambda f: ko.losses.log_loss(SIGN, f),
    "squared hinge": lambda f: ko.losses.squared_hinge(SIGN, f),
    "pinball": lambda f: ko.losses.pinball(Y, f, 0.3),
    "squares": lambda f: ko.losses.squared_error(Y, f),
}
TERMS = {
    "norm1": lambda f: cp.norm1(f - 1),
    "norm": lambda f: cp.norm(f - 1),
    "max": cp.max,
    "exp": lambda f: cp.sum(cp.exp(f)),
    "logistic": lambda f: cp.sum(cp.logistic(f)),
    "log_sum_exp": cp.log_sum_exp,
    "cubes": lambda f: cp.sum(cp.power(cp.abs(f - 4), 3)),
    "nuclear": lambda f: cp.normNuc(cp.reshape(f, (2, 3), order="C")),
    "worst of logs": lambda f: cp.max(cp.hstack([cp.logistic(f[0]), cp.logistic(f[1] + 2)])),
}


def weighted(losses, values):
    """Σ wᵢℓᵢ + ½‖θ‖² and the criterion Σf², with weights w as a parameter."""
    theta, w = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Parameter(N, nonneg=True, value=values)
    terms = losses(theta(X))
    return ko.Problem(cp.Minimize(w @ terms + 0.5 * ko.sum_squares(theta))), cp.sum_squares(theta(X)), w, terms


def slope(problem, criterion, parameter, step):
    """The derivative to the right, from refined values of the criterion at three points."""
    start, values = np.array(parameter.value), []
    for k in range(3):
        parameter.value = start + k * step
        problem.solve(tol=1e-9)
        values.append(ko.gradient(problem, criterion, [parameter]).value)
    parameter.value = start
    return (4 * values[1] - values[2] - 3 * values[0]) / (2 * np.abs(step).max())


@pytest.mark.parametrize("name", ROWS)
def test_rows_without_weight(name):
    problem, criterion, w, losses = weighted(ROWS[name], np.array([0, 1.0, 1, 1, 1, 0]))
    problem.solve(tol=1e-9)
    of_value, found = ko.gradient(problem, problem.objective, [w]), ko.gradient(problem, criterion, [w])
    assert of_value[w] == pytest.approx(losses.value, abs=1e-6)
    assert of_value.is_differentiable and found.is_differentiable
    expected = slope(problem, criterion, w, np.eye(N)[0] * 1e-4)
    assert found[w][0] == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("weight", [1e-6, 1e-8, 1e-10, 1e-15])
@pytest.mark.parametrize("name", ["absolute", "log"])
def test_rows_of_tiny_weight(name, weight):
    problem, criterion, w, losses = weighted(ROWS[name], np.array([weight, 1.0, 1, 1, 1, 1]))
    problem.solve(tol=1e-9)
    assert ko.gradient(problem, problem.objective, [w])[w] == pytest.approx(losses.value, abs=1e-6)
    found = ko.gradient(problem, criterion, [w])
    assert found[w][0] == pytest.approx(slope(problem, criterion, w, np.eye(N)[0] * 1e-4), rel=1e-4)


@pytest.mark.parametrize("name", TERMS)
def test_terms_without_weight(name):
    theta, c = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Parameter(nonneg=True, value=0.0)
    f, lam = theta(X), cp.Parameter(nonneg=True, value=0.5)
    term, criterion = TERMS[name](f), cp.sum_squares(f)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(f - Y) + c * term + lam * ko.sum_squares(theta)))
    problem.solve(tol=1e-9)
    assert ko.gradient(problem, problem.objective, [c])[c] == pytest.approx(term.value, rel=1e-6)
    found = ko.gradient(problem, criterion, [c, lam])
    assert found[c] == pytest.approx(slope(problem, criterion, c, np.array(1e-4)), rel=1e-3)
    assert found[lam] == pytest.approx(slope(problem, criterion, lam, np.array(1e-4)), rel=1e-4)
    assert found.is_differentiable == (name != "nuclear")  # whose semidefinite cone is undecided


def test_a_term_of_a_variable_goes_forward_and_backward():
    theta, v = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    c = cp.Parameter(nonneg=True, value=0.0)
    objective = cp.sum_squares(theta(X) + v - Y) + 0.3 * ko.sum_squares(theta) + 0.1 * v**2 + c * cp.abs(v - 3)
    problem = ko.Problem(cp.Minimize(objective))
    problem.solve(tol=1e-9, requires_grad=True)
    start = float(v.value)
    problem.backward()
    c.delta = 1.0
    problem.derivative()
    assert v.delta == pytest.approx(float(c.gradient), rel=1e-6)
    c.value = 1e-3
    problem.solve(tol=1e-10)
    assert (v.value - start) / 1e-3 == pytest.approx(float(c.gradient), rel=1e-3)


def test_a_kink_of_a_term_without_weight_is_one():
    """|f₀ − r| at f₀ = r: with weight, f₀ stays there."""
    theta, c = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Parameter(nonneg=True, value=0.0)
    Q = ko.kernels.Gaussian(sigma=1.0)(X)
    at = Q @ np.linalg.solve(Q + 0.5 * np.eye(N), Y)
    objective = cp.sum_squares(theta(X) - Y) + 0.5 * ko.sum_squares(theta) + c * cp.abs(theta(X)[0] - at[0])
    problem = ko.Problem(cp.Minimize(objective))
    problem.solve(tol=1e-10)
    found = ko.gradient(problem, cp.sum_squares(theta(X)), [c])
    assert not found.is_differentiable
    assert ko.gradient(problem, problem.objective, [c])[c] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    "bound",
    [
        lambda f, v, c: cp.norm(f[:2]) <= c,
        lambda f, v, c: cp.norm1(f[:2]) <= 2 * c,
        lambda f, v, c: cp.abs(f[:2] - 0.3) <= c,
        lambda f, v, c: cp.sum_squares(f[:2] - f[2:4]) <= c,
        lambda f, v, c: cp.abs(v) <= c,
    ],
)
def test_a_bound_of_0_has_no_derivative(bound):
    theta, v = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    c, lam = cp.Parameter(nonneg=True, value=0.0, name="room"), cp.Parameter(nonneg=True, value=0.5)
    objective = cp.sum_squares(theta(X) + v - Y) + lam * ko.sum_squares(theta) + cp.square(v)
    problem = ko.Problem(cp.Minimize(objective), [bound(theta(X), v, c)])
    problem.solve(requires_grad=True)
    with pytest.raises(KernelOptError, match=r"constraints with room .*room.*holds with equality"):
        ko.gradient(problem, cp.sum(theta(X)), [c])
    c.delta, lam.delta = 1.0, 0.0
    with pytest.raises(KernelOptError, match="Take a value that leaves some room"):
        problem.derivative()
    c.delta, lam.delta = 0.0, 1.0
    problem.derivative()
    assert ko.gradient(problem, problem.objective, [lam])[lam] == pytest.approx(ko.sum_squares(theta).value, rel=1e-5)


def test_a_kernel_matrix_of_0():
    c, lam = cp.Parameter(nonneg=True, value=0.0, name="scale"), cp.Parameter(nonneg=True, value=0.5)
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0) * c), cp.Variable()
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) + b - Y) + lam * ko.sum_squares(theta)))
    problem.solve()
    assert ko.gradient(problem, problem.objective, [lam])[lam] == 0.0
    with pytest.raises(KernelOptError, match=r"a kernel matrix other than 0, .* by scale"):
        ko.gradient(problem, problem.objective, [c])


@pytest.mark.parametrize(
    "atom", [cp.abs, cp.max, cp.norm, cp.norm1, cp.norm_inf, cp.pos, lambda e: cp.sum_largest(e, 2)]
)
def test_criteria_with_sparse_constants(atom):
    theta, lam = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Parameter(nonneg=True, value=0.5)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(Y - theta(X)) + lam * ko.sum_squares(theta)))
    problem.solve()
    D = np.diff(np.eye(N), axis=0)
    dense, sparse = (ko.gradient(problem, cp.sum(atom(A @ theta(X))), [lam])[lam] for A in (D, sp.csr_array(D)))
    assert sparse == pytest.approx(dense, rel=1e-12) and dense != 0


WITHIN = {
    "norm in a constraint": lambda f, t, c: ([cp.norm1(f) + c * cp.norm(f) <= 1], 0.0),
    "exp in a constraint": lambda f, t, c: ([cp.norm(f) + c * cp.sum(cp.exp(f)) <= 1], 0.0),
    "norm beside the norm of θ": lambda f, t, c: ([ko.norm(t) + c * cp.norm(f) <= 0.5], 0.0),
    "norm in exp": lambda f, t, c: ([], cp.exp(c * cp.norm(f - 1))),
    "norm in a square": lambda f, t, c: ([], cp.square(1 + c * cp.norm(f - 1))),
    "abs in pos": lambda f, t, c: ([], cp.sum(cp.pos(1 - f + c * cp.abs(f)))),
    "log in a maximum": lambda f, t, c: ([], cp.maximum(cp.sum(f[:2]), 0.5 + c * cp.sum(cp.logistic(f)))),
    "root in an inverse": lambda f, t, c: ([], cp.inv_pos(1 + c * cp.sum(cp.sqrt(f + 5)))),
}


@pytest.mark.parametrize("weight", [0.0, 1e-9])
@pytest.mark.parametrize("name", WITHIN)
def test_weights_of_0_within_constraints_and_atoms(name, weight):
    theta, c = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Parameter(nonneg=True, value=weight)
    f = theta(X)
    constraints, term = WITHIN[name](f, theta, c)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(f - Y) + term + 0.5 * ko.sum_squares(theta)), constraints)
    for criterion in (problem.objective, cp.sum_squares(f)):
        problem.solve(tol=1e-9)
        found = ko.gradient(problem, criterion, [c])
        assert found.is_differentiable
        assert found[c] == pytest.approx(slope(problem, criterion, c, np.array(1e-4)), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("attributes", [{}, {"nonneg": True}, {"bounds": [-1, 1]}])
def test_a_variable_of_a_term_without_weight(attributes):
    theta, v = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(**attributes)
    c = cp.Parameter(nonneg=True, value=0.0)
    f, lam = theta(X), cp.Parameter(nonneg=True, value=0.5)
    term = cp.norm1(f - v) + cp.abs(v)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(f - Y) + c * term + lam * ko.sum_squares(theta)))
    problem.solve()
    assert ko.gradient(problem, problem.objective, [lam])[lam] == pytest.approx(ko.sum_squares(theta).value, rel=1e-5)
    with pytest.raises(KernelOptError, match="variables that the problem determines"):
        ko.gradient(problem, problem.objective, [c])
