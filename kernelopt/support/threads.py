"""Threads of BLAS: independent blocks of work in as many, and one pool of them where numpy and scipy have one each."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ContextDecorator, contextmanager, nullcontext
from contextvars import copy_context
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from kernelopt.support.locks import Lock

A = TypeVar("A")
B = TypeVar("B")

# Order of a matrix whose factorization by scipy gets all threads within `one_pool`. On two cores, a Cholesky factor
# and the products after it took as long with one thread as with two at order 3000, and 1.4 times as long at order 5000.
LARGE = 4000
AHEAD = 2  # items per thread that wait for their turn, or for the caller; each may hold a block of memory


class _Limit(ContextDecorator):
    """A context with one thread for each of some libraries. It ends with the last of the contexts that overlap."""

    def __init__(self, libraries: Callable[[], Sequence[Any]]) -> None:
        self._libraries, self._lock = libraries, Lock()
        self._users, self._before = 0, dict[Any, int]()

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._before = self._before or self._threads()
                self._set(1)
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._set(None)
                self._before = {}

    def _threads(self) -> dict[Any, int]:
        """Those of libraries with several."""
        return {library: n for library in self._libraries() if (n := library.get_num_threads()) > 1}

    def _set(self, threads: int | None) -> None:
        """So many threads; None for as many as before."""
        for library, before in self._before.items():
            library.set_num_threads(before if threads is None else threads)

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """As many threads as before, until this context ends."""
        with self._lock:
            self._set(None)
        try:
            yield
        finally:
            with self._lock:
                self._set(1)

    def forget_users(self) -> None:
        """In a forked process, which has no other threads. Who uses the limit next gives back what they took."""
        self._users = 0


@cache
def _libraries() -> tuple[Any, ...]:
    return tuple(ThreadpoolController().select(user_api="blas").lib_controllers)


@cache
def _second_pools() -> tuple[Any, ...]:
    """scipy's copies of BLAS, where numpy has one of its own."""
    of_numpy, of_scipy = ([x for x in _libraries() if _belongs(x.filepath, name)] for name in ("numpy", "scipy"))
    return tuple(of_scipy) if of_numpy else ()


def _belongs(path: str, package: str) -> bool:
    """Whether a library lies in a package's wheel: in package.libs, or in package/.dylibs."""
    return any(part in (package, f"{package}.libs") for part in Path(path).parts[-3:-1])


_single = _Limit(_libraries)
_one_pool = _Limit(_second_pools)


def in_threads(work: Callable[[A], B], items: Sequence[A]) -> list[B]:
    """work(item) for each item. Where BLAS has several threads, items run in parallel, with one BLAS thread each.

    Half of the work for kernel values is exponentials, which BLAS does not compute.
    """
    return list(in_order(work, items))


def in_order(work: Callable[[A], B], items: Sequence[A], most: int | None = None) -> Iterator[B]:
    """work(item) for each item in turn, while threads are at work on the next ones: at most `most` at a time.

    They have numpy's error state and the deadline of the caller. Where the caller stops, no further item is begun.
    """
    threads = max((library.get_num_threads() for library in _libraries()), default=1) if len(items) > 1 else 1
    threads = min(threads, most or threads, len(items))
    if threads < 2:
        yield from map(work, items)
        return
    begun = deque[Future[B]]()
    with _single, ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                begun.append(pool.submit(copy_context().run, work, item))
                if len(begun) > AHEAD * threads:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for one in begun:
                one.cancel()


def one_pool() -> _Limit:
    """In this context, or a function that it decorates, scipy's BLAS has one thread, if numpy has a BLAS of its own.

    The packages of PyPI have a copy of OpenBLAS each, and each copy has threads for all cores. After a call these spin
    for some milliseconds, since the next call might come soon. Where calls of both alternate, as here, threads of one
    copy take the cores from the other. numpy's products take most of the time, so that it keeps its threads. The limit
    holds for the process.
    """
    return _one_pool


def for_factoring(order: int) -> AbstractContextManager[None]:
    """In this context scipy has its threads also within `one_pool`, if the matrix to factor is large."""
    return nullcontext() if order < LARGE else _one_pool.lifted()


def _after_fork() -> None:
    for limit in (_single, _one_pool):
        limit.forget_users()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
