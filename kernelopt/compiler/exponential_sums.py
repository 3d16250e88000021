"""Log-sum-exp of many numbers as a sum of functions of one number each, with one more free variable.

    w·log Σₖ e^xₖ = min over t of w·(t + Σₖ e^(xₖ − t) − 1)

Proof: the function of t is convex, its derivative w·(1 − e⁻ᵗ Σₖ e^xₖ) vanishes at t = log Σₖ e^xₖ only, and there its
value is w·t. cvxpy states the left side as min w·t with e^(xₖ − t) ≤ zₖ and Σ zₖ ≤ 1; w is the multiplier of that row,
and the right side is this problem with the row in the objective. Both have the same minimizers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kernelopt.compiler.conic_form import ConicForm
from kernelopt.support.types import Ints


def separated(form: ConicForm, most: int) -> ConicForm:
    """The same problem without rows Σ zₖ ≤ 1 of a log-sum-exp of more than `most` numbers in the objective.

    That of one number becomes this number.
    """
    c, offset = form.c.copy(), form.offset
    rows: list[int] = []
    columns: list[int] = []
    for row in _candidates(form, most).tolist():
        z = form.by_rows.indices[form.by_rows.indptr[row] : form.by_rows.indptr[row + 1]]
        found = _total(form, z)
        if found is None:
            continue
        t, first = found
        rows.append(row)
        if len(z) > 1:
            c[z] = form.c[t]
            offset -= float(form.c[t])
        else:  # w·log e^x = w·x with t − x = b of the cone's first row
            part = form.by_rows[[first]]
            c[part.indices] -= form.c[t] * part.data
            offset += float(form.c[t] * form.b[first])
            rows += [first, first + 1, first + 2]
            columns += [t, int(z[0])]
    return replace(form, c=c, offset=offset).without(np.array(rows), np.array(columns, dtype=int)) if rows else form


def _candidates(form: ConicForm, most: int) -> Ints:
    """Inequalities Σ zₖ ≤ 1 of one number, or of more than `most`."""
    A, zero = form.by_rows, form.cones.zero
    if not form.cones.exp:
        return np.arange(0)
    counts = np.diff(A.indptr)[zero : zero + form.cones.nonneg]
    rows = zero + np.flatnonzero((counts == 1) | (counts > most))
    rows = rows[form.b[rows] == 1.0]
    return np.array([i for i in rows if np.all(A.data[A.indptr[i] : A.indptr[i + 1]] == 1.0)], dtype=int)


def _total(form: ConicForm, z: Ints) -> tuple[int, int] | None:
    """The column t of exponential cones (xₖ − t, 1, zₖ), and the first cone's first row.

    None where t has no cost, or where t or z have another use.
    """
    A, exponents = form.A, form.cones.exponentials
    if form.stated[z].any() or form.c[z].any() or form.P[z].any() or np.any(np.diff(A.indptr)[z] != 2):
        return None
    last = A.indices[A.indptr[z] + 1]  # exponential cones come after linear rows
    first = last - 2
    is_third = np.isin(first, exponents) & (A.data[A.indptr[z] + 1] == -1.0)
    plain = is_third & (form.b[last] == 0) & (form.b[last - 1] == 1.0)
    if not plain.all() or np.diff(form.by_rows.indptr)[[*last, *(last - 1)]].sum() != len(z):
        return None
    part = form.by_rows[first[:1]]
    for t in part.indices[part.data == 1.0].tolist():
        at = slice(A.indptr[t], A.indptr[t + 1])
        alone = np.array_equal(np.sort(A.indices[at]), np.sort(first)) and np.all(A.data[at] == 1.0)
        if alone and not form.stated[t] and form.c[t] > 0 and form.P[t] == 0:
            return int(t), int(first[0])
    return None
