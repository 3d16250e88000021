"""Alignment and marginal likelihood against formulas and scikit-learn."""

from dataclasses import dataclass
from itertools import product

import cvxpy as cp
import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as gp

import kernelopt as ko
from kernelopt.errors import DataError, DataTypeError, KernelError, MemoryLimitError, NotPSDError, OptionError
from kernelopt.model_selection import kernel_selection

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(40, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * RANDOM.normal(size=40)
GAUSSIAN = ko.kernels.Gaussian(sigma=0.8)


# ---------------------------------------------------------------- alignment


def test_alignment_is_a_cosine_of_centered_matrices():
    targets = np.column_stack([Y, Y**2 + 3])
    H = np.eye(40) - 1 / 40
    for y, T in ((Y, np.outer(Y, Y)), (targets, targets @ targets.T)):
        left, right = H @ GAUSSIAN(X) @ H, H @ T @ H
        expected = np.sum(left * right) / np.linalg.norm(left) / np.linalg.norm(right)
        assert ko.kernel_alignment(GAUSSIAN, X, y) == pytest.approx(expected, rel=1e-12)
    assert ko.kernel_alignment(GAUSSIAN, X, Y) == pytest.approx(
        ko.feature_space.target_alignment(GAUSSIAN(X), Y, centered=True), rel=1e-12
    )


def test_alignment_of_known_matrices():
    line = np.linspace(-1, 1, 9)[:, None]
    assert ko.kernel_alignment(ko.kernels.Linear(), line, 3 - 2 * line[:, 0]) == pytest.approx(1)
    assert ko.kernel_alignment(ko.kernels.Linear(), line, line[:, 0] ** 2) == pytest.approx(0, abs=1e-15)
    assert ko.kernel_alignment(GAUSSIAN, line, np.ones(9)) == 0
    assert ko.kernel_alignment(5 * GAUSSIAN, X, -3 * Y + 1) == pytest.approx(ko.kernel_alignment(GAUSSIAN, X, Y))


def test_the_sum_of_largest_alignment():
    """No other weights on a grid are better, and parts that do not help are left out."""
    kernels = [ko.kernels.Linear(), GAUSSIAN, ko.kernels.Gaussian(sigma=0.01), ko.kernels.Laplacian(sigma=2.0)]
    found = ko.aligned_kernel(kernels, X, Y)
    best = ko.kernel_alignment(found, X, Y)
    matrices = [ko.feature_space.center(k(X)) for k in kernels]
    y = Y - Y.mean()

    def alignment(weights):
        Q = sum(w * M for w, M in zip(weights, matrices, strict=True))
        return y @ Q @ y / np.linalg.norm(Q) / (y @ y)

    others = [alignment(w) for w in product([0, 0.1, 0.3, 1.0, 3.0, 10.0], repeat=4) if any(w)]
    assert max(others) <= best + 1e-12
    assert max(others) >= best - 0.02
    assert found.diag(X).mean() == pytest.approx(1)
    assert len(found.parts) < 4
    assert "sigma=0.01" not in repr(found)


def test_the_sum_of_equal_kernels():
    """A singular system: any share of equal kernels is as good."""
    found = ko.aligned_kernel([GAUSSIAN, GAUSSIAN, 2 * GAUSSIAN], X, Y)
    assert ko.kernel_alignment(found, X, Y) == pytest.approx(ko.kernel_alignment(GAUSSIAN, X, Y), rel=1e-9)
    assert found(X) == pytest.approx(GAUSSIAN(X), rel=1e-9)


def test_what_can_not_be_aligned():
    with pytest.raises(KernelError, match="aligned with y"):
        ko.aligned_kernel([GAUSSIAN], X, np.ones(40))
    with pytest.raises(OptionError, match="at least one"):
        ko.aligned_kernel([], X, Y)
    for y, error in ((Y[:-1], DataError), (np.append(Y[:-1], np.nan), DataError), (["a"] * 40, DataTypeError)):
        for call in (ko.kernel_alignment, lambda k, X, y: ko.aligned_kernel([k], X, y)):
            with pytest.raises(error):
                call(GAUSSIAN, X, y)


# ---------------------------------------------------------------- marginal likelihood


@pytest.mark.parametrize("noise", [1e-4, 0.04, 2.0])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 5.0])
def test_likelihood_against_scikit_learn(sigma, noise):
    theirs = GaussianProcessRegressor(gp.RBF(sigma), alpha=noise, optimizer=None)
    for y in (Y, np.column_stack([Y, np.cos(Y)])):
        expected = theirs.fit(X, y).log_marginal_likelihood_value_
        assert ko.log_marginal_likelihood(ko.kernels.Gaussian(sigma=sigma), X, y, noise) == pytest.approx(
            expected, rel=1e-8
        )


def test_likelihood_against_the_density():
    kernel = 2.0 * GAUSSIAN + ko.kernels.Linear()
    density = multivariate_normal(np.zeros(40), kernel(X) + 0.1 * np.eye(40)).logpdf(Y)
    assert ko.log_marginal_likelihood(kernel, X, Y, 0.1) == pytest.approx(density, rel=1e-9)
    assert ko.log_marginal_likelihood(kernel.cached(X), X, Y, 0.1) == pytest.approx(density, rel=1e-9)


def test_its_mean_is_ridge_regression():
    """−log p(y) = min (‖y − f(X)‖² + noise‖θ‖²)/2noise + what does not depend on y."""
    theta = ko.Theta(GAUSSIAN)
    value = ko.Problem(cp.Minimize(cp.sum_squares(Y - theta(X)) + 0.1 * ko.sum_squares(theta))).solve(tol=1e-10)
    difference = ko.log_marginal_likelihood(GAUSSIAN, X, 0 * Y, 0.1) - ko.log_marginal_likelihood(GAUSSIAN, X, Y, 0.1)
    assert difference == pytest.approx(value / 0.2, rel=1e-7)


@pytest.mark.slow
def test_the_largest_likelihood_is_scikit_learns():
    bounds = {"factor": (0.1, 20.0), "k1__sigma": (0.1, 20.0), "noise": (1e-3, 2.0)}
    found = ko.maximize_likelihood(1.0 * GAUSSIAN, X, Y, bounds, n_init=3)
    kernel = gp.ConstantKernel(1.0, (0.1, 20.0)) * gp.RBF(0.8, (0.1, 20.0)) + gp.WhiteKernel(1.0, (1e-3, 2.0))
    theirs = GaussianProcessRegressor(kernel, alpha=0.0, n_restarts_optimizer=3, random_state=0).fit(X, Y)
    assert found.log_marginal_likelihood == pytest.approx(theirs.log_marginal_likelihood_value_, abs=1e-4)
    ours = [np.log(found.kernel.get_params()[name]) for name in ("factor", "k1__sigma")]
    assert [*ours, np.log(found.noise)] == pytest.approx(theirs.kernel_.theta, abs=0.01)
    again = ko.log_marginal_likelihood(found.kernel, X, Y, found.noise)
    assert found.log_marginal_likelihood == again


def test_bounds_hold_and_what_is_not_named_stays():
    found = ko.maximize_likelihood(GAUSSIAN, X, Y, {"sigma": (3.0, 4.0)}, noise=0.05)
    assert found.kernel.sigma == pytest.approx(3.0, rel=1e-5)
    assert found.noise == 0.05
    found = ko.maximize_likelihood(GAUSSIAN, X, Y, {"noise": (1e-4, 10.0)})
    assert found.kernel == GAUSSIAN
    grid = np.geomspace(1e-4, 10, 200)
    assert found.log_marginal_likelihood >= max(ko.log_marginal_likelihood(GAUSSIAN, X, Y, v) for v in grid)


@pytest.mark.slow
def test_starts():
    """From far off the first start stays in a bad maximum; others find the good one, by a seed."""

    def search(n_init, seed=0):
        start, bounds = ko.kernels.Gaussian(sigma=1e3), {"sigma": (1e-3, 1e3), "noise": (1e-3, 10.0)}
        return ko.maximize_likelihood(start, X, Y, bounds, n_init=n_init, random_state=seed)

    one, many = search(1), search(5)
    assert many.log_marginal_likelihood >= one.log_marginal_likelihood
    assert many == search(5)
    with pytest.raises(OptionError, match="n_init"):
        search(0)


@dataclass(frozen=True)
class Wide(ko.kernels.Kernel):
    """A Gaussian kernel of a user, without a rule for its derivative."""

    sigma: float

    def _verdict(self):
        return GAUSSIAN._verdict()

    def _matrix(self, X, Z):
        return ko.kernels.Gaussian(self.sigma)._matrix(X, Z)

    def _diagonal(self, X):
        return np.ones(len(X))


def test_kernels_without_a_rule_are_searched_without_gradients(monkeypatch):
    bounds, calls = {"sigma": (0.1, 20.0), "noise": (1e-3, 2.0)}, []
    plain = kernel_selection.log_marginal_likelihood
    monkeypatch.setattr(kernel_selection, "log_marginal_likelihood", lambda *a: calls.append(1) or plain(*a))
    one = ko.maximize_likelihood(GAUSSIAN, X, Y, bounds)
    assert len(calls) == 1  # of the answer
    other = ko.maximize_likelihood(Wide(GAUSSIAN.sigma), X, Y, bounds)
    assert len(calls) > 20
    assert other.kernel.sigma == pytest.approx(one.kernel.sigma, rel=1e-3)
    assert other.log_marginal_likelihood == pytest.approx(one.log_marginal_likelihood, abs=1e-6)


@pytest.mark.slow
def test_a_length_scale_for_each_column():
    """The derivative by all of them at once, with two targets."""
    P = np.random.default_rng(3).normal(size=(60, 4))
    targets = np.column_stack([np.sin(2 * P[:, 0]), P[:, 1]])
    noisy = targets + 0.1 * np.random.default_rng(4).normal(size=targets.shape)
    kernel = ko.kernels.Gaussian(1.0).on([0]) * ko.kernels.Gaussian(1.0).on([1]) * ko.kernels.Gaussian(1.0).on([2])
    names = [name for name in kernel.get_params() if name.endswith("sigma")]
    found = ko.maximize_likelihood(kernel, P, noisy, dict.fromkeys(names, (0.1, 1e3)) | {"noise": (1e-4, 1.0)})
    scales = [found.kernel.get_params()[name] for name in names]
    assert scales[2] > 20 * max(scales[:2])
    assert found.noise == pytest.approx(0.01, rel=0.5)


def test_what_has_no_likelihood():
    for noise in (0, -1.0, np.inf, "a", np.ones(40)):
        with pytest.raises(OptionError, match="noise to be a number > 0"):
            ko.log_marginal_likelihood(GAUSSIAN, X, Y, noise)
    with pytest.raises(NotPSDError, match="Raise noise"):
        ko.log_marginal_likelihood(GAUSSIAN - 2 * ko.kernels.Linear(), X, Y, 0.1)
    with pytest.raises(NotPSDError):
        ko.maximize_likelihood(0.5 * ko.kernels.Constant() - ko.kernels.Linear(), X, Y, {"noise": (1e-3, 1e-2)})
    for y, error in ((Y[:-1], DataError), (Y[:, None, None], DataError), (["a"] * 40, DataTypeError)):
        with pytest.raises(error):
            ko.log_marginal_likelihood(GAUSSIAN, X, y, 0.1)
    for bounds in (
        {},
        {"sigma": 1.0},
        {"sigma": (0.0, 1.0)},
        {"sigma": (2.0, 1.0)},
        {"sigma": (1.0, np.inf)},
        ["sigma"],
    ):
        with pytest.raises(OptionError, match="Expected bounds"):
            ko.maximize_likelihood(GAUSSIAN, X, Y, bounds)
    with pytest.raises(KernelError, match="which are sigma, noise; got 'gamma'"):
        ko.maximize_likelihood(GAUSSIAN, X, Y, {"gamma": (0.1, 1.0)})


# ---------------------------------------------------------------- with cross-validation


@pytest.mark.slow
def test_a_matrix_for_each_kernel_serves_all_fits():
    """Kernels that are cached are evaluated once on the data, whatever is done with them."""
    calls = []

    def slow(a, b):
        calls.append(1)
        return float(np.exp(-np.sum((a - b) ** 2)))

    kernel = ko.kernels.FromFunction(slow, psd=True).cached(X)
    aligned = ko.kernel_alignment(kernel, X, Y)
    once = len(calls)
    ko.log_marginal_likelihood(kernel, X, Y, 0.1)
    theta, w, lam = ko.Theta(kernel), cp.Parameter(40, nonneg=True), cp.Parameter(nonneg=True, name="lam")
    problem = ko.Problem(cp.Minimize(w @ cp.square(Y - theta(X)) + lam * ko.sum_squares(theta)))
    table = ko.cross_validate(problem, w, lam, [0.1, 1.0], cv=3)
    assert len(calls) == once
    assert 0 < aligned < 1
    assert np.isfinite(table["mean"]).all()


@pytest.mark.parametrize(
    "asked",
    [
        lambda kernel, X, y: ko.kernel_alignment(kernel, X, y),
        lambda kernel, X, y: ko.aligned_kernel([kernel, ko.kernels.Linear()], X, y),
        lambda kernel, X, y: ko.estimators.KernelPerceptron(kernel=kernel).fit(X, np.sign(y - 0.5)),
    ],
)
def test_matrices_that_do_not_fit_are_refused(asked):
    """A million rows: 8 TB for each matrix."""
    X = np.arange(1e6)[:, None]
    with pytest.raises(MemoryLimitError, match="kernel matri"):
        asked(ko.kernels.Gaussian(sigma=1.0), X, X[:, 0] % 2)
