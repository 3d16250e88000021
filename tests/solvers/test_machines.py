"""Which functions are those of a support vector machine of libsvm."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.compiler.terms import Kinks
from kernelopt.solvers import assemble
from kernelopt.solvers.machines import machine_of

ROWS = np.arange(4)
SIGNS = np.array([1.0, -1.0, 1.0, -1.0])
ONES = np.ones((4, 1))


def classification(anchors):
    """Hinges of weight 2: the slope rises from -2 to 0 for y = 1, from 0 to 2 for y = -1."""
    zeros = np.zeros(4)
    return Kinks(zeros, zeros, ROWS, anchors, zeros, np.full(4, 2.0), zeros), np.where(SIGNS > 0, -2.0, 0.0)


def regression(y, epsilon, height):
    of, zeros = np.repeat(ROWS, 2), np.zeros(8)
    anchors = np.stack([y - epsilon, y + epsilon], axis=1).ravel()
    return Kinks(np.zeros(4), np.zeros(4), of, anchors, zeros, np.full(8, height), zeros), np.full(4, -height)


@pytest.mark.parametrize("margin", [1e-6, 1.0, 1e6])
def test_margins_are_compared_relative_to_their_size(margin):
    kinks, slope = classification(margin * SIGNS * (1 + 1e-14 * ROWS))
    found = machine_of(kinks, slope, ONES)
    assert found.margin == pytest.approx(margin, rel=1e-12) and found.epsilon == 0.0
    assert found.y.tolist() == SIGNS.tolist() and found.height.tolist() == [2.0] * 4
    assert machine_of(classification(margin * SIGNS * (1 + 1e-9 * ROWS))[0], slope, ONES) is None
    assert machine_of(kinks, slope[::-1], ONES) is None  # slopes that are not zero beyond the margin


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_tubes_are_compared_relative_to_their_targets(size):
    y, epsilon = size * np.array([1.0, -2.0, 3.0, 0.5]), size * np.full(4, 0.25)
    found = machine_of(*regression(y, epsilon, 2.0), ONES)
    assert found.epsilon == pytest.approx(0.25 * size, rel=1e-12) and found.margin == 0.0
    assert found.y == pytest.approx(y, rel=1e-12) and found.height.tolist() == [2.0] * 4
    assert machine_of(*regression(y, epsilon * (1 + 1e-9 * ROWS), 2.0), ONES) is None
    kinks, slope = regression(y, epsilon, 2.0)
    assert machine_of(kinks, slope * (1 + 1e-9), ONES) is None  # slopes that are not symmetric


def test_what_libsvm_has_no_problem_for():
    kinks, slope = classification(SIGNS)
    assert machine_of(kinks, slope, ONES) is not None
    for other in (kinks._replace(rho=np.full(4, 0.1)), kinks._replace(low=np.full(4, -1.0)),
                  kinks._replace(high=np.array([2.0, 2.0, 2.0, np.inf]))):  # fmt: skip
        assert machine_of(other, slope, ONES) is None
    assert machine_of(kinks, slope, np.ones((4, 2))) is None
    assert machine_of(kinks, slope, np.array([[1.0], [1.0], [1.0], [0.0]])) is None


@pytest.mark.parametrize("height", [1e-9, 1.0, 1e9])
def test_heights_of_a_tube_are_compared_relative_to_their_size(height):
    """Slopes from −h to h in two equal jumps; unequal ones are no tube, in any unit."""
    kinks, slope = regression(np.array([1.0, -2.0, 3.0, 0.5]), np.full(4, 0.25), height)
    for unequal, found in (1e-14, True), (0.5, False):
        moved = kinks._replace(high=height * (1 + unequal * np.tile([1.0, -1.0], 4)))
        assert (machine_of(moved, slope, ONES) is not None) == found


def test_the_size_of_a_machine_is_its_number_of_rows():
    """Two hinges of each of five predictions, or hinges of three of them."""
    for taken in (np.repeat(np.arange(5), 2), np.array([4, 0, 2])):
        theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
        f = theta(np.arange(5.0)[:, None])[taken] + b
        losses = ko.losses.hinge(np.where(np.arange(len(taken)) % 2, 1.0, -1.0), f)
        stated = ko.Problem(cp.Minimize(cp.sum(losses) + ko.sum_squares(theta)))
        assert assemble.shape_of(stated.canonical_form(), stated._outer()).machine == len(taken)
