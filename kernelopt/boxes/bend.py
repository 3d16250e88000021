"""How far an inequality's g is from its values at corners of a cell, by norms of derivatives of F.

    g(x) = Σ_α (∂^αf(x))ᵀc_α(x) + (fixed functionals of θ, variables, numbers), with coefficients affine in x

for f = (θ₁ᵀF, …). A part with |∂²/∂xⱼ²| ≤ Mⱼ differs by at most Σⱼ Mⱼhⱼ²/8 from the multilinear interpolant of its
values at the corners of a cell with sides h, a part with |∂/∂xⱼ| ≤ Lⱼ by Σⱼ Lⱼhⱼ/2, and

    M = ‖∂ⱼ∂ⱼ∂^αF‖·max ‖θc_α‖ + 2‖∂ⱼ∂^αF‖·‖θ∂ⱼc_α‖,   L = ‖∂ⱼ∂^αF‖·max ‖θc_α‖ + ‖∂^αF‖·‖θ∂ⱼc_α‖

where F has the derivatives, with norms that are the largest in the box. Where F has none, but κ decreases with the
distance in each column, ‖F(x) − F(x + heⱼ)‖ = ωⱼ(h) = √(2κ(0) − 2κ(heⱼ)) takes the place of h‖∂ⱼF‖: see `rough`.
Numbers have the bend that is declared, and all else is affine in x.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.boxes.least_value import CellBounds
from kernelopt.compiler import rules
from kernelopt.compiler.canonical_form import CanonicalForm, PredictionLink, cut
from kernelopt.errors import DataError, KernelError
from kernelopt.kernels.algebra import Sum
from kernelopt.kernels.chain import Order
from kernelopt.kernels.derivatives import CODES, WithDerivatives, derivative, derivative_diagonal, on_jets, with_order
from kernelopt.kernels.kernel import Kernel
from kernelopt.kernels.lifts import lift_of, plain, plain_points, relifted_rows
from kernelopt.kernels.rounding import Inexact
from kernelopt.language.everywhere import Everywhere
from kernelopt.language.expressions import Theta
from kernelopt.language.functions import Function
from kernelopt.support.arithmetic import gamma
from kernelopt.support.cvxpy_parts import jacobians
from kernelopt.support.types import Array

AFFINE = 1e-9  # relative to the largest coefficient of its kind: deviations up to this from affine count as rounding
WIDER = 1 + 1e-6  # for rounding in norms of derivatives and of θ
PROBES = 12  # random points of the box, at which coefficients are compared with affine functions


class Moving(NamedTuple):
    """The functional ∂^αf_k(x)."""

    theta: Theta
    order: Order
    output: int


class FixedRow(NamedTuple):
    """A functional of output k of θ that does not depend on x, by its row."""

    theta: Theta
    row: int
    output: int


class Entry(NamedTuple):
    """An entry of a user's variable."""

    variable: int
    at: tuple[int, ...]


NUMBERS = "numbers"


def theta_value(theta: Theta) -> Function:
    value = theta.value
    assert value is not None  # after a solve
    return value


class Units:
    """Sizes of θ of 1, where θ has no value yet."""

    def norm(self, c: Array) -> float:
        return 1.0

    def total(self, c: Array) -> float:
        return 1.0


class NormBounds(Units):
    """Upper bounds of ‖θc‖ = √(cᵀGc), with G = θᵀθ from kernel values, not from the factor of a solve.

    Computed entries of G are off by (r + γ₂ₙ)TₖTₗ at most, r the error of kernel values and T the sizes of terms.
    """

    def __init__(self, theta: Theta) -> None:
        f = theta_value(theta)
        self.coefficients = f.coefficients.reshape(len(f.coefficients), -1)
        self.gram, self.terms = np.atleast_2d(Function.gram(f)), _terms(theta)
        self.error = f._kernel._rounding(Inexact(f._centers)) + gamma(2 * len(f._centers) + 4)

    def norm(self, c: Array) -> float:
        return float(np.sqrt(max(c @ self.gram @ c, 0.0) + self.error * (np.abs(c) @ self.terms) ** 2))

    def total(self, c: Array) -> float:
        """Σᵢ|aᵢᵀc| for θ = ΣᵢF(zᵢ)aᵢᵀ."""
        return float(np.abs(self.coefficients @ c).sum())


def _terms(theta: Theta) -> Array:
    """Σᵢ |cᵢₖ|‖F(zᵢ)‖ for each output k, the size of the terms of θ."""
    f = theta_value(theta)
    lengths = np.sqrt(f._kernel._size(f._centers))
    return lengths @ np.abs(np.asarray(f.coefficients)).reshape(len(lengths), -1)


@dataclass(frozen=True, eq=False)
class Structure:
    """c_α as affine functions of x: for each Moving, (1 + d, K) coefficients of (1, x); and what else g is made of.

    kernels : of each θ; width : K; numbers : (K,), the largest numbers in g; fixed : for each other functional of θ its
    output, its norm and its largest coefficients (K,); of_variables : for each entry of a variable the same
    """

    box: Everywhere
    moving: Mapping[Moving, Array]
    kernels: Mapping[Theta, Kernel]
    width: int
    numbers: Array
    fixed: tuple[tuple[Theta, int, float, Array], ...]
    of_variables: tuple[tuple[cp.Variable, tuple[int, ...], Array], ...]

    def bounds(self, sizes: Callable[[Theta], Units] = NormBounds) -> CellBounds:
        """M, L and r, summed over the parts of gₖ that have the one or the other."""
        d = len(self.box.lower)
        bend, slope = np.tile(self.box.bend, (self.width, 1)), np.zeros((self.width, d))
        rougher = []
        at_corners = np.hstack([np.ones((2**d, 1)), self.corners])
        known = {theta: sizes(theta) for theta in dict.fromkeys(m.theta for m in self.moving)}
        for theta, order in dict.fromkeys((m.theta, m.order) for m in self.moving):
            kernel, outputs, size = self.kernels[theta], theta.outputs or 1, known[theta]
            c = np.zeros((outputs, 1 + d, self.width))
            for m, coefficients in self.moving.items():
                if m.theta is theta and m.order == order:
                    c[m.output] = coefficients
            largest, totals = np.zeros((2, self.width))
            smoothness, is_rough = kernel._smoothness - len(order), _is_rough(kernel, order)
            for k in range(self.width):
                largest[k] = WIDER * max(size.norm(c[:, :, k] @ at) for at in at_corners)
                totals[k] = WIDER * max(size.total(c[:, :, k] @ at) for at in at_corners)
                for j in range(d):
                    change = WIDER * size.norm(c[:, 1 + j, k])
                    if smoothness >= 2:
                        further = self.steepness(kernel, (*order, j, j))
                        bend[k, j] += largest[k] * further + 2 * change * self.steepness(kernel, (*order, j))
                    else:
                        slope[k, j] += change * self.steepness(kernel, order)
                        slope[k, j] += 0.0 if is_rough else largest[k] * self.steepness(kernel, (*order, j))
            if is_rough:
                rougher.append(rough(kernel, largest, totals, self.box.upper - self.box.lower))
        return CellBounds(bend, slope, tuple(rougher))

    def steepness(self, kernel: Kernel, order: Order) -> float:
        """max ‖∂^αF(x)‖ over the box."""
        return steepness(kernel, np.maximum(np.abs(self.box.lower), np.abs(self.box.upper)), order)

    @property
    def corners(self) -> Array:
        return np.array(list(product(*zip(self.box.lower, self.box.upper, strict=True))))

    def rounding(self) -> Array:
        """Bounds on the errors of computed values of gₖ at the present values of θ and the variables, (K,).

        A value is a sum of at most n + 2 terms, n the number of centers, each with the error r of a kernel value.
        """
        corners = self.corners
        reach = np.concatenate([[1.0], np.abs(corners).max(axis=0)])
        total, count = self.numbers.copy(), len(self.fixed) + len(self.of_variables) + len(self.moving) + 2
        for v, at, c in self.of_variables:
            total += c * abs(float(np.asarray(v.value)[at]))
        for theta, output, size, c in self.fixed:
            total += c * size * _terms(theta)[output]
        error = np.zeros(self.width)
        for m, c in self.moving.items():
            f = theta_value(m.theta)._lifted(WithDerivatives if m.order else None)
            lift = lift_of(f._kernel)
            ends = with_order(corners, m.order) if m.order else relifted_rows(plain(f._kernel), corners, lift)
            places = Inexact(np.vstack([f._centers, ends]))
            size = (reach @ np.abs(c)) * self.steepness(self.kernels[m.theta], m.order) * _terms(m.theta)[m.output]
            total += size
            error += size * (f._kernel._rounding(places) + gamma(len(f._centers) + 4))
        return WIDER * (error + gamma(count + 4) * total)


def steepness(kernel: Kernel, reach: Array, order: Order) -> float:
    """max ‖∂^αF(x)‖ over |xⱼ| ≤ reachⱼ. Raises KernelError where it is not known.

    For a stationary kernel the norm is the same at all x. ‖∂^αF(x)‖² of a power series in xⱼzⱼ with coefficients ≥ 0 is
    one in xⱼ², the largest where all |xⱼ| are. Squared norms of sums add.
    """
    if isinstance(kernel, Sum) and not (kernel.is_stationary or kernel._is_power_series):
        return float(np.linalg.norm([steepness(term, reach, order) for term in kernel.terms]))
    if not (kernel.is_psd and (kernel.is_stationary or kernel._is_power_series)):
        raise KernelError(
            "Expected a kernel that is positive semidefinite by rule and stationary, polynomial, or a sum of such, as "
            f"the bound has to hold at all points of the box; got {kernel!r}."
        )
    if kernel._smoothness < len(order):
        raise KernelError(
            f"Expected a kernel with derivatives of order {len(order)}, one above those in the inequality; {kernel!r} "
            f"has them up to order {kernel._smoothness} here. Gaussian, rational quadratic and periodic kernels have "
            "more."
        )
    x = reach[None]
    if not order:
        return float(np.sqrt(derivative_diagonal(kernel, x, ())[0]))
    return float(np.sqrt(max(derivative(kernel, x, order, x, order)[0, 0], 0.0)))


def _is_rough(kernel: Kernel, order: Order) -> bool:
    """Whether values of F change by ω: where F has no derivatives, and κ decreases."""
    return not order and kernel._smoothness < 1 and kernel._decreases and kernel.is_stationary


def rough(kernel: Kernel, norms: Array, totals: Array, sides: Array) -> Callable[[Array], Array]:
    """½(ν(hⱼ/2) + ν(hⱼ)), where ν(h) bounds |f(x + heⱼ) − f(x)|, for cells with sides h up to those given, (n, K, d).

    For f = ΣᵢaᵢκF(zᵢ), with norms ‖θ‖ and totals Σ|aᵢ|,

        ν(h) = min(‖θ‖√(2δ(h)), Σ|aᵢ|·v(h)),   δ(h) = κ(0) − κ(heⱼ),

    v(h) ≥ |κ(x + heⱼ) − κ(x)| as in `variation`. In one column x is th from one end and (1 − t)h from the other, with
    weights 1 − t and t ≤ ½ of the interpolant: (1 − t)ν(th) + tν((1 − t)h) ≤ ½ν(h/2) + ½ν(h), as ν increases. Along
    several columns, differences add.
    """

    def nu(h: Array) -> Array:
        by_norm = np.sqrt(2 * drops(kernel, h, sides))[:, None, :] * norms[:, None]
        return np.minimum(by_norm, variation(kernel, h, sides)[:, None, :] * totals[:, None])

    return lambda h: 0.5 * nu(h / 2) + 0.5 * nu(h)


def drops(kernel: Kernel, h: Array, sides: Array) -> Array:
    """Upper bounds of κ(0) − κ(hⱼeⱼ) for sides h up to those given, (n, d)."""
    d = len(sides)
    origin = np.zeros((1, d))
    total = float(kernel._diagonal(origin)[0])
    error = 2 * total * kernel._rounding(Inexact(np.vstack([origin, np.diag(sides)])))
    apart = [kernel._matrix(origin, h[:, [j]] * np.eye(d)[j])[0] for j in range(d)]
    return np.maximum(total - np.stack(apart, axis=1), 0.0) + error


def variation(kernel: Kernel, h: Array, sides: Array) -> Array:
    """Upper bounds of |κ(x + hⱼeⱼ) − κ(x)| for all x, (n, d); infinite where none is known.

    A convex decreasing function of a norm changes most at 0, and this by κ(0) − κ(hⱼeⱼ).
    """
    if kernel._is_convex:
        return drops(kernel, h, sides)
    if kernel._smoothness >= 1:
        slopes = [steepness(kernel, sides, (j,)) for j in range(len(sides))]
        return h * np.array(slopes) * steepness(kernel, sides, ())
    if isinstance(kernel, Sum):
        return np.asarray(sum(variation(term, h, sides) for term in kernel.terms))
    return np.full(h.shape, np.inf)


def structure(box: Everywhere) -> Structure:
    """What g is made of, from its coefficients at probes. Raises DataError where these are not affine in x."""
    lower, upper = box.lower, box.upper
    P = lower + np.random.default_rng(0).uniform(size=(PROBES, len(lower))) * (upper - lower)
    form = margin_form(box.margin(P))
    known, width = coefficients(form, P)
    moving, largest = {}, dict[Hashable, Array]()
    basis = np.hstack([np.ones((len(P), 1)), P])
    for key, values in known.items():
        found, *_ = np.linalg.lstsq(basis, values, rcond=None)
        wrong = float(np.abs(basis @ found - values).max(initial=0.0))
        free = key == NUMBERS and np.any(box.bend > 0)
        if wrong > AFFINE * float(np.abs(values).max(initial=0.0)) and not free:
            raise DataError(_not_affine(key))
        if isinstance(key, Moving):
            moving[key] = found
        largest[key] = np.abs(basis) @ np.abs(found) if not free else np.abs(values)
        largest[key] = largest[key].max(axis=0)
    kernels = {link.theta: plain(link.rows.kernel) for link in form.predictions}
    variables = {v.id: v for v in form.y}
    fixed, of_variables = [], []
    for key in known:
        if isinstance(key, FixedRow):
            rows = next(link.rows for link in form.predictions if link.theta is key.theta)
            size = float(np.sqrt(rows.subset(np.array([key.row])).diagonal()[0]))
            fixed.append((key.theta, key.output, size, largest[key]))
        elif isinstance(key, Entry):
            of_variables.append((variables[key.variable], key.at, largest[key]))
    made = Structure(box, moving, kernels, width, largest[NUMBERS], tuple(fixed), tuple(of_variables))
    made.bounds(lambda theta: Units())  # kernels that lack a derivative are named here
    return made


def _not_affine(key: Hashable) -> str:
    if key == NUMBERS:
        return (
            "Expected numbers in g(P) that are affine in x; these are not. Give a bound on their second derivatives, "
            "ko.everywhere(..., bend=...)."
        )
    if isinstance(key, FixedRow):
        return (
            f"Expected predictions and derivatives of {key.theta!r} at the points P themselves, or at points that "
            "stay; got others that change with x."
        )
    return "Expected coefficients of θ and the variables in g(P) that are affine in x; got others."


def margin_form(margin: cp.Expression) -> CanonicalForm:
    """The tree of a margin, cut where θ enters it."""
    total = cp.Minimize(cp.sum(margin))
    return cut(total, (), replace(rules.inspect(total, ()), smooth=()))


def coefficients(form: CanonicalForm, P: Array) -> tuple[dict[Hashable, Array], int]:
    """The coefficients (points, K) of all that an affine margin is made of, and K."""
    margin = form.outer.objective.args[0].args[0]
    variables = margin.variables()
    kept = [v.value for v in variables]
    try:
        for v in variables:
            v.save_value(np.zeros(v.shape))
        numbers = np.asarray(margin.value, dtype=float)
        slopes = jacobians(margin)
    finally:
        for v, value in zip(variables, kept, strict=True):
            v.save_value(value)
    n = len(P)
    width = numbers.size // n
    found: dict[Hashable, Array] = {NUMBERS: numbers.reshape(n, width)}

    def add(key: Hashable, point: int, k: int, value: float) -> None:
        found.setdefault(key, np.zeros((n, width)))[point, k] += value

    links = {link.u.id: link for link in form.predictions if link.u is not None}
    for v in variables:
        J = sp.coo_array(slopes[v.id])
        entries = np.unravel_index(J.row, v.shape or (1,), order="F")
        for entry, column, value in zip(zip(*entries, strict=True), J.col, J.data, strict=True):
            point, k = int(column) % n, int(column) // n
            at = tuple(int(i) for i in entry) if v.shape else ()
            key = _key(links[v.id], at, P[point]) if v.id in links else Entry(v.id, at)
            add(key, point, k, float(value))
    return found, width


def _key(link: PredictionLink, at: tuple[int, ...], x: Array) -> Hashable:
    """The functional that an entry of u is, at a margin's point x."""
    row, output = int(link.take[at[0]]), int(at[1]) if len(at) > 1 else 0
    if row < len(link.rows.points):
        point = link.rows.points[row]
        codes = point[-CODES:] if on_jets(link.rows.kernel) else np.full(CODES, -1.0)
        if np.array_equal(plain_points(link.rows.kernel, point[None])[0], x):
            return Moving(link.theta, tuple(int(c) for c in codes if c >= 0), output)
    return FixedRow(link.theta, row, output)
