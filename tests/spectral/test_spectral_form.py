"""The spectral form is found in any words, its numbers are exact, and near misses say what they lack."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import kernelopt as ko
from kernelopt.compiler import canonical_form, rules
from kernelopt.errors import DCPError
from kernelopt.spectral import spectral_form
from kernelopt.spectral.spectral_form import SpectralForm

N = 5
RNG = np.random.default_rng(0)
X, C, U = RNG.normal(size=(N, 2)), RNG.normal(size=(3, N)), RNG.normal(size=(2, N))
KERNEL = ko.kernels.Gaussian(sigma=1.0)
MEAN = np.eye(N) - 1 / N


def found(objective, constraints=()):
    inspection = rules.inspect(objective, tuple(constraints))
    return spectral_form.find(canonical_form.cut(objective, tuple(constraints), inspection))


def dense(matrix):
    return matrix.toarray() if sp.issparse(matrix) else matrix


# name: (objective of predictions u, M, φ)
WORDS = {
    "norm": (lambda u: cp.Maximize(cp.norm(u)), np.eye(N), lambda s: s),
    "squared norm": (lambda u: cp.Maximize(cp.norm(u) ** 2), np.eye(N), lambda s: s**2),
    "sum of squares": (lambda u: cp.Maximize(cp.sum_squares(u)), np.eye(N), lambda s: s**2),
    "sum of powers": (lambda u: cp.Maximize(cp.sum(cp.square(u))), np.eye(N), lambda s: s**2),
    "over a constant": (lambda u: cp.Maximize(cp.quad_over_lin(u, 4.0)), np.eye(N), lambda s: s**2 / 4),
    "weights": (lambda u: cp.Maximize(cp.norm(cp.multiply(C[0], u))), np.diag(C[0]), lambda s: s),
    "matrix": (lambda u: cp.Maximize(cp.sum_squares(C @ u)), C, lambda s: s**2),
    "centered": (lambda u: cp.Maximize(cp.norm(u - cp.mean(u))), MEAN, lambda s: s),
    "variance": (lambda u: cp.Maximize(cp.var(u)), MEAN, lambda s: s**2 / N),
    "standard deviation": (lambda u: cp.Maximize(cp.std(u)), MEAN, lambda s: s / np.sqrt(N)),
    "mean square": (lambda u: cp.Maximize(3 + cp.sum_squares(u) / N), np.eye(N), lambda s: 3 + s**2 / N),
    "minimized": (lambda u: cp.Minimize(1 - 2 * cp.sum_squares(u)), np.eye(N), lambda s: 1 - 2 * s**2),
    "exponential": (lambda u: cp.Maximize(cp.exp(cp.norm(u))), np.eye(N), np.exp),
    "one prediction": (lambda u: cp.Maximize(cp.abs(u[2])), np.eye(N)[2:3], lambda s: s),
    "one, squared": (lambda u: cp.Maximize(cp.square(u[2])), np.eye(N)[2:3], lambda s: s**2),
    "table": (lambda u: cp.Maximize(cp.norm(cp.vstack([u, u]), "fro")), np.vstack([np.eye(N)] * 2), lambda s: s),
}  # fmt: skip


@pytest.mark.parametrize("name", WORDS)
def test_words(name):
    objective, M, of_length = WORDS[name]
    theta = ko.Theta(KERNEL)
    result = found(objective(theta(X)), [ko.norm(theta) <= 2])
    assert isinstance(result, SpectralForm), result
    numbers = result.numbers()
    got = dense(numbers.M)
    assert np.allclose(got.T @ got, M.T @ M, atol=1e-14)
    assert [result.objective_at(s) for s in (0.0, 1.5)] == pytest.approx([of_length(0.0), of_length(1.5)], rel=1e-14)


# name: (constraints on θ, R)
RADII = {
    "norm": (lambda t: [ko.norm(t) <= 2], 2.0),
    "turned around": (lambda t: [ko.norm(t) <= 3], 3.0),
    "scaled": (lambda t: [2 * ko.norm(t) - 1 <= 4], 2.5),
    "square": (lambda t: [ko.sum_squares(t) <= 9], 3.0),
    "both": (lambda t: [ko.sum_squares(t) / 2 + 3 * ko.norm(t) <= 8], 2.0),
    "two": (lambda t: [ko.norm(t) <= 2, ko.sum_squares(t) <= 1], 1.0),
    "many": (lambda t: [ko.norm(t) * np.array([1.0, 4.0]) <= 2], 0.5),
    "tiny": (lambda t: [ko.sum_squares(t) <= 1e-32], 1e-16),
    "huge": (lambda t: [1e-20 * ko.sum_squares(t) <= 1e12], 1e16),
    "zero": (lambda t: [ko.norm(t) <= 0], 0.0),
    "zero, squared": (lambda t: [ko.sum_squares(t) <= 0], 0.0),
    "negative": (lambda t: [ko.norm(t) <= -1], -1.0),
    "negative, squared": (lambda t: [ko.sum_squares(t) <= -1], -1.0),
    "no bound": (lambda t: [], np.inf),
    "zero times": (lambda t: [0 * ko.norm(t) <= 1], np.inf),
}  # fmt: skip


@pytest.mark.parametrize("name", RADII)
def test_radius(name):
    constraints, radius = RADII[name]
    theta = ko.Theta(KERNEL)
    result = found(cp.Maximize(cp.norm(theta(X))), constraints(theta))
    assert isinstance(result, SpectralForm), result
    assert result.numbers().radius == pytest.approx(radius, rel=1e-14)


def test_equalities_and_repeated_rows():
    """Columns of rows that repeat are added up."""
    theta, rows = ko.Theta(KERNEL), np.array([0, 1, 1, 2, 0])
    u = theta(X[rows])
    result = found(cp.Maximize(cp.norm(C @ u)), [U @ u == 0, u[0] == 3 * u[1], cp.sum(u) == 0])
    assert isinstance(result, SpectralForm), result
    spread = np.eye(3)[rows]
    numbers = result.numbers()
    G = np.vstack([U, [1, -3, 0, 0, 0], np.ones(N)])
    assert np.allclose(dense(numbers.M), C @ spread)
    assert np.allclose(dense(numbers.G), (G @ spread).T)


def test_parameters():
    theta, R, w = ko.Theta(KERNEL), cp.Parameter(nonneg=True), cp.Parameter(N)
    u = theta(X)
    result = found(cp.Maximize(cp.norm(cp.multiply(w, u))), [ko.norm(theta) <= R, w @ u == 0])
    assert isinstance(result, SpectralForm), result
    for R.value, w.value in ((1.0, C[0]), (2.0, C[1])):
        numbers = result.numbers()
        assert numbers.radius == R.value
        assert np.allclose(dense(numbers.M), np.diag(w.value))
        assert np.allclose(dense(numbers.G)[:, 0], w.value)


def test_a_parameter_that_adds_a_constant():
    theta, shift = ko.Theta(KERNEL), cp.Parameter()
    result = found(cp.Maximize(cp.norm(theta(X))), [ko.norm(theta) <= 1, cp.sum(theta(X)) == shift])
    assert isinstance(result, SpectralForm), result
    shift.value = 0.0
    assert result.numbers().G.shape == (N, 1)
    shift.value = 0.5
    with pytest.raises(DCPError, match="Here -0.5 is added to predictions by a parameter"):
        result.numbers()


def test_what_stands_on_variables_does_not_matter():
    theta = ko.Theta(KERNEL)
    result = found(cp.Maximize(cp.norm(theta(X))), [ko.norm(theta) <= 1, cp.sum(theta(X)) == 0])
    assert isinstance(result, SpectralForm), result
    before = result.numbers()
    result.link.u.value = C[0]
    result.form.norms[0].t.value = 7.0
    after = result.numbers()
    assert before.radius == after.radius == 1.0
    assert (before.M != after.M).sum() == 0 and (before.G != after.G).sum() == 0


f0 = ko.Function(KERNEL, X[:2], [1.0, 2.0])
NEAR_MISSES = {
    "linear term": (lambda t: (cp.sum_squares(t(X)) + cp.sum(t(X)), []), "one Euclidean norm"),
    "two norms": (lambda t: (cp.norm(t(X)) + cp.norm(t(X[:2])), []), "one Euclidean norm"),
    "another norm": (lambda t: (cp.norm(t(X), 1), []), "one Euclidean norm"),
    "largest entry": (lambda t: (cp.max(t(X)), []), "one Euclidean norm"),
    "norms of rows": (lambda t: (cp.sum(cp.norm(cp.reshape(t(X[:4]), (2, 2), order="F"), axis=1)), []), "one Euclid"),
    "inequality": (lambda t: (cp.norm(t(X)), [t(X) >= 0]), "constraint 2 is neither a bound on ‖θ‖ nor an equality"),
    "convex constraint": (lambda t: (cp.norm(t(X)), [cp.norm1(t(X)) <= 1]), "constraint 2 is neither"),
    "norm and prediction": (lambda t: (cp.norm(t(X)), [ko.norm(t) <= t(X)[0]]), "constraint 2 is neither"),
    "constant constraint": (lambda t: (cp.norm(t(X)), [cp.Constant(0) <= 1]), "constraint 2 is neither"),
    "roundabout": (lambda t: (cp.norm(t(X)), [cp.maximum(ko.norm(t), 1) <= 2]), "constraint 2 bounds ‖θ‖ in a round"),
    "constant": (lambda t: (cp.norm(t(X) - 1), []), "-1 is added"),
    "right side": (lambda t: (cp.norm(t(X)), [cp.sum(t(X)) == 2]), "-2 is added"),
    "intercept": (lambda t: (cp.norm(t(X) + cp.Variable(name="b")), []), "a variable besides θ, b"),
    "variable": (lambda t: (cp.norm(t(X)), [cp.Variable(name="b") >= 0]), "a variable besides θ, b"),
    "another θ": (lambda t: (cp.norm(t(X) + ko.Theta(KERNEL)(X)), []), "several θ"),
    "shifted norm": (lambda t: (cp.norm(t(X)), [ko.norm(t - f0) <= 1]), "not that of θ itself"),
    "shifted predictions": (lambda t: (cp.norm((t - f0)(X)), []), "is added"),
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses(name):
    statement, lack = NEAR_MISSES[name]
    theta = ko.Theta(KERNEL)
    objective, constraints = statement(theta)
    problem = ko.Problem(cp.Maximize(objective), [ko.norm(theta) <= 1, *constraints])
    with pytest.raises(DCPError, match="(?s)does not follow the DCP rules.*spectral form") as caught:
        problem.solve()
    assert lack in str(caught.value).splitlines()[-1]
    assert "stopped" in str(problem.explain())


def test_near_misses_with_a_matrix():
    theta = ko.Theta(KERNEL, outputs=2)
    for norm in (ko.norm(theta, "fro"), ko.norm(theta, "nuc")):
        with pytest.raises(DCPError, match="Here θ is a matrix"):
            ko.Problem(cp.Maximize(cp.sum_squares(theta(X))), [norm <= 1]).solve()
    with pytest.raises(DCPError, match="Here θ is a matrix"):
        ko.Problem(cp.Maximize(cp.norm(theta[:, 0](X))), [ko.norm(theta[:, 0]) <= 1]).solve()


def test_other_problems_have_no_hint():
    theta = ko.Theta(KERNEL)
    for objective in (cp.Minimize(cp.sqrt(cp.norm(theta(X)))), cp.Maximize(cp.log(cp.norm(theta(X))))):
        with pytest.raises(DCPError) as caught:
            ko.Problem(objective, [ko.norm(theta) <= 1]).solve()
        assert "spectral" not in str(caught.value)
    with pytest.raises(DCPError) as caught:
        ko.Problem(cp.Maximize(cp.sum(theta(X))), [ko.norm(theta) <= 1, cp.norm(theta(X)) >= 1]).solve()
    assert "spectral" not in str(caught.value)
