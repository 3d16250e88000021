"""Losses of one number each that are entries of sums of largest ones: see `sums`."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelopt.pieces.extremes import SumOfLargest
from kernelopt.pieces.form import Pieces
from kernelopt.pieces.quadratics import Piecewise
from kernelopt.support.types import Array, Ints


class Inside(NamedTuple):
    """Losses of one number each that are entries of sums of largest ones.

    groups : the numbers of their groups; loss : for each column z of the pieces the loss that it bounds, or −1; below :
    the row of that bound, by loss; rows : rows of s, by loss; least : the least value, by loss; slopes, levels : those
    of the two lines beside it, (losses, 2), slope 0 where there is none
    """

    groups: frozenset[int]
    loss: Ints
    below: Ints
    rows: Ints
    least: Array
    slopes: Array
    levels: Array


def inside_of_sums(pieces: Pieces, S: sp.csr_array, on_t: NDArray[np.bool_]) -> Inside:
    """The groups whose functions are all such losses."""
    none = np.zeros(0)
    found = Inside(frozenset(), np.full(pieces.n, -1), none.astype(int), none.astype(int), none, *np.zeros((2, 0, 2)))
    sums = [g.rows.ravel() for g in pieces.groups if isinstance(g.family, SumOfLargest) and g.is_outer]
    if not sums or not len(pieces.bounds):
        return found
    own, row_of_sum = np.full(len(pieces.s0), -1), np.zeros(len(pieces.s0), dtype=bool)
    own[pieces.below[pieces.bounds[:, 1]]], row_of_sum[np.concatenate(sums)] = pieces.bounds[:, 0], True
    columns, each = sp.csc_array(S), np.diff(S.indptr)
    owner = np.repeat(np.arange(pieces.n), np.diff(columns.indptr))
    elsewhere = np.bincount(owner, ~row_of_sum[columns.indices] & (own[columns.indices] != owner), pieces.n) > 0
    for number, group in enumerate(pieces.groups):
        W, of = group.weights, group.rows[:, 0]
        if group.is_outer or not isinstance(group.family, Piecewise) or group.rows.shape[1] > 1:
            continue
        if np.any(np.diff(W.indptr) != 1) or not W.indices.all() or np.any(W.data <= 0):
            continue
        below = pieces.below[W.indices - 1]
        z, lines = own[below], _lines(group.family.times(W.data))
        if lines is None or z.min() < 0 or elsewhere[z].any() or len(np.unique(below)) < len(below):
            continue
        if np.any(each[below] > 1) or np.any(each[of] == 0) or on_t[of].any():
            continue
        found.loss[z], (least, slopes, levels) = len(found.below) + np.arange(len(z)), lines
        more = (below, of, least + pieces.s0[below], slopes, levels + pieces.s0[below][:, None])
        found = Inside(
            found.groups | {number}, found.loss,
            *(np.concatenate([old, new]) for old, new in zip(found[2:], more, strict=True)),
        )  # fmt: skip
    return found


def _lines(family: Piecewise) -> tuple[Array, Array, Array] | None:
    """The least values, and the slopes and levels of a falling and a rising line beside them; None for other losses."""
    used = np.hstack([np.ones((len(family), 1), dtype=bool), np.isfinite(family.knots)])
    c0, c1, c2 = (np.where(used, family.coefficients[..., i], 0.0) for i in range(3))
    ends = np.isfinite(family.knots)
    if c2.any() or np.any((c1 > 0).sum(axis=1) > 1) or np.any((c1 < 0).sum(axis=1) > 1) or not ends.any(axis=1).all():
        return None
    values = np.where(ends, family.of(np.where(ends, family.knots, 0.0)), inf).min(axis=1)
    slopes = np.stack([c1.min(axis=1, initial=0.0), c1.max(axis=1, initial=0.0)], axis=1)
    levels = np.stack([np.where(c1 < 0, c0, 0.0).sum(axis=1), np.where(c1 > 0, c0, 0.0).sum(axis=1)], axis=1)
    return values, slopes, levels
