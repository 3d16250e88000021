"""Multipliers in rationals: free columns vanish exactly, and norms of one θ add up to ν exactly."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from kernelopt import check
from kernelopt.certificate.checker import Free
from kernelopt.certificate.claim import Dual
from kernelopt.support.types import Array


def balanced(free: Free, dual: Dual) -> list[Fraction]:
    """Multipliers at which all free columns vanish: MΔ = −r for the pivot rows, in rationals.

    Elimination takes the equation with the fewest entries first, as most have one or two.
    """
    a = [Fraction(v) for v in dual.z.tolist()]
    owner = np.repeat(np.arange(len(free.owners)), np.diff(free.starts))
    own, R = np.isin(owner, dual.columns), set(dual.rows.tolist())
    system: dict[int, dict[int, Fraction]] = {j: {} for j in dual.columns.tolist()}
    right = dict.fromkeys(system, Fraction(0))
    for j, row, value in zip(owner[own].tolist(), free.rows[own].tolist(), free.values[own].tolist(), strict=True):
        exact = Fraction(value)
        right[j] -= exact * (a[row] if row < len(a) else 1)
        if row in R:
            system[j][row] = system[j].get(row, Fraction(0)) + exact
    for row, move in _solution(system, right).items():
        a[row] += move
    return a


def _solution(system: dict[int, dict[int, Fraction]], right: dict[int, Fraction]) -> dict[int, Fraction]:
    """The solution of a sparse system by elimination and substitution."""
    done = list[tuple[int, int]]()
    places: dict[int, set[int]] = {}
    for j, entries in system.items():
        for row in entries:
            places.setdefault(row, set()).add(j)
    left = set(system)
    while left:
        j = min(left, key=lambda k: len(system[k]))
        entries = {row: v for row, v in system[j].items() if v}
        if not entries:
            raise check.Refused("free columns that no pivot row moves")
        pivot = min(entries, key=lambda row: len(places[row] & left))
        for k in (places[pivot] & left) - {j}:
            factor = system[k].pop(pivot) / entries[pivot]
            right[k] -= factor * right[j]
            for row, v in entries.items():
                if row != pivot:
                    system[k][row] = system[k].get(row, Fraction(0)) - factor * v
                    places[row].add(k)
        left.discard(j)
        done.append((j, pivot))
    found: dict[int, Fraction] = {}
    for j, pivot in reversed(done):
        rest = sum((v * found[row] for row, v in system[j].items() if row != pivot), Fraction(0))
        found[pivot] = (right[j] - rest) / system[j][pivot]
    return found


def shared(nu: list[list[Fraction]], parts: list[list[list[Fraction]]], matrices: list[Array]) -> None:
    """Make Σ nMᵀ = ν hold exactly: what the doubles leave goes to a norm with a column that reads one output alone."""
    left = [list(v) for v in nu]
    for M, part in zip(matrices, parts, strict=True):
        for (k, column), m in np.ndenumerate(M):
            left[k] = [y - Fraction(m) * z for y, z in zip(left[k], part[column], strict=True)] if m else left[k]
    for k, v in enumerate(left):
        places = [
            (j, c) for j, M in enumerate(matrices) for c in np.flatnonzero(M[k]) if np.count_nonzero(M[:, c]) == 1
        ]
        if any(v) and not places:
            raise check.Refused("norms of combinations of outputs take no multiplier exactly")
        if any(v):
            j, c = places[0]
            m = Fraction(float(matrices[j][k, c]))
            parts[j][c] = [y + z / m for y, z in zip(parts[j][c], v, strict=True)]
