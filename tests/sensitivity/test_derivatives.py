"""Derivative rows: slopes observed, constrained, and bounded in balls."""

import cvxpy as cp
import numpy as np
import pytest
from stating import TIGHT

import kernelopt as ko
from kernelopt.errors import DataError, KernelError
from kernelopt.testing import check_kernel

pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
ks = ko.kernels
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(12, 2))
y = np.sin(3 * X[:, 0]) + X[:, 1]
SMOOTH = [
    ks.Gaussian(sigma=0.8),
    ks.Polynomial(degree=3),
    ks.Polynomial(degree=1, offset=0.0),
    ks.Linear(),
    ks.Constant(2.0),
    ks.PolynomialSeries([1.0, 0.5, 0.0, 0.2]),
    ks.Geometric().ard([3.0, 3.0]),
    ks.RationalQuadratic(sigma=0.8, alpha=1.5),
    ks.Periodic(period=1.7, sigma=0.9),
    ks.Matern(nu=2.5, sigma=0.8),
    ks.Gaussian(sigma=1.0) + 0.5 * ks.Linear(),
    ks.Gaussian(sigma=1.0) * ks.Polynomial(degree=2) * ks.Linear(),
    ks.Gaussian(sigma=1.0) - 0.1 * ks.Linear(),
    (ks.Linear() + ks.Constant(1.0)) ** 3,
    ks.Gaussian(sigma=1.0).series([0.5, 1.0, 2.0]),
    (0.3 * ks.Linear()).exp(),
    ks.Gaussian(sigma=1.0).ard([1.0, 0.5]),
    ks.Gaussian(sigma=1.0).on([1]) + ks.Linear().on([1, 0]),
]


@pytest.mark.parametrize("kernel", SMOOTH, ids=repr)
def test_derivatives_agree_with_differences(kernel):
    assert kernel._smoothness >= 1
    check_kernel(kernel, X, RNG.uniform(-1, 1, size=(5, 2)))


def test_matern_three_halves():
    """Once differentiable: checked away from x = z, where it has no second derivative to difference."""
    kernel = ks.Matern(nu=1.5, sigma=0.8)
    check_kernel(kernel, X[:6], X[6:])
    A = ko.FeatureMatrix(X, kernel)
    assert A.derivative(0).diag() == pytest.approx(np.full(12, 3 / 0.8**2))
    with pytest.raises(KernelError, match="derivatives up to order 1"):
        A.derivative((0, 0))


def test_a_wrong_derivative_is_found():
    class Wrong(ks.Gaussian):
        def _derivative(self, X, dx, Z, dz):
            return 1.001 * super()._derivative(X, dx, Z, dz)

    with pytest.raises(KernelError, match=r"the derivative \(0,\) in x"):
        check_kernel(Wrong(sigma=1.0), X)


@pytest.mark.parametrize("order", [0, 1, (0, 0), (0, 1), (1, 1)])
def test_rows_are_derivatives_of_features(order):
    kernel = ks.Polynomial(degree=3)
    A = ko.FeatureMatrix(X, kernel).derivative(order)
    h, columns = 1e-5, order if isinstance(order, tuple) else (order,)

    def features(points, left):
        if not left:
            return kernel.features(points)
        step = h * np.eye(2)[left[0]]
        return (features(points + step, left[1:]) - features(points - step, left[1:])) / (2 * h)

    F = features(X, columns)
    assert A.shape == (12, 10)
    assert np.allclose(A.diag(), np.sum(F**2, axis=1), rtol=1e-4, atol=1e-4)
    f = ko.Function(kernel, X, RNG.normal(size=12))
    theta = ko.Theta(kernel)
    theta.value = f
    assert np.allclose((A @ theta).value, F @ kernel.features(X).T @ f.coefficients, rtol=1e-4, atol=1e-3)
    assert np.allclose((A[2:5] @ theta).value, (A @ theta).value[2:5], rtol=1e-13)


@pytest.mark.later
def test_slopes_observed_and_constrained():
    """Values and slopes in one problem, against the explicit one; degree 3 in the plane."""
    kernel, theta = ks.Polynomial(degree=3), ko.Theta(ks.Polynomial(degree=3))
    A = ko.FeatureMatrix(X, kernel)
    grid = RNG.uniform(-1, 1, size=(7, 2))
    G = ko.FeatureMatrix(grid, kernel)
    slopes = 3 * np.cos(3 * X[:5, 0])
    problem = ko.Problem(
        cp.Minimize(
            cp.sum_squares(A @ theta - y)
            + cp.sum_squares(A[:5].derivative(0) @ theta - slopes)
            + 0.1 * ko.sum_squares(theta)
        ),
        [G.derivative(1) @ theta >= 1.2, G.derivative((0, 0)) @ theta <= 1.0],
    )
    value = problem.solve("CLARABEL", **TIGHT)

    def difference(points, *columns):
        h = 1e-4
        if not columns:
            return kernel.features(points)
        step = h * np.eye(2)[columns[0]]
        return (difference(points + step, *columns[1:]) - difference(points - step, *columns[1:])) / (2 * h)

    t = cp.Variable(10)
    fit = cp.sum_squares(kernel.features(X) @ t - y) + cp.sum_squares(difference(X[:5], 0) @ t - slopes)
    explicit = cp.Problem(
        cp.Minimize(fit + 0.1 * cp.sum_squares(t)), [difference(grid, 1) @ t >= 1.2, difference(grid, 0, 0) @ t <= 1.0]
    )
    assert value == pytest.approx(explicit.solve("CLARABEL", **TIGHT), rel=1e-5)
    assert np.allclose(theta.value(grid), kernel.features(grid) @ t.value, atol=1e-4)
    assert (G.derivative(1) @ theta).value.min() > 1.2 - 1e-6
    assert (A.derivative(0) @ theta).value.shape == (12,)
    assert (G.derivative(1) @ theta).dual_value.shape == (7,)
    assert theta.value.kernel == kernel
    assert theta.value.centers.shape[1] == 2
    assert theta.value.norm == pytest.approx(np.linalg.norm(t.value), rel=1e-4)
    assert ko.norm(theta).value == pytest.approx(theta.value.norm)


@pytest.mark.slow
def test_a_function_fitted_to_slopes_can_be_used_again():
    theta, kernel = ko.Theta(ks.Gaussian(sigma=0.7)), ks.Gaussian(sigma=0.7)
    A = ko.FeatureMatrix(X, kernel)
    ko.Problem(cp.Minimize(cp.sum_squares(A.derivative(0) @ theta - 1) + 0.1 * ko.sum_squares(theta))).solve()
    f0 = theta.value
    assert np.sqrt(f0.gram()[0, 0]) == pytest.approx(f0.norm, rel=1e-6)
    other = ko.Theta(kernel)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(other(X) - y) + ko.norm(other - f0) ** 2))
    problem.solve()
    assert problem.status == "optimal"
    zero = ko.Problem(cp.Minimize(ko.norm(other - f0)), [f0.inner(other) >= 0.1])
    assert zero.solve() < 1e-6
    assert np.allclose(other.value(X), f0(X), atol=1e-5)


def fit_values_and_slopes(sigma):
    x = sigma * np.linspace(-3, 3, 15)[:, None]
    theta, A = ko.Theta(ks.Gaussian(sigma=sigma)), ko.FeatureMatrix(x, ks.Gaussian(sigma=sigma))
    values, slopes = np.sin(x[:, 0] / sigma), np.cos(x[:, 0] / sigma)
    fit = cp.sum_squares(A @ theta - values) + cp.sum_squares(sigma * (A.derivative(0) @ theta) - slopes)
    problem = ko.Problem(cp.Minimize(fit + 1e-4 * ko.sum_squares(theta)))
    value = problem.solve("CLARABEL", **TIGHT)
    return value, (A @ theta).value, sigma * (A.derivative(0) @ theta).value, values, slopes


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [1e-3, 1e3])
def test_units_of_slopes_do_not_matter(sigma):
    """With σ = 1e-3 slopes weigh 1e6 times more than values in trace(Q): both are resolved alike."""
    value, fitted, slopes, true_values, true_slopes = fit_values_and_slopes(sigma)
    reference, fitted_1, slopes_1, _, _ = fit_values_and_slopes(1.0)
    assert value == pytest.approx(reference, rel=1e-3)
    assert np.abs(fitted - fitted_1).max() < 1e-4
    assert np.abs(slopes - slopes_1).max() < 1e-4
    assert np.abs(fitted - true_values).max() < 1e-2
    assert np.abs(slopes - true_slopes).max() < 1e-2


@pytest.mark.parametrize("order", [None, 0, (0, 1)])
@pytest.mark.parametrize(
    "kernel", [ks.Gaussian(sigma=0.6), ks.RationalQuadratic(sigma=0.6), ks.Gaussian(1.0).ard([1, 0.5])]
)
@pytest.mark.parametrize("radius", [0.05, 0.4, 3.0])
def test_modulus_bounds_the_change_in_a_ball(kernel, order, radius):
    A = ko.FeatureMatrix(X[:1], kernel)
    A = A if order is None else A.derivative(order)
    eta = A.modulus(radius)[0]
    directions = RNG.normal(size=(3000, 2))
    directions *= (radius * RNG.uniform(size=(3000, 1)) ** 0.5) / np.linalg.norm(directions, axis=1, keepdims=True)
    directions[:4] = radius * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
    from kernelopt.kernels.derivatives import derivative  # noqa: PLC0415

    at = derivative(kernel, X[:1], A.order, X[:1], A.order)[0, 0]
    moved = np.sqrt(np.maximum(2 * (at - derivative(kernel, X[:1] + directions, A.order, X[:1], A.order)[:, 0]), 0))
    assert moved.max() <= eta * (1 + 1e-9)
    if isinstance(kernel, ks.Gaussian) and order in (None, 0):
        assert moved.max() > 0.97 * eta  # and it is attained


@pytest.mark.parametrize("radius", [1e-9, 1e-7, 1e-4])
def test_moduli_of_tiny_balls_have_digits(radius):
    """For s → 0: √(2(κ(0) − κ(s))) → s/σ, and of slopes along a column → √3·s/σ²."""
    A = ko.FeatureMatrix(X[:1], ks.Gaussian(sigma=0.5))
    assert A.modulus(radius)[0] == pytest.approx(radius / 0.5, rel=1e-7, abs=0)
    assert A.derivative(0).modulus(radius)[0] == pytest.approx(3**0.5 * radius / 0.25, rel=1e-7, abs=0)


@pytest.mark.later
def test_monotone_between_the_points():
    """η‖θ‖ ≤ (A′θ)ᵢ on a cover of [0, 1] makes the fit increase everywhere, not at the cover's centres alone."""
    x = np.linspace(0, 1, 25)[:, None]
    target = np.sin(7 * x[:, 0]) / 2 + x[:, 0]
    theta, kernel = ko.Theta(ks.Gaussian(sigma=0.3)), ks.Gaussian(sigma=0.3)
    centres, radius = np.linspace(0.025, 0.975, 20)[:, None], 0.025
    slope = ko.FeatureMatrix(centres, kernel).derivative(0)
    fit = cp.sum_squares(theta(x) - target) + 0.01 * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(fit), [slope.modulus(radius)[0] * ko.norm(theta) <= slope @ theta])
    problem.solve()
    assert problem.status == "optimal"
    assert np.diff(theta.value(np.linspace(0, 1, 5000)[:, None])).min() > 0


def test_refusals():
    A = ko.FeatureMatrix(X, ks.Gaussian(sigma=1.0))
    for feature in (2, -1, (0, 1, 1), "a", 0.5):
        with pytest.raises(DataError, match="column from 0 to 1"):
            A.derivative(feature)
    for kernel in (
        ks.Laplacian(1.0),
        ks.Matern(0.5, 1.0),
        ks.Gaussian(1.0) * ks.Cosine(),
        ks.Gaussian(1.0).normalized(),
    ):
        with pytest.raises(KernelError, match="not differentiable"):
            ko.FeatureMatrix(X, kernel).derivative(0)
    with pytest.raises(KernelError, match="stationary"):
        ko.FeatureMatrix(X, ks.Polynomial(2)).derivative(0).modulus(0.1)
    indefinite = ks.Gaussian(1.0) - 2 * ks.Gaussian(0.5)
    with pytest.raises(KernelError, match="positive semidefinite by rule"):
        ko.FeatureMatrix(X, indefinite).modulus(0.1)
    with pytest.raises(DataError, match="radius"):
        A.modulus(-1.0)
    with pytest.raises(KernelError, match="not differentiable"):
        ko.FeatureMatrix([0, 1], ks.Precomputed(np.eye(2))).derivative(0)


def test_derivatives_of_derivatives_and_of_theta():
    kernel = ko.kernels.Gaussian(sigma=1.0)
    X, theta = np.random.default_rng(0).normal(size=(8, 2)), ko.Theta(kernel)
    A = ko.FeatureMatrix(X, kernel)
    assert A.derivative(1).derivative(0).order == A.derivative((0, 1)).order == (0, 1)
    with pytest.raises(DataError, match="Expected derivatives of order 1 or 2; got one of order 3"):
        A.derivative((0, 1)).derivative(0)
    ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - X[:, 0]) + ko.sum_squares(theta))).solve()
    for feature in (0, (0, 1)):
        found = theta.derivative(feature)(X)
        assert np.array_equal(found.value, (A.derivative(feature) @ theta).value)
        assert np.allclose(theta.value.derivative(feature)(X), found.value, rtol=1e-12)
        assert np.array_equal(theta.derivative(feature)(A).value, found.value)
    both = (theta - theta.value).derivative(0)(X)
    assert np.allclose(both.value, 0.0)


def test_a_radius_for_each_row():
    A = ko.FeatureMatrix(np.arange(4.0)[:, None], ko.kernels.Gaussian(sigma=1.0)).derivative(0)
    radii = np.array([0.1, 0.3, 0.1, 0.0])
    assert np.array_equal(A.modulus(radii), [A.modulus(r)[0] for r in radii])
    other = ko.FeatureMatrix(np.arange(4.0)[:, None], ko.kernels.RationalQuadratic(sigma=1.0))
    assert np.array_equal(other.modulus(radii), [other.modulus(r)[0] for r in radii])
    for wrong in (radii[:3], -radii, np.nan):
        with pytest.raises(DataError):
            A.modulus(wrong)
