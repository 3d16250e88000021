"""Kernels with cvxpy parameters in place of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from inspect import signature
from typing import Any, cast

import cvxpy as cp
import numpy as np

from kernelopt.errors import KernelError, ParameterError
from kernelopt.kernels.chain import Order
from kernelopt.kernels.domains import Domain
from kernelopt.kernels.kernel import COMPOSITIONS, Kernel, PointSlopes, Verdict
from kernelopt.kernels.rounding import Inexact
from kernelopt.support.types import Array


class Symbol:
    """A parameter as a field of a kernel: equal to itself only."""

    def __init__(self, parameter: cp.Parameter) -> None:
        self.parameter = parameter

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Symbol) and other.parameter is self.parameter

    def __hash__(self) -> int:
        return id(self.parameter)

    def __iter__(self) -> Iterator[Symbol]:
        yield self  # as a sequence of numbers in a kernel's repr

    def __repr__(self) -> str:
        return str(self.parameter.name())


@dataclass(frozen=True, repr=False)
class Parametrized(Kernel):
    """A kernel of class `make` with some of its numbers in parameters: made by `Gaussian(sigma=parameter)`.

    Its values, and all that depends on them, are those of the kernel with the values that parameters have now.

    Examples
    --------
    >>> import cvxpy as cp, kernelopt as ko
    >>> sigma = cp.Parameter(pos=True, name="sigma")
    >>> kernel = ko.kernels.Gaussian(sigma=sigma) + ko.kernels.Linear()
    >>> kernel, kernel.is_psd
    (Gaussian(sigma=sigma) + Linear(), True)
    >>> sigma.value = 2.0
    >>> kernel([[0.0]], [[1.0]]).round(4), kernel.at_present()
    (array([[0.8825]]), Gaussian(sigma=2.0) + Linear())
    """

    make: type[Kernel]
    values: tuple[tuple[str, Any], ...]

    # ---------------------------------------------------------------- numbers in place of parameters

    def _with(self, number: Callable[[cp.Parameter], Any], part: Callable[[Kernel], Kernel]) -> Kernel:
        return self.make(**{name: _mapped(value, number, part) for name, value in self.values})

    def at_present(self) -> Kernel:
        return self._with(_present, lambda part: part.at_present())

    @property
    def _here(self) -> Kernel:
        """The kernel with numbers here, and parameters in its parts."""
        return self._with(_present, lambda part: part)

    @property
    def _any(self) -> Kernel:
        """The kernel with present values, or 1 where there are none: what does not depend on values is known by it."""
        return self._with(lambda p: _present(p) if p.value is not None else _ones(p), lambda part: part)

    def parameters(self) -> list[cp.Parameter]:
        own = [value.parameter for _, value in self.values if isinstance(value, Symbol)]
        inner = [p for part in self.parts for p in part.parameters()]
        return list(dict.fromkeys([*own, *inner]))

    @property
    def parts(self) -> tuple[Kernel, ...]:
        several = (v if isinstance(v, tuple) else (v,) for _, v in self.values)
        return tuple(k for values in several for k in values if isinstance(k, Kernel))

    # ---------------------------------------------------------------- as the kernel with numbers

    @property
    def domain(self) -> Domain:
        return self._any.domain

    def _verdict(self) -> Verdict:
        return self._any._verdict()

    @property
    def is_stationary(self) -> bool:
        return self._any.is_stationary

    @property
    def is_isotropic(self) -> bool:
        return self._any.is_isotropic

    @property
    def precision(self) -> float:
        return self._any.precision

    @property
    def _smoothness(self) -> int:
        return self._any._smoothness

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        return self.at_present()._matrix(X, Z)

    def _diagonal(self, X: Array) -> Array:
        return self.at_present()._diagonal(X)

    def _n_features(self, X: Array) -> float:
        return self._any._n_features(X)

    def _features(self, X: Array) -> Array:
        return self.at_present()._features(X)

    def _evaluator(self, centers: Array, coefficients: Array) -> Callable[[Array], Array] | None:
        return self.at_present()._evaluator(centers, coefficients)

    def _derivative(self, X: Array, dx: Order, Z: Array, dz: Order) -> Any:
        return self.at_present()._derivative(X, dx, Z, dz)

    def _modulus(self, order: Order, radius: float) -> float | None:
        return self.at_present()._modulus(order, radius)

    def _rounding(self, at: Inexact) -> float:
        return self.at_present()._rounding(at)

    def _size(self, X: Array, order: Order = ()) -> Array:
        return self.at_present()._size(X, order)

    def _check_points(self, X: Array) -> None:
        self._any._check_points(X)

    def _declared(self) -> tuple[str, ...]:
        return self._any._declared()

    def _adjoint(self, X: Array, Z: Array, G: Array, pull: Any, points: bool) -> tuple[dict[Any, Any], PointSlopes]:
        own, of_points = self._here._adjoint(X, Z, G, pull, points)
        symbols = {name: value.parameter for name, value in self.values if isinstance(value, Symbol)}
        missing = [name for name in symbols if name not in own]
        if missing:
            raise KernelError(f"Expected a derivative of {self!r} by {missing[0]}; `_adjoint` of its class gives none.")
        found: dict[Any, Any] = {}
        for name, parameter in symbols.items():
            value = np.reshape(np.asarray(own[name], dtype=float), parameter.shape)
            found[parameter] = found[parameter] + value if parameter in found else value
        return found, of_points

    # ---------------------------------------------------------------- parameters by name

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        own = {
            name: value.parameter if isinstance(value, Symbol) else value
            for name, value in self.values
            if not isinstance(value, Kernel) and not _has_kernels(value)
        }
        for number, part in enumerate(self.parts if deep else (), start=1):
            own |= {f"k{number}__{name}": value for name, value in part.get_params().items()}
        return own

    def _changed(self, own: dict[str, Any], parts: list[Kernel]) -> Kernel:
        left, values = iter(parts), dict[str, Any]()
        for name, value in self.values:
            if isinstance(value, Kernel):
                values[name] = next(left)
            elif _has_kernels(value):
                values[name] = tuple(next(left) for _ in value)
            else:
                values[name] = own.get(name, value.parameter if isinstance(value, Symbol) else value)
        return self.make(**values)

    def __repr__(self) -> str:
        shown = object.__new__(self.make)
        for name, value in self.values:
            object.__setattr__(shown, name, value)
        text = repr(shown)
        for _, value in self.values:
            text = text.replace(f"[{value!r}]", repr(value)) if isinstance(value, Symbol) else text
        return text


def _present(p: cp.Parameter) -> Any:
    """The value of a parameter as a kernel takes it. Raises ParameterError."""
    if p.value is None:
        raise ParameterError(f"Expected a value for the parameter {p.name()}; got none. Set {p.name()}.value.")
    return _number(np.asarray(p.value, dtype=float))


def _ones(p: cp.Parameter) -> Any:
    return _number(np.full(p.shape, -1.0 if p.is_nonpos() and not p.is_nonneg() else 1.0))


def _number(value: Array) -> Any:
    return float(value) if value.ndim == 0 else tuple(value.ravel().tolist())


def _mapped(value: Any, number: Callable[[cp.Parameter], Any], part: Callable[[Kernel], Kernel]) -> Any:
    if isinstance(value, Symbol):
        return number(value.parameter)
    if isinstance(value, Kernel):
        return part(value)
    return tuple(part(one) for one in value) if _has_kernels(value) else value


def _has_kernels(value: Any) -> bool:
    return isinstance(value, tuple) and any(isinstance(v, Kernel) for v in value)


def parametrized(make: type[Kernel], args: tuple[Any, ...], named: dict[str, Any]) -> Kernel:
    """The kernel of a class for arguments of which some are cvxpy parameters. Raises KernelError."""
    given = signature(make).bind(*args, **named)
    given.apply_defaults()
    names = [f.name for f in fields(cast(Any, make)) if f.init]
    values = {name: given.arguments[name] for name in names}
    for name, value in values.items():
        if isinstance(value, cp.Expression):
            _require_parameter(make, name, value, values)
    symbols = {n: Symbol(v) if isinstance(v, cp.Parameter) else v for n, v in values.items()}
    return Parametrized(make, tuple(symbols.items()))


def _require_parameter(make: type[Kernel], name: str, value: cp.Expression, values: dict[str, Any]) -> None:
    """Raise KernelError unless a kernel takes all numbers of the parameter's shape and sign for a field."""
    if not isinstance(value, cp.Parameter):
        raise KernelError(
            f"Expected {name} to be a number or a cp.Parameter; got the expression {value}. Take a parameter for it."
        )
    others = {n: _ones(v) if isinstance(v, cp.Parameter) else v for n, v in values.items()}

    def fails(number: float) -> str:
        try:
            make(**{**others, name: _number(np.full(value.shape, number))})
        except KernelError as error:
            return str(error)
        return ""

    usual = fails(float(np.ravel(_ones(value))[0]))
    if usual:
        raise KernelError(f"Expected {name} of {make.__name__} to be given as a number; it takes no parameter of shape "
                          f"{value.shape}: {usual}")  # fmt: skip
    if value.is_complex() or value.attributes.get("integer") or value.attributes.get("boolean"):
        raise KernelError(f"Expected a parameter of real numbers for {name}; got {value.name()}, which has attributes.")
    if fails(0.0) and not value.attributes.get("pos"):
        raise KernelError(
            f"Expected a parameter that is positive for {name}; got {value.name()}. Declare cp.Parameter(…, pos=True)."
        )
    if fails(-1.0) and not value.is_nonneg():
        raise KernelError(
            f"Expected a parameter ≥ 0 for {name}; got {value.name()}. Declare cp.Parameter(…, nonneg=True)."
        )


COMPOSITIONS["parametrized"] = cast(Any, parametrized)
