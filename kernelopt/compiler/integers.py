"""The convex problem that is left of a mixed-integer one when its integers are fixed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import cvxpy as cp
import numpy as np

from kernelopt.compiler.attributes import dense, integral, rounded
from kernelopt.compiler.canonical_form import CanonicalForm, rewrite
from kernelopt.support.types import Array


@dataclass(frozen=True, eq=False)
class Fixed:
    """The form with integers as constants, and for each variable that has some: their values, and the continuous
    variable that stands for its other entries, if any."""

    form: CanonicalForm
    values: tuple[tuple[cp.Variable, Array, cp.Variable | None], ...]

    def save(self) -> None:
        """Put the integers, and what other entries were found to be, on the variables that were replaced."""
        for y, value, rest in self.values:
            y.save_value(value if rest is None else np.where(integral(y), value, dense(rest.value)))


def fixed(form: CanonicalForm) -> Fixed:
    """Integers fixed at their present values, rounded."""
    values, replaced, pinned = [], {}, []
    for y in form.y:
        whole = integral(y)
        if not whole.any():
            continue
        value, rest = rounded(y, dense(y.value)), None
        if whole.all():
            replaced[id(y)] = cp.Constant(value)
        else:
            others = {k: v for k, v in y.attributes.items() if v and k not in ("boolean", "integer")}
            rest = replaced[id(y)] = cp.Variable(y.shape, name=y.name(), **others)
            pinned.append(rest[whole] == value[whole])
        values.append((y, value, rest))
    outer = rewrite(form.outer, replaced)
    outer = cp.Problem(outer.objective, [*outer.constraints, *pinned])
    return Fixed(replace(form, outer=outer), tuple(values))
