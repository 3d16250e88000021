"""How fine a factor is at first, and how it grows: what the certificate asks for, and no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite, log

from kernelopt.certificate import Certificate
from kernelopt.driver.options import FactorOptions
from kernelopt.driver.strategy import Outcome, least_gap
from kernelopt.factorization import AUTO, FEW, FLOOR, CholeskyFactor, Factor, Guide
from kernelopt.factorization.dense import needed
from kernelopt.factorization.memory import allowed_bytes
from kernelopt.language.expressions import Theta
from kernelopt.results.history import Round
from kernelopt.results.solution import Status

MANY = 1000  # rows from which a factor starts coarse
COARSER = 100.0  # the tolerance of the rank that a factor of many rows begins with, in units of the default
FINER = 1e-2  # the next tolerance of the rank in units of the last, where no gap says how fine it must be
FINEST_STEP, COARSEST_STEP, MARGIN = 1e-4, 0.1, 0.3  # where one does: in proportion to tol over gap, with a margin
FIRST, LEAST = 3.5, 100  # columns that a streamed factor begins with: 3.5√N, at least 100
MORE = 0.5  # pivots that are added where nothing is known of what they bring, in units of those that there are
LEAST_SHARE, MOST_SHARE = 0.2, 1.0  # where something is, no fewer and no more
AHEAD = 1.1  # and a little more than expected, so that another round is not needed
FAST = 2.5  # a gap that shrinks by this factor and more needs no new pivots beside new functions
FLAT = 0.3  # of the trace that 3.5√N columns leave, from which N/5 and more are expected to be needed
MOST_ROWS = 12_000  # of a factor of the whole matrix on suspicion: its N³/3 flops take some 20 s
GAIN = 0.9  # of the gap: less is no progress
LOOSE, SHARE = 0.1, 2.0  # the gap to which the first small problem is solved; later ones, in units of the last gap


@dataclass(frozen=True)
class Step:
    """The next factors: by `options` where they are made again; a streamed one gets `columns` more, by its guide."""

    options: FactorOptions
    columns: int = 0
    guides: Mapping[Theta, Guide] = field(default_factory=dict)
    aim: float = 0.0

    @property
    def grows(self) -> bool:
        """Whether more columns are expected, rather than a more exact answer with the same ones."""
        return bool(self.guides) or not self.aim


def first(options: FactorOptions, rows: int) -> FactorOptions:
    """The options, coarser where there are many rows: a solve costs the square of the rank."""
    if rows > MANY:
        options = _with_tolerance(options, options.settings.rank_tol * COARSER)
    if rows > FEW or options.layout is not None:
        most = max(int(FIRST * rows**0.5), LEAST)
        most = min(options.settings.max_rank or most, most)
        options = replace(options, settings=replace(options.settings, max_rank=most))
    return options


def full(options: FactorOptions) -> FactorOptions:
    """The options at full numerical rank."""
    return _with_tolerance(options, FLOOR)


@dataclass(frozen=True, eq=False)
class View:
    """What is known after a round, that of the last of `rounds`.

    asked : what the caller's options say; last : how the factors were made; may_grow : whether θ restricted to their
    span is at fault, or their solver; judged : whether certificates say how fine factors must be
    """

    asked: FactorOptions
    last: FactorOptions
    factors: Mapping[Theta, Factor]
    outcome: Outcome
    rounds: Sequence[Round]
    tol: float
    may_grow: bool
    judged: bool

    @property
    def known(self) -> Certificate | None:
        return self.outcome.solution.certificate

    @property
    def rank(self) -> int:
        return max((f.rank for f in self.factors.values() if f.grows), default=0)

    @property
    def most(self) -> float:
        return self.asked.settings.max_rank or inf

    @property
    def is_guided(self) -> bool:
        """Whether factors grow by what multipliers say."""
        return self.may_grow and bool(self.outcome.guides) and any(f.grows for f in self.factors.values())


def next_step(view: View) -> Step | None:
    """The first step of `RULES` that applies; None where nothing more is to be done, or a limit is reached."""
    step = next((step for rule in RULES if (step := rule(view)) is not None), None)
    return None if step is None else progressing(step, view.rounds, view.tol)


def more_exactly(view: View) -> Step | None:
    """The same factors, solved to a smaller gap, where the solver is to blame for most of the certified one."""
    if not view.is_guided or view.rank >= view.most or not view.outcome.inexact:
        return None
    return Step(replace(view.last, growth=view.last.growth + 1), 0, {}, _aim(view))


def whole_matrix(view: View) -> Step | None:
    """The N×N array, where pivots must be added and the spectrum is flat: the factor will have a large share of N
    columns in the end, one round after the other, and small systems look entries of BBᵀ up that they would compute."""
    asked = view.asked
    chosen = asked.method != AUTO or asked.layout is not None or asked.settings.max_rank is not None
    if chosen or not asked.functions or not view.is_guided:  # without functions θ is asked to stand on few rows
        return None
    growing = [f for f in view.factors.values() if f.grows]
    flat = [f for f in growing if f.residual > FLAT and len(f.B) <= MOST_ROWS]
    bytes_needed = sum(3 * needed(len(f.B)) / 2 for f in growing)  # Q, B and BBᵀ
    if len(flat) < len(growing) or bytes_needed > allowed_bytes(asked.memory_limit) or _by_functions(view):
        return None
    why = f"flat spectrum: {max(f.residual for f in flat):.2g} of the trace is left by {view.rank} columns"
    return Step(replace(asked, method="cholesky", why=why))


def _by_functions(view: View) -> bool:
    """Whether functions Aᵀν alone shrink the gap fast."""
    rounds, guides = view.rounds, view.outcome.guides
    expands = view.last.functions and all(guide.products is not None for guide in guides.values())
    return expands and isfinite(rounds[-1].gap) and (len(rounds) == 1 or rounds[-2].gap > FAST * rounds[-1].gap)


def more_columns(view: View) -> Step | None:
    """Columns where multipliers miss most: functions Aᵀν alone as long as these shrink the gap fast, and pivots."""
    if not view.is_guided or view.rank >= view.most:
        return None
    again = finer(view.last, view.asked, view.factors, view.known, view.tol)
    rounds, guides = view.rounds, view.outcome.guides
    options = view.last if again is None else again.options
    settings = replace(options.settings, max_rank=view.asked.settings.max_rank)
    options = replace(options, settings=settings, growth=view.last.growth + 1)
    columns = 0 if _by_functions(view) else _more(view.rank, rounds, view.tol)
    return Step(options, int(min(columns, view.most - view.rank)), guides, _aim(view))


def smaller_trace(view: View) -> Step | None:
    """Factors made again, or further, to a smaller trace, where no multipliers say what they miss."""
    if not view.may_grow or view.is_guided:
        return None
    return finer(view.last, view.asked, view.factors, view.known, view.tol)


def all_pivots(view: View) -> Step | None:
    """All pivots that arithmetic can tell apart, once, where the trace says that nothing is left and the certificate
    that something is: a penalty of 1e-10·trace(Q)/N feels what is 1e-13 of the trace."""
    last, known, asked = view.last, view.known, view.asked
    if not view.judged or last.settings.finest or asked.settings.max_rank is not None:
        return None
    if known is None or known.assumptions or not isfinite(known.relative_gap):
        return None
    if view.outcome.solution.status != Status.OPTIMAL_INACCURATE or least_gap(view.outcome.attempts) > view.tol:
        return None
    if not any(isinstance(f, CholeskyFactor) and f.rank < len(f.B) for f in view.factors.values()):
        return None
    return Step(replace(last, growth=0, settings=replace(last.settings, rank_tol=FLOOR, finest=True)))


# What follows a round that did not close the gap: the first that applies.
RULES: tuple[Callable[[View], Step | None], ...] = (more_exactly, whole_matrix, more_columns, smaller_trace, all_pivots)


def _aim(view: View) -> float:
    """The gap to which the next reduced problem is solved."""
    gap = view.rounds[-1].gap
    return max(view.tol, min(SHARE * gap if isfinite(gap) else inf, LOOSE))


def instead(
    step: Step, asked: FactorOptions, factors: Mapping[Theta, Factor], known: Certificate | None, tol: float
) -> Step | None:
    """What follows a step that changed no factor: pivots where it was functions alone, else a smaller trace."""
    rank = max(f.rank for f in factors.values())
    room = int(min(MORE * rank, (asked.settings.max_rank or inf) - rank))
    if step.guides and step.columns == 0 and room > 0:
        return replace(step, options=replace(step.options, growth=step.options.growth + 1), columns=room)
    again = finer(step.options, asked, factors, known, tol)
    settings = step.options.settings
    coarse = any(f.residual > settings.rank_tol for f in factors.values())
    if again is None and step.guides and coarse and room > 0:
        again = Step(step.options)  # what multipliers did not ask for
    return None if again is None else replace(again, options=replace(again.options, growth=0))


def _more(rank: int, rounds: Sequence[Round], tol: float) -> int:
    """Pivots to add: where the logarithm of the gap, which falls about as the rank grows, will have reached tol."""
    least, most = max(int(LEAST_SHARE * rank), LEAST // 4), int(MOST_SHARE * rank)
    if not isfinite(rounds[-1].gap):
        return most  # θ can't meet the constraints yet
    if len(rounds) < 2 or rounds[-1].rank <= rounds[-2].rank or not 0 < rounds[-1].gap < rounds[-2].gap < inf:
        return int(MORE * rank)
    slope = log(rounds[-2].gap / rounds[-1].gap) / (rounds[-1].rank - rounds[-2].rank)
    return int(min(max(AHEAD * log(max(rounds[-1].gap / tol, 1.0)) / slope, least), most))


def finer(
    last: FactorOptions, asked: FactorOptions, factors: Mapping[Theta, Factor], known: Certificate | None, tol: float
) -> Step | None:
    """The next finer factor by its trace, None where there is none: what a restriction costs goes with the trace."""
    most = asked.settings.max_rank
    if last.settings.rank_tol <= FLOOR or (most is not None and all(f.rank >= most for f in factors.values())):
        return None
    gap = inf if known is None else known.relative_gap
    share = min(max(MARGIN * tol / gap, FINEST_STEP), COARSEST_STEP) if isfinite(gap) and gap > 0 else FINER
    settings = replace(last.settings, max_rank=most)
    return Step(_with_tolerance(replace(last, settings=settings), share * settings.rank_tol))


def progressing(step: Step, rounds: Sequence[Round], tol: float) -> Step | None:
    """The step, more exact where the last one with the same factors gained nothing; None where it was exact."""
    if step.grows or len(rounds) < 2 or rounds[-1].rank != rounds[-2].rank or rounds[-1].gap < GAIN * rounds[-2].gap:
        return step
    return replace(step, aim=tol) if step.aim > tol else None


def _with_tolerance(options: FactorOptions, rank_tol: float) -> FactorOptions:
    return replace(options, settings=replace(options.settings, rank_tol=max(rank_tol, FLOOR)))
