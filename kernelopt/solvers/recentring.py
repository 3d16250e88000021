"""Penalties λ‖θ − f₀‖² as λ‖φ‖² with φ = θ − f₀: predictions are those of f₀ and of φ, and the engines find φ.

With c = the coordinates of f₀ in the span of the factor, v = c + v′ and u = Bc + Bv′. What f₀ has outside of this span
adds a constant to ‖θ − f₀‖².
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.outer import Outer, shifted
from kernelopt.compiler.representer import Reduction, centre_and_rest
from kernelopt.support.types import Array

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
    pieces = outer.pieces
    assert pieces is not None
    x = np.zeros(pieces.n)
    for link, c in zip(reduction.form.predictions, at, strict=True):
        if c is not None and link.u is not None:
            Bc = (reduction.factors[link.theta].B @ c)[link.take]
            x[pieces.columns[link.u.id]] = np.ravel(Bc, order="F")
    return shifted(outer, x)


def back(point: Iterate, at: Centres) -> Iterate:
    """The point with v = c + v′."""
    return replace(point, v=tuple(v if c is None else v + c for v, c in zip(point.v, at, strict=True)))
