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
from dataclasses import dataclass
from itertools import product

import cvxpy as cp
import numpy as np

from kernelopt.boxes.coefficients import (
    NUMBERS,
    UNKNOWN,
    Entry,
    Moving,
    Staying,
    coefficients,
    degrees,
    parts,
    row_names,
    trial,
)
from kernelopt.boxes.least_value import CellBounds, Cells, unit_corners
from kernelopt.errors import DataError, KernelError
from kernelopt.kernels.algebra import Sum
from kernelopt.kernels.chain import Order
from kernelopt.kernels.derivatives import WithDerivatives, derivative, derivative_diagonal, with_order
from kernelopt.kernels.kernel import Kernel
from kernelopt.kernels.lifts import lift_of, plain, relifted_rows
from kernelopt.kernels.rounding import Inexact
from kernelopt.language.everywhere import Everywhere
from kernelopt.language.expressions import Theta
from kernelopt.language.functions import Function
from kernelopt.support.arithmetic import gamma, in_columns
from kernelopt.support.types import Array

AFFINE = 1e-9  # relative to the largest coefficient of its kind: deviations up to this from affine count as rounding
WIDER = 1 + 1e-6  # for rounding in norms of derivatives and of θ
PROBES = 12  # random points of the box, to which affine functions are fitted
SCREENED = 1000  # random points of the box, at which coefficients are compared with these before any solve


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
        self.coefficients = in_columns(f.coefficients)
        self.gram, self.terms = np.atleast_2d(Function.gram(f)), _terms(theta)
        of_kernel = f._kernel._rounding(Inexact(f._centers)) if len(f._centers) else 0.0
        self.error = of_kernel + gamma(2 * len(f._centers) + 4)

    def norm(self, c: Array) -> float:
        return float(np.sqrt(max(c @ self.gram @ c, 0.0) + self.error * (np.abs(c) @ self.terms) ** 2))

    def total(self, c: Array) -> float:
        """Σᵢ|aᵢᵀc| for θ = ΣᵢF(zᵢ)aᵢᵀ."""
        return float(np.abs(self.coefficients @ c).sum())


def _terms(theta: Theta) -> Array:
    """Σᵢ |cᵢₖ|‖F(zᵢ)‖ for each output k, the size of the terms of θ."""
    f = theta_value(theta)
    lengths = np.sqrt(f._kernel._size(f._centers))
    return lengths @ in_columns(np.abs(np.asarray(f.coefficients)))


@dataclass(frozen=True, eq=False)
class Structure:
    """c_α as affine functions of x: for each Moving, (1 + d, K) coefficients of (1, x); and what else g is made of.

    kernels : of each θ; affine : as `moving`, for all that is affine in x; numbers : (K,), the largest numbers in g
    fixed : for each other functional of θ its output, its norm and its largest coefficients (K,); of_variables : for
        each entry of a variable the same
    unproven : "coefficients" or "numbers", where these are computed by code that does not show them to be affine in x
    """

    box: Everywhere
    moving: Mapping[Moving, Array]
    kernels: Mapping[Theta, Kernel]
    affine: Mapping[Hashable, Array]
    numbers: Array
    fixed: tuple[tuple[Theta, int, float, Array], ...]
    of_variables: tuple[tuple[cp.Variable, tuple[int, ...], Array], ...]
    unproven: tuple[str, ...]

    @property
    def width(self) -> int:
        """K."""
        return len(self.numbers)

    def assumptions(self) -> list[str]:
        """What a proof assumes of g beyond its values at the examined points."""
        what = " and ".join(self.unproven)
        return [f"for {what} affine in x where code computes them"] if what else []

    def declarations(self) -> list[str]:
        """What a proof takes from the user's word."""
        if not self.box.bend.any():
            return []
        bounds = ", ".join(f"{b:g}" for b in dict.fromkeys(self.box.bend.tolist()))
        return [f"with the stated bend {bounds}"]

    def compare(self, key: Hashable, values: Array, P: Array) -> None:
        """Raise DataError unless coefficients (n, K) are those of the affine function, to rounding."""
        expected = np.hstack([np.ones((len(P), 1)), P]) @ self.affine.get(key, np.zeros((1 + P.shape[1], self.width)))
        off = np.abs(values - expected) - AFFINE * max(np.abs(values).max(), np.abs(expected).max())
        if off.max() > 0:
            i, k = np.unravel_index(off.argmax(), off.shape)
            shown = f"{values[i, k]:.6g} at x = {P[i].tolist()}, where other points give {expected[i, k]:.6g}"
            raise DataError(_not_affine(key, shown))

    def check(self, P: Array) -> Array:
        """Compare coefficients at the points P with the affine functions. Returns the numbers in g, (n, K).

        Raises DataError at a point where they differ.
        """
        found = parts(self.box.margin(P), P)
        numbers = found.numbers
        if NUMBERS in self.affine:
            self.compare(NUMBERS, numbers, P)
        unit = max(float(np.abs(numbers).max()), 1.0)
        values, expected = trial(found, self.affine, unit)
        wrong = np.abs(values - expected).max(axis=1)
        if wrong.max() > AFFINE * unit:
            at = P[[int(wrong.argmax())]]
            for key, coefficient in coefficients(parts(self.box.margin(at), at)).items():
                if key in self.affine or key != NUMBERS:
                    self.compare(key, coefficient, at)
            raise DataError(
                f"Expected rows of g(P) that depend on their own point alone; the row of x = {at[0].tolist()} is "
                "another one beside other points."
            )
        return numbers

    def examine(self, cells: Cells) -> None:
        """Compare g at corners of cells, and at a point inside each, with what the proof takes it to be.

        Numbers with declared bends Bⱼ are at most Σⱼ Bⱼtⱼ(1 − tⱼ)hⱼ²/2 from the multilinear interpolant of their values
        at the corners, at a point that parts the sides hⱼ in the ratios tⱼ : 1 − tⱼ. Raises DataError.
        """
        t = np.random.default_rng(len(cells.low)).uniform(0.1, 0.9, cells.low.shape)
        at_corners, inside = self.check(cells.corners), self.check(cells.low + t * cells.size)
        if NUMBERS in self.affine:
            return
        weights = np.prod(np.where(unit_corners(t.shape[1]) > 0, t[:, None, :], 1 - t[:, None, :]), axis=2)
        chord = np.einsum("nc,nck->nk", weights, at_corners[cells.places])
        allowed = (self.box.bend * t * (1 - t) * cells.size**2).sum(axis=1, keepdims=True) / 2
        off = np.abs(inside - chord) - allowed - AFFINE * self.numbers
        if off.max() > 0:
            i, k = np.unravel_index(off.argmax(), off.shape)
            raise DataError(
                f"Expected numbers in g(P) with second derivatives up to bend = {self.box.bend.tolist()}; got one that "
                f"is {abs(inside[i, k] - chord[i, k]):.3g} from a straight line at x = "
                f"{(cells.low + t * cells.size)[i].tolist()}, where {allowed[i, 0]:.3g} is possible. Give a larger "
                "bend; where the numbers jump or have a kink, state pieces of g on boxes of their own."
            )

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
            for m, affine in self.moving.items():
                if m.theta is theta and m.order == order:
                    c[m.output] = affine
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
    rng = np.random.default_rng(0)
    P = lower + rng.uniform(size=(PROBES, len(lower))) * (upper - lower)
    cut = parts(box.margin(P), P)
    at_probes = coefficients(cut)
    basis = np.hstack([np.ones((len(P), 1)), P])
    known = {key: np.linalg.lstsq(basis, values, rcond=None)[0] for key, values in at_probes.items()}
    if box.bend.any():
        del known[NUMBERS]
    kernels, rows = dict[Theta, Kernel](), dict[tuple[Theta, Order, Hashable], float]()
    for node, _ in cut.predictions:
        A, theta = node.data.A, node.data.theta
        kernels[theta] = theta.kernel.at_present()
        rows |= {
            (theta, A.order, name): float(np.sqrt(square))
            for name, square in zip(row_names(A), A.diag(), strict=True)
        }  # fmt: skip
    variables = {v.id: v for v, _ in cut.variables}
    reach = np.concatenate([[1.0], np.maximum(np.abs(lower), np.abs(upper))])
    largest = {key: reach @ np.abs(c) for key, c in known.items()}
    made = Structure(
        box, {key: c for key, c in known.items() if isinstance(key, Moving)}, kernels, known,
        _declared_numbers(box) if NUMBERS not in known else largest[NUMBERS],
        tuple((k.theta, k.output, rows[k[:3]], c) for k, c in largest.items() if isinstance(k, Staying)),
        tuple((variables[k.variable], k.at, c) for k, c in largest.items() if isinstance(k, Entry)),
        shown_by_code(box, P),
    )  # fmt: skip
    for key, values in at_probes.items():
        if key in known:
            made.compare(key, values, P)
    made.check(lower + rng.uniform(size=(SCREENED, len(lower))) * (upper - lower))
    made.bounds(lambda theta: Units())  # kernels that lack a derivative are named here
    return made


def _declared_numbers(box: Everywhere) -> Array:
    """Bounds on |c₀|, (K,): the largest at the corners of the box, and Σⱼ Bⱼwⱼ²/8 for the bends B and the sides w."""
    at_corners = np.array(list(product(*zip(box.lower, box.upper, strict=True))))
    between = float(np.sum(box.bend * (box.upper - box.lower) ** 2) / 8)
    return np.asarray(np.abs(parts(box.margin(at_corners), at_corners).numbers).max(axis=0) + between)


def shown_by_code(box: Everywhere, P: Array) -> tuple[str, ...]:
    """What of g is not shown to be affine in x by the operations of its code, which may be all of it."""
    symbolic = box.symbolic_margin(P)
    of_others, of_numbers = (UNKNOWN, UNKNOWN) if symbolic is None else degrees(symbolic)
    found = []
    if of_others > 1:
        found.append("coefficients")
    if of_numbers > 1 and not box.bend.any():
        found.append("numbers")
    return tuple(found)


def _not_affine(key: Hashable, found: str) -> str:
    if key == NUMBERS:
        return (
            f"Expected numbers in g(P) that are affine in x; these are not: {found}. Give a bound on their second "
            "derivatives, ko.everywhere(..., bend=...), if they have one; state pieces of g on boxes of their own."
        )
    if isinstance(key, Staying):
        return (
            f"Expected predictions and derivatives of {key.theta!r} at the points P themselves, or at points that "
            "stay; got others that change with x."
        )
    return (
        f"Expected coefficients of θ and the variables in g(P) that are affine in x; got others: {found}. State pieces "
        "of g on boxes of their own."
    )
