"""Any cvxpy atom works on predictions: each gives the value that it has on an explicit θ."""

import cvxpy as cp
import numpy as np
import pytest
from stating import InFeatures, InKernel, solve_tightly

import kernelopt as ko

pytestmark = [
    pytest.mark.filterwarnings("ignore:Solution may be inaccurate"),
    pytest.mark.filterwarnings("ignore:The problem includes expressions"),
    pytest.mark.filterwarnings("ignore:.* being approximated"),
]
RNG = np.random.default_rng(0)
X, c = RNG.uniform(-1, 1, size=(6, 2)), RNG.uniform(0.5, 2, size=6)
M = RNG.normal(size=(6, 6))
E = np.eye(6)

# Each maps the predictions u, shape (6,), to a convex scalar (concave ones negated).
CONVEX = {
    "abs": lambda u: cp.sum(cp.abs(u - 1)),
    "conv": lambda u: cp.norm(cp.convolve([1.0, -2.0], u) - 1),
    "cummax": lambda u: cp.sum(cp.cummax(u - c)),
    "cumsum": lambda u: cp.norm(cp.cumsum(u) - 1),
    "diag": lambda u: cp.sum_squares(cp.diag(u) - 1),
    "diff": lambda u: cp.sum_squares(cp.diff(u, 2) - 1),
    "dotsort": lambda u: cp.dotsort(u - c, [1.0, 2.0]),
    "entr": lambda u: -cp.sum(cp.entr(u + 3)),
    "exp": lambda u: cp.sum(cp.exp(u) - u),
    "geo_mean": lambda u: -cp.geo_mean(u + 4),
    "harmonic_mean": lambda u: -cp.harmonic_mean(u + 4),
    "huber": lambda u: cp.sum(cp.huber(u - c, 0.5)),
    "hstack": lambda u: cp.norm(cp.hstack([u, 1, u[::2]]) - 2),
    "index": lambda u: cp.sum_squares(u[[0, 3, 3]] - 1) + cp.square(u[-1] + 1),
    "inv_pos": lambda u: cp.sum(cp.inv_pos(u + 3)),
    "inv_prod": lambda u: cp.inv_prod(u + 3),
    "kl_div": lambda u: cp.sum(cp.kl_div(u + 3, c)),
    "kron": lambda u: cp.sum_squares(cp.kron(np.array([[1.0, 2.0]]), cp.reshape(u, (6, 1), order="C")) - 1),
    "lambda_max": lambda u: cp.lambda_max(cp.diag(u) + M + M.T),
    "lambda_sum_largest": lambda u: cp.lambda_sum_largest(cp.diag(u) + M + M.T, 2),
    "log": lambda u: -cp.sum(cp.log(u + 4)),
    "log1p": lambda u: -cp.sum(cp.log1p(u + 4)),
    "log_det": lambda u: -cp.log_det(cp.diag(u) + 5 * E),
    "log_normcdf": lambda u: -cp.sum(cp.log_normcdf(u)),
    "log_sum_exp": lambda u: cp.log_sum_exp(u - c),
    "logistic": lambda u: cp.sum(cp.logistic(-cp.multiply(u, c))),
    "matrix_frac": lambda u: cp.matrix_frac(u - c, M @ M.T + E),
    "max": lambda u: cp.max(cp.abs(u - c)),
    "maximum": lambda u: cp.sum(cp.maximum(u - c, 0.5 * (c - u), 0)),
    "mean": lambda u: cp.square(cp.mean(u) - 1),
    "min": lambda u: -cp.min(u - c),
    "minimum": lambda u: -cp.sum(cp.minimum(u - c, 0.5 * (c - u))),
    "mixed_norm": lambda u: cp.mixed_norm(cp.reshape(u, (3, 2), order="C") - 1, 2, 1),
    "multiply": lambda u: cp.sum_squares(cp.multiply(c, u) - 1),
    "neg": lambda u: cp.sum(cp.neg(u - c)),
    "norm": lambda u: cp.norm(u - c) + cp.norm1(u) + cp.norm_inf(u - 1) + cp.norm(u, 3),
    "normNuc": lambda u: cp.normNuc(cp.reshape(u, (3, 2), order="F") - 1),
    "one_minus_pos": lambda u: cp.sum(cp.power(u + 3, 1.5)),
    "partial_trace": lambda u: cp.sum_squares(cp.trace(cp.outer(u, c)) - 1),
    "pnorm": lambda u: cp.pnorm(u - c, 1.7),
    "pos": lambda u: cp.sum(cp.pos(u - c) + cp.pos(c - u)),
    "power": lambda u: cp.sum(cp.power(u - c, 4) + cp.power(cp.abs(u), 1.5)),
    "ptp": lambda u: cp.ptp(u - c),
    "quad_form": lambda u: cp.quad_form(u - c, M @ M.T),
    "quad_over_lin": lambda u: cp.quad_over_lin(u - c, u[0] + 3),
    "rel_entr": lambda u: cp.sum(cp.rel_entr(u + 3, c)),
    "reshape": lambda u: cp.sum_squares(cp.reshape(u, (2, 3), order="F") @ np.ones(3) - 1),
    "scalar_product": lambda u: cp.square(cp.scalar_product(u, c) - 1),
    "scalene": lambda u: cp.sum(cp.scalene(u - c, 1, 2)),
    "sigma_max": lambda u: cp.sigma_max(cp.reshape(u, (3, 2), order="F") - 1),
    "sqrt": lambda u: -cp.sum(cp.sqrt(u + 3)),
    "square": lambda u: cp.sum(cp.square(u - c)),
    "std": lambda u: cp.std(u - c),
    "sum_largest": lambda u: cp.sum_largest(cp.abs(u - c), 2),
    "sum_smallest": lambda u: -cp.sum_smallest(u - c, 2),
    "tr_inv": lambda u: cp.tr_inv(cp.diag(u) + 5 * E),
    "total_variation": lambda u: cp.tv(u - c),
    "transpose": lambda u: cp.sum_squares(cp.reshape(u, (2, 3), order="F").T - 1),
    "upper_tri": lambda u: cp.sum_squares(cp.upper_tri(cp.diag(u) + cp.outer(u, c)) - 1),
    "var": lambda u: cp.var(u - c),
    "vdot": lambda u: cp.square(cp.vdot(u, c) - 1),
    "vec_to_upper_tri": lambda u: cp.sum_squares(cp.vec_to_upper_tri(u) - 1),
    "vstack": lambda u: cp.sum_squares(cp.vstack([u, c]) - 1),
    "xexp": lambda u: cp.sum(cp.exp(cp.square(u - 1))),
}
# Of what cvxpy compiles to another function than its values tell.
REFERENCES = {"upper_tri": lambda u: sum(cp.square(u[i] * c[j] - 1) for i in range(6) for j in range(i + 1, 6))}
CONES = {
    "semidefinite": lambda u: [cp.diag(u) + 0.3 * E >> 0],
    "exponential": lambda u: [cp.ExpCone(u, np.ones(6), c * 2)],
    "second order": lambda u: [cp.SOC(u[0] + 2, u[1:])],
    "power": lambda u: [cp.PowCone3D(u[0] + 2, 2.0, u[1], 0.4)],
    "power, n-dimensional": lambda u: [cp.PowConeND(cp.hstack([u[0] + 2, u[2] + 2]), u[1], [0.4, 0.6])],
    "relative entropy": lambda u: [cp.RelEntrConeQuad(u[:2] + 3, c[:2], np.full(2, 4.0), 3, 3)],
    "equality": lambda u: [u[0] == u[1] + 0.1],
    "nonnegative": lambda u: [cp.NonNeg(u + 0.2), cp.Zero(u[0] - 0.1)],
}


def value_in(language, expression, constraints):
    theta = language.theta(ko.kernels.Polynomial(degree=1))
    u = theta(X)
    objective = cp.Minimize(expression(u) + 0.1 * language.sum_squares(theta))
    problem = language.problem(objective, constraints(u))
    solve_tightly(problem)
    return problem.value, u.value


@pytest.mark.later
@pytest.mark.one_row
@pytest.mark.parametrize("name", CONVEX)
def test_atom(name):
    ours, u = value_in(InKernel(), CONVEX[name], lambda u: [])
    explicit, v = value_in(InFeatures(2), REFERENCES.get(name, CONVEX[name]), lambda u: [])
    assert abs(ours - explicit) < 1e-6 * max(1.0, abs(explicit))
    assert np.abs(u - v).max() < 1e-4 * max(1.0, np.abs(v).max())


@pytest.mark.later
@pytest.mark.one_row
@pytest.mark.parametrize("name", CONES)
def test_cone(name):
    ours, _ = value_in(InKernel(), lambda u: cp.sum_squares(u + c), CONES[name])
    explicit, _ = value_in(InFeatures(2), lambda u: cp.sum_squares(u + c), CONES[name])
    assert abs(ours - explicit) < 1e-5 * max(1.0, abs(explicit))
