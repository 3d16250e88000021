"""The worst distribution: both sides of the duality in plain cvxpy on a fine grid, and what the page says."""

import cvxpy as cp
import numpy as np
import pytest
from running import example


def factor(K):
    size, V = np.linalg.eigh(K)
    kept = size > 1e-13 * size[-1]
    return V[:, kept] * np.sqrt(size[kept])


def worst_expectation(loss, points, sample, gamma, epsilon):
    """The largest expected loss of distributions on some points within ε of the sample."""
    everything = np.vstack([points, sample])
    squares = ((everything[:, None, :] - everything[None, :, :]) ** 2).sum(axis=2)
    F = factor(np.exp(-gamma * squares))
    n = len(points)
    q = cp.Variable(n, nonneg=True)
    near = cp.norm(F[:n].T @ q - F[n:].mean(axis=0)) <= epsilon
    return cp.Problem(cp.Maximize(loss @ q), [cp.sum(q) == 1, near]).solve(solver="CLARABEL")


@pytest.mark.slow
def test_newsvendor():
    names = example("applications/newsvendor")
    demand, c, p = names["demand"], names["c"], names["p"]
    grid = np.linspace(0, names["most"], 401)
    for epsilon, certificate in names["promised"].items():
        x = names["orders"][epsilon]
        loss = np.maximum(c * x - p * grid, (c - p) * x)
        found = worst_expectation(loss, grid[:, None], demand[:, None], 0.5, epsilon)
        assert found <= certificate.upper + 1e-6
        assert found == pytest.approx(certificate.upper, rel=1e-3)
        assert certificate.relative_gap <= 1e-5
        assert names["expected_loss"](x, demand) <= certificate.upper
    assert names["moved"] < 0.2
    assert names["expected_loss"](names["orders"][0.2], names["later"]) <= names["promised"][0.2].upper
    # The multipliers are the worst distribution.
    assert names["problem"].status == "optimal"
    assert names["mass"].sum() == pytest.approx(1, abs=1e-6)
    assert names["distance"] == pytest.approx(0.1, abs=1e-6)
    assert names["under_worst"] == pytest.approx(names["problem"].value, rel=1e-5)
    # Lines: the number of the package, and promises below the proven worst case.
    assert names["table"][0.2][0] == pytest.approx(0.6228642861, abs=1e-6)
    for promise, true, best, *_ in names["table"].values():
        assert promise < 0.99 * best.lower
        assert best.upper <= true.upper
        assert max(true.relative_gap, best.relative_gap) <= 1e-4
    (slope, intercept), Z = names["table"][0.2][3], names["Z"]
    points = np.stack(np.meshgrid(*np.linspace(*names["box"], 41).T), axis=-1).reshape(-1, 2)
    errors = np.abs(points[:, 1] - slope * points[:, 0] - intercept)
    found = worst_expectation(errors, points, Z, 2.0, 0.2)
    assert promise < found <= true.upper + 1e-6
    assert found == pytest.approx(true.upper, rel=2e-3)
    assert names["promises"].max() < names["best"].certificate.lower
