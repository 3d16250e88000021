"""Moving a point into a dual cone, and measuring how far a point is outside of a primal one."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.conic_form import Cones
from kernelopt.support.types import Array

# Distance kept from a cone's boundary, relative to the numbers that are compared: 45 eps, so that rounding of few terms
# does not lead outside. Logarithms count with their size, and eigenvalues of order n with 4(n + 1) times the norm: the
# proof allows for three times less. Larger values move z further from what it must balance.
ROOM = 1e-14


def into_dual(z: Array, cones: Cones, A: sp.csc_array) -> Array:
    """A point of K* close to z, exact in floating point.

    A holds the columns whose products with z must stay as they are: an entry whose row is empty in A may move freely.
    Second-order cones raise their head, or shrink their tail where A has entries for the head only; semidefinite cones
    raise their diagonal, power cones shrink their last entry, and exponential cones raise v or w:
    −u e^{v/u} ≤ e·w  ⟺  v ≥ u(1 + ln(−w/u)) for u < 0.
    """
    z = z.copy()
    touched = np.diff(A.tocsr().indptr) > 0
    for kind, rows, extra in cones.slices:
        part = z[rows]
        match kind:
            case "nonneg":
                np.maximum(part, 0.0, out=part)
            case "soc":
                head, tail = rows.start, slice(rows.start + 1, rows.stop)
                length = float(np.linalg.norm(part[1:]))
                if touched[head] and not touched[tail].any():
                    part[0] = max(part[0], 0.0)
                    part[1:] *= min(1.0, part[0] / length * (1 - ROOM)) if length else 1.0
                else:
                    part[0] = max(part[0], length * (1 + ROOM))
            case "psd":
                lowest = float(np.linalg.eigvalsh(matrix(part, extra))[0])
                least = ROOM * (extra + 1) * float(np.linalg.norm(part))
                if lowest < least:  # eigenvalues are computed with errors of about n·eps·‖part‖
                    part[_diagonal(extra)] += 2 * least - lowest
            case "power" | "generalized_power":
                a = np.array([extra, 1 - extra]) if kind == "power" else np.asarray(extra)
                np.maximum(part[:-1], 0.0, out=part[:-1])
                with np.errstate(divide="ignore", invalid="ignore"):
                    logarithms = np.abs(np.where(part[:-1] > 0, np.log(part[:-1] / a), 0.0))
                room = ROOM * (1 + 2 * float(a @ logarithms))
                bound = float(np.prod((part[:-1] / a) ** a)) * (1 - room)
                part[-1] = np.clip(part[-1], -bound, bound)
            case "exp":
                z[rows] = _into_dual_exponential(part.reshape(-1, 3), touched[rows].reshape(-1, 3)).ravel()
    return z


def _into_dual_exponential(z: Array, touched: Array) -> Array:
    u, v, w = np.minimum(z[:, 0], 0.0), z[:, 1].copy(), np.maximum(z[:, 2], 0.0)
    inside = u < 0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        logarithm = np.where(inside, np.log(w / -u), 0.0)
        lowest_v = np.where(inside, u * (1 + logarithm) - ROOM * u * (2 + np.abs(logarithm)), 0.0)
        logarithm = np.where(inside, v / u - 1, 0.0)
        lowest_w = np.where(inside, -u * np.exp(logarithm) * (1 + ROOM * (2 + np.abs(logarithm))), 0.0)
    raise_w = (touched[:, 1] & ~touched[:, 2]) | ~np.isfinite(lowest_v)
    w = np.where(raise_w, np.maximum(w, lowest_w), w)
    # Where v is free, y = b ≥ 0 is constant: the least feasible v gives the best bound −bᵀz.
    v = np.where(raise_w, v, np.where(touched[:, 1], np.maximum(v, lowest_v), lowest_v))
    v = np.where(inside | raise_w, v, np.maximum(v, 0.0))
    return np.stack([u, v, w], axis=1)


def violation(s: Array, cones: Cones) -> float:
    """The smallest shift along each cone's axis that brings s into K; 0 inside."""
    worst = 0.0
    for kind, rows, extra in cones.slices:
        part = s[rows]
        match kind:
            case "zero":
                outside = float(np.abs(part).max())
            case "nonneg":
                outside = float(-part.min())
            case "soc":
                outside = float(np.linalg.norm(part[1:]) - part[0])
            case "psd":
                outside = -float(np.linalg.eigvalsh(matrix(part, extra))[0])
            case "exp":
                outside = _outside_exponential(*part.reshape(-1, 3).T)
            case _:
                a = np.array([extra, 1 - extra]) if kind == "power" else np.asarray(extra)
                outside = max(float(-part[:-1].min()), abs(part[-1]) - float(np.prod(part[:-1].clip(0.0) ** a)))
        worst = max(worst, outside)
    return worst


def _outside_exponential(x: Array, y: Array, t: Array) -> float:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        beyond = np.where(y > 0, y * np.exp(np.minimum(x / y, 700.0)) - t, x)
    return float(np.maximum.reduce([-t, -y, beyond]).max())


def matrix(packed: Array, n: int) -> Array:
    """The symmetric matrix of an upper triangle, packed by columns with off-diagonals times √2 (Clarabel's order)."""
    M = np.zeros((n, n))
    rows, columns = _upper(n)
    M[rows, columns] = packed / np.where(rows == columns, 1.0, np.sqrt(2.0))
    return np.asarray(M + np.triu(M, 1).T)


def packed(M: Array) -> Array:
    """The inverse of `matrix` for several symmetric matrices (n, n, count), as rows; inner products stay."""
    rows, columns = _upper(len(M))
    return np.asarray(M[rows, columns].T * np.where(rows == columns, 1.0, np.sqrt(2.0)))


def _upper(n: int) -> tuple[Array, Array]:
    columns, rows = np.tril_indices(n)
    return rows, columns


def _diagonal(n: int) -> Any:
    rows, columns = _upper(n)
    return np.flatnonzero(rows == columns)
