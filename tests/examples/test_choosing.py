"""What the examples of choosing find, against plain cvxpy, scikit-learn and differences of solves."""

import cvxpy as cp
import jax
import numpy as np
import pytest
from explicit import features, gaussian
from running import example
from scipy.spatial.distance import cdist
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import PolynomialFeatures
from sklearn.svm import SVC, SVR

import kernelopt as ko

TIGHT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


@pytest.mark.slow
def test_kernel_width():
    names = example("choosing/kernel_width")
    X, y, grid, fits = names["X"], names["y"], names["grid"], names["fits"]
    large, small = np.array(names["large"]), np.array(names["small"])
    rates = large[:-1, 1] / large[1:, 1]
    assert np.all((rates > 2.2) & (rates < 4.1)) and large[-1, 1] < 0.01
    assert np.all(np.diff(large[:, 2]) < 0) and large[-1, 2] < 0.03
    assert np.all(np.diff(small[:, 1]) > 0) and small[-1, 1] == 1.0
    labels = KNeighborsClassifier(1).fit(X, y).predict(grid)
    assert np.array_equal(np.sign(fits[0.02](grid)), labels)
    assert 0 < np.mean(labels > 0) < 1
    monomials = PolynomialFeatures(2).fit_transform(grid)
    f = fits[16.0](grid)
    q, residual, *_ = np.linalg.lstsq(monomials, f)
    assert np.sqrt(residual[0]) / np.linalg.norm(f - f.mean()) == pytest.approx(large[-1, 1], rel=1e-6)
    assert q[4] ** 2 < 4 * q[3] * q[5]  # an ellipse
    # The dual of a machine without intercept, which scikit-learn does not have.
    alpha = cp.Variable(len(y))
    Q = np.exp(-cdist(X, X, "sqeuclidean") / (2 * 0.5**2))
    gain = cp.sum(alpha) - cp.quad_form(alpha, cp.psd_wrap(Q * np.outer(y, y))) / (4 * 0.3)
    cp.Problem(cp.Maximize(gain), [alpha >= 0, alpha <= 1]).solve("CLARABEL", **TIGHT)
    at_grid = np.exp(-cdist(grid, X, "sqeuclidean") / (2 * 0.5**2))
    np.testing.assert_allclose(fits[0.5](grid), at_grid @ (y * alpha.value) / (2 * 0.3), atol=1e-4)


@pytest.mark.slow
def test_kernel_choice():
    names = example("choosing/kernel_choice")
    X, y, kernels = (names[name] for name in ("X", "y", "kernels"))
    centering = np.eye(len(y)) - 1 / len(y)
    for name, kernel in kernels.items():
        Q = kernel(X)
        Qc, yc = centering @ Q @ centering, centering @ y
        cosine = yc @ Qc @ yc / (np.linalg.norm(Qc) * (yc @ yc))
        assert names["alignment"][name] == pytest.approx(cosine, rel=1e-10)
        # The smallest ball by its dual: maximize αᵀdiag(Q) − αᵀQα over the simplex.
        values, V = np.linalg.eigh(Q)
        alpha = cp.Variable(len(y), nonneg=True)
        spread = cp.sum_squares((V * np.sqrt(values.clip(0))).T @ alpha)
        dual = cp.Problem(cp.Maximize(alpha @ np.diag(Q) - spread), [cp.sum(alpha) == 1])
        assert names["radii"][name] ** 2 == pytest.approx(dual.solve(solver="CLARABEL"), rel=1e-5)
        for found, matrix in (
            (names["margins"][name], Q),
            (names["normalized"][name], Q / np.sqrt(np.outer(Q.diagonal(), Q.diagonal()))),
        ):
            if name == "linear":
                assert found == 0
                continue
            svc = SVC(kernel="precomputed", C=1e9, tol=1e-6).fit(matrix, y)
            c = svc.dual_coef_[0]
            squared_norm = 2 * np.abs(c).sum() - c @ matrix[np.ix_(svc.support_, svc.support_)] @ c  # by the dual
            assert found == pytest.approx(squared_norm**-0.5, rel=1e-6)


def test_scaled_kernels_of_kernel_choice():
    names = example("choosing/kernel_choice")
    for found in names["scaled"].values():
        margins = [margin for margin, _ in found]
        np.testing.assert_allclose(margins / np.sqrt(names["factors"]), margins[0], rtol=1e-6)
        for _, scores in found[1:]:
            np.testing.assert_allclose(scores, found[0][1], atol=1e-5)
    errors, chosen = names["errors"], names["chosen"]
    assert chosen["margin"] == "quintic" and chosen["alignment"] == "Gauss 3"
    best = min(errors, key=lambda name: errors[name][1])
    assert {best} == {chosen[criterion] for criterion in ("normalized margin", "margin/R", "cross-validation")}
    assert sorted(names["relative"], key=names["relative"].get)[-2] == "Gauss 0.05"
    assert errors["Gauss 0.05"][1] > 2 * errors["quintic"][1]


@pytest.mark.slow
def test_multiple_kernels():
    names = example("choosing/multiple_kernels")
    X, y, lam, values = names["X"], names["y"], 15.0, names["values"]
    # Plain cvxpy with explicit features of each column's kernel.
    Phi = [features(gaussian(X[:, [k]], X[:, [k]], 0.7)) for k in range(6)]
    W, b = [cp.Variable(P.shape[1]) for P in Phi], cp.Variable()
    misfit = cp.sum_squares(y - b - sum(P @ w for P, w in zip(Phi, W, strict=True)))
    cp.Problem(cp.Minimize(misfit + lam * sum(cp.norm(w) for w in W))).solve(solver="CLARABEL")
    expected = [np.linalg.norm(w.value) for w in W]
    np.testing.assert_allclose([n.value for n in names["norms"]], expected, atol=1e-4)
    np.testing.assert_allclose(names["lengths"][:2], lam, rtol=1e-6)
    assert max(names["lengths"][2:]) < 0.9 * lam and max(expected[2:]) < 1e-5
    # λ_max: no kernel from there on, the first one just below.
    total = sum(names["path"][f"‖θ{k + 1}‖"] for k in range(6))
    assert np.all(total[values > names["lam_max"]] < 1e-6) and np.all(total[values < 0.95 * names["lam_max"]] > 1e-3)


@pytest.mark.slow
def test_noisy_labels():
    names = example("choosing/noisy_labels")
    slopes, wrong = names["slopes"], names["wrong"]
    assert names["area"] > 0.9
    assert np.median(slopes[wrong]) > 0 > np.median(slopes[~wrong])
    assert names["losses"]["without suspects"] < 0.6 * names["losses"]["all rows"]
    # The derivative by a weight, from its definition: two more fits with other weights of that row.
    w, problem, criterion = names["w"], names["problem"], names["criterion"]
    values = []
    for k in (-1, 1):
        w.value = np.ones(300) + 1e-3 * k * (np.arange(300) == 7)
        problem.solve()
        values.append(ko.gradient(problem, criterion).value)
    assert slopes[7] == pytest.approx((values[1] - values[0]) / 2e-3, rel=1e-3)


@pytest.mark.slow
def test_relevant_columns():
    names = example("choosing/relevant_columns")
    assert names["each"] < 0.75 * names["one"]
    weights = names["weights"]
    assert np.mean(weights[:13]) > 5 * np.mean(weights[13:])
    assert names["search"].value < 0.5 * names["search"]["criterion"][0]


@pytest.mark.slow
def test_learned_exposure():
    names = example("choosing/learned_exposure")
    assert names["tau"] == pytest.approx(names["true"], abs=0.05)
    deviances = names["deviances"]
    assert deviances["learned"] < 0.8 * deviances["the time h"]
    z = np.log([0.5, 2.0])
    _, slope = names["judged"](z)
    for k in range(2):
        ends = [names["judged"](z + sign * 1e-4 * np.eye(2)[k])[0] for sign in (-1, 1)]
        assert slope[k] == pytest.approx((ends[1] - ends[0]) / 2e-4, rel=1e-4)


@pytest.mark.slow
def test_network_features():
    names = example("choosing/network_features")
    errors, found, y, weights = (names[key] for key in ("errors", "found", "y", "weights"))
    assert errors["features of the network"] < 0.8 * errors["columns, scaled each"] < errors["columns"] < 0.5
    assert names["machine"].status == "optimal" and names["machine"].certificate.relative_gap < 1e-6
    # The machine with these features is a support vector machine of scikit-learn's, whose intercept costs nothing.
    svr = SVR(C=0.5 / float(np.exp(weights["log_lam"])), gamma=0.5, epsilon=0.0, tol=1e-6).fit(found[:1000], y[:1000])
    np.testing.assert_allclose(names["predictions"]["features of the network"], svr.predict(found[1000:]), atol=1e-3)
    # The gradient by all weights, from its definition.
    with jax.enable_x64(True):
        tree = jax.tree.map(lambda w: np.array(w, dtype=float), weights)
        rows, responses, rng = names["X"][300:700], y[300:700], np.random.default_rng(0)
        along = jax.tree.map(lambda w: rng.normal(size=w.shape), tree)
        ahead, back = (
            float(names["error"](jax.tree.map(lambda w, a, h=h: w + h * a, tree, along), rows, responses))
            for h in (1e-6, -1e-6)
        )
        slopes = jax.grad(names["error"])(tree, rows, responses)
        slope = sum(np.sum(a * g) for a, g in zip(jax.tree.leaves(along), jax.tree.leaves(slopes), strict=True))
    assert slope == pytest.approx((ahead - back) / 2e-6, rel=1e-4)
