"""Multipliers of all rows of pieces near those that a point and its ν determine.

cvxpy's solvers tell ν and the multipliers of stated constraints. A row with a prediction that stands in no other row
has the multiplier (−ν − c)/S. Of functions within row j, a = ωh′(s) with ω = w₀ + w·(the multiplier of row j), which is
found from the functions whose a is known, from the inside out. Other rows have the slopes at the point; those of
functions at kinks, of constraints and of cones are found together, by least squares or by a small cone program.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from kernelopt.certificate.nested import TURNS, Intervals, permitted
from kernelopt.certificate.parts import subgradients
from kernelopt.certificate.pieces_checker import cones
from kernelopt.compiler.attributes import dense
from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.conic_form import Cones
from kernelopt.compiler.iterate import Iterate, in_columns
from kernelopt.compiler.representer import Reduction
from kernelopt.errors import MemoryLimitError
from kernelopt.pieces.form import Group, Pieces
from kernelopt.solvers import cone_program
from kernelopt.support import clock
from kernelopt.support.types import Array, Ints

ROUNDS = 10  # of least squares, each with more multipliers at the ends of their intervals
# Relative to the largest multiplier: those of a cone that are smaller count as 0; up to LITTLE only if −s·a is at least
# this share of the lengths, which an optimum does not leave.
NOTHING, LITTLE, ORTHOGONAL = 1e-8, 1e-5, 1e-2
STIFF = 10.0  # τ as a multiple of the largest |s|
WEAK = 1e-13  # relative: the weight of multipliers themselves in least squares
MISSING = 1e-7  # relative: what least squares may leave before multipliers of functions and their rows move together
STEEP = 1e-9  # relative to the largest slope: smaller ones say nothing about ω
# Relative to arguments, and to slopes: a kink within NEAR of a solver's point may be active, and slopes that differ by
# more than SAME have one between them.
NEAR, SAME = 1e-6, 1e-3
NOT_FAR = 1e-4  # the same, where least squares find out whether it is active, and for constraints


@np.errstate(all="ignore")  # outside of domains
def rows_near(reduction: Reduction, pieces: Pieces, point: Iterate, by_nu: bool = True) -> Array | None:
    """The multipliers; without `by_nu` those that the point alone determines. None where some are not finite."""
    form = reduction.form
    if by_nu and (not point.nu or any(nu is None for nu in point.nu)):
        return None
    x = pieces.settled(in_columns(form, pieces, point))
    s = pieces.rows(x)
    a, known = np.zeros(len(s)), np.zeros(len(s), dtype=bool)
    if by_nu:
        a, known = _told(form, pieces, point)
    _by_slopes(pieces, s, a, known)
    kinks = -1
    for _ in range(TURNS):  # functions within others have kinks where the others have found their weights
        unknown = _unknown(pieces, s, a, known)
        if len(unknown.kinks.rows) <= kinks:
            break
        _completed(reduction, pieces, point, (x, a, known), unknown, by_nu)
        kinks = len(unknown.kinks.rows)
    return a if np.isfinite(a).all() else None


def _told(form: CanonicalForm, pieces: Pieces, point: Iterate) -> tuple[Array, np.ndarray]:
    """Multipliers of stated constraints and of predictions that a solver told, and which rows have them."""
    a, known = np.zeros(len(pieces.s0)), np.zeros(len(pieces.s0), dtype=bool)
    for constraint in form.outer.constraints:
        rows, told = pieces.stated.get(constraint.id), point.duals.get(constraint.id, ())
        if rows is not None and len(told) == 1 and told[0] is not None and np.size(told[0]) == len(rows):
            a[rows], known[rows] = np.ravel(dense(told[0]), order="F").real, True  # rows are those of real parts
    rows, values = _of_predictions(form, pieces, point)
    a[rows], known[rows] = values, True
    return a, known


def _by_slopes(pieces: Pieces, s: Array, a: Array, known: np.ndarray) -> None:
    """Multipliers of rows from those that are known, and from slopes of functions at the point."""
    slopes = [group.family.slope(s[group.rows]) for group in pieces.groups]
    for _ in range(TURNS):
        before = known.sum()
        _outwards(pieces, s, slopes, a, known)
        if known.sum() == before:
            break
    for _ in range(TURNS):
        w, earlier = np.append(1.0, a[pieces.below]), a.copy()
        for group, slope in zip(pieces.groups, slopes, strict=True):
            free = ~known[group.rows]
            a[group.rows[free]] = (group.omega(w)[:, None] * slope)[free]
        a[:] = np.where(known, a, pieces.twins.sign * a[pieces.twins.row])
        z, rows = pieces.bounds[:, 0], pieces.below[pieces.bounds[:, 1]]
        z, rows = z[~known[rows]], rows[~known[rows]]
        a[rows] = np.maximum(a[rows] + (pieces.c + pieces.slopes(a))[z], 0.0)  # g vanishes at z, whose entry is −1
        if np.array_equal(a, earlier):
            break


def _predictions(form: CanonicalForm, pieces: Pieces, point: Iterate) -> tuple[Ints, Array]:
    """The columns of all u, and ν."""
    u = [pieces.columns[link.u.id] for link in form.predictions if link.u is not None]
    nu = [np.ravel(part, order="F") for part in point.multipliers()]
    return np.concatenate([np.arange(0), *u]).astype(int), np.concatenate([np.zeros(0), *nu])


def rows_at_kinks(form: CanonicalForm, pieces: Pieces, point: Iterate, a: Array) -> Ints:
    """Rows whose multipliers the point does not determine: of functions at kinks, and of constraints."""
    s = pieces.rows(pieces.settled(in_columns(form, pieces, point)))
    found = _open_rows(pieces, s, np.append(1.0, a[pieces.below]), np.zeros(len(a), dtype=bool), NOT_FAR)
    return np.concatenate([found.rows, pieces.below, pieces.equal, *(cone.rows for cone in pieces.cones)])


class _Open(NamedTuple):
    """Rows whose multipliers are unknown, the intervals of these, and sums of some of them: (numbers of rows, sum).

    The intervals are those of slopes near the point, as far as the multipliers of functions inside of a row permit.
    """

    rows: Ints
    low: Array
    high: Array
    sums: list[tuple[Ints, float]]


class _Unknown(NamedTuple):
    """Rows whose multipliers are unknown: of functions at kinks, of constraints, and of cones.

    least : of `given`, what the multipliers of functions inside of them require; held : those that a solver told, and
        bounds of functions that nothing else holds
    """

    kinks: _Open
    given: Ints
    least: Array
    held: np.ndarray
    cones: Ints

    @property
    def rows(self) -> Ints:
        return np.concatenate([self.kinks.rows, self.given, self.cones])


class _System(NamedTuple):
    """Moves δ of unknown multipliers with Aδ = left, nearly, and low ≤ before + δ ≤ high.

    width : the unit in which moves are small
    """

    A: sp.csr_array
    left: Array
    before: Array
    low: Array
    high: Array
    width: Array


def _completed(  # noqa: PLR0917
    reduction: Reduction, pieces: Pieces, point: Iterate, at: tuple[Array, Array, np.ndarray], unknown: _Unknown,
    by_nu: bool,
) -> None:  # fmt: skip
    """Multipliers at kinks, of constraints and of cones by least squares: g_u = −ν, and g = 0 in free columns.

    Without ν, Bᵀν = Σ μⱼ·(a subgradient of norm j at θ̂) with unknown μⱼ.
    """
    x, a, known = at
    s = pieces.rows(x)

    def found(unknown: _Unknown, together: bool) -> tuple[Array, float]:
        """Moves of all rows, and what they leave, relative to multipliers."""
        rows = unknown.rows
        moves = _with_followers(pieces, s, known, rows)
        A, left = (_with_nu(reduction.form, pieces, point, a, moves) if by_nu
                   else _without_nu(reduction, pieces, point, a, moves))  # fmt: skip
        A, left = _with_sums(A, left, unknown.kinks, a)
        if not (len(rows) and np.isfinite(a).all() and np.isfinite(left).all()):
            return np.zeros(len(a)), 0.0
        total = _totals(pieces, x, s)
        system = _system(pieces, unknown, A, left, (a, s, total))
        if len(unknown.cones) or together:
            at_kinks, mu = unknown.kinks.rows, np.zeros(A.shape[1] - len(rows))
            slack = [s[at_kinks] * _by_local(pieces)[at_kinks], total[unknown.given], s[unknown.cones], mu]
            limits = _inside_of_rows(pieces, s, a, moves, at_kinks[: len(at_kinks) * together])
            delta = _by_cones(system, pieces, np.concatenate(slack), len(rows) - len(unknown.cones), limits)
        else:
            delta = _by_steps(system)
        unit = float(np.abs(left).max(initial=0.0) + np.abs(system.before).max(initial=0.0)) or 1.0
        return moves @ delta[: len(rows)], float(np.abs(left - A @ delta).max(initial=0.0)) / unit

    moved, missing = found(unknown, together=False)
    nested = any(not group.is_outer for group in pieces.groups)
    if missing > MISSING and nested:
        other, left = found(_unknown(pieces, s, a, known, together=True), together=True)
        moved = other if left < missing else moved
    a += moved
    if len(unknown.cones):
        _drop(pieces, s, a)


def _inside_of_rows(
    pieces: Pieces, s: Array, a: Array, moves: sp.csc_array, open_rows: Ints
) -> tuple[sp.csr_array, Array]:
    """(G, h) with Gδ ≤ h for ωl ≤ a ≤ ωr, for open rows of functions whose ω = w₀ + w·a_below moves too.

    Sums of multipliers are limited as those of subgradients near the point are, times ω.
    """
    w, is_open, none = np.append(1.0, a[pieces.below]), np.zeros(len(a), dtype=bool), sp.csr_array((0, moves.shape[1]))
    is_open[open_rows] = True
    G, h, of_rows = [none], [np.zeros(0)], sp.csr_array(moves[pieces.below])
    for group in pieces.groups:
        here, movable = s[group.rows], is_open[group.rows]
        near = _near_kinks(pieces, s, group)
        omega, of_omega = group.omega(w), sp.csr_array(group.weights[:, 1:] @ of_rows)
        of_others = np.sum(group.family.slope(here) * ~movable, axis=1)
        bounds = zip(group.family.slopes_near(here, near), group.family.sums_near(here, near), strict=True)
        for sign, (ends, sums) in zip((-1.0, 1.0), bounds, strict=True):
            function, entry = np.nonzero(movable & np.isfinite(ends))
            rows, end = group.rows[function, entry], ends[function, entry]
            G.append(sign * (sp.csr_array(moves[rows]) - sp.csr_array(sp.diags_array(end) @ of_omega[function])))
            h.append(sign * (end * omega[function] - a[rows]))
            for i in np.flatnonzero(movable.any(axis=1) & np.isfinite(sums)):
                rows, most = group.rows[i, movable[i]], float(sums[i] - of_others[i])
                G.append(sign * (sp.csr_array(moves[rows].sum(axis=0)[None, :]) - most * of_omega[[i]]))
                h.append(np.array([sign * (most * omega[i] - a[rows].sum())]))
    return sp.csr_array(sp.vstack(G)), np.concatenate(h)


def _unknown(pieces: Pieces, s: Array, a: Array, known: np.ndarray, together: bool = False) -> _Unknown:
    """The rows whose multipliers slopes at the point do not determine; with `together` those of functions inside of
    rows at any ω, without intervals."""
    slopes = [group.family.slopes_near(s[group.rows], _near(pieces, s, s[group.rows])) for group in pieces.groups]
    intervals = permitted(pieces, slopes, a, known)
    kinks = _within(_open_rows(pieces, s, np.append(1.0, a[pieces.below]), known, together=together), intervals)
    bounds = pieces.below[pieces.bounds[:, 1]]
    own = bounds[~known[bounds] & (pieces.twins.row[bounds] == bounds)]
    given = np.append(np.setdiff1d(np.concatenate([pieces.below, pieces.equal]), bounds), own)
    of_cones = np.concatenate([np.arange(0), *(cone.rows.ravel() for cone in pieces.cones)])
    least = np.where(pieces.is_below[given], intervals.low[given], -np.inf)
    return _Unknown(kinks, given, least, known[given] | np.isin(given, own), of_cones)


def _within(kinks: _Open, intervals: Intervals) -> _Open:
    """The same with intervals inside of those of their rows, where these meet."""
    low, high = (end[kinks.rows] for end in intervals)
    low, high = np.maximum(kinks.low, low), np.minimum(kinks.high, high)
    meet = low <= high
    return kinks._replace(low=np.where(meet, low, kinks.low), high=np.where(meet, high, kinks.high))


def _with_sums(A: sp.csr_array, left: Array, kinks: _Open, a: Array) -> tuple[sp.csr_array, Array]:
    """The same with a row for each sum of multipliers that is known."""
    for numbers, summed in kinks.sums:
        entries = np.ones(len(numbers)), (np.zeros(len(numbers), dtype=int), numbers)
        A = sp.csr_array(sp.vstack([A, sp.csr_array(entries, shape=(1, A.shape[1]))]))
        left = np.append(left, summed - a[kinks.rows[numbers]].sum())
    return A, left


def _system(pieces: Pieces, unknown: _Unknown, A: sp.csr_array, left: Array, at: tuple[Array, Array, Array]) -> _System:
    """Moves are small relative to the lengths of intervals, and to multipliers of constraints.

    at : multipliers, arguments, and values of the rows. Where nothing is in a cone, slack constraints do not move.
    """
    (a, s, total), (kinks, given, least, held, of_cones) = at, unknown
    free, mu = np.full(len(of_cones), np.inf), np.zeros(A.shape[1] - len(unknown.rows))
    low = np.concatenate([kinks.low, least, -free, mu])
    high = np.concatenate([kinks.high, np.full(len(given), np.inf), free, mu + np.inf])
    most = np.abs(a).max(initial=0.0) + np.abs(left).max(initial=0.0)
    width = np.minimum(high - low, most)
    if not len(of_cones):
        met = np.abs(total[given]) <= _near(pieces, s, (np.abs(s) + np.abs(pieces.s0))[given][:, None], NOT_FAR)
        own = slice(len(kinks.rows), len(unknown.rows))
        width[own] = np.where(held, np.abs(a[given]), most * met)
    return _System(A, left, np.append(a[unknown.rows], mu), low, high, width)


def _drop(pieces: Pieces, s: Array, a: Array) -> None:
    """Multipliers of cones that are a solver's inaccuracy become 0: nothing beside the largest, or little and not
    orthogonal to s."""
    most, local = float(np.abs(a).max(initial=0.0)), _by_local(pieces)
    for kind, rows, _ in cones(pieces):
        each = rows.reshape((-1, 3) if kind == "exp" else (1, -1))
        size, lengths = np.abs(a[each]).max(axis=1), np.linalg.norm(a[each], axis=1) * np.linalg.norm(s[each], axis=1)
        apart = (-np.sum(a[each] * s[each], axis=1) >= ORTHOGONAL * lengths) & ~local[each].any(axis=1)
        a[each[(size <= NOTHING * most) | (apart & (size <= LITTLE * most))]] = 0.0


def _totals(pieces: Pieces, x: Array, s: Array) -> Array:
    """The rows, those of inequalities with the functions that they hold."""
    found = s.copy()
    found[pieces.below] = np.nan_to_num(pieces.sums(x)[1:])
    return found


def _with_followers(pieces: Pieces, s: Array, known: np.ndarray, rows: Ints) -> sp.csc_array:
    """How all multipliers move with those of some rows (m, k): (I − T)⁻¹ of unit moves.

    Multipliers of functions inside of a row move with that row's, in proportion to slopes at the point, and those of
    twins with each other.
    """
    m, twins = len(s), pieces.twins
    tied = np.flatnonzero((twins.row != np.arange(m)) & ~known)
    parts = [(twins.sign[tied], tied, twins.row[tied])]
    for group in pieces.groups:
        inner, owner = group.weights.indices > 0, np.repeat(np.arange(len(group.rows)), np.diff(group.weights.indptr))
        function, number = owner[inner], group.weights.indices[inner]
        values = group.family.slope(s[group.rows])[function] * group.weights.data[inner][:, None]
        values = values * ~known[group.rows[function]]
        parts.append(
            (values.ravel(), group.rows[function].ravel(), np.repeat(pieces.below[number - 1], values.shape[1]))
        )
    entries, at, by = (np.concatenate(each) for each in zip(*parts, strict=True))
    T = sp.csr_array((np.nan_to_num(entries), (at, by)), shape=(m, m))
    found = more = sp.csc_array((np.ones(len(rows)), (rows, np.arange(len(rows)))), shape=(m, len(rows)))
    for _ in range(TURNS if T.nnz else 0):
        more = sp.csc_array(T @ more)
        if not more.nnz:
            break
        found = found + more
    return sp.csc_array(found)


def _with_nu(
    form: CanonicalForm, pieces: Pieces, point: Iterate, a: Array, moves: sp.csc_array
) -> tuple[sp.csr_array, Array]:
    """What moves of multipliers add to g, and what is missing of −ν and of 0, in all columns but those of t."""
    aim, counts = np.zeros(pieces.n), ~pieces.twins.settled
    counts[[pieces.columns[norm.t.id][0] for norm in form.norms]] = False
    u, nu = _predictions(form, pieces, point)
    aim[u] = -nu
    columns = np.flatnonzero(counts)
    return sp.csr_array(pieces.by_columns[:, columns].T @ moves), (aim - pieces.c - pieces.slopes(a))[columns]


def _without_nu(
    reduction: Reduction, pieces: Pieces, point: Iterate, a: Array, moves: sp.csc_array
) -> tuple[sp.csr_array, Array]:
    """The same with Bᵀν = Σ μⱼBᵀnⱼMⱼᵀ for predictions, and g_t = μⱼ, for moves and all μⱼ; n of subgradients at θ̂."""
    form, g, S = reduction.form, pieces.c + pieces.slopes(a), pieces.by_columns
    t = np.array([pieces.columns[norm.t.id][0] for norm in form.norms], dtype=int)
    counts = ~pieces.twins.settled
    counts[np.concatenate([t, *(pieces.columns[link.u.id] for link in form.predictions if link.u is not None)])] = False
    columns = np.flatnonzero(counts)
    none = sp.csr_array((len(columns), len(t)))
    blocks = [sp.hstack([S[:, columns].T @ moves, none]), sp.hstack([S[:, t].T @ moves, -sp.eye_array(len(t))])]
    left = [-g[columns], -g[t]]
    for number, link in enumerate(form.predictions):
        factor, js = reduction.factors[link.theta], list(form.norms_of(link.theta))
        slopes, at_zero = subgradients(reduction, number, js, point)
        if link.u is None or at_zero.any() or not isinstance(factor.B, np.ndarray):
            continue
        u = pieces.columns[link.u.id].reshape(-1, link.theta.outputs or 1, order="F")
        B, of_mu = factor.B[link.take[: len(u)]].T, np.zeros((u.shape[1] * factor.rank, len(t)))
        for j, slope in zip(js, slopes, strict=True):
            of_mu[:, j] = (factor.B.T @ slope @ form.norms[j].right.T).T.ravel()
        moved = np.vstack([B @ (S[:, own].T @ moves).toarray() for own in u.T])
        blocks.append(sp.csr_array(np.hstack([moved, of_mu])))
        left.append(-np.concatenate([B @ g[own] for own in u.T]))
    return sp.csr_array(sp.vstack(blocks)), np.concatenate(left)


def _by_steps(system: _System) -> Array:
    """Moves that leave their intervals stay at the ends, and the others are found again, as far as the time goes."""
    A, left, before, low, high, width = system
    moved, free, end = np.zeros(len(before)), np.ones(len(before), dtype=bool), clock.now() + clock.for_last_steps()
    for _ in range(ROUNDS):
        if clock.now() > end:
            break
        some = sp.csr_array(A[:, np.flatnonzero(free)] * width[free])
        G = sp.csc_array(some.T @ some)
        most = float(G.diagonal().max(initial=0.0))
        if not most > 0:
            break
        G = sp.csc_array(G / most + WEAK * sp.eye_array(G.shape[0]))
        try:
            factor = splu(G)
        except RuntimeError:  # SuperLU found a pivot of 0: entries are too far apart
            break
        moved[free] = width[free] * factor.solve(some.T @ (left - A @ np.where(free, 0.0, moved)) / most)
        out = free & ((before + moved < low) | (before + moved > high))
        moved = np.clip(before + moved, low, high) - before
        if not out.any():
            break
        free &= ~out
    return moved


def _by_cones(system: _System, pieces: Pieces, slack: Array, start: int, limits: tuple[sp.csr_array, Array]) -> Array:
    """Moves after which −a is in the dual cones of the rows from `start` on, by a cone solver in units of the largest.

    limits : (G, h) with Gδ ≤ h

    min ‖Aδ − left‖ − slack·δ/τ: −slack·a ≥ 0 is 0 at an optimum, and chooses among the a that fit. With τ a multiple
    of |s| they fit as well as any do. The duals of exponential and power cones are these cones after a linear map.
    """
    A, left, before, low, high, width = system
    n, k, unit = len(before), len(left), float(np.abs(left).max(initial=0.0) + np.abs(before).max(initial=0.0)) or 1.0
    whole, every = sp.eye_array(n + 1, format="csr"), np.arange(n)  # the unknowns are δ and ‖Aδ − left‖
    up, down = every[np.isfinite(high)], every[np.isfinite(low)]
    shape, kinds, at = dict[str, list[Any]](soc=[k + 1]), dict[str, list[Any]](), start
    for kind, own, extra in cones(pieces):
        kinds.setdefault(kind, []).append((at + np.arange(len(own)), extra))
        at += len(own)
    zero, wide = np.zeros(1), sp.csr_array(sp.hstack([A, sp.csr_array((k, 1))]))
    G, h = limits
    G = sp.csr_array((G.data, G.indices, G.indptr), shape=(len(h), n + 1))
    rows = [whole[up], -whole[down], G, -whole[[n]], -wide]
    b = [(high - before)[up], (before - low)[down], h, zero, -left]
    for kind in ("soc", "psd", "exp", "power", "generalized_power"):
        for place, extra in kinds.get(kind, ()):
            T = _to_primal(kind, len(place), extra)
            rows, b = [*rows, T @ whole[place]], [*b, -T @ before[place]]
            shape.setdefault(kind, []).append(len(place) if kind == "soc" else extra)
    triples = sum(len(place) // 3 for place, _ in kinds.get("exp", ()))
    together = Cones(
        zero=0, nonneg=len(up) + len(down) + len(h), soc=tuple(shape["soc"]), psd=tuple(shape.get("psd", ())),
        exp=triples, power=tuple(shape.get("power", ())), generalized_power=tuple(shape.get("generalized_power", ())),
    )  # fmt: skip
    curved = np.append(WEAK * (unit / np.where(width > 0, width, unit)) ** 2, 0.0)
    costs = np.append(-slack / (STIFF * (float(np.abs(slack).max(initial=0.0)) or 1.0)), 1.0)
    try:
        found = cone_program.answered(curved, costs, sp.csc_array(sp.vstack(rows)), np.concatenate(b) / unit, together)
    except (ArithmeticError, MemoryLimitError):
        return np.zeros(n)
    moved = unit * np.array(found.x)[:n]
    return moved if np.isfinite(moved).all() else np.zeros(n)


def _to_primal(kind: str, size: int, extra: Any) -> sp.csr_array:
    """T with T·z in the cone where z is in its dual: (u − v, −u, w) for exponential cones, zᵢ/αᵢ for powers."""
    if kind == "exp":
        T = np.array([[1.0, -1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
        return sp.csr_array(sp.kron(sp.eye_array(size // 3), T))
    if kind in ("power", "generalized_power"):
        alpha = np.array([extra, 1 - extra]) if kind == "power" else np.asarray(extra)
        return sp.csr_array(sp.diags_array(np.append(1 / alpha, 1.0)))
    return sp.csr_array(sp.eye_array(size))


def _open_rows(  # noqa: PLR0917
    pieces: Pieces, s: Array, w: Array, known: np.ndarray, share: float = NEAR, together: bool = False
) -> _Open:
    """The rows of functions at kinks whose multipliers are not known; with `together` those of functions inside of rows
    at any ω, without intervals."""
    parts, sums, at = [(np.arange(0), np.zeros(0), np.zeros(0))], list[tuple[Ints, float]](), 0
    for group in pieces.groups:
        rows, omega, here = group.rows, group.omega(w)[:, None], s[group.rows]
        near = _near_kinks(pieces, s, group, share)
        low, high = group.family.slopes_near(here, near)
        at_any = together and not group.is_outer
        is_open = _differs(low, high) & (~known[rows].any(axis=1) & ((omega[:, 0] > 0) | at_any))[:, None]
        if at_any:
            free = np.full(int(np.count_nonzero(is_open)), np.inf)
            parts.append((rows[is_open], -free, free))
            at += len(free)
            continue
        (total, most), slopes = group.family.sums_near(here, near), group.family.slope(here)
        numbers = at - 1 + np.cumsum(is_open).reshape(is_open.shape)
        for i in np.flatnonzero(is_open.any(axis=1) & (total == most)):
            rest = float(total[i] - slopes[i] @ ~is_open[i])
            sums.append((numbers[i, is_open[i]], rest * float(omega[i, 0])))
        parts.append((rows[is_open], (omega * low)[is_open], (omega * high)[is_open]))
        at += int(np.count_nonzero(is_open))
    rows, low, high = (np.concatenate(each) for each in zip(*parts, strict=True))
    return _Open(rows, low, high, sums)


def _near_kinks(pieces: Pieces, s: Array, group: Group, share: float = NEAR) -> Array:
    """The distance at which kinks may be active; any for support functions of columns that a point does not tell."""
    near = _near(pieces, s, s[group.rows], share)
    return np.where(_by_local(pieces)[group.rows].any(axis=1), np.inf, near) if group.family.is_support else near


def _by_local(pieces: Pieces) -> np.ndarray:
    """Whether rows hold columns of graph forms, at which a point has no values."""
    local = np.setdiff1d(pieces.local, np.concatenate([np.arange(0), *(columns for columns, _ in pieces.values)]))
    if not len(local):
        return np.zeros(len(pieces.s0), dtype=bool)
    return np.asarray(abs(pieces.by_columns[:, local]).sum(axis=1) > 0)


def _near(pieces: Pieces, s: Array, here: Array, share: float = NEAR) -> Array:
    """The distance at which kinks may be active, relative to arguments and to the largest one of all functions."""
    most = max((float(np.abs(s[group.rows]).max(initial=0.0)) for group in pieces.groups), default=0.0)
    return np.asarray(share * (np.abs(here).max(axis=1) + most))


def _differs(low: Array, high: Array) -> np.ndarray:
    return np.asarray(high - low > SAME * (np.abs(low) + np.abs(high)))


def _of_predictions(form: CanonicalForm, pieces: Pieces, point: Iterate) -> tuple[Ints, Array]:
    """Rows with predictions that stand in no other row, and the multipliers that ν determines, in the mean."""
    S = pieces.by_columns
    u, nu = _predictions(form, pieces, point)
    alone = np.diff(S.indptr)[u] == 1
    u, nu = u[alone], nu[alone]
    rows, entries = S.indices[S.indptr[u]], S.data[S.indptr[u]]
    found, place = np.unique(rows, return_inverse=True)
    total = np.bincount(place, -(nu + pieces.c[u]) * entries, len(found))
    return found, total / np.bincount(place, entries**2, len(found))


def _outwards(pieces: Pieces, s: Array, slopes: list[Array], a: Array, known: np.ndarray) -> None:
    """Multipliers of rows below from functions within them that are known, and of the rows that have the same."""
    count = len(pieces.below)
    squares, products = np.zeros(count), np.zeros(count)
    for group, slope in zip(pieces.groups, slopes, strict=True):
        if group.is_outer:
            continue
        size = np.sum(slope**2, axis=1)
        near = _near(pieces, s, s[group.rows])
        smooth = ~_differs(*group.family.slopes_near(s[group.rows], near)).any(axis=1)
        usable = known[group.rows].all(axis=1) & (size > STEEP**2 * size.max(initial=0.0)) & smooth
        omega = np.sum(a[group.rows] * slope, axis=1) / np.where(size > 0, size, 1.0)
        W = group.weights
        owner = np.repeat(np.arange(len(group.rows)), np.diff(W.indptr))
        only = np.bincount(owner, W.indices > 0, len(group.rows)) == 1
        inner = (W.indices > 0) & (usable & only)[owner]
        row, w, of = W.indices[inner] - 1, W.data[inner], owner[inner]
        np.add.at(products, row, w * size[of] * (omega - group.costs)[of])
        np.add.at(squares, row, w**2 * size[of])
    some = np.flatnonzero((squares > 0) & ~known[pieces.below])
    rows, twins = pieces.below[some], pieces.twins
    a[rows], known[rows] = np.maximum(products[some] / squares[some], 0.0), True
    a[twins.row[rows]], known[twins.row[rows]] = twins.sign[rows] * a[rows], True
