"""The time that a call may take, for loops deep inside of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from time import perf_counter

_deadline: ContextVar[float] = ContextVar("deadline", default=inf)


class OutOfTimeError(Exception):
    """The time limit was reached; whoever set it keeps what there is."""


@contextmanager
def limited(deadline: float) -> Iterator[None]:
    """Within, `check` raises after a time on `perf_counter`."""
    token = _deadline.set(deadline)
    try:
        yield
    finally:
        _deadline.reset(token)


def seconds_left() -> float:
    """Until the deadline; inf where there is none."""
    return _deadline.get() - perf_counter()


def check() -> None:
    """Raise OutOfTimeError after the deadline."""
    if seconds_left() <= 0:
        raise OutOfTimeError
