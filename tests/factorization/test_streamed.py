"""Q = BBᵀ from columns of Q: what it leaves, nested columns, seeds, memory, and what it sees of an indefinite Q."""

import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
from inside import reduction_of

import kernelopt as ko
from kernelopt.certificate.gram import spans_everything
from kernelopt.errors import KernelError, MemoryLimitError, NotPSDError, OptionError
from kernelopt.factorization import METHODS, Settings, elimination, factorize, growing, streamed, suited
from kernelopt.language.rows import Rows

RNG = np.random.default_rng(0)
X = RNG.normal(size=(700, 3))
GAUSSIAN = ko.kernels.Gaussian(sigma=1.5)


def rows_of(kernel, points=X):
    return Rows.of_points(kernel, kernel.rows(points))


def factor(kernel, points=X, rank_tol=1e-8, max_rank=None, seed=0, **options):
    return streamed.streamed_cholesky(rows_of(kernel, points), Settings(rank_tol, max_rank, seed=seed), **options)


def precomputed(Q):
    return ko.kernels.Precomputed((Q + Q.T) / 2), np.arange(len(Q))


# ---------------------------------------------------------------- the factor


@pytest.mark.later
@pytest.mark.parametrize("rank_tol", [1e-1, 1e-4, 1e-8, 1e-12])
def test_what_is_left(rank_tol):
    f, Q = factor(GAUSSIAN, rank_tol=rank_tol), GAUSSIAN(X)
    E = Q - f.scale * f.B @ f.B.T
    assert np.abs(np.diag(E) - f.residual_diagonal).max() < 1e-14
    assert f.residual == pytest.approx(np.trace(E) / np.trace(Q), abs=1e-15)
    assert f.residual <= rank_tol
    assert np.abs(E[f.pivots]).max() < 1e-13
    assert np.linalg.eigvalsh(E)[0] > -1e-13
    assert f.B.flags.c_contiguous
    assert f.B.flags.owndata


@pytest.mark.later
def test_columns_are_nested():
    """The first k columns are the factor of the first k pivots, whatever was to come."""
    f = factor(GAUSSIAN)
    for k in (1, 17, f.rank // 2):
        S = f.pivots[:k]
        L = np.linalg.cholesky(GAUSSIAN(X[S]))
        assert np.abs(f.B[:, :k] - np.linalg.solve(L, GAUSSIAN(X[S], X)).T).max() < 1e-9
        assert np.abs(f.B[S, :k] - L).max() < 1e-11
        assert not f.B[S, k:].any()
    coarse = factor(GAUSSIAN, max_rank=f.rank // 2)
    assert np.array_equal(coarse.pivots[:96], f.pivots[:96])
    assert len(set(f.pivots)) == f.rank


@pytest.mark.slow
def test_few_columns():
    """No more than the largest residual diagonal takes, at any trace, nor with outliers; eigenvectors take fewer."""
    heavy = RNG.standard_t(2, size=(1200, 3))
    for points in (RNG.normal(size=(1200, 4)), heavy):
        Q = GAUSSIAN(points)
        best = 1 - np.cumsum(np.linalg.eigvalsh(Q)[::-1]) / len(Q)
        ours = 1 - np.cumsum(np.einsum("ij,ij->j", *2 * [factor(GAUSSIAN, points).B])) / len(Q)
        greedy = METHODS["cholesky"](rows_of(GAUSSIAN, points), Settings(1e-8, None)).B
        largest = 1 - np.cumsum(np.einsum("ij,ij->j", greedy, greedy)) / len(Q)
        for trace, most in ((1e-1, 0.95), (1e-2, 0.95), (1e-4, 1.0), (1e-7, 1.0)):
            rank, theirs, least = (int(np.argmax(left <= trace)) for left in (ours, largest, best))
            assert least < rank <= most * theirs


@pytest.mark.later
def test_seeds():
    f, again, other = factor(GAUSSIAN), factor(GAUSSIAN), factor(GAUSSIAN, seed=1)
    assert np.array_equal(f.B, again.B)
    assert np.array_equal(f.pivots, again.pivots)
    assert not np.array_equal(f.pivots[:20], other.pivots[:20])
    assert abs(f.rank - other.rank) < 0.03 * f.rank


@pytest.mark.later
def test_ranks_0_1_and_n():
    constant = ko.kernels.Explicit(lambda X: np.ones((len(X), 1)))
    zero = factor(0.0 * GAUSSIAN)
    assert (zero.rank, zero.residual) == (0, 0.0)
    assert zero.B.shape == (700, 0)
    one = factor(constant)
    assert one.rank == 1
    assert np.allclose(one.scale * one.B @ one.B.T, 1.0)
    full = factor(ko.kernels.Gaussian(sigma=1e-3))
    assert full.rank == 700
    assert full.residual == 0
    assert spans_everything(type("Link", (), {"rows": rows_of(ko.kernels.Gaussian(sigma=1e-3))}), full)
    assert factor(GAUSSIAN, X[:1]).rank == 1


def test_rank_stops_at_the_number_of_features():
    kernel = ko.kernels.Polynomial(degree=3)
    for points in (X, RNG.standard_t(3, size=(700, 3))):
        f, Q = factor(kernel, points, 1e-13), kernel(points)
        assert f.rank == 20 == kernel._n_features(points)
        assert not f.is_restriction
        assert np.abs(Q - f.scale * f.B @ f.B.T).max() < 1e-12 * Q.max()


def test_repeated_structure():
    """Points in few tight clusters, and exactly repeated ones, which cost no column."""
    centers = RNG.normal(size=(15, 3)) * 10
    points = centers[RNG.integers(15, size=700)]
    assert factor(ko.kernels.Gaussian(sigma=0.1), points, 1e-11).rank == 15
    near = points + 1e-9 * RNG.normal(size=points.shape)
    assert factor(ko.kernels.Gaussian(sigma=0.1), near, 1e-11).rank == 15


@pytest.mark.slow
def test_points_far_from_each_other_keep_their_rounding_to_themselves(monkeypatch):
    """Kernel values of clusters 57σ apart are known to 1e-12 only; finer pivots are noise and are not taken.

    A diagonal that this makes negative is looked into, and found to be rounding.
    """
    looks, ours = [], elimination.refuse_indefinite
    monkeypatch.setattr(elimination, "refuse_indefinite", lambda *a: looks.append(1) or ours(*a))
    kernel = ko.kernels.Gaussian(sigma=1.0)
    for seed in range(5):
        points = np.r_[RNG.normal(size=(400, 2)), 40 + RNG.normal(size=(300, 2))]
        f = factor(kernel, points, 1e-13, seed=seed)
        E = kernel(points) - f.scale * f.B @ f.B.T
        assert f.residual < 1e-11
        assert np.linalg.eigvalsh(E)[0] > -1e-8
    assert looks


def test_max_rank():
    f = factor(GAUSSIAN, max_rank=37)
    assert f.rank == 37
    assert f.is_restriction
    assert f.B.shape == (700, 37)
    E = GAUSSIAN(X) - f.scale * f.B @ f.B.T
    assert f.residual == pytest.approx(np.trace(E) / 700, rel=1e-12)


@pytest.mark.later
@pytest.mark.parametrize("scale", [1e-200, 1e-16, 1e16, 1e200])
def test_units(scale):
    f, reference = factor(scale * GAUSSIAN), factor(GAUSSIAN)
    assert f.scale == pytest.approx(scale)
    assert abs(f.rank - reference.rank) < 0.03 * reference.rank
    assert np.abs(f.scale / scale * f.B @ f.B.T - GAUSSIAN(X)).max() < 1e-6


# ---------------------------------------------------------------- rows that are not all points


def test_blocks_of_q():
    f0 = ko.Function(GAUSSIAN, X[:5] + 0.1, RNG.normal(size=(5, 2)))
    f1 = ko.Function(GAUSSIAN, X[5:8], RNG.normal(size=3))
    rows = rows_of(GAUSSIAN, X[:40]).with_functions([f0, f1])
    Q = rows.gram()
    left, right = RNG.permutation(43)[:30], RNG.permutation(43)
    for i, j in ((left, right), (left[left < 40], right), (right, right[right >= 40]), (left[:0], right)):
        assert np.abs(rows.block(i, j) - Q[np.ix_(i, j)]).max(initial=0.0) < 1e-13
    assert np.abs(rows.diagonal() - np.diag(Q)).max() < 1e-13


@pytest.mark.later
def test_functions_as_rows():
    f0 = ko.Function(GAUSSIAN, X[:5] + 0.1, 1e3 * RNG.normal(size=(5, 2)))
    rows = rows_of(GAUSSIAN).with_functions([f0])
    Q = rows.gram()
    f = streamed.streamed_cholesky(rows, Settings(1e-10, None))
    assert {700, 701} & set(f.pivots.tolist())
    unit = np.sqrt(np.diag(Q))
    E = (Q - f.scale * f.B @ f.B.T) / unit[:, None] / unit
    assert np.trace(E) <= 1e-10 * 702
    assert f.residual == pytest.approx(np.diag(E) @ unit**2 / np.trace(Q), rel=1e-4)
    assert np.abs(f.residual_diagonal * f.scale / unit**2 - np.diag(E)).max() < 1e-13
    v = RNG.normal(size=f.rank)
    centers, c = rows.expansion(f.pivots, f.coefficients(v))
    g = ko.Function(GAUSSIAN, centers, c)
    assert np.abs(g(X) - (f.B @ v)[:700]).max() < 1e-4
    L = f.B[f.pivots]
    assert np.array_equal(L, np.tril(L))


@pytest.mark.slow
def test_values_and_slopes_as_rows():
    kernel = 1e4 * ko.kernels.Gaussian(sigma=0.01)  # slopes are 100 times larger than values
    theta = ko.Theta(kernel)
    A = ko.FeatureMatrix(X[:300] / 100, kernel)
    problem = ko.Problem(
        cp.Minimize(cp.sum_squares(A @ theta - X[:300, 0]) + 1e-4 * cp.sum_squares(A.derivative(1) @ theta))
    )
    rows = problem.canonical_form().predictions[0].rows
    assert rows.mixed
    f, Q = streamed.streamed_cholesky(rows, Settings(1e-9, None)), rows.gram()
    unit = np.sqrt(np.diag(Q))
    E = (Q - f.scale * f.B @ f.B.T) / unit[:, None] / unit
    assert np.trace(E) <= 1e-9 * len(Q)
    assert np.linalg.eigvalsh(E)[0] > -1e-12
    assert f.pivots.min() < 300 < f.pivots.max()


def test_residual_of_mixed_rows_is_that_of_q():
    """A bound on Vᵀ(Q − BBᵀ)V rests on trace(Q − BBᵀ) in the units of Q, not of rows brought to unit diagonal."""
    f0 = ko.Function(GAUSSIAN, X[:5] + 0.1, 1e3 * RNG.normal(size=5))
    rows = rows_of(GAUSSIAN, X[:100]).with_functions([f0])
    Q = rows.gram()
    for method in METHODS:
        f = factorize(method, rows, Settings(1e-3, None))
        assert f.residual == pytest.approx(np.trace(Q - f.scale * f.B @ f.B.T) / np.trace(Q), rel=1e-6)


def test_kernel_values_must_be_finite():
    far = np.r_[X[:5], 1e200 * np.ones((1, 3))]
    with pytest.raises(KernelError, match=r"returned inf for rows 5 and 5 of the data"):
        factor(ko.kernels.Polynomial(degree=2), far)
    kernel = ko.kernels.Explicit(lambda X: X)
    with pytest.raises(KernelError, match=r"returned nan for rows 2 and 7 of the data"):
        _with_nan(kernel).block(np.arange(5), np.arange(3, 9))
    f0 = ko.Function(ko.kernels.Polynomial(degree=2), 1e200 * np.ones((1, 3)), [1.0])
    with pytest.raises(KernelError, match=r"returned inf for rows \d and 5 of the data"):
        rows_of(f0.kernel, X[:5]).with_functions([f0]).block(np.array([0]), np.array([5]))


def _with_nan(kernel):
    Q = np.eye(9)
    Q[2, 7] = Q[7, 2] = np.nan

    class Broken(ko.kernels.Kernel):
        def _verdict(self):
            return kernel._verdict()

        def _matrix(self, A, Z):
            return Q[np.ix_(A[:, 0].astype(int), (A if Z is None else Z)[:, 0].astype(int))]

        def _diagonal(self, A):
            return np.ones(len(A))

        def __repr__(self):
            return "Broken()"

    return Rows.of_points(Broken(), np.arange(9.0)[:, None])


# ---------------------------------------------------------------- growth, memory, choice


@pytest.mark.later
def test_a_factor_goes_on():
    coarse = factor(GAUSSIAN, rank_tol=1e-4)
    kept = coarse.B.copy()
    fine = factor(GAUSSIAN, rank_tol=1e-9, start=coarse)
    assert np.array_equal(fine.pivots[: coarse.rank], coarse.pivots)
    assert np.array_equal(fine.B[:, : coarse.rank], coarse.B)
    assert np.array_equal(coarse.B, kept)
    E = GAUSSIAN(X) - fine.scale * fine.B @ fine.B.T
    assert fine.residual == pytest.approx(np.trace(E) / 700, rel=1e-5)
    assert fine.residual <= 1e-9 < coarse.residual
    same = factor(GAUSSIAN, rank_tol=1e-9, start=fine)
    assert np.array_equal(same.B, fine.B)
    full = factor(ko.kernels.Gaussian(sigma=1e-3))
    assert factor(ko.kernels.Gaussian(sigma=1e-3), rank_tol=1e-12, start=full).rank == 700


def test_a_factor_of_mixed_rows_goes_on():
    f0 = ko.Function(GAUSSIAN, X[:5] + 0.1, 1e3 * RNG.normal(size=(5, 2)))
    rows = rows_of(GAUSSIAN).with_functions([f0])
    coarse = streamed.streamed_cholesky(rows, Settings(1e-3, None))
    fine = streamed.streamed_cholesky(rows, Settings(1e-9, None), start=coarse)
    assert np.abs(fine.B[:, : coarse.rank] - coarse.B).max() < 1e-13 * np.abs(coarse.B).max()
    unit = np.sqrt(np.diag(rows.gram()))
    E = (rows.gram() - fine.scale * fine.B @ fine.B.T) / unit[:, None] / unit
    assert np.trace(E) <= 1e-9 * 702


@pytest.mark.later
def test_memory_and_time_grow_with_n_not_its_square(monkeypatch):
    asked, n = [], 20_000
    monkeypatch.setattr("kernelopt.factorization.memory.require", lambda needed, *_: asked.append(needed))
    points, ours, values = RNG.normal(size=(n, 4)), Rows.block, list[int]()
    monkeypatch.setattr(Rows, "block", lambda rows, i, j: values.append(len(i) * len(j)) or ours(rows, i, j))
    tracemalloc.start()
    f = factor(GAUSSIAN, points, max_rank=120)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert f.rank == 120
    assert peak < 8 * n * n / 20
    assert peak < sum(asked) + 8 * 3 * elimination.STRETCH * 300
    assert sum(values) < 1.5 * 120 * n  # columns, and values between candidates


@pytest.mark.slow
def test_growth_takes_what_it_announces(monkeypatch):
    monkeypatch.setattr(streamed, "ROOM", 8 * 3000 * 64)
    asked, require = [], streamed.memory.require
    monkeypatch.setattr("kernelopt.factorization.memory.require", lambda *a: asked.append(a[0]) or require(*a))
    points = RNG.normal(size=(3000, 4))
    f = factor(GAUSSIAN, points, memory_limit=1e9)
    assert len(asked) > 1
    assert f.B.nbytes < asked[-1] < 2 * f.B.nbytes
    assert factor(GAUSSIAN, points, memory_limit=2.5 * f.B.nbytes).rank == f.rank
    with pytest.raises(MemoryLimitError, match=r"3000 distinct rows and \d+ columns needs .*max_rank.*memory_limit"):
        factor(GAUSSIAN, points, memory_limit=0.9 * f.B.nbytes)


def test_the_choice(monkeypatch):
    few, many = rows_of(GAUSSIAN, RNG.normal(size=(2000, 1))), rows_of(GAUSSIAN, RNG.normal(size=(2001, 1)))
    sigmoid = rows_of(ko.kernels.Sigmoid(), many.points)
    assert suited(few, None) == ("cholesky", "N ≤ 2000")
    assert suited(many, None) == ("streamed", "N > 2000")
    assert suited(sigmoid, None) == ("cholesky", "κ may be indefinite")
    assert suited(sigmoid, 6e7) == ("streamed", "no memory for N × N")
    assert factorize("auto", many, Settings(1e-8, None)).method == "streamed Cholesky"
    assert factorize("auto", many, Settings(1e-8, None)).why == "N > 2000"
    assert factorize("streamed", many, Settings(1e-8, None)).why == ""
    assert factorize("auto", few, Settings(1e-8, None)).method == "pivoted Cholesky"


# ---------------------------------------------------------------- indefinite kernels


def test_indefinite_matrices_are_seen_on_few_rows():
    with pytest.raises(NotPSDError, match="eigenvalue"):
        factor(*precomputed(np.diag(np.r_[np.ones(400), -1e-6])))
    zeros = np.zeros((300, 300))
    zeros[0, 0] = zeros[1, 2] = zeros[2, 1] = 1.0  # leaves a zero trace at rank 1
    with pytest.raises(NotPSDError, match="eigenvalue"):
        factor(*precomputed(zeros))


@pytest.mark.parametrize("where", ["diagonal", "minor of a pivot", "candidates"])
def test_indefinite_matrices_are_seen_in_the_rounds(where, monkeypatch):
    """With no first look at random rows."""
    monkeypatch.setattr(elimination, "SAMPLE", 1)
    Q = GAUSSIAN(X)
    if where == "diagonal":
        Q[5, 5] = -0.1
    elif where == "minor of a pivot":
        Q[:, 5] *= 3
        Q[5, :] = Q[:, 5]
        Q[5, 5] = 1e-9  # never drawn; |Q_5j|² > Q_55·Q_jj
    else:
        V = np.linalg.qr(RNG.normal(size=(700, 700)))[0]
        Q = Q - 0.5 * np.outer(V[0], V[0]) * 20  # diagonals stay positive
        assert np.diag(Q).min() > 0.5
    with pytest.raises(NotPSDError, match="eigenvalue") as refusal:
        factor(*precomputed(Q))
    assert "indefinite" in str(refusal.value)


def test_indefiniteness_among_candidates_is_seen(monkeypatch):
    """Triples of correlation −0.6, of which a pivot leaves positive diagonals."""
    monkeypatch.setattr(elimination, "SAMPLE", 1)
    Q = np.kron(np.eye(20), 1.6 * np.eye(3) - 0.6)
    with pytest.raises(NotPSDError, match="eigenvalue -0.2 "):
        factor(*precomputed(Q), max_rank=1)


@pytest.mark.slow
def test_rounding_is_not_taken_for_indefiniteness():
    Q = GAUSSIAN(X)
    assert factor(*precomputed(Q), 1e-13).rank > 100
    single = ((Q + Q.T) / 2).astype(np.float32)
    assert np.linalg.eigvalsh(single.astype(float))[0] < -1e-8
    for seed in range(4):
        f = factor(ko.kernels.Precomputed(single), np.arange(700), 1e-13, seed=seed)
        assert 1e-9 < f.residual < 1e-5  # what is below is rounding, and no pivot
        assert np.linalg.eigvalsh(single - f.scale * f.B @ f.B.T)[0] > -1e-4
    V = np.linalg.qr(RNG.normal(size=(700, 700)))[0]
    for smallest, refused in ((-1e-13, False), (-1e-4, True)):
        values = np.r_[smallest, np.geomspace(1e-12, 1.0, 699)]
        data = precomputed((V * values) @ V.T)
        if refused:
            with pytest.raises(NotPSDError):
                factor(*data, 1e-11)
        else:
            factor(*data, 1e-11)


def test_projections_stand_in_for_a_streamed_factor():
    sigmoid = ko.kernels.Sigmoid(scale=1.0, offset=-1.0)
    settings = Settings(1e-8, None, "clip")
    f = factorize("streamed", rows_of(sigmoid, X[:200]), settings)
    assert f.method.startswith("eigenfactor, clip")


# ---------------------------------------------------------------- problems


def problem_of(kernel=GAUSSIAN, points=X, weight=0.1):
    theta, b = ko.Theta(kernel), cp.Variable()
    labels = np.sign(np.sin(2 * points[:, 0]) + points[:, 1] ** 2 - 1)
    loss = cp.sum(ko.losses.hinge(labels, theta(points) + b))
    return ko.Problem(cp.Minimize(loss + weight * ko.sum_squares(theta)), [theta(points[:3]) >= -0.5])


@pytest.mark.slow
def test_optimum_is_that_of_the_dense_factor():
    problem = problem_of(points=X[:300])
    values = [problem.solve(factorization=method) for method in ("cholesky", "streamed", "eigen")]
    assert problem.status == "optimal"
    assert np.ptp(values) <= 3e-6 * values[0]
    problem.solve(factorization="streamed")
    assert "by streamed Cholesky, B 300 ×" in str(problem.explain())
    assert problem.verify().passed
    problem.solve(factorization="streamed", max_rank=60)
    exact = problem.certificate
    problem.solve(factorization="streamed", max_rank=60, certify="estimate")
    assert problem.certificate.scope == "estimate"
    assert problem.certificate.lower == pytest.approx(exact.lower, rel=1e-2)
    assert exact.lower <= values[0] <= exact.upper


@pytest.mark.slow
def test_distance_to_a_function_by_the_streamed_factor():
    first = problem_of(points=X[:200])
    first.solve()
    f0 = first.thetas()[0].value
    theta = ko.Theta(GAUSSIAN)
    loss = cp.sum_squares(theta(X[100:300]) - X[100:300, 2])
    problem = ko.Problem(cp.Minimize(loss + ko.norm(theta - f0)), [f0.inner(theta) <= 1.0])
    values = [problem.solve(factorization=method) for method in ("cholesky", "streamed")]
    assert values[1] == pytest.approx(values[0], rel=1e-5)


@pytest.mark.slow
def test_rank_grows_from_the_factor_that_is_there(monkeypatch):
    """Interpolation of every fourth row: the first rank is infeasible or too coarse, and its pivots stay."""
    grown, ours = [], growing.grow

    def recorded(rows, known, *others):
        grown.append((known.of_pivots, ours(rows, known, *others).of_pivots))
        return ours(rows, known, *others)

    monkeypatch.setattr("kernelopt.driver.refine.grow", recorded)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    points = np.linspace(0, 6, 60)[:, None]
    f = theta(points)
    problem = ko.Problem(cp.Minimize(ko.norm(theta) + 1e-3 * cp.norm1(f)), [f[::4] == np.sin(3 * points[::4, 0])])
    dense = problem.solve()
    value = problem.solve(factorization="streamed")
    assert value == pytest.approx(dense, rel=1e-5)
    assert grown
    for known, finer in grown:
        assert np.array_equal(finer.pivots[: known.rank], known.pivots)
        np.testing.assert_allclose(finer.B[:, : known.rank], known.B, atol=1e-14)


@pytest.mark.slow
def test_a_factor_of_many_rows_starts_coarse():
    """And is no finer than the certified gap needs; an explicit tolerance is what it says."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(2100, 2))
    y = np.sin(2 * points[:, 0]) + 0.1 * rng.normal(size=2100)
    theta, lam = ko.Theta(GAUSSIAN), cp.Parameter(nonneg=True, value=100.0)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(points)) + lam * ko.sum_squares(theta)))
    ranks = []
    for lam.value in (100.0, 1e-3, 1e-3):
        problem.solve(tol=1e-5)
        assert problem.status == "optimal"
        ranks.append([attempt.ranks[0] for attempt in problem.solver_stats.attempts])
    assert len(ranks[0]) == 1
    assert ranks[1][0] == ranks[0][0] < ranks[1][-1]
    assert ranks[2] == ranks[1][-1:]
    problem.solve(rank_tol=1e-2)
    assert problem.solver_stats.attempts[0].ranks[0] < ranks[0][0]
    lam.value = 100.0
    problem = ko.Problem(problem.objective)
    problem.solve(tol=1e-5)
    problem.solve(tol=1e-5, certify=False)  # nothing would judge a coarse one
    assert problem.solver_stats.attempts[0].ranks[0] > ranks[0][0]


@pytest.mark.slow
def test_a_factor_that_failed_is_not_taken_for_what_was_asked(monkeypatch):
    problem = problem_of(points=X[:250])
    options = {"factorization": "streamed", "rank_tol": 1e-3}
    problem.solve(**options)
    ours = ko.driver.refine.factorize
    monkeypatch.setattr("kernelopt.driver.refine.factorize", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        problem.solve(**options, random_state=1)
    monkeypatch.setattr("kernelopt.driver.refine.factorize", ours)
    problem.solve(**options, random_state=1)
    twin = problem_of(points=X[:250])
    twin.solve(**options, random_state=1)
    assert np.array_equal(problem.thetas()[0].value.pivots, twin.thetas()[0].value.pivots)


@pytest.mark.slow
def test_seeds_of_a_problem():
    problem = problem_of(points=X[:250])
    options = {"factorization": "streamed", "rank_tol": 1e-3}
    first, values = problem.solve(**options), []
    pivots = problem.thetas()[0].value.pivots
    for seed in (None, 0, 1):
        twin = problem_of(points=X[:250])
        values.append(twin.solve(**options, random_state=seed))
        assert np.array_equal(twin.thetas()[0].value.pivots, pivots) == (seed != 1)
    assert values[0] == values[1] == first != values[2]
    problem.solve(**options, random_state=1)  # the seed is part of what a kept factor is asked for
    assert not np.array_equal(problem.thetas()[0].value.pivots, pivots)
    for bad in (-1, 1.5, True, "0"):
        with pytest.raises(OptionError, match="random_state"):
            problem.solve(random_state=bad)


@pytest.mark.slow
def test_a_limit_of_memory_keeps_the_answer_of_a_coarser_factor(monkeypatch):
    def refused(*args, **options):
        raise MemoryLimitError("too large")

    theta = ko.Theta(GAUSSIAN)
    fit = cp.sum_squares(np.random.default_rng(1).normal(size=150) - theta(X[:150]))
    problem = ko.Problem(cp.Minimize(fit + 1e-3 * ko.sum_squares(theta)))
    value = problem.solve(factorization="streamed")
    assert len({attempt.ranks for attempt in problem.solver_stats.attempts}) > 1
    assert problem.status == "optimal"
    problem = ko.Problem(problem.objective)
    monkeypatch.setattr("kernelopt.driver.refine.grow", refused)
    coarse = problem.solve(factorization="streamed")
    assert problem.status == "optimal_inaccurate"
    assert value < coarse
    assert problem.certificate.lower <= value
    monkeypatch.setattr("kernelopt.factorization.streamed_cholesky", refused)
    with pytest.raises(MemoryLimitError):
        ko.Problem(problem.objective).solve(factorization="streamed")


@pytest.mark.later
def test_a_wrong_factor_is_found_out():
    problem = problem_of(points=X[:150])
    problem.solve(factorization="streamed")
    (theta, factor), *_ = reduction_of(problem).factors.items()
    reduction_of(problem).factors[theta] = replace(factor, B=factor.B * (1 + 1e-3))
    assert not problem.verify().passed


# ---------------------------------------------------------------- single steps


def test_the_first_seed_is_zero():
    """Of settings that do not tell one, as of problems."""
    rows = rows_of(GAUSSIAN)
    plain = streamed.streamed_cholesky(rows, Settings(1e-2, None))
    assert np.array_equal(plain.pivots, factor(GAUSSIAN, rank_tol=1e-2, seed=0).pivots)


def test_a_negative_diagonal_entry_is_judged_by_itself():
    """Beside a large first entry it would pass for rounding."""
    with pytest.raises(NotPSDError, match="on 1 rows"):
        factor(*precomputed(np.diag(np.r_[100.0, np.ones(98), -5e-9])))


def test_negative_rounding_is_clipped():
    """So that no square root and no probability sees it."""
    work = SimpleNamespace(d=np.array([1.0, -1e-17, 0.5]), negligible=1e-10)
    elimination.Elimination._require_nonnegative(work, np.zeros(0, dtype=np.intp))
    assert np.array_equal(work.d, [1.0, 0.0, 0.5])


def test_eigenvalues_are_computed_only_on_suspicion(monkeypatch):
    """They take more than the Cholesky factorization that has to break down first."""
    monkeypatch.setattr(elimination.Elimination, "_refuse_indefinite", lambda *_: pytest.fail("There is no reason to."))
    assert factor(*precomputed(GAUSSIAN(X[:50])), 1e-4).rank > 1


@pytest.mark.parametrize(
    ("k", "half", "left", "goal", "expected"),
    [
        (10, 0.75, 1.5, 6.0, 40.0),  # in proportion to the rank
        (10, 0.5, 2.0, 8.0, 20.0),  # to its square
        (10, 0.4, 0.8, 6.0, 20.0),  # too little is known
        (10, 0.0, 1.5, 6.0, 20.0),
        (1, 0.5, 1.5, 6.0, 2.0),
        (10, 3.0, 6.0, 5.0, 10.0),  # the goal is reached
    ],
)
def test_the_expected_rank(k, half, left, goal, expected):
    """Of logarithms of trace(Q)/trace(E) at half of the rank, at the rank, and at the goal: y = a·kᵖ."""
    work = SimpleNamespace(rank=k, trace=1.0, left=np.exp(-left), goal=np.exp(-goal))
    columns = SimpleNamespace(squares=lambda _: np.array([np.exp(-half) - np.exp(-left)]))
    assert elimination.Elimination.expected_rank(work, columns) == pytest.approx(expected)


@pytest.mark.parametrize(("left", "kept"), [(1.0, None), (0.5, 3), (0.0, 2)])
def test_columns_that_meet_the_goal_exactly_stay(left, kept):
    """Of four, the last ones go that the goal does not need; here each takes 0.5 of the trace, and the goal is 1."""
    dropped = []
    columns = SimpleNamespace(squares=lambda _: np.full(4, 0.5), drop=lambda end: dropped.append(end) or np.zeros(3))
    work = SimpleNamespace(left=left, goal=1.0, rank=4, d=np.zeros(3), pivots=np.arange(4))
    elimination.Elimination._trim(work, columns, 0)
    assert dropped == ([] if kept is None else [kept])
    assert len(work.pivots) == (kept or 4)


def test_no_pivot_without_a_residual():
    """An entry of zero is none, though nothing else is left."""
    chosen, L = elimination.best_of(np.diag([4.0, 0.0]), 2, np.zeros(2))
    assert np.array_equal(chosen, [0]) and np.array_equal(L, [[2.0]])
    chosen, L = elimination.best_towards(np.diag([4.0, 0.0]), np.ones((2, 1)), 2, np.zeros(2))
    assert np.array_equal(chosen, [0]) and np.array_equal(L, [[2.0]])


def test_room_for_columns():
    """A first array of 64 MB, which stays while columns fit; memory for more is asked for, as wide as it must be."""
    n = 100_000
    columns, work = streamed.ArrayColumns(n, None), SimpleNamespace(limit=1e9, most=n, expected_rank=lambda _: 0)
    columns.make_room(work, 16)
    first = columns.B
    assert first.shape == (n, 2**26 // (8 * n))
    columns.make_room(work, first.shape[1])
    assert columns.B is first
    for most, told in ((n, 16), (500, 500)):
        small = SimpleNamespace(limit=8.0 * n * 15, most=most, expected_rank=lambda _: 0)
        with pytest.raises(MemoryLimitError, match=f"{n} distinct rows and {told} columns"):
            streamed.ArrayColumns(n, None).make_room(small, 16)


@pytest.mark.parametrize("size", [0.1, 0.7, 3.0, 5.0, 1e-3])
def test_no_row_is_a_pivot_twice(size):
    """Though rounding may leave something of its residual."""
    E, least = np.diag([size, size]), np.zeros(2)
    for chosen, L in (elimination.best_of(E, 3, least), elimination.best_towards(E, np.ones((2, 1)), 3, least)):
        assert np.array_equal(np.sort(chosen), [0, 1])
        np.testing.assert_allclose(L @ L.T, E)
