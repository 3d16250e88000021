"""Least squares with ridge penalties: one linear system, or one decomposition for every strength of the penalty.

    minimize  ½ Σₖ Rₖ‖vₖ‖² + gᵀx + ½ Σⱼ (s_of(j) − anchorⱼ)²/ρⱼ,  s = Cx,  x = (v, y)

is solved by (R + CᵀWC)x = Cᵀ(anchor/ρ) − g. While C stays the same, and R and W change by one factor each, one
symmetric eigendecomposition solves all these systems (`Decomposition`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from kernelopt.errors import SolverError
from kernelopt.solvers import active_set
from kernelopt.solvers.assemble import Shape
from kernelopt.solvers.coupling import LinearMap
from kernelopt.solvers.dual_point import Point, judged
from kernelopt.solvers.engine import Engine
from kernelopt.solvers.structured import FEW, Structured
from kernelopt.solvers.watch import Watch
from kernelopt.support.clock import OutOfTimeError
from kernelopt.support.threads import for_factoring
from kernelopt.support.types import Array, Ints

NOT_SQUARES = "needs an objective of squares alone, and no constraints"
ROUNDS = 4  # solves of one system by iterative refinement, which ends before if the gap is small or stops falling
EIGEN = 15.0  # cost of an eigendecomposition in units of r³ flops of matrix products (measured: 10 to 16)
# Eigenvalues of FᵀWF, scaled to unit diagonal, up to SINGULAR·(number of y) count as 0, with a margin for rounding.
# Their directions of y are free, and x has no component in them.
SINGULAR = 1e-13
SAME = 1e-13  # relative difference up to which two ratios count as equal: rounding of products, with a margin
MOST_WHOLE = 2  # systems with the whole kernel matrix, before a decomposition pays
KEPT = 4.0  # rows per column from which CᵀWC stays beside its decomposition, for a few more columns: it is small then
MOST_MORE = 4  # columns by which a known CᵀWC is widened; each takes two passes over B, as long as several at once
CHUNK = 1000  # rows whose leverages are computed at a time: a few of these blocks, of CHUNK·r numbers, are in memory


class LeastSquares(Engine):
    """One linear system, or one eigendecomposition for all strengths of the penalty."""

    def lacks(self, shape: Shape) -> str | None:
        return None if shape.squares else NOT_SQUARES

    def solve(self, problem: Structured, watch: Watch, start: Point | None = None) -> Point:
        return solve(problem, watch, start)


def solve(problem: Structured, watch: Watch, start: Point | None = None) -> Point:
    """The minimizer, refined until the gap is small enough or stops falling; of `start`, only `kept` is used."""
    if not problem.orthonormal:
        return _in_kernel_space(problem, watch, start)
    weights = curvature(problem)
    kept = reusable(problem, weights, None if start is None else start.kept)
    system = kept.system(problem, weights)
    best: Point | None = None
    x, s = np.zeros(problem.size), np.zeros(problem.m)
    try:
        for _ in range(ROUNDS):
            x = _refined(problem, system, x, s)
            s = problem.products(x)
            point = judged(problem, x, s, _multipliers(problem, s), np.zeros(problem.m))
            watch.systems += 1
            flat = best is not None and not point.merit < 0.5 * best.merit
            best = point if best is None or point.merit < best.merit else best
            if flat or watch(best, problem.rank):
                break
    except (OutOfTimeError, KeyboardInterrupt) as stop:
        if best is None:
            raise
        best = replace(best, stopped=stop)
    assert best is not None
    return replace(best, kept=kept)


def _in_kernel_space(problem: Structured, watch: Watch, start: Point | None) -> Point:
    """The minimizer from one system in kernel space, as squares have no sides to be on.

    Raises SolverError where the system is too near to a singular one, and from the second strength of the penalty on,
    as `Decomposition` solves these faster.
    """
    solved = start.kept if start is not None and isinstance(start.kept, int) else 0
    found = None
    if solved < MOST_WHOLE:
        zero, a = np.zeros(problem.m), np.zeros(len(problem.of))
        found = active_set.solve(problem, watch, Point(np.zeros(problem.size), zero, a, zero, inf, 0.0, inf, inf))
    if found is None:
        raise SolverError("LEAST_SQUARES needs a factor of the kernel matrix.")
    return replace(found, kept=solved + 1)


def curvature(problem: Structured) -> Array:
    """W: Σ 1/ρ over the squares of each s, (m,)."""
    return problem.of_kinks(1 / problem.rho)


def minimizer(problem: Structured, weights: Array, kept: KeptSpectrum) -> Array:
    """The minimizing x."""
    return -kept.system(problem, weights)(kept.gradient(problem))


def _refined(problem: Structured, system: LinearMap, x: Array, s: Array) -> Array:
    """x − (R + CᵀWC)⁻¹·gradient, with s = Cx."""
    slope = problem.of_kinks(_multipliers(problem, s))
    return x - system(problem.penalty * x + problem.linear + problem.adjoint(slope))


def _multipliers(problem: Structured, s: Array) -> Array:
    """The slope of each square."""
    return np.asarray((s[problem.of] - problem.anchor) / problem.rho)


# ------------------------------------------------------------ one decomposition for all strengths


@dataclass(frozen=True, eq=False)
class _Component:
    """Columns of v and y that no row connects with other columns, and their decomposition.

    roots : 1/√R; Y : YYᵀ = (FᵀWF)⁺; K = GᵀWFY with G = C_v/√R; values, vectors : of GᵀWG − KKᵀ = VΛVᵀ
    """

    v: Ints
    y: Ints
    roots: Array
    Y: Array
    K: Array
    values: Array
    vectors: Array


@dataclass(frozen=True, eq=False)
class Decomposition:
    """(τR + ωCᵀWC)⁻¹ for all τ, ω > 0, in O(r²).

    With y eliminated and z = √R·v, κ = τ/ω, for the right-hand side (b, c):

    (κ + VΛVᵀ)z = (b/√R − KYᵀc)/ω,  y = Y(Yᵀc/ω − Kᵀz).
    """

    parts: tuple[_Component, ...]

    def solve(self, tau: float, omega: float, rhs: Array) -> Array:
        x = np.zeros_like(rhs)
        for part in self.parts:
            b, c = rhs[part.v] * part.roots / omega, part.Y.T @ rhs[part.y] / omega
            z = part.vectors @ ((part.vectors.T @ (b - part.K @ c)) / (part.values + tau / omega))
            x[part.v] = part.roots * z
            x[part.y] = part.Y @ (c - part.K.T @ z)
        return x


@dataclass(frozen=True, eq=False)
class _Row:
    """For rows (g, f) of a part: squares of g's coordinates in its eigenvectors, and `free` = ‖Yᵀf‖²."""

    rows: Ints
    squares: Array
    free: Array
    values: Array


@dataclass(eq=False)
class KeptSpectrum:
    """The data that all solves with one C share, where R and W differ by one factor each.

    gram : CᵀWC, once a system was solved in the columns; work : flops spent so far on solves without the decomposition,
    which is computed once they exceed its own cost.
    """

    problem: Structured
    weights: Array
    parts: list[tuple[Ints, Ints, int]]
    work: float = 0.0
    spectrum: Decomposition | None = None
    gram: Array | None = field(default=None, repr=False)
    _last: tuple[float, float, LinearMap] | None = None
    _gradient: tuple[Array, Array, Array] | None = field(default=None, repr=False)
    _rows: tuple[sp.csr_array, sp.csr_array, list[_Row]] | None = field(default=None, repr=False)

    def is_for(self, problem: Structured, weights: Array) -> bool:
        """Whether C is the same, and R and W are the same up to one factor each."""
        mine = self.problem
        return (
            len(mine.blocks) == len(problem.blocks)
            and all(a is b for a, b in zip(mine.blocks, problem.blocks, strict=True))
            and _in_proportion(mine.R, problem.R)
            and self._has_rows_of(problem, weights)
        )

    def _has_rows_of(self, problem: Structured, weights: Array) -> bool:
        mine = self.problem
        return (
            _same_sparse(mine.E, problem.E)
            and np.array_equal(mine.F, problem.F)
            and _in_proportion(self.weights, weights)
        )

    def widened(self, problem: Structured, weights: Array) -> Array | None:
        """CᵀWC where C has a few more columns, by two products for each of them; None where it differs otherwise."""
        old, new = self.problem, problem
        more = new.size - old.size
        if self.gram is None or not 0 < more <= MOST_MORE or len(old.blocks) != len(new.blocks):
            return None
        follow = all(B.begins_with(A) for A, B in zip(old.blocks, new.blocks, strict=True))
        if not follow or not self._has_rows_of(new, weights):
            return None
        blocks = [a + np.arange(A.shape[1]) for a, A in zip(new.ends[:-1], old.blocks, strict=True)]
        at = np.concatenate([*blocks, np.arange(new.ends[-1], new.size)])
        H = np.empty((new.size, new.size))
        H[np.ix_(at, at)] = self.factors(new, weights)[1] * self.gram
        for j in np.setdiff1d(np.arange(new.size), at):
            unit = np.zeros(new.size)
            unit[j] = 1.0
            H[j] = H[:, j] = new.adjoint(weights * new.products(unit))
        return H

    def factors(self, problem: Structured, weights: Array) -> tuple[float, float]:
        """τ and ω with R = τR₀ and W = ωW₀."""
        omega = float(weights.max() / self.weights.max()) if self.weights.any() else 1.0
        return float(problem.R.max() / self.problem.R.max()), omega

    def system(self, problem: Structured, weights: Array) -> LinearMap:
        """rhs ↦ (R + CᵀWC)⁻¹rhs."""
        tau, omega = self.factors(problem, weights)
        if self._pays():
            spectrum = self.decomposed()
            return lambda rhs: spectrum.solve(tau, omega, rhs)
        if self._last is None or self._last[:2] != (tau, omega):
            self._last = tau, omega, self._direct(problem, weights, omega)
            self.work += problem.size**3  # a Cholesky factor takes a third of the flops, at a third of the speed
        return self._last[2]

    def _direct(self, problem: Structured, weights: Array, omega: float) -> LinearMap:
        if self._has_few_rows():
            self.work += sum(rows * len(v) ** 2 for v, _, rows in self.parts)
            return problem.system(weights)
        return problem.in_columns(omega * self._gram())

    def _gram(self) -> Array:
        if self.gram is None:
            self.gram = self.problem.gram(self.weights)
        return self.gram

    def _has_few_rows(self) -> bool:
        return bool(np.count_nonzero(self.weights) <= FEW * self.problem.size)

    def _pays(self, more: float = 0.0) -> bool:
        """Whether to use the decomposition: it exists, or solves without it cost as much as it takes, those so far and
        `more` flops.

        Where rows are few, systems in the rows cost less.
        """
        if self.spectrum is not None:
            return True
        if self._has_few_rows():
            return False
        return self.work + more >= sum(EIGEN * len(v) ** 3 for v, _, _ in self.parts)

    def decomposed(self) -> Decomposition:
        """The decomposition, computed once."""
        if self.spectrum is None:
            H = self._gram()
            self.spectrum = Decomposition(tuple(_part(H, v, y, self.problem.penalty[v]) for v, y, _ in self.parts))
            self._last = None
            if KEPT * len(H) > self.problem.m:
                self.gram = None
        return self.spectrum

    def gradient(self, problem: Structured) -> Array:
        """The gradient at x = 0, known while targets and linear costs stay as they are."""
        slope = problem.of_kinks(_multipliers(problem, np.zeros(problem.m)))
        known = self._gradient
        if known is None or not (np.array_equal(known[0], slope) and np.array_equal(known[1], problem.linear)):
            self._gradient = known = slope, problem.linear, problem.linear + problem.adjoint(slope)
        return known[2]

    def leverages(self, problem: Structured, weights: Array, E: sp.csr_array, F: sp.csr_array) -> Array:
        """cᵢᵀ(R + CᵀWC)⁻¹cᵢ for the rows cᵢ of (EB, F); O(r) per row once their squares are known."""
        # Twice the flops of solves: a caller who asks again is likely to ask for many strengths.
        flops = sum(4.0 * rows * len(v) ** 2 for v, _, rows in self.parts)
        if not self._pays(flops):
            found = _direct_leverages(problem, self.system(problem, weights), E, F)
            self.work += flops
            return found
        tau, omega = self.factors(problem, weights)
        if self._rows is None or not (_same_sparse(self._rows[0], E) and _same_sparse(self._rows[1], F)):
            self._rows = E, F, [_row(self.problem, part, E, F) for part in self.decomposed().parts]
        found = np.zeros(E.shape[0])
        for row in self._rows[2]:
            found[row.rows] += (row.squares @ (1 / (row.values + tau / omega)) + row.free) / omega
        return found


def reusable(problem: Structured, weights: Array, kept: object) -> KeptSpectrum:
    """The kept spectrum if it is for this problem, else a new one, which begins with CᵀWC where it is known."""
    known = kept if isinstance(kept, KeptSpectrum) else None
    if known is not None and known.is_for(problem, weights):
        return known
    gram = None if known is None else known.widened(problem, weights)
    return KeptSpectrum(problem, weights, _parts(problem), gram=gram)


def _parts(problem: Structured) -> list[tuple[Ints, Ints, int]]:
    """For each part that no row connects with others: its columns of v and of y, as indices in x, and its row count."""
    K, m = len(problem.blocks), problem.m
    sizes = [len(B) for B in problem.blocks]
    if K == 1 and not problem.q:
        return [(np.arange(problem.ends[-1]), np.arange(0), int(np.count_nonzero(np.diff(problem.E.indptr))))]
    owner = sp.csr_array((np.ones(sum(sizes)), (np.arange(sum(sizes)), np.repeat(np.arange(K), sizes))))
    touches = sp.csr_array(sp.hstack([abs(problem.E) @ owner, sp.csr_array(np.abs(problem.F))]))
    number, labels = connected_components(sp.block_array([[None, touches], [touches.T, None]]), directed=False)
    of_rows, of_columns = labels[:m], labels[m:]
    counts = np.bincount(of_rows, minlength=number)
    ends, found = problem.ends, []
    for label in np.unique(of_columns):
        columns = np.flatnonzero(of_columns == label)
        v = [np.arange(ends[k], ends[k + 1]) for k in columns[columns < K]]
        y = columns[columns >= K] - K + ends[-1]
        found.append((np.concatenate([np.arange(0), *v]), y, int(counts[label])))
    return found


def _part(H: Array, v: Ints, y: Ints, R: Array) -> _Component:
    """The decomposition of the part of H = CᵀWC in some columns."""
    roots = 1 / np.sqrt(R)
    unit = np.sqrt(H[y, y])
    unit[unit == 0] = 1.0
    sizes, U = sl.eigh(H[np.ix_(y, y)] / unit[:, None] / unit) if len(y) else (np.zeros(0), np.zeros((0, 0)))
    bound = sizes > SINGULAR * max(len(y), 1)
    Y = (U[:, bound] / np.sqrt(sizes[bound])) / unit[:, None]
    K = roots[:, None] * (H[np.ix_(v, y)] @ Y)
    M = roots[:, None] * H[np.ix_(v, v)] * roots - K @ K.T
    with for_factoring(len(M)):
        values, vectors = sl.eigh(M, overwrite_a=True, check_finite=False, driver="evd")
    return _Component(v, y, roots, Y, K, np.clip(values, 0.0, None), vectors)


def _row(problem: Structured, part: _Component, E: sp.csr_array, F: sp.csr_array) -> _Row:
    """The rows that touch a part, with y eliminated: g = (EB)/√R − FY Kᵀ, squared in the part's eigenvectors."""
    end = problem.ends[-1]
    blocks = [k for k, first in enumerate(problem.ends[:-1]) if first in part.v and problem.blocks[k].shape[1]]
    starts = np.cumsum([0, *(len(B) for B in problem.blocks)])
    pieces = [E[:, starts[k] : starts[k + 1]] for k in blocks]
    f = sp.csr_array(F[:, part.y - end])
    rows = np.flatnonzero(np.sum([abs(p).sum(axis=1) for p in [*pieces, f]], axis=0) > 0)
    free = f[rows] @ part.Y
    # In place, as a new array of this size takes as long as a pass over B.
    found: Array | None = None
    for k, piece in zip(blocks, pieces, strict=True):
        columns = slice(*np.searchsorted(part.v, problem.ends[k : k + 2]))
        B, chosen = problem.blocks[k], sp.csr_array(piece[rows])
        turn = part.roots[columns, None] * part.vectors[columns]
        coordinates = B.combined(chosen) @ turn if len(rows) < len(B) else _times(chosen, B @ turn)
        found = coordinates if found is None else np.add(found, coordinates, out=found)
    found = np.zeros((len(rows), len(part.values))) if found is None else found
    if len(part.y):
        found -= free @ (part.K.T @ part.vectors)
    return _Row(rows, np.square(found, out=found), np.sum(free**2, axis=1), part.values)


def _times(E: sp.csr_array, A: Array) -> Array:
    """EA, in the memory of A where E is diagonal."""
    along = np.arange(len(A) + 1)
    diagonal = np.array_equal(E.indptr, along) and np.array_equal(E.indices, along[:-1])
    return np.multiply(E.data[:, None], A, out=A) if diagonal else np.asarray(E @ A)


def _direct_leverages(problem: Structured, system: LinearMap, E: sp.csr_array, F: sp.csr_array) -> Array:
    """The leverages by one solve for each row, CHUNK rows at a time."""
    found = np.zeros(E.shape[0])
    starts = np.cumsum([0, *(len(B) for B in problem.blocks)])
    for first in range(0, E.shape[0], CHUNK):
        some = slice(first, first + CHUNK)
        pieces = [B.combined(E[some, a:b]) for B, a, b in zip(problem.blocks, starts[:-1], starts[1:], strict=True)]
        rows = np.hstack([*pieces, F[some].toarray()])
        found[some] = np.einsum("ij,ji->i", rows, system(rows.T))
    return found


def _in_proportion(a: Array, b: Array) -> bool:
    """Whether each vector is a multiple of the other (both ≥ 0)."""
    return bool(a.any() == b.any() and np.allclose(a * b.max(initial=0.0), b * a.max(initial=0.0), rtol=SAME, atol=0))


def _same_sparse(a: sp.csr_array, b: sp.csr_array) -> bool:
    return a.shape == b.shape and all(
        np.array_equal(x, y) for x, y in ((a.indptr, b.indptr), (a.indices, b.indices), (a.data, b.data))
    )
