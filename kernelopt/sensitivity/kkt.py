"""The linear system of a problem's optimality conditions, with θ in the span of a factor and all else sparse.

With u = Bw, t = ‖wM − w₀‖ and multipliers μ = g_t of ‖wM − w₀‖ ≤ t, the conditions are

    Bᵀg_u + Σⱼ (μⱼ/tⱼ) (wMⱼ − w₀ⱼ)Mⱼᵀ = 0,   g = 0 on other columns,   h(x) = 0,     g = ∇f(x) + Jᵀζ,

and their derivative is symmetric:

    [Σⱼ (μⱼ/tⱼ) · MⱼMⱼᵀ + SᵀHS   SᵀJᵀ]        S = [B; D; 1],  D the gradients of t in w,
    [JS                           0   ],       H without μⱼ/tⱼ at tⱼ.

Auxiliary columns and rows fall apart into many small blocks, which are eliminated first; θ and what couples many rows
remain, as one dense matrix. A slight regularization makes each block regular, and refinement removes its effect.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from kernelopt.errors import KernelOptError
from kernelopt.factorization import memory
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array, Ints

# Entries of other columns and rows that a column or row may meet, and still be eliminated as part of a block. One that
# meets more would join many blocks to one; it becomes a row of the dense matrix.
MEETS = 12
SLIGHT = 1e-9  # the regularization, relative to the natural units of blocks; larger values take more refinement
PASSES = 3  # over columns and rows, for units in which their largest entries are about 1
STEPS = 30  # of refinement: each reduces the residual by orders of magnitude where the matrix is regular
# Where the right-hand side is not in the range of a singular matrix, a part of it stays. Refinement ends if a step
# from the FEW-th on leaves more than FLAT of the residual; the rest has converged by then.
FEW, FLAT = 3, 0.9
EXACT = 1e-13  # the residual, relative to the right-hand side, at which refinement ends


class Length(NamedTuple):
    """t = ‖wM − w₀‖ for the θ with number `theta`: the column of t, MMᵀ, w₀Mᵀ, the value of t, and the weight of ½t².

    The weight is μ/t, its limit at t = 0.
    """

    theta: int
    column: int
    square: Array
    center: Array
    t: float
    weight: float


class Center(NamedTuple):
    """w₀ of the f₀ in a norm ‖θM − f₀‖, and the norm of what of f₀ is outside of the factor's span."""

    w: Array
    rest: float


class Span(NamedTuple):
    """θ in the span of a factor: B with u = Bw for the columns of u (n, K), w (r, K), and centers by number of norm."""

    B: Array
    columns: Ints
    w: Array
    centers: dict[int, Center]

    def center(self, norm: int, M: Array) -> Array:
        """w₀, (r, columns of M); 0 where the norm has no f₀."""
        return self.centers[norm].w if norm in self.centers else np.zeros((len(self.w), M.shape[1]))

    def image(self, norm: int, M: Array) -> tuple[Array, float]:
        """wM − w₀, and the norm ‖θM − f₀‖."""
        found = self.w @ M - self.center(norm, M)
        rest = self.centers[norm].rest if norm in self.centers else 0.0
        return found, float(np.hypot(np.linalg.norm(found), rest))


class Move(NamedTuple):
    """A change, or a residual: of each w, of x (zero on u and t), and of the equations."""

    w: tuple[Array, ...]
    x: Array
    zeta: Array


SINGULAR = (
    "Expected an optimum at which the optimality conditions have a regular derivative; their matrix is singular, as "
    "where equal rows have several kinks at once. Leave such rows out."
)


@dataclass(frozen=True, eq=False)
class System:
    """The matrix above at a point: H and J of the equations, the spans of all θ and their norms."""

    H: sp.csc_array
    J: sp.csr_array
    spans: tuple[Span, ...]
    norms: tuple[Length, ...]

    @cached_property
    def linked(self) -> Ints:
        parts = [span.columns.ravel(order="F") for span in self.spans]
        return np.concatenate([np.arange(0), *parts, [norm.column for norm in self.norms]]).astype(int)

    @cached_property
    def others(self) -> Ints:
        return np.setdiff1d(np.arange(self.H.shape[0]), self.linked)

    @cached_property
    def directions(self) -> list[Array]:
        """The gradient of each t in w, (r, K); 0 where θ = 0."""
        return [
            (self.spans[n.theta].w @ n.square - n.center) / n.t if n.t > 0 else np.zeros_like(self.spans[n.theta].w)
            for n in self.norms
        ]

    @cached_property
    def weights(self) -> list[Array]:
        """Σⱼ (μⱼ/tⱼ)MⱼMⱼᵀ for each θ, (K, K)."""
        found = [np.zeros((span.w.shape[1], span.w.shape[1])) for span in self.spans]
        for n in self.norms:
            found[n.theta] += n.weight * n.square
        return found

    @cached_property
    def curvature(self) -> sp.csc_array:
        """H with −μⱼ/tⱼ at tⱼ, the part of the norm's curvature along w."""
        d = np.zeros(self.H.shape[0])
        for n in self.norms:
            d[n.column] -= n.weight if n.t > 0 else 0.0
        return sp.csc_array(self.H + sp.diags_array(d))

    @cached_property
    def _J_back(self) -> sp.csr_array:
        """Jᵀ, made once."""
        return sp.csr_array(self.J.T)

    def placed(self, w: tuple[Array, ...], x: Array) -> Array:
        """x with the u and t that belong to w."""
        x = x.copy()
        for span, part in zip(self.spans, w, strict=True):
            x[span.columns] = span.B @ part
        for n, d in zip(self.norms, self.directions, strict=True):
            x[n.column] = float(np.sum(d * w[n.theta]))
        return x

    def gathered(self, g: Array) -> tuple[Array, ...]:
        """Sᵀg: the parts of a gradient in x that belong to each w."""
        found = [span.B.T @ g[span.columns] for span in self.spans]
        for n, d in zip(self.norms, self.directions, strict=True):
            found[n.theta] = found[n.theta] + g[n.column] * d
        return tuple(found)

    def times(self, move: Move) -> Move:
        """The matrix times a move."""
        x = self.placed(move.w, move.x)
        g = self.curvature @ x + self._J_back @ move.zeta
        w = tuple(a + part @ N for a, part, N in zip(self.gathered(g), move.w, self.weights, strict=True))
        g[self.linked] = 0.0
        return Move(w, g, self.J @ x)

    def solve(self, right: Move) -> tuple[Move, float]:
        """The solution and the norm of its residual, relative to the right-hand side, with columns, equations and the
        objective in units of predictions and of ‖θ‖²."""
        scaled, c, r, kappa = self._in_units
        w = tuple(a / kappa for a in right.w)
        found, residual = scaled._refined(Move(w, c * right.x / kappa, r * right.zeta))
        return Move(found.w, c * found.x, kappa * r * found.zeta), residual

    def as_move(self, left: Move) -> Move:
        """What a solution leaves of a right-hand side, as a move: it is orthogonal to the range in units of columns."""
        c = self._in_units[1]
        return left._replace(x=c * c * left.x)

    @cached_property
    def _in_units(self) -> tuple[System, Array, Array, float]:
        """The system for x/c, rζ/κ and the objective divided by κ, with these factors.

        Columns that are no predictions have entries of at most 1 in rows of that size: a column of data in large units
        would otherwise make θ's part of its rows, and what the regularization leaves of it, small. It is 1 on u and t.
        """
        c, r, own, J = np.ones(self.H.shape[0]), np.ones(self.J.shape[0]), self.others, abs(sp.csr_array(self.J))
        for _ in range(PASSES if J.nnz else 0):
            scaled = sp.csc_array(sp.diags_array(r) @ J @ sp.diags_array(c))
            largest = np.asarray(scaled.max(axis=0).todense()).ravel()[own]
            c[own] /= np.where(largest > 0, largest, 1.0)
            rows = sp.csr_array(sp.diags_array(r) @ J @ sp.diags_array(c)).max(axis=1)
            largest = np.asarray(rows.todense()).ravel()
            r /= np.where(largest > 0, largest, 1.0)
        kappa = _units(self)[0]
        C = sp.diags_array(c)
        norms = tuple(n._replace(weight=n.weight / kappa) for n in self.norms)
        H, scaled = sp.csc_array(C @ self.H @ C / kappa), sp.csr_array(sp.diags_array(r) @ self.J @ C)
        return replace(self, H=H, J=scaled, norms=norms), c, r, kappa

    @cached_property
    def with_unit_rows(self) -> tuple[System, Array]:
        """The system with equations divided by the norms of their gradients, and these factors.

        The regularization is then as slight for equations that are stated in small units.
        """
        norms = np.sqrt(np.asarray(self.J.multiply(self.J).sum(axis=1)).ravel())
        d = 1 / np.where(norms > 0, norms, 1.0)
        return replace(self, J=sp.csr_array(sp.diags_array(d) @ self.J)), d

    def _refined(self, right: Move) -> tuple[Move, float]:
        size = _size(right)
        found = Move(tuple(np.zeros_like(a) for a in right.w), np.zeros_like(right.x), np.zeros_like(right.zeta))
        if size == 0:
            return found, 0.0
        left, best = right, (np.inf, found)
        for number in range(1, STEPS + 1):
            step = self._nearly(left)
            found = Move(
                tuple(a + b for a, b in zip(found.w, step.w, strict=True)), found.x + step.x, found.zeta + step.zeta
            )
            image = self.times(found)
            left = Move(
                tuple(a - b for a, b in zip(right.w, image.w, strict=True)), right.x - image.x, right.zeta - image.zeta
            )
            residual = _size(left) / size
            if not residual < best[0]:
                break
            flat = number >= FEW and residual > FLAT * best[0]
            best = (residual, found)
            if residual <= EXACT or flat:
                break
        return best[1], float(best[0])

    # ---------------------------------------------------------------- the regularized matrix

    @cached_property
    def _blocks(self) -> _Blocks:
        return _Blocks.of(self)

    @cached_property
    def _factor(self) -> tuple[Array, Array]:
        """The dense matrix that remains, by its LU factors."""
        blocks, count = self._blocks, len(self._blocks.shared)
        sizes = [span.w.size for span in self.spans]
        total = sum(sizes) + count
        memory.require(24 * total**2, "The system of derivatives", None)
        S = self._spread
        dense = np.zeros((total, total))
        inner = S.T @ (blocks.Sigma @ S) if total else dense
        dense += inner
        at = 0
        for span, N in zip(self.spans, self.weights, strict=True):
            r = span.w.shape[0]
            for i in range(len(N)):
                for j in range(len(N)):
                    rows, columns = at + i * r + np.arange(r), at + j * r + np.arange(r)
                    dense[rows, columns] += N[i, j]
            at += span.w.size
        if not total:
            return dense, np.arange(0)
        factor, pivots, info = sl.lapack.dgetrf(dense)  # `lu_factor` would warn of a singular matrix
        if info > 0:
            raise KernelOptError(SINGULAR)
        return factor, pivots

    @cached_property
    def _spread(self) -> Array:
        """The map from (each w in Fortran order, shared unknowns) to (u, t, shared unknowns)."""
        count, n = len(self._blocks.shared), len(self.linked)
        total = sum(span.w.size for span in self.spans) + count
        memory.require(16 * (n + count) * total, "The system of derivatives", None)
        S = np.zeros((n + count, total))
        row = column = 0
        starts = []
        for span in self.spans:
            starts.append(column)
            n_rows, r = span.B.shape
            for _ in range(span.w.shape[1]):
                S[row : row + n_rows, column : column + r] = span.B
                row, column = row + n_rows, column + r
        for norm, d in zip(self.norms, self.directions, strict=True):
            S[row, starts[norm.theta] : starts[norm.theta] + d.size] = d.ravel(order="F")
            row += 1
        S[row:, column:] = np.eye(count)
        return S

    def _nearly(self, right: Move) -> Move:
        """The solution of the regularized system."""
        blocks, S = self._blocks, self._spread
        local = np.concatenate([right.x, right.zeta])[blocks.local]
        eliminated = blocks.inverse @ local
        shared = np.concatenate([right.x, right.zeta])[blocks.shared]
        outer = np.concatenate([np.zeros(len(self.linked)), shared]) - blocks.coupling_back @ eliminated
        rhs = S.T @ outer
        at = 0
        for a in right.w:
            rhs[at : at + a.size] += a.ravel(order="F")
            at += a.size
        found = sl.lu_solve(self._factor, rhs, check_finite=False) if len(rhs) else rhs
        outer = S @ found
        inner = eliminated - blocks.inverse @ (blocks.coupling @ outer)
        n = self.H.shape[0]
        both = np.zeros(n + self.J.shape[0])
        both[blocks.local] = inner
        both[blocks.shared] = outer[len(self.linked) :]
        w, at = [], 0
        for span in self.spans:
            w.append(found[at : at + span.w.size].reshape(span.w.shape, order="F"))
            at += span.w.size
        return Move(tuple(w), both[:n], both[n:])


@dataclass(frozen=True, eq=False)
class _Blocks:
    """The elimination of local columns and rows.

    local, shared : numbers of columns of x, then of rows, in both; inverse : of the block-diagonal matrix of the local
    ones; coupling : its rows by (u, t, shared), and the transposed matrix; Sigma : what remains for (u, t, shared)
    """

    local: Ints
    shared: Ints
    inverse: sp.csr_array
    coupling: sp.csr_array
    coupling_back: sp.csr_array
    Sigma: sp.csr_array

    @classmethod
    def of(cls, system: System) -> _Blocks:
        n, k = system.H.shape[0], system.J.shape[0]
        K = sp.csr_array(sp.block_array([[system.curvature, system.J.T], [system.J, sp.csr_array((k, k))]]))
        inside = np.zeros(n + k, dtype=bool)
        inside[system.others] = inside[n:] = True
        numbers = np.flatnonzero(inside)
        degree = np.diff(sp.csr_array(K[numbers][:, numbers]).indptr)
        shared, local = numbers[degree > MEETS], numbers[degree <= MEETS]
        primal, dual = _units(system)
        slight = np.concatenate([np.full(n, SLIGHT * primal), np.full(k, -SLIGHT * dual)])
        inverse = _inverse(sp.csr_array(K[local][:, local] + sp.diags_array(slight[local])))
        outer = np.concatenate([system.linked, shared])
        coupling = sp.csr_array(K[local][:, outer])
        regular = np.concatenate([np.zeros(len(system.linked)), slight[shared]])
        back = sp.csr_array(coupling.T)
        Sigma = K[outer][:, outer] + sp.diags_array(regular) - back @ (inverse @ coupling)
        return cls(local, shared, inverse, coupling, back, sp.csr_array(Sigma))


def _units(system: System) -> tuple[float, float]:
    """Natural sizes of curvature and of compliance: those of ‖θ‖² seen by a prediction."""
    sizes = [float(np.mean(np.sum(span.B**2, axis=1))) for span in system.spans if span.B.size]
    weights = [float(np.trace(N)) / len(N) for N in system.weights if np.trace(N) > 0]
    q, mu = (max(sizes, default=0.0) or 1.0), (max(weights, default=0.0) or 1.0)
    return mu / q, q / mu


def _inverse(K: sp.csr_array) -> sp.csr_array:
    """The inverse of a block-diagonal matrix in any order."""
    count, owner = connected_components(K, directed=False)
    if not count:
        return K
    order = np.argsort(owner, kind="stable")
    sizes = np.bincount(owner, minlength=count)
    starts = np.cumsum([0, *sizes[:-1]])
    place = np.empty(len(owner), dtype=int)
    place[order] = np.arange(len(owner)) - np.repeat(starts, sizes)
    entries = K.tocoo()
    i, j = entries.coords
    rows, columns, values = [], [], []
    for size in np.unique(sizes):
        chosen = np.flatnonzero(sizes == size)
        number = np.full(count, -1)
        number[chosen] = np.arange(len(chosen))
        blocks = np.zeros((len(chosen), size, size))
        here = number[owner[i]] >= 0
        np.add.at(blocks, (number[owner[i[here]]], place[i[here]], place[j[here]]), entries.data[here])
        try:
            inverted = np.linalg.inv(blocks)
        except np.linalg.LinAlgError as error:
            raise KernelOptError(SINGULAR) from error
        members = order[starts[chosen][:, None] + np.arange(size)]
        rows.append(np.repeat(members, size, axis=1).ravel())
        columns.append(np.tile(members, (1, size)).ravel())
        values.append(inverted.ravel())
    return sp.csr_array((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=K.shape)


def _size(move: Move) -> float:
    return float(np.sqrt(sum(float(np.sum(a**2)) for a in move.w) + move.x @ move.x + move.zeta @ move.zeta))
