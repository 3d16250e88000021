"""Solve a problem of the spectral form by its leading singular vectors, and choose the solver for it.

With u = Bv, the leading right singular vector of MB on the null space of GᵀB, of length √scale·R, maximizes ‖Mu‖ over
θ in the factor's span. The certificate bounds how much the full kernel could add.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite, sqrt

import cvxpy as cp
import numpy as np

from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.representer import Reduction
from kernelopt.errors import OptionError, SolverError
from kernelopt.factorization import Factor
from kernelopt.solvers.choice import SolverTable
from kernelopt.solvers.cvxpy_solvers import CONIC_SOLVERS
from kernelopt.spectral import eigenvalues
from kernelopt.spectral.eigenvalues import NAME, Constrained, Leading
from kernelopt.spectral.enclosure import NEGLIGIBLE, Solved
from kernelopt.spectral.spectral_form import Numbers, SpectralForm
from kernelopt.support.types import Array

# Singular vectors that are computed. The certificate projects on all but the last, whose value estimates the rest of
# the spectrum. More vectors tighten the bound, and cost a column of the pass over the kernel each.
LEADING = 9
TIE = 1e-9  # relative: entries of Aθ this near to the largest count as equal to it, so that rounding decides no sign


def decomposed(form: SpectralForm, numbers: Numbers, reduction: Reduction, point: Iterate | None = None) -> Solved:
    """MB on the null space of GᵀB, its leading singular vectors, and `point`, by default the optimum that they give."""
    factor = reduction.factors[form.link.theta]
    side = eigenvalues.constrained(np.asarray(numbers.M @ factor.B), np.asarray(numbers.G.T @ factor.B))
    top = eigenvalues.leading(side, LEADING)
    point = Iterate((_leading(factor, numbers, side, top),), (), nu=(None,)) if point is None else point
    return Solved(form, numbers, factor, side, top, point)


def _leading(factor: Factor, numbers: Numbers, side: Constrained, top: Leading) -> Array:
    """v = ±√scale·R·x, with the first of the largest entries of Bv positive; for R = inf a ray of unit length.

    v = 0 where the largest eigenvalue cannot be distinguished from zero.
    """
    if not factor.rank or top.values[0] <= NEGLIGIBLE * side.total:
        return np.zeros(factor.rank)
    x = top.vectors[:, 0]
    u = factor.B @ x
    first = int(np.argmax(np.abs(u) >= (1 - TIE) * np.abs(u).max()))
    length = numbers.radius if isfinite(numbers.radius) else 1.0
    return np.asarray(x * (np.sign(u[first]) * sqrt(factor.scale) * length))


def solver_names(form: SpectralForm | None, wanted: str | None, options: Mapping[str, object]) -> list[str] | None:
    """[SPECTRAL] for a problem of the spectral form, None for others.

    Raises SolverError where the solver does not take the problem, and OptionError for any options, since SPECTRAL has
    none.
    """
    asked = None if wanted is None else wanted.upper()
    if form is None:
        if asked == NAME:
            raise SolverError(f"{NAME} {_TAKES}; this problem is convex. Leave `solver` out, or see problem.solvers().")
        return None
    if asked not in (None, NAME):
        raise SolverError(f"{asked} {_CONVEX}, and this one is of the spectral form, which {NAME} takes.")
    if options:
        raise OptionError(f"Expected no solver options, as {NAME} has none; got {', '.join(options)}.")
    return [NAME]


def require_cones(form: SpectralForm | None) -> None:
    """Raise SolverError for a problem that has no cone data."""
    if form is not None:
        raise SolverError(f"Expected a convex problem, which has cone data; this one is solved by {NAME}.")


def solver_table(form: SpectralForm | None, of_others: Callable[[], SolverTable]) -> SolverTable:
    """The table of solvers with SPECTRAL in it, the only one that takes the spectral form."""
    if form is None:
        others = of_others()
        return SolverTable({NAME: f"{_TAKES}; this problem is convex", **others.reasons}, others.chosen)
    names = dict.fromkeys([*CONIC_SOLVERS, *sorted(cp.installed_solvers())], _CONVEX)
    return SolverTable({NAME: None, **names}, NAME)


_TAKES = "takes the spectral form only, maximize ‖Aθ‖ with ‖θ‖ ≤ R and u @ (A @ theta) == 0"
_CONVEX = "takes convex problems only"
