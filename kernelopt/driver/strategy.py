"""The interface of each kind of problem to the loop over factors: attempts in order, and the best one, judged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, NamedTuple

from kernelopt.certificate import ESTIMATE, FULL, value_at_zero
from kernelopt.certificate.report import Lower
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.outer import Outer
from kernelopt.compiler.representer import Reduction
from kernelopt.factorization import Guide
from kernelopt.language.expressions import Theta
from kernelopt.results.solution import Attempt, Solution, Status
from kernelopt.solvers.engines import Start
from kernelopt.support import clock
from kernelopt.support.properties import cached_property

Units = tuple[float, float]  # of predictions, and of multipliers


# From this tol on, engines measure gaps relative to P₀ − P, as certificates do, instead of ½xᵀRx, which may be a
# thousandth of it. Finer factors grow faster from more accurate points: hinge with 20 000 rows takes a third longer at
# 1e-6 otherwise, and a sixth less at 1e-3.
LOOSE = 1e-4


@dataclass(frozen=True)
class Goal:
    """What the caller wants: accuracy, kind of certificate, limits, and the solver's own options.

    own_options : whether the caller gave options of the solver; known : the best lower bound so far; products : whether
    a certificate's pass over the kernel should give Qν; aim : the gap that suffices while the factor is coarse;
    coarse : whether this is the first round, with a factor that is coarser than the caller asks for
    """

    tol: float
    abs_tol: float | None = None
    certify: bool | str = True
    deadline: float = inf
    options: dict[str, Any] = field(default_factory=dict)
    own_options: bool = False
    memory_limit: float | None = None
    progress: bool = False
    n_init: int = 1
    random_state: Any = None
    aim: float = 0.0
    known: Lower | None = None
    products: bool = False
    coarse: bool = False

    @property
    def solver_tol(self) -> float:
        """The gap that suffices for the reduced problem: `tol`, or more while the factor is coarse."""
        return max(self.tol, self.aim)

    @property
    def scope(self) -> str:
        return ESTIMATE if self.certify == "estimate" else FULL

    @property
    def verbose(self) -> bool:
        return bool(self.options.get("verbose"))

    def seconds_left(self) -> float:
        return self.deadline - clock.now()

    def for_last_steps(self) -> float:
        """Seconds that a step may take which an answer needs, also where the time is over."""
        return max(self.seconds_left(), clock.LAST)


@dataclass(frozen=True, eq=False)
class Outcome:
    """A solution with its attempts, and whether a factor of higher rank might do better.

    point : the solution's point, None where there is no answer; left_off : the start of a later solve;
    guides : how a factor should grow; inexact : whether the solver is to blame for most of the gap
    """

    solution: Solution
    attempts: tuple[Attempt, ...]
    stats: Any
    may_grow: bool
    point: Iterate | None = None
    left_off: Start | None = None
    interrupted: bool = False
    guides: Mapping[Theta, Guide] = field(default_factory=dict)
    inexact: bool = False


@dataclass(frozen=True, eq=False)
class Task:
    """A reduced problem and its goal; `outer` is None with integer variables."""

    reduction: Reduction
    outer: Outer | None
    goal: Goal

    @cached_property
    def sign(self) -> float:
        """−1 for a problem that maximizes, whose negative is minimized."""
        return -1.0 if self.reduction.form.outer.objective.NAME == "maximize" else 1.0

    @property
    def is_continuous(self) -> bool:
        return self.outer is not None

    @property
    def data(self) -> Outer | None:
        """The outer problem where a certificate is wanted, else None."""
        return None if self.goal.certify is False else self.outer

    def value_at_zero(self) -> float | None:
        """P₀, for a loose tolerance relative to it; None for others, where there is none, and where it is not known and
        the time is limited."""
        if self.goal.tol < LOOSE or self.data is None:
            return None
        return value_at_zero(self.reduction, self.data, known=isfinite(self.goal.deadline))

    @property
    def data_unit(self) -> float:
        """The size of the data that predictions are compared with; 0 with integer variables."""
        return 0.0 if self.outer is None else self.outer.data_unit


class Plan(NamedTuple):
    """One attempt: the solver, its tolerance, its units, and its start."""

    solver: str
    tol: float
    units: Units | None = None
    start: Start | None = None


class Work(ABC):
    """One reduced problem on its way to an answer."""

    @abstractmethod
    def plans(self) -> Iterator[Plan]:
        """Attempts in order, until one settles the problem."""

    @abstractmethod
    def attempt(self, plan: Plan) -> None:
        """Run a solver, and keep its answer where it is the best so far. Raises errors that end the search."""

    @abstractmethod
    def outcome(self) -> Outcome:
        """The best point, judged. Raises SolverError where there is no point, and no limit was reached."""


# Starts the work on a reduction of one kind of problem: convex, with a nonconvex loss, or principal components.
Strategy = Callable[[Reduction, Goal, Start | None], Work]


def attempted(work: Work) -> Outcome:
    """Run all planned attempts, and return the outcome."""
    with clock.phase(clock.SOLVER):
        for plan in work.plans():
            work.attempt(plan)
        return work.outcome()


def least_gap(attempts: tuple[Attempt, ...] | list[Attempt]) -> float:
    """The least relative gap of the reduced problem that an attempt reached; inf where no gap is known."""
    return min((a.gap for a in attempts if isfinite(a.gap)), default=inf)


def without_answer(status: Status, sign: float) -> Solution:
    """A solution without a point. Its value is ±∞ for an infeasible or unbounded problem, else None."""
    values = {Status.INFEASIBLE: sign * inf, Status.UNBOUNDED: -sign * inf}
    return Solution(status, values.get(status), {}, {}, None)
