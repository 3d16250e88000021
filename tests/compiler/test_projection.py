"""Points that are moved into linear constraints, and towards an optimum of 0."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.compiler import projection, representer
from kernelopt.compiler.separable import outer_of
from kernelopt.driver import ranks, refine
from kernelopt.driver.options import factor_options

X = np.linspace(0, 1, 5)[:, None]
Y = np.sin(5 * X[:, 0])
FIRST, SECOND = ko.kernels.Gaussian(sigma=0.4), ko.kernels.Gaussian(sigma=0.3)


def reduced(problem):
    """The reduction and the cone data, with every variable at 0."""
    form = problem.canonical_form()
    reduction = refine.reduced(form, ranks.Step(factor_options()), {}).reduction
    for variable in reduction.problem.variables():
        variable.save_value(np.zeros(variable.shape))
    representer.evaluate(reduction)
    return reduction, outer_of(form).form


def test_a_theta_of_0_is_moved_too():
    theta = ko.Theta(FIRST)
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [theta(X)[:2] >= 1, cp.sum(theta(X)[2:]) == 0.5])
    reduction, form = reduced(problem)
    assert representer.violation(reduction) > 0.1
    assert projection.moved(reduction, form)
    representer.evaluate(reduction)
    assert representer.violation(reduction) < 1e-12


def test_what_is_held_stays():
    """The first θ alone meets the constraint."""
    first, second = ko.Theta(FIRST), ko.Theta(SECOND)
    objective = ko.sum_squares(first) + ko.sum_squares(second)
    reduction, form = reduced(ko.Problem(cp.Minimize(objective), [first(X) + second(X) == Y]))
    assert projection.moved(reduction, form, held=[second])
    representer.evaluate(reduction)
    assert representer.violation(reduction) < 1e-10
    assert np.any(reduction.v[first].value) and not np.any(reduction.v[second].value)


def test_towards_an_optimum_of_0():
    """θ that costs something is 0; the other one, and b, meet all kinks at once. The cone data stay what they are."""
    free, costly, b = ko.Theta(FIRST), ko.Theta(SECOND), cp.Variable()
    loss = cp.sum(ko.losses.pinball(Y, free(X) + costly(X) + b, 0.3))
    problem = ko.Problem(cp.Minimize(loss + ko.norm(costly)), [ko.norm(free) <= 100])
    problem.solve()
    reduction, form = problem._reduction[1], outer_of(problem.canonical_form()).form
    before = form.A.copy()
    reduction.v[costly].save_value(np.full(reduction.v[costly].shape, 1e-6))
    reduction.v[free].save_value(reduction.v[free].value + 1e-6)
    assert projection.towards_zero(reduction, form)
    assert representer.evaluate(reduction) < 1e-13 and not np.any(reduction.v[costly].value)
    assert np.array_equal(before.data, form.A.data) and np.array_equal(before.indices, form.A.indices)


@pytest.mark.parametrize(
    "objective",
    [
        lambda theta, b: cp.sum(cp.abs(theta(X) - Y)) + b,
        lambda theta, b: cp.sum(cp.abs(theta(X) - Y)) + theta(X)[0],
        lambda theta, b: ko.norm(theta - ko.Function(FIRST, X[:1], [1.0])) + cp.sum(cp.abs(theta(X) + b - Y)),
    ],
)
def test_nothing_says_that_the_optimum_is_0(objective):
    theta, b = ko.Theta(FIRST), cp.Variable()
    reduction, form = reduced(ko.Problem(cp.Minimize(objective(theta, b)), [b >= -1, ko.norm(theta) <= 5]))
    assert not projection.towards_zero(reduction, form)
