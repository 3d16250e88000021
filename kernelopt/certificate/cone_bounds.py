"""A lower bound for any outer problem, from the dual side of its cone form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from kernelopt.certificate import joint
from kernelopt.certificate.gram import FROM_FACTOR, Gram, gram_of, spans_everything
from kernelopt.certificate.multipliers import (
    Multipliers,
    functions_part,
    is_free,
    lengths_of,
    row_coefficients,
    split,
    theta_gram,
)
from kernelopt.certificate.report import Lower
from kernelopt.compiler.conic_form import ConicForm
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.representer import Reduction
from kernelopt.errors import MemoryLimitError
from kernelopt.solvers import outer_dual
from kernelopt.solvers.outer_dual import PROXIMAL, DualPoint
from kernelopt.support.types import Array

# An assumed radius of θ or box of variables, in multiples of the solution's size. A larger assumption is safer, but the
# cost of a residual grows with it. Either is reported, and the answer is then not called optimal.
FAR = 1e3
ABSOLUTE_FLOOR = 1e-8  # smallest meaningful gap, relative to the terms of the bound, as ZERO in certify.py
ROUNDING = 1e-12  # relative to the terms of the bound, or of ν: residuals up to this count as rounding
# Points to step back to, tried in this order: (a, b, c) stands for aν, and bμ plus c times a bound on ‖Aᵀν‖. The first
# one that has ‖mⱼ‖ ≤ μⱼ is blended with (ν, μ). The last two are nearer to (ν, μ), for where the others fail.
SAFE = ((0.5, 1.0, 0.0), (1.0, 2.0, 0.0), (1.0, 1.0, 1e-3), (1.0, 1.0, 1.0), (0.9, 1.0, 0.0), (0.99, 1.0, 0.0))
TINY = 1e-6  # relative to the size of the data: where predictions are smaller, their unit is the size of the data
# ‖Aᵀν‖ relative to ‖ν‖√trace(Q), up to which it counts as 0: the square root of 1e-12, which exceeds the rounding of
# νᵀQν = 0.
RANK_ROUNDING = 1e-6
# Relative room between ‖mⱼ‖ and μⱼ for the rounding that the checker counts. A larger room costs more of the bound, a
# smaller one may make the proof fail.
SPARE = 1e-11
# Relative to the terms of ν: where ν summed over repeated rows is smaller, it is taken for a solver's inaccuracy and
# made exactly 0. Larger values discard true multipliers, smaller ones leave Aᵀν ≠ 0 where θ has no norm.
CANCELS = 1e-5


def lower_bound(  # noqa: PLR0917
    reduction: Reduction, form: ConicForm, near: Iterate, nu: list[Array], mu: Array, way: str, spare: float = SPARE,
    weight: float = PROXIMAL, inside: float = 0.0,
) -> Lower | None:  # fmt: skip
    """The best bound that (ν, μ) gives for the full kernel matrix, or for the factor's where `way` is FROM_FACTOR.

    `near` is the answer that it belongs to; `weight` and `inside` are those of `outer_dual.solve`. None where no
    dual-feasible point was found.
    """
    several = np.array([len(reduction.form.norms_of(n.view.theta)) > 1 for n in reduction.form.norms], dtype=bool)
    if several.any():
        # The outer problem, with t almost fixed, determines how Aᵀν is divided among several norms of one θ.
        firm = np.concatenate([np.zeros(sum(map(len, form.u)), dtype=bool), several])
        bounds = [
            _best(_Bound(reduction, form, near, way, where, spare, weight, inside), nu, mu) for where in (firm, None)
        ]
        return max((b for b in bounds if b is not None), key=lambda b: b.value, default=None)
    return _best(_Bound(reduction, form, near, way, None, spare, weight, inside), nu, mu)


def joint_bound(reduction: Reduction, form: ConicForm, near: Iterate, way: str, room: float) -> Lower | None:
    """The bound from multipliers of all rows at once, with ‖mⱼ‖ ≤ (1 − room)μⱼ; None where they are not found."""
    bound = _Bound(reduction, form, near, way)
    try:
        found = joint.solved(reduction, form, bound.units, room)
    except (ArithmeticError, ValueError, RuntimeError, MemoryLimitError):
        return None
    point = None if found is None else bound.repaired(found.x, found.z)
    if found is None or point is None:
        return None
    multipliers = bound.multipliers(point, found.pieces)
    return evaluate(reduction, near, point, tuple(bound.grams(multipliers)), tuple(multipliers), bound.x, strict=False)


def without_multipliers(reduction: Reduction, form: ConicForm, near: Iterate, way: str) -> Lower | None:
    """The bound of multipliers 0: the objective's value where the objective is constant."""
    bound = _Bound(reduction, form, near, way)
    point = outer_dual.dual_point(form, np.zeros(len(form.c)), np.zeros(len(form.b)))
    multipliers = bound.multipliers(point)
    return bound.evaluated(point, bound.grams(multipliers), multipliers)


def _best(bound: _Bound, nu: list[Array], mu: Array) -> Lower | None:
    """The bound at a point near (ν, μ), stepped back as far as dual feasibility requires."""
    point = bound.point(nu, mu)
    if point is None:
        return None
    multipliers = bound.multipliers(point)
    if all(bound.form.P[bound.form.t] > 0):
        return bound.evaluated(point, bound.grams(multipliers), multipliers)
    # Where μ is given, ‖Aᵀν‖ ≤ μ may fail: step back towards a point with a smaller ν or a larger μ until it holds.
    largest, mu, bound.firm = bound.largest_lengths(point), np.maximum(point.mu, 0.0), None
    for of_nu, of_mu, more in SAFE:
        safe = bound.point([of_nu * n for n in nu], of_mu * mu + more * largest)
        if safe is not None and bound.is_inside(safe):
            return bound.blended(point, safe)
    return bound.evaluated(point, bound.grams(multipliers), multipliers)


class _Bound:
    """The steps of `lower_bound`, with the data that they share."""

    def __init__(  # noqa: PLR0917
        self, reduction: Reduction, form: ConicForm, near: Iterate, way: str, firm: Array | None = None,
        spare: float = SPARE, weight: float = PROXIMAL, inside: float = 0.0,
    ) -> None:  # fmt: skip
        self.reduction, self.form, self.near, self.way = reduction, form, near, way
        self.units = _units(reduction, form, near)
        self.firm, self.spare, self.weight, self.inside = firm, spare, weight, inside
        self.factors = [reduction.factors[link.theta] for link in reduction.form.predictions]
        self.coefficients = [row_coefficients(reduction, near, i) for i in range(len(self.factors))]
        self.x = np.zeros(len(form.c))

    def point(self, nu: list[Array], mu: Array) -> DualPoint | None:
        """A dual-feasible point near (ν, μ)."""
        linear = np.concatenate([*(n.ravel(order="F") for n in nu), -mu])
        try:
            here = np.concatenate([self.near.u_flat, self.near.t])
            x, z = outer_dual.solve(self.form, linear, here, self.units, self.firm, self.weight, self.inside)
        except (ArithmeticError, ValueError, RuntimeError, MemoryLimitError):
            return None
        return self.repaired(x, z)

    def repaired(self, x: Array, z: Array) -> DualPoint | None:
        """(x, z) made dual feasible."""
        self.x = x
        point = outer_dual.repaired(self.form, self.x, z, self.must_vanish([False] * len(self.factors)))
        # Where ν is almost zero on distinct rows it is made exactly zero: Aᵀν = 0 then holds for every kernel.
        links = self.reduction.form.predictions
        zero = [
            bool(np.abs(link.summed(nu)).max(initial=0.0) <= CANCELS * terms)
            for link, nu, terms in zip(links, point.nu, point.nu_terms, strict=True)
        ]
        if any(zero):
            point = outer_dual.repaired(self.form, self.x, z, self.must_vanish(zero))
        return point if np.isfinite(point.stationarity).all() else None

    def must_vanish(self, on_rows: list[bool]) -> sp.csc_array | None:
        """Combinations of u's columns in which stationarity must vanish, since Aᵀν = 0 for each θ without a norm.

        These are Bᵀν, or ν itself where `on_rows`, added up over repeated rows.
        """
        blocks, columns = [], []
        for number, link in enumerate(self.reduction.form.predictions):
            if link.u is None or not is_free(self.reduction, self.form, number):
                continue
            factor, outputs = self.factors[number], link.theta.outputs or 1
            n = len(link.rows)
            spread = sp.csc_array(
                (np.ones(len(link.take)), (np.arange(len(link.take)), link.take)), shape=(len(link.take), n)
            )
            if factor.rank < n and not on_rows[number]:
                spread = sp.csc_array(spread @ sp.csc_array(factor.matrix.whole()))
            columns.append(self.form.u[number])
            blocks.append(sp.kron(sp.eye_array(outputs), spread, format="csc"))
        if not blocks:
            return None
        selected = sp.csc_array(sp.eye_array(len(self.form.c), format="csc")[:, np.concatenate(columns)])
        return sp.csc_array(selected @ sp.block_diag(blocks, format="csc"))

    def multipliers(self, point: DualPoint, known: Mapping[int, Array] | None = None) -> list[Multipliers]:
        return [
            split(self.reduction, self.form, self.near, i, nu, point.mu, self.coefficients[i], known)
            for i, nu in enumerate(point.nu)
        ]

    def grams(self, multipliers: list[Multipliers]) -> list[Gram]:
        return [
            gram_of(link, factor, m.stack, self.way)
            for link, factor, m in zip(self.reduction.form.predictions, self.factors, multipliers, strict=True)
        ]

    def largest_lengths(self, point: DualPoint) -> Array:
        """A bound on ‖Aᵀν‖ for the θ of each norm: the largest terms of ν times N√(trace(Q)/N)."""
        sizes = {
            link.theta: terms * len(link.rows) * float(np.sqrt(factor.scale))
            for link, factor, terms in zip(self.reduction.form.predictions, self.factors, point.nu_terms, strict=True)
        }
        return np.array([sizes[norm.view.theta] for norm in self.reduction.form.norms])

    def is_inside(self, point: DualPoint) -> bool:
        """Whether ‖mⱼ‖ ≤ μⱼ according to the factor; that takes no pass over the kernel."""
        multipliers = self.multipliers(point)
        grams = [
            gram_of(link, factor, m.stack, FROM_FACTOR)
            for link, factor, m in zip(self.reduction.form.predictions, self.factors, multipliers, strict=True)
        ]
        return _admissible(self.form, point, grams, multipliers, self.spare)

    def evaluated(self, point: DualPoint, grams: list[Gram], multipliers: list[Multipliers]) -> Lower | None:
        """D at a point; t is chosen optimally where its penalty is strongly convex."""
        return evaluate(self.reduction, self.near, point, tuple(grams), tuple(multipliers), self.x)

    def blended(self, point: DualPoint, safe: DualPoint) -> Lower | None:
        """D at the blend nearest to `point` that has ‖mⱼ‖ ≤ μⱼ, by bisection.

        One pass over the kernel serves all blends: V holds the vectors of both points.
        """
        first, second = self.multipliers(point), self.multipliers(safe)
        widths = [m.stack.shape[1] for m in first]
        if any(a.widths != b.widths or k != b.stack.shape[1] for a, b, k in zip(first, second, widths, strict=True)):
            return self.evaluated(safe, self.grams(second), second)  # a part of ν that one of them alone has
        both = [replace(a, stack=np.hstack([a.stack, b.stack])) for a, b in zip(first, second, strict=True)]
        grams = self.grams(both)

        def at(share: float) -> tuple[DualPoint, list[Gram], list[Multipliers]]:
            mixed, mixed_grams = [], []
            for a, b, G, k in zip(first, second, grams, widths, strict=True):
                T = np.vstack([share * np.eye(k), (1 - share) * np.eye(k)])
                start = sum(a.widths)
                T[start:k, start:], T[k + start :, start:] = np.eye(k - start), 0.0  # functions f₀ are not blended
                mixed.append(replace(a, stack=share * a.stack + (1 - share) * b.stack))
                mixed_grams.append(G.mixed(T))
            return point.blend(safe, share), mixed_grams, mixed

        def allowed(share: float) -> bool:
            candidate, mixed_grams, mixed = at(share)
            return _admissible(self.form, candidate, mixed_grams, mixed, self.spare)

        if allowed(1.0):
            share = 1.0
        else:
            low, high = 0.0, 1.0
            if not allowed(0.0):
                return self.evaluated(*at(1.0))
            for _ in range(60):
                middle = (low + high) / 2
                low, high = (middle, high) if allowed(middle) else (low, middle)
            share = low
        return self.evaluated(*at(share))


def _admissible(
    form: ConicForm, point: DualPoint, grams: list[Gram], multipliers: list[Multipliers], spare: float
) -> bool:
    """Whether ‖mⱼ‖(1 + spare) ≤ μⱼ wherever μⱼ is given."""
    for m, gram in zip(multipliers, grams, strict=True):
        for j, length in zip(m.norms, lengths_of(m, gram), strict=False):
            if form.P[form.t[j]] == 0 and length * (1 + spare) > point.mu[j]:
                return False
    return True


def evaluate(  # noqa: PLR0917
    reduction: Reduction, near: Iterate, point: DualPoint, grams: tuple[Gram, ...],
    multipliers: tuple[Multipliers, ...], x_hat: Array, strict: bool = True,
) -> Lower | None:  # fmt: skip
    """D at a dual point: the outer problem's part, less Σ⟨mⱼ, f₀ⱼ⟩, less the cost of residuals under assumptions.

    Where t enters as ½P t², μ = ‖m‖ is reached by t = (‖m‖ − (c + Aᵀz)_t)/P. Where no norm binds θ, Aᵀν must vanish;
    its remainder costs ‖Aᵀν‖ times an assumed radius of θ. None where some ‖mⱼ‖ exceeds a given μⱼ, unless the checker
    decides about that (not `strict`).
    """
    form, x, assumes_radius = point.form, point.x.copy(), False
    assumptions: list[str] = []
    radii = np.full(len(multipliers), np.inf)
    charge = rounding = theta_part = 0.0
    for number, (m, gram) in enumerate(zip(multipliers, grams, strict=True)):
        lengths = lengths_of(m, gram)
        if m.free:
            link = reduction.form.predictions[number]
            typical = near.prediction_unit(form.units[0])
            typical /= float(np.sqrt(reduction.factors[link.theta].scale))
            size = max(float(np.sqrt(np.trace(theta_gram(reduction, near, number)))), typical)
            radii[number] = FAR * size
            terms_of_nu = point.nu_terms[number]
            vanishes = np.abs(m.stack).max(initial=0.0) <= ROUNDING * terms_of_nu
            most = terms_of_nu * len(m.stack) * float(np.sqrt(reduction.factors[link.theta].scale))
            spans = spans_everything(link, reduction.factors[link.theta])
            least = ABSOLUTE_FLOOR * max(outer_dual.magnitude(form, x, point.z), form.units[1])
            if vanishes or (spans and (lengths[0] <= RANK_ROUNDING * most or FAR * size * lengths[0] <= least)):
                rounding += float(lengths[0]) * size
            elif lengths[0] > 0:
                radius = FAR * size
                charge += radius * float(lengths[0])
                assumes_radius = True
                assumptions.append(f"for ‖{link.theta.name}‖ ≤ {radius:.3g}")
            continue
        theta_part += functions_part(m, gram)
        for j, length in zip(m.norms, lengths, strict=True):
            column = form.t[j]
            if form.P[column] > 0:
                rest = point.stationarity[column] - form.P[column] * point.x[column]
                with np.errstate(over="ignore"):  # a length beyond all doubles proves nothing
                    x[column] = max(0.0, float((length - rest) / form.P[column]))
            elif strict and length > point.mu[j]:
                return None
    inner = np.ones(len(form.c), dtype=bool)
    inner[form.linked] = False
    residual = np.abs(point.stationarity[inner])
    terms = outer_dual.magnitude(form, x, point.z)
    leftover = float(residual @ np.maximum(np.abs(x_hat[inner]), form.units[0]))
    if leftover <= ROUNDING * max(terms, form.units[1]):
        rounding += leftover
    else:
        charge += FAR * leftover
        assumptions.append(f"for auxiliary variables up to {FAR:.0f} times their size")
    rounding += 8 * np.finfo(float).eps * (terms + abs(form.offset))
    value = outer_dual.value(form, x, point.z) - theta_part - charge
    return Lower(
        value,
        tuple(assumptions),
        rounding,
        terms,
        assumes_radius,
        multipliers,
        grams,
        point=replace(point, x=x),
        box=FAR * np.maximum(np.abs(x_hat), form.units[0]),
        radii=tuple(radii.tolist()),
    )


def evaluate_again(reduction: Reduction, form: ConicForm, near: Iterate, known: Lower) -> Lower | None:
    """D at a known dual point for other values of parameters; None where it is not dual feasible for them."""
    if known.point is None or form.A.shape != known.point.form.A.shape:
        return None
    point = outer_dual.dual_point(form, known.point.x, known.point.z)
    for nu, old, terms in zip(point.nu, known.point.nu, known.point.nu_terms, strict=True):
        if np.abs(nu - old).max(initial=0.0) > ROUNDING * terms:
            return None
    return evaluate(reduction, near, point, known.grams, known.multipliers, point.x, strict=False)


def _units(reduction: Reduction, form: ConicForm, near: Iterate) -> Array:
    """The sizes of u and t at the solution; where u is zero, the size of the data, and that of ‖θ‖ for such u."""
    units = []
    sizes = {}
    for link, u in zip(reduction.form.predictions, near.u, strict=True):
        size = float(np.abs(u).max(initial=0.0))
        size = size if size > TINY * form.units[0] else form.units[0]
        sizes[link.theta] = size / np.sqrt(reduction.factors[link.theta].scale)
        units.append(np.full(u.size, size))
    lengths = [max(t, sizes[n.view.theta]) for n, t in zip(reduction.form.norms, near.t, strict=True)]
    return np.concatenate([*units, lengths])
