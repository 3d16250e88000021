"""A lower bound of a problem that was read into pieces, proven from multipliers of its rows and kernel values alone.

    minimize  c·x + c₀ + Σ w₀h(s)   subject to  sᵢ + Σ wᵢh(s) ≤ 0,  sᵢ = 0,  s ∈ K,   s = Sx + s₀,
    and       u = Aθ,  ‖θMⱼ − fⱼ‖ ≤ tⱼ

With multipliers a of the rows, those of rows below at least 0, and ω = w₀ + Σ aᵢwᵢ of each function,

    D(a) = c₀ + s₀·a − Σ (ωh)*(a) + min over θ, t ≥ 0 of  ⟨g_u, Aθ⟩ + g_t·t,      g = c + Sᵀa,

if g vanishes in all other columns, and −a is in K* on rows of cones. The checker only checks: the caller supplies a,
and every inequality that the bound needs is proven with rounding included, by the parts in `checker`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import frexp, fsum, inf, isfinite, nextafter
from typing import Any, NamedTuple

import numpy as np

from kernelopt.certificate.checker import (
    ROOM,
    TINY,
    Free,
    Part,
    dual_norm,
    in_dual_cone,
    is_scaled_exactly,
    lengths,
    link_in_unit,
    of_free_theta,
    residuals,
    turned,
    vanishes,
)
from kernelopt.certificate.claim import Array, Bound, Dual, Link, nothing
from kernelopt.pieces.form import ROUNDS, Group, Pieces
from kernelopt.support.arithmetic import UNIT as U
from kernelopt.support.arithmetic import gamma, two_product

MODERATE = 64  # an exponent of 2: of costs between its powers squares are doubles with all digits


class Weights(NamedTuple):
    """Bounds on the ω of the functions of a group, for all multipliers within the radius."""

    low: Array
    high: Array


@np.errstate(all="ignore")  # comparisons are written so that NaN proves no inequality
def lower(pieces: Pieces, links: Sequence[Link], dual: Dual) -> Bound:
    """D(a) less the allowance for rounding and errors of kernel values, for an a within the radius of dual.z."""
    if why := ill_posed(pieces, links, dual):
        return nothing(why)
    scaled = in_one_unit(pieces, links, dual)
    if scaled is None:
        return nothing("numbers too far apart to be scaled exactly: change units")
    c0 = pieces.c0
    pieces, links, dual, k = scaled
    if not in_dual_cone(-dual.z, dual.radius, cones(pieces)):
        return nothing("the multipliers of a cone are not in its dual cone")
    free = free_columns(pieces, links)
    left = residuals(free, dual)
    exists = bool(dual.radius.any() or len(dual.others)) and vanishes(free, left, dual)
    if left.any() and not exists:
        return nothing(f"column {free.columns[np.argmax(left)]} does not vanish")
    rho = dual.radius if exists else np.zeros(len(dual.z))
    twins = pieces.twins
    rho = rho[twins.row]
    if not np.all(dual.z[pieces.below] >= rho[pieces.below]):
        return nothing("a multiplier of an inequality may be negative")
    hi, lo = two_product(pieces.s0, dual.z)
    values = [*hi.tolist(), *lo.tolist()]
    costs = [float(np.abs(pieces.s0) @ (rho + 2 * U * np.abs(dual.z))) * (1 + ROOM)]
    for group in pieces.groups:
        w = weights(pieces, group, dual.z, rho)
        found = group.family.conjugate(dual.z[group.rows], rho[group.rows], w.low, w.high)
        if not np.all(found.value < inf):
            return nothing(f"a multiplier is outside of the domain of {type(group.family).__name__}")
        values += (-found.value).tolist()
        costs += found.rounding.tolist()
    g, e = stationarity(pieces, dual, rho)
    for link in links:
        part = _of_theta(link, g, e)
        if part.missing:
            return nothing(part.missing)
        values += part.values
        costs += part.costs
    size = fsum(np.abs(values).tolist())
    if not size + fsum(costs) < inf:
        return nothing("numbers are too large: change units")
    # fsum rounds once, and so does each addition after it: `nextafter` towards −∞ makes up for each of these roundings.
    value = nextafter(fsum([*values, *(-(1 + 4 * U) * np.array(costs)).tolist(), -TINY]), -inf)
    value, cost, size = np.ldexp([value, fsum(costs), size], k).tolist()
    value = nextafter(nextafter(value, -inf) + c0, -inf)
    return Bound(value if isfinite(value) else -inf, cost, size)


@np.errstate(all="ignore")  # ∞ − ∞ and 0·∞ end in NaN, which is no bound
def upper(pieces: Pieces, x: Array, error: Array) -> float:
    """An upper bound on the objective for all columns within the errors of x, with rounding; ∞ where there is none.

    A convex h is largest at an end of [s − e, s + e], e = |S|error + γ(|S||x| + |s₀|): `highest` bounds it. Columns z
    have the value of the function that they bound, from the inside out, and its excess as their error.
    """
    x, error, z, number = x.copy(), error.copy(), pieces.bounds[:, 0], pieces.bounds[:, 1]
    total = np.zeros(1 + len(pieces.below))
    for _ in range(ROUNDS if len(z) else 1):
        value, total, noise = _sums(pieces, x, error)
        change, more, noise = value[1 + number], total[1 + number], noise[1 + number]
        settled = (np.abs(change) <= 8 * U * np.abs(x[z]) + noise) & (more <= error[z])
        if settled.all():
            break
        # With as much room that the next rounds of the same numbers are below it, those of its own room included.
        off = np.maximum(more - change + 16 * U * np.abs(x[z]) + noise, error[z])
        # Those that are settled stay: with more room at each round, errors of the outer ones would never reach them.
        x[z], error[z] = x[z] + np.where(settled, 0.0, change), np.where(settled, error[z], off * (1 + 4 * ROOM) + TINY)
    else:
        return inf
    return float(total[0]) if isfinite(total[0]) else inf


def _sums(pieces: Pieces, x: Array, error: Array) -> tuple[Array, Array, Array]:
    """The objective and the left sides of all rows below, without the z that they bound where these are their own;
    upper bounds on them for columns within the errors; and how far rounding alone may move them."""
    counts, s = np.diff(pieces.S.indptr), pieces.rows(x)
    rounding = gamma(counts + 4) * (pieces.sizes(x) + np.abs(pieces.s0))
    e = (pieces.sizes(error) + rounding) * (1 + ROOM)
    own = np.zeros(pieces.n)
    value = np.concatenate([[pieces.c @ x + pieces.c0], s[pieces.below]])
    linear = np.abs(pieces.c) @ error + gamma(pieces.n + 4) * (np.abs(pieces.c) @ np.abs(x) + abs(pieces.c0))
    own[pieces.bounds[:, 0]] = error[pieces.bounds[:, 0]]
    rows = e[pieces.below]
    rows[pieces.bounds[:, 1]] -= own[pieces.bounds[:, 0]]  # the bound's own z is what is asked for
    high = np.concatenate([[linear], np.maximum(rows, 0.0)])
    size = np.abs(value)
    for group in pieces.groups:
        here = group.family.value(s[group.rows])
        most = group.family.highest(s[group.rows], e[group.rows])
        for part, total in ((here, value), (most - here, high), (np.abs(most), size)):
            group.added(part, total)
    relative = gamma(pieces.once("functions of each sum", _functions_of_sums) + 8)
    noise = np.append(0.0, rounding[pieces.below]) + relative * size
    return value, (value + high) + relative * (size + high), noise


def _functions_of_sums(pieces: Pieces) -> Array:
    """How many functions are added in the objective, and in each row below."""
    found = np.zeros(1 + len(pieces.below))
    for group in pieces.groups:
        found += np.bincount(group.weights.indices, minlength=len(found))
    return found


def in_one_unit(pieces: Pieces, links: Sequence[Link], dual: Dual) -> tuple[Pieces, list[Link], Dual, int] | None:
    """Costs, weights in the objective and multipliers divided by one power of two 2ᵏ; None where that would round.

    They stay as they are where k is moderate.
    """
    weights = [group.costs for group in pieces.groups]
    parts = [pieces.c, *weights]
    largest = max(float(np.abs(part).max(initial=0.0)) for part in parts)
    k = frexp(largest)[1]
    if abs(k) <= MODERATE:
        return pieces, list(links), dual, 0
    new = [link_in_unit(link, k) for link in links]
    scaled = [link for link in new if link is not None]
    if len(scaled) < len(new) or not isfinite(largest) or not all(is_scaled_exactly(x, k) for x in (*parts, dual.z)):
        return None
    groups = tuple(_in_unit(group, k) for group in pieces.groups)
    radius = np.where(dual.radius > 0, np.ldexp(dual.radius, -k) + TINY, 0.0)
    pieces = pieces.with_costs(np.ldexp(pieces.c, -k), pieces.c0, groups)
    return pieces, scaled, replace(dual, z=np.ldexp(dual.z, -k), radius=radius), k


def _in_unit(group: Group, k: int) -> Group:
    """Weights of rows below are those of multipliers, which are scaled themselves."""
    W = group.weights.copy()
    W.data = np.where(W.indices == 0, np.ldexp(W.data, -k), W.data)
    return replace(group, weights=W)


def ill_posed(pieces: Pieces, links: Sequence[Link], dual: Dual) -> str:
    """The reason why parts of the claim do not fit together, or an empty string."""
    m, twins = pieces.S.shape[0], pieces.twins
    if len(dual.z) != m or not (np.isfinite(dual.z).all() and np.isfinite(dual.radius).all()):
        return "the multipliers are not finite, or not those of the rows"
    if dual.radius.min(initial=0) < 0 or np.any(dual.z != twins.sign * dual.z[twins.row]):
        return "a negative radius, or multipliers that differ from their twins"
    if np.any(dual.radius[twins.row != np.arange(m)]):
        return "a radius of a row whose multiplier is that of another one"
    owned = _owned(links)
    if owned.min(initial=0) < 0 or np.bincount(owned, minlength=1).max() > 1:
        return "columns with two owners"
    if not pieces.once("rows stand once", _rows_stand_once):
        return "rows that stand nowhere, or twice"
    norms = [(norm, turned(norm)[0].shape[1], link.gram[norm.n, norm.f].shape) for link in links for norm in link.norms]
    if not all(shape in {(k, 0), (k, k if norm.T is None else 0)} for norm, k, shape in norms):
        return "multipliers that do not fit their norm, or a function beside a turned one"
    return "" if all(np.all(group.weights.data >= 0) for group in pieces.groups) else "a negative weight"


def _rows_stand_once(pieces: Pieces) -> bool:
    """Whether each row is that of one inequality, equation, cone or function: its multiplier then counts once."""
    rows = [*(cone.rows.ravel() for cone in pieces.cones), *(group.rows.ravel() for group in pieces.groups)]
    counts = np.bincount(np.concatenate([pieces.below, pieces.equal, *rows]).astype(int), minlength=len(pieces.s0))
    return len(counts) == len(pieces.s0) and bool(np.all(counts == 1))


def cones(pieces: Pieces) -> list[tuple[str, Array, Any]]:
    """The cones one by one: kind, rows, and order or exponents."""
    found: list[tuple[str, Array, Any]] = []
    for cone in pieces.cones:
        if cone.kind == "power":
            alpha = np.asarray(cone.extra, dtype=float)
            found += [("power", rows, float(a)) for rows, a in zip(cone.rows.reshape(-1, 3), alpha, strict=True)]
        else:
            found.append((cone.kind, cone.rows, cone.extra))
    return found


def _owned(links: Sequence[Link]) -> Array:
    """The columns of u and t."""
    t = [norm.column for link in links for norm in link.norms]
    of_theta = [columns.ravel() for link in links for columns in (link.columns, link.loose)]
    return np.concatenate([t, *of_theta]).astype(int)


def free_columns(pieces: Pieces, links: Sequence[Link]) -> Free:
    """Columns in which g must be 0, with entries at the rows whose multipliers count, and the cost as row m: those of
    no θ, and for outputs of a θ that no norm binds one per row or feature of Aᵀν."""
    other = ~pieces.twins.settled
    other[_owned(links)] = False
    J = np.flatnonzero(other)
    parts = [(*_with_costs(pieces, J), J, np.full(len(J), -1))]
    for number, link in enumerate(links):
        for columns in (link.loose if link.norms else link.columns).T:
            order = np.argsort(link.take) if link.features is None else np.arange(len(columns))
            rows, values, counts = of_free_theta(*_with_costs(pieces, columns[order]), link, link.take[order])
            parts.append((rows, values, counts, np.full(len(counts), -1), np.full(len(counts), number)))
    rows, values, counts, columns, owners = (np.concatenate(each) for each in zip(*parts, strict=True))
    return Free(rows, values, np.append(0, np.cumsum(counts)), columns, owners)


def _with_costs(pieces: Pieces, columns: Array) -> tuple[Array, Array, Array]:
    """Entries of columns at the rows whose multipliers count, their cost as row m, and how many each has."""
    S, twins = pieces.by_columns, pieces.twins
    first = S.indptr[columns]
    counts = S.indptr[columns + 1] - first
    ends = np.cumsum(counts)
    own = np.arange(counts.sum()) + np.repeat(first - (ends - counts), counts)
    rows, values = S.indices[own], S.data[own]
    rows, values = twins.row[rows], values * twins.sign[rows]
    return np.insert(rows, ends, S.shape[0]), np.insert(values, ends, pieces.c[columns]), counts + 1


def weights(pieces: Pieces, group: Group, a: Array, rho: Array) -> Weights:
    """ω = W·(1, a of rows below); exact where each function has one weight that is in the objective, or 1."""
    W, counts = group.weights, np.diff(group.weights.indptr)
    if group.is_outer and counts.max(initial=0) <= 1:
        return Weights(group.costs, group.costs)
    multipliers, off = (np.concatenate([[first], part[pieces.below]]) for first, part in ((1.0, a), (0.0, rho)))
    plain, moved = np.asarray(W @ multipliers), np.asarray(W @ off)
    alone = (counts == 1) & (
        (np.asarray(W[:, 1:].sum(axis=1)) == 0) | (np.asarray(W.max(axis=1).todense()).ravel() == 1)
    )
    rounding = np.where(alone, 0.0, gamma(counts + 2) * (W @ np.abs(multipliers)))
    error = rounding + moved * (1 + ROOM)
    return Weights(np.maximum(plain - error, 0.0), plain + error)


def stationarity(pieces: Pieces, dual: Dual, rho: Array) -> tuple[Array, Array]:
    """g = c + Sᵀa, and a bound on its error for all points within rho of a."""
    terms, n = np.abs(pieces.c) + pieces.sizes_of_slopes(dual.z), pieces.counts
    some = (pieces.c != 0) | (pieces.sizes_of_slopes(1.0 * ((dual.z != 0) | (rho > 0))) > 0)
    off = np.where(some, gamma(n + 5) * terms + TINY, 0.0)
    return pieces.c + pieces.slopes(dual.z), off + pieces.sizes_of_slopes(rho) * (1 + ROOM)


def _of_theta(link: Link, g: Array, e: Array) -> Part:
    """⟨g_u, Aθ⟩ = −⟨Aᵀν, θ⟩ ≥ −Σ ‖mⱼ‖*tⱼ − Σ ⟨mⱼ, fⱼ⟩, so that g_t ≥ ‖mⱼ‖* is needed for each norm."""
    if not link.norms:
        return Part()  # Aᵀν vanishes
    found = lengths(link, g, e)
    if found is None:
        return Part(missing="no norm binds some output of θ")
    values, costs = list[float](), list[float]()
    for norm, length, share in found:
        if norm.f.stop > norm.f.start:
            values += (-np.diag(link.gram[norm.n, norm.f])).tolist()
            size = dual_norm(link.gram[norm.f, norm.f], link.error[norm.f, norm.f], "fro")
            costs += [*np.diag(link.error[norm.n, norm.f]).tolist(), share * size * (1 + 4 * U)]
        if not length * (1 + 4 * U) <= g[norm.column] - e[norm.column]:
            return Part(missing="‖Aᵀν‖ exceeds what its norm costs")
    return Part(values, costs)
