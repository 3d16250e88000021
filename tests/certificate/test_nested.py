"""Functions whose arguments are functions at kinks: intervals of multipliers from the inside out.

With the Delta kernel and distinct rows θ is u itself, so that cvxpy solves the explicit problem.
"""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import kernelopt as ko
from kernelopt.certificate.nested import permitted
from kernelopt.pieces.form import Group, Pieces
from kernelopt.pieces.norms import Radial
from kernelopt.pieces.quadratics import Piecewise

Y = np.array([1.0, -1.0, 0.5])
LOSSES = {
    "sum of largest": lambda e: cp.sum_largest(cp.abs(e), 2),
    "conditional value at risk": lambda e: cp.cvar(cp.abs(e), 0.5),
    "sorted": lambda e: cp.dotsort(cp.abs(e), [1, 0.5, 0.1]),
    "largest": lambda e: cp.max(cp.abs(e)),
    "insensitive": lambda e: cp.sum_largest(cp.pos(cp.abs(e) - 0.1), 2),
    "of two lines": lambda e: cp.sum_largest(cp.maximum(e, -e), 2),
    "of differences": lambda e: cp.sum_largest(cp.abs(np.array([[1, 2, -1], [0, 1, 1], [3, 0, 1]]) @ e), 2),
    "group's or all": lambda e: cp.maximum(cp.sum_largest(cp.abs(e), 1), 0.7 * cp.sum(cp.abs(e))),
    "all but the least, or all": lambda e: cp.maximum(cp.sum_largest(cp.abs(e), 2), 0.7 * cp.sum(cp.abs(e))),
    "of lengths": lambda e: cp.sum_largest(cp.hstack([cp.norm(e[:2]), cp.abs(e[2])]), 1),
}
PENALTIES = {
    "cube": lambda norm: 0.05 * norm**3,
    "exponential": lambda norm: 0.05 * cp.exp(norm),
    "shifted square": lambda norm: 0.05 * cp.square(norm + 0.1),
}


def _solved(loss, penalty, solver=None):
    theta = ko.Theta(ko.kernels.Delta())
    u = theta(np.arange(3.0)[:, None])
    problem = ko.Problem(cp.Minimize(loss(u - Y) + penalty(ko.norm(theta))))
    problem.solve(solver=solver)
    return problem


def _truth(loss, penalty):
    u = cp.Variable(3)
    return cp.Problem(cp.Minimize(loss(u - Y) + penalty(cp.norm(u)))).solve(solver="CLARABEL")


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_interpolated_rows_in_a_sum_of_largest_keep_their_multipliers(loss, penalty):
    problem = _solved(LOSSES[loss], PENALTIES[penalty])
    assert problem.status == "optimal"
    assert problem.certificate.lower <= (truth := _truth(LOSSES[loss], PENALTIES[penalty])) + 1e-7
    assert problem.value == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize("order", [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])
def test_the_order_of_rows_does_not_matter(order):
    problem = _solved(lambda e: cp.max(cp.abs(e[order])), PENALTIES["cube"])
    assert problem.status == "optimal" and problem.value == pytest.approx(0.05 * 1.5**3, rel=1e-6)


@pytest.mark.parametrize("solver", ["CLARABEL", "ECOS", "SCS"])
def test_cone_solvers_answers_are_proven(solver):
    problem = _solved(LOSSES["sum of largest"], lambda norm: 0.05 * cp.square(norm), solver)
    assert problem.status == "optimal" and problem.value == pytest.approx(0.05 * 2.25, rel=1e-5)


def _kinked(low, high):
    """max(low·s, high·s)."""
    return Piecewise(np.zeros((1, 1)), np.array([[[0.0, low, 0.0], [0.0, high, 0.0]]]))


def _interval(family, a, weights=(0.0, 1.0)):
    """Of the multiplier of a row with one function at s = 0 whose multipliers are a."""
    k = len(a)
    group, none = Group(family, np.arange(k)[None, :], sp.csr_array([weights])), np.arange(0)
    pieces = Pieces(
        k + 1, np.ones(k + 1), 0.0, sp.csr_array(np.eye(k + 1)), np.zeros(k + 1), (group,), np.array([k]), none, (),
        np.zeros((0, 2), dtype=int), {},
    )  # fmt: skip
    slopes = [family.slopes_near(np.zeros((1, k)), np.full(1, 1e-6))]
    found = permitted(pieces, slopes, np.append(a, 0.0), np.arange(k + 1) < k)
    return found.low[k], found.high[k]


@pytest.mark.parametrize(
    ("ends", "a", "expected"),
    [
        ((-1, 2), 3.0, (1.5, np.inf)),
        ((-1, 2), -3.0, (3.0, np.inf)),
        ((1, 2), 3.0, (1.5, 3.0)),
        ((-2, -1), -3.0, (1.5, 3.0)),
        ((-1, 1), 0.0, (0.0, np.inf)),
    ],
)
def test_intervals_of_weights_from_slopes(ends, a, expected):
    assert _interval(_kinked(*map(float, ends)), [a]) == expected


def test_costs_and_weights_of_functions_count():
    assert _interval(_kinked(-1.0, 1.0), [3.0], (1.0, 4.0)) == (0.5, np.inf)


def test_functions_of_several_numbers_need_the_length_of_their_multipliers():
    low, high = _interval(Radial(_kinked(0.0, 1.0)), [3.0, -4.0])
    assert low == pytest.approx(5, rel=1e-9) and high == np.inf
