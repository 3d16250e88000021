"""α and parameters of the kernel, chosen by gradients of the loss of rows left out in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np

from kernelopt.errors import OptionError
from kernelopt.kernels import Gaussian, Kernel, Laplacian, Polynomial, Sigmoid
from kernelopt.kernels.domains import Vectors
from kernelopt.language.expressions import Theta, sum_squares
from kernelopt.model_selection.tuning import CrossValidatedLoss, Tuned, tune
from kernelopt.problem import Problem
from kernelopt.support.checks import shown
from kernelopt.support.types import Array, Ints

COLUMNS = "columns"
# The cost of an intercept in a search, relative to that of a constant in feature space: without one, losses with kinks
# leave it open where all rows are on linear stretches, and there is no derivative. From fold to fold predictions change
# by more.
SLIGHT = 1e-3
# Scales are searched within this factor of the first one, on both sides: beyond it a kernel is a constant to four
# digits, or zero between points.
REACH = 100.0


class ByGamma(NamedTuple):
    """A kernel by name as a function of one parameter p > 0, and p for a given γ; its inverse is γ for p."""

    make: Callable[[cp.Parameter, int, float], Kernel]
    start: Callable[[float], float]
    gamma: Callable[[float], float]


BY_GAMMA: Mapping[str, ByGamma] = {
    "rbf": ByGamma(lambda p, *_: Gaussian(sigma=p), lambda g: (2 * g) ** -0.5, lambda p: 0.5 / p**2),
    "laplacian": ByGamma(lambda p, *_: Laplacian(sigma=p), lambda g: 1 / g, lambda p: 1 / p),
    "poly": ByGamma(lambda p, degree, c: Polynomial(degree=degree, scale=p, offset=c), float, float),
    "polynomial": ByGamma(lambda p, degree, c: Polynomial(degree=degree, scale=p, offset=c), float, float),
    "sigmoid": ByGamma(lambda p, _, c: Sigmoid(scale=p, offset=c), float, float),
}


@dataclass(frozen=True, eq=False)
class KernelSearch:
    """A kernel with the parameters that are searched, and the attributes of the estimator that they become."""

    kernel: Kernel
    parameters: tuple[cp.Parameter, ...]
    attributes: Callable[[], dict[str, Any]]


def kernel_search(
    tune_option: Any, given: Any, kernel: Kernel, shape: tuple[float, int, float], X: Any
) -> KernelSearch:
    """What `tune` asks for: True for γ of a kernel by name, "columns" for a length scale in each column.

    given : the estimator's `kernel`; kernel : what it stands for; shape : γ, degree, coef0. Raises OptionError.
    """
    if tune_option is True:
        row = BY_GAMMA.get(given) if isinstance(given, str) else None
        if row is None:
            return KernelSearch(kernel, (), dict)
        gamma, degree, coef0 = shape
        p = cp.Parameter(pos=True, value=row.start(gamma), name="gamma" if row.start is float else "sigma")
        return KernelSearch(row.make(p, degree, coef0), (p,), lambda: {"gamma_": row.gamma(float(p.value))})
    if not isinstance(tune_option, str) or tune_option != COLUMNS:
        raise OptionError(f'Expected tune to be False, True or "{COLUMNS}"; got {shown(tune_option)}.')
    if not isinstance(kernel.domain, Vectors):
        raise OptionError(f'Expected a kernel of vectors for tune="{COLUMNS}"; got {given!r}.')
    scales = cp.Parameter(X.shape[1], pos=True, value=np.ones(X.shape[1]), name="scales")
    return KernelSearch(kernel.ard(scales), (scales,), lambda: {"scales_": np.array(scales.value)})


def searched(  # noqa: PLR0917
    search: KernelSearch, X: Any, alphas: Array, base: Array, folds: list[tuple[Ints, Ints]],
    stated: Sequence[tuple[Theta, Any, Any]], options: Mapping[str, Any],
) -> tuple[float, Tuned]:  # fmt: skip
    """α and the table of `ko.tune` on Σᵢ wᵢℓᵢ/Σᵢ wᵢ over rows left out in turn. `stated`: (θ, f, losses) of each fit.

    α starts at the geometric mean of the least and the largest of `alphas`, and stays between them. All fits stand in
    one problem, as they share parameters.
    """
    weights = cp.Parameter(len(base), nonneg=True, value=base, name="weights")
    alpha = cp.Parameter(pos=True, value=float(np.sqrt(alphas[0] * alphas[-1])), name="alpha")
    rows = reduce(add, (terms if terms.ndim == 1 else cp.sum(terms, axis=1) for _, _, terms in stated))
    norms = reduce(add, (sum_squares(theta) for theta, _, _ in stated))
    slight = SLIGHT / float(np.mean(search.kernel.at_present().diag(X)))
    fit = weights @ rows
    intercepts = reduce(add, map(cp.sum_squares, Problem(cp.Minimize(fit)).variables()), cp.Constant(0.0))
    problem = Problem(cp.Minimize(fit + alpha * (norms + slight * intercepts)))
    losses = cp.multiply(base * (len(base) / base.sum()), rows)
    free = len(alphas) > 1
    parameters = [*([alpha] if free else []), *search.parameters]
    if not parameters:
        raise OptionError("Expected something to choose by tune: several alphas, or a kernel by name with gamma.")
    bounds = {p: (p.value / REACH, p.value * REACH) for p in search.parameters}
    if free:
        bounds[alpha] = (alphas[0], alphas[-1])
    found = tune(problem, CrossValidatedLoss(weights, losses, cv=folds), parameters, bounds, **options)
    return float(alpha.value), found
