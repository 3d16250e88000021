"""Constraints of the questions about feasibility, and the rows that they stand for."""

from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.compiler.conic_form import conic_form
from kernelopt.compiler.feasibility import (
    Question,
    _directions,
    _inside,
    _unit,
    flat_recession,
    phase_one,
    phase_one_of_rows,
    recession,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 2))

CONES = {
    "linear": lambda f, b: (b, [f >= -1, cp.sum(f) == 1]),
    "second-order": lambda f, b: (b, [cp.norm(f) <= b]),
    "exponentials whose y is constant": lambda f, b: (cp.sum(cp.exp(f)), []),
    "exponentials whose y varies": lambda f, b: (b, [cp.ExpCone(f, b + 2 * f, b - f)]),
    "powers": lambda f, b: (b, [cp.PowCone3D(f, b + 0 * f, 2 + f, 0.3)]),
}


@pytest.mark.parametrize("recession", [False, True])
@pytest.mark.parametrize("name", CONES)
def test_constraints_have_the_rows_that_are_told(name, recession):
    """Multipliers of the constraints are read back by these rows."""
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    objective, constraints = CONES[name](theta(X), b)
    problem = ko.Problem(cp.Minimize(objective + ko.sum_squares(theta)), constraints)
    data = conic_form(problem.canonical_form())
    s = cp.Variable(len(data.b), value=RNG.normal(size=len(data.b)))
    found = _inside(s, data, recession)
    rows = np.concatenate([at for _, at in found])
    assert len(np.unique(rows)) == len(rows)
    for constraint, at in found:
        if isinstance(constraint, cp.ExpCone | cp.PowCone3D):
            assert np.hstack([argument.value for argument in constraint.args]) == pytest.approx(s.value[at])
        else:
            assert sum(argument.size for argument in constraint.args if argument.variables()) == len(at)
    missing = np.setdiff1d(np.arange(len(data.b)), rows)
    constant = recession and name == "exponentials whose y is constant"
    assert missing.tolist() == (sorted(data.cones.exponentials + 1) if constant else [])


def test_exponentials_that_cost_nothing_may_fall():
    """Without any cost the change of exponents alone is minimized."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    form = ko.Problem(cp.Minimize(0), [cp.sum(cp.exp(theta(X))) <= 1, ko.norm(theta) <= 1]).canonical_form()
    data = conic_form(form)
    assert not data.c.any() and flat_recession(form, data, np.zeros(5)) is None
    assert flat_recession(form, data, np.ones(5)).form.outer.objective.args[0].is_affine()


@pytest.mark.parametrize("weight", [0.0, 0.1])
def test_directions_do_not_move_what_a_square_holds(weight):
    """Pd = 0, for small P, too."""
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    objective = cp.sum(cp.abs(theta(X) + b)) + weight * b**2 + ko.norm(theta)
    form = ko.Problem(cp.Minimize(objective)).canonical_form()
    data = conic_form(form)
    held = [c for c in _directions(form, data).constraints if isinstance(c, cp.constraints.Equality)]
    assert [c.size for c in held] == ([1] if weight else [])


def test_feasible_exponentials_are_in_their_cones():
    """Only directions have the linear face of a cone whose y is constant."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    form = ko.Problem(cp.Minimize(ko.norm(theta)), [cp.sum(cp.exp(theta(X))) <= 1]).canonical_form()
    data = conic_form(form)
    kinds = [
        {type(c) for c in question.form.outer.constraints}
        for question in (phase_one(form, data), phase_one_of_rows(form, data), recession(form, data))
    ]
    assert [cp.ExpCone in found for found in kinds] == [True, True, False]


def test_prices_of_rows():
    """|multipliers| in the units of the stated rows; ∞ for the rows of a constraint without multipliers alone."""
    rows = [np.array([0]), np.array([1, 2]), np.array([3, 4, 5])]
    question = Question(
        None, None, sizes=np.array([1.0, 2.0, 4.0, 1.0, 1.0, 1.0]), unit=2.0, cones=tuple(enumerate(rows))
    )
    duals = {1: (np.array([-3.0]), np.array([5.0])), 2: (np.array([[1.0, -7.0], [-7.0, 2.0]]),)}
    assert question.prices(duals).tolist() == [np.inf, 3.0, 10.0, 3.5, 3.5, 3.5]
    assert question.prices({**duals, 0: (None,)}).tolist() == question.prices(duals).tolist()


@pytest.mark.parametrize(("size", "unit"), [(8.0, 0.125), (3.0, 0.25), (0.0, 1.0)])
def test_the_unit_of_a_question_is_a_power_of_2(size, unit):
    """The largest one with which predictions are at most 1."""
    assert _unit(SimpleNamespace(data_unit=size)) == unit
