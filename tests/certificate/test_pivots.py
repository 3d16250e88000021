"""Rows along which a dual point moves until its residuals vanish."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from kernelopt.certificate import checker, pivots
from kernelopt.certificate.claim import still


def with_costs(S):
    return sp.csc_array(np.vstack([S, np.zeros(S.shape[1])]))


def test_radii_along_a_chain_of_rows():
    """Each column passes its move on to the next row: the radii at the end have passed all other rows."""
    n = 400
    S = np.eye(n) - np.diag(np.full(n - 1, 1.0), 1)
    left = np.zeros(n)
    left[0] = 1e-12
    found = pivots.moves(with_costs(S), left, np.ones(n))
    assert not found.others.size
    radius = found.radius
    assert np.all(radius > 0.99e-12)
    assert radius.max() < 1e-9
    # What the checker asks of radii: each is at least that of the move which its residual needs.
    Z, M = found.inverse, sp.csr_array(sp.csc_array(S)[:, found.columns][found.rows].T)
    off = abs(Z @ M - sp.eye_array(len(found.rows)))
    needed = abs(Z) @ left[found.columns] + off @ radius[found.rows]
    assert np.all(radius[found.rows] >= needed)


def test_a_column_that_is_half_the_sum_of_two():
    S = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5], [1.0, 1.0, 1.0]])
    left = np.full(3, 1e-13)
    found = pivots.moves(with_costs(S), left, np.ones(3))
    (other,) = found.others
    weights = found.weights.toarray()[:, 0]
    assert np.array_equal(S @ weights, S[:, other])
    assert set(np.abs(weights[weights != 0])) <= {0.5, 1.0, 2.0}


def test_the_unit_of_multipliers_that_columns_meet():
    """A row of costs after the rows of z counts for nothing."""
    z = np.array([1.0, 3.0, 100.0])
    S = sp.csc_array(np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]))
    assert pivots._unit_of(S, z) == 3.0


def test_columns_that_share_few_rows_count_as_narrow():
    """60 columns of 20 entries, in rows of their own and in the same ones."""
    apart = sp.csc_array(sp.kron(sp.eye_array(60), np.ones((20, 1))))
    assert pivots._widest(apart) == 20
    assert pivots._widest(sp.csc_array(np.ones((20, 60)))) == pivots.WIDE


def test_radii_cover_rounding_of_blocks_that_are_nearly_singular():
    """The inverse has entries of 1e11, and each rounding of 1e-16 is multiplied by them."""
    S = np.array([[1.0, 1.0], [1.0, 1.0 + 1e-11]])
    W, z, left = with_costs(S), np.ones(2), np.array([1e-20, 0.0])
    found = pivots._moves(W, sp.csc_array(S), left, np.ones(2), np.arange(2), pivots.WIDE)
    free = checker.Free(W.indices, W.data, W.indptr, np.arange(2), np.full(2, -1))
    dual = replace(still(z), **found._asdict())
    assert checker.vanishes(free, left, dual)
    assert not checker.vanishes(free, left, replace(dual, radius=0.99 * found.radius))


def test_weights_of_combinations_reproduce_costs():
    """Columns that are equal but for their cost: the shortest combination of their rows alone has another cost."""
    W = sp.csc_array(np.array([[1.0, 1.0, 2.0], [0.0, 1.0, 2.0]]))  # the last row has the costs
    others, weights = pivots._combinations(W, np.array([0, 1]), np.ones(3), np.ones(1))
    assert others.tolist() == [2]
    assert weights.toarray().ravel().tolist() == [0.0, 2.0, 0.0]


def test_weights_are_rounded_where_they_are_near_a_unit():
    weights = np.array([0.1, 1 / 3, 0.5 + 1e-11, 2 - 1e-9, 1e-12])
    assert pivots.rounded(weights).tolist() == [0.1, 1 / 3, 0.5, 2.0, 0.0]


def test_no_moves_are_empty():
    found = pivots.none(3)
    assert found.inverse.shape == found.weights.shape == (0, 0) and found.radius.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("unit", [1e-170, 1.0, 1e150])
def test_columns_are_independent_in_any_unit(unit):
    """Of two columns in proportion one remains, also where their squares underflow."""
    S = sp.csc_array(unit * np.array([[1.0, 2.0, 1.0], [0.0, 0.0, 1.0]]))
    found = pivots._independent(S, np.ones(2)).tolist()
    assert len(found) == 2 and 2 in found


@pytest.mark.parametrize("size", [1.0, 1e-300, 1e-320])
def test_multipliers_of_any_size_have_a_grid(size):
    """Numbers below 2⁻¹⁰²⁸ are multiples of the least double, and stay as they are."""
    z = size * np.array([1.0, -0.7, 0.0])
    found = pivots.on_grid(z)
    assert np.abs(found - z).max() <= 2.0**-46 * size
    assert size > 1e-310 or np.array_equal(found, z)


def test_a_row_that_many_columns_meet_is_left_to_one_that_has_no_other():
    """1100 columns of rows of their own and of one with more room, which is the only one of the last column."""
    n = 1100
    own = sp.vstack([sp.eye_array(n), np.full((1, n), 1 / n)])
    S = sp.csc_array(sp.hstack([own, np.append(np.zeros(n), 1.0)[:, None]]))
    room = np.append(np.full(n, 1e-3), 0.2)
    left = np.full(n + 1, 1e-16)
    found = pivots.moves(sp.csc_array(sp.vstack([S, np.zeros((1, n + 1))])), left, room)
    assert len(found.columns) == n + 1 and np.all(found.radius <= room)
