"""The violation of a point: of constraints in units of their terms and of the data, and of integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.compiler.atom_domains import domain_of
from kernelopt.compiler.attributes import dense, integral, nearest, rounded
from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.iterate import NEGLIGIBLE, Iterate, place
from kernelopt.compiler.representer import Reduction, evaluate
from kernelopt.compiler.residuals import FEASIBLE, relative_violation
from kernelopt.support.cvxpy_parts import jacobians

# Variables count in the scale of a violation with at most this multiple of the data's unit. Predictions are about as
# large as the data; without a limit, huge terms that cancel would make any violation small.
LARGE = 10.0


def violation(reduction: Reduction, point: Iterate, data_unit: float = 0.0) -> float:
    """Largest violation of a constraint of the outer problem, relative to the constraint's own terms.

    Predictions that are all but zero count with the size of the data, as ‖θ − f₀‖ does with that of f₀. Sizes beyond
    `LARGE` times the data's unit count with that, so that huge terms which cancel do not make a violation small. Where
    all variables of a constraint cost next to nothing, they count with the size that would cost as much as other terms.
    """
    form = reduction.form
    apart = max((outside(variable, value) for variable, value in zip(form.y, point.y, strict=True)), default=0.0)
    domain = domain_of(form).whole
    if not form.outer.constraints and not domain:
        return apart
    place(form, point)
    most = LARGE * data_unit if data_unit else np.inf
    unit = min(point.prediction_unit(data_unit), most)
    lengths = {n.t.id for n in form.norms}
    known = {
        v.id: float(np.abs(dense(v.value)).max(initial=0.0)) for v in form.outer.variables() if v.value is not None
    }
    sizes = {i: size if i in lengths else min(size, most) for i, size in known.items()}
    shares = {i: sizes[i] / size for i, size in known.items() if size > 0}
    for link in form.predictions:
        if link.u is not None and sizes.get(link.u.id, 0.0) < NEGLIGIBLE * unit:
            sizes[link.u.id] = unit
            length = unit / np.sqrt(reduction.factors[link.theta].scale)
            sizes |= {n.t.id: max(sizes[n.t.id], length) for n in form.norms_of(link.theta).values()}
    for norm in form.norms:
        if norm.view.shift is not None and sizes[norm.t.id] < NEGLIGIBLE * norm.view.shift.norm:
            sizes[norm.t.id] = norm.view.shift.norm
    beyond = max((relative_violation(c, sizes, shares) for c in domain), default=0.0)
    finite = 0 < beyond <= FEASIBLE  # at an end of a domain, to rounding
    found = [relative_violation(c, sizes, shares, finite) for c in form.outer.constraints]
    if max(found, default=0.0) > FEASIBLE and (floors := _floors(form, sizes)):
        found = [
            relative_violation(c, _raised(sizes, floors, c), shares, finite) if part > FEASIBLE else part
            for c, part in zip(form.outer.constraints, found, strict=True)
        ]
    return max(apart, beyond, *found)


def _floors(form: CanonicalForm, sizes: Mapping[int, float]) -> dict[int, float]:
    """For each y that costs next to nothing at its size, the size that costs as much as the largest term of the
    objective, to first order; without a cost of its own, the size that is as much beside others in a constraint."""
    costs = _steepest(form.outer.objective.args)
    most = max((cost * sizes.get(i, 0.0) for i, cost in costs.items()), default=0.0)
    if not 0 < most < np.inf:
        return {}
    of_y = {v.id: costs.get(v.id, 0.0) for v in form.y}
    found = {
        i: most / cost if cost else 0.0 for i, cost in of_y.items() if cost * sizes.get(i, 0.0) <= NEGLIGIBLE * most
    }
    among = [c for c in form.outer.constraints if {v.id for v in c.variables()} <= set(found)]
    rates = [_steepest([a for a in c.args if not isinstance(a, list)]) for c in among]
    for _ in range(len(found)):
        before = dict(found)
        for part in rates:
            largest = max((rate * found[i] for i, rate in part.items()), default=0.0)
            found |= {i: largest / rate for i, rate in part.items() if rate and not found[i]}
        if found == before:
            break
    return found


def _steepest(expressions: Sequence[cp.Expression]) -> dict[int, float]:
    """The largest |∂(entry)/∂(entry of the variable)|, by the variables' ids."""
    found = dict[int, float]()
    for expression in expressions:
        for i, g in jacobians(expression).items():
            found[i] = max(found.get(i, 0.0), float(abs(g).max()) if 0 not in g.shape else 0.0)
    return found


def _raised(sizes: Mapping[int, float], floors: Mapping[int, float], constraint: Any) -> Mapping[int, float]:
    """The sizes, at least the floors in a constraint all variables of which have one."""
    own = {v.id for v in constraint.variables()}
    return {**sizes, **{i: max(sizes.get(i, 0.0), floors[i]) for i in own}} if own <= set(floors) else sizes


def outside(variable: cp.Variable, given: Any) -> float:
    """By how much a variable's value violates its attributes (nonneg, bounds, PSD …), relative to the value's size.

    The distance from integers is absolute, since their unit is 1.
    """
    if given is None or not any(variable.attributes.values()) or variable.is_complex():
        return 0.0
    value = dense(given)
    fraction = float(np.abs(rounded(variable, value) - value).max(initial=0.0))
    inside = nearest(variable, value)
    off = float(np.abs(np.where(integral(variable), value, inside) - value).max(initial=0.0))
    return max(fraction, off / (float(np.abs(value).max(initial=0.0)) or 1.0))


def with_integers(reduction: Reduction, point: Iterate, data_unit: float = 0.0) -> Iterate:
    """The point with boolean and integer entries rounded, unless that violates constraints which hold without it."""
    y = tuple(
        rounded(variable, dense(value)) if value is not None and integral(variable).any() else value
        for variable, value in zip(reduction.form.y, point.y, strict=True)
    )
    feasible = violation(reduction, point, data_unit) <= FEASIBLE
    whole = evaluate(reduction, replace(point, y=y))
    return point if feasible and violation(reduction, whole, data_unit) > FEASIBLE else whole


def has_integers(form: CanonicalForm, point: Iterate) -> bool:
    """Whether boolean and integer entries are integers exactly."""
    chosen = [(v, dense(value)) for v, value in zip(form.y, point.y, strict=True) if integral(v).any()]
    return all(np.array_equal(rounded(v, value), value) for v, value in chosen)
