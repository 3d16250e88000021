"""An expression of predictions as a function of new points, without the problem that it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.errors import DataError, KernelOptError
from kernelopt.language.functions import Function
from kernelopt.language.nodes import Prediction
from kernelopt.support.cvxpy_parts import AddExpression, MulExpression
from kernelopt.support.types import Array


@dataclass(frozen=True, eq=False)
class _Points:
    """The matrix X itself, or a fitted function at its rows."""

    function: Function | None

    def at(self, X: Any) -> Array:
        return np.asarray(X) if self.function is None else self.function(X)


@dataclass(frozen=True, eq=False)
class _Value:
    """A value that does not depend on the points."""

    value: Array

    def at(self, X: Any) -> Array:
        return self.value


@dataclass(frozen=True, eq=False)
class _Atom:
    """A cvxpy atom applied to other nodes."""

    kind: type
    data: tuple[Any, ...]
    args: tuple[Any, ...]

    def at(self, X: Any) -> Array:
        values = [arg.at(X) for arg in self.args]
        if self.kind is AddExpression:
            # cvxpy requires terms of equal shape; here a single row stands for equal rows, and numpy broadcasts it.
            return np.asarray(sum(values))
        return np.asarray(self.kind(*(cp.Constant(v) for v in values), *self.data).value)


class Predictor:
    """The values of an expression of predictions, with other points in place of the rows of X.

    `predictor(X_new)` is the value of the expression with `theta(X_new)` in place of `theta(X)`, and X_new in place of
    X where X itself is used, as in `X @ beta`. θ, variables and parameters keep the values that they had when the
    predictor was made. It holds functions and numbers only: it can be pickled, and a later solve does not change it.

    Parameters
    ----------
    expression : cvxpy expression
        Row-wise: entry (or row) i depends on the i-th row of X alone.
    X : the points of `theta(X)` in the expression

    Raises
    ------
    KernelOptError
        Before a solve.
    DataError
        Where the expression is not row-wise, or contains no prediction at X.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X, y = np.arange(6.0)[:, None], np.array([1.0, 3.0, 5.0, 7.0, 9.0, 11.0])
    >>> theta, b = ko.Theta(ko.kernels.Linear()), cp.Variable()
    >>> f = theta(X) + b
    >>> _ = ko.Problem(cp.Minimize(cp.sum_squares(y - f) + 1e-8 * ko.sum_squares(theta))).solve()
    >>> ko.Predictor(f, X)([[10.0]]).round(3)
    array([21.])
    """

    def __init__(self, expression: Any, X: Any) -> None:
        if not isinstance(expression, cp.Expression) or expression.ndim < 1 or expression.shape[0] != len(X):
            raise DataError(
                f"Expected an expression with an entry for each of the {len(X)} rows of X; got "
                f"{getattr(expression, 'shape', type(expression).__name__)}."
            )
        if expression.value is None:
            raise KernelOptError("Expected an expression with a value; solve the problem first.")
        self._node = _frozen(expression, X)
        self._check(np.asarray(expression.value), X)

    @classmethod
    def _of_node(cls, node: Any) -> Predictor:
        """The predictor of a tree, without checks."""
        self = cls.__new__(cls)
        self._node = node
        return self

    def __call__(self, X: Any) -> Array:
        """The values at new points, an entry (or row) for each."""
        return self._node.at(X)

    def _check(self, expected: Array, X: Any) -> None:
        """Raise DataError unless every second row, in reverse order, gets the value that it has in the expression."""
        # This shows whether the number or the order of rows matters, as in f - cp.sum(f) or cp.cumsum(f).
        some = slice(None, None, -2)
        if isinstance(self._node, _Value):
            raise DataError("Expected predictions at the rows of X in the expression; found none. Write theta(X).")
        try:
            got = self(X[some])
        except ValueError as error:
            raise DataError(f"{_ROW_WISE} {error}") from error
        # Blocks of other rows round differently, by much less than 1e-8; the value of another row differs by more.
        size = np.abs(expected).max()
        if got.shape != expected[some].shape or np.abs(got - expected[some]).max() > 1e-8 * (size + 1):
            raise DataError(_ROW_WISE)


_ROW_WISE = (
    "Expected an expression whose i-th entry depends on the i-th row of X alone, such as theta(X) + b; this one "
    "has no defined value at other points. Give it as a function of X, lambda X: theta(X) + …"
)


def _frozen(expression: Any, X: Any) -> Any:
    """The tree of an expression, with numbers in place of its leaves."""
    if isinstance(expression, Prediction) and _is_at(expression, X):
        return _Points(expression.data.theta.value)
    if isinstance(expression, cp.Constant) and _is_matrix(expression, X):
        return _Points(None)
    args = [_frozen(arg, X) for arg in expression.args]
    if all(isinstance(arg, _Value) for arg in args):
        return _Value(np.asarray(expression.value))
    # n equal rows become one row, which fits any number of new points. The right factor M of F @ M keeps its rows, as
    # they belong to the columns of F.
    for i, arg in enumerate(args):
        if isinstance(arg, _Value) and not (type(expression) is MulExpression and i == 1):
            args[i] = _Value(_one_row(arg.value, len(X)))
    return _Atom(type(expression), tuple(expression.get_data() or ()), tuple(args))


def _is_at(prediction: Prediction, X: Any) -> bool:
    A = prediction.data.A
    if A.function is not None or A.order or len(A) != len(X):
        return False
    return bool(np.array_equal(A.X, A.kernel.rows(X)))


def _is_matrix(constant: cp.Constant, X: Any) -> bool:
    return np.ndim(X) == 2 and constant.shape == np.shape(X) and np.array_equal(constant.value, np.asarray(X))


def _one_row(value: Array, n: int) -> Array:
    """The common row of a value with n equal rows, as after broadcasting; any other value as it is."""
    repeated = value.ndim > 0 and len(value) == n and (value == value[:1]).all()
    if not repeated:
        return value
    return value[0] if value.ndim == 1 else value[:1]
