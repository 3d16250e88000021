"""Points that are moved into linear constraints, and towards an optimum of 0."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from inside import point_of, reduction_of
from sklearn.datasets import make_moons

import kernelopt as ko
from kernelopt.compiler import linear_rows, projection, representer, violations
from kernelopt.compiler.iterate import in_columns
from kernelopt.compiler.outer import outer_of
from kernelopt.driver import policy, refine
from kernelopt.driver.options import factor_options

X = np.linspace(0, 1, 5)[:, None]
Y = np.sin(5 * X[:, 0])
FIRST, SECOND = ko.kernels.Gaussian(sigma=0.4), ko.kernels.Gaussian(sigma=0.3)


def reduced(problem):
    """The reduction, the outer problem, and the point at which everything is 0."""
    form = problem.canonical_form()
    reduction = refine.reduced(form, policy.Step(factor_options()), {}).reduction
    zero = replace(reduction.at_zero(tuple(np.zeros(y.shape) for y in form.y)), nu=(None,) * len(form.predictions))
    return reduction, outer_of(form), representer.evaluate(reduction, zero)


def test_a_theta_of_0_is_moved_too():
    theta = ko.Theta(FIRST)
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [theta(X)[:2] >= 1, cp.sum(theta(X)[2:]) == 0.5])
    reduction, outer, point = reduced(problem)
    assert violations.violation(reduction, point) > 0.1
    moved = representer.evaluate(reduction, projection.moved(reduction, outer, point))
    assert violations.violation(reduction, moved) < 1e-12 and not np.any(point.v[0])


def test_rows_that_a_step_would_cross_are_held():
    """The shortest step that raises one difference lowers others, which have little slack."""
    points, kernel = np.linspace(0, 3, 12)[:, None], ko.kernels.Gaussian(sigma=0.5)
    weights = np.sin(np.arange(12.0))
    least = np.diff(kernel(points) @ weights) - 1e-11
    least[5] += 1e-9
    theta = ko.Theta(kernel)
    reduction, outer, zero = reduced(ko.Problem(cp.Minimize(ko.sum_squares(theta)), [cp.diff(theta(points)) >= least]))
    point = representer.evaluate(reduction, replace(zero, v=(reduction.factors[theta].B.T @ weights,)))
    assert 5e-10 < -np.min(np.diff(point.u[0]) - least) < 2e-9
    moved = representer.evaluate(reduction, projection.moved(reduction, outer, point))
    assert np.min(np.diff(moved.u[0]) - least) >= 0


def test_what_is_held_stays():
    """The first θ alone meets the constraint."""
    first, second = ko.Theta(FIRST), ko.Theta(SECOND)
    objective = ko.sum_squares(first) + ko.sum_squares(second)
    reduction, outer, point = reduced(ko.Problem(cp.Minimize(objective), [first(X) + second(X) == Y]))
    rows = linear_rows.linear_rows(outer.pieces, reduction.form)
    moved = projection._moved(reduction, outer, point, None, rows, held=[second])
    moved = representer.evaluate(reduction, moved)
    assert violations.violation(reduction, moved) < 1e-10
    assert [link.theta for link in reduction.form.predictions] == [first, second]
    assert np.any(moved.v[0]) and not np.any(moved.v[1])


@pytest.mark.slow
def test_towards_an_optimum_of_0():
    """θ that costs something is 0; the other one, and b, meet all kinks at once. The pieces stay what they are."""
    free, costly, b = ko.Theta(FIRST), ko.Theta(SECOND), cp.Variable()
    loss = cp.sum(ko.losses.pinball(Y, free(X) + costly(X) + b, 0.3))
    problem = ko.Problem(cp.Minimize(loss + ko.norm(costly)), [ko.norm(free) <= 100])
    problem.solve()
    reduction, point = reduction_of(problem), point_of(problem)
    outer = outer_of(reduction.form)
    before = outer.pieces.S.copy()
    assert reduction.form.predictions[0].theta is free
    off = representer.evaluate(reduction, replace(point, v=tuple(v + 1e-6 for v in point.v)))
    found = representer.evaluate(reduction, projection.towards_zero(reduction, outer, off))
    assert found.value < 1e-13 and not np.any(found.v[1])
    assert (before != outer.pieces.S).nnz == 0


@pytest.mark.parametrize(
    "objective",
    [
        lambda theta, b: cp.sum(cp.abs(theta(X) - Y)) + b,
        lambda theta, b: cp.sum(cp.abs(theta(X) - Y)) + theta(X)[1],
        lambda theta, b: ko.norm(theta - ko.Function(FIRST, X[:1], [1.0])) + cp.sum(cp.abs(theta(X) + b - Y)),
    ],
)
def test_nothing_says_that_the_optimum_is_0(objective):
    theta, b = ko.Theta(FIRST), cp.Variable()
    stated = ko.Problem(cp.Minimize(objective(theta, b)), [b >= -1, ko.norm(theta) <= 5])
    assert projection.towards_zero(*reduced(stated)) is None


@pytest.mark.slow
@pytest.mark.parametrize("bound", [0.05, 0.08, 0.1])
def test_curved_constraints_are_met_to_rounding(bound):
    """Clarabel meets these bounds to 1e-10 only, so that two of three answers were not called optimal."""
    X, y = make_moons(120, noise=0.25, random_state=0)
    y, weights = 2 * y - 1, np.where(y > 0, 4.0, 1.0)
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=0.7)), cp.Variable()
    f = theta(X) + b
    few = cp.mean(cp.pos(1 + f[y < 0])) <= bound
    for C in (1.0, 2.0, 5.0):
        problem = ko.Problem(cp.Minimize(weights @ ko.losses.log_loss(y, f) + ko.sum_squares(theta) / (2 * C)), [few])
        problem.solve()
        assert problem.status == "optimal"
        assert few.expr.value <= 1e-12


@pytest.mark.slow
def test_a_tangent_leads_into_curved_constraints():
    """A point that violates e ≤ 0 by little is moved to e < 0, also where the gradient is a single number."""
    x = np.linspace(0, 1, 6)[:, None]
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=0.5)), cp.Variable()
    u = theta(x) + b
    for curved in (cp.sum_squares(u) <= 1, cp.max(u) <= 0.3, cp.exp(b) + cp.abs(u[0]) <= 2, cp.log_sum_exp(u) <= 2):
        problem = ko.Problem(cp.Minimize(cp.sum_squares(u - 2) + ko.sum_squares(theta)), [curved])
        problem.solve(solver="SCS", eps=1e-7)
        assert problem.certificate.is_feasible
        assert curved.expr.value <= 1e-12


def test_opposite_rows_are_found_in_any_order_of_their_entries():
    rows = [[2.0, 1.0, 0.0], [-2.0, -1.0, 0.0], [0.0, 3.0, 0.0], [0.0, -3.0, 0.0], [1.0, 0.0, 1.0]]
    A = sp.csr_array(np.array(rows))
    A.indices[:2], A.data[:2] = A.indices[1::-1].copy(), A.data[1::-1].copy()
    A.has_sorted_indices = False
    np.testing.assert_array_equal(A.toarray(), rows)
    found = linear_rows.opposite(A, np.array([4.0, -4.0, 1.0, 1.0, 0.0]))
    assert found.tolist() == [True, True, False, False, False]


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_a_theta_beyond_its_bound_is_shortened_to_it(factor):
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    points, y = np.arange(5.0)[:, None], np.array([1.0, -1.0, 2.0, 0.0, 1.0])
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(points) - y)), [ko.norm(theta) <= 1.5])
    problem.solve()
    reduction, outer, point = reduction_of(problem), problem._outer(), point_of(problem)
    longer = representer.evaluate(reduction, replace(point, v=tuple(factor * v for v in point.v)))
    found = projection._shortened(reduction, outer.pieces, longer)
    if factor <= 1:
        assert found is None or np.linalg.norm(found.v[0] - point.v[0]) < 1e-7
    else:
        assert representer.evaluate(reduction, found).t[0] == pytest.approx(1.5, rel=1e-14)
        assert representer.evaluate(reduction, found).t[0] <= 1.5


@pytest.mark.parametrize("off", [1e-9, -1e-9])
def test_piecewise_linear_constraints_that_leave_no_room(off):
    """|f(x)| ≤ 0: a tangent that asked for less than 0 would leave a third of the violation."""
    theta = ko.Theta(FIRST)
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [cp.abs(theta(X)[0]) <= 0, theta(X)[1:] == Y[1:]])
    reduction, outer, point = reduced(problem)
    for _ in range(2):
        point = representer.evaluate(reduction, projection.moved(reduction, outer, point))
    factor = reduction.factors[theta]
    toward = factor.matrix.rows(np.array([0]))[0]
    away = replace(point, v=(point.v[0] + off * toward / (toward @ toward),))
    away = representer.evaluate(reduction, away)
    assert violations.violation(reduction, away) > 1e-10
    moved = representer.evaluate(reduction, projection.moved(reduction, outer, away))
    assert abs(moved.u[0][0]) < 1e-4 * abs(off)


def test_tangents_of_all_violated_constraints():
    """A constraint that holds does not end the list."""
    theta = ko.Theta(FIRST)
    u = theta(X)
    constraints = [cp.square(u[0]) <= 1, cp.square(u[1] - 2) <= 1]
    reduction, outer, point = reduced(ko.Problem(cp.Minimize(ko.sum_squares(theta)), constraints))
    x = in_columns(reduction.form, outer.pieces, point)
    (rows, right, _), _ = projection._tangents(reduction, outer.pieces, point, x)
    (column,) = rows.indices
    of_u = outer.pieces.columns[reduction.form.predictions[0].u.id]
    assert column == of_u[1] and right[0] / rows.data[0] == pytest.approx(2 * 3 / 4)


def rows_of(constraints, variables):
    """The linear rows as {(coefficients of u, b, whether it is an equation)}."""
    theta = ko.Theta(FIRST)
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), constraints(theta(X), *variables))
    outer = outer_of(problem.canonical_form())
    found = linear_rows.linear_rows(outer.pieces, problem.canonical_form())
    columns = outer.pieces.columns[problem.canonical_form().predictions[0].u.id]
    dense = found.A[:, columns].toarray()
    return {(*row.tolist(), b, bool(equal)) for row, b, equal in zip(dense, found.b.tolist(), found.equal, strict=True)}


def test_maxima_of_lines_are_rows():
    """|u₀| ≤ 2, max(u₁, u₂, 1) ≤ 3, ‖(u₃, u₄)‖∞ ≤ 4 and 2·max(u₀ − 1, −3u₀) + u₁ ≤ 5."""
    found = rows_of(
        lambda u: [
            cp.abs(u[0]) <= 2, cp.maximum(u[1], u[2], 1) <= 3, cp.norm_inf(u[3:]) <= 4,
            2 * cp.maximum(u[0] - 1, -3 * u[0]) + u[1] <= 5,
        ],
        (),
    )  # fmt: skip
    known = {
        (1, 0, 0, 0, 0, 2), (-1, 0, 0, 0, 0, 2), (0, 1, 0, 0, 0, 3), (0, 0, 1, 0, 0, 3), (0, 0, 0, 1, 0, 4),
        (0, 0, 0, -1, 0, 4), (0, 0, 0, 0, 1, 4), (0, 0, 0, 0, -1, 4), (2, 1, 0, 0, 0, 7), (-6, 1, 0, 0, 0, 5),
    }  # fmt: skip
    assert found == {(*row, False) for row in known}


def test_curved_and_costly_rows_are_none():
    """Squares, sums of two sizes, and rows with ‖θ‖ have no lines; equations and opposite rows are equal ones."""
    b = cp.Variable()
    found = rows_of(
        lambda u, b: [cp.square(u[0]) <= 1, cp.abs(u[0]) + cp.abs(u[1]) <= 1, u[2] + b == 3, u[3] <= 1, u[3] >= 1], (b,)
    )
    assert {row for row in found if row[-1]} == {
        (0, 0, 1, 0, 0, 3, True), (0, 0, 0, 1, 0, 1, True), (0, 0, 0, -1, 0, -1, True)
    }  # fmt: skip
    assert len(found) == 3


def test_entries_that_stand_for_others_have_no_rows():
    X = cp.Variable((2, 2), symmetric=True)
    theta = ko.Theta(FIRST)
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [X[0, 1] >= theta(np.zeros((1, 1)))])
    outer = outer_of(problem.canonical_form())
    assert linear_rows.linear_rows(outer.pieces, problem.canonical_form()) is None


LOSSES = {
    "a cost beside losses": (lambda u: cp.sum(cp.abs(u - Y)) + u[1], None),
    "pinball": (lambda u: cp.sum(ko.losses.pinball(Y, u, 0.3)), [(0.0, 0.0)]),
    "tube": (lambda u: cp.sum(ko.losses.epsilon_insensitive(Y, u, 0.5)), [(-0.5, 0.5)]),
    "hinge": (lambda u: cp.sum(cp.pos(u - Y)), [(-np.inf, 0.0)]),
    "squares": (lambda u: cp.sum_squares(u - Y), [(0.0, 0.0)]),
    "length": (lambda u: cp.norm(u - Y), [(0.0, 0.0)]),
    "powers": (lambda u: cp.sum(cp.power(cp.abs(u - Y), 1.5)), [(0.0, 0.0)]),
    "exponential": (lambda u: cp.sum(cp.exp(u - Y)), None),
    "never": (lambda u: cp.sum(cp.abs(u - Y) + 1), [(0.0, 0.0)]),
    "of one another": (lambda u: cp.sum(cp.maximum(cp.abs(u - Y), 1)), [(np.nan, np.nan)]),
}


@pytest.mark.parametrize("name", LOSSES)
def test_where_losses_are_0(name):
    """The interval of u − Y."""
    loss, ends = LOSSES[name]
    theta = ko.Theta(FIRST)
    form = ko.Problem(cp.Minimize(loss(theta(X)) + ko.norm(theta))).canonical_form()
    found = linear_rows.rows_of_zeros(outer_of(form).pieces, form)
    if ends is None or np.isnan(ends).any():
        assert found is None
        return
    ((low, high),) = ends
    rows = 5 * (1 if low == high else int(np.isfinite(low)) + int(np.isfinite(high)))
    assert len(found.b) == rows and found.equal.all() == (low == high)
    for shift in (-1.0, -0.5, 0.0, 0.5, 1.0):
        u = np.zeros(outer_of(form).pieces.n)
        u[outer_of(form).pieces.columns[form.predictions[0].u.id]] = Y + shift
        s = found.b - found.A @ u
        inside = np.where(found.equal, np.abs(s) < 1e-12, s > -1e-12).all()
        assert inside == (low <= shift <= high)


@pytest.mark.parametrize("rank", [1, 5, 8])
def test_the_shortest_step_of_dependent_rows(rank):
    """GGᵀd = r has many d; all of them give Gᵀd. Where r is out of reach the squares of what is left are least."""
    rng = np.random.default_rng(rank)
    G = rng.normal(size=(8, rank))
    M, step = G @ G.T, rng.normal(size=rank)
    assert G.T @ projection._solution(M, G @ step) == pytest.approx(step, rel=1e-9)
    beyond = np.linalg.svd(G)[0][:, rank:].sum(axis=1)
    assert G.T @ projection._solution(M, G @ step + beyond) == pytest.approx(step, rel=1e-6)
