"""The relative gap of an answer by a solver's own absolute one, before any bound is proven."""

import warnings
from math import inf, nan

import cvxpy as cp
import numpy as np
import pytest
from inside import point_of, reduction_of

import kernelopt as ko
from kernelopt.certificate import gap_of_solver
from kernelopt.certificate.report import CAP
from kernelopt.errors import KernelOptError

X = np.linspace(0, 1, 12)[:, None]
Y = np.sin(5 * X[:, 0])
KERNEL = ko.kernels.Gaussian(sigma=0.4)


def relative(goal, gap, constraints=()):
    """The relative gap for an absolute one, and the value."""
    problem = ko.Problem(goal, list(constraints))
    problem.solve()
    return gap_of_solver(reduction_of(problem), problem._outer(), point_of(problem), gap), problem.value


def ridge(strength=0.1, y=Y, unit=1.0, constant=0.0):
    theta = ko.Theta(KERNEL)
    return unit * (cp.sum_squares(theta(X) - y) + strength * ko.sum_squares(theta)) + constant, theta


@pytest.mark.parametrize("constant", [0.0, 1e3])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("gap", [1e-4, -1e-4, 0.0])
def test_relative_to_the_improvement_over_theta_0(unit, gap, constant):
    """P₀ is known, Σ y². The sign of a gap says only that a solver's own bounds cross; constants do not count."""
    objective, _ = ridge(unit=unit, constant=constant)
    found, value = relative(cp.Minimize(objective), unit * gap)
    improvement = unit * float(Y @ Y) - (value - constant)
    assert improvement > 0
    assert found == pytest.approx(unit * abs(gap) / improvement, rel=1e-6)


def test_the_same_for_maximize():
    least, value = relative(cp.Minimize(ridge()[0]), 1e-4)
    most, opposite = relative(cp.Maximize(-ridge()[0]), 1e-4)
    assert opposite == pytest.approx(-value, rel=1e-9) and most == pytest.approx(least, rel=1e-6)


def test_the_unit_is_at_most_a_multiple_of_the_value():
    """Nearly interpolated: P₀ − P is about 1e9 times P."""
    found, value = relative(cp.Minimize(ridge(strength=1e-12)[0]), 1e-9)
    assert float(Y @ Y) - value > 100 * CAP * value
    assert found == pytest.approx(1e-9 / (CAP * value), rel=1e-6)


@pytest.mark.parametrize("gap", [nan, inf])
def test_no_gap_of_a_solver_is_no_relative_gap(gap):
    assert np.isnan(relative(cp.Minimize(ridge()[0]), gap)[0])


def test_without_an_improvement_the_first_look_decides():
    assert np.isnan(relative(cp.Minimize(ridge(y=0 * Y)[0]), 0.0)[0])


def test_without_theta_0_the_first_look_decides():
    objective, theta = ridge()
    assert np.isnan(relative(cp.Minimize(objective), 0.0, [theta(X[:1]) >= 1])[0])


def test_exponentials_leave_it_to_the_first_look():
    """Their infimum may not be attained."""
    theta = ko.Theta(KERNEL)
    objective = cp.sum(cp.logistic(theta(X))) + 0.1 * ko.sum_squares(theta)
    assert np.isnan(relative(cp.Minimize(objective), 0.0)[0])


@pytest.mark.parametrize("size", [1.0, 1e-6, 1e-7, 1e-9])
def test_gaps_are_relative_to_an_optimum_of_0_at_theta_of_zero(size):
    """A cone solver finds it to 1e-11, which is far above what θ gains where that is of the order of 1e-14."""
    X = np.linspace(0, 5, 8)[:, None]
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    f = theta(X)
    objective = cp.sum_squares(f + b) + 0.3 * ko.sum_squares(theta) - size * (np.sin(X[:, 0]) @ f)
    problem = ko.Problem(cp.Minimize(objective), [b >= 0, f >= 0])
    problem.solve(tol=1e-2)
    assert problem.certificate.at_zero == 0
    if problem.status == "optimal":
        assert problem.value / size**2 == pytest.approx(-0.47201, rel=2e-2)


def test_thresholds_that_no_argument_reaches_close_no_gap():
    """Huber's M² = 1e24 passed for a number that the value is computed from: "optimal" at a gap of 2e8."""
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta) + cp.huber(b, 1e12) - b))
    problem.solve()
    assert problem.certificate.lower <= -0.25 <= problem.certificate.upper
    assert problem.status != "optimal" or problem.value == pytest.approx(-0.25)


def test_one_large_cost_is_not_the_unit_of_others():
    """1e20·z with z = 0 made terms of 1e-13 count as squares of rounding."""
    P, y = np.array([[0.0], [1.0], [2.5]]), np.array([1.0, -1.0, 0.5])
    theta, z = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(nonneg=True)
    f = theta(P)
    loss = cp.sum_squares(y - f) + 0.5 * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(1e20 * z + 1e-13 * loss), [f <= 10 + z])
    problem.solve()
    assert problem.certificate.lower <= 1.352053e-13 <= problem.certificate.upper
    assert problem.status != "optimal" or problem.value == pytest.approx(1.352053e-13, rel=1e-5)


def test_data_whose_squares_overflow():
    B = cp.Parameter(3, value=[1e308, 1.0, 1.0])
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(B - theta([[0.0], [1.0], [2.5]])) + ko.sum_squares(theta)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(KernelOptError, match="units"):
            problem.solve()
