"""Domains: the data that a kernel takes, and how points are checked, stacked, compared and merged.

A domain turns user data into its canonical rows, a read-only numpy array whose first axis counts points. All other
modules work on canonical rows, whatever a point is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import isnan
from numbers import Real
from typing import Any, NamedTuple, Protocol

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelopt.errors import DataError, DataTypeError, KernelError, KernelOptError
from kernelopt.kernels.records import are_records, column_of, entry, records
from kernelopt.kernels.sources import from_arrow, gathered, is_lazy, refuse_masked
from kernelopt.kernels.sparse_rows import dense, is_sparse, sparse_rows, stacked, stays_sparse, width
from kernelopt.support.types import Array, Ints

Names = tuple[str, ...] | tuple[int, ...] | None


class Distinct(NamedTuple):
    """`points[first]` are the distinct points, `points == points[first][inverse]`."""

    first: Ints
    inverse: Ints


class Domain(Protocol):
    """One kind of data."""

    name: str

    def rows(self, X: Any, owner: str) -> Array:
        """Canonical, read-only rows of `X`; `owner` names the kernel in error messages."""

    def columns(self, rows: Array) -> int | None:
        """Number of columns that all rows of one θ must share, or None where there are none."""


def join(domains: Sequence[Domain]) -> Domain | None:
    """The domain of points that all of these take: the strictest one, or None where they take different kinds.

    Tables are joined: the rows hold the columns of all.
    """
    domains = [d for d in domains if d is not ANYTHING] or list(domains[:1])
    tables = [d for d in domains if isinstance(d, FrameRows)]
    if tables:
        return FrameRows(dict.fromkeys(n for d in tables for n in d.names)) if len(tables) == len(domains) else None
    if any(d is not SPARSE for d in domains):
        domains = [VECTORS if d is SPARSE else d for d in domains]
    strict = [d for d in domains if d != VECTORS]
    if not strict:
        return domains[0]
    # Plain vectors go together with stricter ones (histograms), but not with row numbers or strings.
    same_kind = len(strict) == len(domains) or isinstance(strict[0], Vectors)
    return strict[0] if same_kind and all(d == strict[0] for d in strict) else None


def of_arrays(domain: Domain) -> Domain:
    """The domain without sparse rows, of which a function of points makes nothing."""
    return VECTORS if domain is SPARSE else domain


def stack(blocks: Sequence[Array]) -> Array:
    """Canonical rows of several blocks, one under the other."""
    return frozen(stacked(list(blocks))) if len(blocks) > 1 else blocks[0]


def key(rows: Array) -> object:
    """A hashable fingerprint: equal for equal rows in equal order (objects: the same, or equal and hashable)."""
    if rows.dtype == object:
        return tuple(identities(rows))
    return rows.shape, hashlib.blake2b(np.ascontiguousarray(rows).data, digest_size=16).digest()


def distinct(rows: Array) -> Distinct:
    """The distinct rows in order of first appearance; only exactly equal rows are merged."""
    if rows.shape[0] <= 1:
        index = np.arange(rows.shape[0])
        return Distinct(index, index)
    if rows.dtype == object or (rows.dtype.kind == "f" and np.isnan(rows).any()):  # NaN is no number equal to itself
        numbers: dict[object, int] = {}
        inverse = np.array([numbers.setdefault(name, len(numbers)) for name in identities(rows)])
        first = np.unique(inverse, return_index=True)[1]
        return Distinct(first, inverse)
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return Distinct(first[order], rank[inverse.reshape(-1)])


def identities(rows: Array) -> list[object]:
    """A hashable name for each row: equal for equal rows (objects: the same, or equal and hashable)."""
    if rows.dtype == object:
        return list(map(_identity, rows))
    return [row.tobytes() for row in rows]


def _identity(x: Any) -> object:
    """A hashable identity of an object: its type and value where it can be hashed, else its id.

    NaN is one value here, also inside tuples: in Python each NaN is equal to itself alone.
    """
    try:
        hash(x)
    except TypeError:
        return id(x)
    if type(x) is tuple:
        return tuple, *map(_identity, x)
    return type(x), None if isinstance(x, float) and isnan(x) else x


def frozen(array: Array) -> Array:
    """The same array, marked read-only."""
    array.flags.writeable = False
    return array


class Vectors:
    """Points are the rows of a real matrix, (n_points, n_columns)."""

    name = "vectors"

    def rows(self, X: Any, owner: str) -> Array:
        X = dense(X) if is_sparse(X) else real_array(gathered(X, owner), f"the data given to {owner}")
        if X.ndim != 2:
            raise DataError(
                f"{owner} expects a matrix with one point per row, of shape (n_points, n_columns); got "
                f"shape {X.shape}. For a single column write X.reshape(-1, 1), for a single point "
                "X.reshape(1, -1)."
            )
        if 0 in X.shape:
            raise DataError(f"{owner} expects at least one point and one column; got shape {X.shape}.")
        self._check_entries(X, owner)
        # Adding 0 turns -0.0 into 0.0, so that equal rows are equal byte for byte; it also copies.
        return frozen(np.ascontiguousarray(X + 0.0))

    def _check_entries(self, X: Array, owner: str) -> None:
        check_finite(X, f"the data given to {owner}")

    def columns(self, rows: Array) -> int | None:
        return int(rows.shape[1])


class GappyVectors(Vectors):
    """Vectors of which entries may be missing, NaN; the kernel says of which columns."""

    name = "vectors with missing values"

    def rows(self, X: Any, owner: str) -> Array:
        rows = super().rows(_with_nan(X), owner)
        if not np.isnan(rows).any():
            return rows
        return frozen(np.where(np.isnan(rows), np.nan, rows))  # one NaN of many, so that equal rows are equal bytes

    def _check_entries(self, X: Array, owner: str) -> None:
        check_finite(np.where(np.isnan(X), 0.0, X), f"the data given to {owner}")


class SparseVectors(Vectors):
    """Points are the rows of a real matrix; those of a large sparse one stay sparse, as `SparseRow` objects."""

    def rows(self, X: Any, owner: str) -> Array:
        if is_sparse(X):
            return np.asarray(X)
        if not stays_sparse(X):
            return super().rows(X, owner)
        if X.dtype.kind not in "fiub":
            raise DataTypeError(
                f"Expected the data given to {owner} to be real numbers; got dtype {X.dtype}. Split complex numbers "
                "into real and imaginary columns."
            )
        check_finite(X.data, f"the entries of the sparse matrix given to {owner}")
        return sparse_rows(X)

    def columns(self, rows: Array) -> int | None:
        return width(rows) if len(rows) or rows.ndim == 2 else None


class Indices:
    """Points are row numbers into a matrix that the kernel holds, (n_points,); `remedy` says where new points go."""

    name = "row indices"

    def __init__(self, size: int, remedy: str = "For new points use theta.value.from_gram(K).") -> None:
        self.size, self.remedy = size, remedy

    def rows(self, X: Any, owner: str) -> Array:
        refuse_masked(X, f"the data given to {owner}")
        X = as_array(X, f"the data given to {owner}")
        if X.ndim != 1 or X.dtype.kind not in "iu":
            raise DataTypeError(
                f"{owner} expects row numbers, a 1-d integer array; got dtype {X.dtype} of shape "
                f"{X.shape}. Write np.arange({self.size}) for all rows."
            )
        if X.size == 0:
            raise DataError(f"{owner} expects at least one row number; got none.")
        if X.min() < 0 or X.max() >= self.size:
            raise DataError(
                f"{owner} expects row numbers from 0 to {self.size - 1}; got {X.min()} to {X.max()}. {self.remedy}"
            )
        return frozen(X.astype(np.intp))

    def columns(self, rows: Array) -> int | None:
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Indices) and other.size == self.size

    def __hash__(self) -> int:
        return hash(self.size)


class Histograms(Vectors):
    """Vectors with entries ≥ 0."""

    name = "histograms"

    def rows(self, X: Any, owner: str) -> Array:
        points = super().rows(X, owner)
        if (points < 0).any():
            i, j = (int(v) for v in np.argwhere(points < 0)[0])
            raise DataError(f"{owner} expects histogram entries ≥ 0; got {points[i, j]:g} at ({i}, {j}).")
        return points


class Anything:
    """Any objects, in a list; matrices of numbers are kept as matrices."""

    name = "any objects"

    def rows(self, X: Any, owner: str) -> Array:
        X = self.of_column(X, owner)
        objects = isinstance(X, np.ndarray) and X.dtype == object
        if sp.issparse(X) or (getattr(X, "ndim", 0) == 2 and not objects):
            return VECTORS.rows(X, owner)
        refuse_masked(X, f"the data given to {owner}")
        X = X.tolist() if hasattr(X, "tolist") else X  # arrays and pandas Series of objects
        if isinstance(X, (str, bytes, Mapping)) or not hasattr(X, "__len__") or not hasattr(X, "__getitem__"):
            raise DataTypeError(f"{owner} expects a list of objects; got {type(X).__name__}. Write [x] for one object.")
        if len(X) == 0:
            raise DataError(f"{owner} expects at least one object; got none.")
        points = np.empty(len(X), dtype=object)
        for i in range(len(X)):
            points[i] = X[i]
        return frozen(points)

    def of_column(self, X: Any, owner: str) -> Any:
        """The column of a table with one column of objects; X itself where it is no table, or one of numbers.

        Raises DataTypeError where a table of objects has several columns.
        """
        X = from_arrow(X)
        shape = getattr(X, "shape", ())  # frames of polars have no `ndim`
        if sp.issparse(X) or not isinstance(shape, tuple) or len(shape) != 2:
            return X
        table = np.asarray(X)
        if table.ndim != 2 or table.dtype.kind in "fiub" or all(isinstance(v, (Real, np.bool_)) for v in table.ravel()):
            return X
        if table.shape[1] != 1:
            raise DataTypeError(
                f"{owner} expects {self.name} in a list or in one column; got {table.shape[1]} columns. Choose one: "
                "X[:, 0] or frame[name]."
            )
        return table[:, 0]

    def columns(self, rows: Array) -> int | None:
        return None if rows.dtype == object else int(rows.shape[1])


class Strings(Anything):
    """A list of strings."""

    name = "strings"

    def rows(self, X: Any, owner: str) -> Array:
        points = super().rows(X, owner)
        for i, x in enumerate(points):
            if not isinstance(x, str):
                raise DataTypeError(f"{owner} expects a list of strings; got {type(x).__name__} at {i}.")
        return points


class Labels(Anything):
    """Labels of any type that can be hashed, in a list or in one column; None where they are missing."""

    name = "labels"

    def rows(self, X: Any, owner: str) -> Array:
        refuse_masked(X, f"the data given to {owner}")
        X = from_arrow(X)
        if isinstance(getattr(X, "shape", None), tuple) and len(X.shape) == 2 and not sp.issparse(X):
            table = as_array(X, f"the data given to {owner}")
            if table.ndim != 2 or table.shape[1] != 1:
                got = f"{table.shape[1]} columns" if table.ndim == 2 else f"a {type(X).__name__}"
                raise DataTypeError(
                    f"{owner} expects labels in a list or in one column; got {got}. Write "
                    ".on(name) for a column of a frame, .on([number]) for one of an array, and a product of kernels "
                    "for several."
                )
            X = table[:, 0].tolist()
        elif hasattr(X, "to_list"):
            X = X.to_list()
        points = list(super().rows(X, owner))
        found = np.empty(len(points), dtype=object)
        for i, x in enumerate(points):
            found[i] = entry(x)
            try:
                hash(found[i])
            except TypeError as error:
                raise DataTypeError(
                    f"{owner} expects labels that can be hashed, such as strings and numbers; got {type(x).__name__} "
                    f"at {i}. Write tuple(x) for a list x."
                ) from error
        return frozen(found)


class FrameRows:
    """Rows of a data frame, of which the named columns are read."""

    name = "rows of a data frame"

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)

    def rows(self, X: Any, owner: str) -> Array:
        refuse_masked(X, f"the data given to {owner}")
        if isinstance(X, Iterator):
            blocks = [self.rows(block, owner) for block in X]
            if not blocks:
                raise DataError(f"Expected at least one block of rows in the data given to {owner}; got none.")
            return stack(blocks)
        X = from_arrow(X)
        as_rows = are_records(X) or (isinstance(X, list) and bool(X) and all(isinstance(x, Mapping) for x in X))
        known = list(X[0]) if as_rows else self._columns(X, owner)
        lacking = [name for name in self.names if name not in known]
        if lacking:
            raise DataError(
                f"{owner} expects a DataFrame with {_quoted(lacking)}; got one with {_quoted(known)}. Rename its "
                "columns, or write .on(name) with other names."
            )
        repeated = [name for name in self.names if known.count(name) > 1]
        if repeated:
            raise DataError(f"{owner} expects columns of different names; got several of {_quoted(repeated)}.")
        try:
            columns = {name: [x[name] for x in X] if as_rows else column_of(X, name) for name in self.names}
        except KeyError as error:
            raise DataError(f"{owner} expects a value of {error} in each row; got rows without it.") from error
        if not len(columns[self.names[0]]):
            raise DataError(f"{owner} expects at least one row; got none.")
        return records(columns)

    def _columns(self, X: Any, owner: str) -> list[Any]:
        if not isinstance(getattr(X, "shape", None), tuple) or not hasattr(X, "columns") or len(X.shape) != 2:
            got = f"an array of shape {X.shape}" if isinstance(X, np.ndarray) else f"a {type(X).__name__}"
            raise DataTypeError(
                f"{owner} expects a DataFrame with {_quoted(self.names)}; got {got}. Pass a frame of pandas or polars, "
                "or write column numbers, as in .on([0])."
            )
        return list(X.columns)

    def columns(self, rows: Array) -> int | None:
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrameRows) and set(other.names) == set(self.names)

    def __hash__(self) -> int:
        return hash(frozenset(self.names))


def _quoted(names: Sequence[Any]) -> str:
    shown = ", ".join(f'"{name}"' for name in names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return f"column{'s' if len(names) > 1 else ''} {shown}"


VECTORS = Vectors()
GAPPY = GappyVectors()
LABELS = Labels()
SPARSE = SparseVectors()  # of kernels that need inner products and lengths of points alone
HISTOGRAMS = Histograms()
ANYTHING = Anything()
STRINGS = Strings()


def name_of(function: Any) -> str:
    """A function's name, for reprs."""
    return str(getattr(function, "__name__", function))


def refuse_pickling(owner: Any, function: Any) -> dict[str, Any]:
    """The state of a kernel with a function inside. Raises KernelError for functions without a name of their own."""
    name = getattr(function, "__qualname__", "")
    if "<lambda>" in name or "<locals>" in name:
        raise KernelError(
            f"{owner!r} holds {name}, which cannot be saved: a file keeps a function by its name only. Define it with "
            "def at the top of a module."
        )
    return dict(vars(owner))


def real_array(X: Any, what: str) -> NDArray[np.float64]:
    """`X` (array, list, pandas, sparse, memmap; any real dtype) as float64, never modified.

    Raises DataTypeError for complex numbers, strings and other objects, DataError for masked entries.
    """
    refuse_masked(X, what)
    if sp.issparse(X):
        X = X.toarray()
    X = as_array(X, what)
    if X.dtype == object and all(isinstance(v, (Real, np.bool_)) for v in X.ravel()):
        try:
            X = X.astype(np.float64)  # pandas hands out objects for columns of mixed numeric types
        except OverflowError as error:
            raise DataError(
                f"Expected {what} to be numbers below 1e308 in size; got an integer with more digits. Change its units."
            ) from error
    if X.dtype == object and (stated := [v for v in X.ravel()[:1] if isinstance(v, cp.Expression)]):
        raise DataTypeError(
            f"Expected {what} to be an array; got a cvxpy {type(stated[0]).__name__}. Pass its value: points and other "
            "data of a kernel are arrays."
        )
    if X.dtype.kind not in "fiub":
        raise DataTypeError(
            f"Expected {what} to be real numbers; got dtype {X.dtype}{_first_other(X)}. Encode strings and categories "
            "as numbers and fill missing values first, split complex numbers into real and imaginary columns."
        )
    return X.astype(np.float64, copy=False)


def as_array(X: Any, what: str) -> Array:
    """`X` as an array. Raises DataError for rows of different lengths."""
    try:
        return np.asarray(X)
    except KernelOptError:  # θ says itself why it is no array
        raise
    except ValueError as error:
        raise DataError(f"Expected {what} to be a rectangular array; got rows of different lengths.") from error


def _first_other(X: Array) -> str:
    """The first entry that is no number, for a message."""
    others = (v for v in X.ravel() if not isinstance(v, (Real, np.bool_))) if X.dtype == object else ()
    return "".join(f" with {v!r:.40} ({type(v).__name__})" for v in islice(others, 1))


def _with_nan(X: Any) -> Any:
    """X with NaN in place of other objects for missing values, where it holds objects."""
    X = from_arrow(X)
    if sp.issparse(X) or isinstance(X, Iterator):
        return X
    table = as_array(X, "the data")
    if table.dtype != object or table.ndim != 2:
        return X
    flat = np.empty(table.size, dtype=object)
    flat[:] = [np.nan if entry(x) is None else x for x in table.ravel()]
    return flat.reshape(table.shape)


def may_miss(domain: Domain) -> bool:
    """Whether points may have missing values, which the kernel refuses or not."""
    return domain is GAPPY or domain is LABELS or isinstance(domain, FrameRows)


def ordered_names(X: Any, domain: Domain) -> Names:
    """Names of the columns of a table, for kernels that identify columns by their position."""
    return None if isinstance(domain, FrameRows) else column_names(X)


def column_names(X: Any) -> Names:
    """Names of the columns of a table of pandas, polars or Arrow; None unless they are all strings, or all integers."""
    if is_lazy(X):  # which would be asked to resolve its columns, and is refused where its values are read
        return None
    columns = getattr(X, "column_names", getattr(X, "columns", None))  # Arrow's `columns` are the data
    names = tuple(columns) if isinstance(columns, Iterable) else ()
    alike = any(all(isinstance(name, kind) for name in names) for kind in (str, (int, np.integer)))
    return names if names and alike else None


def check_order(found: Names, names: Names) -> None:
    """Raise DataError for the known names in another order: kernels identify columns by their position alone."""
    if found is not None and names is not None and found != names and sorted(found) == sorted(names):
        raise DataError(
            f"Expected columns in the order of the data before, {list(names)}; got {list(found)}. Write "
            f"X[{list(names)}], or X.to_numpy() if this order is meant."
        )


def check_finite(X: Array, what: str) -> None:
    """Raise DataError naming `what` and the first entries that are NaN or infinite."""
    bad = ~np.isfinite(X)
    if bad.any():
        where = [tuple(int(i) for i in index) for index in np.argwhere(bad)[:3]]
        places = ", ".join(str(i[0] if len(i) == 1 else i) for i in where)
        raise DataError(
            f"Expected {what} to be finite; got {int(bad.sum())} NaN or infinite "
            f"value{'s' if bad.sum() > 1 else ''}, first at {places}. Remove or impute them first."
        )
