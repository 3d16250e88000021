"""Kernels on columns of a data frame, by their names."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np

from kernelopt.errors import DataError, DataTypeError, KernelError
from kernelopt.kernels.adjoints import pull, refuse_points
from kernelopt.kernels.domains import ANYTHING, GAPPY, STRINGS, Domain, FrameRows, Indices, Vectors, frozen
from kernelopt.kernels.kernel import COMPOSITIONS, FILL, Adjoint, Kernel, require, require_kernels
from kernelopt.kernels.records import are_missing, numbers, objects, refuse_missing
from kernelopt.kernels.transforms import _OfPoints
from kernelopt.support.types import Array


@dataclass(frozen=True)
class NamedColumns(_OfPoints):
    """κ(x, y) = κ₀(x[J], y[J]) for columns J of a data frame of pandas or polars, given by their names.

    Points are frames with these columns, in any order and beside others, or lists of dicts. `kernel.on("age")` makes
    it.

    Parameters
    ----------
    kernel : Kernel
        A kernel of vectors takes columns of numbers; one of strings, labels or other objects takes one column.
    columns : name, or sequence of names

    Raises
    ------
    DataTypeError
        For arrays, whose columns have no names, and for columns of another type than the kernel takes.
    DataError
        For frames without these columns, and for missing values, unless the kernel has a policy for them.

    Examples
    --------
    >>> import pandas as pd, kernelopt as ko
    >>> frame = pd.DataFrame({"w": [1.0, 2.0], "s": ["ab", "ba"], "h": [3.0, 4.0]})
    >>> kernel = ko.kernels.Linear().on(["w", "h"]) + ko.kernels.PositionMatch().on("s")
    >>> kernel
    (Linear()).on(['w', 'h']) + (PositionMatch(power=1)).on('s')
    >>> kernel(frame)
    array([[12., 14.],
           [14., 22.]])
    """

    kernel: Kernel
    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        require_kernels(self.kernel)
        names = self.columns
        chosen = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, (list, tuple)) else ()
        valid = bool(chosen) and all(isinstance(name, str) for name in chosen) and len(set(chosen)) == len(chosen)
        require(valid, "columns", "different names of columns, all strings", names)
        if isinstance(self.kernel.domain, FrameRows):
            raise KernelError(
                f"Expected a kernel whose columns have no names yet, for .on({list(chosen)}); got {self.kernel!r}. "
                "Write .on(names) once, after the kernel of their values."
            )
        object.__setattr__(self, "columns", chosen)

    @property
    def domain(self) -> Domain:
        return FrameRows(self.columns)

    @property
    def is_stationary(self) -> bool:
        """False: rows of a frame have no differences."""
        return False

    def _refuse(self, rows: Array) -> None:
        """Values that κ₀ takes nothing of, with the names of their columns."""
        inner, raw = self.kernel.domain, np.column_stack([objects(rows, name) for name in self.columns])
        if isinstance(inner, Vectors):
            self._require_numbers(raw)
            if inner is not GAPPY:
                missing = are_missing(raw.ravel()).reshape(raw.shape)
                refuse_missing(missing, self.columns, repr(self.kernel), FILL)
        elif len(self.columns) > 1 and not (inner is ANYTHING and _are_numbers(raw)):
            raise DataTypeError(
                f"{self.kernel!r} expects {inner.name} in one column; got {list(self.columns)}. Write .on(name) for "
                "each of the columns, and the sum or product of these kernels."
            )
        elif inner is STRINGS:
            refuse_missing(are_missing(raw[:, 0])[:, None], self.columns, repr(self.kernel), "Drop or fill them.")
        try:
            self.kernel.rows(self._raw(rows))
        except (DataError, DataTypeError) as error:
            raise type(error)(f"Column {', '.join(map(repr, self.columns))}: {error}") from error

    def _require_numbers(self, raw: Array) -> None:
        for name, column in zip(self.columns, raw.T, strict=True):
            for value in column:
                if value is not None and not isinstance(value, Real):
                    raise DataTypeError(
                        f"{self.kernel!r} expects columns of real numbers; got {value!r:.40} ({type(value).__name__}) "
                        f"in column {name!r}. For labels write ko.kernels.Categorical().on({name!r}), for strings a "
                        f"kernel of strings, as ko.kernels.Spectrum(2).on({name!r})."
                    )

    def _raw(self, rows: Array) -> Array:
        """What κ₀ is given."""
        inner = self.kernel.domain
        if isinstance(inner, Vectors):
            return self._matrix_of(rows)
        if isinstance(inner, Indices):
            return np.array(list(objects(rows, self.columns[0])))
        if len(self.columns) > 1 or (inner is ANYTHING and _are_numbers(objects(rows, self.columns[0]))):
            return self._matrix_of(rows)  # as of a frame with these columns
        return objects(rows, self.columns[0])

    def _matrix_of(self, rows: Array) -> Array:
        try:
            return numbers(rows, self.columns)
        except OverflowError as error:
            raise DataError(
                f"Expected columns {list(self.columns)} to be numbers below 1e308 in size; got an integer with more "
                "digits. Change its units."
            ) from error

    def _point(self, X: Array) -> Array:
        inner = self.kernel.domain
        raw = self._raw(X)
        if isinstance(inner, Vectors) or not len(X):
            return frozen(raw)
        return inner.rows(raw, repr(self.kernel))

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        left = self._point(X)
        right = left if Z is None else self._point(Z)
        if left.ndim != right.ndim and len(left) and len(right):
            raise KernelError(
                f"Expected column {self.columns[0]!r} to hold numbers alone in all frames, or in none; got both. "
                "Convert it to strings, frame[name].astype(str)."
            )
        return self.kernel._matrix(left, None if Z is None else right)

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """Those of κ₀ at the columns; none for rows of a frame."""
        refuse_points(self, points)
        return pull(self, 1, wanted)(self._point(X), self._point(Z), G)

    def __repr__(self) -> str:
        names = list(self.columns) if len(self.columns) > 1 else self.columns[0]
        return f"({self.kernel!r}).on({names!r})"


def _are_numbers(values: Array) -> bool:
    return all(isinstance(value, (Real, np.bool_)) for value in values.ravel())


COMPOSITIONS["on names"] = NamedColumns
