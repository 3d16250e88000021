"""Factors that problems with the same rows and kernel share, such as the fits of a grid search."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from kernelopt.errors import OptionError
from kernelopt.factorization.factor import Factor
from kernelopt.language.rows import Rows
from kernelopt.support.checks import is_real, shown
from kernelopt.support.locks import Lock
from kernelopt.support.types import Array


@dataclass(frozen=True, eq=False)
class _Entry:
    rows: Rows
    factor: Factor
    bytes: float


class FactorCache:
    """Factors of kernel matrices, shared by problems that differ in their loss, labels, weights or penalty alone.

    Use it in grid searches, which state a new problem for each fit: `problem.solve(cache=cache)`, or an estimator with
    `solve_options={"cache": cache}`, whose clones share it. A factor is reused if kernels are equal, all rows are equal
    and in the same order, and the options of the factorization are equal. Factors of more than 2000 rows are not kept,
    since they grow with each problem's certificate.

    Threads may share a cache. A copy is the same cache. A pickled cache is empty, also in the processes of joblib.

    Parameters
    ----------
    max_bytes : float > 0
        The least recently used factors go where all together, with BBᵀ and the rows, exceed it. A grid search needs all
        of its folds: with n rows in each fit 16n² bytes per fold and kernel at most. `clear()` empties the cache.

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> from sklearn.model_selection import GridSearchCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 2))
    >>> y = X[:, 0] * X[:, 1] > 0
    >>> cache, kernel = ko.FactorCache(), ko.kernels.Gaussian(sigma=1.0)
    >>> model = ko.estimators.KernelClassifier(
    ...     "hinge", kernel=kernel, solve_options={"cache": cache}
    ... )
    >>> search = GridSearchCV(model, {"alpha": [0.1, 1.0, 10.0]}, cv=5).fit(X, y)
    >>> len(cache)
    6
    """

    max_bytes: float
    _lock: Lock
    _known: OrderedDict[Hashable, _Entry]

    def __init__(self, max_bytes: float = 1e9) -> None:
        limitless = isinstance(max_bytes, float) and max_bytes == float("inf")
        if not limitless and not (is_real(max_bytes) and max_bytes > 0):
            raise OptionError(f"Expected max_bytes to be a number > 0; got {shown(max_bytes)}.")
        self.max_bytes = float(max_bytes)
        self._lock = Lock()
        self._known = OrderedDict()

    def factor(self, rows: Rows, options: Hashable, make: Callable[[], Factor]) -> Factor:
        """The factor of equal rows and options, else the one that `make` returns, which is kept."""
        key = rows.fingerprint(), options
        with self._lock:
            entry = self._known.get(key)
            if entry is not None and _same(rows, entry.rows):  # the key has digests of arrays
                self._known.move_to_end(key)
                return entry.factor
        found = make()
        size = _bytes(rows, found)
        if found.room is not None or found.grows or size > self.max_bytes:
            return found
        with self._lock:
            self._known[key] = _Entry(rows, found, size)
            self._known.move_to_end(key)
            while sum(one.bytes for one in self._known.values()) > self.max_bytes:
                self._known.popitem(last=False)
        return found

    def clear(self) -> None:
        """Forget all factors."""
        with self._lock:
            self._known.clear()

    def __len__(self) -> int:
        """The number of factors."""
        return len(self._known)

    def __bool__(self) -> bool:
        return True

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # scikit-learn's clone copies parameters, and clones share the cache

    def __reduce__(self) -> Any:
        return type(self), (self.max_bytes,)

    def __repr__(self) -> str:
        return f"FactorCache(max_bytes={self.max_bytes:g})"


def _bytes(rows: Rows, factor: Factor) -> float:
    """Memory of a factor, of BBᵀ, which solvers may add to it, and of the rows."""
    n, r = factor.B.shape
    arrays = (rows.points, rows.centers, rows.combinations)
    return 8.0 * n * (n + r) + sum(array.nbytes for array in arrays)


def _same(one: Rows, other: Rows) -> bool:
    """Whether all numbers are the same; other points were compared by their key."""
    pairs = (
        (one.points, other.points), (one.centers, other.centers), (one.combinations, other.combinations),
    )  # fmt: skip
    return all(_equal(a, b) for a, b in pairs)


def _equal(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and (a.dtype == object or np.array_equal(a, b))
