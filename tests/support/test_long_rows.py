"""Sparse systems with long rows, beside dense ones."""

import numpy as np
import pytest
import scipy.sparse as sp

from kernelopt.support.long_rows import LONG, are_long, bordered, solution

RNG = np.random.default_rng(0)


def system(n=120, signs=(1.0, 1.0, 1.0)):
    M = sp.random_array((n, n), density=0.02, random_state=1) + sp.eye_array(n)
    G, L = sp.csc_array(M.T @ M), sp.csr_array(RNG.normal(size=(len(signs), n)))
    return G, L, np.array(signs) * np.array([0.3, 2.0, 1e-3])[: len(signs)]


@pytest.mark.parametrize("signs", [(), (1.0, 1.0, 1.0), (1.0, -0.001, 1.0)])
def test_solutions_are_those_of_the_dense_system(signs):
    G, L, w = system(signs=signs)
    r = RNG.normal(size=G.shape[0])
    dense = G.toarray() + L.toarray().T @ (w[:, None] * L.toarray())
    expected = np.linalg.solve(dense, r)
    assert solution(G, L, w, r, 0.0) == pytest.approx(expected, rel=1e-8)
    K = bordered(G, L, w)
    assert K.shape[0] == len(r) + len(w)
    assert np.linalg.solve(K.toarray(), np.append(r, np.zeros(len(w))))[: len(r)] == pytest.approx(expected, rel=1e-8)


def test_entries_without_a_diagonal_are_zero():
    G, L, w = system()
    wide = sp.csc_array(sp.block_diag([G, sp.csc_array((1, 1))]))
    x = solution(wide, sp.csr_array(sp.hstack([L, sp.csr_array((3, 1))])), w, np.ones(wide.shape[0]), 1e-13)
    assert x[-1] == 0 and np.all(x[:-1] != 0)


def test_numbers_that_are_not_finite_are_an_error():
    G, L, w = system()
    with pytest.raises(np.linalg.LinAlgError, match="too far apart"):
        solution(G * np.nan, L, w, np.ones(G.shape[0]), 1e-13)


def test_rows_are_long_by_their_entries():
    A = sp.csr_array(np.vstack([np.arange(2 * LONG) < LONG, np.ones(2 * LONG)]).astype(float))
    assert are_long(A).tolist() == [False, True]
