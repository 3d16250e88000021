"""What the examples of statements that no library offers find, against plain cvxpy, closed forms and theorems."""

import cvxpy as cp
import numpy as np
import pytest
from running import example


def gaussian(X, Z, sigma):
    return np.exp(-((X[:, None, :] - Z[None, :, :]) ** 2).sum(axis=2) / (2 * sigma**2))


def features(Q):
    """Explicit features, one row for each of Q, so that their products are Q's entries."""
    values, vectors = np.linalg.eigh(Q)
    kept = values > 1e-12 * values[-1]
    return vectors[:, kept] * np.sqrt(values[kept])


def explicit_quantiles(x, y, n, margin):
    """The statement of the example with explicit features of values and slopes; σ = 1, λ = 0.01."""
    edges = np.linspace(x.min(), x.max(), n + 1)
    r, centres = (edges[1] - edges[0]) / 2, (edges[1:] + edges[:-1]) / 2
    values, slopes = np.concatenate([x, centres]), centres
    d = lambda a, b: a[:, None] - b[None, :]
    k = lambda t: np.exp(-(t**2) / 2)
    mixed = d(values, slopes) * k(d(values, slopes))  # ∂κ(x, z)/∂z
    both = (1 - d(slopes, slopes) ** 2) * k(d(slopes, slopes))
    Phi = features(np.block([[k(d(values, values)), mixed], [mixed.T, both]]))
    A, G, S = np.split(Phi, [len(x), len(x) + n])
    eta = np.sqrt(2 - 2 * np.exp(-(r**2) / 2)) * margin
    eta_slope = np.sqrt(2 - 2 * (1 - r**2) * np.exp(-(r**2) / 2)) * margin
    W, c = cp.Variable((Phi.shape[1], 5)), cp.Variable(5)
    R = y[:, None] - A @ W - c[None, :]
    tau = np.broadcast_to([0.1, 0.3, 0.5, 0.7, 0.9], R.shape)
    loss = cp.sum(cp.multiply(tau, cp.pos(R)) + cp.multiply(1 - tau, cp.neg(R)))
    D = cp.diff(W, axis=1)
    rising = [eta_slope * cp.norm(W[:, k]) <= S @ W[:, k] for k in range(5)]
    ordered = [eta * cp.norm(D[:, k]) <= G @ D[:, k] + c[k + 1] - c[k] for k in range(4)]
    return cp.Problem(cp.Minimize(loss + 0.01 * cp.sum_squares(W)), rising + ordered).solve(solver="CLARABEL")


def test_quantiles_engel():
    names = example("new/quantiles_engel")
    x, y, fits = names["x"], names["y"], names["fits"]
    assert [fit["status"] for fit in fits.values()] == ["optimal"] * 3
    assert fits["8 points"]["value"] == pytest.approx(explicit_quantiles(x, y, 8, False), rel=1e-6)
    assert fits["60 intervals"]["value"] == pytest.approx(explicit_quantiles(x, y, 60, True), rel=1e-6)
    assert fits["8 points"]["slope"].min() < -0.1 and np.diff(fits["8 points"]["curves"], axis=1).min() < -1e-2
    assert fits["60 points"]["slope"].min() < -1e-3 and np.diff(fits["60 points"]["curves"], axis=1).min() < -1e-3
    assert fits["60 intervals"]["slope"].min() > 0 and np.diff(fits["60 intervals"]["curves"], axis=1).min() > 0
    assert fits["8 points"]["value"] < names["below"] < names["above"]


def test_poisson_exposure():
    import statsmodels.api as sm  # noqa: PLC0415

    names = example("new/poisson_exposure")
    X, Z, y, rate, exposure = (names[name] for name in ("X", "Z", "y", "rate", "exposure"))
    np.testing.assert_allclose(Z.T @ (rate - y), 0, atol=1e-5 * y.sum())
    Q = gaussian(X, X, 2.0)
    offset = np.log(exposure) + Z @ names["semi"]
    np.testing.assert_allclose(np.log(rate) - offset, Q @ (y - rate) / (2 * 0.5), atol=1e-4)
    glm = sm.GLM(y, Z, family=sm.families.Poisson(), offset=np.log(exposure)).fit(tol=1e-12)
    np.testing.assert_allclose(names["glm"], glm.params, atol=1e-6)
    assert np.abs(names["semi"] - glm.params).max() > 0.1
