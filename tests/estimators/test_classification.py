"""KernelClassifier and KernelPerceptron: beside scikit-learn's, several classes, probabilities, errors."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko

pytest.importorskip("sklearn")
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

KernelClassifier, KernelPerceptron = ko.estimators.KernelClassifier, ko.estimators.KernelPerceptron
RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(60, 2)), RNG.normal(size=(20, 2))
y = np.where(X[:, 0] * X[:, 1] + 0.2 * RNG.normal(size=60) > 0, "yes", "no")
W = RNG.integers(0, 4, size=60)
IRIS = load_iris()
SPECIES = IRIS.target_names[IRIS.target]
GAUSSIAN = ko.kernels.Gaussian(sigma=1.5)


@pytest.mark.later
def test_svc_of_default_parameters():
    ours = KernelClassifier(alpha=0.5, tol=1e-8).fit(X, y, sample_weight=W)
    theirs = SVC(C=1.0, gamma=1 / (2 * np.repeat(X, W, axis=0).var()), tol=1e-8).fit(X, y, sample_weight=W)
    assert np.abs(ours.decision_function(Z) - theirs.decision_function(Z)).max() < 1e-4
    assert list(ours.classes_) == ["no", "yes"] and list(ours.predict(Z)) == list(theirs.predict(Z))
    unweighted = SVC(tol=1e-8).fit(X, y).decision_function(Z)
    assert np.abs(KernelClassifier(alpha=0.5, tol=1e-8).fit(X, y).decision_function(Z) - unweighted).max() < 1e-4


@pytest.mark.later
@pytest.mark.parametrize(
    "loss",
    ["hinge", "squared_hinge", "squared_error", lambda y, f: cp.square(cp.pos(1 - cp.multiply(y, f)))],
)
def test_several_classes_are_one_against_the_rest(loss):
    model = KernelClassifier(loss, alpha=0.5, tol=1e-8).fit(IRIS.data, SPECIES)
    f = model.decision_function(IRIS.data)
    assert f.shape == (150, 3) and len(model.certificate_) == 3 and model.intercept_.shape == (3,)
    for k, name in enumerate(model.classes_):
        single = KernelClassifier(loss, alpha=0.5, tol=1e-8).fit(IRIS.data, name == SPECIES)
        assert np.abs(single.decision_function(IRIS.data) - f[:, k]).max() < 1e-3
        assert model.certificate_[k].relative_gap < 1e-8 or model.certificate_[k].closes(1e-8)
    assert model.score(IRIS.data, SPECIES) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["multinomial", "crammer_singer"])
def test_joint_losses(loss):
    model = KernelClassifier(loss, alpha=0.5, kernel=ko.kernels.Gaussian(sigma=3.0)).fit(IRIS.data, SPECIES)
    theta, b = ko.Theta(model.kernel, outputs=3), cp.Variable(3)
    terms = getattr(ko.losses, loss)(IRIS.target, theta(IRIS.data) + b[None, :])
    best = ko.Problem(cp.Minimize(cp.sum(terms) + 0.5 * ko.sum_squares(theta))).solve()
    assert model.certificate_.lower <= best * (1 + 1e-6) and best <= model.certificate_.upper * (1 + 1e-6)
    assert model.score(IRIS.data, SPECIES) > 0.9
    two = KernelClassifier(loss, alpha=0.5).fit(X, y)
    assert two.decision_function(Z).shape == (20,) and two.coefficients_.ndim == 1
    assert two.score(X, y) > 0.8
    precomputed = KernelClassifier(loss, alpha=0.5, kernel="precomputed").fit(GAUSSIAN(X), y)
    plain = KernelClassifier(loss, alpha=0.5, kernel=GAUSSIAN).fit(X, y)
    assert np.abs(precomputed.decision_function(GAUSSIAN(Z, X)) - plain.decision_function(Z)).max() < 1e-3


@pytest.mark.later
def test_multinomial_of_two_classes_is_log_loss():
    """θ₁ = −θ₀ = θ/2 has ‖θ₁‖² + ‖θ₀‖² = ‖θ‖²/2."""
    joint = KernelClassifier("multinomial", alpha=1.0, tol=1e-8).fit(X, y)
    single = KernelClassifier("log_loss", alpha=0.5, tol=1e-8).fit(X, y)
    assert np.abs(joint.predict_proba(Z) - single.predict_proba(Z)).max() < 1e-4


@pytest.mark.slow
def test_probabilities():
    for loss in ("log_loss", "multinomial"):
        model = KernelClassifier(loss, alpha=0.5).fit(IRIS.data, SPECIES)
        p = model.predict_proba(IRIS.data)
        assert p.shape == (150, 3) and np.allclose(p.sum(axis=1), 1) and p.min() >= 0
        assert np.array_equal(model.classes_[p.argmax(axis=1)], model.predict(IRIS.data))
    two = KernelClassifier("log_loss").fit(X, y)
    assert np.allclose(two.predict_proba(Z)[:, 1], 1 / (1 + np.exp(-two.decision_function(Z))))
    # At b's optimum the mean probability is the share of the class.
    assert abs(two.predict_proba(X)[:, 1].mean() - (y == "yes").mean()) < 1e-4
    hinge = KernelClassifier("hinge").fit(X, y)
    assert not hasattr(hinge, "predict_proba")
    with pytest.raises(AttributeError) as error:
        hinge.predict_proba(Z)
    assert "CalibratedClassifierCV" in str(error.value.__cause__)
    assert CalibratedClassifierCV(hinge, cv=3).fit(X, y).predict_proba(Z).shape == (20, 2)


@pytest.mark.slow
def test_weights_repeat_and_leave_out_rows():
    rng = np.random.default_rng(1)
    w = rng.integers(0, 3, size=150)
    repeated, labels = np.repeat(IRIS.data, w, axis=0), np.repeat(SPECIES, w)
    order = rng.permutation(len(labels))
    one = KernelClassifier().fit(IRIS.data, SPECIES, sample_weight=w).decision_function(IRIS.data)
    other = KernelClassifier().fit(repeated[order], labels[order]).decision_function(IRIS.data)
    assert np.array_equal(one, other)
    without = KernelClassifier().fit(IRIS.data, SPECIES, sample_weight=IRIS.target != 1)
    assert list(without.classes_) == ["setosa", "virginica"]
    assert np.array_equal(
        without.decision_function(IRIS.data),
        KernelClassifier().fit(IRIS.data[IRIS.target != 1], SPECIES[IRIS.target != 1]).decision_function(IRIS.data),
    )


@pytest.mark.slow
def test_precomputed():
    kernel = ko.kernels.Gaussian(sigma=2.0)
    plain = KernelClassifier(kernel=kernel).fit(IRIS.data, SPECIES)
    model = KernelClassifier(kernel="precomputed").fit(kernel(IRIS.data), SPECIES)
    assert np.abs(model.decision_function(kernel(IRIS.data)) - plain.decision_function(IRIS.data)).max() < 1e-3


@pytest.mark.parametrize(
    ("labels", "weights", "message"),
    [
        (np.full(60, "a"), None, "at least two classes"),
        (np.r_[0, np.ones(59, int)], np.r_[0, np.ones(59)], "at least two classes.*one class"),
        (np.linspace(0, 1, 60), None, "Unknown label type"),
        (np.ones((60, 2)), None, "1d array"),
        (np.r_[np.nan, np.ones(59)], None, "NaN"),
        (np.r_[0, np.ones(59, int)], -np.ones(60), "sample_weight ≥ 0"),
    ],
)
def test_labels_and_weights_that_cannot_be_used(labels, weights, message):
    with pytest.raises(ValueError, match=message):
        KernelClassifier().fit(X, labels, sample_weight=weights)


def test_data_that_cannot_be_used():
    model = KernelClassifier().fit(X, y)
    for bad, message in [
        (X.astype(complex), "Complex data"),
        (np.full((60, 2), "a"), "could not convert"),
        (X[:, 0], "Expected 2D array"),
        (np.where(X > 2, np.inf, X), "infinity"),
    ]:
        for call in (lambda bad=bad: model.predict(bad), lambda bad=bad: KernelPerceptron().fit(bad, y)):
            with pytest.raises(ValueError, match=message):
                call()
    with pytest.raises(ValueError, match="expecting 2 features"):
        model.predict(IRIS.data)


@pytest.mark.parametrize("params", [{"loss": "absolute"}, {"alpha": -1}, {"kernel": "gauss"}])
def test_parameters_that_cannot_be_used(params):
    with pytest.raises(ko.errors.OptionError, match=f"Expected {next(iter(params))} to be"):
        KernelClassifier(**params).fit(X, y)


# ---------------------------------------------------------------- the perceptron


def perceptron_by_hand(Q, y, passes):
    counts = np.zeros(len(y))
    for _ in range(passes):
        before = counts.copy()
        for i in range(len(y)):
            if y[i] * sum(counts[j] * y[j] * (Q[j, i] + 1) for j in range(len(y))) <= 0:
                counts[i] += 1
        if (counts == before).all():
            break
    return counts


@pytest.mark.slow
def test_mistakes_are_counted_as_by_hand():
    separable = np.where(X[:, 0] * X[:, 1] > 0, 1, 0)
    kernel = ko.kernels.Polynomial(degree=2)
    model = KernelPerceptron(kernel=kernel).fit(X, separable)
    counts = perceptron_by_hand(kernel(X), 2 * separable - 1, 1000)
    assert np.array_equal(model.mistakes_, counts) and counts.sum() > 3
    assert model.score(X, separable) == 1 and 1 < model.n_iter_ < 1000
    assert np.array_equal(np.abs(model.coefficients_), counts[model.pivots_])
    assert model.intercept_ == (counts * (2 * separable - 1)).sum()
    faster = KernelPerceptron(kernel=kernel, learning_rate=5.0).fit(X, separable)
    assert np.array_equal(faster.mistakes_, counts)
    assert np.allclose(faster.decision_function(Z), 5 * model.decision_function(Z))
    precomputed = KernelPerceptron(kernel="precomputed").fit(kernel(X), separable)
    assert np.allclose(precomputed.decision_function(kernel(Z, X)), model.decision_function(Z))
    assert KernelPerceptron(kernel=kernel, fit_intercept=False).fit(X, separable).intercept_ == 0


def test_perceptron_of_several_classes():
    model = KernelPerceptron(gamma=5.0).fit(IRIS.data, SPECIES)
    assert model.mistakes_.shape == (150, 3) and model.score(IRIS.data, SPECIES) == 1
    assert model.decision_function(IRIS.data).shape == (150, 3)


def test_perceptron_that_does_not_converge():
    same = np.zeros((4, 1))
    with pytest.warns(ConvergenceWarning, match="still makes mistakes after 7 passes"):
        model = KernelPerceptron(max_iter=7).fit(same, [0, 1, 0, 1])
    assert model.n_iter_ == 7
    for params in ({"max_iter": 0}, {"learning_rate": 0.0}, {"max_iter": 2.5}):
        with pytest.raises(ko.errors.OptionError, match=next(iter(params))):
            KernelPerceptron(**params).fit(X, y)
    with pytest.raises(ValueError, match="one class"):
        KernelPerceptron().fit(X, np.zeros(60))


def test_probabilities_far_from_all_classes():
    """All three sigmoids underflow there."""
    rng = np.random.default_rng(0)
    points, y = rng.normal(size=(40, 2)), rng.integers(0, 3, 40)
    model = ko.estimators.KernelClassifier("log_loss", kernel="poly", degree=2, C=10.0).fit(points, y)
    far = model.predict_proba([[1e4, -1e4], [-1e5, 3e4]])
    assert np.isfinite(far).all() and far.sum(axis=1) == pytest.approx(1.0)
    assert np.array_equal(far, np.exp(model.predict_log_proba([[1e4, -1e4], [-1e5, 3e4]])))


def test_balanced_classes_count_weights_of_rows():
    rng = np.random.default_rng(1)
    points, y = rng.normal(size=(30, 2)), np.where(rng.normal(size=30) > 0.5, 1, 0)
    weights = np.where(np.arange(30) % 5 == 0, 0.0, np.where(np.arange(30) % 3 == 0, 3.0, 1.0))
    repeated = np.repeat(np.arange(30), weights.astype(int))
    model = ko.estimators.KernelClassifier("log_loss", class_weight="balanced", gamma=0.5)
    by_weight = model.fit(points, y, sample_weight=weights).decision_function(points)
    by_rows = model.fit(points[repeated], y[repeated]).decision_function(points)
    assert by_weight == pytest.approx(by_rows, abs=1e-5)


def test_a_class_of_weight_0_is_none():
    points, y = np.random.default_rng(1).normal(size=(30, 2)), np.arange(30) % 3
    model = ko.estimators.KernelClassifier(class_weight={0: 0.0, 1: 1.0, 2: 2.0}).fit(points, y)
    assert model.classes_.tolist() == [1, 2]
    with pytest.raises(ko.errors.DataError, match="at least two classes"):
        ko.estimators.KernelClassifier(class_weight={0: 0.0, 1: 1.0}).fit(points[:20], y[:20] % 2)


@pytest.mark.parametrize("unit", [1e160, 1e-170])
def test_a_width_from_values_out_of_range(unit):
    points, y = unit * np.random.default_rng(1).normal(size=(30, 2)), np.arange(30) % 2
    with pytest.raises(
        ko.errors.DataError, match=r"variance is in the range .* Change their units, or give a number as gamma"
    ):
        ko.estimators.KernelClassifier().fit(points, y)
