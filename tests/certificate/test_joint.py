"""Bounds from multipliers of all rows at once, and from ν = 0."""

import cvxpy as cp
import numpy as np
import pytest
from inside import point_of, reduction_of

import kernelopt as ko
from kernelopt.certificate import cone_bounds, joint
from kernelopt.certificate.gram import STREAMED
from kernelopt.certificate.multipliers import lengths_of, norm_multipliers

GAUSSIAN, LINEAR = ko.kernels.Gaussian(sigma=0.25), ko.kernels.Linear()
RNG = np.random.default_rng(0)
X, Y = RNG.uniform(-1, 1, size=(4, 1)), RNG.normal(size=4)


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


def test_distances_from_two_functions():
    """Each norm has its own f₀, and Aᵀν is split among them."""
    theta = ko.Theta(GAUSSIAN)
    f, g = ko.Function(GAUSSIAN, X[:2] + 0.1, [1.2, -0.9]), ko.Function(GAUSSIAN, X[1:] - 0.2, [0.5, 0.4, -1.0])
    distances = ko.norm(theta - f) + 2 * ko.norm(theta - g)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - Y) + distances))
    problem.solve()
    assert problem.status == "optimal"
    assert problem.certificate.relative_gap < 1e-6


def test_parts_from_the_cone_program_keep_to_their_norms():
    """Of several divisions of Aᵀν among norms the solver's is taken: each part has ‖mⱼ‖ ≤ μⱼ."""
    theta = ko.Theta(GAUSSIAN)
    f, g = ko.Function(GAUSSIAN, X[:2] + 0.1, [1.2, -0.9]), ko.Function(GAUSSIAN, X[1:] - 0.2, [0.5, 0.4, -1.0])
    distances = ko.norm(theta - f) + 2 * ko.norm(theta - g)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - Y) + distances))
    optimum = problem.solve()
    reduction, form = reduction_of(problem), problem._outer().form
    found = cone_bounds.joint_bound(reduction, form, point_of(problem), STREAMED, 1e-7)
    assert found is not None and found.value == pytest.approx(optimum, rel=1e-5)
    (multipliers,), (gram,) = found.multipliers, found.grams
    assert np.all(lengths_of(multipliers, gram) <= found.point.mu[list(multipliers.norms)] * (1 + 1e-6))


def test_two_thetas_with_other_numbers_of_predictions():
    """Each has its own part of ν, also in closed form."""
    theta, other = ko.Theta(GAUSSIAN), ko.Theta(LINEAR)
    loss = cp.sum_squares(theta(X[:3]) + other(X[:3]) - Y[:3]) + cp.sum(ko.losses.log_loss(np.sign(Y), other(X)))
    problem = ko.Problem(cp.Minimize(loss + 0.1 * ko.sum_squares(theta) + 0.2 * ko.sum_squares(other)))
    problem.solve()
    assert problem.status == "optimal"
    assert problem.certificate.relative_gap < 1e-6


def test_nothing_is_gained_by_any_theta():
    """Two θ that fit: the optimum is 0, and so is the bound."""
    theta, other = ko.Theta(LINEAR), ko.Theta(GAUSSIAN)
    loss = cp.sum(ko.losses.squared_hinge(np.sign(Y), theta(X) + other(X)))
    problem = ko.Problem(cp.Minimize(loss), [ko.norm(theta) <= 3, ko.norm(other) <= 3])
    assert problem.solve() == 0
    assert problem.status == "optimal"
    assert problem.certificate.lower == 0


def test_large_problems_are_left_to_what_knows_nu(monkeypatch):
    monkeypatch.setattr(joint, "MOST", 0)
    theta = ko.Theta(GAUSSIAN)
    problem = ko.Problem(cp.Minimize(cp.norm1(Y - theta(X)) + ko.norm(theta)))
    problem.solve()
    assert problem.status == "optimal"
    form = problem.canonical_form()
    assert joint.solved(reduction_of(problem), problem._outer().form, np.ones(len(form.predictions) + 4), 0.0) is None


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


def test_multipliers_are_stepped_back_until_they_are_dual_feasible():
    """Half of ν is not enough where two norms share it: more of μ is tried, and the bound is finite without a solver
    for all multipliers at once."""
    theta = ko.Theta(GAUSSIAN)
    most = cp.maximum(ko.norm(theta), 2 * ko.norm(theta - ko.Function(GAUSSIAN, X[:2] + 0.1, [1.2, -0.9])))
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(np.sign(Y), theta(X))) + most))
    optimum = problem.solve()
    assert {attempt.solver for attempt in problem.solver_stats.attempts} == {"CLARABEL"}  # whose gap is seen to close
    reduction, point, form = reduction_of(problem), point_of(problem), problem._outer().form
    nu = point.multipliers()
    mu = norm_multipliers(reduction, form, point, nu)
    found = cone_bounds.lower_bound(reduction, form, point, nu, mu, STREAMED)
    assert found is not None and found.assumptions == ()
    assert found.value == pytest.approx(optimum, rel=1e-6)
