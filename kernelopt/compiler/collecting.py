"""What a sum of functions of one number each is collected in; see `sums`."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.terms import Along, Interval, SumOfLosses, Term
from kernelopt.support.types import Array, Ints


@dataclass
class Collected:
    """What is collected: rows of s in all columns, functions of them, and how their slopes make multipliers of rows.

    c, extra : costs of the columns of the pieces, and of further ones; constant : what the functions leave out
    """

    c: Array
    extra: list[float] = field(default_factory=list)
    constant: float = 0.0
    rows: list[sp.csr_array] = field(default_factory=list)
    terms: list[Term] = field(default_factory=list)
    back: list[tuple[Ints, Ints, Array]] = field(default_factory=list)
    plain: list[Ints] = field(default_factory=list)
    sums: list[SumOfLosses] = field(default_factory=list)
    m: int = 0

    def put(self, S: sp.csr_array, plain: Ints | None = None) -> Ints:
        """The places of new rows of s."""
        self.rows.append(S)
        self.plain.append(np.full(S.shape[0], -1) if plain is None else plain)
        self.m += S.shape[0]
        return np.arange(self.m - S.shape[0], self.m)

    def use(self, term: Term) -> None:
        """Add functions, without the curves of those of weight 0."""
        self.terms += [part for part in (term.apart() if isinstance(term, Along) else [term]) if len(part.at)]

    def returns(self, rows: Ints, at: Ints, factor: Array) -> None:
        """The multipliers of rows of S are `factor` times the slopes at `at`."""
        self.back.append((rows, at, factor))


def at_most(at: Ints, b: Array) -> Interval:
    """The constraint s ≤ b."""
    return Interval(at, np.full(len(b), -inf), b)


def with_column(S: sp.csr_array, columns: Ints, value: float) -> sp.csr_array:
    """Each row with one more entry, in a column beyond the others."""
    n = int(columns.max(initial=S.shape[1] - 1)) + 1
    more = sp.csr_array((np.full(len(columns), value), columns, np.arange(len(columns) + 1)), shape=(len(columns), n))
    return sp.csr_array(sp.csr_array((S.data, S.indices, S.indptr), shape=more.shape) + more)
