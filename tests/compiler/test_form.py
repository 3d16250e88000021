"""The cut: f(u, t, y) and its links."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.compiler.canonical_form import at_present, outdated

X = np.random.default_rng(0).normal(size=(6, 2))
KERNEL = ko.kernels.Gaussian(sigma=1.0)


@pytest.fixture
def theta():
    return ko.Theta(KERNEL)


def test_the_outer_problem_knows_nothing_of_kernels(theta):
    b = cp.Variable(name="b")
    problem = ko.Problem(
        cp.Minimize(cp.sum_squares(theta(X) + b) + ko.norm(theta) + ko.sum_squares(theta)), [theta(X) <= b]
    )
    form = problem.canonical_form()
    assert [link.u.shape for link in form.predictions] == [(6,)]
    assert len(form.norms) == 1  # one t for each (θ, norm)
    assert form.y == [b]
    names = {v.name() for v in form.outer.variables()}
    assert names == {"u", "t1", "b"}
    assert form.outer.is_dcp()
    # It is an ordinary problem: cvxpy solves it, with u and t free of each other.
    assert form.outer.solve(solver="CLARABEL") == pytest.approx(0, abs=1e-6)
    assert "u = A·θ" in str(form)
    assert "‖θ‖ ≤ t1" in str(form)


def test_rows_are_stacked_and_merged(theta):
    """Points met anywhere stand once in A; u keeps what the user wrote."""
    again = np.vstack([X[2], [5.0, 5.0], X[2]])
    objective = cp.sum_squares(theta(X)) + cp.sum(theta(X)) + cp.sum(theta(again)) + cp.sum(theta(X[:2]))
    (link,) = ko.Problem(cp.Minimize(objective)).canonical_form().predictions
    assert link.u.shape == (6 + 3 + 2,)  # theta(X), met twice, is one block
    assert len(link.rows) == 7
    assert link.take.tolist() == [0, 1, 2, 3, 4, 5, 2, 6, 2, 0, 1]
    assert link.origin.tolist() == [0, 1, 2, 3, 4, 5, 7]
    assert np.array_equal(link.rows.points, np.vstack([X, [5.0, 5.0]]))


def test_signed_zeros_are_equal(theta):
    (link,) = ko.Problem(cp.Minimize(cp.sum(theta([[0.0, 1.0], [-0.0, 1.0]])))).canonical_form().predictions
    assert len(link.rows) == 1


def test_several_thetas_and_norms(theta):
    other, matrix = ko.Theta(ko.kernels.Linear(), name="φ"), ko.Theta(KERNEL, outputs=2, name="Θ")
    f0 = ko.Function(KERNEL, X[:1], [1.0])
    objective = (
        cp.sum(theta(X) + other(X))
        + cp.sum(matrix(X))
        + ko.norm(theta)
        + ko.norm(theta - f0)
        + ko.norm(theta - f0) ** 2
        + ko.norm(matrix, "fro")
        + ko.norm(matrix, "nuc")
        + ko.norm(matrix[:, 0])
        + ko.norm(matrix @ [1.0, -1.0])
        + ko.norm(matrix @ [1.0, -1.0])
    )
    form = ko.Problem(cp.Minimize(objective), [ko.norm(other) <= 1]).canonical_form()
    assert [link.theta.name for link in form.predictions] == ["θ", "φ", "Θ"]
    assert len(form.norms) == 2 + 4 + 1
    first = next(link for link in form.predictions if link.theta is theta)
    assert len(first.rows) == 7  # six points, and f₀
    assert first.u.shape == (6,)


def test_inner_products_are_rows(theta):
    f0 = ko.Function(KERNEL, X[:2], [1.0, 1.0])
    (link,) = ko.Problem(cp.Minimize(f0.inner(theta)), [ko.norm(theta) <= 1]).canonical_form().predictions
    assert link.u.shape == (1,)
    assert len(link.rows) == 1


def test_the_stated_problem_is_left_alone(theta):
    objective, constraint = cp.Minimize(cp.sum(theta(X)) + ko.norm(theta)), theta(X) >= -1
    problem = ko.Problem(objective, [constraint])
    text = str(problem)
    problem.solve()
    assert problem.objective is objective
    assert problem.constraints[0] is constraint
    assert str(problem) == text
    assert {v.id for v in objective.variables()} == {theta._leaf.id}


def test_constants_of_the_objective_stand_apart():
    theta, y = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), np.arange(3.0)
    loss = cp.sum_squares(theta(y[:, None]) - y) + ko.sum_squares(theta)
    plain = ko.Problem(cp.Minimize(loss)).canonical_form()
    assert plain.bare is plain.outer and plain.constant == 0.0
    form = ko.Problem(cp.Minimize(loss + 1e6)).canonical_form()
    for link in (form.predictions[0].u, form.norms[0].t):
        link.value = np.zeros(link.shape)
    assert form.constant == 1e6 and form.bare.objective.value == 5.0


def test_arguments_and_values_of_losses_are_numbered(theta):
    """From 1."""
    own = ko.SmoothLoss(np.cosh, np.sinh, np.cosh)
    loss = cp.sum(own(theta(X))) + cp.sum(own(2 * theta(X)[:3]))
    form = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta))).canonical_form()
    assert [(link.g.name(), link.h.name()) for link in form.smooth] == [("g1", "h1"), ("g2", "h2")]
    assert [link.h.shape for link in form.smooth] == [(6,), (3,)]


def test_a_kernel_is_outdated_where_a_parameter_has_another_value():
    sigma = cp.Parameter(pos=True, value=1.0)
    first, second = ko.Theta(ko.kernels.Gaussian(sigma=sigma)), ko.Theta(KERNEL)
    loss = cp.sum_squares(first(X) + second(X) - 1) + ko.sum_squares(first) + ko.sum_squares(second)
    form = ko.Problem(cp.Minimize(loss)).canonical_form()
    assert outdated(form) == []
    sigma.value = 2.0
    assert [theta is first for theta in outdated(form)] == [True]
    assert outdated(at_present(form)) == []
