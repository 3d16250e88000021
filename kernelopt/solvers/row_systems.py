"""Linear systems of the method of multipliers, (R + D + Cᵀ(H + ZTZᵀ)C + UTUᵀ + ridge)x = r with C = [EB, F].

Entries of y that meet no other one of them are eliminated first, as bounds of functions are. What remains for v is
R + D + BᵀKB with a sparse K, and takes the least of

    rows      K = GᵀG with f rows of G, fewer than columns of B:  f × f, with entries of BBᵀ, where R + D is regular
    alike     K = W ⊗ I, the same for all rows:  one eigendecomposition of BᵀB for all systems
    gradients K outputs of one B:  conjugate gradients, preconditioned by R + D + Bᵀ diag(tr Kᵢ/K) B, r × r, of this
              system or of an earlier one
    blocks    K outputs of one B that K couples row by row:  see `row_blocks`
    columns   Cholesky

Blocks and columns also take problems in which conjugate gradients took too many steps once.

Small problems take one dense matrix for all.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from kernelopt.solvers import row_blocks
from kernelopt.solvers.row_gradients import by_gradients
from kernelopt.solvers.row_multipliers import Curvature, OfLengths
from kernelopt.solvers.row_problem import RowProblem
from kernelopt.solvers.row_reduction import (
    JITTER,
    WIDEST,
    Products,
    Reduced,
    Solver,
    factored,
    joined,
    reduced,
    squared,
    times_penalty,
)
from kernelopt.support.sparse import is_diagonal, squares
from kernelopt.support.types import Array

# Operations up to which a system is one dense matrix, rows·columns² for all of C with its zeros: fewer take less time
# than the steps of the other ways.
WHOLE = 3e7
# Rows of G, relative to the columns of all B, up to which systems are solved in rows: f³/3 + f²·(entries of G) against
# p³/3 and a product BᵀKB.
FEW = 0.7
# Columns of all B from which several outputs of one B take conjugate gradients; a Cholesky factor of fewer is as fast.
LARGE = 600
POSITIVE = 1e-12  # relative to the largest eigenvalue of a part of K: smaller ones are rounding


def solver(products: Products, found: Curvature, lengths: OfLengths, ridge: Array) -> Solver:
    """The map r ↦ x, for r (p + q,). Raises LinAlgError where a matrix is not positive definite."""
    problem, R = products.problem, np.diag(products.problem.R) + lengths.W
    if len(problem.shift) * (problem.p + problem.q) ** 2 <= WHOLE:
        return _whole(products, found, lengths, R, ridge)
    inner = reduced(problem, found.H, ridge)
    columns, T = _columns(problem, found, lengths)
    of_v = _alike(products, inner, R) or _in_rows(products, inner, R)

    def directly() -> Solver:
        found = of_v or _in_blocks(products, inner, R) or _in_columns(products, inner, R)
        return _with_columns(_bordered(problem, inner, found), columns, T)

    if of_v is not None or not products.is_one or problem.p <= LARGE or products.is_stiff:
        return directly()

    def solve(r: Array) -> Array:
        is_known = products.conditioner is not None
        x = by_gradients(products, inner, R, columns, T)(r)
        if x is None and is_known:
            x = by_gradients(products, inner, R, columns, T)(r)
        if x is None:
            products.is_stiff = True
            return directly()(r)
        return x

    return solve


def _whole(products: Products, found: Curvature, lengths: OfLengths, R: Array, ridge: Array) -> Solver:
    """Without the columns of long functions one dense matrix, by Cholesky."""
    problem, C = products.problem, products.whole
    M = _added(problem, C.T @ (found.H @ C), R)
    at = np.arange(problem.p, problem.p + problem.q)
    M[at, at] += ridge
    columns, T = _columns(problem, found, lengths)
    return _with_columns(factored(M), columns, T)


def _columns(problem: RowProblem, found: Curvature, lengths: OfLengths) -> tuple[Array, Array]:
    """The columns of CᵀZ and of U, and their T."""
    parts, cores = [np.zeros((problem.p + problem.q, 0))], []
    if found.Z.shape[1]:
        parts.append(problem.adjoint(found.Z))
        cores.append(found.T)
    if lengths.U.shape[1]:
        parts.append(lengths.U)
        cores.append(lengths.T)
    return np.hstack(parts), sl.block_diag(*cores) if cores else np.zeros((0, 0))


def _with_columns(base: Solver, columns: Array, T: Array) -> Solver:
    """(M + YTYᵀ)⁻¹ = M⁻¹ − M⁻¹Y(I + TYᵀM⁻¹Y)⁻¹TYᵀM⁻¹."""
    if not columns.shape[1]:
        return base
    moved = base(columns)
    small = np.eye(len(T)) + T @ (columns.T @ moved)

    def solve(r: Array) -> Array:
        x = base(r)
        return np.asarray(x - moved @ np.linalg.solve(small, T @ (columns.T @ x)))

    return solve


def _bordered(problem: RowProblem, inner: Reduced, of_v: Solver) -> Solver:
    """The system of v and y from that of v: the Schur complement of the y that are left, then the local ones."""
    p, border = problem.p, problem.lifted(inner.border)
    moved = of_v(border) if len(inner.rest) else border
    of_rest = _inverse(inner.corner - border.T @ moved)

    def solve(r: Array) -> Array:
        top, bottom = r[:p], r[p:]
        local = (bottom[inner.local].T / inner.diagonal).T
        right = bottom[inner.rest] - inner.of_rest @ local
        v = of_v(top - problem.lifted(inner.of_d @ local) if len(inner.local) else top)
        rest = of_rest @ (right - border.T @ v)
        v = v - moved @ rest
        return joined(problem, inner, v, rest, local)

    return solve


def _inverse(S: Array) -> Array:
    """The inverse of a symmetric matrix, with eigenvalues below rounding raised to it."""
    if not len(S):
        return S
    values, V = np.linalg.eigh(0.5 * (S + S.T))
    return np.asarray((V / np.maximum(values, JITTER * max(float(np.abs(values).max()), 1e-300))) @ V.T)


def _in_blocks(products: Products, inner: Reduced, R: Array) -> Solver | None:
    """By `row_blocks`; None where K couples different rows, or columns take less time."""
    problem = products.problem
    count = len(problem.blocks)
    if not products.is_one or not problem.p or np.any(R[0, 0] * np.eye(count) != R):
        return None
    parts, B = row_blocks.split(inner.K, count), problem.blocks[0]
    if parts is None:
        return None
    in_columns = problem.p**2 * len(B) / 2 + problem.p**3 / 6
    return row_blocks.solver(parts, B, R[0, 0]) if row_blocks.cost(parts, *B.shape) < in_columns else None


def _in_columns(products: Products, inner: Reduced, R: Array) -> Solver:
    """R + BᵀKB, by Cholesky, with the BᵀKB of the system before where K is the same, as of squares."""
    problem = products.problem
    if not problem.p:
        return lambda r: r
    K = inner.H if not len(inner.local) else inner.K
    if products.before is None or not _are_equal(products.before[0], K):
        products.before = K, _of_columns(products, inner)
    return factored(_added(problem, products.before[1].copy(), R))


def _are_equal(first: sp.csr_array, second: sp.csr_array) -> bool:
    return all(np.array_equal(getattr(first, of), getattr(second, of)) for of in ("data", "indices", "indptr"))


def _of_columns(products: Products, inner: Reduced) -> Array:
    """BᵀKB; for sums of many predictions with a diagonal H from the products EB."""
    problem = products.problem
    if products.is_mixed and inner.root is not None:
        X = np.sqrt(np.maximum(inner.H.diagonal(), 0.0))[:, None] * products.whole[:, : problem.p]
        return np.asarray(X.T @ X)
    K, M = inner.K, np.zeros((problem.p, problem.p))
    for k, B in enumerate(problem.blocks):
        for j, other in enumerate(problem.blocks[: k + 1]):
            part = sp.csr_array(K[problem.starts[k] : problem.starts[k + 1], problem.starts[j] : problem.starts[j + 1]])
            here = slice(problem.ends[k], problem.ends[k + 1]), slice(problem.ends[j], problem.ends[j + 1])
            if part.nnz:
                if j < k:
                    M[here] = B.T @ (part @ other)
                else:
                    M[here] = squared(B, part.diagonal()) if is_diagonal(part) else squares(B, part)
            if j < k:
                M[here[1], here[0]] = M[here].T
    return M


def _added(problem: RowProblem, M: Array, R: Array) -> Array:
    """M with R ⊗ I for pairs of blocks added to its first rows and columns."""
    ends = [*pairwise(problem.ends)]
    for k, j in zip(*np.nonzero(R), strict=True):
        (a, b), (c, d) = ends[k], ends[j]
        M[a:b, c:d] += R[k, j] * np.eye(b - a)
    return M


def _in_rows(products: Products, inner: Reduced, R: Array) -> Solver | None:
    """(R + XᵀX)⁻¹ = R⁻¹ − R⁻¹Xᵀ(I + XR⁻¹Xᵀ)⁻¹XR⁻¹ with X = GB, where G has few rows and R > 0."""
    problem = products.problem
    if not problem.p:
        return None
    values = np.linalg.eigvalsh(R)
    if not values[0] > POSITIVE * values[-1] > 0:
        return None
    most = FEW * problem.p
    G = None if products.is_mixed else _root(inner.K, most)
    by_rows = G is None and inner.root is not None and inner.root.shape[0] <= most
    G = inner.root if by_rows else G
    if G is None:
        return None
    f, other = G.shape[0], np.linalg.inv(R)
    if not f:
        return lambda r: times_penalty(problem, other, r)
    M = np.eye(f)
    weights, n = np.diag(other), problem.starts[1]
    if by_rows and not (other - np.diag(weights)).any():
        if products.is_sum and len(weights) * n**2 <= f**2 * problem.p:
            part, grams = sp.csr_array(G[:, :n]), np.zeros((n, n))
            for k, w in enumerate(weights.tolist()):
                grams += w * products.of_rows(k)
            return _by_rows(problem, other, G, M + part @ (part @ grams).T)
        if products.is_mixed:
            h = inner.H.diagonal()
            X = np.sqrt(h[h > 0])[:, None] * products.whole[h > 0, : problem.p]
            return _by_rows(problem, other, G, M + (X * np.repeat(weights, np.diff(problem.ends))) @ X.T)
    parts = [sp.csr_array(G[:, a:b]) for a, b in pairwise(problem.starts)]
    for k, part in enumerate(parts):
        moved = part @ products.of_rows(k) if part.nnz and other[k].any() else np.zeros(0)
        for j, second in enumerate(parts):
            if part.nnz and second.nnz and other[k, j]:
                M += other[k, j] * (second @ moved.T).T
    return _by_rows(problem, other, G, M)


def _by_rows(problem: RowProblem, other: Array, G: sp.csr_array, M: Array) -> Solver:
    """R⁻¹ − R⁻¹XᵀM⁻¹XR⁻¹, with R⁻¹ given."""
    inverse = factored(M)

    def solve(r: Array) -> Array:
        x = times_penalty(problem, other, r)
        return x - times_penalty(problem, other, problem.lifted(G.T @ inverse(G @ problem.predictions(x))))

    return solve


def _root(K: sp.csr_array, most: float) -> sp.csr_array | None:
    """G with K = GᵀG and at most `most` rows, part by part of what K connects; None where there is none."""
    n = K.shape[0]
    if is_diagonal(K):
        w = K.diagonal()
        busy = np.flatnonzero(w > 0)
        if len(busy) > most:
            return None
        return sp.csr_array((np.sqrt(w[busy]), (np.arange(len(busy)), busy)), shape=(len(busy), n))
    _, labels = connected_components(K, directed=False)
    counts = np.bincount(labels)
    if counts.max() > WIDEST:
        return None
    order = np.argsort(labels, kind="stable")
    first = np.cumsum(counts) - counts
    values, rows, columns, at = [], [], [], 0
    for k in np.unique(counts):
        members = order[first[counts == k][:, None] + np.arange(k)]
        i, j = np.repeat(members, k, axis=1).ravel(), np.tile(members, (1, k)).ravel()
        part = np.asarray(K[i, j]).reshape(-1, k, k)
        w, V = np.linalg.eigh(part)
        chosen, which = np.nonzero(w > POSITIVE * np.abs(w).max(axis=1, initial=0.0)[:, None])
        at += len(chosen)
        if at > most:
            return None
        rows.append(np.repeat(np.arange(at - len(chosen), at), k))
        columns.append(members[chosen].ravel())
        values.append((np.sqrt(w[chosen, which])[:, None] * V[chosen, :, which]).ravel())
    parts = (np.concatenate(part) if part else np.arange(0) for part in (values, rows, columns))
    data, i, j = parts
    return sp.csr_array((data, (i, j)), shape=(at, n))


def _alike(products: Products, inner: Reduced, R: Array) -> Solver | None:
    """R ⊗ I + W ⊗ BᵀB, where K is W ⊗ I: with eigenvalues λ of BᵀB systems R + λW of the outputs."""
    problem = products.problem
    if not products.is_one or not problem.p:
        return None
    count, n = len(problem.blocks), len(problem.blocks[0])
    W = np.zeros((count, count))
    for k in range(count):
        for j in range(count):
            part = inner.K[k * n : (k + 1) * n, j * n : (j + 1) * n]
            diagonal = part.diagonal()
            if not is_diagonal(part) or np.any(diagonal != diagonal[0]):
                return None
            W[k, j] = diagonal[0]
    values, P = products.eigen
    inverses = np.linalg.inv(R + values[:, None, None] * W)

    def solve(r: Array) -> Array:
        turned = np.einsum("ab,kaj->bkj", P, r.reshape(count, len(P), -1), optimize=True)
        return np.asarray(np.einsum("ab,bkj->kaj", P, inverses @ turned, optimize=True).reshape(r.shape))

    return solve
