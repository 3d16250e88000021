"""Slopes of functions of one number each: in their intervals, with Fᵀv + c_y = 0, or those that ν determines."""

from __future__ import annotations

from functools import partial

import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.separable import Separable
from kernelopt.solvers.dual_feasibility import corrected, room
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
FEW = 30  # variables y up to which F is taken as dense; more of them are bounds of maxima as a rule, in few rows each
ORTHOGONAL = 1e-14  # |Fᵀv + c_y| relative to |F|ᵀ|v| + |c_y| that counts as rounding: about 90 roundings u


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
