"""Q = BBᵀ behind one small protocol: rows in, `Factor` out.

To add a factorization, write a function (rows, settings, memory_limit) → Factor in its own file and enter it in
`METHODS`.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from kernelopt.errors import KernelError, NotPSDError
from kernelopt.factorization import memory
from kernelopt.factorization.blocked import Layout, blocked_cholesky
from kernelopt.factorization.dense import (
    CholeskyFactor,
    RoundedError,
    Settings,
    eigenfactor,
    needed,
    pivoted_cholesky,
    projected,
)
from kernelopt.factorization.factor import FLOOR, Factor
from kernelopt.factorization.growing import Guide, carried, grow
from kernelopt.factorization.reuse import FactorCache
from kernelopt.factorization.streamed import StreamedFactor, streamed_cholesky
from kernelopt.language.rows import Rows

METHODS = {"cholesky": pivoted_cholesky, "eigen": eigenfactor, "streamed": streamed_cholesky}
AUTO = "auto"
# Rows up to which Q is formed as one N×N array; above, B is built from columns of Q. Measured: both take the same time
# at 1500 to 2000 rows.
FEW = 2000


def factorize(  # noqa: PLR0917
    method: str, rows: Rows, settings: Settings, memory_limit: float | None = None, start: Factor | None = None,
    layout: Layout | None = None,
) -> Factor:  # fmt: skip
    """Q = scale·BBᵀ of the rows of one θ, by a method of `METHODS` or, for "auto", the one that `suited` selects.

    A streamed factor continues from `start`, a factor of the same rows. With a layout, B is held in blocks. An
    indefinite Q raises NotPSDError; without a layout it is projected where the settings ask for it, or where it is
    indefinite by no more than the rounding of entries in float32. Zero rows give a
    factor of rank zero.
    """
    if len(rows) == 0:
        return CholeskyFactor(np.zeros((0, 0)), 1.0, np.zeros(0, dtype=np.intp), 0.0, 0.0, 0.0)
    if layout is not None:
        if rows.mixed:
            raise KernelError(
                "Expected rows of θ of one kind, where B is in blocks (backend, dtype): predictions, or their "
                "derivatives, or combinations of them; got several kinds. Leave out backend and dtype, or write "
                "predictions as combinations, scipy.sparse.eye_array(N) @ A."
            )
        return blocked_cholesky(rows, settings, memory_limit, layout, start)
    method, why = suited(rows, memory_limit) if method == AUTO else (method, "")
    try:
        build = partial(streamed_cholesky, start=start) if method == "streamed" else METHODS[method]
        return replace(build(rows, settings, memory_limit), why=why)
    except RoundedError:
        # Without eigenvalues that are rounding, Q̃ is as true to what was rounded as the given entries are.
        label = "eigenvalues within the rounding of entries set to 0" if settings.indefinite == "raise" else None
        chosen = settings if label is None else replace(settings, indefinite="clip")
        return projected(rows, chosen, memory_limit, label)
    except NotPSDError:
        if settings.indefinite == "raise":
            raise
        return projected(rows, settings, memory_limit)


def suited(rows: Rows, memory_limit: float | None) -> tuple[str, str]:
    """The default method for rows, and the reason.

    Only the N×N array shows for certain whether Q is positive semidefinite. A kernel that may be indefinite therefore
    gets the dense method as long as memory permits.
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
    "FactorCache",
    "Guide",
    "Layout",
    "Settings",
    "StreamedFactor",
    "carried",
    "factorize",
    "grow",
]
