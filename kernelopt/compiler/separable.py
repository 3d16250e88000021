"""Recognise an outer problem that is a sum of functions of one prediction each.

    f(u, t, y) = Σᵢ hᵢ(sᵢ) + g(t) + rest,   s = u + Zy

The cone data fall apart into pieces, each with one entry of u and a few auxiliary variables; minimizing these out
leaves hᵢ: piecewise linear-quadratic where the piece has linear rows (hinge, absolute, ε-insensitive, pinball and Huber
loss, squares, any maximum of affine and quadratic functions), or an exponential or logistic function. It is the
structure that counts, not the words in which a loss was written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.special import rel_entr

from kernelopt.compiler.conic_form import ConicForm, conic_form
from kernelopt.compiler.form import CanonicalForm
from kernelopt.kernels.domains import Array, Ints

LARGEST = 8  # rows of a piece; larger ones are left to the cone solvers
SAME = 1e-12  # relative difference that counts as none
JOINT = 1e-9  # relative accuracy to which neighbouring pieces of one function must fit together


@dataclass(frozen=True, eq=False)
class Quadratic:
    """hᵢ(s) = constantⱼ + slopeⱼ s + ½ curvatureⱼ s² for s in [leftⱼ, rightⱼ]; arrays (n, pieces), nan where unused."""

    at: Ints
    left: Array
    right: Array
    constant: Array
    slope: Array
    curvature: Array

    def value(self, s: Array) -> Array:
        """hᵢ(sᵢ); inf outside of the domain."""
        s = s[:, None]
        inside = (s >= self.left - SAME * np.abs(self.left)) & (s <= self.right + SAME * np.abs(self.right))
        values = np.where(inside, self.constant + s * (self.slope + 0.5 * self.curvature * s), np.nan)
        return np.nan_to_num(np.nanmin(np.where(inside, values, np.inf), axis=1), nan=np.inf, posinf=np.inf)

    def derivative(self, s: Array) -> Array:
        """An element of ∂hᵢ(sᵢ), from the right."""
        s = s[:, None]
        inside = (s >= self.left) & (s <= self.right)
        slopes = np.where(inside, self.slope + self.curvature * s, -np.inf)
        return np.asarray(np.max(slopes, axis=1))

    def conjugate(self, v: Array) -> Array:
        """h*ᵢ(v) = sup over s of vs − hᵢ(s), the largest over the pieces."""
        v = v[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            best = np.where(self.curvature > 0, (v - self.slope) / self.curvature, np.inf * np.sign(v - self.slope))
        flat = (self.curvature == 0) & (v == self.slope)
        anywhere = np.where(np.isfinite(self.left), self.left, np.where(np.isfinite(self.right), self.right, 0.0))
        s = np.where(flat, anywhere, np.clip(best, self.left, self.right))
        with np.errstate(invalid="ignore"):
            reached = v * s - self.constant - s * (self.slope + 0.5 * self.curvature * s)
            reached = np.where(np.isinf(s), np.inf, reached)
        return np.asarray(np.nanmax(np.where(np.isnan(self.slope), -np.inf, reached), axis=1))

    def is_convex(self) -> bool:
        """Whether the intervals join, values are continuous and slopes do not decrease, up to rounding."""
        ends, starts = self.right[:, :-1], self.left[:, 1:]
        joint = ~np.isnan(starts)
        unit = np.maximum(np.abs(ends), np.abs(np.nan_to_num(self.left[:, :1], neginf=0.0)))

        def at(j: slice, s: Array) -> tuple[Array, Array, Array]:
            terms = self.constant[:, j], s * self.slope[:, j], 0.5 * s**2 * self.curvature[:, j]
            size = np.abs(terms[0]) + np.abs(terms[1]) + np.abs(terms[2])
            return terms[0] + terms[1] + terms[2], self.slope[:, j] + self.curvature[:, j] * s, size

        with np.errstate(invalid="ignore"):
            before, slope_before, size = at(slice(0, -1), ends)
            after, slope_after, _ = at(slice(1, None), ends)
            steepest = np.nanmax(np.abs(self.slope), axis=1, initial=0.0)[:, None]
            steep = steepest + np.abs(self.curvature[:, 1:] * ends)
            joins = np.abs(ends - starts) <= JOINT * unit
            continuous = np.abs(after - before) <= JOINT * (size + steepest * unit)
            increasing = slope_after - slope_before >= -JOINT * steep
        return bool(np.all(joins | ~joint) and np.all(continuous | ~joint) and np.all(increasing | ~joint))

    def slopes(self) -> tuple[Array, Array]:
        """The interval of all subgradients, on which h* is finite."""
        known = ~np.isnan(self.slope)
        left_open = known & np.isneginf(self.left) & (self.curvature == 0)
        right_open = known & np.isposinf(self.right) & (self.curvature == 0)
        low = np.where(left_open.any(axis=1), np.max(np.where(left_open, self.slope, -np.inf), axis=1), -np.inf)
        high = np.where(right_open.any(axis=1), np.min(np.where(right_open, self.slope, np.inf), axis=1), np.inf)
        return low, high


@dataclass(frozen=True, eq=False)
class Exponential:
    """hᵢ(s) = weight·e^q + linear·s, or weight·log(1 + e^q) + linear·s where `logistic`; q = rate·s + shift."""

    at: Ints
    weight: Array
    rate: Array
    shift: Array
    linear: Array
    logistic: bool

    def value(self, s: Array) -> Array:
        q = self.rate * s + self.shift
        grown = np.logaddexp(0.0, q) if self.logistic else np.exp(np.minimum(q, 700.0))
        return self.weight * grown + self.linear * s

    def derivative(self, s: Array) -> Array:
        q = self.rate * s + self.shift
        grown = 0.5 * (1 + np.tanh(q / 2)) if self.logistic else np.exp(np.minimum(q, 700.0))
        return self.weight * self.rate * grown + self.linear

    def conjugate(self, v: Array) -> Array:
        """With w = (v − linear)/rate:  w ln(w/weight) − w − w·shift; or, where `logistic`,
        w ln(w/weight) + (weight − w) ln(1 − w/weight) − w·shift."""
        w = (v - self.linear) / self.rate
        w = np.clip(w, 0.0, self.weight) if self.logistic else np.maximum(w, 0.0)
        if self.logistic:
            rest = self.weight - w
            return np.asarray(rel_entr(w, self.weight) + rel_entr(rest, self.weight) - w * self.shift)
        return np.asarray(rel_entr(w, self.weight) - w - w * self.shift)

    def slopes(self) -> tuple[Array, Array]:
        end = self.linear + self.rate * self.weight if self.logistic else self.linear + np.inf * self.rate
        return np.minimum(self.linear, end), np.maximum(self.linear, end)


@dataclass(frozen=True, eq=False)
class Separable:
    """f = Σ over pieces of hᵢ(sᵢ), s = u + Zy, and the rows of the cone data that are left.

    u : columns of all u; y : columns of the shared variables; Z : (len(u), len(y)) sparse; pieces : functions of s,
    each with the entries `at` of u to which they belong; rows : left over, touching only y or t
    """

    u: Ints
    y: Ints
    Z: sp.csr_array
    pieces: tuple[Quadratic | Exponential, ...]
    rows: Ints

    def value(self, s: Array) -> float:
        return float(sum(np.sum(piece.value(s[piece.at])) for piece in self.pieces))

    def derivative(self, s: Array) -> Array:
        found = np.zeros(len(self.u))
        for piece in self.pieces:
            found[piece.at] = piece.derivative(s[piece.at])
        return found

    def conjugate(self, v: Array) -> float:
        """Σ h*ᵢ(vᵢ)."""
        return float(sum(np.sum(piece.conjugate(v[piece.at])) for piece in self.pieces))

    def slopes(self) -> tuple[Array, Array]:
        """The interval of subgradients of each hᵢ."""
        low, high = np.zeros(len(self.u)), np.zeros(len(self.u))
        for piece in self.pieces:
            low[piece.at], high[piece.at] = piece.slopes()
        return low, high


@dataclass(frozen=True, eq=False)
class Outer:
    """The outer problem for the present values of parameters: cone data, and its pieces where it is separable."""

    form: ConicForm
    pieces: Separable | None


_Member = tuple[int, list[int], list[int]]  # an entry of u, the rows and the auxiliary columns of its piece


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


def outer_of(form: CanonicalForm) -> Outer:
    """Cone data and pieces of a canonical form's outer problem."""
    data = conic_form(form)
    return Outer(data, separable(data))


def separable(form: ConicForm) -> Separable | None:
    """The pieces of an outer problem, or None where it does not fall apart into functions of one prediction."""
    u = np.concatenate(form.u).astype(int) if form.u else np.arange(0)
    if not len(u):
        return None
    shared = np.concatenate([form.y, form.t]).astype(int)
    labels = _components(form, shared)
    kinds = _kinds(form)
    A = sp.csr_array(form.A)
    Z = sp.lil_array((len(u), len(form.y)))
    batches, used = _batches(form, A, (u, shared, labels, kinds), Z)
    if batches is None:
        return None
    Z = sp.csr_array(Z)
    # What y costs by itself must be what u's linear terms say of s = u + Zy.
    if np.abs(form.c[form.y] - Z.T @ form.c[u]).max(initial=0.0) > SAME * np.abs(form.c).max(initial=0.0):
        return None
    if form.P[form.y].any() or (form.P[u].any() and Z.nnz):
        return None
    pieces = []
    for batch in batches:
        piece = _quadratic(batch) if "exp" not in batch.kinds else _exponential(batch)
        if piece is None:
            return None
        pieces.append(piece)
    return Separable(u, form.y, Z, tuple(pieces), np.flatnonzero(~used))


def _components(form: ConicForm, shared: Ints) -> Ints:
    """A label for each column, equal where rows (and cones) connect them without the shared columns."""
    m, n = form.A.shape
    pattern = sp.coo_array(form.A)
    keep = ~np.isin(pattern.col, shared)
    links = [(pattern.row[keep], pattern.col[keep] + m)]
    exponential = [rows.start for kind, rows, _ in form.cones.slices if kind == "exp"]
    other = [rows for kind, rows, _ in form.cones.slices if kind not in ("zero", "nonneg", "exp")]
    for start in (np.array(exponential, dtype=int),):
        links += [(start, start + 1), (start, start + 2)]
    links += [(np.arange(rows.start, rows.stop - 1), np.arange(rows.start + 1, rows.stop)) for rows in other]
    i, j = (np.concatenate(ends) for ends in zip(*links, strict=True))
    graph = sp.coo_array((np.ones(len(i)), (i, j)), shape=(m + n, m + n))
    return np.asarray(connected_components(graph, directed=False)[1])


def _kinds(form: ConicForm) -> list[str]:
    kinds = [""] * len(form.b)
    for kind, rows, _ in form.cones.slices:
        kinds[rows] = [kind] * (rows.stop - rows.start)
    return kinds


def _batches(
    form: ConicForm, A: sp.csr_array, parts: tuple[Ints, Ints, Ints, list[str]], Z: sp.lil_array
) -> tuple[list[_Batch] | None, Array]:
    """Group the pieces by pattern and fill Z; None where one holds several u, or y in other ways than s = u + Zy."""
    u, shared, labels, kinds = parts
    m, n = A.shape
    place = np.full(n, -1)
    place[u] = np.arange(len(u))
    position = np.full(n, -1)
    position[form.y] = np.arange(len(form.y))
    is_shared = np.zeros(n, dtype=bool)
    is_shared[shared] = True
    rows_of: dict[int, list[int]] = {}
    for row, label in enumerate(labels[:m]):
        rows_of.setdefault(int(label), []).append(row)
    auxiliaries: dict[int, list[int]] = {}
    for column in np.flatnonzero((place < 0) & ~is_shared):
        auxiliaries.setdefault(int(labels[m + column]), []).append(int(column))
    used = np.zeros(m, dtype=bool)
    groups: dict[tuple[int, tuple[str, ...]], list[_Member]] = {}
    owners: dict[int, int] = {}
    for entry, column in enumerate(u):
        label = int(labels[m + column])
        if label in owners:
            return None, used
        owners[label] = entry
        rows, columns = rows_of.get(label, []), auxiliaries.get(label, [])
        if len(rows) > LARGEST + 2 or len(columns) > LARGEST:
            return None, used
        key = (len(columns), tuple(kinds[r] for r in rows))
        groups.setdefault(key, []).append((entry, rows, columns))
        used[rows] = True
    if any(label not in owners for label in auxiliaries):
        return None, used
    batches = []
    for (k, row_kinds), members in groups.items():
        stacked = _stacked(form, A, members, (k, row_kinds), (position, u))
        if stacked is None:
            return None, used
        batch, z = stacked
        Z[batch.at] = z
        batches.append(batch)
    return batches, used


def _stacked(
    form: ConicForm, A: sp.csr_array, members: list[_Member], pattern: tuple[int, tuple[str, ...]],
    places: tuple[Ints, Ints],
) -> tuple[_Batch, Array] | None:  # fmt: skip
    """A batch from its members, and their rows of Z; None where y does not enter through s = u + Zy."""
    k, kinds = pattern
    position, u = places
    at = np.array([entry for entry, _, _ in members])
    n, m = len(members), len(kinds)
    columns = np.array([c for _, _, c in members], dtype=int).reshape(n, k)
    rows = np.array([r for _, r, _ in members], dtype=int).reshape(n, m)
    block = A[rows.ravel()] if m else sp.csr_array((0, A.shape[1]))
    coordinates = sp.coo_array(block)
    owner, local = coordinates.row // max(m, 1), coordinates.row % max(m, 1)
    slot = np.full(A.shape[1], -1)
    slot[columns.ravel()] = np.tile(np.arange(k), n)
    full, a, y = np.zeros((n, m, k)), np.zeros((n, m)), np.zeros((n, m, len(form.y)))
    col = coordinates.col
    in_x, in_y, in_u = slot[col] >= 0, position[col] >= 0, col == u[at[owner]]
    if not (in_x | in_y | in_u).all():
        return None  # t inside of a piece
    full[owner[in_x], local[in_x], slot[col[in_x]]] = coordinates.data[in_x]
    y[owner[in_y], local[in_y], position[col[in_y]]] = coordinates.data[in_y]
    a[owner[in_u], local[in_u]] = coordinates.data[in_u]
    largest = np.abs(a).argmax(axis=1) if m else np.zeros(n, dtype=int)
    pivot = a[np.arange(n), largest] if m else np.zeros(n)
    z = np.zeros((n, len(form.y)))
    if m and len(form.y):
        z = y[np.arange(n), largest] / np.where(pivot == 0, 1.0, pivot)[:, None]
        if np.abs(y - a[:, :, None] * z[:, None, :]).max(initial=0.0) > SAME * np.abs(y).max(initial=0.0):
            return None
    b = form.b[rows] if m else np.zeros((n, 0))
    data = _Batch(at, full, a, b, form.P[columns], form.c[columns], form.c[u[at]], form.P[u[at]], kinds)
    return data, z


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


def _exponential(batch: _Batch) -> Exponential | None:
    """α·e^(βs + γ) from one exponential cone, α·log(1 + e^(βs + γ)) from two and a row e₁ + e₂ ≤ 1."""
    n, _, k = batch.A.shape
    if batch.P.any() or batch.square.any():
        return None
    logistic = batch.kinds == ("nonneg",) + ("exp",) * 6 and k == 3
    if not logistic and not (batch.kinds == ("exp",) * 3 and k == 1):
        return None
    first = 1 if logistic else 0
    starts = range(first, len(batch.kinds), 3)
    for j in starts:  # y = 1, and the third entry is one auxiliary variable
        constant = not batch.A[:, j + 1].any() and not batch.a[:, j + 1].any() and np.all(batch.b[:, j + 1] == 1)
        plain = not batch.a[:, j + 2].any() and not batch.b[:, j + 2].any()
        plain = plain and bool(np.all(np.sort(batch.A[:, j + 2], axis=1)[:, 0] == -1))
        if not constant or not plain or np.any(np.count_nonzero(batch.A[:, j + 2], axis=1) != 1):
            return None
    if not logistic:
        rate, shift, weight = -batch.a[:, 0], batch.b[:, 0], batch.c[:, 0]
        good = not bool(batch.A[:, 0].any())
    else:
        epigraph = np.argmax(np.abs(batch.c), axis=1)
        pick = np.arange(n)
        weight = batch.c[pick, epigraph]
        exponents = [[1, 4], [4, 1]]
        moving = np.where(np.abs(batch.a[:, 1]) > 0, 0, 1)
        mover = np.array([exponents[i][0] for i in moving])
        still = np.array([exponents[i][1] for i in moving])
        rate, shift = -batch.a[pick, mover], batch.b[pick, mover]
        only = np.zeros((n, k))
        only[pick, epigraph] = 1.0
        sums = batch.A[:, 0]
        good = bool(
            np.array_equal(batch.A[pick, mover], only) and np.array_equal(batch.A[pick, still], only)
            and not batch.a[pick, still].any() and not batch.b[pick, still].any() and not batch.a[:, 0].any()
            and np.all(batch.b[:, 0] == 1) and np.array_equal(sums, 1.0 - only)
            and np.count_nonzero(batch.c) == np.count_nonzero(weight)
        )  # fmt: skip
    if not good or np.any(rate == 0) or np.any(weight < 0):
        return None
    return Exponential(
        batch.at, np.where(weight > 0, weight, np.finfo(float).tiny), rate, shift, batch.linear, logistic
    )
