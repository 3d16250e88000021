"""Convex models of problems with losses that are declared nonconvex, by proximal linearization.

At predictions uₖ, each such loss ℓ is replaced by

    m(u) = ℓ(uₖ) + ℓ′(uₖ)(u − uₖ) + ½w(u − uₖ)²,   w = max(ℓ″(uₖ), 0) + damping·c,

with c the largest |ℓ″(uₖ)|, and all other terms and constraints stay. m has the value and the slope of ℓ at uₖ, so that
no point near uₖ is better, to first order, where the model has its optimum there (Drusvyatskiy and Paquette,
Mathematical Programming 178, 2019).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.compiler.canonical_form import CanonicalForm, SmoothLink, rewrite
from kernelopt.compiler.iterate import Iterate, place
from kernelopt.support.types import Array


@dataclass(frozen=True, eq=False)
class LinearizedLoss:
    """The parameters of one loss: √(w/2), √(w/2)·uₖ, the slope ℓ′, and ℓ − ℓ′uₖ."""

    link: SmoothLink
    root: cp.Parameter
    centre: cp.Parameter
    slope: cp.Parameter
    constant: cp.Parameter


@dataclass(frozen=True, eq=False)
class ConvexModel:
    """The convex problem, whose data are set by `linearize`."""

    form: CanonicalForm
    losses: tuple[LinearizedLoss, ...]


def lacks(form: CanonicalForm) -> str | None:
    """Why a form has no such models, or None."""
    bent = {link.h.id for link in form.smooth if not link.term.loss.is_convex}
    if not bent:
        return "is for losses that are declared nonconvex"
    if any(v.id in bent for c in form.outer.constraints for v in c.variables()):
        return "needs nonconvex losses in the objective, not in constraints"
    if not form.outer.is_dcp():
        return "needs a convex problem beside nonconvex losses"
    return None


def model_of(form: CanonicalForm) -> ConvexModel:
    """The model of a form for which nothing is lacking. Its constraints keep their ids."""
    losses = tuple(_of(link) for link in form.smooth if not link.term.loss.is_convex)
    dropped = {one.link.equal.id for one in losses}
    replaced = {}
    for one in losses:
        u = one.link.equal.args[1]
        square = cp.square(cp.multiply(one.root, u) - one.centre)
        replaced[id(one.link.h)] = square + cp.multiply(one.slope, u) + one.constant
    kept = [c for c in form.outer.constraints if c.id not in dropped]
    outer = rewrite(cp.Problem(form.outer.objective, kept), replaced)
    by_id = {c.id: c for c in outer.constraints}
    convex = tuple(replace(link, equal=by_id[link.equal.id]) for link in form.smooth if link.term.loss.is_convex)
    return ConvexModel(replace(form, outer=outer, smooth=convex), losses)


def _of(link: SmoothLink) -> LinearizedLoss:
    shape = link.g.shape
    return LinearizedLoss(
        link, cp.Parameter(shape, nonneg=True), cp.Parameter(shape), cp.Parameter(shape), cp.Parameter(shape)
    )


def linearize(model: ConvexModel, form: CanonicalForm, point: Iterate, damping: float) -> None:
    """Set the model's data at a point of the stated form."""
    place(form, point)
    for one in model.losses:
        loss, shape = one.link.term.loss, one.link.g.shape
        u, *data = (_flat(a.value, shape) for a in (one.link.g, *one.link.term.args[1:]))
        u = np.where(loss.inside(u), u, loss.anywhere)
        value, slope, bend = (loss.evaluate(which, u, tuple(data)) for which in ("value", "gradient", "hessian"))
        typical = float(np.abs(bend).max(initial=0.0)) or 1.0
        root = np.sqrt(0.5 * (np.maximum(bend, 0.0) + damping * typical))
        one.root.value, one.centre.value = _shaped(root, shape), _shaped(root * u, shape)
        one.slope.value, one.constant.value = _shaped(slope, shape), _shaped(value - slope * u, shape)


def _flat(value: Any, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(np.asarray(value, dtype=float), shape).ravel(order="F")


def _shaped(values: Array, shape: tuple[int, ...]) -> Array:
    return values.reshape(shape, order="F")


def as_stated(model: ConvexModel, form: CanonicalForm, point: Iterate) -> Iterate:
    """A point of the model with y in the order of the stated form."""
    values = {v.id: value for v, value in zip(model.form.y, point.y, strict=True)}
    return replace(point, y=tuple(values[v.id] for v in form.y))
