"""The rows of pieces that are linear in predictions and variables, and what is linear where all losses are 0.

Constraints of one function of lines, as |u| ≤ c and max(u) ≤ c, are a linear row for each line.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import inf
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.columns import columns_of_u, columns_of_y
from kernelopt.compiler.outer import STRUCTURED
from kernelopt.pieces.elementary import AbsolutePower, PositivePower
from kernelopt.pieces.extremes import Largest
from kernelopt.pieces.form import Group, Pieces
from kernelopt.pieces.function import Family
from kernelopt.pieces.norms import Radial, RowNorm
from kernelopt.pieces.quadratics import Piecewise, many
from kernelopt.pieces.spectral import Schatten
from kernelopt.support import sparse
from kernelopt.support.types import Array, Ints

# Roundings of costs, relative to their terms, up to which they are the sum of parts.
CANCELLED = 1e-13


class LinearRows(NamedTuple):
    """Ax ≤ b, with equality in some rows."""

    A: sp.csr_array
    b: Array
    equal: NDArray[np.bool_]

    def and_also(self, other: LinearRows) -> LinearRows:
        """Both, one below the other."""
        A = sparse.stacked([self.A, other.A], self.A.shape[1])
        return LinearRows(A, np.concatenate([self.b, other.b]), np.concatenate([self.equal, other.equal]))


def linear_rows(pieces: Pieces, form: CanonicalForm) -> LinearRows | None:
    """Those in predictions and the user's variables alone, found once; None where an entry of a variable stands for
    others, as in a symmetric one."""
    if any(variable.attributes.get(name) for variable in form.y for name in STRUCTURED):
        return None
    return pieces.once("linear rows", lambda _: _found(pieces, form))


def limits(pieces: Pieces, column: int) -> Array:
    """L of all rows t ≤ L of a column t alone."""
    S = pieces.by_columns
    rows, values = (part[S.indptr[column] : S.indptr[column + 1]] for part in (S.indices, S.data))
    alone = (
        (np.diff(pieces.S.indptr)[rows] == 1) & pieces.is_below[rows] & ~_with_functions(pieces)[rows] & (values > 0)
    )
    return np.asarray(-pieces.s0[rows[alone]] / values[alone])


def rows_of_zeros(pieces: Pieces, form: CanonicalForm) -> LinearRows | None:
    """Where all functions with a cost are 0, those of norms of θ left out; None where some of them never are, or where
    predictions or variables have costs that are no part of functions.

    max(qs, (q − 1)s) is (q − 1)s + max(s, 0): such lines are given back to their functions.
    """
    t = [int(pieces.columns[norm.t.id][0]) for norm in form.norms]
    rates = _rates(pieces, form)
    if rates is None or pieces.cones:
        return None
    weights = np.append(1.0, np.zeros(len(pieces.below)))
    weights[1 + pieces.bounds[:, 1]] = pieces.c[pieces.bounds[:, 0]]
    on_t = np.zeros(pieces.n, dtype=bool)
    on_t[t] = True
    found = [LinearRows(pieces.S[:0], np.zeros(0), np.zeros(0, dtype=bool))]
    for group in pieces.groups:
        some = np.flatnonzero((group.weights @ weights > 0) & ~_touches(pieces, group.rows, on_t))
        if not len(some):
            continue
        part = group.take(some)
        ends = _zeros(part.family, len(some), rates[part.rows[:, 0]] / (part.weights @ weights))
        if ends is None or np.isnan(ends).any():
            return None
        k = part.rows.shape[1]
        found.append(_between(pieces, part.rows.ravel(), *(np.repeat(end, k) for end in ends)))
    whole = found[0]
    for more in found[1:]:
        whole = whole.and_also(more)
    return whole


def _rates(pieces: Pieces, form: CanonicalForm) -> Array | None:
    """ρ with c·x + c₀ = Σ ρᵢsᵢ over rows of piecewise functions, in predictions and variables; None without one."""
    found, S = np.zeros(len(pieces.s0)), pieces.by_columns
    ours = np.concatenate([columns_of_y(pieces, form), columns_of_u(pieces, form)])
    if not pieces.c[ours].any():
        return found
    able = np.zeros(len(pieces.s0), dtype=bool)
    for group in pieces.groups:
        if isinstance(group.family, Piecewise) and group.is_outer:
            able[group.rows[group.costs > 0]] = True
    for j in columns_of_u(pieces, form):
        rows, values = (part[S.indptr[j] : S.indptr[j + 1]] for part in (S.indices, S.data))
        mine = np.flatnonzero(able[rows])
        if pieces.c[j] and len(mine) != 1:
            return None
        found[rows[mine]] = pieces.c[j] / values[mine]
    terms = np.abs(pieces.c) + pieces.sizes_of_slopes(found)
    left, rest = np.abs(pieces.c - pieces.slopes(found)), pieces.c0 - found @ pieces.s0
    size = abs(pieces.c0) + np.abs(found) @ np.abs(pieces.s0)
    met = np.all(left[ours] <= CANCELLED * terms[ours]) and abs(rest) <= CANCELLED * size
    return found if met else None


def _zeros(family: Family, m: int, rates: Array) -> Array | None:
    """The intervals in which all arguments are where h(s) + rate·s is at most 0, (2, m); None where that is no box."""
    match family:
        case Piecewise():
            h = many(family, m) if len(family) == 1 else family
            return np.stack(h.with_line(rates, np.zeros(m)).level(np.zeros(m)))
        case Radial(shape=shape):
            ends = (many(shape, m) if len(shape) == 1 else shape).level(np.zeros(m))
            return np.zeros((2, m)) if np.all(ends[1] == 0) else None
        case RowNorm() | Schatten():
            return np.zeros((2, m))
        case Largest() | PositivePower():
            return np.stack([np.full(m, -inf), np.zeros(m)])
        case AbsolutePower():
            return np.zeros((2, m))
    return None


def _between(pieces: Pieces, rows: Ints, low: Array, high: Array) -> LinearRows:
    """low ≤ s ≤ high."""
    equal, below, above = low == high, np.isfinite(low) & (low < high), np.isfinite(high) & (low < high)
    S, s0 = pieces.S, pieces.s0
    parts = [S[rows[equal | above]], -S[rows[below]]]
    b = [(high - s0[rows])[equal | above], (s0[rows] - low)[below]]
    flags = [equal[equal | above], np.zeros(int(below.sum()), dtype=bool)]
    return LinearRows(sparse.stacked(parts, pieces.n), np.concatenate(b), np.concatenate(flags))


def _touches(pieces: Pieces, rows: Ints, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether some of the chosen columns stands in one of the rows (m, k) of each function."""
    counts = np.bincount(pieces.owners, chosen[pieces.S.indices] & (pieces.S.data != 0), len(pieces.s0))
    return np.asarray((counts[rows] > 0).any(axis=1))


def _with_functions(pieces: Pieces) -> NDArray[np.bool_]:
    """Which rows have functions."""
    found = np.zeros(len(pieces.s0), dtype=bool)
    for group in pieces.groups:
        found[pieces.below[group.weights.indices[group.weights.indices > 0] - 1]] = True
    return found


def _found(pieces: Pieces, form: CanonicalForm) -> LinearRows:
    ours = np.zeros(pieces.n, dtype=bool)
    ours[np.concatenate([columns_of_y(pieces, form), columns_of_u(pieces, form)])] = True
    others = ~ours
    only = np.bincount(pieces.owners, others[pieces.S.indices] & (pieces.S.data != 0), len(pieces.s0)) == 0
    some, curved = only & (np.diff(pieces.S.indptr) > 0), _with_functions(pieces)
    equal, below = pieces.equal[some[pieces.equal]], pieces.below[(some & ~curved)[pieces.below]]
    parts, b = [pieces.S[equal], pieces.S[below]], [-pieces.s0[equal], -pieces.s0[below]]
    for A, right in _of_lines(pieces, only):
        busy = np.diff(A.indptr) > 0
        parts.append(A[np.flatnonzero(busy)])
        b.append(right[busy])
    A, right = sparse.stacked(parts, pieces.n), np.concatenate(b)
    A.eliminate_zeros()
    return LinearRows(A, right, (np.arange(len(right)) < len(equal)) | opposite(A, right))


def _of_lines(pieces: Pieces, only: NDArray[np.bool_]) -> Iterator[tuple[sp.csr_array, Array]]:
    """r(x) + w·(each line of h) ≤ 0 for rows with one function h, a maximum of lines."""
    count = np.zeros(len(pieces.below))
    for group in pieces.groups:
        np.add.at(count, group.weights.indices[group.weights.indices > 0] - 1, 1)
    for group in pieces.groups:
        W = group.weights
        inner = np.flatnonzero(W.indices > 0)
        function = np.repeat(np.arange(len(group.rows)), np.diff(W.indptr))[inner]
        at, w = W.indices[inner] - 1, W.data[inner]
        keep = (count[at] == 1) & only[pieces.below[at]] & only[group.rows[function]].all(axis=1) & (w > 0)
        if not keep.any() or (lines := _lines(group, function[keep])) is None:
            continue
        rows, w, own = pieces.below[at[keep]], w[keep], group.rows[function[keep]]
        for place, slope, constant in lines:
            used = np.flatnonzero(np.isfinite(constant))
            of, rate = own[used, place], w[used] * slope[used]
            A = sp.csr_array(pieces.S[rows[used]] + sp.diags_array(rate) @ pieces.S[of])
            A.eliminate_zeros()
            yield A, -(pieces.s0[rows[used]] + rate * pieces.s0[of] + w[used] * constant[used])


def _lines(group: Group, which: Ints) -> list[tuple[int, Array, Array]] | None:
    """(the argument, slopes, constants) of the lines whose maximum each function is; ∞ where one has fewer."""
    family, m, k = group.family.take(which), len(which), group.rows.shape[1]
    one, zero = np.ones(m), np.zeros(m)
    match family:
        case Piecewise():
            h = many(family, m) if len(family) == 1 else family
            if h.coefficients[..., 2].any():
                return None
            used = np.hstack([np.ones((m, 1), dtype=bool), np.isfinite(h.knots)])
            c0, c1 = (h.coefficients[..., i] for i in (0, 1))
            return [(0, c1[:, j], np.where(used[:, j], c0[:, j], inf)) for j in range(used.shape[1])]
        case RowNorm(p=p) if p == inf or k == 1:
            return [(j, sign * one, zero) for j in range(k) for sign in (1.0, -1.0)]
        case Largest():
            return [(0, zero, zero), *((j, one, zero) for j in range(k))]
    return None


def opposite(A: sp.csr_array, b: Array) -> NDArray[np.bool_]:
    """Which inequalities form an equality together with another one: u ≤ b and −u ≤ −b."""
    A.sort_indices()
    ends = list(pairwise(A.indptr.tolist()))
    # Rows are compared by their bytes; adding 0.0 makes −0.0 equal to 0.0.
    keys = [
        (A.indices[i:k].tobytes(), (A.data[i:k] + 0.0).tobytes(), c) for (i, k), c in zip(ends, b + 0.0, strict=True)
    ]
    known = set(keys)
    return np.array([
        (at, (0.0 - A.data[i:k]).tobytes(), 0.0 - c) in known
        for (i, k), (at, _, c) in zip(ends, keys, strict=True)
    ], dtype=bool)  # fmt: skip
