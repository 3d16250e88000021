"""The canonical form: the tree is cut where θ enters it.

    minimize    f(u₁ … u_K, t₁ … t_J, y)              the outer problem: it knows nothing of kernels
    subject to  u_k = A_k θ_k,  ‖θ_k(j) M − f₀‖ ≤ t_j  the links

Rows at which one θ is evaluated anywhere in the problem are stacked into its A; exactly repeated rows are
merged.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import fsum
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.compiler.attributes import dense, nearest
from kernelopt.compiler.rules import Inspection
from kernelopt.errors import DataError
from kernelopt.kernels.callables import FromFunction
from kernelopt.kernels.derivatives import WithDerivatives, with_order
from kernelopt.kernels.domains import distinct, stack
from kernelopt.kernels.kernel import Kernel
from kernelopt.kernels.lifts import joint, lift_of, plain, relifted, relifted_rows
from kernelopt.kernels.remembered import functions_of, remembering
from kernelopt.language.expressions import Theta, ThetaExpression
from kernelopt.language.nodes import EUCLIDEAN, Prediction, ThetaNorm
from kernelopt.language.proximal import ProximalTerm
from kernelopt.language.rows import Rows
from kernelopt.language.smooth import SmoothTerm
from kernelopt.language.survival import CoxLikelihood
from kernelopt.language.text import Notation, describe, names
from kernelopt.support.cvxpy_parts import (
    COLUMNS,
    AddExpression,
    AffAtom,
    Atom,
    Leaf,
    MatrixFrac,
    NegExpression,
    Pnorm,
    Power,
    PowerApprox,
    is_costly,
    nodes_of,
    perspective,
    perspective_of,
    reshape,
    rightly_valued,
    symmetric_wrap,
    with_args,
)
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array, Ints

# Atoms of a symmetric matrix, and which argument it is. Where cvxpy does not see that X is symmetric, as for
# X = M + Mᵀ, they add equations X = Xᵀ, whose coefficients and constants are rounding errors in place of zeros.
OF_SYMMETRIC = {cp.lambda_max: 0, cp.lambda_sum_largest: 0, MatrixFrac: 1}
SYMMETRIC = 1e-13  # relative to the largest entry: X − Xᵀ is rounding


@dataclass(frozen=True, eq=False)
class PredictionLink:
    """u = Aθ, with A the distinct `rows` and u[i] = (Aθ)[take[i]].

    `blocks` gives the slice of u that each feature matrix of the problem occupies; `origin` is the row of the
    stacked data at which each distinct row occurs first. `has_fitted` tells whether some row is a fitted function f₀,
    whose kernel has no parameters.
    """

    theta: Theta
    rows: Rows
    take: Ints
    origin: Ints
    u: cp.Variable | None
    blocks: tuple[tuple[object, slice], ...]
    has_fitted: bool = False

    def summed(self, nu: Array) -> Array:
        """ν added up over repeated rows, (n, K), for ν of u's shape, with any K, or flattened in Fortran order."""
        outputs = nu.shape[1] if nu.ndim == 2 else self.theta.outputs or 1
        total = np.zeros((len(self.rows), outputs))
        if self.u is not None:
            np.add.at(total, self.take, nu.reshape(-1, outputs, order="F"))
        return total


@dataclass(frozen=True, eq=False)
class NormLink:
    """‖θM − f₀‖ ≤ t. `function_rows` are the rows of A that stand for f₀."""

    view: ThetaExpression
    kind: str | int
    t: cp.Variable
    function_rows: Ints

    @property
    def right(self) -> Array:
        """M, (K, outputs of θM); the identity where there is none."""
        outputs, M = self.view.theta.outputs or 1, self.view.right
        return np.eye(outputs) if M is None else M.reshape(outputs, -1)

    @property
    def is_plain(self) -> bool:
        """Whether it is the Euclidean (Frobenius) norm of θ itself."""
        return self.view.right is None and self.view.shift is None and self.kind in (EUCLIDEAN, "fro")


@dataclass(frozen=True, eq=False)
class SmoothLink:
    """h = ℓ(g, data) for a user's own loss; `equal` is the outer problem's constraint g == (an affine expression)."""

    term: SmoothTerm
    g: cp.Variable
    h: cp.Variable
    equal: cp.Constraint

    def place(self) -> None:
        """Set g to the value of its expression, and h to the loss there."""
        self.g.save_value(np.asarray(self.equal.args[1].value, dtype=float))
        values = [self.g.value, *(a.value for a in self.term.args[1:])]
        self.h.save_value(self.term.numeric(values))


@dataclass(frozen=True, eq=False)
class CanonicalForm:
    """The outer problem f(u, t, y) and its links to θ.

    Attributes
    ----------
    outer : cp.Problem in u, t ≥ 0 and y, an ordinary sparse problem
    predictions : one link u = Aθ for each θ
    norms : one link for each norm that occurs
    smooth : one link h = ℓ(g) for each `SmoothLoss` that occurs; these are not part of the outer problem
    users : where y are twins of the user's variables (see `apart`), the latter by the ids of the twins
    pinned : constraints that are equations for the values that parameters have now, as ‖f‖ ≤ c for c = 0
    notes : what was found out about the form, by name

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X, y = np.arange(6.0)[:, None], np.array([1.0, 3.0, 5.0, 7.0, 9.0, 11.0])
    >>> theta = ko.Theta(ko.kernels.Polynomial(degree=1))
    >>> objective = cp.sum_squares(y - theta(X)) + 1e-3 * ko.sum_squares(theta)
    >>> problem = ko.Problem(cp.Minimize(objective))
    >>> _ = problem.solve()
    >>> form = problem.canonical_form()
    >>> (
    ...     [variable.shape for variable in form.outer.variables()],
    ...     len(form.predictions),
    ...     len(form.norms),
    ... )
    ([(6,), ()], 1, 1)
    """

    outer: cp.Problem
    predictions: tuple[PredictionLink, ...]
    norms: tuple[NormLink, ...]
    smooth: tuple[SmoothLink, ...] = ()
    users: Mapping[int, cp.Variable] = field(default_factory=dict)
    pinned: tuple[Any, ...] = ()
    notes: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def _apart(self) -> tuple[cp.Problem, list[cp.Expression]]:
        rest, constants = _without_constants(self.outer.objective.args[0])
        if not constants:
            return self.outer, []
        objective = type(self.outer.objective)(cp.Constant(0.0) if rest is None else rest)
        return cp.Problem(objective, self.outer.constraints), constants

    @property
    def bare(self) -> cp.Problem:
        """The outer problem without constants of its objective, whose size would cost digits of its value."""
        return self._apart[0]

    @property
    def constant(self) -> float:
        """The sum of these constants, for the values that parameters have now."""
        try:
            return fsum(np.asarray(dense(c.value)).item() for c in self._apart[1])
        except OverflowError as error:
            raise DataError("Expected constants of the objective whose sum is a double; got a larger one.") from error

    @property
    def y(self) -> list[cp.Variable]:
        """The user's own variables, or their twins."""
        return list(self._y)

    @cached_property
    def _y(self) -> tuple[cp.Variable, ...]:
        ours = {link.u.id for link in self.predictions if link.u is not None}
        ours |= {link.t.id for link in self.norms}
        ours |= {v.id for link in self.smooth for v in (link.g, link.h)}
        return tuple(v for v in self.outer.variables() if v.id not in ours)

    @cached_property
    def adjustable(self) -> tuple[PredictionLink, ...]:
        """The links of θs whose kernel has parameters."""
        return tuple(link for link in self.predictions if link.theta.kernel.parameters())

    def users_values(self) -> tuple[Any, ...]:
        """The values of the user's variables, one for each y."""
        return tuple(self.users.get(variable.id, variable).value for variable in self.y)

    @cached_property
    def has_cones(self) -> bool:
        """Whether cvxpy can compile the outer problem as it stands: not with a user's own function."""
        return not self.smooth and not self.proximal

    @cached_property
    def proximal(self) -> tuple[ProximalTerm, ...]:
        """The terms of a `ProximalLoss` in the outer problem."""
        return tuple({id(node): node for node in nodes_of(self.outer) if isinstance(node, ProximalTerm)}.values())

    @cached_property
    def compilable(self) -> cp.Problem:
        """The bare problem with a free variable in place of each such term, and one for its argument."""
        if not self.proximal:
            return self.bare
        found = rewrite(self.bare, {id(term): cp.Variable(term.shape) for term in self.proximal})
        named = [cp.Variable(term.args[0].shape) == term.args[0] for term in self.proximal]
        return cp.Problem(found.objective, [*found.constraints, *named])

    @property
    def is_convex(self) -> bool:
        """Whether no loss is declared nonconvex."""
        return all(link.term.loss.is_convex for link in self.smooth)

    def norms_of(self, theta: Theta) -> dict[int, NormLink]:
        """The norms of one θ, by their place in `norms`."""
        return {j: norm for j, norm in enumerate(self.norms) if norm.view.theta is theta}

    def __str__(self) -> str:
        named = Notation(names(link.theta for link in self.predictions))
        lines = [describe(self.outer.objective)]
        lines += [f"    {describe(c)}" for c in self.outer.constraints]
        for link in self.predictions:
            if link.u is not None:
                sizes = f"{link.u.shape[0]} rows, {len(link.rows)} distinct"
                lines.append(f"    {link.u.name()} = A·{named.theta(link.theta)}, {sizes}")
        for norm in self.norms:
            node = ThetaNorm(norm.view.theta._leaf, norm.view, norm.kind)
            lines.append(f"    {describe(node, named=named)} ≤ {norm.t.name()}")
        for smooth in self.smooth:
            node = smooth.term.copy([smooth.g, *smooth.term.args[1:]])
            lines.append(f"    {smooth.h.name()} = {describe(node)}")
        return "\n".join(lines)


def cut(objective: Any, constraints: tuple[Any, ...], found: Inspection) -> CanonicalForm:
    """Replace predictions by u and norms by t."""
    predictions, norms, replaced = links_of(found)
    smooth = _smooth_links(found.smooth)
    replaced |= {id(link.term): link.h for link in smooth}
    outer = rewrite(cp.Problem(objective, [*constraints, *(link.equal for link in smooth)]), replaced)
    equal = outer.constraints[len(constraints) :]
    links = [replace(link, equal=constraint) for link, constraint in zip(smooth, equal, strict=True)]
    return CanonicalForm(outer, predictions, norms, tuple(links))


def links_of(found: Inspection) -> tuple[tuple[PredictionLink, ...], tuple[NormLink, ...], dict[int, cp.Expression]]:
    """The links of all predictions and norms, and the expressions in u and t that stand for them, by their ids."""
    replaced: dict[int, cp.Expression] = {}
    predictions: list[PredictionLink] = []
    norms: dict[object, NormLink] = {}
    thetas = list(dict.fromkeys([p.data.theta for p in found.predictions] + [n.view.theta for n in found.norms]))
    functions = dict[Hashable, FromFunction]()
    for number, theta in enumerate(thetas, start=1):
        kernel = remembering(theta.kernel.at_present(), functions)
        nodes = [p for p in found.predictions if p.data.theta is theta]
        own_norms = {n.fingerprint(): n for n in found.norms if n.view.theta is theta}
        of_u = f"u{number}" if len(thetas) > 1 else "u"
        link, shift_rows = _stack(theta, kernel, nodes, list(own_norms.values()), of_u)
        predictions.append(link)
        replaced.update(_pieces(link, nodes))
        for name, node in own_norms.items():
            t = cp.Variable(nonneg=True, name=f"t{len(norms) + 1}")
            norms[name] = NormLink(node.view, node.kind, t, shift_rows.get(name, np.arange(0)))
    for node in found.norms:
        replaced[id(node)] = norms[node.fingerprint()].t
    return tuple(predictions), tuple(norms.values()), replaced


def apart(form: CanonicalForm) -> CanonicalForm:
    """The same form with a twin in place of each variable of the user, whose values stay unchanged during a solve.

    Twins have the same names and attributes; constraints keep their ids.
    """
    users = form.y
    twins = {id(v): twin(v) for v in users}
    outer = rewrite(form.outer, twins)
    places = {c.id: k for k, c in enumerate(form.outer.constraints)}
    links = tuple(replace(link, equal=outer.constraints[places[link.equal.id]]) for link in form.smooth)
    return replace(form, outer=outer, smooth=links, users={twins[id(v)].id: v for v in users})


def outdated(form: CanonicalForm) -> list[Theta]:
    """The θs whose kernel has parameters with other values than when the form was made."""
    return [link.theta for link in form.adjustable if link.theta.kernel.at_present() != plain(link.rows.kernel)]


def at_present(form: CanonicalForm) -> CanonicalForm:
    """The same form with the kernels that parameters have now. Raises DataError where functions f₀ are rows."""
    links, late = list(form.predictions), outdated(form)
    for number, link in enumerate(links):
        if not any(link.theta is theta for theta in late):
            continue
        rows, kernel = link.rows, remembering(link.theta.kernel.at_present(), functions_of(plain(link.rows.kernel)))
        if link.has_fitted:
            raise DataError(
                f"Expected {link.theta!r} without fitted functions f₀, which belong to {plain(rows.kernel)!r}; its "
                f"parameters have changed, to {kernel!r}. State the problem again with functions of that kernel."
            )
        kernel = relifted(kernel, lift_of(rows.kernel))
        links[number] = replace(link, rows=replace(rows, kernel=kernel))
    return replace(form, predictions=tuple(links))


def with_twins(problem: cp.Problem) -> cp.Problem:
    """A copy in twins of the variables, which can be solved without a change to the user's."""
    return rewrite(problem, {id(v): twin(v) for v in problem.variables()})


def twin(variable: cp.Variable) -> cp.Variable:
    """A variable of the same shape, name and attributes."""
    attributes = {k: value for k, value in variable.attributes.items() if value is not None and value is not False}
    return cp.Variable(variable.shape, name=variable.name(), **attributes)


def _without_constants(node: cp.Expression) -> tuple[cp.Expression | None, list[cp.Expression]]:
    """A sum without its constant terms, None where nothing else remains, and these terms."""
    if node.is_constant():
        return None, [node]
    if isinstance(node, NegExpression):
        rest, constants = _without_constants(node.args[0])
        return (node, []) if not constants else (None if rest is None else -rest, [-c for c in constants])
    if not isinstance(node, AddExpression) or any(a.size != 1 for a in node.args):
        return node, []
    parts = [_without_constants(a) for a in node.args]
    constants = [c for _, several in parts for c in several]
    return (AddExpression([rest for rest, _ in parts if rest is not None]), constants) if constants else (node, [])


def _smooth_links(terms: tuple[SmoothTerm, ...]) -> list[SmoothLink]:
    """Variables for each loss and its argument; losses of constants stay in the outer problem."""
    links: list[SmoothLink] = []
    for term in terms:
        if term.args[0].is_constant():
            if term.parameters():
                raise DataError(f"Expected {describe(term)} to be a function of θ or variables; got parameters only.")
            continue
        number = len(links) + 1
        g, h = cp.Variable(term.shape, name=f"g{number}"), cp.Variable(term.shape, name=f"h{number}")
        links.append(SmoothLink(term, g, h, g == term.args[0]))
    return links


def _pieces(link: PredictionLink, nodes: list[Prediction]) -> dict[int, cp.Expression]:
    """Each prediction as u, or a slice of it, by the id of its node."""
    stretches = dict(link.blocks)
    pieces = {}
    for node in nodes:
        assert link.u is not None
        stretch = stretches[node.data.fingerprint]
        pieces[id(node)] = link.u if len(link.blocks) == 1 else link.u[stretch]
    return pieces


def _stack(
    theta: Theta, kernel: Kernel, nodes: list[Prediction], norms: list[ThetaNorm], name: str
) -> tuple[PredictionLink, dict[object, Ints]]:
    """The rows of one θ: the distinct points of its predictions, then functions f₀.

    u holds the predictions at points, then the f₀ᵀθ; the f₀ of norms are rows of A, but not of u.
    """
    blocks = {p.data.fingerprint: p.data.A for p in nodes}
    shifts = {n.fingerprint(): n.view.shift for n in norms if n.view.shift is not None}
    at_points = {k: A._X for k, A in blocks.items() if A.function is None}
    functions = {k: A.function for k, A in blocks.items() if A.function is not None} | shifts
    has_fitted = any(not f._kernel.parameters() for f in functions.values())
    functions = {k: f._at_present() for k, f in functions.items()}
    for X in at_points.values():
        kernel._check_points(X)
    derived = [WithDerivatives if A.order else None for A in blocks.values()]
    lift = joint([*derived, *(lift_of(f._kernel) for f in functions.values())])
    if lift is not None:  # one kernel for values and derivatives, or values and integrals, together
        at_points = {
            k: with_order(X, blocks[k].order) if blocks[k].order else relifted_rows(kernel, X, lift)
            for k, X in at_points.items()
        }
        kernel, functions = relifted(kernel, lift), {k: f._lifted(lift) for k, f in functions.items()}
    points = stack(list(at_points.values()) or [f._centers[:0] for f in functions.values()] or [np.zeros((0, 1))])
    first, inverse = distinct(points)
    rows = Rows.of_points(kernel, points[first]).with_functions(list(functions.values()))
    ends = len(first) + np.cumsum([0, *(f.outputs or 1 for f in functions.values())])
    numbers = {k: np.arange(a, b) for k, (a, b) in zip(functions, pairwise(ends), strict=True)}

    in_u = [*at_points, *(k for k in numbers if k not in shifts)]
    starts = np.cumsum([0, *(len(blocks[k]) for k in in_u)])
    stretches = tuple((k, slice(int(a), int(b))) for k, (a, b) in zip(in_u, pairwise(starts), strict=True))
    take = np.concatenate([inverse, *(numbers[k] for k in in_u if k in numbers)])
    shape = (len(take),) if theta.outputs is None else (len(take), theta.outputs)
    u = cp.Variable(shape, name=name) if len(take) else None
    return PredictionLink(theta, rows, take, first, u, stretches, has_fitted), {k: numbers[k] for k in shifts}


def rewrite(problem: cp.Problem, replaced: dict[int, Any], squares: dict[int, Any] | None = None) -> cp.Problem:
    """Copy a problem with nodes replaced by id; `squares` holds replacements of a node's square.

    Partial likelihoods are written out, numbers of which cvxpy would make columns are declared as numbers, and atoms
    whose value in cvxpy is another than its cones state are given the right one. Other subtrees without a replaced node
    stay the same objects; leaves are shared, and constraints keep their ids.
    """
    done, of_perspectives = dict(replaced), 0

    def visit(node: Any) -> Any:
        if isinstance(node, list):
            return [visit(a) for a in node]
        if id(node) not in done:
            done[id(node)] = rebuild(node)
        return done[id(node)]

    def rebuild(node: Any) -> Any:
        nonlocal of_perspectives
        if squares and isinstance(node, Power) and id(node.args[0]) in squares and node.p.value == 2:
            return squares[id(node.args[0])]
        args = [visit(a) for a in node.args]
        if isinstance(node, CoxLikelihood):
            return node.written_out(args[0])
        if (other := rightly_valued(node, args)) is not None:
            return other
        if (place := OF_SYMMETRIC.get(type(node))) is not None and is_symmetric_always(args[place]):
            args[place] = symmetric_wrap(args[place])
        if isinstance(node, Atom) and not isinstance(node, AffAtom):
            args = [reshape(arg, (), order="F") if arg.shape == () and _is_column(arg) else arg for arg in args]
        unchanged = all(new is old for new, old in zip(args, node.args, strict=True))
        if isinstance(node, perspective):  # whose f has its variables, too
            of_perspectives += 1
            f, recession = visit(node.f), None if node.f_recession is None else visit(node.f_recession)
            of_perspectives -= 1
            return perspective_of(f, args[0], recession)
        if of_perspectives and not unchanged:
            return with_args(node, args)  # cvxpy's graph form of a perspective takes no power cones
        if isinstance(node, PowerApprox) and not unchanged and node.p.value not in (0, 1, 2):
            return Power(args[0], node.p.value)  # an exact power cone per number, not second-order cones
        if is_costly(node) and not unchanged:
            return Pnorm(args[0], node.original_p)  # the same
        return node if unchanged else with_args(node, args)

    objective = type(problem.objective)(visit(problem.objective.args[0]))
    return cp.Problem(objective, [visit(c) for c in problem.constraints])


def is_symmetric_always(X: cp.Expression) -> bool:
    """Whether X = Xᵀ up to rounding for any values of variables and parameters, where cvxpy's rules do not say so.

    It is tried on two random values: an X − Xᵀ that depends on them vanishes there with probability 0.
    """
    if X.is_symmetric() or X.is_complex() or X.ndim != 2 or X.shape[0] != X.shape[1]:
        return False
    rng, leaves = np.random.default_rng(0), [*X.variables(), *X.parameters()]
    for _ in range(2):
        at = {id(x): cp.Constant(nearest(x, rng.normal(size=x.shape))) for x in leaves}
        value = dense(_with_leaves(X, at).value)
        if not np.abs(value - value.T).max() <= SYMMETRIC * np.abs(value).max():
            return False
    return True


def _with_leaves(node: Any, replaced: dict[int, Any]) -> Any:
    """A copy of an expression with leaves replaced by id."""
    if isinstance(node, Leaf):
        return replaced.get(id(node), node)
    return with_args(node, [_with_leaves(arg, replaced) for arg in node.args])


def _is_column(node: Any) -> bool:
    """Whether cvxpy makes a column of one entry of a number, which cones of atoms around it refuse."""
    if isinstance(node, COLUMNS):
        return True
    return isinstance(node, AffAtom) and not isinstance(node, reshape) and any(map(_is_column, node.args))
