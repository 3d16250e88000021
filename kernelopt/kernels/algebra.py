"""Sums, products and nonnegative multiples of kernels (closure properties of Aronszajn, 1950)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import prod, sqrt
from typing import Any, Self

import numpy as np

from kernelopt.errors import KernelError
from kernelopt.kernels.base import COMPOSITIONS, Kernel, is_number, require
from kernelopt.kernels.domains import Array, Domain


@dataclass(frozen=True)
class _Composite(Kernel):
    terms: tuple[Kernel, ...]

    @classmethod
    def of(cls, *kernels: Kernel) -> Self:
        """Nested operations of the same kind flattened, all on one domain."""
        terms = tuple(t for k in kernels for t in (k.terms if isinstance(k, cls) else (k,)))
        for term in terms[1:]:
            if term.domain != terms[0].domain:
                raise KernelError(
                    f"Expected kernels on the same kind of data; got {terms[0]!r} on "
                    f"{terms[0].domain.name} and {term!r} on {term.domain.name}."
                )
        return cls(terms)

    @property
    def domain(self) -> Domain:
        return self.terms[0].domain

    @property
    def is_psd(self) -> bool | None:
        return True if all(term.is_psd for term in self.terms) else None

    @property
    def precision(self) -> float:
        return max(term.precision for term in self.terms)


@dataclass(frozen=True)
class Sum(_Composite):
    """κ(x, y) = Σₖ κₖ(x, y), with F(x) = (F₁(x), …, F_K(x))."""

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        total = self.terms[0]._matrix(X, Z)
        for term in self.terms[1:]:
            total += term._matrix(X, Z)
        return total

    def _diagonal(self, X: Array) -> Array:
        return np.sum([term._diagonal(X) for term in self.terms], axis=0)

    def _n_features(self, X: Array) -> float:
        return sum(term._n_features(X) for term in self.terms)

    def _features(self, X: Array) -> Array:
        return np.hstack([term._features(X) for term in self.terms])

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.terms))


@dataclass(frozen=True)
class Product(_Composite):
    """κ(x, y) = Πₖ κₖ(x, y), with F(x) = F₁(x) ⊗ … ⊗ F_K(x)."""

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        total = self.terms[0]._matrix(X, Z)
        for term in self.terms[1:]:
            total *= term._matrix(X, Z)
        return total

    def _diagonal(self, X: Array) -> Array:
        return np.prod([term._diagonal(X) for term in self.terms], axis=0)

    def _n_features(self, X: Array) -> float:
        return prod(term._n_features(X) for term in self.terms)

    def _features(self, X: Array) -> Array:
        def rowwise_kronecker(F: Array, G: Array) -> Array:
            return np.einsum("ni,nj->nij", F, G).reshape(len(F), -1)

        return reduce(rowwise_kronecker, (term._features(X) for term in self.terms))

    def __repr__(self) -> str:
        return " * ".join(f"({term!r})" if isinstance(term, Sum) else repr(term) for term in self.terms)


@dataclass(frozen=True)
class Scaled(Kernel):
    """κ(x, y) = c·κ₀(x, y) with c ≥ 0, and F(x) = √c·F₀(x)."""

    factor: float
    kernel: Kernel

    @classmethod
    def of(cls, factor: Any, kernel: Kernel) -> Self:
        require(is_number(factor) and factor >= 0, "the factor of a kernel", "a number c ≥ 0", factor)
        if isinstance(kernel, Scaled):
            return cls(float(factor) * kernel.factor, kernel.kernel)
        return cls(float(factor), kernel)

    @property
    def domain(self) -> Domain:
        return self.kernel.domain

    @property
    def is_psd(self) -> bool | None:
        return self.kernel.is_psd

    @property
    def precision(self) -> float:
        return self.kernel.precision

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        K = self.kernel._matrix(X, Z)
        K *= self.factor
        return K

    def _diagonal(self, X: Array) -> Array:
        return self.factor * self.kernel._diagonal(X)

    def _n_features(self, X: Array) -> float:
        return self.kernel._n_features(X)

    def _features(self, X: Array) -> Array:
        return sqrt(self.factor) * self.kernel._features(X)

    def __repr__(self) -> str:
        inner = f"({self.kernel!r})" if isinstance(self.kernel, _Composite) else repr(self.kernel)
        return f"{self.factor!r} * {inner}"


COMPOSITIONS.update({"+": Sum.of, "*": Product.of, "c *": Scaled.of})
