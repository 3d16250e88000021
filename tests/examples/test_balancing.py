"""Balancing: published numbers, the primal problem in plain numpy, and the classical dual problem in cvxpy."""

import cvxpy as cp
import numpy as np
import pytest
from running import example
from scipy.special import softmax


def discrepancy(w, controls, target):
    """‖Σ wᵢF(xᵢ) − mean F(treated)‖ for exp(−‖x − z‖²/20), from its definition."""
    everything = np.vstack([controls, target])
    weights = np.concatenate([w, np.full(len(target), -1 / len(target))])
    used = weights != 0
    everything, weights = everything[used], weights[used]
    squares = (everything**2).sum(axis=1)
    K = np.exp(-(squares[:, None] + squares - 2 * everything @ everything.T) / 20)
    return np.sqrt(weights @ K @ weights)


@pytest.mark.slow
def test_balancing():
    names = example("applications/balancing")
    controls, target, earned = names["controls"], names["target"], names["earned"]
    assert round(float(names["raw"])) == -15205
    assert round(float(names["experiment"])) == 1794
    # Means: the weighted controls have the means of the treated, and the entropy is the largest with these means.
    w = names["w_means"]
    np.testing.assert_allclose(w @ controls, target.mean(axis=0), atol=1e-6)
    v = cp.Variable(10)
    centred = controls - target.mean(axis=0)
    largest = cp.Problem(cp.Minimize(cp.log_sum_exp(centred @ v))).solve(solver="CLARABEL")
    assert -np.sum(w * np.log(w)) == pytest.approx(largest, rel=1e-5)
    assert names["effect"](w) == pytest.approx(names["effect"](softmax(centred @ v.value)), rel=1e-4)
    # Three moments: the page of entbal.
    assert round(float(names["mean_three"]), 1) == 4957.0
    treated_mean = earned[names["treated"]].mean()
    assert round(float(treated_mean - names["mean_three"]), 1) == 1392.2
    assert round(float(names["effective"](names["w_three"])), 2) == 116.46
    # The kernel: weights of MMD λ, whose entropy is the optimum; no weights below the least.
    low, high = names["least"]
    assert 0 < low <= high < 0.027
    for lam, row in names["paths"]["norm"].iterrows():
        w = names["weights"]["norm", lam]
        assert np.all(w > 0) and w.sum() == pytest.approx(1)
        assert discrepancy(w, controls, target) == pytest.approx(lam, rel=1e-3)
        assert row["optimum"] == pytest.approx(-np.sum(w * np.log(w)), rel=1e-5)
    for lam, row in names["paths"]["square"].iterrows():
        w = names["weights"]["square", lam]
        primal = -np.sum(w * np.log(w)) - discrepancy(w, controls, target) ** 2 / (4 * lam)
        assert row["optimum"] == pytest.approx(primal, rel=1e-4)
        assert row["MMD"] >= low
    assert names["apart"] < 1e-4
    effects = names["paths"]["norm"]["effect"]
    assert effects.max() - effects.min() > 10_000  # what the page says of λ
    # Falling with earnings.
    free, falling = names["shaped"]["free"], names["shaped"]["falling"]
    assert min(free["rise"]) > 0.1 and max(falling["rise"]) <= 0
    assert falling["status"] == "optimal"
    assert sum("proven" in sentence for sentence in falling["certificate"].rests_on) == 2
    assert falling["certificate"].lower > free["certificate"].upper
