"""A function of the kernel's space, f = Σᵢ cᵢ κ(zᵢ, ·): centers and coefficients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np

from kernelopt.errors import DataError, KernelError, RepresenterError
from kernelopt.kernels import Kernel, as_kernel
from kernelopt.kernels.chain import Order
from kernelopt.kernels.derivatives import WithDerivatives, order_of, require_smooth, with_order
from kernelopt.kernels.domains import (
    Indices,
    Names,
    check_finite,
    check_order,
    column_names,
    frozen,
    ordered_names,
    real_array,
)
from kernelopt.kernels.lifts import Lift, joint, lift_of, plain, plain_points, relifted, relifted_rows
from kernelopt.kernels.sources import is_dask
from kernelopt.kernels.spreads import WithMeans, spread_rows
from kernelopt.language.boxes import boxes
from kernelopt.language.symbol import PointSymbol
from kernelopt.support import html
from kernelopt.support.arithmetic import in_columns
from kernelopt.support.checks import require_kind
from kernelopt.support.properties import cached_property
from kernelopt.support.threads import in_threads
from kernelopt.support.types import Array, Ints

# Predictions are computed for blocks of points: about BLOCK_BYTES bytes of kernel values per thread, but at least
# FEWEST points. Larger blocks cost memory. Smaller ones cost more calls of the kernel and make matrix products slow.
BLOCK_BYTES, FEWEST = 2**23, 128

NOWHERE: Mapping[object, Array] = MappingProxyType({})


class Selected(NamedTuple):
    """The centers points[chosen]. Many functions share the points, and copy theirs when they are first evaluated."""

    points: Array
    chosen: Ints | slice


class Function:
    """f(x) = Σᵢ cᵢ κ(zᵢ, x), the parameter vector θ = Σᵢ cᵢ F(zᵢ) seen as a function.

    Immutable. With a coefficient matrix (m, K) it has K outputs and is a p×K matrix θ.

    Parameters
    ----------
    kernel : Kernel
    centers : array
        The m points zᵢ, as the kernel takes them.
    coefficients : array (m,) or (m, K)

    Raises
    ------
    DataError
        When the numbers of centers and coefficients differ, or entries are not finite.

    Examples
    --------
    >>> import kernelopt as ko
    >>> f = ko.Function(ko.kernels.Gaussian(sigma=1.0), [[0.0], [1.0]], [1.0, -1.0])
    >>> f([[0.0], [0.5]]).round(4)
    array([0.3935, 0.    ])
    >>> round(f.norm**2, 4)
    0.7869
    """

    # Columns of the data frame that the centers came from.
    _names: Names = None

    def __init__(self, kernel: Kernel, centers: Any, coefficients: Any) -> None:
        kernel = as_kernel(kernel).at_present()
        rows = kernel.rows(centers)
        c = real_array(coefficients, "the coefficients")
        if c.ndim not in (1, 2) or len(c) != len(rows):
            raise DataError(
                f"Expected one coefficient (or one row of coefficients) per center, shape ({len(rows)},) or "
                f"({len(rows)}, K); got shape {c.shape}."
            )
        check_finite(c, "the coefficients")
        self._set(kernel, rows, np.array(c))
        self._names = ordered_names(centers, kernel.domain)

    @classmethod
    def _of_rows(cls, kernel: Kernel, centers: Array | Selected, coefficients: Array) -> Function:
        """The function with these canonical rows as centers, without checks."""
        f = Function.__new__(Function)
        f._set(kernel, centers, coefficients)
        return f

    _selected: Selected | None = None
    _evaluate_fast: Callable[[Array], Array] | None  # set at the first evaluation

    def _set(self, kernel: Kernel, centers: Array | Selected, coefficients: Array) -> None:
        self._kernel = kernel
        if isinstance(centers, Selected):
            self._selected = centers
        else:
            self._centers = centers
        self._coefficients = frozen(coefficients)

    @cached_property
    def _centers(self) -> Array:
        assert self._selected is not None
        return frozen(self._selected.points[self._selected.chosen])

    def _without_copies(self) -> None:
        """Let go of copies that the next evaluation makes again."""
        if self._selected is not None:
            for name in ("_centers", "_evaluate_fast"):
                vars(self).pop(name, None)

    @property
    def kernel(self) -> Kernel:
        return plain(self._kernel)

    @property
    def centers(self) -> Array:
        """The points zᵢ: for a function fitted to derivatives their points, for integrals the centres of boxes."""
        return plain_points(self._kernel, self._centers)

    def _lifted(self, lift: type[Lift] | None) -> Function:
        """The same function on a lifted kernel, so that its derivatives or integrals can be evaluated.

        Raises KernelError for a function on a kernel that is lifted otherwise.
        """
        lift = joint([lift_of(self._kernel), lift])
        if lift is lift_of(self._kernel):
            return self
        centers = relifted_rows(self._kernel, self._centers, lift)
        return Function._of_rows(relifted(self._kernel, lift), centers, np.array(self._coefficients))

    # Predictions at rows that it was fitted on, by their fingerprints; few functions have any.
    _known: Mapping[object, Array] = NOWHERE

    def _at_present(self) -> Function:
        """The same coefficients on the kernel at the present values of its parameters."""
        kernel = self._kernel.at_present()
        return self if kernel is self._kernel else Function._of_rows(kernel, self._centers, self._coefficients)

    def _at(self, X: Array, order: Order) -> Array:
        """The function or a derivative of it, at canonical points."""
        if order:
            return self._lifted(WithDerivatives)._evaluate(with_order(X, order))
        return self._evaluate(relifted_rows(plain(self._kernel), X, lift_of(self._kernel)))

    @property
    def coefficients(self) -> Array:
        """c, shape (m,) or (m, K)."""
        return self._coefficients

    @property
    def outputs(self) -> int | None:
        """K, or None for a function with values in R."""
        return None if self._coefficients.ndim == 1 else int(self._coefficients.shape[1])

    @property
    def norm(self) -> float:
        """‖θ‖ = √(Σᵢⱼ cᵢcⱼ κ(zᵢ, zⱼ)), the Frobenius norm where there are several outputs."""
        return float(np.sqrt(max(self.inner(self), 0.0)))  # rounding can make the square negative

    def __call__(self, X: Any) -> Array:
        """f(xᵢ), shape (len(X),) or (len(X), K); kernel values are evaluated in blocks, by as many threads as BLAS has.

        For a Dask array X the result is a Dask array, computed where the blocks of X are.

        Raises DataError for a data frame whose columns are those of the training data in another order.
        """
        if isinstance(X, PointSymbol):
            return X.opaque((len(X),) if self.outputs is None else (len(X), self.outputs))
        check_order(ordered_names(X, self._kernel.domain), self._names)
        if is_dask(X):
            return self._lazily(X)
        return self._evaluate(self._kernel.rows(X))

    def _lazily(self, X: Any) -> Any:
        """The values at the rows of a Dask array, as a Dask array."""
        if X.ndim != 2:
            raise DataError(f"Expected a Dask array with one point per row, two axes; got shape {X.shape}.")
        plainly = Function._of_rows(self._kernel, self._centers, np.array(self._coefficients))
        X, K = X.rechunk({1: -1}), self.outputs
        if K is None:
            return X.map_blocks(plainly, dtype=float, drop_axis=1, meta=np.empty(0))
        return X.map_blocks(plainly, dtype=float, chunks=(X.chunks[0], (K,)), meta=np.empty((0, K)))

    def derivative(self, feature: int | tuple[int, int]) -> DerivedFunction:
        """∂f/∂xⱼ for a column j, or ∂²f/∂xⱼ∂xₖ for (j, k), as a function of new points.

        Raises
        ------
        KernelError
            Where the kernel is not smooth enough.
        DataError
            For a column that the centers do not have.

        Examples
        --------
        >>> import kernelopt as ko
        >>> f = ko.Function(ko.kernels.Gaussian(sigma=1.0), [[0.0]], [1.0])
        >>> f.derivative(0)([[0.0], [1.0]]).round(4), f.derivative((0, 0))([[0.0]])
        (array([ 0.    , -0.6065]), array([-1.]))
        """
        order = order_of(feature, self.kernel.domain.columns(self.centers))
        require_smooth(self.kernel, len(order))
        return DerivedFunction(self, order)

    def integral(self, lower: Any, upper: Any) -> Array:
        """∫ f(x)dx over boxes, (G,) or (G, K), in units of f times the units of the columns.

        Parameters
        ----------
        lower, upper : array (G, d), or (G,) for one column
            The corners of the boxes, as for `ko.integral`.

        Raises
        ------
        KernelError
            For a kernel whose integrals have no closed form, and for a function fitted to derivatives.
        DataError
            For boxes that `ko.integral` refuses, and those of another number of columns than the centers have.

        Examples
        --------
        >>> import kernelopt as ko
        >>> f = ko.Function(ko.kernels.Gaussian(sigma=1.0), [[0.0]], [1.0])
        >>> # √(2π) times the probability of a standard normal variable
        >>> f.integral([-1.0, -9.0], [1.0, 9.0]).round(4)
        array([1.7112, 2.5066])
        """
        found = boxes(lower, upper)
        check_order(found.names, self._names)
        self.kernel._require_means(found.centres.shape[1], False)
        means = self._lifted(WithMeans)._evaluate(spread_rows(found.centres, found.halves, 0.0))
        return np.asarray((means.T * found.volumes).T)

    @np.errstate(over="ignore", invalid="ignore")  # an overflow is reported below, with its point
    def _evaluate(self, X: Array) -> Array:
        kernel, Z = self._kernel, self._centers
        if len(Z) == 0 or len(X) == 0:
            return np.zeros((len(X), *self._coefficients.shape[1:]))
        if kernel.domain.columns(X) != kernel.domain.columns(Z):
            raise DataError(f"Expected points with {kernel.domain.columns(Z)} columns; got {kernel.domain.columns(X)}.")
        fast = self._fast()
        if fast is not None:
            values = fast(X)
        else:
            step = max(FEWEST, BLOCK_BYTES // (8 * len(Z)))
            values = np.concatenate(in_threads(self._block, [X[i : i + step] for i in range(0, len(X), step)]))
        if not np.isfinite(values).all():
            raise KernelError(
                f"{kernel!r} returned NaN or inf at new point {int(np.argwhere(~np.isfinite(values))[0][0])}."
            )
        return values

    @np.errstate(over="ignore", invalid="ignore")  # numpy keeps error states per thread
    def _block(self, X: Array) -> Array:
        return np.asarray(self._kernel._matrix(X, self._centers) @ self._coefficients)

    def _fast(self) -> Callable[[Array], Array] | None:
        """The kernel's own evaluator of sums over centers, or None; made at the first call and cached."""
        try:
            return self._evaluate_fast
        except AttributeError:
            self._evaluate_fast = fast = self._kernel._evaluator(self._centers, self._coefficients)
            return fast

    def __getstate__(self) -> dict[str, Any]:
        return self._state(copied=True)

    def _state(self, copied: bool) -> dict[str, Any]:
        """What a pickle holds: with copies of centers, or as numbers of points where they are some of these.

        The evaluator is made again at the first call after unpickling; predictions are computed again.
        """
        left_out = {"_evaluate_fast", "_known", "_selected" if copied else "_centers"}
        kept = {name: value for name, value in vars(self).copy().items() if name not in left_out}
        return kept | ({"_centers": self._centers} if copied else {"_selected": self._selected})

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        frozen(self._centers), frozen(self._coefficients)

    def __copy__(self) -> Self:
        return self  # immutable

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def inner(self, other: Any) -> Any:
        """⟨f, g⟩ = Σᵢⱼ cᵢ dⱼ κ(zᵢ, z′ⱼ) for a function g; for a `Theta`, the expression f₀ᵀθ.

        For several outputs it is the Frobenius inner product.
        """
        if hasattr(type(other), "_inner_of_function"):  # θ, which is defined above this module
            return other._inner_of_function(self)
        _require_function(other, "inner")
        self.check_same_space(other, "inner")
        return float(np.trace(np.atleast_2d(self.gram(other))))

    def gram(self, other: Function | None = None) -> Array:
        """The K×K matrix fᵀg of inner products of outputs, with g = f by default."""
        g = self if other is None else other
        _require_function(g, "gram")
        if self is not g and self.kernel.at_present() != g.kernel.at_present():
            raise RepresenterError(f"gram expects functions of one kernel; got {self.kernel!r} and {g.kernel!r}.")
        return self._gram_with(g)

    @np.errstate(over="ignore", invalid="ignore")  # a solve reports kernel values that are not finite
    def _gram_with(self, g: Function) -> Array:
        """fᵀg where g may have the shifted kernel of a projected matrix."""
        f, g = alike(self, g)
        values = g._evaluate(f._centers)
        c = f._coefficients
        return in_columns(c).T @ in_columns(values)

    def from_gram(self, K: Any) -> Array:
        """f at new points, given their kernel values with the centers.

        Parameters
        ----------
        K : array (n_new, n_old)
            κ(new point, old point). For a `Precomputed` kernel there is one column per row of its
            matrix Q, as in scikit-learn; for every other kernel one per center.

        Examples
        --------
        >>> import numpy as np, kernelopt as ko
        >>> f = ko.Function(ko.kernels.Precomputed(np.eye(3)), [2], [5.0])
        >>> f.from_gram([[0.1, 0.2, 0.3]])
        array([1.5])
        """
        values = real_array(K, "the kernel values")
        domain = self._kernel.domain
        whole = isinstance(domain, Indices)
        expected = domain.size if isinstance(domain, Indices) else len(self._centers)
        if values.ndim != 2 or values.shape[1] != expected:
            columns = "row of the precomputed matrix" if whole else "center"
            raise DataError(f"Expected one column per {columns}, shape (n_new, {expected}); got shape {values.shape}.")
        check_finite(values, "the kernel values")
        return (values[:, self._centers] if whole else values) @ self._coefficients

    def right(self, M: Array) -> Function:
        """The function θM, for a matrix θ of K outputs and a matrix M (K, m) or vector (K,)."""
        M = real_array(M, "M in f.right(M)")
        check_finite(M, "M in f.right(M)")
        if self.outputs is None or M.ndim not in (1, 2) or len(M) != self.outputs:
            raise DataError(
                f"Expected f.right(M) with a row of M for each output of f; got shape {M.shape}, and "
                f"outputs={self.outputs}."
            )
        return Function._of_rows(self._kernel, self._centers, self._coefficients @ M)._named(self._names)

    def _named(self, names: Names) -> Self:
        """This function, given these column names. It changes in place, so only a newly made function may be named."""
        self._names = names
        return self

    def check_same_space(self, other: Any, operation: str) -> None:
        """Raise RepresenterError unless `other` has this kernel and as many outputs."""
        if other.kernel.at_present() != self.kernel or other.outputs != self.outputs:
            raise RepresenterError(
                f"{operation} expects functions of one kernel with equally many outputs; got "
                f"{self.kernel!r} with outputs={self.outputs} and {other.kernel!r} with "
                f"outputs={other.outputs}."
            )

    def _repr_html_(self) -> str:
        rows = [("kernel", repr(self._kernel)), ("centers", str(len(self._coefficients)))]
        rows += [] if self.outputs is None else [("outputs", str(self.outputs))]
        return html.table([(type(self).__name__, ""), *rows, ("norm", f"{self.norm:.6g}")], left=True)

    def __repr__(self) -> str:
        outputs = "" if self.outputs is None else f", outputs={self.outputs}"
        return f"Function({self._kernel!r}, {len(self._coefficients)} centers{outputs})"


def _require_function(value: Any, operation: str) -> None:
    require_kind(value, Function, f"the argument of {operation}", "a ko.Function", "After a solve, theta.value is one.")


def alike(f: Function, g: Function) -> tuple[Function, Function]:
    """Both on one kernel: where one is lifted, the centers of the other become values."""
    lift = joint([lift_of(f._kernel), lift_of(g._kernel)])
    return f._lifted(lift), g._lifted(lift)


@dataclass(frozen=True, eq=False)
class DerivedFunction:
    """A derivative of a function, of the points at which it is called; made by `Function.derivative`.

    function : f; order : the columns by which it is differentiated
    """

    function: Function
    order: tuple[int, ...]

    def __call__(self, X: Any) -> Array:
        """The values at the rows of X, (len(X),) or (len(X), K), in units of f per unit of the columns."""
        if isinstance(X, PointSymbol):
            return self.function(X)  # of the same shape
        check_order(column_names(X), self.function._names)
        return self.function._at(self.function.kernel.rows(X), self.order)

    def __repr__(self) -> str:
        return f"DerivedFunction({self.function!r}, order={self.order})"
