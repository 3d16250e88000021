"""Constraints stated again in a form that solvers meet at any size: powers of norms are inverted, zeros are equations.

    g(x) ≤ R  with g increasing, g(r) = R > 0:   g′(r)(x − r) + g(r) ≤ R
    ‖θM‖ ≤ 0:                                    AθM = 0
    ‖e‖ ≤ 0, |e| ≤ 0, … for an affine e:          e = 0

x is a norm of θ, or a norm or modulus of predictions and variables, and g is made of powers, multiples and constants
around it, as in λ‖θ‖⁴ ≤ R. The cones that cvxpy makes of g lose all digits of an R that is far from 1. The first row is
x ≤ r, and the tangent of g has the multiplier of the stated constraint and, in parameters, its derivatives.

Of a bound of 0 no interior point comes near, and no multiplier exists in general. AθM = 0 at the rows A of the problem
stands for θM = 0: the part of θ in the row space of A has the same predictions and no larger norms, and where AθM = 0
for that part, θM = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import fsum
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.compiler.attributes import dense
from kernelopt.compiler.canonical_form import CanonicalForm, NormLink, PredictionLink, rewrite
from kernelopt.language.nodes import norm_from_gram
from kernelopt.support.arithmetic import UNIT
from kernelopt.support.cvxpy_parts import (
    AddExpression,
    DivExpression,
    Hstack,
    Inequality,
    MulExpression,
    NegExpression,
    Pnorm,
    PnormApprox,
    Power,
    PowerApprox,
    Sum,
    Vstack,
    multiply,
    norm1,
    normNuc,
    quad_over_lin,
    reshape,
    sigma_max,
)
from kernelopt.support.types import Array

# Relative: the bound of a restated row is larger by this, for the rounding of roots and slopes, so that what is proven
# for the row holds for the stated constraint. It is far below the violations that count as rounding.
ROOM = 32 * UNIT
# Relative to the terms of a sum: where constants leave less of a bound, its digits are those of the constants.
CANCELLED = 1e-3
# Functions of one expression that are 0 where all of it is 0, and positive elsewhere.
DEFINITE = (Pnorm, PnormApprox, norm1, cp.norm_inf, normNuc, sigma_max, cp.abs, cp.huber, quad_over_lin)
# Functions of nonnegative expressions that are 0 where all of them are 0, and positive elsewhere.
INCREASING = (cp.max, cp.maximum, Sum, AddExpression, Hstack, Vstack, reshape, cp.Pnorm)


@dataclass(frozen=True, eq=False)
class Restated:
    """A form, and the values of the parameters that its restated constraints depend on."""

    form: CanonicalForm
    values: tuple[tuple[cp.Parameter, Array | None], ...] = ()

    @property
    def is_current(self) -> bool:
        """Whether these parameters still have the values for which the constraints were restated."""
        return all(
            (p.value is None) == (value is None) and (value is None or np.array_equal(dense(p.value), value))
            for p, value in self.values
        )


@dataclass(frozen=True, eq=False)
class _Chain:
    """g around x: g(r) = R, the slope g′(r), and g as a function of another argument in place of x."""

    x: Any
    r: Array
    slope: Array
    g: Callable[[Any], Any]
    curved: bool = False


def restated(form: CanonicalForm) -> Restated:
    """The form with constraints restated for the values that parameters have now."""
    instead: list[list[Any]] = []
    parameters: dict[int, cp.Parameter] = {}
    for constraint in form.outer.constraints:
        sides, chain = _sides(constraint), _chain_of(constraint)
        parameters |= {p.id: p for p in ([] if sides is None else constraint.parameters())}
        empty = _without_a_point(constraint) if chain is None else None
        instead.append(empty or [constraint] if chain is None else _instead(form, constraint, chain))
    values = tuple((p, None if p.value is None else np.array(dense(p.value))) for p in parameters.values())
    if all(len(new) == 1 and new[0] is old for new, old in zip(instead, form.outer.constraints, strict=True)):
        return Restated(form, values)
    pinned = [c for c, new in zip(form.outer.constraints, instead, strict=True) if _forgets(c, new)]
    parts = [part for several in instead for part in several]
    outer = cp.Problem(form.outer.objective, [part for part in parts if not isinstance(part, PredictionLink)])
    gone = {id(part.u): part for part in parts if isinstance(part, PredictionLink)}
    known = {i: cp.Constant(np.zeros(link.u.shape)) for i, link in gone.items() if link.u is not None}
    at_zero = [norm for norm in form.norms if any(link.theta is norm.view.theta for link in gone.values())]
    known |= {id(norm.t): _of_centre(norm) for norm in at_zero if norm.view.shift is not None}
    outer = rewrite(outer, known)
    links = tuple(_of_nothing(link) if id(link.u) in gone else link for link in form.predictions)
    present = {v.id for v in outer.variables()}
    norms = tuple(norm for norm in form.norms if norm.t.id in present)
    return Restated(replace(form, outer=outer, predictions=links, norms=norms, pinned=tuple(pinned)), values)


def _forgets(constraint: Any, instead: list[Any]) -> bool:
    """Whether the constraints in place of one lack a parameter of it."""
    left = {p.id for part in instead if not isinstance(part, PredictionLink) for p in part.parameters()}
    return any(p.id not in left for p in constraint.parameters())


def _of_nothing(link: PredictionLink) -> PredictionLink:
    """The link of a θ that is 0: it has no rows."""
    none = link.take[:0]
    return replace(link, rows=link.rows.subset(none), take=none, origin=none, u=None, blocks=())


def _of_centre(norm: NormLink) -> cp.Constant:
    """‖θM − f₀‖ where θ is 0."""
    assert norm.view.shift is not None
    return cp.Constant(norm_from_gram(norm.view.shift.gram(), norm.kind))


def _sides(constraint: Any) -> tuple[Any, Any] | None:
    """(e, R) of a constraint e ≤ R with a constant R, also where it is stated as −R ≤ −e; None for other ones."""
    if not isinstance(constraint, Inequality):
        return None
    left, right = constraint.args
    if left.is_constant() and isinstance(right, NegExpression):
        left, right = right.args[0], -left
    kind = not left.is_constant() and (not left.is_affine() or left.is_nonneg())
    return (left, right) if right.is_constant() and kind and left.shape == constraint.shape else None


def _chain_of(constraint: Any) -> _Chain | None:
    """The chain of powers around a norm, None where the constraint is of another kind."""
    sides = _sides(constraint)
    if sides is None or any(p.value is None for p in constraint.parameters()):
        return None
    bound = np.broadcast_to(np.asarray(dense(sides[1].value), dtype=float), constraint.shape)
    return _peeled(sides[0], bound) if np.all(bound >= 0) or isinstance(sides[0], AddExpression) else None


def _without_a_point(constraint: Any) -> list[Any] | None:
    """x ≤ −1 in place of g(x) ≤ R for g ≥ 0 and R < 0, of which cones that are nearly 0 tell little; None otherwise."""
    sides = _sides(constraint)
    if sides is None or not sides[0].is_nonneg() or any(p.value is None for p in constraint.parameters()):
        return None
    bound = np.broadcast_to(np.asarray(dense(sides[1].value), dtype=float), constraint.shape)
    chain = _peeled(sides[0], np.abs(bound)) if np.any(bound < 0) else None
    return None if chain is None or not chain.curved else [chain.x <= -1]


@np.errstate(all="ignore")
def _peeled(node: Any, bound: Array) -> _Chain | None:
    """The chain of node ≤ bound; None where it has no point."""
    if np.any(bound < 0):
        return None
    if isinstance(node, (Power, PowerApprox)):
        return _of_power(node, bound)
    if isinstance(node, quad_over_lin) and node.axis is None and _is_positive(node.args[1]):
        e, c = node.args
        x = e if e.size == 1 and e.is_nonneg() else cp.norm(cp.vec(e, order="F"))
        r = np.sqrt(bound * dense(c.value))
        return _Chain(x, r, 2 * r / dense(c.value), lambda x: cp.square(x) / c, True)
    if isinstance(node, (multiply, MulExpression, DivExpression)):
        return _of_multiple(node, bound)
    if isinstance(node, AddExpression):
        return _of_sum(node, bound)
    return _Chain(node, bound, np.ones_like(bound), lambda x: x)


def _of_power(node: Any, bound: Array) -> _Chain | None:
    """xᵖ ≤ R as x ≤ R^(1/p), also with |e| for x where p is even."""
    e, p = node.args[0], float(node.p.value)
    x = e if e.is_nonneg() else cp.abs(e) if p % 2 == 0 and e.is_affine() else None
    if p <= 1 or x is None:
        return _Chain(node, bound, np.ones_like(bound), lambda x: x)
    inner = _peeled(x, np.sqrt(bound) if p == 2 else bound ** (1 / p))
    if inner is None:
        return None
    root = np.sqrt(bound) if p == 2 else bound ** (1 / p)
    slope = p * root ** (p - 1) * inner.slope
    return replace(inner, slope=slope, g=lambda x: cp.power(inner.g(x), p, approx=False), curved=True)


def _of_multiple(node: Any, bound: Array) -> _Chain | None:
    """we ≤ R as e ≤ R/w, and e/w ≤ R as e ≤ wR, for numbers w > 0."""
    first, second = node.args
    w, e = (second, first) if isinstance(node, DivExpression) or second.is_constant() else (first, second)
    is_product = isinstance(node, MulExpression) and not isinstance(node, multiply)
    if not _is_positive(w) or e.shape != node.shape or (is_product and w.size > 1):
        return _Chain(node, bound, np.ones_like(bound), lambda x: x)
    known = np.asarray(dense(w.value), dtype=float)
    factor = 1 / known if isinstance(node, DivExpression) else known
    inner = _peeled(e, bound / known if not isinstance(node, DivExpression) else bound * known)
    if inner is None:
        return None
    if isinstance(node, DivExpression):
        return replace(inner, slope=factor * inner.slope, g=lambda x: inner.g(x) / w)
    return replace(inner, slope=factor * inner.slope, g=lambda x: cp.multiply(w, inner.g(x)))


def _of_sum(node: Any, bound: Array) -> _Chain | None:
    """e + c ≤ R as e ≤ R − c, where the constants c leave digits."""
    constants = [a for a in node.args if a.is_constant()]
    others = [a for a in node.args if not a.is_constant()]
    if len(others) == 1 and others[0].shape == node.shape:
        known = [np.asarray(dense(c.value), dtype=float) for c in constants]
        terms = np.broadcast_arrays(bound, *(-c for c in known))
        size = sum(map(np.abs, terms))
        if not np.isfinite(size).all():  # a sum that may overflow
            return _Chain(node, bound, np.ones_like(bound), lambda x: x)
        left = np.vectorize(lambda *several: fsum(several), otypes=[float])(*terms)  # rounded once
        if np.all((left == 0) | (np.abs(left) > CANCELLED * size)):
            inner = _peeled(others[0], np.broadcast_to(left, node.shape))
            return inner and replace(inner, g=lambda x: inner.g(x) + sum(constants[1:], constants[0]))
    return _Chain(node, bound, np.ones_like(bound), lambda x: x)


def _is_positive(node: Any) -> bool:
    return bool(node.is_constant() and node.value is not None and np.all(dense(node.value) > 0))


def _instead(form: CanonicalForm, constraint: Any, chain: _Chain) -> list[Any]:
    """The constraints in place of one: that itself where nothing is gained."""
    if not chain.r.any():
        zeros = _zeros(form, chain.x)
        if constraint.parameters() and any(isinstance(part, PredictionLink) for part in zeros or ()):
            zeros = None  # θ comes back with other values, for which the multipliers at θ = 0 are a proof
        return [chain.x <= 0] if zeros is None and chain.curved else zeros or [constraint]
    level, at_zero = chain.slope * chain.r * (1 + ROOM), chain.r == 0
    equations = _of_rows(form, chain.x, at_zero) if at_zero.any() else None
    if equations is not None:
        rest = np.flatnonzero(~at_zero)
        rows = cp.multiply(chain.slope[rest], chain.x[rest]) <= level[rest]
        return [*equations, rows]
    if not chain.curved or not np.all(at_zero | ((chain.slope > 0) & np.isfinite(level) & (level > 0))):
        return [constraint]
    if at_zero.any():  # some rows are equations, which have no multipliers
        return [Inequality(cp.multiply(np.where(at_zero, 1.0, chain.slope), chain.x), cp.Constant(level))]
    if not constraint.parameters():
        return [Inequality(cp.multiply(chain.slope, chain.x), cp.Constant(level), constraint.id)]
    sides = _sides(constraint)
    assert sides is not None
    return [
        Inequality(cp.multiply(chain.slope, chain.x) + chain.g(cp.Constant(chain.r)), sides[1] + level, constraint.id)
    ]


def _zeros(form: CanonicalForm, x: Any) -> list[Any] | None:
    """Equations that hold exactly where x ≤ 0, for a nonnegative x; None where x is of another kind.

    The link of a θ stands for the equation θ = 0.
    """
    for norm in form.norms:
        if x is norm.t:
            (link,) = (link for link in form.predictions if link.theta is norm.view.theta)
            if norm.view.shift is not None or link.u is None:
                return None
            M = norm.right
            return [link] if np.linalg.matrix_rank(M) == len(M) else [link.u @ M == 0]
    if isinstance(x, INCREASING) and all(a.is_nonneg() for a in x.args):
        return _all_zero(form, x.args)
    if isinstance(x, (multiply, DivExpression)) and any(map(_is_positive, x.args)):
        return _all_zero(form, [a for a in x.args if not a.is_constant()])
    is_definite = isinstance(x, DEFINITE) and all(map(_is_positive, [*x.args[1:], *_widths(x)]))
    if is_definite or (isinstance(x, (Power, PowerApprox)) and x.p.value > 1):
        e = x.args[0]
        if e.is_nonneg() and not (e.is_affine() and _is_stated(form, e)):
            return _all_zero(form, [e])
        if not _is_stated(form, e):
            return None
        return [e == 0] if e.is_affine() else None
    return None


def _widths(x: Any) -> list[Any]:
    """M of cp.huber, which is 0 everywhere for M = 0."""
    return [x.M] if isinstance(x, cp.huber) else []


def _of_rows(form: CanonicalForm, x: Any, at_zero: Array) -> list[Any] | None:
    """Equations of the entries of x that are 0, for complex moduli, powers, and largest moduli of rows, of which
    solvers find no interior; None for other x."""
    kinds = (cp.abs, cp.norm_inf, Power, PowerApprox)
    e = x.args[0] if isinstance(x, kinds) and x.ndim == 1 else None
    if e is None or not e.is_affine() or not _is_stated(form, e):
        return None
    zeros = np.flatnonzero(at_zero)
    if isinstance(x, (Power, PowerApprox)):
        return [e[zeros] == 0] if x.p.value > 1 else None
    if isinstance(x, cp.abs):
        return [e[zeros] == 0] if e.is_complex() else None
    if e.ndim != 2 or x.axis not in (0, 1):
        return None
    return [(e[:, zeros] if x.axis == 0 else e[zeros, :]) == 0]


def _is_stated(form: CanonicalForm, e: Any) -> bool:
    """Whether no norm of θ stands in an expression, so that it may be an equation's side."""
    norms = {norm.t.id for norm in form.norms}
    return not any(v.id in norms for v in e.variables())


def _all_zero(form: CanonicalForm, nodes: list[Any]) -> list[Any] | None:
    """The equations of all of them; None where some are of another kind."""
    found = [_zeros(form, node) for node in nodes if not node.is_constant() or np.any(dense(node.value))]
    return None if any(part is None for part in found) else [c for part in found for c in part or ()]
