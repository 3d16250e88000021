"""A cluster without live workers: a clear error, or the time limit, whichever comes first."""

import threading
from types import SimpleNamespace

import cvxpy as cp
import dask.array as da
import numpy as np
import pytest
from clocks import moved
from distributed import Client, LocalCluster
from inside import reduction_of

import kernelopt as ko
from kernelopt.errors import ClusterError, SolverError
from kernelopt.factorization import cluster
from kernelopt.factorization.block_matrix import BlockMatrix
from kernelopt.factorization.blocked import BlockFactor
from kernelopt.factorization.cluster import OnDask

pytestmark = pytest.mark.filterwarnings("ignore")  # Dask's, of threads that compute in this process


def stated(n=1500, chunks=None, loss=ko.losses.huber):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=n)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(X if chunks is None else da.from_array(X, chunks=chunks))
    return theta, ko.Problem(cp.Minimize(cp.sum(loss(y, f)) + 0.1 * ko.sum_squares(theta)))


@pytest.fixture
def alone():
    """A client of a cluster without workers."""
    with (
        LocalCluster(n_workers=0, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


def leave(client):
    """All workers end, and none replaces them."""
    client.cluster.scale(0)
    while client.scheduler_info(n_workers=-1)["workers"]:
        pass


def test_no_worker_comes(monkeypatch, alone):
    """Each look at the clock takes five of its seconds: the cluster is given up after thirty."""
    theta, problem = stated()
    clock = moved(monkeypatch, tick=5.0)
    with pytest.raises(ClusterError, match=r"Expected at least one live worker .*; got none for \d\d s") as caught:
        problem.solve(backend=alone)
    assert isinstance(caught.value, SolverError) and "wait_for_workers(1)" in str(caught.value)
    assert clock.readings < 30 and problem.status is None and theta.value is None


def test_a_client_that_is_closed():
    _, problem = stated()
    with LocalCluster(n_workers=0, processes=False, dashboard_address=None) as workers:
        client = Client(workers, set_as_default=False)
        client.close()
        with pytest.raises(ClusterError, match="got a closed client"):
            problem.solve(backend=client)


@pytest.mark.slow
def test_the_limit_comes_before_any_worker(monkeypatch, alone):
    theta, problem = stated()
    moved(monkeypatch, tick=0.2)
    problem.solve(backend=alone, time_limit=2.0)
    found = problem.certificate
    assert problem.status == "user_limit" and problem.solver_stats.out_of_time
    assert 0 <= found.lower <= problem.value <= found.upper < np.inf
    assert theta.value(np.zeros((1, 3))).shape == (1,)


@pytest.mark.slow
def test_a_worker_that_comes_late(monkeypatch, alone):
    """Is waited for."""
    _, problem = stated()
    moved(monkeypatch)
    threading.Timer(0.2, lambda: alone.cluster.scale(1)).start()
    problem.solve(backend=alone, tol=1e-3)
    assert problem.status == "optimal"


@pytest.mark.slow
@pytest.mark.parametrize("limit", [None, 1000.0])
@pytest.mark.parametrize("operation", ["__matmul__", "gram", "product"])
def test_workers_leave_in_the_middle(monkeypatch, alone, limit, operation):
    """In a step of the solver, and in the pass over the kernel of the certificate."""
    theta, problem = stated()
    alone.cluster.scale(1)
    alone.wait_for_workers(1)
    clock = moved(monkeypatch)
    kind = BlockFactor if operation == "product" else BlockMatrix
    ours = getattr(kind, operation)

    def lost(*arguments):
        if not clock.tick:
            leave(alone)
            clock.tick = 5.0 if limit is None else 400.0
        return ours(*arguments)

    monkeypatch.setattr(kind, operation, lost)
    if limit is None:
        with pytest.raises(ClusterError, match="at least one live worker"):
            problem.solve(backend=alone, tol=1e-8)
        assert problem.value is None and theta.value is None
    else:
        problem.solve(backend=alone, tol=1e-8, time_limit=limit)
        assert problem.status == "user_limit" and np.isfinite(problem.value)
        assert 0 <= problem.certificate.lower <= problem.value
    assert clock.tick
    monkeypatch.undo()
    problem.solve(tol=1e-3)
    assert problem.status == "optimal"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [None, "float32"])
def test_dask_arrays_are_computed_where_they_are(alone, dtype):
    """In single precision, too."""
    alone.cluster.scale(1)
    alone.wait_for_workers(1)
    theta, problem = stated(1200, chunks=(500, 3))
    problem.solve(tol=1e-3, dtype=dtype)
    layout = reduction_of(problem).factors[theta].of_pivots.layout
    assert problem.status == "optimal" and layout.executor == OnDask.of(alone)
    assert np.dtype(layout.dtype) == (dtype or "float64")
    assert problem.certificate.lower <= problem.value <= problem.certificate.upper


def test_tasks_let_their_process_keep_freed_memory(monkeypatch):
    """Once in a process; other C libraries than glibc have no thresholds."""
    told = []
    monkeypatch.setattr(cluster.ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=lambda *pair: told.append(pair)))
    cluster._keep_freed_memory.cache_clear()
    assert [cluster._run(max, [1, k]) for k in (2, 3)] == [2, 3] and told == [(-1, 2**30), (-3, 2**25)]
    monkeypatch.setattr(cluster.ctypes, "CDLL", lambda name: SimpleNamespace())
    cluster._keep_freed_memory.cache_clear()
    assert cluster._run(max, [1, 2]) == 2
    cluster._keep_freed_memory.cache_clear()
