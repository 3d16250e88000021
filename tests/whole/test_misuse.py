"""A share of the wrong calls of `misuse.py`, and what that file finds when it is planted."""

import cvxpy as cp
import numpy as np
import pytest
from misuse import entries, finding, in_a_folder_of_its_own, outcome

import kernelopt as ko
from kernelopt.errors import DataError

ENTRIES = entries()


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 600, 100))
def test_wrong_calls_are_explained(first):
    with in_a_folder_of_its_own():
        outcomes = [outcome(seed, ENTRIES) for seed in range(first, first + 100)]
    wrong = [o for o in outcomes if o.finding not in (None, "warning")]
    assert not wrong, "\n".join(f"{o.finding} {o.shown} {o.detail} {o.place}" for o in wrong)
    assert sum(bool(o.detail) for o in outcomes) > 40  # most calls raise


def test_every_kind_of_name_is_called():
    names = {entry.name for entry in ENTRIES}
    assert {
        "Theta",
        "kernels.Gaussian",
        "losses.hinge",
        "estimators.FeatureMap fitted",
        "Theta.inner",
        "Gaussian.__add__",
        "Problem.solve",
        "Theta.value",
        "Problem.from_cvxpy",
        "plots.gram",
    } <= names
    assert {name.split(".")[0] for name in names} >= {"kernels", "losses", "estimators", "feature_space", "plots"}


def raised(call):
    try:
        call()
    except Exception as error:
        return error
    return None


def planted(error):
    def call():
        raise error

    return call


def test_findings():
    assert finding(raised(planted(AttributeError("'int' object has no attribute 'x'")))) == "foreign"
    assert finding(raised(planted(KeyError("x")))) == "foreign"
    assert finding(raised(planted(DataError("This is wrong.")))) == "unexplained"
    assert finding(raised(planted(DataError("Expected a number; got 'a'.")))) is None
    assert finding(raised(lambda: np.zeros(2) @ np.zeros(3))) == "bare"
    assert finding(raised(lambda: ko.Theta(1, 2, 3, 4, 5)), "Theta") is None


THETA = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
F = ko.Function(THETA.kernel, [[0.0]], [1.0])
OTHER = ko.Function(ko.kernels.Linear(), [[0.0]], [1.0])
# What once raised from the inside, or was taken silently.
ONCE = {
    "theta.inner": (lambda: THETA.inner(5), "f₀ in theta.inner.* a ko.Function; got int, 5"),
    "f.inner": (lambda: F.inner("x"), "a ko.Function; got str"),
    "inner products across kernels": (lambda: F.gram(OTHER), "one kernel; got Gaussian.* and Linear"),
    "right": (lambda: F.right(np.nan), "M in f.right.* finite"),
    "a kernel of scikit-learn": (lambda: ko.kernels.FromSklearn(5), "a kernel of sklearn.gaussian_process.*; got 5"),
    "cross_validate": (lambda: ko.cross_validate(None, None, None, []), "problem to be a ko.Problem; got NoneType"),
    "axes": (lambda: ko.plots.gram(np.eye(2), ax=5), "Axes of matplotlib; got int"),
    "an empty sum": (lambda: ko.kernels.Sum([]), "terms to be a sequence of kernels, one or more"),
    "a method": (lambda: ko.estimators.FeatureMap(method="x").fit(np.eye(3)), "method to be one of .*; got 'x'"),
    "a large number": (lambda: ko.kernels.Gaussian(sigma=10**400), "sigma to be a number > 0; got 1000.*000"),
    "a number without a text": (lambda: ko.kernels.Gaussian(sigma=10**5000), "sigma to be a number > 0; got <int>"),
    "large data": (lambda: THETA([[10**400]]), "numbers below 1e308"),
    "True for a number": (lambda: ko.Theta(THETA.kernel, outputs=True), "outputs to be an integer ≥ 1.*; got True"),
    "constraints": (lambda: ko.Problem(cp.Minimize(ko.norm(THETA)), 0), "a list of constraints, or None; got 0"),
    "θ for a kernel": (lambda: ko.Theta(THETA), "Expected a kernel.*; got θ"),
    "a function of one number": (lambda: ko.Theta(np.sin), "a function of two points; got <ufunc 'sin'>"),
    "a file that is open": (lambda: ko.load(1), "path to be a path.*; got int, 1"),
    "weights without a sum": (
        lambda: ko.estimators.KernelRegressor().fit(np.eye(3), np.ones(3), sample_weight=np.full(3, 1e308)),
        "whose sum is a finite number; got 1e.308 at 0. Divide",
    ),
    "neighbours of other columns": (
        lambda: ko.feature_space.nearest_neighbors(THETA.kernel, np.ones((6, 3)), np.ones((4, 2))),
        "equally many columns; got shapes .6, 3. and .4, 2.",
    ),
    "a problem times 1e308": (
        lambda: (ko.Problem(cp.Minimize(ko.sum_squares(THETA) + cp.sum_squares(THETA([[0.0]]) - 1))) * 1e308).solve(),
        "coefficients of the objective between .*Change units",
    ),
    "memory": (
        lambda: ko.feature_space.kernel_svd(THETA.kernel, [[0.0]], memory_limit="1GB"),
        "memory_limit to be a number of bytes.*; got '1GB'",
    ),
}


@pytest.mark.parametrize("name", ONCE)
def test_what_once_came_from_the_inside(name):
    call, words = ONCE[name]
    with pytest.raises(ko.errors.KernelOptError, match=words):
        call()


@pytest.mark.slow
def test_more_processes_than_an_int_holds():
    """As many as there are folds."""
    model = ko.estimators.KernelRegressorCV(alphas=[0.1, 1.0], cv=2, n_jobs=10**400)
    assert model.fit(np.arange(8.0)[:, None], np.arange(8.0)).alpha_ in (0.1, 1.0)


def test_a_complex_f():
    f = THETA([[0.0], [1.0]])
    problem = ko.Problem(cp.Minimize(cp.sum_squares(f - 1) + ko.sum_squares(THETA)))
    problem.solve()
    with pytest.raises(ko.errors.DataError, match="a real affine expression of predictions"):
        ko.approximate_leave_one_out(problem, f + 1j)


def test_names_that_mappings_do_not_have():
    """As KeyError for `get` and `in`, and with a message that prints as other messages do."""
    table = ko.Problem(cp.Minimize(ko.norm(THETA))).solvers()
    assert "NO_SUCH" not in table and table.get("NO_SUCH", 1) == 1
    with pytest.raises(KeyError) as told:
        table["NO_SUCH"]
    assert str(told.value).startswith("Expected one of the solvers")
