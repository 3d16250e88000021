"""The result of a comparison of a reduced problem with the stated one: both optima, and where they differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isfinite
from textwrap import wrap
from typing import Any, NamedTuple

import cvxpy as cp

from kernelopt.language.expressions import Theta
from kernelopt.language.functions import Function
from kernelopt.support.html import table

LABEL, WIDTH = 13, 106  # characters: of the column of labels, and of the text beside it


@dataclass(frozen=True)
class Enclosure:
    """What is known of an optimum: it lies in [lower, upper]; both are ∞ or −∞ for infeasible and unbounded problems.

    Attributes
    ----------
    lower, upper : float
    status : str
        "optimal", "infeasible", "unbounded", or another status of `problem.status` where the optimum is not known.
    is_proven : bool
        Whether a certificate proves the bounds, or a Farkas vector or a ray the status; else they are a solver's word,
        rest on an assumption, or are not known.
    source : str
        What the bounds come from.
    """

    lower: float
    upper: float
    status: str
    is_proven: bool
    source: str

    @property
    def is_known(self) -> bool:
        return (isfinite(self.lower) and isfinite(self.upper)) or self.lower == self.upper

    @property
    def width(self) -> float:
        return 0.0 if self.lower == self.upper else self.upper - self.lower

    def is_apart(self, other: Enclosure) -> bool:
        """Whether the two optima are certainly different."""
        return self.lower > other.upper or other.lower > self.upper

    def __str__(self) -> str:
        if self.lower == self.upper and not isfinite(self.lower):
            return f"{self.status}, {self.source}"
        low, high = numbers(self.lower, self.upper)
        return f"optimum {low}, {self.source}" if low == high else f"optimum in [{low}, {high}], {self.source}"


@dataclass(frozen=True)
class PointValue:
    """An objective at a point: its terms, the largest violation relative to a constraint's terms, and that constraint.

    broken, amount : the constraint that is violated most, as text, and by how much in its own units
    """

    value: float
    terms: tuple[float, ...] = ()
    violation: float = 0.0
    broken: str = ""
    amount: float = 0.0


@dataclass(frozen=True, eq=False)
class Counterexample:
    """A point at which the two problems differ.

    Attributes
    ----------
    kind : str
        "lost": the stated problem's answer, whose value the reduced problem does not reach; "invented": the reduced
        problem's answer, whose value the function that it means does not have, or has outside of the constraints;
        "objective": functions at which the two objectives, or constraints, differ.
    functions : mapping of θ to Function
        The functions there; empty where it is not known which functions the reduced variables mean.
    stated, reduced : PointValue or None
        Both objectives there; None where one is not known.
    """

    kind: str
    functions: Mapping[Theta, Function] = field(default_factory=dict)
    stated: PointValue | None = None
    reduced: PointValue | None = None


class BothAnswers(NamedTuple):
    """Both optima, what tol is relative to, θ̂ and ŷ of the stated problem and the values x̂ of the reduced one; the
    functions and x̂ are None without an answer."""

    stated: Enclosure
    reduced: Enclosure
    unit: float
    of: str
    functions: Mapping[Any, Function] | None
    values: Mapping[cp.Variable, Any]
    reduced_values: Mapping[cp.Variable, Any] | None


@dataclass(frozen=True, eq=False)
class ReductionReport:
    """What `ko.verify_reduction` found; prints as a table.

    Attributes
    ----------
    is_equivalent : bool or None
        True: the optima agree to `tol`, and where `functions` was given, the reduced answer's function attains the
        stated optimum and both objectives and constraints agree at all functions that were tried. False: one of the
        first two fails. None: undecided, since bounds are too far apart, the theorem does not cover the stated problem,
        or the optima agree on these data although the objectives differ elsewhere.
    stated, reduced : Enclosure
        The optimum of each problem; None where the theorem does not cover the stated problem.
    difference : float
        The reduced optimum less the stated one, from the middles of the enclosures; NaN where one is not known, and
        where both are infinite.
    tol : float
        The argument of the call.
    unit : float
        What `tol` is relative to, P₀ − P as a rule.
    of : str
        The name of the unit.
    counterexamples : tuple of Counterexample
    functions_tried : int
        The number of functions at which the two objectives were compared.
    findings : tuple of str
        The findings in sentences, as they are printed.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X, y = np.arange(5.0)[:, None], np.array([0.0, 1.0, 0.0, 2.0, 1.0])
    >>> theta, alpha = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(5)
    >>> stated = ko.Problem(cp.Minimize(cp.norm1(y - theta(X)) + ko.sum_squares(theta)))
    >>> objective = cp.norm1(y - theta.kernel(X) @ alpha) + cp.sum_squares(alpha)
    >>> reduced = cp.Problem(cp.Minimize(objective))
    >>> report = ko.verify_reduction(stated, reduced, {theta: alpha})
    >>> report.is_equivalent, report.counterexamples[0].kind, bool(report.difference < 0)
    (False, 'invented', True)
    """

    is_equivalent: bool | None
    stated: Enclosure | None
    reduced: Enclosure | None
    difference: float
    tol: float
    unit: float
    of: str
    findings: tuple[str, ...]
    counterexamples: tuple[Counterexample, ...] = ()
    functions_tried: int = 0

    def _lines(self) -> list[tuple[str, str]]:
        lines = [("stated", str(self.stated))] if self.stated else []
        lines += [("reduced", str(self.reduced))] if self.reduced else []
        large = isfinite(self.difference) and abs(self.difference) > self.tol * self.unit
        if self.stated and self.reduced and large and self.stated.is_apart(self.reduced):
            lines += [("difference", f"{self.difference:.3g}, {abs(self.difference) / self.unit:.1e} of {self.of}")]
        for number, finding in enumerate(self.findings):
            head, *rest = wrap(finding, WIDTH, break_long_words=False)
            lines += [("" if number else "findings", head), *(("", f"    {line}") for line in rest)]
        return [*lines, ("verdict", VERDICTS[self.is_equivalent])]

    def __str__(self) -> str:
        return "\n".join(f"{label:<{LABEL}}{text}".rstrip() for label, text in self._lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return table(self._lines(), left=True)


VERDICTS = {True: "equivalent", False: "not equivalent", None: "undecided"}


def numbers(*values: float) -> list[str]:
    """Values in six digits, or as many more as tell unequal values apart by two digits."""
    finite = [v for v in values if isfinite(v)]
    spread = max(finite, default=0.0) - min(finite, default=0.0)
    size = max((abs(v) for v in finite), default=0.0)
    for digits in (6, 8, 10):
        if spread <= 0 or spread >= 10.0 ** (2 - digits) * size or spread <= 1e-8 * size:
            break
    return [_number(v, digits) for v in values]


def _number(value: float, digits: int) -> str:
    return ("∞" if value > 0 else "−∞") if abs(value) == inf else f"{value:.{digits}g}"


def plural(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
