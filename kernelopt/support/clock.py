"""The deadline of a call, for loops deep inside of it to check, and the seconds that its phases take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from time import perf_counter

# Seconds that each step may take which an answer needs, such as its bounds, where the time is over: larger ones overrun
# the limit, smaller ones leave answers without bounds.
LAST = 0.5

STATEMENT, FACTOR, SOLVER, PROOF = "statement", "factor", "solver", "proof"

_deadline: ContextVar[float] = ContextVar("deadline", default=inf)
_spent: ContextVar[dict[str, float] | None] = ContextVar("spent", default=None)


class OutOfTimeError(Exception):
    """The time limit was reached. The caller that set the limit keeps its best answer so far."""


@contextmanager
def limited(deadline: float) -> Iterator[None]:
    """In this context `check` raises once `perf_counter` reaches the deadline."""
    token = _deadline.set(deadline)
    try:
        yield
    finally:
        _deadline.reset(token)


def seconds_left() -> float:
    """Seconds until the deadline; inf without a deadline."""
    return _deadline.get() - perf_counter()


def for_last_steps() -> float:
    """Seconds that a step may take which an answer needs, also where the time is over."""
    return max(seconds_left(), LAST)


def check() -> None:
    """Raise OutOfTimeError once the deadline is reached."""
    if seconds_left() <= 0:
        raise OutOfTimeError


@contextmanager
def recorded() -> Iterator[dict[str, float]]:
    """The seconds of each phase that runs in this context."""
    spent = dict.fromkeys((STATEMENT, FACTOR, SOLVER, PROOF), 0.0)
    token = _spent.set(spent)
    try:
        yield spent
    finally:
        _spent.reset(token)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Count the seconds in this context for a phase; those of a phase within it are counted for that one alone."""
    spent = _spent.get()
    if spent is None:
        yield
        return
    began, before = perf_counter(), sum(spent.values())
    try:
        yield
    finally:
        spent[name] += perf_counter() - began - (sum(spent.values()) - before)
