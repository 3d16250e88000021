"""What the examples of kernels and features find, against explicit features, scikit-learn and theorems."""

import cvxpy as cp
import numpy as np
import pytest
from running import example
from sklearn.linear_model import Ridge
from sklearn.preprocessing import PolynomialFeatures
from sklearn.svm import SVC

import kernelopt as ko
from kernelopt.errors import NotPSDError, RepresenterError


@pytest.mark.slow
def test_finite_feature_maps():
    names = example("kernels/finite_feature_maps")
    X, y, lam, grid = (names[name] for name in ("X", "y", "lam", "grid"))
    for name, (plain, problem, theta_p, theta) in names["found"].items():
        assert plain.status == problem.status == "optimal"
        assert problem.value == pytest.approx(plain.value, rel=1e-7)
        assert theta.norm == pytest.approx(np.linalg.norm(theta_p), rel=1e-5)
        np.testing.assert_allclose(names["fitted"][name], names["explicit"][name], atol=1e-5)
    np.testing.assert_allclose(names["entries"], names["found"]["ramps"][2], atol=1e-5)
    # The polynomial fit with features written out: monomials of (1 + xz)³.
    F = X ** np.arange(4) * np.sqrt([1, 3, 3, 1])
    t = cp.Variable(4)
    cp.Problem(cp.Minimize(cp.norm1(y - F @ t) + lam * cp.sum_squares(t))).solve(solver="CLARABEL")
    expected = grid ** np.arange(4) * np.sqrt([1, 3, 3, 1]) @ t.value
    np.testing.assert_allclose(names["fitted"]["polynomial"], expected, atol=1e-5)


def test_translation_of_finite_feature_maps():
    names = example("kernels/finite_feature_maps")
    assert names["translated"].value == pytest.approx(names["written"].value, rel=1e-7)
    assert names["translated"].value > names["found"]["ramps"][0].value + 0.01  # the constraint binds
    np.testing.assert_allclose(names["by_kernel"], names["t"].value, atol=1e-5)
    with pytest.raises(RepresenterError, match=r"t\[3\]"):
        ko.Problem.from_cvxpy(names["bounded"], theta=names["t"], features={names["Phi"]: names["A"]})


@pytest.mark.slow
def test_degree_two_expansion():
    names = example("kernels/degree_two_expansion")
    X, labels, train, test, p, N = (names[name] for name in ("X", "labels", "train", "test", "p", "N"))
    i, j = np.triu_indices(65)
    ones = np.hstack([np.ones((len(X), 1)), X])
    F = ones[:, i] * ones[:, j] * np.where(i == j, 1, np.sqrt(2))
    np.testing.assert_allclose(F @ F.T, (1 + X @ X.T) ** 2, rtol=1e-12)
    assert (N, p) == (90, F.shape[1]) == (90, 66 * 65 // 2)
    for degree, counts in names["counts"].items():
        assert counts == [PolynomialFeatures(degree).fit(np.ones((1, d))).n_output_features_ for d in (2, 10, 64, 784)]
    ridge = Ridge(alpha=0.1, fit_intercept=False, solver="svd").fit(F[train], labels[train])
    np.testing.assert_allclose(names["scores"], ridge.predict(F[test]), atol=1e-9)
    assert names["right"] == np.mean((ridge.predict(F[test]) > 0) == (labels[test] > 0)) > 0.9
    assert names["monomials"](names["x"], names["z"]).item() == 1 + 3 - 2 + 9 + 4 - 6
    assert names["rank"] == 15
    assert names["theta_4"].value.norm ** 2 == pytest.approx(0.5, abs=1e-4)


def widest(lifted, labels):
    """θ and b of the widest margin, by cvxpy alone."""
    theta, b = cp.Variable(2), cp.Variable()
    constraints = [cp.multiply(labels, lifted @ theta + b) >= 1]
    cp.Problem(cp.Minimize(cp.sum_squares(theta)), constraints).solve(solver="CLARABEL")
    return [*theta.value, b.value]


@pytest.mark.slow
def test_lifting():
    names = example("kernels/lifting")
    # On the parabola −1 at 0.6 and 3, +1 at 1.1: f(x) = −1 + k(x − 0.6)(3 − x).
    k = 2 / ((1.1 - 0.6) * (3 - 1.1))
    entries, b, *_ = names["found"]["parabola"]
    np.testing.assert_allclose([*entries, b], [3.6 * k, -k, -1 - 1.8 * k], rtol=1e-6)
    half = np.sqrt(1.2**2 - 1 / k)
    np.testing.assert_allclose(names["ends"], [1.8 - half, 1.8 + half], rtol=1e-6)
    X, labels = names["X"], names["X_labels"]
    r, phi = np.linalg.norm(X, axis=1), np.angle(X @ [1, 1j])
    for name, lifted in (("squares", X**2), ("polar", np.column_stack([r, phi]))):
        entries, b, *_ = names["found"][name]
        np.testing.assert_allclose([*entries, b], widest(lifted, labels), rtol=1e-4, atol=1e-5)
    # Every boundary is between the disk and its surroundings.
    for radii in (names["axes_of_ellipse"], names["ends_of_spiral"]):
        assert r[labels > 0].max() < min(radii) and max(radii) < r[labels < 0].min()
    for points, y in ((names["x"], names["x_labels"]), (X, labels)):
        assert names["separate"](ko.kernels.Linear(), points, y)[0].status == "infeasible"


@pytest.mark.slow
def test_indefinite_kernel():
    names = example("kernels/indefinite_kernel")
    X, train, y, lam = (names[name] for name in ("X", "train", "y", "lam"))
    Q = np.tanh(0.1 * X[train] @ X[train].T)
    values, V = np.linalg.eigh(Q)
    assert values[0] < -10
    changed = {"clip": values.clip(0), "flip": np.abs(values), "shift": values - values[0]}
    for way, (value, in_terms_of_q, *_) in names["answers"].items():
        # SVC takes Q̃, and its dual objective is the optimum.
        changed_matrix = (V * changed[way]) @ V.T
        svc = SVC(kernel="precomputed", C=1 / (2 * lam), tol=1e-8).fit(changed_matrix, y)
        c = np.zeros(len(y))
        c[svc.support_] = svc.dual_coef_[0]
        assert value == pytest.approx(np.abs(c).sum() - c @ changed_matrix @ c / 2, rel=1e-6)
        # Clipped, c has nothing in the directions that were changed.
        assert (in_terms_of_q == pytest.approx(value, rel=1e-6)) == (way == "clip")
    held_out = {way: answer[3] for way, answer in names["answers"].items()}
    assert held_out["clip"] > held_out["shift"] > max(found[4] for found in names["sklearn"])


def test_an_indefinite_problem_has_no_optimum():
    names = example("kernels/indefinite_kernel")
    down = names["V"][:, 0]
    assert names["objective"](1000 * down, 0.0) < -1e6
    assert np.ptp([dual for _, _, dual, *_ in names["sklearn"]]) > 1
    assert all(c @ names["Q"] @ c < 0 for c, *_ in names["sklearn"])
    gap, clipped = names["audit"]["duality gap"], names["audit"].certificate
    assert not gap.passed and clipped.relative_gap > 0.1
    assert clipped.lower <= names["answers"]["clip"][0] * (1 + 1e-9)
    with pytest.raises(NotPSDError):
        names["problem"].verify()
