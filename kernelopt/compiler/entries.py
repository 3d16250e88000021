"""The entries of an expression as affine rows plus functions of affine rows, and what is done with them.

All is exact but for the rounding of sums and products: nothing is recognised from numbers, and nothing is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from kernelopt.pieces.function import Family
from kernelopt.support import sparse
from kernelopt.support.types import Array, Ints


@dataclass(frozen=True, eq=False)
class Functions:
    """m functions of one family, of k numbers each: their arguments are (Mx + c) as (m, k), by rows.

    base : rows, one for each function, from which its arguments are differences; None where they are none
    """

    family: Family
    k: int
    M: sp.csr_array
    c: Array
    base: sp.csr_array | None = None


class Term(NamedTuple):
    """weight·h at entry `at`, with h number `which` of some functions."""

    functions: Functions
    which: Ints
    at: Ints
    weight: Array

    def where(self, chosen: Array) -> Term:
        """Some of them."""
        return Term(self.functions, self.which[chosen], self.at[chosen], self.weight[chosen])


@dataclass(frozen=True, eq=False)
class Entries:
    """n entries, Mx + c + Σ terms. M may be narrower than x is in the end: columns beyond it are 0."""

    M: sp.csr_array
    c: Array
    terms: tuple[Term, ...] = ()

    def __len__(self) -> int:
        return len(self.c)

    @property
    def is_affine(self) -> bool:
        return not self.terms

    @property
    def affine(self) -> Entries:
        """Without the functions."""
        return Entries(self.M, self.c)

    def plus(self, other: Entries) -> Entries:
        n = max(self.M.shape[1], other.M.shape[1])
        some = [wide(M, n) for M in (self.M, other.M) if M.nnz] or [wide(self.M, n)]
        return Entries(sum(some[1:], some[0]), self.c + other.c, self.terms + other.terms)

    def minus(self, other: Entries) -> Entries:
        return self.plus(other.times(-1.0))

    def times(self, w: Any) -> Entries:
        """Each entry times a number."""
        w = np.broadcast_to(np.asarray(w, dtype=float), self.c.shape)
        M = _rows(self.M.data * np.repeat(w, np.diff(self.M.indptr)), self.M.indices, self.M.indptr, self.M.shape[1])
        terms = tuple(t._replace(weight=t.weight * w[t.at]) for t in self.terms)
        return Entries(M, w * self.c, terms)

    def mapped(self, L: Any) -> Entries:
        """L·(these), for a matrix L."""
        L = sp.csr_array(L)
        terms, every = [], np.arange(L.shape[1])
        for t in self.terms:
            place = sp.coo_array(L if np.array_equal(t.at, every) else L[:, t.at])
            terms.append(Term(t.functions, t.which[place.col], place.row, t.weight[place.col] * place.data))
        return Entries(sp.csr_array(L @ self.M), L @ self.c, tuple(terms))

    def take(self, which: Ints) -> Entries:
        """Some entries, in an order."""
        if self.is_affine:
            return Entries(self.M[which], self.c[which])
        return self.mapped(_rows(np.ones(len(which)), which, np.arange(len(which) + 1), len(self)))

    def total(self) -> Entries:
        """The sum, as one entry."""
        # `sum_duplicates` works in place: entries that are read again keep theirs.
        M = _rows(self.M.data.copy(), self.M.indices.copy(), np.array([0, self.M.nnz]), self.M.shape[1])
        M.sum_duplicates()
        return Entries(M, np.array([self.c.sum()]), tuple(t._replace(at=0 * t.at) for t in self.terms))

    def plus_constant(self, constant: Any) -> Entries:
        return Entries(self.M, self.c + constant, self.terms)


def constant(values: Array) -> Entries:
    """Numbers."""
    return Entries(_nothing(len(values)), np.asarray(values, dtype=float))


def unit(columns: Ints) -> Entries:
    """The entries x_j of some columns."""
    M = _rows(np.ones(len(columns)), columns, np.arange(len(columns) + 1), int(columns.max(initial=-1)) + 1)
    return Entries(M, np.zeros(len(columns)))


def applied(
    family: Family, argument: Entries, k: int = 1, weight: float = 1.0, base: sp.csr_array | None = None
) -> Entries:
    """weight·hᵢ of k affine entries each."""
    m = len(argument) // k
    functions, number = Functions(family, k, argument.M, argument.c, base), np.arange(m)
    term = Term(functions, number, number, np.full(m, weight))
    return Entries(_nothing(m), np.zeros(m), (term,))


def joined(several: Sequence[Functions]) -> Functions:
    """Functions of one kind, as those of one family."""
    first, n = several[0], max(one.M.shape[1] for one in several)
    if len(several) == 1:
        return first
    family = first.family.joined([one.family for one in several[1:]])
    bases = [one.base for one in several if one.base is not None]
    base = sparse.stacked(bases, max(n, *(M.shape[1] for M in bases))) if bases else None
    c = np.concatenate([one.c for one in several])
    return Functions(family, first.k, sparse.stacked([one.M for one in several], n), c, base)


def stacked(parts: Sequence[Entries]) -> Entries:
    """One below the other."""
    n, at = max(part.M.shape[1] for part in parts), 0
    terms: list[Term] = []
    for part in parts:
        terms += [t._replace(at=at + t.at) for t in part.terms]
        at += len(part)
    M = sparse.stacked([part.M for part in parts], n)
    return Entries(M, np.concatenate([part.c for part in parts]), tuple(terms))


def summed(parts: Iterable[Entries]) -> Entries:
    first, *rest = parts
    for part in rest:
        first = first.plus(part)
    return first


def wide(M: sp.csr_array, n: int) -> sp.csr_array:
    """The same rows with n columns."""
    return M if M.shape[1] == n else _rows(M.data, M.indices, M.indptr, n)


@lru_cache(maxsize=64)
def _nothing(m: int) -> sp.csr_array:
    """m rows without columns, which nobody writes to."""
    return sp.csr_array((m, 0))


def _rows(data: Array, indices: Ints, indptr: Ints, n: int) -> sp.csr_array:
    return sp.csr_array((data, indices, indptr), shape=(len(indptr) - 1, n))
