"""What scikit-learn does with estimators: copies, files, pipelines, searches, names of columns."""

import io
import pickle
import subprocess
import sys
from copy import deepcopy

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko

sklearn = pytest.importorskip("sklearn")
import joblib  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.datasets import load_iris  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_predict  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

es = ko.estimators
RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
LABELS = np.where(X[:, 0] + X[:, 1] ** 2 > 1, "a", "b")
IRIS = load_iris()
KERNEL = ko.kernels.Gaussian(sigma=1.5)
FITTED = [
    (es.KernelRegressor("huber"), X[:, 0]),
    (es.KernelClassifier("log_loss"), LABELS),
    (es.KernelClassifier(), np.arange(40) % 3),
    (es.KernelClassifier("multinomial"), np.arange(40) % 3),
    (es.KernelQuantileRegressor([0.2, 0.8]), X[:, 0]),
    (es.KernelPCA(), None),
    (es.OneClass(), None),
    (es.KernelPerceptron(gamma=5.0), LABELS),
]
NAMES = [type(model).__name__ for model, _ in FITTED]


def output(model, X):
    return model.transform(X) if hasattr(model, "transform") else model.predict(X)


@pytest.mark.parametrize(("model", "y"), FITTED, ids=NAMES)
def test_copies_and_files_hold_no_problem(model, y):
    model = clone(model).fit(X, y)
    saved, file = pickle.dumps(model), io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    assert not [m for m in (b"cvxpy", b"kernelopt.problem", b"kernelopt.language.expressions") if m in saved]
    for copy in (pickle.loads(saved), joblib.load(file), deepcopy(model)):
        assert np.array_equal(output(copy, X[:5]), output(model, X[:5]))
        assert str(getattr(copy, "certificate_", "")) == str(getattr(model, "certificate_", ""))
    assert clone(model).get_params() == model.get_params()


@pytest.mark.slow
def test_search_over_kernels_and_their_parameters():
    search = GridSearchCV(
        make_pipeline(StandardScaler(), es.KernelClassifier(kernel=KERNEL)),
        {"kernelclassifier__kernel__sigma": [0.01, 3.0], "kernelclassifier__alpha": [0.1, 1.0]},
        cv=3,
    ).fit(IRIS.data, IRIS.target)
    assert search.best_params_["kernelclassifier__kernel__sigma"] == 3.0 and search.best_score_ > 0.9
    search = GridSearchCV(es.KernelClassifier(), {"kernel": ["linear", ko.kernels.Gaussian(sigma=1e-3)]}, cv=3).fit(
        IRIS.data, IRIS.target
    )
    assert search.best_params_ == {"kernel": "linear"}


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("rbf", r"kernel=ko\.kernels\.Gaussian\(sigma=1\.0\)"),
        ("poly", r"Polynomial\(degree=3"),
        ("precomputed", "a name"),
    ],
)
def test_a_kernel_by_name_has_no_parameters_of_its_own(name, instead):
    model = es.KernelRegressor(kernel=name)
    with pytest.raises(ko.errors.OptionError, match=f"sigma; got kernel='{name}'.*{instead}"):
        model.set_params(kernel__sigma=2.0)
    assert model.set_params(kernel=ko.kernels.Gaussian(sigma=1.0), kernel__sigma=2.0).kernel.sigma == 2.0


def asymmetric(y, f):
    return cp.maximum(2 * (y - f), f - y)


@pytest.mark.slow
def test_search_over_losses():
    smooth = ko.SmoothLoss(lambda u, y: (u - y) ** 4, lambda u, y: 4 * (u - y) ** 3, lambda u, y: 12 * (u - y) ** 2)
    search = GridSearchCV(es.KernelRegressor(), {"loss": ["huber", asymmetric, smooth]}, cv=2).fit(X, X[:, 0])
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert es.KernelRegressor(smooth).fit(X, X[:, 0]).loss is smooth


@pytest.mark.slow
def test_a_kernel_matrix_for_all_folds():
    calls = []

    def product(P, R):
        calls.append((len(P), len(R)))
        return P @ R.T

    kernel = ko.kernels.FromFunction(product, on_lists=True).cached(X)
    search = GridSearchCV(es.KernelRegressor(kernel=kernel), {"alpha": [0.1, 1.0, 10.0]}, cv=4).fit(X, X[:, 0])
    assert calls == [(40, 40)]
    plain = GridSearchCV(es.KernelRegressor(kernel="linear"), {"alpha": [0.1, 1.0, 10.0]}, cv=4).fit(X, X[:, 0])
    assert np.abs(search.cv_results_["mean_test_score"] - plain.cv_results_["mean_test_score"]).max() < 1e-6


@pytest.mark.slow
def test_folds_of_a_kernel_matrix():
    """Rows and columns are cut, as the tag `pairwise` says."""
    Q = KERNEL(X)
    cut = cross_val_predict(es.KernelRegressor(kernel="precomputed"), Q, X[:, 0], cv=4)
    plain = cross_val_predict(es.KernelRegressor(kernel=KERNEL), X, X[:, 0], cv=4)
    assert np.abs(cut - plain).max() < 1e-6
    for model in (es.KernelClassifier, es.OneClass, es.KernelPCA, es.KernelPerceptron, es.KernelQuantileRegressor):
        assert model(kernel="precomputed").__sklearn_tags__().input_tags.pairwise
        assert not model().__sklearn_tags__().input_tags.pairwise


@pytest.mark.slow
def test_weights_go_through_a_search():
    weights = RNG.integers(0, 3, size=40)
    search = GridSearchCV(es.KernelRegressor(), {"alpha": [0.1, 1.0]}, cv=3).fit(X, X[:, 0], sample_weight=weights)
    again = es.KernelRegressor(**search.best_params_).fit(X, X[:, 0], sample_weight=weights)
    assert np.array_equal(search.predict(X), again.predict(X))


@pytest.mark.later
def test_frames():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["u", "v", "w"])
    model = es.KernelClassifier().fit(frame, pd.Series(LABELS))
    assert list(model.feature_names_in_) == ["u", "v", "w"]
    assert np.array_equal(model.predict(frame), es.KernelClassifier().fit(X, LABELS).predict(X))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["w", "v", "u"]])
    pipeline = make_pipeline(StandardScaler(), es.KernelPCA(3)).set_output(transform="pandas").fit(frame)
    assert list(pipeline.get_feature_names_out()) == ["kernelpca0", "kernelpca1", "kernelpca2"]
    assert list(pipeline.transform(frame).columns) == ["kernelpca0", "kernelpca1", "kernelpca2"]


WORDS = ["aab", "abab", "bbb", "ba", "aaaa", "bab", "bbab", "a"]


def words_by_statement(X, y, lam=0.1):
    theta = ko.Theta(ko.kernels.Spectrum(1))
    return ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta))), theta(X)


SPECTRUM = ko.kernels.Spectrum(1)
OF_WORDS = [
    es.KernelRegressor(kernel=SPECTRUM),
    es.KernelClassifier(kernel=SPECTRUM),
    es.KernelClassifier("multinomial", kernel=SPECTRUM),
    es.KernelQuantileRegressor([0.2, 0.8], kernel=SPECTRUM),
    es.KernelPCA(kernel=SPECTRUM),
    es.OneClass(kernel=SPECTRUM),
    es.KernelPerceptron(kernel=SPECTRUM),
    es.from_problem(words_by_statement)(),
]


@pytest.mark.parametrize("model", OF_WORDS, ids=lambda m: type(m).__name__)
def test_words(model):
    y = [w.count("a") > 1 for w in WORDS]
    model = clone(model).fit(WORDS, y)
    fitted = output(model, WORDS)
    assert len(fitted) == 8 and not hasattr(model, "n_features_in_")
    assert np.allclose(output(model, WORDS[::-1]), fitted[::-1])
    if not hasattr(model, "transform") and not isinstance(model, es.OneClass):
        with pytest.raises(ValueError, match="inconsistent"):
            model.fit(WORDS, y[:-1])
        with pytest.raises(ValueError, match="y to be passed"):
            model.fit(WORDS, None)


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_scikit_learn_is_imported_when_it_is_used():
    done = run(
        "import sys, kernelopt as ko; assert not any(m.split('.')[0] == 'sklearn' for m in sys.modules); "
        "from kernelopt import *; assert 'sklearn' not in sys.modules; "
        "ko.estimators.KernelRegressor; assert 'sklearn' in sys.modules"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_without_scikit_learn():
    done = run(
        "import sys; sys.modules['sklearn'] = None\n"
        "import kernelopt as ko\n"
        "try:\n    ko.estimators\n"
        "except ko.errors.MissingPackageError as error:\n    print(error)\n"
        "try:\n    ko.estimator\nexcept AttributeError as error:\n    print(error)"
    )
    assert "ko.estimators needs scikit-learn: pip install scikit-learn" in done.stdout, done.stderr
    assert "no attribute 'estimator'" in done.stdout
