"""Kernels given by a function, and those of other libraries."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from kernelopt.errors import KernelError
from kernelopt.kernels.domains import ANYTHING, VECTORS, Domain, identities, name_of, real_array, refuse_pickling
from kernelopt.kernels.kernel import COMPOSITIONS, Kernel, Verdict, require, symmetric
from kernelopt.kernels.rounding import Inexact
from kernelopt.support import clock
from kernelopt.support.checks import is_function_of_two, shown
from kernelopt.support.locks import Lock
from kernelopt.support.types import Array, Ints

# Points up to which values of a function are remembered, 8 bytes for each pair: 32 MB.
MOST_REMEMBERED = 2000


class Remembered:
    """Values of a function between points, by the order of its arguments; NaN where it was not called.

    types : the types of its values
    """

    def __init__(self) -> None:
        self.types = set[type]()
        self._numbers: dict[object, int] = {}
        self._points: list[Any] = []  # names of objects that cannot be hashed are valid while these live
        self._values = np.empty((0, 0))
        self._lock = Lock()

    def places(self, X: Array, add: bool) -> Ints | None:
        """The numbers of points, given to new ones if `add`; None if some have none, or there are too many."""
        names = identities(X)
        with self._lock:
            new = {name: i for i, name in enumerate(names) if name not in self._numbers}
            if new and (not add or len(self._numbers) + len(new) > MOST_REMEMBERED):
                return None
            for name, i in new.items():
                self._numbers[name] = len(self._points)
                self._points.append(X[i])
            count, size = len(self._points), len(self._values)
            if count > size:
                grown = np.full((max(count, min(2 * size, MOST_REMEMBERED)),) * 2, np.nan)
                grown[:size, :size] = self._values
                self._values = grown
            return np.array([self._numbers[name] for name in names], dtype=np.intp)

    def between(self, left: Ints, right: Ints) -> Array:
        """A copy of the values."""
        return self._values[np.ix_(left, right)]

    def diagonal(self, at: Ints) -> Array:
        """A copy of the values of points with themselves."""
        return self._values[at, at]

    def note_diagonal(self, at: Ints, values: Array) -> None:
        with self._lock:
            self._values[at, at] = values

    def note(self, left: Ints, right: Ints, values: Array, types: set[type]) -> None:
        """Keep the values of all pairs."""
        with self._lock:
            self._values[np.ix_(left, right)] = values
            self.types |= types


@dataclass(frozen=True)
class FromFunction(Kernel):
    """κ(x, y) from a callable, on pairs of any objects or on lists of them.

    Parameters
    ----------
    function : callable
        function(x, y) → number, or with `on_lists` function(list, list) → matrix. Data may be lists of any objects,
        or a matrix of numbers, whose rows are then the points.
    on_lists : bool
    psd : bool or None
        True if you know that κ is positive semidefinite; by default it is decided for each data set. A declaration is
        refused if a sample of up to 512 rows of the data contradicts it; see `declarations()`.

    Raises
    ------
    KernelError
        When the callable does not return finite numbers of the right shape, or is not symmetric. Symmetry is tested for
        each point with up to three points before it. Differences up to 1e-10·√(κ(x, x)κ(y, y)) count as rounding.

    Examples
    --------
    >>> import kernelopt as ko
    >>> common = ko.kernels.FromFunction(lambda a, b: len(a & b), psd=True)
    >>> common([{1, 2, 3}, {2, 3}, {5}])
    array([[3., 2., 0.],
           [2., 2., 0.],
           [0., 0., 1.]])
    """

    function: Callable[[Any, Any], Any]
    on_lists: bool = False
    psd: bool | None = None
    _memory: ClassVar[Remembered | None] = None

    def __post_init__(self) -> None:
        require(is_function_of_two(self.function), "function", "a function of two points", self.function)
        require(isinstance(self.on_lists, bool), "on_lists", "True or False", self.on_lists)
        require(self.psd is None or isinstance(self.psd, bool), "psd", "True, False or None", self.psd)

    def remembering(self) -> FromFunction:
        """The same kernel, which calls the function once for each pair of up to 2000 points.

        These are the points whose Gram matrix or diagonal was asked for.
        """
        made = replace(self)
        object.__setattr__(made, "_memory", Remembered())
        return made

    @property
    def domain(self) -> Domain:
        return ANYTHING

    def _verdict(self) -> Verdict:
        if self.psd is None:
            return Verdict(None, "a function: decided for each data set")
        return Verdict(self.psd, "a function declared to be so")

    def _declared(self) -> tuple[str, ...]:
        return (f"{self!r} is positive semidefinite, as declared",) if self.psd else ()

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        other = X if Z is None else Z
        values, types = self._values(X, Z)
        K = np.array(real_array(values, f"the values of {self!r}"))
        if K.shape != (len(X), len(other)):
            raise KernelError(f"Expected {self!r} to give a matrix {(len(X), len(other))}; got shape {K.shape}.")
        if not np.isfinite(K).all():
            i, j = (int(v) for v in np.argwhere(~np.isfinite(K))[0])
            raise KernelError(f"Expected {self!r} to give finite numbers; got {K[i, j]} for points {i} and {j}.")
        return symmetric(K, self, _precision(types)) if Z is None else K

    def _values(self, X: Array, Z: Array | None) -> tuple[Any, set[type]]:
        """The matrix, and the types of its values; what is remembered is not called for again."""
        call, memory = self._on_lists if self.on_lists else self._on_pairs, self._memory
        left = None if memory is None else memory.places(X, Z is None)
        right = left if Z is None or memory is None or left is None else memory.places(Z, False)
        if memory is None or left is None or right is None:
            return call(X, Z, np.full((len(X), len(X if Z is None else Z)), np.nan))
        known = memory.between(left, right)
        if not np.isnan(known).any():
            return known, memory.types
        K, types = call(X, Z, known)
        if np.shape(K) == known.shape and all(issubclass(t, (Real, np.bool_)) for t in types):
            memory.note(left, right, K, types)
        return K, types | memory.types

    def _on_lists(self, X: Array, Z: Array | None, known: Array) -> tuple[Array, set[type]]:
        """The matrix that the function gives, and the type of its entries."""
        # Functions in Cython take arrays that may be written to, which these may not: they get copies.
        lists = (list(P) if P.dtype == object else np.array(P) for P in (X, X if Z is None else Z))
        K = np.asarray(self.function(*lists))
        return K, {K.dtype.type}

    def _on_pairs(self, X: Array, Z: Array | None, K: Array) -> tuple[Array, set[type]]:
        """K with values in the place of NaN, and the types of these. Where Z is None, some pairs get both orders."""
        types = set[type]()

        def fill(i: int, j: int, x: Any, z: Any) -> None:
            value = self._value(x, z)
            types.add(type(value))
            K[i, j] = value

        for i, x in enumerate(X):
            clock.check()
            for j in np.flatnonzero(np.isnan(K[i] if Z is not None else K[i, : i + 1])).tolist():
                fill(i, j, x, (X if Z is None else Z)[j])
            if Z is None:
                for j in {0, i // 2, i - 1} if i else ():
                    if np.isnan(K[j, i]):
                        fill(j, i, X[j], x)
                K[:i, i] = np.where(np.isnan(K[:i, i]), K[i, :i], K[:i, i])
        return K, types

    def _value(self, x: Any, y: Any) -> Any:
        value = self.function(x, y)
        if not isinstance(value, (Real, np.bool_)):
            raise KernelError(f"Expected {self!r} to give a number for a pair; got {type(value).__name__}.")
        try:
            float(value)
        except OverflowError as error:
            raise KernelError(
                f"Expected {self!r} to give numbers below 1e308; got a larger integer. Rescale the function."
            ) from error
        return value

    def _diagonal(self, X: Array) -> Array:
        memory = self._memory
        at = None if memory is None else memory.places(X, True)
        known = np.full(len(X), np.nan) if memory is None or at is None else memory.diagonal(at)
        for i in np.flatnonzero(np.isnan(known)):
            known[i] = self._matrix(X[i : i + 1], None)[0, 0] if self.on_lists else float(self._value(X[i], X[i]))
        if memory is not None and at is not None:
            memory.note_diagonal(at, known)
        return known

    def _rounding(self, at: Inexact) -> float:
        """0: values are taken as the function gives them."""
        return 0.0

    def __getstate__(self) -> dict[str, Any]:
        state = refuse_pickling(self, self.function)
        state.pop("_memory", None)
        return state

    def __repr__(self) -> str:
        options = (", on_lists=True" if self.on_lists else "") + ("" if self.psd is None else f", psd={self.psd}")
        return f"FromFunction({name_of(self.function)}{options})"


@dataclass(frozen=True)
class FromSklearn(Kernel):
    """κ(x, y) of a kernel object of `sklearn.gaussian_process.kernels`.

    Parameters
    ----------
    kernel : kernel object of sklearn.gaussian_process.kernels

    Examples
    --------
    >>> import kernelopt as ko
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> ko.Theta(RBF(length_scale=2.0)).kernel
    FromSklearn(RBF(length_scale=2))
    """

    kernel: Any

    def __post_init__(self) -> None:
        require(_is_sklearn(self.kernel), "kernel", "a kernel of sklearn.gaussian_process.kernels", self.kernel)
        object.__setattr__(self, "kernel", copy.deepcopy(self.kernel))  # scikit-learn's kernels are mutable
        parts = [self.kernel, *self.kernel.get_params().values()]
        if any(type(part).__name__ == "WhiteKernel" for part in parts):
            raise KernelError(
                "Expected a kernel whose value depends on its points alone; WhiteKernel differs between κ(X) and "
                "κ(X, X). Write the other part + noise_level * ko.kernels.Delta()."
            )

    @property
    def domain(self) -> Domain:
        return VECTORS

    @property
    def is_stationary(self) -> bool:
        return bool(self.kernel.is_stationary())

    def _verdict(self) -> Verdict:
        return Verdict(None, "a kernel of another library: decided for each data set")

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        K = np.array(self.kernel(X, Z), dtype=np.float64)
        return symmetric(K, self) if Z is None and np.isfinite(K).all() else K

    def _diagonal(self, X: Array) -> Array:
        return np.asarray(self.kernel.diag(X), dtype=np.float64)

    def _rounding(self, at: Inexact) -> float:
        """0: values are taken as the other library gives them."""
        return 0.0

    def __hash__(self) -> int:
        return hash(repr(self.kernel))

    def __repr__(self) -> str:
        return f"FromSklearn({self.kernel!r})"


def _precision(types: Iterable[type]) -> float:
    """The coarsest relative precision of numpy's floating types among these; 0 without any."""
    return max((float(np.finfo(t).eps) for t in types if issubclass(t, np.floating)), default=0.0)


def as_kernel(value: Any) -> Kernel:
    """`value` if it is a kernel; a kernel object or function of scikit-learn or a function of pairs is wrapped as one.

    Raises KernelError for anything else.

    Parameters
    ----------
    value : Kernel, or an object that can be wrapped
        A kernel object of sklearn.gaussian_process, a function of sklearn.metrics.pairwise, or one of two points.

    Returns
    -------
    Kernel

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> kernel = ko.kernels.as_kernel(lambda x, z: float(x @ z) ** 2)
    >>> kernel(np.array([[1.0]]), np.array([[3.0]]))
    array([[9.]])
    """
    if isinstance(value, Kernel):
        return value
    if _is_sklearn(value):
        return FromSklearn(value)
    if is_function_of_two(value):
        pairwise = str(getattr(value, "__module__", "")).startswith("sklearn.metrics.pairwise")
        return FromFunction(value, on_lists=pairwise)  # such functions take matrices
    raise KernelError(
        f"Expected a kernel, such as ko.kernels.Gaussian(sigma=1.0), or a function of two points; got {shown(value)}."
    )


def _is_sklearn(value: Any) -> bool:
    """Whether it is a kernel object of sklearn.gaussian_process, by its methods: scikit-learn may not be installed."""
    needed = ("is_stationary", "diag", "get_params")
    return callable(value) and not isinstance(value, type) and all(hasattr(value, name) for name in needed)


COMPOSITIONS["as"] = as_kernel
