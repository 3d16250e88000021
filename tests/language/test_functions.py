"""Functions of the kernel's space."""

import copy
import pickle

import numpy as np
import pytest

import kernelopt as ko
from kernelopt.errors import DataError, KernelError, RepresenterError
from kernelopt.language import functions

RNG = np.random.default_rng(0)
Z, X = RNG.normal(size=(6, 2)), RNG.normal(size=(50, 2))
KERNEL = ko.kernels.Polynomial(degree=2)
c, d = RNG.normal(size=6), RNG.normal(size=(6, 3))


def test_values_and_norm():
    f, F = ko.Function(KERNEL, Z, c), KERNEL.features
    theta = F(Z).T @ c
    assert np.allclose(f(X), F(X) @ theta)
    assert np.isclose(f.norm, np.linalg.norm(theta))
    g = ko.Function(KERNEL, X[:4], np.ones(4))
    assert np.isclose(f.inner(g), theta @ F(X[:4]).sum(axis=0))
    assert np.isclose(f.inner(g), g.inner(f))
    assert f.outputs is None


def test_several_outputs():
    f, theta = ko.Function(KERNEL, Z, d), KERNEL.features(Z).T @ d
    assert f(X).shape == (50, 3)
    assert np.allclose(f(X), KERNEL.features(X) @ theta)
    assert np.isclose(f.norm, np.linalg.norm(theta))
    assert np.allclose(f.gram(), theta.T @ theta)
    assert f.outputs == 3
    assert np.allclose(f.right(np.eye(3)[:, 1])(X), f(X)[:, 1])


def test_blocks_are_seamless(monkeypatch):
    f = ko.Function(KERNEL, Z, c)
    whole = f(X)
    monkeypatch.setattr(functions, "BLOCK_BYTES", 8 * 6 * 7)  # seven rows at a time
    monkeypatch.setattr(functions, "FEWEST", 1)
    assert np.allclose(f(X), whole, rtol=1e-14)


def test_immutable():
    f = ko.Function(KERNEL, Z, c)
    with pytest.raises(ValueError, match="read-only"):
        f.coefficients[0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        f.centers[0] = 1.0
    with pytest.raises(AttributeError):
        f.norm = 1.0
    assert c.flags.writeable
    again = pickle.loads(pickle.dumps(f))
    assert np.array_equal(again(X), f(X)) and not again.centers.flags.writeable
    assert not again.coefficients.flags.writeable and copy.deepcopy(f) is f is copy.copy(f)


def test_from_gram():
    f = ko.Function(KERNEL, Z, c)
    assert np.allclose(f.from_gram(KERNEL(X, Z)), f(X))
    Q = KERNEL(np.vstack([Z, X]))
    g = ko.Function(ko.kernels.Precomputed(Q), [4, 2], [1.0, -1.0])
    assert np.allclose(g.from_gram(Q[6:9]), Q[6:9, 4] - Q[6:9, 2])
    with pytest.raises(DataError, match=r"\(n_new, 56\)"):
        g.from_gram(Q[6:9, :2])
    with pytest.raises(DataError, match=r"\(n_new, 6\)"):
        f.from_gram(KERNEL(X, X))


def test_bad_arguments():
    with pytest.raises(DataError, match=r"\(6,\)"):
        ko.Function(KERNEL, Z, c[:3])
    with pytest.raises(DataError, match="finite"):
        ko.Function(KERNEL, Z, c * np.nan)
    with pytest.raises(DataError, match="2 columns"):
        ko.Function(KERNEL, Z, c)(X[:, :1])
    with pytest.raises(RepresenterError, match="one kernel"):
        ko.Function(KERNEL, Z, c).inner(ko.Function(ko.kernels.Linear(), Z, c))
    with pytest.raises(KernelError, match="NaN or inf"):
        ko.Function(ko.kernels.Polynomial(degree=200), Z, c)(1e10 * X)
