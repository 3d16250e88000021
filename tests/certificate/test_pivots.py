"""Rows along which a dual point moves until its residuals vanish."""

import numpy as np
import scipy.sparse as sp

from kernelopt.certificate import pivots


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
