"""Recognise an outer problem that is a sum of functions of one number each.

    f(u, t, y) = Σⱼ hⱼ(sⱼ) + linear terms + g(t),   s = Eu + Fy

Cone data fall apart into pieces which share no auxiliary variable; minimizing these out leaves hⱼ: piecewise
linear-quadratic where a piece has linear rows (hinge, absolute, ε-insensitive, pinball and Huber loss, squares, any
maximum of affine and quadratic functions; a constraint is an h of 0 and ∞), or an exponential, logistic function,
logarithm or entropy. It is the structure that counts, not the words in which a loss was written.

There are two ways to cut. `by_prediction` makes one function of each prediction, E = I, so that the multipliers of
u = Aθ are all that a bound needs. `separable` cuts as finely as it goes: constraints stand on their own, and may couple
predictions; auxiliary variables that many pieces share count as the user's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import inf

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from kernelopt.compiler.conic_form import ConicForm, conic_form
from kernelopt.compiler.form import CanonicalForm
from kernelopt.compiler.pieces import JOINT, SAME, Custom, Entropy, Exponential, Logarithm, Piece, Quadratic
from kernelopt.kernels.domains import Array, Ints

LARGEST = 8  # rows of a piece; larger ones are left to the cone solvers
SHARED = 10  # rows in which an auxiliary variable may stand before it counts as one of the user's


@dataclass(frozen=True, eq=False)
class Separable:
    """Σ over pieces of hⱼ(sⱼ) + linear_uᵀu + linear_yᵀy with s = Eu + Fy, and the rows of the cone data that are left.

    u, y : columns of all u, and of the user's (and shared auxiliary) variables; E, F : sparse, (m, len(u)) and
    (m, len(y)); pieces : functions, each with the entries `at` of s that are its arguments; rows : left over, touching
    only t, or y where the cut is `by_prediction`; plain : for each hⱼ that is one linear row of the cone data, that
    row, else −1.
    """

    u: Ints
    y: Ints
    E: sp.csr_array
    F: sp.csr_array
    linear_u: Array
    linear_y: Array
    pieces: tuple[Piece, ...]
    rows: Ints
    plain: Ints

    def arguments(self, u: Array, y: Array) -> Array:
        """s = Eu + Fy."""
        return np.asarray(self.E @ u + self.F @ y)

    def value(self, s: Array) -> float:
        """Σ hⱼ(sⱼ)."""
        return float(sum(np.sum(piece.value(s[piece.at])) for piece in self.pieces))

    def derivative(self, s: Array) -> Array:
        found = np.zeros(self.E.shape[0])
        for piece in self.pieces:
            found[piece.at] = piece.derivative(s[piece.at])
        return found

    def conjugate(self, v: Array) -> float:
        """Σ h*ⱼ(vⱼ)."""
        return float(sum(np.sum(piece.conjugate(v[piece.at])) for piece in self.pieces))

    def growth(self, d: Array) -> float:
        """How steeply the sum grows far out along y + τd, in units of its terms; 0 where rounding hides it.

        hⱼ grows at its steepest slope in the direction of (Fd)ⱼ.
        """
        low, high = self.slopes()
        s = np.asarray(self.F @ d)
        terms = np.append(np.where(s > 0, high * s, np.where(s < 0, low * s, 0.0)), self.linear_y @ d)
        if np.isinf(terms).any():
            return inf if not np.isneginf(terms).any() else 0.0
        return float(terms.sum() / (np.abs(terms).sum() or 1.0))

    def slopes(self) -> tuple[Array, Array]:
        """The interval of subgradients of each hⱼ."""
        low, high = np.zeros(self.E.shape[0]), np.zeros(self.E.shape[0])
        for piece in self.pieces:
            low[piece.at], high[piece.at] = piece.slopes()
        return low, high


@dataclass(frozen=True, eq=False)
class Outer:
    """The outer problem for the present values of parameters: cone data, and what it falls apart into.

    known : one that differs at most in what ‖θ‖ costs, and so falls apart in the same way
    """

    form: ConicForm
    known: Outer | None = None

    @cached_property
    def pieces(self) -> Separable | None:
        """One function of each prediction, or None where it does not fall apart so."""
        return by_prediction(self.form) if self.known is None else self.known.pieces

    @cached_property
    def split(self) -> Separable | None:
        """The finest cut, or None where there is none."""
        return separable(self.form) if self.known is None else self.known.split


@dataclass(frozen=True)
class Lengths:
    """g(t) = slope·t + ½curvature·t² on 0 ≤ t ≤ limit, for each norm."""

    slope: Array
    curvature: Array
    limit: Array

    def least(self, lengths: Array) -> Array:
        """min over t of g(t) − length·t; −inf where there is none."""
        excess = np.maximum(lengths - self.slope, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.minimum(np.where(excess > 0, excess / self.curvature, 0.0), self.limit)
            values = np.where(excess > 0, t * (0.5 * self.curvature * t - excess), 0.0)
        return np.where(np.isnan(values), -inf, values)


Group = tuple[Array, Array, tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class _Components:
    """What is connected by auxiliary columns, grouped by pattern: (rows (n, m), columns (n, k), kind of each row)."""

    groups: list[Group]
    bare: Ints  # rows without any such column


@dataclass(frozen=True, eq=False)
class _Batch:
    """Pieces of one pattern: auxiliary columns x (k of them), rows, and their coefficients, stacked over n pieces."""

    at: Ints
    A: Array  # (n, m, k)
    a: Array  # (n, m), of s
    b: Array  # (n, m)
    P: Array  # (n, k)
    c: Array  # (n, k)
    linear: Array  # (n,), of s
    square: Array  # (n,), of s
    kinds: tuple[str, ...]  # of each row


def outer_of(form: CanonicalForm, known: Outer | None = None) -> Outer:
    """Cone data of a canonical form's outer problem, for the values that parameters have now.

    What an earlier one has been found to fall apart into is kept, where only penalties of ‖θ‖ have changed.
    """
    data = conic_form(form)
    base = None if known is None else known.known or known
    same = base is not None and not data.smooth and _same_but_for_t(data, base.form)
    return Outer(data, base if same else None)


def _same_but_for_t(one: ConicForm, other: ConicForm) -> bool:
    """Whether all data agree but the costs of t."""
    if one.A.shape != other.A.shape or one.cones != other.cones or one.A.nnz != other.A.nnz:
        return False
    rest = np.delete(np.arange(len(one.c)), one.t)
    return (
        np.array_equal(one.t, other.t) and np.array_equal(one.b, other.b)
        and np.array_equal(one.c[rest], other.c[rest]) and np.array_equal(one.P[rest], other.P[rest])
        and np.array_equal(one.A.indptr, other.A.indptr) and np.array_equal(one.A.indices, other.A.indices)
        and np.array_equal(one.A.data, other.A.data)
    )  # fmt: skip


def by_prediction(form: ConicForm) -> Separable | None:
    """One function of each prediction, E = I and s = u + Fy; None where the outer problem is not such a sum."""
    u = _columns_of_u(form)
    if not len(u) or form.smooth:
        return None
    parts = _components(form, np.concatenate([form.y, form.t]).astype(int))
    place = np.full(len(form.c), -1)
    place[u] = np.arange(len(u))
    Z, batches, used = sp.csr_array((len(u), len(form.y))), [], []
    for rows, columns, kinds in parts.groups:
        is_u = place[columns] >= 0
        if np.any(is_u.sum(axis=1) != 1) or rows.shape[1] > LARGEST + 2:
            return None
        own = columns[is_u]
        auxiliary = columns[~is_u].reshape(len(columns), -1)
        stacked = _stacked(form, rows, auxiliary, kinds, np.concatenate([u, form.y]), own)
        if stacked is None:
            return None
        batch, shared = stacked
        spread = sp.csr_array((np.ones(len(own)), (place[own], np.arange(len(own)))), shape=(len(u), len(own)))
        Z = Z + spread @ sp.csr_array(shared[:, len(u) :])
        batches.append(_relabelled(batch, place[own], form.c[own], form.P[own]))
        used.append(rows.ravel())
    if form.P[form.y].any() or (form.P[u].any() and Z.nnz):
        return None
    pieces = [_piece(batch) for batch in batches]
    if any(piece is None for piece in pieces):
        return None
    left = np.setdiff1d(np.arange(len(form.b)), np.concatenate([np.arange(0), *used]).astype(int))
    linear_y = form.c[form.y] - Z.T @ form.c[u]
    linear_y[np.abs(linear_y) <= SAME * np.abs(np.delete(form.c, form.t)).max(initial=0.0)] = 0.0
    return Separable(
        u, form.y, sp.csr_array(sp.eye_array(len(u))), sp.csr_array(Z), np.zeros(len(u)), linear_y,
        tuple(p for p in pieces if p is not None), left, np.full(len(u), -1),
    )  # fmt: skip


def separable(form: ConicForm) -> Separable | None:
    """The finest cut into functions of one number each; None where something is left that is none."""
    u = _columns_of_u(form)
    if not len(u) or not only_summed(form):
        return None
    kinds = np.array(_kinds(form))
    values = np.concatenate([np.arange(0), *(smooth.h for smooth in form.smooth)]).astype(int)
    y = np.concatenate([form.y, _shared_auxiliaries(form, u)]).astype(int)
    outer = np.concatenate([u, y])
    parts = _components(form, np.concatenate([outer, form.t, values]))
    pieces: list[Piece] = []
    blocks: list[sp.csr_array] = []
    plain: list[Array] = []
    at = 0
    for rows, columns, pattern, smooth in _by_loss(form, parts.groups):
        if rows.shape[1] > LARGEST + 2 or columns.shape[1] > LARGEST or np.isin(columns, u).any():
            return None
        stacked = _stacked(form, rows, columns, pattern, outer, None)
        if stacked is None:
            return None
        batch, shared = stacked
        nothing = np.zeros(len(rows))
        batch = _relabelled(batch, at + np.arange(len(rows)), nothing, nothing)
        piece = _piece(batch) if smooth is None else _custom(form, batch, columns[:, 0], smooth)
        if piece is None:
            return None
        pieces.append(piece)
        blocks.append(shared)
        plain.append(np.full(len(rows), -1))
        at += len(rows)
    A = sp.csr_array(form.A)
    on_t = np.zeros(len(form.c), dtype=bool)
    on_t[form.t] = True
    touches_t = np.asarray(A @ on_t.astype(float) != 0)
    touches_t |= np.asarray(abs(A) @ on_t.astype(float) > 0)
    own = parts.bare[~touches_t[parts.bare]]
    if not np.isin(kinds[own], ("zero", "nonneg")).all():
        return None
    pieces.append(_rows_as_pieces(form, own, at + np.arange(len(own)), kinds[own] == "zero"))
    blocks.append(sp.csr_array(A[own][:, outer]))
    plain.append(own)
    at += len(own)
    squares = outer[form.P[outer] > 0]
    pieces.append(_squares(form.P[squares], at + np.arange(len(squares))))
    position = np.full(len(form.c), -1)
    position[outer] = np.arange(len(outer))
    picked = (np.ones(len(squares)), (np.arange(len(squares)), position[squares]))
    blocks.append(sp.csr_array(picked, shape=(len(squares), len(outer))))
    plain.append(np.full(len(squares), -1))
    S = sp.csr_array(sp.vstack(blocks))
    return Separable(
        u, y, sp.csr_array(S[:, : len(u)]), sp.csr_array(S[:, len(u) :]), form.c[u], form.c[y],
        tuple(p for p in pieces if len(p.at)), parts.bare[touches_t[parts.bare]], np.concatenate(plain).astype(int),
    )  # fmt: skip


def only_summed(form: ConicForm) -> bool:
    """Whether the values of smooth losses stand in the objective alone, with weights ≥ 0."""
    degree = np.diff(form.A.indptr)
    return all(
        not degree[smooth.h].any() and not form.P[smooth.h].any() and bool(np.all(form.c[smooth.h] >= 0))
        for smooth in form.smooth
    )


def _by_loss(form: ConicForm, groups: list[Group]) -> Iterator[tuple[Array, Array, tuple[str, ...], int | None]]:
    """The groups, with arguments of each smooth loss apart, and its number; those without weight are no arguments."""
    owner = np.full(len(form.c), -1)
    for number, smooth in enumerate(form.smooth):
        owner[smooth.g[form.c[smooth.h] > 0]] = number
    for rows, columns, pattern in groups:
        owners = owner[columns].max(axis=1, initial=-1)
        for number in np.unique(owners):
            pick = owners == number
            yield rows[pick], columns[pick], pattern, None if number < 0 else int(number)


def _custom(form: ConicForm, batch: _Batch, columns: Ints, number: int) -> Custom | None:
    """From one row  A·g + a·s = b:  weight·ℓ(g)."""
    if batch.kinds != ("zero",) or batch.A.shape[2] != 1:
        return None
    smooth = form.smooth[number]
    order = np.argsort(smooth.g)
    entry = order[np.searchsorted(smooth.g[order], columns)]
    A = batch.A[:, 0, 0]
    data, weight = tuple(d[entry] for d in smooth.data), form.c[smooth.h[entry]]
    return Custom(batch.at, smooth.loss, data, weight, -batch.a[:, 0] / A, batch.b[:, 0] / A)


def lengths_of_outer(form: ConicForm, pieces: Separable) -> Lengths | None:
    """g, where the rows that are left say no more than 0 ≤ t ≤ R."""
    limit = np.full(len(form.t), inf)
    rows = form.A[pieces.rows] if len(pieces.rows) else None
    if rows is not None:
        coordinates = rows.tocoo()
        for row, column, value in zip(coordinates.row, coordinates.col, coordinates.data, strict=True):
            j = np.flatnonzero(form.t == column)
            number = pieces.rows[row]
            alone = np.count_nonzero(coordinates.row == row) == 1
            if not len(j) or not alone or not form.cones.zero <= number < form.cones.zero + form.cones.nonneg:
                return None
            bound = form.b[number] / value
            if value > 0:
                limit[j[0]] = min(limit[j[0]], bound)
            elif bound < 0 or form.b[number] < 0:
                return None
    if np.any(limit < 0):
        return None
    return Lengths(form.c[form.t], form.P[form.t], limit)


def _columns_of_u(form: ConicForm) -> Ints:
    return np.concatenate(form.u).astype(int) if form.u else np.arange(0)


def _shared_auxiliaries(form: ConicForm, u: Ints) -> Ints:
    """Auxiliary columns that stand in many rows: the largest of many numbers, say."""
    degree = np.diff(form.A.indptr)
    known = np.concatenate([u, form.y, form.t]).astype(int)
    return np.setdiff1d(np.flatnonzero(degree > SHARED), known)


def _components(form: ConicForm, shared: Ints) -> _Components:
    """Rows and the other columns, grouped by what connects them."""
    m, n = form.A.shape
    labels = _labels(form, shared)
    is_shared = np.zeros(n, dtype=bool)
    is_shared[shared] = True
    columns = np.flatnonzero(~is_shared)
    label_of_columns = labels[m + columns]
    touched = np.zeros(int(labels.max(initial=-1)) + 1, dtype=bool)
    touched[label_of_columns] = True
    in_component = touched[labels[:m]]
    rows = np.flatnonzero(in_component)
    codes = np.unique(_kinds(form), return_inverse=True) if m else (np.zeros(0, dtype=str), np.zeros(0, dtype=int))
    row_order = rows[np.argsort(labels[rows], kind="stable")]
    column_order = columns[np.argsort(label_of_columns, kind="stable")]
    counts_r = np.bincount(labels[row_order], minlength=len(touched))[touched]
    counts_c = np.bincount(labels[m + column_order], minlength=len(touched))[touched]
    starts_r, starts_c = np.cumsum(counts_r) - counts_r, np.cumsum(counts_c) - counts_c
    groups = []
    for size in np.unique(np.column_stack([counts_r, counts_c]), axis=0) if len(counts_r) else []:
        mr, mc = int(size[0]), int(size[1])
        members = np.flatnonzero((counts_r == mr) & (counts_c == mc))
        own_rows = row_order[starts_r[members][:, None] + np.arange(mr)]
        own_columns = column_order[starts_c[members][:, None] + np.arange(mc)]
        patterns, which = np.unique(codes[1][own_rows], axis=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            pick = which.ravel() == number
            groups.append((own_rows[pick], own_columns[pick], tuple(str(codes[0][c]) for c in pattern)))
    return _Components(groups, np.flatnonzero(~in_component))


def _labels(form: ConicForm, shared: Ints) -> Ints:
    """A label for each row and column, equal where rows (and cones) connect them without the shared columns."""
    m, n = form.A.shape
    pattern = sp.coo_array(form.A)
    is_shared = np.zeros(n, dtype=bool)
    is_shared[shared] = True
    keep = ~is_shared[pattern.col] & (pattern.data != 0)
    links = [(pattern.row[keep], pattern.col[keep] + m)]
    start = np.array([rows.start for kind, rows, _ in form.cones.slices if kind == "exp"], dtype=int)
    links += [(start, start + 1), (start, start + 2)]
    other = [rows for kind, rows, _ in form.cones.slices if kind not in ("zero", "nonneg", "exp")]
    links += [(np.arange(rows.start, rows.stop - 1), np.arange(rows.start + 1, rows.stop)) for rows in other]
    i, j = (np.concatenate(ends) for ends in zip(*links, strict=True))
    graph = sp.coo_array((np.ones(len(i)), (i, j)), shape=(m + n, m + n))
    return np.asarray(connected_components(graph, directed=False)[1])


def _kinds(form: ConicForm) -> list[str]:
    kinds = [""] * len(form.b)
    for kind, rows, _ in form.cones.slices:
        kinds[rows] = [kind] * (rows.stop - rows.start)
    return kinds


def _stacked(  # noqa: PLR0917
    form: ConicForm, rows: Ints, columns: Ints, kinds: tuple[str, ...], outer: Ints, own: Ints | None
) -> tuple[_Batch, sp.csr_array] | None:
    """Pieces of one pattern, and s as combinations of the `outer` columns; None where more than one combination enters.

    s has the coefficient 1 of the column `own`, or else of its largest entry in the first row that it enters.
    """
    (n, m), k = rows.shape, columns.shape[1]
    A = sp.csr_array(form.A)[rows.ravel()] if m else sp.csr_array((0, len(form.c)))
    entries = sp.coo_array(A)
    piece, local = entries.row // max(m, 1), entries.row % max(m, 1)
    slot = np.full(len(form.c), -1)
    slot[columns.ravel()] = np.tile(np.arange(k), n)
    inside = slot[entries.col] >= 0
    X = np.zeros((n, m, k))
    X[piece[inside], local[inside], slot[entries.col[inside]]] = entries.data[inside]
    position = np.full(len(form.c), -1)
    position[outer] = np.arange(len(outer))
    rest = ~inside & (entries.data != 0)
    if np.any(position[entries.col[rest]] < 0):
        return None  # t inside of a piece
    shape = (n * m, len(outer))
    S = sp.csr_array((entries.data[rest], (entries.row[rest], position[entries.col[rest]])), shape=shape)
    found = _one_combination(S, (n, m), None if own is None else position[own])
    if found is None:
        return None
    a, combination = found
    b = form.b[rows].reshape(n, m)
    batch = _Batch(np.arange(n), X, a, b, form.P[columns], form.c[columns], np.zeros(n), np.zeros(n), kinds)
    return batch, combination


def _one_combination(S: sp.csr_array, shape: tuple[int, int], own: Ints | None) -> tuple[Array, sp.csr_array] | None:
    """a and e with S[i·m + j] = a[i, j]·e[i] for all rows j of each piece i."""
    n, m = shape
    if m == 0 or S.nnz == 0:
        if own is None:
            return (np.zeros((n, m)), sp.csr_array((n, S.shape[1]))) if m else None
        return np.zeros((n, m)), sp.csr_array((np.ones(n), (np.arange(n), own)), shape=(n, S.shape[1]))
    largest = abs(S).max(axis=1).toarray().reshape(n, m)
    first = largest.argmax(axis=1)
    rows = np.arange(n) * m + first
    E = sp.csr_array(S[rows])
    if own is None:
        pivot = np.zeros(n, dtype=int)
        filled = np.diff(E.indptr) > 0
        strongest = np.asarray(abs(E).argmax(axis=1)).ravel()
        pivot[filled] = strongest[filled]
    else:
        pivot = own
    size = np.asarray(E[np.arange(n), pivot]).ravel()
    if np.any((size == 0) & (largest.max(axis=1) > 0)):
        return None
    E = sp.csr_array(sp.diags_array(1 / np.where(size == 0, 1.0, size)) @ E)
    if own is not None:
        E = sp.csr_array(E + sp.csr_array(((size == 0) * 1.0, (np.arange(n), pivot)), shape=E.shape))
    owner = np.repeat(np.arange(n), m)
    a = np.asarray(S[np.arange(n * m), pivot[owner]]).ravel()
    rest = S - sp.diags_array(a) @ E[owner]
    if abs(rest).max() > SAME * abs(S).max():
        return None
    return a.reshape(n, m), E


def _relabelled(batch: _Batch, at: Ints, linear: Array, square: Array) -> _Batch:
    return _Batch(at, batch.A, batch.a, batch.b, batch.P, batch.c, linear, square, batch.kinds)


def _rows_as_pieces(form: ConicForm, rows: Ints, at: Ints, equal: Array) -> Quadratic:
    """The constraint s ≤ b, or s = b, as a function of 0 and ∞."""
    b, zero = form.b[rows][:, None], np.zeros((len(rows), 1))
    return Quadratic(at, np.where(equal[:, None], b, -np.inf), b, zero, zero, zero)


def _squares(P: Array, at: Ints) -> Quadratic:
    zero, endless = np.zeros((len(P), 1)), np.full((len(P), 1), np.inf)
    return Quadratic(at, -endless, endless, zero, zero, P[:, None])


def _piece(batch: _Batch) -> Piece | None:
    return _quadratic(batch) if "exp" not in batch.kinds else _exponential(batch)


def _quadratic(batch: _Batch) -> Quadratic | None:
    """Minimize x out of  ½xᵀPx + cᵀx + linear·s + ½square·s²  over  Ax + as + (slack) = b  for every s.

    For each set W of active rows the optimal x and multipliers are affine in s, and optimal on the interval on which
    multipliers and slacks are nonnegative; the intervals of all W cover the domain.
    """
    _, m, k = batch.A.shape
    if any(kind not in ("zero", "nonneg") for kind in batch.kinds) or m > LARGEST:
        return None
    batch, width, height = _in_own_units(batch)
    equal = [j for j, kind in enumerate(batch.kinds) if kind == "zero"]
    found: list[tuple[Array, ...]] = []
    for active in _active_sets(equal, [j for j in range(m) if j not in equal], k):
        part = _on_active(batch, list(active), equal)
        if part is not None:
            if np.isnan(part[0]).any():
                return None
            found.append(part)
    if not found:
        return None
    left, right, constant, slope, curvature, first, last = (
        np.stack(parts, axis=1) for parts in zip(*found, strict=True)
    )
    curvature = np.where(curvature <= SAME * np.abs(curvature).max(axis=1, initial=0.0)[:, None], 0.0, curvature)
    curvature[np.abs(curvature) <= SAME * SAME] = 0.0  # in a piece's own units: rounding
    finite = np.abs(np.concatenate([left, right], axis=1))
    unit = np.max(np.where(np.isfinite(finite), finite, 0.0), axis=1)[:, None]
    empty = ~(right > left + SAME * unit)
    # Two active sets may give one interval.
    order = np.argsort(np.where(empty, np.inf, left), axis=1, kind="stable")
    left, right, constant, slope, curvature, empty = (
        np.take_along_axis(part, order, axis=1) for part in (left, right, constant, slope, curvature, empty)
    )
    again = np.zeros_like(empty)
    with np.errstate(invalid="ignore"):
        same = (left[:, 1:] == left[:, :-1]) | (np.abs(left[:, 1:] - left[:, :-1]) <= JOINT * unit)
    again[:, 1:] = same & ~empty[:, 1:] & ~empty[:, :-1]
    drop = empty | again
    if (drop.all(axis=1)).any():
        return None
    # Back from a piece's own units of s and of h.
    s, h = width[:, None], height[:, None]
    parts = (left * s, right * s, constant * h, slope * (h / s), curvature * (h / s**2))
    arrays = [np.where(drop, np.nan, part) for part in parts]
    first, last = first * s, last * s
    order = np.argsort(drop, axis=1, kind="stable")
    arrays = [np.take_along_axis(part, order, axis=1)[:, : int((~drop).sum(axis=1).max())] for part in arrays]
    piece = Quadratic(batch.at, arrays[0], arrays[1], arrays[2], arrays[3], arrays[4])
    # Where some rows leave a feasible point, h must have been found.
    feasible = first <= last
    ends = np.min(np.where(feasible, first, np.inf), axis=1), np.max(np.where(feasible, last, -np.inf), axis=1)
    whole = [
        _same(a, b) for a, b in zip((np.nanmin(arrays[0], axis=1), np.nanmax(arrays[1], axis=1)), ends, strict=True)
    ]
    return piece if piece.is_convex() and all(whole) else None


def _same(a: Array, b: Array) -> bool:
    with np.errstate(invalid="ignore"):
        return bool(np.all((a == b) | (np.abs(a - b) <= JOINT * np.abs(a))))


def _in_own_units(batch: _Batch) -> tuple[_Batch, Array, Array]:
    """A batch with right-hand sides, rows and costs of size 1, and the units of s and of h."""
    rows = np.maximum(np.abs(batch.A).max(axis=2, initial=0.0), np.abs(batch.a))
    rows = np.where(rows > 0, rows, 1.0)
    b = batch.b / rows
    width = np.abs(b).max(axis=1, initial=0.0)
    width = np.where(width > 0, width, 1.0)
    w = width[:, None]
    P, c, linear, square = batch.P * w**2, batch.c * w, batch.linear * width, batch.square * width**2
    costs = [np.abs(part).max(axis=1, initial=0.0) for part in (P, c)]
    height = np.maximum.reduce([*costs, np.abs(linear), square])
    height = np.where(height > 0, height, 1.0)
    h = height[:, None]
    scaled = _Batch(
        batch.at, batch.A / rows[:, :, None], batch.a / rows, b / w, P / h, c / h, linear / height, square / height,
        batch.kinds,
    )  # fmt: skip
    return scaled, width, height


def _active_sets(equal: list[int], rest: list[int], k: int) -> Iterator[tuple[int, ...]]:
    for size in range(min(len(rest), max(k - len(equal), 0)) + 1):
        for chosen in combinations(rest, size):
            yield (*equal, *chosen)


def _on_active(batch: _Batch, active: list[int], equal: list[int]) -> tuple[Array, ...] | None:
    """(left, right, constant, slope, curvature) of h where just these rows are active, and where they are feasible."""
    n, m, k = batch.A.shape
    w = len(active)
    W = batch.A[:, active]
    K = np.zeros((n, k + w, k + w))
    K[:, np.arange(k), np.arange(k)] = batch.P
    K[:, :k, k:], K[:, k:, :k] = np.swapaxes(W, 1, 2), W
    if k + w and np.linalg.matrix_rank(K[0]) < k + w:
        return None
    fixed = np.concatenate([-batch.c, batch.b[:, active]], axis=1)
    moving = np.concatenate([np.zeros((n, k)), -batch.a[:, active]], axis=1)
    try:
        solved = np.linalg.solve(K, np.stack([fixed, moving], axis=2)) if k + w else np.zeros((n, 0, 2))
    except np.linalg.LinAlgError:
        solved = np.full((n, k + w, 2), np.nan)
    left_over = K @ solved - np.stack([fixed, moving], axis=2) if k + w else np.zeros((n, 0, 2))
    if not np.all(np.abs(left_over) <= JOINT * (1 + np.abs(solved).max(axis=(1, 2), initial=0.0)[:, None, None])):
        return tuple(np.full(n, np.nan) for _ in range(7))  # singular for some pieces of one pattern: not taken
    x, z = solved[:, :k], solved[:, k:]
    inactive = [j for j in range(m) if j not in active]
    slack = np.stack([batch.b[:, inactive], -batch.a[:, inactive]], axis=2) - batch.A[:, inactive] @ x
    held = [i for i, j in enumerate(active) if j not in equal]
    # Both must be ≥ 0, as lines in s: [:, :, 0] + [:, :, 1]·s.
    (left, right), (first, last) = _interval(z[:, held]), _interval(slack)
    left, right = np.maximum(left, first), np.minimum(right, last)
    constant = np.sum(batch.c * x[:, :, 0] + 0.5 * batch.P * x[:, :, 0] ** 2, axis=1)
    slope = np.sum((batch.c + batch.P * x[:, :, 0]) * x[:, :, 1], axis=1) + batch.linear
    curvature = np.sum(batch.P * x[:, :, 1] ** 2, axis=1) + batch.square
    return left, right, constant, slope, curvature, first, last


def _interval(lines: Array) -> tuple[Array, Array]:
    """The s with lines[:, :, 0] + lines[:, :, 1]·s ≥ 0 for all of them, quantities of one unit."""
    offset, rate = lines[:, :, 0], lines[:, :, 1]
    size, steepest = (np.abs(part).max(axis=1, initial=0.0)[:, None] for part in (offset, rate))
    flat = np.abs(rate) <= SAME * steepest
    with np.errstate(divide="ignore", invalid="ignore"):
        zero = -offset / rate
    left = np.max(np.where(~flat & (rate > 0), zero, -np.inf), axis=1, initial=-np.inf)
    right = np.min(np.where(~flat & (rate < 0), zero, np.inf), axis=1, initial=np.inf)
    impossible = (flat & (offset < -SAME * size)).any(axis=1)
    return np.where(impossible, np.inf, left), np.where(impossible, -np.inf, right)


def _exponential(batch: _Batch) -> Piece | None:
    """From exponential cones, y·e^(x/y) ≤ z, what is minimized over auxiliary variables:

    one cone with y = 1: e^x, or −log z; with z = 1: y log y; two cones and a row z₁ + z₂ ≤ 1: log(1 + e^(βs + γ)).
    """
    if batch.P.any() or batch.square.any():
        return None
    k = batch.A.shape[2]
    if batch.kinds == ("nonneg",) + ("exp",) * 6 and k == 3:
        return _logistic(batch)
    if batch.kinds == ("exp",) * 3 and k == 1:
        return _single_cone(batch)
    return None


def _single_cone(batch: _Batch) -> Piece | None:
    """One exponential cone with one auxiliary variable in one of its entries."""
    X, a, b, c = batch.A[:, :, 0], batch.a, batch.b, batch.c[:, 0]
    with_x = X != 0
    if not (with_x == with_x[0]).all() or with_x[0].sum() != 1:
        return None
    place = int(np.flatnonzero(with_x[0])[0])
    fixed = [~a[:, j].any() and bool(np.all(b[:, j] == 1)) for j in range(3)]
    # Entry j of the cone is b − X·x − a·s; x has coefficient −X.
    scale = -X[:, place]
    if place == 2 and fixed[1] and np.all(scale > 0) and np.all(c >= 0):  # x = (e^q + shift terms)/scale
        weight = c / scale
        linear = batch.linear + weight * a[:, 2]
        plain = not b[:, 2].any()
        good = plain and bool(np.all(a[:, 0] != 0))
        return Exponential(batch.at, _positive(weight), -a[:, 0], b[:, 0], linear, False) if good else None
    # scale·x ≤ y·log(z/y) + (b − a·s)₀ turned around: the cost c·x with c/scale < 0 wants x large.
    weight = -c / np.where(scale == 0, 1.0, scale)
    if place != 0 or np.any(weight < 0) or b[:, 0].any():
        return None
    linear = batch.linear - weight * a[:, 0]
    if fixed[1] and np.all(a[:, 2] != 0):
        return Logarithm(batch.at, _positive(weight), -a[:, 2], b[:, 2], linear)
    if fixed[2] and np.all(a[:, 1] != 0):
        return Entropy(batch.at, _positive(weight), -a[:, 1], b[:, 1], linear)
    return None


def _positive(weight: Array) -> Array:
    return np.where(weight > 0, weight, np.finfo(float).tiny)


def _logistic(batch: _Batch) -> Exponential | None:
    """α·log(1 + e^(βs + γ)) = min x·α with e^(−x) + e^(βs + γ − x) ≤ 1."""
    n, _, k = batch.A.shape
    for j in (1, 4):  # y = 1, and the third entry is one auxiliary variable
        constant = not batch.A[:, j + 1].any() and not batch.a[:, j + 1].any() and np.all(batch.b[:, j + 1] == 1)
        plain = not batch.a[:, j + 2].any() and not batch.b[:, j + 2].any()
        plain = plain and bool(np.all(np.sort(batch.A[:, j + 2], axis=1)[:, 0] == -1))
        if not constant or not plain or np.any(np.count_nonzero(batch.A[:, j + 2], axis=1) != 1):
            return None
    epigraph = np.argmax(np.abs(batch.c), axis=1)
    pick = np.arange(n)
    weight = batch.c[pick, epigraph]
    moving = np.abs(batch.a[:, 1]) > 0
    mover, still = np.where(moving, 1, 4), np.where(moving, 4, 1)
    rate, shift = -batch.a[pick, mover], batch.b[pick, mover]
    only = np.zeros((n, k))
    only[pick, epigraph] = 1.0
    good = (
        np.array_equal(batch.A[pick, mover], only) and np.array_equal(batch.A[pick, still], only)
        and not batch.a[pick, still].any() and not batch.b[pick, still].any() and not batch.a[:, 0].any()
        and bool(np.all(batch.b[:, 0] == 1)) and np.array_equal(batch.A[:, 0], 1.0 - only)
        and np.count_nonzero(batch.c) == np.count_nonzero(weight)
    )  # fmt: skip
    if not good or np.any(rate == 0) or np.any(weight < 0):
        return None
    return Exponential(batch.at, _positive(weight), rate, shift, batch.linear, True)
