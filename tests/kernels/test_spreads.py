"""Means of kernels over boxes and normal distributions, beside quadrature and 60-digit numbers."""

from itertools import pairwise, product

import mpmath as mp
import numpy as np
import pytest
from scipy.integrate import dblquad, quad

import kernelopt as ko
from kernelopt import kernels as ks
from kernelopt.errors import KernelError
from kernelopt.kernels.derivatives import WithDerivatives
from kernelopt.kernels.interval_means import MISSED, NARROW, Spread, incomplete_gammas, nodes
from kernelopt.kernels.kernel import MissingRuleError
from kernelopt.kernels.rounding import Inexact
from kernelopt.kernels.spreads import WithMeans, spread_rows

RNG = np.random.default_rng(0)
UNIT = 2.0**-53
MATERNS = [ks.Laplacian(sigma=0.7), *(ks.Matern(nu=nu, sigma=1.3) for nu in (0.5, 1.5, 2.5))]
ONE_COLUMN = [
    ks.Gaussian(sigma=0.8),
    *MATERNS,
    ks.Linear(),
    ks.Polynomial(degree=3, offset=0.5, scale=2.0),
    ks.PolynomialSeries([1.0, 0.0, 2.0, 0.5]),
    2.0 * ks.Matern(nu=1.5, sigma=1.0) + ks.Constant(3.0) * ks.Gaussian(sigma=2.0),
    ks.Gaussian(sigma=1.0).ard([0.5]),
    (ks.Gaussian(sigma=1.0) + ks.Linear()).ard([0.5]),
    ks.Gaussian(sigma=1.0) - 0.3 * ks.Laplacian(sigma=1.0),
]
BOXES = [(0.0, 0.3), (0.1, 1.7), (-2.0, 2.5), (1.0, 1.001), (0.9, 3.0)]


def gram(kernel, X, halves=0.0, deviations=0.0):
    rows = spread_rows(np.asarray(X, dtype=float).reshape(len(X), -1), halves, deviations)
    return WithMeans(kernel)._matrix(rows, None)


def box_rows(boxes):
    low, high = np.array(boxes).T
    return spread_rows(((low + high) / 2)[:, None], ((high - low) / 2)[:, None], 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ONE_COLUMN, ids=str)
def test_means_over_intervals(kernel):
    """Between boxes, and between boxes and points, in pieces that end where the kernel has a kink."""

    def at(x, z):
        return float(kernel([[x]], [[z]])[0, 0])

    def mean(f, low, high, kinks=()):
        ends = [low, *sorted(k for k in kinks if low < k < high), high]
        parts = [quad(f, a, b, epsabs=1e-10, epsrel=1e-10)[0] for a, b in pairwise(ends)]
        return sum(parts) / (high - low)

    K, lift = WithMeans(kernel), box_rows(BOXES)
    points = K.domain.rows([[0.2], [1.5]], "")
    values = K._matrix(lift, points)
    for i, (low, high) in enumerate(BOXES):
        for j, z in enumerate((0.2, 1.5)):
            assert values[i, j] == pytest.approx(mean(lambda x, z=z: at(x, z), low, high, (z,)), rel=1e-9, abs=1e-10)
    np.testing.assert_array_equal(values, K._matrix(points, lift).T)
    Q = K._matrix(lift, None)
    for i, j in [(0, 0), (0, 1), (1, 2), (2, 4), (3, 3), (0, 4), (3, 4)]:
        expected = mean(lambda x, j=j: mean(lambda z: at(x, z), *BOXES[j], (x,)), *BOXES[i], BOXES[j])
        assert Q[i, j] == pytest.approx(expected, rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(K._diagonal(lift), np.diag(Q), rtol=1e-14)
    both = K._matrix(np.vstack([lift, points]), None)
    np.testing.assert_array_equal(both, both.T)
    np.testing.assert_array_equal(both[: len(lift), : len(lift)], Q)
    np.testing.assert_array_equal(both[len(lift) :, len(lift) :], kernel([[0.2], [1.5]]))


@pytest.mark.parametrize("kernel", [ONE_COLUMN[0], *ONE_COLUMN[5:8]], ids=str)
def test_means_over_normal_distributions(kernel):
    x, w = np.polynomial.hermite_e.hermegauss(60)
    w = w / w.sum()
    mean, sd = np.array([0.3, -1.0, 2.0]), np.array([0.2, 0.9, 0.0])
    A = ko.gaussian_mean(mean, sd, kernel)
    Q = np.array([
        [w @ kernel((m + s * x)[:, None], (n + t * x)[:, None]) @ w for n, t in zip(mean, sd, strict=True)]
        for m, s in zip(mean, sd, strict=True)
    ])  # fmt: skip
    np.testing.assert_allclose(A.function.gram(), Q, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(A.diag(), np.diag(Q), rtol=1e-9)
    box = ko.integral(0.5, 2.5, kernel)  # a box beside normal distributions
    u, v = np.polynomial.legendre.leggauss(60)
    crossed = [v @ kernel(1.5 + u[:, None], (m + s * x)[:, None]) @ w for m, s in zip(mean, sd, strict=True)]
    np.testing.assert_allclose(box.function.gram(A.function)[0], crossed, rtol=1e-9, atol=1e-10)
    point = ko.Function(kernel, [[2.0]], [1.0])
    np.testing.assert_allclose(A[2].function.gram(point), kernel([[2.0]]), rtol=1e-14)


COLUMNS = [
    ks.Gaussian(sigma=0.8),
    ks.Laplacian(sigma=0.7),
    ks.Gaussian(sigma=1.0).ard([0.5, 2.0]),
    ks.Linear(),
    ks.Polynomial(degree=3, offset=0.5),
    ks.Matern(nu=1.5, sigma=1.0).on([0]) * ks.Gaussian(sigma=0.5).on([1]),
    2.0 * ks.Polynomial(degree=2).on([1]) * ks.Matern(nu=2.5, sigma=0.5).on([0]) + ks.Constant(2.0) * ks.Linear(),
    ks.Gaussian(sigma=1.0).on([1]),
]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", COLUMNS, ids=str)
def test_boxes_in_the_plane(kernel):
    lower, upper = np.array([[0.0, 0.1], [-1.0, 0.5]]), np.array([[0.4, 2.0], [1.0, 0.7]])
    A = ko.integral(lower, upper, kernel)
    for i in range(2):
        for z in ([2.0, -1.0], [0.1, 0.6]):
            f = ko.Function(kernel, [z], [1.0])
            pieces = [
                sorted({a, b, *(c for c in [k] if a < c < b)}) for a, b, k in zip(lower[i], upper[i], z, strict=True)
            ]
            expected = sum(
                dblquad(lambda y, x, f=f: f([[x, y]])[0], a, b, c, d, epsabs=1e-10, epsrel=1e-10)[0]
                for (a, b), (c, d) in product(*(pairwise(p) for p in pieces))
            )
            assert A.function.gram(f)[i, 0] == pytest.approx(expected, rel=1e-9, abs=1e-10)
            assert f.integral(lower, upper)[i] == pytest.approx(expected, rel=1e-9, abs=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [ks.Gaussian(sigma=1.0), ks.Polynomial(degree=4)], ids=str)
def test_boxes_in_space(kernel):
    """Against a product rule with 14 nodes in each of three columns."""
    x, w = np.polynomial.legendre.leggauss(14)
    grid, weights = np.array(list(product(x, x, x))), np.array([np.prod(v) for v in product(w, w, w)]) / 8
    centres, halves = RNG.normal(size=(3, 3)), np.array([[0.3, 0.6, 1.0], [1e-9, 0.2, 0.0], [2.0, 1.0, 0.4]])
    Q = gram(kernel, centres, halves)
    for i, j in product(range(3), range(3)):
        one, other = centres[i] + grid * halves[i], centres[j] + grid * halves[j]
        assert Q[i, j] == pytest.approx(weights @ kernel(one, other) @ weights, rel=1e-10, abs=1e-12)


# ---------------------------------------------------------------- exact values

EXPONENTIAL = {0.5: ((1,), 1), 1.5: ((3, 1), 2), 2.5: ((5, mp.mpf(7) / 3, mp.mpf(1) / 3), mp.mpf(8) / 3)}


def exact_mean(kernel, t, a, b):
    """By second antiderivatives, in enough digits for the cancellation."""
    t, a, b, sigma = (mp.mpf(v) for v in (t, a, b, kernel.sigma))
    if isinstance(kernel, ks.Gaussian):
        scale = sigma

        def G(x, order):
            first = mp.sqrt(mp.pi / 2) * mp.erf(x / mp.sqrt(2))
            value = mp.exp(-x * x / 2)
            return (value, first, x * first + value)[order]
    else:
        nu = getattr(kernel, "nu", 0.5)
        D, slope = EXPONENTIAL[nu]
        p = ((1,), (1, 1), (1, 1, mp.mpf(1) / 3))[len(D) - 1]
        scale = sigma if isinstance(kernel, ks.Laplacian) else sigma / mp.sqrt(2 * mp.mpf(nu))

        def G(x, order):
            s = abs(x)
            at = [
                mp.fsum(v * s**k for k, v in enumerate(c)) for c in (p, D, [k * c for k, c in enumerate(D)][1:] or [0])
            ]
            rests = (at[0], at[2] - at[1], at[1])
            e = mp.exp(-s)
            return (rests[0] * e, mp.sign(x) * (slope + rests[1] * e), slope * s + rests[2] * e)[order]

    t, a, b = t / scale, a / scale, b / scale
    if b == 0:
        return G(t, 0)
    if a == 0:
        return (G(t + b, 1) - G(t - b, 1)) / (2 * b)
    return (G(t + a + b, 2) - G(t + b - a, 2) - G(t - b + a, 2) + G(t - a - b, 2)) / (4 * a * b)


WIDTHS = [0.0, 1e-12, 1e-9, 1e-7, 1e-5, 1e-3, 0.1, 0.4, 0.5, 0.51, 0.9, 3.0, 100.0, 1e4]
APART = [0.0, 1e-9, 1e-3, 0.1, 0.5, 1.0, 3.0, 20.0, 99.5, 101.0, 1e4, 1e4 + 2, 1e8]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [ks.Gaussian(sigma=1.3), *MATERNS], ids=str)
def test_errors_are_within_the_bound(kernel):
    """Narrow, wide and far boxes; errors relative to the roots of the diagonal entries, as a certificate takes them."""
    lift, worst = WithMeans(kernel), 0.0
    with mp.workdps(70):
        for a, b in product(WIDTHS, WIDTHS):
            if a > b:
                continue
            one, other = spread_rows(np.zeros((1, 1)), a, 0.0), spread_rows(np.array(APART)[:, None], b, 0.0)
            bound = lift._rounding(Inexact(np.vstack([one, other[:1]])))
            root = np.sqrt(lift._diagonal(one) * lift._diagonal(other))
            for t, value, r in zip(APART, lift._matrix(one, other)[0], root, strict=True):
                error = abs(float(mp.mpf(float(value)) - exact_mean(kernel, t, a, b))) / r
                if a == b == 0:
                    continue  # κ itself
                assert error <= bound
                worst = max(worst, error / bound)
                if t <= 3 and b <= 3:
                    assert error <= 25 * UNIT
    assert worst > 1e-3  # a bound that is not vacuous


def test_errors_of_normal_distributions_are_within_the_bound():
    """(σ/τ)·(the mean of a Gaussian of length scale τ), τ² = σ² + s² + s′², beside boxes and each other."""
    kernel = ks.Gaussian(sigma=0.9)
    halves = np.array([[0.0], [0.0], [0.0], [0.0], [1e-6], [0.4], [2.0], [300.0]])
    deviations = np.array([[0.0], [1e-8], [0.7], [50.0], [0.0], [0.0], [0.0], [0.0]])
    rows = spread_rows(RNG.uniform(0, 3, size=(8, 1)), halves, deviations)
    lift = WithMeans(kernel)
    Q, bound, root = lift._matrix(rows, None), lift._rounding(Inexact(rows)), np.sqrt(lift._diagonal(rows))
    with mp.workdps(60):
        for i, j in product(range(1, 8), range(8)):
            tau = mp.sqrt(sum(mp.mpf(float(v)) ** 2 for v in (0.9, deviations[i, 0], deviations[j, 0])))
            t, a, b = (mp.mpf(float(v)) for v in (abs(rows[i, 0] - rows[j, 0]), *sorted([halves[i, 0], halves[j, 0]])))
            exact = mp.mpf(0.9) / tau * exact_mean(ks.Gaussian(sigma=1.0), t / tau, a / tau, b / tau)
            assert abs(float(mp.mpf(float(Q[i, j])) - exact)) <= bound * root[i] * root[j]
    assert bound < 1e-11


@pytest.mark.parametrize("width", [1e-3, 1e-5, 1e-7, 1e-9, 1e-12])
@pytest.mark.parametrize("kernel", ONE_COLUMN[:-1], ids=str)
def test_narrow_boxes_keep_all_digits(kernel, width):
    """The mean over a narrow box differs from the value by O(width²), or O(width) at a kink."""
    K = gram(kernel, [0.4, 0.4, 1.1], np.array([[width], [0.0], [width]]))
    at = kernel([[0.4], [0.4], [1.1]])
    np.testing.assert_allclose(K[:2, 2], at[:2, 2], rtol=30 * width**2 + 1e-14)
    np.testing.assert_allclose(K[:2, :2], at[:2, :2], rtol=6 * width + 1e-14)
    A = ko.integral([1.0], [1.0 + width], kernel)
    theta = ko.Theta(kernel)
    theta.value = ko.Function(kernel, [[0.4]], [1.0])
    middle = (1.0 + (1.0 + width)) / 2
    expected = theta.value([[middle]])[0] * ((1.0 + width) - 1.0)
    np.testing.assert_allclose((A @ theta).value, [expected], rtol=30 * width**2 + 1e-14)


@pytest.mark.parametrize("kernel", ONE_COLUMN, ids=str)
def test_zero_width_is_the_point(kernel):
    X = RNG.normal(size=(5, 1))
    rows, boxes = spread_rows(X, 0.0, 0.0), spread_rows(RNG.normal(size=(3, 1)), 0.3, 0.0)
    lift = WithMeans(kernel)
    np.testing.assert_array_equal(lift._matrix(rows, None), kernel(X))
    direct = kernel._means(Spread.of_rows(rows), Spread.of_rows(rows))
    np.testing.assert_allclose(direct, kernel(X), rtol=1e-13, atol=1e-13)
    narrow = lift._matrix(spread_rows(X, 1e-14, 0.0), boxes)
    np.testing.assert_allclose(lift._matrix(rows, boxes), narrow, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(ko.integral(X, X, kernel).diag(), np.zeros(5))


@pytest.mark.parametrize("kernel", [*ONE_COLUMN[:-1], ks.Matern(nu=2.5, sigma=20.0)], ids=str)
def test_gram_matrices_are_positive_semidefinite(kernel):
    """Points, narrow, wide and overlapping boxes together, up to the bound."""
    X = RNG.uniform(-3, 3, size=(60, 1))
    rows = spread_rows(X, np.repeat([0.0, 1e-8, 0.05, 0.4, 1.0, 5.0], 10)[:, None], 0.0)
    lift = WithMeans(kernel)
    Q = lift._matrix(rows, None)
    normalized = Q / np.sqrt(np.outer(np.diag(Q), np.diag(Q)))
    assert np.linalg.eigvalsh(normalized)[0] >= -60 * lift._rounding(Inexact(rows)) - 1e-13
    assert np.abs(normalized).max() <= 1 + 1e-12
    assert lift.is_psd


@pytest.mark.slow
@pytest.mark.parametrize("columns", [1, 3])
def test_polynomials_within_the_bound(columns):
    """Against moments of monomials in 60 digits."""
    kernel = ks.Polynomial(degree=3, offset=0.7, scale=1.5)
    X, halves = RNG.normal(size=(6, columns)), np.abs(RNG.normal(size=(6, columns)))
    boxes = np.arange(6)[:, None] < 3
    rows = spread_rows(X, np.where(boxes, halves, 0), np.where(boxes, 0, halves))
    K, bound = WithMeans(kernel)._matrix(rows, None), WithMeans(kernel)._rounding(Inexact(rows))
    with mp.workdps(60):

        def moment(row, j, k):
            x, h, s = (mp.mpf(float(v)) for v in (row[j], row[columns + j], row[2 * columns + j]))
            if h:
                return ((x + h) ** (k + 1) - (x - h) ** (k + 1)) / (2 * h * (k + 1))
            return (1, x, x**2 + s**2, x**3 + 3 * x * s**2)[k]

        for i, j in product(range(6), range(6)):
            total, powers = mp.mpf(0), product(range(4), repeat=columns)
            for alpha in (a for a in powers if sum(a) <= 3):
                rest = 3 - sum(alpha)
                count = mp.factorial(3) / mp.factorial(rest) / mp.fprod(mp.factorial(k) for k in alpha)
                means = [moment(rows[i], c, k) * moment(rows[j], c, k) for c, k in enumerate(alpha)]
                total += count * mp.mpf(0.7) ** rest * mp.mpf(1.5) ** sum(alpha) * mp.fprod(means)
            assert abs(float(mp.mpf(float(K[i, j])) - total)) <= bound * np.sqrt(K[i, i] * K[j, j])
    assert bound < 1e-12


def test_ard_far_from_the_origin_within_the_bound():
    """Division by length scales moves centres; the bound counts it."""
    kernel, inner = ks.Laplacian(sigma=1.0).ard([0.3]), ks.Laplacian(sigma=0.3)
    X = 1e6 + RNG.uniform(0, 2, size=(6, 1))
    rows = spread_rows(X, np.array([[0.0, 1e-6, 0.1, 0.3, 1.0, 2.0]]).T, 0.0)
    K, bound = WithMeans(kernel)._matrix(rows, None), WithMeans(kernel)._rounding(Inexact(rows))
    with mp.workdps(60):
        for i, j in product(range(1, 6), range(6)):
            (a, b), t = sorted([rows[i, 1], rows[j, 1]]), abs(X[i, 0] - X[j, 0])
            assert abs(float(mp.mpf(float(K[i, j])) - exact_mean(inner, t, a, b))) <= bound * np.sqrt(K[i, i] * K[j, j])
    assert bound < 1e-12


@pytest.mark.later
def test_nodes():
    """The error of the rule at the largest half-width is below the one that is stated, in 60 digits."""
    with mp.workdps(60):
        for h in (1e-3, 0.1, NARROW):
            rule = _rule(len(nodes(h)[0]))
            for t in (0.0, 0.7, 2.5):
                exact = mp.quad(lambda x, t=t, h=h: mp.exp(-((t + x * h) ** 2) / 2), [-1, 1]) / 2
                found = sum(w * mp.exp(-((t + mp.mpf(h) * x) ** 2) / 2) for x, w in rule) / 2
                assert abs(found - exact) <= MISSED
    assert len(nodes(0.0)[0]) == 1


def test_incomplete_gamma_functions():
    w = np.concatenate([np.logspace(-12, 2, 60), [2.999, 3.0, 3.001]])
    for a, values in enumerate(incomplete_gammas(w, 4), start=1):
        exact = [mp.gammainc(a, 0, mp.mpf(float(v)), regularized=True) for v in w]
        np.testing.assert_allclose(values, np.array([float(v) for v in exact]), rtol=20 * UNIT)
    assert all(p[0] == 0 for p in incomplete_gammas(np.zeros(1), 3))


def _rule(n):
    """Nodes and weights 2/((1 − x²)Pₙ′(x)²)."""
    roots = [mp.findroot(lambda y: mp.legendre(n, y), mp.mpf(float(x))) for x in np.polynomial.legendre.leggauss(n)[0]]
    return [(x, 2 / ((1 - x**2) * mp.diff(lambda y: mp.legendre(n, y), x) ** 2)) for x in roots]


# ---------------------------------------------------------------- what has no rule

REFUSED = [
    (ks.RationalQuadratic(sigma=1.0), 1, "RationalQuadratic"),
    (ks.Cosine(), 1, "Cosine"),
    (ks.Geometric(), 1, "Geometric"),
    (ks.Matern(nu=1.5, sigma=1.0), 2, "in 2 columns a Matérn kernel is no product"),
    (ks.Gaussian(sigma=1.0) * ks.Gaussian(sigma=2.0), 1, "same columns"),
    (ks.Gaussian(sigma=1.0).on([0]) * ks.Laplacian(sigma=2.0), 2, "same columns"),
    (ks.Gaussian(sigma=1.0) + ks.Cosine(), 1, r"got Cosine\(\)"),
    (ks.Gaussian(sigma=1.0).on([0, 0]), 1, "column twice"),
    (ks.Gaussian(sigma=1.0).normalized(), 1, "normalized"),
    (ks.Gaussian(sigma=1.0) ** 2, 1, r"\*\*2"),
    (ks.Gaussian(sigma=1.0).weighted(len), 1, "weighted"),
    (ks.Gaussian(sigma=1.0).centered([[0.0], [1.0]]), 1, "centered"),
]


@pytest.mark.parametrize(("kernel", "columns", "words"), REFUSED, ids=[str(k) for k, _, _ in REFUSED])
def test_kernels_without_a_rule(kernel, columns, words):
    with pytest.raises(KernelError, match=words) as told:
        ko.integral(np.zeros((1, columns)), np.ones((1, columns)), kernel)
    assert "ko.FeatureMatrix(nodes, kernel)" in str(told.value)
    f = ko.Function(kernel, np.full((1, columns), 0.1), [1.0])
    with pytest.raises(KernelError, match=words):
        f.integral(np.zeros((1, columns)), np.ones((1, columns)))


@pytest.mark.parametrize("kernel", MATERNS, ids=str)
def test_normal_distributions_without_a_rule(kernel):
    with pytest.raises(KernelError, match="normal distributions are known for Gaussian and polynomial") as told:
        ko.gaussian_mean([0.0], 1.0, kernel)
    assert "ko.FeatureMatrix(nodes, kernel)" in str(told.value) and repr(kernel) in str(told.value)


@pytest.mark.parametrize(
    "kernel", [ks.Gaussian(sigma=1.0).on([2]), ks.Gaussian(sigma=1.0).ard([1.0, 2.0, 3.0])], ids=str
)
def test_kernels_of_other_columns(kernel):
    with pytest.raises(KernelError, match="got 1 columns. One of several columns is a row of a matrix"):
        ko.integral([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], kernel)
    assert len(ko.integral([[0.0, 0.0, 0.0]], [[1.0, 1.0, 1.0]], kernel)) == 1


def test_gradients_by_parameters():
    lift = WithMeans(ks.Gaussian(sigma=1.0))
    rows, G = spread_rows(np.array([[0.0], [1.0]]), 0.0, 0.0), np.ones((2, 2))
    plain = ks.Gaussian(sigma=1.0)._adjoint(rows[:, :1], rows[:, :1], G, frozenset({"sigma"}), True)
    found = lift._adjoint(rows, rows, G, frozenset({"k1__sigma"}), True)
    np.testing.assert_array_equal(found.fields["k1__sigma"], plain.fields["sigma"])
    np.testing.assert_array_equal(found.X, np.hstack([plain.X, np.zeros((2, 2))]))
    with pytest.raises(MissingRuleError, match="integrals"):
        lift._adjoint(rows, spread_rows(rows[:, :1], 0.1, 0.0), G, frozenset({"k1__sigma"}), False)


def test_lifts_of_lifts():
    with pytest.raises(KernelError, match="a kernel on points"):
        WithMeans(WithDerivatives(ks.Gaussian(sigma=1.0)))
    with pytest.raises(KernelError, match="a kernel"):
        WithMeans(3.0)
