"""Values and means of one function as points of one kernel: integrals over boxes, and expectations.

The mean of θᵀF over a distribution is the inner product of θ with the mean of F (the kernel mean embedding of the
distribution), whose Gram matrix holds E κ(x + U, z + V). A point is a row (x, h, s) of the centre and of the
half-widths and standard deviations by columns, as in `interval_means`; h = s = 0 for a value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kernelopt.kernels.adjoints import pull
from kernelopt.kernels.domains import Domain, Vectors, frozen
from kernelopt.kernels.interval_means import Spread
from kernelopt.kernels.kernel import Adjoint, MissingRuleError, Verdict
from kernelopt.kernels.lifts import Lift
from kernelopt.kernels.rounding import Inexact
from kernelopt.support.types import Array


class Spreads(Vectors):
    """Vectors with half-widths and standard deviations; `rows` takes plain vectors, as points of values."""

    name = "vectors"

    def rows(self, X: Any, owner: str) -> Array:
        return WithMeans.values_at(super().rows(X, owner))

    def columns(self, rows: Array) -> int | None:
        return int(rows.shape[1]) // 3


SPREADS = Spreads()


def spread_rows(X: Array, halves: Array | float, deviations: Array | float) -> Array:
    """The rows (x, h, s)."""
    parts = [X, *(np.broadcast_to(part, X.shape) for part in (halves, deviations))]
    return frozen(np.hstack(parts) + 0.0)  # adding 0 turns −0 into 0


def is_spread(rows: Array) -> Array:
    """Which rows are means rather than values, (n,)."""
    return np.asarray(rows[:, rows.shape[1] // 3 :].any(axis=1))


@dataclass(frozen=True)
class WithMeans(Lift):
    """κ on values and means: entries E κ(x + U, z + V)."""

    functionals: ClassVar = "integrals and means over distributions"

    @classmethod
    def values_at(cls, X: Array) -> Array:
        return spread_rows(X, 0.0, 0.0)

    @classmethod
    def points_of(cls, rows: Array) -> Array:
        return rows[:, : rows.shape[1] // 3]

    @property
    def domain(self) -> Domain:
        return SPREADS

    def _verdict(self) -> Verdict:
        return Verdict(self.kernel.is_psd, "inner products of means of F")

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        """Values at points by κ itself, all other entries by its means."""
        left = is_spread(X)
        if not left.any() and (Z is None or not is_spread(Z).any()):
            return self.kernel._matrix(self.points_of(X), None if Z is None else self.points_of(Z))
        other = X if Z is None else Z
        right, K = is_spread(other), np.empty((len(X), len(other)))
        x, z = Spread.of_rows(X), Spread.of_rows(other)
        if left.any():
            K[left] = self.kernel._means(x[left], z)
        if not left.all() and not right.all():
            at_points = None if Z is None else self.points_of(Z)[~right]
            K[np.ix_(~left, ~right)] = self.kernel._matrix(self.points_of(X)[~left], at_points)
        if not left.all() and right.any():
            K[np.ix_(~left, right)] = K[np.ix_(right, ~left)].T if Z is None else self.kernel._means(x[~left], z[right])
        return K

    def _by_kind(self, X: Array, of_values: Callable[[Array], Array], of_means: Callable[[Spread], Array]) -> Array:
        """One function of the points of values, and another of the spread points."""
        found, spread = np.empty(len(X)), is_spread(X)
        values, means = self._kinds(X)
        if len(values):
            found[~spread] = of_values(values)
        if len(means):
            found[spread] = of_means(means)
        return found

    def _diagonal(self, X: Array) -> Array:
        return self._by_kind(X, self.kernel._diagonal, self.kernel._means_diagonal)

    def _size(self, X: Array, order: Any = ()) -> Array:
        return self._by_kind(X, self.kernel._size, self.kernel._means_size)

    def _kinds(self, X: Array) -> tuple[Array, Spread]:
        """The points of values, and the spread points."""
        spread = is_spread(X)
        return self.points_of(X)[~spread], Spread.of_rows(X[spread])

    def _rounding(self, at: Inexact) -> float:
        """The bound of κ at points of values, and that of means for all pairs with a spread point."""
        values, means = self._kinds(at.points)
        of_values = self.kernel._rounding(Inexact(values)) if len(values) else 0.0
        if not len(means):
            return of_values
        return max(of_values, self.kernel._means_rounding(Spread.of_rows(at.points)))

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """That of κ where all rows are values."""
        if is_spread(X).any() or is_spread(Z).any():
            raise MissingRuleError(
                f"Expected only values of θ for a gradient with respect to the parameters of {self!r}; got integrals "
                "or means of θ over distributions. Write numbers in place of the parameters, or integrals as "
                "weights @ ko.FeatureMatrix(nodes, kernel)."
            )
        found = pull(self, 1, wanted, points)(self.points_of(X), self.points_of(Z), G)
        whole = [None if g is None else np.hstack([g, np.zeros((len(g), 2 * g.shape[1]))]) for g in (found.X, found.Z)]
        return Adjoint(found.fields, *whole)

    def __repr__(self) -> str:
        return repr(self.kernel)
