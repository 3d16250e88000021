"""The bound of `pieces_checker`, formula by formula, in an arithmetic so coarse that its allowances can be seen."""

from dataclasses import replace
from fractions import Fraction
from math import fsum, inf, nextafter, sqrt

import numpy as np
import pytest
import scipy.sparse as sp
from coarse import ROOM, TINY, function, gamma, linked, make_coarse, near, smallest, stated, two_norms, u

from kernelopt.certificate import checker, pieces_checker
from kernelopt.certificate.claim import Dual, Norm, still
from kernelopt.certificate.pieces_checker import lower, stationarity
from kernelopt.pieces.form import Cone, Group

UNIT, LEAST = 2.0**-53, 2.0**-1000


@pytest.fixture
def coarse(monkeypatch):
    make_coarse(monkeypatch)


def moved(z, radius, rows=(), columns=(), inverse=()):
    """Multipliers that may move along rows to make columns vanish."""
    numbers = [np.array(x, dtype=int) for x in (rows, columns)]
    Z = sp.csr_array(np.array(inverse, dtype=float).reshape(len(rows), len(rows)))
    none = np.arange(0)
    return Dual(np.array(z, dtype=float), np.array(radius, dtype=float), *numbers, Z, none, sp.csc_array((0, 0)))


def one_norm(column=1, f=slice(1, 1)):
    """u = Aθ with one row, m = Aᵀn for n = 1, and ‖θ‖ ≤ t."""
    return linked([[0]], [Norm(column, "fro", np.eye(1), slice(0, 1), f)], [[1.0]], [[1.0]], shares=np.eye(1))


def refused(pieces, links, dual):
    found = lower(pieces, links, dual)
    assert found.value == -inf and found.rounding == inf and found.terms == inf
    return found.missing


def above_one():
    """minimize x over 1 − x ≤ 0, whose multiplier is 1."""
    return stated([1.0], [[-1.0]], [1.0], below=[0])


# g = c + Sᵀa


def test_slopes_of_the_lagrangian(coarse):
    P = stated([-1.0, 0.0, 3.0, 0.0], [[1.0, 0.0, -2.0, 0.0], [0.5, 0.0, 4.0, 1.0]], [0.0, 0.0])
    rho = np.array([0.0, 2.0**-24])
    g, e = stationarity(P, still(np.array([-1.0, 8.0])), rho)
    assert g.tolist() == [2.0, 0.0, 37.0, 8.0]
    rounding = np.array([gamma(7) * 6 + TINY, 0.0, gamma(7) * 37 + TINY, gamma(6) * 8 + TINY])
    assert e == near(rounding + rho[1] * np.array([0.5, 0.0, 4.0, 1.0]) * (1 + ROOM))
    _, e = stationarity(P, still(np.zeros(2)), 0 * rho)
    assert e == near(np.array([gamma(7) + TINY, 0.0, gamma(7) * 3 + TINY, 0.0]))


def test_slopes_that_underflow():
    P = stated([0.0, 0.0], [[2.0**-700, 0.0]], [0.0])
    for z, rho in ((2.0**-700, 0.0), (0.0, 2.0**-700)):
        assert stationarity(P, still(np.array([z])), np.array([rho]))[1].tolist() == [LEAST, 0.0]


# ω


def test_weights_of_functions_within_rows(coarse):
    """γ of their number where several are added or one is multiplied, and the moves of multipliers."""
    groups = [
        function(3, weights=[[0.5, 2.0, 0.0]]), function(4, weights=[[0.0, 0.0, 1.0]]),
        function(5, weights=[[0.0, 0.25, 0.0]]),
    ]  # fmt: skip
    P = stated([0.0], np.zeros((6, 1)), np.zeros(6), below=[0, 1], groups=groups)
    a, rho = np.array([3.0, 8.0, 9.0, 9.0, 9.0, 9.0]), np.array([0.125, 0.5, 1.0, 1.0, 1.0, 1.0])
    expected = [(6.5, gamma(4) * 6.5 + 0.25 * (1 + ROOM)), (8.0, 0.5 * (1 + ROOM))]
    expected += [(0.75, gamma(3) * 0.75 + 0.03125 * (1 + ROOM))]
    for group, (plain, off) in zip(groups, expected, strict=True):
        found = pieces_checker.weights(P, group, a, rho)
        assert [*found.low, *found.high] == near([plain - off, plain + off])
    wide = pieces_checker.weights(P, groups[1], a, 99 * rho)
    assert wide.low.tolist() == [0.0]  # never negative, and exact where only the objective has it
    alone = pieces_checker.weights(P, function(2, weights=[[0.75]]), a, rho)
    assert [*alone.low, *alone.high] == [0.75, 0.75]


def test_functions_are_asked_for_all_multipliers_within_the_radius(coarse):
    """−(ωh)*(a), and its rounding."""
    one = function(2, value=0.25, rounding=2.0**-8, weights=[[0.5, 2.0]])
    P = stated([1.0], [[-1.0], [1.0], [0.0]], [1.0, 0.0, 0.0], below=[0], groups=[one])
    found = lower(P, [], moved([1.5, 0.5, 3.0], [0.0, 2.0**-10, 0.0], [1], [0], [[1.0]]))
    off = gamma(4) * 3.5
    assert one.family.asked == [[[3.0], [0.0], near([3.5 - off]), near([3.5 + off])]]
    of_constants = 2 * u * 1.5 * (1 + ROOM)
    assert found.value == near(1.5 - 0.25 - (1 + 4 * u) * (of_constants + 2.0**-8) - TINY)
    assert found.rounding == near(of_constants + 2.0**-8) and found.terms == near(1.75)


# The sum


def test_a_bound_is_rounded_down():
    """Once for `fsum` of values and costs, once for the constant, and once for what these subtract."""
    found = lower(above_one(), [], still(np.ones(1)))
    assert found.value == 1 - 5 * UNIT
    assert found[1:] == (2 * UNIT * (1 + 1e-6), 1.0, "")
    shifted = lower(replace(above_one(), c0=-9.0), [], still(np.ones(1)))
    assert shifted.value == nextafter(-8.0, -inf)
    idle = stated([0.0], [[1.0]], [0.0])
    assert lower(idle, [], still(np.zeros(1))).value == nextafter(nextafter(nextafter(-LEAST, -inf), -inf), -inf)
    assert lower(replace(idle, c0=5.0), [], still(np.zeros(1))).value == nextafter(5.0, -inf)
    unknown = lower(replace(above_one(), c0=np.nan), [], still(np.ones(1)))
    assert unknown.value == -inf


def test_values_are_summed_exactly(monkeypatch):
    """s₀·a is 2⁻⁵⁹, the part of a product that a double leaves out."""
    for name in ("U", "TINY"):
        monkeypatch.setattr(pieces_checker, name, 0.0)
    a = np.array([1 + 2.0**-29, 1.0])
    P = stated([0.0], [[0.0], [0.0]], [1 + 2.0**-30, -(1 + 2.0**-29 + 2.0**-30)])
    exact = sum(Fraction(x) * Fraction(y) for x, y in zip(P.s0, a, strict=True))
    assert exact == Fraction(2.0**-59)
    assert lower(P, [], still(a)).value == pytest.approx(2.0**-59, rel=1e-12, abs=0)


def test_costs_of_a_radius(coarse):
    """|s₀|ρ and the rounding of s₀, with that of their sum."""
    rho = 2.0**-10
    cost = (rho + 2 * u) * (1 + ROOM)
    found = lower(above_one(), [], moved([1.0], [rho], [0], [0], [[-1.0]]))
    assert found.value == near(1 - (1 + 4 * u) * cost - TINY)
    assert found.rounding == near(cost) and found.terms == near(1.0)
    turned_round = replace(above_one(), s0=np.array([-1.0]), c0=3.0)
    assert lower(turned_round, [], moved([1.0], [rho], [0], [0], [[-1.0]])).value == near(2 - (1 + 4 * u) * cost - TINY)


# θ


def test_terms_of_norms(coarse):
    """⟨m, f⟩ with its error, and what is left of ν times ‖f‖."""
    norm = Norm(2, "fro", np.eye(2), slice(0, 2), slice(2, 4))
    gram = np.array([[4.0, 9.0, 0.5, 7.0], [9.0, 5.0, 9.0, -0.25], [0.5, 9.0, 3.0, 9.0], [7.0, -0.25, 9.0, 1.0]])
    link = linked([[0, 1]], [norm], [[1.0, 2.0, 0.0, 0.0]], gram, np.full((4, 4), 2.0**-10), np.eye(2))
    g, e = np.array([-1.0, -2.0, 4.0]), np.array([0.0, 0.0, 0.125])
    ((_, length, share),) = checker.lengths(link, g, e)
    assert length == near((sqrt(9 + 2.0**-9) * (1 + 4 * u) + share) * (1 + 4 * u))
    part = pieces_checker._of_theta(link, g, e)
    size = sqrt(4 + 2.0**-9) * (1 + 4 * u)
    assert part.missing == "" and list(part.values) == near([-0.5, 0.25])
    assert list(part.costs) == near([2.0**-10, 2.0**-10, share * size * (1 + 4 * u)])


def test_several_norms_with_functions():
    norms = [Norm(1 + j, "fro", np.eye(1), slice(j, j + 1), slice(2 + j, 3 + j)) for j in range(2)]
    gram = np.array([[1.0, 0.0, 5.0, 0.0], [0.0, 1.0, 0.0, 7.0], [5.0, 0.0, 1.0, 0.0], [0.0, 7.0, 0.0, 1.0]])
    link = linked([[0]], norms, [[1.0, 1.0, 0.0, 0.0]], gram, gram / 2**20, shares=np.array([[0.5, 0.5]]))
    part = pieces_checker._of_theta(link, np.array([-2.0, 9.0, 9.0]), np.zeros(3))
    assert list(part.values) == [-5.0, -7.0]
    assert list(part.costs) == pytest.approx([5 / 2**20, 0.0, 7 / 2**20, 0.0], abs=1e-13)
    for j in (1, 2):  # each of them has its own cost
        g = np.where(np.arange(3) == j, 0.5, [-2.0, 9.0, 9.0])
        assert pieces_checker._of_theta(link, g, np.zeros(3)).missing == "‖Aᵀν‖ exceeds what its norm costs"


def test_what_a_norm_may_cost(coarse):
    """‖m‖*(1 + 4u) ≤ g − e."""
    link, e = one_norm(), np.array([0.0, 0.25])

    def accepts(t):
        return not pieces_checker._of_theta(link, np.array([-1.0, t]), e).missing

    ((_, length, _),) = checker.lengths(link, np.array([-1.0, 0.0]), e)
    assert smallest(accepts, 0.0, 9.0) == near(length * (1 + 4 * u) + 0.25)
    assert not accepts(np.nan)
    assert pieces_checker._of_theta(link, np.array([-1.0, 5.0]), e) == checker.Part([], [])
    nan = pieces_checker._of_theta(link._replace(gram=np.full((1, 1), np.nan)), np.array([-1.0, 5.0]), e)
    assert nan.missing == "‖Aᵀν‖ exceeds what its norm costs"


def test_norms_that_bind_nothing():
    unbound = one_norm()._replace(norms=[Norm(1, "fro", np.zeros((1, 1)), slice(0, 1), slice(1, 1))])
    assert pieces_checker._of_theta(unbound, -np.ones(2), np.zeros(2)).missing == "no norm binds some output of θ"
    assert pieces_checker._of_theta(linked([[0]]), np.ones(2), np.zeros(2)) == checker.Part()


# What is free


def entries_of(free):
    """Each free column as {row: exact sum}."""
    found = []
    for a, b in zip(free.starts[:-1], free.starts[1:], strict=True):
        each = {}
        for row, value in zip(free.rows[a:b], free.values[a:b], strict=True):
            each[int(row)] = each.get(int(row), 0) + Fraction(value)
        found.append({row: value for row, value in each.items() if value})
    return found


def test_columns_without_an_owner_are_free():
    """With their costs as one more row; ν of a θ without a norm, too."""
    S = np.arange(1.0, 9.0).reshape(2, 4)
    P = stated([5.0, 0.0, 0.0, -7.0], S, [0.0, 0.0])
    free = pieces_checker.free_columns(P, [one_norm()])
    assert free.columns.tolist() == [2, 3] and free.owners.tolist() == [-1, -1]
    assert entries_of(free) == [{0: 3, 1: 7}, {0: 4, 1: 8, 2: -7}]
    free = pieces_checker.free_columns(P, [linked(np.zeros((0, 1), dtype=int), sizes=[]), linked([[0]])])
    assert free.columns.tolist() == [1, 2, 3, -1] and free.owners.tolist() == [-1, -1, -1, 1]
    assert entries_of(free)[-1] == {0: 1, 1: 5, 2: 5}


def test_rows_that_are_met_twice():
    """ν of each row of θ, outputs apart; a row that is never met has no entries."""
    S = np.array([[1.0, 2.0, 0.0, 4.0, 5.0, 6.0], [0.0, 0.0, 7.0, 0.0, 8.0, 9.0]])
    link = linked([[0, 1], [2, 3], [4, 5]], take=[1, 0, 1], sizes=np.ones(4))
    free = pieces_checker.free_columns(stated(np.zeros(6), S, [0.0, 0.0]), [link])
    assert entries_of(free) == [{1: 7}, {0: 6, 1: 8}, {}, {}, {0: 4}, {0: 8, 1: 9}, {}, {}]
    assert free.columns.tolist() == [-1] * 8 and free.owners.tolist() == [0] * 8


def test_features_are_multiplied_exactly():
    S = np.array([[1 + 2.0**-40, 0.0, 3.0], [0.0, 2.0, -1.0]])
    features = np.array([[1 + 2.0**-30, 0.0], [0.5, 3.0]])
    link = linked([[0], [1], [2]], take=[0, 1, 1], sizes=np.ones(2), features=features)
    free = pieces_checker.free_columns(stated(np.zeros(3), S, [0.0, 0.0]), [link])
    exact = Fraction(1 + 2.0**-40) * Fraction(1 + 2.0**-30) + Fraction(3, 2)
    assert entries_of(free) == [{0: exact, 1: Fraction(1, 2)}, {0: 9, 1: 3}]
    for entry, feature, is_refused in (
        (2.0**-480, 2.0**-480, True), (2.0**-480, 2.0**-479, False), (0.0, 2.0**-700, False), (1.0, 2.0**-960, True),
    ):  # fmt: skip
        P, link = stated([0.0], [[entry]], [0.0]), linked([[0]], features=np.array([[feature]]))
        assert np.isnan(pieces_checker.free_columns(P, [link]).values).any() == is_refused
        assert np.isfinite(lower(P, [link], still(np.zeros(1))).value) != is_refused


def test_columns_vanish_along_rows_of_their_own():
    """minimize −x₁ − 2x₂ over x₁ + x₂ ≤ 1 is unbounded, whatever Z is."""
    P = stated([-1.0, -2.0], [[1.0, 1.0]], [-1.0], below=[0])
    for rows, columns, inverse in (
        ([0], [0], [[1.0]]), ([0, 0], [0, 1], np.eye(2)), ([0, -1], [0, 1], np.eye(2)), ([0], [0, 1], [[1.0]]),
    ):  # fmt: skip
        assert "does not vanish" in refused(P, [], moved([1.0], [1e-9], rows, columns, inverse))
    found = lower(stated([-1.0], [[1.0], [1.0]], [-1.0, -1.0], below=[0, 1]), [], moved(
        [0.5, 0.5 + 1e-12], [1e-9, 0.0], [0], [0], [[1.0]]))  # fmt: skip
    assert -1 - 1e-8 < found.value <= -1


# Claims that do not fit together


def test_multipliers_that_are_no_point_are_refused():
    why = "the multipliers are not finite, or not those of the rows"
    for dual in (still(np.full(1, np.nan)), still(np.full(1, inf)), still(np.ones(2)), moved([1.0], [np.nan])):
        assert refused(above_one(), [], dual) == why
    negative = "a negative radius, or multipliers that differ from their twins"
    assert refused(above_one(), [], moved([1.0], [-1e-300])) == negative
    below_one = replace(above_one(), c=-np.ones(1))
    assert refused(below_one, [], still(-np.ones(1))) == "a multiplier of an inequality may be negative"
    wide = moved([1.0], [1.5], [0], [0], [[-1.0]])  # some of the multipliers within the radius are negative
    assert refused(above_one(), [], wide) == "a multiplier of an inequality may be negative"


def test_twins_move_together(coarse):
    """h(s₀) − z ≤ 0 for a z that stands in one row with −z: both rows have one multiplier, and one radius."""
    one = function(2, weights=[[0.0, 1.0]])
    P = stated([0.0, 1.0], [[-1.0, 0.0], [1.0, -1.0], [0.0, 0.0]], [1.0, 1.0, 1.0], [0], [one], bounds=[[0, 0]])
    assert P.twins.row.tolist() == [1, 1, 2] and P.twins.settled.tolist() == [True, False]
    why = "a radius of a row whose multiplier is that of another one"
    assert refused(P, [], moved([1.0, 1.0, 0.0], [1e-9, 0.0, 0.0])) == why
    lower(P, [], moved([1.0, 1.0, 0.0], [0.0, 2.0**-10, 0.0], [1], [0], [[-1.0]]))
    [box] = one.family.asked
    assert box[2:] == [near([1 - 2.0**-10 * (1 + ROOM)]), near([1 + 2.0**-10 * (1 + ROOM)])]
    different = "a negative radius, or multipliers that differ from their twins"
    assert refused(P, [], still(np.array([1.0, 1.5, 0.0]))) == different


def test_columns_have_one_owner():
    P = stated([0.0] * 4, [[-1.0, 0.0, 0.0, 0.0]], [0.0])
    link = one_norm()
    for wrong in (
        link._replace(columns=np.array([[1]])), link._replace(norms=[link.norms[0]._replace(column=0)]),
        link._replace(columns=np.array([[-1]])), link._replace(norms=[link.norms[0]._replace(column=-2)]),
    ):  # fmt: skip
        assert refused(P, [wrong], still(np.zeros(1))) == "columns with two owners"
    assert refused(P, [link, link], still(np.zeros(1))) == "columns with two owners"


def test_rows_stand_once():
    """A row of nothing is no equation, and of a row in two cones or functions the multiplier would count twice."""
    P, why = stated([0.0], np.zeros((3, 1)), np.zeros(3), below=[0]), "rows that stand nowhere, or twice"
    assert pieces_checker.ill_posed(P, [], still(np.zeros(3))) == ""
    one, cone = function(2), Cone("soc", np.array([1, 2]))
    for changed in (
        {"equal": np.array([1])}, {"equal": np.array([0, 1, 2])}, {"equal": np.array([1, 2, 3])}, {"groups": (one,)},
        {"cones": (cone,)}, {"equal": np.arange(0), "cones": (cone,), "groups": (one,)},
    ):  # fmt: skip
        assert refused(replace(P, **changed), [], still(np.zeros(3))) == why
    assert pieces_checker.ill_posed(replace(P, equal=np.arange(0), cones=(cone,)), [], still(np.zeros(3))) == ""


def test_weights_are_not_negative():
    group = function(1, weights=[[0.0, -1.0]])
    P = stated([0.0], np.zeros((2, 1)), np.zeros(2), below=[0], groups=[group])
    assert refused(P, [], still(np.zeros(2))) == "a negative weight"


def test_multipliers_fit_their_norms():
    """Two norms that swap their numbers of columns, functions with a column too few, and beside T."""
    P, link, dual = stated(np.zeros(8), np.zeros((1, 8)), [0.0]), two_norms(), still(np.zeros(1))
    why, (first, second) = "multipliers that do not fit their norm, or a function beside a turned one", link.norms
    assert pieces_checker.ill_posed(P, [link], dual) == ""
    swapped = [first._replace(n=slice(0, 2)), second._replace(n=slice(2, 3))]
    assert refused(P, [link._replace(norms=swapped)], dual) == why
    wider = link._replace(V=np.ones((2, 5)), gram=np.eye(5), error=np.zeros((5, 5)))
    for f, T, fits in (
        (slice(3, 5), None, True), (slice(3, 4), None, False), (slice(3, 5), np.eye(2), False),
        (slice(3, 4), np.eye(2), False), (slice(5, 5), np.eye(2), True), (slice(5, 5), np.ones((2, 1)), False),
    ):  # fmt: skip
        found = pieces_checker.ill_posed(P, [wider._replace(norms=[first, second._replace(f=f, T=T)])], dual)
        assert found == ("" if fits else why)


def test_cones_hold_for_all_multipliers_within_the_radius():
    P = stated([0.0], np.zeros((3, 1)), np.zeros(3), cones=[Cone("soc", np.array([0, 1, 2]))])
    outside = "the multipliers of a cone are not in its dual cone"
    z = -np.array([5.5, 3.0, 4.0])
    assert np.isfinite(lower(P, [], still(z)).value)
    assert refused(P, [], still(-z)) == outside
    assert refused(P, [], moved(z, [0.0, 0.5, 0.5])) == outside


# Units


def test_units_are_exact_powers_of_two(monkeypatch, coarse):
    monkeypatch.setattr(pieces_checker, "MODERATE", 0)
    gram = np.array([[4.0, 0.0, 1.0], [0.0, 0.0, 2.0], [1.0, 2.0, 8.0]])
    error = np.diag([0.5, 0.25, 0.0])
    link = two_norms()
    norm = link.norms[0]._replace(n=slice(0, 1), f=slice(1, 2))
    link = link._replace(norms=[norm, norm], gram=gram, error=error)
    groups = [Group(None, np.array([[1]]), sp.csr_array([[3.0, 0.5]]))]
    P = stated([5.0, -1.0], np.zeros((2, 2)), [1.0, 1.0], below=[0], groups=groups)
    pieces, (new,), dual, k = pieces_checker.in_one_unit(P, [link], moved([1.0, 2.0], [0.5, 0.0]))
    assert k == 3 and pieces.c.tolist() == [0.625, -0.125] and pieces.s0.tolist() == [1.0, 1.0]
    assert pieces.groups[0].weights.toarray().tolist() == [[0.375, 0.5]]  # the second belongs to a multiplier
    assert dual.z.tolist() == [0.125, 0.25] and dual.radius.tolist() == [0.0625 + TINY, 0.0]
    both = np.array([[64.0, 8.0, 8.0], [8.0, 1.0, 1.0], [8.0, 1.0, 1.0]])
    assert np.array_equal(new.V, link.V / [8, 1, 1]) and np.array_equal(new.gram, gram / both)
    assert np.array_equal(new.error, error / both + TINY * ((gram != 0) | (error > 0)))
    heavier = [Group(None, np.array([[1]]), sp.csr_array([[64.0, 0.5]]))]
    other = stated([5.0, -1.0], np.zeros((2, 2)), [1.0, 1.0], below=[0], groups=heavier)
    assert pieces_checker.in_one_unit(other, [link], moved([1.0, 2.0], [0.5, 0.0]))[3] == 7


@pytest.mark.parametrize("power", [-400, -100, 100, 400])
def test_units_of_the_objective(power):
    """minimize x + t over x ≥ 1 − u and ‖θ‖ ≤ t, times 2ᵏ."""
    S = [[-1.0, 0.0, -1.0]]
    norm = Norm(1, "fro", np.eye(1), slice(0, 1), slice(1, 1))

    def bound(unit):
        P = stated([0.0, 2 * unit, unit], S, [1.0], below=[0])
        link = linked([[0]], [norm], [[unit]], [[unit**2]], shares=np.eye(1))
        return lower(P, [link], still(np.array([unit])))

    one, found = bound(1.0), bound(2.0**power)
    assert 1 - 1e-14 < one.value <= 1
    assert found.value / 2.0**power == pytest.approx(one.value, rel=1e-12) and found.value <= 2.0**power


def test_numbers_that_lose_digits_are_refused():
    why, lost = "numbers too far apart to be scaled exactly: change units", 2.0**-1074
    big, fine = stated([2.0**100, 0.0, 0.0], [[-1.0, 0.0, 0.0]], [1.0], below=[0]), still(np.array([2.0**100]))
    link = linked([[1]], [Norm(2, "fro", np.eye(1), slice(0, 1), slice(1, 1))], [[0.0]], [[0.0]], shares=np.eye(1))
    assert np.isfinite(lower(big, [link], fine).value)
    weight = function(0, weights=[[lost]])
    for bad in (
        (replace(big, c=np.array([2.0**100, 0, lost])), [link], fine), (big, [link], still(np.array([lost]))),
        (big, [link._replace(V=np.array([[lost]]))], fine),
        (replace(big, groups=(weight,), below=np.arange(0)), [link], fine),
    ):  # fmt: skip
        assert refused(*bad) == why
    for odd in (np.nan, inf):
        assert lower(replace(big, c=np.array([odd, 0, 0])), [link], fine).value == -inf


def test_numbers_that_overflow_are_refused():
    for m, entry, target in ((1, 1.0, 2.0**1000), (8, 2.0**-36, 2.0**992)):  # a product; a sum of terms that fit
        P = stated([2.0**30], np.full((m, 1), entry), np.full(m, target))
        dual = still(np.full(m, -(2.0**30) / entry / m))
        assert refused(P, [], dual) == "numbers are too large: change units"


def test_claims_about_nothing():
    empty = replace(stated([], np.zeros((0, 0)), []), c0=3.0)
    assert lower(empty, [], still(np.zeros(0))).value == nextafter(3.0, -inf)
    assert fsum([lower(stated([], np.zeros((0, 0)), []), [], still(np.zeros(0))).value]) < 0
