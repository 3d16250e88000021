"""The derivative of the approximate leave-one-out loss, beside central differences of that loss."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt import losses
from kernelopt.errors import DataError, KernelOptError
from kernelopt.model_selection.leave_one_out_slope import leave_one_out_slope

N = 40
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
Y = np.sin(2 * X[:, 0]) + 0.3 * RNG.normal(size=N)
LABELS, COUNTS = np.sign(Y), np.round(np.exp(Y))


def own(u, y):
    return np.logaddexp(u - y, y - u)


OWN = ko.SmoothLoss(own, lambda u, y: np.tanh(u - y), lambda u, y: 1 / np.cosh(u - y) ** 2)
LOSSES = {
    "squares": lambda f: losses.squared_error(Y, f),
    "log_loss": lambda f: losses.log_loss(LABELS, f),
    "poisson": lambda f: losses.poisson(COUNTS, f),
    "huber": lambda f: losses.huber(Y, f, 0.5),
    "squared_hinge": lambda f: losses.squared_hinge(LABELS, f),
    "cubes": lambda f: cp.power(cp.abs(Y - f), 3),
    "logarithm": lambda f: f - cp.multiply(Y + 4, cp.log(f + 3)),
    "entropy": lambda f: -cp.entr(f + 4) - cp.multiply(np.log(Y + 4) + 1, f),
    "own": lambda f: OWN(f, Y),
}


class Case:
    def __init__(self, loss, constraints=False, sign=1.0):
        self.sigma, self.lam = cp.Parameter(pos=True, value=1.3, name="sigma"), cp.Parameter(pos=True, value=0.3)
        self.scales = cp.Parameter(2, pos=True, value=[1.0, 2.0])
        one, two = ko.kernels.Gaussian(sigma=self.sigma), ko.kernels.Gaussian(sigma=1.0).ard(self.scales)
        self.theta = ko.Theta(one + 0.5 * two)
        self.other = ko.Theta(ko.kernels.Polynomial(degree=2))
        self.f = self.theta(X) + self.other(X) + cp.Variable()
        w = np.random.default_rng(1).uniform(0.5, 2, N)
        costs = self.lam * ko.sum_squares(self.theta) + (2 * self.lam + 0.1) * ko.sum_squares(self.other)
        total = w @ LOSSES[loss](self.f) + costs
        f = self.f
        held = [f[0] == f[1] + 0.3, f[2] >= f[3] + 0.2] if constraints else []
        self.problem = ko.Problem(cp.Minimize(total) if sign > 0 else cp.Maximize(-total), held)
        self.criterion = ko.LeaveOneOutLoss(self.f, lambda f: losses.huber(Y, f))
        self.parameters = [self.sigma, self.lam, self.scales]

    def found(self, parameters=None, certify=True):
        self.problem.solve(tol=1e-10, certify=certify)
        return leave_one_out_slope(self.problem, self.criterion, parameters or self.parameters)

    def difference(self, parameter, entry=(), h=1e-2):
        kept, values = np.array(parameter.value), []
        for k in (-2, -1, 1, 2):
            moved = kept.copy()
            moved[entry] += k * h
            parameter.value = moved
            values.append(self.found([self.lam], certify=False)[0])
        parameter.value = kept
        return (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h)


@pytest.mark.slow
@pytest.mark.parametrize("constraints", [False, True], ids=["free", "constraints"])
@pytest.mark.parametrize("loss", LOSSES)
def test_beside_differences(loss, constraints):
    case = Case(loss, constraints)
    value, (by_sigma, by_lam, by_scales) = case.found()
    left_out = ko.approximate_leave_one_out(case.problem, case.f)
    assert value == pytest.approx(np.mean(losses.huber(Y, left_out).value), rel=1e-12)
    size = np.abs(np.concatenate([[by_sigma, by_lam], by_scales])).max()
    # Curvature jumps where a row changes its stretch; short steps see no jump, and need precise optima, as of squares.
    steps = {"h": 5e-5} if loss in ("squares", "huber", "squared_hinge") else {"h": 2e-3} if loss == "cubes" else {}
    for parameter, entry, found in [
        (case.sigma, (), by_sigma), (case.lam, (), by_lam), (case.scales, (0,), by_scales[0]),
        (case.scales, (1,), by_scales[1]),
    ]:  # fmt: skip
        assert found == pytest.approx(case.difference(parameter, entry, **steps), rel=1e-4, abs=1e-4 * size)


@pytest.mark.slow
def test_maximization():
    value, slopes = Case("log_loss").found()
    other, again = Case("log_loss", sign=-1.0).found()
    assert np.isfinite(value) and len(slopes) == len(again) == 3 and other > 0
    case = Case("log_loss", sign=-1.0)
    assert case.found()[1][1] == pytest.approx(case.difference(case.lam), rel=1e-4)


@pytest.mark.slow
def test_tune():
    case = Case("log_loss")
    found = ko.tune(case.problem, case.criterion, [case.sigma, case.lam])
    assert found.value < found["criterion"][0] and case.problem.status == "optimal"
    left_out = ko.approximate_leave_one_out(case.problem, case.f)
    assert found.value == pytest.approx(np.mean(losses.huber(Y, left_out).value), rel=1e-4)


@pytest.mark.parametrize("loss", ["hinge", "absolute"])
def test_rows_at_a_kink_are_refused(loss):
    sigma = cp.Parameter(pos=True, value=1.0)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=sigma))
    f = theta(X)
    terms = losses.hinge(LABELS, f) if loss == "hinge" else losses.absolute_error(Y, f)
    problem = ko.Problem(cp.Minimize(cp.sum(terms) + 0.1 * ko.sum_squares(theta)))
    with pytest.raises(KernelOptError, match="not at a kink"):
        ko.tune(problem, ko.LeaveOneOutLoss(f, lambda f: cp.square(f - Y)), [sigma])


@pytest.mark.later
def test_what_is_refused():
    case = Case("log_loss")
    w = cp.Parameter(N, nonneg=True, value=np.ones(N), name="w")
    weighted = ko.Problem(cp.Minimize(w @ LOSSES["log_loss"](case.f) + case.lam * ko.sum_squares(case.theta)
                                      + ko.sum_squares(case.other)))  # fmt: skip
    with pytest.raises(KernelOptError, match="w is in losses"):
        ko.tune(weighted, case.criterion, [w])
    with pytest.raises(DataError, match="return an expression of shape"):
        ko.tune(case.problem, ko.LeaveOneOutLoss(case.f, cp.sum), [case.lam])
    with pytest.raises(DataError, match="Leave out `at`"):
        ko.tune(case.problem, case.criterion, [case.lam], at=case.f)
