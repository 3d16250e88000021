"""Maxima of affine functions: the bounds are minimized out, and their multipliers stand in simplices."""

from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import kernelopt as ko
from kernelopt.compiler.terms import Kinks
from kernelopt.solvers import maxima, proximal_point

RNG = np.random.default_rng(0)
KERNEL = ko.kernels.Gaussian(sigma=1.5)


def classes(n=60, count=4, scale=1.0):
    labels = np.arange(n) % count
    X = RNG.normal(size=(n, 2)) + 1.5 * np.column_stack([np.cos(labels), np.sin(labels)])
    return scale * X, labels, np.eye(count)[labels]


def scores(X, count, intercept=True):
    theta, b = ko.Theta(KERNEL, outputs=count), cp.Variable(count)
    U = theta(X)
    return theta, U + np.ones((len(X), 1)) @ cp.reshape(b, (1, count), order="C") if intercept else U, b


def crammer_singer(U, Y):
    """Σ max over k of (u_k + 1 − Y_k) − u_label (Crammer and Singer, 2001)."""
    return cp.sum(cp.max(U + 1 - Y, axis=1) - cp.sum(cp.multiply(Y, U), axis=1))


def differences(U, Y):
    """The same with the row's own score subtracted: each argument combines two predictions."""
    own = cp.reshape(cp.sum(cp.multiply(Y, U), axis=1), (len(Y), 1), order="C") @ np.ones((1, Y.shape[1]))
    return cp.sum(cp.max(U - own + 1 - Y, axis=1))


def slacks(U, Y):
    """The same with slack variables of the user's own: the loss, and its constraints."""
    xi = cp.Variable(len(Y))
    own = cp.reshape(cp.sum(cp.multiply(Y, U), axis=1), (len(Y), 1), order="C") @ np.ones((1, Y.shape[1]))
    return cp.sum(xi), [own - U >= 1 - Y - cp.reshape(xi, (len(Y), 1), order="C") @ np.ones((1, Y.shape[1]))], xi


def checked(problem, reference="CLARABEL", tol=1e-6):
    """Solved by default by PROXIMAL_POINT, to the certified gap, and as the reference solves it."""
    value = problem.solve(tol=tol)
    assert problem.status == "optimal"
    assert problem.solver_stats.solver_name == "PROXIMAL_POINT"
    assert problem.certificate.relative_gap <= tol
    assert problem.verify().passed
    expected = problem.solve(solver=reference, tol=tol, warm_start=False)
    unit = abs(problem.certificate.absolute_gap) + tol * abs(expected)
    assert value == pytest.approx(expected, abs=10 * unit)


@pytest.mark.slow
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("lam", [10.0, 0.1, 1e-3])
def test_crammer_singer(intercept, lam):
    X, _, Y = classes()
    theta, U, _ = scores(X, 4, intercept)
    checked(ko.Problem(cp.Minimize(crammer_singer(U, Y) + lam * ko.sum_squares(theta))))


@pytest.mark.slow
def test_ways_to_write_it():
    """One optimum, whichever way the loss is written; the user's slacks are the losses."""
    X, labels, Y = classes()
    values = []
    for write in (crammer_singer, differences, slacks):
        theta, U, _ = scores(X, 4)
        loss, constraints, xi = (*[write(U, Y)], [], None) if write is not slacks else write(U, Y)
        problem = ko.Problem(cp.Minimize(loss + 0.1 * ko.sum_squares(theta)), constraints)
        values.append(problem.solve())
        assert problem.solver_stats.solver_name == "PROXIMAL_POINT"
    np.testing.assert_allclose(values, values[0], rtol=1e-6)
    margins = U.value + 1 - Y - U.value[np.arange(len(Y)), labels][:, None]
    np.testing.assert_allclose(xi.value, margins.max(axis=1), atol=1e-6)
    duals = constraints[0].dual_value
    assert duals.min() >= 0
    np.testing.assert_allclose(duals.sum(axis=1), 1, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 12, 30])
def test_any_number_of_classes(count):
    """More classes than auxiliary variables may have rows, and than a column of the checker's pivots has entries."""
    X, _, Y = classes(90, count)
    theta, U, _ = scores(X, count)
    problem = ko.Problem(cp.Minimize(crammer_singer(U, Y) + 0.1 * ko.sum_squares(theta)))
    problem.solve()
    assert problem.status == "optimal"
    assert problem.solver_stats.solver_name == "PROXIMAL_POINT"


def constraint_on_predictions(U, b):
    return [U[:5, 0] >= 0.5]


def equation(U, b):
    return [cp.sum(b) == 1]


def sum_of_predictions(U, b):
    return [cp.sum(U[:, 0]) == 3]


@pytest.mark.slow
@pytest.mark.parametrize("constraint", [constraint_on_predictions, equation, sum_of_predictions])
def test_constraints_beside_maxima(constraint):
    X, _, Y = classes(50, 3)
    theta, U, b = scores(X, 3)
    checked(ko.Problem(cp.Minimize(crammer_singer(U, Y) + 0.1 * ko.sum_squares(theta)), constraint(U, b)))


@pytest.mark.slow
def test_other_losses_beside_maxima():
    """Boxes and curved stretches of multipliers beside simplices."""
    X, _, Y = classes(40, 3)
    theta, U, b = scores(X, 3)
    others = cp.sum(cp.huber(U[:, 0])) + cp.sum(cp.pos(1 - U[:10, 1])) + cp.norm1(b)
    checked(ko.Problem(cp.Minimize(crammer_singer(U, Y) + others + 0.1 * ko.sum_squares(theta))))


@pytest.mark.slow
@pytest.mark.parametrize("penalty", ["norm", "ball"])
def test_unsquared_norms(penalty):
    X, _, Y = classes(40, 3)
    theta, U, _ = scores(X, 3)
    loss, length = crammer_singer(U, Y), ko.norm(theta, "fro")
    checked(
        ko.Problem(cp.Minimize(loss + length)) if penalty == "norm" else ko.Problem(cp.Minimize(loss), [length <= 3])
    )


@pytest.mark.slow
def test_weights_of_zero_and_repeated_rows():
    X, _, Y = classes(40, 3)
    X, Y = np.vstack([X, X[:10], X[:10]]), np.vstack([Y, Y[:10], Y[10:20]])
    weights = np.r_[np.zeros(5), RNG.integers(1, 9, size=len(X) - 5) / 2]  # sums of them are exact
    theta, U, _ = scores(X, 3)
    each = cp.max(U + 1 - Y, axis=1) - cp.sum(cp.multiply(Y, U), axis=1)
    checked(ko.Problem(cp.Minimize(weights @ each + 0.01 * ko.sum_squares(theta))))


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1e-8, 1e6])
def test_units(unit):
    """The objective in other units: the same θ, times the unit of the targets."""
    X, _, Y = classes(40, 3)
    theta, U, _ = scores(X, 3)
    each = cp.max(U + unit * (1 - Y), axis=1) - cp.sum(cp.multiply(Y, U), axis=1)
    problem = ko.Problem(cp.Minimize(cp.sum(each) + 0.1 / unit * ko.sum_squares(theta)))
    value = problem.solve()
    assert problem.status == "optimal"
    theta, U, _ = scores(X, 3)
    plain = ko.Problem(cp.Minimize(crammer_singer(U, Y) + 0.1 * ko.sum_squares(theta)))
    assert value / unit == pytest.approx(plain.solve(), rel=1e-5)


@pytest.mark.slow
def test_a_few_maxima_are_left_to_other_solvers():
    """One maximum over all rows has one bound: a variable as others. The solver takes it where it is asked."""
    X = RNG.normal(size=(80, 2))
    y = np.sin(X[:, 0]) + 0.3 * RNG.normal(size=80)
    theta, b = ko.Theta(KERNEL), cp.Variable()
    residual = theta(X) + b - y
    worst = cp.max(cp.hstack([residual, -residual]))
    problem = ko.Problem(cp.Minimize(worst + 1e-3 * ko.sum_squares(theta)))
    value = problem.solve()
    assert problem.solver_stats.solver_name != "PROXIMAL_POINT"
    assert problem.solve(solver="PROXIMAL_POINT", warm_start=False) == pytest.approx(value, rel=1e-6)


@pytest.mark.slow
def test_a_path_starts_from_its_neighbour(monkeypatch):
    X, _, Y = classes(60, 4)
    theta, U, _ = scores(X, 4)
    lam = cp.Parameter(nonneg=True, value=1.0)
    problem = ko.Problem(cp.Minimize(crammer_singer(U, Y) + lam * ko.sum_squares(theta)))
    problem.solve()
    cold = problem.solver_stats.num_iters
    lam.value = 0.9
    problem.solve()
    assert problem.solver_stats.solver_name == "PROXIMAL_POINT"
    assert problem.solver_stats.num_iters <= cold
    monkeypatch.setattr(proximal_point._KernelRun, "first", None)  # a warm start takes no gradient steps
    lam.value = 0.8
    problem.solve()
    assert problem.status == "optimal"


@pytest.mark.later
def test_a_time_limit_keeps_the_best_point():
    X, _, Y = classes(60, 4)
    theta, U, _ = scores(X, 4)
    problem = ko.Problem(cp.Minimize(crammer_singer(U, Y) + 1e-3 * ko.sum_squares(theta)))
    problem.solve(time_limit=1e-3)
    assert problem.status == "user_limit"
    assert np.isfinite(problem.value)
    assert problem.certificate.lower <= problem.value


@pytest.mark.later
def test_ctrl_c_keeps_the_best_point(monkeypatch):
    X, _, Y = classes(60, 4)
    theta, U, _ = scores(X, 4)
    problem = ko.Problem(cp.Minimize(crammer_singer(U, Y) + 1e-3 * ko.sum_squares(theta)))
    ours, calls = proximal_point._KernelRun.step, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return ours(*arguments)

    monkeypatch.setattr(proximal_point._KernelRun, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        problem.solve()
    assert problem.status == "user_limit"
    assert np.isfinite(problem.value)


@pytest.mark.slow
def test_it_says_what_it_is_for():
    X = RNG.normal(size=(20, 2))
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum(cp.pos(1 - theta(X))) + ko.sum_squares(theta)))
    with pytest.raises(ko.errors.SolverError, match="PROXIMAL_POINT is for maxima of several affine functions"):
        problem.solve(solver="PROXIMAL_POINT")


# ------------------------------------------------------------ simplices, and which columns are bounds


def of(owners, weights):
    owners = np.array(owners)
    return maxima.Maxima(np.arange(len(weights)), -np.ones(len(weights)), np.array(weights, dtype=float), owners)


def test_projection_on_simplices():
    """Entries of several simplices in any order, and one of none: the conditions of optimality hold."""
    groups = of([0, 1, -1, 0, 2, 1, 0, 1, 1], [2.0, 0.5, 3.0])
    v = RNG.normal(size=9)
    found = maxima.on_simplices(v, groups)
    assert found[2] == v[2]
    for k, weight in enumerate(groups.weight):
        mine = groups.of == k
        assert found[mine].min() >= 0
        assert found[mine].sum() == pytest.approx(weight)
        shift = (v - found)[mine]
        assert np.ptp(shift[found[mine] > 0]) < 1e-12
        assert np.all(shift[found[mine] == 0] <= shift[found[mine] > 0].max() + 1e-12)


def inequalities(m):
    zero = np.zeros(m)
    return Kinks(zero, zero, np.arange(m), zero, zero, np.full(m, np.inf), zero)


@pytest.mark.parametrize(
    "kind", ["plain", "scaled", "without cost", "unequal", "of negative cost", "in a loss", "in two"]
)
def test_which_columns_are_bounds(kind):
    """s₀, s₁ ≤ t and s₂, s₃ ≤ t′: t′ is a bound in each case, t only where it is minimized out in closed form."""
    F = np.array([[-1.0, 0], [-1, 0], [0, -1], [0, -1], [0, 0]])
    linear, kinks, slope = np.array([2.0, 3.0]), inequalities(5), np.zeros(5)
    if kind == "scaled":
        F[:2] *= 4
    elif kind == "without cost":
        linear[0] = 0
    elif kind == "unequal":
        F[0] *= 2
    elif kind == "of negative cost":
        linear[0] = -1
    elif kind == "in a loss":
        slope[1] = 1
    elif kind == "in two":
        F[4] = [-1, -1]
    found = maxima.found(sp.csr_array(F), linear, slope, kinks)
    if kind in ("plain", "scaled", "without cost"):
        assert found.columns.tolist() == [0, 1]
        weights = {"plain": 2.0, "scaled": 0.5, "without cost": 0.0}
        np.testing.assert_allclose(found.weight, [weights[kind], 3.0])
        assert found.of.tolist() == [0, 0, 1, 1, -1]
    elif kind == "in two":  # one of both
        assert len(found.columns) == 1
    else:
        assert found.columns.tolist() == [1]
        assert found.of.tolist() == [-1, -1, 0, 0, -1]


def test_a_bound_may_gain_nothing_however_little():
    """−½·t with s₀ ≤ t is unbounded below, and t no bound of a maximum."""
    found = maxima.found(sp.csr_array([[-1.0]]), np.array([-0.5]), np.zeros(1), inequalities(1))
    assert found.columns.tolist() == []


@pytest.mark.parametrize("slope", [0.0, 1.0])
def test_no_step_where_the_function_does_not_fall(slope):
    zero = np.zeros(1)
    run = SimpleNamespace(F=np.zeros((1, 1)), multipliers=lambda *_: np.full(1, slope), residual=lambda _: zero)
    step = proximal_point._Place(zero, zero, np.ones(1))
    assert proximal_point._length(run, proximal_point._Place(zero, zero, zero), zero, 1.0, step) == 0.0


@pytest.mark.parametrize("enough", [True, False])
def test_systems_that_take_too_much_memory_are_refused(monkeypatch, enough):
    """Two dense matrices with a row for each of 10 free directions, among 30 multipliers."""

    def begun(_):
        raise LookupError

    free = sp.csr_array(np.eye(10, 30)), np.ones(10)
    run = SimpleNamespace(free_directions=lambda *_: free, E=sp.eye_array(30), space=SimpleNamespace(gram=begun))
    bytes_left = 2 * 8 * 10**2 / proximal_point.HELD * (1.01 if enough else 0.99)
    monkeypatch.setattr(proximal_point.memory, "available_bytes", lambda: bytes_left)
    with pytest.raises(LookupError if enough else ko.errors.SolverError):
        proximal_point._KernelRun.step(run, np.zeros(30), 1.0, np.zeros(30), np.zeros(30), np.zeros(0))


def test_the_curvature_of_free_multipliers():
    """1/(1/σ + ρ) for an entry inside of its box; the entry at the end of its box is not free."""
    box = SimpleNamespace(low=np.zeros(3), high=np.ones(3), rho=np.array([0.5, 0.25, 0.0]))
    run = SimpleNamespace(p=box, maxima=of([-1, -1, -1], []), grouped=np.arange(0))
    G, weight = proximal_point._KernelRun.free_directions(run, np.array([0.5, 0.5, 1.0]), 2.0)
    assert G.toarray().tolist() == np.eye(3)[:2].tolist()
    assert weight == pytest.approx([1 / (0.5 + 0.5), 1 / (0.5 + 0.25)])
