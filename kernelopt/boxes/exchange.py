"""The exchange: an inequality at few points of a box, and those added where it is violated.

With points S and a shift s ≥ 0, let V(S, s) be the optimum under g(x) ≥ s for x in S. V(S, 0) bounds the optimum for
the whole box from below. An answer for s > 0 with a proof of g ≥ 0 on the box is feasible, so that its value bounds the
optimum from above. Points come from the proofs (Blankenship and Falk, JOTA 19, 1976); shifts shrink with the gap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Protocol

import cvxpy as cp
import numpy as np

from kernelopt.boxes.bend import Structure
from kernelopt.boxes.least_value import LeastValue, apart, around, least_value, located
from kernelopt.certificate import Certificate
from kernelopt.certificate.report import FULL
from kernelopt.language.everywhere import Everywhere
from kernelopt.results.history import ExchangeRound
from kernelopt.results.solution import Solution, Status
from kernelopt.support import clock
from kernelopt.support.types import Array

MOST_ROUNDS = 40
AT_ONCE = 8  # points added per round and column of the box, for each box
# Of the violation: the shift that makes the next answer feasible, as the points that are added leave about a sixteenth
# of it. A larger shift costs more of the objective. AGAIN is added to the last shift where that did not suffice.
ROOM, AGAIN = 0.2, 1.25
FINE = 1e-6  # of the size of g: where nothing strictly feasible exists, violations are reduced to this
OTHER_PARTS = 7  # cells per column at first where a proof is repeated: none of its cells is one of the first proof
STALLED = 8  # rounds without progress, after which the exchange ends
HALVINGS = 3  # of the steps of the first grid, at most, until the problem with points of the grid alone is bounded
PATIENCE = 4  # rounds after which an answer is made feasible though it is expected to leave a gap


class InnerProblem(Protocol):
    """What the exchange reads of a problem that was solved."""

    @property
    def status(self) -> str | None: ...
    @property
    def value(self) -> float | None: ...
    @property
    def certificate(self) -> Certificate | None: ...


@dataclass(frozen=True, eq=False)
class Exchanged:
    """The end of an exchange.

    problem : the solved problem whose answer stands; certificate : the enclosure, None where a solve had none
    least : for each box a proven lower bound of g at that answer; imposed, points : for each box its constraint
    """

    problem: Any
    certificate: Certificate | None
    least: tuple[float, ...]
    imposed: Sequence[cp.Constraint]
    points: tuple[Array, ...]
    rounds: tuple[ExchangeRound, ...]

    @property
    def is_feasible(self) -> bool:
        """Whether g ≥ 0 is proven on all boxes."""
        return min(self.least, default=-inf) >= 0


def exchange(
    solve: Callable[[Sequence[cp.Constraint]], InnerProblem],
    boxes: Sequence[tuple[Everywhere, Structure]],
    closes: Callable[[Certificate], bool],
    is_over: Callable[[], bool],
    watch: Callable[[Certificate], None],
) -> Exchanged:
    """Solve with points of the boxes until the enclosure closes; each call of `solve` leaves its answer in θ.

    `watch` is called with the enclosure after each round.
    """
    start = clock.now()
    points, shifts = [box.grid() for box, _ in boxes], np.zeros(len(boxes))
    relaxed, best, rounds, halvings = None, None, list[ExchangeRound](), 0
    has_room = True  # whether g ≥ shift could be met so far
    while True:
        imposed = [box.at(P, s) for (box, _), P, s in zip(boxes, points, shifts, strict=True)]
        problem = solve(imposed)
        found = problem.certificate
        if problem.status == Status.UNBOUNDED and relaxed is None and halvings < HALVINGS:
            halvings += 1
            points = [box.grid(halvings) for box, _ in boxes]
            continue
        if found is None or problem.value is None or not np.isfinite(problem.value):
            if best is None or (problem.status == Status.INFEASIBLE and not shifts.any()):
                return Exchanged(problem, None, (), imposed, tuple(points), tuple(rounds))
            if is_over() or not shifts.any():
                return best
            has_room, shifts = False, 0 * shifts
            continue
        looks = [look(*box, is_over=is_over) for box in boxes]
        answer = Exchanged(problem, found, tuple(one.bound for one in looks), imposed, tuple(points), ())
        relaxed = found if relaxed is None else relaxed if shifts.any() else tightest(relaxed, found)
        best = better(best, answer)
        enclosure = enclosed(relaxed, best.certificate if best.is_feasible else None)
        ends = enclosure.lower, enclosure.upper, clock.now() - start
        rounds.append(ExchangeRound(sum(map(len, points)), float(shifts.max()), min(answer.least), *ends))
        watch(enclosure)
        exact = all(m >= -FINE * one.largest for m, one in zip(best.least, looks, strict=True))
        over = len(rounds) >= MOST_ROUNDS or _is_stalled(rounds, looks) or is_over()
        if closes(enclosure) or over or (exact and not has_room):
            return replace(best, certificate=enclosure, rounds=tuple(rounds))
        points = [np.unique(np.vstack([P, one.points]), axis=0) for P, one in zip(points, looks, strict=True)]
        begun = shifts.any() and not answer.is_feasible
        shifts = _next_shifts(shifts, looks, answer.is_feasible)
        worth = begun or len(rounds) % PATIENCE == 0 or _is_cheap(relaxed, imposed, shifts, closes)
        if not (has_room and worth):
            shifts = 0 * shifts


def _is_stalled(rounds: Sequence[ExchangeRound], looks: Sequence[LeastValue]) -> bool:
    """Whether a finite enclosure kept more than half of its width over STALLED rounds, or proofs stay incomplete."""
    if len(rounds) <= STALLED:
        return False
    now, before = rounds[-1], rounds[-1 - STALLED]
    if not np.isfinite(now.upper - now.lower):
        return len(rounds) > 2 * STALLED and any(one.unproven > 0 for one in looks)
    return now.upper - now.lower > 0.5 * (before.upper - before.lower)


def _next_shifts(shifts: Array, looks: Sequence[LeastValue], feasible: bool) -> Array:
    """Shifts that make the next answer feasible; 0 after one that did."""
    unproven = np.array([one.unproven for one in looks])
    violations = np.array([max(0.0, -one.bound) for one in looks]) - unproven
    if not shifts.any():
        return ROOM * violations + AGAIN * unproven
    return 0 * shifts if feasible else shifts + AGAIN * (violations + unproven)


def _is_cheap(
    relaxed: Certificate, imposed: Sequence[cp.Constraint], shifts: Array, closes: Callable[[Certificate], bool]
) -> bool:
    """Whether shifts are expected to leave no gap: they cost Σ multiplier·shift to first order, and as much again.

    Nothing is expected of an answer without multipliers, such as θ = 0 where a solver stopped at its limit.
    """
    if any(c.dual_value is None for c in imposed):
        return False
    price = 2 * sum(float(np.abs(c.dual_value).sum()) * s for c, s in zip(imposed, shifts, strict=True))
    if relaxed.maximize:
        return closes(replace(relaxed, lower=relaxed.upper - price, bare=None))
    return closes(replace(relaxed, upper=relaxed.lower + price, bare=None))


def better(known: Exchanged | None, found: Exchanged) -> Exchanged:
    """The feasible answer with the better value; without one, the answer that violates g ≥ 0 the least."""
    if known is None or found.is_feasible != known.is_feasible:
        return found if known is None or found.is_feasible else known
    if not found.is_feasible:
        return found if min(found.least) > min(known.least) else known
    a, b = found.certificate, known.certificate
    assert a is not None
    assert b is not None
    return found if (a.lower > b.lower if a.maximize else a.upper < b.upper) else known


def solution(
    solved: Solution, found: Exchanged, stated: Sequence[tuple[str, Structure]], closes: Callable[[Certificate], bool],
    is_over: bool,
) -> Solution:  # fmt: skip
    """The answer with the enclosure as its certificate, and the status that this proves; `stated` prints the boxes."""
    assert found.certificate is not None
    proofs = [
        " ".join([f"proven: {text}", *([] if least >= 0 else [f"up to {-least:.1e}"]), *structure.declarations()])
        for (text, structure), least in zip(stated, found.least, strict=True)
    ]
    assumed = [f"{line}: {text}" for text, structure in stated for line in structure.assumptions()]
    certificate = replace(
        found.certificate, assumptions=(*found.certificate.assumptions, *assumed),
        rests_on=(*found.certificate.rests_on, *proofs),
    )  # fmt: skip
    proven = found.is_feasible and certificate.scope == FULL and not certificate.assumptions
    if proven and closes(certificate):
        status = Status.OPTIMAL
    else:
        status = Status.USER_LIMIT if is_over else Status.OPTIMAL_INACCURATE
    stats = replace(solved.solver_stats, out_of_time=is_over)
    return replace(solved, certificate=certificate, status=status, solver_stats=stats)


def note(boxes: Sequence[Everywhere], found: Exchanged) -> None:
    """Put the proven least values, the points and their multipliers on the user's constraints."""
    for k, box in enumerate(boxes):
        box.points, box.dual_value = found.points[k], found.imposed[k].dual_value
        box.least = found.least[k] if found.least else None


def look(
    box: Everywhere, structure: Structure, parts: int = 1, is_over: Callable[[], bool] = lambda: False
) -> LeastValue:
    """The proven least value of g at the present θ and variables, and local minima below 0.

    Once `is_over`, no further cells are looked at: the bound is then lower than it need be. Raises DataError where g is
    not what the proof takes it to be.
    """
    bounds = structure.bounds()

    def g(P: Array) -> Array:
        return np.asarray(box.margin(P).value, dtype=float).reshape(len(P), -1)

    corners = box.lower, box.upper
    found = least_value(g, bounds, structure.rounding(), corners, parts, structure.examine, is_over)
    if not len(found.points):
        return found
    width = np.where(box.upper > box.lower, box.upper - box.lower, 1.0)
    chosen = apart(found.points, found.values, width, AT_ONCE * len(width))
    return replace(found, points=around(g, located(g, chosen, corners), corners))


def tightest(known: Certificate | None, found: Certificate) -> Certificate:
    """The relaxed problem's certificate with the better bound."""
    if known is None:
        return found
    better = found.upper < known.upper if found.maximize else found.lower > known.lower
    return found if better else known


def enclosed(relaxed: Certificate, feasible: Certificate | None) -> Certificate:
    """The bound of a relaxed problem beside that of a feasible answer; without one, an infinite bound."""

    def of(low: Certificate, high: Certificate | None) -> Certificate:
        if low.maximize:
            return replace(low, lower=-inf if high is None else high.lower, evidence=None, distance={})
        return replace(low, upper=inf if high is None else high.upper, evidence=None, distance={})

    made = of(relaxed, feasible)
    if feasible is not None:
        made = replace(
            made, terms=feasible.terms, violations=feasible.violations, is_feasible=feasible.is_feasible,
            widened=feasible.widened, assumptions=tuple(dict.fromkeys(relaxed.assumptions + feasible.assumptions)),
        )  # fmt: skip
    bare = relaxed.bare, None if feasible is None else feasible.bare
    if bare[0] is not None and (feasible is None or bare[1] is not None):
        return replace(made, bare=of(bare[0], bare[1]))
    return replace(made, bare=None)
