"""Intervals of a regressor: as of the stated problem, as of refits, and what is refused."""

import pickle

import cvxpy as cp
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import KFold

import kernelopt as ko
from kernelopt.errors import DataError, OptionError
from kernelopt.estimators import KernelRegressor, KernelRegressorCV

KERNEL = ko.kernels.Gaussian(sigma=1.0)
rng = np.random.default_rng(5)
X = rng.uniform(0, 6, size=(30, 1))
Y = np.sin(X[:, 0]) + 0.2 * rng.normal(size=30)
Z = np.linspace(0, 6, 5)[:, None]
EXACT = {"rank_tol": 1e-13}


def plus(model, X, y, weights, folds):
    """The jackknife+ interval of level 0.8 at Z by clones that are fitted without each fold."""
    n = len(y)
    own, new = np.zeros(n), np.zeros((n, len(Z)))
    for test in folds:
        k = ~np.isin(np.arange(n), test)
        one = clone(model).fit(X[k], y[k], weights[k])
        own[test], new[test] = one.predict(X[test]), one.predict(Z)
    R, k = np.abs(y - own)[:, None], int(np.ceil((n + 1) * 0.8))
    return np.sort(new - R, axis=0)[n - k], np.sort(new + R, axis=0)[k - 1]


@pytest.mark.later
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("cv", [None, 5])
def test_against_clones_fitted_without_rows(intercept, cv):
    model = KernelRegressor(kernel=KERNEL, alpha=0.3, fit_intercept=intercept, solve_options=EXACT, tol=1e-10)
    weights = np.random.default_rng(0).integers(1, 4, size=30).astype(float)
    splitter = None if cv is None else KFold(cv)
    folds = np.arange(30)[:, None] if cv is None else [test for _, test in splitter.split(X)]
    band = model.fit(X, Y, weights).predict_interval(Z, 0.8, cv=splitter)
    low, high = plus(model, X, Y, weights, folds)
    assert band.lower == pytest.approx(low, rel=1e-6, abs=1e-6)
    assert band.upper == pytest.approx(high, rel=1e-6, abs=1e-6)


def test_as_of_the_stated_problem():
    model = KernelRegressor(kernel=KERNEL, alpha=0.3, solve_options=EXACT).fit(X, Y)
    theta, b = ko.Theta(KERNEL), cp.Variable()
    problem = ko.Problem(cp.Minimize(cp.sum_squares(Y - theta(X) - b) + 0.3 * ko.sum_squares(theta)))
    problem.solve(**EXACT)
    for method in ("plus", "minmax"):
        band = model.predict_interval(Z, 0.9, method=method)
        stated = ko.jackknife(problem, theta(X) + b, Y, theta(Z) + b, method=method)
        assert band.lower == pytest.approx(stated.lower, abs=1e-8)
        assert band.upper == pytest.approx(stated.upper, abs=1e-8)
        assert str(band).split(",")[2:] == str(stated).split(",")[2:]


def test_rows_that_repeat_leave_one_at_a_time():
    """The fit merges them; a row of weight 0 takes no part."""
    X2, Y2 = np.vstack([X, X[:5], [[50.0]]]), np.concatenate([Y, Y[:5], [99.0]])
    model = KernelRegressor(kernel=KERNEL, alpha=0.3, solve_options=EXACT)
    band = model.fit(X2, Y2, np.r_[np.ones(35), 0.0]).predict_interval(Z, 0.8)
    low, high = plus(model, X2[:35], Y2[:35], np.ones(35), np.arange(35)[:, None])
    assert band.lower == pytest.approx(low, rel=1e-6, abs=1e-6)
    assert band.upper == pytest.approx(high, rel=1e-6, abs=1e-6)


def test_counts_are_in_their_own_units():
    counts = np.random.default_rng(0).poisson(np.exp(1 + np.sin(X[:, 0]))).astype(float)
    model = KernelRegressor("poisson", kernel=KERNEL, alpha=0.3).fit(X, counts)
    band, f = model.predict_interval(Z, 0.8), model.predict(Z)
    assert (band.lower < f).all() and (f < band.upper).all() and band.width.mean() > 2
    assert "not proven: f₋ are those of a quadratic model" in band.guarantee


def test_several_outputs_and_lists_of_points():
    both = KernelRegressor(kernel=KERNEL, solve_options=EXACT).fit(X, np.column_stack([Y, 3 * Y]))
    band = both.predict_interval(Z, 0.8)
    one = KernelRegressor(kernel=KERNEL, solve_options=EXACT).fit(X, Y).predict_interval(Z, 0.8)
    assert band.lower == pytest.approx(np.column_stack([one.lower, 3 * one.lower]), abs=1e-8)
    words = ["abab", "aabb", "bbbb", "abba", "aaaa", "baba"] * 2
    model = KernelRegressor(kernel=ko.kernels.Spectrum(2)).fit(words, np.arange(12.0))
    assert model.predict_interval(["abab"], 0.8).lower.shape == (1,)


def test_a_chosen_alpha_is_told():
    model = KernelRegressorCV(alphas=[0.1, 1.0], cv=2, kernel=KERNEL).fit(X, Y)
    band = model.predict_interval(Z)
    assert np.isnan(band.coverage) and "not proven: alpha was chosen by the same rows" in str(band)
    fixed = KernelRegressor(alpha=model.alpha_, kernel=KERNEL).fit(X, Y).predict_interval(Z)
    assert band.lower == pytest.approx(fixed.lower, rel=1e-5)


def test_after_pickle_and_without_a_change_of_the_model():
    model = KernelRegressor(kernel=KERNEL).fit(X, Y)
    before = set(vars(model)), model.n_iter_
    band = pickle.loads(pickle.dumps(model)).predict_interval(Z)
    assert band.lower.tolist() == model.predict_interval(Z).lower.tolist()
    assert (set(vars(model)), model.n_iter_) == before


def test_what_is_refused():
    model = KernelRegressor(kernel=KERNEL).fit(X, Y)
    few = KernelRegressor(kernel=KERNEL).fit(X[:3], Y[:3])
    for call, error, words in (
        (lambda: KernelRegressor(kernel=KERNEL).predict_interval(Z), ValueError, "not fitted yet"),
        (lambda: few.predict_interval(Z, 0.95), DataError, "at least 19 rows for the level 0.95; got 3"),
        (lambda: model.predict_interval(Z, 95), OptionError, "level to be a number between 0 and 1"),
        (lambda: model.predict_interval(Z, method="jackknife"), OptionError, "method to be 'plus' or 'minmax'"),
        (lambda: model.predict_interval(Z, cv=31), OptionError, "from 2 to 30 folds"),
        (lambda: model.predict_interval(Z, refit="no"), OptionError, "refit to be True or False"),
        (lambda: model.predict_interval(np.ones((2, 3))), ValueError, "X has 3 features"),
        (
            lambda: KernelRegressor(kernel="precomputed").fit(np.eye(30), Y).predict_interval(np.eye(30)),
            OptionError,
            'a kernel of points; kernel="precomputed".*use ko.jackknife',
        ),
        (
            lambda: KernelRegressor("quantile", quantile=0.9, kernel=KERNEL).fit(X, Y).predict_interval(Z),
            OptionError,
            "'quantile' of level 0.9. Fit two levels .* ko.conformal_interval",
        ),
    ):
        with pytest.raises(error, match=words):
            call()
