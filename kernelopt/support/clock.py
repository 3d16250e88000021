"""The one clock that all times of a solve are read from, and the deadline of a call, for loops deep inside of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from time import perf_counter

# Seconds that each step may take which an answer needs, such as its bounds, where the time is over: larger ones overrun
# the limit, smaller ones leave answers without bounds.
LAST = 0.5

_deadline: ContextVar[float] = ContextVar("deadline", default=inf)
_end: ContextVar[float] = ContextVar("end", default=inf)


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
