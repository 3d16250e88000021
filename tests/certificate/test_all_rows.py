"""Answers of cone solvers are proven on pieces: multipliers of all rows follow from those of predictions."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko

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
