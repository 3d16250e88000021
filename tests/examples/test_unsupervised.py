"""What the examples without labels find, against scikit-learn, eigenvalues, and problems in explicit variables."""

import cvxpy as cp
import numpy as np
import pytest
from running import example
from scipy.linalg import null_space
from scipy.spatial.distance import cdist
from sklearn.decomposition import KernelPCA
from sklearn.svm import OneClassSVM

TIGHT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


@pytest.mark.slow
def test_kernel_pca():
    names = example("unsupervised/kernel_pca")
    X, N, large, fresh = names["X"], names["N"], names["large"], names["fresh"]
    Q = np.exp(-cdist(X, X, "sqeuclidean") / (2 * 8.0**2))
    values, vectors = np.linalg.eigh(Q)
    for k, (problem, f) in enumerate(zip(names["problems"], names["functions"], strict=True), start=1):
        assert problem.value**2 == pytest.approx(values[-k], rel=1e-10)
        scores = np.sqrt(values[-k]) * vectors[:, -k]
        np.testing.assert_allclose(f(X), scores * np.sign(scores[np.abs(scores).argmax()]), atol=1e-8)
    pca = KernelPCA(n_components=3, kernel="rbf", gamma=1 / (2 * 8.0**2), eigen_solver="dense").fit(X)
    for points in (X, fresh):
        scores = np.column_stack([f(points) for f in names["centered_functions"]])
        np.testing.assert_allclose(scores, pca.transform(points), atol=1e-8)
    # With equal means, Aθ runs over the range of the root of the centered Q, orthogonal to the difference of means.
    H = np.eye(N) - 1 / N
    values, vectors = np.linalg.eigh(H @ Q @ H)
    root = vectors * np.sqrt(values.clip(0))
    means = large / large.sum() - ~large / (~large).sum()
    allowed = null_space((means @ root)[None, :])
    squares = np.linalg.svd(root @ allowed, compute_uv=False)[:2] ** 2
    np.testing.assert_allclose([problem.value**2 for problem in names["blind_problems"]], squares, rtol=1e-8)
    np.testing.assert_allclose(means @ names["blind"], 0, atol=1e-10)
    assert np.all(np.abs(means @ names["plain"][:, :2]) > 0.1)


def test_kernel_svd():
    names = example("unsupervised/kernel_svd")
    X, sigma, U, V, ranks = names["X"], names["sigma"], names["U"], names["V"], names["ranks"]
    Q = np.exp(-((X - X.T) ** 2) / (2 * 0.7**2))
    eigenvalues = np.linalg.eigvalsh(Q)[::-1]
    np.testing.assert_allclose(sigma**2, eigenvalues[: len(sigma)], atol=1e-10)
    np.testing.assert_allclose(U * sigma**2 @ U.T, Q, atol=1e-10)
    kept = names["kept"]
    at_x = np.exp(-((X[:5] + 0.01 - X.T) ** 2) / (2 * 0.7**2)) @ U[:, kept] / sigma[kept]
    np.testing.assert_allclose(V(X[:5] + 0.01)[:, kept], at_x, atol=1e-8)
    coefficients = U[:, kept] / sigma[kept]
    np.testing.assert_allclose(coefficients.T @ Q @ coefficients, names["gram"], atol=1e-8)
    np.testing.assert_allclose(names["gram"], np.eye(kept.sum()), atol=1e-8)
    tails = [eigenvalues[k:].sum() for k in ranks]
    np.testing.assert_allclose(names["left_over"], tails, atol=1e-9)
    assert np.all(names["pivoted"] > names["left_over"]) and np.all(names["pivoted"] < 4 * names["left_over"])


@pytest.mark.slow
def test_one_class():
    names = example("unsupervised/one_class")
    X, grid, N, nu, C = names["X"], names["grid"], names["N"], names["nu"], names["C"]
    peer = OneClassSVM(nu=nu, gamma=1 / (2 * 0.8**2), tol=1e-10).fit(X)
    np.testing.assert_allclose(nu * N * names["decide"](grid), peer.decision_function(grid), atol=1e-6)
    rows, alpha = peer.support_vectors_, peer.dual_coef_[0]
    minimized = -0.5 * alpha @ np.exp(-cdist(rows, rows, "sqeuclidean") / (2 * 0.8**2)) @ alpha
    assert minimized == pytest.approx((nu * N) ** 2 * names["problem"].value, rel=1e-6)
    assert names["outside"] <= nu <= names["on_or_outside"] and names["outside"] > 0
    np.testing.assert_allclose(names["excess"](grid), -2 * names["decide"](grid), atol=1e-8)

    # The dual of the sphere: maximize Σ αᵢκᵢᵢ − αᵀQα with Σ α = 1, 0 ≤ α ≤ C; a = Σ αᵢF(xᵢ).
    for kernel, excess, radius in (
        (np.exp(-cdist(X, X, "sqeuclidean") / (2 * 0.8**2)), names["excess"], names["radius"]),
        ((X @ X.T + 1) ** 2, names["excess_2"], names["radius_2"]),
    ):
        alpha = cp.Variable(N)
        gain = alpha @ np.diag(kernel) - cp.quad_form(alpha, cp.psd_wrap(kernel))
        cp.Problem(cp.Maximize(gain), [alpha >= 0, alpha <= C, cp.sum(alpha) == 1]).solve("CLARABEL", **TIGHT)
        squared = np.diag(kernel) - 2 * kernel @ alpha.value + alpha.value @ kernel @ alpha.value
        on_sphere = (alpha.value > 1e-4 * C) & (alpha.value < (1 - 1e-4) * C)
        assert on_sphere.sum() > 1
        np.testing.assert_allclose(squared[on_sphere], radius**2, atol=1e-5)
        np.testing.assert_allclose(excess(X), squared - radius**2, atol=1e-5)

    assert names["same"] == 1.0 and names["differ"] > 0.5
    centre, r = cp.Variable(2), cp.Variable()
    circle = cp.Problem(cp.Minimize(r), [cp.norm(X - centre[None, :], axis=1) <= r])
    circle.solve("CLARABEL", **TIGHT)
    assert names["smallest"] == pytest.approx(r.value, rel=1e-8)
    distances = ((grid - centre.value) ** 2).sum(axis=1) - r.value**2
    np.testing.assert_allclose(names["excess_hard"](grid), distances, atol=1e-6)
