"""Cross-validation against fits of the rows alone, and scikit-learn's."""

import os
import sys
import threading
import traceback

import cvxpy as cp
import numpy as np
import pytest
from clocks import moved
from inside import reduction_of
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold

import kernelopt as ko
from kernelopt.errors import (
    DataError,
    KernelOptError,
    MemoryLimitError,
    MissingPackageError,
    OptionError,
    ParameterError,
    SolverError,
)
from kernelopt.model_selection import carried
from kernelopt.model_selection import cross_validation as module
from kernelopt.support import clock

N = 40
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(N, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * RANDOM.normal(size=N)
LABELS = np.where(Y > 1, 1.0, -1.0)
KERNEL = ko.kernels.Gaussian(sigma=1.0)
VALUES = [0.1, 10.0, 1.0]


def stated(loss, sense=cp.Minimize):
    theta, b = ko.Theta(KERNEL), cp.Variable()
    w, lam = cp.Parameter(N, nonneg=True, name="w"), cp.Parameter(nonneg=True, name="lam")
    f = theta(X) + b
    objective = w @ loss(f) + lam * ko.sum_squares(theta)
    problem = ko.Problem(sense(objective if sense is cp.Minimize else -objective))
    return problem, w, lam, f


def ridge():
    theta, w, lam = ko.Theta(KERNEL), cp.Parameter(N, nonneg=True), cp.Parameter(nonneg=True, name="lam")
    return ko.Problem(cp.Minimize(w @ cp.square(Y - theta(X)) + lam * ko.sum_squares(theta))), w, lam, theta(X)


@pytest.mark.parametrize(
    ("option", "note"),
    [
        ("tolerance", "solve() has no option tolerance. Did you mean tol?"),
        ("timelimit", "solve() has no option timelimit. Did you mean time_limit?"),
        ("losses", "cross_validate() has no option losses. Did you mean loss?"),
        ("evaluation", "path() has no option evaluation. Did you mean evaluate?"),
    ],
)
def test_a_mistyped_option(option, note):
    problem, w, lam, _ = ridge()
    with pytest.raises(SolverError, match=option) as refusal:
        ko.cross_validate(problem, w, lam, VALUES, **{option: 1})
    assert refusal.value.__notes__ == [note]


@pytest.mark.slow
def test_against_scikit_learn():
    problem, w, lam, _ = ridge()
    folds = KFold(4, shuffle=True, random_state=0)
    table = ko.cross_validate(problem, w, lam, VALUES, cv=folds)
    search = GridSearchCV(
        KernelRidge(kernel="rbf", gamma=0.5), {"alpha": VALUES}, scoring="neg_mean_squared_error", cv=folds
    ).fit(X, Y)
    assert table["lam"].tolist() == VALUES
    assert table["mean"] == pytest.approx(-search.cv_results_["mean_test_score"], rel=1e-4)
    assert table["std"] == pytest.approx(search.cv_results_["std_test_score"], rel=1e-3)
    for k in range(4):
        assert table[f"fold {k + 1}"] == pytest.approx(-search.cv_results_[f"split{k}_test_score"], rel=1e-3)
    assert table.best == search.best_params_["alpha"]
    assert table["gap"].max() <= 1e-6
    assert np.all(table["seconds"] > 0)


@pytest.mark.slow
@pytest.mark.parametrize("sense", [cp.Minimize, cp.Maximize])
@pytest.mark.parametrize("loss", [ko.losses.hinge, ko.losses.squared_hinge, ko.losses.log_loss])
def test_against_problems_without_the_rows(loss, sense):
    """Weights of rows count in the fit and in the loss."""
    problem, w, lam, _ = stated(lambda f: loss(LABELS, f), sense)
    weights = np.linspace(0.5, 2, N)
    weights[3] = 0.0
    w.value = weights
    table = ko.cross_validate(problem, w, lam, VALUES, cv=3, random_state=1, tol=1e-8)
    for k, (train, test) in enumerate(table.folds):
        for row, value in enumerate(VALUES):
            theta, b = ko.Theta(KERNEL), cp.Variable()
            fit = weights[train] @ loss(LABELS[train], theta(X[train]) + b) + value * ko.sum_squares(theta)
            ko.Problem(cp.Minimize(fit)).solve(tol=1e-8)
            left_out = loss(LABELS[test], theta.value(X[test]) + b.value).value
            expected = weights[test] @ left_out / weights[test].sum()
            assert table.losses[row, k] == pytest.approx(expected, rel=1e-3)


@pytest.mark.slow
def test_one_factor_serves_all():
    problem, w, lam, _ = stated(lambda f: ko.losses.hinge(LABELS, f))
    w.value, lam.value = np.ones(N), 1.0
    problem.solve()
    (factor,) = reduction_of(problem).factors.values()
    table = ko.cross_validate(problem, w, lam, VALUES, cv=3)
    assert list(reduction_of(problem).factors.values()) == [factor]
    for k in range(3):
        table.paths[k].restore(0)
        assert list(reduction_of(problem).factors.values()) == [factor]
        assert problem.solver_stats.factor_time == factor.factor_seconds


@pytest.mark.slow
def test_a_loss_of_ones_own():
    problem, w, lam, f = stated(lambda f: ko.losses.hinge(LABELS, f))
    seen = []

    def errors(solved, test):
        assert solved is problem
        assert np.all(w.value[test] == 0)
        seen.append(test)
        return np.mean(LABELS[test] * f.value[test] <= 0)

    table = ko.cross_validate(problem, w, lam, VALUES, cv=4, loss=errors)
    assert len(seen) == 12
    assert np.isin(np.round(table.losses * 10), np.arange(11)).all()
    assert np.array_equal(np.sort(np.concatenate([test for _, test in table.folds])), np.arange(N))
    table.paths[2].restore(1)
    assert lam.value == 10.0
    assert np.array_equal(np.flatnonzero(w.value), table.folds[2][0])
    assert errors(problem, table.folds[2][1]) == table["fold 3"][1]


@pytest.mark.slow
def test_everything_is_as_before():
    problem, w, lam, f = stated(lambda f: ko.losses.hinge(LABELS, f))
    w.value, lam.value = np.full(N, 0.5), 3.0
    value = problem.solve()
    fitted = f.value
    ko.cross_validate(problem, w, lam, VALUES)

    def fails(problem, test):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ko.cross_validate(problem, w, lam, VALUES, loss=fails)
    assert np.array_equal(w.value, np.full(N, 0.5))
    assert (lam.value, problem.value) == (3.0, value)
    assert np.array_equal(f.value, fitted)
    fresh, w, lam, _ = stated(lambda f: ko.losses.hinge(LABELS, f))
    ko.cross_validate(fresh, w, lam, [1.0], cv=2)
    assert w.value is None and lam.value is None and fresh.value is None


@pytest.mark.slow
def test_folds():
    problem, w, lam, _ = ridge()

    def folds(cv, **options):
        return ko.cross_validate(problem, w, lam, [1.0], cv=cv, loss=lambda problem, test: 0.0, **options).folds

    seven = folds(7)
    assert sorted(len(test) for _, test in seven) == [5, 5, 6, 6, 6, 6, 6]
    assert all(np.array_equal(np.union1d(*fold), np.arange(N)) for fold in seven)
    assert any(np.any(np.diff(test) != 1) for _, test in seven)
    again, other = folds(7), folds(7, random_state=1)
    assert all(np.array_equal(a[1], b[1]) for a, b in zip(seven, again, strict=True))
    assert not all(np.array_equal(a[1], b[1]) for a, b in zip(seven, other, strict=True))
    stratified = list(StratifiedKFold(3).split(X, LABELS))
    assert all(np.array_equal(a[1], b[1]) for a, b in zip(folds(stratified), stratified, strict=True))
    ((train, test),) = folds([(np.arange(N) < 30, [-1, -2])])
    assert (train.tolist(), test.tolist()) == (list(range(30)), [38, 39])


@pytest.mark.later
def test_a_number_of_folds_some_of_which_have_no_weight():
    problem, w, lam, _ = ridge()
    w.value = np.repeat([1.0, 0.0], N // 2)
    with pytest.raises(DataError, match="folds with rows of positive weight on both sides"):
        ko.cross_validate(problem, w, lam, VALUES, cv=N)


@pytest.mark.slow
def test_a_fold_without_an_answer():
    theta, w, radius = ko.Theta(KERNEL), cp.Parameter(N, nonneg=True), cp.Parameter(nonneg=True, name="R")
    constraints = [ko.norm(theta) <= radius, theta(X)[0] >= 1]
    problem = ko.Problem(cp.Minimize(w @ cp.square(Y - theta(X))), constraints)
    table = ko.cross_validate(problem, w, radius, [0.1, 2.0, 3.0], cv=2)
    assert np.isnan(table["mean"]).tolist() == [True, False, False]
    assert table.best in (2.0, 3.0)
    with pytest.raises(KernelOptError, match="an answer in every fold"):
        _ = ko.cross_validate(problem, w, radius, [0.1], cv=2).best


@pytest.mark.slow
def test_the_best_of_equals_is_the_strongest():
    problem, w, lam, _ = ridge()
    table = ko.cross_validate(problem, w, lam, VALUES, cv=2, loss=lambda problem, test: 1.0)
    assert table.best == 10.0


@pytest.mark.later
def test_how_it_looks():
    problem, w, lam, _ = ridge()
    table = ko.cross_validate(problem, w, lam, VALUES, cv=2)
    assert list(table) == ["lam", "mean", "std", "fold 1", "fold 2", "gap", "seconds"]
    assert len(table) == len(str(table).splitlines()) - 1 == 3
    assert table.to_pandas()["mean"].tolist() == table["mean"].tolist()
    axes = table.plot()
    (line,) = axes.get_lines()
    assert np.array_equal(line.get_ydata(), table["mean"][[0, 2, 1]])
    assert axes.get_xscale() == "log" and axes.get_ylabel() == "mean"
    assert len(axes.collections) == 1


def test_time():
    problem, w, lam, _ = ridge()
    with pytest.raises(KernelOptError, match="Raise time_limit"):
        ko.cross_validate(problem, w, lam, VALUES, time_limit=1e-9)


@pytest.mark.slow
def test_what_ends_it_carries_its_fits(monkeypatch):
    """Ctrl-C and the time limit keep what is done: the rest of the error's table is nan."""
    problem, w, lam, _ = ridge()
    done = []

    def interrupted(problem, test):
        done.append(len(test))
        if len(done) == 5:
            raise KeyboardInterrupt
        return float(len(done))

    with pytest.raises(KeyboardInterrupt) as caught:
        ko.cross_validate(problem, w, lam, [1.0, 100.0, 10.0], cv=2, loss=interrupted)
    table = caught.value.table
    assert table["lam"].tolist() == [1.0, 100.0, 10.0]  # the largest is solved first
    assert np.array_equal(table.losses, [[3.0, np.nan], [1.0, 4.0], [2.0, np.nan]], equal_nan=True)
    assert table.best == 100.0 and np.isnan(table["gap"]).tolist() == [True, False, True]
    assert "4 fits" in caught.value.__notes__[-1]
    table.paths[1].restore(0)
    assert lam.value == 100.0

    now = moved(monkeypatch)

    def slow(problem, test):
        now.now += 0.2
        return 1.0

    with pytest.raises(KernelOptError, match="Raise time_limit") as caught:
        ko.cross_validate(problem, w, lam, [1.0, 10.0], cv=3, loss=slow, time_limit=0.5)
    assert np.isfinite(caught.value.table.losses).sum() == 3  # the limit is exceeded after the third fit


@pytest.mark.later
def test_a_fold_without_a_class():
    """Rows of one class alone are a problem like others."""
    labels = np.where(np.arange(N) < N // 2, -1.0, 1.0)
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    w, lam = cp.Parameter(N, nonneg=True), cp.Parameter(nonneg=True, name="lam")
    losses = ko.losses.hinge(labels, theta(np.linspace(0, 5, N)[:, None]) + b)
    problem = ko.Problem(cp.Minimize(w @ losses + lam * ko.sum_squares(theta)))
    halves = np.arange(N // 2), np.arange(N // 2, N)
    table = ko.cross_validate(problem, w, lam, [0.1, 1.0], cv=[halves, halves[::-1]])
    # Each b with b·label ≥ 1 is as good, and f the known label or beyond.
    assert np.all(table["mean"] >= 2 - 1e-6) and np.all(table["gap"] <= 1e-6)


@pytest.mark.later
def test_what_it_refuses():
    problem, w, lam, f = ridge()

    def run(weights=w, cv=3, loss=None):
        return ko.cross_validate(problem, weights, lam, [1.0], cv=cv, loss=loss)

    for wrong in (cp.Parameter(N), np.ones(N), lam):
        with pytest.raises(ParameterError, match="weights to be a parameter"):
            run(weights=wrong)
    for cv, error, message in (
        (1, OptionError, "from 2 to 40 folds"),
        (41, OptionError, "from 2 to 40 folds"),
        ("five", OptionError, "a splitter"),
        ([1, 2], OptionError, "a splitter"),
        ([], DataError, "both sides"),
        ([([0, 1], [])], DataError, "fold 0 has none that is left out"),
        ([([0, 1], [1, 2])], DataError, "some are on both sides"),
        ([([0, 1], [40])], DataError, "numbers of rows below 40"),
        ([([0.5], [1])], DataError, "numbers of rows"),
    ):
        with pytest.raises(error, match=message):
            run(cv=cv)
    with pytest.raises(OptionError, match="function of"):
        run(loss="mse")
    with pytest.raises(OptionError, match="return a number"):
        run(loss=lambda problem, test: f.value[test])
    for score in ("a", None, 1j, object()):
        with pytest.raises(OptionError, match="to return a number"):
            run(loss=lambda problem, test: score)  # noqa: B023 called at once


def test_weights_that_do_not_enter_in_proportion():
    theta, w, lam = ko.Theta(KERNEL), cp.Parameter(N, nonneg=True), cp.Parameter(nonneg=True, name="lam")
    residuals = cp.multiply(w, Y - theta(X))
    problem = ko.Problem(
        cp.Minimize(cp.square(cp.sum(residuals) - 1) + cp.sum_squares(residuals) + lam * ko.sum_squares(theta))
    )
    with pytest.raises(KernelOptError, match="affine in the weights"):
        ko.cross_validate(problem, w, lam, [1.0], cv=2)


@pytest.mark.later
@pytest.mark.parametrize("form", ["product", "sum", "negative", "nested", "promoted", "two factors", "curved"])
def test_the_stated_loss_is_read_off_the_terms_with_weights(form):
    """By the rules for sums and products; where these do not tell, values of the objective do, and they may refuse."""
    theta, w, lam = ko.Theta(KERNEL), cp.Parameter(N, nonneg=True), cp.Parameter(nonneg=True, value=0.5)
    errors = cp.abs(Y - theta(X))
    loss, known = {
        "product": (w @ errors, True),
        "sum": (cp.sum(cp.multiply(w, errors)), True),
        "negative": (-(-w @ errors), True),
        "nested": (2 * (w @ errors) + 3 * cp.sum(cp.multiply(errors, 2 * w)) + 7, True),
        "promoted": (cp.sum(cp.multiply(w[np.arange(N)], errors)), False),  # an atom of which nothing is known here
        "two factors": (cp.sum(cp.multiply(cp.multiply(w, w), errors)), False),
        "curved": (cp.maximum(w @ errors, 0.1), False),
    }[form]
    problem = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)))
    w.value = np.where(np.arange(N) < N // 2, 1.0, 0.0)
    problem.solve()
    some = 2.0 - w.value
    stated = module._StatedLoss.of(problem, w)
    assert stated.is_affine is known
    if form in ("two factors", "curved"):
        with pytest.raises(KernelOptError, match="affine in the weights"):
            stated.on(some)
        return
    times = {"nested": 8.0}.get(form, 1.0)
    before = w.value.copy()
    assert stated.on(some) == pytest.approx(times * (some @ errors.value) / some.sum(), rel=1e-12)
    assert np.array_equal(w.value, before)


@pytest.mark.slow
def test_the_table_keeps_no_systems():
    """A system of all free multipliers takes 0.5 GB for 9000 rows, and each fold left one behind."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(260, 60))
    labels = np.where(points[:, 0] > 0, 1.0, -1.0)
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=8.0)), cp.Variable()
    w, lam = cp.Parameter(260, nonneg=True), cp.Parameter(nonneg=True)
    problem = ko.Problem(cp.Minimize(w @ ko.losses.hinge(labels, theta(points) + b) + lam * ko.sum_squares(theta)))
    kept = []

    def loss(problem, test):
        kept.extend(problem._factored.reduction.factors[theta].matrix.kept)
        return 0.0

    table = ko.cross_validate(problem, w, lam, [1.0, 0.1, 0.01], cv=3, loss=loss)
    assert kept  # they serve the next value
    kept.clear()
    for fold in table.paths:
        fold.restore(0)
        assert not problem._factored.reduction.factors[theta].matrix.kept


def hinge_loss(f):
    return ko.losses.hinge(LABELS, f)


@pytest.mark.slow
def test_processes():
    """Folds in two processes are those in one, up to the tolerance, with a loss that reads the user's expressions."""
    problem, w, lam, f = stated(hinge_loss)
    w.value, lam.value = np.full(N, 0.5), 3.0
    value = problem.solve()

    def errors(solved, test):
        assert solved.value < np.inf and np.all(w.value[test] == 0)
        assert (os.getpid() == here) is in_here
        return float(np.mean(np.maximum(0, 1 - LABELS[test] * f.value[test])))

    here, in_here = os.getpid(), True

    one = ko.cross_validate(problem, w, lam, VALUES, cv=3, loss=errors)
    in_here = False
    two = ko.cross_validate(problem, w, lam, VALUES, cv=3, loss=errors, n_jobs=2)
    in_here = True
    assert problem.value == value and lam.value == 3.0 and np.array_equal(w.value, np.full(N, 0.5))
    assert np.allclose(two.losses, one.losses, atol=1e-3) and two["gap"].max() <= 1e-6
    assert len(two.paths) == len(two.folds) == 3 and two.best == one.best
    for k, fold in enumerate(two.paths):
        fold.restore(1)
        assert lam.value == 10.0
        assert np.array_equal(np.flatnonzero(w.value), two.folds[k][0])
        assert errors(problem, two.folds[k][1]) == two.losses[1, k]
        assert problem.certificate.relative_gap == two.paths[k]["gap"][1]
        assert problem.verify().passed
    with pytest.raises(KernelOptError, match="from another process has none"):
        two.paths[0].at(1.0)
    with pytest.raises(KernelOptError, match="from another process has none"):
        ko.gradient(problem, cp.sum(f))
    w.value = np.full(N, 0.5)
    stated_losses = ko.cross_validate(problem, w, lam, VALUES, cv=3, n_jobs=-1)
    assert np.allclose(stated_losses.losses, one.losses, atol=1e-3)


@pytest.mark.later
def test_what_ends_a_process_carries_its_fits(monkeypatch):
    """The table of the error has the fits of all processes, each in its fold."""
    problem, w, lam, _ = ridge()
    folds = KFold(4)

    def fails(solved, test):
        if test[0] == N // 4 and lam.value < 1:
            raise ZeroDivisionError("in the second fold")
        return float(test[0])

    with pytest.raises(ZeroDivisionError, match="in the second fold") as caught:
        ko.cross_validate(problem, w, lam, VALUES, cv=folds, loss=fails, n_jobs=2)
    table = caught.value.table
    assert np.array_equal(np.isnan(table.losses), [[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    assert table.losses[1].tolist() == [0.0, 10.0, 20.0, 30.0]
    assert "11 fits" in caught.value.__notes__[-1]

    def slow(solved, test):
        """On the clock of its process, which may run later folds too, an hour passes."""
        before = clock.perf_counter
        clock.perf_counter = lambda: before() + 3600.0
        return float(test[0])

    moved(monkeypatch, tick=400.0)  # here the limit is exceeded at the third reading, after the processes
    with pytest.raises(KernelOptError, match="of 4 folds were begun") as caught:
        ko.cross_validate(problem, w, lam, [1.0], cv=folds, loss=slow, n_jobs=2, time_limit=600.0)
    assert np.isnan(caught.value.table.losses).tolist() == [[False, True, False, True]]


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("raised", "seen"),
    [
        (ImportError, ImportError),
        (SystemExit, SystemExit),
        ("with two arguments", (ArithmeticError, KernelOptError)),
    ],
)
def test_errors_of_losses(raised, seen, n_jobs):
    """The table has all other fits, and the traceback, or a note, the line of the loss."""
    problem, w, lam, _ = ridge()

    class TwoError(ArithmeticError):
        """Pickle can't make a copy of it."""

        def __init__(self, one, other):
            super().__init__(f"{one} {other}")

    def fails_in_the_third_fold(solved, test):
        if test[0] == N // 2:
            raise TwoError(1, 2) if isinstance(raised, str) else raised("1 2")
        return 1.0

    with pytest.raises(seen, match="1 2") as caught:
        ko.cross_validate(problem, w, lam, [1.0], cv=KFold(4), loss=fails_in_the_third_fold, n_jobs=n_jobs)
    told = "".join(traceback.format_exception(caught.value))
    assert "in fails_in_the_third_fold" in told
    assert np.isfinite(caught.value.table.losses[0, :2]).all() and np.isnan(caught.value.table.losses[0, 2])


def carried_over(problem, path):
    """The path as it comes from another process."""
    return carried.unpacked(problem, path.parameter, carried.packed(problem, [path]))[0]


def with_a_bound():
    theta, b = ko.Theta(KERNEL), cp.Variable()
    lam, f = cp.Parameter(nonneg=True, name="lam"), theta(X) + b
    problem = ko.Problem(cp.Minimize(cp.norm1(Y - f) + lam * ko.sum_squares(theta)), [f[:3] >= 1, b >= -1])
    return problem, lam, [theta, b, *problem.constraints]


def with_two_thetas():
    one, other = ko.Theta(KERNEL), ko.Theta(ko.kernels.Linear(), name="η")
    lam = cp.Parameter(nonneg=True, name="lam")
    loss = cp.sum_squares(Y - one(X) - other(X)) + cp.sum_squares(other(X[:5] + 1))
    return ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(one) + ko.norm(other))), lam, [one, other]


def with_a_precomputed_matrix():
    theta, lam = ko.Theta(ko.kernels.Precomputed(X @ X.T)), cp.Parameter(nonneg=True, name="lam")
    loss = cp.sum(ko.losses.huber(Y, theta(np.arange(N))))
    return ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta))), lam, [theta]


def with_a_width():
    width = cp.Parameter(pos=True, name="width", value=3.0)
    theta = ko.Theta(ko.kernels.FromFunction(closeness) * width)
    loss = cp.sum(ko.losses.absolute_error(Y, theta(X)))
    return ko.Problem(cp.Minimize(loss + ko.sum_squares(theta))), width, [theta]


def closeness(a, b):
    return float(np.exp(-np.sum((a - b) ** 2)))


def from_an_explicit_theta():
    lam, Phi, theta = cp.Parameter(nonneg=True, name="lam"), cp.Constant(X), cp.Variable(2)
    objective = cp.sum_squares(Phi @ theta - Y) + lam * cp.sum_squares(theta)
    explicit = cp.Problem(cp.Minimize(objective), [Phi @ theta <= 0.3])
    features = {Phi: ko.FeatureMatrix(X, ko.kernels.Linear())}
    problem = ko.Problem.from_cvxpy(explicit, theta=theta, features=features)
    return problem, lam, [*explicit.constraints, *problem.constraints]


def without_an_answer():
    theta, lam = ko.Theta(KERNEL), cp.Parameter(nonneg=True, name="lam")
    constraints = [theta(X[:1]) >= 1, ko.norm(theta) <= 0.1]
    return (
        ko.Problem(cp.Minimize(cp.sum_squares(Y - theta(X)) + lam * ko.sum_squares(theta)), constraints),
        lam,
        [theta],
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "state",
    [
        with_a_bound, with_two_thetas, with_a_precomputed_matrix, with_a_width, from_an_explicit_theta,
        without_an_answer,
    ],
)  # fmt: skip
def test_answers_from_another_process(state):
    """Columns, functions, variables, multipliers and statuses are those that were found there."""
    problem, lam, parts = state()
    there = ko.path(problem, lam, [1.0, 0.1])
    here = carried_over(problem, there)
    for name in (
        "objective",
        "gap",
        "status",
        "seconds",
        *(n for n in there.columns if n.startswith(("norm", "supp"))),
    ):
        assert np.array_equal(here[name], there[name], equal_nan=name != "status"), name

    def multipliers():
        return [c.dual_value for c in parts if hasattr(c, "dual_value")], [dict(t._duals) for t in problem.thetas()]

    for row in range(2):
        there.restore(row)
        functions, values = [t.value for t in problem.thetas()], [v.value for v in problem.variables()]
        duals, status, number = multipliers(), problem.status, problem.value
        lam.value = 7.0
        here.restore(row)
        assert (lam.value, problem.status, problem.value) == ([1.0, 0.1][row], status, number)
        for theta, f in zip(problem.thetas(), functions, strict=True):
            known = theta.value
            assert (known is None) == (f is None)
            if f is not None:
                assert np.array_equal(known.coefficients, f.coefficients) and known.norm == f.norm
                assert np.array_equal(known(f.centers), f(f.centers))
        assert all(np.array_equal(v.value, x) for v, x in zip(problem.variables(), values, strict=True))
        assert str(multipliers()) == str(duals)
        if status == "optimal":
            assert problem.verify().passed


def test_functions_have_the_kernel_of_their_process():
    """Where a parameter of the kernel is swept, the caller's has another value."""
    problem, width, (theta,) = with_a_width()
    there = ko.path(problem, width, [0.5])
    width.value = 0.5
    data = carried.packed(problem, [there])
    width.value = 3.0
    (row,) = carried.unpacked(problem, width, data)[0].solutions
    assert row.functions[theta].kernel == there.solutions[0].functions[theta].kernel


@pytest.mark.later
def test_functions_from_another_process_share_rows():
    """A grid of 500 fits of 1000 rows and columns would have 4 GB of centers."""
    problem, _, lam, _ = stated(hinge_loss)
    problem.parameters()[0].value = np.ones(N)
    there = ko.path(problem, lam, VALUES)
    here = carried_over(problem, there)
    (link,) = problem.canonical_form().predictions
    for row in here.solutions:
        (f,) = row.functions.values()
        assert f._selected.points is link.rows.points and f.kernel is link.rows.kernel
        assert "_centers" not in vars(f)
        (known,) = there.solutions[here.solutions.index(row)].functions.values()
        assert np.array_equal(f.expanded().coefficients, known.expanded().coefficients)
    assert [list(c.distance) for c in here.certificates] == [problem.thetas()] * len(VALUES)
    data = carried.packed(problem, [there])
    assert X[:3].tobytes() not in data


REMEMBERED = cp.Variable()


def loss_by_name(problem, test):
    return float(REMEMBERED.value)


def loss_by_name_within(problem, test):
    return max(row * float(REMEMBERED.value) for row in test)


@pytest.mark.slow
def test_processes_that_are_refused(monkeypatch):
    problem, w, lam, _ = ridge()
    for number in (0, 1.5, True, "2"):
        with pytest.raises(OptionError, match="Expected n_jobs to be an integer other than 0"):
            ko.cross_validate(problem, w, lam, VALUES, n_jobs=number)
    with pytest.raises(OptionError, match="Expected one process, n_jobs=1, beside backend; got 2"):
        ko.cross_validate(problem, w, lam, VALUES, n_jobs=2, backend="a client")
    for loss in (loss_by_name, loss_by_name_within):
        with pytest.raises(OptionError, match="it reads REMEMBERED of the module"):
            ko.cross_validate(problem, w, lam, VALUES, loss=loss, n_jobs=2)
    lock = threading.Lock()
    with pytest.raises(OptionError, match="without locks, open files and connections"):
        ko.cross_validate(problem, w, lam, VALUES, loss=lambda problem, test: float(lock.locked()), n_jobs=2)
    with pytest.raises(MemoryLimitError, match="the limit is 1 kB") as refusal:
        ko.cross_validate(problem, w, lam, VALUES, n_jobs=2, memory_limit=2000)
    assert "equal share of memory_limit" in refusal.value.__notes__[1]
    monkeypatch.setitem(sys.modules, "joblib", None)
    with pytest.raises(MissingPackageError, match="n_jobs needs joblib: pip install joblib"):
        ko.cross_validate(problem, w, lam, VALUES, n_jobs=2)
    monkeypatch.delitem(sys.modules, "joblib")
    assert ko.cross_validate(problem, w, lam, [1.0], cv=2).losses.shape == (1, 2)


def test_rows_that_a_fold_names_twice_count_twice():
    """As of bootstraps, in fits and in scores."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=40)
    w, lam = cp.Parameter(40, nonneg=True, value=np.ones(40)), cp.Parameter(nonneg=True, value=0.3)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(w @ ko.losses.squared_error(y, theta(X)) + lam * ko.sum_squares(theta)))
    train, test = rng.integers(0, 30, 30), np.array([30, 31, 31, 31, 35])
    found = ko.cross_validate(problem, w, lam, [0.3], cv=[(train, test)])["mean"][0]
    K = theta.kernel
    alpha = np.linalg.solve(K(X[train]) + 0.3 * np.eye(30), y[train])
    assert found == pytest.approx(np.mean((y[test] - K(X[test], X[train]) @ alpha) ** 2), rel=1e-5)
