"""The smooth function that the inner iterations minimize."""

from dataclasses import replace
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
from inside import reduction_of

import kernelopt as ko
from kernelopt import losses
from kernelopt.compiler.outer import outer_of
from kernelopt.driver import strategy
from kernelopt.solvers import assemble, augmented_lagrangian, engines, libsvm
from kernelopt.solvers.augmented_lagrangian import smoothed
from kernelopt.solvers.dual_point import Point
from kernelopt.solvers.watch import Watch

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 2)), RNG.normal(size=12)
LOSSES = {
    "kinks": lambda f: losses.pinball(Y, f, 0.3),
    "curved stretches": lambda f: losses.huber(Y, f, 0.4),
    "kinks and smooth functions": lambda f: losses.hinge(np.sign(Y), f) + losses.log_loss(np.sign(Y), f),
}


# Without a proximal term (σ = ∞) kinks stay kinks.
CASES = [(name, sigma) for name in LOSSES for sigma in (0.3, 5.0)] + [("curved stretches", np.inf)]


@pytest.mark.parametrize(("name", "sigma"), CASES)
def test_gradient_and_curvature_are_those_of_the_value(name, sigma):
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(cp.sum(LOSSES[name](theta(X))) + ko.sum_squares(theta)))
    problem.solve()
    structured = assemble.structured(reduction_of(problem), outer_of(problem.canonical_form()), {0: 1.0})
    rng = np.random.default_rng(1)
    a0 = rng.uniform(structured.low, structured.high)
    with np.errstate(divide="ignore", invalid="ignore"):
        function = smoothed(structured, a0, sigma)
        s, h = rng.normal(size=structured.E.shape[0]), 1e-6
        here = function(s)
        for j, e in enumerate(h * np.eye(len(s))):
            after, before = function(s + e), function(s - e)
            assert here.gradient[j] == pytest.approx((after.value - before.value) / (2 * h), rel=1e-5, abs=1e-7)
            slope = (after.gradient[j] - before.gradient[j]) / (2 * h)
            assert here.curvature[j] == pytest.approx(slope, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("first", [None, "a point of libsvm"])
def test_finer_points_of_libsvm_follow_a_first_one(monkeypatch, first):
    """Without a factor they are tried where libsvm had a point, before the proximal point method."""
    zero, called = np.zeros(1), []
    answer = Point(zero, zero, zero, zero, 0.0, 1.0, 0.0, 1.0)
    monkeypatch.setattr(augmented_lagrangian, "_by_libsvm", lambda *_: (None, first))
    monkeypatch.setattr(augmented_lagrangian, "_from_finer_points", lambda *_: called.append("finer"))
    monkeypatch.setattr(augmented_lagrangian.proximal_point, "solve", lambda *_: called.append("proximal") or answer)
    found = augmented_lagrangian.solve(
        SimpleNamespace(orthonormal=False, smooth=(), kernel_space=1), Watch("", 1e-6, 0.0, 1.0)
    )
    assert found.primal == 1.0
    assert called == (["proximal"] if first is None else ["finer", "proximal"])


@pytest.mark.parametrize("sigma", [np.inf, 1.0])
def test_it_gives_up_where_no_gap_is_finite(monkeypatch, sigma):
    """With and without a proximal term."""
    zero, tried = np.zeros(1), []
    nowhere = Point(zero, zero, zero, zero, np.inf, 1.0, 0.0, np.inf)

    def minimized(*_):
        tried.append(1)
        assert len(tried) <= augmented_lagrangian.FLAT
        return SimpleNamespace(x=zero, s=zero, gradient=zero), 1

    monkeypatch.setattr(augmented_lagrangian, "judged", lambda *_: nowhere)
    monkeypatch.setattr(augmented_lagrangian, "next_multipliers", lambda *_: zero)
    monkeypatch.setattr(augmented_lagrangian, "_minimized", minimized)
    problem = SimpleNamespace(rank=1, products=lambda x: x, smooth_gradient=lambda s: s)
    systems = SimpleNamespace(watch=Watch("", 1e-6, 0.0, 1.0), known=None)
    found = augmented_lagrangian._at_rank(problem, systems, nowhere, sigma, np.inf, coarse=False)
    assert tried and found.stopped is None


@pytest.mark.slow
def test_loose_tolerances_are_relative_to_what_theta_gains(monkeypatch):
    """As certified gaps are. ½xᵀRx is far less for many rows with a small λ, and takes more systems to get to."""
    x = np.linspace(0, 6, 300)[:, None]
    y = np.sin(3 * x[:, 0]) + 0.3 * RNG.normal(size=300)

    def solved(tol):
        theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
        problem = ko.Problem(cp.Minimize(cp.sum(losses.pinball(y, theta(x) + b, 0.9)) + 1e-3 * ko.sum_squares(theta)))
        problem.solve(tol=tol, solver="AUGMENTED_LAGRANGIAN", rank_tol=1e-8)
        return problem

    loose, tight = solved(1e-3), solved(strategy.LOOSE / 2)
    assert loose.certificate.relative_gap <= 1e-3 and tight.certificate.relative_gap <= strategy.LOOSE / 2
    monkeypatch.setattr(strategy, "LOOSE", np.inf)
    before, same = solved(1e-3), solved(1e-5)
    assert loose.solver_stats.num_iters < before.solver_stats.num_iters
    monkeypatch.undo()
    assert solved(1e-5).solver_stats.num_iters == same.solver_stats.num_iters  # a tight one is as it was


def test_what_gaps_are_relative_to():
    """½xᵀRx, or P₀ − P where that is known and larger, but not far more than the objective."""
    assert Watch("", 1e-3, 0.0, 1.0).size(2.0, 5.0) == 2.0
    known = Watch("", 1e-3, 0.0, 1.0, at_zero=100.0, offset=4.0)
    assert known.size(2.0, 5.0) == 95.0
    assert known.size(98.0, 5.0) == 98.0
    assert known.size(2.0, 4.0 + 1e-6) == 2.0
    assert known.size(2.0, np.inf) == 2.0


def few_columns(lams, tol=1e-3):
    """A path of hinge problems in one column, whose B has few columns."""
    x = np.linspace(-3, 3, 400)[:, None] + 0.01 * RNG.normal(size=(400, 1))
    y = np.sign(np.sin(2 * x[:, 0]) + 0.3 * RNG.normal(size=400))
    theta, b, lam = ko.Theta(ko.kernels.Gaussian(sigma=1.5)), cp.Variable(), cp.Parameter(nonneg=True)
    problem = ko.Problem(cp.Minimize(cp.sum(losses.hinge(y, theta(x) + b)) + lam * ko.sum_squares(theta)))
    return ko.path(problem, lam, lams, tol=tol)


@pytest.mark.slow
def test_with_few_columns_libsvm_takes_the_rows_that_a_neighbour_leaves_open(monkeypatch):
    """At loose tolerances; its point is the answer."""
    asked, lams = augmented_lagrangian._from_few_rows, np.geomspace(1, 1e-2, 10)
    found = []

    def counted(*args):
        point, kept = asked(*args)
        found.append(point is not None)
        return point, kept

    monkeypatch.setattr(augmented_lagrangian, "_from_few_rows", counted)
    path = few_columns(lams)
    assert sum(found) >= 6
    assert max(path["gap"]) <= 1e-3
    found.clear()
    assert max(few_columns(lams, tol=1e-6)["gap"]) <= 1e-6
    assert not found


@pytest.mark.slow
def test_with_few_columns_many_open_rows_are_left_to_newton_steps(monkeypatch):
    """libsvm takes longer there."""
    trained = []
    asked = libsvm._trained
    monkeypatch.setattr(libsvm, "_trained", lambda K, *rest: trained.append(len(K)) or asked(K, *rest))
    monkeypatch.setattr(libsvm, "FEW", 5)
    assert max(few_columns(np.geomspace(1, 1e-2, 10))["gap"]) <= 1e-3
    assert not trained


@pytest.mark.slow
def test_where_its_point_fails_some_problems_do_without(monkeypatch):
    """The next 1, 2, 4, 8, 8, … problems of a path."""
    asked, judged = [], libsvm.completed

    def far_off(problem, point):
        asked.append(point)
        return replace(judged(problem, point), gap=1e9)

    monkeypatch.setattr(libsvm, "completed", far_off)
    path = few_columns(np.geomspace(1, 1e-2, 30))
    assert max(path["gap"]) <= 1e-3
    assert len(asked) == 6  # of 29 problems with a neighbour, the 1st, 3rd, 6th, 11th, 20th and 29th


@pytest.mark.slow
def test_where_too_many_rows_are_open_the_next_problem_is_looked_at(monkeypatch):
    """To see that takes no time, and is no failure."""
    asked = []
    monkeypatch.setattr(libsvm, "first_point", lambda problem, seconds, near=None: asked.append(near))
    path = few_columns(np.geomspace(1, 1e-2, 12))
    assert max(path["gap"]) <= 1e-3
    assert sum(near is not None for near in asked) == 11


@pytest.mark.parametrize("time_limit", [None, 60.0])
def test_the_value_at_zero_takes_no_time_of_a_limit(monkeypatch, time_limit):
    """With a time limit it is used where an earlier certificate found it, as for other λ of a path."""
    asked = []
    solve = engines.solve

    def seen(*args):
        asked.append(args[-1])
        return solve(*args)

    monkeypatch.setattr(engines, "solve", seen)
    lam, targets = cp.Parameter(nonneg=True, value=0.1), RNG.normal(size=12)  # the cut of equal data is shared
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(cp.sum(losses.huber(targets, theta(X), 0.4)) + lam * ko.sum_squares(theta)))
    for lam.value in (0.1, 0.05):
        problem.solve(tol=1e-3, time_limit=time_limit)
    assert (asked[0] is None) == (time_limit is not None)
    assert asked[-1] == pytest.approx(losses.huber(targets, cp.Constant(np.zeros(12)), 0.4).value.sum())


@pytest.mark.later
@pytest.mark.parametrize("name", ["hinge", "epsilon"])
def test_multipliers_of_other_rows(name):
    """As of the next fold: rows that stay keep theirs, and new ones get those of the side on which s is."""
    N = 120
    x = RNG.normal(size=(N, 3))
    y = np.sign(np.sin(2 * x[:, 0]) + 0.3 * RNG.normal(size=N))
    theta, b, w = ko.Theta(ko.kernels.Gaussian(sigma=1.5)), cp.Variable(), cp.Parameter(N, nonneg=True)
    f = theta(x) + b
    errors = losses.hinge(y, f) if name == "hinge" else losses.epsilon_insensitive(y, f, 0.1)
    problem = ko.Problem(cp.Minimize(w @ errors + 0.5 * ko.sum_squares(theta)))
    found = []
    for fold in range(2):
        w.value = (np.arange(N) % 4 != fold).astype(float)
        if fold:
            start = problem._left_off
        problem.solve()
        found.append(assemble.structured(reduction_of(problem), problem._outer(), {0: 1.0}))
    before, here = found
    assert len(before.of) == len(here.of) and not np.array_equal(before.of_kinks_at, here.of_kinks_at)
    point, in_order = engines._point(here, start), engines._point(here, replace(start, at=None))
    of_others = augmented_lagrangian._on_other_sides(here, in_order)  # multipliers of the row with the same number
    assert augmented_lagrangian._on_other_sides(here, point) < min(0.2 * of_others, augmented_lagrangian.OTHERS)
    kinks = len(here.of) // len(np.unique(here.of))
    for place in range(N):
        old, new = (np.flatnonzero(one.of_kinks_at == place) for one in (before, here))
        assert len(new) == (0 if place % 4 == 1 else kinks)
        if len(old) and len(new):
            assert point.a[new].tolist() == start.a[old].tolist()
        elif len(new):
            k = point.s[here.of[new]] - here.anchor[new]
            assert point.a[new].tolist() == np.where(k > 0, here.high[new], here.low[new]).tolist()
    fewer = replace(start, a=start.a[:-kinks], at=start.at[:-kinks])  # folds may differ in size
    assert engines._point(here, fewer) is not None
    assert engines._point(here, replace(fewer, at=None)) is None


@pytest.mark.slow
@pytest.mark.parametrize("in_a_ball", [False, True])
def test_a_start_for_another_penalty_that_leads_nowhere_is_followed_by_a_cold_one(in_a_ball):
    """All multipliers were at ends of their boxes, and those of later penalties stayed there."""
    rng = np.random.default_rng(8 if in_a_ball else 7)
    points = rng.normal(size=(1000, 5))
    mean = np.sin(2 * points[:, 0]) + points[:, 1] * points[:, 2]
    rng.standard_t(2, size=1000)
    signs = np.sign(mean + 0.3 * rng.normal(size=1000))
    theta = ko.Theta(ko.kernels.Gaussian(sigma=2.0))
    loss = cp.sum(cp.pos(1 - cp.multiply(signs, theta(points) + cp.Variable())))
    if in_a_ball:
        problem = ko.Problem(cp.Minimize(loss), [ko.norm(theta) <= 5])
    else:
        problem = ko.Problem(cp.Minimize(loss / 1000 + 0.02 * ko.norm(theta)))
    problem.solve()
    assert problem.status == "optimal"
    assert [attempt.solver for attempt in problem.solver_stats.attempts] == ["AUGMENTED_LAGRANGIAN"]
