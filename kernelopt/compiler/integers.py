"""The convex problem that remains of a mixed-integer one when its integers are fixed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.compiler.attributes import dense, integral, rounded
from kernelopt.compiler.canonical_form import CanonicalForm, rewrite
from kernelopt.compiler.iterate import Iterate
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
            others = {k: v for k, v in y.attributes.items() if v and k not in ("boolean", "integer")}
            # One variable of the same shape, with equalities at its integers, fits wherever y occurs.
            rest = replaced[id(y)] = cp.Variable(y.shape, name=y.name(), **others)
            pinned.append(rest[whole] == value[whole])
        values.append((y, value, rest))
    outer = rewrite(form.outer, replaced)
    outer = cp.Problem(outer.objective, [*outer.constraints, *pinned])
    return Fixed(replace(form, outer=outer), tuple(form.y), tuple(values))
