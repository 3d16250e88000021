"""Maxima of affine functions in a structured problem, whose multipliers stand in simplices.

A column t of y is the bound of a maximum, w·max over k of (sₖ − anchorₖ), where it stands in rows
sₖ − t ≤ anchorₖ alone, all in the same units, each with the bound of one maximum. Their multipliers are ≥ 0 and add up
to w: minimizing over t leaves a problem without t.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelopt.compiler.terms import Kinks
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array, Ints


@dataclass(frozen=True, eq=False)
class Maxima:
    """The maxima among the kinks.

    columns : the column of F of each maximum's t; units : its entries there, −1 for a plain t; weight : w of each;
    of : the maximum to which each kink belongs, −1 for none
    """

    columns: Ints
    units: Array
    weight: Array
    of: Ints

    @cached_property
    def places(self) -> list[tuple[Ints, Ints]]:
        """For each number of kinks that maxima have: these maxima, and their kinks, a row each."""
        kinks = np.flatnonzero(self.inside)
        kinks = kinks[np.argsort(self.of[kinks], kind="stable")]
        counts = np.bincount(self.of[kinks], minlength=len(self.columns))
        first = np.cumsum(counts) - counts
        found = []
        for size in np.unique(counts):
            which = np.flatnonzero(counts == size)
            found.append((which, kinks[first[which][:, None] + np.arange(size)]))
        return found

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Whether each kink belongs to a maximum."""
        return self.of >= 0


def found(F: Any, linear_y: Array, slope: Array, kinks: Kinks) -> Maxima:
    """The maxima of a problem with s = … + Fy, linear costs of y and of s, and these kinks."""
    plain = _plain_rows(F.shape[0], slope, kinks)
    columns = sp.csc_array(F)
    counts = np.diff(columns.indptr)
    owner = np.repeat(np.arange(len(counts)), counts)
    unit = np.zeros(len(counts))
    unit[owner] = columns.data
    alike = (columns.data == unit[owner]) & plain[columns.indices]
    good = (np.bincount(owner, ~alike, minlength=len(counts)) == 0) & (counts > 0) & (linear_y * unit <= 0)
    # Of two columns with a row in common only one can be minimized out: that with fewer rows, of which there are more.
    rank = np.empty(len(counts), dtype=int)
    rank[np.argsort(counts, kind="stable")] = np.arange(len(counts))
    least = np.full(F.shape[0], len(counts))
    np.minimum.at(least, columns.indices[good[owner]], rank[owner[good[owner]]])
    beaten = np.bincount(owner, least[columns.indices] < rank[owner], minlength=len(counts))
    good &= beaten == 0
    chosen = np.flatnonzero(good)
    row = np.full(F.shape[0], -1)
    mine = good[owner]
    row[columns.indices[mine]] = np.searchsorted(chosen, owner[mine])
    return Maxima(chosen, unit[chosen], -linear_y[chosen] / unit[chosen], row[kinks.of])


def _plain_rows(m: int, slope: Array, kinks: Kinks) -> NDArray[np.bool_]:
    """The rows s ≤ anchor without any other function of s."""
    inequality = (kinks.low == 0) & np.isposinf(kinks.high) & (kinks.rho == 0)
    once = np.bincount(kinks.of, minlength=m) == 1
    plain = np.zeros(m, dtype=bool)
    plain[kinks.of[inequality]] = True
    return plain & once & (slope == 0)


def on_simplices(values: Array, maxima: Maxima) -> Array:
    """`values` with the multipliers of each maximum moved to the nearest point with entries ≥ 0 whose sum is w:

    max(v − τ, 0) with one τ for each maximum, found by sorting (Held, Wolfe and Crowder, Math. Program. 1974).
    """
    found = values.copy()
    for which, places in maxima.places:
        v, weight = values[places], maxima.weight[which]
        largest_first = -np.sort(-v, axis=1)
        rank = np.arange(1, v.shape[1] + 1)
        thresholds = (np.cumsum(largest_first, axis=1) - weight[:, None]) / rank
        support = np.maximum((largest_first > thresholds).sum(axis=1), 1)
        found[places] = np.maximum(v - thresholds[np.arange(len(v)), support - 1, None], 0.0)
    return found
