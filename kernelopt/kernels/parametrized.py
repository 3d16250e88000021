"""Kernels with cvxpy parameters in place of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np

from kernelopt.errors import KernelError, ParameterError
from kernelopt.kernels.chain import Order
from kernelopt.kernels.domains import Domain, key, refuse_pickling
from kernelopt.kernels.interval_means import Spread
from kernelopt.kernels.kernel import COMPOSITIONS, Adjoint, Kernel, RealField, Symbol, Verdict
from kernelopt.kernels.rounding import Inexact
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array


@dataclass(frozen=True, eq=False)
class Held:
    """A parameter, compared by identity: cvxpy's own `==` makes a constraint."""

    parameter: cp.Parameter

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Held) and self.parameter is other.parameter

    def __hash__(self) -> int:
        return id(self.parameter)


@dataclass(frozen=True, eq=False, repr=False)
class Parametrized(Kernel):
    """κ(x, y; p), a kernel of class `kind` with cvxpy parameters p among its fields, at their present values.

    Calling a class of kernels with a parameter makes one. Definiteness, domain and smoothness follow from the declared
    sign of the parameters, and do not need their values.

    Raises
    ------
    KernelError
        For a parameter of another shape or sign than the field needs, for a field that takes no parameter, and for
        expressions of parameters.

    Examples
    --------
    >>> import cvxpy as cp, kernelopt as ko
    >>> sigma = cp.Parameter(pos=True, name="sigma")
    >>> kernel = ko.kernels.Gaussian(sigma=sigma)
    >>> kernel, kernel.is_psd
    (Gaussian(sigma=sigma), True)
    >>> sigma.value = 1.0
    >>> kernel([[0.0], [1.0]]).round(4)
    array([[1.    , 0.6065],
           [0.6065, 1.    ]])
    """

    kind: type[Kernel]
    values: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, kind: type[Kernel], args: tuple[Any, ...], named: Mapping[str, Any]) -> Parametrized:
        """The kernel that `kind(*args, **named)` stands for."""
        bound = kind.__signature__.bind(*args, **named)
        bound.apply_defaults()
        given = {name: _held(kind, name, value) for name, value in bound.arguments.items()}
        made = kind(**{name: _one(v.parameter) if isinstance(v, Held) else v for name, v in given.items()})
        # The constructor of `kind` has checked and converted the other values.
        return cls(kind, tuple((name, v if isinstance(v, Held) else getattr(made, name)) for name, v in given.items()))

    # ---------------------------------------------------------------- the fields

    @property
    def _kind(self) -> type[Kernel]:
        return self.kind

    def _arguments(self) -> dict[str, Any]:
        return {name: v.parameter if isinstance(v, Held) else v for name, v in self.values}

    def _own_parameters(self) -> tuple[cp.Parameter, ...]:
        return tuple(v.parameter for _, v in self.values if isinstance(v, Held))

    def _with(self, **own: Any) -> Any:
        return self.kind(**{**self._arguments(), **own})

    @property
    def parts(self) -> tuple[Kernel, ...]:
        return self._example.parts

    def __getattr__(self, name: str) -> Any:
        """The fields of the kernel that this one stands for."""
        for field, value in vars(self).get("values", ()):
            if field == name:
                return value.parameter if isinstance(value, Held) else value
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # ---------------------------------------------------------------- what does not depend on values

    @cached_property
    def _example(self) -> Kernel:
        """The kernel with 1 for each parameter."""
        return self.kind(**{name: _one(v.parameter) if isinstance(v, Held) else v for name, v in self.values})

    @property
    def domain(self) -> Domain:
        return self._example.domain

    def _verdict(self) -> Verdict:
        return self._example._verdict()

    def _declared(self) -> tuple[str, ...]:
        return (f"{self!r} is positive semidefinite, as its class states",) if self._example._declared() else ()

    @property
    def is_stationary(self) -> bool:
        return self._example.is_stationary

    @property
    def is_isotropic(self) -> bool:
        return self._example.is_isotropic

    @property
    def precision(self) -> float:
        return self._example.precision

    @property
    def _smoothness(self) -> int:
        return self._example._smoothness

    # ---------------------------------------------------------------- what does

    def at_present(self) -> Kernel:
        numbers = {name: _present(v.parameter, self) for name, v in self.values if isinstance(v, Held)}
        return self._with_parts([part.at_present() for part in self.parts], **numbers)

    def _check_points(self, X: Array) -> None:
        self.at_present()._check_points(X)

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        return self.at_present()._matrix(X, Z)

    def _diagonal(self, X: Array) -> Array:
        return self.at_present()._diagonal(X)

    def _n_features(self, X: Array) -> float:
        return self.at_present()._n_features(X)

    def _features(self, X: Array) -> Array:
        return self.at_present()._features(X)

    def _evaluator(self, centers: Array, coefficients: Array) -> Callable[[Array], Array] | None:
        return self.at_present()._evaluator(centers, coefficients)

    def _derivative(self, X: Array, dx: Order, Z: Array, dz: Order) -> Any:
        return self.at_present()._derivative(X, dx, Z, dz)

    def _require_means(self, columns: int, normal: bool) -> None:
        self._example._require_means(columns, normal)

    def _used_columns(self, columns: int) -> frozenset[int]:
        return self._example._used_columns(columns)

    def _means(self, X: Spread, Z: Spread) -> Array:
        return self.at_present()._means(X, Z)

    def _means_diagonal(self, X: Spread) -> Array:
        return self.at_present()._means_diagonal(X)

    def _means_size(self, X: Spread) -> Array:
        return self.at_present()._means_size(X)

    def _means_rounding(self, X: Spread, error: Array | None = None) -> float:
        return self.at_present()._means_rounding(X, error)

    def _modulus(self, order: Order, radius: float) -> float | None:
        return self.at_present()._modulus(order, radius)

    def _rounding(self, at: Inexact) -> float:
        return self.at_present()._rounding(at)

    def _size(self, X: Array, order: Order = ()) -> Array:
        return self.at_present()._size(X, order)

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        return self.at_present()._adjoint(X, Z, G, wanted, points)

    # ---------------------------------------------------------------- as a value

    def _name(self) -> tuple[Any, ...]:
        return self.kind, tuple((name, key(v) if isinstance(v, np.ndarray) else v) for name, v in self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Parametrized) and self._name() == other._name()

    def __hash__(self) -> int:
        return hash(self._name())

    def __getstate__(self) -> dict[str, Any]:
        for _, value in self.values:
            if callable(value) and not isinstance(value, Kernel):
                refuse_pickling(self, value)
        return {"kind": self.kind, "values": self.values}

    def __repr__(self) -> str:
        shown = object.__new__(self.kind)
        for name, value in self.values:
            object.__setattr__(shown, name, Symbol(value.parameter.name()) if isinstance(value, Held) else value)
        return repr(shown)


# What a field needs, by the sign of its numbers: words, and how a parameter is declared.
SIGNS = {
    "positive": ("numbers > 0", "pos=True"),
    "nonnegative": ("numbers ≥ 0", "nonneg=True"),
    "any": ("real numbers", ""),
}
# What a field needs by the number of its dimensions.
EXPECTED = (
    "one real number, of shape ()",
    "a dense vector of real numbers",
    "a dense matrix of real numbers, without structure",
)
# Attributes of cvxpy's that tie entries together.
STRUCTURES = ("sparsity", "symmetric", "diag", "PSD", "NSD")


def _held(kind: type[Kernel], name: str, value: Any) -> Any:
    """A parameter as it is held in a field, checked; any other value as it is. Raises KernelError."""
    owner = f"{name} of {kind.__name__}"
    if isinstance(value, (list, tuple)) and any(isinstance(v, cp.Expression) for v in value):
        raise KernelError(
            f"Expected {owner} to be numbers, or one cp.Parameter with an entry for each; got a {type(value).__name__} "
            f"with expressions of cvxpy. Write {name}=cp.Parameter({len(value)}, pos=True)."
        )
    if not isinstance(value, cp.Expression):
        return value
    field = kind._reals.get(name)
    if field is None:
        takes = ", ".join(kind._reals)
        raise KernelError(
            f"Expected {owner} without cvxpy parameters; got {value!r}. "
            + (f"Parameters can stand for {takes}." if takes else f"{kind.__name__} takes none.")
        )
    _require_parameter(owner, name, field, value)
    return Held(value)


def _require_parameter(owner: str, name: str, field: RealField, value: cp.Expression) -> None:
    words, declared = SIGNS[field.sign]
    shape = ("", "n", "(N, d)")[field.ndim]
    remedy = f"cp.Parameter({', '.join(filter(None, (shape, declared)))})"
    remedy += ", with n numbers, one for each entry" if field.ndim == 1 else ""
    if not isinstance(value, cp.Parameter):
        raise KernelError(
            f"Expected {owner} to be a number or a cp.Parameter; got {value!r}. A kernel takes no other expressions: "
            f"write {name}={remedy}, and set its value to that of the expression."
        )
    sound = value.is_pos() if field.sign == "positive" else value.is_nonneg() if field.sign == "nonnegative" else True
    if not sound and not _bounded(value, field):
        raise KernelError(
            f"Expected {owner} to be {words} for all values of its parameter; got {value!r}, whose declaration does "
            f"not say so. Write {name}={remedy}."
        )
    structured = any(value.attributes[name] for name in STRUCTURES)
    if value.ndim != field.ndim or value.size == 0 or not value.is_real() or structured:
        expected = EXPECTED[field.ndim]
        raise KernelError(
            f"Expected the parameter for {owner} to be {expected}; got {value!r} of shape {value.shape}. Write "
            f"{name}={remedy}."
        )


def _bounded(parameter: cp.Parameter, field: RealField) -> bool:
    """Whether the parameter's lower bounds give it the sign that the field needs."""
    bounds = parameter.attributes["bounds"]
    if bounds is None:
        return False
    least = float(np.min(bounds[0]))
    return least > 0 if field.sign == "positive" else least >= 0


def _one(parameter: cp.Parameter) -> Any:
    """1 in the parameter's shape."""
    return _of_field(np.ones(parameter.shape))


def _present(parameter: cp.Parameter, owner: Kernel) -> Any:
    """The parameter's value. Raises ParameterError where it has none."""
    value = parameter.value
    if value is None:
        raise ParameterError(
            f"Expected the parameter {parameter.name()} of {owner!r} to have a value; got none. Set its .value first."
        )
    return _of_field(np.asarray(value, dtype=float))


def _of_field(values: Array) -> Any:
    """Numbers as a field holds them: a number, a tuple or a matrix."""
    return values if values.ndim == 2 else tuple(values.tolist()) if values.ndim else float(values)


def kept_at_present(kernel: Kernel, part: Kernel) -> Kernel:
    """`at_present()` of a kernel of one part, the same object until the part's parameters change."""
    present = part.at_present()
    if present is part:
        return kernel
    kept = vars(kernel).get("_kept")
    if kept is None or kept.parts[0] != present:
        kept = vars(kernel)["_kept"] = kernel._with_parts([present])
    return kept


COMPOSITIONS["parametrized"] = Parametrized.of
