"""Q = BBᵀ behind one small protocol: rows in, `Factor` out.

To add a factorization: a function (rows, settings, memory_limit) → Factor in a file of its own, and a row in
`METHODS`.
"""

import numpy as np

from kernelopt.errors import NotPSDError
from kernelopt.factorization.base import FLOOR, Factor
from kernelopt.factorization.dense import CholeskyFactor, Settings, eigenfactor, pivoted_cholesky, projected
from kernelopt.rows import Rows

METHODS = {"cholesky": pivoted_cholesky, "eigen": eigenfactor}


def factorize(method: str, rows: Rows, settings: Settings, memory_limit: float | None = None) -> Factor:
    """Q = scale·BBᵀ of a θ's rows by a method of the table; no rows have rank zero.

    An indefinite Q is refused, or projected where the settings ask for it.
    """
    if len(rows) == 0:
        return CholeskyFactor(np.zeros((0, 0)), 1.0, np.zeros(0, dtype=np.intp), 0.0, 0.0, 0.0)
    try:
        return METHODS[method](rows, settings, memory_limit)
    except NotPSDError:
        if settings.indefinite == "raise":
            raise
        return projected(rows, settings, memory_limit)


__all__ = ["FLOOR", "METHODS", "CholeskyFactor", "Factor", "Settings", "factorize"]
