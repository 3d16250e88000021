"""What the examples of regression find, against closed forms and other libraries."""

import cvxpy as cp
import numpy as np
import pytest
from running import example
from sklearn.svm import SVR


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


def test_unpenalized_coefficient():
    names = example("regression/unpenalized_coefficient")
    X, y, lam, grid, inside = (names[name] for name in ("X", "y", "lam", "grid", "inside"))
    Q = np.exp(-((X - X.T) ** 2) / (2 * 0.7**2))
    at_grid = np.exp(-((grid - X.T) ** 2) / (2 * 0.7**2))

    # The free constant is the profile: b minimizes (y − b)ᵀ(Q + λI)⁻¹(y − b), without the block system.
    R = np.linalg.inv(Q + lam * np.eye(40))
    b = R.sum(axis=0) @ y / R.sum()
    assert names["b"].value == pytest.approx(b, rel=1e-6)
    np.testing.assert_allclose(names["f"](grid).value, at_grid @ R @ (y - b) + b, atol=1e-4)
    np.testing.assert_allclose(names["moved"], 20, atol=1e-8)

    # The penalized one is regularized least squares with the kernel κ + 1, and its shift is linear in that of y.
    by = 20 * (at_grid + 1) @ np.linalg.solve(Q + 1 + lam * np.eye(40), np.ones(40))
    np.testing.assert_allclose(names["moved_c"], by, atol=1e-4)
    assert np.abs(by[inside] - 20).max() > 0.4
    for c, apart in names["apart_by_c"].items():
        penalized = (Q + c) @ np.linalg.solve(Q + c + lam * np.eye(40), y)
        assert apart == pytest.approx(np.abs(penalized - Q @ R @ (y - b) - b).max(), rel=0.02)

    # β by generalized least squares.
    Z = np.hstack([np.ones_like(X), X])
    np.testing.assert_allclose(names["beta"].value, np.linalg.solve(Z.T @ R @ Z, Z.T @ R @ y), rtol=1e-6)
    assert names["theta_z"].value.norm < names["theta"].value.norm / 2


def test_prior_function():
    names = example("regression/prior_function")
    X, y, X_old, y_old, grid = (names[name] for name in ("X", "y", "X_old", "y_old", "grid"))
    kernel = lambda A, B: np.exp(-((A - B.T) ** 2) / (2 * 0.7**2))
    old = np.linalg.solve(kernel(X_old, X_old) + np.eye(300), y_old)
    at_old = lambda A: kernel(A, X_old) @ old
    np.testing.assert_allclose(names["f0"](grid), at_old(grid), atol=1e-3)
    alpha = np.linalg.solve(kernel(X, X) + 0.1 * np.eye(6), y - names["f0"](X))
    np.testing.assert_allclose(names["fit"](grid), names["f0"](grid) + kernel(grid, X) @ alpha, atol=1e-9)
    assert names["distance"] ** 2 == pytest.approx(alpha @ kernel(X, X) @ alpha, rel=1e-8)
    errors = names["errors"]
    assert errors["near θ₀"].min() < errors["near 0"].min() / 2
    assert errors["near θ₀"].min() < names["rms"](names["f0"]) / 2
    assert errors["near θ₀"][-1] == pytest.approx(names["rms"](names["f0"]), rel=0.01)


def explicit(X, y, loss, lam):
    """The same problem by cvxpy alone, in coefficients v of an eigenfactor Q = BBᵀ."""
    values, vectors = np.linalg.eigh(np.exp(-((X - X.T) ** 2) / 2))
    B = vectors * np.sqrt(np.clip(values, 0, None))
    v, b = cp.Variable(len(y)), cp.Variable()
    problem = cp.Problem(cp.Minimize(cp.sum(loss(y - B @ v - b)) + lam * cp.sum_squares(v)))
    problem.solve(solver="CLARABEL", tol_gap_rel=1e-10, tol_gap_abs=1e-10, tol_feas=1e-10)
    return problem.value, B @ v.value + b.value


def test_robust_losses():
    names = example("regression/robust_losses")
    X, y, lam, fits = (names[name] for name in ("X", "y", "lam", "fits"))
    written_out = {
        "squares": cp.square,
        "absolute": cp.abs,
        "huber": lambda r: cp.huber(r, 0.3),
        "tube": lambda r: cp.maximum(r - 0.3, -r - 0.3, 0),
    }
    for name, loss in written_out.items():
        value, at = explicit(X, y, loss, lam)
        assert fits[name]["value"] == pytest.approx(value, rel=1e-6)
        np.testing.assert_allclose(fits[name]["at"], at, atol=1e-3)
    svr = SVR(gamma=0.5, C=1 / (2 * lam), epsilon=0.3, tol=1e-8).fit(X, y)
    np.testing.assert_allclose(fits["tube"]["grid"], svr.predict(names["grid"]), atol=1e-3)
    largest = {"absolute": 1.0, "huber": 0.6, "tube": 1.0}
    for name, pull in largest.items():
        assert np.abs(fits[name]["nu"]).max() == pytest.approx(pull, abs=1e-6)
    assert np.abs(fits["squares"]["nu"]).max() > 5
    inside = np.abs(y - svr.predict(X)) < 0.3 - 1e-3
    assert inside.sum() > 50 and np.abs(fits["tube"]["nu"][inside]).max() < 1e-6
    truth = names["truth"](names["grid"])
    errors = {name: np.abs(found["grid"] - truth).max() for name, found in fits.items()}
    assert max(errors["absolute"], errors["huber"]) < errors["squares"] / 5


def test_quantiles_of_robust_losses():
    names = example("regression/robust_losses")
    X, y, lam = (names[name] for name in ("X", "y", "lam"))
    for tau, found in names["quantiles"].items():
        value, at = explicit(X, y, lambda r, tau=tau: cp.maximum(tau * r, (tau - 1) * r), lam)
        assert found["value"] == pytest.approx(value, rel=1e-6)
        assert np.mean(y < at - 1e-3) <= tau <= np.mean(y < at + 1e-3)
        assert np.mean(y < found["at"] - 1e-4) <= tau <= np.mean(y < found["at"] + 1e-4)
        assert found["nu"].sum() == pytest.approx(0, abs=1e-8)
        assert tau - 1 - 1e-8 <= found["nu"].min() < found["nu"].max() <= tau + 1e-8
