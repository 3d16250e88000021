"""Drop terms that hold everywhere: those of losses whose weight is 0.

An auxiliary variable t without a cost that stands in inequalities t ≥ (stated variables) alone can be as large as they
ask for. For the others they say nothing: t and its rows are left out, with multipliers 0.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.conic_form import ConicForm


def without_vacuous(form: ConicForm) -> ConicForm:
    """The cone data without such variables and rows."""
    A, first, last = form.A, form.cones.zero, form.cones.zero + form.cones.nonneg
    linear = (np.arange(A.shape[0]) >= first) & (np.arange(A.shape[0]) < last)
    linear &= np.bincount(A.indices, ~form.stated[form.owners], minlength=A.shape[0]) == 1  # no other auxiliary
    fine = (A.data < 0) & linear[A.indices]
    odd = np.bincount(form.owners, ~fine, minlength=len(form.c))
    free = ~form.stated & (form.c == 0) & (form.P == 0) & (odd == 0) & (np.diff(A.indptr) > 0)
    if not free.any():
        return form
    columns = np.flatnonzero(free)
    return form.without(np.unique(sp.csc_array(A[:, columns]).indices), columns)
