"""Kernels with cvxpy parameters in place of numbers."""

import copy
import pickle
from dataclasses import dataclass
from typing import ClassVar

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.errors import DataError, KernelError, ParameterError
from kernelopt.kernels.derivatives import lifted, with_order
from kernelopt.kernels.kernel import RealField, Verdict, require_positive
from kernelopt.kernels.parametrized import Parametrized

ks = ko.kernels
RNG = np.random.default_rng(3)
X, Z = RNG.uniform(0.1, 2, size=(7, 3)), RNG.uniform(0.1, 2, size=(4, 3))


def pos(value=None, name="p"):
    shape = () if value is None else np.shape(value)
    return cp.Parameter(shape, pos=True, value=np.array(value) if shape else value, name=name)


def cube(X):
    return X**3


@dataclass(frozen=True)
class Tent(ks.Kernel):
    """min(x, z)/width, a user's kernel."""

    width: float = 1.0
    _reals: ClassVar = {"width": RealField()}

    def __post_init__(self):
        require_positive(self, "width")

    def _verdict(self):
        return Verdict(True, "min")

    def _matrix(self, X, Z):
        return np.minimum(X[:, :1], (X if Z is None else Z)[:, 0]) / self.width

    def _diagonal(self, X):
        return X[:, 0] / self.width


# A class of kernels or an operation, with the names and values of the real fields.
FIELDS = {
    "gaussian": (lambda s: ks.Gaussian(sigma=s), [1.5]),
    "laplacian": (ks.Laplacian, [0.8]),
    "matern 1/2": (lambda s: ks.Matern(0.5, s), [1.2]),
    "matern 3/2": (lambda s: ks.Matern(nu=1.5, sigma=s), [1.2]),
    "matern 5/2": (lambda s: ks.Matern(2.5, sigma=s), [1.2]),
    "rational quadratic": (ks.RationalQuadratic, [1.2, 0.7]),
    "periodic": (ks.Periodic, [1.7, 0.9]),
    "constant": (ks.Constant, [0.4]),
    "polynomial": (lambda a, b: ks.Polynomial(3, offset=a, scale=b), [0.5, 0.7]),
    "polynomial from gamma": (lambda a, b: ks.Polynomial.from_gamma(2, gamma=b, coef0=a), [0.5, 0.7]),
    "polynomial series": (ks.PolynomialSeries, [(1.0, 0.0, 0.3)]),
    "sigmoid": (ks.Sigmoid, [0.3, 0.1]),
    "generalized": (lambda b: ks.GeneralizedGaussian("chi2", beta=b), [0.6]),
    "mahalanobis": (lambda b: ks.GeneralizedGaussian("mahalanobis", b, np.diag([1.0, 2.0, 3.0])), [0.6]),
    "scaled": (lambda c: ks.Linear() * c, [0.3]),
    "series": (lambda c: ks.Gaussian(1.0).series(c), [(0.5, 0.2, 1.0)]),
    "ard": (lambda s: ks.Gaussian(1.0).ard(s), [(1.0, 2.0, 0.5)]),
    "ard of a parameter": (lambda a, s: ks.Gaussian(a).ard(s), [1.3, (1.0, 2.0, 0.5)]),
    "sum": (lambda a, c: ks.Gaussian(a) + ks.Linear() * c, [1.3, 0.2]),
    "product": (lambda a, c: ks.Gaussian(a) * (ks.Linear() * c), [1.3, 0.2]),
    "difference": (lambda a, c: ks.Gaussian(a) - ks.Linear() * c, [1.3, 0.2]),
    "power": (lambda a: ks.Polynomial(1, a) ** 2, [1.3]),
    "exponential": (lambda a: (ks.Linear() * a).exp(), [0.3]),
    "weighted": (lambda a: ks.Gaussian(a).weighted(lambda X: X[:, 0]), [1.3]),
    "composed": (lambda a: ks.Gaussian(a).compose(cube), [1.3]),
    "columns": (lambda a: ks.Gaussian(a).on([2, 0]), [1.3]),
    "normalized": (lambda a: ks.Polynomial(2, a).normalized(), [1.3]),
    "centered": (lambda a: ks.Gaussian(a).centered(X), [1.3]),
    "cached": (lambda a: ks.Gaussian(a).cached(X), [1.3]),
    "a user's": (Tent, [1.3]),
    "three deep": (
        lambda a, c, s: ((ks.Gaussian(a).ard(s) + ks.Linear() * c) * ks.Laplacian(a)).normalized().exp(),
        [1.3, 0.2, (1.0, 2.0, 0.5)],
    ),
}


def both(name):
    """The kernel with parameters and the one with numbers."""
    make, values = FIELDS[name]
    parameters = [pos(value, f"p{i}") for i, value in enumerate(values)]
    if name == "polynomial series":  # a coefficient is 0
        parameters = [cp.Parameter(3, nonneg=True, value=np.array(values[0]), name="p0")]
    return make(*parameters), make(*values), parameters


@pytest.mark.parametrize("name", FIELDS)
def test_values_are_those_of_numbers(name):
    kernel, numeric, parameters = both(name)
    assert kernel != numeric
    assert {id(p) for p in kernel.parameters()} == {id(p) for p in parameters}
    assert repr(kernel.at_present()) == repr(numeric)
    assert type(kernel.at_present()) is type(numeric) and not kernel.at_present().parameters()
    assert numeric.at_present() is numeric
    for ask in (
        lambda k: k(X), lambda k: k(X, Z), lambda k: k.diag(X), lambda k: k.rounding(X), lambda k: k._n_features(X),
        lambda k: k.is_psd, lambda k: k.is_stationary, lambda k: k.is_isotropic, lambda k: k.precision,
        lambda k: k._smoothness, lambda k: k._size(X), lambda k: k.domain == numeric.domain,
        lambda k: k._check_points(X), lambda k: k._modulus((), 0.1), lambda k: len(k.declarations()),
        lambda k: k(X, X[:2]), lambda k: len(k.parts), lambda k: list(k.get_params()),
    ):  # fmt: skip
        np.testing.assert_array_equal(ask(kernel), ask(numeric))
    if np.isfinite(numeric._n_features(X)):
        np.testing.assert_array_equal(kernel.features(X), numeric.features(X))
    if numeric._smoothness:
        rows = with_order(X, (0,))
        np.testing.assert_array_equal(lifted(kernel)._matrix(rows, None), lifted(numeric)._matrix(rows, None))
        np.testing.assert_array_equal(kernel._derivative(X, (1,), Z, ()), numeric._derivative(X, (1,), Z, ()))


@pytest.mark.parametrize("name", FIELDS)
def test_values_follow_the_parameters(name):
    kernel, _, parameters = both(name)
    for p in parameters:
        p.value = np.full(p.shape, 0.45) if p.ndim else 0.45
    expected = FIELDS[name][0](*((0.45,) * 3 if p.ndim else 0.45 for p in parameters))
    np.testing.assert_array_equal(kernel(X), expected(X))
    np.testing.assert_array_equal(kernel.diag(Z), expected.diag(Z))


@pytest.mark.parametrize("name", FIELDS)
def test_what_is_known_without_values(name):
    kernel, numeric, parameters = both(name)
    for p in parameters:
        p.value = None
    assert kernel.is_psd == numeric.is_psd and kernel.domain == numeric.domain
    assert kernel.is_stationary == numeric.is_stationary
    assert "p0" in repr(kernel) and "p0" in str(kernel.explain())
    assert kernel.rows(X).shape == X.shape
    with pytest.raises(ParameterError, match="parameter p.*to have a value"):
        kernel.at_present()
    with pytest.raises(ParameterError, match="parameter p.*to have a value"):
        kernel(X)


@pytest.mark.parametrize("name", FIELDS)
def test_equality_parameters_by_name_and_copies(name):
    kernel, numeric, parameters = both(name)
    again, other = FIELDS[name][0](*parameters), both(name)[0]
    if name != "weighted":  # each call makes another function
        assert kernel == again and hash(kernel) == hash(again)
    assert kernel not in (other, numeric)
    assert kernel == kernel.with_params(**kernel.get_params())
    held = {name: p for name, p in kernel.get_params().items() if isinstance(p, cp.Parameter)}
    assert {id(p) for p in held.values()} == {id(p) for p in parameters}
    numbers = {name: value for name, value in numeric.get_params().items() if name in held}
    assert repr(kernel.with_params(**numbers)) == repr(numeric)
    assert repr(numeric.with_params(**held)) == repr(kernel)
    assert copy.copy(kernel) is kernel and copy.deepcopy(kernel) is kernel
    if name != "weighted":
        loaded = pickle.loads(pickle.dumps(kernel))
        assert repr(loaded) == repr(kernel) and loaded.parameters()[0] is not kernel.parameters()[0]
        np.testing.assert_array_equal(loaded(X), kernel(X))
        first = loaded.parameters()[0]
        first.value = 2 * np.asarray(first.value)
        assert not np.array_equal(loaded(X), kernel(X))


def test_reprs():
    sigma, mu, scales = pos(1.0, "sigma"), pos(1.0, "mu"), pos((1.0, 2.0), "scales")
    for kernel, text in (
        (ks.Gaussian(sigma), "Gaussian(sigma=sigma)"),
        (ks.Gaussian(sigma) * mu, "Gaussian(sigma=sigma) * mu"),
        ((ks.Linear() + ks.Gaussian(1.0)) * mu, "(Linear() + Gaussian(sigma=1.0)) * mu"),
        ((ks.Linear() * mu) ** 2, "(Linear() * mu)**2"),
        (2.0 * (ks.Linear() * mu), "2.0 * Linear() * mu"),
        (ks.Linear().ard(scales), "(Linear()).ard(scales)"),
        (ks.Linear().series(scales), "(Linear()).series(scales)"),
        (ks.GeneralizedGaussian("l1", sigma), "GeneralizedGaussian('l1', beta=sigma)"),
        (Tent(sigma), "Tent(width=sigma)"),
    ):
        assert repr(kernel) == text
    names = {"sigma": sigma, "mu": mu, "scales": scales, **vars(ks), "Tent": Tent}
    assert eval(repr(ks.Gaussian(sigma).ard(scales) * mu), names) == ks.Gaussian(sigma).ard(scales) * mu


def test_a_parameter_in_several_places():
    sigma = pos(1.0, "sigma")
    kernel = ks.Gaussian(sigma) * sigma + ks.Laplacian(sigma)
    assert len(kernel.parameters()) == 1 and kernel.parameters()[0] is sigma
    sigma.value = 2.0
    assert kernel.at_present() == 2.0 * ks.Gaussian(2.0) + ks.Laplacian(2.0)


def test_order_of_parameters():
    a, b, c = pos(1.0, "a"), pos(1.0, "b"), pos((1.0, 1.0), "c")
    kernel = (ks.Gaussian(a).ard(c) * b + ks.Laplacian(a)) * a
    assert [p.name() for p in kernel.parameters()] == ["a", "b", "c"]


def test_what_is_kept_follows_the_parameters():
    sigma, calls = pos(1.0), []
    kernel = ks.Gaussian(sigma).cached(X)
    assert kernel.at_present() is kernel.at_present()
    first = kernel.at_present()
    calls.append(kernel(X)[0, 1])
    sigma.value = 2.0
    calls.append(kernel(X)[0, 1])
    assert kernel.at_present() is not first
    np.testing.assert_array_equal(calls, [ks.Gaussian(s)(X)[0, 1] for s in (1.0, 2.0)])
    nested = ks.Gaussian(sigma).centered(X).cached(X).centered(Z)
    nested(X)
    sigma.value = 3.0
    np.testing.assert_array_equal(nested(X), ks.Gaussian(3.0).centered(X).cached(X).centered(Z)(X))
    assert pickle.loads(pickle.dumps(nested))(X).shape == (7, 7)


def test_a_multiple_is_written_with_the_kernel_first():
    mu, kernel = pos(2.0, "mu"), ks.Linear()
    for wrong in (lambda: mu * kernel, lambda: mu + kernel, lambda: kernel + mu, lambda: mu * ks.Gaussian(mu)):
        with pytest.raises((KernelError, TypeError), match=r"kernel \* parameter"):
            wrong()
    assert np.asarray(kernel).dtype == object and np.array([kernel, kernel], dtype=object)[1] is kernel
    assert (np.float64(2.0) * kernel) == 2.0 * kernel
    two = (3.0 * kernel) * mu
    np.testing.assert_allclose(two(X), 6.0 * kernel(X), rtol=1e-15)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ks.Gaussian(cp.Parameter()), "sigma of Gaussian to be numbers > 0.*Write sigma=cp.Parameter.pos=True"),
        (lambda: ks.Gaussian(cp.Parameter(nonneg=True)), "numbers > 0.*pos=True"),
        (lambda: ks.Constant(cp.Parameter()), "numbers ≥ 0.*nonneg=True"),
        (lambda: ks.Linear() * cp.Parameter(neg=True), "numbers ≥ 0.*nonneg=True"),
        (lambda: ks.Gaussian(cp.Parameter(bounds=[0, 1])), "numbers > 0"),
        (lambda: ks.Gaussian(cp.Parameter(1, pos=True)), "one real number.*shape .1,"),
        (lambda: ks.Gaussian(1.0).ard(cp.Parameter(pos=True)), "dense vector.*shape ..\\."),
        (lambda: ks.Gaussian(1.0).ard(cp.Parameter((3, 1), pos=True)), "dense vector"),
        (lambda: ks.Gaussian(1.0).ard(cp.Parameter(0, pos=True)), "dense vector"),
        (lambda: ks.Gaussian(1.0).ard(cp.Parameter(3, nonneg=True)), "numbers > 0.*cp.Parameter.n, pos=True"),
        (lambda: ks.Gaussian(1.0).ard([pos(1.0), pos(1.0)]), "one cp.Parameter with an entry for each"),
        (lambda: ks.Sigmoid(offset=cp.Parameter(complex=True)), "real number"),
        (lambda: ks.Gaussian(2 * pos(1.0)), "takes no other expressions.*set its value"),
        (lambda: ks.Gaussian(cp.Variable(pos=True)), "takes no other expressions"),
        (lambda: ks.Linear() * (pos(1.0) + 1), "takes no other expressions"),
        (lambda: ks.Linear() * cp.Variable(), "takes no other expressions"),
        (lambda: ks.Polynomial(degree=pos(1.0)), "degree of Polynomial without.*offset, scale"),
        (lambda: ks.Matern(nu=pos(1.0), sigma=1.0), "nu of Matern without.*sigma"),
        (lambda: ks.Linear() ** pos(1.0), "exponent of Power without.*takes none"),
        (lambda: ks.Spectrum(n=pos(1.0)), "n of Spectrum without"),
        (lambda: ks.GeneralizedGaussian(pos(1.0)), "distance of GeneralizedGaussian without.*beta"),
        (lambda: ks.GeneralizedGaussian("mahalanobis", 1.0, cp.Parameter((3, 3), PSD=True)), "S of"),
        (lambda: ks.Gaussian(1.0).on(pos((1.0, 2.0))), "columns of Columns without"),
        (lambda: ks.Matern(nu=-0.7, sigma=pos(1.0)), "nu"),
        (lambda: ks.Polynomial(0, pos(1.0)), "degree"),
        (lambda: ks.Gaussian.from_gamma(pos(1.0)), "gamma to be a number.*sigma=cp.Parameter"),
        (lambda: ks.Gaussian.from_beta(pos(1.0)), "beta to be a number.*sigma=cp.Parameter"),
        (lambda: ks.Laplacian.from_gamma(pos(1.0)), "gamma to be a number.*sigma=cp.Parameter"),
        (lambda: ks.Laplacian.from_beta(pos(1.0)), "sigma=cp.Parameter"),
        (lambda: ks.GeneralizedGaussian.from_gamma("l1", pos(1.0)), "gamma to be a number.*beta=cp.Parameter"),
        (lambda: ks.Gaussian(1.0).with_params(sigma=cp.Parameter()), "numbers > 0"),
    ],
)
def test_what_no_parameter_can_be(make, words):
    with pytest.raises(KernelError, match=words):
        make()


def test_unknown_arguments():
    with pytest.raises(TypeError, match="got gamma=.*from_gamma"):
        ks.Gaussian(gamma=pos(1.0))
    with pytest.raises(TypeError, match="positional"):
        ks.Gaussian(pos(1.0), 2.0)


def test_declared_signs():
    assert ks.Gaussian(cp.Parameter(bounds=[0.1, 10.0])).is_psd
    assert ks.Constant(cp.Parameter(bounds=[0.0, 10.0])).is_psd
    assert ks.Gaussian(1.0).ard(cp.Parameter(2, bounds=[np.array([0.1, 1.0]), np.inf])).is_psd
    assert ks.Sigmoid(offset=cp.Parameter()).is_psd is False


def test_values_out_of_range():
    p, scales = pos(), pos((1.0, 1.0))
    p.value = 0.0  # which cvxpy lets pass
    with pytest.raises(KernelError, match="sigma to be a number > 0; got 0"):
        ks.Gaussian(p)(X)
    assert ks.Gaussian(p).is_psd
    with pytest.raises(KernelError, match="Expected points with 2 columns"):
        ks.Gaussian(1.0).ard(scales)(X)


def test_domains_are_checked_as_for_numbers():
    with pytest.raises(DataError):
        ks.GeneralizedGaussian("chi2", pos(1.0))(-X)
    with pytest.raises(KernelError, match="same kind"):
        ks.Gaussian(pos(1.0)) + ks.Spectrum(2)


def test_functions_without_a_name_are_not_pickled():
    kernel = ks.GeneralizedGaussian(lambda X, Z: np.abs(X[:, None] - Z).sum(axis=2) ** 0.5, pos(1.0))
    with pytest.raises(KernelError, match="cannot be saved"):
        pickle.dumps(kernel)


def test_declarations_of_users_classes():
    assert Tent(pos(1.0, "w")).declarations() == ("Tent(width=w) is positive semidefinite, as its class states",)
    assert ks.Gaussian(pos(1.0)).declarations() == ()


@dataclass(frozen=True)
class Silent(ks.Kernel):
    """A user's kernel that names no real fields."""

    width: float = 1.0

    def _verdict(self):
        return Verdict(True, "none")

    def _matrix(self, X, Z):
        return np.ones((len(X), len(X if Z is None else Z))) / self.width

    def _diagonal(self, X):
        return np.ones(len(X)) / self.width


def test_fields_that_a_class_does_not_name():
    assert Silent(2.0).is_psd
    with pytest.raises(KernelError, match="width of Silent without"):
        Silent(pos(1.0))


def test_fields_read_as_attributes():
    sigma = pos(1.0)
    kernel = ks.Matern(1.5, sigma)
    assert isinstance(kernel, Parametrized) and kernel.sigma is sigma and kernel.nu == 1.5
    with pytest.raises(AttributeError, match="period"):
        kernel.period


def test_files_hold_present_values(tmp_path):
    sigma = pos(1.5)
    kernel = (ks.Gaussian(sigma) + ks.Linear()).ard(pos((1.0, 2.0, 3.0)))
    f = ko.Function(kernel, X, np.ones(len(X)))
    ko.save(tmp_path / "f.ko", f=f)
    loaded = ko.load(tmp_path / "f.ko")["f"]
    np.testing.assert_array_equal(loaded(Z), f(Z))
    sigma.value = 3.0
    assert loaded.kernel == (ks.Gaussian(1.5) + ks.Linear()).ard([1.0, 2.0, 3.0])
