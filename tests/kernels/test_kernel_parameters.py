"""Problems whose kernels have cvxpy parameters in place of numbers."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt import errors, kernels

X = np.random.default_rng(0).normal(size=(6, 2))


def problem(kernel, X=X, **constraints):
    lam = cp.Parameter(nonneg=True, value=0.3, name="lam")
    theta, b = ko.Theta(kernel), cp.Variable()
    y = np.sin(X[:, 0])
    return ko.Problem(cp.Minimize(cp.sum(cp.abs(y - theta(X) - b)) + lam * ko.sum_squares(theta))), theta, lam


@pytest.mark.slow
def test_a_problem_follows_its_kernel():
    sigma = cp.Parameter(pos=True, value=1.0, name="sigma")
    stated, theta, lam = problem(kernels.Gaussian(sigma))
    assert stated.parameters() == [lam, sigma] or [p.name() for p in stated.parameters()] == ["lam", "sigma"]
    for value in (1.0, 0.5, 2.0, 2.0):
        sigma.value = value
        other, f, _ = problem(kernels.Gaussian(value))
        assert stated.solve() == pytest.approx(other.solve(), rel=1e-6)
        assert stated.status == "optimal"
        assert theta.value.kernel == kernels.Gaussian(value)
        assert theta.value(X) == pytest.approx(f.value(X), abs=1e-3)
        assert stated.verify().passed
    assert "sigma" in str(stated.explain())
    sigma.value = 1.5
    assert "sigma changed since" in str(stated.explain())
    with pytest.raises(errors.KernelOptError, match="multipliers of one kernel"):
        stated.certificate_at({sigma: 3.0})


@pytest.mark.later
def test_only_the_factors_that_depend_on_it_are_made_again():
    sigma = cp.Parameter(pos=True, value=1.0)
    one, two = ko.Theta(kernels.Gaussian(sigma)), ko.Theta(kernels.Laplacian(1.0))
    y = np.sin(X[:, 0])
    objective = cp.sum_squares(one(X) + two(X) - y) + ko.sum_squares(one) + ko.sum_squares(two)
    stated = ko.Problem(cp.Minimize(objective))
    stated.solve()
    before = dict(stated._factored.reduction.factors)
    sigma.value = 2.0
    stated.solve()
    after = stated._factored.reduction.factors
    assert after[two] is before[two]
    assert after[one] is not before[one]
    other = ko.Problem(cp.Minimize(objective))
    assert stated.value == pytest.approx(other.solve(), rel=1e-7)


@pytest.mark.slow
def test_paths_over_a_kernel_parameter():
    sigma = cp.Parameter(pos=True, value=1.0, name="sigma")
    stated, _, _ = problem(kernels.Gaussian(sigma))
    w = cp.Parameter(len(X), nonneg=True, value=np.ones(len(X)))
    table = ko.path(stated, sigma, [0.5, 1.0, 2.0])
    assert len(table) == 3
    for solution in table.solutions:
        assert solution.certificate.closes(1e-6)
        other, _, _ = problem(kernels.Gaussian(solution.parameter))
        assert solution.certificate.upper == pytest.approx(other.solve(), rel=1e-5)
    theta, b = ko.Theta(kernels.Gaussian(sigma)), cp.Variable()
    losses = cp.square(np.sin(X[:, 0]) - theta(X) - b)
    weighted = ko.Problem(cp.Minimize(w @ losses + 0.1 * ko.sum_squares(theta)))
    assert len(ko.cross_validate(weighted, w, sigma, [0.5, 2.0], cv=3)["mean"]) == 2


def test_files(tmp_path):
    sigma = cp.Parameter(pos=True, value=1.5, name="sigma")
    stated, theta, _ = problem(kernels.Gaussian(sigma))
    stated.solve()
    ko.save(tmp_path / "f.zip", f=theta.value)
    assert ko.load(tmp_path / "f.zip")["f"].kernel == kernels.Gaussian(1.5)


@pytest.mark.later
def test_fitted_functions_belong_to_one_value():
    sigma = cp.Parameter(pos=True, value=1.5, name="sigma")
    stated, theta, _ = problem(kernels.Gaussian(sigma))
    stated.solve()
    near = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - 1) + ko.sum_squares(theta - theta.value)))
    near.solve()
    sigma.value = 1.0
    with pytest.raises(errors.KernelOptError):
        near.solve()
