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
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_validate
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


@pytest.mark.slow
@pytest.mark.parametrize("model", ESTIMATORS, ids=lambda model: type(model).__name__)
def test_weights_reach_the_fit(model):
    y = LABELS if is_classifier(model) else Y
    data = {"group": GROUP} if isinstance(model, Fair) else {}
    asked = clone(model).set_fit_request(sample_weight=True, **dict.fromkeys(data, True))
    routed = predictions(make_pipeline("passthrough", asked).fit(X, y, sample_weight=W, **data))
    assert np.array_equal(routed, predictions(clone(model).fit(X, y, sample_weight=W, **data)))
    assert np.abs(routed - predictions(clone(model).fit(X, y, **data))).max() > 1e-3


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


GROUPS = np.arange(40) // 8
OF_CV = [es.KernelRegressorCV(alphas=[0.1, 1.0]), es.KernelClassifierCV(alphas=[0.1, 1.0], kernel="linear")]


@pytest.fixture(params=OF_CV, ids=lambda model: type(model).__name__)
def chooser(request):
    return clone(request.param).set_params(cv=GroupKFold(5)), LABELS if is_classifier(request.param) else Y


@pytest.mark.slow
@pytest.mark.parametrize("tune", [False, True])
def test_groups_reach_the_folds(chooser, tune):
    model, y = chooser
    model.set_params(tune=tune)
    if tune and is_classifier(model):
        model.set_params(loss="log_loss", kernel="rbf")
    by_hand = clone(model).set_params(cv=list(GroupKFold(5).split(X, y, GROUPS))).fit(X, y, W)
    found = model.fit(X, y, W, groups=GROUPS)
    assert found.alpha_ == by_hand.alpha_ and np.array_equal(predictions(found), predictions(by_hand))
    if not tune:
        assert np.array_equal(found.scores_, by_hand.scores_)
        others = clone(model).set_params(cv=KFold(5, shuffle=True, random_state=0)).fit(X, y, W)
        assert not np.array_equal(found.scores_, others.scores_)


@pytest.mark.slow
def test_groups_reach_the_folds_inside_of_others(chooser):
    model, y = chooser
    alone = clone(model).fit(X, y, groups=GROUPS)
    piped = make_pipeline("passthrough", clone(model)).fit(X, y, groups=GROUPS)
    assert np.array_equal(predictions(piped), predictions(alone))
    model.set_params(cv=GroupKFold(2))
    scored = cross_validate(model, X, y, params={"groups": GROUPS}, cv=GroupKFold(3), error_score="raise")
    assert len(scored["test_score"]) == 3


def test_data_that_no_splitter_takes(chooser):
    model, y = chooser
    with pytest.raises(TypeError, match="unexpected argument.*colour"):
        model.fit(X, y, groups=GROUPS, colour=GROUPS)


@pytest.mark.slow
def test_groups_without_routing(chooser):
    model, y = chooser
    with config_context(enable_metadata_routing=False):
        with pytest.raises(ko.errors.OptionError, match=r"got groups too.*enable_metadata_routing.*cv=list"):
            model.fit(X, y, groups=GROUPS)
        with pytest.raises(ValueError, match="groups.* should not be None") as refusal:
            model.fit(X, y)
        assert "fit(X, y, groups=groups)" in refusal.value.__notes__[0]
        model.set_params(cv=list(GroupKFold(5).split(X, y, GROUPS))).fit(X, y)


@pytest.mark.slow
def test_folds_of_an_iterator_are_left_for_the_fit():
    model = es.KernelRegressorCV(alphas=[0.1, 1.0], cv=iter(list(KFold(2).split(X))))
    model.get_metadata_routing()
    assert model.fit(X, Y).scores_.shape == (2, 2)
