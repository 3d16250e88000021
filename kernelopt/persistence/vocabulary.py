"""The names that a file may hold: kernels and atoms of fixed tables, never import paths of classes or functions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt import kernels
from kernelopt.kernels import Kernel
from kernelopt.kernels.derivatives import WithDerivatives
from kernelopt.kernels.spreads import WithMeans
from kernelopt.support.checks import require_kind
from kernelopt.support.cvxpy_parts import (
    AddExpression,
    DivExpression,
    Hstack,
    MulExpression,
    NegExpression,
    Pnorm,
    PnormApprox,
    PowerApprox,
    Vstack,
    index,
    special_index,
)
from kernelopt.support.optional import optional

FORMAT, SCHEMA = "kernelopt", 1  # SCHEMA counts the layouts of files; a reader refuses all but its own
# Levels of kernels in kernels, and of expressions in expressions. Each takes several Python frames, of which 1000 are
# allowed by default.
DEPTH = 100

# Files hold these names: a class that is renamed keeps its old name here.
KERNELS: dict[str, type[Kernel]] = {
    name: value
    for name, value in [*vars(kernels).items(), ("WithDerivatives", WithDerivatives), ("WithMeans", WithMeans)]
    if isinstance(value, type) and issubclass(value, Kernel) and value is not Kernel
}
ATOMS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        AddExpression, DivExpression, MulExpression, NegExpression, PowerApprox, Pnorm, PnormApprox, index,
        special_index, Hstack, Vstack, cp.abs, cp.cumsum, cp.entr, cp.exp, cp.huber, cp.log, cp.log1p,
        cp.log_sum_exp, cp.logistic, cp.max, cp.maximum, cp.min, cp.minimum, cp.multiply, cp.norm1, cp.norm_inf,
        cp.quad_over_lin, cp.Sum, cp.transpose,
    )
}  # fmt: skip
# Kernels of scikit-learn that a file may hold.
SKLEARN = (
    "RBF", "Matern", "RationalQuadratic", "ExpSineSquared", "DotProduct", "ConstantKernel", "PairwiseKernel", "Sum",
    "Product", "Exponentiation",
)  # fmt: skip


@cache
def sklearn_kernels() -> dict[str, type]:
    """scikit-learn's kernels by name. Raises MissingPackageError without scikit-learn."""
    module = optional("sklearn.gaussian_process.kernels", "A kernel of scikit-learn in a file")
    return {name: getattr(module, name) for name in SKLEARN}


def parameters(kernel: Kernel) -> dict[str, Any]:
    """The parameters that a kernel was made from, by name."""
    own = {f.name: getattr(kernel, f.name) for f in fields(kernel) if f.init}  # type: ignore[arg-type]
    if isinstance(kernel, kernels.Precomputed) and kernel.precision > np.finfo(np.float64).eps:
        own["Q"] = kernel.Q.astype(np.float32)  # as it was given: tolerances depend on that precision
    return own


def require_path_and_names(path: Any, names: Any) -> None:
    """Raise DataTypeError unless `path` is a path and `names` a mapping or None. A number would name an open file."""
    require_kind(path, (str, os.PathLike), "path", "a path, as text or pathlib.Path")
    if names is not None:
        require_kind(names, Mapping, "kernels", '{"name": kernel, class of kernels, or function}, or None')
