"""Jackknife+ and CV+ against refits, conformal bands and sets, and how often all of them hold."""

import cvxpy as cp
import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import KFold, ShuffleSplit

import kernelopt as ko
from kernelopt.errors import DataError, KernelOptError, OptionError
from kernelopt.model_selection import conformal

KERNEL = ko.kernels.Gaussian(sigma=1.0)


def draw(n, seed, m=0):
    """n + m rows with errors that grow with x, and heavy tails."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 6, size=(n + m, 1))
    return X, np.sin(X[:, 0]) + 0.1 * (1 + X[:, 0]) * rng.standard_t(3, size=n + m)


X, Y = draw(40, 0)
Z = np.linspace(0, 6, 9)[:, None]


def fitted(X, y, loss=cp.square, lam=0.5, **options):
    """A solved problem without an intercept, and f."""
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum(loss(y - theta(X))) + lam * ko.sum_squares(theta)))
    problem.solve(rank_tol=1e-13, **options)
    return problem, theta


def by_refits(X, y, Z, folds, lam=0.5):
    """f₋ᵢ(xᵢ) and f₋ᵢ(Z) for each row, by scikit-learn without the row's fold."""
    own, new = np.zeros(len(X)), np.zeros((len(X), len(Z)))
    for test in folds:
        k = ~np.isin(np.arange(len(X)), test)
        model = KernelRidge(alpha=lam, kernel="rbf", gamma=0.5).fit(X[k], y[k])
        own[test], new[test] = model.predict(X[test]), model.predict(Z)
    return own, new


def plus(own, new, y, alpha):
    """The interval as the article has it, by a sort."""
    n, R = len(y), np.abs(y - own)
    low, high = np.sort(new - R[:, None], axis=0), np.sort(new + R[:, None], axis=0)
    return low[int(np.floor(alpha * (n + 1))) - 1], high[int(np.ceil((1 - alpha) * (n + 1))) - 1]


@pytest.mark.parametrize("alpha", [0.1, 0.25])
@pytest.mark.parametrize("cv", [None, 4])
def test_against_refits(alpha, cv):
    problem, f = fitted(X, Y)
    folds = np.arange(40)[:, None] if cv is None else [t for _, t in KFold(cv, shuffle=True, random_state=1).split(X)]
    splitter = None if cv is None else KFold(cv, shuffle=True, random_state=1)
    band = ko.jackknife(problem, f(X), Y, f(Z), level=1 - alpha, cv=splitter)
    low, high = plus(*by_refits(X, Y, Z, folds), Y, alpha)
    assert band.lower == pytest.approx(low, rel=1e-9, abs=1e-9)
    assert band.upper == pytest.approx(high, rel=1e-9, abs=1e-9)
    assert band.level == 1 - alpha


def test_minmax_against_refits_and_around_the_other():
    problem, f = fitted(X, Y)
    own, new = by_refits(X, Y, Z, np.arange(40)[:, None])
    Q = np.sort(np.abs(Y - own))[int(np.ceil(0.8 * 41)) - 1]
    wide, narrow = (ko.jackknife(problem, f(X), Y, f(Z), level=0.8, method=rule) for rule in ("minmax", "plus"))
    assert wide.lower == pytest.approx(new.min(axis=0) - Q, rel=1e-9)
    assert wide.upper == pytest.approx(new.max(axis=0) + Q, rel=1e-9)
    assert (wide.lower <= narrow.lower).all() and (wide.upper >= narrow.upper).all()
    assert wide.coverage == 0.8 and narrow.coverage == pytest.approx(0.6)


@pytest.mark.later
def test_refits_of_another_loss():
    problem, f = fitted(X, Y, cp.abs, tol=1e-9)
    band = ko.jackknife(problem, f(X), Y, f(Z), refit=True)
    own, new = np.zeros(40), np.zeros((40, 9))
    for i in range(40):
        k = np.arange(40) != i
        _, g = fitted(X[k], Y[k], cp.abs, tol=1e-9)
        own[i], new[i] = g(X[i : i + 1]).value[0], g(Z).value
    low, high = plus(own, new, Y, 0.1)
    assert band.lower == pytest.approx(low, rel=1e-4, abs=1e-4)
    assert band.upper == pytest.approx(high, rel=1e-4, abs=1e-4)
    assert band.coverage == pytest.approx(0.8)


def test_several_outputs_are_bands_of_each():
    targets, theta = np.column_stack([Y, -2 * Y]), ko.Theta(KERNEL, outputs=2)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(targets - theta(X)) + 0.5 * ko.sum_squares(theta)))
    problem.solve(rank_tol=1e-13)
    both = ko.jackknife(problem, theta(X), targets, theta(Z))
    problem, f = fitted(X, Y)
    one = ko.jackknife(problem, f(X), Y, f(Z))
    assert both.lower[:, 0] == pytest.approx(one.lower, rel=1e-9, abs=1e-9)
    assert both.lower[:, 1] == pytest.approx(-2 * one.upper, rel=1e-9, abs=1e-9)


def test_what_is_said():
    problem, f = fitted(X, Y)
    told = lambda **options: ko.jackknife(problem, f(X), Y, f(Z), **options)
    end = "if rows are exchangeable, and λ and the kernel chosen without them"
    assert str(told()).endswith(f"; each holds y with probability ≥ 80 %, {end} (jackknife+)")
    assert told(method="minmax").guarantee == f"each holds y with probability ≥ 90 %, {end} (jackknife-minmax)"
    folds = told(cv=10)
    assert folds.coverage == pytest.approx(0.8 - min(1.8 / 5, 0.75 / 11))
    assert folds.guarantee == f"each holds y with probability ≥ 73.18 %, {end} (CV+ with 10 folds)"
    assert told(cv=10, method="minmax").coverage == folds.coverage
    unequal = told(cv=7)
    assert np.isnan(unequal.coverage) and "not proven: folds differ in size" in unequal.guarantee
    assert repr(unequal) == str(unequal)
    problem, f = fitted(X, Y, lambda e: cp.huber(e, 0.5))
    assert "not proven: f₋ are those of a quadratic model (refit=True: of fits)" in told().guarantee


def test_a_row_that_is_alone_has_an_infinite_interval():
    own, new, y = np.array([[np.nan], [0.0], [0.0], [0.0]]), np.zeros((4, 1, 1)), np.ones((4, 1))
    new[0] = np.nan
    assert [side.item() for side in conformal.jackknife_plus(own, new, y, 0.6)] == [-1.0, 1.0]
    assert [side.item() for side in conformal.jackknife_plus(own, new, y, 0.8)] == [-np.inf, np.inf]
    assert [side.item() for side in conformal.jackknife_minmax(own, new, y, 0.6)] == [-np.inf, np.inf]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "cv"), [("plus", None), ("minmax", None), ("plus", 10)])
def test_coverage(method, cv):
    """Over 200 draws of 40 rows the proven share holds, up to three standard errors; "plus" is near the level."""
    shares, bound = [], 0.0
    for seed in range(200):
        points, targets = draw(40, seed, m=25)
        problem, f = fitted(points[:40], targets[:40])
        band = ko.jackknife(problem, f(points[:40]), targets[:40], f(points[40:]), level=0.8, method=method, cv=cv)
        shares.append(band.covers(targets[40:]).mean())
        bound = band.coverage
    mean, error = np.mean(shares), np.std(shares) / np.sqrt(200)
    assert mean >= bound - 3 * error
    assert 0.76 <= mean <= (0.9 if method == "plus" else 0.95)


# ------------------------------------------------------------ held-out rows


def test_quantiles_of_finite_samples():
    values = np.array([3.0, 1.0, 2.0, 5.0, 4.0, 9.0, 8.0, 7.0, 6.0])
    assert [conformal.sample_quantile(values, level) for level in (0.05, 0.7, 0.71, 0.9)] == [1.0, 7.0, 8.0, 9.0]
    assert [conformal.rank_of(9, level) for level in (0.1, 0.3, 0.5, 0.6)] == [1, 3, 5, 6]
    assert [conformal.rank_of(n, 0.95) for n in (19, 39, 40)] == [19, 38, 39]


def test_too_few_rows():
    with pytest.raises(DataError, match="at least 19 rows for the level 0.95; got 3. .*a level of at most 3/4"):
        ko.conformal_interval(np.zeros(3), np.ones(3), np.ones(3), [0.0], [1.0], level=0.95)
    with pytest.raises(DataError, match="at least 9 rows for the level 0.9; got 8"):
        ko.conformal_sets(np.zeros(8), np.ones(8, int), [0.0])
    problem, f = fitted(X[:3], Y[:3])
    with pytest.raises(DataError, match="at least 19 rows .* got 3"):
        ko.jackknife(problem, f(X[:3]), Y[:3], f(Z), level=0.95)
    with pytest.raises(DataError, match="at least 1 rows for the level 0.5; got 0. .* Take more rows.$"):
        ko.conformal_interval([], [], [], [0.0], [1.0], level=0.5)


def test_quantiles_that_were_too_wide_or_cross():
    y = np.arange(10.0)
    band = ko.conformal_interval(y - 2, y + 2, y, [0.0, 0.0], [4.0, 1.0], level=0.8)
    assert band.lower.tolist() == [2.0, 0.5] and band.upper.tolist() == [2.0, 0.5]
    split = ko.conformal_interval(y, y, y + np.arange(10), [3.0], [3.0], level=0.8)
    assert split.lower == [-5.0] and split.upper == [11.0]


def test_aps_by_hand():
    P = np.array([[0.5, 0.3, 0.2], [0.4, 0.4, 0.2], [0.1, 0.2, 0.7]])
    assert conformal._mass_above(P) == pytest.approx(np.array([[0.5, 0.8, 1.0], [0.8, 0.8, 1.0], [1.0, 0.9, 0.7]]))
    sets = ko.conformal_sets(P, [0, 1, 2], P, level=0.7, method="aps")
    assert sets.members.tolist() == [[True, True, False], [True, True, False], [False, False, True]]
    assert sets[2].tolist() == [2] and sets.size.tolist() == [2, 2, 1] and len(sets) == 3
    assert [members.tolist() for members in sets] == [[0, 1], [0, 1], [2]]
    assert str(sets) == "70 % sets at 3 points, mean size 1.67 of 3; hold the class with probability ≥ 70 %, if rows " \
        "are exchangeable"  # fmt: skip


def test_scores_of_two_classes_are_margins():
    f, y = np.array([2.0, -1.0, 0.5, 0.25]), np.array([1, -1, -1, 1])
    sets = ko.conformal_sets(f, y, [-0.1, 0.3, 3.0], level=0.6)
    margins = np.sort(y * f)[::-1]
    assert sets.members.tolist() == [[-s >= margins[2], s >= margins[2]] for s in (-0.1, 0.3, 3.0)]
    named = ko.conformal_sets(f, np.where(y > 0, "b", "a"), [3.0], level=0.6, classes=["a", "b"])
    assert named[0].tolist() == ["b"] and named.covers(["b"]).all() and not named.covers(["a"]).any()


@pytest.mark.slow
def test_coverage_of_moved_quantiles():
    shares = []
    for seed in range(200):
        points, targets = draw(80, seed, m=50)
        low, high = points[:, 0] / 6 - 1, np.sin(points[:, 0]) + 0.1  # any functions will do
        band = ko.conformal_interval(low[:80], high[:80], targets[:80], low[80:], high[80:], level=0.9)
        shares.append(band.covers(targets[80:]).mean())
    error = np.std(shares) / np.sqrt(200)
    assert 0.9 - 3 * error <= np.mean(shares) <= 0.9 + 1 / 81 + 3 * error


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lac", "aps"])
def test_coverage_of_sets(method):
    shares = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        P = rng.dirichlet(np.ones(4), size=130)
        y = np.array([rng.choice(4, p=p) for p in P])
        wrong = P[:, [0, 1, 3, 2]]
        sets = ko.conformal_sets(wrong[:80], y[:80], wrong[80:], level=0.8, method=method)
        shares.append(sets.covers(y[80:]).mean())
    error = np.std(shares) / np.sqrt(200)
    assert 0.8 - 3 * error <= np.mean(shares) <= 0.8 + 1 / 81 + 3 * error


def test_bad_inputs_of_bands():
    problem, f = fitted(X, Y)
    good = {"problem": problem, "f": f(X), "y": Y, "new": f(Z)}
    for change, error, words in (
        ({"problem": 3}, KernelOptError, "problem to be a ko.Problem; got int"),
        ({"f": Y}, DataError, "a real affine expression"),
        ({"y": Y[:3]}, DataError, "y to be finite numbers of the shape of f, .40,.; got shape .3,."),
        ({"y": np.full(40, np.nan)}, DataError, "finite numbers"),
        ({"new": Z}, DataError, "a real affine expression"),
        ({"level": 90}, OptionError, "level to be a number between 0 and 1, such as 0.9; got 90"),
        ({"level": 1.0}, OptionError, "between 0 and 1"),
        ({"level": None}, OptionError, "between 0 and 1"),
        ({"method": "jackknife+"}, OptionError, "method to be 'plus' or 'minmax'; got 'jackknife.'. cv=10"),
        ({"method": None}, OptionError, "method to be"),
        ({"cv": 1}, OptionError, "from 2 to 40 folds"),
        ({"cv": ShuffleSplit(3)}, DataError, "folds that leave out each row once"),
        ({"cv": [(np.arange(20), np.arange(20, 40)), (np.arange(21, 40), np.arange(20))]}, DataError, "train on all"),
        ({"refit": 2}, OptionError, "refit to be True or False"),
    ):
        with pytest.raises(error, match=words):
            ko.jackknife(**{**good, **change})


def test_bad_inputs_of_held_out_rows():
    y, P = np.arange(10.0), np.full((10, 2), 0.5)
    labels = np.array([0, 1] * 5)
    interval, sets = ko.conformal_interval, ko.conformal_sets
    for call, error, words in (
        (lambda: interval(y, y[:3], y, y, y), DataError, "same held-out rows; got lengths 10, 3 and 10"),
        (lambda: interval(y, y, y, y, y[:2]), DataError, "at the same points; got lengths 10 and 2"),
        (lambda: interval(y, y, P, y, y), DataError, "y to be finite numbers of shape .n,..*; got shape .10, 2."),
        (lambda: interval(y, y, y * np.nan, y, y), DataError, "got entries that are not"),
        (lambda: interval(y, y, y, y, y, level=-1), OptionError, "level to be"),
        (lambda: sets(P, labels, P, method="raps"), OptionError, "'lac' or 'aps'; got 'raps'"),
        (lambda: sets(P, labels, P[:, :1]), DataError, "new to be finite numbers, .n, K. for K ≥ 2"),
        (lambda: sets(P, labels, P[:, 0]), DataError, "the same columns"),
        (lambda: sets(P * np.inf, labels, P), DataError, "shape .10, 2. with other entries"),
        (lambda: sets(P, labels + 1, P), DataError, "labels among the classes .0, 1.; got 2. Give classes="),
        (lambda: sets(P, labels[:4], P), DataError, "y of shape .10,."),
        (lambda: sets(P, labels, P, classes=[1]), DataError, "2 distinct classes, one per column"),
        (lambda: sets(P, labels, P, classes=[1, 1]), DataError, "2 distinct classes"),
        (lambda: sets(2 * P, labels, P, method="aps"), DataError, "scores to be probabilities"),
        (lambda: sets(y, np.sign(y - 4.5), y, method="aps"), DataError, "scores to be probabilities"),
        (lambda: sets(P, labels, P).covers([0]), DataError, "y of shape"),
        (lambda: sets(P, labels, P)[10], DataError, "number of a point, from 0 to 9; got 10"),
        (lambda: sets(P, labels, P)[0:2], DataError, "number of a point"),
        (lambda: sets(P, [[0, 1], [1]], P), DataError, "y to be a rectangular array"),
        (lambda: interval(y, y, y, y, y, level=0.8).covers([1.0]), DataError, "a number for each interval"),
    ):
        with pytest.raises(error, match=words):
            call()
