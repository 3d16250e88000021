"""ko.path: rows against single solves and closed forms, the spacing's promise, and what a table is good for."""

import pickle
import re
import sys
import time
import tracemalloc
from html.parser import HTMLParser

import cvxpy as cp
import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

import kernelopt as ko
from kernelopt.errors import (
    DataError,
    DataTypeError,
    KernelError,
    KernelOptError,
    MissingPackageError,
    OptionError,
    ParameterError,
    SolverError,
)
from kernelopt.model_selection import paths

mpl.use("Agg")
import matplotlib.pyplot as plt

RNG = np.random.default_rng(0)
N = 20
X = RNG.uniform(-2, 2, size=(N, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * RNG.normal(size=N)
LABELS = np.where(Y > 0, 1.0, -1.0)
KERNEL = ko.kernels.Gaussian(sigma=1.0)
Q = KERNEL(X)
VALUES = [0.03, 0.3, 3.0, 30.0]


def ridge(value=None):
    """min ‖Y − Aθ‖² + λ‖θ‖², and λ."""
    theta, lam = ko.Theta(KERNEL), cp.Parameter(nonneg=True, name="lam", value=value)
    return ko.Problem(cp.Minimize(cp.sum_squares(Y - theta(X)) + lam * ko.sum_squares(theta))), lam


def ridge_value(lam):
    """λYᵀ(Q + λI)⁻¹Y"""
    return lam * Y @ np.linalg.solve(Q + lam * np.eye(N), Y)


def svm():
    theta, b, lam = ko.Theta(KERNEL), cp.Variable(name="b"), cp.Parameter(nonneg=True, name="lam")
    loss = cp.sum(ko.losses.hinge(LABELS, theta(X) + b))
    return ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta))), lam


def ball():
    theta, R = ko.Theta(KERNEL), cp.Parameter(nonneg=True, name="R")
    return ko.Problem(cp.Minimize(cp.sum_squares(Y - theta(X))), [ko.norm(theta) <= R]), R


def unsquared():
    theta, lam = ko.Theta(KERNEL), cp.Parameter(nonneg=True, name="lam")
    return ko.Problem(cp.Minimize(cp.sum_squares(Y - theta(X)) + lam * ko.norm(theta))), lam


# ---------------------------------------------------------------- rows


def test_rows_against_the_closed_form():
    problem, lam = ridge()
    path = ko.path(problem, lam, VALUES)
    assert np.array_equal(path["lam"], VALUES)
    exact = np.array([ridge_value(v) for v in VALUES])
    assert np.all(path["lower"] <= exact * (1 + 1e-12)) and np.all(exact <= path["upper"] * (1 + 1e-12))
    assert np.abs(path["objective"] - exact).max() < 1e-5
    assert set(path["status"]) == {"optimal"}
    assert path["gap"].max() <= 1e-6
    for value, norm, solution in zip(VALUES, path["norm"], path.solutions, strict=True):
        alpha = np.linalg.solve(Q + value * np.eye(N), Y)
        (function,) = solution.functions.values()
        assert abs(norm - np.sqrt(alpha @ Q @ alpha)) < 1e-4
        assert np.abs(function(X) - Q @ alpha).max() < 1e-3
        assert solution.certificate.relative_gap <= 1e-6
    assert path.certificates == tuple(s.certificate for s in path.solutions)
    assert path["support"].tolist() == [N] * 4  # residuals are not zero
    assert np.all(path["seconds"] > 0)


@pytest.mark.slow
@pytest.mark.parametrize(("state", "values"), [(svm, [0.3, 3.0]), (ball, [0.5, 2.0]), (unsquared, [0.1, 5.0])])
def test_rows_against_single_solves(state, values):
    problem, parameter = state()
    path = ko.path(problem, parameter, values)
    for value, solution in zip(values, path.solutions, strict=True):
        single, its = state()
        its.value = value
        objective = single.solve()
        assert solution.status == single.status == "optimal"
        assert abs(solution.objective - objective) <= 2e-6 * abs(objective)
        assert single.certificate.lower - 2e-6 * abs(objective) <= solution.objective
        for v, ours in zip(single.variables(), solution.variables.values(), strict=True):
            assert abs(v.value - ours) < 1e-2


@pytest.mark.later
def test_support_vectors():
    problem, lam = svm()
    path = ko.path(problem, lam, VALUES)
    for row, solution in enumerate(path.solutions):
        path.restore(row)
        (theta,) = problem.thetas()
        nu = np.abs(theta(X).dual_value)
        assert path["support"][row] == (nu > 1e-8 * nu.max()).sum() == len(theta.value.expanded().centers)
        assert solution.supports[theta] == path["support"][row]
    assert path["support"][0] < N


@pytest.mark.slow
def test_what_is_known_about_penalties_and_bounds():
    values = np.geomspace(0.01, 10, 4)
    for state in (svm, unsquared):
        path = ko.path(*state(), values)
        assert np.all(np.diff(path["norm"]) < 1e-6)
        slopes = np.diff(path["objective"]) / np.diff(values)
        assert np.all(slopes > -1e-6) and np.all(np.diff(slopes) < 1e-6)  # increasing and concave in λ
    path = ko.path(*ball(), np.linspace(0.5, 2, 3))
    assert np.all(np.diff(path["objective"]) < 0) and np.all(np.diff(path["objective"], 2) > 0)  # convex in R
    assert np.abs(path["norm"] - path["R"]).max() < 1e-5


def test_order_and_repeats(monkeypatch):
    problem, lam = ridge()
    solved = []
    ours = problem.solve
    monkeypatch.setattr(problem, "solve", lambda **options: (solved.append(float(lam.value)), ours(**options)))
    path = ko.path(problem, lam, np.array([1, 10, 1, 3]))
    assert solved == [10.0, 3.0, 1.0]
    assert path["lam"].tolist() == [1.0, 10.0, 1.0, 3.0]
    assert path.solutions[0] is path.solutions[2]
    assert len(path) == 4
    one = ko.path(problem, lam, [2.0])
    assert one["objective"].shape == (1,) and abs(one["objective"][0] - ridge_value(2.0)) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("loss", [ko.losses.hinge, ko.losses.log_loss])
def test_functions_of_a_table_share_the_points(loss):
    """500 fits of 9000 rows with 1000 columns would take 36 GB as copies; an evaluation keeps none either."""
    points = np.random.default_rng(1).normal(size=(150, 2000))
    labels = np.where(points[:, 0] > 0, 1.0, -1.0)
    theta, b, lam = ko.Theta(ko.kernels.Gaussian(sigma=40.0)), cp.Variable(), cp.Parameter(nonneg=True)
    problem = ko.Problem(cp.Minimize(cp.sum(loss(labels, theta(points) + b)) + lam * ko.sum_squares(theta)))
    ko.path(problem, lam, [1.0])
    tracemalloc.start()
    path = ko.path(problem, lam, np.geomspace(1, 0.01, 8), evaluate=lambda _: theta.value(points[:3]).sum())
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < points.nbytes
    for solution in path.solutions:
        f = solution.functions[theta]
        assert f(points[:3]).sum() == pytest.approx(solution.evaluation["evaluation"], rel=1e-12)
        assert len(pickle.dumps(f.trimmed())) < 3 * points.nbytes
        with pytest.raises(ValueError, match="read-only"):
            f.centers[0, 0] = 1.0


def test_several_thetas_and_outputs():
    first, second = ko.Theta(KERNEL, name="g"), ko.Theta(ko.kernels.Linear(), outputs=2, name="h")
    lam = cp.Parameter(nonneg=True, name="lam")
    loss = cp.sum_squares(Y - first(X)) + cp.sum_squares(np.column_stack([Y, -Y]) - second(X))
    problem = ko.Problem(cp.Minimize(loss + lam * (ko.sum_squares(first) + ko.sum_squares(second))))
    path = ko.path(problem, lam, [1.0])
    (solution,) = path.solutions
    assert {"norm_g", "norm_h", "support_g", "support_h"} < set(path.columns)
    assert path["norm_h"][0] == solution.functions[second].norm
    W = np.linalg.solve(X.T @ X + np.eye(2), X.T @ np.column_stack([Y, -Y]))
    assert abs(path["norm_h"][0] - np.linalg.norm(W)) < 1e-4


@pytest.mark.slow
def test_rows_without_an_answer():
    """An infeasible value is a row like others; integers have no proof and no multipliers."""
    theta, R = ko.Theta(KERNEL), cp.Parameter(nonneg=True, name="R")
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X))), [ko.norm(theta) <= R, theta(X[:1]) >= 1])
    path = ko.path(problem, R, [2.0, 0.5], evaluate=lambda problem: theta.value.norm)
    assert path["status"].tolist() == ["optimal", "infeasible"]
    assert path["objective"][1] == np.inf
    assert path["evaluation"][0] == path["norm"][0]
    for name in ("norm", "support", "gap", "lower", "evaluation"):
        assert np.isnan(path[name][1])
    assert not path.solutions[1].functions
    assert "infeasible" in str(path)

    z, y = cp.Variable(boolean=True), cp.Variable(integer=True)
    lam = cp.Parameter(nonneg=True, name="lam")
    for k, scope in (z, "full kernel"), (y, "solver's word"):  # boxes need bounds
        loss = cp.sum(cp.abs(Y[:5] - theta(X[:5]) - k))
        integer = ko.Problem(cp.Minimize(loss + lam * cp.abs(k)), [cp.abs(theta(X[:5])) <= 0.1])
        path = ko.path(integer, lam, [0.1, 10.0])
        assert [c.scope for c in path.certificates] == [scope] * 2
    assert np.isnan(path["support"]).all() and np.isfinite(path["norm"]).all()
    with pytest.raises(KernelOptError, match="rows with certificates"):
        path.at(1.0)


# ---------------------------------------------------------------- what is left behind


@pytest.mark.slow
def test_the_problem_stands_as_it_stood(monkeypatch):
    problem, lam = svm()
    (theta,), (b,) = problem.thetas(), problem.variables()
    ko.path(problem, lam, VALUES)
    assert (lam.value, theta.value, b.value, problem.value, problem.status) == (None,) * 5
    assert theta(X).dual_value is None
    monkeypatch.setattr("kernelopt.driver.refine.factorize", lambda *a: 1 / 0)
    lam.value = 0.7
    problem.solve()  # the factor was kept
    before = problem.value, theta.value, b.value, theta(X).dual_value, problem.certificate, problem.solver_stats
    ko.path(problem, lam, VALUES)
    after = problem.value, theta.value, b.value, theta(X).dual_value, problem.certificate, problem.solver_stats
    assert lam.value == 0.7
    assert [k for k, (new, old) in enumerate(zip(after, before, strict=True)) if new is not old] == []
    assert problem.verify().passed
    assert problem.certificate_at({lam: 0.7}).closes(1e-6)


@pytest.mark.later
def test_restore():
    problem, lam = svm()
    (theta,), (b,) = problem.thetas(), problem.variables()
    expression = theta(X) + b
    path = ko.path(problem, lam, VALUES)
    for row in (2, 0, 3):
        path.restore(row)
        solution = path.solutions[row]
        assert lam.value == VALUES[row]
        assert problem.value == path["objective"][row] and problem.status == "optimal"
        assert theta.value is solution.functions[theta] and b.value == solution.variables[b]
        assert np.allclose(expression.value, solution.functions[theta](X) + solution.variables[b])
        assert abs(problem.objective.value - problem.value) < 1e-9 * problem.value
        assert problem.certificate is path.certificates[row]
        assert problem.verify().passed
    with pytest.raises(ValueError, match="read-only"):
        path["lam"][0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        solution.variables[b][...] = 1.0


def test_restore_of_a_problem_from_cvxpy():
    Phi, t, lam = cp.Constant(X), cp.Variable(2), cp.Parameter(nonneg=True, name="lam")
    explicit = cp.Problem(cp.Minimize(cp.sum_squares(Phi @ t - Y) + lam * cp.sum_squares(t)))
    A = ko.FeatureMatrix(X, ko.kernels.Linear())
    problem = ko.Problem.from_cvxpy(explicit, theta=t, features={Phi: A})
    path = ko.path(problem, lam, [1.0, 10.0])
    assert t.value is None
    path.restore(1)
    assert np.allclose(t.value, np.linalg.solve(X.T @ X + 10 * np.eye(2), X.T @ Y), atol=1e-4)


@pytest.mark.slow
def test_what_ends_a_path_carries_its_rows(monkeypatch):
    problem, lam = ridge(value=5.0)
    calls = []

    def interrupted(problem):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return 0.0

    with pytest.raises(KeyboardInterrupt) as caught:
        ko.path(problem, lam, VALUES, evaluate=interrupted)
    assert caught.value.path["lam"].tolist() == [3.0, 30.0]  # the largest come first
    assert "2 values" in caught.value.__notes__[0]
    assert lam.value == 5.0 and problem.value is None

    ours = problem.solve
    monkeypatch.setattr(problem, "solve", lambda **o: 1 / 0 if lam.value < 0.1 else ours(**o))
    with pytest.raises(ZeroDivisionError) as caught:
        ko.path(problem, lam, VALUES)
    assert len(caught.value.path) == 3
    with pytest.raises(ZeroDivisionError) as caught:
        ko.path(problem, lam, [0.01])
    assert not hasattr(caught.value, "path")
    monkeypatch.undo()
    with pytest.raises(SolverError, match="NOSUCH"):
        ko.path(problem, lam, VALUES, solver="NOSUCH")
    assert lam.value == 5.0


@pytest.mark.slow
def test_a_time_limit_keeps_the_rows_so_far():
    problem, lam = ridge()
    problem.canonical_form()

    def slow(problem):
        time.sleep(0.1)
        return 0.0

    path = ko.path(problem, lam, VALUES, evaluate=slow, time_limit=0.1)
    assert path["lam"].tolist() == [30.0]
    path = ko.path(problem, lam, between=(0.1, 10.0), evaluate=slow, time_limit=0.1)
    assert path["lam"].tolist() == [0.1]
    assert path.covered == ()
    path = ko.path(problem, lam, between=(0.1, 10.0), evaluate=slow, time_limit=1e-3)
    assert path["lam"].tolist() == [0.1]


# ---------------------------------------------------------------- spacing


@pytest.mark.slow
def test_every_value_is_covered():
    """The optimum at any λ is enclosed by some row to the gap, and the row is that good."""
    problem, lam = ridge()
    path = ko.path(problem, lam, between=(0.02, 2.0), gap=0.1)
    assert path.covered == ((0.02, 2.0),) and path.gap == 0.1
    assert path["lam"][[0, -1]].tolist() == [0.02, 2.0] and np.all(np.diff(path["lam"]) > 0)
    assert 4 < len(path) < 9
    assert "each lam in [0.02, 2]: relative gap ≤ 0.1" in str(path)
    for value in np.geomspace(0.0201, 1.99, 12):
        solution, certificate = path.at(value)
        exact = ridge_value(value)
        assert certificate.relative_gap <= 0.1
        assert certificate.lower <= exact * (1 + 1e-9) and exact <= certificate.upper * (1 + 1e-9)
        (function,) = solution.functions.values()
        attained = np.sum((Y - function(X)) ** 2) + value * function.norm**2
        assert attained - exact <= 0.1 * (Y @ Y - exact)
        nearest = np.searchsorted(path["lam"], value)
        assert solution.parameter in path["lam"][[nearest - 1, nearest]]
    assert lam.value is None and problem.value is None


@pytest.mark.slow
def test_steps_are_as_long_as_they_may_be():
    problem, lam = ridge()
    path = ko.path(problem, lam, between=(0.05, 1.0), gap=0.1)
    for row in range(2, len(path)):
        path.restore(row)
        next_value = path["lam"][row - 1]
        assert problem.certificate_at({lam: next_value}).relative_gap <= 0.1
        farther = path["lam"][row] * (next_value / path["lam"][row]) ** 1.2
        assert problem.certificate_at({lam: farther}).relative_gap > 0.1
    finer = ko.path(problem, lam, between=(0.05, 1.0), gap=0.025)
    assert 1.5 < (len(finer) - 1) / (len(path) - 1) < 2.5  # 1/√gap


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "between", "gap"),
    [(svm, (0.2, 5.0), 0.2), (ball, (1.0, 3.0), 0.5), (unsquared, (5.0, 50.0), 0.6), (ball, (0.0, 0.1), 0.7)],
    ids=["svm", "ball", "norm", "ball from 0"],
)
def test_every_value_is_covered_against_solves(state, between, gap):
    """Bounds go upwards; with λ‖θ‖, and from R = 0, θ = 0 is optimal at an end, where no gap is relative."""
    problem, parameter = state()
    path = ko.path(problem, parameter, between=between, gap=gap)
    assert path.covered == (between,)
    assert len(path) > 2
    for value in RNG.uniform(*between, size=2):
        _, certificate = path.at(value)
        parameter.value = value
        exact = problem.solve()
        assert certificate.closes(gap, gap * certificate.floor / 1e-6)
        assert certificate.lower <= exact * (1 + 1e-6) and exact * (1 - 1e-6) <= certificate.upper


@pytest.mark.slow
def test_each_value_is_solved_once(monkeypatch):
    """Also where the walk turns: a bound's answers are infeasible for smaller values."""
    problem, R = ball()
    solved = []
    ours = problem.solve
    monkeypatch.setattr(problem, "solve", lambda **options: (solved.append(float(R.value)), ours(**options)))
    path = ko.path(problem, R, between=(1.0, 5.0), gap=0.7)
    assert sorted(solved) == path["R"].tolist()
    assert solved[:2] == [1.0, 5.0] and len(solved) > 2 and np.all(np.diff(solved[2:]) > 0)


@pytest.mark.later
def test_a_maximize_and_a_parameter_without_a_sign():
    theta, m = ko.Theta(KERNEL), cp.Parameter(name="m")
    loss = cp.sum_squares(Y - theta(X)) + ko.sum_squares(theta)
    problem = ko.Problem(cp.Maximize(-loss), [theta(X[:2]) <= m])
    path = ko.path(problem, m, between=(0.0, 1.0), gap=0.3)
    assert path.covered == ((0.0, 1.0),)
    assert np.all(np.diff(path["objective"]) > -1e-6)
    _, certificate = path.at(0.123)
    m.value = 0.123
    assert certificate.lower - 1e-6 <= problem.solve() <= certificate.upper + 1e-6


def test_one_value_between():
    path = ko.path(*ridge(), between=(2.0, 2.0))
    assert path["lam"].tolist() == [2.0] and path.covered == ((2.0, 2.0),)


@pytest.mark.slow
def test_no_spacing_without_answers():
    theta, R = ko.Theta(KERNEL), cp.Parameter(nonneg=True, name="R")
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X))), [ko.norm(theta) <= R, theta(X[:1]) >= 1])
    with pytest.raises(KernelOptError, match=r"at R = 0.5 the status is 'infeasible' with no certificate.*Raise gap"):
        ko.path(problem, R, between=(0.5, 2.0))
    problem, lam = svm()
    with pytest.raises(KernelOptError, match=r"at lam = 0.1 the status is 'optimal_inaccurate' with the certificate"):
        ko.path(problem, lam, between=(0.1, 1.0), max_rank=2)


@pytest.mark.later
def test_an_answer_for_other_parameters_says_nothing_without_an_upper_bound():
    problem, R = ball()
    R.value = 1.0
    problem.solve()
    smaller = problem.certificate_at({R: 0.5})
    assert smaller.upper == np.inf
    assert not smaller.closes(0.5) and not smaller.closes(0.5, 1e10)


# ---------------------------------------------------------------- input


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"values": [1.0, np.nan]}, DataError, "Expected values to be finite"),
        ({"values": [1.0, -1.0]}, ParameterError, "lam does not take the value -1: .*nonnegative"),
        ({"values": []}, DataError, r"shape \(n,\)"),
        ({"values": [[1.0]]}, DataError, r"got shape \(1, 1\)"),
        ({"values": 1.0}, DataError, r"got shape \(\)"),
        ({"values": ["a"]}, DataTypeError, "real numbers"),
        ({}, OptionError, "values of the parameter, or between"),
        ({"values": [1.0], "between": (0.1, 1.0)}, OptionError, "got both"),
        ({"values": [1.0], "gap": 0.1}, OptionError, "gap together with between"),
        ({"between": (1.0, 0.1)}, DataError, "low ≤ high"),
        ({"between": (0.1, np.inf)}, DataError, "two finite numbers"),
        ({"between": (0.1, 1.0, 10.0)}, DataError, "two finite numbers"),
        ({"between": (-1.0, 1.0)}, ParameterError, "does not take the value -1"),
        ({"between": (0.1, 1.0), "gap": 0.0}, OptionError, "gap to be a number between 0 and 1"),
        ({"between": (0.1, 1.0), "gap": "x"}, OptionError, "gap to be a number between 0 and 1"),
        ({"between": (0.1, 1.0), "certify": False}, OptionError, "certify=True"),
        ({"values": [1.0], "evaluate": 3}, OptionError, "evaluate to be a function"),
        ({"values": [1.0], "evaluate": lambda problem: "x"}, OptionError, "to return a number"),
        ({"values": [1.0], "evaluate": lambda problem: X}, OptionError, "to return a number"),
        ({"values": [1.0], "evaluate": lambda problem: {"gap": 1.0}}, OptionError, "names other than objective"),
        ({"values": [1.0], "time_limit": 0}, OptionError, "time_limit"),
        ({"values": [1.0], "tol": 2.0}, OptionError, "tol"),
    ],
)
def test_bad_input(arguments, error, words):
    problem, lam = ridge(value=5.0)
    with pytest.raises(error, match=words):
        ko.path(problem, lam, **arguments)
    assert lam.value == 5.0 and problem.value is None


@pytest.mark.later
def test_parameters_that_cannot_be_followed():
    theta, weights, lam = ko.Theta(KERNEL), cp.Parameter(N, nonneg=True), cp.Parameter(nonneg=True, name="gap")
    problem = ko.Problem(cp.Minimize(weights @ cp.square(Y - theta(X)) + lam * ko.sum_squares(theta)))
    with pytest.raises(ParameterError, match=r"of this problem \(there are: .*gap"):
        ko.path(problem, cp.Parameter(), [1.0])
    with pytest.raises(ParameterError, match=r"got param.* of shape \(20,\)"):
        ko.path(problem, weights, [1.0])
    with pytest.raises(ParameterError, match="that no other column of the table has; got 'gap'"):
        ko.path(problem, lam, [1.0])
    with pytest.raises(OptionError, match=r"Expected a ko.Problem; got Minimize"):
        ko.path(problem.objective, lam, [1.0])
    count = cp.Parameter(integer=True, name="count")
    whole = ko.Problem(cp.Minimize(cp.sum_squares(Y - theta(X)) + ko.sum_squares(theta)), [theta(X) <= count])
    with pytest.raises(ParameterError, match=r"count does not take the value 1.5"):
        ko.path(whole, count, between=(1, 2))
    assert len(ko.path(whole, count, [1, 2])) == 2


def test_an_answer_at_a_bad_value():
    path = ko.path(*ridge(), [1.0])
    with pytest.raises(ParameterError, match="lam"):
        path.at(-1.0)


# ---------------------------------------------------------------- the table


@pytest.fixture(scope="module")
def table():
    problem, lam = svm()
    (theta,) = problem.thetas()
    return ko.path(
        problem, lam, VALUES,
        evaluate=lambda problem: {"error <1>": np.mean(np.sign(theta.value(X)) != LABELS), "count": len(X)},
    )  # fmt: skip


NAMES = ["lam", "objective", "status", "lower", "upper", "gap", "norm", "support", "seconds", "error <1>", "count"]


def test_columns(table):
    assert list(table) == list(table.columns) == NAMES
    assert all(isinstance(table[name], np.ndarray) and table[name].shape == (4,) for name in table)
    assert table["support"].dtype.kind == "i" and table["gap"].dtype.kind == "f"
    assert np.all(table["count"] == N)
    assert np.all((table["lower"] <= table["objective"]) & (table["objective"] <= table["upper"]))
    with pytest.raises(OptionError, match="one of the columns lam, objective"):
        table["no such"]


def test_a_number_is_a_column_named_evaluation():
    problem, lam = ridge()
    path = ko.path(problem, lam, VALUES, evaluate=lambda problem: problem.value)
    assert np.array_equal(path["evaluation"], path["objective"])


def test_pandas(table, monkeypatch):
    frame = table.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == NAMES
    assert frame.set_index("lam").loc[3.0, "norm"] == table["norm"][2]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingPackageError, match="to_pandas.. needs pandas: pip install pandas"):
        table.to_pandas()
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install matplotlib"):
        table.plot()


def test_text(table):
    lines = str(table).splitlines()
    assert repr(table) == str(table)
    assert lines[0].split(maxsplit=8)[:8] == NAMES[:8]
    assert len(lines) == 5 and len({len(line) for line in lines}) == 1
    for row, line in enumerate(lines[1:]):
        lam, objective, status, lower, upper, gap, *_ = line.split()
        assert (float(lam), status) == (VALUES[row], "optimal")
        assert float(lower) <= table["lower"][row] and table["upper"][row] <= float(upper)  # outward
        assert abs(float(objective) / table["objective"][row] - 1) < 1e-6
        assert re.fullmatch(r"\d\.\de-\d\d", gap)


class Cells(HTMLParser):
    """The text of th and td elements; every element must be closed."""

    def __init__(self):
        super().__init__()
        self.open, self.cells = [], {"th": [], "td": []}

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag in self.cells:
            self.cells[tag].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1] in self.cells:
            self.cells[self.open[-1]][-1] += data


def test_html(table):
    parser = Cells()
    parser.feed(table._repr_html_())
    assert not parser.open
    assert parser.cells["th"] == NAMES
    assert len(parser.cells["td"]) == 4 * len(NAMES)
    assert parser.cells["td"][: len(NAMES)] == [cells[0] for cells in table._cells().values()]


@pytest.mark.later
def test_plot(table):
    axes = table.plot()
    assert axes.get_xlabel() == "lam" and axes.get_xscale() == "log"
    assert [line.get_label() for line in axes.get_lines()] == ["error <1>", "count"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["error <1>", "count"]
    _, own = plt.subplots()
    assert table.plot(x="norm", y="objective", ax=own) is own
    assert (own.get_xlabel(), own.get_ylabel()) == ("norm", "objective")
    assert np.all(np.diff(own.get_lines()[0].get_xdata()) > 0)  # in order of x
    linear = ko.path(*ball(), [1.0, 2.0, 0.5]).plot()
    assert (linear.get_xlabel(), linear.get_ylabel()) == ("R", "objective")
    assert linear.get_xscale() == "linear"
    assert linear.get_lines()[0].get_xdata().tolist() == [0.5, 1.0, 2.0]
    with pytest.raises(OptionError, match="one of the columns"):
        table.plot(y="no such")
    with pytest.raises(OptionError, match="columns of numbers; got 'status'"):
        table.plot(y=["norm", "status"])
    plt.close("all")


@pytest.mark.later
def test_progress(capsys):
    problem, lam = ridge()
    ko.path(problem, lam, VALUES)
    assert capsys.readouterr().err == ""
    ko.path(problem, lam, VALUES, progress=True)
    shown = capsys.readouterr().err
    assert "lam" in shown and "4/4" in shown and re.search(r"gap=\d\.\de[-+]\d\d", shown)


@pytest.mark.slow
def test_the_kernel_matrix_is_held_for_all_values(monkeypatch):
    """Passes of all solves look one kernel matrix up; certificates are those of passes of their own."""
    X, y = np.random.default_rng(3).normal(size=(60, 2)), np.random.default_rng(4).normal(size=60)
    count = []

    def values(a, b):
        count.append(1)
        return float(np.exp(-np.sum((a - b) ** 2)))

    found = {}
    for most in (2000, 0):
        monkeypatch.setattr(paths, "MOST_HELD", most)
        theta, lam = ko.Theta(ko.kernels.FromFunction(values, psd=True)), cp.Parameter(nonneg=True, name="lam")
        problem = ko.Problem(cp.Minimize(cp.sum(cp.abs(theta(X) - y)) + lam * ko.sum_squares(theta)))
        count.clear()
        path = ko.path(problem, lam, np.geomspace(0.1, 1.0, 6))
        found[most] = path, sum(count)
        (link,) = problem.canonical_form().predictions
        assert not link.rows._Q  # nothing stays
        assert all(c.closes(1e-6) and c.assumptions == () for c in path.certificates)
    assert max(count for _, count in found.values()) <= 1.1 * 60 * 61 / 2  # each pair once, in all solves
    for i in range(6):
        ours, theirs = found[2000][0].certificates[i], found[0][0].certificates[i]
        assert max(ours.lower, theirs.lower) <= min(ours.upper, theirs.upper)


@pytest.mark.parametrize(("options", "held"), [({}, True), ({"dtype": "float32"}, False)])
def test_blocks_compute_their_own_kernel_values(options, held):
    problem, _ = ridge()
    (link,) = problem.canonical_form().predictions
    with paths.kernel_values(problem, options):
        assert bool(link.rows._Q) == held
    assert not link.rows._Q


def test_kernel_values_that_are_no_numbers_are_reported_by_the_solve():
    def values(a, b):
        return np.nan

    theta, lam = ko.Theta(ko.kernels.FromFunction(values, psd=True)), cp.Parameter(nonneg=True, name="lam")
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(np.eye(3)) - 1) + lam * ko.sum_squares(theta)))
    with pytest.raises(KernelError):
        ko.path(problem, lam, [1.0, 2.0])


def test_messages_are_short_and_list_parameters():
    problem, lam = ridge()
    with pytest.raises(OptionError, match="return a number") as raised:
        ko.path(problem, lam, VALUES, evaluate=lambda problem: np.arange(500.0) / 7)
    assert len(str(raised.value)) < 300
    lam.value = 1.0
    problem.solve()
    with pytest.raises(ParameterError, match=rf"as keys \(there are: {lam.name()}\); got 'lam'"):
        problem.certificate_at({"lam": 2.0})
