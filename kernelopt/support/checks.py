"""Checks of arguments where a call begins, in one wording: expected, got, remedy."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from math import isfinite
from numbers import Integral, Real
from typing import Any, cast

import numpy as np

from kernelopt.errors import DataTypeError, KernelOptError, OptionError

LONGEST = 120  # characters of a value in a message


def shown(value: object) -> str:
    """A value for a message, shortened. An integer of thousands of digits has no text in Python."""
    try:
        text = repr(value)
    except Exception:  # a user's object may raise anything, and a message must not
        text = f"<{type(value).__name__}>"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 20]} … {text[-17:]}"


def is_real(value: object) -> bool:
    """A finite real number that a double holds (bool excluded)."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return isfinite(float(value))
    except OverflowError:
        return False


def is_integer(value: object) -> bool:
    """An integer of 64 bits (bool excluded)."""
    return isinstance(value, Integral) and not isinstance(value, bool) and -(2**63) <= int(value) < 2**63


def is_function(value: object) -> bool:
    """Whether it can be called and is no class: a class given for one of its instances is a slip."""
    return callable(value) and not isinstance(value, type)


def is_function_of_two(value: object) -> bool:
    """Whether it can be called with two arguments; objects of this library, such as θ, are no functions of two."""
    if not is_function(value) or type(value).__module__.startswith("kernelopt."):
        return False
    if getattr(value, "nin", 2) != 2:  # numpy's functions
        return False
    try:
        signature(cast(Callable[..., Any], value)).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # no signature is known
        return True
    return True


def require_number(
    value: Any, name: str, expected: str, holds: Callable[[float], bool], error: type[KernelOptError] = OptionError
) -> None:
    """Raise an error unless the value is a finite real number for which `holds`."""
    if not is_real(value) or not holds(value):
        raise error(f"Expected {name} to be {expected}; got {shown(value)}.")


def require_limit(time_limit: Any) -> None:
    """Raise OptionError unless it is a number of seconds > 0, or None."""
    if time_limit is not None:
        require_number(time_limit, "time_limit", "a positive number of seconds, or None", lambda value: value > 0)


def require_kind(value: Any, kinds: type | tuple[type, ...], name: str, expected: str, remedy: str = "") -> None:
    """Raise DataTypeError unless the value is an instance of one of the kinds."""
    if not isinstance(value, kinds):
        got = f"the class {value.__name__}" if isinstance(value, type) else f"{type(value).__name__}, {shown(value)}"
        raise DataTypeError(f"Expected {name} to be {expected}; got {got}.{' ' if remedy else ''}{remedy}")


def require_flag(value: Any, name: str) -> None:
    """Raise OptionError unless the value is True or False."""
    if not isinstance(value, bool | np.bool_) and not (is_integer(value) and value in (0, 1)):
        raise OptionError(f"Expected {name} to be True or False; got {shown(value)}.")


def generator(random_state: Any) -> np.random.Generator:
    """The generator that a seed stands for. Raises OptionError."""
    seed = is_integer(random_state) and random_state >= 0
    if not seed and not isinstance(random_state, np.random.Generator | None):
        raise OptionError(
            f"Expected random_state to be an integer ≥ 0, a numpy.random.Generator or None; got {shown(random_state)}."
        )
    return np.random.default_rng(random_state)


def called(function: Callable[..., Any], what: str, expected: str, *arguments: Any) -> Any:
    """The value of a user's function. Raises OptionError where it does not take these arguments."""
    try:
        return function(*arguments)
    except TypeError as error:
        try:
            signature(function).bind(*arguments)
        except TypeError:
            raise OptionError(
                f"Expected {what} to take {expected}, {len(arguments)} arguments here; its signature is "
                f"{signature(function)}."
            ) from error
        except ValueError:  # a function without a signature
            pass
        raise


def require_callable(value: Any, name: str, expected: str) -> None:
    """Raise DataTypeError unless the value can be called, and is no class."""
    if not is_function(value):
        raise DataTypeError(f"Expected {name} to be {expected}; got {type(value).__name__}, {shown(value)}.")
