"""Rows of cvxpy's data that are scaled before a solver sees them."""

from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import kernelopt as ko
from kernelopt.solvers import cvxpy_solvers
from kernelopt.solvers.cvxpy_solvers import MODERATE, _equilibrated
from kernelopt.support.clock import OutOfTimeError


def test_linear_rows_far_from_unit_size_are_scaled():
    """Rows of size 1/MODERATE to MODERATE stay, and so do rows of zeros and of other cones."""
    sizes = np.array([1.0, MODERATE, 1 / MODERATE, 0.0, 1e9, 1e-9, 1e9])
    A, b = sizes[:, None] * np.array([[0.5, -1.0]]), np.arange(1.0, 8.0)
    data = {"A": sp.csc_array(A), "b": b, "dims": SimpleNamespace(zero=2, nonneg=4)}
    factors = _equilibrated(data)
    assert factors == pytest.approx([1, 1, 1, 1, 1e-9, 1e9, 1], rel=1e-15)
    assert data["A"].toarray() == pytest.approx(factors[:, None] * A)
    assert data["b"] == pytest.approx(factors * b)


@pytest.mark.parametrize("sizes", [[1.0, 0.0], [0.0, 0.0]])
def test_moderate_rows_are_left_alone(sizes):
    A, b = sp.csc_array(np.array(sizes)[:, None]), np.ones(2)
    data = {"A": A, "b": b, "dims": SimpleNamespace(zero=0, nonneg=2)}
    assert _equilibrated(data).tolist() == [1.0, 1.0]
    assert data["A"] is A and data["b"] is b


def test_the_unit_of_the_objective():
    """The largest of σ‖c‖∞ and σ²‖P‖∞."""
    data = {"c": np.array([1.0, -2.0]), "P": sp.diags_array([5.0, 1.0])}
    assert cvxpy_solvers._objective_unit(SimpleNamespace(data=data), 10.0, "c", []) == 500.0
    assert cvxpy_solvers._objective_unit(SimpleNamespace(data=data), 0.1, "c", []) == pytest.approx(0.2)


@pytest.mark.parametrize("solver", ["CLARABEL", "OSQP"])
def test_the_last_point_of_clarabel(solver):
    """Where a solve ends early, Clarabel's last point is taken, and that of no other solver."""
    raw = SimpleNamespace(x=[1.0], s=[0.0], z=[0.0], obj_val=1.0, status="MaxTime", solve_time=0.0, iterations=3)

    def solution(raw):
        return SimpleNamespace(status=cp.USER_LIMIT, primal_vars={"x": 1.0} if raw.status == "AlmostSolved" else {})

    found = cvxpy_solvers._with_a_point(SimpleNamespace(solver=solver, solution=solution), raw)
    assert found.status == cp.USER_LIMIT
    assert bool(found.primal_vars) == (solver == "CLARABEL")


def test_other_solvers_are_waited_for_as_long_as_compiling_allows(monkeypatch):
    """Of 10 seconds, 2·10⁶ entries of B take 0.8 to compile."""
    waited = []

    def wait(seconds):
        waited.append(seconds)
        raise OutOfTimeError

    monkeypatch.setattr(cvxpy_solvers.outside, "wait_for_others", wait)
    theta = ko.Theta(ko.kernels.Linear(), outputs=2)
    reduction = SimpleNamespace(factors={theta: SimpleNamespace(B=SimpleNamespace(size=1_000_000))})
    answer = cvxpy_solvers.solve_reduction(reduction, "CLARABEL", 1e-6, {}, seconds=10.0)
    assert not answer.has_point
    assert waited == pytest.approx([10.0 - 2e6 * cvxpy_solvers.COMPILE_SECONDS])
