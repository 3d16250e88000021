"""Bounds from multipliers of all rows at once, and from ν = 0."""

from dataclasses import replace
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
from inside import point_of, reduction_of

import kernelopt as ko
from kernelopt.certificate import cone_bounds, joint
from kernelopt.certificate.gram import STREAMED, Gram
from kernelopt.certificate.multipliers import (
    DUAL_KIND,
    Multipliers,
    functions_part,
    lengths_of,
    norm_multipliers,
    norm_slope,
    split,
)
from kernelopt.language.nodes import norm_from_gram

GAUSSIAN, LINEAR = ko.kernels.Gaussian(sigma=0.25), ko.kernels.Linear()
RNG = np.random.default_rng(0)
X, Y = RNG.uniform(-1, 1, size=(4, 1)), RNG.normal(size=4)


@pytest.mark.slow
@pytest.mark.parametrize("coefficients", [[1.2, -0.9], [0.1, 0.1]])
def test_a_maximum_of_norms(coefficients):
    """How Aᵀν is shared among ‖θ‖ and 2‖θ − f₀‖ follows from their maximum alone; a norm below it has no share."""
    theta = ko.Theta(GAUSSIAN)
    f0 = ko.Function(GAUSSIAN, X[:2] + 0.1, coefficients)
    most = cp.maximum(ko.norm(theta), 2 * ko.norm(theta - f0))
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(np.sign(Y), theta(X))) + most))
    problem.solve()
    assert problem.status == "optimal"
    assert problem.certificate.relative_gap < 1e-6


@pytest.mark.slow
def test_distances_from_two_functions():
    """Each norm has its own f₀, and Aᵀν is split among them."""
    theta = ko.Theta(GAUSSIAN)
    f, g = ko.Function(GAUSSIAN, X[:2] + 0.1, [1.2, -0.9]), ko.Function(GAUSSIAN, X[1:] - 0.2, [0.5, 0.4, -1.0])
    distances = ko.norm(theta - f) + 2 * ko.norm(theta - g)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - Y) + distances))
    problem.solve()
    assert problem.status == "optimal"
    assert problem.certificate.relative_gap < 1e-6


@pytest.mark.slow
def test_parts_from_the_cone_program_keep_to_their_norms():
    """Of several divisions of Aᵀν among norms the solver's is taken: each part has ‖mⱼ‖ ≤ μⱼ."""
    theta = ko.Theta(GAUSSIAN)
    f, g = ko.Function(GAUSSIAN, X[:2] + 0.1, [1.2, -0.9]), ko.Function(GAUSSIAN, X[1:] - 0.2, [0.5, 0.4, -1.0])
    distances = ko.norm(theta - f) + 2 * ko.norm(theta - g)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - Y) + distances))
    optimum = problem.solve()
    reduction, form = reduction_of(problem), problem._outer().form
    found = cone_bounds.joint_bound(reduction, form, point_of(problem), STREAMED, 1e-7)
    assert found is not None and found.value == pytest.approx(optimum, rel=1e-5)
    (multipliers,), (gram,) = found.multipliers, found.grams
    assert np.all(lengths_of(multipliers, gram) <= found.point.mu[list(multipliers.norms)] * (1 + 1e-6))


def test_two_thetas_with_other_numbers_of_predictions():
    """Each has its own part of ν, also in closed form."""
    theta, other = ko.Theta(GAUSSIAN), ko.Theta(LINEAR)
    loss = cp.sum_squares(theta(X[:3]) + other(X[:3]) - Y[:3]) + cp.sum(ko.losses.log_loss(np.sign(Y), other(X)))
    problem = ko.Problem(cp.Minimize(loss + 0.1 * ko.sum_squares(theta) + 0.2 * ko.sum_squares(other)))
    problem.solve()
    assert problem.status == "optimal"
    assert problem.certificate.relative_gap < 1e-6


@pytest.mark.slow
def test_nothing_is_gained_by_any_theta():
    """Two θ that fit: the optimum is 0, and so is the bound."""
    theta, other = ko.Theta(LINEAR), ko.Theta(GAUSSIAN)
    loss = cp.sum(ko.losses.squared_hinge(np.sign(Y), theta(X) + other(X)))
    problem = ko.Problem(cp.Minimize(loss), [ko.norm(theta) <= 3, ko.norm(other) <= 3])
    assert problem.solve() == 0
    assert problem.status == "optimal"
    assert problem.certificate.lower == 0


def test_large_problems_are_left_to_what_knows_nu(monkeypatch):
    monkeypatch.setattr(joint, "MOST", 0)
    theta = ko.Theta(GAUSSIAN)
    problem = ko.Problem(cp.Minimize(cp.norm1(Y - theta(X)) + ko.norm(theta)))
    problem.solve()
    assert problem.status == "optimal"
    form = problem.canonical_form()
    assert joint.solved(reduction_of(problem), problem._outer().form, np.ones(len(form.predictions) + 4), 0.0) is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 4])
def test_exponentials_without_weight(seed):
    """u and w of a cone that costs nothing are none, and its v is what remains of a division by them."""
    rng = np.random.default_rng(seed)
    theta, points = ko.Theta(LINEAR + 0.5 * ko.kernels.Polynomial(degree=2), outputs=2), rng.uniform(-1, 1, size=(8, 1))
    weights, labels = np.where(np.arange(8) == 3, 0.0, rng.uniform(0, 2, size=8)), np.sign(rng.normal(size=8))
    f = theta(points) @ rng.normal(size=2)
    loss = weights @ cp.exp(-cp.multiply(labels, f)) + 0.1 * cp.sum(cp.abs(theta(points)[:, 0]))
    problem = ko.Problem(cp.Minimize(loss + 0.3 * ko.norm(theta, "nuc")))
    problem.solve()
    assert problem.status == "optimal"


@pytest.mark.slow
def test_multipliers_are_stepped_back_until_they_are_dual_feasible():
    """Half of ν is not enough where two norms share it: more of μ is tried, and the bound is finite without a solver
    for all multipliers at once."""
    theta = ko.Theta(GAUSSIAN)
    most = cp.maximum(ko.norm(theta), 2 * ko.norm(theta - ko.Function(GAUSSIAN, X[:2] + 0.1, [1.2, -0.9])))
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(np.sign(Y), theta(X))) + most))
    optimum = problem.solve()
    assert {attempt.solver for attempt in problem.solver_stats.attempts} == {"CLARABEL"}  # whose gap is seen to close
    reduction, point, form = reduction_of(problem), point_of(problem), problem._outer().form
    nu = point.multipliers()
    mu = norm_multipliers(reduction, form, point, nu)
    found = cone_bounds.lower_bound(reduction, form, point, nu, mu, STREAMED)
    assert found is not None and found.assumptions == ()
    assert found.value == pytest.approx(optimum, rel=1e-6)


# How Aᵀν is split


@pytest.fixture(scope="module")
def two_balls():
    """Two distances with bounds that are both active, and the solved problem's parts."""
    theta = ko.Theta(GAUSSIAN)
    f, g = ko.Function(GAUSSIAN, X[:2] + 0.1, [1.2, -0.9]), ko.Function(GAUSSIAN, X[1:] - 0.2, [0.5, 0.4, -1.0])
    bounds = [ko.norm(theta - f) <= 1.0, ko.norm(theta - g) <= 1.2]
    problem = ko.Problem(cp.Minimize(cp.sum(cp.abs(theta(X) - 5 * Y))), bounds)
    problem.solve()
    return reduction_of(problem), problem._outer().form, point_of(problem), [float(c.dual_value) for c in bounds]


@pytest.mark.later
def test_prices_of_distances(two_balls):
    """μ is the multiplier of ‖θ − f‖ ≤ r, which follows from the gradients of all norms at θ − f."""
    reduction, form, point, prices = two_balls
    assert min(prices) > 0.1
    assert norm_multipliers(reduction, form, point, point.multipliers()) == pytest.approx(prices, rel=1e-3)


def test_parts_do_not_depend_on_the_unit_of_norms(two_balls):
    reduction, form, point, prices = two_balls
    (nu,), c = point.multipliers(), np.zeros((len(reduction.form.predictions[0].rows), 1))

    def parts(t):
        return split(reduction, form, replace(point, t=t), 0, nu, np.array(prices), c).stack[:, :2]

    assert np.array_equal(parts(1e-9 * point.t), parts(1e9 * point.t))
    assert not np.array_equal(parts(point.t), parts(0 * point.t))


def test_remainders_are_divided_by_squares_of_prices(two_balls):
    """At θ = f and θ = g no gradient is known, and all of ν is a remainder."""
    reduction, form, point, _ = two_balls
    (nu,), c = point.multipliers(), np.zeros((len(reduction.form.predictions[0].rows), 1))
    found = split(reduction, form, replace(point, t=0 * point.t), 0, nu, np.array([2.0, 1.0]), c).stack
    total = reduction.form.predictions[0].summed(nu)[:, 0]
    assert found[:, 0] == pytest.approx(0.8 * total, rel=1e-12) and found[:, 1] == pytest.approx(0.2 * total, rel=1e-12)


@pytest.mark.parametrize("kind", ["fro", "nuc", 2])
def test_norms_and_their_duals(kind):
    """⟨W, V⟩ ≤ ‖W‖‖V‖*, with equality for a largest V."""
    largest = {"fro": np.diag([3.0, 1.0]), "nuc": np.eye(2), 2: np.diag([1.0, 0.0])}[kind]
    dual = DUAL_KIND.get(kind, "fro")
    W = np.diag([3.0, 1.0])
    assert norm_from_gram(W.T @ W, kind) * norm_from_gram(largest.T @ largest, dual) == pytest.approx(
        np.sum(W * largest)
    )
    m = Multipliers(W, (2,), (0,), (dual,), (slice(2, 2),), False)
    length = lengths_of(m, Gram(W.T @ W, np.zeros((2, 2)), np.ones(2)))[0]
    assert length == pytest.approx({"fro": np.sqrt(10), "nuc": 3.0, 2: 4.0}[kind], rel=1e-8)


def test_what_no_norm_binds_has_no_functions():
    assert functions_part(Multipliers(np.ones((2, 1)), (1,), (), (), (), True), None) == 0.0


# From the cone form


@pytest.mark.parametrize(("count", "firm"), [(1, [None]), (2, [[False, True, True], None])])
def test_only_several_norms_of_one_theta_are_divided_by_the_outer_problem(monkeypatch, count, firm):
    norms = [SimpleNamespace(view=SimpleNamespace(theta=None))] * count
    reduction = SimpleNamespace(form=SimpleNamespace(norms=norms, norms_of=lambda _: range(count)))
    asked = []
    monkeypatch.setattr(cone_bounds, "_Bound", lambda *args: args[4])
    monkeypatch.setattr(cone_bounds, "_best", lambda where, *_: asked.append(where))
    cone_bounds.lower_bound(reduction, SimpleNamespace(u=[range(1)]), None, [], np.ones(count), STREAMED)
    assert [where if where is None else where.tolist() for where in asked] == firm


@pytest.mark.parametrize(("rank", "on_rows"), [(2, False), (1, False), (1, True)])
def test_what_must_vanish_without_a_norm(monkeypatch, rank, on_rows):
    """ν summed over repeated rows at full rank or where it is said so, else Bᵀν."""
    monkeypatch.setattr(cone_bounds, "is_free", lambda *_: True)
    B, spread = np.array([[1.0], [3.0]]), np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    link = SimpleNamespace(u=0, theta=SimpleNamespace(outputs=None), rows=range(2), take=np.array([0, 1, 1]))
    bound = SimpleNamespace(
        reduction=SimpleNamespace(form=SimpleNamespace(predictions=[link])),
        form=SimpleNamespace(c=np.zeros(4), u=[np.array([1, 2, 3])]),
        factors=[SimpleNamespace(rank=rank, matrix=SimpleNamespace(whole=lambda: B))],
    )
    found = cone_bounds._Bound.must_vanish(bound, [on_rows]).toarray()
    assert not found[0].any()
    assert np.array_equal(found[1:], spread if rank == 2 or on_rows else spread @ B)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_multipliers_are_evaluated_again_only_where_they_are_the_same(monkeypatch, unit):
    old, shape = np.array([unit, -unit]), SimpleNamespace(A=np.zeros((1, 1)))
    point = SimpleNamespace(form=shape, nu=[old], nu_terms=[unit], x=None, z=None)
    known = SimpleNamespace(point=point, grams=(), multipliers=())
    monkeypatch.setattr(cone_bounds, "evaluate", lambda *_, **__: "evaluated")
    for change, expected in ((0.0, "evaluated"), (1e-14, "evaluated"), (1e-10, None), (0.5, None)):
        new = SimpleNamespace(nu=[old * (1 + change)], x=None)
        monkeypatch.setattr(cone_bounds.outer_dual, "dual_point", lambda *_, new=new: new)
        assert cone_bounds.evaluate_again(None, shape, None, known) == expected


def test_units_of_small_predictions_are_those_of_the_data():
    """Of predictions below 1e-6 of the data; the unit of the objective does not matter."""
    theta = "θ"
    link, norm = SimpleNamespace(theta=theta), SimpleNamespace(view=SimpleNamespace(theta=theta))
    reduction = SimpleNamespace(
        form=SimpleNamespace(predictions=[link], norms=[norm]), factors={theta: SimpleNamespace(scale=4.0)}
    )
    for size, expected in ((0.5, 0.5), (1e-7, 1.0), (0.0, 1.0)):
        near = SimpleNamespace(u=[np.array([size, 0.0])], t=[0.0])
        found = cone_bounds._units(reduction, SimpleNamespace(units=(1.0, 1e9)), near)
        assert found.tolist() == [expected, expected, expected / 2]


def test_rows_of_predictions_of_two_thetas():
    """u = Bv for each, where v has the columns of one θ after those of the other."""
    theta, other = ko.Theta(GAUSSIAN, outputs=2), ko.Theta(LINEAR)
    loss = cp.sum_squares(theta(X)[:, 0] + other(X) - Y) + cp.sum_squares(theta(X)[:, 1])
    problem = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta) + ko.sum_squares(other)))
    problem.solve()
    reduction, form = reduction_of(problem), problem._outer().form
    x, parts = np.zeros(len(form.c)), []
    for (link, factor), columns in zip(joint._parts(reduction), form.u, strict=True):
        parts.append(RNG.normal(size=(factor.rank, link.theta.outputs or 1)))
        u = (factor.in_one_array(link.rows).matrix.whole() @ parts[-1])[link.take[: len(columns) // parts[-1].shape[1]]]
        x[columns] = u.ravel(order="F")
    v = np.concatenate([V.ravel(order="F") for V in parts])
    rows = joint._links(reduction, form, len(v))
    assert rows.shape == (sum(map(len, form.u)), len(x) + len(v))
    assert np.abs(x).max() > 0.1 and rows @ np.append(x, v) == pytest.approx(0, abs=1e-13)


def test_directions_that_are_rounding_have_no_slope():
    """Of the nuclear norm at a θ of rank 1 with three outputs, and with one."""
    found = norm_slope(np.diag([4.0, 4e-20, 4e-26]), "nuc")
    assert found == pytest.approx(np.diag([0.5, 0.0, 0.0]), abs=1e-12)
    assert norm_slope(np.array([[4.0]]), "nuc").tolist() == [[0.5]]


@pytest.mark.later
@pytest.mark.parametrize("kernel", [ko.kernels.Polynomial(degree=2), LINEAR])
@pytest.mark.parametrize("form", ["maximum", "bounds"])
def test_a_norm_below_the_bound_that_another_one_sets(kernel, form):
    """Its multiplier is 0, so that Aᵀν would have to vanish exactly."""
    rng = np.random.default_rng(1)
    points = rng.uniform(-2, 2, size=(20, 1))
    targets = np.sin(2 * points[:, 0]) + 0.2 * rng.normal(size=20)
    long, short, t = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), ko.Theta(kernel), cp.Variable()
    most = cp.maximum(ko.norm(long), ko.norm(short)) if form == "maximum" else t
    bounds = [] if form == "maximum" else [ko.norm(long) <= t, ko.norm(short) <= t]
    problem = ko.Problem(cp.Minimize(cp.sum_squares(targets - long(points) - short(points)) + most), bounds)
    problem.solve()
    assert (problem.status, problem.certificate.assumptions) == ("optimal", ())
    assert problem.certificate.relative_gap < 1e-6
