"""Kernel matrices and the geometry of the feature space."""

import numpy as np
import pytest

import kernelopt as ko
from kernelopt import feature_space as fs
from kernelopt.errors import DataError

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(25, 2)), RNG.normal(size=(9, 2))
POLYNOMIAL, GAUSSIAN = ko.kernels.Polynomial(degree=2), ko.kernels.Gaussian(sigma=1.0)
A, B = POLYNOMIAL.features(X), POLYNOMIAL.features(Z)


def test_distances_are_those_of_features():
    direct = np.sum((A[:, None] - B) ** 2, axis=2)
    assert np.allclose(fs.squared_distances(POLYNOMIAL, X, Z), direct)
    assert np.allclose(fs.squared_distances(POLYNOMIAL, X), np.sum((A[:, None] - A) ** 2, axis=2), atol=1e-10)
    assert np.array_equal(np.diag(fs.squared_distances(GAUSSIAN, X)), np.zeros(25))


@pytest.mark.parametrize("k", [1, 4, 9])
def test_neighbors(k, monkeypatch):
    monkeypatch.setattr(fs, "BLOCK_BYTES", 8 * 9 * 4)  # four rows at a time
    direct = np.sqrt(np.sum((A[:, None] - B) ** 2, axis=2))
    found = fs.nearest_neighbors(POLYNOMIAL, X, Z, k=k)
    assert np.array_equal(found.indices, direct.argsort(axis=1)[:, :k])
    assert np.allclose(found.distances, np.sort(direct, axis=1)[:, :k])
    # a function of the distance alone keeps the neighbours
    assert np.array_equal(
        fs.nearest_neighbors(GAUSSIAN, X, Z).indices, fs.nearest_neighbors(ko.kernels.Linear(), X, Z).indices
    )
    with pytest.raises(DataError, match="k from 1 to 9"):
        fs.nearest_neighbors(POLYNOMIAL, X, Z, k=10)


def test_alignment():
    Q, P = POLYNOMIAL(X), GAUSSIAN(X)
    assert fs.alignment(Q, Q) == pytest.approx(1)
    assert fs.alignment(Q, 7 * P) == pytest.approx(np.sum(Q * P) / np.linalg.norm(Q) / np.linalg.norm(P))
    assert np.allclose(fs.center(Q), (A - A.mean(axis=0)) @ (A - A.mean(axis=0)).T)
    assert np.allclose(fs.center(Q), POLYNOMIAL.centered(X)(X))
    assert fs.alignment(Q, P, centered=True) == pytest.approx(fs.alignment(fs.center(Q), fs.center(P)))
    y = np.sign(X[:, 0])
    assert fs.target_alignment(np.outer(y, y), y) == pytest.approx(1)
    assert fs.target_alignment(P, y) == pytest.approx(y @ P @ y / 25 / np.linalg.norm(P))
    assert fs.alignment(np.zeros((2, 2)), np.eye(2)) == 0
    with pytest.raises(DataError, match="same rows"):
        fs.alignment(Q, np.eye(3))
    assert fs.target_alignment(P, y[:, None]) == fs.target_alignment(P, y)
    for wrong in (y[:, None, None], y[1:]):
        with pytest.raises(DataError, match="Expected y of shape"):
            fs.target_alignment(P, wrong)


def test_svd():
    svd = fs.kernel_svd(POLYNOMIAL, X)
    U, s, Vt = np.linalg.svd(A, full_matrices=False)
    assert np.allclose(svd.values, s)
    signs = np.sign(np.sum(U * svd.left, axis=0))
    assert np.allclose(svd.left * signs, U, atol=1e-9)
    assert np.allclose(svd.right(Z) * signs, B @ Vt.T, atol=1e-8)  # vⱼᵀF(z)
    assert np.allclose(svd.right.gram(), np.eye(6), atol=1e-10)  # orthonormal functions
    assert np.allclose(svd.left * svd.values, svd.right(X), atol=1e-9)  # Avⱼ = σⱼuⱼ


def test_psd_and_rank():
    assert fs.is_psd(POLYNOMIAL(X))
    assert not fs.is_psd(ko.kernels.Sigmoid(1.0, -1.0)(X))
    assert fs.is_psd(np.eye(3) + np.triu(np.ones((3, 3)), 1) - np.tril(np.ones((3, 3)), -1))
    assert fs.rank(POLYNOMIAL(X)) == 6 <= POLYNOMIAL._n_features(X)
    assert fs.rank(np.zeros((3, 3))) == 0
    assert fs.quick_checks(POLYNOMIAL(X)) == (True, True, True)
    assert fs.quick_checks([[1.0, 0.5], [0.0, 1.0]]) == (False, True, True)
    assert fs.quick_checks([[-1.0, 0.0], [0.0, 1.0]]) == (True, False, False)
    with pytest.raises(DataError, match="square"):
        fs.is_psd(np.ones((2, 3)))


def test_feature_map():
    sklearn = pytest.importorskip("sklearn")
    from sklearn.linear_model import Ridge  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415

    from kernelopt.estimators import FeatureMap  # noqa: PLC0415

    for method in ("cholesky", "eigen"):
        mapped = FeatureMap(GAUSSIAN, rank_tol=1e-12, method=method).fit(X)
        F = mapped.transform(X)
        assert np.allclose(F @ F.T, GAUSSIAN(X), atol=1e-9)
        assert np.allclose(F @ mapped.transform(Z).T, GAUSSIAN(X, Z), atol=1e-4)
        assert mapped.get_feature_names_out()[0] == "featuremap0"
    y = X[:, 0]
    pipeline = make_pipeline(FeatureMap(GAUSSIAN, rank_tol=1e-12), Ridge(alpha=0.1, fit_intercept=False)).fit(X, y)
    alpha = np.linalg.solve(GAUSSIAN(X) + 0.1 * np.eye(25), y)
    assert np.allclose(pipeline.predict(X), GAUSSIAN(X) @ alpha, atol=1e-6)
    copy = sklearn.base.clone(mapped).set_params(kernel__sigma=3.0, max_rank=4)
    assert copy.get_params()["kernel"] == ko.kernels.Gaussian(sigma=3.0)
    assert copy.get_params()["kernel__sigma"] == 3.0
    assert copy.fit(X).rank_ == 4
    assert mapped.kernel == GAUSSIAN


@pytest.mark.later
@pytest.mark.filterwarnings("ignore:Skipping check")
def test_feature_map_is_an_estimator():
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    from kernelopt.estimators import FeatureMap  # noqa: PLC0415

    checks.check_estimator(FeatureMap())


def test_intersection_predictions_are_fast_and_equal():
    """Sorted prefix sums against the direct sum; also for sums and multiples; several outputs."""
    centers, points = RNG.uniform(size=(300, 4)), RNG.uniform(-0, 1.2, size=(50, 4))
    points[:10] = centers[:10]  # ties
    for shape in ((300,), (300, 2)):
        c = RNG.normal(size=shape)
        for kernel in (
            ko.kernels.Intersection(),
            2.5 * ko.kernels.Intersection() + ko.kernels.Linear(),
            3.0 * (ko.kernels.Intersection() + 0.5 * ko.kernels.Intersection()),
        ):
            f = ko.Function(kernel, centers, c)
            assert f._fast() is not None
            direct = kernel(points, centers) @ c
            assert np.abs(f(points) - direct).max() < 1e-12 * np.abs(direct).max() * 100
    assert ko.Function(ko.kernels.Intersection() * ko.kernels.Linear(), centers, c)._fast() is None
