"""What the examples of statements that no library offers find, against plain cvxpy, closed forms and theorems."""

import cvxpy as cp
import jax
import numpy as np
import pytest
from running import example
from sklearn.svm import SVR

import kernelopt as ko


def gaussian(X, Z, sigma):
    return np.exp(-((X[:, None, :] - Z[None, :, :]) ** 2).sum(axis=2) / (2 * sigma**2))


def features(Q):
    """Explicit features, one row for each of Q, so that their products are Q's entries."""
    values, vectors = np.linalg.eigh(Q)
    kept = values > 1e-12 * values[-1]
    return vectors[:, kept] * np.sqrt(values[kept])


def test_poisson_exposure():
    import statsmodels.api as sm  # noqa: PLC0415

    names = example("new/poisson_exposure")
    X, Z, y, rate, exposure = (names[name] for name in ("X", "Z", "y", "rate", "exposure"))
    np.testing.assert_allclose(Z.T @ (rate - y), 0, atol=1e-5 * y.sum())
    Q = gaussian(X, X, 2.0)
    offset = np.log(exposure) + Z @ names["semi"]
    np.testing.assert_allclose(np.log(rate) - offset, Q @ (y - rate) / (2 * 0.5), atol=1e-4)
    glm = sm.GLM(y, Z, family=sm.families.Poisson(), offset=np.log(exposure)).fit(tol=1e-12)
    np.testing.assert_allclose(names["glm"], glm.params, atol=1e-6)
    assert np.abs(names["semi"] - glm.params).max() > 0.1


def test_multiple_kernels():
    names = example("new/multiple_kernels")
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


def test_crammer_singer():
    names = example("new/crammer_singer")
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


def test_ranking():
    names = example("new/ranking")
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


def test_multi_task():
    names = example("new/multi_task")
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


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")  # cvxpy's own; its values are compared below
def test_fairness():
    names = example("new/fairness")
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


def test_invented_loss():
    names = example("new/invented_loss")
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


def test_worst_case_least_squares():
    names = example("new/worst_case_least_squares")
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


def test_audit_svc():
    from sklearn.svm import SVC  # noqa: PLC0415

    names = example("new/audit_svc")
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


def test_optimality_bounds():
    names = example("new/optimality_bounds")
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


def test_noisy_labels():
    names = example("new/noisy_labels")
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


def test_relevant_columns():
    names = example("new/relevant_columns")
    assert names["each"] < 0.75 * names["one"]
    weights = names["weights"]
    assert np.mean(weights[:13]) > 5 * np.mean(weights[13:])
    assert names["search"].value < 0.5 * names["search"]["criterion"][0]


def test_learned_exposure():
    names = example("new/learned_exposure")
    assert names["tau"] == pytest.approx(names["true"], abs=0.05)
    deviances = names["deviances"]
    assert deviances["learned"] < 0.8 * deviances["the time h"]
    z = np.log([0.5, 2.0])
    _, slope = names["judged"](z)
    for k in range(2):
        ends = [names["judged"](z + sign * 1e-4 * np.eye(2)[k])[0] for sign in (-1, 1)]
        assert slope[k] == pytest.approx((ends[1] - ends[0]) / 2e-4, rel=1e-4)


def test_fairness_multiplier():
    names = example("new/fairness_multiplier")
    assert names["end"][1] <= 0.105 < names["start"][1]
    assert names["end"][2] < 0.6 * names["start"][2]
    assert np.all(np.diff(np.transpose(names["found"])[0]) < 0)  # the price buys what it is for


def test_network_features():
    names = example("new/network_features")
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
