"""What is kept where a solve with a growing factor is stopped: by Ctrl-C, by a time limit, in memory and in blocks."""

import dataclasses
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
from clocks import moved
from distributed import Client, LocalCluster

import kernelopt as ko
from kernelopt.certificate import FULL, REDUCED, attained
from kernelopt.driver.diagnosis import Diagnosis
from kernelopt.driver.strategy import Goal
from kernelopt.errors import MemoryLimitError, SolverError
from kernelopt.factorization.blocked import BlockFactor
from kernelopt.language.rows import Rows
from kernelopt.results.solution import Status
from kernelopt.support import clock

KERNEL = ko.kernels.Gaussian(sigma=2.0)
TOL = 1e-6


def stated(n=3000):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6))
    y = np.where(np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * rng.normal(size=n) > 1, 1.0, -1.0)
    theta, b = ko.Theta(KERNEL), cp.Variable()
    loss = cp.sum(ko.losses.log_loss(y, theta(X) + b))
    return theta, ko.Problem(cp.Minimize(loss + 0.5 * ko.sum_squares(theta)))


@pytest.fixture(scope="module")
def optimum():
    _, problem = stated()
    problem.solve(tol=TOL)
    assert problem.status == "optimal" and len(problem.history) > 1
    return problem.certificate


def stopped_at(monkeypatch, target, name, number, error):
    """The `number`-th call raises, and so do all later ones; where time is over, it stays so."""
    calls, ours = [], getattr(target, name)

    def counted(*arguments, **options):
        calls.append(1)
        if len(calls) >= number:
            if error is clock.OutOfTimeError:
                monkeypatch.setattr(Goal, "seconds_left", lambda _: -1.0)
            raise error
        return ours(*arguments, **options)

    monkeypatch.setattr(target, name, counted)


def require_best_point(theta, problem, optimum, scope, most=0.2):
    found = problem.certificate
    assert found.scope == scope
    assert found.lower - found.rounding <= problem.value <= found.upper + found.rounding
    assert optimum is None or problem.value >= optimum.lower - 1e-6 * optimum.upper
    assert found.relative_gap <= most
    assert theta.value(np.zeros((2, 6))).shape == (2,)
    if scope == FULL:
        assert found.lower <= optimum.upper


LAYOUTS = pytest.mark.parametrize("options", [{}, {"dtype": "float32"}], ids=["array", "blocks"])


@pytest.mark.slow
@LAYOUTS
@pytest.mark.parametrize("error", [KeyboardInterrupt, clock.OutOfTimeError])
def test_while_a_factor_grows(monkeypatch, optimum, error, options):
    theta, problem = stated()
    stopped_at(monkeypatch, ko.driver.refine, "grow", 1, error)
    if error is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            problem.solve(tol=TOL, **options)
    else:
        problem.solve(tol=TOL, **options)
        assert problem.status == "user_limit"
    require_best_point(theta, problem, optimum, FULL)
    assert len(problem.history) == 1
    monkeypatch.undo()
    problem.solve(tol=1e-4, **options)
    assert problem.status == "optimal"


@pytest.mark.slow
@LAYOUTS
@pytest.mark.parametrize("error", [KeyboardInterrupt, clock.OutOfTimeError])
@pytest.mark.parametrize("number", [1, 2])
def test_in_a_pass_over_the_kernel(monkeypatch, optimum, error, options, number):
    """The first time only the reduced problem's gap is known; later the lower bound of the first pass stands."""
    theta, problem = stated()
    stopped_at(monkeypatch, BlockFactor if options else Rows, "product", number, error)
    if error is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            problem.solve(tol=TOL, **options)
    else:
        problem.solve(tol=TOL, **options)
        assert problem.status == "user_limit"
    require_best_point(theta, problem, optimum, REDUCED if number == 1 else FULL)


@pytest.mark.slow
def test_before_there_is_a_point(monkeypatch):
    theta, problem = stated()
    problem.solve(tol=1e-2)
    before = problem.value, problem.certificate, theta.value
    stopped_at(monkeypatch, ko.driver.refine, "factorize", 1, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        problem.solve(tol=1e-2, rank_tol=1e-3)
    assert (problem.value, problem.certificate, theta.value) == before


@pytest.mark.slow
@LAYOUTS
def test_a_time_limit_is_looked_at_inside(monkeypatch, optimum, options):
    """Of factorizations and passes over the kernel, between blocks of rows."""
    theta, problem = stated()
    ours, now = clock.check, moved(monkeypatch)

    def slow():
        now.now += 0.2
        ours()

    monkeypatch.setattr(clock, "check", slow)
    problem.solve(tol=1e-9, time_limit=0.5, **options)
    assert problem.status == "user_limit"
    require_best_point(theta, problem, optimum, problem.certificate.scope, most=np.inf)


@pytest.fixture
def half_a_second(monkeypatch):
    """The time that is left at any reading of the clock, however slow the machine is."""
    moved(monkeypatch)
    return 0.5


@pytest.mark.later
def test_factors_grow_while_there_is_time(monkeypatch, half_a_second):
    for name, value in {"MANY": 0, "FEW": 0, "FIRST": 0.5, "LEAST": 1}.items():
        monkeypatch.setattr(ko.driver.policy, name, value)
    _, problem = stated(120)
    problem.solve(tol=1e-4, time_limit=half_a_second)
    assert problem.status == "optimal"
    assert len(problem.history) > 1


@pytest.mark.later
def test_another_solver_runs_while_there_is_time(monkeypatch, half_a_second):
    """After one that breaks off."""

    def broken(*_):
        raise SolverError("broken")

    monkeypatch.setattr(ko.driver.convex.engines, "solve", broken)
    _, problem = stated(30)
    problem.solve(time_limit=half_a_second)
    assert problem.status == "optimal"
    assert problem.solver_stats.solver_name == "CLARABEL"
    monkeypatch.setattr(ko.driver.convex.cvxpy_solvers, "solve_reduction", broken)
    with pytest.raises(SolverError, match="No solver found a point"):
        stated(30)[1].solve(time_limit=half_a_second)  # there was time, so that θ = 0 is no answer


def test_an_answer_whose_first_bounds_take_too_long(monkeypatch):
    """It is kept, and certified as far as time allows."""
    asked = []

    def slow(*arguments):
        asked.append(arguments)
        raise clock.OutOfTimeError

    monkeypatch.setattr(ko.driver.convex.certificates, "gap_of_solver", lambda *_: np.nan)
    monkeypatch.setattr(ko.driver.convex.certificates, "first_look", slow)
    theta, problem = stated(30)
    problem.solve(solver="CLARABEL")
    assert asked
    assert theta.value is not None
    assert problem.certificate.lower <= problem.value <= problem.certificate.upper


@pytest.mark.slow
@pytest.mark.parametrize("model", ["expanded", "compact"])
def test_ctrl_c_at_any_time(monkeypatch, model):
    """After the first answer the best one stays; before, everything is as it was."""
    for name, value in {"MANY": 0, "FEW": 0, "FIRST": 0.5, "LEAST": 1}.items():
        monkeypatch.setattr(ko.driver.policy, name, value)
    ours, calls = ko.kernels.Gaussian._matrix, []

    def counted(kernel, X, Z):
        calls.append(1)
        if len(calls) == last:
            raise KeyboardInterrupt
        return ours(kernel, X, Z)

    monkeypatch.setattr(ko.kernels.Gaussian, "_matrix", counted)
    kept = last = 0
    while True:
        last += 1
        calls.clear()
        theta, problem = stated(120)
        try:
            problem.solve(tol=1e-4, model=model)
            break
        except KeyboardInterrupt:
            there = problem.value is not None
            assert there == (theta.value is not None) == all(v.value is not None for v in problem.variables())
            assert there or kept == 0  # once there is an answer, it is never lost again
            kept += there
            if there:
                assert problem.objective.value == pytest.approx(problem.value)
    assert kept >= 3
    assert problem.status == "optimal"


@pytest.mark.parametrize("within", ["a solver", "the proof"])
def test_ctrl_c_asks_nothing_further(monkeypatch, within):
    """Whether the problem has an answer at all may take longer than what was interrupted."""
    _, problem = stated(20)
    asked, ran, ours = [], [], ko.driver.convex.engines.solve

    def poor(*arguments):
        ran.append(1)
        found = ours(*arguments)
        far = dataclasses.replace(found.point, v=tuple(-3 * v for v in found.point.v))
        return dataclasses.replace(
            found, status=Status.USER_LIMIT, point=far, predictions=None, interrupted=within == "a solver"
        )

    monkeypatch.setattr(ko.driver.convex.engines, "solve", poor)
    monkeypatch.setattr(ko.driver.diagnosis, "diagnose", lambda *_: asked.append(1) or Diagnosis())
    if within == "the proof":
        stopped_at(monkeypatch, ko.driver.judgement.certificates, "certified", 1, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        problem.solve(solver="NEWTON")
    assert (len(ran), asked) == (1, [])
    assert problem.status == "user_limit" and problem.certificate.lower <= problem.value
    monkeypatch.undo()
    problem.solve()
    assert problem.status == "optimal"


@pytest.mark.slow
def test_a_limit_beside_a_large_semidefinite_variable(monkeypatch):
    """Clarabel's dense block of 90·91/2 rows takes a minute to set up: it is not begun."""
    rng, n, begun = np.random.default_rng(0), 90, []
    monkeypatch.setattr(ko.support.cvxpy_parts, "clarabel_answer", lambda *_: begun.append(1))
    moved(monkeypatch)
    theta, S = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable((n, n), PSD=True)
    loss = cp.sum_squares(theta(rng.normal(size=(n, 2))) - cp.diag(S)) + cp.sum_squares(S - rng.normal(size=(n, n)))
    problem = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta)))
    problem.solve(time_limit=1.0, solver="CLARABEL")
    assert problem.status == "user_limit" and not begun


@pytest.mark.slow
def test_what_fails_later_changes_nothing(monkeypatch):
    theta, problem = stated()
    problem.solve(tol=1e-2)
    before = problem.value, problem.certificate, theta.value, [v.value for v in problem.variables()]

    def broken(*_):
        raise RuntimeError("broken")

    monkeypatch.setattr(type(KERNEL), "_matrix", broken)
    with pytest.raises(RuntimeError, match="broken"):
        problem.solve(tol=1e-9)
    assert (problem.value, problem.certificate, theta.value, [v.value for v in problem.variables()]) == before
    assert problem.objective.value == pytest.approx(problem.value)


@pytest.mark.slow
def test_a_memory_limit_keeps_the_coarser_answer(monkeypatch, optimum):
    theta, problem = stated()
    stopped_at(monkeypatch, ko.driver.refine, "grow", 1, MemoryLimitError("no room"))
    problem.solve(tol=TOL)
    assert problem.status == "optimal_inaccurate"
    require_best_point(theta, problem, optimum, FULL)


@pytest.mark.slow
def test_a_worse_point_is_not_taken(monkeypatch, optimum):
    """A solver that is inaccurate with a finer factor."""
    ours, runs = ko.driver.convex.engines.solve, []

    def inaccurate(*arguments):
        runs.append(1)
        found = ours(*arguments)
        if len(runs) == 1:
            return found
        halved = dataclasses.replace(found.point, v=tuple(v / 2 for v in found.point.v))
        return dataclasses.replace(found, point=halved, predictions=None)

    theta, problem = stated()
    monkeypatch.setattr(ko.driver.convex.engines, "solve", inaccurate)
    problem.solve(tol=TOL, solver="NEWTON")  # which nobody stands by
    assert len(runs) > 1
    upper = problem.history.columns["upper"]
    assert problem.value <= upper[0] < upper[1]
    require_best_point(theta, problem, optimum, FULL)


@pytest.mark.slow
def test_the_bar_shows_the_certified_gap(capsys):
    _, problem = stated()
    problem.solve(tol=TOL, progress=True)
    printed = capsys.readouterr().err
    assert "certified gap" in printed and "rank " in printed and "NEWTON" in printed
    _, problem = stated()
    problem.solve(tol=1e-2)
    assert not capsys.readouterr().err


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as found,
    ):
        yield found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("stop", ["limit", "ctrl-c"])
def test_on_a_cluster(monkeypatch, client, stop):
    """In a pass over the kernel tasks that run are cancelled, and the workers can be asked again."""
    theta, problem = stated(2500)
    now, ours, cancel, cancelled = moved(monkeypatch), BlockFactor.product, client.cancel, []
    monkeypatch.setattr(ko.factorization.cluster, "LOOK", 0.0)  # however soon the workers are done

    def product(*arguments):
        def stopped(*_):
            if stop == "ctrl-c":
                raise KeyboardInterrupt
            return ours_check()

        ours_check = clock.check
        now.now += 20.0  # past the limit, before the first look at the clock
        monkeypatch.setattr(clock, "check", stopped)
        monkeypatch.setattr(client, "cancel", lambda futures: cancelled.append(len(futures)) or cancel(futures))
        try:
            return ours(*arguments)
        finally:
            monkeypatch.setattr(clock, "check", ours_check)

    monkeypatch.setattr(BlockFactor, "product", product)
    if stop == "ctrl-c":
        with pytest.raises(KeyboardInterrupt):
            problem.solve(tol=1e-9, backend=client)
    else:
        problem.solve(tol=1e-9, time_limit=10.0, backend=client)
        assert problem.status == "user_limit"
    assert cancelled
    require_best_point(theta, problem, None, REDUCED, most=np.inf)
    monkeypatch.undo()
    problem.solve(tol=1e-2, backend=client)
    assert problem.status == "optimal"
    assert theta.value(np.zeros((1, 6))).shape == (1,)


def test_an_optimum_at_0_that_was_not_found_in_time(monkeypatch):
    """Relative to |P| a gap may be small that is large beside P₀ − P: such an answer is not called optimal."""
    X = np.random.default_rng(0).normal(size=(20, 2))
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(cp.norm(theta(X) - 1) + ko.norm(theta)))

    def out_of_time(*_):
        raise clock.OutOfTimeError

    over = SimpleNamespace(OutOfTimeError=clock.OutOfTimeError, LAST=clock.LAST, seconds_left=lambda: 0.0)
    with monkeypatch.context() as patched:
        patched.setattr(attained, "clock", over)
        patched.setattr(attained, "_found_at_zero", out_of_time)
        problem.solve()
    assert problem.status == "optimal_inaccurate"
    assert problem.certificate.at_zero is None and problem.certificate.relative_gap <= TOL
    problem.solve()
    assert problem.status == "optimal" and problem.certificate.at_zero is not None
