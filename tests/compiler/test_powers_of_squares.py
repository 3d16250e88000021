"""Powers, roots, inverses and logarithms of ‖θ‖² and of sums of squares, beside the same problem in cvxpy by hand.

cvxpy makes a column of one entry of a sum of squares, which its own exact power cones and logarithms refuse.
"""

import warnings

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko


def data(N=8, size=1.0):
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (N, 1))
    return X, size * (np.sin(3 * X[:, 0]) + 0.3 * rng.normal(size=N)), ko.kernels.Gaussian(sigma=0.5)


OF_NORMS = {
    "power 3/2": lambda s, n: cp.power(s, 1.5),
    "power 5/2 of the norm": lambda s, n: cp.power(n, 2.5),
    "root": lambda s, n: -cp.sqrt(9 - s),
    "inverse": lambda s, n: cp.inv_pos(9 - s),
    "quadratic over linear": lambda s, n: cp.quad_over_lin(n, 9 - s),
    "logarithm": lambda s, n: -cp.log(9 - s),
    "entropy of a room": lambda s, n: -cp.sqrt(1 - cp.power(s, 1.2) / 9),
}


def by_hand(X, kernel, make, constraints=lambda s, u: []):
    """min of make(‖w‖², ‖w‖, Lw), with ‖w‖² as a number of its own: s ≥ ‖w‖²."""
    w, s = cp.Variable(len(X)), cp.Variable()

    L = np.linalg.cholesky(kernel(X))
    plain = cp.Problem(cp.Minimize(make(s, cp.norm(w), L @ w)), [cp.sum_squares(w) <= s, *constraints(s, L @ w)])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Power atom")  # cvxpy solves it with second-order cones, and says so
        return plain.solve(solver="CLARABEL")


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_NORMS)
def test_functions_of_the_squared_norm(name):
    X, y, kernel = data()
    of = OF_NORMS[name]
    theta = ko.Theta(kernel)
    problem = ko.Problem(cp.Minimize(cp.norm1(y - theta(X)) + of(ko.sum_squares(theta), ko.norm(theta))))
    problem.solve()
    assert problem.status == "optimal"
    truth = by_hand(X, kernel, lambda s, n, u: cp.norm1(y - u) + of(s, n))
    assert problem.value == pytest.approx(truth, abs=1e-6)
    assert problem.certificate.lower - 1e-6 <= truth <= problem.certificate.upper + 1e-6


OF_PREDICTIONS = {
    "power": lambda q: cp.power(q, 1.3),
    "root": lambda q: -cp.sqrt(90 - q),
    "inverse": lambda q: cp.inv_pos(90 - q),
    "logarithm": lambda q: -cp.log(90 - q),
}


@pytest.mark.later
@pytest.mark.one_row
@pytest.mark.parametrize("form", ["squares", "quad_form", "variance"])
@pytest.mark.parametrize("name", OF_PREDICTIONS)
def test_functions_of_a_sum_of_squares_of_predictions(name, form):
    X, y, kernel = data()
    of, theta = OF_PREDICTIONS[name], ko.Theta(kernel)
    weights = np.diag(np.arange(1.0, len(X) + 1))
    square = {
        "squares": cp.sum_squares, "quad_form": lambda u: cp.quad_form(u, weights), "variance": lambda u: cp.var(u)
    }[form]  # fmt: skip
    problem = ko.Problem(
        cp.Maximize(-cp.sum_squares(y - theta(X)) - 0.1 * ko.sum_squares(theta) - of(square(theta(X))))
    )
    problem.solve()
    assert problem.status == "optimal"
    q = cp.Variable()

    def plain(u):
        deviations = u - cp.sum(u) / len(X)
        return {
            "squares": cp.sum_squares(u), "quad_form": cp.sum_squares(np.sqrt(weights) @ u),
            "variance": cp.sum_squares(deviations) / len(X),
        }[form]  # fmt: skip

    truth = -by_hand(X, kernel, lambda s, n, u: cp.sum_squares(y - u) + 0.1 * s + of(q), lambda s, u: [plain(u) <= q])
    assert problem.value == pytest.approx(truth, abs=1e-6)


@pytest.mark.slow
def test_functions_of_squares_in_constraints():
    X, y, kernel = data()
    theta, c = ko.Theta(kernel), cp.Variable(2)
    constraints = [
        cp.power(ko.sum_squares(theta), 1.5) <= 0.5, cp.log(9 - cp.sum_squares(c)) >= 2.1,
        cp.power(cp.sum_squares(theta(X)), 1.3) <= 0.8,
    ]  # fmt: skip
    problem = ko.Problem(cp.Minimize(cp.norm1(y - theta(X) - c[0]) + cp.power(cp.sum_squares(c - 1), 1.3)), constraints)
    problem.solve()
    assert problem.status == "optimal"
    free, q = cp.Variable(2), cp.Variable()
    truth = by_hand(
        X, kernel, lambda s, n, u: cp.norm1(y - u - free[0]) + cp.power(q, 1.3),
        lambda s, u: [
            s <= 0.5 ** (2 / 3), cp.sum_squares(free) <= 9 - np.exp(2.1), cp.sum_squares(u) <= 0.8 ** (1 / 1.3),
            cp.sum_squares(free - 1) <= q,
        ],
    )  # fmt: skip
    assert problem.value == pytest.approx(truth, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1.0, 1e-4])
def test_one_row_and_a_repeated_row(size):
    for X in ([[0.3]], [[0.3], [0.3]]):
        theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
        f = theta(X)
        problem = ko.Problem(cp.Minimize(cp.norm1(size - f) + cp.power(cp.sum_squares(f / size), 1.5) * size))
        problem.solve()
        assert problem.status == "optimal"
        # For one number g = f/size: n(1 − g) + (n g²)^1.5, whose slope −n + 3n^1.5 g² is 0 at g² = 1/(3√n).
        n = len(X)
        g = np.sqrt(1 / (3 * np.sqrt(n)))
        assert problem.value == pytest.approx(size * (n * (1 - g) + n**1.5 * g**3), rel=1e-5)


@pytest.mark.later
@pytest.mark.filterwarnings("ignore:pnorm with p:UserWarning")
@pytest.mark.parametrize("p", [1.7, 2.3])
def test_other_norms_are_a_power_cone_per_number(p):
    """As second-order cones, p = 1.7 takes 14 of them per number, and the proof ten times as long."""
    X = np.linspace(-2, 2, 12)[:, None]
    y, kernel = np.sin(2 * X[:, 0]), ko.kernels.Gaussian(sigma=1.0)
    theta, v = ko.Theta(kernel), cp.Variable(12)
    problem = ko.Problem(cp.Minimize(cp.norm(y - theta(X), p) + 0.1 * ko.sum_squares(theta)))
    problem.solve()
    B = np.linalg.cholesky(kernel(X) + 1e-12 * np.eye(12))
    plain = cp.Problem(cp.Minimize(cp.norm(y - B @ v, p) + 0.1 * cp.sum_squares(v)))
    plain.solve(solver="CLARABEL")
    assert (problem.status, problem.value) == ("optimal", pytest.approx(plain.value, rel=1e-6))
    assert {atom.__name__ for atom in problem.canonical_form().outer.atoms()} >= {"Pnorm"}
