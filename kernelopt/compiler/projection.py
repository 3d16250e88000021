"""Move a point that violates constraints slightly into them.

For rows  A_u u + A_y y + s = b, u = Bv, with slacks s that should decrease by r, the shortest step is

    Δv = (A_uB)ᵀd,  Δy = WA_yᵀd,  (A_uB(A_uB)ᵀ + A_yWA_yᵀ)d = r,

W the square of the largest |y|. Inequalities keep a slack of some ulps. A θ beyond a bound of its norm is scaled.
A curved constraint e(u, y) ≤ 0 that is violated enters by its tangent, with −e in place of 0 on the right: but for
terms of second order the step ends inside. There are none where e is piecewise linear, and 0 stays: |u| ≤ 0 leaves no
room for −e.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import nan

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelopt.compiler import representer
from kernelopt.compiler.attributes import dense
from kernelopt.compiler.conic_form import ConicForm
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.representer import Reduction
from kernelopt.language.expressions import Theta
from kernelopt.language.nodes import EUCLIDEAN
from kernelopt.support.cvxpy_parts import Inequality, jacobians
from kernelopt.support.types import Array, Ints

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


def moved(
    reduction: Reduction, form: ConicForm, point: Iterate, active: float = 0.0, held: Sequence[Theta] = ()
) -> Iterate | None:
    """The point with v and y moved, not evaluated yet; None where it met all rows, or no such step exists.

    Inequalities whose slack is at most the fraction `active` of their terms are treated as equalities. A θ in `held`
    is not moved.
    """
    scaled = _shortened(reduction, form, point)
    x = columns_of(form, point)
    A, b, equal = _linear_rows(form)
    tangents, right, curved = (A[:0], b[:0], equal[:0]) if x is None else _tangents(reduction, form, point, x)
    A, b = sp.csr_array(sp.vstack([A, tangents])), np.concatenate([b, right])
    equal = np.append(equal, np.zeros(len(right), dtype=bool))
    if x is None or not len(b):
        return scaled
    s, terms = b - A @ x, _terms(reduction, form, point, A, b, x)
    equal |= np.abs(s) <= active * terms
    keeps = np.append(~equal[: len(b) - len(right)], curved)
    room = np.where(keeps & ~equal, ROOM * terms, 0.0)
    wrong = np.where(equal, s != 0, s < 0)
    if not wrong.any():
        return scaled
    chosen = np.flatnonzero(equal | (s < room))
    r, found = np.where(equal, s, np.minimum(s - 2 * room, 0.0)), scaled
    near = bool(np.all(np.abs(s[wrong]) <= representer.FEASIBLE * terms[wrong]))  # a point far off is none
    for _ in range(TURNS if near else 1):
        if len(chosen) > MOST or (step := _step(reduction, form, held, A[chosen], x, r[chosen])) is None:
            return found
        found = _along(reduction, form, scaled or point, x, step)
        there = columns_of(form, representer.evaluate(reduction, found))
        beyond = -np.inf if there is None else float(np.max((A @ there - b)[~equal], initial=-np.inf))
        more = np.flatnonzero(~equal & (s <= HELD * beyond))
        if beyond <= 0 or np.isin(more, chosen).all():
            return found
        chosen = np.union1d(chosen, more)
    return found


def _step(  # noqa: PLR0917
    reduction: Reduction, form: ConicForm, held: Sequence[Theta], A: sp.csr_array, x: Array, r: Array
) -> tuple[list[tuple[int, int, Array]], Array] | None:
    """The shortest step with A·step = r, for each column of each v, and of y; None where there is none."""
    A = sp.csc_array(A)
    parts = [
        (number, k, G)
        for number, k, G in _through_factors(reduction, form, A)
        if not any(reduction.form.predictions[number].theta is h for h in held)
    ]
    y = form.y
    size = np.abs(x[y])
    weight = np.maximum(size, float(size.max(initial=0.0)) or form.data_unit or 1.0) ** 2
    Ay = A[:, y].toarray()
    M = sum((G @ G.T for _, _, G in parts), (Ay * weight) @ Ay.T)
    d = np.sqrt(np.diag(M))
    if not np.all(np.isfinite(d)) or np.any((d == 0) & (r != 0)):
        return None
    # Rows in units of their own length in M, so that `RANK` compares rows of different units.
    d = np.where(d > 0, d, 1.0)
    found = scipy.linalg.lstsq(M / d[:, None] / d, r / d, cond=RANK, check_finite=False)[0] / d
    if not np.isfinite(found).all():
        return None
    return [(number, k, G.T @ found) for number, k, G in parts], weight * (Ay.T @ found)


def _along(
    reduction: Reduction, form: ConicForm, point: Iterate, x: Array, step: tuple[list[tuple[int, int, Array]], Array]
) -> Iterate:
    """The point after a step of v and y, not evaluated yet."""
    v, new = [np.array(one) for one in point.v], x.copy()
    for number, k, of_v in step[0]:
        if v[number].ndim == 1:
            v[number] += of_v
        else:
            v[number][:, k] += of_v
    new[form.y] += step[1]
    values = tuple(
        new[columns].reshape(variable.shape, order="F") if len(columns) == variable.size else value
        for variable, columns, value in zip(reduction.form.y, form.variables, point.y, strict=True)
    )
    return replace(point, v=tuple(v), y=values, value=nan)


def _tangents(
    reduction: Reduction, form: ConicForm, point: Iterate, x: Array
) -> tuple[sp.csr_array, Array, NDArray[np.bool_]]:
    """Rows ∇eᵀx' ≤ ∇eᵀx − 2e for the entries e > 0 of inequalities that are not affine, in columns of u and y.

    −e in place of −2e for those that are piecewise linear; last, which rows are of others.
    """
    canonical = reduction.form
    columns = {v.id: at for v, at in zip(canonical.y, form.variables, strict=True) if len(at) == v.size}
    columns |= {
        link.u.id: np.ravel(at, order="F")
        for link, at in zip(canonical.predictions, form.u, strict=True)
        if link.u is not None
    }
    rows, right, curved = [sp.csr_array((0, len(x)))], [np.zeros(0)], [np.zeros(0, dtype=bool)]
    for constraint, residual in zip(canonical.outer.constraints, representer.residuals(canonical, point), strict=True):
        if not residual.any() or not isinstance(constraint, Inequality) or constraint.expr.is_affine():
            continue
        slopes = jacobians(constraint.expr)
        if not slopes or len(slopes) < len(constraint.expr.variables()):
            continue
        violated = np.flatnonzero(np.ravel(residual, order="F"))
        G = sp.lil_array((len(x), constraint.expr.size))
        for number, slope in slopes.items():
            if number in columns:
                G[columns[number]] = dense(slope)
        tangents = sp.csr_array(G.T)[violated]
        rows.append(tangents)
        is_curved = not constraint.expr.is_pwl()
        right.append(tangents @ x - (1 + is_curved) * np.ravel(residual, order="F")[violated])
        curved.append(np.full(len(violated), is_curved))
    return sp.csr_array(sp.vstack(rows)), np.concatenate(right), np.concatenate(curved)


def towards_zero(reduction: Reduction, form: ConicForm, point: Iterate) -> Iterate | None:
    """A point at which every loss and penalty is 0, as nearly as one step gets there.

    Each θ with a penalized norm is set to 0. Auxiliary variables with a cost count as 0 in the rows into which the
    other variables are moved. None where predictions or y have costs themselves, or a norm of θ − f₀ is penalized.
    """
    costly = (form.c != 0) | (form.P > 0)
    if (
        costly[form.y].any()
        or costly[np.concatenate([np.arange(0), *form.u]).astype(int)].any()
        or not reduction.form.has_cones
    ):
        return None
    norms = [n for n, column in zip(reduction.form.norms, form.t, strict=True) if costly[column]]
    if any(norm.view.shift is not None for norm in norms):
        return None
    held = [norm.view.theta for norm in norms]
    v = tuple(
        np.zeros_like(one) if any(link.theta is h for h in held) else one
        for link, one in zip(reduction.form.predictions, point.v, strict=True)
    )
    there = representer.evaluate(reduction, replace(point, v=v))
    A = sp.csc_array(form.A, copy=True)
    A.data *= ~costly[form.owners]
    A.eliminate_zeros()
    return moved(reduction, replace(form, A=A), there, NEARLY, held)


def _terms(  # noqa: PLR0917
    reduction: Reduction, form: ConicForm, point: Iterate, A: sp.csr_array, b: Array, x: Array
) -> Array:
    """|b| + |A||x| for each row. For predictions |x| is at least ‖Bᵢ‖‖v‖, since terms of Bv may cancel."""
    sizes = np.abs(x)
    for link, v, columns in zip(reduction.form.predictions, point.v, form.u, strict=True):
        factor = reduction.factors[link.theta]
        if link.u is not None and factor.rank:
            value = np.abs(v).reshape(factor.rank, -1)
            lengths = np.sqrt(factor.matrix.row_squares())[link.take][:, None] * np.linalg.norm(value, axis=0)
            sizes[columns] = np.maximum(sizes[columns], lengths.ravel(order="F"))
    return np.asarray(np.abs(b) + abs(A) @ sizes)


def is_met(reduction: Reduction, form: ConicForm, point: Iterate, sums: Array | None = None) -> bool:
    """Whether linear rows hold up to rounding: `ROOM` times the sizes of their terms.

    sums : further sizes of the terms of predictions, one for each column of u
    """
    x, (A, b, equal) = columns_of(form, point), _linear_rows(form)
    if x is None:
        return False
    terms = _terms(reduction, form, point, A, b, x)
    if sums is not None:
        terms = terms + abs(A[:, np.concatenate([np.arange(0), *form.u]).astype(int)]) @ sums
    s, most = b - A @ x, ROOM * terms
    return bool(np.all(np.where(equal, np.abs(s), -s) <= most))


def nearby(reduction: Reduction, form: ConicForm, point: Iterate) -> Iterator[Iterate]:
    """Points near one that meets constraints badly: moved into them, and then without what is rounding of y.

    Rows such as s ≤ 0 and −s ≤ 0 have no terms beside which 1e-10, or 1e-24, were small.
    """
    found = moved(reduction, form, point)
    if found is not None:
        yield representer.evaluate(reduction, found)
        least = ROUNDING * form.data_unit
        y = tuple(np.where(np.abs(dense(value)) <= least, 0.0, dense(value)) for value in found.y)
        yield representer.evaluate(reduction, replace(found, y=y))


def is_rounding(reduction: Reduction, form: ConicForm, point: Iterate) -> bool:
    """Whether only linear rows are violated, and by no more than rounding."""
    constraints, residuals = reduction.form.outer.constraints, representer.residuals(reduction.form, point)
    violated = [c for c, residual in zip(constraints, residuals, strict=True) if residual.any()]
    linear = all(part.is_affine() for c in violated for part in c.args if not isinstance(part, list))
    return linear and is_met(reduction, form, point)


def columns_of(form: ConicForm, point: Iterate) -> Array | None:
    """x on the columns of u, t and the user's variables, 0 elsewhere; None where a variable has fewer columns than
    entries, as symmetric and diagonal ones do."""
    if any(len(columns) not in (0, dense(y).size) for y, columns in zip(point.y, form.variables, strict=True)):
        return None
    x = form.columns_of_y(point.y)
    for u, columns in zip(point.u, form.u, strict=True):
        x[columns] = np.ravel(u, order="F")
    x[form.t] = point.t
    return x


def _linear_rows(form: ConicForm) -> tuple[sp.csr_array, Array, NDArray[np.bool_]]:
    """(A, b, which are equalities) of the linear rows in predictions and the user's variables alone, and of those that
    follow from others by eliminating auxiliary variables: u ≤ s, −u ≤ s and s ≤ b imply u ≤ b and −u ≤ b; found once.
    """
    if "linear rows" not in form.notes:
        form.notes["linear rows"] = _found_linear_rows(form)
    found: tuple[sp.csr_array, Array, NDArray[np.bool_]] = form.notes["linear rows"]
    return found


def _found_linear_rows(form: ConicForm) -> tuple[sp.csr_array, Array, NDArray[np.bool_]]:
    ours = np.zeros(len(form.c), dtype=bool)
    ours[np.concatenate([form.y, *form.u]).astype(int)] = True
    A, zero = form.by_rows, form.cones.zero
    others = abs(A) @ (~ours).astype(float)
    linear = np.arange(len(form.b)) < zero + form.cones.nonneg
    rows = np.flatnonzero(linear & (others == 0) & (np.diff(A.indptr) > 0))
    more, b = _without_auxiliaries(form, ours)
    A, b = sp.csr_array(sp.vstack([A[rows], more])), np.concatenate([form.b[rows], b])
    return A, b, np.append(rows < zero, np.zeros(more.shape[0], dtype=bool)) | _opposite(A, b)


def _opposite(A: sp.csr_array, b: Array) -> NDArray[np.bool_]:
    """Which inequalities form an equality together with another one: u ≤ b and −u ≤ −b."""
    A.sort_indices()
    ends = list(pairwise(A.indptr.tolist()))
    # Rows are compared by their bytes; adding 0.0 makes −0.0 equal to 0.0.
    keys = [
        (A.indices[i:k].tobytes(), (A.data[i:k] + 0.0).tobytes(), c) for (i, k), c in zip(ends, b + 0.0, strict=True)
    ]
    known = set(keys)
    return np.array([
        (at, (0.0 - A.data[i:k]).tobytes(), 0.0 - c) in known
        for (i, k), (at, _, c) in zip(ends, keys, strict=True)
    ], dtype=bool)  # fmt: skip


def _without_auxiliaries(form: ConicForm, ours: NDArray[np.bool_]) -> tuple[sp.csr_array, Array]:
    """Inequalities after the elimination (Fourier–Motzkin) of auxiliary variables for which that adds no rows."""
    n, rows = len(form.c), slice(form.cones.zero, form.cones.zero + form.cones.nonneg)
    A = sp.csc_array(form.A)
    inside = A[rows]
    alone = ~ours & (np.diff(A.indptr) == np.diff(inside.indptr))  # only in inequalities
    alone[form.linked] = False
    both = (inside.maximum(0).sum(axis=0) > 0) & (inside.minimum(0).sum(axis=0) < 0)
    columns = np.flatnonzero(alone & both)
    touched = np.flatnonzero(abs(inside[:, columns]).sum(axis=1) > 0)
    if not 0 < len(touched) <= MOST:
        return sp.csr_array((0, n)), np.zeros(0)
    R = sp.csr_array(sp.hstack([inside, form.b[rows, None]], format="csr")[touched])
    kept = _eliminated([dict(zip(R.indices[i:k], R.data[i:k], strict=True)) for i, k in pairwise(R.indptr)], columns)
    left = [row for row in kept if set(row) - {n} and all(j == n or ours[j] for j in row)]
    b = np.array([row.pop(n, 0.0) for row in left])
    number = np.repeat(np.arange(len(left)), [len(row) for row in left])
    of, values = ([part for row in left for part in parts(row)] for parts in (dict.keys, dict.values))
    return sp.csr_array((np.array(values, dtype=float), (number, np.array(of, dtype=int))), shape=(len(left), n)), b


def _eliminated(rows: list[dict[int, float]], columns: Ints) -> list[dict[int, float]]:
    """Inequalities, as numbers by their columns, without columns j for which that adds none: each row in which j is > 0
    is added to each in which it is < 0."""
    known, users = dict(enumerate(rows)), defaultdict[int, list[int]](list)
    for number, row in known.items():
        for j in row:
            users[j].append(number)
    for j in columns.tolist():
        mine = [number for number in users[j] if number in known]
        above, below = ([i for i in mine if sign * known[i][j] > 0] for sign in (1, -1))
        if len(above) * len(below) > len(above) + len(below):
            continue
        for i, k in product(above, below):
            high, low = known[i], known[k]
            larger = max(high[j], -low[j])  # equal coefficients get weights of 1, without rounding
            of_high, of_low = -low[j] / larger, high[j] / larger
            total = {c: of_high * value for c, value in high.items()}
            for c, value in low.items():
                total[c] = total.get(c, 0.0) + of_low * value
            number = len(rows)
            rows.append({c: value for c, value in total.items() if c != j and value != 0})
            known[number] = rows[number]
            for c in rows[number]:
                users[c].append(number)
        for i in (*above, *below):
            del known[i]
    return list(known.values())


def _through_factors(reduction: Reduction, form: ConicForm, A: sp.csc_array) -> Iterable[tuple[int, int, Array]]:
    """(number of the θ, output, A_uB) for each θ and output in A."""
    for number, (link, columns) in enumerate(zip(reduction.form.predictions, form.u, strict=True)):
        factor = reduction.factors[link.theta]
        if link.u is None or not factor.rank:
            continue
        for k, some in enumerate(columns.reshape(-1, link.theta.outputs or 1, order="F").T):
            part = sp.csc_array(A[:, some])
            used = np.flatnonzero(np.diff(part.indptr))
            if len(used):
                yield number, k, np.asarray(part[:, used] @ np.asarray(factor.B[link.take[used]], dtype=float))


def _shortened(reduction: Reduction, form: ConicForm, point: Iterate) -> Iterate | None:
    """The point with v scaled where ‖θ‖ exceeds the bound of a row a·t ≤ b, for norms without f₀; else None."""
    v, done = list(point.v), False
    places = {link.theta: number for number, link in enumerate(reduction.form.predictions)}
    for norm, column, t in zip(reduction.form.norms, form.t, point.t, strict=True):
        part = sp.csc_array(form.A[:, [column]])
        rows, values = part.indices, part.data
        alone = np.diff(form.by_rows.indptr)[rows] == 1
        bounds = form.b[rows[alone & (values > 0)]] / values[alone & (values > 0)]
        number = places[norm.view.theta]
        plain = norm.view.shift is None and (norm.view.right is None or norm.kind in (EUCLIDEAN, "fro"))
        if len(bounds) and plain and v[number].size and t > bounds.min() >= 0:
            # 8 ulps below the bound, so that it holds for the recomputed norm.
            v[number] = v[number] * (bounds.min() / t) * (1 - 8 * np.finfo(float).eps)
            done = True
    return replace(point, v=tuple(v), value=nan) if done else None
