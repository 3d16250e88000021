"""Costs of free columns that cancel as stated, whatever cvxpy's rounding of their sums."""

from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import kernelopt as ko
from kernelopt.certificate.cancelling import with_exact_costs
from kernelopt.certificate.pieces_checker import free_columns
from kernelopt.pieces.form import Pieces

UNITS = [1.0, 0.5, 0.3, 0.1, 1e-3, 1e-6, 1e3, 7.3]
# Rows xₖ − t ≤ 0 of three maxima of two affine functions: the columns t₁, t₂, t₃, b₁, b₂ add up to 0.
MAXIMA = np.hstack([np.kron(np.eye(3), -np.ones((2, 1))), np.tile(np.eye(2), (3, 1))])


def stated(A, c):
    """Rows that are at most 0, as pieces, and their columns, all of them free."""
    m, n = np.shape(A)
    none = np.arange(0)
    S = sp.csr_array(A)
    pieces = Pieces(
        n, np.array(c, dtype=float), 0.0, S, np.zeros(m), (), np.arange(m), none, (), np.zeros((0, 2), int), {}
    )
    return pieces, free_columns(pieces, [])


def total(costs):
    return sum(map(Fraction, np.asarray(costs).tolist()))


def test_a_cost_gets_a_second_part():
    """0.3 + 0.3 + 0.3 − 0.9 is not 0 in doubles; the new column is tied to the one whose cost is off."""
    costs = [0.3, 0.3, 0.3, -0.1 * 3, -0.6]
    assert total(costs) != 0
    found, multipliers = with_exact_costs(*stated(MAXIMA, costs))
    assert found.S.shape == (7, 6) and found.s0.tolist() == [0.0] * 7
    assert total(found.c) == 0 and found.c[:5].tolist() == costs and 0 < abs(found.c[5]) < 1e-15
    assert multipliers.tolist() == found.c[5:].tolist()
    row = found.S[[6]].toarray().ravel()
    assert row[5] == -1 and np.abs(row[:5]).tolist().count(1.0) == 1 and row.sum() == 0
    assert found.S[:6, :5].toarray().tolist() == MAXIMA.tolist() and not found.S[:6, [5]].nnz
    assert found.equal.tolist() == [6]
    # Now each column is right, and nothing is left to do.
    assert with_exact_costs(found, free_columns(found, [])) is None


@pytest.mark.parametrize("c", [[0.5, 0.5, 0.5, -1.0, -0.5], [0.3, 0.3, 0.3, -0.6, -0.3 * (1 + 1e-13)], np.ones(5)])
def test_costs_that_cancel_and_costs_that_do_not(c):
    """A slope of 3e-14 is stated, not rounded: the problem is unbounded."""
    assert with_exact_costs(*stated(MAXIMA, c)) is None


@pytest.mark.parametrize("change", [2.0**-52, -(2.0**-53), 1e-3])
def test_columns_that_depend_only_nearly(change):
    A, c = MAXIMA.copy(), [0.3, 0.3, 0.3, -0.1 * 3, -0.6]
    assert with_exact_costs(*stated(A, c)) is not None
    A[4, 3] += change
    assert with_exact_costs(*stated(A, c)) is None


def test_two_directions():
    """Maxima of two groups: each group has an intercept of its own that moves nothing."""
    both, c = sp.block_diag([MAXIMA, 2 * MAXIMA]).toarray(), [0.3, 0.3, 0.3, -0.1 * 3, -0.6]
    found, _ = with_exact_costs(*stated(both, [*c, *(7 * np.array(c))]))
    tied = found.S[12:, :10].toarray() != 0
    for group in (slice(5), slice(5, 10)):
        assert total(np.append(found.c[group], found.c[10:][tied[:, group].any(axis=1)])) == 0


def test_columns_that_are_independent():
    assert with_exact_costs(*stated(MAXIMA[:, :4], [0.3, 0.3, 0.3, -0.1 * 9])) is None
    assert with_exact_costs(*stated(np.zeros((2, 2)), [1.0, -1.0])) is None


# Problems


def classes(seed, n, count):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    score = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_t(3, size=n)
    return X, np.digitize(score, np.linspace(-1, 1, count + 1)[1:-1])


def crammer_singer(X, labels, count, weights, slope=0.0):
    """Free intercepts of all classes; a common one changes nothing, or the value by `slope` times it."""
    own = np.eye(count)[labels]
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=count), cp.Variable(count)
    F = theta(X) + b
    loss = cp.max(F + 1 - own, axis=1) - cp.sum(cp.multiply(own, F), axis=1)
    penalty = 0.3 * float(np.mean(weights)) * ko.sum_squares(theta)
    return ko.Problem(cp.Minimize(weights @ loss + penalty + slope * cp.sum(b)))


@pytest.mark.slow
@pytest.mark.parametrize("tol", [1e-6, 1e-9])
@pytest.mark.parametrize(("seed", "n", "count"), [(1, 6, 3), (0, 24, 3), (1, 24, 4), (0, 60, 5)])
def test_intercepts_of_all_classes_in_any_unit(seed, n, count, tol):
    X, labels = classes(seed, n, count)
    bounds = []
    for unit in UNITS:
        problem = crammer_singer(X, labels, count, np.full(n, unit))
        problem.solve(solver="PROXIMAL_POINT", tol=tol)
        found = problem.certificate
        assert problem.status == "optimal" and not found.assumptions and found.relative_gap <= tol
        bounds.append((found.lower / unit, found.upper / unit))
    lower, upper = np.array(bounds).T
    assert lower.max() <= upper.min() * (1 + 1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["PROXIMAL_POINT", "INTERIOR_POINT", "CLARABEL"])
def test_weights_of_any_size(solver):
    X, labels = classes(3, 30, 3)
    problem = crammer_singer(X, labels, 3, np.random.default_rng(3).uniform(0.1, 3, size=30))
    problem.solve(solver=solver)
    assert problem.status == "optimal" and not problem.certificate.assumptions
    assert problem.verify().passed


@pytest.mark.slow
@pytest.mark.parametrize("slope", [1e-3, 1e-9])
def test_a_cost_of_a_common_intercept_is_no_rounding(slope):
    X, labels = classes(0, 12, 3)
    problem = crammer_singer(X, labels, 3, np.full(12, 0.3), slope)
    problem.solve(solver="CLARABEL")
    assert problem.status != "optimal"
