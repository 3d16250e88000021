"""What cvxpy's solvers get, with rows of its data scaled before, and what is made of their answers."""

from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import kernelopt as ko
from kernelopt.compiler.iterate import Iterate
from kernelopt.solvers import cvxpy_solvers
from kernelopt.solvers.cvxpy_solvers import MODERATE, _equilibrated
from kernelopt.support.clock import OutOfTimeError
from kernelopt.support.cvxpy_parts import Solution


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


def test_the_unit_of_penalized_variables_alone():
    """Where nothing else costs anything, theirs counts."""
    data, v = {"c": np.zeros(1), "P": sp.diags_array([5.0])}, cp.Variable()
    found = SimpleNamespace(data=data, first_column=lambda _: 0)
    assert cvxpy_solvers._objective_unit(found, 10.0, "c", [v]) == 500.0


@pytest.mark.parametrize("solver", ["CLARABEL", "OSQP"])
@pytest.mark.parametrize(
    ("ended", "status", "expected"),
    [
        ("MaxTime", cp.USER_LIMIT, cp.USER_LIMIT),
        ("CallbackTerminated", cp.SOLVER_ERROR, cp.USER_LIMIT),
        ("NumericalError", cp.SOLVER_ERROR, cp.OPTIMAL_INACCURATE),
    ],
)
def test_the_last_point_of_clarabel(solver, ended, status, expected):
    """Where a solve ends early, Clarabel's last point is taken, and that of no other solver."""
    raw = SimpleNamespace(x=[1.0], s=[0.0], z=[0.0], obj_val=1.0, status=ended, solve_time=0.0, iterations=3)

    def solution(raw, _):
        almost = raw.status == "AlmostSolved"
        return SimpleNamespace(
            status=cp.OPTIMAL_INACCURATE if almost else status, primal_vars={"x": 1.0} if almost else {}
        )

    found = cvxpy_solvers._with_a_point(SimpleNamespace(solver=solver, solution=solution), raw)
    assert found.status == (expected if solver == "CLARABEL" else status)
    assert bool(found.primal_vars) == (solver == "CLARABEL")


def answered(monkeypatch, status, value, *, raw="solved", seconds=None):
    """What is made of OSQP's answer with one variable, and the options that OSQP got."""
    x, options = cp.Variable(), {}

    def answer(problem, given, ours, left):
        options.update(ours)
        return SimpleNamespace(info=SimpleNamespace(status=raw))

    solution = Solution(status, 0.0, {} if value is None else {x.id: np.array(value)}, {}, {})
    found = SimpleNamespace(data=None, solver="OSQP", answer=answer, solution=lambda *_: solution)
    monkeypatch.setattr(cvxpy_solvers, "compiled", lambda *_: found)
    return cvxpy_solvers.solve(cp.Problem(cp.Minimize(x)), "OSQP", 1e-6, {}, seconds=seconds), options


@pytest.mark.parametrize(
    ("status", "value", "has_point", "expected"),
    [
        (cp.OPTIMAL, 1.0, True, "optimal"),
        (cp.OPTIMAL, 1e200, False, "user_limit"),
        (cp.OPTIMAL, np.nan, False, "user_limit"),
        (cp.USER_LIMIT, 1.0, True, "user_limit"),
        (cp.INFEASIBLE, None, False, "infeasible"),
    ],
)
def test_a_point_needs_values_and_a_status_that_has_one(monkeypatch, status, value, has_point, expected):
    found, _ = answered(monkeypatch, status, value)
    assert found.has_point == has_point
    assert found.status == expected


def test_a_solver_that_keeps_no_point_has_none_when_it_is_stopped(monkeypatch):
    found, _ = answered(monkeypatch, cp.USER_LIMIT, 1.0, raw="interrupted", seconds=0.0)
    assert not found.has_point and found.status == "user_limit"


@pytest.mark.parametrize("seconds", [0.0, 0.5, 100.0])
def test_a_time_limit_is_what_compiling_leaves(monkeypatch, seconds):
    """It is never 0, which may stand for none."""
    _, options = answered(monkeypatch, cp.OPTIMAL, 1.0, seconds=seconds)
    assert 0 < options["time_limit"] <= max(seconds, 0.01)


def test_variables_at_given_predictions(monkeypatch):
    """minimize 1 + y subject to y ≥ u, for u = 3; there is none with y ≤ u − 1 too."""
    u, y = cp.Variable(), cp.Variable()
    monkeypatch.setattr(cvxpy_solvers, "place", lambda form, point: u.save_value(point.u[0]))
    point = Iterate((np.ones(1),), (np.array(0.0),), (np.array(3.0),), value=4.0)
    for constraints, feasible in ([y >= u], True), ([y >= u, y <= u - 1], False):
        bare = cp.Problem(cp.Minimize(1 + y), constraints)
        form = SimpleNamespace(predictions=[SimpleNamespace(u=u)], norms=[], bare=bare, y=[y])
        found = cvxpy_solvers.fill_in(form, point, 1e-8)
        assert (found is not None) == feasible
        if found is not None:
            assert found.y[0] == pytest.approx(3.0, rel=1e-7)
            assert found.v is point.v and np.isnan(found.value)


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
