"""Kernels of transformed points: weighted, composed, on columns, scaled by column, normalized, centered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

import numpy as np

from kernelopt.errors import DataError, KernelError
from kernelopt.kernels.adjoints import asks, combined, on_diagonal, pull, refuse_points, slices
from kernelopt.kernels.algebra import all_psd
from kernelopt.kernels.chain import Order
from kernelopt.kernels.domains import (
    ANYTHING,
    GAPPY,
    LABELS,
    Domain,
    frozen,
    key,
    may_miss,
    name_of,
    of_arrays,
    real_array,
    refuse_pickling,
)
from kernelopt.kernels.interval_means import Spread
from kernelopt.kernels.kernel import (
    COMPOSITIONS,
    FILL,
    Adjoint,
    Kernel,
    RealField,
    Verdict,
    entries,
    listed,
    no_means,
    nonnegative_numbers,
    require,
    require_kernels,
)
from kernelopt.kernels.parametrized import kept_at_present
from kernelopt.kernels.records import refuse_missing
from kernelopt.kernels.rounding import LEAST, Inexact, compounded, largest_ratio, repeated, spread, underflow
from kernelopt.support import clock
from kernelopt.support.arithmetic import UNIT, gamma
from kernelopt.support.checks import is_integer
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array, Bools

# Normalization is refused where the largest κ(x, x) is smaller. Such values, or products with them, may be denormal
# (below 2.2e-308) and have lost digits.
SMALLEST = 1e-290
# Of a mean of κ over a data set: kernel values that are formed at a time, 16 MB, and averages that are kept beside four
# for each point of the data.
BLOCK, KEPT = 2**21, 10_000


class _OfWeights(Kernel):
    """f(x)κ₀(x, y)f(y), where `_weights` returns f at points."""

    kernel: Kernel

    @property
    def domain(self) -> Domain:
        return self.kernel.domain

    def _weights(self, X: Array) -> Array:
        raise NotImplementedError

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        K, f = self.kernel._matrix(X, Z), self._weights(X)
        K *= f[:, None]
        K *= f if Z is None else self._weights(Z)
        return K

    def _diagonal(self, X: Array) -> Array:
        return self._weights(X) ** 2 * self.kernel._diagonal(X)

    def _rounding(self, at: Inexact) -> float:
        """(1 + r)(1 + γ₂) − 1, with weights taken as exact."""
        f, inner = self._weights(at.points), self.kernel._size(at.points)
        lost = underflow(f**2 * inner, (f != 0) & (inner > 0), 2)
        return compounded(self.kernel._rounding(at), gamma(4)) + lost

    def _size(self, X: Array, order: Order = ()) -> Array:
        return self._weights(X) ** 2 * self.kernel._size(X)

    def _n_features(self, X: Array) -> float:
        return self.kernel._n_features(X)

    def _features(self, X: Array) -> Array:
        return self._weights(X)[:, None] * self.kernel._features(X)


@dataclass(frozen=True)
class Weighted(_OfWeights):
    """κ(x, y) = f(x)κ₀(x, y)f(y), with F(x) = f(x)F₀(x).

    Parameters
    ----------
    kernel : Kernel
    weight : function of points → array

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> kernel = ko.kernels.Linear().weighted(lambda X: X[:, 0])
    >>> kernel(np.array([[1.0]]), np.array([[3.0]]))
    array([[9.]])
    """

    kernel: Kernel
    weight: Callable[[Any], Any]

    def __post_init__(self) -> None:
        require_kernels(self.kernel)
        require(callable(self.weight), "weight", "a callable", self.weight)

    def _verdict(self) -> Verdict:
        return all_psd((self.kernel,), "f(x)κ(x, y)f(y)")

    @property
    def domain(self) -> Domain:
        return of_arrays(self.kernel.domain)

    def _weights(self, X: Array) -> Array:
        f = real_array(self.weight(X), f"the weights of {self!r}")
        if f.shape != (len(X),) or not np.isfinite(f).all():
            name = name_of(self.weight)
            raise KernelError(f"Expected {name}(X) to give {len(X)} finite numbers; got shape {f.shape}.")
        return f

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """The weights f(x)G f(z); none for points, as the derivatives of f are unknown."""
        refuse_points(self, points)
        return pull(self, 1, wanted)(X, Z, self._weights(X)[:, None] * G * self._weights(Z))

    def __getstate__(self) -> dict[str, Any]:
        return refuse_pickling(self, self.weight)

    def __repr__(self) -> str:
        return f"({self.kernel!r}).weighted({name_of(self.weight)})"


class _OfPoints(Kernel):
    """κ₀(g(x), g(y)), where `_point` is g."""

    kernel: Kernel

    def _point(self, X: Array) -> Array:
        raise NotImplementedError

    def _check_points(self, X: Array) -> None:
        self.kernel._check_points(self._point(X))

    def _refuse(self, rows: Array) -> None:
        """Rows with NaN: what g makes of them is not known."""
        if rows.ndim == 2 and rows.dtype.kind == "f":
            refuse_missing(np.isnan(rows), range(rows.shape[1]), repr(self), FILL)

    @property
    def domain(self) -> Domain:
        return of_arrays(self.kernel.domain)

    @property
    def is_stationary(self) -> bool:
        return self.kernel.is_stationary

    def _verdict(self) -> Verdict:
        return all_psd((self.kernel,), "κ(g(x), g(y))")

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        return self.kernel._matrix(self._point(X), None if Z is None else self._point(Z))

    def _diagonal(self, X: Array) -> Array:
        return self.kernel._diagonal(self._point(X))

    def _kinks(self, X: Array, Z: Array) -> Bools | None:
        return self.kernel._kinks(self._point(X), self._point(Z))

    def _rounding(self, at: Inexact) -> float:
        """The bound of κ₀ at the mapped points, which are taken as exact."""
        return self.kernel._rounding(Inexact(self._point(at.points)))

    def _size(self, X: Array, order: Order = ()) -> Array:
        return self.kernel._size(self._point(X))

    def _n_features(self, X: Array) -> float:
        return self.kernel._n_features(self._point(X))

    def _features(self, X: Array) -> Array:
        return self.kernel._features(self._point(X))


@dataclass(frozen=True)
class Composed(_OfPoints):
    """κ(x, y) = κ₀(g(x), g(y)), with F(x) = F₀(g(x)). Points may be anything that g takes.

    Parameters
    ----------
    kernel : Kernel
    map : function of points → points

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> kernel = ko.kernels.Linear().compose(lambda X: X**2)
    >>> kernel(np.array([[1.0]]), np.array([[3.0]]))
    array([[9.]])
    """

    kernel: Kernel
    map: Callable[[Any], Any]

    is_stationary = False

    def __post_init__(self) -> None:
        require_kernels(self.kernel)
        require(callable(self.map), "map", "a callable", self.map)

    @property
    def domain(self) -> Domain:
        return ANYTHING

    def _point(self, X: Array) -> Array:
        points = self.kernel.rows(self.map(X if X.dtype != object else list(X)))
        if len(points) != len(X):
            raise KernelError(f"Expected {name_of(self.map)}(X) to give {len(X)} points; got {len(points)}.")
        return points

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """Those of κ₀ at the mapped points; none for points, as the derivatives of g are unknown."""
        refuse_points(self, points)
        return pull(self, 1, wanted)(self._point(X), self._point(Z), G)

    def __getstate__(self) -> dict[str, Any]:
        return refuse_pickling(self, self.map)

    def __repr__(self) -> str:
        return f"({self.kernel!r}).compose({name_of(self.map)})"


@dataclass(frozen=True)
class Columns(_OfPoints):
    """κ(x, y) = κ₀(x[J], y[J]) for chosen columns J.

    Parameters
    ----------
    kernel : Kernel
    columns : sequence of column numbers

    Examples
    --------
    >>> import kernelopt as ko
    >>> kernel = ko.kernels.Linear().on([1])
    >>> kernel([[1.0, 2.0]], [[3.0, 4.0]])
    array([[8.]])
    """

    kernel: Kernel
    columns: tuple[int, ...]

    def __post_init__(self) -> None:
        chosen = entries(self.columns)
        require_kernels(self.kernel)
        valid = bool(chosen) and all(is_integer(c) and c >= 0 for c in chosen)
        require(valid, "columns", "column numbers ≥ 0", self.columns)
        object.__setattr__(self, "columns", tuple(int(c) for c in chosen))

    @property
    def domain(self) -> Domain:
        domain = self.kernel.domain
        return GAPPY if domain is LABELS else of_arrays(domain)

    def _refuse(self, rows: Array) -> None:
        points = self._point(rows)
        if not may_miss(self.kernel.domain):
            refuse_missing(np.isnan(points), self.columns, repr(self.kernel), FILL)
        self.kernel._refuse(points)

    @property
    def _smoothness(self) -> int:
        return self.kernel._smoothness if len(set(self.columns)) == len(self.columns) else 0

    @property
    def _decreases(self) -> bool:
        return self.kernel._decreases and len(set(self.columns)) == len(self.columns)

    @property
    def _is_convex(self) -> bool:
        return self.kernel._is_convex

    @property
    def _is_power_series(self) -> bool:
        return self.kernel._is_power_series

    def _derivative(self, X: Array, dx: Order, Z: Array, dz: Order) -> Any:
        if not set(dx + dz) <= set(self.columns):
            return np.zeros((len(X), len(Z)))
        left, right = (tuple(self.columns.index(j) for j in order) for order in (dx, dz))
        return self.kernel._derivative(self._point(X), left, self._point(Z), right)

    def _rounding(self, at: Inexact) -> float:
        error = None if at.error is None else self._point(at.error)
        return self.kernel._rounding(at._replace(points=self._point(at.points), error=error))

    def _size(self, X: Array, order: Order = ()) -> Array:
        if not set(order) <= set(self.columns):
            return np.zeros(len(X))
        return self.kernel._size(self._point(X), tuple(self.columns.index(j) for j in order))

    def _require_means(self, columns: int, normal: bool) -> None:
        if len(set(self.columns)) < len(self.columns):
            raise no_means(self, "it takes a column twice, and the copies are not independent")
        if max(self.columns) >= columns:
            raise KernelError(
                f"Expected boxes or means with a column {max(self.columns)} for {self!r}; got {columns} columns. One "
                "of several columns is a row of a matrix, as in [[0.0, 0.0]]."
            )
        self.kernel._require_means(len(self.columns), normal)

    def _used_columns(self, columns: int) -> frozenset[int]:
        return frozenset(self.columns[j] for j in self.kernel._used_columns(len(self.columns)))

    def _means(self, X: Spread, Z: Spread) -> Array:
        return self.kernel._means(X.on(self.columns), Z.on(self.columns))

    def _means_diagonal(self, X: Spread) -> Array:
        return self.kernel._means_diagonal(X.on(self.columns))

    def _means_size(self, X: Spread) -> Array:
        return self.kernel._means_size(X.on(self.columns))

    def _means_rounding(self, X: Spread, error: Array | None = None) -> float:
        return self.kernel._means_rounding(X.on(self.columns), None if error is None else self._point(error))

    def _point(self, X: Array) -> Array:
        if X.ndim != 2 or max(self.columns) >= X.shape[1]:
            raise KernelError(f"Expected points with a column {max(self.columns)}; got shape {X.shape}.")
        return X[:, self.columns]

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """The gradients to the chosen columns, added up where a column is chosen twice."""
        found = pull(self, 1, wanted, points)(self._point(X), self._point(Z), G)
        return found._replace(X=self._spread(found.X, X), Z=self._spread(found.Z, Z))

    def _spread(self, gradient: Array | None, X: Array) -> Array | None:
        if gradient is None:
            return None
        total = np.zeros(X.shape)
        for place, column in enumerate(self.columns):
            total[:, column] += gradient[:, place]
        return total

    def __repr__(self) -> str:
        return f"({self.kernel!r}).on({list(self.columns)!r})"


@dataclass(frozen=True)
class ARD(_OfPoints):
    """κ(x, y) = κ₀(x/ℓ, y/ℓ) with a length scale ℓⱼ > 0 for each column.

    Parameters
    ----------
    kernel : Kernel
    scales : array (n_columns,)
        Length scales > 0 of the columns, in their units.

    Examples
    --------
    >>> import kernelopt as ko
    >>> kernel = ko.kernels.Linear().ard([1.0, 2.0])
    >>> kernel([[1.0, 2.0]], [[3.0, 4.0]])
    array([[5.]])
    """

    kernel: Kernel
    scales: tuple[float, ...]

    _reals: ClassVar = {"scales": RealField("positive", 1)}

    def __post_init__(self) -> None:
        require_kernels(self.kernel)
        scales = nonnegative_numbers(self.scales, "scales")
        require(min(scales) > 0, "scales", "numbers > 0", self.scales)
        object.__setattr__(self, "scales", scales)

    def _refuse(self, rows: Array) -> None:
        self.kernel._refuse(rows)

    @property
    def _smoothness(self) -> int:
        return self.kernel._smoothness

    @property
    def _decreases(self) -> bool:
        return self.kernel._decreases

    @property
    def _is_convex(self) -> bool:
        return self.kernel._is_convex

    @property
    def _is_power_series(self) -> bool:
        return self.kernel._is_power_series

    def _derivative(self, X: Array, dx: Order, Z: Array, dz: Order) -> Any:
        centre = self._centre(Z)
        inner = self.kernel._derivative(self._point(X, centre), dx, self._point(Z, centre), dz)
        return inner / float(np.prod([self.scales[j] for j in dx + dz]))

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        centre = self._centre(X if Z is None else Z)
        return self.kernel._matrix(self._point(X, centre), None if Z is None else self._point(Z, centre))

    def _rounding(self, at: Inexact) -> float:
        """The bound of κ₀ for points with errors u|x|/ℓ, or γ₂|x − c|/ℓ where c is subtracted first."""
        points = self._point(at.points, self._centre(at.points))
        return compounded(self.kernel._rounding(at._replace(points=points, error=self._error(at))), gamma(8))

    def _error(self, at: Inexact) -> Array:
        """Bounds on the errors of the points of κ₀."""
        X = at.points
        rounded = gamma(3) * spread(X) if self.kernel.is_stationary else UNIT * np.abs(X)
        error = (rounded + (0.0 if at.error is None else at.error)) / np.array(self.scales) + LEAST * (X != 0)
        return np.asarray(error)

    def _require_means(self, columns: int, normal: bool) -> None:
        if columns != len(self.scales):
            raise KernelError(
                f"Expected boxes or means with {len(self.scales)} columns, one per scale of {self!r}; got {columns} "
                "columns. One of several columns is a row of a matrix, as in [[0.0, 0.0]]."
            )
        self.kernel._require_means(columns, normal)

    def _used_columns(self, columns: int) -> frozenset[int]:
        return self.kernel._used_columns(columns)

    def _means(self, X: Spread, Z: Spread) -> Array:
        centre, scales = self._centre(Z.centres), np.array(self.scales)
        return self.kernel._means(X.over(centre, scales), Z.over(centre, scales))

    def _means_diagonal(self, X: Spread) -> Array:
        return self.kernel._means_diagonal(X.over(self._centre(X.centres), np.array(self.scales)))

    def _means_size(self, X: Spread) -> Array:
        return self.kernel._means_size(X.over(self._centre(X.centres), np.array(self.scales)))

    def _means_rounding(self, X: Spread, error: Array | None = None) -> float:
        """The bound of κ₀ for centres with errors as in `_rounding`."""
        at = Inexact(X.centres, error)
        inner = X.over(self._centre(X.centres), np.array(self.scales))
        return compounded(self.kernel._means_rounding(inner, self._error(at)), gamma(8))

    def _size(self, X: Array, order: Order = ()) -> Array:
        product = float(np.prod([self.scales[j] for j in order]))
        return self.kernel._size(self._point(X, self._centre(X)), order) / product**2

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """With U and V, the gradients to u = (x − c)/ℓ and v = (z − c)/ℓ: −(ΣᵢU∘u + ΣⱼV∘v)/ℓ by columns; U/ℓ for x.

        For a stationary κ₀ the shift c drops out, as ΣᵢU + ΣⱼV = 0.
        """
        centre, scales = self._centre(Z), np.array(self.scales)
        u, v = self._point(X, centre), self._point(Z, centre)
        own = "scales" in wanted
        found = pull(self, 1, wanted, points or own)(u, v, G)
        if found.X is None or found.Z is None:
            return found
        if own:
            sums = np.einsum("ij,ij->j", found.X, u) + np.einsum("ij,ij->j", found.Z, v)
            found.fields["scales"] = -sums / scales
        if not points:
            return Adjoint(found.fields)
        return Adjoint(found.fields, found.X / scales, found.Z / scales)

    def _centre(self, X: Array) -> Array:
        """A point to subtract from all before the division, 0 unless κ₀ is stationary.

        For points far from 0, rounding of the quotients would otherwise change their differences.
        """
        return np.median(X, axis=0) if self.kernel.is_stationary and X.ndim == 2 else np.zeros(X.shape[1:])

    def _point(self, X: Array, centre: Array | float = 0.0) -> Array:
        if X.ndim != 2 or len(self.scales) != X.shape[1]:
            raise KernelError(f"Expected points with {len(self.scales)} columns, one per scale; got shape {X.shape}.")
        return (X - centre) / np.array(self.scales)

    def __repr__(self) -> str:
        return f"({self.kernel!r}).ard({listed(self.scales)})"


@dataclass(frozen=True)
class Normalized(_OfWeights):
    """κ(x, y) = κ₀(x, y)/√(κ₀(x, x)κ₀(y, y)), with F(x) = F₀(x)/‖F₀(x)‖; zero where F₀(x) = 0.

    Parameters
    ----------
    kernel : Kernel

    Examples
    --------
    >>> import kernelopt as ko
    >>> kernel = ko.kernels.Polynomial(degree=2).normalized()
    >>> kernel.diag([[1.0], [5.0]])
    array([1., 1.])
    """

    kernel: Kernel

    def __post_init__(self) -> None:
        require_kernels(self.kernel)

    @property
    def is_stationary(self) -> bool:
        return self.kernel.is_stationary

    @property
    def is_isotropic(self) -> bool:
        return self.kernel.is_isotropic

    def _verdict(self) -> Verdict:
        return all_psd((self.kernel,), "f(x)κ(x, y)f(y) with f(x) = κ(x, x)^−½")

    def _weights(self, X: Array) -> Array:
        d = self.kernel._diagonal(X)
        if (d < 0).any():
            raise KernelError(f"Expected κ(x, x) ≥ 0 to normalize {self.kernel!r}; got {d.min():.3g}.")
        if np.any((d > 0) & (d < SMALLEST)):
            raise KernelError(
                f"Expected κ(x, x) large enough to normalize {self.kernel!r} without a loss of digits; got "
                f"{d[d > 0].min():.3g}. Change the units of the data, or multiply the kernel by a constant."
            )
        return np.divide(1.0, np.sqrt(d), out=np.zeros_like(d), where=d > 0)

    def _diagonal(self, X: Array) -> Array:
        return (self.kernel._diagonal(X) > 0).astype(np.float64)

    def _rounding(self, at: Inexact) -> float:
        """(1 + r)(1 + γ)/(1 − ρ) − 1 with ρ = r·max s₀/κ₀(x, x), the relative error of κ₀(x, x)."""
        r, d = self.kernel._rounding(at), np.abs(self.kernel._diagonal(at.points))
        size = self.kernel._size(at.points)
        off = r * largest_ratio(size, d)
        return compounded(r, off / (1 - off), repeated(gamma(2), 4)) if off < 1 else inf

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """With f = κ₀(x, x)^−½ and T = G∘κ: the weights fG f on κ₀(x, z), −½f²ΣⱼT on κ₀(x, x), −½f²ΣᵢT on κ₀(z, z)."""
        if not asks(1, wanted, points):
            return Adjoint({})
        f, e = self._weights(X), self._weights(Z)
        inner = f[:, None] * G * e
        T = inner * self.kernel._matrix(X, Z)
        left = on_diagonal(pull(self, 1, wanted, points), X, -0.5 * f**2 * T.sum(axis=1))
        right = on_diagonal(pull(self, 1, wanted, points), Z, -0.5 * e**2 * T.sum(axis=0))
        return combined(pull(self, 1, wanted, points)(X, Z, inner), left, Adjoint(right.fields, None, right.X))

    def __repr__(self) -> str:
        return f"({self.kernel!r}).normalized()"


@dataclass(frozen=True, eq=False)
class Centered(Kernel):
    """κ(x, y) = (F₀(x) − m)ᵀ(F₀(y) − m), m the mean of F₀ over a data set.

    = κ₀(x, y) − κ̄(x) − κ̄(y) + mean κ̄, with κ̄(x) the mean of κ₀(x, xᵢ).

    Parameters
    ----------
    kernel : Kernel
    data : points (n)
        Their mean is subtracted.

    Examples
    --------
    >>> import kernelopt as ko
    >>> kernel = ko.kernels.Linear().centered([[0.0], [2.0]])
    >>> kernel([[0.0], [2.0]])
    array([[ 1., -1.],
           [-1.,  1.]])
    """

    kernel: Kernel
    data: Array

    def __post_init__(self) -> None:
        require_kernels(self.kernel)
        data = self.kernel.rows(self.data)
        object.__setattr__(self, "data", frozen(np.array(data)))

    @cached_property
    def _mean_of_all(self) -> float:
        return float(self._averages(self.data).mean())

    @property
    def _mean(self) -> float:
        present = self.at_present()
        assert isinstance(present, Centered)
        return present._mean_of_all

    def at_present(self) -> Kernel:
        """The kernel with numbers, the same object while the parameters keep their values: it keeps its mean."""
        return kept_at_present(self, self.kernel)

    @property
    def domain(self) -> Domain:
        return self.kernel.domain

    def _verdict(self) -> Verdict:
        return all_psd((self.kernel,), "inner products of F(x) − mean")

    def _averages(self, X: Array) -> Array:
        columns, expected = self.domain.columns(X), self.domain.columns(self.data)
        if columns != expected:
            raise DataError(f"Expected points with {expected} columns, as the data of {self!r}; got {columns}.")
        present = self.at_present()
        assert isinstance(present, Centered)
        return present._kept_averages(X)

    @cached_property
    def _known_averages(self) -> dict[object, Array]:
        """Averages at the last arrays of points: factors ask for the same rows again and again."""
        return {}

    def _kept_averages(self, X: Array) -> Array:
        name, kept = key(X), self._known_averages
        if name not in kept:
            found = self._averaged(X)
            while kept and sum(map(len, kept.values())) + len(found) > KEPT + 4 * len(self.data):
                kept.pop(next(iter(kept)), None)
            kept[name] = found
        return kept[name]

    def _averaged(self, X: Array) -> Array:
        """κ̄ at some points, a block of rows of κ₀ at a time."""
        found = np.zeros(len(X))
        for rows in slices(len(X), max(BLOCK // max(len(self.data), 1), 1)):
            clock.check()
            found[rows] = self.kernel._matrix(X[rows], self.data).mean(axis=1)
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {"kernel": self.kernel, "data": self.data}

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        K, mean = self.kernel._matrix(X, Z), self._averages(X)
        K -= mean[:, None]
        K -= mean if Z is None else self._averages(Z)
        K += self._mean
        return K

    def _diagonal(self, X: Array) -> Array:
        return self.kernel._diagonal(X) - 2 * self._averages(X) + self._mean

    def _rounding(self, at: Inexact) -> float:
        """(1 + r)(1 + γ₂ₘ₊₈) − 1 for m points in the mean, relative to sizes before the terms cancel."""
        return compounded(self.kernel._rounding(at.beside(self.data)), gamma(2 * len(self.data) + 8))

    def _size(self, X: Array, order: Order = ()) -> Array:
        """(√s₀ + mean √s₀)²."""
        return (np.sqrt(self.kernel._size(X)) + np.sqrt(self.kernel._size(self.data)).mean()) ** 2

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """The weights G on κ₀(x, z), −ΣⱼG/m on each κ₀(x, xᵢ), −ΣᵢG/m on each κ₀(xᵢ, z), and ΣG on the mean of κ̄."""
        if not asks(1, wanted, points):
            return Adjoint({})
        left = self._adjoint_of_means(X, G.sum(axis=1), wanted, points)
        right = self._adjoint_of_means(Z, G.sum(axis=0), wanted, points)
        mean = {name: G.sum() * value for name, value in self._gradient_of_mean(wanted).items()}
        return combined(
            pull(self, 1, wanted, points)(X, Z, G),
            Adjoint({name: -value for name, value in left.fields.items()}, None if left.X is None else -left.X),
            Adjoint({name: -v for name, v in right.fields.items()}, None, None if right.X is None else -right.X),
            Adjoint(mean),
        )

    def _adjoint_of_means(self, X: Array, weights: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """The gradients of Σᵢ wᵢκ̄(xᵢ), to fields and to X."""
        column = weights[:, None] / len(self.data)
        blocks = [self.data[j] for j in slices(len(self.data), 1024)]
        weighted = [np.broadcast_to(column, (len(X), len(D))) for D in blocks]
        found = [pull(self, 1, wanted, points)(X, D, W) for D, W in zip(blocks, weighted, strict=True)]
        return combined(*(part._replace(Z=None) for part in found))

    def _gradient_of_mean(self, wanted: frozenset[str]) -> dict[str, Array]:
        """The gradient of the mean of κ̄, kept for the other blocks of a large matrix."""
        kept = vars(self).setdefault("_gradients_of_mean", {})
        if wanted not in kept:
            rows = [self.data[i] for i in slices(len(self.data), 1024)]
            found = [self._adjoint_of_means(P, np.full(len(P), 1 / len(self.data)), wanted, False) for P in rows]
            kept[wanted] = combined(*found).fields
        return kept[wanted]

    def _n_features(self, X: Array) -> float:
        return self.kernel._n_features(X)

    def _features(self, X: Array) -> Array:
        return self.kernel._features(X) - self.kernel._features(self.data).mean(axis=0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Centered) and self.kernel == other.kernel and key(self.data) == key(other.data)

    def __hash__(self) -> int:
        return hash((self.kernel, key(self.data)))

    def __repr__(self) -> str:
        return (
            f"({self.kernel!r}).centered({self.data.tolist() if len(self.data) < 6 else f'<{len(self.data)} points>'})"
        )


COMPOSITIONS.update(
    {
        "weighted": Weighted,
        "compose": Composed,
        "on": Columns,
        "ard": ARD,
        "normalized": Normalized,
        "centered": Centered,
    }
)
