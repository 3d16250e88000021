"""A user's own convex function of rows: value, conjugate and proximal map, as functions of arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, NoReturn

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.errors import DataError, DataTypeError, DCPError, OptionError
from kernelopt.kernels.domains import check_finite, real_array
from kernelopt.pieces.moreau import ProximalFunction
from kernelopt.support.arithmetic import UNIT
from kernelopt.support.checks import called
from kernelopt.support.cvxpy_parts import Atom
from kernelopt.support.types import Array

Function = Callable[..., Any]
TAKES = {"value": "(S, *data)", "conjugate": "(A, w, *data)", "prox": "(Z, t, *data)"}
ROWS = 20  # rows of the data at which a loss is checked at each call
# Relative to the sizes of terms: errors of an identity beyond rounding, and beyond what a multiplier is moved into its
# domain. A wrong formula is off by far more.
ACCURACY = 1e-5
ROUNDINGS = 16 * UNIT  # of a proximal map, relative to its arguments and data: slopes are differences divided by t
WEIGHTS = (0.25, 3.0)  # at which w·h*(a/w) is compared with the conjugate for w
LENGTHS = (1e-2, 1.0, 100.0)  # t of proximal maps, in units of the data
FAR = (-1e3, 10.0, 1e3)  # of points along a, in units of the data


class ProximalLoss:
    """h(s, *data), a convex function of each row s of k numbers, by its value, its conjugate and its proximal map.

    Called with an affine expression of predictions, of shape (m, k) or (m,), it returns a cvxpy expression of shape
    (m,), for the minimized objective and for constraints of a `ko.Problem`: sum it by `cp.sum`, or weigh it by
    `w @ loss(...)` with w ≥ 0. Such problems are solved by METHOD_OF_MULTIPLIERS and certified as others are.

    Parameters
    ----------
    value : callable (S, *data) → array (m,)
        h(s) for each row of S (m, k); ∞ outside of its domain.
    conjugate : callable (A, w, *data) → array (m,)
        (wh)*(a) = sup over s of a·s − w·h(s) for each row of A (m, k), with w > 0 (m,); ∞ where a is outside of its
        domain, to the last bit: lower bounds rest on it. Its error is taken to be at most 64u·(|value| + ‖a‖₁·the
        largest datum of the row), u = 2⁻⁵³. A domain without an interior, as {a ≥ 0, Σa = w} of the largest entry,
        must take in what rounding leaves of it, 1e-9·w: write such functions in cvxpy's atoms where you can.
    prox : callable (Z, t, *data) → array (m, k)
        argmin over x of ½‖x − z‖² + t·h(x) for each row of Z (m, k), with t > 0 (m,).
    name : str
        What messages call it; that of `value` by default.

    Raises
    ------
    OptionError
        For an argument that is no function.
    DataError
        At a call: if data contain NaN or have another number of rows; if a function returns another shape, or NaN; if
        the three contradict each other, see `ko.testing.check_function`.

    Notes
    -----
    Data are arrays or cp.Parameters of m rows, or single numbers, which the functions get as m rows, too.
    The proximal map gives slopes, (z − prox(z))/t ∈ ∂h(prox(z)), and derivatives of it by differences.
    Moreau (1965), "Proximité et dualité dans un espace hilbertien"; Rockafellar (1970), "Convex Analysis", section 12.

    Examples
    --------
    Distances of predictions in the plane from their targets:

    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> def value(S, Y):
    ...     return np.linalg.norm(S - Y, axis=1)
    >>> def conjugate(A, w, Y):
    ...     return np.where(np.linalg.norm(A, axis=1) <= w, np.sum(A * Y, axis=1), np.inf)
    >>> def prox(Z, t, Y):
    ...     length = np.linalg.norm(Z - Y, axis=1)
    ...     return Y + np.maximum(1 - t / np.maximum(length, 1e-300), 0)[:, None] * (Z - Y)
    >>> distance = ko.ProximalLoss(value, conjugate, prox, name="distance")
    >>> t = np.linspace(0, 6, 20)
    >>> X, Y = t[:, None], np.column_stack([np.cos(t), np.sin(t)])
    >>> theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=2)
    >>> objective = cp.sum(distance(theta(X), Y)) + 0.1 * ko.sum_squares(theta)
    >>> problem = ko.Problem(cp.Minimize(objective))
    >>> _ = problem.solve()
    >>> print(problem.status, problem.certificate.relative_gap < 1e-6)
    optimal True
    """

    def __init__(self, value: Function, conjugate: Function, prox: Function, name: str | None = None) -> None:
        for role, function in (("value", value), ("conjugate", conjugate), ("prox", prox)):
            if not callable(function):
                raise OptionError(f"Expected {role} to be a function of arrays; got {function!r}.")
        if name is not None and not isinstance(name, str):
            raise OptionError(f"Expected name to be a string; got {name!r}.")
        self._functions = {"value": value, "conjugate": conjugate, "prox": prox}
        own = str(getattr(value, "__name__", ""))
        self.name = name or (own if own.isidentifier() and own != "value" else "ProximalLoss")

    def __call__(self, s: Any, *data: Any) -> ProximalTerm:
        """h(s, *data) of each row, as a cvxpy expression of shape (m,).

        Parameters
        ----------
        s : affine cvxpy expression of shape (m, k) or (m,)
        *data : arrays, lists, pandas objects or cp.Parameters of m rows, or single numbers
        """
        if not isinstance(s, cp.Expression):
            s = real_array(s, f"the argument of {self.name}")
            check_finite(s, f"the argument of {self.name}")
            s = cp.Constant(s)
        if not s.is_real():
            raise DataTypeError(f"Expected the argument of {self.name} to be real; got the complex expression {s!r}.")
        if s.ndim not in (1, 2):
            raise DataError(f"Expected the argument of {self.name} of shape (m, k) or (m,); got shape {s.shape}.")
        known = [_data(d, s.shape[0], f"argument {i} of {self.name}") for i, d in enumerate(data, 1)]
        term = ProximalTerm(s, *known, self)
        function = term.function()
        if function is not None:
            check(function, self.name)
        return term

    def __repr__(self) -> str:
        return f"ProximalLoss({self.name})"

    # ---------------------------------------------------------------- values

    def value(self, s: Array, data: tuple[Array, ...]) -> Array:
        """h(s), ∞ where it overflows."""
        found = self._evaluated("value", (len(s),), s, *data)
        return np.where(np.isnan(found), inf, found)

    def conjugate(self, a: Array, w: Array, data: tuple[Array, ...]) -> Array:
        return self._evaluated("conjugate", (len(a),), a, w, *data)

    def prox(self, z: Array, t: Array, data: tuple[Array, ...]) -> Array:
        return self._evaluated("prox", z.shape, z, t, *data)

    def _evaluated(self, which: str, shape: tuple[int, ...], *arrays: Array) -> Array:
        with np.errstate(all="ignore"):
            what, expected = f"the {which} of {self.name}", TAKES[which]
            found = np.asarray(called(self._functions[which], what, expected, *arrays))
        if found.shape != shape or found.dtype.kind not in "fiub":
            raise DataError(
                f"Expected the {which} of {self.name} to be an array of real numbers of shape {shape}; got dtype "
                f"{found.dtype} of shape {found.shape}. It gets one row for each function, and returns one for each."
            )
        return found.astype(float, copy=False)


class ProximalTerm(Atom):
    """h(s, *data) of each row of s as a cvxpy atom, which cvxpy's rules take as convex and not monotone."""

    def __init__(self, *arguments: Any) -> None:
        *args, self.loss = arguments
        super().__init__(*args)

    def get_data(self) -> list[Any]:
        return [self.loss]

    def shape_from_args(self) -> tuple[int, ...]:
        return (self.args[0].shape[0],)

    def function(self) -> ProximalFunction | None:
        """The functions of all rows; None if data have no value yet."""
        known, m = [a.value for a in self.args[1:]], self.args[0].shape[0]
        if any(d is None for d in known):
            return None
        return ProximalFunction(self.loss, _rows(known, m), m, self.args[0].size // max(m, 1))

    def sign_from_args(self) -> tuple[bool, bool]:
        return False, False

    def is_atom_convex(self) -> bool:
        return True

    def is_atom_concave(self) -> bool:
        return False

    def is_incr(self, idx: int) -> bool:
        return False

    def is_decr(self, idx: int) -> bool:
        return False

    def name(self) -> str:
        return f"{self.loss.name}({', '.join(a.name() for a in self.args)})"

    def numeric(self, values: Any) -> Array:
        s, *data = values
        s = np.asarray(s, dtype=float)
        return self.loss.value(s.reshape(len(s), -1), _rows(data, len(s)))

    def _grad(self, values: Any) -> list[Any]:
        """Slopes: entry (i, j) of s is number i + mj."""
        s, *data = values
        s = np.asarray(s, dtype=float).reshape(self.args[0].shape[0], -1)
        found = ProximalFunction(self.loss, _rows(data, len(s)), *s.shape).slope(s)
        place = np.arange(s.size), np.tile(np.arange(len(s)), s.shape[1])
        of_s = sp.csc_array((found.ravel(order="F"), place), shape=(s.size, len(s)))
        return [of_s, *(None for _ in data)]

    def graph_implementation(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise DCPError(
            f"{self.loss.name}(…) is a ko.ProximalLoss, which cp.Problem cannot compile. Write ko.Problem(objective, "
            "constraints) instead of cp.Problem(objective, constraints)."
        )


def _rows(data: Any, m: int) -> tuple[Array, ...]:
    """Data as arrays of m rows."""
    parts = [np.asarray(d.toarray() if sp.issparse(d) else d, dtype=float) for d in data]
    return tuple(np.full(m, float(d)) if d.ndim == 0 else d for d in parts)


def _data(value: Any, m: int, what: str) -> cp.Expression:
    """Data of m rows, or a single number, as a constant or parameter."""
    if isinstance(value, cp.Expression):
        if not value.is_constant():
            raise DataError(
                f"Expected {what} to be data, an array or a cp.Parameter; got an expression. The order is loss(F, y): "
                "predictions come first, as in the functions of (S, *data)."
            )
        expression = value
    else:
        array = real_array(value, what)
        check_finite(array, what)
        expression = cp.Constant(array)
    if expression.shape and expression.shape[0] != m:
        raise DataError(f"Expected {what} with {m} rows, or one number; got shape {expression.shape}.")
    return expression


# ---------------------------------------------------------------- the check


@dataclass(frozen=True, eq=False)
class _Sample:
    """x = prox(z, t) and the slope (z − x)/t at each row; noise : what rounding of the slope does to a product."""

    x: Array
    slope: Array
    noise: Array


@np.errstate(all="ignore")  # outside of domains
def check(function: ProximalFunction, name: str) -> None:
    """Raise DataError where value, conjugate and proximal map are not those of one convex function.

    At x = prox(z, t), a = (z − x)/t is a slope of h: h(x) + h*(a) = a·x, and h(s) + h*(a) ≥ a·s elsewhere. Slopes do
    not decrease, h is convex between points, and (wh)*(wa) = w·h*(a).
    """
    rows = np.unique(np.linspace(0, function.m - 1, min(ROWS, function.m)).astype(int)) if function.m else np.arange(0)
    if not len(rows) or not function.k:
        return
    h, unit = function.take(rows), _unit(function.data)
    samples = _samples(h, unit, name, rows)
    _check_domain(h, samples, name, rows, unit)
    ones = np.ones(len(rows))
    for one in samples:
        value, a = h.value(one.x), h.nearest(one.slope, ones)
        beyond = np.abs(a - one.slope).max(axis=1)
        of_slopes = ACCURACY * (1 + np.abs(one.slope).max(axis=1)) + one.noise
        _require(beyond <= of_slopes, name, "slopes (z − prox(z))/t in the domain of the conjugate", rows, beyond)
        _require(np.isfinite(value), name, "a finite value at each point of its proximal map", rows, value)
        conjugate, product = h.loss.conjugate(a, ones, h.data), np.sum(a * one.x, axis=1)
        _require(np.isfinite(conjugate), name, "a finite conjugate at slopes (z − prox(z))/t", rows, conjugate)
        size = np.abs(value) + np.abs(conjugate) + np.sum(np.abs(a) * (unit + np.abs(one.x)), axis=1)
        apart = np.abs(value + conjugate - product)
        equal = "h(x) + h*(a) = a·x at x = prox(z), a = (z − x)/t"
        _require(apart <= ACCURACY * size + one.noise, name, equal, rows, apart)
        for w in WEIGHTS:
            inside = h.nearest(w * a, w * ones)
            beyond = np.abs(inside - w * a).max(axis=1)
            stays = f"a finite (wh)*(wa) for w = {w} and slopes a of h"
            _require(beyond <= w * of_slopes, name, stays, rows, beyond)
            apart = np.abs(h.loss.conjugate(inside, w * ones, h.data) - w * conjugate)
            allowed = w * (ACCURACY * size + one.noise)
            _require(apart <= allowed, name, f"(wh)*(wa) = w·h*(a) for w = {w}", rows, apart)
        for other in samples:
            there, noise = h.value(other.x), one.noise + other.noise
            least = np.sum(a * other.x, axis=1) - conjugate
            below, allowed = least - there, ACCURACY * (size + np.abs(there) + np.abs(least)) + noise
            _require(~(below > allowed), name, "h(s) ≥ a·s − h*(a) for every s and every slope a", rows, below)
            above = h.value(0.5 * (one.x + other.x)) - 0.5 * (value + there)
            _require(~(above > ACCURACY * (size + np.abs(there)) + noise), name, "h to be convex", rows, above)
            turned, moved = one.slope - other.slope, one.x - other.x
            falls = -np.sum(turned * moved, axis=1)
            allowed = ACCURACY * (size + np.sum(np.abs(turned * moved), axis=1)) + noise
            _require(~(falls > allowed), name, "slopes (z − prox(z))/t that do not decrease", rows, falls)


def _samples(h: ProximalFunction, unit: float, name: str, rows: Array) -> list[_Sample]:
    """Points of the proximal map, of data of size 1 and of the data's own, for short and long steps."""
    rng, shape, found = np.random.default_rng(0), (h.m, h.k), list[_Sample]()
    for scale in (1.0, unit):
        for length in LENGTHS:
            z, t = scale * rng.normal(size=shape) * rng.choice([0.1, 1.0, 10.0]), np.full(h.m, length * scale)
            x = h.loss.prox(z, t, h.data)
            _require(np.all(np.isfinite(x), axis=1), name, "a proximal map with finite values", rows, x)
            error = ROUNDINGS * np.sum(np.abs(z) + np.abs(x) + unit, axis=1) / t
            found.append(_Sample(x, (z - x) / t[:, None], error * (unit + np.abs(x).max(axis=1))))
    return found


def _check_domain(h: ProximalFunction, samples: list[_Sample], name: str, rows: Array, unit: float) -> None:
    """Where the conjugate is finite beyond slopes of h, no s may exceed h(s) + h*(a) either, far away included."""
    rng, ones = np.random.default_rng(1), np.ones(len(rows))
    for one in samples:
        beside = np.abs(one.slope).max(axis=1, keepdims=True) * rng.normal(size=one.slope.shape)
        for a in (1.5 * one.slope, one.slope + beside):
            conjugate = h.loss.conjugate(a, ones, h.data)
            length = np.linalg.norm(a, axis=1, keepdims=True)
            along = a / np.where(length > 0, length, 1.0)
            for s in (*(other.x for other in samples), *(factor * unit * along for factor in FAR)):
                value, product = h.value(s), np.sum(a * s, axis=1)
                size = np.abs(value) + np.abs(conjugate) + np.sum(np.abs(a) * (unit + np.abs(s)), axis=1)
                beyond = np.where(np.isfinite(conjugate), product - value - conjugate, 0.0)
                told = "h(s) ≥ a·s − h*(a) wherever h*(a) is finite"
                _require(~(beyond > ACCURACY * size + one.noise), name, told, rows, beyond)


def _unit(data: tuple[Array, ...]) -> float:
    """A typical datum; 1 without one."""
    sizes = [np.abs(part[part != 0]) for part in data]
    every = np.concatenate([np.zeros(0), *(part.ravel() for part in sizes)])
    return float(np.median(every)) if len(every) else 1.0


def _require(holds: Any, name: str, what: str, rows: Array, numbers: Array) -> None:
    if not np.all(holds):
        i = int(np.argmin(holds))
        shown = ", ".join(f"{x:.6g}" for x in np.atleast_1d(numbers[i]))
        raise DataError(f"Expected {name} to have {what}; in row {rows[i]} got {shown}.")
