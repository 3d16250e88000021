"""Convex problems from a mixed-integer one: that with its integers fixed, and that with any numbers in their place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from kernelopt.compiler.attributes import dense, integral, limits, rounded
from kernelopt.compiler.canonical_form import CanonicalForm, rewrite
from kernelopt.compiler.iterate import Iterate
from kernelopt.support.cvxpy_parts import LogicExpression, index, special_index
from kernelopt.support.types import Array


@dataclass(frozen=True, eq=False)
class Fixed:
    """A form whose integers are constants.

    y : the variables of the mixed-integer form; values : for each of these with integer entries, the variable, its
    value, and the continuous variable for its other entries, None where all entries are integers
    """

    form: CanonicalForm
    y: tuple[cp.Variable, ...]
    values: tuple[tuple[cp.Variable, Array, cp.Variable | None], ...]

    def whole(self, point: Iterate) -> tuple[Any, ...]:
        """Values of y: integers as they were fixed, all other entries from a point of this form."""
        known = {v.id: value for v, value in zip(self.form.y, point.y, strict=True)}
        settled = {y.id: (value, rest) for y, value, rest in self.values}
        found = []
        for y in self.y:
            value, rest = settled.get(y.id, (None, None))
            if value is None:
                found.append(known[y.id])
            else:
                found.append(value if rest is None else np.where(integral(y), value, dense(known[rest.id])))
        return tuple(found)

    def rest(self, point: Iterate) -> tuple[Any, ...]:
        """Values of this form's variables from a point of the mixed-integer form."""
        settled = {y.id: rest for y, _, rest in self.values}
        given = {y.id: (settled.get(y.id, y), value) for y, value in zip(self.y, point.y, strict=True)}
        known = {variable.id: value for variable, value in given.values() if variable is not None}
        return tuple(known[v.id] for v in self.form.y)


def fixed(form: CanonicalForm, point: Iterate) -> Fixed:
    """The form with integers fixed at their rounded values at a point."""
    values, replaced, pinned = [], {}, []
    for y, known in zip(form.y, point.y, strict=True):
        whole = integral(y)
        if not whole.any():
            continue
        value, rest = rounded(y, dense(known)), None
        if whole.all():
            replaced[id(y)] = cp.Constant(value)
        else:
            # One variable of the same shape, with equalities at its integers, fits wherever y occurs.
            rest = replaced[id(y)] = _continuous(y)
            pinned.append(rest[whole] == value[whole])
        values.append((y, value, rest))
    outer = rewrite(form.outer, replaced)
    outer = cp.Problem(outer.objective, [*outer.constraints, *pinned])
    return Fixed(replace(form, outer=outer), tuple(form.y), tuple(values))


@dataclass(frozen=True, eq=False)
class Relaxation:
    """A problem whose integers may be any numbers within `lower` and `upper`; z are these, one after the other.

    places : each variable with integers, and the continuous one in its place
    """

    problem: cp.Problem
    z: cp.Variable
    lower: Array
    upper: Array
    places: tuple[tuple[cp.Variable, cp.Variable], ...]

    def take(self) -> None:
        """Give variables with integers the values of those in their place, integers rounded."""
        for y, rest in self.places:
            y.save_value(rounded(y, dense(rest.value)))


def relaxation(problem: cp.Problem) -> Relaxation:
    """The problem with continuous variables in the place of those with integers. Bounds are the nearest integers."""
    places = tuple((y, _continuous(y)) for y in problem.variables() if integral(y).any())
    used = _used(problem, [y for y, _ in places])
    continuous: dict[int, Any] = {id(y): rest for y, rest in places}
    stated, truths = _of_logic(problem, continuous)
    found = rewrite(problem, continuous | stated)
    entries = [cp.reshape(rest, (rest.size,), order="C")[np.flatnonzero(used[y.id])] for y, rest in places]
    lower, upper = (
        np.concatenate([bound[used[y.id]] for (y, _), bound in zip(places, bounds, strict=True)])
        for bounds in zip(*(limits(y) for y, _ in places), strict=True)
    )
    z = cp.Variable(len(lower))
    whole = cp.Problem(found.objective, [*found.constraints, *truths, z == cp.hstack(entries)])
    return Relaxation(whole, z, np.ceil(lower), np.floor(upper), places)


def _used(problem: cp.Problem, integers: list[cp.Variable]) -> dict[int, NDArray[np.bool_]]:
    """The integer entries of each variable, by its id: those that an index selects where it stands within indices only,
    as z of z[rows], and all others else. Entries that nothing depends on need no boxes."""
    names, chosen = {y.id for y in integers}, {y.id: np.zeros(y.shape, dtype=bool) for y in integers}

    def visit(node: Any) -> None:
        for part in node if isinstance(node, list) else node.args:
            if isinstance(part, cp.Variable) and part.id in names:
                selects = isinstance(node, (index, special_index))
                chosen[part.id][node.key if selects else ...] = True
            else:
                visit(part)

    visit([problem.objective, *problem.constraints])
    for y in integers:  # those that no integer fits, make the problem infeasible
        lower, upper = limits(y)
        chosen[y.id] |= np.ceil(lower) > np.floor(upper)
    found = {y.id: integral(y) & chosen[y.id] for y in integers}
    return found if any(part.any() for part in found.values()) else {y.id: integral(y) for y in integers}


def _of_logic(problem: cp.Problem, continuous: Mapping[int, Any]) -> tuple[dict[int, Any], list[cp.Constraint]]:
    """Numbers in [0, 1] in the place of atoms of logic, by id, and rows that settle them where booleans are 0 or 1."""
    found: dict[int, Any] = {}
    rows: list[cp.Constraint] = []

    def visit(node: Any) -> Any:
        for part in node if isinstance(node, list) else node.args:
            visit(part)
        if isinstance(node, LogicExpression) and id(node) not in found:
            found[id(node)], more = _in_numbers(node, [found.get(id(a), continuous.get(id(a), a)) for a in node.args])
            rows.extend(more)

    visit([problem.objective, *problem.constraints])
    return found, rows


def _in_numbers(node: LogicExpression, x: list[Any]) -> tuple[Any, list[cp.Constraint]]:
    """y and its rows: not 1 − x; and x₁ + x₂ − 1 ≤ y ≤ xᵢ; or xᵢ ≤ y ≤ x₁ + x₂; xor |x₁ − x₂| ≤ y ≤ min(s, 2 − s) with
    s = x₁ + x₂; of more than two one after the other."""
    x = [cp.Constant(np.asarray(a.value, dtype=float)) if isinstance(a, cp.Constant) else a for a in x]
    if isinstance(node, cp.logic.Not):
        return 1 - x[0], []
    y, rows = x[0], list[cp.Constraint]()
    for other in x[1:]:
        one, y = y, cp.Variable(node.shape, bounds=[0, 1])
        match node:
            case cp.logic.And():
                rows += [y <= one, y <= other, y >= one + other - 1]
            case cp.logic.Or():
                rows += [y >= one, y >= other, y <= one + other]
            case _:
                rows += [y >= one - other, y >= other - one, y <= one + other, y <= 2 - one - other]
    return y, rows


def _continuous(y: cp.Variable) -> cp.Variable:
    """A variable of the same shape and attributes whose entries need not be integers."""
    others = {k: v for k, v in y.attributes.items() if v and k not in ("boolean", "integer")}
    return cp.Variable(y.shape, name=y.name(), **others)
