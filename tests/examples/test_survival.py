"""Survival: published concordances, coefficients and risks beside scikit-survival, and a risk that falls."""

import warnings

import cvxpy as cp
import numpy as np
import pytest
from running import example

pytest.importorskip("sksurv")


def explicit(names, points):
    """The falling fit in plain cvxpy, with the constraint at points."""
    x, p, s = names["score"][:, 0], points, 15.0
    k = lambda d: np.exp(-(d**2) / (2 * s**2))
    d = np.subtract.outer(x, p)
    e = np.subtract.outer(p, p)
    both = (1 / s**2 - e**2 / s**4) * k(e)
    Q = np.block([[k(np.subtract.outer(x, x)), d / s**2 * k(d)], [(d / s**2 * k(d)).T, both]])
    values, V = np.linalg.eigh(Q)
    kept = values > 1e-13 * values[-1]
    Phi = V[:, kept] * np.sqrt(values[kept])
    w, beta = cp.Variable(Phi.shape[1]), cp.Variable(names["Z"].shape[1])
    f = Phi[: len(x)] @ w + names["Z"] @ beta
    days, died = names["days"], names["died"]
    terms = [cp.log_sum_exp(f[days >= days[i]]) - f[i] for i in np.flatnonzero(died)]
    objective = cp.sum(cp.hstack(terms)) + 0.05 * cp.sum_squares(w)
    with warnings.catch_warnings():  # of a last digit that Clarabel misses; the value is compared with a proven one
        warnings.filterwarnings("ignore", "Solution may be inaccurate", UserWarning)
        return cp.Problem(cp.Minimize(objective), [Phi[len(x) :] @ w <= 0]).solve(solver="CLARABEL")


@pytest.mark.slow
def test_survival():
    names = example("applications/survival")
    assert names["ours"] == pytest.approx(names["theirs"], abs=1e-6)
    assert np.round(names["theirs"][[0, 3, 4]], 5).tolist() == [-0.00855, -1.18830, -0.03262]
    assert names["svm"].status == "optimal"
    assert names["peer_value"] * (1 - 1e-3) < names["svm"].value < names["peer_value"]
    assert names["largest"] < 0.01
    scores = names["scores"]
    assert round(np.mean(scores["linear, peer"]), 3) == 0.720
    assert round(np.mean(scores["clinical, peer"]), 3) == 0.709
    for kernel in ("linear", "clinical"):
        assert np.abs(np.array(scores[kernel]) - scores[f"{kernel}, peer"][:20]).max() < 0.01
        assert np.mean(scores[kernel]) == pytest.approx(np.mean(scores[f"{kernel}, peer"][:20]), abs=1e-3)
    fits, falling = names["fits"], names["falling"]
    assert [fit.status for fit in fits.values()] == ["optimal", "optimal"]
    assert falling.least >= 0 and np.diff(names["curves"]["falling"]).max() <= 0
    assert np.diff(names["curves"]["free"]).max() > 1e-2
    certificate = names["certificate"]
    assert fits["free"].value < certificate.lower and certificate.relative_gap <= 1e-5
    assert explicit(names, falling.points[:, 0]) == pytest.approx(certificate.upper, rel=1e-5)


def test_pairs_as_rows_and_as_differences():
    """(D @ A) @ θ and D @ θ(X) state the same."""
    names = example("applications/survival")
    ko, D, X = names["ko"], names["pairs"](np.arange(30)), names["X"][:30]
    values = []
    for rows in (lambda theta: (D @ ko.FeatureMatrix(X, theta.kernel)) @ theta, lambda theta: D @ theta(X)):
        theta = ko.Theta(ko.kernels.Linear())
        loss = cp.sum_squares(cp.pos(1 - rows(theta)))
        values.append(ko.Problem(cp.Minimize(0.01 * loss + ko.sum_squares(theta))).solve())
    assert values[0] == pytest.approx(values[1], rel=1e-6)
