"""How close an answer is to the optimum of the problem that was stated, with the full kernel matrix.

With multipliers ν of u = Aθ and μ of ‖θ‖ ≤ t, θ leaves the Lagrangian iff √(νᵀQν) ≤ μ, so that

    D(ν, μ) = inf over (u, t ≥ 0, y) of  f(u, t, y) + νᵀu − μt

bounds the optimum from below. It is evaluated on the dual side of the outer problem, at a point that is dual feasible
up to rounding; νᵀQν comes from a pass over the kernel's own values, not from the factor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf, isfinite, log10
from time import perf_counter
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import nnls

from kernelopt.compiler import representer
from kernelopt.compiler.conic_form import ConicForm
from kernelopt.compiler.form import NormLink, PredictionLink
from kernelopt.compiler.representer import Reduction
from kernelopt.expressions import Theta
from kernelopt.factorization import Factor
from kernelopt.factorization.dense import ProjectedFactor
from kernelopt.kernels.domains import Array
from kernelopt.nodes import EUCLIDEAN, norm_from_gram
from kernelopt.solvers import outer
from kernelopt.solvers.outer import DualPoint

FULL, REDUCED, ESTIMATE = "full kernel", "reduced problem", "estimate"
FAR = 1e3  # an assumed radius or box, in sizes of the solution
ROUNDING = 1e-12  # a residual of this size relative to the terms of the bound is arithmetic
ABSOLUTE_FLOOR = 1e-8  # smallest meaningful gap, relative to the terms of the bound
CHEAP = "full kernel, by the trace of what the factor leaves"
DUAL_KIND = {"nuc": 2, 2: "nuc"}
# Points to step back to: shares of ν, and of μ plus a share of the largest possible ‖Aᵀν‖.
SAFE = ((0.5, 1.0, 0.0), (1.0, 2.0, 0.0), (1.0, 1.0, 1e-3), (1.0, 1.0, 1.0), (0.9, 1.0, 0.0), (0.99, 1.0, 0.0))
TINY = 1e-6  # predictions smaller than this, relative to the data, are taken for zero when units are chosen
READABLE = 1e-3  # a larger relative gap says nothing where the absolute one has no meaning (θ = 0 is optimal)
RANK_ROUNDING = 1e-6  # ‖Aᵀν‖ relative to ‖ν‖√trace(Q): the square root of what arithmetic leaves of νᵀQν = 0
CANCELS = 1e-5  # sums of ν over repeated rows below this share of ν are taken for a solver's inaccuracy
SAMPLE = 400


@dataclass(frozen=True, eq=False)
class Certificate:
    """An enclosure of the optimum of the stated problem; prints as one sentence.

    Attributes
    ----------
    lower, upper : float
        The optimum lies between them, up to `rounding`. For a Maximize too.
    absolute_gap : float
        upper − lower.
    relative_gap : float
        (upper − lower)/(P₀ − upper), with P₀ the optimum at θ = 0 (for a Maximize: (upper − lower)/(lower − P₀)); the
        denominator is |upper| where θ = 0 is infeasible. 1e-3 says that 99.9 % of the attainable improvement over
        θ = 0 was attained. Constants added to the objective do not change it; nan where θ = 0 is optimal.
    scope : str
        "full kernel": for every θ of the stated problem; "reduced problem": for θ in the span of the factor only;
        "estimate": not a bound (νᵀQν was sampled).
    ranks : tuple of (rank, number of distinct rows), one for each θ
    assumptions : tuple of str
        What the lower bound takes for granted beside the statement (a radius, a box, a projected kernel matrix).
    widened : float
        By how much the upper bound was raised, to first order in the multipliers, for constraints that hold only
        up to a small violation; included in `upper`.
    rounding : float
        Size of the rounding errors that the bounds do not cover.
    floor : float
        1e-8 of the terms that the bounds are made of: a smaller gap has no meaning. What `abs_tol` is by default.
    at_zero : float or None
        P₀.
    distance : mapping of θ to a bound on ‖θ̂ − θ*‖
        √(absolute_gap/λ) where the objective holds λ‖θ‖²; only for scope "full kernel".
    seconds : wall time that the certificate took
    """

    lower: float
    upper: float
    scope: str
    ranks: tuple[tuple[int, int], ...]
    assumptions: tuple[str, ...]
    widened: float
    rounding: float
    floor: float
    at_zero: float | None
    maximize: bool
    seconds: float
    distance: Mapping[Theta, float] = field(default_factory=dict)
    evidence: Evidence | None = field(default=None, repr=False)

    @property
    def absolute_gap(self) -> float:
        return self.upper - self.lower

    @property
    def relative_gap(self) -> float:
        attained = self.lower if self.maximize else self.upper
        unit = abs(attained) if self.at_zero is None else abs(self.at_zero - attained)
        if not isfinite(self.absolute_gap) or unit == 0:
            return inf if self.absolute_gap == inf else np.nan
        return max(self.absolute_gap, 0.0) / unit

    def closes(self, tol: float, abs_tol: float | None = None) -> bool:
        """Whether the relative gap is ≤ tol, or the absolute one ≤ abs_tol (`floor` by default)."""
        return self.relative_gap <= tol or self.absolute_gap <= (self.floor if abs_tol is None else abs_tol)

    def __str__(self) -> str:
        gap = f"relative gap {self.relative_gap:.1e}"
        if not isfinite(self.relative_gap) or (self.relative_gap > READABLE and self.absolute_gap <= self.floor):
            gap = f"absolute gap {self.absolute_gap:.1e}"
        ranks = ", ".join(f"rank {r} of {n}" for r, n in self.ranks)
        parts = [f"optimum in [{self._digits(self.lower)}, {self._digits(self.upper)}]", gap, self.scope, ranks]
        return ", ".join(p for p in [*parts, *self.assumptions] if p)

    def _digits(self, bound: float) -> str:
        """A bound with as many digits as show the gap, rounded outward."""
        gap = self.absolute_gap
        if not isfinite(bound):
            return f"{bound}"
        if not isfinite(gap) or gap <= 0 or bound == 0:
            return f"{bound:.10g}"
        digits = int(np.clip(2 - np.floor(log10(gap / abs(bound))), 2, 16))
        return f"{bound:.{digits}g}"


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a certificate rests on: enough to bound the optimum again when only parameters change.

    point : dual point; grams : for each θ the Gram matrix of its stacked multipliers and functions f₀.
    """

    point: DualPoint
    grams: tuple[Array, ...]
    multipliers: tuple[Multipliers, ...]
    scope: str


@dataclass(frozen=True, eq=False)
class Multipliers:
    """How one θ leaves the Lagrangian: Aᵀν = Σⱼ mⱼMⱼᵀ with mⱼ = Aᵀnⱼ, (θM − f₀) in norm j meeting mⱼ.

    stack : [n₁ … n_J, E], (n, columns) over the distinct rows, E the unit columns of functions f₀
    widths : columns of each nⱼ; norms : indices j in the form; kinds : dual norms
    shifts : for each norm the columns of its f₀ in `stack`, or none
    free : whether no norm binds some direction of θ, so that mⱼ do not add up to Aᵀν
    """

    stack: Array
    widths: tuple[int, ...]
    norms: tuple[int, ...]
    kinds: tuple[Any, ...]
    shifts: tuple[slice, ...]
    free: bool


@dataclass(frozen=True)
class Lower:
    """A lower bound and what it took."""

    value: float
    point: DualPoint
    assumptions: tuple[str, ...]
    rounding: float
    grams: tuple[Array, ...]
    multipliers: tuple[Multipliers, ...]
    assumes_radius: bool


# ---------------------------------------------------------------- θ's part of the Lagrangian


def _summed(link: PredictionLink, nu: Array) -> Array:
    """ν added up over repeated rows, (n, K)."""
    outputs = link.theta.outputs or 1
    total = np.zeros((len(link.rows), outputs))
    if link.u is not None:
        np.add.at(total, link.take, nu.reshape(-1, outputs, order="F"))
    return total


def _right(norm: NormLink) -> Array:
    outputs = norm.view.theta.outputs or 1
    M = norm.view.right
    return np.eye(outputs) if M is None else M.reshape(outputs, -1)


def _multipliers(reduction: Reduction, number: int, nu: Array, mu: Array, coefficients: Array) -> Multipliers:
    """Split Aᵀν among the norms of θ: mⱼ = μⱼ(θ̂Mⱼ − f₀)/‖·‖ where there are several, and the rest evenly."""
    form = reduction.form
    link = form.predictions[number]
    norms = [j for j, n in enumerate(form.norms) if n.view.theta is link.theta]
    total = _summed(link, nu)
    shifts = [form.norms[j].function_rows for j in norms]
    rights = [_right(form.norms[j]) for j in norms]
    stacked = np.hstack(rights) if norms else np.zeros((total.shape[1], 0))
    free = _is_free(reduction, number)
    pieces = []
    for j, M, rows in zip(norms, rights, shifts, strict=True):
        piece = np.zeros((len(total), M.shape[1]))
        if len(norms) > 1 and form.norms[j].kind in (EUCLIDEAN, "fro") and form.norms[j].t.value > 0:
            piece += coefficients @ M
            piece[rows, np.arange(len(rows))] -= 1.0
            piece *= mu[j] / float(form.norms[j].t.value)
        pieces.append(piece)
    if norms and not free:
        n = np.hstack(pieces)
        n += (total - n @ stacked.T) @ np.linalg.pinv(stacked.T)
    else:
        n = total
    units, places, at = [], [], n.shape[1]
    for rows in shifts:
        unit = np.zeros((len(total), len(rows)))
        unit[rows, np.arange(len(rows))] = 1.0
        units.append(unit)
        places.append(slice(at, at + len(rows)))
        at += len(rows)
    return Multipliers(
        np.hstack([n, *units]),
        tuple(M.shape[1] for M in rights) if not free else (n.shape[1],),
        tuple(norms) if not free else (),
        tuple(DUAL_KIND.get(form.norms[j].kind, "fro") for j in norms) if not free else (),
        tuple(places),
        free,
    )


def _lengths(m: Multipliers, gram: Array) -> Array:
    """The dual norm of each mⱼ, from the Gram matrix of the stack."""
    ends = np.cumsum([0, *m.widths])
    kinds = m.kinds or ("fro",)
    return np.array(
        [norm_from_gram(gram[a:b, a:b], kind) for a, b, kind in zip(ends[:-1], ends[1:], kinds, strict=True)]
    )


def _functions_part(m: Multipliers, gram: Array) -> float:
    """Σⱼ⟨mⱼ, f₀ⱼ⟩."""
    if m.free:
        return 0.0
    ends = np.cumsum([0, *m.widths])
    return sum(
        float(np.trace(gram[a:b, place]))
        for a, b, place in zip(ends[:-1], ends[1:], m.shifts, strict=True)
        if place.stop > place.start
    )


# ---------------------------------------------------------------- Gram matrices of multipliers


def _from_factor(factor: Factor, V: Array) -> Array:
    """VᵀBBᵀV·scale."""
    C = factor.B.T @ V
    return factor.scale * (C.T @ C)


def _residual_bound(factor: Factor, V: Array) -> Array:
    """tr(Q − BBᵀ)·VᵀV ⪰ Vᵀ(Q − BBᵀ)V, without a pass over Q."""
    return max(factor.residual, 0.0) * factor.scale * len(factor.B) * (V.T @ V)


def _sampled(link: PredictionLink, factor: Factor, V: Array, seed: int) -> Array:
    """VᵀQV with Vᵀ(Q − BBᵀ)V estimated from rows drawn with p ∝ |V|√diag(Q − BBᵀ)."""
    rows = link.rows
    d = np.clip(rows.diagonal() / factor.scale - np.einsum("ij,ij->i", factor.B, factor.B), 0.0, None)
    weight = np.linalg.norm(V, axis=1) * np.sqrt(d)
    if weight.sum() == 0:
        return _from_factor(factor, V)
    p = weight / weight.sum()
    drawn = np.sort(np.random.default_rng(seed).choice(len(p), size=SAMPLE, p=p))
    scaled = V[drawn] / (SAMPLE * p[drawn])[:, None]
    E = rows.subset(drawn).gram() - factor.scale * factor.B[drawn] @ factor.B[drawn].T
    return _from_factor(factor, V) + scaled.T @ E @ scaled


def _gram(link: PredictionLink, factor: Factor, V: Array, scope: str) -> Array:
    if scope == REDUCED or isinstance(factor, ProjectedFactor) or factor.rank == 0 == len(link.rows):
        return _from_factor(factor, V)
    if scope == ESTIMATE:
        return _sampled(link, factor, V, seed=0)
    if scope == CHEAP:
        return _from_factor(factor, V) + (0.0 if spans_everything(link, factor) else _residual_bound(factor, V))
    return link.rows.quadratic(V)


# ---------------------------------------------------------------- the lower bound


def lower_bound(reduction: Reduction, form: ConicForm, nu: list[Array], mu: Array, scope: str) -> Lower | None:
    """The best bound that (ν, μ) gives, for the full kernel matrix or, with `scope` REDUCED, for that of the factor.

    None where no dual-feasible point was found.
    """
    bound = _Bound(reduction, form, scope)
    point = bound.point(nu, mu)
    if point is None:
        return None
    multipliers = bound.multipliers(point)
    if all(form.P[form.t] > 0):
        return bound.evaluated(point, bound.grams(multipliers), multipliers)
    # Step back towards a point with less of ν, or more of μ, as far as it takes to have ‖Aᵀν‖ ≤ μ.
    largest = bound.largest_lengths(point)
    for of_nu, of_mu, more in SAFE:
        safe = bound.point([of_nu * n for n in nu], of_mu * mu + more * largest)
        if safe is not None and bound.is_inside(safe):
            return bound.blended(point, safe)
    return bound.evaluated(point, bound.grams(multipliers), multipliers)


class _Bound:
    """The steps of `lower_bound`, which share what is known about the solution."""

    def __init__(self, reduction: Reduction, form: ConicForm, scope: str) -> None:
        self.reduction, self.form, self.scope = reduction, form, scope
        self.near = np.concatenate(
            [*(_flat(link) for link in reduction.form.predictions), _lengths_of_theta(reduction)]
        )
        self.units = _units(reduction, form)
        self.factors = [reduction.factors[link.theta] for link in reduction.form.predictions]
        self.coefficients = [_row_coefficients(reduction, i) for i in range(len(self.factors))]
        self.x = np.zeros(len(form.c))

    def point(self, nu: list[Array], mu: Array) -> DualPoint | None:
        """A dual-feasible point near (ν, μ)."""
        linear = np.concatenate([*(n.ravel(order="F") for n in nu), -mu])
        try:
            self.x, z = outer.solve(self.form, linear, self.near, self.units)
        except (ArithmeticError, ValueError, RuntimeError):
            return None
        point = outer.repaired(self.form, self.x, z, self._must_vanish([False] * len(self.factors)))
        # Where ν is all but zero on distinct rows it is made so: Aᵀν = 0 then holds for every kernel.
        links = self.reduction.form.predictions
        zero = [
            bool(np.abs(_summed(link, nu)).max(initial=0.0) <= CANCELS * terms)
            for link, nu, terms in zip(links, point.nu, point.nu_terms, strict=True)
        ]
        if any(zero):
            point = outer.repaired(self.form, self.x, z, self._must_vanish(zero))
        return point

    def _must_vanish(self, on_rows: list[bool]) -> sp.csc_array | None:
        """The combinations of u's columns that make up Aᵀν for each θ without a norm: stationarity vanishes there.

        These are Bᵀν, or where `on_rows` ν itself, added up over repeated rows.
        """
        blocks, columns = [], []
        for number, link in enumerate(self.reduction.form.predictions):
            if link.u is None or not _is_free(self.reduction, number):
                continue
            factor, outputs = self.factors[number], link.theta.outputs or 1
            n = len(link.rows)
            spread = sp.csc_array(
                (np.ones(len(link.take)), (np.arange(len(link.take)), link.take)), shape=(len(link.take), n)
            )
            if factor.rank < n and not on_rows[number]:
                spread = sp.csc_array(spread @ sp.csc_array(factor.B))
            columns.append(self.form.u[number])
            blocks.append(sp.kron(sp.eye_array(outputs), spread, format="csc"))
        if not blocks:
            return None
        selected = sp.csc_array(sp.eye_array(len(self.form.c), format="csc")[:, np.concatenate(columns)])
        return sp.csc_array(selected @ sp.block_diag(blocks, format="csc"))

    def multipliers(self, point: DualPoint) -> list[Multipliers]:
        return [_multipliers(self.reduction, i, nu, point.mu, self.coefficients[i]) for i, nu in enumerate(point.nu)]

    def grams(self, multipliers: list[Multipliers]) -> list[Array]:
        return [
            _gram(link, factor, m.stack, self.scope)
            for link, factor, m in zip(self.reduction.form.predictions, self.factors, multipliers, strict=True)
        ]

    def largest_lengths(self, point: DualPoint) -> Array:
        """A bound on ‖Aᵀν‖ for the θ of each norm: that of terms of ν times N√(trace(Q)/N)."""
        sizes = {
            link.theta: terms * len(link.rows) * float(np.sqrt(factor.scale))
            for link, factor, terms in zip(self.reduction.form.predictions, self.factors, point.nu_terms, strict=True)
        }
        return np.array([sizes[norm.view.theta] for norm in self.reduction.form.norms])

    def is_inside(self, point: DualPoint) -> bool:
        """Whether ‖mⱼ‖ ≤ μⱼ by the factor, which is cheap."""
        multipliers = self.multipliers(point)
        grams = [
            _gram(link, factor, m.stack, REDUCED)
            for link, factor, m in zip(self.reduction.form.predictions, self.factors, multipliers, strict=True)
        ]
        return _admissible(self.form, point, grams, multipliers)

    def evaluated(self, point: DualPoint, grams: list[Array], multipliers: list[Multipliers]) -> Lower | None:
        """D at a point, with t's part of it chosen where its penalty is strongly convex."""
        return evaluate(self.reduction, point, tuple(grams), tuple(multipliers), self.x)

    def blended(self, point: DualPoint, safe: DualPoint) -> Lower | None:
        """The best of D(blend) over blends of two points with ‖mⱼ‖ ≤ μⱼ, from one pass over the kernel."""
        first, second = self.multipliers(point), self.multipliers(safe)
        widths = [m.stack.shape[1] for m in first]
        both = [replace(a, stack=np.hstack([a.stack, b.stack])) for a, b in zip(first, second, strict=True)]
        grams = self.grams(both)

        def at(share: float) -> tuple[DualPoint, list[Array], list[Multipliers]]:
            mixed, mixed_grams = [], []
            for a, b, G, k in zip(first, second, grams, widths, strict=True):
                T = np.vstack([share * np.eye(k), (1 - share) * np.eye(k)])
                start = sum(a.widths)
                T[start:k, start:], T[k + start :, start:] = np.eye(k - start), 0.0  # functions f₀ stay
                mixed.append(replace(a, stack=share * a.stack + (1 - share) * b.stack))
                mixed_grams.append(T.T @ G @ T)
            return point.blend(safe, share), mixed_grams, mixed

        def allowed(share: float) -> bool:
            candidate, mixed_grams, mixed = at(share)
            return _admissible(self.form, candidate, mixed_grams, mixed)

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


def _admissible(form: ConicForm, point: DualPoint, grams: list[Array], multipliers: list[Multipliers]) -> bool:
    """Whether ‖mⱼ‖ ≤ μⱼ wherever μⱼ can't be chosen."""
    for m, gram in zip(multipliers, grams, strict=True):
        for j, length in zip(m.norms, _lengths(m, gram), strict=False):
            if form.P[form.t[j]] == 0 and length > point.mu[j]:
                return False
    return True


def evaluate(
    reduction: Reduction, point: DualPoint, grams: tuple[Array, ...], multipliers: tuple[Multipliers, ...], x_hat: Array
) -> Lower | None:
    """D at a dual point: the outer problem's part, less Σ⟨mⱼ, f₀ⱼ⟩, less what assumptions charge.

    Where t enters as ½P t², μ = ‖m‖ is reached by t = (‖m‖ − (c + Aᵀz)_t)/P. Where no norm binds θ, Aᵀν must vanish;
    what is left of it is charged to a radius for ‖θ‖. None where some ‖mⱼ‖ exceeds a μⱼ that can't be chosen.
    """
    form, x, assumes_radius = point.form, point.x.copy(), False
    assumptions: list[str] = []
    charge = rounding = theta_part = 0.0
    for number, (m, gram) in enumerate(zip(multipliers, grams, strict=True)):
        lengths = _lengths(m, gram)
        if m.free:
            link = reduction.form.predictions[number]
            typical = representer.prediction_unit(reduction.form, form.units[0])
            typical /= float(np.sqrt(reduction.factors[link.theta].scale))
            size = max(float(np.sqrt(np.trace(_theta_gram(reduction, number)))), typical)
            terms_of_nu = point.nu_terms[number]
            vanishes = np.abs(m.stack).max(initial=0.0) <= ROUNDING * terms_of_nu
            most = terms_of_nu * len(m.stack) * float(np.sqrt(reduction.factors[link.theta].scale))
            spans = spans_everything(link, reduction.factors[link.theta])
            if vanishes or (spans and lengths[0] <= RANK_ROUNDING * most):
                rounding += float(lengths[0]) * size
            elif lengths[0] > 0:
                radius = FAR * size
                charge += radius * float(lengths[0])
                assumes_radius = True
                assumptions.append(f"for ‖{link.theta.name}‖ ≤ {radius:.3g}")
            continue
        theta_part += _functions_part(m, gram)
        for j, length in zip(m.norms, lengths, strict=True):
            column = form.t[j]
            if form.P[column] > 0:
                rest = point.stationarity[column] - form.P[column] * point.x[column]
                x[column] = max(0.0, float((length - rest) / form.P[column]))
            elif length > point.mu[j]:
                return None
    inner = np.ones(len(form.c), dtype=bool)
    inner[form.linked] = False
    residual = np.abs(point.stationarity[inner])
    terms = outer.magnitude(form, x, point.z)
    leftover = float(residual @ np.maximum(np.abs(x_hat[inner]), form.units[0]))
    if leftover <= ROUNDING * max(terms, form.units[1]):
        rounding += leftover
    else:
        charge += FAR * leftover
        assumptions.append(f"for auxiliary variables up to {FAR:.0f} times their size")
    rounding += 8 * np.finfo(float).eps * (terms + abs(form.offset))
    value = outer.value(form, x, point.z) - theta_part - charge
    return Lower(value, replace(point, x=x), tuple(assumptions), rounding, grams, multipliers, assumes_radius)


def _is_free(reduction: Reduction, number: int) -> bool:
    """Whether no norm binds some direction of θ."""
    link = reduction.form.predictions[number]
    norms = [n for n in reduction.form.norms if n.view.theta is link.theta]
    outputs = link.theta.outputs or 1
    return not norms or bool(np.linalg.matrix_rank(np.hstack([_right(n) for n in norms])) < outputs)


def spans_everything(link: PredictionLink, factor: Factor) -> bool:
    """Whether the factor's rank is that of Q: by counting, as many as rows or as features; or as many as arithmetic
    can tell apart where there are finitely many features."""
    if isinstance(factor, ProjectedFactor):
        return not factor.is_restriction
    p = link.rows.features
    nothing_left = factor.residual <= 100 * float(np.finfo(float).eps)
    return factor.rank in (len(link.rows), p) or (isfinite(p) and nothing_left)


def _flat(link: PredictionLink) -> Array:
    return np.zeros(0) if link.u is None else np.ravel(link.u.value, order="F")


def _lengths_of_theta(reduction: Reduction) -> Array:
    return np.array([float(norm.t.value) for norm in reduction.form.norms])


def _units(reduction: Reduction, form: ConicForm) -> Array:
    """The sizes of u and t at the solution; where it is zero, those of the right-hand side and of ‖θ‖ for such u."""
    units = []
    sizes = {}
    for link in reduction.form.predictions:
        u = _flat(link)
        size = float(np.abs(u).max(initial=0.0))
        size = size if size > TINY * form.units[0] else form.units[0]
        sizes[link.theta] = size / np.sqrt(reduction.factors[link.theta].scale)
        units.append(np.full(len(u), size))
    lengths = [max(float(n.t.value), sizes[n.view.theta]) for n in reduction.form.norms]
    return np.concatenate([*units, lengths])


def _row_coefficients(reduction: Reduction, number: int) -> Array:
    """θ̂ as combination of all rows, (n, K)."""
    link = reduction.form.predictions[number]
    factor, v = reduction.factors[link.theta], reduction.v[link.theta]
    outputs = link.theta.outputs or 1
    c = np.zeros((len(link.rows), outputs))
    if v is not None and v.value is not None:
        c[factor.pivots] = factor.coefficients(v.value).reshape(-1, outputs)
    return c


def _theta_gram(reduction: Reduction, number: int) -> Array:
    link = reduction.form.predictions[number]
    factor, v = reduction.factors[link.theta], reduction.v[link.theta]
    if v is None or v.value is None:
        return np.zeros((1, 1))
    V = v.value.reshape(factor.rank, -1)
    return np.asarray(V.T @ V / factor.scale)


# ---------------------------------------------------------------- the certificate


def norm_multipliers(reduction: Reduction, nu: list[Array]) -> Array:
    """μ with Aᵀν = Σ μⱼ·∂‖θMⱼ − f₀‖: the dual norm of Aᵀν for one norm, nonnegative least squares for several."""
    mu = np.zeros(len(reduction.form.norms))
    for number, link in enumerate(reduction.form.predictions):
        factor = reduction.factors[link.theta]
        norms = [j for j, n in enumerate(reduction.form.norms) if n.view.theta is link.theta]
        if not norms or not factor.rank:
            continue
        target = np.sqrt(factor.scale) * factor.B.T @ _summed(link, nu[number])
        if len(norms) == 1 and reduction.form.norms[norms[0]].view.right is None:
            kind: Any = DUAL_KIND.get(reduction.form.norms[norms[0]].kind, "fro")
            mu[norms[0]] = norm_from_gram(target.T @ target, kind)
            continue
        w = np.sqrt(factor.scale) * factor.B.T @ _row_coefficients(reduction, number)
        gradients = []
        for j in norms:
            norm = reduction.form.norms[j]
            M = _right(norm)
            shifted = w @ M
            if len(norm.function_rows):
                shifted = shifted - np.sqrt(factor.scale) * factor.B[norm.function_rows].T
            gradients.append((_gradient(shifted, norm.kind) @ M.T).ravel())
        mu[norms] = nnls(np.array(gradients).T, target.ravel())[0]
    return mu


def _gradient(W: Array, kind: str | int) -> Array:
    """A subgradient of a norm of W: W/‖W‖, UVᵀ for the nuclear norm, u₁v₁ᵀ for the spectral one."""
    if not W.any():
        return W
    if kind not in ("nuc", 2):
        return np.asarray(W / np.linalg.norm(W))
    U, s, Vt = np.linalg.svd(W, full_matrices=False)
    keep = slice(0, 1) if kind == 2 else s > 1e-9 * s[0]
    return np.asarray(U[:, keep] @ Vt[keep])


def value_at_zero(form: ConicForm, t: Array) -> float | None:
    """P₀, the optimum over y with u = 0 and t given; None where there is none."""
    fixed = np.concatenate([np.zeros(sum(map(len, form.u))), t])
    return outer.value_at(form, fixed)


def certify(  # noqa: PLR0917
    reduction: Reduction,
    form: ConicForm,
    value: float,
    scope: str = FULL,
    tol: float = 0.0,
    abs_tol: float | None = None,
) -> Certificate:
    """The certificate of the point that stands on the reduction's variables, whose objective value is `value`.

    `form` is the outer problem's cone data, for the present values of parameters.

    scope FULL pays a pass over the kernel unless the factor has full numerical rank and the trace of what it leaves
    is enough to close the gap to `tol` or `abs_tol`; REDUCED reads the factor only; ESTIMATE samples.
    """
    start = perf_counter()
    nu = _multipliers_of_links(reduction)
    mu = norm_multipliers(reduction, nu)
    widened = _widening(reduction)
    at_zero = value_at_zero(form, _norms_at_zero(reduction))
    upper = form.sign * value + widened
    restricts = reduction.is_restriction

    def assembled(way: str) -> Certificate:
        bound = lower_bound(reduction, form, nu, mu, way)
        if bound is not None and way != REDUCED and restricts and bound.assumes_radius:
            # No norm of θ: a span of lower rank says nothing about the whole of it.
            return replace(assembled(REDUCED), scope=REDUCED)
        found = _assembled(reduction, form, bound, (upper, widened, at_zero), FULL if way == CHEAP else scope)
        return replace(found, seconds=perf_counter() - start)

    if scope == FULL and not restricts:
        found = assembled(CHEAP)
        if found.closes(tol, abs_tol):
            return found
    return assembled(scope)


def _assembled(
    reduction: Reduction, form: ConicForm, bound: Lower | None, numbers: tuple[float, float, float | None], scope: str
) -> Certificate:
    """Bounds put together; `numbers` are the upper bound, by how much it was widened, and P₀, all minimized."""
    upper, widened, at_zero = numbers
    ranks = tuple((reduction.factors[link.theta].rank, len(link.rows)) for link in reduction.form.predictions)
    lower = -inf if bound is None or not isfinite(bound.value) else bound.value
    rounding = (0.0 if bound is None else bound.rounding) + 8 * np.finfo(float).eps * abs(upper)
    terms = 0.0 if bound is None else outer.magnitude(form, bound.point.x, bound.point.z)
    # Bounds that cross by less than their rounding touch.
    lower = upper if upper < lower <= upper + rounding else lower
    assumptions = () if bound is None else bound.assumptions
    projected = tuple(f.method for f in reduction.factors.values() if isinstance(f, ProjectedFactor))
    distance: dict[Theta, float] = {}
    if scope == FULL and isfinite(lower):
        for norm, column in zip(reduction.form.norms, form.t, strict=True):
            strength = form.P[column] / 2
            if strength > 0 and norm.kind in (EUCLIDEAN, "fro") and norm.view.right is None:
                radius = float(np.sqrt(max(upper - lower, 0.0) / strength))
                theta = norm.view.theta
                distance[theta] = min(radius, distance.get(theta, inf))
    low, high = (lower, upper) if form.sign > 0 else (-upper, -lower)
    evidence = None
    if bound is not None:
        evidence = Evidence(bound.point, bound.grams, bound.multipliers, scope)
    return Certificate(
        lower=low, upper=high, scope=scope, ranks=ranks,
        assumptions=(*assumptions, *(f"kernel matrix projected: {m}" for m in projected)),
        widened=widened, rounding=rounding, floor=ABSOLUTE_FLOOR * max(terms, form.units[1]),
        at_zero=None if at_zero is None else form.sign * at_zero, maximize=form.sign < 0,
        seconds=0.0, distance=distance, evidence=evidence,
    )  # fmt: skip


def _multipliers_of_links(reduction: Reduction) -> list[Array]:
    """ν of each link as the solver left it; zero where it left none."""
    found = []
    for link in reduction.form.predictions:
        constraint = reduction.links[link.theta]
        nu = None if constraint is None else constraint.dual_value
        shape = () if link.u is None else link.u.shape
        found.append(np.zeros(shape if link.u is not None else (0,)) if nu is None else np.asarray(nu, dtype=float))
    return found


def _norms_at_zero(reduction: Reduction) -> Array:
    """‖f₀‖ for each norm: its value at θ = 0."""
    return np.array([
        0.0 if n.view.shift is None else norm_from_gram(n.view.shift.gram(), n.kind) for n in reduction.form.norms
    ])  # fmt: skip


def _widening(reduction: Reduction) -> float:
    """Σ|multiplier|·|residual| over the constraints of the outer problem: the first-order cost of meeting them."""
    duals = {c.id: c.dual_value for c in reduction.problem.constraints}
    total = 0.0
    for constraint in reduction.form.outer.constraints:
        residual, dual = representer.residual(constraint), duals.get(constraint.id)
        if not residual.any() or dual is None:
            continue
        sizes = [
            np.abs(np.asarray(d, dtype=float)) for d in (dual if isinstance(dual, list) else [dual]) if d is not None
        ]
        if len(sizes) == 1 and sizes[0].shape == residual.shape:
            total += float((sizes[0] * residual).sum())
        else:
            total += max((float(d.max(initial=0.0)) for d in sizes), default=0.0) * float(residual.sum())
    return total
