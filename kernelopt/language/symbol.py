"""Points as a symbol: what a function of points does with them, without their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import cvxpy as cp
import numpy as np

from kernelopt.errors import DataError
from kernelopt.support.types import Array

LINEAR = (np.add, np.subtract, np.negative, np.positive)
SHAPES = (np.shape, np.ndim, np.size, np.ones_like, np.zeros_like, np.empty_like)  # do not read values
COLUMNS = (np.hstack, np.column_stack)  # put columns side by side


class PointSymbol(cp.Parameter):
    """An array that is computed from points, without values: no code can branch on them or turn them into constants.

    In a tree of cvxpy that holds a symbol, all else does not depend on the points.

    is_affine : whether each row is an affine function of its point, by the operations that made it
    points : of the points themselves, an array that stands for them in predictions; else None
    """

    def __init__(self, shape: tuple[int, ...], is_affine: bool, points: Array | None = None) -> None:
        self.is_affine_in_points, self.points = is_affine, points
        super().__init__(shape)

    @classmethod
    def of_points(cls, P: Array) -> PointSymbol:
        """NaN stands for them in predictions, so that numbers that are computed from there are NaN, too."""
        return cls(P.shape, True, np.full(P.shape, np.nan))

    def opaque(self, shape: tuple[int, ...]) -> PointSymbol:
        """A function of the points of which nothing is known."""
        return PointSymbol(shape, False)

    @property
    def _stand_in(self) -> Array:
        """An array of the same shape, for numpy to find the shape of a result."""
        return np.ones(self.shape)

    def __getitem__(self, key: Any) -> PointSymbol:
        rows = key[0] if isinstance(key, tuple) and key else key
        whole = isinstance(rows, slice) and rows == slice(None)
        return PointSymbol(self._stand_in[_stood_in(key)].shape, self.is_affine_in_points and whole)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> PointSymbol:
        if method != "__call__" or options or ufunc.nout != 1:
            raise TypeError(f"np.{ufunc.__name__} of points in this way")
        with np.errstate(all="ignore"):
            shape = np.shape(ufunc(*_stood_in(inputs)))
        return PointSymbol(shape, _is_affine(ufunc, inputs))

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        with np.errstate(all="ignore"):
            result = function(*_stood_in(args), **_stood_in(options))
        if function in SHAPES:
            return result
        if not isinstance(result, (np.ndarray, np.number)):
            raise TypeError(f"np.{function.__name__} of points")
        affine = function in COLUMNS and all(map(_is_plain, args[0]))
        return PointSymbol(np.shape(result), affine)

    def _no_value(self, *args: Any, **options: Any) -> NoReturn:
        raise TypeError("these points have no values")

    __array__ = __bool__ = __float__ = __int__ = __index__ = _no_value


def _stood_in(value: Any) -> Any:
    """A value with an array in the place of each symbol."""
    if isinstance(value, PointSymbol):
        return value._stand_in
    if isinstance(value, (list, tuple)):
        return type(value)(_stood_in(part) for part in value)
    if isinstance(value, dict):
        return {name: _stood_in(part) for name, part in value.items()}
    if isinstance(value, cp.Expression):
        raise TypeError("an expression in a function of numpy")
    return value


def _is_plain(part: Any) -> bool:
    """Whether a part is a symbol that is affine in the points, or numbers alone: anything else may hold symbols."""
    if isinstance(part, PointSymbol):
        return part.is_affine_in_points
    if isinstance(part, (list, tuple)):
        return not any(isinstance(one, PointSymbol) for one in part) and all(map(_is_plain, part))
    return isinstance(part, (int, float)) or getattr(getattr(part, "dtype", None), "kind", "O") in "biuf"


def _is_affine(ufunc: Any, inputs: tuple[Any, ...]) -> bool:
    """Whether rows of the result are affine functions of the points."""
    symbols = [part for part in inputs if isinstance(part, PointSymbol)]
    if not all(map(_is_plain, inputs)):
        return False
    if ufunc in LINEAR:
        return True
    if ufunc is np.multiply:
        return len(symbols) == 1
    # Rows of P @ w and P / 2; w @ P mixes points, and 2 / P is not affine.
    return ufunc in (np.matmul, np.divide) and len(symbols) == 1 and symbols[0] is inputs[0]


def _operator(name: str, ufunc: Any, swap: bool) -> Callable[..., Any]:
    own, of_left = getattr(cp.Parameter, name), getattr(cp.Parameter, name.replace("__r", "__"), None)

    def method(self: PointSymbol, *others: Any) -> Any:
        if any(isinstance(a, cp.Expression) and not isinstance(a, PointSymbol) for a in others):
            # Python asks a subclass of the left operand's class first, which would ask the left one by its operator.
            return of_left(others[0], self) if swap and of_left is not None else own(self, *others)
        return self.__array_ufunc__(ufunc, "__call__", *((*others, self) if swap else (self, *others)))

    return method


for _name, _ufunc in {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide, "matmul": np.matmul, "pow": np.power,
}.items():  # fmt: skip
    setattr(PointSymbol, f"__{_name}__", _operator(f"__{_name}__", _ufunc, swap=False))
    if _name != "pow":
        setattr(PointSymbol, f"__r{_name}__", _operator(f"__r{_name}__", _ufunc, swap=True))
for _name, _ufunc in {
    "neg": np.negative, "abs": np.absolute, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}.items():  # fmt: skip
    setattr(PointSymbol, f"__{_name}__", _operator(f"__{_name}__", _ufunc, swap=False))


def points_of(X: PointSymbol) -> Array:
    """The stand-in for points in predictions. Raises DataError for what is computed from the points."""
    if X.points is None:
        raise DataError("Expected predictions at the points P themselves; got others that are computed from them.")
    return X.points


def is_stand_in(X: Array) -> bool:
    """Whether an array of points stands for a symbol: other points are finite."""
    return X.dtype == float and bool(X.size) and bool(np.isnan(X.flat[0]))
