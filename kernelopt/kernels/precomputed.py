"""Kernels given by a matrix, or by a feature map."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelopt.errors import DataError, KernelError
from kernelopt.kernels.domains import Domain, Indices, check_finite, frozen, key, name_of, real_array, refuse_pickling
from kernelopt.kernels.kernel import Kernel, Verdict, require
from kernelopt.kernels.rounding import Inexact, underflow
from kernelopt.support.arithmetic import gamma
from kernelopt.support.types import Array

# The largest difference between the features of a point alone and among others, relative to their length, that counts
# as rounding. It leaves room above single precision, 1e-7; larger values miss maps that depend weakly on other points.
POINTWISE = 1e-5


@dataclass(frozen=True, eq=False, repr=False)
class Precomputed(Kernel):
    """κ(i, j) = Qᵢⱼ for a given kernel matrix Q; points are row numbers.

    Whether Q is positive semidefinite is decided when it is factored, to 1e-10 of its largest eigenvalue.

    Parameters
    ----------
    Q : array (N, N)
        Symmetric to 1e-12 relative to its largest entry (1e-6 if given in float32, 1e-2 in float16). Entries count as
        given, integers as well. If rounding in float32 or float16 makes Q indefinite, by up to ten units of that type
        relative to its largest eigenvalue, problems are solved for Q̃, in which eigenvalues λ ≤ |λ_min| are 0, and
        `certificate.rests_on` and `explain()` state ‖Q − Q̃‖.

    Raises
    ------
    DataError
        For a matrix that is not square, not finite or not symmetric.

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> kernel = ko.kernels.Precomputed(np.eye(3))
    >>> kernel([0, 2])
    array([[1., 0.],
           [0., 1.]])
    """

    Q: Array
    _key: object = field(init=False)
    _precision: float = field(init=False)

    def __post_init__(self) -> None:
        Q = real_array(self.Q, "the precomputed kernel matrix")
        given = np.asarray(self.Q).dtype
        rounded = given.kind == "f" and given.itemsize < np.dtype(float).itemsize
        precision = float(np.finfo(given if rounded else float).eps)
        tolerance = 10 * precision if rounded else 1e-12  # above the unit roundoffs 5e-4, 6e-8 and 1e-16
        if Q.ndim != 2 or Q.shape[0] != Q.shape[1] or Q.size == 0:
            raise DataError(
                f"Expected a square kernel matrix of shape (N, N); got shape {Q.shape}. Kernel values "
                "between new and old points go to theta.value.from_gram(K)."
            )
        check_finite(Q, "the precomputed kernel matrix")
        asymmetry = float(np.abs(Q - Q.T).max())
        if asymmetry > tolerance * np.abs(Q).max():
            raise DataError(
                f"Expected a symmetric kernel matrix (to {tolerance:g} of its largest entry); got "
                f"|Q − Qᵀ| up to {asymmetry:.3g}. If only rounding is to blame, pass (Q + Q.T) / 2."
            )
        object.__setattr__(self, "Q", frozen(np.array(Q)))
        object.__setattr__(self, "_key", key(self.Q))
        object.__setattr__(self, "_precision", precision)

    @property
    def domain(self) -> Domain:
        return Indices(len(self.Q))

    def _verdict(self) -> Verdict:
        return Verdict(None, "a given matrix: decided when it is factored")

    @property
    def precision(self) -> float:
        return self._precision

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        return self.Q[np.ix_(X, X if Z is None else Z)]

    def _diagonal(self, X: Array) -> Array:
        return self.Q[X, X]

    def _rounding(self, at: Inexact) -> float:
        """0: the values are the data."""
        return 0.0

    def _n_features(self, X: Array) -> float:
        return len(self.Q)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Precomputed) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"Precomputed({self.Q.tolist() if len(self.Q) < 6 else f'<{len(self.Q)} × {len(self.Q)} matrix>'})"


@dataclass(frozen=True)
class Explicit(Kernel):
    """κ(x, y) = F(x)ᵀF(y) for a known feature map.

    Parameters
    ----------
    feature_map : callable
        Takes a matrix (n, n_columns), returns the matrix (n, p) with rows F(xᵢ)ᵀ. Kernels with the
        same callable are equal.

    Raises
    ------
    KernelError
        When the map returns something that is not a finite matrix with one row per point.

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> kernel = ko.kernels.Explicit(lambda X: np.column_stack([X, X**2]))
    >>> kernel([[1.0], [2.0]])
    array([[ 2.,  6.],
           [ 6., 20.]])
    """

    feature_map: Callable[[Array], Any]

    def __post_init__(self) -> None:
        require(callable(self.feature_map), "feature_map", "a callable", self.feature_map)

    def _verdict(self) -> Verdict:
        return Verdict(True, "F is given")

    def _features(self, X: Array) -> Array:
        F = real_array(self.feature_map(X), f"the features of {self!r}")
        if F.ndim != 2 or len(F) != len(X):
            raise KernelError(
                f"Expected the feature map to return {len(X)} rows, shape ({len(X)}, p); got shape {F.shape}."
            )
        if not np.isfinite(F).all():
            raise KernelError(f"Expected finite features; the feature map of {self!r} returned NaN or inf.")
        return F

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        F = self._features(X)
        G = F if Z is None else self._features(Z)
        if F.shape[1] != G.shape[1]:
            raise KernelError(
                f"Expected the feature map of {self!r} to give one number of features; got {F.shape[1]} for "
                f"{len(F)} points and {G.shape[1]} for {len(G)}. Fit its parameters to all data beforehand."
            )
        if Z is None and len(X) > 1:
            self._require_pointwise(X, F)
        return F @ G.T

    def _require_pointwise(self, X: Array, F: Array) -> None:
        """Raise KernelError if the last point alone has other features than among others; one point is a cheap test."""
        alone = self._features(X[-1:])[0]
        if alone.shape != F[-1].shape or np.linalg.norm(alone - F[-1]) > POINTWISE * np.linalg.norm(F[-1]):
            raise KernelError(
                f"Expected the features of a point to depend on that point alone; the feature map of {self!r} gives "
                f"other features for point {len(X) - 1} if it gets this point alone. Fit its parameters, such as means "
                "or categories, beforehand."
            )

    def _diagonal(self, X: Array) -> Array:
        F = self._features(X)
        return np.einsum("ij,ij->i", F, F)

    def _rounding(self, at: Inexact) -> float:
        """γ_p for p features, which are taken as exact."""
        F, size = self._features(at.points), self._diagonal(at.points)
        return gamma(F.shape[1]) + underflow(size, (F != 0).any(axis=1), F.shape[1])

    def _n_features(self, X: Array) -> float:
        return self._features(X[:1]).shape[1]

    def __getstate__(self) -> dict[str, Any]:
        return refuse_pickling(self, self.feature_map)

    def __repr__(self) -> str:
        return f"Explicit({name_of(self.feature_map)})"
