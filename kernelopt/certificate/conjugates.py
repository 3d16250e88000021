"""The lower bound in closed form, where the outer problem is a sum of functions of one number each.

With f = Σ hᵢ(sᵢ) + cᵤᵀu + c_yᵀy + Σⱼ gⱼ(tⱼ), s = Eu + Fy, and slopes vᵢ ∈ dom h*ᵢ,

    D = offset − Σ h*ᵢ(vᵢ) + Σⱼ min over t of (gⱼ(t) − ‖mⱼ‖t) − Σ⟨mⱼ, f₀ⱼ⟩,   if Fᵀv + c_y = 0,

where Σⱼ mⱼ = Aᵀν for ν = −(Eᵀv + cᵤ).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf, isfinite

import numpy as np
import scipy.sparse as sp

from kernelopt.certificate.gram import Gram, gram_of
from kernelopt.certificate.multipliers import Multipliers, functions_part, is_free, lengths_of, split
from kernelopt.certificate.report import Lower
from kernelopt.compiler.conic_form import ConicForm
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.representer import Reduction
from kernelopt.compiler.separable import Lengths, Separable, lengths_of_outer
from kernelopt.solvers.dual_feasibility import corrected, room
from kernelopt.support.sparse import adjoint
from kernelopt.support.types import Array

# Relative to the length of an interval of slopes: a slope nearer to an end is set to that end, so that rounding leaves
# no small multipliers. Where Fᵀv + c_y = 0 then fails, slopes stay as they are (0).
SNAPS = (1e-12, 0.0)
LONGEST = 16  # predictions per term up to which EᵀWE is treated as sparse; with more it fills up, and None is returned
# Relative to |s| + max|s|: a kink within this distance of s may be active at the solution. The smaller distance is
# tried first; the larger one allows for inaccurate solvers.
NEAR = (1e-7, 1e-5)
# Residuals relative to their terms up to which slopes at the point and multipliers ν count as consistent. Smaller
# values reject multipliers of an inaccurate solver, larger ones accept slopes that belong to another point.
CONSISTENT = 1e-6
# Relative to the largest multiplier: intervals of slopes are cut off here, since slopes at the end of a domain may be
# infinite.
FAR = 1e3
# Where ‖Aᵀν‖ exceeds the cost of its norm, times that slopes are moved to shorten it, each with a pass over the kernel;
# how much shorter than this cost it shall be, relatively, which leaves room for rounding; and by how much the move
# exceeds the linear estimate, which a restricted θ makes off by some percent: 10 % more cost less than another pass.
# Each later move is twice as long, as the estimate was too small there.
SHORTENED, LESS, AHEAD = 3, 1e-9, 1.1
FEW = 30  # variables y up to which F is taken as dense; more of them are bounds of maxima as a rule, in few rows each
ORTHOGONAL = 1e-14  # |Fᵀv + c_y| relative to |F|ᵀ|v| + |c_y| that counts as rounding: about 90 roundings u


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
    candidate: Array | None = slopes
    for ahead in (AHEAD * 2.0**k for k in range(SHORTENED + 1)):
        v = None if candidate is None else feasible_slopes(pieces, candidate)
        if v is None:
            return None
        multipliers = _split(reduction, form, point, pieces, v)
        grams = [
            gram_of(link, reduction.factors[link.theta], m.stack, way)
            for link, m in zip(links, multipliers, strict=True)
        ]
        found = evaluate(form, pieces, v, multipliers, tuple(grams))
        if found is not None:
            return replace(found, products=tuple(gram.product for gram in grams))
        lengths = _lengths(form, multipliers, tuple(grams))
        candidate = _shortened(reduction, point, pieces, penalties, v, lengths, ahead)
    return None


def _lengths(form: ConicForm, multipliers: tuple[Multipliers, ...], grams: tuple[Gram, ...]) -> Array:
    """An upper bound on ‖m‖ for each norm."""
    lengths = np.zeros(len(form.t))
    for m, gram in zip(multipliers, grams, strict=True):
        lengths[list(m.norms)] = lengths_of(m, gram)
    return lengths


@np.errstate(all="ignore")  # a point of a solver that failed may be of any size
def _shortened(  # noqa: PLR0917
    reduction: Reduction, point: Iterate, pieces: Separable, penalties: Lengths, v: Array, lengths: Array, ahead: float
) -> Array | None:
    """v moved so that ‖m‖ is expected to be less than c where the penalty is c‖θ‖, with Fᵀv unchanged.

    With m = Aᵀν and θ in proportion to m, Qν = u·‖m‖/‖θ‖ is known without a pass over the kernel. The gradient of
    ½‖m‖² in v is g = −EQν, and v moves by −τW(g − Fq), with W the squared room of v in its domain and q from weighted
    least squares. None where that gains nothing.
    """
    unlimited = (penalties.curvature == 0) & np.isinf(penalties.limit)
    over = np.flatnonzero(unlimited & (lengths >= penalties.slope * (1 - LESS)))
    if not len(over) or not np.all(point.t[over] > 0) or not np.isfinite(lengths).all():
        return None
    Qnu, excess = [], 0.0
    for link, u in zip(reduction.form.predictions, point.u, strict=True):
        [norm] = reduction.form.norms_of(link.theta)
        share = lengths[norm] / point.t[norm] if norm in over else 0.0
        Qnu.append(share * np.ravel(u, order="F"))
        if norm in over:
            excess += ahead * float(lengths[norm] * (lengths[norm] - penalties.slope[norm] * (1 - 2 * LESS)))
    g, W, F = -(pieces.E @ np.concatenate(Qnu)), room(v, *pieces.slopes()), pieces.F
    scale = np.sqrt(W)
    if not (np.isfinite(g).all() and np.isfinite(excess)):
        return None
    q = np.linalg.lstsq(F.toarray() * scale[:, None], g * scale, rcond=None)[0] if len(pieces.y) else np.zeros(0)
    step = W * (g - F @ q)
    gain = float(g @ step)
    tau = excess / gain if gain > 0 else inf
    most = tau * float((np.abs(step) / scale)[W > 0].max(initial=0.0))
    return v - tau * step if 0 < most < 1 else None


def evaluate(
    form: ConicForm, pieces: Separable, v: Array, multipliers: tuple[Multipliers, ...], grams: tuple[Gram, ...]
) -> Lower | None:
    """D at slopes v, or at the largest multiple share·v, share < 1, where a penalty c·t has c < ‖m‖."""
    penalties = lengths_of_outer(form, pieces)
    if penalties is None:
        return None
    lengths = _lengths(form, multipliers, grams)
    low, high = pieces.slopes()
    share, least = 1.0, penalties.least(lengths)
    if not isfinite(least.sum()):
        unlimited = (penalties.curvature == 0) & np.isinf(penalties.limit)
        if not unlimited.any() or not np.isfinite(lengths).all():
            return None  # a length overflows
        share = float(np.min(penalties.slope[unlimited] / lengths[unlimited]))
        if not 0 < share < 1 or np.any(share * v < low) or np.any(share * v > high):
            return None
        if pieces.linear_u.any() or pieces.linear_y.any():
            return None  # ν = −(Eᵀv + cᵤ) is not proportional to v, so that scaling v does not scale ‖m‖
        while (least := penalties.least(share * lengths)).sum() == -inf:
            share = np.nextafter(share, 0.0)
    functions = sum(functions_part(m, gram) for m, gram in zip(multipliers, grams, strict=True))
    conjugates = pieces.conjugate(share * v)
    value = form.offset - conjugates + float(least.sum()) - share * functions
    if not isfinite(value):
        return None
    terms = abs(conjugates) + float(np.abs(least).sum()) + abs(share * functions)
    rounding = 8 * float(np.finfo(float).eps) * (terms + abs(form.offset) + float(np.abs(v).sum()) * form.units[0])
    nu = -(adjoint(pieces.E, v) + pieces.linear_u)
    return Lower(value, (), rounding, terms, False, multipliers, grams, slopes=v, nu=nu)


def is_admissible(pieces: Separable, known: Lower) -> bool:
    """Whether the slopes of a known bound are admissible for other values of parameters, with the same Aᵀν."""
    low, high = pieces.slopes()
    v = known.slopes
    if v is None or len(v) != len(low) or np.any(v < low) or np.any(v > high) or not is_orthogonal(pieces, v):
        return False
    return known.nu is None or bool(np.array_equal(known.nu, -(adjoint(pieces.E, v) + pieces.linear_u)))


def is_orthogonal(pieces: Separable, v: Array) -> bool:
    """Whether Fᵀv + c_y = 0 but for rounding."""
    F = pieces.F
    each = F.data * np.repeat(v, np.diff(F.indptr))
    terms = np.bincount(F.indices, np.abs(each), F.shape[1]) + np.abs(pieces.linear_y)
    return bool(np.all(np.abs(np.bincount(F.indices, each, F.shape[1]) + pieces.linear_y) <= ORTHOGONAL * terms))


def feasible_slopes(pieces: Separable, v: Array) -> Array | None:
    """v moved into dom h* with Fᵀv + c_y = 0: entries move in proportion to their distance from the domain's ends.

    Entries of 0 stay where the others suffice: rows without a multiplier take no kernel values.
    """
    low, high = pieces.slopes()
    v = np.clip(v, low, high)
    if not np.isfinite(v).all():
        return None
    if not len(pieces.y):
        return v
    F, length = pieces.F.toarray() if len(pieces.y) <= FEW else pieces.F, high - low
    length = np.where(np.isfinite(length), length, np.abs(v).max(initial=0.0))
    for share in SNAPS:
        start = np.where(v - low <= share * length, low, np.where(high - v <= share * length, high, v))
        busy = start != 0
        for able in (busy, np.ones_like(busy)) if not busy.all() else (busy,):
            weights = partial(_movable, low, high, able)
            found, _ = corrected(F, -pieces.linear_y, start, lambda v: np.clip(v, low, high), weights)
            if is_orthogonal(pieces, found):
                return found
    return None


def _movable(low: Array, high: Array, able: Array, v: Array) -> Array:
    """The room of entries that may move."""
    return room(v, low, high) * able


@np.errstate(all="ignore")  # arguments may be huge where a solver failed
def slopes_near(pieces: Separable, s: Array, nu: Array) -> Array | None:
    """Slopes v of the functions with Eᵀv + cᵤ = −ν, from the multipliers ν of a solver that does not use the cut.

    A function that shares its prediction with no other has the slope that ν determines. Others have slopes at s, or at
    kinks next to it, that add up to −ν. None where these are inconsistent, or where terms connect so many predictions
    that the search would be expensive.
    """
    E, ends, v = pieces.E, pieces.slopes(), np.zeros(len(s))
    alone = np.flatnonzero(np.diff(E.indptr) == 1)
    alone = alone[np.bincount(E.indices, minlength=E.shape[1])[E.indices[E.indptr[alone]]] == 1]
    u, entries = E.indices[E.indptr[alone]], E.data[E.indptr[alone]]
    v[alone] = np.clip(-(nu[u] + pieces.linear_u[u]) / entries, ends[0][alone], ends[1][alone])
    rest, shared = np.setdiff1d(np.arange(len(s)), alone), np.setdiff1d(np.arange(E.shape[1]), u)
    if not len(rest):
        return v
    if np.any(np.diff(E.indptr) > LONGEST):
        return None
    columns = sp.csc_array(sp.hstack([E[rest][:, shared], pieces.F[rest]]))
    of_y = pieces.linear_y + pieces.F[alone].T @ v[alone]
    target, size = -np.concatenate([(nu + pieces.linear_u)[shared], of_y]), np.abs(s) + np.abs(s).max(initial=0.0)
    most = FAR * (float(max(np.abs(nu).max(initial=0.0), np.abs(pieces.linear_u).max(initial=0.0))) or 1.0)
    for near in NEAR:
        sides = [np.nan_to_num(pieces.derivative(at), nan=0.0) for at in (s - near * size, s + near * size)]
        low, high = (np.clip(part, *ends)[rest] for part in (np.minimum(*sides), np.maximum(*sides)))
        low, high = np.maximum(low, np.minimum(high, -most)), np.minimum(high, np.maximum(low, most))
        v[rest], left = _between(columns, target, low, high)
        if left <= CONSISTENT:
            return v
    return None


def _between(columns: sp.csc_array, target: Array, low: Array, high: Array) -> tuple[Array, float]:
    """v in its intervals with Cᵀv = target, and the residual; entries move in proportion to squared widths."""
    width = (high - low) ** 2
    return corrected(columns, target, 0.5 * (low + high), lambda v: np.clip(v, low, high), lambda _: width)


def _split(
    reduction: Reduction, form: ConicForm, point: Iterate, pieces: Separable, v: Array
) -> tuple[Multipliers, ...]:
    """The multipliers of each θ; each has one norm, so that Aᵀν need not be divided."""
    found, at, nu = [], 0, -(adjoint(pieces.E, v) + pieces.linear_u)
    for number, link in enumerate(reduction.form.predictions):
        size = 0 if link.u is None else link.u.size
        coefficients = np.zeros((len(link.rows), link.theta.outputs or 1))
        zero = np.zeros(len(reduction.form.norms))
        found.append(split(reduction, form, point, number, nu[at : at + size], zero, coefficients))
        at += size
    return tuple(found)
