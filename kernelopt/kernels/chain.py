"""Derivatives of composed kernels by Faà di Bruno's formula."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from kernelopt.support.types import Array

# More steps have many more partitions than blocks, 4140 and 255 for eight steps: then values of blocks are kept. Kernel
# matrices have at most so many steps, and their blocks are computed again rather than held in memory together.
FEW = 4

Order = tuple[int, ...]  # the columns that are differentiated by: () the value, (j,) ∂/∂xⱼ, (i, j) ∂²/∂xᵢ∂xⱼ


class ChainStep(NamedTuple):
    """One derivative, by a column of x (`left`) or of z."""

    left: bool
    column: int


def steps(dx: Order, dz: Order) -> list[ChainStep]:
    """The derivatives in x by the columns dx, then those in z by the columns dz."""
    return [*(ChainStep(True, j) for j in dx), *(ChainStep(False, j) for j in dz)]


def orders(block: Sequence[ChainStep]) -> tuple[Order, Order]:
    """The columns of x and of z that the steps differentiate by; the inverse of `steps`."""
    return tuple(s.column for s in block if s.left), tuple(s.column for s in block if not s.left)


def partitions(items: Sequence[ChainStep]) -> Iterator[list[list[ChainStep]]]:
    """All ways to split steps into blocks; for no steps, the empty partition alone."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for partition in partitions(rest):
        yield [[first], *partition]
        for i, block in enumerate(partition):
            yield [*partition[:i], [first, *block], *partition[i + 1 :]]


def remembered(inner: Callable[[list[ChainStep]], Any]) -> Callable[[list[ChainStep]], Any]:
    """The function, which computes the value of each block once."""
    known: dict[tuple[ChainStep, ...], Any] = {}

    def value(block: list[ChainStep]) -> Any:
        key = tuple(block)
        if key not in known:
            known[key] = inner(block)
        return known[key]

    return value


def chain(outer: Sequence[Array], inner: Callable[[list[ChainStep]], Any], taken: Sequence[ChainStep]) -> Array:
    """∂ of g(φ) = Σ over partitions π of g⁽|π|⁾(φ)·Π_{B ∈ π} ∂_Bφ, with outer[k] = g⁽ᵏ⁾(φ) and inner(B) = ∂_Bφ.

    Partitions with a block of inner(B) = 0 are skipped.
    """
    total: Any = 0.0 * outer[0]
    inner = remembered(inner) if len(taken) > FEW else inner
    for partition in partitions(list(taken)):
        parts = [inner(block) for block in partition]
        if any(isinstance(part, (int, float)) and part == 0 for part in parts):
            continue
        term = outer[len(partition)]
        for part in parts:
            term = term * part
        total = total + term
    return total
