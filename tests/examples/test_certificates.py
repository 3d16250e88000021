"""What the examples of certificates find, against optima by plain cvxpy."""

import cvxpy as cp
import numpy as np
import pytest
from explicit import features, gaussian
from running import example
from sklearn.svm import SVC


@pytest.mark.slow
def test_optimality_bounds():
    names = example("certificates/optimality_bounds")
    X, y, grid = names["X"], names["y"], names["grid"]
    Phi = features(gaussian(np.vstack([X, grid]), np.vstack([X, grid]), 0.4))
    A, w, lam = Phi[: len(X)], cp.Variable(Phi.shape[1]), cp.Parameter(nonneg=True)
    stated = cp.Problem(cp.Minimize(cp.norm1(y - A @ w) + lam * cp.sum_squares(w)))

    def optimum(value):
        lam.value = value
        return stated.solve(solver="CLARABEL", tol_gap_rel=1e-10, tol_feas=1e-10)

    best = optimum(1.0)
    assert names["optimum"] == pytest.approx(best, rel=1e-8)
    exact = Phi[len(X) :] @ w.value
    np.testing.assert_allclose(names["exact"], exact, atol=1e-4)
    bounds = []
    for rank, f in names["fits"].items():
        bound, certificate = f.optimality_bound(grid), names["certificates"][rank]
        assert np.all(np.abs(f(grid) - exact) <= bound)
        np.testing.assert_allclose(bound, np.sqrt(certificate.absolute_gap), rtol=1e-6)  # κ(x, x) = 1, λ = 1
        assert certificate.lower <= best * (1 + 1e-8) and best <= certificate.upper
        bounds.append(bound.max())
    assert np.all(np.diff(bounds) < 0)
    assert all(names["enclosed"]) and max(c.relative_gap for c in names["ahead"]) > 0.01
    for value in (0.02, 0.345, 7.0, 60.0):
        _, certificate = names["path"].at(value)
        assert certificate.relative_gap <= 1e-2 * (1 + 1e-9)
        assert certificate.lower <= optimum(value) * (1 + 1e-8) and optimum(value) * (1 - 1e-8) <= certificate.upper


@pytest.mark.slow
def test_audit_svc():

    names = example("certificates/audit_svc")
    X, y = names["X"], names["y"]

    def objective(svc):
        coefficients = np.zeros(len(y))
        coefficients[svc.support_] = svc.dual_coef_[0]
        squared = coefficients @ gaussian(X, X, 0.5) @ coefficients
        return np.maximum(0, 1 - y * svc.decision_function(X)).sum() + squared / 20

    for tol, certificate in zip(names["tolerances"], names["by_tolerance"], strict=True):
        svc = SVC(C=10.0, gamma=2.0, tol=tol).fit(X, y)
        assert certificate.upper == pytest.approx(objective(svc), rel=1e-9)
    Phi = features(gaussian(X, X, 0.5))
    w, b = cp.Variable(Phi.shape[1]), cp.Variable()
    hinge = cp.sum(cp.pos(1 - cp.multiply(y, Phi @ w + b)))
    optimum = cp.Problem(cp.Minimize(hinge + cp.sum_squares(w) / 20)).solve(solver="CLARABEL")
    assert names["optimum"] == pytest.approx(optimum, rel=1e-7)
    for certificates in (names["by_tolerance"], names["by_limit"]):
        assert np.all(np.diff([c.relative_gap for c in certificates]) < 0)
        assert all(c.lower <= optimum * (1 + 1e-7) and optimum <= c.upper for c in certificates)
        assert all(c.scope == "full kernel" for c in certificates)
    assert names["by_limit"][0].relative_gap > 0.01 and names["by_tolerance"][-1].relative_gap < 1e-7
    assert not names["report"].passed and names["report"]["constraints hold"].passed
