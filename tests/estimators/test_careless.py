"""Arguments that no fit can use are refused with what was expected, and change nothing."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import GridSearchCV

import kernelopt as ko
from kernelopt.errors import DataError, DataTypeError, KernelError, OptionError

X = np.linspace(0, 1, 40)[:, None]
HALVES = np.repeat([0, 1], 20)
E = ko.estimators


def test_counts_that_are_all_equal_have_no_deviance():
    """As scikit-learn's own estimators, NaN; folds of which none has a score are refused."""
    model = E.KernelRegressor("poisson").fit(X, 1.0 * HALVES)
    assert np.isnan(model.score(X[:5], HALVES[:5]))
    assert np.isnan(model.score(X[18:22], HALVES[18:22], sample_weight=[1, 1, 0, 0]))
    assert model.score(X[18:22], HALVES[18:22]) <= 1
    with pytest.raises(DataError, match="Expected folds where the score"):
        E.KernelRegressorCV("poisson", alphas=[0.1, 1], cv=4).fit(X, 1.0 * HALVES)


@pytest.mark.parametrize("weights", [{0: -1}, {0: np.nan}, {0: "much"}, {1: np.inf}])
def test_class_weights_that_are_no_weights(weights):
    with pytest.raises(OptionError, match="Expected class_weight with finite numbers"):
        E.KernelClassifier(class_weight=weights).fit(X, HALVES)


@pytest.mark.parametrize(("weights", "rows"), [({0: 0, 1: 0}, None), ({0: 0}, HALVES == 0)])
def test_class_weights_that_leave_no_row(weights, rows):
    with pytest.raises(DataError, match="got no row"):
        E.KernelClassifier(class_weight=weights).fit(X, HALVES, sample_weight=None if rows is None else 1.0 * rows)


@pytest.mark.parametrize("labels", [["a", 1], ["a", None], [(1,), 2]])
@pytest.mark.parametrize("model", [E.KernelClassifier(), E.KernelClassifier("multinomial"), E.KernelPerceptron()])
def test_labels_without_an_order(model, labels):
    y = np.empty(40, dtype=object)
    y[:20], y[20:] = ([label] * 20 for label in labels)
    with pytest.raises(DataTypeError, match="Expected labels of one type"):
        model.fit(X, y)


@pytest.mark.parametrize("rows", [np.arange(50), np.array([-1, 3])])
def test_folds_of_rows_that_are_not_there(rows):
    with pytest.raises(OptionError, match="numbers of the 40 rows"):
        E.KernelRegressorCV(alphas=[0.1], cv=[(rows, [1])]).fit(X, X[:, 0])
    assert E.KernelRegressorCV(alphas=[0.1], cv=[(HALVES == 0, HALVES == 1)]).fit(X, X[:, 0]).alpha_ == 0.1


@pytest.mark.parametrize("scoring", [["r2"], lambda *_: "good"])
def test_scores_that_are_no_numbers(scoring):
    with pytest.raises(OptionError, match="Expected scoring to name one score"):
        E.KernelRegressorCV(alphas=[0.1], scoring=scoring).fit(X, X[:, 0])
    assert E.KernelRegressorCV(alphas=[0.1], scoring=lambda *_: np.array(1.0)).fit(X, X[:, 0]).best_score_ == 1.0


def test_refused_parameters_change_nothing():
    model = E.KernelClassifier(kernel=ko.kernels.Gaussian(sigma=1.0), alpha=0.3)
    with pytest.raises(KernelError, match="sigm"):
        model.set_params(alpha=7, kernel__sigm=2.0)
    assert model.alpha == 0.3
    assert model.set_params(alpha=7, kernel__sigma=2.0).kernel.sigma == 2.0 and model.alpha == 7
    new = ko.kernels.Laplacian(sigma=1.0)
    assert model.set_params(kernel=new, kernel__sigma=3.0).kernel.sigma == 3.0
    assert isinstance(model.kernel, ko.kernels.Laplacian)
    named = E.KernelClassifier(kernel="rbf", alpha=0.3)
    with pytest.raises(OptionError):
        named.set_params(alpha=7, kernel__sigma=1.0)
    assert named.alpha == 0.3


def test_a_parameter_that_takes_no_value_is_not_tuned():
    a, w = cp.Parameter(nonneg=True, value=0.3), cp.Parameter(40, nonneg=True, value=np.ones(40))
    theta, twice = ko.Theta(ko.kernels.Gaussian(sigma=0.5)), cp.CallbackParam(lambda: 2 * a.value, nonneg=True)
    terms = ko.losses.squared_error(X[:, 0], theta(X))
    problem = ko.Problem(cp.Minimize(w @ terms + twice * ko.sum_squares(theta)))
    with pytest.raises(ko.errors.ParameterError, match="CallbackParam"):
        ko.tune(problem, ko.CrossValidatedLoss(w, terms), [twice])


def test_parameters_of_cvxpy_and_missing_labels():
    rng = np.random.default_rng(0)
    X, one = rng.normal(size=(12, 2)), cp.Parameter(value=1.0)
    for estimator, error in (
        (ko.estimators.KernelRegressorCV(tune=one), OptionError),
        (ko.estimators.KernelRegressor("huber", delta=one), DataError),
    ):
        with pytest.raises(error, match="Expected"):
            estimator.fit(X, X[:, 0])
    pandas = pytest.importorskip("pandas")
    labels = pandas.Series(["a", "b", None] * 4, dtype="string")
    with pytest.raises(DataError, match="without missing values"):
        ko.estimators.KernelClassifier().fit(X, labels)


def test_parameters_that_the_kernel_does_not_take_are_refused_by_fit():
    """A search goes on without such a candidate, as with scikit-learn's estimators."""
    model = E.KernelRegressor(kernel=ko.kernels.Gaussian(sigma=1.0))
    with pytest.warns((FitFailedWarning, UserWarning)):
        found = GridSearchCV(model, {"kernel__sigma": [-1, 1.0]}, cv=2).fit(X, X[:, 0])
    assert np.isnan(found.cv_results_["mean_test_score"]).tolist() == [True, False]
    model.set_params(kernel__sigma=-1)
    assert model.get_params()["kernel__sigma"] == -1 and "sigma=-1" in repr(model)
    for fit in (model.fit, clone(model).fit):
        with pytest.raises(KernelError, match="Expected sigma to be a number > 0; got -1"):
            fit(X, X[:, 0])
    assert model.set_params(kernel__sigma=2.0).kernel == ko.kernels.Gaussian(sigma=2.0)


@pytest.mark.parametrize("model", [E.KernelRegressor(), E.NuKernelRegressor(), E.KernelRegressorCV(alphas=[1.0])])
def test_strings_and_sparse_matrices_as_targets(model):
    pd = pytest.importorskip("pandas")
    names = ["a", "b"] * 20
    for y in (
        pd.Series(names),
        pd.Series(names, dtype="category"),
        pd.Categorical(names),
        pd.Series(names, dtype="string"),
    ):
        with pytest.raises(DataError, match="Expected y to be real numbers; got 'a'"):
            model.fit(X, y)
    with pytest.raises(DataTypeError, match=r"Expected y to be an array; got a sparse matrix.*y.toarray"):
        model.fit(X, sp.csr_array(X))
    model.fit(X, X[:, 0])
    with pytest.raises(DataError, match="Expected y to be real numbers; got 'a'"):
        model.score(X, pd.Series(names))
    with pytest.raises(DataTypeError, match="got a sparse matrix"):
        E.KernelClassifier().fit(X, sp.csr_array(1.0 * HALVES[:, None]))


def test_quantiles_that_were_set_after_the_fit():
    model = E.KernelQuantileRegressor([0.1, 0.5]).fit(X, X[:, 0]).set_params(quantiles=[0.1, 0.5, 0.9])
    with pytest.raises(OptionError, match=r"Expected the quantiles of the fit, \[0.1, 0.5\]; got \[0.1, 0.5, 0.9\]"):
        model.score(X, X[:, 0])


@pytest.mark.parametrize("loss", ["log_loss", "multinomial"])
def test_decisions_beyond_double_precision_have_no_probability(loss):
    """They would be NaN: ∞ − ∞."""
    y = np.digitize(X[:, 0], [0.3, 0.6])
    model = E.KernelClassifier(loss, alpha=1e-3, kernel="precomputed").fit(X @ X.T, y)
    with pytest.raises(KernelError, match="Expected predictions in the range of double precision; that at point 1"):
        model.predict_proba(np.vstack([X[:1] @ X.T, np.full((1, 40), 1e308)]))


@pytest.mark.parametrize("value", [0.0, 3.3, 1e6])
def test_a_constant_target_is_fitted_without_warnings(value):
    y = np.full(40, value)
    for model in (E.NuKernelRegressor(), E.KernelRegressor("absolute_error"), E.KernelQuantileRegressor([0.1, 0.9])):
        assert np.allclose(model.fit(X, y).predict(X[:3]), value, rtol=1e-9)
    E.KernelRegressor("absolute_error", fit_intercept=False, tol=1e-4).fit(X, y)  # no unit to standardize
