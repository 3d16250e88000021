"""Compare a reduced problem with the stated one, and put differences into sentences.

With the enclosures [l, u] of the stated optimum and [l′, u′] of the reduced one, and the tolerance δ = tol·unit, the
optima agree where max(u, u′) − min(l, l′) ≤ δ, and differ where l′ − u > δ or l − u′ > δ.

Where they differ, θ̂ is lost if the reduced optimum is worse: the reduced problem refuses its coefficients, makes more
of them, or has none. A value is invented if the reduced optimum is better: the function that the reduced answer means
has another stated objective, or violates a stated constraint.
"""

from __future__ import annotations

from math import isfinite, isnan, nan

import cvxpy as cp

from kernelopt.compiler.residuals import FEASIBLE
from kernelopt.equivalence import by_function, pointwise, reduced_optimum
from kernelopt.equivalence.by_function import CLEARLY
from kernelopt.equivalence.meanings import Meaning
from kernelopt.equivalence.pointwise import BEYOND
from kernelopt.equivalence.reduction_report import (
    BothAnswers,
    Counterexample,
    Enclosure,
    ReductionReport,
    numbers,
    plural,
)
from kernelopt.problem import Problem

FINER = 0.1  # of tol: the gap that both problems are solved to
ATTAINED = 10.0  # of tol: what the value of the reduced answer's function may miss, since an answer is one to its gap
CLEAR = 1e-3  # of the unit: a value that misses the optimum by more is another one; in between nothing is decided


def compare(stated: Problem, reduced: cp.Problem, meaning: Meaning | None, tol: float, dual: bool) -> ReductionReport:
    """The report; values of the user's objects are not restored."""
    found = _solved(stated, reduced, tol)
    same = _agree(found.stated, found.reduced, tol * found.unit)
    is_proven = found.stated.is_proven and found.reduced.is_proven
    told, examples = list[str](), list[Counterexample]()
    if same is False and is_proven:
        told, examples = _of_optima(stated, reduced, meaning, found, dual)
    attained = None
    if meaning is not None and found.reduced_values is not None:
        attained, sentences, own = _at_answer(stated, reduced, meaning, found, tol)
        told, examples = [*told, *sentences], [*examples, *own]
    pairs = [] if meaning is None or dual else by_function.pairs(stated, reduced, meaning, found)
    differing = [pair for pair in pairs if pair.differs(tol)]
    if differing:
        told += by_function.told(stated, reduced, pairs, tol, " ".join(told))
        examples.append(Counterexample("objective", differing[0].functions, differing[0].stated, differing[0].reduced))
    is_compared = bool(pairs) or ((meaning is None or dual) and isfinite(found.stated.lower))
    verdict = _verdict(same if is_proven else None, attained, bool(differing), is_compared)
    told += _agreement(verdict, same, attained, len(pairs), found, tol)
    if same is not False and meaning is None:
        told.append("Functions were not compared: pass functions= to compare them.")
    elif same is not False and not pairs and not dual:
        told.append("Functions were not compared: at none of them the best values of the other variables are known.")
    return ReductionReport(
        verdict, found.stated, found.reduced, _difference(found.stated, found.reduced), tol, found.unit, found.of,
        tuple(told), tuple(examples), len(pairs),
    )  # fmt: skip


def _solved(stated: Problem, reduced: cp.Problem, tol: float) -> BothAnswers:
    """Solve twins of both problems."""
    twin = Problem(stated.objective, stated.constraints)
    s = reduced_optimum.of_certificate(twin, FINER * tol)
    known = {theta: theta.value for theta in twin.thetas() if theta.value is not None}
    functions = known if len(known) == len(twin.thetas()) else None
    values = {v: v.value for v in twin.variables()}
    unit, of = _unit(twin)
    r, own = reduced_optimum.enclosed(reduced, FINER * tol, tol * unit)
    return BothAnswers(s, r, unit, of, functions, values, own)


def _unit(solved: Problem) -> tuple[float, str]:
    """The unit of the certificate's relative gap, and what it is; 1 for a problem without an optimum."""
    certificate = solved.certificate
    if certificate is None:
        return 1.0, "1"
    if isfinite(certificate.unit) and certificate.unit > 0:
        return certificate.unit, "P₀ − P" if certificate.at_zero is not None else "the optimum"
    if isfinite(certificate.terms) and certificate.terms > 0:
        return certificate.terms, "the objective's terms"
    return 1.0, "1"


def _agree(s: Enclosure, r: Enclosure, allowed: float) -> bool | None:
    """Whether the optima agree; None where the bounds don't tell."""
    if s.lower == s.upper == r.lower == r.upper:
        return True
    if r.lower - s.upper > allowed or s.lower - r.upper > allowed:
        return False
    if not s.is_known or not r.is_known:
        return None
    return True if max(s.upper, r.upper) - min(s.lower, r.lower) <= allowed else None


def _difference(s: Enclosure, r: Enclosure) -> float:
    if not s.is_known or not r.is_known:
        return nan
    a, b = (e.lower if e.lower == e.upper else (e.lower + e.upper) / 2 for e in (s, r))
    return b - a if isfinite(a) or isfinite(b) else nan


def _verdict(same: bool | None, attained: bool | None, differs: bool, is_compared: bool) -> bool | None:
    """False by proven optima that differ, or a function that misses one; True where numbers agree, too.

    same : of proven optima; is_compared : whether numbers were compared: a finite optimum, or functions
    """
    if same is not True or attained is False:
        return None if same is None else False
    return None if differs or not is_compared else True


def _agreement(  # noqa: PLR0917
    verdict: bool | None, same: bool | None, attained: bool | None, tried: int, found: BothAnswers, tol: float
) -> list[str]:  # fmt: skip
    """What agrees, or why nothing is decided."""
    s, r = found.stated, found.reduced
    if same is None:
        open_ones = [side.width > tol * found.unit for side in (s, r)]
        of = {(True, False): "the stated", (False, True): "the reduced"}.get((open_ones[0], open_ones[1]), "each")
        return [f"The bounds of {of} optimum are too far apart to compare the optima to {tol:.0e} of {found.of}."]
    if not s.is_proven or not r.is_proven:
        of, source = ("stated", s.source) if not s.is_proven else ("reduced", r.source)
        agree = f"agree to {tol:.0e} of {found.of}" if same else "differ"
        return [f"The optima {agree}, but the {of} one is not certain: {source}."]
    if same is False:
        return []
    if s.lower == s.upper and not isfinite(s.lower):
        alone = "" if tried else " That alone does not make them equivalent."
        return [f"Neither has an optimum: the stated problem is {s.status}, the reduced one {r.status}.{alone}"]
    told = f"The optima agree to {tol:.0e} of {found.of}"
    if verdict is False:
        return [f"{told}, but the reduced answer does not mean an answer of the stated problem."]
    if verdict is None:
        return [f"{told} on these data. On others they may not, since the problems differ at other functions."]
    told += ", and the function of the reduced answer attains the stated one" if attained else ""
    told += f"; the problems agree at {plural(tried, 'function')}" if tried else ""
    return [f"{told}."]


# ------------------------------------------------------------ one answer in the terms of the other problem


def _of_optima(
    stated: Problem, reduced: cp.Problem, meaning: Meaning | None, found: BothAnswers, dual: bool
) -> tuple[list[str], list[Counterexample]]:
    """What is known of two optima that differ, beside the function of the reduced answer."""
    s, r, sign = found.stated, found.reduced, _sign_of(stated)
    if dual:
        return [_of_dual(s, r, sign)], []
    if r.lower > s.upper if sign > 0 else r.upper < s.lower:
        sentence, example = _lost(stated, reduced, meaning, found, sign)
        return [sentence], [example]
    sentence = _invented(s, r, sign)
    if meaning is None:
        sentence = f"{sentence} Pass functions= to see at which function."
    return [sentence], [] if meaning is not None and found.reduced_values is not None else [Counterexample("invented")]


def _sign_of(stated: Problem) -> float:
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


def _at_answer(
    stated: Problem, reduced: cp.Problem, meaning: Meaning, found: BothAnswers, tol: float
) -> tuple[bool | None, list[str], list[Counterexample]]:
    """Whether the function of the reduced answer attains the stated optimum, and what it misses."""
    assert found.reduced_values is not None
    pointwise.place(found.reduced_values)
    sign, there = _sign_of(stated), pointwise.at_present(reduced)
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
