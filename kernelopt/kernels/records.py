"""Rows of a data frame as objects of their own: the values of some columns by name, of any types.

A missing value, in whatever form a library has it (None, NaN, pandas' NA), is None here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from typing import Any

import numpy as np

from kernelopt.errors import DataError, DataTypeError
from kernelopt.support.types import Array, Bools


class Record(Mapping[str, Any]):
    """One row: values by the names of columns. Equal rows, of equal types, are equal and have equal hashes."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def name(self) -> tuple[object, ...]:
        """The row as a tuple; 1, 1.0 and True are equal in Python, so that types belong to it."""
        return tuple((column, type(value), value) for column, value in self._values.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return repr(self._values)


def are_records(rows: Any) -> bool:
    """Whether rows are those of a data frame, as `records` makes them."""
    return isinstance(rows, np.ndarray) and rows.dtype == object and len(rows) > 0 and type(rows[0]) is Record


def entry(value: Any) -> Any:
    """A value as it is held: a number of numpy as one of Python, a missing value as None.

    Raises DataTypeError for NaT.
    """
    if isinstance(value, np.generic) and not isinstance(value, (np.datetime64, np.timedelta64)):
        value = value.item()
    kind = type(value).__name__
    if value is None or kind == "NAType" or (isinstance(value, float) and isnan(value)):
        return None
    if kind == "NaTType" or (isinstance(value, (np.datetime64, np.timedelta64)) and np.isnat(value)):
        raise DataTypeError("Expected values other than NaT; got NaT. Fill these dates, or write None for no value.")
    # -0.0 and 0.0 are equal numbers, and shall be equal rows.
    return value + 0.0 if isinstance(value, float) else value


def column_of(X: Any, name: str) -> list[Any]:
    """The values of a column of a frame of pandas or polars, or of another table that numpy converts."""
    by_name = hasattr(X, "iloc") or hasattr(X, "get_column")  # of pandas, of polars
    column = X[name] if by_name else np.asarray(X)[:, list(X.columns).index(name)]
    for method in ("to_list", "tolist"):
        if hasattr(column, method):
            return list(getattr(column, method)())
    return list(column)


def records(columns: Mapping[str, Sequence[Any]]) -> Array:
    """Read-only rows of columns of equal length."""
    values = {name: _entries(name, column) for name, column in columns.items()}
    found = np.empty(len(next(iter(values.values()))), dtype=object)
    for i, row in enumerate(zip(*values.values(), strict=True)):
        found[i] = Record(dict(zip(values, row, strict=True)))
    found.flags.writeable = False
    return found


def _entries(name: str, column: Sequence[Any]) -> list[Any]:
    try:
        return list(map(entry, column))
    except DataTypeError as error:
        raise DataTypeError(f"Column {name!r}: {error}") from error


def number(value: Any) -> float:
    """A number of a record as a double, NaN where it is missing."""
    return np.nan if value is None else float(value)


def numbers(rows: Array, names: Sequence[str]) -> Array:
    """Columns of numbers as a matrix, (n, columns), NaN where values are missing."""
    return np.array([[number(row[name]) for name in names] for row in rows], dtype=np.float64).reshape(-1, len(names))


def objects(rows: Array, name: str) -> Array:
    """One column as an array of objects, (n,)."""
    found = np.empty(len(rows), dtype=object)
    for i, row in enumerate(rows):
        found[i] = row[name]
    return found


def are_missing(rows: Array) -> Bools:
    """The missing values of rows that are numbers or objects, in the shape of the rows."""
    return np.array([x is None for x in rows], dtype=bool) if rows.dtype == object else np.isnan(rows)


def refuse_missing(missing: Bools, columns: Sequence[Any], owner: str, remedy: str) -> None:
    """Raise DataError that names the columns with missing values, where there are any. missing : (n, columns)"""
    if missing.any():
        named = ", ".join(repr(columns[j]) for j in np.flatnonzero(missing.any(axis=0)).tolist())
        count, row = int(missing.sum()), int(np.flatnonzero(missing.any(axis=1))[0])
        raise DataError(
            f"{owner} expects data without missing values; got {count} NaN or missing, in column {named}, first in row "
            f"{row}. {remedy}"
        )
