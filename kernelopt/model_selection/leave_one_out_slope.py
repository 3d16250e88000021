"""The loss of rows by fits without them, by the approximate formula, and its derivative by parameters.

Row i has one term φ of the objective with curvature W = φ″ along s = cᵀx, and f = c_fᵀx is its prediction. With P the
inverse of the quadratic model (`quadratic_model`), h = cᵀPc, p = c_fᵀPc and g the slope of φ,

    f₋ = f + pgq,   q = 1/(1 − Wh),   L = Σ ℓ(f₋)/N,

    dL = Σ ℓ′/N · (df + gq dp + pq dg + pgq²(W dh + h dW)).

For loads e and e′ on predictions and y, the response eᵀPe′ = s-part of the answer v = Pe′ changes by

    d(eᵀPe′) = TᵀdQ T′/R − Σ W-changes·s s′ − dR·vᵀv′,      Rv = BᵀT,

so that T = e − EᵀWs − (multipliers of rows at a kink) is what of the load the penalty R = 2λ carries. The changes of f,
W = φ″(s) and g = φ′(s) by the optimum are those of any criterion of predictions: with the answer to the load
ē = Σ ℓ′/N c_f + Σ s̄c they add TᵀdQ α − dR vᵀv̂, θ = Aᵀα.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.canonical_form import CanonicalForm, rewrite
from kernelopt.compiler.terms import LogSumExp
from kernelopt.driver.statement import one_at_a_time
from kernelopt.errors import DataError, KernelOptError
from kernelopt.kernels.adjoints import kernel_gradient
from kernelopt.model_selection.leave_one_out import LeftOut, left_out_terms
from kernelopt.model_selection.quadratic_model import EMPTY, rows_of
from kernelopt.model_selection.squares import summands
from kernelopt.problem import Problem
from kernelopt.sensitivity.chain_rule import gradient
from kernelopt.solvers import assemble
from kernelopt.support.cvxpy_parts import NegExpression
from kernelopt.support.types import Array, Ints


class LeaveOneOutLoss(NamedTuple):
    """Σᵢ loss(f₋ᵢ)ᵢ/N, f₋ᵢ the prediction of row i by a fit without it: a criterion for `ko.tune`, from one solve.

    f₋ᵢ is that of `ko.approximate_leave_one_out`, exact for squares. The parameters are those of kernels, and λ in
    λ‖θ‖². For other parameters use `ko.CrossValidatedLoss`; also for losses with rows at a kink, such as hinge and
    absolute loss, where f₋ᵢ jumps when a row reaches a kink.

    Parameters
    ----------
    f : expression (N,)
        Affine in predictions at points of the problem and in its variables, such as `theta(X) + b`; each row has one
        term of the objective of its own.
    loss : function of an expression (N,) that returns the losses, an expression (N,)
        Such as `lambda f: ko.losses.log_loss(y, f)`.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> y = np.sin(2 * X[:, 0]) + 0.2 * np.random.default_rng(0).normal(size=40)
    >>> sigma, lam = cp.Parameter(pos=True, value=3.0), cp.Parameter(pos=True, value=1.0)
    >>> theta, b = ko.Theta(ko.kernels.Gaussian(sigma=sigma)), cp.Variable()
    >>> f = theta(X) + b
    >>> objective = cp.sum_squares(y - f) + lam * ko.sum_squares(theta)
    >>> problem = ko.Problem(cp.Minimize(objective))
    >>> found = ko.tune(
    ...     problem,
    ...     ko.LeaveOneOutLoss(f, lambda f: ko.losses.squared_error(y, f)),
    ...     [sigma, lam],
    ... )
    >>> mean = np.mean(ko.leave_one_out(problem) ** 2)
    >>> bool(np.isclose(found.value, mean, rtol=1e-3)), bool(sigma.value < 1.5)
    (True, True)
    """

    f: cp.Expression
    loss: Callable[[cp.Expression], cp.Expression]


@one_at_a_time
def leave_one_out_slope(
    problem: Problem, criterion: LeaveOneOutLoss, chosen: list[cp.Parameter]
) -> tuple[float, tuple[Array, ...]]:
    """The criterion, and its derivative by each parameter, at the present optimum.

    Raises KernelOptError for parameters other than those of kernels and costs of norms, and for rows without, or with
    several, smooth terms of their own.
    """
    at = left_out_terms(problem, criterion.f)
    costs = [_costs(at.form, p) for p in chosen]
    own = _own_terms(at)
    loads = Loads.of_terms(at, own), Loads(at.C, at.E @ assemble.spread(at.form))
    of_terms, of_f = (_answers(at, load) for load in loads)
    change = _change(at, own, of_terms, of_f, criterion)
    whole = _answers(at, change.load(at, loads[1]))
    gradients = []
    for p, cost in zip(chosen, costs, strict=True):
        total = np.zeros(p.shape)
        for k, link in enumerate(at.form.predictions):
            if any(p is q for q in link.theta.kernel.parameters()):
                total = total + _by_kernel(at, k, change, of_terms, of_f, whole)[p]
            total = total + cost[k] * _by_cost(at, k, change, of_terms, of_f, whole)
        gradients.append(np.asarray(total))
    return change.value, tuple(gradients)


class Loads(NamedTuple):
    """Loads e, a row each: eᵀC on x, (n, size), and on distinct predictions, (n, predictions)."""

    on_x: Array
    on_u: sp.csr_array

    @classmethod
    def of_terms(cls, at: LeftOut, terms: Ints) -> Loads:
        """Unit loads on arguments s."""
        problem = at.terms.problem
        return cls(rows_of(problem, terms), sp.csr_array(problem.E[terms]))


class Answers(NamedTuple):
    """Answers of the model to loads, a row each: x (n, size), s = Cx (n, m), and T (n, predictions)."""

    x: Array
    s: Array
    T: Array


class Change(NamedTuple):
    """The criterion's value, and its derivative by its parts at the optimum.

    f (N,) : predictions; p, h (N,) : the responses c_fᵀPc and cᵀPc; s (m,) : arguments, by way of W and g
    """

    value: float
    f: Array
    p: Array
    h: Array
    s: Array

    def load(self, at: LeftOut, of_f: Loads) -> Loads:
        """ē, the load of all that moves with the optimum."""
        problem = at.terms.problem
        on_x = self.f @ of_f.on_x + self.s @ rows_of(problem, np.arange(problem.m))
        on_u = sp.csr_array((self.f @ of_f.on_u + self.s @ problem.E)[None, :])
        return Loads(on_x[None, :], on_u)


def _answers(at: LeftOut, loads: Loads) -> Answers:
    problem, terms = at.terms.problem, at.terms
    C, model = rows_of(problem, np.arange(problem.m)), terms.model
    scaled = loads.on_x * model.unit
    x = (scaled @ model.Z) @ model.Z.T * model.unit
    s = x @ C.T
    T = loads.on_u.toarray() - (s * terms.weights) @ problem.E
    if len(model.kinks):
        rest = loads.on_x - problem.penalty * x - (s * terms.weights) @ C
        held = np.linalg.lstsq(rows_of(problem, model.kinks).T, rest.T, rcond=None)[0]
        T -= held.T @ problem.E[model.kinks]
    return Answers(x, s, T)


def _own_terms(at: LeftOut) -> Ints:
    """The term of each row of f. Raises KernelOptError unless that is one smooth term, or part of a square."""
    terms, N = at.terms, len(at.values)
    counts = np.bincount(terms.owners[terms.owners >= 0], minlength=N)
    own = np.zeros(N, dtype=int)
    numbers = np.flatnonzero(terms.owners >= 0)
    own[terms.owners[numbers]] = numbers
    if np.any(counts != 1) or terms.problem.joint or np.any(terms.number[own] >= 0):
        raise KernelOptError(
            "Expected one term of the objective for each row of f, a function of one number that is not at a kink; "
            "the loss of rows left out has no derivative otherwise. Use ko.CrossValidatedLoss."
        )
    return own


def _change(at: LeftOut, own: Ints, of_terms: Answers, of_f: Answers, criterion: LeaveOneOutLoss) -> Change:
    """The formula of the module."""
    terms, N = at.terms, len(own)
    W = terms.weights[own]
    linear = [terms.linear(own[i : i + 1], at.E, at.F, np.array([i]))[0] for i in range(N)]
    g = terms.slopes[own] + np.array(linear)
    h, p = of_terms.s[np.arange(N), own], of_f.s[np.arange(N), own]
    if np.any(1 - W * h <= EMPTY):
        alone = int(np.argmax(W * h))
        raise KernelOptError(
            f"Expected rows that others determine, too; row {alone} of f is determined by itself alone."
        )
    q = 1 / (1 - W * h)
    value, d = _slopes(criterion, at.values + p * g * q)
    by_p, by_h, by_W, by_g = d * g * q, d * p * g * q**2 * W, d * p * g * q**2 * h, d * p * q
    of_W = -(by_p @ (of_f.s * of_terms.s) + by_h @ of_terms.s**2)
    of_W[own] += by_W
    s = of_W * _third(at)
    s[own] += by_g * W
    return Change(value, d, by_p, by_h, s)


def _third(at: LeftOut) -> Array:
    """φ‴ of all terms; 0 for squares."""
    problem, found = at.terms.problem, np.zeros(at.terms.problem.m)
    for term in problem.smooth:
        if not isinstance(term, LogSumExp):
            found[term.at] = term.third(at.terms.point.s[term.at])
    return found


def _slopes(criterion: LeaveOneOutLoss, left_out: Array) -> tuple[float, Array]:
    """Σ loss(f₋)/N and its derivative by f₋. Raises DataError for losses of another kind."""
    u = cp.Variable(len(left_out), value=left_out)
    losses = criterion.loss(u)
    if not isinstance(losses, cp.Expression) or losses.shape != u.shape:
        raise DataError(f"Expected loss(f) to return an expression of shape {u.shape}; got {losses!r}.")
    found = gradient(cp.sum(losses) / len(left_out), {u.id: left_out})
    return found.value, found.slopes.get(u.id, np.zeros(u.shape))


def _by_kernel(  # noqa: PLR0917
    at: LeftOut, k: int, change: Change, of_terms: Answers, of_f: Answers, whole: Answers
) -> dict[cp.Parameter, Array]:
    """Σ TᵀdQ T′/R over the responses, and T̂ᵀdQ α, by each parameter of a θ's kernel."""
    problem, link = at.terms.problem, at.form.predictions[k]
    ends = np.cumsum([0, *(len(B) for B in problem.blocks)])
    mine = slice(ends[k], ends[k + 1])
    R = _strength(at, k)
    alpha = -(problem.linear_d + problem.E.T @ at.terms.slopes)[mine] / R
    left = (change.p[:, None] * of_f.T + change.h[:, None] * of_terms.T)[:, mine].T / R
    L, right = np.column_stack([left, whole.T[0, mine]]), np.column_stack([of_terms.T[:, mine].T, alpha])
    return kernel_gradient(link.theta.kernel, link.rows.points, link.rows.points, L, right)


def _by_cost(  # noqa: PLR0917
    at: LeftOut, k: int, change: Change, of_terms: Answers, of_f: Answers, whole: Answers
) -> float:
    """−Σ vᵀv′ over the responses − vᵀv̂, by R of ½R‖θ‖², where ‖θ‖² = ‖v‖²/scale."""
    problem = at.terms.problem
    v = slice(problem.ends[k], problem.ends[k + 1])
    one, other = of_terms.x[:, v], of_f.x[:, v]
    found = change.p @ np.sum(one * other, axis=1) + change.h @ np.sum(one**2, axis=1)
    return -float(found + whole.x[0, v] @ at.terms.point.x[v]) * float(problem.R[k]) / _strength(at, k)


def _strength(at: LeftOut, k: int) -> float:
    """R of ½R‖θ‖²."""
    lengths = assemble.shape_of(at.form, at.outer).lengths
    assert lengths is not None
    return float(lengths.curvature[next(iter(at.form.norms_of(at.form.predictions[k].theta)))])


def _costs(form: CanonicalForm, p: cp.Parameter) -> list[Array]:
    """dR/dp for each θ, in p's shape: 0 for parameters of kernels alone. Raises KernelOptError for all others."""
    sign, objective = -1.0 if form.outer.objective.NAME == "maximize" else 1.0, form.outer.objective.args[0]
    while isinstance(objective, NegExpression):
        sign, objective = -sign, objective.args[0]
    of_costs = [term for term in summands(objective) if _has(term, p)]
    others = {v.id for term in of_costs for v in term.variables()} - {norm.t.id for norm in form.norms}
    if others or any(_has(c, p) for c in form.outer.constraints):
        raise KernelOptError(
            f"Expected parameters of kernels and of costs λ·ko.sum_squares(theta); {p.name()} is in losses or "
            "constraints. Use ko.CrossValidatedLoss."
        )
    found = []
    for link in form.predictions:
        (norm,) = form.norms_of(link.theta).values()
        slope = np.zeros(p.size)
        if of_costs:
            value = _cost_of(of_costs, form, norm.t, p)
            at = np.ravel(np.asarray(p.value, dtype=float), order="F")
            base = value(at)
            # The costs are affine in p.
            slope = np.array([value(at + unit) - base for unit in np.eye(p.size)])
        found.append(2 * sign * slope.reshape(p.shape, order="F"))
    return found


def _cost_of(terms: list[Any], form: CanonicalForm, t: cp.Variable, p: cp.Parameter) -> Callable[[Array], float]:
    """The terms at ‖θ‖ = 1 for one θ and 0 for others, as a function of p."""
    replaced = {id(norm.t): cp.Constant(float(norm.t is t)) for norm in form.norms}

    def value(flat: Array) -> float:
        given = {**replaced, id(p): cp.Constant(flat.reshape(p.shape, order="F"))}
        return sum(float(rewrite(cp.Problem(cp.Minimize(term)), given).objective.value) for term in terms)

    return value


def _has(tree: Any, p: cp.Parameter) -> bool:
    return any(p is q for q in tree.parameters())
