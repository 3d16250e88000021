"""How close an answer is to the optimum of the problem that was stated, with the full kernel matrix.

With multipliers ν of u = Aθ and μ of ‖θ‖ ≤ t, θ leaves the Lagrangian iff √(νᵀQν) ≤ μ, so that

    D(ν, μ) = inf over (u, t ≥ 0, y) of  f(u, t, y) + νᵀu − μt

bounds the optimum from below. It is evaluated on the dual side of the outer problem, at a point that is dual feasible
up to rounding; νᵀQν comes from a pass over the kernel's own values, not from the factor.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, isfinite
from time import perf_counter

import numpy as np

from kernelopt.certificate import conic, conjugates
from kernelopt.certificate.conic import ABSOLUTE_FLOOR
from kernelopt.certificate.multipliers import CHEAP, FROM_FACTOR, PRODUCTS, SAMPLED, STREAMED, norm_multipliers
from kernelopt.certificate.report import ESTIMATE, FULL, REDUCED, Certificate, Lower
from kernelopt.compiler import representer
from kernelopt.compiler.conic_form import ConicForm
from kernelopt.compiler.representer import Reduction
from kernelopt.compiler.separable import Outer
from kernelopt.expressions import Theta
from kernelopt.factorization.dense import ProjectedFactor
from kernelopt.kernels.domains import Array
from kernelopt.nodes import EUCLIDEAN, norm_from_gram
from kernelopt.solvers import outer, own

LOOSE = 0.1  # a widening beyond this share of the value is no first order
WAYS = {FULL: STREAMED, REDUCED: FROM_FACTOR, ESTIMATE: SAMPLED}


def certify(  # noqa: PLR0917
    reduction: Reduction, data: Outer, value: float, scope: str = FULL,
    tol: float = 0.0, abs_tol: float | None = None, slopes: Array | None = None, known: Lower | None = None,
    products: bool = False,
) -> Certificate:  # fmt: skip
    """The certificate of the point that stands on the reduction's variables, whose objective value is `value`.

    scope FULL pays a pass over the kernel unless the factor has full numerical rank and the trace of what it leaves
    is enough to close the gap to `tol` or `abs_tol`; REDUCED reads the factor only; ESTIMATE samples. `slopes` are
    those of the functions of the finest cut, where the solver knows them. A `known` bound of the same problem with the
    full kernel stands where it is the better one. With `products` the pass over the kernel gives Qν too.
    """
    start = perf_counter()
    nu = solver_multipliers(reduction)
    upper = _upper(reduction, data, value)

    def assembled(way: str, scope: str) -> Certificate:
        bound = _lower(reduction, data, nu, slopes, way)
        if bound is not None and scope != REDUCED and reduction.is_restriction and bound.assumes_radius:
            # No norm of θ: a span of lower rank says nothing about the whole of it.
            return assembled(FROM_FACTOR, REDUCED)
        best = bound
        if known is not None and scope == FULL and not known.assumptions:
            best = known if bound is None or bound.assumptions or known.value > bound.value else bound
        found = _assembled(reduction, data, best, upper, scope)
        return replace(found, latest=bound, seconds=perf_counter() - start)

    exact = all(factor.is_exact for factor in reduction.factors.values())
    if scope == FULL and exact and not reduction.is_restriction:
        found = assembled(CHEAP, FULL)
        if found.closes(tol, abs_tol):
            return found
    return assembled(PRODUCTS if products and scope == FULL else WAYS[scope], scope)


def certify_without_pass(
    reduction: Reduction, data: Outer, value: float, slopes: Array | None = None, known: Lower | None = None
) -> Certificate:
    """What can be said at once: a `known` bound with the full kernel, where there is one, else what the factor says."""
    if known is None or known.assumptions:
        return certify(reduction, data, value, REDUCED, slopes=slopes)
    return _assembled(reduction, data, known, _upper(reduction, data, value), FULL)


def certify_again(reduction: Reduction, data: Outer, value: float, known: Certificate) -> Certificate | None:
    """A certificate for other values of parameters, from the multipliers of a known one: no pass over the kernel.

    `data` and `value` are those of the outer problem for the new values. None where the multipliers no longer apply.
    """
    start, lower = perf_counter(), known.evidence
    if lower is None:
        return None
    if lower.slopes is not None:
        pieces = data.split if lower.finest else data.pieces
        if pieces is None or not conjugates.is_admissible(pieces, lower):
            return None
        bound = conjugates.evaluate(data.form, pieces, lower.slopes, lower.multipliers, lower.grams)
    else:
        bound = conic.evaluate_again(reduction, data.form, lower)
    if bound is None:
        return None
    found = _assembled(reduction, data, bound, _upper(reduction, data, value), known.scope)
    return replace(found, seconds=perf_counter() - start)


def _lower(reduction: Reduction, data: Outer, nu: list[Array], slopes: Array | None, way: str) -> Lower | None:
    """By conjugates where the outer problem is separable, else from its cone form."""
    bound = None
    if slopes is None and data.form.smooth:
        slopes = _slopes_here(reduction, data)
    if slopes is not None and data.split is not None:
        bound = conjugates.lower_bound(reduction, data.form, data.split, slopes, way)
        bound = None if bound is None else replace(bound, finest=True)
    if bound is None and data.pieces is not None:
        flat = -np.concatenate([n.ravel(order="F") for n in nu])
        bound = conjugates.lower_bound(reduction, data.form, data.pieces, flat, way)
    if data.form.smooth:
        return bound  # cones know nothing of smooth losses
    return bound or conic.lower_bound(reduction, data.form, nu, norm_multipliers(reduction, data.form, nu), way)


def _slopes_here(reduction: Reduction, data: Outer) -> Array | None:
    """A subgradient of each function of the finest cut, at the values that stand on the variables."""
    split, y = data.split, [np.ravel(v.value, order="F") for v in reduction.form.y]
    if split is None or not np.array_equal(split.y, data.form.y):
        return None  # auxiliary variables have no values
    u = [np.ravel(link.u.value, order="F") for link in reduction.form.predictions if link.u is not None]
    return split.derivative(split.arguments(np.concatenate(u), np.concatenate([np.zeros(0), *y])))


def _upper(reduction: Reduction, data: Outer, value: float) -> tuple[float, float, float | None]:
    """The upper bound, by how much it was widened, and P₀, all of the minimized problem."""
    widened, t = _widening(reduction), _norms_at_zero(reduction)
    at_zero = None
    pieces = data.split or data.pieces
    if pieces is not None and not data.form.smooth:
        at_zero = conjugates.value_at_zero(data.form, pieces, t)
    if data.form.smooth:
        at_zero = None if t.any() else own.value_at_zero(reduction, data)
    elif at_zero is None:
        fixed = np.concatenate([np.zeros(sum(map(len, data.form.u))), t])
        at_zero = outer.value_at(data.form, fixed)
    known = at_zero is not None and isfinite(at_zero)
    return data.form.sign * value + widened, widened, at_zero if known else None


def _assembled(
    reduction: Reduction, data: Outer, bound: Lower | None, numbers: tuple[float, float, float | None], scope: str
) -> Certificate:
    """Bounds put together, in the stated problem's sense."""
    form, (upper, widened, at_zero) = data.form, numbers
    ranks = tuple((reduction.factors[link.theta].rank, len(link.rows)) for link in reduction.form.predictions)
    lower = -inf if bound is None or not isfinite(bound.value) else bound.value
    rounding = (0.0 if bound is None else bound.rounding) + 8 * float(np.finfo(float).eps) * abs(upper)
    terms = 0.0 if bound is None else bound.terms
    floor = ABSOLUTE_FLOOR * max(terms, form.units[1])
    assumptions = [] if bound is None else list(bound.assumptions)
    attained = abs(upper - widened - form.offset)
    if lower > upper + rounding + floor or widened > LOOSE * max(attained, form.units[1]):
        # The lower bound is the one that does not rest on constraints holding only nearly, to first order.
        upper = inf
        assumptions.append(f"no {'upper' if form.sign > 0 else 'lower'} bound: constraints hold too loosely")
    lower = min(lower, upper)
    at_zero = None if at_zero is None or at_zero < lower else at_zero  # rounding hides it
    projected = tuple(f.method for f in reduction.factors.values() if isinstance(f, ProjectedFactor))
    low, high = (lower, upper) if form.sign > 0 else (-upper, -lower)
    return Certificate(
        lower=low, upper=high, scope=scope, ranks=ranks,
        assumptions=(*assumptions, *(f"kernel matrix projected: {m}" for m in projected)),
        widened=widened, rounding=rounding, floor=floor,
        at_zero=None if at_zero is None else form.sign * at_zero, maximize=form.sign < 0,
        seconds=0.0, evidence=bound,
        distance=_distances(reduction, form, upper - lower + rounding) if scope == FULL else {},
    )  # fmt: skip


def _distances(reduction: Reduction, form: ConicForm, gap: float) -> dict[Theta, float]:
    """‖θ̂ − θ*‖ ≤ √(gap/λ) for each θ with a penalty λ‖θ − f₀‖²."""
    found: dict[Theta, float] = {}
    for norm, column in zip(reduction.form.norms, form.t, strict=True):
        strength, theta = form.P[column] / 2, norm.view.theta
        if strength > 0 and isfinite(gap) and norm.kind in (EUCLIDEAN, "fro") and norm.view.right is None:
            found[theta] = min(float(np.sqrt(max(gap, 0.0) / strength)), found.get(theta, inf))
    return found


def solver_multipliers(reduction: Reduction) -> list[Array]:
    """ν of each link as the solver left it; zero where it left none."""
    found = []
    for link in reduction.form.predictions:
        constraint = reduction.links[link.theta]
        nu = None if constraint is None else constraint.dual_value
        shape = () if link.u is None else link.u.shape
        found.append(np.zeros(shape if link.u is not None else (0,)) if nu is None else np.asarray(nu, dtype=float))
    return found


def _norms_at_zero(reduction: Reduction) -> Array:
    """‖f₀‖ for each norm: its value at θ = 0."""
    return np.array([
        0.0 if n.view.shift is None else norm_from_gram(n.view.shift.gram(), n.kind) for n in reduction.form.norms
    ])  # fmt: skip


def _widening(reduction: Reduction) -> float:
    """Σ|multiplier|·|residual| over the constraints of the outer problem: the first-order cost of meeting them."""
    duals = {c.id: c.dual_value for c in reduction.problem.constraints}
    total = 0.0  # twice the first order, since multipliers are known only nearly
    for constraint in reduction.form.outer.constraints:
        residual, dual = representer.residual(constraint), duals.get(constraint.id)
        if not residual.any() or dual is None:
            continue
        sizes = [
            np.abs(np.asarray(d, dtype=float)) for d in (dual if isinstance(dual, list) else [dual]) if d is not None
        ]
        if len(sizes) == 1 and sizes[0].shape == residual.shape:
            total += 2 * float((sizes[0] * residual).sum())
        else:  # cones: ‖z‖₁ bounds what a shift of all entries by the residual can cost
            total += 2 * sum(float(d.sum()) for d in sizes) * float(residual.max(initial=0.0))
    return total
