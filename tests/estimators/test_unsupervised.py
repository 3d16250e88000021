"""KernelPCA and OneClass beside scikit-learn's."""

import numpy as np
import pytest

import kernelopt as ko

pytest.importorskip("sklearn")
from sklearn import decomposition
from sklearn.svm import OneClassSVM

KernelPCA, OneClass = ko.estimators.KernelPCA, ko.estimators.OneClass
RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(60, 4)), RNG.normal(size=(20, 4))
W = RNG.integers(0, 4, size=60)
GAUSSIAN = ko.kernels.Gaussian(sigma=2.0)


@pytest.mark.later
@pytest.mark.parametrize(
    ("params", "theirs"),
    [
        ({"kernel": "rbf", "gamma": 0.2}, {"kernel": "rbf", "gamma": 0.2}),
        ({"kernel": "poly", "degree": 3, "gamma": 0.5}, {"kernel": "poly", "degree": 3, "gamma": 0.5}),
        ({"kernel": "linear"}, {"kernel": "linear"}),
    ],
)
def test_kernel_pca(params, theirs):
    """Equal up to sign to 1e-8, also at new points."""
    ours = KernelPCA(n_components=4, **params).fit(X)
    other = decomposition.KernelPCA(n_components=4, eigen_solver="dense", **theirs).fit(X)
    assert np.allclose(ours.eigenvalues_, other.eigenvalues_, rtol=1e-10)
    signs = np.sign((ours.transform(X) * other.transform(X)).sum(axis=0))
    scale = np.sqrt(other.eigenvalues_[0])
    for points in (X, Z):
        assert np.abs(ours.transform(points) - signs * other.transform(points)).max() < 1e-8 * scale
    assert np.array_equal(ours.fit_transform(X), ours.transform(X))
    largest = np.argmax(np.abs(ours.transform(X)) > 0.9999 * np.abs(ours.transform(X)).max(axis=0), axis=0)
    assert (ours.transform(X)[largest, range(4)] > 0).all()
    assert all(c.closes(1e-6) for c in ours.certificate_)


@pytest.mark.later
def test_kernel_pca_of_a_matrix_and_without_centering():
    plain = KernelPCA(n_components=3, kernel=GAUSSIAN).fit(X)
    given = KernelPCA(n_components=3, kernel="precomputed").fit(GAUSSIAN(X))
    assert np.abs(given.transform(GAUSSIAN(Z, X)) - plain.transform(Z)).max() < 1e-8
    raw = KernelPCA(n_components=2, kernel=GAUSSIAN, center=False).fit(X)
    assert np.allclose(raw.eigenvalues_, np.linalg.eigvalsh(GAUSSIAN(X))[:-3:-1], rtol=1e-10)
    matrix = KernelPCA(n_components=2, kernel="precomputed", center=False).fit(GAUSSIAN(X))
    assert np.abs(matrix.transform(GAUSSIAN(Z, X)) - raw.transform(Z)).max() < 1e-8


@pytest.mark.later
def test_kernel_pca_of_less_rank_than_components():
    line = np.column_stack([X[:, 0], 2 * X[:, 0]])
    model = KernelPCA(n_components=3, kernel="linear").fit(line)
    assert np.allclose(model.eigenvalues_, [5 * 60 * X[:, 0].var(), 0, 0], atol=1e-9)
    assert np.abs(model.transform(line)[:, 1:]).max() < 1e-8
    assert KernelPCA(n_components=7).fit_transform(X[:3]).shape == (3, 3)
    assert not KernelPCA().fit_transform(X[:1]).any()
    for bad in (0, 1.5, "all"):
        with pytest.raises(ko.errors.OptionError, match="n_components"):
            KernelPCA(n_components=bad).fit(X)


def test_output_has_names():
    pytest.importorskip("pandas")
    model = KernelPCA(n_components=2).set_output(transform="pandas").fit(X)
    assert list(model.transform(Z).columns) == ["kernelpca0", "kernelpca1"]


@pytest.mark.parametrize("nu", [0.06, 0.31, 0.91])  # ρ is not unique where ν·60 is an integer
def test_one_class(nu):
    ours = OneClass(nu, tol=1e-9).fit(X)
    theirs = OneClassSVM(nu=nu, tol=1e-10).fit(X)
    for name in ("decision_function", "score_samples"):
        assert np.abs(getattr(ours, name)(Z) - getattr(theirs, name)(Z)).max() < 2e-4
    assert abs(ours.offset_ - theirs.offset_[0]) < 2e-4
    f = ours.decision_function(X)
    assert (f < -1e-4).mean() <= nu <= (f < 1e-4).mean()
    assert np.array_equal(ours.predict(Z), np.where(ours.decision_function(Z) < 0, -1, 1))
    assert ours.certificate_.closes(1e-9)


@pytest.mark.slow
def test_one_class_with_weights_and_a_matrix():
    weighted = OneClass(0.2).fit(X, sample_weight=W).decision_function(Z)
    assert np.array_equal(weighted, OneClass(0.2).fit(np.repeat(X, W, axis=0)).decision_function(Z))
    plain, given = OneClass(0.2, kernel=GAUSSIAN).fit(X), OneClass(0.2, kernel="precomputed").fit(GAUSSIAN(X))
    assert np.abs(given.decision_function(GAUSSIAN(Z, X)) - plain.decision_function(Z)).max() < 1e-3
    assert np.array_equal(OneClass(0.2).fit_predict(X), OneClass(0.2).fit(X).predict(X))
    with pytest.raises(ValueError, match="sample_weight ≥ 0"):
        OneClass().fit(X, sample_weight=-np.ones(60))
    for bad in (0, 1.5, "0.5"):
        with pytest.raises(ko.errors.OptionError, match=r"nu to be a number in \(0, 1\]"):
            OneClass(bad).fit(X)


def test_an_offset_that_is_an_interval_is_its_midpoint():
    X = np.random.default_rng(0).normal(size=(40, 2))
    for nu, gamma in ((0.5, 1e-3), (0.25, 1e-3)):
        model = ko.estimators.OneClass(nu=nu, gamma=gamma).fit(X)
        values = np.sort(model.score_samples(X))
        below = round(nu * 40)
        low, high = values[below - 1], values[below]
        assert model.offset_ == pytest.approx((low + high) / 2, abs=1e-9)
