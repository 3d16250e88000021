"""Data that are not one array yet: Dask arrays, Arrow tables, and iterators of blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernelopt.errors import DataError


def is_dask(X: Any) -> bool:
    """Whether X is a Dask array; nothing is imported for it."""
    return hasattr(X, "__dask_graph__") and hasattr(X, "map_blocks")


def gathered(X: Any, owner: str) -> Any:
    """One array of what comes in blocks; anything else as it is.

    Raises DataError for blocks with different columns, and where there is none. What a block raises gets a note that
    says which it was.
    """
    if is_dask(X):
        return X.compute()
    if hasattr(X, "__arrow_c_stream__") and hasattr(X, "to_pandas"):
        return X.to_pandas()
    return _stacked(X, owner) if isinstance(X, Iterator) else X


def _stacked(blocks: Iterator[Any], owner: str) -> Any:
    found: list[Any] = []
    while True:
        try:
            block = np.asarray(next(blocks))
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
