"""Gradients of kernels with respect to their parameters."""

from dataclasses import dataclass
from fractions import Fraction
from math import isnan
from typing import ClassVar

import cvxpy as cp
import mpmath
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.errors import KernelError, ParameterError
from kernelopt.kernels import stationary
from kernelopt.kernels.adjoints import kernel_gradient
from kernelopt.kernels.derivatives import lifted, with_order
from kernelopt.kernels.kernel import Adjoint, RealField, Verdict
from kernelopt.testing import check_kernel

ks = ko.kernels
RNG = np.random.default_rng(5)
X, Z = RNG.uniform(0.1, 2, size=(9, 3)), RNG.uniform(0.1, 2, size=(6, 3))
Z[:3] = X[:3]  # equal points
L, R = RNG.normal(size=(9, 2)), RNG.normal(size=(6, 2))
S = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 3.0]])
SCALES = np.array([0.7, 1.5, 3.0])


def par(value, **sign):
    value = np.asarray(value, dtype=float)
    return cp.Parameter(value.shape, value=value, **(sign or {"pos": True}))


def cube(X):
    return X**3


def ard(kernel):
    return lambda: kernel.ard(par(SCALES))


KERNELS = {
    "gaussian": lambda: ks.Gaussian(par(1.3)),
    "laplacian": lambda: ks.Laplacian(par(1.3)),
    "matern 1/2": lambda: ks.Matern(0.5, par(1.3)),
    "matern 3/2": lambda: ks.Matern(1.5, par(1.3)),
    "matern 5/2": lambda: ks.Matern(2.5, par(1.3)),
    "rational quadratic": lambda: ks.RationalQuadratic(par(1.3), par(0.8)),
    "rational quadratic, large alpha": lambda: ks.RationalQuadratic(par(1.3), par(90.0)),
    "periodic": lambda: ks.Periodic(par(2.5), par(1.2)),
    "constant": lambda: ks.Constant(par(0.4)),
    "polynomial": lambda: ks.Polynomial(3, par(0.7), par(0.4)),
    "polynomial of degree 1": lambda: ks.Polynomial(1, par(0.7), par(0.4)),
    "polynomial series": lambda: ks.PolynomialSeries(par([0.5, 0.0, 0.3], nonneg=True)),
    "series of one coefficient": lambda: ks.PolynomialSeries(par([0.5])),
    "sigmoid": lambda: ks.Sigmoid(par(0.3), par(-0.2, name="offset")),
    "generalized l1": lambda: ks.GeneralizedGaussian("l1", par(1.7)),
    "generalized l2": lambda: ks.GeneralizedGaussian("l2", par(1.7)),
    "generalized linf": lambda: ks.GeneralizedGaussian("linf", par(1.7)),
    "chi2": lambda: ks.GeneralizedGaussian("chi2", par(1.7)),
    "hellinger": lambda: ks.GeneralizedGaussian("hellinger", par(0.4)),
    "mahalanobis": lambda: ks.GeneralizedGaussian("mahalanobis", par(1.7), S),
    "callable distance": lambda: ks.GeneralizedGaussian(lambda X, Z: np.abs(X[:, None] - Z).sum(axis=2), par(1.7)),
    "scaled": lambda: ks.Gaussian(par(2.0)) * par(0.4),
    "sum": lambda: ks.Gaussian(par(2.0)) + ks.Linear() + ks.Laplacian(par(1.1)) * par(0.3),
    "product": lambda: ks.Gaussian(par(2.0)) * ks.Linear() * ks.Laplacian(par(1.1)),
    "product of one that varies": lambda: ks.Gaussian(par(2.0)) * ks.Delta(),
    "difference": lambda: ks.Gaussian(par(2.0)) - ks.Laplacian(par(0.6)) * par(0.1),
    "power": lambda: (ks.Gaussian(par(2.0)) + ks.Constant(par(0.3))) ** 3,
    "series": lambda: ks.Gaussian(par(2.0)).series(par([0.2, 0.5, 0.9])),
    "exponential": lambda: (ks.Linear() * par(0.3)).exp(),
    "weighted": lambda: ks.Gaussian(par(1.0)).weighted(lambda X: 1 + X[:, 0]),
    "composed": lambda: ks.Gaussian(par(1.0)).compose(cube),
    "columns": lambda: ks.Gaussian(par(1.0)).on([2, 0]),
    "normalized": lambda: ks.Polynomial(2, par(0.7), par(0.4)).normalized(),
    "centered": lambda: (ks.Gaussian(par(1.0)) * par(2.0)).centered(X + 0.1),
    "cached": lambda: (ks.Gaussian(par(1.0)) * par(2.0)).cached(X),
    "times a given matrix's part": lambda: ks.FromFunction(lambda a, b: float(a @ b), psd=True) * par(2.0),
    "ard gaussian": ard(ks.Gaussian(1.1)),
    "ard laplacian": ard(ks.Laplacian(1.1)),
    "matern 0.3": lambda: ks.Matern(0.3, par(1.3)),
    "matern 1.7": lambda: ks.Matern(1.7, par(1.3)),
    "ard matern 0.7": ard(ks.Matern(0.7, 1.1)),
    "ard matern 3.2": ard(ks.Matern(3.2, 1.1)),
    "ard matern 1/2": ard(ks.Matern(0.5, 1.1)),
    "ard matern 3/2": ard(ks.Matern(1.5, 1.1)),
    "ard matern 5/2": ard(ks.Matern(2.5, 1.1)),
    "ard rational quadratic": ard(ks.RationalQuadratic(1.1, 0.8)),
    "ard periodic": ard(ks.Periodic(2.0)),
    "ard linear": ard(ks.Linear()),
    "ard cosine": ard(ks.Cosine()),
    "ard constant and delta": ard(ks.Linear() + ks.Constant(2.0) * ks.Delta()),
    "ard polynomial": ard(ks.Polynomial(2)),
    "ard series": ard(ks.PolynomialSeries([1.0, 0.3, 0.2])),
    "ard geometric": lambda: ks.Geometric().ard(par([5.0, 6.0, 7.0])),
    "ard sigmoid": ard(ks.Sigmoid(0.2, -0.1)),
    "ard l1": ard(ks.GeneralizedGaussian("l1", 3.0)),
    "ard l2": ard(ks.GeneralizedGaussian("l2", 3.0)),
    "ard chi2": ard(ks.GeneralizedGaussian("chi2", 3.0)),
    "ard hellinger": ard(ks.GeneralizedGaussian("hellinger", 3.0)),
    "ard mahalanobis": ard(ks.GeneralizedGaussian("mahalanobis", 3.0, S)),
    "ard intersection": ard(ks.Intersection()),
    "ard additive chi2": ard(ks.AdditiveChiSquared()),
    "ard columns": ard(ks.Gaussian(1.0).on([2, 0, 2])),
    "ard ard": lambda: ks.Gaussian(par(1.0)).ard(par([2.0, 1.0, 0.5])).ard(par(SCALES)),
    "ard normalized": ard(ks.Polynomial(2).normalized()),
    "ard centered": ard(ks.Gaussian(1.0).centered(X + 0.1)),
    "ard cached": ard(ks.Gaussian(1.0).cached(X)),
    "ard algebra": ard(
        (ks.Gaussian(1.0) * ks.Linear() - 0.3 * ks.Laplacian(1.0)) ** 2 + (0.1 * ks.Linear()).series([1.0, 0.5]).exp()
    ),
    "on columns ard": lambda: ks.Matern(1.5, par(1.0)).ard(par([2.0, 0.5])).on([2, 0]),
    "three deep": lambda: (
        ((ks.Gaussian(par(1.5)) + ks.Constant(par(0.1))) ** 2).normalized()
        * (ks.Matern(1.5, par(2.0)).ard(par(SCALES)) * par(0.7)).centered(Z)
    ),
    "deep centered": lambda: ((ks.Polynomial(2, par(0.3)).centered(X).normalized() * par(0.2)).exp()).centered(Z),
}


def difference(kernel, parameter, entry, G, points=(X, Z)):
    """∂/∂p ΣG∘K by central differences of order 6, and a bound on its rounding error."""
    value, h = np.array(parameter.value, dtype=float), 4e-3 * float(parameter.value[entry])
    steps, weights = (1, 2, 3), (45, -9, 1)
    sums, size = 0.0, 0.0
    for step, weight in zip(steps, weights, strict=True):
        for sign in (1, -1):
            moved = value.copy()
            moved[entry] += sign * step * h
            parameter.value = moved
            terms = G * kernel(*points)
            sums += sign * weight * np.sum(terms) / (60 * h)
            size = max(size, np.abs(terms).sum() / h)
    parameter.value = value
    return sums, 3e-15 * size


@pytest.mark.parametrize("name", KERNELS)
def test_by_differences(name):
    kernel = KERNELS[name]()
    found = kernel_gradient(kernel, X, Z, L, R)
    assert [id(p) for p in found] == [id(p) for p in kernel.parameters()]
    assert found
    for p, gradient in found.items():
        assert isinstance(gradient, np.ndarray)
        assert gradient.shape == p.shape
        for entry in np.ndindex(p.shape):
            if p.value[entry] == 0:
                continue  # an entry of a series, in which values are linear: below
            known, error = difference(kernel, p, entry, L @ R.T)
            assert abs(gradient[entry] - known) <= 1e-7 * abs(known) + error


@pytest.mark.parametrize("name", KERNELS)
def test_blocks(name):
    kernel = KERNELS[name]()
    whole, parts = (kernel_gradient(kernel, X, Z, L, R, block=block) for block in (1024, 4))
    for p in whole:
        np.testing.assert_allclose(parts[p], whole[p], rtol=1e-11, atol=1e-13)


@pytest.mark.one_row
@pytest.mark.parametrize("name", KERNELS)
def test_the_check_of_kernels_passes(name):
    check_kernel(KERNELS[name](), X, Z)


def test_a_coefficient_that_is_zero():
    c = par([0.5, 0.0, 0.3], nonneg=True)
    gradient = kernel_gradient(ks.PolynomialSeries(c), X, Z, L, R)[c]
    np.testing.assert_allclose(gradient, [np.sum((L @ R.T) * (X @ Z.T) ** n) for n in range(3)], rtol=1e-13)


def test_a_parameter_in_several_places():
    p, one, two, three = (par(1.4) for _ in range(4))
    gradient = kernel_gradient(ks.Gaussian(p) + ks.Periodic(p, p) * p, X, Z, L, R)
    apart = kernel_gradient(ks.Gaussian(one) + ks.Periodic(two, three) * (four := par(1.4)), X, Z, L, R)
    assert len(gradient) == 1
    assert gradient[p] == pytest.approx(sum(apart[q] for q in (one, two, three, four)), rel=1e-13)


def test_without_parameters():
    assert kernel_gradient(ks.Gaussian(1.0), X, Z, L, R) == {}
    with pytest.raises(ParameterError):
        kernel_gradient(ks.Gaussian(cp.Parameter(pos=True)), X, Z, L, R)


@pytest.mark.slow
@pytest.mark.parametrize("make", [ks.Gaussian, lambda s: ks.Matern(1.5, s), ks.RationalQuadratic, ks.Laplacian])
def test_fifty_length_scales(make):
    P, Q = RNG.normal(size=(20, 50)), RNG.normal(size=(15, 50))
    left, right = RNG.normal(size=(20, 1)), RNG.normal(size=(15, 1))
    scales = par(RNG.uniform(3, 9, size=50))
    kernel = make(2.0).ard(scales)
    gradient = kernel_gradient(kernel, P, Q, left, right)[scales]
    for entry in np.ndindex(50):
        known, error = difference(kernel, scales, entry, left @ right.T, (P, Q))
        assert abs(gradient[entry] - known) <= 1e-7 * abs(known) + error


def test_fifty_length_scales_take_one_evaluation(monkeypatch):
    P, scales, seen = RNG.normal(size=(20, 50)), par(np.full(50, 5.0)), []
    plain = stationary.half_squared_distances
    monkeypatch.setattr(stationary, "half_squared_distances", lambda *a: seen.append(1) or plain(*a))
    kernel_gradient(ks.Gaussian(1.0).ard(scales), P, P, P[:, :1], P[:, :1])
    assert len(seen) == 1


def exact_ard(slope, P, Q, G, scales):
    """∂/∂ℓₐ ΣG∘g(s²), s² = Σ((x − z)/ℓ)², in 60 digits: −2Σ G g′(s²)(x − z)²ₐ/ℓₐ³, with g′ as given."""
    with mpmath.workdps(60):
        total = [mpmath.mpf(0)] * len(scales)
        for i, x in enumerate(P):
            for j, z in enumerate(Q):
                d = [mpmath.mpf(float(a)) - mpmath.mpf(float(b)) for a, b in zip(x, z, strict=True)]
                s2 = mpmath.fsum((di / mpmath.mpf(float(s))) ** 2 for di, s in zip(d, scales, strict=True))
                if s2 == 0:
                    continue
                for a, s in enumerate(scales):
                    total[a] -= 2 * mpmath.mpf(float(G[i, j])) * slope(s2) * d[a] ** 2 / mpmath.mpf(float(s)) ** 3
        return np.array([float(t) for t in total])


# g′ for κ = g(s²) with σ = 1.
SLOPES = {
    "gaussian": (ks.Gaussian(1.0), lambda s2: -mpmath.exp(-s2 / 2) / 2),
    "matern 1/2": (ks.Matern(0.5, 1.0), lambda s2: -mpmath.exp(-mpmath.sqrt(s2)) / (2 * mpmath.sqrt(s2))),
    "matern 0.8": (
        ks.Matern(0.8, 1.0),
        lambda s2: (
            -(mpmath.mpf(1.6) ** mpmath.mpf(0.9))
            * 2 ** mpmath.mpf(-0.8)
            / mpmath.gamma(0.8)
            * s2 ** mpmath.mpf(-0.1)
            * mpmath.besselk(mpmath.mpf(0.2), mpmath.sqrt(mpmath.mpf(1.6) * s2))
        ),
    ),
    "matern 3/2": (ks.Matern(1.5, 1.0), lambda s2: -mpmath.mpf(3) / 2 * mpmath.exp(-mpmath.sqrt(3 * s2))),
    "rational quadratic": (ks.RationalQuadratic(1.0, 0.5), lambda s2: -((1 + s2) ** mpmath.mpf(-1.5)) / 2),
}
CLOSE = np.repeat(X[:4], 2, axis=0) + np.tile([[0.0], [1e-9]], (4, 1))  # pairs 1e-9 apart
POINTS = {
    "close": (CLOSE, CLOSE),
    "only close": (CLOSE[:2], CLOSE[:2]),
    "equal": (X, X),
    "a common offset": (X + 1e6, Z + 1e6),
    "outliers": (np.vstack([X, [[1e9, 0.0, 1.0], [1e9, 1.0, 1.0]]]), np.vstack([Z, [[1e9, 0.5, 0.5]]])),
    "two clusters": (np.vstack([X, X + 1e7]), np.vstack([Z, Z + 1e7])),
}


@pytest.mark.parametrize("where", POINTS)
@pytest.mark.parametrize("name", SLOPES)
def test_points_for_which_differences_cancel(name, where):
    (kernel, slope), (P, Q) = SLOPES[name], POINTS[where]
    left, right = RNG.uniform(0.5, 1, size=(len(P), 1)), RNG.uniform(0.5, 1, size=(len(Q), 1))
    scales = par(SCALES)
    gradient = kernel_gradient(kernel.ard(scales), P, Q, left, right)[scales]
    # Weights are positive, so that the sum is as large as its terms. Subtracting 1e6 rounds distances by 1e-10.
    np.testing.assert_allclose(gradient, exact_ard(slope, P, Q, left @ right.T, SCALES), rtol=1e-7, atol=1e-15)


@pytest.mark.parametrize("alpha", [1e-2, 1.0, 1e3, 1e8])
def test_the_shape_of_a_rational_quadratic_kernel(alpha):
    p, d2 = par(alpha), np.sum((X[:, None] - Z) ** 2, axis=2) / 2
    one = np.ones((9, 1)), np.ones((6, 1))
    with mpmath.workdps(60):
        a, total = mpmath.mpf(alpha), mpmath.mpf(0)
        for rho in d2.ravel():
            t = mpmath.mpf(float(rho)) / a
            total += (1 + t) ** -a * (t / (1 + t) - mpmath.log1p(t))
    assert kernel_gradient(ks.RationalQuadratic(1.0, p), X, Z, *one)[p] == pytest.approx(float(total), rel=1e-12)


def test_a_sigmoid_that_is_saturated():
    """1 − tanh² keeps its digits: 4e^{−2t} for large t."""
    one, p = np.ones((1, 1)), par(25.0, name="offset")
    found = kernel_gradient(ks.Sigmoid(1.0, p), 0 * one, one, one, one)[p]
    assert found == pytest.approx(4 * np.exp(-50.0), rel=1e-13)


def test_a_sigmoid_of_fractions():
    found = ks.Sigmoid(Fraction(1, 2), Fraction(1, 4))(X, Z)
    np.testing.assert_array_equal(found, ks.Sigmoid(0.5, 0.25)(X, Z))


@pytest.mark.parametrize("name", ["gaussian", "laplacian", "matern 1/2", "matern 5/2", "rational quadratic"])
def test_distances_that_overflow(name):
    kernel = KERNELS[name]()
    for gradient in kernel_gradient(kernel, 1e200 * X, Z, L, R).values():
        assert not isnan(float(gradient))


def test_repeated_points_of_a_periodic_kernel_many_periods_away():
    period = par(2.0)
    near, far = (kernel_gradient(ks.Periodic(period), X + s, Z + s, L, R)[period] for s in (0.0, 2.0**20))
    assert far == pytest.approx(near, rel=1e-8)


def test_kernels_without_a_rule():
    scales = par(SCALES)
    for kernel in (
        ks.FromFunction(lambda a, b: float(a @ b), psd=True),
        ks.Explicit(cube),
        ks.Gaussian(1.0).weighted(lambda X: X[:, 0]),
        ks.Gaussian(1.0).compose(cube),
        ks.GeneralizedGaussian("linf"),
        ks.GeneralizedGaussian(lambda X, Z: np.abs(X[:, None] - Z).sum(axis=2)),
    ):
        with pytest.raises(KernelError, match="rule for gradients") as error:
            kernel_gradient(ARD_OF(kernel, scales), X, Z, L, R)
        assert type(kernel).__name__ in str(error.value) or "weighted" in str(error.value) or "compose" in repr(kernel)


def ARD_OF(kernel, scales):
    return kernel.ard(scales)


def test_derivatives_of_theta():
    sigma = par(1.3)
    kernel, value = lifted(ks.Gaussian(sigma)), with_order(X, ())
    plain = kernel_gradient(ks.Gaussian(sigma), X, X, L, L)[sigma]
    assert kernel_gradient(kernel, value, value, L, L)[sigma] == pytest.approx(plain, rel=1e-14)
    with pytest.raises(KernelError, match="derivatives of θ"):
        kernel_gradient(kernel, with_order(X, (1,)), value, L, L)


@dataclass(frozen=True)
class Own(ks.Kernel):
    """c·xᵀz, a user's kernel with a rule, whose factors are 1 where it is right."""

    factor: float = 2.0
    by_factor: float = 1.0
    by_x: float = 1.0
    by_z: float = 1.0
    flat: bool = False
    _reals: ClassVar = {"factor": RealField()}

    def _verdict(self):
        return Verdict(True, "F(x) = √c·x")

    def _matrix(self, X, Z):
        return self.factor * (X @ (X if Z is None else Z).T)

    def _diagonal(self, X):
        return self.factor * np.sum(X**2, axis=1)

    def _adjoint(self, X, Z, G, wanted, points):
        fields = {"factor": self.by_factor * np.sum(G * (X @ Z.T))} if wanted else {}
        if self.flat:
            return Adjoint({"factor": np.ones(2)})
        if not points:
            return Adjoint(fields)
        return Adjoint(fields, self.by_x * self.factor * G @ Z, self.by_z * self.factor * G.T @ X)


def test_rules_of_users():
    p, scales = par(2.0), par(SCALES)
    kernel = Own(p).ard(scales)
    expected = kernel_gradient((ks.Linear() * p).ard(scales), X, Z, L, R)
    for q, gradient in kernel_gradient(kernel, X, Z, L, R).items():
        np.testing.assert_allclose(gradient, expected[q], rtol=1e-12)
    check_kernel(Own(), X, Z)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"by_factor": 1.001}, "gradient to factor to be that of its values"),
        ({"by_x": 1.001}, r"gradient to entry \(0, 0\) of the points"),
        ({"by_z": -1.0}, r"gradient to entry \(0, 0\) of the points"),
        ({"flat": True}, r"gradient to factor of shape \(\)"),
    ],
)
def test_wrong_rules_are_found(wrong, words):
    with pytest.raises(KernelError, match=words):
        check_kernel(Own(**wrong), X, Z)
    with pytest.raises(KernelError, match="gradient to"):
        check_kernel(Own(**wrong) + ks.Linear(), X, Z)


@dataclass(frozen=True)
class Plain(ks.Kernel):
    """c, a user's kernel without a rule."""

    value: float = 1.0
    _reals: ClassVar = {"value": RealField()}

    def _verdict(self):
        return Verdict(True, "F(x) = √c")

    def _matrix(self, X, Z):
        return np.full((len(X), len(X if Z is None else Z)), self.value)

    def _diagonal(self, X):
        return np.full(len(X), self.value)


def test_users_kernels_without_a_rule():
    check_kernel(Plain(2.0) * ks.Gaussian(1.0), X, Z)
    with pytest.raises(KernelError, match=r"no rule.*parameters.*Plain._adjoint"):
        kernel_gradient(Plain(par(2.0)), X, Z, L, R)
    p = par(2.0)
    assert kernel_gradient(Plain(3.0) * p, X, Z, L, R)[p] == pytest.approx(3 * np.sum(L @ R.T))


def test_strings():
    p = par(2.0)
    rows = ks.Spectrum(2).rows(["banana", "bandana"])
    K = ks.Spectrum(2)(["banana", "bandana"])
    assert kernel_gradient(ks.Spectrum(2) * p, rows, rows, np.eye(2), K)[p] == np.sum(K**2)
