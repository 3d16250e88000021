"""Predictions for each row by a fit without that row: for any loss, without fitting again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.canonical_form import CanonicalForm, rewrite
from kernelopt.compiler.iterate import place
from kernelopt.compiler.outer import Outer
from kernelopt.compiler.representer import Reduction
from kernelopt.compiler.separable import Separable
from kernelopt.compiler.terms import LogSumExp
from kernelopt.driver.statement import one_at_a_time
from kernelopt.errors import DataError, KernelOptError, ParameterError
from kernelopt.language.nodes import Prediction
from kernelopt.language.survival import CoxLikelihood
from kernelopt.model_selection.quadratic_model import LocalModel, local_model, rows_of, weights_and_kinks
from kernelopt.model_selection.squares import coefficients
from kernelopt.problem import Problem, require_problem
from kernelopt.solvers import assemble, engines
from kernelopt.solvers.dual_point import Point
from kernelopt.solvers.structured import Structured
from kernelopt.support.checks import require_flag
from kernelopt.support.types import Array, Ints

# Relative residual of a least squares solution up to which the linear system has an exact one. Smaller values come near
# its rounding, about 1e-15; larger ones would accept a system without a solution.
EXACT = 1e-9


@one_at_a_time
def approximate_leave_one_out(problem: Problem, f: cp.Expression, *, refit: bool = False) -> Array:
    """Approximate f₋ᵢ(xᵢ), the value of f in each row after a fit without that row's terms of the objective.

    It works for any loss that kernelopt's own solvers take, smooth or with kinks. Instead of a new fit, each row is
    removed from the quadratic model around the optimum,

        f₋ᵢ ≈ fᵢ + mᵢℓ′ᵢ,   mᵢ = cᵢᵀH₋ᵢ⁻¹cᵢ = hᵢ/(1 − hᵢℓ″ᵢ),   hᵢ = cᵢᵀH⁻¹cᵢ,

    one step of Newton's method, with cᵢ the gradient of fᵢ in (v, y) and H the objective's Hessian. For a loss with
    kinks, such as hinge, pinball or ε-insensitive loss, rows on a linear piece have curvature 0, and rows at a kink
    stay there while another row is left out. H is then the Hessian on {Δ : cⱼᵀΔ = 0 for these j}, ℓ′ᵢ the row's
    multiplier, and 1/mᵢ the i-th diagonal entry of the inverse of (CH⁻¹Cᵀ) on them. (Rad and Maleki, J. R. Stat. Soc. B
    82, 2020; Wang, Zhou, Lu, Maleki and Mirrokni, ICML 2018.)

    For squares f₋ᵢ is exact. Otherwise the error is of second order in the effect of one row on the fit. With kinks it
    is small only if few rows reach another kink when one is left out. Use averages over rows then, and `refit` if λ is
    so small that most rows are fitted exactly.

    The terms left out are those that depend on predictions of row i alone, with their weights. Constraints stay, and so
    do terms that couple rows, such as penalties of slopes; of a sum of the largest losses the row's own is left out.
    Rows that repeat a point are left out one at a time. The current values of parameters are used, so that a change
    needs no solve. If θ is restricted to a factor of lower rank, f₋ᵢ is in the same span, that of the pivots for all
    rows.

    Parameters
    ----------
    problem : Problem
        Solved and convex, with λ‖θ‖² for each θ.
    f : expression (N,) or (N, K)
        Affine in predictions at points of the problem and in its variables, such as `theta(X) + b`. A row of a matrix
        is left out as a whole: all terms that depend on its K entries alone.
    refit : whether to fit again without each row whose loss has a slope at the optimum (in the factor's span, starting
        from the answer with all rows). It takes a few steps of our own solvers per row, to a gap of 1e-11:
        variables that cost little are off by as much as that leaves open.

    Returns
    -------
    array of the shape of f, in its units
        f itself where a row has no terms of its own; nan where the model does not determine its prediction then.
        Where several fits exist, or none is attained, as without the only row of a class, it is that of a fit nearby.

    Raises
    ------
    KernelOptError
        Before a solve, and for problems without such a model: those that do not split into functions of one number
        each, have norms of θ other than λ‖θ‖² or nonconvex losses, or a maximum of several functions in a row.
    DataError
        Where f is not such an expression, or no term of the objective belongs to one row of f.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X = np.linspace(-2, 2, 40)[:, None]
    >>> y = np.sign(X[:, 0] + 0.5 * np.sin(9 * X[:, 0]))
    >>> theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    >>> f = theta(X) + b
    >>> objective = cp.sum(ko.losses.hinge(y, f)) + 0.5 * ko.sum_squares(theta)
    >>> problem = ko.Problem(cp.Minimize(objective))
    >>> _ = problem.solve()
    >>> left_out = ko.approximate_leave_one_out(problem, f)
    >>> (
    ...     float(np.mean(np.maximum(0, 1 - y * left_out)).round(2)),
    ...     float(np.mean(np.maximum(0, 1 - y * f.value)).round(2)),
    ... )
    (0.15, 0.11)
    """
    require_flag(refit, "refit")
    at = left_out_terms(problem, f)
    N = f.shape[0]
    steps = at.steps([np.array([i]) for i in range(N)], N, refit)
    moves = np.einsum("kns,ns->kn", at.C.reshape(-1, N, steps.shape[1]), steps)
    return (at.values + moves.ravel()).reshape(f.shape, order="F")


class LeftOut(NamedTuple):
    """What belongs to rows that are left out of a solved problem, in the terms of its structured form.

    terms : the objective's, the rows that own them, and the quadratic model; E, F, C : f = Eu + Fy + … = Cx + …, with
    x of the structured problem; values : f at the optimum
    """

    form: CanonicalForm
    reduction: Reduction
    outer: Outer
    terms: Terms
    E: sp.csr_array
    F: sp.csr_array
    C: Array
    values: Array

    def steps(self, groups: Sequence[Ints], N: int, refit: bool) -> Array:
        """x₋ − x for each group of the N rows of f that is left out as a whole, (groups, size of x)."""
        steps = self.terms.steps(self.E, self.F, self.C, N, groups)
        return self.terms.refitted(steps, self.outer, self.E, self.F, N, groups) if refit else steps


def left_out_terms(problem: Problem, f: cp.Expression) -> LeftOut:
    """The model around the present optimum, and f in it. Raises KernelOptError and DataError as stated above."""
    require_problem(problem)
    form, reduction, outer = fitted(problem)
    if CoxLikelihood in problem.atoms():
        raise KernelOptError(
            "Expected losses with terms of single rows; a partial likelihood compares each row with all at risk. Fit "
            "again without each row, with ko.losses.cox of the others."
        )
    _require_model(form, outer)
    assert outer is not None
    assert outer.split is not None
    E, F, constant = _rows_of_f(form, f)
    point, structured = engines.optimum(reduction, outer, problem._left_off)
    terms = Terms(outer.split, _owners(outer, E, f), point, structured)
    places = assemble.places_of_y(outer)
    C = _dense_rows(structured, sp.csr_array(E @ assemble.spread(form)), sp.csr_array(F @ places))
    return LeftOut(form, reduction, outer, terms, E, F @ places, C, C @ point.x + constant)


def fitted(problem: Problem) -> tuple[CanonicalForm, Reduction, Outer | None]:
    """The form at the answer, its reduction, and the outer problem for the values that parameters have now.

    Raises KernelOptError before a solve, and ParameterError for parameters without values.
    """
    problem._require_no_boxes("leave-one-out")
    if problem._solution is None or problem._factored is None:
        raise KernelOptError("Expected a solved problem; call solve() first.")
    problem._require_parameter_values()
    problem._require_variable_values()
    of_kernels = {p.name() for theta in problem.thetas() for p in theta.kernel.parameters()}
    if changed := of_kernels.intersection(problem._changed_since()):
        raise KernelOptError(f"Expected the kernel of the last solve; {', '.join(changed)} changed since. Solve again.")
    place(problem._private_form(), problem._present_point())
    return problem.canonical_form(), problem._by_columns()[0], problem._outer()


def _require_model(form: CanonicalForm, outer: Outer | None) -> None:
    """Raise KernelOptError where there is no quadratic model."""
    lacks: str | None = "is of a kind that has none (integers, or the spectral form)"
    if outer is not None:
        shape = assemble.shape_of(form, outer)
        lacks = shape.lacks
        if lacks is None and shape.odd is not None:
            lacks = "needs λ·ko.sum_squares(theta) for each θ, and no other use of its norm"
        if lacks is None and shape.shifted:
            lacks = "needs the norm of θ itself, not of θ − f₀"
        if lacks is None and shape.nonconvex is not None:
            lacks = f"needs convex losses; {shape.nonconvex} is declared nonconvex"
    if lacks is not None:
        raise KernelOptError(f"Expected a problem with a quadratic model around its optimum; this one {lacks}. "
                             "Fit again without each row, or by folds: ko.cross_validate.")  # fmt: skip


def _rows_of_f(form: CanonicalForm, f: Any) -> tuple[sp.csr_array, sp.csr_array, Array]:
    """f = Eu + Fy + constant, entries in Fortran order. Raises DataError where f is not such an expression."""
    require_affine(f)
    replaced: dict[int, cp.Expression] = {}
    links = {link.theta: link for link in form.predictions}
    for node in predictions_in(f):
        link = links.get(node.data.theta)
        stretch = None if link is None else dict(link.blocks).get(node.data.fingerprint)
        if link is None or link.u is None or stretch is None:
            raise DataError(f"Expected predictions of the problem; {node.name()} is not one of them.")
        replaced[id(node)] = link.u[stretch]
    u = [link.u for link in form.predictions if link.u is not None]
    return affine_rows(form, f, replaced, u)


def affine_rows(
    form: CanonicalForm, f: cp.Expression, replaced: dict[int, cp.Expression], u: list[cp.Variable]
) -> tuple[sp.csr_array, sp.csr_array, Array]:
    """f = Eu + Fy + constant, entries in Fortran order, with predictions replaced by variables u that have values.

    Raises DataError for other variables, and ParameterError for parameters without values.
    """
    ours = {v.id for v in form.y}
    cut = rewrite(cp.Problem(cp.Minimize(cp.sum(f))), replaced).objective.args[0].args[0]
    foreign = [v.name() for v in cut.variables() if v.id not in ours | {known.id for known in u}]
    if foreign:
        raise DataError(f"Expected variables of the problem; {foreign[0]} is none.")
    unknown = [p.name() for p in cut.parameters() if p.value is None]
    if unknown:
        raise ParameterError(f"Expected predictions whose parameters have values; {unknown[0]} has none.")
    E, F = coefficients(cut, u), coefficients(cut, form.y)
    values = [np.ravel(v.value, order="F") for v in (*u, *form.y)]
    linear = sp.csr_array(sp.hstack([E, F])) @ np.concatenate(values)
    return E, F, np.ravel(cut.value, order="F") - linear


def require_affine(f: Any) -> None:
    """Raise DataError where f is no real affine expression (N,) or (N, K)."""
    if not isinstance(f, cp.Expression) or not f.is_affine() or f.is_complex() or f.ndim not in (1, 2):
        raise DataError(f"Expected a real affine expression of predictions, of shape (N,) or (N, K); got {f!r}.")


def predictions_in(node: Any) -> list[Prediction]:
    """Nodes Aθ of a tree."""
    if isinstance(node, Prediction):
        return [node]
    return [found for arg in node.args for found in predictions_in(arg)]


def _owners(outer: Outer, E: sp.csr_array, f: cp.Expression) -> Ints:
    """For each argument s, the row of f on whose predictions alone it depends, −1 where there is no such row; (m,).

    Raises DataError where rows of f share predictions or have none, or where no row has a term of its own, and
    KernelOptError where a row's term is a maximum.
    """
    N, split = f.shape[0], outer.split
    assert split is not None
    entries = E.tocoo()
    entries.sum_duplicates()
    used = entries.data != 0
    pairs = np.unique(np.column_stack([entries.col[used], entries.row[used] % N]), axis=0)
    if len(np.unique(pairs[:, 0])) < len(pairs) or len(np.unique(pairs[:, 1])) < N:
        raise DataError("Expected rows of f with predictions of their own; some have none, or share them.")
    owner_of_u = np.full(E.shape[1], -1)
    owner_of_u[pairs[:, 0]] = pairs[:, 1]
    s = split.E.tocoo()
    low, high = np.full(split.E.shape[0], N), np.full(split.E.shape[0], -1)
    np.minimum.at(low, s.row[s.data != 0], owner_of_u[s.col[s.data != 0]])
    np.maximum.at(high, s.row[s.data != 0], owner_of_u[s.col[s.data != 0]])
    _require_no_maxima(outer, low, high)
    # low and high differ where s depends on several rows or on none. Rows of constraints have plain ≥ 0, and stay.
    owners = np.where((low == high) & (split.plain < 0), high, -1)
    for term in split.terms:
        if isinstance(term, LogSumExp):
            # One function of several arguments belongs to a row only if all of these do.
            at = term.at.reshape(-1, len(term.weight))
            apart = np.any(owners[at] != owners[at[0]], axis=0)
            owners[at[:, apart]] = -1
    if np.all(owners < 0) and not np.any(split.linear_u[pairs[:, 0]]):
        raise DataError("Expected terms that depend on one row of f each; there are none to leave out.")
    return owners


def _require_no_maxima(outer: Outer, low: Ints, high: Ints) -> None:
    """Raise KernelOptError where one row of f has a term t = max(x₁, …), whose rows t ≥ xₖ look like constraints.

    low, high : the first and the last row of f on whose predictions each argument depends
    """
    assert outer.split is not None
    F = sp.csc_array(outer.split.F)
    for column in range(outer.split.users, F.shape[1]):  # after the user's own variables
        of = F.indices[F.indptr[column] : F.indptr[column + 1]]
        of = of[high[of] >= 0]
        if len(of) and low[of].min() == high[of].max():
            raise KernelOptError(
                "Expected terms whose slopes change in one number at a time; a row has a maximum of several, as in "
                "ko.losses.crammer_singer or cp.max(F, axis=1). Fit again without each row, or use ko.cross_validate."
            )


def _entries(group: Ints, size: int, N: int) -> Ints:
    """The entries of some rows of f, (N,) or (N, K), flattened in Fortran order."""
    return np.concatenate([group + first for first in range(0, size, N)])


def _dense_rows(problem: Structured, E: sp.csr_array, F: sp.csr_array) -> Array:
    """(EB, F) for rows E, in distinct predictions, and F other than those of the problem."""
    ends = np.cumsum([0, *(len(B) for B in problem.blocks)])
    parts = [B.combined(E[:, a:b]) for a, b, B in zip(ends[:-1], ends[1:], problem.blocks, strict=True)]
    return np.hstack([*parts, F.toarray()])


class Terms:
    """The terms of the objective, the row that each belongs to, and the model around the optimum."""

    def __init__(self, split: Separable, owners: Ints, point: Point, problem: Structured) -> None:
        self.split, self.owners, self.problem, self.point = split, owners, problem, point
        self.weights, at_kink = weights_and_kinks(problem, point)
        self.slopes = point.total(problem)
        kinks = np.flatnonzero(at_kink)
        self.model: LocalModel = local_model(problem, self.weights, kinks)
        self.number = np.full(problem.m, -1)
        self.number[kinks] = np.arange(len(kinks))

    def steps(self, E: sp.csr_array, F: sp.csr_array, C: Array, N: int, groups: Sequence[Ints]) -> Array:
        """x₋ − x in the model for each group of rows of f = Eu + Fy + …, whose gradients in x are the rows of C.

        They are H₋⁻¹(∂s/∂x)ᵀg, with the slopes g of the group's terms along their arguments s; (groups, size of x).
        """
        found = np.zeros((len(groups), self.model.Z.shape[1] + len(self.model.kinks)))
        own = np.flatnonzero(self.owners >= 0)
        own = own[np.argsort(self.owners[own], kind="stable")]
        bounds = np.searchsorted(self.owners[own], np.arange(N + 1))
        rows = self.model.moved_by(np.vstack([rows_of(self.problem, own), C]))
        for k, group in enumerate(groups):
            places = np.concatenate([np.arange(bounds[i], bounds[i + 1]) for i in group])
            entries, terms = _entries(group, E.shape[0], N), own[places]
            linear = self.linear(terms, E, F, entries)
            if not len(places) and not linear.any():
                continue
            beside = np.zeros(len(entries))
            slopes, curvature = (np.concatenate([part[terms], beside]) for part in (self.slopes, self.weights))
            at_kink = self.number[terms]
            here = rows[np.concatenate([places, len(own) + entries])]
            found[k] = self.model.without(here, curvature, at_kink[at_kink >= 0], slopes + linear)
        return self.model.steps(found)

    def refitted(  # noqa: PLR0917
        self, steps: Array, outer: Outer, E: sp.csr_array, F: sp.csr_array, N: int, groups: Sequence[Ints]
    ) -> Array:
        """The same by a fit without each group whose terms have a slope; other groups do not move the optimum.

        Raises KernelOptError where the terms of a group can't be replaced by a constant.
        """
        found = steps.copy()
        for k, group in enumerate(groups):
            terms, entries = np.flatnonzero(np.isin(self.owners, group)), _entries(group, E.shape[0], N)
            linear = self.linear(terms, E, F, entries)[: len(terms)]
            if np.any(self.slopes[terms] + linear) and not np.isnan(steps[k]).any():
                without = self._without(terms, linear)
                start = replace(self.point, a=self.point.a[~np.isin(self.problem.of, terms)], kept=None)
                found[k] = engines.optimum_near(without, outer, start).x - self.point.x
        return found

    def _without(self, terms: Ints, linear: Array) -> Structured:
        """The problem with the arguments of some terms set to 0, their linear costs and kinks taken out."""
        problem, kept = self.problem, np.ones(self.problem.m)
        kept[terms] = 0.0
        stay = kept[problem.of] == 1
        slopes = np.zeros(problem.m)
        slopes[terms] = linear
        if not np.isfinite(problem.smooth_value(kept * self.point.s)):
            raise KernelOptError("Expected losses that are finite at 0, to leave them out of a fit; use refit=False.")
        return replace(
            problem,
            E=sp.csr_array(sp.diags_array(kept) @ problem.E), F=kept[:, None] * problem.F, slope=kept * problem.slope,
            linear_d=problem.linear_d - problem.E.T @ slopes, linear_y=problem.linear_y - problem.F.T @ slopes,
            of=problem.of[stay], anchor=problem.anchor[stay], low=problem.low[stay], high=problem.high[stay],
            rho=problem.rho[stay],
        )  # fmt: skip

    def linear(self, own_terms: Ints, E: sp.csr_array, F: sp.csr_array, entries: Ints) -> Array:
        """The row's linear terms, linear_uᵀu on its own u, as slopes along its arguments and along its entries of f.

        Where the row has other terms, the arguments of these determine which linear costs of y belong to it.
        Raises KernelOptError where they leave that open.
        """
        found = np.zeros(len(own_terms) + len(entries))
        if not self.split.linear_u.any():
            return found
        E, F = E[entries], F[entries]
        columns = np.unique(E.indices)
        wanted = self.split.linear_u[columns]
        if not wanted.any():
            return found
        along = self.split.E[own_terms] if len(own_terms) else E
        beside = self.split.F[own_terms] if len(own_terms) else F
        e, with_y = along[:, columns].toarray(), sp.hstack([along[:, columns], beside]).toarray()
        slopes = np.linalg.lstsq(e.T, wanted, rcond=None)[0]
        off = np.linalg.norm(e.T @ slopes - wanted) > EXACT * np.linalg.norm(wanted)
        if off or np.linalg.matrix_rank(with_y) > np.linalg.matrix_rank(e):
            raise KernelOptError(
                "Expected linear terms of a row in the same expressions as its other terms; here the row's share of "
                "the linear costs of other variables is unknown."
            )
        found[: len(slopes)] = slopes
        return found
