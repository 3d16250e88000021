"""Functions that were fitted elsewhere, checked in the terms of the stated problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf, isfinite
from typing import Any

import numpy as np

from kernelopt.certificate import Certificate, certify
from kernelopt.certificate.attained import upper_bound
from kernelopt.certificate.multipliers import row_coefficients
from kernelopt.compiler import representer, violations
from kernelopt.compiler.canonical_form import CanonicalForm, PredictionLink
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.outer import Outer
from kernelopt.compiler.representer import Reduction
from kernelopt.compiler.residuals import FEASIBLE
from kernelopt.driver.verification import Check, Report, gap, local_checks, violation_with_integers
from kernelopt.factorization import CholeskyFactor, Factor
from kernelopt.kernels.domains import distinct, stack
from kernelopt.kernels.lifts import lift_of
from kernelopt.language.expressions import Theta
from kernelopt.language.functions import Function
from kernelopt.language.nodes import norm_from_gram, view_gram
from kernelopt.solvers import cvxpy_solvers
from kernelopt.support.types import Array


def audit(
    form: CanonicalForm, data: Outer | None, functions: dict[Theta, Function], tol: float,
    ours: Callable[[], tuple[Certificate | None, Mapping[int, tuple[Any, ...]]]],
) -> Report:  # fmt: skip
    """Check functions that were fitted elsewhere: predictions and norms from the kernel, feasibility, and the gap.

    Where the centers are rows of the problem and θ has one norm, the coefficients give multipliers, ν = (μ/‖θ‖)α for
    θ = Aᵀα. Where these leave the gap open, the certificate of an answer of our own gives the lower bound, and its
    multipliers of constraints what violations cost.
    """
    reduction, point = placed(form, functions, form.users_values())
    filled = with_others(form, point)
    if filled is None:
        note = "no values of the problem's variables were found for this θ"
        if not form.has_cones:
            note = "with a SmoothLoss or ProximalLoss, set the values of the problem's variables, too"
        return Report((Check("constraints hold", np.inf, FEASIBLE, note),))
    point = representer.valued(form, filled)
    if data is None:
        note = "largest violation, relative to a constraint's terms; integers: no certificate"
        violation = violation_with_integers(reduction, point)
        return Report((Check("constraints hold", violation, FEASIBLE, note),))
    if not form.is_convex:
        return Report(tuple(local_checks(reduction, data, point, tol)))
    known = _multipliers_from_coefficients(reduction, data, point)
    violation = violations.violation(reduction, point, data.data_unit)
    checks = [Check("constraints hold", violation, FEASIBLE, "largest violation, relative to a constraint's terms")]
    found = None if known is None else certify(reduction, data, replace(point, nu=known))
    if found is None or not found.closes(tol):
        lower, duals = ours()
        moved = None if lower is None else against(lower, reduction, data, replace(point, duals=duals))
        better = moved is not None and (found is None or not found.absolute_gap <= moved.absolute_gap)
        found = moved if better else found
    checks.append(gap(found, tol) if found is not None else Check("duality gap", np.inf, tol, "no lower bound"))
    # The rank here would be that of the audited θ alone, which says nothing about Q.
    return Report(tuple(checks), None if found is None else replace(found, ranks=()))


def placed(form: CanonicalForm, functions: Mapping[Theta, Function], y: tuple[Any, ...]) -> tuple[Reduction, Iterate]:
    """The problem with every θ confined to the span of a given function, and the point at that function and y."""
    factors = {link.theta: _span(link, functions[link.theta]) for link in form.predictions}
    v, u = [], []
    for link in form.predictions:
        function, factor = functions[link.theta], factors[link.theta]
        predicted = link.rows.predictions(_on_rows_kernel(link, function))
        flat = factor.matrix.least_squares(predicted.reshape(len(predicted), -1))
        v.append(flat.reshape(factor.rank, *predicted.shape[1:]))
        u.append(predicted[link.take])
    lengths = [norm_from_gram(view_gram(n.view, functions[n.view.theta]), n.kind) for n in form.norms]
    point = Iterate(tuple(v), y, tuple(u), np.array(lengths, dtype=float), nu=(None,) * len(v))
    return Reduction(form, factors), point


class _Span(CholeskyFactor):
    """θ confined to given functions: B = ACᵀ/√scale with C their orthonormal basis."""

    method = "a given function"

    def __init__(self, B: Array, scale: float, pivots: Array, basis: Array) -> None:
        super().__init__(B, scale, pivots, 1.0, 0.0, 0.0)
        object.__setattr__(self, "basis", basis)

    def coefficients(self, v: Array) -> Array:
        basis: Array = self.basis  # type: ignore[attr-defined]
        return np.asarray(basis @ v / np.sqrt(self.scale))


def _span(link: PredictionLink, function: Function) -> Factor:
    """The factor of the span of a function's outputs."""
    gram = np.atleast_2d(function.gram())
    values, V = np.linalg.eigh((gram + gram.T) / 2)
    # Outputs may depend linearly on each other; the span then has fewer dimensions than outputs.
    keep = values > 1e-14 * max(float(values[-1]), 0.0)
    T = V[:, keep] / np.sqrt(values[keep])  # orthonormal combinations of outputs
    predicted = link.rows.predictions(_on_rows_kernel(link, function)).reshape(len(link.rows), -1)
    diagonal = link.rows.diagonal()
    scale = float(diagonal.mean()) if len(diagonal) and diagonal.mean() > 0 else 1.0
    matched = _matched(link, function)
    c = function.coefficients.reshape(-1, len(gram))
    pivots, basis = (np.arange(0), np.zeros((0, T.shape[1]))) if matched is None else (matched, c @ T)
    return _Span(predicted @ T / np.sqrt(scale), scale, pivots, basis)


def _on_rows_kernel(link: PredictionLink, function: Function) -> Function:
    return function if function._kernel == link.rows.kernel else function._lifted(lift_of(link.rows.kernel))


def _matched(link: PredictionLink, function: Function) -> Array | None:
    """The row of the problem that each center equals; None where a center equals no row."""
    if function._kernel != link.rows.kernel or not len(function._centers):
        return None
    rows = stack([link.rows.points, function._centers])
    first, inverse = distinct(rows)
    at = first[inverse[len(link.rows.points) :]]
    return np.asarray(at) if np.all(at < len(link.rows.points)) else None


def with_others(form: CanonicalForm, point: Iterate, keeps: bool = False) -> Iterate | None:
    """The point with the best values of the user's variables for this θ where some have no value; None without such.

    keeps : whether the others keep theirs
    """
    if all(y is not None for y in point.y):
        return point
    return None if not form.has_cones else cvxpy_solvers.fill_in(form, point, 1e-8, keeps=keeps)


def _multipliers_from_coefficients(reduction: Reduction, data: Outer, point: Iterate) -> tuple[Array, ...] | None:
    """ν = (μ/‖θ‖)α for each link, with μ = g′(‖θ‖); None where the functions don't determine it."""
    found = []
    for number, link in enumerate(reduction.form.predictions):
        norms = reduction.form.norms_of(link.theta)
        if len(norms) != 1 or link.u is None or not len(reduction.factors[link.theta].pivots):
            return None
        [(j, norm)] = norms.items()
        length = float(point.t[j])
        slope = float(data.facts.slopes[j] + data.facts.bends[j] * length)
        if not norm.is_plain or length == 0 or slope <= 0:
            return None
        alpha = row_coefficients(reduction, point, number) * (slope / length)
        share = np.zeros(len(link.take))  # a repeated row's multiplier goes to its first place
        _, first = np.unique(link.take, return_index=True)
        share[first] = 1.0
        nu = alpha[link.take] * share[:, None]
        found.append(nu.reshape(link.u.shape))
    return tuple(found)


def against(lower: Certificate, reduction: Reduction, data: Outer, point: Iterate) -> Certificate:
    """A certificate of our own answer, with the value of another point as the upper bound.

    Violations cost twice the first order in the answer's multipliers. A value beyond the bound is that of a point which
    is not feasible, and bounds nothing.
    """
    there, sign = upper_bound(reduction, data, point), data.sign
    value = sign * point.value + there.widened if isfinite(there.upper) else inf
    proven = -lower.upper if lower.maximize else lower.lower
    loose = value == inf or (not there.is_feasible and value < proven)
    assumed = (f"no {'lower' if lower.maximize else 'upper'} bound: constraints hold too loosely",) if loose else ()
    told = () if there.is_feasible else (f"constraints met to {max(there.violations, default=0.0):.1e}",)
    found = replace(
        lower, bare=None, violations=there.violations, is_feasible=there.is_feasible, widened=there.widened,
        rests_on=(*lower.rests_on, *told), assumptions=(*lower.assumptions, *assumed),
    )  # fmt: skip
    value = inf if loose else value
    return replace(found, lower=-value) if lower.maximize else replace(found, upper=value)
