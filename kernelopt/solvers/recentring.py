"""Penalties λ‖θ − f₀‖² as λ‖φ‖² with φ = θ − f₀: predictions are those of f₀ and of φ, and the engines find φ.

With c = the coordinates of f₀ in the span of the factor, v = c + v′ and u = Bc + Bv′. What f₀ has outside of this span
adds a constant to ‖θ − f₀‖².
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.outer import Outer, outer_of_data, shifted
from kernelopt.compiler.representer import Reduction, centre_and_rest
from kernelopt.support.types import Array, Ints

Centres = tuple[Array | None, ...]


def centres(reduction: Reduction) -> Centres:
    """c for each θ, in the shape of its v; None where its norm is not that of θ − f₀."""
    found: list[Array | None] = []
    for link in reduction.form.predictions:
        factor = reduction.factors[link.theta]
        shifted = [norm for norm in reduction.form.norms_of(link.theta).values() if norm.view.shift is not None]
        if not shifted or not factor.rank:
            found.append(None)
            continue
        c = centre_and_rest(shifted[0], factor)[0]
        found.append(c.reshape(reduction.shape_of_v(link)))
    return tuple(found)


def recentred(reduction: Reduction, outer: Outer, at: Centres) -> Outer:
    """The outer problem as a function of u − Bc."""
    if outer.pieces is not None:
        links = [np.arange(0) if k.u is None else outer.pieces.columns[k.u.id] for k in reduction.form.predictions]
        return shifted(outer, _placed(reduction, at, np.zeros(outer.pieces.n), links))
    form = outer.form
    x = _placed(reduction, at, np.zeros(len(form.c)), form.u)
    c, Px = form.c + form.P * x, form.P * x
    data = replace(form, b=form.b - form.A @ x, c=c, offset=form.offset + float(form.c @ x + 0.5 * Px @ x))
    return outer_of_data(data)


def _placed(reduction: Reduction, at: Centres, x: Array, of_u: Sequence[Ints]) -> Array:
    """x with Bc in the columns of u."""
    for link, c, columns in zip(reduction.form.predictions, at, of_u, strict=True):
        if c is not None and link.u is not None:
            x[columns] = np.ravel((reduction.factors[link.theta].B @ c)[link.take], order="F")
    return x


def back(point: Iterate, at: Centres) -> Iterate:
    """The point with v = c + v′."""
    return replace(point, v=tuple(v if c is None else v + c for v, c in zip(point.v, at, strict=True)))


def same_cut(one: Outer, other: Outer) -> bool:
    """Whether both fall apart into functions of the same numbers, in the same order."""
    a, b = one.split, other.split
    if a is None or b is None or a.E.shape != b.E.shape or a.F.shape != b.F.shape:
        return False
    return not (a.E != b.E).nnz and not (a.F != b.F).nnz
