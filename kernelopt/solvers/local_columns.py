"""Systems of structured problems in which most y stand in few rows each, where they meet few other y.

With l those, few of which meet but in long rows of E or F, and g the other y and z = w(EBv + Fy) of each long row:

    R v + BᵀKBv + BᵀDg = r_v − BᵀMd⁻¹r_l,   DᵀBv + Sg = r_g − Gd⁻¹r_l,   l = d⁻¹(r_l − MᵀBv − Gᵀg)

with d the block diagonal FᵀWF of l, M = EᵀWF_l, K = EᵀWE − Md⁻¹Mᵀ, which is as sparse as E, and G what l has in the
rows of g. W is 0 in long rows.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from kernelopt.factorization.tall import TallMatrix
from kernelopt.support.long_rows import are_long
from kernelopt.support.sparse import is_diagonal
from kernelopt.support.types import Array, Ints

FEW = 200  # unknowns g up to which they make a dense border
ROWS = 12  # with a weight, in which an entry of l may stand
WIDEST = 4  # entries of l that may meet, as the bound of a loss and that of its excess over a quantile
# Columns of B times those of F from which this is faster than a sparse factor: 300 rows with a variable each.
LEAST = 1e5
JITTER = 1e-14  # relative to the diagonal of FᵀWF, which is 0 for a y that no curved row holds

LinearMap = Callable[[Array], Array]


def system(  # noqa: PLR0917
    blocks: tuple[TallMatrix, ...], E: sp.csr_array, F: sp.csr_array, weights: Array, ridge: Array,
    factored: Callable[[Array], LinearMap],
) -> LinearMap | None:  # fmt: skip
    """The map r ↦ (v, y); None for small problems, and where there are many unknowns beside local ones.

    factored : from BᵀKB to the map r ↦ (R + BᵀKB)⁻¹r
    """
    if F.shape[1] * sum(B.shape[1] for B in blocks) < LEAST:
        return None
    long = np.flatnonzero((are_long(F) | are_long(E)) & (weights > 0))
    short = weights.copy()
    short[long] = 0.0
    W = sp.diags_array(short)
    WF = sp.csr_array(W @ F)
    T = sp.csc_array(F.T @ WF)
    diagonal = T.diagonal() * (1 + JITTER) + ridge
    local = (np.bincount(WF.indices, minlength=F.shape[1]) <= ROWS) & (diagonal > 0)
    local[_connected(T, local)] = False
    rest, own = np.flatnonzero(~local), np.flatnonzero(local)
    if len(rest) + len(long) > FEW:
        return None
    inverse, whole = _inverse(sp.csc_array(T[own][:, own]), diagonal[own]), sp.csc_array(E.T @ WF)
    M = sp.csr_array(whole[:, own])
    scaled, back = sp.csr_array(M @ inverse), sp.csr_array(M.T)
    K = sp.csr_array(sp.csr_array(E.T @ (W @ E)) - scaled @ back)
    G = sp.csr_array(sp.vstack([T[rest][:, own], F[long][:, own]]))
    inner = sp.block_array([[T[rest][:, rest], F[long][:, rest].T], [F[long][:, rest], None]], format="csr")
    S = inner.toarray() - (G @ inverse @ G.T).toarray()
    S[np.diag_indices(len(rest))] += diagonal[rest] - T.diagonal()[rest]
    at = len(rest) + np.arange(len(long))
    S[at, at] -= 1 / weights[long]
    D = sp.hstack([whole[:, rest], E[long].T]) - scaled @ G.T
    starts = np.cumsum([0, *map(len, blocks)])
    of_v = factored(_gram(blocks, starts, K))
    border = _back(blocks, starts, D.toarray())
    moved = of_v(border) if border.size else border
    small = sl.lu_factor(S - border.T @ moved, check_finite=False) if len(S) else None
    p = border.shape[0]

    def solve(r: Array) -> Array:
        of_l = inverse @ r[p:][own]
        top = r[:p] - _back(blocks, starts, M @ of_l)
        right = np.concatenate([r[p:][rest], np.zeros((len(long), *r.shape[1:]))]) - G @ of_l
        v = of_v(top)
        g = right if small is None else sl.lu_solve(small, right - border.T @ v, check_finite=False)
        v = v - moved @ g
        y = np.zeros((len(diagonal), *r.shape[1:]))
        y[rest] = g[: len(rest)]
        y[own] = of_l - inverse @ (back @ _forth(blocks, v) + G.T @ g)
        return np.concatenate([v, y])

    return solve


def _connected(T: sp.csc_array, among: Array) -> Ints:
    """Those of some columns that T connects, directly or by others of them, with WIDEST others or more."""
    some = np.flatnonzero(among)
    _, labels = connected_components(T[some][:, some], directed=False)
    return some[np.bincount(labels)[labels] > WIDEST]


def _inverse(T: sp.csc_array, diagonal: Array) -> sp.csr_array:
    """The inverse of a matrix in which few columns each are connected, with another diagonal."""
    T = sp.csc_array(T + sp.diags_array(diagonal - T.diagonal()))
    if is_diagonal(T):
        return sp.csr_array(sp.diags_array(1 / diagonal))
    _, labels = connected_components(T, directed=False)
    counts, order = np.bincount(labels), np.argsort(labels, kind="stable")
    first, parts = np.cumsum(counts) - counts, list[tuple[Array, Ints, Ints]]()
    for k in np.unique(counts):
        members = order[first[counts == k][:, None] + np.arange(k)]
        i, j = np.repeat(members, k, axis=1).ravel(), np.tile(members, (1, k)).ravel()
        blocks = np.linalg.inv(np.asarray(T[i, j]).reshape(-1, k, k))
        parts.append((blocks.ravel(), i, j))
    values, i, j = (np.concatenate(part) for part in zip(*parts, strict=True))
    return sp.csr_array((values, (i, j)), shape=T.shape)


def _gram(blocks: tuple[TallMatrix, ...], starts: Ints, K: sp.csr_array) -> Array:
    """BᵀKB for all blocks."""
    ends = np.cumsum([0, *(B.shape[1] for B in blocks)])
    H = np.zeros((ends[-1], ends[-1]))
    for k, B in enumerate(blocks):
        for j, other in enumerate(blocks[: k + 1]):
            part = sp.csr_array(K[starts[k] : starts[k + 1], starts[j] : starts[j + 1]])
            here = slice(ends[k], ends[k + 1]), slice(ends[j], ends[j + 1])
            if not part.nnz:
                continue
            if part.shape[0] == part.shape[1] and is_diagonal(part):
                H[here] = B.gram(part.diagonal()) if j == k else B.cross(other, part.diagonal())
            else:
                H[here] = B.squares(part) if j == k else B.connected(other, part)
            H[here[::-1]] = H[here].T
    return H


def _back(blocks: tuple[TallMatrix, ...], starts: Ints, d: Array) -> Array:
    """All Bₖᵀdₖ."""
    return np.concatenate([np.zeros((0, *d.shape[1:])), *(B.adjoint(d[a:b]) for B, (a, b) in _parts(blocks, starts))])


def _forth(blocks: tuple[TallMatrix, ...], v: Array) -> Array:
    """All Bₖvₖ."""
    ends = np.cumsum([0, *(B.shape[1] for B in blocks)])
    return np.concatenate([np.zeros((0, *v.shape[1:])), *(B @ v[a:b] for B, (a, b) in _parts(blocks, ends))])


def _parts(blocks: tuple[TallMatrix, ...], ends: Ints) -> list[tuple[TallMatrix, tuple[int, int]]]:
    return list(zip(blocks, pairwise(ends.tolist()), strict=True))
