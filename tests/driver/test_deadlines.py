"""Time limits, by the order of events: a clock that ticks at each reading, or that a kernel moves."""

import sys

import cvxpy as cp
import numpy as np
import pytest
from clocks import moved
from scipy.special import xlogy

import kernelopt as ko
from kernelopt.certificate import ESTIMATE, FULL, REDUCED, Request, certified
from kernelopt.compiler.outer import outer_of
from kernelopt.errors import OptionError
from kernelopt.solvers import augmented_lagrangian, dual_feasibility, semismooth
from kernelopt.support.clock import OutOfTimeError, limited

LOSSES = {
    "log": lambda y, f: cp.sum(ko.losses.log_loss(np.sign(y), f)),
    "hinge": lambda y, f: cp.sum(ko.losses.hinge(np.sign(y), f)),
    "squares": lambda y, f: cp.sum_squares(y - f),
    "huber": lambda y, f: cp.sum(ko.losses.huber(y, f, 0.3)),
    "norm": lambda y, f: cp.norm(y - f),  # for a solver of cvxpy's
}


def stated(loss="log", n=60, sense=cp.Minimize, plus=0.0):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n)
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    objective = LOSSES[loss](y, theta(X) + b) + 0.5 * ko.sum_squares(theta) + plus
    return theta, ko.Problem(sense(objective if sense is cp.Minimize else -objective))


@pytest.mark.slow
@pytest.mark.parametrize("sense", [cp.Minimize, cp.Maximize])
@pytest.mark.parametrize("loss", LOSSES)
def test_ended_at_any_reading_of_the_clock(monkeypatch, loss, sense):
    """There is a point, its interval is honest, and losses that are nowhere negative keep it finite."""
    options = {"factorization": "streamed", "rank_tol": 1e-6}
    sign = 1.0 if sense is cp.Minimize else -1.0
    optimum = stated(loss, sense=sense)[1]
    optimum.solve()
    assert optimum.status == "optimal"
    clock = moved(monkeypatch)
    stated(loss, sense=sense)[1].solve(time_limit=1e9, **options)
    for limit in np.unique(np.geomspace(1, clock.readings, 4).astype(int)):
        clock = moved(monkeypatch, tick=1.0)
        theta, problem = stated(loss, sense=sense)
        problem.solve(time_limit=float(limit) + 0.5, **options)
        found = problem.certificate
        assert problem.status in {"user_limit", "optimal", "optimal_inaccurate"}
        assert problem.solver_stats.out_of_time or problem.status != "user_limit"
        assert theta.value is not None and np.isfinite([found.lower, found.upper]).all()
        assert found.lower <= problem.value <= found.upper
        assert sign * problem.value >= sign * optimum.value - 1e-5 * abs(optimum.value)
        assert found.of_terms == 0 and min(sign * found.lower, sign * found.upper) >= 0
        if found.scope == FULL and not found.assumptions:
            assert found.lower - 1e-5 * abs(optimum.value) <= optimum.value <= found.upper + 1e-5 * abs(optimum.value)
        elif found.scope == REDUCED:
            assert f"for every θ at {'least' if sense is cp.Minimize else 'most'} 0" in str(found)


def test_steps_before_the_limit_are_kept(monkeypatch):
    """Those of the last inner problem, too, which no multipliers were computed for yet."""
    _, problem = stated()
    now, ours, calls = moved(monkeypatch), semismooth.step, []

    def slow(*arguments):
        calls.append(1)
        now.now += 100.0 * (len(calls) == 3)
        return ours(*arguments)

    monkeypatch.setattr(semismooth, "step", slow)
    monkeypatch.setattr(augmented_lagrangian, "RANKS", (4,))  # as for many rows, the first steps are coarse
    problem.solve(time_limit=50.0)
    assert problem.status == "user_limit" and len(calls) == 3
    assert problem.certificate.relative_gap < 0.1


def test_multipliers_are_moved_as_far_as_time_allows(monkeypatch):
    """To Σz = 0 in a box here: what is found by then is no less of a point."""
    now = moved(monkeypatch)

    def weights(z):
        now.now += 1.0
        return dual_feasibility.room(z, -np.ones(3), np.ones(3))

    columns, z = np.ones((3, 1)), np.array([0.9, 0.9, -0.1])
    with limited(now.now + 0.5):
        found, left = dual_feasibility.corrected(columns, np.zeros(1), z, lambda z: np.clip(z, -1, 1), weights)
    assert found.shape == (3,) and 0 < left < 1


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [None, "float32"])
def test_no_more_columns_after_the_deadline(monkeypatch, dtype):
    """The first factor is left in the middle of a round, of which each takes 96 kernel values for each row."""
    n, before, after = 6000, [], []
    clock = moved(monkeypatch)

    def gaussian(X, Z):
        after.append(len(X) * len(Z)) if clock.now > 1 else before.append(len(X) * len(Z))
        if sum(before) > 100 * n:
            clock.now, clock.tick = max(clock.now, 2.0), 1.0
        return np.exp(-0.5 * np.square(X - Z.T))

    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1000, size=(n, 1))
    theta = ko.Theta(ko.kernels.FromFunction(gaussian, on_lists=True, psd=True))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(np.sin(x[:, 0]) - theta(x)) + 0.1 * ko.sum_squares(theta)))
    problem.solve(time_limit=1.0, tol=1e-3, dtype=dtype)
    assert problem.status == "user_limit" and problem.solver_stats.out_of_time
    assert len(theta.value.pivots) <= 1
    assert sum(before) < 200 * n  # the limit was reached within the first rounds
    assert sum(after) < 40 * n  # a column for the answer, and 384² values between candidates for its pivot
    assert 0 <= problem.certificate.lower <= problem.value <= problem.certificate.upper


@pytest.mark.slow
def test_the_bound_of_the_reduced_problem_is_made_before_the_pass(monkeypatch):
    """Where the pass over the kernel meets the limit, that bound stands, and no half second more is taken."""
    n, values = 3000, []
    clock = moved(monkeypatch)
    x = np.sort(np.random.default_rng(0).uniform(0, 30, size=(n, 1)), axis=0)

    def gaussian(X, Z):
        if len(X) == len(Z) == 1024 and not np.array_equal(X, Z):  # a block of a pass beside the diagonal
            values.append(clock.readings)
            clock.now = 10.0
        return np.exp(-0.5 * np.square(X - Z.T))

    theta = ko.Theta(ko.kernels.FromFunction(gaussian, on_lists=True, psd=True))
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.huber(np.sin(x[:, 0]), theta(x), 0.1)) + ko.sum_squares(theta)))
    problem.solve(time_limit=1.0, max_rank=20)
    found = problem.certificate
    assert values and problem.status == "user_limit"
    assert found.scope == REDUCED and 0 < found.lower <= problem.value <= found.upper and found.relative_gap < 1e-2
    assert "for every θ at least 0" in str(found) and "stated problem" in found._repr_html_()


# ---------------------------------------------------------------- bounds that need nothing


@pytest.mark.later
@pytest.mark.parametrize("plus", [0.0, 7.0])
def test_an_estimate_does_not_fall_below_what_the_terms_say(plus):
    """With one column of B a sample tells little: the estimate alone is far below 0."""
    _, problem = stated("log", 300, plus=plus)
    problem.solve(max_rank=1, certify="estimate")
    found = problem.certificate
    assert plus - 1e-12 <= found.lower <= problem.value and found.of_terms == pytest.approx(plus)
    assert found.scope in {ESTIMATE, FULL}
    assert (found.scope == FULL) == (found.lower == pytest.approx(plus, abs=1e-12))


def test_a_bound_of_all_terms_is_one_of_the_stated_problem():
    """An optimum of 0, with a factor that restricts θ."""
    X = np.random.default_rng(0).normal(size=(80, 2))
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    problem = ko.Problem(cp.Minimize(cp.norm1(3.0 - theta(X) - b) + ko.norm(theta)))
    problem.solve(max_rank=3)
    assert problem.value == pytest.approx(0.0, abs=1e-6)
    assert problem.certificate.scope == FULL and problem.certificate.lower >= 0.0


def test_terms_that_may_be_negative():
    X = np.random.default_rng(0).normal(size=(40, 2))
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    counts = np.arange(40.0) % 4
    problem = ko.Problem(cp.Minimize(-counts @ theta(X) + ko.sum_squares(theta)))
    problem.solve()
    assert problem.certificate.of_terms is None and problem.status == "optimal"
    problem.solve(max_rank=2, certify="estimate")
    assert problem.certificate.scope != ESTIMATE or "no bound for every θ" in str(problem.certificate)


# ---------------------------------------------------------------- texts


def test_without_a_certificate_no_gap_is_blamed():
    _, problem = stated("huber")
    problem.solve(certify=False)
    told = str(problem.explain())
    assert problem.status == "optimal_inaccurate" and problem.certificate is None
    assert "larger than tol" not in told and "certify=False" in told
    with pytest.raises(OptionError, match="time_limit"):
        problem.solve(time_limit=0)


CLASSES = np.arange(40) % 3
FUNCTIONS = {  # with Σ infₛ h(s) − gs for the slopes g that linear terms leave to a loss h
    "multinomial": (3, lambda f: cp.sum(ko.losses.multinomial(CLASSES, f)), 0.0),
    "crammer_singer": (3, lambda f: cp.sum(ko.losses.crammer_singer(CLASSES, f)), 0.0),
    "poisson": (None, lambda f: cp.sum(ko.losses.poisson(CLASSES, f)), np.sum(CLASSES - xlogy(CLASSES, CLASSES))),
    "logistic": (None, lambda f: cp.sum(cp.logistic(f)) - (CLASSES > 0) @ f, 0.0),
}


@pytest.mark.parametrize("sense", [cp.Minimize, cp.Maximize])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_losses_with_linear_terms_are_bounded_function_by_function(name, sense):
    """With an estimate nothing else holds for every θ."""
    outputs, loss, least = FUNCTIONS[name]
    X = np.random.default_rng(0).normal(size=(40, 2))
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=outputs)
    b = cp.Variable(outputs or ())
    objective, sign = loss(theta(X) + b) + 0.1 * ko.sum_squares(theta), 1.0 if sense is cp.Minimize else -1.0
    problem = ko.Problem(sense(sign * objective))
    problem.solve(max_rank=2, certify="estimate")
    found = problem.certificate
    assert found.scope in {ESTIMATE, FULL}
    assert -1e-9 <= least - sign * found.of_terms <= 1e-9 * max(1, abs(least)) + 1e-9
    assert found.scope == FULL or f"for every θ at {'least' if sense is cp.Minimize else 'most'}" in str(found)


def test_no_bound_of_terms_where_one_function_has_two_slopes():
    """Linear terms alone, and functions that share a prediction, are left to the proof."""
    X = np.random.default_rng(0).normal(size=(20, 2))
    for loss in (lambda f: np.arange(20.0) @ f, lambda f: cp.sum(cp.exp(f) + cp.exp(-2 * f)) + np.arange(20.0) @ f):
        theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
        problem = ko.Problem(cp.Minimize(loss(theta(X)) + ko.sum_squares(theta)))
        problem.solve(max_rank=2, certify="estimate")
        assert problem.certificate.of_terms is None


def test_the_limit_ends_the_search_of_a_box(monkeypatch):
    """Cells that are not halved any more leave a lower bound that proves less, and no answer is lost."""
    now, module = moved(monkeypatch), sys.modules["kernelopt.boxes.least_value"]
    ours = module._halved

    def slow(*arguments):
        now.now += 1.0
        return ours(*arguments)

    monkeypatch.setattr(module, "_halved", slow)
    X = np.random.default_rng(0).normal(size=(12, 2))
    theta = ko.Theta(ko.kernels.Laplacian(sigma=1.0))
    box = ko.everywhere(lambda P: theta(P) <= 0.1, [-1, -1], [1, 1])
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - X[:, 0]) + 0.01 * ko.sum_squares(theta)), [box])
    problem.solve(time_limit=3.5)
    assert problem.status == "user_limit" and now.now <= 6.0
    assert theta.value is not None and np.isfinite(box.least)


def test_a_proof_ends_with_the_time():
    """Moving multipliers takes as long as solving where constraints have many columns without a norm."""
    z = cp.Variable(60)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(np.random.default_rng(0).normal(size=(60, 2)))
    problem = ko.Problem(cp.Minimize(cp.sum_largest(z, 9) + ko.sum_squares(theta)), [cp.abs(f - 1) <= z])
    problem.solve()
    reduction, data = problem._factored.reduction, outer_of(problem.canonical_form())
    request = Request(rows=problem.certificate.evidence.rows)
    with pytest.raises(OutOfTimeError), limited(-np.inf):
        certified(reduction, data, problem._point, request)
