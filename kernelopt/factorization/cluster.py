"""Blocks on the workers of a Dask cluster. Tasks are pure: what a lost worker held is made again from its points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelopt.factorization.tall import Arguments, Work
from kernelopt.optional import optional

GROUP = 8  # parts that are summed by one task


@dataclass(frozen=True)
class OnDask:
    """The workers of a `dask.distributed.Client`; blocks are futures."""

    client: Any

    def _submitted(self, function: Work, blocks: Sequence[Any], arguments: Sequence[Arguments]) -> list[Any]:
        return [self.client.submit(function, b, *a, pure=False) for b, a in zip(blocks, arguments, strict=True)]

    def keep(self, function: Work, blocks: Sequence[Any], arguments: Sequence[Arguments]) -> list[Any]:
        return self._submitted(function, blocks, arguments)

    def each(self, function: Work, blocks: Sequence[Any], arguments: Sequence[Arguments]) -> list[Any]:
        return list(self.client.gather(self._submitted(function, blocks, arguments)))

    def total(self, function: Work, blocks: Sequence[Any], arguments: Sequence[Arguments]) -> Any:
        """By a tree of sums, so that one result comes here."""
        parts = self._submitted(function, blocks, arguments)
        while len(parts) > 1:
            groups = [parts[i : i + GROUP] for i in range(0, len(parts), GROUP)]
            parts = [self.client.submit(_sum, group, pure=False) for group in groups]
        return parts[0].result()


def is_client(value: Any) -> bool:
    """Whether a value is a client of Dask's; nothing is imported for it."""
    return type(value).__module__.startswith("distributed.") and hasattr(value, "submit")


def client_in_use() -> Any:
    """The client that a Dask array would be computed on, or None."""
    distributed = optional("distributed", "solve() with Dask arrays")
    try:
        return distributed.get_client()
    except ValueError:
        return None


def _sum(parts: list[Any]) -> Any:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
