"""Gradients of Σᵢⱼ Gᵢⱼκ(xᵢ, zⱼ) with respect to a kernel's parameters, by reverse mode.

A kernel's rule `_adjoint` takes weights G on the entries of its matrix. A composition turns them into weights on its
parts' entries, and passes these on with `pull`. The sums that rules share are here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.kernels.kernel import Adjoint, Kernel, MissingRuleError
from kernelopt.kernels.tiles import FAR
from kernelopt.support.types import Array, Bools

# Rows in one tile of columnwise sums: three tiles fit into the cache.
TILE = 192
# Pairs whose differences are in memory at once.
PAIRS = 4096


def kernel_gradient(
    kernel: Kernel, X: Array, Z: Array, L: Array, R: Array, *, block: int = 1024
) -> dict[cp.Parameter, Array]:
    """The gradient of Σᵢⱼ (LRᵀ)ᵢⱼ κ(xᵢ, zⱼ) with respect to each parameter of the kernel, at the present values.

    Parameters
    ----------
    kernel : Kernel
    X, Z : arrays (n, …), (m, …)
        Canonical rows, as `kernel.rows` gives them.
    L, R : arrays (n, K), (m, K)
    block : int
        Kernel values of at most block² pairs are in memory at once, a small number of times.

    Returns
    -------
    {parameter: array of its shape}
        In the order of `kernel.parameters()`. A parameter that stands in several places gets the sum.

    Raises
    ------
    ParameterError
        For a parameter without a value.
    KernelError
        For a value out of range, and for a kernel without a rule for its gradient.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> from kernelopt.kernels.adjoints import kernel_gradient
    >>> sigma = cp.Parameter(pos=True, value=2.0)
    >>> kernel, one = ko.kernels.Gaussian(sigma=sigma), np.ones((1, 1))
    >>> gradient = kernel_gradient(kernel, np.array([[0.0]]), np.array([[1.0]]), one, one)
    >>> bool(np.isclose(gradient[sigma], np.exp(-1 / 8) / 8))  # exp(−d²/2σ²)·d²/σ³
    True
    """
    gradient = {parameter: np.zeros(parameter.shape) for parameter in kernel.parameters()}
    places = {name: p for name, p in kernel.get_params().items() if isinstance(p, cp.Parameter)}
    if not places:
        return gradient
    present, wanted = kernel.at_present(), frozenset(places)
    for i in slices(len(X), block):
        for j in slices(len(Z), block):
            found = present._adjoint(X[i], Z[j], L[i] @ R[j].T, wanted, False).fields
            for name, parameter in places.items():
                gradient[parameter] = np.asarray(gradient[parameter] + found[name])
    return gradient


# ---------------------------------------------------------------- for compositions


def asks(number: int, wanted: frozenset[str], points: bool) -> bool:
    """Whether anything is asked of part `number`, counted from 1."""
    return points or any(name.startswith(f"k{number}__") for name in wanted)


def pull(
    kernel: Kernel, number: int, wanted: frozenset[str], points: bool = False
) -> Callable[[Array, Array, Array], Adjoint]:
    """(X, Z, G) ↦ the gradients for part `number` with weights G on its entries, fields named as in the whole."""
    prefix = f"k{number}__"
    own = frozenset(name.removeprefix(prefix) for name in wanted if name.startswith(prefix))

    def pulled(X: Array, Z: Array, G: Array) -> Adjoint:
        if not own and not points:
            return Adjoint({})
        found = kernel.parts[number - 1]._adjoint(X, Z, G, own, points)
        return found._replace(fields={prefix + name: value for name, value in found.fields.items()})

    return pulled


def combined(*adjoints: Adjoint) -> Adjoint:
    """The sum."""
    fields: dict[str, Array] = {}
    for adjoint in adjoints:
        for name, value in adjoint.fields.items():
            fields[name] = fields[name] + value if name in fields else value
    return Adjoint(fields, _sum(a.X for a in adjoints), _sum(a.Z for a in adjoints))


def _sum(values: Iterator[Array | None]) -> Array | None:
    present = [value for value in values if value is not None]
    return np.sum(present, axis=0) if present else None


def on_diagonal(pulled: Callable[[Array, Array, Array], Adjoint], X: Array, weights: Array) -> Adjoint:
    """The gradients of Σᵢ wᵢκ₀(xᵢ, xᵢ) by `pull`, by blocks on the diagonal; those to points are in `X`."""
    # Only diagonals are used; small blocks waste little on the entries beside them.
    blocks = [pulled(X[i], X[i], np.diag(weights[i])) for i in slices(len(X), 64)]
    fields = combined(*(Adjoint(found.fields) for found in blocks)).fields
    by_block = [found.X + found.Z for found in blocks if found.X is not None and found.Z is not None]
    return Adjoint(fields, np.concatenate(by_block) if by_block else None)


def slices(n: int, size: int) -> list[slice]:
    """0 … n in slices of at most `size`."""
    return [slice(a, min(a + size, n)) for a in range(0, n, size)]


def refuse_points(kernel: Kernel, points: bool) -> None:
    """Raise KernelError where gradients to points are asked for."""
    if points:
        raise MissingRuleError(
            f"Expected a kernel with a rule for gradients to its points, which length scales of columns need; "
            f"{kernel!r} has none."
        )


# ---------------------------------------------------------------- sums that rules share


def total(G: Array, K: Array) -> Array:
    """Σᵢⱼ GᵢⱼKᵢⱼ."""
    return np.asarray(np.einsum("ij,ij->", G, K))


def differences(M: Array, X: Array, Z: Array, scale: float, single: Array | None = None) -> tuple[Array, Array]:
    """Σⱼ Mᵢⱼ(xᵢ − zⱼ), (n, d), and Σᵢ Mᵢⱼ(zⱼ − xᵢ), (m, d).

    As products r∘X − MZ and c∘Z − MᵀX with the row sums r and column sums c, after a shift of all points by their
    median: the terms cancel, with an error of about 1e-16·‖x − median‖. Differences are taken one by one for points
    more than `FAR` scales away from it, and for the pairs `single`, a mask.
    """
    centre = np.median(Z, axis=0)
    A, B = X - centre, Z - centre
    far_x, far_z = (np.abs(P).max(axis=1) > FAR * scale for P in (A, B))
    apart = far_x[:, None] | far_z if far_x.any() or far_z.any() else None
    if single is not None and single.any():
        apart = single if apart is None else apart | single
    near = M if apart is None else np.where(apart, 0.0, M)
    # Points far away would magnify the rounding of the others' products.
    P, Q = np.where(far_x[:, None], 0.0, A), np.where(far_z[:, None], 0.0, B)
    left = near.sum(axis=1)[:, None] * P - near @ Q
    right = near.sum(axis=0)[:, None] * Q - near.T @ P
    if apart is not None:
        i, j = np.nonzero(apart & (M != 0))
        for s in slices(len(i), PAIRS):
            terms = M[i[s], j[s]][:, None] * (X[i[s]] - Z[j[s]])
            np.add.at(left, i[s], terms)
            np.subtract.at(right, j[s], terms)
    return left, right


def columnwise(M: Array, X: Array, Z: Array, slope: Callable[[Array, Array], tuple[Any, Any]]) -> tuple[Array, Array]:
    """Σⱼ Mᵢⱼ ∂ₓt(xᵢₐ, zⱼₐ) and Σᵢ Mᵢⱼ ∂_zt(xᵢₐ, zⱼₐ) for each column a; `slope` returns both derivatives of t.

    Column by column, in tiles that fit into the cache.
    """
    left, right = np.zeros(X.shape), np.zeros(Z.shape)
    for i in slices(len(X), TILE):
        for j in slices(len(Z), TILE):
            weights = np.ascontiguousarray(M[i, j])
            for a in range(X.shape[1]):
                by_x, by_z = slope(X[i, a, None], Z[j, a])
                left[i, a] += np.einsum("ij,ij->i", weights, by_x)
                right[j, a] += np.einsum("ij,ij->j", weights, by_z)
    return left, right


def share_entries(X: Array, Z: Array) -> Bools:
    """The pairs of points that agree in some column, (n, m)."""
    found = np.zeros((len(X), len(Z)), dtype=bool)
    for x, z in zip(X.T, Z.T, strict=True):
        found |= x[:, None] == z
    return found


def signs(x: Array, z: Array) -> tuple[Array, Array]:
    """The derivatives of |x − z|, 0 where x = z."""
    s = x - z
    np.sign(s, out=s)
    return s, -s
