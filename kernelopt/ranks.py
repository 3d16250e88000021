"""How fine a factor is at first, and how fine the next: what the certificate asks for, and no more."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isfinite

from kernelopt.certificate import Certificate
from kernelopt.factorization import FLOOR
from kernelopt.options import FactorOptions

MANY = 1000  # rows from which a factor starts coarse
COARSER = 100.0  # the tolerance of the rank that a factor of many rows begins with, in units of the default
FINER = 1e-2  # the next tolerance of the rank in units of the last, where no gap says how fine it must be
FINEST_STEP, COARSEST_STEP, MARGIN = 1e-4, 0.1, 0.3  # where one does: in proportion to tol over gap, with a margin


def first(options: FactorOptions, rows: int) -> FactorOptions:
    """The options, coarser where there are many rows: a solve costs the square of the rank."""
    return _with_tolerance(options, options.settings.rank_tol * COARSER) if rows > MANY else options


def finer(options: FactorOptions, known: Certificate | None, tol: float) -> FactorOptions | None:
    """The next finer factor, None where there is none: what a restriction of θ costs goes with the trace it leaves."""
    settings = options.settings
    if settings.max_rank is not None or settings.rank_tol <= FLOOR:
        return None
    gap = inf if known is None else known.relative_gap
    share = min(max(MARGIN * tol / gap, FINEST_STEP), COARSEST_STEP) if isfinite(gap) and gap > 0 else FINER
    return _with_tolerance(options, share * settings.rank_tol)


def _with_tolerance(options: FactorOptions, rank_tol: float) -> FactorOptions:
    return replace(options, settings=replace(options.settings, rank_tol=max(rank_tol, FLOOR)))
