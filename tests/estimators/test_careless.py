"""Arguments that no fit can use are refused with what was expected, and change nothing."""

import cvxpy as cp
import numpy as np
import pytest

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
    with pytest.raises(KernelError):
        model.set_params(alpha=7, kernel__sigma=-1)
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
