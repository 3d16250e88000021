"""Declare kernel learning problems: state a problem in θ, get θ back.

    minimize f(Aθ, ‖θ‖, y)

θ may have infinitely many entries; it enters through predictions Aθ and its norm. See `Problem`.
"""

from importlib import import_module
from importlib.metadata import version
from typing import Any

from kernelopt import errors, feature_space, kernels, losses, plots, testing
from kernelopt.cross_validation import cross_validate
from kernelopt.expressions import FeatureMatrix, Theta, norm, sum_squares
from kernelopt.functions import Function
from kernelopt.kernel_selection import (
    aligned_kernel,
    kernel_alignment,
    log_marginal_likelihood,
    maximize_likelihood,
)
from kernelopt.left_out import approximate_leave_one_out
from kernelopt.losses import margin
from kernelopt.model_selection import leave_one_out
from kernelopt.paths import path
from kernelopt.persistence import load, save
from kernelopt.predictors import Predictor
from kernelopt.problem import Problem
from kernelopt.smooth import SmoothLoss

__version__ = version("kernelopt")
__all__ = [
    "FeatureMatrix",
    "Function",
    "Predictor",
    "Problem",
    "SmoothLoss",
    "Theta",
    "__version__",
    "aligned_kernel",
    "approximate_leave_one_out",
    "cross_validate",
    "errors",
    "feature_space",
    "kernel_alignment",
    "kernels",
    "leave_one_out",
    "load",
    "log_marginal_likelihood",
    "losses",
    "margin",
    "maximize_likelihood",
    "norm",
    "path",
    "plots",
    "save",
    "sum_squares",
    "testing",
]


def __getattr__(name: str) -> Any:
    """`ko.estimators` is imported when it is first used: it needs scikit-learn, and the rest does not."""
    if name == "estimators":
        return import_module("kernelopt.estimators")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
