"""The representer rules: where θ may stand in a problem. As DCP is to convexity.

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
from cvxpy.atoms.affine.binary_operators import MulExpression
from cvxpy.atoms.affine.broadcast_to import broadcast_to
from cvxpy.atoms.atom import Atom
from cvxpy.expressions.leaf import Leaf

from kernelopt.compiler.text import describe
from kernelopt.errors import DataError, DCPError, RepresenterError
from kernelopt.expressions import Prediction, ThetaLeaf, ThetaNorm

# How a value acts on the minimized problem: raising it cannot help, cannot hurt, or either.
COSTS, HELPS, UNKNOWN = 1, -1, 0
ELEMENTWISE = (cp.constraints.Inequality, cp.constraints.Equality)


@dataclass(frozen=True)
class Violation:
    """A use of θ that the theorem does not cover: the expression, where it stands, the rule, a way out."""

    expression: str
    place: str
    rule: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.expression}\n    in {self.place}\n    rule: {self.rule}\n    instead: {self.remedy}"


@dataclass(frozen=True)
class Inspection:
    """What the walk found: θ's predictions and norms in order of appearance, and violations."""

    predictions: tuple[Prediction, ...]
    norms: tuple[ThetaNorm, ...]
    violations: tuple[Violation, ...]
    not_dcp: tuple[str, ...]


def inspect(objective: Any, constraints: tuple[Any, ...]) -> Inspection:
    """Walk the objective and the constraints once.

    Raises DataError for constants that are NaN or infinite.
    """
    walk = _Walk()
    minimized = isinstance(objective, cp.Minimize)
    walk.visit(objective.args[0], COSTS if minimized else HELPS, "the objective")
    if not objective.is_dcp():
        walk.not_dcp.append(_not_dcp(objective.args[0], "convex" if minimized else "concave", "the objective"))
    for number, constraint in enumerate(constraints, start=1):
        place = f"constraint {number}"
        for argument, direction in zip(_arguments(constraint), _directions(constraint), strict=True):
            below = walk.visit(argument, direction, place)
            if below and isinstance(constraint, ELEMENTWISE) and _repeats(argument, constraint):
                walk.violations.append(_broadcast_violation(argument, constraint, place))
        if not constraint.is_dcp():
            walk.not_dcp.append(f"{place}, {describe(constraint)}, is not convex.")
    return Inspection(
        tuple(walk.predictions), tuple(walk.norms), tuple(walk.violations), tuple(walk.not_dcp + walk.hints)
    )


def require_representable(inspection: Inspection) -> None:
    """Raise RepresenterError listing every violation."""
    if inspection.violations:
        listed = "\n".join(f"{i}. {v}" for i, v in enumerate(inspection.violations, start=1))
        raise RepresenterError(f"The representer theorem does not cover this problem:\n{listed}", inspection.violations)


def require_dcp(inspection: Inspection) -> None:
    """Raise DCPError naming the parts that are not convex."""
    if inspection.not_dcp:
        raise DCPError(
            "The problem does not follow the DCP rules:\n" + "\n".join(f"- {line}" for line in inspection.not_dcp)
        )


class _Walk:
    def __init__(self) -> None:
        self.predictions: list[Prediction] = []
        self.norms: list[ThetaNorm] = []
        self.violations: list[Violation] = []
        self.not_dcp: list[str] = []
        self.hints: list[str] = []
        self._depends: dict[tuple[int, int], bool] = {}

    def visit(self, node: Any, direction: int, place: str) -> bool:
        """Visit a node once for each direction; answers whether θ stands below it."""
        known = self._depends.get((id(node), direction))
        if known is None:
            known = self._depends[id(node), direction] = self._visit(node, direction, place)
        return known

    def _visit(self, node: Any, direction: int, place: str) -> bool:
        if isinstance(node, Prediction):
            if not any(node is p for p in self.predictions):
                self.predictions.append(node)
            return True
        if isinstance(node, ThetaNorm):
            if not any(node is n for n in self.norms):
                self.norms.append(node)
            if direction != COSTS:
                self._refuse_norm(node, direction, place)
            return True
        if isinstance(node, ThetaLeaf):
            self.violations.append(
                Violation(
                    node.name(),
                    place,
                    "θ enters through predictions and norms",
                    "the variable that stands for θ in cvxpy's trees has no use outside of theta(X) and ko.norm(theta)",
                )
            )
            return True
        if isinstance(node, Leaf):
            _check_constant(node, place)
            return False
        below = [
            self.visit(argument, direction * _monotonicity(node, i), place) for i, argument in enumerate(node.args)
        ]
        if any(below):
            self._check_node(node, below, place)
        return any(below)

    def _check_node(self, node: Any, below: list[bool], place: str) -> None:
        if isinstance(node, broadcast_to) and _repeats(node.args[0], node):
            self.violations.append(_broadcast_violation(node.args[0], node, place))
        if not isinstance(node, Atom):
            self.violations.append(
                Violation(
                    describe(node),
                    place,
                    "θ stands inside atoms only",
                    "write the expression out with cvxpy atoms of theta(X) and ko.norm(theta)",
                )
            )
        if isinstance(node, (cp.multiply, MulExpression)):
            self.hints += _negative_weights(node, below, place)

    def _refuse_norm(self, node: ThetaNorm, direction: int, place: str) -> None:
        name = node.name()
        if direction == HELPS:
            rule = "a norm of θ may only be penalized or bounded from above; here a larger norm is better"
            remedy = (
                f"penalize it, `+ lam * ko.sum_squares(theta)` with lam ≥ 0, or bound it, `{name} <= R`; to keep "
                "θ away from zero constrain predictions instead"
            )
        else:
            rule = "the objective and constraints must be nondecreasing in a norm of θ; here that is not known"
            remedy = (
                "declare its factor's sign, cp.Parameter(nonneg=True), and use atoms that cvxpy knows to be "
                f"nondecreasing; instead of `{name} == R` write `{name} <= R`"
            )
        self.violations.append(Violation(name, place, rule, remedy))


def _monotonicity(node: Any, i: int) -> int:
    """+1 nondecreasing, −1 nonincreasing, 0 unknown, by cvxpy's own rules."""
    if not isinstance(node, Atom):
        return UNKNOWN
    return 1 if node.is_incr(i) else -1 if node.is_decr(i) else UNKNOWN


def _arguments(constraint: Any) -> list[Any]:
    return [a for group in constraint.args for a in (group if isinstance(group, list) else [group])]


def _directions(constraint: Any) -> list[int]:
    """How the arguments of a constraint act on feasibility."""
    arguments = _arguments(constraint)
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


def _repeats(argument: Any, node: Any) -> bool:
    """Whether N predictions are repeated into an M×N table, as `y[:, None] - theta(X)` does."""
    return argument.ndim == 1 and argument.size > 1 and len(node.shape) == 2 and node.size > argument.size


def _broadcast_violation(argument: Any, node: Any, place: str) -> Violation:
    n = argument.size
    return Violation(
        f"{describe(argument)} of shape {argument.shape}, broadcast to {node.shape}",
        place,
        f"predictions of shape ({n},) meet an array of another shape; broadcasting would repeat them into a "
        f"{node.shape[0]}×{node.shape[1]} table",
        "flatten the other array, y.ravel(), or if you do want the table write cp.reshape(theta(X), "
        f'(1, {n}), order="C")',
    )


def _negative_weights(node: Any, below: list[bool], place: str) -> list[str]:
    """A hint for `w @ loss` with a negative weight."""
    if len(below) != 2 or sum(below) != 1:
        return []
    weights, loss = (node.args[1], node.args[0]) if below[0] else (node.args[0], node.args[1])
    if not isinstance(weights, cp.Constant) or loss.is_affine() or weights.is_nonneg():
        return []
    w = np.asarray(weights.value)
    return (
        [
            f"In {place} the weights of {describe(loss)} are negative, {w.min():g} first at "
            f"{int(np.argmax(w.ravel() < 0))}; weights of a loss must be ≥ 0."
        ]
        if (w < 0).any() and (w.max() > 0 or loss.is_convex())
        else []
    )


def _not_dcp(expression: Any, wanted: str, place: str) -> str:
    return f"{place}, {describe(expression)}, is not {wanted} by the DCP rules."
