"""Threads of BLAS within a solve, and after it: numpy's library keeps them, scipy's copy has one."""

import threading
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

import kernelopt as ko
from kernelopt.language.rows import BLOCK, Rows
from kernelopt.model_selection import jax_layer, leave_one_out
from kernelopt.support import clock, threads
from kernelopt.support.threads import AHEAD, _belongs, _Limit, for_factoring, in_order, in_threads, one_pool

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


@pytest.mark.later
@two_copies
@pytest.mark.parametrize("call", ["gradient", "tune", "leave one out", "layer"])
def test_derivatives_have_one_pool_of_threads_too(call, monkeypatch):
    """They call numpy and scipy in turn, and took twice as long on two cores, with two pools."""
    X, seen = np.arange(12.0).reshape(6, 2), []
    theta, lam = ko.Theta(ko.kernels.Gaussian(sigma=3.0)), cp.Parameter(pos=True, value=1.0, name="lam")
    f = theta(X)
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.log_loss(np.tile([-1, 1], 3), f)) + lam * ko.sum_squares(theta)))

    def watched(work):
        def called(*args, **options):
            seen.extend(of_scipy())
            return work(*args, **options)

        return called

    criterion = watched(lambda values: (float(values @ values), 2 * values))
    with threadpool_limits(2, "blas"):
        problem.solve()
        if call == "gradient":
            ko.gradient(problem, criterion, at=f)
        elif call == "tune":
            ko.tune(problem, criterion, [lam], at=f, max_evaluations=3)
        elif call == "leave one out":
            monkeypatch.setattr(leave_one_out, "local_model", watched(leave_one_out.local_model))
            ko.approximate_leave_one_out(problem, f)
        else:
            pytest.importorskip("jax")
            monkeypatch.setattr(jax_layer, "Refined", watched(jax_layer.Refined))
            ko.JaxLayer(problem, [lam], [f])(1.0)
        assert of_scipy() == [2] * len(OF_SCIPY)
    assert seen and set(seen) == {1}


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


@pytest.fixture
def two_threads(monkeypatch):
    library = Library(2)
    monkeypatch.setattr(threads, "_libraries", lambda: [library])
    monkeypatch.setattr(threads, "_single", _Limit(lambda: [library]))
    return library


def test_results_come_in_order_and_no_more_than_a_few_are_begun(two_threads):
    begun = []

    def work(item):
        begun.append(item)
        return item * item

    results = in_order(work, range(100))
    assert [next(results) for _ in range(3)] == [0, 1, 4]
    results.close()
    assert 3 <= len(begun) <= 3 + 2 * AHEAD + 1
    assert two_threads.count == 2
    assert list(in_order(work, range(5), most=1)) == [0, 1, 4, 9, 16]


def test_work_has_the_deadline_and_the_error_state_of_the_caller(two_threads):
    def work(item):
        clock.check()
        return np.array([1e308]) * item  # a warning, which is an error, in another error state

    with np.errstate(over="ignore"):
        assert [x[0] for x in in_order(work, [1, 10])] == [1e308, np.inf]
        with clock.limited(0.0), pytest.raises(clock.OutOfTimeError):
            list(in_order(work, [1, 10]))
    with pytest.raises(RuntimeWarning):
        list(in_order(work, [1, 10]))
    assert two_threads.count == 2


@pytest.mark.one_row
@pytest.mark.parametrize("count", [5, BLOCK, 3 * BLOCK + 7])
def test_passes_over_the_kernel_do_not_depend_on_threads(count, monkeypatch):
    rng = np.random.default_rng(0)
    rows = Rows.of_points(ko.kernels.Gaussian(sigma=1.0), rng.normal(size=(count, 2)))
    V = rng.normal(size=(count, 2))
    alone = rows.quadratic(V), rows.product(V)
    library = Library(3)
    monkeypatch.setattr(threads, "_libraries", lambda: [library])
    monkeypatch.setattr(threads, "_single", _Limit(lambda: [library]))
    together = rows.quadratic(V), rows.product(V)
    assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))
    Q = rows.gram()
    np.testing.assert_allclose(alone[0], V.T @ Q @ V, rtol=1e-10)
    np.testing.assert_allclose(alone[1], Q @ V, rtol=1e-10, atol=1e-10 * np.abs(Q @ V).max())


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
