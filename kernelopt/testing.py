"""Checks for kernels that users write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernelopt.errors import KernelError
from kernelopt.kernels import Kernel, as_kernel
from kernelopt.kernels.adjoints import Pull
from kernelopt.kernels.chain import Order
from kernelopt.kernels.derivatives import derivative
from kernelopt.support.types import Array

# Relative to the largest kernel value, or eigenvalue: smaller differences are rounding. A kernel that computes in
# single precision fails.
TOLERANCE = 1e-10


def check_kernel(kernel: Any, X: Any, Z: Any = None) -> None:
    """Check on data that a kernel has the properties that every kernel must have.

    These are symmetry, κ(X, Z) = κ(Z, X)ᵀ, the diagonal, the matrix against single pairs, F(x)ᵀF(z) where features
    exist, derivatives against finite differences where it has them (those by its numbers and by points that `_adjoint`
    gives, too), and where the kernel says that it is positive
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
    if type(kernel)._adjoint is not Kernel._adjoint:
        _check_adjoint(kernel, rows, others)
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


def _check_adjoint(kernel: Kernel, X: Array, Z: Array) -> None:
    """Check the derivatives of Σ Gᵢⱼκ(xᵢ, zⱼ) by the kernel's own numbers, and by points where it gives them."""
    G = np.cos(1.0 + np.arange(len(X) * len(Z), dtype=float)).reshape(len(X), len(Z))

    def total(one: Kernel, P: Array, R: Array) -> float:
        return float(np.sum(G * one._matrix(P, R)))

    try:
        own, _ = kernel._adjoint(X, Z, G, Pull(), False)
    except KernelError:
        return  # a part has no rule
    values = kernel.get_params(deep=False)
    for name in [name for name in own if isinstance(name, str) and name in values]:
        value = np.atleast_1d(np.asarray(values[name], dtype=float))
        moved = np.array([_difference(lambda v: total(kernel.with_params(**{name: v}), X, Z), value, k, values[name])  # noqa: B023
                          for k in range(len(value))])  # fmt: skip
        _matches(kernel, np.ravel(own[name]), moved, f"the derivative by {name} that `_adjoint` gives")
    if X.dtype == object or X.ndim != 2:
        return
    try:
        _, of_points = kernel._adjoint(X, Z, G, Pull(), True)
    except KernelError:
        return  # it gives none
    assert of_points is not None
    step = 1e-5 * max(1.0, float(np.abs(X).max()))
    for j in range(min(X.shape[1], 3)):
        shift = np.zeros(X.shape)
        shift[0, j] = step
        # Equal points may be where the kernel has no derivative.
        if not np.any(np.all(X[0] == Z, axis=1)):
            slope = (total(kernel, X + shift, Z) - total(kernel, X - shift, Z)) / (2 * step)
            _matches(kernel, of_points[0][0, j], slope, f"the derivative by column {j} of points that `_adjoint` gives")


def _difference(of: Callable[[Any], float], value: Array, k: int, like: Any) -> float:
    """The difference in entry k of values in the form of `like`: central, one-sided at 0."""
    step = 1e-5 * max(abs(float(value[k])), 1e-3)

    def at(steps: int) -> float:
        moved = value.copy()
        moved[k] += steps * step
        return of(float(moved[0]) if np.ndim(like) == 0 else tuple(moved.tolist()))

    if value[k] == 0:  # the end of what it may be
        return (-3 * at(0) + 4 * at(1) - at(2)) / (2 * step)
    return (at(1) - at(-1)) / (2 * step)


def _matches(kernel: Kernel, got: Any, expected: Any, what: str) -> None:
    scale = max(float(np.abs(expected).max()), float(np.abs(got).max()), 1e-8)
    error = float(np.abs(np.asarray(got) - np.asarray(expected)).max()) / scale
    _require(kernel, error < 1e-4, what, f"an error of {error:.3g}")


def _close(kernel: Kernel, got: Any, expected: Any, scale: float, what: str) -> None:
    error = float(np.abs(np.asarray(got) - np.asarray(expected)).max()) / scale
    _require(kernel, error <= TOLERANCE, what, f"a relative difference of {error:.3g}")


def _require(kernel: Kernel, condition: bool, expected: str, got: str) -> None:
    if not condition:
        raise KernelError(f"Expected of {kernel!r} {expected}; got {got}.")
