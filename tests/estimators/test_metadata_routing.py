"""Weights and other data of rows through pipelines and searches, with scikit-learn's metadata routing."""

import inspect
import pickle

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest

import kernelopt as ko

pytest.importorskip("sklearn")
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import has_fit_parameter

es = ko.estimators
RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2))
Y = np.sin(X[:, 0]) + X[:, 1]
LABELS = np.where(Y > 0, "up", "down")
GROUP = X[:, 0] > 0
W = RNG.integers(1, 9, size=40).astype(float)


def fair(X, y, group, lam=0.1, sample_weight=None):
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    f = theta(X) + b
    w = np.ones(len(y)) if sample_weight is None else sample_weight
    equal_means = cp.sum(f[group]) / group.sum() == cp.sum(f[~group]) / (~group).sum()
    return ko.Problem(cp.Minimize(w @ ko.losses.huber(y, f) + lam * ko.sum_squares(theta)), [equal_means]), f


Fair = es.from_problem(fair)
ESTIMATORS = [
    es.KernelRegressor("absolute_error"), es.KernelRegressorCV(alphas=[0.1, 1.0], cv=2), es.KernelQuantileRegressor(),
    es.NuKernelRegressor(), es.KernelClassifier(), es.KernelClassifierCV(alphas=[0.1, 1.0], cv=2),
    es.NuKernelClassifier(nu=0.1), es.OneClass(nu=0.2), Fair(),
]  # fmt: skip


@pytest.fixture(autouse=True)
def routing():
    with config_context(enable_metadata_routing=True):
        yield


def predictions(model):
    return (
        model.predict if isinstance(model, Fair) or not hasattr(model, "decision_function") else model.decision_function
    )(X)


@pytest.mark.parametrize("model", ESTIMATORS, ids=lambda model: type(model).__name__)
def test_weights_reach_the_fit(model):
    y = LABELS if is_classifier(model) else Y
    data = {"group": GROUP} if isinstance(model, Fair) else {}
    asked = clone(model).set_fit_request(sample_weight=True, **dict.fromkeys(data, True))
    routed = predictions(make_pipeline("passthrough", asked).fit(X, y, sample_weight=W, **data))
    assert np.array_equal(routed, predictions(clone(model).fit(X, y, sample_weight=W, **data)))
    assert np.abs(routed - predictions(clone(model).fit(X, y, **data))).max() > 1e-3


@pytest.mark.parametrize("model", [es.KernelClassifier(), es.KernelRegressor()], ids=["classifier", "regressor"])
def test_weights_reach_fits_and_scores_of_a_search(model):
    y = LABELS if is_classifier(model) else Y
    asked = clone(model).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    search = GridSearchCV(asked, {"alpha": [0.1, 100.0]}, cv=KFold(2), error_score="raise")
    search.fit(X, y, sample_weight=W)
    for number, alpha in enumerate([0.1, 100.0]):
        scores = [
            clone(model).set_params(alpha=alpha).fit(X[a], y[a], W[a]).score(X[b], y[b], W[b])
            for a, b in KFold(2).split(X)
        ]
        assert search.cv_results_["mean_test_score"][number] == pytest.approx(np.mean(scores))


def test_data_of_a_stated_problem_in_a_search():
    scaler = StandardScaler().set_fit_request(sample_weight=False)
    model = Fair().set_fit_request(group=True, sample_weight=True).set_score_request(sample_weight=True)
    search = GridSearchCV(make_pipeline(scaler, model), {"fair__lam": [0.1, 1.0]}, cv=3, error_score="raise")
    f = search.fit(X, Y, group=GROUP, sample_weight=W).predict(X)
    assert abs(f[GROUP].mean() - f[~GROUP].mean()) < 1e-6
    scaled, lam = StandardScaler().fit_transform(X), search.best_params_["fair__lam"]
    assert np.allclose(f, Fair(lam=lam).fit(scaled, Y, group=GROUP, sample_weight=W).predict(scaled))
    found = cross_validate(make_pipeline(model), X, Y, params={"group": GROUP}, cv=3, error_score="raise")
    assert len(found["test_score"]) == 3


def test_requests_are_copied():
    model = Fair().set_fit_request(group=True)
    for copy in (clone(model), pickle.loads(pickle.dumps(model))):
        assert copy.get_metadata_routing().fit.requests == {"group": True, "sample_weight": None}


def test_data_without_a_request_are_refused():
    with pytest.raises(UnsetMetadataPassedError, match=r"\[group\] are passed"):
        GridSearchCV(Fair(), {"lam": [0.1]}).fit(X, Y, group=GROUP)


def test_the_signature_names_the_data():
    parameters = inspect.signature(Fair().fit).parameters
    assert list(parameters) == ["X", "y", "group", "sample_weight", "data"]
    assert parameters["group"].default is inspect.Parameter.empty and parameters["sample_weight"].default is None
    assert has_fit_parameter(Fair(), "sample_weight") and not has_fit_parameter(Fair(), "lam")


@pytest.mark.parametrize(
    "handed", [list, tuple, lambda v: pd.Series(v, index=range(100, 140))], ids=["list", "tuple", "Series"]
)
def test_data_are_handed_over_as_arrays(handed):
    expected = Fair().fit(X, Y, group=GROUP, sample_weight=W).predict(X)
    found = Fair().fit(X, Y, group=handed(GROUP), sample_weight=handed(W)).predict(X)
    assert np.array_equal(found, expected)


def test_other_objects_stay_a_list():
    seen = []

    def stated(X, y, notes):
        seen.append(notes)
        theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
        return ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)) + ko.sum_squares(theta))), theta(X)

    notes = [{"row": i} for i in range(40)]
    es.from_problem(stated)().fit(X, Y, notes=notes)
    assert seen[0] is notes
