"""Declare kernel learning problems: state a problem in θ, get θ back.

    minimize f(Aθ, ‖θ‖, y)

θ may have infinitely many entries; it enters through predictions Aθ and its norm. See `Problem`.
"""

import sys
from importlib import import_module
from importlib.metadata import version
from typing import Any

from kernelopt import errors, feature_space, kernels, losses, plots, testing
from kernelopt.equivalence import verify_reduction
from kernelopt.factorization import FactorCache
from kernelopt.language.everywhere import everywhere
from kernelopt.language.expressions import FeatureMatrix, Theta, average, gaussian_mean, integral, norm, sum_squares
from kernelopt.language.functions import Function
from kernelopt.language.predictors import Predictor
from kernelopt.language.proximal import ProximalLoss
from kernelopt.language.smooth import SmoothLoss
from kernelopt.losses import margin
from kernelopt.model_selection.bands import jackknife
from kernelopt.model_selection.closed_form import leave_one_out
from kernelopt.model_selection.conformal import conformal_interval, conformal_sets
from kernelopt.model_selection.cross_validation import cross_validate
from kernelopt.model_selection.gradients import gradient
from kernelopt.model_selection.jax_layer import JaxLayer
from kernelopt.model_selection.kernel_selection import (
    aligned_kernel,
    kernel_alignment,
    log_marginal_likelihood,
    maximize_likelihood,
)
from kernelopt.model_selection.leave_one_out import approximate_leave_one_out
from kernelopt.model_selection.leave_one_out_slope import LeaveOneOutLoss
from kernelopt.model_selection.left_out_functions import leave_one_out_predictions
from kernelopt.model_selection.paths import path
from kernelopt.model_selection.posterior import Posterior, posterior
from kernelopt.model_selection.tuning import CrossValidatedLoss, tune
from kernelopt.persistence import load, load_certificate, save
from kernelopt.problem import Problem

__version__ = version("kernelopt")
__all__ = [
    "CrossValidatedLoss",
    "FactorCache",
    "FeatureMatrix",
    "Function",
    "JaxLayer",
    "LeaveOneOutLoss",
    "Posterior",
    "Predictor",
    "Problem",
    "ProximalLoss",
    "SmoothLoss",
    "Theta",
    "__version__",
    "aligned_kernel",
    "approximate_leave_one_out",
    "average",
    "conformal_interval",
    "conformal_sets",
    "cross_validate",
    "errors",
    "everywhere",
    "feature_space",
    "gaussian_mean",
    "gradient",
    "integral",
    "jackknife",
    "kernel_alignment",
    "kernels",
    "leave_one_out",
    "leave_one_out_predictions",
    "load",
    "load_certificate",
    "log_marginal_likelihood",
    "losses",
    "margin",
    "maximize_likelihood",
    "norm",
    "path",
    "plots",
    "posterior",
    "save",
    "sum_squares",
    "testing",
    "tune",
    "verify_reduction",
]


# Earlier names of modules, which still can be imported.
for _old, _new in {
    "history": "results.history",
    "paths": "model_selection.paths",
    "solution": "results.solution",
    "verification": "driver.verification",
}.items():
    sys.modules[f"{__name__}.{_old}"] = import_module(f"{__name__}.{_new}")


def __getattr__(name: str) -> Any:
    """`ko.estimators` is imported when it is first used: it needs scikit-learn, and the rest does not."""
    if name == "estimators":
        return import_module("kernelopt.estimators")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, for completion in notebooks; internal packages are attributes too, once they are imported."""
    return sorted({*__all__, "estimators", *(name for name in globals() if name.startswith("__"))})
