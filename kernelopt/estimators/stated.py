"""Estimators from functions that state a problem."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import lru_cache, reduce
from numbers import Real
from typing import Any, Self, cast

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data

from kernelopt.errors import DataError, KernelOptError, OptionError
from kernelopt.estimators.classification import numbered_classes
from kernelopt.estimators.kernel_names import ChoosesKernel
from kernelopt.estimators.model import is_matrix, read_objects, solved, targets
from kernelopt.estimators.sample import explained, require_data, require_numbers
from kernelopt.estimators.scoring import Classifier, Regressor
from kernelopt.kernels.domains import ANYTHING
from kernelopt.kernels.sources import refuse_masked
from kernelopt.language.predictors import Predictor
from kernelopt.problem import Problem
from kernelopt.support.checks import is_function
from kernelopt.support.types import Array

OWN = ("solve_options",)  # parameters of the class that are not arguments of `build`


def from_problem(build: Callable[..., Any], kind: str = "regressor") -> type[Any]:
    """A scikit-learn estimator class from a function that states a problem.

    The parameters of the class are `solve_options` (a dict for `Problem.solve`) and the arguments of `build` that have
    a default, so that `GridSearchCV` can choose them. Arguments without default, besides X and y, are data that `fit`
    takes by name, with an entry for each row: `fit(X, y, group=group)`. Those with a default may be given to `fit`
    too, such as sample_weight=None. `build` gets lists of numbers or strings, frames and series as arrays, and arrays
    as read-only views. A frame of several columns, not all of numbers, stays a frame, for kernels of columns by name.

    With scikit-learn's metadata routing, `set_fit_request` has the arguments without default and those whose default is
    None: `set_fit_request(group=True)`.

    Parameters
    ----------
    build : function (X, y, **params) → (problem, f)
        problem, a `ko.Problem`, is solved by `fit`. f gives the predictions, an entry (or row) for each row of X. It is
        what `ko.Predictor(f, X)` takes: an expression such as `theta(X) + b`, which may use columns of X, or a function
        of X that returns one. A function of other data that it computes from X, such as `np.sin(X)`, is called at new
        points; the fitted estimator can then not be pickled.
    kind : "regressor" or "classifier"
        A classifier gives `build` labels −1 and +1 for two classes, and 0 … K−1 for more, where f has shape (n, K);
        `predict` returns the classes, `decision_function` f.

    Returns
    -------
    class with `fit(X, y, **data)`, `predict`, `score`, and after a fit `certificate_`, `n_features_in_`, `classes_`
        It pickles if `build` does, so define `build` with def at the top of a module. `from_problem` works as a
        decorator too.

    Raises
    ------
    OptionError
        For a `build` that is not such a function, for arguments with names of other attributes, and for another kind.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> def monotone(X, y, lam=1.0, sigma=1.0):
    ...     theta, b = ko.Theta(ko.kernels.Gaussian(sigma=sigma)), cp.Variable()
    ...     f = theta(X) + b
    ...     rising = cp.diff(f[np.argsort(X[:, 0])]) >= 0
    ...     return ko.Problem(
    ...         cp.Minimize(cp.sum_squares(y - f) + lam * ko.sum_squares(theta)), [rising]
    ...     ), f
    >>> Monotone = ko.estimators.from_problem(monotone)
    >>> from sklearn.model_selection import GridSearchCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(60, 1))
    >>> y = np.tanh(X[:, 0]) + 0.1 * rng.normal(size=60)
    >>> search = GridSearchCV(Monotone(lam=0.1), {"sigma": [0.5, 1.0, 2.0]}, cv=3).fit(X, y)
    >>> search.best_estimator_.predict([[2.0], [-2.0]]).round(1)
    array([ 0.9, -1. ])
    """
    bases = {"regressor": _StatedRegressor, "classifier": _Classifier}
    if not isinstance(kind, str) or kind not in bases:
        raise OptionError(f'Expected kind to be "regressor" or "classifier"; got {kind!r}.')
    arguments = list(inspect.signature(build).parameters.values()) if is_function(build) else []
    if len(arguments) < 2 or any(a.kind in (a.VAR_POSITIONAL, a.VAR_KEYWORD, a.POSITIONAL_ONLY) for a in arguments):
        raise OptionError(f"Expected a function build(X, y, ...) with arguments that have names; got {build!r}.")
    if any(a.name == "self" for a in arguments):
        raise OptionError("Expected other names for build's arguments than self, the estimator; write a function.")
    taken = [a.name for a in arguments[2:] if a.name in OWN or hasattr(bases[kind], a.name)]
    if taken:
        raise OptionError(f"Expected other names for build's arguments; an estimator has {', '.join(taken)} already.")
    return _made(build, kind, bases[kind])


@lru_cache(maxsize=256)
def _made(build: Callable[..., Any], kind: str, base: type[_Stated]) -> type[Any]:
    """The class; scikit-learn reads its parameters from the signature of `__init__`. One `build` gives one class."""
    defaults = {
        a.name: a.default for a in list(inspect.signature(build).parameters.values())[2:] if a.default is not a.empty
    } | dict.fromkeys(OWN)

    def init(self: Any, **params: Any) -> None:
        unknown = ", ".join(sorted(set(params) - set(defaults)))
        if unknown:
            raise TypeError(f"{type(self).__name__} has no parameter {unknown}; it has {', '.join(defaults)}.")
        for name, value in (defaults | params).items():
            setattr(self, name, value)

    keyword = inspect.Parameter.KEYWORD_ONLY
    own = [inspect.Parameter(name, keyword, default=value) for name, value in defaults.items()]
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    cast(Any, init).__signature__ = inspect.Signature([first, *own])
    name = getattr(build, "__name__", type(build).__name__)
    members = {
        "__init__": init, "fit": _fit_of(build, base), "__doc__": build.__doc__,
        "__module__": getattr(build, "__module__", __name__),
        "__qualname__": getattr(build, "__qualname__", name), "_build": staticmethod(build), "_kind": kind,
    }  # fmt: skip
    return type(name, (base,), members)


def _fit_of(build: Callable[..., Any], base: type[_Stated]) -> Callable[..., Any]:
    """`fit` with the names of the data in its signature, where scikit-learn looks for sample_weight and other metadata.

    Data are the arguments of `build` without default, and those whose default is None.
    """

    def fit(self: Any, X: Any, y: Any, **data: Any) -> Any:
        return base.fit(self, X, y, **data)

    keyword = inspect.Parameter.KEYWORD_ONLY
    own = list(inspect.signature(base.fit).parameters.values())
    named = [
        a.replace(kind=keyword, annotation=a.empty)
        for a in list(inspect.signature(build).parameters.values())[2:]
        if a.default is a.empty or a.default is None
    ]
    cast(Any, fit).__signature__ = inspect.Signature([*own[:-1], *named, own[-1]])
    fit.__doc__ = base.fit.__doc__
    return fit


def _blank(build: Callable[..., Any], kind: str) -> Any:
    """An empty estimator, to be filled with the pickled state."""
    return object.__new__(from_problem(build, kind))


class _Stated(ChoosesKernel):
    """The base of the classes that `from_problem` makes."""

    _build: Callable[..., Any]
    _kind: str
    solve_options: Any

    def fit(self, X: Any, y: Any, **data: Any) -> Self:
        raise NotImplementedError

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle by way of `build`, as the class is made at run time.

        A decorated `build` is replaced by the class, which its module then has by name: it pickles as usual.
        """
        cls = type(self)
        module = sys.modules.get(cls.__module__)
        try:
            is_named = reduce(getattr, cls.__qualname__.split("."), cast(Any, module)) is cls
        except AttributeError:
            is_named = False
        if is_named:
            return super().__reduce_ex__(protocol)
        return _blank, (cls._build, cls._kind), self.__getstate__()

    def _fit(self, X: Any, y: Array, data: dict[str, Any]) -> None:
        """State the problem, solve it, and keep its predictor."""
        names = list(inspect.signature(self._build).parameters)[2:]
        params = {name: getattr(self, name) for name in names if hasattr(self, name)} | data
        unknown, missing = sorted(set(params) - set(names)), sorted(set(names) - set(params))
        if unknown or missing:
            raise DataError(
                f"Expected fit to get the arguments of {type(self).__name__}, {', '.join(names)}; "
                + (f"got {', '.join(unknown)}." if unknown else f"missing: {', '.join(missing)}.")
            )
        for name, value in data.items():
            refuse_masked(value, name)
        check_consistent_length(X, y, *(v for v in data.values() if v is not None))
        given = {name: _read_only(_as_array(value)) for name, value in data.items()}
        problem, f = _stated(self._build(_read_only(X), _read_only(y), **params | given))
        self.certificate_ = solved(self, problem)
        try:
            self._predictor = Predictor(f, X)
        except KernelOptError as error:
            if not isinstance(f, cp.Expression) or f.value is not None:
                raise
            raise DataError(
                "Expected f to be made of θs and variables of the problem that build returns beside it; a part of it "
                "has no value after the solve."
            ) from error

    def _read(self, X: Any, y: Any = "no_validation", *, reset: bool = True, **checks: Any) -> Any:
        require_data(X, "X")
        require_data(y, "y")
        if _has_objects(X):
            return read_objects(self, X, y, reset)
        if _is_mixed(X):
            if reset:
                validate_data(self, X, skip_check_array=True)
            return X if isinstance(y, str) else (X, targets(self, X, y))
        with explained("X"):
            return validate_data(self, X, y, reset=reset, dtype=np.float64, **checks)

    def _at(self, X: Any) -> Array:
        check_is_fitted(self)
        return self._predictor(self._read(X, reset=False))


class _StatedRegressor(Regressor, _Stated):
    def fit(self, X: Any, y: Any, **data: Any) -> Self:
        """State the problem for (X, y, **data) and solve it."""
        require_numbers(y)
        X, y = self._read(X, y, y_numeric=True, multi_output=True)
        y = column_or_1d(y, warn=True) if y.ndim == 2 and y.shape[1] == 1 else y
        self._fit(X, np.asarray(y, dtype=np.float64), data)
        return self

    def predict(self, X: Any) -> Array:
        """f at new points, in the shape that it has: (n,) or (n, K)."""
        return self._at(X)


class _Classifier(Classifier, _Stated):
    def fit(self, X: Any, y: Any, **data: Any) -> Self:
        """State the problem for (X, labels, **data) and solve it."""
        X, y = self._read(X, y)
        self.classes_, numbers = numbered_classes(y, np.ones(len(X)))
        self._fit(X, 2.0 * numbers - 1 if len(self.classes_) == 2 else numbers, data)
        return self

    def decision_function(self, X: Any) -> Array:
        """f at new points, (n,), positive for `classes_[1]`; for K > 2 classes (n, K)."""
        return self._at(X)

    def predict(self, X: Any) -> Array:
        """The class of each point, (n,)."""
        f = self.decision_function(X)
        return self.classes_[(f > 0).astype(int) if f.ndim == 1 else f.argmax(axis=1)]


def _has_objects(X: Any) -> bool:
    """Whether X is a list, a vector, or a table with one column, of points that are no numbers."""
    shape: Any = getattr(X, "shape", ())
    table = isinstance(shape, tuple) and len(shape) == 2
    if table and (sp.issparse(X) or shape[1] != 1):
        return False
    points = ANYTHING.of_column(X, "X") if table else X
    if not isinstance(points, list):
        points = points.tolist() if len(getattr(points, "shape", ())) == 1 and hasattr(points, "tolist") else [None]
    return all(isinstance(x, (str, set, frozenset, dict)) for x in points)


def _read_only(value: Any) -> Any:
    """A view of an array that `build` cannot change: the array may be the caller's."""
    if not isinstance(value, np.ndarray):
        return value
    view = value.view()
    view.flags.writeable = False
    return view


def _is_mixed(X: Any) -> bool:
    """Whether X is a frame of several columns, not all of which are numbers."""
    frame = hasattr(X, "columns") and isinstance(getattr(X, "shape", None), tuple) and len(X.shape) == 2
    return (
        frame
        and X.shape[1] > 1
        and not is_matrix(X)
        and not all(isinstance(value, (Real, np.bool_)) or value is None for value in np.asarray(X).ravel())
    )


def _as_array(value: Any) -> Any:
    """Data of rows as an array, as X and y are; lists of other objects, such as graphs, stay lists."""
    plain = isinstance(value, list | tuple) and all(isinstance(v, bool | int | float | str | np.generic) for v in value)
    return (
        np.asarray(value) if plain or (hasattr(value, "__array__") and not hasattr(value, "__dask_graph__")) else value
    )


def _stated(returned: Any) -> tuple[Problem, Any]:
    """The pair (problem, f) that `build` returned. Raises DataError for other values."""
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[0], Problem):
        return returned
    raise DataError(f"Expected build to return (problem, f), a ko.Problem and its predictions; got {returned!r}.")
