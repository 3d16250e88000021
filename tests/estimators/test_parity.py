"""Parameters, attributes and defaults are those of scikit-learn's machines; keywords that differ are explained."""

import re
from inspect import signature

import cvxpy as cp
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.decomposition import KernelPCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.svm import SVC, SVR, NuSVC, NuSVR, OneClassSVM

import kernelopt as ko
from kernelopt import estimators as es
from kernelopt.errors import KeywordError, OptionError

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(90, 2)), RNG.normal(size=(30, 2))
y = np.sin(2 * X[:, 0]) + X[:, 1]
MANY = np.column_stack([y, -(y**2), X[:, 0]])
FEW, TWO, THREE = y > 0.8, np.where(y > 0, "up", "down"), np.digitize(y, [-0.5, 0.5])
G, TOL = 0.4, 1e-9
ALL = [getattr(es, name) for name in es.__all__ if name != "from_problem"]


def apart(one, other):
    return np.abs(one - other).max()


@pytest.mark.parametrize(
    ("ours", "theirs", "target"),
    [
        (es.KernelClassifier(tol=TOL), SVC(tol=TOL), TWO),
        (es.KernelClassifier(class_weight="balanced", tol=TOL), SVC(class_weight="balanced", tol=TOL), FEW),
        (es.KernelRegressor("epsilon_insensitive", tol=TOL), SVR(tol=TOL), y),
        (es.KernelRegressor(gamma=None, fit_intercept=False, tol=TOL), KernelRidge(kernel="rbf"), MANY),
        (es.KernelRegressor(kernel="linear", fit_intercept=False, tol=TOL), KernelRidge(), y),
    ],
)
def test_defaults(ours, theirs, target):
    """C = 1 and the width "scale", also with weights of classes; α = 1 of squares."""
    method = "decision_function" if hasattr(theirs, "decision_function") else "predict"
    assert apart(getattr(ours.fit(X, target), method)(Z), getattr(theirs.fit(X, target), method)(Z)) < 1e-5


def test_scale_counts_weights_of_rows_and_not_of_classes():
    w = RNG.integers(1, 4, size=90)
    weighted = es.KernelClassifier(class_weight={True: 5.0}, tol=TOL).fit(X, FEW, sample_weight=w)
    repeated = es.KernelClassifier(class_weight={True: 5.0}, tol=TOL).fit(np.repeat(X, w, axis=0), np.repeat(FEW, w))
    sigma = np.sqrt(np.average((X - np.average(X, axis=0, weights=w).mean()) ** 2, axis=0, weights=w).mean())
    assert weighted.function_.kernel.sigma == pytest.approx(repeated.function_.kernel.sigma)
    assert weighted.function_.kernel.sigma == pytest.approx(sigma)
    without = es.KernelClassifier(class_weight={0: 0.0}).fit(X, THREE)
    assert np.array_equal(
        without.decision_function(Z), es.KernelClassifier().fit(X[THREE > 0], THREE[THREE > 0]).decision_function(Z)
    )


def test_alpha_of_each_target():
    alphas = [0.1, 1.0, 10.0]
    ours = es.KernelRegressor(alpha=alphas, gamma=G, fit_intercept=False, tol=1e-10).fit(X, MANY)
    theirs = KernelRidge(alpha=alphas, kernel="rbf", gamma=G).fit(X, MANY)
    assert apart(ours.predict(Z), theirs.predict(Z)) < 1e-6
    expanded = ko.Function(ours.function_.kernel, X[ours.support_], ours.dual_coef_.T)
    assert apart(expanded(Z), ours.function_(Z)) < 1e-5
    assert np.array_equal(
        es.KernelRegressor(alpha=[2.0]).fit(X, y).predict(Z), es.KernelRegressor(alpha=2.0).fit(X, y).predict(Z)
    )
    assert clone(ours).fit(X, MANY).predict(Z).shape == (30, 3)


@pytest.mark.parametrize(("alpha", "message"), [
    ([1.0, 2.0], "3, one for each column of y; got 2"), ([1.0, -1.0, 1.0], "a number ≥ 0"), ([], "got 0"),
    ("1", "got '1'"), (-1.0, "a number ≥ 0"), (np.ones((3, 1)), "a number ≥ 0"), (np.nan, "a number ≥ 0"),
])  # fmt: skip
def test_alphas_that_are_none(alpha, message):
    with pytest.raises(OptionError, match=message):
        es.KernelRegressor(alpha=alpha).fit(X, MANY)


@pytest.mark.parametrize("alpha", [[1.0, 2.0, 3.0], 0.0])
def test_intervals_need_one_norm(alpha):
    model = es.KernelRegressor(alpha=alpha, kernel="linear").fit(X, MANY)
    with pytest.raises(OptionError, match="Expected one alpha > 0"):
        model.predict_interval(Z, 0.8)


@pytest.mark.slow
def test_no_penalty():
    for kernel, target in (("linear", MANY), ("poly", y)):
        ours = es.KernelRegressor(alpha=0, kernel=kernel, gamma=1.0, fit_intercept=False).fit(X, target)
        design = X if kernel == "linear" else np.column_stack(
            [X[:, 0] ** i * X[:, 1] ** j for i in range(4) for j in range(4 - i)]
        )  # fmt: skip
        least = design @ np.linalg.lstsq(design, target, rcond=None)[0]
        assert apart(ours.predict(X), least) < 1e-8
        assert (
            apart(ko.Function(ours.function_.kernel, X[ours.support_], ours.dual_coef_.T)(X), least.reshape(90, -1))
            < 1e-8
        )
    mixed = es.KernelRegressor(alpha=[0, 1, 2], kernel="linear", fit_intercept=False).fit(X, MANY)
    assert mixed.certificate_.closes(1e-6)
    assert apart(mixed.predict(Z)[:, 0], Z @ np.linalg.lstsq(X, y, rcond=None)[0]) < 1e-6
    for k, alpha in ((1, 1.0), (2, 2.0)):
        assert apart(mixed.predict(Z)[:, k], KernelRidge(alpha=alpha).fit(X, MANY[:, k]).predict(Z)) < 1e-6
    with pytest.raises(OptionError, match="alpha to be a number > 0"):
        es.KernelClassifier(alpha=0).fit(X, TWO)


@pytest.mark.slow
def test_support_of_nu_forms():
    for ours, theirs, target in (
        (es.NuKernelClassifier(0.3, gamma=G), NuSVC(nu=0.3, gamma=G), TWO),
        (es.NuKernelRegressor(0.35, C=2.0, gamma=G), NuSVR(nu=0.35, C=2.0, gamma=G), y),
        (es.OneClass(0.31, gamma=G), OneClassSVM(nu=0.31, gamma=G), None),
    ):
        ours.set_params(tol=TOL).fit(X, target), theirs.set_params(tol=TOL).fit(X, target)
        order = np.argsort(theirs.support_)
        assert np.array_equal(ours.support_, theirs.support_[order])
        assert apart(ours.dual_coef_, theirs.dual_coef_[:, order]) < 1e-4


def test_rows_without_a_multiplier_are_no_support_at_the_default_tolerance():
    ours, theirs = es.OneClass(nu=0.3).fit(X), OneClassSVM(nu=0.3).fit(X)
    assert abs(len(ours.support_) - len(theirs.support_)) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("classes", [THREE, load_iris().target])
def test_nu_of_pairs(classes):
    points = X if len(classes) == 90 else load_iris().data
    names = np.array(["a", "b", "c"])[classes]
    ours, theirs = es.NuKernelClassifier(0.3, tol=TOL).fit(points, names), NuSVC(nu=0.3, tol=TOL).fit(points, names)
    assert apart(ours.decision_function(points), theirs.decision_function(points)) < 1e-5
    assert np.array_equal(ours.predict(points), theirs.predict(points))
    assert ours.margin_.shape == ours.intercept_.shape == (3,) and len(ours.certificate_) == 3
    assert ours.dual_coef_.shape == (3, len(ours.support_))
    expanded = ko.Function(ours.function_.kernel, points[ours.support_], ours.dual_coef_.T)
    assert apart(expanded(points) * ours.margin_, ours.function_(points)) < 1e-5
    values = ko.kernels.Gaussian(sigma=1.0)(points)
    by_values = es.NuKernelClassifier(0.3, kernel="precomputed", tol=TOL).fit(values, names)
    by_points = es.NuKernelClassifier(0.3, kernel=ko.kernels.Gaussian(sigma=1.0), tol=TOL).fit(points, names)
    assert apart(by_values.decision_function(values), by_points.decision_function(points)) < 1e-4


def test_nu_of_weighted_classes():
    rows = np.where(FEW, 3.0, 1.0)
    by_class = es.NuKernelClassifier(0.3, class_weight={True: 3.0}, gamma=G).fit(X, FEW)
    by_row = es.NuKernelClassifier(0.3, gamma=G).fit(X, FEW, sample_weight=rows)
    assert np.array_equal(by_class.decision_function(Z), by_row.decision_function(Z))
    plain = NuSVC(nu=0.3, gamma=G).fit(X, FEW).decision_function(Z)
    ignored = NuSVC(nu=0.3, gamma=G, class_weight={True: 3.0}).fit(X, FEW).decision_function(Z)
    assert np.array_equal(plain, ignored) and apart(plain, by_class.decision_function(Z)) > 0.1
    with pytest.raises(OptionError, match="smaller class"):
        es.NuKernelClassifier(0.9).fit(X, FEW)
    assert es.NuKernelClassifier(0.9, class_weight="balanced").fit(X, FEW).margin_ > 0
    with pytest.raises(OptionError, match=r"classes 0 and 1\)"):
        es.NuKernelClassifier(0.9).fit(X, np.where(np.arange(90) < 9, 0, 1 + (y > 0)))


@pytest.mark.slow
def test_log_loss_of_several_classes_is_softmax():
    theirs = LogisticRegression(tol=TOL, max_iter=10000).fit(X, THREE)
    ours = es.KernelClassifier("log_loss", kernel="linear", tol=TOL).fit(X, THREE)
    assert apart(ours.predict_proba(Z), theirs.predict_proba(Z)) < 1e-6
    assert apart(ours.predict_log_proba(Z), theirs.predict_log_proba(Z)) < 1e-5
    chosen = es.KernelClassifierCV("log_loss", alphas=[0.1, 1.0], cv=3).fit(X, THREE)
    same = es.KernelClassifierCV("multinomial", alphas=[0.1, 1.0], cv=3).fit(X, THREE)
    assert np.array_equal(chosen.scores_, same.scores_)


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["balanced", {False: 1.0, True: 4.0}])
def test_class_weight_of_a_choice(weights):
    """Classes weigh in fits, not in scores."""
    Cs, w = [0.01, 0.1, 1.0, 10.0], RNG.uniform(0.5, 2.0, size=90)
    ours = es.KernelClassifierCV(
        "log_loss", alphas=[1 / (2 * C) for C in Cs], kernel="linear", class_weight=weights, tol=TOL, cv=4
    ).fit(X, FEW, sample_weight=w)
    theirs = LogisticRegressionCV(
        Cs=Cs,
        class_weight=weights,
        tol=TOL,
        max_iter=10000,
        cv=4,
        scoring="accuracy",
        l1_ratios=(0.0,),
        use_legacy_attributes=False,
    ).fit(X, FEW, sample_weight=w)
    assert 1 / (2 * ours.alpha_) == pytest.approx(theirs.C_)
    assert apart(ours.scores_[::-1].T, np.squeeze(theirs.scores_)) < 1e-12
    assert apart(ours.predict_proba(Z), theirs.predict_proba(Z)) < 1e-6


@pytest.mark.slow
def test_class_weight_of_a_search():
    """Weights of classes are those of rows, beside the width that the search starts from."""
    model = es.KernelClassifierCV("squared_hinge", alphas=[0.1, 1.0], tune=True, cv=2, gamma=G)
    by_class = clone(model).set_params(class_weight={True: 3.0}).fit(X[:40], FEW[:40])
    by_row = clone(model).fit(X[:40], FEW[:40], sample_weight=np.where(FEW[:40], 3.0, 1.0))
    without = clone(model).fit(X[:40], FEW[:40])
    assert by_class.gamma_ == by_row.gamma_ != without.gamma_


KEYWORDS = {
    name: p.default
    for kind in (KernelPCA, Nystroem, KernelRidge, SVC, NuSVC, SVR, NuSVR, OneClassSVM)
    for name, p in signature(kind).parameters.items()
    if kind is not KernelPCA
}
OF_PCA = {name: p.default for name, p in signature(KernelPCA).parameters.items()}


@pytest.mark.parametrize("kind", ALL)
def test_keywords_of_scikit_learn(kind):
    """Each is answered by what does the same here, and an answer names only parameters that there are."""
    own = set(signature(kind).parameters)
    foreign = {n: v for n, v in (KEYWORDS | (OF_PCA if kind is es.KernelPCA else {})).items() if n not in own}
    assert {"cache_size", "probability", "kernel_params", "random_state"} <= set(foreign)
    for name, value in foreign.items():
        with pytest.raises(TypeError, match=f"Expected keywords of {kind.__name__}") as error:
            kind(**{name: value})
        answer = str(error.value).split(f"got {name}={value!r}.")[1].strip()
        assert len(answer) > 10 and "Did you mean" not in answer, name
        plain = re.sub(r"[A-Za-z.]+\([^()]*\)", "", re.sub(r"\{[^}]*\}", "", answer))
        assert set(re.findall(r"\b([a-z_A-Z]+)=", plain)) <= own, (name, answer)
        assert all(hasattr(es, other) for other in re.findall(r"\b((?:Nu)?Kernel\w+|FeatureMap|OneClass)\b", answer))


def test_keywords_that_follow_from_what_is_written():
    for call, answer in (
        (lambda: es.KernelClassifierCV(C=1.0), r"Write alphas=\[1 / \(2 \* C\)\]"),
        (lambda: es.FeatureMap(n_components=9), "Write max_rank=n"),
        (lambda: es.NuKernelClassifier(C=1.0), r"Write nu=0.5.*takes its place"),
        (lambda: es.KernelRegressor(gama=1.0), "Did you mean gamma"),
    ):
        with pytest.raises(KeywordError, match=answer):
            call()


@pytest.mark.parametrize(("model", "said", "target"), [
    (es.KernelRegressor("absolute_error"), "raise alpha", y),
    (es.KernelRegressor("absolute_error", C=1.0), "lower C", y),
    (es.KernelRegressorCV("absolute_error", alphas=[0.1, 1.0], cv=2), "take larger alphas", y),
    (es.NuKernelRegressor(0.3), "lower C", y),
    (es.OneClass(0.3), None, None),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:The fit explains")
def test_warnings_name_parameters_of_the_estimator(model, said, target):
    with pytest.warns(ConvergenceWarning, match="optimal_inaccurate") as told:
        clone(model).set_params(solve_options={"max_rank": 2}).fit(X, target)
    text = str(told[-1].message)
    assert "see certificate_" in text and '"max_rank"' in text
    assert not re.search(r"problem\.|ko\.norm|theta", text)
    for words in ("raise alpha", "lower C", "take larger alphas"):
        assert (words in text) == (words == said)


def test_units_are_told_by_the_parameter_that_was_given():
    for model, way in (
        (es.KernelRegressor("absolute_error", C=1e-3), "multiply C by"),
        (es.KernelRegressor("absolute_error", alpha=500.0), "divide alpha by"),
        (es.KernelRegressor("absolute_error", gamma=1e-4), "set alpha=0.00"),
        (es.KernelRegressorCV("absolute_error", alphas=[500.0], cv=2), "divide alphas by"),
    ):
        with pytest.warns(UserWarning, match=f"The fit explains .*{way}"):
            model.fit(X, 100 * y)


def test_no_minimum():
    """Two points of the Poisson loss without a count: f decreases without end."""
    with pytest.warns(ConvergenceWarning, match="no minimum.*You can raise alpha"):
        es.KernelRegressor("poisson", alpha=0, kernel="linear").fit([[0.0], [1.0]], [0.0, 0.0])


def test_warnings_of_stated_problems_name_solve_options():
    def stated(X, y, lam=1.0):
        theta = ko.Theta(ko.kernels.Gaussian(sigma=0.3))
        return ko.Problem(cp.Minimize(cp.norm1(y - theta(X)) + lam * ko.sum_squares(theta))), theta(X)

    with pytest.warns(ConvergenceWarning, match="Options of solve go into solve_options"):
        es.from_problem(stated)(solve_options={"max_rank": 2}).fit(X, y)


def test_a_memory_limit_is_an_option():
    with pytest.raises(MemoryError) as error:
        es.KernelClassifier(solve_options={"memory_limit": 1000.0}).fit(X, TWO)
    assert any("solve_options" in note for note in error.value.__notes__)
