"""From a reduction and its pieces to the method of multipliers, and from what it finds to an answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import isfinite

import numpy as np

from kernelopt import factorization
from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.outer import STRUCTURED, Outer
from kernelopt.compiler.reader import CONES
from kernelopt.compiler.representer import Reduction
from kernelopt.errors import SolverError
from kernelopt.factorization import Factor
from kernelopt.language.expressions import Theta
from kernelopt.pieces.custom import StatedFunction
from kernelopt.pieces.form import Pieces
from kernelopt.solvers import method_of_multipliers, row_problem
from kernelopt.solvers.answers import with_multipliers
from kernelopt.solvers.method_of_multipliers import RowPoint
from kernelopt.solvers.row_problem import RowProblem
from kernelopt.solvers.watch import Watch
from kernelopt.support import clock
from kernelopt.support.types import Array, Ints

FEASIBLE = 1e-6  # in units of s: a larger violation at θ = 0 counts as infeasible
ACCURATE = 1e-10  # relative: P₀ is compared with P, which may be almost as large


def lacks(form: CanonicalForm, outer: Outer) -> str | None:
    """Why the method of multipliers can't take an outer problem, as a phrase that follows its name; None if it can."""
    key = "lacks of rows", form
    if key not in outer.notes:
        outer.notes[key] = _lacks(form, outer)
    found: str | None = outer.notes[key]
    return found


def _lacks(form: CanonicalForm, outer: Outer) -> str | None:
    if not form.is_convex:
        return "takes no nonconvex loss"
    for variable in form.y:
        if any(variable.attributes.get(name) for name in STRUCTURED):
            return f"needs variables without a structure; {variable.name()} has one (complex, diagonal, symmetric …)"
    for constraint in form.outer.constraints:
        name = type(constraint).__name__
        if name in CONES and name not in ("SOC", "PSD"):
            return "takes constraints that are inequalities, equations, or cones of second order or semidefinite ones"
    pieces = outer.pieces
    if pieces is None:
        return "needs atoms that can be read as functions"
    if any(isinstance(group.family, StatedFunction) and not group.is_outer for group in pieces.groups):
        return "needs a SmoothLoss to be summed in the minimized objective, with weights ≥ 0"
    return row_problem.lacks(form, pieces)


def sums_in_balls(form: CanonicalForm, outer: Outer) -> int:
    """The number of bounds Σₖ|sₖ| ≤ c of rows, which are sets here, and a variable for each number elsewhere."""
    key, pieces = ("sums in balls", form), outer.pieces
    if key not in outer.notes:
        outer.notes[key] = 0
        if pieces is not None and lacks(form, outer) is None:
            outer.notes[key] = row_problem.sums_in_balls(form, pieces)
    found: int = outer.notes[key]
    return found


def solve(reduction: Reduction, outer: Outer, watch: Watch, start: RowPoint | None) -> tuple[RowProblem, RowPoint]:
    """The problem and the best point. Raises SolverError where the method does not take it, or breaks down."""
    reason, pieces = lacks(reduction.form, outer), outer.pieces
    problem = reason if pieces is None or reason else row_problem.row_problem(reduction.form, pieces, reduction.factors)
    if not isinstance(problem, RowProblem):
        raise SolverError(f"{watch.solver} {problem}.")
    watch.unit = problem.unit
    try:
        return problem, method_of_multipliers.solve(problem, watch, started(problem, start))
    except np.linalg.LinAlgError as error:
        raise SolverError(f"{watch.solver} broke down. {error}") from error


def value_at_zero(reduction: Reduction, outer: Outer, watch: Watch) -> float | None:
    """P₀ of the minimized problem, the optimum over y at θ = 0; None where it is infeasible or not found."""
    pieces = outer.pieces
    if lacks(reduction.form, outer) is not None or pieces is None:
        return None
    problem = row_problem.row_problem(reduction.form, pieces, reduction.factors)
    if not isinstance(problem, RowProblem):
        return None
    watch.unit = problem.unit
    try:
        with np.errstate(all="ignore"), clock.limited(watch.deadline):
            found = method_of_multipliers.solve(replace(problem.truncated(0), shift=pieces.s0), watch).point
    except (np.linalg.LinAlgError, clock.OutOfTimeError):
        return None
    if isinstance(found.stopped, KeyboardInterrupt):
        raise found.stopped
    exact = found.gap <= max(watch.floor, ACCURATE * abs(found.primal)) and found.violation <= FEASIBLE * watch.unit
    return found.primal if found.stopped is None and exact else None


def value_without_variables(form: CanonicalForm, pieces: Pieces) -> float | None:
    """P₀ where all columns follow from θ; None where there are others, and where θ = 0 violates a constraint."""
    return None if form.y else value_of_zeros(pieces)


def value_of_zeros(pieces: Pieces) -> float | None:
    """The minimized objective where all columns are 0; None where that violates a constraint, or is not known."""
    if pieces.cones or not pieces.is_explicit:
        return None
    with np.errstate(all="ignore"):  # outside of a domain
        sums = pieces.sums(pieces.settled(np.zeros(pieces.n)))
    rows = pieces.rows(np.zeros(pieces.n))
    met = np.all(sums[1:] <= 0) and not rows[pieces.equal].any() and isfinite(sums[0])
    return float(sums[0]) if met else None


def started(problem: RowProblem, start: RowPoint | None) -> RowPoint | None:
    """An earlier point in the coordinates of a factor whose first columns are those of the earlier one."""
    if start is None or len(start.point.a) != len(problem.shift) or len(start.ends) != len(problem.ends):
        return None
    old, new = start.ends, problem.ends
    if len(start.point.x) - old[-1] != problem.q or np.any(np.diff(old) > np.diff(new)):
        return None
    x, b = _widened(start.point.x, old, new), _widened(start.b, old, new)
    is_carried = not np.isfinite(b).all()
    is_same = np.array_equal(old, new) and not is_carried
    scale = start.scale if is_same else method_of_multipliers.smaller(start.scale)
    found = replace(start, point=replace(start.point, x=x), b=b, scale=scale, ends=new)
    return method_of_multipliers.balanced(problem, found) if is_carried else found


def _widened(x: Array, old: Ints, new: Ints) -> Array:
    """x with zeros in new columns of each block."""
    parts = [np.pad(x[a:b], (0, d - c - (b - a))) for (a, b), (c, d) in zip(pairwise(old), pairwise(new), strict=True)]
    return np.concatenate([*parts, x[old[-1] :]])


def carried(
    start: RowPoint, owners: Sequence[Theta], moved: Collection[Theta], old: Mapping[Theta, Factor],
    new: Mapping[Theta, Factor],
) -> RowPoint:  # fmt: skip
    """A point in the coordinates of new factors; its b is unknown, nan, as the new columns have parts of it, too."""
    parts, x = [], start.point.x
    for theta, a, b in zip(owners, start.ends, start.ends[1:], strict=False):
        v = x[a:b]
        if theta in moved:  # an earlier point lacks columns that were added since
            v = factorization.carried(old[theta], new[theta], np.pad(v, (0, old[theta].rank - len(v))))
        parts.append(v)
    ends = np.cumsum([0, *map(len, parts)])
    x = np.concatenate([*parts, x[start.ends[-1] :]])
    return replace(start, point=replace(start.point, x=x), b=np.full(len(x), np.nan), ends=ends)


def multipliers(problem: RowProblem, pieces: Pieces, found: RowPoint) -> Array:
    """The multipliers of all rows: those of bounds on ‖θ‖ are what their share of b is beyond the slope, those of
    bounds that are sets follow from the multipliers in them."""
    a = found.point.a.copy()
    a[problem.apart] = 0.0
    for level in problem.levels:
        a[level.below] = level.multipliers(found.point.a)
    for one in problem.lengths:
        if one.bound >= 0:
            size = float(np.linalg.norm(found.b[one.columns]))
            a[one.bound] = max(size - one.slope, 0.0) * one.of_bound
    return a


def iterate(problem: RowProblem, reduction: Reduction, pieces: Pieces, found: RowPoint, a: Array) -> Iterate:
    """The iterate with v, y and the multipliers of u = Aθ and of the stated constraints, not evaluated yet."""
    form, x, v, k = reduction.form, found.point.x, [], 0
    for link in form.predictions:
        K = link.theta.outputs or 1
        parts = [x[problem.ends[k + j] : problem.ends[k + j + 1]] for j in range(K)]
        v.append(parts[0] if link.theta.outputs is None else np.stack(parts, axis=1))
        k += K
    known = np.zeros(pieces.n)
    known[problem.columns_y] = x[problem.p :]
    return with_multipliers(form, pieces, tuple(v), known, a)


def is_finite(found: RowPoint) -> bool:
    return bool(np.isfinite(found.point.x).all() and np.isfinite(found.point.a).all() and isfinite(found.point.primal))
