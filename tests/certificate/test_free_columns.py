"""Columns that must vanish, and points nearby at which they do."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from coarse import ROOM, gamma, make_coarse, near, smallest, u

from kernelopt.certificate import checker
from kernelopt.certificate.claim import still


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
    left = checker.residuals(free, still(z))
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
    left = checker.residuals(free, still(z))
    assert left.tolist() == [
        2.0**-960 * (1 + 2.0**-40 + 2.0**-52), 0.0, 2.0**-959 * (1 + 2.0**-52), 0.0, 0.0, 0.0, 2.0**-999
    ]  # fmt: skip


# A point nearby


def single(a=2.0, left=2.0**-10):
    """One column, a·z + c."""
    z = np.array([1.0, 0.0])
    return free_of([[(0, a), (2, left - a)], [(1, 1.0)]], 2), still(z)


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
    free, dual = free_of([[(0, 2.0), (1, 2.0**-10 - 2.0)]], 1), still(np.ones(1))
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
    dual = still(np.ones(3))

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


# Combinations


def combination(third, weights, z=(1.0, 1.0, 0.0), c3=-4.0):
    """Columns 0 and 1 vanish along rows 0 and 1; what of the third?"""
    one = [[(0, 1.0), (3, -1.0)], [(1, 3.0), (3, -3.0)], [*enumerate(third), (3, c3)]]
    free = free_of([[entry for entry in column if entry[1]] for column in one], 3)
    dual = moved(still(np.array(z)), (2.0**-20, 0.0, 0.0), [0], [0], [[1.0]], [2], weights)
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
        dual = moved(still(np.array([0.0, 1.0])), radius[:2], rows, rows, inverse, [2], [[0.0], [1.0], [0.0]])
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
        dual = moved(still(np.ones(1)), [0.0], (), (), None, [column], weights)
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
        dual = moved(still(np.ones(2)), [0.0, 0.0], (), (), None, [2, 3], changed)
        assert checker.vanishes(free_of(one, 2), left, dual) == expected
    swapped = moved(still(np.ones(2)), [0.0, 0.0], (), (), None, [3, 2], weights)
    assert not checker.vanishes(free_of(one, 2), left, swapped)
    empty = free_of([[(0, 1.0), (2, -1.0)], [(1, 1.0), (2, -1.0)], [], []], 2)
    dual = moved(still(np.ones(2)), [0.0, 0.0], (), (), None, [2, 3], 0 * weights)
    assert checker.vanishes(empty, left, dual)
    dual = moved(still(np.ones(2)), [0.0, 0.0], (), (), None, [2, 3], weights)
    assert not checker.vanishes(empty, left, dual)


def test_combinations_that_lack_something():
    """An other column with an entry that nothing makes up, in the first, a middle and the last row."""
    none = [[0.0], [0.0]]
    for entries, expected in (([], True), ([(0, 1.0)], False), ([(1, 1.0)], False), ([(2, 1.0)], False)):
        dual = moved(still(np.ones(2)), [0.0, 0.0], (), (), None, [1], none)
        assert checker.vanishes(free_of([[], entries], 2), np.array([0.0, 1e-9]), dual) == expected
    one = [[(0, 1.0)], [(0, 1.0)], [(2, 5.0)]]
    dual = moved(still(np.ones(2)), [0.0, 0.0], (), (), None, [1, 2], [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    assert not checker.vanishes(free_of(one, 2), np.zeros(3), dual)


def test_weights_whose_products_underflow():
    """A weight of 1e-300 on 1e-300 is not nothing."""
    one = [[(0, 1e-300), (1, -1e-300)], []]
    for weight, expected in ((1e-300, False), (0.0, True)):
        dual = moved(still(np.ones(1)), [0.0], (), (), None, [1], [[weight], [0.0]])
        assert checker.vanishes(free_of(one, 1), np.array([0.0, 1e-9]), dual) == expected


# The upper bound


def test_the_upper_bound_counts_what_it_was_summed_from():
    assert checker.upper(0.0, 2.0**50, -(2.0**49), 0.0) == np.nextafter(4.5, np.inf)
    assert checker.upper(-1.0, 2.0**50, 2.0**49, 0.25) == np.nextafter(3.75, np.inf)
