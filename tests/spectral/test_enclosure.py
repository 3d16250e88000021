"""Bounds with the full kernel hold at every rank, against eigenvalues of explicit matrices."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import scipy.linalg as sl
from inside import point_of, reduction_of

import kernelopt as ko
from kernelopt.kernels.derivatives import lifted, with_order
from kernelopt.spectral import enclosure as bounds
from kernelopt.spectral.spectral_problems import decomposed

N = 60
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
WEIGHTS, DIRECTIONS, TABLE = RNG.uniform(1, 2, N), RNG.normal(size=(3, N)), RNG.normal(size=(7, N))
SMOOTH, ROUGH = ko.kernels.Gaussian(sigma=2.0), ko.kernels.Gaussian(sigma=0.4)


def truth(kernel, M, G):
    """λ_max of MAP(MAP)ᵀ, P the projection on the null space of GᵀA, for A = VΛ^½."""
    values, V = np.linalg.eigh(kernel(X))
    A = V * np.sqrt(values.clip(0.0))
    return np.linalg.norm(M @ A @ sl.null_space(G.T @ A) if G.size else M @ A, 2) ** 2


# name: (objective of u, constraints on u, M, G)
NOTHING = np.zeros((N, 0))
FORMS = {
    "plain": (cp.norm, lambda u: [], np.eye(N), NOTHING),
    "centered": (lambda u: cp.norm(u - cp.mean(u)), lambda u: [], np.eye(N) - 1 / N, NOTHING),
    "weights": (lambda u: cp.norm(cp.multiply(WEIGHTS, u)), lambda u: [], np.diag(WEIGHTS), NOTHING),
    "constraints": (cp.norm, lambda u: [DIRECTIONS @ u == 0], np.eye(N), DIRECTIONS.T),
    "both": (lambda u: cp.norm(TABLE @ u), lambda u: [DIRECTIONS @ u == 0], TABLE, DIRECTIONS.T),
    "few rows": (lambda u: cp.norm(u[:9]), lambda u: [u[52:] == 0], np.eye(N)[:9], np.eye(N)[:, 52:]),
}


@pytest.mark.one_row
@pytest.mark.parametrize("way", ["trace", "whole matrix", "residual"])
@pytest.mark.parametrize("rank", [1, 3, 10, 30, None])
@pytest.mark.parametrize("kernel", [SMOOTH, ROUGH], ids=["smooth", "rough"])
@pytest.mark.parametrize("name", FORMS)
def test_the_truth_is_enclosed(name, kernel, rank, way, monkeypatch):
    objective, constraints, M, G = FORMS[name]
    monkeypatch.setattr(bounds, "LARGEST", 2000 if way == "whole matrix" else 0)
    theta = ko.Theta(kernel)
    problem = ko.Problem(cp.Maximize(objective(theta(X))), [ko.norm(theta) <= 2, *constraints(theta(X))])
    problem.solve(max_rank=rank, certify="estimate" if way == "trace" else True)
    found, optimum = problem.certificate, 2 * np.sqrt(truth(kernel, M, G))
    assert found.scope == "full kernel"
    slack = found.rounding + found.floor
    assert found.lower - slack <= optimum <= found.upper + slack
    assert found.lower - slack <= problem.value <= found.upper + slack
    if way == "whole matrix":
        assert found.upper <= optimum * (1 + 1e-6) + slack
    if problem.status == "optimal":
        assert abs(problem.value - optimum) <= 1e-6 * optimum + slack
    else:
        assert rank is not None or way == "trace", found


def solved(kernel, objective, constraints, rank):
    theta = ko.Theta(kernel)
    problem = ko.Problem(cp.Maximize(objective(theta(X))), [ko.norm(theta) <= 1, *constraints(theta(X))])
    problem.solve(max_rank=rank)
    form = problem._spectral
    return decomposed(form, form.numbers(), reduction_of(problem), point_of(problem))


@pytest.mark.parametrize("name", FORMS)
def test_residuals_count_to_second_order(name):
    """One pass over the kernel makes the bound far tighter than the trace of what the factor leaves."""
    objective, constraints, M, G = FORMS[name]
    found = solved(SMOOTH, objective, constraints, 25)
    largest = truth(SMOOTH, M, G) / found.factor.scale
    left = bounds.what_is_left(found)
    by_trace, by_residual = found.top.bound + left, bounds._of_residual(found, left)
    assert largest * (1 - 1e-10) <= by_residual
    assert by_residual - largest <= 0.01 * (by_trace - largest)


@pytest.mark.parametrize("name", ["both", "few rows", "constraints"])
def test_what_is_left_bounds_its_matrix(name):
    """δ ≥ λ_max(M′EM′ᵀ), at constraints that are far from eigenvectors too."""
    objective, constraints, M, G = FORMS[name]
    for kernel, rank in ((ROUGH, 20), (SMOOTH, 20)):
        found = solved(kernel, objective, constraints, rank)
        B = found.factor.B
        E = kernel(X) / found.factor.scale - B @ B.T
        L = np.eye(N) - B @ found.side.pseudoinverse @ G.T
        assert np.linalg.eigvalsh(M @ L @ E @ L.T @ M.T)[-1] <= bounds.what_is_left(found)
        assert bounds._tilt(found) == pytest.approx(np.linalg.norm(L, 2), rel=1e-6)
        if name == "constraints":
            expected = np.trace(E) * np.linalg.norm(L, 2) ** 2
            assert bounds.what_is_left(found) == pytest.approx(expected, rel=1e-6)


def test_many_equal_eigenvalues_do_not_loosen_the_bound():
    """What the leading vectors leave has a norm far larger than its largest eigenvalue."""
    found = solved(ko.kernels.Gaussian(sigma=0.05), cp.norm, lambda u: [], 57)
    left = bounds.what_is_left(found)
    assert bounds._of_residual(found, left) <= 1.001 * (found.top.bound + left)


def test_a_point_that_is_feasible_only_nearly():
    """Its length is reduced by what the violation may be worth, and scaled."""
    found = solved(ROUGH, *FORMS["constraints"][:2], None)
    (u,) = found.point.u
    attained, feasible = bounds.lengths(found)
    assert feasible == pytest.approx(attained, rel=1e-12)
    longer = replace(found.point, u=(1.1 * u,), t=np.array([1.1]))
    assert bounds.lengths(found._replace(point=longer)) == pytest.approx((1.1 * attained, attained), rel=1e-12)
    e = np.array([1e-3, -2e-3, 1e-3])
    moved = replace(found.point, u=(u + found.factor.B @ found.side.pseudoinverse @ e,), t=np.ones(1))
    found = found._replace(point=moved)
    assert bounds.lengths(found)[1] <= attained
    assert bounds.lengths(found)[0] - bounds.lengths(found)[1] == pytest.approx(np.linalg.norm(found.side.lift @ e))


def test_bounds_that_cross_prove_nothing():
    found = solved(ROUGH, *FORMS["plain"][:2], None)
    wrong = found._replace(top=found.top._replace(bound=0.9 * found.top.bound))
    certificate = bounds.certify(wrong, 1e-6, None, may_pass=False)
    assert certificate.upper == np.inf
    assert "differ" in str(certificate)
    assert not certificate.closes(1e-6)


def test_rows_of_mixed_kinds():
    """Values and slopes of a narrow kernel, whose units differ by 1e6: what is left is measured in the units of Q."""
    kernel = ko.kernels.Gaussian(sigma=1e-3)
    points = np.linspace(0, 0.02, 15)[:, None]
    A = ko.FeatureMatrix(points, kernel)
    theta = ko.Theta(kernel)
    u = cp.hstack([A @ theta, A.derivative(0) @ theta])
    rows = np.concatenate([with_order(points, ()), with_order(points, (0,))])
    optimum = np.sqrt(np.linalg.eigvalsh(lifted(kernel)._matrix(rows, None))[-1])
    problem = ko.Problem(cp.Maximize(cp.norm(u)), [ko.norm(theta) <= 1])
    for rank in (5, 20, None):
        problem.solve(max_rank=rank, certify="estimate")
        found = problem.certificate
        assert found.lower - found.floor <= optimum <= found.upper + found.floor


def test_eigen_residual_against_explicit_matrices():
    objective, constraints, M, G = FORMS["both"]
    found = solved(ROUGH, objective, constraints, 12)
    u, Q = found.point.u[0], ROUGH(X)
    free = sl.null_space((Q @ np.column_stack([G, np.linalg.solve(Q, u)])).T)  # orthogonal to QG and u
    target = Q @ M.T @ M @ u
    expected = np.linalg.norm(free.T @ target) / np.linalg.norm(target)
    assert expected > 1e-2
    assert bounds.eigen_residual(found.form, found.numbers, found.point) == pytest.approx(expected, rel=1e-6)
