"""How the optimum moves to one side, where constraints may become inactive: a small problem in their slacks.

Let all constraints that may leave be held first, and let τ ≥ 0 be the slacks of those that do. Along a direction of the
parameters, with C = NᵀV for the dependencies N of the held rows, c what the direction adds to them, the multipliers ζ
at the optimum, and η₀ + Mτ their change for slacks τ (M is the compliance's inverse, positive semidefinite),

    τ = argmin ½τᵀMτ + η₀ᵀτ  over the minimizers of  ζᵀτ  subject to  Cτ = −c, τ ≥ 0.

The inner problem is the dual of the choice of multipliers, max ξᵀc subject to ζ + Cᵀξ ≥ 0, which gives the slope of
the optimal value. (Ralph and Dempe, Mathematical Programming 70, 1995; Bonnans and Shapiro, Perturbation Analysis of
Optimization Problems, 2000, section 5.2.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from clarabel import SolverStatus
from scipy.optimize import linprog, nnls

from kernelopt.compiler.conic_form import Cones
from kernelopt.solvers.cone_program import answered
from kernelopt.support.types import Array, Bools

# Relative to the largest: multipliers of the inner problem above this are positive. HiGHS's answers are exact to 1e-9
# in problems of unit size as these are.
POSITIVE = 1e-7
EXACT = 1e-12  # relative to the largest: eigenvalues of M that are rounding
STIFF = 1e6  # weight of equations among squares of size 1, whose errors are its squares' inverse


class Side(NamedTuple):
    """The slacks τ, the slope of the optimal value beside that of the held constraints, and an orthonormal basis
    (d, k) of directions in which τ may be moved without a change of anything."""

    tau: Array
    of_value: float
    loose: Array


def side(M: Array, eta: Array, zeta: Array, C: Array, c: Array) -> Side | None:
    """τ and min ζᵀτ as above. None where no slacks exist: the problem has no solution on this side.

    τ is nan where it is not bounded: the optimum is not unique.

    M : (d, d); eta, zeta : (d,); C : (k, d); c : (k,)
    """
    free, worth = np.ones(len(zeta), dtype=bool), 0.0
    if len(c):
        chosen = least(zeta, C, c)
        if chosen is None:
            return None
        free, worth = chosen
    tau, basis = _relaxed(M[np.ix_(free, free)], eta[free], C[:, free], c)
    every, loose = np.zeros(len(zeta)), np.zeros((len(zeta), basis.shape[1]))
    every[free], loose[free] = tau, basis
    return Side(every, worth, loose)


def least(zeta: Array, C: Array, c: Array) -> tuple[Bools, float] | None:
    """Which τ may be positive among the minimizers of ζᵀτ, Cτ = −c, τ ≥ 0, and the minimum; None without such τ."""
    if not len(zeta):
        return None if c.any() else (np.ones(0, dtype=bool), 0.0)
    of_zeta, of_c = (float(np.abs(a).max(initial=0.0)) or 1.0 for a in (zeta, c))
    found = linprog(zeta / of_zeta, A_eq=C, b_eq=-c / of_c, bounds=(0, None), method="highs")
    if found.status != 0:
        return None
    return found.lower.marginals <= POSITIVE, float(found.fun) * of_zeta * of_c


def _relaxed(M: Array, eta: Array, C: Array, c: Array) -> tuple[Array, Array]:
    """argmin ½τᵀMτ + ηᵀτ, Cτ = −c, τ ≥ 0: by Clarabel, then exactly for the entries that it finds positive; and the
    `loose` directions of `Side`."""
    d = len(eta)
    if not d:
        return np.zeros(0), np.zeros((0, 0))
    stiff = float(np.abs(M).max()) or 1.0
    unit = max(float(np.abs(eta).max()) / stiff, float(np.abs(c).max(initial=0.0))) or 1.0
    U, values, _ = np.linalg.svd(C, full_matrices=False) if len(c) else (np.zeros((0, 0)), np.zeros(0), None)
    kept = U[:, values > POSITIVE * values.max(initial=0.0)].T
    C, c = kept @ C, kept @ c
    rows = sp.csc_array(np.vstack([C, -np.eye(d)]))
    right = np.concatenate([-c / unit, np.zeros(d)])
    rough = answered(sp.csc_array(np.triu(M / stiff)), eta / (stiff * unit), rows, right, Cones(len(c), d))
    if rough.status not in (SolverStatus.Solved, SolverStatus.AlmostSolved):
        return np.full(d, np.nan), np.zeros((d, 0))
    x, z = np.array(rough.x), np.array(rough.z)[len(c) :]
    some = np.flatnonzero(x > z)
    K = np.block([[M[np.ix_(some, some)] / stiff, C[:, some].T], [C[:, some], np.zeros((len(c), len(c)))]])
    exact = np.linalg.lstsq(K, np.concatenate([-eta[some] / (stiff * unit), -c / unit]), rcond=None)[0]
    tau = np.zeros(d)
    tau[some] = exact[: len(some)]
    size = POSITIVE**0.5 * max(1.0, float(np.abs(x).max()))
    good = np.abs(tau - x).max() <= size and tau.min() >= -POSITIVE * size
    if not good:  # entries and multipliers that are both 0 are found to half of the digits
        found = _by_active_sets(M / stiff, eta / (stiff * unit), C, c / unit)
        good = found is not None and _is_no_worse(found, x, M / stiff, eta / (stiff * unit), C, c / unit)
        tau = found if good and found is not None else tau
    may = np.flatnonzero(z <= POSITIVE**0.5 * max(1.0, float(z.max())))  # be positive
    _, values, right = np.linalg.svd(np.vstack([M[:, may] / stiff, C[:, may]]))
    rank = int(np.sum(values > POSITIVE * max(1.0, float(values.max(initial=0.0)))))
    loose = np.zeros((d, len(may) - rank))
    loose[may] = right[rank:].T
    return unit * np.maximum(tau if good else x, 0.0), loose


def _by_active_sets(M: Array, eta: Array, C: Array, c: Array) -> Array | None:
    """argmin ½τᵀMτ + ηᵀτ, Cτ = −c, τ ≥ 0 as ½‖Lτ − r‖² with M = LᵀL and η = −Lᵀr; None where there is no such r."""
    values, V = np.linalg.eigh(M)
    some = values > EXACT * max(1.0, float(values.max(initial=0.0)))
    root, V = np.sqrt(values[some]), V[:, some]
    if np.linalg.norm(eta - V @ (V.T @ eta)) > POSITIVE * np.linalg.norm(eta):
        return None
    rows, right = np.vstack([root[:, None] * V.T, STIFF * C]), np.concatenate([-(V.T @ eta) / root, -STIFF * c])
    try:
        return np.asarray(nnls(rows, right)[0])
    except RuntimeError:  # too many steps
        return None


def _is_no_worse(new: Array, old: Array, M: Array, eta: Array, C: Array, c: Array) -> bool:  # noqa: PLR0917
    """Whether ½τᵀMτ + ηᵀτ is as small, and Cτ = −c holds as well, up to roughness: minimizers need not be unique."""
    values = [float(0.5 * tau @ M @ tau + eta @ tau) for tau in (new, old)]
    apart = float(np.abs(C @ new + c).max(initial=0.0))
    return values[0] <= values[1] + POSITIVE * (1 + abs(values[1])) and apart <= POSITIVE * (1 + np.abs(new).max())
