"""Rows of cvxpy's data that are scaled before a solver sees them."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from kernelopt.solvers.cvxpy_solvers import MODERATE, _equilibrated


def test_linear_rows_far_from_unit_size_are_scaled():
    """Rows of size 1/MODERATE to MODERATE stay, and so do rows of zeros and of other cones."""
    sizes = np.array([1.0, MODERATE, 1 / MODERATE, 0.0, 1e9, 1e-9, 1e9])
    A, b = sizes[:, None] * np.array([[0.5, -1.0]]), np.arange(1.0, 8.0)
    data = {"A": sp.csc_array(A), "b": b, "dims": SimpleNamespace(zero=2, nonneg=4)}
    factors = _equilibrated(data)
    assert factors == pytest.approx([1, 1, 1, 1, 1e-9, 1e9, 1], rel=1e-15)
    assert data["A"].toarray() == pytest.approx(factors[:, None] * A)
    assert data["b"] == pytest.approx(factors * b)


@pytest.mark.parametrize("sizes", [[1.0, 0.0], [0.0, 0.0]])
def test_moderate_rows_are_left_alone(sizes):
    A, b = sp.csc_array(np.array(sizes)[:, None]), np.ones(2)
    data = {"A": A, "b": b, "dims": SimpleNamespace(zero=0, nonneg=2)}
    assert _equilibrated(data).tolist() == [1.0, 1.0]
    assert data["A"] is A and data["b"] is b
