"""How fine the first factor is, and how factors grow: as far as the certificate asks for, and no further."""

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

# Rows above which a factor starts coarse. A coarse factor makes solves cheaper, and further rounds likely; with fewer
# rows a solve at full rank costs too little for that.
MANY = 1000
# The first rank_tol with many rows, in units of the one asked for: larger values make the first round cheaper, and a
# second one more likely.
COARSER = 100.0
# The next rank_tol in units of the last one, where no gap tells how fine it must be: larger values take more rounds,
# smaller ones higher ranks than needed.
FINER = 1e-2
# Where a gap tells, the next rank_tol is MARGIN·tol/gap times the last one, within these limits: the gap that a
# restriction costs is about in proportion to its trace.
FINEST_STEP, COARSEST_STEP, MARGIN = 1e-4, 0.1, 0.3
# A streamed factor begins with max(3.5√N, 100) columns. Their Nr² ≈ 12N² flops are about the price of the pass over the
# kernel that a certificate makes.
FIRST, LEAST = 3.5, 100
# Pivots to add in units of the rank, where no earlier round shows how they shrink the gap: larger values overshoot the
# rank that is needed, smaller ones take more rounds, each with a pass over the kernel.
MORE = 0.5
LEAST_SHARE, MOST_SHARE = 0.2, 1.0  # limits in the same units, where one does: an extrapolation may be far off
AHEAD = 1.1  # times the pivots that are expected to suffice: 10 % more columns cost less than another round
FAST = 2.5  # where the gap shrinks by more than this factor per round, functions are added without pivots
GAIN = 0.9  # a gap of this share of the last one or more is no progress
# Reduced problems are solved to SHARE times the last certified gap, and to LOOSE at most. A tighter goal is wasted
# where the restriction of θ makes up the rest of the gap.
LOOSE, SHARE = 0.1, 2.0
# Share of the trace that 3.5√N columns leave, from which the spectrum counts as flat: N/5 columns and more are expected
# to be needed then.
FLAT = 0.3
MOST_ROWS = 12_000  # up to which a flat spectrum leads to the whole matrix: its N³/3 flops take some 20 s


@dataclass(frozen=True)
class Step:
    """The next round: `options` make new factors, or add `columns` pivots to streamed ones, chosen by `guides`.

    aim : the relative gap to which the reduced problem is solved, 0 for tol
    """

    options: FactorOptions
    columns: int = 0
    guides: Mapping[Theta, Guide] = field(default_factory=dict)
    aim: float = 0.0

    @property
    def grows(self) -> bool:
        """Whether factors get more columns, rather than a more exact answer with the same ones."""
        return bool(self.guides) or not self.aim


def first(options: FactorOptions, rows: int) -> FactorOptions:
    """The options, coarser for many rows, since the cost of a solve grows with the square of the rank."""
    if rows > MANY:
        options = _with_tolerance(options, options.settings.rank_tol * COARSER)
    if rows > FEW or options.layout is not None:
        most = first_columns(rows)
        most = min(options.settings.max_rank or most, most)
        options = replace(options, settings=replace(options.settings, max_rank=most))
    return options


def first_columns(rows: int) -> int:
    """The columns that a streamed factor begins with."""
    return max(int(FIRST * rows**0.5), LEAST)


def least(options: FactorOptions) -> FactorOptions:
    """The options for a factor of one column, as quickly as it can be made: in this process, which waits for none."""
    settings = replace(options.settings, max_rank=1, checked=False)
    return replace(options, method="streamed", settings=settings, cache=None, layout=None)


def full(options: FactorOptions) -> FactorOptions:
    """The options at full numerical rank."""
    return _with_tolerance(options, FLOOR)


@dataclass(frozen=True, eq=False)
class View:
    """What is known after the last of `rounds`.

    asked : the caller's options; last : the options of these factors; may_grow : whether the restriction of θ to their
    span, or the solver, is to blame for the gap; judged : whether certificates decide how fine factors must be
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
        """Whether multipliers choose the columns by which factors grow."""
        return self.may_grow and bool(self.outcome.guides) and any(f.grows for f in self.factors.values())


def next_step(view: View) -> Step | None:
    """The step of the first rule that applies; None where none does, or where no progress can be expected."""
    step = next((step for rule in RULES if (step := rule(view)) is not None), None)
    return None if step is None else progressing(step, view.rounds, view.tol)


def more_exactly(view: View) -> Step | None:
    """The same factors, solved to a smaller gap, where the solver is to blame for most of the certified gap."""
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
    return Step(replace(asked, method="cholesky", why=flat_spectrum(flat)))


def flat_spectrum(factors: Sequence[Factor]) -> str:
    """How flat the spectra are, in words."""
    left, rank = max(f.residual for f in factors), max(f.rank for f in factors)
    return f"flat spectrum: {left:.2g} of the trace is left by {rank} columns"


def _by_functions(view: View) -> bool:
    """Whether functions Aᵀν alone shrink the gap fast."""
    rounds, guides = view.rounds, view.outcome.guides
    expands = view.last.functions and all(guide.products is not None for guide in guides.values())
    return expands and isfinite(rounds[-1].gap) and (len(rounds) == 1 or rounds[-2].gap > FAST * rounds[-1].gap)


def more_columns(view: View) -> Step | None:
    """More columns, chosen by multipliers: functions Aᵀν alone while these shrink the gap fast, else pivots, too."""
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
    """Factors with a smaller trace of Q − BBᵀ, where no multipliers choose columns."""
    if not view.may_grow or view.is_guided:
        return None
    return finer(view.last, view.asked, view.factors, view.known, view.tol)


def all_pivots(view: View) -> Step | None:
    """All pivots that arithmetic can tell apart, once, where no other rule applies and the gap is open.

    With a penalty of 1e-10·trace(Q)/N a rest of 1e-13 of the trace still matters.
    """
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


# After a round that left the gap open, the first of these that applies gives the next step.
RULES: tuple[Callable[[View], Step | None], ...] = (more_exactly, whole_matrix, more_columns, smaller_trace, all_pivots)


def _aim(view: View) -> float:
    """The relative gap to which the next reduced problem is solved."""
    gap = view.rounds[-1].gap
    return max(view.tol, min(SHARE * gap if isfinite(gap) else inf, LOOSE))


def instead(
    step: Step, asked: FactorOptions, factors: Mapping[Theta, Factor], known: Certificate | None, tol: float
) -> Step | None:
    """The step after one that changed no factor: pivots where that one added functions alone, else a smaller trace."""
    rank = max(f.rank for f in factors.values())
    room = int(min(MORE * rank, (asked.settings.max_rank or inf) - rank))
    if step.guides and step.columns == 0 and room > 0:
        return replace(step, options=replace(step.options, growth=step.options.growth + 1), columns=room)
    again = finer(step.options, asked, factors, known, tol)
    settings = step.options.settings
    coarse = any(f.residual > settings.rank_tol for f in factors.values())
    if again is None and step.guides and coarse and room > 0:
        again = Step(step.options)  # columns that the multipliers did not choose
    return None if again is None else replace(again, options=replace(again.options, growth=0))


def _more(rank: int, rounds: Sequence[Round], tol: float) -> int:
    """Pivots to add, so many that the gap reaches tol if its logarithm goes on falling linearly in the rank.

    The slope is that since the last round of fewer pivots: a single function may shrink the gap to a half.
    """
    least, most = max(int(LEAST_SHARE * rank), LEAST // 4), int(MOST_SHARE * rank)
    last = rounds[-1]
    if not isfinite(last.gap):
        return most  # θ can't meet the constraints yet
    before = next((r for r in reversed(rounds) if r.rank * (1 + LEAST_SHARE / 2) < last.rank), None)
    if before is None or not 0 < last.gap < before.gap < inf:
        return int(MORE * rank)
    slope = log(before.gap / last.gap) / (last.rank - before.rank)
    return int(min(max(AHEAD * log(max(last.gap / tol, 1.0)) / slope, least), most))


def finer(
    last: FactorOptions, asked: FactorOptions, factors: Mapping[Theta, Factor], known: Certificate | None, tol: float
) -> Step | None:
    """The factor with the next smaller trace; None at the floor or at max_rank."""
    most = asked.settings.max_rank
    if last.settings.rank_tol <= FLOOR or (most is not None and all(f.rank >= most for f in factors.values())):
        return None
    gap = inf if known is None else known.relative_gap
    share = min(max(MARGIN * tol / gap, FINEST_STEP), COARSEST_STEP) if isfinite(gap) and gap > 0 else FINER
    settings = replace(last.settings, max_rank=most)
    return Step(_with_tolerance(replace(last, settings=settings), share * settings.rank_tol))


def progressing(step: Step, rounds: Sequence[Round], tol: float) -> Step | None:
    """The step, but solved to tol where the last one with this rank gained nothing; None where that one was, too."""
    if step.grows or len(rounds) < 2 or rounds[-1].rank != rounds[-2].rank or rounds[-1].gap < GAIN * rounds[-2].gap:
        return step
    return replace(step, aim=tol) if step.aim > tol else None


def _with_tolerance(options: FactorOptions, rank_tol: float) -> FactorOptions:
    return replace(options, settings=replace(options.settings, rank_tol=max(rank_tol, FLOOR)))
