"""Parts of large arrays."""

from __future__ import annotations

import numpy as np

from kernelopt.support.types import Array, Ints

AT_ONCE = 64  # rows that are copied in turn, so that what is read stays in the cache: half the time of Q[np.ix_(i, j)]


def submatrix(Q: Array, rows: Ints, columns: Ints) -> Array:
    """Q[rows][:, columns], a new array in C order for a Q in C order."""
    if not Q.flags.c_contiguous:
        return submatrix(Q.T, columns, rows).T if Q.flags.f_contiguous else Q[np.ix_(rows, columns)]
    found = np.empty((len(rows), len(columns)), dtype=Q.dtype)
    for i in range(0, len(rows), AT_ONCE):
        np.take(Q[rows[i : i + AT_ONCE]], columns, axis=1, out=found[i : i + AT_ONCE], mode="clip")
    return found
