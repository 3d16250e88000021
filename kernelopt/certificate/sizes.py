"""The rounding inside of losses: what a value is off by beyond the roundings of the terms that it is a sum of.

A loss takes differences of numbers that may be far larger than itself, y − f for |y − f|. In the cone data these stand
in the rows of its auxiliary columns, one behind the other where losses are nested. A row of k numbers of sizes s that
are off by e themselves is off by (k + 4)(|b| + |A|s)u + |A|e: a rounding for each product and sum, and some for
coefficients that are products of constants themselves.
"""

from __future__ import annotations

import numpy as np

from kernelopt.compiler.conic_form import ConicForm
from kernelopt.support.arithmetic import UNIT, euclidean
from kernelopt.support.types import Array, Ints

DEPTH = 12  # auxiliary columns that stand behind each other
MORE = 4  # roundings of a row beside those of its entries
CURVED = ("exp", "power", "generalized_power")
SLACK = 2.0**-44  # of a row's size: a row that holds by more than that is not at its kink


def inside(form: ConicForm, x: Array, slopes_of_g: Array, terms: float, known: Array) -> float:
    """In u: Σ |cⱼ|eⱼ + √(2T·Σ Pⱼeⱼ²) + ½u·Σ Pⱼeⱼ² over auxiliary columns and arguments of smooth losses, the largest
    eⱼ = eᵢ/|Aᵢⱼ| of whose rows, cones counted as one row; and what exponentials, powers and logarithms make of e.

    x : the point on columns of u, t and the user's variables, 0 elsewhere; slopes_of_g : |w ℓ′(g)| on arguments g
    known : e of the columns of u, whose sums and squares in the objective itself count too
    """
    ours = form.stated.copy()
    for smooth in form.smooth:
        ours[smooth.g] = False
    s, e = _propagated(form, x, ours, known)
    cost, curvature = np.abs(form.c), form.P
    of_squares = euclidean(np.sqrt(curvature) * e)
    plain = float((cost + slopes_of_g) @ e) + float(np.sqrt(2 * terms)) * of_squares + 0.5 * UNIT * of_squares**2
    return plain + _of_curved_cones(form, x, s, e, ours, terms, cost)


def _propagated(form: ConicForm, x: Array, ours: Array, known: Array) -> tuple[Array, Array]:
    """s and e: |x| and what is known on our columns, and for auxiliary ones what their rows are sums of and off by,
    from our columns onwards."""
    rows, columns, values = form.A.indices, form.owners, np.abs(form.A.data)
    block, curved = _blocks(form)
    several = (np.bincount(block[rows], minlength=len(form.b))[block[rows]] > 1) & ~curved[rows]
    counted = several & (values > 0) & ~_idle(form, x, ours, known)[rows]
    s, e, unknown = np.where(ours, np.abs(x), 0.0), known.copy(), ~ours
    together = np.bincount(block, minlength=len(form.b))
    together = np.where(together > 1, together + MORE, 0)  # roundings of a norm
    for _ in range(DEPTH):
        if not unknown.any():
            break
        of_rows, off = _of_rows(form, s, e)
        total = np.bincount(block, of_rows, len(form.b))
        off = np.bincount(block, off, len(form.b)) + together * total
        others = np.bincount(block[rows], unknown[columns], len(form.b))[block[rows]] - unknown[columns]
        waits = np.bincount(columns, several & (others > 0), len(s)) > 0
        able = np.bincount(columns, several & (others == 0), len(s)) > 0
        ready = unknown & ~waits
        ready = ready if ready.any() else unknown & able
        ready = ready if ready.any() else unknown
        here = counted & ready[columns]
        np.maximum.at(s, columns[here], total[block[rows[here]]] / values[here])
        np.maximum.at(e, columns[here], off[block[rows[here]]] / values[here])
        unknown = unknown & ~ready
    return s, e


def _of_rows(form: ConicForm, s: Array, e: Array) -> tuple[Array, Array]:
    """|b| + |A|s, and what the rows are off by."""
    rows, columns, values = form.A.indices, form.owners, np.abs(form.A.data)
    total = np.abs(form.b) + np.bincount(rows, values * s[columns], len(form.b))
    count = np.bincount(rows, minlength=len(form.b)) + MORE
    return total, count * total + np.bincount(rows, values * e[columns], len(form.b))


def _blocks(form: ConicForm) -> tuple[Ints, Array]:
    """For each row the first one of its cone, linear rows being for themselves, and whether that is an exponential or a
    power cone."""
    block, curved = np.arange(len(form.b)), np.zeros(len(form.b), dtype=bool)
    for kind, at, _ in form.cones.slices:
        curved[at] = kind in CURVED
        if kind not in ("zero", "nonneg", *CURVED):
            block[at] = at.start
    return block, curved


def _idle(form: ConicForm, x: Array, ours: Array, known: Array) -> Array:
    """Rows s ≥ r of a column with s ≥ 0 where r < 0, not by rounding: s owes nothing to them."""
    rows, columns, data = form.A.indices, form.owners, form.A.data
    inside = np.zeros(len(form.b), dtype=bool)
    inside[form.cones.zero : form.cones.zero + form.cones.nonneg] = True
    auxiliary = np.bincount(rows, ~ours[columns], len(form.b))
    alone = (np.bincount(rows, minlength=len(form.b)) == 1) & inside & (form.b == 0)
    nonneg = np.bincount(columns, alone[rows] & (data < 0), len(form.c)) > 0
    bounded = np.bincount(rows, ~ours[columns] & nonneg[columns] & (data < 0), len(form.b)) > 0
    size = np.abs(form.b) + np.bincount(rows, np.abs(data * x[columns]), len(form.b))
    slack = form.b - np.bincount(rows, data * x[columns], len(form.b))
    off = UNIT * np.bincount(rows, np.abs(data * known[columns]), len(form.b))
    return np.asarray(inside & (auxiliary == 1) & bounded & (slack > SLACK * size + off))


def _of_curved_cones(  # noqa: PLR0917
    form: ConicForm, x: Array, s: Array, e: Array, ours: Array, terms: float, cost: Array
) -> float:
    """T·max e over rows of exponential cones, since e to the r + δ is eʳ(1 + δ); ce/v for logarithms of v > 0; and for
    powers Σ c·p(|r| + ue)ᵖ⁻¹e ≤ p(T^(1/p) + uE)ᵖ⁻¹E with E = (Σ ceᵖ)^(1/p), by the inequalities of Hölder and
    Minkowski, with T ≥ Σ c|r|ᵖ."""
    curved = [(kind, at, extra) for kind, at, extra in form.cones.slices if kind in CURVED]
    if not curved:
        return 0.0
    rows, columns, data, found = form.A.indices, form.owners, form.A.data, 0.0
    _, off = _of_rows(form, s, e)
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
