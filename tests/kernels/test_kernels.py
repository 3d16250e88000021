"""Kernels: formulas, feature maps, composition, values."""

import copy
import inspect
import pickle
import re
from math import factorial, inf

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import gamma, kv

import kernelopt as ko
from kernelopt.errors import DataError, DataTypeError, KernelError, NotPSDError
from kernelopt.kernels.derivatives import derivative
from kernelopt.kernels.gamma_mixture import gamma_mixture
from kernelopt.testing import check_kernel

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(8, 3)), RNG.normal(size=(5, 3))
H, G = np.abs(X), np.abs(Z)  # histograms
A = RNG.normal(size=(20, 20))
Q = A @ A.T
Linear, Polynomial, Gaussian = ko.kernels.Linear, ko.kernels.Polynomial, ko.kernels.Gaussian


def squares(X):
    return np.column_stack([X, X**2])


def norm1(x, y):
    return np.abs(x - y).sum()


def squared(x, y):
    return np.sum((x - y) ** 2)


def chi2(x, y):
    return np.sum((x - y) ** 2 / (x + y))


def bessel(s, nu):
    return 2 ** (1 - nu) / gamma(nu) * s**nu * kv(nu, s) if s else 1.0


def spline(s, t, m, high):
    """By Gauss–Legendre, which is exact for polynomials."""
    u, w = np.polynomial.legendre.leggauss(8)
    end = max(min(s, t, high), 0.0)
    u = end * (u + 1) / 2
    return end / 2 * (w * (s - u) ** (m - 1) * (t - u) ** (m - 1)).sum() / factorial(m - 1) ** 2


def thin_plate(x, y, phi, anchors=None):
    """For order 2: barycentric coordinates instead of Lagrange's polynomials."""
    A = np.array(ANCHORS if anchors is None else anchors)
    weights = [np.append(1.0, -np.linalg.solve(np.vstack([A.T, np.ones(len(A))]), np.append(p, 1.0))) for p in (x, y)]
    P, R = (np.vstack([p, A]) for p in (x, y))
    return weights[0] @ phi(np.linalg.norm(P[:, None] - R, axis=2)) @ weights[1]


ANCHORS = [[-2.0, -1.0, 0.5], [2.0, -1.5, 0.0], [0.25, 2.0, 1.0], [0.0, 0.5, -2.0]]
S = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 3.0]])
ks = ko.kernels
FORMULAS = {
    "constant": (ks.Constant(2.0), lambda x, y: 2.0),
    "linear": (Linear(), lambda x, y: x @ y),
    "cosine": (ks.Cosine(), lambda x, y: x @ y / np.linalg.norm(x) / np.linalg.norm(y)),
    "polynomial": (Polynomial(degree=3, offset=0.5, scale=2.0), lambda x, y: (0.5 + 2 * x @ y) ** 3),
    "homogeneous": (Polynomial(degree=2, offset=0.0), lambda x, y: (x @ y) ** 2),
    "polynomial series": (ks.PolynomialSeries([1, 0, 2, 0.5]), lambda x, y: 1 + 2 * (x @ y) ** 2 + 0.5 * (x @ y) ** 3),
    "geometric": (ks.Geometric().ard([9, 9, 9]), lambda x, y: 1 / (1 - x @ y / 81)),
    "gaussian": (Gaussian(sigma=1.5), lambda x, y: np.exp(-squared(x, y) / (2 * 1.5**2))),
    "laplacian": (ks.Laplacian(sigma=1.5), lambda x, y: np.exp(-norm1(x, y) / 1.5)),
    "matern 1/2": (ks.Matern(nu=0.5, sigma=2.0), lambda x, y: np.exp(-(squared(x, y) ** 0.5) / 2)),
    "matern 3/2": (
        ks.Matern(nu=1.5, sigma=2.0),
        lambda x, y: (1 + (3 * squared(x, y)) ** 0.5 / 2) * np.exp(-((3 * squared(x, y)) ** 0.5) / 2),
    ),
    "matern 5/2": (
        ks.Matern(nu=2.5, sigma=2.0),
        lambda x, y: (
            (1 + (5 * squared(x, y)) ** 0.5 / 2 + 5 * squared(x, y) / 12) * np.exp(-((5 * squared(x, y)) ** 0.5) / 2)
        ),
    ),
    "matern 7/2": (ks.Matern(nu=3.5, sigma=2.0), lambda x, y: bessel((7 * squared(x, y)) ** 0.5 / 2, 3.5)),
    "matern 0.7": (ks.Matern(nu=0.7, sigma=2.0), lambda x, y: bessel((1.4 * squared(x, y)) ** 0.5 / 2, 0.7)),
    "matern 2.2": (ks.Matern(nu=2.2, sigma=2.0), lambda x, y: bessel((4.4 * squared(x, y)) ** 0.5 / 2, 2.2)),
    "rational quadratic": (
        ks.RationalQuadratic(sigma=1.5, alpha=0.7),
        lambda x, y: (1 + squared(x, y) / (2 * 0.7 * 1.5**2)) ** -0.7,
    ),
    "periodic": (
        ks.Periodic(period=1.3, sigma=0.8),
        lambda x, y: np.exp(-2 * np.sum(np.sin(np.pi * (x - y) / 1.3) ** 2) / 0.8**2),
    ),
    "spline": (ks.Spline(2, -2.0, 1.0).on([1]), lambda x, y: spline(x[1] + 2, y[1] + 2, 2, 3.0)),
    "thin plate": (ks.ThinPlate(ANCHORS), lambda x, y: thin_plate(x, y, lambda r: -r / (8 * np.pi))),
    "generalized l1": (ks.GeneralizedGaussian("l1", 2.0), lambda x, y: np.exp(-(norm1(x, y) ** 2) / 2)),
    "generalized l2": (ks.GeneralizedGaussian("l2", 2.0), lambda x, y: np.exp(-squared(x, y) / 2)),
    "generalized linf": (ks.GeneralizedGaussian("linf", 2.0), lambda x, y: np.exp(-(np.abs(x - y).max() ** 2) / 2)),
    "mahalanobis": (
        ks.GeneralizedGaussian("mahalanobis", 2.0, S),
        lambda x, y: np.exp(-(x - y) @ S @ (x - y) / 2),
    ),
    "callable distance": (
        ks.GeneralizedGaussian(lambda X, Z: np.abs(X[:, None] - Z).sum(axis=2) ** 0.5, 2.0),
        lambda x, y: np.exp(-norm1(x, y) / 2),
    ),
    "sigmoid": (ks.Sigmoid(scale=0.3, offset=-0.2), lambda x, y: np.tanh(0.3 * x @ y - 0.2)),
    "explicit": (ks.Explicit(squares), lambda x, y: x @ y + x**2 @ y**2),
    "function": (ks.FromFunction(lambda x, y: float(x @ y)), lambda x, y: x @ y),
    "function on lists": (ks.FromFunction(lambda X, Z: np.array(X) @ np.array(Z).T, on_lists=True), lambda x, y: x @ y),
    "sum": (Linear() + Polynomial(degree=2), lambda x, y: x @ y + (1 + x @ y) ** 2),
    "product": (Linear() * Polynomial(degree=2), lambda x, y: (x @ y) * (1 + x @ y) ** 2),
    "scaled": (3 * Linear(), lambda x, y: 3 * x @ y),
    "mixture": (
        0.5 * (Gaussian(sigma=1.0) + Linear()) * Gaussian(sigma=2.0),
        lambda x, y: 0.5 * (np.exp(-squared(x, y) / 2) + x @ y) * np.exp(-squared(x, y) / 8),
    ),
    "power": ((Linear() + ks.Constant(1.0)) ** 3, lambda x, y: (1 + x @ y) ** 3),
    "series": (Linear().series([1.0, 0.0, 0.5]), lambda x, y: 1 + 0.5 * (x @ y) ** 2),
    "exponential": ((0.3 * Linear()).exp(), lambda x, y: np.exp(0.3 * x @ y)),
    "difference": (Gaussian(sigma=2.0) - 0.5 * Linear(), lambda x, y: np.exp(-squared(x, y) / 8) - 0.5 * x @ y),
    "weighted": (Linear().weighted(lambda X: X[:, 0]), lambda x, y: x[0] * (x @ y) * y[0]),
    "composed": (Gaussian(sigma=1.0).compose(squares), lambda x, y: np.exp(-(squared(x, y) + squared(x**2, y**2)) / 2)),
    "columns": (Polynomial(degree=2).on([2, 0]), lambda x, y: (1 + x[2] * y[2] + x[0] * y[0]) ** 2),
    "ard": (Gaussian(sigma=1.0).ard([1, 2, 0.5]), lambda x, y: np.exp(-squared(x / [1, 2, 0.5], y / [1, 2, 0.5]) / 2)),
    "normalized": (
        Polynomial(degree=2).normalized(),
        lambda x, y: (1 + x @ y) ** 2 / (1 + x @ x) / (1 + y @ y),
    ),
    "centered": (Linear().centered(X), lambda x, y: (x - X.mean(axis=0)) @ (y - X.mean(axis=0))),
    "cached": (Polynomial(degree=2).cached(X[:5]), lambda x, y: (1 + x @ y) ** 2),
}
HISTOGRAM_FORMULAS = {
    "intersection": (ks.Intersection(), lambda x, y: np.minimum(x, y).sum()),
    "additive chi squared": (ks.AdditiveChiSquared(), lambda x, y: np.sum(2 * x * y / (x + y))),
    "chi squared": (ks.GeneralizedGaussian("chi2", 2.0), lambda x, y: np.exp(-chi2(x, y) / 2)),
    "hellinger": (ks.GeneralizedGaussian("hellinger", 2.0), lambda x, y: np.exp(-squared(x**0.5, y**0.5) / 2)),
    "mixed": (
        ks.Intersection() * Gaussian(sigma=1.0),
        lambda x, y: np.minimum(x, y).sum() * np.exp(-squared(x, y) / 2),
    ),
}
WITH_FEATURES = [
    "constant", "linear", "cosine", "polynomial", "homogeneous", "polynomial series", "explicit", "sum", "product",
    "scaled", "power", "series", "weighted", "columns", "normalized", "centered", "cached",
]  # fmt: skip
UNKNOWN = {"generalized l1", "generalized linf", "callable distance", "function", "function on lists", "difference"}


def agrees(kernel, formula, X, Z):
    expected = np.array([[formula(x, z) for z in Z] for x in X])
    assert np.allclose(kernel(X, Z), expected, rtol=1e-12, atol=1e-13)
    K = kernel(X)
    assert np.allclose(K, [[formula(x, y) for y in X] for x in X], rtol=1e-12, atol=1e-13)
    check_kernel(kernel, X, Z)


DYADIC = np.round(X * 2**10) / 2**10  # their differences, and sums with 2³⁰, are exact


@pytest.mark.parametrize(
    "kernel",
    [
        Gaussian(sigma=1.5), ks.Matern(nu=0.5, sigma=1.5), ks.RationalQuadratic(sigma=1.5),
        ks.GeneralizedGaussian("l2", beta=2.0), ks.Periodic(period=2.0), ks.Laplacian(sigma=1.5),
    ],
    ids=repr,
)  # fmt: skip
def test_points_far_from_the_others_keep_their_differences(kernel):
    clusters = np.vstack([DYADIC, Z, DYADIC[:3] + 2**30])
    assert np.allclose(kernel(clusters)[-3:, -3:], kernel(DYADIC[:3]), rtol=1e-13)
    assert np.allclose(kernel(clusters, clusters)[-3:, -3:], kernel(DYADIC[:3]), rtol=1e-13)


@pytest.mark.parametrize(
    "kernel",
    [
        ks.GeneralizedGaussian("mahalanobis", 2.0, S), Gaussian(sigma=1.0).ard([1.0, 3.0, 0.7]),
        ks.Matern(nu=1.5, sigma=1.0).ard([1.0, 3.0, 0.7]),
    ],
    ids=repr,
)  # fmt: skip
def test_a_common_offset_changes_nothing(kernel):
    assert np.allclose(kernel(DYADIC + 2**30), kernel(DYADIC), rtol=1e-13)
    assert np.allclose(kernel(DYADIC + 2**30, DYADIC[:4] + 2**30), kernel(DYADIC, DYADIC[:4]), rtol=1e-13)


def test_generalized_gaussian_of_small_beta():
    """The product of matrices is taken in units of √β, in which points far apart are seen as such."""
    kernel = ks.GeneralizedGaussian("l2", beta=1e-12)
    P = DYADIC + 1e-7 * np.arange(8)[:, None]
    near = np.array([[1e-7, 0.0, 0.0]])
    assert np.allclose(kernel(np.vstack([P, P + near]))[:8, 8:].diagonal(), np.exp(-0.01), rtol=1e-8)


def test_rational_quadratic_of_large_alpha_is_gaussian():
    kernel, limit = ks.RationalQuadratic(sigma=1.5, alpha=1e15), Gaussian(sigma=1.5)
    assert np.allclose(kernel(X), limit(X), rtol=1e-12)
    assert np.allclose(kernel._derivative(X, (0,), Z, (1,)), limit._derivative(X, (0,), Z, (1,)), atol=1e-12)


def test_derivatives_of_a_matern_kernel_at_one_point():
    """√ρ would magnify the rounding error of ρ near 0."""
    points = 10 * np.random.default_rng(0).normal(size=(50, 5))
    slopes = ks.Matern(nu=1.5, sigma=1.0)._derivative(points, (0,), points, (0,))
    assert np.allclose(slopes.diagonal(), 3.0, rtol=1e-14, atol=0)


def test_matern_kernels_beside_half_integers_are_close_to_them():
    """Two formulas: a polynomial, and a rule for all ν. Their derivatives agree at the same points, and at ρ = 0."""
    for nu in (0.5, 1.5, 2.5, 4.5):
        kernel, beside = ks.Matern(nu, 1.3), ks.Matern(nu * (1 + 1e-13), 1.3)
        assert kernel._degree is not None and beside._degree is None
        for dx, dz in [((), ()), ((0,), ()), ((0,), (1,)), ((0, 1), (1,)), ((0, 1), (0, 1))][
            : 2 * kernel._smoothness + 1
        ]:
            got, expected = (derivative(k, X, dx, np.vstack([X, Z]), dz) for k in (beside, kernel))
            assert np.allclose(got, expected, rtol=1e-10, atol=1e-11)


def test_the_table_of_a_matern_kernel_has_the_values_of_its_sum():
    """At the ends of its cells, beside them, and between."""
    ends = 2.0 ** np.arange(-230, 12)[:, None] * (1 + np.arange(16) / 16)
    rho = np.concatenate(
        [ends.ravel(), np.nextafter(ends, 0).ravel(), (ends * RNG.uniform(1, 1.06, ends.shape)).ravel()]
    )
    for nu in (1e-3, 0.2, 1.0, 2.7, 60.0, 1e7):
        mixture = gamma_mixture(nu)
        assert np.abs(mixture.interpolated(rho) - mixture.values(rho, 0)[0]).max() < 2e-15
    assert np.array_equal(mixture.interpolated(np.array([1e300, np.inf])), [0.0, 0.0])


def test_matern_of_large_smoothness_is_gaussian():
    for nu in (1e8, 1e200):
        assert np.allclose(ks.Matern(nu, 1.5)(X), Gaussian(1.5)(X), atol=10 / nu + 1e-14)
        assert np.allclose(
            ks.Matern(nu, 1.5)._derivative(X, (0,), Z, (1,)), Gaussian(1.5)._derivative(X, (0,), Z, (1,))
        )


def test_matern_of_small_smoothness():
    """κ(x, z) → 2ν·K₀(s) for x ≠ z, ν → 0."""
    for nu in (1e-8, 1e-300):
        K = ks.Matern(nu, 1.5)(X)
        s = np.sqrt(2 * nu) * np.sqrt(np.sum((X[:, None] - X) ** 2, axis=2)) / 1.5
        expected = np.where(s > 0, 2 * nu * kv(0, np.where(s > 0, s, 1)), 1.0)
        assert np.allclose(K, expected, rtol=1e-6, atol=0)


def test_matern_where_distances_overflow_or_vanish():
    for nu in (0.3, 1.0, 2.2, 3.5):
        kernel = ks.Matern(nu, 1.0)
        assert np.array_equal(kernel([[0.0], [1e200]], [[0.0], [-1e200]]), [[1.0, 0.0], [0.0, 0.0]])
        near = np.array([[0.0], [1e-30], [1e-60], [1e-300]])
        for dx, dz in [((), ()), ((0,), (0,)), ((0, 0), (0, 0))][: kernel._smoothness + 1]:
            K = derivative(kernel, near, dx, near, dz)
            assert np.isfinite(K).all() and np.allclose(K, K[0, 0], rtol=1e-3)


def test_derivatives_of_a_periodic_kernel_many_periods_away():
    kernel = ks.Periodic(period=2.0)
    there = kernel._derivative(DYADIC, (0,), DYADIC[:3] + 2**40, (0,))
    assert np.allclose(there, kernel._derivative(DYADIC, (0,), DYADIC[:3], (0,)), atol=1e-13)


@pytest.mark.parametrize("name", HISTOGRAM_FORMULAS)
def test_histogram_formula(name):
    agrees(*HISTOGRAM_FORMULAS[name], H, G)
    assert HISTOGRAM_FORMULAS[name][0].is_psd
    with_zeros = H * (H > 0.5)
    check_kernel(HISTOGRAM_FORMULAS[name][0], with_zeros)


@pytest.mark.one_row
@pytest.mark.parametrize("name", FORMULAS)
def test_formula(name):
    kernel, formula = FORMULAS[name]
    agrees(kernel, formula, X, Z)
    assert kernel.is_psd is {"sigmoid": False}.get(name, None if name in UNKNOWN else True)


@pytest.mark.parametrize("name", WITH_FEATURES)
def test_features(name):
    """F(x)ᵀF(y) = κ(x, y)."""
    kernel, _ = FORMULAS[name]
    F = kernel.features(X)
    assert F.shape == (8, ko.FeatureMatrix(X, kernel).shape[1])
    assert np.allclose(F @ kernel.features(Z).T, kernel(X, Z), rtol=1e-12, atol=1e-12)


def test_infinite_features():
    for kernel in (Gaussian(sigma=1.0), Gaussian(sigma=1.0) + Linear(), 2 * Gaussian(sigma=1.0) * Linear()):
        assert kernel._n_features(X) == inf
        with pytest.raises(KernelError, match="Expected a kernel with a finite feature map"):
            kernel.features(X)


def test_the_degree_two_map_has_six_features():
    x, y = np.array([[0.3, -1.2]]), np.array([[2.0, 0.7]])
    F = lambda v: np.array(
        [1, 2**0.5 * v[0, 0], 2**0.5 * v[0, 1], v[0, 0] ** 2, v[0, 1] ** 2, 2**0.5 * v[0, 0] * v[0, 1]]
    )
    assert abs(F(x) @ F(y) - Polynomial(degree=2)(x, y)[0, 0]) < 1e-14
    assert Polynomial(degree=2).features(x).shape == (1, 6)


def test_gaussian_keeps_digits_far_from_the_origin():
    near = np.exp(-np.sum((X[:, None] - Z) ** 2, axis=2) / 2)
    assert np.allclose(Gaussian(sigma=1.0)(X + 1e6, Z + 1e6), near, atol=1e-8)
    assert np.array_equal(np.diag(Gaussian(sigma=1e-3)(X)), np.ones(8))


@pytest.mark.parametrize("outlier", [1e3, 1e7, 1e12])
@pytest.mark.parametrize("sigma", [1e-3, 1.0])
def test_gaussian_with_outliers(outlier, sigma):
    """One point far away, or many at the kernel's scale, cost no digits of the others."""
    points = np.vstack([X, [[outlier, 0.0, 0.0]], X + 1e-4])
    direct = np.exp(-np.sum((points[:, None] - points) ** 2, axis=2) / (2 * sigma**2))
    assert np.abs(Gaussian(sigma=sigma)(points) - direct).max() < 1e-9
    assert np.abs(Gaussian(sigma=sigma)(points, X) - direct[:, :8]).max() < 1e-9


def test_values():
    """Compared by structure, hashable, immutable, readable."""
    assert Gaussian(sigma=1) == Gaussian(sigma=1.0)
    assert Gaussian(sigma=1.0) != Gaussian(sigma=2.0)
    assert Linear() + Gaussian(sigma=1.0) == Linear() + Gaussian(sigma=1.0)
    assert len({2.0 * Linear(), 2 * Linear(), Linear() * 2, Linear()}) == 2
    assert 2 * (3 * Linear()) == 6 * Linear()
    assert np.float64(2.0) * Linear() == 2 * Linear()
    assert (Linear() + Linear()) + Linear() == Linear() + (Linear() + Linear())
    with pytest.raises(AttributeError):
        Gaussian(sigma=1.0).sigma = 2.0


def plus_one(X):
    return X + 1


REPRS = [
    *(kernel for name, (kernel, _) in FORMULAS.items() if "<lambda>" not in repr(kernel) and name != "centered"),
    *(kernel for kernel, _ in HISTOGRAM_FORMULAS.values()),
    Linear().centered(X[:3]),
    Gaussian(sigma=1.0).compose(plus_one).weighted(squares),
    (Linear() - Gaussian(sigma=1.0)) * Linear() + (2 * (Linear() + Linear())) ** 2 - (Linear() - Linear()),
    -0.0 * Linear() ** 2 * Linear(),
    Gaussian(sigma=1.0) * (2 * Linear()),
    ks.Precomputed(Q[:3, :3]),
    Gaussian(sigma=1.0).indexed(X[:3]) + Linear().indexed(X[:3]),
    ks.Spectrum(n=3) + 2.0 * ks.PositionMatch(power=2),
]


@pytest.mark.parametrize("kernel", REPRS, ids=repr)
def test_the_repr_evaluates_back(kernel):
    again = eval(repr(kernel), {**vars(ks), "squares": squares, "plus_one": plus_one})
    assert again == kernel
    assert hash(again) == hash(kernel)
    assert pickle.loads(pickle.dumps(kernel)) == kernel
    assert kernel.with_params(**kernel.get_params()) == kernel


def test_precomputed():
    kernel = ko.kernels.Precomputed(Q)
    assert np.array_equal(kernel(np.arange(20)), Q)
    assert np.array_equal(kernel([3, 1], [0, 2, 4]), Q[np.ix_([3, 1], [0, 2, 4])])
    assert np.array_equal(kernel.diag([5]), [Q[5, 5]])
    assert kernel == ko.kernels.Precomputed(Q.copy())
    assert kernel != ko.kernels.Precomputed(2 * Q)
    assert kernel.is_psd is None
    assert (2 * kernel + kernel).is_psd is None
    assert np.allclose((2 * kernel + kernel)([0, 1]), 3 * Q[:2, :2])
    assert Q.flags.writeable  # the caller's array is as it was


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Gaussian(sigma=0), "sigma to be a number > 0; got 0"),
        (lambda: Gaussian(sigma=-1.0), "sigma"),
        (lambda: Gaussian(sigma=np.nan), "sigma"),
        (lambda: Gaussian(sigma="1"), "sigma"),
        (lambda: Polynomial(degree=0), "degree to be an integer from 1 to 10000"),
        (lambda: Polynomial(degree=1.5), "degree"),
        (lambda: Polynomial(degree=2, offset=-1), "offset"),
        (lambda: Polynomial(degree=2, scale=0), "scale"),
        (lambda: -1 * Linear(), "c ≥ 0"),
        (lambda: np.nan * Linear(), "c ≥ 0"),
        (lambda: Linear() + ko.kernels.Precomputed(Q), "same kind of data"),
        (lambda: Linear() * ks.Spectrum(n=2), "same kind of data"),
        (lambda: Linear() - ks.Spectrum(n=2), "same kind of data"),
        (lambda: Linear() ** 0, "the power of a kernel to be an integer from 1 to 10000"),
        (lambda: Linear() ** 1.5, "the power"),
        (lambda: Linear().series([1.0, -1.0]), "coefficients to be numbers ≥ 0"),
        (lambda: Linear().series([]), "coefficients"),
        (lambda: ks.PolynomialSeries([-1.0]), "coefficients"),
        (lambda: Linear().on([-1]), "columns"),
        (lambda: Linear().on(["a", "a"]), "columns"),
        (lambda: Linear().ard([1.0, 0.0]), "scales to be numbers > 0"),
        (lambda: ks.Constant(-1), "value"),
        (lambda: ks.Laplacian(sigma=-1), "sigma"),
        (lambda: ks.Matern(nu=0.0, sigma=1), "nu to be a number > 0"),
        (lambda: ks.Matern(nu=inf, sigma=1), "nu to be a number > 0; got inf"),
        (lambda: ks.RationalQuadratic(sigma=1, alpha=0), "alpha"),
        (lambda: ks.Periodic(period=0), "period"),
        (lambda: ks.GeneralizedGaussian("l3"), "distance to be one of l1"),
        (lambda: ks.GeneralizedGaussian("l1", beta=-1), "beta"),
        (lambda: ks.GeneralizedGaussian("l1", S=np.eye(2)), "S to be None"),
        (lambda: ks.GeneralizedGaussian("mahalanobis", S=-np.eye(2)), "S to be symmetric positive definite"),
        (lambda: ks.GeneralizedGaussian("mahalanobis", S=[[1.0, 2.0], [0.0, 1.0]]), "S to be symmetric"),
        (lambda: ks.GeneralizedGaussian("mahalanobis", S=[1.0]), "S to be a square"),
        (lambda: ks.Spectrum(n=0), "n to be an integer ≥ 1"),
        (lambda: ks.PositionMatch(power=0), "power"),
        (lambda: ks.Intersection(maximum=0), "maximum"),
        (lambda: ks.FromFunction(3), "function"),
        (lambda: Gaussian.from_gamma(-1.0), "gamma"),
        (lambda: ks.Laplacian.from_gamma(0.0), "gamma"),
        (lambda: Gaussian.from_beta(0), "beta"),
        (lambda: Gaussian(sigma=1.0).with_params(gamma=2.0), "Expected parameters of Gaussian.*, sigma; got gamma"),
    ],
)
def test_bad_parameters(make, words):
    with pytest.raises(KernelError, match=words):
        make()


def test_not_a_kernel_operation():
    with pytest.raises(TypeError):
        Linear() + 1
    with pytest.raises(TypeError):
        Linear() * "a"
    with pytest.raises(TypeError):
        Linear() @ Linear()


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (np.ones((2, 3)), "square"),
        (np.ones(3), "square"),
        (np.zeros((0, 0)), "square"),
        (np.array([[1.0, 0.5], [0.4, 1.0]]), "symmetric"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), "finite"),
    ],
)
def test_bad_matrices(matrix, words):
    with pytest.raises(DataError, match=words):
        ko.kernels.Precomputed(matrix)


def test_symmetry_tolerance_follows_the_precision():
    wobbly = np.eye(2) + np.array([[0, 1e-8], [0, 0]])
    with pytest.raises(DataError, match="symmetric"):
        ko.kernels.Precomputed(wobbly)
    assert ko.kernels.Precomputed((np.eye(2) + np.array([[0, 5e-7], [0, 0]])).astype(np.float32))


def test_explicit_maps_are_checked():
    with pytest.raises(KernelError, match="3 rows"):
        ko.kernels.Explicit(lambda X: X[:1])(np.ones((3, 2)))
    with pytest.raises(KernelError, match="finite"):
        ko.kernels.Explicit(lambda X: X * np.inf)(np.ones((3, 2)))


def test_equal_columns_are_needed():
    with pytest.raises(KernelError, match=r"\(8, 3\) and \(5, 2\)"):
        Linear()(X, Z[:, :2])


@pytest.mark.parametrize("convert", [sp.csr_matrix, sp.coo_array, np.asfortranarray, lambda X: X.tolist()])
def test_kinds_of_data(convert):
    assert np.allclose(Gaussian(sigma=1.0)(convert(X)), Gaussian(sigma=1.0)(X))


def test_named_constructors():
    assert Gaussian.from_gamma(2.0)(X, Z) == pytest.approx(np.exp(-2 * np.sum((X[:, None] - Z) ** 2, axis=2)))
    assert Gaussian.from_beta(2.0)(X, Z) == pytest.approx(np.exp(-np.sum((X[:, None] - Z) ** 2, axis=2)))
    assert ks.Laplacian.from_gamma(2.0)(X, Z) == pytest.approx(np.exp(-2 * np.abs(X[:, None] - Z).sum(axis=2)))


def test_scikit_learn_agrees():
    pairwise = pytest.importorskip("sklearn.metrics.pairwise")
    for ours, theirs in (
        (Gaussian.from_gamma(0.7)(X, Z), pairwise.rbf_kernel(X, Z, gamma=0.7)),
        (ks.Laplacian.from_gamma(0.7)(X, Z), pairwise.laplacian_kernel(X, Z, gamma=0.7)),
        (Polynomial(3, 1.5, 0.2)(X, Z), pairwise.polynomial_kernel(X, Z, degree=3, gamma=0.2, coef0=1.5)),
        (ks.Cosine()(X, Z), pairwise.cosine_similarity(X, Z)),
        (ks.Sigmoid(0.3, 0.1)(X, Z), pairwise.sigmoid_kernel(X, Z, gamma=0.3, coef0=0.1)),
        (ks.GeneralizedGaussian("chi2", 2.0)(H, G), pairwise.chi2_kernel(H, G, gamma=0.5)),
    ):
        assert np.allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def test_stationary_and_isotropic():
    assert all(k.is_stationary and k.is_isotropic for k in (Gaussian(1.0), ks.Matern(1.5, 1.0), ks.Constant()))
    both = Gaussian(1.0) * (ks.Matern(0.5, 1.0) + 2 * ks.RationalQuadratic(1.0)) ** 2
    assert both.is_stationary
    assert both.is_isotropic
    assert both.exp().normalized().is_stationary
    assert (both + Linear()).is_stationary is False
    for kernel in (ks.Laplacian(1.0), ks.Periodic(1.0), Gaussian(1.0).ard([1, 2, 3]), Gaussian(1.0).on([0])):
        assert kernel.is_stationary
        assert not kernel.is_isotropic
    assert not Gaussian(1.0).compose(squares).is_stationary
    assert ks.GeneralizedGaussian("l2").is_isotropic
    assert not ks.GeneralizedGaussian("chi2").is_stationary


def test_derivations():
    kernel = 2 * Gaussian(1.0) + ks.Sigmoid() * Linear()
    told = str(kernel.explain())
    assert kernel.is_psd is None
    assert "unknown: a part is not known to be positive semidefinite" in told
    assert "Schoenberg 1938" in told
    assert "│ └ Gaussian" in told
    assert told.count("\n") == 5


def test_strings():
    words = ["banana", "bandana", "an", ""]
    kernel = ks.Spectrum(n=2) + ks.PositionMatch(power=2)
    check_kernel(kernel, words, ["ana", "x"])

    def grams(s):
        return [s[i : i + 2] for i in range(len(s) - 1)]

    expected = [[sum(a == b for a in grams(s) for b in grams(t)) for t in words] for s in words]
    assert np.array_equal(ks.Spectrum(n=2)(words), expected)
    assert np.array_equal(ks.PositionMatch()(words[:2]), [[6, 3], [3, 7]])
    assert np.array_equal(ks.Spectrum(n=2)(np.array(words)), expected)
    with pytest.raises(DataTypeError, match="list of strings; got int at 1"):
        kernel(["a", 3])
    with pytest.raises(DataTypeError, match=r"\[x\]"):
        kernel("banana")
    with pytest.raises(DataError, match="at least one"):
        kernel([])


def test_any_objects_are_never_coerced():
    graphs = [{1, 2, 3}, {2, 3}, frozenset({3}), {2, 3}]
    seen = []

    def common(a, b):
        seen.extend([a, b])
        return float(len(a & b))

    kernel = ks.FromFunction(common, psd=True)
    assert np.array_equal(kernel(graphs), [[3, 2, 1, 2], [2, 2, 1, 2], [1, 1, 1, 1], [2, 2, 1, 2]])
    assert all(any(s is g for g in graphs) for s in seen)
    check_kernel(kernel, graphs)
    lengths = Gaussian(sigma=1.0).compose(lambda objects: [[float(len(o))] for o in objects])
    assert lengths(graphs)[0, 1] == pytest.approx(np.exp(-0.5))
    theta = ko.Theta(kernel)
    import cvxpy as cp  # noqa: PLC0415

    problem = ko.Problem(
        cp.Minimize(cp.sum_squares(theta(graphs) - [3.0, 2.0, 1.0, 2.0]) + 1e-6 * ko.sum_squares(theta))
    )
    problem.solve()
    assert np.allclose(theta.value([{1, 2}, {7}]), [2.0, 0.0], atol=1e-3)


def test_plain_callables_and_scikit_learns_kernels_are_accepted():
    gp = pytest.importorskip("sklearn.gaussian_process.kernels")
    theirs = gp.RBF(length_scale=1.5) + gp.ConstantKernel(2.0)
    theta = ko.Theta(theirs)
    assert np.allclose(theta.kernel(X, Z), theirs(X, Z))
    assert theta.kernel == ko.Theta(gp.RBF(length_scale=1.5) + gp.ConstantKernel(2.0)).kernel
    assert theta.kernel.is_stationary
    check_kernel(theirs, X)
    assert (ko.FeatureMatrix(X, theirs) @ theta).shape == (8,)
    both = Gaussian(sigma=1.0) * gp.RBF(length_scale=1.5) + (lambda x, y: float(x @ y)) - theirs
    assert np.allclose(both(X), Gaussian(1.0)(X) * Gaussian(1.5)(X) + X @ X.T - theirs(X))
    dot = lambda x, y: float(x @ y)
    assert np.allclose(ko.Theta(dot).kernel(X), X @ X.T)
    assert ko.Function(dot, X, np.ones(8))(Z).shape == (5,)
    with pytest.raises(KernelError, match="Expected a kernel"):
        ko.Theta(int)


def test_functions_with_wrong_values():
    for function, words in (
        (lambda x, y: [1.0, 2.0], "a number for a pair"),
        (lambda x, y: "a", "a number for a pair; got str"),
    ):
        with pytest.raises(KernelError, match=words):
            ks.FromFunction(function)(X)
    with pytest.raises(KernelError, match=r"matrix \(8, 8\)"):
        ks.FromFunction(lambda X, Z: np.ones((2, 2)), on_lists=True)(X)
    with pytest.raises(KernelError, match="8 finite numbers"):
        Linear().weighted(lambda X: X)(X)
    with pytest.raises(KernelError, match="8 points"):
        Linear().compose(lambda X: X[:2])(X)


def test_histograms_are_nonnegative():
    for kernel in (
        ks.Intersection(),
        ks.AdditiveChiSquared(),
        ks.GeneralizedGaussian("chi2"),
        Linear() * ks.Intersection(),
    ):
        with pytest.raises(DataError, match=r"entries ≥ 0; got -.* at \("):
            kernel(X)


def test_unary_coding():
    counts = RNG.integers(0, 6, size=(7, 3))
    kernel = ks.Intersection(maximum=5)
    F = kernel.features(counts)
    assert F.shape == (7, 15)
    assert np.array_equal(F @ F.T, kernel(counts))
    with pytest.raises(KernelError, match="maximum=m"):
        ks.Intersection().features(counts)
    for wrong in (counts + 0.5, counts + 6):
        with pytest.raises(KernelError, match="integer entries from 0 to 5"):
            kernel.features(wrong)


DECLARED_COUNTS = {
    "alone": lambda k: k,
    "in a sum": lambda k: k + Gaussian(sigma=1.0),
    "in a product": lambda k: Gaussian(sigma=1.0) * (2 * k),
    "normalized": lambda k: k.normalized(),
    "weighted": lambda k: k.weighted(lambda X: 1 + X[:, 0]),
    "on columns": lambda k: k.on([0, 1]),
    "scaled": lambda k: k.ard([1.0, 1.0, 10.0]),
    "composed": lambda k: k.compose(lambda X: X[:, :2]),
    "cached": lambda k: k.cached(np.arange(6.0).reshape(2, 3)),
}


@pytest.mark.parametrize("name", DECLARED_COUNTS)
def test_declared_counts_are_checked_where_a_problem_uses_them(name):
    points = np.array([[1.0, 2.0, 20.0], [3.0, 0.0, 10.0], [1.0, 5.0, 0.0]])
    kernel = DECLARED_COUNTS[name](ks.Intersection(maximum=50 if name != "scaled" else 5))
    theta = ko.Theta(kernel)
    ko.Problem(cp.Minimize(cp.sum_squares(theta(points) - 1) + ko.sum_squares(theta))).solve()
    assert theta.value is not None
    for number in (points[1, 1] + 0.25, 60.0):
        wrong = points.copy()
        wrong[1, 1] = number
        with pytest.raises(KernelError, match=rf"integer entries from 0 to .*got {number:g} at \(1, 1\)"):
            ko.Problem(cp.Minimize(cp.sum_squares(theta(wrong) - 1) + ko.sum_squares(theta))).solve()


def test_what_is_declared_is_named():
    common = ks.FromFunction(lambda a, b: float(len(set(a) & set(b))), psd=True)
    sentence = "FromFunction(<lambda>, psd=True) is positive semidefinite, as declared"
    for kernel in (
        common,
        2 * common + ks.Constant(1.0),
        common * common,
        common**2,
        common.normalized(),
        common.exp(),
        common.centered(["a", "bc"]),
        common.cached(["a", "bc"]),
        common.weighted(len),
        common.compose(list),
        common.series([1.0, 2.0]),
    ):
        assert kernel.declarations() == (sentence,)
    for kernel in (
        Gaussian(sigma=1.0),
        Gaussian(sigma=1.0).ard([1.0]),
        ks.Intersection(maximum=3),
        ks.Precomputed(np.eye(2)),
        ks.FromFunction(max),
        ks.FromFunction(max, psd=False),
        ks.Explicit(len),
        common - common,
        common + ks.FromFunction(max),
    ):
        assert kernel.declarations() == ()

    class Mine(Linear):
        def __repr__(self):
            return "Mine()"

    assert (Mine() + Linear()).declarations() == ("Mine() is positive semidefinite, as its class states",)


@pytest.mark.parametrize(
    "options", [{}, {"factorization": "streamed"}, {"factorization": "eigen"}, {"dtype": "float32"}]
)
def test_a_declaration_that_data_contradict(options):
    kernel = ks.FromFunction(lambda a, b: float(a @ b) - 2.0, psd=True)
    points = np.random.default_rng(0).normal(size=(20, 3))
    theta = ko.Theta(kernel)
    problem = ko.Problem(cp.Minimize(cp.sum(cp.abs(theta(points) - 1)) + ko.sum_squares(theta)))
    with pytest.raises(NotPSDError):
        problem.solve(**options)
    if not options:
        with pytest.raises(NotPSDError, match=r"stated was: FromFunction.*as declared\)"):
            problem.solve()


def test_feature_maps_that_are_none():
    with pytest.raises(KernelError, match="depend on that point alone"):
        ks.Explicit(lambda X: X - X.mean(axis=0))(X)
    with pytest.raises(KernelError, match="one number of features; got 8 for 8 points and 3 for 3"):
        ks.Explicit(lambda X: np.eye(len(X)))(X, X[:3])


def test_geometric_needs_the_unit_ball():
    with pytest.raises(KernelError, match="unit ball"):
        ks.Geometric()(10 * X)


def test_functions_that_a_file_cannot_keep():
    for kernel in (
        ks.Explicit(lambda X: X),
        Linear().weighted(lambda X: X[:, 0]),
        Linear().compose(lambda X: X),
        ks.FromFunction(lambda x, y: 1.0),
        ks.GeneralizedGaussian(lambda X, Z: X),
    ):
        with pytest.raises(KernelError, match="lambda.*by its name"):
            pickle.dumps(kernel)
    assert pickle.loads(pickle.dumps(ks.Explicit(squares)))(X).shape == (8, 8)


def random_kernel(rng, depth):
    """A random composition of kernels that are positive semidefinite by rule, or not."""
    if depth == 0:
        base = [
            Linear(), Gaussian(float(rng.uniform(0.5, 3))), ks.Laplacian(float(rng.uniform(0.5, 3))), ks.Constant(0.5),
            ks.Matern(1.5, 1.0), ks.RationalQuadratic(1.0), ks.Periodic(2.0), ks.Cosine(), Polynomial(2),
            ks.PolynomialSeries([1.0, 0.5, 0.1]), ks.GeneralizedGaussian("l1", 3.0), ks.Intersection(),
            ks.AdditiveChiSquared(), ks.GeneralizedGaussian("hellinger"), ks.Sigmoid(0.1),
        ]  # fmt: skip
        return base[rng.integers(len(base))]
    a, b = random_kernel(rng, depth - 1), random_kernel(rng, depth - 1)
    made = [
        lambda: a + b,
        lambda: a * b,
        lambda: float(rng.uniform(0, 2)) * a,
        lambda: a - b,
        lambda: a**2,
        lambda: (0.1 * a.normalized()).exp() if a.is_psd else a,
        lambda: (0.1 * a).series([1.0, 0.5, 0.2]),
        lambda: a.ard([1.0, 2.0, 0.7]),
        lambda: a.normalized() if a.is_psd else a + b,
        lambda: a.centered(H[:5]),
        lambda: a.weighted(lambda X: 1 + X[:, 0]),
        lambda: a.compose(plus_one),
    ]
    return made[rng.integers(len(made))]()


@pytest.mark.one_row
@pytest.mark.parametrize("seed", range(200))
def test_random_compositions(seed):
    rng = np.random.default_rng(seed)
    kernel = random_kernel(rng, int(rng.integers(1, 4)))
    points = rng.uniform(0, 2, size=(30, 3))
    check_kernel(kernel, points, rng.uniform(0, 2, size=(7, 3)))
    assert kernel == kernel.with_params(**kernel.get_params())
    str(kernel.explain())


def test_check_kernel_finds_faults():
    for function, words in (
        (lambda x, y: x[0] - y[0] if len(x) else 0.0, "symmetric|κ\\(X, Z\\)"),
        (lambda x, y: np.nan, "finite"),
        (lambda x, y: -1.0, "smallest eigenvalue"),
    ):
        with pytest.raises(KernelError, match=words):
            check_kernel(ks.FromFunction(function, psd=True), X)

    class WrongDiagonal(Linear):
        def _diagonal(self, X):
            return np.zeros(len(X))

    class WrongFeatures(Linear):
        def _features(self, X):
            return 2 * X

    for kernel, words in ((WrongDiagonal(), r"diag\(X\)"), (WrongFeatures(), "F")):
        with pytest.raises(KernelError, match=words):
            check_kernel(kernel, X)


def test_the_table_lists_every_kernel():
    from pathlib import Path  # noqa: PLC0415

    page = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text()
    assert [
        name for name in ks.__all__ if name not in ("Kernel", "Derivation", "as_kernel") and f"`{name}" not in page
    ] == []
    verdicts = {"psd": True, "indefinite": False, "unknown": None}
    for line in page.splitlines():
        cells = [c.strip() for c in line.split("|")]
        name = cells[1].split("(")[0].strip("`") if len(cells) > 6 else ""
        shown = {kernel.is_psd for kernel, _ in FORMULAS.values() if type(kernel).__name__ == name}
        if shown and name != "GeneralizedGaussian" and cells[-4] in verdicts:
            assert shown == {verdicts[cells[-4]]}, name


def test_terms_of_very_different_size_do_not_cancel():
    far = np.array([[1e20, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    assert np.array_equal(ks.Intersection()(far), [[1e20, 0, 1], [0, 1, 0], [1, 0, 1]])
    assert ks.Intersection()([[1e17]], [[1.0]]) == 1
    assert ks.AdditiveChiSquared()([[1e17]], [[1.0]]) == pytest.approx(2)
    f = ko.Function(ks.Intersection(), [[1e17], [1.0]], [1.0, 0.0])
    assert f([[1.0], [2.0], [1e18]]) == pytest.approx([1.0, 2.0, 1e17])
    mixed = np.vstack([RNG.uniform(size=(15, 3)) * 1e9, RNG.uniform(size=(15, 3)) * 1e-3])
    for kernel in (ks.AdditiveChiSquared(), ks.Intersection(), ks.GeneralizedGaussian("chi2")):
        check_kernel(kernel.normalized(), mixed)


@pytest.mark.parametrize("nu", [0.2, 0.5, 1.0, 1.5, 2.2, 2.5])
def test_matern_of_points_close_together(nu):
    close = np.vstack([100 + 1e-9 * RNG.normal(size=(20, 3)), RNG.normal(size=(25, 3))])
    kernel = ks.Matern(nu=nu, sigma=1.0)
    K = kernel(close)
    eigenvalues = np.linalg.eigvalsh(K)
    assert eigenvalues[0] > -1e-10 * eigenvalues[-1]
    assert np.array_equal(K, kernel(close, close.copy()))


def test_more_named_constructors():
    assert ks.Matern.from_beta(4.0, nu=1.5) == ks.Matern(nu=1.5, sigma=0.5)
    assert ks.RationalQuadratic.from_gamma(0.5, alpha=2.0) == ks.RationalQuadratic(sigma=1.0, alpha=2.0)
    assert ks.Periodic.from_beta(4.0, period=3.0) == ks.Periodic(period=3.0, sigma=0.5)
    assert ks.Laplacian.from_beta(4.0) == ks.Laplacian(sigma=0.5)
    assert Polynomial.from_gamma(2, 0.5, coef0=3.0) == Polynomial(degree=2, offset=3.0, scale=0.5)
    assert ks.GeneralizedGaussian.from_gamma("l1", 4.0) == ks.GeneralizedGaussian("l1", beta=0.25)


def test_kernels_of_other_libraries_are_values():
    gp = pytest.importorskip("sklearn.gaussian_process.kernels")
    theirs = gp.RBF(1.0)
    kernel = ks.as_kernel(theirs)
    name = hash(kernel)
    theirs.length_scale = 5.0
    assert hash(kernel) == name
    assert kernel([[0.0]], [[1.0]]) == pytest.approx(np.exp(-0.5))
    for noisy in (gp.WhiteKernel(0.5), gp.RBF(1.0) + gp.WhiteKernel(0.5)):
        with pytest.raises(KernelError, match=r"Delta\(\)"):
            ko.Theta(noisy)


def test_kernels_are_copied_as_themselves():
    kernel = ks.Explicit(lambda X: X) + Linear()
    assert copy.copy(kernel) is kernel
    assert copy.deepcopy(kernel) is kernel


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Linear().weighted(3), "weight to be a callable"),
        (lambda: Linear().compose(None), "map to be a callable"),
        (lambda: ks.Explicit(3), "feature_map to be a callable"),
        (lambda: ks.Sum((1, 2)), "terms to be a sequence of kernels"),
        (lambda: ks.Sum(()), "terms to be a sequence of kernels, one or more; got \\(\\)"),
        (lambda: ks.Scaled(2.0, 3), "a part to be a kernel"),
        (lambda: ks.Normalized(3), "a part to be a kernel"),
        (lambda: Linear().on([True]), "columns"),
        (lambda: ks.FromFunction(lambda x, y: 1.0, psd="no"), "psd"),
        (lambda: ks.Matern(nu=np.array([0.5, 1.5]), sigma=1.0), "nu"),
        (lambda: ks.GeneralizedGaussian("mahalanobis", S=np.zeros((0, 0))), "S to be a square"),
        (lambda: ks.GeneralizedGaussian("mahalanobis"), "S to be a symmetric positive definite"),
        (lambda: ks.GeneralizedGaussian("mahalanobis", S=[[1.0, 0.2], [0.0, 1.0]]), "not symmetric"),
        (lambda: ks.FromFunction(lambda a, b: a - b)([1.0, 2.0]), "to be symmetric"),
        (lambda: ks.FromFunction(lambda a, b: np.nan)([1.0, 2.0]), "finite"),
        (lambda: ks.FromFunction(lambda a, b: None)([1.0, 2.0]), "a number for a pair; got NoneType"),
        (lambda: ks.Constant()([[1.0], [2.0]], np.array([[1.0]])), "points of one kind"),
    ],
)
def test_more_bad_parameters(make, words):
    with pytest.raises(KernelError, match=words):
        make()


def test_objects_in_series_and_mappings():
    pandas = pytest.importorskip("pandas")
    sets = pandas.Series([{1, 2}, {2}], index=[5, 7])
    common = ks.FromFunction(lambda a, b: len(a & b))
    assert np.array_equal(common(sets), [[2, 1], [1, 1]])
    with pytest.raises(DataTypeError, match="list of objects; got dict"):
        common({1: 2})


def test_cached_values_are_computed_once():
    calls = []

    def product(P, R):
        calls.append((len(P), len(R)))
        return np.array(P) @ np.array(R).T

    kernel = ks.FromFunction(product, on_lists=True).cached(X)
    assert np.allclose(kernel(X[3:6]), X[3:6] @ X[3:6].T) and np.allclose(
        kernel(X[[0, 5]], X[[7]]), X[[0, 5]] @ X[[7]].T
    )
    assert calls == [(8, 8)]
    assert np.allclose(kernel(Z, X), Z @ X.T) and len(calls) == 2
    changed = Gaussian(sigma=1.0).cached(X).with_params(k1__sigma=2.0)
    assert np.allclose(changed(X[:2], X[2:4]), Gaussian(sigma=2.0)(X[:2], X[2:4]))
    assert changed == Gaussian(sigma=2.0).cached(X) != Gaussian(sigma=2.0).cached(Z)
    filled = Gaussian(sigma=1.0).cached(X)
    filled(X)
    copy = pickle.loads(pickle.dumps(filled))
    assert copy == filled and "_matrix_of_data" not in vars(copy) and np.array_equal(copy(X), filled(X))
    words = ks.Spectrum(1).cached(["ab", "ba", "c"])
    assert np.array_equal(words(["c", "ab"]), ks.Spectrum(1)(["c", "ab"]))
    filled(X)[:] = 0.0  # a copy
    assert np.array_equal(filled(X), copy(X))


@pytest.mark.parametrize(
    ("build", "instead"),
    [
        (lambda: Gaussian(gamma=1.0), "Gaussian.from_gamma(1.0)"),
        (lambda: Gaussian(beta=4.0), "Gaussian.from_beta(4.0)"),
        (lambda: ks.Laplacian(gamma=2.0), "Laplacian.from_gamma(2.0)"),
        (lambda: ks.RationalQuadratic(alpha=2.0, gamma=0.5), "RationalQuadratic.from_gamma(alpha=2.0, gamma=0.5)"),
        (lambda: ks.Matern(nu=1.5, beta=0.5), "Matern.from_beta(nu=1.5, beta=0.5)"),
        (lambda: Polynomial(3, gamma=0.5), "Polynomial.from_gamma(3, gamma=0.5)"),
        (lambda: ks.GeneralizedGaussian("l1", gamma=0.5), "GeneralizedGaussian.from_gamma('l1', gamma=0.5)"),
    ],
)
def test_other_parameters_by_name(build, instead):
    """The error names the parameters that there are, and a call that works."""
    with pytest.raises(TypeError, match=r"Expected keywords of \w+, .*; got ") as refusal:
        build()
    assert str(refusal.value).endswith(f" Write {instead}.")
    assert isinstance(eval(instead, vars(ks)), ks.Kernel)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("RBF", "Gaussian(sigma=…), or Gaussian.from_gamma(γ) with γ = 1/(2σ²)"),
        ("SquaredExponential", "Gaussian(sigma=…)"),
        ("rbf_kernel", "Gaussian(sigma=…)"),
        ("gaussian", "Gaussian."),
        ("LaplacianKernel", "Laplacian."),
        ("linear_kernel", "Linear."),
        ("Matern52", "Matern(nu=2.5, sigma=…)"),
        ("WhiteKernel", "Delta()"),
    ],
)
def test_a_kernel_by_the_name_of_another_library(name, instead):
    with pytest.raises(AttributeError) as refusal:
        getattr(ko.kernels, name)
    assert f"module 'kernelopt.kernels' has no attribute {name!r}. Write {instead}" in str(refusal.value)
    assert not hasattr(ko.kernels, name) and name not in dir(ko.kernels)
    with pytest.raises(ImportError, match=name):
        exec(f"from kernelopt.kernels import {name}")


@pytest.mark.parametrize("text", ks._ELSEWHERE.values())
def test_the_kernels_that_are_named_instead_exist(text):
    """Each call in the text is of a kernel, with parameters that it has."""
    calls = re.findall(r"([A-Z]\w+)(?:\.(from_gamma))?\(([^()]*)\)", text)
    assert calls
    for kernel, constructor, arguments in calls:
        made = getattr(ks, kernel)
        parameters = inspect.signature(getattr(made, constructor) if constructor else made).parameters
        assert set(re.findall(r"(\w+)=", arguments)) <= set(parameters)


@pytest.mark.parametrize(
    ("build", "instead"),
    [
        (lambda: Gaussian(length_scale=2.0), "sigma=2.0"),
        (lambda: ks.Matern(nu=1.5, lengthscale=2.0), "sigma=2.0"),
        (lambda: ks.Periodic(periodicity=2.0), "period=2.0"),
        (lambda: ks.Periodic(period=1.0, length_scale=2.0), "sigma=2.0"),
        (lambda: Polynomial(degree=2, coef0=3.0), "offset=3.0"),
        (lambda: ks.Sigmoid(gamma=3.0), "scale=3.0"),
    ],
)
def test_parameters_by_the_names_of_another_library(build, instead):
    with pytest.raises(ko.errors.KeywordError, match=r"Expected keywords of \w+, .*; got ") as refusal:
        build()
    assert str(refusal.value).endswith(f" Write {instead}.")


def test_names_that_are_unknown_everywhere():
    with pytest.raises(AttributeError, match="has no attribute 'Unheard'$"):
        ks.Unheard
    assert not hasattr(ks, "_rbf") and not hasattr(ks, "__wrapped__")


def test_parameters_that_are_unknown_everywhere():
    with pytest.raises(TypeError, match=r"Expected keywords of Gaussian, sigma; got width=1.0\.$"):
        Gaussian(width=1.0)
    with pytest.raises(TypeError, match=r"got sigm=1.0\. Did you mean sigma\?$"):
        Gaussian(sigm=1.0)
    assert list(inspect.signature(Gaussian).parameters) == ["sigma"]


S3 = np.diag([1.0, 2.0, 3.0])
SKEW = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, 1.0]])
ROUNDED = {
    "pairs": lambda a, b: float(a @ S3 @ b),
    "single precision": lambda a, b: np.float32(a) @ np.float32(S3) @ np.float32(b),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_a_function_that_is_symmetric_up_to_rounding(name):
    points = np.random.default_rng(20261120).normal(size=(20, 3))
    kernel = ks.FromFunction(ROUNDED[name])
    values = np.array([[float(ROUNDED[name](a, b)) for a in points] for b in points])
    assert (values != values.T).any()  # or there is nothing to test
    K = kernel(points)
    assert (K == K.T).all()
    assert np.abs(K - points @ S3 @ points.T).max() < (1e-14 if name == "pairs" else 1e-5)


def test_a_matrix_that_is_symmetric_up_to_rounding():
    points = np.random.default_rng(20261120).normal(size=(20, 3))
    kernel = ks.FromFunction(lambda A, B: A @ S3 @ B.T, on_lists=True)
    assert (points @ S3 @ points.T != (points @ S3 @ points.T).T).any()
    assert (kernel(points) == kernel(points).T).all()
    distance = ks.GeneralizedGaussian(lambda A, B: np.sqrt(np.abs(A[:, :1] - B[:, 0])) * (1 + 1e-13 * A[:, :1]))
    assert (distance(points) == distance(points).T).all()


ASYMMETRIC = {
    "pairs": (lambda a, b: float(a @ np.triu(np.ones((3, 3))) @ b), False, list(np.eye(3))),
    "late in the data": (lambda a, b: float(a @ b) + 1e-3 * (a[0] > 90) * b[0], False, np.arange(1.0, 101.0)[:, None]),
    "strings": (lambda a, b: float(len(a + b) + a.count("x")), False, ["ab", "xy", "z"]),
    "sets": (lambda a, b: float(len(a - b) + len(a & b)), False, [{1, 2}, {2}, set()]),
    "a matrix": (lambda A, B: np.add.outer([len(a) for a in A], [2.0 * len(b) for b in B]), True, ["a", "bcd", "ef"]),
    "a small part of it": (
        lambda A, B: A @ SKEW @ B.T,
        True,
        np.array([[1e10, 0, 0], [0, 1e-10, 0], [0, 1e-10, 1e-10]]),
    ),
}


@pytest.mark.parametrize("name", ASYMMETRIC)
def test_functions_that_are_not_symmetric(name):
    function, on_lists, points = ASYMMETRIC[name]
    kernel = ks.FromFunction(function, on_lists=on_lists)
    with pytest.raises(KernelError, match="symmetric"):
        kernel(points)
    theta = ko.Theta(kernel)
    with pytest.raises(KernelError, match="symmetric"):
        ko.Problem(cp.Minimize(cp.sum_squares(theta(points) - 1) + ko.sum_squares(theta))).solve()


def test_distances_and_sums_that_are_not_symmetric():
    with pytest.raises(KernelError, match="symmetric"):
        ks.GeneralizedGaussian(lambda A, B: np.abs(A[:, :1] - 0.5 * B[:, 0]))(np.arange(3.0)[:, None])
    with pytest.raises(KernelError, match="symmetric"):
        (2 * ks.FromFunction(lambda a, b: float(a[0])) + Linear())(np.arange(3.0)[:, None])


def test_numbers_that_no_float_holds():
    with pytest.raises(KernelError, match="below 1e308"):
        ks.FromFunction(lambda a, b: 10**400)(["a", "b"])


@pytest.mark.parametrize(
    ("kernel", "values"),
    [
        (ko.kernels.Gaussian(sigma=1.0), np.linspace(2000, 2021, 12)),
        (ko.kernels.Matern(nu=2.5, sigma=1.0), np.linspace(2000, 2021, 12)),
        (ko.kernels.Periodic(period=1.0, sigma=1.0), np.linspace(2000, 2021, 12)),
        (ko.kernels.Gaussian(sigma=1e-6), np.linspace(0, 1e-5, 12)),
        (ko.kernels.Matern(nu=1.5, sigma=0.7), np.linspace(0, 1e-6, 12)),
    ],
)
def test_derivatives_are_checked_in_units_of_the_points(kernel, values):
    check_kernel(kernel, values[:, None])
