"""Where the atoms of a form are defined: beyond, cvxpy has values for some, as for 1/x and x³, and NaN for others.

An atom counts as +∞ there if it is convex, as −∞ if it is concave.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import cvxpy as cp

from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.support.cvxpy_parts import Inequality, Power, PowerApprox, nodes_of


class AtomDomain(NamedTuple):
    """Constraints that say where the atoms of the objective, and those of the constraints, are defined.

    atoms : that of each constraint in `objective`
    """

    objective: tuple[Any, ...]
    constraints: tuple[Any, ...]
    atoms: tuple[Any, ...]

    @property
    def whole(self) -> tuple[Any, ...]:
        return self.objective + self.constraints


def domain_of(form: CanonicalForm) -> AtomDomain:
    """The domain of the outer problem, found once."""
    if "domain" not in form.notes:
        form.notes["domain"] = of_problem(form.outer)
    found: AtomDomain = form.notes["domain"]
    return found


def of_problem(problem: cp.Problem) -> AtomDomain:
    """The domain of a cvxpy problem."""
    own = tuple(_of_atoms(cp.Problem(problem.objective)))
    stated = tuple(one for _, one in _of_atoms(cp.Problem(cp.Minimize(0), problem.constraints)))
    return AtomDomain(tuple(one for _, one in own), stated, tuple(atom for atom, _ in own))


def _of_atoms(problem: cp.Problem) -> Iterator[tuple[Any, Any]]:
    """Each atom that varies, with inequalities and matrix inequalities that do not hold by the signs of their sides."""
    for node in nodes_of(problem):
        if node.is_constant() or (isinstance(node, (Power, PowerApprox)) and _is_even(node)):
            continue
        try:
            stated = node._domain()
        except (NotImplementedError, ValueError, TypeError, AttributeError):  # as of exponents without a value
            continue
        for one in stated:
            if isinstance(one, cp.constraints.PSD) or (isinstance(one, Inequality) and not _holds(one)):
                yield node, one


def _is_even(node: Any) -> bool:
    """Whether a power is an even one, which all numbers have; cvxpy says so of some of them only."""
    return bool(node.p.value is not None and node.p.value > 0 and node.p.value % 2 == 0)


def _holds(one: Any) -> bool:
    low, high = one.args
    return bool(low.is_constant() and low.is_zero() and high.is_nonneg())
