"""Points of dual cones near a given one, with room for rounding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kernelopt.pieces.spectral import Semidefinite
from kernelopt.support.types import Array, Ints

ROUNDS = 12  # of Newton's method for one number, which is near its root
LEAST = 1e-13  # relative: the room that rounding of logarithms takes, whatever the spare


class ConeBatch(NamedTuple):
    """Cones of one kind and size: their rows (m, k), and the order or exponents that they share."""

    kind: str
    rows: Ints
    extra: Any


def alike(cones: Sequence[tuple[str, Ints, Any]]) -> list[ConeBatch]:
    """Single cones in batches: many small matrices take the time of one."""
    found: dict[Any, list[tuple[str, Ints, Any]]] = {}
    for number, (kind, rows, extra) in enumerate(cones):
        found.setdefault((kind, len(rows)) if kind in ("soc", "psd") else number, []).append((kind, rows, extra))
    return [ConeBatch(some[0][0], np.array([rows for _, rows, _ in some]), some[0][2]) for some in found.values()]


@np.errstate(all="ignore")  # points that are far outside end in NaN, which proves nothing
def nearest(kind: str, z: Array, extra: Any, spare: float) -> Array:
    """Points of a dual cone near the rows of z, inside of it by a share `spare` of their size; those that are as they
    are."""
    if kind == "soc":
        return _of_second_order(z, spare)
    if kind == "psd":
        family, z = Semidefinite(int(extra)), -z
        z[:, family.heads] -= spare * np.abs(z).max(axis=1, initial=0.0, keepdims=True)
        return -family.nearest(z, np.ones(len(z)))
    if kind == "exp":
        return _of_exponentials(z.reshape(-1, 3), spare + LEAST).reshape(z.shape)
    alpha = np.array([extra, 1 - extra]) if kind == "power" else np.asarray(extra)
    return np.array([_of_powers(row, alpha, spare + LEAST) for row in z])


def _of_second_order(z: Array, spare: float) -> Array:
    """z₀ ≥ (1 + spare)‖z̄‖."""
    length = np.linalg.norm(z[:, 1:], axis=1)
    middle = np.maximum((z[:, 0] + length) / 2, 0.0)
    tail = z[:, 1:] * np.where(length > 0, middle / length, 0.0)[:, None]
    moved = np.column_stack([middle * (1 + 2 * spare), tail])
    return np.where((z[:, 0] >= (1 + spare) * length)[:, None], z, moved)


def _of_exponentials(z: Array, spare: float) -> Array:
    """v ≥ φ(u, w) = u(1 + ln(w/(−u))) where u < 0 < w, and v ≥ 0 ≤ w at u = 0; moves are small relative to entries."""
    z = z.copy()
    z[:, 0], z[:, 2] = np.minimum(z[:, 0], 0.0), np.maximum(z[:, 2], 0.0)
    z[z[:, 2] == 0, 0] = 0.0
    flat = z[:, 0] == 0
    z[flat, 1] = np.maximum(z[flat, 1], 0.0)
    for _ in range(ROUNDS):
        u, v, w = z.T
        log = np.log(w / -u)
        short = np.where(flat, 0.0, u * (1 + log) - v + spare * (np.abs(v) + np.abs(u) * (1 + np.abs(log))))
        if not np.any(short > 0):
            break
        slope = np.column_stack([-log, np.ones(len(z)), -u / w])
        scaled = z**2 * slope
        total = np.sum(scaled * slope, axis=1)
        step = np.where(short > 0, short * (1 + 2 * spare) / np.where(total > 0, total, 1.0), 0.0)
        z = np.where(flat[:, None], z, z + np.clip(step[:, None] * scaled, -0.5 * np.abs(z), 0.5 * np.abs(z)))
    return z


def _of_powers(z: Array, alpha: Array, spare: float) -> Array:
    """Π(zᵢ/αᵢ)^αᵢ ≥ |w|, w the last entry: all zᵢ grow by one factor, by which w shrinks."""
    inside = np.maximum(z[:-1], 0.0)
    if not np.all(inside > 0):
        return np.append(inside, 0.0)
    logs = np.log(inside / alpha)
    short = np.log(np.abs(z[-1])) - alpha @ logs + spare * (2 + alpha @ np.abs(logs) + abs(np.log(abs(z[-1]))))
    factor = np.exp(max(short, 0.0) / 2) if z[-1] else 1.0
    return np.append(inside * factor, z[-1] / factor)
