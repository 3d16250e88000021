"""Multipliers of all rows for given s: one step of the method of multipliers, its value and its second derivative.

With z = a₀ + σs, a is the proximal map of Σ(ωh)* at z, and p = (z − a)/σ the point at which a are slopes. Arguments of
smooth functions take σ = ∞: p = s and a = ωh′(s). The value

    M(s) = Σ w₀h(p) + Σ (a² − a₀²)/2σ

is convex, with gradient a. The multiplier λ of a row that holds functions is the root of λ = z − σ(row at p(λ)).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp

from kernelopt.pieces.norms import SecondOrderCone
from kernelopt.pieces.spectral import Schatten, Spectral
from kernelopt.solvers.row_functions import RowFunctions
from kernelopt.solvers.row_problem import RowProblem, VectorNorm
from kernelopt.support import clock
from kernelopt.support.types import Array, Ints

SHORT = 12  # entries of a function whose second derivative is a block of a sparse matrix; longer ones take columns
STEPS = 80  # of the root λ, which is bracketed: every second step that Newton's method fails halves the bracket
ROUNDING = 4 * float(np.finfo(float).eps)  # relative to its terms: λ is that near to the root
LEAST = 1e-300  # a weight at which the proximal map of (ωh)* is that of ω = 0


class RowStep(NamedTuple):
    """value : M(s); a, p : as in the module's formula; multipliers : of rows below, by number; sigma : of each row."""

    value: float
    a: Array
    p: Array
    multipliers: Array
    sigma: Array


class Curvature(NamedTuple):
    """The second derivative H + ZTZᵀ of M, by s: H sparse."""

    H: sp.csr_array
    Z: Array
    T: Array


class OfLengths(NamedTuple):
    """Step of φ(v): value, multipliers b of x, p at which they are slopes, and the second derivative W ⊗ I + UTUᵀ, W
    for pairs of blocks.
    """

    value: float
    b: Array
    p: Array
    W: Array
    U: Array
    T: Array


class LengthStep(NamedTuple):
    """Of one φ: multipliers, W, U, T, and φ(p)."""

    a: Array
    W: Array
    U: Array
    T: Array
    value: float


def _at(f: RowFunctions, s: Array, z: Array, sigma: Array, w: Array) -> tuple[Array, Array]:
    """(a, p) of some functions with weights w."""
    q = s[f.rows]
    if f.is_smooth:
        return w[:, None] * f.family.slope(q), q
    tau = sigma[f.rows]
    a = f.family.prox(z[f.rows], tau[:, 0], w)
    return a, (z[f.rows] - a) / tau


def step(problem: RowProblem, s: Array, a0: Array, scale: float, guess: Array | None = None) -> RowStep:
    """The step for σ = scale·(the problem's steps); `guess` are multipliers of rows below."""
    sigma = scale * problem.step
    z = a0 + sigma * s
    a, p, multipliers = np.zeros(len(s)), s.copy(), np.zeros(len(problem.below))
    rows = problem.below[problem.linear]
    multipliers[problem.linear] = np.maximum(z[rows], 0.0)
    if len(problem.nested):
        multipliers[problem.nested] = _roots(problem, s, z, sigma, multipliers, guess)
    for number in (problem.linear, problem.nested):
        rows = problem.below[number]
        a[rows] = multipliers[number]
        p[rows] = (z[rows] - a[rows]) / sigma[rows]
    a[problem.equal], p[problem.equal] = z[problem.equal], 0.0
    value = 0.0
    for f in problem.functions:
        a[f.rows], p[f.rows] = _at(f, s, z, sigma, f.weights(multipliers))
        if not f.hard:
            value += weighed(f.weight, f.family.value(p[f.rows]))
    own = problem.explicit
    value += float(np.sum((a[own] - a0[own]) * (a[own] + a0[own]) / (2 * sigma[own])))
    return RowStep(value, a, p, multipliers, sigma)


def weighed(w: Array, h: Array) -> float:
    """Σ wh, where h counts for w > 0 only."""
    counts = w > 0
    return float(w[counts] @ h[counts])


def _roots(  # noqa: PLR0917
    problem: RowProblem, s: Array, z: Array, sigma: Array, multipliers: Array, guess: Array | None
) -> Array:
    """λ ≥ 0 of rows that hold functions, with λ ≥ z − σ(…) and equality where λ > 0.

    λ − z − σΣ share·h(p(λ)) increases, since p(λ) is where h is smaller for a larger weight.
    """
    numbers = problem.nested
    rows = problem.below[numbers]
    base, unit = z[rows], sigma[rows]

    def excess(x: Array) -> tuple[Array, Array, Array]:
        multipliers[numbers] = x
        total, fall = _held(problem, s, z, sigma, multipliers)
        total, fall = total[numbers], fall[numbers]
        return x - base - unit * total, 1 + unit * fall, np.abs(x) + np.abs(base) + unit * np.abs(total)

    low = np.zeros(len(numbers))
    found, _, _ = excess(low)
    active = found < 0
    high = np.where(active, -found, 0.0)  # there the excess is not negative
    if all(f.is_smooth for f in problem.functions if f.is_nested):
        return high
    start = high if guess is None else guess[numbers]
    x = np.clip(start, low, high)
    for _ in range(STEPS):
        clock.check()
        value, slope, size = excess(x)
        near = np.abs(value) <= ROUNDING * size
        low, high = np.where(value <= 0, x, low), np.where(value >= 0, x, high)
        if np.all(~active | near | (high - low <= ROUNDING * high)):
            break
        new = x - value / slope
        new = np.where((new > low) & (new < high), new, 0.5 * (low + high))
        x = np.where(active & ~near, new, x)
    return np.where(active, x, 0.0)


def _held(problem: RowProblem, s: Array, z: Array, sigma: Array, multipliers: Array) -> tuple[Array, Array]:
    """Σ share·h(p) of each row below, and how fast it falls with the row's multiplier.

    With g ∈ ∂h(p) and J the derivative of the proximal map that is share²·gᵀ(I − J)g/σ.
    """
    count = len(problem.below)
    total, fall = np.zeros(count), np.zeros(count)
    for f in problem.functions:
        if f.is_nested:
            w = f.weights(multipliers)
            a, p = _at(f, s, z, sigma, w)
            total += f.by_row(f.family.value(p), count)
            if not f.is_smooth:
                fall += f.by_row(f.share * _bent(f, z, sigma, w, a, p)[0], count)
    return total, fall


def _bent(  # noqa: PLR0917
    f: RowFunctions, z: Array, sigma: Array, w: Array, a: Array, p: Array
) -> tuple[Array, Array]:
    """gᵀ(I − J)g/σ and (I − J)g, with the slopes g = a/w of h at p."""
    tau = sigma[f.rows[:, 0]]
    J = f.family.prox_slope(z[f.rows], tau, np.maximum(w, LEAST))
    g = np.where((w > 0)[:, None], a / np.maximum(w, LEAST)[:, None], f.family.slope(p))
    left = g - J.dot(g)
    return np.sum(g * left, axis=1) / tau, left


class _SecondDerivative:
    """Entries of a sparse matrix, and columns beside it."""

    def __init__(self, m: int) -> None:
        self.m = m
        self.parts: list[tuple[Array, Array, Array]] = []
        self.columns: list[Array] = [np.zeros((m, 0))]
        self.cores: list[Array] = [np.zeros((0, 0))]

    def diagonal(self, rows: Ints, values: Array) -> None:
        self.parts.append((rows.ravel(), rows.ravel(), values.ravel()))

    def blocks(self, rows: Ints, values: Array) -> None:
        """values (m, k, k) at the rows (m, k)."""
        k = rows.shape[1]
        self.parts.append((np.repeat(rows, k, axis=1).ravel(), np.tile(rows, (1, k)).ravel(), values.ravel()))

    def outer(self, rows: Ints, Z: Array, T: Array) -> None:
        """ZTZᵀ at some rows."""
        wide = np.zeros((self.m, Z.shape[1]))
        wide[rows] = Z
        self.columns.append(wide)
        self.cores.append(T)

    def made(self) -> Curvature:
        i, j, values = (np.concatenate(part) for part in zip(*self.parts, strict=True))
        H = sp.csr_array((values, (i, j)), shape=(self.m, self.m))
        return Curvature(
            H, np.hstack(self.columns), sl.block_diag(*self.cores[1:]) if self.cores[1:] else self.cores[0]
        )


def curvature(problem: RowProblem, s: Array, at: RowStep) -> Curvature:
    """The second derivative of M at s."""
    found, z = _SecondDerivative(len(s)), at.a + at.sigma * at.p
    rows = problem.below[problem.linear]
    found.diagonal(rows, at.sigma[rows] * (at.a[rows] > 0))
    found.diagonal(problem.equal, at.sigma[problem.equal])
    for f in problem.functions:
        w = f.weights(at.multipliers)
        if f.is_smooth:
            found.diagonal(f.rows, w * f.family.curvature(s[f.rows[:, 0]]))  # type: ignore[attr-defined]
        else:
            _of_prox(f, z, at.sigma, w, found)
    if len(problem.nested):
        _of_nested(problem, s, z, at, found)
    return found.made()


def _of_prox(f: RowFunctions, z: Array, sigma: Array, w: Array, found: _SecondDerivative) -> None:
    """σJ, with J the derivative of the proximal map."""
    tau, k = sigma[f.rows[:, 0]], f.rows.shape[1]
    J = f.family.prox_slope(z[f.rows], tau, np.maximum(w, LEAST))
    tau = np.where(w > 0, tau, 0.0)
    if isinstance(J, Spectral):
        for one, scale in enumerate(tau.tolist()):
            W, Z, T = J.parts(one)
            n, K = J.family.shape
            place = f.rows[one].reshape(K, n)
            found.blocks(place.T, np.broadcast_to(scale * W, (n, K, K)))
            found.outer(f.rows[one], Z, scale * T)
    elif k <= SHORT:
        blocks = np.einsum("mki,mij,mlj->mkl", J.Z, J.T, J.Z)
        blocks[:, np.arange(k), np.arange(k)] += J.d
        found.blocks(f.rows, tau[:, None, None] * blocks)
    else:
        found.diagonal(f.rows, tau[:, None] * J.d)
        for one in np.flatnonzero(tau > 0).tolist() if J.Z.shape[2] else ():
            found.outer(f.rows[one], J.Z[one], tau[one] * J.T[one])


def _of_nested(problem: RowProblem, s: Array, z: Array, at: RowStep, found: _SecondDerivative) -> None:
    """ggᵀ/κ of each row with λ > 0: g is 1 at the row and share·(I − J)h′ at its functions, κ = 1/σ + Σ share²·…"""
    busy = problem.nested[at.multipliers[problem.nested] > 0]
    if not len(busy):
        return
    count, rows = len(problem.below), problem.below[busy]
    numbers, columns, values, kappa = [busy], [rows], [np.ones(len(busy))], np.zeros(count)
    for f in problem.functions:
        on = f.inside >= 0
        on[on] = at.multipliers[f.inside[on]] > 0
        if not on.any():
            continue
        w = f.weights(at.multipliers)
        if f.is_smooth:
            g = f.family.slope(s[f.rows])
        else:
            bent, g = _bent(f, z, at.sigma, w, at.a[f.rows], at.p[f.rows])
            kappa += f.by_row(f.share * bent, count)
        numbers.append(np.repeat(f.inside[on], f.rows.shape[1]))
        columns.append(f.rows[on].ravel())
        values.append((f.share[:, None] * g)[on].ravel())
    parts = tuple(np.concatenate(part) for part in (values, numbers, columns))
    G = sp.csr_array((parts[0], parts[1:]), shape=(count, len(s)))[busy]
    weight = 1 / (kappa[busy] + 1 / at.sigma[rows])
    short = np.diff(G.indptr) <= SHORT
    inner = sp.csr_array(G[short])
    squares = sp.coo_array(inner.T @ (sp.diags_array(weight[short]) @ inner))
    found.parts.append((squares.row, squares.col, squares.data))
    if not short.all():
        found.outer(np.arange(len(s)), G[~short].toarray().T, np.diag(weight[~short]))


def of_lengths(problem: RowProblem, x: Array, b0: Array, scale: float) -> OfLengths:
    """The step of all φ(v), with their own z = b₀ + σv."""
    value, b, p, W = 0.0, np.zeros(len(x)), x.copy(), np.zeros((len(problem.blocks),) * 2)
    parts = list[tuple[Ints, Array, Array]]()
    for one in problem.lengths:
        if not len(one.columns):
            continue
        at, a, near, found = _of_length(problem, one, x, b0, scale * problem.steps_v[one.columns[0]])
        value += found.value
        b[at] += a
        p[at] += near - x[at]
        W[np.ix_(one.blocks, one.blocks)] += found.W
        parts.append((at, found.U, found.T))
    count = sum(len(T) for _, _, T in parts)
    U, T, end = np.zeros((len(x), count)), np.zeros((count, count)), 0
    for at, of_one, core in parts:
        some = slice(end, end + len(core))
        U[at, some], T[some, some], end = of_one, core, some.stop
    return OfLengths(value, b, p, W, U, T)


def _of_length(
    problem: RowProblem, one: VectorNorm, x: Array, b0: Array, sigma: float
) -> tuple[Ints, Array, Array, LengthStep]:
    """The entries of x in one φ, the multipliers and p of these, and the rest of its step, with the value of M."""
    at, heads = one.columns, np.ones(1)
    if one.t >= 0:
        at = np.append(problem.p + one.t, at)
        heads = np.append(one.head, np.ones(len(at) - 1))
    last = b0[at] / heads
    z = last + sigma * (heads * x[at])
    if one.t >= 0:
        found = _of_cone(one, z, sigma)
    elif one.p != 2.0:
        found = _of_matrix(problem, one, z, sigma)
    else:
        found = _of_length_alone(one, z, sigma)
    a = found.a
    value = found.value + float((a - last) @ (a + last)) / (2 * sigma)
    return at, heads * a, (z - a) / sigma / heads, found._replace(value=value, U=heads[:, None] * found.U)


def _of_length_alone(one: VectorNorm, z: Array, sigma: float) -> LengthStep:
    """‖p‖ = r, the minimizer of ½σr² + φ(r) − ‖z‖r, along z."""
    size = float(np.linalg.norm(z))
    r = float(np.clip((size - one.slope) / sigma, 0.0, one.limit))
    across = 1 - sigma * r / size if size > 0 else 1.0
    along = 0.0 if 0 < r < one.limit else 1.0
    U = (z / size if size > 0 else z)[:, None]
    W, T = sigma * across * np.eye(len(one.blocks)), np.array([[sigma * (along - across)]])
    return LengthStep(across * z, W, U, T, one.slope * r)


def _of_cone(one: VectorNorm, z: Array, sigma: float) -> LengthStep:
    """The cone ‖v‖ ≤ t, with t first. The derivative has one number on its diagonal: W takes it for v, and T for t."""
    family, ones = SecondOrderCone(), np.ones(1)
    J = family.prox_slope(z[None], ones, ones)
    T = J.T[0] + np.diag([J.d[0, 0], 0.0])
    W = J.d[0, 0] * np.eye(len(one.blocks))
    return LengthStep(family.prox(z[None], ones, ones)[0], sigma * W, J.Z[0], sigma * T, 0.0)


def _of_matrix(problem: RowProblem, one: VectorNorm, z: Array, sigma: float) -> LengthStep:
    """slope·‖V‖ of Schatten's order p."""
    K = len(one.blocks)
    family, w, ones = Schatten((len(z) // K, K), one.p), np.array([one.slope]), np.ones(1)
    a = family.prox(z[None], ones, w)[0]
    W, Z, T = family.prox_slope(z[None], ones, w).parts(0)
    return LengthStep(a, sigma * W, Z, sigma * T, one.slope * float(family.value((z - a)[None] / sigma)[0]))
