"""Load values from a file that need not be trusted: its contents are checked, and never run as code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from math import isnan
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelopt.errors import FormatError, KernelOptError, OptionError
from kernelopt.kernels import Kernel, as_kernel
from kernelopt.kernels.derivatives import CODES, WithDerivatives, on_jets, require_smooth
from kernelopt.kernels.domains import VECTORS, check_finite, frozen, real_array
from kernelopt.kernels.records import records
from kernelopt.kernels.sparse_rows import sparse_rows
from kernelopt.kernels.spreads import WithMeans
from kernelopt.language.functions import Function
from kernelopt.language.predictors import Predictor, _Atom, _Points, _Value
from kernelopt.persistence.archive import Archive, shortened
from kernelopt.persistence.vocabulary import (
    ATOMS,
    DEPTH,
    FORMAT,
    KERNELS,
    SCHEMA,
    require_path_and_names,
    sklearn_kernels,
)
from kernelopt.results.solution import FittedFunction
from kernelopt.support.checks import shown
from kernelopt.support.cvxpy_parts import AddExpression
from kernelopt.support.types import Array

MAX_BYTES = 2**30  # bytes of memory: larger values admit larger models, smaller ones protect against hostile files


def load(path: Any, /, *, kernels: Mapping[str, Any] | None = None, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Load what `ko.save` saved, by name.

    Safe for files from anywhere: code that a file names is never run, sizes are checked before memory is allocated, and
    memory is bounded.

    Parameters
    ----------
    path : str or path
    kernels : {"name": kernel, class of kernels, or function}, optional
        The kernels and functions of your own that names in the file stand for. Only these are called.
    max_bytes : largest contents, in bytes of memory; 1 GiB by default

    Returns
    -------
    dict
        Fitted functions, predictors, and arrays (of shape () for single numbers). The parts of a function are checked
        to fit each other. A kernel of your own can't be checked: it must be the one that the function was fitted with.

    Raises
    ------
    FormatError
        For contents that are not as `ko.save` writes them, and for names that `kernels` doesn't have. The message says
        what was expected and what was found.
    OSError
        Where there is no such file.

    Examples
    --------
    >>> import os, tempfile, numpy as np, kernelopt as ko
    >>> f = ko.Function(
    ...     ko.kernels.Gaussian(sigma=1.0), np.array([[0.0], [1.0]]), np.array([1.0, -1.0])
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ko.save(os.path.join(folder, "model.ko"), f=f, scale=np.array([2.0]))
    ...     model = ko.load(os.path.join(folder, "model.ko"))
    >>> sorted(model), bool(np.array_equal(model["f"]([[0.5]]), f([[0.5]])))
    (['f', 'scale'], True)
    """
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1:
        raise OptionError(f"Expected max_bytes to be an integer ≥ 1; got {shown(max_bytes)}.")
    require_path_and_names(path, kernels)
    with Archive(path, max_bytes) as file, np.errstate(all="ignore"):
        try:
            values = _Decoder(file, dict(kernels or {})).values(file.document())
        except RecursionError as error:
            raise FormatError("Expected JSON that is not deep; got brackets nested too deeply.") from error
        file.require_all_read()
    return values


@contextmanager
def _as_format_errors(what: str) -> Iterator[None]:
    """Raise FormatError for what the library's own checks refuse: here the file is at fault."""
    try:
        yield
    except FormatError:
        raise
    except (KernelOptError, ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
        raise FormatError(f"Expected {what}; got one that does not hold together: {shortened(error)}") from error


class _Decoder:
    def __init__(self, file: Archive, given: dict[str, Any]) -> None:
        self.file = file
        self.given = given
        self.depth = 0

    def values(self, document: Any) -> dict[str, Any]:
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise FormatError(f"Expected a JSON object with format {FORMAT!r}; got {shortened(document)}.")
        if type(document.get("schema")) is not int or document["schema"] != SCHEMA:
            raise FormatError(
                f"Expected schema {SCHEMA}; got {shortened(document.get('schema'))}, of kernelopt "
                f"{shortened(document.get('kernelopt'))}. A newer version of kernelopt may read it."
            )
        _fields(document, "format", "schema", "kernelopt", "values")
        if not isinstance(document["values"], dict):
            raise FormatError(f"Expected values by name; got {shortened(document['values'])}.")
        return {name: self.value(value) for name, value in document["values"].items()}

    def value(self, value: Any) -> Any:
        kind = value.get("kind") if isinstance(value, dict) else None
        if kind == "predictor":
            _fields(value, "kind", "node")
            return Predictor._of_node(self.node(value["node"]))
        return self.function(value) if kind == "function" else self.array(value)

    # ------------------------------------------------------------ arrays

    def array(self, value: Any) -> Array:
        _fields(value, "kind", "member", kind="array")
        return self.file.array(_count(value["member"]))

    def points(self, value: Any) -> Any:
        if isinstance(value, dict) and value.get("kind") == "strings":
            _fields(value, "kind", "member")
            return self.file.strings(_count(value["member"]))
        if isinstance(value, dict) and value.get("kind") == "sparse":
            _fields(value, "kind", "columns", "data", "indices", "indptr")
            data, indices, indptr = (self.array(value[name]) for name in ("data", "indices", "indptr"))
            return _sparse(data, indices, indptr, value["columns"])
        if isinstance(value, dict) and value.get("kind") == "labels":
            _fields(value, "kind", "entries")
            return self.column(value["entries"])
        if isinstance(value, dict) and value.get("kind") == "table":
            _fields(value, "kind", "columns")
            return self.table(value["columns"])
        return self.array(value)

    def table(self, columns: Any) -> Array:
        """Rows of a data frame."""
        if not isinstance(columns, dict) or not columns:
            raise FormatError(f"Expected columns by name; got {shortened(columns)}.")
        read = {name: self.column(column) for name, column in columns.items()}
        lengths = {len(column) for column in read.values()}
        if lengths == {0} or len(lengths) > 1:
            raise FormatError(f"Expected columns of one length ≥ 1; got {sorted(lengths)}.")
        return records(read)

    def column(self, value: Any) -> list[Any]:
        """Values of one column: numbers, strings, booleans, and None where they are missing."""
        if isinstance(value, dict):
            numbers = self.array(value)
            if numbers.ndim != 1 or numbers.dtype != np.float64:
                raise FormatError(f"Expected a column of doubles; got {numbers.dtype} of shape {numbers.shape}.")
            return [None if isnan(v) else v for v in numbers.tolist()]
        for entry in _list(value):
            if not (entry is None or type(entry) in (str, int, bool, float)):
                raise FormatError(f"Expected numbers, strings, booleans or null; got {shortened(entry)}.")
        return _list(value)

    # ------------------------------------------------------------ functions

    def function(self, value: Any) -> Function:
        _fields(value, "kind", "kernel", "centers", "coefficients", "fit", kind="function")
        kernel = self.kernel(value["kernel"])
        with _as_format_errors(f"a function of {shortened(repr(kernel))}"):
            centers = _rows(kernel, self.points(value["centers"]))
            coefficients = _real(self.array(value["coefficients"]), "the coefficients")
            if coefficients.ndim not in (1, 2) or len(coefficients) != len(centers):
                raise FormatError(
                    f"Expected a coefficient for each of {len(centers)} centers; got shape {coefficients.shape}."
                )
            if value["fit"] is None:
                return Function._of_rows(kernel, centers, coefficients)
            return self.fitted(value["fit"], kernel, centers, coefficients)

    def fitted(self, fit: Any, kernel: Kernel, centers: Array, coefficients: Array) -> FittedFunction:
        _fields(fit, "products", "pivots", "pivot_coefficients", "distance")
        products, pivots = _real(self.array(fit["products"]), "products"), self.array(fit["pivots"])
        at_pivots, distance = _real(self.array(fit["pivot_coefficients"]), "coefficients"), fit["distance"]
        outputs = 1 if coefficients.ndim == 1 else coefficients.shape[1]
        if products.shape != (outputs, outputs) or np.trace(products) < 0:
            raise FormatError(f"Expected products of {outputs} outputs, with a trace ≥ 0; got shape {products.shape}.")
        if (
            pivots.dtype.kind not in "iu"
            or pivots.ndim != 1
            or at_pivots.shape != (len(pivots), *coefficients.shape[1:])
        ):
            raise FormatError(f"Expected a row of coefficients per pivot; got {at_pivots.shape} for {pivots.shape}.")
        if distance is not None and not (type(distance) is float and 0 <= distance < np.inf):
            raise FormatError(f"Expected a distance ≥ 0 and finite; got {shortened(distance)}.")
        f = FittedFunction(
            kernel, centers, coefficients,
            products=frozen(products), pivots=frozen(pivots), pivot_coefficients=frozen(at_pivots), dual=None,
        )  # fmt: skip
        f._distance = None if distance is None else float(distance)
        return f

    def node(self, value: Any) -> Any:
        """A node of a predictor's tree."""
        kind = value.get("kind") if isinstance(value, dict) else None
        if kind == "points":
            _fields(value, "kind", "function")
            return _Points(None if value["function"] is None else self.function(value["function"]))
        if kind == "part":
            _fields(value, "kind", "function", "number", "columns")
            function = None if value["function"] is None else self.function(value["function"])
            columns = None if value["columns"] is None else tuple(_count(c) for c in _list(value["columns"]))
            return _Points(function, _count(value["number"]), columns)
        if kind == "value":
            _fields(value, "kind", "value")
            return _Value(self.array(value["value"]))
        _fields(value, "kind", "name", "arguments", "data", kind="atom")
        atom = _known(ATOMS, value["name"], "an atom")
        with self:
            args = tuple(self.node(arg) for arg in _list(value["arguments"]))
        data = tuple(self.datum(d) for d in _list(value["data"]))
        with _as_format_errors(f"arguments of {atom.__name__}"):
            signature(atom).bind(*((args,) if atom is AddExpression else args), *data)
        return _Atom(atom, data, args)

    def datum(self, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(self.datum(v) for v in value)
        if isinstance(value, dict):
            _fields(value, "kind", "ends", kind="slice")
            ends = _list(value["ends"])
            if len(ends) != 3 or not all(end is None or type(end) is int for end in ends):
                raise FormatError(f"Expected a slice of integers; got {shortened(ends)}.")
            return slice(*ends)
        return value

    # ------------------------------------------------------------ kernels

    def kernel(self, value: Any) -> Kernel:
        kernel = self.parameter(value)
        if isinstance(kernel, Kernel):
            return kernel
        if not callable(kernel):
            raise FormatError(f"Expected a kernel; got {shortened(value)}.")
        with _as_format_errors("a kernel"):
            return as_kernel(kernel)

    def parameter(self, value: Any) -> Any:
        """A kernel's parameter: a number, string, array, kernel, object that the caller named, or several of these."""
        if isinstance(value, list):
            return tuple(self.parameter(v) for v in value)
        if not isinstance(value, dict):
            return value
        kind = value.get("kind")
        if kind in ("array", "strings", "sparse", "table", "labels"):
            points = self.points(value)
            if kind == "array" and not np.isfinite(_numbers(points)).all():
                raise FormatError("Expected finite parameters of a kernel; got NaN or infinity.")
            return points
        if kind == "list":
            _fields(value, "kind", "items")
            return [self.parameter(v) for v in _list(value["items"])]
        if kind == "float32":
            _fields(value, "kind", "value")
            if type(value["value"]) is not float:
                raise FormatError(f"Expected a number; got {shortened(value['value'])}.")
            return np.float32(value["value"])
        if kind == "given" and "parameters" not in value:
            _fields(value, "kind", "name")
            return self.named(value["name"])
        _fields(value, "kind", "name", "parameters")
        if kind == "given":
            made = self.named(value["name"])
            if not (isinstance(made, type) and issubclass(made, Kernel)):
                raise FormatError(f"Expected {shortened(value['name'])!r} in kernels to be a class; got {made!r}.")
            return self.made(made, value)
        if kind == "sklearn":
            made = self.made(_known(sklearn_kernels(), value["name"], "a kernel of scikit-learn"), value)
            with _as_format_errors(f"parameters of {value['name']}"):
                _ = made.theta, made.bounds, repr(made)  # scikit-learn checks parameters only here
            return made
        if kind != "kernel":
            raise FormatError(f"Expected a kernel or a parameter of one; got {shortened(value)}.")
        return self.made(_known(KERNELS, value["name"], "a kernel"), value)

    def made(self, kind: Callable[..., Any], value: dict[str, Any]) -> Any:
        """A kernel of a known class, made from its parameters."""
        if not isinstance(value["parameters"], dict):
            raise FormatError(f"Expected parameters by name; got {shortened(value['parameters'])}.")
        with self:
            own = {name: self.parameter(v) for name, v in value["parameters"].items()}
        with _as_format_errors(f"parameters of {shortened(value['name'])}"):
            return kind(**own)

    def named(self, name: Any) -> Any:
        # Only the caller's own objects are used: a name is never imported.
        if not isinstance(name, str) or name not in self.given:
            raise FormatError(
                f"Expected kernels to say what {shortened(name)} stands for, as in ko.load(path, "
                f"kernels={{{shortened(repr(name))}: …}}); got {', '.join(self.given) or 'no names'}."
            )
        return self.given[name]

    def __enter__(self) -> None:
        self.depth += 1
        if self.depth > DEPTH:
            raise FormatError(f"Expected kernels and expressions at most {DEPTH} deep; got deeper ones.")

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


def _fields(value: Any, *names: str, kind: str | None = None) -> None:
    """Raise FormatError unless the value is an object with exactly these names, and of this kind."""
    if not isinstance(value, dict) or set(value) != set(names) or (kind is not None and value["kind"] != kind):
        what = f" of kind {kind!r}" if kind else ""
        raise FormatError(f"Expected an object{what} with {', '.join(names)}; got {shortened(value)}.")


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise FormatError(f"Expected a list; got {shortened(value)}.")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise FormatError(f"Expected the number of a member; got {shortened(value)}.")
    return value


def _known(table: Mapping[str, Any], name: Any, what: str) -> Any:
    if not isinstance(name, str) or name not in table:
        raise FormatError(f"Expected {what}, one of {', '.join(sorted(table))}; got {shortened(name)}.")
    return table[name]


def _real(array: Array, what: str) -> Array:
    if array.dtype != np.float64:
        raise FormatError(f"Expected {what} in float64; got {array.dtype}.")
    check_finite(array, what)
    return array


def _numbers(array: Array) -> Array:
    if array.dtype.kind not in "biuf":
        raise FormatError(f"Expected real numbers; got {array.dtype}.")
    return array


def _sparse(data: Array, indices: Array, indptr: Array, columns: Any) -> Array:
    """The rows of a sparse matrix, by its compressed rows."""
    _real(data, "the entries of sparse points")
    for array in (indices, indptr):
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise FormatError(f"Expected places of sparse points as integers; got {array.dtype}, shape {array.shape}.")
    ends = bool(len(indptr)) and indptr[0] == 0 and indptr[-1] == len(indices) == len(data)
    inside = type(columns) is int and 0 < columns < 2**31 and bool(np.all((indices >= 0) & (indices < columns)))
    if not (ends and inside and data.ndim == 1 and np.all(np.diff(indptr) >= 0)):
        raise FormatError(f"Expected places of sparse points row by row, in {shortened(columns)} columns; got others.")
    return sparse_rows(sp.csr_array((data, indices, indptr), shape=(len(indptr) - 1, columns)))


def _rows(kernel: Kernel, points: Any) -> Array:
    """Centers as the kernel takes them; an empty array for θ = 0."""
    if on_jets(kernel):
        return _jets(kernel, real_array(points, "the centers"))
    if isinstance(kernel, WithMeans):
        return _spreads(kernel, real_array(points, "the centers"))
    if len(points):
        return kernel.rows(points)
    empty = np.empty(0, dtype=object) if isinstance(points, list) else points
    return frozen(empty)


def _jets(kernel: Kernel, rows: Array) -> Array:
    """Points whose last columns hold codes of a derivative: the columns to differentiate by, −1 for no derivative."""
    if len(rows):
        rows = VECTORS.rows(rows, "a function on derivatives")
    if rows.ndim != 2 or rows.shape[1] <= CODES:
        raise FormatError(f"Expected points with {CODES} codes of a derivative; got shape {rows.shape}.")
    codes, width = rows[:, -CODES:], rows.shape[1] - CODES
    first, second = codes[:, 0], codes[:, 1]
    known = (codes == np.floor(codes)) & (codes >= -1) & (codes < width)
    if not known.all() or (second > -1)[first == -1].any():
        raise FormatError("Expected columns of the points, or −1, as codes of a derivative; got others.")
    order = int((codes >= 0).sum(axis=1).max(initial=0))
    _require_smooth(kernel, order)
    return frozen(rows)


def _spreads(kernel: WithMeans, rows: Array) -> Array:
    """Points with half-widths and standard deviations, of which each point has one kind at most."""
    if len(rows):
        rows = VECTORS.rows(rows, "a function on integrals")
    if rows.ndim != 2 or rows.shape[1] % 3 or not rows.shape[1]:
        raise FormatError(f"Expected centres, half-widths and deviations, 3d columns; got shape {rows.shape}.")
    _, halves, deviations = np.hsplit(rows, 3)
    if (halves < 0).any() or (deviations < 0).any() or (halves.any(axis=1) & deviations.any(axis=1)).any():
        raise FormatError("Expected half-widths or standard deviations ≥ 0 at each point; got others.")
    kernel.kernel._require_means(rows.shape[1] // 3, bool(deviations.any()))
    return frozen(rows)


def _require_smooth(kernel: Kernel, order: int) -> None:
    if isinstance(kernel, WithDerivatives):
        require_smooth(kernel.kernel, order)
        return
    for part in kernel.parts:
        _require_smooth(part, order)
