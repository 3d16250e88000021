"""Points at which an atom is not defined: no value of cvxpy's counts there."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko

X, Y = np.array([[0.0], [1.0], [2.0]]), np.array([-3.0, 0.5, 1.0])
CONSTRAINTS = {
    "log": lambda f: cp.log(f[0] + 1) >= -20,
    "root": lambda f: cp.sqrt(f[0] + 1) >= 0,
    "power": lambda f: cp.power(f[0] + 1, 0.3) >= -5,
    "geometric mean": lambda f: cp.geo_mean(f[:2] + 1) >= 0,
    "entropy": lambda f: cp.entr(f[0] + 1) >= -40,
    "determinant": lambda f: cp.log_det(cp.diag(f[:2] + 1)) >= -20,
    "inverse": lambda f: cp.inv_pos(f[0] + 1) <= 1e6,
    "divergence": lambda f: cp.kl_div(f[0] + 1, 1.0) <= 1e3,
}
# At the optimum the slopes of these are infinite, so that no multipliers exist.
STEEP = ("entropy", "divergence")
TERMS = {
    "inverse": lambda u: 0.01 * cp.inv_pos(u),
    "cube": lambda u: 0.01 * cp.power(u, 3),
    "quotient": lambda u: 0.01 * cp.quad_over_lin(1.0, u),
    "inverse of a product": lambda u: 0.01 * cp.inv_prod(cp.hstack([u, u])),
    "log": lambda u: -0.01 * cp.log(u),
    "root": lambda u: -0.01 * cp.sqrt(u),
}


def squares(f, theta):
    return cp.sum_squares(f - Y) + 0.1 * ko.sum_squares(theta)


def unconstrained():
    """The fit of squares alone, f[0] + 1 = −1.6."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    ko.Problem(cp.Minimize(squares(theta(X), theta))).solve()
    return ko.Function(theta.kernel, theta.value.centers, theta.value.coefficients)


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_an_audit_of_constraints(name):
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(squares(theta(X), theta)), [CONSTRAINTS[name](theta(X))])
    problem.solve()
    assert problem.status == ("optimal_inaccurate" if name in STEEP else "optimal")
    assert problem.value == pytest.approx(4.283875, rel=1e-5) and theta(X).value[0] + 1 >= -1e-9
    theta.value = unconstrained()
    report = problem.verify()
    assert not report.passed and not report.checks[0].passed
    assert report.certificate.lower <= report.certificate.upper


@pytest.mark.parametrize("name", TERMS)
def test_an_audit_of_objectives(name):
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(X)
    problem = ko.Problem(cp.Minimize(squares(f, theta) + TERMS[name](f[0] + 1)))
    problem.solve()
    assert problem.status == "optimal" and problem.verify().passed
    theta.value = unconstrained()
    assert not problem.verify().passed


@pytest.mark.parametrize("name", ["log", "inverse"])
def test_certificates_for_other_values_of_parameters(name):
    p, theta = cp.Parameter(value=-1.0), ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(X)
    u, y = f[0] - p, np.array([0.3, 0.5, 1.0])
    constraint = {"log": lambda: cp.log(u) >= -5, "inverse": lambda: cp.inv_pos(u) <= 50}[name]()
    problem = ko.Problem(cp.Minimize(cp.sum_squares(f - y) + 0.1 * ko.sum_squares(theta)), [constraint])
    problem.solve()
    found = problem.certificate_at({p: 1.0})
    assert found.upper == np.inf and not found.is_feasible
    p.value = 1.0
    assert found.lower <= problem.solve()


@pytest.mark.parametrize("name", ["cube", "inverse"])
def test_without_time_there_is_no_point_outside(name):
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(X)
    problem = ko.Problem(cp.Minimize(squares(f, theta) + TERMS[name](f[0] - 1)))
    problem.solve(time_limit=1e-9)
    assert problem.status == "user_limit" and problem.value is None


def test_a_denominator_of_0():
    """x²/y adds nothing where both are 0 to rounding, and the answer is one."""
    points = np.array([[0.44], [1.25], [3.8], [3.81]])
    theta = ko.Theta(ko.kernels.Polynomial(degree=2))
    f = theta(points)
    quotient = cp.quad_over_lin(f[:2], f[2] + 0.1)
    problem = ko.Problem(cp.Minimize(quotient + 3 * f[2] + 0.2 * ko.sum_squares(theta)))
    held = ko.Problem(cp.Minimize(3 * f[2] + 0.2 * ko.sum_squares(theta)), [f[:2] == 0, f[2] == -0.1])
    assert problem.solve() == pytest.approx(held.solve(), rel=1e-6)


def of_one_number():
    """θ and u = θ(0), a number with ‖θ‖ = |u|."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    return theta, theta(np.array([[0.0]]))[0]


@pytest.mark.parametrize("reciprocal", [lambda u: cp.inv_pos(-u), lambda u: cp.quad_over_lin(1.0, -u)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_an_end_of_a_domain_from_the_other_side(reciprocal):
    """1/(−0) is −∞ in floating point: no constraint is met there, and θ = 0 was called optimal."""
    theta, u = of_one_number()
    problem = ko.Problem(cp.Minimize(cp.square(u - 1)), [ko.norm(theta) <= 0, reciprocal(u) <= 5])
    problem.solve()
    assert problem.status == "infeasible"
    theta, u = of_one_number()
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [reciprocal(u) <= 2])
    problem.solve()
    assert problem.value == pytest.approx(0.25, rel=1e-5)
