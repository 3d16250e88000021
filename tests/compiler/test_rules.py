"""The rules table: every row accepted or refused as it says."""

import cvxpy as cp
import numpy as np
import pytest
from cvxpy.transforms.partial_optimize import partial_optimize

import kernelopt as ko
from kernelopt.compiler import rules
from kernelopt.errors import DataError, DCPError, RepresenterError

X = np.random.default_rng(0).normal(size=(12, 2))
y = np.where(X[:, 0] > 0, 1.0, -1.0)
b = cp.Variable(name="b")
nonneg, unsigned = cp.Parameter(nonneg=True, value=1.0), cp.Parameter(value=1.0)


@pytest.fixture
def theta():
    return ko.Theta(ko.kernels.Gaussian(sigma=1.0))


ACCEPTED = {
    "any expression of predictions, convex": lambda t: (cp.Minimize(cp.sum_squares(t(X) - y)), []),
    "any expression of predictions, concave": lambda t: (cp.Minimize(cp.sum(cp.sqrt(cp.abs(t(X))))), []),
    "equalities of predictions": lambda t: (cp.Minimize(0), [t(X) == y]),
    "norm penalized": lambda t: (cp.Minimize(cp.sum(t(X)) + ko.norm(t)), []),
    "norm penalized by a parameter": lambda t: (cp.Minimize(nonneg * ko.sum_squares(t)), []),
    "norm in a nondecreasing nonconvex place": lambda t: (cp.Minimize(cp.sqrt(ko.norm(t))), []),
    "norm in an exponential": lambda t: (cp.Minimize(cp.exp(ko.norm(t)) + cp.sum(t(X))), []),
    "absolute value of a norm": lambda t: (cp.Minimize(cp.abs(ko.norm(t)) + cp.sum(t(X))), []),
    "maximize minus norm": lambda t: (cp.Maximize(cp.min(t(X)) - ko.norm(t)), []),
    "twice negated": lambda t: (cp.Minimize(-2 * (-1 * ko.norm(t))), []),
    "norm bounded": lambda t: (cp.Minimize(cp.sum(t(X))), [ko.norm(t) <= 1]),
    "norm bounded from the right": lambda t: (cp.Minimize(cp.sum(t(X))), [ko.norm(t) <= 1]),
    "norm bounded by a variable": lambda t: (cp.Minimize(b), [ko.norm(t) <= b]),
    "tightening": lambda t: (cp.Minimize(ko.sum_squares(t)), [0.3 * ko.norm(t) <= t(X) + 2]),
    "second-order cone": lambda t: (cp.Minimize(b), [cp.SOC(b - ko.norm(t), t(X))]),
    "no norm at all": lambda t: (cp.Minimize(cp.sum_squares(t(X) - y)), []),
    "integer variable": lambda t: (cp.Minimize(ko.norm(t)), [t(X) <= cp.Variable(12, integer=True)]),
}
REJECTED = {
    "minus norm": lambda t: (cp.Minimize(-ko.norm(t)), []),
    "norm maximized": lambda t: (cp.Maximize(ko.norm(t)), []),
    "norm bounded from below": lambda t: (cp.Minimize(0), [ko.norm(t) >= 1]),
    "norm fixed": lambda t: (cp.Minimize(0), [ko.norm(t) == 1]),
    "square of a difference": lambda t: (cp.Minimize(cp.square(ko.norm(t) - 3)), []),
    "absolute difference": lambda t: (cp.Minimize(cp.abs(ko.norm(t) - 3)), []),
    "reciprocal": lambda t: (cp.Minimize(cp.inv_pos(ko.norm(t))), []),
    "factor of unknown sign": lambda t: (cp.Minimize(unsigned * ko.sum_squares(t)), []),
    "times a variable": lambda t: (cp.Minimize(b * ko.norm(t)), []),
    "negative weight": lambda t: (cp.Minimize(-0.5 * ko.sum_squares(t) + cp.sum_squares(t(X))), []),
    "head of a cone": lambda t: (cp.Minimize(0), [cp.SOC(ko.norm(t), t(X))]),
    "body of a cone": lambda t: (cp.Minimize(0), [cp.SOC(b, cp.hstack([ko.norm(t) - 2, b]))]),
    "semidefinite": lambda t: (cp.Minimize(0), [cp.bmat([[ko.norm(t), b], [b, 1]]) >> 0]),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name, theta):
    assert ko.Problem(*ACCEPTED[name](theta)).is_representable()


@pytest.mark.parametrize("name", REJECTED)
def test_rejected(name, theta):
    problem = ko.Problem(*REJECTED[name](theta))
    assert not problem.is_representable()
    with pytest.raises(RepresenterError) as refusal:
        problem.solve()
    message = str(refusal.value)
    assert "‖θ‖" in message  # the sub-expression
    assert "rule:" in message
    assert "instead:" in message  # a way out
    assert theta.value is None


def test_the_remedies_work(theta):
    problem = ko.Problem(cp.Minimize(unsigned * ko.sum_squares(theta)))
    with pytest.raises(RepresenterError, match=r"cp\.Parameter\(nonneg=True\)"):
        problem.solve()
    with pytest.raises(RepresenterError, match=r"write `‖θ‖ <= R`"):
        ko.Problem(cp.Minimize(0), [ko.norm(theta) == 1]).solve()
    with pytest.raises(RepresenterError, match=r"lam ≥ 0"):
        ko.Problem(cp.Minimize(-ko.norm(theta))).solve()


def test_every_violation_is_listed(theta):
    other = ko.Theta(ko.kernels.Linear(), name="φ")
    problem = ko.Problem(
        cp.Minimize(-ko.norm(theta)), [ko.norm(other) >= 1, ko.norm(theta) == 2, ko.norm(theta) <= 3, theta(X) <= 1]
    )
    with pytest.raises(RepresenterError) as refusal:
        problem.solve()
    assert [v.place for v in refusal.value.violations] == ["the objective", "constraint 1", "constraint 2"]
    assert [v.expression for v in refusal.value.violations] == ["‖θ‖", "‖φ‖", "‖θ‖"]


def test_theta_inside_something_that_is_not_an_atom(theta):
    inside = cp.transforms.indicator([theta(X) <= 1])
    with pytest.raises(RepresenterError, match="atoms only"):
        ko.Problem(cp.Minimize(inside + ko.norm(theta))).solve()
    with pytest.raises(RepresenterError, match="trees is internal"):
        ko.Problem(cp.Minimize(cp.square(theta(X).variables()[0]))).solve()
    x = cp.Variable()
    inner = partial_optimize(cp.Problem(cp.Minimize(cp.abs(x - cp.sum(theta(X))))), [x])
    partial = ko.Problem(cp.Minimize(inner + ko.norm(theta)))
    assert not partial.is_representable()
    assert "atoms only" in str(partial.explain())
    hidden = cp.perspective(ko.sum_squares(theta), cp.Variable(nonneg=True))  # θ inside an atom's data
    with pytest.raises(RepresenterError, match=r"perspective(.|\n)*cp.perspective\(f\(z\), s\), with"):
        ko.Problem(cp.Minimize(hidden + ko.norm(theta))).solve()


def test_a_perspective_is_taken_of_a_variable(theta):
    """As the refusal advises; the truth is that of cvxpy in explicit coefficients."""
    s, z, kernel = cp.Variable(nonneg=True), cp.Variable(), ko.kernels.Gaussian(sigma=1.0)
    theta, rows = ko.Theta(kernel), X[:4]
    costs = cp.perspective(cp.exp(z), s) + cp.square(s - 1)
    with pytest.raises(RepresenterError, match="perspective"):
        ko.Problem(cp.Minimize(cp.perspective(cp.exp(theta(rows)[0]), s) + ko.sum_squares(theta))).solve()
    problem = ko.Problem(cp.Minimize(costs + ko.sum_squares(theta) + cp.sum(theta(rows))), [z == theta(rows)[0]])
    w, L = cp.Variable(4), np.linalg.cholesky(kernel(rows, rows))
    explicit = cp.Problem(cp.Minimize(costs + cp.sum_squares(w) + cp.sum(L @ w)), [z == (L @ w)[0]])
    assert problem.solve() == pytest.approx(explicit.solve(solver="CLARABEL"), rel=1e-6)


def test_not_convex_is_another_question(theta):
    problem = ko.Problem(cp.Minimize(cp.sum(cp.sqrt(cp.abs(theta(X)))) + ko.norm(theta)))
    assert problem.is_representable()
    assert not problem.is_dcp()
    with pytest.raises(DCPError, match="the objective"):
        problem.solve()
    with pytest.raises(DCPError, match="constraint 1"):
        ko.Problem(cp.Minimize(0), [cp.sum_squares(theta(X)) >= 1]).solve()


def test_negative_weights_are_named(theta):
    w = np.ones(12)
    w[4] = -2.0
    with pytest.raises(DCPError, match=r"weights .* negative, -2 first at 4"):
        ko.Problem(cp.Minimize(w @ ko.losses.hinge(y, theta(X)) + ko.sum_squares(theta))).solve()
    with pytest.raises(DCPError, match=r"weights .* negative"):
        ko.Problem(cp.Minimize(cp.sum(cp.multiply(w, ko.losses.hinge(y, theta(X)))))).solve()


NEGATIVE_MULTIPLES = {
    "maximized": lambda u: (cp.Maximize(-0.5 * cp.sum_squares(y - u)), []),
    "maximized, weighted": lambda u: (cp.Maximize(-np.arange(1.0, 13.0) @ cp.abs(y - u)), []),
    "maximized, nested": lambda u: (cp.Maximize(-2 * cp.exp(3 * cp.sum(cp.abs(y - u)) - 5)), []),
    "of a negative multiple": lambda u: (cp.Minimize(-(-1 * cp.sum_squares(y - u))), []),
    "of a concave function": lambda u: (cp.Minimize(-3 * cp.sum(cp.minimum(y - u, u - y))), []),
    "bounded below": lambda u: (cp.Minimize(cp.sum_squares(y - u)), [-2 * cp.abs(u[0]) >= -0.1]),
    "bounded below, entry by entry": lambda u: (
        cp.Minimize(cp.sum_squares(y - u)),
        [cp.multiply(-np.ones(12), cp.square(u)) >= -0.1],
    ),
}


@pytest.mark.parametrize("name", NEGATIVE_MULTIPLES)
def test_negative_multiples_are_what_dcp_says(name, theta):
    objective, constraints = NEGATIVE_MULTIPLES[name](theta(X))
    sign = 1 if isinstance(objective, cp.Minimize) else -1
    problem = ko.Problem(objective + type(objective)(sign * ko.sum_squares(theta)), constraints)
    problem.solve()
    v = cp.Variable(12)
    u = np.linalg.cholesky(theta.kernel(X)) @ v
    objective, constraints = NEGATIVE_MULTIPLES[name](u)
    explicit = cp.Problem(objective + type(objective)(sign * cp.sum_squares(v)), constraints)
    explicit.solve(solver="CLARABEL")
    assert problem.status == "optimal"
    assert abs(problem.value - explicit.value) <= 1e-6 * abs(explicit.value)


def test_hints_speak_of_what_dcp_refuses(theta):
    u = theta(X)
    right, wrong = -2 * cp.sum_squares(u), -2 * cp.sum(cp.abs(u))
    with pytest.raises(DCPError) as caught:
        ko.Problem(cp.Maximize(right), [wrong <= 1]).solve()
    assert "constraint 1 the weights" in str(caught.value)
    assert "In the objective" not in str(caught.value)
    with pytest.raises(DCPError, match=r"weights .* positive, 3 first at 0; they must be ≤ 0"):
        ko.Problem(cp.Maximize(3 * cp.sum_squares(u - y))).solve()


def test_constants_must_be_finite(theta):
    w = np.ones(12)
    w[4] = np.nan
    with pytest.raises(DataError, match="first at 4"):
        ko.Problem(cp.Minimize(w @ cp.abs(theta(X)))).solve()
    with pytest.raises(DataError, match="constraint 1"):
        ko.Problem(cp.Minimize(ko.norm(theta)), [theta(X) <= np.inf]).solve()
    with pytest.raises(DataError, match="NaN"):
        ko.Problem(cp.Minimize(np.nan * ko.sum_squares(theta))).solve()


def test_a_violation_is_listed_once_a_place(theta):
    n, table = ko.norm(theta), cp.abs(y[:, None] - theta(X))
    problem = ko.Problem(cp.Minimize(cp.sum(table) - cp.sum(table)), [n >= 1, n >= 2, cp.sum(table) <= 1])
    places = [v.place for v in problem._inspect().violations]
    assert places == ["the objective", "constraint 1", "constraint 2", "constraint 3"]


TABLES = {
    "maximum": lambda t, one: cp.sum(cp.maximum(y[:, None], t(X))),
    "minimum": lambda t, one: -cp.sum(cp.minimum(y[:, None], t(X))),
    "one output, flat targets": lambda t, one: cp.sum_squares(y - one(X)),
    "a column of predictions": lambda t, one: cp.sum_squares(y - t(X)[:, None]),
    "kl_div": lambda t, one: cp.sum(cp.kl_div(t(X), np.abs(y[:, None]))),
}


@pytest.mark.filterwarnings("ignore:The problem includes expressions")
@pytest.mark.parametrize("name", TABLES)
def test_predictions_are_not_repeated_into_a_table(name, theta):
    one = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=1)
    with pytest.raises(RepresenterError, match="table"):
        ko.Problem(cp.Minimize(TABLES[name](theta, one))).solve()
    with pytest.raises(RepresenterError, match="table"):
        ko.Problem(cp.Minimize(ko.sum_squares(one)), [one(X) >= y]).solve()


def test_shapes_that_agree_are_no_table(theta):
    one, three = (ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=k) for k in (1, 3))
    b = cp.Variable(3)
    for expression in (
        cp.maximum(theta(X), 0, b[0]),
        one(X) - y[:, None],
        three(X) + b[None, :],
        three(X) + np.ones((12, 1)) @ b[None, :],
        cp.maximum(three(X), 1.0),
        theta(X)[0] - y,
        theta(X)[:, None] @ np.ones((1, 2)),
    ):
        assert ko.Problem(cp.Minimize(cp.sum_squares(expression))).is_representable()


def test_remedies_by_cause(theta):
    for constraint, words in (
        (ko.norm(theta) == 1, "write `‖θ‖ <= R`"),
        (unsigned * ko.norm(theta) <= 1, "sign of"),
        (cp.abs(ko.norm(theta) - 2) <= 1, r"`\|‖θ‖ . 2\|` is not known to be nondecreasing"),
    ):
        with pytest.raises(RepresenterError, match=words):
            ko.Problem(cp.Minimize(0), [constraint]).solve()


def test_sparse_negative_weights(theta):
    import scipy.sparse as sp  # noqa: PLC0415

    with pytest.raises(DCPError, match="negative, -1 first at 0"):
        ko.Problem(cp.Minimize(cp.sum(sp.diags_array(-np.ones(12)) @ cp.square(theta(X))))).solve()


def test_tables_without_predictions_are_allowed(theta):
    """A vector of the user's own may be repeated."""
    v = cp.Variable(3)
    found = rules.inspect(cp.Minimize(ko.norm(theta)), (v <= np.ones((3, 3)),))
    assert not found.violations


def test_blame_where_a_direction_is_unknown():
    """A convex function that is not affine is to blame itself, not what stands in it."""
    node = cp.exp(cp.square(cp.Variable()))
    (blamed,) = rules._blamed(node, rules.UNKNOWN)
    assert blamed is node


@pytest.mark.parametrize("kind", ["indicator", "PartialProblem"])
def test_problems_within_a_problem_are_refused(kind):
    """Those of variables alone, too: cvxpy compiles them by itself."""
    theta, v, z = ko.Theta(ko.kernels.Linear()), cp.Variable(2), cp.Variable(2)
    if kind == "indicator":
        held = cp.transforms.indicator([v <= 0.1])
    else:
        held = partial_optimize(cp.Problem(cp.Minimize(cp.sum(cp.abs(z)) + cp.sum_squares(z - v))), opt_vars=[z])
    X = np.array([[1.0], [2.0]])
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - 1) + ko.sum_squares(theta) + held + cp.sum_squares(v)))
    with pytest.raises(DCPError, match=f"holds a problem of its own \\({kind}"):
        problem.solve()
