"""The representer substitution θ = Cᵀw, and its inverse.

u = Aθ becomes u = Bv and ‖θ‖ becomes ‖v‖/√scale, with v = √scale·w in the factor's units; ‖θ‖² becomes a sum of
squares, so that quadratic programs stay quadratic programs. For ‖θM − f₀‖ with b₀ the row of f₀ in the
factor, f₀ = Cᵀb₀ + (rest orthogonal to the span), the norm is that of the stacked [VM − b₀; −R], with RᵀR the
Gram matrix of the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import cvxpy as cp
import numpy as np

from kernelopt.compiler.atom_domains import domain_of
from kernelopt.compiler.attributes import dense
from kernelopt.compiler.canonical_form import CanonicalForm, NormLink, PredictionLink, rewrite
from kernelopt.compiler.iterate import Iterate, in_columns, place
from kernelopt.compiler.outer import Common, read
from kernelopt.compiler.residuals import FEASIBLE, outside_of, residual
from kernelopt.errors import KernelError, SolverError
from kernelopt.factorization import CholeskyFactor, Factor
from kernelopt.kernels import Delta
from kernelopt.kernels.domains import frozen
from kernelopt.kernels.lifts import plain
from kernelopt.language.expressions import Theta
from kernelopt.language.functions import Function
from kernelopt.language.nodes import norm_from_gram
from kernelopt.results.solution import FittedFunction, Solution, Status
from kernelopt.support.arithmetic import exact_product
from kernelopt.support.properties import cached_property
from kernelopt.support.singular import singular_values
from kernelopt.support.types import Array

SLIGHT = 1e-12  # of the objective: what atoms add at an end of their domain, where cvxpy's value is taken for theirs
# Features of a kernel up to which their rank is computed: a singular value decomposition of N × p features in O(N p²).
MOST_FEATURES = 2000


@dataclass(frozen=True, eq=False)
class Substituted:
    """The reduced problem in v and y as cvxpy's solvers take it, its v and the constraints u = Bv by θ."""

    problem: cp.Problem
    v: Mapping[Theta, cp.Variable | None]
    links: Mapping[Theta, cp.Constraint | None]


@dataclass(frozen=True, eq=False)
class Reduction:
    """A form with a factor Q = BBᵀ for each θ: the problem in v and y."""

    form: CanonicalForm
    factors: Mapping[Theta, Factor]

    @cached_property
    def inner(self) -> Substituted:
        """The reduced problem for cvxpy's solvers; others do without it."""
        return substitute(self.form, self.factors)

    @cached_property
    def kept(self) -> WeakKeyDictionary[Common, dict[Any, Any]]:
        """What solvers keep for problems with these factors that differ in the costs of norms alone."""
        return WeakKeyDictionary()

    @property
    def size(self) -> int:
        """Number of entries of v and y, the variables of the reduced problem."""
        of_v = sum(self.factors[link.theta].rank * (link.theta.outputs or 1) for link in self.form.predictions)
        return of_v + sum(y.size for y in self.form.y)

    @property
    def is_restriction(self) -> bool:
        """Whether some θ is confined to less than the row space of its A."""
        return any(f.is_restriction for f in self.factors.values())

    @property
    def compile_seconds(self) -> float:
        """Seconds in which cvxpy compiled the reduced problem; 0 where it was not needed."""
        # `inner` itself would make the problem.
        inner = self.__dict__.get("inner")
        return 0.0 if inner is None else inner.problem.compilation_time or 0.0

    def shape_of_v(self, link: PredictionLink) -> tuple[int, ...]:
        rank, outputs = self.factors[link.theta].rank, link.theta.outputs
        return (rank,) if outputs is None else (rank, outputs)

    def at_zero(self, y: tuple[Any, ...]) -> Iterate:
        """The point θ = 0 with given y, not evaluated yet."""
        return Iterate(tuple(np.zeros(self.shape_of_v(link)) for link in self.form.predictions), y)


def may_lack(reduction: Reduction, point: Iterate | None = None) -> bool:
    """Whether, for some θ, the span of its factor may be too small for the stated problem.

    Where ‖θ‖ is bounded, or has a cost at a given point, a factor at full numerical rank leaves out no more than
    rounding. Otherwise no numerical rank is a proof, since predictions may need a θ of any length. Without a point, the
    question is whether the span may be too small for the constraints, and costs do not count.
    """
    links = reduction.form.predictions
    lacking = [link.theta for link in links if not _spans(link, reduction.factors[link.theta])]
    limited = [t for t in lacking if _is_bounded(reduction.form, t) or _costs(reduction.form, t, point)]
    return reduction.is_restriction or len(limited) < len(lacking)


def _spans(link: PredictionLink, factor: Factor) -> bool:
    """Whether the factor has as many columns as there are rows or features, or as the rank of the features."""
    rows = link.rows
    if factor.rank >= min(len(rows), rows.features):
        return True
    if not rows.are_points or plain(rows.kernel) is not rows.kernel or rows.features > MOST_FEATURES:
        return False
    try:
        rank = np.linalg.matrix_rank(rows.kernel._features(rows.points))
    except KernelError:  # of a kernel matrix as given, which has a number of features and no feature map
        rank = np.linalg.matrix_rank(rows.gram_to_read(), hermitian=True) if len(rows) <= MOST_FEATURES else len(rows)
    return factor.rank >= int(rank)


def _is_bounded(form: CanonicalForm, theta: Theta) -> bool:
    """Whether a norm of θ stands in a constraint."""
    bounded = {v.id for constraint in form.outer.constraints for v in constraint.variables()}
    return any(norm.t.id in bounded for norm in form.norms_of(theta).values())


def _costs(form: CanonicalForm, theta: Theta, point: Iterate | None) -> bool:
    """Whether the objective changes where a norm of θ alone grows."""
    if point is None:
        return False
    for j in form.norms_of(theta):
        longer = np.array(point.t)
        longer[j] += 1.0
        if valued(form, replace(point, t=longer)).value != valued(form, point).value:
            return True
    return False


def substitute(form: CanonicalForm, factors: Mapping[Theta, Factor]) -> Substituted:
    """Substitute u = Bv, one constraint per link, and every norm by that of v."""
    v: dict[Theta, cp.Variable | None] = {}
    links: dict[Theta, cp.Constraint | None] = {}
    extra: list[cp.Constraint] = []
    for link in form.predictions:
        factor, theta = factors[link.theta], link.theta
        shape = (factor.rank,) if theta.outputs is None else (factor.rank, theta.outputs)
        v[theta] = cp.Variable(shape, name=f"v_{theta.name}") if factor.rank else None
        links[theta], auxiliary = _prediction_link(link, factor, v[theta])
        extra += auxiliary
    replaced, squares = {}, {}
    for norm in form.norms:
        theta = norm.view.theta
        replaced[id(norm.t)], squares[id(norm.t)], auxiliary = _norm_of_v(norm, factors[theta], v[theta])
        extra += auxiliary
    outer = rewrite(form.outer, replaced, squares)
    return Substituted(cp.Problem(outer.objective, [*outer.constraints, *extra]), v, links)


def count_constraints(reduction: Reduction) -> int:
    """The number of constraints of the problem for cvxpy's solvers, the same with thin factors in place of blocks."""
    thin = thin_factors(reduction.form)
    factors = {t: f if isinstance(f.B, np.ndarray) else thin[t] for t, f in reduction.factors.items()}
    return len(substitute(reduction.form, factors).problem.constraints)


def thin_factors(form: CanonicalForm) -> dict[Theta, Factor]:
    """Factors of two columns, with which the reduced problem has the same kinds of cones and is cheap to make."""
    return {
        link.theta: CholeskyFactor(np.ones((len(link.rows), 2)), 1.0, np.arange(2), 0.0, 0.0, 0.0)
        for link in form.predictions
    }


def _prediction_link(
    link: PredictionLink, factor: Factor, v: cp.Variable | None
) -> tuple[cp.Constraint | None, list[cp.Constraint]]:
    """u == Bv; where rows repeat, d == Bv and u == d[take], so that no row of B is repeated."""
    if link.u is None:
        return None, []
    if v is None:
        zero = link.u == np.zeros(link.u.shape)
        return zero, [zero]
    n = link.u.shape[0]
    if np.array_equal(link.take, np.arange(n)):
        direct = link.u == _product(factor.B, n, v)
        return direct, [direct]
    last = int(link.take.max()) + 1
    d = cp.Variable((last, *link.u.shape[1:]), name=f"d_{link.theta.name}")
    spread = link.u == d[link.take]
    return spread, [spread, d == _product(factor.B, last, v)]


def _product(B: Any, rows: int, v: cp.Variable) -> cp.Expression:
    """The first rows of Bv."""
    if not isinstance(B, np.ndarray):
        raise SolverError(
            "Expected one of kernelopt's own solvers where B is not one array in double precision; got one of cvxpy's, "
            "which need B whole. Leave out backend and dtype. problem.solvers() says why our own don't take it."
        )
    return cp.Constant(B[:rows]) @ v


def _coordinates(norm: NormLink, factor: Factor, v: cp.Variable | None) -> Any:
    """The vector or matrix, affine in v, whose norm is √scale·‖θM − f₀‖."""
    theta = norm.view.theta
    V: Any = v if v is not None else cp.Constant(np.zeros((1,) if theta.outputs is None else (1, theta.outputs)))
    if norm.view.right is not None:
        V = V @ norm.view.right
    return V if norm.view.shift is None else _shifted(V, norm, factor)


def _norm_of_v(
    norm: NormLink, factor: Factor, v: cp.Variable | None
) -> tuple[cp.Expression, cp.Expression, list[cp.Constraint]]:
    """‖θM − f₀‖ and its square as functions of v, with the constraints that go with them."""
    V, root = _coordinates(norm, factor, v), np.sqrt(factor.scale)
    match norm.kind:
        case "nuc":
            value, constraints = _nuclear_norm(V)
        case 2:
            value, constraints = _spectral_norm(V)
        case _:
            flat = V if V.ndim == 1 else cp.vec(V, order="F")
            return cp.norm(flat) / root, cp.sum_squares(V) / factor.scale, []
    return value / root, cp.square(value / root), constraints


def _nuclear_norm(V: Any) -> tuple[cp.Expression, list[cp.Constraint]]:
    """Σσᵢ(V) = min over S ⪰ 0 of ½tr S + ½Σᵢ vᵢᵀS⁻¹vᵢ, over the r rows vᵢ ∈ Rᴷ of V.

    r matrix inequalities of order K + 1 instead of cvxpy's one of order r + K: 13.8 s become 0.3 s for r = 100, K = 3.
    """
    t, S = cp.Variable(nonneg=True), cp.Variable((V.shape[1], V.shape[1]), symmetric=True)
    return t, [(cp.trace(S) + cp.sum([cp.matrix_frac(V[i], S) for i in range(V.shape[0])])) / 2 <= t]


def _spectral_norm(V: Any) -> tuple[cp.Expression, list[cp.Constraint]]:
    """σ₁(V) = min t with [Sᵢ vᵢ; vᵢᵀ t] ⪰ 0 for the r rows vᵢ of V, and ΣᵢSᵢ ⪯ tI (VᵀV ⪯ t²I, split by rows)."""
    r, K = V.shape
    t = cp.Variable((1, 1), nonneg=True)
    parts = [cp.Variable((K, K), symmetric=True) for _ in range(r)]
    rows = [cp.reshape(V[i], (K, 1), order="F") for i in range(r)]
    constraints = [cp.bmat([[S, row], [row.T, t]]) >> 0 for S, row in zip(parts, rows, strict=True)]
    return t[0, 0], [*constraints, t[0, 0] * np.eye(K) - cp.sum(parts) >> 0]


def _shifted(V: Any, norm: NormLink, factor: Factor) -> Any:
    """[VM − b₀; −R], in the units of v."""
    centre, R = centre_and_rest(norm, factor)
    if not factor.rank:
        centre = np.zeros((1, centre.shape[1]))
    if V.ndim == 1:
        return cp.hstack([V - centre[:, 0], -R[:, 0]]) if len(R) else V - centre[:, 0]
    return cp.vstack([V - centre, -R]) if len(R) else V - centre


def centre_and_rest(norm: NormLink, factor: Factor) -> tuple[Array, Array]:
    """b₀ and R in the units of v."""
    f0 = norm.view.shift
    assert f0 is not None
    b0 = factor.B[norm.function_rows].T  # (r, K), b₀/√scale: in the units of v, √scale·b₀ is scale times it
    centre = factor.scale * b0
    gram = f0.gram()
    rest = factor.scale * gram - centre.T @ centre
    eigenvalues, U = np.linalg.eigh((rest + rest.T) / 2)
    # Smaller eigenvalues are rounding of the difference; their roots would add to the norm.
    keep = eigenvalues > 1e-14 * factor.scale * max(np.trace(gram), 0.0)
    return centre, np.sqrt(eigenvalues[keep])[:, None] * U[:, keep].T


def invert(
    reduction: Reduction, point: Iterate, from_kernel: bool = False, exactly: bool = False, evaluated: bool = False
) -> tuple[Solution, Iterate]:
    """From v back to θ, a function on the pivots, and the point with f evaluated at the predictions and norm of that θ.

    These are Bv and ‖v‖/√scale. With `from_kernel` they are recomputed from kernel values, r per row, and with
    `exactly` by sums that are rounded once, for the kernel matrix as it was computed. Otherwise a point that was
    `evaluated` stays as it is.
    """
    as_it_is = evaluated and not (from_kernel or exactly)
    duals: dict[Theta, dict[object, Array]] = {}
    grams: dict[Theta, tuple[Array, float]] = {}
    made, u = [], []
    for link, value, nu in zip(reduction.form.predictions, point.v, point.nu, strict=True):
        theta, factor = link.theta, reduction.factors[link.theta]
        norms = reduction.form.norms_of(theta).values()
        dual = None if nu is None else _dual_function(link, factor, list(norms), value, nu)
        c = factor.coefficients(value) if factor.rank else np.zeros((len(factor.pivots), *value.shape[1:]))
        made.append((link, factor, value, c, dual))
        duals[theta] = {} if nu is None else {name: nu[stretch] for name, stretch in link.blocks}
        if as_it_is:
            continue
        afresh = (from_kernel or exactly) and factor.rank > 0
        if afresh and exactly:
            Q, flat = link.rows.gram()[:, factor.pivots], c.reshape(len(c), -1)
            predictions = exact_product(Q, flat).reshape(-1, *c.shape[1:])
        else:
            predictions = factor.predictions(link.rows, value) if afresh else factor.B @ value
        u.append(_taken(link, predictions))
        if from_kernel or exactly:
            outputs, of_c, of_u = theta.outputs or 1, _exponent(c), _exponent(predictions)
            of_u += (of_c + of_u) % 2  # an even sum, so that the unit of lengths is a power of 2, too
            here = np.ldexp(predictions[factor.pivots], -of_u).reshape(-1, outputs)
            pairs = np.ldexp(c, -of_c).reshape(-1, outputs).T @ here
            grams[theta] = (pairs + pairs.T) / 2, 2.0 ** ((of_c + of_u) // 2)
    found = point if as_it_is else valued(reduction.form, replace(point, u=tuple(u), t=_norms(reduction, point, grams)))
    functions = {
        one[0].theta: _function(*one, at if from_kernel or one[1].is_whole else None)
        for one, at in zip(made, found.u, strict=True)
    }
    return Solution(Status.OPTIMAL, found.value, functions, duals, None), found


def evaluate(reduction: Reduction, point: Iterate, predictions: Sequence[Array] | None = None) -> Iterate:
    """The point with the predictions Bv, which a solver may know, the norms of v, and f there."""
    links = reduction.form.predictions
    if predictions is None:
        predictions = [reduction.factors[link.theta].B @ v for link, v in zip(links, point.v, strict=True)]
    u = tuple(_taken(link, d) for link, d in zip(links, predictions, strict=True))
    return valued(reduction.form, replace(point, u=u, t=_norms(reduction, point, {})))


def valued(form: CanonicalForm, point: Iterate) -> Iterate:
    """The point with the value of f for the values that parameters have now: ∞ outside of the domain of its atoms, −∞
    for a problem that maximizes."""
    place(form, point)
    try:
        with np.errstate(all="ignore"):  # outside of its domain f may be infinite or nan
            value = float(form.outer.objective.value)
    except np.linalg.LinAlgError:  # as the inverse of P = 0 in `cp.matrix_frac`
        value = np.nan
    outside = outside_of(domain_of(form).objective)
    if outside > FEASIBLE:
        value = np.inf if isinstance(form.outer.objective, cp.Minimize) else -np.inf
    elif np.isnan(value) or (outside and not _is_negligible(form, value)):
        value = _value_of_pieces(form, point)
    return replace(point, value=value)


@np.errstate(all="ignore")
def _is_negligible(form: CanonicalForm, value: float) -> bool:
    """Whether atoms at an end of their domain add next to nothing, as x²/y where x and y are 0 to rounding."""
    domain = domain_of(form)
    ends = [atom for atom, c in zip(domain.atoms, domain.objective, strict=True) if residual(c).any()]
    return all(bool(np.all(np.abs(dense(atom.value)) <= SLIGHT * abs(value))) for atom in ends)


def bare_value(form: CanonicalForm, point: Iterate) -> float:
    """f without the constants of the objective."""
    if form.bare is form.outer or not np.isfinite(point.value):
        return point.value
    place(form, point)
    if outside_of(domain_of(form).objective) and not _is_negligible(form, point.value):
        return point.value - form.constant
    return float(form.bare.objective.value)


def _taken(link: PredictionLink, predictions: Array) -> Array:
    """The predictions of u's rows, from those of the distinct rows."""
    return np.asarray(predictions[link.take], dtype=float)


def _norms(reduction: Reduction, point: Iterate, grams: Mapping[Theta, tuple[Array, float]]) -> Array:
    """The norms, from the θᵀθ in `grams` where there is one, else from v.

    θ may be of any size: its square is that of a multiple of size about 1, with a power of 2 as its unit. The nuclear
    norm is the sum of singular values of v: roots of eigenvalues of θᵀθ would have half of the digits.
    """
    found = []
    for norm in reduction.form.norms:
        theta, plain = norm.view.theta, norm.view.shift is None
        W = coordinates(reduction, point, norm) if norm.kind == "nuc" else None
        if W is not None:
            found.append(float(singular_values(W).values.sum() / np.sqrt(reduction.factors[theta].scale)))
            continue
        if theta in grams and plain:
            gram, unit = grams[theta]
            gram = norm.right.T @ gram @ norm.right
        else:
            v = _v_of(reduction, point, theta)
            size = _exponent(v) if plain else 0
            gram, unit = _gram_of(reduction.factors[theta], np.ldexp(v, -size), norm), 2.0**size
        found.append(unit * norm_from_gram(gram, norm.kind))
    return np.array(found, dtype=float)


def _exponent(values: Array) -> int:
    """The least e with |values| < 2ᵉ; 0 where all are 0, or some are not finite."""
    return int(np.frexp(np.abs(values).max(initial=0.0))[1])


def _value_of_pieces(form: CanonicalForm, point: Iterate) -> float:
    """f by its pieces; nan where it has none.

    It replaces a nan that cvxpy gets from 0·∞, where a function of weight 0 overflows.
    """
    pieces = read(form)
    if pieces is None or not pieces.is_explicit:  # columns of graph forms have a solver's values only
        return float("nan")
    x = in_columns(form, pieces, point)
    sign = -1.0 if isinstance(form.outer.objective, cp.Maximize) else 1.0
    with np.errstate(all="ignore"):
        value = float(pieces.sums(pieces.settled(x))[0])
    return sign * value + form.constant


def norm_gram(reduction: Reduction, point: Iterate, norm: NormLink) -> Array:
    """(θM − f₀)ᵀ(θM − f₀)."""
    theta = norm.view.theta
    return _gram_of(reduction.factors[theta], _v_of(reduction, point, theta), norm)


def _v_of(reduction: Reduction, point: Iterate, theta: Theta) -> Array:
    """v of one θ."""
    (v,) = (v for link, v in zip(reduction.form.predictions, point.v, strict=True) if link.theta is theta)
    return v


def coordinates(reduction: Reduction, point: Iterate, norm: NormLink) -> Array | None:
    """A matrix with the singular values of θM − f₀ times √scale; None where these are known from θᵀθ only."""
    factor = reduction.factors[norm.view.theta]
    if factor.is_whole or not factor.is_exact:
        return None
    return _stacked(factor, _v_of(reduction, point, norm.view.theta), norm)


def _stacked(factor: Factor, v: Array, norm: NormLink) -> Array:
    """[VM − b₀; −R]."""
    V = np.reshape(v, (factor.rank, norm.view.theta.outputs or 1)) @ norm.right
    if norm.view.shift is None:
        return np.asarray(V)
    centre, R = centre_and_rest(norm, factor)
    return np.vstack([V - centre, -R])


def _gram_of(factor: Factor, v: Array, norm: NormLink) -> Array:
    """(θM − f₀)ᵀ(θM − f₀) for θ of coordinates v."""
    V = _stacked(factor, v, norm)
    return np.asarray((V.T @ V if norm.view.shift is not None else factor.matrix.inner(V)) / factor.scale)


def _function(  # noqa: PLR0917
    link: PredictionLink, factor: Factor, v: Array, coefficients: Array, dual: Function | None, u: Array | None
) -> FittedFunction:
    """θ; u are its predictions where they were computed from kernel values."""
    pivots = factor.pivots
    if factor.is_whole:  # rows without a multiplier have no coefficient
        used = np.flatnonzero(coefficients.reshape(len(pivots), -1).any(axis=1))
        pivots, coefficients = pivots[used], coefficients[used]
    # The dual function keeps all points in any case, so that centers among them need no copy either.
    keeps_points = factor.is_whole or dual is not None
    made = link.rows.selection if keeps_points else link.rows.expansion
    centers, expanded = made(pivots, coefficients)
    on_points = pivots < len(link.rows.points)
    kernel = link.rows.kernel + factor.added * Delta() if factor.added else link.rows.kernel
    return FittedFunction(
        kernel, centers, expanded,
        products=frozen(np.atleast_2d(factor.matrix.inner(v)) / factor.scale),
        pivots=link.origin[pivots[on_points]],
        pivot_coefficients=coefficients[on_points],
        dual=dual,
        predictions={} if u is None or factor.added else {name: frozen(u[part]) for name, part in link.blocks},
    )  # fmt: skip


def columns(link: PredictionLink, factor: Factor) -> Function:
    """The functions θⱼ, r outputs of one, whose predictions are the columns of B: θ = Σⱼ vⱼθⱼ at any point."""
    centers, expanded = link.rows.selection(factor.pivots, factor._coefficients(np.eye(factor.rank)))
    kernel = link.rows.kernel + factor.added * Delta() if factor.added else link.rows.kernel
    return Function._of_rows(kernel, centers, expanded)


def _dual_function(link: PredictionLink, factor: Factor, norms: list[NormLink], v: Array, nu: Array) -> Function | None:
    """θ = (‖θ‖/‖Aᵀν‖)·Aᵀν, which stationarity in θ implies where its only norms are ‖θ‖ itself.

    None where there is no norm, or one of another kind, with which θ is no multiple of Aᵀν.
    """
    summed = link.summed(nu).reshape(len(link.rows), *nu.shape[1:])
    length = factor.scale * _length(factor, factor.B.T @ summed)
    if not norms or not all(norm.is_plain for norm in norms) or length == 0:
        return None
    rows = np.arange(len(link.rows))
    return Function._of_rows(link.rows.kernel, *link.rows.selection(rows, summed * _length(factor, v) / length))


def _length(factor: Factor, v: Array) -> float:
    """The Frobenius norm of coordinates v."""
    return float(np.sqrt(np.trace(np.atleast_2d(factor.matrix.inner(v)))))
