"""Rows along which a dual point moves until its residuals vanish."""

from dataclasses import replace
from fractions import Fraction

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
    found = pivots.moves(with_costs(S), left, np.ones(n), [("nonneg", slice(0, n), None)])
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
    found = pivots.moves(with_costs(S), left, np.ones(3), [("nonneg", slice(0, 3), None)])
    (other,) = found.others
    weights = found.weights.toarray()[:, 0]
    assert np.array_equal(S @ weights, S[:, other])
    assert set(np.abs(weights[weights != 0])) <= {0.5, 1.0, 2.0}


def test_elimination_leaves_nothing():
    """Two slack columns in a chain and one wide column: W'[z; 1] = 0 without rounding, and z ≥ 0."""
    n, rng = 20, np.random.default_rng(0)
    one, none, signs = np.eye(n), np.zeros((n, n)), np.sign(rng.normal(size=n))
    # Columns of z = (p, q, r): p + q = 0.7, q − r = 0, and Σ signs·q = 0; the last row has the costs.
    S = np.block([[one, none, np.zeros((n, 1))], [one, one, signs[:, None]], [none, -one, np.zeros((n, 1))]])
    W = sp.csc_array(np.vstack([S, np.concatenate([np.full(n, -0.7), np.zeros(n + 1)])]))
    q = rng.uniform(0.1, 0.6, size=n)
    q -= signs * (signs @ q) / n
    z = np.concatenate([0.7 - q, q, q]) + 1e-9 * rng.normal(size=3 * n)
    found = pivots.eliminated(W, z, [("nonneg", slice(0, 3 * n), None)])
    assert found is not None and np.all(found >= 0)
    assert found == pytest.approx(z, abs=1e-6)
    for column in W.toarray().T:
        assert sum(Fraction(v) * Fraction(w) for v, w in zip(column, [*found, 1.0], strict=True)) == 0
    thirds = sp.csc_array(W.multiply(1 / 3))
    assert pivots.eliminated(thirds, z, [("nonneg", slice(0, 3 * n), None)]) is None  # products would be rounded
    assert pivots.eliminated(W, z, [("soc", slice(0, 3 * n), None)]) is None


def test_the_last_of_the_largest_in_each_group():
    rng = np.random.default_rng(0)
    for _ in range(200):
        n = rng.integers(1, 20)
        groups, values = np.sort(rng.integers(0, 8, n)), rng.integers(0, 4, n).astype(float)
        order = np.lexsort((values, groups))
        expected = order[np.append(np.diff(groups[order]) > 0, True)]
        np.testing.assert_array_equal(pivots._last_largest(values, groups), expected)


def test_the_unit_of_multipliers_that_columns_meet():
    """A row of costs after the rows of z counts for nothing."""
    z = np.array([1.0, -3.0, 100.0])
    S = sp.csc_array(np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]))
    assert pivots._unit_of(S, z) == 3.0
    assert pivots._unit_of(sp.csc_array(sp.vstack([S, [[5.0, 7.0]]])), z) == 3.0


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
    dual = replace(still(z, np.zeros(2)), **found._asdict())
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


def test_elimination_of_a_wide_column_with_a_cost():
    """Σ ±z = 3 over 20 rows, where the cost does not change with the row that takes the residual."""
    rng = np.random.default_rng(0)
    signs = np.where(np.arange(20) % 3 == 0, -1.0, 1.0)
    z = rng.uniform(0.5, 1.0, size=20)
    z += signs * (3.0 - signs @ z) / 20 + 1e-9 * rng.normal(size=20)
    W = sp.csc_array(np.append(signs, -3.0)[:, None])
    found = pivots.eliminated(W, z, [("nonneg", slice(0, 20), None)])
    assert found is not None and found == pytest.approx(z, abs=1e-7)
    assert sum(Fraction(s) * Fraction(v) for s, v in zip(signs, found, strict=True)) == 3


@pytest.mark.parametrize(("tau", "vanishes"), [(0.9, True), (0.7, True), (0.3, False)])
def test_elimination_of_a_wide_column_of_many_bits(tau, vanishes):
    """Σ τp − (1 − τ)q = 0 with p + q = 1, as of pinball losses: Σ p = (1 − τ)n if τ and τ − 1 differ by 1."""
    n, rng = 30, np.random.default_rng(0)
    S = np.vstack([np.hstack([np.eye(n), np.full((n, 1), tau)]), np.hstack([np.eye(n), np.full((n, 1), tau - 1)])])
    W = sp.csc_array(np.vstack([S, np.append(-np.ones(n), 0.0)]))
    p = rng.uniform(0.4, 1.6, size=n)
    p *= (1 - tau) * n / p.sum()
    z = np.concatenate([p, 1 - p]) + 1e-9 * rng.normal(size=2 * n)
    found = pivots.eliminated(W, z, [("nonneg", slice(0, 2 * n), None)])
    assert (found is not None) == vanishes
    if found is not None:
        for column in W.toarray().T:
            assert sum(Fraction(v) * Fraction(w) for v, w in zip(column, [*found, 1.0], strict=True)) == 0
        assert found == pytest.approx(z, abs=1e-7)


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
