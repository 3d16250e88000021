"""What the examples of classification find, against dual problems, other libraries and theorems."""

import cvxpy as cp
import numpy as np
import pytest
from explicit import features, gaussian
from running import example
from scipy.spatial.distance import cdist
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import PolynomialFeatures
from sklearn.svm import SVC, NuSVC

TIGHT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


@pytest.mark.slow
def test_maximum_margin():
    names = example("classification/maximum_margin")
    X, y, alpha, support = names["X"], names["y"], names["alpha"], names["support"]
    w, b = cp.Variable(2), cp.Variable()
    primal = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w)), [cp.multiply(y, X @ w + b) >= 1])
    primal.solve("CLARABEL", **TIGHT)
    assert names["problem"].value == pytest.approx(primal.value, rel=1e-9)
    assert names["dual_value"] == pytest.approx(primal.value, rel=1e-9)
    np.testing.assert_allclose(names["theta"].value(np.eye(2)), w.value, atol=1e-7)
    np.testing.assert_allclose(alpha, names["dual_alpha"], atol=1e-8)
    np.testing.assert_allclose(names["b_from_support"], b.value, atol=1e-6)
    assert len(support) == 3 and max(names["counts"]) == 3 and min(names["counts"]) >= 2
    curved, rings = names["curved"], names["rings"]
    svc = SVC(C=1e6, gamma=1 / (2 * 1.5**2), tol=1e-10).fit(rings, y)
    assert curved.value == pytest.approx(names["curved_value"], rel=1e-8)
    np.testing.assert_allclose(names["alpha_curved"], names["curved_alpha"], rtol=1e-5, atol=1e-5)
    assert set(names["support_curved"]) == set(svc.support_) and len(svc.support_) > 3
    np.testing.assert_allclose(names["b_curved"].value, svc.intercept_[0], atol=1e-5)


@pytest.mark.slow
def test_support_vector_machines():
    names = example("classification/support_vector_machines")
    X, y, grid, gamma = names["X"], names["y"], names["grid"], 1 / (2 * 0.7**2)
    svc = SVC(C=1.0, gamma=gamma, tol=1e-10).fit(X, y)
    nu = np.zeros(len(y))
    nu[svc.support_] = svc.dual_coef_[0]
    np.testing.assert_allclose(names["nu_of_rows"], nu, atol=1e-6)
    primal = np.abs(nu).sum() - 0.5 * nu @ np.exp(-gamma * cdist(X, X, "sqeuclidean")) @ nu
    assert names["dual"].value == pytest.approx(primal, rel=1e-8)
    assert names["without"].value == pytest.approx(names["dual_without"].value, rel=1e-9)
    assert names["without"].value > names["dual"].value + 1e-3
    for row in names["sweep"]:
        assert row["support"] == row["svc"]
        assert row["apart"] < 1e-5 * row["norm"]
    assert np.all(np.diff([row["norm"] for row in names["sweep"]]) > 0)
    for share, errors, support, apart in names["shares"]:
        assert errors <= share + 1e-12 <= support + 2e-12
        assert apart < 1e-4
    assert len(np.unique(names["shares"][:, 1])) > 5
    nu_svc = NuSVC(nu=0.5, gamma=gamma, tol=1e-10).fit(X, y)
    names["nu"].value = 0.5
    names["nu_problem"].solve(tol=1e-12)
    f = (names["theta"](grid) + names["b"]).value / names["rho"].value
    np.testing.assert_allclose(f, nu_svc.decision_function(grid), atol=1e-5)


@pytest.mark.slow
def test_logistic():
    names = example("classification/logistic")
    X, y, theta, b, fresh = names["X"], names["y"], names["theta"], names["b"], names["fresh"]
    f, nu = names["f"], names["nu"]
    np.testing.assert_allclose(nu, y * (1 - expit(y * f)), atol=1e-7)
    np.testing.assert_allclose(expit(f).sum(), np.sum(y > 0), atol=1e-5)
    assert names["apart"] < 1e-6
    values, vectors = np.linalg.eigh(np.exp(-cdist(X, X, "sqeuclidean") / 2))
    features = vectors * np.sqrt(values.clip(0))
    peer = LogisticRegression(C=1 / (2 * 0.1), solver="newton-cholesky", tol=1e-10).fit(features, y)
    np.testing.assert_allclose(expit((theta(X) + b).value), peer.predict_proba(features)[:, 1], atol=1e-6)
    assert names["apart_3"] < 1e-7
    cubic = ((fresh[:, :, None] * X.T[None]).sum(axis=1) + 1) ** 3
    assert cubic @ names["theta_3"](X).dual_value / (2 * 0.1) == pytest.approx(names["theta_3"].value(fresh), abs=1e-4)
    excess = names["excess"]
    assert excess[1e-4] > 0.02 > abs(excess[0.1]) and excess[3.0] < -0.1


@pytest.mark.slow
def test_sigmoid_least_squares():
    names = example("classification/sigmoid_least_squares")
    accuracies = {name: np.array(kept) for name, kept in names["accuracies"].items()}
    logistic, sigmoid = accuracies["logistic"], accuracies["sigmoid least squares"]
    assert np.abs(sigmoid[:2] - logistic[0]).max() < 0.01  # 5 % wrong rows do not matter to it
    assert np.all(sigmoid[1:3] - logistic[1:3] > 0.05)
    assert names["problem"].status == "locally_optimal" and names["problem"].verify().passed
    X, y, f = names["X"], names["y"], names["functions"]["sigmoid least squares"]
    features = np.column_stack([np.ones(len(X)), X])
    w = np.linalg.lstsq(features, f(X))[0]
    t = np.tanh(features @ w)
    terms = features * (2 * (t - y) * (1 - t**2))[:, None]
    assert np.linalg.norm(terms.sum(axis=0) + 2 * 0.1 * w) < 1e-4 * np.linalg.norm(terms)
    value = np.sum((t - y) ** 2) + 0.1 * w @ w
    assert names["problem"].value == pytest.approx(value, rel=1e-9)


@pytest.mark.slow
def test_perceptron():
    names = example("classification/perceptron")
    X, y, m, model = names["X"], names["y"], names["m"], names["model"]
    Q = np.exp(-cdist(X, X, "sqeuclidean") / (2 * 0.7**2)) + 1
    assert np.array_equal(model.mistakes_, m) and np.array_equal(names["slow"].mistakes_, m)
    np.testing.assert_allclose(model.decision_function(X), Q @ (m * y), atol=1e-10)
    assert np.all(y * (Q @ (m * y)) > 0) and m.max() > 1
    np.testing.assert_allclose(names["scaled"], 0.01, rtol=1e-9)
    alpha = cp.Variable(len(y), nonneg=True)
    dual = cp.Problem(cp.Maximize(cp.sum(alpha) - cp.quad_form(alpha, cp.psd_wrap(Q * np.outer(y, y))) / 4))
    dual.solve("CLARABEL", **TIGHT)
    assert names["lower"] * (1 - 1e-8) <= 2 * dual.value <= names["bound"] * (1 + 1e-8)
    assert names["bound"] == pytest.approx(2 * dual.value, rel=1e-5)
    assert m.sum() <= names["bound"]
    assert np.all(np.array(names["counted"]) <= names["bounds"])
    assert np.all(np.diff(names["bounds"]) < 0)


@pytest.mark.slow
def test_nearest_neighbours():
    names = example("classification/nearest_neighbours")
    X, y, X_new, kernels = names["X"], names["y"], names["X_new"], names["kernels"]
    assert names["shares"]["Gaussian"] == 1.0
    assert max(names["shares"]["polynomial"], names["shares"]["cosine"]) < 0.95
    explicit = PolynomialFeatures(3, include_bias=True).fit_transform
    features = explicit(X), explicit(X_new)
    weights = kernels["polynomial"].features(np.ones((1, 2)))[0]
    by_hand = KNeighborsClassifier(5).fit(features[0] * weights, y).predict(features[1] * weights)
    assert np.array_equal(by_hand, names["classify"](kernels["polynomial"], X, y, X_new, 5))
    in_plane = KNeighborsClassifier(5).fit(X, y).predict(X_new)
    assert np.array_equal(in_plane, names["classify"](kernels["Gaussian"], X, y, X_new, 5))
    words = sorted({s[i : i + 3] for s in names["strings"] for i in range(len(s) - 2)})
    counts = np.array([[sum(s[i : i + 3] == w for i in range(len(s) - 2)) for w in words] for s in names["strings"]])
    np.testing.assert_allclose(names["distances"], cdist(counts, counts))
    spectrum, position = names["traced"].values()
    assert spectrum > 0.9 and abs(position - 0.5) < 0.15


@pytest.mark.slow
def test_crammer_singer():
    names = example("classification/crammer_singer")
    X, y = names["X"], names["y"]
    np.testing.assert_allclose(names["weights"].value(X), names["theirs"], atol=1e-6)  # LinearSVC
    # Gaussian scores in plain cvxpy, with the loss written as one slack a row.
    Phi = features(gaussian(X, X, 1.0))
    W, c, slack = cp.Variable((Phi.shape[1], 3)), cp.Variable(3), cp.Variable(len(y), nonneg=True)
    F = Phi @ W + c[None, :]
    right = cp.sum(cp.multiply(np.eye(3)[y], F), axis=1)
    leads = [right - F[:, k] >= 1 - slack - 2 * (y == k) for k in range(3)]
    stated = cp.Problem(cp.Minimize(cp.sum(slack) + 0.5 * cp.sum_squares(W)), leads)
    assert names["problem"].value == pytest.approx(stated.solve(solver="CLARABEL"), rel=1e-6)
    np.testing.assert_allclose(names["nu"].sum(axis=1), 0, atol=1e-8)
    errors, pairs = names["errors"], names["classifiers"].values()
    (joint, rest), (joint_gaussian, rest_gaussian) = ((errors(F(X).value), errors(G(X))) for F, G in pairs)
    assert joint < rest and joint_gaussian == rest_gaussian


@pytest.mark.slow
def test_ranking():
    names = example("classification/ranking")
    X, lam, better, worse, quality = (names[name] for name in ("X", "lam", "better", "worse", "quality"))
    Phi = features(gaussian(X, X, 1.0))
    D = Phi[better] - Phi[worse]  # one row for each pair
    w = cp.Variable(Phi.shape[1])
    stated = cp.Problem(cp.Minimize(cp.sum(cp.pos(1 - D @ w)) / 400 + lam.value * cp.sum_squares(w)))
    assert names["problem"].value == pytest.approx(stated.solve(solver="CLARABEL"), rel=1e-6)
    np.testing.assert_allclose(names["f"].value, Phi @ w.value, atol=1e-3)
    np.testing.assert_allclose(names["nu"].sum(), 0, atol=1e-10)
    # τ by counting.
    test = names["test"]
    score, truth = names["theta"].value(test), quality(test)
    i, j = np.triu_indices(500, 1)
    agree = np.sign(score[i] - score[j]) * np.sign(truth[i] - truth[j])
    assert names["tau"](test) == pytest.approx(agree.mean(), abs=1e-12) and agree.mean() > 0.8
