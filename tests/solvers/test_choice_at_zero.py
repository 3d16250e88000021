"""Which engine finds the optimum at θ = 0, and which takes many variables."""

import sys

import cvxpy as cp
import numpy as np
import pytest
from inside import reduction_of

import kernelopt as ko
from kernelopt import losses
from kernelopt.errors import SolverError
from kernelopt.solvers import engines

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, 2)), RNG.normal(size=30)
LABELS = np.sign(Y)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (lambda f: cp.sum(losses.hinge(LABELS, f)), "INTERIOR_POINT"),
        (lambda f: cp.sum(losses.log_loss(LABELS, f)), "NEWTON"),
    ],
)
def test_engines(monkeypatch, loss, expected):
    class Noted(dict):
        def __getitem__(self, name):
            asked.append(name)
            return super().__getitem__(name)

    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    problem = ko.Problem(cp.Minimize(loss(theta(X) + b) + ko.sum_squares(theta)))
    problem.solve()
    asked = []
    monkeypatch.setattr(engines, "ENGINES", Noted(engines.ENGINES))
    c = cp.Variable()
    at_zero = cp.Problem(cp.Minimize(loss(c * np.ones(30)))).solve(solver="CLARABEL")
    assert engines.value_at_zero(reduction_of(problem), problem._outer()) == pytest.approx(at_zero, rel=1e-6)
    assert set(asked) == {expected}


def softmax(f, b):
    """12 classes, of which few occur, and scores of 1000 for some of these."""
    classes = np.arange(30) % 5
    scores = f + 1000.0 * np.isin(np.arange(12), [7, 9]) + np.ones((30, 1)) @ cp.reshape(b, (1, 12), order="F")
    chosen = cp.sum(cp.multiply(np.eye(12)[classes], scores))
    return cp.sum(cp.log_sum_exp(scores, axis=1)) - chosen + 1e-3 * cp.sum_squares(b)


@pytest.mark.parametrize(
    ("outputs", "loss", "columns"),
    [
        (None, lambda f, b: cp.log_sum_exp(1000 * (f - Y)), 0),
        (12, softmax, 12),
        (None, lambda f, b: cp.sum(cp.huber(f + b[0] + b[1] * X[:, 0] - Y, 0.3)), 2),
    ],
)
def test_an_engine_that_stops_early_finds_no_optimum_at_zero(outputs, loss, columns):
    """Its point may be far above P₀, beside which any gap is small."""
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=outputs), cp.Variable(columns) if columns else None
    problem = ko.Problem(cp.Minimize(loss(theta(X), b) + 0.5 * ko.sum_squares(theta)))
    problem.solve()
    c = cp.Variable(columns) if columns else None
    at_zero = cp.Problem(cp.Minimize(loss(np.zeros((30, outputs) if outputs else 30), c))).solve(solver="CLARABEL")
    assert problem.status == "optimal"
    assert problem.certificate.at_zero == pytest.approx(at_zero, rel=1e-6)
    assert problem.certificate.upper - problem.certificate.lower <= 1e-6 * (at_zero - problem.value)


@pytest.mark.parametrize(("seed", "least"), [(0, -0.3), (6, -1.0), (7, -0.5)])
def test_what_a_cone_solver_leaves_open_is_found_by_rows(seed, least):
    """Clarabel makes no progress at the kink of these; without θ the method of multipliers goes on to ten digits."""
    rng = np.random.default_rng(seed)
    points, v = rng.uniform(-2, 2, (10, 1)), cp.Variable()
    y = np.sin(2 * points[:, 0]) + 0.3 * rng.normal(size=10)

    def loss(f):
        return 2 * cp.norm(f - y) + cp.sum(cp.pos(cp.maximum(v, f) - y)) + cp.square(v)

    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(loss(theta(points)) + 0.1 * ko.norm(theta)), [v >= least])
    problem.solve()
    at_zero = cp.Problem(cp.Minimize(loss(np.zeros(10))), [v >= least]).solve(solver="CLARABEL")
    assert problem.certificate.at_zero == pytest.approx(at_zero, rel=1e-6)


def test_without_variables_the_optimum_at_zero_is_a_value(monkeypatch):
    """Maxima of 300 rows with a variable each took engines minutes, whatever the time limit."""
    rng = np.random.default_rng(0)
    points, targets = rng.normal(size=(100, 3)), rng.normal(size=(100, 3))
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=3)
    loss = cp.max(cp.sum(cp.abs(targets - theta(points)), axis=0))
    problem = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta)))
    problem.solve()
    monkeypatch.setattr(engines, "ENGINES", {})
    expected = np.abs(targets).sum(axis=0).max()
    assert engines.value_at_zero(reduction_of(problem), problem._outer()) == pytest.approx(expected)


def test_with_many_variables_the_optimum_at_zero_is_that_of_a_sparse_program(monkeypatch):
    """Engines take the variables that bound losses as dense columns."""
    monkeypatch.setattr(engines, "value_at_zero", None)
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    shares = np.random.default_rng(0).multinomial(60, np.full(60, 1 / 60), size=4) / 60
    points, targets = np.linspace(0, 6, 60)[:, None], np.sin(np.arange(60.0))
    problem = ko.Problem(cp.Minimize(cp.max(shares @ cp.abs(theta(points) + b - targets)) + ko.sum_squares(theta)))
    problem.solve()
    at_zero = cp.Problem(cp.Minimize(cp.max(shares @ cp.abs(b - targets)))).solve(solver="CLARABEL")
    assert problem.status == "optimal" and problem.certificate.at_zero == pytest.approx(at_zero, rel=1e-6)


def test_variables_that_no_dense_array_holds(monkeypatch):
    """A variable for each row and plan: sparse systems or a cone solver take them, dense ones are refused."""
    monkeypatch.setattr(sys.modules["kernelopt.solvers.assemble"], "WIDE", 0.0)
    rng = np.random.default_rng(0)
    X, target = rng.normal(size=(12, 2)), rng.dirichlet(np.ones(30), size=12)
    values = []
    for solver in (None, "CLARABEL", "AUGMENTED_LAGRANGIAN"):
        theta, T = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable((12, 30), nonneg=True)
        near = cp.sum(cp.abs(T - target)) + cp.sum_squares(cp.sum(T, axis=1) - theta(X) - 1)
        problem = ko.Problem(cp.Minimize(near + 0.5 * ko.sum_squares(theta)))
        if solver == "AUGMENTED_LAGRANGIAN":
            with pytest.raises(SolverError, match="dense array of more than 2 GiB"):
                problem.solve(solver=solver)
        else:
            problem.solve(solver=solver)
            assert problem.status == "optimal"
            values.append(problem.value)
    assert values[0] == pytest.approx(values[1], rel=1e-6)


@pytest.mark.parametrize("penalty", ["ball", "norm"])
def test_many_bounded_rows_beside_an_unsquared_norm(penalty):
    """One pair is a row and itself: its interval has no interior, the others are sets all the same."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 3))
    labels = np.sign(np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=60))
    i, j = rng.integers(0, 60, size=(2, 60))
    i[0] = j[0]
    reach = 0.5 * np.linalg.norm(X[i] - X[j], axis=1)
    values = []
    for solver in (None, "CLARABEL"):
        theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.5)), cp.Variable()
        f = theta(X) + b
        norm = ko.norm(theta)
        constraints = [cp.abs(f[i] - f[j]) <= reach, *([norm <= 2] if penalty == "ball" else [])]
        loss = cp.sum(cp.logistic(-cp.multiply(labels, f)))
        problem = ko.Problem(cp.Minimize(loss + (2 * norm if penalty == "norm" else 0)), constraints)
        problem.solve(solver=solver)
        assert problem.status == "optimal"
        assert problem.solver_stats.solver_name == (solver or "METHOD_OF_MULTIPLIERS")
        values.append(problem.value)
    assert values[0] == pytest.approx(values[1], rel=1e-6)
