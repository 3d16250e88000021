"""What the driver says of a problem that may have no optimum, step by step."""

from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from inside import point_of

import kernelopt as ko
from kernelopt import losses
from kernelopt.driver import diagnosis
from kernelopt.driver.convex import begin
from kernelopt.driver.strategy import Goal, Task

X = np.random.default_rng(0).normal(size=(12, 2))
LABELS = np.where(X[:, 0] > 0, 1.0, -1.0)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (lambda f: cp.sum(losses.log_loss(LABELS, f)), True),
        (lambda f: cp.sum(losses.log_loss(np.ones(12), f)), False),  # falls for ever as y grows
        (lambda f: cp.sum(losses.log_loss(-np.ones(12), f)), False),  # falls for ever as y falls
        # falls for ever as y falls
        (lambda f: cp.sum(cp.log_sum_exp(cp.reshape(f, (4, 3), order="C"), axis=1)), False),
    ],
)
def test_whether_a_sum_grows_both_ways(loss, expected):
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    problem = ko.Problem(cp.Minimize(loss(theta(X) + b) + ko.sum_squares(theta)))
    assert diagnosis._grows(problem._outer().split) is expected


@pytest.mark.parametrize(("strength", "expected"), [(1e-1, False), (1e-9, True)])
def test_whether_exponentials_have_faded(strength, expected):
    """Only then is a direction looked for along which they fall for ever, which takes a solve of its own."""
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    loss = cp.sum(losses.log_loss(LABELS, theta(X) + b))
    problem = ko.Problem(cp.Minimize(loss + strength * ko.sum_squares(theta)))
    problem.solve()
    outer = problem._outer()
    assert diagnosis._has_faded(outer.canonical, point_of(problem), outer.pieces) is expected


@pytest.mark.slow
@pytest.mark.parametrize("size", [1e-3, 0.05, 30.0])
def test_a_ball_around_a_function_that_is_met_only_there(size):
    """‖θ − f₀‖ ≤ 0 leaves θ = f₀, in all units; a value that f₀ does not have is then out of reach."""
    kernel = ko.kernels.Linear()
    theta, f0 = ko.Theta(kernel), ko.Function(kernel, X[:1], [size])
    values = size * X[2:5] @ X[0]
    for off, status in ((0.0, "optimal"), (10 * size, "infeasible")):
        constraints = [ko.norm(theta - f0) <= 0, theta(X[2:5])[0] == values[0] + off]
        problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X[2:5]) - 1)), constraints)
        problem.solve()
        if off:
            assert problem.status == status
        else:
            assert problem.status in (status, "optimal_inaccurate", "user_limit")
            assert problem.value is None or problem.value == pytest.approx(np.sum((values - 1) ** 2), rel=1e-5)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (lambda f: cp.sum(cp.maximum(f, 2 * f)), True),  # falls with f
        (lambda f: cp.sum(cp.maximum(-f, -2 * f)), True),  # falls as f grows
        (lambda f: cp.sum(cp.pos(1 - f)), False),
        (cp.norm1, False),
    ],
)
def test_whether_f_may_fall_along_a_line(loss, expected):
    """Where some function has linear terms, and no norm of θ has a cost."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(loss(theta(X))))
    form, outer = problem._private_form(), problem._outer()
    assert outer.split is not None
    task = Task(SimpleNamespace(form=form), outer, Goal(1e-6))
    assert diagnosis.may_be_unbounded(task) is expected


def test_exponentials_without_a_cost_do_not_count():
    """A cost of y, or of a prediction, is none of the exponential in which it stands."""
    A = sp.csc_array(np.array([[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1.0]]))
    data = SimpleNamespace(c=np.array([1.0, 1.0, 1.0, 0.0]), P=np.zeros(4), A=A, linked=np.array([0]), y=np.array([1]))
    assert np.array_equal(diagnosis._that_cost(data, np.array([0, 3])), [1.0, 0.0])


@pytest.mark.parametrize(
    ("costs", "asked"), [([], True), ([[0.0, 0.0]], True), ([[1.0, 0.0]], False), ([[1.0, 0.0], [0.0, 0.0]], True)]
)
def test_a_direction_of_theta_is_looked_for_where_its_length_has_no_cost(costs, asked, monkeypatch):
    """Each norm has a linear and a quadratic cost; a norm without any may grow for ever."""
    seen = []
    monkeypatch.setattr(diagnosis.feasibility, "flat_recession", lambda *_: seen.append(1))
    n = len(costs)
    c, P = np.array(costs).reshape(n, 2).T
    monkeypatch.setattr(diagnosis, "_has_faded", lambda *_: True)
    monkeypatch.setattr(diagnosis, "_that_cost", lambda *_: np.ones(1))
    data = SimpleNamespace(cones=SimpleNamespace(exponentials=np.array([0])))
    form = SimpleNamespace(
        predictions=(SimpleNamespace(theta=None),), norms_of=lambda _: {0: None}, norms=range(n), has_cones=True, y=()
    )
    facts = SimpleNamespace(slopes=c, bends=P, exponentials=True)
    task = SimpleNamespace(reduction=SimpleNamespace(form=form))
    outer = SimpleNamespace(form=data, split=None, pieces=object(), facts=facts)
    assert not diagnosis.is_receding(task, outer, None)
    assert bool(seen) is asked


@pytest.mark.parametrize(("nu", "expected"), [([1.0, 0.0], True), ([0.0, 0.0], False), ([np.nan, 1.0], False)])
def test_multipliers_guide_where_they_are_finite_and_not_all_zero(nu, expected, monkeypatch):
    """Those with which a solver gave up on a restricted θ."""
    monkeypatch.setattr(diagnosis.feasibility, "limits_lengths", lambda *_: False)
    theta = object()
    link = SimpleNamespace(theta=theta, rows=range(2), summed=lambda part: part)
    reduction = SimpleNamespace(is_restriction=True, form=SimpleNamespace(predictions=(link,)))
    given_up = SimpleNamespace(nu=(np.array(nu),))
    found = diagnosis._guides_beyond(SimpleNamespace(reduction=reduction), None, given_up)
    assert (found is not None) is expected
    if expected:
        assert np.array_equal(found[theta].nu[:, 0], nu)


@pytest.mark.later
@pytest.mark.parametrize(
    "objective",
    [
        lambda f, b, d: cp.sum(cp.exp(f + b)) + 1e-3 * b,
        lambda f, b, d: cp.sum(cp.logistic(f + b)) + 0.01 * b,
        lambda f, b, d: cp.log_sum_exp(f + b) + cp.log_sum_exp(f + d),
        lambda f, b, d: cp.sum(cp.exp(f + b)) + 1e-4 * d,
    ],
)
def test_a_cost_that_falls_while_exponentials_fade_is_unbounded(objective):
    """Along b → −∞ exponentials tend to 0 and the rest to −∞: the infimum is not a number that is not attained."""
    theta, b, d = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(), cp.Variable()
    f = theta(np.linspace(-2, 2, 12)[:, None])
    problem = ko.Problem(cp.Minimize(objective(f, b, d) + ko.sum_squares(theta)), [d >= b])
    problem.solve()
    assert problem.status == "unbounded"


@pytest.mark.slow
def test_an_exponential_of_weight_zero_does_not_fade():
    """It does not keep the optimum from being attained."""
    theta, b, w = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(), cp.Parameter(nonneg=True)
    f = theta(X)
    objective = cp.sum_squares(f - b) + w * cp.log_sum_exp(f) + 0.1 * ko.sum_squares(theta) + 0.01 * cp.square(b)
    problem = ko.Problem(cp.Minimize(objective), [cp.norm(f[:4]) <= 1])
    for w.value in (0.0, 1.0, 0.0):
        problem.solve()
        assert problem.status == "optimal"
    assert abs(problem.value) < 1e-9


def test_a_solver_that_finds_no_point_asks_for_one_only(monkeypatch):
    """Whether the problem is bounded is asked where no solver has an answer."""
    monkeypatch.setattr(diagnosis, "has_ray", lambda *_: pytest.fail("asked for a ray"))
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X)) + ko.sum_squares(theta)), [theta(X)[0] >= 1])
    outer = problem._outer()
    problem.solve()
    work = begin(outer, ["INTERIOR_POINT"], problem._factored.reduction, Goal(1e-6))
    work._heard("infeasible")
    assert work.status is None and work.diagnosed is not None
    with pytest.raises(pytest.fail.Exception, match="a ray"):
        work._diagnose()


@pytest.mark.parametrize("bound", [lambda t: ko.norm(t) <= 0, lambda t: ko.sum_squares(t) <= 0])
@pytest.mark.parametrize("constraint", [lambda f: f >= 1, lambda f: f[0] == 1, lambda f: cp.norm(f - 1) <= 0.5])
def test_constraints_that_zero_does_not_meet(bound, constraint):
    """Where ‖θ‖ ≤ 0 nothing is left to move: the other constraint is one of numbers."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(X)
    problem = ko.Problem(cp.Minimize(cp.sum(cp.abs(f - 1))), [bound(theta), constraint(f)])
    problem.solve()
    assert problem.status == "infeasible"
    problem = ko.Problem(cp.Minimize(cp.sum(cp.abs(f - 1))), [bound(theta), f <= 1])
    problem.solve()
    assert problem.status == "optimal" and problem.value == pytest.approx(len(X))
