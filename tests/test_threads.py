"""Threads of BLAS within a solve, and after it: numpy's library keeps them, scipy's copy has one."""

import threading
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

import kernelopt as ko
from kernelopt.support import threads
from kernelopt.support.threads import _belongs, _Limit, for_factoring, in_threads, one_pool

LIBRARIES = ThreadpoolController().select(user_api="blas").lib_controllers
OF_SCIPY = [x for x in LIBRARIES if _belongs(x.filepath, "scipy")]
two_copies = pytest.mark.skipif(
    not (OF_SCIPY and any(_belongs(x.filepath, "numpy") for x in LIBRARIES)), reason="numpy and scipy share one BLAS"
)


class Library:
    """A BLAS library as threadpoolctl sees it."""

    def __init__(self, count=4):
        self.count = count

    def get_num_threads(self):
        return self.count

    def set_num_threads(self, count):
        self.count = count


def of_scipy():
    return [x.get_num_threads() for x in OF_SCIPY]


@two_copies
def test_a_solve_has_one_pool_of_threads_and_gives_the_other_back():
    seen = []

    def kernel(a, b):
        seen.append((of_scipy(), [x.get_num_threads() for x in LIBRARIES if x not in OF_SCIPY]))
        return float(a @ b)

    X, theta = np.arange(12.0).reshape(6, 2), ko.Theta(ko.kernels.FromFunction(kernel))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - 1) + ko.sum_squares(theta)))
    seen.clear()
    with threadpool_limits(2, "blas"):
        problem.solve()
        assert of_scipy() == [2] * len(OF_SCIPY)
        with pytest.raises(ko.errors.OptionError):
            problem.solve(tol=-1)
        assert of_scipy() == [2] * len(OF_SCIPY)
    assert seen
    assert all(set(scipys) == {1} for scipys, _ in seen)
    assert any(2 in others for _, others in seen)  # one within `in_threads`


def test_threads_come_back_with_the_last_context():
    libraries = (Library(4), Library(1))
    limit = _Limit(lambda: libraries)
    counts = lambda: [x.count for x in libraries]
    with limit:
        with limit:
            assert counts() == [1, 1]
        assert counts() == [1, 1]
        with limit.lifted():
            assert counts() == [4, 1]
        assert counts() == [1, 1]
    assert counts() == [4, 1]
    with limit.lifted():  # outside of the context there is nothing to lift
        assert counts() == [4, 1]
    assert counts() == [4, 1]


def test_contexts_of_two_threads_that_overlap():
    library = Library(3)
    limit, entered, leave = _Limit(lambda: [library]), threading.Event(), threading.Event()

    def other():
        with limit:
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with limit:
        thread.start()
        assert entered.wait(10)
    assert library.count == 1  # the other thread is still in it
    leave.set()
    thread.join()
    assert library.count == 3


def test_a_forked_process_gives_back_what_threads_that_it_lacks_took():
    library = Library(3)
    limit = _Limit(lambda: [library])
    limit.__enter__()  # by a thread that the child does not have
    limit.forget_users()
    with limit:
        assert library.count == 1
    assert library.count == 3


def test_only_large_matrices_get_the_threads_back(monkeypatch):
    library = Library(2)
    limit = _Limit(lambda: [library])
    monkeypatch.setattr(threads, "_one_pool", limit)
    with one_pool():
        with for_factoring(threads.LARGE - 1):
            assert library.count == 1
        with for_factoring(threads.LARGE):
            assert library.count == 2
        assert library.count == 1


def test_blocks_run_in_threads_with_one_of_blas_each(monkeypatch):
    library = Library(2)
    limit = _Limit(lambda: [library])
    monkeypatch.setattr(threads, "_libraries", lambda: [library])
    monkeypatch.setattr(threads, "_single", limit)
    barrier = threading.Barrier(2)

    def work(item):
        barrier.wait(10)  # both run at the same time
        return item, library.count

    assert in_threads(work, [5, 6]) == [(5, 1), (6, 1)]
    assert library.count == 2
    library.count = 1
    assert in_threads(lambda item: item, [5, 6]) == [5, 6]


@pytest.mark.parametrize(
    ("path", "package", "expected"),
    [
        ("/env/lib/site-packages/scipy.libs/libscipy_openblas-1.so", "scipy", True),
        ("/env/lib/site-packages/numpy.libs/libscipy_openblas64_-1.so", "scipy", False),
        ("/env/lib/site-packages/numpy.libs/libscipy_openblas64_-1.so", "numpy", True),
        ("/env/lib/site-packages/scipy/.dylibs/libscipy_openblas.dylib", "scipy", True),
        ("/home/scipy/project/env/lib/libopenblas.so.0", "scipy", False),
        ("/opt/conda/lib/libopenblasp-r0.3.so", "numpy", False),
    ],
)
def test_whose_library_it_is(path, package, expected):
    assert _belongs(path, package) is expected


@pytest.mark.parametrize(("packages", "count"), [(["numpy", "scipy"], 1), (["scipy"], 0), (["numpy"], 0)])
def test_only_a_second_pool_is_limited(monkeypatch, packages, count):
    found = [SimpleNamespace(filepath=f"/site-packages/{name}.libs/lib.so") for name in packages]
    monkeypatch.setattr(threads, "_libraries", lambda: found)
    assert len(threads._second_pools.__wrapped__()) == count
