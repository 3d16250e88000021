"""The derivative of a criterion by parameters, through the optimum: one adjoint system for all of them.

At an optimum the conditions R(x, ζ, w; p) = 0 hold, with a symmetric derivative K. With K r = ∇φ,

    dφ/dp = ∂φ/∂p − rᵀ ∂R/∂p.

For cone data, and y = Σζ∇²g·A r_x + (rows of r_ζ) with ∇g,

    rᵀ∂R = r_xᵀ(∂P x + ∂c + ∂Aᵀz) + yᵀ(∂A x − ∂b).

For a kernel κ, with α the coefficients of θ and η = −(Hr + Jᵀr_ζ)_u, ρ = −(Hr + Jᵀr_ζ)_t/t,

    dφ/dp = φ′ᵀ ∂K(Z, X) α + (η + ½ραMMᵀ)ᵀ ∂Q α,

and ½φ_tαMMᵀ/t beside ½ραMMᵀ where φ depends on t = ‖θM‖ itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import cvxpy as cp
import numpy as np

from kernelopt.compiler.canonical_form import CanonicalForm, NormLink, PredictionLink
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.representer import Reduction
from kernelopt.errors import KernelOptError
from kernelopt.kernels.adjoints import kernel_gradient
from kernelopt.kernels.indexed import kinks_in_points
from kernelopt.kernels.lifts import Lift, joint, lift_of, relifted, relifted_rows
from kernelopt.language.functions import Function
from kernelopt.language.nodes import EUCLIDEAN
from kernelopt.language.rows import Rows
from kernelopt.sensitivity.atom_slopes import NEAR
from kernelopt.sensitivity.criterion import Criterion, Place, Slopes, slopes, twins
from kernelopt.sensitivity.kkt import Move, System
from kernelopt.sensitivity.optimum import Optimum, finer, optimum
from kernelopt.sensitivity.stated_cones import stated_cones
from kernelopt.support import cvxpy_parts
from kernelopt.support.types import Array, Ints

REGULAR = 1e-6  # the residual of the adjoint system, relative to its right-hand side, above which it has no solution

# Relative to the terms of a derivative: a change of slopes at kinks that moves it by less is taken for rounding.
MOVED = 1e-7
SEED = 1  # of slopes of norms that are 0

ByParameter = dict[int, tuple[Array, Array]]


class AdjointAnswer(NamedTuple):
    """The answer r of the adjoint system, r_x with u and t, the residual of the system, and its right-hand side."""

    move: Move
    x: Array
    residual: float
    right: Move


class Derivative(NamedTuple):
    """A criterion's value; its derivative by each parameter, and the sizes of the terms that add up to it, by id.

    adjoint : the answer of the adjoint system; None where none was solved
    of_leaving : the criterion's derivative along each θ that may leave 0, by the number of θ
    kinks : the names of atoms of the criterion that are at a kink, and kernels with one between points that are
        parameters, on which the derivative depends
    redrawn : pairs of derivatives that differ in the slopes at a kink of another atom: it stays as long as the active
        constraints do
    """

    value: float
    of_parameters: ByParameter
    adjoint: AdjointAnswer | None
    of_leaving: dict[int, float]
    kinks: tuple[str, ...] = ()
    redrawn: tuple[tuple[Derivative, Derivative], ...] = ()


def at_optimum(form: CanonicalForm, reduction: Reduction, point: Iterate, wanted: list[cp.Parameter]) -> Optimum:
    """The optimum next to an answer, as a function of the wanted parameters of the cone data."""
    _require_supported(form, reduction)
    return optimum(form, *finer(form, reduction, point), stated_cones(form, wanted))


def derivative(found: Optimum, criterion: Criterion, chosen: list[cp.Parameter]) -> Derivative:
    """The derivative of a criterion by the parameters of the cone data, chosen ones of kernels, and its own.

    Where it is at kinks, the derivative is taken again with other slopes there, atom by atom. A kink that does not move
    changes nothing, as that of a row that stays at its target. Beside others all slopes are drawn, since a slope of 0
    in the middle of one kink hides those inside of it.
    """
    place = at(found, criterion)
    values = slopes(criterion, place, chosen)
    one = _through(found, criterion, values, chosen)

    def drawn(ties: dict[str, int]) -> Derivative:
        return _through(found, criterion, slopes(criterion, place, chosen, ties), chosen)

    every = dict.fromkeys(values.kinks, 1) if len(values.kinks) > 1 else {}
    base = drawn(every) if every else one
    pairs = [(name, (base, drawn(every | {name: 2}))) for name in values.kinks]
    if _has_length_of_0(found, criterion, values):
        pairs.append(("norm", (one, _through(found, criterion, values, chosen, True))))
    moving = {name for name, pair in pairs if _differ(*pair)}
    redrawn = tuple(pair for name, pair in pairs if name not in moving)
    kinks = [name for name, _ in pairs if name in moving] + _kinks_in_points(found, criterion.predictions, chosen)
    return one._replace(kinks=tuple(kinks), redrawn=redrawn)


def _kinks_in_points(found: Optimum, links: Sequence[PredictionLink], chosen: list[cp.Parameter]) -> list[str]:
    """The kernels with a kink between two points that a chosen parameter holds, in the problem or the criterion."""
    kinks = dict[str, None]()
    for link in found.form.predictions:
        rows = [one.rows.points for one in (link, *links) if one.theta is link.theta and len(one.rows.points)]
        if rows and all(points.dtype.kind == "i" for points in rows):
            at = kinks_in_points(link.theta.kernel, *2 * [np.concatenate(rows)])
            kinks |= {name: None for p, name in at if any(p is q for q in chosen)}
    return [*kinks]


def _has_length_of_0(found: Optimum, criterion: Criterion, values: Slopes) -> bool:
    """Whether a norm of some θ that moves, on which the criterion depends, is 0 up to the answer's error."""
    return any(
        slope != 0 and found.moves(_number(found, norm.view.theta)) and not _positive_length(found, norm)
        for norm, slope in zip(criterion.norms, values.norms, strict=True)
    )


def _positive_length(found: Optimum, norm: NormLink) -> float:
    """‖θM‖; 0 up to the answer's error, in the unit of predictions."""
    length = _length(found, norm)
    unit = found.units[0] / np.sqrt(found.reduction.factors[norm.view.theta].scale)
    return length if length > NEAR * unit else 0.0


def _through(
    found: Optimum, criterion: Criterion, values: Slopes, chosen: list[cp.Parameter], drawn: bool = False
) -> Derivative:
    """The derivative for known slopes of the criterion; `drawn`: with slopes at random of norms that are 0."""
    adjoint = _solved(found, _right(found, criterion, values, drawn))
    total = {name: (-g, size) for name, (g, size) in _of_data(found, adjoint).items()}
    for number in range(len(found.form.predictions)):
        if _has_wanted(found, number, chosen):
            total = _added(total, _of_kernel(found, number, criterion, values, adjoint))
    total = _added(total, {k: (g, np.abs(g)) for k, g in values.parameters.items()})
    return Derivative(values.value, total, adjoint, _of_leaving(found, criterion, values))


def _differ(one: Derivative, other: Derivative) -> bool:
    """Whether derivatives differ by more than rounding, in units of the terms that add up to them."""
    return any(
        float(np.abs(g - other.of_parameters[name][0]).max(initial=0.0)) > MOVED * float(np.abs(size).max(initial=0.0))
        for name, (g, size) in one.of_parameters.items()
    )


def of_value(found: Optimum, chosen: list[cp.Parameter]) -> Derivative:
    """The derivative of the minimized optimal value: the partial one of the Lagrangian, without a system.

    Its part of a kernel is −½Σ(μ/t)·tr(MMᵀαᵀ ∂Q α): at θ = Aᵀα the Lagrangian has −νᵀAθ + Σμ‖θM‖.
    """
    data, x, z = found.data, found.x.copy(), found.z
    for part in data.smooth:
        x[part.h] = part.loss.value(x[part.g], part.data)
    by_data = cvxpy_parts.DataSlopes(lambda i, j: 0.5 * x[i] * x[j], x, lambda i, j: z[i] * x[j], -z, 1.0)
    total = by_data.of_parameters(data.data)
    for number, link in enumerate(found.form.predictions):
        if _has_wanted(found, number, chosen):
            alpha = _coefficients(found, number)
            left = -0.5 * alpha @ found.system.weights[number]
            total = _added(total, _kernel_gradient(link, link.rows, left, link.rows, alpha))
    value = float(0.5 * x @ (data.P @ x) + data.c @ x + data.data.offset)
    return Derivative(value, total, None, {}, tuple(_kinks_in_points(found, (), chosen)))


def along(found: Optimum, system: System, move: Move, chosen: list[cp.Parameter]) -> ByParameter:
    """−rᵀ ∂R/∂p for any r, by the parameters of the cone data and chosen ones of kernels.

    The system may have more equations than the optimum, and θs that leave 0 as θ = τe with e = Aᵀν/‖Aᵀν‖: the
    condition of τ is ‖θ‖'s cost less ‖Aᵀν‖ = √νᵀQν.
    """
    x, zeta = system.placed(move.w, move.x), move.zeta[: len(found.equations.h)]
    known = AdjointAnswer(move._replace(zeta=zeta), x, 0.0, move)
    total = {name: (-g, size) for name, (g, size) in _of_data(found, known).items()}
    G = system.curvature @ x + system.J.T @ move.zeta
    for number, link in enumerate(found.form.predictions):
        if not _has_wanted(found, number, chosen):
            continue
        if number in found.leaving:
            if move.w[number].size:
                nu = link.summed(found.nu[number])
                length = float(np.linalg.norm(found.whole[number].B.T @ found.nu[number]))
                left = 0.5 * float(move.w[number][0, 0]) / length * nu
                total = _added(total, _kernel_gradient(link, link.rows, left, link.rows, nu))
            continue
        alpha = _coefficients(found, number)
        total = _added(total, _kernel_gradient(link, link.rows, _left(found, number, G, alpha), link.rows, alpha))
    return total


def moved(found: Optimum, deltas: dict[int, Array]) -> Array:
    """dx along changes of the cone data's parameters: K(dw, dx, dζ) = −∂R.

    With dσ = db − dA x, the conditions change by ∂P x + ∂c + ∂Aᵀz − AᵀΣζ∇²g dσ, and the equations by −dσ or ∇gᵀdσ.
    """
    data, x, z, equations = found.data, found.x, found.z, found.equations
    P, c, A, b = data.data.moved(deltas)
    sigma = b - A @ x
    right = -(P @ x + c + A.T @ z - data.A.T @ (equations.bend @ sigma))
    for part in data.smooth:
        right[part.g] -= part.loss.gradient(x[part.g], part.data) * c[part.h]
        right[part.h] = 0.0
    w = found.system.gathered(right)
    right[found.system.linked] = 0.0
    return _solved(found, Move(w, right, np.concatenate([sigma[equations.rows], -(equations.G @ sigma)]))).x


def at(found: Optimum, criterion: Criterion) -> Place:
    """The predictions, norms and variables of a criterion at the optimum."""
    f = tuple(predictions(found, link) for link in criterion.predictions)
    t = tuple(_length(found, norm) for norm in criterion.norms)
    y = []
    for v, columns in zip(criterion.of_y, _columns(found, criterion), strict=True):
        here = len(columns) == v.size
        y.append(np.reshape(found.x[columns], v.shape, order="F") if here else v.value)
    return Place(f, t, tuple(y), found.units[0])


def _length(found: Optimum, norm: NormLink) -> float:
    """‖θM‖. Raises KernelOptError for a norm ‖θ − f₀‖ in a criterion."""
    if norm.view.shift is not None:
        raise KernelOptError(
            "Expected norms of θ in the criterion; it has one of θ − f₀. Write ‖θ‖² − 2f₀ᵀθ + ‖f₀‖², with theta.inner."
        )
    return float(np.linalg.norm(found.system.spans[_number(found, norm.view.theta)].w @ norm.right))


def predictions(found: Optimum, link: PredictionLink) -> Array:
    """θ at the rows of another link, (n, K)."""
    number = _number(found, link.theta)
    own = found.form.predictions[number].rows
    if not len(link.rows) or not found.moves(number):
        return np.zeros((len(link.rows), link.theta.outputs or 1))
    if found.has_coefficients(number):
        return _values(link.rows, own, np.arange(len(own)), _coefficients(found, number))
    return np.asarray(_at_pivots(found, number, link.rows) @ found.system.spans[number].w)


def _at_pivots(found: Optimum, number: int, rows: Rows) -> Array:
    """The map from w to predictions at other rows, by the pivots of the factor, (n, r)."""
    own = found.form.predictions[number].rows
    factor = found.reduction.factors[found.form.predictions[number].theta].in_one_array(own)
    C = factor.coefficients(np.eye(factor.rank)) * np.sqrt(factor.scale)
    return _values(rows, own, factor.pivots, C)


def _solved(found: Optimum, right: Move) -> AdjointAnswer:
    move, residual = found.system.solve(right)
    if not residual <= REGULAR:
        raise KernelOptError(
            "Expected an optimum that is unique in all that the criterion depends on; this one can move at no cost, as "
            f"an intercept can whose rows are all on linear stretches (residual {residual:.1g} of the adjoint system). "
            "Add a small penalty of the free variables, such as 1e-6·cp.square(b)."
        )
    return AdjointAnswer(move, found.system.placed(move.w, move.x), residual, right)


def _of_data(found: Optimum, adjoint: AdjointAnswer) -> ByParameter:
    """rᵀ ∂R/∂p for each parameter of the cone data."""
    data, x, z = found.data, found.x, found.z
    r = adjoint.x.copy()
    for part in data.smooth:
        r[part.h] = part.loss.gradient(x[part.g], part.data) * r[part.g]
    count = len(found.equations.rows)
    y = found.equations.bend @ (data.A @ adjoint.x) - found.equations.G.T @ adjoint.move.zeta[count:]
    y[found.equations.rows] += adjoint.move.zeta[:count]
    by_data = cvxpy_parts.DataSlopes(lambda i, j: r[i] * x[j], r, lambda i, j: z[i] * r[j] + y[i] * x[j], -y)
    return by_data.of_parameters(data.data)


def _right(found: Optimum, criterion: Criterion, values: Slopes, drawn: bool) -> Move:
    """∇φ: in w by predictions and norms of θ in the span of the factor, in x by variables."""
    rng = np.random.default_rng(SEED)
    w = [np.zeros_like(span.w) for span in found.system.spans]
    for link, slope in zip(criterion.predictions, values.predictions, strict=True):
        number = _number(found, link.theta)
        if slope.any() and found.moves(number):
            w[number] += _at_pivots(found, number, link.rows).T @ slope
    for norm, slope in zip(criterion.norms, values.norms, strict=True):
        number = _number(found, norm.view.theta)
        image = found.system.spans[number].w @ norm.right
        length = _positive_length(found, norm)
        if not length:
            image = rng.normal(size=image.shape) / np.sqrt(image.size or 1) if drawn else np.zeros_like(image)
        w[number] += slope / (length or 1.0) * image @ norm.right.T
    x = np.zeros(len(found.data.c))
    for slope, columns in zip(values.y, _columns(found, criterion), strict=True):
        if len(columns) == slope.size:
            x[columns] += np.ravel(slope, order="F")
        elif slope.any():
            raise KernelOptError(
                "Expected variables without structure, and that the problem depends on, in the criterion; one of shape "
                f"{slope.shape} has {len(columns)} entries of its own in the cone program."
            )
    return Move(tuple(w), x, np.zeros(found.system.J.shape[0]))


def _of_kernel(
    found: Optimum, number: int, criterion: Criterion, values: Slopes, adjoint: AdjointAnswer
) -> ByParameter:
    """φ′ᵀ ∂K α + (η + ½ραMMᵀ)ᵀ ∂Q α."""
    link, alpha = found.form.predictions[number], _coefficients(found, number)
    G = found.system.curvature @ adjoint.x + found.system.J.T @ adjoint.move.zeta
    left = _left(found, number, G, alpha)
    for term, slope in zip(criterion.norms, values.norms, strict=True):
        length = _positive_length(found, term)
        if term.view.theta is link.theta and length > 0:
            left += 0.5 * slope / length * alpha @ term.right @ term.right.T
    total = _kernel_gradient(link, link.rows, left, link.rows, alpha)
    for other, slope in zip(criterion.predictions, values.predictions, strict=True):
        if other.theta is link.theta:
            total = _added(total, _kernel_gradient(link, other.rows, slope, link.rows, alpha))
    return total


def _left(found: Optimum, number: int, G: Array, alpha: Array) -> Array:
    """η + ½ραMMᵀ, a row for each distinct row of A."""
    left = np.zeros_like(alpha)
    np.add.at(left, found.form.predictions[number].take, -G[found.system.spans[number].columns])
    for norm in found.system.norms:
        if norm.theta == number and norm.t > 0:
            left += 0.5 * (-G[norm.column] / norm.t) * alpha @ norm.square
    return left


def _of_leaving(found: Optimum, criterion: Criterion, values: Slopes) -> dict[int, float]:
    """∂φ/∂τ at θ = τe, by the number of θ."""
    total = dict.fromkeys(found.leaving, 0.0)
    for link, slope in zip(criterion.predictions, values.predictions, strict=True):
        number = _number(found, link.theta)
        if number in total and slope.any():
            total[number] += float(np.sum(_at_pivots(found, number, link.rows).T @ slope * found.leaving[number]))
    for norm, slope in zip(criterion.norms, values.norms, strict=True):
        number = _number(found, norm.view.theta)
        if number in total:
            total[number] += float(slope * np.linalg.norm(found.leaving[number] @ norm.right))
    return total


def _kernel_gradient(link: PredictionLink, one: Rows, L: Array, other: Rows, R: Array) -> ByParameter:
    """Σ (LRᵀ)ᵢⱼ ∂κ(xᵢ, zⱼ) by each parameter of θ's kernel."""
    one, other = _alike(one, other)
    _require_points(one, other)
    left, right = np.any(L != 0, axis=1), np.any(R != 0, axis=1)
    kernel = relifted(link.theta.kernel, lift_of(one.kernel))
    found = kernel_gradient(kernel, one.points[left], other.points[right], L[left], R[right])
    return {p.id: (np.asarray(g), np.abs(g)) for p, g in found.items()}


def _has_wanted(found: Optimum, number: int, chosen: list[cp.Parameter]) -> bool:
    """Whether a θ's kernel has a chosen parameter. Raises KernelOptError where θ has no known coefficients Aᵀα."""
    link = found.form.predictions[number]
    theta = link.theta
    wanted = [p for p in theta.kernel.parameters() if any(p is q for q in chosen)]
    if wanted and len(link.rows) and not found.reduction.factors[theta].rank:
        raise KernelOptError(
            f"Expected a kernel matrix other than 0, for the derivative by {wanted[0].name()} in the kernel; that of "
            f"{theta!r} is 0 at the present values of its parameters."
        )
    if wanted and found.moves(number) and not found.has_coefficients(number):
        raise KernelOptError(
            f"Expected a cost of ‖{theta!r}‖ in all of its outputs, for the derivative by {wanted[0].name()} in its "
            "kernel; without one θ is no combination of the rows' multipliers. Add λ·ko.sum_squares(theta)."
        )
    return bool(wanted)


def _added(one: ByParameter, other: ByParameter) -> ByParameter:
    total = dict(one)
    for name, (g, size) in other.items():
        total[name] = (total[name][0] + g, total[name][1] + size) if name in total else (g, size)
    return total


def _coefficients(found: Optimum, number: int) -> Array:
    return found.coefficients[number]


def _columns(found: Optimum, criterion: Criterion) -> list[Ints]:
    """The columns of x of each variable of the criterion, none where it dropped out of the problem."""
    places = twins(found.form, criterion.of_y)
    return [found.data.y[k] if k >= 0 else np.arange(0) for k in places]


def _alike(rows: Rows, others: Rows) -> tuple[Rows, Rows]:
    """Both on one kernel: where one is lifted, the points of the other become values."""
    lift = joint([lift_of(rows.kernel), lift_of(others.kernel)])
    return _lifted(rows, lift), _lifted(others, lift)


def _lifted(rows: Rows, lift: type[Lift] | None) -> Rows:
    """The same rows on the lifted kernel."""
    if lift is lift_of(rows.kernel):
        return rows
    points, centers = (relifted_rows(rows.kernel, X, lift) for X in (rows.points, rows.centers))
    return replace(rows, kernel=relifted(rows.kernel, lift), points=points, centers=centers)


def _values(rows: Rows, others: Rows, chosen: Ints, coefficients: Array) -> Array:
    """The rows' values of Σₛ coefficients[s]·(row chosen[s] of others), (len(rows), columns)."""
    rows, others = _alike(rows, others)
    return rows.predictions(Function._of_rows(others.kernel, *others.expansion(chosen, coefficients)))


def _require_points(rows: Rows, others: Rows) -> None:
    if len(rows.points) < len(rows) or len(others.points) < len(others) or rows.kernel != others.kernel:
        raise KernelOptError(
            "Expected predictions at points, in the problem and in the criterion, for a gradient by parameters of "
            "their kernel; inner products with functions, and norms ‖θ − f₀‖, have none. Write numbers in place of "
            "the kernel's parameters."
        )


def _number(found: Optimum, theta: object) -> int:
    return next(k for k, link in enumerate(found.form.predictions) if link.theta is theta)


def _require_supported(form: CanonicalForm, reduction: Reduction) -> None:
    """Raise KernelOptError for norms and kernel matrices whose derivative is not known."""
    for norm in form.norms:
        if norm.kind not in (EUCLIDEAN, "fro"):
            raise KernelOptError(
                "Expected Euclidean (Frobenius) norms of θ, or of its outputs; a norm of kind "
                f"{norm.kind!r} has no gradient here."
            )
    for factor in reduction.factors.values():
        if factor.is_projected or factor.added:
            raise KernelOptError(
                "Expected a positive semidefinite kernel matrix, used as it is; the derivative of its projection, or "
                "of a sum with a multiple of the identity, is not known."
            )
