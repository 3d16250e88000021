"""Derivatives of kernel matrices by parameters, beside central differences."""

from dataclasses import dataclass

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt import errors, kernels
from kernelopt.kernels import adjoints, stationary
from kernelopt.kernels.adjoints import kernel_gradient

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(9, 3)), RNG.normal(size=(7, 3))
Z[:3] = X[:3]  # pairs of equal points
L, R = RNG.normal(size=(9, 2)), RNG.normal(size=(7, 2))


def positive(value, name="p"):
    return cp.Parameter(np.shape(value), pos=True, value=value, name=name)


def real(value):
    return cp.Parameter(np.shape(value), value=value, name="r")


SCALES = np.array([0.7, 1.5, 3.0])
KERNELS = {
    "gaussian": lambda: kernels.Gaussian(sigma=positive(1.3)),
    "laplacian": lambda: kernels.Laplacian(sigma=positive(1.3)),
    "matern ½": lambda: kernels.Matern(0.5, sigma=positive(1.3)),
    "matern 3/2": lambda: kernels.Matern(1.5, sigma=positive(1.3)),
    "matern 5/2": lambda: kernels.Matern(2.5, sigma=positive(1.3)),
    "rational quadratic": lambda: kernels.RationalQuadratic(positive(1.3), positive(0.8)),
    "periodic": lambda: kernels.Periodic(period=positive(2.5), sigma=positive(1.2)),
    "polynomial": lambda: kernels.Polynomial(3, positive(0.7), positive(0.4)),
    "polynomial series": lambda: kernels.PolynomialSeries(positive([0.5, 1.0, 0.3])),
    "constant": lambda: kernels.Constant(positive(0.4)),
    "sigmoid": lambda: kernels.Sigmoid(positive(0.3), real(-0.2)),
    "generalized": lambda: kernels.GeneralizedGaussian("l1", positive(1.7)),
    "scaled": lambda: kernels.Gaussian(sigma=positive(2.0)) * positive(0.4),
    "sum": lambda: kernels.Gaussian(sigma=positive(2.0)) * positive(0.4) + kernels.Laplacian(positive(1.1)),
    "product": lambda: kernels.Gaussian(positive(2.0)) * kernels.Polynomial(2, positive(0.5)) * kernels.Linear(),
    "difference": lambda: kernels.Gaussian(positive(2.0)) - kernels.Laplacian(positive(0.6)) * positive(0.1),
    "power": lambda: (kernels.Gaussian(positive(2.0)) + kernels.Constant(positive(0.3))) ** 3,
    "series": lambda: kernels.Gaussian(positive(2.0)).series(positive([0.2, 0.5, 0.9])),
    "exp": lambda: (kernels.Linear() * positive(0.3)).exp(),
    "ard gaussian": lambda: kernels.Gaussian(positive(1.1)).ard(positive(SCALES)),
    "ard laplacian": lambda: kernels.Laplacian(positive(1.1)).ard(positive(SCALES)),
    "ard matern": lambda: kernels.Matern(2.5, 1.0).ard(positive(SCALES)),
    "ard rational quadratic": lambda: kernels.RationalQuadratic(1.0, positive(2.0)).ard(positive(SCALES)),
    "ard periodic": lambda: kernels.Periodic(2.0, 1.0).ard(positive(SCALES)),
    "ard linear": lambda: kernels.Linear().ard(positive(SCALES)),
    "ard polynomial": lambda: kernels.Polynomial(2).ard(positive(SCALES)),
    "ard sigmoid": lambda: kernels.Sigmoid(0.2).ard(positive(SCALES)),
    "ard constant": lambda: (kernels.Constant(2.0) + kernels.Linear()).ard(positive(SCALES)),
    "ard of a product": lambda: (kernels.Gaussian(2.0) * kernels.Linear() + kernels.Laplacian(1.0)).ard(
        positive(SCALES)
    ),
    "ard of ard": lambda: kernels.Gaussian(1.0).ard([2.0, 1.0, 0.5]).ard(positive(SCALES)),
    "columns": lambda: kernels.Gaussian(positive(1.0)).on([2, 0]),
    "ard of columns": lambda: kernels.Gaussian(1.0).on([2, 0]).ard(positive(SCALES)),
    "weighted": lambda: kernels.Gaussian(positive(1.0)).weighted(lambda X: 1 + X[:, 0] ** 2),
    "composed": lambda: kernels.Gaussian(positive(1.0)).compose(np.sin),
    "normalized": lambda: kernels.Polynomial(2, positive(0.7), positive(0.4)).normalized(),
    "ard normalized": lambda: kernels.Polynomial(2).normalized().ard(positive(SCALES)),
    "centered": lambda: (kernels.Gaussian(positive(1.0)) * positive(2.0)).centered(X + 0.1),
    "three deep": lambda: (
        ((kernels.Gaussian(positive(1.5)) + kernels.Constant(positive(0.1))) ** 2).normalized()
        * kernels.Matern(1.5, positive(2.0)).ard(positive(SCALES))
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_by_differences(name):
    kernel = KERNELS[name]()
    found = kernel_gradient(kernel, X, Z, L, R)
    assert set(found) == set(kernel.parameters())
    assert len(found) >= 1
    for p, g in found.items():
        assert g.shape == p.shape
        known, value = np.zeros(p.shape), np.array(p.value, dtype=float)
        for entry in np.ndindex(p.shape):
            sums = []
            for k in (-2, -1, 1, 2):
                moved = value.copy()
                moved[entry] += k * 1e-3
                p.value = moved
                sums.append(np.sum((L @ R.T) * kernel(X, Z)))
            known[entry] = (sums[0] - 8 * sums[1] + 8 * sums[2] - sums[3]) / 12e-3
        p.value = value
        assert g == pytest.approx(known, rel=1e-7, abs=1e-8)


def test_blocks(monkeypatch):
    kernel = KERNELS["three deep"]()
    whole = kernel_gradient(kernel, X, Z, L, R)
    monkeypatch.setattr(adjoints, "BLOCK", 2)
    for p, g in kernel_gradient(kernel, X, Z, L, R).items():
        assert g == pytest.approx(whole[p], rel=1e-12, abs=1e-13)


def test_a_parameter_in_several_places():
    p = positive(1.4)
    both = kernel_gradient(kernels.Gaussian(p) + kernels.Laplacian(p) * p, X, Z, L, R)
    one, two, three = positive(1.4), positive(1.4), positive(1.4)
    apart = kernel_gradient(kernels.Gaussian(one) + kernels.Laplacian(two) * three, X, Z, L, R)
    assert both[p] == pytest.approx(apart[one] + apart[two] + apart[three])
    same = kernel_gradient(kernels.Periodic(p, p), X, Z, L, R)
    alone = kernel_gradient(kernels.Periodic(one, two), X, Z, L, R)
    assert same[p] == pytest.approx(alone[one] + alone[two])


def test_points_far_from_zero():
    """Differences do not cancel."""
    scales = positive(SCALES)
    near = kernel_gradient(kernels.Gaussian(1.0).ard(scales), X, Z, L, R)[scales]
    far = kernel_gradient(kernels.Gaussian(1.0).ard(scales), X + 1e6, Z + 1e6, L, R)[scales]
    assert far == pytest.approx(near, rel=1e-8)


def test_many_length_scales_take_few_passes(monkeypatch):
    """All 50 derivatives come from one evaluation of the kernel."""
    P, passes = RNG.normal(size=(20, 50)), []
    plain = stationary.half_squared_distances
    monkeypatch.setattr(stationary, "half_squared_distances", lambda *a: passes.append(1) or plain(*a))
    scales = positive(np.full(50, 5.0))
    found = kernel_gradient(kernels.Gaussian(1.0).ard(scales), P, P, P[:, :1], P[:, 1:2])
    assert found[scales].shape == (50,)
    assert len(passes) == 1


def test_kernels_without_a_rule():
    with pytest.raises(errors.KernelError, match="_adjoint"):
        kernel_gradient(kernels.Cosine().ard(positive(SCALES)), X, Z, L, R)
    with pytest.raises(errors.KernelError, match="points"):
        kernel_gradient(kernels.Gaussian(1.0).compose(np.sin).ard(positive(SCALES)), X, Z, L, R)

    common = ko.kernels.FromFunction(lambda a, b: float(a @ b), psd=True)
    p = positive(2.0)
    assert kernel_gradient(common * p, X, Z, L, R)[p] == pytest.approx(np.sum((L @ R.T) * (X @ Z.T)))


@dataclass(frozen=True)
class Wrong(kernels.Kernel):
    """c·xᵀz with a rule that can be off."""

    factor: float
    by_factor: float = 1.0
    by_points: float = 1.0

    def _verdict(self):
        return kernels.Linear()._verdict()

    def _matrix(self, X, Z):
        return self.factor * (X @ (X if Z is None else Z).T)

    def _diagonal(self, X):
        return self.factor * np.sum(X**2, axis=1)

    def _adjoint(self, X, Z, G, pull, points):
        own = {"factor": self.by_factor * float(np.sum(G * (X @ Z.T)))}
        return own, (self.by_points * self.factor * G @ Z, self.factor * G.T @ X) if points else None


def test_rules_of_users_are_checked():
    ko.testing.check_kernel(Wrong(2.0), X, Z)
    p = positive(2.0)
    assert kernel_gradient(Wrong(p), X, Z, L, R)[p] == pytest.approx(np.sum((L @ R.T) * (X @ Z.T)))
    with pytest.raises(errors.KernelError, match="by factor"):
        ko.testing.check_kernel(Wrong(2.0, by_factor=1.1), X, Z)
    with pytest.raises(errors.KernelError, match="column 0 of points"):
        ko.testing.check_kernel(Wrong(2.0, by_points=1.1), X[3:], Z[3:])


@pytest.mark.parametrize("name", KERNELS)
def test_rules_of_the_library_pass_the_check(name):
    kernel = KERNELS[name]().at_present()
    ko.testing.check_kernel(kernel, X[3:], Z[3:])
