"""Move a point that violates constraints slightly into them.

For rows  A_u u + A_y y + s = b, u = Bv, with slacks s that should decrease by r, the shortest step is

    Δv = (A_uB)ᵀd,  Δy = WA_yᵀd,  (A_uB(A_uB)ᵀ + A_yWA_yᵀ)d = r,

W the square of the largest |y|. Inequalities keep a slack of some ulps. A θ beyond a bound of its norm is scaled.
A curved constraint e(u, y) ≤ 0 that is violated enters by its tangent, with −e in place of 0 on the right: but for
terms of second order the step ends inside. There are none where e is piecewise linear, and 0 stays: |u| ≤ 0 leaves no
room for −e.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import nan

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg.lapack import dpstrf

from kernelopt.compiler import representer, residuals
from kernelopt.compiler.attributes import dense
from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.columns import columns_of_each_u, columns_of_u, columns_of_y
from kernelopt.compiler.iterate import Iterate, in_columns
from kernelopt.compiler.linear_rows import LinearRows, limits, linear_rows, rows_of_zeros
from kernelopt.compiler.outer import Outer
from kernelopt.compiler.representer import Reduction
from kernelopt.language.expressions import Theta
from kernelopt.language.nodes import EUCLIDEAN
from kernelopt.pieces.form import Pieces
from kernelopt.support.cvxpy_parts import Inequality, jacobians
from kernelopt.support.types import Array

ROUNDING = 1e-12  # of a constraint's terms, about 4500 eps: a violation that rounding explains
# Rows that are moved into at once, and inequalities in an elimination. The step takes a dense MOST × MOST system, with
# MOST³ operations; a point with more rows to correct is left as it is.
MOST = 1500
# Slack that inequalities keep, and the accuracy to which rows are met, relative to the terms of a row. 450 ulps allow
# for the rounding of predictions as sums, and are far below the tolerances of solvers.
ROOM = 1e-13
# Slacks up to this fraction of a row's terms are closed where an optimum of 0 is searched from a solver's point. Larger
# values make equalities of inactive rows, smaller ones miss rows that the solver met loosely.
NEARLY = 1e-4
# Turns in which rows that a step crosses are held where they are, and with them all rows whose slack is at most HELD
# times what it goes beyond one.
TURNS, HELD = 4, 2.0
# Singular values of the scaled system up to this fraction of the largest count as 0: such rows depend on others, and
# the step of least length is taken. The fraction is 450 ulps, above the rounding of the system's entries.
RANK = 1e-13
# What a pivoted factor may leave of r. Least squares leave 1e-7 of it where eigenvalues reach 1e-10 of the largest.
ANSWERED = 1e-6


def moved(reduction: Reduction, outer: Outer, point: Iterate) -> Iterate | None:
    """The point with v and y moved, not evaluated yet; None where it met all rows, or no such step exists."""
    pieces = outer.pieces
    scaled = None if pieces is None else _shortened(reduction, pieces, point)
    rows = None if pieces is None else linear_rows(pieces, reduction.form)
    return scaled if rows is None else _moved(reduction, outer, point, scaled, rows)


def _moved(  # noqa: PLR0917
    reduction: Reduction, outer: Outer, point: Iterate, scaled: Iterate | None, rows: LinearRows, active: float = 0.0,
    held: Sequence[Theta] = (),
) -> Iterate | None:  # fmt: skip
    """The same for some rows and the tangents of curved constraints.

    Inequalities whose slack is at most the fraction `active` of their terms are treated as equalities. A θ in `held`
    is not moved.
    """
    assert outer.pieces is not None
    x = in_columns(reduction.form, outer.pieces, point)
    tangents, curved = _tangents(reduction, outer.pieces, point, x)
    A, b, equal = rows.and_also(tangents)
    if not len(b):
        return scaled
    s, terms = b - A @ x, _terms(reduction, outer.pieces, point, A, b, x)
    equal = equal | (np.abs(s) <= active * terms)
    keeps = np.append(~equal[: len(rows.b)], curved)
    room = np.where(keeps & ~equal, ROOM * terms, 0.0)
    wrong = np.where(equal, s != 0, s < 0)
    if not wrong.any():
        return scaled
    chosen = np.flatnonzero(equal | (s < room))
    r, found = np.where(equal, s, np.minimum(s - 2 * room, 0.0)), scaled
    near = bool(np.all(np.abs(s[wrong]) <= residuals.FEASIBLE * terms[wrong]))  # a point far off is none
    for _ in range(TURNS if near else 1):
        if len(chosen) > MOST or (step := _step(reduction, outer, held, A[chosen], x, r[chosen])) is None:
            return found
        found = _along(reduction, outer.pieces, scaled or point, x, step)
        there = in_columns(reduction.form, outer.pieces, representer.evaluate(reduction, found))
        beyond = float(np.max((A @ there - b)[~equal], initial=-np.inf))
        more = np.flatnonzero(~equal & (s <= HELD * beyond))
        if beyond <= 0 or np.isin(more, chosen).all():
            return found
        chosen = np.union1d(chosen, more)
    return found


def _step(  # noqa: PLR0917
    reduction: Reduction, outer: Outer, held: Sequence[Theta], A: sp.csr_array, x: Array, r: Array
) -> tuple[list[tuple[int, int, Array]], Array] | None:
    """The shortest step with A·step = r, for each column of each v, and of y; None where there is none."""
    assert outer.pieces is not None
    A = sp.csc_array(A)
    parts = [
        (number, k, G)
        for number, k, G in _through_factors(reduction, outer.pieces, A)
        if not any(reduction.form.predictions[number].theta is h for h in held)
    ]
    y = columns_of_y(outer.pieces, reduction.form)
    size = np.abs(x[y])
    weight = np.maximum(size, float(size.max(initial=0.0)) or outer.data_unit or 1.0) ** 2
    Ay = A[:, y].toarray()
    M = sum((G @ G.T for _, _, G in parts), (Ay * weight) @ Ay.T)
    d = np.sqrt(np.diag(M))
    if not np.all(np.isfinite(d)) or np.any((d == 0) & (r != 0)):
        return None
    # Rows in units of their own length in M, so that `RANK` compares rows of different units.
    d = np.where(d > 0, d, 1.0)
    found = _solution(M / d[:, None] / d, r / d) / d
    if not np.isfinite(found).all():
        return None
    return [(number, k, G.T @ found) for number, k, G in parts], weight * (Ay.T @ found)


def _solution(M: Array, r: Array) -> Array:
    """d with Md = r for a semidefinite M, by pivoted Cholesky: all such d give one step. Least squares where none is
    found, which takes 20 times as long."""
    L, order, rank, _ = dpstrf(M, tol=RANK * len(M), lower=1)
    pivots, found = order[:rank] - 1, np.zeros(len(M))
    found[pivots] = scipy.linalg.cho_solve((L[:rank, :rank], True), r[pivots], check_finite=False)
    if np.abs(r - M @ found).max(initial=0.0) <= ANSWERED * np.abs(r).max(initial=0.0):
        return found
    return np.asarray(scipy.linalg.lstsq(M, r, cond=RANK, check_finite=False)[0])


def _along(
    reduction: Reduction, pieces: Pieces, point: Iterate, x: Array, step: tuple[list[tuple[int, int, Array]], Array]
) -> Iterate:
    """The point after a step of v and y, not evaluated yet."""
    v, new = [np.array(one) for one in point.v], x.copy()
    for number, k, of_v in step[0]:
        if v[number].ndim == 1:
            v[number] += of_v
        else:
            v[number][:, k] += of_v
    new[columns_of_y(pieces, reduction.form)] += step[1]
    values = tuple(
        new[pieces.columns[variable.id]].reshape(variable.shape, order="F") if variable.id in pieces.columns else value
        for variable, value in zip(reduction.form.y, point.y, strict=True)
    )
    return replace(point, v=tuple(v), y=values, value=nan)


def _tangents(reduction: Reduction, pieces: Pieces, point: Iterate, x: Array) -> tuple[LinearRows, NDArray[np.bool_]]:
    """Rows ∇eᵀx' ≤ ∇eᵀx − 2e for the entries e > 0 of inequalities that are not affine, in columns of u and y.

    −e in place of −2e for those that are piecewise linear; last, which rows are of others.
    """
    canonical = reduction.form
    ours = [*canonical.y, *(link.u for link in canonical.predictions if link.u is not None)]
    columns = {v.id: pieces.columns[v.id] for v in ours if v.id in pieces.columns}
    rows, right, curved = [sp.csr_array((0, len(x)))], [np.zeros(0)], [np.zeros(0, dtype=bool)]
    for constraint, residual in zip(
        canonical.outer.constraints, residuals.of_constraints(canonical, point), strict=True
    ):
        if not residual.any() or not isinstance(constraint, Inequality) or constraint.expr.is_affine():
            continue
        slopes = jacobians(constraint.expr)
        if not slopes or len(slopes) < len(constraint.expr.variables()):
            continue
        violated = np.flatnonzero(np.ravel(residual, order="F"))
        G = sp.lil_array((len(x), constraint.expr.size))
        for number, slope in slopes.items():
            if number in columns:
                G[columns[number]] = slope.toarray()
        tangents = sp.csr_array(G.T)[violated]
        if not (np.isfinite(tangents.data).all() and np.isfinite(residual).all()):  # far outside
            continue
        rows.append(tangents)
        is_curved = not constraint.expr.is_pwl()
        right.append(tangents @ x - (1 + is_curved) * np.ravel(residual, order="F")[violated])
        curved.append(np.full(len(violated), is_curved))
    b, of = np.concatenate(right), np.concatenate(curved)
    return LinearRows(sp.csr_array(sp.vstack(rows)), b, np.zeros(len(b), dtype=bool)), of


def towards_zero(reduction: Reduction, outer: Outer, point: Iterate) -> Iterate | None:
    """A point at which every loss and penalty is 0, as nearly as one step gets there.

    Each θ with a penalized norm is set to 0, and the other variables are moved to where all losses are 0. None where
    predictions or y have costs themselves, or a norm of θ − f₀ is penalized.
    """
    pieces, form = outer.pieces, reduction.form
    rows = None if pieces is None else linear_rows(pieces, form)
    if pieces is None or rows is None or not form.has_cones or (zeros := rows_of_zeros(pieces, form)) is None:
        return None
    norms = [n for n, cost in zip(form.norms, _costs_of_norms(pieces, form), strict=True) if cost]
    if any(norm.view.shift is not None for norm in norms):
        return None
    held = [norm.view.theta for norm in norms]
    v = tuple(
        np.zeros_like(one) if any(link.theta is h for h in held) else one
        for link, one in zip(form.predictions, point.v, strict=True)
    )
    there = representer.evaluate(reduction, replace(point, v=v))
    scaled = _shortened(reduction, pieces, there)
    return _moved(reduction, outer, there, scaled, rows.and_also(zeros), NEARLY, held)


def _costs_of_norms(pieces: Pieces, form: CanonicalForm) -> list[bool]:
    """Whether each ‖θ‖ has a cost, alone or within a function of it."""
    S, found = pieces.by_columns, []
    costly = np.zeros(len(pieces.s0), dtype=bool)
    for group in pieces.groups:
        costly[group.rows[group.costs > 0]] = True
    for norm in form.norms:
        t = int(pieces.columns[norm.t.id][0])
        found.append(bool(pieces.c[t] or costly[S.indices[S.indptr[t] : S.indptr[t + 1]]].any()))
    return found


def _terms(  # noqa: PLR0917
    reduction: Reduction, pieces: Pieces, point: Iterate, A: sp.csr_array, b: Array, x: Array
) -> Array:
    """|b| + |A||x| for each row. For predictions |x| is at least ‖Bᵢ‖‖v‖, since terms of Bv may cancel."""
    sizes, of_u = np.abs(x), columns_of_each_u(pieces, reduction.form)
    for link, v, columns in zip(reduction.form.predictions, point.v, of_u, strict=True):
        factor = reduction.factors[link.theta]
        if len(columns) and factor.rank:
            value = np.abs(v).reshape(factor.rank, -1)
            lengths = np.sqrt(factor.matrix.row_squares())[link.take][:, None] * np.linalg.norm(value, axis=0)
            sizes[columns] = np.maximum(sizes[columns], lengths.ravel(order="F"))
    return np.asarray(np.abs(b) + abs(A) @ sizes)


def is_met(reduction: Reduction, outer: Outer, point: Iterate, sums: Array | None = None) -> bool:
    """Whether linear rows hold up to rounding: `ROOM` times the sizes of their terms; False where they are not known.

    sums : further sizes of the terms of predictions, one for each column of u
    """
    pieces, form = outer.pieces, reduction.form
    rows = None if pieces is None else linear_rows(pieces, form)
    if pieces is None or rows is None:
        return False
    (A, b, equal), x = rows, in_columns(form, pieces, point)
    terms = _terms(reduction, pieces, point, A, b, x)
    if sums is not None:
        terms = terms + abs(A[:, columns_of_u(pieces, form)]) @ sums
    s, most = b - A @ x, ROOM * terms
    return bool(np.all(np.where(equal, np.abs(s), -s) <= most))


def nearby(reduction: Reduction, outer: Outer, point: Iterate) -> Iterator[Iterate]:
    """Points near one that meets constraints badly: moved into them, and then without what is rounding of y.

    Rows such as s ≤ 0 and −s ≤ 0 have no terms beside which 1e-10, or 1e-24, were small.
    """
    found = moved(reduction, outer, point)
    if found is not None:
        yield representer.evaluate(reduction, found)
        least = ROUNDING * outer.data_unit
        y = tuple(np.where(np.abs(dense(value)) <= least, 0.0, dense(value)) for value in found.y)
        yield representer.evaluate(reduction, replace(found, y=y))


def is_rounding(reduction: Reduction, outer: Outer, point: Iterate) -> bool:
    """Whether only linear rows are violated, and by no more than rounding."""
    constraints, beyond = reduction.form.outer.constraints, residuals.of_constraints(reduction.form, point)
    violated = [c for c, residual in zip(constraints, beyond, strict=True) if residual.any()]
    linear = all(part.is_affine() for c in violated for part in c.args if not isinstance(part, list))
    return linear and is_met(reduction, outer, point)


def _through_factors(reduction: Reduction, pieces: Pieces, A: sp.csc_array) -> Iterable[tuple[int, int, Array]]:
    """(number of the θ, output, A_uB) for each θ and output in A."""
    of_u = columns_of_each_u(pieces, reduction.form)
    for number, (link, columns) in enumerate(zip(reduction.form.predictions, of_u, strict=True)):
        factor = reduction.factors[link.theta]
        if not len(columns) or not factor.rank:
            continue
        for k, some in enumerate(columns.reshape(-1, link.theta.outputs or 1, order="F").T):
            part = sp.csc_array(A[:, some])
            used = np.flatnonzero(np.diff(part.indptr))
            if len(used):
                yield number, k, np.asarray(part[:, used] @ np.asarray(factor.B[link.take[used]], dtype=float))


def _shortened(reduction: Reduction, pieces: Pieces, point: Iterate) -> Iterate | None:
    """The point with v scaled where ‖θ‖ exceeds the bound of a row a·t ≤ b, for norms without f₀; else None."""
    v, done = list(point.v), False
    places = {link.theta: number for number, link in enumerate(reduction.form.predictions)}
    for norm, t in zip(reduction.form.norms, point.t, strict=True):
        bounds, number = limits(pieces, int(pieces.columns[norm.t.id][0])), places[norm.view.theta]
        plain = norm.view.shift is None and (norm.view.right is None or norm.kind in (EUCLIDEAN, "fro"))
        if len(bounds) and plain and v[number].size and t > bounds.min() >= 0:
            # 8 ulps below the bound, so that it holds for the recomputed norm.
            v[number] = v[number] * (bounds.min() / t) * (1 - 8 * np.finfo(float).eps)
            done = True
    return replace(point, v=tuple(v), value=nan) if done else None
