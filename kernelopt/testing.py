"""Checks for kernels that users write."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelopt.errors import KernelError
from kernelopt.kernels import Kernel, as_kernel
from kernelopt.kernels.chain import Order
from kernelopt.kernels.derivatives import derivative
from kernelopt.support.types import Array

# Relative to the largest kernel value, or eigenvalue: smaller differences are rounding. A kernel that computes in
# single precision fails.
TOLERANCE = 1e-10


def check_kernel(kernel: Any, X: Any, Z: Any = None) -> None:
    """Check on data that a kernel has the properties that every kernel must have.

    These are symmetry, κ(X, Z) = κ(Z, X)ᵀ, the diagonal, the matrix against single pairs, F(x)ᵀF(z) where features
    exist, derivatives against finite differences where it has them, and where the kernel says that it is positive
    semidefinite, a smallest eigenvalue ≥ −1e-10 of the largest.

    Parameters
    ----------
    kernel : Kernel, or what is accepted wherever a kernel is
    X, Z : data as the kernel takes them; Z defaults to the first half of X

    Raises
    ------
    KernelError
        Naming the property that fails and by how much (relative to the largest entry).

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.testing.check_kernel(ko.kernels.Gaussian(sigma=1.0), [[0.0], [1.0], [3.0]])
    >>> ko.testing.check_kernel(ko.kernels.FromFunction(lambda x, y: -1.0, psd=True), ["a", "b"])
    Traceback (most recent call last):
    kernelopt.errors.KernelError: FromFunction(<lambda>, psd=True) says that it is positive semidefinite; ...
    """
    kernel = as_kernel(kernel)
    rows = kernel.rows(X)
    others = rows[: max(1, len(rows) // 2)] if Z is None else kernel.rows(Z)
    Q, K = kernel._matrix(rows, None), kernel._matrix(rows, others)
    scale = max(float(np.abs(Q).max()), float(np.abs(K).max()), np.finfo(float).tiny)
    _require(kernel, Q.shape == (len(rows), len(rows)), f"a matrix {(len(rows),) * 2}", f"shape {Q.shape}")
    finite = bool(np.isfinite(Q).all() and np.isfinite(K).all())
    _require(kernel, finite, "finite values", "NaN or infinity")
    _close(kernel, Q, Q.T, scale, "a symmetric matrix")
    _close(kernel, K, kernel._matrix(others, rows).T, scale, "κ(X, Z) = κ(Z, X)ᵀ")
    _close(kernel, kernel._diagonal(rows), np.diag(Q), scale, "diag(X) to be the diagonal of κ(X)")
    for i, j in {(0, 0), (len(rows) - 1, 0), (len(rows) // 2, len(others) - 1)}:
        single = kernel._matrix(rows[i : i + 1], others[j : j + 1])
        _close(kernel, single, K[i : i + 1, j : j + 1], scale, f"the matrix to hold κ(x, z) at {(i, j)}")
    if np.isfinite(kernel._n_features(rows)) and type(kernel)._features is not Kernel._features:
        F, G = kernel._features(rows), kernel._features(others)
        _close(kernel, F @ G.T, K, scale, "F(x)ᵀF(z) = κ(x, z)")
        p = kernel._n_features(rows)
        _require(kernel, F.shape[1] == p, f"{p:.0f} features, as A.shape says", f"{F.shape[1]}")
    if kernel._smoothness:
        _check_derivatives(kernel, rows, others)
    if kernel.is_psd:
        smallest, *_, largest = np.linalg.eigvalsh((Q + Q.T) / 2)[[0, -1]]
        if smallest < -TOLERANCE * max(largest, 0.0):
            raise KernelError(
                f"{kernel!r} says that it is positive semidefinite; the smallest eigenvalue on these data is "
                f"{smallest:.3g} beside {largest:.3g}."
            )


def _check_derivatives(kernel: Kernel, X: Array, Z: Array) -> None:
    """Check first and mixed derivatives, and second ones where they exist, by differences of one order less."""
    d = X.shape[1]
    columns = range(min(d, 3))
    for j in columns:
        _check_derivative(kernel, X, (j,), Z, ())
        for k in columns:
            _check_derivative(kernel, X, (j,), Z, (k,))
            if kernel._smoothness >= 2:
                _check_derivative(kernel, X, tuple(sorted((j, k))), Z, ())
                _check_derivative(kernel, X, tuple(sorted((j, k))), Z, (k,))
                _check_derivative(kernel, X, tuple(sorted((j, k))), Z, tuple(sorted((j, k))))


def _check_derivative(kernel: Kernel, X: Array, dx: Order, Z: Array, dz: Order) -> None:
    """Check ∂ by the last column of dx against a central difference in that column."""
    *less, column = dx
    # With this h, the difference is off by about h² = 1e-10 in theory and eps/h = 2e-11 by rounding: less than the 1e-4
    # that is allowed.
    step = np.zeros(X.shape[1])
    step[column] = h = 1e-5 * max(1.0, float(np.abs(X).max()))
    above, below = (derivative(kernel, X + s * step, tuple(less), Z, dz) for s in (1, -1))
    got = derivative(kernel, X, dx, Z, dz)
    scale = max(float(np.abs(got).max()), float(np.abs(above).max()), 1e-300)
    error = float(np.abs(got - (above - below) / (2 * h)).max()) / scale
    _require(
        kernel,
        error < 1e-4,
        f"the derivative {dx} in x, {dz} in z to be that of its values",
        f"an error of {error:.3g}",
    )


def _close(kernel: Kernel, got: Any, expected: Any, scale: float, what: str) -> None:
    error = float(np.abs(np.asarray(got) - np.asarray(expected)).max()) / scale
    _require(kernel, error <= TOLERANCE, what, f"a relative difference of {error:.3g}")


def _require(kernel: Kernel, condition: bool, expected: str, got: str) -> None:
    if not condition:
        raise KernelError(f"Expected of {kernel!r} {expected}; got {got}.")
