"""Multipliers of the cones' rows from slopes of the functions that they consist of."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import kernelopt as ko
from kernelopt.certificate.dual_rows import of_slopes
from kernelopt.compiler.separable import outer_of

RNG = np.random.default_rng(3)
N = 6
X = RNG.normal(size=(N, 2))
WEIGHTS = np.arange(1.0, N + 1)

FUNCTIONS = {
    "exp q": lambda f: WEIGHTS @ cp.exp(2 * f - 0.5),
    "-log q": lambda f: -WEIGHTS @ cp.log(3 * f + 10),
    "q log q": lambda f: -WEIGHTS @ cp.entr(2 * f + 10),
    "-log(1 - exp q)": lambda f: -WEIGHTS @ cp.log(1 - cp.exp(0.5 * f - 3)),
    "log(1 + exp q)": lambda f: WEIGHTS @ cp.logistic(2 * f - 0.5),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_multipliers_attain_the_conjugate(name):
    """Σ bᵀz = h*(v), Aᵀz + c = 0 on auxiliary columns and v on those of f: z is optimal in the dual of each cone."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(X)
    problem = ko.Problem(cp.Minimize(FUNCTIONS[name](f) + ko.sum_squares(theta)))
    outer = outer_of(problem.canonical_form())
    form, split = outer.form, outer.split
    s = 0.3 * RNG.normal(size=len(split.arguments(np.zeros(N), np.zeros(len(split.y)))))
    v = split.derivative(s)
    z, tangent, _ = of_slopes(form, split, v)
    assert not tangent.any()
    (piece,) = split.pieces
    slack = form.b @ z
    assert slack == pytest.approx(np.sum(piece.conjugate(v[piece.at])), rel=1e-11)
    left = sp.csr_array(form.A).T @ z + form.c
    left[form.u[0]] -= split.E.T @ v + split.linear_u
    left[form.t] = 0.0
    assert np.abs(left).max() <= 1e-12 * np.abs(z).max()
