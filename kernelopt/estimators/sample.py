"""The rows that are fitted: weights are checked, rows of weight 0 left out, and repeated rows merged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array

from kernelopt.errors import DataError, DataTypeError
from kernelopt.kernels.domains import identities
from kernelopt.kernels.records import are_records
from kernelopt.kernels.sources import refuse_masked
from kernelopt.kernels.sparse_rows import is_sparse
from kernelopt.support.checks import shown
from kernelopt.support.types import Array, Ints


@dataclass(frozen=True, eq=False)
class Sample:
    """The numbers of the fitted rows among those given to `fit`, and their weights.

    If X is a matrix, rows are sorted and distinct as pairs (x, y). A fit then does not depend on the order of rows,
    and a row of weight 2 has the effect of two rows.
    """

    rows: Ints
    weights: Array

    def weighted(self, terms: Any) -> Any:
        """wᵢ·termsᵢ, an expression of the shape of the terms, (n,) or (n, outputs)."""
        if (self.weights == 1).all():
            return terms
        weights = self.weights if terms.ndim == 1 else self.weights[:, None]
        return cp.multiply(np.broadcast_to(weights, terms.shape), terms)


def require_data(value: Any, name: str) -> None:
    """Raise DataTypeError for expressions and dates, which scikit-learn would convert, DataError for masked entries."""
    for entry in value if isinstance(value, (list, tuple)) else [value]:
        if isinstance(entry, cp.Expression):
            raise DataTypeError(f"Expected {name} to be an array; got the expression {shown(entry)}. Write its value.")
    refuse_masked(value, name)  # a lazy frame would be asked for its types
    of_frame = getattr(value, "dtypes", None)  # of each column, where it is a frame
    for dtype in [getattr(value, "dtype", None)] if of_frame is None or not hasattr(value, "columns") else of_frame:
        if getattr(dtype, "kind", "f") in ("m", "M"):
            raise DataTypeError(f"Expected {name} to be numbers; got dates or times, dtype {dtype}.")
    if name == "y" and sp.issparse(value):
        raise DataTypeError(
            f"Expected y to be an array; got a sparse matrix of shape {value.shape}. Write y.toarray()."
        )


def require_numbers(y: Any) -> None:
    """Raise DataError for targets with strings, which scikit-learn would blame on X where they stand in a frame."""
    if not hasattr(y, "dtype") and not hasattr(y, "dtypes"):
        return
    found = np.asarray(y)
    if found.dtype.kind not in "OSUT":
        return
    text = next((value for value in found.ravel() if isinstance(value, (str, bytes))), None)
    if text is not None:
        raise DataError(f"Expected y to be real numbers; got {shown(text)}. Encode strings and categories as numbers.")


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Say what was expected where scikit-learn's conversion to numbers fails inside numpy or pandas."""
    try:
        yield
    except (OverflowError, TypeError, ValueError) as error:
        known = (
            isinstance(error, OverflowError) or "could not convert string" in str(error) or "Cannot cast" in str(error)
        )
        if "value of NA is ambiguous" in str(error):
            raise DataError("Expected X and y without missing values; got pandas.NA. Leave these rows out.") from error
        if "inhomogeneous shape" in str(error) or "array element with a sequence" in str(error):
            raise DataError(f"Expected {name} to have rows of equal length; got others: {error}") from error
        if not known:
            raise
        raise DataError(
            f"Expected {name} to be real numbers; got another entry: {error}. Encode strings and categories as "
            "numbers, or choose a kernel made for strings."
        ) from error


def row_weights(sample_weight: Any, n: int) -> Array:
    """The weights of n rows, numbers ≥ 0, by default 1. Raises ValueError for other weights, and if all are 0."""
    if sample_weight is None:
        return np.ones(n)
    if isinstance(sample_weight, Real):
        sample_weight = np.full(n, sample_weight, dtype=object)
    require_data(sample_weight, "sample_weight")
    with explained("sample_weight"):
        weights = check_array(sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
    if weights.shape != (n,):
        raise DataError(f"Expected sample_weight of shape ({n},), a number for each row; got shape {weights.shape}.")
    if weights.min() < 0:
        raise DataError(
            f"Expected sample_weight ≥ 0; got {weights.min():g} at {int(weights.argmin())}. Weight 0 leaves a row out."
        )
    if weights.max() == 0:
        raise DataError("Expected some sample_weight > 0; all weights are zero, which leaves no row to fit.")
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not np.isfinite(total):
        raise DataError(
            f"Expected sample_weight whose sum is a finite number; got {weights.max():g} at {int(weights.argmax())}. "
            "Divide all weights by a constant."
        )
    return weights


def merged(X: Any, y: Array | None, weights: Array) -> Sample:
    """The distinct rows (xᵢ, yᵢ) of positive weight, sorted, with their weights added up.

    Rows are merged if X is a matrix or a frame; those of a sparse one are sorted by their bytes, and those of a frame
    are not sorted. X is None for precomputed kernel values, and a list for other objects.
    """
    kept = np.flatnonzero(weights > 0)
    if not isinstance(X, np.ndarray):
        return Sample(kept, weights[kept])
    if are_records(X):
        return _merged_records(X, y, weights, kept)
    if is_sparse(X):
        of_rows = [(X[i].name, () if y is None else tuple(np.ravel(y[i]))) for i in kept]
        numbers = {pair: number for number, pair in enumerate(sorted({*of_rows}))}
        of = np.array([numbers[pair] for pair in of_rows])
        return Sample(kept[np.unique(of, return_index=True)[1]], np.bincount(of, weights[kept]))
    if X.dtype.kind == "f" and (missing := np.isnan(X)).any():
        X = np.hstack([np.where(missing, 0.0, X), missing])  # NaN are not equal to each other
    column = X[kept, 0]
    order = np.argsort(column)
    if (np.diff(column[order]) > 0).all():  # no ties: rows are distinct, and sorted by column 0
        return Sample(kept[order], weights[kept[order]])
    pairs = X[kept] if y is None else np.column_stack([X[kept], y[kept]])
    _, first, inverse = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    return Sample(kept[first], np.bincount(inverse.reshape(-1), weights[kept]))


def _merged_records(X: Array, y: Array | None, weights: Array, kept: Ints) -> Sample:
    """Rows of a frame by first appearance: their values have no order."""
    numbers: dict[object, int] = {}
    names = [
        (identity, () if y is None else tuple(np.ravel(y[i])))
        for i, identity in zip(kept, identities(X[kept]), strict=True)
    ]
    of = np.array([numbers.setdefault(name, len(numbers)) for name in names])
    return Sample(kept[np.unique(of, return_index=True)[1]], np.bincount(of, weights[kept]))


def every_row(X: Any) -> Sample:
    """All rows as they are, each counted once."""
    return Sample(np.arange(len(X)), np.ones(len(X)))
