"""The language: what may be written, and what is refused at the line that wrote it."""

import re
import warnings
from datetime import datetime

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest

import kernelopt as ko
from kernelopt.errors import DataError, DataTypeError, DCPError, KernelError, RepresenterError, SolverError
from kernelopt.language.nodes import norm_from_gram

X = np.array([[0.0, 1.0], [1.0, 0.5], [-1.0, 2.0]])
KERNEL = ko.kernels.Polynomial(degree=2)


@pytest.fixture
def theta():
    return ko.Theta(KERNEL)


@pytest.fixture
def fitted():
    return ko.Function(KERNEL, X, [1.0, -2.0, 0.5])


def test_both_notations_are_one(theta):
    A = ko.FeatureMatrix(X, KERNEL)
    theta.value = ko.Function(KERNEL, X, [1.0, 2.0, 3.0])
    assert np.array_equal((A @ theta).value, theta(X).value)
    assert np.array_equal(theta(A).value, theta(X).value)
    assert A.shape == (3, 6)
    assert np.allclose(A.diag(), np.diag(KERNEL(X)))
    assert np.array_equal((A[1:] @ theta).value, theta(X).value[1:])
    assert np.array_equal(A[np.array([True, False, True])].X, X[[0, 2]])


def test_infinite_features():
    assert ko.FeatureMatrix(X, ko.kernels.Gaussian(sigma=1.0)).shape == (3, np.inf)


def test_predictions_are_affine_and_norms_convex(theta):
    assert theta(X).is_affine()
    assert theta(X).shape == (3,)
    norm = ko.norm(theta)
    assert norm.is_convex()
    assert not norm.is_concave()
    assert norm.is_nonneg()
    assert ko.sum_squares(theta).is_convex()
    # DCP rejects these by itself.
    assert not (-norm).is_convex()
    assert not (norm >= 1).is_dcp()


def test_values_follow_theta(theta, fitted):
    b = cp.Variable()
    f = theta(X) + b
    assert f.value is None
    assert ko.norm(theta).value is None
    theta.value = fitted
    assert f.value is None
    b.value = 1.0
    assert np.allclose(f.value, fitted(X) + 1.0)
    assert np.isclose(ko.norm(theta).value, fitted.norm)
    assert np.isclose(ko.sum_squares(theta).value, fitted.norm**2)
    theta.value = None
    assert f.value is None


def test_matrix_theta(fitted):
    theta = ko.Theta(KERNEL, outputs=3)
    M = np.array([[1.0, 0.0], [2.0, 1.0], [0.0, -1.0]])
    c = np.arange(9.0).reshape(3, 3)
    theta.value = ko.Function(KERNEL, X, c)
    U = KERNEL(X) @ c
    assert theta(X).shape == (3, 3)
    assert np.allclose(theta(X).value, U)
    assert np.allclose((theta @ M)(X).value, U @ M)
    assert np.allclose(theta[:, 1](X).value, U[:, 1])
    assert np.allclose(theta[:, 1:](X).value, U[:, 1:])
    assert np.allclose((theta @ M)[:, 0](X).value, (U @ M)[:, 0])
    assert np.allclose((theta @ [1.0, -1.0, 0.0])(X).value, U[:, 0] - U[:, 1])
    assert np.allclose((theta[:, 0] - theta[:, 1])(X).value, U[:, 0] - U[:, 1])
    assert np.allclose((theta + theta[:, [1, 1, 0]])(X).value, U + U[:, [1, 1, 0]])
    assert np.allclose((theta[:, :2] - theta @ M)(X).value, U[:, :2] - U @ M)
    f0 = ko.Function(KERNEL, X, np.ones((3, 3)))
    assert np.allclose((theta - f0)(X).value, U - f0(X))
    Phi = KERNEL.features(X)
    T, T0 = Phi.T @ c, Phi.T @ np.ones((3, 3))
    singular = np.linalg.svd(T, compute_uv=False)
    assert np.isclose(ko.norm(theta, "fro").value, np.linalg.norm(T))
    assert np.isclose(ko.norm(theta, "nuc").value, singular.sum(), rtol=1e-6)
    assert np.isclose(ko.norm(theta, 2).value, singular.max())
    assert np.isclose(ko.norm(theta[:, 2]).value, np.linalg.norm(T[:, 2]))
    assert np.isclose(ko.norm(theta @ M, "fro").value, np.linalg.norm(T @ M))
    assert np.isclose(ko.norm(theta - f0, "fro").value, np.linalg.norm(T - T0))
    assert np.isclose(ko.norm((theta - f0)[:, 0]).value, np.linalg.norm((T - T0)[:, 0]))
    assert np.isclose(ko.norm(theta[:, 0] - theta[:, 1]).value, np.linalg.norm(T[:, 0] - T[:, 1]))
    both = (theta - f0)[:, 0] + theta[:, 2]
    assert np.isclose(ko.norm(both).value, np.linalg.norm(T[:, 0] - T0[:, 0] + T[:, 2]))
    assert np.isclose(f0.inner(theta).value, np.sum(T0 * T))


def test_inner_product_and_distance(theta, fitted):
    other = ko.Function(KERNEL, X[:2], [1.0, 1.0])
    theta.value = fitted
    assert np.isclose(other.inner(theta).value, other.inner(fitted))
    assert np.isclose(ko.norm(theta - other).value ** 2, fitted.norm**2 - 2 * other.inner(fitted) + other.norm**2)


def test_norm_from_gram():
    T = np.random.default_rng(0).normal(size=(5, 3))
    s = np.linalg.svd(T, compute_uv=False)
    for kind, value in {"fro": np.linalg.norm(s), "nuc": s.sum(), 2: s.max()}.items():
        assert np.isclose(norm_from_gram(T.T @ T, kind), value)


REFUSED = {
    "an entry": lambda t: t[3],
    "a row": lambda t: t[0, :],
    "norm1": lambda t: cp.norm1(t),
    "norm": lambda t: cp.norm(t),
    "sum_squares": lambda t: cp.sum_squares(t),
    "numpy array": lambda t: np.asarray(t),
    "matrix @": lambda t: np.eye(3) @ t,
    "constant @": lambda t: cp.Constant(np.eye(3)) @ t,
    "variable @": lambda t: cp.Variable((3, 3)) @ t,
    "nonneg": lambda t: t >= 0,
    "bounded": lambda t: t <= 1,
    "equal": lambda t: t == 0,
    "plus": lambda t: t + 1,
    "plus, other side": lambda t: cp.Variable() + t,
    "minus a number": lambda t: t - 1.0,
    "minus θ": lambda t: t - ko.Theta(KERNEL),
    "number minus": lambda t: 1.0 - t,
    "function minus": lambda t: ko.Function(KERNEL, X, [1.0, 0.0, 0.0]) - t,
    "times": lambda t: 2 * t,
    "over": lambda t: t / 2,
    "negative": lambda t: -t,
    "power": lambda t: t**2,
    "abs": lambda t: abs(t),
    "transpose": lambda t: t.T,
    "iteration": lambda t: list(t),
    "length": lambda t: len(t),
    "one norm": lambda t: ko.norm(t, 1),
    "infinity norm": lambda t: ko.norm(t, "inf"),
    "vector θ @ M": lambda t: t @ np.eye(2),
    "numpy's sum": lambda t: np.sum(t),
    "numpy's matmul": lambda t: np.matmul(np.eye(3), t),
    "numpy's norm": lambda t: np.linalg.norm(t),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_at_the_line_that_wrote_it(name, theta):
    with pytest.raises(RepresenterError, match=r"ko\.norm|theta\(X\)"):
        REFUSED[name](theta)


def test_predictions_are_no_method_as_in_scikit_learn(theta):
    with pytest.raises(AttributeError, match=r"theta\(X\)\.value, or theta\.value\(X\)"):
        theta.predict(X)
    assert not hasattr(theta, "predict")


def test_refusal_of_cvxpy_norms_says_what_to_write(theta):
    with pytest.raises(RepresenterError, match=re.escape("ko.norm(theta)")):
        cp.norm(theta)
    with pytest.raises(RepresenterError, match=re.escape("ko.sum_squares(theta)")):
        cp.sum_squares(theta)


def test_another_kernels_matrix(theta):
    with pytest.raises(RepresenterError, match=r"Gaussian\(sigma=1\.0\).*Polynomial"):
        ko.FeatureMatrix(X, ko.kernels.Gaussian(sigma=1.0)) @ theta
    # Equal by structure is the same kernel.
    assert (ko.FeatureMatrix(X, ko.kernels.Polynomial(degree=2)) @ theta).shape == (3,)
    with pytest.raises(RepresenterError, match=r"ko\.Theta"):
        ko.FeatureMatrix(X, KERNEL) @ np.ones(6)


def test_another_number_of_columns(theta):
    used = theta(X)
    with pytest.raises(DataError, match=r"2 columns.*1 column"):
        theta(X[:, :1])
    del used
    assert theta(X[:, :1]).shape == (3,)  # a mistake that is gone does not bind θ


def test_matrix_norms_must_be_named():
    theta = ko.Theta(KERNEL, outputs=2)
    with pytest.raises(RepresenterError, match=r"'fro'.*'nuc'.*2"):
        ko.norm(theta)
    with pytest.raises(RepresenterError, match="orthogonally invariant"):
        ko.norm(theta, 1)
    with pytest.raises(DataError, match="2 rows"):
        theta @ np.eye(3)
    with pytest.raises(DataError, match="2 outputs"):
        theta[:, 2]
    with pytest.raises(RepresenterError, match=re.escape("theta(X) @ M")):
        theta @ cp.Parameter((2, 2))
    with pytest.raises(RepresenterError, match="entries"):
        theta[0]


def test_norm_of_predictions_is_cvxpys(theta):
    with pytest.raises(RepresenterError, match=r"cp\.norm"):
        ko.norm(theta(X))


def test_bad_declarations():
    with pytest.raises(KernelError, match="Expected a kernel"):
        ko.Theta("rbf")
    with pytest.raises(KernelError, match="outputs"):
        ko.Theta(KERNEL, outputs=0)
    with pytest.raises(KernelError, match="kernel"):
        ko.FeatureMatrix(X, "rbf")


def test_theta_value_is_checked(theta):
    with pytest.raises(RepresenterError, match="one kernel"):
        theta.value = ko.Function(ko.kernels.Linear(), X, np.ones(3))
    with pytest.raises(RepresenterError, match="outputs"):
        theta.value = ko.Function(KERNEL, X, np.ones((3, 2)))
    with pytest.raises(DataError, match=r"ko\.Function"):
        theta.value = np.ones(6)
    assert theta.value is None


OBJECTIVES = {
    "least squares": lambda t: cp.sum_squares(t(X)),
    "hinge": lambda t: cp.sum(cp.pos(1 - t(X))),
    "norm of predictions": lambda t: cp.norm(t(X)),
    "linear": lambda t: cp.sum(t(X)),
    "exponential": lambda t: cp.sum(cp.exp(t(X))),
    "max": lambda t: cp.max(t(X)),
    "norm": lambda t: ko.norm(t),
    "squared norm": lambda t: ko.sum_squares(t),
    "nothing": lambda t: 0.0,
}


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("solver", [None, "CLARABEL", "SCS"])
def test_a_plain_cvxpy_problem_refuses(name, solver, theta):
    problem = cp.Problem(cp.Minimize(OBJECTIVES[name](theta)), [theta(X) <= 1])
    with pytest.raises(DCPError, match=re.escape("ko.Problem")):
        problem.solve(solver=solver)


def test_pandas_on_the_left_works(theta):
    y = pd.Series([1.0, 2.0, 3.0], index=[7, 8, 9])
    for expression in (y - theta(X), y - (theta(X) + cp.Variable()), theta(X) - y, y + theta(X)):
        assert isinstance(expression, cp.Expression)
        assert expression.shape == (3,)
    assert ko.losses.hinge(pd.Series([1, -1, 1]), theta(X)).shape == (3,)
    frame = pd.DataFrame(X, columns=["a", "b"])
    assert theta(frame).shape == (3,)


def test_broadcasting_into_a_table_is_refused(theta):
    y = np.array([1.0, 2.0, 3.0])
    table = cp.sum_squares(y[:, None] - theta(X))
    problem = ko.Problem(cp.Minimize(table + ko.sum_squares(theta)))
    with pytest.raises(RepresenterError, match=re.escape("(3, 3)")) as refusal:
        problem.solve()
    assert "y.ravel()" in str(refusal.value)
    assert not problem.is_representable()


@pytest.mark.filterwarnings("ignore:The problem includes expressions")  # cvxpy compiles broadcasts by SciPy
def test_a_deliberate_row_is_not_a_table(theta):
    weights = np.array([[1.0, 2.0, 3.0]])
    problem = ko.Problem(cp.Minimize(cp.sum_squares(cp.multiply(weights, theta(X)) - 1) + ko.sum_squares(theta)))
    assert problem.solve() > 0


def test_arguments_are_not_changed():
    data = np.array([[0.0, -0.0], [1.0, 2.0]], dtype=np.float32)
    before = data.copy()
    A = ko.FeatureMatrix(data, ko.kernels.Linear())
    data[0, 0] = 5.0
    assert A.X[0, 0] == 0.0
    assert A.X.dtype == np.float64
    assert before[0, 0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        A.X[0, 0] = 1.0


def test_no_warnings_in_ordinary_use(theta):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - 1) + ko.sum_squares(theta))).solve()


def test_combinations_are_copied():
    M, theta = np.eye(2), ko.Theta(KERNEL, outputs=2)
    view = theta @ M
    M[:] = 5.0
    assert np.array_equal(view.right, np.eye(2))
    with pytest.raises(DataError, match="finite"):
        theta @ np.full((2, 2), np.nan)


@pytest.mark.parametrize(
    "index", [(slice(None), None), (slice(None), [[0, 1]]), (slice(None), [True]), (slice(None), 7)]
)
def test_outputs_must_be_chosen(index):
    theta = ko.Theta(KERNEL, outputs=3)
    with pytest.raises(DataError, match="outputs|output k"):
        theta[index]


def test_bad_rows_and_norms():
    theta = ko.Theta(KERNEL, outputs=3)
    with pytest.raises(RepresenterError, match="entries"):
        theta[np.array([0, 1]), 0]
    with pytest.raises(DataError, match="0 to 2"):
        ko.FeatureMatrix(X, KERNEL)[[100]]
    with pytest.raises(RepresenterError, match="orthogonally invariant"):
        ko.norm(theta, [1])
    with pytest.raises(KernelError, match="data come first"):
        ko.FeatureMatrix(KERNEL, X)


@pytest.mark.parametrize("bounded", [False, True])
def test_functions_that_differ_little(bounded):
    """Against the same problem in coordinates of the span of all rows; each function has rows of its own."""
    rng = np.random.default_rng(0)
    P, R = rng.uniform(-1, 1, size=(2, 6, 2))
    y, z = rng.normal(size=(2, 6))
    kernel = ko.kernels.Gaussian(sigma=0.7)
    theta = ko.Theta(kernel, outputs=2)
    far, loss = theta[:, 0] - theta[:, 1], cp.norm1(y - theta[:, 0](P)) + cp.sum_squares(z - theta[:, 1](R))
    loss += 0.3 * ko.norm(theta[:, 0]) + 0.1 * ko.sum_squares(theta[:, 1])
    problem = ko.Problem(
        cp.Minimize(loss + (0 if bounded else 0.5 * ko.sum_squares(far))), [ko.norm(far) <= 0.4] if bounded else []
    )
    B, W = np.linalg.cholesky(kernel(np.vstack([P, R]))), cp.Variable((12, 2))
    outer = cp.norm1(y - B[:6] @ W[:, 0]) + cp.sum_squares(z - B[6:] @ W[:, 1])
    outer += 0.3 * cp.norm(W[:, 0]) + 0.1 * cp.sum_squares(W[:, 1])
    difference = W[:, 0] - W[:, 1]
    plain = cp.Problem(
        cp.Minimize(outer + (0 if bounded else 0.5 * cp.sum_squares(difference))),
        [cp.norm(difference) <= 0.4] if bounded else [],
    )
    assert problem.solve() == pytest.approx(plain.solve(solver="CLARABEL"), rel=1e-6)
    assert problem.status == "optimal" and problem.certificate.relative_gap < 1e-6
    assert np.allclose(theta.value(P)[:, 0], B[:6] @ W.value[:, 0], atol=1e-3)


def test_inner_products_with_parts_of_theta():
    theta, f0 = ko.Theta(KERNEL, outputs=3), ko.Function(KERNEL, X[:2], [1.0, 1.0])
    c = np.arange(9.0).reshape(3, 3)
    theta.value = ko.Function(KERNEL, X, c)
    assert np.isclose(f0.inner(theta[:, 1]).value, f0.inner(ko.Function(KERNEL, X, c[:, 1])))
    shifted = theta[:, 1] - ko.Function(KERNEL, X, [1.0, 0.0, 0.0])
    assert np.isclose(f0.inner(shifted).value, f0.inner(ko.Function(KERNEL, X, c[:, 1] - [1, 0, 0])))


@pytest.mark.parametrize("product", [lambda u: np.ones(3) * u, lambda u: u * np.ones(3), lambda u: u * cp.Parameter(3)])
def test_the_matrix_product_of_labels_is_refused(product, theta):
    with pytest.raises(DataError, match=r"ko\.margin"):
        product(theta(X))
    assert (2 * theta(X)).shape == (theta(X) * 2.0).shape == (cp.Parameter() * theta(X)).shape == (3,)


@pytest.mark.parametrize("X", [cp.Constant(np.ones((3, 1))), cp.Parameter((3, 1), value=np.ones((3, 1)))])
def test_points_that_cvxpy_holds_are_refused_by_their_type(X):
    with pytest.raises(DataTypeError, match=rf"got a cvxpy {type(X).__name__}\. Pass its value") as raised:
        ko.Theta(ko.kernels.Gaussian(sigma=1.0))(X)
    assert "categories" not in str(raised.value)
    assert ko.Theta(ko.kernels.Gaussian(sigma=1.0))(X.value).shape == (3,)  # the remedy


def test_points_where_a_derivative_takes_a_column():
    theta, X = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), np.ones((3, 1))
    with pytest.raises(DataError, match=r"theta\.derivative\(0\)\(X\)"):
        theta.derivative(X)
    assert theta.derivative(0)(X).shape == (3,)


def test_numbers_where_a_function_is_set():
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    with pytest.raises(DataError, match=r"ko\.Function\(theta\.kernel, centers, coefficients\)"):
        theta.value = np.ones(3)
    theta.value = ko.Function(theta.kernel, np.zeros((1, 1)), [2.0])
    assert theta(np.zeros((1, 1))).value == pytest.approx(2.0)


def test_dates_beside_predictions_are_refused():
    """cvxpy would read them as numbers of days."""
    f = ko.Theta(ko.kernels.Gaussian(sigma=1.0))(np.arange(3.0)[:, None])
    dates = np.arange(3).astype("datetime64[D]")
    stamps = [datetime(2026, 1, k) for k in (1, 2, 3)]
    for other in (dates, dates - dates[0], stamps, np.array(stamps), np.datetime64("2026-01-01"), [dates[0]] * 3):
        for stated in (lambda d: d - f, lambda d: f - d, lambda d: f + d, lambda d: f <= d, lambda d: f @ d):
            with pytest.raises(
                DataTypeError, match="Expected what stands beside predictions to be real numbers; got dates"
            ):
                stated(other)


def test_values_of_predictions_are_read_only():
    X, y = np.arange(6.0)[:, None], np.arange(6.0)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(X)
    ko.Problem(cp.Minimize(cp.sum_squares(y - f) + ko.sum_squares(theta))).solve()
    for array in (f.value, f.dual_value, f[:2].value, theta(X[:2] + 0.5).value):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0


def test_truth_values_of_numpy_as_constraints():
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    objective = cp.Minimize(cp.sum_squares(theta(np.arange(3.0)[:, None]) - 1) + ko.sum_squares(theta))
    problem = ko.Problem(objective, [np.float64(0) <= 1])
    problem.solve()
    assert problem.status == "optimal"
    impossible = ko.Problem(objective, [np.float64(2) <= 1])
    impossible.solve()
    assert impossible.status == "infeasible"
    for solver in ("CLARABEL", "OSQP"):
        for count in (-1, 0, 1.5):
            with pytest.raises(SolverError, match=f"Expected max_iter of {solver} to be an integer ≥ 1"):
                problem.solve(solver=solver, max_iter=count)
