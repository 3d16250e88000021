"""SPECTRAL: the largest singular value of a matrix on a null space, with bounds that a Cholesky factorization proves.

    maximize ‖Cx‖  subject to  ‖x‖ ≤ 1, Kx = 0:   x the leading eigenvector of PCᵀCP, P = I − ZZᵀ, K = UΣZᵀ

LAPACK computes it for small matrices, Lanczos (ARPACK) for large ones. The bound λ_max(T) ≤ τ relies on neither: it is
proven by a Cholesky factorization of τI − T.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg as sl
import scipy.sparse.linalg as sla
from scipy.linalg.lapack import dpotrf

from kernelopt.support.types import Array

NAME = "SPECTRAL"
LAPACK = 400  # order up to which the whole matrix is tridiagonalized, O(n³); above it, Lanczos iterations are faster
# Relative to the largest singular value of K with rows of unit length: smaller ones belong to rows that depend linearly
# on others. It is well above the rounding of a decomposition, about 1e-15.
DEPENDENT = 1e-12
# Relative slack τ/guess − 1 up to which τI − T is factored. A guess that needs more missed the largest eigenvalue: then
# LAPACK computes it, or ‖T‖ is the bound.
LARGEST_SLACK = 1e-6
EPS = float(np.finfo(float).eps)


class Constrained(NamedTuple):
    """C on the null space of K.

    C : CP, (m, r); pseudoinverse : K⁺, (r, g); Z : an orthonormal basis of the row space of K, (r, q)
    lift : CK⁺, (m, g): a violation Kx = e changes Cx by CK⁺e
    total : ‖C‖² (Frobenius) before the projection
    """

    C: Array
    pseudoinverse: Array
    Z: Array
    lift: Array
    total: float


class Leading(NamedTuple):
    """The largest squared singular values, their right singular vectors, and a proven bound.

    values : (k,), descending; vectors : (r, k), in columns; bound : ≥ λ_max
    """

    values: Array
    vectors: Array
    bound: float


def constrained(C: Array, K: Array) -> Constrained:
    """CP, with P the projection on the null space of K (g, r), whose rows may have any size and be dependent."""
    size = np.linalg.norm(K, axis=1)
    unit = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)
    U, s, Zt = np.linalg.svd(K * unit[:, None], full_matrices=False)
    kept = s > DEPENDENT * s.max(initial=0.0)
    U, s, Z = U[:, kept], s[kept], Zt[kept].T
    inverse = (Z / s) @ U.T * unit
    projected = C - (C @ Z) @ Z.T if len(s) else C
    return Constrained(projected, inverse, Z, C @ inverse, float(np.linalg.norm(C)) ** 2)


def leading(problem: Constrained, k: int) -> Leading:
    """The k largest singular values of CP, squared, or as many as there are."""
    C, Z = problem.C, problem.Z
    T = gram(C)
    if not len(T):
        return Leading(np.zeros(0), np.zeros((C.shape[1], 0)), 0.0)
    values, X, bound = eigenpairs(T, min(k, len(T)))
    if len(T) != C.shape[1]:
        X = C.T @ X  # T = CCᵀ: right singular vectors are Cᵀx/σ
    X = X - Z @ (Z.T @ X)
    size = np.linalg.norm(X, axis=0)
    return Leading(values.clip(0.0), np.divide(X, size, out=np.zeros_like(X), where=size > 0), bound)


def gram(C: Array) -> Array:
    """CᵀC or CCᵀ, whichever is smaller."""
    return C.T @ C if C.shape[1] <= C.shape[0] else C @ C.T


def upper_bound(T: Array, guess: float) -> float:
    """τ ≥ λ_max(T) for a positive semidefinite T, slightly above the guess where that is right, and at most ‖T‖.

    The proof is a Cholesky factor of τI − T, up to rounding of order len(T)·ε·τ, which `enclosure` counts.
    """
    most = float(np.linalg.norm(T))
    slack = 8 * len(T) * EPS
    while slack < LARGEST_SLACK and guess > 0:
        tau = guess * (1 + slack)
        shifted = -T.T
        shifted[np.diag_indices_from(shifted)] += tau
        if tau >= most or dpotrf(shifted, lower=1, overwrite_a=1)[1] == 0:
            return min(tau, most)
        slack *= 100
    return most


def eigenpairs(T: Array, k: int) -> tuple[Array, Array, float]:
    """The k largest eigenvalues, descending, their vectors, and a bound on all eigenvalues."""
    n = len(T)
    if n > LAPACK and k < n:
        try:
            values, X = sla.eigsh(T, k=k, which="LA", v0=np.random.default_rng(0).normal(size=n))
            bound = upper_bound(T, float(values[-1]))
            if bound <= values[-1] * (1 + LARGEST_SLACK):  # Lanczos missed no larger eigenvalue
                return values[::-1], X[:, ::-1], bound
        except sla.ArpackError:
            pass
    values, X = sl.eigh(T, subset_by_index=[n - k, n - 1])
    return values[::-1], X[:, ::-1], upper_bound(T, float(values[-1]))
