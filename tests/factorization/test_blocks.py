"""B in blocks, in single precision and on a Dask cluster, against B as one array."""

import os
import re
import signal
import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import cvxpy as cp
import dask.array as da
import numpy as np
import pytest
import scipy.linalg as sl
import scipy.sparse as sp
from distributed import Client, LocalCluster
from inside import reduction_of

import kernelopt as ko
from kernelopt.driver import options as checked
from kernelopt.errors import DataError, KernelError, MemoryLimitError, NotPSDError, OptionError, SolverError
from kernelopt.factorization import Guide, Layout, Settings, grow, memory
from kernelopt.factorization.block_matrix import BlockMatrix, Here
from kernelopt.factorization.blocked import BlockFactor, blocked_cholesky
from kernelopt.factorization.cluster import OnDask
from kernelopt.factorization.dense import CholeskyFactor
from kernelopt.factorization.tall import TallMatrix, tall
from kernelopt.language.rows import Rows

pytestmark = pytest.mark.filterwarnings("ignore")  # Dask's own: ports in use, slow starts
KERNEL = ko.kernels.Gaussian(sigma=1.5)
RNG = np.random.default_rng


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as found,
    ):
        yield found


def points(n=1500, d=3, seed=0):
    return RNG(seed).normal(size=(n, d))


def test_each_thread_has_the_same_number_of_blocks(monkeypatch):
    monkeypatch.setattr(checked, "is_client", lambda _: True)
    monkeypatch.setattr(checked.OnDask, "of", lambda _: SimpleNamespace(threads=3))
    for rows in (50_000, 500_000, 7_000_000):
        found = checked.layout(object(), None, rows)
        assert 0 < found.rows <= checked.ROWS
        assert -(-rows // found.rows) % 3 == 0
    assert checked.layout(object(), None, 5).rows == checked.FEWEST
    assert checked.layout(object(), None, 0).rows == checked.FEWEST  # a problem without predictions


def block_matrix(dtype):
    B = RNG(0).normal(size=(100, 7)).astype(dtype)
    starts = np.array([0, 30, 31, 100])
    return B.astype(float), BlockMatrix((B[:30], B[30:31], B[31:]), starts, 7, Here())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("held", ["array", "blocks"])
def test_a_tall_matrix_is_a_matrix(dtype, held):
    B, blocks = block_matrix(dtype)
    matrix = tall(blocks if held == "blocks" else B)
    assert isinstance(matrix, TallMatrix) and not getattr(type(matrix), "__abstractmethods__", None)
    v, d, w = RNG(1).normal(size=(7, 2)), RNG(2).normal(size=(100, 3)), RNG(3).normal(size=100)
    some = np.abs(w) * (w > 0.5)
    close = {"rtol": 1e-13, "atol": 1e-13}
    np.testing.assert_allclose(matrix @ v, B @ v, **close)
    np.testing.assert_allclose(matrix.adjoint(d), B.T @ d, **close)
    for weights in (w, np.abs(w), some):
        np.testing.assert_allclose(matrix.gram(weights), B.T @ (weights[:, None] * B), **close)
        np.testing.assert_allclose(matrix.cross(matrix.first(3), weights), B.T @ (weights[:, None] * B[:, :3]), **close)
    np.testing.assert_allclose(matrix.gram(w, d)[:, 7:], B.T @ d, **close)
    np.testing.assert_allclose(matrix.row_squares(), np.sum(B**2, axis=1), **close)
    np.testing.assert_allclose(matrix.column_squares(), np.sum(B**2, axis=0), **close)
    np.testing.assert_allclose(matrix.column_squares(w), w @ B**2, **close)
    E = sp.csr_array(sp.random_array((4, 100), density=0.1, rng=0))
    np.testing.assert_allclose(matrix.combined(E), E @ B, **close)
    assert matrix.shape == B.shape and len(matrix) == 100 and matrix.size == 700 and matrix.latency == 0
    chosen = np.array([99, 0, 30, 31, 0])
    np.testing.assert_array_equal(matrix.rows(chosen), B[chosen])
    np.testing.assert_array_equal(matrix.whole(), B)
    np.testing.assert_allclose(matrix.first(3) @ v[:3], B[:, :3] @ v[:3], **close)
    np.testing.assert_allclose(matrix.least_squares(d), np.linalg.lstsq(B, d)[0], rtol=1e-9)
    np.testing.assert_allclose(matrix.spectrum(), np.linalg.svd(B, compute_uv=False) ** 2, rtol=1e-9)
    T = RNG(4).normal(size=(100, 2))
    wider, _ = matrix.first(3).beside(T)
    np.testing.assert_allclose(
        tall(wider).whole(), np.hstack([B[:, :3], T.astype(dtype if held == "blocks" else float)])
    )


def test_rows_of_blocks_do_not_meet():
    """Where terms connect predictions of different rows, B is one array."""
    B, blocks = block_matrix(np.float64)
    T = sp.csr_array(sp.random_array((100, 100), density=0.02, rng=0))
    np.testing.assert_allclose(tall(B).connected(tall(B), T), B.T @ T @ B, rtol=1e-12, atol=1e-12)
    for run in (lambda: blocks.connected(blocks, T), lambda: blocks.cross(tall(B), np.ones(100))):
        with pytest.raises(SolverError, match="Leave out backend and dtype"):
            run()


@pytest.mark.parametrize("held", ["array", "blocks"])
def test_a_tall_matrix_indexes_as_an_array(held):
    B, blocks = block_matrix(np.float64)
    matrix = blocks if held == "blocks" else tall(B)
    chosen = np.array([99, 0, 30, 31, 0])
    for at in (chosen, slice(40), np.arange(100) % 3 == 0, (chosen, slice(2))):
        np.testing.assert_array_equal(matrix[at], B[at])
    np.testing.assert_allclose(matrix[:, :3].T @ np.ones(100), B[:, :3].T @ np.ones(100))
    assert matrix.T.shape == (7, 100)


def factor_of(X, layout, rank=60):
    rows = Rows.of_points(KERNEL, X)
    return rows, blocked_cholesky(rows, Settings(1e-8, rank), None, layout)


@pytest.mark.later
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-11), (np.float32, 1e-6)])
def test_factor(dtype, tolerance):
    X = points()
    rows, factor = factor_of(X, Layout(Here(), 400, dtype))
    Q, B = KERNEL(X), factor.B[np.arange(len(X))]
    L = np.linalg.cholesky(Q[np.ix_(factor.pivots, factor.pivots)])
    np.testing.assert_allclose(B, sl.solve_triangular(L, Q[factor.pivots], lower=True).T, atol=tolerance)
    np.testing.assert_allclose(factor.residual_diagonal, np.diag(Q) - np.sum(B**2, axis=1), atol=10 * tolerance)
    v = RNG(1).normal(size=(factor.rank, 2))
    exact = Q[:, factor.pivots] @ factor.coefficients(v)
    np.testing.assert_allclose(factor.predictions(rows, v), exact, atol=1e-11)  # from the kernel, whatever B holds
    np.testing.assert_allclose(factor.B @ v, exact, atol=100 * tolerance)
    V = RNG(2).normal(size=(len(X), 2))
    V[:500] = 0.0
    np.testing.assert_allclose(factor.product(rows, V), Q @ V, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(factor.quadratic(rows, V), V.T @ Q @ V, rtol=1e-10)


def test_it_grows():
    X = points()
    rows, factor = factor_of(X, Layout(Here(), 400))
    Q, nu = KERNEL(X), RNG(3).normal(size=(len(X), 1))
    for products in (None, Q @ nu):
        finer = grow(rows, factor, Guide(nu, products), 30, products is not None, Settings(1e-8, None))
        pivots = finer.of_pivots
        assert isinstance(pivots, BlockFactor) and np.array_equal(pivots.pivots[:60], factor.pivots)
        assert finer.rank == 90 + (products is not None)
        B = finer.B[np.arange(len(X))]
        before = float(np.squeeze(nu.T @ Q @ nu - np.sum((factor.B.T @ nu) ** 2)))
        after = float(np.squeeze(nu.T @ Q @ nu - np.sum((B.T @ nu) ** 2)))
        assert after < (1e-9 if products is not None else 0.9) * before


def stated(loss=ko.losses.log_loss, n=1500):
    X = points(n)
    y = np.where(np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * RNG(5).normal(size=n) > 1, 1.0, -1.0)
    theta, b = ko.Theta(KERNEL), cp.Variable()
    return theta, ko.Problem(cp.Minimize(cp.sum(loss(y, theta(X) + b)) + 0.5 * ko.sum_squares(theta))), X


@pytest.mark.slow
@pytest.mark.parametrize("loss", [ko.losses.log_loss, ko.losses.hinge, ko.losses.squared_error])
def test_single_precision(loss):
    """The bounds hold for the problem in double precision."""
    theta, problem, _ = stated(loss)
    whole = problem.solve(factorization="cholesky", tol=1e-8)
    problem.solve(dtype="float32", tol=1e-4)
    factor = reduction_of(problem).factors[theta].of_pivots
    assert factor.B.blocks[0].dtype == np.float32
    assert problem.status == "optimal" and problem.certificate.relative_gap <= 1e-4
    assert problem.certificate.lower - 1e-7 * whole <= whole <= problem.certificate.upper + 1e-7 * whole
    assert problem.value == pytest.approx(whole, rel=1e-3)


@pytest.mark.later
def test_pivots_that_are_independent_in_single_precision_only(monkeypatch):
    """Those from the first on at which the factorization in double precision fails are left out."""
    ours = sl.lapack.dpotrf
    monkeypatch.setattr(sl.lapack, "dpotrf", lambda K, **options: (ours(K, **options)[0], len(K)))
    theta, problem, X = stated(ko.losses.squared_error)
    problem.solve(dtype="float32", tol=1e-3)
    factor = reduction_of(problem).factors[theta].of_pivots
    assert factor.rank == len(factor.pivots) == factor.B.shape[1] == len(factor.L) > 10
    L = np.linalg.cholesky(KERNEL(X[factor.pivots]) / factor.scale)
    assert np.allclose(factor.L, L, atol=1e-10)
    assert problem.certificate.lower <= problem.value <= problem.certificate.upper


def in_memory(factor, X):
    """The factor of the same pivots as one array."""
    Q = KERNEL(X, X[factor.pivots])
    L = np.linalg.cholesky(Q[factor.pivots])
    B = sl.solve_triangular(L, Q.T, lower=True).T
    return CholeskyFactor(np.ascontiguousarray(B), 1.0, factor.pivots, factor.residual, 0.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [ko.losses.log_loss, ko.losses.hinge, ko.losses.squared_error])
def test_on_a_cluster(client, loss, monkeypatch):
    """For the same pivots, the same objective as in memory."""
    theta, problem, X = stated(loss)
    value = problem.solve(backend=client, max_rank=80, model="compact", tol=1e-9)
    factor = reduction_of(problem).factors[theta]
    assert isinstance(factor, BlockFactor) and len(factor.B.blocks) > 1
    certificate = problem.certificate
    here = ko.Problem(problem.objective)
    monkeypatch.setattr("kernelopt.driver.refine.factorize", lambda *arguments: in_memory(factor, X))
    assert here.solve(rank_tol=1e-3, tol=1e-9) == pytest.approx(value, rel=1e-10)
    assert certificate.lower == pytest.approx(here.certificate.lower, rel=1e-6)
    np.testing.assert_allclose(theta.value(X[:5]), theta(X[:5]).value)


@pytest.mark.slow
def test_a_dask_array_brings_its_cluster(client):
    X = points(3000)
    y = np.sin(X[:, 0])
    theta = ko.Theta(KERNEL)
    chunked = da.from_array(X, chunks=(700, 2))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(chunked)) + 0.1 * ko.sum_squares(theta)))
    problem.solve(tol=1e-4)
    factor = reduction_of(problem).factors[theta].of_pivots
    assert problem.status == "optimal" and factor.layout.executor == OnDask.of(client)
    lazy = theta.value(chunked)
    assert isinstance(lazy, da.Array) and lazy.shape == (3000,)
    np.testing.assert_allclose(lazy.compute(), theta.value(X), atol=1e-12)
    wide = ko.Function(KERNEL, X[:3], RNG(0).normal(size=(3, 2)))
    np.testing.assert_allclose(wide(chunked).compute(), wide(X))


@pytest.mark.slow
def test_a_worker_is_killed(monkeypatch):
    """In the middle of a solve: blocks that were lost are made again, and the objective is the same."""
    _, problem, _ = stated(n=2500)
    expected = ko.Problem(problem.objective).solve(tol=1e-8)
    killed, ours = [], BlockMatrix.gram

    def gram(*arguments):
        if not killed:
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)
        return ours(*arguments)

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        victim = next(iter(client.run(os.getpid).values()))
        monkeypatch.setattr(BlockMatrix, "gram", gram)
        value = problem.solve(backend=client, tol=1e-8)
        assert victim not in client.run(os.getpid).values()
    assert killed
    assert problem.status == "optimal"
    assert value == pytest.approx(expected, rel=1e-7)


# ------------------------------------------------------------ what is refused


def test_rows_that_are_no_points():
    X = points(50)
    theta = ko.Theta(KERNEL)
    slope = ko.FeatureMatrix(X, KERNEL).derivative(0)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(slope @ theta) + ko.sum_squares(theta)), [theta(X) >= 0])
    with pytest.raises(KernelError, match="rows of θ of one kind"):
        problem.solve(dtype="float32")


def bags(n=900, count=60):
    """Points, and a matrix that averages bags of them; one bag is empty of all but a point, one row is a difference."""
    X, owner = points(n), RNG(1).integers(1, count, n)
    owner[0] = 0
    W = sp.csr_array((1.0 / np.bincount(owner)[owner], (owner, np.arange(n))), shape=(count, n)).tolil()
    W[5, 7] = -1.0
    return X, sp.csr_array(W)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"dtype": "float32"}, {"backend": True}], ids=["array", "single", "cluster"])
@pytest.mark.parametrize("loss", [ko.losses.absolute_error, ko.losses.squared_error])
def test_combinations_of_points_in_blocks(client, options, loss, monkeypatch):
    """The answer is that of the matrix W K Wᵀ, whichever way B is held."""
    monkeypatch.setattr("kernelopt.driver.options.FEWEST", 100)
    X, W = bags()
    y = W @ np.sin(X[:, 0])
    theta, A = ko.Theta(KERNEL), W @ ko.FeatureMatrix(X, KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum(loss(y, A @ theta)) + 0.1 * ko.sum_squares(theta)))
    problem.solve(**{k: client if v is True else v for k, v in options.items()}, rank_tol=1e-10)
    assert problem.status == "optimal" and problem.verify().passed
    R = np.linalg.cholesky(W @ KERNEL(X) @ W.T + 1e-12 * np.eye(60))
    w = cp.Variable(60)
    expected = cp.Problem(cp.Minimize(cp.sum(loss(y, R @ w)) + 0.1 * cp.sum_squares(w))).solve(solver="CLARABEL")
    assert problem.value == pytest.approx(expected, rel=1e-5)
    assert (A @ theta).value == pytest.approx(W @ theta.value(X), abs=1e-6)


@pytest.mark.later
def test_blocks_of_combinations():
    """Blocks hold about as many points each; products with Q agree with Q, by columns and by panels."""
    X, W = bags()
    rows = ko.FeatureMatrix(X, KERNEL)
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum_squares((W @ rows) @ theta) + ko.sum_squares(theta)))
    data = problem.canonical_form().predictions[0].rows
    factor = blocked_cholesky(data, Settings(1e-12, None, "raise", 0), None, Layout(Here(), 200))
    assert len(factor.parts) >= 4 and sum(map(len, factor.parts)) == 60
    Q = W @ KERNEL(X) @ W.T
    for V in (RNG(0).normal(size=(60, 2)), np.eye(60)[:, :2]):
        assert factor.product(data, V) == pytest.approx(Q @ V, abs=1e-12)
        assert factor.quadratic(data, V) == pytest.approx(V.T @ Q @ V, abs=1e-12)
        error = factor.product_error(data, V)
        assert np.all(np.abs(factor.product(data, V) - Q @ V) <= error + 1e-14)
        with data.held():  # tasks compute kernel values all the same
            assert np.array_equal(factor.product_error(data, V), error)


@pytest.mark.later
def test_solvers_that_need_one_array():
    X = points(200)
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.norm(theta(X) - 1) + ko.sum_squares(theta)))
    with pytest.raises(SolverError, match="kernelopt's own solvers"):
        problem.solve(dtype="float32")
    assert problem.solve() > 0
    ordered = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - 1) + ko.sum_squares(theta)), [cp.diff(theta(X)) >= 0])
    with pytest.raises(SolverError, match="connect predictions"):
        ordered.solve(dtype="float32", solver="INTERIOR_POINT")


def test_a_problem_of_the_spectral_form():
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Maximize(cp.sum_squares(theta(points(60)))), [ko.norm(theta) <= 1])
    with pytest.raises(SolverError, match="spectral form; got a backend or a dtype"):
        problem.solve(dtype="float32")
    assert problem.solve(dtype="float64") > 0


@pytest.mark.slow
def test_dask_arrays_where_blocks_cannot_be(client):
    """B is then one array here: nobody asked for a cluster."""
    theta, X = ko.Theta(KERNEL), da.from_array(points(300), chunks=100)
    problem = ko.Problem(cp.Minimize(cp.norm(theta(X) - 1) + ko.sum_squares(theta)))
    assert problem.solve() > 0
    assert isinstance(reduction_of(problem).factors[theta].B, np.ndarray)
    with pytest.raises(SolverError, match="B in blocks"):
        problem.solve(backend=client)


@pytest.mark.slow
def test_sums_over_all_rows():
    """A constraint with all predictions in it, on blocks."""
    theta, X = ko.Theta(KERNEL), points(5000)
    y = np.sin(X[:, 0])
    goal = cp.Minimize(cp.sum_squares(theta(X) - y) + ko.sum_squares(theta))
    problem = ko.Problem(goal, [cp.sum(theta(X)) == 100.0])
    value = problem.solve(dtype="float32", tol=1e-5)
    assert problem.status == "optimal"
    assert theta(X).value.sum() == pytest.approx(100.0)
    assert ko.Problem(goal, problem.constraints).solve(tol=1e-6) == pytest.approx(value, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["expanded", "compact"])
def test_verified(model):
    _, problem, _ = stated(ko.losses.squared_error, 2600)
    problem.solve(dtype="float32", model=model, tol=1e-4)
    report = problem.verify(1e-4)
    assert report.passed, report


LAYOUTS = pytest.mark.parametrize("options", [{}, {"dtype": "float32"}], ids=["array", "blocks"])


@pytest.mark.slow
@LAYOUTS
def test_problems_without_an_answer(options):
    """Proven by questions about the problem, for which B comes here."""
    X, signs = points(300), np.sign(RNG(1).normal(size=300))
    linear, theta, b = ko.Theta(ko.kernels.Linear()), ko.Theta(KERNEL), cp.Variable()
    margins = ko.Problem(cp.Minimize(ko.sum_squares(linear)), [cp.multiply(signs, linear(X)) >= 1])
    fit = cp.sum_squares(theta(X) - X[:, 0])
    short = ko.Problem(cp.Minimize(fit), [ko.norm(theta) <= 1, theta(X[:5]) >= 2])
    hinges = cp.sum(ko.losses.hinge(signs, theta(X)))
    endless = ko.Problem(cp.Minimize(hinges + ko.sum_squares(theta) + 1e4 * b))
    for problem, status in ((margins, "infeasible"), (short, "infeasible"), (endless, "unbounded")):
        problem.solve(**options)
        assert problem.status == status


@pytest.mark.slow
def test_a_hard_margin_that_no_line_meets():
    """Proven for every θ, though B restricts it by its precision."""
    X, signs = points(60), np.sign(RNG(1).normal(size=60))
    theta = ko.Theta(ko.kernels.Linear())
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [cp.multiply(signs, theta(X)) >= 1])
    problem.solve(dtype="float32")
    assert problem.status == "infeasible"


@pytest.mark.slow
@LAYOUTS
def test_a_hard_margin_that_takes_all_columns(monkeypatch, options):
    """Infeasible for few columns, which is never the answer: they grow until it is met."""
    monkeypatch.setattr(ko.driver.policy, "FEW", 0)
    X, signs = points(500, 4), np.sign(RNG(1).normal(size=500))
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [cp.multiply(signs, theta(X)) >= 1])
    problem.solve(tol=1e-2, factorization="streamed", **options)
    assert not np.isfinite(problem.history.rounds[0].gap)
    assert len(problem.history) > 2
    assert problem.status == "optimal"
    assert (signs * theta.value(X)).min() >= 1 - 1e-6


@pytest.mark.slow
@LAYOUTS
def test_sums_of_two(options):
    X = points(2100)
    y = np.where(X[:, 0] + np.sin(3 * X[:, 1]) > 0, 1.0, -1.0)
    smooth, linear = ko.Theta(KERNEL), ko.Theta(ko.kernels.Linear())
    loss = cp.sum(ko.losses.log_loss(y, smooth(X) + linear(X)))
    problem = ko.Problem(cp.Minimize(loss + ko.sum_squares(smooth) + ko.sum_squares(linear)))
    value = problem.solve(tol=1e-5, **options)
    assert problem.status == "optimal"
    assert problem.solve(factorization="cholesky", tol=1e-8) == pytest.approx(value, rel=1e-4)


def test_a_kernel_matrix_of_zeros():
    theta, y = ko.Theta(ko.kernels.Linear()), np.sign(RNG(0).normal(size=60))
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(y, theta(np.zeros((60, 2))))) + ko.sum_squares(theta)))
    assert problem.solve(dtype="float32") == pytest.approx(60.0)
    assert problem.status == "optimal"


@pytest.mark.slow
def test_an_indefinite_kernel_is_refused():
    """By rows that the sample did not have."""
    X = np.concatenate([np.ones((3000, 1)), np.full((1, 1), 5.0)])
    odd = ko.kernels.FromFunction(lambda A, Z: 1.0 + (np.ravel(A)[:, None] != np.ravel(Z)), on_lists=True)
    with pytest.raises(NotPSDError):
        blocked_cholesky(Rows.of_points(odd, odd.rows(X)), Settings(1e-8, None), None, Layout(Here(), 1000))


@pytest.mark.slow
def test_two_runs_are_identical(client):
    found = []
    for options in ({"dtype": "float32"}, {"backend": client}) * 2:
        theta, problem, X = stated()
        found.append((problem.solve(tol=1e-4, **options), *theta.value(X[:9])))
    assert found[0] == found[2]
    np.testing.assert_allclose(found[1], found[3], rtol=1e-12)


@pytest.mark.slow
def test_a_closed_client():
    _, problem, _ = stated()
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        problem.solve(tol=1e-2, backend=client)
    with pytest.raises(SolverError, match="client that holds B to be open"):
        problem.verify()
    assert problem.solve(tol=1e-2) > 0


def test_options():
    _, problem, _ = stated(n=50)
    with pytest.raises(OptionError, match="dtype to be float32 or float64"):
        problem.solve(dtype="float16")
    with pytest.raises(OptionError, match=r"dask\.distributed\.Client"):
        problem.solve(backend="threads")
    with pytest.raises(MemoryLimitError, match="columns"):
        problem.solve(dtype="float32", memory_limit=100.0)


@pytest.mark.slow
def test_memory_of_workers(client):
    """B may take 80 % of what all of them have, or what the caller says."""
    executor = OnDask.of(client)
    limits = [worker["memory_limit"] for worker in client.scheduler_info()["workers"].values()]
    assert executor.memory == sum(limits) and len(executor.homes) == 2
    rows, B = Rows.of_points(KERNEL, points()), 8 * 1500 * 60
    for size, limit in ((B, None), (1e12, B - 1)):
        with pytest.raises(MemoryLimitError, match="1500 distinct rows and 60 columns"):
            blocked_cholesky(rows, Settings(1e-8, 60), limit, Layout(OnDask(client, executor.homes, size), 750))
    assert OnDask(client, ()).allowed_bytes(None) == np.inf


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"dtype": "float32"}], ids=["double", "single"])
def test_memory_is_told_before_it_is_taken(options):
    """Within a factor of 1.5 of what is then measured."""
    X = points(30_000, 4)
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(np.sign(X[:, 0]), theta(X))) + ko.sum_squares(theta)))
    options = {"factorization": "streamed", "rank_tol": 1e-12, "max_rank": 250, **options}
    with pytest.raises(MemoryLimitError, match="250 columns") as caught:
        problem.solve(memory_limit=1e6, **options)
    told = float(re.search(r"more than (\d+) bytes", str(caught.value))[1])
    tracemalloc.start()
    try:
        problem.solve(certify=False, **options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert told / 1.5 <= peak <= 1.5 * told


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"model": "compact"}, {"dtype": "float32"}], ids=["both", "pivots", "single"])
def test_memory_of_growth(options):
    """Rounds give back what the ones before held."""
    X = points(12_000)
    y, theta = np.sin(2 * X[:, 0]) + X[:, 1] ** 2, ko.Theta(ko.kernels.Gaussian(sigma=0.7))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)) + 0.1 * ko.sum_squares(theta)))
    tracemalloc.start()
    try:
        problem.solve(tol=1e-5, **options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert problem.status == "optimal" and len(problem.history) > 1
    rank = reduction_of(problem).factors[theta].rank
    assert peak <= 1.5 * memory.of_solve(len(X), rank, 4 if "dtype" in options else 8)


# ------------------------------------------------------------ where data come from


def test_blocks_of_rows_and_tables():
    import pyarrow as pa  # noqa: PLC0415

    X = points(10, 2)
    expected = ko.FeatureMatrix(X, KERNEL).X
    for data in (iter([X[:4], X[4:]]), da.from_array(X, chunks=3), pa.table({"a": X[:, 0], "b": X[:, 1]})):
        assert np.array_equal(ko.FeatureMatrix(data, KERNEL).X, expected)


def test_a_memmap_is_read_once(tmp_path):
    X = np.memmap(tmp_path / "x", dtype=np.float32, mode="w+", shape=(30, 2))
    X[:] = points(30, 2)
    A = ko.FeatureMatrix(X, KERNEL)
    kept = A.X.copy()
    X[:] = 0.0  # a change between passes does not reach the problem
    assert np.array_equal(A.X, kept) and A.X.dtype == np.float64


def broken(error=None):
    yield points(4, 2)
    if error is not None:
        raise error
    yield points(4, 3)


def test_blocks_that_do_not_fit():
    with pytest.raises(DataError, match=r"\(rows, 2\), as the first.*\(4, 3\) for block 1"):
        ko.FeatureMatrix(broken(), KERNEL)
    with pytest.raises(OSError, match="disk") as caught:
        ko.FeatureMatrix(broken(OSError("disk")), KERNEL)
    assert "block 1 of the data" in caught.value.__notes__[0]
    with pytest.raises(DataError, match="at least one block"):
        ko.FeatureMatrix(iter([]), KERNEL)


def test_the_outer_product_is_made_where_it_pays(monkeypatch):
    """Of many columns per row, here, where memory allows it; not of the first columns of another B."""
    B = np.random.default_rng(0).normal(size=(50, 20))
    whole = tall(B)
    np.testing.assert_allclose(whole.outer(), B @ B.T)
    assert whole.outer() is whole.outer()
    assert whole.first(15).outer() is None
    assert whole.first(20).outer() is not None
    assert tall(B, 49).outer() is None
    assert tall(B[:, :5]).outer() is None
    assert block_matrix(np.float64)[1].outer() is None
    monkeypatch.setattr(memory, "available_bytes", lambda: 1e4)
    assert tall(B).outer() is None


@pytest.mark.parametrize(
    ("dtype", "spans", "residual", "expected"),
    [
        (np.float32, True, 1e-6, False),  # rounding of as many columns as there are features
        (np.float32, False, 1e-6, True),
        (np.float64, True, 1e-6, True),
        (np.float32, False, 0.0, False),
        (np.float64, False, 0.0, False),
    ],
)
def test_what_restricts_theta(dtype, spans, residual, expected):
    _, factor = factor_of(points(60), Layout(Here(), 30, dtype), 5)
    assert replace(factor, spans=spans, residual=residual).is_restriction is expected


def test_memory_of_one_array_is_asked_for_first(monkeypatch):
    assert Here().allowed_bytes(12345.0) == 12345.0
    rows, factor = factor_of(points(60), Layout(Here(), 30), 5)
    assert factor.in_one_array(rows).B.shape == (60, 5)
    monkeypatch.setattr(memory, "available_bytes", lambda: 8 * 60 * 5 - 1)
    with pytest.raises(MemoryLimitError, match="B of 60 rows as one array"):
        factor.in_one_array(rows)


def test_a_factor_is_the_same_in_one_array():
    """And it spans everything where its rank is the number of rows or of features."""
    X = points(60)
    rows, factor = factor_of(X, Layout(Here(), 30), 5)
    np.testing.assert_allclose(factor.in_one_array(rows).B, factor.B.whole(), atol=1e-12)
    assert not factor.spans
    linear = Rows.of_points(ko.kernels.Linear(), X)
    assert blocked_cholesky(linear, Settings(1e-8, None), None, Layout(Here(), 30)).spans
    few = Rows.of_points(KERNEL, X[:4])
    assert blocked_cholesky(few, Settings(1e-13, None), None, Layout(Here(), 2)).spans


@pytest.mark.parametrize(("support", "by_panels"), [(29, False), (30, True), (60, True)])
def test_panels_take_less_than_columns_from_half_of_the_rows_on(support, by_panels, monkeypatch):
    """And the error of a product counts the additions of the one that is taken."""
    rows, factor = factor_of(points(60), Layout(Here(), 30), 5)
    V, Q, asked, taken = np.zeros((60, 1)), KERNEL(points(60)), [], []
    V[:support] = 1.0
    panels = BlockFactor._panels
    monkeypatch.setattr(BlockFactor, "_panels", lambda *args: taken.append(1) or panels(*args))
    np.testing.assert_allclose(factor.product(rows, V), Q @ V, rtol=1e-12)
    assert bool(taken) is by_panels
    monkeypatch.setattr(Rows, "product_error", lambda *args: asked.append(args[2]))
    factor.product_error(rows, V)
    assert asked == [1024 + 2 + 9 + 8 if by_panels else support + 8]


def test_panels_of_two_blocks():
    """Three pairs of blocks, three pieces each, since a thread gets eight panels at least: tiles of 10 × 30."""
    rows, factor = factor_of(points(60), Layout(Here(), 30), 5)
    V, asked = np.ones((60, 1)), []
    assert len(factor._panels(V)) == 9
    np.testing.assert_allclose(factor.product(rows, 0.0 * V), 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rows, "quadratic_error", lambda *_, additions: asked.append(additions))
        factor.quadratic_error(rows, V)
    assert asked == [2 * 1024 + 2 + 9 + 8]


def test_inner_products_of_some_rows():
    """BBᵀ at some rows and columns, wherever B is."""
    B, blocks = block_matrix(np.float64)
    chosen = np.array([3, 30, 99])
    np.testing.assert_allclose(blocks.outer_among(chosen), B[chosen] @ B[chosen].T)


def test_limits_of_the_outer_product_are_met(monkeypatch):
    """As many rows as are allowed, and as many bytes."""
    B = RNG(0).normal(size=(50, 20))
    assert tall(B, 50).outer() is not None
    monkeypatch.setattr(memory, "available_bytes", lambda: 4 * 8 * 50**2)
    assert tall(B).outer() is not None
    monkeypatch.setattr(memory, "available_bytes", lambda: 4 * 8 * 50**2 - 1)
    assert tall(B).outer() is None


def test_factors_in_blocks_are_not_kept():
    """They grow, and a cache would hand out the columns of another problem."""
    rows, factor = factor_of(points(60), Layout(Here(), 30), 5)
    cache = ko.FactorCache()
    assert factor.grows and cache.factor(rows, "options", lambda: factor) is factor
    assert len(cache) == 0
