"""Sums, products, multiples, powers and series of kernels (closure properties of Aronszajn 1950; Schur 1911)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import product as cartesian
from math import inf, perm, prod, sqrt
from typing import Any, ClassVar, Self

import numpy as np

from kernelopt.errors import KernelError
from kernelopt.kernels.adjoints import asks, combined, pull, total
from kernelopt.kernels.chain import ChainStep, Order, chain, orders, partitions, steps
from kernelopt.kernels.domains import Domain, join
from kernelopt.kernels.interval_means import Spread
from kernelopt.kernels.kernel import (
    COMPOSITIONS,
    HIGHEST,
    Adjoint,
    Kernel,
    RealField,
    Symbol,
    Verdict,
    listed,
    no_means,
    nonnegative_numbers,
    require,
    require_kernels,
)
from kernelopt.kernels.rounding import CHAIN, FUNCTION, Inexact, compounded, exponential, repeated, underflow
from kernelopt.support.arithmetic import gamma
from kernelopt.support.checks import is_integer, is_real
from kernelopt.support.types import Array


def all_psd(parts: tuple[Kernel, ...], rule: str) -> Verdict:
    """Positive semidefinite if all parts are; unknown otherwise."""
    if all(part.is_psd for part in parts):
        return Verdict(True, rule)
    return Verdict(None, "a part is not known to be positive semidefinite")


def _require_all(parts: tuple[Kernel, ...], columns: int, normal: bool) -> None:
    for part in parts:
        part._require_means(columns, normal)


class _Inherits(Kernel):
    """Stationary and isotropic where all parts are; on the domain that all parts share."""

    @property
    def domain(self) -> Domain:
        domain = join([part.domain for part in self.parts])
        if domain is None:
            kinds = " and ".join(f"{part!r} on {part.domain.name}" for part in self.parts)
            raise KernelError(f"Expected kernels on the same kind of data; got {kinds}.")
        return domain

    @property
    def is_stationary(self) -> bool:
        return all(part.is_stationary for part in self.parts)

    @property
    def is_isotropic(self) -> bool:
        return all(part.is_isotropic for part in self.parts)

    @property
    def _smoothness(self) -> int:
        return min(part._smoothness for part in self.parts)

    @property
    def _decreases(self) -> bool:
        return all(part._decreases for part in self.parts)

    @property
    def _is_power_series(self) -> bool:
        return all(part._is_power_series for part in self.parts)

    def _used_columns(self, columns: int) -> frozenset[int]:
        return frozenset().union(*(part._used_columns(columns) for part in self.parts))

    def _outer(self, K: Array, count: int) -> list[Array]:
        """g⁽⁰⁾(K) … g⁽ᶜᵒᵘⁿᵗ⁾(K), for κ = g(κ₀)."""
        raise NotImplementedError

    def _derivative(self, X: Array, dx: Order, Z: Array, dz: Order) -> Any:
        part, taken = self.parts[0], steps(dx, dz)

        def inner(block: list[ChainStep]) -> Any:
            left, right = orders(block)
            return part._derivative(X, left, Z, right)

        return chain(self._outer(part._matrix(X, Z), len(taken)), inner, taken)

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """The weights G∘g′(K) on K of κ₀, for κ = g(κ₀)."""
        if not wanted and not points:
            return Adjoint({})
        K = self.parts[0]._matrix(X, Z)
        own = Adjoint(self._adjoint_of_fields(K, G, wanted))
        if not asks(1, wanted, points):
            return own
        return combined(own, pull(self, 1, wanted, points)(X, Z, G * self._outer(K, 1)[1]))

    def _adjoint_of_fields(self, K: Array, G: Array, wanted: frozenset[str]) -> dict[str, Array]:
        """The gradients of ΣG∘g(K) to the wanted fields of this kernel without its parts."""
        return {}


@dataclass(frozen=True)
class _Composite(_Inherits):
    terms: tuple[Kernel, ...]

    @classmethod
    def of(cls, *kernels: Kernel) -> Self:
        """All terms in one composite: nested ones of the same kind are flattened."""
        return cls(tuple(t for k in kernels for t in (k.terms if isinstance(k, cls) else (k,))))

    def __post_init__(self) -> None:
        terms = tuple(self.terms) if isinstance(self.terms, (tuple, list)) else ()
        sound = bool(terms) and all(isinstance(term, Kernel) for term in terms)
        require(sound, "terms", "a sequence of kernels, one or more", self.terms)
        object.__setattr__(self, "terms", terms)
        assert self.domain is not None  # raises KernelError if the parts do not fit


@dataclass(frozen=True)
class Sum(_Composite):
    """κ(x, y) = Σₖ κₖ(x, y), with F(x) = (F₁(x), F₂(x), …).

    Parameters
    ----------
    terms : sequence of Kernel

    Examples
    --------
    >>> import kernelopt as ko
    >>> kernel = ko.kernels.Linear() + ko.kernels.Constant(1.0)
    >>> kernel([[1.0]], [[3.0]])
    array([[4.]])
    """

    @property
    def _is_convex(self) -> bool:
        return all(part._is_convex for part in self.parts)

    def _verdict(self) -> Verdict:
        return all_psd(self.terms, "sum of positive semidefinite kernels")

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        total = self.terms[0]._matrix(X, Z)
        for term in self.terms[1:]:
            total += term._matrix(X, Z)
        return total

    def _derivative(self, X: Array, dx: Order, Z: Array, dz: Order) -> Any:
        return sum(term._derivative(X, dx, Z, dz) for term in self.terms)

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        return combined(*(pull(self, k, wanted, points)(X, Z, G) for k in range(1, len(self.terms) + 1)))

    def _diagonal(self, X: Array) -> Array:
        return np.sum([term._diagonal(X) for term in self.terms], axis=0)

    def _rounding(self, at: Inexact) -> float:
        """(1 + max rₖ)(1 + γ) − 1, as Σ√(sₖ(x)sₖ(z)) ≤ √(Σsₖ(x)·Σsₖ(z))."""
        return compounded(max(term._rounding(at) for term in self.terms), gamma(len(self.terms)))

    def _size(self, X: Array, order: Order = ()) -> Array:
        return np.sum([term._size(X, order) for term in self.terms], axis=0)

    def _n_features(self, X: Array) -> float:
        return sum(term._n_features(X) for term in self.terms)

    def _features(self, X: Array) -> Array:
        return np.hstack([term._features(X) for term in self.terms])

    def _require_means(self, columns: int, normal: bool) -> None:
        _require_all(self.terms, columns, normal)

    def _means(self, X: Spread, Z: Spread) -> Array:
        return np.asarray(sum(term._means(X, Z) for term in self.terms))

    def _means_diagonal(self, X: Spread) -> Array:
        return np.asarray(sum(term._means_diagonal(X) for term in self.terms))

    def _means_size(self, X: Spread) -> Array:
        return np.asarray(sum(term._means_size(X) for term in self.terms))

    def _means_rounding(self, X: Spread, error: Array | None = None) -> float:
        """(1 + max rₖ)(1 + γ) − 1, as in `_rounding`."""
        return compounded(max(term._means_rounding(X, error) for term in self.terms), gamma(len(self.terms)))

    def _evaluator(self, centers: Array, coefficients: Array) -> Callable[[Array], Array] | None:
        made = [term._evaluator(centers, coefficients) for term in self.terms]
        if all(e is None for e in made):
            return None

        def evaluate(X: Array) -> Array:
            values = [
                term._matrix(X, centers) @ coefficients if e is None else e(X)
                for e, term in zip(made, self.terms, strict=True)
            ]
            return np.sum(values, axis=0)

        return evaluate

    def __repr__(self) -> str:
        return " + ".join(f"({t!r})" if isinstance(t, Difference) else repr(t) for t in self.terms)


@dataclass(frozen=True)
class Product(_Composite):
    """κ(x, y) = Πₖ κₖ(x, y), with F(x) = F₁(x) ⊗ F₂(x) ⊗ ….

    Parameters
    ----------
    terms : sequence of Kernel

    Examples
    --------
    >>> import kernelopt as ko
    >>> kernel = ko.kernels.Linear() * ko.kernels.Linear()
    >>> kernel([[1.0]], [[3.0]])
    array([[9.]])
    """

    def _verdict(self) -> Verdict:
        return all_psd(self.terms, "product of positive semidefinite kernels (Schur 1911)")

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        total = self.terms[0]._matrix(X, Z)
        for term in self.terms[1:]:
            total *= term._matrix(X, Z)
        return total

    def _derivative(self, X: Array, dx: Order, Z: Array, dz: Order) -> Any:
        """Leibniz' rule: the sum over all ways to assign each derivative to a factor."""
        taken, total = steps(dx, dz), 0.0
        for owners in cartesian(range(len(self.terms)), repeat=len(taken)):
            value: Any = 1.0
            for number, term in enumerate(self.terms):
                left, right = orders([s for s, owner in zip(taken, owners, strict=True) if owner == number])
                value = value * (term._derivative(X, left, Z, right) if left or right else term._matrix(X, Z))
            total = total + value
        return total

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """The product of G and of all other factors, as weights on each factor's entries."""
        asked = [k for k in range(1, len(self.terms) + 1) if asks(k, wanted, points)]
        values = {k: term._matrix(X, Z) for k, term in enumerate(self.terms, start=1) if {k} != set(asked)}
        others = {k: reduce(np.multiply, [K for i, K in values.items() if i != k], G) for k in asked}
        return combined(*(pull(self, k, wanted, points)(X, Z, M) for k, M in others.items()))

    def _diagonal(self, X: Array) -> Array:
        return np.prod([term._diagonal(X) for term in self.terms], axis=0)

    def _rounding(self, at: Inexact) -> float:
        """Π(1 + rₖ)·(1 + γ) − 1, where γ counts the products and the terms of Leibniz' rule."""
        count = len(self.terms)
        sizes = np.array([term._size(at.points) for term in self.terms])
        lost = underflow(np.prod(sizes, axis=0), sizes.min(axis=0) > 0, 2 * count)
        operations = gamma(2 * count + (count ** (2 * at.order) if at.order else 0))
        return compounded(*(term._rounding(at) for term in self.terms), operations) + lost

    def _size(self, X: Array, order: Order = ()) -> Array:
        """(Σ Πₖ √sₖ)² over all ways to assign the derivatives in x to factors."""
        if not order:
            return np.prod([term._size(X) for term in self.terms], axis=0)
        total = np.zeros(len(X))
        for owners in cartesian(range(len(self.terms)), repeat=len(order)):
            given = [tuple(j for j, o in zip(order, owners, strict=True) if o == k) for k in range(len(self.terms))]
            sizes = [term._size(X, part) for term, part in zip(self.terms, given, strict=True)]
            total += np.prod(np.sqrt(sizes), axis=0)
        return total**2

    def _require_means(self, columns: int, normal: bool) -> None:
        """Factors on columns of their own, which are independent: the mean of the product is that of the means."""
        _require_all(self.terms, columns, normal)
        used = [term._used_columns(columns) for term in self.terms]
        shared = sorted(set().union(*used)) if sum(map(len, used)) > len(set().union(*used)) else []
        if shared:
            raise no_means(
                self,
                "its factors act on the same columns. A product of factors on columns of their own, "
                "as k1.on([0]) * k2.on([1]), has one",
            )

    def _means(self, X: Spread, Z: Spread) -> Array:
        return reduce(np.multiply, [term._means(X, Z) for term in self.terms])

    def _means_diagonal(self, X: Spread) -> Array:
        return reduce(np.multiply, [term._means_diagonal(X) for term in self.terms])

    def _means_size(self, X: Spread) -> Array:
        return reduce(np.multiply, [term._means_size(X) for term in self.terms])

    def _means_rounding(self, X: Spread, error: Array | None = None) -> float:
        """Π(1 + rₖ)·(1 + γ) − 1, as in `_rounding`."""
        sizes = np.array([term._means_size(X) for term in self.terms])
        lost = underflow(np.prod(sizes, axis=0), sizes.min(axis=0) > 0, 2 * len(sizes))
        return compounded(*(term._means_rounding(X, error) for term in self.terms), gamma(2 * len(sizes))) + lost

    def _n_features(self, X: Array) -> float:
        return prod(term._n_features(X) for term in self.terms)

    def _features(self, X: Array) -> Array:
        return reduce(rowwise_kronecker, (term._features(X) for term in self.terms))

    def __repr__(self) -> str:
        return " * ".join(bracketed(term, *((Scaled,) if i else ())) for i, term in enumerate(self.terms))


@dataclass(frozen=True)
class Scaled(_Inherits):
    """κ(x, y) = c·κ₀(x, y) with c ≥ 0, and F(x) = √c·F₀(x).

    Parameters
    ----------
    factor : float
    kernel : Kernel

    Examples
    --------
    >>> import kernelopt as ko
    >>> kernel = 2.0 * ko.kernels.Linear()
    >>> kernel, kernel([[1.0]], [[3.0]])
    (2.0 * Linear(), array([[6.]]))
    """

    factor: float
    kernel: Kernel

    _reals: ClassVar = {"factor": RealField("nonnegative")}

    def __post_init__(self) -> None:
        require(is_real(self.factor) and self.factor >= 0, "the factor of a kernel", "a number c ≥ 0", self.factor)
        require_kernels(self.kernel)
        object.__setattr__(self, "factor", float(self.factor))

    @classmethod
    def of(cls, factor: Any, kernel: Kernel) -> Self:
        if isinstance(kernel, Scaled) and is_real(factor):
            return cls(cls(factor, kernel.kernel).factor * kernel.factor, kernel.kernel)
        return cls(factor, kernel)

    @property
    def _is_convex(self) -> bool:
        return self.kernel._is_convex

    def _verdict(self) -> Verdict:
        return all_psd((self.kernel,), "nonnegative multiple")

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        K = self.kernel._matrix(X, Z)
        K *= self.factor
        return K

    def _derivative(self, X: Array, dx: Order, Z: Array, dz: Order) -> Any:
        return self.factor * self.kernel._derivative(X, dx, Z, dz)

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """ΣG∘K₀, and the weights cG on κ₀."""
        own = Adjoint({"factor": total(G, self.kernel._matrix(X, Z))} if "factor" in wanted else {})
        return combined(own, pull(self, 1, wanted, points)(X, Z, self.factor * G))

    def _modulus(self, order: Order, radius: float) -> float | None:
        inner = self.kernel._modulus(order, radius)
        return None if inner is None else sqrt(self.factor) * inner

    def _diagonal(self, X: Array) -> Array:
        return self.factor * self.kernel._diagonal(X)

    def _rounding(self, at: Inexact) -> float:
        """(1 + r)(1 + u) − 1."""
        inner = self.kernel._size(at.points)
        lost = underflow(self.factor * inner, inner > 0) if self.factor else 0.0
        return compounded(self.kernel._rounding(at), gamma(2)) + lost

    def _size(self, X: Array, order: Order = ()) -> Array:
        return self.factor * self.kernel._size(X, order)

    def _require_means(self, columns: int, normal: bool) -> None:
        self.kernel._require_means(columns, normal)

    def _means(self, X: Spread, Z: Spread) -> Array:
        return self.factor * self.kernel._means(X, Z)

    def _means_diagonal(self, X: Spread) -> Array:
        return self.factor * self.kernel._means_diagonal(X)

    def _means_size(self, X: Spread) -> Array:
        return self.factor * self.kernel._means_size(X)

    def _means_rounding(self, X: Spread, error: Array | None = None) -> float:
        """(1 + r)(1 + u) − 1, as in `_rounding`."""
        inner = self.kernel._means_size(X)
        lost = underflow(self.factor * inner, inner > 0) if self.factor else 0.0
        return compounded(self.kernel._means_rounding(X, error), gamma(2)) + lost

    def _n_features(self, X: Array) -> float:
        return self.kernel._n_features(X)

    def _features(self, X: Array) -> Array:
        return sqrt(self.factor) * self.kernel._features(X)

    def _evaluator(self, centers: Array, coefficients: Array) -> Callable[[Array], Array] | None:
        return self.kernel._evaluator(centers, self.factor * coefficients)

    def __repr__(self) -> str:
        inner = bracketed(self.kernel, Product)
        # cvxpy's parameters stand at the right, as their own product would take place.
        return f"{inner} * {self.factor!r}" if isinstance(self.factor, Symbol) else f"{self.factor!r} * {inner}"


@dataclass(frozen=True)
class Difference(_Inherits):
    """κ(x, y) = κ₁(x, y) − κ₂(x, y): positive semidefinite or not, decided for each data set.

    Parameters
    ----------
    first, second : Kernel

    Examples
    --------
    >>> import kernelopt as ko
    >>> kernel = ko.kernels.Linear() - ko.kernels.Constant(1.0)
    >>> kernel([[1.0]], [[3.0]]), kernel.is_psd
    (array([[2.]]), None)
    """

    first: Kernel
    second: Kernel

    def __post_init__(self) -> None:
        require_kernels(self.first, self.second)
        assert self.domain is not None

    _decreases = _is_power_series = False

    def _verdict(self) -> Verdict:
        return Verdict(None, "a difference of kernels may be indefinite")

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        K = self.first._matrix(X, Z)
        K -= self.second._matrix(X, Z)
        return K

    def _derivative(self, X: Array, dx: Order, Z: Array, dz: Order) -> Any:
        return self.first._derivative(X, dx, Z, dz) - self.second._derivative(X, dx, Z, dz)

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """The weights G and −G."""
        return combined(pull(self, 1, wanted, points)(X, Z, G), pull(self, 2, wanted, points)(X, Z, -G))

    def _diagonal(self, X: Array) -> Array:
        return self.first._diagonal(X) - self.second._diagonal(X)

    def _rounding(self, at: Inexact) -> float:
        """The bound of a sum: cancellation reduces κ₁ − κ₂, but neither the errors nor the size s₁ + s₂."""
        return compounded(max(self.first._rounding(at), self.second._rounding(at)), gamma(2))

    def _size(self, X: Array, order: Order = ()) -> Array:
        return self.first._size(X, order) + self.second._size(X, order)

    def _require_means(self, columns: int, normal: bool) -> None:
        _require_all((self.first, self.second), columns, normal)

    def _means(self, X: Spread, Z: Spread) -> Array:
        return self.first._means(X, Z) - self.second._means(X, Z)

    def _means_diagonal(self, X: Spread) -> Array:
        return self.first._means_diagonal(X) - self.second._means_diagonal(X)

    def _means_size(self, X: Spread) -> Array:
        return self.first._means_size(X) + self.second._means_size(X)

    def _means_rounding(self, X: Spread, error: Array | None = None) -> float:
        return compounded(max(part._means_rounding(X, error) for part in self.parts), gamma(2))

    def __repr__(self) -> str:
        return f"{self.first!r} - {bracketed(self.second)}"


@dataclass(frozen=True)
class Power(_Inherits):
    """κ(x, y) = κ₀(x, y)ⁿ for an integer n ≥ 1, with F(x) = F₀(x) ⊗ … ⊗ F₀(x).

    Parameters
    ----------
    kernel : Kernel
    exponent : int ≥ 1

    Examples
    --------
    >>> import kernelopt as ko
    >>> kernel = ko.kernels.Linear() ** 3
    >>> kernel([[1.0]], [[3.0]])
    array([[27.]])
    """

    kernel: Kernel
    exponent: int

    def __post_init__(self) -> None:
        require_kernels(self.kernel)
        require(
            is_integer(self.exponent) and 1 <= self.exponent <= HIGHEST,
            "the power of a kernel",
            f"an integer from 1 to {HIGHEST}",
            self.exponent,
        )

    def _verdict(self) -> Verdict:
        return all_psd((self.kernel,), "power of a positive semidefinite kernel")

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        K = self.kernel._matrix(X, Z)
        return np.power(K, self.exponent, out=K)

    def _outer(self, K: Array, count: int) -> list[Array]:
        coefficients = (*([0.0] * self.exponent), 1.0)
        return polynomial_derivatives(K, coefficients, count)

    def _diagonal(self, X: Array) -> Array:
        return self.kernel._diagonal(X) ** self.exponent

    def _rounding(self, at: Inexact) -> float:
        """(1 + r)ⁿ(1 + 8u) − 1."""
        n, inner = self.exponent, self.kernel._size(at.points)
        chained = gamma(2 * n + CHAIN) if at.order else 0.0
        return compounded(repeated(self.kernel._rounding(at), n), FUNCTION, chained) + underflow(inner**n, inner > 0)

    def _size(self, X: Array, order: Order = ()) -> Array:
        return size_of_series(self.kernel, (*([0.0] * self.exponent), 1.0), X, order)

    def _n_features(self, X: Array) -> float:
        return self.kernel._n_features(X) ** self.exponent

    def _features(self, X: Array) -> Array:
        return reduce(rowwise_kronecker, [self.kernel._features(X)] * self.exponent)

    def __repr__(self) -> str:
        return f"{bracketed(self.kernel, Product, Scaled, Power)}**{self.exponent}"


@dataclass(frozen=True)
class Series(_Inherits):
    """κ(x, y) = Σₙ cₙ κ₀(x, y)ⁿ with coefficients c₀, c₁, … ≥ 0, with F = (√c₀, √c₁F₀, √c₂F₀⊗F₀, …).

    Parameters
    ----------
    kernel : Kernel
    coefficients : sequence of floats ≥ 0
        Of the powers 0, 1, 2, …

    Examples
    --------
    >>> import kernelopt as ko
    >>> kernel = ko.kernels.Linear().series([1.0, 0.0, 0.5])
    >>> kernel([[1.0]], [[2.0]])
    array([[3.]])
    """

    kernel: Kernel
    coefficients: tuple[float, ...]

    _reals: ClassVar = {"coefficients": RealField("nonnegative", 1)}

    def __post_init__(self) -> None:
        require_kernels(self.kernel)
        object.__setattr__(self, "coefficients", nonnegative_numbers(self.coefficients, "coefficients"))

    def _verdict(self) -> Verdict:
        return all_psd((self.kernel,), "power series with nonnegative coefficients")

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        return horner(self.kernel._matrix(X, Z), self.coefficients)

    def _outer(self, K: Array, count: int) -> list[Array]:
        return polynomial_derivatives(K, self.coefficients, count)

    def _adjoint_of_fields(self, K: Array, G: Array, wanted: frozenset[str]) -> dict[str, Array]:
        return {"coefficients": power_sums(K, G, len(self.coefficients))} if "coefficients" in wanted else {}

    def _diagonal(self, X: Array) -> Array:
        return horner(self.kernel._diagonal(X), self.coefficients)

    def _rounding(self, at: Inexact) -> float:
        """(1 + r)ᵐ(1 + γ₂ₘ) − 1 for degree m, by Horner's rule."""
        m = len(self.coefficients) - 1
        alive = np.logical_and(self.kernel._size(at.points) > 0, any(self.coefficients))
        lost = underflow(self._size(at.points), alive, 2 * m + 1)
        evaluation = gamma(2 * m + (CHAIN if at.order else 0))
        return compounded(repeated(self.kernel._rounding(at), m), evaluation) + lost

    def _size(self, X: Array, order: Order = ()) -> Array:
        return size_of_series(self.kernel, self.coefficients, X, order)

    def _n_features(self, X: Array) -> float:
        p = self.kernel._n_features(X)
        return sum(p**n if n else 1 for n, c in enumerate(self.coefficients) if c) or 1

    def _features(self, X: Array) -> Array:
        F, power, blocks = self.kernel._features(X), np.ones((len(X), 1)), []
        for n, c in enumerate(self.coefficients):
            power = rowwise_kronecker(power, F) if n else power
            if c:
                blocks.append(sqrt(c) * power)
        return np.hstack(blocks) if blocks else np.zeros((len(X), 1))

    def __repr__(self) -> str:
        return f"({self.kernel!r}).series({listed(self.coefficients)})"


@dataclass(frozen=True)
class Exponential(_Inherits):
    """κ(x, y) = exp(κ₀(x, y)), a series with coefficients 1/n!.

    Parameters
    ----------
    kernel : Kernel

    Examples
    --------
    >>> import kernelopt as ko
    >>> kernel = ko.kernels.Linear().exp()
    >>> kernel([[1.0]], [[0.0]])
    array([[1.]])
    """

    kernel: Kernel

    def __post_init__(self) -> None:
        require_kernels(self.kernel)

    def _verdict(self) -> Verdict:
        return all_psd((self.kernel,), "exponential, a power series with nonnegative coefficients")

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        K = self.kernel._matrix(X, Z)
        return np.exp(K, out=K)

    def _outer(self, K: Array, count: int) -> list[Array]:
        return [np.exp(K)] * (count + 1)

    def _diagonal(self, X: Array) -> Array:
        return np.exp(self.kernel._diagonal(X))

    def _rounding(self, at: Inexact) -> float:
        """e^{r·s}(1 + 8u) − 1 with s the largest size of κ₀, times 1 + r for each derivative of κ₀ in a term."""
        r = self.kernel._rounding(at)
        exponent = exponential(r * float(self.kernel._size(at.points).max()))
        return compounded(exponent, repeated(r, 2 * at.order), FUNCTION, gamma(CHAIN if at.order else 1))

    def _size(self, X: Array, order: Order = ()) -> Array:
        """Σₙ (∂mⁿ)²/n! with m = ‖F₀‖, mᵢ = ‖∂ᵢF₀‖, mᵢⱼ = ‖∂ᵢ∂ⱼF₀‖ and t = m².

        It is e^t for values, e^t(1 + t)mᵢ² for first derivatives, and at most 2e^t((1 + t)mᵢⱼ² + (t² + 4t + 2)mᵢ²mⱼ²)
        for second ones.
        """
        t = self.kernel._size(X)
        if not order:
            return np.exp(t)
        single = [self.kernel._size(X, (j,)) for j in order]
        if len(order) == 1:
            return np.exp(t) * (1 + t) * single[0]
        both = self.kernel._size(X, order)
        return 2 * np.exp(t) * ((1 + t) * both + (t**2 + 4 * t + 2) * single[0] * single[1])

    def _n_features(self, X: Array) -> float:
        return inf

    def __repr__(self) -> str:
        return f"({self.kernel!r}).exp()"


def size_of_series(kernel: Kernel, coefficients: tuple[float, ...], X: Array, order: Order) -> Array:
    """Σₙ cₙ(∂mⁿ)², ∂mⁿ = Σ over partitions π of n(n − 1)⋯(n − |π| + 1)·m^{n − |π|}·Π_B m_B, with m_B = ‖∂_B F₀‖.

    By Leibniz' rule it bounds the terms of ∂ₓ∂_z Σₙ cₙκⁿ in absolute value: the errors of terms that cancel add up.
    """
    if not order:
        return horner(kernel._size(X), coefficients)
    length = np.sqrt(kernel._size(X))
    blocks = [[np.sqrt(kernel._size(X, orders(B)[0])) for B in split] for split in partitions(steps(order, ()))]
    total = np.zeros(len(X))
    for n, c in enumerate(coefficients):
        if c:
            terms = [perm(n, len(b)) * length ** (n - len(b)) * np.prod(b, axis=0) for b in blocks if len(b) <= n]
            total += c * np.sum(terms, axis=0) ** 2
    return total


def rowwise_kronecker(F: Array, G: Array) -> Array:
    """Rows fᵢ ⊗ gᵢ."""
    return np.einsum("ni,nj->nij", F, G).reshape(len(F), -1)


def horner(K: Array, coefficients: tuple[float, ...]) -> Array:
    """Σₙ cₙ Kⁿ, elementwise; besides K only the result is in memory."""
    total = np.full_like(K, coefficients[-1])
    for c in coefficients[-2::-1]:
        total *= K
        total += c
    return total


def power_sums(K: Array, G: Array, count: int) -> Array:
    """Σᵢⱼ GᵢⱼKᵢⱼⁿ for n < count: the gradient of ΣG∘q(K) to the coefficients of q."""
    M, sums = G, [float(G.sum())]
    for _ in range(count - 1):
        M = M * K
        sums.append(float(M.sum()))
    return np.array(sums)


def polynomial_derivatives(K: Array, coefficients: tuple[float, ...], count: int) -> list[Array]:
    """q(K), q′(K), … q⁽ᶜᵒᵘⁿᵗ⁾(K)."""
    q = np.polynomial.Polynomial(coefficients)
    return [horner(K, tuple(q.deriv(k).coef)) if k else horner(K, coefficients) for k in range(count + 1)]


def bracketed(kernel: Kernel, *others: type[Kernel]) -> str:
    """The repr, in brackets where it is a sum, a difference, or one of the other kinds."""
    return f"({kernel!r})" if issubclass(kernel._kind, (Sum, Difference, *others)) else repr(kernel)


COMPOSITIONS.update(
    {
        "+": Sum.of,
        "-": Difference,
        "*": Product.of,
        "c *": Scaled.of,
        "**": Power,
        "series": Series,
        "exp": Exponential,
    }
)
