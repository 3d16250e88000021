"""The sizes of a problem in pieces: units of its data and of its objective, and the numbers whose squares are too far
from 1."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.conic_form import LARGEST, MODERATE, SMALLEST, typical
from kernelopt.errors import DataError
from kernelopt.pieces.custom import StatedFunction
from kernelopt.pieces.elementary import Exp, Logistic, NegativeEntropy, NegativeLog
from kernelopt.pieces.extremes import RowLogSumExp
from kernelopt.pieces.form import Group, Pieces
from kernelopt.pieces.quadratics import Piecewise
from kernelopt.support.types import Array, Ints

EXPONENTIALS = (Exp, Logistic, NegativeEntropy, NegativeLog, RowLogSumExp)
SMALL = 0.1  # of the numbers, the share up to which they count as small


FAR = 1e6  # times the size of small arguments and knots: there no argument is


class SizesOfProblem(NamedTuple):
    """(σ, κ), a small right-hand side and the unit of the objective; the least of the units that κ is the largest of;
    that of predictions; the columns of t."""

    units: tuple[float, float]
    least: float
    data_unit: float
    of_t: Ints


class SizesOfRows(NamedTuple):
    """What does not depend on costs.

    of_t, of_u : columns; on_t : whether a norm stands in each row; unit : by which s of each row is divided
    values : right-hand sides in rows without norms, in units of their rows; data_unit : that of predictions, or 0
    steepest : for each group, the largest slope and curvature of each function; None where they are not known
    extents : names and (smallest, largest) numbers that must have squares
    """

    of_t: Ints
    of_u: Ints
    on_t: Array
    unit: Array
    values: Array
    data_unit: float
    steepest: tuple[tuple[Array, Array] | None, ...]
    extents: tuple[tuple[str, float, float], ...]


def units_of(pieces: Pieces, form: CanonicalForm, bends: Array) -> SizesOfProblem:
    """σ is the first decile of the sizes of s₀ and of knots, in rows without a norm of θ; that of predictions the same
    relative to the largest coefficient of u in a row, in exponents with 1 at least.

    κ is the first decile of costs in units of σ and σ², of predictions in theirs; that of costs `bends` and linear ones
    of norms where there are no others.
    """
    rows = sizes_of_rows(pieces, form)
    own = [(g.costs, *g.family.units()) for g in pieces.groups if isinstance(g.family, StatedFunction)]
    lengths = [np.broadcast_to(length, w.shape)[w > 0] for w, length, _ in own]
    sigma = typical(np.concatenate([rows.values, *lengths]), SMALL) or 1.0
    if sigma * sigma == inf:
        raise DataError(
            f"Expected targets and bounds up to {LARGEST:g} times the coefficients beside them, so that a double holds "
            f"squares of predictions; got {sigma:.3g}. Change units: multiply coefficients, or targets, by a constant."
        )
    unit = np.full(pieces.n, sigma)
    unit[rows.of_u] = rows.data_unit or sigma
    linear = np.delete(pieces.c * unit, rows.of_t)
    slopes, curvatures = _costs(pieces, rows, inside=True)
    of_exponents = [g.costs for g in pieces.groups if isinstance(g.family, EXPONENTIALS)]
    gains = np.concatenate([np.zeros(0), *(w * gain for w, _, gain in own), *of_exponents])
    kinds = (linear, sigma * slopes, sigma**2 * curvatures, gains)
    kappa = max(typical(np.concatenate(kinds[:2]), SMALL), *(typical(kind, SMALL) for kind in kinds[2:]))
    kappa = kappa or max(typical(sigma * pieces.c[rows.of_t]), typical(sigma**2 * bends)) or 1.0
    least = min((unit for unit in (typical(kind, SMALL) for kind in kinds) if unit > 0), default=kappa)
    return SizesOfProblem((sigma, kappa), min(least, kappa), rows.data_unit, rows.of_t)


def sizes_of_rows(pieces: Pieces, form: CanonicalForm) -> SizesOfRows:
    """Found once for the rows."""
    return pieces.once("sizes of rows", lambda _: _sizes_of_rows(pieces, form))


def _sizes_of_rows(pieces: Pieces, form: CanonicalForm) -> SizesOfRows:
    t, u, of_u = _columns(pieces, form)
    on_t, unit = _touched(pieces, t), 2.0 ** row_exponents(pieces)
    rows, plain, exponents = _right_hand_sides(pieces)
    free = ~on_t[rows]
    values, size = (plain / unit[rows])[free], (of_u / unit)[rows[free]]
    near, least = size > 0, np.where(exponents, 1.0 / unit[rows], 0.0)[free]
    of_predictions = np.maximum(np.abs(values), least)[near] / size[near]
    data_unit = typical(of_predictions, SMALL) or typical(values, SMALL)
    steepest = tuple(_steepest(group, pieces.s0) for group in pieces.groups)
    return SizesOfRows(t, u, on_t, unit, values, data_unit, steepest, _extents(pieces, on_t, plain))


def _columns(pieces: Pieces, form: CanonicalForm) -> tuple[Ints, Ints, Array]:
    """The columns of t and of u, and the largest coefficient of u in each row."""
    t = np.concatenate([np.arange(0), *(pieces.columns[norm.t.id] for norm in form.norms)]).astype(int)
    known = [pieces.columns[link.u.id] for link in form.predictions if link.u is not None]
    u = np.concatenate([np.arange(0), *known]).astype(int)
    is_u, size = np.zeros(pieces.n), np.zeros(len(pieces.s0))
    is_u[u] = 1.0
    np.maximum.at(size, pieces.owners, np.abs(pieces.S.data) * is_u[pieces.S.indices])
    return t, u, size


def _touched(pieces: Pieces, columns: Ints) -> Array:
    """Whether some of the columns stand in each row."""
    some = np.zeros(pieces.n)
    some[columns] = 1.0
    return np.bincount(pieces.owners, some[pieces.S.indices] * (pieces.S.data != 0), pieces.S.shape[0]) > 0


def _right_hand_sides(pieces: Pieces) -> tuple[Ints, Array, Array]:
    """Rows and numbers that s is compared with, s₀ and knots, and whether they are exponents."""
    exponent = np.zeros(len(pieces.s0), dtype=bool)
    rows, values = [np.arange(len(pieces.s0))], [pieces.s0]
    for group in pieces.groups:
        if isinstance(group.family, Piecewise) and group.family.knots.shape[1]:
            i, j = np.nonzero(np.isfinite(group.family.knots) & (group.family.knots != 0))
            if len(i):
                rows.append(group.rows[i, 0])
                values.append(group.family.knots[i, j])
        elif isinstance(group.family, EXPONENTIALS):
            exponent[group.rows] = True
    every = np.concatenate(rows)
    return every, np.concatenate(values), exponent[every]


def row_exponents(pieces: Pieces) -> Ints:
    """e for each row whose largest coefficient is about 2ᵉ, far from 1; else 0."""
    largest = np.zeros(len(pieces.s0))
    np.maximum.at(largest, pieces.owners, np.abs(pieces.S.data))
    e = np.frexp(largest)[1].astype(int)
    return np.where((np.abs(e) <= MODERATE) | ~np.isfinite(largest), 0, e)


def _steepest(group: Group, s0: Array) -> tuple[Array, Array] | None:
    """Of stretches that are not FAR away, as those beyond the threshold 1e9 of Huber's function."""
    if not isinstance(group.family, Piecewise):
        return None
    (low, high), knots = group.family.stretches, group.family.knots[np.isfinite(group.family.knots)]
    sizes = np.abs(np.concatenate([s0[group.rows[:, 0]], knots]))
    unit = typical(sizes[sizes > 0], SMALL) or inf
    used = (low < inf) & (low <= FAR * unit) & (high >= -FAR * unit)
    slope, curvature = (np.abs(group.family.coefficients[..., k] * used).max(axis=1) for k in (1, 2))
    m = len(group.rows)
    return np.broadcast_to(slope, m), np.broadcast_to(curvature, m)


def _costs(pieces: Pieces, rows: SizesOfRows, inside: bool) -> tuple[Array, Array]:
    """The largest slope and curvature of each function in the objective, times their weights.

    inside : in units of their rows, without those of norms, and of exponents, whose unit is 1
    """
    slopes, curvatures = [np.zeros(0)], [np.zeros(0)]
    for group, steepest in zip(pieces.groups, rows.steepest, strict=True):
        w = group.costs * ~rows.on_t[group.rows].any(axis=1) if inside else group.costs
        if steepest is not None:
            scale = rows.unit[group.rows[:, 0]] if inside else 1.0
            slopes.append(w * steepest[0] * scale)
            curvatures.append(w * steepest[1] * scale**2)
        elif not isinstance(group.family, StatedFunction) and not (inside and isinstance(group.family, EXPONENTIALS)):
            slopes.append(w * (rows.unit[group.rows].max(axis=1, initial=0.0) if inside else 1.0))
    return np.concatenate(slopes), np.concatenate(curvatures)


def is_constant(pieces: Pieces) -> bool:
    """Whether every point has the same objective: a problem of feasibility."""
    return not pieces.c.any() and not any(group.costs.any() for group in pieces.groups)


def has_exponentials(pieces: Pieces) -> bool:
    return any(isinstance(group.family, EXPONENTIALS) and group.weights.data.any() for group in pieces.groups)


def _extents(pieces: Pieces, on_t: Array, values: Array) -> tuple[tuple[str, float, float], ...]:
    """All targets together, a linear row as a whole, and a bound of a norm. A single target or bound beside others may
    be of any size."""
    targets, rows = np.abs(values[values != 0]), np.zeros(len(pieces.s0))
    np.maximum.at(rows, pieces.owners, np.abs(pieces.S.data))
    whole = np.maximum(rows, np.abs(pieces.s0))[np.concatenate([pieces.below, pieces.equal])]
    least = [float(part.min(initial=inf)) if len(part) else 0.0 for part in (targets, whole[whole > 0])]
    most = [float(part.max(initial=0.0)) for part in (targets, rows, np.abs(pieces.s0[on_t]))]
    return (
        ("targets and bounds", most[0], least[0]),
        ("coefficients of a constraint or of an atom", least[1], most[1]),
        ("bounds of ‖θ‖", 1.0, most[2]),
    )


@np.errstate(over="ignore")  # what overflows is refused
def require_units(pieces: Pieces, form: CanonicalForm) -> None:
    """Raise DataError where squares of the problem's numbers over- or underflow."""
    rows = sizes_of_rows(pieces, form)
    largest = float(np.abs(np.concatenate([pieces.c, *_costs(pieces, rows, inside=False)])).max(initial=0.0))
    for what, small, large in (("coefficients of the objective", largest, largest), *rows.extents):
        if 0 < small < SMALLEST or large > LARGEST:
            raise DataError(
                f"Expected {what} between {SMALLEST:g} and {LARGEST:g}, so that a double holds their squares; got "
                f"{large if large > LARGEST else small:.3g}. Change units: multiply the objective, the constraint, or "
                "data and targets by a constant."
            )
