"""The links of all θ of a problem in pieces, without multipliers: columns, norms, functions fⱼ, and features."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from scipy.linalg import block_diag

from kernelopt.certificate.claim import Link, Norm
from kernelopt.certificate.gram import CHEAP, FROM_FACTOR, STREAMED, Gram, features_of, gram_of
from kernelopt.certificate.lengths import single
from kernelopt.certificate.multipliers import DUAL_KIND, is_identity
from kernelopt.compiler.canonical_form import PredictionLink
from kernelopt.compiler.representer import Reduction
from kernelopt.factorization import Factor
from kernelopt.kernels import Explicit, Linear
from kernelopt.pieces.form import Pieces
from kernelopt.support.types import Array

EXACT = (Linear, Explicit)  # kernels whose features are given, not computed by a rounded formula


def costly(reduction: Reduction, pieces: Pieces, number: int) -> list[int]:
    """The norms of a θ with a cost or in a constraint; one with a strength of 0 is as if it were not stated."""
    form, S, found = reduction.form, pieces.by_columns, list[int]()
    for j in form.norms_of(form.predictions[number].theta):
        t = int(pieces.columns[form.norms[j].t.id][0])
        signs = set(single(pieces, t).signs.tolist())
        rows = np.array([row for row in S.indices[S.indptr[t] : S.indptr[t + 1]].tolist() if row not in signs])
        for group in pieces.groups if len(rows) else ():
            if group.is_outer and not group.costs.all():
                rows = np.setdiff1d(rows, group.rows[group.costs == 0])
        if pieces.c[t] or len(rows):
            found.append(j)
    return found


def bound(reduction: Reduction, pieces: Pieces, number: int, costly: list[int]) -> Link | None:
    """The link of a θ with norms, with the columns of functions fⱼ; None where these do not bind all outputs in use."""
    link = reduction.form.predictions[number]
    norms, K, n = [reduction.form.norms[j] for j in costly], link.theta.outputs or 1, len(link.rows)
    M = norms[0].right if len(norms) == 1 else np.hstack([norm.right for norm in norms])
    own = np.arange(0) if link.u is None else pieces.columns[link.u.id]
    used = ((pieces.counts[own] > 0) | (pieces.c[own] != 0)).reshape(-1, K, order="F").any(axis=0)
    if not is_identity(M) and np.linalg.matrix_rank(np.hstack([M, np.eye(K)[:, used]])) > np.linalg.matrix_rank(M):
        return None
    stated, at, of_function = list[Norm](), 0, M.shape[1]
    V = np.zeros((n, of_function + sum(len(norm.function_rows) for norm in norms)))
    for norm in norms:
        k, count = norm.right.shape[1], len(norm.function_rows)
        V[norm.function_rows, of_function + np.arange(count)] = 1.0
        of_f, t = slice(of_function, of_function + count), int(pieces.columns[norm.t.id][0])
        stated.append(Norm(t, DUAL_KIND.get(norm.kind, "fro"), norm.right, slice(at, at + k), of_f))
        at, of_function = at + k, of_function + count
    none, columns = np.zeros((V.shape[1], V.shape[1])), own.reshape(-1, K, order="F")
    shares = M if is_identity(M) else np.linalg.pinv(M.T)
    return Link(columns, link.take[: len(own) // K], np.zeros(n), stated, V, none, none, shares)


def partly_bound(reduction: Reduction, pieces: Pieces, number: int, j: int, span: bool) -> tuple[Link, Pieces]:
    """The link of ψ = θM for a norm of θM that does not bind all outputs of θ, and pieces with w = Aψ.

    Further columns w (k for each row of u, in Fortran order) and rows w − uM = 0 tie ψ to u = Aθ, of which nothing else
    remains: θ is as if it had no norm.
    """
    of_theta, free = reduction.form.norms[j], unbound(reduction, pieces, number, span)
    M, u = of_theta.right, free.columns
    k, rows, (m, n) = M.shape[1], len(u), pieces.S.shape
    w = (n + np.arange(rows * k)).reshape(rows, k, order="F")
    of_u = sp.csr_array((np.ones(u.size), (u.ravel(order="F"), np.arange(u.size))), shape=(n, u.size))
    ties = sp.hstack([-sp.kron(M.T, sp.eye_array(rows)) @ of_u.T, sp.eye_array(rows * k)])
    S = sp.csr_array(sp.vstack([sp.hstack([pieces.S, sp.csr_array((m, rows * k))]), ties]))
    none = np.zeros(rows * k)
    extended = replace(
        pieces, n=n + rows * k, c=np.append(pieces.c, none), S=S, s0=np.append(pieces.s0, none),
        equal=np.append(pieces.equal, m + np.arange(rows * k)),
    )  # fmt: skip
    f, count = of_theta.function_rows, len(of_theta.function_rows)
    V, gram = np.zeros((len(free.sizes), k + count)), np.zeros((k + count, k + count))
    V[f, k + np.arange(count)] = 1.0
    t = int(pieces.columns[of_theta.t.id][0])
    norm = Norm(t, DUAL_KIND.get(of_theta.kind, "fro"), np.eye(k), slice(0, k), slice(k, k + count))
    return Link(w, free.take, free.sizes, [norm], V, gram, gram, np.eye(k), free.features, u), extended


def multipliers_of_ties(link: Link, M: Array, g: Array) -> Array:
    """η of the rows w − uM = 0, with g_u = ηMᵀ as nearly as possible."""
    return np.asarray((g[link.loose] @ np.linalg.pinv(M).T).ravel(order="F"))


def has_free_outputs(reduction: Reduction, pieces: Pieces | None, number: int) -> bool:
    """Whether some combination of the outputs in use of a θ has no norm, as far as pieces tell."""
    if pieces is None or not {norm.t.id for norm in reduction.form.norms} <= set(pieces.columns):
        return not reduction.form.norms_of(reduction.form.predictions[number].theta)
    own = costly(reduction, pieces, number)
    return not own or bound(reduction, pieces, number, own) is None


def unbound(reduction: Reduction, pieces: Pieces, number: int, span: bool) -> Link:
    """The link of a θ without a norm, whose Aᵀν must vanish."""
    link, none = reduction.form.predictions[number], np.zeros((0, 0))
    own, K, n = np.arange(0) if link.u is None else pieces.columns[link.u.id], link.theta.outputs or 1, len(link.rows)
    columns, take = own.reshape(-1, K, order="F"), link.take[: len(own) // K]
    V, features = np.zeros((n, 0)), features_within(reduction, number, span)
    return Link(columns, take, np.zeros(n), [], V, none, none, np.zeros((K, 0)), features)


def turned(  # noqa: PLR0917
    link: PredictionLink, factor: Factor, V: Array, gram: Gram, norms: list[Norm], span: bool
) -> tuple[Array, Gram, list[Norm]]:
    """V with nT in place of n where the dual norm is the nuclear norm; T are the right singular vectors of Aᵀn.

    Columns of AᵀnT that belong to singular values of 0 are then small, and so are the errors of their Gram matrix.
    """
    if not any(norm.dual == "nuc" and norm.f.stop == norm.f.start for norm in norms):
        return V, gram, norms
    turned, blocks = [], []
    for norm in norms:
        straight = norm.dual != "nuc" or norm.f.stop > norm.f.start
        G = gram.value[norm.n, norm.n]
        T = np.eye(len(G)) if straight else np.linalg.eigh((G + G.T) / 2)[1]
        turned.append(norm if straight else norm._replace(T=T))
        blocks.append(T)
    V = V @ block_diag(*blocks, np.eye(V.shape[1] - sum(map(len, blocks))))
    way = FROM_FACTOR if span else CHEAP if factor.is_exact and not factor.is_restriction else STREAMED
    return V, gram_of(link, factor, V, way), turned


def features_within(reduction: Reduction, number: int, span: bool) -> Array | None:
    """φ(x) for each row where features are few; B where θ is confined to the factor's span."""
    link = reduction.form.predictions[number]
    factor = reduction.factors[link.theta]
    if span and factor.is_restriction:
        return np.asarray(factor.in_one_array(link.rows).B)
    return free_features(reduction, number)[0]


def free_features(reduction: Reduction, number: int) -> tuple[Array | None, bool]:
    """φ(x) for each row where features are few, and whether these are exact; found once for a factor."""
    link, notes = reduction.form.predictions[number], reduction.form.notes
    factor, name = reduction.factors[link.theta], f"features {number}"
    if name not in notes or notes[name][0] is not factor:
        notes[name] = factor, _free_features(link, factor)
    found: tuple[Array | None, bool] = notes[name][1]
    return found


def _free_features(link: PredictionLink, factor: Factor) -> tuple[Array | None, bool]:
    """φ(x) for each row where features are few, and whether these are exact.

    Each feature is divided by a power of two, a constant one by itself. Of features that agree to 13 digits up to a
    factor, one is kept. Features are exact if all are kept and the kernel computes them without rounding.
    """
    F = features_of(link, factor)
    if F is None:
        return None, True
    largest = F[np.abs(F).argmax(axis=0), np.arange(F.shape[1])]
    F, largest = F[:, largest != 0], largest[largest != 0]
    _, first = np.unique(np.round(F / largest, 13), axis=1, return_index=True)
    exact = len(first) == F.shape[1] and isinstance(link.rows.kernel, EXACT)
    F = np.where((F[:1] == F).all(axis=0), 1.0, np.ldexp(F, 1 - np.frexp(largest)[1]))
    return F[:, np.sort(first)], exact
