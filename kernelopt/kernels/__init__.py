"""Kernels κ(x, y) = F(x)ᵀF(y) and their composition.

One file per family. To add a kernel: a frozen dataclass that derives from `Kernel`, and its name below.
"""

from kernelopt.kernels.algebra import Product, Scaled, Sum
from kernelopt.kernels.base import Kernel
from kernelopt.kernels.gaussian import Gaussian
from kernelopt.kernels.polynomial import Linear, Polynomial
from kernelopt.kernels.precomputed import Explicit, Precomputed

__all__ = [
    "Explicit",
    "Gaussian",
    "Kernel",
    "Linear",
    "Polynomial",
    "Precomputed",
    "Product",
    "Scaled",
    "Sum",
]
