"""The parts of the proof of a bound: free columns that vanish, dual cones, and dual norms of Aᵀν, each with rounding.

Nothing here searches for multipliers or repairs them. Every inequality is proven with rounding included. The rows and
columns are those of `pieces_checker`; docs/proofs.md proves each formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, inf, nextafter, sqrt
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from kernelopt.certificate.claim import Array, Dual, Link, Norm
from kernelopt.support.arithmetic import UNIT as U
from kernelopt.support.arithmetic import checked_product, euclidean, gamma

# Absolute, after scaling: an allowance for underflow in a sum. One operation loses at most 2⁻¹⁰⁷⁴, so that it covers
# sums of any feasible length.
TINY = 2.0**-1000
# Relative error of numpy's exp, log and powers that is taken for granted.
# numpy's functions are within a few units in the last place.
ULPS = 16 * U
SHORT = 4  # terms of columns that are summed together; longer ones are few
# Relative room in sums that bound errors. It exceeds their own rounding, γₙ, for n up to 10⁹ terms, and raises the
# allowance for rounding by 1e-6 of itself only.
ROOM = 1e-6


def upper(value: float, terms: float, offset: float, kernel: float) -> float:
    """f at a point, raised by the rounding of its atoms, 24u of their `terms`, and by the errors of predictions."""
    return nextafter(value + 24 * U * (terms + abs(offset)) + kernel, inf)


def link_in_unit(link: Link, k: int) -> Link | None:
    """A link whose multipliers n are divided by 2ᵏ; None where that would round."""
    power = np.where(np.arange(link.V.shape[1]) < max((norm.n.stop for norm in link.norms), default=0), k, 0)
    V, both = np.ldexp(link.V, -power), -(power[:, None] + power)
    gram, some = np.ldexp(link.gram, both), (link.gram != 0) | (link.error > 0)
    scaled = link._replace(V=V, gram=gram, error=np.ldexp(link.error, both) + TINY * some)
    return scaled if np.array_equal(np.ldexp(V, power), link.V) else None


def is_scaled_exactly(x: Array, k: int) -> bool:
    """Whether x/2ᵏ rounds no entry."""
    return np.array_equal(np.ldexp(np.ldexp(x, -k), k), x)


class Free(NamedTuple):
    """Columns in which stationarity must hold exactly, c + Aᵀz = 0.

    rows, values : entries of column j at starts[j]:starts[j + 1], its cost as row m
    columns : the column of x, or −1 where it belongs to a row or feature of a θ without a norm
    owners : the number of that θ, else −1
    """

    rows: Array
    values: Array
    starts: Array
    columns: Array
    owners: Array

    def matrix(self, m: int, values: Array) -> sp.csc_array:
        """[A_J; c_J], or the same pattern with other values; several entries of one row are added up."""
        W = sp.csc_array((values, self.rows, self.starts), shape=(m + 1, len(self.owners)), copy=True)
        W.sum_duplicates()
        return W


def of_free_theta(rows: Array, values: Array, counts: Array, link: Link, take: Array) -> tuple[Array, Array, Array]:
    """The columns of Aᵀν from entries of those of u, `take` their rows: rows, values, and entries per column.

    ν is summed over equal rows, which follow each other, or multiplied by features as exact products.
    """
    if link.features is None:
        return rows, values, np.bincount(take, weights=counts, minlength=len(link.sizes)).astype(int)
    hi, lo, inexact = checked_product(values, link.features[np.repeat(take, counts)].T)
    both, rows = np.hstack([np.where(inexact, np.nan, hi), lo]), np.tile(rows, (len(hi), 2))
    return rows[both != 0], both[both != 0], np.count_nonzero(both, axis=1)


def residuals(free: Free, dual: Dual) -> Array:
    """An upper bound on |c + Aᵀz| of each free column."""
    found, under = sums(free, dual.z)
    return np.abs(found) * (1 + 2 * U) + TINY * under


def sums(free: Free, z: Array) -> tuple[Array, Array]:
    """c + Aᵀz of the free columns, and where products underflow.

    Each is a sum of exact products that is rounded once, so that a sum that is 0 is found to be 0.
    """
    if not len(free.owners):
        return np.zeros(0), np.zeros(0, dtype=bool)
    weight = np.append(z, 1.0)[free.rows]
    hi, lo, inexact = checked_product(free.values, weight)
    starts = free.starts[:-1]
    under = np.add.reduceat(np.append(inexact, False), starts) * (np.diff(free.starts) > 0)
    found, left = _exact_sums(hi, lo, free.starts)
    both, ends = np.column_stack([hi, lo]).ravel(), (2 * free.starts).tolist()
    for j in np.flatnonzero(left).tolist():
        found[j] = fsum(both[ends[j] : ends[j + 1]].tolist())
    return found, under


def _exact_sums(hi: Array, lo: Array, starts: Array) -> tuple[Array, Array]:
    """The sums of columns of few products hi + lo, and which of all columns are not summed exactly.

    A product without lo, and an addition whose error is 0 by TwoSum (Knuth, 1969), round nothing.
    """
    counts, padded = np.diff(starts), np.append(hi, 0.0)
    left = (counts > SHORT) | (np.add.reduceat(np.append(lo, 0.0) != 0, starts[:-1]) * (counts > 0) > 0)
    found = np.zeros(len(counts))
    for k in range(min(SHORT, counts.max(initial=0))):
        term = padded[np.where(k < counts, starts[:-1] + k, len(hi))]
        total = found + term
        part = total - found
        left |= (found - (total - part)) + (term - part) != 0
        found = total
    return found, left


def vanishes(free: Free, left: Array, dual: Dual) -> bool:
    """Whether some z* with |z* − z| ≤ radius makes all free columns vanish.

    Δ = z* − z moves rows R only, and solves r + MΔ = 0, M = A_RCᵀ, for as many columns C. With Z ≈ M⁻¹ the map
    Δ ↦ Δ − Z(r + MΔ) is continuous, and maps the box |Δ| ≤ radius into itself if

        radius_R > |Z||r_C| + |I − ZM| radius_R.

    By Brouwer's theorem it has a fixed point there. |I − ZM| then has a spectral radius below 1, so that Z is regular
    and the fixed point solves r + MΔ = 0. A column that is a linear combination of vanishing columns, costs included,
    vanishes too.
    """
    rho, R, C, Z = dual.radius, dual.rows, dual.columns, dual.inverse
    m, entries, rest = len(rho), np.diff(free.starts), np.ones(len(left), dtype=bool)
    W, size = free.matrix(m, free.values), free.matrix(m, np.abs(free.values))  # an entry is off by γ·size
    rest[C] = rest[dual.others] = False
    if {len(R), len(C), *Z.shape} != {len(R)} or np.append(R, C).min(initial=0) < 0 or np.delete(rho, R).any():
        return False
    E, Z = sp.eye_array(len(R), format="csr") - Z @ W[:, C][R].T, abs(Z)
    off = gamma(entries.max(initial=0) + len(R) + 8) * (Z @ (size[:, C][R].T @ rho[R]) + rho[R])
    within = np.all(rho[R] > (Z @ left[C] + abs(E) @ rho[R] + off) * (1 + ROOM))
    within &= not (size[:m].T @ (rho > 0) + left)[rest].any()
    return bool(within and (not len(dual.others) or _combined(free, dual)))


def _combined(free: Free, dual: Dual) -> bool:
    """Whether A_others = A_J·weights exactly, costs included, for columns J outside of `others`.

    Only rows where z* can differ from 0 count.
    """
    counts = np.append((dual.z != 0) | (dual.radius > 0), True)
    W = sp.csc_array((free.values, free.rows, free.starts), shape=(len(counts), len(free.owners)))
    T, those = sp.coo_array(dual.weights), sp.coo_array(W[:, dual.others])
    if T.shape != (W.shape[1], len(dual.others)) or np.isin(T.row, dual.others).any():
        return False
    terms = W[:, T.row]
    hi, lo, inexact = checked_product(terms.data, np.repeat(T.data, np.diff(terms.indptr)))
    rows, owners = np.concatenate([those.row, terms.indices, terms.indices]), np.repeat(T.col, np.diff(terms.indptr))
    place = rows + len(counts) * np.concatenate([those.col, owners, owners])
    values, order = np.concatenate([those.data, np.where(inexact, np.nan, -hi), -lo]) * counts[rows], np.argsort(place)
    starts = np.append(np.flatnonzero(np.diff(place[order], prepend=-1)), len(order))
    return not sums(Free(np.zeros(len(order), dtype=int), values[order], starts, starts, starts), np.ones(1))[0].any()


def in_dual_cone(z: Array, radius: Array, cones: Sequence[tuple[str, slice | Array, Any]]) -> bool:
    """Whether all of [z − radius, z + radius] is in K*, the dual cone."""
    return all(_INSIDE[kind](z[rows], radius[rows], extra) for kind, rows, extra in cones)


def _second_order(z: Array, r: Array, _: Any) -> bool:
    """z₀ − r₀ ≥ ‖|z̄| + r̄‖."""
    tail = np.abs(z[1:]) + r[1:]
    size = float(tail.max(initial=0.0)) or 1.0
    return float(z[0] - r[0]) / size >= float(np.linalg.norm(tail / size)) * (1 + gamma(len(z) + 8))


def _semidefinite(z: Array, r: Array, n: int) -> bool:
    """λ_min(Z) ≥ ‖r‖ + rounding, by Weyl's inequality.

    Z is packed as an upper triangle by columns, with off-diagonal entries times √2.
    """
    (i, j), Z = np.tril_indices(n), np.zeros((n, n))
    Z[i, j] = z / np.where(i == j, 1.0, np.sqrt(2.0))
    lowest = float(np.linalg.eigvalsh(Z)[0])  # eigvalsh reads the lower triangle only
    return lowest >= (euclidean(r) + gamma(16 * n + 16) * euclidean(z)) * (1 + ROOM) + TINY * bool(z.any())


def _exponential(z: Array, r: Array, _: Any) -> bool:
    """v ≥ φ(u, w) = u(1 + ln(w/(−u))) where u < 0 < w, and v ≥ 0 ≤ w at u = 0."""
    (u, v, w), (ru, rv, rw) = z.reshape(-1, 3).T, r.reshape(-1, 3).T
    return bool(np.all(-u - ru >= 0) and np.all(v - rv >= largest_phi(u, w, ru, rw)))


def largest_phi(u: Array, w: Array, ru: Array, rw: Array) -> Array:
    """The largest φ on boxes around (u, w); ∞ where w can be negative.

    φ decreases in w and is convex in u, so that the maximum is at a corner with the least w.
    """
    worst, q = np.full(len(u), -inf), w - rw
    with np.errstate(all="ignore"):
        for p in (-u - ru, -u + ru):
            logarithm = np.log(np.where(q > TINY * p, q / p, 0.0))  # smaller ratios may underflow
            phi = np.where(p > 0, -p * (1 + logarithm) + 2 * ULPS * p * (2 + np.abs(logarithm)) + TINY, 0.0)
            worst = np.maximum(worst, np.where(q >= 0, phi, inf))
    return worst + 4 * U * np.abs(worst)


def _power(z: Array, r: Array, a: Any) -> bool:
    """Σ aᵢ ln((zᵢ − rᵢ)/aᵢ) ≥ ln(|w| + r_w), w the last entry."""
    a = np.array([a, 1 - a]) if np.ndim(a) == 0 else np.asarray(a)
    inside, least = z[:-1] - r[:-1], abs(z[-1]) + r[-1]
    if least == 0 or inside.min() <= 0:
        return bool(least == 0 and inside.min() >= 0)
    logarithms, least = np.log(inside / a), float(np.log(least))
    return fsum(a * logarithms) >= least + 2 * ULPS * (fsum(a * np.abs(logarithms)) + abs(least) + 1)


_INSIDE = {
    "zero": lambda *_: True,
    "nonneg": lambda z, r, _: bool(np.all(z >= r)),
    "soc": _second_order,
    "psd": _semidefinite,
    "exp": _exponential,
    "power": _power,
    "generalized_power": _power,
}


class Part(NamedTuple):
    """Terms of D, their errors, and the reason where D is −∞."""

    values: Sequence[float] | Array = ()
    costs: Sequence[float] | Array = ()
    missing: str = ""


def dual_norm(G: Array, error: Array, kind: str | int) -> float:
    """A bound on ‖Aᵀn‖ in a dual norm from G ≈ nᵀQn with an entrywise error.

    With σᵢ² the eigenvalues of nᵀQn the norm is √Σσᵢ² ("fro"), Σσᵢ ("nuc") or max σᵢ (2). Σσᵢ is also at most the sum
    of the lengths of columns.
    """
    if kind == "fro":
        return sqrt(max(fsum(np.diag(G)) + fsum(np.diag(error)), 0.0)) * (1 + 4 * U)
    off = (euclidean(error) + gamma(16 * len(G) + 16) * euclidean(G)) * (1 + ROOM)
    singular = np.sqrt(np.clip(np.linalg.eigvalsh((G + G.T) / 2), 0.0, None) + off)
    columns = np.sqrt(np.clip(np.diag(G) + np.diag(error), 0.0, None)).sum()
    return float(min(singular.sum(), columns) if kind == "nuc" else singular.max(initial=0.0)) * (1 + gamma(len(G) + 4))


def turned(norm: Norm) -> tuple[Array, float]:
    """MT, for which Aᵀν = Σ (Aᵀn)(MT)ᵀ, and a bound on ‖T‖₂ = ‖TᵀT‖₂^½, where ‖(Aᵀn)Tᵀ‖* ≤ ‖T‖₂‖Aᵀn‖*."""
    if norm.T is None:
        return norm.M, 1.0
    T, size, one = norm.T, np.abs(norm.T), np.eye(norm.T.shape[1])
    E = np.abs(T.T @ T - one) + gamma(len(T) + 2) * (size.T @ size + one)
    return norm.M @ T, sqrt(1 + float(np.linalg.norm(E)) * (1 + ROOM)) * (1 + 4 * U)


def lengths(link: Link, g: Array, e: Array) -> list[tuple[Norm, float, float]] | None:
    """For each norm: the norm, an upper bound on ‖mⱼ‖*, and the share of the remainder R in that bound.

    Here Aᵀν = Σ mⱼMⱼᵀ with ν = −g_u. None where the norms do not bind all outputs. The nⱼ give mⱼ = AᵀnⱼTⱼᵀ up to the
    remainder R = ν − Σ nⱼ(MⱼTⱼ)ᵀ. It is divided among the norms by R = Σ (RS'ⱼ)Mⱼᵀ for S' = (SMᵀ)⁻¹S, and counts by
    ‖AᵀR‖ ≤ Σᵢ √Qᵢᵢ‖Rᵢ‖ and ‖S'‖ ≤ ‖S‖/(1 − ‖I − SMᵀ‖).
    """
    nu, off = np.zeros((2, len(link.sizes), link.columns.shape[1]))
    most = gamma(np.bincount(link.take, minlength=1).max())
    np.add.at(nu, link.take, -g[link.columns])
    np.add.at(off, link.take, e[link.columns] + most * np.abs(g[link.columns]))
    M, N = np.hstack([norm.M for norm in link.norms]), np.hstack([link.V[:, norm.n] for norm in link.norms])
    rights = np.hstack([turned(norm)[0] for norm in link.norms])
    sizes = np.hstack([np.abs(n.M) if n.T is None else np.abs(n.M) @ np.abs(n.T) for n in link.norms])
    R = np.abs(nu - N @ rights.T) + off * (1 + ROOM) + gamma(M.size + N.shape[1] + 4) * (np.abs(N) @ sizes.T)
    extra = float(link.sizes @ np.hypot.reduce(R, axis=1)) + TINY * bool(R.any())
    used, S = R.any(axis=0), link.shares
    if ((S[used] != 0) @ (M[~used].T != 0)).any():
        used[:] = True
    E = np.abs(np.eye(len(M)) - S @ M.T) + gamma(M.size + 4) * (np.abs(S) @ np.abs(M).T + np.eye(len(M)))
    eta = float(np.linalg.norm(E[used]))
    # Any η < 1 is valid. Near 1 the factor 1/(1 − η) would ruin the bound, so that S then counts as no right inverse.
    if not eta < 0.1:
        return None
    found, ends = [], np.cumsum([0, *(norm.M.shape[1] for norm in link.norms)])
    for norm, part in zip(link.norms, map(slice, ends[:-1], ends[1:]), strict=True):
        share = extra * float(np.linalg.norm(S[used, part])) / (1 - eta) * (1 + ROOM)
        length = dual_norm(link.gram[norm.n, norm.n], link.error[norm.n, norm.n], norm.dual) * turned(norm)[1]
        found.append((norm, (length + share) * (1 + 4 * U), share))
    return found
