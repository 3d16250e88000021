"""The answer of one problem in the terms of the other one, where the optima differ.

θ̂ is lost where the reduced optimum is worse: the reduced problem refuses its coefficients, makes more of them, or has
none. A value is invented where the reduced optimum is better: the function that the reduced answer means has another
stated objective, or violates a stated constraint.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite, isnan
from typing import Any, NamedTuple

import cvxpy as cp

from kernelopt.compiler.residuals import FEASIBLE
from kernelopt.equivalence import pointwise
from kernelopt.equivalence.meanings import Meaning
from kernelopt.equivalence.pointwise import BEYOND
from kernelopt.equivalence.reduction_report import Counterexample, Enclosure, numbers
from kernelopt.language.functions import Function
from kernelopt.problem import Problem

ATTAINED = 10.0  # of tol: what the value of the reduced answer's function may miss, since an answer is one to its gap
CLEARLY = 0.1  # of a violation: one that counts as none beside it
CLEAR = 1e-3  # of the unit: a value that misses the optimum by more is another one; in between nothing is decided


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


def of_optima(
    stated: Problem, reduced: cp.Problem, meaning: Meaning | None, found: BothAnswers, dual: bool
) -> tuple[list[str], list[Counterexample]]:
    """What is known of two optima that differ, beside the function of the reduced answer."""
    s, r, sign = found.stated, found.reduced, sign_of(stated)
    if dual:
        return [_of_dual(s, r, sign)], []
    if r.lower > s.upper if sign > 0 else r.upper < s.lower:
        sentence, example = _lost(stated, reduced, meaning, found, sign)
        return [sentence], [example]
    sentence = _invented(s, r, sign)
    if meaning is None:
        sentence = f"{sentence} Pass functions= to see at which function."
    return [sentence], [] if meaning is not None and found.reduced_values is not None else [Counterexample("invented")]


def sign_of(stated: Problem) -> float:
    """1 for a problem that minimizes, −1 for one that maximizes."""
    return -1.0 if isinstance(stated.objective, cp.Maximize) else 1.0


def _lost(
    stated: Problem, reduced: cp.Problem, meaning: Meaning | None, found: BothAnswers, sign: float
) -> tuple[str, Counterexample]:
    """θ̂ has a value that the reduced problem does not reach; with its coefficients, what the reduced problem makes of
    it."""
    s, r = found.stated, found.reduced
    side = "above" if sign > 0 else "below"
    if found.functions is None:
        return f"The stated problem is {s.status}, and the reduced optimum is {side} it.", Counterexample("lost")
    own = pointwise.stated_at(stated, found.functions, found.values)
    value = s.upper if sign > 0 else s.lower
    there, optimum = numbers(value, r.lower if sign > 0 else r.upper)
    head = f"The reduced problem loses the stated answer: θ̂ has the value {there}, and "
    head += f"the reduced optimum is {optimum}." if isfinite(r.lower) else f"the reduced problem is {r.status}."
    if meaning is None:
        return head, Counterexample("lost", found.functions, own)
    values = meaning.inverse(found.functions, found.values)
    at_theta = pointwise.reduced_at(reduced, values)
    example = Counterexample("lost", found.functions, own, at_theta)
    if at_theta is None:
        return head, example
    if at_theta.violation > FEASIBLE:
        what = f"violates `{at_theta.broken}` by {at_theta.amount:.3g}" if at_theta.broken else "is not feasible"
        return f"{head} At the coefficients nearest to θ̂ it {what}.", example
    return f"{head} At the coefficients nearest to θ̂ its objective is {numbers(at_theta.value)[0]}.", example


def at_answer(
    stated: Problem, reduced: cp.Problem, meaning: Meaning, found: BothAnswers, tol: float
) -> tuple[bool | None, list[str], list[Counterexample]]:
    """Whether the function of the reduced answer attains the stated optimum, and what it misses."""
    assert found.reduced_values is not None
    pointwise.place(found.reduced_values)
    sign, there = sign_of(stated), pointwise.at_present(reduced)
    functions, values = meaning.functions(), meaning.values()
    own = pointwise.stated_at(stated, functions, values)
    if own is None or there.violation > FEASIBLE:
        return None, [], []
    example = Counterexample("invented", functions, own, there)
    if own.violation > BEYOND and there.amount > CLEARLY * own.amount:  # small beside coefficients that cancel only
        return None, [], []
    if own.violation > BEYOND:
        what = f"violates `{own.broken}` by {own.amount:.3g}" if own.broken else "is not feasible"
        return False, [f"The function of the reduced answer {what} in the stated problem."], [example]
    best = found.stated.upper if sign > 0 else found.stated.lower
    missed = sign * (own.value - best)
    if not isfinite(best) or isnan(missed) or missed <= ATTAINED * tol * found.unit:
        return (True if isfinite(best) else None), [], []
    at, claimed, optimum = numbers(own.value, there.value, best)
    sentence = f"At the reduced answer both objectives are {at}; the stated optimum is {optimum}."
    if abs(own.value - there.value) > tol * found.unit:
        sentence = (
            f"The function of the reduced answer has the stated objective {at}; the reduced objective there is "
            f"{claimed}, and the stated optimum is {optimum}."
        )
    return (False if missed > CLEAR * found.unit else None), [sentence], [example]


def _invented(s: Enclosure, r: Enclosure, sign: float) -> str:
    """What is known of a reduced optimum that is better than the stated one."""
    bound, value = numbers(s.lower if sign > 0 else s.upper, r.upper if sign > 0 else r.lower)
    if not isfinite(r.lower) and not isfinite(r.upper):
        return f"The reduced problem is {r.status}, and the stated one is not."
    if not isfinite(s.lower) and not isfinite(s.upper):
        return f"The stated problem is {s.status}, and the reduced optimum is {value}."
    return f"The reduced optimum is {value}, and no θ has a value {'below' if sign > 0 else 'above'} {bound}."


def _of_dual(s: Enclosure, r: Enclosure, sign: float) -> str:
    """Weak duality fails, or there is a duality gap."""
    if sign * (r.lower + r.upper) > sign * (s.lower + s.upper):
        return (
            "Weak duality fails: the dual optimum is better than the stated one. The dual lacks a constraint, such as "
            "yᵀα = 0 beside an intercept, or has one that is too loose, or a term that is too small."
        )
    return (
        "A gap is left between the dual and the stated optimum: the dual has a constraint that is too tight, or a term "
        "that is too large."
    )
