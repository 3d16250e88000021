"""The certificate of an answer: its bounds, and the assumptions that they rest on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from fractions import Fraction
from math import inf, isfinite, log10, nextafter
from typing import Any

import numpy as np

from kernelopt.certificate.gram import Gram
from kernelopt.certificate.multipliers import Multipliers
from kernelopt.errors import KernelOptError
from kernelopt.language.expressions import Theta
from kernelopt.persistence import proofs
from kernelopt.persistence.proofs import Proof, rounded
from kernelopt.support.checks import require_number
from kernelopt.support.html import table
from kernelopt.support.types import Array

FULL, REDUCED, ESTIMATE = "full kernel", "reduced problem", "estimate"
WORD, WORD_REDUCED = "solver's word", "solver's word for the reduced problem"  # of mixed-integer problems: no proof
IN_RATIONALS = "in exact arithmetic"
# The largest unit of the relative gap, in T. Where P₀ is huge, a gap that is small relative to P₀ − P may exceed all
# terms at the answer: with P₀ − P = 3e13 and T = 0.76, a gap of 1548 would count as 5e-11.
CAP = 1e4
LAST_DIGITS = 2.0**-44  # a gap up to this, relative to P₀ − P, closes: 256·2⁻⁵², about the error of sums of that size
# Above this relative gap, a certificate whose gap is within the floor prints the absolute gap instead: where θ = 0 is
# optimal, P₀ − P ≈ 0 and the relative gap has no meaning.
READABLE = 1e-3
# Share of the gap from which its allowance for rounding is told, and the relative gap: no other solver or tolerance
# makes that part smaller. Smaller gaps than a hundredth of the default tol leave nothing to explain.
MUCH, TOLD = 0.5, 1e-8


@dataclass(frozen=True, eq=False)
class Lower:
    """A lower bound with its multipliers, which suffice to evaluate it again when only parameters change.

    terms : sum of the absolute values of its terms
    multipliers, grams : the multipliers of each θ, and their VᵀQV
    nu, rows : ν, and the multipliers of all rows of the pieces
    products : QV for each θ, where a pass over the kernel gave it
    missing : the reason where there is no bound
    confined : whether it holds only for θ in the factor's span
    idle : for each θ, whether its costs are far above its multipliers' lengths, so that θ = 0 is best beside them
    mu : for each θ the multipliers μⱼ of its norms, in the order of its `multipliers`
    """

    value: float
    rounding: float
    terms: float
    multipliers: tuple[Multipliers, ...]
    grams: tuple[Gram, ...]
    nu: Array | None = None
    products: tuple[Array | None, ...] = ()
    missing: str = ""
    confined: bool = False
    rows: Array | None = None
    idle: tuple[bool, ...] = ()
    mu: tuple[Array, ...] = ()


@dataclass(frozen=True, eq=False)
class Certificate:
    """An enclosure of the optimum of the stated problem; prints as one sentence.

    Attributes
    ----------
    lower, upper : float
        The optimum lies between them, rounding included. For a Maximize too.
    absolute_gap : float
        upper − lower, computed before constants of the objective are added to both, since adding them rounds.
    relative_gap : float
        (upper − lower)/(P₀ − upper), with P₀ the optimum at θ = 0 (for a Maximize: (upper − lower)/(lower − P₀)); the
        denominator is |upper| where θ = 0 is infeasible, and 10⁴T at most (there T), T the `terms`. 1e-3 says that
        99.9 % of the attainable improvement over θ = 0 was attained. Constants added to the objective do not change it.
    scope : str
        "full kernel": for every θ of the stated problem; "reduced problem": for θ in the span of the factor only;
        "estimate": not a bound (νᵀQν was sampled). `of_terms` is a bound of the stated problem in any case.
        With integers, "full kernel" where boxes of them prove the bound, as `rests_on` says. Else "solver's word": the
        lower bound (for a Maximize the upper one) is what the mixed-integer solver tells, with nothing to check it by;
        "solver's word for the reduced problem": the same for θ in the span of the factor only. The gap
        is that of this bound, and proves nothing.
    ranks : tuple of (rank, number of distinct rows), one for each θ
    assumptions : tuple of str
        What the bounds assume beside the statement, such as that constraints hold to first order. An answer with any is
        not called optimal.
    rests_on : tuple of str
        Further facts that the bounds rest on: the user's declarations, a projected kernel matrix, constraints that hold
        only to rounding.
    violations : tuple of float
        The largest amount by which the answer violates each constraint of the problem, in the order of the constraints
        and in their own units; `violation` is the largest of these.
    is_feasible : bool
        Whether the answer meets all constraints to rounding: 1e-12 of their terms. Else it is not optimal.
    widened : float
        The amount by which the upper bound was raised because constraints hold only up to a small violation: twice the
        first-order cost, Σ |multiplier × violation|. Included in `upper`.
    rounding : float
        The part of the gap that is an allowance for rounding and for errors of kernel values. It is printed where it is
        half of the gap or more: a more accurate solver does not reduce it, and data or a kernel of smaller size do.
    terms : float
        T, the sum of the absolute values of the terms of the objective at the answer.
    floor : float
        A gap up to the floor closes. It is 1e-8·T where θ = 0 is proven to be optimal to 1e-8·T; 2⁻⁴⁶ of the sizes of
        the numbers that losses take differences of, where T is no larger and all other terms are negligible; the
        allowance for rounding and 2⁻¹⁰⁶ of the objective's unit, where T is below that; else 0. In the spectral form it
        is the change of the objective that 1e-12 of the sum of all eigenvalues makes.
    at_zero : float or None
        P₀.
    distance : mapping of θ to a bound on ‖θ̂ − θ*‖
        √(absolute_gap/λ) where the objective holds λ‖θ‖²; only for scope "full kernel".
    of_terms : float or None
        A bound of the stated problem's optimum that takes no multipliers: the sum of what the objective's terms can't
        fall below (for a Maximize: exceed), by their signs and the bounds of variables; 0 for losses and norms. Where
        these tell nothing, and the interval is wide or not one for every θ, it is Σ infₛ (h(s) − gs) over functions h
        of predictions and the slopes g that linear terms leave to them. None where there is no such bound. `lower` is
        no less (`upper` no more), and has scope "full kernel" where it is this bound.
    solver : str
        The mixed-integer solver whose word a bound is; "" where both bounds are proven.
    seconds : wall time of the certificate

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X, y = np.arange(6.0)[:, None], np.array([1.0, 3.0, 5.0, 7.0, 9.0, 11.0])
    >>> theta = ko.Theta(ko.kernels.Polynomial(degree=1))
    >>> objective = cp.sum_squares(y - theta(X)) + 1e-3 * ko.sum_squares(theta)
    >>> problem = ko.Problem(cp.Minimize(objective))
    >>> _ = problem.solve()
    >>> certificate = problem.certificate
    >>> (
    ...     certificate.lower <= problem.value <= certificate.upper,
    ...     certificate.relative_gap < 1e-6,
    ...     certificate.scope,
    ... )
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
    terms: float = inf
    violations: tuple[float, ...] = ()
    is_feasible: bool = True
    rests_on: tuple[str, ...] = ()
    of_terms: float | None = None
    distance: Mapping[Theta, float] = field(default_factory=dict)
    solver: str = ""
    evidence: Lower | None = field(default=None, repr=False)
    # What makes the proof in exact arithmetic: the problem that was solved, as long as it holds this answer.
    prover: Callable[[Certificate], Proof] | None = field(default=None, repr=False)
    bare: Certificate | None = field(default=None, repr=False)  # before constants of the objective were added

    @property
    def absolute_gap(self) -> float:
        found = self.bare or self
        return found.upper - found.lower

    @property
    def violation(self) -> float:
        return max(self.violations, default=0.0)

    @property
    def relative_gap(self) -> float:
        unit = self.unit
        if not isfinite(self.absolute_gap) or unit == 0:
            return 0.0 if self.absolute_gap <= 0 else inf
        return max(self.absolute_gap, 0.0) / unit

    @property
    def unit(self) -> float:
        """P₀ − P, 10⁴T at most; or |P|, T at most, where θ = 0 is infeasible."""
        attained, at_zero = self._improvement
        if at_zero is None:
            return min(abs(attained), self.terms)
        return min(max(at_zero - attained, 0.0), CAP * self.terms)

    @property
    def _improvement(self) -> tuple[float, float | None]:
        """P and P₀ of the minimized problem, without constants."""
        found, sign = self.bare or self, -1.0 if self.maximize else 1.0
        attained = sign * (found.lower if self.maximize else found.upper)
        return attained, None if found.at_zero is None else sign * found.at_zero

    @property
    def last_digit(self) -> float:
        """2⁻⁴⁴(P₀ − P): double precision hardly resolves smaller differences where the optimum is near 0."""
        attained, at_zero = self._improvement
        return 0.0 if at_zero is None else LAST_DIGITS * abs(at_zero - attained)

    def shifted(self, constant: float, value: float) -> Certificate:
        """The certificate of the objective plus a constant; `value` is that objective at the answer.

        Bounds are rounded outward; gaps stay those from before the constant was added.
        """
        if constant == 0:
            return self
        low = nextafter(self.lower + nextafter(constant, -inf), -inf)
        high = nextafter(self.upper + nextafter(constant, inf), inf)
        at_zero = None if self.at_zero is None else self.at_zero + constant
        of_terms, outward = self.of_terms, inf if self.maximize else -inf
        if of_terms is not None:
            of_terms = nextafter(of_terms + nextafter(constant, outward), outward) if of_terms else constant
        if isfinite(value):
            low, high = min(low, value), max(high, value)
        return replace(self, lower=low, upper=high, at_zero=at_zero, of_terms=of_terms, bare=self)

    def exact(self) -> Proof:
        """The same enclosure proven in exact arithmetic, with bounds that allow for no rounding.

        Raises
        ------
        KernelOptError
            Where the multipliers are not known any more (after another solve, changed parameters, or in another
            process), and for what has no exact form: integers, `ko.everywhere`, functions and kernels known as code
            alone, more than 5000 rows.
        """
        if self.prover is None:
            raise KernelOptError(
                "Expected a certificate with its multipliers; one from a file, from another process or without a "
                "solve has none. Call solve()."
            )
        return self.prover(self)

    def save(self, path: Any) -> Proof:
        """Write a proof of the bounds that anybody can check: `python3 kernelopt/check.py FILE` needs Python alone.

        The file has the statement in words and as functions of affine rows, the kernels with their points, a point,
        multipliers, and the bounds that these prove in exact arithmetic. Its format is in docs/proof_files.md;
        `ko.load_certificate` reads it.

        Returns
        -------
        Proof
            The bounds: no wider than the certificate's own, as a rule, since nothing is allowed for rounding.

        Raises
        ------
        KernelOptError
            As `exact`; nothing is written then.
        OSError
            Where the file can't be written.

        Examples
        --------
        >>> import cvxpy as cp, numpy as np, kernelopt as ko, os, tempfile
        >>> X, y = np.arange(6.0)[:, None], np.array([-1.0, -1.0, 1.0, 1.0, -1.0, -1.0])
        >>> theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
        >>> hinge = cp.sum(cp.pos(1 - cp.multiply(y, theta(X) + b)))
        >>> problem = ko.Problem(cp.Minimize(hinge + 0.1 * ko.sum_squares(theta)))
        >>> _ = problem.solve()
        >>> proof = problem.certificate.save(os.path.join(tempfile.mkdtemp(), "hinge.jsonl"))
        >>> print(proof)
        optimum in [..., ...], in exact arithmetic
        """
        proof = self.exact()
        proofs.write(path, proof)
        return proof

    def closes(self, tol: float, abs_tol: float | None = None) -> bool:
        """Whether the gap is ≤ tol relatively, ≤ `floor`, or ≤ abs_tol absolutely."""
        require_number(tol, "tol", "a number ≥ 0", lambda value: value >= 0)
        if abs_tol is not None and not (isinstance(abs_tol, float) and abs_tol == inf):
            require_number(abs_tol, "abs_tol", "a number ≥ 0, or None", lambda value: value >= 0)
        gap = self.absolute_gap
        if not isfinite(gap):
            return False
        return gap <= max(tol * self.unit, self.floor, self.last_digit, 0.0 if abs_tol is None else abs_tol)

    def __str__(self) -> str:
        gap = f"relative gap {self.relative_gap:.1e}"
        if not isfinite(self.relative_gap) or (self.relative_gap > READABLE and self.absolute_gap <= self.floor):
            gap = f"absolute gap {self.absolute_gap:.1e}"
        ranks = ", ".join(f"rank {r} of {n}" for r, n in self.ranks)
        low, high = self.interval
        told = "; ".join(part for part in (self._of_no_unit(), self._of_rounding()) if part)
        gap += f" ({told})" if told else ""
        bounds = f"optimum in [{low}, {high}]"
        parts = [bounds, gap, self.scope, ranks]
        if self.solver:
            parts = [f"{bounds} by {self.scope.replace('solver', self.solver)}, not proven", gap, ranks]
        return ", ".join(p for p in [*parts, *self.assumptions, *self.rests_on, self._of_all_theta] if p)

    @property
    def interval(self) -> tuple[str, str]:
        """The bounds as they are printed: rounded outward, with as many digits as show the gap."""
        return self._digits(self.lower, ROUND_FLOOR), self._digits(self.upper, ROUND_CEILING)

    @property
    def _of_all_theta(self) -> str:
        """What is known of the stated problem where the bounds are those of another, or no bounds; else empty."""
        if self.scope == FULL or self.solver:
            return ""
        if self.of_terms is None:
            return "no bound for every θ"
        side, outward = ("most", ROUND_CEILING) if self.maximize else ("least", ROUND_FLOOR)
        bound = float(Context(4, outward).create_decimal(self.of_terms))
        return f"for every θ at {side} {bound:.4g}"

    def _of_no_unit(self) -> str:
        """Why there is no relative gap beside a finite one; empty where there is one."""
        if isfinite(self.relative_gap) or not isfinite(self.absolute_gap):
            return ""
        return "no relative one: " + ("the optimum is 0" if self.at_zero is None else "no θ improves on θ = 0")

    def _of_rounding(self) -> str:
        """How much of the gap is an allowance for rounding, where that is half of it or more."""
        gap = self.absolute_gap
        if not isfinite(gap) or self.relative_gap <= TOLD or self.rounding < MUCH * gap:
            return ""
        share = min(round(100 * self.rounding / gap), 100)
        return f"{'all' if share == 100 else f'{share} %'} of it an allowance for rounding"

    def _repr_html_(self) -> str:
        low, high = self.interval
        rows = [
            ("optimum in", f"[{low}, {high}]"),
            ("relative gap", self._of_no_unit() or f"{self.relative_gap:.1e}"),
            ("absolute gap", f"{self.absolute_gap:.1e}"),
            *([("of the gap", told)] if (told := self._of_rounding()) else []),
            ("scope", f"{self.scope}: {self.solver}, not proven" if self.solver else self.scope),
            *(("rank", f"{rank} of {n}") for rank, n in self.ranks),
            *(("assumed", assumption) for assumption in self.assumptions),
            *(("rests on", told) for told in self.rests_on),
            *([("stated problem", self._of_all_theta)] if self._of_all_theta else []),
        ]
        return table(rows, left=True)

    def _digits(self, bound: float, outward: str) -> str:
        """A bound rounded outward to as many digits as are needed to show the gap."""
        gap = self.absolute_gap
        if not isfinite(bound):
            return f"{bound}"
        if not isfinite(gap) or gap <= 0 or bound == 0:
            return f"{bound:.10g}"
        digits = int(np.clip(2 - np.floor(log10(gap / abs(bound))), 2, 16))
        return f"{float(Context(digits, outward).create_decimal(bound)):.{digits}g}"


def in_rationals(known: Certificate, proof: Proof, value: float, constant: float) -> Certificate:
    """A certificate with the bounds of a proof in exact arithmetic, where they hold for the answer.

    A bound of terms alone, which takes no multipliers, stays where it is better.
    value, constant : the objective at the answer, and the constant that gaps leave out
    """
    of_value = 0 if known.maximize else 1  # that side is no bound where the point violates constraints
    proven = {side: end for side, end in enumerate(proof.exact) if end is not None}
    of_terms = proven[1 - of_value] if known.of_terms is None else Fraction(known.of_terms)
    if (of_terms < proven[1]) if known.maximize else (of_terms > proven[0]):
        del proven[1 - of_value]
    if proof.violation:
        proven.pop(of_value, None)

    def ends(one: Certificate, shift: float) -> tuple[float, float]:
        low, high = (
            rounded(proven[side] - Fraction(shift), side == 1) if side in proven else end
            for side, end in enumerate((one.lower, one.upper))
        )
        return low, high

    def changed(one: Certificate, low: float, high: float, bare: Certificate | None) -> Certificate:
        return replace(one, lower=low, upper=high, bare=bare, rounding=0.0, rests_on=told, scope=FULL)

    kept = [fact for fact in known.rests_on if fact in proof.rests_on]
    sides = [f"the {name} bound {IN_RATIONALS}" for side, name in enumerate(("lower", "upper")) if side in proven]
    told = tuple(dict.fromkeys([*kept, *proof.rests_on, *([IN_RATIONALS] if len(sides) == 2 else sides)]))
    bare = None if known.bare is None else changed(known.bare, *ends(known.bare, constant), None)
    low, high = ends(known, 0.0)
    return changed(known, min(low, value), max(high, value), bare)
