"""What the examples of regression find, against closed forms and other libraries."""

import cvxpy as cp
import numpy as np
import pytest
from explicit import features, gaussian
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_poisson_exposure():
    import statsmodels.api as sm  # noqa: PLC0415

    names = example("regression/poisson_exposure")
    X, Z, y, rate, exposure = (names[name] for name in ("X", "Z", "y", "rate", "exposure"))
    np.testing.assert_allclose(Z.T @ (rate - y), 0, atol=1e-5 * y.sum())
    Q = gaussian(X, X, 2.0)
    offset = np.log(exposure) + Z @ names["semi"]
    np.testing.assert_allclose(np.log(rate) - offset, Q @ (y - rate) / (2 * 0.5), atol=1e-4)
    glm = sm.GLM(y, Z, family=sm.families.Poisson(), offset=np.log(exposure)).fit(tol=1e-12)
    np.testing.assert_allclose(names["glm"], glm.params, atol=1e-6)
    assert np.abs(names["semi"] - glm.params).max() > 0.1


@pytest.mark.slow
def test_invented_loss():
    names = example("regression/invented_loss")
    X, y, grid, f = names["X"], names["y"], names["grid"], names["cautious"]
    assert names["problem"].status == names["same"].status == "optimal"
    assert names["problem"].value == pytest.approx(names["same"].value, rel=1e-8) and names["apart"] < 1e-3
    assert f.max() == pytest.approx(7, abs=1e-6)
    # Plain cvxpy, in explicit features of the data and the grid.
    Phi = features(gaussian(np.vstack([X, grid]), np.vstack([X, grid]), 0.7))
    w, c = cp.Variable(Phi.shape[1]), cp.Variable()
    r = Phi[: len(X)] @ w + c - y
    terms = cp.hstack([np.log(5) + r, -5 * r])
    both = cp.log_sum_exp(cp.reshape(terms, (len(y), 2), order="F"), axis=1) - np.log(6)
    stated = cp.Problem(cp.Minimize(cp.sum(both) + 0.5 * cp.sum_squares(w)), [Phi[len(X) :] @ w + c <= 7])
    assert names["problem"].value == pytest.approx(stated.solve(solver="CLARABEL"), rel=1e-6)
    np.testing.assert_allclose(f, Phi[len(X) :] @ w.value + c.value, atol=1e-3)


@pytest.mark.slow
def test_multi_task():
    names = example("regression/multi_task")
    x, Y, seen = names["x"], names["Y"], names["seen"]
    Phi = features(gaussian(x[:, None], x[:, None], 0.7))
    for value in (1.0, 10.0):
        W = cp.Variable((Phi.shape[1], 10))
        stated = cp.Minimize(cp.sum_squares(cp.multiply(seen, Y - Phi @ W)) + value * cp.normNuc(W))
        cp.Problem(stated).solve(solver="CLARABEL")
        sigma = np.linalg.svd(W.value, compute_uv=False)
        [found] = [s for lam, s in names["spectra"].items() if np.isclose(lam, value)]
        np.testing.assert_allclose(found, sigma[:10], atol=1e-3 * sigma[0])
    ranks = list(names["ranks"].values())
    assert np.all(np.diff(ranks) <= 0) and ranks[-1] == 2
    assert min(names["errors"].values()) < 0.7 * names["by_itself"]["evaluation"].min()
    # The closed form: singular values of the orthonormal design are thresholded.
    U, s, Vt = np.linalg.svd(names["design"].T @ names["targets"], full_matrices=False)
    expected = names["design"] @ (U * np.maximum(s - 0.5, 0)) @ Vt
    np.testing.assert_allclose(names["weights"].value(names["design"]), expected, atol=1e-5)
