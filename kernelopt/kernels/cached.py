"""A kernel whose values between known points are computed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelopt.kernels.adjoints import pull
from kernelopt.kernels.chain import Order
from kernelopt.kernels.domains import Domain, frozen, identities, key
from kernelopt.kernels.interval_means import Spread
from kernelopt.kernels.kernel import COMPOSITIONS, Adjoint, Kernel, Verdict, require_kernels
from kernelopt.kernels.parametrized import kept_at_present
from kernelopt.kernels.rounding import Inexact
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array, Ints


@dataclass(frozen=True, eq=False)
class Cached(Kernel):
    """κ(x, y), looked up where all points are rows of a data set, whose kernel matrix is computed at the first use.

    For many problems on parts of one data set: folds of a cross-validation, subsamples, grids over other parameters.
    The matrix takes N² numbers, lives as long as the kernel, and is not saved to files. Where some points are not rows
    of the data, values are computed.

    Parameters
    ----------
    kernel : Kernel
    data : points (n)
        Their kernel values are kept.

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> X = np.array([[0.0], [1.0], [3.0]])
    >>> kernel = ko.kernels.Gaussian(sigma=1.0).cached(X)
    >>> bool(np.allclose(kernel(X[1:], X[:1]), kernel.kernel(X[1:], X[:1])))
    True
    """

    kernel: Kernel
    data: Array

    def __post_init__(self) -> None:
        require_kernels(self.kernel)
        object.__setattr__(self, "data", frozen(np.array(self.kernel.rows(self.data))))

    @cached_property
    def _matrix_of_data(self) -> Array:
        return frozen(self.kernel._matrix(self.data, None))

    @cached_property
    def _numbers(self) -> dict[object, int]:
        return {name: i for i, name in enumerate(identities(self.data))}

    def at_present(self) -> Kernel:
        """The kernel with numbers, the same object while the parameters keep their values: it keeps its matrix."""
        return kept_at_present(self, self.kernel)

    @property
    def _known(self) -> Array:
        """The matrix of the data, at the parameters' present values."""
        present = self.at_present()
        assert isinstance(present, Cached)
        return present._matrix_of_data

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        return pull(self, 1, wanted, points)(X, Z, G)

    def _places(self, X: Array) -> Ints | None:
        """The row numbers of these points in the data; None if one of them is not in the data."""
        if X.dtype != self.data.dtype or X.shape[1:] != self.data.shape[1:]:
            return None
        found = [self._numbers.get(name, -1) for name in identities(X)]
        return None if -1 in found else np.array(found, dtype=np.intp)

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        i = self._places(X)
        j = i if Z is None else self._places(Z)
        if i is None or j is None:
            return self.kernel._matrix(X, Z)
        return self._known[np.ix_(i, j)]

    def _diagonal(self, X: Array) -> Array:
        i = self._places(X)
        return self.kernel._diagonal(X) if i is None else self._known[i, i]

    def _rounding(self, at: Inexact) -> float:
        """The bound for these points and all of the data, with which cached values were computed."""
        alike = at.points.dtype == self.data.dtype and at.points.shape[1:] == self.data.shape[1:]
        return self.kernel._rounding(at.beside(self.data) if alike else at)

    def _size(self, X: Array, order: Order = ()) -> Array:
        if not order and self._places(X) is not None and self.kernel.is_psd is not False:
            return np.abs(self._diagonal(X))
        return self.kernel._size(X, order)

    def _require_means(self, columns: int, normal: bool) -> None:
        self.kernel._require_means(columns, normal)

    def _used_columns(self, columns: int) -> frozenset[int]:
        return self.kernel._used_columns(columns)

    def _means(self, X: Spread, Z: Spread) -> Array:
        return self.kernel._means(X, Z)

    def _means_diagonal(self, X: Spread) -> Array:
        return self.kernel._means_diagonal(X)

    def _means_size(self, X: Spread) -> Array:
        return self.kernel._means_size(X)

    def _means_rounding(self, X: Spread, error: Array | None = None) -> float:
        return self.kernel._means_rounding(X, error)

    @property
    def domain(self) -> Domain:
        return self.kernel.domain

    def _verdict(self) -> Verdict:
        return Verdict(self.kernel.is_psd, "the same values, kept")

    @property
    def is_stationary(self) -> bool:
        return self.kernel.is_stationary

    @property
    def is_isotropic(self) -> bool:
        return self.kernel.is_isotropic

    def _n_features(self, X: Array) -> float:
        return self.kernel._n_features(X)

    def _features(self, X: Array) -> Array:
        return self.kernel._features(X)

    def _evaluator(self, centers: Array, coefficients: Array) -> Callable[[Array], Array] | None:
        return self.kernel._evaluator(centers, coefficients)

    def __getstate__(self) -> dict[str, Any]:
        return {"kernel": self.kernel, "data": self.data}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cached) and self.kernel == other.kernel and key(self.data) == key(other.data)

    def __hash__(self) -> int:
        return hash((self.kernel, key(self.data)))

    def __repr__(self) -> str:
        return f"({self.kernel!r}).cached({self.data.tolist() if len(self.data) < 6 else f'<{len(self.data)} points>'})"


COMPOSITIONS["cached"] = Cached
