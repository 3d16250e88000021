"""The table that `ko.path` returns: a row for each value of the parameter, and its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.certificate import Certificate
from kernelopt.errors import KernelOptError, OptionError
from kernelopt.kernels.domains import frozen
from kernelopt.language.expressions import Theta
from kernelopt.language.functions import Function
from kernelopt.language.text import names
from kernelopt.problem import Problem
from kernelopt.support.checks import is_integer, require_number, shown
from kernelopt.support.properties import cached_property
from kernelopt.support.table import Table, listed
from kernelopt.support.types import Array

EVALUATION = "evaluation"  # the column of an `evaluate` that returns one number


@dataclass(frozen=True, eq=False)
class PathSolution:
    """The answer for one value of the parameter; it stays when the problem moves on.

    Attributes
    ----------
    parameter : float
        The value for which it was solved.
    objective : float
        nan where there is no answer; inf or −inf where the problem is infeasible or unbounded.
    status : str
    certificate : Certificate or None
    functions : mapping of each θ to its fitted function
    variables : mapping of each cvxpy variable to its value
    supports : mapping of each θ to its number of support vectors
        Rows with |νᵢ| > 1e-8·max|ν|; nan where there are no multipliers.
    evaluation : mapping of names to what `evaluate` returned
    seconds : of the solve
    """

    parameter: float
    objective: float
    status: str
    certificate: Certificate | None
    functions: Mapping[Theta, Function]
    variables: Mapping[cp.Variable, Array]
    supports: Mapping[Theta, float]
    evaluation: Mapping[str, float]
    seconds: float
    _restore: Callable[[], None] = field(repr=False)


@dataclass(frozen=True, eq=False, repr=False)
class Path(Table):
    """Answers along the values of a parameter, a table with a row for each; made by `ko.path`.

    `path[name]` is a column, a read-only numpy array. Columns are the parameter (by its name), "objective", "status",
    "lower" and "upper" (which enclose the optimum) with their relative "gap", "norm" (‖θ‖, Frobenius for several
    outputs), "support" (rows with |νᵢ| > 1e-8·max|ν|), "seconds", and what `evaluate` returned, by default called
    "evaluation"; for several θ "norm_θ₁" and so on. Missing numbers are nan. It prints as a table.

    Attributes
    ----------
    problem, parameter : the problem, and the parameter whose values it was solved for
    solutions : tuple of PathSolution
        The answer of each row: fitted functions, values of variables, certificate.
    gap : float or None
        The relative gap that is certified between neighbouring values; None where the values were given.
    covered : tuple of intervals (low, high)
        Where that gap holds: the interval that was asked for, or parts of it where the time limit was reached.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X, y = np.arange(6.0)[:, None], np.array([1.0, 3.0, 5.0, 7.0, 9.0, 11.0])
    >>> theta = ko.Theta(ko.kernels.Polynomial(degree=1))
    >>> lam = cp.Parameter(nonneg=True, name="lam")
    >>> objective = cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta)
    >>> problem = ko.Problem(cp.Minimize(objective))
    >>> path = ko.path(problem, lam, [10.0, 1.0, 0.1])
    >>> path["norm"].round(2), path.solutions[0].status
    (array([1.88, 2.18, 2.23]), 'optimal')
    """

    problem: Problem
    parameter: cp.Parameter
    solutions: tuple[PathSolution, ...]
    gap: float | None = None
    covered: tuple[tuple[float, float], ...] = ()

    @cached_property
    def columns(self) -> Mapping[str, Array]:
        """The columns by name."""
        solutions = self.solutions
        bounds = self.certificates
        table: dict[str, list[Any]] = {
            self.parameter.name(): [s.parameter for s in solutions],
            "objective": [s.objective for s in solutions],
            "status": [s.status for s in solutions],
            "lower": [np.nan if c is None else c.lower for c in bounds],
            "upper": [np.nan if c is None else c.upper for c in bounds],
            "gap": [np.nan if c is None else c.relative_gap for c in bounds],
        }
        for theta, suffix in _suffixes(self.problem).items():
            functions = [s.functions.get(theta) for s in solutions]
            table["norm" + suffix] = [np.nan if f is None else f.norm for f in functions]
            table["support" + suffix] = [s.supports.get(theta, np.nan) for s in solutions]
        table["seconds"] = [s.seconds for s in solutions]
        for name in dict.fromkeys(name for s in solutions for name in s.evaluation):
            table[name] = [s.evaluation.get(name, np.nan) for s in solutions]
        return MappingProxyType({name: frozen(np.array(column)) for name, column in table.items()})

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.solutions)

    @property
    def certificates(self) -> tuple[Certificate | None, ...]:
        """The certificate of each row."""
        return tuple(s.certificate for s in self.solutions)

    def restore(self, row: int) -> None:
        """Put the answer of a row on the problem, as if it had just been solved.

        The parameter, θ, variables and multipliers get the values of that row, and with them all expressions. Other
        parameters get the values that they had when the row was solved.

        Examples
        --------
        >>> import cvxpy as cp, numpy as np, kernelopt as ko
        >>> X, y = np.arange(6.0)[:, None], np.array([0.0, 1.0, 4.0, 9.0, 16.0, 25.0])
        >>> theta, lam = ko.Theta(ko.kernels.Linear()), cp.Parameter(nonneg=True, name="lam")
        >>> objective = cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta)
        >>> problem = ko.Problem(cp.Minimize(objective))
        >>> path = ko.path(problem, lam, [1.0, 10.0, 100.0])
        >>> path.restore(1)
        >>> bool(problem.value == path["objective"][1])
        True
        """
        if not is_integer(row) or not -len(self) <= row < len(self):
            raise OptionError(f"Expected a row from 0 to {len(self) - 1}; got {shown(row)}.")
        self.solutions[row]._restore()

    def at(self, value: float) -> tuple[PathSolution, Certificate]:
        """The row whose answer is best for a value of the parameter, and a certificate of that answer there.

        The candidates are the nearest rows on both sides; see `Problem.certificate_at`. This solves no problem, and
        `problem` stays as it is.

        Raises
        ------
        ParameterError
            When the parameter does not take the value.
        KernelOptError
            When the nearest rows have no certificates.
        """
        require_number(value, f"the value of {self.parameter.name()}", "a number", lambda _: True)
        proven = (s for s in self.solutions if s.certificate is not None and not s.certificate.solver)
        known = sorted(proven, key=lambda s: s.parameter)
        below = [s for s in known if s.parameter <= value][-1:]
        above = [s for s in known if s.parameter > value][:1]
        restore = self.problem._keep()
        try:
            found = []
            for solution in below + above:
                solution._restore()
                found.append((solution, self.problem.certificate_at({self.parameter: value})))
        finally:
            restore()
        if not found:
            raise KernelOptError("Expected rows with certificates; there are none. Solve with certify=True.")
        return min(found, key=lambda pair: pair[1].absolute_gap)

    # ---------------------------------------------------------------- to look at

    def _captions(self) -> list[str]:
        name = self.parameter.name()
        return [f"each {name} in [{low:g}, {high:g}]: relative gap ≤ {self.gap:g}" for low, high in self.covered]

    def plot(self, x: str | None = None, y: str | Sequence[str] | None = None, ax: Any = None) -> Any:
        """Draw columns against each other with matplotlib, and return the Axes.

        An axis whose numbers are positive and span more than a decade is logarithmic.

        Parameters
        ----------
        x : name of a column; by default the parameter
        y : name, or names, of columns; by default what `evaluate` returned, else the objective
        ax : Axes to draw on; by default of a new figure

        Examples
        --------
        path.plot(y="norm"); path.plot(x="norm", y="validation error")
        """
        evaluated = list(dict.fromkeys(name for s in self.solutions for name in s.evaluation))
        x = self.parameter.name() if x is None else x
        ys = evaluated or ["objective"] if y is None else listed(y)
        return self._drawn(x, ys, ax)


def own_columns(problem: Problem) -> list[str]:
    """Names of the columns that every table of the problem has, besides the parameter's."""
    of_thetas = [name + suffix for suffix in _suffixes(problem).values() for name in ("norm", "support")]
    return ["objective", "status", "lower", "upper", "gap", *of_thetas, "seconds"]


def _suffixes(problem: Problem) -> dict[Theta, str]:
    """The suffix of each θ's columns; empty where there is one θ."""
    named = names(problem.thetas())
    return {theta: f"_{name}" if len(named) > 1 else "" for theta, name in named.items()}
