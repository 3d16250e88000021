"""Ctrl-C and time limits in solvers of others, each in a process of its own, which gets the signal."""

import os
import subprocess
import sys
import threading

import cvxpy as cp
import numpy as np
import pytest
from clocks import moved

import kernelopt as ko
from kernelopt.support import outside
from kernelopt.support.clock import OutOfTimeError

CONIC = [s for s in ("CLARABEL", "OSQP", "ECOS", "SCS", "HIGHS") if s in cp.installed_solvers()]
# A problem that takes the solver several seconds, of a tolerance that it hardly reaches.
STATED = """
import os, signal, sys, threading, time
import cvxpy as cp, numpy as np
import kernelopt as ko
from kernelopt.support import clock

signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
solver, n = sys.argv[1], {"CLARABEL": 1600, "OSQP": 1600, "ECOS": 1000, "SCS": 1000, "HIGHS": 600}[sys.argv[1]]
rng = np.random.default_rng(0)
X = rng.normal(size=(n, 5))
y = np.sign(np.sin(2 * X[:, 0]) + X[:, 1] + 0.5 * rng.normal(size=n))
theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
if solver == "HIGHS":
    chosen = cp.Variable(40, boolean=True)
    loss = cp.sum(cp.abs(y - theta(X) - rng.normal(size=(n, 40)) @ chosen))
    problem = ko.Problem(cp.Minimize(loss), [cp.abs(theta(X)) <= 2])
else:
    loss = cp.sum(ko.losses.hinge(y, theta(X) + b))
    problem = ko.Problem(cp.Minimize(loss + 0.01 * ko.sum_squares(theta)))
options = dict(solver=solver, tol=1e-9, rank_tol=1e-12)
if solver == "HIGHS":  # it can't be told to stop, and a process that exits while it runs is aborted by its library
    options["time_limit"] = 4
"""
INTERRUPTED = (
    STATED
    + """
from kernelopt.support.cvxpy_parts import Compiled

sent, ours = [], Compiled.answer

def answer(*arguments):
    def send():
        sent.append(solver)
        os.kill(os.getpid(), signal.SIGINT)
    timer = threading.Timer(0.6, send)
    timer.daemon = True
    timer.start()
    return ours(*arguments)

Compiled.answer = answer
theta.value = before = ko.Function(theta.kernel, X[:2], np.ones(2))
handler = signal.getsignal(signal.SIGINT)
try:
    problem.solve(**options)
    print("returned", problem.status)
except KeyboardInterrupt:
    same = theta.value is before and problem.value is None and problem.status is None and b.value is None
    print("interrupted", len(sent), same, signal.getsignal(signal.SIGINT) is handler)
time.sleep(0.5)
try:
    os.kill(os.getpid(), signal.SIGINT)  # the process hears the next one, too
    time.sleep(1)
except KeyboardInterrupt:
    print("again")
for thread in threading.enumerate():
    if thread is not threading.current_thread():
        thread.join()
"""
)


def run(program, *arguments):
    root = os.path.dirname(os.path.dirname(ko.__file__))
    environment = os.environ | {"PYTHONPATH": root, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *arguments], capture_output=True, text=True, timeout=120,
        env=environment, check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
@pytest.mark.parametrize("solver", CONIC)
def test_ctrl_c(solver):
    found = run(INTERRUPTED, solver)
    assert "interrupted 1 True True" in found.stdout, found.stdout + found.stderr
    assert "again" in found.stdout
    assert found.returncode == 0


LIMITED = (
    STATED
    + """
problem.solve(solver=solver, tol=1e-9, rank_tol=1e-12, time_limit=0.05 if solver == "HIGHS" else 0.3)  # compiles too
limit = float(sys.argv[2])
clock.perf_counter = time.process_time  # seconds of this process's own work, however busy the machine is
start = clock.now()
value = problem.solve(**{**options, "time_limit": limit})
print("late", clock.now() - start - limit)
print("value", value, problem.status, problem.certificate)
"""
)


@pytest.mark.slow
@pytest.mark.parametrize("solver", CONIC)
def test_time_limits(solver):
    """A point is there, θ = 0 at least, after little more work than the limit allows."""
    found = run(LIMITED, solver, "0.5")
    assert found.returncode == 0, found.stderr
    lines = dict(line.split(" ", 1) for line in found.stdout.splitlines() if line.startswith(("late", "value")))
    assert float(lines["late"]) < 2.0
    assert "None user_limit" not in lines["value"]


# ---------------------------------------------------------------- the call itself


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    outside.wait_for_others(10.0)


def test_values_errors_and_context():
    assert outside.call(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        outside.call(lambda: 1 / 0)
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        outside.call(lambda: np.ones(1) / np.zeros(1))


@pytest.mark.slow
def test_a_call_that_stops_in_time_gives_its_value():
    told = threading.Event()
    assert outside.call(lambda: told.wait(20) and "stopped", 0.1, told.set) == "stopped"


@pytest.mark.slow
def test_a_call_that_does_not_stop_is_left():
    ends = threading.Event()
    with pytest.raises(OutOfTimeError):  # and no value, which there is only once `ends` is set
        outside.call(ends.wait, 0.1, lambda: None)
    with pytest.raises(OutOfTimeError):
        outside.wait_for_others(0.05)
    ends.set()
    outside.wait_for_others(10.0)
    with pytest.raises(OutOfTimeError):
        outside.call(lambda: 1, 0.0)


@pytest.mark.slow
@pytest.mark.skipif(not {"OSQP", "SCS"} <= {*CONIC}, reason="needs solvers that replace the handler of Ctrl-C")
def test_the_handler_of_ctrl_c_survives_solvers_in_threads():
    """Two at a time each put back what they found, which may be the other's: Python would not hear Ctrl-C again."""
    before = outside._address()

    def solve(name):
        for seed in range(4):
            rng = np.random.default_rng(seed)
            X = rng.normal(size=(60, 2))
            theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
            loss = cp.sum(ko.losses.hinge(np.sign(X[:, 0]), theta(X)))
            ko.Problem(cp.Minimize(loss + ko.sum_squares(theta))).solve(solver=name, tol=1e-3)

    threads = [threading.Thread(target=solve, args=(name,)) for name in ("OSQP", "SCS", "OSQP", "SCS")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outside._address() == before


# ---------------------------------------------------------------- without a point


def hinge(n=200, kernel=None, constraints=lambda f: []):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    y = np.sign(X[:, 0] + 0.5 * rng.normal(size=n))
    theta, b = ko.Theta(kernel or ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    f = theta(X) + b
    loss = cp.sum(ko.losses.hinge(y, f)) + 0.1 * ko.sum_squares(theta)
    return theta, b, y, ko.Problem(cp.Minimize(loss), constraints(f))


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["CLARABEL", "SCS", "INTERIOR_POINT", None])
def test_no_time_at_all(solver):
    theta, b, y, problem = hinge()
    value = problem.solve(solver=solver, time_limit=1e-6)
    assert problem.status == "user_limit" and problem.certificate.lower <= value
    at_zero = np.maximum(0, 1 - y * b.value).sum()
    assert theta.value.norm > 0 or value == pytest.approx(at_zero)
    problem.solve(solver=solver)  # a factor of one column is not kept
    assert problem.status == "optimal" and problem.value < value


@pytest.mark.slow
def test_no_time_and_zero_is_not_feasible():
    _, b, _, problem = hinge(constraints=lambda f: [f[:100] >= 1, f[100:] <= -1])
    assert problem.solve(solver="CLARABEL", time_limit=1e-6) is None
    assert problem.status == "user_limit" and b.value is None


@pytest.mark.later
@pytest.mark.parametrize("psd", [None, True])
def test_a_slow_kernel_is_stopped(monkeypatch, psd):
    """All values take 5 s and more, on a clock that only they move, and so do samples of them."""
    now = moved(monkeypatch)

    def slow(x, z):
        now.now += 1e-4
        return float(np.exp(-((x - z) ** 2).sum()))

    theta, _, _, problem = hinge(300, ko.kernels.FromFunction(slow, psd=psd))
    problem.solve(time_limit=0.3)
    assert problem.status == "user_limit" and theta.value is not None
    assert now.now < 4
