"""A lower bound of an expression from its terms alone, for all values of variables: no solver and no multipliers.

inf Σᵢ cᵢfᵢ ≥ Σᵢ inf cᵢfᵢ,  with  inf cf = c·inf f for c ≥ 0,  and inf f ≥ 0 where f is nowhere negative
"""

from __future__ import annotations

from math import fsum, inf
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.compiler.attributes import dense
from kernelopt.support.arithmetic import UNIT
from kernelopt.support.cvxpy_parts import PRODUCTS, SIGNED, AddExpression, DivExpression, NegExpression, Sum
from kernelopt.support.types import Array

Known = dict[Any, Any]
ROUNDED = 4 * UNIT  # relative: at most two roundings of an operation, and that of this allowance


def least(expression: cp.Expression, sign: float = 1.0, known: Known | None = None) -> float:
    """A number that sign·f does not fall below, for a scalar f whose parameters have values; −∞ where none is known.

    None is known either where the sign of a part is only declared, as by `nonneg_wrap`. `known`: of nodes without
    parameters, what was found before; they are kept alive.
    """
    if expression.size > 1:
        return -inf
    known = {} if known is None else known
    if "declared" not in known:
        known["declared"] = not set(SIGNED).isdisjoint(expression.atoms())
    return -inf if known["declared"] else float(np.broadcast_to(_entries(expression, sign, known), (1,))[0])


def _entries(node: Any, sign: float, known: Known) -> Array:
    """A lower bound of sign·node for each entry; of the node's shape, or of one that broadcasts to it."""
    name = id(node), sign
    _, found = known.get(name, (node, None))
    if found is None:
        found = _new(node, sign, known)
        if not node.parameters():
            known[name] = node, found
    return found


def _new(node: Any, sign: float, known: Known) -> Array:
    if node.is_constant():
        return sign * np.asarray(dense(node.value), dtype=float)
    if isinstance(node, cp.Variable):  # with the bounds that are stated for it
        low, high = (dense(bound) for bound in node.get_bounds())
        return low if sign > 0 else -high
    if isinstance(node, NegExpression):
        return _entries(node.args[0], -sign, known)
    if isinstance(node, AddExpression):
        first, *others = (_entries(term, sign, known) for term in node.args)
        for other in others:
            first = np.where((first == 0) | (other == 0), first + other, _down(first + other))
        return first
    if isinstance(node, Sum) and node.axis is None:
        summands = np.broadcast_to(_entries(node.args[0], sign, known), node.args[0].shape)
        return _down(np.asarray(fsum(summands.flat) if np.isfinite(summands).all() else -inf))
    if isinstance(node, cp.maximum) and sign > 0:
        parts = (_entries(part, 1.0, known) for part in node.args)
        return np.maximum(_of_one_argument(node), np.maximum.reduce(np.broadcast_arrays(*parts)))
    constant, other = _scaled(node)
    factor = sign * constant
    if np.isfinite(factor).all() and (np.all(factor >= 0) or np.all(factor <= 0)):
        found = _entries(other, 1.0 if np.all(factor >= 0) else -1.0, known)
        if isinstance(node, PRODUCTS):
            found = np.broadcast_to(found, other.shape).reshape(node.shape if other.size > 1 else ())
        return _down(np.multiply(np.abs(factor), found, out=np.zeros(np.broadcast_shapes(factor.shape, found.shape)),
                                 where=factor != 0))  # fmt: skip
    nowhere_less = node.is_nonneg() if sign > 0 else node.is_nonpos()
    return np.asarray(0.0 if nowhere_less else -inf)


def _of_one_argument(node: Any) -> Array:
    """0 where maxₖ cₖf has slopes cₖ of both signs, as the pinball loss has; else −∞."""
    slopes, arguments = zip(*(_scaled(arg) for arg in node.args), strict=True)
    if any(f is not arguments[0] for f in arguments):
        return np.asarray(-inf)
    slopes = np.broadcast_arrays(*slopes)
    both = (np.minimum.reduce(slopes) <= 0) & (np.maximum.reduce(slopes) >= 0)
    return np.where(both, 0.0, -inf)


def _scaled(node: Any) -> tuple[Array, Any]:
    """c and f where the node is the entrywise product cf with a constant c; else NaN, and the node.

    A matrix product with one number has the node's shape, which may have fewer dimensions than its factors.
    """
    if isinstance(node, DivExpression) and node.args[1].is_constant():
        with np.errstate(divide="ignore"):
            return 1.0 / np.asarray(dense(node.args[1].value), dtype=float), node.args[0]
    if isinstance(node, cp.multiply) or (isinstance(node, PRODUCTS) and min(a.size for a in node.args) == 1):
        for constant, other in (node.args, node.args[::-1]):
            if constant.is_constant():
                value = np.asarray(dense(constant.value), dtype=float)
                if isinstance(node, PRODUCTS):
                    value = value.reshape(node.shape if value.size > 1 else ())
                return value, other
    return np.asarray(np.nan), node


def _down(values: Array) -> Array:
    """Less than the exact values of one operation whose results are given."""
    return values - ROUNDED * np.abs(np.where(np.isfinite(values), values, 0.0))
