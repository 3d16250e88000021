"""The one clock that all times of a solve are read from, the deadline of a call, and the seconds of its phases."""

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
_end: ContextVar[float] = ContextVar("end", default=inf)
_spent: ContextVar[dict[str, float] | None] = ContextVar("spent", default=None)


class OutOfTimeError(Exception):
    """The time limit was reached. The caller that set the limit keeps its best answer so far."""


def now() -> float:
    """Seconds on the clock that deadlines and durations are read from. Tests move it."""
    return perf_counter()


@contextmanager
def limited(deadline: float) -> Iterator[None]:
    """In this context `check` raises once `now` reaches the deadline."""
    token = _deadline.set(deadline)
    try:
        yield
    finally:
        _deadline.reset(token)


@contextmanager
def until(end: float) -> Iterator[None]:
    """In this context, which may last longer, no one waits in vain for others past the end; see `given_up`."""
    token = _end.set(end)
    try:
        yield
    finally:
        _end.reset(token)


def given_up(since: float, seconds: float) -> bool:
    """Whether a wait in vain for so many seconds is over. Raises OutOfTimeError where the end of the call is reached
    first; after it, a wait has as much time as any last step."""
    if now() >= max(_end.get(), since + LAST):
        raise OutOfTimeError
    return now() >= since + seconds


def seconds_left() -> float:
    """Seconds until the deadline; inf without a deadline."""
    return _deadline.get() - now()


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
    began, before = now(), sum(spent.values())
    try:
        yield
    finally:
        spent[name] += now() - began - (sum(spent.values()) - before)
