"""Strings and other objects in a list, a vector, or the one column of a table: the same points for every estimator."""

import cvxpy as cp
import numpy as np
import pytest
from sklearn.model_selection import cross_val_predict

import kernelopt as ko
from kernelopt import estimators
from kernelopt.errors import DataTypeError

pd = pytest.importorskip("pandas")
RNG = np.random.default_rng(0)
WORDS = ["".join(RNG.choice(list("abc"), n)) for n in RNG.integers(2, 7, 24)]
NEW = ["abcab", "ccba", "bb"]
Y = np.array([w.count("a") - 0.5 * w.count("b") for w in WORDS])
LABELS = np.where(np.median(Y) < Y, "more", "less")
SPECTRUM = ko.kernels.Spectrum(2) + ko.kernels.PositionMatch()


def common_letters(a, b):
    return float(len(set(a) & set(b)))


class Frame:
    """As frames of polars, which have no `ndim`, and give their columns when they are iterated over."""

    def __init__(self, words):
        self.words = words
        self.columns = ["w"]
        self.shape = (len(words), 1)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.words, dtype=object)[:, None]

    def __len__(self):
        return len(self.words)

    def to_numpy(self):
        return self.__array__()

    def __iter__(self):
        return iter([self.words])


def of_arrow(words):
    return pytest.importorskip("pyarrow").table({"w": words})


TABLES = {
    "frame": lambda words: pd.DataFrame({"w": words}, index=np.arange(len(words))[::-1]),
    "frame of objects": lambda words: pd.DataFrame({0: np.array(words, dtype=object)}),
    "categories": lambda words: pd.DataFrame({"w": pd.Categorical(words)}),
    "column of objects": lambda words: np.array(words, dtype=object)[:, None],
    "column of strings": lambda words: np.array(words)[:, None],
    "vector": lambda words: np.array(words),
    "series": lambda words: pd.Series(words),
    "arrow": of_arrow,
    "without ndim": Frame,
}


def stated(kind):
    def build(X, y, lam=0.5):
        theta = ko.Theta(SPECTRUM)
        loss = cp.sum_squares(theta(X) - y)
        return ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta))), theta(X)

    return estimators.from_problem(build, kind)


MODELS = {
    "KernelRegressor": (lambda k: estimators.KernelRegressor(kernel=k), Y),
    "KernelRegressorCV": (lambda k: estimators.KernelRegressorCV(kernel=k, alphas=[0.1, 1.0], cv=3), Y),
    "KernelQuantileRegressor": (lambda k: estimators.KernelQuantileRegressor(kernel=k), Y),
    "NuKernelRegressor": (lambda k: estimators.NuKernelRegressor(kernel=k), Y),
    "KernelClassifier": (lambda k: estimators.KernelClassifier(kernel=k), LABELS),
    "KernelClassifierCV": (lambda k: estimators.KernelClassifierCV(kernel=k, alphas=[0.1, 1.0], cv=3), LABELS),
    "NuKernelClassifier": (lambda k: estimators.NuKernelClassifier(kernel=k, nu=0.3), LABELS),
    "KernelPerceptron": (lambda k: estimators.KernelPerceptron(kernel=k), LABELS),
    "OneClass": (lambda k: estimators.OneClass(kernel=k), None),
    "KernelPCA": (lambda k: estimators.KernelPCA(kernel=k, n_components=2), None),
    "FeatureMap": (lambda k: estimators.FeatureMap(k), None),
    "a stated regressor": (lambda k: stated("regressor")(), Y),
    "a stated classifier": (lambda k: stated("classifier")(), LABELS),
}


def answers(model, points):
    for name in ("decision_function", "transform", "predict"):
        if hasattr(model, name):
            return getattr(model, name)(points)
    raise AssertionError(model)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_estimator_takes_one_column(name):
    make, y = MODELS[name]
    expected = answers(make(SPECTRUM).fit(WORDS, y), NEW)
    for form, table in TABLES.items():
        model = make(SPECTRUM).fit(table(WORDS), y)
        assert np.array_equal(answers(model, table(NEW)), expected), form
        assert np.array_equal(answers(model, NEW), expected), form


@pytest.mark.slow
def test_predictions_are_those_of_the_closed_form():
    kernel = ko.kernels.FromFunction(common_letters, psd=True)
    Q = np.array([[common_letters(a, b) for b in WORDS] for a in WORDS])
    q = np.array([[common_letters(a, b) for b in WORDS] for a in NEW])
    truth = q @ np.linalg.solve(Q + 0.5 * np.eye(len(Q)), Y)
    for table in TABLES.values():
        model = estimators.KernelRegressor(kernel=kernel, alpha=0.5, fit_intercept=False).fit(table(WORDS), Y)
        assert model.predict(table(NEW)) == pytest.approx(truth, abs=1e-6)


@pytest.mark.parametrize("name", [n for n in MODELS if "stated" not in n])
def test_several_columns_are_refused_with_the_remedy(name):
    make, y = MODELS[name]
    two = {"a": WORDS, "b": WORDS}
    for table in (pd.DataFrame(two), np.array([WORDS, WORDS]).T, of_arrow(WORDS).append_column("b", [WORDS])):
        with pytest.raises(DataTypeError, match=r"2 columns. Choose one: X\[:, 0\] or frame\[name\]"):
            make(SPECTRUM).fit(table, y)


def test_a_stated_problem_of_several_columns():
    with pytest.raises(DataTypeError, match="2 columns. Choose one"):
        stated("regressor")().fit(pd.DataFrame({"a": WORDS, "b": WORDS}), Y)


def test_other_entries_are_refused():
    missing = [*WORDS[:-1], None]
    for table in (TABLES["frame"](missing), TABLES["column of objects"](missing)):
        with pytest.raises(DataTypeError, match="expects a list of strings; got"):
            estimators.KernelRegressor(kernel=SPECTRUM).fit(table, Y)


def test_a_matrix_of_numbers_in_objects_stays_a_matrix():
    numbers = np.array([[0.0], [1.0], [2.5]], dtype=object)
    model = estimators.KernelRegressor(kernel=ko.kernels.Gaussian(sigma=1.0)).fit(numbers, [0.0, 1.0, 2.0])
    plain = estimators.KernelRegressor(kernel=ko.kernels.Gaussian(sigma=1.0)).fit(
        numbers.astype(float), [0.0, 1.0, 2.0]
    )
    assert np.array_equal(model.predict(numbers), plain.predict(numbers.astype(float)))


@pytest.mark.slow
def test_folds_of_scikit_learn():
    model = estimators.KernelRegressor(kernel=SPECTRUM, alpha=0.5)
    expected = cross_val_predict(model, np.array(WORDS, dtype=object), Y, cv=3)
    assert np.array_equal(cross_val_predict(model, TABLES["frame"](WORDS), Y, cv=3), expected)
    assert np.array_equal(cross_val_predict(model, TABLES["column of objects"](WORDS), Y, cv=3), expected)


def test_theta_takes_an_arrow_table():
    assert np.array_equal(SPECTRUM(of_arrow(WORDS)), SPECTRUM(WORDS))
