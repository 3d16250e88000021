"""Stated rounding errors against 50-digit values, with formulas that are written here once more."""

from contextlib import nullcontext
from functools import cache

import mpmath
import numpy as np
import pytest
from mpmath import mpf
from test_kernels import ANCHORS, FORMULAS, HISTOGRAM_FORMULAS, S, squares
from test_kernels import X as CENTERED_ON

import kernelopt as ko
from kernelopt.errors import KernelOptError
from kernelopt.factorization import Layout, Settings
from kernelopt.factorization.block_matrix import Here
from kernelopt.factorization.blocked import blocked_cholesky
from kernelopt.kernels.derivatives import derivative, lifted, with_order
from kernelopt.kernels.kernel import Kernel
from kernelopt.kernels.rounding import Inexact
from kernelopt.language.functions import Function
from kernelopt.language.rows import Rows

ks = ko.kernels
RNG = np.random.default_rng(0)
UNIT = 2.0**-53
mpmath.mp.dps = 60


# ------------------------------------------------------------ formulas, of lists of 60-digit numbers


def dot(x, y):
    return mpmath.fsum(a * b for a, b in zip(x, y, strict=True))


def less(x, y):
    return [a - b for a, b in zip(x, y, strict=True)]


def apart(x, y):
    return dot(less(x, y), less(x, y))


def absolute(x, y):
    return mpmath.fsum(abs(v) for v in less(x, y))


def gauss(x, y, sigma):
    return mpmath.exp(-apart(x, y) / (2 * mpf(sigma) ** 2))


def matern(x, y, nu, sigma):
    s = mpmath.sqrt(2 * mpf(nu) * apart(x, y)) / mpf(sigma)
    if nu in (0.5, 1.5, 2.5):
        return {0.5: 1, 1.5: 1 + s, 2.5: 1 + s + s**2 / 3}[nu] * mpmath.exp(-s)
    return bessel(nu, s, mpmath.mp.dps)


@cache
def bessel(nu, s, digits):
    """2^{1−ν}/Γ(ν)·sᵛK_ν(s) by the series of K_ν for small s, where ν is no integer."""
    nu = mpf(nu)
    if s == 0:
        return mpf(1)
    if s < 1e-40 and nu == 2:
        return 1 - s**2 / 4
    if s < 1e-15 and nu != int(nu):  # mpmath's own takes minutes
        q, terms = s**2 / 4, range(9)
        rising = [q**i / (mpmath.factorial(i) * mpmath.rf(1 - nu, i)) for i in terms]
        falling = [q**i / (mpmath.factorial(i) * mpmath.rf(1 + nu, i)) for i in terms]
        return sum(rising) + mpmath.gamma(-nu) / mpmath.gamma(nu) * (s / 2) ** (2 * nu) * sum(falling)
    return 2 ** (1 - nu) / mpmath.gamma(nu) * s**nu * mpmath.besselk(nu, s) if s < 1e4 else mpf(0)


def spline(s, t, m, high):
    """∫ (s − u)ᵐ⁻¹(t − u)ᵐ⁻¹ du/(m − 1)!² over 0 … p = min(s, t, high), by powers of u."""
    p, n = max(min(s, t, high), mpf(0)), m - 1
    terms = [
        mpmath.binomial(n, i)
        * mpmath.binomial(n, j)
        * (-1) ** (i + j)
        * s ** (n - i)
        * t ** (n - j)
        * p ** (i + j + 1)
        / (i + j + 1)
        for i in range(m)
        for j in range(m)
    ]
    return mpmath.fsum(terms) / mpmath.factorial(n) ** 2


def thin_plate(x, y, anchors, phi):
    """For order 2: barycentric coordinates instead of Lagrange's polynomials."""
    A = [[mpf(v) for v in a] for a in anchors]
    M = mpmath.matrix([list(column) for column in zip(*A, strict=True)] + [[1] * len(A)])
    weights = [[mpf(1), *(-v for v in mpmath.lu_solve(M, mpmath.matrix([*p, 1])))] for p in (x, y)]
    return mpmath.fsum(
        v * w * phi(mpmath.sqrt(apart(p, q)))
        for v, p in zip(weights[0], [x, *A], strict=True)
        for w, q in zip(weights[1], [y, *A], strict=True)
    )


def rational(x, y, sigma, alpha):
    return (1 + apart(x, y) / (2 * mpf(alpha) * mpf(sigma) ** 2)) ** -mpf(alpha)


def periodic(x, y, period, sigma):
    waves = mpmath.fsum(mpmath.sin(mpmath.pi * v / mpf(period)) ** 2 for v in less(x, y))
    return mpmath.exp(-2 * waves / mpf(sigma) ** 2)


def divided(x, scales):
    return [v / mpf(s) for v, s in zip(x, scales, strict=True)]


def as_computed(function, *points):
    """What a user's function gives in double precision, as exact numbers."""
    return function(*(np.array([[float(v) for v in x]]) for x in points))


def mapped(function, x):
    return [mpf(float(v)) for v in as_computed(function, x)[0]]


def mean_of(points):
    return [mpmath.fsum(mpf(float(v)) for v in column) / len(points) for column in points.T]


def fractions(x, y):
    return [(a - b) ** 2 / (a + b) if a + b else mpf(0) for a, b in zip(x, y, strict=True)]


def roots(x):
    return [mpmath.sqrt(v) for v in x]


def series(s, coefficients):
    return mpmath.fsum(mpf(c) * s**n for n, c in enumerate(coefficients))


CENTRE = mean_of(CENTERED_ON)
EXACT = {
    "constant": lambda x, y: mpf(2),
    "linear": dot,
    "cosine": lambda x, y: dot(x, y) / mpmath.sqrt(dot(x, x) * dot(y, y)),
    "polynomial": lambda x, y: (mpf(0.5) + 2 * dot(x, y)) ** 3,
    "homogeneous": lambda x, y: dot(x, y) ** 2,
    "polynomial series": lambda x, y: series(dot(x, y), [1, 0, 2, 0.5]),
    "geometric": lambda x, y: 1 / (1 - dot(x, y) / 81),
    "gaussian": lambda x, y: gauss(x, y, 1.5),
    "laplacian": lambda x, y: mpmath.exp(-absolute(x, y) / mpf(1.5)),
    "matern 1/2": lambda x, y: matern(x, y, 0.5, 2.0),
    "matern 3/2": lambda x, y: matern(x, y, 1.5, 2.0),
    "matern 5/2": lambda x, y: matern(x, y, 2.5, 2.0),
    "matern 7/2": lambda x, y: matern(x, y, 3.5, 2.0),
    "matern 0.7": lambda x, y: matern(x, y, 0.7, 2.0),
    "matern 2.2": lambda x, y: matern(x, y, 2.2, 2.0),
    "rational quadratic": lambda x, y: rational(x, y, 1.5, 0.7),
    "periodic": lambda x, y: periodic(x, y, 1.3, 0.8),
    "spline": lambda x, y: spline(x[1] + 2, y[1] + 2, 2, 3),
    "thin plate": lambda x, y: thin_plate(x, y, ANCHORS, lambda r: -r / (8 * mpmath.pi)),
    "generalized l1": lambda x, y: mpmath.exp(-(absolute(x, y) ** 2) / 2),
    "generalized l2": lambda x, y: mpmath.exp(-apart(x, y) / 2),
    "generalized linf": lambda x, y: mpmath.exp(-(max(abs(v) for v in less(x, y)) ** 2) / 2),
    "mahalanobis": lambda x, y: mpmath.exp(
        -mpmath.fsum(a * mpf(S[i, j]) * b for i, a in enumerate(less(x, y)) for j, b in enumerate(less(x, y))) / 2
    ),
    "callable distance": lambda x, y: mpmath.exp(
        -(mpf(float(as_computed(FORMULAS["callable distance"][0].distance, x, y)[0, 0])) ** 2) / 2
    ),
    "sigmoid": lambda x, y: mpmath.tanh(mpf(0.3) * dot(x, y) + mpf(-0.2)),
    "explicit": lambda x, y: dot(mapped(squares, x), mapped(squares, y)),
    "function": lambda x, y: mpf(float(np.array([float(v) for v in x]) @ np.array([float(v) for v in y]))),
    "function on lists": None,  # its values depend on the blocks that it is called for
    "sum": lambda x, y: dot(x, y) + (1 + dot(x, y)) ** 2,
    "product": lambda x, y: dot(x, y) * (1 + dot(x, y)) ** 2,
    "scaled": lambda x, y: 3 * dot(x, y),
    "mixture": lambda x, y: (gauss(x, y, 1.0) + dot(x, y)) * gauss(x, y, 2.0) / 2,
    "power": lambda x, y: (1 + dot(x, y)) ** 3,
    "series": lambda x, y: 1 + dot(x, y) ** 2 / 2,
    "exponential": lambda x, y: mpmath.exp(mpf(0.3) * dot(x, y)),
    "difference": lambda x, y: gauss(x, y, 2.0) - dot(x, y) / 2,
    "weighted": lambda x, y: x[0] * dot(x, y) * y[0],
    "composed": lambda x, y: gauss(mapped(squares, x), mapped(squares, y), 1.0),
    "columns": lambda x, y: (1 + x[2] * y[2] + x[0] * y[0]) ** 2,
    "ard": lambda x, y: gauss(divided(x, [1, 2, 0.5]), divided(y, [1, 2, 0.5]), 1.0),
    "normalized": lambda x, y: (1 + dot(x, y)) ** 2 / (1 + dot(x, x)) / (1 + dot(y, y)),
    "centered": lambda x, y: dot(less(x, CENTRE), less(y, CENTRE)),
    "cached": lambda x, y: (1 + dot(x, y)) ** 2,
    "intersection": lambda x, y: mpmath.fsum(min(a, b) for a, b in zip(x, y, strict=True)),
    "additive chi squared": lambda x, y: mpmath.fsum(
        2 * a * b / (a + b) if a + b else 0 for a, b in zip(x, y, strict=True)
    ),
    "chi squared": lambda x, y: mpmath.exp(-mpmath.fsum(fractions(x, y)) / 2),
    "hellinger": lambda x, y: mpmath.exp(-apart(roots(x), roots(y)) / 2),
    "mixed": lambda x, y: mpmath.fsum(min(a, b) for a, b in zip(x, y, strict=True)) * gauss(x, y, 1.0),
}
MORE = {  # compositions and parameters beyond the table
    "delta": (ks.Delta(), lambda x, y: mpf(x == y)),
    "laplacian, ard": (
        ks.Laplacian(sigma=0.7).ard([3.0, 0.1, 0.7]),
        lambda x, y: mpmath.exp(-absolute(divided(x, [3.0, 0.1, 0.7]), divided(y, [3.0, 0.1, 0.7])) / mpf(0.7)),
    ),
    "matern, ard": (
        ks.Matern(nu=1.5, sigma=2.0).ard([3.0, 0.1, 0.7]),
        lambda x, y: matern(divided(x, [3.0, 0.1, 0.7]), divided(y, [3.0, 0.1, 0.7]), 1.5, 2.0),
    ),
    **{
        f"matern {nu}": (ks.Matern(nu, 0.9), lambda x, y, nu=nu: matern(x, y, nu, 0.9)) for nu in (0.1, 2.0, 10.5, 40.3)
    },
    "matern 0.45, ard": (
        ks.Matern(nu=0.45, sigma=2.0).ard([3.0, 0.1, 0.7]),
        lambda x, y: matern(divided(x, [3.0, 0.1, 0.7]), divided(y, [3.0, 0.1, 0.7]), 0.45, 2.0),
    ),
    "thin plate, ard": (
        ks.ThinPlate(ANCHORS).ard([1.3, 0.7, 0.9]),
        lambda x, y: thin_plate(
            divided(x, [1.3, 0.7, 0.9]), divided(y, [1.3, 0.7, 0.9]), ANCHORS, lambda r: -r / (8 * mpmath.pi)
        ),
    ),
    "linear, ard": (
        ks.Linear().ard([3.0, 0.1, 0.7]),
        lambda x, y: dot(divided(x, [3.0, 0.1, 0.7]), divided(y, [3.0, 0.1, 0.7])),
    ),
    "mixture, ard": (
        (ks.Gaussian(sigma=1.5) + ks.Polynomial(degree=2)).ard([3.0, 0.1, 0.7]),
        lambda x, y: (
            gauss(divided(x, [3.0, 0.1, 0.7]), divided(y, [3.0, 0.1, 0.7]), 1.5)
            + (1 + dot(divided(x, [3.0, 0.1, 0.7]), divided(y, [3.0, 0.1, 0.7]))) ** 2
        ),
    ),
    "narrow gaussian": (ks.Gaussian(sigma=0.01), lambda x, y: gauss(x, y, 0.01)),
    "rational quadratic, large alpha": (
        ks.RationalQuadratic(sigma=0.7, alpha=1e9),
        lambda x, y: rational(x, y, 0.7, 1e9),
    ),
    "rational quadratic, small alpha": (
        ks.RationalQuadratic(sigma=0.7, alpha=0.01),
        lambda x, y: rational(x, y, 0.7, 0.01),
    ),
    "narrow l2": (ks.GeneralizedGaussian("l2", 1e-6), lambda x, y: mpmath.exp(-apart(x, y) / mpf(1e-6))),
    "centered gaussian": (
        ks.Gaussian(sigma=1.5).centered(CENTERED_ON[:4]),
        lambda x, y: centered_gauss(x, y, [list(map(mpf, map(float, p))) for p in CENTERED_ON[:4]]),
    ),
    "cached gaussian": (ks.Gaussian(sigma=1.5).cached(CENTERED_ON[:6]), lambda x, y: gauss(x, y, 1.5)),
    "normalized, weighted": (
        (ks.Gaussian(sigma=1.5) + ks.Linear()).weighted(lambda X: X[:, 0]).normalized(),
        lambda x, y: normalized(lambda a, b: a[0] * (gauss(a, b, 1.5) + dot(a, b)) * b[0], x, y),
    ),
}


def centered_gauss(x, y, data):
    n = len(data)
    means = [mpmath.fsum(gauss(p, z, 1.5) for z in data) / n for p in (x, y)]
    return gauss(x, y, 1.5) - sum(means) + mpmath.fsum(gauss(p, q, 1.5) for p in data for q in data) / n**2


def normalized(formula, x, y):
    return formula(x, y) / mpmath.sqrt(formula(x, x) * formula(y, y))


def rows_of(X):
    return [[mpf(float(v)) for v in row] for row in X]


def exact_matrix(formula, X):
    points, K = rows_of(X), np.empty((len(X), len(X)), dtype=object)
    for i, x in enumerate(points):
        for j in range(i + 1):
            K[i, j] = K[j, i] = formula(x, points[j])
    return K


def samples(histograms):
    """Data by name, all of three columns; near-coincident points, clusters far apart and units of all kinds."""
    X = RNG.normal(size=(7, 3)) if not histograms else RNG.uniform(0.1, 2.0, size=(7, 3))
    near = np.vstack([X[:4], X[:4] + 1e-9, X[:2]])
    found = {
        "ordinary": X, "offset 1e4": X + 1e4, "offset 1e8": X + 1e8, "columns": X * [1e-6, 1.0, 1e6],
        "near": near, "near, offset": near + 1e4, "clusters": np.vstack([X, X[:3] + 1e6]), "narrow": 0.1 * X,
        "data of a mean": np.abs(CENTERED_ON) if histograms else CENTERED_ON,
        "tiny": 1e-170 * X, "huge": 1e160 * X,
    }  # fmt: skip
    return found | ({"zeros": X * (X > 1.0)} if histograms else {"negative": -X - 3.0})


VALUES = {
    **{name: (FORMULAS[name][0], EXACT.get(name), False) for name in FORMULAS if name != "function on lists"},
    **{name: (HISTOGRAM_FORMULAS[name][0], EXACT.get(name), True) for name in HISTOGRAM_FORMULAS},
    **{name: (*pair, False) for name, pair in MORE.items()},
}


def computed(kernel, X):
    """The kernel matrix by every path: whole, in two arguments, in blocks of some rows, by pairs; and its diagonal."""
    n = len(X)
    half = np.arange(n // 2)
    everything = np.arange(n)
    for i, j in [(everything, everything), (everything, half), (half, everything), (everything[::2], everything[1::2])]:
        yield kernel(X[i], X[j]), i, j
    for i in range(n):
        yield kernel(X[i : i + 1], X[[0, i, n - 1]]), np.array([i]), np.array([0, i, n - 1])
    for i in (everything, half, everything[n // 2 :]):
        yield kernel(X[i]), i, i
    yield np.diag(kernel.diag(X)), None, None


def error(kernel, X, K):
    """max |κ̂ − κ|/√(κ(x, x)κ(z, z)) over all paths; 0 where values overflow, which is reported elsewhere."""
    lengths, worst = [mpmath.sqrt(abs(v)) for v in K.diagonal()], mpf(0)
    for values, rows, columns in computed(kernel, X):
        if not np.isfinite(values).all():
            return 0.0
        pairs = [(i, i) for i in range(len(X))] if rows is None else [(i, j) for i in rows for j in columns]
        got = values.diagonal() if rows is None else values.ravel()
        for value, (i, j) in zip(got, pairs, strict=True):
            off, length = abs(mpf(float(value)) - K[i, j]), lengths[i] * lengths[j]
            worst = max(worst, off / length if length else mpf("inf") if off else mpf(0))
    return float(worst)


def test_every_kernel_is_covered():
    assert set(EXACT) == {*FORMULAS, *HISTOGRAM_FORMULAS}
    families = [k for k in map(ks.__dict__.get, ks.__all__) if isinstance(k, type) and issubclass(k, Kernel)]
    assert [k.__name__ for k in families if k is not Kernel and k._rounding is Kernel._rounding] == []


@pytest.mark.later
@pytest.mark.one_row
@pytest.mark.parametrize("name", VALUES)
@np.errstate(all="ignore")
def test_the_error_is_as_stated(name):
    kernel, formula, histograms = VALUES[name]
    held = 0
    for what, X in samples(histograms).items():
        try:
            bound = kernel.rounding(X)
            with mpmath.workdps(500 if what in ("tiny", "huge") else 60):
                measured = error(kernel, X, exact_matrix(formula, X)) if bound < np.inf else 0.0
        except KernelOptError:  # points that the kernel, or a user's function, does not take
            assert what not in ("ordinary", "near"), what
            continue
        held += bound < np.inf
        assert measured <= bound, (what, measured, bound)
        if what == "ordinary":
            assert kernel.is_psd is False or bound <= (1e-11 if name in EXACT else 1e-10)
            assert "narrow" in name or bound <= 1e4 * max(measured, UNIT)
    assert held >= 3


def test_what_users_give_is_taken_as_computed():
    X = RNG.normal(size=(6, 3))
    Q = X @ X.T
    assert FORMULAS["function on lists"][0].rounding(X) == 0.0
    assert ks.Precomputed(Q).rounding([0, 2, 5]) == 0.0
    assert ks.as_kernel(pytest.importorskip("sklearn.gaussian_process.kernels").RBF(2.0)).rounding(X) == 0.0
    assert 0 < (2.0 * ks.Precomputed(Q)).rounding([0, 2, 5]) < 1e-15


def test_strings():
    words = ["banana", "bandana", "", "an"]
    assert ks.Spectrum(n=2).rounding(words) == 0.0
    assert ks.PositionMatch().rounding(words) == 0.0
    kernel = ks.PositionMatch(power=3)
    matches = [[sum(a == b for a, b in zip(v, w, strict=False)) ** 3 for w in words] for v in words]
    assert np.abs(kernel(words) - matches).max() <= kernel.rounding(words) * 7**3


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.02, 4.0])
def test_many_points_in_tiles(sigma):
    """900 points in 20 columns: three tiles, near the median or, for the narrow kernel, far from it."""
    X = RNG.normal(size=(900, 20))
    X[450:] = X[:450] + RNG.normal(size=(450, 20)) * 0.1 * sigma
    kernel = ks.Gaussian(sigma=sigma)
    i = RNG.integers(0, 900, 300)
    j = np.where(np.arange(300) % 2, (i + 450) % 900, RNG.integers(0, 900, 300))
    exact = [gauss(*rows_of(X[[a, b]]), sigma) for a, b in zip(i, j, strict=True)]
    bound = kernel.rounding(X)
    for values in (kernel(X)[i, j], kernel(X, X)[i, j], kernel(X, X[j])[i, np.arange(300)]):
        assert max(abs(mpf(float(v)) - e) for v, e in zip(values, exact, strict=True)) <= bound
    assert bound < 1e-8 if sigma < 1 else bound < 1e-12


def test_no_bound_where_a_diagonal_is_rounding():
    kernel = ks.Linear().centered([[0.0], [2.0]])
    assert kernel.rounding([[0.0], [1.0]]) == np.inf
    assert ks.Linear().rounding([[1e-200], [1.0]]) == np.inf  # κ(x, x) underflows
    assert (ks.Linear() - ks.Linear()).rounding([[0.1], [1.0]]) == np.inf
    assert ks.Linear().rounding([[0.0], [1.0]]) < 1e-15  # 0 is exact


def test_cosines_of_points_whose_squares_overflow_or_underflow():
    X = np.array([[3.0, 4.0], [1.0, 0.0]])
    for unit in (1e-200, 1e200, 5e-324):
        assert ks.Cosine()(unit * X)[0, 1] == pytest.approx(0.6, rel=1e-15)


# ------------------------------------------------------------ derivatives

ORDERS = [(), (0,), (1,), (0, 1), (1, 1)]
DERIVATIVES = {
    "gaussian": (ks.Gaussian(sigma=0.8), lambda x, y: gauss(x, y, 0.8), 2),
    "linear": (ks.Linear(), dot, 2),
    "polynomial": (ks.Polynomial(degree=3, offset=0.5), lambda x, y: (mpf(0.5) + dot(x, y)) ** 3, 2),
    "series of a linear kernel": (
        ks.PolynomialSeries([1.0, 0.5, 0.0, 0.2]), lambda x, y: series(dot(x, y), [1.0, 0.5, 0.0, 0.2]), 2,
    ),
    "geometric": (
        ks.Geometric().ard([3.0, 7.0]), lambda x, y: 1 / (1 - dot(divided(x, [3, 7]), divided(y, [3, 7]))), 2,
    ),
    "rational quadratic": (ks.RationalQuadratic(sigma=0.8, alpha=1.5), lambda x, y: rational(x, y, 0.8, 1.5), 2),
    "small alpha": (ks.RationalQuadratic(sigma=0.8, alpha=0.1), lambda x, y: rational(x, y, 0.8, 0.1), 2),
    "periodic": (ks.Periodic(period=1.7, sigma=0.9), lambda x, y: periodic(x, y, 1.7, 0.9), 2),
    "narrow periodic": (ks.Periodic(period=1.7, sigma=0.1), lambda x, y: periodic(x, y, 1.7, 0.1), 2),
    "matern 3/2": (ks.Matern(nu=1.5, sigma=0.8), lambda x, y: matern(x, y, 1.5, 0.8), 1),
    "matern 5/2": (ks.Matern(nu=2.5, sigma=0.8), lambda x, y: matern(x, y, 2.5, 0.8), 2),
    "matern 1.3": (ks.Matern(nu=1.3, sigma=0.8), lambda x, y: matern(x, y, 1.3, 0.8), 1),
    "matern 2.3": (ks.Matern(nu=2.3, sigma=0.8), lambda x, y: matern(x, y, 2.3, 0.8), 2),
    "matern 7/2, ard": (
        ks.Matern(nu=3.5, sigma=0.8).ard([1.0, 0.3]),
        lambda x, y: matern(divided(x, [1, 0.3]), divided(y, [1, 0.3]), 3.5, 0.8), 2,
    ),
    "spline": (ks.Spline(3, -60.0, 60.0).on([1]), lambda x, y: spline(x[1] + 60, y[1] + 60, 3, 120), 2),
    "sum": (ks.Gaussian(sigma=1.0) + 0.5 * ks.Linear(), lambda x, y: gauss(x, y, 1.0) + dot(x, y) / 2, 2),
    "product": (
        ks.Gaussian(sigma=1.0) * ks.Polynomial(degree=2) * ks.Linear(),
        lambda x, y: gauss(x, y, 1.0) * (1 + dot(x, y)) ** 2 * dot(x, y), 2,
    ),
    "power": ((ks.Linear() + ks.Constant(1.0)) ** 3, lambda x, y: (1 + dot(x, y)) ** 3, 2),
    "series": (
        ks.Gaussian(sigma=1.0).series([0.5, 1.0, 2.0]), lambda x, y: series(gauss(x, y, 1.0), [0.5, 1.0, 2.0]), 2,
    ),
    "exponential": ((0.3 * ks.Linear()).exp(), lambda x, y: mpmath.exp(mpf(0.3) * dot(x, y)), 2),
    "ard": (
        ks.Gaussian(sigma=1.0).ard([1.0, 0.3]), lambda x, y: gauss(divided(x, [1, 0.3]), divided(y, [1, 0.3]), 1.0), 2,
    ),
    "columns": (
        ks.Gaussian(sigma=1.0).on([1]) + ks.Linear().on([1, 0]), lambda x, y: gauss(x[1:], y[1:], 1.0) + dot(x, y), 2,
    ),
}  # fmt: skip


def exact_derivative(formula, x, dx, y, dy):
    """By central differences of 10⁻⁴⁰ in 260 digits, with errors of about 10⁻⁸⁰; of 10⁻²⁴ for Matérn at x = y."""
    steps = [(0, c) for c in dx] + [(1, c) for c in dy]
    with mpmath.workdps(260):
        h, total = mpf(10) ** -40, mpf(0)
        for signs in np.ndindex(*([2] * len(steps))):
            points = [list(x), list(y)]
            for (side, column), sign in zip(steps, signs, strict=True):
                points[side][column] += h * (1 - 2 * sign)
            total += (-1) ** sum(signs) * formula(*points)
        return total / (2 * h) ** len(steps)


@pytest.mark.slow
@pytest.mark.one_row
@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives(name):
    kernel, formula, smoothness = DERIVATIVES[name]
    orders = [order for order in ORDERS if len(order) <= smoothness]
    X = RNG.uniform(-1, 1, size=(3, 2))
    for offset in (0.0, 50.0) if kernel.is_stationary else (0.0,):
        P = np.vstack([X, X[:1] + 1e-8]) + offset
        jets = [(row, order) for row in range(len(P)) for order in orders]
        rows = np.vstack([with_order(P[i : i + 1], order) for i, order in jets])
        lift, exact = lifted(kernel), np.empty((len(jets), len(jets)), dtype=object)
        points = rows_of(P)
        for a, (i, dx) in enumerate(jets):
            for b, (j, dy) in enumerate(jets[: a + 1]):
                exact[a, b] = exact[b, a] = exact_derivative(formula, points[i], dx, points[j], dy)
        Q, bound = Rows.of_points(lift, rows).gram(), Rows.of_points(lift, rows).rounding()
        lengths = [mpmath.sqrt(abs(v)) for v in exact.diagonal()]
        worst = 0.0
        for a in range(len(jets)):
            for b in range(len(jets)):
                off, length = abs(mpf(float(Q[a, b])) - exact[a, b]), lengths[a] * lengths[b]
                worst = max(worst, float(off / length) if length > 1e-15 else float(off > 1e-18) * np.inf if off else 0)
        assert worst <= bound, (offset, worst, bound)
        assert bound <= 1e-10 or name == "narrow periodic"
        assert bound <= 1e6 * max(worst, UNIT)


def slope_of_matern(nu, k, rho):
    """g⁽ᵏ⁾ with κ = g(ρ), by (1/s·d/ds)ᵏ sᵛK_ν(s) = (−1)ᵏs^{ν−k}K_{ν−k}(s)."""
    nu = mpf(nu)
    if rho == 0:
        return (-1) ** k * mpmath.fprod(nu / (nu - i) for i in range(1, k + 1))
    s = mpmath.sqrt(4 * nu * rho)
    return (-2 * nu) ** k * 2 ** (1 - nu) / mpmath.gamma(nu) * s ** (nu - k) * mpmath.besselk(abs(nu - k), s)


@pytest.mark.later
@pytest.mark.one_row
@pytest.mark.parametrize("nu", [2.05, 1.03, 1.5, 1.77, 2.5, 3.3, 9.5, 30.1])
def test_derivatives_of_matern_kernels_at_all_distances(nu):
    """In one column, where dⁿg(t²/2)/dtⁿ = Σⱼ n!/(j!(n − 2j)!2ʲ)·tⁿ⁻²ʲg⁽ⁿ⁻ʲ⁾."""
    kernel, x = ks.Matern(nu, 0.7), np.concatenate([[0.3], 0.3 + 10.0 ** np.arange(-15, 2, 2.0)])
    points = x[:, None]

    def exact(x, z, a, b):
        t, n = (mpf(float(x)) - mpf(float(z))) / mpf(0.7), a + b
        factorial = mpmath.factorial
        terms = [
            factorial(n) / (factorial(j) * factorial(n - 2 * j) * 2**j)
            * t ** (n - 2 * j) * slope_of_matern(nu, n - j, t * t / 2)
            for j in range(n // 2 + 1) if t or 2 * j == n
        ]  # fmt: skip
        return (-1) ** b * mpmath.fsum(terms) / mpf(0.7) ** n

    orders = range(kernel._smoothness + 1)
    bound = kernel._rounding(Inexact(points, order=kernel._smoothness))
    lengths = [mpmath.sqrt(exact(0.0, 0.0, a, a)) for a in orders]
    assert bound < 1e-11
    for a in orders:
        for b in orders:
            K = derivative(kernel, points, (0,) * a, points, (0,) * b)
            for i, j in np.ndindex(K.shape):
                assert abs(mpf(float(K[i, j])) - exact(x[i], x[j], a, b)) <= bound * lengths[a] * lengths[b]


# ------------------------------------------------------------ rows and passes over the kernel


def exact_gram(formula, rows):
    """Q of points and functions, from exact values."""
    every = np.concatenate([rows.points, rows.centers])
    n, m = len(rows.points), len(rows.centers)
    C = np.zeros((n + m, len(rows)), dtype=object)
    C[:n, :n] = np.diag([mpf(1)] * n)
    C[n:, n:] = np.array([[mpf(float(c)) for c in row] for row in rows.combinations], dtype=object).reshape(m, -1)
    return C.T @ exact_matrix(formula, every) @ C


def off(got, exact):
    return np.array(np.abs(np.vectorize(lambda v: mpf(float(v)), otypes=[object])(got) - exact), dtype=float)


@pytest.mark.parametrize("name", ["gaussian", "polynomial", "mixture", "intersection"])
@pytest.mark.parametrize("support", ["all", "few"])
def test_rows_and_functions(name, support):
    kernel, formula, histograms = VALUES[name]
    X = RNG.uniform(0.1, 2.0, size=(14, 3)) if histograms else RNG.normal(size=(14, 3))
    near = np.vstack([X[10:12], X[10:12] + 1e-6])  # a difference of which little is left
    functions = [Function(kernel, near, np.array([1.0, 0.3, -1.0, -0.3])), Function(kernel, X[:2], np.ones((2, 2)))]
    rows = Rows.of_points(kernel, kernel.rows(X[:10])).with_functions(functions)
    Q = exact_gram(formula, rows)
    lengths = rows.lengths()
    assert all(length >= mpmath.sqrt(v) for length, v in zip(lengths, Q.diagonal(), strict=True))
    for values in (rows.gram(), rows.block(np.arange(13), np.arange(13))):
        assert float(max((off(values, Q) / np.outer(lengths, lengths)).ravel())) <= rows.rounding()
    assert off(rows.diagonal(), Q.diagonal()).max() <= rows.rounding() * float(max(lengths)) ** 2
    V = RNG.normal(size=(13, 2)) * 10.0 ** RNG.integers(-3, 3, size=(13, 1))
    if support == "few":
        V[np.array([0, 1, 3, 4, 5, 6, 7, 9, 10])] = 0.0
    W = np.vectorize(lambda v: mpf(float(v)), otypes=[object])(V)
    for got, exact, bound in (
        (rows.quadratic(V), W.T @ Q @ W, rows.quadratic_error(V)),
        (rows.quadratic(V, block=4), W.T @ Q @ W, rows.quadratic_error(V)),
        (rows.product(V), Q @ W, rows.product_error(V)),
        (rows.product(V, block=4), Q @ W, rows.product_error(V)),
    ):
        assert (off(got, exact) <= bound).all()
        assert (bound <= 1e-8 * np.abs(got).max()).all()


@pytest.mark.later
@pytest.mark.parametrize("way", ["here", "blocks", "held", "held, few"])
def test_passes_over_many_rows(way):
    """2500 rows of a linear kernel, whose sums are exact in integers: VᵀQV = (XᵀV)ᵀ(XᵀV) in units of 2⁻⁴⁰."""
    P, U = (RNG.integers(-(2**20), 2**20, size=(2500, k)) for k in (3, 2))
    if way == "held, few":
        U[np.arange(2500) % 5 > 0] = 0
    X, V = P / 2.0**20, U / 2.0**20
    rows = Rows.of_points(ks.Linear(), ks.Linear().rows(X))
    factor = blocked_cholesky(rows, Settings(1e-8, 3), None, Layout(Here(), 1100)) if way == "blocks" else None
    Y = P.astype(object).T @ U.astype(object)
    quadratic, product = Y.T @ Y, P.astype(object) @ Y
    with rows.held() if way.startswith("held") else nullcontext():
        found = (
            (rows.quadratic(V), quadratic, rows.quadratic_error(V))
            if factor is None
            else (factor.quadratic(rows, V), quadratic, factor.quadratic_error(rows, V)),
            (rows.product(V), product, rows.product_error(V))
            if factor is None
            else (factor.product(rows, V), product, factor.product_error(rows, V)),
        )
    assert not rows._Q
    for got, exact, bound in found:
        unit = mpf(2) ** (-80 if exact is quadratic else -60)
        values = np.vectorize(lambda v, unit=unit: mpf(int(v)) * unit, otypes=[object])(exact)
        assert (off(got, values) <= bound).all()
        assert bound.max() <= 1e-12 * float(np.abs(X).sum(axis=1) @ np.abs(V).sum(axis=1)) ** 2


def test_rows_that_are_zero_cost_nothing():
    kernel = ks.Linear()
    rows = Rows.of_points(kernel, kernel.rows(np.array([[0.0], [1.0]])))
    assert (rows.quadratic_error(np.array([[1.0], [0.0]])) == 0).all()
    unknown = Rows.of_points(kernel, kernel.rows(np.array([[1e-200], [1.0]])))
    assert unknown.rounding() == np.inf
