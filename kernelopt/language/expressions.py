"""The words of the language: θ, A, and norms of θ. They build cvxpy expressions from the atoms in `nodes`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn
from weakref import WeakSet

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.errors import DataError, KernelError, RepresenterError
from kernelopt.kernels import Kernel, as_kernel
from kernelopt.kernels.chain import Order
from kernelopt.kernels.derivatives import derivative_diagonal, modulus, order_of, require_smooth
from kernelopt.kernels.domains import Names, check_finite, check_order, frozen, key, ordered_names, real_array
from kernelopt.kernels.sources import is_dask
from kernelopt.language import functionals
from kernelopt.language.boxes import boxes, normals
from kernelopt.language.functions import Function
from kernelopt.language.nodes import EUCLIDEAN, Prediction, PredictionData, ThetaLeaf, ThetaNorm
from kernelopt.language.symbol import PointSymbol, is_stand_in, points_of
from kernelopt.support.checks import is_integer, is_real, require_kind, shown
from kernelopt.support.keywords import Hinting
from kernelopt.support.types import Array

# Kinds of `norm` for a matrix θ, and their names in messages.
MATRIX_NORMS = {"fro": "Frobenius", "nuc": "nuclear", 2: "spectral"}
HOW_TO_USE = (
    "θ may enter a problem only through its predictions and its norm. Write theta(X) or A @ theta for "
    "predictions, ko.norm(theta) or ko.sum_squares(theta) for the norm, theta[:, k] or theta @ M for "
    "combinations of outputs, ko.norm(theta - f0) for the distance to a fitted function."
)

COMPARISONS = ("<=", ">=", "<", ">", "==")
ENTRIES = (
    "A comparison of θ itself would be one of each entry in the feature space. Constrain predictions at basis points, "
    "theta(X) >= 0, or at all points of a box, ko.everywhere(lambda P: theta(P) >= 0, lower, upper). To set a "
    'combination of outputs to 0 write ko.norm(theta @ M, "fro") <= 0.'
)


OF_ARRAYS = f'{HOW_TO_USE} With several outputs, ko.norm(theta, "nuc") is the nuclear norm.'


def _refuse(what: str, instead: str = HOW_TO_USE) -> NoReturn:
    raise RepresenterError(f"The representer theorem does not cover {what}. {instead}")


def _refuse_two(one: ThetaExpression, symbol: str, other: ThetaExpression) -> NoReturn:
    """Refuse θ₁ ± θ₂, and say what does the same."""
    sign = "+" if symbol == "+" else "-"
    what = f"`{one!r} {symbol} {other!r}`, as a combination of two θs"
    if one.theta is other.theta:
        _refuse(what, "It is 0 or a multiple of θ.")
    if one.kernel != other.kernel:
        _refuse(what, f"Functions of two kernels have no common feature space. Combine predictions: f(X) {sign} g(X).")
    _refuse(
        what,
        "Two θs of one kernel are one θ with two outputs: theta = ko.Theta(kernel, outputs=2), where theta[:, 0] and "
        f"theta[:, 1] are the functions, and ko.norm(theta[:, 0] {sign} theta[:, 1]) is the norm of this combination.",
    )


class ThetaExpression:
    """An affine image θM − f₀ of a parameter: `theta` itself, `theta[:, k]`, `theta @ M`, `theta - f0`, or a sum."""

    def __init__(self, theta: Theta | None, right: Array | None, shift: Function | None) -> None:
        self._theta = theta
        self._right = right
        self._shift = shift

    @property
    def theta(self) -> Theta:
        """The parameter itself."""
        assert self._theta is not None
        return self._theta

    @property
    def right(self) -> Array | None:
        """M, or None for the identity."""
        return self._right

    @property
    def shift(self) -> Function | None:
        """f₀, or None for zero."""
        return self._shift

    @property
    def kernel(self) -> Kernel:
        return self.theta.kernel

    @property
    def outputs(self) -> int | None:
        """K, or None where predictions are a vector."""
        if self._right is None:
            return self.theta._outputs
        return None if self._right.ndim == 1 else int(self._right.shape[1])

    def __call__(self, X: Any) -> cp.Expression:
        """The predictions at the rows of X, shape (len(X),) or (len(X), K), as a cvxpy expression."""
        if isinstance(X, FeatureMatrix):
            return X @ self
        return FeatureMatrix(X, self.kernel) @ self

    def derivative(self, feature: int | tuple[int, int]) -> Callable[[Any], cp.Expression]:
        """The derivative by column j, or by the columns (j, k), of the predictions, as a function of points.

        `theta.derivative(0)(X)` is `ko.FeatureMatrix(X, kernel).derivative(0) @ theta`, and after a solve
        `theta.value.derivative(0)(X)` has its values.

        Parameters
        ----------
        feature : a column of X, or a pair of them

        Returns
        -------
        function of points X → cvxpy expression (len(X),) or (len(X), K)

        Raises
        ------
        KernelError
            At the call, when the kernel is not smooth enough.
        DataError
            At the call, for a column that X does not have.

        Examples
        --------
        >>> import cvxpy as cp, numpy as np, kernelopt as ko
        >>> X, y = np.linspace(0, 3, 7)[:, None], np.linspace(0, 3, 7) ** 2
        >>> theta = ko.Theta(ko.kernels.Polynomial(degree=2))
        >>> rising = theta.derivative(0)(X) >= 0
        >>> objective = cp.sum_squares(y - theta(X)) + 1e-8 * ko.sum_squares(theta)
        >>> _ = ko.Problem(cp.Minimize(objective), [rising]).solve()
        >>> theta.value.derivative(0)([[1.0], [2.0]]).round(2)
        array([2., 4.])
        """
        order_of(feature)
        return lambda X: (
            (X if isinstance(X, FeatureMatrix) else FeatureMatrix(X, self.kernel)).derivative(feature) @ self
        )

    def _predict(self, A: FeatureMatrix) -> cp.Expression:
        prediction: cp.Expression = Prediction(self.theta._leaf, PredictionData(self.theta, A))
        if self._right is not None:
            prediction = prediction @ self._right
        if self._shift is None:
            return prediction
        if is_stand_in(A._X):
            return prediction - PointSymbol(prediction.shape, False)
        # f₀ is data: its values at the points, or its inner products with the function whose row A is.
        return prediction - (self._shift._at(A._X, A.order) if A.function is None else A.function.gram(self._shift))

    def inner(self, f0: Function) -> cp.Expression:
        """f₀ᵀθ for a fitted function f₀ (the Frobenius inner product for several outputs), affine in θ."""
        require_kind(f0, Function, "f₀ in theta.inner(f₀)", "a ko.Function", "After a solve, theta.value is one.")
        f0.check_same_space(self, "inner")
        rows = self._predict(FeatureMatrix._of_function(f0))
        return rows[0] if self.outputs is None else cp.trace(rows)

    _inner_of_function = inner

    def _map(self, M: Array, label: str) -> ThetaView:
        right = M if self._right is None else self._right @ M
        shift = None if self._shift is None else self._shift.right(M)
        return ThetaView(self.theta, right, shift, f"{self!r}{label}")

    def _combined(self, other: ThetaExpression, symbol: str) -> ThetaView:
        """θM − f₀ ± θN = θ(M ± N) − f₀."""
        K = self.theta._outputs
        if other.theta is not self.theta or K is None:
            _refuse_two(self, symbol, other)
        what = f"({self!r} {symbol} {other!r})"
        if self.outputs != other.outputs:
            raise DataError(
                f"Expected {what} with equally many outputs; got {self.outputs or 1} and {other.outputs or 1}. Choose "
                "outputs by theta[:, k]."
            )
        if other._shift is not None:
            _refuse(f"`{what}`, with a function subtracted from the second; write (theta[:, 0] - theta[:, 1]) - f0")
        M, N = (np.eye(K) if part._right is None else part._right for part in (self, other))
        return ThetaView(self.theta, M + N if symbol == "+" else M - N, self._shift, what)

    def __matmul__(self, M: Any) -> ThetaView:
        """θM: combinations of the outputs, (p×K)(K×m)."""
        if self.outputs is None:
            _refuse(f"`{self!r} @ M`, as θ has one output")
        if isinstance(M, cp.Expression):
            if not isinstance(M, cp.Constant):
                _refuse(f"`{self!r} @ M` with a cvxpy variable or parameter M; write theta(X) @ M instead")
            M = M.value
        M = np.array(real_array(M, "M in theta @ M"))
        check_finite(M, "M in theta @ M")
        if M.ndim not in (1, 2) or M.shape[0] != self.outputs:
            raise DataError(f"Expected M in theta @ M with {self.outputs} rows, one per output; got shape {M.shape}.")
        return self._map(M, " M")

    def __getitem__(self, index: Any) -> ThetaView:
        """θ[:, k]: chosen outputs."""
        shown = f"[{_show_index(index)}]"
        whole = isinstance(index, tuple) and len(index) == 2 and isinstance(index[0], slice) and index[0] == slice(None)
        if self.outputs is None or not whole:
            _refuse(f"single entries of θ, `theta{shown}`")
        try:
            chosen = np.arange(self.outputs)[index[1]]
        except (IndexError, TypeError) as error:
            raise DataError(f"theta has {self.outputs} outputs; got theta{shown}.") from error
        if chosen.ndim > 1 or chosen.size == 0:
            raise DataError(f"Expected theta[:, k] with one output k or a list of them; got theta{shown}.")
        return self._map(np.eye(self.outputs)[:, chosen], shown)

    def __add__(self, other: Any) -> ThetaView:
        """The sum of outputs of one θ, as in θ[:, 0] + θ[:, 1]."""
        if not isinstance(other, ThetaExpression):
            _refuse(f"`{self!r} + {repr(other) if np.isscalar(other) else type(other).__name__}`", HOW_TO_USE)
        return self._combined(other, "+")

    def __sub__(self, f0: Any) -> ThetaView:
        """θ − f₀ for a fitted function f₀ of the same kernel, or a difference of outputs of one θ."""
        if isinstance(f0, ThetaExpression):
            return self._combined(f0, "−")
        if not isinstance(f0, Function):
            _refuse(f"`{self!r} - {type(f0).__name__}`, unless that is a fitted function")
        f0.check_same_space(self, "theta - f0")
        if self._shift is not None:
            _refuse("two functions subtracted from θ, one after the other; put their centers into one ko.Function")
        return ThetaView(self.theta, self._right, f0, f"({self!r} − f₀)")

    # All other operations on a vector raise here, so that the traceback shows the user's line.

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(f"{self!r} used as an array, as in cp.norm(theta) or cp.sum_squares(theta)", OF_ARRAYS)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> NoReturn:
        matrix = " for a matrix M that is not a ko.FeatureMatrix" if ufunc is np.matmul else ""
        _refuse(f"np.{ufunc.__name__} of {self!r}{matrix}")

    def __array_function__(self, function: Any, *args: Any) -> NoReturn:
        _refuse(f"np.{function.__name__} of {self!r}")

    def __iter__(self) -> NoReturn:
        _refuse(f"iteration over {self!r}")

    def __len__(self) -> int:
        _refuse(f"the length of {self!r}")

    def __bool__(self) -> bool:
        return True

    def __rmatmul__(self, M: Any) -> NoReturn:
        _refuse(f"`M @ {self!r}` for a matrix M that is not a ko.FeatureMatrix")

    def __rsub__(self, other: Any) -> NoReturn:
        _refuse(f"`{type(other).__name__} - {self!r}`; write theta - f0")

    def __neg__(self) -> NoReturn:
        _refuse(f"`-{self!r}`")

    def __abs__(self) -> NoReturn:
        _refuse(f"`abs({self!r})`")

    def __pow__(self, other: Any) -> NoReturn:
        _refuse(f"`{self!r} ** {other!r}`")

    @property
    def predict(self) -> NoReturn:
        raise AttributeError(
            f"{type(self).__name__} has no attribute 'predict'. Predictions at points X are theta(X).value, or "
            "theta.value(X)."
        )

    @property
    def T(self) -> NoReturn:
        _refuse(f"`{self!r}.T`")


def _refuse_operator(symbol: str) -> Any:
    def method(self: ThetaExpression, other: Any) -> NoReturn:
        named = np.isscalar(other) or isinstance(other, ThetaExpression)
        what = repr(other) if named else type(other).__name__
        _refuse(f"`{self!r} {symbol} {what}`", ENTRIES if symbol in COMPARISONS else HOW_TO_USE)

    return method


for _name, _symbol in {
    "radd": "+", "mul": "*", "rmul": "*", "truediv": "/", "rtruediv": "/",
    "le": "<=", "ge": ">=", "lt": "<", "gt": ">", "eq": "==", "ne": "!=",
}.items():  # fmt: skip
    setattr(ThetaExpression, f"__{_name}__", _refuse_operator(_symbol))
# `==` raises, so dictionaries find θ by its identity.
ThetaExpression.__hash__ = object.__hash__  # type: ignore[method-assign]


class Theta(ThetaExpression, metaclass=Hinting):
    """The parameter vector θ of a kernel's feature space; never formed.

    `theta(X)` are its predictions θᵀF(xᵢ), an affine cvxpy expression.

    Parameters
    ----------
    kernel : Kernel
        κ(x, y) = F(x)ᵀF(y).
    outputs : int, optional
        K, for a p×K matrix θ with predictions (N, K).
    name : str, optional
        How it is printed.

    Raises
    ------
    KernelError
        When `kernel` is not a kernel, or `outputs` not a positive integer.

    Examples
    --------
    >>> import kernelopt as ko
    >>> theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    >>> theta([[0.0], [1.0]]).shape
    (2,)
    >>> ko.norm(theta).curvature
    'CONVEX'
    """

    def __init__(self, kernel: Kernel, outputs: int | None = None, name: str = "θ") -> None:
        kernel = as_kernel(kernel)
        if outputs is not None and (not is_integer(outputs) or outputs < 1):
            raise KernelError(f"Expected outputs to be an integer ≥ 1, or None; got {shown(outputs)}.")
        require_kind(name, str, "name", "text")
        super().__init__(None, None, None)
        self._kernel = kernel
        self._outputs = None if outputs is None else int(outputs)
        self._name = name
        self._leaf = ThetaLeaf(self, name)
        self._used: WeakSet[FeatureMatrix] = WeakSet()
        self._value: Function | None = None
        self._duals: Mapping[object, Array] = {}

    @property
    def theta(self) -> Theta:
        return self

    @property
    def kernel(self) -> Kernel:
        return self._kernel

    @property
    def name(self) -> str:
        return self._name

    @property
    def value(self) -> Function | None:
        """The fitted function, or None before a solve. It can be set to a `ko.Function`.

        `theta.value(X)` are its values at points X. Before a solve, or after one without a point, that call ends with
        "'NoneType' object is not callable"; `theta(X).value` is None then, as in cvxpy.
        """
        return self._value

    @value.setter
    def value(self, function: Function | None) -> None:
        if function is not None:
            if not isinstance(function, Function):
                raise DataError(
                    f"Expected theta.value to be a ko.Function or None; got {type(function).__name__}. Write "
                    "ko.Function(theta.kernel, centers, coefficients)."
                )
            function.check_same_space(self, "theta.value")
        self._value = function
        self._duals = {}

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_used": list(self._used)}  # a WeakSet does not pickle

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._used = WeakSet(state["_used"])

    def _set_solution(self, function: Function | None, duals: Mapping[object, Array]) -> None:
        self._value = function
        self._duals = {key: frozen(np.array(nu) if nu.flags.writeable else nu) for key, nu in duals.items()}

    def _names(self) -> Names:
        """Column names, in order, of the data frames that θ has been used with; None without data frames."""
        known = [A._names for A in self._used] + [None if self._value is None else self._value._names]
        return next((names for names in known if names is not None), None)

    def _check_columns(self, A: FeatureMatrix) -> None:
        """Raise DataError unless A has the columns of earlier uses of θ, in the same order, and record this use.

        Feature matrices that no longer exist do not count.
        """
        check_order(A._names, self._names())
        columns = self._kernel.domain.columns(A._X)
        known = [self._kernel.domain.columns(other.X) for other in self._used]
        known += [] if self._value is None else [self._kernel.domain.columns(self._value.centers)]
        if columns is not None and known and known[0] != columns:
            counts = [f"{n} column" if n == 1 else f"{n} columns" for n in (known[0], columns)]
            # Integrals and means have no points of their own.
            got = f"points of {counts[1]}, shape {A._X.shape}" if len(A._X) else f"boxes or means of {counts[1]}"
            hint = (
                "" if len(A._X) else " One box in the plane is [[0, 0]], [[1, 1]]; a vector lists boxes of one column."
            )
            raise DataError(f"{self!r} has been used with points of {counts[0]}; got {got}.{hint}")
        self._used.add(A)

    def __repr__(self) -> str:
        return self._name


class ThetaView(ThetaExpression):
    """θM − f₀; made by `theta[:, k]`, `theta @ M`, `theta - f0`, and sums and differences of such."""

    def __init__(self, theta: Theta, right: Array | None, shift: Function | None, label: str) -> None:
        super().__init__(theta, right, shift)
        self._label = label

    def __repr__(self) -> str:
        return self._label


class FeatureMatrix:
    """The N×p data matrix A with rows F(xᵢ)ᵀ; never formed.

    Parameters
    ----------
    X : array
        N points, as the kernel takes them: for vector kernels a matrix (N, n_columns), list, pandas frame
        or sparse matrix, copied as a dense array of float64: 8·N·n_columns bytes.
    kernel : Kernel

    Raises
    ------
    DataError, DataTypeError
        For data that have the wrong shape or type, no rows, or entries that are not finite.

    Examples
    --------
    >>> import kernelopt as ko
    >>> A = ko.FeatureMatrix([[0.0, 1.0], [1.0, 0.0]], ko.kernels.Polynomial(degree=3))
    >>> A.shape
    (2, 10)
    >>> A.diag()
    array([8., 8.])
    >>> theta = ko.Theta(ko.kernels.Polynomial(degree=3))
    >>> (A @ theta).shape
    (2,)
    """

    __array_ufunc__ = None

    def __init__(self, X: Any, kernel: Kernel) -> None:
        kernel = _kernel_after("FeatureMatrix(X, kernel) with data", [X], kernel)
        at = points_of(X) if isinstance(X, PointSymbol) else kernel.rows(X)
        self._set(at, kernel, None, (), ordered_names(X, kernel.domain))
        self._from_dask = is_dask(X)

    def _set(self, X: Array, kernel: Kernel, function: Function | None, order: Order, names: Names = None) -> None:
        self._from_dask = False
        self._X = X
        self._names = names
        self._kernel = kernel
        self._function = function
        self._order = order

    @classmethod
    def _of_rows(
        cls, X: Array, kernel: Kernel, function: Function | None = None, order: Order = (), names: Names = None
    ) -> FeatureMatrix:
        self = cls.__new__(cls)
        self._set(X, kernel, function, order, names)
        return self

    @property
    def order(self) -> tuple[int, ...]:
        """The columns of X by which the rows are differentiated; () for values."""
        return self._order

    def derivative(self, feature: int | tuple[int, int]) -> FeatureMatrix:
        """The rows ∂F(xᵢ)/∂xⱼ for a column j, or ∂²F(xᵢ)/∂xⱼ∂xₖ for (j, k), as of `A.derivative(j).derivative(k)`.

        `A.derivative(0) @ theta` is the slope of the fit along column 0: it can be observed, constrained, and mixed
        with values in one problem.

        Raises
        ------
        KernelError
            When the kernel is not smooth enough.
        DataError
            For a column that X doesn't have, derivatives of a third order, or rows that are functions.

        Examples
        --------
        >>> import kernelopt as ko
        >>> A = ko.FeatureMatrix([[0.0], [1.0]], ko.kernels.Gaussian(sigma=0.5))
        >>> A.derivative(0).diag()
        array([4., 4.])
        """
        columns = 0 if self._function is not None else self._kernel.domain.columns(self._X)
        added = order_of(feature, columns)
        order = tuple(sorted((*self._order, *added)))
        if len(order) > 2:
            raise DataError(
                f"Expected derivatives of order 1 or 2; got one of order {len(order)}, {feature!r} of {self!r}."
            )
        require_smooth(self._kernel, len(order))
        return self._of_rows(self._X, self._kernel, None, order, self._names)

    def modulus(self, radius: Any) -> Array:
        """η with ‖∂F(x) − ∂F(xᵢ)‖ ≤ η for all x within `radius` of xᵢ, shape (N,).

        Then |(∂F(x) − ∂F(xᵢ))ᵀθ| ≤ η‖θ‖, so that η‖θ‖ ≤ (A′θ)ᵢ keeps the slope nonnegative in the whole ball, not only
        at its centre (Aubin-Frankowski and Szabó, NeurIPS 2020). Exact for values and first derivatives of a
        Gaussian kernel, a bound for other stationary kernels.

        Parameters
        ----------
        radius : number ≥ 0, or one for each row
            In the units of the points.

        Returns
        -------
        array (N,)

        Raises
        ------
        KernelError
            When the kernel is not stationary, or not smooth enough.
        DataError
            For a radius that is negative or no number, and another number of them than rows.

        Examples
        --------
        >>> import kernelopt as ko
        >>> A = ko.FeatureMatrix([[0.0], [1.0]], ko.kernels.Gaussian(sigma=1.0))
        >>> A.derivative(0).modulus(0.1).round(4)
        array([0.1728, 0.1728])
        """
        radii = real_array(radius, "the radius")
        if radii.shape not in ((), (len(self),)) or not (radii >= 0).all():
            raise DataError(f"Expected a radius ≥ 0, or one for each of the {len(self)} rows; got {radius!r}.")
        if self._function is not None:
            raise DataError("Expected rows at points; a function has no ball around it.")
        return self._told(modulus(self._kernel, self._X, self._order, radii))

    @classmethod
    def _of_function(cls, f0: Function) -> FeatureMatrix:
        """The one row f₀ᵀ (or K rows)."""
        return cls._of_rows(f0.centers[:0], f0.kernel, f0)

    @property
    def X(self) -> Array:
        """The points, read-only."""
        return self._told(self._X)

    @property
    def kernel(self) -> Kernel:
        return self._kernel

    @property
    def function(self) -> Function | None:
        """f₀ where rows are a fitted function or functionals, its outputs; None where rows are points."""
        return self._function

    @property
    def shape(self) -> tuple[int, float]:
        """(N, p), with p = `math.inf` where the feature space has infinite dimension."""
        return len(self), self._kernel._n_features(self._X)

    def __len__(self) -> int:
        if self._function is not None:
            return self._function.outputs or 1
        return len(self._X)

    def diag(self) -> Array:
        """κ(xᵢ, xᵢ) = ‖F(xᵢ)‖², or the squared norms of functionals, shape (N,)."""
        if self._function is not None:
            return self._told(np.diag(self._function.gram()).copy())
        return self._told(derivative_diagonal(self._kernel, self._X, self._order))

    def _told(self, numbers: Array) -> Any:
        """Numbers of the points; a symbol of which nothing is known where these stand for points of a box."""
        points = self._X if self._function is None else self._function._centers
        return PointSymbol(numbers.shape, is_affine=False) if is_stand_in(points) else numbers

    def __getitem__(self, rows: Any) -> FeatureMatrix:
        """A[rows]: the chosen rows, by slice, mask or indices; A[i] is the matrix of one row i."""
        try:
            chosen = np.atleast_1d(np.arange(len(self))[rows])
        except (IndexError, TypeError, ValueError) as error:
            raise DataError(f"Expected rows of A from 0 to {len(self) - 1}; got A[{_show_index(rows)}].") from error
        if chosen.ndim != 1 or chosen.size == 0:
            raise DataError(f"Expected A[rows] to choose at least one row; got A[{_show_index(rows)}].")
        if self._function is not None:
            return self._combined(sp.csr_array(np.eye(len(self))[chosen]))
        return self._of_rows(frozen(self._X[chosen]), self._kernel, None, self._order, self._names)

    # ---------------------------------------------------------------- combinations of rows

    def __array__(self, *args: Any, **kwargs: Any) -> Array:
        """An array that holds A as one object, so that scipy leaves `W @ A` to A."""
        whole = np.empty((), dtype=object)
        whole[()] = self
        return whole

    def __rmatmul__(self, W: Any) -> FeatureMatrix:
        """WA for numbers W (R, N), dense or sparse: the functionals Σᵢ Wᵣᵢ F(xᵢ)ᵀθ as R rows.

        Means over bags of points, differences, quadratures. Each takes one row of the problem, however many points it
        combines; kernel values between all points are computed in blocks, (N² of them at a time of BLOCK·N).
        """
        return self._combined(W)

    def __add__(self, other: Any) -> FeatureMatrix:
        """A + B, row by row, for rows of one kernel: `A.derivative((0, 0)) + A` has the rows ∂²F(xᵢ) + F(xᵢ)."""
        if not isinstance(other, FeatureMatrix):
            raise DataError(f"Expected A + B with two feature matrices; got {type(other).__name__}.")
        if other._kernel != self._kernel or len(other) != len(self):
            raise DataError(
                f"Expected A + B of one kernel with equal numbers of rows; got {self!r} and {other!r}. Sum rows of A "
                "with W @ A first, where the numbers differ."
            )
        check_order(other._names, self._names)
        return self._with(functionals.added(self._as_function(), other._as_function()))

    def __sub__(self, other: Any) -> FeatureMatrix:
        return self + (-other if isinstance(other, FeatureMatrix) else other)

    def __neg__(self) -> FeatureMatrix:
        return self * -1.0

    def __mul__(self, c: Any) -> FeatureMatrix:
        """cA for a number c."""
        c = c.item() if isinstance(c, np.ndarray) and c.ndim == 0 else c
        if not is_real(c):
            raise DataError(
                f"Expected c·A with a number c; got {shown(c)}. Scale rows by scipy.sparse.diags_array(c) @ A, and "
                "predictions by cp.multiply(c, A @ theta)."
            )
        return self._combined(sp.csr_array(float(c) * sp.eye_array(len(self))))

    __rmul__ = __mul__

    def _combined(self, W: Any) -> FeatureMatrix:
        if self._function is not None:
            return self._with(functionals.recombined(self._function, W))
        return self._with(functionals.combined(self._kernel, self._X, self._order, W))

    def _as_function(self) -> Function:
        if self._function is not None:
            return self._function
        return functionals.combined(self._kernel, self._X, self._order, sp.eye_array(len(self)))

    def _with(self, function: Function) -> FeatureMatrix:
        return self._of_rows(self._X[:0], self._kernel, function, (), self._names)

    def __matmul__(self, theta: Any) -> cp.Expression:
        """Aθ, the predictions at the rows."""
        if not isinstance(theta, ThetaExpression):
            raise RepresenterError(f"Expected A @ theta with a ko.Theta; got {type(theta).__name__}.")
        if theta.kernel != self._kernel:
            raise RepresenterError(
                f"Expected A and theta of one kernel; got A of {self._kernel!r} and theta of "
                f"{theta.kernel!r}. Build A with theta.kernel, or declare one Theta for each kernel."
            )
        theta.theta._check_columns(self)
        return theta._predict(self)

    def fingerprint(self) -> object:
        """Equal for equal rows in equal order."""
        f = self._function
        return key(self._X), self._order, None if f is None else (key(f._centers), key(f.coefficients))

    def __repr__(self) -> str:
        order = f", derivative {self._order}" if self._order else ""
        return f"FeatureMatrix({len(self)} rows, {self._kernel!r}{order})"


def average(X: Any, kernel: Kernel, *, groups: Any = None, weights: Any = None) -> FeatureMatrix:
    """The means Σᵢ wᵢF(xᵢ)/Σᵢ wᵢ over groups of points, a row for each: kernel mean embeddings.

    `average(X, kernel, groups=bags) @ theta` are the means of predictions over bags of points, such as observed sums
    and rates of districts; without groups it is one mean over all points.

    Parameters
    ----------
    X : points, as for `FeatureMatrix`
    kernel : Kernel
    groups : array (N,), optional
        A label for each point. Rows are in the order of `np.unique(groups)`.
    weights : array (N,) of numbers ≥ 0, optional
        By default all points of a group count the same.

    Returns
    -------
    FeatureMatrix
        With a row for each group.

    Raises
    ------
    DataError
        For other lengths, labels that are NaN or not sortable, weights that are negative or not finite, and groups
        without a positive weight.

    Examples
    --------
    >>> import kernelopt as ko
    >>> A = ko.average([[0.0], [2.0], [5.0]], ko.kernels.Linear(), groups=["a", "a", "b"])
    >>> theta = ko.Theta(ko.kernels.Linear())
    >>> theta.value = ko.Function(ko.kernels.Linear(), [[3.0]], [1.0])  # f(x) = 3x
    >>> (A @ theta).value
    array([ 3., 15.])
    """
    A = FeatureMatrix(X, kernel)
    return functionals.means(len(A), groups, weights) @ A


def integral(lower: Any, upper: Any, kernel: Kernel) -> FeatureMatrix:
    """The integrals ∫F(x)dx over boxes [lower, upper], a row for each: `A @ theta` are the integrals of f over them.

    In closed form for Gaussian, Laplacian, Matérn (in one column), linear, polynomial and constant kernels, their
    multiples, sums and differences, `ard`, and products of kernels `on` columns of their own. Together with values at
    points they are rows of one problem: counts per bin, ∫f = 1, ∫f = 0 over groups of boxes (`W @ A`).

    Parameters
    ----------
    lower, upper : array (G, d), or (G,) or a number for d = 1
        The corners of G boxes. Entries of a vector are boxes of one column; beside a matrix, a vector (d,) or a number
        stands for all rows. A box of volume 0 has the integral 0.
    kernel : Kernel

    Returns
    -------
    FeatureMatrix
        G rows, in units of F times the units of the columns.

    Raises
    ------
    KernelError
        For a kernel without a closed form; write `weights @ ko.FeatureMatrix(nodes, kernel)` for one.
    DataError
        For boxes with lower > upper, bounds that are not finite or parameters, and shapes that do not fit.

    Examples
    --------
    >>> import kernelopt as ko
    >>> kernel = ko.kernels.Polynomial(degree=2)
    >>> A, theta = ko.integral([0.0, 1.0], [1.0, 3.0], kernel), ko.Theta(kernel)
    >>> theta.value = ko.Function(kernel, [[1.0]], [3.0])  # f(x) = 3(1 + x)²
    >>> (A @ theta).value
    array([ 7., 56.])
    >>> # one box in the plane
    >>> len(ko.integral([[0.0, 0.0]], [[1.0, 2.0]], ko.kernels.Gaussian(sigma=1.0)))
    1
    """
    kernel = _kernel_after("integral(lower, upper, kernel) with corners of boxes", [lower, upper], kernel)
    found = boxes(lower, upper)
    kernel._require_means(found.centres.shape[1], False)
    function = functionals.of_means(kernel, found.centres, found.halves, 0.0, found.volumes)
    return FeatureMatrix._of_rows(found.centres[:0], kernel, function, names=found.names)


def gaussian_mean(mean: Any, sd: Any, kernel: Kernel) -> FeatureMatrix:
    """The means E F(x) over x ~ N(mean, diag(sd²)), a row for each: `A @ theta` are expected values of f.

    For inputs that are known up to an error, and for smoothed observations of f. In closed form for Gaussian, linear,
    polynomial and constant kernels, composed as for `integral`.

    Parameters
    ----------
    mean : array (G, d), or (G,) or a number for d = 1
    sd : array (G, d), (d,), or a number ≥ 0
        Standard deviations by columns; with sd = 0 the rows are the values F(mean). Shapes go together as in
        `integral`.
    kernel : Kernel

    Returns
    -------
    FeatureMatrix
        With a row for each mean.

    Raises
    ------
    KernelError
        For a kernel without a closed form; write `weights @ ko.FeatureMatrix(nodes, kernel)` for one.
    DataError
        For negative standard deviations, entries that are not finite or parameters, and shapes that do not fit.

    Examples
    --------
    >>> import kernelopt as ko
    >>> kernel = ko.kernels.Polynomial(degree=2, offset=0.0)
    >>> A, theta = ko.gaussian_mean([0.0, 3.0], 2.0, kernel), ko.Theta(kernel)
    >>> theta.value = ko.Function(kernel, [[1.0]], [1.0])  # f(x) = x²
    >>> (A @ theta).value
    array([ 4., 13.])
    """
    kernel = _kernel_after("gaussian_mean(mean, sd, kernel) with means and deviations", [mean, sd], kernel)
    means, deviations, names = normals(mean, sd)
    kernel._require_means(means.shape[1], True)
    function = functionals.of_means(kernel, means, 0.0, deviations, np.ones(len(means)))
    return FeatureMatrix._of_rows(means[:0], kernel, function, names=names)


def _kernel_after(call: str, data: list[Any], kernel: Any) -> Kernel:
    """The kernel of a call with data before it. Raises KernelError where there is none, or where it stands first."""
    swapped = any(isinstance(X, Kernel) for X in data)
    if swapped or not (isinstance(kernel, Kernel) or callable(kernel)):
        got = " and ".join(type(X).__name__ for X in [*data, kernel])
        remedy = " The data come first." if swapped else ""
        raise KernelError(f"Expected {call} and a kernel; got {got}.{remedy}")
    return as_kernel(kernel)


def norm(theta: Any, kind: str | int | None = None) -> cp.Expression:
    """‖θ‖, or ‖θM − f₀‖ for `theta @ M`, `theta[:, k]`, `theta - f0`: a convex cvxpy expression.

    Parameters
    ----------
    theta : Theta or an expression of it
    kind : optional
        For a p×K matrix θ: "fro" √Σσᵢ², "nuc" Σσᵢ or 2 max σᵢ, with σᵢ the singular values of θ. These
        are orthogonally invariant, so that the representer theorem holds (Argyriou, Micchelli and Pontil,
        JMLR 10, 2009). Must be given for a matrix θ; not needed for a vector θ.

    Returns
    -------
    cvxpy expression ()

    Raises
    ------
    RepresenterError
        For a norm that is not orthogonally invariant, a matrix θ without `kind`, or an argument that is not an
        expression of θ.

    Examples
    --------
    >>> import kernelopt as ko
    >>> theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=3)
    >>> ko.norm(theta, "nuc"), ko.norm(theta[:, 0])
    (Expression(CONVEX, NONNEGATIVE, ()), Expression(CONVEX, NONNEGATIVE, ()))
    """
    if not isinstance(theta, ThetaExpression):
        raise RepresenterError(
            f"Expected ko.norm of a ko.Theta; got {type(theta).__name__}. For a norm of predictions write "
            "cp.norm(theta(X))."
        )
    names = ", ".join(f"{k!r} ({v})" for k, v in MATRIX_NORMS.items())
    if theta.outputs is None:
        if not isinstance(kind, (str, int, type(None))) or kind not in (None, 2, "fro"):
            raise RepresenterError(
                f"The representer theorem covers the Euclidean norm of θ; got the norm {shown(kind)}. Write "
                "ko.norm(theta)."
            )
        return ThetaNorm(theta.theta._leaf, theta, EUCLIDEAN)
    if kind is None:
        raise RepresenterError(
            f"A matrix θ (outputs={theta.outputs}) has several norms; name one of {names}, as in "
            'ko.norm(theta, "fro"), or write ko.sum_squares(theta).'
        )
    if not isinstance(kind, (str, int)) or kind not in MATRIX_NORMS:
        raise RepresenterError(
            f"The representer theorem covers the orthogonally invariant norms {names}; got {shown(kind)}."
        )
    return ThetaNorm(theta.theta._leaf, theta, kind)


def sum_squares(theta: Any) -> cp.Expression:
    """‖θ‖², for a matrix θ the squared Frobenius norm.

    Parameters
    ----------
    theta : ko.Theta, or an affine expression of it such as theta − f₀

    Returns
    -------
    cvxpy expression ()

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.sum_squares(ko.Theta(ko.kernels.Linear())).is_convex()
    True
    """
    matrix = isinstance(theta, ThetaExpression) and theta.outputs is not None
    return cp.square(norm(theta, "fro" if matrix else None))


def _show_index(index: Any) -> str:
    def one(i: Any) -> str:
        if not isinstance(i, slice):
            return str(i)
        ends = ["" if end is None else str(end) for end in (i.start, i.stop)]
        return ":".join(ends) + ("" if i.step is None else f":{i.step}")

    return ", ".join(map(one, index)) if isinstance(index, tuple) else one(index)
