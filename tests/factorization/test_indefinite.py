"""Indefinite kernel matrices: refused by default, projected on request, and what that costs is said."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.errors import NotPSDError, OptionError
from kernelopt.factorization import Settings, dense
from kernelopt.factorization.streamed import streamed_cholesky
from kernelopt.language.rows import Rows

RNG = np.random.default_rng(0)
X, y = RNG.normal(size=(40, 2)), RNG.normal(size=40)
SIGMOID = ko.kernels.Sigmoid(scale=1.0, offset=-1.0)


def ridge(kernel, data=X, **options):
    theta = ko.Theta(kernel)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(data)) + 0.5 * ko.sum_squares(theta)))
    value = problem.solve(**options)
    return problem, theta, value


def changed(Q, mode):
    values, V = np.linalg.eigh(Q)
    values = {"clip": values.clip(0), "flip": abs(values), "shift": values - min(values[0], 0)}[mode]
    return V @ np.diag(values) @ V.T


@pytest.mark.parametrize("factorization", ["cholesky", "eigen"])
def test_refused_by_default_with_three_ways_out(factorization):
    with pytest.raises(NotPSDError) as refusal:
        ridge(SIGMOID, factorization=factorization)
    message = str(refusal.value)
    assert f"{np.linalg.eigvalsh(SIGMOID(X))[0]:.3g}" in message
    assert all(way in message for way in ("clip", "flip", "shift"))
    with pytest.raises(OptionError, match="raise, clip, flip, shift"):
        ridge(SIGMOID, indefinite="ignore")


@pytest.mark.parametrize("mode", ["clip", "flip", "shift"])
@pytest.mark.parametrize("precomputed", [False, True])
def test_projections(mode, precomputed):
    """The value is that of the changed matrix; predictions come from the kernel, and agree with it."""
    Q = SIGMOID(X)
    Q = (Q + Q.T) / 2
    data = np.arange(40) if precomputed else X
    kernel = ko.kernels.Precomputed(Q) if precomputed else SIGMOID
    problem, theta, value = ridge(kernel, data, indefinite=mode, rank_tol=1e-12, tol=1e-8)
    Qt = changed(Q, mode)
    alpha = np.linalg.solve(Qt + 0.5 * np.eye(40), y)
    assert value == pytest.approx(np.sum((y - Qt @ alpha) ** 2) + 0.5 * alpha @ Qt @ alpha, rel=1e-7)
    assert np.abs(theta(data).value - Qt @ alpha).max() < 1e-6
    assert ko.norm(theta).value == pytest.approx(np.sqrt(alpha @ Qt @ alpha), rel=1e-5)
    distance = np.linalg.norm(Qt - Q) / np.linalg.norm(Q)
    assert f"{mode} (‖Q − Q̃‖ = {distance:.2g}·‖Q‖)" in str(problem.explain())


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["clip", "flip", "shift"])
def test_projections_of_everything_at_once(mode):
    """Repeated rows, slopes, several outputs, other norms: predictions and norms are those of the reduced problem."""
    kernel = ko.kernels.Gaussian(1.0) - 0.9 * ko.kernels.Gaussian(3.0)
    A = ko.FeatureMatrix(np.vstack([X, X[:5]]), kernel)
    theta = ko.Theta(kernel, outputs=2)
    Y = np.column_stack([y, -y])
    fit = cp.sum_squares((A @ theta)[:40] - Y) + cp.sum_squares(A.derivative(0) @ theta)
    problem = ko.Problem(cp.Minimize(fit + 0.3 * ko.norm(theta, "nuc") + 0.1 * ko.norm(theta[:, 0])))
    with pytest.raises(NotPSDError):
        problem.solve()
    problem.solve(indefinite=mode)
    form = problem.canonical_form()
    u = form.predictions[0].u.value
    assert np.abs((A @ theta).value - u[:45]).max() < 1e-8
    assert np.abs((A.derivative(0) @ theta).value - u[45:]).max() < 1e-8
    values, V = np.linalg.eigh(changed(with_slopes(1.0) - 0.9 * with_slopes(3.0), mode))
    rank = problem.certificate.ranks[0][0]
    w = V[:, -rank:].T @ np.vstack([u[:40], u[45:85]]) / np.sqrt(values[-rank:])[:, None]
    assert ko.norm(theta, "nuc").value == pytest.approx(np.linalg.norm(w, "nuc"), rel=1e-6)
    assert ko.norm(theta[:, 0]).value == pytest.approx(np.linalg.norm(w[:, 0]), rel=1e-6)


def with_slopes(sigma):
    """The kernel matrix of values and slopes in the first column: ∂k = −d/σ²·k and ∂∂′k = (1/σ² − d²/σ⁴)k."""
    k = ko.kernels.Gaussian(sigma)(X)
    d = np.subtract.outer(X[:, 0], X[:, 0]) / sigma**2
    return np.block([[k, d * k], [-d * k, (1 / sigma**2 - d**2) * k]])


@pytest.mark.parametrize("mode", ["clip", "flip", "shift"])
def test_a_projection_leaves_what_is_positive_semidefinite_alone(mode):
    gaussian = ko.kernels.Gaussian(sigma=1.0)
    problem, _, value = ridge(gaussian - 0.0 * gaussian, indefinite=mode)
    assert value == pytest.approx(ridge(gaussian)[2], rel=1e-7)
    assert "pivoted Cholesky" in str(problem.explain())


def test_negative_definite():
    _, theta, value = ridge(ko.kernels.Precomputed(-np.eye(40)), np.arange(40), indefinite="clip")
    assert value == pytest.approx(np.sum(y**2))
    assert np.array_equal(theta.value.from_gram(np.ones((2, 40))), np.zeros(2))


def almost_psd(n, smallest):
    V = np.linalg.qr(RNG.normal(size=(n, n)))[0]
    values = np.r_[smallest, np.geomspace(1e-14, 1.0, n - 1)]
    Q = (V * values) @ V.T
    return ko.kernels.Precomputed((Q + Q.T) / 2)


@pytest.mark.parametrize(
    ("smallest", "refused"), [(-1e-6, True), (-1e-8, True), (-1e-9, True), (-1e-12, False), (0, False)]
)
def test_the_check_sees_what_the_factor_does_not(smallest, refused):
    """An eigenvalue of −1e-9 hides below the factor's tolerance of 1e-8."""
    kernel, data = almost_psd(40, smallest), np.arange(40)
    if refused:
        with pytest.raises(NotPSDError):
            ridge(kernel, data)
    else:
        ridge(kernel, data)


def test_tolerance_follows_the_precision_of_the_input():
    Q = ko.kernels.Gaussian(sigma=2.0)(X)
    single = ((Q + Q.T) / 2).astype(np.float32)
    assert np.linalg.eigvalsh(single.astype(float))[0] < -1e-10 * np.linalg.eigvalsh(single.astype(float))[-1]
    ridge(ko.kernels.Precomputed(single), np.arange(40))
    with pytest.raises(NotPSDError):
        ridge(ko.kernels.Precomputed(single.astype(np.float64)), np.arange(40))


def test_eigenvalues_are_computed_only_where_cholesky_fails(monkeypatch):
    calls, ours = [], dense.sl.eigvalsh
    monkeypatch.setattr(dense.sl, "eigvalsh", lambda *a, **k: calls.append(a) or ours(*a, **k))
    ridge(almost_psd(40, 1e-3), np.arange(40))
    ridge(almost_psd(40, -1e-12), np.arange(40))
    assert not calls
    with pytest.raises(NotPSDError):
        ridge(almost_psd(40, -1e-9), np.arange(40))
    assert len(calls) == 1


def test_integrals_beside_a_shift():
    """Rows of means over intervals keep their kind where a multiple of Delta is added to their kernel."""
    kernel = ko.kernels.Gaussian(1.0) - 0.9 * ko.kernels.Gaussian(3.0)
    points = np.linspace(-1, 1, 20)[:, None]
    theta, A = ko.Theta(kernel), ko.FeatureMatrix(points, kernel)
    means = ko.integral([-1.0, 0.0], [0.0, 1.0], kernel) @ theta
    fit = cp.sum_squares(A @ theta - points[:, 0]) + cp.sum_squares(means)
    problem = ko.Problem(cp.Minimize(fit + 0.1 * ko.norm(theta) ** 2))
    problem.solve(indefinite="shift")
    assert problem.canonical_form().predictions[0].u.value == pytest.approx(
        np.concatenate([(A @ theta).value, means.value]), abs=1e-8
    )
    assert np.array_equal(theta.value.centers[:20], points)


@pytest.mark.parametrize("rule", [True, False])
def test_a_false_declaration_is_refused_before_any_pivot(rule):
    """Where few pivots are taken, no entry of diag(E) need become negative."""
    rng = np.random.default_rng(0)
    points = np.stack([10 * rng.normal(size=40), rng.uniform(2, 3, size=40), rng.normal(size=40).clip(-1, 1)], axis=1)
    false = ko.kernels.FromFunction(lambda a, b: float(a[:2] @ b[:2] - a[2] * b[2]), psd=True)
    kernel = false if rule else false + ko.kernels.FromFunction(lambda a, b: 0.0)
    with pytest.raises(NotPSDError, match="indefinite"):
        streamed_cholesky(Rows.of_points(kernel, kernel.rows(points)), Settings(1e-8, 1))
