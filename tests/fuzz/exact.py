"""Stated expressions in 76 decimal digits: kernel values, and one walk of cvxpy trees for numbers and for cone data.

The entries of arrays are `Decimal` numbers, or `Affine` functions of unknowns; numpy's arithmetic works on both.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

import kernelopt as ko
from kernelopt.kernels.derivatives import CODES, on_jets
from kernelopt.language.nodes import Prediction, ThetaNorm

DIGITS = 76  # four words of libmpdec
ZERO, ONE = Decimal(0), Decimal(1)


class UnsupportedError(Exception):
    """A kernel, an atom or a constraint without a row in the tables here."""


class InfeasibleError(Exception):
    """Constraints on constants that do not hold."""


@contextmanager
def digits(count=DIGITS):
    with localcontext(Context(prec=count, Emax=MAX_EMAX, Emin=MIN_EMIN)):
        yield


def exact(values):
    """An array of floats as the decimal numbers that they are."""
    values = values.toarray() if sp.issparse(values) else np.asarray(values)
    result = np.empty(values.shape, dtype=object)
    for index, value in np.ndenumerate(values):
        result[index] = value if isinstance(value, Decimal) else Decimal(float(value))
    return result


# ---------------------------------------------------------------- affine functions of unknowns


class Affine:
    """Σⱼ terms[j]·xⱼ + constant."""

    __slots__ = ("constant", "terms")

    def __init__(self, terms, constant=ZERO):
        self.terms = terms
        self.constant = constant

    def __add__(self, other):
        if isinstance(other, np.ndarray):
            return NotImplemented
        if not isinstance(other, Affine):
            return Affine(self.terms, self.constant + other)
        terms = dict(self.terms)
        for j, a in other.terms.items():
            terms[j] = terms.get(j, ZERO) + a
        return Affine({j: a for j, a in terms.items() if a}, self.constant + other.constant)

    def __mul__(self, other):
        if isinstance(other, np.ndarray):
            return NotImplemented
        if isinstance(other, Affine):
            if other.terms and self.terms:
                raise UnsupportedError("a product of unknowns")
            return other * self.constant if other.terms else self * other.constant
        return Affine({j: a * other for j, a in self.terms.items()} if other else {}, self.constant * other)

    def __truediv__(self, other):
        if isinstance(other, np.ndarray):
            return NotImplemented
        other = other.constant if isinstance(other, Affine) else other
        return Affine({j: a / other for j, a in self.terms.items()}, self.constant / other)

    def __neg__(self):
        return self * Decimal(-1)

    def __sub__(self, other):
        return NotImplemented if isinstance(other, np.ndarray) else self + -other

    def __rsub__(self, other):
        return -self + other

    __radd__, __rmul__ = __add__, __mul__


def affine(value):
    return value if isinstance(value, Affine) else Affine({}, Decimal(value))


def is_constant(value):
    return not (isinstance(value, Affine) and value.terms)


def constant(value):
    return value.constant if isinstance(value, Affine) else Decimal(value)


# ---------------------------------------------------------------- kernels


class Dual:
    """A number with nilpotent parts, Σ_S parts[S]·Π_{k ∈ S} εₖ with εₖ² = 0; S is a mask of bits.

    Mixed first derivatives in several directions are the part of all of them.
    """

    __slots__ = ("parts",)

    def __init__(self, parts):
        self.parts = parts

    @staticmethod
    def of(value):
        return value if isinstance(value, Dual) else Dual({0: Decimal(value)})

    def __add__(self, other):
        parts = dict(self.parts)
        for mask, a in Dual.of(other).parts.items():
            parts[mask] = parts.get(mask, ZERO) + a
        return Dual(parts)

    def __mul__(self, other):
        parts = {}
        for i, a in self.parts.items():
            for j, b in Dual.of(other).parts.items():
                if not i & j:
                    parts[i | j] = parts.get(i | j, ZERO) + a * b
        return Dual(parts)

    def __neg__(self):
        return self * Decimal(-1)

    def __sub__(self, other):
        return self + -Dual.of(other)

    def __rsub__(self, other):
        return -self + other

    def __truediv__(self, other):
        return self * (ONE / other)

    def __pow__(self, count):
        result = Dual({0: ONE})
        for _ in range(count):
            result = result * self
        return result

    def exp(self):
        """exp(a + n) = exp(a)·Σ nᵏ/k!, a sum that ends."""
        rest = Dual({mask: a for mask, a in self.parts.items() if mask})
        total = power = Dual({0: ONE})
        for k in range(1, 5):
            power = power * rest / Decimal(k)
            total = total + power
        return total * self.parts.get(0, ZERO).exp()

    __radd__, __rmul__ = __add__, __mul__


def _size(value):
    if isinstance(value, Dual):
        raise UnsupportedError("a derivative of |x|")
    return abs(value)


def _square(differences):
    return sum((d * d for d in differences), ZERO)


def kernel_value(kernel, x, z):
    """κ(x, z) of points whose entries are Decimal or Dual."""
    kernels = ko.kernels
    match kernel:
        case kernels.Gaussian():
            sigma = Decimal(float(kernel.sigma))
            return (-_square([a - b for a, b in zip(x, z, strict=True)]) / (2 * sigma**2)).exp()
        case kernels.Laplacian():
            return (-sum(_size(a - b) for a, b in zip(x, z, strict=True)) / Decimal(float(kernel.sigma))).exp()
        case kernels.Linear():
            return sum((a * b for a, b in zip(x, z, strict=True)), ZERO)
        case kernels.Polynomial():
            inner = sum((a * b for a, b in zip(x, z, strict=True)), ZERO)
            return (inner * Decimal(float(kernel.scale)) + Decimal(float(kernel.offset))) ** int(kernel.degree)
        case kernels.Constant():
            return Decimal(float(kernel.value))
        case _ if type(kernel).__name__ == "Scaled":
            return kernel_value(kernel.kernel, x, z) * Decimal(float(kernel.factor))
        case _ if type(kernel).__name__ == "Sum":
            return sum((kernel_value(term, x, z) for term in kernel.terms), ZERO)
        case _ if type(kernel).__name__ == "Product":
            result = ONE
            for term in kernel.terms:
                result = result * kernel_value(term, x, z)
            return result
    raise UnsupportedError(f"the kernel {kernel!r}")


def _entry(kernel, first, second):
    """∂ₓ∂_zκ(x, z) for points with the orders of their derivatives."""
    (x, dx), (z, dz) = first, second
    x, z = list(x), list(z)
    for bit, (point, column) in enumerate([*((x, i) for i in dx), *((z, i) for i in dz)]):
        point[column] = Dual.of(point[column]) + Dual({1 << bit: ONE})
    value = kernel_value(kernel, x, z)
    if not dx and not dz:
        return value
    return Dual.of(value).parts.get((1 << (len(dx) + len(dz))) - 1, ZERO)


@dataclass(frozen=True)
class Functional:
    """Σ cᵢ·(∂)F(zᵢ)ᵀ, as pairs of a coefficient and a point; a point is (coordinates, order)."""

    terms: tuple

    @staticmethod
    def at(row, order=()):
        return Functional(((ONE, (tuple(exact(row)), tuple(order))),))

    @staticmethod
    def of(function):
        """One for each output of a `ko.Function`."""
        centers, jets = function._centers, on_jets(function._kernel)
        points = centers[:, :-CODES] if jets else centers
        orders = [tuple(int(i) for i in row[-CODES:] if i >= 0) if jets else () for row in centers]
        coefficients = exact(function.coefficients.reshape(len(points), function.outputs or 1))
        ends = [(tuple(exact(x)), order) for x, order in zip(points, orders, strict=True)]
        return [Functional(tuple(zip(column, ends, strict=True))) for column in coefficients.T]

    @staticmethod
    def rows_of(A):
        """Those of a feature matrix."""
        if A.function is not None:
            return Functional.of(A.function)
        return [Functional.at(row, A.order) for row in A.X]


class Products:
    """Inner products of functionals of one kernel, each pair of points evaluated once."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.known = {}

    def __call__(self, first, second):
        return sum((a * b * self._of(x, z) for a, x in first.terms for b, z in second.terms), ZERO)

    def size(self, first, second):
        """The sizes of the terms of an inner product, added up."""
        return sum((abs(a * b * self._of(x, z)) for a, x in first.terms for b, z in second.terms), ZERO)

    def _of(self, x, z):
        if (x, z) not in self.known:
            self.known[x, z] = self.known[z, x] = _entry(self.kernel, x, z)
        return self.known[x, z]

    def gram(self, rows, others):
        return np.array([[self(a, b) for b in others] for a in rows], dtype=object).reshape(len(rows), len(others))


def cholesky(Q, tolerance):
    """L with Q = LLᵀ by diagonal pivots, up to a residual diagonal ≤ `tolerance` times the diagonal."""
    n = len(Q)
    residual, columns = Q.copy(), []
    limits = [tolerance * Q[i, i] for i in range(n)]
    for _ in range(n):
        k = max(range(n), key=lambda i: residual[i, i] - limits[i])
        if residual[k, k] <= limits[k]:
            break
        column = residual[:, k] / residual[k, k].sqrt()
        residual = residual - np.multiply.outer(column, column)
        columns.append(column)
    return np.array(columns, dtype=object).reshape(len(columns), n).T


def eigenvalues(S):
    """Those of a symmetric matrix, by Jacobi rotations."""
    S, n = S.copy(), len(S)
    for _ in range(30):
        for i in range(n):
            for j in range(i + 1, n):
                if S[i, j] == 0:
                    continue
                ratio = (S[j, j] - S[i, i]) / (2 * S[i, j])
                t = (ONE if ratio >= 0 else -ONE) / (abs(ratio) + (ratio * ratio + 1).sqrt())
                c = ONE / (t * t + 1).sqrt()
                J = exact(np.eye(n))
                J[i, i] = J[j, j] = c
                J[i, j], J[j, i] = t * c, -t * c
                S = J.T @ S @ J
    return [S[i, i] for i in range(n)]


# ---------------------------------------------------------------- numbers


class Numbers:
    """Convex and concave functions of numbers."""

    def maximum(self, values):
        return max(values)

    def sum_squares_over(self, values, y):
        if not y > 0:
            return ZERO if y == 0 and not any(values) else Decimal("Infinity")
        return _square(values) / y

    def norm(self, values):
        return _square(values).sqrt()

    def exp(self, x):
        return x.exp()

    def log(self, x):
        return x.ln() if x > 0 else Decimal("-Infinity")

    def entropy(self, x, y):
        """x log(x/y), with 0 log 0 = 0."""
        if x < 0 or y < 0 or (y == 0 and x > 0):
            return Decimal("Infinity")
        return x * (x / y).ln() if x else ZERO

    def log_sum_exp(self, values):
        top = max(values)
        return top + sum((v - top).exp() for v in values).ln()

    def sum_largest(self, values, k):
        ordered = sorted(values, reverse=True)
        whole = int(k)
        return sum(ordered[:whole], ZERO) + (Decimal(float(k)) - whole) * (ordered[whole] if k > whole else ZERO)

    def power(self, x, p):
        if p == int(p) and p > 0 and (p in (1, 2) or int(p) & (int(p) - 1) == 0):
            return x ** int(p)
        if x < 0 or (x == 0 and p < 0):
            return Decimal("Infinity") if p < 0 or p > 1 else Decimal("-Infinity")
        return x**p if x else (ONE if p == 0 else ZERO)

    def pnorm(self, values, p):
        return sum(abs(v) ** p if v else ZERO for v in values) ** (ONE / p) if any(values) else ZERO

    def huber(self, x, M):
        return x * x if abs(x) <= M else 2 * M * abs(x) - M * M

    def geo_mean(self, values, weights):
        if min(values) <= 0:
            return ZERO if min(values) == 0 else Decimal("-Infinity")
        return sum(w * v.ln() for v, w in zip(values, weights, strict=True)).exp()

    def eigenvalue_norm(self, gram, kind):
        """Σσᵢ ("nuc") or max σᵢ (2) for GᵀG with the eigenvalues σᵢ²."""
        sigma = [max(value, ZERO).sqrt() for value in eigenvalues(gram)]
        return sum(sigma) if kind == "nuc" else max(sigma)


NUMBERS = Numbers()


# ---------------------------------------------------------------- cone data


def outside(name, values):
    """By how much numbers miss a cone, in the units of the stated row; 0 where they lie in it."""
    if name == "zero":
        return abs(values[0])
    if name == "nonneg":
        return max(-values[0], ZERO)
    if name == "soc":
        return max(NUMBERS.norm(values[1:]) - values[0], ZERO)
    x, y, z = values
    return max(y * (x / y).exp() - z, ZERO) if y > 0 else max(-y, -z, x if y == 0 else ZERO, ZERO)


@dataclass
class ConeData:
    """minimize an affine function of n unknowns subject to cones: a cone is its name and affine entries.

    zero: = 0; nonneg: ≥ 0; soc: ‖x₁ …‖ ≤ x₀; exp: y·exp(x/y) ≤ z, y > 0.
    """

    n: int = 0
    cones: list = field(default_factory=list)

    def unknown(self):
        self.n += 1
        return Affine({self.n - 1: ONE})

    def require(self, name, *entries):
        """Raises InfeasibleError for constants outside of the cone; others are left out."""
        entries = [affine(e) for e in entries]
        if any(e.terms for e in entries):
            self.cones.append((name, entries))
        elif outside(name, [e.constant for e in entries]) > 0:
            raise InfeasibleError(f"{name} of constants")


class Forms:
    """The functions of `Numbers` as unknowns that bound them: from above where convex, from below where concave.

    By the rules of DCP the unknown equals the function at an optimum, or may as well.
    """

    def __init__(self, data):
        self.data = data

    def __getattribute__(self, name):
        """Functions of constants are numbers."""
        method = object.__getattribute__(self, name)
        if name.startswith("_") or name == "data":
            return method

        def either(*arguments):
            flat = [a for argument in arguments for a in (argument if isinstance(argument, list) else [argument])]
            if all(is_constant(a) for a in flat if isinstance(a, (Affine, Decimal))):
                plain = [[constant(a) for a in x] if isinstance(x, list) else x for x in arguments]
                return getattr(NUMBERS, name)(*(constant(x) if isinstance(x, Affine) else x for x in plain))
            return method(*arguments)

        return either

    def maximum(self, values):
        t = self.data.unknown()
        for v in values:
            self.data.require("nonneg", t - v)
        return t

    def sum_squares_over(self, values, y):
        """‖(2v, t − y)‖ ≤ t + y."""
        t = self.data.unknown()
        self.data.require("soc", t + y, t - y, *(2 * v for v in values))
        return t

    def norm(self, values):
        t = self.data.unknown()
        self.data.require("soc", t, *values)
        return t

    def exp(self, x):
        t = self.data.unknown()
        self.data.require("exp", x, ONE, t)
        return t

    def log(self, x):
        t = self.data.unknown()
        self.data.require("exp", t, ONE, x)
        return t

    def entropy(self, x, y):
        """t ≥ x log(x/y) where x exp(−t/x) ≤ y."""
        t = self.data.unknown()
        self.data.require("exp", -t, x, y)
        return t

    def log_sum_exp(self, values):
        t, parts = self.data.unknown(), [self.data.unknown() for _ in values]
        for v, part in zip(values, parts, strict=True):
            self.data.require("exp", v - t, ONE, part)
        self.data.require("nonneg", ONE - sum(parts, ZERO))
        return t

    def sum_largest(self, values, k):
        """k·q + Σ max(0, vᵢ − q)."""
        q, total = self.data.unknown(), ZERO
        for v in values:
            total = self.maximum([ZERO, v - q]) + total
        return q * Decimal(float(k)) + total

    def _mean(self, x, y):
        """t ≤ √(xy), x, y ≥ 0."""
        t = self.data.unknown()
        self.data.require("soc", x + y, x - y, 2 * t)
        return t

    def power(self, x, p):
        bound = self._bounded_by_mean
        if p == 1:
            return x
        if p == 2:
            return self.sum_squares_over([x], ONE)
        if p == 4:
            return self.sum_squares_over([self.sum_squares_over([x], ONE)], ONE)
        if p == Decimal("0.5"):
            return self._mean(x, ONE)
        t = self.data.unknown()
        if p == Decimal("1.5"):  # x² ≤ t·√x
            bound(x, t, self._mean(x, ONE))
        elif p == 3:  # x² ≤ t·√(tx)·…: x² ≤ s·1, s² ≤ tx
            s = self.data.unknown()
            bound(s, t, x)
            bound(x, s, ONE)
        elif p == -1:  # 1 ≤ tx
            bound(ONE, t, x)
        else:
            raise UnsupportedError(f"the power {p}")
        self.data.require("nonneg", x)
        return t

    def _bounded_by_mean(self, v, x, y):
        """|v| ≤ √(xy)."""
        self.data.require("soc", affine(x) + y, affine(x) - y, 2 * affine(v))

    def pnorm(self, values, p):
        raise UnsupportedError(f"the norm of order {p}")

    def huber(self, x, M):
        """min q² + 2M|x − q|."""
        q = self.data.unknown()
        return self.sum_squares_over([q], ONE) + self.maximum([x - q, q - x]) * (2 * M)

    def geo_mean(self, values, weights):
        raise UnsupportedError("a geometric mean")

    def eigenvalue_norm(self, gram, kind):
        raise UnsupportedError(f"the norm {kind!r} of a matrix θ")


# ---------------------------------------------------------------- the walk


def _each(f, *arrays):
    """f entry by entry."""
    arrays = np.broadcast_arrays(*arrays)
    result = np.empty(arrays[0].shape, dtype=object)
    for index in np.ndindex(result.shape):
        result[index] = f(*(a[index] for a in arrays))
    return result


def _along(node, f, x):
    """f of all entries, or of those along an axis."""
    axis = getattr(node, "axis", None)
    if axis is None:
        result = np.empty((), dtype=object)
        result[()] = f(list(x.ravel(order="F")))
    else:
        moved = np.moveaxis(x, axis, -1)
        result = np.empty(moved.shape[:-1], dtype=object)
        for index in np.ndindex(result.shape):
            result[index] = f(list(moved[index]))
    return result.reshape(node.shape)


def _power(kind, node, x):
    p = Decimal(float(node.p.value))
    return _each(lambda a: kind.power(a, p), x)


def _huber(kind, node, x):
    M = Decimal(float(node.M.value))
    return _each(lambda a: kind.huber(a, M), x)


def _pnorm(kind, node, x):
    p = float(node.p)
    if p == 2:
        return _along(node, kind.norm, x)
    return _along(node, lambda v: kind.pnorm(v, Decimal(p)), x)


def _abs(kind, a):
    return kind.maximum([a, -a])


def _quad_form(kind, node, x, P):
    """xᵀPx = ‖Lᵀx‖² with P = LLᵀ, or minus that."""
    P = _each(constant, P)
    sign = ONE if sum(P[i, i] for i in range(len(P))) >= 0 else -ONE
    L = cholesky(sign * P, Decimal("1e-60"))
    return np.array(sign * kind.sum_squares_over(list(L.T @ x.ravel(order="F")), ONE), dtype=object)


def _matmul(kind, node, a, b):
    return a * b if a.ndim == 0 or b.ndim == 0 else np.asarray(a @ b, dtype=object)


def _sum(kind, node, x):
    return np.asarray(np.sum(x, axis=node.axis, keepdims=node.keepdims), dtype=object).reshape(node.shape)


# (functions, node, arguments) → array, by the name of the atom's class.
ATOMS = {
    "AddExpression": lambda kind, node, *args: sum(args[1:], args[0]),
    "NegExpression": lambda kind, node, x: -x,
    "MulExpression": _matmul,
    "multiply": lambda kind, node, a, b: a * b,
    "DivExpression": lambda kind, node, a, b: a / b,
    "Sum": _sum,
    "index": lambda kind, node, x: np.asarray(x[node._orig_key], dtype=object),
    "special_index": lambda kind, node, x: np.asarray(x[node.key], dtype=object),
    "Promote": lambda kind, node, x: np.broadcast_to(x, node.shape),
    "broadcast_to": lambda kind, node, x: np.broadcast_to(x, node.shape),
    "reshape": lambda kind, node, x: np.reshape(x, node.shape, order=node.order),
    "transpose": lambda kind, node, x: np.transpose(x, node.axes),
    "Hstack": lambda kind, node, *args: np.hstack([np.atleast_1d(a) for a in args]),
    "Vstack": lambda kind, node, *args: np.vstack(args),
    "Concatenate": lambda kind, node, *args: np.concatenate(args, axis=node.axis),
    "Trace": lambda kind, node, x: np.array(sum(np.diag(x)), dtype=object),
    "diag_vec": lambda kind, node, x: np.diag(x),
    "diag_mat": lambda kind, node, x: np.diag(x),
    "cumsum": lambda kind, node, x: np.cumsum(x, axis=node.axis),
    "abs": lambda kind, node, x: _each(lambda a: _abs(kind, a), x),
    "maximum": lambda kind, node, *args: _each(lambda *v: kind.maximum(list(v)), *args),
    "minimum": lambda kind, node, *args: -_each(lambda *v: kind.maximum([-a for a in v]), *args),
    "max": lambda kind, node, x: _along(node, kind.maximum, x),
    "min": lambda kind, node, x: -_along(node, lambda v: kind.maximum([-a for a in v]), x),
    "sum_largest": lambda kind, node, x: _along(node, lambda v: kind.sum_largest(v, node.k), x),
    "norm1": lambda kind, node, x: _along(node, lambda v: sum(_abs(kind, a) for a in v), x),
    "norm_inf": lambda kind, node, x: _along(node, lambda v: kind.maximum([*v, *(-a for a in v)]), x),
    "Pnorm": _pnorm,
    "PnormApprox": _pnorm,
    "Power": _power,
    "PowerApprox": _power,
    "huber": _huber,
    "quad_over_lin": lambda kind, node, x, y: _along(node, lambda v: kind.sum_squares_over(v, y.item()), x),
    "QuadForm": _quad_form,
    "exp": lambda kind, node, x: _each(kind.exp, x),
    "log": lambda kind, node, x: _each(kind.log, x),
    "log1p": lambda kind, node, x: _each(lambda a: kind.log(a + 1), x),
    "entr": lambda kind, node, x: -_each(lambda a: kind.entropy(a, ONE), x),
    "rel_entr": lambda kind, node, x, y: _each(kind.entropy, x, y),
    "kl_div": lambda kind, node, x, y: _each(lambda a, b: kind.entropy(a, b) - a + b, x, y),
    "logistic": lambda kind, node, x: _each(lambda a: kind.log_sum_exp([ZERO, a]), x),
    "log_sum_exp": lambda kind, node, x: _along(node, kind.log_sum_exp, x),
    "geo_mean": lambda kind, node, x: np.array(kind.geo_mean(list(x.ravel()), _weights(node)), dtype=object),
}
ATOMS["GeoMean"] = ATOMS["GeoMeanApprox"] = ATOMS["geo_mean"]


def _weights(node):
    return [Decimal(w.numerator) / Decimal(w.denominator) for w in node.w]


LINEAR = {"AddExpression", "MulExpression", "multiply", "DivExpression", "Sum", "index", "Promote", "reshape", "Hstack"}


class Walk:
    """Values of the nodes of stated expressions, where `place` gives those of variables, predictions and norms."""

    def __init__(self, place, kind):
        self.place = place
        self.kind = kind
        self.known: dict[int, Any] = {}
        self.nodes: list[Any] = []  # kept, so that ids stay theirs

    def __call__(self, node):
        if id(node) not in self.known:
            self.known[id(node)] = self._evaluate(node)
            self.nodes.append(node)
        return self.known[id(node)]

    def _evaluate(self, node):
        if isinstance(node, (cp.Constant, cp.Parameter)):
            return exact(node.value)
        if isinstance(node, Prediction):
            return self.place.prediction(node)
        if isinstance(node, ThetaNorm):
            return self.place.norm(node, self.kind)
        if isinstance(node, cp.Variable):
            return self.place.variable(node)
        name = type(node).__name__
        if name not in ATOMS:
            raise UnsupportedError(f"the atom {name}")
        return np.asarray(ATOMS[name](self.kind, node, *(self(a) for a in node.args)), dtype=object)

    def terms(self, node):
        """The sizes of the terms that each entry adds up: |a| + |b| for a − b, Σ|cᵢκ(zᵢ, x)| for θ(x)."""
        name = type(node).__name__
        if isinstance(node, Prediction):
            return self.place.prediction_terms(node)
        if name == "NegExpression":
            return self.terms(node.args[0])
        if name in LINEAR:
            return np.asarray(ATOMS[name](self.kind, node, *(self.terms(a) for a in node.args)), dtype=object)
        return _each(abs, self(node))


def constraint_rows(walk, constraint):
    """(name of the cone, entries) of each cone of a stated constraint."""
    name = type(constraint).__name__
    if name == "Inequality" and type(constraint.args[0]).__name__ == "abs":
        return _bounded_sizes(walk(constraint.args[0].args[0]), walk(constraint.args[1]))
    args = [walk(a) for a in constraint.args]
    if name == "Inequality":
        return [("nonneg", [e]) for e in np.ravel(args[1] - args[0])]
    if name in ("Equality", "Zero"):
        return [("zero", [e]) for e in np.ravel(args[0] - args[1] if len(args) == 2 else args[0])]
    if name in ("NonPos", "NonNeg"):
        return [("nonneg", [e if name == "NonNeg" else -e]) for e in np.ravel(args[0])]
    if name == "SOC":
        columns = args[1].reshape(len(args[1]), -1) if constraint.axis == 0 else args[1].T
        return [("soc", [t, *column]) for t, column in zip(args[0].ravel(), columns.T, strict=True)]
    if name == "ExpCone":
        return [("exp", list(row)) for row in zip(*(a.ravel() for a in args), strict=True)]
    raise UnsupportedError(f"the constraint {name}")


def _bounded_sizes(entries, bounds):
    """|e| ≤ c as two rows, or as e = 0 where c = 0: inequalities that leave no interior prove no lower bound."""
    rows = []
    for e, c in zip(*(a.ravel() for a in np.broadcast_arrays(entries, bounds)), strict=True):
        bound = affine(c)
        rows += [("nonneg", [c - e]), ("nonneg", [c + e])] if bound.terms or bound.constant else [("zero", [e])]
    return rows


def attribute_rows(variable, entries):
    """The rows that a variable's attributes stand for."""
    told = {name for name, value in variable.attributes.items() if value is not None and value is not False}
    unknown = told - {"nonneg", "nonpos", "boolean", "integer", "bounds", "diag", "symmetric"}
    if unknown:
        raise UnsupportedError(f"the attributes {sorted(unknown)}")
    rows = []
    if "nonneg" in told:
        rows += [("nonneg", [e]) for e in np.ravel(entries)]
    if "nonpos" in told:
        rows += [("nonneg", [-e]) for e in np.ravel(entries)]
    if "bounds" in told:
        low, high = (np.broadcast_to(np.asarray(b, dtype=float), entries.shape) for b in variable.bounds)
        for e, a, b in zip(np.ravel(entries), low.ravel(), high.ravel(), strict=True):
            rows += [("nonneg", [e - Decimal(float(a))])] if a > -np.inf else []
            rows += [("nonneg", [Decimal(float(b)) - e])] if b < np.inf else []
    if "diag" in told:
        rows += [("zero", [entries[i, j]]) for i, j in np.ndindex(entries.shape) if i != j]
    if "symmetric" in told:
        n = len(entries)
        rows += [("zero", [entries[i, j] - entries[j, i]]) for i, j in np.ndindex(n, n) if i < j]
    return rows


# ---------------------------------------------------------------- where values come from


class Found:
    """The values that a solve left on θ and on variables."""

    def __init__(self, problem):
        self.problem = problem
        self.products: dict[Any, Products] = {}

    def _products(self, theta):
        return self.products.setdefault(id(theta), Products(theta.kernel))

    def variable(self, node):
        return exact(node.value)

    def prediction(self, node):
        theta = node.data.theta
        rows, columns = Functional.rows_of(node.data.A), Functional.of(theta.value)
        return self._products(theta).gram(rows, columns).reshape(node.shape)

    def prediction_terms(self, node):
        theta = node.data.theta
        products = self._products(theta)
        rows, columns = Functional.rows_of(node.data.A), Functional.of(theta.value)
        sizes = [[products.size(a, b) for b in columns] for a in rows]
        return np.array(sizes, dtype=object).reshape(node.shape)

    def norm(self, node, kind):
        theta, M = node.view.theta, node.view.right
        functions = Functional.of(theta.value)
        if node.view.shift is not None:
            functions += Functional.of(node.view.shift)
        outputs = theta.outputs or 1
        T = exact(np.eye(outputs) if M is None else M.reshape(outputs, -1))
        if node.view.shift is not None:
            T = np.concatenate([T, -exact(np.eye(T.shape[1]))])
        products = self._products(theta)
        return norm_of_gram(T.T @ products.gram(functions, functions) @ T, node.kind, kind)


def norm_of_gram(G, name, kind):
    if name in ("nuc", 2) and len(G) > 1:
        return np.array(kind.eigenvalue_norm(G, name), dtype=object)
    return np.array(max(sum(np.diag(G)), ZERO).sqrt(), dtype=object)


class Unknowns:
    """θ = Cᵀw with C orthonormal rows that span the rows of the problem, Aθ = Lw; w and the user's variables unknown.

    `fixed` gives values to some variables; with `at_zero` θ is 0. Q = LLᵀ up to 10^−(digits − 12) of its diagonal.
    """

    def __init__(self, data, nodes, fixed=None, at_zero=False, tolerance=Decimal(f"1e-{DIGITS - 12}")):
        self.data = data
        self.fixed = {v.id: value for v, value in (fixed or {}).items()}
        self.variables: dict[int, Any] = {}
        self.L: dict[int, Any] = {}
        self.w: dict[int, Any] = {}
        for theta in dict.fromkeys(n.data.theta if isinstance(n, Prediction) else n.view.theta for n in nodes):
            self._span(theta, [n for n in nodes if n.args[0] is theta._leaf], at_zero, tolerance)

    def _span(self, theta, nodes, at_zero, tolerance):
        rows = []
        for node in nodes:
            if isinstance(node, Prediction):
                rows += Functional.rows_of(node.data.A)
            elif node.view.shift is not None:
                rows += Functional.of(node.view.shift)
        rows = list(dict.fromkeys(rows))
        L = cholesky(Products(theta.kernel).gram(rows, rows), tolerance)
        outputs = theta.outputs or 1
        w = np.array(
            [[ZERO if at_zero else self.data.unknown() for _ in range(outputs)] for _ in range(L.shape[1])],
            dtype=object,
        ).reshape(L.shape[1], outputs)
        self.L[id(theta)] = dict(zip(rows, L, strict=True))
        self.w[id(theta)] = w

    def _coordinates(self, theta, rows):
        r = len(self.w[id(theta)])
        return np.array([self.L[id(theta)][row] for row in rows], dtype=object).reshape(len(rows), r)

    def variable(self, node):
        if node.id in self.fixed:
            return exact(self.fixed[node.id]).reshape(node.shape)
        if node.id not in self.variables:
            if node.attributes.get("integer") or node.attributes.get("boolean"):
                raise UnsupportedError("an integer variable without choices")
            entries = np.empty(node.shape, dtype=object)
            for index in np.ndindex(node.shape):
                entries[index] = self.data.unknown()
            self.variables[node.id] = entries
            for name, row in attribute_rows(node, entries):
                self.data.require(name, *row)
        return self.variables[node.id]

    def prediction(self, node):
        theta = node.data.theta
        L = self._coordinates(theta, Functional.rows_of(node.data.A))
        if not L.shape[1]:
            return exact(np.zeros(node.shape))
        return np.asarray(L @ self.w[id(theta)], dtype=object).reshape(node.shape)

    def norm(self, node, kind):
        theta, view = node.view.theta, node.view
        W = self.w[id(theta)]
        if view.right is not None:
            W = W @ exact(view.right.reshape(len(view.right), -1))
        if view.shift is not None:
            W = W - self._coordinates(theta, Functional.of(view.shift)).T
        if node.kind in ("nuc", 2) and W.shape[1] > 1:
            return np.array(kind.eigenvalue_norm(W.T @ W, node.kind), dtype=object)
        return np.array(kind.norm(list(W.ravel())) if W.size else ZERO, dtype=object)


class At:
    """Unknowns at a point."""

    def __init__(self, unknowns, x):
        self.unknowns = unknowns
        self.x = x

    def _values(self, entries):
        return _each(lambda e: value_at(e, self.x), entries)

    def variable(self, node):
        return self._values(self.unknowns.variable(node))

    def prediction(self, node):
        return self._values(self.unknowns.prediction(node))

    def prediction_terms(self, node):
        return _each(lambda e: size_at(e, self.x), self.unknowns.prediction(node))

    def norm(self, node, kind):
        theta, view = node.view.theta, node.view
        W = self._values(self.unknowns.w[id(theta)])
        if view.right is not None:
            W = W @ exact(view.right.reshape(len(view.right), -1))
        if view.shift is not None:
            W = W - self.unknowns._coordinates(theta, Functional.of(view.shift)).T
        return norm_of_gram(W.T @ W, node.kind, kind) if W.size else np.array(ZERO, dtype=object)


def value_at(entry, x):
    if not isinstance(entry, Affine):
        return entry
    return entry.constant + sum((a * x[j] for j, a in entry.terms.items()), ZERO)


def size_at(entry, x):
    """The sizes of the terms of an affine entry, added up."""
    if not isinstance(entry, Affine):
        return abs(entry)
    return abs(entry.constant) + sum((abs(a * x[j]) for j, a in entry.terms.items()), ZERO)


def nodes_of(problem):
    """Predictions and norms of a stated problem."""
    found, seen = [], set()
    stack = [problem.objective, *problem.constraints]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, (Prediction, ThetaNorm)):
            found.append(node)
        stack += [a for a in getattr(node, "args", []) if not isinstance(a, (int, float))]
    return found
