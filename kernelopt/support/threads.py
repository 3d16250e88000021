"""Independent blocks in as many threads as BLAS would take for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from threadpoolctl import ThreadpoolController

A = TypeVar("A")
B = TypeVar("B")


def in_threads(work: Callable[[A], B], items: Sequence[A]) -> list[B]:
    """work(item) of each; with several items and BLAS threads, each item in a thread of its own with one for BLAS.

    Kernel values are half exponentials, which BLAS's threads do not share out.
    """
    if len(items) < 2:
        return [work(item) for item in items]
    controller = ThreadpoolController()
    threads = max((library["num_threads"] for library in controller.select(user_api="blas").info()), default=1)
    if threads < 2:
        return [work(item) for item in items]
    with controller.limit(limits=1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, items))
