"""Rays and directions that fade, in the rows as they were stated."""

from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.compiler import feasibility
from kernelopt.compiler.conic_form import conic_form
from kernelopt.language.functions import Function
from kernelopt.language.nodes import EUCLIDEAN
from kernelopt.solvers import rays
from kernelopt.solvers.rays import judged

X = np.arange(4.0)[:, None]


def stated(objective, constraints=lambda u, z: []):
    theta, z = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(name="z")
    problem = ko.Problem(cp.Minimize(objective(theta(X), z, theta)), constraints(theta(X), z))
    return problem, conic_form(problem.canonical_form())


def direction(data, u=(0.0, 0.0, 0.0, 0.0), z=0.0):
    x = np.zeros(len(data.c))
    x[np.concatenate(data.u)], x[data.y] = u, z
    return x


@pytest.mark.slow
def test_a_row_is_judged_by_its_own_numbers():
    """|1e-11·z| ≤ 1 bounds z: along z the row grows by all of its size."""
    problem, data = stated(
        lambda u, z, theta: cp.sum_squares(u) - z + ko.sum_squares(theta),
        lambda u, z: [cp.norm(cp.hstack([1e-11 * z, u[0]])) <= 1],
    )
    assert judged(data, direction(data, z=1.0), np.zeros(len(data.c))) is None
    problem.solve()
    assert problem.status not in ("unbounded", "infeasible")


def test_a_small_slope_is_one():
    """minimize 1e-8·u₀ + |u₁ − 1|: u₀ → −∞ costs nothing, if predictions are what they are to better than 1e-8."""
    _, data = stated(lambda u, z, theta: 1e-8 * u[0] + cp.abs(u[1] - 1))
    x, noise = direction(data, -np.eye(4)[0]), np.zeros(len(data.c))
    noise[data.u[0]] = 1e-15
    prices = np.ones(len(data.b))
    assert judged(data, x, noise).falls(prices)
    assert not judged(data, x, 1e8 * noise).falls(prices)
    assert judged(data, direction(data, np.array([-1.0, 1e-3, 0, 0])), noise) is None


def test_a_quadratic_cone_hides_a_slope():
    """√(1 + z²) − z does not fall along z for ever; one that is wrong by ε may fall by √ε."""
    _, data = stated(lambda u, z, theta: cp.norm(cp.hstack([z, u[0]])) - z + ko.norm(theta))
    for slack in (0.0, 1e-9):
        x = direction(data, z=1.0)
        auxiliary = np.setdiff1d(np.arange(len(x)), np.r_[data.linked, data.y])
        x[auxiliary] = 1.0 - slack
        ray = judged(data, x, np.full(len(x), 1e-9))
        assert ray is None or not ray.falls(np.ones(len(data.b)))


def test_the_norm_of_a_difference_grows_as_that_of_theta():
    f0 = Function(ko.kernels.Gaussian(sigma=1.0), X, np.ones(4))
    problem, data = stated(lambda u, z, theta: cp.sum(u) + ko.sum_squares(theta - f0))
    question = feasibility.recession(problem.canonical_form(), data)
    assert [norm.view.shift for norm in question.norms] == [None]


@pytest.mark.slow
@pytest.mark.parametrize("weight", [1e-6, 1e-10])
def test_a_small_penalty_outweighs_what_fades(weight):
    """log(1 + e^(−b − c)) fades along b + c, which costs; the optimum is attained far away."""
    theta, b, c = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(), cp.Variable()
    loss = cp.sum(ko.losses.log_loss(np.ones(4), theta(X) + b + c))
    problem = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta) + weight * (cp.abs(b) + cp.abs(c))))
    problem.solve()
    assert problem.status not in ("not_attained", "unbounded")
    free = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta) + weight * cp.abs(b - c)))
    free.solve()
    assert free.status == "not_attained"


@pytest.mark.slow
def test_a_slow_fall_is_unbounded():
    """The kernel matrix is positive definite, so that u₀ → −∞ moves no other prediction."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    u, lam = theta(X), cp.Parameter(nonneg=True, value=0.0)
    fall = 1e-8 * u[0] + cp.abs(u[1] - 1) + cp.abs(u[2] - 1)
    for objective in (fall, fall + lam * ko.sum_squares(theta)):
        problem = ko.Problem(cp.Minimize(objective))
        assert problem.solve() == -np.inf
        assert problem.status == "unbounded"
    lam.value = 1e-9
    assert np.isfinite(problem.solve())
    bounded = ko.Problem(cp.Minimize(fall), [u[0] >= -5])
    bounded.solve()
    assert bounded.status != "unbounded"


def test_errors_of_a_slope_add_up():
    """Rounding, and the errors of the predictions at their costs."""
    _, data = stated(lambda u, z, theta: 3.0 * u[0] + cp.abs(u[1] - 1))
    x, noise = direction(data, -np.eye(4)[0]), np.zeros(len(data.c))
    noise[data.u[0]] = 1e-3
    ray = judged(data, x, noise)
    costs = np.abs(data.c)
    assert ray.slope_error == pytest.approx(
        rays.EPS * np.count_nonzero(costs) * (costs @ np.abs(x)) + costs @ noise, rel=1e-14
    )
    assert ray.slope_error >= 3e-3


def test_outside_of_a_power_cone():
    """x^¼·y^¾ ≥ |z|, along the axis of z."""
    assert rays._outside("power", np.array([4.0, 16.0, 20.0]), 0.25) == pytest.approx(20 - 4**0.25 * 16**0.75)


def test_errors_excuse_rows_of_an_exponential_cone():
    """e^x ≤ 1 − 1e-9 at x = 0, if x may be wrong by 1e-8."""
    s, counts = np.array([0.0, 1.0, 1 - 1e-9]), np.ones(3, dtype=int)
    assert not rays._outside_exponentials(s, np.array([1e-8, 0.0, 0.0]), counts)
    assert rays._outside_exponentials(s, np.array([1e-10, 0.0, 0.0]), counts)


def columns_of(rank, u, t, rest):
    """Directions of one θ with the norm ‖θ‖; columns are numbered as u, t, rest."""
    theta = ko.Theta(ko.kernels.Linear())
    norm = SimpleNamespace(view=SimpleNamespace(theta=theta), right=np.eye(1), kind=EUCLIDEAN)
    links, factors = [SimpleNamespace(theta=theta)], {theta: SimpleNamespace(rank=rank, scale=1.0)}
    n = u + t + rest
    data = SimpleNamespace(u=[np.arange(u)], t=np.arange(u, u + t), linked=np.arange(u + t), c=np.zeros(n))
    reduction = SimpleNamespace(form=SimpleNamespace(predictions=links), factors=factors)
    return rays._Direction(SimpleNamespace(norms=[norm] * t), reduction, data)


def test_columns_of_a_direction():
    """θ comes first, then the columns that are neither predictions nor norms."""
    found = columns_of(2, 2, 1, 2)
    assert found.rest.tolist() == [3, 4]
    assert found.of_theta.tolist() == [True, True, False, False]


def test_rounding_of_a_norm():
    """A square, a sum and a root for one column of B."""
    x, noise = columns_of(1, 0, 1, 0).place(np.array([-3.0]))
    assert x.tolist() == [3.0] and noise == pytest.approx([2 * 3 * rays.EPS], rel=1e-12, abs=0)


def test_a_direction_starts_at_the_point(monkeypatch):
    """The values of the variables are those of the point, not earlier ones."""
    found, x = columns_of(2, 2, 0, 1), SimpleNamespace(value=np.zeros(3))
    found.question.x = x
    monkeypatch.setattr(rays, "place", lambda form, point: setattr(x, "value", point.x))
    point = SimpleNamespace(v=[np.array([1.0, 2.0])], x=np.array([3.0, 4.0, 5.0]))
    assert found.start(point).tolist() == [1.0, 2.0, 5.0]


def test_what_is_nearly_zero_is_dropped(monkeypatch):
    """Relative to the largest entry of x, in any unit; and θ where it predicts nothing."""
    found = columns_of(2, 2, 0, 2)
    for u, expected in (0.0, [0, 0, 1e-9, 0]), (1e-9, [1e-3, 1e-3, 1e-9, 0]):
        monkeypatch.setattr(found, "place", lambda q, u=u: (np.append([u, u], q[2:]), None))
        assert found.snapped(np.array([1e-3, 1e-3, 1e-9, 1e-20])).tolist() == expected
    monkeypatch.setattr(found, "place", lambda q: (np.zeros(4), None))
    assert found.snapped(np.array([1e-3, 1e-3, 0.0, 0.0])).tolist() == [0, 0, 0, 0]
