"""Norms of θM alone, which leave some outputs of θ free: bounds follow from ψ = θM, tied to θ by its predictions."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko

RNG = np.random.default_rng(0)
N = 6
X, Z = RNG.normal(size=(N, 2)), RNG.normal(size=N)
Y = RNG.normal(size=(N, 3))
KERNELS = {"Gaussian": ko.kernels.Gaussian(sigma=1.0), "linear": ko.kernels.Linear()}
MEAN = np.ones((3, 3)) / 3


def _features(kernel, X):
    if isinstance(kernel, ko.kernels.Linear):  # roots of eigenvalues near 0 would be features, which cost nothing
        return X
    values, V = np.linalg.eigh(kernel(X, X))
    return V * np.sqrt(np.maximum(values, 0))


def _truth(stated, kernel, K, X=X):
    """The least value over coefficients of the features, by cvxpy; stated : objective and constraints of Aθ and θ."""
    F = _features(kernel, X)
    W = cp.Variable((F.shape[1], K))
    objective, constraints = stated(F @ W, W)
    return cp.Problem(cp.Minimize(objective), constraints).solve(solver="CLARABEL")


def _solved(stated, kernel, K, X=X, **options):
    theta = ko.Theta(kernel, outputs=K)
    objective, constraints = stated(theta(X), theta)
    problem = ko.Problem(cp.Minimize(objective), constraints)
    problem.solve(**options)
    return problem


def _square(A):
    return ko.sum_squares(A) if isinstance(A, ko.language.expressions.ThetaExpression) else cp.sum_squares(A)


def _length(A, kind):
    return ko.norm(A, kind) if isinstance(A, ko.language.expressions.ThetaExpression) else cp.norm(A, kind)


def _one_task(u, theta):
    return cp.sum_squares(u @ np.array([1.0, 2.0]) - Z) + 0.4 * _square(theta @ np.array([[1.0], [2.0]])), []


def _deviations(u, theta):
    return cp.sum_squares(u - Y) + 0.4 * _square(theta @ (np.eye(3) - MEAN)), []


def _bounded(u, theta):
    return cp.sum(cp.abs(u - Y)), [_length(theta @ (np.eye(3) - MEAN), "fro") <= 0.5]


def _nuclear(u, theta):
    return cp.sum_squares(u - Y) + 0.7 * _length(theta @ np.array([[1.0, 0.0], [-1.0, 1.0], [0.0, -1.0]]), "nuc"), []


STATED = {
    "one task": (_one_task, 2),
    "deviations": (_deviations, 3),
    "bounded": (_bounded, 3),
    "nuclear": (_nuclear, 3),
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", STATED)
def test_bounds_are_as_good_as_where_norms_bind_all_outputs(name, kernel):
    stated, K = STATED[name]
    problem = _solved(stated, KERNELS[kernel], K)
    truth = _truth(stated, KERNELS[kernel], K)
    assert problem.status == "optimal" and problem.value == pytest.approx(truth, rel=1e-5)
    assert problem.certificate.lower <= truth + 1e-6 * abs(truth)


def test_rows_that_occur_twice_are_one():
    twice = np.vstack([X[:4], X[:2]])
    problem = _solved(_one_task, KERNELS["Gaussian"], 2, twice)
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(_truth(_one_task, KERNELS["Gaussian"], 2, twice), rel=1e-5)


def test_features_as_computed_are_told():
    kernel = ko.kernels.Polynomial(degree=2)
    problem = _solved(_deviations, kernel, 3)
    assert problem.status == "optimal" and "for features as computed" in problem.certificate.rests_on


def test_no_proof_is_written():
    problem = _solved(_deviations, KERNELS["Gaussian"], 3)
    with pytest.raises(ko.errors.KernelOptError, match="norms bind some outputs"):
        problem.certificate.exact()


def test_a_loss_that_falls_along_free_outputs_has_no_bound():
    theta = ko.Theta(KERNELS["Gaussian"], outputs=2)
    u = theta(X)
    penalty = ko.sum_squares(theta @ np.array([[1.0], [0.0]]))
    problem = ko.Problem(cp.Minimize(cp.sum(cp.pos(u[:, 0])) - cp.sum(u[:, 1]) + penalty))
    problem.solve(time_limit=5)
    assert problem.status != "optimal" and problem.certificate.lower == -np.inf
