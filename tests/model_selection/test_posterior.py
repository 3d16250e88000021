"""Posteriors against scikit-learn's Gaussian processes, dense algebra in explicit features, and differences."""

import cvxpy as cp
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import kernelopt as ko
from kernelopt.errors import DataError, DataTypeError, KernelOptError, NotPSDError, OptionError, ParameterError

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, size=(40, 2))
X[-3:] = X[:3]
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * RNG.normal(size=40)
LABELS = np.sign(Y - 0.3)
NEW = RNG.uniform(-3, 3, size=(15, 2))
NEW[0] = X[0]
GAUSSIAN = ko.kernels.Gaussian(sigma=1.0)
LAM, NOISE = 0.3, 0.1


def solved(loss, lam=LAM, kernel=GAUSSIAN, constant=0.0):
    """A solved problem with f = θ + b, where `loss` uses b, and f as a function of points."""
    theta, b = ko.Theta(kernel), cp.Variable(name="b")
    problem = ko.Problem(cp.Minimize(loss(theta, b) + lam * ko.sum_squares(theta) + constant))
    problem.solve()
    return problem, theta, b


def squares(theta, b):
    return cp.sum_squares(Y - theta(X))


def close(found, expected, tol):
    np.testing.assert_allclose(found, expected, rtol=tol, atol=tol)


def regression(noise=NOISE, alpha=None):
    kernel = ConstantKernel(noise / LAM, "fixed") * RBF(1.0, "fixed")
    return GaussianProcessRegressor(kernel, alpha=noise if alpha is None else alpha, optimizer=None).fit(X, Y)


# -------------------------------------------------------------------- scikit-learn


@pytest.mark.parametrize("weight", [1.0, 0.5, 1 / 40])
def test_squares_are_gaussian_process_regression(weight):
    theta = ko.Theta(GAUSSIAN)
    problem = ko.Problem(cp.Minimize(weight * (squares(theta, None) + LAM * ko.sum_squares(theta)) + 7))
    problem.solve()
    found, ours = regression(), ko.posterior(problem, noise=NOISE)
    mean, covariance = found.predict(NEW, return_cov=True)
    close(ours.mean(theta(NEW)), mean, 1e-10)
    close(ours.covariance(theta(NEW)), covariance, 1e-10)
    close(ours.std(theta(NEW)), found.predict(NEW, return_std=True)[1], 1e-10)
    close(ours.log_evidence, found.log_marginal_likelihood_value_, 1e-10)
    assert ours.is_exact
    assert not ours.is_estimated
    close([ours.noise, ours.scale], [NOISE, 2 * weight * NOISE], 1e-15)
    same = ko.posterior(problem, scale=2 * weight * NOISE)
    close([same.noise, same.log_evidence], [NOISE, ours.log_evidence], 1e-12)


def test_intercept_by_the_formula_and_by_a_wide_prior():
    problem, theta, b = solved(lambda theta, b: cp.sum_squares(Y - theta(X) - b))
    ours, s = ko.posterior(problem, noise=NOISE), NOISE / LAM
    Q, k, ones = GAUSSIAN(X), GAUSSIAN(X, NEW), np.ones(40)
    A = np.linalg.inv(Q + LAM * np.eye(40))
    r = 1 - k.T @ A @ ones
    expected = s * (GAUSSIAN(NEW) - k.T @ A @ k + np.outer(r, r) / (ones @ A @ ones))
    close(ours.covariance(theta(NEW) + b), expected, 1e-10)
    assert np.abs(ours.covariance(theta(NEW)) - expected).max() > 1e-3  # θ alone
    width = 1e6
    wide = ConstantKernel(s, "fixed") * RBF(1.0, "fixed") + ConstantKernel(width, "fixed")
    found = GaussianProcessRegressor(wide, alpha=NOISE, optimizer=None).fit(X, Y)
    mean, std = found.predict(NEW, return_std=True)
    close(ours.mean(theta(NEW) + b), mean, 1e-5)
    close(ours.std(theta(NEW) + b), std, 1e-5)
    # A flat prior has density 1, N(0, width) has 1/√(2π·width) there.
    close(ours.log_evidence - 0.5 * np.log(2 * np.pi * width), found.log_marginal_likelihood_value_, 1e-5)


def test_weights_of_rows_are_variances():
    w = np.random.default_rng(1).uniform(0.5, 2, size=40)
    w[[0, 5]] = 0.0
    problem, theta, _ = solved(lambda theta, b: w @ cp.square(Y - theta(X)))
    ours, used = ko.posterior(problem, scale=2 * NOISE), w > 0
    kernel = ConstantKernel(NOISE / LAM, "fixed") * RBF(1.0, "fixed")
    found = GaussianProcessRegressor(kernel, alpha=NOISE / w[used], optimizer=None).fit(X[used], Y[used])
    mean, covariance = found.predict(NEW, return_cov=True)
    close(ours.mean(theta(NEW)), mean, 1e-10)
    close(ours.covariance(theta(NEW)), covariance, 1e-10)
    close(ours.log_evidence, found.log_marginal_likelihood_value_, 1e-10)
    assert ours.noise is None
    with pytest.raises(OptionError, match="scale in place of noise, since squares have several weights"):
        ko.posterior(problem, noise=NOISE)


def test_log_losses_are_gaussian_process_classification():
    problem, theta, _ = solved(lambda theta, b: cp.sum(ko.losses.log_loss(LABELS, theta(X))))
    ours = ko.posterior(problem)
    kernel = ConstantKernel(1 / (2 * LAM), "fixed") * RBF(1.0, "fixed")
    found = GaussianProcessClassifier(kernel, optimizer=None, max_iter_predict=500).fit(X, LABELS).base_estimator_
    k = found.kernel_(X, NEW)
    half = np.linalg.solve(found.L_, found.W_sr_[:, None] * k)  # Rasmussen and Williams, algorithm 3.2
    close(ours.mean(theta(NEW)), k.T @ (found.y_train_ - found.pi_), 1e-7)
    close(ours.covariance(theta(NEW)), found.kernel_(NEW) - half.T @ half, 1e-7)
    close(ours.log_evidence, found.log_marginal_likelihood_value_, 1e-8)
    assert ours.scale == 1
    assert not ours.is_exact


@pytest.mark.parametrize("intercept", [False, True])
def test_default_scale_has_the_highest_evidence(intercept):
    problem, *_ = solved(lambda theta, b: cp.sum_squares(Y - theta(X) - (b if intercept else 0)), constant=5.0)
    best = ko.posterior(problem)
    assert best.is_estimated
    for factor in (0.99, 1.01):
        assert ko.posterior(problem, scale=factor * best.scale).log_evidence < best.log_evidence


# -------------------------------------------------------------------- dense algebra


COUNTS = np.random.default_rng(2).poisson(np.exp(0.4 * X[:, 0] + 0.5)).astype(float)
WEIGHTS = np.where(np.arange(40) % 5 == 0, 0.0, np.random.default_rng(3).uniform(0.5, 2, size=40))
PSEUDO_HUBER = ko.SmoothLoss(
    lambda u, y: np.sqrt(1 + (u - y) ** 2) - 1,
    lambda u, y: (u - y) / np.sqrt(1 + (u - y) ** 2),
    lambda u, y: (1 + (u - y) ** 2) ** -1.5,
)
# The loss of a row, and its first two derivatives, by the predictions.
ROWS = {
    "poisson": (
        lambda f: ko.losses.poisson(COUNTS, f), lambda f: np.exp(f) - COUNTS * f, lambda f: np.exp(f) - COUNTS, np.exp
    ),
    "smooth": (
        lambda f: PSEUDO_HUBER(f, Y), lambda f: np.sqrt(1 + (f - Y) ** 2) - 1,
        lambda f: (f - Y) / np.sqrt(1 + (f - Y) ** 2), lambda f: (1 + (f - Y) ** 2) ** -1.5,
    ),
    "squared hinge": (
        lambda f: ko.losses.squared_hinge(LABELS, f), lambda f: np.maximum(0, 1 - LABELS * f) ** 2,
        lambda f: -2 * LABELS * np.maximum(0, 1 - LABELS * f), lambda f: 2.0 * (LABELS * f < 1),
    ),
    "huber": (
        lambda f: ko.losses.huber(Y, f, 0.5),
        lambda f: np.where(np.abs(f - Y) < 0.5, (f - Y) ** 2, np.abs(f - Y) - 0.25),
        lambda f: 2 * np.clip(f - Y, -0.5, 0.5), lambda f: 2.0 * (np.abs(f - Y) < 0.5),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("scale", [1.0, 0.2])
def test_in_explicit_features(name, scale):
    """θ of three features, b, and slopes c with a penalty of their own: the Hessian is a 6×6 matrix."""
    loss, value, slope, second = ROWS[name]
    Z, kernel = np.column_stack([X, X[:, 0] * X[:, 1]]), ko.kernels.Linear()
    V = np.random.default_rng(4).normal(size=(40, 2))
    theta, b, c = ko.Theta(kernel), cp.Variable(), cp.Variable(2)
    total = WEIGHTS @ loss(theta(Z) + b + V @ c) + 0.2 * cp.sum_squares(c) + LAM * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(total))
    problem.solve()
    ours = ko.posterior(problem, scale=scale)
    C = np.column_stack([Z, np.ones(40), V])
    R = np.array([2 * LAM] * 3 + [0.0] + [0.4] * 2)
    x = np.concatenate([theta.value(np.eye(3)), [b.value], c.value])
    for _ in range(20):
        H = C.T @ ((WEIGHTS * second(C @ x))[:, None] * C) + np.diag(R)
        x -= np.linalg.solve(H, C.T @ (WEIGHTS * slope(C @ x)) + R * x)
    new = np.random.default_rng(5).normal(size=(7, 6))
    new[:, 3] = 1.0
    rows = theta(new[:, :3]) + b + new[:, 4:] @ c
    close(ours.mean(rows), new @ x, 1e-9)
    close(ours.covariance(rows), scale * new @ np.linalg.inv(H) @ new.T, 1e-9)
    close(ours.std(rows), np.sqrt(np.diag(ours.covariance(rows))), 1e-10)
    J = WEIGHTS @ value(C @ x) + 0.5 * R @ x**2
    laplace = -J / scale - 0.5 * np.linalg.slogdet(H / scale)[1] + 3 * np.log(2 * np.pi)  # ∫ over the 6 numbers
    prior = 1.5 * np.log(2 * np.pi * scale / (2 * LAM))
    close(ours.log_evidence, laplace - prior, 1e-8)


# -------------------------------------------------------------------- rows


def test_rows_of_derivatives_and_sums():
    problem, theta, b = solved(lambda theta, b: cp.sum_squares(Y - theta(X) - b))
    ours, h = ko.posterior(problem, noise=NOISE), 1e-4
    step = np.array([h, 0.0])
    slope, difference = theta.derivative(0)(NEW), (theta(NEW + step) - theta(NEW - step)) / (2 * h)
    close(ours.mean(slope), ours.mean(difference), 1e-6)
    close(ours.covariance(slope), ours.covariance(difference), 1e-5)
    mean = cp.sum(theta(NEW)) / 15 + b
    average = ko.average(NEW, GAUSSIAN) @ theta + b
    assert ours.mean(mean).shape == ()
    close(ours.mean(average), [ours.mean(mean)], 1e-12)
    close(ours.std(average), [ours.std(mean)], 1e-10)
    whole = ours.covariance(theta(NEW) + b)
    close(ours.covariance(mean), [[whole.mean()]], 1e-12)
    one, other = theta(NEW[:5]) + b, theta(NEW[5:10]) + b
    close(
        ours.std(one - other),
        np.sqrt([whole[i, i] + whole[i + 5, i + 5] - 2 * whole[i, i + 5] for i in range(5)]),
        1e-8,
    )
    table = cp.vstack([one, 2 * other - 3])
    assert ours.mean(table).shape == ours.std(table).shape == (2, 5)
    close(ours.mean(table), np.array([ours.mean(one), ours.mean(2 * other) - 3]), 1e-12)
    close(ours.covariance(table), ours.covariance(cp.vec(table, order="F")), 1e-14)
    close(ours.mean(b), b.value, 1e-9)
    assert ours.std(b) > 0
    assert ours.std(0 * b + 3) == 0


def test_rows_of_integrals_and_training_rows_that_are_derivatives():
    x = np.linspace(0, 3, 12)[:, None]
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    loss = cp.sum_squares(np.cos(x[:, 0]) - theta.derivative(0)(x)) + cp.sum_squares(theta([[0.0]]))
    problem = ko.Problem(cp.Minimize(loss + 0.01 * ko.sum_squares(theta)))
    problem.solve()
    ours = ko.posterior(problem, noise=0.01)
    close(ours.mean(theta(x)), theta(x).value, 1e-6)
    assert np.all(np.abs(ours.mean(theta(x)) - np.sin(x[:, 0])) < 3 * ours.std(theta(x)))
    plain = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(np.sin(x[:, 0]) - plain(x)) + 0.01 * ko.sum_squares(plain)))
    problem.solve()
    ours = ko.posterior(problem, noise=0.01)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    area = ko.integral([[0.0]], [[2.0]], plain.kernel) @ plain
    close(ours.mean(area), [weights @ ours.mean(plain(nodes[:, None] + 1))], 1e-10)
    close(ours.covariance(area), [[weights @ ours.covariance(plain(nodes[:, None] + 1)) @ weights]], 1e-10)


def test_many_rows_are_taken_in_blocks():
    problem, theta, b = solved(lambda theta, b: cp.sum_squares(Y - theta(X) - b))
    ours, many = ko.posterior(problem), np.random.default_rng(6).normal(size=(1200, 2))
    close(ours.std(theta(many) + b), np.sqrt(np.diag(ours.covariance(theta(many) + b))), 1e-8)
    close(ours.mean(theta(many) + b), (theta(many) + b).value, 1e-6)


def test_samples():
    problem, theta, b = solved(lambda theta, b: cp.sum_squares(Y - theta(X) - b))
    ours, rows = ko.posterior(problem, noise=NOISE), theta(np.vstack([NEW[:3], NEW[:1]])) + b
    draws = ours.sample(rows, 20000, random_state=0)
    assert draws.shape == (20000, 4)
    close(draws[:, 0], draws[:, 3], 1e-6)  # one row twice
    assert np.all(np.abs(draws.mean(axis=0) - ours.mean(rows)) < 4 * ours.std(rows) / np.sqrt(20000))
    covariance = ours.covariance(rows)
    assert np.abs(np.cov(draws.T) - covariance).max() < 0.05 * covariance.max()
    np.testing.assert_array_equal(ours.sample(rows, 2, random_state=1), ours.sample(rows, 2, random_state=1))
    assert ours.sample(rows, 0).shape == (0, 4)
    table = cp.reshape(rows, (2, 2), order="C")
    np.testing.assert_allclose(ours.sample(table, 3, 5).mean(axis=0), ours.mean(table), atol=1.0)
    assert ours.sample(cp.sum(rows)).shape == (1,)


# -------------------------------------------------------------------- numbers that are hard


def test_one_row():
    theta = ko.Theta(GAUSSIAN)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(1.0 - theta([[0.0]])) + 0.5 * ko.sum_squares(theta)))
    problem.solve()
    ours = ko.posterior(problem, noise=1.0)  # prior variance noise/λ = 2
    close([ours.mean(theta([[0.0]]))[0], ours.std(theta([[0.0]]))[0] ** 2], [2 / 3, 2 / 3], 1e-12)
    close(ours.log_evidence, -0.5 * np.log(2 * np.pi * 3) - 1 / 6, 1e-12)


@pytest.mark.parametrize("lam", [1e-9, 1e6])
def test_kernels_of_low_rank_and_ends_of_lambda(lam):
    """Of two features: ridge regression in these."""
    problem, theta, _ = solved(squares, lam, ko.kernels.Linear())
    ours = ko.posterior(problem, noise=NOISE)
    expected = NOISE * NEW @ np.linalg.inv(X.T @ X + lam * np.eye(2)) @ NEW.T
    np.testing.assert_allclose(ours.covariance(theta(NEW)), expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize(("lam", "tol"), [(1e-4, 1e-8), (1e-6, 1e-6)])
def test_small_lambda_keeps_the_digits_of_a_cholesky_factor(lam, tol):
    """The condition number of Q + λI is 40/λ."""
    problem, theta, _ = solved(squares, lam)
    ours = ko.posterior(problem, noise=0.01)
    kernel = ConstantKernel(0.01 / lam, "fixed") * RBF(1.0, "fixed")
    found = GaussianProcessRegressor(kernel, alpha=0.01, optimizer=None).fit(X, Y)
    mean, std = found.predict(NEW, return_std=True)
    close(ours.mean(theta(NEW)), mean, tol)
    close(ours.std(theta(NEW)), std, tol)
    close(ours.log_evidence, found.log_marginal_likelihood_value_, tol)


@pytest.mark.parametrize("lam", [1e-8, 1e-4, 1e3])
def test_log_losses_at_ends_of_lambda(lam):
    """The mode has f = −(1/2λ)·Qℓ′(f), and variances do not exceed those of the prior."""
    problem, theta, _ = solved(lambda theta, b: cp.sum(ko.losses.log_loss(LABELS, theta(X))), lam)
    ours = ko.posterior(problem)
    f = ours.mean(theta(X))
    close(f, GAUSSIAN(X) @ (LABELS / (1 + np.exp(LABELS * f))) / (2 * lam), 1e-6)
    assert np.all(ours.std(theta(NEW)) <= (1 + 1e-12) / np.sqrt(2 * lam))


def test_a_factor_of_low_rank_leaves_the_posterior_as_it_is():
    theta = ko.Theta(GAUSSIAN)
    for loss in (cp.sum_squares(Y - theta(X)), cp.sum(ko.losses.log_loss(LABELS, theta(X)))):
        problem = ko.Problem(cp.Minimize(loss + LAM * ko.sum_squares(theta)))
        problem.solve()
        full = ko.posterior(problem, scale=1.0)
        problem.solve(max_rank=3)
        low = ko.posterior(problem, scale=1.0)
        close(low.mean(theta(NEW)), full.mean(theta(NEW)), 1e-8)
        close(low.log_evidence, full.log_evidence, 1e-9)


def test_it_stays_when_the_problem_moves_on():
    lam = cp.Parameter(nonneg=True, value=LAM)
    problem, theta, _ = solved(squares, lam)
    ours = ko.posterior(problem, noise=NOISE)
    before = ours.mean(theta(NEW)), ours.std(theta(NEW))
    lam.value = 10.0
    with pytest.raises(KernelOptError, match="changed since. Solve again"):
        ko.posterior(problem)
    problem.solve()
    np.testing.assert_array_equal((ours.mean(theta(NEW)), ours.std(theta(NEW))), before)


def test_maximized_objectives():
    theta = ko.Theta(GAUSSIAN)
    problem = ko.Problem(cp.Maximize(-squares(theta, None) - LAM * ko.sum_squares(theta)))
    problem.solve()
    close(ko.posterior(problem, noise=NOISE).log_evidence, regression().log_marginal_likelihood_value_, 1e-10)


def test_it_prints_as_one_line():
    problem, *_ = solved(lambda theta, b: cp.sum(ko.losses.log_loss(LABELS, theta(X) + b)))
    text = str(ko.posterior(problem))
    assert text.startswith("posterior of θ, b: Gaussian, Laplace's approximation; density ∝ exp(−objective); log evid")
    assert "\n" not in text
    assert "(of highest evidence)" in repr(ko.posterior(solved(squares)[0]))
    theta, unnamed = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    problem = ko.Problem(cp.Minimize(cp.sum_squares(Y - theta(X) - unnamed) + ko.sum_squares(theta)))
    problem.solve()
    assert str(ko.posterior(problem)).startswith("posterior of θ, b: ")  # the letter of the printed problem


# -------------------------------------------------------------------- refusals


def stated(loss, constraints=lambda f: [], penalty=ko.sum_squares):
    theta, b = ko.Theta(GAUSSIAN), cp.Variable(name="b")
    return ko.Problem(cp.Minimize(loss(theta, b) + penalty(theta)), constraints(theta))


NONCONVEX = ko.SmoothLoss(
    lambda u, y: 1 - np.exp(-((u - y) ** 2)),
    lambda u, y: 2 * (u - y) * np.exp(-((u - y) ** 2)),
    lambda u, y: (2 - 4 * (u - y) ** 2) * np.exp(-((u - y) ** 2)),
    curvature="nonconvex",
)
REFUSED = {
    "hinge": (lambda: stated(lambda t, b: cp.sum(ko.losses.hinge(LABELS, t(X)))), "kinks .*ko.jackknife"),
    "absolute": (lambda: stated(lambda t, b: cp.norm1(Y - t(X))), "kinks"),
    "pinball": (lambda: stated(lambda t, b: cp.sum(ko.losses.pinball(Y, t(X), 0.9))), "kinks .* two quantiles"),
    "signs": (lambda: stated(lambda t, b: cp.sum_squares(Y - t(X) - cp.Variable(nonneg=True))), "have bounds"),
    "constraint": (lambda: stated(squares, lambda t: [t(X) <= 9]), r"constraints, as A·θ ≤ 9.*State the problem wit"),
    "everywhere": (
        lambda: stated(squares, lambda t: [ko.everywhere(lambda P: t(P) <= 9, [-2, -2], [2, 2])]), "constraints, as"
    ),
    "integers": (lambda: stated(lambda t, b: cp.sum_squares(Y - t(X) - cp.Variable(boolean=True))), "integers. Fix"),
    "norm": (lambda: stated(squares, penalty=ko.norm), "another cost than λ‖θ‖²"),
    "shifted": (
        lambda: stated(squares, penalty=lambda t: ko.sum_squares(t - ko.Function(GAUSSIAN, X[:1], [1.0]))), "θ − f₀"
    ),
    "several": (
        lambda: stated(lambda t, b: cp.sum_squares(Y - t(X) - (s := ko.Theta(GAUSSIAN))(X)) + ko.sum_squares(s)),
        "2 θs. Use one, of a sum of kernels",
    ),
    "undetermined": (
        lambda: stated(lambda t, b: cp.sum_squares(Y - t(X) - b - cp.Variable(name="c"))), "the variables b, c"
    ),
    "nonconvex": (lambda: stated(lambda t, b: cp.sum(NONCONVEX(t(X), Y))), "nonconvex. Use a convex loss"),
    "of rows": (lambda: stated(lambda t, b: cp.norm(Y - t(X))), "functions of one number each"),
    "cox": (lambda: stated(lambda t, b: ko.losses.cox(np.arange(40.0) + 1, np.ones(40), t(X))), "couples rows"),
    "joint": (
        lambda: stated(lambda t, b: cp.sum(cp.log_sum_exp(cp.reshape(t(X[1:]), (13, 3), order="F"), axis=1))),
        "log-sum-exp",
    ),
    "all rows": (lambda: stated(lambda t, b: cp.log_sum_exp(t(X)) - t(X)[0]), "couple rows"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name):
    make, message = REFUSED[name]
    problem = make()
    problem.solve()
    with pytest.raises(KernelOptError, match=message):
        ko.posterior(problem)


def test_several_outputs_and_nuclear_norms():
    theta = ko.Theta(GAUSSIAN, 2)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(np.column_stack([Y, Y]) - theta(X)) + ko.norm(theta, "nuc")))
    problem.solve()
    with pytest.raises(KernelOptError, match="several outputs. State a problem for each output"):
        ko.posterior(problem)


def test_unsolved_indefinite_and_bad_arguments():
    problem = stated(squares)
    with pytest.raises(KernelOptError, match="call solve"):
        ko.posterior(problem)
    with pytest.raises(DataTypeError, match=r"ko\.Problem"):
        ko.posterior(X)
    problem.solve()
    for bad in (0, -1.0, np.nan, "1", True):
        with pytest.raises(OptionError, match="noise to be a number > 0"):
            ko.posterior(problem, noise=bad)
        with pytest.raises(OptionError, match="scale to be a number > 0"):
            ko.posterior(problem, scale=bad)
    with pytest.raises(OptionError, match="got both"):
        ko.posterior(problem, noise=1.0, scale=1.0)
    logistic, *_ = solved(lambda theta, b: cp.sum(ko.losses.log_loss(LABELS, theta(X))))
    with pytest.raises(OptionError, match="losses are not squares"):
        ko.posterior(logistic, noise=1.0)
    one_class, *_ = solved(lambda theta, b: cp.sum(ko.losses.log_loss(np.ones(40), theta(X) + b)))
    with pytest.raises(KernelOptError, match="attain the optimum. Penalize the variables"):
        ko.posterior(one_class)
    nothing, *_ = solved(lambda theta, b: cp.sum_squares(theta(X)))
    with pytest.raises(OptionError, match="no estimate without residuals"):
        ko.posterior(nothing)
    indefinite = stated(squares)
    theta = ko.Theta(GAUSSIAN - 0.6 * ko.kernels.Gaussian(sigma=0.4))
    indefinite = ko.Problem(cp.Minimize(squares(theta, None) + ko.sum_squares(theta)))
    for how in ("clip", "shift"):
        indefinite.solve(indefinite=how)
        with pytest.raises(NotPSDError, match="indefinite on these points"):
            ko.posterior(indefinite)


def test_bad_rows():
    sigma = cp.Parameter(pos=True, value=1.0, name="sigma")
    kernel = ko.kernels.Gaussian(sigma=sigma)
    problem, theta, _ = solved(squares, kernel=kernel)
    ours = ko.posterior(problem)
    for bad in (NEW, "rows", None, theta, cp.square(theta(NEW)), ko.norm(theta), 1j * theta(NEW)):
        with pytest.raises(DataError, match="a real affine expression of predictions"):
            ours.mean(bad)
    with pytest.raises(DataError, match="whose posterior this is"):
        ours.std(ko.Theta(kernel)(NEW))
    with pytest.raises(DataError, match="z is none that its posterior has"):
        ours.covariance(theta(NEW) + cp.Variable(name="z"))
    with pytest.raises(ParameterError, match="p has none"):
        ours.mean(theta(NEW) + cp.Parameter(name="p"))
    for size in (-1, 1.5, "2"):
        with pytest.raises(OptionError, match="size to be an integer"):
            ours.sample(theta(NEW), size)
    with pytest.raises(OptionError, match="random_state"):
        ours.sample(theta(NEW), random_state="x")
    sigma.value = 2.0
    with pytest.raises(KernelOptError, match="its parameters changed since"):
        ours.mean(theta(NEW))
