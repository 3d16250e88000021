"""A stated problem as pieces: affine rows s = Sx + s₀, and functions of them.

    minimize    c·x + c₀ + Σ w₀ h(s)
    subject to  sᵢ + Σ wᵢ h(s) ≤ 0 for rows i below,   sᵢ = 0 for equal rows,   s ∈ K for rows of cones

x are the columns of all variables, among them u and t of the canonical form, and bounds z of functions whose values
are arguments of others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp

from kernelopt.pieces.function import Family
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array, Ints

ROUNDS = 20  # nesting of functions up to which bounds z settle from the inside out
T = TypeVar("T")


def of_rows(find: Callable[[Pieces], T]) -> property:
    """A property that does not depend on the size of costs: found once for all pieces with the same rows."""
    return property(lambda pieces: pieces.once(find.__name__, find), doc=find.__doc__)


@dataclass(frozen=True, eq=False)
class Group:
    """m functions of one family, of k rows of s each: rows (m, k).

    weights : (m, 1 + number of rows below), ≥ 0: column 0 for the objective, 1 + j for the j-th row below
    base : coefficients (m, n) from which those of a function's rows are differences; None where they are none
    """

    family: Family
    rows: Ints
    weights: sp.csr_array
    base: sp.csr_array | None = None

    @cached_property
    def costs(self) -> Array:
        """The weights in the objective."""
        W, found = self.weights, np.zeros(len(self.rows))
        owner = np.repeat(np.arange(len(found)), np.diff(W.indptr))
        first = W.indices == 0
        np.add.at(found, owner[first], W.data[first])
        return found

    @cached_property
    def is_outer(self) -> bool:
        """Whether no function stands in a row below."""
        return not self.weights.indices.any()

    def take(self, which: Ints) -> Group:
        """Some of the functions."""
        base = None if self.base is None else sp.csr_array(self.base[which])
        return Group(self.family.take(which), self.rows[which], self.weights[which], base)

    def omega(self, w: Array) -> Array:
        """The weights of all functions for w = (1, multipliers of rows below)."""
        return self.costs * w[0] if self.is_outer else np.asarray(self.weights @ w)

    def added(self, values: Array, total: Array) -> None:
        """Add Wᵀ(values) to sums of the objective and of all rows below."""
        if self.is_outer:
            total[0] += self.costs @ np.where(self.costs != 0, values, 0.0)  # 0·∞ is 0
        else:
            total += self.weights.T @ values


class Cone(NamedTuple):
    """Rows of s that are in a cone of a kind: "soc", "exp", "power" or "psd"; `extra` is its exponents or order.

    An "exp" or "power" of 3j rows is j cones; a "psd" is the lower triangle by rows, off-diagonal entries times √2.
    """

    kind: str
    rows: Ints
    extra: Any = None


class Twins(NamedTuple):
    """Rows whose multipliers are those of other rows.

    row, sign : the multiplier of row i is sign[i] times that of row[i]; settled : columns that then cancel exactly
    """

    row: Ints
    sign: Array
    settled: Array


@dataclass(frozen=True, eq=False)
class Pieces:
    """The problem as read.

    n : number of columns; c, c0 : linear objective; S, s0 : rows; below, equal : rows that are ≤ 0 and = 0
    bounds : (column z, number j of the row below) for z that stand for functions: that row is (function) − z ≤ 0
    columns : the columns of each variable by its id, of an imaginary part by −id; stated : the rows of each stated
        constraint, by its id
    values : columns that are the values of atoms, and what holds these as its `value`
    known : what was found out about the rows, and about which columns cost anything; see `once`
    """

    n: int
    c: Array
    c0: float
    S: sp.csr_array
    s0: Array
    groups: tuple[Group, ...]
    below: Ints
    equal: Ints
    cones: tuple[Cone, ...]
    bounds: Ints
    columns: dict[int, Ints]
    stated: dict[int, Ints] = field(default_factory=dict)
    values: tuple[tuple[Ints, Any], ...] = ()
    known: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def once(self, name: Any, find: Callable[[Pieces], T]) -> T:
        """What does not depend on the size of costs: found once for all pieces with the same rows."""
        if name not in self.known:
            self.known[name] = find(self)
        found: T = self.known[name]
        return found

    @of_rows
    def holds(self) -> Array:
        """Whether functions stand in each row, beside s."""
        found = np.zeros(len(self.s0), dtype=bool)
        for group in self.groups:
            inner = group.weights.indices[(group.weights.data != 0) & (group.weights.indices > 0)]
            found[self.below[inner - 1]] = True
        return found

    @of_rows
    def by_columns(self) -> sp.csc_array:
        found = sp.csc_array(self.S)
        found.eliminate_zeros()
        return found

    @of_rows
    def owners(self) -> Ints:
        """The row of each entry of S."""
        return np.repeat(np.arange(len(self.s0)), np.diff(self.S.indptr))

    def sizes(self, x: Array) -> Array:
        """|S||x|."""
        return np.bincount(self.owners, np.abs(self.S.data * x[self.S.indices]), len(self.s0))

    def slopes(self, a: Array) -> Array:
        """Sᵀa."""
        return np.bincount(self.S.indices, self.S.data * a[self.owners], self.n)

    def sizes_of_slopes(self, a: Array) -> Array:
        """|S|ᵀ|a|."""
        return np.bincount(self.S.indices, np.abs(self.S.data * a[self.owners]), self.n)

    @of_rows
    def counts(self) -> Ints:
        """The number of entries of each column."""
        return np.bincount(self.S.indices, self.S.data != 0, self.n).astype(int)

    @of_rows
    def is_below(self) -> Array:
        """Whether each row is one that is ≤ 0."""
        found = np.zeros(len(self.s0), dtype=bool)
        found[self.below] = True
        return found

    @of_rows
    def is_explicit(self) -> bool:
        """Whether each column is that of a variable, or bounds a function: graph forms have further ones."""
        return not len(self.local)

    @of_rows
    def local(self) -> Ints:
        """The columns of graph forms, which are no variables and bound no function: a point does not tell their
        values."""
        others = np.ones(self.n, dtype=bool)
        for known in (self.bounds[:, 0], *self.columns.values()):
            others[known] = False
        return np.flatnonzero(others)

    @of_rows
    def twins(self) -> Twins:
        """A row (function) − z ≤ 0 whose z costs nothing and stands in one other row has that one's multiplier."""
        m, S, (z, number) = self.S.shape[0], self.by_columns, self.bounds.T
        row, sign, settled, own = np.arange(m), np.ones(m), np.zeros(self.n, dtype=bool), self.below[number]
        twice = (np.diff(S.indptr)[z] == 2) & (self.c[z] == 0)
        z, own = z[twice], own[twice]
        rows, values = (part[S.indptr[z][:, None] + [0, 1]] for part in (S.indices, S.data))
        mine = (rows == own[:, None]).argmax(axis=1)
        each = np.arange(len(z))
        unit = (rows[each, mine] == own) & (values[each, mine] == -1) & (np.abs(values[each, 1 - mine]) == 1)
        each, mine, z, own = each[unit], mine[unit], z[unit], own[unit]
        row[own], sign[own], settled[z] = rows[each, 1 - mine], values[each, 1 - mine], True
        while np.any(row[row] != row):
            sign, row = sign * sign[row], row[row]
        return Twins(row, sign, settled)

    @property
    def is_finite(self) -> bool:
        """Whether all coefficients are finite."""
        numbers = (self.c, self.S.data, self.s0, *(group.weights.data for group in self.groups))
        return all(bool(np.isfinite(part).all()) for part in (np.array([self.c0]), *numbers))

    def with_costs(self, c: Array, c0: float, groups: tuple[Group, ...]) -> Pieces:
        """The same rows with other costs, 0 where these are, and functions."""
        found = replace(self, c=c, c0=c0, groups=groups)
        object.__setattr__(found, "known", self.known)
        return found

    def rows(self, x: Array) -> Array:
        """s = Sx + s₀."""
        return np.asarray(self.S @ x + self.s0)

    def sums(self, x: Array) -> Array:
        """The objective, and the left sides of all rows below."""
        s = self.rows(x)
        found = np.concatenate([[self.c @ x + self.c0], s[self.below]])
        for group in self.groups:
            group.added(group.family.value(s[group.rows]), found)
        return np.asarray(found)

    def settled(self, x: Array) -> Array:
        """x with each z at the value that it bounds, from the inside out."""
        x = np.array(x, dtype=float)
        z, number = self.bounds.T
        for _ in range(ROUNDS if len(z) else 0):
            new = x[z] + self.sums(x)[1 + number]
            if np.array_equal(new, x[z]):
                break
            x[z] = new
        return x
