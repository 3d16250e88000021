"""The upper bound that a point gives: its value, with all that rounding and errors of kernel values may add."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, NamedTuple

import numpy as np

from kernelopt.certificate import checker, pieces_checker
from kernelopt.certificate import sizes as sizes_of
from kernelopt.certificate.multipliers import row_coefficients
from kernelopt.compiler import projection, representer, residuals, violations
from kernelopt.compiler.attributes import dense
from kernelopt.compiler.canonical_form import CanonicalForm, NormLink
from kernelopt.compiler.conic_form import ConicForm
from kernelopt.compiler.iterate import Iterate, in_columns
from kernelopt.compiler.outer import Outer
from kernelopt.compiler.representer import Reduction
from kernelopt.language.nodes import norm_from_gram
from kernelopt.pieces.form import Pieces
from kernelopt.pieces.quadratics import Piecewise
from kernelopt.solvers import cone_program, engines, on_rows
from kernelopt.support import clock
from kernelopt.support.arithmetic import UNIT, gamma
from kernelopt.support.singular import singular_values
from kernelopt.support.types import Array

LEAST = 2.0**-537  # the root of the least double
# Times the sizes of arguments: constants of stretches that begin farther off are no numbers of the value. Those of
# squares up to there are 1e6 times its size, of which rounding is 1e-8 in terms of NOTHING.
REACH = 1e3
MET = 1e-12  # relative to the sizes of a constraint's terms: violations up to this count as rounding
ROUNDINGS = 24  # roundings u per term that `checker.upper` allows for
MANY = 50  # columns beside θ from which P₀ is that of a sparse program


@dataclass(frozen=True)
class UpperBound:
    """The upper bound that a point gives, of the minimized problem without constants (except `stated`).

    stated, value : the objective as stated, and minimized without constants
    terms : T, the sum of the sizes of its terms; plain : the same for terms that are not losses
    sizes : the sum of the sizes of all numbers that the value is computed from, those inside of losses included
    upper : an upper bound. It includes `widened`, for constraints that hold only nearly, and `rounding`, of which
        `kernel` is due to errors of kernel values
    at_zero : the optimum P₀ at θ = 0; is_zero : whether θ = 0 at the point
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
    is_zero: bool
    violations: tuple[float, ...]
    is_feasible: bool
    kernel: float


def upper_bound(
    reduction: Reduction, data: Outer, point: Iterate, exactly: bool = False, look: bool = False
) -> UpperBound:
    """The upper bound of a point.

    `exactly`: predictions and norms have no errors; `look`: a first look, which leaves out rounding inside of losses
    """
    canonical = reduction.form
    signed = data.sign * representer.bare_value(canonical, point)
    beyond = residuals.of_constraints(canonical, point)
    widened = 0.0 if data.facts.is_constant else _widening(canonical, point, beyond)
    scales = [(0.0, 0.0) for _ in canonical.predictions] if exactly else _scales(reduction, point)
    if data.pieces is not None and data.pieces.is_explicit:
        found = _on_pieces(reduction, data.pieces, point, signed, scales, look, data.data_unit)
    else:
        found = _in_cones(reduction, data, point, signed, scales, exactly, look)
    if data.facts.is_constant:  # every point has this value
        found = found._replace(above=signed, kernel=0.0)
    upper, kernel = found.above + widened, found.kernel
    defined = residuals.outside_domain(canonical, point) <= residuals.FEASIBLE
    constraints, relative = canonical.outer.constraints, violations.violation(reduction, point, data.data_unit)
    # What violations cost is known to first order in multipliers, and those of a point far outside may be 0.
    upper = upper if defined and relative <= residuals.FEASIBLE else inf
    violated = [c for c, r in zip(constraints, beyond, strict=True) if r.any()]
    linear = all(part.is_affine() for c in violated for part in c.args if not isinstance(part, list))
    sums = _sums(reduction, point) if exactly else None
    return UpperBound(
        stated=point.value, value=signed, sizes=found.sizes, plain=found.plain, upper=upper, widened=widened,
        terms=found.terms,
        kernel=kernel,
        rounding=upper - signed - widened if isfinite(upper) else 0.0,
        at_zero=at_zero(reduction, data),
        is_zero=not any(v.any() for v in point.v),
        violations=tuple(float(np.max(r, initial=0.0)) for r in beyond[: len(beyond) - len(canonical.smooth)]),
        is_feasible=relative <= MET
        or (defined and linear and projection.is_met(reduction, data, point, sums)),
    )  # fmt: skip


class _Above(NamedTuple):
    """An upper bound of the computed value, what errors of predictions and norms add to it, and the sizes of terms, of
    those that are no losses, and of all numbers that the value is computed from."""

    above: float
    kernel: float
    terms: float
    plain: float
    sizes: float


def _in_cones(  # noqa: PLR0917
    reduction: Reduction, data: Outer, point: Iterate, value: float, scales: list[tuple[float, float]], exactly: bool,
    look: bool,
) -> _Above:  # fmt: skip
    """By the cone data: allowances for each of its terms."""
    form, x = data.form, _columns_of(data.form, point)
    terms, plain = _terms(form, x, value)
    within = 0.0 if look else _inside(form, x, terms, np.zeros(len(form.c)))
    kernel = _of_norms(reduction, form, point, scales)
    kernel += 0.0 if exactly else _of_predictions(reduction, form, point, x, terms, within, scales)
    sizes = terms + within / ROUNDINGS
    above = checker.upper(value, sizes, form.offset, kernel) if sizes or kernel else value
    return _Above(above, kernel, terms, plain, sizes)


def _columns_of(form: ConicForm, point: Iterate) -> Array | None:
    """x on the columns of u, t and the user's variables, 0 elsewhere; None where a variable has fewer columns than
    entries, as symmetric and diagonal ones do."""
    if any(len(columns) not in (0, dense(y).size) for y, columns in zip(point.y, form.variables, strict=True)):
        return None
    x = form.columns_of_y(point.y)
    for u, columns in zip(point.u, form.u, strict=True):
        x[columns] = np.ravel(u, order="F")
    x[form.t] = point.t
    return x


def _on_pieces(  # noqa: PLR0917
    reduction: Reduction, pieces: Pieces, point: Iterate, value: float, scales: list[tuple[float, float]], look: bool,
    data_unit: float,
) -> _Above:  # fmt: skip
    """By the pieces: the largest value within the errors of predictions and norms.

    Constraints cost twice the first order in their multipliers, which are at most |ν| plus the slopes of functions.
    """
    x, off = in_columns(reduction.form, pieces, point), _errors(reduction, pieces, point, scales)
    terms, plain, sizes = _sizes(pieces, pieces.settled(x), value, data_unit)
    if look or not isfinite(value):
        return _Above(value, 0.0, terms, plain, terms)
    found = pieces_checker.upper(pieces, x, off)
    kernel = max(found - value, 0.0) if off.any() else 0.0
    if len(pieces.below) + len(pieces.equal) + len(pieces.cones) > len(pieces.bounds):
        kernel += 2 * kernel + _of_multipliers(reduction, point, scales)
    return _Above(max(found, value + kernel), kernel, terms, plain, sizes)


def _errors(reduction: Reduction, pieces: Pieces, point: Iterate, scales: list[tuple[float, float]]) -> Array:
    """Bounds on the errors of u and t in their columns."""
    off, asked, form = np.zeros(pieces.n), np.ones(len(point.t), dtype=bool), reduction.form
    for link, e in zip(form.predictions, errors_of_predictions(reduction, point, scales), strict=True):
        if link.u is not None:
            off[pieces.columns[link.u.id]] = e
    for norm, e in zip(form.norms, _errors_of_norms(reduction, point, scales, asked), strict=True):
        off[pieces.columns[norm.t.id]] = e + _underflow(reduction, point, norm)
    return off


def _underflow(reduction: Reduction, point: Iterate, norm: NormLink) -> float:
    """By how much ‖θM − f‖ may exceed its computed value since squares underflow: each by less than 2⁻¹⁰⁷⁴."""
    factor = reduction.factors[norm.view.theta]
    parts = zip(reduction.form.predictions, point.v, strict=True)
    count = sum(np.count_nonzero(v) for link, v in parts if link.theta is norm.view.theta)
    return float(np.sqrt(count) * LEAST * max(1.0, 1 / np.sqrt(factor.scale)))


def _sizes(pieces: Pieces, x: Array, value: float, data_unit: float) -> tuple[float, float, float]:
    """The sizes of terms, T; of those that are no losses, linear ones and squares of single columns; and of all numbers
    that the value is computed from there, and where predictions are as large as the data."""
    if not isfinite(value):
        return (abs(value - pieces.c0),) * 3
    s, linear = pieces.rows(x), pieces.c * x
    plain, known, inner = float(np.abs(linear).sum()), float(linear.sum()), 0.0
    single, numbers = np.diff(pieces.S.indptr) == 1, pieces.sizes(x) + np.abs(pieces.s0)
    unit = min(data_unit, pieces.once("unit of labels", _unit_of_labels))
    reach = REACH * (numbers + unit * pieces.sizes(np.ones(pieces.n)))
    for group in pieces.groups:
        w = group.costs
        with np.errstate(all="ignore"):
            slopes = np.abs(group.family.slope(s[group.rows]))
            inner += float(w @ np.sum(np.where(np.isfinite(slopes), slopes, 0.0) * numbers[group.rows], axis=1))
        if isinstance(group.family, Piecewise):
            inner += float(w @ group.family.constants(reach[group.rows[:, 0]]))
        if isinstance(group.family, Piecewise) and not group.family.knots.shape[1]:
            rows = group.rows[:, 0]
            mine = single[rows] & (pieces.s0[rows] == 0)
            squares = float((w * group.family.value(s[group.rows]))[mine].sum())
            plain, known = plain + squares, known + squares
    terms = plain + abs(value - pieces.c0 - known)
    return terms, plain, terms + inner


def _unit_of_labels(pieces: Pieces) -> float:
    """The largest constant of a row, or middle of the knots of a function; thresholds on both sides of 0 are no labels.

    Huber's 1e12 says nothing of arguments, while |y − f| − ε has its knots at y ± ε.
    """
    found = [float(np.abs(pieces.s0).max(initial=0.0))]
    for group in pieces.groups:
        if isinstance(group.family, Piecewise) and group.family.knots.shape[1]:
            knots, first = group.family.knots, group.family.knots[:, 0]
            last = np.where(np.isfinite(knots), knots, -inf).max(axis=1)
            with np.errstate(invalid="ignore"):  # ∞ − ∞ of functions without knots
                middles = np.where(np.isfinite(first), np.abs(0.5 * first + 0.5 * last), 0.0)
            found.append(float(middles.max(initial=0.0)))
    return max(found)


def at_zero(reduction: Reduction, data: Outer) -> float | None:
    """P₀; None where θ = 0 is infeasible, or P₀ is not known.

    It is computed once for all data that differ only in the costs of norms, since norms without f₀ are 0 at θ = 0.
    """
    notes = notes_at_zero(reduction, data)
    if "at zero" in notes:
        known: float | None = notes["at zero"]
        return known
    if "at zero in vain" in notes and clock.seconds_left() <= clock.LAST:
        return None
    try:
        found = _found_at_zero(reduction, data)
    except clock.OutOfTimeError:
        found = None
    if found is not None or clock.seconds_left() > 0:
        notes["at zero"] = found
    else:  # a call with more time may find it
        notes["at zero in vain"] = True
    return found


def lacks_zero(reduction: Reduction, data: Outer) -> bool:
    """Whether P₀ was sought, and the time did not suffice."""
    notes = notes_at_zero(reduction, data)
    return "at zero in vain" in notes and "at zero" not in notes


def notes_at_zero(reduction: Reduction, data: Outer) -> dict[Any, Any]:
    return data.notes if norms_at_zero(reduction).any() else data.common.notes


def _found_at_zero(reduction: Reduction, data: Outer) -> float | None:
    t, form = norms_at_zero(reduction), reduction.form

    def by_cones() -> float | None:
        if not form.has_cones:
            return None
        return cone_program.value_at(data.form, np.concatenate([np.zeros(sum(map(len, data.form.u))), t]))

    def by_engines() -> float | None:
        return None if t.any() else engines.value_at_zero(reduction, data)

    # Without θ, what couples rows is a sparse cone program: .002 to .1 s of 60 to 1000 rows, by rows .005 to .7 s. So
    # are many columns beside θ, which engines take as dense ones. Cone data of many atoms take seconds to compile.
    many = data.split is None or data.split.F.shape[1] > MANY
    sparse = many and form.y and not data.has_large_cones and not data.is_long
    for way in (by_cones, by_engines) if sparse else (by_engines, by_cones):
        found = way()
        if found is not None and isfinite(found):
            return min(found, _at_nothing(reduction, data, t))
    return None


def _at_nothing(reduction: Reduction, data: Outer, t: Array) -> float:
    """The minimized objective where all variables are 0; ∞ where that is infeasible, or not known.

    Where P₀ is 0, a solver's value is 0 to its absolute error, which may be large beside what θ gains.
    """
    if t.any() or data.pieces is None:
        return inf
    found = on_rows.value_of_zeros(data.pieces)
    return inf if found is None else found


def _terms(form: ConicForm, x: Array | None, value: float) -> tuple[float, float]:
    """T, and the part of it that is not in losses, Σ |cⱼxⱼ| + ½Pⱼxⱼ² over predictions, norms and the user's variables.

    T adds the size of the remaining part of the objective.
    """
    if x is None or not isfinite(value):
        return abs(value - form.offset), abs(value - form.offset)
    linear, square = form.c * x, 0.5 * form.P * x**2
    plain, rest = float(np.abs(linear).sum() + square.sum()), value - form.offset - float(linear.sum() + square.sum())
    return plain + abs(rest), plain


def _inside(form: ConicForm, x: Array | None, terms: float, known: Array) -> float:
    """Rounding inside of losses in units of u, for predictions with errors `known`."""
    return 0.0 if x is None or not isfinite(terms) else sizes_of.inside(form, x, terms, known)


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
    errors, constraints = errors_of_predictions(reduction, point, scales), reduction.form.outer.constraints
    unknown = x is None or not isfinite(terms)
    of_multipliers = _of_multipliers(reduction, point, scales) if constraints or unknown else 0.0
    if unknown:
        return of_multipliers
    known = np.zeros(len(form.c))
    for columns, e in zip(form.u, errors, strict=True):
        known[columns] = e / UNIT
    of_losses = UNIT * max(_inside(form, x, terms, known) - within, 0.0)
    return 3 * of_losses + of_multipliers if constraints else of_losses


def _of_multipliers(reduction: Reduction, point: Iterate, scales: list[tuple[float, float]]) -> float:
    """2Σ|ν|e for the errors e of predictions."""
    pairs = zip(errors_of_predictions(reduction, point, scales), point.multipliers(), strict=True)
    return 2 * sum(float(e @ np.abs(np.ravel(nu, order="F"))) for e, nu in pairs)


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


def norms_at_zero(reduction: Reduction) -> Array:
    """‖f₀‖ for each norm: its value at θ = 0."""
    return np.array([
        0.0 if n.view.shift is None else norm_from_gram(n.view.shift.gram(), n.kind) for n in reduction.form.norms
    ])  # fmt: skip


def _widening(canonical: CanonicalForm, point: Iterate, beyond: list[Array]) -> float:
    """2Σ|multiplier|·|residual| over constraints of the outer problem: twice the first-order cost of meeting them.

    The factor 2 allows for multipliers that are known only nearly.
    """
    total = 0.0
    for constraint, residual in zip(canonical.outer.constraints, beyond, strict=True):
        known = [d for d in point.duals.get(constraint.id, ()) if d is not None]
        if not np.isfinite(residual).all():
            return inf
        if not residual.any() or not known:
            continue
        sizes = [np.abs(np.asarray(d)).astype(float) for d in known]
        if len(sizes) == 1 and sizes[0].shape == residual.shape:
            total += 2 * float((sizes[0] * residual).sum())
        else:  # cones: ‖z‖₁ times the largest residual bounds the cost of moving each entry by it
            total += 2 * sum(float(d.sum()) for d in sizes) * float(residual.max(initial=0.0))
    return total
