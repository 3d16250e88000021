"""Derivatives of an expression by its leaves: the chain rule from the root back, once through the tree.

With a cotangent c = ∂φ/∂(node) at a node, each argument gets cᵀ∂(node)/∂(argument), by the rules of `atom_slopes`. What
is found is compared with a difference of the expression's own values in a random direction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.attributes import dense
from kernelopt.errors import KernelOptError
from kernelopt.sensitivity.atom_slopes import (
    AT,
    DATA,
    NEAR,
    OF_SIZES,
    SUMS,
    At,
    Ties,
    kind,
    numeric,
    rule_of,
    unbroadcast,
)
from kernelopt.support.cvxpy_parts import Atom, Elementwise, Leaf, MulExpression
from kernelopt.support.types import Array

SEED = 1  # of directions of differences
# Steps of central differences, relative to each entry of the leaves. The first balances truncation ∝ h² and rounding
# ∝ ε/h. Shorter ones stay on one side of a kink that is near; a longer one is for values that are small differences of
# large numbers. One step that agrees is enough.
STEPS = (1e-5, 1e-7, 1e-3, 1e-9)
# The largest accepted difference beyond rounding, relative to the derivative and to the norm of its terms.
ACCURACY = 1e-5
# The allowance for rounding, in units of machine precision times the norm of value∘∂φ/∂value over all nodes: the error
# to first order where each number is rounded, with errors that are independent, and room for those that are not.
ROUNDED = 50.0
TELLING = 1e-4  # a step tells something where its allowance for rounding is at most this, relative to the derivative
# A difference is the mean of the slopes in between. Those at the ends show how much they vary, over kinks or a
# bend: a step tells nothing where that explains the difference.
VARIED = 3.0
LOCAL = 1e-4  # the relative error of a node's own derivative from which on it is the one at fault
EPSILON = float(np.finfo(float).eps)
FEW = 50  # entries of an atom up to which the slopes of each are asked for, where their sizes are needed
BESIDE = 1e-2  # where the answer is at a kink, the comparison is made this far beside it, relative to the leaves


class Found(NamedTuple):
    """The value of an expression, and its derivative by each leaf, by the leaf's id.

    kinks : the names of atoms that are at a kink, or so near that the answer's error may hide it
    """

    value: float
    slopes: dict[int, Array]
    kinks: tuple[str, ...]


class Tree:
    """An expression with some nodes replaced by others, as a function of leaves, which are given by their ids.

    units : the sizes of the terms that leaves are made of, by their ids: smaller values may be rounding of 0
    """

    def __init__(
        self, expression: cp.Expression, leaves: Iterable[int], replaced: Mapping[int, cp.Expression] | None = None,
        units: Mapping[int, float] | None = None,
    ) -> None:  # fmt: skip
        self.leaves, self.replaced, self.units = frozenset(leaves), replaced or {}, units or {}
        self.root = self._stood_for(expression)
        self._varies: dict[int, bool] = {}
        self._constants: dict[int, Any] = {}
        self.nodes = self._in_order()

    def value(self, given: Mapping[int, Array]) -> Array:
        """The value of the expression, where the leaves have these values; NaN where it has none."""
        found = self._values(given)[id(self.root)]
        return np.full(self.root.shape, np.nan) if found is None else _shaped(self.root, found)

    def gradient(self, given: Mapping[int, Array], ties: Mapping[str, int] | None = None) -> Found:
        """The value and derivatives of an expression that is one number.

        At kinks a slope in the middle is taken; for atoms with a name in `ties` one at random, by the number there.

        Raises KernelOptError for an atom without a rule between the leaves and the root, where the value or a
        derivative is not finite, and where a difference of values disagrees.
        """
        for node in reversed(self.nodes):
            if not isinstance(node, Leaf):
                rule_of(node)
                self._require_known(node)
        found, passed = self._slopes(given, NEAR, ties or {})
        if ties:
            return found
        near = found.kinks
        if near:  # where the side of a kink is known, its slope is taken
            found, passed = self._slopes(given, AT)
        self._compare_beside(given) if found.kinks else self._compare(given, passed)
        return found._replace(kinks=near)

    # ---------------------------------------------------------------- the tree

    def _stood_for(self, node: Any) -> Any:
        return self.replaced.get(id(node), node)

    def _arguments(self, node: Any) -> list[Any]:
        """A node's arguments, and then its attributes in `DATA`."""
        data = [getattr(node, name) for name in DATA.get(type(node).__name__, ())]
        return [self._stood_for(argument) for argument in (*node.args, *data)]

    def _does_vary(self, node: Any) -> bool:
        if id(node) not in self._varies:
            if isinstance(node, Leaf):
                found = getattr(node, "id", None) in self.leaves  # constants have no id
            else:
                found = any(self._does_vary(a) for a in self._arguments(node)) or bool(self._own(node))
            self._varies[id(node)] = found
        return self._varies[id(node)]

    def _own(self, node: Any) -> set[int]:
        """Wanted parameters that a node depends on in another way than by its arguments."""
        if not self.leaves or not node.parameters():
            return set()
        of_arguments = {p.id for a in self._arguments(node) for p in a.parameters()}
        return ({p.id for p in node.parameters()} & self.leaves) - of_arguments

    def _in_order(self) -> list[Any]:
        """The nodes that depend on the leaves, each once, arguments before what is made of them."""
        found, seen, stack = [], set[int](), [(self.root, False)]
        while stack:
            node, is_ready = stack.pop()
            if is_ready:
                found.append(node)
            elif id(node) not in seen and self._does_vary(node):
                seen.add(id(node))
                stack.append((node, True))
                stack.extend((argument, False) for argument in self._arguments(node))
        return found

    def _require_known(self, node: Any) -> None:
        if node.is_complex() or any(a.is_complex() for a in node.args):
            raise KernelOptError(
                f"Expected a criterion of real numbers; {kind(node)} in it has complex ones. Write it with real and "
                "imaginary parts as variables."
            )
        hidden = self._own(node)
        if hidden:
            name = next(p.name() for p in node.parameters() if p.id in hidden)
            raise KernelOptError(
                f"Expected parameters that are arguments of atoms; in {kind(node)} {name} is a number of its "
                "definition, and the derivative by it is not known. Write a number, or leave it out of `parameters`."
            )

    # ---------------------------------------------------------------- values

    def _values(self, given: Mapping[int, Array]) -> dict[int, Any]:
        """The values of all nodes, by their Python ids, for values of leaves by their own; others keep theirs."""
        known = dict(self._constants)
        with np.errstate(all="ignore"):
            self._evaluate(self.root, given, known)
        return known

    def _evaluate(self, node: Any, given: Mapping[int, Array], known: dict[int, Any]) -> Any:
        if id(node) not in known:
            if isinstance(node, Leaf):
                found = given.get(getattr(node, "id", -1), node.value)
            elif isinstance(node, Atom):
                parts = [self._evaluate(a, given, known) for a in self._arguments(node)]
                found = None if any(part is None for part in parts) else numeric(node, parts)
            else:
                found = node.value
            if found is not None and not sp.issparse(found):
                found = _shaped(node, found)
            known[id(node)] = found
            if not self._does_vary(node):
                self._constants[id(node)] = found
        return known[id(node)]

    def _size(self, node: Any, values: Mapping[int, Any], known: dict[int, Any]) -> Any:
        """The sizes of the terms that a node's entries are sums of, and what norms and powers make of these.

        |A||x| for Ax, s² for x² with x of size s; for another atom |value|, and |∂value/∂x|s where that is more.
        """
        if id(node) not in known:
            arguments = self._arguments(node)
            if type(node).__name__ in SUMS:
                found = abs(node.numeric([self._size(a, values, known) for a in arguments]))
            elif type(node).__name__ in OF_SIZES or (kind(node) == "power" and node.p.value >= 1):
                others = [abs(dense(values[id(a)])) for a in arguments[1:]]
                found = numeric(node, [dense(self._size(arguments[0], values, known)), *others])
            elif not isinstance(node, Leaf) and self._does_vary(node):
                found = np.maximum(abs(dense(values[id(node)])), self._of_slopes(node, values, known))
            else:
                size = abs(values[id(node)])  # of a constant, maybe sparse, which has no unit
                found = size if sp.issparse(size) else np.maximum(size, self._unit(node))
            known[id(node)] = found
        return known[id(node)]

    def _of_slopes(self, node: Any, values: Mapping[int, Any], known: dict[int, Any]) -> Array:
        """|∂value/∂x|·(the sizes of x), 0 where a slope is infinite: log x near x = 1 is off by what x is off by."""
        at, rule, total = self._at(node, values, known, Ties(AT)), rule_of(node), np.zeros(node.shape)
        for number, argument in enumerate(self._arguments(node)):
            if not self._does_vary(argument):
                continue
            size = dense(self._size(argument, values, known))
            if isinstance(node, Elementwise):
                part = np.abs(rule(at, number, np.ones(node.shape))) * size
            elif node.size <= FEW:
                rows = (np.reshape(row, node.shape, order="F") for row in np.eye(node.size))
                parts = [np.sum(np.nan_to_num(np.abs(rule(at, number, c)) * size, posinf=0.0)) for c in rows]
                part = np.reshape(parts, node.shape, order="F")
            else:  # slopes of many entries are about 1, as of running maxima
                part = np.full(node.shape, size.max(initial=0.0))
            total = total + np.nan_to_num(part, posinf=0.0)
        return total

    def _unit(self, node: Any) -> float:
        return self.units.get(getattr(node, "id", -1), 0.0) if isinstance(node, Leaf) else 0.0

    # ---------------------------------------------------------------- slopes

    def _slopes(
        self, given: Mapping[int, Array], distance: float, ties: Mapping[str, int] | None = None
    ) -> tuple[Found, _Passed]:
        """The value and derivatives, with kinks up to a distance, and what the comparison needs."""
        values = self._values(given)
        number = values[id(self.root)]
        if number is None or not np.isfinite(number).all():
            got = None if number is None else float(np.ravel(number)[0])
            raise KernelOptError(f"Expected a criterion with a finite value at the answer; got {got}.")
        back: dict[int, Array] = {id(self.root): np.ones(self.root.shape)}
        slopes, kinks, sizes = dict[int, Array](), dict[str, None](), dict[int, Any]()
        with np.errstate(all="ignore"):
            for place, node in enumerate(reversed(self.nodes)):
                if isinstance(node, Leaf):
                    slopes[node.id] = slopes.get(node.id, 0.0) + back[id(node)]
                    continue
                draw = (ties or {}).get(kind(node))
                seed = None if draw is None else draw * len(self.nodes) + place
                at = self._at(node, values, sizes, Ties(distance, seed))
                for argument, part in self._passed(at, back[id(node)]):
                    back[id(argument)] = back[id(argument)] + part if id(argument) in back else part
                if at.ties.count:
                    kinks[kind(node)] = None
        return Found(float(np.ravel(number)[0]), slopes, tuple(kinks)), _Passed(values, back)

    def _at(self, node: Any, values: Mapping[int, Any], sizes: dict[int, Any], ties: Ties) -> At:
        arguments = self._arguments(node)
        keep = type(node) is MulExpression
        x = tuple(values[id(a)] if keep else dense(values[id(a)]) for a in arguments)
        return At(node, x, dense(values[id(node)]), lambda i: dense(self._size(arguments[i], values, sizes)), ties)

    def _passed(self, at: At, c: Array) -> list[tuple[Any, Array]]:
        """What each argument that varies gets from a cotangent. Raises KernelOptError where it is not finite."""
        rule, parts = rule_of(at.node), []
        for number, argument in enumerate(self._arguments(at.node)):
            if self._does_vary(argument):
                part = unbroadcast(np.asarray(rule(at, number, c)), argument.shape)
                if not np.isfinite(part).all():
                    raise KernelOptError(
                        f"Expected a criterion with a derivative at the answer; {kind(at.node)} is at the end of its "
                        "domain, or beyond the range of numbers."
                    )
                parts.append((argument, part))
        return parts

    # ---------------------------------------------------------------- differences

    def _compare(self, given: Mapping[int, Array], passed: _Passed) -> None:
        """Raise KernelOptError where central differences contradict the derivative along a random direction."""
        direction = _direction(self.nodes, passed.values)
        slope = float(self._along(direction, passed).sum())
        parts = [c * dense(passed.values[name]) for name, c in passed.back.items()]
        rounding = ROUNDED * EPSILON * float(np.sqrt(sum(float(np.sum(part**2)) for part in parts)))
        contradicting = None
        for h in STEPS:
            ends = [{k: given[k] + sign * h * d for k, d in direction.items()} for sign in (1, -1)]
            above, below = (float(self.value(end).sum()) for end in ends)
            difference = (above - below) / (2 * h)
            size = max(abs(slope), abs(difference))
            if not np.isfinite(difference) or rounding / h > TELLING * size:
                continue
            error = abs(difference - slope) - rounding / h
            if error <= ACCURACY * size:
                return
            if error > VARIED * self._variation(ends, direction) and contradicting is None:
                contradicting = difference
        if contradicting is not None:
            raise KernelOptError(
                f"Expected a derivative of the criterion that differences of its values confirm; along a random "
                f"direction it is {slope:.6g}, and differences give {contradicting:.6g}. The atom at fault is "
                f"{self._culprit(given, passed, direction)}. Write the criterion without it, or give ko.gradient a "
                "function with `at=`."
            )

    def _along(self, direction: Mapping[int, Array], passed: _Passed) -> Array:
        """The terms of the derivative along a direction, one for each entry of the leaves."""
        leaves = [node for node in self.nodes if isinstance(node, Leaf)]
        terms = [np.ravel(passed.back[id(leaf)] * direction[leaf.id]) for leaf in leaves]
        return np.concatenate([np.zeros(0), *terms])

    def _variation(self, ends: list[dict[int, Array]], direction: Mapping[int, Array]) -> float:
        """By how much the terms of the derivative differ at the ends of a step; ∞ where there is none."""
        try:
            above, below = (self._along(direction, self._slopes(end, AT)[1]) for end in ends)
        except KernelOptError:
            return np.inf
        return float(np.abs(above - below).sum())

    def _compare_beside(self, given: Mapping[int, Array]) -> None:
        """The comparison at a point beside a kink."""
        rng = np.random.default_rng(SEED + 1)
        sizes = {k: np.maximum(np.abs(x), self.units.get(k, 0.0)) for k, x in given.items()}
        moved = {k: x + BESIDE * sizes[k] * rng.standard_normal(np.shape(x)) for k, x in given.items()}
        try:
            _, passed = self._slopes(moved, AT)
        except KernelOptError:  # beyond the domain
            return
        self._compare(moved, passed)

    def _culprit(self, given: Mapping[int, Array], passed: _Passed, direction: Mapping[int, Array]) -> str:
        """The first node, from the leaves on, whose own derivative differences of its own values contradict."""
        h, rng = STEPS[0], np.random.default_rng(SEED + 2)
        above, below = (self._values({k: given[k] + sign * h * d for k, d in direction.items()}) for sign in (1, -1))

        def difference(node: Any) -> Array:
            return (dense(above[id(node)]) - dense(below[id(node)])) / (2 * h)

        for node in self.nodes:
            if isinstance(node, Leaf):
                continue
            at, c = self._at(node, passed.values, {}, Ties(AT)), rng.standard_normal(node.shape)
            slope = sum(float(np.sum(part * difference(a))) for a, part in self._passed(at, c))
            known = float(np.sum(c * difference(node)))
            if abs(slope - known) > LOCAL * (abs(slope) + abs(known)):
                return kind(node)
        return kind(self.root)


class _Passed(NamedTuple):
    """Values and cotangents of nodes, by their Python ids."""

    values: dict[int, Any]
    back: dict[int, Array]


def _shaped(node: Any, value: Any) -> Array:
    return np.reshape(np.asarray(dense(value), dtype=float), node.shape, order="F")


def _direction(nodes: Sequence[Any], values: Mapping[int, Any]) -> dict[int, Array]:
    """A random direction in units of the leaves' entries; of the largest entry of a leaf where one is 0."""
    rng, found = np.random.default_rng(SEED), {}
    for node in nodes:
        if isinstance(node, Leaf):
            x = np.abs(dense(values[id(node)]))
            found[node.id] = np.where(x > 0, x, x.max(initial=0.0) or 1.0) * rng.standard_normal(node.shape)
    return found


def gradient(expression: cp.Expression, leaves: Mapping[int, Array]) -> Found:
    """The value of an expression and its derivatives by leaves, which have these values, by their ids.

    Raises KernelOptError; see `Tree`.
    """
    return Tree(expression, leaves).gradient(leaves)
