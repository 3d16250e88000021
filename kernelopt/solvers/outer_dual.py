"""The dual side of the outer problem: a sparse solve without B, and an exactly dual-feasible point.

For the minimized outer problem in cone form, any z ∈ K* and any x give, by weak duality,

    D = offset − ½xᵀPx − bᵀz   ≤   inf over (u, t, y) of  f(u, t, y) + νᵀu − μᵀt,

where ν = −(Px + c + Aᵀz)_u and μ = (Px + c + Aᵀz)_t, if Px + c + Aᵀz vanishes on every other column.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import clarabel
import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.conic_form import Cones, ConicForm
from kernelopt.errors import MemoryLimitError, SolverError
from kernelopt.solvers import cone_memory
from kernelopt.solvers.cones import interior, into_dual, violation
from kernelopt.solvers.dual_feasibility import EXACT, corrected
from kernelopt.support.clock import seconds_left
from kernelopt.support.cvxpy_parts import clarabel_answer, clarabel_cones
from kernelopt.support.types import Array

# Weight of ½‖(u, t) − (û, t̂)‖² in their units, relative to κ. It keeps the outer problem bounded. Larger weights move
# the multipliers further where û is off a kink; smaller ones leave the problem flat, as along the residual of a norm,
# and Clarabel stops anywhere on the flat part. Of 1e-8 … 1, 1e-4 … 1e-2 gave the least gaps on 30 kinds of problems.
PROXIMAL = 1e-4
FIRM = 1e2  # the same weight for columns that should hardly move: 1 % of their unit for a multiplier of unit size
TOLERANCE = 1e-11  # Clarabel's tolerances, near the smallest that it reaches; `repaired` removes the residual
# Relative to the largest multiplier: multipliers up to this, a margin above the solver's accuracy, may stand for 0. A
# larger value would drop multipliers that count.
SNAP = 1e-8


@dataclass(frozen=True, eq=False)
class DualPoint:
    """A dual feasible point of the outer problem.

    x : (n,), used where P is not zero; z : (m,), in K*; stationarity : Px + c + Aᵀz, (n,)
    """

    form: ConicForm
    x: Array
    z: Array
    stationarity: Array

    @property
    def nu(self) -> list[Array]:
        """−(Px + c + Aᵀz) on the columns of each u, in Fortran order."""
        return [-self.stationarity[columns] for columns in self.form.u]

    @property
    def nu_terms(self) -> list[float]:
        """For each ν, the largest sum of absolute values of the terms of an entry: the scale of its rounding."""
        terms = self.form.P * np.abs(self.x) + np.abs(self.form.c) + abs(self.form.A).T @ np.abs(self.z)
        return [float(terms[columns].max(initial=0.0)) for columns in self.form.u]

    @property
    def mu(self) -> Array:
        return self.stationarity[self.form.t]

    @property
    def value(self) -> float:
        return value(self.form, self.x, self.z)

    @np.errstate(all="ignore")  # points of solvers that failed may be of any size
    def blend(self, other: DualPoint, share: float) -> DualPoint:
        """(1 − share)·other + share·self, as dual feasible as both."""
        rest = 1 - share
        return DualPoint(
            self.form,
            rest * other.x + share * self.x,
            rest * other.z + share * self.z,
            rest * other.stationarity + share * self.stationarity,
        )


def value(form: ConicForm, x: Array, z: Array) -> float:
    """offset − ½xᵀPx − bᵀz."""
    return form.offset - float(0.5 * x @ (form.P * x)) - float(form.b @ z)


def magnitude(form: ConicForm, x: Array, z: Array) -> float:
    """The sum of the absolute values of the terms of `value`, without the offset."""
    return float(0.5 * x @ (form.P * x)) + float(np.abs(form.b) @ np.abs(z))


def solve(  # noqa: PLR0917
    form: ConicForm, linear: Array, near: Array, units: Array, firm: Array | None = None, weight: float = PROXIMAL,
    inside: float = 0.0,
) -> tuple[Array, Array]:  # fmt: skip
    """(x, z) of  min ½xᵀPx + cᵀx + linearᵀx_L + ½ρ‖x_L − near‖²  over the outer problem's constraints.

    L are the linked columns, u and t, measured in `units`; the others are measured in σ, and the objective in κ. ρ is
    `weight`, and FIRM for `firm` columns: these hardly move, so that their multipliers are found without `linear`.

    inside : z = z′ + δ, with z′ ∈ K* and δ a direction into curved cones, of this size relative to z. Stationarity is
        that of z′ for costs c + Aᵀδ. Inside of a cone, z has room to make free columns vanish exactly; a larger room
        costs more of the bound.

    The answer need not be accurate: `repaired` makes it dual feasible. Raises ArithmeticError where numbers overflow.
    """
    x, z = _solved(form, linear, near, units, firm, weight)
    into = inside * interior(z, form.cones)
    if into.any():
        x, z = _solved(replace(form, c=form.c + form.A.T @ into), linear, near, units, firm, weight)
    return x, z + into


@np.errstate(over="ignore", invalid="ignore")  # numbers that are too far apart are refused below
def _solved(  # noqa: PLR0917
    form: ConicForm, linear: Array, near: Array, units: Array, firm: Array | None, weight: float
) -> tuple[Array, Array]:
    """(x, z) of the same problem without room."""
    L, sigma = form.linked, form.units[0]
    unit = np.full(len(form.c), sigma)
    unit[L] = units
    c = form.c.copy()
    c[L] += linear
    quadratic = np.delete(unit**2 * form.P, form.t)  # a penalty of t may have any weight
    kappa = max(float(np.abs(unit * c).max(initial=0.0)), float(quadratic.max(initial=0.0)))
    kappa = kappa or float((unit**2 * form.P).max(initial=0.0)) or 1.0
    P = unit**2 * form.P / kappa
    q = unit * c / kappa
    rho = weight if firm is None else np.where(firm, FIRM, weight)
    P[L] += rho
    q[L] -= rho * near / units
    if not (np.isfinite(P).all() and np.isfinite(q).all()):
        raise ArithmeticError("the outer problem's costs overflow in units of their largest")
    solution = answered(P, q, sp.csc_array(form.A @ sp.diags_array(unit / sigma)), form.b / sigma, form.cones)
    return unit * np.nan_to_num(np.array(solution.x)), np.nan_to_num(np.array(solution.z)) * kappa / sigma


def answered(P: Array | sp.csc_array, q: Array, A: sp.csc_array, b: Array, cones: Cones) -> Any:
    """Clarabel's answer on scaled data, of any status, with P by its diagonal or its upper triangle.

    Where its progress ends early, as now and then on data of good scale, it tries again without a scaling of its own.
    Raises ArithmeticError where it breaks down, MemoryLimitError before it takes more memory than there is.
    """
    found = _answered(P, q, A, b, cones, equilibrate=True)
    if found.status == clarabel.SolverStatus.InsufficientProgress:
        other = _answered(P, q, A, b, cones, equilibrate=False)
        found = other if other.status == clarabel.SolverStatus.Solved else found
    return found


def _answered(  # noqa: PLR0917
    P: Array | sp.csc_array, q: Array, A: sp.csc_array, b: Array, cones: Cones, equilibrate: bool
) -> Any:
    quadratic = sp.csc_array(P if sp.issparse(P) else sp.diags_array(P))
    cone_memory.require("CLARABEL", cones.psd, A.nnz + quadratic.nnz)
    settings = clarabel.DefaultSettings()
    settings.equilibrate_enable = equilibrate
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = TOLERANCE
    settings.max_threads = 1
    try:
        return clarabel_answer(clarabel.DefaultSolver(quadratic, q, A, b, _named(cones), settings), seconds_left())
    except SolverError as error:
        raise ArithmeticError(str(error)) from error


def _named(cones: Cones) -> Any:
    return clarabel_cones(
        zero=cones.zero, nonneg=cones.nonneg, soc=cones.soc, psd=cones.psd, exp=cones.exp, p3d=cones.power,
        pnd=cones.generalized_power,
    )  # fmt: skip


def repaired(form: ConicForm, x: Array, z: Array, vanishing: sp.csc_array | None = None) -> DualPoint:
    """The point (x, z) moved to exact dual feasibility.

    Where P_jj > 0, x_j is chosen so that the residual vanishes. On the remaining columns J, and on the combinations of
    columns `vanishing` (n, k), the residual r is removed by z := z − WA_J(A_JᵀWA_J)⁻¹r, with weights W that leave
    entries at a cone's boundary where they are.
    """
    free = form.P == 0
    free[form.linked] = False
    columns = form.A[:, np.flatnonzero(free)]
    target = -form.c[free]
    if vanishing is not None:
        columns = sp.csc_array(sp.hstack([columns, form.A @ vanishing]))
        target = np.r_[target, -(vanishing.T @ (form.c + form.P * x))]
    columns = sp.csc_array(columns)

    def nearest(start: Array) -> tuple[Array, float]:
        return corrected(
            columns, target, start, lambda z: into_dual(z, form.cones, columns), lambda z: _weights(z, form)
        )

    z, worst = nearest(z)
    if worst > EXACT and seconds_left() > 0:
        # Entries that should be 0 have small weights and can't cancel their own residual: try the point without them.
        kept = np.where(np.abs(z) > SNAP * float(np.abs(z).max(initial=0.0)), z, 0.0)
        snapped, smaller = nearest(kept)
        z = snapped if smaller < worst else z
    return dual_point(form, x, z)


@np.errstate(all="ignore")
def dual_point(form: ConicForm, x: Array, z: Array) -> DualPoint:
    """The dual point (x, z), with x := −(c + Aᵀz)/P in columns with P > 0 other than u and t."""
    x = x.copy()
    dual = form.c + form.A.T @ z
    chosen = (form.P > 0) & ~np.isin(np.arange(len(x)), form.linked)
    x[chosen] = -dual[chosen] / form.P[chosen]
    stationarity = form.P * x + dual
    stationarity[chosen] = 0.0
    return DualPoint(form, x, z, stationarity)


def _weights(z: Array, form: ConicForm) -> Array:
    """Weights by which entries of z move: 1 on equalities, z² relative to the largest entry on nonnegative and
    exponential rows, so that zeros stay, and 1e-6 on others, whose cones couple their entries."""
    unit = float(np.abs(z).max(initial=0.0)) or 1.0
    relative = np.minimum(np.abs(z) / unit, 1.0)
    weights = np.full(len(z), 1e-6)
    for kind, rows, _ in form.cones.slices:
        if kind == "zero":
            weights[rows] = 1.0
        elif kind in ("nonneg", "exp"):
            weights[rows] = relative[rows] ** 2
    return weights


def value_at(form: ConicForm, linked: Array) -> float | None:
    """The dual value of the optimum over y and auxiliary variables at given u and t; None if infeasible."""
    free = np.ones(len(form.c), dtype=bool)
    free[form.linked] = False
    L, b = form.linked, form.b - form.A[:, form.linked] @ linked
    constant = form.offset + float(form.c[L] @ linked + 0.5 * linked @ (form.P[L] * linked))
    if not free.any():
        return constant if violation(b, form.cones) <= 1e-9 * max(1.0, float(np.abs(b).max(initial=0.0))) else None
    sigma = float(np.abs(b).max(initial=0.0)) or 1.0
    c, P = form.c[free], form.P[free]
    kappa = max(sigma * float(np.abs(c).max(initial=0.0)), sigma**2 * float(P.max(initial=0.0))) or 1.0
    try:
        A = sp.csc_array(form.A[:, free])
        solution = answered(sigma**2 * P / kappa, sigma * c / kappa, A, b / sigma, form.cones)
    except (ArithmeticError, MemoryLimitError):
        return None
    if str(solution.status) not in ("Solved", "AlmostSolved"):
        return None
    return constant + kappa * float(solution.obj_val_dual)
