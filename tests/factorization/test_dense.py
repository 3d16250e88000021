"""Q = BBᵀ: exactness, tolerance, rank, pivots, and F(x) = L⁻¹k_S(x)."""

import tracemalloc
from time import perf_counter

import numpy as np
import pytest
import scipy.linalg as sl

import kernelopt as ko
from kernelopt.errors import KernelError, MemoryLimitError, NotPSDError
from kernelopt.factorization import METHODS, Settings, dense, factorize
from kernelopt.factorization.memory import available_bytes, human
from kernelopt.factorization.whole import whole
from kernelopt.language.rows import Rows
from kernelopt.support import clock

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 2))
GAUSSIAN = ko.kernels.Gaussian(sigma=1.0)
POLYNOMIAL = ko.kernels.Polynomial(degree=3)


def factor(kernel, points, method="cholesky", rank_tol=1e-8, max_rank=None, **options):
    rows = Rows.of_points(kernel, kernel.rows(points))
    return METHODS[method](rows, Settings(rank_tol, max_rank), **options)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rank_tol", [1e-2, 1e-5, 1e-8, 1e-12])
def test_trace_residual_meets_its_tolerance(method, rank_tol):
    f, Q = factor(GAUSSIAN, X, method, rank_tol), GAUSSIAN(X)
    E = Q - f.scale * f.B @ f.B.T
    assert np.trace(E) <= rank_tol * np.trace(Q) * (1 + 1e-6)
    assert abs(f.residual - np.trace(E) / np.trace(Q)) < 1e-13
    assert np.linalg.eigvalsh(E)[0] > -1e-12  # a restriction never exceeds Q
    smaller = f.B[:, :-1]
    assert np.trace(Q - f.scale * smaller @ smaller.T) > rank_tol * np.trace(Q)  # no column too many


@pytest.mark.parametrize("method", METHODS)
def test_full_rank_is_exact(method):
    f, Q = factor(POLYNOMIAL, X, method, 1e-13), POLYNOMIAL(X)
    assert f.rank == 10 == POLYNOMIAL.features(X).shape[1]
    assert np.abs(Q - f.scale * f.B @ f.B.T).max() < 1e-13 * Q.max()
    assert not f.is_restriction
    assert factor(POLYNOMIAL, X, method, max_rank=4).rank == 4
    assert factor(POLYNOMIAL, X, method, max_rank=4).is_restriction


@pytest.mark.parametrize("method", METHODS)
def test_the_lectures_proof(method):
    """A = BC, CCᵀ = I, Aᵀd ↦ d ∈ range(B), and F(x⁽ⁱ⁾)ᵀF(x) = κ(x⁽ⁱ⁾, x)."""
    points = X[:7]  # fewer than p = 10, so that there is a null space
    f, A = factor(POLYNOMIAL, points, method), POLYNOMIAL.features(points)
    B = np.sqrt(f.scale) * f.B
    C = (A[f.pivots].T @ f.coefficients(np.sqrt(f.scale) * np.eye(f.rank))).T
    assert np.abs(C @ C.T - np.eye(f.rank)).max() < 1e-10
    assert np.abs(A - B @ C).max() < 1e-10 * np.abs(A).max()
    d = A @ RNG.normal(size=A.shape[1])
    assert np.abs(B @ np.linalg.lstsq(B, d)[0] - d).max() < 1e-10 * np.abs(d).max()
    x = RNG.normal(size=(4, 2))
    reduced = f.coefficients(np.sqrt(f.scale) * np.eye(f.rank)).T @ POLYNOMIAL(points[f.pivots], x)  # F(x) = L⁻¹k_S(x)
    assert np.abs(B @ reduced - POLYNOMIAL(points, x)).max() < 1e-10 * np.abs(B).max() ** 2
    theta = RNG.normal(size=A.shape[1])
    null = theta - C.T @ (C @ theta)
    assert np.abs(A @ null).max() < 1e-10 * np.abs(A).max()  # what the theorem drops moves no prediction
    assert np.linalg.norm(theta) > np.linalg.norm(C @ theta)


@pytest.mark.parametrize("rank_tol", [1e-3, 1e-6, 1e-8, 1e-10])
def test_predictions_on_pivots_equal_the_factor(rank_tol):
    f = factor(GAUSSIAN, X, rank_tol=rank_tol)
    L = f.B[f.pivots]
    assert np.array_equal(L, np.tril(L))
    F = sl.solve_triangular(L, GAUSSIAN(X[f.pivots], X), lower=True).T / f.scale
    assert np.abs(F - f.B).max() < 1e-9
    v = RNG.normal(size=f.rank)
    assert np.abs(GAUSSIAN(X, X[f.pivots]) @ f.coefficients(v) - f.B @ v).max() < 1e-9 / rank_tol**0.5 * 1e-3


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1e-200, 1e-16, 1e-8, 1.0, 1e16, 1e200])
def test_units_do_not_matter(method, scale):
    f, reference = factor(scale * GAUSSIAN, X, method), factor(GAUSSIAN, X, method)
    assert f.rank == reference.rank
    assert np.array_equal(f.pivots, reference.pivots)
    assert np.isclose(f.scale, scale * reference.scale, rtol=1e-12)
    assert np.abs(np.abs(f.B) - np.abs(reference.B)).max() < 1e-7


@pytest.mark.parametrize("method", METHODS)
def test_degenerate_kernels(method):
    constant = ko.kernels.Explicit(lambda X: np.ones((len(X), 1)))
    zero = 0.0 * GAUSSIAN
    assert factor(constant, X, method).rank == 1
    assert factor(zero, X, method).rank == 0
    assert factor(zero, X, method).residual == 0
    assert factor(GAUSSIAN, X[:1], method).rank == 1


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "matrix",
    [
        np.array([[1.0, 0, 0], [0, 0, 1], [0, 1, 0]]),  # a zero trace residual at rank 1
        -np.eye(3),
        np.diag([1.0, 1.0, -1e-6]),
        np.array([[1.0, 2.0], [2.0, 1.0]]),
    ],
)
def test_indefinite_matrices_are_refused(method, matrix):
    with pytest.raises(NotPSDError, match="eigenvalue") as refusal:
        factor(ko.kernels.Precomputed(matrix), np.arange(len(matrix)), method)
    smallest = np.linalg.eigvalsh(matrix)[0]
    assert f"{smallest:.3g}" in str(refusal.value)


@pytest.mark.parametrize("method", METHODS)
def test_semidefinite_matrices_are_taken(method):
    Q = GAUSSIAN(X)
    assert factor(ko.kernels.Precomputed((Q + Q.T) / 2), np.arange(len(X)), method).rank > 10
    rows = Rows.of_points(ko.kernels.Precomputed(Q.astype(np.float32)), np.arange(len(X)))
    assert factorize(method, rows, Settings(1e-8, None), None).rank > 10


def test_kernel_values_must_be_finite():
    with pytest.raises(KernelError, match=r"rows 0 and 0"):
        factor(ko.kernels.Polynomial(degree=50), 1e10 * np.ones((2, 2)))


def test_memory_is_refused_before_it_is_taken():
    with pytest.raises(MemoryLimitError, match=r"120 distinct rows needs about 230 kB.*memory_limit"):
        factor(GAUSSIAN, X, memory_limit=1e5)
    huge = np.arange(3_000_000.0)[:, None]
    with pytest.raises(MemoryLimitError, match="TB"):
        factor(GAUSSIAN, huge)
    assert available_bytes() > 1e6
    assert human(8e10) == "80 GB"


def test_rows_of_functions():
    """A function's row is f₀ᵀ: its Gram entries are f₀(x) and ‖f₀‖²."""
    f0 = ko.Function(GAUSSIAN, X[:3] + 0.1, np.array([[1.0, 0.0], [0.0, 2.0], [1e3, -1.0]]))
    rows = Rows.of_points(GAUSSIAN, X).with_functions([f0])
    Q = rows.gram()
    assert len(rows) == 122
    assert rows.mixed
    assert np.allclose(Q[:120, :120], GAUSSIAN(X))
    assert np.allclose(Q[:120, 120:], f0(X))
    assert np.allclose(Q[120:, 120:], f0.gram())
    assert np.allclose(Q, Q.T)
    for method in METHODS:
        f = METHODS[method](rows, Settings(1e-10, None))
        E = Q - f.scale * f.B @ f.B.T
        assert np.abs(E).max() < 1e-8 * Q.max()
        v = RNG.normal(size=f.rank)
        centers, c = rows.expansion(f.pivots, f.coefficients(v))
        g = ko.Function(GAUSSIAN, centers, c)
        assert np.abs(g(X) - (f.B @ v)[:120]).max() < 1e-5
        assert (
            np.abs([h.inner(g) for h in (f0.right(np.eye(2)[0]), f0.right(np.eye(2)[1]))] - (f.B @ v)[120:]).max()
            < 1e-3
        )


@pytest.mark.parametrize("kernel", [ko.kernels.Gaussian(sigma=0.05), None])
def test_memory_estimate_is_kept(kernel, monkeypatch):
    """What is announced is what is taken, at full rank too."""
    n, asked = 800, []
    points = RNG.normal(size=(n, 2)) if kernel else np.arange(n)
    rows = Rows.of_points(kernel, points) if kernel else None
    if rows is None:
        G = GAUSSIAN(RNG.normal(size=(n, 2)))
        rows = Rows.of_points(ko.kernels.Precomputed((G + G.T) / 2), points)
    monkeypatch.setattr("kernelopt.factorization.memory.require", lambda needed, *_: asked.append(needed))
    tracemalloc.start()
    METHODS["cholesky"](rows, Settings(1e-13, None))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert asked[0] / 1.5 < peak < 1.15 * asked[0]


def test_a_factor_is_exact_and_departs_from_nothing():
    """Unless it says otherwise, as one in single precision or of a projection does."""
    f = factor(GAUSSIAN, X, max_rank=5)
    assert f.is_exact and not f.is_projected
    assert f.departure == 0.0 and f.added == 0.0
    rows = Rows.of_points(ko.kernels.Precomputed(np.diag([1.0, -0.5])), np.arange(2))
    shifted = dense.projected(rows, Settings(1e-8, None, "shift"))
    assert shifted.is_projected and shifted.added == pytest.approx(0.5) and shifted.departure > 0.1


@pytest.mark.parametrize(("smallest", "refused"), [(-5e-11, False), (-5e-10, True)])
def test_eigenvalues_decide_where_a_cholesky_factorization_breaks_down(smallest, refused):
    """Relative to the largest eigenvalue, which is four times what is added to the diagonal."""
    u, w = np.array([1.0, -1.0, 1.0, -1.0]) / 2, np.array([1.0, 1.0, -1.0, -1.0]) / 2
    kernel = ko.kernels.Precomputed(np.outer(u, u) + smallest * np.outer(w, w))
    rows = Rows.of_points(kernel, kernel.rows(np.arange(4)))
    if refused:
        with pytest.raises(NotPSDError, match="eigenvalue -5e-10"):
            dense.refuse_indefinite(rows, None, dense.INDEFINITE)
    else:
        dense.refuse_indefinite(rows, None, dense.INDEFINITE)


@pytest.mark.parametrize(("dtype", "told"), [(np.float32, True), (np.float64, False)])
def test_rounded_entries_are_told(dtype, told):
    """Where entries are numbers of single precision, and the eigenvalue is as small as their rounding."""
    kernel = ko.kernels.Precomputed(GAUSSIAN(X).astype(dtype).astype(float))
    rows = Rows.of_points(kernel, kernel.rows(np.arange(len(X))))
    assert ("float32 numbers" in dense._indefinite_message(rows, -1e-7, 1.0)) is told
    assert "float32 numbers" not in dense._indefinite_message(rows, -1e-3, 1.0)
    others = Rows.of_points(GAUSSIAN, X)
    assert "float32 numbers" not in dense._indefinite_message(others, -1e-7, 1.0)


@pytest.mark.parametrize("method", ["cholesky", "eigen", "streamed", "clip"])
def test_seconds_are_counted_from_the_start(method, monkeypatch):
    """Whatever the clock shows."""
    monkeypatch.setattr(clock, "perf_counter", lambda: 1e6 + perf_counter())
    rows = Rows.of_points(GAUSSIAN, X)
    f = factorize("cholesky" if method == "clip" else method, rows, Settings(1e-8, None))
    if method == "clip":
        f = dense.projected(rows, Settings(1e-8, None, "clip"))
    assert 0 <= f.kernel_seconds < 60 and 0 <= f.factor_seconds < 60


@pytest.mark.parametrize("method", METHODS)
def test_kernel_values_must_have_all_digits(method):
    """On average; numbers of 1e-300 lose digits where they are scaled."""
    with pytest.raises(KernelError, match="that doubles store with all digits; got 1e-300"):
        factor(1e-300 * GAUSSIAN, X, method)


def test_a_factor_of_no_rows():
    """Its unit is 1, as that of rows that are 0."""
    empty = factorize("cholesky", Rows.of_points(GAUSSIAN, X[:0]), Settings(1e-8, None))
    assert empty.rank == 0 and empty.scale == 1.0 and empty.residual == 0.0


def test_declarations_are_told_where_a_kernel_has_them():
    """A rule that the user has stated may be the wrong one."""
    stated = ko.kernels.FromFunction(lambda a, b: float(a @ b), psd=True)
    (sentence,) = stated.declarations()
    told = dense._indefinite_message(Rows.of_points(stated, X[:3]), -1.0, 2.0)
    assert f"its largest is 2 (stated was: {sentence})." in told
    assert "its largest is 2. The representer" in dense._indefinite_message(Rows.of_points(GAUSSIAN, X[:3]), -1.0, 2.0)


def test_columns_of_finer_factors_begin_with_those_of_a_factor():
    """So that coordinates stay where columns are added, except where B is Q itself."""
    coarse, finer = factor(GAUSSIAN, X, max_rank=5), factor(GAUSSIAN, X, max_rank=9)
    assert coarse.is_nested and np.allclose(finer.B[:, :5], coarse.B, atol=1e-12)
    assert not whole(Rows.of_points(GAUSSIAN, X)).is_nested
