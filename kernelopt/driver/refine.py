"""Factor, reduce, solve and certify, with finer factors until the certificate closes or a limit is reached.

There is one loop over factors, and within it one over attempts. A strategy solves the reductions of one kind of
problem, `policy` chooses the next step, and a frozen `State` holds the results so far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, isfinite, nan
from typing import NamedTuple

from kernelopt.certificate import FULL, Certificate
from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.outer import Outer
from kernelopt.compiler.representer import Reduction
from kernelopt.driver import in_kernel_space, policy
from kernelopt.driver.options import FactorOptions
from kernelopt.driver.policy import Step, View
from kernelopt.driver.strategy import Goal, Outcome, Strategy, attempted, least_gap
from kernelopt.errors import MemoryLimitError
from kernelopt.factorization import FEW, Factor, Guide, carried, factorize, grow
from kernelopt.language.expressions import Theta
from kernelopt.results.history import Round
from kernelopt.results.solution import Attempt, SolverStats, Status
from kernelopt.solvers import engines
from kernelopt.solvers.assemble import shape_of
from kernelopt.solvers.engines import Start
from kernelopt.support import clock
from kernelopt.support.progress import GapBar

# Certified gap, in units of the reduced problem's, from which the restriction of θ is to blame. A smaller factor may
# blame it for a gap that the solver left, a larger one stops the refinement too early.
BLAME = 10.0


@dataclass(frozen=True, eq=False)
class Stated:
    """A problem in canonical form, and the strategy that solves its reductions.

    outer : the cone data; None with integer variables, and in the spectral form; solvers : the candidates
    """

    form: CanonicalForm
    outer: Outer | None
    strategy: Strategy
    solvers: Sequence[str] = ()

    @property
    def rows(self) -> int:
        return max((len(link.rows) for link in self.form.predictions), default=0)

    @property
    def is_tied(self) -> bool:
        """Whether every other row, or more, has an equation that θ = 0 does not meet: nor does a θ in the span of a
        coarse factor, as a rule."""
        if self.outer is None or not 0 < self.rows <= FEW:
            return False
        return 2 * shape_of(self.form, self.outer).inhomogeneous >= self.rows


class Factored(NamedTuple):
    """A reduction, and the options that its factors were made with."""

    options: FactorOptions
    reduction: Reduction

    @property
    def is_whole(self) -> bool:
        """Whether Q itself stands in place of factors."""
        return any(factor.is_whole for factor in self.reduction.factors.values())

    def of(self, form: CanonicalForm) -> Factored:
        """The same factors for a form with the same links, whose constraints may be restated."""
        return self if form is self.reduction.form else self._replace(reduction=Reduction(form, self.reduction.factors))


@dataclass(frozen=True, eq=False)
class Left:
    """What the next solve can use of the last one: its end point, its factors, and the caller's options."""

    start: Start | None = None
    factored: Factored | None = None
    asked: FactorOptions | None = None


@dataclass(frozen=True, eq=False)
class Pursued:
    """The best answer, all attempts and factors on the way, and the answer's reduction."""

    outcome: Outcome
    attempts: tuple[Attempt, ...]
    rounds: tuple[Round, ...]
    factored: Factored
    out_of_time: bool = False

    @property
    def stats(self) -> SolverStats:
        """The solver, its times and iterations, all attempts and all rounds."""
        inner, reduction = self.outcome.stats, self.factored.reduction
        factors = {id(f): f for f in reduction.factors.values()}.values()
        return SolverStats(
            inner.solver_name, inner.solve_time, inner.setup_time, inner.num_iters,
            sum(f.kernel_seconds for f in factors), sum(f.factor_seconds for f in factors), reduction.compile_seconds,
            inner.extra_stats, self.attempts, rounds=self.rounds, out_of_time=self.out_of_time,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class State:
    """The results of the rounds so far: the last factors and answer, and the best answer with its factors.

    why : the reason why factors were made where Q itself would have taken less time
    """

    factored: Factored | None
    latest: Outcome | None = None
    best: Outcome | None = None
    of_best: Factored | None = None
    attempts: tuple[Attempt, ...] = ()
    rounds: tuple[Round, ...] = ()
    interrupted: bool = False
    began: float = field(default_factory=clock.now)
    why: str = ""

    @property
    def known(self) -> Certificate | None:
        """The certificate of the best answer."""
        return None if self.best is None else self.best.solution.certificate

    def after(self, factored: Factored, outcome: Outcome) -> State:
        """The state after another round."""
        seconds, found = clock.now() - self.began, outcome.solution.certificate
        better = self.best is None or is_better(outcome, self.best)
        return replace(
            self, factored=factored, latest=outcome, attempts=self.attempts + outcome.attempts,
            best=outcome if better else self.best, of_best=factored if better else self.of_best,
            rounds=(*self.rounds, _round(factored.reduction.factors, found, seconds)),
            interrupted=outcome.interrupted,
        )  # fmt: skip


def pursue(stated: Stated, options: FactorOptions, goal: Goal, grows: bool, left: Left) -> Pursued:
    """Solve with a coarse factor, and with finer ones while the certificate asks for them.

    grows : whether the caller leaves open how fine the factor should be
    """
    # Only a certificate shows that a coarse factor is too coarse.
    judged = grows and goal.certify is True and stated.outer is not None and stated.form.is_convex
    whole = left.factored if left.factored is not None and left.factored.is_whole else None
    left = left if whole is None else replace(left, factored=None)
    step, factors = _first(stated, options, judged, grows, left)
    state, start = State(left.factored), left.start
    before = factors if whole is None else whole.reduction.factors
    bar = GapBar("certified gap", goal.progress and judged, leave=True)
    try:
        if judged and state.factored is None:
            state = _in_kernel_space(stated, options, goal, state, start, whole)
            step = step if state.best is None else None
        while step is not None:
            factored = _factored(stated.form, state, step, factors, goal.deadline)
            finer = factored.reduction.factors
            if state.best is not None and step.grows and _ranks(finer) == _ranks(factors):
                # The factors are as they were, and another solve would repeat the last one.
                state = replace(state, factored=factored)
                step = policy.instead(step, options, factors, state.known, goal.tol)
                continue
            start, factors = engines.carried(start, stated.form, before, finer), finer
            before = finer
            aimed = _aimed(replace(goal, products=options.functions and grows), state, step, options, judged)
            outcome = attempted(stated.strategy(factored.reduction, aimed, start))
            state, start = state.after(factored, outcome), outcome.left_off or start
            bar.show(state.rounds[-1].gap, goal.tol, f", rank {state.rounds[-1].rank}")
            if goal.seconds_left() <= 0 or outcome.interrupted:
                break
            # The rank grows only where the restriction of θ to the factor's span is to blame for the gap.
            may_grow = outcome.may_grow or _is_too_coarse(outcome, factored.reduction)
            may_grow = may_grow and (grows or outcome.solution.value is None)
            step = policy.next_step(
                View(options, step.options, factors, outcome, state.rounds, goal.tol, may_grow, judged)
            )
            why = "" if step is None or step.options.method == options.method else step.options.why
            if why:  # the spectrum is flat
                rounds, state = len(state.rounds), _in_kernel_space(stated, options, goal, state, start, flat=why)
                step = step if len(state.rounds) == rounds else None
    except (MemoryLimitError, clock.OutOfTimeError, KeyboardInterrupt) as stop:
        if state.best is None and not isinstance(stop, clock.OutOfTimeError):
            raise
        state = replace(state, interrupted=isinstance(stop, KeyboardInterrupt))
        state = _at_once(stated, options, goal, state) if state.best is None else state
    finally:
        bar.close()
    return _found(state, goal)


def _in_kernel_space(  # noqa: PLR0917
    stated: Stated, options: FactorOptions, goal: Goal, state: State, start: Start | None,
    known: Factored | None = None, flat: str = "",
) -> State:  # fmt: skip
    """The state after an attempt with Q itself, where the problem suits it; with another round where that succeeds.

    known : what the last solve left, with Q itself; flat : how flat the spectrum is known to be, in words
    """
    outer, names = stated.outer, list(stated.solvers)
    flat = flat if known is None else next(factor.why for factor in known.reduction.factors.values())
    with clock.phase(clock.FACTOR):  # the reason may need columns of Q
        why = "" if outer is None else in_kernel_space.reason(stated.form, outer, names, options, goal, flat)
    if outer is None or not why:
        return state
    if known is None and in_kernel_space.lacks_memory(stated.form, options):
        return replace(state, why=in_kernel_space.NO_MEMORY)
    with clock.phase(clock.FACTOR):
        reduction = known.reduction if known else in_kernel_space.reduced(stated.form, options, goal.deadline, why)
    if state.factored is not None:
        start = engines.carried(start, stated.form, state.factored.reduction.factors, reduction.factors)
    with clock.phase(clock.SOLVER):
        attempt, outcome = in_kernel_space.tried(reduction, outer, names, goal, start)
    if outcome is None:
        return replace(state, attempts=(*state.attempts, attempt))
    return state.after(Factored(options, reduction), replace(outcome, attempts=(attempt,)))


def by_columns(factored: Factored, point: Iterate, start: Start | None) -> tuple[Factored, Iterate, Start | None]:
    """An answer with Q itself in the coordinates of factors, for what needs columns of B."""
    form, old = factored.reduction.form, factored.reduction.factors
    most = max(len(link.rows) for link in form.predictions)
    options = replace(factored.options, method="cholesky")
    made = reduced(form, Step(options if most > FEW else policy.full(options)), {})
    new = made.reduction.factors
    v = tuple(carried(old[link.theta], new[link.theta], v) for link, v in zip(form.predictions, point.v, strict=True))
    return made, replace(point, v=v), engines.carried(start, form, old, new)


def _at_once(stated: Stated, options: FactorOptions, goal: Goal, state: State) -> State:
    """The answer where the time is over before there is a factor: θ = 0, or what one pivot allows."""
    factored = reduced(stated.form, Step(policy.least(options)), {})
    last = replace(goal, deadline=clock.now() + goal.for_last_steps())
    outcome = attempted(stated.strategy(factored.reduction, last, None))
    kernels = [link.rows.kernel for link in stated.form.predictions]
    if outcome.solution.status == Status.OPTIMAL and any(k.is_psd is not True or k.declarations() for k in kernels):
        # Nothing was checked of what is not known by a rule.
        outcome = replace(outcome, solution=replace(outcome.solution, status=Status.USER_LIMIT))
    return state.after(factored, outcome)


def reduced(form: CanonicalForm, step: Step, coarser: Mapping[Theta, Factor]) -> Factored:
    """The reduction of a step. Its factors are continued from coarser ones where these are known."""
    return Factored(step.options, Reduction(form, _factorize(form, step, coarser)))


def renewed(form: CanonicalForm, factored: Factored) -> Factored | None:
    """The reduction of a form in which some rows have another kernel, with new factors for these.

    None where factors had grown, or Q itself was used: the next solve begins as the first one.
    """
    old = {link.theta: link.rows for link in factored.reduction.form.predictions}
    kept = {t: f for t, f in factored.reduction.factors.items() for link in form.predictions
            if link.theta is t and link.rows is old[t]}  # fmt: skip
    if factored.options.growth or factored.is_whole:
        return None
    others = tuple(link for link in form.predictions if link.theta not in kept)
    made = _factorize(replace(form, predictions=others), Step(factored.options), {})
    return Factored(
        factored.options, Reduction(form, {link.theta: (kept | made)[link.theta] for link in form.predictions})
    )


def is_better(new: Outcome, old: Outcome) -> bool:
    """Whether an answer replaces an earlier one, of a coarser factor: by a smaller certified gap or, where the gaps are
    equal, by a value that is no worse."""
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


def _factored(
    form: CanonicalForm, state: State, step: Step, coarser: Mapping[Theta, Factor], deadline: float
) -> Factored:
    """The reduction of a step, the last one where options are the same."""
    if state.factored is not None and state.factored.options == step.options:
        return state.factored
    with clock.limited(deadline), clock.phase(clock.FACTOR):
        made = reduced(form, replace(step, options=replace(step.options, why=step.options.why or state.why)), coarser)
        if state.best is not None:
            clock.check()  # one call of LAPACK may have taken the time that was left for solving
    return made


def _aimed(goal: Goal, state: State, step: Step, options: FactorOptions, judged: bool) -> Goal:
    """The goal of one round. Only the first takes random starts; later ones know the last lower bound."""
    known = None if state.latest is None else state.latest.solution.certificate
    coarser = step.options.settings != options.settings and options.settings.max_rank is None
    return replace(
        goal, aim=step.aim, known=None if known is None else known.evidence,
        n_init=goal.n_init if state.latest is None else 1, coarse=judged and not state.rounds and coarser,
    )  # fmt: skip


def _found(state: State, goal: Goal) -> Pursued:
    """The best answer, with status USER_LIMIT where time ran out before its gap closed."""
    assert state.best is not None
    assert state.of_best is not None
    outcome, is_over = state.best, goal.seconds_left() <= 0
    if outcome.solution.status == Status.OPTIMAL_INACCURATE and is_over:
        outcome = replace(outcome, solution=replace(outcome.solution, status=Status.USER_LIMIT))
    outcome = replace(outcome, interrupted=state.interrupted)
    return Pursued(outcome, state.attempts, state.rounds, state.of_best, is_over)


def _is_too_coarse(outcome: Outcome, reduction: Reduction) -> bool:
    """Whether the restriction of θ is to blame for the gap, although no solver closed the reduced problem's own gap."""
    known = outcome.solution.certificate
    # A solver may have met a limit of its own; the caller's time is not over here.
    left_open = outcome.solution.status in (Status.OPTIMAL_INACCURATE, Status.USER_LIMIT)
    if known is None or not left_open or not reduction.is_restriction:
        return False
    least = least_gap(outcome.attempts)
    if not isfinite(least):  # constraints that hardly any θ in the span meets may leave no multipliers
        return bool(reduction.form.outer.constraints)
    return known.scope == FULL and known.relative_gap > BLAME * least


def _certified_gap(found: Certificate) -> float:
    """The gap to the optimum with the full kernel matrix, ∞ where it is not known."""
    return found.absolute_gap if found.scope == FULL and isfinite(found.absolute_gap) else inf


def _first(
    stated: Stated, options: FactorOptions, judged: bool, grows: bool, left: Left
) -> tuple[Step | None, Mapping[Theta, Factor]]:
    """The first step, and the factors that it continues: as fine as asked for, coarser where a certificate judges
    them, or as fine as an earlier solve needed."""
    first = policy.first(options, stated.rows) if judged else options
    if grows and (stated.form.outer.is_mixed_integer() or stated.is_tied):
        first = policy.full(options)  # with integers no certificate could ask for a finer one later
    if left.factored is None or left.asked is None:
        return Step(first), {}
    # Where the caller leaves the rank open, another rank_tol alone is no reason to factor again.
    tolerance = options.settings.rank_tol if grows else left.asked.settings.rank_tol
    same = replace(
        left.asked, functions=options.functions, settings=replace(left.asked.settings, rank_tol=tolerance)
    )  # fmt: skip
    if same != options:
        return Step(first), {}
    known, factors = left.factored.options, left.factored.reduction.factors
    if known.growth and known.functions != options.functions:  # the same pivots, with or without functions
        return Step(replace(known, functions=options.functions, growth=known.growth + 1)), factors
    lower = (known.settings.max_rank or inf) < (first.settings.max_rank or inf)
    fine_enough = (known.growth > 0 and grows) or (known.settings.rank_tol <= first.settings.rank_tol and not lower)
    return Step(known if fine_enough else first), {}


def _factorize(form: CanonicalForm, step: Step, coarser: Mapping[Theta, Factor]) -> dict[Theta, Factor]:
    """The factors by θ. θs with the same kernel and rows share one."""
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
            make = partial(
                factorize, options.method, link.rows, options.settings, options.memory_limit, start, options.layout
            )
            shared = options.cache if start is None and options.layout is None else None
            found = make() if shared is None else shared.factor(link.rows, (options.method, options.settings), make)
            made[name] = replace(found, why=options.why) if options.why else found
        factors[link.theta] = made[name]
    return factors


def _round(factors: Mapping[Theta, Factor], found: Certificate | None, seconds: float) -> Round:
    kept = {id(f): f for f in factors.values()}.values()
    bounds = (nan, nan, nan) if found is None or found.solver else (found.lower, found.upper, found.relative_gap)
    return Round(sum(f.rank for f in kept), sum(len(f.pivots) for f in kept), *bounds, seconds)


def _ranks(factors: Mapping[Theta, Factor]) -> list[int]:
    return [factor.rank for factor in factors.values()]
