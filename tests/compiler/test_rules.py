"""The rules table: every row accepted or refused as it says."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.errors import DataError, DCPError, RepresenterError

X = np.random.default_rng(0).normal(size=(12, 2))
y = np.where(X[:, 0] > 0, 1.0, -1.0)
b = cp.Variable(name="b")
nonneg, unsigned = cp.Parameter(nonneg=True, value=1.0), cp.Parameter(value=1.0)


@pytest.fixture
def theta():
    return ko.Theta(ko.kernels.Gaussian(sigma=1.0))


ACCEPTED = {
    "any expression of predictions, convex": lambda t: (cp.Minimize(cp.sum_squares(t(X) - y)), []),
    "any expression of predictions, concave": lambda t: (cp.Minimize(cp.sum(cp.sqrt(cp.abs(t(X))))), []),
    "equalities of predictions": lambda t: (cp.Minimize(0), [t(X) == y]),
    "norm penalized": lambda t: (cp.Minimize(cp.sum(t(X)) + ko.norm(t)), []),
    "norm penalized by a parameter": lambda t: (cp.Minimize(nonneg * ko.sum_squares(t)), []),
    "norm in a nondecreasing nonconvex place": lambda t: (cp.Minimize(cp.sqrt(ko.norm(t))), []),
    "norm in an exponential": lambda t: (cp.Minimize(cp.exp(ko.norm(t)) + cp.sum(t(X))), []),
    "absolute value of a norm": lambda t: (cp.Minimize(cp.abs(ko.norm(t)) + cp.sum(t(X))), []),
    "maximize minus norm": lambda t: (cp.Maximize(cp.min(t(X)) - ko.norm(t)), []),
    "twice negated": lambda t: (cp.Minimize(-2 * (-1 * ko.norm(t))), []),
    "norm bounded": lambda t: (cp.Minimize(cp.sum(t(X))), [ko.norm(t) <= 1]),
    "norm bounded from the right": lambda t: (cp.Minimize(cp.sum(t(X))), [ko.norm(t) <= 1]),
    "norm bounded by a variable": lambda t: (cp.Minimize(b), [ko.norm(t) <= b]),
    "tightening": lambda t: (cp.Minimize(ko.sum_squares(t)), [0.3 * ko.norm(t) <= t(X) + 2]),
    "second-order cone": lambda t: (cp.Minimize(b), [cp.SOC(b - ko.norm(t), t(X))]),
    "no norm at all": lambda t: (cp.Minimize(cp.sum_squares(t(X) - y)), []),
    "integer variable": lambda t: (cp.Minimize(ko.norm(t)), [t(X) <= cp.Variable(12, integer=True)]),
}
REJECTED = {
    "minus norm": lambda t: (cp.Minimize(-ko.norm(t)), []),
    "norm maximized": lambda t: (cp.Maximize(ko.norm(t)), []),
    "norm bounded from below": lambda t: (cp.Minimize(0), [ko.norm(t) >= 1]),
    "norm fixed": lambda t: (cp.Minimize(0), [ko.norm(t) == 1]),
    "square of a difference": lambda t: (cp.Minimize(cp.square(ko.norm(t) - 3)), []),
    "absolute difference": lambda t: (cp.Minimize(cp.abs(ko.norm(t) - 3)), []),
    "reciprocal": lambda t: (cp.Minimize(cp.inv_pos(ko.norm(t))), []),
    "factor of unknown sign": lambda t: (cp.Minimize(unsigned * ko.sum_squares(t)), []),
    "times a variable": lambda t: (cp.Minimize(b * ko.norm(t)), []),
    "negative weight": lambda t: (cp.Minimize(-0.5 * ko.sum_squares(t) + cp.sum_squares(t(X))), []),
    "head of a cone": lambda t: (cp.Minimize(0), [cp.SOC(ko.norm(t), t(X))]),
    "body of a cone": lambda t: (cp.Minimize(0), [cp.SOC(b, cp.hstack([ko.norm(t) - 2, b]))]),
    "semidefinite": lambda t: (cp.Minimize(0), [cp.bmat([[ko.norm(t), b], [b, 1]]) >> 0]),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name, theta):
    assert ko.Problem(*ACCEPTED[name](theta)).is_representable()


@pytest.mark.parametrize("name", REJECTED)
def test_rejected(name, theta):
    problem = ko.Problem(*REJECTED[name](theta))
    assert not problem.is_representable()
    with pytest.raises(RepresenterError) as refusal:
        problem.solve()
    message = str(refusal.value)
    assert "‖θ‖" in message  # the sub-expression
    assert "rule:" in message
    assert "instead:" in message  # a way out
    assert theta.value is None


def test_the_remedies_work(theta):
    problem = ko.Problem(cp.Minimize(unsigned * ko.sum_squares(theta)))
    with pytest.raises(RepresenterError, match=r"cp\.Parameter\(nonneg=True\)"):
        problem.solve()
    with pytest.raises(RepresenterError, match=r"write `‖θ‖ <= R`"):
        ko.Problem(cp.Minimize(0), [ko.norm(theta) == 1]).solve()
    with pytest.raises(RepresenterError, match=r"lam ≥ 0"):
        ko.Problem(cp.Minimize(-ko.norm(theta))).solve()


def test_every_violation_is_listed(theta):
    other = ko.Theta(ko.kernels.Linear(), name="φ")
    problem = ko.Problem(
        cp.Minimize(-ko.norm(theta)), [ko.norm(other) >= 1, ko.norm(theta) == 2, ko.norm(theta) <= 3, theta(X) <= 1]
    )
    with pytest.raises(RepresenterError) as refusal:
        problem.solve()
    assert [v.place for v in refusal.value.violations] == ["the objective", "constraint 1", "constraint 2"]
    assert [v.expression for v in refusal.value.violations] == ["‖θ‖", "‖φ‖", "‖θ‖"]


def test_theta_inside_something_that_is_not_an_atom(theta):
    inside = cp.transforms.indicator([theta(X) <= 1])
    with pytest.raises(RepresenterError, match="atoms only"):
        ko.Problem(cp.Minimize(inside + ko.norm(theta))).solve()
    with pytest.raises(RepresenterError, match=r"outside of theta\(X\)"):
        ko.Problem(cp.Minimize(cp.square(theta(X).variables()[0]))).solve()
    hidden = cp.perspective(ko.sum_squares(theta), cp.Variable(nonneg=True))  # θ inside an atom's data
    with pytest.raises(RepresenterError, match=r"outside of theta\(X\)"):
        ko.Problem(cp.Minimize(hidden + ko.norm(theta))).solve()


def test_not_convex_is_another_question(theta):
    problem = ko.Problem(cp.Minimize(cp.sum(cp.sqrt(cp.abs(theta(X)))) + ko.norm(theta)))
    assert problem.is_representable()
    assert not problem.is_dcp()
    with pytest.raises(DCPError, match="the objective"):
        problem.solve()
    with pytest.raises(DCPError, match="constraint 1"):
        ko.Problem(cp.Minimize(0), [cp.sum_squares(theta(X)) >= 1]).solve()


def test_negative_weights_are_named(theta):
    w = np.ones(12)
    w[4] = -2.0
    with pytest.raises(DCPError, match=r"weights .* negative, -2 first at 4"):
        ko.Problem(cp.Minimize(w @ ko.losses.hinge(y, theta(X)) + ko.sum_squares(theta))).solve()
    with pytest.raises(DCPError, match=r"weights .* negative"):
        ko.Problem(cp.Minimize(cp.sum(cp.multiply(w, ko.losses.hinge(y, theta(X)))))).solve()


def test_constants_must_be_finite(theta):
    w = np.ones(12)
    w[4] = np.nan
    with pytest.raises(DataError, match="first at 4"):
        ko.Problem(cp.Minimize(w @ cp.abs(theta(X)))).solve()
    with pytest.raises(DataError, match="constraint 1"):
        ko.Problem(cp.Minimize(ko.norm(theta)), [theta(X) <= np.inf]).solve()
    with pytest.raises(DataError, match="NaN"):
        ko.Problem(cp.Minimize(np.nan * ko.sum_squares(theta))).solve()
