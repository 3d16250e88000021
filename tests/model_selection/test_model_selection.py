"""Leave-one-out residuals against fits that leave a row out."""

import threading
from unittest import mock

import cvxpy as cp
import numpy as np
import pytest
from inside import reduction_of

import kernelopt as ko
from kernelopt.errors import KernelOptError
from kernelopt.solvers import least_squares

KERNEL = ko.kernels.Laplacian(sigma=1.0)


def data(N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.normal(size=N)


def refits(G, F, y, w, lam, *, ridge=0.0):
    """yᵢ − f₋ᵢ(xᵢ) by N solves: minimize Σ wⱼ(yⱼ − (Gv + Fβ)ⱼ)² + λ‖v‖² + ridge·‖β‖²."""
    C = np.hstack([G, F])
    R = np.diag(np.concatenate([np.full(G.shape[1], np.sqrt(lam)), np.full(F.shape[1], np.sqrt(ridge))]))
    found = np.empty(len(y))
    for i in range(len(y)):
        keep = np.arange(len(y)) != i
        rows = np.vstack([np.sqrt(w[keep])[:, None] * C[keep], R])
        target = np.concatenate([np.sqrt(w[keep]) * y[keep], np.zeros(len(R))])
        found[i] = y[i] - C[i] @ np.linalg.lstsq(rows, target, rcond=None)[0]
    return found


def coordinates(problem, theta, X):
    """G with GGᵀ = Q restricted to the factor's span."""
    factor = reduction_of(problem).factors[theta]
    take = problem.canonical_form().predictions[0].take
    return np.sqrt(factor.scale) * factor.B[take]


def both_ways(problem):
    """Leave-one-out residuals from a factorization, checked against those from the decomposition."""
    with mock.patch.object(least_squares, "EIGEN", np.inf):
        direct = ko.leave_one_out(problem)
    kept = problem._left_off.kept
    assert kept.spectrum is None
    kept.decomposed()
    assert ko.leave_one_out(problem) == pytest.approx(direct, rel=1e-9, abs=1e-9, nan_ok=True)
    assert problem._left_off.kept is kept
    return direct


@pytest.mark.later
@pytest.mark.parametrize("max_rank", [None, 15])
@pytest.mark.parametrize("lam", [1e-3, 1.0, 1e3])
def test_weights_intercept_and_repeated_rows(lam, max_rank):
    X, y = data(60)
    X[40:] = X[:20]
    w = np.random.default_rng(1).uniform(0.1, 5, size=60)
    w[3] = 0.0
    theta, b = ko.Theta(KERNEL), cp.Variable()
    problem = ko.Problem(cp.Minimize(w @ cp.square(y - theta(X) - b) + lam * ko.sum_squares(theta)))
    problem.solve(max_rank=max_rank)
    G = coordinates(problem, theta, X)
    expected = refits(G, np.ones((60, 1)), y, w, lam)
    assert both_ways(problem) == pytest.approx(expected, rel=1e-8, abs=1e-8)
    if max_rank is None:
        assert pytest.approx(KERNEL(X), abs=1e-9) == G @ G.T
    else:
        assert G.shape[1] == 15


@pytest.mark.later
@pytest.mark.parametrize("ridge", [0.0, 2.0])
def test_parametric_variables(ridge):
    X, y = data(40)
    F = np.column_stack([np.ones(40), X])
    theta, beta = ko.Theta(KERNEL), cp.Variable(3)
    penalty = 0.1 * ko.sum_squares(theta) + ridge * cp.sum_squares(beta)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X) - F @ beta) / 40 + penalty))
    problem.solve()
    expected = refits(coordinates(problem, theta, X), F, y, np.full(40, 1 / 40), 0.1, ridge=ridge)
    assert both_ways(problem) == pytest.approx(expected, rel=1e-8, abs=1e-8)


@pytest.mark.later
def test_outputs_keep_the_shape():
    X, y = data(30)
    Y = np.column_stack([y, np.cos(y)])
    theta, b = ko.Theta(KERNEL, outputs=2), cp.Variable((1, 2))
    F = theta(X) + np.ones((30, 1)) @ b
    problem = ko.Problem(cp.Minimize(cp.sum_squares(Y - F) + 0.3 * ko.sum_squares(theta)))
    problem.solve()
    G = coordinates(problem, theta, X)
    expected = np.column_stack([refits(G, np.ones((30, 1)), Y[:, k], np.ones(30), 0.3) for k in range(2)])
    found = both_ways(problem)
    assert found.shape == (30, 2)
    assert found == pytest.approx(expected, rel=1e-8, abs=1e-8)


@pytest.mark.later
def test_several_thetas_with_a_common_variable():
    X, y = data(30)
    other = ko.kernels.Gaussian(sigma=0.3)
    first, second, b = ko.Theta(KERNEL), ko.Theta(other), cp.Variable()
    penalty = 0.5 * ko.sum_squares(first) + 0.2 * ko.sum_squares(second)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - first(X) - second(X) - b) + penalty))
    problem.solve(rank_tol=1e-12)
    G = np.linalg.cholesky(KERNEL(X) / 0.5 + other(X) / 0.2)
    expected = refits(G, np.ones((30, 1)), y, np.ones(30), 1.0)
    assert ko.leave_one_out(problem) == pytest.approx(expected, rel=1e-8, abs=1e-8)


@pytest.mark.later
def test_units_signs_and_order_are_those_of_the_squared_expressions():
    X, y = data(30)
    Z, z = data(10, seed=1)
    w = np.linspace(0.5, 2, 30)
    theta, b = ko.Theta(KERNEL), cp.Variable()
    weighted = cp.sum_squares(cp.multiply(np.sqrt(w), y - theta(X) - b))
    objective = 0.2 * ko.sum_squares(theta) + weighted + 0.01 * cp.square(b) + 3 * cp.sum(cp.square(theta(Z) + b - z))
    problem = ko.Problem(cp.Maximize(-objective + 0.0))
    problem.solve()
    G = np.linalg.cholesky(KERNEL(np.vstack([X, Z])))
    weights = np.concatenate([w, np.full(10, 3.0)])
    expected = refits(G, np.ones((40, 1)), np.concatenate([y, z]), weights, 0.2, ridge=0.01)
    expected[:30] *= np.sqrt(w)
    expected[30:] *= -1
    assert both_ways(problem) == pytest.approx(expected, rel=1e-8, abs=1e-8)


@pytest.mark.slow
def test_parameters_count_with_their_present_values():
    X, y = data(40)
    theta, b, lam, targets = ko.Theta(KERNEL), cp.Variable(), cp.Parameter(nonneg=True), cp.Parameter(40)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(targets - theta(X) - b) + lam * ko.sum_squares(theta)))
    lam.value, targets.value = 1.0, y
    problem.solve()
    G = np.linalg.cholesky(KERNEL(X))
    fitted = theta.value(X)
    for value, now in ((0.1, y), (10.0, np.cos(y)), (3.0, y)):
        lam.value, targets.value = value, now
        expected = refits(G, np.ones((40, 1)), now, np.ones(40), value)
        assert ko.leave_one_out(problem) == pytest.approx(expected, rel=1e-8, abs=1e-8)
    assert theta.value(X) == pytest.approx(fitted)  # the fit stays where it was


@pytest.mark.later
def test_weights_may_be_parameters():
    X, y = data(40)
    theta, weights = ko.Theta(KERNEL), cp.Parameter(40, nonneg=True, value=np.ones(40))
    problem = ko.Problem(cp.Minimize(weights @ cp.square(y - theta(X)) + ko.sum_squares(theta)))
    problem.solve()
    for w in (np.full(40, 3.0), np.linspace(0.1, 1, 40)):
        weights.value = w
        expected = refits(np.linalg.cholesky(KERNEL(X)), np.zeros((40, 0)), y, w, 1.0)
        assert ko.leave_one_out(problem) == pytest.approx(expected, rel=1e-8, abs=1e-8)


@pytest.mark.later
def test_decomposition_is_made_once_it_pays_and_kept():
    X, y = data(40)
    theta, lam = ko.Theta(KERNEL), cp.Parameter(nonneg=True, value=1.0)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta)))
    problem.solve()
    kept = problem._left_off.kept
    for value in np.geomspace(0.01, 10, 30):
        lam.value = value
        ko.leave_one_out(problem)
    assert problem._left_off.kept is kept
    assert kept.spectrum is not None
    problem.solve()
    assert problem._left_off.kept is kept


@pytest.mark.slow
def test_a_row_that_alone_determines_its_prediction():
    theta, b = ko.Theta(KERNEL), cp.Variable()
    problem = ko.Problem(cp.Minimize(cp.sum_squares([2.0] - theta(np.zeros((1, 1))) - b) + ko.sum_squares(theta)))
    problem.solve()
    assert np.isnan(ko.leave_one_out(problem)).all()


@pytest.mark.parametrize("solver", ["CLARABEL", "NEWTON"])
def test_any_solver_may_have_solved(solver):
    X, y = data(20)
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)) + ko.sum_squares(theta)))
    problem.solve(solver=solver)
    expected = refits(np.linalg.cholesky(KERNEL(X)), np.zeros((20, 0)), y, np.ones(20), 1.0)
    assert ko.leave_one_out(problem) == pytest.approx(expected, rel=1e-8, abs=1e-8)


@pytest.mark.slow
def test_what_has_no_closed_form():
    X, y = data(20)
    theta = ko.Theta(KERNEL)
    f, penalty = theta(X), ko.sum_squares(theta)
    unsolved = ko.Problem(cp.Minimize(cp.sum_squares(y - f) + penalty))
    with pytest.raises(KernelOptError, match="solve"):
        ko.leave_one_out(unsolved)
    problems = [
        ko.Problem(cp.Minimize(cp.sum(ko.losses.absolute_error(y, f)) + penalty)),
        ko.Problem(cp.Minimize(cp.sum_squares(y - f) + penalty), [f[0] <= 1]),
        ko.Problem(cp.Minimize(cp.sum_squares(y - f) + ko.norm(theta))),
        ko.Problem(cp.Minimize(cp.sum_squares(y - f)), [ko.norm(theta) <= 1]),
    ]
    for problem in problems:
        problem.solve()
        with pytest.raises(KernelOptError, match="Expected an objective of squares and λ"):
            ko.leave_one_out(problem)
    linear = ko.Problem(cp.Minimize(cp.sum(f) + penalty))
    linear.solve()
    with pytest.raises(KernelOptError, match="Expected squares of predictions"):
        ko.leave_one_out(linear)


def test_other_threads_wait_for_paths_and_gradients():
    """Paths and folds move parameters of the problem, which a solve in another thread would take for its own."""
    theta, X = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), np.linspace(0, 5, 20)[:, None]
    lam, w = cp.Parameter(pos=True, value=0.1), cp.Parameter(20, nonneg=True, value=np.ones(20))
    errors = cp.square(np.sin(X[:, 0]) - theta(X))
    problem = ko.Problem(cp.Minimize(w @ errors + lam * ko.sum_squares(theta)))
    truth = problem.solve()
    found, began = [], threading.Event()

    def watched(answered):
        began.set()
        return float(answered.value)

    def other():
        began.wait()
        found.extend(problem.solve() for _ in range(3))

    def once():
        found.append(float(ko.gradient(problem, problem.objective, [lam]).value))

    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    ko.path(problem, lam, np.geomspace(1e-3, 10, 30), evaluate=watched)
    ko.cross_validate(problem, w, lam, [0.01, 1.0], cv=4)
    thread.join()
    workers = [threading.Thread(target=once, daemon=True) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == pytest.approx(6 * [truth], rel=1e-6)
