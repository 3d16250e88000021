"""Constants of the objective cost no digits, and optima of 0 are proven as far as doubles tell."""

from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.errors import DataError

X = np.linspace(0, 1, 12)[:, None]
Y = np.sin(5 * X[:, 0])
KERNEL = ko.kernels.Gaussian(sigma=0.4)


def stated(constant=0.0, goal=cp.Minimize, unit=1e-6):
    theta, b = ko.Theta(KERNEL), cp.Variable()
    objective = unit * (cp.sum(cp.abs(theta(X) + b - Y)) + 0.1 * ko.sum_squares(theta))
    objective = objective if constant is None else objective + constant
    return ko.Problem(goal(objective if goal is cp.Minimize else -objective))


@pytest.mark.parametrize("goal", [cp.Minimize, cp.Maximize])
@pytest.mark.parametrize("constant", [1e6, -1e6, cp.Parameter(value=1e6)])
def test_constants_change_no_gap(goal, constant):
    """1e6 beside 1e-6: doubles have no digits left of the optimum itself, and the gap is known all the same."""
    plain, problem = stated(None, goal), stated(constant, goal)
    plain.solve()
    value = problem.solve()
    sign = 1 if goal is cp.Minimize else -1
    number = sign * float(getattr(constant, "value", constant))
    found, bare = problem.certificate, plain.certificate
    assert problem.status == "optimal"
    assert found.lower <= value <= found.upper
    assert value == pytest.approx(plain.value + number, rel=1e-15)
    assert found.at_zero == pytest.approx(bare.at_zero + number, rel=1e-15)
    assert found.absolute_gap == pytest.approx(bare.absolute_gap, rel=0.5) and found.absolute_gap < 1e-11
    assert found.unit == pytest.approx(bare.unit, rel=1e-6)
    assert found.upper - found.lower < 1e-8
    assert problem.verify().passed


def test_constants_within_sums_and_with_other_values():
    theta, p = ko.Theta(KERNEL), cp.Parameter(value=2.0)
    loss = cp.sum_squares(theta(X) - Y)
    problem = ko.Problem(cp.Minimize(3.0 + (loss + 2 * p - 5.0) + (ko.sum_squares(theta) + 1.0)))
    first = problem.solve()
    assert problem.canonical_form().constant == 3.0
    p.value = 1e9
    assert problem.solve() - first == pytest.approx(2e9 - 4, rel=1e-15)
    assert problem.certificate.relative_gap < 1e-6
    assert problem.reduced_problem.solve() == pytest.approx(problem.value, rel=1e-12)


@pytest.mark.parametrize("constant", [cp.Constant([3.0]), cp.Constant(np.eye(1)), cp.Parameter(1, value=[3.0])])
def test_constants_of_one_entry(constant):
    theta = ko.Theta(KERNEL)
    objective = cp.sum_squares(theta(X) - Y) + ko.sum_squares(theta) + constant
    problem = ko.Problem(cp.Minimize(objective if objective.shape != (1, 1) else objective[0, 0]))
    assert problem.solve() > 1 and problem.status == "optimal"


def test_objectives_that_are_constants():
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(7.0), [theta(X) >= Y, ko.norm(theta) <= 10])
    assert problem.solve() == 7.0 and problem.status == "optimal"
    assert problem.certificate.lower <= 7.0 <= problem.certificate.upper


def test_constants_of_other_values_of_parameters():
    """certificate_at adds the constant that belongs to the values it is asked for."""
    p, theta = cp.Parameter(value=1.0), ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - Y) + ko.sum_squares(theta) + p))
    value = problem.solve()
    found = problem.certificate_at({p: 11.0})
    assert found.lower <= value + 10 <= found.upper and found.relative_gap < 1e-6


@pytest.mark.later
@pytest.mark.parametrize("unit", [1e-30, 1.0, 1e30])
def test_an_optimum_of_0(unit):
    """No hinge is active: rounding of 1 − y(u + b) is all that is left, in any unit of the objective."""
    labels = np.where(np.arange(12) > 5, 1.0, -1.0)
    theta, b = ko.Theta(KERNEL), cp.Variable()
    problem = ko.Problem(cp.Minimize(unit * cp.sum(ko.losses.hinge(labels, theta(X) + b))), [ko.norm(theta) <= 100])
    problem.solve()
    assert problem.status == "optimal"
    assert problem.certificate.lower <= 0 <= problem.certificate.upper <= 1e-11 * unit


def test_terms_that_are_not_0():
    """A small penalty is no rounding: among interpolants it decides."""
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum(cp.abs(theta(X[::4]) - Y[::4])) + 1e-11 * ko.sum_squares(theta)))
    problem.solve()
    assert problem.certificate.floor == 0.0 and problem.certificate.upper < 1e-8


def test_a_loss_that_hides_the_rest():
    """Losses of weight 1e13 are rounding, and what b gains beside them is not."""
    rng = np.random.default_rng(0)
    points, y = rng.normal(size=(6, 2)), rng.normal(size=6)
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    loss = 1e13 * cp.sum(cp.abs(theta(points) + b - y))
    problem = ko.Problem(cp.Minimize(loss + b + 1e-3 * ko.sum_squares(theta)))
    problem.solve(solver="CLARABEL")
    found = problem.certificate
    assert found.lower <= -104.147 <= found.upper
    assert problem.status != "optimal" or problem.value == pytest.approx(-104.147, rel=1e-3)


@pytest.mark.slow
def test_an_optimum_of_0_that_solvers_come_near():
    """Losses and the penalty vanish where a solver of its own accord stops at 1e-10: the point is moved there."""
    rng = np.random.default_rng(3)
    points, y = rng.normal(size=(2, 2)), np.array([0.2, 1.7])
    first, second = ko.Theta(ko.kernels.Gaussian(sigma=0.3)), ko.Theta(ko.kernels.Gaussian(sigma=0.4))
    b = cp.Variable()
    loss = cp.sum(ko.losses.pinball(y, first(points) + b + second(points), 0.3))
    problem = ko.Problem(cp.Minimize(loss + 0.02 * ko.norm(second)), [ko.norm(first) <= 1.5])
    for solver in (None, "CLARABEL"):
        problem.solve(solver=solver)
        assert problem.status == "optimal"
        assert problem.value < 1e-13 and not second.value(points).any()
        assert problem.certificate.upper < 1e-11  # what predictions are off by


# What the value is summed from


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_rounding_inside_of_nested_losses(seed):
    """θ = 0 is optimal, and the optimum over b is known exactly: y − ab has 1e4 times the digits of |y − ab| − ε."""
    rng, e = np.random.default_rng(seed), 1e-3
    points, a = rng.normal(size=(9, 1)), rng.uniform(0.5, 2, 9)
    y = a * 1e4 * (1 + 1e-6 * rng.normal(size=9))
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    loss = cp.sum(cp.pos(cp.abs(y - theta(points) - cp.multiply(a, b)) - e))
    problem = ko.Problem(cp.Minimize(loss + 1e4 * ko.norm(theta)))
    problem.solve()

    def value(t):
        return sum(max(abs(Fraction(p) - Fraction(q) * t) - Fraction(e), 0) for p, q in zip(y, a, strict=True))

    kinks = [(Fraction(p) + s * Fraction(e)) / Fraction(q) for p, q in zip(y, a, strict=True) for s in (-1, 1)]
    best = min(map(value, kinks))
    assert problem.certificate.lower <= best <= problem.certificate.upper


@pytest.mark.later
def test_a_loss_that_is_far_from_its_kink_owes_nothing():
    y = 1e-3 * np.sin(3 * X[:, 0])
    theta = ko.Theta(KERNEL)
    far = cp.pos(theta([[10.0]])[0] - 1e12)
    problem = ko.Problem(cp.Minimize(cp.sum(cp.abs(y - theta(X))) + far), [ko.norm(theta) <= 1e-3])
    problem.solve(max_rank=1)
    assert problem.certificate.rounding < 1e-12 and problem.certificate.floor < 1e-12
    assert problem.status == "optimal_inaccurate" or problem.certificate.relative_gap < 1e-6


def test_no_upper_bound_where_the_answer_is_infeasible():
    bound, theta = cp.Parameter(value=1.0), ko.Theta(KERNEL)
    objective = cp.sum(cp.abs(Y - theta(X))) + ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(objective), [theta(X) <= bound])
    problem.solve()
    found = problem.certificate_at({bound: 0.2})
    assert found.upper == np.inf and found.relative_gap == np.inf and np.isfinite(found.lower)


@pytest.mark.slow
def test_multipliers_survive_the_search_beside_theta_0():
    points = np.random.default_rng(1).normal(size=(8, 2))
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    floor = b >= 0.3
    loss = cp.sum_squares(0.3 - theta(points) - b) + 1e-3 * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(loss), [b <= 5, floor])
    problem.solve()
    assert problem.value < 1e-12 and abs(float(floor.dual_value)) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("constant", [0.0, 1.0, 1e6])
def test_constants_hide_no_better_answer(constant):
    points = np.random.default_rng(1).normal(size=(20, 2))
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    loss = cp.sum_squares(0.3 - theta(points) - b) + ko.norm(theta) + constant
    problem = ko.Problem(cp.Minimize(loss), [b <= 0.3])
    problem.solve()
    assert problem.status == "optimal" and problem.certificate.absolute_gap < 1e-28


def test_constants_whose_sum_is_no_double():
    theta = ko.Theta(KERNEL)
    objective = ko.sum_squares(theta) + cp.Constant(1e308) + cp.Constant(1e308)
    with pytest.raises(DataError, match="whose sum is a double"):
        ko.Problem(cp.Minimize(objective), [theta(X) >= 1]).solve()


@pytest.mark.parametrize("goal", [cp.Minimize(4.0), cp.Maximize(cp.Constant(-2.0))])
@pytest.mark.parametrize(
    "bounds",
    [
        lambda theta: [theta(X) >= 1],
        lambda theta: [theta(X) >= 1, ko.norm(theta) <= 30],
        lambda theta: [ko.sum_squares(theta) <= 1],
        lambda theta: [],
    ],
)
def test_problems_of_feasibility_have_no_gap(goal, bounds):
    problem = ko.Problem(goal, bounds(ko.Theta(KERNEL)))
    assert problem.solve() == goal.value and problem.status == "optimal"
    assert problem.certificate.absolute_gap < 1e-14
    assert problem.verify().passed and len(problem.solver_stats.attempts) == 1


@pytest.mark.later
def test_constraints_nearly_met_by_no_prediction_at_all():
    theta, b = ko.Theta(KERNEL), cp.Variable(2)
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta) + cp.sum(b)), [b >= [1 / 3, 1e-9], b[0] + b[1] == 7 / 3])
    problem.solve()
    assert problem.status == "optimal" and problem.value == pytest.approx(7 / 3, rel=1e-12)
