"""Infeasibility is proven by the stated functions where the multipliers of their cone forms are degenerate."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.compiler.feasibility import phase_one_as_stated

C = np.array([-0.8, -0.6, -0.1, 2.3, 0.2, 1.7])
ROWS = {
    "a maximum": lambda u, c: [cp.maximum(cp.abs(u) + u, cp.huber(u, 0.3) + c) <= 2],
    "two rows": lambda u, c: [cp.abs(u) + u <= 2, cp.huber(u, 0.3) + c <= 2],
    "an equation beside": lambda u, c: [cp.abs(u) + u <= 2, cp.huber(u, 0.3) + c <= 2, u[0] == 0.5],
}


def _solved(rows, c):
    theta = ko.Theta(ko.kernels.Delta())
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), ROWS[rows](theta(np.arange(6.0)[:, None]), c))
    problem.solve()
    return problem


@pytest.mark.parametrize("rows", ROWS)
def test_a_row_that_no_prediction_meets(rows):
    """huber(u) + 2.3 ≤ 2."""
    assert _solved(rows, C).status == "infeasible"


@pytest.mark.parametrize("rows", ROWS)
def test_the_same_rows_with_room_have_the_answer_of_cvxpy(rows):
    u = cp.Variable(6)
    truth = cp.Problem(cp.Minimize(cp.sum_squares(u)), ROWS[rows](u, C - 0.5)).solve(solver="CLARABEL")
    problem = _solved(rows, C - 0.5)
    assert problem.status == "optimal" and problem.value == pytest.approx(truth, abs=1e-6)


def test_the_question_keeps_equations_and_bounds_of_norms():
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    u = theta(np.arange(6.0)[:, None])
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [cp.square(u) <= C, u[0] == 1, ko.norm(theta) <= 2])
    question = phase_one_as_stated(problem.canonical_form())
    kinds = [type(c).__name__ for c in question.form.outer.constraints]
    assert kinds == ["Inequality", "Equality", "Inequality"] and len(question.form.norms) == 1
    free = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [u[0] == 1])
    assert phase_one_as_stated(free.canonical_form()) is None
