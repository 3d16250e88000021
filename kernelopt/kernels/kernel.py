"""The kernel: a symmetric function κ(x, y) = F(x)ᵀF(y), as an immutable value.

A subclass is a frozen dataclass that states its formula in `_matrix` and `_diagonal`, and its definiteness in
`_verdict`; the checks, the operators and the public calls live here. See `docs/contributing.md` for the checklist.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import inf
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn, Self

import cvxpy as cp
import numpy as np

from kernelopt.errors import DataTypeError, KernelError
from kernelopt.kernels.chain import Order
from kernelopt.kernels.domains import VECTORS, Domain, may_miss
from kernelopt.kernels.interval_means import Spread
from kernelopt.kernels.records import refuse_missing
from kernelopt.kernels.rounding import Inexact, relative_to
from kernelopt.support.checks import is_real, shown
from kernelopt.support.keywords import Hinting
from kernelopt.support.types import Array, Bools

# The largest |κ(x, z) − κ(z, x)| that counts as rounding, relative to √(κ(x, x)κ(z, z)). A function may sum in another
# order for κ(z, x): smaller values refuse functions with long sums, larger ones accept asymmetric functions.
ROUNDING = 1e-10
HIGHEST = 10_000  # degree of a polynomial in κ: beyond, lists of its coefficients take seconds
# What to do about missing values that a kernel refuses.
FILL = 'Drop or fill them, or state a policy: kernel.with_missing("level"), Categorical(missing="level").'
WORDS = {True: "positive semidefinite", False: "indefinite", None: "unknown"}


class RealField(NamedTuple):
    """A field that takes real numbers of a sign: one (`ndim` 0), several (1), a matrix (2). A parameter, too."""

    sign: Literal["positive", "nonnegative", "any"] = "positive"
    ndim: int = 0


class Adjoint(NamedTuple):
    """Gradients of Σᵢⱼ Gᵢⱼκ(xᵢ, zⱼ): to fields, by their names in `get_params()`, and to points where asked for."""

    fields: dict[str, Array]
    X: Array | None = None
    Z: Array | None = None


class MissingRuleError(KernelError):
    """A gradient that a kernel has no rule for."""


class Verdict(NamedTuple):
    """Positive semidefinite by rule (True), known to be indefinite (False), or unknown (None); and why."""

    psd: bool | None
    reason: str


@dataclass(frozen=True)
class Derivation:
    """How a kernel's definiteness follows from its parts; prints as a tree.

    Examples
    --------
    >>> import kernelopt as ko
    >>> print((2.0 * ko.kernels.Linear()).explain())
    2.0 * Linear()  positive semidefinite: nonnegative multiple
    └ Linear()      positive semidefinite: F(x) = x
    """

    lines: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.lines)
        return "\n".join(f"{name:<{width}}  {verdict}" for name, verdict in self.lines)

    __repr__ = __str__


# The constructors that the operators and methods call. The modules that define them (`algebra`, `transforms`, `cached`,
# `callables`, `indexed`, `missing`, `named_columns`, `parametrized`) add them: they import Kernel, so that importing
# them here would be a cycle.
COMPOSITIONS: dict[str, Callable[..., Kernel]] = {}


class Declared(Hinting):
    """The metaclass of kernels: a class that is called with cvxpy parameters gives a kernel that holds them."""

    def __call__(cls, *args: Any, **named: Any) -> Any:  # noqa: N805
        args, named = tuple(map(_plain, args)), {name: _plain(value) for name, value in named.items()}
        if any(_has_expression(value) for value in (*args, *named.values())) and _binds(cls, args, named):
            return COMPOSITIONS["parametrized"](cls, args, named)
        return super().__call__(*args, **named)


def _plain(value: Any) -> Any:
    """A scalar of numpy's as a number of Python's, which prints as 0.61."""
    return value.item() if isinstance(value, (np.floating, np.integer)) else value


def _has_expression(value: Any) -> bool:
    several = isinstance(value, (list, tuple))
    return isinstance(value, cp.Expression) or (several and any(isinstance(v, cp.Expression) for v in value))


def _binds(kind: Hinting, args: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    """Whether these are arguments of the constructor, which explains itself where they are not."""
    try:
        kind.__signature__.bind(*args, **named)
    except TypeError:
        return False
    return True


class Kernel(metaclass=Declared):
    """A kernel κ(x, y) = F(x)ᵀF(y), compared by structure, composed with `+`, `*`, `c *`, `**` and `-`.

    Examples
    --------
    >>> import kernelopt as ko
    >>> kernel = 2.0 * ko.kernels.Gaussian(sigma=1.5) + ko.kernels.Linear()
    >>> kernel([[0.0], [1.0]]).round(4)
    array([[2.    , 1.6015],
           [1.6015, 3.    ]])
    >>> kernel.is_psd
    True
    >>> print(kernel.explain())
    2.0 * Gaussian(sigma=1.5) + Linear()  positive semidefinite: sum of positive semidefinite kernels
    ├ 2.0 * Gaussian(sigma=1.5)           positive semidefinite: nonnegative multiple
    │ └ Gaussian(sigma=1.5)               positive semidefinite: exp(−‖x−y‖²/2σ²) (Schoenberg 1938)
    └ Linear()                            positive semidefinite: F(x) = x
    """

    # numpy hands `scalar * kernel` to us instead of building an array of kernels.
    __array_ufunc__ = None

    # The fields that take real numbers, and so cvxpy parameters, by name.
    _reals: ClassVar[Mapping[str, RealField]] = {}

    # ---------------------------------------------------------------- what a subclass states

    @property
    def domain(self) -> Domain:
        """The points that the kernel takes."""
        return VECTORS

    @abstractmethod
    def _verdict(self) -> Verdict:
        """Definiteness by rule, and the rule."""

    @property
    def is_stationary(self) -> bool:
        """Whether κ(x, y) depends on x − y alone, by rule."""
        return False

    @property
    def is_isotropic(self) -> bool:
        """Whether κ(x, y) depends on ‖x − y‖₂ alone, by rule."""
        return False

    @property
    def precision(self) -> float:
        """Relative precision of the kernel's values; that of float32 where its data were given in float32."""
        return max((part.precision for part in self.parts), default=float(np.finfo(np.float64).eps))

    @abstractmethod
    def _matrix(self, X: Array, Z: Array | None) -> Array:
        """κ(xᵢ, zⱼ) for canonical rows, as a new array; `Z is None` means Z = X, symmetric."""

    @abstractmethod
    def _diagonal(self, X: Array) -> Array:
        """κ(xᵢ, xᵢ) for canonical rows."""

    def _n_features(self, X: Array) -> float:
        """p, the length of F(x) for the points `X`; `math.inf` where F has infinitely many entries, or is unknown."""
        return inf

    def _features(self, X: Array) -> Array:
        raise KernelError(
            f"Expected a kernel with a finite feature map that is known; got {self!r}. kernel(X, Z) gives inner "
            "products."
        )

    def _evaluator(self, centers: Array, coefficients: Array) -> Callable[[Array], Array] | None:
        """x ↦ Σᵢ cᵢ κ(zᵢ, x) for many x, without kernel values; None where no faster way than kernel values exists."""
        return None

    @property
    def _smoothness(self) -> int:
        """The highest order of derivatives of F that is implemented; 0 without any."""
        return 0

    @property
    def _decreases(self) -> bool:
        """Whether κ(x, x + teⱼ) is ≥ 0 and falls in |t| for all x and columns j, by rule."""
        return False

    @property
    def _is_convex(self) -> bool:
        """Whether κ(x, z) is a convex decreasing function of a norm of x − z, or a sum of such, by rule."""
        return False

    @property
    def _is_power_series(self) -> bool:
        """Whether κ(x, z) = Σ_α c_α Πⱼ(xⱼzⱼ)^αⱼ with all c_α ≥ 0, by rule."""
        return False

    def _derivative(self, X: Array, dx: Order, Z: Array, dz: Order) -> Any:
        """∂ₓ∂_zκ(xᵢ, zⱼ) by the columns dx of x and dz of z; it broadcasts to (len(X), len(Z))."""
        raise NotImplementedError

    def _modulus(self, order: Order, radius: float) -> float | None:
        """sup ‖∂F(x) − ∂F(z)‖ over ‖x − z‖ ≤ radius in closed form; None without a closed form."""
        return None

    def _require_means(self, columns: int, normal: bool) -> None:
        """Raise KernelError unless `_means` has a closed form for points of so many columns, and normal ones if asked.

        A kernel that passes has `_means`, `_means_diagonal`, `_means_rounding` and `_used_columns`.
        """
        raise no_means(self, "no closed form of its means over boxes and normal distributions is known here")

    def _used_columns(self, columns: int) -> frozenset[int]:
        """The columns that κ depends on, of points of so many columns."""
        return frozenset(range(columns))

    def _means(self, X: Spread, Z: Spread) -> Array:
        """E κ(x + U, z + V) for independent U, V of the spread points (`interval_means`), (n, m)."""
        raise NotImplementedError

    def _means_diagonal(self, X: Spread) -> Array:
        """E κ(x + U, x + V) for independent U and V of one distribution, ‖E F(x + U)‖², (n,)."""
        raise NotImplementedError

    def _means_size(self, X: Spread) -> Array:
        """s(xᵢ) for spread points, as in `_size`."""
        return np.abs(self._means_diagonal(X))

    def _means_rounding(self, X: Spread, error: Array | None = None) -> float:
        """r as in `_rounding`, for spread points whose centres have errors; 3u in half-widths and deviations."""
        raise NotImplementedError

    def _rounding(self, at: Inexact) -> float:
        """r with |κ̂ − κ| ≤ r√(s(x)s(z)) at all pairs of points, for derivatives up to at.order in x and in z.

        By default 0: a kernel that states no bound has its computed values taken as exact.
        """
        return 0.0

    def _size(self, X: Array, order: Order = ()) -> Array:
        """s(xᵢ) with |∂κ(x, z)| ≤ √(s(x)s(z)): ‖∂F(xᵢ)‖² by default, (n,)."""
        if not order:
            return np.abs(self._diagonal(X))
        # Only diagonals are used; small blocks waste little on the entries beside them.
        blocks = [X[i : i + 64] for i in range(0, len(X), 64)]
        values = [np.broadcast_to(self._derivative(P, order, P, order), (len(P), len(P))) for P in blocks]
        return np.abs(np.concatenate([np.diag(K) for K in values]))

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """Gradients of Σᵢⱼ Gᵢⱼκ(xᵢ, zⱼ), by reverse mode.

        With respect to the `wanted` fields, named as in `get_params()` and in the fields' shapes, and with `points`
        also to X (n, d) and Z (m, d). G (n, m) is not modified. A composition passes the weights on to its parts with
        `pull` (`kernels/adjoints.py`).
        """
        raise MissingRuleError(
            f"{self!r} has no rule for gradients with respect to its {'points' if points else 'parameters'}. "
            f"Implement {self._kind.__name__}._adjoint, as docs/contributing.md explains, or write numbers in place of "
            "these parameters."
        )

    def _kinks(self, X: Array, Z: Array) -> Bools | None:
        """The pairs (n, m) at which κ has a kink as a function of one of the points; None where no pair has.

        By default those of the parts.
        """
        found = [mask for part in self.parts if (mask := part._kinks(X, Z)) is not None]
        return np.any(found, axis=0) if found else None

    # ---------------------------------------------------------------- what can be asked

    @property
    def _kind(self) -> type[Kernel]:
        """The class that states the formula."""
        return type(self)

    def _arguments(self) -> dict[str, Any]:
        """The values that the kernel was made from, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}  # type: ignore[arg-type]

    def _real_fields(self) -> dict[str, RealField]:
        """The fields that take real numbers, those of the parts included, named as in `get_params()`."""
        found = dict(self._kind._reals)
        for number, part in enumerate(self.parts, start=1):
            found |= {f"k{number}__{name}": field for name, field in part._real_fields().items()}
        return found

    def _own_parameters(self) -> tuple[cp.Parameter, ...]:
        return ()

    def parameters(self) -> list[cp.Parameter]:
        """The cvxpy parameters of the kernel and of its parts, each once, in the order of their first appearance.

        Examples
        --------
        >>> import cvxpy as cp, kernelopt as ko
        >>> sigma = cp.Parameter(pos=True, name="sigma")
        >>> mu = cp.Parameter(nonneg=True, name="mu")
        >>> kernel = ko.kernels.Gaussian(sigma=sigma) * mu + ko.kernels.Laplacian(sigma=sigma)
        >>> kernel, [parameter.name() for parameter in kernel.parameters()]
        (Gaussian(sigma=sigma) * mu + Laplacian(sigma=sigma), ['mu', 'sigma'])
        """
        inherited = (parameter for part in self.parts for parameter in part.parameters())
        return list({id(parameter): parameter for parameter in (*self._own_parameters(), *inherited)}.values())

    def at_present(self) -> Kernel:
        """The kernel with the present values of its parameters in their place; the kernel itself if it has none.

        Raises ParameterError for a parameter without a value, KernelError for a value out of range.

        Examples
        --------
        >>> import cvxpy as cp, kernelopt as ko
        >>> kernel = (
        ...     ko.kernels.Gaussian(sigma=cp.Parameter(pos=True, value=2.0))
        ...     + ko.kernels.Linear()
        ... )
        >>> kernel.at_present()
        Gaussian(sigma=2.0) + Linear()
        """
        return self._with_parts([part.at_present() for part in self.parts]) if self.parameters() else self

    def _with_parts(self, parts: Sequence[Kernel], **own: Any) -> Any:
        """The same kernel of other parts, and with other values of its own."""
        left = iter(parts)
        for name, value in self._arguments().items():
            if isinstance(value, Kernel):
                own[name] = next(left)
            elif _has_kernel(value):
                own[name] = tuple(next(left) for _ in value)
        return self._with(**own)

    def _with(self, **own: Any) -> Any:
        return replace(self, **own)  # type: ignore[type-var]

    @property
    def parts(self) -> tuple[Kernel, ...]:
        """The kernels that this one is made of."""
        values = (getattr(self, f.name) for f in fields(self))  # type: ignore[arg-type]
        return tuple(k for v in values for k in (v if isinstance(v, tuple) else (v,)) if isinstance(k, Kernel))

    @property
    def is_psd(self) -> bool | None:
        """True where positive semidefinite by rule, False where indefinite, None where each data set decides."""
        return self._verdict().psd

    def declarations(self) -> tuple[str, ...]:
        """Declarations about the kernel that are relied on without a proof, one sentence each.

        A user declares definiteness by `psd=True`, or by the rule of a class of their own. The tuple is empty where
        definiteness follows from the library's rules, or is checked on the data.

        Examples
        --------
        >>> import kernelopt as ko
        >>> common = ko.kernels.FromFunction(lambda a, b: len(a & b), psd=True)
        >>> (2.0 * common + ko.kernels.Constant(1.0)).declarations()
        ('FromFunction(<lambda>, psd=True) is positive semidefinite, as declared',)
        >>> ko.kernels.Gaussian(sigma=1.0).declarations()
        ()
        """
        if self.is_psd is not True:
            return ()  # definiteness is checked on each kernel matrix
        inherited = [sentence for part in self.parts for sentence in part.declarations()]
        return tuple(dict.fromkeys([*self._declared(), *inherited]))

    def _declared(self) -> tuple[str, ...]:
        """Declarations of this kernel without its parts: for a class of another package, the rule that it states."""
        if type(self).__module__.split(".")[0] == __name__.split(".")[0]:
            return ()
        return (f"{self!r} is positive semidefinite, as its class states",)

    def explain(self) -> Derivation:
        """Why the kernel is, or may not be, positive semidefinite, with a line for each part."""
        return Derivation(tuple(self._derivation("", "")))

    def _derivation(self, first: str, rest: str) -> Iterator[tuple[str, str]]:
        verdict = self._verdict()
        yield first + repr(self), f"{WORDS[verdict.psd]}: {verdict.reason}"
        for i, part in enumerate(self.parts):
            last = i == len(self.parts) - 1
            yield from part._derivation(rest + ("└ " if last else "├ "), rest + ("  " if last else "│ "))

    def _require_alike(self, rows: Any, other: Any) -> None:
        """Raise KernelError for points of another number of columns."""
        if self.domain.columns(rows) != self.domain.columns(other):
            raise KernelError(
                f"{self!r} expects points of one kind with equally many columns; got shapes {rows.shape} and "
                f"{other.shape}."
            )

    def __call__(self, X: Any, Z: Any = None) -> Array:
        """The kernel matrix κ(xᵢ, zⱼ), shape (len(X), len(Z)); Z defaults to X."""
        rows = self.rows(X)
        other = rows if Z is None else self.rows(Z)
        self._require_alike(rows, other)
        with np.errstate(all="ignore"):  # an overflow is reported below, with its points
            K = self._matrix(rows, None if Z is None else other)
        if not np.isfinite(K).all():
            i, j = (int(v) for v in np.argwhere(~np.isfinite(K))[0])
            raise KernelError(
                f"Expected {self!r} to give finite numbers; got {K[i, j]:g} for row {i} of X and row {j} of "
                f"{'X' if Z is None else 'Z'}. Rescale the data or the kernel."
            )
        return K

    def diag(self, X: Any) -> Array:
        """κ(xᵢ, xᵢ), shape (len(X),), without the full matrix."""
        return self._diagonal(self.rows(X))

    def rounding(self, X: Any) -> float:
        """r with |κ̂(xᵢ, xⱼ) − κ(xᵢ, xⱼ)| ≤ r·√(κ(xᵢ, xᵢ)κ(xⱼ, xⱼ)) for all rows xᵢ, xⱼ of X, an a priori bound.

        κ̂ is the value that double precision gives, in any blocks of rows; κ is the exact value of the formula for the
        same points and parameters. With u = 2⁻⁵³ and γₙ = nu/(1 − nu), sums may be taken in any order, and exp, log
        and pow are accurate to 4 units in the last place (Higham 2002, chapter 3). For a Gaussian kernel in d columns
        r ≈ (3d + 20)u·max‖x − c‖²/σ² + (d + 22)u, because ‖x − z‖² is a matrix product that cancels; c is the worst
        point in the box of the points. It takes O(N·d) operations.

        Values that users provide count as exact: functions, maps, weights, distances, precomputed matrices, kernels of
        other libraries, and kernels of your own without `_rounding`. For a kernel that is not positive semidefinite,
        the bound has |κ(xᵢ, xᵢ)| in place of κ(xᵢ, xᵢ). It is inf where a diagonal entry is no larger than its
        rounding error, or underflows.

        Examples
        --------
        >>> import kernelopt as ko
        >>> ko.kernels.Linear().rounding([[1.0, 2.0], [3.0, 4.0]]) / 2**-53  # γ₂
        2.00...
        >>> ko.kernels.Gaussian(sigma=1.0).rounding([[0.0], [1.0]]) < 1e-14
        True
        """
        return float(self._relative_rounding(self.rows(X)))

    @np.errstate(over="ignore", invalid="ignore")  # inf and nan mean that there is no bound
    def _relative_rounding(self, X: Array) -> float:
        """`rounding` for canonical rows."""
        if not len(X):
            return 0.0
        bound = relative_to(self._diagonal(X), self._size(X), self._rounding(Inexact(X)))
        return bound if bound >= 0 else inf

    def features(self, X: Any) -> Array:
        """The feature matrix with rows F(xᵢ)ᵀ, shape (len(X), p), where p is finite.

        Raises KernelError where the kernel has no finite feature map.
        """
        return self._features(self.rows(X))

    def rows(self, X: Any) -> Array:
        """`X` checked and turned into this kernel's canonical rows."""
        domain = self.domain
        rows = domain.rows(X, repr(self))
        if may_miss(domain):
            self._refuse(rows)
        return rows

    def _refuse(self, rows: Array) -> None:
        """Raise DataError for rows of the domain that the kernel takes no values of: missing values without a policy.

        Of a kernel without parts that states nothing else, these are rows with NaN; of others, what a part refuses.
        """
        for part in self.parts:
            part._refuse(rows)
        if not self.parts and rows.ndim == 2:
            refuse_missing(np.isnan(rows), range(rows.shape[1]), repr(self), FILL)

    def _check_points(self, X: Array) -> None:
        """Raise KernelError where the canonical rows of a problem contradict what the kernel declares of its points."""
        for part in self.parts:
            part._check_points(X)

    def __sklearn_clone__(self) -> Self:
        """scikit-learn's clone of an immutable value is that value."""
        return self

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; with `deep` also those of the parts, `k1__name` for the first part.

        Examples
        --------
        >>> import kernelopt as ko
        >>> kernel = ko.kernels.Gaussian(sigma=1.0) + ko.kernels.Polynomial(degree=2)
        >>> kernel.get_params()
        {'k1__sigma': 1.0, 'k2__degree': 2, 'k2__offset': 1.0, 'k2__scale': 1.0}
        >>> kernel.with_params(k1__sigma=3.0)
        Gaussian(sigma=3.0) + Polynomial(degree=2, offset=1.0, scale=1.0)
        """
        params = {name: value for name, value in self._arguments().items() if not _has_kernel(value)}
        for number, part in enumerate(self.parts if deep else (), start=1):
            params |= {f"k{number}__{name}": value for name, value in part.get_params().items()}
        return params

    def with_params(self, **params: Any) -> Self:
        """A kernel with some parameters changed, named as in `get_params()`. Raises KernelError for other names."""
        unknown = sorted(set(params) - set(self.get_params()))
        if unknown:
            raise KernelError(
                f"Expected parameters of {self!r}, {', '.join(self.get_params()) or 'which has none'}; got "
                f"{', '.join(unknown)}."
            )
        nested: dict[int, dict[str, Any]] = {}
        own = {}
        for name, value in params.items():
            head, _, tail = name.partition("__")
            if tail:
                nested.setdefault(int(head[1:]) - 1, {})[tail] = value
            else:
                own[name] = value
        return self._with_parts([part.with_params(**nested.get(i, {})) for i, part in enumerate(self.parts)], **own)

    # ---------------------------------------------------------------- composition

    def __add__(self, other: Any) -> Kernel:
        return COMPOSITIONS["+"](self, self._operand("+", other))

    def __sub__(self, other: Any) -> Kernel:
        """κ₁ − κ₂, positive semidefinite or not: decided for each data set."""
        return COMPOSITIONS["-"](self, self._operand("-", other))

    def __mul__(self, other: Any) -> Kernel:
        if isinstance(other, (Real, cp.Expression)):
            return COMPOSITIONS["c *"](other, self)
        return COMPOSITIONS["*"](self, self._operand("*", other))

    __rmul__ = __mul__

    def __radd__(self, other: Any) -> Kernel:
        return COMPOSITIONS["+"](self._operand("+", other), self)

    def _operand(self, symbol: str, other: Any) -> Kernel:
        """The other operand as a kernel. Raises DataTypeError: Python would try numpy's and a list's operators."""
        if not callable(other):
            number = " or a number ≥ 0" if symbol == "*" else ""
            raise DataTypeError(
                f"Expected kernel {symbol} other with a kernel{number}; got {type(other).__name__}, {shown(other)}. "
                "A constant c is the kernel ko.kernels.Constant(c), a multiple by a parameter kernel * parameter."
            )
        return COMPOSITIONS["as"](other)

    def __float__(self) -> NoReturn:
        # cvxpy's operators convert what stands at the right of a parameter to numbers, by this method.
        raise KernelError(
            f"Expected a number; got the kernel {self!r}. For a multiple with a cp.Parameter, write the kernel first: "
            "kernel * parameter."
        )

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # immutable

    def __pow__(self, exponent: int) -> Kernel:
        """κⁿ for an integer n ≥ 1."""
        return COMPOSITIONS["**"](self, exponent)

    def series(self, coefficients: Sequence[float] | cp.Parameter) -> Kernel:
        """q(κ) = Σₙ cₙ κⁿ with coefficients c₀, c₁, … ≥ 0."""
        return COMPOSITIONS["series"](self, coefficients)

    def exp(self) -> Kernel:
        """exp(κ(x, y))."""
        return COMPOSITIONS["exp"](self)

    def weighted(self, weight: Callable[[Any], Any]) -> Kernel:
        """f(x)κ(x, y)f(y), where f(X) returns one number for each point of X."""
        return COMPOSITIONS["weighted"](self, weight)

    def compose(self, map: Callable[[Any], Any]) -> Kernel:  # noqa: A002
        """κ(g(x), g(y)), where g(X) returns one point for each point of X."""
        return COMPOSITIONS["compose"](self, map)

    def on(self, columns: str | Sequence[str] | Sequence[int]) -> Kernel:
        """κ on the chosen columns of X, by their numbers, or by their names in a data frame."""
        return COMPOSITIONS["on names" if _are_names(columns) else "on"](self, columns)

    def with_missing(self, policy: str) -> Kernel:
        """κ for points with missing values (NaN): as a "level" of their own, or left out of distances, "ignore"."""
        return COMPOSITIONS["missing"](self, policy)

    def ard(self, scales: Sequence[float] | cp.Parameter) -> Kernel:
        """κ(x/ℓ, y/ℓ) with a length scale ℓⱼ > 0 for each column (automatic relevance determination)."""
        return COMPOSITIONS["ard"](self, scales)

    def normalized(self) -> Kernel:
        """κ(x, y)/√(κ(x, x)κ(y, y)), zero where κ(x, x) or κ(y, y) is zero."""
        return COMPOSITIONS["normalized"](self)

    def indexed(self, points: Any) -> Kernel:
        """κ(zᵢ, zⱼ) on row numbers i, j of given points, an array (N, d) or a cp.Parameter."""
        return COMPOSITIONS["indexed"](self, points)

    def cached(self, X: Any) -> Kernel:
        """κ(x, y) itself, looked up for rows of X in a matrix that is computed once."""
        return COMPOSITIONS["cached"](self, X)

    def centered(self, X: Any) -> Kernel:
        """(F(x) − m)ᵀ(F(y) − m), with m the mean of F over the rows of X, as centered kernel PCA needs."""
        return COMPOSITIONS["centered"](self, X)


def _are_names(columns: Any) -> bool:
    several = isinstance(columns, (list, tuple)) and bool(columns)
    return isinstance(columns, str) or (several and any(isinstance(c, str) for c in columns))


def _has_kernel(value: Any) -> bool:
    return isinstance(value, Kernel) or (isinstance(value, tuple) and any(isinstance(v, Kernel) for v in value))


def no_means(kernel: Kernel, why: str) -> KernelError:
    """The error for integrals of a kernel without a closed form."""
    return KernelError(
        f"Expected a kernel whose integrals have a closed form; got {kernel!r}: {why}. Write "
        "weights @ ko.FeatureMatrix(nodes, kernel) with nodes and weights of a quadrature rule."
    )


def require(condition: bool, name: str, expected: str, got: object) -> None:
    """Raise KernelError unless a kernel's parameter is as expected."""
    if not condition:
        raise KernelError(f"Expected {name} to be {expected}; got {shown(got)}.")


def require_kernels(*values: object) -> None:
    """Raise KernelError unless all are kernels."""
    for value in values:
        require(isinstance(value, Kernel), "a part", "a kernel", value)


def require_positive(kernel: Kernel, *names: str) -> None:
    """Raise KernelError unless the named parameters are numbers > 0."""
    for name in names:
        value = getattr(kernel, name)
        require(is_real(value) and value > 0, name, "a number > 0", value)
        if not isinstance(value, (int, float, np.number)):
            object.__setattr__(kernel, name, float(value))  # a fraction: numpy's functions take none


def symmetric(K: Array, owner: Kernel, precision: float = 0.0) -> Array:
    """½(K + Kᵀ) of a matrix K that is symmetric up to rounding.

    |κ(x, z) − κ(z, x)| ≤ tol·max(√|κ(x, x)κ(z, z)|, |κ(x, z)|, |κ(z, x)|), with tol = 1e-10, or 100 units of the
    values' precision where that is coarser. Raises KernelError naming the worst pair.
    """
    root = np.sqrt(np.abs(K.diagonal()))
    size = np.maximum(np.outer(root, root), np.maximum(np.abs(K), np.abs(K.T)))
    excess = np.abs(K - K.T) - max(ROUNDING, 100 * precision) * size
    if excess.max(initial=0.0) > 0:
        i, j = sorted(int(v) for v in np.unravel_index(np.argmax(excess), K.shape))
        raise KernelError(
            f"Expected {owner!r} to be symmetric; for points {i} and {j} it gives {K[i, j]:.10g} in one order "
            f"and {K[j, i]:.10g} in the other. Write a function that does not depend on the order of its arguments."
        )
    return np.asarray((K + K.T) / 2)


def entries(values: Any) -> tuple[Any, ...]:
    """The entries of a sequence or of a vector; none for other objects."""
    vector = isinstance(values, np.ndarray) and values.ndim == 1
    return tuple(values) if vector or (isinstance(values, Sequence) and not isinstance(values, str)) else ()


def nonnegative_numbers(values: Any, name: str) -> tuple[float, ...]:
    """A sequence of numbers ≥ 0 as a tuple. Raises KernelError."""
    numbers = entries(values)
    require(bool(numbers) and all(is_real(v) and v >= 0 for v in numbers), name, "numbers ≥ 0", values)
    return tuple(float(v) for v in numbers)


def require_positive_value(value: float, name: str, field: str = "sigma") -> None:
    """Raise KernelError unless a constructor's number is positive; a parameter can stand for the `field` only."""
    if isinstance(value, cp.Expression):
        raise KernelError(f"Expected {name} to be a number > 0; got {value!r}. Write {field}=cp.Parameter(pos=True).")
    require(is_real(value) and value > 0, name, "a number > 0", value)


class Symbol(tuple[Any, ...]):
    """Prints as a name, as a number or as a sequence of them."""

    name: str

    def __new__(cls, name: str) -> Self:
        symbol = super().__new__(cls)
        symbol.name = name
        return symbol

    def __repr__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return self.name


def listed(values: Any) -> str:
    """Numbers as a list; a parameter that stands for them by its name."""
    return repr(values if isinstance(values, Symbol) else list(values))
