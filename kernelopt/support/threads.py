"""Independent blocks of work in as many threads as BLAS would use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from threadpoolctl import ThreadpoolController

A = TypeVar("A")
B = TypeVar("B")


def in_threads(work: Callable[[A], B], items: Sequence[A]) -> list[B]:
    """work(item) for each item. Where BLAS has several threads, items run in parallel, with one BLAS thread each.

    Half of the work for kernel values is exponentials, which BLAS does not compute.
    """
    if len(items) < 2:
        return [work(item) for item in items]
    controller = ThreadpoolController()
    threads = max((library["num_threads"] for library in controller.select(user_api="blas").info()), default=1)
    if threads < 2:
        return [work(item) for item in items]
    with controller.limit(limits=1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, items))
