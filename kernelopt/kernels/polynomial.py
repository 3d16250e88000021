"""Linear and polynomial kernels: finite feature maps."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import comb, factorial, prod

import numpy as np

from kernelopt.kernels.base import Kernel, is_number, require
from kernelopt.kernels.domains import Array


def inner_products(X: Array, Z: Array | None) -> Array:
    """xᵢᵀzⱼ; numpy evaluates X Xᵀ by a symmetric product when both factors are one array."""
    return X @ (X if Z is None else Z).T


@dataclass(frozen=True)
class Linear(Kernel):
    """κ(x, y) = xᵀy, with F(x) = x.

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.kernels.Linear()([[1.0, 2.0]], [[3.0, 4.0]])
    array([[11.]])
    """

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        return inner_products(X, Z)

    def _diagonal(self, X: Array) -> Array:
        return np.einsum("ij,ij->i", X, X)

    def _n_features(self, X: Array) -> float:
        return X.shape[1]

    def _features(self, X: Array) -> Array:
        return X.copy()


@dataclass(frozen=True)
class Polynomial(Kernel):
    """κ(x, y) = (offset + scale·xᵀy)^degree, with offset ≥ 0 and scale > 0.

    Its features are the monomials of degree ≤ `degree` (of that very degree where offset = 0),
    each times the square root of its multinomial coefficient.

    Parameters
    ----------
    degree : int ≥ 1
    offset, scale : float
        Units of κ, and of κ / (units of x)².

    Raises
    ------
    KernelError
        For a degree that is not a positive integer, a negative offset, a scale that is not positive.

    Examples
    --------
    >>> import kernelopt as ko
    >>> kernel = ko.kernels.Polynomial(degree=2)
    >>> F = kernel.features([[1.0, 2.0], [0.5, -1.0]])
    >>> F.shape
    (2, 6)
    >>> bool(abs(F @ F.T - kernel([[1.0, 2.0], [0.5, -1.0]])).max() < 1e-13)
    True
    """

    degree: int
    offset: float = 1.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        integer = isinstance(self.degree, (int, np.integer)) and not isinstance(self.degree, bool)
        require(integer and self.degree >= 1, "degree", "an integer ≥ 1", self.degree)
        require(is_number(self.offset) and self.offset >= 0, "offset", "a number ≥ 0", self.offset)
        require(is_number(self.scale) and self.scale > 0, "scale", "a number > 0", self.scale)

    def _power(self, K: Array) -> Array:
        K *= self.scale
        K += self.offset
        return np.power(K, self.degree, out=K)

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        return self._power(inner_products(X, Z))

    def _diagonal(self, X: Array) -> Array:
        return self._power(np.einsum("ij,ij->i", X, X))

    def _n_features(self, X: Array) -> float:
        variables = X.shape[1] + (self.offset > 0)
        return comb(variables + self.degree - 1, self.degree)

    def _features(self, X: Array) -> Array:
        """√(degree!/Πⱼαⱼ!)·Πⱼ zⱼ^αⱼ over |α| = degree, z = (√offset, √scale·x)."""
        Z = np.sqrt(self.scale) * X
        if self.offset > 0:
            Z = np.column_stack([np.full(len(X), np.sqrt(self.offset)), Z])
        columns = []
        for chosen in combinations_with_replacement(range(Z.shape[1]), self.degree):
            repeats = prod(factorial(chosen.count(j)) for j in set(chosen))
            columns.append(np.sqrt(factorial(self.degree) / repeats) * Z[:, chosen].prod(axis=1))
        return np.column_stack(columns)
