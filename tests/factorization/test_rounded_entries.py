"""Kernel matrices whose entries were rounded to float32 or float16, and projected ones of lower rank."""

import cvxpy as cp
import numpy as np
import pytest
from stating import TIGHT

import kernelopt as ko

N = 60


def given(dtype, rank=10, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, rank)).astype(dtype)
    return X @ X.T, rng.normal(size=N)


def optimum(Q, y, loss):
    """By hand, with BBᵀ = Q."""
    values, V = np.linalg.eigh(Q)
    w = cp.Variable(len(Q))
    problem = cp.Problem(cp.Minimize(loss(y - (V * np.sqrt(values.clip(0.0))) @ w) + 0.3 * cp.sum_squares(w)))
    return problem.solve(solver="CLARABEL", **TIGHT)


def without_rounding(Q):
    """Q̃: eigenvalues up to |λ_min| are 0."""
    values, V = np.linalg.eigh((Q + Q.T) / 2)
    return (V * np.where(values > -values[0], values, 0.0)) @ V.T


def solved(Q, y, loss, **options):
    theta = ko.Theta(ko.kernels.Precomputed(Q))
    problem = ko.Problem(cp.Minimize(loss(y - theta(np.arange(N))) + 0.3 * ko.sum_squares(theta)))
    problem.solve(**options)
    return problem


@pytest.mark.parametrize("loss", [cp.sum_squares, cp.norm1])
@pytest.mark.parametrize(("dtype", "distance"), [(np.float32, 1e-6), (np.float16, 1e-3)])
def test_rounded_gram_matrix(dtype, distance, loss):
    Q, y = given(dtype)
    problem, exact = solved(Q, y, loss), Q.astype(float)
    assert problem.status == "optimal" and problem.certificate.scope == "full kernel"
    (told,) = problem.certificate.rests_on
    assert "within the rounding of entries" in told and "‖Q − Q̃‖" in told and told in str(problem.certificate)
    nearest = without_rounding(exact)
    assert np.linalg.norm(exact - nearest) <= distance * np.linalg.norm(exact)
    truth = optimum(nearest, y, loss)
    assert problem.value == pytest.approx(truth, rel=1e-8)
    assert problem.certificate.lower - 1e-8 * truth <= truth <= problem.certificate.upper + 1e-8 * truth


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.float64])
def test_entries_as_given(dtype):
    """Integers are exact, and rounding in double precision is not projected."""
    X = np.random.default_rng(1).integers(-3, 4, size=(N, 4))
    Q, y = (X @ X.T).astype(dtype), np.random.default_rng(2).normal(size=N)
    problem = solved(Q, y, cp.sum_squares)
    assert problem.status == "optimal" and not problem.certificate.rests_on
    assert problem.value == pytest.approx(optimum((X @ X.T).astype(float), y, cp.sum_squares), rel=1e-8)


def test_beyond_rounding_is_refused():
    Q, y = given(np.float32)
    Q[0, 1] = Q[1, 0] = Q[0, 1] + 1.0
    with pytest.raises(ko.errors.NotPSDError, match="positive semidefinite"):
        solved(Q, y, cp.sum_squares)


@pytest.mark.parametrize("rank", [2, 5, 20])
def test_bound_of_a_projection_of_lower_rank(rank):
    """The bound holds for Q̃, which is larger than Q: a pass over Q itself would prove too much."""
    rng = np.random.default_rng(3)
    A = rng.normal(size=(N, N))
    Q, y = A @ A.T / N - 0.5 * np.eye(N), rng.normal(size=N)
    values, V = np.linalg.eigh(Q)
    truth = optimum((V * values.clip(0.0)) @ V.T, y, cp.norm1)
    problem = solved(Q, y, cp.norm1, indefinite="clip", max_rank=rank)
    assert problem.certificate.lower <= truth * (1 + 1e-8) and problem.value >= truth * (1 - 1e-8)
