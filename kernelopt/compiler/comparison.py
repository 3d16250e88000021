"""Pieces beside the expressions that they were read from: both have the same values at the same point.

No proof on pieces can see that an expression was misread, so that each answer is such a point.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.iterate import Iterate, place
from kernelopt.compiler.linear_maps import flat
from kernelopt.compiler.reader import read
from kernelopt.compiler.residuals import outside_domain
from kernelopt.errors import ReadingError
from kernelopt.language.text import describe
from kernelopt.pieces.form import Pieces
from kernelopt.support.arithmetic import UNIT
from kernelopt.support.cvxpy_parts import AddExpression, has_complex_leaves, nodes_of
from kernelopt.support.types import Array

# Roundings of a row and of a sum that both sides may differ by. A misread function is off by far more, and sums of many
# terms by less.
ROUNDINGS = 1e4 * UNIT
UNDERFLOWS = 1e4 * 2.0**-1074  # of products in each term, whose digits the smallest doubles lack


def require_same(form: CanonicalForm, pieces: Pieces, point: Iterate) -> None:
    """Raise ReadingError, which names the part, where pieces have another value than what was stated."""
    if outside_domain(form, point):
        return  # cvxpy's values are no values there
    place(form, point)
    if _differ(form.bare, pieces) is None:
        return
    # What cancels in rows is rounded where it is stated, by no more than the part in which it stands explains.
    for part in _parts(form.bare):
        found = _differ(part, read(part), _largest(part))
        if found is not None:
            node = part.constraints[0] if part.constraints else part.objective.args[0]
            raise ReadingError(
                f"Expected pieces with the values of the stated problem; {describe(node)} is {found[1]:.17g}, and its "
                f"pieces are {found[0]:.17g}. This is a fault of kernelopt: solve with solver='CLARABEL', and report "
                "it."
            )
    if _differ(form.bare, pieces, _largest(form.bare)) is None:
        return
    raise ReadingError(
        "Expected pieces with the value of the stated objective; got another one. This is a fault of kernelopt: solve "
        "with solver='CLARABEL', and report it."
    )


def _parts(problem: cp.Problem) -> Iterator[cp.Problem]:
    """A problem for each summand of the objective, and for each constraint."""
    kind = type(problem.objective)
    yield from (cp.Problem(kind(part)) for part in _summands(problem.objective.args[0]))
    yield from (cp.Problem(kind(cp.Constant(0.0)), [constraint]) for constraint in problem.constraints)


def _summands(node: Any) -> Iterator[Any]:
    if isinstance(node, AddExpression):
        for part in node.args:
            yield from _summands(part)
    else:
        yield node


@np.errstate(all="ignore")  # outside of a domain, and for functions of weight 0
def _differ(problem: cp.Problem, pieces: Pieces, largest: float = 0.0) -> tuple[float, float] | None:
    """Two values that differ by more than rounding: of the pieces, and as stated; None where there are none.
    Rounding is that of rows, and of numbers up to the `largest`.

    Columns that graph forms of atoms add have no values beside their solver's: such pieces are not compared, nor are
    those of complex leaves, which cvxpy writes in real numbers.
    """
    if not pieces.is_explicit or has_complex_leaves(problem):
        return None
    x = np.zeros(pieces.n)
    for variable in problem.variables():
        if variable.value is not None and variable.id in pieces.columns:
            x[pieces.columns[variable.id]] = flat(variable.value)
    x = pieces.settled(x)
    sums = pieces.sums(x)
    sign = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
    number, at = np.full(len(pieces.s0), -1), [np.zeros(1, dtype=int)]
    stated = [np.array([sign * problem.objective.value], dtype=float)]
    number[pieces.below] = np.arange(len(pieces.below))
    for constraint in problem.constraints:
        rows = pieces.stated.get(constraint.id, np.arange(0))
        if type(constraint).__name__ == "Inequality" and len(rows):
            at.append(1 + number[rows])
            stated.append(flat(constraint.expr.value))
    places, values = np.concatenate(at), np.concatenate([np.ravel(part) for part in stated])
    apart = np.isfinite(sums[places]) & np.isfinite(values)
    apart &= ~(np.abs(sums[places] - values) <= ROUNDINGS * np.abs(values))
    if not apart.any():
        return None
    allowed = _rounding(pieces, x, largest)
    wrong = np.flatnonzero(apart & ~(np.abs(sums[places] - values) <= allowed[places] + UNDERFLOWS))
    return (float(sums[places[wrong[0]]]), float(values[wrong[0]])) if len(wrong) else None


def _largest(problem: cp.Problem) -> float:
    """The largest number within the stated expressions, sums of terms of quadratic forms included."""
    nodes = [node for node in nodes_of(problem) if node.value is not None]
    values = [flat(node.value) for node in nodes] + [
        _terms(node) for node in nodes if type(node).__name__ == "QuadForm"
    ]
    sizes = np.abs(np.concatenate([np.zeros(1), *values]))
    return float(sizes.max(where=np.isfinite(sizes), initial=0.0))


def _terms(form: Any) -> Array:
    """|x|ᵀ|P||x|, of which xᵀPx may be what rounding leaves."""
    x, P = np.abs(flat(form.args[0].value)), abs(form.args[1].value)
    return np.asarray([x @ (P @ x)])


def _rounding(pieces: Pieces, x: Array, largest: float) -> Array:
    """What rounding of rows, and of sums, changes in each of `pieces.sums`: ∞ at the end of a domain.

    A convex h changes within s ± e by no more than its largest value there is above h(s).
    """
    size = pieces.sizes(x) + np.abs(pieces.s0) + largest
    e = ROUNDINGS * size
    terms = np.concatenate([[np.abs(pieces.c) @ np.abs(x) + abs(pieces.c0) + largest], size[pieces.below]])
    moved, s = np.concatenate([[0.0], e[pieces.below]]), pieces.rows(x)
    with np.errstate(all="ignore"):
        for group in pieces.groups:
            value = group.family.value(s[group.rows])
            more = group.family.highest(s[group.rows], e[group.rows]) - value
            group.added(np.where(np.isfinite(value), np.abs(value), 0.0), terms)
            group.added(np.where(np.isnan(more), np.inf, more), moved)
        return np.asarray(2 * moved + ROUNDINGS * terms)
