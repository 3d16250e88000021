"""Recognise an outer problem that is a sum of functions of one number each.

    f(u, t, y) = Σⱼ hⱼ(sⱼ) + linear terms + g(t),   s = Eu + Fy

Cone data fall apart into pieces which share no auxiliary variable; minimizing these out leaves hⱼ: piecewise
linear-quadratic where a piece has linear rows (hinge, absolute, ε-insensitive, pinball and Huber loss, squares, any
maximum of affine and quadratic functions; a constraint is an h of 0 and ∞), or an exponential, logistic function,
logarithm, entropy or power; or log-sum-exp of a few numbers. Losses need no names: what counts is the rows and cones
that cvxpy makes of them.

The cut is as fine as possible. Constraints are pieces of their own, and may couple predictions. Auxiliary variables
that many pieces share count as the user's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from kernelopt.compiler.conic_form import ConicForm
from kernelopt.compiler.patterns import LARGEST, Batch, pieces_of
from kernelopt.compiler.pieces import Custom, LogSumExp, Piece, Quadratic, pairs_of, without_weight
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array, Ints

# Exponents of a log-sum-exp. Its curvature takes one row of s for each of the K(K − 1)/2 pairs, 45 for 10 exponents;
# larger ones become exponentials of one number each, with one more variable per log-sum-exp.
CLASSES = 10
# Relative difference between entries of proportional rows that rounding in cvxpy's products of coefficients explains.
ROUNDING = 16 * np.finfo(float).eps
# Rows in which an auxiliary variable may stand; in more, it counts as one of the user's. One that many terms share, as
# in a maximum over rows, would join them to one large block. The t of a log-sum-exp stands in up to CLASSES rows.
SHARED = 10
# Entries of the cone data of problems whose cut outlives them, and number of such cuts. They cover the folds and label
# vectors of a grid, and take a few hundred kB each at most.
SMALL, MOST_RECENT = 20_000, 32


@dataclass(frozen=True, eq=False)
class Source:
    """Where functions were found in the cone data: rows (n, m), auxiliary columns (n, k), and their `batch`.

    A log-sum-exp has no batch. Single rows and squares of outer columns have one row or column each.
    """

    rows: Ints
    columns: Ints
    batch: Batch | None = None

    @classmethod
    def of(cls, piece: Piece, rows: Ints, columns: Ints, batch: Batch | None, first: int = 0) -> Source:
        """The source of a piece with some functions of a group: a batch, or log-sum-exps, one per row of `rows`."""
        if batch is None:
            chosen = np.unique((piece.at - first) % len(rows))
            return cls(rows[chosen], columns[chosen])
        chosen = np.flatnonzero(np.isin(batch.at, piece.at))
        parts = {name: getattr(batch, name)[chosen] for name in ("at", "A", "a", "b", "P", "c")}
        return cls(rows[chosen], columns[chosen], Batch(**parts, kinds=batch.kinds))


@dataclass(frozen=True, eq=False)
class Separable:
    """Σ over pieces of hⱼ(sⱼ) + linear_uᵀu + linear_yᵀy with s = Eu + Fy, and the rows of the cone data that are left.

    u, y : columns of all u, and of the user's (and shared auxiliary) variables; E, F : sparse, (m, len(u)) and
    (m, len(y)); pieces : functions, each with the entries `at` of s that are its arguments; rows : the rows in which t
    stands, left over; plain : for each hⱼ that is one linear row of the cone data, that row, else −1; sources : for
    each piece, where it was found.

    Of pieces that were read, `back` and `base` make multipliers of all rows, back·(slopes) + base; `size` is the number
    of columns, `users` how many of y are the user's, and `constant` is added to the sum.
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
    sources: tuple[Source, ...] = ()
    back: sp.csr_array | None = None
    base: Array | None = None
    size: int = 0
    users: int = 0
    constant: float = 0.0

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
        """The slope of the sum far out along y + τd, relative to the sum of its terms' sizes; 0 where a term is −∞.

        There, hⱼ has its steepest slope in the direction of (Fd)ⱼ.
        """
        low, high = self.slopes()
        s = np.asarray(self.F @ d)
        terms = np.append(np.where(s > 0, high * s, np.where(s < 0, low * s, 0.0)), self.linear_y @ d)
        if np.isinf(terms).any():
            return inf if not np.isneginf(terms).any() else 0.0
        return float(terms.sum() / (np.abs(terms).sum() or 1.0))

    def slopes(self) -> tuple[Array, Array]:
        """The interval of subgradients of each hⱼ."""
        return self._slopes

    @cached_property
    def _slopes(self) -> tuple[Array, Array]:
        low, high = np.zeros(self.E.shape[0]), np.zeros(self.E.shape[0])
        for piece in self.pieces:
            low[piece.at], high[piece.at] = piece.slopes()
        low.flags.writeable = high.flags.writeable = False
        return low, high


@dataclass(frozen=True)
class Lengths:
    """g(t) = slope·t + ½curvature·t² on 0 ≤ t ≤ limit, for each norm."""

    slope: Array
    curvature: Array
    limit: Array

    def least(self, lengths: Array) -> Array:
        """min over t of g(t) − length·t; −inf where it is unbounded."""
        excess = np.maximum(lengths - self.slope, 0.0)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            t = np.minimum(np.where(excess > 0, excess / self.curvature, 0.0), self.limit)
            values = np.where(excess > 0, t * (0.5 * self.curvature * t - excess), 0.0)
        return np.where(np.isfinite(t) & ~np.isnan(values), values, -inf)


Group = tuple[Array, Array, tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class _Components:
    """Blocks that auxiliary columns connect, grouped by pattern: (rows (n, m), columns (n, k), kind of each row)."""

    groups: list[Group]
    bare: Ints  # rows without any such column


def separable(form: ConicForm, bounds: Ints | None = None) -> Separable | None:
    """The cut into functions of one number each; None where a part of the problem is no such function.

    bounds : auxiliary columns t of maxima, t ≥ xₖ for all k, which count as variables: their rows t − xₖ ≥ 0 are
    functions of one number each
    """
    u = _columns_of_u(form)
    if not len(u) or not only_summed(form):
        return None
    values = np.concatenate([np.arange(0), *(smooth.h for smooth in form.smooth)]).astype(int)
    y = np.unique(np.concatenate([form.y, _shared_auxiliaries(form, u), np.arange(0) if bounds is None else bounds]))
    y = np.concatenate([form.y, np.setdiff1d(y, form.y)]).astype(int)
    maxima: list[Ints] = []
    outer = np.concatenate([u, y])
    parts = _components(form, np.concatenate([outer, form.t, values]))
    pieces: list[Piece] = []
    blocks: list[sp.csr_array] = []
    plain: list[Array] = []
    sources: list[Source] = []
    at = 0
    for rows, columns, pattern, smooth in _by_loss(form, parts.groups):
        if columns.shape[1] > max(LARGEST, CLASSES + 1) or np.isin(columns, u).any():
            return None
        found: tuple[Any, ...] | None = _recognised(form, (rows, columns, pattern), outer, at, smooth)
        if found is None and smooth is None:
            found = _log_sum_exp(form, rows, columns, pattern, outer, at)
        if found is None and _are_maxima(form, columns, pattern):
            maxima.append(columns[:, 0])
            continue
        if found is None:
            return None
        pieces += found[0]
        blocks.append(found[1])
        sources += [Source.of(piece, rows, columns, found[2], at) for piece in found[0]]
        plain.append(np.full(found[1].shape[0], -1))
        at += found[1].shape[0]
    if maxima:
        return separable(form, np.concatenate([np.arange(0) if bounds is None else bounds, *maxima]))
    A = form.by_rows
    on_t = np.zeros(len(form.c), dtype=bool)
    on_t[form.t] = True
    touches_t = np.asarray(A @ on_t.astype(float) != 0)
    touches_t |= np.asarray(abs(A) @ on_t.astype(float) > 0)
    own = parts.bare[~touches_t[parts.bare]]
    if not np.all(own < form.cones.zero + form.cones.nonneg):
        return None
    pieces.append(_rows_as_pieces(form, own, at + np.arange(len(own)), own < form.cones.zero))
    blocks.append(sp.csr_array(A[own][:, outer]))
    sources.append(Source(own[:, None], own[:, None][:, :0]))
    plain.append(own)
    at += len(own)
    squares = outer[form.P[outer] > 0]
    pieces.append(_squares(form.P[squares], at + np.arange(len(squares))))
    position = np.full(len(form.c), -1)
    position[outer] = np.arange(len(outer))
    picked = (np.ones(len(squares)), (np.arange(len(squares)), position[squares]))
    blocks.append(sp.csr_array(picked, shape=(len(squares), len(outer))))
    sources.append(Source(squares[:, None][:, :0], squares[:, None]))
    plain.append(np.full(len(squares), -1))
    S = sp.csr_array(sp.vstack(blocks))
    return Separable(
        u, y, sp.csr_array(S[:, : len(u)]), sp.csr_array(S[:, len(u) :]), form.c[u], form.c[y],
        tuple(p for p in pieces if len(p.at)), parts.bare[touches_t[parts.bare]], np.concatenate(plain).astype(int),
        tuple(source for source, p in zip(sources, pieces, strict=True) if len(p.at)),
    )  # fmt: skip


def _are_maxima(form: ConicForm, columns: Ints, kinds: tuple[str, ...]) -> bool:
    """Whether each component is α·t, α ≥ 0, over linear inequalities t ≥ xₖ: α times the maximum of them."""
    if columns.shape[1] != 1 or set(kinds) != {"nonneg"} or form.P[columns].any() or np.any(form.c[columns] < 0):
        return False
    return bool(np.all(form.A[:, columns[:, 0]].data < 0))


def _recognised(
    form: ConicForm, group: Group, outer: Ints, first: int, smooth: int | None
) -> tuple[tuple[Piece, ...], sp.csr_array, Batch] | None:
    """The functions of one number that a group stands for, their rows of s, numbered from `first`, and coefficients."""
    rows, columns, pattern = group
    stacked = _stacked(form, rows, columns, pattern, outer)
    if stacked is None:
        return None
    batch = replace(stacked[0], at=first + np.arange(len(rows)))
    if smooth is None:
        pieces = pieces_of(batch)
    else:
        custom = _custom(form, batch, columns[:, 0], smooth)
        pieces = None if custom is None else (custom,)
    return None if pieces is None else (pieces, stacked[1], batch)


def only_summed(form: ConicForm) -> bool:
    """Whether the values of smooth losses stand in the objective alone, with weights ≥ 0."""
    degree = np.diff(form.A.indptr)
    return all(
        not degree[smooth.h].any() and not form.P[smooth.h].any() and bool(np.all(form.c[smooth.h] >= 0))
        for smooth in form.smooth
    )


def _by_loss(form: ConicForm, groups: list[Group]) -> Iterator[tuple[Array, Array, tuple[str, ...], int | None]]:
    """The groups, split by the smooth loss of which their columns are arguments, with its number; None for no loss.

    Arguments of losses with weight 0 count as ordinary auxiliary columns.
    """
    owner = np.full(len(form.c), -1)
    for number, smooth in enumerate(form.smooth):
        owner[smooth.g[form.c[smooth.h] > 0]] = number
    for rows, columns, pattern in groups:
        owners = owner[columns].max(axis=1, initial=-1)
        for number in np.unique(owners):
            pick = owners == number
            yield rows[pick], columns[pick], pattern, None if number < 0 else int(number)


def _custom(form: ConicForm, batch: Batch, columns: Ints, number: int) -> Custom | None:
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
    """g, where the rows that are left over are bounds 0 ≤ t ≤ R; else None."""
    known = form.notes.get("limits")
    if known is None or known[0] is not pieces:  # what rows allow does not depend on costs
        form.notes["limits"] = known = pieces, _limits(form, pieces)
    limit: Array | None = known[1]
    return None if limit is None else Lengths(form.c[form.t], form.P[form.t], limit)


def _limits(form: ConicForm, pieces: Separable) -> Array | None:
    """The largest t that each bound allows; None where a row that is left over is no bound."""
    limit, A = np.full(len(form.t), inf), form.by_rows
    for number in pieces.rows.tolist():
        at = slice(A.indptr[number], A.indptr[number + 1])
        j, values = np.flatnonzero((form.t[:, None] == A.indices[at]).any(axis=1)), A.data[at]
        if not len(values):
            continue
        if len(values) > 1 or not len(j) or not form.cones.zero <= number < form.cones.zero + form.cones.nonneg:
            return None
        bound = form.b[number] / values[0]
        if values[0] > 0:
            limit[j[0]] = min(limit[j[0]], bound)
        elif bound < 0 or form.b[number] < 0:
            return None
    return None if np.any(limit < 0) else limit


def _columns_of_u(form: ConicForm) -> Ints:
    return np.concatenate(form.u).astype(int) if form.u else np.arange(0)


def _shared_auxiliaries(form: ConicForm, u: Ints) -> Ints:
    """Auxiliary columns that stand in many rows, such as the bound of all terms of a maximum."""
    degree = np.diff(form.A.indptr)
    known = np.concatenate([u, form.y, form.t]).astype(int)
    return np.setdiff1d(np.flatnonzero(degree > SHARED), known)


def _components(form: ConicForm, shared: Ints) -> _Components:
    """Connected components of the rows and of the columns that are not `shared`, grouped by pattern."""
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
    names, kinds = form.cones.kinds
    row_order = rows[np.argsort(labels[rows], kind="stable")]
    column_order = columns[np.argsort(label_of_columns, kind="stable")]
    counts_r = np.bincount(labels[row_order], minlength=len(touched))[touched]
    counts_c = np.bincount(labels[m + column_order], minlength=len(touched))[touched]
    starts_r, starts_c = np.cumsum(counts_r) - counts_r, np.cumsum(counts_c) - counts_c
    groups = []
    sizes = counts_r * (n + 1) + counts_c
    for size in np.unique(sizes):
        mr, mc = divmod(int(size), n + 1)
        members = np.flatnonzero(sizes == size)
        own_rows = row_order[starts_r[members][:, None] + np.arange(mr)]
        own_columns = column_order[starts_c[members][:, None] + np.arange(mc)]
        for pick, pattern in _alike(kinds[own_rows]):
            groups.append((own_rows[pick], own_columns[pick], tuple(str(names[c]) for c in pattern)))
    return _Components(groups, np.flatnonzero(~in_component))


def _alike(table: Array) -> Iterator[tuple[Array, Array]]:
    """For each distinct row of a table, which rows are equal to it, and the row."""
    if np.all(table == table[:1]):
        yield np.ones(len(table), dtype=bool), table[0]
        return
    patterns, which = np.unique(table, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        yield which.ravel() == number, pattern


def _labels(form: ConicForm, shared: Ints) -> Ints:
    """A label for each row and column, equal where rows (and cones) connect them without the shared columns."""
    m, n = form.A.shape
    pattern = sp.coo_array(form.A)
    is_shared = np.zeros(n, dtype=bool)
    is_shared[shared] = True
    keep = ~is_shared[pattern.col] & (pattern.data != 0)
    links = [(pattern.row[keep], pattern.col[keep] + m)]
    start = form.cones.exponentials
    links += [(start, start + 1), (start, start + 2)]
    other = [rows for kind, rows, _ in form.cones.slices if kind not in ("zero", "nonneg", "exp")]
    links += [(np.arange(rows.start, rows.stop - 1), np.arange(rows.start + 1, rows.stop)) for rows in other]
    i, j = (np.concatenate(ends) for ends in zip(*links, strict=True))
    graph = sp.coo_array((np.ones(len(i)), (i, j)), shape=(m + n, m + n))
    return np.asarray(connected_components(graph, directed=False)[1])


def _stacked(
    form: ConicForm, rows: Ints, columns: Ints, kinds: tuple[str, ...], outer: Ints
) -> tuple[Batch, sp.csr_array] | None:
    """Pieces of one pattern, and s as combinations of the `outer` columns; None where more than one combination enters.

    s is scaled so that its largest coefficient is 1.
    """
    n, m = rows.shape
    parts = _coefficients(form, rows, columns, outer)
    if parts is None:
        return None
    X, S = parts
    found = _one_combination(S, (n, m))
    if found is None:
        return None
    a, combination = found
    b = form.b[rows].reshape(n, m)
    batch = Batch(np.arange(n), X, a, b, form.P[columns], form.c[columns], kinds)
    return batch, combination


def _coefficients(form: ConicForm, rows: Ints, columns: Ints, outer: Ints) -> tuple[Array, sp.csr_array] | None:
    """Coefficients of auxiliary columns, (n, m, k), and of outer ones, (n·m, outer); None where others enter."""
    (n, m), k = rows.shape, columns.shape[1]
    A = form.by_rows[rows.ravel()] if m else sp.csr_array((0, len(form.c)))
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
        return None  # t stands in a piece
    shape = (n * m, len(outer))
    return X, sp.csr_array((entries.data[rest], (entries.row[rest], position[entries.col[rest]])), shape=shape)


def _log_sum_exp(  # noqa: PLR0917
    form: ConicForm, rows: Ints, columns: Ints, kinds: tuple[str, ...], outer: Ints, first: int
) -> tuple[tuple[Piece, ...], sp.csr_array, None] | None:
    """α·log Σₖ e^(xₖ) = min α·t with Σₖ zₖ ≤ 1, e^(xₖ − t) ≤ zₖ, and the rows of s for it, numbered from `first`."""
    (n, m), K = rows.shape, columns.shape[1] - 1
    if not 2 <= K <= CLASSES or kinds != ("nonneg", *["exp"] * (3 * K)):
        return None
    parts = _coefficients(form, rows, columns, outer)
    if parts is None or form.P[columns].any():
        return None
    X, S = parts
    b, c, is_t = form.b[rows], form.c[columns], X[:, 1] == 1.0
    exponents = 1 + 3 * np.arange(K)
    if np.any(is_t.sum(axis=1) != 1):
        return None
    t = is_t.astype(float)
    z = -X[:, exponents + 2]  # (n, K, K + 1): one entry each, each another column
    inside = np.zeros(m, dtype=bool)
    inside[exponents] = True
    as_expected = (
        np.array_equal(X[:, 0], 1 - t) and np.all(b[:, 0] == 1) and np.array_equal(c != 0, (c > 0) & is_t)
        and np.array_equal(X[:, exponents], np.repeat(t[:, None], K, axis=1))
        and not X[:, exponents + 1].any() and np.all(b[:, exponents + 1] == 1)
        and np.array_equal(z.sum(axis=1), 1 - t) and np.isin(z, (0.0, 1.0)).all() and np.all(z.sum(axis=2) == 1)
        and not b[:, exponents + 2].any()
        and not np.diff(S.indptr).reshape(n, m)[:, ~inside].any()
    )  # fmt: skip
    if not as_expected:
        return None
    scores = [-S[np.arange(n) * m + row] for row in exponents]
    k, other = pairs_of(K)
    E = sp.csr_array(sp.vstack([*scores, *(scores[i] - scores[j] for i, j in zip(k, other, strict=True))]))
    found = without_weight(LogSumExp(first + np.arange(E.shape[0]), (c * t).sum(axis=1), b[:, exponents].T))
    return None if found is None else (found, E, None)


def _one_combination(S: sp.csr_array, shape: tuple[int, int]) -> tuple[Array, sp.csr_array] | None:
    """a and e with S[i·m + j] = a[i, j]·e[i] for all rows j of a piece i, up to rounding of each entry; else None."""
    n, m = shape
    if m == 0 or S.nnz == 0:
        return (np.zeros((n, m)), sp.csr_array((n, S.shape[1]))) if m else None
    largest = abs(S).max(axis=1).toarray().reshape(n, m)
    first = largest.argmax(axis=1)
    rows = np.arange(n) * m + first
    E = sp.csr_array(S[rows])
    pivot = _strongest(E)
    size = np.asarray(E[np.arange(n), pivot]).ravel()
    if np.any((size == 0) & (largest.max(axis=1) > 0)):
        return None
    E.data /= np.repeat(np.where(size == 0, 1.0, size), np.diff(E.indptr))
    owner = np.repeat(np.arange(n), m)
    a = np.asarray(S[np.arange(n * m), pivot[owner]]).ravel()
    product = sp.diags_array(a) @ E[owner]
    # Each entry is compared with its own size: relative to the largest one, small arguments of h would be lost.
    if (abs(S - product) > ROUNDING * (abs(S) + abs(product))).nnz:
        return None
    return a.reshape(n, m), E


def _strongest(E: sp.csr_array) -> Ints:
    """The column of each row's largest entry, the first of several; 0 for empty rows."""
    E.sort_indices()
    sizes, counts = np.abs(E.data), np.diff(E.indptr)
    row, filled = np.repeat(np.arange(len(counts)), counts), np.flatnonzero(counts)
    largest = np.zeros(len(counts))
    largest[filled] = np.maximum.reduceat(sizes, E.indptr[filled]) if len(filled) else 0.0
    hits = np.flatnonzero(sizes == largest[row])[::-1]
    found = np.zeros(len(counts), dtype=int)
    found[row[hits]] = E.indices[hits]  # of several, the first is written last
    return found


def _rows_as_pieces(form: ConicForm, rows: Ints, at: Ints, equal: Array) -> Quadratic:
    """The constraint s ≤ b, or s = b, as a function with values 0 and ∞."""
    b, zero = form.b[rows][:, None], np.zeros((len(rows), 1))
    return Quadratic(at, np.where(equal[:, None], b, -np.inf), b, zero, zero, zero)


def _squares(P: Array, at: Ints) -> Quadratic:
    zero, endless = np.zeros((len(P), 1)), np.full((len(P), 1), np.inf)
    return Quadratic(at, -endless, endless, zero, zero, P[:, None])
