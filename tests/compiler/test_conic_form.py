"""Cone data in powers of two: rows and auxiliary variables in other units are measured in those of u."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import kernelopt as ko
from kernelopt.compiler.conic_form import (
    MODERATE,
    Cones,
    ConicForm,
    conic_form,
    require_units,
    typical,
)
from kernelopt.errors import DataError

X = np.linspace(0, 1, 4)[:, None]
Y = np.array([0.3, -1.0, 2.0, 0.7])
KERNEL = ko.kernels.Gaussian(sigma=0.5)


def form_of(objective, constraints=()):
    return conic_form(ko.Problem(cp.Minimize(objective), list(constraints)).canonical_form())


def piecewise(s):
    """Both are one problem: pos and abs of (f − y)/s, times s."""
    theta = ko.Theta(KERNEL)
    f = theta(X)
    loss = s * cp.sum(cp.pos(cp.abs((f - Y) / s) - 0.1 / s))
    return loss + ko.sum_squares(theta), [f[0] / s <= 0.2 / s]


@pytest.mark.parametrize("power", [-60, -30, 30, 60])
def test_units_of_rows_and_auxiliary_variables(power):
    """With a power of two for s the numbers are the same, bit by bit; only divisors of auxiliary columns can differ."""
    plain, other = form_of(*piecewise(1.0)), form_of(*piecewise(2.0**power))
    assert not plain.divided and np.any(other.divided)
    assert np.array_equal(plain.A.indices, other.A.indices)
    for one, two in ((plain.A.data, other.A.data), (plain.b, other.b), (plain.c, other.c), (plain.P, other.P)):
        with np.errstate(all="ignore"):
            ratio = np.abs(np.where(one == two, 1.0, two / one))
        assert np.all((ratio > 2.0**-12) & (ratio < 2.0**12))
    moderate = np.abs(np.frexp(np.abs(other.A.data[other.A.data != 0]))[1]) <= MODERATE + 2
    assert moderate.all()


def test_ordinary_numbers_stay_as_they_are():
    form = form_of(*piecewise(2.0**5))
    assert form.divided == 0


@pytest.mark.later
def test_multipliers_are_those_of_the_stated_rows():
    """A row that is divided by 2ᵉ has a multiplier 2ᵉ times as large, which cvxpy's row gets back."""
    found = []
    for s in (1.0, 2.0**40):
        theta = ko.Theta(KERNEL)
        bound = s * theta(X)[0] <= -0.5 * s
        problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - Y) + ko.sum_squares(theta)), [bound])
        problem.solve()
        assert problem.status == "optimal"
        found.append(float(bound.dual_value) * s)
    assert found[0] > 0.1 and found[1] == pytest.approx(found[0], rel=1e-6)


@pytest.mark.later
@pytest.mark.parametrize("s", [1e-15, 1e-8, 1e8, 1e15])
def test_a_row_in_other_units_is_certified(s):
    theta = ko.Theta(KERNEL)
    f = theta(X)
    loss = cp.sum(ko.losses.hinge(np.sign(Y), f)) + cp.abs(s * f[1]) / s
    problem = ko.Problem(cp.Minimize(loss + 0.1 * ko.norm(theta)), [s * f[0] <= 0.3 * s])
    problem.solve()
    assert problem.status == "optimal"


@pytest.mark.parametrize(
    ("weight", "target", "bound", "what"),
    [
        (1e-151, 1.0, 1.0, "coefficients of the objective"),
        (1e151, 1.0, 1.0, "coefficients of the objective"),
        (1.0, 1e-151, 1e-151, "targets and bounds"),
        (1.0, 1e151, 1e151, "targets and bounds"),
        (1.0, 1.0, 1e151, "bounds of ‖θ‖"),
    ],
)
def test_numbers_whose_squares_a_double_does_not_hold_are_refused(weight, target, bound, what):
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(np.arange(4.0)[:, None])
    objective = weight * cp.norm1(f - target * np.array([1.0, 2.0, -1.0, 3.0]))
    stated = ko.Problem(cp.Minimize(objective), [ko.norm(theta) <= bound])
    with pytest.raises(DataError, match=f"Expected {what} between 1e-150 and 1e\\+150"):
        require_units(conic_form(stated.canonical_form()))


def form_of_rows(A, b, cones, *, u=(), y=(), t=(), c=None):
    """Cone data with the columns of one link, of the user's variables and of norms; others are auxiliary."""
    A = sp.csc_array(np.array(A, dtype=float))
    n = A.shape[1]
    links, variables, norms = (np.array(columns, dtype=int) for columns in (u, y, t))
    costs = np.zeros(n) if c is None else np.array(c, dtype=float)
    return ConicForm(np.zeros(n), costs, 0.0, A, np.array(b, dtype=float), cones, (links,), (variables,), norms, 1.0)


def test_exponential_cones_follow_semidefinite_ones():
    """A matrix of order 3 has 6 rows."""
    assert Cones(zero=1, nonneg=2, soc=(4,), psd=(3, 2), exp=2).exponentials.tolist() == [16, 19]


def test_a_form_without_linear_rows():
    """Rows are counted by their cone."""
    form = form_of_rows(np.eye(7), np.arange(7.0), Cones(zero=2, nonneg=2, exp=1), u=[0])
    left = form.without(np.array([1, 2, 3]), np.array([1, 2, 3]))
    assert left.cones == Cones(zero=1, nonneg=0, exp=1) and left.b.tolist() == [0.0, 4.0, 5.0, 6.0]


def test_the_unit_of_predictions():
    """4/2 of the row with predictions alone; neither the row of a norm counts nor one without predictions."""
    A = [[2.0, 0.0, 0.0], [1.0, -1.0, 0.0], [0.0, 0.0, 1.0]]
    cones = Cones(zero=0, nonneg=3)
    assert form_of_rows(A, [4.0, 1e-3, 0.5], cones, u=[0], t=[1], y=[2]).data_unit == 2.0
    assert form_of_rows(A, [0.0, 1e-3, 0.5], cones, u=[0], t=[1], y=[2]).data_unit == 0.5


def test_typical_sizes():
    """Zeros do not count, nor do numbers whose squares vanish beside others."""
    assert typical(np.array([0.0, 1.0, -1.0])) == 1.0
    assert typical(np.array([1e-200, -3.0]), 0.0) == 3.0
    assert typical(np.array([1e-200, 0.0])) == 1e-200
    assert typical(np.zeros(2)) == 0.0


def test_rows_of_power_cones_of_several_numbers():
    """x₁^a₁·…·xₖ^aₖ ≥ |z| has k + 1 rows, after those of all others."""
    cones = Cones(zero=0, nonneg=2, power=(0.3,), generalized_power=((0.2, 0.3, 0.5), (0.5, 0.5)))
    assert cones.slices[-2:] == [
        ("generalized_power", slice(5, 9), (0.2, 0.3, 0.5)),
        ("generalized_power", slice(9, 12), (0.5, 0.5)),
    ]
