"""Estimators of stated problems."""

import pickle
from copy import deepcopy

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from_problem = ko.estimators.from_problem
RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(50, 2)), RNG.normal(size=(20, 2))
y = np.sin(X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=50)
GROUP = X[:, 1] > 0
GAUSSIAN = ko.kernels.Gaussian(sigma=1.0)


def ridge(X, y, lam=0.1, kernel=GAUSSIAN, sample_weight=None):
    """Ridge regression, by a statement."""
    theta = ko.Theta(kernel)
    f = theta(X)
    w = np.ones(len(y)) if sample_weight is None else sample_weight
    return ko.Problem(cp.Minimize(w @ cp.square(y - f) + lam * ko.sum_squares(theta))), f


Ridge = from_problem(ridge)


def fair(X, y, group, lam=0.1):
    theta, b = ko.Theta(GAUSSIAN), cp.Variable()
    f = lambda X: theta(X) + b
    means = [cp.sum(f(X[g])) / g.sum() for g in (group, ~group)]
    loss = cp.sum(ko.losses.hinge(y, f(X)))
    return ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)), [means[0] == means[1]]), f


Fair = from_problem(fair, kind="classifier")


@from_problem
def decorated(X, y, lam=1.0):
    theta, beta = ko.Theta(GAUSSIAN), cp.Variable(X.shape[1])
    f = theta(X) + X @ beta
    return ko.Problem(cp.Minimize(cp.sum_squares(y - f) + lam * ko.sum_squares(theta) + cp.sum_squares(beta))), f


def squares_of_columns(X, y, lam=1.0):
    """f says more than its tree: columns of X are chosen, and what is made of them is a number."""
    theta, beta = ko.Theta(GAUSSIAN), cp.Variable()
    f = lambda X: theta(X[:, :1]) + beta * X[:, 1] ** 3
    return ko.Problem(cp.Minimize(cp.sum_squares(y - f(X)) + lam * ko.sum_squares(theta))), f


@pytest.mark.later
def test_it_is_the_problem():
    theirs = KernelRidge(alpha=0.5, kernel="rbf", gamma=0.5).fit(X, y)
    ours = Ridge(lam=0.5).fit(X, y)
    assert np.abs(ours.predict(Z) - theirs.predict(Z)).max() < 1e-5
    assert ours.score(Z, y[:20]) == pytest.approx(theirs.score(Z, y[:20]), abs=1e-5)
    assert ours.certificate_.relative_gap < 1e-6 and ours.n_features_in_ == 2
    w = RNG.integers(1, 4, size=50)
    weighted = Ridge(lam=0.5).fit(X, y, sample_weight=w).predict(Z)
    assert np.abs(weighted - KernelRidge(alpha=0.5, kernel="rbf", gamma=0.5).fit(X, y, w).predict(Z)).max() < 1e-5
    assert Ridge.__name__ == "ridge" and Ridge.__doc__ == ridge.__doc__


def test_parameters_are_those_of_build():
    model = Ridge(lam=0.5, solve_options={"tol": 1e-8})
    assert model.get_params(deep=False) == {
        "kernel": GAUSSIAN, "lam": 0.5, "sample_weight": None, "solve_options": {"tol": 1e-8},
    }  # fmt: skip
    assert repr(Ridge(lam=0.5)) == "ridge(lam=0.5)"
    copy = clone(model).set_params(lam=2.0, kernel__sigma=3.0)
    assert (copy.lam, copy.kernel, model.kernel) == (2.0, ko.kernels.Gaussian(sigma=3.0), GAUSSIAN)
    with pytest.raises(TypeError, match="ridge has no parameter sigma; it has lam, kernel"):
        Ridge(sigma=1.0)
    with pytest.raises(ValueError, match="Invalid parameter"):
        model.set_params(sigma=1.0)


@pytest.mark.slow
def test_model_selection():
    grid = {"lam": [0.01, 100.0], "kernel__sigma": [0.5, 2.0]}
    search = GridSearchCV(Ridge(), grid, cv=3).fit(X, y)
    assert search.best_params_["lam"] == 0.01 and search.best_score_ > 0.8
    assert np.array_equal(search.predict(Z), search.best_estimator_.predict(Z))
    assert cross_val_score(make_pipeline(StandardScaler(), Ridge()), X, y, cv=3).min() > 0.5
    labels = np.where(y > 0, "up", "down")
    search = GridSearchCV(Fair(), {"lam": [0.1, 1.0]}, cv=3).fit(X, labels, group=GROUP)
    assert search.best_score_ > 0.5


@pytest.mark.later
def test_data_beside_x_and_y():
    labels = np.where(y > 0, "up", "down")
    model = Fair().fit(X, labels, group=GROUP)
    f = model.decision_function(X)
    assert abs(f[GROUP].mean() - f[~GROUP].mean()) < 1e-5
    assert list(model.classes_) == ["down", "up"] and set(model.predict(Z)) <= {"down", "up"}
    with pytest.raises(ValueError, match="missing: group"):
        Fair().fit(X, labels)
    with pytest.raises(ValueError, match="got groups"):
        Fair().fit(X, labels, group=GROUP, groups=GROUP)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        Fair().fit(X, labels, group=GROUP[:-1])
    with pytest.raises(ValueError, match=r"one class, 1\.0, with"):
        Fair().fit(X, np.ones(50), group=GROUP)


@pytest.mark.slow
def test_several_classes():
    def joint(X, y, lam=0.1):
        theta, b = ko.Theta(ko.kernels.Gaussian(sigma=3.0), outputs=3), cp.Variable(3)
        F = theta(X) + b[None, :]
        return ko.Problem(cp.Minimize(cp.sum(ko.losses.crammer_singer(y, F)) + lam * ko.sum_squares(theta))), F

    iris = load_iris()
    model = from_problem(joint, "classifier")().fit(iris.data, iris.target_names[iris.target])
    assert model.decision_function(iris.data).shape == (150, 3)
    assert model.score(iris.data, iris.target_names[iris.target]) > 0.95


@pytest.mark.parametrize("model", [Ridge(), Fair(), decorated()], ids=["regressor", "classifier", "decorated"])
def test_saved(model):
    data = {"group": GROUP} if isinstance(model, Fair) else {}
    model = clone(model).fit(X, np.sign(y) if data else y, **data)
    saved = pickle.dumps(model)
    assert b"cvxpy.problems" not in saved and b"kernelopt.problem" not in saved
    for copy in (pickle.loads(saved), deepcopy(model)):
        assert type(copy) is type(model)
        assert np.array_equal(copy.predict(Z), model.predict(Z))
        assert copy.get_params() == model.get_params()
        assert clone(copy).get_params() == model.get_params()


def test_parametric_parts_are_found_in_the_tree():
    model = decorated(lam=10.0).fit(X, y)
    theta, beta = ko.Theta(GAUSSIAN), cp.Variable(2)
    f = lambda X: theta(X) + X @ beta
    ko.Problem(cp.Minimize(cp.sum_squares(y - f(X)) + 10 * ko.sum_squares(theta) + cp.sum_squares(beta))).solve()
    assert np.abs(model.predict(Z) - f(Z).value).max() < 1e-5


def test_a_function_of_points_that_is_more_than_its_tree():
    model = from_problem(squares_of_columns)().fit(X, y)
    assert model.predict(Z).shape == (20,)
    one = model.predict(Z)
    assert np.abs(model.predict(Z + np.array([0.0, 1.0])) - one).max() > 0.01
    assert np.array_equal(deepcopy(model).predict(Z), one)


def not_row_wise(X, y):
    theta = ko.Theta(GAUSSIAN)
    f = theta(X) + np.arange(len(y))
    return ko.Problem(cp.Minimize(cp.sum_squares(y - f) + ko.sum_squares(theta))), f


def nothing(X, y):
    return None


def unbounded(X, y):
    theta = ko.Theta(GAUSSIAN)
    return ko.Problem(cp.Minimize(cp.sum(theta(X)))), theta(X)


def of_another_theta(X, y):
    return ridge(X, y)[0], ko.Theta(GAUSSIAN)(X)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (of_another_theta, ko.errors.DataError, "of the problem that build returns"),
        (not_row_wise, ko.errors.DataError, "i-th row of X alone"),
        (nothing, ko.errors.DataError, r"return \(problem, f\)"),
        (unbounded, ko.errors.SolverError, "unbounded"),
    ],
)
def test_statements_that_cannot_be_used(build, error, message):
    with pytest.raises(error, match=message):
        from_problem(build)().fit(X, y)


@pytest.mark.parametrize(
    "build", [3, lambda X: None, lambda X, *args: None, lambda X, y, solve_options: None, lambda X, y, fit=1: None]
)
def test_what_is_no_statement(build):
    with pytest.raises(ko.errors.OptionError, match="build"):
        from_problem(build)
    with pytest.raises(ko.errors.OptionError, match="kind"):
        from_problem(ridge, "ranker")


def test_what_build_gets_is_read_only_and_named():
    """The arrays may be the caller's."""
    X, y = np.linspace(0, 1, 12)[:, None], np.linspace(0, 1, 12)

    def stated(X, y, changes=False):
        theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
        f = theta(X)
        if changes:
            y *= 2
        return ko.Problem(cp.Minimize(cp.sum_squares(y - f) + ko.sum_squares(theta))), f

    def numbered(X, y):
        problem, f = stated(X, y)
        return problem, f[np.argsort(-X[:, 0])]

    Stated = from_problem(stated)
    Stated().fit(X, y)
    with pytest.raises(ValueError, match="read-only"):
        Stated(changes=True).fit(X, y)
    assert y[-1] == 1
    with pytest.raises(ko.errors.DataError, match="out of bounds"):
        from_problem(numbered)().fit(X, y)

    def bound(X, y, self=1.0):
        return stated(X, y)

    with pytest.raises(ko.errors.OptionError, match="than self"):
        from_problem(bound)
