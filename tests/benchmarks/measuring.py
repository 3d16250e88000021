"""Solves of ours and of peers in turn, their seconds and certified gaps, and rows of a table."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import cvxpy as cp
from peers import Answer, Statement, installed

import kernelopt as ko

FAILURES = (ko.errors.KernelOptError, MemoryError, cp.error.SolverError)
PATIENCE = 30.0  # seconds: what took longer is not run again, and the table says how often it ran


@dataclass(frozen=True)
class Ours:
    """One solve from nothing: numbers only, so that the memory of the problem is free for the next run.

    seconds : wall time without that of the certificate: kernel values, factor, compilation, solver
    proof : seconds of the certificate; solver : seconds in attempts of solvers
    """

    seconds: float
    proof: float
    solver: float
    lower: float
    upper: float
    unit: float
    gap: float
    rank: int
    status: str
    name: str
    per_iteration: float


def solve(state: Callable[[], ko.Problem], options: dict[str, Any]) -> Ours:
    """State the problem, solve it, and take the numbers. Raises KernelOptError where there is no certificate."""
    gc.collect()
    start = perf_counter()
    problem = state()
    problem.solve(**options)
    total = perf_counter() - start
    found, stats = problem.certificate, problem.solver_stats
    if found is None:
        raise ko.errors.KernelOptError(f"no certificate: {problem.status}")
    return Ours(
        seconds=total - found.seconds,
        proof=found.seconds,
        solver=sum(a.seconds for a in stats.attempts),
        lower=found.lower,
        upper=found.upper,
        unit=abs(found.upper if found.at_zero is None else found.at_zero - found.upper),
        gap=found.relative_gap,
        rank=found.ranks[0][0],
        status=str(problem.status),
        name=stats.solver_name,
        per_iteration=stats.solve_time / stats.num_iters if stats.solve_time and stats.num_iters else nan,
    )


class Target(NamedTuple):
    """A bound on seconds of ours ÷ seconds of the peer, or (`faster`) on the reverse."""

    bound: float
    faster: bool = False
    part: str = "all-in"

    def __str__(self) -> str:
        return f"peer/ours ≥ {self.bound:g}" if self.faster else f"ours/peer ≤ {self.bound:g}"

    def is_met(self, ratio: float) -> bool:
        return ratio >= self.bound if self.faster else ratio <= self.bound

    def seconds(self, ours: Ours) -> float:
        return ours.solver if self.part == "solver alone" else ours.seconds

    def ratio(self, ours: list[Ours], theirs: list[Answer]) -> float:
        """The median of ratios of runs that took turns; where one ran once, the ratio of medians."""
        one, other = [self.seconds(o) for o in ours], [t.seconds for t in theirs]
        if self.faster:
            one, other = other, one
        if len(one) == len(other):
            return median(a / b for a, b in zip(one, other, strict=True))
        return median(one) / median(other)


class Peer(NamedTuple):
    """Who is measured against, and against what.

    number : of its rows; needs : package that it comes from; own : its own problem, where that is another one, whose
    bounds then count
    """

    number: str
    name: str
    run: Callable[[Statement, Ours], Answer]
    targets: tuple[Target, ...]
    needs: str = "sklearn"
    own: Callable[[], Statement] | None = None


class Case(NamedTuple):
    """A problem, solved with `options`, and who is measured against; needs : package that its data come from."""

    name: str
    statement: Callable[[], Statement]
    peers: tuple[Peer, ...]
    options: dict[str, Any]
    needs: str = "sklearn"


class Row(NamedTuple):
    """One line of the table; what is not known is nan."""

    number: str
    case: str
    peer: str
    ratio: float | str
    target: str
    verdict: str = ""
    part: str = ""
    ours: float = nan
    proof: float = nan
    theirs: float = nan
    gap: float = nan
    their_gap: float = nan
    runs: str = ""
    solver: str = ""


def is_selected(pattern: str, number: str, case: str, peer: str) -> bool:
    return re.search(pattern, f"{number} {case} | {peer}", re.IGNORECASE) is not None


def judged(is_met: bool, *ours: Ours) -> str:
    """ "met" or "missed"; a fast answer that is not certified is neither."""
    return ("met" if is_met else "missed") if all(o.status == "optimal" for o in ours) else "not certified"


def measure(case: Case, runs: int, pattern: str = "") -> list[Row]:
    """The rows of a case: ours and its selected peers in turn, `runs` times where they are fast enough."""
    peers = [p for p in case.peers if is_selected(pattern, p.number, case.name, p.name)]
    missing = {p: need for p in peers for need in (case.needs, p.needs) if not installed(need)}
    rows = [row for p, need in missing.items() for row in _empty(case, p, f"{need} not installed")]
    peers = [p for p in peers if p not in missing]
    try:
        return rows + _measured(case, peers, runs) if peers else rows
    except FAILURES as error:
        return rows + [row for p in peers for row in _empty(case, p, told(error))]


def told(error: BaseException) -> str:
    """The first line of an error, for a place in the table."""
    return "failed: " + (str(error).splitlines() or [type(error).__name__])[0]


def _empty(case: Case, peer: Peer, reason: str) -> list[Row]:
    return [Row(peer.number, case.name, peer.name, reason, str(t), part=t.part) for t in peer.targets]


def _measured(case: Case, peers: list[Peer], runs: int) -> list[Row]:
    statement = case.statement()
    ours: list[Ours] = []
    theirs: dict[Peer, list[Answer]] = {p: [] for p in peers}
    failed: dict[Peer, str] = {}
    for _ in range(runs):
        if is_patient(ours):
            ours.append(solve(statement.problem, case.options))
        for peer, found in theirs.items():
            if peer not in failed and is_patient(found):
                gc.collect()
                try:
                    found.append(peer.run(peer.own() if peer.own else statement, ours[-1]))
                except FAILURES as error:
                    failed[peer] = told(error)
    rows = [row for p, reason in failed.items() for row in _empty(case, p, reason)]
    for p in (p for p in peers if p not in failed):
        bounds = solve(p.own().problem, case.options) if p.own else ours[-1]
        rows += [_row(case, (p, t), ours, theirs[p], bounds) for t in p.targets]
    return rows


def is_patient(found: Sequence[Any]) -> bool:
    """Whether to run once more."""
    return not found or found[0].seconds <= PATIENCE


def _row(case: Case, against: tuple[Peer, Target], ours: list[Ours], theirs: list[Answer], bounds: Ours) -> Row:
    peer, target = against
    ratio = target.ratio(ours, theirs)
    attained = [nan if t.objective is None else t.objective for t in theirs]
    return Row(
        peer.number, case.name, peer.name, ratio, str(target), judged(target.is_met(ratio), *ours), target.part,
        median(target.seconds(o) for o in ours), median(o.proof for o in ours), median(t.seconds for t in theirs),
        max(o.gap for o in ours), (max(attained) - bounds.lower) / bounds.unit,
        f"{len(ours)}/{len(theirs)}", ours[-1].name,
    )  # fmt: skip
