"""Functions of one number, recognised by structure."""

import gc
import weakref
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import kernelopt as ko
from kernelopt import losses
from kernelopt.compiler import largest as largest_module
from kernelopt.compiler import patterns, structure
from kernelopt.compiler import separable as separable_module
from kernelopt.compiler.outer import of_cones
from kernelopt.compiler.pieces import ExponentialPiece, Quadratic
from kernelopt.compiler.separable import Lengths
from kernelopt.support import cvxpy_parts

RNG = np.random.default_rng(5)
N = 25
X = RNG.normal(size=(N, 2))
Y = RNG.normal(size=N)
LABELS = np.sign(Y)
COUNTS = np.abs(Y).round()
WEIGHTS = RNG.uniform(0.5, 2, size=N)

# In words, and written out: kinks and slopes are the same.
TWINS = {
    "hinge": (lambda f: losses.hinge(LABELS, f), lambda f: cp.maximum(1 - cp.multiply(LABELS, f), 0)),
    "absolute": (lambda f: losses.absolute_error(Y, f), lambda f: cp.maximum(f - Y, Y - f)),
    "pinball": (lambda f: losses.pinball(Y, f, 0.3), lambda f: 0.3 * cp.pos(Y - f) + 0.7 * cp.pos(f - Y)),
    "insensitive": (lambda f: losses.epsilon_insensitive(Y, f, 0.2), lambda f: cp.maximum(f - Y - 0.2, Y - f - 0.2, 0)),
    "squared": (lambda f: losses.squared_error(Y, f), lambda f: cp.power(f - Y, 2)),
    "squared hinge": (lambda f: losses.squared_hinge(LABELS, f), lambda f: cp.pos(1 - cp.multiply(LABELS, f)) ** 2),
    "huber": (lambda f: losses.huber(Y, f, 0.4), lambda f: cp.huber(f - Y, 0.4)),
    "logistic": (lambda f: losses.log_loss(LABELS, f), lambda f: cp.logistic(-cp.multiply(LABELS, f))),
    "poisson": (lambda f: losses.poisson(COUNTS, f), lambda f: cp.exp(f) - cp.multiply(COUNTS, f)),
}  # fmt: skip


def pieces_of(term, intercept=True, constraints=lambda f: []):
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    f = theta(X) + b if intercept else theta(X)
    problem = ko.Problem(cp.Minimize(WEIGHTS @ term(f) + ko.sum_squares(theta)), constraints(f))
    form = problem.canonical_form()
    return form, of_cones(form).split, b


@pytest.mark.parametrize("written", [0, 1], ids=["named", "written out"])
@pytest.mark.parametrize("name", TWINS)
def test_values_slopes_and_conjugates(name, written):
    form, found, b = pieces_of(TWINS[name][written])
    assert found is not None
    kind = ExponentialPiece if name in ("logistic", "poisson") else Quadratic
    assert all(isinstance(piece, kind) for piece in found.pieces)
    low, high = found.slopes()
    for _ in range(20):
        u, b.value = 2 * RNG.normal(size=N), RNG.normal()
        form.predictions[0].u.value, form.norms[0].t.value = u, 0.0
        y = np.array([float(b.value)])
        s = found.arguments(u, y)
        linear = found.linear_u @ u + found.linear_y @ y
        assert found.value(s) + linear == pytest.approx(form.outer.objective.value, rel=1e-12)
        v = found.derivative(s)
        assert (v >= low - 1e-12).all() and (v <= high + 1e-12).all()
        assert found.conjugate(v) == pytest.approx(v @ s - found.value(s), rel=1e-9, abs=1e-9)
        other = np.clip(v + 0.1 * RNG.normal(size=len(v)), low, high)  # Fenchel–Young
        assert found.conjugate(other) >= other @ s - found.value(s) - 1e-9


def test_bounds_are_part_of_the_pieces():
    _, found, _ = pieces_of(TWINS["squared"][0], intercept=False, constraints=lambda f: [f <= 0.5, f >= -0.25])
    assert found is not None
    inside, outside = np.full(N, 0.1), np.full(N, 0.6)
    assert np.isfinite(found.value(found.arguments(inside, np.zeros(0))))
    assert found.value(found.arguments(outside, np.zeros(0))) == np.inf


def test_what_does_not_fall_apart():
    assert pieces_of(lambda f: cp.reshape(cp.norm(f - Y), (1,), order="F") @ np.ones((1, N)))[1] is None
    assert pieces_of(TWINS["hinge"][0], constraints=lambda f: [cp.norm(f[:4]) <= 1])[1] is None


@pytest.mark.parametrize("unit", [1e-8, 1e-3, 1e6])
def test_units_do_not_matter(unit):
    term = lambda f: losses.huber(unit * Y, f, 0.4 * unit)
    form, found, b = pieces_of(term)
    assert found is not None
    assert found.pieces[0].slope.shape == (N, 3)
    u, b.value = unit * RNG.normal(size=N), 0.0
    form.predictions[0].u.value, form.norms[0].t.value = u, 0.0
    assert found.value(found.arguments(u, np.zeros(1))) == pytest.approx(form.outer.objective.value, rel=1e-10)


def test_a_weight_of_next_to_nothing():
    """h(s) = a eˢ has h*(w) = w(ln w − ln a − 1), for a of a weight that is zero but for rounding too."""
    tiny = np.finfo(float).tiny
    piece = ExponentialPiece(np.arange(1), np.array([tiny]), np.ones(1), np.zeros(1), np.zeros(1), logistic=False)
    assert piece.conjugate(np.array([1e5])) == pytest.approx(1e5 * (np.log(1e5) - np.log(tiny) - 1))


def test_sweeps_over_a_penalty_are_cut_once():
    theta, lam, y = ko.Theta(ko.kernels.Gaussian(1.0)), cp.Parameter(nonneg=True, value=1.0), cp.Parameter(N, value=Y)
    loss = cp.sum(losses.absolute_error(y, theta(X)))
    form = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta))).canonical_form()
    first = of_cones(form)
    lam.value = 3.0
    second = of_cones(form)
    for again in (second, of_cones(form)):
        assert again.form.P[again.form.t] == 6.0
        assert again.split is first.split
    y.value = 2 * Y
    other = of_cones(form)
    assert other.split is not first.split
    assert other.split.pieces[0].left[:, 1] == pytest.approx(2 * first.split.pieces[0].left[:, 1])
    same = ko.Problem(cp.Minimize(cp.sum(losses.absolute_error(Y, theta(X))) + ko.sum_squares(theta))).canonical_form()
    assert of_cones(same).split is first.split


def test_data_are_taken_over_where_only_costs_of_norms_differ():
    """The same numbers as from nothing, whatever changes, and multipliers of the same constraints."""
    theta, b = ko.Theta(ko.kernels.Gaussian(1.0)), cp.Variable()
    lam, y, w = cp.Parameter(nonneg=True, value=1.0), cp.Parameter(N, value=Y), cp.Parameter(N, nonneg=True)
    w.value = np.append(np.ones(N - 2), [0.0, 0.0])  # rows of weight 0 are left out
    loss = w @ losses.absolute_error(Y, theta(X) + b) + cp.sum(losses.absolute_error(y, theta(X)))
    form = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)), [b <= 1]).canonical_form()
    last = of_cones(form)
    for change, kept in (
        (lambda: setattr(lam, "value", 3.0), True),
        (lambda: setattr(lam, "value", 0.0), None),
        (lambda: setattr(lam, "value", 2.0), None),
        (lambda: setattr(y, "value", 2 * Y), False),
        (lambda: setattr(w, "value", np.ones(N)), False),
        (lambda: setattr(lam, "value", 5.0), True),
    ):
        change()
        found = of_cones(form, last)
        for known in [*cvxpy_parts._affine.values(), *(t.affine for _, t in structure._templates.values() if t)]:
            if known is not None:
                known._last = None  # rows of the last time
        fresh = of_cones(form)
        assert kept is None or (found.form.A is last.form.A) == kept
        assert found.form.b is not fresh.form.b
        for name in ("P", "c", "b", "t", "y", "stated", "owners", "data_unit", "units"):
            np.testing.assert_array_equal(getattr(found.form, name), getattr(fresh.form, name))
        assert (found.form.A != fresh.form.A).nnz == 0 and found.split is fresh.split
        z = np.arange(1.0, len(found.form.b) + 1)
        one, other = found.form.inverse(z), fresh.form.inverse(z)
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[key], other[key]) for key in one)
        last = found


@pytest.mark.later
def test_cuts_of_small_problems_are_kept_for_a_while(monkeypatch):
    """The folds of a grid come again; what is large, or was not met lately, goes with its problem."""

    def cut_of(y):
        theta = ko.Theta(ko.kernels.Gaussian(1.0))
        return of_cones(ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)) + ko.sum_squares(theta))).canonical_form())

    known = weakref.ref(cut_of(Y).common)
    assert cut_of(Y).common is known()
    monkeypatch.setattr(separable_module, "MOST_RECENT", 2)
    for k in range(3):
        cut_of(Y + k + 1)
    gc.collect()
    assert known() is None
    monkeypatch.setattr(separable_module, "SMALL", 3)
    large = weakref.ref(cut_of(Y + 9).common)
    gc.collect()
    assert large() is None


def separated(objective, constraints=lambda u: []):
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    u = theta(X[:3])
    form = ko.Problem(cp.Minimize(objective(u) + ko.sum_squares(theta)), constraints(u)).canonical_form()
    return of_cones(form)


def test_small_curvature_beside_a_large_one():
    pieces = separated(lambda u: cp.sum(1e-14 * cp.square(u) + cp.square(cp.pos(u)))).split
    curvatures = sorted(piece.curvature[0, -1] for piece in pieces.pieces)
    assert curvatures == pytest.approx([2e-14, 2], rel=1e-12, abs=0)


def test_small_cost_beside_a_large_one():
    b = cp.Variable()
    pieces = separated(lambda u: 1e14 * cp.norm1(u + b) + b).split
    assert pieces.linear_y.tolist() == [1.0]


def test_kinks_beside_a_far_bound():
    """Huber's knots at ±1 are two, with a bound at −1e13 too."""
    pieces = separated(lambda u: cp.sum(cp.huber(u, 1.0)), lambda u: [u >= -1e13]).split
    assert pieces.pieces[0].right[0, :2] == pytest.approx([-1.0, 1.0])


def test_knots_close_together():
    pieces = separated(lambda u: cp.sum(cp.maximum(0, u, 2 * u - 1e-10))).split
    assert pieces.pieces[0].right[0, :2] == pytest.approx([0.0, 1e-10])
    squares = separated(lambda u: cp.sum(cp.maximum(cp.square(u), 1e-11 * u, 1e9 * (u - 2)))).split
    assert squares.pieces[0].right[0, :2] == pytest.approx([0.0, 1e-11], abs=1e-20)


def test_rows_of_other_arguments_are_no_multiples():
    """max(u₀, u₁) has the rows of |S·u₂|, and is no function of one number however large S is: two rows t ≥ uₖ."""
    for S in (1.0, 1e12):
        split = separated(lambda u, S=S: cp.maximum(u[0], u[1]) + cp.abs(S * u[2]) / S).split
        arguments = split.E.toarray() != 0
        for k in (0, 1):
            [row] = np.flatnonzero(arguments[:, k])
            assert arguments[row].sum() == 1
            assert split.plain[row] >= 0
            assert np.count_nonzero(split.F.toarray()[row]) == 1


@pytest.mark.one_row
@pytest.mark.parametrize("tiny", [1e-8, -1e-12, 1e-16, 1e-100, 1e-160, 1e-300])
@pytest.mark.parametrize("loss", [ko.losses.huber, ko.losses.squared_error, ko.losses.absolute_error])
def test_one_target_may_be_tiny(loss, tiny):
    """What rounding leaves of a target is 0 beside the others, and keeps none of our solvers away."""
    values = []
    for last in (tiny, 0.0):
        theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
        y, f = np.array([1.0, 2.0, -0.5, 0.3, last]), theta(np.arange(10.0).reshape(5, 2) / 4)
        problem = ko.Problem(cp.Minimize(cp.sum(loss(y, f)) + 0.1 * ko.sum_squares(theta)))
        values.append(problem.solve(solver="AUGMENTED_LAGRANGIAN"))
        assert problem.status == "optimal"
    assert values[0] == pytest.approx(values[1], rel=1e-6)


# Single patterns


def batch_of(A, a, b, c, kinds):
    A, a, b, c = (np.array([part], dtype=float) for part in (A, a, b, c))
    return patterns.Batch(np.arange(1), A, a, b, np.zeros_like(c), c, kinds)


def test_products_of_lines_round():
    """The error of 3·1 + 3·1 is that of two terms, beside the errors of the factors."""
    lines = patterns._Lines(np.ones((1, 2, 2)), np.full((1, 2, 2), 1e-10))
    assert lines.times(np.full((1, 1, 2), 3.0)).error == pytest.approx(6e-10 + 2 * patterns.EPS * 6, rel=1e-12, abs=0)


def test_units_of_small_columns():
    """Each column has the unit of its own largest coefficient."""
    batch = batch_of([[1.0, 2.0**-10]], [1.0], [1.0], [1.0, 1.0], ("nonneg",))
    assert patterns._in_own_units(batch, False)[0].A[0].tolist() == [[1.0, 1.0]]


def test_errors_of_the_ends_of_an_interval():
    """4s − 2 ≥ 0 to 1e-10: s ≥ ½ to 2.5e-11."""
    left, right, error, _ = patterns._interval(patterns._Lines(np.array([[[-2.0, 4.0]]]), np.array([[[1e-10, 0.0]]])))
    assert (left.tolist(), right.tolist()) == ([0.5], [np.inf])
    assert error == pytest.approx(1e-10 / 4, rel=1e-4, abs=0)


def test_an_exponential_in_units_of_its_own():
    """e^s ≤ 4x with a cost of 8x."""
    batch = batch_of([[0.0], [0.0], [-4.0]], [-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [8.0], ("exp",) * 3)
    piece = patterns._single_cone(batch)
    assert piece.value(np.zeros(1)) == pytest.approx(2.0)


SQUARED = ("nonneg", "nonneg") + ("power 0.5",) * 3
CONE = [[-1.0, 0.0], [0.0, 0.0], [0.0, -1.0]]  # t^½ ≥ |x|


def squared(rows, a, c=(3.0, 0.0), of_x=-1.0):
    cone = [*CONE[:2], [0.0, of_x]]
    return patterns._power(batch_of([*rows, *cone], [*a, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, 0.0], c, SQUARED))


def test_a_power_of_an_absolute_value():
    """x ≥ ±s and t ≥ x² with a cost of 3t, and with no cost of x."""
    rows, a = [[0.0, -1.0], [0.0, -1.0]], [1.0, -1.0]
    piece = squared(rows, a)
    assert piece.value(np.array([-2.0])) == pytest.approx(12.0) and not piece.positive
    assert squared(rows, a, c=(3.0, 1.0)) is None


def test_a_power_of_what_is_not_recognised():
    """x with the other sign in the cone, and a bound of s beside x ≥ s."""
    assert squared([[0.0, -1.0], [0.0, -1.0]], [1.0, 0.0]).positive
    assert squared([[0.0, -1.0], [0.0, -1.0]], [1.0, 0.0], of_x=0.5) is None
    assert squared([[0.0, -1.0], [0.0, 0.0]], [1.0, -1.0]) is None


def test_an_absolute_value_in_another_column():
    """The order of auxiliary variables does not matter."""
    rows, cone = [[-1.0, 0.0], [-1.0, 0.0]], [[0.0, -1.0], [0.0, 0.0], [-1.0, 0.0]]
    batch = batch_of([*rows, *cone], [1.0, -1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, 0.0], (0.0, 3.0), SQUARED)
    assert patterns._power(batch).value(np.array([-2.0])) == pytest.approx(12.0)


def test_units_of_costs():
    """That of a square with P = ¼ beside 8x is 8/¼ = 32; without a square there is none, and the unit is at least 1."""
    batch = replace(batch_of([[1.0]], [1.0], [2.0**-9], [8.0], ("nonneg",)), P=np.array([[0.25]]))
    _, width, _, wider = patterns._in_own_units(batch, True)
    assert width.tolist() == [32.0] and wider.tolist() == [True]
    for other, of_costs in ((batch, False), (replace(batch, P=np.zeros((1, 1))), True)):
        _, width, _, wider = patterns._in_own_units(other, of_costs)
        assert width.tolist() == [1.0 if of_costs else 2.0**-9] and wider.tolist() == [of_costs]


def test_an_interval_that_is_found_twice():
    """Its left end is that of another part up to the errors of both."""
    parts = [(-np.inf, 0.0), (0.0, 1.0), (1e-10, 1.0), (1.0, np.inf)]
    found = [
        patterns._Part(*(np.full(1, x) for x in (left, right, 0.0, 0.0, 0.0, -np.inf, np.inf, error, 0.0)))
        for (left, right), error in zip(parts, (0.0, 2e-10, 0.0, 0.0), strict=True)
    ]
    left, right, *_ = patterns._joined(found, np.zeros(1, dtype=bool))
    assert left.tolist() == [[-np.inf, 0.0, 1.0]] and right.tolist() == [[0.0, 1.0, np.inf]]


def test_errors_of_ends_that_meet_add_up(monkeypatch):
    """Where a multiplier and a slack become 0 at the same s, either may be the end."""
    ends = iter([(-1.0, 2.0, 1e-10, 2e-10), (-1.0, 2.0, 3e-10, 4e-10)])
    monkeypatch.setattr(patterns, "_interval", lambda lines: tuple(np.full(1, x) for x in next(ends)))
    part = patterns._on_active(batch_of([[-1.0]], [1.0], [0.0], [1.0], ("nonneg",)), [0], [])
    assert (part.left.tolist(), part.right.tolist()) == ([-1.0], [2.0])
    assert part.left_error == pytest.approx(4e-10) and part.right_error == pytest.approx(6e-10)


@pytest.mark.parametrize(("most", "taken"), [(1, False), (2, True)])
def test_a_maximum_of_few_quadratics(monkeypatch, most, taken):
    """t ≥ s² and x ≥ t, x ≥ s: two of them."""
    monkeypatch.setattr(largest_module, "MOST", most)
    A, a = [[1.0, -1.0], [0.0, -1.0], [-1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]], [0.0, 1.0, 0.0, 0.0, -2.0]
    kinds = ("nonneg",) * 2 + (largest_module.SQUARE,) * 3
    found = patterns.pieces_of(batch_of(A, a, [0.0, 0.0, 1.0, -1.0, 0.0], [0.0, 1.0], kinds))
    assert (found is not None) is taken
    if taken:
        (piece,) = found
        assert [piece.value(np.array([s])).item() for s in (-2.0, 0.5, 3.0)] == pytest.approx([4.0, 0.5, 9.0])


def test_functions_of_nothing():
    """Rows without a number s, and a problem without any, are functions of 0·s."""
    for columns in (3, 1):
        a, E = separable_module._one_combination(sp.csr_array((4, columns)), (2, 2))
        assert not a.any() and a.shape == (2, 2) and E.shape == (2, columns) and not E.nnz
    a, E = separable_module._one_combination(sp.csr_array((4, 0)), (2, 2))
    assert not a.any() and E.shape == (2, 0)
    assert separable_module._one_combination(sp.csr_array((0, 3)), (2, 0)) is None


def test_a_penalty_whose_minimum_is_beyond_all_doubles_has_no_least_value():
    """½·1e-320·t² − 1e10·t at t = 1e330; ∞ would be no lower bound."""
    penalty = Lengths(np.array([0.0, 0.0]), np.array([1e-320, 2.0]), np.array([np.inf, np.inf]))
    np.testing.assert_array_equal(penalty.least(np.array([1e10, 4.0])), [-np.inf, -4.0])
