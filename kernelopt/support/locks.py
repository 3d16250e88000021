"""Locks that a forked process finds free, where a thread that it does not have held them."""

from __future__ import annotations

import os
from threading import RLock
from weakref import WeakSet

# Held while modules are imported within a function: a fork waits until they are whole.
importing = RLock()
_locks: WeakSet[Lock] = WeakSet()
_in_child: list[bool] = []


class Lock:
    """A lock for `with`, which the thread that holds it may take again.

    What it guards is set anew by whoever holds it, so that work that the fork cut short does no harm.
    """

    def __init__(self) -> None:
        self._renew()
        _locks.add(self)

    def _renew(self) -> None:
        self._lock = RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def is_forked() -> bool:
    """Whether this process was forked after the import: it has no other threads then, nor pools of threads."""
    return bool(_in_child)


def _after_fork() -> None:
    importing.release()
    _in_child[:] = [True]
    for lock in _locks:
        lock._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=importing.acquire, after_in_parent=importing.release, after_in_child=_after_fork)
