"""Kernels κ(x, y) = F(x)ᵀF(y) and their composition.

One file per family. To add a kernel: a frozen dataclass that derives from `Kernel`, and its name below.
"""

from typing import TYPE_CHECKING

from kernelopt.kernels import parametrized as parametrized
from kernelopt.kernels.algebra import Difference, Exponential, Power, Product, Scaled, Series, Sum
from kernelopt.kernels.cached import Cached
from kernelopt.kernels.callables import FromFunction, FromSklearn, as_kernel
from kernelopt.kernels.categorical import Categorical
from kernelopt.kernels.generalized import GeneralizedGaussian
from kernelopt.kernels.gower import Gower
from kernelopt.kernels.histogram import AdditiveChiSquared, Intersection
from kernelopt.kernels.indexed import Indexed
from kernelopt.kernels.kernel import Derivation, Kernel
from kernelopt.kernels.missing import MissingIgnored, MissingLevel
from kernelopt.kernels.named_columns import NamedColumns
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
from kernelopt.kernels.spline import Spline, ThinPlate
from kernelopt.kernels.stationary import (
    Gaussian,
    Laplacian,
    Matern,
    Periodic,
    RationalQuadratic,
)
from kernelopt.kernels.strings import PositionMatch, Spectrum
from kernelopt.kernels.transforms import ARD, Centered, Columns, Composed, Normalized, Weighted
from kernelopt.support.keywords import no_such_name

__all__ = [
    "ARD",
    "AdditiveChiSquared",
    "Cached",
    "Categorical",
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
    "Gower",
    "Indexed",
    "Intersection",
    "Kernel",
    "Laplacian",
    "Linear",
    "Matern",
    "MissingIgnored",
    "MissingLevel",
    "NamedColumns",
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
    "Spline",
    "Sum",
    "ThinPlate",
    "Weighted",
    "as_kernel",
]

_GAUSSIAN = "Gaussian(sigma=…), or Gaussian.from_gamma(γ) with γ = 1/(2σ²)"
# Names in scikit-learn, GPflow, GPyTorch, kernlab and textbooks.
_ELSEWHERE = {
    "rbf": _GAUSSIAN,
    "squaredexponential": _GAUSSIAN,
    "exponentiatedquadratic": _GAUSSIAN,
    "expquad": _GAUSSIAN,
    "normal": _GAUSSIAN,
    "rbfdot": "Gaussian.from_gamma(s) for exp(−s‖x − y‖²)",
    "laplace": "Laplacian(sigma=…)",
    "matern12": "Matern(nu=0.5, sigma=…)",
    "matern32": "Matern(nu=1.5, sigma=…)",
    "matern52": "Matern(nu=2.5, sigma=…)",
    "expsinesquared": "Periodic(period=…, sigma=…)",
    "poly": "Polynomial(degree=…, offset=…, scale=…)",
    "polydot": "Polynomial(degree=…, offset=…, scale=…)",
    "quadratic": "Polynomial(degree=2)",
    "vanilladot": "Linear()",
    "dotproduct": "Linear() + Constant(c)",
    "bias": "Constant(value=…)",
    "white": "Delta()",
    "whitenoise": "Delta()",
    "tanh": "Sigmoid(scale=…, offset=…)",
    "tanhdot": "Sigmoid(scale=…, offset=…)",
    "cosinesimilarity": "Cosine()",
    "histogramintersection": "Intersection()",
    "additivechi2": "AdditiveChiSquared()",
    "gram": "Precomputed(Q)",
    "cubicspline": "Spline(order=2, low=…, high=…)",
    "smoothingspline": "Spline(order=2, low=…, high=…)",
    "tps": "ThinPlate(anchors)",
    "thinplatespline": "ThinPlate(anchors)",
    "string": "Spectrum(length) or PositionMatch()",
}
if not TYPE_CHECKING:  # type checkers would take any name for one that the module has
    __getattr__ = no_such_name(__name__, _ELSEWHERE, __all__, "kernel")
