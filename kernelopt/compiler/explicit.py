"""From an ordinary cvxpy problem in an explicit θ ∈ Rᵖ to the kernel problem.

Φ @ theta becomes Aθ, norms of theta become norms of θ. All other uses of theta are refused, in one list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np

from kernelopt.compiler.rules import Inspection, Violation, require_representable
from kernelopt.errors import DataError, RepresenterError
from kernelopt.kernels.domains import real_array
from kernelopt.language.expressions import FeatureMatrix, Theta, ThetaExpression, norm, sum_squares
from kernelopt.language.functions import BLOCK_BYTES, Function
from kernelopt.language.text import describe
from kernelopt.support.checks import require_kind, shown
from kernelopt.support.cvxpy_parts import (
    Atom,
    DivExpression,
    Leaf,
    MulExpression,
    NegExpression,
    Pnorm,
    Power,
    Promote,
    QuadForm,
    multiply,
    normNuc,
    quad_over_lin,
    reshape,
    sigma_max,
    special_index,
    with_args,
)
from kernelopt.support.cvxpy_parts import index as slice_index
from kernelopt.support.types import Array

# Largest |κ(xᵢ, xⱼ) − (ΦΦᵀ)ᵢⱼ| of a matching kernel, relative to ‖Φᵢ‖·‖Φⱼ‖. Rounding of κ and of Φ is smaller, the
# difference of another kernel much larger.
AGREEMENT = 1e-8
COVERED = "θ may enter only as Φ @ theta, with the rows of a given feature matrix Φ, and in Euclidean norms"


Features = Mapping[Any, FeatureMatrix] | Sequence[tuple[Any, FeatureMatrix]]


@dataclass(frozen=True, eq=False)
class ExplicitSource:
    """The explicit problem behind a kernel problem, for the way back of answers."""

    problem: cp.Problem
    variable: cp.Variable
    theta: Theta
    features: tuple[tuple[Array, FeatureMatrix], ...]

    def detached(self) -> ExplicitSource:
        """A copy without the data that cvxpy and its solvers keep from an earlier solve."""
        return replace(self, problem=cp.Problem(self.problem.objective, self.problem.constraints))

    def theta_value(self, f: Function) -> Array:
        """θ = Σₛ cₛF(xₛ) ∈ Rᵖ, with the rows of Φ that belong to the centers."""
        if len(f.centers) == 0:
            return np.zeros(self.variable.shape)
        row_of = {}
        for Phi, A in self.features:
            row_of.update({x.tobytes(): Phi[i] for i, x in enumerate(A._X)})
        theta: Array = np.array([row_of[x.tobytes()] for x in f.centers]).T @ f.coefficients
        return theta


def kernelize(problem: cp.Problem, variable: cp.Variable, features: Features) -> tuple[cp.Problem, ExplicitSource]:
    """The same problem in kernelopt's nodes. Raises RepresenterError, DataError."""
    pairs = _checked_features(variable, features)
    outputs = None if variable.ndim == 1 else variable.shape[1]
    theta = Theta(pairs[0][1].kernel, outputs=outputs, name=variable.name())
    if not any(variable is known for known in problem.variables()):
        raise DataError(f"Expected theta to be a variable of the problem; got {variable.name()}, which is not in it.")
    walk = _Translation(variable, theta, pairs)
    declared = [name for name, value in variable.attributes.items() if value is not None and value is not False]
    if declared:
        walk.violations.append(
            Violation(
                f"{variable.name()}, declared {', '.join(declared)}",
                "its declaration",
                COVERED,
                f"declare cp.Variable({variable.shape}) and constrain predictions instead",
            )
        )
    walk.place = "the objective"
    objective = type(problem.objective)(walk.expression(problem.objective.args[0]))
    constraints = []
    for number, constraint in enumerate(problem.constraints, start=1):
        walk.place = f"constraint {number}"
        constraints.append(walk.constraint(constraint))
    require_representable(Inspection((), (), tuple(walk.violations), ()))
    return cp.Problem(objective, constraints), ExplicitSource(problem, variable, theta, pairs)


def _checked_features(variable: cp.Variable, features: Features) -> tuple[tuple[Array, FeatureMatrix], ...]:
    """Pairs (Φ, A) with ΦΦᵀ = AAᵀ, one kernel, and as many columns as θ has entries."""
    if not isinstance(variable, cp.Variable) or variable.ndim not in (1, 2):
        raise RepresenterError(
            f"Expected theta to be a cp.Variable of shape (p,) or (p, K); got {type(variable).__name__}."
        )
    require_kind(features, (Mapping, list, tuple), "features", "{Phi: A}, the feature matrices of the problem and ours")
    if not len(features):
        raise DataError("Expected features={Phi: A} with at least one feature matrix; got none.")
    pairs = []
    for pair in features.items() if isinstance(features, Mapping) else features:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise DataError(f"Expected features={{Phi: A}}, or pairs (Phi, A); got {shown(pair)}.")
        Phi, A = pair
        if not isinstance(A, FeatureMatrix):
            swapped = ", with the Φ of the problem first" if isinstance(Phi, FeatureMatrix) else ""
            raise DataError(f"Expected features={{Phi: A}} with A a ko.FeatureMatrix{swapped}; got {type(A).__name__}.")
        values = real_array(Phi.value if isinstance(Phi, cp.Expression) else Phi, "a feature matrix Φ")
        if values.ndim != 2 or values.shape != (len(A), variable.shape[0]):
            raise DataError(
                f"Expected Φ of shape ({len(A)}, {variable.shape[0]}), a row for each row of A and a column for each "
                f"entry of theta; got shape {values.shape}."
            )
        # Rows of Φ are found by their bytes later; adding 0.0 makes −0.0 equal to 0.0.
        pairs.append((np.ascontiguousarray(values + 0.0), A))
    kernel = pairs[0][1].kernel
    for _, A in pairs[1:]:
        if A.kernel != kernel:
            raise RepresenterError(f"Expected feature matrices of one kernel; got {kernel!r} and {A.kernel!r}.")
    Phi, X = np.concatenate([p for p, _ in pairs]), np.concatenate([A._X for _, A in pairs])
    length = np.sqrt(np.einsum("ij,ij->i", Phi, Phi))
    step = max(1, BLOCK_BYTES // (8 * len(Phi)))
    for i in range(0, len(Phi), step):
        error = np.abs(kernel._matrix(X[i : i + step], X) - Phi[i : i + step] @ Phi.T)
        if (error > AGREEMENT * np.outer(length[i : i + step], length)).any():
            row, column = np.unravel_index(np.argmax(error), error.shape)
            raise DataError(
                f"Expected κ(xᵢ, xⱼ) = (ΦΦᵀ)ᵢⱼ; for {kernel!r} they differ by {error.max():.3g} at rows {i + row} "
                f"and {column}. Pass the kernel of this feature map, or ko.kernels.Linear() on Φ itself."
            )
    return tuple(pairs)


class _Scaled(NamedTuple):
    """A view of θ times a number."""

    view: ThetaExpression
    factor: float


class _Translation:
    """One walk over the explicit tree, which translates it to kernelopt's nodes and lists uses that are not covered."""

    def __init__(self, variable: cp.Variable, theta: Theta, features: tuple[tuple[Array, FeatureMatrix], ...]) -> None:
        self.variable = variable
        self.theta = theta
        self.rows = [(A, {row.tobytes(): i for i, row in enumerate(Phi)}) for Phi, A in features]
        self.violations: list[Violation] = []
        self.place = ""
        self._done: dict[int, Any] = {}

    def constraint(self, node: Any) -> Any:
        if isinstance(node, cp.SOC):
            found = self._scaled(node.args[1])
            if found is not None and found.view.outputs is None and node.args[0].size == 1:
                return _times(abs(found.factor), norm(found.view)) <= cp.reshape(
                    self.expression(node.args[0]), (), order="F"
                )
        return self._rebuilt(node)

    def expression(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self.expression(a) for a in node]
        if id(node) not in self._done:
            self._done[id(node)] = self._translated(node)
        return self._done[id(node)]

    def _translated(self, node: Any) -> Any:
        if self._scaled(node) is not None:
            return self._refuse(node, node)
        if isinstance(node, Leaf):
            return node
        if not isinstance(node, Atom):  # an expression with a problem of its own inside
            inside = any(v is self.variable for v in node.variables())
            return self._refuse(node, self.variable) if inside else node
        for match in (self._prediction, self._norm):
            found = match(node)
            if found is not None:
                return found
        used = next((a for a in getattr(node, "args", []) if self._scaled(a) is not None), None)
        return self._rebuilt(node) if used is None else self._refuse(node, used)

    def _rebuilt(self, node: Any) -> Any:
        args = [self.expression(a) for a in node.args]
        same = all(new is old for new, old in zip(args, node.args, strict=True))
        return node if same else with_args(node, args)

    def _view(self, node: Any) -> ThetaExpression | None:
        """The view that the node is: θ, θ[:, k] or θM; None for any other node."""
        if node is self.variable:
            return self.theta
        if self.theta.outputs is None:
            return None
        if isinstance(node, (slice_index, special_index)) and node.args[0] is self.variable:
            p, K = self.variable.shape
            entries = np.asarray(node.numeric([np.arange(p * K).reshape(p, K)]))
            if entries.ndim == 0 or len(entries) != p or (entries[0] >= K).any():
                return None
            whole_columns = np.array_equal(entries, np.add.outer(np.arange(p) * K, entries[0]))
            return self.theta[:, entries[0]] if whole_columns else None
        if _is_product(node) and node.args[0] is self.variable and _is_number(node.args[1]) and node.args[1].ndim:
            return self.theta @ node.args[1].value
        return None

    def _prediction(self, node: Any) -> Any:
        """Φ @ θ, rows of Φ times θ, and θ @ Φᵀ for a vector θ."""
        if not _is_product(node):
            return None
        left, right = node.args
        if _is_number(left):
            M, found = left.value, self._scaled(right)
        elif _is_number(right) and self.theta.outputs is None:
            M, found = right.value.T, self._scaled(left)
        else:
            return None
        if found is None:
            return None
        M = np.asarray(M.toarray() if hasattr(M, "toarray") else M, dtype=np.float64)
        parts = self._rows_of(np.atleast_2d(M) + 0.0)
        if not parts:
            return None
        predictions = [A @ found.view for A in parts]
        stacked = cp.hstack if predictions[0].ndim == 1 else cp.vstack
        prediction = _times(found.factor, predictions[0] if len(parts) == 1 else stacked(predictions))
        return prediction[0] if M.ndim == 1 else prediction

    def _rows_of(self, M: Array) -> list[FeatureMatrix]:
        """Parts A[rows], one below the other, with the rows of M; none unless all of them are rows of some Φ."""
        rows, parts, start = [row.tobytes() for row in np.ascontiguousarray(M)], list[FeatureMatrix](), 0
        while start < len(rows):
            A, found = max(
                ((A, _leading(number, rows[start:])) for A, number in self.rows), key=lambda one: len(one[1])
            )
            if not found:
                return []
            parts.append(A if found == list(range(len(A))) else A[np.array(found)])
            start += len(found)
        return parts

    def _scaled(self, node: Any) -> _Scaled | None:
        """The view times a number that the node is; None for any other node."""
        view = self._view(node)
        if view is not None:
            return _Scaled(view, 1.0)
        if isinstance(node, NegExpression):
            found = self._scaled(node.args[0])
            return None if found is None else _Scaled(found.view, -found.factor)
        if not isinstance(node, (multiply, MulExpression, DivExpression)):
            return None
        left, right = node.args
        if isinstance(node, DivExpression):
            c, found = _single_number(right), self._scaled(left)
            return None if not c or found is None else _Scaled(found.view, found.factor / c)
        for number, other in ((left, right), (right, left)):
            c, found = _single_number(number), self._scaled(other)
            if c is not None and found is not None:
                return _Scaled(found.view, found.factor * c)
        return None

    def _norm(self, node: Any) -> Any:
        """The Euclidean, Frobenius, nuclear and spectral norms, and the sum of squares."""
        argument = node.args[0] if getattr(node, "args", None) else None
        if isinstance(node, cp.Sum) and isinstance(argument, Power) and argument.p.value == 2 and node.axis is None:
            found = self._scaled(argument.args[0])
            return None if found is None else _times(found.factor**2, sum_squares(found.view))
        if isinstance(node, Pnorm) and float(node.p) == 2 and node.axis is None:
            # cvxpy writes the Frobenius norm as that of the flattened matrix.
            found = self._scaled(argument.args[0] if isinstance(argument, reshape) else argument)
            if found is None:
                return None
            return _times(abs(found.factor), norm(found.view, None if found.view.outputs is None else "fro"))
        found = self._scaled(argument)
        if found is None:
            return None
        view, c = found
        if isinstance(node, QuadForm):
            length = _multiple_of_identity(node.args[1])
            return None if length is None else length * c**2 * sum_squares(view)
        if isinstance(node, quad_over_lin) and node.axis is None:
            divisor = node.args[1]
            is_known = _is_number(divisor) and float(divisor.value.item()) > 0
            return _times(c**2 / float(divisor.value.item()), sum_squares(view)) if is_known else None
        if isinstance(node, normNuc):
            return _times(abs(c), norm(view, "nuc"))
        return _times(abs(c), norm(view, 2)) if isinstance(node, sigma_max) else None

    def _refuse(self, node: Any, used: Any) -> Any:
        name = describe(node) if isinstance(node, (Atom, Leaf)) else f"{type(node).__name__}(…)"
        self.violations.append(Violation(name, self.place, COVERED, _remedy(node, used)))
        return cp.Constant(np.zeros(node.shape))


def _is_number(node: Any) -> bool:
    return bool(node.is_constant()) and not node.parameters()


def _is_product(node: Any) -> bool:
    """Whether the node is a matrix product: cvxpy's elementwise products are of its class, too."""
    return isinstance(node, MulExpression) and not isinstance(node, multiply)


def _single_number(node: Any) -> float | None:
    """The finite number that all entries of a constant are, as where cvxpy promotes it."""
    if not _is_number(node) or not node.is_real():
        return None
    if isinstance(node, Promote):
        node = node.args[0]
    return float(node.value) if node.ndim == 0 and np.isfinite(node.value) else None


def _times(factor: float, node: Any) -> Any:
    return node if factor == 1 else factor * node


def _multiple_of_identity(P: Any) -> float | None:
    """The c > 0 with P = cI."""
    if not _is_number(P):
        return None
    values = np.asarray(P.value.toarray() if hasattr(P.value, "toarray") else P.value)
    c = float(np.real(values.flat[0]))
    return c if c > 0 and np.array_equal(values, c * np.eye(len(values))) else None


def _leading(number: Mapping[bytes, int], rows: list[bytes]) -> list[int]:
    """The numbers of the first rows, up to one without a number."""
    found = list[int]()
    for row in rows:
        if row not in number:
            break
        found.append(number[row])
    return found


def _remedy(node: Any, used: Any) -> str:
    if isinstance(node, (slice_index, special_index)):
        return (
            "an entry of θ that is treated on its own, such as an intercept, becomes a cp.Variable of its own, and "
            "its column leaves Φ"
        )
    if _is_product(node) and _is_number(node.args[0]) and node.args[0].ndim == 2:
        return (
            "give that matrix in features={Phi: A} if its rows are feature vectors; if it is a product M @ Phi, write "
            "M @ (Phi @ theta)"
        )
    return f"write it with predictions Phi @ {describe(used)} or the Euclidean norm cp.norm({describe(used)})"
