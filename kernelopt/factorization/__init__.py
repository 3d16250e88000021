"""Q = BBᵀ behind one small protocol: rows in, `Factor` out.

To add a factorization: a function (rows, settings, memory_limit) → Factor in a file of its own, and a row in
`METHODS`.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from kernelopt.errors import KernelError, NotPSDError
from kernelopt.factorization import memory
from kernelopt.factorization.blocked import Layout, blocked_cholesky
from kernelopt.factorization.dense import CholeskyFactor, Settings, eigenfactor, needed, pivoted_cholesky, projected
from kernelopt.factorization.factor import FLOOR, Factor
from kernelopt.factorization.growing import Guide, carried, grow
from kernelopt.factorization.streamed import StreamedFactor, streamed_cholesky
from kernelopt.language.rows import Rows

METHODS = {"cholesky": pivoted_cholesky, "eigen": eigenfactor, "streamed": streamed_cholesky}
AUTO = "auto"
FEW = 2000  # rows up to which one N×N array is no slower than columns (measured: even at 1500 to 2000)


def factorize(  # noqa: PLR0917
    method: str, rows: Rows, settings: Settings, memory_limit: float | None = None, start: Factor | None = None,
    layout: Layout | None = None,
) -> Factor:  # fmt: skip
    """Q = scale·BBᵀ of a θ's rows by a method of the table, or the one that suits them; no rows have rank zero.

    A streamed factor goes on from `start`, one of the same rows; with a layout, B is in blocks. An indefinite Q is
    refused, or projected where the settings ask for it.
    """
    if len(rows) == 0:
        return CholeskyFactor(np.zeros((0, 0)), 1.0, np.zeros(0, dtype=np.intp), 0.0, 0.0, 0.0)
    if layout is not None:
        if not rows.are_points:
            raise KernelError(
                "Expected predictions at points, where B is in blocks (backend, dtype); got rows of other kinds, "
                "derivatives or inner products with functions. Leave out backend and dtype."
            )
        return blocked_cholesky(rows, settings, memory_limit, layout, start)
    method, why = suited(rows, memory_limit) if method == AUTO else (method, "")
    try:
        build = partial(streamed_cholesky, start=start) if method == "streamed" else METHODS[method]
        return replace(build(rows, settings, memory_limit), why=why)
    except NotPSDError:
        if settings.indefinite == "raise":
            raise
        return projected(rows, settings, memory_limit)


def suited(rows: Rows, memory_limit: float | None) -> tuple[str, str]:
    """The method for rows where none is asked for, and why.

    Whether Q is positive semidefinite only the N×N array can tell for certain.
    """
    n = len(rows)
    if n <= FEW:
        return "cholesky", f"N ≤ {FEW}"
    if rows.kernel.is_psd is True:
        return "streamed", f"N > {FEW}"
    if needed(n) <= memory.allowed_bytes(memory_limit):
        return "cholesky", "κ may be indefinite"
    return "streamed", "no memory for N × N"


__all__ = [
    "AUTO",
    "FEW",
    "FLOOR",
    "METHODS",
    "CholeskyFactor",
    "Factor",
    "Guide",
    "Layout",
    "Settings",
    "StreamedFactor",
    "carried",
    "factorize",
    "grow",
]
