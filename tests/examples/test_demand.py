"""Demand: the published line, the laws at many points, and both relaxations and margins in plain cvxpy."""

import cvxpy as cp
import numpy as np
import pytest
from running import example


def derivatives(x, z, sigma):
    """Blocks of κ and its derivatives ∂₁, ∂₁∂₁, ∂₂ by x and by z."""
    d = (x[:, None, :] - z[None, :, :]) / sigma
    k = np.exp(-(d**2).sum(axis=2) / 2)
    hermite = [np.ones_like(d), d, d**2 - 1, d**3 - 3 * d, d**4 - 6 * d**2 + 3]
    orders = [(0, 0), (1, 0), (2, 0), (0, 1)]
    blocks = []
    for a in orders:
        row = []
        for b in orders:
            n = [a[0] + b[0], a[1] + b[1]]
            sign = (-1) ** sum(a)
            row.append(sign * hermite[n[0]][:, :, 0] * hermite[n[1]][:, :, 1] * k / sigma ** sum(n))
        blocks.append(row)
    return blocks


def explicit(X, y, points):
    """The statement with the laws at points, with explicit features."""
    everything = np.vstack([X, points])
    Q = np.block(derivatives(everything, everything, 1.5))
    values, V = np.linalg.eigh(Q)
    kept = values > 1e-13 * values[-1]
    Phi = (V[:, kept] * np.sqrt(values[kept])).reshape(4, len(everything), -1)
    w, c = cp.Variable(Phi.shape[2]), cp.Variable()
    n = len(X)
    laws = [Phi[1, n:] @ w <= 0, Phi[2, n:] @ w >= 0, Phi[3, n:] @ w >= 0] if len(points) else []
    loss = cp.sum_squares(Phi[0, :n] @ w + c - y) + 0.02 * cp.sum_squares(w)
    return cp.Problem(cp.Minimize(loss), laws).solve(solver="CLARABEL")


@pytest.mark.slow
def test_demand():
    names = example("applications/demand")
    P, y, found = names["P"], names["y"], names["found"]
    assert round(float(names["elasticity"]), 2) == -1.34 and round(float(names["of_income"]), 2) == 0.17
    direct, *_ = np.linalg.lstsq(np.column_stack([names["X"], np.ones(46)]), y, rcond=None)
    assert [names["elasticity"], names["of_income"]] == pytest.approx(direct[:2], abs=1e-6)
    assert found["no laws"]["value"] == pytest.approx(explicit(P, y, P[:0]), rel=1e-3)
    assert found["at the states"]["value"] == pytest.approx(explicit(P, y, P), rel=1e-3)
    certificate = names["certificate"]
    assert found["everywhere"]["problem"].status == "optimal" and certificate.relative_gap <= 1e-4
    assert sum("proven" in sentence for sentence in certificate.rests_on) == 3
    boxes = names["statements"]["everywhere"]
    assert all(box.least >= 0 for box in boxes)
    relaxed = explicit(P, y, np.vstack([box.points for box in boxes]))
    assert found["at the states"]["value"] < relaxed <= certificate.upper * (1 + 1e-4)
    assert relaxed == pytest.approx(certificate.upper, rel=1e-3)
    assert min(found["at the states"]["wrong"].values()) > 0.01
    assert max(found["everywhere"]["wrong"].values()) == 0
    assert names["safe"].value == pytest.approx(np.sum((y - y.mean()) ** 2), rel=1e-3)
    assert np.all(names["elasticities"] < 0)
