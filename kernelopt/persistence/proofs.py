"""Proofs of bounds as files, which `kernelopt.check` judges in exact arithmetic."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from importlib import import_module
from types import ModuleType
from typing import Any

from kernelopt.errors import FormatError
from kernelopt.persistence.archive import replaced
from kernelopt.persistence.vocabulary import require_path_and_names


def _checker() -> ModuleType:
    """`kernelopt.check`; imported at need, since `python -m kernelopt.check` warns of a module that is there before."""
    return import_module("kernelopt.check")


def rounded(value: Fraction, up: bool) -> float:
    """The least double ≥ value, or the largest one ≤ value."""
    return float(_checker().rounded(value, up))


@dataclass(frozen=True, eq=False)
class Proof:
    """An enclosure of the optimum of a problem, proven in exact arithmetic; prints as one sentence.

    Attributes
    ----------
    exact : (lower, upper) as fractions, of a problem to maximize too; None where a side has no bound
    violation : the largest amount by which the point that gives a bound violates a constraint. Where it is not 0, that
        bound is the value of a point that is not quite feasible.
    statement : the problem in words, as lines
    rests_on : what the proof takes for granted: declarations, and kernel matrices that are given as numbers
    maximize : whether the problem maximizes: then `lower` is the value of the point
    lines : the file

    Examples
    --------
    >>> import cvxpy as cp, kernelopt as ko
    >>> theta = ko.Theta(ko.kernels.Linear())
    >>> objective = cp.square(theta([[1.0]])[0] - 1) + ko.sum_squares(theta)
    >>> problem = ko.Problem(cp.Minimize(objective))
    >>> _ = problem.solve()
    >>> proof = problem.certificate.exact()
    >>> (
    ...     proof.lower <= 0.5 <= proof.upper,
    ...     proof.exact[1] - proof.exact[0] < 1e-12,
    ...     proof.statement,
    ... )
    (True, True, ('stated       minimize  ((A·θ)[0] − 1)² + ‖θ‖²',))
    """

    exact: tuple[Fraction | None, Fraction | None]
    violation: Fraction
    statement: tuple[str, ...]
    rests_on: tuple[str, ...]
    maximize: bool
    lines: tuple[str, ...] = field(repr=False)

    @property
    def lower(self) -> float | None:
        """The largest double below the optimum that is proven."""
        return None if self.exact[0] is None else rounded(self.exact[0], False)

    @property
    def upper(self) -> float | None:
        """The least double above the optimum that is proven."""
        return None if self.exact[1] is None else rounded(self.exact[1], True)

    def __str__(self) -> str:
        bound, value = (self.upper, self.lower) if self.maximize else (self.lower, self.upper)
        told = [f"optimum at {'most' if self.maximize else 'least'} {bound}, in exact arithmetic"]
        if self.violation:
            told.append(f"{value} at a point that violates constraints by {rounded(self.violation, True):.1e}")
        elif value is not None:
            told = [f"optimum in [{self.lower}, {self.upper}], in exact arithmetic"]
        return ", ".join([*told, *self.rests_on])


def checked(lines: Sequence[str]) -> Proof:
    """The proof in these lines. Raises `check.Refused`, and what broken lines raise, `check.FAULTS`."""
    lower, upper, violation, rests_on, sense = _checker().check(lines)
    ends = (lower, upper) if sense == "minimize" else (None if upper is None else -upper, -lower)
    statement = tuple(json.loads(lines[0])["statement"])
    return Proof(ends, violation or Fraction(0), statement, tuple(rests_on), sense == "maximize", tuple(lines))


def write(path: Any, proof: Proof) -> None:
    """Write a proof's lines completely or not at all."""
    require_path_and_names(path, None)
    with replaced(path) as file:
        file.write(("\n".join(proof.lines) + "\n").encode())


def load_certificate(path: Any, /) -> Proof:
    """Read a proof that `Certificate.save` wrote, and check it in exact arithmetic.

    Everything is proven again from the file alone: kernel values, multipliers, both bounds. It takes about 2 s for each
    1000² kernel values of a Gaussian.

    Parameters
    ----------
    path : of the file, text or pathlib.Path

    Returns
    -------
    Proof
        The enclosure, what it rests on, and the statement in words.

    Raises
    ------
    FormatError
        Where a line proves nothing, by its number and the reason.
    OSError
        Where the file can't be read.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko, os, tempfile
    >>> X, y = np.arange(6.0)[:, None], np.array([0.0, 1.0, 4.0, 9.0, 16.0, 25.0])
    >>> theta = ko.Theta(ko.kernels.Gaussian(sigma=2.0))
    >>> objective = cp.sum_squares(y - theta(X)) + ko.sum_squares(theta)
    >>> problem = ko.Problem(cp.Minimize(objective))
    >>> value = problem.solve()
    >>> path = os.path.join(tempfile.mkdtemp(), "proof.jsonl")
    >>> proof = problem.certificate.save(path)
    >>> (
    ...     ko.load_certificate(path).lower == proof.lower <= value,
    ...     proof.upper - proof.lower < 1e-6 * value,
    ... )
    (True, True)
    """
    require_path_and_names(path, None)
    check = _checker()
    check.LINE[0] = 0
    try:
        with open(path, encoding="utf-8") as file:
            return checked(check.lines_of(file))
    except check.FAULTS as error:
        why = str(error) if isinstance(error, check.Refused) else f"{type(error).__name__}: {str(error)[:200]}"
        raise FormatError(
            f"Expected a proof that `Certificate.save` wrote; line {check.LINE[0]} proves nothing: {why}."
        ) from error
