"""Derivatives of kernel matrices by the kernel's parameters."""

from __future__ import annotations

from typing import Any

from kernelopt.kernels.kernel import Kernel
from kernelopt.support.types import Array


def kernel_gradient(kernel: Kernel, X: Array, Z: Array, L: Array, R: Array) -> dict[Any, Array]:
    """The gradient of Σ (LRᵀ)ᵢⱼ κ(xᵢ, zⱼ) by each parameter of the kernel."""
    return {}
