"""The recipes of docs/howto, beside the same problems by hand: explicit features, scipy, plain cvxpy."""

import re
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
from explicit import features, gaussian
from running import example
from scipy.optimize import linprog, minimize

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
pytestmark = pytest.mark.slow


def recipe(page, heading):
    """The variables of a section's code after it ran."""
    section = re.search(rf"(?ms)^## {re.escape(heading)}.*?```python\n(.*?)```", (HOWTO / f"{page}.md").read_text())
    scope = {}
    exec(compile(section[1], heading, "exec"), scope)
    return scope


def test_simplex_outputs():
    names = recipe("probabilities", "Simplex outputs")
    X, Y = names["X"], names["Y"]
    grid = np.linspace(0, 6, 121)[:, None]
    B = features(gaussian(np.vstack([X, grid]), np.vstack([X, grid]), 1.0))
    W, b = cp.Variable((B.shape[1], 3)), cp.Variable(3)
    F = B @ W + b[None, :]
    by_hand = cp.Problem(
        cp.Minimize(cp.sum_squares(Y - F[:60]) + 0.01 * cp.sum_squares(W)), [F >= 0, cp.sum(F[:60], axis=1) == 1]
    )
    value = by_hand.solve(solver="CLARABEL")
    assert names["problem"].status == "optimal"
    assert names["problem"].value == pytest.approx(value, rel=1e-4)  # the grid has gaps
    assert names["problem"].value >= value - 1e-6
    assert names["new"].min() >= -1e-9
    np.testing.assert_allclose(names["new"].sum(axis=1), 1, atol=1e-6)
    free = cp.Problem(cp.Minimize(by_hand.objective.args[0]), by_hand.constraints[1:])
    assert free.solve(solver="CLARABEL") < value - 1e-3  # the bound at 0 matters


def test_heteroscedastic_regression():
    names = recipe("probabilities", "Heteroscedastic regression")
    X, y = names["X"], names["y"]
    B = features(gaussian(X, X, 2.0))
    r = B.shape[1]

    def objective(z):
        a, s = B @ z[:r] + z[2 * r], B @ z[r : 2 * r] + z[2 * r + 1]
        if np.any(s <= 0):
            return np.inf, np.zeros_like(z)
        e, slope = s * y - a, np.empty_like(z)
        of_s = e * y - 1 / s
        slope[:r], slope[r : 2 * r] = 0.02 * z[:r] - B.T @ e, 0.02 * z[r : 2 * r] + B.T @ of_s
        slope[2 * r :] = -e.sum(), of_s.sum()
        return e @ e / 2 - np.log(s).sum() + 0.01 * z[: 2 * r] @ z[: 2 * r], slope

    start = np.zeros(2 * r + 2)
    start[-1] = 1
    found = minimize(objective, start, jac=True, method="BFGS", options={"gtol": 1e-6, "maxiter": 5000})
    assert names["problem"].status == "optimal"
    assert names["problem"].value == pytest.approx(found.fun, rel=1e-5)  # the bound of the box is not active
    assert names["s"](np.linspace(0, 6, 200)[:, None]).value.min() > 0.2


def test_density_ratio():
    names = recipe("probabilities", "Density ratio estimation")
    points = np.vstack([names["P"], names["Q"]])
    B = features(gaussian(points, points, 0.7))
    w = cp.Variable(B.shape[1])
    p, q = B[:100] @ w, B[100:] @ w
    penalty = 0.01 * cp.sum_squares(w)
    ulsif = cp.Problem(cp.Minimize(cp.sum_squares(q) / 240 - cp.mean(p) + penalty), [B @ w >= 0])
    kliep = cp.Problem(cp.Minimize(-cp.mean(cp.log(p)) + penalty), [q >= 0, cp.mean(q) == 1])
    for objective, total, by_hand in ((names["ulsif"], [], ulsif), (names["kliep"], names["total"], kliep)):
        problem = names["ko"].Problem(cp.Minimize(objective), [names["p"] >= 0, names["q"] >= 0, *total])
        assert problem.solve() == pytest.approx(by_hand.solve(solver="CLARABEL"), rel=1e-5)
        assert problem.status == "optimal"


def test_listwise_ranking():
    names = recipe("probabilities", "Listwise ranking")
    X, position, first = names["X"], names["position"], names["first"]
    B = features(gaussian(X, X, 1.5))
    order = position.argsort(axis=1)

    def plackett_luce(f):
        """Minus the logarithm of the probability of all draws, one after another."""
        value, slope = 0.0, np.zeros_like(f)
        for k, drawn in enumerate(order):
            for j in range(len(drawn)):
                left = drawn[j:]
                odds = np.exp(f[k, left])
                value += np.log(odds.sum()) - f[k, drawn[j]]
                slope[k, left] += odds / odds.sum()
                slope[k, drawn[j]] -= 1
        return value, slope

    def listnet(f):
        odds = np.exp(f)
        total = odds.sum(axis=1, keepdims=True)
        return np.log(total).sum() - np.sum(first * f), odds / total - first

    for loss, stated in ((plackett_luce, names["plackett_luce"]), (listnet, names["listnet"])):

        def objective(w, loss=loss):
            value, slope = loss((B @ w).reshape(first.shape))
            return value + 0.5 * w @ w, B.T @ slope.ravel() + w

        found = minimize(objective, np.zeros(B.shape[1]), jac=True, method="L-BFGS-B", options={"ftol": 1e-15})
        problem = names["ko"].Problem(cp.Minimize(stated + 0.5 * names["ko"].sum_squares(names["theta"])))
        assert problem.solve() == pytest.approx(found.fun, rel=1e-6)
        assert problem.status == "optimal"


def test_wasserstein():
    names = recipe("probabilities", "Wasserstein")
    X, y, problem = names["X"], names["y"], names["problem"]
    assert problem.status == "optimal"
    assert names["mean"] - names["worst"].fun == pytest.approx(problem.value, rel=1e-5)
    # The smallest worst case: any other function has a larger one, by the primal linear program.
    B = features(gaussian(X, X, 1.0))
    epsilon, kappa, n = names["epsilon"], names["kappa"], len(y)

    def worst_case(w, b):
        margins = y * (B @ w + b)
        kept, flipped = np.maximum(1 - margins, 0), np.maximum(1 + margins, 0)
        gain = np.append((flipped - kept) / n, np.linalg.norm(w))
        limits = [(0, 1)] * n + [(0, None)]
        return kept.mean() - linprog(-gain, A_ub=[[*np.full(n, kappa / n), 1]], b_ub=[epsilon], bounds=limits).fun

    w, b, lam = cp.Variable(B.shape[1]), cp.Variable(), cp.Variable(nonneg=True)
    margins = cp.multiply(y, B @ w + b)
    loss = cp.maximum(cp.pos(1 - margins), cp.pos(1 + margins) - kappa * lam)
    by_hand = cp.Problem(cp.Minimize(epsilon * lam + cp.mean(loss)), [cp.norm(w) <= lam])
    assert by_hand.solve(solver="CLARABEL") == pytest.approx(problem.value, rel=1e-5)
    assert worst_case(w.value, b.value) == pytest.approx(problem.value, rel=1e-5)
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert worst_case(w.value + 0.1 * rng.normal(size=len(w.value)), b.value) > problem.value


def test_multiple_instance_learning():
    names = recipe("models", "Multiple instance learning")
    X, bags, positive = names["X"], names["bags"], names["positive"]
    B = features(gaussian(X, X, 1.0))
    w, b = cp.Variable(B.shape[1]), cp.Variable()
    f = B @ w + b
    loss = cp.mean(cp.pos(1 + f[np.flatnonzero(~positive[bags])]))
    for bag in np.flatnonzero(positive):
        loss += cp.pos(-3 / 5 - cp.mean(f[5 * bag : 5 * bag + 5])) / positive.sum()
    by_hand = cp.Problem(cp.Minimize(loss + 0.01 * cp.sum_squares(w)))
    assert by_hand.solve(solver="CLARABEL") == pytest.approx(names["problem"].value, rel=1e-5)
    assert names["problem"].status == "optimal"


def test_conditional_value_at_risk():
    names = example("regression/conditional_value_at_risk")
    X, y = names["X"], names["y"]
    B = features(gaussian(X, X, 1.0))
    w, b = cp.Variable(B.shape[1]), cp.Variable()
    errors = cp.abs(y - B @ w - b)
    largest = cp.sum_largest(errors, 12) / 12  # the same, without a variable s
    penalty = 1e-3 * cp.sum_squares(w)
    for name, objective in (("mean", cp.mean(errors)), ("CVaR", largest), ("largest", cp.max(errors))):
        problem = names["fits"][name]["problem"]
        value = cp.Problem(cp.Minimize(objective + penalty)).solve(solver="CLARABEL")
        assert problem.status == "optimal"
        assert problem.value == pytest.approx(value, rel=1e-5)
    for bound, found in zip(names["bounds"], names["curve"], strict=True):
        value = cp.Problem(cp.Minimize(cp.mean(errors) + penalty), [largest <= bound]).solve(solver="CLARABEL")
        assert found["problem"].status == "optimal"
        assert found["problem"].value == pytest.approx(value, rel=1e-5)
        assert found["errors"][:12].mean() <= bound + 1e-9
    assert np.all(np.diff(names["means"]) <= 1e-6)
    assert len(names["figures"]) == 3
