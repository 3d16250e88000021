"""The kernel: a symmetric function κ(x, y) = F(x)ᵀF(y), as an immutable value.

A subclass is a frozen dataclass that states its formula in `_matrix` and `_diagonal`; the checks,
the operators and the public calls live here. See `docs/contributing.md` for the checklist.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from math import inf
from numbers import Real
from typing import Any

import numpy as np

from kernelopt.errors import KernelError
from kernelopt.kernels.domains import VECTORS, Array, Domain

# What the operators build; `algebra`, which derives from Kernel, fills it in.
COMPOSITIONS: dict[str, Callable[..., Kernel]] = {}


class Kernel(ABC):
    """A kernel κ(x, y) = F(x)ᵀF(y), compared by structure, composed with `+`, `*` and `c *`.

    Examples
    --------
    >>> import kernelopt as ko
    >>> kernel = 2.0 * ko.kernels.Gaussian(sigma=1.5) + ko.kernels.Linear()
    >>> kernel([[0.0], [1.0]]).round(4)
    array([[2.    , 1.6015],
           [1.6015, 3.    ]])
    """

    # numpy hands `scalar * kernel` to us instead of building an array of kernels.
    __array_ufunc__ = None

    @property
    def domain(self) -> Domain:
        """What the kernel takes as points."""
        return VECTORS

    @property
    def is_psd(self) -> bool | None:
        """True: positive semidefinite by rule. None: unknown, decided for each data set."""
        return True

    @property
    def precision(self) -> float:
        """Relative precision of the kernel's values; larger than float64's where its data came in float32."""
        return float(np.finfo(np.float64).eps)

    @abstractmethod
    def _matrix(self, X: Array, Z: Array | None) -> Array:
        """κ(xᵢ, zⱼ) for canonical rows, as a new array; `Z is None` means Z = X, symmetric."""

    @abstractmethod
    def _diagonal(self, X: Array) -> Array:
        """κ(xᵢ, xᵢ) for canonical rows."""

    def _n_features(self, X: Array) -> float:
        """p, the length of F(x) for the points `X`; `math.inf` where F has infinitely many entries."""
        return inf

    def _features(self, X: Array) -> Array:
        raise KernelError(
            f"{self!r} has no finite feature map. Kernels that have one: Linear, Polynomial, Explicit, "
            "and their sums, products and nonnegative multiples."
        )

    def __call__(self, X: Any, Z: Any = None) -> Array:
        """The kernel matrix κ(xᵢ, zⱼ), shape (len(X), len(Z)); Z defaults to X."""
        rows = self.rows(X)
        if Z is None:
            return self._matrix(rows, None)
        other = self.rows(Z)
        if self.domain.columns(rows) != self.domain.columns(other):
            raise KernelError(
                f"{self!r} expects points with equally many columns; got {rows.shape[1]} and {other.shape[1]}."
            )
        return self._matrix(rows, other)

    def diag(self, X: Any) -> Array:
        """κ(xᵢ, xᵢ), shape (len(X),), without the full matrix."""
        return self._diagonal(self.rows(X))

    def features(self, X: Any) -> Array:
        """The feature matrix with rows F(xᵢ)ᵀ, shape (len(X), p), where p is finite.

        Raises KernelError where the kernel has no finite feature map.
        """
        return self._features(self.rows(X))

    def rows(self, X: Any) -> Array:
        """`X` checked and turned into this kernel's canonical rows."""
        return self.domain.rows(X, repr(self))

    def __add__(self, other: Kernel) -> Kernel:
        return COMPOSITIONS["+"](self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel | float) -> Kernel:
        if isinstance(other, Kernel):
            return COMPOSITIONS["*"](self, other)
        return COMPOSITIONS["c *"](other, self) if isinstance(other, Real) else NotImplemented

    __rmul__ = __mul__


def require(condition: bool, name: str, expected: str, got: object) -> None:
    """Raise KernelError unless a kernel's parameter is as expected."""
    if not condition:
        raise KernelError(f"Expected {name} to be {expected}; got {got!r}.")


def is_number(value: object) -> bool:
    """A finite real number (bool excluded)."""
    return isinstance(value, Real) and not isinstance(value, bool) and bool(np.isfinite(float(value)))
