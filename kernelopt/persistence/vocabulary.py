"""What a file may name: kernels and atoms of tables, never classes or functions by where they are defined."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt import kernels
from kernelopt.kernels import Kernel
from kernelopt.kernels.derivatives import WithDerivatives
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

FORMAT, SCHEMA = "kernelopt", 1
DEPTH = 100  # of kernels in kernels, and of expressions in expressions

# Files hold these names: who renames a class keeps its old name here.
KERNELS: dict[str, type[Kernel]] = {
    name: value
    for name, value in [*vars(kernels).items(), ("WithDerivatives", WithDerivatives)]
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
    """What a kernel was made from, by name."""
    own = {f.name: getattr(kernel, f.name) for f in fields(kernel) if f.init}  # type: ignore[arg-type]
    if isinstance(kernel, kernels.Precomputed) and kernel.precision > np.finfo(np.float64).eps:
        own["Q"] = kernel.Q.astype(np.float32)  # as it was given, and as the tolerances go by
    return own
