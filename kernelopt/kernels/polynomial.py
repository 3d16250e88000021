"""Kernels of the inner product xᵀy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import comb, factorial, inf, perm, prod
from typing import Any, ClassVar, Self

import numpy as np

from kernelopt.errors import KernelError
from kernelopt.kernels.adjoints import total
from kernelopt.kernels.algebra import horner, polynomial_derivatives, power_sums
from kernelopt.kernels.chain import ChainStep, Order, chain, steps
from kernelopt.kernels.domains import ANYTHING, SPARSE, Domain, distinct, stack
from kernelopt.kernels.interval_means import Spread, moments, power_means
from kernelopt.kernels.kernel import (
    HIGHEST,
    Adjoint,
    Kernel,
    RealField,
    Verdict,
    no_means,
    nonnegative_numbers,
    require,
    require_positive,
)
from kernelopt.kernels.rounding import CHAIN, FUNCTION, Inexact, compounded, repeated, sum_of_squares_error, underflow
from kernelopt.kernels.sparse_rows import (
    are_nonzero,
    dense,
    inner_products,
    is_sparse,
    matrix,
    squared_lengths,
    terms,
    width,
)
from kernelopt.support.arithmetic import gamma
from kernelopt.support.checks import is_integer, is_real
from kernelopt.support.types import Array


def inner_product_error(at: Inexact, floor: float = 0.0) -> float:
    """ε with |x̂ᵀz − xᵀz| ≤ ε(floor + ‖x‖‖z‖)."""
    return sum_of_squares_error(at.points, at.relative(), squared_lengths(at.points), floor)


def through_products(M: Array, X: Array, Z: Array, fields: dict[str, Array]) -> Adjoint:
    """The gradients to points from those to their inner products, beside others."""
    return Adjoint(fields, M @ Z, M.T @ X)


class _OfInnerProduct(Kernel):
    """κ(x, y) = g(s) with s = xᵀy: ∂s/∂xⱼ = yⱼ, ∂²s/∂xᵢ∂yⱼ = [i = j], others are 0; g(s) = Σₙ cₙsⁿ, cₙ ≥ 0."""

    @property
    def domain(self) -> Domain:
        return SPARSE

    def _powers(self) -> Sequence[float]:
        """c₀, c₁, …, c_m."""
        raise NotImplementedError

    def _rounding(self, at: Inexact) -> float:
        """(1 + ε)ᵐ(1 + γ₂ₘ) − 1 for degree m by Horner's rule, as |s| ≤ ‖x‖‖z‖ and g(‖x‖‖z‖) ≤ √(g(‖x‖²)g(‖z‖²))."""
        m = len(self._powers()) - 1
        return self._of_degree(m, inner_product_error(at), gamma(2 * m), at)

    def _of_degree(self, m: int, inner: float, evaluation: float, at: Inexact) -> float:
        chained = gamma(CHAIN + 2 * m) if at.order else 0.0
        lost = underflow(self._size(at.points), are_nonzero(at.points), 2 * m + 1)
        return compounded(repeated(inner, m), evaluation, chained) + lost

    def _size(self, X: Array, order: Order = ()) -> Array:
        """Σₙ cₙ(n(n − 1)⋯)²‖x‖^{2(n − k)} for k derivatives, by Leibniz' rule for (xᵀy)ⁿ with absolute values."""
        k, c = len(order), self._powers()
        if not k:
            return self._diagonal(X)
        return horner(squared_lengths(X), tuple(c[n] * float(perm(n, k)) ** 2 for n in range(k, len(c))) or (0.0,))

    def _require_means(self, columns: int, normal: bool) -> None:
        """Moments of intervals and normal distributions, in any number of columns."""

    def _means(self, X: Spread, Z: Spread) -> Array:
        """Σₙ cₙE(uᵀv)ⁿ, from the moments of columns."""
        most = len(self._powers()) - 1
        return self._mean_of_powers(moments(X, most)[:, :, None], moments(Z, most)[:, None])

    def _means_diagonal(self, X: Spread) -> Array:
        of_columns = moments(X, len(self._powers()) - 1)
        return self._mean_of_powers(of_columns, of_columns)

    def _mean_of_powers(self, left: Array, right: Array) -> Array:
        return np.asarray(sum(c * E for c, E in zip(self._powers(), power_means(left, right), strict=True)))

    def _means_rounding(self, X: Spread, error: Array | None = None) -> float:
        """The relative error of each term of Σ_α c_α m_α(x)m_α(z) with m_α = Πⱼ E(xⱼ + Uⱼ)^αⱼ.

        Terms have errors relative to themselves: γ₆ₙ₊₁₂ and (1 + η)ⁿ for each moment, N + 4 operations for each
        column, 8u for powers of the kernel's own numbers. By Cauchy's inequality, Σ c_α|m_α(x)m_α(z)| ≤ √(Q_xx·Q_zz).
        """
        d, N = X.centres.shape[1], len(self._powers()) - 1
        relative = repeated(Inexact(X.centres, error).relative_entries(), 2 * N)
        alive = np.asarray(X.rows.any(axis=1))
        lost = underflow(self._means_diagonal(X), alive, 2 * d * (N + 4) ** 2)
        return compounded(relative, gamma(d * (14 * N + 40)), 2 * FUNCTION, gamma(4 * N + 8)) + lost

    _is_power_series = True

    @property
    def _smoothness(self) -> int:
        return 4

    def _outer(self, s: Array, count: int) -> list[Array]:
        """g(s), g′(s), …"""
        raise NotImplementedError

    def _derivative(self, X: Array, dx: Order, Z: Array, dz: Order) -> Array:
        def inner(block: list[ChainStep]) -> Any:
            if len(block) == 1:
                return Z[:, block[0].column] if block[0].left else X[:, block[0].column, None]
            same = len(block) == 2 and block[0].left != block[1].left and block[0].column == block[1].column
            return 1.0 if same else 0.0

        taken = steps(dx, dz)
        return chain(self._outer(inner_products(X, Z), len(taken)), inner, taken)

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """MZ and MᵀX with M = G∘g′(s), for points."""
        s = inner_products(X, Z)
        fields = self._adjoint_of_fields(s, G, wanted)
        return through_products(G * self._outer(s, 1)[1], X, Z, fields) if points else Adjoint(fields)

    def _adjoint_of_fields(self, s: Array, G: Array, wanted: frozenset[str]) -> dict[str, Array]:
        """The gradients of ΣG∘g(s) to the wanted fields."""
        return {}


@dataclass(frozen=True)
class Constant(Kernel):
    """κ(x, y) = c ≥ 0, with F(x) = √c.

    Parameters
    ----------
    value : float ≥ 0

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.kernels.Constant(2.0)([[1.0], [5.0]])
    array([[2., 2.],
           [2., 2.]])
    """

    value: float = 1.0

    _reals: ClassVar = {"value": RealField("nonnegative")}

    def __post_init__(self) -> None:
        require(is_real(self.value) and self.value >= 0, "value", "a number ≥ 0", self.value)

    def _refuse(self, rows: Array) -> None:
        """Nothing: the points are not read."""

    @property
    def domain(self) -> Domain:
        return ANYTHING

    is_stationary = True
    is_isotropic = True
    _decreases = _is_power_series = True

    def _verdict(self) -> Verdict:
        return Verdict(True, "F(x) = √c")

    def _require_means(self, columns: int, normal: bool) -> None:
        """The same number for all distributions."""

    def _used_columns(self, columns: int) -> frozenset[int]:
        return frozenset()

    def _means(self, X: Spread, Z: Spread) -> Array:
        return self._matrix(X.centres, Z.centres)

    def _means_diagonal(self, X: Spread) -> Array:
        return self._diagonal(X.centres)

    def _means_rounding(self, X: Spread, error: Array | None = None) -> float:
        return 0.0

    @property
    def _smoothness(self) -> int:
        return 4

    def _derivative(self, X: Array, dx: Order, Z: Array, dz: Order) -> Array:
        return np.zeros((len(X), len(Z)))

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """ΣG."""
        fields = {"value": np.asarray(G.sum())} if "value" in wanted else {}
        return Adjoint(fields, np.zeros(X.shape), np.zeros(Z.shape)) if points else Adjoint(fields)

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        return np.full((len(X), len(X if Z is None else Z)), float(self.value))

    def _diagonal(self, X: Array) -> Array:
        return np.full(len(X), float(self.value))

    def _rounding(self, at: Inexact) -> float:
        return 0.0

    def _n_features(self, X: Array) -> float:
        return 1

    def _features(self, X: Array) -> Array:
        return np.full((len(X), 1), np.sqrt(self.value))


@dataclass(frozen=True)
class Delta(Kernel):
    """κ(x, y) = [x = y], 1 for equal points and 0 for others (white noise).

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> ko.kernels.Delta()(np.array([[1.0], [5.0]]), np.array([[5.0]]))
    array([[0.],
           [1.]])
    """

    is_stationary = True
    is_isotropic = True

    @property
    def domain(self) -> Domain:
        return ANYTHING

    def _verdict(self) -> Verdict:
        return Verdict(True, "an orthonormal feature for each point")

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        number = distinct(stack([X, X if Z is None else Z])).inverse
        return (number[: len(X), None] == number[len(X) :]).astype(np.float64)

    def _diagonal(self, X: Array) -> Array:
        return np.ones(len(X))

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """0 almost everywhere, and wherever equal points stay equal."""
        return Adjoint({}, np.zeros(X.shape), np.zeros(Z.shape)) if points else Adjoint({})

    def _rounding(self, at: Inexact) -> float:
        """1 for inexact points: rounding may have made different points equal."""
        return 0.0 if at.error is None else 1.0


@dataclass(frozen=True)
class Linear(_OfInnerProduct):
    """κ(x, y) = xᵀy, with F(x) = x.

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.kernels.Linear()([[1.0, 2.0]], [[3.0, 4.0]])
    array([[11.]])
    """

    def _verdict(self) -> Verdict:
        return Verdict(True, "F(x) = x")

    def _powers(self) -> Sequence[float]:
        return (0.0, 1.0)

    def _rounding(self, at: Inexact) -> float:
        """γ_d."""
        return self._of_degree(1, inner_product_error(at), 0.0, at)

    def _outer(self, s: Array, count: int) -> list[Array]:
        return polynomial_derivatives(s, (0.0, 1.0), count)

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        return inner_products(X, Z)

    def _diagonal(self, X: Array) -> Array:
        return squared_lengths(X)

    def _n_features(self, X: Array) -> float:
        return width(X)

    def _features(self, X: Array) -> Array:
        return np.array(dense(X))


@dataclass(frozen=True)
class Cosine(Kernel):
    """κ(x, y) = xᵀy/(‖x‖‖y‖), the cosine of the angle, with F(x) = x/‖x‖; zero where x = 0.

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.kernels.Cosine()([[3.0, 4.0]], [[1.0, 0.0]])
    array([[0.6]])
    """

    @property
    def domain(self) -> Domain:
        return SPARSE

    def _verdict(self) -> Verdict:
        return Verdict(True, "F(x) = x/‖x‖")

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        return inner_products(_of_length_1(X), None if Z is None else _of_length_1(Z))

    def _diagonal(self, X: Array) -> Array:
        return are_nonzero(X).astype(np.float64)

    def _n_features(self, X: Array) -> float:
        return width(X)

    def _features(self, X: Array) -> Array:
        X = dense(X)
        # Scaling each row by a power of 2 is exact, and keeps its squares from overflow and underflow.
        X = np.ldexp(X, -np.frexp(np.abs(X).max(axis=1, keepdims=True))[1])
        length = np.linalg.norm(X, axis=1, keepdims=True)
        return np.divide(X, length, out=np.zeros_like(X), where=length > 0)

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """(h − f(fᵀh))/‖x‖ with f = x/‖x‖ and the gradient h to f, for points; 0 where x = 0."""
        if not points:
            return Adjoint({})
        F, E = self._features(X), self._features(Z)
        return Adjoint({}, _to_lengths(X, F, G @ E), _to_lengths(Z, E, G.T @ F))

    def _rounding(self, at: Inexact) -> float:
        """γ_d for the product and for both lengths; an error of η‖x‖ in x is one of at most 2η in x/‖x‖."""
        return compounded(gamma(2 * terms(at.points) + 10), 5 * at.relative())


def _to_lengths(X: Array, F: Array, H: Array) -> Array:
    """The gradient to x from that to f = x/‖x‖."""
    length = np.linalg.norm(X, axis=1, keepdims=True)
    across = H - np.einsum("ij,ij->i", F, H)[:, None] * F
    return np.divide(across, length, out=np.zeros_like(X), where=length > 0)


def _of_length_1(X: Array) -> Any:
    """x/‖x‖ as one matrix, 0 for x = 0; by the same operations where X is sparse."""
    if not is_sparse(X):
        return Cosine()._features(X)
    A = matrix(X)
    count = np.diff(A.indptr)
    largest = np.array([np.abs(row.values).max(initial=0.0) for row in X])
    values = np.ldexp(A.data, np.repeat(-np.frexp(largest)[1], count))
    length = np.sqrt(np.bincount(np.repeat(np.arange(len(X)), count), values**2, len(X)))
    A.data = values / np.repeat(np.where(length > 0, length, 1.0), count)
    return A


@dataclass(frozen=True)
class Polynomial(_OfInnerProduct):
    """κ(x, y) = (offset + scale·xᵀy)^degree, with offset ≥ 0 and scale > 0.

    Its features are the monomials of degree ≤ `degree` (only of degree = `degree` where offset = 0), each times
    the square root of its multinomial coefficient: (1, √2x₁, √2x₂, x₁², x₂², √2x₁x₂) for degree 2 in the plane.

    Parameters
    ----------
    degree : int ≥ 1
    offset, scale : float
        `offset` is in units of κ^(1/degree), `scale` in those units per squared unit of x.

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

    _reals: ClassVar = {"offset": RealField("nonnegative"), "scale": RealField()}
    _elsewhere: ClassVar = {"coef0": "offset"}

    @classmethod
    def from_gamma(cls, degree: int, gamma: float, coef0: float = 1.0) -> Self:
        """(coef0 + γxᵀy)^degree, in scikit-learn's names."""
        return cls(degree, offset=coef0, scale=gamma)

    def __post_init__(self) -> None:
        require(
            is_integer(self.degree) and 1 <= self.degree <= HIGHEST,
            "degree", f"an integer from 1 to {HIGHEST}", self.degree,
        )  # fmt: skip
        require(is_real(self.offset) and self.offset >= 0, "offset", "a number ≥ 0", self.offset)
        require_positive(self, "scale")
        if not isinstance(self.offset, (int, float, np.number)):
            object.__setattr__(self, "offset", float(self.offset))  # a fraction: numpy adds none to an array

    def _verdict(self) -> Verdict:
        return Verdict(True, "monomials weighted by multinomial coefficients")

    def _powers(self) -> Sequence[float]:
        n = self.degree
        return [comb(n, k) * float(self.offset) ** (n - k) * float(self.scale) ** k for k in range(n + 1)]

    def _rounding(self, at: Inexact) -> float:
        """(1 + ε)ᵐ(1 + 8u) − 1, ε = γ_{d+2} relative to offset + scale·‖x‖‖z‖."""
        inner = compounded(inner_product_error(at, self.offset / self.scale), gamma(3))
        return self._of_degree(self.degree, inner, FUNCTION, at)

    def _outer(self, s: Array, count: int) -> list[Array]:
        base, n = self.offset + self.scale * s, self.degree
        return [perm(n, k) * self.scale**k * base ** (n - k) if k <= n else np.zeros_like(s) for k in range(count + 1)]

    def _adjoint_of_fields(self, s: Array, G: Array, wanted: frozenset[str]) -> dict[str, Array]:
        """ΣM and ΣM∘s with M = G∘n(offset + scale·s)ⁿ⁻¹."""
        M = G * self.degree * (self.offset + self.scale * s) ** (self.degree - 1)
        return {name: total(M, s) if name == "scale" else np.asarray(M.sum()) for name in wanted}

    def _power(self, K: Array) -> Array:
        K *= self.scale
        K += self.offset
        return np.power(K, self.degree, out=K)

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        return self._power(inner_products(X, Z))

    def _diagonal(self, X: Array) -> Array:
        return self._power(squared_lengths(X))

    def _n_features(self, X: Array) -> float:
        variables = width(X) + (self.offset > 0)
        return comb(variables + self.degree - 1, self.degree)

    def _features(self, X: Array) -> Array:
        """√(degree!/Πⱼαⱼ!)·Πⱼ zⱼ^αⱼ over |α| = degree, z = (√offset, √scale·x)."""
        Z = np.sqrt(self.scale) * dense(X)
        if self.offset > 0:
            Z = np.column_stack([np.full(len(X), np.sqrt(self.offset)), Z])
        columns = []
        for chosen in combinations_with_replacement(range(Z.shape[1]), self.degree):
            repeats = prod(factorial(chosen.count(j)) for j in set(chosen))
            columns.append(np.sqrt(factorial(self.degree) / repeats) * Z[:, chosen].prod(axis=1))
        return np.column_stack(columns)


@dataclass(frozen=True)
class PolynomialSeries(_OfInnerProduct):
    """κ(x, y) = q(xᵀy) = Σₙ cₙ (xᵀy)ⁿ with coefficients c₀, c₁, … ≥ 0.

    Raises KernelError for negative coefficients.

    Parameters
    ----------
    coefficients : sequence of floats ≥ 0
        Of the powers 0, 1, 2, …

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.kernels.PolynomialSeries([1.0, 0.0, 2.0])([[3.0]], [[2.0]])
    array([[73.]])
    """

    coefficients: Sequence[float]

    _reals: ClassVar = {"coefficients": RealField("nonnegative", 1)}

    def __post_init__(self) -> None:
        object.__setattr__(self, "coefficients", nonnegative_numbers(self.coefficients, "coefficients"))

    def _verdict(self) -> Verdict:
        return Verdict(True, "power series in xᵀy with nonnegative coefficients")

    def _outer(self, s: Array, count: int) -> list[Array]:
        return polynomial_derivatives(s, tuple(self.coefficients), count)

    def _powers(self) -> Sequence[float]:
        return self.coefficients

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        return horner(inner_products(X, Z), tuple(self.coefficients))

    def _diagonal(self, X: Array) -> Array:
        return horner(squared_lengths(X), tuple(self.coefficients))

    def _adjoint_of_fields(self, s: Array, G: Array, wanted: frozenset[str]) -> dict[str, Array]:
        return {"coefficients": power_sums(s, G, len(self.coefficients))} if wanted else {}

    def _monomials(self) -> list[tuple[float, Polynomial | Constant]]:
        return [(c, Polynomial(n, offset=0.0) if n else Constant()) for n, c in enumerate(self.coefficients) if c]

    def _n_features(self, X: Array) -> float:
        return sum(kernel._n_features(X) for _, kernel in self._monomials()) or 1

    def _features(self, X: Array) -> Array:
        blocks = [np.sqrt(c) * kernel._features(X) for c, kernel in self._monomials()]
        return np.hstack(blocks) if blocks else np.zeros((len(X), 1))


@dataclass(frozen=True)
class Geometric(_OfInnerProduct):
    """κ(x, y) = Σₙ (xᵀy)ⁿ = 1/(1 − xᵀy) for |xᵀy| < 1: all monomials, infinitely many.

    Raises KernelError for points with |xᵀy| ≥ 1.

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.kernels.Geometric()([[0.5]], [[0.5]]).round(4)
    array([[1.3333]])
    """

    def _verdict(self) -> Verdict:
        return Verdict(True, "power series in xᵀy with coefficients 1")

    def _require_means(self, columns: int, normal: bool) -> None:
        raise no_means(self, "the integral of 1/(1 − xᵀy) over boxes has no closed form in several columns")

    def _outer(self, s: Array, count: int) -> list[Array]:
        g = self._sum(s)
        return [factorial(k) * g ** (k + 1) for k in range(count + 1)]

    def _sum(self, K: Array) -> Array:
        if K.size and np.abs(K).max() >= 1:
            raise KernelError(
                f"Geometric() expects points with |xᵀy| < 1; got {np.abs(K).max():.4g}. Scale them into the unit ball."
            )
        np.subtract(1.0, K, out=K)
        return np.reciprocal(K, out=K)

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        return self._sum(inner_products(X, Z))

    def _diagonal(self, X: Array) -> Array:
        return self._sum(squared_lengths(X))

    def _rounding(self, at: Inexact) -> float:
        """With a = max‖x‖², 1 − xᵀz ≥ 1 − a has an error of ε(1 + a).

        Its powers, up to the fifth for derivatives, multiply the relative error by the exponent.
        """
        a = float(squared_lengths(at.points).max()) * (1 + gamma(terms(at.points) + 2))
        off = compounded(inner_product_error(at, 1.0), gamma(2)) * (1 + a)
        if not off < 1 - a:
            return inf
        factors = compounded(repeated(at.relative(), 2 * at.order), gamma(CHAIN if at.order else 2))
        return compounded(repeated(off / (1 - a - off), 2 * at.order + 1), factors)

    def _size(self, X: Array, order: Order = ()) -> Array:
        """Σₙ (n(n − 1)⋯)²tⁿ⁻ᵏ, t = ‖x‖²: 1/(1 − t), (1 + t)/(1 − t)³ and 4(1 + 4t + t²)/(1 − t)⁵ for k = 0, 1, 2."""
        t = squared_lengths(X)
        if not order:
            return self._diagonal(X)
        return (1 + t) / (1 - t) ** 3 if len(order) == 1 else 4 * (1 + 4 * t + t**2) / (1 - t) ** 5


@dataclass(frozen=True)
class Sigmoid(Kernel):
    """κ(x, y) = tanh(scale·xᵀy + offset), indefinite: for all parameters, some data give negative eigenvalues.

    Parameters
    ----------
    scale : float
    offset : float

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.kernels.Sigmoid().is_psd
    False
    """

    scale: float = 1.0
    offset: float = 0.0

    _reals: ClassVar = {"scale": RealField(), "offset": RealField("any")}
    _elsewhere: ClassVar = {"gamma": "scale", "coef0": "offset"}

    def __post_init__(self) -> None:
        require_positive(self, "scale")
        require(is_real(self.offset), "offset", "a number", self.offset)

    def _verdict(self) -> Verdict:
        return Verdict(False, "tanh has a Taylor series with negative coefficients (Smola, Óvári and Williamson 2001)")

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        K = inner_products(X, Z)
        K *= float(self.scale)
        K += float(self.offset)
        return np.tanh(K, out=K)

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """ΣM∘s and ΣM with M = G∘(1 − κ²) = G/cosh², and scale·MZ for points."""
        s = inner_products(X, Z)
        e = np.exp(-2 * np.abs(self.scale * s + self.offset))  # 1 − tanh² would lose the digits of large arguments
        M = G * (4 * e / (1 + e) ** 2)
        fields = {name: total(M, s) if name == "scale" else np.asarray(M.sum()) for name in wanted}
        return through_products(self.scale * M, X, Z, fields) if points else Adjoint(fields)

    def _diagonal(self, X: Array) -> Array:
        return np.tanh(self.scale * squared_lengths(X) + self.offset)

    def _rounding(self, at: Inexact) -> float:
        """The error of the argument, since |tanh′| ≤ 1, and of tanh itself; at most 2, as values are in [−1, 1]."""
        a = self.scale * float(squared_lengths(at.points).max())
        argument = compounded(inner_product_error(at, 1 / self.scale), gamma(4))
        return min(argument * (1 + a + abs(self.offset)) + FUNCTION, 2.0)

    def _size(self, X: Array, order: Order = ()) -> Array:
        return np.ones(len(X))
