"""What the tutorials say about their fits."""

import numpy as np
import pytest
from running import EXAMPLES, example
from sklearn.svm import SVC

import kernelopt as ko


@pytest.mark.slow
def test_first_fit():
    names = example("tutorials/first_fit")
    assert names["limited"].status == "optimal"
    assert abs(names["f"]([[0.0]]).value[0] - 5) < 1e-6 and names["f"]([[12.0]]).value[0] < 7
    assert np.diff(names["f"](names["grid"]).value).max() <= 0.06 + 1e-9
    # A multiplier is the decrease of the optimum per unit of the right-hand side.
    assert names["start"].dual_value[0] == pytest.approx(24.4, abs=0.1)
    assert abs(names["end"].dual_value[0]) < 1e-3
    assert np.abs(names["before"] - names["truth"](names["grid"])).mean() < 0.05


@pytest.mark.slow
def test_classification():
    names = example("tutorials/classification")
    X, y, svc = names["X"], names["y"], SVC(C=1.0, gamma=1 / (2 * 0.7**2), tol=1e-8)
    assert names["machine"].value == pytest.approx(primal(svc.fit(X, y), X, y), rel=1e-6)
    assert [names[p].status for p in ("smooth", "weighted", "bounded")] == ["optimal"] * 3
    f = names["f"](X).value
    assert np.mean(np.maximum(1 + f[y < 0], 0)) <= 0.1 + 1e-9
    assert np.mean(f[y < 0] > 0) <= 0.1 < 13 / 60  # without the bound 13 rows
    assert names["few"].dual_value > 0


def primal(svc, X, y):
    """‖θ‖²/2 + Σ max(0, 1 − yf) of a fitted SVC with C = 1."""
    a, S = svc.dual_coef_[0], svc.support_vectors_
    Q = np.exp(-((S[:, None] - S[None]) ** 2).sum(axis=2) / (2 * 0.7**2))
    return a @ Q @ a / 2 + np.maximum(0, 1 - y * svc.decision_function(X)).sum()


@pytest.mark.slow
def test_choosing():
    names = example("tutorials/choosing")
    table, tuned = names["table"], names["tuned"]
    assert 0.03 < table.best < 3
    assert tuned.value <= table["mean"].min() + 1e-6  # by σ and λ together, from the best λ
    lower, upper = np.array(names["bounds"]).T
    optimum = names["problem"].value
    assert (lower <= upper).all() and (lower <= optimum * (1 + 1e-6)).all() and (upper >= upper[-1] * (1 - 1e-6)).all()
    assert (np.diff(upper) <= 1e-6 * upper[0]).all()


@pytest.mark.slow
def test_from_theta_to_w():
    names = example("tutorials/from_theta_to_w")
    Q, B, lam, w = names["Q"], names["B"], names["lam"], names["w"].value
    assert B.shape[1] < len(Q) and np.abs(Q - B @ B.T).max() < 1e-6
    assert len(set(names["pivots"])) == B.shape[1]
    assert names["small"].value == pytest.approx(names["problem"].value, rel=1e-6)
    assert np.linalg.norm(w) == pytest.approx(names["theta"].value.norm, rel=1e-5)
    np.testing.assert_allclose(names["by_hand"], names["theta"].value(names["grid"]), atol=1e-5)
    # θ⊥ changes the curve, and no prediction at the data; the squares of the norms add up.
    f, orthogonal, more = names["f"], names["orthogonal"], names["more"]
    assert np.abs(orthogonal(names["X"])).max() < 1e-8 and orthogonal(names["z"])[0] == pytest.approx(1)
    assert more.norm**2 == pytest.approx(f.norm**2 + orthogonal.norm**2, rel=1e-5)
    assert np.abs(names["nu"]).max() <= 1
    assert names["bound"] == pytest.approx(names["problem"].value, rel=1e-6)
    assert names["bound"] <= names["problem"].value and lam == 0.1


@pytest.mark.slow
def test_estimators():
    names = example("tutorials/estimators")
    assert names["search"].best_params_["kernelregressor__loss"] == "absolute_error"
    assert names["distances"]["absolute_error"] < 0.5 * names["distances"]["squared_error"]
    assert names["best"][-1].certificate_.relative_gap <= 1e-6
    np.testing.assert_allclose(names["below"], names["levels"], atol=0.03)
    assert (np.diff(names["quantiles"].predict(names["x"]), axis=1) >= -1e-6).all()
    assert names["outside"] <= 0.2 and names["apart"] < 1e-4
    assert min(names["scores"].values()) > 0.85 and len(names["scores"]) == 7
    assert 0 < np.mean(~names["inside"]) <= 0.1
    assert names["rises"].min() >= -1e-9
    assert names["grown"].best_estimator_.score(names["x"], names["t"]) > 0.3


def test_estimators_of_all_kinds_are_in_examples():
    source = "".join(path.read_text() for path in EXAMPLES.rglob("*.py"))
    assert [name for name in ko.estimators.__all__ if f"ko.estimators.{name}" not in source] == []
    pictures = ["decision_regions", "fit", "gram", "path", "spectrum"]
    assert [name for name in pictures if f"ko.plots.{name}(" not in source] == []
