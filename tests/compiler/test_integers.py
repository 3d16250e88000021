"""Integers are fixed where a mixed-integer solver put them, and the rest is solved as a convex problem."""

import itertools

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.compiler import projection
from kernelopt.compiler.integers import fixed
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.linear_rows import linear_rows
from kernelopt.compiler.outer import outer_of
from kernelopt.solvers import row_problem

X, Y = np.array([[0.1], [0.7], [1.4], [2.0]]), np.array([0.8, -0.3, 0.5, 1.0])
GAUSSIAN = ko.kernels.Gaussian(sigma=1.0)


def switched(norm, z, price, size=cp.abs):
    theta = ko.Theta(GAUSSIAN)
    loss = cp.sum(ko.losses.huber(Y, theta(X), 0.4))
    return theta, ko.Problem(cp.Minimize(loss + price * z), [norm(theta) <= 1.5, size(theta(X)[:1]) <= 3 * z])


@pytest.mark.slow
@pytest.mark.parametrize("price", [0.39, 1e-3])
def test_a_switch_that_is_off_is_off(price):
    """|u| ≤ 3z with z = 0 holds to rounding, not only to a solver's 1e-8."""
    z = cp.Variable(boolean=True)
    theta, problem = switched(ko.norm, z, price)
    problem.solve()
    assert problem.status == "optimal"
    values = []
    for number in (0.0, 1.0):
        _, plain = switched(ko.norm, number, price)
        values.append(plain.solve())
    assert problem.value == pytest.approx(min(values), rel=1e-6)
    assert z.value == np.argmin(values)
    assert abs(theta.value(X)[0]) <= 3 * z.value + 1e-12


@pytest.mark.slow
def test_what_can_not_be_met_to_rounding_is_not_optimal(monkeypatch):
    monkeypatch.setattr(projection, "moved", lambda *_: None)
    monkeypatch.setattr(row_problem, "MARGIN", 0.0)
    problem = switched(ko.norm, cp.Variable(boolean=True), 0.39, lambda u: cp.norm(cp.hstack([u, u])))[1]
    problem.solve(tol=1e-3)
    assert problem.status == "optimal_inaccurate"
    assert problem.verify()["primal feasibility"].number > 1e-12


ROWS = {
    "one value": lambda f, z: f[0] == 0,
    "a sum": lambda f, z: cp.sum(f) == 0,
    "sizes": lambda f, z: cp.abs(f[:2]) <= 0,
    "switches": lambda f, z: cp.abs(f[:2]) <= z,
    "wide switches": lambda f, z: cp.abs(f) <= 5 * z,
    "above": lambda f, z: f[0] >= 0,
}


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1.0, 1e3])
@pytest.mark.parametrize("row", ROWS)
def test_an_optimum_of_zero_with_rows_of_zero(row, unit):
    """θ = 0 with a b of 1e-30 is optimal up to rounding, but no row of such numbers calls it feasible."""
    rng = np.random.default_rng(0)
    points, y = rng.normal(size=(8, 1)), unit * rng.normal(size=8)
    theta, z, b = ko.Theta(GAUSSIAN), cp.Variable(integer=True), cp.Variable()
    f = theta(points) + b
    loss = cp.sum(cp.pos(cp.abs(f - z * y) - 0.1 * np.abs(y)))
    problem = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta)), [ROWS[row](f, z), z <= 3, z >= -3])
    problem.solve()
    assert problem.status == "optimal"
    assert abs(problem.value) <= 1e-9 * unit
    assert z.value == 0


def test_entries_that_are_no_integers_stay_variables():
    theta, Z = ko.Theta(GAUSSIAN), cp.Variable(3, integer=[(0, 2)], nonneg=True)
    loss = cp.sum_squares(theta(X[:3]) + Z - Y[:3]) + cp.sum_squares(Z)
    form = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta))).canonical_form()
    left = fixed(form, Iterate((), (np.array([0.9, 0.4, 2.2]),)))
    assert not left.form.outer.is_mixed_integer()
    ((_, value, rest),) = left.values
    np.testing.assert_array_equal(value, [1.0, 0.4, 2.0])
    assert left.form.y == [rest]
    (whole,) = left.whole(Iterate((), (np.array([7.0, 0.3, 7.0]),)))
    np.testing.assert_array_equal(whole, [1.0, 0.3, 2.0])


def test_rows_without_their_auxiliary_variables():
    """|u| ≤ b and max(u, v) ≤ b are rows of u and v; a sum of many |u| would be too many."""
    theta = ko.Theta(GAUSSIAN)
    u = theta(X)
    for constraint, rows in [
        (cp.abs(u[0]) <= 0.2, 2),
        (cp.maximum(u[0], u[1], 2 * u[2]) <= 0.2, 3),
        (cp.norm1(u) <= 0.2, 0),
    ]:
        form = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [constraint]).canonical_form()
        pieces = outer_of(form).pieces
        A, b, equal = linear_rows(pieces, form)
        assert A.shape[0] == rows
        assert not equal.any()
        assert np.all(b == 0.2)
        of_u = pieces.columns[form.predictions[0].u.id]
        assert not A[:, np.setdiff1d(np.arange(A.shape[1]), of_u)].nnz


def test_rows_that_make_an_equality_are_one():
    theta = ko.Theta(GAUSSIAN)
    form = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [cp.abs(theta(X)[0]) <= 0]).canonical_form()
    assert linear_rows(outer_of(form).pieces, form).equal.all()


def test_variables_without_integers_are_as_they_were_solved():
    """In the order of the stated problem."""
    theta, b, z = ko.Theta(GAUSSIAN), cp.Variable(2), cp.Variable(integer=True)
    loss = cp.sum_squares(theta(X)[:2] + b + z - Y[:2]) + cp.sum_squares(b)
    form = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta))).canonical_form()
    given = {b.id: np.array([0.3, 0.7]), z.id: np.array(1.9)}
    left = fixed(form, Iterate((), tuple(given[v.id] for v in form.y)))
    assert left.form.y == [b]
    found = dict(zip([v.id for v in form.y], left.whole(Iterate((), (np.array([5.0, 6.0]),))), strict=True))
    assert found[b.id].tolist() == [5.0, 6.0] and found[z.id] == 2.0


TRUTHS = {
    "and": lambda z: cp.logic.And(z[0], z[1], z[2]),
    "or": lambda z: cp.logic.Or(z[0], z[1]),
    "xor of three": lambda z: cp.logic.Xor(z[0], z[1], z[2]),
    "nested": lambda z: cp.logic.Or(cp.logic.Not(z[0]), cp.logic.And(z[1], np.True_)),
}


@pytest.mark.later
@pytest.mark.parametrize("truth", TRUTHS.values(), ids=TRUTHS)
def test_logic_beside_cones(truth):
    """Branch and bound states it in numbers; the truth enumerates."""
    points = np.linspace(0, 2, 7)[:, None]
    y, cost = np.sin(3 * points[:, 0]) + 1, np.array([0.7, -0.4, 0.3])

    def least(z):
        theta = ko.Theta(ko.kernels.Gaussian(sigma=0.5))
        loss = cp.norm(y - theta(points) - truth(z)) + sum(c * one for c, one in zip(cost, z, strict=True))
        problem = ko.Problem(cp.Minimize(loss + 0.5 * ko.sum_squares(theta)))
        return problem.solve(), problem

    known = [
        least([cp.Constant(np.bool_(one)) for one in each])[0] for each in itertools.product([False, True], repeat=3)
    ]
    value, problem = least([cp.Variable(boolean=True) for _ in range(3)])
    assert problem.status == "optimal" and problem.solver_stats.solver_name == "BRANCH_AND_BOUND"
    assert value == pytest.approx(min(known), rel=1e-6)


@pytest.mark.parametrize(("M", "tol"), [(1e4, 1e-6), (1e7, 1e-6), (300.0, 1e-2)])
def test_a_large_constant_beside_the_optimum(M, tol):
    """16 is less than the tolerance of M², and 0 is attained."""
    theta, z = ko.Theta(ko.kernels.Gaussian(sigma=0.5)), cp.Variable(boolean=True)
    f = theta(np.array([[0.0], [1.0]]))
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [f[0] >= 4 - M * (1 - z)])
    problem.solve(tol=tol)
    assert (problem.status, problem.value, z.value) == ("optimal", 0.0, 0.0)


@pytest.mark.slow
@pytest.mark.skipif("HIGHS" not in cp.installed_solvers(), reason="needs HiGHS")
def test_predictions_of_a_theta_with_a_huge_norm():
    """‖θ‖ = 1e6 without a norm in the problem: kernel values give other predictions than the factor."""
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(9, 1)), rng.normal(size=9)
    theta, z = ko.Theta(ko.kernels.Gaussian(sigma=1.6)), cp.Variable(boolean=True)
    problem = ko.Problem(cp.Minimize(z), [cp.abs(theta(X) - y) <= z])
    problem.solve(solver="HIGHS")
    off = np.abs(theta.value(X) - y).max() - z.value
    assert off > 1e-5 and problem.status == "optimal_inaccurate"
    assert not problem.certificate.is_feasible and problem.certificate.violation == pytest.approx(off, rel=0.5)


def test_a_box_on_which_the_relaxation_stalls():
    """Clarabel's own units end at 12.6 on the box z = 0, whose optimum is that of the problem."""
    X, y = np.array([[3.562], [2.124], [1.12], [-3.161]]), np.array([-0.374, -0.276, -0.633, -1.784])
    values = []
    for M in (1e3, 1e4):
        theta, z = ko.Theta(ko.kernels.Gaussian(sigma=0.4)), cp.Variable(boolean=True)
        f = theta(X)
        loss = cp.sum(cp.abs(y - f)) + 0.22 * ko.sum_squares(theta)
        problem = ko.Problem(cp.Minimize(loss), [f[0] >= 2 - M * (1 - z), f[3] <= -1 + M * z])
        problem.solve()
        assert problem.status == "optimal" and z.value == 0
        values.append(problem.value)
    assert values[0] == pytest.approx(values[1], rel=1e-9)
