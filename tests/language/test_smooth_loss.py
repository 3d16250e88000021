"""A user's own smooth loss: as good as the built-in one, checked, and refused where it can't stand."""

import pickle

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import expit

import kernelopt as ko
from kernelopt import losses
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.terms import Along
from kernelopt.driver import local_optima, refine
from kernelopt.driver.local_optima import Conditions
from kernelopt.driver.options import factor_options
from kernelopt.driver.policy import Step
from kernelopt.driver.strategy import Goal
from kernelopt.errors import DataError, DCPError, KernelOptError, OptionError, SolverError
from kernelopt.pieces.custom import StatedFunction
from kernelopt.pieces.inverse import attained

KERNEL = ko.kernels.Gaussian(sigma=1.0)
RNG = np.random.default_rng(0)
N = 50
X = RNG.normal(size=(N, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 - 1 + 0.3 * RNG.standard_t(3, size=N)
LABELS, COUNTS, WEIGHTS = np.sign(Y), np.abs(Y).round(), RNG.uniform(0.5, 2, size=N)


def logistic():
    return ko.SmoothLoss(
        lambda u, y: np.logaddexp(0, -y * u),
        lambda u, y: -y / (1 + np.exp(y * u)),
        lambda u, y: 1 / (2 + np.exp(u) + np.exp(-u)),
    )


def poisson():
    return ko.SmoothLoss(lambda u, y: np.exp(u) - y * u, lambda u, y: np.exp(u) - y, lambda u, y: np.exp(u))


def squared():
    return ko.SmoothLoss(lambda u, y: (u - y) ** 2, lambda u, y: 2 * (u - y), lambda u, y: np.full_like(u, 2.0))


def pseudo_huber():
    return ko.SmoothLoss(
        lambda u, y: np.sqrt(1 + (u - y) ** 2) - 1,
        lambda u, y: (u - y) / np.sqrt(1 + (u - y) ** 2),
        lambda u, y: (1 + (u - y) ** 2) ** -1.5,
    )


def of_cones(y, f):
    """The pseudo-Huber function as second-order cones, one a row."""
    return cp.hstack([cp.norm(cp.hstack([1, f[i] - y[i]])) - 1 for i in range(N)])


TWINS = {
    "logistic": (logistic, losses.log_loss, LABELS),
    "poisson": (poisson, losses.poisson, COUNTS),
    "squared": (squared, losses.squared_error, Y),
    "pseudo-Huber": (pseudo_huber, of_cones, Y),
}


def both(name, state):
    """The problem that `state` makes of a loss, with the user's own one and the built-in one, solved."""
    made, built_in, y = TWINS[name]
    own, reference = made(), None
    problems = []
    for loss in (lambda f: own(f, y), lambda f: built_in(y, f)):
        problem = state(loss)
        options = {}
        if problems and name == "pseudo-Huber":
            options = {"solver": "CLARABEL", "tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
        problem.solve(**options)
        problems.append(problem)
    problem, reference = problems
    assert problem.status == "optimal"
    assert problem.certificate.scope == "full kernel"
    assert problem.certificate.assumptions == ()
    assert problem.value == pytest.approx(reference.value, rel=1e-7, abs=1e-7)
    assert problem.certificate.lower <= reference.value + 1e-7
    return problem, reference


@pytest.mark.slow
@pytest.mark.one_row
@pytest.mark.parametrize("penalty", ["squared", "unsquared", "ball"])
@pytest.mark.parametrize("name", TWINS)
def test_equals_the_built_in_loss(name, penalty):
    def state(loss):
        theta, b = ko.Theta(KERNEL), cp.Variable()
        objective, constraints = cp.sum(loss(theta(X) + b)), []
        match penalty:
            case "squared":
                objective += 0.1 * ko.sum_squares(theta)
            case "unsquared":
                objective += 2 * ko.norm(theta)
            case "ball":
                constraints.append(ko.norm(theta) <= 2)
        return ko.Problem(cp.Minimize(objective), constraints)

    both(name, state)


BESIDE = {
    "weights": lambda loss, f, theta: (WEIGHTS @ loss, []),
    "some weights of zero": lambda loss, f, theta: ((np.arange(N) % 3 > 0) @ loss, []),
    "constraints": lambda loss, f, theta: (cp.sum(loss), [f <= 0.8, cp.sum(f) == 1, theta(np.zeros((1, 2))) <= 0.1]),
    "nonsmooth": lambda loss, f, theta: (cp.sum(loss) + cp.norm1(f - 0.2), []),
    "a part of it": lambda loss, f, theta: (cp.sum(loss[:20]) + 0.5 * cp.sum(loss[20:]), []),
}


@pytest.mark.slow
@pytest.mark.one_row
@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("name", ["logistic", "squared"])
def test_beside_other_terms(name, beside):
    def state(loss):
        theta, b = ko.Theta(KERNEL), cp.Variable()
        f = theta(X) + b
        objective, constraints = BESIDE[beside](loss(f), f, theta)
        return ko.Problem(cp.Minimize(objective + 0.1 * ko.sum_squares(theta)), constraints)

    problem, _ = both(name, state)
    assert problem.verify().passed


@pytest.mark.slow
def test_repeated_rows_several_variables_and_maximize():
    again = np.r_[np.arange(20), np.arange(20), np.arange(10)]
    beta = cp.Variable(2)

    def state(loss):
        theta = ko.Theta(KERNEL)
        f = theta(X[again]) + X @ beta
        return ko.Problem(cp.Maximize(-cp.sum(loss(f)) - 0.1 * ko.sum_squares(theta)))

    problem, reference = both("logistic", state)
    assert problem.certificate.at_zero == pytest.approx(reference.certificate.at_zero, rel=1e-6)


@pytest.mark.later
def test_several_outputs():
    F, Z = RNG.normal(size=(N, 2)), np.column_stack([Y, -Y])
    theta, reference = ko.Theta(KERNEL, outputs=2), ko.Theta(KERNEL, outputs=2)
    problem = ko.Problem(cp.Minimize(cp.sum(squared()(theta(X), Z)) + ko.sum_squares(theta)))
    other = ko.Problem(cp.Minimize(cp.sum_squares(reference(X) - Z) + ko.sum_squares(reference)))
    assert problem.solve() == pytest.approx(other.solve(), rel=1e-7)
    assert theta.value(F) == pytest.approx(reference.value(F), abs=1e-4)
    assert theta(X).dual_value == pytest.approx(reference(X).dual_value, abs=1e-4)


@pytest.mark.later
@pytest.mark.parametrize("solver", ["NEWTON", "INTERIOR_POINT", "AUGMENTED_LAGRANGIAN"])
def test_every_solver_of_ours(solver):
    theta, b = ko.Theta(KERNEL), cp.Variable()
    problem = ko.Problem(cp.Minimize(cp.sum(poisson()(theta(X) + b, COUNTS)) + 0.1 * ko.sum_squares(theta)))
    problem.solve(solver=solver)
    assert problem.status == "optimal"


@pytest.mark.later
@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_units(unit):
    """y, predictions and √kernel × unit."""
    theta = ko.Theta(unit**2 * KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum(squared()(theta(X), unit * Y)) + 0.1 * unit**2 * ko.sum_squares(theta)))
    problem.solve()
    plain = ko.Theta(KERNEL)
    reference = ko.Problem(cp.Minimize(cp.sum_squares(plain(X) - Y) + 0.1 * ko.sum_squares(plain))).solve()
    assert problem.status == "optimal"
    assert problem.value / unit**2 == pytest.approx(reference, rel=1e-6)


# ---------------------------------------------------------------- data


def test_kinds_of_data_and_numeric_values():
    loss, u = squared(), cp.Constant([1.0, 2.0, 3.0])
    for y in ([0, 1, 2], np.array([0, 1, 2], dtype=np.int8), pd.Series([0.0, 1.0, 2.0], index=[5, 6, 7])):
        assert loss(u, y).value == pytest.approx([1, 1, 1])
    assert loss(u, 1).value == pytest.approx([0, 1, 4])
    table = cp.Constant(np.arange(6.0).reshape(2, 3))
    assert loss(table, np.ones((2, 3))).value == pytest.approx((table.value - 1) ** 2)
    theta = ko.Theta(KERNEL)
    term = loss(theta(X) + 1, Y)
    assert term.value is None
    assert (term.is_convex(), term.is_concave(), term.shape) == (True, False, (N,))
    theta.value = ko.Function(KERNEL, X[:1], np.ones(1))
    assert term.value == pytest.approx((KERNEL(X, X[:1])[:, 0] + 1 - Y) ** 2)


@pytest.mark.slow
def test_parameters_are_solved_again_without_factoring():
    theta, lam, y = ko.Theta(KERNEL), cp.Parameter(nonneg=True), cp.Parameter(N)
    problem = ko.Problem(cp.Minimize(cp.sum(pseudo_huber()(theta(X), y)) + lam * ko.sum_squares(theta)))
    with pytest.raises(KernelOptError, match="value"):
        problem.solve()
    values = {}
    for lam.value, shift in ((1.0, 0.0), (0.1, 0.0), (0.1, 1.0)):
        y.value = Y + shift
        problem.solve()
        assert problem.status == "optimal"
        fresh = ko.Theta(KERNEL)
        loss = cp.sum(pseudo_huber()(fresh(X), Y + shift))
        reference = ko.Problem(cp.Minimize(loss + float(lam.value) * ko.sum_squares(fresh)))
        assert problem.value == pytest.approx(reference.solve(), rel=1e-7)
        values[float(lam.value), shift] = problem.value
    ahead = problem.certificate_at({y: Y, lam: 0.1})
    assert ahead.lower <= values[0.1, 0.0] <= ahead.upper
    ahead = problem.certificate_at({lam: 1.0})
    assert ahead.lower <= ahead.upper < np.inf


def test_explained_and_told_by_solvers():
    theta, b = ko.Theta(KERNEL), cp.Variable(name="b")

    def my_loss(u, y):
        return (u - y) ** 2

    loss = ko.SmoothLoss(my_loss, lambda u, y: 2 * (u - y), lambda u, y: 2 + 0 * u)
    problem = ko.Problem(cp.Minimize(cp.sum(loss(theta(X) + b, Y)) + ko.sum_squares(theta)))
    table = problem.solvers()
    assert table["CLARABEL"] == "takes cvxpy's atoms only, and not a SmoothLoss"
    assert table["NEWTON"] is None and table.chosen == "NEWTON"
    assert not problem.is_qp() and problem.is_dcp() and problem.is_dpp()
    with pytest.raises(SolverError, match="CLARABEL takes cvxpy's atoms only.*Solvers that take the problem: NEWTON"):
        problem.solve(solver="CLARABEL")
    problem.solve()
    told = str(problem.explain())
    assert "Σ my_loss(A·θ + b, [50 data])" in told
    assert "(w_θ, b)" in told and "stopped" not in told
    assert "h1 = my_loss(g1, [50 data])" in str(problem.canonical_form())


def test_from_a_problem_in_an_explicit_theta():
    kernel = ko.kernels.Polynomial(degree=2)
    Phi, t = cp.Constant(kernel.features(X)), cp.Variable(6)
    explicit = cp.Problem(cp.Minimize(cp.sum(pseudo_huber()(Phi @ t, Y)) + 0.1 * cp.sum_squares(t)))
    problem = ko.Problem.from_cvxpy(explicit, theta=t, features={Phi: ko.FeatureMatrix(X, kernel)})
    problem.solve()
    assert problem.status == "optimal"
    assert explicit.objective.value == pytest.approx(problem.value, rel=1e-9)
    assert problem.verify().passed


@pytest.mark.slow
def test_audit_of_a_function_from_elsewhere():
    theta, b = ko.Theta(KERNEL), cp.Variable()
    problem = ko.Problem(cp.Minimize(cp.sum(logistic()(theta(X) + b, LABELS)) + 0.1 * ko.sum_squares(theta)))
    problem.solve(tol=1e-9)
    good = ko.Function(KERNEL, theta.value.centers, theta.value.coefficients)
    kept = b.value
    theta.value = good
    assert problem.verify().passed
    theta.value = ko.Function(KERNEL, X[:5], np.ones(5))
    b.value = kept
    assert not problem.verify().passed


# ---------------------------------------------------------------- domains


@pytest.mark.slow
def test_a_logarithm_and_its_domain():
    """−log u and u on u > 0, from θ = 0 and without an intercept outside of the domain."""
    barrier = ko.SmoothLoss(lambda u: u - np.log(u), lambda u: 1 - 1 / u, lambda u: u**-2.0, domain=(0, np.inf))
    assert barrier(cp.Constant([-1.0, 0.0, 1.0])).value == pytest.approx([np.inf, np.inf, 1.0])
    for intercept in (True, False):
        for constraints in (lambda f: [], lambda f: [f <= 0.9]):
            values = []
            for loss in (barrier, lambda f: f - cp.log(f)):
                theta, b = ko.Theta(KERNEL), cp.Variable()
                f = theta(X[:20]) + b if intercept else theta(X[:20])
                objective = cp.sum(loss(f)) + Y[:20] @ f + 0.5 * ko.sum_squares(theta)
                problem = ko.Problem(cp.Minimize(objective), constraints(f))
                values.append(problem.solve())
                assert problem.status == "optimal"
            assert values[0] == pytest.approx(values[1], rel=1e-6)


@pytest.mark.slow
def test_a_bounded_domain():
    """−log(1 − u²) on (−1, 1), pushed against its end."""
    loss = ko.SmoothLoss(
        lambda u: -np.log1p(-(u**2)), lambda u: 2 * u / (1 - u**2), lambda u: 2 * (1 + u**2) / (1 - u**2) ** 2,
        domain=(-1, 1),
    )  # fmt: skip
    theta = ko.Theta(KERNEL)
    pull = 1e3 * Y
    problem = ko.Problem(cp.Minimize(cp.sum(loss(theta(X))) - pull @ theta(X) + 0.01 * ko.sum_squares(theta)))
    problem.solve()
    assert problem.status == "optimal"
    assert np.abs(theta(X).value).max() < 1


@pytest.mark.later
def test_no_point_in_the_domain():
    loss = ko.SmoothLoss(lambda u: -np.log(u), lambda u: -1 / u, lambda u: u**-2.0, domain=(0, np.inf))
    theta = ko.Theta(KERNEL)
    f = theta(X[:1])
    problem = ko.Problem(cp.Minimize(cp.sum(loss(f)) + cp.sum(loss(-1 - f)) + ko.sum_squares(theta)))
    with pytest.raises(SolverError, match="inside of their domains"):
        problem.solve()


# ---------------------------------------------------------------- the conjugate, and what it proves


@pytest.mark.slow
def test_conjugates_bound_from_above():
    """h*(v) ≥ vs − h(s) for every s, and equality where v is a slope of h; ∞ beyond the slopes."""
    for made, y in ((logistic, LABELS), (poisson, COUNTS), (squared, Y), (pseudo_huber, Y)):
        piece = Along(np.arange(N), StatedFunction(made(), (y,)), WEIGHTS, np.where(Y > 0, 2.0, -0.5), 0.3 * Y)
        low, high = piece.slopes()
        for _ in range(10):
            s = 3 * RNG.normal(size=N)
            v = piece.derivative(s)
            assert (low <= v).all() and (v <= high).all()
            piece.family._last.clear()  # no hint
            size = np.abs(v * s) + np.abs(piece.value(s))
            assert np.abs(piece.conjugate(v) - (v * s - piece.value(s))).max() <= 1e-12 * size.max()
            other = s + RNG.normal(size=N)
            assert (piece.conjugate(v) >= v * other - piece.value(other) - 1e-12 * size).all()
    beyond = Along(np.arange(N), StatedFunction(pseudo_huber(), (Y,)), np.ones(N), np.ones(N), np.zeros(N))
    assert np.isposinf(beyond.conjugate(np.full(N, 1.5))).all()


def test_an_inverse_that_newton_alone_would_miss():
    """q^(1/3) has no derivative at 0, and tanh none far out."""
    for g, slope, z in (
        (np.cbrt, lambda q: 1 / (3 * np.cbrt(np.maximum(np.abs(q), 1e-200)) ** 2), np.array([1e-3, -1.0, 5.0])),
        (np.tanh, lambda q: np.cosh(q) ** -2.0, np.array([0.999999, -0.5, 1e-9])),
    ):
        found = attained(g, slope, z, np.full(3, 4.0), (-np.inf, np.inf))
        assert g(found.q) == pytest.approx(z, rel=1e-12)
        assert (found.excess <= 1e-12).all()
    beyond = attained(np.tanh, lambda q: 1 - np.tanh(q) ** 2, np.array([1.1]), np.zeros(1), (-np.inf, np.inf))
    assert np.isinf(beyond.excess)


# ---------------------------------------------------------------- what is refused


def test_32_wrong_derivatives():
    """A wrong gradient or Hessian is refused at the first call, with the worst point."""
    value, gradient, hessian = (lambda u, y: (u - y) ** 2), (lambda u, y: 2 * (u - y)), (lambda u, y: 2 + 0 * u)
    u = ko.Theta(KERNEL)(X)
    ko.SmoothLoss(value, gradient, hessian)(u, Y)
    with pytest.raises(DataError, match=r"gradient of .* derivative of its value; at u = .*, data \(.*\) it is .*"):
        ko.SmoothLoss(value, lambda u, y: u - y, hessian)(u, Y)
    with pytest.raises(DataError, match=r"hessian of .* derivative of its gradient; at u = .* it is 1, .* give 2\."):
        ko.SmoothLoss(value, gradient, lambda u, y: 1 + 0 * u)(u, Y)
    late = ko.SmoothLoss(value, lambda u, y: np.where(u > y + 1, u - y, 2 * (u - y)), hessian)
    with pytest.raises(DataError, match="derivative"):
        late(u, Y)
    for unit in (1e-7, 1e7):
        ko.SmoothLoss(value, gradient, hessian)(u, unit * Y)
        with pytest.raises(DataError, match="derivative"):
            ko.SmoothLoss(value, lambda u, y: 1.01 * 2 * (u - y), hessian)(u, unit * Y)
    y = cp.Parameter(N)
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(
        cp.Minimize(cp.sum(ko.SmoothLoss(value, lambda u, y: u, hessian)(theta(X), y)) + ko.sum_squares(theta))
    )
    y.value = Y
    with pytest.raises(DataError, match="derivative"):
        problem.solve()


def test_kinks_are_refused_by_name():
    u = ko.Theta(KERNEL)(X)
    zero = lambda u, y: 0 * u
    with pytest.raises(DataError, match=r"to be differentiable; at u = .* jumps from -1 to 1\. .* cp\.abs, without"):
        ko.SmoothLoss(lambda u, y: np.abs(u - y), lambda u, y: np.sign(u - y), zero)(u, Y)
    hinge = ko.SmoothLoss(lambda u, y: np.maximum(0, 1 - y * u), lambda u, y: np.where(y * u < 1, -y, 0), zero)
    with pytest.raises(DataError, match="to be differentiable; at u = .* jumps"):
        hinge(u, LABELS)
    # A steep loss is differentiable.
    T = 1e-6
    s = lambda u, y: expit((1 - y * u) / T)
    steep = lambda u, y: T * np.logaddexp(0, (1 - y * u) / T)
    ko.SmoothLoss(steep, lambda u, y: -y * s(u, y), lambda u, y: s(u, y) * (1 - s(u, y)) / T)(u, LABELS)


def test_pieces_without_a_second_derivative_are_refused_by_name():
    u = ko.Theta(KERNEL)(X)
    half = ko.SmoothLoss(
        lambda u, y: np.maximum(0, u - y) ** 2, lambda u, y: 2 * np.maximum(0, u - y), lambda u, y: 2.0 * (u > y)
    )
    with pytest.raises(DataError, match=r"slope of the gradient changes there from 0 to 2: .* cp\.square"):
        half(u, Y)


def test_the_order_of_the_arguments():
    with pytest.raises(DataError, match=r"got an expression\. The order is loss\(f, y\)"):
        pseudo_huber()(Y, ko.Theta(KERNEL)(X))


def test_33_declared_convex():
    """Refused at the call, or when a solve meets the point."""
    sine = (np.sin, np.cos, lambda u: -np.sin(u))
    u = ko.Theta(KERNEL)(X)
    with pytest.raises(DataError, match=r"declared convex, to have a second derivative ≥ 0; got -.* at u = "):
        ko.SmoothLoss(*sine)(u)
    # Convex where it is looked at, and concave beyond u = 30.
    fading = ko.SmoothLoss(
        lambda u: np.where(u < 30, 0.5 * u**2, 450 + 30 * (u - 30) - 0.5 * (u - 30) ** 2),
        lambda u: np.where(u < 30, u, 60 - u),
        lambda u: np.where(u < 30, 1.0, -1.0),
    )
    # Rounding far out, where the second derivative is next to nothing, is no concavity.
    careless = ko.SmoothLoss(
        lambda u: np.sqrt(1 + u**2), lambda u: u / np.sqrt(1 + u**2),
        lambda u: 1 / np.sqrt(1 + u**2) - u**2 / (1 + u**2) ** 1.5,
    )  # fmt: skip
    careless(ko.Theta(KERNEL)(X))
    far = 10 ** np.linspace(5, 9, 200)
    assert (careless.evaluate("hessian", far, ()) < 0).any()
    assert (careless.hessian(far, ()) >= 0).all()
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum(fading(theta(X))) - 100 * cp.sum(theta(X)) + 0.001 * ko.sum_squares(theta)))
    with pytest.raises(DataError, match="declared convex"):
        problem.solve()


def test_wrong_shapes_and_numbers():
    value, gradient, hessian = (lambda u, y: (u - y) ** 2), (lambda u, y: 2 * (u - y)), (lambda u, y: 2 + 0 * u)
    loss, u = ko.SmoothLoss(value, gradient, hessian), ko.Theta(KERNEL)(X)
    for y, match in ((Y[:5], "shape"), (Y[:, None], r"ravel"), (np.full(N, np.nan), "finite"), (["a"] * N, "real num")):
        with pytest.raises(KernelOptError, match=match):
            loss(u, y)
    with pytest.raises(DataError, match="data"):
        loss(u, cp.Variable(N))
    with pytest.raises(DataError, match="an array of .* real numbers"):
        ko.SmoothLoss(lambda u, y: np.sum((u - y) ** 2), gradient, hessian)(u, Y)
    with pytest.raises(DataError, match="complex"):
        ko.SmoothLoss(lambda u, y: (u - y) ** 2 + 0j, gradient, hessian)(u, Y)
    with pytest.raises(DataError, match="NaN at u = -"):
        ko.SmoothLoss(lambda u: -np.log(u), lambda u: -1 / u, lambda u: u**-2.0)(u)
    with pytest.raises(OptionError, match="curvature"):
        ko.SmoothLoss(value, gradient, hessian, curvature="concave")
    for domain in ((1, 0), 3, (0, "a")):
        with pytest.raises(OptionError, match="domain"):
            ko.SmoothLoss(value, gradient, hessian, domain=domain)
    with pytest.raises(OptionError, match="gradient"):
        ko.SmoothLoss(value, 3.0, hessian)


@pytest.mark.later
def test_where_it_cant_stand():
    theta, b = ko.Theta(KERNEL), cp.Variable()
    term = squared()(theta(X), Y)
    with pytest.raises(DCPError, match="Write ko.Problem"):
        cp.Problem(cp.Minimize(cp.sum(squared()(b + np.zeros(3), np.ones(3))))).solve()
    with pytest.raises(DCPError):
        ko.Problem(cp.Maximize(cp.sum(term) - ko.sum_squares(theta))).solve()
    with pytest.raises(ko.errors.RepresenterError, match="norm"):
        ko.Problem(cp.Minimize(cp.sum(squared()(cp.norm(theta(X)) + ko.norm(theta), 1.0)))).solve()
    with pytest.raises(SolverError, match="summed in the minimized objective"):
        ko.Problem(cp.Minimize(ko.sum_squares(theta)), [cp.sum(term) <= 3]).solve()
    largest = cp.sum_largest(cp.square(theta(X)), 3)
    with pytest.raises(SolverError, match="with SmoothLoss and sum_largest"):
        ko.Problem(cp.Minimize(cp.sum(term) + ko.sum_squares(theta)), [largest <= 1]).solve()
    sizes = cp.sum_largest(cp.abs(theta(X)), 3)  # of lines, which are taken apart
    beside = ko.Problem(cp.Minimize(cp.sum(term) + ko.sum_squares(theta)), [sizes <= 1])
    beside.solve()
    plain = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - Y) + ko.sum_squares(theta)), [sizes <= 1])
    assert beside.status == "optimal" and sizes.value <= 1 + 1e-9
    assert beside.value == pytest.approx(plain.solve(), rel=1e-6)
    z = cp.Variable(integer=True)
    with pytest.raises(SolverError, match="integer variables with"):
        ko.Problem(cp.Minimize(cp.sum(squared()(theta(X) + z, Y)) + ko.sum_squares(theta))).solve()
    with pytest.raises(SolverError, match="norm"):
        ko.Problem(cp.Minimize(cp.sum(term))).solve()


COUPLED = {
    "a ball of predictions": lambda f: (0, [cp.norm(f) <= 3]),
    "a cone": lambda f: (0, [cp.norm(f[:4] - 1) <= 0.2 + f[5]]),
    "a log-sum-exp that is slack": lambda f: (0, [cp.log_sum_exp(f) <= 20]),
    "a largest residual": lambda f: (3 * cp.max(cp.abs(f - Y[:25])), []),
    "a length": lambda f: (2 * cp.norm(f - Y[:25]), []),
}


@pytest.mark.parametrize("name", COUPLED)
def test_beside_what_couples_rows(name):
    """The same values and proofs as of the loss in cvxpy's atoms."""
    values = []
    in_atoms = lambda f, y: cp.norm(cp.vstack([f - y, np.ones(25)]), axis=0) - 1
    for loss in (pseudo_huber(), in_atoms):
        theta, b = ko.Theta(KERNEL), cp.Variable()
        f = theta(X[:25]) + b
        extra, constraints = COUPLED[name](f)
        objective = WEIGHTS[:25] @ loss(f, Y[:25]) + extra + 0.3 * ko.sum_squares(theta)
        problem = ko.Problem(cp.Minimize(objective), constraints)
        values.append(problem.solve())
        assert problem.status == "optimal" and problem.verify().passed
    assert values[0] == pytest.approx(values[1], rel=1e-6)


@pytest.mark.slow
def test_infeasible_and_undecided():
    theta = ko.Theta(KERNEL)
    term = cp.sum(squared()(theta(X), Y)) + ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(term), [theta(X[:1]) >= 1, theta(X[:1]) <= 0])
    problem.solve()
    assert problem.status == "infeasible"
    line = ko.SmoothLoss(lambda u: u, np.ones_like, np.zeros_like)
    theta, b = ko.Theta(KERNEL), cp.Variable()
    unbounded = ko.Problem(cp.Minimize(cp.sum(line(theta(X) + b)) + ko.sum_squares(theta)))
    unbounded.solve()
    assert unbounded.status in ("user_limit", "optimal_inaccurate")


# ---------------------------------------------------------------- JAX


def test_without_jax(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "jax", None)
    with pytest.raises(ImportError, match=r"from_jax needs jax: pip install"):
        ko.SmoothLoss.from_jax(lambda u: u)


@pytest.mark.slow
def test_from_jax():
    import jax.numpy as jnp  # noqa: PLC0415

    def my_logistic(u, y):
        return jnp.logaddexp(0.0, -y * u)

    loss = ko.SmoothLoss.from_jax(my_logistic)
    assert "my_logistic" in repr(loss)
    values = []
    for term in (lambda f: loss(f, LABELS), lambda f: losses.log_loss(LABELS, f)):
        theta, b = ko.Theta(KERNEL), cp.Variable()
        problem = ko.Problem(cp.Minimize(cp.sum(term(theta(X) + b)) + 0.1 * ko.sum_squares(theta)))
        values.append(problem.solve())
        assert problem.status == "optimal"
    assert values[0] == pytest.approx(values[1], rel=1e-7)


# ---------------------------------------------------------------- nonconvex losses


def sigmoid():
    """(tanh u − y)²."""

    def hessian(u, y):
        t = np.tanh(u)
        return 2 * (1 - t**2) ** 2 - 4 * (t - y) * t * (1 - t**2)

    return ko.SmoothLoss(
        lambda u, y: (np.tanh(u) - y) ** 2, lambda u, y: 2 * (np.tanh(u) - y) * (1 - np.tanh(u) ** 2), hessian,
        curvature="nonconvex",
    )  # fmt: skip


def wells():
    """(u² − 1)²: minima at −1 and 1, a maximum at 0."""
    return ko.SmoothLoss(
        lambda u: (u**2 - 1) ** 2, lambda u: 4 * u * (u**2 - 1), lambda u: 12 * u**2 - 4, curvature="nonconvex"
    )


def sigmoid_problem(lam=0.02, extra=lambda theta, b: (0, [])):
    theta, b = ko.Theta(KERNEL), cp.Variable(name="b")
    objective, constraints = extra(theta, b)
    term = cp.sum(sigmoid()(3 * theta(X) + b, LABELS))
    return ko.Problem(cp.Minimize(term + lam * ko.sum_squares(theta) + objective), constraints), theta, b


@pytest.mark.slow
def test_local_optima_are_those_of_the_explicit_problem():
    """minimize Σ (tanh(3(Qα)ᵢ + b) − yᵢ)² + λαᵀQα by scipy, from several starts."""
    Q, lam = KERNEL(X), 0.02

    def explicit(z):
        u = Q @ z[:N]
        t = np.tanh(3 * u + z[N])
        slope = 2 * (t - LABELS) * (1 - t**2)
        gradient = np.append(Q @ (3 * slope + 2 * lam * z[:N]), slope.sum())
        return np.sum((t - LABELS) ** 2) + lam * z[:N] @ u, gradient

    rng = np.random.default_rng(1)
    options = {"maxiter": 3000, "maxfun": 5000, "ftol": 1e-15, "gtol": 1e-8}
    starts = [np.zeros(N + 1), *(0.3 * rng.standard_normal((3, N + 1)))]
    found = [minimize(explicit, z, jac=True, method="L-BFGS-B", options=options).fun for z in starts]
    problem, theta, _ = sigmoid_problem(lam)
    assert problem.solve(n_init=6, random_state=0) <= min(found) * (1 + 1e-6)
    assert problem.status == "locally_optimal"
    assert problem.certificate is None
    assert problem.solver_stats.solver_name == "LEVENBERG_MARQUARDT"
    assert len(problem.solver_stats.attempts) >= 6
    report = problem.verify()
    assert report.passed and report["gradient"].number < 1e-4 and report["curvature"].number < 1e-6
    told = str(problem.explain())
    assert "locally_optimal" in told and "no certificate" in told
    with pytest.raises(KernelOptError, match="certificate"):
        problem.certificate_at({})
    good = ko.Function(KERNEL, theta.value.centers, theta.value.coefficients)
    theta.value = good
    assert problem.verify()["gradient"].passed
    theta.value = ko.Function(KERNEL, theta.value.centers, 1.1 * good.coefficients)
    assert problem.verify()["gradient"].passed is False
    assert theta.value.norm == pytest.approx(1.1 * good.norm)


def test_the_objective_never_increases(capsys):
    problem, _, _ = sigmoid_problem(1e-3)
    problem.solve(verbose=True, rank_tol=1e-8)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    values = [float(row[2]) for row in rows if len(row) == 7 and row[0].isdigit()]
    assert len(values) > 5
    assert (np.diff(values) <= 1e-9 * np.abs(values[0])).all()


def test_negative_curvature_leads_away_from_a_saddle():
    """θ = 0 has no gradient."""
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum(wells()(theta(X))) + 0.01 * ko.sum_squares(theta)))
    problem.solve()
    assert problem.status == "locally_optimal"
    assert problem.value < 0.5 * N
    assert theta.value.norm > 0.1
    report = problem.verify()
    assert report["curvature"].passed
    theta.value = ko.Function(KERNEL, theta.value.centers, 1e-9 * theta.value.coefficients)
    audit = problem.verify()
    assert audit["curvature"].passed is False


@pytest.mark.slow
def test_starts():
    """theta.value is a start; random ones are reproducible and keep the best."""
    theta = ko.Theta(KERNEL)
    u = theta(np.zeros((1, 2)))
    problem = ko.Problem(cp.Minimize(cp.sum(wells()(u)) - 0.3 * cp.sum(u) + 0.01 * ko.sum_squares(theta)))
    for side in (1.0, -1.0):
        theta.value = ko.Function(KERNEL, np.zeros((1, 2)), [0.8 * side])
        problem.solve()
        assert problem.status == "locally_optimal"
        assert np.sign(u.value) == side  # the right well is deeper, but far
    left = problem.value
    values = [problem.solve(n_init=10, random_state=s) for s in (3, 3, np.random.default_rng(3))]
    assert values[0] == values[1] == values[2] < left
    theta.value = ko.Function(KERNEL, np.zeros((1, 2)), [-0.8])
    assert problem.solve(warm_start=False) == pytest.approx(values[0], rel=1e-9)
    outcomes = []
    for _ in range(2):
        other, function, _ = sigmoid_problem(1e-3)
        other.solve(n_init=4, random_state=5)
        outcomes.append((other.value, function.value.norm))
    assert outcomes[0] == outcomes[1]


@pytest.mark.later
def test_nonconvex_beside_convex_smooth_terms():
    def extra(theta, b):
        return WEIGHTS @ ko.losses.log_loss(LABELS, theta(X)) + cp.sum(logistic()(theta(X), LABELS)) + 0.1 * b**2, []

    problem, theta, b = sigmoid_problem(extra=extra)
    problem.solve()
    assert problem.status == "locally_optimal"
    base = problem.value
    for _ in range(5):  # no function nearby is better
        centers = np.concatenate([theta.value.centers, X])
        near = ko.Function(KERNEL, centers, np.append(theta.value.coefficients, 1e-3 * RNG.normal(size=N)))
        f = near(X)
        value = np.sum((np.tanh(3 * f + b.value) - LABELS) ** 2) + 0.02 * near.norm**2 + 0.1 * b.value**2
        value += WEIGHTS @ np.logaddexp(0, -LABELS * f) + np.sum(np.logaddexp(0, -LABELS * f))
        assert value > base


@pytest.mark.slow
def test_solvers_of_nonconvex_losses():
    problem, theta, _ = sigmoid_problem()
    assert problem.solvers().applicable == ["LEVENBERG_MARQUARDT", "PROXIMAL_LINEARIZATION"]
    with pytest.raises(SolverError, match="declared nonconvex.*Solvers that take the problem: LEVENBERG_MARQUARDT"):
        problem.solve(solver="NEWTON")
    convex = ko.Problem(cp.Minimize(cp.sum(squared()(theta(X), Y)) + ko.sum_squares(theta)))
    with pytest.raises(SolverError, match="declared nonconvex"):
        convex.solve(solver="LEVENBERG_MARQUARDT")
    for options in ({"n_init": 0}, {"n_init": 1.5}, {"random_state": "a"}, {"random_state": -1}):
        with pytest.raises(OptionError, match=next(iter(options))):
            problem.solve(**options)
    with pytest.raises(DCPError):
        ko.Problem(cp.Maximize(cp.sum(wells()(theta(X))) - ko.sum_squares(theta))).solve()


@pytest.mark.later
def test_limits_of_local_searches():
    problem, _, _ = sigmoid_problem()
    problem.solve(time_limit=1e-9)
    assert problem.status == "user_limit"
    problem.solve(max_rank=3)
    assert problem.status == "user_limit"
    assert problem.verify()["gradient"].passed is False
    problem.solve()
    assert problem.status == "locally_optimal"


@pytest.mark.parametrize(("gradient", "curvature"), [(2e-4, 0.0), (0.0, -0.1)])
def test_conditions_of_a_local_optimum(gradient, curvature):
    """The gradient is as small as √tol asks for, and the curvature is not negative."""
    assert Conditions(0.9e-4, 1.0).hold(1e-6)
    assert not Conditions(gradient, curvature).hold(1e-6)
    assert Conditions(gradient, 1.0).hold(1e-4)


def local_work(problem, **options):
    """The search for a local optimum of a problem with a factor of full rank."""
    form = problem._private_form()
    reduction = refine.reduced(form, Step(factor_options()), {}).reduction
    return local_optima.begin(problem._outer(), ["LEVENBERG_MARQUARDT"], reduction, Goal(1e-6, **options))


def test_a_gradient_is_relative_to_its_terms(monkeypatch):
    """Two rows that are nearly equal pull in opposite directions: what remains of their multipliers is small."""
    monkeypatch.setattr(local_optima.engines, "smallest_curvature", lambda *_: 1.0)
    theta = ko.Theta(KERNEL)
    term = cp.sum(sigmoid()(theta(np.array([[0.0], [1e-4]])), np.array([0.5, -0.5])))
    work = local_work(ko.Problem(cp.Minimize(term + ko.sum_squares(theta))))
    at_zero = Iterate((np.zeros(1),), (), (np.zeros(2),), np.zeros(1))
    found = local_optima.conditions(work.task.reduction, work.outer, at_zero)
    assert found.gradient == pytest.approx(1e-4 / np.sqrt(2), rel=1e-3)


def test_random_starts_of_many_sizes():
    """From a tenth to ten times the unit of the predictions; seconds are counted from each start."""
    work = local_work(sigmoid_problem()[0], n_init=200, random_state=0)
    sizes = [np.sqrt(np.mean(np.square(work._drawn().v[0]))) / work.outer.form.units[0] for _ in range(200)]
    assert 0.05 < min(sizes) < 0.2 and 5 < max(sizes) < 20
    assert 0.5 < np.median(sizes) < 2
    work.attempt(next(work.plans()))
    assert 0 < work.attempts[0].seconds < 60


@pytest.mark.later
@pytest.mark.parametrize("seed", range(6))
def test_drawn_robust_losses(seed):
    """log(1 + (u − y)²) and 1 − exp(−(u − y)²/2), repeated rows, penalties of any size."""
    rng = np.random.default_rng(seed)
    cauchy = (
        lambda u, y: np.log1p((u - y) ** 2),
        lambda u, y: 2 * (u - y) / (1 + (u - y) ** 2),
        lambda u, y: 2 * (1 - (u - y) ** 2) / (1 + (u - y) ** 2) ** 2,
    )
    welsch = (
        lambda u, y: 1 - np.exp(-((u - y) ** 2) / 2),
        lambda u, y: (u - y) * np.exp(-((u - y) ** 2) / 2),
        lambda u, y: (1 - (u - y) ** 2) * np.exp(-((u - y) ** 2) / 2),
    )
    loss = ko.SmoothLoss(*(cauchy, welsch)[seed % 2], curvature="nonconvex")
    rows = rng.integers(N, size=int(rng.integers(2, 2 * N)))
    theta, b = ko.Theta(KERNEL), cp.Variable()
    f = theta(X[rows]) + b if seed % 3 else theta(X[rows])
    problem = ko.Problem(cp.Minimize(cp.sum(loss(f, Y[rows])) + 10 ** rng.uniform(-6, 2) * ko.sum_squares(theta)))
    problem.solve(n_init=2, random_state=seed)
    assert problem.status == "locally_optimal"
    assert problem.verify().passed


@pytest.mark.slow
def test_a_small_norm_that_is_no_square_beside_constraints():
    """The interior point takes full steps where stationarity is down to rounding."""
    y = 0.3 * Y / np.abs(Y).max()
    values = []
    for loss in (lambda f: squared()(f, y), lambda f: losses.squared_error(y, f)):
        theta = ko.Theta(KERNEL)
        f = theta(X)
        problem = ko.Problem(cp.Minimize(WEIGHTS @ loss(f) + 2e-5 * ko.norm(theta)), [f <= 0.2])
        values.append(problem.solve())
        assert problem.status == "optimal"
        assert problem.solver_stats.num_iters < 200
    assert values[0] == pytest.approx(values[1], rel=1e-6)


# ---------------------------------------------------------------- JAX, again


def of_jax(u, y):
    import jax.numpy as jnp  # noqa: PLC0415

    return jnp.logaddexp(0.0, -y * u)


@pytest.mark.slow
def test_from_jax_pickles():
    loss = ko.SmoothLoss.from_jax(of_jax)
    theta, b = ko.Theta(KERNEL), cp.Variable()
    problem = ko.Problem(cp.Minimize(cp.sum(loss(theta(X) + b, LABELS)) + 0.1 * ko.sum_squares(theta)))
    value = problem.solve()
    again = pickle.loads(pickle.dumps(problem))
    assert again.solve() == pytest.approx(value, rel=1e-9)
    assert pickle.loads(pickle.dumps(ko.SmoothLoss.from_jax(of_jax))).name == "of_jax"


@pytest.mark.parametrize("function", [lambda u: np.exp(u), lambda u: u if u > 0 else 0.0])
def test_from_jax_says_what_jax_can_not_do(function):
    loss = ko.SmoothLoss.from_jax(function)
    with pytest.raises(OptionError, match=r"Write it with jax\.numpy"):
        loss(ko.Theta(KERNEL)(X))


@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e-5, 1e-8])
def test_values_that_round_by_more_than_their_size(unit):
    """log cosh e ≈ ½e² of small residuals is a difference of numbers near log 2: the interval holds what that loses."""
    loss = ko.SmoothLoss(
        lambda u, y: np.logaddexp(u - y, y - u) - np.log(2), lambda u, y: np.tanh(u - y),
        lambda u, y: 1 - np.tanh(u - y) ** 2,
    )  # fmt: skip
    theta, y = ko.Theta(KERNEL), unit * Y
    problem = ko.Problem(cp.Minimize(cp.sum(loss(theta(X), y)) + 0.1 * ko.sum_squares(theta)))
    problem.solve()
    if unit == 1.0:
        assert problem.status == "optimal"
        return
    squares = 0.1 * y @ np.linalg.solve(KERNEL(X) + 0.2 * np.eye(N), y)
    room = 2 * unit**2 * squares  # the next term of the series
    assert problem.certificate.lower - room <= squares <= problem.certificate.upper + room


@pytest.mark.later
@pytest.mark.parametrize("norm", [ko.sum_squares, ko.norm])
@pytest.mark.parametrize("weight", [1.0, 1e-2])
def test_slopes_without_a_bound_beside_slopes_of_zero(norm, weight):
    """max(0, 1 − yu)³: where its slope is 0, its multiplier is, too, however large other slopes are."""
    labels = np.where(Y > 0, 1.0, -1.0)
    loss = ko.SmoothLoss(
        lambda u, y: np.maximum(1 - u * y, 0) ** 3, lambda u, y: -3 * y * np.maximum(1 - u * y, 0) ** 2,
        lambda u, y: 6 * y**2 * np.maximum(1 - u * y, 0),
    )  # fmt: skip
    values = []
    for stated in (loss, lambda f, y: cp.power(cp.pos(1 - cp.multiply(y, f)), 3)):
        theta, b = ko.Theta(KERNEL), cp.Variable()
        problem = ko.Problem(cp.Minimize(cp.sum(stated(theta(X) + b, labels)) + weight * norm(theta)))
        values.append(problem.solve())
        assert problem.status == "optimal"
    assert values[0] == pytest.approx(values[1], rel=1e-5)


@pytest.mark.later
@pytest.mark.parametrize("seed", [0, 2, 4, 6])
def test_a_search_for_the_norm_begins_again_where_its_start_misleads(seed):
    """A domain, a bound that is active and a small ‖θ‖: from the last R's answer engines end outside of the bound."""
    y, weights = np.array([0.083, 1.007, 0.527]), np.array([1.88, 0.44, 0.98])
    loss = ko.SmoothLoss(
        lambda u, y: u - y * np.log(u), lambda u, y: 1 - y / u, lambda u, y: y / u**2, domain=(0, np.inf)
    )  # fmt: skip
    theta = ko.Theta(ko.kernels.Gaussian(sigma=0.5**0.5))
    f = theta(np.random.default_rng(seed).normal(size=(3, 2)))
    problem = ko.Problem(cp.Minimize(weights @ loss(f, y) + 0.001 * ko.norm(theta)), [f <= 0.8])
    problem.solve()
    assert problem.status == "optimal"
    assert [attempt.claimed for attempt in problem.solver_stats.attempts] == ["optimal"]


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_a_loss_with_one_slope(unit):
    """y·u: its conjugate is finite at the slope alone; ½λ‖θ‖² + yᵀf has the optimum −yᵀQy/2λ."""
    theta = ko.Theta(KERNEL)
    linear = ko.SmoothLoss(lambda u, y: y * u, lambda u, y: y + 0 * u, lambda u, y: 0 * u)
    problem = ko.Problem(cp.Minimize(cp.sum(linear(theta(X), unit * Y)) + 0.5 * ko.sum_squares(theta)))
    problem.solve()
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(-0.5 * unit**2 * Y @ KERNEL(X, X) @ Y, rel=1e-7)


def test_rows_of_weight_0_beside_slopes_without_an_end():
    """The multiplier of such a row is 0, where 0·∞ is the end of the slopes of exp."""
    weights, own = (WEIGHTS > 1) * WEIGHTS, ko.SmoothLoss(*(3 * [lambda u, y: np.exp(u - y)]))
    values = []
    for loss in (own, lambda f, y: cp.exp(f - y)):
        theta = ko.Theta(KERNEL)
        problem = ko.Problem(cp.Minimize(weights @ loss(theta(X), Y) + 0.2 * ko.sum_squares(theta)))
        values.append(problem.solve())
        assert problem.status == "optimal" and problem.verify().passed
    assert values[0] == pytest.approx(values[1], rel=1e-6)


@pytest.mark.parametrize("with_intercept", [False, True])
def test_a_loss_with_one_slope_beside_constraints(with_intercept):
    """Its multipliers have no room to move: neither engines nor the proof may take them off their slope."""
    values, scale = [], 1e3
    own = ko.SmoothLoss(lambda u, y: scale * y * u, lambda u, y: scale * y + 0 * u, lambda u, y: 0 * u)
    for loss in (own, lambda f, y: scale * cp.multiply(y, f)):
        theta = ko.Theta(ko.kernels.Linear())
        f = theta(X) + (cp.Variable() if with_intercept else 0)
        problem = ko.Problem(cp.Minimize(WEIGHTS @ loss(f, Y) + ko.sum_squares(theta)), [f <= 1, f >= -3])
        values.append(problem.solve())
        assert problem.status == "optimal"
    assert values[0] == pytest.approx(values[1], rel=1e-7)


@pytest.mark.parametrize("steep", [1e3, 1e7, 1e9])
def test_derivatives_steeper_than_the_steps_of_differences(steep):
    """log(1 + exp(s·(u − y))) bends within 1/s, which no difference with the data's step resolves."""
    value = lambda u, y: np.logaddexp(0, steep * (u - y))
    gradient = lambda u, y: steep * expit(steep * (u - y))
    hessian = lambda u, y: steep**2 * expit(steep * (u - y)) * expit(-steep * (u - y))
    ko.SmoothLoss(value, gradient, hessian)(ko.Theta(KERNEL)(X), Y)
    for wrong in (lambda u, y: -gradient(u, y), lambda u, y: 1.01 * gradient(u, y)):
        with pytest.raises(DataError, match="gradient"):
            ko.SmoothLoss(value, wrong, hessian)(ko.Theta(KERNEL)(X), Y)


@pytest.mark.parametrize("jump", [1e-3, 1.0, 100.0])
def test_pieces_that_do_not_meet(jump):
    """A constant was forgotten in one piece; the derivatives are right on both."""
    loss = ko.SmoothLoss(lambda u, y: (u - y) ** 2 + jump * (u > y), lambda u, y: 2 * (u - y), lambda u, y: 2 + 0 * u)
    with pytest.raises(DataError, match=r"to be continuous; .* its value jumps from .*Pieces of a loss must meet"):
        loss(ko.Theta(ko.kernels.Gaussian(sigma=1.0))(np.arange(4.0)[:, None]), np.array([3.0, 0.0, 4.0, 1.0]))


@pytest.mark.parametrize("at", [0.03, 0.5, 1.2, -0.7])
def test_pieces_that_do_not_meet_between_the_points_of_the_check(at):
    loss = ko.SmoothLoss(lambda u, y: (u - y) ** 2 - 5 * (u > y + at), lambda u, y: 2 * (u - y), lambda u, y: 2 + 0 * u)
    with pytest.raises(DataError, match=r"declared convex, to change by .* as its gradients say.*Pieces of a loss"):
        loss(ko.Theta(ko.kernels.Gaussian(sigma=1.0))(np.arange(4.0)[:, None]), np.array([3.0, 0.0, 4.0, 1.0]))


@pytest.mark.parametrize("are_parameters", [False, True])
def test_rows_of_weight_zero_keep_their_domain(are_parameters):
    """As those of cvxpy's atoms do."""
    X, targets, weights = np.linspace(-2, 2, 12)[:, None], np.linspace(-1, 3, 12), np.append(np.zeros(3), np.ones(9))
    own = ko.SmoothLoss(lambda u: -np.log(u), lambda u: -1 / u, lambda u: 1 / u**2, domain=(0, np.inf))
    values = []
    for loss in (own, lambda f: -cp.log(f)):
        theta, w = ko.Theta(ko.kernels.Gaussian(sigma=0.7)), cp.Parameter(12, nonneg=True, value=weights)
        f = theta(X)
        losses = (w if are_parameters else weights) @ loss(f)
        problem = ko.Problem(cp.Minimize(losses + cp.sum_squares(f - targets) + 0.1 * ko.sum_squares(theta)))
        values.append(problem.solve())
        assert f.value.min() >= -1e-8
    assert values[0] == pytest.approx(values[1], rel=1e-6)


def test_a_loss_that_solves_its_own_problem():
    theta, stated = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), []

    def value(u, y):
        for problem in stated:
            problem.solve()
        return 0.5 * (u - y) ** 2

    loss = ko.SmoothLoss(value, lambda u, y: u - y, lambda u, y: np.ones_like(u))
    terms = loss(theta(np.arange(4.0)[:, None]), np.arange(4.0))
    problem = ko.Problem(cp.Minimize(cp.sum(terms) + ko.sum_squares(theta)))
    stated.append(problem)
    with pytest.raises(KernelOptError, match="do not solve the problem in which they stand"):
        problem.solve()
    stated.clear()
    assert problem.solve() > 0
