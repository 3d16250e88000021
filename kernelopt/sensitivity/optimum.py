"""An answer of a solve as a point of the cone data at which the optimality conditions hold to rounding.

A solver's answer meets them to its tolerance. Here the active constraints are found around it, and Newton's method on
the equations that remain ends within a few steps, so that derivatives do not depend on the tolerance of the solve.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

import numpy as np
import scipy.sparse as sp
from scipy.optimize import nnls

from kernelopt.compiler.attributes import dense
from kernelopt.compiler.canonical_form import CanonicalForm, PredictionLink
from kernelopt.compiler.iterate import Iterate, place
from kernelopt.compiler.representer import Reduction, centre_and_rest
from kernelopt.driver import policy, refine
from kernelopt.driver.options import factor_options
from kernelopt.errors import KernelOptError
from kernelopt.factorization import Factor
from kernelopt.factorization.factor import FLOOR
from kernelopt.sensitivity import active
from kernelopt.sensitivity.active import Equations, Faces
from kernelopt.sensitivity.kkt import FLAT, Center, Length, Move, Span, System
from kernelopt.sensitivity.natural_units import slope_of, unit_of_slacks, units_of
from kernelopt.sensitivity.stated_cones import StatedCones
from kernelopt.sensitivity.unpriced import settled
from kernelopt.solvers.cone_program import answered
from kernelopt.solvers.cones import into_dual, violation
from kernelopt.support.types import Array, Bools, Ints

MOST = 2000  # rows up to which a factor is made anew, at full numerical rank: O(N³) flops
# Rounds of changes of the active set in which all rows change that a step leads across their bound, without fewer of
# them than before. Such rounds are few, or go in a circle; then rows change one at a time.
TRIES = 3
ROUNDS = 300  # changes one at a time; from a start near the optimum they are about as many as rows that are wrong
STEPS = 50  # of Newton's method for one active set; it converges quadratically
# The residual of the conditions, relative to their terms, up to which an answer counts as an optimum. It is part of the
# estimated error of gradients, and is far smaller unless numbers differ by many orders.
CONVERGED = 1e-7
TURNED = 6  # points that meet the conditions but for signs, whose cones are looked at again
# Violations of cones, in the units of slacks and multipliers, above which a point is no optimum; beyond rounding.
INFEASIBLE = 1e-7
# Relative: θ is set to 0 where ‖Aᵀν‖ is smaller than the cost of ‖θ‖ by more than this; answers of rough solves have
# multipliers that are off by less.
SURE = 1e-2
POSITIVE = {"exp": (1,), "power": (0, 1)}  # entries of s that are positive on the boundary of a cone
# Slacks below −CROSSED, and multipliers, in their units, change the active set. It is above rounding.
CROSSED = 1e-9
# Newton steps in a row without a smaller residual, after which the method ends: the residual of a norm's equation may
# grow in the first steps.
MISSES = 3
ROUNDING = 1e-12  # relative to the trace of a weight of ‖θM‖²: eigenvalues up to this count as 0
EXACT = 1e-15  # the residual, in units of the conditions' terms, that no step in double precision improves


@dataclass(frozen=True, eq=False)
class Optimum:
    """A point with the conditions met to `residual`, relative to their terms.

    x, z : of the cone data; faces : the active constraints; units : of slacks and of multipliers
    leaving : for each θ = 0 whose ‖Aᵀν‖ is the cost of its norm, to NEAR, the direction in w in which it would leave 0;
    whole : the spans, also of θ = 0; unpriced : rows of columns which cost nothing; tight : those that define columns
    """

    form: CanonicalForm
    reduction: Reduction
    data: StatedCones
    system: System
    equations: Equations
    faces: Faces
    x: Array
    z: Array
    residual: float
    units: tuple[float, float] = (1.0, 1.0)
    leaving: Mapping[int, Array] = field(default_factory=dict)
    whole: tuple[Span, ...] = ()
    tight: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool))
    unpriced: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool))

    @property
    def nu(self) -> list[Array]:
        """−∂f/∂u for each θ, in the shape of its columns (n, K)."""
        g = active.gradient(self.data, self.x) + self.data.A.T @ self.z
        return [-g[span.columns] for span in self.system.spans]

    def moves(self, number: int) -> bool:
        """Whether a θ is not held at 0 by the costs of its norm."""
        return bool(self.system.spans[number].w.size)

    def has_coefficients(self, number: int) -> bool:
        """Whether Σ(μ/t)MMᵀ is regular, so that θ = Aᵀα with α by the multipliers."""
        N = self.system.weights[number]
        return self.moves(number) and bool(np.linalg.eigvalsh(N)[0] > ROUNDING * np.trace(N))

    @property
    def coefficients(self) -> list[Array]:
        """α with θ = Aᵀα for each θ, a row for each distinct row of A: θ Σ(μ/t)MMᵀ = Aᵀν + Σ(μ/t)f₀Mᵀ."""
        found = []
        for number, (link, nu, N) in enumerate(zip(self.form.predictions, self.nu, self.system.weights, strict=True)):
            total = np.zeros((len(link.rows), len(N)))
            np.add.at(total, link.take, nu)
            for norm, length in zip(self.form.norms, self.system.norms, strict=True):
                if length.theta == number and norm.view.shift is not None:
                    total[norm.function_rows] += length.weight * norm.right.T
            known = self.has_coefficients(number)
            found.append(np.linalg.solve(N, total.T).T if known else np.zeros_like(total))
        return found


def finer(form: CanonicalForm, reduction: Reduction, point: Iterate) -> tuple[Reduction, Iterate]:
    """A reduction whose factors leave out no more than rounding, and the same θ in it.

    The restriction to a coarser factor moves predictions by about the square root of the trace that it leaves out.
    Above MOST rows, and where B is no array, factors stay.
    """
    coarse = any(f.residual > 10 * FLOOR and len(link.rows) <= MOST for link, f in _pairs(form, reduction))
    if not coarse:
        return reduction, point
    found = refine.reduced(form, policy.Step(factor_options(rank_tol=FLOOR)), {}).reduction
    v = []
    for (link, old), known in zip(_pairs(form, reduction), point.v, strict=True):
        new, c = found.factors[link.theta], old.coefficients(known)
        # θ = Σ cₛ·(row s) has w = Bᵀc, with the rows of B̃ = √scale·B of the pivots.
        v.append(new.scale * np.asarray(new.B)[old.pivots].T @ c if new.rank else np.zeros((0, *known.shape[1:])))
    return found, replace(point, v=tuple(v))


def _pairs(form: CanonicalForm, reduction: Reduction) -> list[tuple[PredictionLink, Factor]]:
    return [(link, reduction.factors[link.theta]) for link in form.predictions]


def optimum(form: CanonicalForm, reduction: Reduction, point: Iterate, data: StatedCones) -> Optimum:
    """The optimum next to an answer. Raises KernelOptError where the conditions can't be met."""
    place(form, point)
    spans = tuple(
        span_of(reduction, number, link, point.v[number], data) for number, link in enumerate(form.predictions)
    )
    x, z = _cone_point(form, data, spans, point)
    z[data.vacuous] = 0.0
    units = units_of(data, x, z)
    unpriced = settled(data, x)
    x = unpriced.x
    slack = data.b - data.A @ x
    faces = active.faces(data, slack, unpriced.multipliers(z, units[1]), units)
    refined, best, residual = partial(_refined, form, reduction, data), None, np.inf
    choices = [
        (*c, x, z) for c in product(active.alternatives(faces, slack, units), _starts(form, data, spans, point, z))
    ]
    for turn, (first, start, at, multipliers) in enumerate(choices):
        ways = (_by_blocks, _one_by_one)
        found = next(found for way in ways if (found := way(refined, start, first, at, multipliers, units)) is not None)
        residual = min(residual, found.residual)
        if found.residual <= CONVERGED and _is_feasible(found, units) and _stays_at_zero(found, spans):
            best = best or found
            if not shrunken(found, units):
                best = found
                break
        elif found.residual <= CONVERGED and turn < TURNED:
            slack, own = data.b - data.A @ found.x, unpriced.multipliers(found.z, units[1])
            turned = active.faces(data, slack, own, units)
            if not turned.is_like(first):  # steps change linear ones
                choices.append((turned, found.system.spans, found.x, found.z))
    if best is None:
        raise KernelOptError(
            "Expected an optimum at which the optimality conditions have a regular derivative; Newton's method around "
            f"the answer ends {_ended(residual)}. Solve with a smaller tol; add a small "
            "λ·ko.sum_squares(theta), or a penalty of variables that the problem does not determine."
        )
    faces = active.faces(data, data.b - data.A @ best.x, unpriced.multipliers(best.z, units[1]), units)
    if faces.ranks != best.faces.ranks:  # of a face that may have either: the equations are those of the one here
        faces = faces._replace(cones=best.faces.cones)
    tight = unpriced.tight(faces)
    of_none = unpriced.rows >= 0
    if np.any(of_none & ~tight):  # equations do not determine all of them: Newton's steps moved these
        best = replace(best, x=settled(data, best.x).x)
    return replace(
        best, faces=faces, units=units, leaving=_leaving(best, spans), whole=spans, tight=tight, unpriced=of_none
    )


def _ended(residual: float) -> str:
    if residual <= CONVERGED:
        return "at a point that violates constraints, or has multipliers of the wrong sign"
    return f"with a relative residual of {residual:.1g}"


def _by_blocks(  # noqa: PLR0917
    refined: Callable[..., Optimum],
    spans: tuple[Span, ...],
    faces: Faces,
    x: Array,
    z: Array,
    units: tuple[float, float],
) -> Optimum | None:
    """The optimum for an active set that its point does not cross, by changes of all rows at once; None in a circle."""
    fewest, tries = len(z) + 1, TRIES
    while tries:
        found = refined(spans, faces, x, z)
        inactive, active_ones = _crossed(found, units)
        count = len(inactive) + len(active_ones)
        if not count:
            return found
        fewest, tries = (count, TRIES) if count < fewest else (fewest, tries - 1)
        linear = faces.linear.copy()
        linear[inactive], linear[active_ones] = True, False
        faces, x, z, spans = faces._replace(linear=linear), found.x, found.z, found.system.spans
    return None


def _one_by_one(  # noqa: PLR0917
    refined: Callable[..., Optimum],
    spans: tuple[Span, ...],
    faces: Faces,
    x: Array,
    z: Array,
    units: tuple[float, float],
) -> Optimum:
    """The same by the primal active-set method: a step ends at the first row that it meets, which becomes active.

    Where it meets none, the active row with the most negative multiplier leaves. (Nocedal and Wright, Numerical
    Optimization, 2006, section 16.5.)
    """
    for _ in range(ROUNDS):
        found = refined(spans, faces, x, z)
        inactive, active_ones = _crossed(found, units)
        linear, share = faces.linear.copy(), 1.0
        if len(inactive):
            x = x.copy()
            for span in spans:
                x[span.columns] = span.B @ span.w
            now, then = ((found.data.b - found.data.A @ at)[inactive] for at in (x, found.x))
            shares = np.maximum(now, 0.0) / (np.maximum(now, 0.0) - then)
            first = int(np.argmin(shares))
            share, linear[inactive[first]] = float(shares[first]), True
        elif len(active_ones):
            linear[active_ones[np.argmin((found.z * found.data.row_norms)[active_ones])]] = False
        else:
            break
        moved = [s._replace(w=s.w + share * (t.w - s.w)) for s, t in zip(spans, found.system.spans, strict=True)]
        spans, x, z, faces = tuple(moved), x + share * (found.x - x), found.z, faces._replace(linear=linear)
    return found


def span_of(reduction: Reduction, number: int, link: PredictionLink, v: Array, data: StatedCones) -> Span:
    """B with u = Bw, its columns of x and w."""
    factor = reduction.factors[link.theta].in_one_array(link.rows)
    root = float(np.sqrt(factor.scale))
    outputs = link.theta.outputs or 1
    columns = data.u[number].reshape(-1, outputs, order="F")
    centers = {}
    for j, norm in reduction.form.norms_of(link.theta).items():
        if norm.view.shift is not None and factor.rank:
            center, rest = centre_and_rest(norm, factor)
            centers[j] = Center(center / root, float(np.linalg.norm(rest)) / root)
    B = root * np.asarray(factor.B, dtype=float)[link.take]
    return Span(B, columns, v.reshape(len(v), outputs) / root, centers)


def _cone_point(form: CanonicalForm, data: StatedCones, spans: tuple[Span, ...], point: Iterate) -> tuple[Array, Array]:
    """(x, z) next to the answer: Clarabel's solution of the cone program with νᵀu − μᵀt + ½ρ‖x − x̂‖² on u, t and y.

    At the optimum itself the gradient of the linear terms is that of θ's part of the Lagrangian, so that x = x̂.
    """
    n = len(data.c)
    near, known, q = np.zeros(n), np.zeros(n, dtype=bool), data.c.copy()
    P = data.P
    extra = np.zeros(n)
    for span, nu in zip(spans, point.multipliers(), strict=True):
        near[span.columns] = span.B @ span.w
        q[span.columns] += nu.reshape(span.columns.shape)
        known[span.columns] = True
    near[data.t], known[data.t] = point.t, True
    q[data.t] -= _multipliers_of_norms(form, spans, point)
    for value, columns in zip(point.y, data.y, strict=True):
        flat = np.ravel(dense(value), order="F") if value is not None else np.zeros(0)
        if len(flat) == len(columns):
            near[columns], known[columns] = flat, True
    for link, part in zip(form.smooth, data.smooth, strict=True):
        g = np.ravel(np.asarray(link.g.value, dtype=float), order="F")[: len(part.g)]
        slope, bend = part.loss.gradient(g, part.data), part.loss.hessian(g, part.data)
        weight = data.c[part.h]
        curved = np.maximum(weight * bend, 0.0)
        extra[part.g] += curved
        q[part.g] += weight * slope - curved * g
        q[part.h], extra[part.h] = 0.0, 1.0
    unit = unit_of_slacks(data, near)
    size = float(np.abs(q).max(initial=0.0)) or 1.0
    rho = np.where(known, size / unit, 0.0)
    # In units of predictions and of the costs, in which Clarabel's tolerances are meant.
    quadratic = sp.csc_array(sp.triu(P + sp.diags_array(extra + rho)) * (unit / size))
    try:
        answer = answered(quadratic, (q - rho * near) / size, data.A, data.b / unit, data.cones)
    except ArithmeticError as error:
        raise KernelOptError(f"The optimum could not be refined for the gradient: {error}") from error
    return np.nan_to_num(np.array(answer.x)) * unit, np.nan_to_num(np.array(answer.z)) * size


def _starts(
    form: CanonicalForm, data: StatedCones, spans: tuple[Span, ...], point: Iterate, z: Array
) -> Iterator[tuple[Span, ...]]:
    """The spans, empty where the costs of ‖θ‖ near 0 exceed ‖Aᵀν‖, all that θ could gain: then θ = 0 stays.

    First where they do so surely, then where they may, then nowhere; the multipliers found since decide. A row t ≤ R
    with R > 0 does not hold with equality there, so that its multiplier is no cost.
    """
    by_rows = data.by_rows
    balls = (np.diff(by_rows.indptr) == 1) & (data.b > 0)
    costs, shares = data.c + data.A.T @ np.where(balls, 0.0, z), []
    for link, span, nu in zip(form.predictions, spans, point.multipliers(), strict=True):
        plain = [j for j, norm in form.norms_of(link.theta).items() if norm.is_plain]
        gain = float(np.linalg.norm(span.B.T @ nu.reshape(span.columns.shape)))
        cost = float(costs[data.t[plain[0]]]) if len(plain) == 1 and not span.centers else 0.0
        shares.append(gain / cost if cost > 0 else np.inf)
    tried = set()
    for most in (1 - SURE, 1 + SURE, 0.0):
        zero = tuple(share < most for share in shares)
        if zero not in tried:
            tried.add(zero)
            yield tuple(
                span._replace(B=span.B[:, :0], w=span.w[:0]) if none else span
                for span, none in zip(spans, zero, strict=True)
            )


def _gains(found: Optimum, whole: tuple[Span, ...]) -> Iterator[tuple[int, Array, float]]:
    """For each θ that was set to 0: its number, Aᵀν in w, and the cost of ‖θ‖, at the multipliers found since."""
    g = active.gradient(found.data, found.x) + found.data.A.T @ found.z
    for n in found.system.norms:
        if not found.moves(n.theta) and whole[n.theta].w.size:
            yield n.theta, -whole[n.theta].B.T @ g[whole[n.theta].columns], float(g[n.column])


def _stays_at_zero(found: Optimum, whole: tuple[Span, ...]) -> bool:
    """Whether ‖Aᵀν‖ is at most the cost of ‖θ‖, up to rounding, for each θ that was set to 0."""
    return all(np.linalg.norm(v) <= cost * (1 + INFEASIBLE) for _, v, cost in _gains(found, whole))


def _leaving(found: Optimum, whole: tuple[Span, ...]) -> dict[int, Array]:
    """Aᵀν/‖Aᵀν‖ in w, for each θ = 0 whose ‖Aᵀν‖ is the cost of its norm, to NEAR."""
    directions = {}
    for number, v, cost in _gains(found, whole):
        gain = float(np.linalg.norm(v))
        if cost > 0 and gain >= cost * (1 - active.NEAR):
            directions[number] = v / gain
    return directions


def shrunken(found: Optimum, units: tuple[float, float]) -> list[int]:
    """The numbers of norms with an unsquared cost that are 0 to NEAR, of a θ that is not set to 0."""
    bend = found.data.P.diagonal()
    return [
        j for j, n in enumerate(found.system.norms)
        if found.moves(n.theta) and not found.system.spans[n.theta].centers
        and n.t * _largest_row(found.system.spans[n.theta].B) <= active.NEAR * units[0]
        and not n.weight <= (1 + CONVERGED) * bend[n.column]
    ]  # fmt: skip


def _largest_row(B: Array) -> float:
    return float(np.sqrt(np.einsum("ij,ij->i", B, B).max(initial=0.0)))


def _multipliers_of_norms(form: CanonicalForm, spans: tuple[Span, ...], point: Iterate) -> Array:
    """μ ≥ 0 with Aᵀν = Σⱼ μⱼ∇tⱼ for each θ, by least squares."""
    found = np.zeros(len(form.norms))
    for link, span, nu in zip(form.predictions, spans, point.multipliers(), strict=True):
        mine = list(form.norms_of(link.theta).items())
        images = [span.image(j, norm.right) for j, norm in mine]
        columns = [
            np.ravel(image @ norm.right.T) / (length or 1.0)
            for (_, norm), (image, length) in zip(mine, images, strict=True)
        ]
        target = np.ravel(span.B.T @ nu.reshape(span.columns.shape))
        if mine and len(target):
            found[[j for j, _ in mine]] = nnls(np.column_stack(columns), target)[0]
    return found


def _refined(  # noqa: PLR0917
    form: CanonicalForm, reduction: Reduction, data: StatedCones, spans: tuple[Span, ...], faces: Faces, x: Array,
    z: Array,
) -> Optimum:  # fmt: skip
    """Newton's method for one active set."""
    zeta, best, misses, share, stuck = None, None, 0, 1.0, False
    for _ in range(STEPS):
        found = _at(form, reduction, data, spans, faces, x, z, zeta)
        if best is None or found.residual < best.residual:
            best, misses = found, 0
        elif share == 1:
            misses += 1
        if stuck or misses > MISSES or best.residual <= EXACT or not np.isfinite(found.residual):
            break
        step, left = found.system.solve(_minus(_residual(found)))
        stuck = left > FLAT and best.residual <= CONVERGED  # what remains is not in the range of a singular matrix
        zeta = active.multipliers(found.equations, found.z)
        share = _longest(found, found.system.placed(step.w, step.x))
        spans = tuple(s._replace(w=s.w + share * d) for s, d in zip(found.system.spans, step.w, strict=True))
        x, z, zeta = found.x + share * step.x, found.z, zeta + share * step.zeta
    assert best is not None
    return best


def _longest(found: Optimum, step: Array) -> float:
    """The share of a step, 1 at most, after which entries that curved cones need positive have lost a half at most."""
    at = [part.start + k for kind, part, _, where in found.faces.cones if where == active.BOUNDARY
          for k in POSITIVE.get(kind, ())]  # fmt: skip
    s, ds = (found.data.b - found.data.A @ found.x)[at], -(found.data.A @ step)[at]
    falls = (ds < 0) & (s > 0)
    return float(np.min(-0.5 * s[falls] / ds[falls], initial=1.0))


def _at(  # noqa: PLR0917
    form: CanonicalForm, reduction: Reduction, data: StatedCones, spans: tuple[Span, ...], faces: Faces, x: Array,
    z: Array, zeta: Array | None,
) -> Optimum:  # fmt: skip
    """The conditions at a point; u and t are those of w."""
    x = x.copy()
    for span in spans:
        x[span.columns] = span.B @ span.w
    lengths = []
    for j, (norm, column) in enumerate(zip(form.norms, data.t, strict=True)):
        number = next(k for k, link in enumerate(form.predictions) if link.theta is norm.view.theta)
        M, (_, length) = norm.right, spans[number].image(j, norm.right)
        lengths.append((number, M @ M.T, spans[number].center(j, M) @ M.T, length))
        x[column] = length
    equations = active.equations(data, faces, x, z)
    zeta = active.multipliers(equations, z) if zeta is None else zeta
    z = active.of_rows(equations, zeta, len(data.b))
    if any(where == active.BOUNDARY for *_, where in faces.cones):  # curvature is that of the new multipliers
        equations = active.equations(data, faces, x, z)
    g = active.gradient(data, x) + equations.J.T @ zeta
    bend = data.P.diagonal()
    norms = tuple(
        Length(number, int(column), square, center, t, _weight(float(g[column]), float(bend[column]), t))
        for (number, square, center, t), column in zip(lengths, data.t, strict=True)
    )
    system = System(equations.H, equations.J, spans, norms)
    found = Optimum(form, reduction, data, system, equations, faces, x, z, np.inf)
    return replace(found, residual=_relative(found, g))


def _weight(mu: float, bend: float, t: float) -> float:
    """μ/t for μ = l + bend·t, with the rest l as constant near t = 0: the limit there is `bend` where l = 0."""
    rest = mu - bend * t
    if abs(rest) <= EXACT * abs(mu):
        return bend
    return bend + (rest / t if t > 0 else 0.0)


def _residual(found: Optimum) -> Move:
    g = active.gradient(found.data, found.x) + found.data.A.T @ found.z
    w = found.system.gathered(g)
    g[found.system.linked] = 0.0
    return Move(w, g, found.equations.h)


def _minus(move: Move) -> Move:
    return Move(tuple(-a for a in move.w), -move.x, -move.zeta)


def _relative(found: Optimum, g: Array) -> float:
    """The largest residual of stationarity and of the equations, each relative to its terms."""
    data, x, z = found.data, found.x, found.z
    P, A, A_back = data.sizes
    terms = np.abs(data.c) + P @ np.abs(x) + A_back @ np.abs(z)
    left, of_slacks = _residual(found), unit_of_slacks(data, x)
    least = EXACT * (slope_of(data, of_slacks) or 1.0)  # where x is 0, all terms are rounding
    of_theta = [
        float(np.abs(a).max(initial=0.0))
        / float(np.abs(span.B.T @ np.maximum(terms[span.columns], least)).max(initial=least))
        for a, span in zip(left.w, found.system.spans, strict=True)
    ]
    sizes = np.abs(data.b) + A @ np.abs(x)
    typical = float(np.abs(terms).max(initial=least))
    of_rows = float(np.abs(left.zeta).max(initial=0.0)) / float(sizes.max(initial=EXACT * of_slacks))
    return max([*of_theta, float(np.abs(left.x).max(initial=0.0)) / typical, of_rows])


def _crossed(found: Optimum, units: tuple[float, float]) -> tuple[Ints, Ints]:
    """The linear rows that the point has crossed: inactive with a negative slack, and active with a multiplier < 0."""
    of_s, of_z = units
    norms, is_active = found.data.row_norms, found.faces.linear
    s = (found.data.b - found.data.A @ found.x) / norms
    is_bound = np.zeros(len(s), dtype=bool)
    for kind, rows, _ in found.data.cones.slices:
        is_bound[rows] = kind == "nonneg"
    is_bound[found.data.vacuous] = False
    inactive = is_bound & ~is_active & (s < -CROSSED * of_s)
    return np.flatnonzero(inactive), np.flatnonzero(is_bound & is_active & (found.z * norms < -CROSSED * of_z))


def _is_feasible(found: Optimum, units: tuple[float, float]) -> bool:
    """Whether slacks and multipliers are in their cones: then the conditions prove an optimum of a convex problem."""
    (of_s, of_z), norms = units, found.data.row_norms
    outside = violation((found.data.b - found.data.A @ found.x) / norms, found.data.cones)
    moved = into_dual(found.z, found.data.cones, found.data.A)
    free = np.zeros(len(moved), dtype=bool)
    for kind, rows, _ in found.data.cones.slices:
        free[rows] = kind == "zero"
    return outside <= INFEASIBLE * of_s and bool(np.all(free | (np.abs(moved - found.z) * norms <= INFEASIBLE * of_z)))
