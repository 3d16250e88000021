"""By how much the constraints of an outer problem are violated, entry by entry, and relative to their own terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.compiler.atom_domains import domain_of
from kernelopt.compiler.attributes import dense
from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.iterate import Iterate, place
from kernelopt.support.cvxpy_parts import Inequality, jacobians
from kernelopt.support.types import Array

# Largest violation at which a constraint counts as met, relative to the constraint's own terms (see `violations`). A
# smaller value would refuse points at the usual accuracy of cone solvers, a larger one accept visibly infeasible ones.
FEASIBLE = 1e-6


def outside_domain(form: CanonicalForm, point: Iterate) -> float:
    """By how much the atoms of the objective and of constraints are outside of their domains, relative to their terms.

    0 inside, and where no atom has a domain.
    """
    if not domain_of(form).whole:
        return 0.0
    place(form, point)
    return outside_of(domain_of(form).whole)


def outside_of(constraints: tuple[Any, ...]) -> float:
    """The largest violation at the values that variables have, relative to the terms; ∞ where it is not a number."""
    if not any(residual(c).any() for c in constraints):
        return 0.0
    known = {v.id: v for c in constraints for v in c.variables() if v.value is not None}
    sizes = {i: float(np.abs(dense(v.value)).max(initial=0.0)) for i, v in known.items()}
    return max(relative_violation(c, sizes, {}) for c in constraints)


def of_constraints(form: CanonicalForm, point: Iterate) -> list[Array]:
    """By how much each constraint of the outer problem is violated, entry by entry: ∞ outside of its atoms' domains."""
    place(form, point)
    found = [residual(c) for c in form.outer.constraints]
    if any(np.isinf(r).any() for r in found) and 0 < outside_of(domain_of(form).constraints) <= FEASIBLE:
        return [np.where(np.isinf(r), 0.0, r) for r in found]  # at an end of a domain, to rounding
    return found


@np.errstate(all="ignore")  # outside of a domain
def residual(constraint: Any) -> Array:
    """By how much a constraint is violated at the values of its variables.

    For exponential and power cones it is the violation of their inequalities: cvxpy would solve a projection. The
    exponential cone has y·e^(x/y) ≤ z for y > 0, and x ≤ 0 ≤ z for y = 0, whatever z is.
    """
    match constraint:
        case cp.constraints.ExpCone():
            x, y, z = (dense(a.value).astype(float) for a in constraint.args)
            beyond = np.where(y > 0, y * np.exp(np.minimum(x / np.where(y > 0, y, 1.0), 700.0)) - z, x)
            return np.maximum.reduce([beyond, -y, -z, np.zeros_like(beyond)])
        case cp.constraints.PowCone3D():
            x, y, z = (dense(a.value).astype(float) for a in constraint.args[:3])
            a = np.asarray(constraint.alpha.value)
            least = np.abs(z) - np.maximum(x, 0.0) ** a * np.maximum(y, 0.0) ** (1 - a)
            return np.maximum(np.maximum(least, np.maximum(-x, -y)), 0.0)
        case Inequality():
            # A convex side is never −∞, but 1/(−0) is, at the end of a domain.
            beyond = np.asarray(constraint.expr.value, dtype=float)
            return np.where(np.isnan(beyond) | np.isinf(beyond), np.inf, np.maximum(beyond, 0.0))
    return np.nan_to_num(np.abs(np.asarray(constraint.residual, dtype=float)), nan=np.inf, posinf=np.inf)


@np.errstate(all="ignore")
def relative_violation(
    constraint: Any, sizes: Mapping[int, float], shares: Mapping[int, float], finite: bool = False
) -> float:
    """Largest violation, relative to the terms of an entry: |a|ᵀ|x|, with the gradient a, and the values of both sides.

    Rounding of x in |aᵀx| ≤ 0 is small beside |a|ᵀ|x|, not beside |aᵀx|. `sizes` replace |x|, and the values of a side
    are multiplied by the least of its variables' `shares`: both keep a point that is huge beside the data from counting
    as feasible. With `finite`, what is infinite does not count.
    """
    violation = np.ravel(residual(constraint), order="F")
    violation = np.where(np.isinf(violation), 0.0, violation) if finite else violation
    if not violation.any():
        return 0.0
    scale = np.zeros(1)
    for part in (a for a in constraint.args if not isinstance(a, list)):
        if part.value is None:
            continue  # a variable that dropped out of the problem
        share = min((shares.get(v.id, 1.0) for v in part.variables()), default=1.0)
        numbers = [share * np.abs(np.ravel(dense(part.value), order="F"))]
        numbers += [np.ravel(abs(g).sum(axis=0)) * sizes.get(i, 0.0) for i, g in jacobians(part).items()]
        for one in numbers:
            entrywise = len(one) in (1, len(violation)) and len(scale) in (1, len(violation))
            scale = np.maximum(scale, one if entrywise else one.max(initial=0.0))
    return float(np.nan_to_num(np.max(violation / np.where(scale > 0, scale, 1.0)), nan=np.inf, posinf=np.inf))


def terms_of(constraint: Any) -> Array:
    """|a|ᵀ|x| with the gradients a of both sides, and their values, for each entry of a constraint."""
    total = np.zeros(constraint.shape)
    for part in constraint.args:
        total = total + np.abs(dense(part.value))
        values = {v.id: np.abs(np.ravel(dense(v.value), order="F")) for v in part.variables()}
        for number, slope in jacobians(part).items():
            total = total + np.reshape(abs(slope).T @ values[number], part.shape, order="F")
    return np.asarray(total)
