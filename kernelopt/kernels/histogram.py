"""Kernels of histograms: vectors with entries ≥ 0."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy.spatial.distance import cdist, pdist, squareform

from kernelopt.errors import KernelError
from kernelopt.kernels.adjoints import columnwise, share_entries
from kernelopt.kernels.domains import HISTOGRAMS, Domain
from kernelopt.kernels.kernel import Adjoint, Kernel, Verdict, require
from kernelopt.kernels.rounding import LEAST, Inexact, compounded, underflow
from kernelopt.kernels.tiles import TINY, column_sums
from kernelopt.support.arithmetic import gamma, in_columns
from kernelopt.support.checks import is_integer
from kernelopt.support.types import Array, Bools

# The largest ratio ρ of two ‖x‖₁ for which Intersection uses ℓ1 distances. Cancellation then magnifies rounding by
# ½(√ρ + 1/√ρ), up to 5; a larger value loses more digits, a smaller one leaves more data to the slower sums of minima.
ALIKE = 100.0


@dataclass(frozen=True)
class Intersection(Kernel):
    """κ(x, y) = Σⱼ min(xⱼ, yⱼ), for entries ≥ 0.

    Parameters
    ----------
    maximum : int, optional
        Declares that entries are integers from 0 to `maximum`, which is checked on a problem's points. F is then the
        unary coding F(x)_jk = [xⱼ ≥ k], of length d·maximum.

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.kernels.Intersection()([[1.0, 3.0]], [[2.0, 2.0]])
    array([[3.]])
    >>> ko.kernels.Intersection(maximum=3).features([[1, 3]])
    array([[1., 0., 0., 1., 1., 1.]])
    """

    maximum: int | None = None

    def __post_init__(self) -> None:
        valid = self.maximum is None or (is_integer(self.maximum) and self.maximum >= 1)
        require(valid, "maximum", "an integer ≥ 1", self.maximum)

    @property
    def domain(self) -> Domain:
        return HISTOGRAMS

    def _verdict(self) -> Verdict:
        return Verdict(True, "min(x, y) = ∫ [t ≤ x][t ≤ y] dt: unary coding (Swain and Ballard 1991)")

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        right = X if Z is None else Z
        x, z = X.sum(axis=1), right.sum(axis=1)
        if max(x.max(), z.max()) > ALIKE * min(x.min(), z.min()):
            return column_sums(X, Z, lambda a, b, buffer: np.minimum(a, b, out=buffer))
        # For ‖x‖₁ of similar size ½(‖x‖₁ + ‖z‖₁ − ‖x − z‖₁) loses few digits, and scipy has a compiled routine for it.
        K = squareform(pdist(X, "cityblock")) if Z is None else cdist(X, Z, "cityblock")
        np.negative(K, out=K)
        K += x[:, None]
        K += z
        K *= 0.5
        return K

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """∂ₐmin(a, b) = [a < b], ½ where a = b, for points."""
        return Adjoint({}, *columnwise(G, X, Z, _smaller)) if points else Adjoint({})

    def _kinks(self, X: Array, Z: Array) -> Bools | None:
        return share_entries(X, Z)

    def _diagonal(self, X: Array) -> Array:
        return X.sum(axis=1)

    def _rounding(self, at: Inexact) -> float:
        """γ₂d₊₈·½(‖x‖₁ + ‖z‖₁)/√(‖x‖₁‖z‖₁) = γ₂d₊₈·½(√ρ + 1/√ρ) for the largest ratio ρ of lengths, at most `ALIKE`."""
        sizes = at.points.sum(axis=1)
        unlike = min(float(sizes.max() / sizes.min()), ALIKE) if sizes.min() > 0 else ALIKE
        cancelled = gamma(2 * at.points.shape[1] + 8) * (sqrt(unlike) + 1 / sqrt(unlike)) / 2
        return compounded(cancelled, at.relative_entries())

    def _n_features(self, X: Array) -> float:
        self._check_points(X)
        return super()._n_features(X) if self.maximum is None else X.shape[1] * self.maximum

    def _check_points(self, X: Array) -> None:
        if self.maximum is None:
            return
        wrong = (np.round(X) != X) | np.greater(X, self.maximum)
        if wrong.any():
            i, j = (int(v) for v in np.argwhere(wrong)[0])
            raise KernelError(
                f"Expected integer entries from 0 to {self.maximum}, as {self!r} declares; got {X[i, j]:g} at "
                f"({i}, {j}). Leave out maximum, or round and clip the data."
            )

    def _features(self, X: Array) -> Array:
        if self.maximum is None:
            raise KernelError("Expected Intersection(maximum=m) for features: unary coding needs integers from 0 to m.")
        self._check_points(X)
        return (X[:, :, None] >= np.arange(1, self.maximum + 1)).astype(np.float64).reshape(len(X), -1)

    def _evaluator(self, centers: Array, coefficients: Array) -> Callable[[Array], Array] | None:
        """Σᵢ cᵢ min(x, zᵢ) is piecewise linear in each column, with knots zᵢ: O(d log s) per point for s centers.

        Its values at sorted knots are Σ_{zᵢ ≤ x} cᵢzᵢ + xΣ_{zᵢ > x} cᵢ, by prefix sums (Maji, Berg and Malik 2008).
        """
        c = in_columns(coefficients)
        tables = []
        for column in centers.T:
            order = np.argsort(column)
            z, cz = column[order], c[order]
            values = np.cumsum(cz * z[:, None], axis=0) + z[:, None] * (cz.sum(axis=0) - np.cumsum(cz, axis=0))
            knots, first = np.unique(z, return_index=True)
            last = np.append(first[1:], len(z)) - 1
            if knots[0] > 0:  # linear from 0 to the first knot; np.interp would extend its value as a constant
                knots, last_values = np.append(0.0, knots), np.vstack([np.zeros(c.shape[1]), values[last]])
            else:
                last_values = values[last]
            tables.append((knots, np.ascontiguousarray(last_values.T)))

        def evaluate(X: Array) -> Array:
            total = np.zeros((c.shape[1], len(X)))
            for x, (knots, values) in zip(np.ascontiguousarray(X.T), tables, strict=True):
                for k in range(c.shape[1]):
                    total[k] += np.interp(x, knots, values[k])
            return np.ascontiguousarray(total.T).reshape(len(X), *coefficients.shape[1:])

        return evaluate


@dataclass(frozen=True)
class AdditiveChiSquared(Kernel):
    """κ(x, y) = Σⱼ 2xⱼyⱼ/(xⱼ + yⱼ), for entries ≥ 0; a term with xⱼ = yⱼ = 0 counts as 0.

    It is ½(‖x‖₁ + ‖y‖₁ − χ²(x, y)). scikit-learn's `additive_chi2_kernel` is −χ²(x, y), which is indefinite.

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.kernels.AdditiveChiSquared()([[1.0, 2.0]], [[1.0, 0.0]])
    array([[1.]])
    """

    @property
    def domain(self) -> Domain:
        return HISTOGRAMS

    def _verdict(self) -> Verdict:
        return Verdict(True, "homogeneous, with a sech spectrum (Vedaldi and Zisserman 2012)")

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        return column_sums(X, Z, _harmonic)

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """∂ₐ2ab/(a + b) = 2(b/(a + b))², for points."""
        return Adjoint({}, *columnwise(G, X, Z, _harmonic_slopes)) if points else Adjoint({})

    def _diagonal(self, X: Array) -> Array:
        return X.sum(axis=1)

    def _rounding(self, at: Inexact) -> float:
        """γ_{d+4}, as all terms are nonnegative, and the error of `TINY` in each denominator."""
        sizes, d = at.points.sum(axis=1), at.points.shape[1]
        lost = underflow(sizes, sizes > 0, 2 * d * TINY / LEAST)
        return compounded(gamma(d + 8), at.relative_entries()) + lost


def _smaller(a: Array, b: Array) -> tuple[Array, Array]:
    """The derivatives of min(a, b)."""
    s = 0.5 * np.sign(a - b)
    return 0.5 - s, 0.5 + s


def _harmonic_slopes(a: Array, b: Array) -> tuple[Array, Array]:
    s = a + (b + TINY)
    return 2 * (b / s) ** 2, 2 * (a / s) ** 2


def _harmonic(a: Array, b: Array, buffer: Array) -> Array:
    """a·2b/(a + b), 0 where a = b = 0. The quotient comes first, as ab may overflow or underflow."""
    np.add(a, b + TINY, out=buffer)
    np.divide(2 * b, buffer, out=buffer)
    buffer *= a
    return buffer
