"""Bounds of powers of norms at any size, and bounds of 0, which are equations."""

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import brentq

import kernelopt as ko
from kernelopt.compiler import restated

KERNEL = ko.kernels.Gaussian(sigma=1.0)


def data(N=10, size=1.0):
    rng = np.random.default_rng(3)
    return rng.normal(size=(N, 1)), size * rng.normal(size=N)


def shortest(X, y, R):
    """min ‖y − Aθ‖² over ‖θ‖² ≤ R, and its multiplier m: with Q = UΛUᵀ and c = Uᵀy it is Σ (mcᵢ/(λᵢ + m))² for the m
    with Σ λᵢcᵢ²/(λᵢ + m)² = R."""
    values, U = np.linalg.eigh(KERNEL(X))
    values, c = np.clip(values, 0.0, None), U.T @ y
    m = np.exp(brentq(lambda z: np.log(np.sum(values * c**2 / (values + np.exp(z)) ** 2) / R), -40, 80, xtol=1e-14))
    return float(np.sum((m * c / (values + m)) ** 2)), float(m)


FORMS = {
    "square": (lambda theta, R: ko.sum_squares(theta) <= R, lambda m, R: m),
    "square of the norm": (lambda theta, R: cp.square(ko.norm(theta)) <= R, lambda m, R: m),
    "fourth power": (lambda theta, R: cp.power(ko.norm(theta), 4) <= R**2, lambda m, R: m / (2 * R)),
    "power 3/2": (lambda theta, R: cp.power(ko.sum_squares(theta), 1.5) <= R**1.5, lambda m, R: m / 1.5 / R**0.5),
    "multiple": (lambda theta, R: 7e-3 * ko.sum_squares(theta) <= R * 7e-3, lambda m, R: m / 7e-3),
    "quotient": (lambda theta, R: ko.sum_squares(theta) / R <= 1, lambda m, R: m * R),
    "difference": (lambda theta, R: ko.sum_squares(theta) - R <= 0, lambda m, R: m),
    "negated": (lambda theta, R: -ko.sum_squares(theta) >= -R, lambda m, R: m),
    "over a number": (lambda theta, R: cp.quad_over_lin(ko.norm(theta), 3.0) <= R / 3, lambda m, R: 3 * m),
}


@pytest.mark.one_row
@pytest.mark.parametrize("R", [1e-20, 1e-12, 1e-4])
@pytest.mark.parametrize("name", FORMS)
def test_bounds_of_powers_of_the_norm(name, R):
    X, y = data()
    theta, (bounded, multiplier) = ko.Theta(KERNEL), FORMS[name]
    constraint = bounded(theta, R)
    problem = ko.Problem(cp.Maximize(-cp.sum_squares(y - theta(X))), [constraint])
    problem.solve()
    truth, m = shortest(X, y, R)
    assert problem.status == "optimal"
    assert -problem.certificate.upper <= truth * (1 + 1e-13)
    assert truth * (1 - 1e-13) <= -problem.certificate.lower
    assert theta.value.norm**2 <= R * (1 + 1e-12)
    assert constraint.dual_value == pytest.approx(multiplier(m, R), rel=1e-4)


@pytest.mark.parametrize("R", [1e12, 1e20])
def test_large_bounds(R):
    """Data of size √R: the problem of size 1 in other units."""
    X, y = data(size=np.sqrt(R))
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X))), [ko.sum_squares(theta) <= 0.1 * R])
    problem.solve()
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(shortest(X, y, 0.1 * R)[0], rel=1e-8)


@pytest.mark.later
def test_bounds_of_squares_of_predictions_and_variables():
    """|f| ≤ √R and |b| ≤ √R: Σ|yᵢ − fᵢ| − b is least at the bounds, which are small beside y."""
    (X, y), R, lam = data(4), 1e-3, 1e-3
    theta, b = ko.Theta(KERNEL), cp.Variable()
    constraints = [cp.square(theta(X)) <= R, 3 * cp.square(b) <= 3 * R]
    problem = ko.Problem(cp.Minimize(cp.norm1(y - theta(X)) - b + lam * ko.sum_squares(theta)), constraints)
    problem.solve()
    f = np.sign(y) * np.sqrt(R)
    truth = float(np.abs(y - f).sum() - np.sqrt(R) + lam * f @ np.linalg.solve(KERNEL(X), f))
    assert problem.status == "optimal"
    assert problem.certificate.lower <= truth + 1e-12
    assert truth - 1e-12 <= problem.certificate.upper
    assert constraints[1].dual_value == pytest.approx(1 / (6 * np.sqrt(R)), rel=1e-4)


@pytest.mark.later
def test_a_variable_that_is_0():
    """The rest of a solver, 1e-12, violates b = 0 by all of b."""
    for bounded in (lambda b: b == 0, lambda b: cp.abs(b) <= 0, lambda b: 2 * cp.square(b) <= 0):
        X, y = data(3)
        theta, b = ko.Theta(KERNEL), cp.Variable()
        loss = cp.sum_squares(y - theta(X) - b)
        problem = ko.Problem(cp.Minimize(loss + 0.5 * ko.sum_squares(theta)), [bounded(b)])
        problem.solve()
        assert problem.status == "optimal"
        assert problem.value == pytest.approx(0.5 * y @ np.linalg.solve(KERNEL(X) + 0.5 * np.eye(3), y))
        assert b.value == 0


@pytest.mark.slow
def test_a_parameter_that_is_0_and_then_is_not():
    X, y = data()
    R = cp.Parameter(nonneg=True, value=0.0)
    for bounded in (lambda theta: ko.sum_squares(theta) <= R, lambda theta: ko.norm(theta) <= R):
        theta = ko.Theta(KERNEL)
        problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X))), [bounded(theta)])
        plain = isinstance(problem.constraints[0].args[0], type(ko.norm(theta)))
        for value in (0.0, 0.5, 1e-10, 0.0, 0.7):
            R.value = value
            problem.solve()
            bound = value**2 if plain else value
            truth = shortest(X, y, bound)[0] if value else float(y @ y)
            assert problem.status == "optimal"
            assert problem.value == pytest.approx(truth, rel=1e-7)
            assert value == 0 or problem.constraints[0].dual_value is not None
            assert problem.verify().passed


@pytest.mark.slow
@pytest.mark.parametrize("bounded", [
    lambda theta, R: ko.sum_squares(theta) <= R, lambda theta, R: R * ko.sum_squares(theta) <= 1,
    lambda theta, R: cp.power(ko.norm(theta), 4) <= R, lambda theta, R: 2 * ko.sum_squares(theta) + 1 <= R + 1,
])  # fmt: skip
def test_derivatives_and_bounds_elsewhere_by_a_bound(bounded):
    X, y = data()
    R, theta = cp.Parameter(pos=True, value=0.7), ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X))), [bounded(theta, R)])

    def at(value):
        R.value = value
        problem.solve(tol=1e-10)
        return float(np.sum(theta(X).value[:3]))

    h = 1e-4
    slope = (at(0.7 + h) - at(0.7 - h)) / (2 * h)
    at(0.7)
    found = ko.gradient(problem, cp.sum(theta(X)[:3]), [R])
    assert float(found[R]) == pytest.approx(slope, rel=1e-5)
    elsewhere = problem.certificate_at({R: 0.75})
    at(0.75)
    assert elsewhere.lower <= problem.value <= elsewhere.upper
    assert problem.value - elsewhere.lower <= 0.05


ONES = np.ones((2, 1))
OF_OUTPUTS = {
    "fro": lambda theta, X: ko.norm(theta @ ONES, "fro") <= 0,
    "square": lambda theta, X: ko.sum_squares(theta @ ONES) <= 0,
    "nuc": lambda theta, X: ko.norm(theta @ ONES, "nuc") <= 0,
    "spectral": lambda theta, X: ko.norm(theta @ ONES, 2) <= 0,
    "vector": lambda theta, X: 2 * cp.power(ko.norm(theta @ np.ones(2)), 3) <= 0,
    "maximum": lambda theta, X: cp.maximum(ko.norm(theta @ ONES, "fro"), 0) <= 0,
    "predictions": lambda theta, X: cp.norm(theta(X) @ np.ones(2)) <= 0,
    "modulus": lambda theta, X: cp.abs(theta(X) @ np.ones(2)) <= 0,
    "largest modulus": lambda theta, X: cp.max(cp.abs(theta(X) @ np.ones(2))) <= 0,
    "squares": lambda theta, X: cp.sum_squares(theta(X) @ np.ones(2)) <= 0,
    "nuclear norm of predictions": lambda theta, X: cp.normNuc(theta(X) @ ONES) <= 0,
    "spectral norm of predictions": lambda theta, X: cp.sigma_max(theta(X) @ ONES) <= 0,
    "sum": lambda theta, X: cp.norm1(theta(X) @ np.ones(2)) + cp.sum(cp.huber(theta(X) @ np.ones(2))) <= 0,
}


@pytest.mark.later
@pytest.mark.one_row
@pytest.mark.parametrize("name", OF_OUTPUTS)
def test_a_combination_of_outputs_that_is_0(name):
    """With θ₁ = −θ₂ = φ it is ‖(y₁ + y₂)‖²/2 + 2 min ‖z − Aφ‖² + λ‖φ‖², z = (y₁ − y₂)/2."""
    X = np.linspace(0, 3, 20)[:, None]
    Y, lam = np.c_[np.sin(X), np.cos(X)], 0.1
    z = (Y[:, 0] - Y[:, 1]) / 2
    truth = (
        2 * lam * float(z @ np.linalg.solve(KERNEL(X) + lam * np.eye(20), z)) + float(np.sum(Y.sum(axis=1) ** 2)) / 2
    )
    theta = ko.Theta(KERNEL, outputs=2)
    constraint = OF_OUTPUTS[name](theta, X)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(Y - theta(X)) + lam * ko.sum_squares(theta)), [constraint])
    problem.solve()
    assert problem.status == "optimal"
    assert problem.certificate.lower - 1e-12 <= truth <= problem.certificate.upper + 1e-12
    new = theta([[0.5], [7.0]]).value.sum(axis=1)
    assert np.abs(new).max() <= 1e-12
    assert constraint.dual_value is None
    assert problem.verify().passed


@pytest.mark.later
@pytest.mark.parametrize("X", [[[0.2]], [[0.2], [0.2], [1.0]]])
@pytest.mark.parametrize("size", [1.0, 1e-8])
def test_one_of_two_functions_is_0(X, size):
    """With ‖θ₁‖ ≤ 0 and |b| ≤ 0 only θ₂ remains: ridge regression."""
    X, lam = np.array(X), 0.5
    y = size * np.arange(1.0, len(X) + 1)
    first, second, b = ko.Theta(KERNEL), ko.Theta(KERNEL), cp.Variable()
    loss = cp.sum_squares(y - first(X) - second(X) - b)
    constraints = [ko.sum_squares(first) <= 0, cp.abs(b) <= 0]
    problem = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(second)), constraints)
    problem.solve()
    truth = lam * float(y @ np.linalg.solve(KERNEL(X) + lam * np.eye(len(X)), y))
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(truth, rel=1e-6)
    assert first.value.norm <= 1e-12 * size
    assert abs(b.value) <= 1e-12 * size


def test_a_function_that_is_not_0_is_no_answer():
    """An audit reads the constraint as it is stated: a θ that vanishes at the rows alone violates it."""
    theta, X = ko.Theta(ko.kernels.Linear()), np.array([[1.0, 0.0]])
    problem = ko.Problem(cp.Minimize(cp.sum_squares(1 - theta(X))), [ko.norm(theta) <= 0])
    theta.value = ko.Function(theta.kernel, np.array([[0.0, 1.0]]), np.array([3.0]))
    assert not problem.verify().passed
    problem.solve()
    assert problem.value == pytest.approx(1.0)
    assert problem.verify().passed


@pytest.mark.parametrize("bound", [ko.norm, ko.sum_squares])
@pytest.mark.parametrize("power", [1, 2])
def test_the_distance_of_a_function_that_is_0(bound, power):
    """‖θ − f₀‖ is ‖f₀‖ then."""
    X, y = data()
    f0, theta = ko.Function(KERNEL, X[:3], np.ones(3)), ko.Theta(KERNEL)
    objective = cp.power(ko.norm(theta - f0), power) + cp.sum_squares(theta(X) - y)
    problem = ko.Problem(cp.Minimize(objective), [bound(theta) <= 0])
    assert problem.solve() == pytest.approx(f0.norm**power + y @ y, rel=1e-9)
    assert problem.status == "optimal" and theta.value.norm == 0


@pytest.mark.slow
def test_a_function_at_a_distance_of_0():
    X, y = data()
    f0, theta = ko.Function(KERNEL, X[:3], np.ones(3)), ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - y)), [ko.norm(theta - f0) <= 0])
    assert problem.solve() == pytest.approx(np.sum((f0(X) - y) ** 2), rel=1e-6)
    assert problem.status == "optimal"


@pytest.mark.parametrize(("constants", "bound"), [((1e308, 1e308), 1e308), ((np.inf, 1.0), np.inf)])
def test_constants_whose_sum_overflows_stay_as_they_are(constants, bound):
    x = cp.square(cp.Variable())
    for constant in constants:
        x = x + constant
    chain = restated._chain_of(x <= bound)
    assert chain is None or chain.x is x


def test_no_rows_at_all():
    chain = restated._chain_of(cp.square(cp.Variable(0)) + np.zeros(0) <= np.ones(0))
    assert chain is None or chain.r.size == 0


OF_ZEROS = {
    "square and predictions": lambda n, f, b: cp.square(n) + cp.sum_squares(f) <= 0,
    "largest": lambda n, f, b: cp.maximum(cp.square(n), cp.abs(b)) <= 0,
    "cube and a square": lambda n, f, b: cp.power(n, 3) + cp.square(b) <= 0,
    "modulus": lambda n, f, b: cp.abs(n) + cp.abs(b) <= 0,
    "Huber": lambda n, f, b: cp.huber(2 * n) <= 0,
    "twice": lambda n, f, b: cp.square(n) + cp.square(n) + cp.square(b) <= 0,
}
OF_BOTH = ("largest", "cube and a square", "modulus", "twice")  # b is 0, too


@pytest.mark.parametrize("name", OF_ZEROS)
def test_functions_of_the_norm_within_a_bound_of_0(name):
    X, y = data()
    theta, b = ko.Theta(KERNEL), cp.Variable()
    f = theta(X)
    losses = cp.norm1(y - f - b) + cp.square(b) + ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(losses), [OF_ZEROS[name](ko.norm(theta), f, b)])
    problem.solve()
    alone = cp.Problem(cp.Minimize(cp.norm1(y - b) + cp.square(b)), [b == 0] if name in OF_BOTH else [])
    assert problem.status == "optimal" and problem.value == pytest.approx(alone.solve(solver="CLARABEL"), rel=1e-6)
    assert not np.any(f.value)


@pytest.mark.parametrize("M", [0, cp.Parameter(nonneg=True, value=0.0)])
def test_huber_of_width_zero_bounds_nothing(M):
    """It is 0 everywhere; its constraint was taken for an equation."""
    X, y = data()
    theta = ko.Theta(KERNEL)
    objective = cp.Minimize(cp.norm1(y - theta(X)) + 0.5 * ko.sum_squares(theta))
    free, bounded = ko.Problem(objective), ko.Problem(objective, [cp.huber(theta(X)[0] - 5, M) <= 0])
    assert bounded.solve() == pytest.approx(free.solve(), rel=1e-8)
    assert bounded.certificate.lower <= free.value * (1 + 1e-12)


def test_a_width_that_becomes_zero():
    X, y = data()
    theta, M = ko.Theta(KERNEL), cp.Parameter(nonneg=True, value=1.0)
    objective = cp.Minimize(cp.sum_squares(y - theta(X)) + 0.1 * ko.sum_squares(theta))
    problem = ko.Problem(objective, [cp.huber(theta(X)[0] - 5, M) <= 0])
    problem.solve()
    assert theta(X).value[0] == pytest.approx(5, abs=1e-6)
    M.value = 0.0
    problem.solve()
    assert problem.status == "optimal" and problem.value == pytest.approx(ko.Problem(objective).solve(), rel=1e-7)


BOUNDS = {
    "squares": lambda f, R: cp.square(f) <= R,
    "with weights": lambda f, R: cp.multiply(cp.Parameter(6, nonneg=True, value=np.ones(6)), cp.square(f)) <= R,
    "parameters": lambda f, R: cp.square(f) <= cp.Parameter(6, value=R),
    "fourth powers": lambda f, R: cp.power(f, 4) <= R**2,
    "fourth powers of moduli": lambda f, R: cp.power(cp.abs(f), 4) <= R**2,
}


@pytest.mark.parametrize("bound", [[0.0, 0.1, 0.2, 0.3, 0.0, 0.5], 6 * [0.0]])
@pytest.mark.parametrize("power", [1.5, 3])
def test_some_bounds_of_powers_with_a_domain_are_zero(power, bound):
    X, y = data(6)
    values = []
    for powers in (True, False):
        theta, R = ko.Theta(KERNEL), np.array(bound)
        f = theta(X)
        rows = [cp.power(f, power) <= R] if powers else [f >= 0, f <= R ** (1 / power)]
        problem = ko.Problem(cp.Minimize(cp.norm1(y - f) + 0.1 * ko.sum_squares(theta)), rows)
        values.append(problem.solve())
        assert problem.status == "optimal"
    assert values[0] == pytest.approx(values[1], rel=1e-6)


@pytest.mark.parametrize("name", BOUNDS)
def test_some_bounds_are_zero(name):
    X, y = data(6)
    R, values = np.array([0.0, 0.1, 0.2, 0.3, 0.0, 0.5]), []
    for bounded in (BOUNDS[name], lambda f, R: cp.abs(f) <= np.sqrt(R)):
        theta = ko.Theta(KERNEL)
        problem = ko.Problem(cp.Minimize(cp.norm1(y - theta(X)) + 0.1 * ko.sum_squares(theta)), [bounded(theta(X), R)])
        values.append(problem.solve())
        assert problem.status == "optimal"
    assert values[0] == pytest.approx(values[1], rel=1e-6)


@pytest.mark.parametrize(
    "bounded", [ko.sum_squares, lambda theta: ko.norm(theta) ** 2, lambda theta: ko.norm(theta) ** 4]
)
def test_powers_are_not_less_than_nothing(bounded):
    X, y = data()
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.norm1(y - theta(X))), [bounded(theta) <= -1e-9])
    problem.solve()
    assert problem.status == "infeasible"


ROWS = {
    "complex moduli": lambda f, g: cp.abs(f[:3] + 1j * g[:3]),
    "a complex factor": lambda f, g: cp.abs((1 + 1j) * f[:3]),
    "largest of pairs": lambda f, g: cp.norm(cp.vstack([f[:3], g[:3]]), "inf", axis=0),
    "largest of rows": lambda f, g: cp.norm(cp.vstack([f[:3], g[:3]]).T, "inf", axis=1),
}


@pytest.mark.parametrize("bound", [[0.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
@pytest.mark.parametrize("name", ROWS)
def test_bounds_of_rows_of_which_some_are_zero(name, bound):
    X, y = data(8)
    B, values = np.linalg.cholesky(KERNEL(X) + 1e-12 * np.eye(8)), []
    theta, other, w, v = ko.Theta(KERNEL), ko.Theta(KERNEL), cp.Variable(8), cp.Variable(8)
    for make, (f, g, squares) in (
        (ko.Problem, (theta(X), other(X), ko.sum_squares(theta) + ko.sum_squares(other))),
        (cp.Problem, (B @ w, B @ v, cp.sum_squares(w) + cp.sum_squares(v))),
    ):
        loss = cp.sum_squares(y - f) + cp.sum_squares(y - 2 * g) + squares
        problem = make(cp.Minimize(loss), [ROWS[name](f, g) <= bound])
        values.append(problem.solve() if make is ko.Problem else problem.solve(solver="CLARABEL"))
        assert problem.status == "optimal"
    assert values[0] == pytest.approx(values[1], rel=1e-5)
