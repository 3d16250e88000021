"""Q = BBᵀ behind one small protocol: rows in, `Factor` out.

To add a factorization: a function (rows, accuracy, memory_limit) → Factor in a file of its own, and a row in
`METHODS`.
"""

import numpy as np

from kernelopt.factorization.base import FLOOR, Factor
from kernelopt.factorization.dense import Accuracy, CholeskyFactor, eigenfactor, pivoted_cholesky
from kernelopt.rows import Rows

METHODS = {"cholesky": pivoted_cholesky, "eigen": eigenfactor}


def factorize(method: str, rows: Rows, accuracy: Accuracy, memory_limit: float | None = None) -> Factor:
    """Q = scale·BBᵀ of a θ's rows by a method of the table; no rows have rank zero."""
    if len(rows) == 0:
        return CholeskyFactor(np.zeros((0, 0)), 1.0, np.zeros(0, dtype=np.intp), 0.0, 0.0, 0.0)
    return METHODS[method](rows, accuracy, memory_limit)


__all__ = ["FLOOR", "METHODS", "Accuracy", "CholeskyFactor", "Factor", "factorize"]
