"""Kernels κ(x, y) = F(x)ᵀF(y) and their composition.

One file per family. To add a kernel: a frozen dataclass that derives from `Kernel`, and its name below.
"""

from kernelopt.kernels import parametrized as parametrized
from kernelopt.kernels.algebra import Difference, Exponential, Power, Product, Scaled, Series, Sum
from kernelopt.kernels.cached import Cached
from kernelopt.kernels.callables import FromFunction, FromSklearn, as_kernel
from kernelopt.kernels.generalized import GeneralizedGaussian
from kernelopt.kernels.histogram import AdditiveChiSquared, Intersection
from kernelopt.kernels.indexed import Indexed
from kernelopt.kernels.kernel import Derivation, Kernel
from kernelopt.kernels.polynomial import (
    Constant,
    Cosine,
    Delta,
    Geometric,
    Linear,
    Polynomial,
    PolynomialSeries,
    Sigmoid,
)
from kernelopt.kernels.precomputed import Explicit, Precomputed
from kernelopt.kernels.stationary import (
    Gaussian,
    Laplacian,
    Matern,
    Periodic,
    RationalQuadratic,
)
from kernelopt.kernels.strings import PositionMatch, Spectrum
from kernelopt.kernels.transforms import ARD, Centered, Columns, Composed, Normalized, Weighted

__all__ = [
    "ARD",
    "AdditiveChiSquared",
    "Cached",
    "Centered",
    "Columns",
    "Composed",
    "Constant",
    "Cosine",
    "Delta",
    "Derivation",
    "Difference",
    "Explicit",
    "Exponential",
    "FromFunction",
    "FromSklearn",
    "Gaussian",
    "GeneralizedGaussian",
    "Geometric",
    "Indexed",
    "Intersection",
    "Kernel",
    "Laplacian",
    "Linear",
    "Matern",
    "Normalized",
    "Periodic",
    "Polynomial",
    "PolynomialSeries",
    "PositionMatch",
    "Power",
    "Precomputed",
    "Product",
    "RationalQuadratic",
    "Scaled",
    "Series",
    "Sigmoid",
    "Spectrum",
    "Sum",
    "Weighted",
    "as_kernel",
]
