"""The lower bound in closed form, where the outer problem is a sum of functions of one prediction each.

With f = Σ hᵢ(uᵢ + (Zy)ᵢ) + Σⱼ gⱼ(tⱼ) and v = −ν,

    D = offset − Σ h*ᵢ(vᵢ) + Σⱼ min over t of (gⱼ(t) − ‖mⱼ‖t) − Σ⟨mⱼ, f₀ⱼ⟩,   if Zᵀv = 0 and vᵢ ∈ dom h*ᵢ.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite

import numpy as np
from scipy.optimize import minimize_scalar

from kernelopt.certificate.multipliers import Multipliers, functions_part, gram_of, is_free, lengths_of, split
from kernelopt.certificate.report import Lower
from kernelopt.compiler.conic_form import ConicForm
from kernelopt.compiler.representer import Reduction
from kernelopt.compiler.separable import Separable
from kernelopt.kernels.domains import Array

ROUNDS = 8
ORTHOGONAL = 1e-14  # |Zᵀν| relative to |Z|ᵀ|ν| that counts as rounding


@dataclass(frozen=True)
class Lengths:
    """g(t) = slope·t + ½curvature·t² on 0 ≤ t ≤ limit, for each norm."""

    slope: Array
    curvature: Array
    limit: Array

    def least(self, lengths: Array) -> Array:
        """min over t of g(t) − length·t; −inf where there is none."""
        excess = np.maximum(lengths - self.slope, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.minimum(np.where(excess > 0, excess / self.curvature, 0.0), self.limit)
            values = np.where(excess > 0, t * (0.5 * self.curvature * t - excess), 0.0)
        return np.where(np.isnan(values), -inf, values)


def lengths_of_outer(form: ConicForm, pieces: Separable) -> Lengths | None:
    """g, where the rows that are left say no more than 0 ≤ t ≤ R."""
    limit = np.full(len(form.t), inf)
    rows = form.A[pieces.rows] if len(pieces.rows) else None
    if rows is not None:
        coordinates = rows.tocoo()
        for row, column, value in zip(coordinates.row, coordinates.col, coordinates.data, strict=True):
            j = np.flatnonzero(form.t == column)
            number = pieces.rows[row]
            alone = np.count_nonzero(coordinates.row == row) == 1
            if not len(j) or not alone or not form.cones.zero <= number < form.cones.zero + form.cones.nonneg:
                return None
            bound = form.b[number] / value
            if value > 0:
                limit[j[0]] = min(limit[j[0]], bound)
            elif bound < 0 or form.b[number] < 0:
                return None
    if np.any(limit < 0):
        return None
    return Lengths(form.c[form.t], form.P[form.t], limit)


def lower_bound(reduction: Reduction, form: ConicForm, pieces: Separable, nu: list[Array], way: str) -> Lower | None:
    """The bound at ν, moved into the domain of h* and orthogonal to Z; None where this form does not apply."""
    penalties = lengths_of_outer(form, pieces)
    links = reduction.form.predictions
    if penalties is None or any(is_free(reduction, form, i) for i in range(len(links))):
        return None
    if any(len(reduction.form.norms_of(link.theta)) != 1 for link in links):
        return None
    v = feasible_slopes(pieces, -np.concatenate([n.ravel(order="F") for n in nu]))
    if v is None:
        return None
    multipliers = _split(reduction, pieces, v)
    grams = tuple(
        gram_of(link, reduction.factors[link.theta], m.stack, way) for link, m in zip(links, multipliers, strict=True)
    )
    return evaluate(form, pieces, v, multipliers, grams)


def evaluate(
    form: ConicForm, pieces: Separable, v: Array, multipliers: tuple[Multipliers, ...], grams: tuple[Array, ...]
) -> Lower | None:
    """D at slopes v; where a penalty grows more slowly than ‖m‖, at as large a share of v as it allows."""
    penalties = lengths_of_outer(form, pieces)
    if penalties is None:
        return None
    lengths = np.zeros(len(form.t))
    for m, gram in zip(multipliers, grams, strict=True):
        lengths[list(m.norms)] = lengths_of(m, gram)
    low, high = pieces.slopes()
    share = 1.0
    if not isfinite(penalties.least(lengths).sum()):
        unlimited = (penalties.curvature == 0) & np.isinf(penalties.limit)
        share = float(np.min(penalties.slope[unlimited] / lengths[unlimited]))
        if not 0 < share < 1 or np.any(share * v < low) or np.any(share * v > high):
            return None
        while penalties.least(share * lengths).sum() == -inf:
            share = np.nextafter(share, 0.0)
    functions = sum(functions_part(m, gram) for m, gram in zip(multipliers, grams, strict=True))
    conjugates = pieces.conjugate(share * v)
    value = form.offset - conjugates + float(penalties.least(share * lengths).sum()) - share * functions
    if not isfinite(value):
        return None
    terms = abs(conjugates) + float(np.abs(penalties.least(share * lengths)).sum()) + abs(share * functions)
    rounding = 8 * float(np.finfo(float).eps) * (terms + abs(form.offset) + float(np.abs(v).sum()) * form.units[0])
    return Lower(value, (), rounding, terms, False, multipliers, grams, slopes=v)


def is_orthogonal(pieces: Separable, v: Array) -> bool:
    """Whether Zᵀv = 0 but for rounding."""
    return bool(np.all(np.abs(pieces.Z.T @ v) <= ORTHOGONAL * (abs(pieces.Z).T @ np.abs(v))))


def feasible_slopes(pieces: Separable, v: Array) -> Array | None:
    """v moved into dom h* with Zᵀv = 0: entries move in proportion to their distance from the ends of the domain."""
    low, high = pieces.slopes()
    v = np.clip(v, low, high)
    if not np.isfinite(v).all():
        return None
    if not pieces.Z.nnz:
        return v
    Z, unit = pieces.Z, float(np.abs(v).max(initial=0.0)) or 1.0
    for _ in range(ROUNDS):
        if is_orthogonal(pieces, v):
            return v
        residual = Z.T @ v
        room = np.minimum(np.minimum(v - low, high - v), unit) ** 2
        normal = (Z.T @ (Z * room[:, None])).toarray()
        if not np.isfinite(normal).all():
            return None
        v = np.clip(v - room * (Z @ np.linalg.lstsq(normal, residual, rcond=1e-14)[0]), low, high)
    return None


def _split(reduction: Reduction, pieces: Separable, v: Array) -> tuple[Multipliers, ...]:
    """The multipliers of each θ; one norm each, so that nothing is to be shared out."""
    found, at = [], 0
    for number, link in enumerate(reduction.form.predictions):
        size = 0 if link.u is None else link.u.size
        coefficients = np.zeros((len(link.rows), link.theta.outputs or 1))
        found.append(split(reduction, number, -v[at : at + size], np.zeros(len(reduction.form.norms)), coefficients))
        at += size
    return tuple(found)


def value_at_zero(form: ConicForm, pieces: Separable, t: Array) -> float | None:
    """P₀ = min over y of Σ hᵢ((Zy)ᵢ), plus g; None where it takes more than a search along one y, or t > 0."""
    if t.any() or pieces.Z.shape[1] > 1 or lengths_of_outer(form, pieces) is None:
        return None
    column = pieces.Z.toarray().ravel()
    if not pieces.Z.nnz:
        return form.offset + pieces.value(np.zeros(len(pieces.u)))
    found = minimize_scalar(lambda y: pieces.value(column * y), method="brent")
    return form.offset + float(found.fun) if isfinite(found.fun) else None
