"""Problems on data frames of several types, whose columns kernels find by name."""

import copy
import pickle

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.errors import DataError, DataTypeError, KernelError

pd = pytest.importorskip("pandas")
ks = ko.kernels
RNG = np.random.default_rng(0)
N = 40
COLUMNS = {
    "g": RNG.choice(["x", "y", "z"], N).tolist(),
    "a": RNG.normal(size=N).tolist(),
    "n": RNG.integers(0, 4, N).tolist(),
    "s": ["".join(RNG.choice(list("ab"), 5)) for _ in range(N)],
}
NUMBERS = np.array([COLUMNS["a"], COLUMNS["n"]], dtype=float).T
Y = RNG.normal(size=N)
KERNEL = ks.Gaussian(sigma=1.0).on(["a", "n"]) + ks.Categorical().on("g") * ks.Spectrum(n=2).on("s")
SAME = np.equal.outer(np.array(COLUMNS["g"]), np.array(COLUMNS["g"]))
GRAM = ks.Gaussian(sigma=1.0)(NUMBERS) + SAME * ks.Spectrum(n=2)(COLUMNS["s"])
ALPHA = 0.3
FITTED = GRAM @ np.linalg.solve(GRAM + ALPHA * np.eye(N), Y)


@pytest.fixture(params=["pandas", "polars"])
def frame(request):
    return pd.DataFrame if request.param == "pandas" else pytest.importorskip("polars").DataFrame


def shuffled(frame):
    return frame({name: COLUMNS[name] for name in ("s", "n", "a", "g")} | {"more": ["?"] * N})


def fitted(X):
    theta = ko.Theta(KERNEL)
    f = theta(X)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(f - Y) + ALPHA * ko.sum_squares(theta)))
    problem.solve(tol=1e-10)
    return theta, f, problem


def test_ridge_regression(frame):
    """The fit is that of the explicit kernel matrix, and predictions find the columns by their names."""
    theta, f, problem = fitted(frame(COLUMNS))
    assert problem.certificate.relative_gap < 1e-10
    value = float(Y @ np.linalg.solve(GRAM + ALPHA * np.eye(N), Y)) * ALPHA
    assert problem.certificate.lower - 1e-12 <= value <= problem.certificate.upper + 1e-12
    assert np.allclose(f.value, FITTED, atol=1e-7)
    for call in (theta.value, lambda X: theta(X).value, theta.value.expanded(), copy.deepcopy(theta.value),
                 pickle.loads(pickle.dumps(theta.value)), ko.Predictor(f, frame(COLUMNS))):  # fmt: skip
        assert np.allclose(call(shuffled(frame)), FITTED, atol=1e-7)
        assert np.allclose(call(shuffled(frame)[5:9]), FITTED[5:9], atol=1e-7)


def test_files(frame, tmp_path):
    theta, f, _ = fitted(frame(COLUMNS))
    ko.save(tmp_path / "model", theta=theta, f=ko.Predictor(2.0 * f + 1.0, frame(COLUMNS)))
    found = ko.load(tmp_path / "model")
    assert found["theta"].kernel == KERNEL and found["theta"].norm == theta.value.norm
    assert np.array_equal(found["theta"](shuffled(frame)), theta.value(frame(COLUMNS)))
    assert np.allclose(found["f"](shuffled(frame)), 2 * FITTED + 1, atol=1e-6)


def test_what_the_fit_refuses(frame):
    theta, f, _ = fitted(frame(COLUMNS))
    for call in (theta, theta.value, ko.Predictor(f, frame(COLUMNS))):
        with pytest.raises(DataTypeError, match=r'DataFrame with columns "a", "n", "g", "s"; got an array'):
            call(NUMBERS)
        with pytest.raises(DataError, match='DataFrame with column "s"; got one with columns "g", "a", "n"'):
            call(frame({name: COLUMNS[name] for name in ("g", "a", "n")}))
    for derive in (lambda: theta.derivative(0)(frame(COLUMNS)), lambda: theta.value.derivative(0)):
        with pytest.raises(KernelError, match="derivatives of order 1; got .*, which is not differentiable"):
            derive()
    with pytest.raises(KernelError, match="integrals have a closed form"):
        theta.value.integral([0.0], [1.0])


def test_a_sum_of_two_functions_of_one_frame(frame):
    """One θ per kernel, each with columns of its own."""
    X = frame(COLUMNS)
    of_numbers, of_labels = ko.Theta(ks.Linear().on(["a", "n"])), ko.Theta(ks.Categorical().on("g"))
    f = of_numbers(X) + of_labels(X)
    loss = cp.sum_squares(f - Y) + ko.sum_squares(of_numbers) + 0.1 * ko.sum_squares(of_labels)
    ko.Problem(cp.Minimize(loss)).solve(tol=1e-10)
    F = np.column_stack([NUMBERS, [[g == level for level in "xyz"] for g in COLUMNS["g"]]])
    weights = np.linalg.solve(F.T @ F + np.diag([1, 1, 0.1, 0.1, 0.1]), F.T @ Y)
    assert np.allclose(f.value, F @ weights, atol=1e-7)
    assert np.allclose(of_labels.value(frame({"g": ["z", "x"]})), weights[[4, 2]], atol=1e-7)
    assert ko.FeatureMatrix(X, of_numbers.kernel).shape == (N, 2)
    assert np.allclose(ko.Predictor(f, X)(shuffled(frame)), F @ weights, atol=1e-7)


def test_points_that_agree_in_the_columns_of_the_kernel_are_one(frame):
    theta = ko.Theta(ks.Categorical().on("g"))
    f = theta(frame(COLUMNS))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(f - Y) + ALPHA * ko.sum_squares(theta)))
    problem.solve()
    assert "rank 3 of 3" in str(problem.certificate)
    means = [np.sum(Y[SAME[i]]) / (SAME[i].sum() + ALPHA) for i in range(N)]
    assert np.allclose(f.value, means, atol=1e-6)


def test_certificates_of_a_covariance_that_is_rounded():
    """The kernel is the positive semidefinite part of S; an S that is off by 5e-11 is allowed for in the bounds."""
    W = RNG.normal(size=(5, 2))
    values, vectors = np.linalg.eigh(W @ W.T)
    S = (vectors * np.where(values < 1e-8, -5e-11 * values.max(), values)) @ vectors.T
    projected = (vectors * np.where(values < 1e-8, 0.0, values)) @ vectors.T
    tasks = RNG.integers(0, 5, N)
    theta = ko.Theta(ks.Categorical(levels=range(5), covariance=S))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(tasks) - Y) + 1e-3 * ko.sum_squares(theta)))
    problem.solve()
    K = projected[np.ix_(tasks, tasks)]
    truth = 1e-3 * float(Y @ np.linalg.solve(K + 1e-3 * np.eye(N), Y))
    slack = 1e-12 * truth
    assert problem.certificate.lower - slack <= truth <= problem.certificate.upper + slack
    assert problem.certificate.relative_gap < 1e-5


def test_missing_values_in_a_problem():
    """A level of its own: each row has a one-hot label of four levels."""
    labels = [None if i % 5 == 0 else g for i, g in enumerate(COLUMNS["g"])]
    F = np.array([[g == level for level in ("x", "y", "z", None)] for g in labels], dtype=float)
    truth = F @ np.linalg.solve(F.T @ F + ALPHA * np.eye(4), F.T @ Y)
    theta = ko.Theta(ks.Categorical(missing="level").on("g"))
    f = theta(pd.DataFrame({"g": labels}))
    ko.Problem(cp.Minimize(cp.sum_squares(f - Y) + ALPHA * ko.sum_squares(theta))).solve(tol=1e-10)
    assert np.allclose(f.value, truth, atol=1e-7)
    assert np.allclose(theta.value(pd.DataFrame({"g": [np.nan, pd.NA, None]})), truth[0], atol=1e-7)


def test_predictors_of_points_with_gaps():
    X = np.where(RNG.random((N, 2)) < 0.2, np.nan, NUMBERS)
    theta, b = ko.Theta(ks.Gaussian(sigma=1.0).with_missing("level")), cp.Variable()
    f = theta(X) + b
    ko.Problem(cp.Minimize(cp.sum_squares(f - Y) + ALPHA * ko.sum_squares(theta))).solve()
    assert np.allclose(ko.Predictor(f, X)(X[:7]), f.value[:7])


def test_an_indefinite_kernel_matrix_is_clipped_when_asked():
    points = np.array([[0.0, 0.0], [0.0, 9.0], [0.0, np.nan]])
    theta = ko.Theta(ks.Gaussian(sigma=1.0).with_missing("ignore"))
    f = theta(points)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(f - [1.0, 2.0, 4.0]) + ko.sum_squares(theta)))
    problem.solve(indefinite="clip", tol=1e-10)
    values, vectors = np.linalg.eigh(theta.kernel(points))
    K = (vectors * np.maximum(values, 0)) @ vectors.T
    assert np.allclose(f.value, K @ np.linalg.solve(K + np.eye(3), [1.0, 2.0, 4.0]), atol=1e-7)


def test_cross_validation_and_intervals(frame):
    """Of the expressions of a frame, as of the kernel matrix."""
    X = frame(COLUMNS)
    theta, f, problem = fitted(X)
    H = GRAM @ np.linalg.inv(GRAM + ALPHA * np.eye(N))
    left_out = Y - (Y - FITTED) / (1 - np.diag(H))
    band = ko.jackknife(problem, f, Y, theta(shuffled(frame)[:3]), level=0.8)
    assert np.all(band.lower < band.upper) and band.lower.shape == (3,)
    found = ko.leave_one_out_predictions(problem, f, f)
    assert np.allclose(np.diag(found), left_out, atol=1e-6)
