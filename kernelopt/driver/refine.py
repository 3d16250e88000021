"""Factor, reduce, solve and certify, with finer factors until the certificate closes or a limit is reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite, nan
from time import perf_counter
from typing import NamedTuple

from kernelopt.certificate import FULL, Certificate
from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.representer import Reduction
from kernelopt.compiler.separable import Outer
from kernelopt.driver import ranks
from kernelopt.driver.attempts import Goal, Outcome
from kernelopt.driver.options import FactorOptions
from kernelopt.errors import MemoryLimitError
from kernelopt.factorization import Factor, Guide, factorize, grow
from kernelopt.language.expressions import Theta
from kernelopt.results.history import Round
from kernelopt.results.solution import Attempt, Status
from kernelopt.solvers import engines
from kernelopt.solvers.engines import Start
from kernelopt.support import clock
from kernelopt.support.progress import GapBar

BLAME = 10.0  # a gap by so much larger than that of the reduced problem is that of the restriction


Strategy = Callable[[Reduction, Goal, Start | None], Outcome]


@dataclass(frozen=True, eq=False)
class Stated:
    """A problem that was cut, and how its reductions are solved.

    outer : None with integer variables, and where the problem has no cone data; solve : for its kind of problem
    """

    form: CanonicalForm
    outer: Outer | None
    solve: Strategy

    @property
    def rows(self) -> int:
        return max((len(link.rows) for link in self.form.predictions), default=0)


class Factored(NamedTuple):
    """A reduction, for the next solve: the options that its factors were made by, and the seconds of substituting."""

    options: FactorOptions
    reduction: Reduction
    seconds: float


@dataclass(frozen=True, eq=False)
class Pursued:
    """The best answer, all attempts and factors on the way, and the answer's reduction."""

    outcome: Outcome
    attempts: tuple[Attempt, ...]
    rounds: tuple[Round, ...]
    kept: Factored


def pursue(  # noqa: PLR0917
    stated: Stated, options: FactorOptions, goal: Goal, grows: bool,
    start: Start | None, kept: Factored | None, asked: FactorOptions | None,
) -> Pursued:  # fmt: skip
    """Solve with a coarse factor, and with finer ones while the certificate asks for them.

    grows : whether nobody said how fine; start, kept, asked : what the last solve left, and the options that it had
    """
    search = _Search(stated, goal, options.functions and grows, kept)
    # Nobody would notice that a coarse factor is too coarse, where there is no certificate.
    judged = grows and goal.certify is True and stated.outer is not None and stated.form.is_convex
    step, factors = _first(stated, options, judged, grows, kept, asked)
    bar = GapBar("certified gap", goal.progress and judged, leave=True)
    try:
        while step is not None:
            reduction = search.reduced(step, factors)
            if reduction is None:
                break
            if search.best is not None and step.grows and _ranks(reduction.factors) == _ranks(factors):
                step = ranks.instead(step, options, factors, search.best.solution.certificate, goal.tol)
                continue
            start, factors = engines.carried(start, stated.form, factors, reduction.factors), reduction.factors
            outcome = search.run(step.aim, start)
            if outcome is None:
                break
            start = outcome.left_off or start
            bar.show(search.rounds[-1].gap, goal.tol, f", rank {search.rounds[-1].rank}")
            # The certificate decides. Only where θ restricted to the factor's span is at fault does the rank grow.
            may_grow = (outcome.may_grow or _is_too_coarse(outcome, reduction)) and (
                grows or outcome.solution.value is None
            )
            if goal.seconds_left() <= 0 or outcome.interrupted:
                break
            last, step = step, None
            if may_grow:
                step = ranks.following(options, last.options, factors, outcome, search.rounds, goal.tol)
            if step is None and judged:
                step = ranks.finest(options, last.options, factors, outcome, goal.tol)
            step = None if step is None else ranks.progressing(step, search.rounds, goal.tol)
    finally:
        bar.close()
    return search.found()


class _Search:
    """Factors and answers so far, and the best of them."""

    def __init__(self, stated: Stated, goal: Goal, functions: bool, kept: Factored | None) -> None:
        self.stated, self.goal, self.functions, self.kept = stated, goal, functions, kept
        self.begin = perf_counter()
        self.best: Outcome | None = None
        self.of_best = self.last = kept
        self.attempts: tuple[Attempt, ...] = ()
        self.rounds: list[Round] = []
        self.latest: Outcome | None = None
        self.interrupted = False

    def reduced(self, step: ranks.Step, coarser: Mapping[Theta, Factor]) -> Reduction | None:
        """Q = BBᵀ, once for each kernel and rows, from coarser factors if there are; u = Bw and ‖θ‖ = ‖w‖ are
        substituted. None where a limit was reached, and there is an answer already."""
        try:
            with clock.limited(inf if self.best is None else self.goal.deadline):
                if self.last is None or self.last.options != step.options:
                    self.last = reduced(self.stated.form, step, coarser)
        except (MemoryLimitError, clock.OutOfTimeError, KeyboardInterrupt) as stop:
            if self.best is None:
                raise
            self.interrupted = isinstance(stop, KeyboardInterrupt)
            return None
        return self.last.reduction

    def run(self, aim: float, start: Start | None) -> Outcome | None:
        """The answer with the last factors; None where it was interrupted, and there is an earlier one."""
        try:
            return self._answer(aim, start)
        except KeyboardInterrupt:
            if self.best is None:
                raise
            self.interrupted, self.latest = True, None
            return None

    def _answer(self, aim: float, start: Start | None) -> Outcome:
        assert self.last is not None
        reduction = self.last.reduction
        known = None if self.latest is None else self.latest.solution.certificate
        goal = replace(
            self.goal, aim=aim, products=self.functions, known=None if known is None else known.evidence,
            n_init=self.goal.n_init if self.latest is None else 1,
        )  # fmt: skip
        outcome = self.stated.solve(reduction, goal, start)
        self.attempts += outcome.attempts
        found = outcome.solution.certificate
        self.rounds.append(_round(reduction.factors, found, perf_counter() - self.begin))
        if self.best is None or _is_better(outcome, self.best):
            self.best, self.of_best = outcome, self.last
        self.latest = outcome
        return outcome

    def found(self) -> Pursued:
        """The best answer, with its values on the variables."""
        assert self.best is not None
        assert self.of_best is not None
        outcome = self.best
        if outcome.solution.status == Status.OPTIMAL_INACCURATE and self.goal.seconds_left() <= 0:
            outcome = replace(outcome, solution=replace(outcome.solution, status=Status.USER_LIMIT))
        interrupted = self.interrupted or (self.latest is not None and self.latest.interrupted)
        return Pursued(
            replace(outcome, interrupted=interrupted), self.attempts, tuple(self.rounds), self.of_best
        )  # fmt: skip


def _is_too_coarse(outcome: Outcome, reduction: Reduction) -> bool:
    """Whether the restriction of θ is to blame for the gap, though no solver closed that of the reduced problem."""
    known = outcome.solution.certificate
    if known is None or outcome.solution.status != Status.OPTIMAL_INACCURATE or not reduction.is_restriction:
        return False
    reduced = min((a.gap for a in outcome.attempts if isfinite(a.gap)), default=inf)
    return known.scope == FULL and known.relative_gap > BLAME * reduced


def _is_better(new: Outcome, old: Outcome) -> bool:
    """Whether an answer takes the place of an earlier one, for a coarser restriction of θ: with a smaller certified
    gap, or as good a value where both gaps are the same."""
    one, other = new.solution, old.solution
    if one.value is None or other.value is None:
        return one.value is not None
    if one.certificate is None or other.certificate is None or one.status == Status.OPTIMAL:
        return True
    gap, known = _certified_gap(one.certificate), _certified_gap(other.certificate)
    if gap != known:
        return gap < known
    sign = -1.0 if other.certificate.maximize else 1.0
    return sign * one.value <= sign * other.value


def _certified_gap(found: Certificate) -> float:
    """The gap to the optimum with the full kernel matrix, ∞ where nothing is known of it."""
    return found.absolute_gap if found.scope == FULL and isfinite(found.absolute_gap) else inf


def _first(  # noqa: PLR0917
    stated: Stated, options: FactorOptions, judged: bool, grows: bool, kept: Factored | None,
    asked: FactorOptions | None,
) -> tuple[ranks.Step | None, Mapping[Theta, Factor]]:  # fmt: skip
    """How Q is factored first, and from which factors: as asked for, or coarser where a certificate judges it, or
    as fine as an earlier solve found necessary."""
    first = ranks.first(options, stated.rows) if judged else options
    if grows and stated.form.outer.is_mixed_integer():
        first = ranks.full(options)  # with integers no certificate asks for more
    if kept is None or asked is None:
        return ranks.Step(first), {}
    tolerance = options.settings.rank_tol if grows else asked.settings.rank_tol  # which certificates may replace
    if replace(asked, functions=options.functions, settings=replace(asked.settings, rank_tol=tolerance)) != options:
        return ranks.Step(first), {}
    known, factors = kept.options, kept.reduction.factors
    if known.growth and known.functions != options.functions:  # the same pivots, with functions or without
        return ranks.Step(replace(known, functions=options.functions, growth=known.growth + 1)), factors
    fine_enough = (known.growth > 0 and grows) or known.settings.rank_tol <= first.settings.rank_tol
    return ranks.Step(known if fine_enough else first), {}


def reduced(form: CanonicalForm, step: ranks.Step, coarser: Mapping[Theta, Factor]) -> Factored:
    """Factored, from coarser factors where there are, and substituted."""
    factors = _factorize(form, step, coarser)
    start = perf_counter()
    reduction = Reduction(form, factors)
    return Factored(step.options, reduction, perf_counter() - start)


def _factorize(form: CanonicalForm, step: ranks.Step, coarser: Mapping[Theta, Factor]) -> dict[Theta, Factor]:
    """One factor for each θ; θs that share kernel and rows share it."""
    options = step.options
    made: dict[object, Factor] = {}
    factors: dict[Theta, Factor] = {}
    guides: dict[object, Guide] = {}
    names = {link.theta: link.rows.fingerprint() for link in form.predictions}
    for theta, guide in step.guides.items():
        guides[names[theta]] = guides[names[theta]].beside(guide) if names[theta] in guides else guide
    for link in form.predictions:
        name, known = names[link.theta], coarser.get(link.theta)
        if name not in made and options.growth and known is not None and known.grows:
            made[name] = grow(
                link.rows, known, guides.get(name), step.columns, options.functions, options.settings,
                options.memory_limit,
            )  # fmt: skip
        elif name not in made:
            start = None if known is None else known.of_pivots
            made[name] = factorize(
                options.method, link.rows, options.settings, options.memory_limit, start, options.layout
            )
        factors[link.theta] = made[name]
    return factors


def _round(factors: Mapping[Theta, Factor], found: Certificate | None, seconds: float) -> Round:
    kept = {id(f): f for f in factors.values()}.values()
    bounds = (nan, nan, nan) if found is None else (found.lower, found.upper, found.relative_gap)
    return Round(sum(f.rank for f in kept), sum(len(f.pivots) for f in kept), *bounds, seconds)


def _ranks(factors: Mapping[Theta, Factor]) -> list[int]:
    return [factor.rank for factor in factors.values()]
