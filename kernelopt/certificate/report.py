"""What a certificate says, and what it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from math import inf, isfinite, log10

import numpy as np

from kernelopt.certificate.multipliers import Multipliers
from kernelopt.expressions import Theta
from kernelopt.html import table
from kernelopt.kernels.domains import Array
from kernelopt.solvers.outer import DualPoint

FULL, REDUCED, ESTIMATE = "full kernel", "reduced problem", "estimate"
READABLE = 1e-3  # a larger relative gap says nothing where the absolute one has no meaning (θ = 0 is optimal)


@dataclass(frozen=True, eq=False)
class Lower:
    """A lower bound, and what it rests on: enough to evaluate it again when only parameters change.

    terms : sum of the absolute values of its terms; multipliers, grams : for each θ, and their VᵀQV; nu, slopes : ν
    and v, of a bound by conjugates, for the `finest` cut or one function of each prediction; point : of a bound by the
    cone form; products : for each θ QV, where a pass gave it.
    """

    value: float
    assumptions: tuple[str, ...]
    rounding: float
    terms: float
    assumes_radius: bool
    multipliers: tuple[Multipliers, ...]
    grams: tuple[Array, ...]
    slopes: Array | None = None
    nu: Array | None = None
    finest: bool = False
    point: DualPoint | None = None
    products: tuple[Array | None, ...] = ()


@dataclass(frozen=True, eq=False)
class Certificate:
    """An enclosure of the optimum of the stated problem; prints as one sentence.

    Attributes
    ----------
    lower, upper : float
        The optimum lies between them, up to `rounding`. For a Maximize too.
    absolute_gap : float
        upper − lower.
    relative_gap : float
        (upper − lower)/(P₀ − upper), with P₀ the optimum at θ = 0 (for a Maximize: (upper − lower)/(lower − P₀)); the
        denominator is |upper| where θ = 0 is infeasible. 1e-3 says that 99.9 % of the attainable improvement over
        θ = 0 was attained. Constants added to the objective do not change it; nan where θ = 0 is optimal.
    scope : str
        "full kernel": for every θ of the stated problem; "reduced problem": for θ in the span of the factor only;
        "estimate": not a bound (νᵀQν was sampled).
    ranks : tuple of (rank, number of distinct rows), one for each θ
    assumptions : tuple of str
        What the bounds take for granted beside the statement (a radius, a box, a projected kernel matrix).
    widened : float
        By how much the upper bound was raised, twice the first order in the multipliers, for constraints that hold
        only up to a small violation; included in `upper`.
    rounding : float
        Size of the rounding errors that the bounds do not cover.
    floor : float
        1e-8 of the terms that the bounds are made of (in the spectral form what 1e-12 of all eigenvalues makes in the
        objective): a smaller gap has no meaning. What `abs_tol` is by default.
    at_zero : float or None
        P₀.
    distance : mapping of θ to a bound on ‖θ̂ − θ*‖
        √(absolute_gap/λ) where the objective holds λ‖θ‖²; only for scope "full kernel".
    seconds : wall time that the certificate took

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X, y = np.arange(6.0)[:, None], np.array([1.0, 3.0, 5.0, 7.0, 9.0, 11.0])
    >>> theta = ko.Theta(ko.kernels.Polynomial(degree=1))
    >>> problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)) + 1e-3 * ko.sum_squares(theta)))
    >>> _ = problem.solve()
    >>> certificate = problem.certificate
    >>> certificate.lower <= problem.value <= certificate.upper, certificate.relative_gap < 1e-6, certificate.scope
    (True, True, 'full kernel')
    """

    lower: float
    upper: float
    scope: str
    ranks: tuple[tuple[int, int], ...]
    assumptions: tuple[str, ...]
    widened: float
    rounding: float
    floor: float
    at_zero: float | None
    maximize: bool
    seconds: float
    distance: Mapping[Theta, float] = field(default_factory=dict)
    evidence: Lower | None = field(default=None, repr=False)
    latest: Lower | None = field(default=None, repr=False)

    @property
    def absolute_gap(self) -> float:
        return self.upper - self.lower

    @property
    def relative_gap(self) -> float:
        unit = self._unit()
        if not isfinite(self.absolute_gap) or unit == 0:
            return inf if self.absolute_gap == inf else np.nan
        return max(self.absolute_gap, 0.0) / unit

    def _unit(self) -> float:
        """|P₀ − P|, or |P| where θ = 0 is infeasible."""
        attained = self.lower if self.maximize else self.upper
        return abs(attained) if self.at_zero is None else abs(self.at_zero - attained)

    def closes(self, tol: float, abs_tol: float | None = None) -> bool:
        """Whether the relative gap is ≤ tol, or the absolute one ≤ abs_tol (`floor` by default), rounding included."""
        gap = self.absolute_gap + self.rounding
        if not isfinite(gap):
            return False
        return gap <= tol * self._unit() or gap <= (self.floor if abs_tol is None else abs_tol)

    def __str__(self) -> str:
        gap = f"relative gap {self.relative_gap:.1e}"
        if not isfinite(self.relative_gap) or (self.relative_gap > READABLE and self.absolute_gap <= self.floor):
            gap = f"absolute gap {self.absolute_gap:.1e}"
        ranks = ", ".join(f"rank {r} of {n}" for r, n in self.ranks)
        low, high = self._digits(self.lower, ROUND_FLOOR), self._digits(self.upper, ROUND_CEILING)
        parts = [f"optimum in [{low}, {high}]", gap, self.scope, ranks]
        return ", ".join(p for p in [*parts, *self.assumptions] if p)

    def _repr_html_(self) -> str:
        low, high = self._digits(self.lower, ROUND_FLOOR), self._digits(self.upper, ROUND_CEILING)
        rows = [
            ("optimum in", f"[{low}, {high}]"),
            ("relative gap", f"{self.relative_gap:.1e}"),
            ("absolute gap", f"{self.absolute_gap:.1e}"),
            ("scope", self.scope),
            *(("rank", f"{rank} of {n}") for rank, n in self.ranks),
            *(("assumed", assumption) for assumption in self.assumptions),
        ]
        return table(rows, left=True)

    def _digits(self, bound: float, outward: str) -> str:
        """A bound with as many digits as show the gap, rounded outward."""
        gap = self.absolute_gap
        if not isfinite(bound):
            return f"{bound}"
        if not isfinite(gap) or gap <= 0 or bound == 0:
            return f"{bound:.10g}"
        digits = int(np.clip(2 - np.floor(log10(gap / abs(bound))), 2, 16))
        return f"{float(Context(digits, outward).create_decimal(bound)):.{digits}g}"
