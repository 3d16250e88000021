"""A problem as a sum of functions of one number each, and what the norms of θ cost.

f(u, t, y) = Σⱼ hⱼ(sⱼ) + linear terms + g(t),   s = Eu + Fy
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite

import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.terms import SumOfLosses, Term
from kernelopt.pieces.extremes import capped
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array, Ints

BALANCED = 1e-12  # relative: what rounding leaves of sums of slopes that balance a cost


@dataclass(frozen=True, eq=False)
class Separable:
    """Σ hⱼ(sⱼ) + linear_uᵀu + linear_yᵀy + constant with s = Eu + Fy.

    u, y : columns of all u, and of the user's variables, bounds of maxima after them; E, F : sparse, (m, len(u)) and
    (m, len(y)); terms : the functions, with the entries `at` of s that are their arguments; plain : for each hⱼ that is
    a linear constraint, its row of the pieces that were read, else −1; back, base : multipliers of all of their rows
    are back·(slopes) + base; size : the number of columns; users : how many of y are the user's; sums : those of the
    largest of losses
    """

    u: Ints
    y: Ints
    E: sp.csr_array
    F: sp.csr_array
    linear_u: Array
    linear_y: Array
    terms: tuple[Term, ...]
    plain: Ints
    back: sp.csr_array
    base: Array
    size: int
    users: int
    constant: float
    sums: tuple[SumOfLosses, ...] = ()

    def multipliers(self, v: Array) -> Array:
        """Those of all rows of the pieces at slopes v.

        The bound t ≥ m in place of a sum of largest losses has a multiplier of its own, which is shared out among them.
        """
        a = np.asarray(self.back @ v + self.base)
        for one in self.sums:
            w = one.cost if one.below < 0 else one.cost * max(float(a[one.below]), 0.0)
            own = np.append(a[one.rows], v[one.last].sum())
            more = capped(own[None], np.array([w]), np.array([one.largest * w]))[0] - own
            a[one.rows] += more[:-1]
            np.add.at(a, one.bounds[one.bounds >= 0], more[one.bounds >= 0])
        return a

    def arguments(self, u: Array, y: Array) -> Array:
        """s = Eu + Fy."""
        return np.asarray(self.E @ u + self.F @ y)

    def value(self, s: Array) -> float:
        """Σ hⱼ(sⱼ)."""
        return float(sum(np.sum(term.value(s[term.at])) for term in self.terms))

    def derivative(self, s: Array) -> Array:
        found = np.zeros(self.E.shape[0])
        for term in self.terms:
            found[term.at] = term.derivative(s[term.at])
        return found

    def conjugate(self, v: Array) -> float:
        """Σ h*ⱼ(vⱼ)."""
        return float(sum(np.sum(term.conjugate(v[term.at])) for term in self.terms))

    @np.errstate(invalid="ignore")  # 0·∞ of terms that do not count
    def growth(self, d: Array) -> float:
        """The slope of the sum far out along y + τd, relative to the sum of its terms' sizes; 0 where a term is −∞.

        There, hⱼ has its steepest slope in the direction of (Fd)ⱼ.
        """
        low, high = self.slopes()
        s = np.asarray(self.F @ d)
        terms = np.append(np.where(s > 0, high * s, np.where(s < 0, low * s, 0.0)), self.linear_y @ d)
        if np.isinf(terms).any():
            return inf if not np.isneginf(terms).any() else 0.0
        return float(terms.sum() / (np.abs(terms).sum() or 1.0))

    @cached_property
    def is_bounded(self) -> bool:
        """Whether −Σ h*(a) is a lower bound, for slopes a of the functions that balance linear costs, as y of eᶠ − yf.

        One function of each prediction alone takes its cost: Eᵀa = −c_u and Fᵀa = −c_y.
        """
        a, alone = np.zeros(self.E.shape[0]), np.flatnonzero(np.diff(self.E.indptr) == 1)
        owner, costly = np.full(self.E.shape[1], -1), np.flatnonzero(self.linear_u)
        owner[self.E.indices[self.E.indptr[alone]]] = alone
        rows = owner[costly]
        if np.any(rows < 0):
            return False
        a[rows] = -self.linear_u[costly] / self.E.data[self.E.indptr[rows]]
        left, terms = self.linear_y + self.F.T @ a, np.abs(self.linear_y) + abs(self.F).T @ np.abs(a)
        return bool(np.all(np.abs(left) <= BALANCED * terms)) and isfinite(self.conjugate(a))

    def slopes(self) -> tuple[Array, Array]:
        """The interval of subgradients of each hⱼ."""
        return self._slopes

    @cached_property
    def _slopes(self) -> tuple[Array, Array]:
        low, high = np.zeros(self.E.shape[0]), np.zeros(self.E.shape[0])
        for term in self.terms:
            low[term.at], high[term.at] = term.slopes()
        low.flags.writeable = high.flags.writeable = False
        return low, high


@dataclass(frozen=True)
class Lengths:
    """g(t) = slope·t + ½curvature·t² on 0 ≤ t ≤ limit, for each norm."""

    slope: Array
    curvature: Array
    limit: Array
