"""Singular values on a null space, and bounds that a Cholesky factor proves, against LAPACK on explicit matrices."""

import numpy as np
import pytest
import scipy.linalg as sl
import scipy.sparse.linalg as sla

from kernelopt.spectral import eigenvalues

RNG = np.random.default_rng(0)


def reference(C, K, k):
    free = sl.null_space(K) if len(K) else np.eye(C.shape[1])
    return np.linalg.svd(C @ free, compute_uv=False)[:k] ** 2


@pytest.mark.parametrize(("m", "r", "g"), [(30, 12, 0), (30, 12, 3), (8, 25, 3), (900, 600, 2), (600, 900, 2)])
def test_leading_singular_values(m, r, g):
    C, K = RNG.normal(size=(m, r)), RNG.normal(size=(g, r))
    side = eigenvalues.constrained(C, K)
    top = eigenvalues.leading(side, 4)
    assert np.allclose(top.values, reference(C, K, 4), rtol=1e-11)
    assert np.allclose(np.linalg.norm(C @ top.vectors, axis=0) ** 2, top.values, rtol=1e-11)
    assert np.abs(K @ top.vectors).max(initial=0.0) <= 1e-13 * np.linalg.norm(K)
    assert top.values[0] * (1 - 1e-12) <= top.bound <= top.values[0] * (1 + 1e-9)
    assert np.allclose(side.lift @ (K @ np.ones(r)), C @ np.ones(r) - side.C @ np.ones(r))


def test_constraints_of_any_size_that_depend_on_each_other():
    C, K = RNG.normal(size=(20, 6)), RNG.normal(size=(2, 6))
    rows = np.vstack([1e-20 * K[0], 1e20 * K[1], K[0] + K[1], np.zeros(6)])
    found = eigenvalues.leading(eigenvalues.constrained(C, rows), 1)
    assert found.values[0] == pytest.approx(reference(C, K, 1)[0], rel=1e-12)


def test_small_singular_values_beside_a_large_one_that_is_projected_away():
    C = RNG.normal(size=(20, 6)) @ np.diag([1e10, 1, 1, 1, 1, 1]) @ np.linalg.qr(RNG.normal(size=(6, 6)))[0]
    z = np.linalg.svd(C)[2][:1]
    found = eigenvalues.leading(eigenvalues.constrained(C, z), 1)
    assert np.abs(z @ found.vectors).max() < 1e-15


def test_everything_is_constrained():
    found = eigenvalues.leading(eigenvalues.constrained(RNG.normal(size=(20, 3)), RNG.normal(size=(5, 3))), 2)
    assert found.bound < 1e-28


def test_no_columns():
    found = eigenvalues.leading(eigenvalues.constrained(np.zeros((4, 0)), np.zeros((1, 0))), 2)
    assert found.bound == 0
    assert len(found.values) == 0


@pytest.mark.parametrize("n", [1, 5, 300])
def test_a_bound_is_proven(n):
    T = eigenvalues.gram(RNG.normal(size=(n, n + 3)))
    largest = np.linalg.eigvalsh(T)[-1]
    assert largest * (1 - 1e-13) <= eigenvalues.upper_bound(T, largest) <= largest * (1 + 1e-11)


@pytest.mark.parametrize("wrong", [0.0, 0.5, 0.999])
def test_a_guess_that_is_too_small_is_not_believed(wrong):
    T = eigenvalues.gram(RNG.normal(size=(40, 50)))
    largest = np.linalg.eigvalsh(T)[-1]
    assert largest <= eigenvalues.upper_bound(T, wrong * largest) <= np.linalg.norm(T) * (1 + 1e-12)


@pytest.mark.parametrize("failure", ["misses", "stops"])
def test_lanczos_that_fails_is_replaced(monkeypatch, failure):
    """Eigenvalues other than the largest, or none at all."""
    T = np.diag(np.linspace(1.0, 2.0, 500))

    def lanczos(T, k, **options):
        if failure == "stops":
            raise sla.ArpackNoConvergence("no convergence", np.zeros(0), np.zeros((500, 0)))
        return np.linspace(1.0, 1.5, k), np.eye(500)[:, :k]

    monkeypatch.setattr(eigenvalues.sla, "eigsh", lanczos)
    values, vectors, bound = eigenvalues.eigenpairs(T, 3)
    assert values[0] == pytest.approx(2.0, rel=1e-12)
    assert np.allclose(T @ vectors, vectors * values)
    assert bound == pytest.approx(2.0, rel=1e-9)
