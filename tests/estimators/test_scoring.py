"""Scores check their data as fits do, and are scikit-learn's otherwise."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, r2_score

import kernelopt as ko

RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 2))
LABELS = np.array([1, -1] * 4)
WEIGHTS = np.arange(8.0)
MODELS = {
    "classes": ko.estimators.KernelClassifier(),
    "numbers": ko.estimators.KernelRegressor(),
    "quantiles": ko.estimators.KernelQuantileRegressor(),
    "pinball": ko.estimators.KernelRegressor(loss="pinball"),
    "perceptron": ko.estimators.KernelPerceptron(),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_no_fit_takes_is_refused(name):
    model = MODELS[name].fit(X, LABELS)
    dates = np.array(["2020-01-01"] * 8, dtype="datetime64[D]")
    for weights, match in ((dates, "to be numbers; got dates"), (-WEIGHTS, "≥ 0"), (WEIGHTS[:3], "shape")):
        with pytest.raises(ValueError if match != "to be numbers; got dates" else TypeError, match=match):
            model.score(X, LABELS, weights)
    for y in (np.full(8, np.nan), [np.inf] * 8):
        with pytest.raises(ValueError, match="y contains"):
            model.score(X, y)


@pytest.mark.later
def test_other_scores_are_those_of_scikit_learn():
    model = MODELS["classes"].fit(X, LABELS)
    assert model.score(X, LABELS, WEIGHTS) == accuracy_score(LABELS, model.predict(X), sample_weight=WEIGHTS)
    named = np.where(LABELS > 0, "yes", "no")
    assert model.fit(X, named).score(X, pd.Series(named)) == accuracy_score(named, model.predict(X))
    model = MODELS["numbers"].fit(X, X[:, 0])
    assert model.score(X, X[:, 0], list(WEIGHTS)) == r2_score(X[:, 0], model.predict(X), sample_weight=WEIGHTS)
