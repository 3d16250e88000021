"""Inner products of combinations of points, in tiles."""

import numpy as np
import pytest
import scipy.sparse as sp

import kernelopt as ko
from kernelopt.factorization import row_block
from kernelopt.factorization.row_block import RowBlock

KERNEL = ko.kernels.Gaussian(sigma=1.0)


@pytest.mark.parametrize("tile", [3, 100])
def test_tiles_add_up(monkeypatch, tile):
    monkeypatch.setattr(row_block, "BLOCK", tile)
    rng = np.random.default_rng(0)
    one, other = (
        RowBlock(KERNEL, rng.normal(size=(n, 2)), sp.random_array((n, 5), density=0.4, format="csc", rng=rng))
        for n in (8, 7)
    )
    for b in (other, one, None):
        K = KERNEL(one.points, (b or one).points)
        expected = one.weights.T @ K @ (b or one).weights
        np.testing.assert_allclose(one.gram(b), expected, atol=1e-13)
    some = np.array([4, 0])
    np.testing.assert_allclose(one[some].gram(other), one.gram(other)[some], atol=1e-13)
