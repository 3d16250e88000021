"""A lower bound of the stated problem, proven from a dual point, the cone data and kernel values alone.

    minimize ½xᵀPx + cᵀx + Σ wₖℓₖ(gₖ) + offset   subject to  b − Ax ∈ K,  u = Aθ,  ‖θMⱼ − fⱼ‖ ≤ tⱼ

Nothing here finds, repairs or recognises: whoever calls hands over a point z, and every inequality that the bound needs
is proven with rounding inside, or the bound is −∞ and says why. docs/certificates.md proves each formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import frexp, fsum, inf, isfinite, ldexp, nextafter, sqrt
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

Array = np.ndarray[Any, Any]

U = 2.0**-53  # unit roundoff of double precision
TINY = 2.0**-1000  # more than what underflow takes from any sum here, after scaling
ULPS = 16 * U  # what numpy's exp, log and powers, and values of a user's loss, are trusted to
ROOM = 1e-6  # inequalities between radii hold with so much to spare, far above their own rounding


class Loss(NamedTuple):
    """wₖℓₖ at two points each, the slopes there on both sides of the multipliers: columns of g and of h = ℓ(g); points,
    values and slopes of w·ℓ, (2, n)."""

    g: Array
    h: Array
    at: Array
    value: Array
    slope: Array


class Program(NamedTuple):
    """The cone data; `cones` as (kind, rows, order or exponents), linked columns t, and convex losses."""

    P: Array
    c: Array
    offset: float
    A: sp.csc_array
    b: Array
    cones: Sequence[tuple[str, slice, Any]]
    t: Array
    losses: Sequence[Loss] = ()


class Norm(NamedTuple):
    """‖θM − f‖ ≤ t: the column of t, the dual norm ("fro", "nuc" or 2), M (K, k), and the columns of n and f in V.

    m = (Aᵀn)Tᵀ for T (k, columns of n), the identity where there is none: fewer columns, where m has a low rank.
    """

    column: int
    dual: str | int
    M: Array
    n: slice
    f: slice
    T: Array | None = None

    @property
    def right(self) -> Array:
        """MT, for which Aᵀν = Σ (Aᵀn)(MT)ᵀ."""
        return self.M if self.T is None else self.M @ self.T

    @property
    def factor(self) -> float:
        """‖T‖₂ ≥ ‖(Aᵀn)Tᵀ‖*/‖Aᵀn‖*."""
        if self.T is None:
            return 1.0
        E = np.abs(self.T.T @ self.T - np.eye(self.T.shape[1])) + gamma(len(self.T) + 2)
        return sqrt(1 + float(np.linalg.norm(E))) * (1 + 8 * U)


class Link(NamedTuple):
    """One θ: u[i, k] = (row take[i] of A)·θₖ.

    columns : (len(take), K), of u; sizes : ≥ √Qᵢᵢ of each row; norms : none where nothing binds θ
    V, gram, error : vectors over the rows, V = [n₁ … n_J, f₁ … f_J], and VᵀQV, off by at most `error` entry by entry
    features : (rows, p) where κ(x, z) = Σₖ φₖ(x)φₖ(z), known to `features_error` relatively
    """

    columns: Array
    take: Array
    sizes: Array
    norms: Sequence[Norm]
    V: Array
    gram: Array
    error: Array
    features: Array | None = None
    features_error: float = 0.0


@dataclass(frozen=True, eq=False)
class Dual:
    """A dual point.

    z : in K*; tangent : slope of ½Px² at the point where it is linearized, for columns of u; radius : |z* − z|, where
    z* makes all free columns vanish, moved along `pivots` (rows, free columns) and `blocks` (rows, free columns and
    Z ≈ M⁻¹)
    """

    z: Array
    tangent: Array
    radius: Array
    pivots: tuple[Array, Array]
    blocks: Sequence[tuple[Array, Array, Array]] = ()


class Bound(NamedTuple):
    """value ≤ the optimum; rounding : what was taken from it; terms : size of its parts; missing : why it is −∞."""

    value: float
    rounding: float
    terms: float
    missing: str = ""


def nothing(why: str) -> Bound:
    return Bound(-inf, inf, inf, why)


class Free(NamedTuple):
    """Columns that must vanish: entries of column j at starts[j]:starts[j + 1], its cost as a last row, and its error.

    columns : of x, −1 where it is a row or feature of a θ without a norm; owners : the number of that θ, else −1
    """

    rows: Array
    values: Array
    starts: Array
    error: Array
    columns: Array
    owners: Array


def lower(program: Program, links: Sequence[Link], dual: Dual) -> Bound:
    """The bound D(z*) − (what rounding, kernel values and assumptions may cost)."""
    if not all(np.isfinite(part).all() for part in (dual.z, dual.tangent, dual.radius)):
        return nothing("the dual point is not finite")
    scaled = _scaled(program, links, dual)
    if scaled is None:
        return nothing("numbers too far apart to be scaled exactly: change units")
    program, links, dual, k2 = scaled
    if not in_dual_cone(dual.z, dual.radius, program.cones):
        return nothing("the dual point is not in the dual cone")
    g, e = stationarity(program, dual)
    free = free_columns(program, links, dual)
    left = residuals(free, dual)
    exists = vanishes(free, left, dual)
    rho = dual.radius if exists else np.zeros(len(dual.z))
    e = e + abs(program.A).T @ rho * (1 + ROOM)
    # The terms of D, and what each may be off by; all costs are ≥ 0.
    owned, tangents = _owned(program, links), np.flatnonzero(dual.tangent)
    if not np.all(owned[tangents] & (program.P[tangents] > 0)) or dual.tangent[program.t].any():
        return nothing("a tangent stands where nothing is curved")
    hi, lo = two_product(program.b, dual.z)
    linear = dual.tangent[tangents] ** 2 / (2 * program.P[tangents])  # the least of ½Px² − (tangent)x
    inner = ~owned & (program.P > 0)
    squares, largest = g[inner] ** 2 / (2 * program.P[inner]), (np.abs(g) + e)[inner] ** 2 / (2 * program.P[inner])
    values = [*(-hi).tolist(), *(-lo).tolist(), *(-linear).tolist(), *(-squares).tolist()]
    costs = [float(np.abs(program.b) @ rho) * (1 + ROOM), 8 * U * float(linear.sum())]
    costs += (largest * (1 + 8 * U) - squares).clip(0.0).tolist()
    parts = [_of_loss(program, loss, -g[loss.g], e[loss.g]) for loss in program.losses]
    parts += [
        _of_theta(program, link, g, e, exists or not left[free.owners == k].any()) for k, link in enumerate(links)
    ]
    missing = [part.missing for part in parts if part.missing]
    if not exists and left[free.owners < 0].any():
        missing.append(f"column {free.columns[int(np.argmax(left * (free.owners < 0)))]} does not vanish")
    if missing:
        return nothing(missing[0])
    for part in parts:
        values, costs = values + part.values, costs + part.costs
    total, cost = fsum(values), fsum(costs) * (1 + 4 * U) + TINY * any(values)
    value = ldexp(total - cost, k2)
    value = nextafter(nextafter(value, -inf) + program.offset, -inf) if value else program.offset
    return Bound(value if isfinite(value) else -inf, ldexp(cost, k2), ldexp(fsum(map(abs, values)), k2))


def upper(value: float, terms: float, offset: float, kernel: float) -> float:
    """f at a point, as the stated atoms evaluate it from `terms`, raised by their rounding and that of predictions."""
    return nextafter(value + 24 * U * (terms + abs(offset)) + kernel, inf)


# ---------------------------------------------------------------- units


def _scaled(program: Program, links: Sequence[Link], dual: Dual) -> tuple[Program, list[Link], Dual, int] | None:
    """The objective and its multipliers over one power of two 2ᵏ, exactly; None where that loses digits."""
    largest = max(
        float(np.abs(part).max(initial=0.0))
        for part in (program.c, program.P, *(loss.slope for loss in program.losses))
    )
    k = frexp(largest)[1] if largest > 0 and isfinite(largest) else 0
    ok = isfinite(largest)

    def over(values: Array, power: int = 1) -> Array:
        nonlocal ok
        found = np.ldexp(values, -k * power)
        ok = ok and (power > 1 or bool(np.array_equal(np.ldexp(found, k * power), values)))
        return np.asarray(found)

    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        losses = [loss._replace(value=over(loss.value), slope=over(loss.slope)) for loss in program.losses]
        program = program._replace(P=over(program.P), c=over(program.c), losses=losses)
        # What is lost of a Gram matrix by underflow is less than TINY.
        links = [
            link._replace(
                V=np.hstack([over(link.V[:, : _width(link)]), link.V[:, _width(link) :]]),
                gram=_rescaled(link.gram, link, k), error=_rescaled(link.error, link, k) + TINY * (link.error > 0),
            )
            for link in links
        ]  # fmt: skip
        dual = replace(dual, z=over(dual.z), tangent=over(dual.tangent), radius=np.ldexp(dual.radius, -k))
    dual = replace(dual, radius=np.where(dual.radius > 0, dual.radius + TINY, 0.0))
    return (program, links, dual, k) if ok else None


def _width(link: Link) -> int:
    return max((norm.n.stop for norm in link.norms), default=link.V.shape[1])


def _rescaled(G: Array, link: Link, k: int) -> Array:
    """A Gram matrix of V, whose first columns are multipliers and whose others are functions."""
    power = np.arange(len(G)) < _width(link)
    return np.asarray(np.ldexp(np.ldexp(G, -k * power[:, None]), -k * power[None, :]))


# ---------------------------------------------------------------- arithmetic


def gamma(n: Any) -> Any:
    """n·u/(1 − n·u): the relative error of a sum of n products, in any order (Higham 2002, section 3.1)."""
    return n * U / (1 - n * U)


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """(hi, lo) with ab = hi + lo exactly, but for underflow (Dekker 1971)."""
    hi = a * b
    a1, b1 = _upper_half(a), _upper_half(b)
    a2, b2 = a - a1, b - b1
    return hi, a2 * b2 - (((hi - a1 * b1) - a2 * b1) - a1 * b2)


def _upper_half(a: Array) -> Array:
    """The upper 26 bits (Veltkamp)."""
    c = (2.0**27 + 1) * a
    return np.asarray(c - (c - a))


def stationarity(program: Program, dual: Dual) -> tuple[Array, Array]:
    """c + tangent + Aᵀz of each column, and by how much it may be off."""
    terms = np.abs(program.c) + np.abs(dual.tangent) + abs(program.A).T @ np.abs(dual.z)
    error = np.where(terms > 0, gamma(np.diff(program.A.indptr) + 5) * terms + TINY, 0.0)
    return program.c + dual.tangent + program.A.T @ dual.z, error


# ---------------------------------------------------------------- columns that must vanish


def _owned(program: Program, links: Sequence[Link]) -> Array:
    """Which columns are u and t of links."""
    owned = np.zeros(len(program.c), dtype=bool)
    owned[np.concatenate([program.t, *(link.columns.ravel() for link in links)]).astype(int)] = True
    return owned


def free_columns(program: Program, links: Sequence[Link], dual: Dual) -> Free:
    """Columns of x without curvature that no link owns; for θ without a norm those of its rows or features."""
    costly = _owned(program, links) | (program.P > 0)
    for loss in program.losses:
        costly[loss.h] = costly[loss.g] = True
    alone = np.flatnonzero(~costly)
    m, costs = len(program.b), np.vstack([program.c, dual.tangent])
    whole = sp.csc_array(sp.vstack([program.A, sp.csc_array(costs)]))
    parts = [(whole[:, alone], np.arange(len(alone) + 1), np.zeros(len(alone)), alone, np.full(len(alone), -1))]
    for number, link in enumerate(links):
        if not link.norms and link.columns.size:
            parts += _of_free_theta(whole, link, number, np.concatenate([np.abs(dual.z), [1.0, 1.0]]))
    at = np.cumsum([0, *(part.nnz for part, *_ in parts)])
    starts = [first + part.indptr[ends[1:]] for first, (part, ends, *_) in zip(at[:-1], parts, strict=True)]
    return Free(
        # A tangent is one more entry of cost, with z = 1.
        rows=np.minimum(np.concatenate([part.indices for part, *_ in parts]), m),
        values=np.concatenate([part.data for part, *_ in parts]),
        starts=np.concatenate([[0], *starts]),
        error=np.concatenate([part[2] for part in parts]),
        columns=np.concatenate([part[3] for part in parts]),
        owners=np.concatenate([part[4] for part in parts]),
    )  # fmt: skip


def _of_free_theta(whole: sp.csc_array, link: Link, number: int, weight: Array) -> list[tuple[Any, ...]]:
    """Aᵀν of a θ that no norm binds: ν summed over equal rows, or times the features where these are few."""
    parts: list[tuple[Any, ...]] = []
    order = np.argsort(link.take, kind="stable")
    for columns in link.columns[order].T:
        part, ends, error = whole[:, columns], np.searchsorted(link.take[order], np.arange(len(link.sizes) + 1)), None
        if link.features is not None:
            W = link.features[link.take[order]]
            size = np.asarray(weight @ (abs(part) @ np.abs(W)))
            error = (gamma(len(W) + 2) + link.features_error) * size * (1 + ROOM)
            part, ends = sp.csc_array(part @ W), np.arange(W.shape[1] + 1)
        count = len(ends) - 1
        none = np.full(count, -1)
        parts.append((part, ends, np.zeros(count) if error is None else error, none, none + 1 + number))
    return parts


def residuals(free: Free, dual: Dual) -> Array:
    """|c + Aᵀz| of the free columns, no less."""
    found, under = sums(free, dual.z)
    return np.abs(found) * (1 + 2 * U) + free.error + TINY * under


def sums(free: Free, z: Array) -> tuple[Array, Array]:
    """c + Aᵀz of the free columns: sums of exact products, rounded once, so that 0 is 0; and where these underflow."""
    weight = np.append(z, 1.0)[free.rows]
    hi, lo = two_product(free.values, weight)
    both = np.column_stack([hi, lo]).ravel().tolist()
    found = np.array([fsum(both[2 * a : 2 * b]) for a, b in pairwise(free.starts.tolist())])
    small = (np.abs(hi) <= TINY) & (free.values != 0) & (weight != 0)
    return found, np.add.reduceat(np.append(small, False), free.starts[:-1]) * (np.diff(free.starts) > 0)


def as_matrix(free: Free, m: int, count: int, values: Array | None = None) -> sp.csc_array:
    """A_J, without costs."""
    S = sp.csc_array((free.values if values is None else values, free.rows, free.starts), shape=(m + 1, count))[:m]
    S.sum_duplicates()
    return sp.csc_array(S)


def vanishes(free: Free, left: Array, dual: Dual) -> bool:
    """Whether some z* with |z* − z| ≤ radius makes all free columns vanish.

    Δ = z* − z solves A_Jᵀ Δ = −r on the pivot rows. For a pivot (i, j) that is Δᵢ = −(rⱼ + Σ of the other rows)/Aᵢⱼ,
    and for a block Δ_B = Δ_B − Z(r + A_BᵀΔ): a continuous map, which takes the box |Δ| ≤ radius into itself if

        radius |Aᵢⱼ| ≥ |rⱼ| + Σ_{i' ≠ i} |Aᵢ'ⱼ| radiusᵢ',   radius_B > |Z|(|r| + …) + |I − ZM| radius_B.

    By Brouwer's theorem it has a fixed point there; Z is regular since |I − ZM| has a spectral radius below 1. A column
    that equals another one, cost included, vanishes with it.
    """
    m, count, rho = len(dual.z), len(left), dual.radius
    S, sizes = as_matrix(free, m, count), as_matrix(free, m, count, np.abs(free.values))
    load = sizes.T @ rho + left
    rows, columns = dual.pivots
    moved = np.concatenate([rows, *(block[0] for block in dual.blocks)]).astype(int)
    met = np.concatenate([columns, *(block[1] for block in dual.blocks)]).astype(int)
    once = len(np.unique(moved)) == len(moved) and len(np.unique(met)) == len(met)
    finite = np.isfinite(load).all() and all(np.isfinite(block[2]).all() for block in dual.blocks)
    if not finite or not once or np.delete(rho, moved).any() or not _equal_others(free, m, met, load):
        return False
    own = _entries(sizes, rows, columns) * rho[rows]
    pull = np.abs(_entries(S, rows, columns)) * rho[rows] - gamma(8) * own
    if np.any(pull < (load[columns] - own).clip(0.0) * (1 + ROOM) + 8 * U * load[columns]):
        return False
    for some, others, Z in dual.blocks:
        M, size = S[:, others][some].T.toarray(), sizes[:, others][some].T.toarray()
        outside = (load[others] - size @ rho[some]).clip(0.0) + gamma(len(M) + 8) * load[others]
        off = np.abs(np.eye(len(M)) - Z @ M) + gamma(len(M) + 8) * (np.abs(Z) @ size + np.eye(len(M)))
        if not np.all(rho[some] > (np.abs(Z) @ outside + off @ rho[some]) * (1 + ROOM)):
            return False
    return True


def _entries(S: sp.csc_array, rows: Array, columns: Array) -> Array:
    return np.asarray(S[rows, columns], dtype=float).ravel() if len(rows) else np.zeros(0)


def _equal_others(free: Free, m: int, met: Array, load: Array) -> bool:
    """Whether columns without a pivot are met by no move and have no residual, or equal one with a pivot."""
    rest = np.ones(len(load), dtype=bool)
    rest[met] = False
    rest = np.flatnonzero(rest & (load > 0))
    if not len(rest):
        return True
    whole = sp.csc_array((free.values, free.rows, free.starts), shape=(m + 1, len(load)))
    whole.sum_duplicates()

    def key(j: int) -> tuple[bytes, bytes]:
        part = slice(whole.indptr[j], whole.indptr[j + 1])
        return whole.indices[part].tobytes(), whole.data[part].tobytes()

    counts = np.diff(whole.indptr)
    known = {key(j) for j in met[np.isin(counts[met], counts[rest])].tolist()}
    return all(key(j) in known for j in rest.tolist())


# ---------------------------------------------------------------- cones


def in_dual_cone(z: Array, radius: Array, cones: Sequence[tuple[str, slice, Any]]) -> bool:
    """Whether all of [z − radius, z + radius] is in K*, the dual cone."""
    return all(_INSIDE[kind](z[rows], radius[rows], extra) for kind, rows, extra in cones)


def _second_order(z: Array, r: Array, _: Any) -> bool:
    """z₀ − r₀ ≥ ‖|z̄| + r̄‖."""
    size = float(np.abs(z).max()) or 1.0
    return bool((z[0] - r[0]) / size >= float(np.linalg.norm((np.abs(z[1:]) + r[1:]) / size)) * (1 + gamma(len(z) + 8)))


def _semidefinite(z: Array, r: Array, n: int) -> bool:
    """λ_min(Z) ≥ ‖r‖ + rounding; Z is packed as an upper triangle by columns, off-diagonal entries times √2."""
    if not (z.any() or r.any()):
        return True
    columns, rows = np.tril_indices(n)
    Z = np.zeros((n, n))
    Z[rows, columns] = z / np.where(rows == columns, 1.0, np.sqrt(2.0))
    lowest = float(np.linalg.eigvalsh(Z + np.triu(Z, 1).T)[0])
    return lowest >= (float(np.linalg.norm(r)) + gamma(16 * n + 16) * float(np.linalg.norm(z))) * (1 + ROOM)


def _exponential(z: Array, r: Array, _: Any) -> bool:
    """v ≥ φ(u, w) = u(1 + ln(w/(−u))) where u < 0 < w, and v ≥ 0 ≤ w at u = 0."""
    (u, v, w), (ru, rv, rw) = z.reshape(-1, 3).T, r.reshape(-1, 3).T
    return bool(np.all(-u - ru >= 0) and np.all(v - rv >= largest_phi(u, w, ru, rw)))


def largest_phi(u: Array, w: Array, ru: Array, rw: Array) -> Array:
    """The largest φ on boxes around (u, w): φ is convex, so that it is at a corner; ∞ where w can be negative."""
    worst = np.full(len(u), -inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        for p in (-u - ru, -u + ru):
            for q in (w - rw, w + rw):
                logarithm = np.log(q / p)
                phi = np.where(p > 0, -p * (1 + logarithm) + 2 * ULPS * p * (2 + np.abs(logarithm)), 0.0)
                worst = np.maximum(worst, np.where(q >= 0, phi, inf))
    return worst + 4 * U * np.abs(worst)


def _power(z: Array, r: Array, a: Any) -> bool:
    """Π ((zᵢ − rᵢ)/aᵢ)^aᵢ ≥ |w| + r_w, w the last entry."""
    a = np.array([a, 1 - a]) if np.ndim(a) == 0 else np.asarray(a)
    if np.any(z[:-1] < r[:-1]):
        return False
    least = abs(z[-1]) + r[-1]
    return bool(least == 0 or np.prod(((z[:-1] - r[:-1]) / a) ** a) * (1 - ULPS * (len(z) + 2)) >= least)


_INSIDE = {
    "zero": lambda *_: True,
    "nonneg": lambda z, r, _: bool(np.all(z >= r)),
    "soc": _second_order,
    "psd": _semidefinite,
    "exp": _exponential,
    "power": _power,
    "generalized_power": _power,
}


# ---------------------------------------------------------------- losses and θ


class _Part(NamedTuple):
    """Terms of D, what they may be off by, and what is missing."""

    values: list[float]
    costs: list[float]
    missing: str = ""


def _of_loss(program: Program, loss: Loss, v: Array, off: Array) -> _Part:
    """The least of wℓ(g) − vg: tangents C + Lg of wℓ on both sides, L₋ ≤ v ≤ L₊, give (1 − λ)C₋ + λC₊ with slope v."""
    low, high = loss.slope
    slack = ULPS * (np.abs(low) + np.abs(high))
    summed = (
        np.all(program.c[loss.h] > 0) and not np.diff(program.A.indptr)[loss.h].any() and not program.P[loss.h].any()
    )
    if not summed or not np.all((low + slack <= v - off) & (v + off <= high - slack)):
        return _Part([], [], "the slopes of a loss are not known well enough")
    C = loss.value - loss.slope * loss.at
    rate = (C[1] - C[0]) / (high - low)
    error = ULPS * (np.abs(loss.value) + np.abs(loss.slope * loss.at)).sum(axis=0)
    costs = (np.abs(rate) + error / (high - low)) * (off + 4 * slack) + 2 * error
    return _Part((C[0] + (v - low) * rate).tolist(), costs.tolist())


def dual_norm(G: Array, error: Array, kind: str | int) -> float:
    """‖Aᵀn‖ in a dual norm from G ≈ nᵀQn, off by `error`: with σᵢ² its eigenvalues √Σσᵢ², Σσᵢ ("nuc") or max σᵢ (2).

    Σσᵢ is no more than the sum of the lengths of columns, either.
    """
    if kind == "fro":
        return sqrt(max(fsum(np.diag(G)) + fsum(np.diag(error)), 0.0)) * (1 + 4 * U)
    off = float(np.linalg.norm(error)) + gamma(16 * len(G) + 16) * float(np.linalg.norm(G))
    singular = np.sqrt(np.clip(np.linalg.eigvalsh((G + G.T) / 2), 0.0, None) + off)
    columns = np.sqrt(np.clip(np.diag(G) + np.diag(error), 0.0, None)).sum()
    found = min(singular.sum(), columns) if kind == "nuc" else singular.max(initial=0.0)
    return float(found) * (1 + gamma(len(G) + 4))


class Length(NamedTuple):
    """‖m‖* ≤ value for a norm's part of Aᵀν, of which `share` stands for what the nⱼ leave of ν."""

    norm: Norm
    value: float
    share: float


def lengths(link: Link, g: Array, e: Array) -> list[Length] | None:
    """‖mⱼ‖* for Aᵀν = Σ mⱼMⱼᵀ, mⱼ = AᵀnⱼTⱼᵀ, ν = −g_u; None where the norms do not bind all outputs.

    What nⱼ leave of ν, R = ν − Σ nⱼ(MⱼTⱼ)ᵀ, is shared out by R = Σ (RSⱼ)Mⱼᵀ and counted by ‖AᵀR‖ ≤ Σᵢ √Qᵢᵢ‖Rᵢ‖.
    """
    n, K = len(link.sizes), link.columns.shape[1]
    nu, off = np.zeros((n, K)), np.zeros((n, K))
    np.add.at(nu, link.take, -g[link.columns])
    np.add.at(off, link.take, np.where((g[link.columns] == 0) & (e[link.columns] <= TINY), 0.0, e[link.columns]))
    most = int(np.bincount(link.take, minlength=1).max()) if len(link.take) else 1
    off = off * (1 + gamma(most)) + gamma(most) * np.abs(nu)
    M, rights = np.hstack([norm.M for norm in link.norms]), np.hstack([norm.right for norm in link.norms])
    N = np.hstack([link.V[:, norm.n] for norm in link.norms])
    sizes = np.hstack([np.abs(norm.M) if norm.T is None else np.abs(norm.M) @ np.abs(norm.T) for norm in link.norms])
    R = np.abs(nu - N @ rights.T) + off + gamma(M.size + 4) * (np.abs(N) @ sizes.T)
    R = np.where(R <= TINY, 0.0, R)
    extra = float(link.sizes @ np.linalg.norm(R, axis=1)) * (1 + gamma(n + K + 4))
    found = [max(float(np.trace(link.gram[norm.n, norm.n])), 0.0) for norm in link.norms]
    heavy = np.sqrt(np.array(found) / (max(found) or 1.0)).clip(1e-3)  # what is left goes to the longest parts
    weights = np.concatenate([np.full(one.M.shape[1], w) for one, w in zip(link.norms, heavy, strict=True)])
    S, eta = _inverse(M, weights, np.asarray(R.any(axis=0)))
    if not eta < 0.1:
        return None
    parts, at = [], 0
    for norm in link.norms:
        share = extra * float(np.linalg.norm(S[:, at : at + norm.M.shape[1]])) / (1 - eta) * (1 + ROOM * (extra > 0))
        at += norm.M.shape[1]
        length = dual_norm(link.gram[norm.n, norm.n], link.error[norm.n, norm.n], norm.dual) * norm.factor
        parts.append(Length(norm, (length + share) * (1 + 4 * U), share))
    return parts


def _of_theta(program: Program, link: Link, g: Array, e: Array, vanished: bool) -> _Part:
    """⟨g_u, Aθ⟩ = −⟨Aᵀν, θ⟩ ≥ −Σ ‖mⱼ‖*tⱼ − Σ ⟨mⱼ, fⱼ⟩, and the least of ½Pt² + (g_t − ‖m‖*)t over t ≥ 0."""
    if not link.norms:
        empty = vanished or not link.columns.size
        return _Part([], [], "" if empty else "Aᵀν does not vanish, and no norm binds θ")
    found = lengths(link, g, e)
    if found is None:
        return _Part([], [], "no norm binds some output of θ")
    values, costs = [], []
    for norm, length, share in found:
        if norm.f.stop > norm.f.start:
            if norm.T is not None:
                return _Part([], [], "a function beside a turned multiplier")
            values += (-np.diag(link.gram[norm.n, norm.f])).tolist()
            size = dual_norm(link.gram[norm.f, norm.f], link.error[norm.f, norm.f], "fro")
            costs += [*np.diag(link.error[norm.n, norm.f]).tolist(), share * size * (1 + 4 * U)]
        P, slope = float(program.P[norm.column]), float(g[norm.column] - e[norm.column])
        excess = length - slope + 4 * U * (length + abs(slope))
        if excess > 0 and P == 0:
            return _Part([], [], "‖Aᵀν‖ exceeds what its norm costs")
        if excess > 0:
            plain = max(length - g[norm.column], 0.0)
            values.append(-(plain**2) / (2 * P))
            costs.append(max(excess**2 * (1 + 8 * U) - plain**2, 0.0) / (2 * P) + 8 * U * plain**2 / (2 * P))
    return _Part(values, costs)


def _inverse(M: Array, weights: Array, used: Array) -> tuple[Array, float]:
    """S = (MW²Mᵀ)⁻¹MW² with SMᵀ = I on the outputs that are used, and ‖I − SMᵀ‖ there; ∞ where there is none."""
    G = (M * weights**2) @ M.T
    d = np.diag(G)
    alone = not (G - np.diag(d)).any()
    try:
        S = M * weights**2 / np.where(d > 0, d, 1.0)[:, None] if alone else np.linalg.solve(G, M * weights**2)
    except np.linalg.LinAlgError:
        return M, inf
    E = np.eye(len(M)) - S @ M.T
    if alone:
        E, S = E[np.ix_(used, used)], S[used]
    return S, float(np.linalg.norm(E)) + gamma(M.size + 4) * float(np.linalg.norm(S) * np.linalg.norm(M))
