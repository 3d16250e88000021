"""Multipliers of the rows of a problem in pieces, moved until `pieces_checker` can prove a bound from them.

With W ⪰ 0 the squared room of multipliers in their domains, a step δ = WMq with MᵀWMq = −r removes the residuals
r = c_J + S_Jᵀa of free columns, M = S_J. Where ‖Aᵀν‖ exceeds a fixed cost of t, its gradient −S_uQν/‖Aᵀν‖ − S_t is one
more column of M, and the excess one more residual. Steps and projections on the domains alternate; then rows are chosen
along which columns vanish exactly, and multipliers of rows in which t stands alone follow from ‖Aᵀν‖.

A function's multipliers are ωã with ã in the domain of h*, and ω may consist of multipliers: if these move by δ at
fixed ã, the function's move by Tδ, those of functions inside of it by T²δ, and so on: by (I − T)⁻¹δ in all.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, isfinite
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from kernelopt.certificate import checker, pieces_checker, pivots
from kernelopt.certificate.claim import Bound, Dual, Link, Norm, nothing, still
from kernelopt.certificate.gram import CHEAP, Gram, gram_of
from kernelopt.certificate.handover import features_within, turned
from kernelopt.certificate.multipliers import DUAL_KIND, Multipliers, is_identity, norm_slope
from kernelopt.certificate.report import Lower
from kernelopt.certificate.rooms import TURNS, rooms_of, step
from kernelopt.compiler.representer import Reduction
from kernelopt.language.nodes import norm_from_gram
from kernelopt.pieces.form import Pieces
from kernelopt.pieces.function import Family, OfOneNumber
from kernelopt.pieces.quadratics import Piecewise
from kernelopt.pieces.spectral import Semidefinite
from kernelopt.support.arithmetic import UNIT
from kernelopt.support.types import Array, Ints

# Relative: how far multipliers stay inside of domains whose ends are not exact numbers, or multipliers themselves; from
# the second on, of all domains. It must exceed the last moves that make columns vanish, and costs as much of the bound.
SPARES = (1e-12, 1e-10, 1e-8)
NEARBY = 1e-12  # relative to the ends of an interval: multipliers that are nearer to one of them are put there
ROUNDS = 10  # steps, each with a projection
SLOW = 0.1  # residuals that are no smaller than this share of those before do not vanish without a FLOOR
FLOOR = 1e-6  # relative: the least room from then on, since multipliers may have to leave an end
PASSES = 4  # passes over the kernel in which ‖Aᵀν‖ is shortened, where the factor underestimates it
HALF = 0.5  # a share of ‖Aᵀν‖ below which multipliers are scaled at once; above, moved first
LESS = 1e-10  # relative: how much less than a fixed cost ‖Aᵀν‖ shall be, for rounding and errors of kernel values


class Claimed(NamedTuple):
    """The problem, links of all θ without multipliers, the norms' numbers, and L of each with n = νL.

    fixed : whether no multiplier can raise what t costs
    free : the free columns; owner : of each of their entries; known : a bound whose VᵀQV hold for the same ν
    """

    reduction: Reduction
    pieces: Pieces
    links: list[Link]
    norms: list[int]
    rights: list[Array]
    fixed: list[bool]
    free: checker.Free
    owner: Ints
    known: Lower | None


class Claim(NamedTuple):
    """What the checker is given, and what `Lower` keeps of it; ‖Aᵀν‖ and what it exceeds its cost by, for each θ."""

    dual: Dual
    links: list[Link]
    multipliers: tuple[Multipliers, ...]
    grams: tuple[Gram, ...]
    lengths: Array
    short: Array


@np.errstate(all="ignore")  # numbers that are too large end in a bound of −∞
def lower_bound(  # noqa: PLR0917
    reduction: Reduction, pieces: Pieces, a: Array, way: str, span: bool, known: Lower | None = None
) -> Lower | None:
    """The bound proven from multipliers near a; None where some θ has several norms, or one of a part of it.

    known : a bound whose VᵀQV hold for the same ν
    """
    task, a = _task(reduction, pieces, span, known), np.array(a, dtype=float)
    if task is None:
        return None
    bound, claim = nothing("the multipliers are not finite, or not those of the rows"), None
    for spare in SPARES if a.shape == pieces.s0.shape and np.isfinite(a).all() else ():
        try:
            bound, claim = _proven(task, a, spare, way, span)
        except (np.linalg.LinAlgError, RuntimeError, OverflowError, ValueError) as error:
            bound = nothing(f"the multipliers can't be moved: {error}")
        if isfinite(bound.value) or "exceeds" in bound.missing:
            break
    kept = ((), ()) if claim is None else (claim.multipliers, claim.grams)
    products = tuple(gram.product for gram in kept[1])
    moved = None if claim is None else claim.dual.z
    return Lower(
        bound.value, (), bound.rounding, bound.terms, False, *kept, products=products, missing=bound.missing, rows=moved
    )  # fmt: skip


@np.errstate(all="ignore")
def of_terms(reduction: Reduction, pieces: Pieces) -> float:
    """A bound for every θ that takes no kernel values, Σ infₛ (h(s) + ĉs); −∞ where it is not found.

    Its multipliers make ν = −(c_u + S_uᵀa) vanish: they are a = −c/S in rows with an entry of u that no other row has.
    """
    S, c = pieces.by_columns, pieces.c
    u = [pieces.columns[link.u.id] for link in reduction.form.predictions if link.u is not None]
    columns = np.concatenate([np.arange(0), *u]).astype(int)
    columns = columns[S.indptr[columns + 1] - S.indptr[columns] == 1]
    first, a = S.indptr[columns], np.zeros(len(pieces.s0))
    a[S.indices[first]] = -c[columns] / S.data[first]
    if not c.any() or not first.size:
        return -inf
    task = _task(reduction, pieces, False, None)
    if task is None:
        return -inf
    claim = _claim(task, still(pieces.twins.sign * a[pieces.twins.row], np.zeros(pieces.n)), CHEAP, False)
    plain = not any(known.stack.any() for known in claim.multipliers)
    return pieces_checker.lower(pieces, claim.links, claim.dual).value if plain else -inf


def _task(reduction: Reduction, pieces: Pieces, span: bool, known: Lower | None) -> Claimed | None:
    """None where some θ has several norms, or one of a part of it."""
    form = reduction.form
    named = [link.u.id for link in form.predictions if link.u is not None] + [norm.t.id for norm in form.norms]
    if not set(named) <= set(pieces.columns):
        return None
    links, norms, rights, fixed, S = [], list[int](), list[Array](), list[bool](), pieces.by_columns
    for number, link in enumerate(form.predictions):
        costly = []
        for j, norm in enumerate(form.norms):
            t = int(pieces.columns[norm.t.id][0])
            others = S.indptr[t + 1] - S.indptr[t] > len(_single(pieces, t).signs)
            if norm.view.theta is link.theta and (pieces.c[t] or others):
                costly.append((j, t, norm))
        if not costly:
            links.append(_unbound(reduction, pieces, number, span))
            norms, rights, fixed = [*norms, -1], [*rights, np.zeros((0, 0))], [*fixed, False]
            continue
        if len(costly) != 1:
            return None
        [(j, t, norm)] = costly
        if not is_identity(norm.right) and np.linalg.matrix_rank(norm.right) < len(norm.right):
            return None
        M, K, count, n = norm.right, link.theta.outputs or 1, len(norm.function_rows), len(link.rows)
        L = M if is_identity(M) else np.linalg.pinv(M.T)
        own, k = np.arange(0) if link.u is None else pieces.columns[link.u.id], L.shape[1]
        stated = Norm(t, DUAL_KIND.get(norm.kind, "fro"), M, slice(0, k), slice(k, k + count))
        V = np.zeros((n, k + count))
        V[norm.function_rows, k + np.arange(count)] = 1.0
        none = np.zeros((k + count, k + count))
        columns, take = own.reshape(-1, K, order="F"), link.take[: len(own) // K]
        links.append(Link(columns, take, np.zeros(n), [stated], V, none, none, L))
        norms, rights, fixed = [*norms, j], [*rights, L], [*fixed, not _single(pieces, t).is_endless]
    free = pieces_checker.free_columns(pieces, links)
    owner = np.repeat(np.arange(len(free.owners)), np.diff(free.starts))
    return Claimed(reduction, pieces, links, norms, rights, fixed, free, owner, known)


def _unbound(reduction: Reduction, pieces: Pieces, number: int, span: bool) -> Link:
    """The link of a θ without a norm, whose Aᵀν must vanish."""
    link, none = reduction.form.predictions[number], np.zeros((0, 0))
    own, K, n = np.arange(0) if link.u is None else pieces.columns[link.u.id], link.theta.outputs or 1, len(link.rows)
    columns, take = own.reshape(-1, K, order="F"), link.take[: len(own) // K]
    V, features = np.zeros((n, 0)), features_within(reduction, number, span)
    return Link(columns, take, np.zeros(n), [], V, none, none, np.zeros((K, 0)), features)


class _Single(NamedTuple):
    """Rows in which t stands alone, and its coefficients; those that are t ≤ L; those that are −t ≤ 0, whose
    multipliers are not needed; and whether some may have any multiplier: a bound t ≤ L, or a curved function of t."""

    rows: Ints
    values: Array
    below: Ints
    signs: Ints
    is_endless: bool


def _single(pieces: Pieces, t: int) -> _Single:
    """Found once for the rows."""
    return pieces.once(("single", t), lambda _: _found_single(pieces, t))


def _found_single(pieces: Pieces, t: int) -> _Single:
    S = pieces.by_columns
    rows, values = (part[S.indptr[t] : S.indptr[t + 1]] for part in (S.indices, S.data))
    alone = np.diff(pieces.S.indptr)[rows] == 1
    rows, values = rows[alone], values[alone]
    below = np.isin(rows, pieces.below)
    growing = rows[values > 0]
    curved = False
    for group in pieces.groups if len(growing) else ():
        mine = np.asarray(np.isin(group.rows, growing).all(axis=1))
        if mine.any():
            most = group.family.nearest(np.full(group.rows.shape, inf), np.ones(len(mine)))
            curved |= bool(np.any(most[mine] == inf) and group.rows.shape[1] == 1)
    signs = rows[below & (values < 0) & (pieces.s0[rows] == 0)]
    return _Single(rows, values, rows[below], signs, curved or bool(np.isin(growing, pieces.below).any()))


def _proven(task: Claimed, a: Array, spare: float, way: str, span: bool) -> tuple[Bound, Claim]:
    """The bound for one spare; multipliers are moved again where the kernel's ‖Aᵀν‖ exceeds a cost."""
    pieces, more = task.pieces, np.zeros(len(task.links))
    a = a.copy()
    for norm in task.reduction.form.norms:  # multipliers of bounds on t follow in the end, and are in other units
        a[_single(pieces, int(pieces.columns[norm.t.id][0])).below] = 0.0
    for number in range(PASSES):
        a = _feasible(task, a, spare, more)
        for exactly in (False, True):
            claim = _claim(task, _vanishing(task, a, spare, exactly), way, span)
            bound = pieces_checker.lower(pieces, claim.links, claim.dual)
            if "vanish" not in bound.missing:
                break
        if isfinite(bound.value) or not np.isfinite(claim.short).all() or not claim.short.any():
            break
        share = float(np.min(1 - claim.short / claim.lengths, initial=1.0, where=claim.short > 0))
        last = share < HALF or number >= PASSES - 2
        costs = task.free.values[task.free.rows == len(a)]
        if last and not costs.any() and not any(pieces.c[link.columns].any() for link in task.links):
            a = (1 - 2 * LESS) * share * a  # towards 0, where columns vanish, too
        else:
            more = more + 1.1 * claim.short
    return bound, claim


def _feasible(task: Claimed, a: Array, spare: float, more: Array) -> Array:
    """Multipliers in their domains at which free columns nearly vanish, and ‖Aᵀν‖ is at most its cost."""
    pieces, twins, free, late, least = task.pieces, task.pieces.twins, task.free, False, inf
    for turn in range(ROUNDS):
        a = _inside(pieces, a, spare if turn == 0 else spare / 2)
        columns, excess = _excess(task, a, more)
        each = free.values * np.append(a, 1.0)[free.rows]
        left, terms = (np.bincount(task.owner, part, len(free.owners)) for part in (each, np.abs(each)))
        if not len(excess) and np.all(np.abs(left) <= 8 * UNIT * terms):
            return a
        most = float(np.max(np.abs(left) / np.where(terms > 0, terms, 1.0), initial=0.0))
        late, least = late or most > SLOW * least, min(most, least)
        rooms = rooms_of(pieces, a, spare, FLOOR if late else 0.0)
        S = free.matrix(len(a), free.values)[:-1]
        M, left = sp.csc_array(sp.hstack([S, *columns])), np.concatenate([left, excess])
        M = rooms.pulled(M)
        moved, q = step(rooms, M, left)
        if late:  # multipliers of inequalities that shall grow may do so by any amount
            up = pieces.below[((M @ q)[pieces.below] > 0) & (twins.row[pieces.below] == pieces.below)]
            rooms.d[up] = np.maximum(rooms.d[up], np.abs(a).max() ** 2)
            moved, _ = step(rooms, M, left)
        a = twins.sign * (a + moved)[twins.row]
    return _inside(pieces, a, spare / 2)


def _inside(pieces: Pieces, a: Array, spare: float) -> Array:
    """Multipliers in their domains: of rows below, of functions from the outer ones inwards, of cones."""
    twins, a, nested = pieces.twins, a.copy(), not all(group.is_outer for group in pieces.groups)
    for _ in range(TURNS if nested or pieces.cones else 1):
        before = a
        a = twins.sign * a[twins.row]
        low = pieces.below[a[pieces.below] < 0]
        a[low] = a[twins.row[low]] = 0.0
        w = np.append(1.0, a[pieces.below])
        for group in pieces.groups:
            omega, near = group.omega(w), a[group.rows]
            if not isinstance(group.family, Piecewise) or spare > SPARES[0] or not group.is_outer:
                a[group.rows] = _with_single(group.family, omega, group.family.nearest(near, (1 - spare) * omega))
                continue
            ends = [end[:, None] for end in group.family.ends(omega)]
            for end in ends:
                near = np.where(np.isfinite(end) & (np.abs(near - end) <= NEARBY * np.abs(end)), end, near)
            a[group.rows] = np.clip(near, *ends)
        for cone in pieces.cones:
            if cone.kind == "soc":
                a[cone.rows] = -_in_second_order_cone(-a[cone.rows], spare)
            elif cone.kind == "psd":
                family, z = Semidefinite(int(cone.extra)), a[cone.rows]
                z[family.heads] -= spare * np.abs(z).max(initial=0.0)
                a[cone.rows] = family.nearest(z[None], np.ones(1))[0]
        if np.array_equal(a, before):
            break
    return np.asarray(twins.sign * a[twins.row])


def _with_single(family: Family, omega: Array, a: Array) -> Array:
    """The only multiplier where the function has one slope: there is no room to stay inside of."""
    if not isinstance(family, OfOneNumber):
        return a
    low, high = family.ends(omega)
    return np.where((low == high)[:, None], low[:, None], a)


def _in_second_order_cone(z: Array, spare: float) -> Array:
    """The nearest point of the cone, with z₀ ≥ (1 + spare)‖z̄‖."""
    length = float(np.linalg.norm(z[1:]))
    if z[0] >= (1 + spare) * length:
        return z
    middle = max((z[0] + length) / 2, 0.0)
    return np.append(middle * (1 + 2 * spare), z[1:] * (middle / length))


def _excess(task: Claimed, a: Array, more: Array) -> tuple[list[sp.csc_array], Array]:
    """By how much ‖Aᵀν‖, computed from the factor, exceeds its cost, and the derivatives of that by a."""
    pieces, columns, excess = task.pieces, list[sp.csc_array](), list[float]()
    g = pieces.c + pieces.slopes(a)
    for number in np.flatnonzero(task.fixed).tolist():
        of_theta, link, L = task.reduction.form.predictions[number], task.links[number], task.rights[number]
        factor, [norm] = task.reduction.factors[of_theta.theta], link.norms
        inner = factor.B.T @ (of_theta.summed(-g[link.columns]) @ L)
        G = factor.scale * factor.matrix.inner(inner)
        over = float(norm_from_gram(G, norm.dual)) - float(g[norm.column]) * (1 - LESS) + float(more[number])
        over = _raise(pieces, norm.column, a.copy(), over)
        if over > 0 and link.columns.size:
            slope = factor.scale * (factor.B @ inner) @ norm_slope(G, norm.dual) @ L.T
            gradient = -pieces.S[:, link.columns.ravel()] @ slope[link.take].ravel()
            gradient -= pieces.S[:, [norm.column]].toarray()[:, 0]
            folded = np.bincount(pieces.twins.row, pieces.twins.sign * gradient, len(a))
            columns, excess = [*columns, sp.csc_array(folded[:, None])], [*excess, over]
    return columns, np.array(excess)


def _vanishing(task: Claimed, a: Array, spare: float, exactly: bool) -> Dual:
    """A dual point with rows along which free columns vanish; with `exactly` it is first moved on a grid."""
    twins, free, dual = task.pieces.twins, task.free, still(a, np.zeros(task.pieces.n))
    left = checker.residuals(free, dual)
    if not left.any():
        return dual
    if not exactly and (found := _by_one_row(task, a, spare)) is not None:
        return found
    W = free.matrix(len(a), free.values)
    room = rooms_of(task.pieces, a, spare, 0.0).single
    cones: pivots.Cones = [("nonneg", slice(0, len(a)), None)]  # whose room is the number itself
    if exactly:
        moves = pivots.moves(W, np.full_like(left, left.max()), room, cones)
        a = pivots.on_grid(a)
        for _ in range(ROUNDS):
            a, settled = pivots.corrected(a, checker.sums(free, a)[0], moves)
            if settled:
                break
        dual = replace(dual, z=twins.sign * a[twins.row])
        left = checker.residuals(free, dual)
    return replace(dual, **pivots.moves(W, left, room, cones)._asdict())


def _by_one_row(task: Claimed, a: Array, spare: float) -> Dual | None:
    """A dual point at which a single free column vanishes exactly: multipliers with room are rounded to a grid, and the
    one with most room takes what is left. None where that does not suffice, or there are several columns."""
    pieces, twins, free = task.pieces, task.pieces.twins, task.free
    if len(free.owners) != 1:
        return None
    rows = free.rows[free.rows < len(a)]
    room = rooms_of(pieces, a, spare, 0.0).single
    some = np.unique(rows[room[rows] > 0])
    if not len(some):
        return None
    a = a.copy()
    a[some] = pivots.on_grid(a[some])
    most = int(some[np.argmax(room[some])])
    entry = free.values[free.rows == most].sum()
    a[most] -= checker.sums(free, a)[0][0] / entry
    if checker.sums(free, a)[0][0]:  # multipliers without room are on no grid
        return None
    return still(twins.sign * a[twins.row], np.zeros(pieces.n))


def _claim(task: Claimed, dual: Dual, way: str, span: bool) -> Claim:
    """The links with ν = −(c_u + S_uᵀa) and n = νL, and multipliers of rows of t alone for g_t ≥ ‖Aᵀν‖."""
    pieces, a, rho, short = task.pieces, dual.z.copy(), dual.radius[task.pieces.twins.row], []
    found = list[tuple[Link, Multipliers, Gram]]()
    g, e = pieces_checker.stationarity(pieces, dual, rho)
    for of_theta, bare, j, L in zip(task.reduction.form.predictions, task.links, task.norms, task.rights, strict=True):
        if not bare.norms:
            nu = of_theta.summed(-g[bare.columns])
            none = np.zeros((nu.shape[1], nu.shape[1]))
            alone = Multipliers(nu, (nu.shape[1],), (), (), (), True)
            short.append((1.0, 0.0))
            found.append((bare, alone, Gram(none, none, of_theta.rows.lengths())))
            continue
        factor, V, [norm] = task.reduction.factors[of_theta.theta], bare.V.copy(), bare.norms
        V[:, norm.n] = of_theta.summed(-g[bare.columns]) @ L
        known = _known(task, len(found), V) or gram_of(of_theta, factor, V, way)
        V_turned, at_V, norms = turned(of_theta, factor, V, known, [norm], span)
        link = bare._replace(sizes=at_V.sizes, norms=norms, V=V_turned, gram=at_V.value, error=at_V.error)
        [(_, length, _)] = checker.lengths(link, g, e) or [(norm, inf, 0.0)]
        cost = float(g[norm.column] - e[norm.column])
        need = length - cost + 64 * UNIT * (length + abs(float(g[norm.column])) + float(e[norm.column]))
        short.append((length, _raise(pieces, norm.column, a, need)))
        found.append((link, Multipliers(V, (L.shape[1],), (j,), (norm.dual,), (norm.f,), False), known))
    links, multipliers, grams = zip(*found, strict=True) if found else ((), (), ())
    return Claim(replace(dual, z=a), list(links), multipliers, grams, *np.array(short).reshape(-1, 2).T)


def _known(task: Claimed, number: int, V: Array) -> Gram | None:
    """The known VᵀQV of a θ, where it is that of the same V."""
    if task.known is None or number >= len(task.known.grams):
        return None
    return task.known.grams[number] if np.array_equal(task.known.multipliers[number].stack, V) else None


def _raise(pieces: Pieces, t: int, a: Array, need: float) -> float:
    """Move multipliers of rows of t alone so that g_t grows by `need`, or falls; what is left of it.

    The slope of functions at the least bound t ≤ L is the most that they take; the rest is that bound's.
    """
    rows, values, below, _, _ = _single(pieces, t)
    bounds = [(pieces.s0[r] / -v, r, v) for r, v in zip(rows, values, strict=True) if v > 0 and r in below]
    limit, tightest, coefficient = min(bounds, default=(inf, -1, 1.0))
    if not isfinite(need) or not len(rows):
        return max(need, 0.0)
    for _, row, value in bounds:
        need, a[row] = need + float(a[row] * value), 0.0
    w = np.append(1.0, a[pieces.below])
    for group in pieces.groups:
        for i in np.flatnonzero(np.isin(group.rows[:, 0], rows[values > 0])) if group.rows.shape[1] == 1 else ():
            row, omega, wanted = int(group.rows[i, 0]), group.omega(w), a[group.rows]
            value, before = float(values[rows == row][0]), float(a[row])
            wanted[i] = max(before + need / value, 0.0)
            if isfinite(limit):
                at = np.full_like(wanted, value * limit + pieces.s0[row])
                wanted[i] = min(float(wanted[i, 0]), float(omega[i] * group.family.slope(at)[i, 0]))
            a[row] = group.family.nearest(wanted, omega)[i, 0]
            need -= (float(a[row]) - before) * value
    if bounds and need > 0:
        a[tightest], need = need / coefficient * (1 + 4 * UNIT), 0.0
    return max(need, 0.0)
