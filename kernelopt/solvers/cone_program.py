"""Clarabel's answers on cone data, and the value of an outer problem at given predictions and norms."""

from __future__ import annotations

from typing import Any

import clarabel
import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.conic_form import Cones, ConicForm
from kernelopt.errors import MemoryLimitError, SolverError
from kernelopt.solvers import cone_memory
from kernelopt.solvers.cones import violation
from kernelopt.support import clock
from kernelopt.support.cvxpy_parts import clarabel_answer, clarabel_cones, require_setup_within
from kernelopt.support.types import Array

TOLERANCE = 1e-11  # Clarabel's tolerances, near the smallest that it reaches


def answered(P: Array | sp.csc_array, q: Array, A: sp.csc_array, b: Array, cones: Cones) -> Any:
    """Clarabel's answer on scaled data, of any status, with P by its diagonal or its upper triangle.

    Where its progress ends early, as now and then on data of good scale, it tries again without a scaling of its own.
    Raises ArithmeticError where it breaks down, MemoryLimitError before it takes more memory than there is, and
    OutOfTimeError where the time is over: setting up a large problem takes long, and nothing ends it.
    """
    clock.check()
    found = _answered(P, q, A, b, cones, equilibrate=True)
    if found.status == clarabel.SolverStatus.InsufficientProgress:
        other = _answered(P, q, A, b, cones, equilibrate=False)
        found = other if other.status == clarabel.SolverStatus.Solved else found
    return found


def _answered(  # noqa: PLR0917
    P: Array | sp.csc_array, q: Array, A: sp.csc_array, b: Array, cones: Cones, equilibrate: bool
) -> Any:
    quadratic = sp.csc_array(P if sp.issparse(P) else sp.diags_array(P))
    require_setup_within(clock.seconds_left(), A.nnz + quadratic.nnz, cones.psd)
    cone_memory.require("CLARABEL", cones.psd, A.nnz + quadratic.nnz)
    settings = clarabel.DefaultSettings()
    settings.equilibrate_enable = equilibrate
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = TOLERANCE
    settings.max_threads = 1
    try:
        return clarabel_answer(
            clarabel.DefaultSolver(quadratic, q, A, b, _named(cones), settings), clock.seconds_left()
        )
    except SolverError as error:
        raise ArithmeticError(str(error)) from error


def _named(cones: Cones) -> Any:
    return clarabel_cones(
        zero=cones.zero, nonneg=cones.nonneg, soc=cones.soc, psd=cones.psd, exp=cones.exp, p3d=cones.power,
        pnd=cones.generalized_power,
    )  # fmt: skip


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
    kappa = max(sigma * float(np.abs(c).max(initial=0.0)), sigma * (sigma * float(P.max(initial=0.0)))) or 1.0
    try:
        A = sp.csc_array(form.A[:, free])
        solution = answered(sigma**2 * P / kappa, sigma * c / kappa, A, b / sigma, form.cones)
    except (ArithmeticError, MemoryLimitError):
        return None
    if str(solution.status) not in ("Solved", "AlmostSolved"):
        return None
    return constant + kappa * float(solution.obj_val_dual)
