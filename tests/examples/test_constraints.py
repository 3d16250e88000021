"""What the examples of constraints and robustness find, against plain cvxpy and closed forms."""

import cvxpy as cp
import numpy as np
import pytest
from explicit import features, gaussian
from running import example


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")  # cvxpy's own; its values are compared below
def test_fairness():
    names = example("constraints/fairness")
    X, y, group, path = names["X"], names["y"], names["group"], names["path"]
    Phi = features(gaussian(X, X, 1.5))
    w, b, t = cp.Variable(Phi.shape[1]), cp.Variable(), cp.Parameter(nonneg=True)
    f = Phi @ w + b
    bound = cp.abs(cp.sum(f[group]) / group.sum() - cp.sum(f[~group]) / (~group).sum()) <= t
    stated = cp.Problem(cp.Minimize(cp.sum(cp.logistic(-cp.multiply(y, f))) + 0.5 * cp.sum_squares(w)), [bound])
    for i in (0, 4):
        t.value = path["t"][i]
        assert path["objective"][i] == pytest.approx(stated.solve(solver="CLARABEL"), rel=1e-6)
    assert path["mu"][4] == pytest.approx(bound.dual_value, rel=1e-4)
    assert np.all(path["difference"] <= path["t"] + 1e-6)
    # The envelope theorem, by a small step of t.
    i, step = 4, 1e-3
    ends = []
    for t.value in (path["t"][i] - step, path["t"][i] + step):
        ends.append(stated.solve(solver="CLARABEL"))
    assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(path["mu"][i], rel=1e-3)
    mu, slopes = names["mu"], names["slopes"]
    assert np.all((mu[1:] <= slopes + 1e-6) & (slopes <= mu[:-1] + 1e-6)) and np.all(np.diff(mu) < 1e-6)
    assert path["errors"].min() < path["errors"][-1] < path["errors"][0]


@pytest.mark.slow
def test_fairness_multiplier():
    names = example("constraints/fairness_multiplier")
    assert names["end"][1] <= 0.105 < names["start"][1]
    assert names["end"][2] < 0.6 * names["start"][2]
    assert np.all(np.diff(np.transpose(names["found"])[0]) < 0)  # the price buys what it is for


@pytest.mark.slow
def test_worst_case_least_squares():
    names = example("constraints/worst_case_least_squares")
    X, y = names["X"], names["y"]
    rho = np.sqrt(2 - 2 * np.exp(-(0.1**2) / (2 * 0.7**2)))
    Phi = features(gaussian(X, X, 0.7))
    w = cp.Variable(Phi.shape[1])
    stated = cp.Problem(cp.Minimize(cp.sum_squares(cp.abs(y - Phi @ w) + rho * cp.norm(w))))
    expected = stated.solve(solver="CLARABEL")
    np.testing.assert_allclose(names["f"](X), Phi @ w.value, atol=1e-4)
    assert names["attained"] == pytest.approx(expected, rel=1e-6)
    assert max(names["moved"]) < names["attained"] and max(names["shifted"]) < names["attained"]
    # The worst move, as rows of explicit features.
    delta = -rho * np.sign(y - Phi @ w.value)[:, None] * w.value / np.linalg.norm(w.value)
    assert np.sum((y - (Phi + delta) @ w.value) ** 2) == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(names["ridge"](X), names["f_whole"](X), atol=1e-5)
    whole = cp.Problem(cp.Minimize(cp.norm(y - Phi @ w) + rho * cp.norm(w))).solve(solver="CLARABEL")
    assert names["whole"].value == pytest.approx(whole, rel=1e-6)
    best = np.argmin(names["costs"], axis=0)
    assert list(np.unique(best)) == [0, 1, 2] and np.all(np.diff(best) >= 0)
