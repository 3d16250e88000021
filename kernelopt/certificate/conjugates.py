"""The lower bound in closed form, where the outer problem is a sum of functions of one prediction each.

With f = Σ hᵢ(sᵢ) + cᵤᵀu + c_yᵀy + Σⱼ gⱼ(tⱼ), s = Eu + Fy, and slopes vᵢ ∈ dom h*ᵢ,

    D = offset − Σ h*ᵢ(vᵢ) + Σⱼ min over t of (gⱼ(t) − ‖mⱼ‖t) − Σ⟨mⱼ, f₀ⱼ⟩,   if Fᵀv + c_y = 0,

where Σⱼ mⱼ = Aᵀν for ν = −(Eᵀv + cᵤ).
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, isfinite

import numpy as np
from scipy.optimize import minimize_scalar

from kernelopt.certificate.gram import Gram, gram_of
from kernelopt.certificate.multipliers import Multipliers, functions_part, is_free, lengths_of, split
from kernelopt.certificate.report import Lower
from kernelopt.compiler.conic_form import ConicForm
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.representer import Reduction
from kernelopt.compiler.separable import Separable, lengths_of_outer
from kernelopt.support.types import Array

ROUNDS = 8
ORTHOGONAL = 1e-14  # |Fᵀv + c_y| relative to |F|ᵀ|v| + |c_y| that counts as rounding


def lower_bound(  # noqa: PLR0917
    reduction: Reduction, form: ConicForm, point: Iterate, pieces: Separable, slopes: Array, way: str
) -> Lower | None:
    """The bound at v, moved into the domain of h* and to Fᵀv + c_y = 0; None where this form does not apply."""
    penalties = lengths_of_outer(form, pieces)
    links = reduction.form.predictions
    if penalties is None or any(is_free(reduction, form, i) for i in range(len(links))):
        return None
    if any(len(reduction.form.norms_of(link.theta)) != 1 for link in links):
        return None
    v = feasible_slopes(pieces, slopes)
    if v is None:
        return None
    multipliers = _split(reduction, form, point, pieces, v)
    grams = [
        gram_of(link, reduction.factors[link.theta], m.stack, way) for link, m in zip(links, multipliers, strict=True)
    ]
    found = evaluate(form, pieces, v, multipliers, tuple(grams))
    return None if found is None else replace(found, products=tuple(gram.product for gram in grams))


def evaluate(
    form: ConicForm, pieces: Separable, v: Array, multipliers: tuple[Multipliers, ...], grams: tuple[Gram, ...]
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
        if not unlimited.any() or not np.isfinite(lengths).all():
            return None  # a length is beyond what a double holds
        share = float(np.min(penalties.slope[unlimited] / lengths[unlimited]))
        if not 0 < share < 1 or np.any(share * v < low) or np.any(share * v > high):
            return None
        if pieces.linear_u.any() or pieces.linear_y.any():
            return None  # ν is no multiple of v
        while penalties.least(share * lengths).sum() == -inf:
            share = np.nextafter(share, 0.0)
    functions = sum(functions_part(m, gram) for m, gram in zip(multipliers, grams, strict=True))
    conjugates = pieces.conjugate(share * v)
    value = form.offset - conjugates + float(penalties.least(share * lengths).sum()) - share * functions
    if not isfinite(value):
        return None
    terms = abs(conjugates) + float(np.abs(penalties.least(share * lengths)).sum()) + abs(share * functions)
    rounding = 8 * float(np.finfo(float).eps) * (terms + abs(form.offset) + float(np.abs(v).sum()) * form.units[0])
    nu = -(pieces.E.T @ v + pieces.linear_u)
    return Lower(value, (), rounding, terms, False, multipliers, grams, slopes=v, nu=nu)


def is_admissible(pieces: Separable, known: Lower) -> bool:
    """Whether the slopes of a known bound are admissible for other values of parameters, with the same Aᵀν."""
    low, high = pieces.slopes()
    v = known.slopes
    if v is None or len(v) != len(low) or np.any(v < low) or np.any(v > high) or not is_orthogonal(pieces, v):
        return False
    return known.nu is None or bool(np.array_equal(known.nu, -(pieces.E.T @ v + pieces.linear_u)))


def is_orthogonal(pieces: Separable, v: Array) -> bool:
    """Whether Fᵀv + c_y = 0 but for rounding."""
    terms = abs(pieces.F).T @ np.abs(v) + np.abs(pieces.linear_y)
    return bool(np.all(np.abs(pieces.F.T @ v + pieces.linear_y) <= ORTHOGONAL * terms))


def feasible_slopes(pieces: Separable, v: Array) -> Array | None:
    """v moved into dom h* with Fᵀv + c_y = 0: entries move in proportion to their distance from the domain's ends."""
    low, high = pieces.slopes()
    v = np.clip(v, low, high)
    if not np.isfinite(v).all():
        return None
    if not len(pieces.y):
        return v
    F, unit = pieces.F, float(np.abs(v).max(initial=0.0)) or 1.0
    for _ in range(ROUNDS):
        if is_orthogonal(pieces, v):
            return v
        residual = F.T @ v + pieces.linear_y
        room = np.minimum(np.minimum(v - low, high - v), unit) ** 2
        normal = (F.T @ (F * room[:, None])).toarray()
        if not np.isfinite(normal).all():
            return None
        v = np.clip(v - room * (F @ np.linalg.lstsq(normal, residual, rcond=1e-14)[0]), low, high)
    return None


def _split(
    reduction: Reduction, form: ConicForm, point: Iterate, pieces: Separable, v: Array
) -> tuple[Multipliers, ...]:
    """The multipliers of each θ; one norm each, so that nothing is to be shared out."""
    found, at, nu = [], 0, -(pieces.E.T @ v + pieces.linear_u)
    for number, link in enumerate(reduction.form.predictions):
        size = 0 if link.u is None else link.u.size
        coefficients = np.zeros((len(link.rows), link.theta.outputs or 1))
        zero = np.zeros(len(reduction.form.norms))
        found.append(split(reduction, form, point, number, nu[at : at + size], zero, coefficients))
        at += size
    return tuple(found)


def value_at_zero(form: ConicForm, pieces: Separable, t: Array) -> float | None:
    """P₀ = min over y of Σ hᵢ((Fy)ᵢ) + c_yᵀy, plus g; None where it takes more than a search along one y, or t > 0."""
    if t.any() or len(pieces.y) > 1 or lengths_of_outer(form, pieces) is None:
        return None
    column = pieces.F.toarray().ravel()
    if not pieces.F.nnz:
        return None if pieces.linear_y.any() else form.offset + pieces.value(np.zeros(pieces.E.shape[0]))
    slope = float(pieces.linear_y[0])
    with np.errstate(all="ignore"):  # f may be ∞
        try:
            found = minimize_scalar(lambda y: pieces.value(column * y) + slope * y, method="brent")
        except RuntimeError:  # no bracket: f is finite far from 0 only
            return None
    return form.offset + float(found.fun) if isfinite(found.fun) else None
