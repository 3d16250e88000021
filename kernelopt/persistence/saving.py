"""Save values to a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from importlib.metadata import version
from math import isfinite, isnan
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.compiler.attributes import dense
from kernelopt.errors import DataError, DataTypeError, KernelError, KernelOptError
from kernelopt.kernels import FromSklearn, Kernel, as_kernel
from kernelopt.kernels.domains import name_of
from kernelopt.kernels.records import are_records, number, objects
from kernelopt.kernels.sources import refuse_masked
from kernelopt.kernels.sparse_rows import is_sparse, matrix, width
from kernelopt.language.expressions import Theta
from kernelopt.language.functions import Function
from kernelopt.language.nodes import ThetaLeaf
from kernelopt.language.predictors import Predictor, _Atom, _Points, _Value
from kernelopt.persistence import archive
from kernelopt.persistence.archive import KINDS, LARGEST_ITEM
from kernelopt.persistence.vocabulary import (
    ATOMS,
    DEPTH,
    FORMAT,
    KERNELS,
    SCHEMA,
    parameters,
    require_path_and_names,
    sklearn_kernels,
)
from kernelopt.results.solution import FittedFunction
from kernelopt.support.checks import is_function_of_two
from kernelopt.support.types import Array


def save(path: Any, /, *unnamed: Any, kernels: Mapping[str, Any] | None = None, **values: Any) -> None:
    """Save fitted functions, arrays, values of cvxpy variables, and predictors, by name, in one file.

    The file is a zip of JSON and .npy. `ko.load` restores values, and so predictions, bit for bit. The file holds no
    code: a kernel of the library is saved by its name and parameters. A function inside a kernel, or a kernel of your
    own, is saved by a name, which `ko.load` looks up in its argument `kernels`. An old file is replaced once the new
    one is complete, and its permissions are kept.

    Parameters
    ----------
    path : str or path
    *unnamed : none; each value needs a name
    kernels : {"name": kernel, class of kernels, or function}, optional
        Names for kernels and functions of your own. Functions and classes that are defined at the top of a module need
        no name here: they are saved by their own. The file holds only the name of a kernel that is named here, for
        example without the matrix of a `Precomputed` kernel.
    **values : the objects to save, by name
        `ko.Theta` (its value) or `ko.Function`; `ko.Predictor`; cvxpy variables, parameters and expressions without θ
        (their values); arrays of numbers or strings, and values that numpy converts to one. A fitted function is saved
        with all that predictions, norm, pivots and `optimality_bound` need, without the training data; save
        `theta.value.expanded()` to keep the support vectors.

    Returns
    -------
    None

    Raises
    ------
    KernelError
        For a function without a name, such as a lambda, and for a kernel that its parameters do not determine.
    KernelOptError, DataError, DataTypeError
        For objects that have no value yet, and for values of other kinds than those above, such as points that are
        neither numbers nor strings.
    OSError
        Where the file can't be written, or is a directory, a device or a pipe.

    Examples
    --------
    >>> import os, tempfile, cvxpy as cp, numpy as np, kernelopt as ko
    >>> X, y = np.arange(6.0)[:, None], np.array([1.0, 3.0, 5.0, 7.0, 9.0, 11.0])
    >>> theta, b = ko.Theta(ko.kernels.Gaussian(sigma=2.0)), cp.Variable()
    >>> loss = cp.sum_squares(y - theta(X) - b)
    >>> _ = ko.Problem(cp.Minimize(loss + 0.1 * ko.sum_squares(theta))).solve()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.ko")
    ...     ko.save(path, theta=theta, b=b)
    ...     model = ko.load(path)
    >>> bool(np.array_equal(model["theta"](X) + model["b"], (theta(X) + b).value))
    True
    """
    require_path_and_names(path, kernels)
    if unnamed:
        raise DataError(
            f"Expected each value by name, as in ko.save(path, theta=theta, b=b); got {type(unnamed[0]).__name__} "
            "without a name. A problem is not saved: save its θs and variables."
        )
    if not values:
        raise DataError("Expected something to save, as in ko.save(path, theta=theta, b=b); got no values.")
    encoder = _Encoder(dict(kernels or {}))
    document = {
        "format": FORMAT,
        "schema": SCHEMA,
        "kernelopt": version("kernelopt"),
        "values": {name: encoder.value(name, value) for name, value in values.items()},
    }
    archive.write(path, document, encoder.members)


class _Encoder:
    """Values as JSON; arrays and strings become members, in order."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.members: list[Array | list[str]] = []
        self.depth = 0

    def value(self, name: str, value: Any) -> Any:
        if isinstance(value, Predictor):
            return {"kind": "predictor", "node": self.node(value._node)}
        if isinstance(value, Theta):
            value = _required(value.value, name)
        if isinstance(value, Function):
            return self.function(value)
        if isinstance(value, cp.Expression):
            if any(isinstance(v, ThetaLeaf) for v in value.variables()):
                raise DataError(
                    f"Expected {name} to be a value; got an expression of θ. Save ko.Predictor({name}, X) to "
                    f"evaluate it at new points, or {name}.value for its present value."
                )
            value = dense(_required(value.value, name))
        return self.array(value, name)

    # ------------------------------------------------------------ arrays

    def array(self, value: Any, what: str) -> dict[str, Any]:
        refuse_masked(value, what)
        try:
            array = np.asarray(value) if not isinstance(value, dict) else np.array(value, dtype=object)
        except ValueError as error:
            raise DataTypeError(f"Expected {what} to be an array; got rows of several lengths: {error}") from error
        kind, size = array.dtype.kind, array.dtype.itemsize
        if kind not in KINDS or size > LARGEST_ITEM.get(kind, size):
            hint = "of an estimator save function_ and intercept_, of a problem its θ and variables"
            raise DataTypeError(
                f"Expected {what} to be a function, or an array of numbers or strings; got {type(value).__name__}"
                f"{f' of dtype {array.dtype}' if isinstance(value, np.ndarray) else ''}. "
                f"Files hold no other objects: {hint}, or use pickle."
            )
        return self.member("array", array)

    def points(self, rows: Array) -> dict[str, Any]:
        if rows.dtype != object:
            return self.member("array", rows)
        if is_sparse(rows):
            A = matrix(rows)
            parts = {name: self.array(getattr(A, name), name) for name in ("data", "indices", "indptr")}
            return {"kind": "sparse", "columns": width(rows), **parts}
        if are_records(rows):
            return {"kind": "table", "columns": {name: self.column(objects(rows, name), name) for name in rows[0]}}
        labels = [x is None or (isinstance(x, (bool, int, float)) and not isnan(x)) for x in rows]
        if any(labels) and all(a or type(x) is str for a, x in zip(labels, rows, strict=True)):
            return {"kind": "labels", "entries": self.column(rows, "labels")}
        for i, x in enumerate(rows):
            if type(x) is not str:
                raise DataTypeError(
                    f"Expected points that are numbers or strings; got {type(x).__name__} at {i}. Files hold no other "
                    "objects: use a kernel of strings or numbers that stand for them, with kernel.compose(look_up)."
                )
        return self.member("strings", list(rows))

    def column(self, values: Array, name: str) -> Any:
        """Numbers as an array, NaN where they are missing; strings, integers and booleans as they are."""
        if all(value is None or type(value) is float for value in values):
            return self.member("array", np.array([number(value) for value in values], dtype=np.float64))
        for i, value in enumerate(values):
            if not (value is None or type(value) in (str, int, bool) or (type(value) is float and isfinite(value))):
                raise DataTypeError(
                    f"Expected {name} to hold numbers, strings and booleans; got {value!r:.40} "
                    f"({type(value).__name__}) at {i}. Files hold no other objects: convert them to strings."
                )
        return values.tolist()

    def member(self, kind: str, content: Array | list[str]) -> dict[str, Any]:
        self.members.append(content)
        return {"kind": kind, "member": len(self.members) - 1}

    # ------------------------------------------------------------ functions

    def function(self, f: Function) -> dict[str, Any]:
        fit = None
        if isinstance(f, FittedFunction):
            fit = {
                "products": self.array(f._products, "products"),
                "pivots": self.array(f.pivots, "pivots"),
                "pivot_coefficients": self.array(f.pivot_coefficients, "coefficients"),
                "distance": None if f._distance is None else float(f._distance),
            }
        return {
            "kind": "function",
            "kernel": self.kernel(f._kernel),
            "centers": self.points(f._centers),
            "coefficients": self.array(f._coefficients, "coefficients"),
            "fit": fit,
        }

    def node(self, node: Any) -> dict[str, Any]:
        """A node of a predictor's tree."""
        if isinstance(node, _Points):
            told: dict[str, Any] = {
                "kind": "points",
                "function": None if node.function is None else self.function(node.function),
            }
            if node.number or node.columns is not None:
                chosen = None if node.columns is None else list(node.columns)
                told |= {"kind": "part", "number": node.number, "columns": chosen}
            return told
        if isinstance(node, _Value):
            return {"kind": "value", "value": self.array(node.value, "a constant")}
        if not isinstance(node, _Atom):
            raise DataError(
                "Expected a predictor of theta(X), of X and of its columns alone, which holds numbers; got one that "
                "calls a function at new points. Give data that are computed from the points as another array: "
                "ko.Predictor(f, X, Z)."
            )
        name = node.kind.__name__
        if ATOMS.get(name) is not node.kind:
            raise DataError(
                f"Expected a predictor of the atoms that files know, {', '.join(sorted(ATOMS))}; got {name}. Save the "
                "functions and variables, and write the expression again where they are loaded."
            )
        with self:
            arguments = [self.node(arg) for arg in node.args]
        return {"kind": "atom", "name": name, "arguments": arguments, "data": [self.datum(d) for d in node.data]}

    def datum(self, value: Any) -> Any:
        """An argument of an atom that is not an expression: an axis, a power, an index."""
        if isinstance(value, slice):
            return {"kind": "slice", "ends": [self.datum(end) for end in (value.start, value.stop, value.step)]}
        if isinstance(value, (list, tuple)):
            return [self.datum(v) for v in value]
        if isinstance(value, cp.Constant):
            value = value.value
        if isinstance(value, np.ndarray):
            return value.tolist()
        return value.item() if isinstance(value, np.generic) else value

    # ------------------------------------------------------------ kernels

    def kernel(self, kernel: Kernel) -> dict[str, Any]:
        for name, given in self.given.items():
            if not isinstance(given, type) and _is_same(given, kernel):
                return {"kind": "given", "name": name}
        kernel = kernel.at_present()  # files hold numbers in place of parameters
        kind = type(kernel)
        known = [name for name, of_table in KERNELS.items() if of_table is kind]
        if isinstance(kernel, FromSklearn):
            return {"kind": "kernel", "name": known[0], "parameters": {"kernel": self.sklearn(kernel.kernel)}}
        if not is_dataclass(kernel):
            raise KernelError(f'{kernel!r} is no dataclass: name it in ko.save(…, kernels={{"name": kernel}}).')
        with self:
            own = {f: self.parameter(kernel, f, value) for f, value in parameters(kernel).items()}
        if not known:
            return {"kind": "given", "name": self.name(kind, kernel), "parameters": own}
        return {"kind": "kernel", "name": known[0], "parameters": own}

    def sklearn(self, kernel: Any) -> dict[str, Any]:
        kinds = sklearn_kernels()
        if type(kernel) not in kinds.values():
            raise KernelError(f'Files know no {kernel!r}: name it in ko.save(…, kernels={{"name": kernel}}).')
        own: dict[str, Any] = {}
        with self:
            for key, value in kernel.get_params(deep=False).items():
                nested = type(value) in kinds.values()
                own[key] = self.sklearn(value) if nested else self.parameter(kernel, key, value)
        return {"kind": "sklearn", "name": type(kernel).__name__, "parameters": own}

    def parameter(self, kernel: Any, name: str, value: Any) -> Any:
        if isinstance(value, Kernel):
            return self.kernel(value)
        if isinstance(value, np.ndarray):
            return self.points(value)
        if isinstance(value, list):
            return {"kind": "list", "items": [self.parameter(kernel, name, v) for v in value]}
        if isinstance(value, tuple):
            return [self.parameter(kernel, name, v) for v in value]
        if callable(value):
            return {"kind": "given", "name": self.name(value, kernel)}
        if isinstance(value, np.float32):
            return {"kind": "float32", "value": float(value)}
        if isinstance(value, (np.float64, np.integer, np.bool_)):
            value = value.item()
        if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and np.isfinite(value)):
            return value
        raise KernelError(
            f"Expected parameters of {kernel!r} that are finite numbers, strings, arrays, kernels or functions; got "
            f"{name} = {value!r}."
        )

    def name(self, thing: Any, kernel: Any) -> str:
        """The name of a function or class: the given one, or its own name in its module."""
        for name, given in self.given.items():
            if given is thing:
                return name
        name, path = name_of(thing), getattr(thing, "__qualname__", getattr(thing, "__name__", f"<{thing}>"))
        if "<" in path or "." in path:
            raise KernelError(
                f"{kernel!r} holds {path}, which has no name of its own, and files hold no code. Name it here and when "
                'loading, as in ko.save(…, kernels={"name": function}), or define it with def at the top of a module.'
            )
        if self.given.setdefault(name, thing) is not thing:
            raise KernelError(f"Two things are called {name}: name one of them in ko.save(…, kernels={{…}}).")
        return name

    def __enter__(self) -> None:
        self.depth += 1
        if self.depth > DEPTH:
            raise KernelError(f"Expected kernels and expressions at most {DEPTH} deep; got deeper ones.")

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


def _required(value: Any, name: str) -> Any:
    if value is None:
        raise KernelOptError(f"Expected a value of {name}; got none. Solve the problem first.")
    return value


def _is_same(given: Any, kernel: Kernel) -> bool:
    """Whether what is named is this kernel; a function of points is a part of one. Raises KernelError for others."""
    if callable(given) and not isinstance(given, Kernel) and not is_function_of_two(given):
        return False
    return bool(as_kernel(given) == kernel)
