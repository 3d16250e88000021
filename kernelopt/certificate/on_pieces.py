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
from math import inf, isfinite, nan
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from kernelopt.certificate import checker, dual_cones, pieces_checker, pivots
from kernelopt.certificate.all_rows import rows_at_kinks
from kernelopt.certificate.cancelling import with_exact_costs
from kernelopt.certificate.claim import Bound, Dual, Link, nothing, still
from kernelopt.certificate.gram import CHEAP, Gram, gram_of
from kernelopt.certificate.lengths import raised, single
from kernelopt.certificate.links import bound, costly, multipliers_of_ties, partly_bound, turned, unbound
from kernelopt.certificate.multipliers import Multipliers, norm_slope
from kernelopt.certificate.parts import Costs, at_point, directions
from kernelopt.certificate.report import Lower
from kernelopt.certificate.rooms import TURNS, rooms_of, step
from kernelopt.compiler.canonical_form import PredictionLink
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.representer import Reduction
from kernelopt.language.nodes import norm_from_gram
from kernelopt.pieces.form import Pieces
from kernelopt.pieces.function import Family, OfOneNumber
from kernelopt.pieces.quadratics import Piecewise
from kernelopt.support import clock
from kernelopt.support.arithmetic import UNIT
from kernelopt.support.types import Array, Ints

# Relative: how far multipliers stay inside of domains whose ends are not exact numbers, or multipliers themselves; from
# the second on, of all domains. It must exceed the last moves that make columns vanish, and costs as much of the bound.
SPARES = (1e-12, 1e-10, 1e-8)
NEARBY = 1e-12  # relative to the larger end of an interval: multipliers that are nearer to an end are put there
ROUNDS = 10  # steps, each with a projection
SLOW = 0.1  # residuals that are no smaller than this share of those before do not vanish without a FLOOR
FLOOR = 1e-6  # relative: the least room from then on, since multipliers may have to leave an end
PUSH = 1e-13  # relative: the room of multipliers that were 0, where rounding of free columns needs some
AWAY = 8.0  # times what a free column lacks: the room of multipliers that were at an end, where no others have enough
PASSES = 4  # passes over the kernel in which ‖Aᵀν‖ is shortened, where the factor underestimates it
HALF = 0.5  # a share of ‖Aᵀν‖ below which multipliers are scaled at once; above, moved first
MARGIN = 64 * UNIT  # relative: by how much g_t shall exceed ‖Aᵀν‖, for the rounding that the checker counts
LESS = 1e-10  # relative: how much less than a fixed cost ‖Aᵀν‖ shall be, for rounding and errors of kernel values
# Relative to the cost of a norm: shorter multipliers say that θ = 0, and that of kernels with other columns, too.
IDLE = 0.9


class Claimed(NamedTuple):
    """The problem, links of all θ without multipliers, and the numbers of the norms of each.

    fixed : of each norm, whether no multiplier can raise what t costs
    free : the free columns; owner : of each of their entries; known : a bound whose VᵀQV hold for the same ν
    """

    reduction: Reduction
    pieces: Pieces
    links: list[Link]
    norms: list[list[int]]
    fixed: list[list[bool]]
    free: checker.Free
    owner: Ints
    known: Lower | None


class Excess(NamedTuple):
    """By how much dual norms of parts exceed their costs, and the derivatives of that by a and by entries of parts."""

    size: Array
    by_rows: list[sp.csc_array]
    by_parts: Array
    moves: list[PartMoves]


class PartMoves(NamedTuple):
    """Moves Σ pₖₗ·baseₖdirectionₗᵀ of the parts of a θ, the p of which begin at `start` among all."""

    number: int
    base: Array
    direction: Array
    start: int


class Shortened(NamedTuple):
    """Multipliers, and the largest share of them for which ‖mⱼ‖ is at most its cost."""

    share: float
    a: Array
    parts: list[Array]


class Claim(NamedTuple):
    """What the checker is given, and what `Lower` keeps of it; ‖mⱼ‖ and what it exceeds its cost by, for each norm of
    each θ."""

    dual: Dual
    links: list[Link]
    multipliers: tuple[Multipliers, ...]
    grams: tuple[Gram, ...]
    lengths: list[Array]
    short: list[Array]


class Proven(NamedTuple):
    """A bound, and the claim that proves it for pieces with these free columns."""

    bound: Bound
    claim: Claim | None
    pieces: Pieces
    free: checker.Free


@np.errstate(all="ignore")  # numbers that are too large end in a bound of −∞
def lower_bound(  # noqa: PLR0917
    reduction: Reduction, pieces: Pieces, point: Iterate, a: Array, way: str, span: bool, known: Lower | None = None
) -> Lower | None:
    """The bound proven from multipliers near a; None where several norms bind some outputs of a θ only.

    point : its θ̂ tells how Aᵀν is divided among several norms; known : a bound whose VᵀQV hold for the same ν
    """
    found = proven(reduction, pieces, point, a, way, span, known)
    if found is None:
        return None
    bound, claim = found.bound, found.claim
    kept = ((), ()) if claim is None else (claim.multipliers, claim.grams)
    products = tuple(gram.product for gram in kept[1])
    moved = None if claim is None else claim.dual.z[: len(a)]
    mu = () if claim is None else _costs(pieces, claim, claim.dual.z[: len(a)])
    return Lower(
        bound.value, bound.rounding, bound.terms, *kept, products=products, missing=bound.missing, rows=moved,
        idle=() if claim is None else _idle(claim, mu), mu=mu,
    )  # fmt: skip


@np.errstate(all="ignore")
def proven(  # noqa: PLR0917
    reduction: Reduction, pieces: Pieces, point: Iterate, a: Array, way: str, span: bool, known: Lower | None = None
) -> Proven | None:
    """The bound of `lower_bound` with all that proves it."""
    task, a = _task(reduction, pieces, span, known), np.array(a, dtype=float)
    if task is None:
        return None
    found = Proven(nothing("the multipliers are not finite, or not those of the rows"), None, pieces, task.free)
    if a.shape == pieces.s0.shape and np.isfinite(a).all():
        a = _with_ties(task, pieces.c + pieces.slopes(a), a)
        found = _by_spares(task, point, a, way, span)
        exact = with_exact_costs(task.pieces, task.free) if "vanish" in found.bound.missing else None
        if exact is not None:
            found = _by_spares(_on(exact[0], task), point, np.append(a, exact[1]), way, span)
    return found


def _with_ties(task: Claimed, g: Array, a: Array) -> Array:
    """Multipliers with those of rows w − uM = 0, the last ones."""
    norms = task.reduction.form.norms
    ties = [
        multipliers_of_ties(link, norms[own[0]].right, g)
        for link, own in zip(task.links, task.norms, strict=True)
        if link.loose.size
    ]
    return np.concatenate([a, *ties])


def _costs(pieces: Pieces, claim: Claim, a: Array) -> tuple[Array, ...]:
    """For each θ the g_t of its norms."""
    g = pieces.c + pieces.slopes(a)
    return tuple(g[[norm.column for norm in link.norms]] for link in claim.links)


def _idle(claim: Claim, costs: tuple[Array, ...]) -> tuple[bool, ...]:
    """For each θ, whether all ‖mⱼ‖ are far below g_t."""
    return tuple(bool(np.all(found < IDLE * own)) for found, own in zip(claim.lengths, costs, strict=True))


def _by_spares(task: Claimed, point: Iterate, a: Array, way: str, span: bool) -> Proven:
    """The bound for the least spare that gives one."""
    claim = None
    for spare in SPARES:
        try:
            bound, claim = _proven(task, point, a, spare, way, span)
        except (np.linalg.LinAlgError, RuntimeError, OverflowError, ValueError) as error:
            bound = nothing(f"the multipliers can't be moved: {error}")
        if isfinite(bound.value) or "exceeds" in bound.missing:
            break
    return Proven(bound, claim, task.pieces, task.free)


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
    parts = [_whole(link) for link in task.links]
    a = np.append(pieces.twins.sign * a[pieces.twins.row], np.zeros(len(task.pieces.s0) - len(a)))
    claim = _claim(task, still(a), parts, MARGIN, CHEAP, False)
    plain = not any(known.stack.any() for known in claim.multipliers)
    return pieces_checker.lower(task.pieces, claim.links, claim.dual).value if plain else -inf


def _task(reduction: Reduction, pieces: Pieces, span: bool, known: Lower | None) -> Claimed | None:
    """None where several norms bind some outputs of a θ only; where one does, the pieces have further rows."""
    form = reduction.form
    named = [link.u.id for link in form.predictions if link.u is not None] + [norm.t.id for norm in form.norms]
    if not set(named) <= set(pieces.columns):
        return None
    links, norms, fixed = list[Link](), list[list[int]](), list[list[bool]]()
    for number in range(len(form.predictions)):
        own = costly(reduction, pieces, number)
        found = bound(reduction, pieces, number, own) if own else unbound(reduction, pieces, number, span)
        if found is None and len(own) == 1:
            found, pieces = partly_bound(reduction, pieces, number, own[0], span)
        if found is None:
            return None
        t = [norm.column for norm in found.norms]
        links, norms = [*links, found], [*norms, own]
        fixed = [*fixed, [not single(pieces, column).is_endless for column in t]]
    free = pieces_checker.free_columns(pieces, links)
    owner = np.repeat(np.arange(len(free.owners)), np.diff(free.starts))
    return Claimed(reduction, pieces, links, norms, fixed, free, owner, known)


def _on(pieces: Pieces, task: Claimed) -> Claimed:
    """The same on pieces with further columns and rows of no θ."""
    free = pieces_checker.free_columns(pieces, task.links)
    owner = np.repeat(np.arange(len(free.owners)), np.diff(free.starts))
    return task._replace(pieces=pieces, free=free, owner=owner)


def _proven(  # noqa: PLR0917
    task: Claimed, point: Iterate, a: Array, spare: float, way: str, span: bool
) -> tuple[Bound, Claim]:
    """The bound for one spare; multipliers are moved again where the kernel's ‖Aᵀν‖ exceeds a cost."""
    pieces, more = task.pieces, [np.zeros(len(norms)) for norms in task.norms]
    a = a.copy()
    for norm in task.reduction.form.norms:  # multipliers of bounds on t follow in the end, and are in other units
        a[single(pieces, int(pieces.columns[norm.t.id][0])).below] = 0.0
    task, parts, a = _with_parts(task, point, a)
    margin, best, pushed = MARGIN, Shortened(-inf, a, parts), False
    for number in range(PASSES):
        a, parts = _feasible(task, a, parts, spare, more)
        for exactly in (False, True):
            claim = _claim(task, _vanishing(task, a, spare, exactly), parts, margin, way, span)
            bound = pieces_checker.lower(pieces, claim.links, claim.dual)
            if "vanish" not in bound.missing:
                break
        if "vanish" in bound.missing and not pushed:
            a, pushed = _off_their_ends(task, a), True
            continue
        short = np.concatenate([np.zeros(0), *claim.short])
        if isfinite(bound.value) or not np.isfinite(short).all():
            break
        if not short.any():
            if margin > MARGIN or "exceeds" not in bound.missing:
                break
            margin = LESS  # squares of lengths near the least doubles lose digits where they are scaled
            continue
        lengths = np.concatenate(claim.lengths)
        long = (short > 0) & (lengths > LESS * lengths.max(initial=0.0))
        share = float(np.min(1 - short / np.where(long, lengths, 1.0), where=long, initial=1.0))
        last = share < HALF or number >= PASSES - 2 or 1 - share > HALF * (1 - best.share)
        best = max(best, Shortened(share, a, parts), key=lambda one: one.share)
        rest = _at_rest(task, best.a, spare) if last and long.any() else None
        if rest is not None:
            share = best.share * (1 - 2 * LESS)
            a, parts = share * best.a + (1 - share) * rest, [share * part for part in best.parts]
            more = [np.zeros_like(old) for old in more]
        else:
            more = [old + 1.1 * new for old, new in zip(more, claim.short, strict=True)]
    return bound, claim


def _off_their_ends(task: Claimed, a: Array) -> Array:
    """Multipliers with some room for those of inequalities that are 0: rounding of their columns needs it."""
    rows = np.intersect1d(task.free.rows, task.pieces.below)
    a = a.copy()
    a[rows] = np.maximum(a[rows], PUSH * np.abs(a).max(initial=0.0))
    return np.asarray(task.pieces.twins.sign * a[task.pieces.twins.row])


def _at_rest(task: Claimed, a: Array, spare: float) -> Array | None:
    """Multipliers near a at which ν and free columns vanish, nearly; None where they are not found."""
    pieces, twins, free = task.pieces, task.pieces.twins, task.free
    u = np.concatenate([np.arange(0), *(link.columns.ravel() for link in task.links if link.norms)]).astype(int)
    if not free.values[free.rows == len(a)].any() and not pieces.c[u].any():
        return np.zeros_like(a)
    entries = sp.coo_array(pieces.by_columns[:, u])
    place = twins.row[entries.coords[0]], entries.coords[1]
    of_u = sp.csc_array((twins.sign[entries.coords[0]] * entries.data, place), shape=(len(a), len(u)))
    M = sp.csc_array(sp.hstack([free.matrix(len(a), free.values)[:-1], of_u]))
    none = np.zeros((M.shape[1], 0))
    for _ in range(ROUNDS):
        clock.check()
        a = _inside(pieces, a, spare)
        each = free.values * np.append(a, 1.0)[free.rows]
        left = np.concatenate([np.bincount(task.owner, each, len(free.owners)), (pieces.c + pieces.slopes(a))[u]])
        if np.abs(left).max(initial=0.0) <= LESS * np.abs(a).max(initial=0.0):
            return a
        rooms = rooms_of(pieces, a, spare, SLOW)
        moved, _ = step(rooms, rooms.pulled(M), left, none)
        a = twins.sign * (a + moved)[twins.row]
    return None


def _whole(link: Link) -> Array:
    """No parts, so that ν is divided by the shares alone."""
    return np.zeros((len(link.sizes), link.shares.shape[1]))


def _with_parts(task: Claimed, point: Iterate, a: Array) -> tuple[Claimed, list[Array], Array]:
    """The first parts [n₁ … n_J] of each θ, links with the shares that belong to them, and multipliers.

    What a norm costs is unknown where a bound on it may have a multiplier, and where t stands in a row with others; the
    multipliers of such rows are then moved so that g_t is what the parts cost.
    """
    found, links, pieces = list[Array](), list(task.links), task.pieces
    a, S = a.copy(), pieces.by_columns
    g = pieces.c + pieces.slopes(_at_lengths(task, point, a))
    several = any(len(link.norms) > 1 for link in links)
    may_move = rows_at_kinks(task.reduction.form, pieces, point, a) if several else np.arange(0)
    for number, (link, of_theta) in enumerate(zip(task.links, task.reduction.form.predictions, strict=True)):
        if len(link.norms) < 2:
            found.append(_whole(link))
            continue
        t = [norm.column for norm in link.norms]
        own = [single(pieces, column) for column in t]
        others = [
            np.setdiff1d(S.indices[S.indptr[j] : S.indptr[j + 1]], one.rows) for j, one in zip(t, own, strict=True)
        ]
        rows, bounded = (
            np.intersect1d(may_move, np.concatenate(others)),
            np.array([len(one.below) > len(one.signs) for one in own]),
        )
        costs = Costs(g[t], S[:, t][rows].toarray().T, bounded)
        parts = at_point(task.reduction, number, task.norms[number], point, of_theta.summed(-g[link.columns]), costs)
        a[rows] += parts.moved
        links[number] = link._replace(shares=parts.shares)
        found.append(parts.n)
    return task._replace(links=links), found, a


def _at_lengths(task: Claimed, point: Iterate, a: Array) -> Array:
    """The multipliers of rows, those of functions of a t alone from the slopes at the point's t."""
    pieces, a, w = task.pieces, a.copy(), np.append(1.0, a[task.pieces.below])
    for link, numbers in zip(task.links, task.norms, strict=True):
        for j, norm in zip(numbers, link.norms, strict=True) if len(numbers) > 1 else ():
            alone = single(pieces, norm.column)
            for group in pieces.groups if len(alone.rows) else ():
                mine = np.flatnonzero(np.isin(group.rows[:, 0], alone.rows)) if group.rows.shape[1] == 1 else ()
                for i in mine:
                    row = int(group.rows[i, 0])
                    s = pieces.s0[row] + float(alone.values[alone.rows == row][0]) * point.t[j]
                    slope = group.family.slope(np.full(group.rows.shape, s))[i, 0]
                    a[row] = group.omega(w)[i] * slope
    return a


def _divided(link: Link, of_theta: PredictionLink, parts: Array, g: Array) -> Array:
    """[n₁ … n_J] = parts + (ν − Σ partsⱼMⱼᵀ)S, for ν = −g."""
    nu = of_theta.summed(-g[link.columns])
    if len(link.norms) > 1:
        nu = nu - parts @ np.hstack([norm.M for norm in link.norms]).T
    return np.asarray(parts + nu @ link.shares)


def _feasible(
    task: Claimed, a: Array, parts: list[Array], spare: float, more: list[Array]
) -> tuple[Array, list[Array]]:
    """Multipliers in their domains at which free columns nearly vanish, and ‖Aᵀν‖ is at most its cost."""
    pieces, twins, free, late, least = task.pieces, task.pieces.twins, task.free, False, inf
    shared = _shared(task)
    for turn in range(ROUNDS):
        clock.check()
        a = _inside(pieces, a, spare if turn == 0 else spare / 2)
        excess = _excess(task, a, parts, more)
        each = free.values * np.append(a, 1.0)[free.rows]
        left, terms = (np.bincount(task.owner, part, len(free.owners)) for part in (each, np.abs(each)))
        if not len(excess.size) and np.all(np.abs(left) <= 8 * UNIT * terms):
            return a, parts
        most = float(np.max(np.abs(left) / np.where(terms > 0, terms, 1.0), initial=0.0))
        late, least = late or most > SLOW * least, min(most, least)
        rooms = rooms_of(pieces, a, spare, FLOOR if late else 0.0)
        rooms.d[shared] = np.maximum(rooms.d[shared], (FLOOR * _most_of_costs(task, a)) ** 2)
        S = free.matrix(len(a), free.values)[:-1]
        M, left = sp.csc_array(sp.hstack([S, *excess.by_rows])), np.concatenate([left, excess.size])
        M, D = rooms.pulled(M), np.vstack([np.zeros((len(free.owners), excess.by_parts.shape[1])), excess.by_parts])
        moved, q = step(rooms, M, left, D)
        if late:  # multipliers of inequalities that shall grow may do so by any amount
            up = pieces.below[((M @ q)[pieces.below] > 0) & (twins.row[pieces.below] == pieces.below)]
            rooms.d[up] = np.maximum(rooms.d[up], np.abs(a).max() ** 2)
            moved, q = step(rooms, M, left, D)
        a, parts = twins.sign * (a + moved)[twins.row], _moved(parts, excess.moves, D.T @ q)
    return _inside(pieces, a, spare / 2), parts


def _most_of_costs(task: Claimed, a: Array) -> float:
    """The largest g_t."""
    t = [norm.column for link in task.links for norm in link.norms]
    return float(np.abs((task.pieces.c + task.pieces.slopes(a))[t]).max(initial=0.0))


def _shared(task: Claimed) -> Ints:
    """Rows in which a t stands with others. They tell what it costs, and may have to leave an end where that is 0."""
    S, found = task.pieces.by_columns, [np.arange(0)]
    for link, fixed in zip(task.links, task.fixed, strict=True):
        for norm, held in zip(link.norms, fixed, strict=True):
            rows = S.indices[S.indptr[norm.column] : S.indptr[norm.column + 1]]
            if held and len(rows) > len(single(task.pieces, norm.column).rows):
                found.append(np.setdiff1d(rows, single(task.pieces, norm.column).rows))
    rows = np.unique(np.concatenate(found))
    return rows[task.pieces.twins.row[rows] == rows]


def _moved(parts: list[Array], moves: list[PartMoves], by: Array) -> list[Array]:
    """Parts with the same sums Σ nⱼMⱼᵀ, moved along their own directions."""
    parts = list(parts)
    for number, base, direction, start in moves:
        count = base.shape[1] * direction.shape[1]
        p = by[start : start + count].reshape(base.shape[1], -1)
        parts[number] = parts[number] + base @ p @ direction.T
    return parts


def _inside(pieces: Pieces, a: Array, spare: float) -> Array:
    """Multipliers in their domains: of rows below, of functions from the outer ones inwards, of cones."""
    twins, a, nested = pieces.twins, a.copy(), not all(group.is_outer for group in pieces.groups)
    cones = pieces.once("cones alike", lambda these: dual_cones.alike(pieces_checker.cones(these)))
    for _ in range(TURNS if nested or cones else 1):
        before = a
        a = twins.sign * a[twins.row]
        low = pieces.below[a[pieces.below] < 0]
        a[low] = a[twins.row[low]] = 0.0
        w = np.append(1.0, a[pieces.below])
        for group in pieces.groups:
            omega, near = group.omega(w), a[group.rows]
            if not isinstance(group.family, Piecewise) or spare > SPARES[0] or not group.is_outer:
                near = group.family.nearest(group.family.nearest(near, (1 - spare) * omega), omega)
                a[group.rows] = _with_single(group.family, omega, near)
                continue
            ends = [end[:, None] for end in group.family.ends(omega)]
            size = np.maximum(*(np.where(np.isfinite(end), np.abs(end), 0.0) for end in ends))
            for end in ends:
                near = np.where(np.isfinite(end) & (np.abs(near - end) <= NEARBY * size), end, near)
            a[group.rows] = np.clip(near, *ends)
        for kind, rows, extra in cones:
            a[rows] = -dual_cones.nearest(kind, -a[rows], extra, spare)
        if np.array_equal(a, before):
            break
    return np.asarray(twins.sign * a[twins.row])


def _with_single(family: Family, omega: Array, a: Array) -> Array:
    """The only multiplier where the function has one slope: there is no room to stay inside of."""
    if not isinstance(family, OfOneNumber):
        return a
    low, high = family.ends(omega)
    return np.where((low == high)[:, None], low[:, None], a)


def _excess(task: Claimed, a: Array, parts: list[Array], more: list[Array]) -> Excess:
    """By how much norms computed from the factor exceed their costs."""
    pieces, columns, excess, moves = task.pieces, list[sp.csc_array](), list[float](), list[PartMoves]()
    by_parts, at = list[tuple[int, Array]](), 0
    g = pieces.c + pieces.slopes(a)
    most = _most_of_costs(task, a)
    for number, (of_theta, link) in enumerate(zip(task.reduction.form.predictions, task.links, strict=True)):
        if not any(task.fixed[number]) or not link.columns.size:
            continue
        factor = task.reduction.factors[of_theta.theta]
        n = _divided(link, of_theta, parts[number], g)
        inner, several = factor.B.T @ n, len(link.norms) > 1
        lengths = np.sqrt(factor.scale * factor.matrix.inner(inner).diagonal()) if several else np.ones(inner.shape[1])
        unit = np.where(lengths > 0, lengths.max(initial=0.0) / np.where(lengths > 0, lengths, 1.0), 0.0)
        direction = (
            directions(np.hstack([norm.M for norm in link.norms]), link.shares)
            if several
            else np.zeros((inner.shape[1], 0))
        )
        ends = np.cumsum([0, *(norm.M.shape[1] for norm in link.norms)])
        found = False
        for j, norm in enumerate(link.norms):
            if not task.fixed[number][j]:
                continue
            own = slice(ends[j], ends[j + 1])
            G = factor.scale * factor.matrix.inner(inner[:, own])
            length, least = float(norm_from_gram(G, norm.dual)), 64 * NEARBY * most
            over = length - float(g[norm.column]) * (1 - LESS) + float(more[number][j]) + least * (length > 0)
            over = raised(pieces, norm.column, a.copy(), over)
            if over <= 0:
                continue
            slope = norm_slope(G, norm.dual) * (length > least)  # a shorter one needs a cost, and can't be shortened
            of_nu = factor.scale * (factor.B @ inner[:, own]) @ slope @ link.shares[:, own].T
            x = np.zeros(pieces.n)
            x[link.columns.ravel()], x[norm.column] = of_nu[link.take].ravel(), 1.0
            gradient = -(pieces.S @ x)
            folded = np.bincount(pieces.twins.row, pieces.twins.sign * gradient, len(a))
            columns, found = [*columns, sp.csc_array(folded[:, None])], True
            excess.append(over + 8 * UNIT * length)  # for the rounding of a step
            of_parts = unit[:, None] * factor.scale * (inner.T @ inner[:, own]) @ slope @ direction[own]
            by_parts.append((at, of_parts.ravel()))
        if found and several:
            moves.append(PartMoves(number, n * unit, direction, at))
            at += n.shape[1] * direction.shape[1]
    D = np.zeros((len(excess), at))
    for row, (start, values) in enumerate(by_parts):
        D[row, start : start + len(values)] = values
    return Excess(np.array(excess), columns, D, moves)


def _vanishing(task: Claimed, a: Array, spare: float, exactly: bool) -> Dual:
    """Multipliers with rows along which free columns vanish; with `exactly` it is first moved on a grid."""
    twins, free, dual = task.pieces.twins, task.free, still(a)
    left = checker.residuals(free, dual)
    if not left.any():
        return dual
    a = _off_both_ends(task, a, left, spare)
    if not exactly and (found := _by_one_row(task, a, spare)) is not None:
        return found
    dual = still(a)
    left = checker.residuals(free, dual)
    W = free.matrix(len(a), free.values)
    room = rooms_of(task.pieces, a, spare, 0.0).single
    if exactly:
        moves = pivots.moves(W, np.full_like(left, left.max()), room)
        a = pivots.on_grid(a)
        for _ in range(ROUNDS):
            a, settled = pivots.corrected(a, checker.sums(free, a)[0], moves)
            if settled:
                break
        dual = replace(dual, z=twins.sign * a[twins.row])
        left = checker.residuals(free, dual)
    return replace(dual, **pivots.moves(W, left, room)._asdict())


def _off_both_ends(task: Claimed, a: Array, left: Array, spare: float) -> Array:
    """Multipliers with some room for a free column whose rows are all at ends of their domains, or nearly.

    Their sum is then 0 but for rounding, as Σνᵢ of a quantile of level τ where τN is an integer. Two rows get room of
    AWAY times what is left, one for each sign of it.
    """
    free, twins = task.free, task.pieces.twins
    room, ends = rooms_of(task.pieces, a, spare, 0.0).single, None
    moved = a.copy()
    for j in np.flatnonzero(left):
        entries = slice(free.starts[j], free.starts[j + 1])
        rows, values = free.rows[entries], free.values[entries]
        own = (rows < len(a)) & (values != 0)
        rows, values = rows[own], values[own]
        if not len(rows) or np.max(room[rows] * np.abs(values)) > AWAY / 2 * left[j]:
            continue
        ends = _ends(task.pieces, a) if ends is None else ends
        low, high = ends[0][rows], ends[1][rows]
        steps = AWAY * (left[j] / np.abs(values) + UNIT * np.abs(a[rows]))
        inwards = np.where(a[rows] + steps <= high, steps, np.where(a[rows] - steps >= low, -steps, 0.0))
        for signed in (inwards * values, -inwards * values):
            if signed.max() > 0:
                cheapest = int(np.argmin(np.where(signed > 0, signed, inf)))
                moved[rows[cheapest]] = a[rows[cheapest]] + inwards[cheapest]
    return np.asarray(twins.sign * moved[twins.row])


def _ends(pieces: Pieces, a: Array) -> tuple[Array, Array]:
    """The ends of the domains of multipliers of functions of one number that are not inside of others."""
    low, high, w = np.full(len(a), nan), np.full(len(a), nan), np.append(1.0, a[pieces.below])
    for group in pieces.groups:
        if group.is_outer and isinstance(group.family, OfOneNumber):
            least, most = group.family.ends(group.omega(w))
            low[group.rows], high[group.rows] = least[:, None], most[:, None]
    return low, high


def _by_one_row(task: Claimed, a: Array, spare: float) -> Dual | None:
    """Multipliers at which a single free column vanishes exactly: multipliers with room are rounded to a grid, and the
    one with most room takes what is left. None where that does not suffice, or there are several columns."""
    pieces, twins, free = task.pieces, task.pieces.twins, task.free
    if len(free.owners) != 1:
        return None
    rows = free.rows[free.rows < len(a)]
    room = rooms_of(pieces, a, spare, 0.0).single
    some = np.unique(rows[room[rows] > 0])
    if not len(some):
        return None
    before, a = a, a.copy()
    a[some] = pivots.on_grid(a[some])
    most = int(some[np.argmax(room[some])])
    entry = free.values[free.rows == most].sum()
    move = checker.sums(free, a)[0][0] / entry
    a[most] -= move
    if np.any(np.abs(a - before)[some] > (1 + LESS) * room[some]) or checker.sums(free, a)[0][0]:  # some are on no grid
        return None
    return still(twins.sign * a[twins.row])


def _claim(  # noqa: PLR0917
    task: Claimed, dual: Dual, parts: list[Array], margin: float, way: str, span: bool
) -> Claim:
    """The links with ν = −(c_u + S_uᵀa), and multipliers of rows of t alone for g_t ≥ ‖mⱼ‖."""
    pieces, a, rho = task.pieces, dual.z.copy(), dual.radius[task.pieces.twins.row]
    found, lengths, short = list[tuple[Link, Multipliers, Gram]](), list[Array](), list[Array]()
    g, e = pieces_checker.stationarity(pieces, dual, rho)
    for number, (of_theta, bare) in enumerate(zip(task.reduction.form.predictions, task.links, strict=True)):
        if not bare.norms:
            nu = of_theta.summed(-g[bare.columns])
            none = np.zeros((nu.shape[1], nu.shape[1]))
            alone = Multipliers(nu, (nu.shape[1],), (), (), (), True)
            lengths, short = [*lengths, np.zeros(0)], [*short, np.zeros(0)]
            found.append((bare, alone, Gram(none, none, of_theta.rows.lengths())))
            continue
        factor, V = task.reduction.factors[of_theta.theta], bare.V.copy()
        V[:, : bare.shares.shape[1]] = _divided(bare, of_theta, parts[number], g)
        known = _known(task, len(found), V) or gram_of(of_theta, factor, V, way)
        V_turned, at_V, norms = turned(of_theta, factor, V, known, list(bare.norms), span)
        link = bare._replace(sizes=at_V.sizes, norms=norms, V=V_turned, gram=at_V.value, error=at_V.error)
        told = [(norm.column, length) for norm, length, _ in checker.lengths(link, g, e) or ()]
        missing = []
        for t, length in told:
            need = length - float(g[t] - e[t]) + margin * (length + abs(float(g[t])) + float(e[t]))
            need += 2 * checker.TINY * (length > 0)
            missing.append(raised(pieces, t, a, need))
        lengths.append(np.array([length for _, length in told]) if told else np.full(len(norms), inf))
        short.append(np.array(missing) if told else np.full(len(norms), inf))
        of_norms = zip(*((norm.M.shape[1], norm.dual, norm.f) for norm in bare.norms), strict=True)
        widths, kinds, shifts = (tuple(each) for each in of_norms)
        found.append((link, Multipliers(V, widths, tuple(task.norms[number]), kinds, shifts, False), known))
    links, multipliers, grams = zip(*found, strict=True) if found else ((), (), ())
    return Claim(replace(dual, z=a), list(links), multipliers, grams, lengths, short)


def _known(task: Claimed, number: int, V: Array) -> Gram | None:
    """The known VᵀQV of a θ, where it is that of the same V."""
    if task.known is None or number >= len(task.known.grams):
        return None
    return task.known.grams[number] if np.array_equal(task.known.multipliers[number].stack, V) else None
