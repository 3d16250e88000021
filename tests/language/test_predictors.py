"""Expressions of predictions at other points."""

import pickle

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(12, 2)), RNG.normal(size=(7, 2))
GAUSSIAN = ko.kernels.Gaussian(sigma=1.0)


def fitted(outputs=None, kernel=GAUSSIAN):
    """A θ and variables with values."""
    theta = ko.Theta(kernel, outputs)
    shape = (5,) if outputs is None else (5, outputs)
    theta.value = ko.Function(kernel, X[:5], RNG.normal(size=shape))
    return theta


def variable(*shape):
    v = cp.Variable(shape)
    v.value = RNG.normal(size=shape)
    return v


def of_first_column():
    theta = ko.Theta(GAUSSIAN)
    theta.value = ko.Function(GAUSSIAN, X[:5, :1], RNG.normal(size=5))
    return theta


THETA_1 = of_first_column()
THETA, OTHER, MATRIX = fitted(), fitted(kernel=ko.kernels.Linear()), fitted(3)
B, BETA, LEVELS = variable(), variable(2), variable(3)
SCALE = cp.Parameter(value=2.5)
M = RNG.normal(size=(3, 4))
EXPRESSIONS = {
    "predictions": lambda X: THETA(X),
    "intercept": lambda X: THETA(X) + B,
    "difference": lambda X: 3 - SCALE * (THETA(X) - B) / 2,
    "sum": lambda X: THETA(X) + OTHER(X) + B,
    "linear part": lambda X: THETA(X) + X @ BETA + B,
    "several outputs": lambda X: MATRIX(X) + LEVELS[None, :],
    "one output": lambda X: MATRIX(X)[:, 1] - B,
    "combinations": lambda X: (MATRIX @ M)(X),
    "combinations after": lambda X: (MATRIX(X) + LEVELS[None, :]) @ M,
    "scaled outputs": lambda X: cp.multiply(MATRIX(X), LEVELS.value[None, :]),
    "differences": lambda X: cp.diff(MATRIX(X), axis=1),
    "sum of outputs": lambda X: cp.sum(MATRIX(X), axis=1) + B,
    "largest": lambda X: cp.max(MATRIX(X), axis=1),
    "positive part": lambda X: cp.maximum(THETA(X) + B, 0),
    "of two": lambda X: cp.maximum(THETA(X), OTHER(X) + B),
    "rate": lambda X: cp.exp(THETA(X) + B),
    "some columns": lambda X: THETA_1(X[:, :1]) + X[:, 1:] @ BETA[:1],
    "columns in another order": lambda X: THETA(X[:, ::-1]),
    "beside fixed rows": lambda X: THETA(X) + cp.sum(THETA(Z)),
    "shifted": lambda X: THETA(X) - ko.Function(GAUSSIAN, Z, np.ones(7)).inner(THETA),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_it_is_the_expression_at_other_points(name):
    f = EXPRESSIONS[name]
    predictor = ko.Predictor(f(X), X)
    for points in (Z, X, Z[:1], RNG.normal(size=(30, 2))):
        expected = f(points).value
        assert predictor(points).shape == expected.shape
        assert np.abs(predictor(points) - expected).max() < 1e-13
    saved = pickle.dumps(predictor)
    assert b"kernelopt.language.expressions" not in saved and np.array_equal(pickle.loads(saved)(Z), predictor(Z))


def test_it_does_not_follow():
    theta, b = fitted(), variable()
    predictor = ko.Predictor(theta(X) + b, X)
    before, b.value = predictor(Z), 100.0
    theta.value = ko.Function(GAUSSIAN, X[:1], [1.0])
    assert np.array_equal(predictor(Z), before)


@pytest.mark.parametrize(
    ("expression", "error", "message"),
    [
        (lambda: THETA(X) + np.arange(12), ko.errors.DataError, "i-th row of X alone"),
        (lambda: cp.cumsum(THETA(X)), ko.errors.DataError, "i-th row of X alone"),
        (lambda: THETA(X) - cp.sum(THETA(X)), ko.errors.DataError, "i-th row of X alone"),
        (lambda: THETA(X)[::-1], ko.errors.DataError, "i-th row of X alone"),
        (lambda: THETA(X[::-1]), ko.errors.DataError, "found none"),
        (lambda: cp.sum(THETA(X)), ko.errors.DataError, "each of the 12 rows"),
        (lambda: THETA(Z), ko.errors.DataError, "each of the 12 rows"),
        (lambda: 3.0, ko.errors.DataError, "or a function of X that returns one; got float"),
        (lambda: lambda X: 3.0, ko.errors.DataError, "or a function of X that returns one; got float"),
        (lambda: lambda X: cp.cumsum(THETA(X)), ko.errors.DataError, "i-th row of X alone"),
        (lambda: ko.Theta(GAUSSIAN)(X), ko.errors.KernelOptError, "solve the problem first"),
    ],
)
def test_what_is_not_row_wise(expression, error, message):
    with pytest.raises(error, match=message):
        ko.Predictor(expression(), X)


def test_points_of_any_kind():
    words = ["ab", "ba", "aab"]
    theta = ko.Theta(ko.kernels.Spectrum(1))
    ko.Problem(cp.Minimize(cp.sum_squares(theta(words) - [1, 1, 2]) + ko.sum_squares(theta))).solve()
    assert np.array_equal(ko.Predictor(theta(words), words)(["aaa"]), theta.value(["aaa"]))


def test_arrays_beside_the_points():
    W, V = RNG.normal(size=(12, 3)), RNG.normal(size=(7, 3))
    gamma = variable(3)
    f = lambda X, W: THETA(X) + W @ gamma + B
    for predictor in (ko.Predictor(f(X, W), X, W), ko.Predictor(f, X, W)):
        assert np.allclose(predictor(Z, V), f(Z, V).value, rtol=1e-13)
        assert np.array_equal(pickle.loads(pickle.dumps(predictor))(Z, V), predictor(Z, V))
    with pytest.raises(ko.errors.DataError, match="Expected 2 arrays, those that the predictor was made with; got 1"):
        predictor(Z)
    with pytest.raises(ko.errors.DataError, match="Expected array 2 with a row for each of the 7 points"):
        predictor(Z, W)
    with pytest.raises(ko.errors.DataError, match="Expected array 2 with a row for each of the 12 points"):
        ko.Predictor(f, X, V)
    with pytest.raises(ko.errors.DataError, match="i-th row of X alone"):
        ko.Predictor(f(X, W), X)


def test_kernels_of_other_arrays():
    W, V = RNG.normal(size=(12, 2)), RNG.normal(size=(7, 2))
    f = lambda X, W: THETA(X) + OTHER(W)
    assert np.allclose(ko.Predictor(f(X, W), X, W)(Z, V), f(Z, V).value, rtol=1e-13)


def test_functions_of_computed_data_are_called(tmp_path):
    theta, b = fitted(), variable()
    f = lambda X: theta(X) + b * np.sin(X[:, 0]) + cp.square(theta(2 * X))
    predictor, expected = ko.Predictor(f, X), f(Z).value
    b.value, theta.value = 100.0, ko.Function(GAUSSIAN, X[:1], [1.0])
    assert np.allclose(predictor(Z), expected, rtol=1e-13)
    with pytest.raises(pickle.PicklingError, match="Give data that are computed from the points as another array"):
        pickle.dumps(predictor)
    with pytest.raises(ko.errors.DataError, match="Give data that are computed from the points as another array"):
        ko.save(tmp_path / "model.ko", f=predictor)


def test_two_equal_columns_are_not_told_apart():
    with pytest.raises(ko.errors.DataError, match="found none"):
        ko.Predictor(THETA(X), np.column_stack([X, X[:, 0]]))


def test_a_column_of_ones_beside_a_row_that_is_repeated():
    """cvxpy states b for all rows as ones (n, 1) times b, which are that column, too."""
    theta, b, flagged = fitted(2), variable(2), np.column_stack([X[:, 0], np.ones(12)])
    shifted = lambda P: theta(P) + b[None, :]
    of_column = lambda P: theta(P) + P[:, 1:] @ b[None, :]
    other = np.array([[0.5, 1.0], [0.5, 0.0]])
    for f in (shifted, of_column):
        np.testing.assert_allclose(ko.Predictor(f, flagged)(other), f(other).value, rtol=1e-12)
        with pytest.raises(ko.errors.DataError, match="Give a function of X"):
            ko.Predictor(f(flagged), flagged)
    assert pickle.loads(pickle.dumps(ko.Predictor(shifted, flagged)))(other).shape == (2, 2)
    np.testing.assert_allclose(ko.Predictor(shifted(X), X)(other), shifted(other).value, rtol=1e-12)


COINCIDENCES = {
    "clipped": lambda X, E: THETA_1(np.clip(X[:, :1], -9.0, 9.0)),
    "of one side": lambda X, E: THETA_1(X[:, :1]) + 5.0 * (X[:, 0] > 9),
    "exposure of 1": lambda X, E: THETA_1(X[:, :1]) + np.log(np.abs(E)),
    "rounded": lambda X, E: THETA_1(np.round(X[:, :1])),
    "a number of its own": lambda X, E: THETA_1(X[:, :1]) + 5.0 * (X[:, 0] == 6),
    "a number that none is near": lambda X, E: THETA_1(X[:, :1]) + 5.0 * (X[:, 0] == -99),
    "missing values": lambda X, E: THETA_1(np.nan_to_num(X[:, :1])) + 5.0 * np.isnan(X[:, 0]),
    "a number of no list": lambda X, E: THETA_1(X[:, :1]) + np.exp(X[:, 0] == -30),
    "another array": lambda X, E: THETA_1(X[:, :1]) + cp.multiply(E, THETA_1(X[:, :1])),
}


@pytest.mark.parametrize("name", COINCIDENCES)
def test_computed_data_that_are_equal_to_the_points_or_each_other(name):
    """At the rows of X alone: elsewhere the function is called."""
    f, points = COINCIDENCES[name], np.arange(6.0)[:, None] - 2
    predictor = ko.Predictor(f, points, np.ones(6))
    other, factors = np.array([[20.0], [-30.0], [0.4], [-99.0]]), np.array([3.0, 1.0, 7.0, 2.0])
    if name == "missing values":
        other[0] = np.nan
    np.testing.assert_allclose(predictor(other, factors), f(other, factors).value, rtol=1e-10)


def of_histograms():
    theta = ko.Theta(ko.kernels.Intersection())
    theta.value = ko.Function(ko.kernels.Intersection(), np.abs(X[:5]), [1.0, -2.0, 0.5, 1.5, -1.0])
    return theta


HISTOGRAMS = of_histograms()


def strict(X):
    assert np.asarray(X).max() <= 1, "within [0, 1] alone"
    return HISTOGRAMS(X)


@pytest.mark.parametrize("f", [lambda X: HISTOGRAMS(X) + 1, strict])
def test_functions_that_take_some_points_alone_are_pickled(f):
    """Far points are none of the kernel's, or of the function's: those between rows tell what it is."""
    points = np.abs(X) / np.abs(X).max()
    predictor = ko.Predictor(f, points)
    assert np.array_equal(pickle.loads(pickle.dumps(predictor))(points[:4]), predictor(points[:4]))


def test_arrays_that_are_not_told_apart():
    with pytest.raises(ko.errors.DataError, match="arrays 1 and 2 have the same"):
        ko.Predictor(THETA(X) + X @ variable(2), X, X.copy())
    with pytest.raises(ko.errors.DataError, match="differ from array 2; it has equal rows"):
        ko.Predictor(THETA(X) + np.ones(12), X, np.ones(12))


@pytest.mark.parametrize("seed", range(4))
def test_one_row_alone_has_its_value(seed):
    f = THETA(np.random.default_rng(seed).normal(size=(9, 2)))
    with pytest.raises(ko.errors.DataError, match="depends on the i-th row"):
        ko.Predictor(cp.minimum(f, 0.9 * cp.max(f)), f.data.A.X)


def test_predictors_of_parts_are_saved(tmp_path):
    W, V = RNG.normal(size=(12, 3)), RNG.normal(size=(7, 3))
    predictor = ko.Predictor(THETA_1(X[:, :1]) + W @ variable(3), X, W)
    ko.save(tmp_path / "model.ko", f=predictor)
    assert np.array_equal(ko.load(tmp_path / "model.ko")["f"](Z, V), predictor(Z, V))
