"""What is made of a solver's answer: values of the functions that are returned, constraints that hold, and a status."""

from itertools import pairwise

import cvxpy as cp
import numpy as np
import pytest
from sklearn.model_selection import ShuffleSplit

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


@pytest.mark.filterwarnings("ignore")
def test_a_first_order_solver_far_from_another_gets_no_second_run(monkeypatch):
    """An optimum of 0 that no solver proves: SCS's second run took seconds, and its gap was 1e5 times another's."""
    solved, solve = [], ko.Problem.solve
    monkeypatch.setattr(ko.Problem, "solve", lambda self, *args, **kw: solved.append(self) or solve(self, *args, **kw))
    rng = np.random.RandomState(0)
    points, labels = rng.normal(loc=100, size=(100, 2)), rng.randint(2, size=100)
    train, _ = next(ShuffleSplit(test_size=0.2, random_state=rng).split(points))
    ko.estimators.NuKernelClassifier(nu=0.1).fit(points[train], labels[train])
    names = [attempt.solver for attempt in solved[0].solver_stats.attempts]
    assert "SCS" in names and ("SCS", "SCS") not in pairwise(names)
    assert solved[0].status == "optimal_inaccurate" and abs(solved[0].value) < 1e-8
