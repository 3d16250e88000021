"""One problem in other words has the same answer, the same status and the same relative gap."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt import losses

RNG = np.random.default_rng(3)
X = RNG.normal(size=(50, 2))
TARGETS = np.sin(2 * X[:, 0]) + 0.3 * RNG.normal(size=50)
LABELS = np.where(TARGETS > 0, 1.0, -1.0)
KERNEL = ko.kernels.Gaussian(sigma=0.8)
LOSSES = {
    "squared": lambda f, rows: losses.squared_error(TARGETS[rows], f),
    "absolute": lambda f, rows: losses.absolute_error(TARGETS[rows], f),
    "hinge": lambda f, rows: losses.hinge(LABELS[rows], f),
    "logistic": lambda f, rows: losses.log_loss(LABELS[rows], f),
}


def solved(loss, *, kernel=KERNEL, lam=0.1, rows=None, weights=None, factor=1.0, constant=0.0, points=X, **options):
    rows = np.arange(50) if rows is None else rows
    weights = np.ones(len(rows)) if weights is None else weights
    theta, b = ko.Theta(kernel), cp.Variable()
    objective = weights @ LOSSES[loss](theta(points[rows]) + b, rows) + lam * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(factor * objective + constant))
    problem.solve(**options)
    assert problem.status == "optimal"
    return problem, theta, b


@pytest.mark.later
@pytest.mark.one_row
@pytest.mark.parametrize("scale", [1e-16, 1e-8, 1e-3, 1e5, 1e16])
@pytest.mark.parametrize("loss", LOSSES)
def test_kernel_times_c(loss, scale):
    one, theta, _ = solved(loss)
    other, phi, _ = solved(loss, kernel=scale * KERNEL, lam=0.1 * scale)
    assert other.value == pytest.approx(one.value, rel=1e-6)
    assert np.abs(phi.value(X) - theta.value(X)).max() < 2e-3
    assert other.certificate.lower == pytest.approx(one.certificate.lower, rel=1e-6)


@pytest.mark.parametrize("factor", [1e-8, 1e-3, 1e6])
@pytest.mark.parametrize("constant", [0.0, -15.1, 1e4])
def test_objective_times_a_factor_plus_a_constant(factor, constant):
    one, _, _ = solved("hinge")
    other, _, _ = solved("hinge", factor=factor, constant=factor * constant)
    assert other.value == pytest.approx(factor * (one.value + constant), rel=1e-6)
    assert other.certificate.closes(1e-6)


@pytest.mark.later
@pytest.mark.parametrize("loss", LOSSES)
def test_rows_in_another_order(loss):
    one, theta, _ = solved(loss)
    other, phi, _ = solved(loss, rows=RNG.permutation(50))
    assert other.value == pytest.approx(one.value, rel=1e-6)
    assert np.abs(phi.value(X) - theta.value(X)).max() < 2e-3


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_a_repeated_row_is_weight_two_and_weight_zero_is_none(loss):
    twice, _, _ = solved(loss, rows=np.r_[np.arange(50), 7])
    weights = np.ones(50)
    weights[7] = 2.0
    weighted, _, _ = solved(loss, weights=weights)
    assert twice.value == pytest.approx(weighted.value, rel=1e-6)
    weights[7] = 0.0
    without, _, _ = solved(loss, weights=weights)
    removed, _, _ = solved(loss, rows=np.delete(np.arange(50), 7))
    assert without.value == pytest.approx(removed.value, rel=1e-6)


@pytest.mark.parametrize(("slope", "shift"), [(1e-6, 0.0), (1.0, 100.0), (1e5, -3e5)])
def test_targets_in_other_units(slope, shift):
    """Least squares with intercept: y → slope·y + shift."""
    fits = []
    for y in (TARGETS, slope * TARGETS + shift):
        theta, b = ko.Theta(KERNEL), cp.Variable()
        problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X) - b) + 0.1 * ko.sum_squares(theta)))
        problem.solve()
        assert problem.status == "optimal"
        fits.append((problem, theta, b))
    (one, theta, b), (other, phi, c) = fits
    assert other.value == pytest.approx(slope**2 * one.value, rel=1e-5)
    assert np.abs(phi.value(X) / slope - theta.value(X)).max() < 1e-4
    assert c.value == pytest.approx(slope * b.value + shift, rel=1e-4, abs=1e-4 * slope)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_rotated_feature_map(loss):
    R = np.linalg.qr(RNG.normal(size=(2, 2)))[0]
    one, theta, _ = solved(loss, kernel=ko.kernels.Polynomial(degree=2))
    other, phi, _ = solved(loss, kernel=ko.kernels.Polynomial(degree=2), points=X @ R)
    assert other.value == pytest.approx(one.value, rel=1e-6)
    assert np.abs(phi.value(X @ R) - theta.value(X)).max() < 2e-3


@pytest.mark.later
@pytest.mark.parametrize("scale", [1e-120, 1e140])
@pytest.mark.parametrize("power", [1, 2])
def test_a_bound_of_the_norm_in_far_other_units(scale, power):
    """‖Aᵀν‖ is then 1e70 times ν, and the multiplier of the bound too."""
    theta, b = ko.Theta(scale * ko.kernels.Polynomial(degree=2)), cp.Variable()
    loss = cp.sum(cp.power(losses.hinge(LABELS, theta(X) + b), power))
    problem = ko.Problem(cp.Minimize(loss), [ko.norm(theta) <= 1.5 / scale**0.5])
    problem.solve()
    assert problem.status == "optimal", problem.certificate


def test_multipliers_whose_squares_times_the_kernel_are_hardly_doubles():
    """νᵀQν is 1e-296 there: it is computed for multipliers of size 1."""
    solved("logistic", kernel=1e-144 * KERNEL, lam=1e-145, factor=1e-76)


@pytest.mark.one_row
@pytest.mark.parametrize(
    ("scale", "penalty"),
    [(1e-8, "squared"), (1e-5, "squared"), (1e-5, "none"), (1.0, "squared"), (1.0, "none"), (1e5, "squared")],
)
def test_powers_of_residuals_in_any_units(scale, penalty):
    """The multiplier of the 1 in |q|^1.5 ≤ t is as small as the cone lets it be: it costs √scale of the others."""
    theta, b = ko.Theta(ko.kernels.Polynomial(degree=2)), cp.Variable()
    loss = cp.sum(cp.power(cp.abs(theta(X) + b - scale * TARGETS), 1.5))
    if penalty == "squared":
        loss = loss + 0.1 * scale**-0.5 * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(loss))
    problem.solve()
    assert problem.status == "optimal", problem.certificate
