"""Blocks on the workers of a Dask cluster. Tasks are pure, so that Dask can recompute the blocks of a lost worker."""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, reduce
from math import inf
from operator import add
from typing import Any, NamedTuple

from kernelopt.errors import ClusterError
from kernelopt.factorization import memory
from kernelopt.factorization.block_matrix import Arguments, Work
from kernelopt.support import clock
from kernelopt.support.optional import optional

# Parts that one task sums. Larger groups move more parts to one worker, smaller ones need more rounds of tasks.
GROUP = 8
# The latency of a pass over all blocks, 20 ms, in multiplications that one thread does meanwhile (3e10 per second).
LATENCY = 6e8
# Seconds without any live worker until the cluster is given up. A nanny restarts a worker, and an adaptive cluster of
# one machine starts one, in 1 to 5 s on a quiet machine. Machines of a cloud and queues of batch jobs take minutes, for
# which users wait with client.wait_for_workers.
WITHOUT_WORKERS = 30.0
# Seconds between two looks at the deadline and the workers. Longer ones overrun the limit, shorter ones ask the
# scheduler more often.
LOOK = 0.1
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's mallopt; the second is 32 MiB at most, which fits all tiles


class Placed(NamedTuple):
    """A block on the cluster: its future, and the worker on which tasks on it run while that worker is alive."""

    future: Any
    home: str | None = None


@dataclass(frozen=True)
class OnDask:
    """The workers of a `dask.distributed.Client`.

    client : the client; homes : a worker's address per thread of the cluster; memory : bytes of all workers, inf where
    a worker has no limit
    """

    client: Any
    homes: tuple[str, ...]
    memory: float = inf

    @staticmethod
    def of(client: Any) -> OnDask:
        """The workers that there are. Raises ClusterError where none come in time, unless a time limit ends first."""
        watch, known = _Watch(client), dict[str, Any]()
        with suppress(clock.OutOfTimeError):
            while not (known := watch.look()):
                time.sleep(LOOK)
        homes = tuple(address for address in sorted(known) for _ in range(known[address]["nthreads"]))
        limits = [worker["memory_limit"] or inf for worker in known.values()]
        return OnDask(client, homes, float(sum(limits)) if limits else inf)

    @property
    def threads(self) -> int:
        return max(len(self.homes), 1)

    @property
    def latency(self) -> float:
        return LATENCY * self.threads

    def allowed_bytes(self, limit: float | None) -> float:
        return memory.SHARE * self.memory if limit is None else limit

    def send(self, blocks: Sequence[Any]) -> list[Placed]:
        return [Placed(self.client.submit(_itself, block, pure=False)) for block in blocks]

    def keep(self, function: Work, blocks: Sequence[Any], arguments: Sequence[Arguments]) -> list[Placed]:
        """New blocks, left on the workers. A block without a home is assigned one, since moving it later would take
        longer than any task on it."""
        homes = [b.home or self._home(k) for k, b in enumerate(blocks)]
        settled = [Placed(b.future, home) for b, home in zip(blocks, homes, strict=True)]
        found = self._submitted(function, settled, arguments)
        return [Placed(future, home) for future, home in zip(found, homes, strict=True)]

    def each(self, function: Work, blocks: Sequence[Any], arguments: Sequence[Arguments]) -> list[Any]:
        return self._gathered(self._submitted(function, blocks, arguments))

    def total(self, function: Work, blocks: Sequence[Any], arguments: Sequence[Arguments]) -> Any:
        """The sum, by a tree of tasks, so that only one result is sent to this process."""
        parts = self._submitted(function, blocks, arguments)
        while len(parts) > 1:
            groups = [parts[i : i + GROUP] for i in range(0, len(parts), GROUP)]
            parts = [self.client.submit(_sum, group, pure=False) for group in groups]
        return self._gathered(parts)[0]

    def _gathered(self, futures: list[Any]) -> list[Any]:
        """The results. At the time limit, when interrupted, and without workers, tasks that still run are cancelled.

        Raises OutOfTimeError, KeyboardInterrupt or ClusterError then.
        """
        client, watch = self.client, _Watch(self.client)

        async def results() -> list[Any]:
            return list(await client.gather(futures, asynchronous=True))

        running = asyncio.run_coroutine_threadsafe(results(), client.loop.asyncio_loop)
        try:
            while True:
                try:
                    return running.result(timeout=max(min(LOOK, clock.seconds_left()), 0.0))
                except TimeoutError:
                    if running.done():  # it is a task's own error
                        raise
                clock.check()
                watch.look()
        except (clock.OutOfTimeError, ClusterError, KeyboardInterrupt):
            client.cancel(futures)  # which ends `running`, too
            raise

    def _home(self, number: int) -> str | None:
        return self.homes[number % len(self.homes)] if self.homes else None

    def _submitted(self, function: Work, blocks: Sequence[Any], arguments: Sequence[Arguments]) -> list[Any]:
        if self.client.status != "running":
            raise ClusterError("Expected the client that holds B to be open; got one that is closed. Solve again.")
        found = []
        for block, rest in zip(blocks, arguments, strict=True):
            # The home is a preference: where that worker is lost, another one takes the task.
            at = {} if block.home is None else {"workers": [block.home], "allow_other_workers": True}
            known = [a.future if isinstance(a, Placed) else a for a in rest]
            # pure=False only spares Dask the hash of all arguments, from which it would make the task's key.
            found.append(self.client.submit(_run, function, block.future, *known, pure=False, **at))
        return found


class _Watch:
    """How long a cluster has been without workers."""

    def __init__(self, client: Any) -> None:
        self.client, self.since = client, clock.now()

    def look(self) -> dict[str, Any]:
        """The live workers. Raises ClusterError where there have been none for too long, and OutOfTimeError where the
        end of the solve is reached first."""
        known = _workers(self.client)
        if known:
            self.since = clock.now()
        elif clock.given_up(self.since, WITHOUT_WORKERS):
            raise ClusterError(
                f"Expected at least one live worker of {self.client}; got none for {clock.now() - self.since:.0f} s. "
                "Start workers, as by cluster.scale(2), and wait for them with client.wait_for_workers(1); or leave "
                "out backend, which computes in this process."
            )
        return known


def _workers(client: Any) -> dict[str, Any]:
    """What the scheduler knows of each worker, by its address. Raises ClusterError where it can't be asked."""
    try:
        return dict(client.scheduler_info(n_workers=-1)["workers"])
    except (OSError, RuntimeError, KeyError) as error:  # a closed client knows of nothing
        got = "a closed client" if isinstance(error, KeyError) else error
        raise ClusterError(f"Expected a scheduler that answers; got {got}. Connect a new client.") from error


def is_client(value: Any) -> bool:
    """Whether a value is a Dask client, told by the module of its type so that Dask need not be imported."""
    return type(value).__module__.startswith("distributed.") and hasattr(value, "submit")


def client_in_use() -> Any:
    """The client that a Dask array would be computed on, or None."""
    distributed = optional("distributed", "solve() with Dask arrays")
    try:
        return distributed.get_client()
    except ValueError:
        return None


def _itself(block: Any) -> Any:
    return block


def _run(function: Work, *arguments: Any) -> Any:
    """A task on a worker, which keeps freed memory for the next one: Dask starts workers so that they return it."""
    _keep_freed_memory()
    return function(*arguments)


@cache
def _keep_freed_memory() -> None:
    """Raise glibc's thresholds of this process, above which freed memory goes back to the system at once.

    Each array of kernel values needs new pages then, which takes as long as the values. Other C libraries have no such
    thresholds.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for threshold, most in ((TRIM_THRESHOLD, 2**30), (MMAP_THRESHOLD, 2**25)):
            mallopt(threshold, most)


def _sum(parts: list[Any]) -> Any:
    return reduce(add, parts)
