"""Intervals around the predictions of a fitted regressor, from its rows: the fit is stated again and left out of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelopt.estimators.model import options_of, take
from kernelopt.estimators.sample import Sample
from kernelopt.kernels import Kernel
from kernelopt.language.expressions import Theta
from kernelopt.model_selection.bands import band, groups_of, require_method
from kernelopt.model_selection.conformal import Band, rank_of
from kernelopt.model_selection.left_out_functions import left_out_values
from kernelopt.problem import Problem
from kernelopt.support.checks import require_flag
from kernelopt.support.types import Array

Scale = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class FittedRows:
    """What `fit` was given, with the kernel that it chose: points, targets (n,) or (n, outputs), and weights (n,)."""

    points: Any
    y: Array
    weights: Array
    kernel: Kernel

    def chosen(self) -> tuple[Any, Array, Sample]:
        """The rows of positive weight, each by itself: repeated rows leave one at a time."""
        rows = np.flatnonzero(self.weights > 0)
        return take(self.points, rows), self.y[rows], Sample(rows, self.weights[rows])


def interval(  # noqa: PLR0917
    model: Any, rows: FittedRows, X: Any, scale: Scale | None, level: float, method: str, cv: Any, refit: bool,
    lacks: Sequence[str],
) -> Band:  # fmt: skip
    """The jackknife+ or CV+ band of a regressor at points X; scale : from f to predictions, such as exp.

    lacks : why the coverage is not proven for this model
    """
    points, y, sample = rows.chosen()
    rank_of(len(y), level)
    require_method(method)
    require_flag(refit, "refit")
    groups = groups_of(cv, len(y), 0)
    theta, f, b, terms = model._stated(rows.kernel, points, y)
    problem = Problem(model._objective(terms, sample, theta))
    problem.solve(**{"tol": model.tol, **options_of(model)})
    found = left_out_values(problem, f, _at(theta, b, X), groups, refit=refit)
    if scale is not None:
        found = found._replace(own=scale(found.own), new=scale(found.new))
    return band(found, groups, y.reshape(len(y), -1), level, method, (len(X), *f.shape[1:]), lacks)


def _at(theta: Theta, b: Any, points: Any) -> Any:
    """f at other points than those of the fit."""
    f = theta(points)
    return f if b is None else f + b if theta.outputs is None else f + b[None, :]
