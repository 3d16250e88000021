"""The spectral form, the one nonconvex problem that eigenvalues solve exactly.

    maximize    φ(‖Mu‖)                       φ convex and nondecreasing, as in ‖Mu‖, ‖Mu‖²/N, the variance of u
    subject to  u = Aθ,  ‖θ‖ ≤ R,  Gᵀu = 0

It is recognised in the outer problem f(u, t): the objective is followed down through scalar atoms to one Euclidean
norm, M and G are the gradients of affine expressions, and R is the root of a quadratic in t. Kernel principal component
analysis may therefore be stated with any of `cp.norm`, `cp.sum_squares`, `cp.var` and `cp.std`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.compiler import rules
from kernelopt.compiler.canonical_form import CanonicalForm, PredictionLink, rewrite
from kernelopt.compiler.rules import Inspection
from kernelopt.errors import DCPError
from kernelopt.language.nodes import EUCLIDEAN
from kernelopt.support.cvxpy_parts import Pnorm, Power, Sum, jacobians, norm1, quad_over_lin
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array

DENSE = 0.1  # share of nonzeros above which a matrix is stored as an array; below, sparse products save time and memory
WORDS = (
    "A nonconvex problem of the spectral form is accepted: maximize cp.norm(A @ theta), or a nondecreasing "
    "function of it, subject to ko.norm(theta) <= R and u @ (A @ theta) == 0."
)


@dataclass(frozen=True, eq=False)
class Numbers:
    """The form's data at the current values of parameters, on the distinct rows of A.

    M : (m, n), an array if dense, else sparse; G : (n, g), sparse; radius : R, negative where no θ is feasible, inf
    without a bound
    """

    M: Any
    G: Any
    radius: float


@dataclass(frozen=True, eq=False)
class SpectralForm:
    """maximize φ(‖Mu‖) subject to u = Aθ, ‖θ‖ ≤ R, Gᵀu = 0, with φ(‖Mu‖) the objective of `form.outer`.

    node : the atom ‖Mu‖ or ‖Mu‖²/c; argument : Mu; bounds, equalities : the constraints ‖θ‖ ≤ R and Gᵀu = 0
    """

    form: CanonicalForm
    node: cp.Expression
    argument: cp.Expression
    bounds: tuple[cp.Expression, ...]
    equalities: tuple[cp.Expression, ...]

    @property
    def link(self) -> PredictionLink:
        return self.form.predictions[0]

    @property
    def sign(self) -> int:
        """1 where φ is maximized, −1 where −φ is minimized."""
        return 1 if isinstance(self.form.outer.objective, cp.Maximize) else -1

    def numbers(self) -> Numbers:
        """M, G and R at the current values of parameters. Raises DCPError where one of these adds a constant."""
        constant = _constant([self.argument, *self.equalities])
        if constant:
            raise DCPError(f"{WORDS} Here {constant:.3g} is added to predictions by a parameter.")
        n = len(self.link.rows)
        G = [_distinct(self.link, _slopes(e, self.link.u)).T for e in self.equalities]
        radius = min((_root(b, norm.t) for norm in self.form.norms for b in self.bounds), default=np.inf)
        M = _distinct(self.link, _slopes(self.argument, self.link.u)) if self.argument.parameters() else self._M
        return Numbers(M, sp.hstack([sp.csc_array((n, 0)), *G], format="csc"), radius)

    @cached_property
    def _M(self) -> Any:
        return _distinct(self.link, _slopes(self.argument, self.link.u))

    def objective_at(self, length: float) -> float:
        """φ(length)."""
        squared = not isinstance(self.node, (Pnorm, norm1, cp.abs))
        value = length**2 if squared else length
        if isinstance(self.node, quad_over_lin):
            value /= float(np.ravel(self.node.args[1].value)[0])
        place = cp.Variable(self.node.shape, nonneg=True)
        place.save_value(np.full(self.node.shape, value))
        return float(rewrite(cp.Problem(self.form.outer.objective), {id(self.node): place}).objective.value)


def is_candidate(objective: Any) -> bool:
    """Whether a convex function is maximized, or a concave one minimized."""
    inner = objective.args[0]
    return not objective.is_dcp() and bool(inner.is_convex() or inner.is_concave())


def required(form: CanonicalForm, found: Inspection) -> SpectralForm:
    """The form. Raises DCPError, with the difference between problem and form, where the problem is not of the form."""
    spectral = find(form)
    if isinstance(spectral, str):
        rules.require_dcp(found, f"{WORDS} Here {spectral}.")
    assert isinstance(spectral, SpectralForm)
    return spectral


def find(form: CanonicalForm) -> SpectralForm | str:
    """The form, or the reason why the problem is not of the form."""
    if len(form.predictions) != 1 or form.predictions[0].theta.outputs is not None:
        return "there are several θ" if len(form.predictions) != 1 else "θ is a matrix (outputs=K)"
    if form.y:
        return f"there is a variable besides θ, {form.y[0].name()}"
    if any(n.view.right is not None or n.view.shift is not None or n.kind != EUCLIDEAN for n in form.norms):
        return "a norm is not that of θ itself"
    node = _length(form.outer.objective)
    if node is None:
        return "the objective is not a nondecreasing function of one Euclidean norm of predictions"
    u, t = form.predictions[0].u, [norm.t for norm in form.norms]
    bounds, equalities = [], []
    for number, constraint in enumerate(form.outer.constraints, start=1):
        names = {v.id for v in constraint.variables()}
        if isinstance(constraint, cp.constraints.Equality) and u is not None and names == {u.id}:
            equalities.append(constraint.expr)
        elif isinstance(constraint, cp.constraints.Inequality) and names and names == {v.id for v in t}:
            if not constraint.expr.is_quadratic():
                return f"constraint {number} bounds ‖θ‖ in a roundabout way; write ko.norm(theta) <= R"
            bounds.append(constraint.expr)
        else:
            return f"constraint {number} is neither a bound on ‖θ‖ nor an equality of predictions"
    argument = _argument(node)
    constant = _constant([e for e in (argument, *equalities) if not e.parameters()])
    if constant:
        return f"{constant:.3g} is added to predictions"
    return SpectralForm(form, node, argument, tuple(bounds), tuple(equalities))


def _length(objective: Any) -> Any:
    """The one atom ‖Mu‖ or ‖Mu‖²/c of which the objective is a function; None if there is none.

    Atoms above it need no check: by the DCP rules only a nondecreasing function of the convex atom is convex.
    """
    node = objective.args[0]
    while _argument(node) is None:
        moving = [a for a in node.args if not a.is_constant()]
        if len(moving) != 1 or node.size != 1:
            return None
        node = moving[0]
    return node


def _argument(node: Any) -> Any:
    """Mu where the node is ‖Mu‖ or ‖Mu‖²/c, else None."""
    if node.size != 1:
        return None
    match node:
        case Pnorm() if node.p == 2:
            inner = node.args[0]
        case norm1() | cp.abs() if node.args[0].size == 1:
            inner = node.args[0]
        case quad_over_lin() if node.args[1].is_constant():
            inner = node.args[0]
        case Power() if node.p.value == 2:
            inner = node.args[0]
        case Sum() if isinstance(node.args[0], Power) and node.args[0].p.value == 2:
            inner = node.args[0].args[0]
        case _:
            return None
    return inner if inner.is_affine() and len(inner.variables()) == 1 else None


def _constant(expressions: list[Any]) -> float:
    """The first nonzero entry of affine expressions at u = 0; 0 where all entries are zero."""
    for expression in expressions:
        for v in expression.variables():
            v.save_value(np.zeros(v.shape))
        constant = np.asarray(expression.value)
        if constant.any():
            return float(constant[constant != 0].flat[0])
    return 0.0


def _slopes(expression: Any, variable: Any) -> Any:
    """The Jacobian of an expression, (size of the expression, size of the variable), at the variables' values.

    For an affine expression it is the expression's matrix.
    """
    for v in expression.variables():
        if v.value is None:
            v.save_value(np.zeros(v.shape))
    return jacobians(expression)[variable.id].T


def _distinct(link: PredictionLink, slopes: Any) -> Any:
    """Slopes with respect to distinct predictions: those in u, summed over repeated rows; an array if dense."""
    N, n = len(link.take), len(link.rows)
    spread = sp.csc_array((np.ones(N), (np.arange(N), link.take)), shape=(N, n))
    slopes = slopes @ spread
    return slopes.toarray() if slopes.nnz > DENSE * slopes.shape[0] * n else sp.csr_array(slopes)


def _root(bound: Any, t: cp.Variable) -> float:
    """The largest t ≥ 0 with at² + bt + c ≤ 0 in all entries, a, b ≥ 0; −1 if there is none, inf without a bound."""
    t.save_value(np.asarray(0.0))
    c, b = _entries(bound.value), _entries(_slopes(bound, t))
    t.save_value(np.asarray(1.0))
    a = (_entries(_slopes(bound, t)) - b) / 2
    if (c > 0).any():
        return -1.0
    # t = −2c/(b + √(b² − 4ac)), the form of the root without cancellation.
    slope = b + np.hypot(b, 2 * np.sqrt(np.clip(a, 0.0, None)) * np.sqrt(-c))
    free = np.where((a > 0) | (b > 0), 0.0, np.inf)
    return float(np.min(np.divide(-2 * c, slope, out=free, where=slope > 0)))


def _entries(value: Any) -> Array:
    return np.ravel(value.toarray() if sp.issparse(value) else value).astype(float)
