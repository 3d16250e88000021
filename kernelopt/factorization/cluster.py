"""Blocks on the workers of a Dask cluster. Tasks are pure, so that Dask can recompute the blocks of a lost worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import inf, isfinite
from operator import add
from typing import Any, NamedTuple

from kernelopt.errors import SolverError
from kernelopt.factorization import memory
from kernelopt.factorization.block_matrix import Arguments, Work
from kernelopt.support import clock
from kernelopt.support.optional import optional

# Parts that one task sums. Larger groups move more parts to one worker, smaller ones need more rounds of tasks.
GROUP = 8
# The latency of a pass over all blocks, 20 ms, in multiplications that one thread does meanwhile (3e10 per second).
LATENCY = 6e8


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
        known = client.scheduler_info(n_workers=-1)["workers"]
        homes = tuple(address for address in sorted(known) for _ in range(known[address]["nthreads"]))
        limits = [worker["memory_limit"] or inf for worker in known.values()]
        # Without workers there is no limit yet: they may still be starting.
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
        """The results. At the time limit, or when interrupted, tasks that still run are cancelled."""
        left = clock.seconds_left()
        try:
            if isfinite(left):
                optional("distributed", "solve(backend=...)").wait(futures, timeout=max(left, 0.0))
            return list(self.client.gather(futures))
        except TimeoutError as error:
            self.client.cancel(futures)
            raise clock.OutOfTimeError from error
        except KeyboardInterrupt:
            self.client.cancel(futures)
            raise

    def _home(self, number: int) -> str | None:
        return self.homes[number % len(self.homes)] if self.homes else None

    def _submitted(self, function: Work, blocks: Sequence[Any], arguments: Sequence[Arguments]) -> list[Any]:
        if self.client.status != "running":
            raise SolverError("Expected the client that holds B to be open; got one that is closed. Solve again.")
        found = []
        for block, rest in zip(blocks, arguments, strict=True):
            # The home is a preference: where that worker is lost, another one takes the task.
            at = {} if block.home is None else {"workers": [block.home], "allow_other_workers": True}
            known = [a.future if isinstance(a, Placed) else a for a in rest]
            # pure=False only spares Dask the hash of all arguments, from which it would make the task's key.
            found.append(self.client.submit(function, block.future, *known, pure=False, **at))
        return found


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


def _sum(parts: list[Any]) -> Any:
    return reduce(add, parts)
