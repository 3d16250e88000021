"""An attempt with Q itself, before any factor, which takes most of the time for some hundred to some thousand rows.

Squares are one system in kernel space. For losses with kinks, active sets from libsvm's point or from the answer for
other values of parameters, and the proximal point method, need products with Q and a few of its entries. Where libsvm
has no point, that pays only with a flat spectrum, for which a factor has a large share of N columns. An attempt whose
gap stays open is dropped, and the loop over factors begins as if it had not been.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import isfinite, nan

import numpy as np

from kernelopt import certificate as certificates
from kernelopt.compiler import representer, violations
from kernelopt.compiler.canonical_form import CanonicalForm, PredictionLink
from kernelopt.compiler.outer import Outer
from kernelopt.compiler.representer import Reduction
from kernelopt.compiler.residuals import FEASIBLE
from kernelopt.driver import policy
from kernelopt.driver.diagnosis import Diagnosis
from kernelopt.driver.judgement import Candidate, judged
from kernelopt.driver.options import FactorOptions
from kernelopt.driver.strategy import Goal, Outcome, Task
from kernelopt.errors import MemoryLimitError, SolverError
from kernelopt.factorization import AUTO, Factor, memory
from kernelopt.factorization.dense import pivoted_cholesky
from kernelopt.factorization.streamed import streamed_cholesky
from kernelopt.factorization.whole import needed, whole
from kernelopt.results.solution import Attempt, Status
from kernelopt.solvers import choice, engines
from kernelopt.solvers.assemble import shape_of
from kernelopt.solvers.engines import Start
from kernelopt.support import clock

# Rows from which Q itself pays, and up to which its N² numbers take less than a factor that grows to the rank that is
# needed; with a flat spectrum this rank is large.
FEW, MANY, FLAT = 100, 5000, 12_000
# Rows up to which one system with Q takes less than a factor of lower rank and its systems, and those up to which Q is
# factored at once, so that no coarse factor shows how flat the spectrum is.
SQUARES, DENSE = 2000, 2000
NO_MEMORY = "no memory for Q itself"
# A tenth of the rows tells how many columns a factor would have. From these shares of independent rows among them on, Q
# takes less than a factor of about N/5 columns for squares, and of N/20 where libsvm has a point.
SAMPLE, LEAST_OF_SQUARES, LEAST = 10, 0.8, 0.3
ENGINES = ("AUGMENTED_LAGRANGIAN", "LEAST_SQUARES")


class _UndecidedError(Exception):
    """Whether an answer exists is left to solvers with a factor."""


def reason(  # noqa: PLR0917
    form: CanonicalForm, outer: Outer, names: list[str], options: FactorOptions, goal: Goal, flat: str
) -> str:
    """Why the problem is solved with Q itself first, in words; empty where it is not.

    It depends on its engine, rows and kernel, and on the caller's options: whoever asks for a solver, a factorization,
    a rank or θ on few rows gets it. flat : how flat the spectrum is known to be, in words
    """
    if not form.is_convex or goal.certify is not True or len(names) == 1 or goal.own_options:
        return ""
    if options.method != AUTO or options.layout or options.settings.max_rank or not options.functions:
        return ""
    shape, links = shape_of(form, outer), form.predictions
    if shape.lacks is not None or shape.odd is not None or shape.smooth or shape.hard or shape.shifted or shape.maxima:
        return ""
    sizes = [len(link.rows) * (link.theta.outputs or 1) for link in links]
    most = SQUARES if shape.squares else FLAT if flat else MANY if shape.machine else DENSE
    if not sizes or min(sizes) < FEW or sum(sizes) > most:
        return ""
    if outer.split is None or np.any(np.diff(outer.split.E.indptr) != 1):
        return ""  # entries are looked up for single predictions
    if choice.ordered(names, form, outer, sum(sizes))[0] not in ENGINES:
        return ""
    if any(link.rows.kernel.is_psd is not True or link.rows.kernel.declarations() for link in links):
        return ""  # only a factor shows that Q is positive semidefinite
    if not all(link.rows.are_points and link.u is not None for link in links):
        return ""
    if flat or not (shape.machine or shape.squares):
        return flat or _flat(links, options)
    return _wide(links, options, LEAST_OF_SQUARES if shape.squares else LEAST)


def _wide(links: Sequence[PredictionLink], options: FactorOptions, least: float) -> str:
    """How large a share of a sample of rows is independent, in words; empty where it is less than `least` of some."""
    shares = []
    for link in links:
        n = len(link.rows)
        drawn = np.sort(np.random.default_rng(0).permutation(n)[: max(n // SAMPLE, FEW // 2)])
        shares.append(pivoted_cholesky(link.rows.subset(drawn), options.settings).rank / len(drawn))
    return f"{min(shares):.0%} of a sample of rows are independent" if min(shares) >= least else ""


def _flat(links: Sequence[PredictionLink], options: FactorOptions) -> str:
    """How flat the spectra are, in words; empty where the first columns of some factor take most of the trace."""
    found = []
    for link in links:
        settings = replace(options.settings, max_rank=policy.first_columns(len(link.rows)), checked=False)
        found.append(streamed_cholesky(link.rows, settings, options.memory_limit))
    return policy.flat_spectrum(found) if min(factor.residual for factor in found) > policy.FLAT else ""


def lacks_memory(form: CanonicalForm, options: FactorOptions) -> bool:
    """Whether Q takes too much memory."""
    distinct = {link.rows.fingerprint(): len(link.rows) for link in form.predictions}
    return sum(map(needed, distinct.values())) > memory.allowed_bytes(options.memory_limit)


def reduced(form: CanonicalForm, options: FactorOptions, deadline: float, why: str) -> Reduction:
    """The reduction to Q itself, and why; θs with the same kernel and rows share one."""
    made: dict[object, Factor] = {}
    for link in form.predictions:
        name = link.rows.fingerprint()
        if name not in made:
            make = partial(whole, link.rows, options.memory_limit)
            with clock.limited(deadline):
                found = make() if options.cache is None else options.cache.factor(link.rows, "whole", make)
            made[name] = replace(found, why=why)
    return Reduction(form, {link.theta: made[link.rows.fingerprint()] for link in form.predictions})


def tried(
    reduction: Reduction, outer: Outer, names: list[str], goal: Goal, start: Start | None
) -> tuple[Attempt, Outcome | None]:
    """The attempt, and its outcome where it settles the problem, or where a limit was reached."""
    name = choice.ordered(names, reduction.form, outer, reduction.size)[0]
    began, task = clock.now(), Task(reduction, outer, goal)
    claimed, gap, outcome = "failed", nan, None
    try:
        answer = engines.solve(
            reduction, outer, name, goal.tol, goal.deadline, start, goal.verbose, goal.progress,
            task.value_at_zero(),
        )  # fmt: skip
        claimed = str(answer.status)
        if answer.has_point and answer.point is not None:
            point = representer.evaluate(reduction, answer.point, answer.predictions)
            gap = certificates.gap_of_solver(reduction, outer, point, answer.gap)
            limited = answer.status == Status.USER_LIMIT
            met = violations.violation(reduction, point, outer.data_unit) <= FEASIBLE and isfinite(point.value)
            if met and (limited or gap <= goal.tol):
                candidate = Candidate(abs(answer.gap), not limited, limited, point, answer)
                outcome = judged(task, candidate, None, _undecided, None)
                settled = limited or outcome.interrupted or outcome.solution.status == Status.OPTIMAL
                outcome = outcome if settled else None
    except (SolverError, MemoryLimitError, _UndecidedError):
        pass
    ranks = tuple(f.rank for f in reduction.factors.values())
    return Attempt(name, goal.tol, None, ranks, claimed, gap, clock.now() - began), outcome


def _undecided() -> Diagnosis:
    raise _UndecidedError
