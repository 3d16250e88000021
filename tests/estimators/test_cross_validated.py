"""Estimators that choose α by cross-validation, beside a grid search over the estimators themselves."""

import pickle

import cvxpy as cp
import numpy as np
import pytest
from joblib import parallel_config
from sklearn.base import clone
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import kernelopt as ko
from kernelopt import factorization
from kernelopt.errors import DataError, OptionError
from kernelopt.model_selection import tuning

es = ko.estimators
RNG = np.random.default_rng(0)
N = 60
X = RNG.normal(size=(N, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * RNG.normal(size=N)
LABELS = np.where(Y > 0, "up", "down")
CLASSES = np.digitize(Y, [-0.7, 0.7])
KERNEL = ko.kernels.Gaussian(sigma=1.0)
ALPHAS = [0.01, 0.1, 1.0, 10.0]
OPTIONS = {"kernel": KERNEL, "tol": 1e-6}


def searched(estimator, X, y, cv, scoring=None, **fit):
    return GridSearchCV(estimator, {"alpha": ALPHAS}, cv=cv, scoring=scoring).fit(X, y, **fit)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "y", "scoring"),
    [
        ("squared_error", Y, None),
        ("absolute_error", Y, "neg_mean_absolute_error"),
        ("huber", np.column_stack([Y, -2 * Y]), None),
        (lambda y, f: cp.square(y - f), Y, None),
        ("poisson", np.round(np.exp(Y)), "neg_mean_poisson_deviance"),
    ],
    ids=["squared_error", "absolute_error", "outputs", "function", "poisson"],
)
def test_regressors(loss, y, scoring):
    cv = KFold(4, shuffle=True, random_state=0)
    model = es.KernelRegressorCV(loss, alphas=ALPHAS[::-1], cv=cv, scoring=scoring, **OPTIONS).fit(X, y)
    search = searched(es.KernelRegressor(loss, **OPTIONS), X, y, cv, scoring)
    np.testing.assert_array_equal(model.alphas_, ALPHAS)
    assert model.scores_.shape == (4, 4) and model.best_score_ == model.scores_.mean(axis=1).max()
    np.testing.assert_allclose(model.scores_.mean(axis=1), search.cv_results_["mean_test_score"], atol=0.02)
    assert model.alpha_ == search.best_params_["alpha"]
    np.testing.assert_allclose(model.predict(X), search.predict(X))
    assert model.certificate_.relative_gap <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("y", [LABELS, CLASSES], ids=["two", "three"])
@pytest.mark.parametrize(
    ("loss", "scoring"),
    [("hinge", None), ("log_loss", "neg_log_loss"), ("multinomial", "neg_log_loss"), ("crammer_singer", None)],
)
def test_classifiers(loss, scoring, y):
    cv = StratifiedKFold(3)
    model = es.KernelClassifierCV(loss, alphas=ALPHAS, cv=cv, scoring=scoring, **OPTIONS).fit(X, y)
    search = searched(es.KernelClassifier(loss, **OPTIONS), X, y, cv, scoring)
    np.testing.assert_allclose(model.scores_.mean(axis=1), search.cv_results_["mean_test_score"], atol=0.02)
    assert model.score(X, y) > 0.8
    assert model.alpha_ in ALPHAS and set(model.classes_) == set(y)
    own = es.KernelClassifier(loss, alpha=model.alpha_, **OPTIONS).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), own.predict(X))


@pytest.mark.slow
def test_one_factor_for_all_folds_and_values(monkeypatch):
    made = []
    build = factorization.METHODS["cholesky"]
    monkeypatch.setitem(factorization.METHODS, "cholesky", lambda *args: made.append(1) or build(*args))
    model = es.KernelClassifierCV(alphas=ALPHAS, kernel=KERNEL, tol=1e-3).fit(X, CLASSES)
    assert model.scores_.shape == (4, 5) and model.intercept_.shape == (3,)
    assert len(made) == 3 + 1  # one per class, and one for the fit of all rows


@pytest.mark.slow
def test_one_process_beside_a_configuration_of_joblib():
    """The estimator's number counts; its fits write into arrays of this process."""
    model = es.KernelRegressorCV(alphas=ALPHAS, kernel=KERNEL, cv=3, n_jobs=1)
    with parallel_config(n_jobs=2):
        assert np.isfinite(model.fit(X, Y).scores_).all()


@pytest.mark.slow
def test_processes(monkeypatch):
    """Each has some of the folds, in order, and its own factor; a lambda reaches them."""
    made = []
    build = factorization.METHODS["cholesky"]
    monkeypatch.setitem(factorization.METHODS, "cholesky", lambda *args: made.append(1) or build(*args))
    wide = np.column_stack([X, RNG.normal(size=(N, 2200))])  # joblib maps arrays from 1 MB on, read-only
    smooth = ko.kernels.Gaussian(sigma=40.0)
    for model, points, y in [
        (es.KernelClassifierCV(alphas=ALPHAS, **OPTIONS), X, CLASSES),
        (es.KernelRegressorCV(lambda y, f: cp.square(y - f), alphas=ALPHAS, kernel=smooth), wide, Y),
    ]:
        alone = clone(model).fit(points, y)
        made.clear()
        together = clone(model).set_params(n_jobs=2).fit(points, y)
        assert len(made) == 1  # here, for the fit to all rows
        assert together.scores_.shape == (4, 5) and len(np.unique(together.scores_[0])) > 1
        np.testing.assert_allclose(together.scores_, alone.scores_, atol=1e-4)
        assert together.alpha_ == alone.alpha_


@pytest.mark.slow
def test_errors_in_processes():
    with pytest.raises(DataError, match="an entry for each row"):
        es.KernelRegressorCV(lambda y, f: cp.sum_squares(y - f), alphas=ALPHAS, n_jobs=2).fit(X, Y)


@pytest.mark.parametrize("n_jobs", [0, True, 2.0, "2"])
def test_numbers_of_processes_that_are_none(n_jobs):
    with pytest.raises(OptionError, match="Expected n_jobs to be an integer other than 0"):
        es.KernelRegressorCV(alphas=ALPHAS, n_jobs=n_jobs).fit(X, Y)


@pytest.mark.slow
def test_weights():
    """A row of weight 0 is left out, whatever its target."""
    weights = RNG.uniform(0.5, 2.0, size=N)
    weights[:5] = 0.0
    wild = Y.copy()
    wild[:5] = 1e6
    folds = list(KFold(4).split(X))
    model = es.KernelRegressorCV(alphas=ALPHAS, cv=folds, **OPTIONS).fit(X, wild, sample_weight=weights)
    same = es.KernelRegressorCV(alphas=ALPHAS, cv=folds, **OPTIONS).fit(X, Y, sample_weight=weights)
    np.testing.assert_allclose(model.scores_, same.scores_)
    np.testing.assert_allclose(model.predict(X), same.predict(X))


@pytest.mark.slow
def test_repeated_rows_are_weights():
    """With folds of groups of equal rows, as scikit-learn compares them."""
    counts = RNG.integers(1, 4, size=N)
    rows = np.repeat(np.arange(N), counts)
    folds = list(KFold(3).split(X))
    copies = [(np.flatnonzero(np.isin(rows, train)), np.flatnonzero(np.isin(rows, test))) for train, test in folds]
    one = es.KernelRegressorCV(alphas=ALPHAS, cv=folds, **OPTIONS).fit(X, Y, sample_weight=counts)
    other = es.KernelRegressorCV(alphas=ALPHAS, cv=copies, **OPTIONS).fit(X[rows], Y[rows])
    np.testing.assert_allclose(one.scores_, other.scores_, atol=2e-3)
    assert one.alpha_ == other.alpha_


@pytest.mark.slow
def test_precomputed_kernel_values():
    Q = KERNEL(X, X)
    folds = list(StratifiedKFold(3).split(X, LABELS))
    model = es.KernelClassifierCV(alphas=ALPHAS, cv=folds, kernel="precomputed").fit(Q, LABELS)
    same = es.KernelClassifierCV(alphas=ALPHAS, cv=folds, kernel=KERNEL).fit(X, LABELS)
    np.testing.assert_allclose(model.scores_, same.scores_, atol=0.04)
    assert model.function_ is None and model.predict(Q[:3]).shape == (3,)


@pytest.mark.slow
def test_habits_of_scikit_learn():
    model = es.KernelRegressorCV(alphas=3, cv=3)
    assert clone(model).get_params() == model.get_params() and "alpha" not in model.get_params()
    pipeline = make_pipeline(StandardScaler(), model).fit(X, Y)
    fitted = pipeline[-1]
    assert (
        len(fitted.alphas_) == 3
        and fitted.alphas_[0] == pytest.approx(5e-5)
        and fitted.alphas_[-1] == pytest.approx(5e3)
    )
    again = pickle.loads(pickle.dumps(pipeline))
    np.testing.assert_array_equal(again.predict(X), pipeline.predict(X))
    assert "_known" not in vars(fitted) and "alpha" not in vars(fitted)
    with pytest.raises(TypeError, match=r"Write alphas=\[alpha\]"):
        es.KernelRegressorCV(alpha=1.0)


@pytest.mark.parametrize("alphas", [[], [1.0, -1.0], [np.nan], "auto", 0, True, [[1.0]], None, [1.0, np.inf]])
def test_alphas_that_are_none(alphas):
    with pytest.raises(OptionError, match="alphas to be numbers > 0"):
        es.KernelRegressorCV(alphas=alphas).fit(X, Y)


@pytest.mark.slow
def test_folds_without_a_class_or_without_rows():
    """A fold of which no classifier can be fitted is refused, as is one without rows to fit, or to judge."""
    first = np.flatnonzero(LABELS == "up")
    folds = [(first, np.setdiff1d(np.arange(N), first)), *StratifiedKFold(2).split(X, LABELS)]
    with pytest.raises(DataError, match="those of fold 0 are of one, 'up'"):
        es.KernelClassifierCV(alphas=ALPHAS, cv=folds, kernel=KERNEL).fit(X, LABELS)
    with pytest.raises(DataError, match="rows of positive weight on both sides"):
        es.KernelRegressorCV(cv=[(np.arange(N), np.arange(0))]).fit(X, Y)
    with pytest.raises(DataError, match="at least two classes"):
        es.KernelClassifierCV().fit(X, np.ones(N))


@pytest.mark.slow
def test_time_limits_and_options_reach_the_solves():
    model = es.KernelRegressorCV(alphas=ALPHAS, solve_options={"max_rank": 5}, kernel=KERNEL)
    with pytest.warns(UserWarning, match="optimal_inaccurate"):
        model.fit(X, Y)
    assert len(model.pivots_) <= 5


def left_out_loss(estimator, y, loss, cv, weights):
    """Σ wᵢℓᵢ/Σ wᵢ over rows left out, by plain fits."""
    total = 0.0
    for train, test in cv.split(X):
        f = clone(estimator).fit(X[train], y[train], sample_weight=weights[train])
        total += weights[test] @ loss(y[test], f.predict(X[test]))
    return total / weights.sum()


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 1e-4])
def test_tune_chooses_alpha_and_gamma(scale):
    cv, weights = KFold(3, shuffle=True, random_state=1), RNG.integers(0, 3, N).astype(float)
    y = scale * Y
    options = {"fit_intercept": True, "tol": 1e-8}
    model = es.KernelRegressorCV(alphas=[1e-3, 10.0], cv=cv, tune=True, **options).fit(X, y, weights)
    assert 1e-3 <= model.alpha_ <= 10.0 and not hasattr(model, "scores_")
    found = es.KernelRegressor(alpha=model.alpha_, gamma=model.gamma_, **options)
    squares = lambda y, f: (y - f) ** 2
    np.testing.assert_allclose(-model.best_score_, left_out_loss(found, y, squares, cv, weights), rtol=1e-3)
    for alpha, gamma in [(3.0, 1.0), (1 / 3, 1.0), (1.0, 1.5), (1.0, 1 / 1.5)]:
        other = found.set_params(alpha=alpha * model.alpha_, gamma=gamma * model.gamma_)
        if other.alpha <= 10.0:
            assert left_out_loss(other, y, squares, cv, weights) > -model.best_score_ * 1.0005
    np.testing.assert_allclose(
        model.predict(X),
        es.KernelRegressor(alpha=model.alpha_, gamma=model.gamma_, **options).fit(X, y, weights).predict(X),
        atol=1e-6 * scale,
    )
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.search_["criterion"], model.search_["criterion"])


@pytest.mark.slow
def test_tune_chooses_scales_of_columns():
    wide = np.column_stack([X[:, 0], RNG.normal(size=(N, 2))])
    y = np.sin(2 * wide[:, 0])
    model = es.KernelRegressorCV("huber", cv=3, tune="columns").fit(wide, y)
    assert model.scales_.shape == (3,) and model.scales_[1:].min() > 5 * model.scales_[0]
    assert model.function_.kernel == ko.kernels.Gaussian(sigma=(2 / (3 * wide.var())) ** -0.5).ard(model.scales_)
    model.set_params(tune=False).fit(wide, y)
    assert not hasattr(model, "scales_") and not hasattr(model, "search_") and hasattr(model, "scores_")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "y"), [("hinge", LABELS), ("hinge", CLASSES), ("multinomial", CLASSES), ("log_loss", CLASSES)]
)
def test_tune_of_classifiers(loss, y):
    model = es.KernelClassifierCV(loss, cv=2, tune=True, alphas=[1e-2, 10.0]).fit(X, y)
    assert model.search_.value < model.search_["criterion"][0] and model.score(X, y) > 0.7
    same = es.KernelClassifier(loss, alpha=model.alpha_, gamma=model.gamma_).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), same.predict(X))


@pytest.mark.slow
def test_tune_of_a_kernel_without_gamma_chooses_alpha():
    Q = KERNEL(X)
    model = es.KernelRegressorCV(kernel="precomputed", cv=3, tune=True).fit(Q, Y)
    same = es.KernelRegressorCV(kernel=KERNEL, cv=3, tune=True).fit(X, Y)
    assert model.alpha_ == pytest.approx(same.alpha_, rel=1e-6) and not hasattr(same, "gamma_")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tune": "gamma"}, 'Expected tune to be False, True or "columns"'),
        ({"tune": 1.5}, 'Expected tune to be False, True or "columns"'),
        ({"tune": "columns", "kernel": "precomputed"}, "Expected a kernel of vectors"),
        ({"tune": True, "kernel": KERNEL, "alphas": [1.0]}, "Expected something to choose"),
    ],
)
def test_invalid_tune(options, message):
    with pytest.raises(OptionError, match=message):
        es.KernelRegressorCV(**options).fit(KERNEL(X), Y)


def test_folds_that_leave_out_the_same_rows():
    """As GridSearchCV; training rows that stand in a fold twice count twice."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 2))
    y = np.sin(X[:, 0])
    same = [(np.arange(20, 40), np.arange(20)), (np.arange(30, 40), np.arange(20))]
    twice = [(np.r_[np.arange(20), np.arange(5)], np.arange(20, 40)), (np.arange(20, 40), np.r_[np.arange(20), 3, 3])]
    for cv in (same, twice):
        model = ko.estimators.KernelRegressorCV(alphas=[0.1, 1.0], cv=cv, gamma=0.5, tol=1e-8).fit(X, y)
        found = GridSearchCV(ko.estimators.KernelRegressor(gamma=0.5), {"alpha": [0.1, 1.0]}, cv=cv).fit(X, y)
        assert np.allclose(model.scores_.mean(axis=1), found.cv_results_["mean_test_score"], atol=2e-3)


def test_folds_of_one_class_are_named():
    X, y = np.linspace(0, 1, 40)[:, None], np.repeat(["a", "b"], 20)
    with pytest.raises(DataError, match="those of fold 0 are of one, 'b'"):
        ko.estimators.KernelClassifierCV(alphas=[1.0], cv=KFold(2)).fit(X, y)
    one = [(np.arange(10, 30), np.arange(10)), (np.arange(10, 30), np.arange(30, 40))]
    with pytest.raises(DataError, match="there is none. fold 1: y_true contains only one label"):
        ko.estimators.KernelClassifierCV("log_loss", alphas=[1.0], cv=one, scoring="neg_log_loss").fit(X, y)
    with pytest.warns(UndefinedMetricWarning), pytest.raises(DataError, match="take stratified folds"):
        ko.estimators.KernelClassifierCV("log_loss", alphas=[1.0], cv=one, scoring="roc_auc").fit(X, y)


@pytest.mark.parametrize("cv", [1, 41, True, [(np.arange(20.0), [21])], [(np.ones(39, dtype=bool), [1])]])
def test_folds_that_are_none(cv):
    X = np.linspace(0, 1, 40)[:, None]
    with pytest.raises(OptionError, match="Expected cv to"):
        ko.estimators.KernelRegressorCV(alphas=[1.0], cv=cv).fit(X, X[:, 0])


@pytest.mark.slow
def test_an_interrupted_search_leaves_no_fit(monkeypatch):
    """Ctrl-C after the first evaluation of `tune`."""
    X = np.linspace(0, 6, 40)[:, None]
    calls, plain = [], tuning.gradient

    def interrupted(*args, **named):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return plain(*args, **named)

    monkeypatch.setattr(tuning, "gradient", interrupted)
    model = ko.estimators.KernelRegressorCV("huber", tune=True, cv=2)
    with pytest.raises(KeyboardInterrupt) as caught:
        model.fit(X, np.sin(X[:, 0]))
    assert len(caught.value.table) == 1
    assert not [name for name in vars(model) if name.endswith("_")]
