"""Answers of cone solvers are proven on pieces: multipliers of all rows follow from those of predictions."""

from importlib import import_module

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko

certify = import_module("kernelopt.certificate.certify")  # the package's attribute of this name is the function
RNG = np.random.default_rng(0)
N = 24
X, Y = RNG.normal(size=(N, 2)), RNG.normal(size=N)
LABELS, GROUP = np.sign(Y + 0.1), np.arange(N) % 3
LOSSES = {
    "worst group of hinges": lambda r: cp.max(cp.hstack([cp.sum(cp.pos(1 - r[g == GROUP])) for g in range(3)])),
    "worst group of squares": lambda r: cp.max(cp.hstack([cp.sum_squares(r[g == GROUP]) for g in range(3)])),
    "length of hinges": lambda r: cp.norm(cp.pos(1 - r)),
    "length": lambda r: cp.norm(r),
    "largest squares": lambda r: cp.sum_largest(cp.square(r), 5),
    "two lengths": lambda r: cp.norm(r[:10]) + 2 * cp.norm(r[10:]) + cp.sum(cp.abs(r)),
    "risk": lambda r: cp.log_sum_exp(cp.square(r)),
    "order 4": lambda r: cp.norm(r, 4),
}


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("name", LOSSES)
def test_pieces_prove_what_a_cone_solver_finds(name, intercept):
    values = []
    for solver in ("CLARABEL", None):
        theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
        f = theta(X) + (cp.Variable() if intercept else 0)
        r = cp.multiply(LABELS, f) if "hinges" in name else f - Y
        problem = ko.Problem(cp.Minimize(LOSSES[name](r) + 0.1 * ko.sum_squares(theta)))
        values.append(problem.solve(solver=solver))
        assert problem.status == "optimal" and problem.verify().passed
        if solver is not None:
            assert problem.certificate.evidence.rows is not None
    assert values[0] == pytest.approx(values[1], rel=1e-5)


def test_constraints_bring_their_own_multipliers():
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(X)
    problem = ko.Problem(cp.Minimize(cp.norm(f - Y) + 0.1 * ko.sum_squares(theta)), [f <= 0.5, cp.sum(f[:5]) == 0.2])
    problem.solve(solver="CLARABEL")
    assert problem.status == "optimal" and problem.certificate.evidence.rows is not None
    assert problem.verify().passed


POSITIVE = np.abs(Y) + 0.5


def _matrix(f):
    return cp.bmat([[f[0] + 2, f[1]], [f[1], f[2] + 2]])


CONES = {
    "geometric mean": lambda f: -cp.geo_mean(f[:4] + 3),
    "bound on a geometric mean": lambda f: (0, [cp.geo_mean(f[:4] + 2) >= 2.2]),
    "relative entropy": lambda f: cp.sum(cp.rel_entr(f + 5, POSITIVE)),
    "divergence": lambda f: cp.sum(cp.kl_div(f + 5, POSITIVE)),
    "eigenvalue": lambda f: cp.lambda_max(_matrix(f)),
    "exponential of an eigenvalue": lambda f: cp.exp(0.1 * cp.lambda_max(_matrix(f))),
    "semidefinite": lambda f: (0, [_matrix(f) >> 0]),
    "determinant": lambda f: -cp.log_det(_matrix(f)),
    "trace of an inverse": lambda f: cp.tr_inv(_matrix(f)),
    "square over a line": lambda f: cp.quad_over_lin(f[:5] - Y[:5], f[6] + 4),
    "second-order cone": lambda f: (0, [cp.SOC(f[0] + 1.5, f[1:5])]),
    "exponential cone": lambda f: (0, [cp.ExpCone(f[0], cp.Constant(1.0), f[1] + 1.2)]),
    "power cone": lambda f: (0, [cp.PowCone3D(f[0] + 1, f[1] + 1, f[2], 0.3)]),
    "inverse product": lambda f: cp.inv_prod(f[:3] + 3),
    "x exp x": lambda f: cp.sum(cp.xexp(cp.pos(f + 4))),
    "x exp x at kinks": lambda f: 3 * cp.sum(cp.xexp(cp.pos(f))),
    "maximum of cones": lambda f: cp.maximum(cp.quad_over_lin(f[:2] - 1, f[4] + 3), cp.norm(f[5:8])),
    "logarithm of a mean": lambda f: -cp.log(cp.geo_mean(f[:3] + 3)),
    "perspective": lambda f: _perspective(f),
}


def _perspective(f):
    s, x = cp.Variable(nonneg=True), cp.Variable()
    return cp.perspective(cp.exp(x), s) + cp.square(s - 1), [x == f[0]]


@pytest.mark.later
@pytest.mark.parametrize("loss", [cp.sum_squares, cp.norm1])
@pytest.mark.parametrize("name", CONES)
def test_cones_are_proven_on_pieces(name, loss):
    """Functions at kinks and the multipliers of cones share predictions, so that they are found together."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(X) + cp.Variable()
    term, constraints = CONES[name](f) if isinstance(CONES[name](f), tuple) else (CONES[name](f), [])
    objective = loss(f - Y) + term + 0.1 * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(objective), constraints)
    problem.solve(solver="CLARABEL")
    assert problem.status == "optimal" and problem.certificate.evidence.rows is not None


@pytest.mark.parametrize("solver", ["CLARABEL", "SCS"])
@pytest.mark.parametrize("wrong", [None, 0.0, np.nan])
def test_multipliers_follow_from_the_point_where_a_solvers_are_wrong(solver, wrong, monkeypatch):
    """Bᵀν is the sum of the norms' slopes, whose prices are unknown where the ball has one."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(X)
    problem = ko.Problem(
        cp.Minimize(cp.norm1(f - Y) + 0.1 * ko.sum_squares(theta)), [f[:3] <= 0.2, ko.norm(theta) <= 1.0]
    )
    ours = certify.rows_near
    if wrong is not None:
        monkeypatch.setattr(certify, "rows_near", lambda r, p, point, by_nu=True: (
            np.full(len(p.s0), wrong) if by_nu else ours(r, p, point, by_nu)))  # fmt: skip
    problem.solve(solver=solver)
    assert problem.certificate.relative_gap <= (1e-6 if solver == "CLARABEL" else 1e-4)


@pytest.mark.parametrize("attribute", ["complex", "imag", "hermitian"])
def test_complex_variables_are_proven_in_real_numbers(attribute):
    shape = (3, 3) if attribute == "hermitian" else (3,)
    theta, v = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(shape, **{attribute: True})
    entries = cp.hstack([cp.real(v[0, 1]), cp.imag(v[0, 1]), cp.real(v[2, 2])]) if shape == (3, 3) else cp.imag(v)
    cost = cp.sum(cp.abs(entries)) + cp.sum_squares(cp.abs(v))
    objective = cp.sum_squares(theta(X) + 0.5 * np.ones((N, 3)) @ entries - Y - 3) + ko.sum_squares(theta) + 0.1 * cost
    problem = ko.Problem(cp.Minimize(objective))
    problem.solve()
    assert problem.status == "optimal" and problem.certificate.evidence.rows is not None


def test_multipliers_of_complex_equations_have_a_size():
    """H ⪰ 0 with an entry that is two predictions: what its equation is met to costs its multiplier's size."""
    rng = np.random.default_rng(1)
    points = rng.uniform(-2, 2, (12, 1))
    y = np.sin(2 * points[:, 0]) + 0.3 * rng.normal(size=12)
    theta, H = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable((2, 2), hermitian=True)
    f = theta(points)
    objective = cp.real(cp.trace(H)) + cp.sum_squares(f - y) + 0.1 * ko.sum_squares(theta)
    held = [H >> 0, cp.real(H[0, 0]) >= f[0] + 1, H[0, 1] == f[1] + 1j * f[2]]
    problem = ko.Problem(cp.Minimize(objective), held)
    problem.solve()
    w = cp.Variable(12)
    B = np.linalg.cholesky(ko.kernels.Gaussian(sigma=1.0)(points) + 1e-12 * np.eye(12))
    f = B @ w
    objective = cp.real(cp.trace(H)) + cp.sum_squares(f - y) + 0.1 * cp.sum_squares(w)
    held = [H >> 0, cp.real(H[0, 0]) >= f[0] + 1, H[0, 1] == f[1] + 1j * f[2]]
    truth = cp.Problem(cp.Minimize(objective), held).solve(solver="CLARABEL")
    assert problem.status == "optimal" and problem.value == pytest.approx(truth, rel=1e-6)
    assert problem.certificate.lower <= truth * (1 + 1e-7) and problem.certificate.upper >= truth * (1 - 1e-7)
