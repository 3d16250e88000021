"""Scaling of a claim, so that multipliers of norms, rows and predictions have comparable sizes.

Without it, a kernel that is 1e140 times as large makes ‖Aᵀν‖ 1e70 times ν. Each θ is measured in units in which Q has a
diagonal of about 1, and each linear row is divided by its largest coefficient. All factors are powers of two, so that
scaling rounds no number.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from kernelopt.certificate.claim import Array, Link, Program
from kernelopt.support.arithmetic import median
from kernelopt.support.types import Ints

SMALLEST = 2.0**-1022  # absolute; the smallest normal double: scaling one number loses less by underflow


@np.errstate(over="ignore", invalid="ignore")  # an overflow is seen when the number is scaled back
def balanced(program: Program, links: list[Link], z: Array) -> tuple[Program, list[Link], Array]:
    """The claim for θ' = 2ᵉθ for each θ that a norm binds, so that A' = 2⁻ᵉA and t' = 2ᵉt; and with scaled rows and z.

    The claim is returned unchanged where scaling would round any number.
    """
    of_t, new, exact = np.zeros(len(program.c), dtype=int), [], True
    for link in links:
        e = _exponent(median(link.sizes)) if link.norms and len(link.sizes) else 0
        of_t[[norm.column for norm in link.norms]] = -e
        one, fits = _measured(link, e)
        new.append(one)
        exact = exact and fits
    A, of_row = _scaled(program, of_t)
    if not of_t.any() and not of_row.any():
        return program, new, z
    b, moved = np.ldexp(program.b, -of_row), np.ldexp(z, of_row)
    P, c = np.ldexp(program.P, 2 * of_t), np.ldexp(program.c, of_t)
    found = program._replace(P=P, c=c, A=A, b=b)
    pairs = ((P, program.P, 2 * of_t), (c, program.c, of_t), (b, program.b, -of_row), (moved, z, of_row))
    exact = exact and all(_exactly(*pair).all() for pair in pairs)
    exact = exact and bool(_exactly(A.data, program.A.data, _of_entries(program.A, of_t, of_row)).all())
    return (found, new, moved) if exact else (program, links, z)


def _exponent(size: float) -> int:
    return int(np.frexp(size)[1]) - 1 if np.isfinite(size) and size > 0 else 0


def _measured(link: Link, e: int) -> tuple[Link, bool]:
    """A link for A' = 2⁻ᵉA and f' = 2ᵉf = A'ᵀ(4ᵉ…), and whether it is exact; losses by underflow join the error."""
    if not e:
        return link, True
    functions = max(norm.n.stop for norm in link.norms)
    of_V, of_rows = np.where(np.arange(link.V.shape[1]) < functions, 0, 2 * e), np.full(len(link.sizes), -e)
    both = of_V[:, None] + of_V - 2 * e
    gram, error = np.ldexp(link.gram, both), np.ldexp(link.error, both)
    under = ~_exactly(gram, link.gram, both) | ~_exactly(error, link.error, both)
    V, sizes = np.ldexp(link.V, of_V), np.ldexp(link.sizes, of_rows)
    exact = bool(_exactly(V, link.V, of_V).all() and _exactly(sizes, link.sizes, of_rows).all())
    return link._replace(V=V, gram=gram, error=error + SMALLEST * under, sizes=sizes), exact


def _exactly(new: Array, old: Array, by: Ints) -> Array:
    """Whether new = 2^by·old, entry by entry."""
    return np.asarray(np.ldexp(new, -by) == old)


def _scaled(program: Program, of_t: Ints) -> tuple[sp.csc_array, Ints]:
    """A in the new units, and the exponent of the power of two that divides each row."""
    A, largest = program.A, np.zeros(len(program.b))
    in_units = A.data
    if of_t.any():
        in_units = np.ldexp(A.data, _of_entries(A, of_t, np.zeros(len(program.b), dtype=int)))
    np.maximum.at(largest, A.indices, np.abs(in_units))
    linear = np.zeros(len(program.b), dtype=bool)
    for kind, rows, _ in program.cones:
        linear[rows] = kind in ("zero", "nonneg")
    of_row = np.where(linear & (largest > 0) & np.isfinite(largest), np.frexp(largest)[1] - 1, 0)
    if not of_t.any() and not of_row.any():
        return A, of_row
    data = np.ldexp(A.data, _of_entries(A, of_t, of_row))
    return sp.csc_array((data, A.indices, A.indptr), shape=A.shape), of_row


def _of_entries(A: sp.csc_array, of_t: Ints, of_row: Ints) -> Array:
    """The exponent of the factor of each entry."""
    return np.repeat(of_t, np.diff(A.indptr)) - of_row[A.indices]
