"""Declare kernel learning problems: state a problem in θ, get θ back.

    minimize f(Aθ, ‖θ‖, y)

θ may have infinitely many entries; it enters through predictions Aθ and its norm. See `Problem`.
"""

import sys
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kernelopt import errors, kernels, losses
from kernelopt.language.everywhere import everywhere
from kernelopt.language.expressions import FeatureMatrix, Theta, average, gaussian_mean, integral, norm, sum_squares
from kernelopt.language.functions import Function
from kernelopt.language.predictors import Predictor
from kernelopt.language.proximal import ProximalLoss
from kernelopt.language.smooth import SmoothLoss
from kernelopt.losses import margin
from kernelopt.support.locks import importing

if TYPE_CHECKING:
    from kernelopt import estimators as estimators
    from kernelopt import feature_space, plots, testing
    from kernelopt.equivalence import verify_reduction
    from kernelopt.factorization import FactorCache
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

# Names that are imported when they are first used, by their module. Stating θ needs none of them, and they import five
# times as many modules as the language. The imports above tell the same to type checkers.
_LATER = {
    name: module
    for module, names in {
        "": "estimators feature_space plots testing",  # modules
        "equivalence": "verify_reduction",
        "factorization": "FactorCache",
        "model_selection.bands": "jackknife",
        "model_selection.closed_form": "leave_one_out",
        "model_selection.conformal": "conformal_interval conformal_sets",
        "model_selection.cross_validation": "cross_validate",
        "model_selection.gradients": "gradient",
        "model_selection.jax_layer": "JaxLayer",
        "model_selection.kernel_selection": "aligned_kernel kernel_alignment log_marginal_likelihood "
        "maximize_likelihood",
        "model_selection.leave_one_out": "approximate_leave_one_out",
        "model_selection.leave_one_out_slope": "LeaveOneOutLoss",
        "model_selection.left_out_functions": "leave_one_out_predictions",
        "model_selection.paths": "path",
        "model_selection.posterior": "Posterior posterior",
        "model_selection.tuning": "CrossValidatedLoss tune",
        "persistence": "load load_certificate save",
        "problem": "Problem",
    }.items()
    for name in names.split()
}

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


class _Renamed(ModuleType):
    """An earlier name of a module, which is imported when something of it is first used."""

    def __init__(self, old: str, new: str) -> None:
        super().__init__(f"{__name__}.{old}")
        self._new = f"{__name__}.{new}"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked of all modules, by `warnings` and `inspect`
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        with importing:
            module = import_module(self._new)
        return getattr(module, name)


for _old, _new in {
    "history": "results.history",
    "paths": "model_selection.paths",
    "solution": "results.solution",
    "verification": "driver.verification",
}.items():
    sys.modules[f"{__name__}.{_old}"] = _Renamed(_old, _new)


def __getattr__(name: str) -> Any:
    """Import what is not needed to state θ, when it is first used. `ko.estimators` needs scikit-learn, the rest not."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with importing:
        if not _LATER[name]:
            return import_module(f"{__name__}.{name}")
        found = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """The public names, for completion in notebooks; internal packages are attributes too, once they are imported."""
    return sorted({*__all__, "estimators", *(name for name in globals() if name.startswith("__"))})
