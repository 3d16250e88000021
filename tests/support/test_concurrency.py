"""Forks while another thread solves, event loops, pools of processes, and what many solves leave behind."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import joblib
import pytest
from leaking import stated
from threadpoolctl import threadpool_limits

import kernelopt as ko
from kernelopt.support.optional import optional


def solved(seed, solver=None):
    return stated(seed=seed).solve(solver=solver)


FORKED = """
import os, sys, threading, time
import cvxpy as cp, numpy as np
import kernelopt as ko

solver, shared = {"own": None}.get(sys.argv[1], sys.argv[1]), sys.argv[2] == "shared"
rng = np.random.default_rng(0)
X = rng.normal(size=(250, 3))
y = np.sign(X[:, 0] + 0.5 * rng.normal(size=250))

def stated():
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    return ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(y, theta(X) + b)) + 0.01 * ko.sum_squares(theta)))

problem = stated()

def again():
    while True:
        problem.solve(solver=solver, warm_start=False)

threading.Thread(target=again, daemon=True).start()
time.sleep(1.0)
children = []
for i in range(4):
    time.sleep(0.03 * i)
    child = os.fork()
    if child == 0:
        try:
            mine = problem if shared else stated()
            mine.solve(solver=solver, warm_start=False)
            os._exit(0 if mine.status == "optimal" else 3)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(4)
    children.append(child)
deadline = time.time() + 40
for child in children:
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended or time.time() > deadline:
            break
        time.sleep(0.02)
    if not ended:
        os.kill(child, 9)
    print("ended" if ended else "hangs", status, flush=True)
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize("solver", ["own", "CLARABEL"])
@pytest.mark.parametrize("shared", ["shared", "another"])
def test_forks_while_another_thread_solves(solver, shared):
    """Locks are free in the child, modules are whole, and Clarabel does not wait for threads that the child lacks."""
    environment = os.environ | {
        "PYTHONPATH": os.path.dirname(os.path.dirname(ko.__file__)), "OPENBLAS_NUM_THREADS": "1"
    }  # fmt: skip
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED, solver, shared], capture_output=True, text=True, timeout=100,
        env=environment, check=False,
    )  # fmt: skip
    assert found.stdout.split("\n")[:-1] == ["ended 0"] * 4, found.stdout + found.stderr


SLOW = """
import threading, time
threading.current_thread().begun.set()
time.sleep(0.2)
whole = True
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork")  # JAX and Python tell that the child has none of their threads
def test_forks_wait_for_imports(tmp_path, monkeypatch):
    """A child that was forked within a lazy import would wait for ever: another thread, which it lacks, imports."""
    (tmp_path / "slow_to_import.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    found = []

    def imports():
        found.append(optional("slow_to_import", "a test").whole)

    def imported_elsewhere():
        """The thread that forks may take the lock again; another one takes it only where it is free."""
        another = threading.Thread(target=imports, daemon=True)
        another.start()
        another.join(5)
        return found[-1:] == [True] and not another.is_alive()

    thread = threading.Thread(target=imports)
    thread.begun = threading.Event()
    thread.start()
    assert thread.begun.wait(10)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(8)  # ends it where it hangs
        try:
            os._exit(0 if imported_elsewhere() else 3)
        finally:
            os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    thread.join()
    assert imported_elsewhere() and found == [True, True]
    del sys.modules["slow_to_import"]


@pytest.mark.slow
@pytest.mark.parametrize("solver", [None, "CLARABEL", "OSQP"])
def test_threads_and_event_loops(solver):
    expected = [solved(seed, solver) for seed in range(6)]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda seed: solved(seed, solver), range(6))) == pytest.approx(expected)

    async def gathered():
        return await asyncio.gather(*(asyncio.to_thread(solved, seed, solver) for seed in range(6)))

    assert asyncio.run(gathered()) == pytest.approx(expected)


@pytest.mark.later
def test_processes_of_loky():
    found = joblib.Parallel(n_jobs=2)(joblib.delayed(stated(seed=seed).solve)() for seed in range(3))
    assert found == pytest.approx([solved(seed) for seed in range(3)])


@pytest.mark.later
def test_within_limits_of_blas():
    with threadpool_limits(1, "blas"):
        expected = solved(0)
    with threadpool_limits(2, "blas"):
        assert solved(0) == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("solver", [None, "CLARABEL"])
def test_nothing_is_left(solver):
    """Memory and threads after many solves are as after some: 40 problems of 15 kB each would show."""
    tracemalloc.start()
    try:
        sizes, threads = [], []
        for count in (15, 40):
            for seed in range(count):
                stated(seed=seed % 5).solve(solver=solver, tol=1e-3)
            gc.collect()  # cycles, whose time is the collector's own
            sizes.append(tracemalloc.get_traced_memory()[0])
            threads.append(threading.active_count())
    finally:
        tracemalloc.stop()
    assert sizes[1] - sizes[0] < 500_000
    assert threads[1] <= threads[0]
