"""What the examples of regression find, against closed forms and other libraries."""

import numpy as np
import pytest
from running import example


def test_regularized_least_squares():
    names = example("regression/regularized_least_squares")
    X, y, grid = names["X"], names["y"], names["grid"]
    kernel_values = np.exp(-((X - X.T) ** 2) / (2 * 0.5**2))
    at_grid = np.exp(-((grid - X.T) ** 2) / (2 * 0.5**2))
    for value, f in names["fits"].items():
        expected = at_grid @ np.linalg.solve(kernel_values + value * np.eye(20), y)
        np.testing.assert_allclose(f(grid), expected, atol=1e-8)
    np.testing.assert_allclose(names["nu"] / (2 * 0.01), names["alpha"], rtol=1e-8)
    np.testing.assert_allclose(names["through"](X), y, atol=1e-8)
    assert names["through"].norm ** 2 == pytest.approx(y @ np.linalg.solve(kernel_values, y), rel=1e-8)
    norms = [f.norm for f in names["fits"].values()]
    assert np.all(np.diff([*norms, names["through"].norm]) > 0)
