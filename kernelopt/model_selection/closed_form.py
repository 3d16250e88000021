"""Leave-one-out residuals of squares in closed form.

For squares, leaving a row out of the quadratic model is exact, m = h/(1 − 2wh), and one decomposition gives all h for
every λ.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.outer import Outer
from kernelopt.compiler.separable import Separable
from kernelopt.driver.statement import one_at_a_time
from kernelopt.errors import KernelOptError
from kernelopt.model_selection.leave_one_out import fitted
from kernelopt.model_selection.squares import Squares, squares
from kernelopt.problem import Problem, require_problem
from kernelopt.solvers import assemble, least_squares
from kernelopt.solvers.structured import Structured
from kernelopt.support.types import Array

# 1 − hᵢ up to which only row i itself determines its prediction. eᵢ/(1 − hᵢ) would then be made of rounding.
EMPTY = 1e-12


class _Expressions(NamedTuple):
    """The squared expressions of a problem, and what does not change with λ.

    E, F : coefficients of all their entries in the u and y of the form; rows, columns : in the distinct predictions and
    in the y of the cut `split`; spread, places : u and y in terms of these
    """

    terms: tuple[Squares, ...]
    form: CanonicalForm
    split: Separable
    E: sp.csr_array
    F: sp.csr_array
    rows: sp.csr_array
    columns: sp.csr_array
    spread: sp.csr_array
    places: sp.csr_array


_known: WeakKeyDictionary[Problem, _Expressions] = WeakKeyDictionary()


@one_at_a_time
def leave_one_out(problem: Problem) -> Array:
    """Each residual of a least squares problem after a fit without its own square.

    For `cp.sum_squares(y - f(X))` these are yᵢ − f₋ᵢ(xᵢ), with f₋ᵢ fitted to all rows but the i-th. No fit is repeated:

        e₋ᵢ = eᵢ/(1 − hᵢ),   hᵢ = 2wᵢ cᵢᵀH⁻¹cᵢ,

    where wᵢeᵢ² is the term of the objective, cᵢ the gradient of eᵢ in (v, y) and H the objective's Hessian, so that
    weights, intercepts and other variables of the problem are taken into account. Rows that repeat a point are left out
    one at a time. The mean of e₋ᵢ² (with the weights of the loss) is the leave-one-out estimate of the loss.

    The current values of parameters are used, so that a change of λ or of y needs no solve. After the first few calls
    with one kernel, rows and weights, a call takes O(Nr) for a problem of N rows and rank r, and cvxpy's evaluation of
    the objective.

    If θ is restricted to a factor of lower rank (`rank_tol`, `max_rank`), f₋ᵢ is the best fit in the same span, that of
    the pivots for all rows.

    Parameters
    ----------
    problem : Problem
        Solved, with an objective of squares and λ‖θ‖² for each θ, and without constraints.

    Returns
    -------
    array of the shape of the squared expression, (N,) or (N, K), in its units and with its sign:
        `cp.sum_squares(cp.multiply(np.sqrt(w), y - f(X)))` gives √wᵢ(yᵢ − f₋ᵢ(xᵢ)), and `w @ cp.square(y - f(X))`
        gives yᵢ − f₋ᵢ(xᵢ). Every entry is left out alone. Where the objective has several squared expressions with
        predictions, their entries follow one another in the order in which they stand there, shape (number of all,),
        matrices column by column. nan where hᵢ = 1: without its row, that prediction is not determined.

    Raises
    ------
    KernelOptError
        Before a solve, and where the problem is not one of squares with λ‖θ‖².

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X, y = np.arange(6.0)[:, None], np.array([0.0, 1.0, 4.0, 9.0, 16.0, 25.0])
    >>> theta, b = ko.Theta(ko.kernels.Linear()), cp.Variable()
    >>> objective = cp.sum_squares(y - theta(X) - b) + 1e-6 * ko.sum_squares(theta)
    >>> problem = ko.Problem(cp.Minimize(objective))
    >>> _ = problem.solve()
    >>> ko.leave_one_out(problem).round(2)
    array([ 7.  , -0.95, -3.26, -3.26, -0.95,  7.  ])
    """
    require_problem(problem)
    form, reduction, outer = fitted(problem)
    shape = assemble.Shape("takes no integers") if outer is None else assemble.shape_of(form, outer)
    has_model = shape.lacks is None and shape.squares and shape.odd is None and not shape.shifted
    if outer is None or not has_model:
        raise KernelOptError(
            "Expected an objective of squares and λ·ko.sum_squares(theta) for each θ, and no constraints: residuals of "
            "other problems have no closed form when a row is left out. Use ko.approximate_leave_one_out (exact with "
            "refit=True) or ko.cross_validate."
        )
    split, lengths = outer.split, shape.lengths
    assert split is not None
    assert lengths is not None
    known = _expressions(form, outer, split, _known.get(problem))
    if known is None:
        raise KernelOptError("Expected squares of predictions in the objective; there are none.")
    _known[problem] = known
    structured = assemble.structured(reduction, outer, dict(enumerate(lengths.curvature.tolist())))
    curvature = least_squares.curvature(structured)
    start = problem._left_off
    kept = least_squares.reusable(structured, curvature, None if start is None else start.kept)
    if start is not None:
        problem._left_off = replace(start, kept=kept)
    x = least_squares.minimizer(structured, curvature, kept)
    e = _residuals(known, structured, x)
    w = np.concatenate([term.weights for term in known.terms])
    h = 2 * w * kept.leverages(structured, curvature, known.rows, known.columns)
    with np.errstate(divide="ignore", invalid="ignore"):
        left_out = np.where(1 - h > EMPTY, e / (1 - h), np.nan)
    return left_out.reshape(known.terms[0].expression.shape, order="F") if len(known.terms) == 1 else left_out


def _expressions(
    form: CanonicalForm, outer: Outer, split: Separable, known: _Expressions | None
) -> _Expressions | None:
    """Those of the objective, the known ones where they still apply; None where there are none."""
    terms = squares(form, () if known is None else known.terms)
    if not terms:
        return None
    if known is not None and (known.terms, known.form, known.split) == (terms, form, split):
        return known
    E, F = (sp.csr_array(sp.vstack(parts)) for parts in ([t.E for t in terms], [t.F for t in terms]))
    S, places = sp.csr_array(assemble.spread(form)), sp.csr_array(assemble.places_of_y(outer))
    return _Expressions(terms, form, split, E, F, sp.csr_array(E @ S), sp.csr_array(F @ places), S, places)


def _residuals(known: _Expressions, structured: Structured, x: Array) -> Array:
    """e at x: cvxpy evaluates it at the values that u and y have now, and its coefficients move it from there to x."""
    e = np.concatenate([np.ravel(t.expression.value, order="F") for t in known.terms])
    u = [np.ravel(link.u.value, order="F") for link in known.form.predictions if link.u is not None]
    y = [np.ravel(variable.value, order="F") for variable in known.form.y]
    moved_u = known.spread @ structured.predictions(x) - np.concatenate(u)
    moved_y = known.places @ x[structured.ends[-1] :] - np.concatenate([np.zeros(0), *y])
    return np.asarray(e + known.E @ moved_u + known.F @ moved_y)
