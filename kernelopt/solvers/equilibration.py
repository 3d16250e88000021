"""Units of columns, rows and the objective in which the entries of cone data have sizes near 1.

A. R. Curtis, J. K. Reid, On the automatic scaling of matrices for Gaussian elimination, IMA Journal of Applied
Mathematics 10, 1972.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import lsmr

from kernelopt.support.types import Array, Ints

ROUNDS, STEPS = 4, 60  # of weights, and of least squares with each
DAMPING = 1e-3  # what no entry moves stays at 1
SMALLER = 0.1  # weight of entries below 1, beside those above: kernels have many small entries
MANY, FEW = 100_000, 20  # entries of A from which a part of them stands for all, but of rows and columns with few
NEGLIGIBLE = 2.0**-30  # relative to the largest of their row and of their column: entries of A that count as 0
BOUNDS = ("lower_bounds", "upper_bounds")


class ConeRows(NamedTuple):
    """Rows of the data, by the names of their matrix and right-hand side: the unit of row i is dⱼ^p with j = `units[i]`
    and p = `powers[i]`. All rows of a cone have one unit.

    A cone ‖(1 − t, 2x)‖ ≤ 1 + t is ‖x‖² ≤ t and has units d of x and d² of t: in `heads`, the rows 1 + t and 1 − t, the
    constants stay.
    """

    A: str
    b: str
    units: Ints
    powers: Array
    heads: list[int]


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # a solver refuses data that are not finite
def equilibrate(data: dict[str, Any], whole: Sequence[int]) -> tuple[Array, float]:
    """Rescale a solver's data, in place, by units of columns, of rows and of the objective; return those of columns
    and of the objective.

    The data become E[A b]diag(D, 1), DPD/κ and Dc/κ. The units D of x, E of rows and κ minimize Σ|log entry|, bounds of
    x included, nearly, and are powers of 2. `whole` are columns of integers: they keep unit 1, as the constants do.
    """
    n, parts = len(data["c"]), list(_rows(data))
    units = np.exp2(np.round(_logarithms(data, parts, whole)))
    D, kappa = units[:n], float(1 / units[-1])
    for part in parts:
        E = units[part.units] ** part.powers
        data[part.A] = sp.csc_array(sp.diags_array(E) @ data[part.A] @ sp.diags_array(D))
        E[part.heads] = 1.0
        data[part.b] = E * data[part.b]
    data["c"] = D * data["c"] / kappa
    if data.get("P") is not None:
        data["P"] = sp.csc_array(sp.diags_array(D) @ data["P"] @ sp.diags_array(D / kappa))
    for name in BOUNDS:
        if data.get(name) is not None:
            data[name] = data[name] / D
    return D, kappa


def _rows(data: dict[str, Any]) -> Iterator[ConeRows]:
    """The rows of A, and of G where the data have them; their units are numbered behind those of the columns."""
    dims, with_cones, start = data["dims"], "G" if sp.issparse(data.get("G")) else "A", len(data["c"])
    for A, b in (("A", "b"), ("G", "h")):
        if not sp.issparse(data.get(A)):
            continue
        sizes = [1] * (dims.zero * (A == "A") + dims.nonneg * (with_cones == A))
        linear = len(sizes)
        if with_cones == A:
            sizes += [*dims.soc, *(k * (k + 1) // 2 for k in dims.psd), *[3] * (dims.exp + len(dims.p3d))]
            sizes += [len(powers) + 1 for powers in dims.pnd]
        first = np.cumsum([0, *sizes])
        units, powers, heads = start + np.repeat(np.arange(len(sizes)), sizes), np.ones(first[-1]), list[int]()
        for cone in range(linear, linear + len(dims.soc) * (with_cones == A)):
            if (t := _bound_of_squares(data[A], data[b], first[cone])) is not None:
                rows = slice(first[cone], first[cone + 1])
                units[rows], powers[rows] = t, -0.5
                heads += [first[cone], first[cone] + 1]
        powers[heads] = -1.0
        start += len(sizes)
        yield ConeRows(A, b, units, powers, heads)


def _bound_of_squares(A: Any, b: Array, first: int) -> int | None:
    """The column of t where two rows of a cone are 1 + t and 1 − t."""
    if first + 1 >= len(b) or b[first] != 1 or b[first + 1] != 1:
        return None
    head, other = sp.csr_array(A[[first]]), sp.csr_array(A[[first + 1]])
    alone = head.nnz == other.nnz == 1 and head.indices[0] == other.indices[0]
    return int(head.indices[0]) if alone and head.data[0] == -other.data[0] and abs(head.data[0]) == 1 else None


def _logarithms(data: dict[str, Any], parts: Sequence[ConeRows], whole: Sequence[int]) -> Array:
    """log₂ of the units of columns, of rows and of 1/κ: the x with log₂|entry| + Mx ≈ 0 for all entries."""
    n = len(data["c"])
    last = max([n, *(int(part.units.max(initial=0)) + 1 for part in parts)])
    columns = sp.eye_array(n, last + 1, format="csr")
    fixed = np.isin(np.arange(n), whole)
    columns = sp.csr_array(sp.diags_array(np.where(fixed, 0.0, 1.0)) @ columns)
    cost = sp.csr_array(([1.0], ([0], [last])), shape=(1, last + 1))
    entries = [(data["c"], columns + cost[np.zeros(n, dtype=int)])]
    if data.get("P") is not None:
        P = sp.coo_array(data["P"])
        entries.append((P.data, columns[P.row] + columns[P.col] + cost[np.zeros(P.nnz, dtype=int)]))
    for part in parts:
        A, m = _without_negligible(data[part.A]), len(part.units)
        rows = sp.csr_array((part.powers, (np.arange(m), part.units)), shape=(m, last + 1))
        others = np.setdiff1d(np.arange(m), part.heads)
        entries += [(A.data, rows[A.row] + columns[A.col]), (data[part.b][others], rows[others])]
    entries += [(1 / data[name], columns) for name in BOUNDS if data.get(name) is not None]
    values, M = np.concatenate([one for one, _ in entries]), sp.vstack([one for _, one in entries], format="csr")
    kept = np.flatnonzero(np.isfinite(values) & (values != 0))
    sizes, M = np.log2(np.abs(values[kept])), M[kept]
    weights, x = np.ones(len(sizes)), np.zeros(last + 1)
    for _ in range(ROUNDS if len(sizes) else 0):
        x = lsmr(sp.diags_array(weights) @ M, -weights * sizes, damp=DAMPING, maxiter=STEPS)[0]
        left = M @ x + sizes
        weights = np.sqrt(np.where(left > 0, 1.0, SMALLER) / np.maximum(1.0, np.abs(left)))
    return x


def _without_negligible(A: Any) -> sp.coo_array:
    """The entries of A that are not small beside both the largest entry of their row and that of their column; of MANY
    ones some, besides those of rows and columns with few entries."""
    A = sp.coo_array(A)
    size, of_rows, of_columns = np.abs(A.data), np.zeros(A.shape[0]), np.zeros(A.shape[1])
    np.maximum.at(of_rows, A.row, size)
    np.maximum.at(of_columns, A.col, size)
    kept = size >= NEGLIGIBLE * np.minimum(of_rows[A.row], of_columns[A.col])
    if len(size) > MANY:
        few = np.minimum(np.bincount(A.row, kept)[A.row], np.bincount(A.col, kept)[A.col]) <= FEW
        kept &= few | (np.random.default_rng(0).random(len(size)) < MANY / len(size))
    return sp.coo_array((A.data[kept], (A.row[kept], A.col[kept])), shape=A.shape)
