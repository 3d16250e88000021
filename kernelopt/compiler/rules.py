"""The representer rules: where θ may stand in a problem. They are to the representer theorem what DCP is to convexity.

The theorem (Kimeldorf and Wahba 1971; Schölkopf, Herbrich and Smola 2001): if a problem depends on θ only through
predictions Aθ and norms ‖θ‖, and the minimized objective is nondecreasing in every norm, then some optimal θ
lies in the row space of A. One walk over the tree, from the objective and each constraint downwards, carries
the direction in which the value there acts on the problem; it finds every prediction and every norm, and
every use that the theorem does not cover.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.errors import DataError, DCPError, RepresenterError
from kernelopt.language.nodes import Prediction, ThetaLeaf, ThetaNorm
from kernelopt.language.smooth import SmoothTerm
from kernelopt.language.text import describe
from kernelopt.losses import CHECKED
from kernelopt.support.cvxpy_parts import PRODUCTS, Atom, DivExpression, Elementwise, Leaf, broadcast_to, perspective

# How a larger value acts on the minimized problem: it cannot help, it cannot hurt, or its effect is unknown.
COSTS, HELPS, UNKNOWN = 1, -1, 0
# Constraints whose two sides cvxpy broadcasts to one shape: shapes of predictions are checked there.
ELEMENTWISE = (cp.constraints.Inequality, cp.constraints.Equality)
CURVED = "neither convex nor concave"


@dataclass(frozen=True)
class Violation:
    """A use of θ that the theorem does not cover: the expression, where it stands, the rule, a way out.

    of_norm : whether the expression is a norm, in which the problem is not nondecreasing
    """

    expression: str
    place: str
    rule: str
    remedy: str
    of_norm: bool = False

    def __str__(self) -> str:
        return f"{self.expression}\n    in {self.place}\n    rule: {self.rule}\n    instead: {self.remedy}"


@dataclass(frozen=True)
class Inspection:
    """What the walk found: θ's predictions and norms and smooth losses in order of appearance, and violations.

    checked : nodes in which a Parameter stands for labels or counts
    """

    predictions: tuple[Prediction, ...]
    norms: tuple[ThetaNorm, ...]
    violations: tuple[Violation, ...]
    not_dcp: tuple[str, ...]
    smooth: tuple[SmoothTerm, ...] = ()
    checked: tuple[Any, ...] = ()


def inspect(objective: Any, constraints: tuple[Any, ...]) -> Inspection:
    """Walk the objective and the constraints once.

    Raises DataError for constants that are NaN or infinite.
    """
    walk, refused = _Walk(), []
    minimized = isinstance(objective, cp.Minimize)
    walk.visit(objective.args[0], COSTS if minimized else HELPS, "the objective")
    if not objective.is_dcp():
        walk.not_dcp.append(_not_dcp(objective.args[0], COSTS if minimized else HELPS))
        refused.append("the objective")
    for number, constraint in enumerate(constraints, start=1):
        place = f"constraint {number}"
        for argument, direction in zip(arguments_of(constraint), directions_of(constraint), strict=True):
            if walk.visit(argument, direction, place, constraint) and isinstance(constraint, ELEMENTWISE):
                walk.check_shapes(argument, constraint, place)
        if isinstance(constraint, cp.constraints.FiniteSet):
            walk.not_dcp.append(
                f"{place} is a FiniteSet, which is not convex. State it by booleans, z = cp.Variable(n, boolean=True): "
                "x == values @ z and cp.sum(z) == 1."
            )
        elif not constraint.is_dcp():
            walk.not_dcp.append(_not_convex(constraint, place))
            refused.append(place)
    # A hint explains why DCP refuses a part; where DCP accepts the part, the hint is dropped.
    hints = [hint for place, hint in dict.fromkeys(walk.hints) if place in refused]
    return Inspection(
        tuple(walk.predictions), tuple(walk.norms), tuple(walk.violations), tuple(walk.not_dcp + hints),
        tuple(walk.smooth), tuple(walk.checked),
    )  # fmt: skip


def require_representable(inspection: Inspection) -> None:
    """Raise RepresenterError listing every violation."""
    if inspection.violations:
        listed = "\n".join(f"{i}. {v}" for i, v in enumerate(inspection.violations, start=1))
        raise RepresenterError(f"The representer theorem does not cover this problem:\n{listed}", inspection.violations)


def require_dcp(inspection: Inspection, hint: str = "") -> None:
    """Raise DCPError naming the parts that are not convex; the hint is one more line."""
    if inspection.not_dcp:
        lines = [*inspection.not_dcp, *([hint] if hint else [])]
        if any(CURVED in line for line in inspection.not_dcp):
            lines.append(
                "a smooth loss of one prediction that is not convex is declared, in the objective: "
                'ko.SmoothLoss(value, gradient, hessian, curvature="nonconvex")'
            )
        raise DCPError("The problem does not follow the DCP rules:\n" + "\n".join(f"- {line}" for line in lines))


class _Walk:
    def __init__(self) -> None:
        self.predictions: list[Prediction] = []
        self.norms: list[ThetaNorm] = []
        self.smooth: list[SmoothTerm] = []
        self.checked: list[Any] = []
        self.violations: list[Violation] = []
        self.not_dcp: list[str] = []
        self.hints: list[tuple[str, str]] = []  # place and hint
        self._depends: dict[tuple[int, int, str], bool] = {}

    def visit(self, node: Any, direction: int, place: str, cause: Any = None) -> bool:
        """Visit a node once per place and direction; returns whether θ stands in it.

        `cause` is the ancestor, a node or the constraint, that made the direction unknown.
        """
        name = id(node), direction, place
        if name not in self._depends:
            self._depends[name] = self._visit(node, direction, place, cause)
        return self._depends[name]

    def refuse(self, expression: str, place: str, rule: str, remedy: str, of_norm: bool = False) -> None:
        """List a violation once."""
        found = Violation(expression, place, rule, remedy, of_norm)
        if found not in self.violations:
            self.violations.append(found)

    def _visit(self, node: Any, direction: int, place: str, cause: Any) -> bool:
        if isinstance(node, Prediction):
            _note(self.predictions, node)
            return True
        if isinstance(node, ThetaNorm):
            _note(self.norms, node)
            if direction != COSTS:
                self._refuse_norm(node, direction, place, cause)
            return True
        if isinstance(node, ThetaLeaf):
            remedy = "write theta(X) or ko.norm(theta); the variable that stands for θ in cvxpy's trees is internal"
            self.refuse(node.name(), place, "θ may enter only through predictions and norms", remedy)
            return True
        if isinstance(node, Leaf):
            _check_constant(node, place)
            return False
        if not isinstance(node, Atom):
            return self._visit_problem(node, place)
        if isinstance(node, perspective) and any(isinstance(v, ThetaLeaf) for v in node.variables()):
            rule = "a perspective s·f(x/s) is a function of variables x, and cvxpy takes it of θ itself here"
            remedy = (
                "take it of a variable, cp.perspective(f(z), s), with the constraint z == theta(X)[i] for a "
                "prediction, or ko.norm(theta) <= z for a norm"
            )
            self.refuse(describe(node), place, rule, remedy)
            return True
        if isinstance(node, SmoothTerm):
            _note(self.smooth, node)
        if hasattr(node, CHECKED):
            _note(self.checked, node)
        below = []
        for i, argument in enumerate(node.args):
            along = direction * monotonicity(node, i)
            below.append(self.visit(argument, along, place, node if direction and not along else cause))
            if below[-1] and isinstance(node, (broadcast_to, Elementwise)):
                self.check_shapes(argument, node, place)
        if isinstance(node, PRODUCTS):
            self.hints += [(place, hint) for hint in _weights_of_wrong_sign(node, below, direction, place)]
        return any(below)

    def _visit_problem(self, node: Any, place: str) -> bool:
        """An expression with a problem of its own inside, as an indicator of constraints."""
        inside = any(isinstance(v, ThetaLeaf) for v in node.variables())
        if inside:
            remedy = "write the expression out with cvxpy atoms of theta(X) and ko.norm(theta)"
            self.refuse(f"{type(node).__name__}(…)", place, "θ may occur inside cvxpy atoms only", remedy)
        else:
            held = f"{place} holds a problem of its own ({type(node).__name__})"
            self.not_dcp.append(f"{held}: write its objective and its constraints into this one.")
        return inside

    def check_shapes(self, argument: Any, node: Any, place: str) -> None:
        """Refuse predictions that are repeated into a table, as `y[:, None] - theta(X)` does."""
        dimensions = {a.ndim for a in node.args} if len(node.args) > 1 else {argument.ndim, 0}
        if argument.size > 1 and int(np.prod(node.shape)) > argument.size and len(dimensions) > 1:
            self.refuse(
                f"{describe(argument)} of shape {argument.shape}, broadcast to {node.shape}",
                place,
                f"predictions of shape {argument.shape} meet an array of another shape; broadcasting would repeat "
                "them into a table",
                "bring both to one shape, with y.ravel() or theta(X)[:, 0]; if a table is meant write "
                "theta(X)[:, None] @ np.ones((1, K))",
            )

    def _refuse_norm(self, node: ThetaNorm, direction: int, place: str, cause: Any) -> None:
        name = node.name()
        if direction == HELPS:
            rule = "a norm of θ may only be penalized or bounded from above; here a larger norm is better"
            remedy = (
                f"penalize it, `+ lam * ko.sum_squares(theta)` with lam ≥ 0, or bound it, `{name} <= R`; to keep "
                "θ away from zero constrain predictions instead"
            )
        else:
            rule = "the objective and constraints must be nondecreasing in a norm of θ; here that is not known"
            unsigned = [p.name() for a in getattr(cause, "args", []) if isinstance(a, Leaf) for p in a.parameters()]
            if isinstance(cause, (cp.constraints.Equality, cp.constraints.Zero)):
                remedy = f"write `{name} <= R`; at the optimum of a problem that wants it large it is an equality"
            elif unsigned:
                remedy = f"declare the sign of {unsigned[0]}: cp.Parameter(nonneg=True)"
            else:
                remedy = f"`{describe(cause)}` is not known to be nondecreasing in `{name}`; use an atom that is"
        self.refuse(name, place, rule, remedy, of_norm=True)


def _note(known: list[Any], node: Any) -> None:
    """Append a node once."""
    if not any(node is other for other in known):
        known.append(node)


def monotonicity(node: Any, i: int) -> int:
    """+1 nondecreasing, −1 nonincreasing, 0 unknown, by cvxpy's own rules."""
    return 1 if node.is_incr(i) else -1 if node.is_decr(i) else UNKNOWN


def arguments_of(constraint: Any) -> list[Any]:
    return [a for group in constraint.args for a in (group if isinstance(group, list) else [group])]


def directions_of(constraint: Any) -> list[int]:
    """How the arguments of a constraint act on feasibility."""
    arguments = arguments_of(constraint)
    known = {
        cp.constraints.Inequality: [COSTS, HELPS],
        cp.constraints.NonPos: [COSTS],
        cp.constraints.NonNeg: [HELPS],
        cp.SOC: [HELPS, UNKNOWN],
    }
    return known.get(type(constraint), [UNKNOWN] * len(arguments))


def _check_constant(leaf: Any, place: str) -> None:
    if not isinstance(leaf, cp.Constant):
        return
    data = leaf.value.data if sp.issparse(leaf.value) else np.asarray(leaf.value)
    if not np.isfinite(data).all():
        first = np.argwhere(~np.isfinite(data))[0]
        raise DataError(
            f"Expected finite numbers in {place}; the constant {describe(leaf)} of shape {leaf.shape} is NaN or "
            f"infinite, first at {', '.join(map(str, first)) or 'its only entry'}. Remove or impute them first."
        )


def _weights_of_wrong_sign(node: Any, below: list[bool], direction: int, place: str) -> list[str]:
    """A hint for `w @ loss` where convexity needs the other sign of w."""
    if len(below) != 2 or sum(below) != 1:
        return []
    weights, loss = (node.args[1], node.args[0]) if below[0] else (node.args[0], node.args[1])
    if not isinstance(weights, cp.Constant) or loss.is_convex() == loss.is_concave():
        return []
    sign = (direction or COSTS) * (1.0 if loss.is_convex() else -1.0)
    w = weights.value.data if sp.issparse(weights.value) else np.ravel(weights.value)
    if not (sign * w < 0).any():
        return []
    first = int(np.argmax(sign * w < 0))
    got, wanted = ("negative", "≥ 0") if sign > 0 else ("positive", "≤ 0")
    return [
        f"In {place} the weights of {describe(loss)} are {got}, {w[first]:g} first at {first}; they must be {wanted}."
    ]


def _not_dcp(expression: Any, direction: int) -> str:
    """What keeps an objective from being convex (COSTS) or concave (HELPS)."""
    wanted = "convex" if direction == COSTS else "concave"
    told = _told(_blamed(expression, direction), expression)
    return f"the objective, {describe(expression)}, is not {wanted} by the DCP rules{told}."


def _not_convex(constraint: Any, place: str) -> str:
    """What keeps a constraint from being convex."""
    pairs = zip(arguments_of(constraint), directions_of(constraint), strict=True)
    blamed = [node for argument, direction in pairs for node in _blamed(argument, direction)]
    return f"{place}, {describe(constraint)}, is not convex{_told(blamed, constraint)}."


def _told(blamed: list[Any], whole: Any) -> str:
    """The blamed terms with their curvature, each once."""
    lines = dict.fromkeys(f"{describe(node)} is {_curvature(node)}" for node in blamed if node is not whole)
    return f": {'; '.join(lines)}" if lines else ""


def _curvature(node: Any) -> str:
    if node.is_convex() or node.is_concave():
        return "convex" if node.is_convex() else "concave"
    is_product = isinstance(node, (*PRODUCTS, DivExpression))
    if is_product and not any(arg.is_constant() for arg in node.args):
        if isinstance(node, DivExpression):
            return "a ratio"
        left, right = node.args
        square = "cp.square(f)" if isinstance(node, cp.multiply) else "cp.sum_squares(f)"
        remedy = f", here f with itself: write {square}" if left is right else ""
        return f"a product of expressions with variables{remedy}"
    return CURVED


def _blamed(node: Any, direction: int) -> list[Any]:
    """The smallest parts that keep a node from being convex (COSTS), concave (HELPS) or affine (UNKNOWN).

    An atom that is convex and nondecreasing in an argument needs a convex argument there, and so on.
    """
    if _fits(node, direction):
        return []
    if isinstance(node, Leaf) or not isinstance(node, Atom):
        return [node]
    if not (node.is_atom_convex() if direction == COSTS else node.is_atom_concave()) and direction != UNKNOWN:
        return [node]
    if direction == UNKNOWN and not (node.is_atom_convex() and node.is_atom_concave()):
        return [node]
    found = []
    for i, argument in enumerate(node.args):
        along = direction * monotonicity(node, i)
        below = _blamed(argument, along)
        # An argument that is turned round is named with the node that turns it: −x, not x.
        found += [node] if direction and along == -direction and below and below[0] is argument else below
    return found or [node]


def _fits(node: Any, direction: int) -> bool:
    if direction == UNKNOWN:
        return bool(node.is_affine())
    return bool(node.is_convex() if direction == COSTS else node.is_concave())
