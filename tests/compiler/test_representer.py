"""The substitution θ = Cᵀw, and its inverse."""

from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
from inside import point_of, reduction_of
from stating import TIGHT

import kernelopt as ko
from kernelopt.compiler import representer, residuals, violations
from kernelopt.compiler.attributes import dense, integral, nearest, rounded
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.residuals import residual
from kernelopt.errors import KernelOptError
from kernelopt.factorization import METHODS

pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
RNG = np.random.default_rng(0)
X, y = RNG.normal(size=(30, 2)), RNG.normal(size=30)
POLYNOMIAL, GAUSSIAN = ko.kernels.Polynomial(degree=2), ko.kernels.Gaussian(sigma=1.0)
F = POLYNOMIAL.features


def test_a_quadratic_program_stays_one():
    theta = ko.Theta(GAUSSIAN)
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.absolute_error(y, theta(X))) + ko.sum_squares(theta)))
    assert problem.is_qp()
    assert problem.reduced_problem.is_qp()
    twice = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - y) + 2 * ko.norm(theta) ** 2))
    assert twice.is_qp()


def test_one_dense_constraint_a_link():
    theta = ko.Theta(GAUSSIAN)
    f = theta(X)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(f - y) + ko.sum_squares(theta)), [f >= -1, cp.sum(f) == 0])
    reduced = problem.reduced_problem
    rank = reduction_of(problem).factors[theta].rank
    dense = [c for c in reduced.constants() if c.size == 30 * rank]
    assert len(dense) == 1


def test_thetas_that_share_kernel_and_rows_share_a_factor():
    one, two, other = ko.Theta(GAUSSIAN), ko.Theta(GAUSSIAN, name="φ"), ko.Theta(POLYNOMIAL, name="ψ")
    norms = ko.norm(one) + ko.norm(two) + ko.norm(other)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(one(X) + two(X) + other(X) - y) + norms))
    problem.solve()
    factors = reduction_of(problem).factors
    assert factors[one] is factors[two]
    assert factors[one] is not factors[other]
    assert "shared" in str(problem.explain())


@pytest.mark.slow
@pytest.mark.one_row
@pytest.mark.parametrize("kind", [None, "fro", "nuc", 2])
@pytest.mark.parametrize("squared", [False, True])
def test_distance_to_a_fitted_function(kind, squared):
    """‖θ − f₀‖ with f₀ outside the span of the data, alone and beside ‖θ‖."""
    rng = np.random.default_rng(0)  # a state of its own: for some draws the explicit problem is solved to 1e-4 only
    K = None if kind is None else 2
    Y = y if K is None else np.column_stack([y, -y[::-1]])
    points, centers = X[:4], rng.normal(size=(3, 2))
    c = rng.normal(size=3 if K is None else (3, K))
    f0, theta = ko.Function(POLYNOMIAL, centers, c), ko.Theta(POLYNOMIAL, outputs=K)
    form = (lambda n: cp.square(n)) if squared else (lambda n: n)
    Y = Y[:4]
    value = ko.Problem(
        cp.Minimize(cp.sum_squares(theta(points) - Y) + form(ko.norm(theta - f0, kind)) + 0.1 * ko.sum_squares(theta)),
    ).solve("CLARABEL", **TIGHT)

    t, t0 = cp.Variable((6,) if K is None else (6, K)), F(centers).T @ c
    norm = {None: cp.norm, "fro": lambda m: cp.norm(m, "fro"), "nuc": cp.normNuc, 2: cp.sigma_max}[kind]
    explicit = cp.Problem(cp.Minimize(cp.sum_squares(F(points) @ t - Y) + form(norm(t - t0)) + 0.1 * cp.sum_squares(t)))
    explicit.solve("CLARABEL", **TIGHT)
    assert abs(value - explicit.value) < 1e-7 * max(1, explicit.value)
    x = rng.normal(size=(5, 2))
    expected = F(x) @ t.value
    assert np.abs(theta.value(x) - expected).max() < 1e-4 * np.abs(expected).max()
    assert np.isclose(ko.norm(theta - f0, kind).value, norm(t.value - t0).value, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_fitted_function_away_from_the_data_only_costs_what_it_is():
    """Nothing but ‖θ − f₀‖: the optimum is f₀ itself, also at a rank that can't hold it."""
    theta = ko.Theta(GAUSSIAN)
    f0 = ko.Function(GAUSSIAN, [[8.0, 8.0]], [2.0])
    problem = ko.Problem(cp.Minimize(ko.norm(theta - f0) + 0 * cp.sum(theta(X))))
    assert problem.solve() < 1e-6
    assert problem.solve(max_rank=1) == pytest.approx(2.0, abs=1e-6)  # exact for the θ that it returns
    assert ko.norm(theta - f0).value == pytest.approx(2.0, abs=1e-6)


def test_inner_products_in_constraints():
    f0, theta = ko.Function(POLYNOMIAL, X[:2], [1.0, -1.0]), ko.Theta(POLYNOMIAL)
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [f0.inner(theta) == 3.0])
    assert problem.solve() == pytest.approx(9 / f0.norm**2, rel=1e-6)
    assert np.isclose(theta.inner(f0).value, 3.0)
    assert np.allclose(theta.value(X), f0(X) * 3 / f0.norm**2, atol=1e-6)


@pytest.mark.slow
def test_combinations_of_outputs():
    theta = ko.Theta(POLYNOMIAL, outputs=3)
    M = RNG.normal(size=(3, 2))
    Y = RNG.normal(size=(30, 2))
    norms = ko.norm(theta @ M, "nuc") + ko.norm(theta[:, 0]) + ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(cp.sum_squares((theta @ M)(X) - Y) + norms))
    t = cp.Variable((6, 3))
    explicit = cp.Problem(
        cp.Minimize(cp.sum_squares(F(X) @ t @ M - Y) + cp.normNuc(t @ M) + cp.norm(t[:, 0]) + cp.sum_squares(t))
    )
    assert abs(problem.solve("CLARABEL", **TIGHT) - explicit.solve("CLARABEL", **TIGHT)) < 1e-6
    assert np.abs(theta.value(X) - F(X) @ t.value).max() < 1e-5


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("max_rank", [None, 5])
def test_low_rank_is_a_restriction(method, max_rank):
    """Value, predictions and norm are those of the θ that is returned, recomputed from the kernel."""
    theta, lam = ko.Theta(GAUSSIAN), 0.1
    problem = ko.Problem(
        cp.Minimize(cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta)), [ko.norm(theta) <= 5, theta(X) >= -1]
    )
    value = problem.solve(max_rank=max_rank, factorization=method)
    f = theta.value
    fresh = ko.Function(f.kernel, f.centers, f.coefficients)
    assert np.isclose(fresh.norm, f.norm, rtol=1e-6)
    assert np.isclose(np.sum((y - fresh(X)) ** 2) + lam * fresh.norm**2, value, rtol=1e-8)
    assert fresh(X).min() > -1 - 1e-6
    if max_rank:
        assert problem.solve() <= value + 1e-8


@pytest.mark.later
@pytest.mark.parametrize("method", METHODS)
def test_both_factors_give_one_answer(method):
    theta = ko.Theta(GAUSSIAN)
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.huber(y, theta(X))) + 0.1 * ko.sum_squares(theta)))
    reference = problem.solve("CLARABEL", **TIGHT)
    predictions = theta.value(X)
    assert np.isclose(problem.solve("CLARABEL", factorization=method, **TIGHT), reference, rtol=1e-7)
    assert np.abs(theta.value(X) - predictions).max() < 1e-5
    assert len(theta.value.pivots) == (30 if method == "eigen" else len(theta.value.pivot_coefficients))


def test_fitted_function():
    theta = ko.Theta(GAUSSIAN)
    labels = np.where(y > 0, 1, -1)
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(labels, theta(X))) + 0.1 * ko.sum_squares(theta)))
    problem.solve("CLARABEL", rank_tol=1e-13, **TIGHT)
    f = theta.value
    assert np.array_equal(f.centers, X[f.pivots])
    assert np.array_equal(f.coefficients, f.pivot_coefficients)
    assert np.isclose(f.norm, ko.Function(GAUSSIAN, f.centers, f.coefficients).norm, rtol=1e-6)
    # the multipliers imply the same function, on the support vectors
    nu, g = theta(X).dual_value, f.expanded(threshold=1e-6)
    assert np.allclose(g(X), f(X), atol=1e-5)
    assert len(g.centers) == (np.abs(nu) > 1e-6 * np.abs(nu).max()).sum() < 30
    assert np.allclose(g.coefficients, nu[np.abs(nu) > 1e-6 * np.abs(nu).max()] / (2 * 0.1), atol=1e-5)
    assert np.allclose(f.from_gram(GAUSSIAN(X, f.centers)), f(X))


@pytest.mark.slow
def test_expanded_where_theta_is_no_multiple_of_the_multipliers():
    theta = ko.Theta(GAUSSIAN)
    ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)))).solve()
    with pytest.raises(KernelOptError, match="not a multiple"):
        theta.value.expanded()
    matrix = ko.Theta(GAUSSIAN, outputs=2)
    ko.Problem(cp.Minimize(cp.sum_squares(np.c_[y, y] - matrix(X)) + ko.norm(matrix, "nuc"))).solve()
    with pytest.raises(KernelOptError, match="not a multiple"):
        matrix.value.expanded()
    frobenius = ko.Problem(cp.Minimize(cp.sum_squares(np.c_[y, -y] - matrix(X)) + ko.sum_squares(matrix)))
    frobenius.solve("CLARABEL", rank_tol=1e-13, **TIGHT)
    assert np.allclose(matrix.value.expanded()(X), matrix.value(X), atol=1e-6)


@pytest.mark.later
def test_precomputed_round_trip():
    """Predictions for new points come from their kernel values with all training rows."""
    Q = GAUSSIAN(X)
    theta, plain = ko.Theta(ko.kernels.Precomputed((Q + Q.T) / 2)), ko.Theta(GAUSSIAN)
    for t, data in ((theta, np.arange(30)), (plain, X)):
        ko.Problem(cp.Minimize(cp.sum_squares(y - t(data)) + 0.1 * ko.sum_squares(t))).solve("CLARABEL", **TIGHT)
    x = RNG.normal(size=(4, 2))
    assert np.allclose(theta.value.from_gram(GAUSSIAN(x, X)), plain.value(x), atol=1e-7)
    assert np.allclose(theta(np.arange(30)).value, plain.value(X), atol=1e-7)


SPARSE = pytest.mark.filterwarnings("ignore:.*sparse CVXPY expression:RuntimeWarning")  # cvxpy's own
ATTRIBUTES = {
    "diag": {"diag": True},
    "diag, nonneg": {"diag": True, "nonneg": True},
    "diag, bounds": {"diag": True, "bounds": [-0.5, 0.5]},
    "symmetric": {"symmetric": True},
    "symmetric, bounds": {"symmetric": True, "bounds": [-0.5, 0.5]},
    "PSD": {"PSD": True},
    "NSD": {"NSD": True},
    "nonneg": {"nonneg": True},
    "nonpos": {"nonpos": True},
    "bounds": {"bounds": [np.array([[-0.2, -1.0], [0.0, 0.1]]), 1.0]},
    "bounded by a parameter": {"bounds": [-0.1, cp.Parameter(value=0.4)]},
    "sparsity": {"sparsity": [np.array([0, 1]), np.array([1, 1])]},
}
FOUR, OF_FOUR = np.arange(4.0)[:, None], np.array([1.0, -1.0, 2.0, 0.5])


def with_attributes(u, square, V):
    losses = cp.sum_squares(u - cp.vec(V, order="F")) + cp.sum_squares(u - OF_FOUR)
    return cp.Minimize(losses + square + 0.1 * cp.sum(cp.abs(V))), [V >= -1, cp.trace(V) <= 0.5, cp.sum(V) >= -2]


@pytest.mark.slow
@pytest.mark.one_row
@SPARSE
@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_of_variables_beside_constraints(name):
    theta, v = ko.Theta(GAUSSIAN), cp.Variable(4)
    V, W = (cp.Variable((2, 2), **ATTRIBUTES[name]) for _ in range(2))
    problem = ko.Problem(*with_attributes(theta(FOUR), ko.sum_squares(theta), V))
    explicit = cp.Problem(*with_attributes(np.linalg.cholesky(GAUSSIAN(FOUR)) @ v, cp.sum_squares(v), W))
    problem.solve()
    explicit.solve(solver="CLARABEL", **TIGHT)
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(explicit.value, rel=1e-6)
    assert type(V.value) is type(W.value)
    assert dense(V.value) == pytest.approx(dense(W.value), abs=1e-4)
    for ours, theirs in zip(problem.constraints, explicit.constraints, strict=True):
        assert dense(ours.dual_value) == pytest.approx(dense(theirs.dual_value), abs=1e-3)
        assert (dense(residual(ours)) <= 1e-8).all()
    assert problem.verify().passed
    assert problem.certificate_at({}).upper == pytest.approx(problem.value)


@pytest.mark.later
@pytest.mark.parametrize("name", ["PSD", "NSD"])
def test_a_variable_that_vanishes_is_within_its_attributes(name):
    """−7e-15 alone, where ≥ 0 is asked, was a violation of its own size."""
    theta, V = ko.Theta(GAUSSIAN), cp.Variable((2, 2), **ATTRIBUTES[name])
    loss, sign = cp.sum(cp.abs(theta(FOUR) - OF_FOUR)), -1 if name == "NSD" else 1
    problem = ko.Problem(cp.Minimize(loss + 0.3 * ko.sum_squares(theta) + sign * cp.trace(V)))
    problem.solve(solver="SCS")
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(3.323905797, rel=1e-6)
    assert np.abs(V.value).max() < 1e-6


def test_nearest_values():
    both = cp.Variable((2, 2), nonneg=True, bounds=[-1, 0.5])
    assert (nearest(both, np.array([[-1e-12, 0.3], [0.7, 0.5]])) == [[0.0, 0.3], [0.5, 0.5]]).all()
    assert nearest(cp.Variable((2, 2), PSD=True), np.diag([1.0, -1e-9])) == pytest.approx(
        np.diag([1.0, 0.0]), abs=1e-16
    )
    assert (nearest(cp.Variable((2, 2), diag=True), np.ones((2, 2))) == np.eye(2)).all()
    some = cp.Variable((2, 2), boolean=[(0, 1), (0, 1)])  # coordinates, an array for each axis
    assert (integral(some) == np.eye(2)).all()
    assert (rounded(some, np.array([[0.9, 0.4], [7.0, -3.0]])) == [[1.0, 0.4], [7.0, 0.0]]).all()
    assert rounded(cp.Variable(integer=True, bounds=[-0.5, 2]), np.array(-0.9)) == 0.0
    assert not integral(cp.Variable(3)).any()


@pytest.mark.parametrize(
    ("x", "y", "z", "violated"),
    [(1.0, 0.0, 5.0, 1.0), (-1.0, 0.0, 0.0, 0.0), (-1.0, 0.0, -0.5, 0.5), (0.0, 2.0, 2.0, 0.0), (0.0, 2.0, 1.5, 0.5),
     (-3.0, -1.0, 5.0, 1.0)],
)  # fmt: skip
def test_violations_of_exponential_cones(x, y, z, violated):
    """y·e^(x/y) ≤ z for y > 0; for y = 0 the cone has x ≤ 0 ≤ z."""
    variables = [cp.Variable(value=value) for value in (x, y, z)]
    assert residual(cp.ExpCone(*variables)) == pytest.approx(violated, abs=1e-15)


# Points and their parts


def test_the_unit_of_predictions_at_a_point():
    """Predictions that are negligible beside the data have their unit."""
    assert Iterate((), (), u=(np.array([3.0, -5.0]), np.zeros(2))).prediction_unit(100.0) == 5.0
    assert Iterate((), (), u=(np.array([1e-30]),)).prediction_unit(2.0) == 2.0


@pytest.mark.parametrize(("bounded", "costs"), [(True, False), (False, True), (False, False)])
def test_a_norm_that_is_bounded_or_costs_limits_theta(monkeypatch, bounded, costs):
    monkeypatch.setattr(representer, "_spans", lambda *_: False)
    monkeypatch.setattr(representer, "_is_bounded", lambda *_: bounded)
    monkeypatch.setattr(representer, "_costs", lambda *_: costs)
    link = SimpleNamespace(theta="θ")
    reduction = SimpleNamespace(form=SimpleNamespace(predictions=[link]), factors={"θ": None}, is_restriction=False)
    assert representer.may_lack(reduction) is not (bounded or costs)


def test_predictions_are_kept_where_kernel_values_give_them():
    """Those by a factor of low rank are not: at other rows they come from the kernel."""
    theta = ko.Theta(GAUSSIAN)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - y) + ko.sum_squares(theta)))
    problem.solve(max_rank=5)
    reduction, point = reduction_of(problem), point_of(problem)
    kept = [representer.invert(reduction, point, way)[0].functions[theta]._known for way in (False, True)]
    assert [len(predictions) for predictions in kept] == [0, 1]


def form_with_intercept():
    theta, b = ko.Theta(GAUSSIAN), cp.Variable()
    loss = cp.sum(cp.abs(theta(X) + b - y)) + 0.5 * b + ko.sum_squares(theta)
    return ko.Problem(cp.Minimize(loss), [theta(X) <= 1]).canonical_form()


def test_a_value_by_its_pieces():
    u = np.minimum(y, 1.0) / 2
    point = Iterate((), (np.array(0.75),), u=(u,), t=np.array([2.0]))
    expected = np.sum(np.abs(u + 0.75 - y)) + 0.5 * 0.75 + 4.0
    assert representer._value_of_pieces(form_with_intercept(), point) == pytest.approx(expected)


def test_violations_are_those_of_the_point():
    """Whatever values the variables have."""
    form = form_with_intercept()
    for size in (3.0, 0.5):
        point = Iterate((), (np.array(0.0),), u=(np.full(30, size),), t=np.array([2.0]))
        (violation,) = residuals.of_constraints(form, point)
        assert violation == pytest.approx(np.full(30, max(size - 1, 0)))


def test_a_norm_is_bounded_in_a_constraint():
    """A cost does not bound it."""
    first, second = ko.Theta(GAUSSIAN), ko.Theta(GAUSSIAN)
    loss = cp.norm1(first(X) + second(X) - y) + ko.norm(second)
    form = ko.Problem(cp.Minimize(loss), [ko.norm(first) <= 2, second(X) <= 1]).canonical_form()
    assert representer._is_bounded(form, first) and not representer._is_bounded(form, second)


def at_zero(cones, v):
    """‖f − y‖₁ + .1‖θ‖² + tr v for two rows that can be met: .005 at v = 0."""
    theta = ko.Theta(ko.kernels.Linear())
    trace = cp.trace(v) if v.ndim else v
    trace = cp.real(trace) if v.is_complex() else trace
    objective = cp.norm1(theta(np.eye(2)) - [0.1, 0.2]) + 0.1 * ko.sum_squares(theta) + trace
    return ko.Problem(cp.Minimize(objective), cones(v))


DEFINITE = {
    "symmetric": ({"symmetric": True}, lambda v: [v >> 0]),
    "negative": ({"symmetric": True}, lambda v: [-v << 0]),
    "diagonal": ({"diag": True}, lambda v: [v >> 0]),
    "hermitian": ({"hermitian": True}, lambda v: [v >> 0]),
    "none": ({}, lambda v: [v >> 0]),
}


@pytest.mark.one_row
@pytest.mark.parametrize("solver", [None, "CLARABEL"])
@pytest.mark.parametrize("name", DEFINITE)
def test_definite_variables_that_vanish(name, solver):
    """Relative to v ≈ 0 itself a solver's error is no small violation."""
    attributes, cones = DEFINITE[name]
    problem = at_zero(cones, cp.Variable((2, 2), **attributes))
    assert problem.solve(solver=solver) == pytest.approx(0.005, abs=3e-7)
    assert problem.status == "optimal"


@pytest.mark.slow
@pytest.mark.parametrize("solver", [None, "CLARABEL"])
def test_cones_whose_variables_cost_next_to_nothing(solver):
    """The point of a solver is 1e-10 outside; t and X count with the sizes that would cost as much as other terms."""
    X = cp.Variable((2, 2), symmetric=True)
    problem = at_zero(lambda t: [cp.lambda_max(X) <= t, cp.trace(X) >= 0], cp.Variable())
    assert problem.solve(solver=solver) == pytest.approx(0.005, abs=3e-7)
    assert problem.certificate.upper < np.inf


def test_violations_by_variables_of_no_cost():
    """|f| ≤ 1e9·s has a violation of 3 whatever s costs: f is no variable that vanishes."""
    theta, s = ko.Theta(ko.kernels.Linear()), cp.Variable(nonneg=True)
    f = theta(np.eye(2))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(f - 3) + 1e-3 * ko.sum_squares(theta) + s), [cp.abs(f) <= 1e9 * s])
    problem.solve()
    reduction = reduction_of(problem)
    point = representer.evaluate(reduction, Iterate((np.full(2, 3.0),), (np.zeros(()),)))
    assert violations.violation(reduction, point) > 0.1


@pytest.mark.slow
def test_a_given_matrix_of_low_rank():
    """It has a number of features, and no feature map. Only rounding could reach these values: solvers say infeasible,
    and a proof would need eigenvalues of exactly 0."""
    B = np.arange(1.0, 4.0)[:, None]
    for kernel in (ko.kernels.Precomputed(B @ B.T), 2.0 * ko.kernels.Precomputed(B @ B.T / 2)):
        theta, z = ko.Theta(kernel), cp.Variable(boolean=True)
        f = theta(np.arange(3))
        problem = ko.Problem(cp.Minimize(ko.sum_squares(theta) + cp.sum(cp.abs(f - B[:, 0])) + z))
        problem.solve()
        assert problem.status == "optimal" and z.value == 0
        problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [f[0] == 1, f[1] == 1])
        problem.solve()
        assert problem.status == "user_limit" and problem.value is None
