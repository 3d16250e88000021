"""Bounds of an answer in exact arithmetic, and the status that they decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module

from kernelopt.certificate import AS_COMPUTED, Certificate
from kernelopt.certificate.all_rows import rows_near
from kernelopt.certificate.report import IN_RATIONALS, in_rationals
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.outer import Outer
from kernelopt.compiler.representer import Reduction
from kernelopt.errors import KernelOptError, OptionError
from kernelopt.persistence.proofs import Proof
from kernelopt.results.solution import Solution, Status

EXACT, MOST = "exact", 2000  # the option, and distinct rows for which it takes half a minute at most


def require(outer: Outer | None, is_convex: bool, rows: int) -> None:
    """Raise OptionError for problems that `certify="exact"` does not take."""
    if outer is None or not is_convex or rows > MOST:
        what = f"{rows} rows" if rows > MOST else "another one"
        raise OptionError(
            f"Expected a convex problem without integers, of at most {MOST} distinct rows, for certify={EXACT!r}; got "
            f"{what}. Write certify=True."
        )


def proof(
    reduction: Reduction, outer: Outer | None, point: Iterate, certificate: Certificate, text: Sequence[str]
) -> Proof:
    """The proof of an answer's bounds; see `Certificate.exact`. text : the stated problem, as lines"""
    known = certificate.evidence
    if certificate.solver or outer is None or outer.pieces is None or known is None:
        raise KernelOptError(
            "Expected a convex problem without integers, with a lower bound that multipliers prove; a solver's word "
            "has no proof. Solve with certify=True."
        )
    rows = known.rows if known.rows is not None else rows_near(reduction, outer.pieces, point)
    if rows is None:
        raise KernelOptError("Expected the multipliers of all rows; those of this answer are not known. Solve again.")
    facts = tuple(fact for fact in certificate.rests_on if fact != AS_COMPUTED and IN_RATIONALS not in fact)
    constant = outer.sign * reduction.form.constant
    known_end = certificate.upper if certificate.maximize else certificate.lower
    proof_file = import_module("kernelopt.certificate.proof_file")  # with `kernelopt.check`, which may run as a script
    told = proof_file.Wording(
        tuple(text), outer.sign < 0, constant, certificate.absolute_gap, facts, known_end == certificate.of_terms
    )
    found: Proof = proof_file.written(reduction, outer.pieces, point, rows, told)
    return found


def decided(solution: Solution, constant: float, tol: float, abs_tol: float | None) -> Solution:
    """A solution with value and bounds as its certificate proves them in exact arithmetic, and the status by them."""
    known: Certificate = solution.certificate
    proof = known.exact()
    attained = proof.exact[0 if known.maximize else 1]
    value = solution.value if attained is None or proof.violation else float(attained)
    assert value is not None
    found = in_rationals(known, proof, value, constant)
    closed = found.closes(tol, abs_tol) and found.is_feasible and not found.assumptions
    is_open = solution.status in {Status.OPTIMAL, Status.OPTIMAL_INACCURATE}
    status = Status.OPTIMAL if closed else Status.OPTIMAL_INACCURATE
    return replace(solution, value=value, certificate=found, status=status if is_open else solution.status)
