"""The representer substitution θ = Cᵀw, and its inverse.

u = Aθ becomes u = Bv and ‖θ‖ becomes ‖v‖/√scale, with v = √scale·w in the factor's units; ‖θ‖² becomes a sum of
squares, so that quadratic programs stay quadratic programs. For ‖θM − f₀‖ with b₀ the row of f₀ in the
factor, f₀ = Cᵀb₀ + (rest orthogonal to the span), the norm is that of the stacked [VM − b₀; −R], with RᵀR the
Gram matrix of the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.attributes import dense, integral, nearest, rounded
from kernelopt.compiler.canonical_form import CanonicalForm, NormLink, PredictionLink, rewrite
from kernelopt.compiler.products import product
from kernelopt.compiler.separable import lengths_of_outer, outer_of
from kernelopt.factorization import CholeskyFactor, Factor
from kernelopt.kernels import Delta
from kernelopt.kernels.derivatives import plain
from kernelopt.kernels.domains import frozen
from kernelopt.language.expressions import Theta
from kernelopt.language.functions import Function
from kernelopt.language.nodes import norm_from_gram
from kernelopt.results.solution import FittedFunction, Solution, Status
from kernelopt.support.arithmetic import exact_product
from kernelopt.support.types import Array

FEASIBLE = 1e-6  # largest violation of a constraint that still counts as met, see `violation`
LARGE = 10.0  # predictions larger than this, relative to the data, don't make a violation small
MOST_FEATURES = 2000  # whose rank is computed
NEGLIGIBLE = 1e-6  # predictions smaller than this, relative to the data, are taken for zero when sizes are judged


@dataclass(frozen=True, eq=False)
class Reduction:
    """The reduced problem in (v, y), and what is needed to come back."""

    problem: cp.Problem
    form: CanonicalForm
    factors: Mapping[Theta, Factor]
    v: Mapping[Theta, cp.Variable | None]
    links: Mapping[Theta, cp.Constraint | None]

    @property
    def size(self) -> int:
        """Number of variables that the reduced problem is about: v and y."""
        return sum(v.size for v in self.v.values() if v is not None) + sum(y.size for y in self.form.y)

    @property
    def is_restriction(self) -> bool:
        """Whether some θ is confined to less than the row space of its A."""
        return any(f.is_restriction for f in self.factors.values())


def may_lack(reduction: Reduction, for_a_point: bool = False) -> bool:
    """Whether some θ, confined to its factor's span, may lack what the stated problem asks for.

    Where ‖θ‖ is bounded, or costs something at the values that variables have now, what a factor at full numerical
    rank leaves is rounding. Otherwise no numerical rank proves that: predictions may ask for a θ of any length.
    `for_a_point` asks whether it may lack what constraints need, for which no cost matters.
    """
    links = reduction.form.predictions
    lacking = [link.theta for link in links if not _spans(link, reduction.factors[link.theta])]
    limited = [t for t in lacking if _is_bounded(reduction.form, t) or (not for_a_point and _costs(reduction.form, t))]
    return reduction.is_restriction or len(limited) < len(lacking)


def _spans(link: PredictionLink, factor: Factor) -> bool:
    """Whether the factor has one column a row, or one for each of finitely many features, as far as these differ."""
    rows = link.rows
    if factor.rank >= min(len(rows), rows.features):
        return True
    if not rows.are_points or plain(rows.kernel) is not rows.kernel or rows.features > MOST_FEATURES:
        return False
    return factor.rank >= int(np.linalg.matrix_rank(rows.kernel._features(rows.points)))


def _is_bounded(form: CanonicalForm, theta: Theta) -> bool:
    """Whether a norm of θ stands in a constraint."""
    bounded = {v.id for constraint in form.outer.constraints for v in constraint.variables()}
    return any(norm.t.id in bounded for norm in form.norms_of(theta).values())


def _costs(form: CanonicalForm, theta: Theta) -> bool:
    """Whether the objective changes where a norm of θ alone grows."""
    for norm in form.norms_of(theta).values():
        now, length = form.outer.objective.value, norm.t.value
        norm.t.save_value(np.asarray(length) + 1.0)
        longer = form.outer.objective.value
        norm.t.save_value(length)
        if longer != now:
            return True
    return False


def reduce(form: CanonicalForm, factors: Mapping[Theta, Factor]) -> Reduction:
    """Substitute u = Bv, one constraint a link, and every norm by that of v."""
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
    problem = cp.Problem(outer.objective, [*outer.constraints, *extra])
    return Reduction(problem, form, factors, v, links)


def thin_factors(form: CanonicalForm) -> dict[Theta, Factor]:
    """Factors of two columns: with them, the reduced problem shows its cones at little cost."""
    return {
        link.theta: CholeskyFactor(np.ones((len(link.rows), 2)), 1.0, np.arange(2), 0.0, 0.0, 0.0)
        for link in form.predictions
    }


def _prediction_link(
    link: PredictionLink, factor: Factor, v: cp.Variable | None
) -> tuple[cp.Constraint | None, list[cp.Constraint]]:
    """u == Bv; where rows repeat, the distinct predictions stand between: d == Bv, u == d[take]."""
    if link.u is None:
        return None, []
    if v is None:
        zero = link.u == np.zeros(link.u.shape)
        return zero, [zero]
    n = link.u.shape[0]
    if np.array_equal(link.take, np.arange(n)):
        direct = link.u == product(factor.B, n, v)
        return direct, [direct]
    last = int(link.take.max()) + 1
    d = cp.Variable((last, *link.u.shape[1:]), name=f"d_{link.theta.name}")
    spread = link.u == d[link.take]
    return spread, [spread, d == product(factor.B, last, v)]


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
    b0 = factor.B[norm.function_rows].T  # (r, K): √scale·b₀ in the units of v is scale·B-row
    centre = factor.scale * b0
    gram = f0.gram()
    rest = factor.scale * gram - centre.T @ centre
    eigenvalues, U = np.linalg.eigh((rest + rest.T) / 2)
    keep = eigenvalues > 1e-14 * factor.scale * max(np.trace(gram), 0.0)
    return centre, np.sqrt(eigenvalues[keep])[:, None] * U[:, keep].T


def invert(reduction: Reduction, status: Status, from_kernel: bool = False, exactly: bool = False) -> Solution:
    """From v back to θ, a function on the pivots, with f evaluated at the predictions and norm of that very θ.

    These are Bv and ‖v‖/√scale, or with `from_kernel` computed afresh from kernel values, r a row; `exactly` as sums
    that are rounded once, for the kernel matrix as it was computed.
    """
    functions: dict[Theta, FittedFunction] = {}
    duals: dict[Theta, dict[object, Array]] = {}
    grams: dict[Theta, Array] = {}
    for link in reduction.form.predictions:
        theta, factor, v = link.theta, reduction.factors[link.theta], reduction.v[link.theta]
        value = np.zeros((0,) if theta.outputs is None else (0, theta.outputs)) if v is None else v.value
        constraint = reduction.links[theta]
        nu = None if constraint is None else constraint.dual_value
        norms = reduction.form.norms_of(theta).values()
        dual = None if nu is None else _dual_function(link, factor, list(norms), value, nu)
        c = factor.coefficients(value) if factor.rank else np.zeros((len(factor.pivots), *value.shape[1:]))
        functions[theta] = _function(link, factor, value, c, dual)
        afresh = (from_kernel or exactly) and factor.rank > 0
        if afresh and exactly:
            Q, flat = link.rows.gram()[:, factor.pivots], c.reshape(len(c), -1)
            predictions = exact_product(Q, flat).reshape(-1, *c.shape[1:])
        else:
            predictions = factor.predictions(link.rows, value) if afresh else factor.B @ value
        if link.u is not None:
            link.u.value = predictions[link.take]
        if from_kernel or exactly:
            outputs = theta.outputs or 1
            pairs = c.reshape(-1, outputs).T @ predictions[factor.pivots].reshape(-1, outputs)
            grams[theta] = (pairs + pairs.T) / 2
        duals[theta] = {} if nu is None else {name: nu[stretch] for name, stretch in link.blocks}
    return Solution(status, _value_of_f(reduction, grams), functions, duals, None)


def evaluate(reduction: Reduction) -> float:
    """f at the predictions Bv and the norms for the present values of v, which are put on u and t."""
    for link in reduction.form.predictions:
        v = reduction.v[link.theta]
        if link.u is not None:
            factor = reduction.factors[link.theta]
            link.u.value = (factor.B @ v.value)[link.take] if v is not None else np.zeros(link.u.shape)
    return _value_of_f(reduction, {})


def _value_of_f(reduction: Reduction, grams: Mapping[Theta, Array]) -> float:
    """f at the present values of u and y, with the norms that follow from v, or from the θᵀθ that are known."""
    for norm in reduction.form.norms:
        known = norm.view.theta in grams and norm.view.shift is None
        gram = norm.right.T @ grams[norm.view.theta] @ norm.right if known else norm_gram(reduction, norm)
        norm.t.save_value(np.asarray(norm_from_gram(gram, norm.kind)))
    for smooth in reduction.form.smooth:
        smooth.place()
    with np.errstate(all="ignore"):  # outside of its domain f may be anything
        value = float(reduction.form.outer.objective.value)
    return _value_of_pieces(reduction.form) if np.isnan(value) else value


def _value_of_pieces(form: CanonicalForm) -> float:
    """f where 0·∞ made it nan, as a function of weight 0 that overflows does: the sum of the functions that f falls
    apart into; nan where it does not."""
    outer = outer_of(form)
    split, data = outer.split, outer.form
    lengths = None if split is None else lengths_of_outer(data, split)
    if split is None or lengths is None or len(split.y) != len(data.y):
        return float("nan")
    u = np.concatenate([np.ravel(link.u.value, order="F") for link in form.predictions if link.u is not None])
    y = np.zeros(len(data.c))
    for variable, columns in zip(form.y, data.variables, strict=True):
        y[columns] = np.ravel(dense(variable.value), order="F")[: len(columns)]
    t = np.array([float(norm.t.value) for norm in form.norms])
    with np.errstate(all="ignore"):
        pieces = split.value(split.arguments(u, y[split.y]))
    linear = float(split.linear_u @ u + split.linear_y @ y[split.y])
    of_norms = float(lengths.slope @ t + 0.5 * lengths.curvature @ t**2)
    return data.sign * (data.offset + pieces + linear + of_norms) + form.constant


def norm_gram(reduction: Reduction, norm: NormLink) -> Array:
    """(θM − f₀)ᵀ(θM − f₀) for the present value of v."""
    theta = norm.view.theta
    V = _coordinates(norm, reduction.factors[theta], reduction.v[theta]).value
    V = V.reshape(len(V), -1)
    return np.asarray(V.T @ V / reduction.factors[theta].scale)


def prediction_unit(form: CanonicalForm, data_unit: float = 0.0) -> float:
    """The size of predictions, or of the data where predictions are all but zero."""
    values = [link.u.value for link in form.predictions if link.u is not None]
    size = max((float(np.abs(v).max(initial=0.0)) for v in values if v is not None), default=0.0)
    return size if size > NEGLIGIBLE * data_unit else data_unit


def violation(reduction: Reduction, data_unit: float = 0.0) -> float:
    """Largest violation of a constraint of the outer problem at its variables' values, relative to its own numbers.

    Where predictions are zero, the size that would go with such data stands in for them; huge terms that cancel don't
    make a violation small.
    """
    form = reduction.form
    most = LARGE * data_unit if data_unit else np.inf
    unit = min(prediction_unit(form, data_unit), most)
    lengths = {n.t.id for n in form.norms}
    known = {
        v.id: float(np.abs(dense(v.value)).max(initial=0.0)) for v in form.outer.variables() if v.value is not None
    }
    sizes = {i: size if i in lengths else min(size, most) for i, size in known.items()}
    shares = {i: sizes[i] / size for i, size in known.items() if size > 0}
    for link in form.predictions:
        if link.u is not None and sizes.get(link.u.id, 0.0) < NEGLIGIBLE * unit:
            sizes[link.u.id] = unit
            length = unit / np.sqrt(reduction.factors[link.theta].scale)
            sizes |= {n.t.id: max(sizes[n.t.id], length) for n in form.norms_of(link.theta).values()}
    return max([0.0, *map(_outside, form.y), *(_violation(c, sizes, shares) for c in form.outer.constraints)])


def _outside(variable: cp.Variable) -> float:
    """By how much a variable's value departs from its attributes (nonneg, bounds, PSD …), relative to its size; from
    integers by how much it does."""
    if variable.value is None or not any(variable.attributes.values()) or variable.is_complex():
        return 0.0
    value = dense(variable.value)
    fraction = float(np.abs(rounded(variable, value) - value).max(initial=0.0))
    inside = nearest(variable, value)
    off = float(np.abs(np.where(integral(variable), value, inside) - value).max(initial=0.0))
    return max(fraction, off / (float(np.abs(value).max(initial=0.0)) or 1.0))


def round_integers(reduction: Reduction, data_unit: float = 0.0) -> None:
    """Put boolean and integer entries, which solvers meet to a tolerance, at integers, where constraints allow it."""
    chosen = [y for y in reduction.form.y if y.value is not None and integral(y).any()]
    before = [y.value for y in chosen]
    feasible = violation(reduction, data_unit) <= FEASIBLE
    for y in chosen:
        y.save_value(rounded(y, dense(y.value)))
    if feasible and violation(reduction, data_unit) > FEASIBLE:
        for y, value in zip(chosen, before, strict=True):
            y.save_value(value)


def has_integers(reduction: Reduction) -> bool:
    """Whether boolean and integer entries are integers, not only nearly."""
    chosen = [y for y in reduction.form.y if integral(y).any()]
    return all(np.array_equal(rounded(y, dense(y.value)), dense(y.value)) for y in chosen)


def residual(constraint: Any) -> Array:
    """By how much a constraint is violated, entry by entry; cvxpy would solve a projection for exponential cones."""
    args = [dense(a.value).astype(float) for a in constraint.args if not isinstance(a, list)]
    match constraint:
        case cp.constraints.ExpCone():
            x, y, z = args
            with np.errstate(all="ignore"):
                least = np.where(y > 0, y * np.exp(np.minimum(x / np.where(y > 0, y, 1.0), 700.0)), np.maximum(x, 0.0))
            return np.maximum(np.maximum(least - z, -y), 0.0)
        case cp.constraints.PowCone3D():
            x, y, z = args
            a = np.asarray(constraint.alpha.value)
            least = np.abs(z) - np.maximum(x, 0.0) ** a * np.maximum(y, 0.0) ** (1 - a)
            return np.maximum(np.maximum(least, np.maximum(-x, -y)), 0.0)
    return np.abs(np.asarray(constraint.residual, dtype=float))


def _violation(constraint: Any, sizes: Mapping[int, float], shares: Mapping[int, float]) -> float:
    """Largest violation, relative to the numbers that an entry is made of: |a|ᵀ|x| and what both sides add up to.

    a is the gradient: rounding of x in |aᵀx| ≤ 0 is small beside |a|ᵀ|x|, not beside |aᵀx|. Of |x| the `sizes` count,
    and of what a side adds up to as large a share as of its variables: a point that is huge beside the data is not
    feasible for being huge.
    """
    violation = np.ravel(residual(constraint), order="F")
    if not violation.any():
        return 0.0
    scale = np.zeros(1)
    for part in (a for a in constraint.args if not isinstance(a, list)):
        if part.value is None:
            continue  # a variable that dropped out of the problem
        share = min((shares.get(v.id, 1.0) for v in part.variables()), default=1.0)
        numbers = [share * np.abs(np.ravel(dense(part.value), order="F"))]
        numbers += [np.ravel(abs(g).sum(axis=0)) * sizes.get(i, 0.0) for i, g in _gradient(part).items()]
        for one in numbers:
            entrywise = len(one) in (1, len(violation)) and len(scale) in (1, len(violation))
            scale = np.maximum(scale, one if entrywise else one.max(initial=0.0))
    return float(np.max(violation / np.where(scale > 0, scale, 1.0)))


def _gradient(part: cp.Expression) -> dict[int, Any]:
    """The gradient by variables, (entries of the variable, entries of `part`), where cvxpy has one at their values."""
    try:
        found = part.grad
    except NotImplementedError:
        return {}
    return {v.id: g if sp.issparse(g) else np.atleast_2d(g) for v, g in found.items() if g is not None}


def _function(
    link: PredictionLink, factor: Factor, v: Array, coefficients: Array, dual: Function | None
) -> FittedFunction:
    centers, expanded = link.rows.expansion(factor.pivots, coefficients)
    on_points = factor.pivots[factor.pivots < len(link.rows.points)]
    kernel = link.rows.kernel + factor.added * Delta() if factor.added else link.rows.kernel
    return FittedFunction(
        kernel, centers, expanded,
        products=frozen(np.atleast_2d(v.T @ v) / factor.scale),
        pivots=link.origin[on_points],
        pivot_coefficients=coefficients[factor.pivots < len(link.rows.points)],
        dual=dual,
    )  # fmt: skip


def _dual_function(link: PredictionLink, factor: Factor, norms: list[NormLink], v: Array, nu: Array) -> Function | None:
    """θ = (‖θ‖/‖Aᵀν‖)·Aᵀν, which stationarity in θ implies where its only norms are ‖θ‖ itself.

    None where there is no norm, or one of another kind (it is then not a multiple of Aᵀν).
    """
    summed = link.summed(nu).reshape(len(link.rows), *nu.shape[1:])
    length = factor.scale * float(np.linalg.norm(factor.B.T @ summed))
    if not norms or not all(norm.is_plain for norm in norms) or length == 0:
        return None
    rows = np.arange(len(link.rows))
    return Function._of_rows(link.rows.kernel, *link.rows.expansion(rows, summed * np.linalg.norm(v) / length))
