"""The certificate of an answer: an enclosure of the optimum of the stated problem, with the full kernel matrix.

With multipliers ν of u = Aθ and μ of ‖θ‖ ≤ t, θ leaves the Lagrangian iff √(νᵀQν) ≤ μ, so that

    D(ν, μ) = inf over (u, t ≥ 0, y) of  f(u, t, y) + νᵀu − μt

bounds the optimum from below. It is evaluated on the dual side of the outer problem, at a point that is dual feasible
up to rounding. νᵀQν comes from a pass over the kernel's own values, or from the factor with a bound on its error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, isfinite, nan
from typing import Any, NamedTuple

import numpy as np

from kernelopt.certificate import on_pieces, slopes
from kernelopt.certificate.all_rows import rows_near
from kernelopt.certificate.attained import UpperBound, at_zero, notes_at_zero, upper_bound
from kernelopt.certificate.gram import (
    CHEAP,
    COMPUTED,
    DIAGONAL,
    ERRORLESS,
    FIRST_LOOK,
    FROM_FACTOR,
    PRODUCTS,
    SAMPLED,
    STREAMED,
)
from kernelopt.certificate.links import free_features, has_free_outputs
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
from kernelopt.compiler import representer
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.least import least
from kernelopt.compiler.outer import Outer
from kernelopt.compiler.representer import Reduction
from kernelopt.language.expressions import Theta
from kernelopt.language.nodes import EUCLIDEAN
from kernelopt.pieces.form import Pieces
from kernelopt.solvers import assemble
from kernelopt.support import clock
from kernelopt.support.arithmetic import UNIT
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
# Rows up to which another pass is made for what it may prove.
FEW = 1000
# Rows up to which a certificate for the kernel matrix as computed is tried: exact sums for 3000 rows take .4 s. The gap
# without errors of kernel values must be near the tolerance, and below CLOSE, for these errors to be the obstacle.
SUMMED, CLOSE = 4000, 1e-3
IN_VAIN = 0.1  # share of a gap that better multipliers would have to close for another pass over the kernel
# Relative to the gap's unit: where errors of kernel values may cost more, the matrix as computed says little about the
# stated problem, and no certificate rests on it.
UNDONE = 0.5
# Relative to the sizes of the numbers that a value is a sum of: a value up to this counts as 0. 2⁻⁴⁶ = 128u is five
# times the allowance for rounding, 24u.
NOTHING = 2.0**-46
# In units of the costs, the least of them: 2⁻¹⁰⁶ = u². Terms of that size are squares of rounding.
UNSEEN = 2.0**-106
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
NEAR = 10.0  # times the target gap: up to there a bound on pieces is kept as it is
# Relative to the value, or to P₀ − P where that is less: a wider interval is compared with what holds
# for every θ, which takes one more proof, without kernel values.
WIDE = 0.1
AS_COMPUTED = "for the kernel matrix as computed"
WAYS = {FULL: STREAMED, REDUCED: FROM_FACTOR, ESTIMATE: SAMPLED}


@dataclass(frozen=True)
class Request:
    """The target gap of a certificate, and the work it may take.

    scope : FULL makes a pass over the kernel, unless the factor has full numerical rank and the trace of Q − BBᵀ
        suffices; REDUCED reads the factor only; ESTIMATE samples the kernel matrix
    tol, abs_tol : the target for the relative and the absolute gap; 0 and None mean no target
    rows : multipliers of all rows of the pieces, where the solver provides them
    known : a bound of the same problem with the full kernel, used where it is the better one
    products : whether the pass over the kernel returns Qν too
    search : whether to look for better multipliers than the solver's
    """

    scope: str = FULL
    tol: float = 0.0
    abs_tol: float | None = None
    known: Lower | None = None
    products: bool = False
    search: bool = True
    rows: Array | None = None


class Certified(NamedTuple):
    """A certificate, and the bound of the solver's own multipliers; the certificate may rest on a better bound."""

    certificate: Certificate
    own: Lower | None


@clock.phase(clock.PROOF)
def first_look(reduction: Reduction, data: Outer, point: Iterate, rows: Array | None = None) -> Certificate:
    """A certificate from the factor alone, for a point that was evaluated; its bounds are not proven."""
    upper = upper_bound(reduction, data, point, exactly=True, look=True)
    bound = _on_pieces(reduction, data, point, _rows_here(data, reduction, point, rows), FIRST_LOOK)
    return _assembled(reduction, data, bound, upper, REDUCED, check=False, told=False)


def value_at_zero(reduction: Reduction, data: Outer, known: bool = False) -> float | None:
    """P₀ of the minimized problem; None where θ = 0 is infeasible, where P₀ is not found, and with exponentials.

    known : whether it is asked for only if an earlier call found it
    """
    if data.facts.exponentials or (known and "at zero" not in notes_at_zero(reduction, data)):
        return None
    return at_zero(reduction, data)


def gap_of_solver(reduction: Reduction, data: Outer, point: Iterate, gap: float) -> float:
    """The relative gap for an absolute gap that a solver found; NaN where a first look has to decide.

    That is the case without P₀, and with exponentials, whose infimum may not be attained.
    """
    attained = value_at_zero(reduction, data) if isfinite(gap) else None
    if attained is None:
        return nan
    value = data.sign * representer.bare_value(reduction.form, point)
    unit = min(attained - value, CAP * abs(value - data.offset))
    return abs(gap) / unit if unit > 0 else nan


def certify(reduction: Reduction, data: Outer, point: Iterate, request: Request | None = None) -> Certificate:
    """The certificate of a point that was evaluated."""
    return certified(reduction, data, point, request or Request()).certificate


@clock.phase(clock.PROOF)
def certified(reduction: Reduction, data: Outer, point: Iterate, request: Request) -> Certified:
    """The certificate of a point that was evaluated, and the bound of its own multipliers."""
    start, scope = clock.now(), request.scope
    upper = upper_bound(reduction, data, point)
    exact = all(factor.is_exact for factor in reduction.factors.values())
    # At full numerical rank the trace of Q − BBᵀ bounds what the factor leaves: the pass is made only if that fails.
    ways = [CHEAP] if scope == FULL and exact and not reduction.is_restriction else []
    with_products = request.products and scope == FULL
    ways += [STREAMED, PRODUCTS] if with_products else [WAYS[scope]]
    for way in ways:
        if with_products and way == STREAMED and not _may_close(reduction, data, point, request, upper):
            continue
        found = _by_way(reduction, data, point, request, upper, way)
        if found.certificate.closes(request.tol, request.abs_tol):
            break
    certificate, own = found
    is_open = certificate.scope == FULL and not certificate.closes(request.tol, request.abs_tol)
    if scope == FULL and is_open and _may_be_rounding(reduction, certificate, request):
        decided = own is not None and _rounding_decides(reduction, data, point, own, request, upper)
        bound = own if decided else _without_errors(reduction, data, point, request, upper)
        if bound is not None:
            of_computed = _for_computed_kernel(reduction, data, point, bound)
            certificate = of_computed if of_computed.closes(request.tol, request.abs_tol) else certificate
    return Certified(replace(certificate, seconds=clock.now() - start), own)


def _may_close(reduction: Reduction, data: Outer, point: Iterate, request: Request, upper: UpperBound) -> bool:
    """Whether a pass over rows with multipliers takes far less than Qν, and may close the gap.

    Qν is needed for another column only. The gap is estimated from the diagonal of Q − BBᵀ, which takes no pass, or
    from the last bound: functions Aᵀν that a factor got since then reduce νᵀ(Q − BBᵀ)ν far more than the diagonal.
    """
    bound = _on_pieces(reduction, data, point, request.rows, DIAGONAL)
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

    def closes(bound: Lower, tol: float) -> bool:
        return _assembled(reduction, data, bound, upper, FULL, told=False).closes(tol, abs_tol)

    own = _on_pieces(reduction, data, point, _rows_here(data, reduction, point, request.rows), way)
    if own is None or not closes(own, tol or ZERO):
        others = [_at_minima(reduction, data, point, own, way)]
        if data.pieces is not None and (request.rows is None or own is None or not isfinite(own.value)):
            others.append(_from_point_alone(reduction, data, data.pieces, point, own, upper, way))
        own = max((one for one in (own, *others) if one is not None), key=_by_value, default=None)
    told = [] if known is None or known.confined or scope != FULL else [known]
    confined = reduction.is_restriction and scope == FULL and not any(closes(one, tol) for one in told)
    unbound = any(has_free_outputs(reduction, data.pieces, k) for k in range(len(reduction.form.predictions)))
    # In outputs of θ that no norm binds, Aᵀν must vanish. Multipliers of a factor of lower rank only make Bᵀν vanish:
    # the bound is one for θ in the factor's span.
    aims = tol > 0 or abs_tol is not None
    if confined and unbound and (own is None or (aims and not closes(own, tol))):
        return _by_way(reduction, data, point, request, upper, FROM_FACTOR)
    best = own
    for one in told:
        best = one if own is None or one.value > own.value else own
    return Certified(_assembled(reduction, data, best, upper, scope), own)


def _from_point_alone(  # noqa: PLR0917
    reduction: Reduction, data: Outer, pieces: Pieces, point: Iterate, own: Lower | None, upper: UpperBound, way: str
) -> Lower | None:
    """The bound of multipliers found from the point without its ν.

    None where a pass over many rows would be in vain: with the factor alone the bound of ν is near the value.
    """
    if own is not None and way in {STREAMED, PRODUCTS} and not _has_rows(reduction, FEW):
        ours = _on_pieces(reduction, data, point, own.rows, FROM_FACTOR)
        if ours is not None and upper.upper - ours.value <= IN_VAIN * (upper.upper - own.value):
            return None
    return _on_pieces(reduction, data, point, rows_near(reduction, pieces, point, by_nu=False), way)


def _without_errors(
    reduction: Reduction, data: Outer, point: Iterate, request: Request, upper: UpperBound
) -> Lower | None:
    """The bound of the solver's multipliers where errors of kernel values alone let them prove nothing."""
    rows = _rows_here(data, reduction, point, request.rows) if reduction.form.norms else None
    found = _on_pieces(reduction, data, point, rows, ERRORLESS)
    return found if found is not None and _rounding_decides(reduction, data, point, found, request, upper) else None


def _may_be_rounding(reduction: Reduction, found: Certificate, request: Request) -> bool:
    """Whether the gap may close for the kernel matrix as computed; of many rows it is mostly an allowance then."""
    if _has_rows(reduction, FEW):
        return True
    target, gap = LIKELY * max(request.tol * found.unit, request.abs_tol or 0.0), found.absolute_gap
    return _has_rows(reduction, SUMMED) and gap - found.rounding <= min(target, gap / 2)


def _has_rows(reduction: Reduction, most: int) -> bool:
    return all(len(link.rows) <= most for link in reduction.form.predictions)


def _rounding_decides(  # noqa: PLR0917
    reduction: Reduction, data: Outer, point: Iterate, bound: Lower, request: Request, attained: UpperBound
) -> bool:
    """Whether errors of kernel values keep the gap open: without them the bound is near the value.

    They must not be able to undo more than a share of the improvement, either.
    """
    if not bound.grams or not isfinite(attained.upper) or not attained.is_feasible:
        return False
    trial = _on_pieces(reduction, data, point, bound.rows, ERRORLESS)
    if trial is None:
        return False
    plain = replace(attained, upper=attained.value + attained.widened, rounding=0.0)
    unit = _assembled(reduction, data, None, plain, FULL).unit
    close = CLOSE if request.tol == 0 else min(CLOSE, LIKELY * request.tol)
    near = max(close * unit, 0.0 if request.abs_tol is None else LIKELY * request.abs_tol)
    return attained.kernel <= UNDONE * unit and abs(plain.upper - trial.value) <= near


def _for_computed_kernel(reduction: Reduction, data: Outer, point: Iterate, bound: Lower) -> Certificate:
    """The certificate for the kernel matrix as it was computed, with VᵀQV, predictions and norms as exact sums."""
    proven = _on_pieces(reduction, data, point, bound.rows, COMPUTED)
    _, exact = representer.invert(reduction, point, exactly=True)
    upper = upper_bound(reduction, data, exact, exactly=True)
    found = _assembled(reduction, data, proven, upper, FULL)
    return replace(found, rests_on=(*found.rests_on, AS_COMPUTED))


@clock.phase(clock.PROOF)
def certify_without_pass(
    reduction: Reduction, data: Outer, point: Iterate, known: Lower | None = None, rows: Array | None = None
) -> Certificate:  # fmt: skip
    """A certificate without a pass: from a `known` bound with the full kernel if there is one, else from the factor."""
    if known is None or known.confined:
        return certify(reduction, data, point, Request(REDUCED, rows=rows))
    return _assembled(reduction, data, known, upper_bound(reduction, data, point), FULL)


def without_lower_bound(reduction: Reduction, data: Outer, point: Iterate) -> Certificate:
    """The certificate of a point for which there was no time to find a lower bound."""
    return _assembled(reduction, data, None, upper_bound(reduction, data, point), REDUCED)


def by_word(  # noqa: PLR0917
    reduction: Reduction, data: Outer, point: Iterate, bound: float, solver: str, confined: bool
) -> Certificate:
    """The certificate of a mixed-integer answer: its own value, and the bound that its solver tells.

    reduction, data, point : of the problem whose integers are fixed, with the answer
    bound : of the minimized problem, constants included; confined : whether it holds only for θ in the factor's span
    A bound above the answer's own value, by more than a solver's tolerance, is refuted by it, and counts as none.
    """
    found, upper, refuted = _beside_bound(reduction, data, point, bound, WORD_REDUCED if confined else WORD)
    said = (*found.rests_on, f"{solver}'s own bound is refuted by the answer's value") if refuted else found.rests_on
    # A gap that is all allowance for rounding closes: the solver's word has none.
    floor = max(found.floor, found.rounding + NOTHING * upper.sizes)
    changes: dict[str, Any] = {"solver": solver, "evidence": None, "floor": floor}
    bare = None if found.bare is None else replace(found.bare, **changes)
    return replace(found, rests_on=said, bare=bare, **changes)


def by_boxes(reduction: Reduction, data: Outer, point: Iterate, bound: float, boxes: int) -> Certificate:
    """The certificate of a mixed-integer answer: its own value, and a bound that was proven for each of some boxes.

    reduction, data, point : of the problem whose integers are fixed, with the answer
    bound : the least of the boxes, of the minimized problem, constants included; boxes : their number
    """
    found, _, _ = _beside_bound(reduction, data, point, bound, WORD)
    said = (*found.rests_on, f"branch and bound on {boxes} box{'es' if boxes > 1 else ''} of the integers")
    changes: dict[str, Any] = {"evidence": None, "scope": FULL}
    bare = None if found.bare is None else replace(found.bare, **changes)
    return replace(found, rests_on=said, bare=bare, **changes)


def _beside_bound(
    reduction: Reduction, data: Outer, point: Iterate, bound: float, scope: str
) -> tuple[Certificate, UpperBound, bool]:
    """The certificate with a lower bound from elsewhere, and whether the answer's value refutes that."""
    upper = upper_bound(reduction, data, point)
    value = bound - data.sign * reduction.form.constant
    refuted = value - upper.upper > max(ZERO * upper.terms, FLAT * data.units[1])
    told = Lower(-inf if refuted else min(value, upper.value), 0.0, upper.terms, (), ())
    return _assembled(reduction, data, told, upper, scope, check=False), upper, refuted


@clock.phase(clock.PROOF)
def certify_again(
    reduction: Reduction, data: Outer, point: Iterate, known: Certificate, tol: float | None = None
) -> Certificate | None:
    """A certificate for other values of parameters from the multipliers of a known one, without a pass over the kernel.

    `data` and the point belong to the new values, and the point was evaluated. The checker is asked until the gap is at
    most `tol`, or once without it. None where the multipliers no longer apply.
    """
    start, lower, upper = clock.now(), known.evidence, upper_bound(reduction, data, point)
    way = FROM_FACTOR if known.scope == REDUCED else CHEAP
    bound = None if lower is None else _on_pieces(reduction, data, point, lower.rows, way, lower)
    if bound is None:
        return None
    found = _assembled(reduction, data, bound, upper, known.scope)
    return replace(found, seconds=clock.now() - start)


def _rows_here(data: Outer, reduction: Reduction, point: Iterate, rows: Array | None) -> Array | None:
    """Multipliers of all rows of the pieces: those of the solver, or of slopes at the point that its ν determines."""
    if rows is not None or data.pieces is None:
        return rows
    return rows_near(reduction, data.pieces, point)


def _rows_of(data: Outer, reduction: Reduction, found: Array) -> Array:
    """Multipliers of all rows from slopes; those of bounds on norms follow from ‖Aᵀν‖."""
    return assemble.multipliers(reduction.form, data, found, np.zeros(len(reduction.form.norms)))


def _on_pieces(  # noqa: PLR0917
    reduction: Reduction, data: Outer, point: Iterate, rows: Array | None, way: str, known: Lower | None = None
) -> Lower | None:
    """The bound that multipliers of the rows of the pieces prove; None where there are none, or they prove nothing."""
    pieces = None if rows is None else data.pieces
    if rows is None or pieces is None or len(rows) != len(pieces.s0):
        return None
    span = way in (FROM_FACTOR, FIRST_LOOK)
    if not reduction.form.norms and not reduction.is_restriction:  # no νᵀQν, so that one way is as good as another
        last, found = data.notes.get("without norms", (None, None))
        if last is not rows:
            found = on_pieces.lower_bound(reduction, pieces, point, rows, way, span, known)
            data.notes["without norms"] = rows, found
    else:
        found = on_pieces.lower_bound(reduction, pieces, point, rows, way, span, known)
    if found is None or not isfinite(found.value):
        return None
    u = np.concatenate([np.arange(0), *(pieces.columns[k.u.id] for k in reduction.form.predictions if k.u is not None)])
    assert found.rows is not None
    nu = -(pieces.c + pieces.slopes(found.rows))[u.astype(int)]
    # Another proof begins at the rows as they were given: these were moved by what this one needs.
    return replace(found, rows=rows, nu=nu, confined=span and reduction.is_restriction)


def _by_value(bound: Lower) -> float:
    return bound.value


def _at_minima(reduction: Reduction, data: Outer, point: Iterate, bound: Lower | None, way: str) -> Lower | None:
    """The bound of multipliers nearest to 0, where every loss is at its minimum and they prove more than another bound.

    Those of a solver are 0 only to its tolerance.
    """
    if data.split is None:
        return None
    flat, value = _flattest(data)
    if flat is None or (bound is not None and value <= bound.value) or not _is_flat(reduction, data, point, value):
        return None
    return _on_pieces(reduction, data, point, _rows_of(data, reduction, flat), way)


@np.errstate(all="ignore")  # outside of a domain
def _flattest(data: Outer) -> tuple[Array | None, float]:
    """The slopes nearest to 0 with Fᵀv + c_y = 0, and −Σh*(v), the bound they prove if Aᵀν = 0; found once.

    They do not depend on costs of norms.
    """
    notes, split = data.common.notes, data.split
    assert split is not None
    if "flattest" not in notes:
        v = slopes.feasible_slopes(split, np.zeros(split.E.shape[0]))
        value = -inf if v is None else data.offset + split.constant - split.conjugate(v)
        notes["flattest"] = (v, value)
    found: tuple[Array | None, float] = notes["flattest"]
    return found


def _is_flat(reduction: Reduction, data: Outer, point: Iterate, value: float) -> bool:
    """Whether the objective at the point is the sum of all losses' minima, nearly: elsewhere they prove little."""
    attained = data.sign * representer.bare_value(reduction.form, point)
    return attained - value <= FLAT * data.units[1]


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
    sign, upper = data.sign, found.upper
    ranks = tuple((reduction.factors[link.theta].rank, len(link.rows)) for link in reduction.form.predictions)
    lower = -inf if bound is None or not isfinite(bound.value) else bound.value
    if bound is not None and isfinite(found.sizes):
        lower -= 2 * UNIT * found.sizes  # constants and costs are rounded where they are read
    rounding = (0.0 if bound is None or not isfinite(bound.rounding) else bound.rounding) + found.rounding
    assumptions = list[str]()
    attained = abs(sign * data.offset - (upper - found.widened))
    loose = found.widened > LOOSE * max(attained, found.terms, NOTHING * found.sizes)
    loose = loose or (upper == inf and isfinite(found.value))  # outside by more than solvers leave
    if loose or lower > upper + (0.0 if check else 1e-8 * found.terms):
        # The lower bound is the one that does not rest on constraints holding only nearly, to first order.
        lower = min(lower, upper)
        upper = inf
        assumptions.append(f"no {'upper' if sign > 0 else 'lower'} bound: constraints hold too loosely")
    unit = min(abs(upper), inf if found.at_zero is None else abs(found.at_zero - found.value))
    is_wide = scope != FULL or not upper - lower <= WIDE * unit
    # With integers, `data` are those of the problem in which they are fixed: its bound is none of the stated problem.
    by_terms = -inf if scope in {WORD, WORD_REDUCED} else _by_terms(reduction, data, is_wide and told)
    if by_terms > lower:  # it holds for every θ, and rests on nothing
        lower, rounding, scope = by_terms, found.rounding, FULL
    lower = min(lower, upper, found.value)
    zero = None if found.at_zero is None else max(found.at_zero, lower)
    floor = ZERO * found.terms if zero is not None and zero - lower <= ZERO * found.terms else 0.0
    of_offset = 8 * UNIT * abs(data.offset)  # both bounds are sums with it
    if min(inf if zero is None else zero, found.value if found.is_zero else inf) - lower <= of_offset:
        floor = max(floor, of_offset + found.rounding)  # θ = 0 is optimal to the last digit
    # No multipliers close errors of predictions: they enter the floor where they are negligible beside P₀ − P.
    gained = 0.0 if found.at_zero is None else abs(found.at_zero - found.value)
    kernel = found.kernel if found.kernel <= OPEN * gained else 0.0
    if found.terms <= kernel:
        floor = max(floor, kernel + LAST_DIGITS * gained)
    if found.terms <= NOTHING * found.sizes and found.plain <= ZERO * (upper - lower):
        floor = max(floor, NOTHING * found.sizes + kernel)  # the optimum is 0 to double precision
    if found.terms <= UNSEEN * data.facts.least and not data.facts.is_constant:
        floor = max(floor, UNSEEN * data.facts.least + found.rounding - found.kernel + kernel + of_offset / 2)
    low, high = (lower, upper) if sign > 0 else (-upper, -lower)
    rests_on = _rests_on(reduction, data, found) if told else ()
    distance = _distances(reduction, data, upper - lower) if told and scope == FULL else {}
    bare = Certificate(
        lower=low, upper=high, scope=scope, ranks=ranks, assumptions=tuple(assumptions),
        rests_on=rests_on, widened=found.widened, rounding=rounding, floor=floor,
        terms=found.terms, violations=found.violations, is_feasible=found.is_feasible,
        at_zero=None if zero is None else sign * zero, maximize=sign < 0,
        seconds=0.0, evidence=bound, distance=distance,
        of_terms=sign * min(by_terms, upper) if isfinite(by_terms) else None,
    )  # fmt: skip
    return bare.shifted(reduction.form.constant, found.stated)


def _by_terms(reduction: Reduction, data: Outer, thoroughly: bool) -> float:
    """A lower bound of the minimized objective for all θ, by the signs of its terms; each is found once.

    Where these tell nothing, `thoroughly` asks for the infima of its functions beside linear terms.
    """
    if "by terms" not in data.notes:
        known = reduction.form.notes.setdefault("least", {})
        data.notes["by terms"] = least(reduction.form.bare.objective.args[0], data.sign, known)
    if data.notes["by terms"] == -inf and thoroughly and data.pieces is not None and "by pieces" not in data.notes:
        data.notes["by pieces"] = on_pieces.of_terms(reduction, data.pieces)
    return max(data.notes["by terms"], data.notes.get("by pieces", -inf))


def _rests_on(reduction: Reduction, data: Outer, found: UpperBound) -> tuple[str, ...]:
    """The facts beside the statement that the bounds rest on, as sentences."""
    links, factors = reduction.form.predictions, reduction.factors
    told = [f"constraints met to {max(found.violations, default=0.0):.1e}"] if not found.is_feasible else []
    told += [f"kernel matrix projected: {f.method}" for f in factors.values() if f.is_projected]
    told += [sentence for link in links for sentence in link.theta.kernel.declarations()]
    told += [f"{link.term.loss.name} is convex, as declared" for link in reduction.form.smooth]
    told += [f"{term.loss.name}'s conjugate is its own, as declared" for term in reduction.form.proximal]
    free = [number for number in range(len(links)) if has_free_outputs(reduction, data.pieces, number)]
    rounded = any(not free_features(reduction, number)[1] for number in free)
    return tuple(dict.fromkeys(told + ["for features as computed"] * rounded))


def _distances(reduction: Reduction, data: Outer, gap: float) -> dict[Theta, float]:
    """‖θ̂ − θ*‖ ≤ √(gap/λ) for each θ with a penalty λ‖θ − f₀‖²."""
    found: dict[Theta, float] = {}
    for norm, bend in zip(reduction.form.norms, data.facts.bends, strict=True):
        strength, theta = bend / 2, norm.view.theta
        if strength > 0 and isfinite(gap) and norm.kind in (EUCLIDEAN, "fro") and norm.view.right is None:
            found[theta] = min(float(np.sqrt(max(gap, 0.0) / strength)), found.get(theta, inf))
    return found
