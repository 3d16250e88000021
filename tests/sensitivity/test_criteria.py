"""Gradients of criteria of all kinds through an optimum that is known in closed form."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt import errors

rng = np.random.default_rng(3)
X, Z = rng.uniform(-2, 2, (14, 2)), rng.uniform(-2, 2, (6, 2))
y, t = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=14), np.sin(2 * Z[:, 0])
kernel = ko.kernels.Gaussian(sigma=1.0)
Q, K = kernel(X), kernel(Z, X)


def predictions(lam):
    """K(Q + λI)⁻¹y, also for complex λ."""
    return K @ np.linalg.solve(Q + lam * np.eye(14), y)


def fitted(unit=1.0):
    theta, lam = ko.Theta(kernel), cp.Parameter(pos=True, value=0.3, name="lam")
    problem = ko.Problem(cp.Minimize(cp.sum_squares(unit * y - theta(X)) + lam * ko.sum_squares(theta)))
    problem.solve()
    return problem, theta(Z), lam


def huber(r, M):
    return np.where(np.abs(r) <= M, r**2, 2 * M * np.abs(r) - M**2)


def pinball(r, tau):
    return np.maximum(tau * r, (tau - 1) * r)


PRESENT = [  # in cvxpy and in numpy, with λ in the criterion too
    (lambda f, p: cp.sum_squares(t - f) / cp.sum_squares(f - cp.sum(f) / 6),
     lambda f, p: np.sum((t - f) ** 2) / np.sum((f - f.mean()) ** 2)),
    (lambda f, p: cp.sum(f / (1 + cp.square(f))), lambda f, p: np.sum(f / (1 + f**2))),
    (lambda f, p: cp.sum_squares(f) / p, lambda f, p: np.sum(f**2) / p),
    (lambda f, p: cp.sum(cp.huber(t - f, p)), lambda f, p: np.sum(huber(t - f, p))),
    (lambda f, p: cp.sum(cp.huber(t - f, 2 * p)), lambda f, p: np.sum(huber(t - f, 2 * p))),
    (lambda f, p: cp.sum(cp.power(cp.abs(f - t), p)), lambda f, p: np.sum(np.abs(f - t) ** p)),
    (lambda f, p: cp.sum(ko.losses.pinball(t, f, p)), lambda f, p: np.sum(pinball(t - f, p))),
    (lambda f, p: cp.norm(f - t, "inf"), lambda f, p: np.max(np.abs(f - t))),
    (lambda f, p: cp.max(cp.cumsum(f)), lambda f, p: np.max(np.cumsum(f))),
    (lambda f, p: cp.sum(cp.cummax(f)) * p, lambda f, p: np.sum(np.maximum.accumulate(f)) * p),
    (lambda f, p: cp.prod(f) * cp.sum(f), lambda f, p: np.prod(f) * np.sum(f)),
    (lambda f, p: (f @ t) / (cp.norm(f) * np.linalg.norm(t)),
     lambda f, p: (f @ t) / (np.linalg.norm(f) * np.linalg.norm(t))),
    (lambda f, p: cp.sum(cp.norm1(cp.reshape(f, (3, 2), order="F"), axis=1, keepdims=True)),
     lambda f, p: np.sum(np.abs(f))),
    (lambda f, p: cp.sum_largest(cp.square(f - t), 2.5), lambda f, p: np.sort((f - t) ** 2)[::-1][:3] @ [1, 1, 0.5]),
    (lambda f, p: cp.std(f) ** -1.5, lambda f, p: f.std() ** -1.5),
    (lambda f, p: ko.losses.cox(np.arange(6.0), np.ones(6, dtype=bool), f),
     lambda f, p: sum(np.log(np.sum(np.exp(f[i:]))) - f[i] for i in range(6))),
]  # fmt: skip


@pytest.mark.one_row
@pytest.mark.parametrize("number", range(len(PRESENT)))
def test_a_criterion(number):
    make, formula = PRESENT[number]
    problem, f, lam = fitted()
    found = ko.gradient(problem, make(f, lam), [lam])
    h = 1e-4
    ends = [formula(predictions(0.3 + k * h), 0.3 + k * h) for k in (-2, -1, 1, 2)]
    assert found.value == pytest.approx(formula(predictions(0.3), 0.3), rel=1e-9)
    assert found[lam] == pytest.approx(np.dot(ends, [1, -8, 8, -1]) / (12 * h), rel=1e-7)
    assert found.is_differentiable


@pytest.mark.parametrize("unit", [1e-8, 1.0, 1e8])
def test_units(unit):
    problem, f, lam = fitted(unit)
    target = unit * t
    found = ko.gradient(problem, cp.sum_squares(target - f) / cp.norm1(target - f), [lam])
    h = 1e-20
    r = t - predictions(0.3 + 1j * h)
    known = unit * np.imag(np.sum(r**2) / np.sum(np.sign(r.real) * r)) / h
    assert found[lam] == pytest.approx(known, rel=1e-7)


def test_a_kink_of_the_criterion_that_moves():
    """|f₀ − c| with c the prediction itself: the slopes on both sides are ±f₀′."""
    problem, f, lam = fitted()
    found = ko.gradient(problem, cp.sum(cp.abs(f[0] - predictions(0.3)[0])) + cp.sum(f), [lam])
    assert not found.is_differentiable
    assert found.kinks == ("abs",)
    assert "at a kink of abs" in repr(found)
    slope = np.imag(predictions(0.3 + 1e-20j)) / 1e-20
    assert abs(found[lam] - slope.sum()) <= abs(slope[0]) * (1 + 1e-7)


@pytest.mark.later
def test_a_kink_of_the_criterion_that_stays():
    """Both rows of a maximum are the same prediction, and |f − y| at a row that is held at y."""
    problem, f, lam = fitted()
    found = ko.gradient(problem, cp.maximum(f[0], 1 * f[0]), [lam])
    assert found.is_differentiable
    assert found[lam] == pytest.approx(np.imag(predictions(0.3 + 1e-20j))[0] / 1e-20, rel=1e-7)
    theta = ko.Theta(kernel)
    held = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta)), [theta(X[:1]) == y[0]])
    held.solve()
    assert ko.gradient(held, cp.norm1(y - theta(X)), [lam]).is_differentiable


def test_equal_largest_entries():
    problem, f, lam = fitted()
    first, second = predictions(0.3)[:2]
    found = ko.gradient(problem, cp.max(cp.hstack([f[0] - first, f[1] - second])), [lam])
    assert found.kinks == ("max",)


REFUSED = [
    (lambda f: cp.sum(cp.ceil(f)), "ceil, which is constant between its jumps"),
    (lambda f: cp.sum(cp.sign(f)), "sign, which is constant"),
    (lambda f: cp.transforms.indicator([f >= -9]), "indicator"),
    (lambda f: cp.suppfunc(cp.Variable(6, name="s"), [])(f), "SuppFuncAtom"),
    (lambda f: cp.sum(cp.sqrt(cp.maximum(f - 99, 0))), "PowerApprox|power is at the end of its domain"),
    (lambda f: cp.sum(cp.log(f - 99)), "finite value"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_refused(number):
    make, message = REFUSED[number]
    problem, f, lam = fitted()
    with pytest.raises(errors.KernelOptError, match=message):
        ko.gradient(problem, make(f), [lam])


def test_a_wrong_gradient_is_an_error_that_names_the_atom():
    """A loss whose gradient is wrong beyond the points where it is checked at its call."""

    def value(u):
        return np.where(u > 50, 2 * u - 50, u) ** 2 / 2

    def gradient(u):
        return np.where(u > 50, 2 * u - 50, u)

    wrong = ko.SmoothLoss(value, gradient, lambda u: np.ones_like(u))
    theta, lam = ko.Theta(kernel), cp.Parameter(pos=True, value=0.3)
    criterion = cp.sum(wrong(1000 * theta(Z)))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta)))
    problem.solve()
    with pytest.raises(errors.KernelOptError, match=r"differences give .* The atom at fault is SmoothLoss"):
        ko.gradient(problem, criterion, [lam])


def test_parameters_as_data_of_a_smooth_loss_are_refused():
    loss = ko.SmoothLoss(
        lambda u, s: (u - s) ** 2 / 2, lambda u, s: u - s, lambda u, s: np.ones_like(u)
    )  # fmt: skip
    problem, f, lam = fitted()
    own = cp.Parameter(6, value=t, name="own")
    criterion = cp.sum(loss(f, own))
    assert ko.gradient(problem, criterion, [lam]).is_differentiable
    with pytest.raises(errors.KernelOptError, match="SmoothLoss, which is without a rule .* by its argument 2"):
        ko.gradient(problem, criterion, [own])


def test_a_criterion_with_a_parameter_without_value():
    problem, f, lam = fitted()
    with pytest.raises(errors.ParameterError, match="with values; c has none"):
        ko.gradient(problem, cp.sum(f) * cp.Parameter(name="c"), [lam])


def test_nothing_changes():
    problem, f, lam = fitted()
    b, before = lam.value, f.value.copy()
    ko.gradient(problem, cp.sum(cp.huber(f, lam)) / lam, [lam])
    assert lam.value == b
    assert np.array_equal(f.value, before)
