"""Work that is undone where it raises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def undone_by_errors(restore: Callable[[], None]) -> Iterator[None]:
    """A context that restores what was before where an error, or Ctrl-C, leaves it."""
    try:
        yield
    except BaseException:
        restore()
        raise
