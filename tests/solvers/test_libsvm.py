"""libsvm finds a first point of support vector machines; everybody else judges it."""

import sys
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from inside import reduction_of
from sklearn.svm import SVC, SVR, _libsvm

import kernelopt as ko
from kernelopt.compiler.terms import Kinks
from kernelopt.solvers import active_set, assemble, augmented_lagrangian, libsvm, machines
from kernelopt.solvers.watch import Watch

RNG = np.random.default_rng(0)
N = 60
X = RNG.normal(size=(N, 4))
LABELS = np.sign(X[:, 0] + 0.5 * RNG.normal(size=N))
TARGET = np.sin(2 * X[:, 0]) + 0.3 * RNG.normal(size=N)
WEIGHTS = RNG.uniform(0.5, 2.0, size=N)
SOME = WEIGHTS * (np.arange(N) % 3 > 0)
# Losses of f = θ(X) + b·(a column), and that column.
KNOWN = {
    "hinge": (lambda f: cp.sum(ko.losses.hinge(LABELS, f)), 1.0),
    "weighted hinge": (lambda f: WEIGHTS @ ko.losses.hinge(LABELS, f), 1.0),
    "weights of 0": (lambda f: SOME @ ko.losses.hinge(LABELS, f), 1.0),
    "a margin of 3": (lambda f: cp.sum(cp.pos(3 - cp.multiply(LABELS, f))), 1.0),
    "other columns": (lambda f: cp.sum(ko.losses.hinge(LABELS, f)), -2.0),
    "tube": (lambda f: cp.sum(ko.losses.epsilon_insensitive(TARGET, f, 0.2)), 1.0),
    "weighted tube": (lambda f: WEIGHTS @ ko.losses.epsilon_insensitive(TARGET, f, 0.2), -0.5),
    "small units": (lambda f: 1e-8 * cp.sum(ko.losses.epsilon_insensitive(1e-8 * TARGET, f, 2e-9)), 1.0),
}
OTHERS = {
    "two margins": (lambda f: cp.sum(cp.pos(1 + np.arange(N) % 2 - cp.multiply(LABELS, f))), 1.0),
    "absolute": (lambda f: cp.sum(cp.abs(f - TARGET)) + cp.sum(cp.abs(f)), 1.0),
    "pinball": (lambda f: cp.sum(ko.losses.pinball(TARGET, f, 0.3)), 1.0),
    "tubes": (lambda f: cp.sum(cp.pos(cp.abs(f - TARGET) - WEIGHTS)), 1.0),
    "squared": (lambda f: cp.sum(ko.losses.squared_hinge(LABELS, f)), 1.0),
    "logistic": (lambda f: cp.sum(ko.losses.log_loss(LABELS, f)), 1.0),
    "no intercept": (lambda f: cp.sum(ko.losses.hinge(LABELS, f)), 0.0),
    "a cost of b": (lambda f: cp.sum(ko.losses.hinge(LABELS, f)) + 0.3 * f[0], 1.0),
}


def stated(name, lam=0.1):
    loss, column = (KNOWN | OTHERS)[name]
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=2.0)), cp.Variable()
    unit = 1e-8 if name == "small units" else 1.0
    return ko.Problem(cp.Minimize(loss(theta(X) + column * b) + lam * ko.sum_squares(theta))), unit


def structured_of(problem, lam=0.1):
    problem.solve()
    return assemble.structured(reduction_of(problem), problem._outer(), {0: 2 * lam})


@pytest.mark.parametrize("name", KNOWN)
def test_first_point(name):
    """Its gap is about libsvm's tolerance, and active sets end from there in a few systems."""
    problem, unit = stated(name)
    inner = structured_of(problem)
    point = libsvm.first_point(inner, np.inf)
    whole = libsvm.completed(inner, point)
    assert whole.gap <= 0.05 * whole.unit
    assert point.s == pytest.approx(whole.s, rel=1e-9, abs=1e-9 * np.abs(whole.s).max())
    watch = Watch("", 1e-9, 1e-12 * unit**2, unit)
    found = active_set.solve(inner, watch, point, fits=True)
    assert found is not None and watch.systems <= 6
    assert found.gap <= 1e-9 * found.unit
    assert problem.status == "optimal" and problem.solver_stats.solver_name == "AUGMENTED_LAGRANGIAN"
    value = problem.value
    problem.solve(solver="INTERIOR_POINT", warm_start=False)
    assert value == pytest.approx(problem.value, rel=2e-6)


@pytest.mark.later
@pytest.mark.parametrize("name", OTHERS)
def test_other_problems(name):
    problem, _ = stated(name)
    assert libsvm.first_point(structured_of(problem), np.inf) is None
    assert assemble.shape_of(problem.canonical_form(), problem._outer()).machine == 0


@pytest.mark.slow
def test_what_it_is_not_asked_for(monkeypatch):
    """Without time, memory or scikit-learn, other solvers begin from nothing; so they do where one class has weight."""
    problem, _ = stated("hinge")
    inner = structured_of(problem)
    value = problem.value
    assert libsvm.first_point(inner, 1e-9) is None
    monkeypatch.setattr(libsvm.memory, "available_bytes", lambda: 1000.0)
    assert libsvm.first_point(inner, np.inf) is not None  # a few MB are there without a look
    monkeypatch.setattr(libsvm.memory, "LITTLE", 0)
    assert libsvm.first_point(inner, np.inf) is None
    monkeypatch.undo()
    monkeypatch.setattr(machines, "is_installed", lambda: False)
    problem.solve(solver="AUGMENTED_LAGRANGIAN", warm_start=False)
    assert problem.value == pytest.approx(value, rel=1e-6)
    assert problem.solvers().chosen == "INTERIOR_POINT"
    monkeypatch.undo()
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=2.0)), cp.Variable()
    losses = (LABELS > 0) @ ko.losses.hinge(LABELS, theta(X) + b)
    one = ko.Problem(cp.Minimize(losses + 0.1 * ko.sum_squares(theta)))
    assert one.solve() == pytest.approx(0.0, abs=1e-8)
    assert one.status == "optimal"


@pytest.mark.later
def test_iterations_that_run_out(monkeypatch):
    """A point far from the optimum is a start like others."""
    monkeypatch.setattr(libsvm, "ITERATIONS", 0.1)
    problem, _ = stated("hinge", lam=1e-6)
    problem.solve(solver="AUGMENTED_LAGRANGIAN")
    assert problem.status == "optimal"
    inner = structured_of(problem, lam=1e-6)
    point = libsvm.completed(inner, libsvm.first_point(inner, np.inf))
    assert point.gap > 0.05 * point.unit


def test_a_coarse_tolerance_takes_its_point():
    """Where half of the tolerance is reached by libsvm's point, no system is solved; the certificate proves it."""
    problem, _ = stated("hinge")
    problem.solve(tol=1e-3)
    assert problem.solver_stats.num_iters == 0
    assert problem.status == "optimal" and problem.certificate.relative_gap <= 1e-3
    fine, _ = stated("hinge")
    assert fine.solve(tol=1e-6) <= problem.certificate.upper
    assert fine.solver_stats.num_iters > 0


def test_failures_from_neighbours_are_counted(monkeypatch):
    """After each failure from the last λ, active sets wait for 1, 2, 4 … problems before they are tried from there."""
    problem, _ = stated("hinge")
    inner, solve, from_neighbours = structured_of(problem), active_set.solve, []

    def counted(problem, watch, start, fits=False):
        from_neighbours.append(not fits)
        return solve(problem, watch, start, fits) if fits else None

    monkeypatch.setattr(active_set, "solve", counted)
    point = None
    for _ in range(12):
        point = augmented_lagrangian.solve(inner, Watch("", 1e-9, 1e-12, 1.0), point)
    assert sum(from_neighbours) == 4  # the second, fourth, seventh and twelfth problem


@pytest.mark.parametrize("name", ["hinge", "weights of 0", "tube"])
def test_rows_that_a_neighbour_leaves_out(name):
    """Rows far from their kinks are left out, and the point is that of all rows, to libsvm's tolerance."""
    problem, _ = stated(name, 0.02)
    inner = structured_of(problem, 0.02)
    near = augmented_lagrangian.solve(inner, Watch("", 1e-9, 1e-12, 1.0))
    if name == "tube":  # nobody is far from both ends of a tube
        assert libsvm.first_point(inner, np.inf, near=near) is None
        return
    tried = []
    solved = libsvm._solved
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(libsvm, "_solved", lambda machine, *rest: tried.append(machine) or solved(machine, *rest))
        some, everyone = (libsvm.first_point(inner, np.inf, near=one) for one in (near, None))
    assert len(tried[0].rows) < 0.8 * len(tried[1].rows)
    np.testing.assert_allclose(some.s, everyone.s, atol=0.02)


@pytest.mark.parametrize("name", ["hinge", "weighted hinge", "weights of 0", "other columns", "tube", "weighted tube"])
def test_a_row_stands_for_those_that_keep_their_slopes(name, monkeypatch):
    """Rows with a slope that are far from their kinks are one row for libsvm, and the point is that of all rows."""
    lam = 10.0 if name == "weighted tube" else 1.0
    problem, _ = stated(name, lam)
    inner = structured_of(problem, lam)
    near = augmented_lagrangian.solve(inner, Watch("", 1e-9, 1e-12, 1.0))
    for constant in ("CLEAR", "HOLD"):
        monkeypatch.setattr(libsvm, constant, 0.05)
    stand_in, rows = libsvm._with_stand_in, []

    def seen(K, *rest):
        rows.append(len(K))
        return stand_in(K, *rest)

    monkeypatch.setattr(libsvm, "_with_stand_in", seen)
    some, everyone = (libsvm.first_point(inner, np.inf, near=one) for one in (near, None))
    assert len(rows) == 1 and rows[0] < 0.5 * np.count_nonzero(everyone.a)
    np.testing.assert_allclose(some.s, everyone.s, atol=0.02)
    np.testing.assert_allclose(some.a, everyone.a, atol=0.05 * inner.high.max())
    assert libsvm.completed(inner, some).gap <= 0.05 * libsvm.completed(inner, everyone).unit


@pytest.mark.parametrize("name", ["hinge", "tube"])
def test_where_all_rows_keep_their_slopes_there_is_nothing_to_solve(name):
    """As where a neighbour is none: all rows are taken then."""
    problem, _ = stated(name, 1.0)
    inner = structured_of(problem, 1.0)
    near = augmented_lagrangian.solve(inner, Watch("", 1e-9, 1e-12, 1.0))
    far = 50 * np.abs(inner.anchor).max()
    beyond = replace(near, s=np.full_like(near.s, far if name == "tube" else 2 * far))
    assert libsvm.first_point(inner, np.inf, near=beyond) is None
    assert augmented_lagrangian.solve(inner, Watch("", 1e-9, 1e-12, 1.0), beyond).gap <= 1e-9


def test_slopes_that_add_up_to_nothing_have_no_row_to_stand_for_them():
    with pytest.raises(ValueError, match="sum"):
        libsvm._with_stand_in(np.eye(3), np.ones(3), np.ones(3), 1e-6)


def test_a_row_that_is_not_at_its_bound_stands_for_nobody(monkeypatch):
    """All rows are taken then."""
    problem, _ = stated("hinge", 1.0)
    inner = structured_of(problem, 1.0)
    near = augmented_lagrangian.solve(inner, Watch("", 1e-9, 1e-12, 1.0))
    stand_in = libsvm._with_stand_in

    def convex(K, *rest):
        K, height = stand_in(K, *rest)
        K[-1, -1] = 1e12  # moves by nothing
        return K, height

    for constant in ("CLEAR", "HOLD"):
        monkeypatch.setattr(libsvm, constant, 0.05)
    assert libsvm.first_point(inner, np.inf, near=near) is not None
    monkeypatch.setattr(libsvm, "_with_stand_in", convex)
    assert libsvm.first_point(inner, np.inf, near=near) is None
    assert augmented_lagrangian.solve(inner, Watch("", 1e-9, 1e-12, 1.0), near).gap <= 1e-9


def test_a_neighbour_that_is_far_away():
    """Rows that were left out wrongly get their slopes from active sets, or from all rows."""
    problem, _ = stated("hinge", 0.02)
    inner = structured_of(problem, 0.02)
    watch = Watch("", 1e-9, 1e-12, 1.0)
    right = augmented_lagrangian.solve(inner, watch)
    wrong = replace(right, s=10.0 * LABELS * (np.arange(N) % 3 > 0), kept=None)
    assert len(libsvm._unclear(inner, libsvm.machine_of(*_kinks(inner)), wrong.s)) < 30
    found, _ = augmented_lagrangian._by_libsvm(inner, watch, wrong)
    assert watch(found, 0)
    assert found.primal == pytest.approx(right.primal, rel=1e-8)


def _kinks(inner):
    zero = np.zeros(inner.m)
    return Kinks(zero, inner.slope, inner.of, inner.anchor, inner.low, inner.high, inner.rho), inner.slope, inner.F


@pytest.mark.parametrize("epsilon", [None, 0.1])
@pytest.mark.parametrize("low_level", [True, False])
def test_the_same_as_scikit_learns_estimators(epsilon, low_level, monkeypatch):
    """Also where scikit-learn has no function for libsvm alone. Labels of one class are refused as there."""
    if not low_level:
        monkeypatch.setattr(libsvm, "_low_level", lambda: None)
    assert (libsvm._low_level() is not None) == low_level
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    Q, C = np.exp(-((X[:, None] - X) ** 2).sum(axis=2)), rng.uniform(0.5, 2, 40)
    y = np.sign(X[:, 0]) if epsilon is None else X[:, 0]
    theirs = (SVC(kernel="precomputed") if epsilon is None else SVR(kernel="precomputed", epsilon=epsilon)).fit(Q, y, C)
    c, intercept = libsvm._trained(Q, y, C, epsilon, 1e-3, -1)
    np.testing.assert_array_equal(np.flatnonzero(c), np.sort(theirs.support_))
    np.testing.assert_array_equal(c[theirs.support_], theirs.dual_coef_[0])
    assert intercept == theirs.intercept_[0]
    if epsilon is None:
        with pytest.raises(ValueError, match="two classes"):
            libsvm._trained(Q, np.ones(40), C, None, 1e-3, -1)


@pytest.mark.parametrize("fit", [lambda X, Y: None, lambda X, Y, kind=0, kernel="", tol=0.0, epsilon=0.1: None])
def test_a_function_with_other_arguments_is_not_called(fit, monkeypatch):
    monkeypatch.setattr(_libsvm, "fit", fit)
    assert libsvm._low_level.__wrapped__() is None
    monkeypatch.delattr(_libsvm, "fit")
    assert libsvm._low_level.__wrapped__() is None


def test_a_second_is_enough_for_few_rows():
    problem, _ = stated("hinge")
    assert libsvm.first_point(structured_of(problem), 1.0) is not None


@pytest.mark.parametrize(("tol", "each"), [(libsvm.TOL, libsvm.ITERATIONS), (libsvm.FINER[0], libsvm.MORE)])
def test_finer_tolerances_take_more_iterations(monkeypatch, tol, each):
    asked = []

    def trained(*options):
        asked.append(options[-1])
        return np.ones(2), 0.0

    monkeypatch.setattr(libsvm, "_trained", trained)
    machine = machines.Machine(np.arange(2), np.array([1.0, -1.0]), np.ones(2), 1.0, 0.0)
    libsvm._solved(machine, np.eye(2), 1.0, tol)
    assert asked == [2 * each]


def test_the_answer_to_other_labels_is_no_neighbour(monkeypatch):
    """Where multipliers are at the wrong ends of their boxes, active sets do not begin with them."""
    problem, _ = stated("hinge")
    inner, from_neighbours, solve = structured_of(problem), [], active_set.solve
    watch = Watch("", 1e-9, 1e-12, 1.0)
    right = augmented_lagrangian.solve(inner, watch)

    def noted(problem, watch, start, fits=False):
        from_neighbours.append(not fits)
        return solve(problem, watch, start, fits)

    monkeypatch.setattr(active_set, "solve", noted)
    for a, near in (right.a, True), (inner.high - right.a, False):
        from_neighbours.clear()
        found = augmented_lagrangian.solve(inner, watch, replace(right, a=a, kept=None))
        assert any(from_neighbours) == near
        assert found.primal == pytest.approx(right.primal, rel=1e-8)


def test_two_copies_of_the_matrix_take_half_of_the_memory(monkeypatch):
    problem, _ = stated("hinge")
    inner = structured_of(problem)
    monkeypatch.setattr(libsvm.memory, "LITTLE", 0)
    for room, is_enough in (1.01, True), (0.99, False):
        monkeypatch.setattr(libsvm.memory, "available_bytes", lambda room=room: room * 2 * 2 * 8 * N**2)
        assert (libsvm.first_point(inner, np.inf) is not None) == is_enough


def test_it_is_loaded_once_it_saves_more_than_loading_takes(monkeypatch):
    """The first fits of a process do not import scikit-learn."""
    monkeypatch.delitem(sys.modules, "sklearn.svm")
    monkeypatch.setattr(machines, "_met", [0])
    problem, _ = stated("hinge")
    problem.solve()
    assert problem.solver_stats.solver_name == "INTERIOR_POINT" and "sklearn.svm" not in sys.modules
    monkeypatch.setattr(machines, "_met", [machines.LOADS])
    again, _ = stated("hinge")
    again.solve()
    assert again.solver_stats.solver_name == "AUGMENTED_LAGRANGIAN"
