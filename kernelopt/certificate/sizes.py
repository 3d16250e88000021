"""The sizes of what an objective is a sum and difference of: its value at a point is off by so many roundings.

A loss takes differences of numbers that may be far larger than itself, y − f for |y − f|. In the cone data these stand
in the rows of its auxiliary columns, one behind the other where losses are nested.
"""

from __future__ import annotations

import numpy as np

from kernelopt.arithmetic import euclidean
from kernelopt.compiler.conic_form import ConicForm
from kernelopt.kernels.domains import Array, Ints

DEPTH = 12  # auxiliary columns that stand behind each other
CURVED = ("exp", "power", "generalized_power")
SLACK = 2.0**-44  # of a row's size: a row that holds by more than that is not at its kink


def inside(form: ConicForm, x: Array, slopes_of_g: Array, terms: float) -> float:
    """Σ |cⱼ|sⱼ + √(2T·Σ Pⱼsⱼ²) over auxiliary columns and arguments of smooth losses, with sⱼ = (|b| + |A|s)ᵢ/|Aᵢⱼ| in
    the largest of their rows, cones counted as one row; and what exponentials, powers and logarithms multiply it by.

    x : the point on columns of u, t and the user's variables, 0 elsewhere; slopes_of_g : |w ℓ′(g)| on arguments g
    """
    ours = np.zeros(len(form.c), dtype=bool)
    ours[np.concatenate([form.linked, form.y, *(np.append(s.g, s.h) for s in form.smooth)]).astype(int)] = True
    s = _propagated(form, x, ours)
    cost, curvature = np.where(ours, 0.0, np.abs(form.c)), np.where(ours, 0.0, form.P)
    of_g = [np.arange(0), *(smooth.g for smooth in form.smooth)]
    s[np.concatenate(of_g).astype(int)] = _arguments(form, x, np.concatenate(of_g).astype(int))
    plain = float((cost + slopes_of_g) @ s) + float(np.sqrt(2 * terms)) * euclidean(np.sqrt(curvature) * s)
    return plain + _of_curved_cones(form, x, s, ours, terms, cost)


def _arguments(form: ConicForm, x: Array, g: Ints) -> Array:
    """The sizes of arguments g of smooth losses: those of their equalities."""
    rows, values = form.A.indices, np.abs(form.A.data)
    total = np.abs(form.b) + np.bincount(rows, values * np.abs(x)[form.owners], len(form.b))
    largest = np.zeros(len(form.c))
    some = values > 0
    np.maximum.at(largest, form.owners[some], total[rows[some]] / values[some])
    return largest[g]


def _propagated(form: ConicForm, x: Array, ours: Array) -> Array:
    """s: |x| on our columns, and for auxiliary ones what their rows are sums of, from our columns onwards."""
    rows, columns, values = form.A.indices, form.owners, np.abs(form.A.data)
    block, curved = _blocks(form)
    several = (np.bincount(block[rows], minlength=len(form.b))[block[rows]] > 1) & ~curved[rows]
    counted = several & (values > 0) & ~_idle(form, x, ours)[rows]
    s, unknown = np.where(ours, np.abs(x), 0.0), ~ours
    for _ in range(DEPTH):
        if not unknown.any():
            break
        total = np.bincount(block, np.abs(form.b) + np.bincount(rows, values * s[columns], len(form.b)), len(form.b))
        others = np.bincount(block[rows], unknown[columns], len(form.b))[block[rows]] - unknown[columns]
        waits = np.bincount(columns, several & (others > 0), len(s)) > 0
        able = np.bincount(columns, several & (others == 0), len(s)) > 0
        ready = unknown & ~waits
        ready = ready if ready.any() else unknown & able
        ready = ready if ready.any() else unknown
        here = counted & ready[columns]
        np.maximum.at(s, columns[here], total[block[rows[here]]] / values[here])
        unknown = unknown & ~ready
    return s


def _blocks(form: ConicForm) -> tuple[Ints, Array]:
    """For each row the first one of its cone, linear rows being for themselves, and whether that is an exponential or a
    power cone."""
    block, curved = np.arange(len(form.b)), np.zeros(len(form.b), dtype=bool)
    for kind, at, _ in form.cones.slices:
        curved[at] = kind in CURVED
        if kind not in ("zero", "nonneg", *CURVED):
            block[at] = at.start
    return block, curved


def _idle(form: ConicForm, x: Array, ours: Array) -> Array:
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
    return np.asarray(inside & (auxiliary == 1) & bounded & (slack > SLACK * size))


def _of_curved_cones(  # noqa: PLR0917
    form: ConicForm, x: Array, s: Array, ours: Array, terms: float, cost: Array
) -> float:
    """T·max s over rows of exponential cones, since e to the r + δ is eʳ(1 + δ); cδ/v for logarithms of v > 0; and for
    powers Σ c·p|r|ᵖ⁻¹s ≤ p(Σ c|r|ᵖ)^(1−1/p)·(Σ csᵖ)^(1/p), by Hölder's inequality, with T ≥ Σ c|r|ᵖ."""
    curved = [(kind, at, extra) for kind, at, extra in form.cones.slices if kind in CURVED]
    if not curved:
        return 0.0
    rows, columns, data, found = form.A.indices, form.owners, form.A.data, 0.0
    total = np.abs(form.b) + np.bincount(rows, np.abs(data) * s[columns], len(form.b))
    of_powers: dict[float, float] = {}
    for kind, at, extra in curved:
        if kind == "power":
            of_powers[float(extra)] = of_powers.get(float(extra), 0.0) + float(total[at.start + 2] ** (1 / extra))
        else:
            found += terms * float(total[at].max(initial=0.0))
    for a, size in of_powers.items():
        found += terms ** (1 - a) * (float(cost.max(initial=0.0)) * size) ** a / a
    weight = np.zeros(len(form.b))
    np.maximum.at(weight, rows, cost[columns])
    first = form.cones.exponentials
    first = first[(np.bincount(rows, ~ours[columns], len(form.b))[first + 2] == 0) & (weight[first] > 0)]
    v = np.abs(form.b - np.bincount(rows, data * x[columns], len(form.b)))[first + 2]
    ratio = np.divide(total[first + 2], v, out=np.zeros(len(v)), where=v > 0)
    return found + float(weight[first] @ ratio)
