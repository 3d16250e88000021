"""Parameters chosen by gradients of a criterion."""

import clocks
import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import minimize

import kernelopt as ko
from kernelopt import errors, kernels, losses
from kernelopt.errors import DataError, OptionError
from kernelopt.model_selection import tuning

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, size=(60, 2))
Y = np.sin(2 * X[:, 0]) + 0.3 * RNG.standard_t(3, size=60)
TRAIN, TEST = np.arange(0, 60, 2), np.arange(1, 60, 2)


class Stated:
    """Huber loss with σ for each column and λ, and a held-out criterion."""

    def __init__(self, loss=lambda y, f: losses.huber(y, f, 0.5)):
        self.scales = cp.Parameter(2, pos=True, value=[2.0, 2.0], name="scales")
        self.lam = cp.Parameter(pos=True, value=1.0, name="lam")
        self.theta, self.b = ko.Theta(kernels.Gaussian(1.0).ard(self.scales)), cp.Variable()
        self.w = cp.Parameter(60, nonneg=True, name="w")
        self.losses = loss(Y, self.theta(X) + self.b)
        trained = loss(Y[TRAIN], self.theta(X[TRAIN]) + self.b)
        penalty = self.lam * ko.sum_squares(self.theta)
        self.problem = ko.Problem(cp.Minimize(cp.sum(trained) + penalty))
        self.weighted = ko.Problem(cp.Minimize(self.w @ self.losses + penalty))
        self.criterion = cp.sum(losses.huber(Y[TEST], self.theta(X[TEST]) + self.b, 0.5)) / 30


@pytest.mark.slow
def test_a_held_out_criterion():
    one = Stated()
    found = ko.tune(one.problem, one.criterion, [one.scales, one.lam])
    assert found.value < 0.9 * found["criterion"][0]
    assert one.scales.value[1] > 1.5 * one.scales.value[0]  # the second column tells nothing
    assert one.problem.status == "optimal"
    assert float(one.criterion.value) == pytest.approx(found.value, rel=1e-4)
    assert np.array_equal(one.scales.value, found.best.values[0])
    assert "criterion" in str(found)
    assert found["slope"][-1] < found["slope"].max()


@pytest.mark.slow
def test_it_finds_what_a_search_without_gradients_finds():
    one = Stated()
    found = ko.tune(one.problem, one.criterion, [one.lam], {one.lam: (1e-3, 1e2)})

    def value(x):
        one.lam.value = float(np.exp(x[0]))
        one.problem.solve()
        return ko.gradient(one.problem, one.criterion, [one.lam]).value

    known = minimize(value, np.log([found.best.values[0].item()]), method="Nelder-Mead", options={"xatol": 1e-3})
    assert found.value == pytest.approx(known.fun, rel=1e-3)


@pytest.mark.slow
def test_folds():
    """The criterion is that of cross_validate on the same folds."""
    one = Stated()
    folds = [(np.setdiff1d(np.arange(60), t), t) for t in np.array_split(np.arange(60), 4)]
    criterion = ko.CrossValidatedLoss(one.w, one.losses, cv=folds)
    found = ko.tune(one.weighted, criterion, [one.lam], {one.lam: (1e-2, 1e2)})
    assert np.array_equal(one.w.value, np.ones(60))
    table = ko.cross_validate(one.weighted, one.w, one.lam, [found.best.values[0].item()], cv=folds)
    assert found.value == pytest.approx(table["mean"][0], rel=1e-5)
    assert one.weighted.status == "optimal"
    with pytest.raises(errors.ParameterError, match="weights of the folds"):
        ko.tune(one.weighted, criterion, [one.w])
    with pytest.raises(errors.DataError, match="losses of shape"):
        ko.tune(one.weighted, ko.CrossValidatedLoss(one.w, one.losses[:3]), [one.lam])


@pytest.mark.slow
def test_several_starts():
    one = Stated()
    found = ko.tune(one.problem, one.criterion, [one.lam], {one.lam: (1e-3, 1e2)}, n_init=3)
    assert set(found["start"]) == {0, 1, 2}
    assert found.value == found["criterion"].min()


@pytest.mark.slow
def test_limits_keep_the_best(monkeypatch):
    one = Stated()
    found = ko.tune(one.problem, one.criterion, [one.lam], max_evaluations=3)
    assert len(found) == 3
    assert "3 evaluations" in found.message
    assert one.lam.value == found.best.values[0]
    short = ko.tune(one.problem, one.criterion, [one.lam], time_limit=1e-6)
    assert len(short) == 1
    assert "time limit" in short.message
    calls, plain, one.lam.value = [], tuning.gradient, 1.0

    def interrupted(*args, **named):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return plain(*args, **named)

    monkeypatch.setattr(tuning, "gradient", interrupted)
    before = one.problem.value
    with pytest.raises(KeyboardInterrupt) as caught:
        ko.tune(one.problem, one.criterion, [one.lam])
    assert (len(caught.value.table), caught.value.table.message) == (2, "ended: interrupted")
    assert "2 evaluations" in caught.value.__notes__[0]
    assert one.lam.value == 1.0 and one.problem.value == before


@pytest.mark.slow
def test_weights_of_rows_and_plain_numbers():
    """Without bounds, parameters that may be 0 or negative are searched as they are."""
    one = Stated()
    shift = cp.Parameter(value=0.0, name="shift")
    theta = ko.Theta(kernels.Gaussian(1.0))
    objective = cp.sum(losses.huber(Y[TRAIN] - shift, theta(X[TRAIN]), 0.5)) + one.lam * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(objective))
    criterion = cp.sum_squares(theta(X[TEST]) + 0.5 - Y[TEST])
    found = ko.tune(problem, criterion, [shift])
    assert found.value < found["criterion"][0]
    assert shift.value > 0.1


@pytest.mark.slow
def test_the_table_is_drawn():
    pytest.importorskip("matplotlib")
    one = Stated()
    found = ko.tune(one.problem, one.criterion, [one.lam], max_evaluations=3, progress=True)
    assert found.plot().get_ylabel() == "criterion"


def test_what_is_refused():
    one = Stated()
    with pytest.raises(errors.OptionError, match="its value"):
        ko.tune(one.problem, one.criterion, [one.lam], {one.lam: (2.0, 3.0)})
    with pytest.raises(errors.OptionError, match="declared sign"):
        ko.tune(one.problem, one.criterion, [one.lam], {one.lam: (-1.0, 3.0)})
    with pytest.raises(errors.OptionError, match="none of them"):
        ko.tune(one.problem, one.criterion, [one.lam], {one.scales: (1.0, 3.0)})
    with pytest.raises(errors.OptionError, match="integers ≥ 1"):
        ko.tune(one.problem, one.criterion, [one.lam], n_init=0)
    with pytest.raises(errors.ParameterError, match="of the problem"):
        ko.tune(one.problem, one.criterion, [cp.Parameter(value=1.0)])
    with pytest.raises(errors.ParameterError, match="first start"):
        ko.tune(one.weighted, one.criterion, [one.w])
    with pytest.raises(errors.ParameterError, match="at least one"):
        ko.tune(one.problem, one.criterion, [])


@pytest.mark.slow
def test_a_criterion_that_is_refused_changes_nothing():
    theta, lam = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Parameter(pos=True, value=0.1)
    f = theta(np.arange(5.0)[:, None])
    problem = ko.Problem(cp.Minimize(cp.sum_squares(f - 1) + lam * ko.sum_squares(theta)))
    problem.solve()
    before = problem.certificate
    for criterion in ("a", f):
        with pytest.raises(DataError, match="criterion"):
            ko.tune(problem, criterion, [lam])
    assert problem.certificate is before


def test_a_search_that_ends_on_a_bound_can_be_continued():
    one = Stated()
    bounds = {one.lam: (0.03, 0.3)}
    one.lam.value = 0.1
    criterion = cp.square(ko.norm(one.theta))
    ko.tune(one.problem, criterion, [one.lam], bounds)
    assert one.lam.value == 0.3
    ko.tune(one.problem, -criterion, [one.lam], bounds)
    assert one.lam.value == 0.03
    ko.tune(one.problem, criterion, [one.lam], bounds)


@pytest.mark.slow
def test_parameters_of_the_criterion_alone():
    """They have derivatives, too, and can be tuned beside others; those of neither are refused."""
    one = Stated()
    shift = cp.Parameter(value=0.5, name="shift")
    criterion = cp.sum_squares(one.theta(X[TEST]) + shift - Y[TEST])
    one.problem.solve()
    found = ko.gradient(one.problem, criterion, [shift, one.lam])
    residual = (one.theta(X[TEST]) + shift - Y[TEST]).value
    assert found[shift] == pytest.approx(2 * residual.sum(), rel=1e-4) and found[one.lam] != 0
    tuned = ko.tune(one.problem, criterion, [shift])
    assert tuned.value == pytest.approx(len(TEST) * np.var(residual), rel=1e-4)
    with pytest.raises(errors.ParameterError, match="got other"):
        ko.gradient(one.problem, criterion, [cp.Parameter(name="other")])


@pytest.mark.parametrize("limit", [35.0, 70.0])
def test_the_limit_holds_within_an_evaluation(limit, monkeypatch):
    """Solves of 10 s on a clock of the test, 4 of them an evaluation, of which the first one is finished."""
    clock, one, limits = clocks.moved(monkeypatch), Stated(), []
    folds = [(np.setdiff1d(np.arange(60), t), t) for t in np.array_split(np.arange(60), 4)]
    solve = ko.Problem.solve

    def slow(problem, **options):
        limits.append(options.get("time_limit"))
        found = solve(problem, **{**options, "time_limit": None})
        clock.now += 10.0
        return found

    monkeypatch.setattr(ko.Problem, "solve", slow)
    criterion = ko.CrossValidatedLoss(one.w, one.losses, cv=folds)
    found = ko.tune(one.weighted, criterion, [one.lam], time_limit=limit)
    assert len(found) == 1 and found.message == "ended: time limit"
    assert limits[:4] == [None] * 4 and len(limits) == 5
    assert limits[4] == (0.5 if limit == 35.0 else 30.0)


@pytest.mark.parametrize("criterion", [lambda f: cp.sum(cp.floor(f)), lambda f: lambda: 1.0], ids=["floor", "no at="])
def test_a_search_that_is_refused_leaves_the_answer(criterion):
    theta, lam = ko.Theta(kernels.Gaussian(sigma=1.0)), cp.Parameter(pos=True, value=1.0)
    f = theta(X[TRAIN])
    problem = ko.Problem(cp.Minimize(cp.sum_squares(Y[TRAIN] - f) + lam * ko.sum_squares(theta)))
    problem.solve()
    before = problem.status, problem.certificate, theta.value
    with pytest.raises(errors.KernelOptError):
        ko.tune(problem, criterion(f), [lam])
    assert (problem.status, problem.certificate, theta.value) == before


def test_bounds_that_are_no_numbers():
    theta, lam = ko.Theta(ko.kernels.Linear()), cp.Parameter(nonneg=True, value=1.0)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta([[0.0], [1.0]]) - 1) + lam * ko.sum_squares(theta)))
    with pytest.raises(OptionError, match="two numbers"):
        ko.tune(problem, cp.sum_squares(theta([[0.5]])), [lam], {lam: ("a", 1)})
