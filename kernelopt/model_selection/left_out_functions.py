"""Fits without some rows, as functions: f₋ at new points, from the model that leaves the rows out.

    f₋(x) = f(x) + c(x)ᵀΔ₋,  c(x) = (Σᵢ bᵢ κ(x, xᵢ), y's coefficients),  Δ₋ = H₋⁻¹Σg

with Δ₋ the step of (v, y) to the optimum without the rows (`leave_one_out`), and c(x) the gradient of f(x) in (v, y):
the factor's columns as functions of points. For squares it is exact. One decomposition of H serves all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.compiler import representer
from kernelopt.driver.statement import one_at_a_time
from kernelopt.errors import DataError
from kernelopt.model_selection.leave_one_out import (
    LeftOut,
    affine_rows,
    left_out_terms,
    predictions_in,
    require_affine,
)
from kernelopt.problem import Problem
from kernelopt.solvers import assemble
from kernelopt.support.checks import require_flag
from kernelopt.support.types import Array, Ints


class LeftOutValues(NamedTuple):
    """own : f₋(xᵢ) in each row, without its group, (N, K); new : f₋ at new points, (groups, M, K);

    is_exact : whether these are values of fits, and not of the quadratic model of another loss
    """

    own: Array
    new: Array
    is_exact: bool


@one_at_a_time
def leave_one_out_predictions(problem: Problem, f: cp.Expression, new: cp.Expression, *, refit: bool = False) -> Array:
    """f₋ᵢ at new points for each row i: the predictions of the fit without that row's terms of the objective.

    No fit is repeated. One decomposition of the objective's Hessian H in (v, y) gives all of them,

        f₋ᵢ(x) = f(x) + c(x)ᵀH⁻¹cᵢ ℓ′ᵢ/(1 − hᵢℓ″ᵢ),   hᵢ = cᵢᵀH⁻¹cᵢ,

    with c(x) and cᵢ the gradients of f(x) and of f(xᵢ) in (v, y). For squares this is exact. With an intercept it is
    f₋ᵢ(x) = f(x) − eᵢhᵢ(x), where f(x) = h(x)ᵀy and yᵢ − f₋ᵢ(xᵢ) = eᵢ. For other losses it is the quadratic model of
    `ko.approximate_leave_one_out`, or an exact fit with `refit`. Weights, free variables, several outputs and
    constraints are taken into account in the same way.

    Parameters
    ----------
    problem : Problem
        Solved and convex, with λ‖θ‖² for each θ.
    f : expression (N,) or (N, K)
        The predictions in rows that are left out, such as `theta(X) + b`; as in `ko.approximate_leave_one_out`.
    new : expression (M,) or (M, K)
        The same at other points, `theta(X_new) + b`: affine in predictions by the θ of the problem, at any points, and
        in its variables.
    refit : whether to fit again without each row whose loss has a slope at the optimum

    Returns
    -------
    array (N, M) or (N, M, K), in the units of f
        Row i is f₋ᵢ at the new points. It is f itself where a row has no terms of its own, and nan where the model does
        not determine f₋ᵢ. The array takes 8·N·M·K bytes. If θ is restricted to a factor of lower rank, f₋ᵢ is in the
        same span, that of the pivots for all rows.

    Raises
    ------
    KernelOptError
        Before a solve, and for problems without a quadratic model, as in `ko.approximate_leave_one_out`.
    DataError
        Where f or new is not such an expression, or new has another number of outputs.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X, y = np.arange(6.0)[:, None], np.array([0.0, 1.0, 4.0, 9.0, 16.0, 25.0])
    >>> theta, b = ko.Theta(ko.kernels.Linear()), cp.Variable()
    >>> f = lambda X: theta(X) + b
    >>> objective = cp.sum_squares(y - f(X)) + 1e-6 * ko.sum_squares(theta)
    >>> problem = ko.Problem(cp.Minimize(objective))
    >>> _ = problem.solve()
    >>> left_out = ko.leave_one_out_predictions(problem, f(X), f([[2.0], [7.0]]))
    >>> left_out.round(2)[[0, 5]]
    array([[ 5., 35.],
           [ 6., 26.]])
    """
    require_flag(refit, "refit")
    groups = None if not isinstance(f, cp.Expression) or not f.ndim else [np.array([i]) for i in range(f.shape[0])]
    found = left_out_values(problem, f, new, groups or (), refit=refit).new
    return found if f.ndim == 2 else found[:, :, 0]


def left_out_values(
    problem: Problem, f: cp.Expression, new: cp.Expression, groups: Sequence[Ints], *, refit: bool = False
) -> LeftOutValues:
    """The values of f in each row and at new points, by fits without each group; rows are in one group each.

    Raises as `leave_one_out_predictions`.
    """
    at = left_out_terms(problem, f)
    require_affine(new)
    if new.shape[1:] != f.shape[1:]:
        raise DataError(f"Expected new of shape (M, …) like f, {f.shape}; got {new.shape}. Write the same expression.")
    N, M, K = f.shape[0], new.shape[0], f.size // f.shape[0]
    C, constant = _gradients(at, new)
    steps = at.steps(groups, N, refit)
    x, group_of = at.terms.point.x, np.empty(N, dtype=int)
    for k, group in enumerate(groups):
        group_of[group] = k
    moves = np.einsum("kns,ns->kn", at.C.reshape(K, N, len(x)), steps[group_of])
    moved = C @ x + constant + steps @ C.T
    shape = assemble.shape_of(at.form, at.outer)
    return LeftOutValues(
        (at.values.reshape(K, N) + moves).T,
        moved.reshape(len(groups), K, M).transpose(0, 2, 1),
        refit or (shape.squares and not shape.hard),
    )


def _gradients(at: LeftOut, new: cp.Expression) -> tuple[Array, Array]:
    """C and the constant of new = Cx + constant, entries in Fortran order."""
    nodes = list({id(node): node for node in predictions_in(new)}.values())
    links = [_link_of(at, node) for node in nodes]
    stand_ins = [cp.Variable(node.shape, value=np.zeros(node.shape)) for node in nodes]
    replaced: dict[int, cp.Expression] = {id(node): u for node, u in zip(nodes, stand_ins, strict=True)}
    E, F, constant = affine_rows(at.form, new, replaced, stand_ins)
    problem = at.terms.problem
    end, first = problem.ends[-1], 0
    C = np.zeros((new.size, problem.size))
    C[:, end:] = (F @ assemble.places_of_y(at.outer)).toarray()
    known: dict[int, Any] = {}
    for node, number in zip(nodes, links, strict=True):
        link = at.form.predictions[number]
        private = at.reduction.form.predictions[number]
        factor = at.reduction.factors[private.theta]
        if factor.rank:
            functions = known.setdefault(number, representer.columns(private, factor))
            B = node.at(functions)
            before = sum(one.theta.outputs or 1 for one in at.form.predictions[:number])
            for k in range(link.theta.outputs or 1):
                rows = slice(first + k * len(B), first + (k + 1) * len(B))
                C[:, problem.ends[before + k] : problem.ends[before + k + 1]] += sp.csr_array(E[:, rows]) @ B
        first += node.size
    return C, constant


def _link_of(at: LeftOut, node: Any) -> int:
    """The number of a prediction's θ in the problem. Raises DataError where it has none."""
    for number, link in enumerate(at.form.predictions):
        if link.theta is node.data.theta:
            return number
    raise DataError(f"Expected predictions by a θ of the problem; {node.name()} is by another. Write theta(X_new).")
