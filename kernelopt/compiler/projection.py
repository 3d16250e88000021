"""Move a point into the linear constraints that it meets only nearly.

For rows E of  A_u u + A_y y + s = b, u = Bv, with slacks s that should be r less, the shortest step is

    Δv = (A_uB)ᵀd,  Δy = WA_yᵀd,  (A_uB(A_uB)ᵀ + A_yWA_yᵀ)d = r,

W the squares of the sizes of y. Inequalities are left with a few ulps of room; norms that are too long are scaled.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from kernelopt.compiler.conic_form import ConicForm
from kernelopt.compiler.representer import Reduction
from kernelopt.factorization import tall
from kernelopt.kernels.domains import Array, Ints
from kernelopt.nodes import EUCLIDEAN

MOST = 1500  # rows that are moved into at once
ROOM = 1e-13  # of an inequality, relative to the terms of its row
RANK = 1e-13  # of a row's part outside of the others', which is none


def moved(reduction: Reduction, form: ConicForm) -> bool:
    """Move v and y on the reduction's variables; False where nothing was to be done, or it can't be."""
    scaled = _shortened(reduction, form)
    x = point_of(reduction, form)
    rows = _linear_rows(form)
    if x is None or not len(rows):
        return scaled
    A = sp.csr_array(form.A)[rows]
    s, equal = form.b[rows] - A @ x, rows < form.cones.zero
    room = np.where(equal, 0.0, ROOM * _terms(reduction, form, A, form.b[rows], x))
    wrong = np.where(equal, s != 0, s < 0)
    if not wrong.any():
        return scaled
    chosen = np.flatnonzero(equal | (s < room))
    if len(chosen) > MOST:
        return scaled
    r = s[chosen] - 2 * room[chosen]
    A = sp.csc_array(A[chosen])
    parts = list(_through_factors(reduction, form, A))
    y = form.y
    size = np.abs(x[y])
    weight = np.maximum(size, float(size.max(initial=0.0)) or form.data_unit or 1.0) ** 2
    Ay = A[:, y].toarray()
    M = sum((G @ G.T for _, _, G in parts), (Ay * weight) @ Ay.T)
    d = np.sqrt(np.diag(M))
    if not np.all(np.isfinite(d)) or not np.all(d > 0):
        return scaled
    found = scipy.linalg.lstsq(M / d[:, None] / d, r / d, cond=RANK, check_finite=False)[0] / d
    if not np.isfinite(found).all():
        return scaled
    for v, k, G in parts:
        value = np.array(v.value)
        step = G.T @ found
        if value.ndim == 1:
            value += step
        else:
            value[:, k] += step
        v.save_value(value)
    x[y] += weight * (Ay.T @ found)
    for variable, columns in zip(reduction.form.y, form.variables, strict=True):
        if len(columns) == variable.size:
            variable.save_value(x[columns].reshape(variable.shape, order="F"))
    return True


def _terms(reduction: Reduction, form: ConicForm, A: sp.csr_array, b: Array, x: Array) -> Array:
    """|b| + |A||x| of rows, and for predictions what they are sums of, |B||v|."""
    sizes = np.abs(x)
    for link, columns in zip(reduction.form.predictions, form.u, strict=True):
        v, factor = reduction.v[link.theta], reduction.factors[link.theta]
        if link.u is not None and v is not None:
            value = np.abs(np.asarray(v.value)).reshape(factor.rank, -1)
            lengths = np.sqrt(tall.row_squares(factor.B))[link.take][:, None] * np.linalg.norm(value, axis=0)
            sizes[columns] = np.maximum(sizes[columns], lengths.ravel(order="F"))
    return np.asarray(np.abs(b) + abs(A) @ sizes)


def is_met(reduction: Reduction, form: ConicForm) -> bool:
    """Whether linear rows hold to rounding: to `ROOM` of what they are sums of."""
    x, rows = point_of(reduction, form), _linear_rows(form)
    if x is None:
        return False
    A, b = sp.csr_array(form.A)[rows], form.b[rows]
    s, most = b - A @ x, ROOM * _terms(reduction, form, A, b, x)
    return bool(np.all(np.where(rows < form.cones.zero, np.abs(s), -s) <= most))


def point_of(reduction: Reduction, form: ConicForm) -> Array | None:
    """x on the columns of u, t and the user's variables, 0 elsewhere; None where a variable has a structure."""
    x = np.zeros(len(form.c))
    for link, columns in zip(reduction.form.predictions, form.u, strict=True):
        x[columns] = link.u_values
    for norm, column in zip(reduction.form.norms, form.t, strict=True):
        x[column] = float(norm.t.value)
    for variable, columns in zip(reduction.form.y, form.variables, strict=True):
        if len(columns) not in (0, variable.size):
            return None
        if len(columns):
            x[columns] = np.ravel(variable.value, order="F")
    return x


def _linear_rows(form: ConicForm) -> Ints:
    """Equalities and inequalities of predictions and the user's variables alone."""
    ours = np.zeros(len(form.c), dtype=bool)
    ours[np.concatenate([form.y, *form.u]).astype(int)] = True
    A = sp.csr_array(form.A)
    others = abs(A) @ (~ours).astype(float)
    linear = np.arange(len(form.b)) < form.cones.zero + form.cones.nonneg
    return np.flatnonzero(linear & (others == 0) & (np.diff(A.indptr) > 0))


def _through_factors(reduction: Reduction, form: ConicForm, A: sp.csc_array) -> Iterable[tuple[Any, int, Array]]:
    """A_uB for each θ and output, with the variable v that it belongs to."""
    for link, columns in zip(reduction.form.predictions, form.u, strict=True):
        v, factor = reduction.v[link.theta], reduction.factors[link.theta]
        if link.u is None or v is None:
            continue
        for k, some in enumerate(columns.reshape(-1, link.theta.outputs or 1, order="F").T):
            part = sp.csc_array(A[:, some])
            used = np.flatnonzero(np.diff(part.indptr))
            if len(used):
                yield v, k, np.asarray(part[:, used] @ np.asarray(factor.B[link.take[used]], dtype=float))


def _shortened(reduction: Reduction, form: ConicForm) -> bool:
    """Scale v where ‖θ‖ is longer than a row a·t ≤ b allows, for norms of θ itself."""
    done = False
    for norm, column in zip(reduction.form.norms, form.t, strict=True):
        part = sp.csc_array(form.A[:, [column]])
        rows, values = part.indices, part.data
        alone = np.diff(sp.csr_array(form.A).indptr)[rows] == 1
        bounds = form.b[rows[alone & (values > 0)]] / values[alone & (values > 0)]
        t, v = float(norm.t.value), reduction.v[norm.view.theta]
        plain = norm.view.shift is None and (norm.view.right is None or norm.kind in (EUCLIDEAN, "fro"))
        if len(bounds) and plain and v is not None and t > bounds.min() >= 0:
            v.save_value(np.asarray(v.value) * (bounds.min() / t) * (1 - 8 * np.finfo(float).eps))
            done = True
    return done
