"""Smoothing splines and thin plate splines, against scipy and against integrals of squared derivatives."""

from math import pi

import cvxpy as cp
import mpmath
import numpy as np
import pytest
from mpmath import mpf
from scipy.interpolate import RBFInterpolator, make_smoothing_spline

import kernelopt as ko
from kernelopt.errors import KernelError
from kernelopt.kernels.derivatives import derivative
from kernelopt.testing import check_kernel

ks = ko.kernels
RNG = np.random.default_rng(0)
x = np.sort(RNG.uniform(0, 10, 30))
y, w = np.sin(x) + 0.1 * RNG.normal(size=30), RNG.uniform(0.5, 2, 30)
X = RNG.uniform(size=(40, 3))
ANCHORS = {1: [[0.0], [1.0]], 2: [[0.0, 0.0], [1.0, 0.0], [0.2, 1.0]], 3: np.vstack([np.zeros(3), np.eye(3)])}


def fitted(kernel, X, y, lam, weights=None):
    """The fitted function with its polynomial, and ‖θ‖²."""
    theta, c = ko.Theta(kernel), cp.Variable(kernel.null_space(X).shape[1])
    squares = cp.square(y - theta(X) - kernel.null_space(X) @ c)
    loss = cp.sum(squares) if weights is None else weights @ squares
    problem = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)))
    problem.solve(tol=1e-10, rank_tol=1e-13)
    assert problem.status == "optimal"
    return lambda P: theta.value(P) + kernel.null_space(P) @ c.value, theta.value.norm**2


@pytest.mark.parametrize("lam", [0.01, 1.0, 100.0])
def test_smoothing_splines_are_those_of_scipy(lam):
    f, square = fitted(ks.Spline(2, 0.0, 10.0), x[:, None], y, lam, w)
    theirs, grid = make_smoothing_spline(x, y, w=w, lam=lam), np.linspace(x[0], x[-1], 200)
    assert np.abs(f(grid[:, None]) - theirs(grid)).max() < 1e-10 * np.abs(y).max()
    knots = np.unique(theirs.t)
    bends = theirs.derivative(2)(knots)  # linear between knots
    energy = np.sum(np.diff(knots) * (bends[:-1] ** 2 + bends[:-1] * bends[1:] + bends[1:] ** 2) / 3)
    assert square == pytest.approx(energy, rel=1e-8)


def test_the_interval_of_a_smoothing_spline_does_not_matter():
    """Beyond the data a smoothing spline is a line."""
    f, g = (fitted(ks.Spline(2, *ends), x[:, None], y, 0.1)[0] for ends in ((x[0], x[-1]), (-3.0, 20.0)))
    grid = np.linspace(-20, 40, 61)[:, None]
    assert np.abs(f(grid) - g(grid)).max() < 1e-8
    assert np.abs(np.diff(f(grid)[:, None][-20:, 0], 2)).max() < 1e-9


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_splines_inside_and_outside_of_their_interval(order):
    P, Z = (RNG.uniform(-0.5, 1.5, size=(n, 1)) for n in (9, 6))
    kernel = ks.Spline(order, 0.0, 1.0)
    check_kernel(kernel, P, Z)
    n = order - 1
    for s, t, got in zip(P[:6, 0], Z[:, 0], np.diag(kernel(P[:6], Z)), strict=True):
        square = mpmath.quad(
            lambda u, s=s, t=t: (max(s - u, 0) * max(t - u, 0)) ** n * (u < min(s, t)) / mpmath.factorial(n) ** 2,
            sorted({0.0, 1.0, *(float(np.clip(v, 0, 1)) for v in (s, t))}),
        )
        assert got == pytest.approx(float(square), rel=1e-12, abs=1e-16)


def test_values_and_slopes_of_a_spline_may_stand_together():
    spline = ks.Spline(3, 0.0, 10.0)
    theta, c = ko.Theta(spline), cp.Variable(3)
    slope = (
        ko.FeatureMatrix(x[:, None], spline).derivative(0) @ theta + np.column_stack([0 * x, 0 * x + 0.1, 0.02 * x]) @ c
    )  # of 1, x/10 and (x/10)²
    rising = ko.Problem(
        cp.Minimize(
            cp.sum_squares(x - y - theta(x[:, None]) - spline.null_space(x[:, None]) @ c) + ko.sum_squares(theta)
        ),
        [slope >= 0.5],
    )
    rising.solve()
    values = theta.value(x[:, None]) + spline.null_space(x[:, None]) @ c.value
    assert rising.status == "optimal" and (np.diff(values) / np.diff(x)).min() > 0.45


@pytest.mark.parametrize("lam", [1e-4, 1e-2])
@pytest.mark.parametrize(
    ("d", "name", "factor"), [(1, "cubic", 12), (2, "thin_plate_spline", 8 * pi), (3, "linear", 8 * pi)]
)
def test_thin_plate_splines_are_those_of_scipy(d, name, factor, lam):
    P, target, new = (
        X[:, :d],
        np.sin(3 * X[:, :d].sum(axis=1)) + y.std() * X[:, 2],
        RNG.uniform(-0.5, 1.5, size=(50, d)),
    )
    f, square = fitted(ks.ThinPlate(ANCHORS[d]), P, target, lam)
    theirs = RBFInterpolator(P, target, kernel=name, smoothing=factor * lam, degree=1)
    assert np.abs(f(new) - theirs(new)).max() < 1e-8
    g, other = fitted(ks.ThinPlate(P[: d + 1]), P, target, lam)  # data as anchors
    assert np.abs(f(new) - g(new)).max() < 1e-8 and other == pytest.approx(square, rel=1e-8)


def test_a_thin_plate_spline_in_one_column_is_a_cubic_spline():
    f, square = fitted(ks.ThinPlate([[2.0], [7.0]]), x[:, None], y, 0.1)
    g, other = fitted(ks.Spline(2, 0.0, 10.0), x[:, None], y, 0.1)
    assert square == pytest.approx(other, rel=1e-9)
    assert np.abs(f(x[:, None]) - g(x[:, None])).max() < 1e-9


def test_the_norm_of_a_thin_plate_spline_is_its_bending_energy():
    """∫ f₁₁² + 2f₁₂² + f₂₂² for f = Σ bᵢφ(x − xᵢ) with φ = r² log r/8π, φ₁₁ = (2 log r + 1 + 2x₁²/r²)/8π."""
    kernel, centers = ks.ThinPlate(ANCHORS[2]), np.array([[1.0, 1.0], [0.3, 0.4]])
    a = np.array([1.0, -2.0])
    b = np.concatenate([a, -kernel.null_space(centers).T @ a])
    sheet = np.sinh(np.linspace(-8, 8, 1201))  # from −1490 to 1490, denser in the middle
    u, v = np.meshgrid(0.5 + sheet, 0.5 + sheet)
    area = np.outer(np.gradient(sheet), np.gradient(sheet))
    f11 = f12 = f22 = 0.0
    for weight, (p, q) in zip(b, [*centers, *ANCHORS[2]], strict=True):
        r2 = (u - p) ** 2 + (v - q) ** 2 + 1e-12
        f11 = f11 + weight * (np.log(r2) + 1 + 2 * (u - p) ** 2 / r2) / (8 * pi)
        f22 = f22 + weight * (np.log(r2) + 1 + 2 * (v - q) ** 2 / r2) / (8 * pi)
        f12 = f12 + weight * 2 * (u - p) * (v - q) / r2 / (8 * pi)
    assert a @ kernel(centers) @ a == pytest.approx(np.sum(area * (f11**2 + 2 * f12**2 + f22**2)), rel=0.01)


def grid(order, d):
    """Anchors for polynomials of degree below the order: the multiples of 1/order in a simplex."""
    points = np.array(list(np.ndindex(*[order] * d)))
    return points[points.sum(axis=1) < order] / order


@pytest.mark.parametrize(("order", "d"), [(1, 1), (3, 1), (2, 2), (3, 2), (4, 2), (2, 3), (3, 3)])
def test_rounding_of_thin_plate_splines(order, d):
    """Against φ in 60 digits and polynomials by a linear system; also far from the anchors, and for small units."""
    q, powers = 2 * order - d, [p for p in np.ndindex(*[order] * d) if sum(p) < order]
    front = {(1, 1): mpf(-1) / 2, (3, 1): mpf(-1) / 240, (2, 2): 1 / (8 * mpmath.pi), (3, 2): -1 / (128 * mpmath.pi)}
    front |= {(4, 2): 1 / (128 * 36 * mpmath.pi), (2, 3): -1 / (8 * mpmath.pi), (3, 3): 1 / (96 * mpmath.pi)}

    def phi(p, r):
        square = mpmath.fsum((a - b) ** 2 for a, b in zip(p, r, strict=True))
        power = square ** (mpf(q) / 2)
        return front[order, d] * (power if d % 2 else power * mpmath.log(square) / 2 if square else 0)

    with mpmath.workdps(60):
        for unit, offset in ((1.0, 0.0), (1e-3, 5.0), (1e5, 0.0)):
            anchors = unit * grid(order, d) + offset
            P = unit * np.vstack([RNG.uniform(0, 1, size=(4, d)), RNG.uniform(-3, 4, size=(2, d))]) + offset
            P[1] = P[0] + 1e-9 * unit
            kernel = ks.ThinPlate(anchors, order)
            A = [[mpf(float(v)) for v in a] for a in anchors]
            V = mpmath.matrix([[mpmath.fprod(v**k for v, k in zip(a, p, strict=True)) for a in A] for p in powers])
            rows = [[mpf(float(v)) for v in p] for p in P]
            basis = [
                mpmath.matrix([mpmath.fprod(v**k for v, k in zip(p, e, strict=True)) for e in powers]) for p in rows
            ]
            weights = [[mpf(1), *(-v for v in mpmath.lu_solve(V, b))] for b in basis]
            K, size, bound = kernel(P), kernel._size(kernel.rows(P)), kernel._relative_rounding(kernel.rows(P))
            own = kernel._rounding(ko.kernels.kernel.Inexact(kernel.rows(P)))
            assert np.array_equal(kernel(anchors, P), np.zeros((len(A), len(P)))) and bound >= own
            assert np.linalg.eigvalsh(K)[0] > -1e-10 * np.linalg.eigvalsh(K)[-1]
            for i, j in np.ndindex(K.shape):
                left, right = [rows[i], *A], [rows[j], *A]
                exact = mpmath.fsum(
                    a * b * phi(p, r)
                    for a, p in zip(weights[i], left, strict=True)
                    for b, r in zip(weights[j], right, strict=True)
                )
                assert abs(mpf(float(K[i, j])) - exact) <= own * np.sqrt(size[i] * size[j])
                assert abs(exact) <= np.sqrt(size[i] * size[j])


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_rounding_of_splines(order):
    kernel, n = ks.Spline(order, 0.1, 2.0), order - 1
    P = np.concatenate([RNG.uniform(0, 3, size=6), [0.1, 0.1 + 1e-9, 2.0]])[:, None]
    P = np.concatenate([P, P[:2] + 1e-10])
    bound, low = kernel.rounding(P), mpf(0.1)
    assert bound < 1e-14
    with mpmath.workdps(60):
        for dx, dz in [((), ()), ((0,), ()), ((0,), (0,)), ((0, 0), (0, 0))][: 2 * kernel._smoothness + 1]:
            a, b = n - len(dx), n - len(dz)
            r = kernel._rounding(ko.kernels.kernel.Inexact(kernel.rows(P), order=len(dx)))
            K = derivative(kernel, P, dx, P, dz)
            for i, j in np.ndindex(K.shape):
                s, t = mpf(float(P[i, 0])), mpf(float(P[j, 0]))
                p = max(min(s, t, mpf(2)), low)
                exact = mpmath.fsum(
                    mpmath.binomial(a, k) * mpmath.binomial(b, h) * (s - p) ** (a - k) * (t - p) ** (b - h)
                    * (p - low) ** (k + h + 1) / (k + h + 1)
                    for k in range(a + 1) for h in range(b + 1)
                ) / mpmath.factorial(a) / mpmath.factorial(b) if p > low else mpf(0)  # fmt: skip
                assert abs(mpf(float(K[i, j])) - exact) <= r * exact


def test_splines_of_scaled_columns_have_bounds():
    kernel = ks.Spline(2, 0.0, 1.0).on([1]).ard([3.0, 7.0])
    P = np.array([[0.3, 0.1], [0.2, 5.0]])
    assert 0 < kernel.rounding(P) < 1e-13
    scaled, anchored = ks.ThinPlate(ANCHORS[2]).ard([3.0, 7.0]), np.array([[0.0, 0.0], [0.6, 7.0]])
    assert 0 < scaled.rounding(P) < 1e-8 and scaled.rounding(anchored[:1]) == 0.0
    inexact = ks.kernel.Inexact(anchored / [3.0, 7.0], np.full((2, 2), 1e-16))
    assert ks.ThinPlate(ANCHORS[2])._rounding(inexact) == np.inf  # values there are 0, without the errors
    assert ks.ThinPlate(ANCHORS[2]).rounding(P / 10) < 1e-10


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ks.Spline(0, 0.0, 1.0), "order to be an integer from 1 to 6; got 0"),
        (lambda: ks.Spline(2.0, 0.0, 1.0), "order to be an integer"),
        (lambda: ks.Spline(2, 1.0, 1.0), "high to be a number > low = 1"),
        (lambda: ks.Spline(2, 0.0, np.inf), "high to be a number"),
        (lambda: ks.Spline(2, 0.0, 1.0)(X), r"one column; got 3 columns.*\.on\(\[j\]\)"),
        (lambda: ks.Spline(2, 0.0, 1.0).null_space(X), "one column"),
        (lambda: ks.Spline(2, cp.Parameter(), 1.0), "low of Spline"),
        (lambda: ks.ThinPlate([[0.0, 0.0], [1.0, 1.0]]), "anchors to be 3 points.*got 2"),
        (lambda: ks.ThinPlate([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]), "anchors that determine a polynomial.*a line"),
        (lambda: ks.ThinPlate([[0.0, 0.0], [0.1, 0.1], [0.3, 0.3 + 1e-16]]), "anchors that determine a polynomial"),
        (lambda: ks.ThinPlate([0.0, 1.0]), "anchors to be points"),
        (lambda: ks.ThinPlate(np.zeros((5, 4))), "1 to 3 columns"),
        (lambda: ks.ThinPlate(ANCHORS[2], order=1), "an integer from 2 to 6 in 2 columns"),
        (lambda: ks.ThinPlate(ANCHORS[2])(X), "2 columns, as the anchors"),
    ],
)  # fmt: skip
def test_what_splines_refuse(make, words):
    with pytest.raises(KernelError, match=words):
        make()


def test_splines_are_values():
    for kernel in (ks.Spline(2, 0, 1), ks.ThinPlate(ANCHORS[3])):
        assert eval(repr(kernel), vars(ks)) == kernel and hash(eval(repr(kernel), vars(ks))) == hash(kernel)
    assert ks.ThinPlate(np.array(ANCHORS[2])) == ks.ThinPlate(ANCHORS[2])
