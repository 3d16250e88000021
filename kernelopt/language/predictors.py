"""An expression of predictions as a function of new points, without the problem that it came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pickle import PicklingError
from typing import Any, NoReturn

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.errors import DataError, DataTypeError, KernelOptError
from kernelopt.kernels.domains import SPARSE
from kernelopt.kernels.records import are_records
from kernelopt.language.functions import Function
from kernelopt.language.nodes import Prediction, ThetaLeaf
from kernelopt.support.cvxpy_parts import AddExpression, Leaf, MulExpression
from kernelopt.support.types import Array

Points = tuple[Any, ...]  # new points, and arrays of other data with as many rows
# Rows at which a function is compared with the tree of its expression, and how far they are moved, in units of columns.
MOVED, DISTANCES = 8, (0.3, 1.0, 3.0, 10.0, 1e3, 1e9)
# Rows of whole numbers, how far these are from those of the points, and how large the points may be.
STEPS, STEPPED, LARGEST_WHOLE = 120, 8, 1e6
# Numbers that often stand for something, negative and others, and how many columns they are tried in.
CODES = ((-9999.0, -999.0, -99.0, -9.0, -1.0), (*map(float, range(32)), 99.0, 999.0, 9999.0))
MOST_COLUMNS = 20


@dataclass(frozen=True, eq=False)
class _Points:
    """An array of points or some of its columns, or a fitted function at these.

    number : which of the arrays; columns : of it, None for all; guessed : whether another array has the same rows
    """

    function: Function | None
    number: int = 0
    columns: tuple[int, ...] | None = None
    guessed: bool = False

    def at(self, points: Points) -> Array:
        X = points[self.number]
        if self.columns is not None:
            X = np.asarray(X)[:, self.columns]
        return np.asarray(X) if self.function is None else self.function(X)


@dataclass(frozen=True, eq=False)
class _Value:
    """A value that does not depend on the points."""

    value: Array

    def at(self, points: Points) -> Array:
        return self.value


@dataclass(frozen=True, eq=False)
class _Atom:
    """A cvxpy atom applied to other nodes."""

    kind: type
    data: tuple[Any, ...]
    args: tuple[Any, ...]
    guessed: bool = False  # whether a row stands for equal rows
    has_data: bool = False  # whether these are given as an array, not as one row that cvxpy repeats

    def at(self, points: Points) -> Array:
        values = [arg.at(points) for arg in self.args]
        if self.kind is AddExpression:
            # cvxpy requires terms of equal shape; here a single row stands for equal rows, and numpy broadcasts it.
            return np.asarray(sum(values))
        return np.asarray(self.kind(*(cp.Constant(v) for v in values), *self.data).value)


class Predictor:
    """The values of an expression of predictions, with other points in place of the rows of X.

    `predictor(X_new)` is the value of the expression with X_new in place of X. It replaces X in `theta(X)` and in
    `X @ beta`, and columns of X, as in `theta(X[:, :2]) + X[:, 2:] @ beta`. Arrays of other data with one row per point
    follow X: `Predictor(theta(X) + Z @ beta, X, Z)` is called as `predictor(X_new, Z_new)`. The predictor stores the
    values of θ, variables and parameters, so that it can be pickled, and later solves do not change it.

    Parameters
    ----------
    f : cvxpy expression, or function of (X, *others) that returns one
        Row-wise: entry (or row) i depends on the i-th rows of X and the others alone. Data that are computed from the
        points, such as `np.sin(X)`, are recognized in a function only: it is then called at new points, and the
        predictor can not be pickled.
    X : the points of `theta(X)` in the expression
    *others : arrays with as many rows as X

    A function is compared with the expression at points that are moved, near and far, since computed data may be equal
    to the points at the rows of X alone. One with an array of equal rows, such as `b * np.ones(len(X))`, is always
    called, since the rows may differ elsewhere: write `theta(X) + b`. An indicator of values that are neither in X nor
    met by the comparison (missing values, whole numbers near those in X, numbers from 0 to 31, ±9…9) is not told from
    0: give it as another array.

    Raises
    ------
    KernelOptError
        Before a solve.
    DataError
        Where the expression is not row-wise, or contains no prediction at X; for arrays of other lengths.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X, y = np.arange(6.0)[:, None], np.array([1.0, 3.0, 5.0, 7.0, 9.0, 11.0])
    >>> theta, b = ko.Theta(ko.kernels.Linear()), cp.Variable()
    >>> f = theta(X) + b
    >>> objective = cp.sum_squares(y - f) + 1e-8 * ko.sum_squares(theta)
    >>> _ = ko.Problem(cp.Minimize(objective)).solve()
    >>> ko.Predictor(f, X)([[10.0]]).round(3)
    array([21.])
    """

    def __init__(self, f: Any, X: Any, *others: Any) -> None:
        points = tuple(map(_rows_of_sparse, (X, *others)))
        X = points[0]
        for part in points:
            if not hasattr(part, "__getitem__") or not hasattr(part, "__len__") or getattr(part, "ndim", 1) == 0:
                raise DataTypeError(f"Expected arrays with a row for each point; got {type(part).__name__}.")
        _require_as_many(points, len(X))
        is_function = callable(f) and not isinstance(f, cp.Expression)
        expression = f(*points) if is_function else f
        if not isinstance(expression, cp.Expression) or expression.ndim < 1 or expression.shape[0] != len(X):
            got = getattr(expression, "shape", type(expression).__name__)
            raise DataError(
                f"Expected an expression with an entry for each of the {len(X)} rows of X, or a function of "
                f"{'X' if not others else 'X and the other arrays'} that returns one; got {got}."
            )
        if expression.value is None:
            raise KernelOptError("Expected an expression with a value; solve the problem first.")
        self._count, value = len(points), np.asarray(expression.value)
        called = _Called(f, _values(expression)) if is_function else None
        try:
            self._node = _frozen(expression, points, is_function)
            self._check(value, points)
            if called is not None and (_has_equal_rows(self._node) or not _agree(self._node, called, points)):
                self._node = called
        except DataError:
            if called is None:
                raise
            self._node = called
            self._check(value, points)

    @classmethod
    def _of_node(cls, node: Any) -> Predictor:
        """The predictor of a tree, without checks."""
        self = cls.__new__(cls)
        self._node, self._count = node, 1 + max(_numbers(node), default=0)
        return self

    def __call__(self, X: Any, *others: Any) -> Array:
        """The values at new points, an entry (or row) for each; `others` are the other arrays in their order."""
        points = tuple(map(_rows_of_sparse, (X, *others)))
        if len(points) != self._count:
            raise DataError(
                f"Expected {self._count} arrays, those that the predictor was made with; got {len(points)}."
            )
        if others:
            _require_as_many(points, len(points[0]))
        return np.asarray(self._node.at(points))

    def _check(self, expected: Array, points: Points) -> None:
        """Raise DataError unless every second row, in reverse order, and single ones get their values in the
        expression."""
        if isinstance(self._node, _Value):
            raise DataError("Expected predictions at the rows of X in the expression; found none. Write theta(X).")
        n, size = len(points[0]), np.abs(expected).max()
        # This shows whether the number or the order of rows matters, as in f - cp.sum(f) or cp.cumsum(f).
        for some in (slice(None, None, -2), *(slice(i, i + 1) for i in sorted({0, n // 2, n - 1}))):
            try:
                got = self(*(part[some] for part in points))
            except (ValueError, IndexError) as error:  # numbers of rows that fewer points do not have
                raise DataError(f"{_ROW_WISE} {error}") from error
            # Blocks of other rows round differently, by much less than 1e-8; the value of another row differs by more.
            if got.shape != expected[some].shape or np.abs(got - expected[some]).max() > 1e-8 * (size + 1):
                raise DataError(_ROW_WISE)


@dataclass(frozen=True, eq=False)
class _Called:
    """A function that makes the expression at new points, with the values of its θs, variables and parameters."""

    function: Callable[..., Any]
    values: Mapping[Any, Any]

    def at(self, points: Points) -> Array:
        return np.asarray(_valued(self.function(*points), self.values))

    def __deepcopy__(self, memo: Any) -> _Called:
        return self  # its parts do not change

    def __reduce__(self) -> NoReturn:
        raise PicklingError(
            "Expected a predictor of theta(X), of X and of its columns alone, which holds numbers; this one calls a "
            "function at new points. Give data that are computed from the points as another array, "
            "ko.Predictor(f, X, Z), and repeat a number as b, not as b * np.ones(len(X))."
        )


def _agree(node: Any, called: _Called, points: Points) -> bool:
    """Whether a tree is the function at other points: data that a function computes may be equal to points, or to each
    other, at the rows of X alone. Where none of them can be compared, the tree must not guess."""
    is_told = False
    for moved in _elsewhere(points):
        try:
            expected = called.at(moved)
        except Exception:
            continue  # the function takes no such points
        if not np.isfinite(expected).all():
            continue
        try:
            got = node.at(moved)
        except Exception:
            return False
        size = np.abs(expected).max(initial=0.0)
        if got.shape != expected.shape or not np.abs(got - expected).max(initial=0.0) <= 1e-9 * size:
            return False
        is_told = True
    return is_told or not _guesses(node)


def _elsewhere(points: Points) -> Iterator[Points]:
    """Rows with entries of others in each column, whole numbers near those of the rows, rows far from them, and
    ones with numbers or missing values that stand for something."""
    rng = np.random.default_rng(0)
    yield tuple(_like(part, _mixed(part, rng)) for part in points)
    if all(np.asarray(part[:1]).dtype.kind in "fiub" for part in points):
        yield tuple(_like(part, _whole_steps(part, rng)) for part in points)
        for distance in DISTANCES:
            yield tuple(_like(part, _moved(part, distance, rng)) for part in points)
        for codes in CODES:
            yield tuple(_like(part, _coded(part, np.array(codes))) for part in points)
        first, *others = points
        # A kernel takes no missing value, but the columns beside it may have some.
        for column in range(min(np.shape(first)[1] if np.ndim(first) == 2 else 0, MOST_COLUMNS)):
            rows = np.asarray(first[:MOVED]).astype(float)
            rows[:, column] = np.nan
            yield (_like(first, rows), *(_like(part, np.asarray(part[:MOVED])) for part in others))


def _like(part: Any, rows: Array) -> Any:
    """Rows as a frame or series, where the points are one."""
    if not hasattr(part, "iloc"):
        return rows
    columns = {"columns": part.columns} if hasattr(part, "columns") else {"name": getattr(part, "name", None)}
    return type(part)(rows, **columns)


def _mixed(part: Any, rng: np.random.Generator) -> Array:
    """A few rows of an array, each entry that of some row."""
    known = np.asarray(part)
    if known.ndim != 2:
        return known[rng.integers(len(known), size=MOVED)]
    return np.column_stack([column[rng.integers(len(known), size=MOVED)] for column in known.T])


def _whole_steps(part: Any, rng: np.random.Generator) -> Array:
    """Rows of an array, with whole numbers within 8 of the least and the largest in columns of such."""
    known = np.asarray(part)
    rows, low, high = known[:MOVED].astype(float), known.min(axis=0), known.max(axis=0)
    whole = (known == np.round(known)).all(axis=0) & (np.abs(known) < LARGEST_WHOLE).all(axis=0)
    steps = np.floor(
        rng.uniform(
            np.where(whole, low, 0) - STEPPED, np.where(whole, high, 0) + STEPPED + 1, (STEPS, *known.shape[1:])
        )
    )
    return np.where(whole, steps, rows[np.arange(STEPS) % len(rows)])


def _has_equal_rows(node: Any) -> bool:
    """Whether a row of a tree stands for an array of equal rows: a function's may differ at points that no comparison
    finds, as np.exp(X[:, 1] == 70) does where 70 is not in X."""
    return isinstance(node, _Atom) and (node.has_data or any(map(_has_equal_rows, node.args)))


def _coded(part: Any, codes: Array) -> Array:
    """Rows of an array, each with a code in one column."""
    known = np.asarray(part)
    number = np.arange(len(codes) * MOST_COLUMNS)
    rows, taken = known[number % len(known)].astype(float), codes[number % len(codes)]
    if known.ndim == 1:
        return taken
    if known.ndim == 2 and known.shape[1]:
        rows[number, number // len(codes) % known.shape[1]] = taken
    return rows


def _guesses(node: Any) -> bool:
    """Whether a tree has parts that were recognized by their values: constants of equal rows, columns, X itself."""
    if isinstance(node, _Atom):
        return any(map(_guesses, node.args)) or node.guessed
    return isinstance(node, _Points) and (node.function is None or node.columns is not None or node.guessed)


def _moved(part: Any, distance: float, rng: np.random.Generator) -> Array:
    """A few rows of an array, moved at random by a distance in units of its columns."""
    rows = np.asarray(part[:MOVED])
    unit = np.maximum(np.abs(np.asarray(part)).max(axis=0), 1.0)
    return np.asarray(rows + distance * unit * rng.uniform(-1.0, 1.0, rows.shape))


def _rows_of_sparse(part: Any) -> Any:
    """The rows of a sparse matrix, which has no length; other arrays as they are."""
    return SPARSE.rows(part, "ko.Predictor") if sp.issparse(part) else part


def _require_as_many(points: Points, n: int) -> None:
    for number, part in enumerate(points[1:], start=2):
        if not hasattr(part, "shape") or len(part) != n:
            raise DataError(f"Expected array {number} with a row for each of the {n} points; got {_size_of(part)}.")


def _size_of(part: Any) -> str:
    return f"shape {part.shape}" if hasattr(part, "shape") else type(part).__name__


def _numbers(node: Any) -> Iterator[int]:
    """The arrays that a tree reads."""
    if isinstance(node, _Points):
        yield node.number
    for arg in node.args if isinstance(node, _Atom) else ():
        yield from _numbers(arg)


def _values(expression: Any) -> dict[Any, Any]:
    """The present values of all θs, variables and parameters."""
    found: dict[Any, Any] = {}
    for leaf in [*expression.variables(), *expression.parameters()]:
        found[leaf.theta if isinstance(leaf, ThetaLeaf) else leaf.id] = (
            leaf.theta.value if isinstance(leaf, ThetaLeaf) else leaf.value
        )
    return found


def _valued(node: Any, values: Mapping[Any, Any]) -> Any:
    """The value of an expression for given values of its leaves."""
    if isinstance(node, Prediction):
        return node.at(values[node.data.theta])
    if isinstance(node, Leaf):
        return node.value if isinstance(node, cp.Constant) else values[node.id]
    args = [cp.Constant(_valued(arg, values)) for arg in node.args]
    return node.copy(args).value if args else node.value


_ROW_WISE = (
    "Expected an expression whose i-th entry depends on the i-th row of X alone, such as theta(X) + b; this one "
    "has no defined value at other points. Give it as a function of X, lambda X: theta(X) + …"
)


def _frozen(expression: Any, points: Points, is_function: bool) -> Any:
    """The tree of an expression, with numbers in place of its leaves.

    Ones that may be a column of X are read as what a row is repeated by; for an expression of no function, raise
    DataError.
    """
    if isinstance(expression, Prediction):
        A = expression.data.A
        if A.function is None and not A.order:
            place = _place(A._X, points, A.kernel.rows, is_function)
            if place is not None:
                return _Points(expression.data.theta.value, *place)
    if isinstance(expression, cp.Constant) and expression.ndim == 2 and not sp.issparse(expression.value):
        place = _place(expression.value, points, np.asarray, is_function)
        if place is not None:
            return _Points(None, *place)
    repeats = _is_broadcast(expression)
    if repeats and not is_function and _place(expression.args[0].value, points, np.asarray, True) is not None:
        raise DataError(
            "Expected X without a column of ones where a row is repeated, as b is in theta(X) + b[None, :]: ones may be"
            " that column or repeat b. Give a function of X, lambda X: theta(X) + b[None, :]."
        )
    args = [
        _Value(arg.value) if repeats and i == 0 else _frozen(arg, points, is_function)
        for i, arg in enumerate(expression.args)
    ]
    if all(isinstance(arg, _Value) for arg in args):
        return _Value(np.asarray(expression.value))
    # n equal rows become one row, which fits any number of new points. The right factor M of F @ M keeps its rows, as
    # they belong to the columns of F.
    guessed = has_data = False
    for i, arg in enumerate(args):
        if isinstance(arg, _Value) and not (type(expression) is MulExpression and i == 1):
            args[i] = _Value(_one_row(arg.value, len(points[0])))
            if args[i].value is not arg.value:
                guessed, has_data = True, has_data or _is_of_data(expression.args[i], len(points[0]))
                if not is_function:
                    _require_told_apart(args[i].value, points)
    return _Atom(type(expression), tuple(expression.get_data() or ()), tuple(args), guessed, has_data)


def _is_of_data(expression: Any, n: int) -> bool:
    """Whether an expression has an array of n rows, other than the ones by which cvxpy repeats a row."""
    if not expression.args:
        return expression.ndim > 0 and bool(expression.shape[0] == n)
    repeated = expression.args[1:] if _is_broadcast(expression) else expression.args
    return any(_is_of_data(arg, n) for arg in repeated)


def _require_told_apart(row: Array, points: Points) -> None:
    """Raise DataError where equal rows are those of a given array, or of its columns."""
    for number, part in enumerate(points, start=1):
        if np.ndim(part) not in (1, 2) or not hasattr(part, "shape") or np.asarray(part).dtype.kind not in "fiub":
            continue
        columns = np.asarray(part).reshape(len(part), -1)
        constant = columns[0, (columns == columns[:1]).all(axis=0)]
        if len(constant) and np.isin(row, constant).all() and row.size <= len(constant):
            raise DataError(
                f"Expected data that differ from array {number}; it has equal rows, as data in the expression do, so "
                "that it is not known whether they follow it. Give a function of the arrays, lambda X: theta(X) + …"
            )


def _is_broadcast(expression: Any) -> bool:
    """Whether it is ones (n, 1) times a row, as cvxpy repeats a row."""
    if type(expression) is not MulExpression or not isinstance(expression.args[0], cp.Constant):
        return False
    ones, row = expression.args
    return (
        ones.shape[1:] == (1,)
        and row.ndim == 2
        and isinstance(ones.value, np.ndarray)
        and bool(np.all(ones.value == 1))
    )


def _place(
    rows: Any, points: Points, read: Callable[[Any], Any], is_function: bool
) -> tuple[int, tuple[int, ...] | None, bool] | None:
    """Which of the arrays the rows are, and which columns of it; None where they are none, or may be several.

    The last is whether another array has the same rows. Raises DataError then, for an expression of no function.
    """
    whole = [number for number, part in enumerate(points) if _is_whole(rows, part, read)]
    found: list[tuple[int, tuple[int, ...] | None]] = [(number, None) for number in whole]
    if not found:
        columns = [(number, _columns(rows, part)) for number, part in enumerate(points)]
        found = [(number, chosen) for number, chosen in columns if chosen is not None]
    if len(found) > 1 and not is_function:
        raise DataError(
            f"Expected arrays with different rows; arrays {found[0][0] + 1} and {found[1][0] + 1} have the same, so "
            "that it is not known which of them the expression has. Give a function of the arrays, lambda X, Z: …"
        )
    return (*found[0], len(found) > 1) if found else None


def _is_whole(rows: Any, part: Any, read: Callable[[Any], Any]) -> bool:
    """Whether the rows are those of an array."""
    if len(part) != len(rows):
        return False
    if np.ndim(part) == 2 and not are_records(rows):
        return np.ndim(rows) == 2 and _are_equal(rows, read(part))
    return _are_equal(rows, _quietly(read, part))


def _are_equal(rows: Any, others: Any) -> bool:
    """Whether arrays are equal, with missing values in the same places."""
    numbers = all(getattr(part, "dtype", np.dtype(object)).kind == "f" for part in (rows, others))
    return bool(np.array_equal(rows, others, equal_nan=numbers))


def _quietly(read: Callable[[Any], Any], part: Any) -> Any:
    """The rows that a kernel makes of an array, None where it takes no such data."""
    try:
        return read(part)
    except (KernelOptError, ValueError, TypeError):
        return None


def _columns(rows: Any, part: Any) -> tuple[int, ...] | None:
    """The columns of an array that make up the rows; None where one of them is none, or occurs twice in the array."""
    if np.ndim(rows) != 2 or np.ndim(part) != 2 or len(rows) != len(part) or not hasattr(part, "shape"):
        return None
    whole, wanted = np.asarray(part), np.asarray(rows)
    if whole.dtype.kind not in "fiub" or wanted.dtype.kind not in "fiub":
        return None
    found = [np.flatnonzero((whole == column[:, None]).all(axis=0)) for column in wanted.T]
    return tuple(int(at[0]) for at in found) if all(len(at) == 1 for at in found) else None


def _one_row(value: Array, n: int) -> Array:
    """The common row of a value with n equal rows, as after broadcasting; any other value as it is."""
    repeated = value.ndim > 0 and len(value) == n and (value == value[:1]).all()
    if not repeated:
        return value
    return value[0] if value.ndim == 1 else value[:1]
