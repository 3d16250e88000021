"""Values and derivatives of one function as points of one kernel.

Derivatives of θᵀF(x) are inner products with derivatives of F, whose Gram matrix holds derivatives of κ(x, z). A point
is a row (x, i, j): the value for i = j = −1, ∂/∂xᵢ for j = −1, ∂²/∂xᵢ∂xⱼ otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kernelopt.errors import DataError, KernelError
from kernelopt.kernels.adjoints import pull
from kernelopt.kernels.chain import Order
from kernelopt.kernels.domains import Domain, Vectors, frozen
from kernelopt.kernels.kernel import Adjoint, Kernel, MissingRuleError, Verdict
from kernelopt.kernels.lifts import Lift
from kernelopt.kernels.rounding import Inexact
from kernelopt.support.checks import is_integer, shown
from kernelopt.support.types import Array, Ints

CODES = 2  # columns for the order of the derivative, which is at most 2: one column index each, −1 for none


class Jets(Vectors):
    """Vectors with the order of a derivative in two more columns; `rows` takes plain vectors, as points of values."""

    name = "vectors"

    def rows(self, X: Any, owner: str) -> Array:
        return with_order(super().rows(X, owner), ())

    def columns(self, rows: Array) -> int | None:
        return int(rows.shape[1]) - CODES


JETS = Jets()


def with_order(X: Array, order: Order) -> Array:
    """The points X with columns for the order of a derivative."""
    codes = np.full((len(X), CODES), -1.0)
    codes[:, : len(order)] = order
    return frozen(np.hstack([X, codes]))


def grouped(rows: Array) -> list[tuple[Order, Ints]]:
    """The orders that occur, each with the indices of its rows."""
    codes, inverse = np.unique(rows[:, -CODES:], axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    return [(tuple(int(c) for c in code if c >= 0), np.flatnonzero(inverse == i)) for i, code in enumerate(codes)]


@dataclass(frozen=True)
class WithDerivatives(Lift):
    """κ on values and derivatives: entries ∂ₓⁱ∂_zʲκ(x, z)."""

    functionals: ClassVar = "derivatives"

    @classmethod
    def values_at(cls, X: Array) -> Array:
        return with_order(X, ())

    @classmethod
    def points_of(cls, rows: Array) -> Array:
        return rows[:, :-CODES]

    @property
    def domain(self) -> Domain:
        return JETS

    def _verdict(self) -> Verdict:
        return Verdict(self.kernel.is_psd, "inner products of derivatives of F")

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        other = X if Z is None else Z
        K = np.empty((len(X), len(other)))
        for dx, i in grouped(X):
            for dz, j in grouped(other):
                K[np.ix_(i, j)] = derivative(self.kernel, self.points_of(X)[i], dx, self.points_of(other)[j], dz)
        return K

    def _diagonal(self, X: Array) -> Array:
        d = np.empty(len(X))
        for order, i in grouped(X):
            d[i] = derivative_diagonal(self.kernel, self.points_of(X)[i], order)
        return d

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """That of κ where all rows are values."""
        if any(order for rows in (X, Z) for order, _ in grouped(rows)):
            raise MissingRuleError(
                f"Expected only values of θ for a gradient with respect to the parameters of {self!r}; got derivatives "
                "of θ. Write numbers in place of the parameters, or leave the derivatives out of the problem."
            )
        found = pull(self, 1, wanted, points)(self.points_of(X), self.points_of(Z), G)
        codes = [None if g is None else np.hstack([g, np.zeros((len(g), CODES))]) for g in (found.X, found.Z)]
        return Adjoint(found.fields, *codes)

    def _rounding(self, at: Inexact) -> float:
        """The bound of the kernel and its derivatives up to the highest order that occurs."""
        order = max(len(order) for order, _ in grouped(at.points))
        return self.kernel._rounding(Inexact(self.points_of(at.points), order=order))

    def _size(self, X: Array, order: Order = ()) -> Array:
        s = np.empty(len(X))
        for order_of_group, i in grouped(X):
            s[i] = self.kernel._size(self.points_of(X)[i], order_of_group)
        return s

    def __repr__(self) -> str:
        return repr(self.kernel)


def derivative(kernel: Kernel, X: Array, dx: Order, Z: Array, dz: Order) -> Array:
    """∂ₓ∂_zκ(xᵢ, zⱼ). Raises KernelError where the kernel is not smooth enough."""
    if not dx and not dz:
        return kernel._matrix(X, Z)
    return np.broadcast_to(kernel._derivative(X, dx, Z, dz), (len(X), len(Z)))


def derivative_diagonal(kernel: Kernel, X: Array, order: Order) -> Array:
    """‖∂F(xᵢ)‖², from the diagonal blocks of the Gram matrix."""
    if not order:
        return kernel._diagonal(X)
    blocks = [np.diag(derivative(kernel, X[i : i + 64], order, X[i : i + 64], order)) for i in range(0, len(X), 64)]
    return np.concatenate(blocks)


def on_jets(kernel: Kernel) -> bool:
    """Whether points of the kernel carry the order of a derivative."""
    return isinstance(kernel.domain, Jets)


def lifted(kernel: Kernel) -> WithDerivatives:
    """The kernel on values and derivatives."""
    return kernel if isinstance(kernel, WithDerivatives) else WithDerivatives(kernel)


def order_of(feature: Any, columns: int | None = None) -> Order:
    """The columns that a user differentiates by, sorted. Raises DataError unless it is one column, or two of them.

    columns : their number, where it is known
    """
    asked = feature if isinstance(feature, tuple) else (feature,)
    most = 2**62 if columns is None else columns - 1
    if len(asked) not in (1, 2) or not all(is_integer(j) and 0 <= j <= most for j in asked):
        known = "≥ 0" if columns is None else f"from 0 to {most}"
        raise DataError(
            f"Expected a column {known} to differentiate by, or a pair of them; got {shown(feature)}. The points come "
            "after it, as in theta.derivative(0)(X)."
        )
    return tuple(sorted(int(j) for j in asked))


def require_smooth(kernel: Kernel, order: int) -> None:
    """Raise KernelError unless F has derivatives of this order."""
    if kernel._smoothness < order:
        what = (
            "is not differentiable, or its derivatives are not known"
            if kernel._smoothness == 0
            else (f"has derivatives up to order {kernel._smoothness} here")
        )
        raise KernelError(
            f"Expected a kernel with derivatives of order {order}; got {kernel!r}, which {what}. Gaussian and "
            "polynomial kernels, and their sums and products, have first and second ones."
        )


def modulus(kernel: Kernel, X: Array, order: Order, radius: Array) -> Array:
    """η with ‖∂F(x) − ∂F(xᵢ)‖ ≤ η for all ‖x − xᵢ‖ ≤ radiusᵢ: the supremum, or an upper bound.

    For a stationary kernel κ(x, z) = k(x − z) it is the same at all points of one radius. It is the supremum for values
    and first derivatives of the Gaussian kernel, else min(radius·√λ_max, 2‖∂F‖), with λ_max the largest eigenvalue of
    the Gram matrix of the next derivatives (∂ₗ∂F)ₗ at one point.
    """
    if not kernel.is_psd:
        raise KernelError(f"Expected a kernel that is positive semidefinite by rule, for a bound; got {kernel!r}.")
    radii, which = np.unique(np.broadcast_to(radius, len(X)), return_inverse=True)
    exact = [kernel._modulus(order, float(r)) for r in radii]
    if None not in exact:
        return np.array(exact, dtype=float)[which]
    if not kernel.is_stationary:
        raise KernelError(f"Expected a stationary kernel, as the bound has to hold at all points; got {kernel!r}.")
    require_smooth(kernel, len(order) + 1)
    x, d = X[:1], X.shape[1]
    further = [[derivative(kernel, x, (*order, a), x, (*order, b))[0, 0] for b in range(d)] for a in range(d)]
    steepest = float(np.sqrt(max(np.linalg.eigvalsh(further)[-1], 0.0)))
    length = float(np.sqrt(derivative_diagonal(kernel, x, order)[0]))
    return np.minimum(radii * steepest, 2 * length)[which]
