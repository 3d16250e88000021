"""Reasons in the table of solvers name the term or constraint that they are about, and a rewrite that helps."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.errors import DCPError
from kernelopt.solvers import choice
from kernelopt.solvers.cvxpy_solvers import CONIC_SOLVERS

X = np.random.default_rng(0).normal(size=(15, 2))
y = np.sign(X[:, 0])


@pytest.fixture
def theta():
    return ko.Theta(ko.kernels.Gaussian(sigma=1.0))


def table(theta, objective, constraints=()):
    return ko.Problem(cp.Minimize(objective + 0.1 * ko.sum_squares(theta)), list(constraints)).solvers()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("written", "rewritten", "hint"),
    [
        (lambda u: cp.square(cp.norm(u - y)), lambda u: cp.sum_squares(u - y), "cp.sum_squares(u) for the square"),
        (lambda u: cp.max(cp.abs(u - y)), lambda u: cp.norm_inf(u - y), "cp.norm_inf(u) for cp.max(cp.abs(u))"),
        (lambda u: cp.norm(u - y), lambda u: cp.sum_squares(u - y), "where its square will do"),
    ],
)
def test_a_rewrite_lets_a_fast_solver_in(theta, written, rewritten, hint):
    slow, fast = (table(theta, f(theta(X))) for f in (written, rewritten))
    assert hint in slow["INTERIOR_POINT"]
    assert slow.chosen == "CLARABEL"
    assert fast["INTERIOR_POINT"] is None
    assert fast.chosen not in ("METHOD_OF_MULTIPLIERS", "CLARABEL")


@pytest.mark.later
def test_the_term_that_does_not_split_is_named(theta):
    u = theta(X)
    reason = table(theta, cp.sum(cp.abs(u - y)) + cp.norm(u), [u <= 3])["NEWTON"]
    assert "‖A·θ‖ (" in reason
    assert "does not" in reason
    assert "|A·θ" not in reason


@pytest.mark.slow
def test_kinks_and_constraints_are_told_apart(theta):
    u, c = theta(X), cp.Variable(3, name="c")
    found = table(theta, cp.sum_squares(u - y) + cp.sum_squares(c), [cp.diff(c) >= 0])
    assert found["NEWTON"].endswith("no constraints; c[1:] − c[:2] ≥ 0 is a constraint")
    assert found["LEAST_SQUARES"].endswith("; c[1:] − c[:2] ≥ 0 is not")
    found = table(theta, cp.sum(cp.abs(u - y)) + cp.sum(cp.exp(u)))
    assert found["NEWTON"].endswith("no constraints; Σ |A·θ − [15 data]| has a kink")


@pytest.mark.slow
def test_many_terms_are_counted(theta):
    u = theta(X)
    reason = table(theta, sum(cp.abs(u[k] - y[k]) for k in range(6)))["NEWTON"]
    assert reason.endswith(" and 4 more have kinks")


def test_a_reason_of_several_solvers_is_written_once(theta):
    found = table(theta, cp.norm(theta(X) - y))
    lines = str(found).splitlines()
    assert sum("where its square" in line for line in lines) == 1
    assert "as LEAST_SQUARES" in found._repr_html_()


def test_dcp_errors_name_the_term(theta):
    u, b, c = theta(X), cp.Variable(name="b"), cp.Variable(2, name="c")

    def error(objective, *constraints):
        problem = ko.Problem(cp.Minimize(objective + ko.sum_squares(theta)), list(constraints))
        with pytest.raises(DCPError) as found:
            problem.solve()
        return str(found.value)

    assert error(cp.sum_squares(u - y) + cp.sqrt(b)).endswith("b^0.5 is concave.")
    assert error(-cp.sum_squares(u)).endswith("the DCP rules: −‖A·θ‖² is concave.")
    assert error(cp.sum(u) + c[0] * c[1]).endswith("c[0]·c[1] is a product of expressions with variables.")
    assert "here f with itself: write cp.sum_squares(f)" in error(u.T @ u)
    assert "here f with itself: write cp.square(f)" in error(cp.sum(cp.multiply(u, u)))
    assert error(cp.sum_squares(u), cp.sqrt(b) + b <= 1).endswith("is not convex: b^0.5 is concave.")
    assert error(cp.sum_squares(u), cp.abs(b) == 1).endswith("is not convex: |b| is convex.")
    assert error(cp.exp(cp.sqrt(b)) + cp.sum(u)).endswith("b^0.5 is concave.")


@pytest.mark.later
def test_kinks_of_variables_are_named(theta):
    found = table(theta, cp.sum_squares(theta(X) - y) + cp.abs(cp.Variable(name="b")))
    assert found["NEWTON"].endswith("; |b| has a kink")


def test_what_to_install_is_told(theta, monkeypatch):
    monkeypatch.setattr(choice, "_installed", list)
    found = table(theta, cp.sum_squares(theta(X) - y))
    assert found["ECOS"] == f"not installed: {CONIC_SOLVERS['ECOS'].install}"
