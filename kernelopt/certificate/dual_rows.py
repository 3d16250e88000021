"""A dual point of the cone data, from slopes of the separable functions that they consist of.

For h(s) = min over x of ½xᵀPx + cᵀx with Ax + as + (slack) = b, the multipliers z of its rows at a slope v solve

    Px + Aᵀz = −c,  aᵀz = v,  z ∈ K*.

Of several the one with the largest −bᵀz − ½xᵀPx is taken. This module proves no bound: the checker does.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import combinations

import numpy as np

from kernelopt.compiler.conic_form import ConicForm
from kernelopt.compiler.patterns import Batch, halves
from kernelopt.compiler.pieces import (
    Custom,
    Entropy,
    ExponentialPiece,
    Logarithm,
    LogComplement,
    LogSumExp,
    PowerPiece,
    Quadratic,
)
from kernelopt.compiler.separable import Separable, Source
from kernelopt.pieces.inverse import attained
from kernelopt.support.types import Array

# Relative: z is placed inside exponential and power cones by 32 or 16 times this, so that the checker can prove that it
# is inside. The checker allows 2·16u = 3.6e-15 for the rounding of logarithms, a ninth of 32e-15.
ROOM = 1e-15
SINGULAR = 1e-14  # relative: a smaller determinant of a system of two equations, or an inverse condition, is rounding
SLIGHT = 1e-9  # relative to the largest multiplier of a function: a set of active rows with z < −SLIGHT is no solution


@np.errstate(all="ignore")  # a z or tangent that is not finite is discarded below
def of_slopes(form: ConicForm, split: Separable, v: Array) -> tuple[Array, Array, list[Array]] | None:
    """(z, tangent, points) at slopes v.

    z are the multipliers of the functions' rows, 0 on others; tangent the slopes of ½Px² on columns of u; points the
    arguments of smooth losses. None where the multipliers of some function are not known.
    """
    z, tangent = np.zeros(len(form.b)), np.zeros(len(form.c))
    points = [np.full(len(smooth.g), smooth.loss.anywhere) for smooth in form.smooth]
    for piece, source in zip(split.pieces, split.sources, strict=True):
        slopes = v[piece.at]
        if isinstance(piece, Custom):
            q = _argument(piece, slopes)
            batch = source.batch
            assert batch is not None
            z[source.rows[:, 0]] = slopes / batch.a[:, 0]
            _place(form, source.columns[:, 0], q, points)
            continue
        if isinstance(piece, LogSumExp):
            z[source.rows] = _log_sum_exp(piece, source, slopes)
        elif source.batch is None:
            if source.rows.shape[1] > 1:
                z[source.rows] = 0.0  # a log-sum-exp of weight 0
            elif source.rows.shape[1]:
                z[source.rows[:, 0]] = slopes  # a row of its own
            else:
                tangent[source.columns[:, 0]] = np.where(np.isin(source.columns[:, 0], split.u), slopes, 0.0)
        else:
            found = _multipliers(piece, source.batch, slopes)
            if found is None:
                return None
            z[source.rows] = found
    return (z, tangent, points) if np.isfinite(z).all() and np.isfinite(tangent).all() else None


def _place(form: ConicForm, columns: Array, q: Array, points: list[Array]) -> None:
    """Store the arguments q of columns g in the arrays of their smooth losses."""
    for number, smooth in enumerate(form.smooth):
        order = np.argsort(smooth.g)
        at = np.searchsorted(smooth.g[order], columns).clip(0, len(order) - 1)
        mine = smooth.g[order[at]] == columns
        points[number][order[at[mine]]] = q[mine]


def _argument(piece: Custom, v: Array) -> Array:
    """q with ℓ′(q) = v/(weight·rate)."""
    fixed = piece.rate == 0
    slope = v / np.where(fixed, 1.0, piece.weight * piece.rate)
    hint = piece._last[0] if piece._last else np.full(len(v), piece.loss.anywhere)
    hint = np.where(piece.loss.inside(hint), hint, piece.loss.anywhere)
    found = attained(
        lambda q: piece.loss.gradient(q, piece.data), lambda q: piece.loss.hessian(q, piece.data),
        slope, hint, (piece.loss.low, piece.loss.high),
    )  # fmt: skip
    return np.where(fixed, piece.shift, found.q)


def _multipliers(piece: object, batch: Batch, v: Array) -> Array | None:
    """z of each function of a batch, (n, m)."""
    match piece:
        case Quadratic() if batch.kinds == ("zero",):
            return v[:, None] / batch.a  # aᵀz = v
        case Quadratic() if all(kind in ("zero", "nonneg") for kind in batch.kinds):
            return _by_active_sets(batch, v)
        case Quadratic():
            return _without_weight(batch, v)
        case ExponentialPiece(logistic=True):
            return _logistic(batch, v)
        case ExponentialPiece():
            return _exponential(batch, v)
        case Logarithm():
            return _logarithm(batch, v)
        case LogComplement():
            return _complement(batch, v)
        case Entropy():
            return _entropy(batch, v)
        case PowerPiece():
            return _power(batch, v)
        case _:
            return None


# ---------------------------------------------------------------- linear rows


def _by_active_sets(batch: Batch, v: Array) -> Array | None:
    """The best z ≥ 0 over all sets W of active rows; None where some function has none.

    For each W, x, s and z solve Px + A_Wᵀz = −c,  a_Wᵀz = v,  A_Wx + a_Ws = b_W. A function has few rows, so that all
    sets can be enumerated, and one set is solved for all functions of a batch at once.
    """
    n, m, k = batch.A.shape
    equal = [j for j, kind in enumerate(batch.kinds) if kind == "zero"]
    rest = [j for j in range(m) if j not in equal]
    none = ~batch.c.any(axis=1) & (v == 0)  # z = 0 solves these
    best, z = np.where(none, 0.0, -np.inf), np.zeros((n, m))
    fixed = np.concatenate([-batch.c, v[:, None]], axis=1)
    most = max(k + 1 - len(equal), 0)
    curved = bool(batch.P.any())
    least = 0 if curved else most  # without squares, fewer rows leave the system singular
    for size in range(least, min(len(rest), most) + 1):
        for chosen in combinations(rest, size):
            W = [*equal, *chosen]
            rows = np.concatenate([batch.A[:, W], batch.a[:, W, None]], axis=2)
            if not curved and len(W) == k + 1:  # the equations for z alone
                solved, before = _solved(np.swapaxes(rows, 1, 2), fixed), 0
            else:
                K = np.zeros((n, k + 1 + len(W), k + 1 + len(W)))
                K[:, np.arange(k), np.arange(k)] = batch.P
                K[:, : k + 1, k + 1 :], K[:, k + 1 :, : k + 1] = np.swapaxes(rows, 1, 2), rows
                solved, before = _solved(K, np.concatenate([fixed, batch.b[:, W]], axis=1)), k + 1
            if solved is None:
                continue
            part, x = np.zeros((n, m)), solved[:, :k]
            part[:, W] = solved[:, before:]
            unit = np.abs(part).max(axis=1, initial=0.0)
            good = np.isfinite(part).all(axis=1) & (part[:, rest].min(axis=1, initial=0.0) >= -SLIGHT * unit)
            value = -np.sum(batch.b * part, axis=1) - (0.5 * np.sum(batch.P * x**2, axis=1) if curved else 0.0)
            value = np.where(good, value, -np.inf)
            better = value > best
            best, z = np.where(better, value, best), np.where(better[:, None], part, z)
    z[:, rest] = np.maximum(z[:, rest], 0.0)
    return z if np.isfinite(best).all() else None


def _solved(K: Array, rhs: Array) -> Array | None:
    """K⁻¹rhs for matrices (n, d, d), with one factorization where all are equal; None where all are singular."""
    try:
        if np.all(K[:1] == K):
            if not len(K) or np.linalg.cond(K[0]) > 1 / SINGULAR:
                return None
            return np.asarray(np.linalg.solve(K[0], rhs.T).T)
        if K.shape[1] == 2:
            return _of_two(K, rhs)
        with suppress(np.linalg.LinAlgError):  # where none is singular
            return np.asarray(np.linalg.solve(K, rhs[:, :, None])[:, :, 0])
        scale = np.abs(np.linalg.det(K)) > 0
        if not scale.any():
            return None
        safe = np.where(scale[:, None, None], K, np.eye(K.shape[1]))
        return np.where(scale[:, None], np.linalg.solve(safe, rhs[:, :, None])[:, :, 0], np.nan)
    except np.linalg.LinAlgError:
        return None


def _of_two(K: Array, rhs: Array) -> Array | None:
    """The same for d = 2, by Cramer's rule: for a thousand of them LAPACK takes four times as long."""
    (a, b), (c, d), (r, s) = K[:, 0].T, K[:, 1].T, rhs.T
    one, other = a * d, b * c
    regular = np.abs(one - other) > SINGULAR * (np.abs(one) + np.abs(other))
    if not regular.any():
        return None
    return np.stack([r * d - b * s, a * s - r * c], axis=1) / np.where(regular, one - other, np.nan)[:, None]


# ---------------------------------------------------------------- exponential and power cones


def _without_weight(batch: Batch, v: Array) -> Array:
    """The multipliers of a cone without cost: 0, except for the slope at the end of a domain."""
    z = np.zeros((len(v), len(batch.kinds)))
    if batch.c.any():
        return np.full_like(z, np.nan)
    for j in range(len(batch.kinds) - 3, len(batch.kinds)):
        given = batch.a[:, j] != 0
        z[given, j] = v[given] / batch.a[given, j]
    return z


def _inner(u: Array, w: Array) -> Array:
    """The least v with (u, v, w) in the dual exponential cone, u(1 + ln(w/(−u))), with room for rounding."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithm = np.log(w / -u)
        return np.where(u < 0, u * (1 + logarithm) - 32 * ROOM * u * (2 + np.abs(logarithm)), 0.0)


def _exponential(batch: Batch, v: Array) -> Array:
    """weight·e^q: the auxiliary stands in the cone's last entry."""
    w = -batch.c[:, 0] / batch.A[:, 2, 0]
    u = np.minimum((v - batch.a[:, 2] * w) / batch.a[:, 0], 0.0)
    return np.stack([u, _inner(u, w), w], axis=1)


def _logarithm(batch: Batch, v: Array) -> Array:
    """−weight·log q: the auxiliary stands in the first entry, q in the last."""
    u = -batch.c[:, 0] / batch.A[:, 0, 0]
    w = np.maximum((v - batch.a[:, 0] * u) / batch.a[:, 2], 0.0)
    return np.stack([u, _inner(u, w), w], axis=1)


def _complement(batch: Batch, v: Array) -> Array:
    """−α·log(1 − e^q): in the cone of e^q u = −v, in that of the logarithm u = −α, and w = α + v in both."""
    inner, outer = halves(batch)
    z = np.zeros((len(v), 6))
    z[:, inner] = np.minimum(v / batch.a[:, inner], 0.0)
    z[:, outer] = batch.c.sum(axis=1)
    z[:, inner + 2] = z[:, outer + 2] = -z[:, inner] - z[:, outer]
    for first in (inner, outer):
        z[:, first + 1] = _inner(z[:, first], z[:, first + 2])
    return z


def _entropy(batch: Batch, v: Array) -> Array:
    """weight·q log q: the auxiliary stands in the first entry, q in the second; w = −u e^(v/u − 1)."""
    u = -batch.c[:, 0] / batch.A[:, 0, 0]
    middle = (v - batch.a[:, 0] * u) / batch.a[:, 1]
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        exponent = middle / u - 1
        w = np.where(u < 0, -u * np.exp(exponent) * (1 + 32 * ROOM * (2 + np.abs(exponent))), 0.0)
    return np.stack([u, middle, w], axis=1)


def _logistic(batch: Batch, v: Array) -> Array:
    """α·log(1 + e^q) = min αt over z₁ + z₂ ≤ 1, two cones (q − t, 1, z) and (−t, 1, z): w = α in both, u₁ + u₂ = −α."""
    n, pick = len(v), np.arange(len(v))
    weight = batch.c[pick, np.argmax(np.abs(batch.c), axis=1)]
    mover = np.where(np.abs(batch.a[:, 1]) > 0, 1, 4)
    u = np.clip(v / batch.a[pick, mover], -weight, 0.0)
    z = np.zeros((n, 7))
    z[:, 0] = z[:, 3] = z[:, 6] = weight
    z[pick, mover], z[pick, 5 - mover] = u, -weight - u
    z[:, 2], z[:, 5] = _inner(z[:, 1], weight), _inner(z[:, 4], weight)
    return z


def _log_sum_exp(piece: LogSumExp, source: Source, v: Array) -> Array:
    """α·log Σ e^(xₖ): w = α in all cones, uₖ = −vₖ."""
    K, n = piece.shift.shape
    z = np.zeros((n, 1 + 3 * K))
    z[:, 0] = piece.weight
    for k in range(K):
        u = np.minimum(-v[k * n : (k + 1) * n], 0.0)
        z[:, 1 + 3 * k], z[:, 3 + 3 * k] = u, piece.weight
        z[:, 2 + 3 * k] = _inner(u, piece.weight)
    return z


def _power(batch: Batch, v: Array) -> Array | None:
    """One power cone, xᵅy^(1−α) ≥ |z|: one entry is the auxiliary t with a cost, one is 1, and one is the argument."""
    first, k = len(batch.kinds) - 3, batch.A.shape[2]
    t = int(np.argmax(batch.c.any(axis=0)))
    A, a = batch.A[:, first:], batch.a[:, first:]
    place = int(np.argmax(A[:, :, t].any(axis=0)))
    if not A[:, place, t].all() or k > 2 or (k == 2 and place != 0):
        return None
    z, alpha = np.zeros((len(v), first + 3)), float(batch.kinds[-1].split()[1])
    held = -batch.c[:, t] / A[:, place, t]
    slope = v - a[:, place] * held
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if place == 0:  # t ≥ |x|^(1/α), x = q or an auxiliary that is at least ±q, 0
            w, u = _last(batch, slope, z, first, t), held
            z[:, first:] = np.stack([u, _second(u, w, alpha), w], axis=1)
        elif place == 2:  # −t ≤ qᵅ
            u = slope / a[:, 0]
            z[:, first:] = np.stack([u, _second(u, held, alpha), held], axis=1)
        else:  # t ≥ q^(−α/(1−α))
            u = slope / a[:, 0]
            room = 16 * ROOM * (60 + np.abs(np.log(u)) + np.abs(np.log(held)))
            w = -((u / alpha) ** alpha) * (held / (1 - alpha)) ** (1 - alpha) * (1 - room)
            z[:, first:] = np.stack([u, held, w], axis=1)
    return z


def _last(batch: Batch, slope: Array, z: Array, first: int, t: int) -> Array:
    """The multiplier of the cone's last entry; those of rows x ≥ ±q, x ≥ 0 are written to z."""
    if batch.A.shape[2] == 1:
        return np.asarray(slope / batch.a[:, first + 2])
    for j in range(first):  # the row whose multiplier has the sign of the slope
        fits = (batch.a[:, j] * slope > 0) & ~z[:, :j].any(axis=1)
        z[:, j] = np.where(fits, slope / batch.a[:, j], 0.0)
    return np.asarray(-np.sum(batch.A[:, :first, 1 - t] * z[:, :first], axis=1) / batch.A[:, first + 2, 1 - t])


def _second(u: Array, w: Array, alpha: float) -> Array:
    """The least v with (u/α)^α (v/(1 − α))^(1 − α) ≥ |w|, with room for rounding."""
    room = 16 * ROOM * (60 + np.abs(np.log(u)) + np.abs(np.log(np.where(w == 0, 1.0, np.abs(w)))))
    found = (1 - alpha) * (np.abs(w) / (u / alpha) ** alpha) ** (1 / (1 - alpha)) * (1 + room / (1 - alpha))
    return np.where(w == 0, 0.0, found)
