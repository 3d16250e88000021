"""Checks for kernels and functions that users write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernelopt.errors import DataError, KernelError, OptionError
from kernelopt.kernels import Kernel, as_kernel, sparse_rows
from kernelopt.kernels.chain import Order
from kernelopt.kernels.derivatives import derivative
from kernelopt.kernels.kernel import MissingRuleError
from kernelopt.kernels.lifts import lift_of
from kernelopt.language.proximal import ProximalLoss
from kernelopt.support.types import Array

# Relative to the largest kernel value, or eigenvalue: smaller differences are rounding. A kernel that computes in
# single precision fails.
TOLERANCE = 1e-10
STEPS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)  # of differences, relative to the spread of the points


def check_kernel(kernel: Any, X: Any, Z: Any = None) -> None:
    """Check on data that a kernel has the properties that every kernel must have.

    These are symmetry, κ(X, Z) = κ(Z, X)ᵀ, the diagonal, the matrix against single pairs, F(x)ᵀF(z) where features
    exist, derivatives against finite differences where it has them, as well as gradients with respect to parameters and
    points, and where the kernel says that it is positive semidefinite, a smallest eigenvalue ≥ −1e-10 of the largest.

    Parameters
    ----------
    kernel : Kernel, or an object that `as_kernel` accepts
    X, Z : data as the kernel takes them; Z defaults to the first half of X

    Returns
    -------
    None
        Where all checks pass.

    Raises
    ------
    KernelError
        Naming the property that fails and by how much (relative to the largest entry).

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.testing.check_kernel(ko.kernels.Gaussian(sigma=1.0), [[0.0], [1.0], [3.0]])
    >>> ko.testing.check_kernel(
    ...     ko.kernels.FromFunction(lambda x, y: -1.0, psd=True), ["a", "b"]
    ... )
    Traceback (most recent call last):
    kernelopt.errors.KernelError: FromFunction(<lambda>, psd=True) says that it is positive semidefinite; ...
    """
    kernel = as_kernel(kernel)
    rows = sparse_rows.dense(kernel.rows(X))
    others = rows[: max(1, len(rows) // 2)] if Z is None else sparse_rows.dense(kernel.rows(Z))
    columns = [kernel.domain.columns(points) for points in (rows, others)]
    if columns[0] != columns[1]:
        raise DataError(f"Expected X and Z with equally many columns; got {columns[0]} and {columns[1]}.")
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
    # Weights without symmetry, so that no two errors cancel.
    G = np.cos(np.arange(K.size) ** 1.5).reshape(K.shape)
    _check_gradients_to_fields(kernel.at_present(), rows, others, G)
    if rows.ndim == 2 and rows.dtype.kind == "f" and not lift_of(kernel):
        _check_gradients_to_points(kernel.at_present(), rows, others, G)
    if kernel.is_psd:
        smallest, *_, largest = np.linalg.eigvalsh((Q + Q.T) / 2)[[0, -1]]
        if smallest < -TOLERANCE * max(largest, 0.0):
            raise KernelError(
                f"{kernel!r} says that it is positive semidefinite; the smallest eigenvalue on these data is "
                f"{smallest:.3g} beside {largest:.3g}."
            )


def check_function(loss: ProximalLoss, S: Any, *data: Any) -> None:
    """Check that value, conjugate and proximal map of a `ko.ProximalLoss` are those of one convex function h.

    At x = prox(z, t), for random z and three t, a = (z − x)/t is a slope of h at x. Checked are
    h(x) + h*(a) = a·x, h(s) ≥ a·s − h*(a) at all other points, (wh)*(wa) = w·h*(a), that slopes do not decrease, and
    convexity between points: each to 1e-5 of the sizes of its terms, for up to 20 rows. A call of the loss checks the
    same on its data.

    Parameters
    ----------
    loss : ProximalLoss
    S : array (m, k) or (m,), of whose shape alone use is made
    *data : as the loss takes them

    Returns
    -------
    None
        Where all checks pass.

    Raises
    ------
    DataError
        Naming the property that fails, the row, and by how much.

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> def value(S):
    ...     return np.abs(S).max(axis=1)
    >>> def conjugate(A, w):
    ...     return np.where(np.abs(A).sum(axis=1) <= w, 0.0, np.inf)
    >>> loss = ko.ProximalLoss(value, conjugate, lambda Z, t: Z, name="largest")
    >>> ko.testing.check_function(loss, np.zeros((4, 3)))
    Traceback (most recent call last):
    kernelopt.errors.DataError: Expected largest to have h(x) + h*(a) = a·x at x = prox(z), a = (z − x)/t; in row 0 ...
    """
    if not isinstance(loss, ProximalLoss):
        raise OptionError(f"Expected a ko.ProximalLoss; got {loss!r}.")
    loss(S, *data)


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
    got, errors = derivative(kernel, X, dx, Z, dz), []
    spread = max(float(np.ptp(np.concatenate([X[:, column], Z[:, column]]))), float(np.finfo(float).tiny))
    # A difference is off by about (step/length scale)², and by eps·size/step: one of these steps suits the scale.
    for share in STEPS:
        step = np.zeros(X.shape[1])
        step[column] = h = share * spread
        above, below = (derivative(kernel, X + s * step, tuple(less), Z, dz) for s in (1, -1))
        scale = max(float(np.abs(got).max()), float(np.abs(above).max()), 1e-300)
        moved = (X[:, column] + h) - (X[:, column] - h)  # as the points were rounded
        difference = (above - below) / np.where(moved > 0, moved, np.inf)[:, None]
        errors.append(float(np.abs(got - difference).max()) / scale)
    error = min(errors)
    _require(
        kernel,
        error < 1e-4,
        f"the derivative {dx} in x, {dz} in z to be that of its values",
        f"an error of {error:.3g}",
    )


def _check_gradients_to_fields(kernel: Kernel, X: Array, Z: Array, G: Array) -> None:
    """Check the rule for gradients with respect to numbers, up to three entries of a field, where there is a rule."""
    values = kernel.get_params()
    for name in kernel._real_fields():
        try:
            found = kernel._adjoint(X, Z, G, frozenset({name}), False).fields[name]
        except MissingRuleError:
            continue
        expected = np.shape(values[name])
        _require(
            kernel, np.shape(found) == expected, f"the gradient to {name} of shape {expected}", f"{np.shape(found)}"
        )
        for k, value in enumerate(np.ravel(values[name])[:3]):

            def at(number: float, name: str = name, k: int = k) -> Array:
                entries = np.array(values[name], dtype=np.float64)
                entries.reshape(-1)[k] = number
                held = entries if entries.ndim == 2 else tuple(entries) if entries.ndim else float(entries)
                made = kernel.with_params(**{name: held})
                return made._matrix(X, Z)

            _check_gradient(kernel, X, f"the gradient to {name}", np.ravel(found)[k], G, at, float(value))


def _check_gradients_to_points(kernel: Kernel, X: Array, Z: Array, G: Array) -> None:
    """Check the rule for gradients with respect to points, at the first entries of both sides, where there is one."""
    try:
        found = kernel._adjoint(X, Z, G, frozenset(), True)
    except MissingRuleError:
        return
    matrix = kernel._matrix
    _check_points_of(kernel, X, Z, G, found.X, matrix)
    _check_points_of(kernel, Z, X, G.T, found.Z, lambda points, others: matrix(others, points).T)


def _check_points_of(  # noqa: PLR0917
    kernel: Kernel, X: Array, Z: Array, G: Array, found: Array | None, matrix: Callable[[Array, Array], Array]
) -> None:
    shape = None if found is None else np.shape(found)
    _require(kernel, shape == X.shape, f"a gradient to points of shape {X.shape}", f"shape {shape}")
    assert found is not None
    for i, a in np.ndindex(min(len(X), 3), min(X.shape[1], 3)):
        spread = float(np.ptp(X[:, a])) or 1.0
        gaps = np.abs(Z[:, a] - X[i, a])
        # Kernels have kinks where entries are equal, or 0. At a kink, a central difference has the value in the middle.
        if (X[i, a] >= 0 and X[i, a] < 1e-4 * spread) or ((gaps > 0) & (gaps < 1e-4 * spread)).any():
            continue

        def at(number: float, i: int = i, a: int = a) -> Array:
            point = X[i : i + 1].copy()
            point[0, a] = number
            return matrix(point, Z)

        what = f"the gradient to entry {(i, a)} of the points"
        _check_gradient(kernel, X, what, found[i, a], G[i : i + 1], at, float(X[i, a]), spread)


def _check_gradient(  # noqa: PLR0917
    kernel: Kernel,
    rows: Array,
    what: str,
    got: Any,
    G: Array,
    at: Callable[[float], Array],
    value: float,
    unit: float = 0.0,
) -> None:
    """Check a derivative of ΣG∘K against a central difference, by a large or a small step.

    The large one gives about 1e-10 of error in theory and 1e-11 by rounding, the small one less in theory and 1e-9 by
    rounding. A kernel may change so fast, or have kinks so close, that only the small one is right.
    """
    unit, K = unit or abs(value) or 1.0, at(value)
    largest = float(np.abs(G).sum()) * float(np.abs(K).max() + kernel._size(rows).max())
    errors = []
    for step in (1e-5 * unit, 1e-7 * unit):
        above, below = at(value + step), _below(at, value - step)
        width = (value + step) - (value - step)
        # The number below may be out of range; then the difference is one of three points above.
        slope = (above - below) / width if below is not None else (4 * above - at(value + 2 * step) - 3 * K) / width
        sides = [abs(side - K) for side in (above, below) if side is not None]
        size = float(np.sum(np.abs(G) * np.max(sides, axis=0))) / step
        error = abs(float(got) - float(np.sum(G * slope)))
        if error <= 1e-6 * size + 1e-14 * largest / step:
            return
        errors.append(error)
    _require(kernel, False, f"{what} to be that of its values", f"an error of {min(errors):.3g} beside {size:.3g}")


def _below(at: Callable[[float], Array], number: float) -> Array | None:
    try:
        return at(number)
    except (DataError, KernelError):
        return None


def _close(kernel: Kernel, got: Any, expected: Any, scale: float, what: str) -> None:
    error = float(np.abs(np.asarray(got) - np.asarray(expected)).max()) / scale
    _require(kernel, error <= TOLERANCE, what, f"a relative difference of {error:.3g}")


def _require(kernel: Kernel, condition: bool, expected: str, got: str) -> None:
    if not condition:
        raise KernelError(f"Expected of {kernel!r} {expected}; got {got}.")
