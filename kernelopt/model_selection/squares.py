"""The squares of predictions in an objective: Σ wᵢeᵢ² + (terms without such squares), eᵢ affine in u and y."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.sensitivity.chain_rule import Tree
from kernelopt.support.cvxpy_parts import AddExpression, Power, jacobians, quad_over_lin
from kernelopt.support.types import Array


@dataclass(frozen=True, eq=False)
class Squares:
    """One squared expression of the (minimized) objective.

    expression : e; weights : w, flattened; E, F : coefficients of e in all u and in all y, sparse, one row per entry;
    parameters : those on which w, E and F may depend, with the values for which these were computed
    """

    expression: Any
    weights: Array
    E: sp.csr_array
    F: sp.csr_array
    parameters: tuple[tuple[cp.Parameter, Any], ...]

    @property
    def is_current(self) -> bool:
        """Whether the parameters still have these values."""
        return all(_equal(p.value, value) for p, value in self.parameters)


def squares(form: CanonicalForm, known: tuple[Squares, ...] = ()) -> tuple[Squares, ...]:
    """The squared expressions of the objective, in its order. Variables of the form need values.

    The `known` ones are returned as they are where all of them are current.
    """
    if known and all(square.is_current for square in known):
        return known
    sign = -1.0 if form.outer.objective.NAME == "maximize" else 1.0
    u = {link.u.id for link in form.predictions if link.u is not None}
    found: list[Squares] = []
    for term in summands(form.outer.objective.args[0]):
        nodes = [n for n in _squared(term) if {v.id for v in n.args[0].variables()} & u and n.args[0].is_affine()]
        nodes = list({id(n): n for n in nodes}.values())
        if nodes:
            parameters = tuple((p, np.copy(p.value)) for p in term.parameters())
            for node, w in zip(nodes, _weights(term, nodes), strict=True):
                e = node.args[0]
                E = coefficients(e, [link.u for link in form.predictions if link.u is not None])
                found.append(Squares(e, sign * w, E, coefficients(e, form.y), parameters))
    return tuple(found)


def summands(expression: Any) -> Iterator[Any]:
    if isinstance(expression, AddExpression):
        for arg in expression.args:
            yield from summands(arg)
    else:
        yield expression


def _squared(node: Any) -> Iterator[Any]:
    """Squares in a tree: `square` and `power(·, 2)` entry by entry, and sums of squares over a constant."""
    of_power = isinstance(node, Power) and node.p.value == 2
    if of_power or (isinstance(node, quad_over_lin) and node.args[1].is_constant()):
        yield node
    else:
        for arg in node.args:
            yield from _squared(arg)


def _weights(term: Any, nodes: list[Any]) -> list[Array]:
    """The slope of the term in each squared number, from its gradient with variables in place of the squares."""
    stand_ins = [cp.Variable(node.args[0].shape) for node in nodes]
    values = [np.square(_dense(node.args[0].value)) for node in nodes]
    replaced = {}
    for node, p in zip(nodes, stand_ins, strict=True):
        of_power = isinstance(node, Power)
        replaced[id(node)] = p if of_power else cp.sum(p, node.axis, node.keepdims) / node.args[1]
    given = {p.id: value for p, value in zip(stand_ins, values, strict=True)}
    slopes = Tree(term, given, replaced).gradient(given).slopes
    return [np.ravel(slopes[p.id], order="F") for p in stand_ins]


def coefficients(e: Any, variables: list[cp.Variable]) -> sp.csr_array:
    """∂e/∂(variables), (size of e, size of all variables)."""
    slopes = jacobians(e)
    blocks = [sp.csr_array(slopes[v.id]).T if v.id in slopes else sp.csr_array((e.size, v.size)) for v in variables]
    return sp.csr_array(sp.hstack(blocks)) if blocks else sp.csr_array((e.size, 0))


def _dense(value: Any) -> Array:
    return np.asarray(value.toarray() if sp.issparse(value) else value)


def _equal(a: Any, b: Any) -> bool:
    return np.array_equal(_dense(a), _dense(b))
