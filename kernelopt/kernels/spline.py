"""Kernels of smoothing splines: ‖θ‖² is the integral of squared derivatives, and polynomials are free columns.

Derivatives of order m do not see polynomials of degree below m, which `null_space` gives as columns of a cvxpy
variable: f(x) = θᵀF(x) + P(x)c. See G. Wahba, Spline Models for Observational Data, 1990, chapters 1 and 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from math import comb, factorial, frexp, inf, pi, sqrt
from math import gamma as gamma_function
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from kernelopt.errors import KernelError
from kernelopt.kernels.adjoints import refuse_points
from kernelopt.kernels.chain import Order
from kernelopt.kernels.domains import frozen
from kernelopt.kernels.kernel import Adjoint, Kernel, Verdict, entries, require
from kernelopt.kernels.rounding import FUNCTION, Inexact, largest_ratio, repeated, underflow
from kernelopt.support.arithmetic import gamma
from kernelopt.support.checks import is_integer, is_real
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array, Bools

LARGEST = 1e12  # coefficient of a polynomial that is 1 at one anchor: beyond, anchors are too close to a line or plane
MOST = 6  # order of a spline: beyond, polynomials of degree 2m − 1 lose too many digits


@dataclass(frozen=True)
class Spline(Kernel):
    """κ(s, t) = ∫ (s − u)₊ᵐ⁻¹(t − u)₊ᵐ⁻¹/(m − 1)!² du over [low, high], so that ‖θ‖² = ∫ (f⁽ᵐ⁾)² for f(x) = θᵀF(x).

    f vanishes with its first m − 1 derivatives at `low`. With free columns for polynomials of degree below m, θ(X) +
    null_space(X) @ c with c = cp.Variable(m), the minimizer of Σ(yᵢ − f(xᵢ))² + λ‖θ‖² is the smoothing spline of degree
    2m − 1: for m = 2 that of `scipy.interpolate.make_smoothing_spline(x, y, lam=λ)`. Outside of [low, high] f is
    continued as a polynomial of degree below m. Points have one column; for one of several, write `.on([j])`.

    Parameters
    ----------
    order : int from 1 to 6
        m; 2 for cubic splines.
    low, high : float
        The interval of the integral, in the units of x.

    Raises
    ------
    KernelError
        For an order or interval out of range; in use, for points of more than one column.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> spline = ko.kernels.Spline(order=2, low=0.0, high=1.0)
    >>> spline([[0.5]], [[0.5], [1.0]]).round(4)  # s²(3t − s)/6 for s ≤ t
    array([[0.0417, 0.1042]])
    >>> x = np.linspace(0, 1, 9)[:, None]
    >>> theta, c = ko.Theta(spline), cp.Variable(2)
    >>> f = lambda x: theta(x) + spline.null_space(x) @ c
    >>> y = np.abs(x[:, 0] - 0.5)
    >>> objective = cp.sum_squares(f(x) - y) + 1e-3 * ko.sum_squares(theta)
    >>> round(ko.Problem(cp.Minimize(objective)).solve(tol=1e-9), 4)
    0.016
    """

    order: int
    low: float
    high: float

    def __post_init__(self) -> None:
        require(is_integer(self.order) and 1 <= self.order <= MOST, "order", f"an integer from 1 to {MOST}", self.order)
        for name in ("low", "high"):
            value = getattr(self, name)
            require(is_real(value) and abs(value) < inf, name, "a number", value)
            object.__setattr__(self, name, float(value))
        require(self.low < self.high, "high", f"a number > low = {self.low:g}", self.high)

    def _verdict(self) -> Verdict:
        return Verdict(True, "inner products of (x − u)₊ᵐ⁻¹/(m − 1)! as functions of u (Wahba 1990)")

    @property
    def _smoothness(self) -> int:
        return min(self.order - 1, 2)

    def null_space(self, X: Any) -> Array:
        """The columns that ‖θ‖ leaves free, ((x − low)/(high − low))ʲ for j = 0 … m − 1, shape (len(X), m)."""
        x = (self._column(self.rows(X)) - self.low) / (self.high - self.low)
        return x[:, None] ** np.arange(self.order)

    def _column(self, X: Array) -> Array:
        if X.ndim != 2 or X.shape[1] != 1:
            raise KernelError(
                f"Expected points with one column; got {X.shape[-1]} columns. For column j of several write "
                f"({self!r}).on([j])."
            )
        return np.asarray(X[:, 0])

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        return self._derivative(X, (), X if Z is None else Z, ())

    def _derivative(self, X: Array, dx: Order, Z: Array, dz: Order) -> Array:
        """∫ (s − u)₊ᵃ(t − u)₊ᵇ/(a!b!) du, a = m − 1 − |dx|, b = m − 1 − |dz|."""
        a, b = (self.order - 1 - len(order) for order in (dx, dz))
        return self._integral(self._column(X)[:, None], self._column(Z), a, b)

    def _integral(self, s: Array, t: Array, a: int, b: int) -> Array:
        """With p = min(s, t, high) and l = p − low, Σᵢⱼ C(a, i)C(b, j)(s − p)ᵃ⁻ⁱ(t − p)ᵇ⁻ʲlⁱ⁺ʲ⁺¹/(i + j + 1)/(a!b!).

        All terms are ≥ 0. Points below `low` are taken to be there.
        """
        s, t = np.maximum(s, self.low), np.maximum(t, self.low)
        p = np.minimum(np.minimum(s, t), self.high)
        width, left, right = p - self.low, s - p, t - p
        total = np.zeros(p.shape)
        for i in range(a + 1):
            for j in range(b + 1):
                factor = comb(a, i) * comb(b, j) / ((i + j + 1) * factorial(a) * factorial(b))
                total += factor * left ** (a - i) * right ** (b - j) * width ** (i + j + 1)
        return total

    def _diagonal(self, X: Array) -> Array:
        x = self._column(X)
        return self._integral(x, x, self.order - 1, self.order - 1)

    def _rounding(self, at: Inexact) -> float:
        """Relative: each term has up to 2m − 1 factors with errors u, and powers of them; there are m² terms.

        κ increases in both points, and grows by at most (1 + η)²ᵐ⁻¹ where distances from `low` grow by 1 + η.
        """
        x, m = self._column(at.points), self.order
        sizes = [self._size(at.points, (0,) * k) for k in range(at.order + 1)]
        own = float(gamma(m * m + 6 * m + 10)) + max(underflow(size, x > self.low, 4 * m * m) for size in sizes)
        if at.error is None:
            return own
        moved = largest_ratio(at.error[:, 0] * (x + at.error[:, 0] > self.low), np.maximum(x - self.low, 0.0))
        return own + repeated(moved, 2 * m - 1) * (1 + own)

    def _kinks(self, X: Array, Z: Array) -> Bools | None:
        """Equal points, and the ends of the interval, for m = 1: κ = min(s, t, high) − low."""
        if self.order > 1:
            return None
        s, t = self._column(X)[:, None], self._column(Z)
        kinks: Bools = (s == t) | np.isin(s, (self.low, self.high)) | np.isin(t, (self.low, self.high))
        return kinks

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """ΣⱼG∘∂ₛκ and ΣᵢG∘∂ₜκ for points; for m = 1, ∂ₛκ = [low < s < min(t, high)], and ½ at s = t."""
        if not points:
            return Adjoint({})
        if self.order > 1:
            left, right = self._derivative(X, (0,), Z, ()), self._derivative(X, (), Z, (0,))
        else:
            s, t = self._column(X)[:, None], self._column(Z)
            left = np.heaviside(t - s, 0.5) * ((s > self.low) & (s < self.high))
            right = np.heaviside(s - t, 0.5) * ((t > self.low) & (t < self.high))
        return Adjoint({}, (G * left).sum(axis=1)[:, None], (G * right).sum(axis=0)[:, None])


@dataclass(frozen=True)
class ThinPlate(Kernel):
    """κ(x, y) = (1, −ℓ(x))Φ(1, −ℓ(y))ᵀ of thin plate splines, Φ the values φ between x, a₁ … a_M and y, a₁ … a_M.

    φ is a multiple of r²ᵐ⁻ᵈ log r for even d and of r²ᵐ⁻ᵈ for odd d, r = ‖x − y‖: r² log r/8π for m = 2 in two columns,
    −r/8π in three, r³/12 in one (Duchon 1977). ℓᵢ are the polynomials of degree below m with ℓᵢ(aⱼ) = [i = j] at M
    anchors. Then ‖θ‖² is the integral over ℝᵈ of the squared m-th derivatives of f(x) = θᵀF(x), for m = 2 of
    Σᵢⱼ (∂ᵢ∂ⱼf)², and f vanishes at the anchors. With free columns, θ(X) + null_space(X) @ c with c = cp.Variable(M),
    minimizers do not depend on the anchors, and c are the values of f there. The minimizer of Σ(yᵢ − f(xᵢ))² + λ‖θ‖² is
    that of `scipy.interpolate.RBFInterpolator(X, y, kernel="thin_plate_spline", smoothing=8πλ)` in two columns.

    Parameters
    ----------
    anchors : array (M, d), d from 1 to 3
        Points that determine polynomials of degree below m, M = C(m − 1 + d, d): for m = 2 three that are not on a line
        (d = 2), or four that are not in a plane (d = 3). They should be as far apart as the data.
    order : int > d/2, at most 6
        m, by default 2.

    Raises
    ------
    KernelError
        For another number of anchors, or anchors that do not determine a polynomial; in use, for points of another
        number of columns.

    Examples
    --------
    >>> import kernelopt as ko
    >>> kernel = ko.kernels.ThinPlate([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> kernel([[1.0, 1.0], [0.0, 1.0]]).round(4)  # log 2/2π and 0, as (0, 1) is an anchor
    array([[0.1103, 0.    ],
           [0.    , 0.    ]])
    >>> kernel.null_space([[1.0, 1.0]])  # 1 − x₁ − x₂, x₁, x₂
    array([[-1.,  1.,  1.]])
    """

    anchors: tuple[tuple[float, ...], ...]
    order: int = 2

    def __post_init__(self) -> None:
        anchors = _points(self.anchors)
        d = len(anchors[0]) if anchors else 0
        require(1 <= d <= 3 and all(len(a) == d for a in anchors), "anchors", "points of 1 to 3 columns", self.anchors)
        least = d // 2 + 1
        require(
            is_integer(self.order) and least <= self.order <= MOST,
            "order",
            f"an integer from {least} to {MOST} in {d} columns",
            self.order,
        )
        most = comb(self.order - 1 + d, d)
        require(
            len(anchors) == most,
            "anchors",
            f"{most} points, the number of monomials of degree below {self.order} in {d} columns",
            len(anchors),
        )
        object.__setattr__(self, "anchors", anchors)
        _ = self._lagrange  # raises where there are none

    def _verdict(self) -> Verdict:
        return Verdict(True, "φ is positive semidefinite on weights that annihilate polynomials (Duchon 1977)")

    def null_space(self, X: Any) -> Array:
        """The columns that ‖θ‖ leaves free, ℓ₁(x) … ℓ_M(x), shape (len(X), M)."""
        return self._weights(self.rows(X))

    @cached_property
    def _places(self) -> Array:
        return frozen(np.array(self.anchors))

    @cached_property
    def _unit(self) -> float:
        """A power of 2 that is no smaller than the distances of the anchors: division by it is exact.

        In φ, a factor of r adds a polynomial of degree 2m − d to r²ᵐ⁻ᵈ log r, which the weights annihilate.
        """
        # No squares, which may underflow.
        apart = sqrt(self._places.shape[1]) * float(cdist(self._places, self._places, "chebyshev").max())
        return float(2.0 ** frexp(apart)[1])

    @cached_property
    def _middle(self) -> Array:
        return frozen(self._places.mean(axis=0))

    @cached_property
    def _powers(self) -> tuple[tuple[int, ...], ...]:
        """The monomials of degree below m, each as the columns of its factors."""
        d = len(self.anchors[0])
        return tuple(c for degree in range(self.order) for c in combinations_with_replacement(range(d), degree))

    @cached_property
    def _lagrange(self) -> Array:
        """C with ℓᵢ(x) = Σₖ Cₖᵢ·monomial k of (x − middle)/unit, (M, M), from rational numbers, rounded once."""
        middle, unit = [Fraction(c) for c in self._middle.tolist()], Fraction(self._unit)
        places = [[(Fraction(v) - c) / unit for v, c in zip(a, middle, strict=True)] for a in self.anchors]
        inverse = _inverse([[_product(a, columns) for columns in self._powers] for a in places])
        if inverse is None or max(abs(v) for row in inverse for v in row) > LARGEST:
            raise KernelError(
                f"Expected anchors that determine a polynomial of degree below {self.order}; got {self.anchors!r}, at "
                "which one vanishes, or nearly so, that is not 0. For order 2, take points that are "
                "not on a line, or in a plane."
            )
        return frozen(np.array([[float(v) for v in row] for row in inverse]))

    @cached_property
    def _between(self) -> Array:
        return frozen(self._phi(self._places, self._places))

    def _scaled(self, X: Array) -> Array:
        d = len(self.anchors[0])
        if X.ndim != 2 or X.shape[1] != d:
            raise KernelError(f"Expected points with {d} columns, as the anchors of {self!r}; got shape {X.shape}.")
        return (X - self._middle) / self._unit

    def _monomials(self, scaled: Array) -> Array:
        columns = [np.prod(scaled[:, list(c)], axis=1) if c else np.ones(len(scaled)) for c in self._powers]
        return np.column_stack(columns)

    def _weights(self, X: Array) -> Array:
        """ℓᵢ(x), (n, M); exact at the anchors."""
        weights = self._monomials(self._scaled(X)) @ self._lagrange
        at = self._at_anchors(X)
        weights[at.any(axis=1)] = at[at.any(axis=1)]
        return weights

    def _at_anchors(self, X: Array) -> Bools:
        """Which points are which anchors, (n, M)."""
        return np.asarray((X[:, None] == self._places).all(axis=2))

    def _phi(self, X: Array, Z: Array) -> Array:
        """φ in units of the anchors: c·unit²ᵐ⁻ᵈ·ρ²ᵐ⁻ᵈ(log ρ) with ρ = r/unit."""
        m, d = self.order, X.shape[1]
        square = cdist(X / self._unit, Z / self._unit, "sqeuclidean")
        if d % 2:
            return self._front * square ** (m - d / 2)
        logarithm = np.log(square, out=np.zeros_like(square), where=square > 0)
        return 0.5 * self._front * square ** (m - d // 2) * logarithm

    @cached_property
    def _front(self) -> float:
        """c·unit²ᵐ⁻ᵈ, with c of Duchon (1977) for which ‖θ‖² is the integral."""
        m, d = self.order, len(self.anchors[0])
        if d % 2:
            c = gamma_function(d / 2 - m) / (4**m * pi ** (d / 2) * factorial(m - 1))
        else:
            c = (-1) ** (d // 2 + 1 + m) / (
                2 ** (2 * m - 1) * pi ** (d // 2) * factorial(m - 1) * factorial(m - d // 2)
            )
        return float(c * self._unit ** (2 * m - d))

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        other = X if Z is None else Z
        left, right = self._weights(X), self._weights(other)
        K = self._phi(X, other)
        K -= left @ self._phi(self._places, other)
        K -= self._phi(X, self._places) @ right.T
        K += left @ self._between @ right.T
        K[self._at_anchors(X).any(axis=1)] = 0.0
        K[:, self._at_anchors(other).any(axis=1)] = 0.0
        return K

    def _diagonal(self, X: Array) -> Array:
        weights = self._weights(X)
        d = np.einsum("ij,ij->i", weights, weights @ self._between - 2 * self._phi(X, self._places))
        d[self._at_anchors(X).any(axis=1)] = 0.0
        return d

    def _size(self, X: Array, order: Order = ()) -> Array:
        """|c|·unit²ᵐ⁻ᵈ·(Λb)², a bound on κ before its terms cancel; 0 at anchors.

        Λ as in `_weight_bound`. With β(y) = max(1, y^q(1 + log⁺y)) ≥ |φ(y)| and q = 2m − d,
        b = β(2max(‖x̃‖, R)) where x̃ = (x − middle)/unit, and R the largest ‖ãᵢ‖: |φ| is at most b(x)b(z) between any
        two of the points and anchors, as β increases and r ≤ ‖x̃‖ + ‖z̃‖.
        """
        scaled, q = self._scaled(X), 2 * self.order - X.shape[1]
        weights = self._weight_bound(X)
        reach = np.linalg.norm(self._scaled(self._places), axis=1).max()
        y = np.maximum(2 * np.maximum(np.linalg.norm(scaled, axis=1), reach), 1.0)
        size = abs(self._front) * (weights * y**q * (1 + np.log(y))) ** 2
        size[self._at_anchors(X).any(axis=1)] = 0.0
        return np.asarray(size)

    def _rounding(self, at: Inexact) -> float:
        """γ_n for the operations in φ (a relative error e of r² changes it by (q/2 + ½)e·β at most), ℓᵢ, and the sums.

        Let points have errors of up to δ in units of the anchors. φ changes by at most 2δ(q + 1)β, as |φ′| ≤ (q + 1)β.
        A monomial changes by (m − 1)δ·max(1, ‖x̃‖ + δ)ᵐ⁻², so that Σᵢ|ℓᵢ| changes by DΛδ at most, which adds 2Dδ + D²δ².
        A fifth more covers the changes of β and Λ themselves where (1 + D)δ ≤ 1e-3. Without errors, values at anchors
        are exactly 0; with errors there is no bound relative to that.
        """
        m, d, count = self.order, at.points.shape[1], len(self.anchors)
        phi = (2 * m - d + 1) * (d + 12) + 16
        weights = count + 2 * (m + d) + 8
        own = float(gamma(phi + 2 * weights + 3 * count + 8)) + 3 * FUNCTION
        if at.error is None or not at.error.any():
            return own
        delta = float(np.linalg.norm(at.error, axis=1).max()) / self._unit
        reach = np.maximum(np.linalg.norm(self._scaled(at.points), axis=1) + delta, 1.0) ** max(m - 2, 0)
        D = float(((m - 1) * reach * np.abs(self._lagrange).sum() / self._weight_bound(at.points)).max())
        exact = at.error[self._at_anchors(at.points).any(axis=1)]
        if exact.any() or not (1 + D) * delta <= 1e-3:
            return inf
        return own + 1.2 * delta * (2 * (2 * m - d + 1) + 2 * D + D * D * delta)

    def _weight_bound(self, X: Array) -> Array:
        """Λ = 1 + Σₖᵢ|Cₖᵢ·monomial k| ≥ 1 + Σᵢ|ℓᵢ|."""
        return np.asarray(1 + np.abs(self._monomials(self._scaled(X))) @ np.abs(self._lagrange).sum(axis=1))

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        refuse_points(self, points)
        return Adjoint({})


def _points(values: Any) -> tuple[tuple[float, ...], ...]:
    """Points as tuples. Raises KernelError."""
    if isinstance(values, np.ndarray) and values.ndim == 2:
        values = values.tolist()
    found = [entries(a) for a in values] if isinstance(values, Sequence) and not isinstance(values, str) else []
    proper = bool(found) and all(a and all(is_real(v) and abs(v) < inf for v in a) for a in found)
    require(proper, "anchors", "points, an array (M, d)", values)
    return tuple(tuple(float(v) + 0.0 for v in a) for a in found)


def _product(point: list[Fraction], columns: tuple[int, ...]) -> Fraction:
    found = Fraction(1)
    for j in columns:
        found *= point[j]
    return found


def _inverse(M: list[list[Fraction]]) -> list[list[Fraction]] | None:
    """M⁻¹ by Gauss–Jordan elimination; None for a singular matrix."""
    n = len(M)
    rows = [[*row, *(Fraction(int(i == j)) for j in range(n))] for i, row in enumerate(M)]
    for k in range(n):
        pivot = next((i for i in range(k, n) if rows[i][k]), None)
        if pivot is None:
            return None
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [v / rows[k][k] for v in rows[k]]
        for i in range(n):
            if i != k and rows[i][k]:
                factor = rows[i][k]
                rows[i] = [v - factor * p for v, p in zip(rows[i], rows[k], strict=True)]
    return [row[n:] for row in rows]
