"""Compare a reduced problem with the stated one, and put differences into sentences.

With the enclosures [l, u] of the stated optimum and [l′, u′] of the reduced one, and the tolerance δ = tol·unit, the
optima agree where max(u, u′) − min(l, l′) ≤ δ, and differ where l′ − u > δ or l − u′ > δ.
"""

from __future__ import annotations

from math import isfinite, nan

import cvxpy as cp

from kernelopt.equivalence import by_function, counterexamples, reduced_optimum
from kernelopt.equivalence.counterexamples import BothAnswers
from kernelopt.equivalence.meanings import Meaning
from kernelopt.equivalence.reduction_report import Counterexample, Enclosure, ReductionReport, plural
from kernelopt.problem import Problem

FINER = 0.1  # of tol: the gap that both problems are solved to


def compare(stated: Problem, reduced: cp.Problem, meaning: Meaning | None, tol: float, dual: bool) -> ReductionReport:
    """The report; values of the user's objects are not restored."""
    found = _solved(stated, reduced, tol)
    same = _agree(found.stated, found.reduced, tol * found.unit)
    is_proven = found.stated.is_proven and found.reduced.is_proven
    told, examples = list[str](), list[Counterexample]()
    if same is False and is_proven:
        told, examples = counterexamples.of_optima(stated, reduced, meaning, found, dual)
    attained = None
    if meaning is not None and found.reduced_values is not None:
        attained, sentences, own = counterexamples.at_answer(stated, reduced, meaning, found, tol)
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
