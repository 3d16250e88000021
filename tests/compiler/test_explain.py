"""explain() tells the reduction, and never raises."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.compiler.text import describe

X = np.random.default_rng(0).normal(size=(20, 2))
y = np.where(X[:, 0] > 0, 1.0, -1.0)


@pytest.fixture
def theta():
    return ko.Theta(ko.kernels.Gaussian(sigma=1.5))


def svm(theta):
    b = cp.Variable(name="b")
    return ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(y, theta(X) + b)) + 0.5 * ko.sum_squares(theta)))


def test_before_and_after(theta):
    problem = svm(theta)
    before = str(problem.explain())
    assert "minimize  Σ max(0, 1 − [20 data]·(A·θ + b)) + 0.5·‖θ‖²" in before
    assert "Aθ in 1 place · ‖θ‖ in 1 place, nondecreasing · the representer theorem applies" in before
    assert "N = 20 rows, p = ∞ features, Gaussian(sigma=1.5)" in before
    assert "not yet" in before
    value = problem.solve()
    after = str(problem.explain())
    rank = problem._reduction[1].factors[theta].rank
    assert f"B 20 × {rank}" in after
    assert f"{rank + 1} variables (w_θ, b)" in after
    assert "CLARABEL" in after
    assert f"optimal, value {value:.7g}" in after


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda t: ko.Problem(cp.Minimize(-ko.norm(t))), "does not apply, in 1 place"),
        (lambda t: ko.Problem(cp.Minimize(cp.sqrt(ko.norm(t)))), "not convex"),
        (lambda t: ko.Problem(cp.Minimize(cp.sum(t(X) * np.nan))), "NaN"),
        (lambda t: ko.Problem(cp.Minimize(cp.Variable() ** 2)), "rules"),
        (lambda t: ko.Problem(cp.Minimize(cp.sum_squares(y[:, None] - t(X)))), "table"),
    ],
)
def test_never_raises(build, words, theta):
    assert words in str(build(theta).explain())


def test_status_carries_its_remedy(theta):
    problem = ko.Problem(cp.Minimize(cp.sum(theta(X))))
    problem.solve()
    assert problem.status == "unbounded"
    assert "penalize ko.norm(theta)" in str(problem.explain())


def test_descriptions(theta):
    assert describe(ko.norm(theta) <= 3) == "‖θ‖ ≤ 3"
    assert describe(theta(X) == 0) == "A·θ = 0"
    matrix = ko.Theta(ko.kernels.Linear(), outputs=2, name="Θ")
    assert describe(ko.norm(matrix, "nuc") ** 2) == "‖Θ‖_nuc²"
    assert len(describe(cp.Minimize(sum(theta(X[:i]) @ y[:i] for i in range(2, 20))))) == 120
    assert str(svm(theta)).startswith("             minimize") or "minimize" in str(svm(theta))
