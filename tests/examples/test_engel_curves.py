"""Engel curves: grids and margins against plain cvxpy, published slopes, and a proof between the two."""

import cvxpy as cp
import numpy as np
import pytest
from running import example

LEVELS = [0.1, 0.3, 0.5, 0.7, 0.9]


def features(Q):
    """Explicit features, one row for each of Q, so that their products are Q's entries."""
    values, vectors = np.linalg.eigh(Q)
    kept = values > 1e-12 * values[-1]
    return vectors[:, kept] * np.sqrt(values[kept])


def explicit(x, y, points, radius):
    """The statement with explicit features of values and slopes; σ = 1, λ = 0.01; margins for a radius > 0."""
    values = np.concatenate([x, points])
    d = lambda a, b: a[:, None] - b[None, :]
    k = lambda t: np.exp(-(t**2) / 2)
    mixed = d(values, points) * k(d(values, points))  # ∂κ(x, z)/∂z
    both = (1 - d(points, points) ** 2) * k(d(points, points))
    Phi = features(np.block([[k(d(values, values)), mixed], [mixed.T, both]]))
    A, G, S = np.split(Phi, [len(x), len(x) + len(points)])
    eta = np.sqrt(2 - 2 * np.exp(-(radius**2) / 2))
    eta_slope = np.sqrt(2 - 2 * (1 - radius**2) * np.exp(-(radius**2) / 2))
    W, c = cp.Variable((Phi.shape[1], 5)), cp.Variable(5)
    R = y[:, None] - A @ W - c[None, :]
    tau = np.broadcast_to(LEVELS, R.shape)
    loss = cp.sum(cp.multiply(tau, cp.pos(R)) + cp.multiply(1 - tau, cp.neg(R)))
    D = cp.diff(W, axis=1)
    rising = [eta_slope * cp.norm(W[:, k]) <= S @ W[:, k] for k in range(5)]
    ordered = [eta * cp.norm(D[:, k]) <= G @ D[:, k] + c[k + 1] - c[k] for k in range(4)]
    return cp.Problem(cp.Minimize(loss + 0.01 * cp.sum_squares(W)), rising + ordered).solve(solver="CLARABEL")


@pytest.mark.slow
def test_engel_curves():
    names = example("applications/engel_curves")
    x, y, fits = names["x"], names["y"], names["fits"]
    low, high = x.min(), x.max()
    assert names["slopes"] == pytest.approx([line["income"] for line in names["lines"]], abs=1e-5)
    assert names["slopes"][[0, 2, 4]].round(4).tolist() == [0.4018, 0.5602, 0.6863]
    assert [fit["status"] for fit in fits.values()] == ["optimal"] * 5
    radius = (high - low) / 120
    centres = np.linspace(low + radius, high - radius, 60)
    assert fits["8 points"]["certificate"].upper == pytest.approx(
        explicit(x, y, np.linspace(low, high, 8), 0), rel=2e-5
    )
    margins = explicit(x, y, centres, radius)
    assert fits["60 margins"]["certificate"].upper == pytest.approx(margins, rel=2e-5)
    certificate = names["certificate"]
    below = explicit(x, y, np.linspace(low, high, 60), 0)
    assert below <= certificate.upper <= margins
    assert certificate.upper - certificate.lower <= 2e-5 * certificate.upper
    assert explicit(x, y, names["rising"].points[:, 0], 0) <= certificate.upper * (1 + 1e-5)
    assert sum("proven" in sentence for sentence in certificate.rests_on) == 2
    assert fits["8 points"]["slope"].min() < -0.1 and fits["60 points"]["slope"].min() < -1e-3
    assert fits["everywhere"]["slope"].min() >= names["rising"].least >= 0
    assert np.diff(fits["everywhere"]["curves"], axis=1).min() >= names["ordered"].least >= 0
    assert names["lost"]["60 margins"] == pytest.approx(0.0039, abs=1e-4)
    assert names["lost"]["200 margins"] == pytest.approx(0.0009, abs=1e-4)
