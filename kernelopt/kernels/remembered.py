"""Kernels whose functions of pairs are called once for each pair of points."""

from __future__ import annotations

from collections.abc import Hashable

from kernelopt.kernels.cached import Cached
from kernelopt.kernels.callables import FromFunction
from kernelopt.kernels.kernel import Kernel


def remembering(kernel: Kernel, known: dict[Hashable, FromFunction]) -> Kernel:
    """The same kernel, in which functions are called once for each pair of points; see `FromFunction.remembering`.

    `known` has those of kernels before, which share what they remember. A kernel that is cached stays as it is.
    """
    if isinstance(kernel, FromFunction):
        return known.setdefault(_name(kernel), kernel.remembering())
    if isinstance(kernel, Cached) or not kernel.parts:
        return kernel
    parts = [remembering(part, known) for part in kernel.parts]
    same = all(new is old for new, old in zip(parts, kernel.parts, strict=True))
    return kernel if same else kernel._with_parts(parts)


def functions_of(kernel: Kernel) -> dict[Hashable, FromFunction]:
    """The functions of pairs in a kernel, by name, for `remembering` in another."""
    if isinstance(kernel, FromFunction):
        return {_name(kernel): kernel}
    return {name: found for part in kernel.parts for name, found in functions_of(part).items()}


def _name(kernel: FromFunction) -> Hashable:
    return id(kernel.function), kernel.on_lists, kernel.psd  # not all functions can be hashed
