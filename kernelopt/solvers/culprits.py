"""The terms and constraints that keep a fast solver from a problem, by name, with a rewrite where one is known.

A part is a summand of the objective or a constraint. Each is cut alone, as the outer problem is: a part that does not
split has no functions of one number, a kinked one has a jump of slopes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np

from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.outer import read
from kernelopt.compiler.sums import separated
from kernelopt.compiler.terms import Kinked
from kernelopt.language.text import describe
from kernelopt.support.cvxpy_parts import AddExpression, Pnorm, Power, quad_over_lin

SHOWN = 2  # parts that are named; more are counted


class StatedPart(NamedTuple):
    """A summand or a constraint: its text, and whether it splits, has a kink, and is a square."""

    node: Any
    text: str
    splits: bool
    kinked: bool
    square: bool

    @property
    def is_constraint(self) -> bool:
        return not isinstance(self.node, cp.Expression)


def summands(objective: Any) -> list[Any]:
    """The terms of an objective's outermost sum."""
    expression = objective.args[0]
    return list(expression.args) if isinstance(expression, AddExpression) else [expression]


def parts(form: CanonicalForm, texts: Sequence[str] = ()) -> list[StatedPart]:
    """The summands and constraints of a form, without the links of smooth losses.

    texts : what they are called in the stated problem, where both have the same parts
    """
    equal = {id(link.equal) for link in form.smooth}
    nodes = [*summands(form.outer.objective), *(c for c in form.outer.constraints if id(c) not in equal)]
    named = texts if len(texts) == len(nodes) else [describe(node) for node in nodes]
    return [_part(form, node, text) for node, text in zip(nodes, named, strict=True)]


def not_split(found: Sequence[StatedPart]) -> str:
    """Which parts do not split, and what to write instead."""
    told = [f"{part.text}{_rewrite(part.node)}" for part in found if not part.splits]
    return f"; {_listed(told)} {_are(told, 'does', 'do')} not" if told else ""


def not_smooth(found: Sequence[StatedPart]) -> str:
    """Which parts have a kink, or are constraints."""
    kinked = [part.text for part in found if part.kinked and not part.is_constraint]
    constraints = [part.text for part in found if part.is_constraint]
    told = [f"{_listed(kinked)} {_are(kinked, 'has a kink', 'have kinks')}"] if kinked else []
    told += [f"{_listed(constraints)} {_are(constraints, 'is a constraint', 'are constraints')}"] if constraints else []
    return "".join(f"; {line}" for line in told)


def not_squares(found: Sequence[StatedPart]) -> str:
    """Which parts are no sums of squares."""
    told = [part.text for part in found if part.is_constraint or not part.square]
    return f"; {_listed(told)} {_are(told, 'is not', 'are not')}" if told else ""


def _listed(told: Sequence[str]) -> str:
    rest = [f"{len(told) - SHOWN} more"] if len(told) > SHOWN else []
    return " and ".join([*told[:SHOWN], *rest])


def _are(told: Sequence[str], one: str, many: str) -> str:
    return one if len(told) == 1 else many


def _part(form: CanonicalForm, node: Any, text: str) -> StatedPart:
    """One part of the outer problem by itself."""
    own = {v.id for v in node.variables()}
    if own & {link.h.id for link in form.smooth}:
        return StatedPart(node, text, splits=True, kinked=False, square=False)
    links = tuple(link for link in form.predictions if link.u is not None and link.u.id in own)
    norms = tuple(norm for norm in form.norms if norm.t.id in own)
    is_term = isinstance(node, cp.Expression)
    objective = type(form.outer.objective)(node) if is_term else cp.Minimize(0)
    outer = cp.Problem(objective, [] if is_term else [node])
    if norms and not links:  # a penalty or a bound of ‖θ‖; `Shape` judges these
        return StatedPart(node, text, splits=True, kinked=False, square=True)
    if not links:
        is_square = is_term and node.is_quadratic()
        return StatedPart(node, text, splits=True, kinked=is_term and node.is_pwl() and not is_square, square=is_square)
    one = CanonicalForm(outer, links, norms)
    pieces = read(one)
    split = None if pieces is None else separated(pieces, one)
    if split is None:
        return StatedPart(node, text, splits=False, kinked=False, square=False)
    kinks = [term.kinks() for term in split.terms if isinstance(term, Kinked)]
    kinked = any(bool(np.any(k.rho == 0)) for k in kinks)
    whole = all(bool(np.all(np.isinf(k.low) & np.isinf(k.high))) for k in kinks)
    return StatedPart(
        node, text, splits=True, kinked=kinked, square=whole and not kinked and len(kinks) == len(split.terms)
    )


def _rewrite(node: Any) -> str:
    """What to write in place of the first node of a summand that is known to have a rewrite; empty without one."""
    if not isinstance(node, cp.Expression):
        return ""
    for kind, (fits, words) in REWRITES.items():
        if any(isinstance(inner, kind) and fits(inner) for inner in _nodes(node)):
            return f" ({words})"
    return ""


def _nodes(node: Any) -> list[Any]:
    return [node, *(inner for arg in node.args for inner in _nodes(arg))]


def _is_squared_norm(node: Any) -> bool:
    return node.p.value == 2 and isinstance(node.args[0], Pnorm) and node.args[0].p == 2


REWRITES: dict[type, tuple[Any, str]] = {
    cp.QuadForm: (lambda node: True, "with P = DᵀD write cp.sum_squares(D @ u), with a sparse D where P is sparse"),
    Power: (_is_squared_norm, "write cp.sum_squares(u) for the square of cp.norm(u)"),
    cp.max: (
        lambda node: any(isinstance(inner, cp.abs) for inner in _nodes(node)),
        "write cp.norm_inf(u) for cp.max(cp.abs(u))",
    ),
    Pnorm: (lambda node: node.p == 2, "where its square will do as well, write cp.sum_squares(u)"),
    quad_over_lin: (lambda node: not node.args[1].is_constant(), "its denominator would have to be a constant"),
}  # fmt: skip
