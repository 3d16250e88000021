"""What is made of a solver's answer: values of the functions that are returned, constraints that hold, and a status."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko

RNG = np.random.default_rng(0)
X, NOISE = RNG.uniform(size=(40, 1)), RNG.normal(size=40)


@pytest.mark.parametrize(
    ("strength", "options"),
    [
        pytest.param(1e-14, {"rank_tol": 1e-17}, id="coefficients of 1e11"),
        pytest.param(1e-9, {"dtype": "float32"}, id="a factor in single precision"),
    ],
)
def test_the_value_is_that_of_the_function(strength, options):
    """Predictions Bv may be off by far more than rounding; the value is that of f."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=0.3))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - NOISE) + strength * ko.sum_squares(theta)))
    problem.solve(tol=1e-4, **options)
    f = theta.value
    assert problem.value == pytest.approx(np.sum((f(X) - NOISE) ** 2) + strength * f.norm**2, rel=5e-9)


LABELS = np.sign(NOISE)
CONSTRAINTS = {
    "shorter": (lambda f: cp.norm(f) <= 1, "SCS"),
    "longer": (lambda f: cp.multiply(LABELS[:10], f[:10]) >= 1, None),
    "longer, for logarithms": (lambda f: cp.sum(cp.log(f[:5])) >= 1, "CLARABEL"),
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_an_answer_is_scaled_into_its_constraints(name, monkeypatch):
    """Where the steps along constraints do not help."""
    monkeypatch.setattr(ko.driver.judgement.projection, "moved", lambda *_: None)
    stated, solver = CONSTRAINTS[name]
    theta = ko.Theta(ko.kernels.Gaussian(sigma=0.3))
    f = theta(X)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(f - NOISE) + 0.1 * ko.sum_squares(theta)), [stated(f)])
    problem.solve(solver=solver, tol=1e-5 if solver == "SCS" else 1e-6)
    assert problem.status == "optimal"
    assert np.max(problem.constraints[0].violation()) == 0
    assert problem.value == pytest.approx(problem.objective.value, rel=1e-9)
