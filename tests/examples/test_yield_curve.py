"""Yield curve: the closed form of kernel ridge regression, absolute errors in plain cvxpy, and what the page says."""

import cvxpy as cp
import numpy as np
import pytest
from running import example
from scipy.integrate import quad


def rational_quadratic(s, t, orders=(0, 0)):
    """κ = 1/(1 + r²/2) for r = (s − t)/10, and its derivatives."""
    r = (s[:, None] - t[None, :]) / 10
    q = 1 + r**2 / 2
    derivatives = [1 / q, -r / q**2, -1 / q**2 + 2 * r**2 / q**3]
    return (-1) ** orders[1] * derivatives[sum(orders)] / 10 ** sum(orders)


def least_absolute_errors(names, strength, at):
    """The statement with d′ ≤ 0 at points, with explicit features."""
    dates, end, zero = names["dates"], np.array([30.0]), np.array([0.0])
    values = np.concatenate([zero, dates, end])
    Q = np.block(
        [[rational_quadratic(a, b, (i, j)) for b, j in ((values, 0), (at, 1))] for a, i in ((values, 0), (at, 1))]
    )
    size, V = np.linalg.eigh(Q)
    kept = size > 1e-13 * size[-1]
    Phi = V[:, kept] * np.sqrt(size[kept])
    n, w = len(values), cp.Variable(kept.sum())
    C = names["C"].toarray()
    errors = (names["price"] - C.sum(axis=1) - (C @ Phi[1 : n - 1]) @ w) / (1e-4 * names["D"] * names["price"])
    laws = [Phi[0] @ w == 0, Phi[n - 1] @ w >= -1] + ([Phi[n:] @ w <= 0] if len(at) else [])
    loss = cp.norm1(errors) / len(C) + strength * cp.sum_squares(w)
    return cp.Problem(cp.Minimize(loss), laws).solve(solver="CLARABEL")


@pytest.mark.slow
def test_yield_curve():
    names = example("applications/yield_curve")
    assert np.abs(names["apart"]).max() < 1e-8  # from the closed form, in yields
    for s, t in ((3.0, 7.0), (12.0, 5.0)):
        inner = quad(lambda u, s=s, t=t: min(s, u) * min(t, u) * np.exp(-0.05 * u), 0, 800, points=[s, t])[0]
        assert names["smooth"](np.array([[s]]), np.array([[t]]))[0, 0] == pytest.approx(inner, rel=1e-8)
    certificate, box = names["stated"].certificate, names["no_arbitrage"][0]
    assert names["stated"].status == "optimal"
    assert "proven" in " ".join(certificate.rests_on)
    relaxed = least_absolute_errors(names, 0.1, box.points[:, 0])
    assert relaxed == pytest.approx(certificate.upper, rel=1e-4)
    assert least_absolute_errors(names, 0.1, np.zeros(0)) < 0.99 * relaxed
    fits, fine = names["fits"], names["fine"]
    for strength in (1.0, 0.1, 0.01):
        assert fits["absolute errors", strength][1].min() < -1e-3
        assert fits["absolute errors, no arbitrage", strength][1].min() >= -1e-12
        error = [
            np.mean((fits[name, strength][0] - names["true_yield"](fine)) ** 2)
            for name in ("absolute errors, no arbitrage", "absolute errors", "ridge")
        ]
        assert error[0] < error[1] < error[2]
    worst = np.argsort(-np.abs(names["errors"]))[:2]
    assert set(worst) == set(names["mispriced"])
    assert names["new_price"] == pytest.approx(names["new_fair"], rel=5e-3)
