"""The oracle against closed forms and cvxpy, and answers of the library against the oracle."""

from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
from exact import (
    NUMBERS,
    Functional,
    InfeasibleError,
    Products,
    UnsupportedError,
    Walk,
    cholesky,
    digits,
    eigenvalues,
    exact,
    kernel_value,
)
from interior import Elimination
from oracle import check, optimum, value

import kernelopt as ko
from kernelopt import losses
from kernelopt.kernels import Gaussian, Laplacian, Linear, Polynomial

pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
CLOSE = Decimal("1e-22")  # relative: what `optimum` promises
X, Y = np.array([[0.0], [0.7], [1.5], [2.2]]), np.array([1.0, -1.0, 2.0, 0.5])


def assert_equal(found, truth):
    """An enclosure of a closed form, of at most 1e-22 of its size."""
    with digits():
        slack = CLOSE * max(abs(truth), Decimal("1e-6"))
        assert found.lower - slack <= truth <= found.upper + slack
        assert found.gap <= slack
        assert found.known


# ---------------------------------------------------------------- arithmetic

KERNELS = [
    Gaussian(sigma=0.7),
    Laplacian(sigma=1.3),
    Linear(),
    Polynomial(degree=3, offset=0.4, scale=0.9),
    ko.kernels.Constant(2.0),
    2.5 * Gaussian(sigma=1.0) + Linear() * Polynomial(degree=2),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_kernel_values(kernel):
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(2, 3, 2))
    with digits():
        found = [[float(kernel_value(kernel, list(exact(a)), list(exact(b)))) for b in B] for a in A]
    assert np.abs(np.array(found) - kernel(A, B)).max() <= 1e-13 * np.abs(kernel(A, B)).max()


@pytest.mark.parametrize("kernel", [k for k in KERNELS if not isinstance(k, Laplacian)], ids=repr)
@pytest.mark.parametrize("order", [(0,), (1,), (0, 0), (0, 1)])
def test_derivatives_of_kernels(kernel, order):
    """Against differences with steps of 1e-15, whose error is 1e-30 or less."""
    x, z, h = [Decimal("0.3"), Decimal("-0.8")], [Decimal("0.5"), Decimal("0.4")], Decimal("1e-15")

    def differences(f, point, orders):
        if not orders:
            return f(point)
        steps = [[a + sign * h if j == orders[0] else a for j, a in enumerate(point)] for sign in (1, -1)]
        return (differences(f, steps[0], orders[1:]) - differences(f, steps[1], orders[1:])) / (2 * h)

    with digits(120):
        in_x = Products(kernel)(
            Functional(((Decimal(1), (tuple(x), order)),)), Functional(((Decimal(1), (tuple(z), ())),))
        )
        assert abs(in_x - differences(lambda p: kernel_value(kernel, p, z), x, order)) < Decimal("1e-28")
        both = Functional(((Decimal(1), (tuple(x), order)),)), Functional(((Decimal(1), (tuple(z), order)),))
        twice = differences(lambda q: differences(lambda p: kernel_value(kernel, p, q), x, order), z, order)
        assert abs(Products(kernel)(*both) - twice) < Decimal("1e-28")


def test_a_factor_keeps_what_a_double_has_not():
    """Five points at distances of 0.01: the smallest pivot is about 1e-17."""
    rows = [Functional.at(np.array([0.01 * i])) for i in range(5)]
    with digits():
        Q = Products(Gaussian(sigma=1.0)).gram(rows, rows)
        L = cholesky(Q, Decimal("1e-64"))
        assert L.shape == (5, 5)
        assert max(abs(e) for e in (L @ L.T - Q).ravel()) < Decimal("1e-70")


def test_a_factor_has_the_rank_of_the_kernel():
    rows = [Functional.at(row) for row in np.random.default_rng(0).normal(size=(6, 2))]
    with digits():
        assert cholesky(Products(Linear()).gram(rows, rows), Decimal("1e-64")).shape == (6, 2)


def test_eigenvalues():
    A = np.random.default_rng(0).normal(size=(4, 4))
    with digits():
        found = sorted(float(e) for e in eigenvalues(exact(A @ A.T)))
    assert np.allclose(found, np.linalg.eigvalsh(A @ A.T), rtol=1e-12)


# ---------------------------------------------------------------- atoms

V = np.array([0.3, -1.2, 2.5])
ATOMS = {
    "abs": lambda v: cp.sum(cp.abs(v)),
    "square": lambda v: cp.sum(cp.square(v)),
    "power 1.5": lambda v: cp.sum(cp.power(cp.abs(v), 1.5)),
    "power 3": lambda v: cp.sum(cp.power(v + 2, 3)),
    "power 4": lambda v: cp.sum(cp.power(v, 4)),
    "inverse": lambda v: cp.sum(cp.inv_pos(v + 2)),
    "root": lambda v: -cp.sum(cp.sqrt(v + 2)),
    "sum_squares": lambda v: cp.sum_squares(v),
    "quad_over_lin": lambda v: cp.quad_over_lin(v, 2 + v[0]),
    "quad_form": lambda v: cp.quad_form(v, np.array([[2.0, 1, 0], [1, 2, 0], [0, 0, 0]])),
    "maximum": lambda v: cp.sum(cp.maximum(v, 0.5, -v)),
    "minimum": lambda v: -cp.sum(cp.minimum(v, 0.5)),
    "max and min": lambda v: cp.max(v) - cp.min(v),
    "pos and neg": lambda v: cp.sum(cp.pos(v)) + 2 * cp.sum(cp.neg(v)),
    "huber": lambda v: cp.sum(cp.huber(v, 0.8)),
    "exp": lambda v: cp.sum(cp.exp(v)),
    "log": lambda v: -cp.sum(cp.log(v + 2)),
    "log1p": lambda v: -cp.sum(cp.log1p(v + 2)),
    "logistic": lambda v: cp.sum(cp.logistic(v)),
    "log_sum_exp": lambda v: cp.log_sum_exp(v),
    "log_sum_exp of rows": lambda v: cp.sum(cp.log_sum_exp(cp.vstack([v, -v]), axis=1)),
    "entr": lambda v: -cp.sum(cp.entr(v + 2)),
    "kl_div": lambda v: cp.sum(cp.kl_div(v + 2, np.array([1.0, 2, 3]))),
    "rel_entr": lambda v: cp.sum(cp.rel_entr(2.0, v + 2)),
    "norms": lambda v: cp.norm(v) + cp.norm1(v) + cp.norm_inf(v),
    "sum_largest": lambda v: cp.sum_largest(v, 2) - cp.sum_smallest(v, 1),
    "variation": lambda v: cp.tv(v),
    "affine": lambda v: cp.sum(
        cp.abs(cp.diff(cp.cumsum(v)) + cp.reshape(v, (3, 1), order="F")[1:, 0] - v[::-1][:2] / 3)
    ),
    "matrices": lambda v: cp.sum(
        cp.abs(np.arange(6.0).reshape(2, 3) @ cp.diag(v) @ np.ones((3, 2)) - cp.vstack([v, v])[:, :2].T)
    ),
    "deviation": lambda v: cp.std(v) + cp.mean(v),
}


@pytest.mark.one_row
@pytest.mark.parametrize("name", ATOMS)
def test_atoms(name):
    """The value in decimals, and the optimum of the cone data, are those of cvxpy."""
    v = cp.Variable(3)
    objective = ATOMS[name](v)
    v.value = V
    truth = float(objective.value)
    problem = cp.Problem(cp.Minimize(objective), [v == V])
    found = optimum(problem)
    stated = value(problem, place=SimpleNamespace(variable=lambda node: exact(node.value)))
    assert abs(float(stated.objective) - truth) <= 1e-13 * max(abs(truth), 1)
    assert abs(float(found.upper - stated.objective)) <= 1e-24 * max(abs(truth), 1)
    assert float(found.gap) <= 1e-22 * max(abs(truth), 1)


@pytest.mark.parametrize("name", ["pnorm", "geo_mean"])
def test_atoms_that_have_values_only(name):
    v = cp.Variable(3, value=V + 2)
    atom = {"pnorm": lambda: cp.pnorm(v, 3), "geo_mean": lambda: -cp.geo_mean(v)}[name]()
    with digits():
        found = Walk(SimpleNamespace(variable=lambda node: exact(node.value)), NUMBERS)(atom).item()
    assert abs(float(found) - float(atom.value)) <= 1e-9
    with pytest.raises(UnsupportedError):
        optimum(cp.Problem(cp.Minimize(atom)))


@pytest.mark.parametrize(
    ("attributes", "truth"),
    [({"nonneg": True}, 0.81), ({"nonpos": True}, 0.16), ({"bounds": [-0.5, 0.5]}, 0.16), ({"boolean": True}, 0.97)],
    ids=str,
)
def test_attributes_of_variables(attributes, truth):
    v = cp.Variable(2, **attributes)
    found = optimum(cp.Problem(cp.Minimize(cp.sum_squares(v - np.array([0.4, -0.9])))))
    assert float(found.upper) == pytest.approx(truth, rel=1e-14)
    assert found.known


def test_integers_by_their_choices():
    z = cp.Variable(integer=True)
    problem = cp.Problem(cp.Maximize(-cp.abs(z - 1.4)))
    with pytest.raises(UnsupportedError):
        optimum(problem)
    found = optimum(problem, choices=[{z: float(k)} for k in (-1, 0, 1, 2)])
    assert float(found.lower) == pytest.approx(-0.4)
    assert found.gap <= CLOSE


def test_sizes_bounded_by_zero_are_equations():
    """|v| ≤ c with c = 0 in one entry: as two inequalities it leaves no interior, and no lower bound is found."""
    v = cp.Variable(2)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(v - np.array([0.4, -0.9]))), [cp.abs(v) <= np.array([0.0, 0.5])])
    found = optimum(problem)
    assert float(found.upper) == pytest.approx(0.4**2 + 0.4**2, rel=1e-14)
    assert found.known
    v.value = np.array([1e-3, -0.75])
    assert [float(e) for e in value(problem).violations] == [0.25]
    with pytest.raises(InfeasibleError):
        optimum(cp.Problem(cp.Minimize(cp.sum(v)), [cp.abs(cp.Constant(1.0)) <= 0]))


def test_constants_that_contradict_each_other():
    with pytest.raises(InfeasibleError):
        optimum(cp.Problem(cp.Minimize(cp.Variable()), [cp.Constant(1) <= 0]))


# ---------------------------------------------------------------- closed forms


@pytest.mark.later
def test_ridge():
    """min ‖y − Qα‖² + λαᵀQα = λyᵀ(Q + λI)⁻¹y."""
    theta = ko.Theta(Gaussian(sigma=0.8))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(Y - theta(X)) + 0.25 * ko.sum_squares(theta)))
    rows = [Functional.at(row) for row in X]
    with digits():
        Q = Products(theta.kernel).gram(rows, rows)
        truth = exact(Y) @ Elimination(Q + exact(0.25 * np.eye(4))).solve(exact(Y)) / 4
    assert_equal(optimum(problem), truth)


@pytest.mark.parametrize(("lam", "truth"), [(0.5, "0.5"), (2.0, "1.5")])
def test_hinge_on_two_points(lam, truth):
    """min 2·max(0, 1 − w) + λw²: w = min(1, 1/λ)."""
    theta = ko.Theta(Linear())
    loss = cp.sum(losses.hinge([1, -1], theta([[1.0], [-1.0]])))
    assert_equal(optimum(ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)))), Decimal(truth))


def test_quantile_of_one_point():
    """min τ·max(0, 1 − w) + ½w² for w ≤ 1: w = τ."""
    theta = ko.Theta(Linear())
    loss = cp.sum(losses.pinball([1.0], theta([[1.0]]), tau=0.25))
    assert_equal(optimum(ko.Problem(cp.Minimize(loss + 0.5 * ko.sum_squares(theta)))), Decimal("0.21875"))


def test_quantile_without_theta():
    """Σ pinball(y − b) at b = 2, the median of 1, 2, 4: ½(1 + 0 + 2); a kernel of zeros leaves b alone."""
    theta, b = ko.Theta(Linear()), cp.Variable()
    loss = cp.sum(losses.pinball([1.0, 2.0, 4.0], theta(np.zeros((3, 1))) + b, tau=0.5))
    found = optimum(ko.Problem(cp.Minimize(loss + ko.sum_squares(theta))))
    assert_equal(found, Decimal("1.5"))
    assert found.word == "optimal"


@pytest.mark.parametrize("goal", [cp.Minimize, cp.Maximize])
def test_norm_ball(goal):
    """min aᵀAθ over ‖θ‖ ≤ R is −R√(aᵀQa)."""
    theta, a = ko.Theta(Gaussian(sigma=0.8)), np.array([1.0, -2.0, 0.5, 1.0])
    problem = ko.Problem(goal(a @ theta(X)), [ko.norm(theta) <= 1.5])
    rows = [Functional.at(row) for row in X]
    with digits():
        truth = Decimal("1.5") * (exact(a) @ Products(theta.kernel).gram(rows, rows) @ exact(a)).sqrt()
        assert_equal(optimum(problem), truth if goal is cp.Maximize else -truth)


def test_least_norm_through_one_point():
    theta = ko.Theta(Polynomial(degree=2, offset=1.0))
    assert_equal(optimum(ko.Problem(cp.Minimize(ko.norm(theta)), [theta([[1.0]]) == 3])), Decimal("1.5"))


@pytest.mark.later
def test_distance_to_a_function():
    """min λ‖θ‖² + ‖θ − f₀‖² = λ/(1 + λ)·‖f₀‖²; f₀ = 2κ(0, ·) − κ(1, ·) of a linear kernel on (0, 1), (1, 1)."""
    theta = ko.Theta(Linear())
    f0 = ko.Function(theta.kernel, [[0.0, 1.0], [1.0, 1.0]], [2.0, -1.0])
    problem = ko.Problem(cp.Minimize(3 * ko.sum_squares(theta) + cp.square(ko.norm(theta - f0))))
    assert_equal(optimum(problem), Decimal("1.5"))


def test_exponential():
    """min eᵘ − 2u = 2 − 2 ln 2."""
    theta = ko.Theta(Gaussian(sigma=1.0))
    u = theta([[0.0]])
    with digits():
        truth = 2 - 2 * Decimal(2).ln()
    assert_equal(optimum(ko.Problem(cp.Minimize(cp.sum(cp.exp(u) - 2 * u)))), truth)


def test_far_scales():
    """min 1e16·|u₀ − 1e-16| + 1e-16·|u₁ − 1| over u₀ = u₁: the second term is all that is left."""
    theta = ko.Theta(Linear())
    u = theta([[1.0]])
    problem = ko.Problem(cp.Minimize(cp.sum(1e16 * cp.abs(u - 1e-16) + 1e-16 * cp.abs(u - 1))))
    with digits():
        small = Decimal(float("1e-16"))  # the number that the problem holds
        assert_equal(optimum(problem), small * (1 - small))


@pytest.mark.slow
def test_a_direction_that_changes_nothing():
    """The log-sum-exp of two predictions less their mean does not see an intercept: log 2 at θ = 0."""
    theta, b = ko.Theta(Linear()), cp.Variable()
    f = theta([[1.0], [2.0]]) + b
    objective = cp.log_sum_exp(f) - cp.sum(f) / 2 + 5 * ko.sum_squares(theta)
    with digits():
        truth = Decimal(2).ln()
    for precision in (57, 76):
        assert_equal(optimum(ko.Problem(cp.Minimize(objective)), precision=precision), truth)


def test_theta_at_zero():
    theta, b = ko.Theta(Gaussian(sigma=1.0)), cp.Variable()
    problem = ko.Problem(cp.Minimize(cp.sum_squares(Y - theta(X) - b) + ko.sum_squares(theta)))
    assert float(optimum(problem, at_zero=True).upper) == pytest.approx(np.sum((Y - Y.mean()) ** 2), rel=1e-14)


@pytest.mark.parametrize("goal", ["infeasible", "unbounded"])
def test_where_there_is_no_optimum(goal):
    theta = ko.Theta(Linear())
    u = theta([[1.0]])
    constraints = [u <= 1, u >= 2] if goal == "infeasible" else []
    found = optimum(ko.Problem(cp.Minimize(cp.sum(u)), constraints))
    assert found.word == "unknown"
    if goal == "unbounded":
        assert found.lower == Decimal("-Infinity")
    else:
        assert found.upper == Decimal("Infinity")


@pytest.mark.slow
def test_an_optimum_that_is_not_attained():
    """log(1 + e⁻ᵘ) without a norm: 0 in the limit."""
    theta = ko.Theta(Linear())
    found = optimum(ko.Problem(cp.Minimize(cp.sum(losses.log_loss([1], theta([[1.0]]))))))
    assert found.known
    assert found.word == "infimum"


# ---------------------------------------------------------------- values of a given θ


def test_value_and_violations_of_a_given_function():
    theta, b = ko.Theta(Linear()), cp.Variable(value=0.5)
    theta.value = ko.Function(Linear(), [[1.0], [2.0]], [0.5, 0.25])  # θ = 1
    u = theta([[1.0], [3.0]])
    problem = ko.Problem(
        cp.Minimize(cp.sum_squares(u + b) + 2 * ko.norm(theta)), [u <= 2, u[0] == 1.25, ko.norm(theta) <= 1]
    )
    found = value(problem)
    assert found.objective == Decimal("16.5")
    assert found.violations == (1, Decimal("0.25"), 0)
    assert [float(r) for r in found.relative] == pytest.approx([1 / 3, 0.2, 0])


@pytest.mark.parametrize(("kind", "truth"), [("fro", 5.0), ("nuc", 7.0), (2, 4.0)])
def test_norms_of_a_matrix(kind, truth):
    theta = ko.Theta(Linear(), outputs=2)
    theta.value = ko.Function(Linear(), [[1.0, 0.0], [0.0, 1.0]], [[3.0, 0.0], [0.0, 4.0]])
    found = value(ko.Problem(cp.Minimize(ko.norm(theta, kind)), [theta([[1.0, 1.0]])[:, 0] == 3]))
    assert abs(found.objective - Decimal(truth)) < Decimal("1e-30")
    assert found.violations == (0,)


def test_a_violation_is_relative_to_the_terms_of_a_prediction():
    """0.5·1 − 0.25·2 − 2⁻⁴⁰ < 0 has terms of about 1, though nothing else stands in the row."""
    theta = ko.Theta(Linear())
    theta.value = ko.Function(Linear(), [[1.0], [2.0], [2.0**-40]], [0.5, -0.25, -1.0])
    found = value(ko.Problem(cp.Minimize(ko.norm(theta)), [theta([[1.0]]) >= 0]))
    assert found.violations == (Decimal(2) ** -40,)
    assert float(found.relative[0]) == pytest.approx(2.0**-40, rel=1e-9)


def test_value_with_derivatives():
    theta = ko.Theta(Polynomial(degree=2, offset=0.0))
    theta.value = ko.Function(theta.kernel, [[1.0]], [2.0])  # f(x) = 2x²
    A = ko.FeatureMatrix([[3.0]], theta.kernel)
    problem = ko.Problem(cp.Minimize(cp.sum(A.derivative(0) @ theta) + cp.sum(A.derivative((0, 0)) @ theta)))
    assert value(problem).objective == 16


# ---------------------------------------------------------------- faults are seen


def solved():
    theta, b = ko.Theta(Gaussian(sigma=0.8)), cp.Variable()
    problem = ko.Problem(
        cp.Minimize(cp.sum(cp.abs(Y - theta(X) - b)) + 0.3 * ko.sum_squares(theta)), [theta(X[:1]) <= 0.5]
    )
    problem.solve()
    return problem, theta, b


def planted(problem, **faults):
    """The problem with another status, value or certificate."""
    answer = {
        name: getattr(problem, name)
        for name in ("objective", "constraints", "variables", "status", "value", "certificate")
    }
    return SimpleNamespace(**(answer | faults))


@pytest.mark.slow
def test_an_answer_that_is_right():
    assert check(solved()[0]) == []


@pytest.mark.slow
def test_faults_of_a_certificate():
    problem = solved()[0]
    found, size = problem.certificate, abs(problem.value)
    high, low = replace(found, lower=found.upper + 1e-9 * size), replace(found, upper=found.lower - 1e-9 * size)
    assert any("above the optimum" in said for said in check(planted(problem, certificate=high)))
    assert any("beyond the bound" in said for said in check(planted(problem, certificate=high)))
    assert any("below the optimum" in said for said in check(planted(problem, certificate=low)))
    assert (
        check(planted(problem, certificate=replace(high, scope="reduced problem"), status="optimal_inaccurate")) == []
    )


@pytest.mark.slow
@pytest.mark.parametrize("status", ["infeasible", "unbounded", "not_attained"])
def test_faults_of_a_status(status):
    problem = solved()[0]
    assert any(said.startswith(status) for said in check(planted(problem, status=status, certificate=None)))


@pytest.mark.slow
def test_faults_of_a_value():
    problem = solved()[0]
    said = check(planted(problem, value=problem.value * (1 + 1e-4)))
    assert any(line.startswith("optimal at") for line in said)
    assert any("that of theta.value" in line for line in said)


@pytest.mark.slow
def test_faults_of_a_point():
    problem, theta, b = solved()
    f = theta.value
    theta.value = ko.Function(f.kernel, X[:1], [1.0])  # 1 at X[0], where it may be 0.5
    unrepaired = replace(problem.certificate, widened=0.0)
    said = check(planted(problem, certificate=unrepaired))
    assert any("a constraint is violated by 5.0e-01" in line for line in said)
    theta.value = f
    b.value = b.value + 1e-3
    assert any("that of theta.value" in line for line in check(problem))


# ---------------------------------------------------------------- answers of the library

COUNTS = np.array([0.0, 2.0, 1.0, 4.0])
SIGNS = np.where(Y > 0, 1.0, -1.0)
BY_NAME = {
    "squared_error": lambda f: losses.squared_error(Y, f),
    "absolute_error": lambda f: losses.absolute_error(Y, f),
    "huber": lambda f: losses.huber(Y, f, 0.4),
    "pinball": lambda f: losses.pinball(Y, f, 0.3),
    "expectile": lambda f: losses.expectile(Y, f, 0.3),
    "ordinal": lambda f: losses.ordinal(np.arange(len(Y)) % 3, f, [-0.5, 0.7]),
    "epsilon_insensitive": lambda f: losses.epsilon_insensitive(Y, f, 0.2),
    "hinge": lambda f: losses.hinge(SIGNS, f),
    "squared_hinge": lambda f: losses.squared_hinge(SIGNS, f),
    "log_loss": lambda f: losses.log_loss(SIGNS, f),
    "poisson": lambda f: losses.poisson(COUNTS, f),
}


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [Gaussian(sigma=0.9), Polynomial(degree=2)], ids=["gaussian", "polynomial"])
@pytest.mark.parametrize("penalty", ["squared", "unsquared", "ball"])
@pytest.mark.parametrize("loss", BY_NAME)
def test_losses_by_name(loss, penalty, kernel):
    theta, b = ko.Theta(kernel), cp.Variable()
    term = cp.sum(BY_NAME[loss](theta(X) + b))
    objective = {"squared": term + 0.3 * ko.sum_squares(theta), "unsquared": term + 0.3 * ko.norm(theta), "ball": term}
    problem = ko.Problem(cp.Minimize(objective[penalty]), [ko.norm(theta) <= 1.5] if penalty == "ball" else [])
    problem.solve()
    truth = optimum(problem)
    assert truth.known
    assert problem.status == "optimal"
    assert check(problem, truth=truth) == []


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["multinomial", "crammer_singer"])
def test_losses_of_several_outputs(loss):
    theta = ko.Theta(Gaussian(sigma=0.9), outputs=3)
    problem = ko.Problem(
        cp.Minimize(cp.sum(getattr(losses, loss)([0, 1, 2, 1], theta(X))) + 0.3 * ko.sum_squares(theta))
    )
    problem.solve()
    truth = optimum(problem)
    assert truth.known
    assert problem.status == "optimal"
    assert check(problem, truth=truth) == []


def test_every_loss_is_checked():
    assert {*BY_NAME, "multinomial", "crammer_singer", "margin", "cox"} == set(losses.__all__)
