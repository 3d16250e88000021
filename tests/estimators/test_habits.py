"""What users of scikit-learn look for: C, class_weight, support_, log-probabilities, scores, small pickles."""

import pickle
import warnings

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import d2_pinball_score, d2_tweedie_score
from sklearn.model_selection import LeaveOneOut
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

import kernelopt as ko
from kernelopt import estimators as es
from kernelopt.errors import DataError, DataTypeError, OptionError

RNG = np.random.default_rng(0)
X, Z = RNG.uniform(-2, 2, size=(80, 2)), RNG.uniform(-2, 2, size=(20, 2))
y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * RNG.normal(size=80)
LABELS = np.where(y > 0, "up", "down")
DATES = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "when": pd.date_range("2020-01-01", periods=4)})


@pytest.mark.later
def test_C_stands_for_alpha():
    for C in (0.5, 4.0):
        by_C, by_alpha = es.KernelClassifier(C=C).fit(X, LABELS), es.KernelClassifier(alpha=1 / (2 * C)).fit(X, LABELS)
        assert np.array_equal(by_C.decision_function(Z), by_alpha.decision_function(Z))
    with pytest.raises(OptionError, match="Expected alpha or C"):
        es.KernelRegressor(alpha=0.1, C=1.0).fit(X, y)
    with pytest.raises(OptionError, match="Expected C to be a number > 0"):
        es.KernelRegressor(C=-1.0).fit(X, y)


@pytest.mark.parametrize(
    ("ours", "theirs", "target"),
    [
        (es.KernelClassifier(C=2.0, gamma=0.4, tol=1e-9), SVC(C=2.0, gamma=0.4, tol=1e-10), LABELS),
        (
            es.KernelRegressor("epsilon_insensitive", C=2.0, epsilon=0.2, gamma=0.4, tol=1e-9),
            SVR(C=2.0, epsilon=0.2, gamma=0.4, tol=1e-10), y,
        ),
    ],
)  # fmt: skip
def test_support_and_dual_coefficients(ours, theirs, target):
    ours.fit(X, target), theirs.fit(X, target)
    order = np.argsort(theirs.support_)
    assert np.array_equal(ours.support_, theirs.support_[order])
    assert np.allclose(ours.dual_coef_, theirs.dual_coef_[:, order], atol=1e-4)
    expanded = ko.Function(ours.function_.kernel, X[ours.support_], ours.dual_coef_[0])
    assert np.allclose(expanded(Z), ours.function_(Z), atol=1e-4)
    assert ours.n_iter_ >= 1


@pytest.mark.slow
def test_support_of_several_classes_and_outputs():
    classes = np.digitize(y, [-0.5, 0.5])
    model = es.KernelClassifier().fit(X, classes)
    assert model.dual_coef_.shape == (3, len(model.support_))
    two = es.KernelClassifier("multinomial").fit(X, LABELS)
    assert two.dual_coef_.shape == (1, len(two.support_))
    assert es.KernelRegressor().fit(X, np.column_stack([y, -y])).dual_coef_.shape[0] == 2


@pytest.mark.slow
def test_class_weights():
    for weights in ("balanced", {"up": 5.0, "down": 1.0}):
        ours = es.KernelClassifier("log_loss", C=1.0, kernel="linear", class_weight=weights, tol=1e-9).fit(X, LABELS)
        theirs = LogisticRegression(C=1.0, class_weight=weights, tol=1e-10, max_iter=10000).fit(X, LABELS)
        assert np.allclose(ours.predict_proba(Z), theirs.predict_proba(Z), atol=1e-5)
    with pytest.raises(ValueError, match="class_weight"):
        es.KernelClassifier(class_weight="even").fit(X, LABELS)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["log_loss", "multinomial"])
@pytest.mark.parametrize("target", [LABELS, np.digitize(y, [-0.5, 0.5])])
def test_log_probabilities(loss, target):
    model = es.KernelClassifier(loss, alpha=0.1).fit(X, target)
    assert np.allclose(np.exp(model.predict_log_proba(Z)), model.predict_proba(Z), rtol=1e-10)
    shift = np.zeros(np.shape(model.intercept_))
    shift.flat[0] = 2000.0
    model.intercept_ = model.intercept_ + shift
    assert np.isfinite(model.predict_log_proba(Z)).all()  # where probabilities are 0
    assert not hasattr(es.KernelClassifier("hinge"), "predict_log_proba")


@pytest.mark.later
def test_scores_fit_the_loss():
    model = es.KernelRegressor("pinball", quantile=0.8, alpha=0.1).fit(X, y)
    assert model.score(Z, Z[:, 1]) == d2_pinball_score(Z[:, 1], model.predict(Z), alpha=0.8)
    counts = RNG.poisson(np.exp(y))
    model = es.KernelRegressor("poisson", alpha=0.1).fit(X, counts)
    assert model.score(X, counts) == d2_tweedie_score(counts, model.predict(X), power=1) > 0.2
    assert es.KernelRegressor("poisson").__sklearn_tags__().target_tags.positive_only


@pytest.mark.slow
def test_large_units_are_told():
    data, target = load_diabetes(return_X_y=True)
    data, target = data[:150], target[:150]
    raw = make_pipeline(StandardScaler(), es.KernelRegressor("absolute_error", alpha=5.0))
    with pytest.warns(UserWarning, match=r"The fit explains [0-9]+% of the loss.*Standardize y"):
        raw.fit(data, target)
    raw.fit(data, (target - target.mean()) / target.std())  # no warning, which would be an error here


@pytest.mark.slow
@pytest.mark.parametrize("make", [sp.csr_array, sp.coo_array, sp.csc_matrix])
def test_sparse_points(make):
    kept = np.where(X > 0, X, 0.0)
    for model, target in ((es.KernelRegressor(), y), (es.KernelClassifier(), LABELS), (es.OneClass(), None)):
        dense = model.fit(kept, target).predict(kept)
        assert np.array_equal(model.fit(make(kept), target).predict(make(kept)), dense)
    assert np.array_equal(es.FeatureMap().fit_transform(make(kept)), es.FeatureMap().fit_transform(kept))


@pytest.mark.slow
def test_pickles_are_as_small_as_the_model():
    data, target = load_breast_cancer(return_X_y=True)
    data = StandardScaler().fit_transform(data)
    ours, theirs = es.KernelClassifier(C=1.0).fit(data, target), SVC().fit(data, target)
    assert len(pickle.dumps(ours)) < 1.5 * len(pickle.dumps(theirs))
    again = pickle.loads(pickle.dumps(ours))
    assert np.array_equal(again.decision_function(data), ours.decision_function(data))
    assert np.abs(ours.decision_function(data) - theirs.decision_function(data)).max() < 1e-2


def test_feature_map_has_the_defaults_of_its_siblings():
    data, target = load_breast_cancer(return_X_y=True)
    train = np.arange(len(data)) % 2 == 0
    model = make_pipeline(es.FeatureMap(max_rank=100), StandardScaler(), LogisticRegression(max_iter=5000))
    assert model.fit(data[train], target[train]).score(data[~train], target[~train]) > 0.88
    for options, message in (({"method": "x"}, "method"), ({"kernel": "precomputed"}, "kernel of points")):
        with pytest.raises(OptionError, match=message):
            es.FeatureMap(**options).fit(X)


@pytest.mark.slow
def test_inverse_transform():
    model = es.KernelPCA(n_components=10, gamma=0.2, fit_inverse_transform=True, alpha=1e-3).fit(X)
    near = model.inverse_transform(model.transform(X))
    assert near.shape == X.shape
    assert np.sqrt(np.mean((near - X) ** 2)) < 0.15 < X.std()
    with pytest.raises(OptionError, match="fit_inverse_transform=True"):
        es.KernelPCA().fit(X).inverse_transform(np.zeros((1, 2)))
    with pytest.raises(OptionError, match="kernel of points"):
        es.KernelPCA(kernel="precomputed", fit_inverse_transform=True).fit(X @ X.T)


def test_all_components():
    model = es.KernelPCA(n_components=None, kernel="linear").fit(X)
    assert np.allclose(model.eigenvalues_, np.linalg.eigvalsh(np.cov(X.T) * 79)[::-1])


@pytest.mark.slow
def test_nu_is_a_share():
    model = es.NuKernelRegressor(nu=0.2, C=10.0, tol=1e-8).fit(X, y)
    outside = np.abs(y - model.predict(X)) > model.epsilon_ + 1e-5
    assert outside.mean() <= 0.2 <= (np.abs(y - model.predict(X)) > model.epsilon_ - 1e-4).mean()
    for bad in (0.0, 1.5, "many"):
        for estimator, target in ((es.NuKernelRegressor(nu=bad), y), (es.NuKernelClassifier(nu=bad), LABELS)):
            with pytest.raises(OptionError, match="nu"):
                estimator.fit(X, target)
    with pytest.raises(OptionError, match="twice the fraction of the smaller class"):
        es.NuKernelClassifier(nu=0.5).fit(X, np.arange(80) < 10)


@pytest.mark.parametrize(
    ("fitted", "error", "message"),
    [
        (lambda: es.KernelClassifier(class_weight="bal").fit(X, LABELS), OptionError, 'class_weight to be "balanced"'),
        (lambda: es.KernelRegressor().fit([[1.0], [1.0, 2.0]], [0, 1]), DataError, "rows of equal length"),
        (
            lambda: es.KernelRegressorCV(alphas=[1.0], cv=LeaveOneOut()).fit(X[:8], y[:8]), DataError,
            "R² is none of a single row",
        ),
        (lambda: es.KernelRegressor().fit(DATES, y[:4]), DataTypeError, "dates or times"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:R.2 score is not well-defined")
def test_what_is_misused_is_named(fitted, error, message):
    with pytest.raises(error, match=message):
        fitted()


def test_a_margin_of_rounding_is_none():
    """θ = 0 is optimal for labels that no line divides better than chance; f/ρ would be rounding over rounding."""
    X = np.random.default_rng(2).normal(size=(12, 2))
    X = np.vstack([X, -X])
    labels = np.sign(X[:, 0] * X[:, 1])
    with pytest.warns(), pytest.raises(OptionError, match="margin ρ > 0"):
        es.NuKernelClassifier(nu=0.3, kernel="linear").fit(X, labels)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("nu", [0.2, 0.99, 1.0])
def test_no_margin_for_any_nu(nu):
    """Each point has both labels, and a larger nu would not help."""
    X, y = np.array([[1.0], [1.0], [2.0], [2.0]]), np.array([1, -1, 1, -1])
    with pytest.raises(OptionError, match="No nu has one here: points of both classes are alike"):
        es.NuKernelClassifier(nu=nu).fit(X, y)


@pytest.mark.filterwarnings("ignore")
def test_a_margin_for_a_larger_nu():
    """One point has both labels."""
    X, y = np.array([[0.0], [0.0], [-1.0], [1.0]]), np.array([1, -1, 1, -1])
    with pytest.raises(OptionError, match="Take a larger nu"):
        es.NuKernelClassifier(nu=0.2, kernel="linear").fit(X, y)
    assert es.NuKernelClassifier(nu=0.9, kernel="linear").fit(X, y).margin_ > 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["KernelClassifier", "KernelClassifierCV", "NuKernelClassifier", "KernelPerceptron"])
def test_a_refused_fit_leaves_the_fit_before(kind):
    points = np.array([[0.0, 0.0], [0.0, 0.1], [1.0, 1.0], [1.0, 0.9]])
    model = getattr(es, kind)(**({"cv": 2} if kind.endswith("CV") else {})).fit(points, ["b", "b", "a", "a"])
    before = model.predict(points)
    model.set_params(kernel="nope")
    with pytest.raises(OptionError, match="nope"):
        model.fit(points, ["w", "w", "x", "x"])
    assert list(model.predict(points)) == list(before) and list(model.classes_) == ["a", "b"]


@pytest.mark.filterwarnings("ignore")
def test_a_first_fit_that_is_refused_is_none():
    model = es.NuKernelClassifier(nu=0.05)
    with pytest.raises(OptionError, match="margin"):
        model.fit([[0.0], [0.0], [1.0], [1.0]], [0, 1, 0, 1])
    with pytest.raises(NotFittedError):
        model.predict([[0.0]])


def test_a_fit_without_support_vectors():
    """All multipliers are rounding of 0."""
    points, targets = np.linspace(0, 1, 8)[:, None], np.linspace(-0.3, 0.3, 8)
    model = es.KernelRegressor("epsilon_insensitive", epsilon=0.5).fit(points, targets)
    theirs = SVR(epsilon=0.5).fit(points, targets)
    assert model.support_.shape == theirs.support_.shape and model.dual_coef_.shape == theirs.dual_coef_.shape == (1, 0)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    losses = ko.losses.epsilon_insensitive(targets, theta(points), 0.5)
    lam = cp.Parameter(pos=True)
    path = ko.path(ko.Problem(cp.Minimize(cp.sum(losses) + lam * ko.sum_squares(theta))), lam, [0.1, 1.0, 10.0])
    assert list(path["support"]) == [0, 0, 0]


def test_parameters_of_another_loss_are_named():
    X, y = np.linspace(0, 3, 20)[:, None], np.sin(np.linspace(0, 3, 20))
    for given, loss in (
        ({"epsilon": 0.2}, "epsilon_insensitive"),
        ({"quantile": 0.9}, "quantile"),
        ({"delta": 2.0}, "huber"),
    ):
        (name,) = given
        with pytest.warns(UserWarning, match=f"{name}=.* is not used by the loss 'squared_error': write loss='{loss}'"):
            es.KernelRegressor(**given).fit(X, y)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            es.KernelRegressor(loss, **given).fit(X, y)
    lower, upper = es.KernelRegressor().fit(X, y).predict_interval(X[:3], level=0.6)
    assert np.all(lower <= upper)
    with pytest.raises(TypeError, match=r"Gaussian\(sigma=1.0\), or gamma="):
        es.KernelRegressor(sigma=1.0)
