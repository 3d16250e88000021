"""Constraints that no θ meets: the optimum is ∞, whatever points solvers come back with."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from inside import point_of, reduction_of

import kernelopt as ko
from kernelopt.certificate import certify
from kernelopt.compiler import representer, violations
from kernelopt.compiler.outer import outer_of
from kernelopt.driver import convex, diagnosis

KERNELS = {
    "narrow": ko.kernels.Gaussian(sigma=0.7),
    "wide": ko.kernels.Gaussian(sigma=2.0),
    "linear": ko.kernels.Linear(),
    "redundant": ko.kernels.Linear() + ko.kernels.Polynomial(degree=2),
    "rough": ko.kernels.Matern(nu=1.5, sigma=1.0),
}
LOSSES = {
    "absolute": lambda y, f: cp.sum(cp.abs(f)),
    "hinge": lambda y, f: cp.sum(ko.losses.hinge(y, f)),
    "log": lambda y, f: cp.sum(ko.losses.log_loss(y, f)),
    "squared": lambda y, f: cp.sum_squares(y - f),
    "none": lambda y, f: 0.0,
}


def one_row(theta, X):
    return [theta(X[:1]) <= -3, theta(X) >= -2]


def half_of_the_rows(theta, X):
    return [theta(X[: len(X) // 2]) <= -3, theta(X) >= -2]


def overlapping_rows(theta, X):
    return [theta(X[:5]) <= -3, theta(X[3:9]) >= -2]


def a_mean(theta, X):
    return [cp.sum(theta(X)) <= -3 * len(X), theta(X) >= -2]


def by_little(theta, X):
    return [theta(X[: len(X) // 2]) <= -2.001, theta(X) >= -2]


def with_a_slack_of_the_wrong_sign(theta, X):
    return [theta(X[: len(X) // 2]) <= -3, theta(X) >= -2 + cp.Variable(nonneg=True)]


def beside_a_variable(theta, X):
    level = cp.Variable()
    return [theta(X[: len(X) // 2]) >= level + 1, theta(X) <= level - 1]


def a_small_ball(theta, X):
    return [ko.norm(theta) <= 1e-2, theta(X) <= -3]


CONTRADICTIONS = [
    one_row, half_of_the_rows, overlapping_rows, a_mean, by_little, with_a_slack_of_the_wrong_sign, beside_a_variable,
    a_small_ball,
]  # fmt: skip


def stated(constraints, n=150, kernel="narrow", loss="absolute", strength=0.5):
    X = np.random.default_rng(0).normal(size=(n, 2))
    theta = ko.Theta(KERNELS[kernel])
    y = np.where(X[:, 0] * X[:, 1] > 0, 1.0, -1.0)
    objective = LOSSES[loss](y, theta(X)) + strength * ko.sum_squares(theta)
    return ko.Problem(cp.Minimize(objective), constraints(theta, X))


def is_infeasible(problem):
    return problem.solve() == np.inf and problem.status == "infeasible" and problem.certificate is None


@pytest.mark.later
@pytest.mark.one_row
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n", [60, 100, 150, 200, 300])
def test_however_many_rows(n, loss):
    assert is_infeasible(stated(half_of_the_rows, n, loss=loss))


@pytest.mark.later
@pytest.mark.one_row
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("constraints", CONTRADICTIONS)
def test_however_they_contradict_each_other(constraints, kernel):
    assert is_infeasible(stated(constraints, kernel=kernel, loss="hinge"))


@pytest.mark.later
def test_no_rank_and_no_pass_over_the_kernel_is_needed():
    """Rows that contradict each other do so for every kernel: one factor is made, of any rank."""
    problem = stated(half_of_the_rows, 300)
    assert problem.solve(max_rank=3) == np.inf
    assert problem.status == "infeasible"
    assert {attempt.ranks for attempt in problem.solver_stats.attempts} == {(3,)}


@pytest.mark.later
def test_a_maximum_of_nothing():
    stated_otherwise = stated(half_of_the_rows)
    problem = ko.Problem(cp.Maximize(-stated_otherwise.objective.args[0]), stated_otherwise.constraints)
    assert problem.solve() == -np.inf
    assert problem.status == "infeasible"


@pytest.mark.slow
def test_other_outputs_and_other_rows_do_not_contradict():
    """Equal rows have equal predictions output by output, and distinct ones nothing in common."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    theta = ko.Theta(KERNELS["narrow"], outputs=2)
    F = theta(X)
    for constraints, feasible in (
        ([F[:20, 0] <= -3, theta(X[10:])[:, 1] >= -2], True),
        ([F[:20, 0] <= -3, theta(X[20:])[:, 0] >= -2], True),
        ([F[:20, 1] <= -3, theta(X[10:])[:, 1] >= -2], False),
    ):
        problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), constraints)
        problem.solve()
        assert problem.status == ("optimal" if feasible else "infeasible")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("constraints", "n", "loss"),
    [
        (half_of_the_rows, 150, "absolute"),
        (half_of_the_rows, 150, "none"),
        (with_a_slack_of_the_wrong_sign, 60, "none"),
        (with_a_slack_of_the_wrong_sign, 150, "squared"),
        (beside_a_variable, 150, "hinge"),
        (a_mean, 150, "hinge"),
    ],
)
@pytest.mark.parametrize("certify", [True, False])
def test_a_point_of_1e10_is_not_feasible_for_being_large(constraints, n, loss, certify, monkeypatch):
    """Where nothing is proved, solvers' points still have to meet the constraints, in units of the data."""
    monkeypatch.setattr(diagnosis, "diagnose", lambda *_: diagnosis.Diagnosis())
    monkeypatch.setattr(convex, "LEAST_PATIENCE", 0.2)  # SCS finds no other points in five seconds
    problem = stated(constraints, n, loss=loss)
    assert problem.solve(certify=certify, max_rank=n) is None
    assert problem.status == "user_limit"


@pytest.mark.parametrize("size", [1.0, 1e6, 1e12])
def test_a_violation_is_measured_by_the_data(size):
    """Of −2 and −3, 1 is a half and a third, however large the predictions are beside them."""
    X = np.random.default_rng(0).normal(size=(20, 2))
    theta, level = ko.Theta(KERNELS["linear"]), cp.Variable()
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [theta(X) <= level - 3, level <= theta(X[:1]) - 2])
    problem.solve()
    reduction = reduction_of(problem)
    zero = reduction.at_zero((np.array(size),))
    there = replace(zero, u=(np.full(20, size),), t=np.zeros(1))
    found = violations.violation(reduction, there, outer_of(reduction.form).form.data_unit)
    assert found > 1e-2


@pytest.mark.slow
def test_no_upper_bound_from_a_point_far_from_feasible():
    """To first order in the multipliers meeting ‖f‖ ≥ 1 from θ = 0 costs less than it does."""
    X = np.random.default_rng(0).normal(size=(8, 2))
    theta = ko.Theta(KERNELS["narrow"])
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [theta(X) >= 1])
    problem.solve()
    assert problem.status == "optimal"
    reduction = reduction_of(problem)
    at_zero = replace(point_of(problem), v=reduction.at_zero(()).v)
    found = certify(reduction, outer_of(reduction.form), representer.evaluate(reduction, at_zero))
    assert found.upper == np.inf
    assert "no upper bound" in str(found)
    assert found.lower <= problem.value + 1e-6
