"""What a small problem's answer is in truth: the stated expressions in 76 digits, and its optimum to 20 or more.

`value(problem)` evaluates the statement at the returned θ and variables, `optimum(problem)` encloses the optimum by
weak duality, `check(problem)` lists what an answer and its certificate say wrongly. The library's forms are not read:
trees are walked by `exact.py`, and the cone program is solved by `interior.py`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import cvxpy as cp
import numpy as np
from exact import (
    DIGITS,
    NUMBERS,
    ZERO,
    At,
    ConeData,
    Forms,
    Found,
    InfeasibleError,
    Unknowns,
    Walk,
    affine,
    constraint_rows,
    digits,
    nodes_of,
    outside,
    value_at,
)
from interior import CONES, solve

VALUE = Decimal("1e-12")  # rounding that a value may have, relative to the terms of the objective; bounds have none
ZERO_OF = Decimal("1e-20")  # of the data's size: what a value of 0 may be, powers of rounding errors
# Violation of a constraint that an "optimal" answer may have without a word, relative to the terms of its row.
VIOLATION = Decimal("1e-9")
SMALL = Decimal(40)  # e⁻⁴⁰ is above 1e-20, so that a value that is known there is no limit at infinity
REACHED = Decimal(10**4)  # an optimum with smaller numbers than that is attained
EXACT = Decimal("1e-30")  # relative: what the arithmetic here leaves


@dataclass(frozen=True)
class Value:
    """The stated objective at a point, the sizes of its terms added up, and the violation of each constraint.

    violations : for each stated constraint its largest violation, in its own units; relative : of the terms of the row
    """

    objective: Decimal
    terms: Decimal
    violations: tuple[Decimal, ...]
    relative: tuple[Decimal, ...]


@dataclass(frozen=True)
class Enclosure:
    """lower ≤ optimum ≤ upper of the stated problem.

    terms, variables, size : of the point that attains the end: the terms of its objective added up, the values of the
    user's variables by id, and the largest unknown of the cone program. unit : the size of the objective's data.
    exponential : whether some cone is exponential, so that an infimum is approached faster than any power.
    """

    lower: Decimal
    upper: Decimal
    terms: Decimal
    iterations: int
    variables: dict[int, Any]
    size: Decimal
    unit: Decimal
    exponential: bool = False

    @property
    def gap(self):
        return self.upper - self.lower

    @property
    def closed(self):
        """Whether the bounds agree to 15 digits."""
        if not (self.lower.is_finite() and self.upper.is_finite()):
            return False
        return self.gap <= max(abs(self.upper), abs(self.lower)) * Decimal("1e-15")

    @property
    def known(self):
        """Whether they do, or to 20 digits of the data's size where the optimum is 0; it may not be attained."""
        return self.closed or self.gap <= self.unit * ZERO_OF

    @property
    def word(self):
        """ "optimal", "infimum" (0, and approached by ever larger numbers) or "unknown"."""
        if self.closed or (self.known and self.size < (SMALL if self.exponential else REACHED)):
            return "optimal"
        return "infimum" if self.known else "unknown"


def value(problem, place=None, precision=DIGITS):
    """The `Value` of a solved problem at its θ and variables, which are taken as exact numbers."""
    with digits(precision):
        walk = Walk(place or Found(problem), NUMBERS)
        objective = walk(problem.objective.args[0]).item()
        terms = walk.terms(problem.objective.args[0]).item()
        violations, relative = [], []
        for constraint in problem.constraints:
            misses = [outside(name, row) for name, row in constraint_rows(walk, constraint)]
            worst = max(misses, default=ZERO)
            sizes = [max((abs(t) for t in _terms(walk, a).ravel()), default=ZERO) for a in constraint.args]
            violations.append(worst)
            relative.append(worst / max(sizes) if worst else ZERO)
        return Value(objective, terms, tuple(violations), tuple(relative))


def _terms(walk, side):
    """The sizes of what a side of a constraint adds up: of |a| that of a, which rounding of a is relative to."""
    return walk.terms(side.args[0] if type(side).__name__ == "abs" else side)


def optimum(problem, *, choices=None, at_zero=False, accuracy="1e-24", precision=DIGITS):
    """An `Enclosure` of the optimum of a stated problem.

    `choices` lists values of integer variables, {variable: value}, of which the best counts; boolean ones are
    enumerated. With `at_zero` θ is 0. Raises UnsupportedError for what has no row in the tables, InfeasibleError where
    constants contradict each other; where there is no optimum the bounds stay apart.
    """
    with digits(precision):
        found = []
        for fixed in choices or _booleans(problem):
            try:
                found.append(_continuous(problem, fixed, at_zero, Decimal(accuracy), precision))
            except InfeasibleError:
                continue
        if not found:
            raise InfeasibleError("every choice of integers")
        if isinstance(problem.objective, cp.Maximize):
            return replace(max(found, key=lambda e: e.lower), upper=max(e.upper for e in found))
        return replace(min(found, key=lambda e: e.upper), lower=min(e.lower for e in found))


def _booleans(problem):
    """All values of boolean variables."""
    variables = [v for v in problem.variables() if v.attributes.get("boolean")]
    for bits in itertools.product((0.0, 1.0), repeat=sum(v.size for v in variables)):
        numbers = iter(bits)
        yield {v: np.reshape([next(numbers) for _ in range(v.size)], v.shape) for v in variables}


def _sign(problem):
    return -1 if isinstance(problem.objective, cp.Maximize) else 1


def _continuous(problem, fixed, at_zero, accuracy, precision):
    data = ConeData()
    unknowns = Unknowns(data, nodes_of(problem), fixed, at_zero, Decimal(f"1e-{precision - 12}"))
    sign = _sign(problem)
    if not data.n and not problem.variables():
        return _at_one_point(problem, unknowns, precision)
    walk = Walk(unknowns, Forms(data))
    objective = affine(walk(problem.objective.args[0]).item()) * Decimal(sign)
    for constraint in problem.constraints:
        for name, row in constraint_rows(walk, constraint):
            data.require(name, *row)
    point = solve(data, objective, accuracy)
    lower = _lower(data, objective, point)
    attained = value(problem, At(unknowns, point.x), precision)
    upper = sign * attained.objective
    # Equalities hold up to rounding: what they may still move the optimum by, to first order in the multipliers.
    for (name, entries), z in _pairs(data, point):
        if name == "zero":
            upper += abs(z[0] * value_at(entries[0], point.x))
    if max(attained.relative, default=ZERO) > EXACT:
        upper = Decimal("Infinity")
    variables = {i: At(unknowns, point.x)._values(entries) for i, entries in unknowns.variables.items()}
    low, high = (lower, upper) if sign > 0 else (-upper, -lower)
    size = max((abs(e) for e in point.x), default=ZERO)
    exponential = any(name == "exp" for name, _ in data.cones)
    return Enclosure(low, high, attained.terms, point.iterations, variables, size, point.unit, exponential)


def _at_one_point(problem, unknowns, precision):
    """Where nothing is unknown."""
    attained = value(problem, At(unknowns, []), precision)
    if max(attained.relative, default=ZERO) > EXACT:
        raise InfeasibleError("a point without unknowns")
    known = attained.objective
    return Enclosure(known, known, attained.terms, 0, {}, ZERO, abs(known))


def _pairs(data, point):
    return zip(data.cones, point.z, strict=True)


def _lower(data, objective, point):
    """cᵀx ≥ −hᵀz − fᵀy + (c − Gᵀz − Eᵀy)ᵀx for z ∈ K*, −∞ where the residual is more than rounding.

    A residual of rounding, 1e-30 of its terms or of the largest cost, is charged at 10⁶ times the largest number of x.
    """
    residual, sizes = dict(objective.terms), {j: abs(a) for j, a in objective.terms.items()}
    bound = objective.constant
    for (name, entries), z in _pairs(data, point):
        if name != "zero" and not CONES[name].dual_inside(z):
            return Decimal("-Infinity")
        for entry, multiplier in zip(entries, z, strict=True):
            bound -= multiplier * entry.constant
            for j, a in entry.terms.items():
                residual[j] = residual.get(j, ZERO) - multiplier * a
                sizes[j] = sizes.get(j, ZERO) + abs(multiplier * a)
    cost = max((abs(a) for a in objective.terms.values()), default=ZERO)
    if any(abs(r) > EXACT * (sizes[j] + cost) for j, r in residual.items()):
        return Decimal("-Infinity")
    largest = max((abs(x) for x in point.x), default=ZERO)
    return bound - sum((abs(r) for r in residual.values()), ZERO) * largest * 10**6


def check(problem, tol=1e-6, truth=None, statement=None, choices=None):
    """Disagreements of a solved problem's status, value and certificate with the truth, as sentences.

    `truth` is an `Enclosure` found before; `statement` is a problem that stands for this one, with its θ and variables
    at the same values (the twin of a `SmoothLoss` in atoms).
    """
    statement = statement or problem
    with digits():
        truth = truth or optimum(statement, choices=choices)
        answer = _answer_is_wrong(problem, statement, truth, Decimal(tol), choices)
        return [*_certificate_is_wrong(problem, truth), *answer]


def _certificate_is_wrong(problem, truth):
    found = problem.certificate
    if found is None or found.scope != "full kernel" or found.assumptions or "as computed" in str(found):
        return
    slack = EXACT * truth.terms
    if Decimal(float(found.lower)) > truth.upper + slack:
        by = float(Decimal(float(found.lower)) - truth.upper)
        yield f"lower bound {found.lower!r} above the optimum {float(truth.upper)!r} by {by:.1e}"
    if found.is_feasible and Decimal(float(found.upper)) < truth.lower - slack:
        by = float(truth.lower - Decimal(float(found.upper)))
        yield f"upper bound {found.upper!r} below the optimum {float(truth.lower)!r} by {by:.1e}"


def _answer_is_wrong(problem, statement, truth, tol, choices):
    status, sign = str(problem.status), _sign(problem)
    feasible, bounded = (truth.upper, truth.lower) if sign > 0 else (truth.lower, truth.upper)
    if status == "infeasible" and feasible.is_finite():
        yield f"infeasible, but {float(feasible)!r} is attained"
    if status == "unbounded" and bounded.is_finite():
        yield f"unbounded, but {float(bounded)!r} is a bound"
    if status == "not_attained" and truth.closed and truth.size < SMALL:
        yield f"not_attained, but {float(feasible)!r} is, with numbers up to {float(truth.size):.1g}"
    if status != "optimal":
        return
    found, slack = problem.certificate, VALUE * truth.terms + ZERO_OF * truth.unit
    reached = Decimal(float(problem.value))
    allowed = tol * _improvement(statement, truth, choices) + slack
    if found is None or found.solver:  # integers: the solver's word, relative to the value
        allowed = max(allowed, tol * truth.terms)
    elif "as computed" in str(found):  # of another kernel matrix
        allowed = max(allowed, Decimal(float(found.unit)) * Decimal("1e-4"), Decimal(float(found.floor)))
    else:
        allowed = max(allowed, Decimal(float(found.absolute_gap)))  # which closes by another rule, and is told
    excess = max(reached - truth.upper, truth.lower - reached)
    if excess > allowed:
        yield f"optimal at {problem.value!r}, but the optimum is {float(truth.upper)!r}: {float(excess):.1e} off"
    if found is not None:
        end = found.lower if sign > 0 else found.upper
        if sign * (reached - Decimal(float(end))) < 0:
            yield f"the value {problem.value!r} lies beyond the bound {end!r}"
    attained = value(statement)
    worst = max(attained.relative, default=ZERO)
    said = found is not None and (bool(found.assumptions) or found.widened > 0)
    if worst > VIOLATION and not said:
        size = float(max(attained.violations))
        yield f"optimal, but a constraint is violated by {size:.1e}, {float(worst):.1e} of its terms"
    difference = abs(attained.objective - reached)
    if not difference <= max(allowed, VALUE * attained.terms):  # also where the optimum itself is not known
        yield f"the value {problem.value!r} is {float(difference):.1e} off that of theta.value"


def _improvement(problem, truth, choices):
    """P₀ − P to some digits, or |P| where θ = 0 is infeasible."""
    try:
        zero = optimum(problem, choices=choices, at_zero=True, accuracy="1e-4")
    except InfeasibleError:
        return abs(truth.upper)
    middle = zero.upper if _sign(problem) > 0 else zero.lower
    if not middle.is_finite() or zero.gap > abs(middle) + truth.terms:
        return abs(truth.upper)
    return abs(middle - truth.upper)
