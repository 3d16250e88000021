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

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from kernelopt.solvers import row_blocks
from kernelopt.solvers.row_multipliers import Curvature, OfLengths
from kernelopt.solvers.row_problem import RowProblem
from kernelopt.support.properties import cached_property
from kernelopt.support.sparse import is_diagonal, squares
from kernelopt.support.types import Array, Ints

Solver = Callable[[Array], Array]

# Operations up to which a system is one dense matrix, rows·columns² for all of C with its zeros: fewer take less time
# than the steps of the other ways.
WHOLE = 3e7
# Entries of y from which those that meet no other one are eliminated first, and rows in which such a one may stand.
MANY, FEW_ROWS = 30, 12
# Rows of G, relative to the columns of all B, up to which systems are solved in rows: f³/3 + f²·(entries of G) against
# p³/3 and a product BᵀKB.
FEW = 0.7
# Columns of all B from which several outputs of one B take conjugate gradients; a Cholesky factor of fewer is as fast.
LARGE = 600
WIDEST = 12  # predictions that a part of K may connect so that it is factored by itself
POSITIVE = 1e-12  # relative to the largest eigenvalue of a part of K: smaller ones are rounding
# Conjugate gradients end where the residual, measured by the preconditioner, is that share of the first, or after
# MOST steps, which take up to half as long as a Cholesky factor. A smaller share takes more than it saves Newton
# steps.
ENOUGH, MOST = 1e-2, 40
# Steps of one system after which the next one has a preconditioner of its own, which takes as long as 10 to 20 steps.
FRESH = 20
JITTER = 1e-14  # relative to the largest diagonal entry, where a Cholesky factor breaks down; then 100 times that …
TRIES = 5


@dataclass(eq=False)
class Products:
    """What systems of one problem share, made once.

    gram : BBᵀ by the id of B; eigen : (eigenvalues, vectors) of BᵀB; is_stiff : whether conjugate gradients took too
    many steps, as where outputs of some rows are on a sphere, with curvatures that differ by σ
    conditioner : (R + D + Bᵀ diag(…) B)⁻¹ of an earlier system, while it takes few steps
    before : H, or K with local entries of y, and BᵀKB of the last system by columns
    """

    problem: RowProblem
    gram: dict[int, Array] = field(default_factory=dict)
    is_stiff: bool = False
    conditioner: Solver | None = None
    before: tuple[sp.csr_array, Array] | None = None

    def of_rows(self, number: int) -> Array:
        """BₖBₖᵀ."""
        B = self.problem.blocks[number]
        if id(B) not in self.gram:
            self.gram[id(B)] = B @ B.T
        return self.gram[id(B)]

    @cached_property
    def eigen(self) -> tuple[Array, Array]:
        B = self.problem.blocks[0]
        values, vectors = sl.eigh(B.T @ B, check_finite=False)
        return np.maximum(values, 0.0), vectors

    @cached_property
    def whole(self) -> Array:
        """C = [EB, F]."""
        problem, ends = self.problem, [*pairwise(self.problem.starts)]
        parts = [problem.E[:, a:b] @ B for B, (a, b) in zip(problem.blocks, ends, strict=True)]
        return np.hstack([*parts, problem.F.toarray()])

    @cached_property
    def is_mixed(self) -> bool:
        """Whether rows are sums of many predictions, as with a kernel of each column: K then has large blocks."""
        count = len(self.problem.blocks)
        return count > WIDEST and 2 * self.problem.E.nnz >= self.problem.E.shape[0] * count

    @cached_property
    def is_sum(self) -> bool:
        """Whether each row has the same entries for the predictions of all blocks, as of a sum of functions."""
        E, starts = self.problem.E, self.problem.starts
        if len(set(np.diff(starts).tolist())) != 1:
            return False
        first = E[:, : starts[1]]
        return all((E[:, a:b] != first).nnz == 0 for a, b in pairwise(starts))

    @cached_property
    def is_one(self) -> bool:
        """Whether there are several outputs of one B."""
        first, *others = self.problem.blocks
        return bool(others) and all(B is first for B in others)


@dataclass(frozen=True, eq=False)
class Reduced:
    """K for the predictions d, its border for the y that are left (`rest`), and how the `local` ones follow.

    K (n, n), border (n, g) and corner (g, g); of_d (n, l), of_rest (g, l) and their diagonal
    E, H : K is EᵀHE, without what the local ones take off
    """

    E: sp.csr_array
    H: sp.csr_array
    border: Array
    corner: Array
    rest: Ints
    local: Ints
    of_d: sp.csr_array
    of_rest: sp.csr_array
    diagonal: Array

    @cached_property
    def K(self) -> sp.csr_array:
        found = sp.csr_array(self.E.T @ (self.H @ self.E))
        if not len(self.local):
            return found
        return sp.csr_array(found - sp.csr_array(self.of_d @ sp.diags_array(1 / self.diagonal)) @ self.of_d.T)

    @cached_property
    def root(self) -> sp.csr_array | None:
        """G with K = GᵀG, one row for each entry of a diagonal H; None for other H."""
        if len(self.local) or not is_diagonal(self.H):
            return None
        h = self.H.diagonal()
        busy = np.flatnonzero(h > 0)
        return sp.csr_array(sp.diags_array(np.sqrt(h[busy])) @ self.E[busy])


def reduced(problem: RowProblem, H: sp.csr_array, ridge: Array) -> Reduced:
    """[E, F]ᵀH[E, F] + ridge without the local entries of y."""
    HF = H @ problem.F
    of_y, corner = sp.csr_array(problem.E.T @ HF), sp.csr_array(problem.F.T @ HF + sp.diags_array(ridge))
    local = _local(problem, corner)
    rest = np.setdiff1d(np.arange(problem.q), local)
    of_d, of_rest = sp.csr_array(of_y[:, local]), sp.csr_array(corner[rest][:, local])
    diagonal, border, inner = corner.diagonal()[local], of_y[:, rest], corner[rest][:, rest]
    if len(local):
        scaled = sp.csr_array(of_d @ sp.diags_array(1 / diagonal))
        border = border - scaled @ of_rest.T
        inner = inner - of_rest @ sp.diags_array(1 / diagonal) @ of_rest.T
    return Reduced(problem.E, H, border.toarray(), inner.toarray(), rest, local, of_d, of_rest, diagonal)


def _local(problem: RowProblem, corner: sp.csr_array) -> Ints:
    """Entries of y in few rows each that meet no other one of them."""
    if problem.q <= MANY:
        return np.arange(0)
    few = np.flatnonzero(np.diff(sp.csc_array(problem.F).indptr) <= FEW_ROWS)
    inner = sp.coo_array(corner[few][:, few])
    meets = (inner.row != inner.col) & (inner.data != 0)
    return few if not meets.any() else np.arange(0)


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
        x = _gradients(products, inner, R, columns, T)(r)
        if x is None and is_known:
            x = _gradients(products, inner, R, columns, T)(r)
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
    return _with_columns(_factored(M), columns, T)


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
        return _joined(problem, inner, v, rest, local)

    return solve


def _joined(problem: RowProblem, inner: Reduced, v: Array, rest: Array, local: Array) -> Array:
    """x, with the local entries of y that follow from the others."""
    y = np.zeros((problem.q, *v.shape[1:]))
    y[inner.rest] = rest
    if len(inner.local):
        follows = inner.of_d.T @ problem.predictions(v) + inner.of_rest.T @ rest
        y[inner.local] = local - (follows.T / inner.diagonal).T
    return np.concatenate([v, y])


def _inverse(S: Array) -> Array:
    """The inverse of a symmetric matrix, with eigenvalues below rounding raised to it."""
    if not len(S):
        return S
    values, V = np.linalg.eigh(0.5 * (S + S.T))
    return np.asarray((V / np.maximum(values, JITTER * max(float(np.abs(values).max()), 1e-300))) @ V.T)


def _factored(M: Array) -> Solver:
    """M⁻¹ by Cholesky, with a multiple of I added where that breaks down; M is overwritten."""
    size = float(np.abs(np.diag(M)).max(initial=0.0))
    for number in range(TRIES):
        try:
            copy = M.copy() if number < TRIES - 1 else M
            factor = sl.cho_factor(copy, lower=True, overwrite_a=True, check_finite=False)
            return lambda r: np.asarray(sl.cho_solve(factor, r, check_finite=False))
        except np.linalg.LinAlgError:
            M[np.diag_indices_from(M)] += JITTER * 100.0**number * size
    raise np.linalg.LinAlgError("A system is not positive definite.")


def _times(problem: RowProblem, R: Array, v: Array) -> Array:
    """(R ⊗ I)v, where R is a matrix of pairs of blocks."""
    ends = problem.ends
    if not (R - np.diag(np.diag(R))).any():
        return np.asarray((v.T * np.repeat(np.diag(R), np.diff(ends))).T)
    parts = [v[a:b] for a, b in pairwise(ends)]
    found = [[w * part for w, part in zip(row, parts, strict=True) if w] for row in R]
    return np.concatenate([np.sum(row, axis=0) if row else 0 * part for row, part in zip(found, parts, strict=True)])


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
    return _factored(_added(problem, products.before[1].copy(), R))


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
                    M[here] = _squares(B, part.diagonal()) if is_diagonal(part) else squares(B, part)
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


def _squares(B: Array, w: Array) -> Array:
    """Bᵀ diag(w) B for w ≥ 0, from rows with w > 0."""
    busy = np.flatnonzero(w > 0)
    scaled = B[busy] * np.sqrt(w[busy])[:, None]
    return np.asarray(scaled.T @ scaled)


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
        return lambda r: _times(problem, other, r)
    M = np.eye(f)
    if by_rows and products.is_sum and not (other - np.diag(np.diag(other))).any():
        part, grams = sp.csr_array(G[:, : problem.starts[1]]), np.zeros_like(products.of_rows(0))
        for k, w in enumerate(np.diag(other).tolist()):
            grams += w * products.of_rows(k)
        return _by_rows(problem, other, G, M + part @ (part @ grams).T)
    parts = [sp.csr_array(G[:, a:b]) for a, b in pairwise(problem.starts)]
    for k, part in enumerate(parts):
        moved = part @ products.of_rows(k) if part.nnz and other[k].any() else np.zeros(0)
        for j, second in enumerate(parts):
            if part.nnz and second.nnz and other[k, j]:
                M += other[k, j] * (second @ moved.T).T
    return _by_rows(problem, other, G, M)


def _by_rows(problem: RowProblem, other: Array, G: sp.csr_array, M: Array) -> Solver:
    """R⁻¹ − R⁻¹XᵀM⁻¹XR⁻¹, with R⁻¹ given."""
    inverse = _factored(M)

    def solve(r: Array) -> Array:
        x = _times(problem, other, r)
        return x - _times(problem, other, problem.lifted(G.T @ inverse(G @ problem.predictions(x))))

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


def _gradients(
    products: Products, inner: Reduced, R: Array, columns: Array, T: Array
) -> Callable[[Array], Array | None]:
    """Conjugate gradients for v and the y that are left; the local ones follow. None after too many steps."""
    problem = products.problem
    count, B, p = len(problem.blocks), problem.blocks[0], problem.p
    if products.conditioner is None:
        mean = np.maximum(inner.K.diagonal().reshape(count, -1).mean(axis=0), 0.0)
        small = _squares(B, mean)
        small[np.diag_indices_from(small)] += float(np.trace(R)) / count
        products.conditioner = _factored(small)
    one = products.conditioner

    def of_v(r: Array) -> Array:
        side_by_side = np.hstack(list(r.reshape(count, B.shape[1], -1)))
        return one(side_by_side).reshape(B.shape[1], count, -1).swapaxes(0, 1).reshape(r.shape)

    border = problem.lifted(inner.border)
    moved = of_v(border) if len(inner.rest) else border
    floor = ENOUGH * np.diag(inner.corner) if len(inner.rest) else np.zeros(0)
    S = inner.corner - border.T @ moved
    of_rest = _raised(S, floor)
    # The columns of YTYᵀ that belong to local entries of y are rare: they are left to the later Newton steps.
    keep = np.concatenate([np.arange(p), p + inner.rest])
    Y = columns[keep]

    def product(x: Array) -> Array:
        v, rest = x[:p], x[p:]
        d = problem.predictions(v)
        top = _times(problem, R, v) + problem.lifted(inner.K @ d + inner.border @ rest)
        full = np.concatenate([top, inner.border.T @ d + inner.corner @ rest])
        return full + Y @ (T @ (Y.T @ x)) if Y.shape[1] else full

    def conditioned(r: Array) -> Array:
        v = of_v(r[:p])
        rest = of_rest @ (r[p:] - border.T @ v)
        return np.concatenate([v - moved @ rest, rest])

    def solve(r: Array) -> Array | None:
        bottom = r[p:]
        local = bottom[inner.local] / inner.diagonal
        top = r[:p] - problem.lifted(inner.of_d @ local) if len(inner.local) else r[:p]
        right = np.concatenate([top, bottom[inner.rest] - inner.of_rest @ local])
        x, steps = _conjugate(product, conditioned, right, p)
        if steps > FRESH:
            products.conditioner = None
        return None if x is None else _joined(problem, inner, x[:p], x[p:], local)

    return solve


def _raised(S: Array, floor: Array) -> Array:
    """The inverse of S with eigenvalues, in units of the floor, of at least 1."""
    if not len(S):
        return S
    unit = np.sqrt(np.maximum(floor, 1e-300))
    values, V = np.linalg.eigh(0.5 * (S + S.T) / np.outer(unit, unit))
    inner = (V / np.maximum(values, 1.0)) @ V.T
    return np.asarray(inner / np.outer(unit, unit))


def _conjugate(product: Solver, conditioned: Solver, r: Array, p: int) -> tuple[Array | None, int]:
    """Preconditioned conjugate gradients for a positive definite product, with y from p on, and their steps; None after
    MOST of them.

    The residual of y counts by itself, too: what a gradient in y costs a bound is of first order.
    """
    x, left = np.zeros_like(r), r
    z = conditioned(left)
    direction, size = z, float(left @ z)
    first, of_y = size, float(np.linalg.norm(r[p:]))
    for step in range(MOST):
        if size <= ENOUGH**2 * first and np.linalg.norm(left[p:]) <= ENOUGH * of_y:
            return x, step
        moved = product(direction)
        bent = float(direction @ moved)
        if not bent > 0:
            return None, MOST
        x = x + (size / bent) * direction
        left = left - (size / bent) * moved
        z = conditioned(left)
        size, before = float(left @ z), size
        direction = z + (size / before) * direction
    return None, MOST
