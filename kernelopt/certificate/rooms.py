"""How far multipliers of rows may move: the squared room W = diag(d) + Z·diag(signs)·Zᵀ in their domains, and steps.

A step δ = WMq with MᵀWMq = −r removes residuals r of columns M. Multipliers of functions inside of others move with the
weights of these: (I − T)⁻¹δ.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from kernelopt.certificate.pieces_checker import cones
from kernelopt.pieces.extremes import Largest, RowLogSumExp, SumOfLargest
from kernelopt.pieces.form import Group, Pieces
from kernelopt.pieces.function import OfOneNumber
from kernelopt.pieces.norms import Radial, RowNorm, dual_exponent
from kernelopt.support.long_rows import are_long, solution
from kernelopt.support.types import Array

TURNS = 6  # of projections and sums, where functions are inside of functions
DENSE = 60  # columns up to which a step's equations are solved as dense ones
REGULAR = 1e-13  # relative: added to the diagonal of larger ones, which may be singular
SLIGHT = 1e-6  # relative to an entry: the room of entries in cones whose room is not computed
SCALED = 10.0  # how much farther all entries of such a cone may move together, which keeps them in it
LOW = 1e-3  # relative to the largest entry of a cone: smaller ones have room as if they were that large
KNOWN = 1e-12  # relative: the distance of a norm's multipliers from the end of their domain that is taken for granted


class Rooms(NamedTuple):
    """The squared room of all rows, W = diag(d) + Z·diag(signs)·Zᵀ; the room of single ones; and T.

    A sign is −1 for the direction of an end of a domain, and 1 for one in which multipliers of a cone are scaled.
    """

    d: Array
    Z: sp.csc_array
    signs: Array
    single: Array
    T: sp.csr_array

    def pulled(self, M: sp.csc_array) -> sp.csc_array:
        """(I − Tᵀ)⁻¹M."""
        found, more = M, M
        for _ in range(TURNS if self.T.nnz else 0):
            more = sp.csc_array(self.T.T @ more)
            if not more.nnz:
                break
            found = found + more
        return sp.csc_array(found)

    def pushed(self, step: Array) -> Array:
        """(I − T)⁻¹δ."""
        more = step
        for _ in range(TURNS if self.T.nnz else 0):
            more = self.T @ more
            if not more.any():
                break
            step = step + more
        return step


def rooms_of(pieces: Pieces, a: Array, spare: float, floor: float) -> Rooms:
    """The room of all rows whose multipliers are their own; that of weights is what the spare leaves to functions."""
    m, twins, w, below, equal = len(a), pieces.twins, np.append(1.0, a[pieces.below]), pieces.below, pieces.equal
    room, usual = np.zeros(m), np.abs(a).mean() if m else 0.0
    room[below], room[equal] = np.abs(a[below]), np.abs(a[equal]) + usual
    d, nested, at = np.maximum(room, floor * np.abs(a).max(initial=0.0)) ** 2, list[sp.csr_array](), 0
    normals, scalings = [(np.zeros(0), np.arange(0), np.arange(0))], list[int]()
    for group in pieces.groups:
        omega, rows = group.omega(w), group.rows
        some = omega[:, None] > 0
        parts = _room(group, a[rows], omega, floor, SLIGHT * float(usual))
        d[rows], z, room[rows] = (np.where(some, part, 0.0) for part in parts)
        if z.any():
            normals.append((z.ravel(), rows.ravel(), at + np.repeat(np.arange(len(z)), z.shape[1])))
            at += len(z)
        if not group.is_outer:
            W, inner = group.weights, group.weights.indices > 0
            function = np.repeat(np.arange(len(rows)), np.diff(W.indptr))[inner]
            owner = below[W.indices[inner] - 1]
            share = np.where(omega[function] > 0, W.data[inner] / omega[function] * twins.sign[owner], 0.0)
            values, own = a[rows[function]] * share[:, None], twins.row[owner]
            place = rows[function].ravel(), np.repeat(own, rows.shape[1])
            nested.append(sp.csr_array((values.ravel(), place), shape=(m, m)))
            room[own] = np.minimum(room[own], spare / 4 * np.abs(a[own]))
    for kind, rows, _ in cones(pieces) if pieces.cones else ():
        z = -a[rows]
        if kind == "soc" and z[0] > 0:
            length = float(np.linalg.norm(z[1:]))
            rest = 1 - length / z[0]
            d[rows], room[rows] = z[0] ** 2, max(rest, 0.0) * z[0] / (2 * np.sqrt(len(z)))
            normal = np.append(1.0, -z[1:] / (length or 1.0)) * z[0]
            normal *= np.sqrt(max(1 - max(rest, floor) ** 2, 0.0) / 2)
            normals.append((normal, rows, np.full(len(z), at)))
            at += 1
            continue
        room[rows] = spare / 4 * np.abs(z)
        for part in np.arange(len(z)).reshape((-1, 3) if kind == "exp" else (1, -1)):
            size = np.maximum(np.abs(z[part]), LOW * np.abs(z[part]).max(initial=0.0))
            d[rows[part]] = (SLIGHT * size) ** 2
            normals.append((SCALED * SLIGHT * z[part], rows[part], np.full(len(part), at)))
            scalings.append(at)
            at += 1
    alone = twins.row == np.arange(m)
    entries, at_rows, numbers = (np.concatenate(part) for part in zip(*normals, strict=True))
    Z = sp.csc_array((entries * alone[at_rows], (at_rows, numbers)) if at else (m, 0), shape=(m, at))
    T = sum(nested[1:], nested[0]) if nested else sp.csr_array((m, m))
    signs = np.full(at, -1.0)
    signs[scalings] = 1.0
    return Rooms(d * alone, Z, signs, room * alone, T)


def _room(group: Group, a: Array, w: Array, floor: float, least: float) -> tuple[Array, Array, Array]:
    """d and z (m, k), W = diag(d) − zz′ the squared room of each function's multipliers; and that of single ones.

    Where a domain is endless it is as long as usual, and at least `least`. It is short across an end of the domain, and
    along it as long as the multipliers themselves.
    """
    family, k, W, size, none = group.family, a.shape[1], w[:, None], np.abs(a), np.zeros_like(a)
    length = np.linalg.norm(a, axis=1)[:, None]
    usual = length + (max(float(length.mean()), least) or 1.0)
    if isinstance(family, OfOneNumber):
        low, high = (end[:, None] for end in family.ends(w))
        room = np.minimum(np.minimum(a - low, high - a), usual).clip(0)
        return np.where(low < high, np.maximum(room, floor * usual) ** 2, 0.0), none, room
    if isinstance(family, (Largest, RowLogSumExp, SumOfLargest)):
        total = a.sum(axis=1, keepdims=True)
        if isinstance(family, SumOfLargest):
            room, rest = np.minimum(a, W - a), np.minimum(family.count * W - total, total - (family.count - 1) * W)
            d = np.maximum(room, floor * W / k) ** 2
        else:
            room, rest, d = a, W - total, W * np.maximum(a, floor * W / k)
        return d, _across(d, np.ones_like(a), (rest / W).clip(floor, 1)), np.minimum(room, rest / k).clip(0)
    if isinstance(family, Radial):
        most = family.shape.ends(w)[1][:, None]
        d, room = np.minimum(usual, most) ** 2 + none, np.minimum(most - length, usual).clip(0)
        return d, _across(d, a, (1 - length / most).clip(0, 1)), room / (2 * np.sqrt(k)) + none
    if isinstance(family, RowNorm) and family.p > 1:
        q, unit = dual_exponent(family.p), np.where(length > 0, length, 1.0)
        most = unit * np.linalg.norm(size / unit, q, axis=1)[:, None]
        normal = np.sign(a) * (size / unit) ** (q - 1)
        return size**2, _across(size**2, normal, (1 - most / W).clip(0, 1)), (W - most).clip(0) / (2 * k) + none
    if isinstance(family, RowNorm):
        room = (W - size).clip(0)
        return np.maximum(room, floor * W) ** 2, none, room
    return length**2 / k + none, none, 0.25 * KNOWN * np.minimum(W, length) / np.sqrt(k) + none


def _across(d: Array, normal: Array, rest: Array) -> Array:
    """z for which diag(d) − zz′ has in the direction of a normal n only the share rest² of n′diag(d)n."""
    total = np.sum(d * normal**2, axis=1, keepdims=True)
    return d * normal * np.sqrt((1 - rest**2) / np.where(total > 0, total, 1.0))


def step(rooms: Rooms, M: sp.csc_array, left: Array, D: Array) -> tuple[Array, Array]:
    """(I − T)⁻¹WMq with (MᵀWM + DDᵀ)q = −left, and q; Dᵀq are the steps of other numbers, whose room is 1."""
    Y, long = sp.csr_array(rooms.Z.T @ M), are_long(M) & (rooms.d > 0)
    rows, wide = sp.csr_array(M), are_long(Y)
    G = sp.csc_array(M.T @ (np.where(long, 0.0, rooms.d)[:, None] * M))
    G = sp.csc_array(G + Y[~wide].T @ (rooms.signs[~wide, None] * Y[~wide]))
    if D.size:
        G = sp.csc_array(G + D @ D.T)
    L, w = sp.vstack([rows[long], Y[wide]]), np.concatenate([rooms.d[long], rooms.signs[wide]])
    if len(left) <= DENSE:
        q = _dense_solution(G.toarray() + L.T @ (w[:, None] * L), -left)
    else:
        q = solution(G, L, w, -left, REGULAR)
    return rooms.pushed(rooms.d * (M @ q) + rooms.Z @ (rooms.signs * (Y @ q))), q


def _dense_solution(G: Array, right: Array) -> Array:
    """The least-squares solution of a system that may be singular, scaled to a unit diagonal."""
    size = np.sqrt(np.maximum(np.diag(G), 0.0))
    unit = np.where(size > 0, 1 / np.where(size > 0, size, 1.0), 0.0)
    G = unit[:, None] * G * unit
    if not (np.isfinite(G).all() and np.isfinite(right).all()):  # LAPACK would print its complaint
        raise np.linalg.LinAlgError("the rooms of rows are too far apart")
    return np.asarray(unit * np.linalg.lstsq(G, unit * right, rcond=REGULAR)[0])
