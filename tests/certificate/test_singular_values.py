"""Enclosures of nuclear and spectral norms contain the exact optimum, computed with 50 digits."""

import cvxpy as cp
import mpmath as mp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.support.singular import singular_values


def nearly_of_rank_one(seed, K=2):
    """U·diag(1, ε, …)·Vᵀ with ε about 1e-8: its square has singular values below the unit roundoff."""
    rng = np.random.default_rng(seed)
    U, V = (np.linalg.qr(rng.normal(size=(K, K)))[0] for _ in range(2))
    return U @ np.diag([1.0, *10 ** rng.uniform(-9, -7.9, size=K - 1)]) @ V.T


def exact_norm(W, kind):
    values = mp.svd_r(mp.matrix(W), compute_uv=False)
    return sum(values) if kind == "nuc" else max(values)


@pytest.mark.later
@pytest.mark.parametrize(
    ("kind", "K", "size", "maximize"), [("nuc", 2, 1.0, False), ("nuc", 3, 1e-8, True), (2, 2, 1.0, False)]
)
def test_norms_of_theta(kind, K, size, maximize):
    for seed in (0, 1):
        Y = size * nearly_of_rank_one(seed, K)
        theta = ko.Theta(ko.kernels.Linear(), outputs=K)
        value = ko.norm(theta, kind)
        problem = ko.Problem(cp.Maximize(-value) if maximize else cp.Minimize(value), [theta(np.eye(K)) == Y])
        problem.solve()
        with mp.workdps(50):
            truth = exact_norm(Y.tolist(), kind)
            low, high = sorted(abs(end) for end in (problem.certificate.lower, problem.certificate.upper))
            assert low <= truth <= high
            assert high - truth <= 1e-12 * truth
        assert problem.status == "optimal"


@pytest.mark.later
def test_nuclear_norm_of_theta_with_a_gaussian_kernel():
    """θ(X) = Y determines the part of θ that counts, and ‖θ‖* is that of L⁻¹Y."""
    X, Y = np.linspace(0, 3, 4)[:, None], np.repeat(nearly_of_rank_one(5), 2, axis=0)
    Y[1::2] *= 0.5
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=2)
    problem = ko.Problem(cp.Minimize(ko.norm(theta, "nuc")), [theta(X) == Y])
    problem.solve()
    with mp.workdps(50):
        Q = mp.matrix(4, 4)
        for i in range(4):
            for j in range(4):
                Q[i, j] = mp.exp(-((mp.mpf(X[i, 0]) - mp.mpf(X[j, 0])) ** 2) / 2)
        truth = exact_norm((mp.inverse(mp.cholesky(Q)) * mp.matrix(Y.tolist())).tolist(), "nuc")
        assert problem.certificate.lower <= truth <= problem.certificate.upper
        assert problem.certificate.upper - truth <= 1e-10 * truth


@pytest.mark.later
@pytest.mark.parametrize("kind", ["nuc", 2])
def test_norms_of_predictions(kind):
    Y = nearly_of_rank_one(7)
    theta = ko.Theta(ko.kernels.Linear(), outputs=2)
    value = cp.normNuc(theta(np.eye(2))) if kind == "nuc" else cp.sigma_max(theta(np.eye(2)))
    problem = ko.Problem(cp.Minimize(value + 0.5 * ko.sum_squares(theta)), [theta(np.eye(2)) == Y])
    problem.solve()
    with mp.workdps(50):
        truth = exact_norm(Y.tolist(), kind) + sum(mp.mpf(entry) ** 2 for entry in Y.ravel().tolist()) / 2
        assert problem.certificate.lower <= truth <= problem.certificate.upper


@pytest.mark.parametrize("size", [1.0, 1e-200, 1e200])
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (2, 4), (40, 2)])
def test_the_bound_on_singular_values_holds_and_is_small(shape, size):
    rng = np.random.default_rng(sum(shape))
    V = rng.normal(size=shape) @ np.diag(10.0 ** -np.arange(0, 4 * shape[1], 4)) * size
    found = singular_values(V)
    with mp.workdps(50):
        exact = mp.svd_r(mp.matrix(V.tolist()), compute_uv=False)
        off = [abs(mp.mpf(a) - b) for a, b in zip(found.values, exact, strict=True)]
        within = [found.relative * mp.mpf(a) + found.absolute for a in found.values]
        assert all(a <= b for a, b in zip(off, within, strict=True))
        assert sum(off) <= found.error_of_sum
        assert within[0] <= 1e-12 * exact[0]


def test_no_singular_values():
    found = singular_values(np.zeros((0, 3)))
    assert not len(found.values)
    assert found.error_of_sum == 0.0
