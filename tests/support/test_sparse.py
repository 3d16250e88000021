"""Sparse matrices below each other, some of their columns, and roots of symmetric ones."""

import numpy as np
import pytest
import scipy.sparse as sp

from kernelopt.support import sparse

RNG = np.random.default_rng(0)


def chain(n, weights=None, diagonal=0.0):
    """Σ wᵢ(eᵢ − eⱼ)(eᵢ − eⱼ)ᵀ + diagonal·I over neighbours i, j in some order."""
    order, weights = RNG.permutation(n), np.ones(n - 1) if weights is None else weights
    E = sp.csr_array((np.ones(n - 1), (np.arange(n - 1), order[1:])), shape=(n - 1, n))
    E = E - sp.csr_array((np.ones(n - 1), (np.arange(n - 1), order[:-1])), shape=(n - 1, n))
    return sp.csr_array(E.T @ sp.diags_array(weights) @ E + diagonal * sp.eye_array(n))


@pytest.mark.parametrize("spread", [0, 8])
@pytest.mark.parametrize("n", [30, 400])
def test_roots_of_chains(n, spread):
    T = chain(n, 10.0 ** RNG.uniform(-spread, spread, n - 1), 1.0)
    G = sparse.root(T)
    assert G is not None and G.nnz == 2 * n - 1
    assert abs(G.T @ G - T).max() <= 1e-14 * abs(T).max()


def test_rows_without_weight_are_left_out():
    T = sp.block_diag([chain(40, diagonal=0.5), sp.csr_array((7, 7)), sp.eye_array(3)], format="csr")
    G = sparse.root(T)
    assert G is not None and G.shape == (43, 50)
    assert abs(G.T @ G - T).max() <= 1e-14 * abs(T).max()


@pytest.mark.parametrize(
    "T",
    [
        sp.csr_array(np.full((12, 12), 1.0) + np.eye(12)),  # dense
        chain(40) * -1 + 3 * sp.eye_array(40),  # not positive definite
        sp.csr_array((5, 5)),
        sp.csr_array(sp.block_diag([np.ones((2, 2))] * 30)),  # singular
    ],
)
def test_there_may_be_no_root(T):
    found, B = sparse.root(T), RNG.normal(size=(T.shape[0], 4))
    assert found is None or abs(found.T @ found - T).max() <= 1e-14
    np.testing.assert_allclose(sparse.squares(B, T), B.T @ T.toarray() @ B, atol=1e-12)


def test_squares():
    T, B = chain(300, RNG.uniform(1, 2, 299), 0.1), RNG.normal(size=(300, 20))
    np.testing.assert_allclose(sparse.squares(B, T), B.T @ T.toarray() @ B, rtol=1e-12, atol=1e-10)


def test_stacked_and_columns():
    A, B = sp.random_array((4, 3), density=0.5, rng=RNG), sp.random_array((2, 5), density=0.5, rng=RNG)
    S = sparse.stacked([sp.csr_array(A), sp.csr_array((3, 0)), sp.csr_array(B)], 6)
    dense = np.zeros((9, 6))
    dense[:4, :3], dense[7:, :5] = A.toarray(), B.toarray()
    assert np.array_equal(S.toarray(), dense)
    place = np.array([2, -1, 0, -1, 1, -1])
    assert np.array_equal(sparse.columns(S, place, 3).toarray(), dense[:, [2, 4, 0]])
    assert sparse.stacked([], 4).shape == (0, 4)
