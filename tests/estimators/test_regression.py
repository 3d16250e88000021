"""KernelRegressor and KernelQuantileRegressor beside scikit-learn's, and beside the problems that they state."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko

pytest.importorskip("sklearn")
from sklearn.gaussian_process.kernels import RBF
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import pairwise
from sklearn.svm import SVC, SVR

KernelRegressor, KernelQuantileRegressor = ko.estimators.KernelRegressor, ko.estimators.KernelQuantileRegressor
RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(60, 3)), RNG.normal(size=(20, 3))
y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * RNG.normal(size=60)
W = RNG.integers(0, 4, size=60)
GAUSSIAN = ko.kernels.Gaussian(sigma=1.5)


def test_kernel_ridge():
    ours = KernelRegressor(alpha=0.3, fit_intercept=False, gamma=0.2).fit(X, y)
    theirs = KernelRidge(alpha=0.3, kernel="rbf", gamma=0.2).fit(X, y)
    assert np.abs(ours.predict(Z) - theirs.predict(Z)).max() < 1e-6
    assert ours.intercept_ == 0


def test_several_outputs():
    Y = np.column_stack([y, y**2])
    ours = KernelRegressor(alpha=0.3, fit_intercept=False, gamma=0.2).fit(X, Y, sample_weight=W)
    theirs = KernelRidge(alpha=0.3, kernel="rbf", gamma=0.2).fit(X, Y, sample_weight=W)
    assert ours.predict(Z).shape == (20, 2)
    assert np.abs(ours.predict(Z) - theirs.predict(Z)).max() < 1e-6


def test_svr_of_default_parameters():
    """C = 1/(2α), and gamma="scale" is theirs."""
    ours = KernelRegressor("epsilon_insensitive", alpha=0.5, epsilon=0.1, tol=1e-8).fit(X, y)
    theirs = SVR(C=1.0, epsilon=0.1, tol=1e-8).fit(X, y)
    assert np.abs(ours.predict(Z) - theirs.predict(Z)).max() < 1e-4


@pytest.mark.parametrize(
    ("params", "kernel"),
    [
        ({"kernel": "linear"}, pairwise.linear_kernel),
        ({"kernel": "poly", "degree": 2, "coef0": 0.5, "gamma": 0.3}, None),
        ({"kernel": "polynomial", "gamma": "auto"}, lambda A, B: pairwise.polynomial_kernel(A, B)),
        ({"kernel": "rbf", "gamma": 0.3}, lambda A, B: pairwise.rbf_kernel(A, B, gamma=0.3)),
        ({"kernel": "laplacian", "gamma": 0.3}, lambda A, B: pairwise.laplacian_kernel(A, B, gamma=0.3)),
        ({"kernel": "cosine"}, pairwise.cosine_similarity),
        ({"kernel": RBF(1.5)}, lambda A, B: pairwise.rbf_kernel(A, B, gamma=0.5 / 1.5**2)),
        ({"kernel": lambda a, b: float(a @ b)}, pairwise.linear_kernel),
        ({"kernel": ko.kernels.FromFunction(pairwise.linear_kernel, on_lists=True)}, pairwise.linear_kernel),
    ],
)
def test_kernels(params, kernel):
    kernel = kernel or (lambda A, B: pairwise.polynomial_kernel(A, B, degree=2, coef0=0.5, gamma=0.3))
    ours = KernelRegressor(alpha=0.5, fit_intercept=False, tol=1e-10, **params).fit(X, y)
    expected = kernel(Z, X) @ np.linalg.solve(kernel(X, X) + 0.5 * np.eye(60), y)
    assert np.abs(ours.predict(Z) - expected).max() < 1e-6


@pytest.mark.slow
def test_precomputed():
    plain = KernelRegressor("huber", delta=0.3, kernel=GAUSSIAN).fit(X, y, sample_weight=W)
    model = KernelRegressor("huber", delta=0.3, kernel="precomputed").fit(GAUSSIAN(X), y, sample_weight=W)
    assert np.abs(model.predict(GAUSSIAN(Z, X)) - plain.predict(Z)).max() < 1e-5
    assert model.function_ is None and W[model.pivots_].min() > 0
    assert model.__sklearn_tags__().input_tags.pairwise and not plain.__sklearn_tags__().input_tags.pairwise
    with pytest.raises(ValueError, match="square kernel matrix"):
        model.fit(GAUSSIAN(X, Z), y)
    single = KernelRegressor(kernel="precomputed").fit(GAUSSIAN(X).astype(np.float32), y)
    assert single.predict(GAUSSIAN(Z, X)).shape == (20,)
    with pytest.raises(ko.errors.NotPSDError) as error:
        model.fit(-GAUSSIAN(X), y)
    assert "solve_options" in error.value.__notes__[0]
    clipped = KernelRegressor(kernel="precomputed", solve_options={"indefinite": "clip"}).fit(-GAUSSIAN(X), y)
    assert np.allclose(clipped.predict(GAUSSIAN(Z, X)), y.mean(), atol=1e-6)


@pytest.mark.later
@pytest.mark.filterwarnings("ignore:.*is not used by the loss")
@pytest.mark.parametrize(
    ("loss", "stated"),
    [
        ("squared_error", lambda f: cp.square(y - f)),
        ("absolute_error", lambda f: cp.abs(y - f)),
        ("huber", lambda f: cp.huber(y - f, 0.5)),
        ("epsilon_insensitive", lambda f: cp.pos(cp.abs(y - f) - 0.2)),
        ("quantile", lambda f: cp.maximum(0.7 * (y - f), -0.3 * (y - f))),
        ("pinball", lambda f: cp.maximum(0.7 * (y - f), -0.3 * (y - f))),
        (lambda y, f: cp.square(cp.pos(y - f)) + cp.abs(y - f), lambda f: cp.square(cp.pos(y - f)) + cp.abs(y - f)),
    ],
)
def test_the_objective_is_the_one_that_is_documented(loss, stated):
    model = KernelRegressor(loss, alpha=0.2, kernel=GAUSSIAN, delta=0.5, epsilon=0.2, quantile=0.7)
    model.fit(X, y, sample_weight=W)
    theta, b = ko.Theta(GAUSSIAN), cp.Variable()
    objective = W @ stated(theta(X) + b) + 0.2 * ko.sum_squares(theta)
    theta.value, b.value = model.function_, model.intercept_
    attained = objective.value
    best = ko.Problem(cp.Minimize(objective)).solve()
    assert abs(attained - best) < 2e-6 * attained
    assert model.certificate_.lower <= best * (1 + 1e-6) and best <= model.certificate_.upper * (1 + 1e-6)


@pytest.mark.slow
def test_smooth_losses():
    smooth = ko.SmoothLoss(
        lambda u, y: np.logaddexp(u - y, y - u), lambda u, y: np.tanh(u - y), lambda u, y: 1 - np.tanh(u - y) ** 2
    )
    one = KernelRegressor(smooth, kernel=GAUSSIAN).fit(X, y).predict(Z)
    other = KernelRegressor(lambda y, f: smooth, kernel=GAUSSIAN).fit(X, y).predict(Z)
    third = KernelRegressor(lambda y, f: smooth(f, y), kernel=GAUSSIAN).fit(X, y).predict(Z)
    assert np.array_equal(one, other) and np.array_equal(one, third)
    cosh = KernelRegressor(lambda y, f: cp.logistic(2 * (f - y)) - (f - y), kernel=GAUSSIAN).fit(X, y).predict(Z)
    assert np.abs(one - cosh).max() < 1e-4


def test_counts():
    counts = RNG.poisson(np.exp(X[:, 0]))
    model = KernelRegressor("poisson", kernel="linear", alpha=1e-6).fit(X, counts)
    assert np.abs(model.coefficients_ @ X[model.pivots_] - [1, 0, 0]).max() < 0.3
    assert np.allclose(np.log(model.predict(Z)), model.function_(Z) + model.intercept_)
    with pytest.raises(ValueError, match="counts y ≥ 0; got -1"):
        model.fit(X, counts - 1 - counts.min())


@pytest.mark.slow
def test_weights_repeat_and_leave_out_rows():
    repeated, targets = np.repeat(X, W, axis=0), np.repeat(y, W)
    order = RNG.permutation(len(targets))
    for loss in ("squared_error", "absolute_error"):
        weighted = KernelRegressor(loss).fit(X, y, sample_weight=W)
        again = KernelRegressor(loss).fit(repeated[order], targets[order])
        assert np.array_equal(weighted.predict(Z), again.predict(Z))
    assert np.array_equal(X[weighted.pivots_], weighted.function_.centers)
    ties = X.round(0)  # where the first column does not tell rows apart
    weighted = KernelRegressor().fit(ties, y, sample_weight=W).predict(Z)
    repeated = np.repeat(ties, W, axis=0)
    assert np.array_equal(weighted, KernelRegressor().fit(repeated[order], targets[order]).predict(Z))
    constant = KernelRegressor().fit(X, y, sample_weight=2.0).predict(Z)
    assert np.abs(constant - KernelRegressor(alpha=0.5).fit(X, y).predict(Z)).max() < 1e-6


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.r_[-1.0, np.ones(59)], "sample_weight ≥ 0; got -1 at 0"),
        (np.ones((60, 1)), r"shape \(60,\)"),
        (np.ones(59), r"shape \(60,\)"),
        (np.zeros(60), "all weights are zero"),
        (np.full(60, np.nan), "NaN"),
    ],
)
def test_weights_that_cannot_be_used(weights, message):
    for model in (KernelRegressor(), KernelQuantileRegressor()):
        with pytest.raises(ValueError, match=message):
            model.fit(X, y, sample_weight=weights)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"loss": "hinge"}, "loss to be one of squared_error, .*got 'hinge'"),
        ({"loss": 3}, "got 3"),
        ({"loss": lambda y, f: cp.norm(y - f)}, r"an entry for each row, shape \(60,\); got shape \(\)"),
        ({"loss": lambda y, f: 1.0}, "got float"),
        ({"alpha": -0.1}, "alpha to be a number ≥ 0, .*got -0.1"),
        ({"alpha": "1"}, "got '1'"),
        ({"kernel": "gauss"}, "kernel to be one of linear, .*got 'gauss'"),
        ({"kernel": 3}, "Expected a kernel"),
        ({"kernel": ko.kernels.Precomputed(np.eye(60))}, "row numbers"),
        ({"gamma": -1.0}, "gamma to be"),
        ({"gamma": "mean"}, "gamma to be"),
        ({"loss": "huber", "delta": 0.0}, "M to be a number > 0"),
        ({"loss": "quantile", "quantile": 1.0}, "tau to be"),
        ({"tol": 0}, "tol"),
        ({"solve_options": {"rank_tol": -1}}, "rank_tol"),
        ({"solve_options": 3}, "solve_options to be a dict"),
    ],
)
def test_parameters_that_cannot_be_used(params, message):
    with pytest.raises((ValueError, TypeError), match=message):
        KernelRegressor(**params).fit(X, y)


@pytest.mark.parametrize(
    ("build", "instead"),
    [
        (lambda: KernelRegressor("pinball", tau=0.9), "quantile=0.9"),
        (lambda: KernelRegressor("huber", M=0.5), "delta=0.5"),
        (lambda: KernelQuantileRegressor(quantile=0.9), "quantiles=0.9"),
        (lambda: KernelQuantileRegressor(tau=[0.1, 0.9]), "quantiles=[0.1, 0.9]"),
    ],
)
def test_parameters_that_have_another_name_here(build, instead):
    with pytest.raises(TypeError, match=r"Expected keywords of \w+, .*; got ") as refusal:
        build()
    assert str(refusal.value).endswith(f" Write {instead}.")


@pytest.mark.slow
def test_it_warns_where_the_answer_is_not_optimal():
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415

    with pytest.warns(ConvergenceWarning, match="KernelRegressor is optimal_inaccurate.*max_rank"):
        model = KernelRegressor("absolute_error", alpha=0.01, solve_options={"max_rank": 3}).fit(X, y)
    assert model.certificate_.relative_gap > 1e-6 and len(model.pivots_) == 3
    with pytest.raises(ko.errors.SolverError, match="unbounded"):
        KernelRegressor(lambda y, f: f, alpha=1.0).fit(X, y)


@pytest.mark.slow
def test_a_function_of_two_points_takes_rows_of_any_table():
    model = KernelRegressor(kernel=lambda a, b: float(a @ b), alpha=0.5)
    expected = model.fit(X, y).predict(Z)
    assert np.array_equal(model.fit(X.tolist(), y).predict(Z.tolist()), expected)
    pd = pytest.importorskip("pandas")
    assert np.array_equal(model.fit(pd.DataFrame(X), pd.Series(y)).predict(pd.DataFrame(Z)), expected)
    with pytest.raises(ValueError, match="Complex data"):
        model.fit(X * 1j, y)
    weighted = model.fit(X, y, sample_weight=W).predict(Z)
    assert np.array_equal(model.fit(np.repeat(X, W, axis=0), np.repeat(y, W)).predict(Z), weighted)


@pytest.mark.slow
def test_points_of_any_kind():
    words = ["aab", "abab", "bbb", "ba", "aaaa", "bab"]
    target = [w.count("a") for w in words]
    model = KernelRegressor(kernel=ko.kernels.Spectrum(1), alpha=1e-6).fit(words, target)
    assert np.abs(model.predict(["aaa", "b"]) - [3, 0]).max() < 1e-3
    assert model.function_.centers.dtype == object
    series = pytest.importorskip("pandas").Series(words, index=list("uvwxyz"))
    assert np.array_equal(model.fit(series, target).predict(series), model.fit(words, target).predict(words))
    sets = [set(w) for w in words]
    common = KernelRegressor(kernel=ko.kernels.FromFunction(lambda a, b: len(a & b), psd=True), alpha=0.1)
    assert common.fit(sets, target, sample_weight=[1, 1, 0, 1, 1, 1]).predict([{"a"}, {"b"}]).shape == (2,)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(words, target[:-1])


@pytest.mark.later
@pytest.mark.parametrize("levels", [[0.1, 0.5, 0.9], (0.25, 0.75), [0.5]])
def test_quantiles_do_not_cross(levels):
    model = KernelQuantileRegressor(levels, alpha=1e-2, kernel=ko.kernels.Gaussian(sigma=2.0)).fit(X, y)
    fitted = model.predict(X)
    assert fitted.shape == (60, len(levels)) and np.diff(fitted, axis=1).min(initial=0.0) > -1e-6
    assert model.certificate_.relative_gap < 1e-6
    free = KernelQuantileRegressor(levels, alpha=1e-2, kernel=model.kernel, non_crossing=False).fit(X, y)
    if len(levels) == 3:
        assert np.diff(free.predict(X), axis=1).min() < -1e-4
    assert free.certificate_.lower <= model.certificate_.upper


@pytest.mark.later
def test_a_quantile_alone():
    one = KernelQuantileRegressor(0.8, alpha=0.1).fit(X, y, sample_weight=W)
    other = KernelRegressor("quantile", quantile=0.8, alpha=0.1).fit(X, y, sample_weight=W)
    assert one.predict(Z).shape == (20,) and np.array_equal(one.predict(Z), other.predict(Z))
    below, up_to = ((W * (y <= one.predict(X) + shift)).sum() / W.sum() for shift in (-1e-4, 1e-4))
    assert 0 < below <= 0.8 <= up_to
    assert 0 < one.score(X, y) < 1
    by_hand = KernelQuantileRegressor([0.8], alpha=0.1).fit(X, y, sample_weight=W).score(X, y)
    assert abs(by_hand - one.score(X, y)) < 1e-4


@pytest.mark.parametrize("levels", [0.0, [0.5, 0.5], [0.9, 0.1], [], [[0.1, 0.5]], "0.5", [0.1, 1.5]])
def test_levels_that_cannot_be_used(levels):
    with pytest.raises(ko.errors.OptionError, match="levels? between 0 and 1"):
        KernelQuantileRegressor(levels).fit(X, y)


@pytest.mark.parametrize(("n", "tau"), [(10, 0.2), (40, 0.1), (40, 0.9), (100, 0.1)])
def test_levels_whose_share_of_rows_is_an_integer(n, tau):
    """All multipliers are at ends of their intervals, and their sum is 0 but for rounding."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, size=(n, 1))
    y = np.sin(X[:, 0]) + rng.normal(size=n)
    model = ko.estimators.KernelRegressor("quantile", quantile=tau, alpha=1e4).fit(X, y)
    assert model.certificate_.relative_gap < 1e-6
    # The intercept is the midpoint of two residuals.
    r = np.sort(y - model.predict(X))
    below = round(tau * n)
    assert np.isclose(r[below - 1], -r[below], rtol=1e-6) and r[below] > 1e-4


@pytest.mark.parametrize("options", [None, {"solver": "INTERIOR_POINT"}, {"solver": "CLARABEL"}, {"max_rank": 3}])
def test_an_intercept_that_is_an_interval_is_its_midpoint(options):
    """As libsvm's; all multipliers are at their bounds where C is small."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 6, size=(40, 1))
    y = np.sin(x[:, 0]) + 0.3 * rng.normal(size=40)
    svr = SVR(kernel="linear", C=1e-3, epsilon=0.1, tol=1e-9).fit(x, y)
    ours = ko.estimators.KernelRegressor(
        "epsilon_insensitive", kernel="linear", alpha=500.0, epsilon=0.1, solve_options=options
    ).fit(x, y)
    assert np.isclose(ours.intercept_, svr.intercept_[0], atol=1e-6)
    labels = np.repeat([1, -1], 20)
    svc = SVC(kernel="linear", C=1e-3, tol=1e-9).fit(x, labels)
    machine = ko.estimators.KernelClassifier(kernel="linear", alpha=500.0, solve_options=options).fit(x, labels)
    assert np.isclose(machine.intercept_, svc.intercept_[0], atol=1e-6)
    outputs = ko.estimators.KernelRegressor("absolute_error", kernel="linear", alpha=500.0, solve_options=options)
    together = outputs.fit(x, np.column_stack([y, -2 * y])).intercept_
    assert np.allclose(together, [outputs.fit(x, column).intercept_ for column in (y, -2 * y)], atol=1e-5)
