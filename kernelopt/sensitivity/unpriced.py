"""Auxiliary columns of cone data that cost nothing at the present values of parameters, as t ≥ |f| in 0·t.

Nothing determines such a column, and rows t ≥ h(u, y) that define it count as inactive, while the derivative by its
weight is h. Here each gets a cost of its own: with all else fixed, it moves down to h, and its rows become equations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from kernelopt.compiler.conic_form import Cones
from kernelopt.errors import KernelOptError
from kernelopt.sensitivity.active import APEX, BOUNDARY, Faces
from kernelopt.sensitivity.stated_cones import StatedCones
from kernelopt.solvers.cone_program import answered
from kernelopt.support.types import Array, Bools, Ints

# Relative to the largest cost: those of smaller weights have multipliers without digits, beside which slacks of a
# polished point decide nothing.
SMALL = 1e-5
UNSETTLED = (
    "Expected terms of weight 0 with a known value at the answer, for the derivative by their weight; none was found. "
    "Take a small weight, such as 1e-3."
)
RIDGE, STEPS = 1e-9, 5  # of the system of the polished minimum, and its corrections, which undo the ridge


class Settled(NamedTuple):
    """x with unpriced columns at their least values.

    z : multipliers of the rows that define them, for costs of 1; rows, columns : for each row and each column of x, the
    number of the group of unpriced columns that it belongs to, −1 for none
    """

    x: Array
    z: Array
    rows: Ints
    columns: Ints

    def multipliers(self, z: Array, unit: float) -> Array:
        """z, with those of costs of one unit in the rows of unpriced columns: they tell which are equations."""
        return np.where(self.rows >= 0, unit * self.z, z)

    def tight(self, faces: Faces) -> Bools:
        """The rows of groups with as many equations as columns: those define the columns, and hold nothing else."""
        held = _equations_of(faces)
        mine, groups = self.rows >= 0, int(self.rows.max(initial=-1)) + 1
        equations = np.bincount(self.rows[mine], held[mine], groups)
        unknowns = np.bincount(self.columns[self.columns >= 0], minlength=groups)
        regular = np.append(equations == unknowns, False)
        return np.asarray(regular[self.rows])


def _equations_of(faces: Faces) -> Ints:
    """How many equations each row holds; the first one of a cone, for all of it."""
    held = faces.linear.astype(int)
    for kind, part, extra, where in faces.cones:
        k = np.asarray(extra).shape[1] if kind == "psd" else 1
        counts = {BOUNDARY: k * (k + 1) // 2, APEX: part.stop - part.start}
        held[part.start] = counts.get(where, 0)
    return held


def loose(data: StatedCones, J: sp.csr_array, z: Array, owners: Ints, least: float) -> Bools:
    """The equations Jx = h whose columns nothing holds where they should be, (equations,). owners : their rows.

    A column with a price of at most `least` moves at no cost, as p in Σp² ≤ c, p ≥ f, p ≥ 0 beside a multiplier of 0:
    f ≤ 0 holds p at 0 only if p ≥ 0 is an equation, without which the constraint's slope is another. Of each group of
    equations one more than of such columns remains for predictions and variables.
    """
    prices = np.abs(data.c) + np.abs(data.A).T @ np.abs(z)
    lengths = abs(data.A).max(axis=0).toarray().ravel()
    free = np.flatnonzero(_auxiliary(data) & (prices <= least * lengths))
    entries, count = sp.coo_array(J[: len(owners), free]), len(owners)
    entries.eliminate_zeros()
    i, j = entries.coords
    size = count + len(free)
    total, labels = connected_components(sp.coo_array((np.ones(len(i)), (i, count + j)), shape=(size, size)))
    equations, unknowns = (np.bincount(part, minlength=total) for part in (labels[:count], labels[count:]))
    return np.asarray((equations <= unknowns)[labels[:count]])


def settled(data: StatedCones, x: Array) -> Settled:
    """The unpriced columns at what the predictions, norms and variables of x make them.

    Raises KernelOptError for variables that have no price themselves, and where a least value is not found.
    """
    m, n = data.A.shape
    nothing = Settled(x, np.zeros(m), np.full(m, -1), np.full(n, -1))
    P, c, nearly = _prices(data)
    unpriced = np.flatnonzero((c != 0) | (P.diagonal() != 0))
    if not len(unpriced):
        return nothing
    rows, columns = _groups(data, nearly, unpriced)
    _require_priced(data, rows)
    part, blocks = np.flatnonzero(rows >= 0), _cones(data.cones, rows >= 0)
    moving = columns >= 0
    A = sp.csc_array(sp.csr_array(data.A)[part])
    right = data.b[part] - A[:, ~moving] @ x[~moving]
    unit, price = (float(np.abs(one).max(initial=0.0)) or 1.0 for one in (right, data.c))
    P, c = (P + data.P / price)[moving][:, moving], (c + data.c / price)[moving]
    try:
        found = answered(sp.triu(unit * P, format="csc"), c, sp.csc_array(A[:, moving]), right / unit, blocks)
    except ArithmeticError as error:
        raise KernelOptError(UNSETTLED) from error
    if str(found.status) not in ("Solved", "AlmostSolved"):
        raise KernelOptError(UNSETTLED)
    x, z = x.copy(), np.zeros(m)
    x[moving], z[part] = unit * np.asarray(found.x), np.asarray(found.z)
    linear = np.arange(m) < data.cones.zero + data.cones.nonneg
    plain = moving & ~np.isin(columns, rows[~linear])  # without curved cones, whose equations tell all
    if P.nnz and plain.any():
        equal = np.zeros(m, dtype=bool)
        equal[part] = (z[part] > np.asarray(found.s)) | (part < data.cones.zero)
        held = np.flatnonzero(equal & np.isin(rows, columns[plain]))
        P, c, A = P[plain[moving]][:, plain[moving]], c[plain[moving]], sp.csr_array(data.A)[held]
        x[plain] = _polished(P, c, A[:, plain], data.b[held] - A[:, ~plain] @ x[~plain], x[plain])
    return Settled(x, z, rows, columns)


def _polished(P: sp.sparray, c: Array, A: sp.sparray, b: Array, x: Array) -> Array:
    """x near the minimum of ½xᵀPx + cᵀx on Ax = b, exactly there: a gap of 1e-11 leaves errors of its root."""
    n, count = A.shape[1], A.shape[0]
    K = sp.block_array([[P + RIDGE * sp.eye_array(n), A.T], [A, -RIDGE * sp.eye_array(count)]], format="csc")
    step, factor = np.zeros(n + count), splu(K)
    right = np.concatenate([-(P @ x) - c, b - A @ x])
    for _ in range(STEPS):
        here = np.concatenate([P @ step[:n] + A.T @ step[n:], A @ step[:n]])
        step = step + factor.solve(right - here)
    return np.asarray(x + step[:n])


def _require_priced(data: StatedCones, rows: Ints) -> None:
    """Raise KernelOptError for a variable that stands in terms without a price only, and costs nothing by itself.

    Bounds of single entries, which other rows would have to press it against, do not determine it.
    """
    entries, alone = sp.coo_array(data.A), np.diff(data.by_rows.indptr) == 1
    i, j = entries.coords
    elsewhere = np.abs(data.c) + np.asarray(data.sizes[0].sum(axis=0)).ravel()
    np.add.at(elsewhere, j, np.where((rows < 0) & ~alone, 1.0, 0.0)[i])
    inside = np.zeros(len(elsewhere))
    np.add.at(inside, j, np.where(rows >= 0, 1.0, 0.0)[i])
    for columns in data.y:
        if np.any((inside[columns] > 0) & (elsewhere[columns] == 0)):
            raise KernelOptError(
                "Expected variables that the problem determines; one stands only in terms whose weight is 0, where the "
                "derivative by the weight depends on it. Take a small weight, such as 1e-3."
            )


def _prices(data: StatedCones) -> tuple[sp.csc_array, Array, sp.csr_array]:
    """The quadratic and the linear costs, of size 1, of auxiliary columns that have no price, and that wanted
    parameters may give one: in the objective, or as parts of constraints and of other terms; and the entries of A by
    which these stand there, which are 0 or tiny."""
    n, signed = len(data.c), [p for p in data.wanted if p.is_nonneg() or p.is_nonpos()]
    deltas = {p.id: np.full(p.shape, 1.0 if p.is_nonneg() else -1.0) for p in signed}
    if not deltas:
        return sp.csc_array((n, n)), np.zeros(n), sp.csr_array(data.A.shape)
    dP, dc, dA, _ = data.data.moved(deltas)
    bends, free = np.asarray(data.sizes[0].sum(axis=0)).ravel(), _auxiliary(data)
    for size in (np.abs(data.c), bends):
        free &= size <= SMALL * float(size.max(initial=0.0))
    used = sp.coo_array(dA)
    used.eliminate_zeros()
    i, j = used.coords
    entries = np.abs(np.asarray(data.by_rows[i, j])).ravel() if len(i) else np.zeros(0)
    lengths = abs(data.by_rows).max(axis=1).toarray().ravel() if data.A.nnz else np.zeros(len(data.b))
    free[j[entries > SMALL * np.maximum(lengths[i], np.abs(used.data))]] = False
    only = sp.diags_array(free.astype(float))
    largest = max(float(abs(dP).max()) if dP.nnz else 0.0, float(np.abs(dc).max(initial=0.0))) or 1.0
    costs, towards = dc / largest, _towards(data.cones, len(data.b))[i]
    np.add.at(costs, j, np.where(towards == 0, 1.0, towards * np.sign(used.data)))
    nearly = free[j] & (entries > 0)
    tiny = sp.csr_array((entries[nearly], (i[nearly], j[nearly])), shape=data.A.shape)
    return sp.csc_array(only @ dP @ only / largest), np.where(free, costs, 0.0), tiny


def _towards(cones: Cones, m: int) -> Array:
    """For each row of Ax + s = b, whether a larger entry of Ax makes it harder (1) or easier (−1) to meet; 0 where that
    depends, as within norms, which take convex arguments ≥ 0."""
    found = np.zeros(m)
    for kind, rows, _ in cones.slices:
        match kind:
            case "nonneg":
                found[rows] = 1.0
            case "soc":
                found[rows.start] = 1.0
            case "exp":
                found[rows.start : rows.stop : 3], found[rows.start + 2 : rows.stop : 3] = -1.0, 1.0
            case "power":
                found[rows.start : rows.start + 2] = 1.0
    return found


def _auxiliary(data: StatedCones) -> Bools:
    """The columns of x that are no predictions, norms or variables, and no values of smooth losses."""
    found = np.ones(len(data.c), dtype=bool)
    found[np.concatenate([data.of_links, *data.y, *(part.h for part in data.smooth)])] = False
    return found


def _groups(data: StatedCones, nearly: sp.csr_array, unpriced: Ints) -> tuple[Ints, Ints]:
    """For each row, and each column, the number of the unpriced columns that rows, cones and auxiliary columns connect
    with it, −1 where there are none. Entries in `nearly` connect nothing."""
    entries, n, auxiliary = sp.coo_array(data.A - data.A.multiply(nearly != 0)), len(data.c), _auxiliary(data)
    block = _block_of_rows(data.cones, len(data.b))
    inside = auxiliary[entries.coords[1]] & (entries.data != 0)
    i, j, count = block[entries.coords[0][inside]], entries.coords[1][inside], int(block.max(initial=-1)) + 1
    _, labels = connected_components(sp.coo_array((np.ones(len(i)), (i, count + j)), shape=(count + n, count + n)))
    _, numbers = np.unique(labels[count + unpriced], return_inverse=True)
    of_label = np.full(int(labels.max()) + 1, -1)
    of_label[labels[count + unpriced]] = numbers
    return of_label[labels[block]], np.where(auxiliary, of_label[labels[count:]], -1)


def _block_of_rows(cones: Cones, m: int) -> Ints:
    """For each row the number of its cone; linear rows are cones of their own."""
    starts = np.zeros(m, dtype=int)
    for kind, rows, _ in cones.slices:
        step = {"zero": 1, "nonneg": 1, "exp": 3}.get(kind, rows.stop - rows.start)
        starts[rows.start : rows.stop : step] = 1
    return np.cumsum(starts) - 1


def _cones(cones: Cones, chosen: Bools) -> Cones:
    """The cones of chosen rows, of which each cone has all or none."""
    parts = [(kind, int(np.count_nonzero(chosen[rows])), extra) for kind, rows, extra in cones.slices]
    count = {kind: n for kind, n, _ in parts}
    extras: dict[str, list[Any]] = {kind: [e for other, n, e in parts if other == kind and n] for kind in count}
    return Cones(
        count.get("zero", 0), count.get("nonneg", 0), tuple(extras.get("soc", ())), tuple(extras.get("psd", ())),
        count.get("exp", 0) // 3, tuple(extras.get("power", ())), tuple(extras.get("generalized_power", ())),
    )  # fmt: skip
