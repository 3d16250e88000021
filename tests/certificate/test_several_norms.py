"""Bounds from multipliers of all rows at once, and from ν = 0."""

import cvxpy as cp
import numpy as np
import pytest
from inside import point_of, reduction_of

import kernelopt as ko
from kernelopt.certificate.gram import Gram
from kernelopt.certificate.multipliers import (
    DUAL_KIND,
    Multipliers,
    lengths_of,
    norm_slope,
)
from kernelopt.language.nodes import norm_from_gram

GAUSSIAN, LINEAR = ko.kernels.Gaussian(sigma=0.25), ko.kernels.Linear()
RNG = np.random.default_rng(0)
X, Y = RNG.uniform(-1, 1, size=(4, 1)), RNG.normal(size=4)


@pytest.mark.slow
@pytest.mark.parametrize("coefficients", [[1.2, -0.9], [0.1, 0.1]])
def test_a_maximum_of_norms(coefficients):
    """How Aᵀν is shared among ‖θ‖ and 2‖θ − f₀‖ follows from their maximum alone; a norm below it has no share."""
    theta = ko.Theta(GAUSSIAN)
    f0 = ko.Function(GAUSSIAN, X[:2] + 0.1, coefficients)
    most = cp.maximum(ko.norm(theta), 2 * ko.norm(theta - f0))
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(np.sign(Y), theta(X))) + most))
    problem.solve()
    assert problem.status == "optimal"
    assert problem.certificate.relative_gap < 1e-6


@pytest.mark.slow
def test_distances_from_two_functions():
    """Each norm has its own f₀, and Aᵀν is split among them."""
    theta = ko.Theta(GAUSSIAN)
    f, g = ko.Function(GAUSSIAN, X[:2] + 0.1, [1.2, -0.9]), ko.Function(GAUSSIAN, X[1:] - 0.2, [0.5, 0.4, -1.0])
    distances = ko.norm(theta - f) + 2 * ko.norm(theta - g)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - Y) + distances))
    problem.solve()
    assert problem.status == "optimal"
    assert problem.certificate.relative_gap < 1e-6


def test_two_thetas_with_other_numbers_of_predictions():
    """Each has its own part of ν, also in closed form."""
    theta, other = ko.Theta(GAUSSIAN), ko.Theta(LINEAR)
    loss = cp.sum_squares(theta(X[:3]) + other(X[:3]) - Y[:3]) + cp.sum(ko.losses.log_loss(np.sign(Y), other(X)))
    problem = ko.Problem(cp.Minimize(loss + 0.1 * ko.sum_squares(theta) + 0.2 * ko.sum_squares(other)))
    problem.solve()
    assert problem.status == "optimal"
    assert problem.certificate.relative_gap < 1e-6


@pytest.mark.slow
def test_nothing_is_gained_by_any_theta():
    """Two θ that fit: the optimum is 0, and so is the bound."""
    theta, other = ko.Theta(LINEAR), ko.Theta(GAUSSIAN)
    loss = cp.sum(ko.losses.squared_hinge(np.sign(Y), theta(X) + other(X)))
    problem = ko.Problem(cp.Minimize(loss), [ko.norm(theta) <= 3, ko.norm(other) <= 3])
    assert 0 <= problem.solve() <= 1e-30  # a margin may be short by one rounding
    assert problem.status == "optimal"
    assert problem.certificate.lower == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 4])
def test_exponentials_without_weight(seed):
    """u and w of a cone that costs nothing are none, and its v is what remains of a division by them."""
    rng = np.random.default_rng(seed)
    theta, points = ko.Theta(LINEAR + 0.5 * ko.kernels.Polynomial(degree=2), outputs=2), rng.uniform(-1, 1, size=(8, 1))
    weights, labels = np.where(np.arange(8) == 3, 0.0, rng.uniform(0, 2, size=8)), np.sign(rng.normal(size=8))
    f = theta(points) @ rng.normal(size=2)
    loss = weights @ cp.exp(-cp.multiply(labels, f)) + 0.1 * cp.sum(cp.abs(theta(points)[:, 0]))
    problem = ko.Problem(cp.Minimize(loss + 0.3 * ko.norm(theta, "nuc")))
    problem.solve()
    assert problem.status == "optimal"


# How Aᵀν is split


@pytest.fixture(scope="module")
def two_balls():
    """Two distances with bounds that are both active, and the solved problem's parts."""
    theta = ko.Theta(GAUSSIAN)
    f, g = ko.Function(GAUSSIAN, X[:2] + 0.1, [1.2, -0.9]), ko.Function(GAUSSIAN, X[1:] - 0.2, [0.5, 0.4, -1.0])
    bounds = [ko.norm(theta - f) <= 1.0, ko.norm(theta - g) <= 1.2]
    problem = ko.Problem(cp.Minimize(cp.sum(cp.abs(theta(X) - 5 * Y))), bounds)
    problem.solve()
    return reduction_of(problem), problem._outer().form, point_of(problem), [float(c.dual_value) for c in bounds]


@pytest.mark.parametrize("kind", ["fro", "nuc", 2])
def test_norms_and_their_duals(kind):
    """⟨W, V⟩ ≤ ‖W‖‖V‖*, with equality for a largest V."""
    largest = {"fro": np.diag([3.0, 1.0]), "nuc": np.eye(2), 2: np.diag([1.0, 0.0])}[kind]
    dual = DUAL_KIND.get(kind, "fro")
    W = np.diag([3.0, 1.0])
    assert norm_from_gram(W.T @ W, kind) * norm_from_gram(largest.T @ largest, dual) == pytest.approx(
        np.sum(W * largest)
    )
    m = Multipliers(W, (2,), (0,), (dual,), (slice(2, 2),), False)
    length = lengths_of(m, Gram(W.T @ W, np.zeros((2, 2)), np.ones(2)))[0]
    assert length == pytest.approx({"fro": np.sqrt(10), "nuc": 3.0, 2: 4.0}[kind], rel=1e-8)


# From the cone form


def test_directions_that_are_rounding_have_no_slope():
    """Of the nuclear norm at a θ of rank 1 with three outputs, and with one."""
    found = norm_slope(np.diag([4.0, 4e-20, 4e-26]), "nuc")
    assert found == pytest.approx(np.diag([0.5, 0.0, 0.0]), abs=1e-12)
    assert norm_slope(np.array([[4.0]]), "nuc").tolist() == [[0.5]]


@pytest.mark.later
@pytest.mark.parametrize("kernel", [ko.kernels.Polynomial(degree=2), LINEAR])
@pytest.mark.parametrize("form", ["maximum", "bounds"])
def test_a_norm_below_the_bound_that_another_one_sets(kernel, form):
    """Its multiplier is 0, so that Aᵀν would have to vanish exactly."""
    rng = np.random.default_rng(1)
    points = rng.uniform(-2, 2, size=(20, 1))
    targets = np.sin(2 * points[:, 0]) + 0.2 * rng.normal(size=20)
    long, short, t = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), ko.Theta(kernel), cp.Variable()
    most = cp.maximum(ko.norm(long), ko.norm(short)) if form == "maximum" else t
    bounds = [] if form == "maximum" else [ko.norm(long) <= t, ko.norm(short) <= t]
    problem = ko.Problem(cp.Minimize(cp.sum_squares(targets - long(points) - short(points)) + most), bounds)
    problem.solve()
    assert (problem.status, problem.certificate.assumptions) == ("optimal", ())
    assert problem.certificate.relative_gap < 1e-6
