"""Central multipliers, from which the interior point starts."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import kernelopt as ko
from kernelopt.factorization.tall import DenseMatrix
from kernelopt.solvers import interior_point
from kernelopt.solvers.dual_point import Point
from kernelopt.solvers.interior_point import _central
from kernelopt.solvers.structured import Structured
from kernelopt.solvers.watch import Watch
from kernelopt.support.clock import OutOfTimeError


@pytest.mark.parametrize("rho", [0.0, 0.7])
@pytest.mark.parametrize(("low", "high"), [(0.0, 2.0), (0.0, np.inf), (-np.inf, 1.0), (-np.inf, 50.0), (50.0, np.inf)])
def test_central_multipliers_balance_both_ends(low, high, rho):
    """k − ρa + μ/(a − low) − μ/(high − a) = 0 inside of the box."""
    mu, k = 0.1, np.array([-2.0, -0.3, 0.4, 3.0])
    if rho == 0:  # else a is bounded by `most` alone
        k = np.where(np.isfinite(high), np.where(np.isfinite(low), k, np.abs(k)), -np.abs(k))
    a = _central(k, np.full(4, low), np.full(4, high), np.full(4, rho), mu, np.full(4, 10.0))
    assert np.all((low < a) & (a < high))
    assert k - rho * a + mu / (a - low) - mu / (high - a) == pytest.approx(0.0, abs=1e-8)


def test_multipliers_without_an_end_stay_near_the_other():
    a = _central(np.zeros(1), np.zeros(1), np.full(1, np.inf), np.zeros(1), 0.1, np.full(1, 10.0))
    assert a == pytest.approx(10.0)


@pytest.fixture
def problem():
    """A hinge and an inequality, of one prediction each."""
    zero = np.zeros(2)
    return Structured(
        (DenseMatrix(np.eye(2)),), sp.csr_array(np.eye(2)), np.zeros((2, 0)), np.ones(1), zero, np.zeros(0),
        np.array([-1.0, 0.0]), np.arange(2), np.array([1.0, 0.5]), zero, np.array([1.0, np.inf]), zero, (), 0.0,
    )  # fmt: skip


def start():
    zero = np.zeros(2)
    return Point(zero, zero, zero, zero, 0.1, 1.0, 0.0, 0.0)


def test_a_warm_start_has_no_multipliers_of_missing_ends(problem):
    state = interior_point._Method(problem, start()).state
    assert np.all(state.z_low > 0) and state.z_high[0] > 0 and state.z_high[1] == 0


def test_a_run_without_the_gap_does_not_claim_it(problem, monkeypatch):
    monkeypatch.setattr(interior_point, "MOST", 0)
    point, enough = interior_point._Method(problem, None).run(Watch("", 1e-9, 0.0, 1.0))
    assert not enough and point.stopped is None


@pytest.mark.parametrize(("near", "starts"), [(None, ["cold"]), (start(), ["warm", "cold"])])
def test_only_a_warm_start_is_followed_by_another(problem, monkeypatch, near, starts):
    made = []

    class Method:
        def __init__(self, problem, near):
            made.append("cold" if near is None else "warm")

        def run(self, watch):
            return start(), False

        def merit(self, point):
            return 0.0

    monkeypatch.setattr(interior_point, "_Method", Method)
    monkeypatch.setattr(interior_point.active_set, "solve", lambda *_: None)
    interior_point.solve(problem, Watch("", 1e-9, 0.0, 1.0), near)
    assert made == starts


def on_the_simplex():
    """Absolute errors of probabilities, with a smooth part."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(40, 2))
    targets = np.abs(rng.normal(size=(40, 3)))
    theta = ko.Theta(ko.kernels.Gaussian(sigma=0.7), outputs=3)
    G = theta(points) + np.ones((40, 1)) @ cp.Variable((1, 3))
    loss = cp.sum(cp.abs(targets / targets.sum(axis=1, keepdims=True) - G)) - 0.1 * cp.sum(cp.log(G + 1))
    return ko.Problem(cp.Minimize(loss + 0.1 * ko.sum_squares(theta)), [G >= 0, cp.sum(G, axis=1) == 1])


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_a_start_with_fewer_columns_ends_at_the_same_answer(monkeypatch, share):
    ranks, run = list[int](), interior_point._Method.run

    def watched(self, watch, coarse=False):
        ranks.append(self.p.rank)
        return run(self, watch, coarse)

    monkeypatch.setattr(interior_point._Method, "run", watched)
    problem = on_the_simplex()
    value, steps = problem.solve(solver="INTERIOR_POINT", tol=1e-8), problem.solver_stats.num_iters
    assert set(ranks) <= {0, 40}  # 0 where it is found out whether constraints can be met
    ranks.clear()
    monkeypatch.setattr(interior_point, "LARGE", 0)
    monkeypatch.setattr(interior_point, "SHARE", share)
    again = on_the_simplex()
    assert again.solve(solver="INTERIOR_POINT", tol=1e-8) == pytest.approx(value, rel=1e-7)
    assert again.status == "optimal" and [rank for rank in ranks if rank] == [int(share * 40), 40]
    assert again.solver_stats.num_iters <= 2 * steps


def test_time_that_ends_among_fewer_columns_leaves_their_point(problem):
    """A point of all columns, with the exception that ended the search."""
    large = replace(problem, blocks=(DenseMatrix(np.eye(2, interior_point.LARGE)),), linear_d=np.zeros(2))
    late = Watch("", 1e-9, 0.0, 1.0, deadline=-np.inf)
    point = interior_point.solve(large, late)
    assert isinstance(point.stopped, OutOfTimeError) and len(point.x) == interior_point.LARGE
    assert np.isfinite(point.primal)


@pytest.mark.parametrize("breaks_down", [False, True])
def test_fewer_columns_in_which_no_answer_is_found_are_no_start(problem, monkeypatch, breaks_down):
    ranks, run = list[int](), interior_point._Method.run

    def vain(self, watch, coarse=False):
        ranks.append(self.p.rank)
        if coarse and breaks_down:
            raise np.linalg.LinAlgError("not positive definite")
        point, enough = run(self, watch, coarse)
        return point, enough and not coarse

    monkeypatch.setattr(interior_point, "LARGE", 0)
    monkeypatch.setattr(interior_point._Method, "run", vain)
    interior_point.solve(problem, Watch("", 1e-9, 0.0, 1.0))
    assert ranks == [1, 2]


@pytest.mark.parametrize(("smooth", "unit"), [((), 0.5), (("a smooth function",), 1.0)])
def test_constraints_alone_say_little_about_predictions(problem, smooth, unit):
    """The largest of their right-hand sides is a typical prediction, beside smooth functions 1 at least."""
    method = object.__new__(interior_point._Method)
    method.p = replace(problem, anchor=np.array([1e-7, 0.5]), high=np.full(2, np.inf), smooth=smooth)
    method.has_low, method.has_high, method.free = np.full((3, 2), [[True], [False], [False]])
    assert method._unit_of_s == unit


@pytest.mark.parametrize(
    ("lengths", "steps"),
    [
        ([1.0] + 9 * [0.01], 1 + 4),  # four short ones in turn
        ([0.01, 0.01, 1.0] + 9 * [0.01], 3 + 4),
        (9 * [1.0], 8),
        ([1.0, 1e-11], 2),
    ],
)
def test_a_run_ends_where_steps_are_short_and_gain_nothing(problem, monkeypatch, lengths, steps):
    monkeypatch.setattr(interior_point, "STUCK", 4)
    monkeypatch.setattr(interior_point, "STALLED", 8)
    method, left, watch = interior_point._Method(problem, None), iter(lengths), Watch("", 1e-9, 0.0, 1.0)
    monkeypatch.setattr(method, "_step", lambda: next(left))
    monkeypatch.setattr(method, "_judged", lambda: replace(start(), gap=1.0))
    _, enough = method.run(watch)
    assert not enough and watch.systems == steps


def test_a_bound_that_is_far_away_soon_does_not_end_the_run():
    """Its multiplier halves its digits at each step, and is 0 to double precision before the exponentials converge."""
    X = np.random.default_rng(1).normal(size=(30, 2))
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    risk = 3 * cp.log_sum_exp(2 * theta(X) - np.arange(30) / 30) - cp.sum(theta(X)) / 5 + cp.square(b)
    problem = ko.Problem(cp.Minimize(risk + 0.1 * ko.sum_squares(theta)), [b <= 0.5])
    problem.solve(solver="INTERIOR_POINT")
    assert problem.status == "optimal" and problem.certificate.relative_gap < 1e-6


@pytest.mark.parametrize("n", [30, 90])
def test_multipliers_begin_as_large_as_the_costs_of_variables_ask(n):
    """The worst group of losses, written by hand: multipliers of all rows follow from the cost of t, which is 1.

    A start with the penalty's multipliers took x to 1e6, and the method gave up.
    """
    rng = np.random.default_rng(0)
    points = rng.normal(size=(n, 4))
    signs, group = np.where(rng.normal(size=n) + points[:, 0] > 0, 1.0, -1.0), np.arange(n) % 3
    theta, z, t = ko.Theta(ko.kernels.Gaussian(sigma=2.0)), cp.Variable(n), cp.Variable()
    f = theta(points) + cp.Variable()
    rows = [z >= 1 - cp.multiply(signs, f), z >= 0, *(cp.sum(z[group == g]) * 3 / n <= t for g in range(3))]
    problem = ko.Problem(cp.Minimize(t + 1e-3 * ko.sum_squares(theta)), rows)
    value = problem.solve(solver="INTERIOR_POINT", tol=1e-8)
    assert problem.status == "optimal" and problem.solver_stats.num_iters <= 20
    assert value == pytest.approx(problem.solve(solver="CLARABEL", tol=1e-8), rel=1e-6)


@pytest.mark.parametrize("strength", [1.0, 3.0])
def test_a_variable_of_its_own_for_each_row_in_warm_starts(strength):
    """Active sets take no sparse F."""
    points = np.linspace(0, 6, 90)[:, None]
    theta, o, weight = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(90), cp.Parameter(nonneg=True, value=2.0)
    loss = cp.norm1(np.sin(points[:, 0]) - theta(points) - o) + 0.3 * cp.norm1(o) + cp.sum_squares(o)
    problem = ko.Problem(cp.Minimize(loss + weight * ko.sum_squares(theta)), [o[:80] >= -1])
    problem.solve()
    weight.value = strength
    value = problem.solve()
    assert problem.status == "optimal" and value == pytest.approx(problem.solve(solver="CLARABEL"), rel=1e-6)


def test_a_system_that_breaks_down_leaves_the_problem_to_others(monkeypatch):
    def broken(*_):
        raise np.linalg.LinAlgError("not positive definite")

    monkeypatch.setattr(Structured, "system", broken)
    points = np.linspace(0, 6, 30)[:, None]
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(cp.norm1(np.sin(points[:, 0]) - theta(points)) + ko.sum_squares(theta)))
    problem.solve()
    first, *_ = problem.solver_stats.attempts
    assert problem.status == "optimal" and first.claimed == "failed"
    assert problem.solver_stats.solver_name == "CLARABEL"


def test_steps_that_a_domain_cuts_short_meet_equations_in_time():
    """Entropies of rows that add up to 1, beside a sum of many: a typical prediction is a mean, not that sum."""
    rng = np.random.default_rng(1)
    points, targets = rng.normal(size=(150, 5)), rng.normal(size=(150, 4))
    theta = ko.Theta(ko.kernels.Gaussian(sigma=2.0), outputs=4)
    G = theta(points) + np.ones((150, 1)) @ cp.Variable((1, 4))
    loss = -cp.sum(cp.multiply(targets, G)) - cp.sum(cp.entr(G))
    rows = [cp.sum(G, axis=1) == 1, cp.sum(G, axis=0) <= 45]
    problem = ko.Problem(cp.Minimize(loss + 0.5 * ko.sum_squares(theta)), rows)
    problem.solve(solver="INTERIOR_POINT")
    assert problem.status == "optimal" and problem.solver_stats.num_iters <= 30


def test_an_equation_in_which_theta_stands_by_rounding_alone():
    """Σ xᵢ = 1e-15 of standardized columns: the equation is one of the intercept, and θ ended at 0."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.integers(0, 5, size=(40, 1)).astype(float)
        X = (X - X.mean()) / X.std()
        y = X[:, 0] + 0.3 * rng.normal(size=40)
        theta, b = ko.Theta(ko.kernels.Linear()), cp.Variable()
        f = theta(X) + b
        loss = cp.sum(ko.losses.absolute_error(y, f)) + 0.3 * ko.sum_squares(theta)
        problem = ko.Problem(cp.Minimize(loss), [cp.sum(f) == 0])
        problem.solve(solver="INTERIOR_POINT")
        assert problem.status == "optimal"
        w, c = cp.Variable(), cp.Variable()
        g = X[:, 0] * w + c
        by_hand = cp.Problem(cp.Minimize(cp.sum(cp.abs(y - g)) + 0.3 * cp.square(w)), [cp.sum(g) == 0])
        assert problem.value == pytest.approx(by_hand.solve(solver="CLARABEL"), rel=1e-6)
