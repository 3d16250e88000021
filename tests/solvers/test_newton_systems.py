"""Newton steps: systems by conjugate gradients or factors, and line searches that never go up."""

from dataclasses import replace
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from inside import reduction_of

import kernelopt as ko
from kernelopt import losses
from kernelopt.factorization.tall import DenseMatrix
from kernelopt.solvers import assemble, augmented_lagrangian, newton_systems, nonconvex, semismooth
from kernelopt.solvers.newton_systems import Known, Systems
from kernelopt.solvers.structured import Structured
from kernelopt.solvers.watch import Watch

rng = np.random.default_rng(0)
X = rng.normal(size=(800, 2))
y = np.sign(np.sin(2 * X[:, 0]) + X[:, 1] ** 2 - 1)


def structured(loss=losses.log_loss, target=y, strength=1.0):
    """The structured problem that an engine gets, with an intercept."""
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=0.3)), cp.Variable()
    objective = cp.sum(loss(target, theta(X[: len(target)]) + b)) + strength * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(objective))
    problem.solve(certify=False)
    return assemble.structured(reduction_of(problem), problem._outer(), {0: 2 * strength})


@pytest.fixture(scope="module")
def logistic():
    return structured()


def watch():
    return Watch("", 1e-8, 0.0, 1.0)


def weights(problem, seed=0):
    return np.random.default_rng(seed).uniform(0.05, 0.25, size=problem.m)


@pytest.mark.later
@pytest.mark.parametrize("added", [0.0, 30.0])
def test_iterations_agree_with_the_factor(logistic, monkeypatch, added):
    """With and without a number added to the diagonal for the intercept."""
    rank = logistic.blocks[0].shape[1]
    assert rank > 300
    ridge, b = np.array([added]), rng.normal(size=logistic.size)
    exact = logistic.system(weights(logistic), ridge)(b)
    coarse = Systems(logistic.truncated(300), watch())
    coarse.solve(weights(logistic), ridge, b[: coarse.problem.size])
    for known in (coarse.known, _near(logistic)):
        systems = Systems(logistic, watch(), known)
        monkeypatch.setattr(Structured, "system", _refuse)
        found = systems.solve(weights(logistic), ridge, b)
        monkeypatch.undo()
        residual = logistic.penalty * found + logistic.adjoint(weights(logistic) * logistic.products(found)) - b
        residual[-1] += added * found[-1]
        assert np.linalg.norm(residual) <= 1.01 * newton_systems.ACCURACY * np.linalg.norm(b)
        assert found == pytest.approx(exact, abs=0.05 * np.abs(exact).max())
        assert 0 < systems.watch.flops < logistic.cost(logistic.m)


def _near(problem):
    systems = Systems(problem, watch())
    systems.solve(1.1 * weights(problem), np.zeros(1), np.ones(problem.size))
    return systems.known


def _refuse(*args):
    raise AssertionError("a factor was made")


def test_a_factor_is_made_where_iterations_lead_nowhere(logistic):
    """What 5 columns leave out is not small beside R."""
    ridge, b = np.zeros(1), rng.normal(size=logistic.size)
    coarse = Systems(logistic.truncated(5), watch())
    coarse.solve(100 * weights(logistic), ridge, b[: coarse.problem.size])
    systems = Systems(logistic, watch(), coarse.known)
    found = systems.solve(100 * weights(logistic), ridge, b)
    assert found == pytest.approx(logistic.system(100 * weights(logistic), ridge)(b), rel=1e-9)
    assert systems.known.widths == (logistic.blocks[0].shape[1],)


def test_what_does_not_fit_is_not_used(logistic):
    known = _near(logistic)
    assert Systems(logistic.truncated(10), watch(), known).known is None
    assert Systems(logistic, watch(), known).known is known


@pytest.mark.later
def test_a_path_keeps_the_last_factor(monkeypatch):
    """Neighbouring λ need none of their own."""
    theta, lam = ko.Theta(ko.kernels.Gaussian(sigma=0.3)), cp.Parameter(nonneg=True, value=1.0)
    problem = ko.Problem(cp.Minimize(cp.sum(losses.log_loss(y, theta(X))) + lam * ko.sum_squares(theta)))
    problem.solve(solver="NEWTON")
    monkeypatch.setattr(Structured, "in_columns", _refuse)
    lam.value = 0.9
    problem.solve(solver="NEWTON")
    assert problem.status == "optimal"


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_steps_never_go_up(scale):
    """From far away, where whole steps of Newton's method overflow."""
    counts = np.round(np.abs(3 * X[:60, 0]))
    problem = structured(losses.poisson, counts, strength=1e-3)
    x = scale * np.random.default_rng(1).normal(size=problem.size)
    x[-1] = scale
    a, systems = np.zeros(len(problem.of)), Systems(problem, watch())
    function = augmented_lagrangian.smoothed(problem, a, np.inf)
    here = semismooth.begin(problem, function, x, problem.products(x))
    values = [problem.value(here.x, here.s)]
    for _ in range(200):
        with np.errstate(over="ignore"):
            after = semismooth.step(problem, function, here, 1.0, systems)
        if after is None:
            break
        here = after
        values.append(problem.value(here.x, here.s))
    assert np.all(np.diff(values) <= 1e-12 * np.abs(values[:-1]))
    assert np.linalg.norm(here.gradient) <= 1e-6 * np.linalg.norm(problem.linear)


def test_a_line_search_that_fails_moves_nothing(logistic):
    """A gradient of the wrong sign promises a descent that no step keeps."""
    x = np.zeros(logistic.size)
    true = augmented_lagrangian.smoothed(logistic, np.zeros(0), np.inf)

    def wrong(s):
        at = true(s)
        return at._replace(gradient=-at.gradient)

    here = semismooth.begin(logistic, wrong, x, logistic.products(x))
    assert semismooth.step(logistic, wrong, here, 1.0, Systems(logistic, watch())) is None


@pytest.mark.slow
def test_a_search_that_fails_is_not_called_optimal(monkeypatch):
    monkeypatch.setattr(semismooth, "step", lambda *args: None)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=0.3))
    problem = ko.Problem(cp.Minimize(cp.sum(losses.log_loss(y[:50], theta(X[:50]))) + ko.sum_squares(theta)))
    problem.solve(solver="NEWTON")
    assert problem.status == "optimal_inaccurate"
    assert not problem.certificate.relative_gap < 1e-3


def test_a_sparse_f_leaves_the_same_system(logistic):
    """Free columns are eliminated first where F is sparse: the unknowns are those of the dense system."""
    m, q = logistic.m, 40
    F = sp.random_array((m, q), density=0.03, rng=np.random.default_rng(3), format="csc") + sp.csc_array(
        (np.ones(m), (np.arange(m), np.arange(m) % q)), shape=(m, q)
    )
    W, ridge = weights(logistic), np.linspace(0, 1, q)
    R, B = logistic.penalty[: logistic.ends[-1]], logistic.blocks[0].rows(np.arange(logistic.blocks[0].shape[0]))
    C = np.hstack([logistic.E @ B, F.toarray()])
    H = C.T @ (W[:, None] * C) + np.diag(np.append(R, ridge))
    wider = replace(logistic, F=sp.csc_array(F), linear_y=np.zeros(q), origin=None)
    rhs = rng.normal(size=len(H))
    assert wider.system(W, ridge)(rhs) == pytest.approx(np.linalg.solve(H, rhs), rel=1e-6, abs=1e-9)


def test_each_system_is_counted():
    small = SimpleNamespace(is_small=lambda _: True, cost=lambda _: 5.0, system=lambda *_: lambda rhs: rhs)
    systems = Systems(small, watch())
    for number in (1, 2):
        systems.solve(np.ones(3), np.zeros(0), np.ones(3))
        assert systems.watch.systems == number and systems.watch.flops == 5.0 * number


def test_a_direction_without_descent_is_no_step(logistic):
    function = augmented_lagrangian.smoothed(logistic, np.zeros(0), np.inf)
    here = semismooth.begin(logistic, function, np.zeros(logistic.size), np.zeros(logistic.m))
    nowhere = SimpleNamespace(solve=lambda *_: np.zeros_like(here.x))
    assert semismooth.step(logistic, function, here, 1.0, nowhere) is None


def test_damping_is_in_units_of_the_metric(monkeypatch):
    """(H + μD)dx = −gradient."""
    monkeypatch.setattr(nonconvex, "_evaluated", lambda _, x: nonconvex._Here(x, x, 0.0, None, x))
    here = nonconvex._Here(np.zeros(2), np.zeros(2), 10.0, None, np.ones(2))
    moved, _ = nonconvex._damped(None, here, np.eye(2), np.array([4.0, 0.25]), 1.0)
    assert moved.x == pytest.approx([-1 / 5, -1 / 1.25])


def test_curvature_is_in_units_of_the_metric():
    H, metric = np.array([[-1.0, 0.5], [0.5, 2.0]]), np.array([4.0, 1.0])
    value, direction = nonconvex._smallest(H, metric)
    assert value == pytest.approx(np.linalg.eigvalsh(H / np.sqrt(np.outer(metric, metric)))[0])
    assert H @ direction == pytest.approx(value * metric * direction)


def test_the_diagonal_preconditions_what_no_factor_has_seen():
    """One iteration suffices where columns are orthogonal, however unequal they are."""
    n, empty = 200, np.zeros(0)
    problem = Structured(
        (DenseMatrix(np.diag(np.geomspace(0.1, 100, n))),), sp.csr_array(np.eye(n)), np.zeros((n, 0)), np.ones(1),
        np.zeros(n), empty, np.zeros(n), np.arange(0), empty, empty, empty, empty, (), 0.0,
    )  # fmt: skip
    systems = Systems(problem, watch(), Known((0,), 0, lambda rhs: rhs))
    W, b = weights(problem), np.ones(n)
    found = systems._iterated(systems.known, W, empty, b, n)
    assert found == pytest.approx(b / (1 + problem.gram_diagonal(W)))
    assert systems.watch.flops == 2 * problem.product_cost


def test_the_metric_of_free_variables():
    """The diagonal of Fᵀ|curvature|F, where the curvature may be negative."""
    problem = SimpleNamespace(
        penalty=np.array([3.0, 0.0]), q=1, F=np.array([[2.0], [-3.0]]), ends=[0, 1], R=np.array([3.0])
    )
    assert nonconvex._metric(problem, SimpleNamespace(curvature=np.array([1.0, -2.0]))).tolist() == [3.0, 22.0]


def test_a_ridge_is_what_flat_rows_lack():
    """A part of FᵀF at full weight, less FᵀWF: nothing where the rows with the largest entries are curved."""
    problem = SimpleNamespace(q=2, F=np.array([[3.0, 0.0], [-1.0, 0.5]]))
    part = 2.0 * semismooth.LEAST_WEIGHT
    assert semismooth._ridge(problem, np.zeros(2), 2.0) == pytest.approx(part * np.array([10.0, 0.25]), rel=1e-12)
    assert semismooth._ridge(problem, np.array([part, 0.0]), 2.0) == pytest.approx(part * np.array([1.0, 0.25]))
    assert semismooth._ridge(problem, np.ones(2), 2.0).tolist() == [0.0, 0.0]
