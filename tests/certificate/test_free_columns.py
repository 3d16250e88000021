"""Columns that must vanish, points nearby at which they do, claims that do not fit together, and units."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from coarse import ROOM, TINY, gamma, linked, make_coarse, near, program, smallest, two_norms, u

from kernelopt.certificate import balance, checker, handover
from kernelopt.certificate.claim import Norm, still


@pytest.fixture
def coarse(monkeypatch):
    make_coarse(monkeypatch)


def moved(dual, radius, rows=(), columns=(), inverse=None, others=(), weights=None):  # noqa: PLR0917
    inverse = np.zeros((0, 0)) if inverse is None else np.atleast_2d(inverse)
    weights = np.zeros((0, 0)) if weights is None else np.array(weights, dtype=float)
    integers = [np.array(x, dtype=int) for x in (rows, columns, others)]
    return replace(
        dual, radius=np.array(radius, dtype=float), rows=integers[0], columns=integers[1],
        inverse=sp.csr_array(inverse), others=integers[2], weights=sp.csc_array(weights),
    )  # fmt: skip


def columns_of(free):
    """Each free column as {row: exact sum}."""
    found = []
    for a, b in zip(free.starts[:-1], free.starts[1:], strict=True):
        entries = {}
        for row, value in zip(free.rows[a:b], free.values[a:b], strict=True):
            entries[int(row)] = entries.get(int(row), 0) + Fraction(value)
        found.append({row: value for row, value in entries.items() if value})
    return found


# What is free


def test_which_columns_are_free():
    """Neither curved, nor owned by θ; the cost is one more row."""
    A = np.arange(1.0, 17.0).reshape(2, 8)
    stated = program([1.0, 1.0, 1.0, 1.0, 0, 0, 2.0, 0], [0, 0, 0, 0, 5.0, 0, 0, -7.0], A, [0.0, 0.0])
    link = linked([[4]], [Norm(5, "fro", np.eye(1), slice(0, 1), slice(1, 1))])
    free = checker.free_columns(stated, [link], still(np.zeros(2), np.zeros(8)))
    assert free.columns.tolist() == [7] and free.owners.tolist() == [-1]
    assert columns_of(free) == [{0: 8, 1: 16, 2: -7}]
    bare = link._replace(norms=[])
    tangent = np.zeros(8)
    tangent[4] = -0.5
    free = checker.free_columns(
        stated, [linked(np.zeros((0, 1), dtype=int), sizes=[]), bare], still(np.zeros(2), tangent)
    )
    assert free.columns.tolist() == [5, 7, -1] and free.owners.tolist() == [-1, -1, 1]
    assert columns_of(free) == [{0: 6, 1: 14}, {0: 8, 1: 16, 2: -7}, {0: 5, 1: 13, 2: Fraction(9, 2)}]


def test_rows_that_are_met_twice():
    """ν of each row of θ, outputs apart; a row that is never met has no entries."""
    A = np.array([[1.0, 2.0, 0.0, 4.0, 5.0, 6.0], [0.0, 0.0, 7.0, 0.0, 8.0, 9.0]])
    stated = program(np.zeros(6), np.zeros(6), A, [0.0, 0.0])
    link = linked([[0, 1], [2, 3], [4, 5]], take=[1, 0, 1], sizes=np.ones(4))
    free = checker.free_columns(stated, [link], still(np.zeros(2), np.zeros(6)))
    assert columns_of(free) == [{1: 7}, {0: 6, 1: 8}, {}, {}, {0: 4}, {0: 8, 1: 9}, {}, {}]
    assert free.columns.tolist() == [-1] * 8 and free.owners.tolist() == [0] * 8
    found, inexact = checker.sums(free, np.array([1.0, -1.0]))
    assert found.tolist() == [-7, -2, 0, 0, 4, -1, 0, 0] and not inexact.any()


def test_features_are_multiplied_exactly():
    A = np.array([[1 + 2.0**-40, 0.0, 3.0], [0.0, 2.0, -1.0]])
    features = np.array([[1 + 2.0**-30, 0.0], [0.5, 3.0]])
    stated = program(np.zeros(3), np.zeros(3), A, [0.0, 0.0])
    link = linked([[0], [1], [2]], take=[0, 1, 1], sizes=np.ones(2), features=features)
    free = checker.free_columns(stated, [link], still(np.zeros(2), np.zeros(3)))
    exact = Fraction(1 + 2.0**-40) * Fraction(1 + 2.0**-30) + Fraction(3, 2)
    assert columns_of(free) == [{0: exact, 1: Fraction(1, 2)}, {0: 9, 1: 3}]
    assert free.values.all()
    for entry, feature, refused in (
        (2.0**-480, 2.0**-480, True),
        (2.0**-480, 2.0**-479, False),
        (0.0, 2.0**-700, False),
        (2.0**-700, 0.0, False),
        (1.0, 2.0**-960, True),
        (2.0**-960, 1.0, True),
    ):
        stated = program(np.zeros(1), np.zeros(1), [[entry]], [0.0])
        link = linked([[0]], features=np.array([[feature]]))
        free = checker.free_columns(stated, [link], still(np.zeros(1), np.zeros(1)))
        assert np.isnan(free.values).any() == refused
        found = checker.lower(stated, [link], still(np.zeros(1), np.zeros(1)))
        assert found.value == (-np.inf if refused else 0.0)


# Residuals


def free_of(columns, m):
    """Free columns from lists of (row, value)."""
    rows = [row for column in columns for row, _ in column]
    values = np.array([value for column in columns for _, value in column], dtype=float)
    starts = np.cumsum([0, *map(len, columns)])
    none = np.full(len(columns), -1)
    assert max(rows, default=0) <= m
    return checker.Free(np.array(rows, dtype=int), values, starts, np.arange(len(columns)), none)


def test_residuals_are_sums_rounded_once():
    z = np.array([1 + 2.0**-30, -1.0])
    free = free_of([[(0, 1 + 2.0**-30), (1, 1.0), (2, -(2.0**-29))], [], [(0, 1.0), (1, 1.0)], [(2, -3.0)]], 2)
    found, inexact = checker.sums(free, z)
    assert found.tolist() == [2.0**-60, 0.0, 2.0**-30, -3.0] and not inexact.any()
    left = checker.residuals(free, still(z, np.zeros(4)))
    assert left.tolist() == [
        2.0**-60 * (1 + 2.0**-52),
        0.0,
        2.0**-30 * (1 + 2.0**-52),
        3 + 2.0**-50,
    ]


def test_residuals_that_underflow():
    z = np.array([2.0**-480, 0.0])
    free = free_of(
        [[(0, 2.0**-480)], [], [(0, 2.0**-479)], [(1, 2.0**-700)], [(0, 0.0)], [], [(0, 2.0**-700), (0, 2.0**-700)]], 2
    )
    left = checker.residuals(free, still(z, np.zeros(7)))
    assert left.tolist() == [
        2.0**-960 * (1 + 2.0**-40 + 2.0**-52), 0.0, 2.0**-959 * (1 + 2.0**-52), 0.0, 0.0, 0.0, 2.0**-999
    ]  # fmt: skip


# A point nearby


def single(a=2.0, left=2.0**-10):
    """One column, a·z + c."""
    z = np.array([1.0, 0.0])
    return free_of([[(0, a), (2, left - a)], [(1, 1.0)]], 2), still(z, np.zeros(2))


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.75, 1.0, 1.5, -0.25])
def test_the_smallest_radius(coarse, scale):
    """ρ > |Z||r| + (|I − ZM| + rounding)ρ."""
    free, dual = single()
    left = checker.residuals(free, dual)
    assert left[0] == near(2.0**-10 * (1 + 2 * u))

    def accepts(rho):
        return checker.vanishes(free, left, moved(dual, [rho, 0.0], [0], [0], [[scale / 2.0]]))

    if scale < 0:
        assert not accepts(1e9)
        return
    least = smallest(accepts, 0.0, 9.0)
    off = gamma(2 + 1 + 8) * (scale + 1)
    right = scale / 2 * left[0] + (abs(1 - scale) + off) * least
    assert least == near(right * (1 + ROOM))


def test_no_move_proves_nothing():
    free, dual = single()
    assert not checker.vanishes(free, np.array([1.0, 0.0]), moved(dual, [0.0, 0.0], [0], [0], [[0.0]]))


def test_rows_and_columns_are_counted_from_the_first():
    """Row −1 would be that of costs, which no multiplier moves."""
    free, dual = free_of([[(0, 2.0), (1, 2.0**-10 - 2.0)]], 1), still(np.ones(1), np.zeros(1))
    left = checker.residuals(free, dual)
    assert checker.vanishes(free, left, moved(dual, [1.0], [0], [0], [[0.5]]))
    assert not checker.vanishes(free, left, moved(dual, [1.0], [-1], [0], [[1 / (2.0**-10 - 2.0)]]))
    assert not checker.vanishes(free, left, moved(dual, [1.0], [0], [-1], [[0.5]]))


def test_entries_of_a_row_are_added_up():
    free = free_of([[(0, 1.0), (0, 2.0**-60), (0, 2.0), (1, 4.0)], [(1, 5.0), (1, -5.0), (0, 6.0)]], 2)
    before = [part.copy() for part in free]
    assert np.array_equal(free.matrix(2, free.values).toarray(), [[3.0, 6.0], [4.0, 0.0], [0.0, 0.0]])
    assert np.array_equal(free.matrix(2, np.abs(free.values)).toarray(), [[3.0, 6.0], [4.0, 10.0], [0.0, 0.0]])
    assert all(np.array_equal(now, then) for now, then in zip(free, before, strict=True))  # which leaves them alone


@pytest.mark.later
def test_a_block_of_two(coarse):
    """Rows 2 and 0 for columns 1 and 2; the first column stays away from these."""
    A = np.array([[0.0, 1.0, 2.0], [1.0, 5.0, 0.0], [0.0, 3.0, -1.0]])
    free = free_of([[(i, A[i, j]) for i in range(3) if A[i, j]] for j in range(3)], 3)
    left = np.array([0.0, 0.25, 0.5])
    M = A[np.ix_([2, 0], [1, 2])].T
    Z = np.linalg.inv(M) + np.array([[0.01, -0.02], [0.0, 0.03]])
    dual = still(np.ones(3), np.zeros(3))

    def accepts(rho):
        return checker.vanishes(free, left, moved(dual, [2 * rho, 0.0, rho], [2, 0], [1, 2], Z))

    least = smallest(accepts, 0.0, 100.0)
    rho = least * np.array([1.0, 2.0])
    off = gamma(3 + 2 + 8) * (abs(Z) @ abs(M) @ rho + rho)
    right = (abs(Z) @ left[1:] + abs(np.eye(2) - Z @ M) @ rho + off) * (1 + ROOM)
    assert min(rho / right) == near(1.0)
    good = moved(dual, [2 * 9.0, 0.0, 9.0], [2, 0], [1, 2], Z)
    assert checker.vanishes(free, left, good)
    assert not checker.vanishes(free, np.array([1e-300, 0.25, 0.5]), good)  # the first column does not vanish
    assert not checker.vanishes(
        free, left, replace(good, radius=np.array([18.0, 1e-300, 9.0]))
    )  # a row without a column
    assert not checker.vanishes(free, left, replace(good, columns=np.array([1, 0])))
    small = [[(1, 1.0), (0, 1e-30)], *[[(i, A[i, j]) for i in range(3) if A[i, j]] for j in (1, 2)]]
    met = free_of([[(1, 1.0), (0, 1.0)], *small[1:]], 3)
    assert not checker.vanishes(met, np.array([1.0, 0.25, 0.5]), good)  # nor here, where its row moves
    tiny = replace(good, radius=np.array([2.0**-1000, 0.0, 2.0**-1000]))
    accurate = replace(tiny, inverse=sp.csr_array(np.linalg.inv(M)))
    assert checker.vanishes(free, 0 * left, accurate)
    assert not checker.vanishes(free_of(small, 3), 0 * left, accurate)  # 1e-30·ρ underflows, and is not 0


def test_more_columns_than_rows_do_not_vanish_with_them():
    """minimize −x₁ − 2x₂ over x₁ + x₂ ≤ 1 is unbounded, whatever Z is."""
    stated = program([0.0, 0.0], [-1.0, -2.0], [[1.0, 1.0]], [1.0])._replace(cones=[("nonneg", slice(0, 1), None)])
    dual = still(np.ones(1), np.zeros(2))
    assert checker.lower(stated, [], moved(dual, [1e-9], [0], [0, 1], [[1.0, 0.0]])).value == -np.inf
    assert checker.lower(stated, [], moved(dual, [1e-9], [0, 0], [0, 1], [[1.0, 0.0], [0.0, 1.0]])).value == -np.inf
    assert checker.lower(stated, [], moved(dual, [1e-9], [0, -1], [0, 1], [[1.0, 0.0], [0.0, 1.0]])).value == -np.inf
    assert checker.lower(stated, [], moved(dual, [1e-9], [0], [0], [[1.0, 1.0]])).value == -np.inf
    wide = program([0.0], [-1.0], [[1.0], [1.0]], [1.0, 1.0])._replace(cones=[("nonneg", slice(0, 2), None)])
    halves = still(np.array([0.5, 0.5 + 1e-12]), np.zeros(1))
    assert checker.lower(wide, [], moved(halves, [1e-9, 1e-9], [0, 1], [0], [[0.5], [0.5]])).value == -np.inf
    twice = moved(halves, [1e-9, 1e-9], [0, 1], [0, 0], [[1.0, 0.0], [0.0, 1.0]])
    assert checker.lower(wide, [], twice).value == -np.inf


# Combinations


def combination(third, weights, z=(1.0, 1.0, 0.0), c3=-4.0):
    """Columns 0 and 1 vanish along rows 0 and 1; what of the third?"""
    one = [[(0, 1.0), (3, -1.0)], [(1, 3.0), (3, -3.0)], [*enumerate(third), (3, c3)]]
    free = free_of([[entry for entry in column if entry[1]] for column in one], 3)
    dual = moved(still(np.array(z), np.zeros(3)), (2.0**-20, 0.0, 0.0), [0], [0], [[1.0]], [2], weights)
    return checker.vanishes(free, np.array([2.0**-30, 0.0, 2.0**-30]), dual)


def test_combinations_of_columns():
    """The third is the sum of both, costs included, in rows where z can differ from 0."""
    weights = [[1.0], [1.0], [0.0]]
    assert combination((1.0, 3.0, 0.0), weights)
    assert combination((1.0, 3.0, 7.0), weights)  # z stays 0 in the last row
    assert not combination((1.0, 3.0, 7.0), weights, z=(1.0, 1.0, 0.5))
    assert not combination((1.0, 3.0, 7.0), weights, z=(1.0, 1.0, 1.0))
    assert not combination((1.0, 3.0, 0.0), weights, c3=-4.0 - 2.0**-50)  # another cost
    assert not combination((1.0, 3.0 + 2.0**-50, 0.0), weights)
    assert not combination((1.0, 3.0, 0.0), [[0.0], [0.0], [1.0]])  # of itself
    assert not combination((1.0, 3.0, 0.0), [[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    assert not combination((1.0, 3.0, 0.0), [[1.0], [1.0]])
    assert not combination((1.0, 3.0, 0.0), [[1.0], [np.nan], [0.0]])


def test_rows_count_where_they_can_move():
    """z₀ = 0 moves: the third column must have its part there."""
    for radius, expected in (((2.0**-20, 0.0, 0.0), False), ((0.0, 0.0, 0.0), True)):
        free = free_of([[(0, 1.0)], [(1, 3.0), (2, -3.0)], [(0, 5.0), (1, 3.0), (2, -3.0)]], 2)
        rows = [0] if radius[0] else []
        inverse = [[1.0]] if radius[0] else np.zeros((0, 0))
        dual = moved(
            still(np.array([0.0, 1.0]), np.zeros(3)), radius[:2], rows, rows, inverse, [2], [[0.0], [1.0], [0.0]]
        )
        assert checker.vanishes(free, np.zeros(3), dual) == expected


def test_combinations_with_inexact_products():
    """w = 1/3 in floating point is no third: 3w differs from 1 by 2⁻⁵⁴."""
    w = 1 / 3
    assert not combination((0.0, 1.0, 0.0), [[0.0], [w], [0.0]], c3=-1.0)
    a, b = 1 + 2.0**-30, 1 + 2.0**-29
    one = [[(0, a), (1, -a)], [(0, a * b), (1, -a * b)], [(0, a * b), (0, 2.0**-59), (1, -a * b), (1, -(2.0**-59))]]
    free = free_of(one, 1)
    for column, expected in ((1, False), (2, True)):
        weights = np.zeros((3, 1))
        weights[0] = b
        rest = np.delete(np.arange(3), [0, column])
        dual = moved(still(np.ones(1), np.zeros(3)), [0.0], (), (), None, [column], weights)
        assert checker.vanishes(free, np.where(np.isin(np.arange(3), rest), 0.0, 1e-9) * [0, 1, 1], dual) == expected


def test_combinations_of_several():
    """Two others, with their entries in the same rows."""
    one = [
        [(0, 1.0), (2, -1.0)],
        [(1, 1.0), (2, -1.0)],
        [(0, 1.0), (1, 2.0), (2, -3.0)],
        [(0, -2.0), (1, 1.0), (2, 1.0)],
    ]
    left, weights = np.array([0.0, 0.0, 1e-9, 1e-9]), np.array([[1.0, -2.0], [2.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    for change, expected in ((None, True), ((0, 0), False), ((0, 1), False), ((1, 0), False), ((1, 1), False)):
        changed = weights.copy()
        if change:
            changed[change] += 0.5
        dual = moved(still(np.ones(2), np.zeros(4)), [0.0, 0.0], (), (), None, [2, 3], changed)
        assert checker.vanishes(free_of(one, 2), left, dual) == expected
    swapped = moved(still(np.ones(2), np.zeros(4)), [0.0, 0.0], (), (), None, [3, 2], weights)
    assert not checker.vanishes(free_of(one, 2), left, swapped)
    empty = free_of([[(0, 1.0), (2, -1.0)], [(1, 1.0), (2, -1.0)], [], []], 2)
    dual = moved(still(np.ones(2), np.zeros(4)), [0.0, 0.0], (), (), None, [2, 3], 0 * weights)
    assert checker.vanishes(empty, left, dual)
    dual = moved(still(np.ones(2), np.zeros(4)), [0.0, 0.0], (), (), None, [2, 3], weights)
    assert not checker.vanishes(empty, left, dual)


def test_combinations_that_lack_something():
    """An other column with an entry that nothing makes up, in the first, a middle and the last row."""
    none = [[0.0], [0.0]]
    for entries, expected in (([], True), ([(0, 1.0)], False), ([(1, 1.0)], False), ([(2, 1.0)], False)):
        dual = moved(still(np.ones(2), np.zeros(2)), [0.0, 0.0], (), (), None, [1], none)
        assert checker.vanishes(free_of([[], entries], 2), np.array([0.0, 1e-9]), dual) == expected
    one = [[(0, 1.0)], [(0, 1.0)], [(2, 5.0)]]
    dual = moved(still(np.ones(2), np.zeros(3)), [0.0, 0.0], (), (), None, [1, 2], [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    assert not checker.vanishes(free_of(one, 2), np.zeros(3), dual)


def test_weights_whose_products_underflow():
    """A weight of 1e-300 on 1e-300 is not nothing."""
    one = [[(0, 1e-300), (1, -1e-300)], []]
    for weight, expected in ((1e-300, False), (0.0, True)):
        dual = moved(still(np.ones(1), np.zeros(2)), [0.0], (), (), None, [1], [[weight], [0.0]])
        assert checker.vanishes(free_of(one, 1), np.array([0.0, 1e-9]), dual) == expected


# Claims


def claim():
    """minimize x over x ≥ 1, and θ with two rows."""
    link = linked([[1], [2]], [Norm(3, "fro", np.eye(1), slice(0, 1), slice(1, 1))], [[0.0], [0.0]], shares=np.eye(1))
    stated = program([0.0, 0.0, 0.0, 2.0], [1.0, 0.0, 0.0, 0.0], [[-1.0, 0.0, 0.0, 0.0]], [-1.0])
    return stated._replace(cones=[("nonneg", slice(0, 1), None)]), [link], still(np.ones(1), np.zeros(4))


def refused(stated, links, dual):
    found = checker.lower(stated, links, dual)
    assert found.value == -np.inf and found.rounding == np.inf and found.terms == np.inf
    return found.missing


def test_a_bound_is_rounded_down_three_times():
    stated, links, dual = claim()
    roomy = replace(dual, radius=np.array([0.25]))  # which nothing is charged for where z needs no move
    assert checker.lower(stated, links, roomy) == checker.lower(stated, links, dual)
    found = checker.lower(stated, links, dual)
    assert found.value == 1 - 5 * 2.0**-53  # two of them for b, which is a product of stated numbers
    assert found[1:] == (2.0**-52 * (1 + checker.ROOM), 1.0, "")
    shifted = checker.lower(stated._replace(offset=-9.0), links, dual)
    assert shifted.value == np.nextafter(-8.0, -np.inf)
    idle = stated._replace(b=np.zeros(1), offset=5.0)
    assert checker.lower(idle, links, dual) == (5.0, 0.0, 0.0, "")
    unknown = checker.lower(stated._replace(offset=np.nan), links, dual)
    assert unknown.value == -np.inf and unknown.missing == ""


def test_costs_of_a_bound(coarse):
    """Values, less costs with their rounding, and less TINY where there are any."""
    stated, links, dual = claim()
    rho = 2.0**-10
    near_by = moved(dual, [rho], [0], [0], [[-1.0]])
    found = checker.lower(stated, links, near_by)
    cost = (rho / 4 + TINY + 2 * u / 4) * (1 + ROOM)  # in units of 4, the power of two above P
    assert found.rounding == near(4 * cost)
    assert found.terms == near(1.0)
    assert found.value == near(4 * (0.25 - (1 + 4 * u) * cost - TINY))
    turned_round = stated._replace(b=np.array([1.0]), offset=3.0)
    lower = checker.lower(turned_round, links, near_by)
    assert lower.value == near(3 + 4 * (-0.25 - (1 + 4 * u) * cost - TINY)) and lower.terms == near(1.0)


def test_points_that_are_not_finite():
    stated, links, dual = claim()
    for name in ("z", "tangent", "radius"):
        bad = getattr(dual, name).copy()
        bad[0] = np.nan
        assert refused(stated, links, replace(dual, **{name: bad})) == "the dual point is not finite"


def test_rows_and_radii():
    stated, links, dual = claim()
    why = "rows without a cone, or a negative radius"
    one = ("nonneg", slice(0, 1), None)
    for cones in ([], [one, one], [("nonneg", slice(0, 0), None)]):
        assert refused(stated._replace(cones=cones), links, dual) == why
    assert refused(stated, links, replace(dual, z=np.ones(2), radius=np.zeros(2))) == why
    assert refused(stated, links, replace(dual, radius=np.array([-1e-300]))) == why
    assert refused(stated, links, replace(dual, z=-dual.z)) == "the dual point is not in the dual cone"


def test_columns_with_one_owner():
    stated, (link,), dual = claim()
    why = "columns with two owners, or curved downwards"
    norm = link.norms[0]
    for wrong in (
        link._replace(columns=np.array([[1], [1]])),
        link._replace(norms=[norm._replace(column=1)]),
        link._replace(norms=[norm._replace(column=-2)]),
        link._replace(columns=np.array([[1], [-3]])),
    ):
        assert refused(stated, [wrong], dual) == why
    assert refused(stated, [link, link], dual) == why
    assert refused(stated._replace(P=np.array([0.0, 0.0, 0.0, -1e-300])), [link], dual) == why


def test_multipliers_fit_their_norms():
    """Two norms that swap their numbers of columns, functions with a column too few, and beside T."""
    link = two_norms()
    stated = program(np.zeros(8), np.zeros(8), np.zeros((1, 8)), [0.0])
    dual = still(np.zeros(1), np.zeros(8))
    why = "multipliers that do not fit their norm, or a function beside a turned one"
    assert "fit their norm" not in checker.lower(stated, [link], dual).missing
    first, second = link.norms
    assert (
        refused(stated, [link._replace(norms=[first._replace(n=slice(0, 2)), second._replace(n=slice(2, 3))])], dual)
        == why
    )
    wider = link._replace(V=np.ones((2, 5)), gram=np.eye(5), error=np.zeros((5, 5)))
    for f, T, fits in (
        (slice(3, 5), None, True),
        (slice(3, 4), None, False),
        (slice(3, 5), np.eye(2), False),
        (slice(3, 4), np.eye(2), False),
        (slice(5, 5), np.eye(2), True),
        (slice(5, 5), np.ones((2, 1)), False),
    ):
        found = checker.ill_posed(stated, [wider._replace(norms=[first, second._replace(f=f, T=T)])], dual)
        assert found == ("" if fits else why)


def test_what_is_missing_is_said():
    stated, (link,), dual = claim()
    assert refused(stated, [link], replace(dual, z=np.array([0.5]))) == "column 0 does not vanish"
    c = np.array([1.0, 0.0, 0.0, 0.0, 0.0, 2.0])
    more = stated._replace(P=np.append(stated.P, [0.0, 0.0]), c=c, A=sp.csc_array(np.array([[-1.0, 0, 0, 0, 0, 0]])))
    assert refused(more, [link], still(np.ones(1), np.zeros(6))) == "column 5 does not vanish"
    assert refused(more._replace(c=c[::-1]), [], still(np.zeros(1), np.zeros(6))) == "column 0 does not vanish"
    free = link._replace(norms=[])
    sloped = stated._replace(c=np.array([1.0, 0.0, 1.0, 0.0]))
    assert refused(sloped, [free], dual) == "Aᵀν does not vanish, and no norm binds θ"
    assert np.isfinite(checker.lower(stated, [free], dual).value)
    assert refused(sloped, [free], replace(dual, z=np.array([0.5]))) == "column 0 does not vanish"
    # of two θ only the second must vanish where a norm binds the first
    bound = link._replace(
        columns=np.array([[1]]), take=np.array([0]), sizes=np.ones(1), V=np.array([[-1.0]]), gram=np.eye(1)
    )
    second = linked([[2]])
    tilted = stated._replace(c=np.array([1.0, 1.0, 0.0, 0.0]))
    assert np.isfinite(checker.lower(tilted, [bound, second], dual).value)
    assert np.isfinite(checker.lower(tilted, [second, bound], dual).value)
    flat = tilted._replace(P=np.zeros(4))
    assert refused(flat, [bound, second], dual) == "‖Aᵀν‖ exceeds what its norm costs"
    both = sloped._replace(c=np.array([1.0, 0.0, 3.0, 0.0]))
    assert refused(both, [second], dual) == "Aᵀν does not vanish, and no norm binds θ"
    assert refused(stated, [link], replace(dual, tangent=np.array([1.0, 0, 0, 0]))).startswith(("a tangent", "column"))


@pytest.mark.parametrize("slope", [3.0, 2.0**-40])
def test_an_assumed_radius_leaves_the_other_theta_as_it_is(slope):
    """Only a θ without a norm is confined to ‖θ‖ ≤ R, whose multiplier is ‖Aᵀν‖; one with a norm keeps it.

    It is covered where it is far below the multipliers of rows, too.
    """
    stated, (bound,), dual = claim()
    stated = stated._replace(c=np.array([1.0, 0.0, slope, 0.0]))
    bound, free = (link._replace(columns=link.columns[k : k + 1]) for k, link in enumerate([bound, bound]))
    bound, free = (
        link._replace(take=np.array([0]), sizes=np.ones(1), V=np.array([[v]]), gram=np.array([[v**2]]))
        for link, v in ((bound, 0.0), (free, -slope))
    )
    free = free._replace(norms=[], shares=np.zeros((1, 0)))
    for links, radii in (([bound, free], (np.inf, 5.0)), ([free, bound], (5.0, np.inf))):
        assert refused(stated, links, dual) == "Aᵀν does not vanish, and no norm binds θ"
        wide, extended, moved, assumptions = handover._with_assumptions(stated, links, dual, np.ones(4), radii)
        assert [extended[links.index(bound)], len(extended)] == [bound, 2] and assumptions == ("for ‖θ‖ ≤ 5",)
        assert checker.lower(wide, extended, moved).value == pytest.approx(1 - slope * 5, rel=1e-5)


# Units


def test_units_are_exact_powers_of_two(coarse):
    stated, (link,), dual = claim()
    link = two_norms()._replace(columns=np.array([[1, 2], [4, 5], [8, 9]]))
    gram = np.array([[4.0, 0.0, 1.0], [0.0, 0.0, 2.0], [1.0, 2.0, 8.0]])
    error = np.diag([0.5, 0.25, 0.0])
    f = link.norms[0]._replace(n=slice(0, 1), f=slice(1, 2))
    link = link._replace(norms=[f, f], gram=gram, error=error)
    dual = moved(replace(dual, tangent=np.array([0.0, 12.0, 0.0, 0.0])), [0.5], [0], [0], [[1.0]])
    stated = stated._replace(c=np.array([5.0, 0.0, 0.0, -1.0]))
    program_, (new,), moved_, k = checker.in_one_unit(stated, [link], dual)
    assert k == 3
    assert program_.P.tolist() == [0.0, 0.0, 0.0, 0.25] and program_.c.tolist() == [0.625, 0.0, 0.0, -0.125]
    assert moved_.z.tolist() == [0.125] and moved_.tangent.tolist() == [0.0, 1.5, 0.0, 0.0]
    assert moved_.radius.tolist() == [0.0625 + TINY]
    assert np.array_equal(new.V, link.V / [8, 1, 1])
    both = np.array([[64.0, 8.0, 8.0], [8.0, 1.0, 1.0], [8.0, 1.0, 1.0]])
    some = (gram != 0) | (error > 0)
    assert np.array_equal(new.gram, gram / both) and np.array_equal(new.error, error / both + TINY * some)
    still_ = checker.in_one_unit(stated, [link], replace(dual, radius=np.zeros(1)))[2]
    assert still_.radius.tolist() == [0.0]
    assert checker.in_one_unit(stated._replace(P=np.array([0.0, 64.0, 0, 0])), [link], dual)[3] == 7
    bare = checker.in_one_unit(stated, [link._replace(norms=[])], dual)[1][0]
    assert np.array_equal(bare.V, link.V) and np.array_equal(bare.gram, link.gram)
    nothing = program([0.0], [0.0], [[0.0]], [0.0])
    assert checker.in_one_unit(nothing, [], still(np.zeros(1), np.zeros(1)))[3] == 0


def test_numbers_that_lose_digits_are_refused():
    stated, links, dual = claim()
    why = "numbers too far apart to be scaled exactly: change units"
    big = stated._replace(c=np.array([2.0**100, 0.0, 0.0, 0.0]))
    fine = replace(dual, z=np.array([2.0**100]))
    assert np.isfinite(checker.lower(big, links, fine).value)
    lost = 2.0**-1074
    for bad in (
        (big._replace(P=np.array([0, 0, 0, lost])), links, fine),
        (big._replace(c=np.array([2.0**100, 0, 0, lost])), links, fine),
        (big, links, replace(fine, tangent=np.array([0, lost, 0, 0]))),
        (big, [links[0]._replace(V=np.array([[lost], [0.0]]))], fine),
        (big._replace(P=np.array([0, 0, 0, np.inf])), links, fine),
        (big._replace(c=np.array([np.nan, 0, 0, 0.0])), links, fine),
        (big, links, replace(fine, z=np.array([lost]))),
    ):
        assert refused(*bad) == why


def test_numbers_that_overflow_are_refused():
    stated, links, dual = claim()
    small = stated._replace(P=np.zeros(4), c=np.array([2.0**-1000, 0.0, 0.0, 0.0]))
    assert refused(small, links, replace(dual, z=np.array([2.0**100]))).startswith("numbers too far apart")
    for m, entry, target in ((1, 1.0, 2.0**1000), (8, 2.0**-36, 2.0**992)):  # a product; a sum of terms that fit
        A = sp.csc_array(np.hstack([np.full((m, 1), entry), np.zeros((m, 3))]))
        large = stated._replace(A=A, b=np.full(m, -target), cones=[("zero", slice(0, m), None)])
        beyond = replace(dual, z=np.full(m, -1 / entry / m), radius=np.zeros(m))
        assert refused(large, links, beyond) == "numbers are too large: change units"


def test_claims_about_nothing():
    """No row, and no column either."""
    rowless = program([2.0], [-1.0], np.zeros((0, 1)), [])
    found = checker.lower(rowless, [], still(np.zeros(0), np.zeros(1)))
    assert found.value <= -0.25 and found.value == pytest.approx(-0.25, rel=1e-14)
    empty = program([], [], np.zeros((0, 0)), [])._replace(offset=3.0)
    assert checker.lower(empty, [], still(np.zeros(0), np.zeros(0))).value == 3.0


def test_the_upper_bound_counts_what_it_was_summed_from():
    assert checker.upper(0.0, 2.0**50, -(2.0**49), 0.0) == np.nextafter(4.5, np.inf)
    assert checker.upper(-1.0, 2.0**50, 2.0**49, 0.25) == np.nextafter(3.75, np.inf)


@pytest.mark.parametrize(("value", "error"), [(3 * 2.0**-900, 0.0), (2.0**-800, 2.0**-1000), (2.0**-800, 2.0**-820)])
def test_what_scaling_loses_by_underflow_joins_the_error(value, error):
    """Of ‖Aᵀν‖² and of its error, which are divided by 4¹⁰⁰ where rows have the size 2¹⁰⁰."""
    norm = Norm(1, "fro", np.eye(1), slice(0, 1), slice(1, 1))
    stated = linked([[0]], [norm], [[1.0]], [[value]], [[error]], sizes=[2.0**100])
    found, _ = balance._measured(stated, 100)
    wanted = [Fraction(x) / 4**100 for x in (value, error)]
    off, allowed = abs(Fraction(found.gram[0, 0]) - wanted[0]) + wanted[1], Fraction(found.error[0, 0])
    assert off <= allowed <= off + Fraction(2.0**-1022)
