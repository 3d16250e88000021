"""A problem in pieces with θ = Cᵀw substituted, as the method of multipliers takes it.

    minimize    ½ Σₖ Rₖ‖vₖ‖² + c·x + Σ w₀ h(s) + Σⱼ φⱼ(‖v‖ of norm j)
    subject to  sᵢ + Σ wᵢ h(s) ≤ 0,  sᵢ = 0,  s ∈ K,      s = E(Bₖvₖ) + Fy + s₀,   x = (v, y)

φⱼ is a multiple of the norm, a bound on it, or, where ‖v‖ stands in losses, the cone ‖v‖ ≤ t with t among y.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf, sqrt

import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.factorization import Factor
from kernelopt.language.expressions import Theta
from kernelopt.pieces.bounds import Ball, BelowNorm
from kernelopt.pieces.form import Pieces
from kernelopt.pieces.quadratics import Piecewise
from kernelopt.solvers.row_functions import MARGIN, Level, RowFunctions, functions_of
from kernelopt.support.arithmetic import median
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array, Ints

# Relative to the median: how far the rows of a constraint move with their multipliers, below which the step is the
# median's. Rows that no θ moves, as t ≥ 0, have no step of their own.
STILL = 1e-8
SMALL = 1e-3  # relative to the unit: constants of rows below it are no sizes
TURNS = 8  # of functions within functions
LARGEST = 12  # order of a semidefinite cone up to which its second derivative is formed, with its order to the fourth


@dataclass(frozen=True, eq=False)
class VectorNorm:
    """φ(v) = slope·‖v‖ on ‖v‖ ≤ limit, or ‖v‖ ≤ head·y_t; ‖v‖ is Euclidean, or of Schatten's order p for blocks side by
    side.

    blocks, columns : of v; typical : a size of ‖v‖; bound : the row that bounds it, −1 for none, whose multiplier is
    `of_bound` times that of ‖v‖; t : which y, −1 for none
    """

    blocks: tuple[int, ...]
    columns: Ints
    slope: float
    limit: float
    typical: float
    bound: int = -1
    of_bound: float = 1.0
    t: int = -1
    head: float = 1.0
    p: float = 2.0


@dataclass(frozen=True, eq=False)
class RowProblem:
    """The problem of the module's formula.

    blocks, R : Bₖ (nₖ, rₖ) and Rₖ; E, F : (m, Σnₖ) and (m, q); shift : s₀; cost_d, cost_y : c for (Bₖvₖ) and y
    below, equal : rows; apart : rows in which t alone stands, or one function alone that `functions` hold as a set, as
    `levels` say; they are no rows of this problem
    lengths : norms with a cost or a bound that is no square; step : (m,), how far multipliers move with s, relative to
    σ; unit : a size of s
    columns_y : columns of the pieces' x that are y
    """

    blocks: tuple[Array, ...]
    R: Array
    E: sp.csr_array
    F: sp.csr_array
    shift: Array
    cost_d: Array
    cost_y: Array
    constant: float
    functions: tuple[RowFunctions, ...]
    levels: tuple[Level, ...]
    below: Ints
    equal: Ints
    apart: Array
    lengths: tuple[VectorNorm, ...]
    step: Array
    steps_v: Array
    unit: float
    columns_y: Ints

    @cached_property
    def ends(self) -> Ints:
        """Where each vₖ begins in x, and where y does."""
        return np.cumsum([0, *(B.shape[1] for B in self.blocks)])

    @cached_property
    def starts(self) -> Ints:
        """Where each Bₖvₖ begins among all of them."""
        return np.cumsum([0, *(len(B) for B in self.blocks)])

    @property
    def p(self) -> int:
        """Entries of v."""
        return int(self.ends[-1])

    @property
    def q(self) -> int:
        """Entries of y."""
        return len(self.cost_y)

    @cached_property
    def sizes(self) -> Array:
        """The size of each row in which its violation is measured: |s₀|, or what is usual where that is small; of rows
        that hold functions, their values at θ = 0 where they are larger."""
        size = np.minimum(np.abs(self.shift), self.unit)
        size = np.where(size > SMALL * self.unit, size, self.unit)
        held = np.zeros(len(self.below))
        with np.errstate(all="ignore"):
            for f in self.functions:
                if f.is_nested:
                    held += f.by_row(np.abs(f.family.value(self.shift[f.rows])), len(held))
        size[self.below] = np.where(np.isfinite(held), np.maximum(size[self.below], held), size[self.below])
        return size

    @cached_property
    def both(self) -> sp.csr_array:
        """[E, F]."""
        return sp.csr_array(sp.hstack([self.E, self.F]))

    @cached_property
    def penalty(self) -> Array:
        """R for each entry of v."""
        return np.repeat(self.R, np.diff(self.ends))

    @cached_property
    def steps_of_blocks(self) -> Array:
        """`steps_v` of each block; 1 of one without columns."""
        return np.array([self.steps_v[a] if b > a else 1.0 for a, b in pairwise(self.ends)])

    @cached_property
    def cost(self) -> Array:
        """c for x."""
        return np.concatenate([self.lifted(self.cost_d), self.cost_y])

    @cached_property
    def nested(self) -> Ints:
        """Numbers of the rows below that hold functions."""
        inside = [f.inside[f.inside >= 0] for f in self.functions]
        return np.unique(np.concatenate([np.arange(0), *inside])).astype(int)

    @cached_property
    def linear(self) -> Ints:
        """Numbers of the rows below without functions."""
        return np.setdiff1d(np.flatnonzero(~self.apart[self.below]), self.nested)

    @cached_property
    def explicit(self) -> Array:
        """Whether the multiplier of a row is an unknown: not for arguments of smooth functions, nor for rows apart."""
        found = ~self.apart
        for f in self.functions:
            found[f.rows] = not f.is_smooth
        return found

    def predictions(self, v: Array) -> Array:
        """All Bₖvₖ, for v (p,) or (p, j)."""
        parts = zip(self.blocks, self.ends, self.ends[1:], strict=False)
        return np.concatenate([B @ v[a:b] for B, a, b in parts])

    def lifted(self, d: Array) -> Array:
        """All Bₖᵀdₖ."""
        parts = zip(self.blocks, self.starts, self.starts[1:], strict=False)
        return np.concatenate([B.T @ d[a:b] for B, a, b in parts])

    def moved(self, x: Array) -> Array:
        """E(Bₖvₖ) + Fy."""
        return np.asarray(self.E @ self.predictions(x[: self.p]) + self.F @ x[self.p :])

    def adjoint(self, a: Array) -> Array:
        """The transpose of `moved`."""
        return np.concatenate([self.lifted(self.E.T @ a), self.F.T @ a])

    def truncated(self, rank: int) -> RowProblem:
        """The problem for the first columns of each B: a coarser restriction of θ."""
        blocks = {id(B): B[:, :rank] for B in self.blocks}
        kept, ends = tuple(blocks[id(B)] for B in self.blocks), self.ends
        place = np.concatenate([np.arange(a, a + B.shape[1]) for a, B in zip(ends, kept, strict=False)])
        new = np.full(self.p, -1)
        new[place] = np.arange(len(place))
        lengths = tuple(replace(one, columns=new[one.columns][new[one.columns] >= 0]) for one in self.lengths)
        return replace(self, blocks=kept, lengths=lengths, steps_v=self.steps_v[place])

    def extended(self, x: Array, coarse: RowProblem) -> Array:
        """x of a truncated problem."""
        found = np.zeros(self.p + self.q)
        for a, b, c in zip(self.ends, coarse.ends, coarse.ends[1:], strict=False):
            found[a : a + c - b] = x[b:c]
        found[self.p :] = x[coarse.p :]
        return found


@dataclass(eq=False)
class _Norms:
    """g(t) = slope·t + ½curvature·t² on t ≤ limit of each norm, and the rows in which it stands alone.

    bound, factor : the row of the limit, and t's coefficient there; within : whether t stands in other rows, too, as a
    variable
    """

    slope: Array
    curvature: Array
    limit: Array
    rows: Array
    bound: Ints
    factor: Array
    within: Array


def lacks(form: CanonicalForm, pieces: Pieces) -> str | None:
    """Why the problem is none of this module, as a phrase that follows the solver's name; None where it is one."""
    if not form.predictions:
        return "needs some θ"
    for cone in pieces.cones:
        if cone.kind not in ("soc", "psd") or (cone.kind == "psd" and cone.extra > LARGEST):
            return f"takes cones of second order and small semidefinite ones; an atom needs one of the kind {cone.kind}"
    norms = _norms(form, pieces)
    if isinstance(norms, str):
        return norms
    if any(link.u is None for link in form.predictions):
        return "needs predictions of each θ"
    functions = functions_of(pieces, norms.rows)
    return functions if isinstance(functions, str) else None


def sums_in_balls(form: CanonicalForm, pieces: Pieces) -> int:
    """The number of rows in balls of order 1 of a problem that `lacks` nothing."""
    norms = _norms(form, pieces)
    assert not isinstance(norms, str)
    functions = functions_of(pieces, norms.rows)
    assert not isinstance(functions, str)
    return sum(len(f.rows) for f in functions[0] if isinstance(f.family, Ball) and f.family.p == 1)


def row_problem(form: CanonicalForm, pieces: Pieces, factors: Mapping[Theta, Factor]) -> RowProblem | str:
    """The problem, or why it is none, as a phrase that follows the solver's name."""
    if any(not factor.matrix.orthonormal or not isinstance(factor.B, np.ndarray) for factor in factors.values()):
        return "needs B as one array in double precision"
    if any(not norm.is_plain and factors[norm.view.theta].rank < (norm.view.theta.outputs or 1) for norm in form.norms):
        return "needs as many columns of B as outputs"
    norms = _norms(form, pieces)
    if isinstance(norms, str):
        return norms
    functions = functions_of(pieces, norms.rows)
    if isinstance(functions, str):
        return functions
    apart = norms.rows.copy()
    for level in functions[1]:
        apart[level.below] = True
    blocks, columns, places, owners, at = [], [], [], [], 0
    for link in form.predictions:
        assert link.u is not None
        each = pieces.columns[link.u.id].reshape(-1, link.theta.outputs or 1, order="F")
        B = factors[link.theta].B
        for k in range(each.shape[1]):
            blocks.append(B)
            columns.append(each[:, k])
            places.append(at + link.take)
            owners.append(link.theta)
            at += len(link.rows)
    u, place = np.concatenate(columns), np.concatenate(places)
    alone = [norm for norm, within in zip(form.norms, norms.within, strict=True) if not within]
    t = np.array([pieces.columns[norm.t.id][0] for norm in alone], dtype=int)
    y = np.setdiff1d(np.arange(pieces.n), np.concatenate([u, t]))
    spread = sp.csr_array((np.ones(len(u)), (u, place)), shape=(pieces.n, at))
    E, F = sp.csr_array(pieces.S @ spread), sp.csr_array(pieces.S[:, y])
    found = RowProblem(
        tuple(blocks), np.zeros(len(blocks)), E, F, pieces.s0, spread.T @ pieces.c, pieces.c[y], pieces.c0,
        *functions, pieces.below, pieces.equal, apart, (), np.ones(len(pieces.s0)), np.zeros(0), _unit(pieces), y,
    )  # fmt: skip
    within = np.flatnonzero(norms.within).tolist()
    tails = {j: int(np.searchsorted(y, pieces.columns[form.norms[j].t.id][0])) for j in within}
    found = replace(found, shift=found.shift + _margins(found, pieces))
    return _with_steps(_with_norms(found, form, norms, owners, factors, tails))


def _margins(problem: RowProblem, pieces: Pieces) -> Array:
    """By how much constraints that are not linear are tightened, so that answers, which meet them nearly, meet them.

    Only stated ones are: what graph forms of atoms bound has the values of these atoms in the end.
    """
    found, sizes = np.zeros(len(problem.shift)), problem.sizes
    stated = np.zeros(len(found), dtype=bool)
    stated[np.concatenate([np.arange(0), *pieces.stated.values()])] = True
    rows = problem.below[problem.nested]
    found[rows] = MARGIN * sizes[rows] * stated[rows]
    for f in problem.functions:
        if isinstance(f.family, BelowNorm):
            found[f.rows[:, 0]] += MARGIN * sizes[f.rows[:, 0]] * stated[f.rows[:, 0]]
        elif f.hard and len(f.family.heads):
            heads = f.rows[:, f.family.heads]
            found[heads] -= MARGIN * sizes[heads].max(axis=1, keepdims=True) * stated[heads]
    return found


def _unit(pieces: Pieces) -> float:
    sizes = np.abs(pieces.s0[pieces.s0 != 0])
    return median(sizes) if len(sizes) else 1.0


def _norms(form: CanonicalForm, pieces: Pieces) -> _Norms | str:
    """What each norm costs, where t stands in rows of its own alone; else t counts as a variable."""
    J, counts = len(form.norms), np.diff(pieces.S.indptr)
    found = _Norms(
        np.zeros(J), np.zeros(J), np.full(J, inf), np.zeros(len(counts), dtype=bool), np.full(J, -1), np.ones(J),
        np.zeros(J, dtype=bool),
    )  # fmt: skip
    owner, factor, plain = np.full(len(counts), -1), np.zeros(len(counts)), np.zeros(J, dtype=bool)
    for link in form.predictions:
        if len(form.norms_of(link.theta)) != 1:
            return f"needs one norm of each θ; there are {len(form.norms_of(link.theta))} of {link.theta.name}"
    for j, norm in enumerate(form.norms):
        t, plain[j] = pieces.columns[norm.t.id][0], norm.is_plain
        rows, values = pieces.by_columns[:, [t]].nonzero()[0], pieces.by_columns[:, [t]].data
        if norm.view.right is not None or norm.view.shift is not None:
            return "needs a norm of θ itself, not of θM or θ − f₀"
        found.within[j] = np.any((counts[rows] > 1) | pieces.holds[rows])
        if not found.within[j]:
            found.slope[j] = pieces.c[t]
            found.rows[rows], owner[rows], factor[rows] = True, j, values
    reason = _penalties(pieces, found, owner, factor) or _bounds(pieces, found, owner, factor)
    if reason is not None:
        return reason
    if np.any((found.slope == 0) & (found.curvature == 0) & np.isinf(found.limit) & ~found.within):
        return "needs a positive penalty of ‖θ‖, or a bound on it"
    if np.any(~plain & (np.isfinite(found.limit) | (found.curvature > 0) | found.within)):
        return "needs other norms of a matrix θ as a multiple of them"
    return found


def _penalties(pieces: Pieces, found: _Norms, owner: Ints, factor: Array) -> str | None:
    """Add functions of t alone to its costs, which must be multiples of t and t² for t ≥ 0."""
    for group in pieces.groups:
        alone = np.flatnonzero(found.rows[group.rows[:, 0]])
        if not len(alone):
            continue
        rows, weight = group.rows[alone, 0], group.costs[alone]
        if not isinstance(group.family, Piecewise) or group.weights[alone][:, 1:].nnz:
            return "needs ‖θ‖ or its square as a penalty"
        knots = group.family.knots[alone]
        if pieces.s0[rows].any() or np.any(factor[rows] < 0) or np.any((knots > 0) & np.isfinite(knots)):
            return "needs ‖θ‖ or its square as a penalty"
        last = group.family.coefficients[alone, np.isfinite(knots).sum(axis=1)]
        np.add.at(found.slope, owner[rows], weight * last[:, 1] * factor[rows])
        np.add.at(found.curvature, owner[rows], weight * last[:, 2] * factor[rows] ** 2)
    return "needs penalties that do not fall" if np.any((found.slope < 0) | (found.curvature < 0)) else None


def _bounds(pieces: Pieces, found: _Norms, owner: Ints, factor: Array) -> str | None:
    """Take the least bound on each t from rows of t alone."""
    for row in pieces.below[found.rows[pieces.below]]:
        j, limit = owner[row], -pieces.s0[row] / factor[row]
        if factor[row] < 0 < pieces.s0[row]:
            return "needs no least ‖θ‖"
        if factor[row] > 0 and limit < found.limit[j]:
            found.limit[j], found.bound[j], found.factor[j] = limit, row, factor[row]
    return "needs positive bounds on ‖θ‖" if np.any(found.limit <= 0) else None


def _with_norms(  # noqa: PLR0917
    problem: RowProblem, form: CanonicalForm, norms: _Norms, owners: list[Theta], factors: Mapping[Theta, Factor],
    tails: Mapping[int, int],
) -> RowProblem:  # fmt: skip
    """The problem with R, and with lengths whose cost is no square: ‖θ‖ = ‖v‖/√scale."""
    R, steps, lengths = np.zeros(len(owners)), np.zeros(len(owners)), []
    slopes = problem.adjoint(_first_multipliers(problem))[: problem.p] + problem.lifted(problem.cost_d)
    if not slopes.any():  # losses of other columns, which bound those of predictions
        slopes = problem.adjoint(_first_multipliers(problem, inner=1.0))[: problem.p]
    if not slopes.any():
        slopes = problem.adjoint(np.ones(len(problem.shift)))[: problem.p]
    for j, norm in enumerate(form.norms):
        own = [k for k, owner in enumerate(owners) if owner is norm.view.theta]
        scale = factors[norm.view.theta].scale
        columns = np.concatenate([np.arange(problem.ends[k], problem.ends[k + 1]) for k in own])
        slope, limit = float(norms.slope[j] / sqrt(scale)), float(norms.limit[j] * sqrt(scale) * (1 - MARGIN))
        R[own] = norms.curvature[j] / scale
        squares = np.concatenate([np.einsum("ij,ij->i", problem.blocks[k], problem.blocks[k]) for k in own])
        typical = min(problem.unit / sqrt(max(float(np.mean(squares)), 1e-300)), limit)
        steps[own] = R[own] + slope / typical
        if not steps[own].any():  # a bound alone: the penalty that it stands for is at most that of its first slopes
            steps[own] = (float(np.linalg.norm(slopes[columns])) or 1.0) / typical
        one = VectorNorm(tuple(own), columns, slope, limit, typical, p={"nuc": 1.0, 2: inf}.get(norm.kind, 2.0))
        if j in tails:
            lengths.append(replace(one, t=tails[j], head=sqrt(scale)))
        elif slope > 0 or limit < inf:
            lengths.append(replace(one, bound=int(norms.bound[j]), of_bound=sqrt(scale) / float(norms.factor[j])))
    steps_v = np.repeat(steps, np.diff(problem.ends))
    return replace(problem, R=R, lengths=tuple(lengths), steps_v=steps_v)


def _first_multipliers(problem: RowProblem, inner: float = 0.0) -> Array:
    """Slopes of all functions at x = 0, where rows that hold functions have the multiplier `inner`."""
    a = np.zeros(len(problem.shift))
    with np.errstate(all="ignore"):
        for f in problem.functions:
            if not f.hard:
                found = (f.weight + inner * f.share)[:, None] * f.family.slope(problem.shift[f.rows])
                a[f.rows] = np.where(np.isfinite(found), found, 0.0)
    return a


def _steepness(f: RowFunctions, shift: Array) -> float:
    """The mean square of the slopes at θ = 0, 1 where they say nothing."""
    slopes = f.family.slope(shift[f.rows])
    found = float(np.mean(np.sum(slopes**2, axis=1)))
    return found if 0 < found < inf else 1.0


def _with_steps(problem: RowProblem) -> RowProblem:
    """step = 1/diag(E B (steps_v)⁻¹ BᵀEᵀ), the mean over the rows of a function."""
    ends = problem.ends
    each = [
        np.einsum("ij,ij->i", B, B) / problem.steps_v[a] if b > a else np.zeros(len(B))
        for B, a, b in zip(problem.blocks, ends, ends[1:], strict=False)
    ]
    squares = np.asarray((problem.E * problem.E) @ np.concatenate(each))
    typical = median(squares[squares > 0]) if np.any(squares > 0) else 1.0
    moving = _followed(problem, np.where(squares > STILL * typical, squares, 0.0))
    moving = np.where(moving > 0, moving, typical)
    for f in problem.functions:
        moving[f.rows] = moving[f.rows].mean(axis=1, keepdims=True)
    return replace(problem, step=1 / moving)


def _followed(problem: RowProblem, of_theta: Array) -> Array:
    """How far all rows move, for how far θ moves them; 0 where nothing is known.

    A row below that no θ moves goes along with its functions, by their slopes, and other columns with such rows that
    bound them: F²·at = moving, in the mean over these rows. Functions within functions take turns.
    """
    squares, below, moving = sp.csr_array(problem.F * problem.F), problem.below, of_theta
    bounds, own, held, at = squares[below], of_theta[below] == 0, np.zeros(len(below)), np.zeros(problem.q)
    nested = [(f, f.share * _steepness(f, problem.shift)) for f in problem.functions if f.is_nested]
    for _ in range(TURNS if nested else 0):
        inner = sum(f.by_row(slope * moving[f.rows].mean(axis=1), len(below)) for f, slope in nested)
        held = np.where(own & (held == 0) & (inner > 0), inner + bounds @ at, held)
        total, terms = bounds.T @ held, (bounds * bounds).T @ (held > 0).astype(float)
        at = np.where(at > 0, at, total / np.where(terms > 0, terms, 1.0))
        along = squares @ at
        along[below] = np.where(held > 0, held, along[below])
        before, moving = moving, np.where(of_theta > 0, of_theta, along)
        if np.array_equal(before > 0, moving > 0):
            break
    return moving
