"""The certificate of an answer: an enclosure of the optimum of the stated problem, with the full kernel matrix.

With multipliers ν of u = Aθ and μ of ‖θ‖ ≤ t, θ leaves the Lagrangian iff √(νᵀQν) ≤ μ, so that

    D(ν, μ) = inf over (u, t ≥ 0, y) of  f(u, t, y) + νᵀu − μt

bounds the optimum from below. It is evaluated on the dual side of the outer problem, at a point that is dual feasible
up to rounding. νᵀQν comes from a pass over the kernel's own values, or from the factor with a bound on its error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, isfinite, nan, nextafter
from typing import Any, NamedTuple

import numpy as np

from kernelopt.certificate import checker, cone_bounds, conjugates, on_pieces, pieces_checker
from kernelopt.certificate import sizes as sizes_of
from kernelopt.certificate.claim import Bound
from kernelopt.certificate.gram import (
    CHEAP,
    DIAGONAL,
    FIRST_LOOK,
    FROM_FACTOR,
    PRODUCTS,
    SAMPLED,
    STREAMED,
    Gram,
    as_computed,
)
from kernelopt.certificate.handover import checked, free_features
from kernelopt.certificate.multipliers import norm_multipliers, row_coefficients
from kernelopt.certificate.report import (
    CAP,
    ESTIMATE,
    FULL,
    LAST_DIGITS,
    REDUCED,
    WORD,
    WORD_REDUCED,
    Certificate,
    Lower,
)
from kernelopt.compiler import projection, representer
from kernelopt.compiler.attributes import dense
from kernelopt.compiler.canonical_form import CanonicalForm, NormLink
from kernelopt.compiler.conic_form import ConicForm
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.least import least
from kernelopt.compiler.representer import Reduction
from kernelopt.compiler.separable import Outer
from kernelopt.compiler.stated_pieces import pieces_of
from kernelopt.language.expressions import Theta
from kernelopt.language.nodes import EUCLIDEAN, norm_from_gram
from kernelopt.solvers import engines, outer_dual
from kernelopt.solvers.outer_dual import PROXIMAL
from kernelopt.support import clock
from kernelopt.support.arithmetic import UNIT, gamma
from kernelopt.support.singular import singular_values
from kernelopt.support.types import Array

# Relative to T, the sum of the sizes of the objective's terms: θ = 0 counts as optimal where no θ can improve the
# objective by more. It is also the gap to which better multipliers are sought where the caller names no tolerance.
# Smaller values leave a gap open that solvers do not close; larger ones accept θ = 0 too early.
ZERO = 1e-8
# In units of the objective's data: above the least sum of all losses by this, multipliers of 0 close no gap.
FLAT = 1e-6
# Relative to P₀ − P, the improvement over θ = 0: errors of predictions up to this may raise the floor of the gap. No
# multipliers can close such errors, and they are negligible beside the improvement.
OPEN = 1e-10
MET = 1e-12  # relative to the sizes of a constraint's terms: violations up to this count as rounding
# Relative room between ‖mⱼ‖ and its multiplier μⱼ where a cone solver finds all multipliers at once, tried in this
# order. A larger room costs more of the bound; a smaller one may be below the solver's accuracy, 1e-11 at best.
ROOMS = (1e-9, 1e-7, 1e-5)
# Weights of the outer problem's proximal term that a first look tries where its own leaves the gap open.
WEIGHTS = (1e-2, 1e-6)
# Relative room between multipliers and the boundaries of their cones, that of ‖Aᵀν‖ below μ included. Where a bound is
# not proven, larger rooms are tried, with these weights, in this order. A larger room costs more of the bound; a
# smaller one may not cover the residuals of free columns.
ROOM = 1e-11
LARGER = ((1e-10, 1e-3), (1e-9, PROXIMAL), (1e-7, 1e-2))
# Rows up to which a certificate for the kernel matrix as computed is tried: exact sums take N² Python operations. The
# gap without errors of kernel values must be below CLOSE, relatively, for these errors to be the obstacle.
FEW, CLOSE = 1000, 1e-3
# Relative to the gap's unit: where errors of kernel values may cost more, the matrix as computed says little about the
# stated problem, and no certificate rests on it.
UNDONE = 0.5
ROUNDINGS = 24  # roundings u per term that `checker.upper` allows for
# Relative to the sizes of the numbers that a value is a sum of: a value up to this counts as 0. 2⁻⁴⁶ = 128u is five
# times the allowance for rounding, 24u.
NOTHING = 2.0**-46
# Share of rows with multipliers up to which νᵀQν takes at most a fifth of the kernel values of Qν. It is computed
# first where the estimated gap is at most LIKELY times the target, since the estimate is right to a factor of four as a
# rule, and where functions have to reduce the last gap by at most BY_FUNCTIONS. A larger limit makes more passes that
# decide nothing.
FEW_BUSY, LIKELY, BY_FUNCTIONS = 0.4, 4.0, 1000.0
# With a larger share b, up to MANY_BUSY, the pass takes b² of the kernel values. It comes first where functions have to
# reduce the last gap by at most BY_FEW·(1 − b): in 47 rounds on 15 problems they reduced it by 2 to 1000, by 8 in the
# middle.
MANY_BUSY, BY_FEW = 0.8, 30.0
# Relative to the value: where constraints that hold only nearly raise the upper bound by more than this share, the
# first-order estimate is not trusted, and there is no upper bound.
LOOSE = 0.1
# Relative to the allowance for rounding: no search for better multipliers where the gap is at most this multiple of it,
# since other multipliers leave the rounding as it is. Larger values give up early, smaller ones search in vain.
MOSTLY = 4.0
NEAR = 10.0  # times the target gap: up to there a bound on pieces is kept as it is
AS_COMPUTED = "for the kernel matrix as computed"
WAYS = {FULL: STREAMED, REDUCED: FROM_FACTOR, ESTIMATE: SAMPLED}


@dataclass(frozen=True)
class Request:
    """The target gap of a certificate, and the work it may take.

    scope : FULL makes a pass over the kernel, unless the factor has full numerical rank and the trace of Q − BBᵀ
        suffices; REDUCED reads the factor only; ESTIMATE samples the kernel matrix
    tol, abs_tol : the target for the relative and the absolute gap; 0 and None mean no target
    slopes : slopes of the separable functions hⱼ, where the solver provides them
    rows : multipliers of all rows of the pieces, where the solver provides them
    known : a bound of the same problem with the full kernel, used where it is the better one
    products : whether the pass over the kernel returns Qν too
    search : whether to look for better multipliers than the solver's
    """

    scope: str = FULL
    tol: float = 0.0
    abs_tol: float | None = None
    slopes: Array | None = None
    known: Lower | None = None
    products: bool = False
    search: bool = True
    rows: Array | None = None


class Certified(NamedTuple):
    """A certificate, and the bound of the solver's own multipliers; the certificate may rest on a better bound."""

    certificate: Certificate
    own: Lower | None


@clock.phase(clock.PROOF)
def first_look(  # noqa: PLR0917
    reduction: Reduction, data: Outer, point: Iterate, slopes: Array | None = None, tol: float = 0.0,
    abs_tol: float | None = None, rows: Array | None = None,
) -> Certificate:  # fmt: skip
    """A certificate from the factor alone, for a point that was evaluated; its bounds are not proven.

    Where it leaves a gap above `tol`, other weights of the outer problem's proximal term are tried, and the best one is
    kept for the proof: a solver runs again only where its own multipliers are to blame.
    """
    upper, nu = _upper(reduction, data, point, exactly=True, look=True), point.multipliers()
    on_rows = _on_pieces(reduction, data, rows, FIRST_LOOK)
    if on_rows is not None:
        return _assembled(reduction, data, on_rows, upper, REDUCED, check=False)
    bound = _found(reduction, data, point, nu, slopes, FIRST_LOOK)
    found = _assembled(reduction, data, bound, upper, REDUCED, check=False)
    for weight in () if data.form.smooth or (bound is not None and bound.slopes is not None) else WEIGHTS:
        if found.closes(tol, abs_tol) or not upper.is_feasible or clock.seconds_left() <= 0:
            break
        again = _of_cones(reduction, data, point, nu, FIRST_LOOK, weight)
        if again is not None and (bound is None or again.value > bound.value):
            bound, data.form.notes["weight"] = again, weight
            found = _assembled(reduction, data, bound, upper, REDUCED, check=False)
    return found


def value_at_zero(reduction: Reduction, data: Outer, known: bool = False) -> float | None:
    """P₀ of the minimized problem; None where θ = 0 is infeasible, where P₀ is not found, and with exponentials.

    known : whether it is asked for only if an earlier call found it
    """
    if data.form.cones.exp or (known and "at zero" not in _notes_at_zero(reduction, data)):
        return None
    return _at_zero(reduction, data)


def gap_of_solver(reduction: Reduction, data: Outer, point: Iterate, gap: float) -> float:
    """The relative gap for an absolute gap that a solver found; NaN where a first look has to decide.

    That is the case without P₀, and with exponentials, whose infimum may not be attained.
    """
    at_zero = value_at_zero(reduction, data) if isfinite(gap) else None
    if at_zero is None:
        return nan
    value = data.form.sign * representer.bare_value(reduction.form, point)
    unit = min(at_zero - value, CAP * abs(value - data.form.offset))
    return abs(gap) / unit if unit > 0 else nan


def certify(reduction: Reduction, data: Outer, point: Iterate, request: Request | None = None) -> Certificate:
    """The certificate of a point that was evaluated."""
    return certified(reduction, data, point, request or Request()).certificate


@clock.phase(clock.PROOF)
def certified(reduction: Reduction, data: Outer, point: Iterate, request: Request) -> Certified:
    """The certificate of a point that was evaluated, and the bound of its own multipliers."""
    start, scope = clock.now(), request.scope
    upper = _upper(reduction, data, point, on_rows=request.rows is not None)
    exact = all(factor.is_exact for factor in reduction.factors.values())
    # At full numerical rank the trace of Q − BBᵀ bounds what the factor leaves: the pass is made only if that fails.
    ways = [CHEAP] if scope == FULL and exact and not reduction.is_restriction else []
    with_products = request.products and scope == FULL
    if with_products and _may_close(reduction, data, point, request, upper):
        ways.append(STREAMED)
    for way in [*ways, PRODUCTS if with_products else WAYS[scope]]:
        found = _by_way(reduction, data, point, request, upper, way)
        if found.certificate.closes(request.tol, request.abs_tol):
            break
    certificate, own = found
    is_open = certificate.scope == FULL and not certificate.closes(request.tol, request.abs_tol)
    if scope == FULL and is_open and own is not None and _rounding_decides(reduction, data, own, upper):
        of_computed = _for_computed_kernel(reduction, data, point, own)
        if of_computed.closes(request.tol, request.abs_tol):
            certificate = of_computed
    return Certified(replace(certificate, seconds=clock.now() - start), own)


def _may_close(reduction: Reduction, data: Outer, point: Iterate, request: Request, upper: UpperBound) -> bool:
    """Whether a pass over rows with multipliers takes far less than Qν, and may close the gap.

    Qν is needed for another column only. The gap is estimated from the diagonal of Q − BBᵀ, which takes no pass, or
    from the last bound: functions Aᵀν that a factor got since then reduce νᵀ(Q − BBᵀ)ν far more than the diagonal.
    """
    if data.split is None or request.slopes is None:
        return False
    bound = conjugates.lower_bound(reduction, data.form, point, data.split, request.slopes, DIAGONAL)
    stacks = () if bound is None else tuple(m.stack for m in bound.multipliers)
    busy = max((np.count_nonzero(V.any(axis=1)) / max(len(V), 1) for V in stacks), default=1.0)
    grown = any(factor.of_pivots is not factor for factor in reduction.factors.values())
    if bound is None or busy > (MANY_BUSY if grown else FEW_BUSY):
        return False
    times = LIKELY
    if grown:
        bound, times = request.known, BY_FUNCTIONS if busy <= FEW_BUSY else BY_FEW * (1 - busy)
    abs_tol = None if request.abs_tol is None else times * request.abs_tol
    estimate = _assembled(reduction, data, bound, upper, FULL, told=False, check=False)
    return bound is not None and estimate.closes(times * request.tol, abs_tol)


def _by_way(  # noqa: PLR0917
    reduction: Reduction, data: Outer, point: Iterate, request: Request, upper: UpperBound, way: str
) -> Certified:
    """The certificate with νᵀQν computed in a given way."""
    tol, abs_tol, known = request.tol, request.abs_tol, request.known
    scope = REDUCED if way == FROM_FACTOR else request.scope

    def enough(bound: Lower) -> bool:
        closed = _assembled(reduction, data, bound, upper, FULL, told=False).closes(tol or ZERO, abs_tol)
        nearly = upper.upper - bound.value <= MOSTLY * (bound.rounding + upper.rounding)
        return not request.search or closed or nearly

    own = _on_pieces(reduction, data, request.rows, way)
    if own is None or not (enough(own) or _nearly(reduction, data, own, upper, request)):
        other = _lower(reduction, data, point, request.slopes, way, enough)
        own = max((one for one in (own, other) if one is not None), key=_rank, default=None)
    best = own
    if known is not None and scope == FULL and not known.assumptions and not known.confined:
        best = known if own is None or own.assumptions or known.value > own.value else own
    found = _assembled(reduction, data, best, upper, scope)
    without_norm = own is not None and own.assumes_radius and reduction.is_restriction
    if scope != REDUCED and without_norm and not found.closes(tol, abs_tol):
        # Without a norm of θ, Aᵀν must vanish. Multipliers of a factor of lower rank only make Bᵀν vanish, so that the
        # bound is one for θ in the factor's span.
        return _by_way(reduction, data, point, request, upper, FROM_FACTOR)
    return Certified(found, own)


def _nearly(reduction: Reduction, data: Outer, bound: Lower, upper: UpperBound, request: Request) -> bool:
    """Whether a bound on pieces is so near to what is asked for that a search on cone data is not worth its time."""
    tol, abs_tol = NEAR * (request.tol or ZERO), None if request.abs_tol is None else NEAR * request.abs_tol
    return _assembled(reduction, data, bound, upper, FULL, told=False).closes(tol, abs_tol)


def _rounding_decides(reduction: Reduction, data: Outer, bound: Lower, attained: UpperBound) -> bool:
    """Whether errors of kernel values keep the gap open: without them the bound is near the value.

    They must not be able to undo more than a share of the improvement, either.
    """
    few = all(len(link.rows) <= FEW for link in reduction.form.predictions)
    if bound.assumptions or not few or not bound.grams or not isfinite(attained.upper) or not attained.is_feasible:
        return False
    without = tuple(replace(gram, error=np.zeros_like(gram.error)) for gram in bound.grams)
    trial = _proven(reduction, data, replace(bound, grams=without), False)
    plain = replace(attained, upper=attained.value + attained.widened, rounding=0.0)
    unit = _assembled(reduction, data, None, plain, FULL).unit
    return attained.kernel <= UNDONE * unit and abs(plain.upper - trial.value) <= CLOSE * unit


def _for_computed_kernel(reduction: Reduction, data: Outer, point: Iterate, bound: Lower) -> Certificate:
    """The certificate for the kernel matrix as it was computed, with VᵀQV, predictions and norms as exact sums."""
    links = reduction.form.predictions
    grams: tuple[Gram, ...] = tuple(
        as_computed(link, m.stack) for link, m in zip(links, bound.multipliers, strict=True)
    )  # fmt: skip
    _, exact = representer.invert(reduction, point, exactly=True)
    proven = _proven(reduction, data, replace(bound, grams=grams), False)
    upper = _upper(reduction, data, exact, exactly=True)
    found = _assembled(reduction, data, proven, upper, FULL)
    return replace(found, rests_on=(*found.rests_on, AS_COMPUTED))


@clock.phase(clock.PROOF)
def certify_without_pass(  # noqa: PLR0917
    reduction: Reduction, data: Outer, point: Iterate, slopes: Array | None = None, known: Lower | None = None,
    rows: Array | None = None,
) -> Certificate:  # fmt: skip
    """A certificate without a pass: from a `known` bound with the full kernel if there is one, else from the factor."""
    if known is None or known.assumptions or known.confined:
        return certify(reduction, data, point, Request(REDUCED, slopes=slopes, search=False, rows=rows))
    return _assembled(reduction, data, known, _upper(reduction, data, point), FULL)


def without_lower_bound(reduction: Reduction, data: Outer, point: Iterate) -> Certificate:
    """The certificate of a point for which there was no time to find a lower bound."""
    return _assembled(reduction, data, None, _upper(reduction, data, point), REDUCED)


def by_word(  # noqa: PLR0917
    reduction: Reduction, data: Outer, point: Iterate, bound: float, solver: str, confined: bool
) -> Certificate:
    """The certificate of a mixed-integer answer: its own value, and the bound that its solver tells.

    reduction, data, point : of the problem whose integers are fixed, with the answer
    bound : of the minimized problem, constants included; confined : whether it holds only for θ in the factor's span
    A bound above the answer's own value, by more than a solver's tolerance, is refuted by it, and counts as none.
    """
    upper = _upper(reduction, data, point)
    value = bound - data.form.sign * reduction.form.constant
    refuted = value - upper.upper > max(ZERO * upper.terms, FLAT * data.form.units[1])
    told = Lower(-inf if refuted else min(value, upper.value), (), 0.0, upper.terms, False, (), ())
    found = _assembled(reduction, data, told, upper, WORD_REDUCED if confined else WORD, check=False)
    said = (*found.rests_on, f"{solver}'s own bound is refuted by the answer's value") if refuted else found.rests_on
    # A gap that is all allowance for rounding closes: the solver's word has none.
    floor = max(found.floor, found.rounding + NOTHING * upper.sizes)
    changes: dict[str, Any] = {"solver": solver, "evidence": None, "floor": floor}
    bare = None if found.bare is None else replace(found.bare, **changes)
    return replace(found, rests_on=said, bare=bare, **changes)


@clock.phase(clock.PROOF)
def certify_again(reduction: Reduction, data: Outer, point: Iterate, known: Certificate) -> Certificate | None:
    """A certificate for other values of parameters from the multipliers of a known one, without a pass over the kernel.

    `data` and the point belong to the new values, and the point was evaluated. None where the multipliers no longer
    apply.
    """
    start, lower = clock.now(), known.evidence
    if lower is None:
        return None
    if lower.rows is not None:
        bound = _on_pieces(reduction, data, lower.rows, FROM_FACTOR if known.scope == REDUCED else CHEAP)
        upper = _upper(reduction, data, point, on_rows=True)
        found = None if bound is None else _assembled(reduction, data, bound, upper, known.scope)
        return None if found is None else replace(found, seconds=clock.now() - start)
    if lower.slopes is not None:
        if data.split is None or not conjugates.is_admissible(data.split, lower):
            return None
        bound = conjugates.evaluate(data.form, data.split, lower.slopes, lower.multipliers, lower.grams)
    else:
        bound = cone_bounds.evaluate_again(reduction, data.form, point, lower)
    bound = None if bound is None else _proven(reduction, data, bound, known.scope == REDUCED)
    if bound is None:
        return None
    found = _assembled(reduction, data, bound, _upper(reduction, data, point), known.scope)
    return replace(found, seconds=clock.now() - start)


def _on_pieces(reduction: Reduction, data: Outer, rows: Array | None, way: str) -> Lower | None:
    """The bound that multipliers of the rows of the pieces prove; None where there are none, or they prove nothing."""
    pieces = None if rows is None else pieces_of(reduction.form, data)
    if rows is None or pieces is None or len(rows) != len(pieces.s0):
        return None
    span = way in (FROM_FACTOR, FIRST_LOOK)
    found = on_pieces.lower_bound(reduction, pieces, rows, way, span)
    if found is None or not isfinite(found.value):
        return None
    u = np.concatenate([np.arange(0), *(pieces.columns[k.u.id] for k in reduction.form.predictions if k.u is not None)])
    nu = -(pieces.c + pieces.S.T @ rows)[u.astype(int)]
    return replace(found, rows=rows, nu=nu, confined=span and reduction.is_restriction)


def _lower(  # noqa: PLR0917
    reduction: Reduction, data: Outer, point: Iterate, slopes: Array | None, way: str, enough: Callable[[Lower], bool]
) -> Lower | None:
    """The bound that the checker proves; other multipliers are tried until it is `enough`."""
    nu, span = point.multipliers(), way == FROM_FACTOR
    found = _found(reduction, data, point, nu, slopes, way)
    bound = None if found is None else _proven(reduction, data, found, span, enough)
    for room, weight in LARGER if not data.form.smooth else ():
        if bound is None or (isfinite(bound.value) and not bound.assumptions) or bound.assumes_radius:
            break
        clock.check()
        again = _of_cones(reduction, data, point, nu, way, weight, room)
        proven = None if again is None else _proven(reduction, data, again, span)
        if proven is not None and (not isfinite(bound.value) or not proven.assumptions):
            bound = proven
    if data.form.smooth or (reduction.is_restriction and bound is not None and isfinite(bound.value)):
        return bound
    for room in ROOMS:
        if bound is not None and isfinite(bound.value) and not bound.assumptions and enough(bound):
            break
        clock.check()
        again = cone_bounds.joint_bound(reduction, data.form, point, way, room)
        proven = None if again is None else _proven(reduction, data, again, span, enough)
        if proven is not None and (bound is None or _rank(proven) > _rank(bound)):
            bound = replace(proven, sought=True)
    return bound


def _rank(bound: Lower) -> tuple[bool, float]:
    """Bounds without assumptions come first, then larger ones."""
    return isfinite(bound.value) and not bound.assumptions, bound.value


def _proven(
    reduction: Reduction, data: Outer, found: Lower, span: bool, enough: Callable[[Lower], bool] | None = None
) -> Lower:
    """The bound with the value that the checker proves for it."""

    def ends(bound: Bound) -> bool:
        return enough is None or enough(replace(found, value=bound.value, rounding=bound.rounding))

    proven, assumptions = checked(reduction, data, found, span, ends)
    return replace(
        found, value=proven.value, assumptions=assumptions, rounding=proven.rounding, terms=proven.terms,
        assumes_radius=found.assumes_radius or "θ" in proven.missing,
        missing=proven.missing, confined=span and reduction.is_restriction,
    )  # fmt: skip


def _found(  # noqa: PLR0917
    reduction: Reduction, data: Outer, point: Iterate, nu: list[Array], slopes: Array | None, way: str
) -> Lower | None:
    """The bound by conjugates where the outer problem is separable, else from its cone form."""
    bound = None
    if data.form.is_constant:
        return cone_bounds.without_multipliers(reduction, data.form, point, way)
    if slopes is None:
        slopes = _slopes_here(data, point, nu)
    if slopes is not None and data.split is not None:
        bound = conjugates.lower_bound(reduction, data.form, point, data.split, slopes, way)
        flat, value = _flattest(data)
        # Where every loss is at its minimum, multipliers of 0 prove it; those of a solver are 0 only to its tolerance.
        if flat is not None and bound is not None and value > bound.value and _is_flat(reduction, data, point, value):
            other = conjugates.lower_bound(reduction, data.form, point, data.split, flat, way)
            bound = other if other is not None and other.value > bound.value else bound
    if bound is not None or data.form.smooth:
        return bound  # smooth losses have no cone form
    bound = None if slopes is None else cone_bounds.of_slopes(reduction, data, point, slopes, way)
    if bound is not None:
        return bound
    room = 0.0 if way == FIRST_LOOK else ROOM  # only a proof needs it
    return _of_cones(reduction, data, point, nu, way, data.form.notes.get("weight", PROXIMAL), room)


def _of_cones(  # noqa: PLR0917
    reduction: Reduction, data: Outer, point: Iterate, nu: list[Array], way: str, weight: float, room: float = 0.0
) -> Lower | None:
    """The bound from the cone form, with (u, t) held by a weight, and with room between multipliers and their cones.

    Multipliers on the boundary of a cone, as those of a norm, leave no room in which free columns, as an intercept's,
    vanish exactly; and ‖Aᵀν‖ ≤ μ must hold with all rounding.
    """
    mu = norm_multipliers(reduction, data.form, point, nu)
    return cone_bounds.lower_bound(
        reduction, data.form, point, nu, mu, way, max(room, cone_bounds.SPARE), weight, room
    )  # fmt: skip


def _flattest(data: Outer) -> tuple[Array | None, float]:
    """The slopes nearest to 0 with Fᵀv + c_y = 0, and −Σh*(v), the bound they prove if Aᵀν = 0; found once.

    They do not depend on costs of norms.
    """
    notes = data.common.notes
    if "flattest" not in notes:
        assert data.split is not None
        v = conjugates.feasible_slopes(data.split, np.zeros(data.split.E.shape[0]))
        value = -inf if v is None else data.form.offset - data.split.conjugate(v)
        notes["flattest"] = (v, value)
    found: tuple[Array | None, float] = notes["flattest"]
    return found


def _is_flat(reduction: Reduction, data: Outer, point: Iterate, value: float) -> bool:
    """Whether the objective at the point is the sum of all losses' minima, nearly: elsewhere they prove little."""
    attained = data.form.sign * representer.bare_value(reduction.form, point)
    return attained - value <= FLAT * data.form.units[1]


def _slopes_here(data: Outer, point: Iterate, nu: list[Array]) -> Array | None:
    """A subgradient of each separable function at the point; where it is not unique, the one that ν determines."""
    split = data.split
    if split is None or not np.array_equal(split.y, data.form.y):
        return None  # the cut treats auxiliary variables as y, and the point has no values for them
    x = projection.columns_of(data.form, point)
    if x is None or not np.isfinite(x).all():
        return None
    s = split.arguments(x[split.u], x[split.y])
    if data.form.smooth:
        return split.derivative(s)
    return conjugates.slopes_near(split, s, np.concatenate([n.ravel(order="F") for n in nu]))


@dataclass(frozen=True)
class UpperBound:
    """The upper bound that a point gives, of the minimized problem without constants (except `stated`).

    stated, value : the objective as stated, and minimized without constants
    terms : T, the sum of the sizes of its terms; plain : the same for terms that are not losses
    sizes : the sum of the sizes of all numbers that the value is computed from, those inside of losses included
    upper : an upper bound. It includes `widened`, for constraints that hold only nearly, and `rounding`, of which
        `kernel` is due to errors of kernel values
    at_zero : the optimum P₀ at θ = 0
    violations : the violation of each constraint in its own units; is_feasible : whether all of them are rounding
    """

    stated: float
    value: float
    sizes: float
    plain: float
    upper: float
    widened: float
    rounding: float
    terms: float
    at_zero: float | None
    violations: tuple[float, ...]
    is_feasible: bool
    kernel: float


def _upper(  # noqa: PLR0917
    reduction: Reduction, data: Outer, point: Iterate, exactly: bool = False, look: bool = False,
    on_rows: bool = False,
) -> UpperBound:  # fmt: skip
    """The upper bound of a point.

    `exactly`: predictions and norms have no errors; `look`: a first look, which leaves out rounding inside of losses;
    `on_rows`: whether the value may be bounded on pieces.
    """
    form, canonical, x = data.form, reduction.form, projection.columns_of(data.form, point)
    signed = form.sign * representer.bare_value(canonical, point)
    residuals = representer.residuals(canonical, point)
    (terms, plain), widened = _terms(form, x, signed), _widening(canonical, point, residuals)
    within = 0.0 if look else _inside(canonical, form, x, terms, np.zeros(len(form.c)))
    scales = [(0.0, 0.0) for _ in canonical.predictions] if exactly else _scales(reduction, point)
    kernel = _of_norms(reduction, form, point, scales)
    kernel += 0.0 if exactly else _of_predictions(reduction, form, point, x, terms, within, scales)
    widened, kernel = (0.0, 0.0) if form.is_constant else (widened, kernel)
    sizes = terms + within / ROUNDINGS
    upper = checker.upper(signed + widened, sizes, form.offset, kernel) if sizes or kernel else signed + widened
    by_rows = None if not on_rows or look else _upper_of_rows(reduction, data, point, scales)
    if by_rows is not None and signed <= by_rows[0] and by_rows[0] + widened < upper:
        upper, kernel = nextafter(by_rows[0] + widened, inf), by_rows[1]
    constraints, relative = canonical.outer.constraints, representer.violation(reduction, point, form.data_unit)
    violated = [c for c, r in zip(constraints, residuals, strict=True) if r.any()]
    linear = all(part.is_affine() for c in violated for part in c.args if not isinstance(part, list))
    return UpperBound(
        stated=point.value, value=signed, sizes=sizes, plain=plain, upper=upper, widened=widened, terms=terms,
        kernel=kernel,
        rounding=upper - signed - widened if isfinite(upper) else 0.0,
        at_zero=_at_zero(reduction, data),
        violations=tuple(float(np.max(r, initial=0.0)) for r in residuals[: len(residuals) - len(form.smooth)]),
        is_feasible=relative <= MET
        or (linear and projection.is_met(reduction, form, point, _sums(reduction, point) if exactly else None)),
    )  # fmt: skip


def _upper_of_rows(
    reduction: Reduction, data: Outer, point: Iterate, scales: list[tuple[float, float]]
) -> tuple[float, float] | None:
    """The largest value of the pieces for predictions and norms within their errors, and what these errors add."""
    pieces = pieces_of(reduction.form, data)
    if pieces is None or not isfinite(point.value):
        return None
    x, off = np.zeros(pieces.n), np.zeros(pieces.n)
    asked, form = np.ones(len(point.t), dtype=bool), reduction.form
    for link, u, e in zip(form.predictions, point.u, errors_of_predictions(reduction, point, scales), strict=True):
        if link.u is not None:
            x[pieces.columns[link.u.id]], off[pieces.columns[link.u.id]] = np.ravel(u, order="F"), e
    for norm, t, e in zip(form.norms, point.t, _errors_of_norms(reduction, point, scales, asked), strict=True):
        x[pieces.columns[norm.t.id]], off[pieces.columns[norm.t.id]] = t, e
    for variable, value in zip(form.y, point.y, strict=True):
        if variable.id in pieces.columns:
            x[pieces.columns[variable.id]] = np.ravel(dense(value), order="F")
    known = np.concatenate([pieces.bounds[:, 0], *pieces.columns.values()])
    if len(np.unique(known)) < pieces.n:
        return None  # columns of graph forms, whose values are a solver's
    found, plain = (pieces_checker.upper(pieces, x, part) for part in (off, 0 * off))
    return found, found - plain


def _at_zero(reduction: Reduction, data: Outer) -> float | None:
    """P₀; None where θ = 0 is infeasible, or P₀ is not known.

    It is computed once for all data that differ only in the costs of norms, since norms without f₀ are 0 at θ = 0.
    """
    notes = _notes_at_zero(reduction, data)
    if "at zero" not in notes:
        notes["at zero"] = _found_at_zero(reduction, data)
    found: float | None = notes["at zero"]
    return found


def _notes_at_zero(reduction: Reduction, data: Outer) -> dict[Any, Any]:
    return data.notes if _norms_at_zero(reduction).any() else data.common.notes


def _found_at_zero(reduction: Reduction, data: Outer) -> float | None:
    t = _norms_at_zero(reduction)
    found = None if t.any() else engines.value_at_zero(reduction, data)
    if found is None and not data.form.smooth:
        found = outer_dual.value_at(data.form, np.concatenate([np.zeros(sum(map(len, data.form.u))), t]))
    return found if found is not None and isfinite(found) else None


def _terms(form: ConicForm, x: Array | None, value: float) -> tuple[float, float]:
    """T, and the part of it that is not in losses, Σ |cⱼxⱼ| + ½Pⱼxⱼ² over predictions, norms and the user's variables.

    T adds the size of the remaining part of the objective.
    """
    if x is None or not isfinite(value):
        return abs(value - form.offset), abs(value - form.offset)
    linear, square = form.c * x, 0.5 * form.P * x**2
    plain, rest = float(np.abs(linear).sum() + square.sum()), value - form.offset - float(linear.sum() + square.sum())
    return plain + abs(rest), plain


def _inside(canonical: CanonicalForm, form: ConicForm, x: Array | None, terms: float, known: Array) -> float:
    """Rounding inside of losses in units of u, for predictions with errors `known`."""
    if x is None or not isfinite(terms):
        return 0.0
    slopes = np.zeros(len(form.c))
    for smooth, link in zip(form.smooth, canonical.smooth, strict=True):
        g = np.ravel(link.g.value, order="F")[: len(smooth.g)]
        slopes[smooth.g] = np.abs(form.c[smooth.h] * smooth.loss.gradient(g, smooth.data))
    return sizes_of.inside(form, x, slopes, terms, known)


def _sums(reduction: Reduction, point: Iterate) -> Array:
    """Σ |cₛ|√(QᵢᵢQₛₛ), a bound on the sizes of the terms of each prediction: rounding of c moves it by u times this."""
    found = [np.zeros(0)]
    for number, link in enumerate(reduction.form.predictions):
        if link.u is not None:
            sizes = link.rows.lengths()
            of_outputs = sizes @ np.abs(row_coefficients(reduction, point, number))
            found.append(np.outer(sizes[link.take], of_outputs).ravel(order="F"))
    return np.concatenate(found)


def errors_of_predictions(
    reduction: Reduction, point: Iterate, scales: list[tuple[float, float]] | None = None
) -> list[Array]:
    """Bounds on the error of each prediction, |Aθ̂ − Aθ| ≤ κ√Qᵢᵢ·S for θ = Aᵀc, with S = Σ |cₛ|√Qₛₛ.

    κ is the relative error of kernel values and of the factor, which is off by γ(r + 1)√(QᵢᵢQⱼⱼ) (Higham 2002, 10.3). A
    projected factor has no known error, and counts as exact. `scales` are (κ, S) of each θ where they are known.
    """
    found, scales = [], _scales(reduction, point) if scales is None else scales
    for link, (relative, S) in zip(reduction.form.predictions, scales, strict=True):
        sizes = relative * S * link.rows.lengths()[link.take]
        found.append(np.tile(sizes, link.theta.outputs or 1))
    return found


def _scales(reduction: Reduction, point: Iterate) -> list[tuple[float, float]]:
    """(κ, S) of each θ."""
    numbers = range(len(reduction.form.predictions))
    return [(_relative_error(reduction, number), _size_of_theta(reduction, point, number)) for number in numbers]


def _relative_error(reduction: Reduction, number: int) -> float:
    """κ of the kernel and the factor, relative to √(QᵢᵢQⱼⱼ)."""
    link = reduction.form.predictions[number]
    factor = reduction.factors[link.theta]
    if factor.is_projected or not factor.rank:
        return 0.0
    return link.rows.rounding() + (0.0 if reduction.is_restriction else gamma(factor.rank + 1))


def _size_of_theta(reduction: Reduction, point: Iterate, number: int) -> float:
    """S = Σ |cₛ|√Qₛₛ over all outputs."""
    sizes = reduction.form.predictions[number].rows.lengths()
    return float(sizes @ np.abs(row_coefficients(reduction, point, number)).sum(axis=1))


def _of_predictions(  # noqa: PLR0917
    reduction: Reduction, form: ConicForm, point: Iterate, x: Array | None, terms: float, within: float,
    scales: list[tuple[float, float]],
) -> float:  # fmt: skip
    """The cost of errors of predictions.

    In losses, slopes on both sides count. Multipliers would not do: at a kink that is only nearly met they may be 0
    where a slope is not. Constraints cost twice the first order in their multipliers, which are at most |ν| plus the
    slopes of losses: 2|ν| + 2 slopes, beside the losses' own. Where the columns of x are not known, ν alone counts.
    """
    errors, of_multipliers = errors_of_predictions(reduction, point, scales), 0.0
    constrained, unknown = len(reduction.form.outer.constraints) > len(form.smooth), x is None or not isfinite(terms)
    if constrained or unknown:
        nu = [np.abs(np.ravel(one, order="F")) for one in point.multipliers()]
        of_multipliers = 2 * sum(float(e @ n) for e, n in zip(errors, nu, strict=True))
    if unknown:
        return of_multipliers
    known = np.zeros(len(form.c))
    for columns, e in zip(form.u, errors, strict=True):
        known[columns] = e / UNIT
    of_losses = UNIT * max(_inside(reduction.form, form, x, terms, known) - within, 0.0)
    return 3 * of_losses + of_multipliers if constrained else of_losses


def _of_norms(reduction: Reduction, form: ConicForm, point: Iterate, scales: list[tuple[float, float]]) -> float:
    """The cost of errors of norms."""
    slopes = np.abs(form.c[form.t] + form.P[form.t] * point.t)
    return float(slopes @ _errors_of_norms(reduction, point, scales, slopes > 0))


def _errors_of_norms(reduction: Reduction, point: Iterate, scales: list[tuple[float, float]], asked: Array) -> Array:
    """By how much each ‖θ‖ may exceed its computed value: |‖θ̂‖² − ‖θ‖²| ≤ κS²; of nuclear norms where it is asked for,
    see `_error_of_nuclear`."""
    found = np.zeros(len(point.t))
    for number, (link, (relative, S)) in enumerate(zip(reduction.form.predictions, scales, strict=True)):
        for j, norm in reduction.form.norms_of(link.theta).items():
            t = float(point.t[j])
            if norm.kind == "nuc":
                found[j] = _error_of_nuclear(reduction, point, number, norm, relative) if asked[j] else 0.0
            elif relative:
                found[j] = min(relative * S * S / t if t > 0 else inf, float(np.sqrt(relative)) * S)
    return found


def _error_of_nuclear(reduction: Reduction, point: Iterate, number: int, norm: NormLink, relative: float) -> float:
    """A bound on Σσᵢ(θM − f₀) beyond its computed value.

    θ = Aᵀc has the Gram matrix cᵀQc, off by δ = κS². With c = Pv it is vᵀ(I + F)v with ‖F‖ ≤ η = κ‖|P|ᵀd‖², d the
    lengths of rows, so that σᵢ ≤ √(1 + η)·σᵢ(v) (Ostrowski). Each σᵢ is at most min(√(σᵢ(v)² + δ), (1 + η/2)σᵢ(v)).
    Where σᵢ are roots of eigenvalues of a computed Gram matrix, δ has their rounding too.
    """
    link, factor = reduction.form.predictions[number], reduction.factors[norm.view.theta]
    c, sizes = row_coefficients(reduction, point, number), link.rows.lengths()
    S = float(sizes @ np.abs(c @ norm.right).sum(axis=1) + sizes[norm.function_rows].sum())
    W = representer.coordinates(reduction, point, norm)
    if W is None:
        G = representer.norm_gram(reduction, point, norm)
        squares = np.clip(np.linalg.eigvalsh(G), 0.0, None)
        delta = relative * S**2 + float(gamma(16 * len(G) + 16)) * float(np.linalg.norm(G))
        return float((np.sqrt(squares + delta) - np.sqrt(squares)).sum())
    found, root = singular_values(W), np.sqrt(factor.scale)
    if relative and not factor.is_projected:
        relative = link.rows.rounding() + float(gamma(factor.rank + 1))
    values, delta, eta = found.values / root, relative * S**2, inf
    if norm.view.shift is None and factor.rank:
        rows = factor.coefficients(np.eye(factor.rank))
        eta = relative * float(np.sum((sizes[factor.pivots] @ np.abs(rows) * root) ** 2))
    beyond = np.minimum(np.sqrt(values**2 + delta) - values, eta / 2 * values) if relative else np.zeros(1)
    return float(beyond.sum()) + found.error_of_sum / root


def _assembled(  # noqa: PLR0917
    reduction: Reduction,
    data: Outer,
    bound: Lower | None,
    found: UpperBound,
    scope: str,
    check: bool = True,
    told: bool = True,
) -> Certificate:
    """The certificate from both bounds, in the stated problem's sense (minimize or maximize).

    `told`: with what it tells beside its bounds; a certificate of which the gap alone is read needs none of it.
    """
    form, upper = data.form, found.upper
    ranks = tuple((reduction.factors[link.theta].rank, len(link.rows)) for link in reduction.form.predictions)
    lower = -inf if bound is None or not isfinite(bound.value) else bound.value
    rounding = (0.0 if bound is None or not isfinite(bound.rounding) else bound.rounding) + found.rounding
    assumptions = [] if bound is None else list(bound.assumptions)
    attained = abs(form.sign * form.offset - (upper - found.widened))
    loose = found.widened > LOOSE * max(attained, found.terms, NOTHING * found.sizes)
    if loose or lower > upper + (0.0 if check else 1e-8 * found.terms):
        # The lower bound is the one that does not rest on constraints holding only nearly, to first order.
        lower = min(lower, upper)
        upper = inf
        assumptions.append(f"no {'upper' if form.sign > 0 else 'lower'} bound: constraints hold too loosely")
    by_terms = _by_terms(reduction, data)
    if by_terms > lower:  # it holds for every θ, and rests on nothing
        lower, rounding, scope = by_terms, found.rounding, FULL
        assumptions = [told for told in assumptions if told not in (() if bound is None else bound.assumptions)]
    lower = min(lower, upper, found.value)
    at_zero = None if found.at_zero is None else max(found.at_zero, lower)
    floor = ZERO * found.terms if at_zero is not None and at_zero - lower <= ZERO * found.terms else 0.0
    # No multipliers close errors of predictions: they enter the floor where they are negligible beside P₀ − P.
    gained = 0.0 if found.at_zero is None else abs(found.at_zero - found.value)
    kernel = found.kernel if found.kernel <= OPEN * gained else 0.0
    if found.terms <= kernel:
        floor = max(floor, kernel + LAST_DIGITS * gained)
    if found.terms <= NOTHING * found.sizes and found.plain <= ZERO * (upper - lower):
        floor = max(floor, NOTHING * found.sizes + kernel)  # the optimum is 0 to double precision
    low, high = (lower, upper) if form.sign > 0 else (-upper, -lower)
    rests_on = _rests_on(reduction, data, found) if told else ()
    distance = _distances(reduction, form, upper - lower) if told and scope == FULL else {}
    bare = Certificate(
        lower=low, upper=high, scope=scope, ranks=ranks, assumptions=tuple(assumptions),
        rests_on=rests_on, widened=found.widened, rounding=rounding, floor=floor,
        terms=found.terms, violations=found.violations, is_feasible=found.is_feasible,
        at_zero=None if at_zero is None else form.sign * at_zero, maximize=form.sign < 0,
        seconds=0.0, evidence=bound, distance=distance,
        of_terms=form.sign * min(by_terms, upper) if isfinite(by_terms) else None,
    )  # fmt: skip
    return bare.shifted(reduction.form.constant, found.stated)


def _by_terms(reduction: Reduction, data: Outer) -> float:
    """A lower bound of the minimized objective for all θ, by the signs of its terms; found once."""
    if "by terms" not in data.notes:
        data.notes["by terms"] = least(reduction.form.bare.objective.args[0], data.form.sign)
    found: float = data.notes["by terms"]
    return found


def _rests_on(reduction: Reduction, data: Outer, found: UpperBound) -> tuple[str, ...]:
    """The facts beside the statement that the bounds rest on, as sentences."""
    links, factors = reduction.form.predictions, reduction.factors
    told = [f"constraints met to {max(found.violations, default=0.0):.1e}"] if not found.is_feasible else []
    told += [f"kernel matrix projected: {f.method}" for f in factors.values() if f.is_projected]
    told += [sentence for link in links for sentence in link.theta.kernel.declarations()]
    told += [f"{smooth.loss.name} is convex, as declared" for smooth in data.form.smooth]
    free = [link for link in links if not reduction.form.norms_of(link.theta)]
    rounded = any(not free_features(link, factors[link.theta])[1] for link in free)
    return tuple(dict.fromkeys(told + ["for features as computed"] * rounded))


def _distances(reduction: Reduction, form: ConicForm, gap: float) -> dict[Theta, float]:
    """‖θ̂ − θ*‖ ≤ √(gap/λ) for each θ with a penalty λ‖θ − f₀‖²."""
    found: dict[Theta, float] = {}
    for norm, column in zip(reduction.form.norms, form.t, strict=True):
        strength, theta = form.P[column] / 2, norm.view.theta
        if strength > 0 and isfinite(gap) and norm.kind in (EUCLIDEAN, "fro") and norm.view.right is None:
            found[theta] = min(float(np.sqrt(max(gap, 0.0) / strength)), found.get(theta, inf))
    return found


def _norms_at_zero(reduction: Reduction) -> Array:
    """‖f₀‖ for each norm: its value at θ = 0."""
    return np.array([
        0.0 if n.view.shift is None else norm_from_gram(n.view.shift.gram(), n.kind) for n in reduction.form.norms
    ])  # fmt: skip


def _widening(canonical: CanonicalForm, point: Iterate, residuals: list[Array]) -> float:
    """2Σ|multiplier|·|residual| over constraints of the outer problem: twice the first-order cost of meeting them.

    The factor 2 allows for multipliers that are known only nearly.
    """
    total = 0.0
    for constraint, residual in zip(canonical.outer.constraints, residuals, strict=True):
        known = [d for d in point.duals.get(constraint.id, ()) if d is not None]
        if not residual.any() or not known:
            continue
        sizes = [np.abs(np.asarray(d, dtype=float)) for d in known]
        if len(sizes) == 1 and sizes[0].shape == residual.shape:
            total += 2 * float((sizes[0] * residual).sum())
        else:  # cones: ‖z‖₁ times the largest residual bounds the cost of moving each entry by it
            total += 2 * sum(float(d.sum()) for d in sizes) * float(residual.max(initial=0.0))
    return total
