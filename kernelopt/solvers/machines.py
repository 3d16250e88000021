"""Support vector machines among problems that split, known by their kinks alone.

For slopes c of the functions, ½cᵀKc + (their conjugates) is minimized over Fᵀc = 0, with one free column F. After
division of each row by its entry of F, with heights J that may differ, these are

    one kink per row, c ∈ [−J, 0] at m or [0, J] at −m:  min ½αᵀ(yyᵀ∘K)α − m·1ᵀα, 0 ≤ α ≤ J, c = −yα  (C-SVC);
    two kinks of height J per row at y ∓ ε, c ∈ [−J, J]:  min ½βᵀKβ + ε‖β‖₁ − yᵀβ, |β| ≤ J, c = −β  (ε-SVR).
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.terms import Kinks
from kernelopt.support.types import Array, Ints

SAME = 1e-12  # relative: margins, tubes and heights that count as equal
MOST = 12_000  # rows; libsvm holds two copies of K
# Rows of all problems so far from which libsvm is loaded: scikit-learn takes .4 to 1 s, and a start from libsvm's point
# saves .1 ms a row. A smaller number slows down the first fit of a process, a larger one a series of small fits.
LOADS = 5000
_met = [0]  # rows of all problems of this process


@dataclass(frozen=True, eq=False)
class Machine:
    """Rows with kinks, with y, the heights J and the margin m of a C-SVC, or ε of an ε-SVR (margin 0)."""

    rows: Ints
    y: Array
    height: Array
    margin: float
    epsilon: float

    @property
    def unit(self) -> float:
        """The size of arguments: the margin, or that of y."""
        return self.margin or float(np.abs(self.y).max()) or 1.0


def machine_of(kinks: Kinks, slope: Array, F: Array | sp.sparray) -> Machine | None:
    """libsvm's problem for these functions; None where it has none."""
    if F.shape[1] != 1 or F.shape[0] > MOST or not len(kinks.of) or kinks.rho.any() or kinks.low.any():
        return None
    f = F.toarray()[:, 0] if isinstance(F, sp.sparray) else F[:, 0]
    if not f.all() or not np.isfinite(kinks.high).all():
        return None
    m, of = len(f), kinks.of
    count = np.bincount(of, minlength=m)
    ends = np.stack([slope, slope + np.bincount(of, kinks.high, minlength=m)]) * f
    rows = np.flatnonzero(count)
    first, last = np.full(m, np.inf), np.full(m, -np.inf)
    np.minimum.at(first, of, kinks.anchor / f[of])
    np.maximum.at(last, of, kinks.anchor / f[of])
    first, last, low, high = first[rows], last[rows], ends.min(axis=0)[rows], ends.max(axis=0)[rows]
    if ends[:, count == 0].any():
        return None
    if np.all(count[rows] == 1):
        margin, y = float(np.abs(first).max()), np.sign(first)
        same = np.all(np.abs(np.abs(first) - margin) <= SAME * margin) and np.all(np.where(y > 0, high, low) == 0)
        return Machine(rows, y, high - low, margin, 0.0) if margin > 0 and same else None
    epsilon = float(last[0] - first[0]) / 2
    place = np.searchsorted(rows, of)
    same = (
        np.all(count[rows] == 2) and np.all(np.abs(low + high) <= SAME * high)
        and np.all(np.abs(last - first - 2 * epsilon) <= SAME * (np.abs(first) + np.abs(last)))
        and np.all(np.abs(kinks.high * np.abs(f[of]) - high[place]) <= SAME * high[place])
    )  # fmt: skip
    return Machine(rows, (first + last) / 2, high, 0.0, epsilon) if same else None


@cache
def is_installed() -> bool:
    """Whether scikit-learn, and libsvm with it, is installed."""
    return importlib.util.find_spec("sklearn") is not None


def expect_many() -> None:
    """Load libsvm with the next problem that it takes: many fits follow, the same in each process."""
    _met[0] = LOADS


def is_at_hand(rows: int = 0) -> bool:
    """Whether libsvm is loaded, or worth the time that loading takes once a problem with so many more rows is met."""
    _met[0] += rows
    return is_installed() and ("sklearn.svm" in sys.modules or _met[0] >= LOADS)
