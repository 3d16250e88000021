"""A user's own smooth loss: value, gradient and Hessian as functions of (u, *data), one number per row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, NoReturn

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.errors import DataError, DataTypeError, DCPError, OptionError
from kernelopt.kernels.domains import check_finite, real_array
from kernelopt.support.checks import called, is_real, require_callable, shown
from kernelopt.support.cvxpy_parts import Elementwise
from kernelopt.support.optional import optional
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array

CURVATURES = ("convex", "nonconvex")
# Rows of the data at which derivatives are checked. Each row is checked at dozens of points, so more rows cost time at
# every call of a loss.
ROWS = 40
# Test points relative to 0 and to each number of the data, in units of 1 and of the data: both signs, small and large.
OFFSETS = np.array([-3.0, -1.1, -0.3, 0.0, 0.07, 0.6, 1.9])
# Test points of a bounded domain, as fractions of its length: inside, and close to both ends.
FRACTIONS = np.array([0.03, 0.2, 0.45, 0.7, 0.97])
# Largest accepted error of a derivative, relative to its size, beyond the error of the differences themselves, which is
# about STEP² ≈ 4e-11 for a loss that varies on the scale of the data. A wrong formula differs by much more than 1e-5.
ACCURACY = 1e-5
# Step of central differences, relative to u and the data's unit: ε^(1/3) balances truncation ∝ h² and rounding ∝ ε/h.
STEP = float(np.finfo(float).eps) ** (1 / 3)
# Of that step: the distance of points whose fourth differences show rounding; and times what they show, the allowance
# for a difference of two values.
SMALL, MEASURED = 1 / 32, 4.0
# A difference of gradients that grows by this, when its step is halved, is that of a gradient too steep for it: it
# grows by 2 there, and hardly at all once steps are short enough.
GROWS = 1.5
# A change of the gradient over this fraction of a step, relative to its change over the whole step, from which on it is
# a jump. A continuous gradient that is smooth on the scale of a step changes by NARROW itself.
NARROW, JUMP = 1e-3, 0.5
# A negative second derivative of at most this size, relative to typical ones, counts as rounding. Larger values would
# accept losses that are slightly nonconvex, smaller ones refuse convex losses whose Hessian cancels.
NOISE = 1e-9

Function = Callable[..., Any]


@dataclass(frozen=True)
class _OfJax:
    """The derivative of a scalar function by its first argument, elementwise on arrays, in float64."""

    function: Function
    order: int

    @cached_property
    def _compiled(self) -> Any:
        jax, found = optional("jax", "ko.SmoothLoss.from_jax"), self.function
        for _ in range(self.order):
            found = jax.grad(found)
        return jax.jit(jax.vmap(found))

    def __call__(self, *arrays: Array) -> Array:
        jax = optional("jax", "ko.SmoothLoss.from_jax")
        # JAX before 0.8 has the context among its experimental parts.
        has = hasattr(jax, "enable_x64")
        float64 = (jax if has else optional("jax.experimental", "ko.SmoothLoss.from_jax")).enable_x64
        try:
            with float64(True):
                return np.asarray(self._compiled(*arrays), dtype=float)
        except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError) as error:
            name = getattr(self.function, "__name__", repr(self.function))
            raise OptionError(
                f"Expected a function that JAX can differentiate; {name} converts its argument to a numpy array or a "
                f"truth value. Write it with jax.numpy: jnp.exp in place of np.exp, jnp.where in place of if. ({error})"
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        return {"function": self.function, "order": self.order}


class SmoothLoss:
    """ℓ(u, *data), a twice differentiable function of one number u, elementwise on arrays.

    Called with an affine expression of predictions it returns a cvxpy expression of the same shape, for the minimized
    objective of a `ko.Problem`: sum it by `cp.sum`, or weigh it by `w @ loss(...)`.

    Parameters
    ----------
    value, gradient, hessian : callables (u, *data) → array
        ℓ, ∂ℓ/∂u and ∂²ℓ/∂u², where u and all data are float arrays of one shape, one entry per row.
    curvature : "convex" or "nonconvex"
        A convex loss is solved to a certified optimum. A nonconvex one, in the objective, is solved to a local
        optimum: beside smooth losses and squared norms by Levenberg and Marquardt's method, beside other convex terms
        and constraints by proximal linearization, whose status "locally_optimal" means stationary to `tol`.
    domain : (low, high)
        The open interval of u on which ℓ is defined; outside it is ∞.

    Raises
    ------
    OptionError
        For a curvature other than these two, and for a domain that is not an interval.
    DataError
        At a call: if data contain NaN or have another shape than u; if a function returns another shape, NaN, or a
        derivative that differences contradict; if a loss declared convex has a negative second derivative.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> def value(u, y):
    ...     return np.sqrt(1 + (u - y) ** 2) - 1
    >>> def gradient(u, y):
    ...     return (u - y) / np.sqrt(1 + (u - y) ** 2)
    >>> def hessian(u, y):
    ...     return (1 + (u - y) ** 2) ** -1.5
    >>> loss = ko.SmoothLoss(value, gradient, hessian)
    >>> X, y = np.arange(7.0)[:, None], np.array([0.0, 1.0, 4.0, 99.0, 16.0, 25.0, 36.0])
    >>> theta = ko.Theta(ko.kernels.Polynomial(degree=2))
    >>> objective = cp.sum(loss(theta(X), y)) + 1e-6 * ko.sum_squares(theta)
    >>> problem = ko.Problem(cp.Minimize(objective))
    >>> _ = problem.solve()
    >>> print(problem.status, abs(theta.value([[3.0]])[0] - 9) < 1)
    optimal True
    """

    def __init__(
        self, value: Function, gradient: Function, hessian: Function,
        curvature: str = "convex", domain: tuple[float, float] = (-inf, inf),
    ) -> None:  # fmt: skip
        for name, function in (("value", value), ("gradient", gradient), ("hessian", hessian)):
            if not callable(function):
                raise OptionError(f"Expected {name} to be a function of (u, *data); got {function!r}.")
        if not isinstance(curvature, str) or curvature not in CURVATURES:
            raise OptionError(f'Expected curvature to be "convex" or "nonconvex"; got {shown(curvature)}.')
        pair = isinstance(domain, (tuple, list)) and len(domain) == 2
        if not pair or not all(is_real(x) or x in (-inf, inf) for x in domain) or not domain[0] < domain[1]:
            raise OptionError(f"Expected domain to be an interval (low, high) with low < high; got {shown(domain)}.")
        self._functions = {"value": value, "gradient": gradient, "hessian": hessian}
        self.curvature = curvature
        self.low, self.high = float(domain[0]), float(domain[1])
        self.rounding = 0.0  # of values beyond that of their own size, as the checks so far saw it
        self._curvature = 0.0  # largest typical second derivative of the checks so far
        self.name = _name(value)

    @classmethod
    def from_jax(
        cls, function: Function, curvature: str = "convex", domain: tuple[float, float] = (-inf, inf)
    ) -> SmoothLoss:
        """The loss given by one scalar function (u, *data), differentiated by JAX in float64.

        Parameters
        ----------
        function : callable of numbers → a number, written with jax.numpy
        curvature, domain : as above

        Returns
        -------
        SmoothLoss
            It pickles if `function` does: define it with def at the top of a module.

        Raises
        ------
        MissingPackageError
            An ImportError, where JAX is not installed.
        OptionError
            At the first call, where JAX can not differentiate the function, such as one written with numpy.

        Examples
        --------
        >>> import kernelopt as ko
        >>> def squared(u, y):
        ...     return (u - y) ** 2
        >>> ko.SmoothLoss.from_jax(squared)
        SmoothLoss(squared, convex)
        """
        optional("jax", "ko.SmoothLoss.from_jax")
        require_callable(function, "function", "a function of (u, *data) that JAX can differentiate")
        value, gradient, hessian = (_OfJax(function, order) for order in range(3))
        loss = cls(value, gradient, hessian, curvature, domain)
        loss.name = _name(function)
        return loss

    @property
    def is_convex(self) -> bool:
        return self.curvature == "convex"

    def __call__(self, u: Any, *data: Any) -> SmoothTerm:
        """ℓ(u, *data) as a cvxpy expression of u's shape.

        Parameters
        ----------
        u : affine cvxpy expression
        *data : arrays, lists, pandas objects or cp.Parameters, of u's shape or single numbers
        """
        if not isinstance(u, cp.Expression):
            u = real_array(u, f"the argument of {self.name}")
            check_finite(u, f"the argument of {self.name}")
            u = cp.Constant(u)
        if not u.is_real():
            raise DataTypeError(f"Expected the argument of {self.name} to be real; got the complex expression {u!r}.")
        term = SmoothTerm(u, *(_data(d, u.shape, f"argument {i} of {self.name}") for i, d in enumerate(data, 1)), self)
        known = term.data()
        if known is not None:
            self.check(*known)
        return term

    def __repr__(self) -> str:
        return f"SmoothLoss({self.name}, {self.curvature})"

    # ---------------------------------------------------------------- values

    @property
    def anywhere(self) -> float:
        """A point inside of the domain, 0 if possible."""
        if self.low < 0 < self.high:
            return 0.0
        if isfinite(self.low) and isfinite(self.high):
            return 0.5 * (self.low + self.high)
        return self.low + 1 if isfinite(self.low) else self.high - 1

    def outwards(self) -> Array:
        """Points towards both ends of the domain: distances from the middle grow, or those from a finite end shrink, by
        about a factor of 4 per point."""
        middle, powers = self.anywhere, 4.0 ** np.arange(-5, 26)
        to_low = middle - powers if np.isinf(self.low) else self.low + (middle - self.low) / (1 + powers)
        to_high = middle + powers if np.isinf(self.high) else self.high - (self.high - middle) / (1 + powers)
        points = np.concatenate([to_low, to_high])
        return points[self.inside(points)]

    def inside(self, u: Array) -> Array:
        return np.asarray((u > self.low) & (u < self.high))

    def evaluate(self, which: str, u: Array, data: tuple[Array, ...]) -> Array:
        """ "value", "gradient" or "hessian" at arrays (n,); entries outside of the domain are arbitrary.

        Raises DataError unless the function returns an array of n real numbers.
        """
        # A user's function is called inside of its domain only.
        u = np.where(self.inside(u), u, self.anywhere)
        with np.errstate(all="ignore"):
            what = f"the {which} of {self.name}"
            found = np.asarray(called(self._functions[which], what, "(u, *data)", u, *data))
        if found.shape != u.shape or found.dtype.kind not in "fiub":
            raise DataError(
                f"Expected the {which} of {self.name} to be an array of {len(u)} real numbers, one for each entry of "
                f"u; got dtype {found.dtype} of shape {found.shape}. Write it elementwise, with numpy functions."
            )
        return found.astype(float, copy=False)

    def value(self, u: Array, data: tuple[Array, ...]) -> Array:
        """ℓ(u), ∞ outside of the domain and where it overflows."""
        found = self.evaluate("value", u, data)
        return np.where(self.inside(u) & ~np.isnan(found), found, inf)

    def gradient(self, u: Array, data: tuple[Array, ...]) -> Array:
        return self.evaluate("gradient", u, data)

    def hessian(self, u: Array, data: tuple[Array, ...]) -> Array:
        """ℓ″(u); for a convex loss ≥ 0, as negative values of the size of rounding become 0.

        Raises DataError where a loss that is declared convex is not.
        """
        found = self.evaluate("hessian", u, data)
        if not self.is_convex:
            return found
        found = np.where(self.inside(u), found, 0.0)
        self._require_convex(found, u, data)
        return np.maximum(found, 0.0)

    def _require_convex(self, second: Array, u: Array, data: tuple[Array, ...]) -> None:
        negative = second < -NOISE * max(_typical(second), self._curvature)
        if negative.any():
            worst = int(np.argmin(np.where(negative, second, 0.0)))
            raise DataError(
                f"Expected {self.name}, declared convex, to have a second derivative ≥ 0; got {second[worst]:.6g} at "
                f'{_point(u, data, worst)}. Correct the Hessian, or declare curvature="nonconvex".'
            )

    # ---------------------------------------------------------------- the check

    def check(self, u: Array, data: tuple[Array, ...]) -> None:
        """Compare derivatives with central differences around the data. Raises DataError that names the worst point."""
        u, data, steps = self._sample(u, data)
        value, gradient, second = (self.evaluate(name, u, data) for name in ("value", "gradient", "hessian"))
        defined = ~np.isinf(value)  # where the value overflows, derivatives mean nothing
        for name, numbers in (("value", value), ("gradient", gradient), ("hessian", second)):
            bad = np.isnan(numbers) & defined
            if bad.any():
                raise DataError(
                    f"Expected the {name} of {self.name} to be a number inside of its domain ({self.low:g}, "
                    f"{self.high:g}); got NaN at {_point(u, data, int(np.argmax(bad)))}. State the domain, or write "
                    "the function so that it does not overflow."
                )
        if self.is_convex:
            self._require_convex(np.where(defined, second, 0.0), u, data)
        self._curvature = max(self._curvature, _typical(second))
        self._require_differentiable(u, data, steps, second, defined)
        self.rounding = max(self.rounding, self._rounding_of_values(u, data, steps, defined))
        self._compare("gradient", "value", (u, data, steps), gradient, defined)
        self._compare("hessian", "gradient", (u, data, steps), second, defined)
        if self.is_convex:
            self._require_slopes(u, data, value, gradient)

    def _require_slopes(self, u: Array, data: tuple[Array, ...], value: Array, gradient: Array) -> None:
        """Raise DataError where a value changes by what no convex function with these gradients does:
        g(a)(b − a) ≤ ℓ(b) − ℓ(a) ≤ g(b)(b − a) for neighbours a < b. Between them pieces may have missed each other."""
        order = np.lexsort((u, *data))
        a, b = order[:-1], order[1:]
        width = u[b] - u[a]
        alike = np.all([d[a] == d[b] for d in data], axis=0) & (width > 0) if data else width > 0
        with np.errstate(invalid="ignore", over="ignore"):
            change, low, high = value[b] - value[a], gradient[a] * width, gradient[b] * width
            sizes = np.abs(value[a]) + np.abs(value[b]) + np.abs(low) + np.abs(high)
            off = np.maximum(low - change, change - high)
            wrong = alike & (off > ACCURACY * sizes + 100 * np.finfo(float).eps + MEASURED * self.rounding)
        if wrong.any():
            i = int(np.argmax(np.where(wrong, off, 0.0)))
            raise DataError(
                f"Expected {self.name}, declared convex, to change by {low[i]:.6g} to {high[i]:.6g}, as its gradients "
                f"say, from {_point(u, data, a[i])} to u = {u[b[i]]:.6g}; got {change[i]:.6g}. Pieces of a loss must "
                'meet where they join; or declare curvature="nonconvex".'
            )

    def _sample(self, u: Array, data: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...], Array]:
        """Points u inside of the domain, their data, and steps of differences.

        The points lie around 0, u and each number of the data, in units of 1 and of the data (medians of their sizes).
        """
        rows = np.unique(np.linspace(0, len(u) - 1, min(ROWS, len(u))).astype(int))
        units = {1.0, *(float(np.median(np.abs(d[d != 0]))) for d in data if np.any(d))}
        chosen = [d[rows] for d in data]
        known = u[rows] if np.isfinite(u[rows]).all() else np.zeros(len(rows))
        points, widths = [], []
        for centre in (np.zeros(len(rows)), known, *chosen):
            for unit in units:
                for offset in OFFSETS:
                    points.append(centre + unit * offset)
                    widths.append(np.full(len(rows), unit))
        if isfinite(self.low) and isfinite(self.high):
            points += [np.full(len(rows), self.low + share * (self.high - self.low)) for share in FRACTIONS]
            widths += [np.full(len(rows), self.high - self.low)] * len(FRACTIONS)
        times = len(points)
        at, width = np.concatenate(points), np.concatenate(widths)
        for end, sign in ((self.low, 1.0), (self.high, -1.0)):  # reflect points beyond a finite end
            beyond = sign * (at - end) <= 0
            at = np.where(beyond, end + sign * np.maximum(np.abs(at - end), 0.01 * width), at) if isfinite(end) else at
        steps = STEP * np.maximum(np.abs(at), width)
        # Differences must stay inside of the domain; close to an end they are inaccurate.
        keep = self.inside(at - 10 * steps) & self.inside(at + 10 * steps)
        return at[keep], tuple(np.tile(d, times)[keep] for d in chosen), steps[keep]

    def _require_differentiable(
        self, u: Array, data: tuple[Array, ...], steps: Array, second: Array, defined: Array
    ) -> None:
        """Raise DataError at a kink or a jump of the value, which `_compare` takes for an inaccurate difference."""
        narrow = NARROW * steps
        self._require_continuous(u, data, steps, defined)
        (below, above), (left, right) = (
            [self.evaluate("gradient", u + sign * step, data) for sign in (-1, 1)] for step in (narrow, steps)
        )
        with np.errstate(invalid="ignore", over="ignore"):
            jump, size = np.abs(above - below), np.maximum(np.abs(above), np.abs(below))
            # A steep but differentiable gradient has a Hessian as large as its change.
            explained = 4 * narrow * np.abs(second) + ACCURACY * np.maximum(size, _typical(size))
            # Where only the gradient jumps, its formula is wrong.
            before, at, after = (self.evaluate("value", u + sign * steps, data) for sign in (-1, 0, 1))
            bend = np.abs((after - at) - (at - before)) / steps
            jumps = defined & (jump > JUMP * np.abs(right - left)) & (jump > explained) & (bend > JUMP * jump)
        if jumps.any():
            i = int(np.argmax(jumps))
            raise DataError(
                f"Expected {self.name} to be differentiable; at {_point(u, data, i)} its gradient jumps from "
                f"{below[i]:.6g} to {above[i]:.6g}. Write losses with kinks in cvxpy's atoms, such as cp.pos and "
                "cp.abs, without ko.SmoothLoss."
            )

    def _require_continuous(self, u: Array, data: tuple[Array, ...], steps: Array, defined: Array) -> None:
        """Raise DataError where the value changes as much within a short step as within a long one, and by more than
        its gradients and rounding explain."""
        narrow, (before, after), (left, right) = (
            NARROW * steps,
            *([self.evaluate("value", u + sign * step, data) for sign in (-1, 1)] for step in (NARROW * steps, steps)),
        )
        slopes = [np.abs(self.evaluate("gradient", u + sign * narrow, data)) for sign in (-1, 0, 1)]
        with np.errstate(invalid="ignore", over="ignore"):
            jump, size = np.abs(after - before), np.maximum(np.abs(after), np.abs(before))
            # Terms of size 1 inside, as in log(1 + u²), round by eps, whatever the size of the value.
            rounding = ACCURACY * np.maximum(size, _typical(size)) + 100 * np.finfo(float).eps
            explained = 4 * narrow * np.max(slopes, axis=0) + rounding
            jumps = defined & (jump > JUMP * np.abs(right - left)) & (jump > explained)
        if jumps.any():
            i = int(np.argmax(jumps))
            raise DataError(
                f"Expected {self.name} to be continuous; at {_point(u, data, i)} its value jumps from {before[i]:.6g} "
                f"to {after[i]:.6g}. Pieces of a loss must meet where they join."
            )

    def _compare(
        self, name: str, of: str, sample: tuple[Array, tuple[Array, ...], Array], got: Array, defined: Array
    ) -> None:
        """Compare a derivative with central differences. A second step, half as long, also gives an error estimate."""
        u, data, steps = sample
        size, differences = np.zeros(len(u)), []
        for step in (steps, steps / 2):
            above, below = (self.evaluate(of, u + sign * step, data) for sign in (1, -1))
            size = np.maximum(size, np.maximum(np.abs(above), np.abs(below)))
            with np.errstate(invalid="ignore"):
                differences.append((above - below) / (2 * step))
        coarse, expected = differences
        with np.errstate(invalid="ignore"):
            # Truncation shows as a change with the step. Values of size s round by εs, differences by εs/step.
            beyond = MEASURED * self.rounding if of == "value" else 0.0
            unsure = 10 * np.abs(coarse - expected) + (50 * np.finfo(float).eps * size + beyond) / steps
            unsure += self._steepness(name, sample, got, coarse, expected)
            allowed = ACCURACY * np.maximum(np.abs(got), np.abs(expected)) + unsure
            error = np.abs(got - expected) / np.where(allowed > 0, allowed, np.finfo(float).tiny)
        error = np.where(defined & np.isfinite(error), error, 0.0)
        if error.max(initial=0.0) > 1:
            worst = int(np.argmax(error))
            below, at, above = (self.evaluate(of, u + sign * steps, data)[worst] for sign in (-1, 0, 1))
            left, right = (at - below) / steps[worst], (above - at) / steps[worst]
            hint = ""
            if name == "hessian" and abs(right - left) > JUMP * max(abs(left), abs(right)):
                hint = (
                    f" The slope of the gradient changes there from {left:.6g} to {right:.6g}: a SmoothLoss has a "
                    "second derivative everywhere. Write losses that join pieces in cvxpy's atoms, such as cp.huber "
                    "and cp.square(cp.pos(u))."
                )
            raise DataError(
                f"Expected the {name} of {self.name} to be the derivative of its {of}; at {_point(u, data, worst)} it "
                f"is {got[worst]:.6g}, where central differences give {expected[worst]:.6g}.{hint}"
            )

    def _steepness(
        self, name: str, sample: tuple[Array, tuple[Array, ...], Array], got: Array, coarse: Array, expected: Array
    ) -> Array:
        """What differences say nothing about, where a loss is steeper than their steps are long.

        The difference of values is the gradient somewhere between its ends. That of gradients grows as steps get
        shorter towards a Hessian that is larger.
        """
        u, data, steps = sample
        if name == "gradient":
            ends = [self.evaluate(name, u + sign * steps, data) for sign in (-1, 1)]
            return np.nan_to_num(np.abs(ends[1] - ends[0]), nan=0.0, posinf=0.0)
        grows = (np.abs(expected) > GROWS * np.abs(coarse)) & (got * expected > 0) & (np.abs(got) > np.abs(expected))
        return np.where(grows, np.inf, 0.0)

    def _rounding_of_values(self, u: Array, data: tuple[Array, ...], steps: Array, defined: Array) -> float:
        """By how much values round beyond 16ε times their own size, as log cosh u does near 0; at most 16ε.

        Fourth differences of a smooth function are its rounding; at a kink they shrink with the step.
        """
        eps = float(np.finfo(float).eps)
        values = [self.evaluate("value", u + k * SMALL * steps, data) for k in range(-2, 3)]
        with np.errstate(invalid="ignore"):
            fourth = np.abs(sum(c * value for c, value in zip((1, -4, 6, -4, 1), values, strict=True)))
            beyond = np.minimum(fourth, 16 * eps) - 16 * eps * np.max(np.abs(values), axis=0)
        return float(np.max(beyond[defined & np.isfinite(fourth)], initial=0.0))


class SmoothTerm(Elementwise):
    """ℓ(u, *data) as a cvxpy atom, which cvxpy's rules take as convex and not monotone."""

    def __init__(self, *arguments: Any) -> None:
        *args, self.loss = arguments
        super().__init__(*args)

    def get_data(self) -> list[Any]:
        return [self.loss]

    def data(self) -> tuple[Array, tuple[Array, ...]] | None:
        """(u, data) as arrays (n,) in Fortran order, with NaN for a u without value; None if data have no value yet."""
        known = [a.value for a in self.args[1:]]
        if any(d is None for d in known):
            return None
        u = self.args[0].value
        flat = np.full(self.size, np.nan) if u is None else np.ravel(u, order="F").astype(float)
        return flat, tuple(np.broadcast_to(np.ravel(d, order="F"), (self.size,)).astype(float) for d in known)

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
        u, *data = (np.broadcast_to(np.asarray(v, dtype=float), self.shape).ravel(order="F") for v in values)
        return self.loss.value(u, tuple(data)).reshape(self.shape, order="F")

    def _grad(self, values: Any) -> list[Any]:
        u, *data = (np.broadcast_to(np.asarray(v, dtype=float), self.shape).ravel(order="F") for v in values)
        return [sp.diags_array(self.loss.gradient(u, tuple(data))).tocsc(), *(None for _ in data)]

    def graph_implementation(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise DCPError(
            f"{self.loss.name}(…) is a ko.SmoothLoss, which cp.Problem cannot compile. Write ko.Problem(objective, "
            "constraints) instead of cp.Problem(objective, constraints)."
        )


def _name(function: Any) -> str:
    """The name of a user's function, "SmoothLoss" for a lambda."""
    name = getattr(function, "__name__", "")
    return name if name.isidentifier() and name != "value" else "SmoothLoss"


def _data(value: Any, shape: tuple[int, ...], what: str) -> cp.Expression:
    """Data of u's shape, or a single number, as a constant or parameter."""
    if isinstance(value, cp.Expression):
        if not value.is_constant():
            raise DataError(
                f"Expected {what} to be data, an array or a cp.Parameter; got an expression. The order is loss(f, y): "
                "predictions come first, as in the functions of (u, *data)."
            )
        expression = value
    else:
        array = real_array(value, what)
        check_finite(array, what)
        expression = cp.Constant(array)
    if expression.shape not in (shape, ()):
        hint = " Write y.ravel()." if expression.size == int(np.prod(shape)) else ""
        raise DataError(
            f"Expected {what} to have u's shape {shape}, or to be one number; got shape {expression.shape}.{hint}"
        )
    return expression


def _typical(second: Array) -> float:
    """The median of the positive finite numbers, or 0."""
    positive = second[np.isfinite(second) & (second > 0)]
    return float(np.median(positive)) if len(positive) else 0.0


def _point(u: Array, data: tuple[Array, ...], i: int) -> str:
    told = f"u = {u[i]:.6g}"
    return told + (f", data ({', '.join(f'{d[i]:.6g}' for d in data)})" if data else "")
