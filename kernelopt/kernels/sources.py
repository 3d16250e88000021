"""Data that are not yet in one array: Dask arrays, Arrow tables, and iterators of blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, time, timedelta
from typing import Any

import numpy as np

from kernelopt.errors import DataError, DataTypeError

DATES = (date, time, timedelta, np.datetime64, np.timedelta64)


def is_dask(X: Any) -> bool:
    """Whether X is a Dask array, found without importing Dask."""
    return hasattr(X, "__dask_graph__") and hasattr(X, "map_blocks")


def is_lazy(X: Any) -> bool:
    """Whether X is a query that has no data yet, such as a LazyFrame of polars, found without importing polars."""
    return hasattr(type(X), "collect") and hasattr(type(X), "collect_schema")


def refuse_masked(X: Any, what: str) -> None:
    """Raise DataError for masked entries: numpy would use the values behind the mask as data.

    Raises DataTypeError for a lazy frame, of which numpy would make one object.
    """
    parts = X if isinstance(X, (list, tuple)) else [X]
    for number, part in enumerate(parts):
        if is_lazy(part):
            raise DataTypeError(
                f"Expected {what} to be data; got a {type(part).__name__}, which is not computed yet. Write .collect()."
            )
        if isinstance(part, np.ma.MaskedArray) and np.ma.getmaskarray(part).any():
            mask = np.ma.getmaskarray(part)
            first = [int(i) for i in np.argwhere(mask)[0]] if mask.ndim else []
            place = ", ".join(map(str, [number, *first] if parts is X else first)) or "its only entry"
            raise DataError(
                f"Expected {what} without masked entries; got a masked array with {int(mask.sum())} of {mask.size} "
                f"masked, first at {place}. Drop the rows, or write X.filled(value) to replace these entries."
            )


def refuse_dates(X: Any, what: str) -> None:
    """Raise DataTypeError for dates and times, which numpy converts to numbers of days or nanoseconds."""
    first = X
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    kind = getattr(getattr(first, "dtype", None), "kind", "")
    if kind == "O" and getattr(first, "size", 0) and hasattr(first, "__array__"):
        first = np.asarray(first).ravel()[0]
    if kind in ("m", "M") or isinstance(first, DATES) or type(first).__name__ == "Period":
        told = getattr(first, "dtype", type(first).__name__)
        raise DataTypeError(
            f"Expected {what} to be real numbers; got dates or times, {told}. Write them as numbers in a unit of your "
            "choice, such as (dates - dates[0]) / np.timedelta64(1, 'D')."
        )


def gathered(X: Any, owner: str) -> Any:
    """X as one array if it comes in blocks, else X itself.

    Raises DataError for blocks with different numbers of columns, and for an iterator without blocks. An exception from
    reading a block gets a note with the number of the block.
    """
    if is_dask(X):
        return X.compute()
    return _stacked(X, owner) if isinstance(X, Iterator) else from_arrow(X)


def from_arrow(X: Any) -> Any:
    """An Arrow table as a frame of pandas; all else as it is."""
    # Arrow tables have no `to_numpy`. Frames of polars have, and their `to_pandas` needs pyarrow.
    is_arrow = hasattr(X, "__arrow_c_stream__") and hasattr(X, "to_pandas") and not hasattr(X, "to_numpy")
    return X.to_pandas() if is_arrow else X


def _stacked(blocks: Iterator[Any], owner: str) -> Any:
    found: list[Any] = []
    first_names: list[str] = []
    while True:
        try:
            given = next(blocks)
            refuse_masked(given, f"block {len(found)} of the data given to {owner}")
            names = [str(name) for name in getattr(given, "column_names", getattr(given, "columns", []))]
            if found and names != first_names:
                raise DataError(
                    f"Expected the columns {first_names} in each block of the data given to {owner}; got {names} for "
                    f"block {len(found)}. Write block[names] with the names of the first."
                )
            first_names = names
            block = np.asarray(given)
        except StopIteration:
            break
        except Exception as error:
            error.add_note(f"while block {len(found)} of the data given to {owner} was read")
            raise
        if block.ndim != 2 or (found and block.shape[1] != found[0].shape[1]):
            wanted = "(rows, columns)" if not found else f"(rows, {found[0].shape[1]}), as the first"
            raise DataError(
                f"Expected blocks of shape {wanted}, in the data given to {owner}; got shape {block.shape} for block "
                f"{len(found)}."
            )
        found.append(block)
    if not found:
        raise DataError(f"Expected at least one block of rows in the data given to {owner}; got none.")
    return np.concatenate(found)
