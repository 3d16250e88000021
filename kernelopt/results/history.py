"""The growth of the factors until the certified gap closed: a table with one row per factor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan
from types import MappingProxyType
from typing import Any

import numpy as np

from kernelopt.kernels.domains import frozen
from kernelopt.support.table import Table, listed
from kernelopt.support.types import Array


@dataclass(frozen=True)
class Round:
    """One factor, and the enclosure that was certified with it.

    rank : columns of B, summed over all θ; rows : rows of A that θ is a linear combination of; lower, upper : bounds on
    the optimum; gap : their relative gap; seconds : time since solve() was called
    """

    rank: int
    rows: int
    lower: float
    upper: float
    gap: float
    seconds: float


@dataclass(frozen=True, eq=False, repr=False)
class History(Table):
    """The factors of the last solve, from coarse to fine, and the enclosure certified with each; prints as a table.

    Columns are "rank" (columns of B), "rows" (rows of A that θ is a linear combination of, the number of kernel values
    per prediction), "lower" and "upper", which enclose the optimum (nan without a certificate), their relative "gap",
    and "seconds" since `solve()` was called.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X = np.random.default_rng(0).normal(size=(3000, 3))
    >>> theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    >>> fit = cp.sum_squares(theta(X) - np.sin(X[:, 0]))
    >>> problem = ko.Problem(cp.Minimize(fit + 0.1 * ko.sum_squares(theta)))
    >>> _ = problem.solve(tol=1e-4)
    >>> print(problem.history.to_pandas()[["rank", "gap"]].round(4))
       rank     gap
    0   191  0.0001
    """

    rounds: tuple[Round, ...]

    @property
    def columns(self) -> Mapping[str, Array]:
        names = ("rank", "rows", "lower", "upper", "gap", "seconds")
        return MappingProxyType({n: frozen(np.array([getattr(r, n, nan) for r in self.rounds])) for n in names})

    def plot(self, x: str = "rank", y: str = "gap", ax: Any = None) -> Any:
        """Draw columns against each other with matplotlib, by default the gap against the rank; returns the Axes."""
        return self._drawn(x, listed(y), ax)


@dataclass(frozen=True)
class ExchangeRound:
    """One solve of a problem with `ko.everywhere`, at some points of the boxes.

    points : their number; shift : largest s of g ≥ s there; least : proven lower bound of g on all boxes;
    lower, upper : the enclosure of the optimum so far; seconds : since solve() was called
    """

    points: int
    shift: float
    least: float
    lower: float
    upper: float
    seconds: float


@dataclass(frozen=True, eq=False, repr=False)
class ExchangeHistory(Table):
    """The rounds of a solve with `ko.everywhere`; prints as a table.

    Columns are "points" at which the inequalities were imposed, the "shift" s of g ≥ s there, the proven "least" value
    of g on the boxes at that round's answer, "lower" and "upper", which enclose the optimum, their difference "gap",
    and "seconds" since `solve()` was called.
    """

    rounds: tuple[ExchangeRound, ...]

    @property
    def columns(self) -> Mapping[str, Array]:
        names = ("points", "shift", "least", "lower", "upper", "seconds")
        found = {n: np.array([getattr(r, n) for r in self.rounds]) for n in names}
        found["gap"] = found["upper"] - found["lower"]
        order = (*names[:-1], "gap", "seconds")
        return MappingProxyType({n: frozen(found[n]) for n in order})

    def plot(self, x: str = "seconds", y: str = "gap", ax: Any = None) -> Any:
        """Draw columns against each other with matplotlib, by default the gap against time; returns the Axes."""
        return self._drawn(x, listed(y), ax)
