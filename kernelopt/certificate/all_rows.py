"""Multipliers of all rows of pieces near those that a point and its ν determine.

cvxpy's solvers tell ν and the multipliers of stated constraints. A row with a prediction that stands in no other row
has the multiplier (−ν − c)/S. Of functions within row j, a = ωh′(s) with ω = w₀ + w·(the multiplier of row j), which is
found from the functions whose a is known, from the inside out. Other rows have the slopes at the point.
"""

from __future__ import annotations

import numpy as np

from kernelopt.compiler.attributes import dense
from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.iterate import Iterate, in_columns
from kernelopt.pieces.form import Group, Pieces
from kernelopt.pieces.function import OfOneNumber
from kernelopt.support.types import Array, Ints

TURNS = 6  # of functions within functions
STEEP = 1e-9  # relative to the largest slope: smaller ones say nothing about ω
# Relative to arguments, and to slopes: a kink within NEAR of a solver's point may be active, and slopes that differ by
# more than SAME have one between them.
NEAR, SAME = 1e-5, 1e-3


@np.errstate(all="ignore")  # outside of domains
def rows_near(form: CanonicalForm, pieces: Pieces, point: Iterate) -> Array | None:
    """The multipliers; None with cones, and where some are not finite."""
    if pieces.cones or any(nu is None for nu in point.nu):
        return None
    s = pieces.rows(pieces.settled(in_columns(form, pieces, point)))
    a, known = np.zeros(len(s)), np.zeros(len(s), dtype=bool)
    for constraint in form.outer.constraints:
        rows, told = pieces.stated.get(constraint.id), point.duals.get(constraint.id, ())
        if rows is not None and len(told) == 1 and told[0] is not None and np.size(told[0]) == len(rows):
            a[rows], known[rows] = np.ravel(dense(told[0]), order="F"), True
    rows, values = _of_predictions(form, pieces, point)
    a[rows], known[rows] = values, True
    slopes = [group.family.slope(s[group.rows]) for group in pieces.groups]
    for _ in range(TURNS):
        before = known.sum()
        _outwards(pieces, s, slopes, a, known)
        if known.sum() == before:
            break
    for _ in range(TURNS):
        w, before = np.append(1.0, a[pieces.below]), a.copy()
        for group, slope in zip(pieces.groups, slopes, strict=True):
            free = ~known[group.rows]
            a[group.rows[free]] = (group.omega(w)[:, None] * slope)[free]
        a[:] = np.where(known, a, pieces.twins.sign * a[pieces.twins.row])
        if np.array_equal(a, before):
            break
    _completed(form, pieces, point, s, a, known)
    return a if np.isfinite(a).all() else None


def _predictions(form: CanonicalForm, pieces: Pieces, point: Iterate) -> tuple[Ints, Array]:
    """The columns of all u, and ν."""
    u = [pieces.columns[link.u.id] for link in form.predictions if link.u is not None]
    nu = [np.ravel(part, order="F") for part in point.multipliers()]
    return np.concatenate([np.arange(0), *u]).astype(int), np.concatenate([np.zeros(0), *nu])


def _completed(  # noqa: PLR0917
    form: CanonicalForm, pieces: Pieces, point: Iterate, s: Array, a: Array, known: np.ndarray
) -> None:
    """Where ν is not met at a prediction with one loss that is at a kink, that loss has the rest of it."""
    u, nu = _predictions(form, pieces, point)
    bent = np.zeros(len(a), dtype=bool)
    for group in pieces.groups:
        if group.rows.shape[1] == 1:
            bent[group.rows[:, 0]] |= ~_is_smooth(group, s) & ~known[group.rows[:, 0]]
    S = pieces.by_columns
    owner = np.repeat(np.arange(pieces.n), np.diff(S.indptr))
    counts = np.bincount(owner, bent[S.indices], pieces.n)
    left = np.zeros(pieces.n)
    left[u] = -nu - (pieces.c + pieces.slopes(a))[u]
    some = bent[S.indices] & (counts[owner] == 1)
    a[S.indices[some]] += left[owner[some]] / S.data[some]


def _of_predictions(form: CanonicalForm, pieces: Pieces, point: Iterate) -> tuple[Ints, Array]:
    """Rows with predictions that stand in no other row, and the multipliers that ν determines, in the mean."""
    S = pieces.by_columns
    u, nu = _predictions(form, pieces, point)
    alone = np.diff(S.indptr)[u] == 1
    u, nu = u[alone], nu[alone]
    rows, entries = S.indices[S.indptr[u]], S.data[S.indptr[u]]
    found, place = np.unique(rows, return_inverse=True)
    total = np.bincount(place, -(nu + pieces.c[u]) * entries, len(found))
    return found, total / np.bincount(place, entries**2, len(found))


def _outwards(pieces: Pieces, s: Array, slopes: list[Array], a: Array, known: np.ndarray) -> None:
    """Multipliers of rows below from functions within them that are known, and of the rows that have the same."""
    count = len(pieces.below)
    squares, products = np.zeros(count), np.zeros(count)
    for group, slope in zip(pieces.groups, slopes, strict=True):
        if group.is_outer:
            continue
        size = np.sum(slope**2, axis=1)
        usable = known[group.rows].all(axis=1) & (size > STEEP**2 * size.max(initial=0.0)) & _is_smooth(group, s)
        omega = np.sum(a[group.rows] * slope, axis=1) / np.where(size > 0, size, 1.0)
        W = group.weights
        owner = np.repeat(np.arange(len(group.rows)), np.diff(W.indptr))
        only = np.bincount(owner, W.indices > 0, len(group.rows)) == 1
        inner = (W.indices > 0) & (usable & only)[owner]
        row, w, of = W.indices[inner] - 1, W.data[inner], owner[inner]
        np.add.at(products, row, w * size[of] * (omega - group.costs)[of])
        np.add.at(squares, row, w**2 * size[of])
    some = np.flatnonzero((squares > 0) & ~known[pieces.below])
    rows, twins = pieces.below[some], pieces.twins
    a[rows], known[rows] = np.maximum(products[some] / squares[some], 0.0), True
    a[twins.row[rows]], known[twins.row[rows]] = twins.sign[rows] * a[rows], True


def _is_smooth(group: Group, s: Array) -> np.ndarray:
    """Whether functions of one number have no kink near s; others count as smooth."""
    if not isinstance(group.family, OfOneNumber):
        return np.ones(len(group.rows), dtype=bool)
    at = s[group.rows[:, 0]]
    near = NEAR * (np.abs(at) + np.abs(at).mean())
    low, high = group.family.slopes(at - near)[0], group.family.slopes(at + near)[1]
    return np.asarray(high - low <= SAME * (np.abs(low) + np.abs(high)))
