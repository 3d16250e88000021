"""A problem in pieces as a sum of functions of one number each, where it is one.

    f(u, t, y) = Σⱼ hⱼ(sⱼ) + linear terms + g(t),   s = Eu + Fy

Maxima, sums of largest entries and log-sum-exp become such sums with a further column t each:

    w·max(x) = min w·t with t ≥ xₖ,   w·(sum of the c largest) = min w·c·t + Σ w·max(xₖ − t, 0),
    w·ln Σ e^(xₖ) = min w·t + Σ w·e^(xₖ − t) − w.

Entries of a sum of largest ones may be losses of one number each with the same least value m, as hinge losses:

    xₖ = max(αₖsₖ + βₖ, m, δₖ − γₖsₖ),   max(xₖ − t, 0) = max(αₖsₖ + βₖ − t, 0) + max(δₖ − γₖsₖ − t, 0) for t ≥ m,

and t ≥ m loses nothing, since for t < m all of the at least c entries are above t.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.collecting import Collected, at_most, with_column
from kernelopt.compiler.columns import columns_of_t, columns_of_u
from kernelopt.compiler.largest_losses import Inside, inside_of_sums
from kernelopt.compiler.level_sets import added_epigraphs, added_level_sets, added_lines
from kernelopt.compiler.separable import Lengths, Separable
from kernelopt.compiler.terms import Along, Bent, Interval, LogSumExp, SumOfLosses, pairs_of
from kernelopt.compiler.units import row_exponents
from kernelopt.pieces.custom import StatedFunction
from kernelopt.pieces.elementary import Exp, Smooth
from kernelopt.pieces.extremes import Largest, RowLogSumExp, SumOfLargest
from kernelopt.pieces.form import Group, Pieces
from kernelopt.pieces.function import Family
from kernelopt.pieces.norms import Radial, RowNorm
from kernelopt.pieces.quadratics import ABS, POS, Piecewise, many
from kernelopt.support import sparse
from kernelopt.support.arithmetic import UNIT
from kernelopt.support.types import Array, Ints

# Exponents of a log-sum-exp. Its curvature takes one row of s for each of the K(K − 1)/2 pairs, 45 for 10 exponents;
# larger ones become exponentials of one number each, with one more variable per log-sum-exp.
CLASSES = 10
# Roundings of a cost that are left where terms of a maximum cancel: no cost of its own.
CANCELLED = 8 * UNIT


def separated(pieces: Pieces, form: CanonicalForm) -> Separable | None:
    """The functions of one number each; None where the problem is no sum of such functions."""
    if pieces.cones or not len(columns_of_u(pieces, form)):
        return None
    S = sp.csr_array(pieces.by_columns)
    on_t = _touched(S, columns_of_t(pieces, form))
    inside = inside_of_sums(pieces, S, on_t)
    found = _with_inside(pieces, form, S, on_t, inside)
    if found is None and inside.groups:  # losses that are entries of several sums, or with several least values
        found = _with_inside(pieces, form, S, on_t, inside._replace(groups=frozenset(), below=inside.below[:0]))
    return found


def _with_inside(
    pieces: Pieces, form: CanonicalForm, S: sp.csr_array, on_t: NDArray[np.bool_], inside: Inside
) -> Separable | None:
    """The sum where the groups `inside` are entries of sums of largest ones."""
    empty = np.diff(S.indptr) == 0
    parts, base = Collected(pieces.c.copy()), np.zeros(len(pieces.s0))
    others = [number for number in range(len(pieces.groups)) if number not in inside.groups]
    within, held = added_epigraphs(parts, pieces, others, S, on_t)
    if len(pieces.bounds) and np.setdiff1d(pieces.below[pieces.bounds[:, 1]], np.append(inside.below, held)).size:
        return None
    for number, group in enumerate(pieces.groups):
        if number in inside.groups or number in within:
            continue
        if not group.is_outer:
            if not (added_level_sets(parts, group, pieces, S, empty) or added_lines(parts, group, pieces, S)):
                return None
            continue
        w = group.costs
        bare, touched = empty[group.rows].all(axis=1), on_t[group.rows].any(axis=1)
        if np.any(touched & (on_t[group.rows].sum(axis=1) > 1)):
            return None
        if bare.any():
            s = pieces.s0[group.rows[bare]]
            parts.constant += float(w[bare] @ group.family.take(np.flatnonzero(bare)).value(s))
            base[group.rows[bare]] = w[bare][:, None] * group.family.take(np.flatnonzero(bare)).slope(s)
        idle = (w == 0) & (isinstance(group.family, StatedFunction) and group.family.is_smooth)
        keep = np.flatnonzero(~bare & ~touched & ~idle)
        if len(keep):
            one = group if len(keep) == len(w) else group.take(keep)
            if not _added(parts, one, w[keep], S, pieces.s0, inside):
                return None
    if not _added_constraints(parts, pieces, S, on_t, empty):
        return None
    if inside.groups and parts.c[np.flatnonzero(inside.loss >= 0)].any():  # losses that cost something beside the sums
        return None
    return _assembled(parts, pieces, form, base)


def _added_constraints(
    parts: Collected, pieces: Pieces, S: sp.csr_array, on_t: NDArray[np.bool_], empty: NDArray[np.bool_]
) -> bool:
    """Linear constraints; False where one of constants is a contradiction, which no engine of ours proves."""
    within, exponents = np.zeros(len(pieces.s0), dtype=bool), row_exponents(pieces)
    for group in pieces.groups:  # rows with functions
        within[pieces.below[group.weights.indices[group.weights.indices > 0] - 1]] = True
    for rows, equal in ((pieces.below, False), (pieces.equal, True)):
        s0 = pieces.s0[rows]
        holds = empty[rows] & ((s0 == 0) if equal else (s0 <= 0))
        own = rows[~within[rows] & ~on_t[rows] & ~holds]
        if empty[own].any():
            return False
        if not len(own):
            continue
        rate, part = 2.0 ** exponents[own], S[own]
        part.data /= np.repeat(rate, np.diff(part.indptr))
        at = parts.put(part, own)
        b = -pieces.s0[own] / rate
        parts.use(Interval(at, b if equal else np.full_like(b, -inf), b))
        parts.returns(own, at, 1 / rate)
    return True


def _touched(S: sp.csr_array, columns: Ints) -> NDArray[np.bool_]:
    """Whether some of the columns stand in each row."""
    some = np.zeros(S.shape[1])
    some[columns] = 1.0
    return np.asarray(np.bincount(np.repeat(np.arange(S.shape[0]), np.diff(S.indptr)), some[S.indices], S.shape[0]) > 0)


def _assembled(parts: Collected, pieces: Pieces, form: CanonicalForm, base: Array) -> Separable:
    n = pieces.n + len(parts.extra)
    S, costs = sparse.stacked(parts.rows, n), np.append(parts.c, parts.extra)
    u, t = columns_of_u(pieces, form), columns_of_t(pieces, form)
    used = costs != 0
    used[S.indices] = True
    users = np.concatenate([np.arange(0), *(pieces.columns.get(v.id, np.arange(0)) for v in form.y)]).astype(int)
    users = users[used[users]]
    used[np.concatenate([u, t, users])] = False
    y = np.concatenate([users, np.flatnonzero(used)])
    none = np.arange(0), np.arange(0), np.zeros(0)
    rows, at, factor = (np.concatenate(several) for several in zip(none, *parts.back, strict=True))
    E, F = (sparse.columns(S, _places(own, n), len(own)) for own in (u, y))
    back = sp.csr_array((factor, (rows, at)), shape=(len(pieces.s0), parts.m))
    return Separable(
        u, y, E, F, costs[u], costs[y], tuple(parts.terms),
        np.concatenate([np.arange(0), *parts.plain]), back, base, n, len(users), parts.constant, tuple(parts.sums),
    )  # fmt: skip


def _places(chosen: Ints, n: int) -> Ints:
    """The place of each of n columns among chosen ones, −1 of others."""
    found = np.full(n, -1)
    found[chosen] = np.arange(len(chosen))
    return found


def _added(parts: Collected, group: Group, w: Array, S: sp.csr_array, s0: Array, inside: Inside) -> bool:  # noqa: PLR0917
    """Whether the functions of a group could be added."""
    family, k = group.family, group.rows.shape[1]
    if k == 1:
        return _of_one(parts, group, w, S, s0)
    curved = w > 0
    if not curved.all():
        group, w = group.take(np.flatnonzero(curved)), w[curved]
    if isinstance(family, RowNorm) and family.p == inf:
        _largest_size(parts, group, w, S, s0)
        return True
    if not isinstance(family, (Largest, SumOfLargest, RowLogSumExp)):
        return False
    if inside.groups and isinstance(family, SumOfLargest):
        return _of_losses(parts, group, w, S, s0, inside)
    _of_rows(parts, group, w, S, s0)
    return True


# ---------------------------------------------------------------- functions of one number


def _of_one(parts: Collected, group: Group, w: Array, S: sp.csr_array, s0: Array) -> bool:
    """Functions h(rate·s + shift), with s scaled so that its largest coefficient is 1."""
    rows, family = group.rows[:, 0], group.family
    part = sp.csr_array(S[rows])
    rate, shift = _pivots(part), s0[rows]
    at = np.arange(parts.m, parts.m + len(rows))
    found = _term(family, at, w, rate, shift)
    if found is None:
        return False
    part.data = part.data / np.repeat(rate, np.diff(part.indptr))
    parts.put(part)
    parts.use(found)
    parts.returns(rows, at, 1 / rate)
    return True


def _pivots(S: sp.csr_array) -> Array:
    """The entry of each row with the largest size, the first of several."""
    starts = S.indptr[:-1]
    largest = np.maximum.reduceat(np.abs(S.data), starts)
    hits = np.flatnonzero(np.abs(S.data) == np.repeat(largest, np.diff(S.indptr)))[::-1]
    found, row = np.zeros(S.shape[0]), np.repeat(np.arange(S.shape[0]), np.diff(S.indptr))
    found[row[hits]] = S.data[hits]  # of several, the first is written last
    return found


def _term(family: Family, at: Ints, w: Array, rate: Array, shift: Array) -> Along | Bent | None:
    """w·h(rate·s + shift) as a function of s."""
    match family:
        case Piecewise():
            return _bent(many(family, len(at)) if len(family) == 1 else family, at, w, rate, shift)
        case RowNorm():
            return _bent(many(ABS, len(at)), at, w, rate, shift)
        case Radial(shape=shape) if _is_length(shape):
            return _bent(many(ABS, len(at)), at, w, rate, shift)
        case Smooth():
            return Along(at, family, w, rate, shift)
    return None


def _is_length(shape: Piecewise) -> bool:
    """Whether a function of the length is the length itself."""
    return bool(
        shape.knots.shape[1] == 1 and not shape.knots.any()
        and np.array_equal(shape.coefficients, np.broadcast_to(POS.coefficients[0], shape.coefficients.shape))
    )  # fmt: skip


def _bent(family: Piecewise, at: Ints, w: Array, rate: Array, shift: Array) -> Bent:
    """w·h(rate·s + shift)."""
    return Bent(at, family.times(w).along(rate, shift))


# ---------------------------------------------------------------- functions of several numbers


def _largest_size(parts: Collected, group: Group, w: Array, S: sp.csr_array, s0: Array) -> None:
    """w·max |xₖ|:  w·t with t ≥ xₖ and t ≥ −xₖ."""
    rows, owner = group.rows.ravel(), np.repeat(np.arange(len(w)), group.rows.shape[1])
    t = S.shape[1] + len(parts.extra) + owner
    parts.extra += w.tolist()
    for sign in (1.0, -1.0):
        at = parts.put(with_column(sign * sp.csr_array(S[rows]), t, -1.0))
        parts.use(at_most(at, -sign * s0[rows]))
        parts.returns(rows, at, np.full(len(rows), sign))


def _of_rows(parts: Collected, group: Group, w: Array, S: sp.csr_array, s0: Array) -> None:
    """Maxima, sums of largest entries and log-sum-exp of k entries x − x̄ and of 0: those of k + 1 entries x and x̄."""
    family, (m, k) = group.family, group.rows.shape
    rows, owner = group.rows.ravel(), np.repeat(np.arange(m), k)
    last = sp.csr_array((m, S.shape[1])) if group.base is None else group.base
    every = sp.csr_array(S[rows] + last[owner])
    every.eliminate_zeros()
    share = w * (family.count if isinstance(family, SumOfLargest) else 1.0)
    _take_off(parts.c, last, share)
    if isinstance(family, RowLogSumExp) and k < CLASSES:
        scores = [sp.csr_array(every[j::k]) for j in range(k)] + [last]
        i, j = pairs_of(k + 1)
        at = parts.put(sp.csr_array(sp.vstack([*scores, *(scores[a] - scores[b] for a, b in zip(i, j, strict=True))])))
        shifts = np.vstack([s0[group.rows].T, np.zeros(m)])
        parts.use(LogSumExp(at, w, shifts))
        parts.returns(group.rows.T.ravel(), at[: k * m], np.ones(k * m))
        return
    t = S.shape[1] + len(parts.extra) + np.arange(m)
    parts.extra += share.tolist()
    parts.constant -= float(w.sum()) if isinstance(family, RowLogSumExp) else 0.0
    both = [(with_column(every, t[owner], -1.0), s0[rows], w[owner]), (with_column(last, t, -1.0), np.zeros(m), w)]
    for number, (part, shift, weight) in enumerate(both):
        at, ones = parts.put(part), np.ones(part.shape[0])
        if isinstance(family, Largest):
            parts.use(at_most(at, -shift))
        elif isinstance(family, SumOfLargest):
            parts.use(_bent(many(POS, len(at)), at, weight, ones, shift))
        else:
            parts.use(Along(at, Exp(), weight, ones, shift))
        if number == 0:
            parts.returns(rows, at, ones)


def _of_losses(parts: Collected, group: Group, w: Array, S: sp.csr_array, s0: Array, inside: Inside) -> bool:  # noqa: PLR0917
    """Sums of the largest of losses; False where some entry is none, or their least values differ."""
    assert isinstance(group.family, SumOfLargest)
    m, k = group.rows.shape
    last = sp.csr_array((m, S.shape[1])) if group.base is None else group.base
    every = sp.csr_array(sp.vstack([S[group.rows.ravel()] + last[np.repeat(np.arange(m), k)], last]))
    every.eliminate_zeros()
    if not m or s0[group.rows].any() or np.any(np.diff(every.indptr) != 1) or np.any(every.data != 1):
        return False
    losses = inside.loss[every.indices]
    least = inside.least[losses]
    if (
        losses.min() < 0
        or np.ptp(least) > CANCELLED * np.abs(inside.levels).max()
        or len(np.unique(losses)) < len(losses)
    ):
        return False
    owner = np.append(np.repeat(np.arange(m), k), np.arange(m))
    share = w * group.family.count
    _take_off(parts.c, last, share)
    t = S.shape[1] + len(parts.extra) + np.arange(m)
    parts.extra += share.tolist()
    of_last = [np.arange(0) for _ in range(m)]
    for side in range(2):
        some = np.flatnonzero(inside.slopes[losses, side])
        of, slope = inside.rows[losses[some]], inside.slopes[losses[some], side]
        at = parts.put(with_column(sp.csr_array(sp.diags_array(slope) @ S[of]), t[owner[some]], -1.0))
        shift = slope * s0[of] + inside.levels[losses[some], side]
        parts.use(_bent(many(POS, len(at)), at, w[owner[some]], np.ones(len(at)), shift))
        parts.returns(of, at, slope)
        parts.returns(inside.below[losses[some]], at, np.ones(len(at)))
        own = some < m * k
        parts.returns(group.rows.ravel()[some[own]], at[own], np.ones(int(own.sum())))
        of_last = [np.append(known, at[some == m * k + i]) for i, known in enumerate(of_last)]
    at = parts.put(with_column(sp.csr_array((m, S.shape[1])), t, -1.0))
    parts.use(at_most(at, np.full(m, -least.max())))
    bounds = inside.below[losses]
    for i in range(m):
        own = np.append(bounds[: m * k].reshape(m, k)[i], bounds[m * k + i])
        parts.sums.append(SumOfLosses(group.rows[i], own, of_last[i], w[i], group.family.count))
    return True


def _take_off(c: Array, last: sp.csr_array, share: Array) -> None:
    """Costs without those of x̄, which are in the cost of t now; what is left of it by rounding is none."""
    taken = last.T @ share
    left = c - taken
    c[:] = np.where(np.abs(left) <= CANCELLED * (np.abs(c) + np.abs(taken)), 0.0, left)


# ---------------------------------------------------------------- what norms cost


class _OfNorms(NamedTuple):
    """What stands in the rows of norms: the columns of t, their least upper bounds, and squares (number of the group,
    which of its functions, of which t, and the curvature of one of weight 1)."""

    t: Ints
    limit: Array
    squares: list[tuple[int, Ints, Ints, Array]]


def lengths_of(pieces: Pieces, form: CanonicalForm) -> Lengths | None:
    """g(t) = slope·t + ½curvature·t² on 0 ≤ t ≤ limit for each norm; None where the costs of some t are others."""
    found = pieces.once("norms", lambda _: _of_norms(pieces, form))
    if found is None:
        return None
    curvature = np.zeros(len(found.t))
    for number, mine, which, bend in found.squares:
        np.add.at(curvature, which, pieces.groups[number].costs[mine] * bend)
    return Lengths(pieces.c[found.t], curvature, found.limit)


def _of_norms(pieces: Pieces, form: CanonicalForm) -> _OfNorms | None:
    t, S, squares = columns_of_t(pieces, form), sp.csr_array(pieces.by_columns), []
    number, limit, on_t = np.full(pieces.n, -1), np.full(len(t), inf), _touched(S, t)
    number[t] = np.arange(len(t))
    if np.any(on_t & (np.diff(S.indptr) > 1)):
        return None
    which, value = np.full(S.shape[0], -1), np.zeros(S.shape[0])
    rows = np.flatnonzero(on_t)
    which[rows], value[rows] = number[S.indices[S.indptr[rows]]], S.data[S.indptr[rows]]
    for place, group in enumerate(pieces.groups):
        mine = np.flatnonzero(on_t[group.rows].any(axis=1))
        if not len(mine):
            continue
        rows, family = group.rows[mine, 0], group.family.take(mine)
        if group.rows.shape[1] > 1 or not group.take(mine).is_outer or not isinstance(family, Piecewise):
            return None
        if not _is_square(family) or pieces.s0[rows].any():
            return None
        squares.append((place, mine, which[rows], family.coefficients[:, 0, 2] * value[rows] ** 2))
    if on_t[pieces.equal].any():
        return None
    below = pieces.below[on_t[pieces.below]]
    at, a, b = which[below], value[below], -pieces.s0[below]
    if np.any((a < 0) & (b < 0)):
        return None  # a lower bound above 0
    np.minimum.at(limit, at[a > 0], b[a > 0] / a[a > 0])
    return None if np.any(limit < 0) else _OfNorms(t, limit, squares)


def _is_square(family: Piecewise) -> bool:
    """Whether all functions are multiples of squares."""
    return not np.isfinite(family.knots).any() and not family.coefficients[:, 0, :2].any()


def tightest(pieces: Pieces, form: CanonicalForm, of_norms: Array) -> Array:
    """Multipliers of rows a·t + b ≤ 0, given those of the bounds on t: the tightest one has it, divided by a."""
    S, z = pieces.by_columns, np.zeros(len(pieces.s0))
    for j, value in zip(columns_of_t(pieces, form), of_norms, strict=True):
        rows, a = (part[S.indptr[j] : S.indptr[j + 1]] for part in (S.indices, S.data))
        upper = np.flatnonzero((a > 0) & pieces.is_below[rows])
        if len(upper) and value:
            best = upper[np.argmin(-pieces.s0[rows[upper]] / a[upper])]
            z[rows[best]] = value / a[best]
    return z
