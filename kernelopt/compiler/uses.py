"""Where θ enters a problem: the expressions around predictions and norms, and the ways from a norm to the problem.

`rules.py` decides whether the representer theorem applies. This module lists what it decides about, to be printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cvxpy as cp

from kernelopt.compiler.rules import COSTS, HELPS, arguments_of, directions_of, monotonicity
from kernelopt.language.nodes import Prediction, ThetaNorm
from kernelopt.support.cvxpy_parts import AddExpression, Atom

OBJECTIVE = "the objective"


@dataclass(frozen=True, eq=False)
class Occurrence:
    """A prediction or a norm in the smallest term or atom around it that is not affine in it.

    holder : that expression; the constraint, or the expression to minimize, where there is none
    """

    node: Prediction | ThetaNorm
    holder: Any
    place: str


@dataclass(frozen=True, eq=False)
class Ascent:
    """The way from a norm up to the objective or to a side of a constraint.

    steps : each atom on it with its monotonicity in what lies below, from the norm upwards
    side : how a larger value of the objective, or of that side, acts on the minimized problem
    """

    norm: ThetaNorm
    place: str
    steps: tuple[tuple[Any, int], ...]
    side: int

    @property
    def direction(self) -> int:
        """How a larger norm acts on the minimized problem."""
        found = self.side
        for _, sign in self.steps:
            found *= sign
        return found


def occurrences(objective: Any, constraints: tuple[Any, ...]) -> list[Occurrence]:
    """All predictions and norms, in order of appearance."""
    found: list[Occurrence] = []
    seen: set[tuple[int, int, str]] = set()
    for place, statement, argument, _ in _roots(objective, constraints):
        _collect(argument, statement, place, seen, found)
    return found


def ascents(objective: Any, constraints: tuple[Any, ...]) -> Iterator[Ascent]:
    """All ways from norms upwards. Where terms share expressions, there may be very many: take the first ones."""
    known: dict[int, bool] = {}
    for place, _, argument, side in _roots(objective, constraints):
        for norm, steps in _ways(argument, known):
            yield Ascent(norm, place, steps, side)


def _roots(objective: Any, constraints: tuple[Any, ...]) -> Iterator[tuple[str, Any, Any, int]]:
    """The place, the statement, and its arguments, each with how a larger value acts on the minimized problem."""
    yield OBJECTIVE, objective.args[0], objective.args[0], COSTS if isinstance(objective, cp.Minimize) else HELPS
    for number, constraint in enumerate(constraints, start=1):
        for argument, side in zip(arguments_of(constraint), directions_of(constraint), strict=True):
            yield f"constraint {number}", constraint, argument, side


def _collect(node: Any, holder: Any, place: str, seen: set[tuple[int, int, str]], found: list[Occurrence]) -> None:
    if isinstance(node, (Prediction, ThetaNorm)):
        found.append(Occurrence(node, holder, place))
    if (id(node), id(holder), place) in seen or isinstance(node, (Prediction, ThetaNorm)) or not isinstance(node, Atom):
        return
    seen.add((id(node), id(holder), place))
    for child in node.args:
        own = holder if node.is_affine() else child if isinstance(node, AddExpression) else node
        _collect(child, own, place, seen, found)


def _ways(node: Any, known: dict[int, bool]) -> Iterator[tuple[ThetaNorm, tuple[tuple[Any, int], ...]]]:
    if isinstance(node, ThetaNorm):
        yield node, ()
    elif _holds_norm(node, known):
        for i, child in enumerate(node.args):
            sign = monotonicity(node, i)
            for norm, steps in _ways(child, known):
                yield norm, (*steps, (node, sign))


def _holds_norm(node: Any, known: dict[int, bool]) -> bool:
    if isinstance(node, ThetaNorm):
        return True
    if not isinstance(node, Atom) or isinstance(node, Prediction):
        return False
    if id(node) not in known:
        known[id(node)] = any(_holds_norm(child, known) for child in node.args)
    return known[id(node)]
