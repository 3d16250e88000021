"""Estimators of data frames of several types: fits, pipelines and searches as those of explicit kernel matrices."""

import cvxpy as cp
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import kernelopt as ko
from kernelopt import estimators
from kernelopt.errors import DataError, DataTypeError

pd = pytest.importorskip("pandas")
ks = ko.kernels
RNG = np.random.default_rng(0)
N = 36
COLUMNS = {
    "g": RNG.choice(["x", "y", "z"], N).tolist(),
    "a": RNG.normal(size=N).tolist(),
    "n": RNG.integers(0, 4, N).tolist(),
    "s": ["".join(RNG.choice(list("ab"), 5)) for _ in range(N)],
}
ORDER = ["s", "n", "g", "a"]
KERNEL = ks.Gaussian(sigma=1.0).on(["a", "n"]) + ks.Spectrum(n=2).on("s") + ks.Categorical().on("g")
Y = RNG.normal(size=N)
LABELS = np.where(np.median(Y) < Y, "more", "less")


def gram(sigma=1.0):
    numbers = np.array([COLUMNS["a"], COLUMNS["n"]], dtype=float).T
    F = np.array([[g == level for level in "xyz"] for g in COLUMNS["g"]], dtype=float)
    return ks.Gaussian(sigma=sigma)(numbers) + ks.Spectrum(n=2)(COLUMNS["s"]) + F @ F.T


def ridge(K, y, alpha, train, test):
    return K[np.ix_(test, train)] @ np.linalg.solve(K[np.ix_(train, train)] + alpha * np.eye(len(train)), y[train])


@pytest.fixture(params=["pandas", "polars"])
def frame(request):
    return pd.DataFrame if request.param == "pandas" else pytest.importorskip("polars").DataFrame


def regressor(**options):
    return estimators.KernelRegressor(kernel=KERNEL, alpha=0.5, fit_intercept=False, tol=1e-10, **options)


def test_regression(frame):
    everything = np.arange(N)
    model = regressor().fit(frame(COLUMNS), Y)
    truth = ridge(gram(), Y, 0.5, everything, everything)
    for X in (frame(COLUMNS), frame(COLUMNS)[ORDER], frame(COLUMNS | {"more": [0.0] * N})):
        assert np.allclose(model.predict(X), truth, atol=1e-7)
    assert model.n_features_in_ == 4 and list(model.feature_names_in_) == list(COLUMNS)
    assert model.function_.kernel == KERNEL and np.isfinite(model.score(frame(COLUMNS), Y))
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
    of_rows = regressor().fit(rows, Y)
    assert np.allclose(of_rows.predict(frame(COLUMNS)), truth, atol=1e-7) and not hasattr(of_rows, "n_features_in_")


def test_weights_and_repeated_rows(frame):
    """A weight of 2 is a row that stands twice, also where other columns differ."""
    twice = {name: [*column, *column[:5]] for name, column in COLUMNS.items()} | {"more": list(range(N + 5))}
    weights = np.where(np.arange(N) < 5, 2.0, 1.0)
    one = regressor().fit(frame(COLUMNS), Y, sample_weight=weights)
    other = regressor().fit(frame(twice), np.concatenate([Y, Y[:5]]))
    assert np.allclose(one.predict(frame(COLUMNS)), other.predict(frame(COLUMNS)), atol=1e-7)
    assert len(other.support_) <= N


def test_what_is_refused(frame):
    model = regressor().fit(frame(COLUMNS), Y)
    short = frame({name: COLUMNS[name] for name in ("a", "n", "g")})
    for call in (model.predict, lambda X: regressor().fit(X, Y)):
        with pytest.raises(DataError, match='DataFrame with column "s"; got one with columns "a", "n", "g"'):
            call(short)
        with pytest.raises(DataTypeError, match="got an array of shape"):
            call(np.zeros((N, 4)))
    with pytest.raises(DataError, match="target y is None"):
        regressor().fit(frame(COLUMNS), None)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        regressor().fit(frame(COLUMNS), Y[:-1])
    missing = frame(COLUMNS | {"a": [None, *COLUMNS["a"][1:]]})
    with pytest.raises(DataError, match="1 NaN or missing, in column 'a', first in row 0"):
        model.predict(missing)


def test_folds_of_scikit_learn(frame):
    X, cv = frame(COLUMNS), KFold(4)
    truth = np.concatenate([ridge(gram(), Y, 0.5, train, test) for train, test in cv.split(Y)])
    assert np.allclose(cross_val_predict(regressor(), X, Y, cv=cv), truth, atol=1e-6)
    scores = cross_validate(regressor(), X, Y, cv=cv, scoring="neg_mean_squared_error")["test_score"]
    expected = [-np.mean((truth[test] - Y[test]) ** 2) for _, test in cv.split(Y)]
    assert np.allclose(scores, expected, rtol=1e-5)


def test_a_grid_of_kernel_parameters(frame):
    grid = {"alpha": [0.1, 1.0], "kernel__k1__k1__sigma": [0.5, 2.0]}
    cv = KFold(3)
    search = GridSearchCV(regressor(), grid, cv=cv, scoring="neg_mean_squared_error").fit(frame(COLUMNS), Y)
    errors = {}
    for alpha in grid["alpha"]:
        for sigma in grid["kernel__k1__k1__sigma"]:
            left_out = [Y[test] - ridge(gram(sigma), Y, alpha, train, test) for train, test in cv.split(Y)]
            errors[alpha, sigma] = np.mean([np.mean(each**2) for each in left_out])
    best = min(errors, key=errors.get)
    assert tuple(search.best_params_.values()) == best
    assert np.isclose(-search.best_score_, errors[best], rtol=1e-5)


def test_pipelines():
    X = pd.DataFrame(COLUMNS)[["a", "n"]]
    kernel = ks.Gaussian(sigma=1.0).on("n") * ks.Linear().on("a") + ks.Constant(1.0)
    model = make_pipeline(
        StandardScaler().set_output(transform="pandas"), estimators.KernelRegressor(kernel=kernel, alpha=0.5)
    )
    scaled = StandardScaler().fit_transform(X)
    by_number = ks.Gaussian(sigma=1.0).on([1]) * ks.Linear().on([0]) + ks.Constant(1.0)
    plain = estimators.KernelRegressor(kernel=by_number, alpha=0.5).fit(scaled, Y)
    assert np.allclose(model.fit(X, Y).predict(X), plain.predict(scaled), atol=1e-6)
    reordered = make_pipeline(FunctionTransformer(lambda F: F[ORDER]), regressor())
    whole = TransformedTargetRegressor(reordered, transformer=StandardScaler(with_mean=False))
    assert np.allclose(whole.fit(pd.DataFrame(COLUMNS), Y).predict(pd.DataFrame(COLUMNS)),
                       regressor().fit(pd.DataFrame(COLUMNS), Y).predict(pd.DataFrame(COLUMNS)), atol=1e-6)  # fmt: skip


OTHERS = {
    "KernelRegressorCV": (lambda: estimators.KernelRegressorCV(kernel=KERNEL, alphas=[0.1, 1.0], cv=3), Y),
    "KernelQuantileRegressor": (lambda: estimators.KernelQuantileRegressor(kernel=KERNEL), Y),
    "NuKernelRegressor": (lambda: estimators.NuKernelRegressor(kernel=KERNEL), Y),
    "KernelClassifier": (lambda: estimators.KernelClassifier(kernel=KERNEL), LABELS),
    "KernelClassifierCV": (lambda: estimators.KernelClassifierCV(kernel=KERNEL, alphas=[0.1, 1.0], cv=3), LABELS),
    "NuKernelClassifier": (lambda: estimators.NuKernelClassifier(kernel=KERNEL, nu=0.3), LABELS),
    "KernelPerceptron": (lambda: estimators.KernelPerceptron(kernel=KERNEL), LABELS),
    "OneClass": (lambda: estimators.OneClass(kernel=KERNEL), None),
    "KernelPCA": (lambda: estimators.KernelPCA(kernel=KERNEL, n_components=2), None),
    "FeatureMap": (lambda: estimators.FeatureMap(KERNEL), None),
}  # fmt: skip


def answers(model, points):
    name = next(n for n in ("decision_function", "transform", "predict") if hasattr(model, n))
    return getattr(model, name)(points)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_every_estimator_finds_columns_by_name(name, frame):
    """As of a kernel of row numbers, of which the explicit matrix gives the values."""
    make, y = OTHERS[name]
    model = make().fit(frame(COLUMNS), y)
    numbered = ks.FromFunction(lambda i, j: float(GRAM[int(i), int(j)]), psd=True)
    plain = clone(make()).set_params(kernel=numbered).fit(list(range(N)), y)
    found = answers(model, frame(COLUMNS)[ORDER])
    expected = answers(plain, list(range(N)))
    if name == "KernelPCA":  # up to signs
        found, expected = np.abs(found), np.abs(expected)
    if name == "FeatureMap":  # up to a rotation
        found, expected = found @ found.T, expected @ expected.T
    assert np.allclose(found, expected, atol=1e-4)
    assert list(model.feature_names_in_) == list(COLUMNS) and model.n_features_in_ == 4


GRAM = gram()


def test_intervals(frame):
    model = regressor().fit(frame(COLUMNS), Y)
    band = model.predict_interval(frame(COLUMNS)[ORDER], level=0.8)
    assert band.covers(Y).mean() >= 0.8


# ---------------------------------------------------------------- tasks and gaps


def test_tasks_in_columns_of_an_array():
    """The intrinsic coregionalization model, with a label per row, as one kernel matrix S ∘ κ."""
    X = np.column_stack([RNG.normal(size=(N, 2)), np.arange(N) % 3])
    S = np.array([[1.0, 0.5, 0.2], [0.5, 2.0, -0.3], [0.2, -0.3, 1.5]])
    kernel = ks.Categorical(levels=[0, 1, 2], covariance=S).on([2]) * ks.Gaussian(sigma=1.0).on([0, 1])
    tasks = X[:, 2].astype(int)
    K = S[np.ix_(tasks, tasks)] * ks.Gaussian(sigma=1.0)(X[:, :2])
    model = estimators.KernelRegressor(kernel=kernel, alpha=0.5, fit_intercept=False, tol=1e-10).fit(X, Y)
    assert np.allclose(model.predict(X), K @ np.linalg.solve(K + 0.5 * np.eye(N), Y), atol=1e-7)
    with pytest.raises(DataError, match="expects the levels 0, 1, 2; got 3.0"):
        model.predict(X + np.array([0, 0, 1]))


def test_arrays_with_gaps():
    X = RNG.normal(size=(N, 2))
    X[::5, 0] = np.nan
    kernel = ks.Gaussian(sigma=1.0).with_missing("level").on([0]) + ks.Linear().on([1])
    K, missing = ks.Gaussian(sigma=1.0)(np.nan_to_num(X[:, :1])), np.isnan(X[:, 0])
    K = K * np.equal.outer(missing, missing) + np.outer(X[:, 1], X[:, 1])
    model = estimators.KernelRegressor(kernel=kernel, alpha=0.5, fit_intercept=False, tol=1e-10)
    truth = K @ np.linalg.solve(K + 0.5 * np.eye(N), Y)
    for A in (X, pd.DataFrame(X, columns=["u", "v"])):
        assert np.allclose(model.fit(A, Y).predict(A), truth, atol=1e-7)
    twice = model.fit(np.vstack([X, X]), np.concatenate([Y, Y]))  # rows with NaN are merged
    assert len(twice.support_) <= N
    assert model.__sklearn_tags__().input_tags.allow_nan and model.n_features_in_ == 2
    assert not estimators.KernelRegressor(kernel=ks.Linear()).__sklearn_tags__().input_tags.allow_nan
    X[3, 1] = np.nan
    for whole in (kernel, ks.Linear()):
        with pytest.raises(ValueError, match="column 1, first in row 3|contains NaN"):
            estimators.KernelRegressor(kernel=whole).fit(X, Y)
    mapped = estimators.FeatureMap(ks.Gaussian(sigma=1.0).with_missing("level")).fit_transform(X)
    assert np.allclose(mapped @ mapped.T, ks.Gaussian(sigma=1.0).with_missing("level")(X), atol=1e-7)


# ---------------------------------------------------------------- from_problem


def two_parts(X, y, lam=0.5):
    numbers, labels = ko.Theta(ks.Gaussian(sigma=1.0).on("a")), ko.Theta(ks.Categorical().on("g"))
    f = numbers(X) + labels(X)
    penalty = ko.sum_squares(numbers) + ko.sum_squares(labels)
    return ko.Problem(cp.Minimize(cp.sum_squares(f - y) + lam * penalty)), f


def test_a_stated_problem_gets_the_frame(frame):
    model = estimators.from_problem(two_parts)(solve_options={"tol": 1e-10}).fit(frame(COLUMNS), Y)
    K = ks.Gaussian(sigma=1.0)(np.array(COLUMNS["a"])[:, None]) + np.equal.outer(*[np.array(COLUMNS["g"])] * 2)
    truth = K @ np.linalg.solve(K + 0.5 * np.eye(N), Y)
    assert np.allclose(model.predict(frame(COLUMNS)[ORDER]), truth, atol=1e-6)
    assert list(model.feature_names_in_) == list(COLUMNS)
    folds = cross_val_predict(estimators.from_problem(two_parts)(), frame(COLUMNS), Y, cv=3)
    assert folds.shape == (N,)
    with pytest.raises(DataError, match="target y is None"):
        clone(model).fit(frame(COLUMNS), None)
