"""The rounding inside of losses: the error of the objective's value beyond the rounding of its terms and their sum.

A loss takes differences of numbers that may be far larger than the loss itself, as y − f in |y − f|. The cone data hold
these differences in the rows of auxiliary columns; where losses are nested, such rows depend on one another. A row of k
numbers of sizes s with errors e has the error (k + 4)(|b| + |A|s)u + |A|e: one rounding per product and sum, and a few
more for coefficients that are themselves products of constants.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernelopt.compiler.conic_form import ConicForm
from kernelopt.support.arithmetic import UNIT, euclidean
from kernelopt.support.types import Array, Ints

DEPTH = 12  # levels of nested auxiliary columns that are followed; each costs one pass over the entries of A
MORE = 4  # roundings per row beside one per entry: those of coefficients, see above
CURVED = ("exp", "power", "generalized_power")
# Relative to the size of a row: a row whose slack is larger is not at its kink. 2⁻⁴⁴ is 512 roundings; a larger value
# counts rounding in rows that do not matter, a smaller one may miss a kink.
SLACK = 2.0**-44


def inside(form: ConicForm, x: Array, terms: float, known: Array) -> float:
    """The rounding inside of losses in units of u: Σ |cⱼ|eⱼ + √(2T·Σ Pⱼeⱼ²) + ½u·Σ Pⱼeⱼ².

    The sums run over auxiliary columns. eⱼ is the largest eᵢ/|Aᵢⱼ| of the rows i of a
    column, a cone counting as one row. The effect of e in exponentials, powers and logarithms is added.

    x : the point on columns of u, t and the user's variables, 0 elsewhere
    known : the errors e of the columns of u; linear and square terms of u in the objective count too
    """
    ours = form.stated.copy()
    s, e = _propagated(form, x, ours, known)
    cost, curvature = np.abs(form.c), form.P
    of_squares = euclidean(np.sqrt(curvature) * e)
    plain = float(cost @ e) + float(np.sqrt(2 * terms)) * of_squares + 0.5 * UNIT * of_squares**2
    return plain + _of_curved_cones(form, x, s, e, ours, terms, cost)


class _Nesting(NamedTuple):
    """How auxiliary columns stand in rows.

    block : the first row of each row's cone, None where each row is its own; entries : of each row
    together : roundings of a norm, for each row that begins a cone
    levels : the entries, with others in their cones, of columns that become known together, one level after the other
    bounded : rows s ≥ r of a column s with s ≥ 0
    """

    block: Ints | None
    entries: Ints
    together: Ints
    levels: list[Ints]
    bounded: Array


def _nesting(form: ConicForm, ours: Array) -> _Nesting:
    """That of a form, found once: it does not depend on costs and values."""
    if "nesting" not in form.notes:
        rows, columns, m = form.A.indices, form.owners, len(form.b)
        block, curved = _blocks(form)
        several = (np.bincount(block[rows], minlength=m)[block[rows]] > 1) & ~curved[rows]
        together = np.bincount(block, minlength=m)
        together = np.where(together > 1, together + MORE, 0)
        ready = _levels(form, block, several, ~ours)
        levels = [np.flatnonzero(several & (form.A.data != 0) & those[columns]) for those in ready]
        entries, own = np.bincount(rows, minlength=m), np.array_equal(block, np.arange(m))
        form.notes["nesting"] = _Nesting(None if own else block, entries, together, levels, _bounded(form, ours))
    found: _Nesting = form.notes["nesting"]
    return found


def _levels(form: ConicForm, block: Ints, several: Array, unknown: Array) -> list[Array]:
    """The columns that each level makes known.

    An auxiliary column is ready when all others in its rows are known. Where no column is, one that is determined by
    some row is taken, and at last all of them, so that every level makes progress.
    """
    rows, columns = form.A.indices, form.owners
    found: list[Array] = []
    while unknown.any() and len(found) < DEPTH:
        others = np.bincount(block[rows], unknown[columns], len(form.b))[block[rows]] - unknown[columns]
        waits = np.bincount(columns, several & (others > 0), len(unknown)) > 0
        able = np.bincount(columns, several & (others == 0), len(unknown)) > 0
        ready = unknown & ~waits
        ready = ready if ready.any() else unknown & able
        ready = ready if ready.any() else unknown
        found.append(ready)
        unknown = unknown & ~ready
    return found


def _propagated(form: ConicForm, x: Array, ours: Array, known: Array) -> tuple[Array, Array]:
    """s and e: |x| and `known` on the stated columns, propagated row by row to auxiliary columns."""
    n = _nesting(form, ours)
    idle = _idle(form, n.bounded, x, known)
    s, e = np.where(ours, np.abs(x), 0.0), known.copy()
    for level in n.levels:
        total, off = _of_rows(form, n.entries, s, e)
        if n.block is not None:
            total = np.bincount(n.block, total, len(form.b))
            off = np.bincount(n.block, off, len(form.b)) + n.together * total
        here = level[~idle[form.A.indices[level]]]
        rows, columns, values = form.A.indices[here], form.owners[here], np.abs(form.A.data[here])
        first = rows if n.block is None else n.block[rows]
        np.maximum.at(s, columns, total[first] / values)
        np.maximum.at(e, columns, off[first] / values)
    return s, e


def _of_rows(form: ConicForm, entries: Ints, s: Array, e: Array) -> tuple[Array, Array]:
    """|b| + |A|s, and the errors of the rows in units of u; entries : of each row."""
    rows, columns, values = form.A.indices, form.owners, np.abs(form.A.data)
    total = np.abs(form.b) + np.bincount(rows, values * s[columns], len(form.b))
    return total, (entries + MORE) * total + np.bincount(rows, values * e[columns], len(form.b))


def _blocks(form: ConicForm) -> tuple[Ints, Array]:
    """The first row of each row's cone, and whether it is an exponential or power cone.

    A linear row is its own cone; so is a row of an exponential or power cone.
    """
    block, curved = np.arange(len(form.b)), np.zeros(len(form.b), dtype=bool)
    for kind, at, _ in form.cones.slices:
        curved[at] = kind in CURVED
        if kind not in ("zero", "nonneg", *CURVED):
            block[at] = at.start
    return block, curved


def _bounded(form: ConicForm, ours: Array) -> Array:
    """Rows s ≥ r with one auxiliary column s, for which s ≥ 0 stands elsewhere."""
    rows, columns, data = form.A.indices, form.owners, form.A.data
    inside = np.zeros(len(form.b), dtype=bool)
    inside[form.cones.zero : form.cones.zero + form.cones.nonneg] = True
    auxiliary = np.bincount(rows, ~ours[columns], len(form.b))
    alone = (np.bincount(rows, minlength=len(form.b)) == 1) & inside & (form.b == 0)
    nonneg = np.bincount(columns, alone[rows] & (data < 0), len(form.c)) > 0
    bounded = np.bincount(rows, ~ours[columns] & nonneg[columns] & (data < 0), len(form.b)) > 0
    return np.asarray(inside & (auxiliary == 1) & bounded)


def _idle(form: ConicForm, bounded: Array, x: Array, known: Array) -> Array:
    """Rows s ≥ r with r < 0 beyond rounding, of a column s with s ≥ 0: these rows do not determine s."""
    rows, columns = form.A.indices, form.owners
    terms = form.A.data * x[columns]
    least = SLACK * (np.abs(form.b) + np.bincount(rows, np.abs(terms), len(form.b)))
    if known.any():
        least += UNIT * np.bincount(rows, np.abs(form.A.data * known[columns]), len(form.b))
    return np.asarray(bounded & (form.b - np.bincount(rows, terms, len(form.b)) > least))


def _of_curved_cones(  # noqa: PLR0917
    form: ConicForm, x: Array, s: Array, e: Array, ours: Array, terms: float, cost: Array
) -> float:
    """The effect of the rows' errors e in curved cones.

    Exponentials: T·max e, since exp(r + δ) ≈ exp(r)(1 + δ). Logarithms of v > 0: ce/v. Powers: Σ c·p(|r| + ue)ᵖ⁻¹e
    ≤ p(T^(1/p) + uE)ᵖ⁻¹E with E = (Σ ceᵖ)^(1/p), by the inequalities of Hölder and Minkowski, with T ≥ Σ c|r|ᵖ.
    """
    curved = [(kind, at, extra) for kind, at, extra in form.cones.slices if kind in CURVED]
    if not curved:
        return 0.0
    rows, columns, data, found = form.A.indices, form.owners, form.A.data, 0.0
    _, off = _of_rows(form, _nesting(form, ours).entries, s, e)
    of_powers: dict[float, float] = {}
    for kind, at, extra in curved:
        if kind == "power":
            of_powers[float(extra)] = of_powers.get(float(extra), 0.0) + float(off[at.start + 2] ** (1 / extra))
        else:
            found += terms * float(off[at].max(initial=0.0))
    for a, size in of_powers.items():
        E = (float(cost.max(initial=0.0)) * size) ** a
        found += (terms**a + UNIT * E) ** (1 / a - 1) * E / a
    weight = np.zeros(len(form.b))
    np.maximum.at(weight, rows, cost[columns])
    first = form.cones.exponentials
    first = first[(np.bincount(rows, ~ours[columns], len(form.b))[first + 2] == 0) & (weight[first] > 0)]
    v = np.abs(form.b - np.bincount(rows, data * x[columns], len(form.b)))[first + 2]
    ratio = np.divide(off[first + 2], v, out=np.zeros(len(v)), where=v > 0)
    return found + float(weight[first] @ ratio)
