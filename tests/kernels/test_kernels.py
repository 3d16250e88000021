"""Kernels: formulas, feature maps, composition, values."""

import pickle
from math import inf

import numpy as np
import pytest
import scipy.sparse as sp

import kernelopt as ko
from kernelopt.errors import DataError, KernelError

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(8, 3)), RNG.normal(size=(5, 3))
A = RNG.normal(size=(20, 20))
Q = A @ A.T
Linear, Polynomial, Gaussian = ko.kernels.Linear, ko.kernels.Polynomial, ko.kernels.Gaussian


def squares(X):
    return np.column_stack([X, X**2])


FORMULAS = {
    "linear": (Linear(), lambda x, y: x @ y),
    "polynomial": (Polynomial(degree=3, offset=0.5, scale=2.0), lambda x, y: (0.5 + 2 * x @ y) ** 3),
    "homogeneous": (Polynomial(degree=2, offset=0.0), lambda x, y: (x @ y) ** 2),
    "gaussian": (Gaussian(sigma=1.5), lambda x, y: np.exp(-np.sum((x - y) ** 2) / (2 * 1.5**2))),
    "explicit": (ko.kernels.Explicit(squares), lambda x, y: x @ y + x**2 @ y**2),
    "sum": (Linear() + Polynomial(degree=2), lambda x, y: x @ y + (1 + x @ y) ** 2),
    "product": (Linear() * Polynomial(degree=2), lambda x, y: (x @ y) * (1 + x @ y) ** 2),
    "scaled": (3 * Linear(), lambda x, y: 3 * x @ y),
    "mixture": (
        0.5 * (Gaussian(sigma=1.0) + Linear()) * Gaussian(sigma=2.0),
        lambda x, y: 0.5 * (np.exp(-np.sum((x - y) ** 2) / 2) + x @ y) * np.exp(-np.sum((x - y) ** 2) / 8),
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formula(name):
    kernel, formula = FORMULAS[name]
    expected = np.array([[formula(x, z) for z in Z] for x in X])
    assert np.allclose(kernel(X, Z), expected, rtol=1e-12, atol=1e-13)
    K = kernel(X)
    assert np.allclose(K, [[formula(x, y) for y in X] for x in X], rtol=1e-12, atol=1e-13)
    assert np.allclose(K, K.T, rtol=0, atol=1e-13 * K.max())
    assert np.allclose(np.diag(K), kernel.diag(X), rtol=1e-12)
    assert np.linalg.eigvalsh(K)[0] > -1e-10 * np.linalg.eigvalsh(K)[-1]
    assert kernel.is_psd


@pytest.mark.parametrize("name", [n for n in FORMULAS if n not in ("gaussian", "mixture")])
def test_features(name):
    """F(x)ᵀF(y) = κ(x, y)."""
    kernel, _ = FORMULAS[name]
    F = kernel.features(X)
    assert F.shape == (8, ko.FeatureMatrix(X, kernel).shape[1])
    assert np.allclose(F @ kernel.features(Z).T, kernel(X, Z), rtol=1e-12, atol=1e-12)


def test_infinite_features():
    for kernel in (Gaussian(sigma=1.0), Gaussian(sigma=1.0) + Linear(), 2 * Gaussian(sigma=1.0) * Linear()):
        assert kernel._n_features(X) == inf
        with pytest.raises(KernelError, match="no finite feature map"):
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
    for kernel in (Polynomial(degree=2), 0.5 * (Gaussian(sigma=1.0) + Linear()) * Linear() + Linear()):
        names = {"Polynomial": Polynomial, "Gaussian": Gaussian, "Linear": Linear}
        assert eval(repr(kernel), names) == kernel
        assert pickle.loads(pickle.dumps(kernel)) == kernel


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
        (lambda: Polynomial(degree=0), "degree to be an integer ≥ 1"),
        (lambda: Polynomial(degree=1.5), "degree"),
        (lambda: Polynomial(degree=2, offset=-1), "offset"),
        (lambda: Polynomial(degree=2, scale=0), "scale"),
        (lambda: -1 * Linear(), "c ≥ 0"),
        (lambda: np.nan * Linear(), "c ≥ 0"),
        (lambda: Linear() + ko.kernels.Precomputed(Q), "same kind of data"),
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
    with pytest.raises(KernelError, match="3 and 2"):
        Linear()(X, Z[:, :2])


@pytest.mark.parametrize("convert", [sp.csr_matrix, sp.coo_array, np.asfortranarray, lambda X: X.tolist()])
def test_kinds_of_data(convert):
    assert np.allclose(Gaussian(sigma=1.0)(convert(X)), Gaussian(sigma=1.0)(X))
