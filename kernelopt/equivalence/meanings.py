"""What the variables of a reduced problem mean in the stated one: θ = Σⱼ αⱼ aⱼ with rows aⱼ, and values of variables.

The coefficients α are affine in the reduced variables x, α = Jx + α₀. The rows aⱼ are κ(xⱼ, ·), or rows of any feature
matrix, such as derivatives. With their Gram matrix G, the x whose θ is nearest to a given θ̂ solves the least-squares
problem

    minimize ‖G^½(Jx + α₀ − α̂)‖²,    Gα̂ = (⟨aⱼ, θ̂⟩)ⱼ,

and has the least norm, where several do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.attributes import dense
from kernelopt.errors import DataError, DataTypeError, ParameterError
from kernelopt.kernels.domains import stack
from kernelopt.language import functionals
from kernelopt.language.expressions import FeatureMatrix, Theta
from kernelopt.language.functions import Function, alike
from kernelopt.support.arithmetic import in_columns
from kernelopt.support.checks import require_kind, shown
from kernelopt.support.cvxpy_parts import jacobians
from kernelopt.support.types import Array

RANK = 1e-13  # eigenvalues of G up to this, relative to the largest, are rounding


@dataclass(frozen=True, eq=False)
class FunctionSpan:
    """θ = Σⱼ αⱼ aⱼ: the rows aⱼ as the outputs of a function, and α (M,) or (M, K) as an expression."""

    rows: Function
    coefficients: cp.Expression

    def function(self) -> Function:
        """θ at the present values of the reduced variables."""
        return self.rows.right(dense(self.coefficients.value))

    @cached_property
    def root(self) -> Array:
        """G^½ of the rows' Gram matrix, without eigenvalues that are rounding."""
        values, V = np.linalg.eigh(self.rows.gram())
        keep = values > RANK * max(float(values[-1]), 0.0)
        return np.asarray(np.sqrt(values[keep])[:, None] * V[:, keep].T)

    def size(self, coefficients: Array) -> float:
        """‖θ‖·√κ̄ of coefficients, with the mean κ̄ of ‖aⱼ‖²: at least the root of the mean square of ⟨aⱼ, θ⟩."""
        scale = np.sqrt(np.mean(np.diag(self.rows.gram()))) if len(coefficients) else 0.0
        return float(scale * np.linalg.norm(self.root @ coefficients))

    def projected(self, theta: Function) -> Array:
        """G^½α̂ of the projection of a function on the span of the rows: G^½α̂ = (G^½)⁺ᵀ (⟨aⱼ, θ̂⟩)ⱼ."""
        inner = in_columns(self.rows.gram(theta))
        return np.asarray(np.linalg.lstsq(self.root.T, inner, rcond=None)[0])


@dataclass(frozen=True, eq=False)
class Meaning:
    """For each θ its span, and for variables of the stated problem their expressions in reduced variables."""

    spans: Mapping[Theta, FunctionSpan]
    variables: Mapping[cp.Variable, cp.Expression]

    def covered(self) -> list[cp.Variable]:
        """The reduced variables that determine the functions and the variables."""
        expressions = [*(span.coefficients for span in self.spans.values()), *self.variables.values()]
        return list(dict.fromkeys(v for expression in expressions for v in expression.variables()))

    def functions(self) -> dict[Theta, Function]:
        return {theta: span.function() for theta, span in self.spans.items()}

    def values(self) -> dict[cp.Variable, Any]:
        return {variable: dense(expression.value) for variable, expression in self.variables.items()}

    def size(self, values: Mapping[cp.Variable, Any]) -> float:
        """The largest size of a θ, and entry of a variable, that values of the covered variables mean."""
        return self._size(self._at(values))

    def effect(self, step: Mapping[cp.Variable, Any]) -> float:
        """The size of what a step in some covered variables changes."""
        return self._size([b - a for a, b in zip(self._at({}), self._at(step), strict=True)])

    def _at(self, values: Mapping[cp.Variable, Any]) -> list[Array]:
        """The coefficients of each θ, and the variables, at values of covered variables; 0 for those without one."""
        for v in self.covered():
            v.save_value(values.get(v, np.zeros(v.shape)))
        expressions = [*(span.coefficients for span in self.spans.values()), *self.variables.values()]
        return [dense(expression.value) for expression in expressions]

    def _size(self, parts: Sequence[Array]) -> float:
        count = len(self.spans)
        sizes = [span.size(part) for span, part in zip(self.spans.values(), parts[:count], strict=True)]
        return max([*sizes, *(float(np.abs(part).max(initial=0.0)) for part in parts[count:])], default=0.0)

    def inverse(self, functions: Mapping[Theta, Function], values: Mapping[cp.Variable, Any]) -> dict[cp.Variable, Any]:
        """The values of the covered variables that mean the nearest functions, and these values of variables."""
        unknown = self.covered()
        for v in unknown:
            v.save_value(np.zeros(v.shape))
        blocks, targets = [], []
        for theta, span in self.spans.items():
            W = sp.kron(sp.eye_array(theta.outputs or 1), span.root)
            blocks.append(W @ _jacobian(span.coefficients, unknown))
            target = np.ravel(span.projected(functions[theta]), order="F")
            targets.append(target - W @ np.ravel(dense(span.coefficients.value), order="F"))
        for variable, expression in self.variables.items():
            if values.get(variable) is not None:
                blocks.append(_jacobian(expression, unknown))
                targets.append(np.ravel(dense(values[variable]) - dense(expression.value), order="F"))
        if not blocks or not unknown:
            return {}
        x = np.linalg.lstsq(np.vstack(blocks), np.concatenate(targets), rcond=None)[0]
        ends = np.cumsum([v.size for v in unknown])[:-1]
        parts = zip(unknown, np.split(x, ends), strict=True)
        return {v: np.reshape(part, v.shape, order="F") for v, part in parts}


def _jacobian(expression: cp.Expression, unknown: Sequence[cp.Variable]) -> Array:
    """∂(expression)/∂(unknown variables), with a column for each of their entries."""
    found = jacobians(expression)
    parts = [
        found[v.id].T.toarray() if v.id in found else np.zeros((expression.size, v.size)) for v in unknown
    ]  # fmt: skip
    return np.hstack(parts) if parts else np.zeros((expression.size, 0))


def read(
    thetas: Sequence[Theta], variables: Sequence[cp.Variable], used: Mapping[Theta, Sequence[FeatureMatrix]],
    reduced: cp.Problem, given: Any,
) -> Meaning | None:  # fmt: skip
    """The mapping of a user, checked; None without one. Variables that both problems have mean themselves.

    used : the feature matrices at which the stated problem evaluates each θ
    """
    if given is None:
        return None
    require_kind(given, Mapping, "functions", "{theta: (X, alpha)}, with an entry for each θ, or None")
    spans, pairs, own = {}, {}, reduced.variables()
    for known, value in given.items():
        if any(known is theta for theta in thetas):
            spans[known] = _span(known, used.get(known, ()), value, own)
        elif any(known is variable for variable in variables):
            expression = _affine(value, f"the expression of {known.name()}", own)
            if expression.shape != known.shape:
                raise DataError(
                    f"Expected an expression of shape {known.shape} for {known.name()}; got shape {expression.shape}."
                )
            pairs[known] = expression
        else:
            raise DataTypeError(
                "Expected θs and variables of the stated problem as keys of functions; got "
                f"{type(known).__name__}, {shown(known)}. Write {{theta: (X, alpha)}}."
            )
    if missing := [theta.name for theta in thetas if theta not in spans]:
        raise DataError(
            f"Expected an entry of functions for each θ of the stated problem; got none for {', '.join(missing)}. "
            "Write {theta: (X, alpha)}."
        )
    shared = {v: v for v in variables if v not in pairs and any(v is w for w in own)}
    return Meaning(spans, pairs | shared)


def _span(theta: Theta, used: Sequence[FeatureMatrix], value: Any, own: Sequence[cp.Variable]) -> FunctionSpan:
    """The span of (X, α), of [(X, α), (A, β), …], or of α alone."""
    if isinstance(value, cp.Expression):
        if len(used) != 1:
            raise DataError(
                f"Expected (X, alpha) for {theta.name}, which the stated problem evaluates at {len(used)} feature "
                "matrices; got alpha alone. Name the points of the centers."
            )
        pairs = [(used[0], value)]
    else:
        pairs = list(value) if isinstance(value, list) else [value]
    if not pairs or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise DataError(
            f"Expected (X, alpha), or a list of such pairs, for {theta.name}; got {shown(value)}. X are points or a "
            "ko.FeatureMatrix, and alpha is an affine cvxpy expression with a coefficient for each."
        )
    parts = [_part(theta, X, alpha, own) for X, alpha in pairs]
    rows, coefficients = parts[0]
    for other, alpha in parts[1:]:
        rows, coefficients = _beside(rows, other), _stacked(coefficients, alpha)
    return FunctionSpan(rows, coefficients)


def _part(theta: Theta, X: Any, alpha: Any, own: Sequence[cp.Variable]) -> tuple[Function, cp.Expression]:
    A = X if isinstance(X, FeatureMatrix) else FeatureMatrix(X, theta.kernel)
    if A.kernel != theta.kernel:
        raise DataError(f"Expected rows of the kernel of {theta.name}, {theta.kernel!r}; got rows of {A.kernel!r}.")
    expression = _affine(alpha, f"alpha of {theta.name}", own)
    shape = (len(A),) if theta.outputs is None else (len(A), theta.outputs)
    if expression.shape != shape:
        raise DataError(
            f"Expected alpha of {theta.name} of shape {shape}, with a coefficient for each row; got shape "
            f"{expression.shape}."
        )
    return A._as_function()._at_present(), expression


def _beside(f: Function, g: Function) -> Function:
    """The outputs of f, and then those of g."""
    f, g = alike(f, g)
    C = sp.block_diag([in_columns(f.coefficients), in_columns(g.coefficients)], format="csr")
    return functionals.merged(f._kernel, stack([f._centers, g._centers]), C)


def _stacked(alpha: cp.Expression, beta: cp.Expression) -> cp.Expression:
    return cp.hstack([alpha, beta]) if alpha.ndim == 1 else cp.vstack([alpha, beta])


def _affine(value: Any, name: str, own: Sequence[cp.Variable]) -> cp.Expression:
    """An affine expression in variables of the reduced problem. Raises DataTypeError and DataError."""
    require_kind(value, cp.Expression, name, "a cvxpy expression in variables of the reduced problem")
    if not value.is_affine() or value.is_complex():
        raise DataError(f"Expected {name} to be real and affine in the reduced variables; got {shown(value)}.")
    for v in value.variables():
        if not any(v is w for w in own):
            raise DataError(f"Expected {name} in variables of the reduced problem; got {v.name()}, which is none.")
    if own and not value.variables():
        raise DataError(f"Expected {name} in variables of the reduced problem; got a constant, {shown(value)}.")
    for p in value.parameters():
        require_known(p)
    return value


def require_known(parameter: cp.Parameter) -> None:
    """Raise ParameterError for a parameter without a finite value."""
    value = parameter.value
    if value is None or not np.isfinite(dense(value).astype(complex)).all():
        raise ParameterError(f"Expected a finite value for the parameter {parameter.name()}; got {shown(value)}.")
