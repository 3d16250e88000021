"""Parts of B, whichever way it is held."""

import numpy as np
import pytest
import scipy.sparse as sp

from kernelopt.factorization.tall import DenseMatrix
from kernelopt.factorization.whole import WholeMatrix

RNG = np.random.default_rng(0)
B, ROOT = RNG.normal(size=(6, 4)), RNG.normal(size=(6, 6))
HELD = {"dense": (DenseMatrix(B), B), "whole": (WholeMatrix(ROOT @ ROOT.T), ROOT @ ROOT.T)}


@pytest.mark.parametrize("name", HELD)
def test_parts_are_those_of_the_array(name):
    held, array = HELD[name]
    assert held.shape == array.shape and len(held) == 6
    for rows in (slice(1, 4), [3, 0, 3], np.arange(6) % 2 == 0):
        np.testing.assert_array_equal(held[rows], array[rows])
        np.testing.assert_array_equal(held[rows, 1:3], array[rows][:, 1:3])
    for columns in (slice(None), slice(0, array.shape[1])):
        assert held[:, columns].shape == array.shape
        np.testing.assert_array_equal(held[:, columns].whole(), array)
    assert held[:, :0].shape[0] == 6
    E = sp.random_array((5, 6), density=0.5, format="csr", rng=RNG)
    np.testing.assert_allclose(held.combined(E), E @ array, atol=1e-14)


def test_first_columns():
    np.testing.assert_array_equal(DenseMatrix(B)[:, :3].whole(), B[:, :3])
