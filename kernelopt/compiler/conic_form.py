"""The outer problem as cone data, by cvxpy's own canonicalization.

    minimize    ½xᵀPx + cᵀx + offset
    subject to  Ax + s = b,  s ∈ K

The columns of x are those of the links' u and t, then the user's variables and cvxpy's auxiliaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.compiler import quadratic_part
from kernelopt.compiler.attributes import dense
from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.errors import DataError
from kernelopt.support.cvxpy_parts import cone_data
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array, Ints

# Steps from u, t and y to auxiliary variables, and from these to further ones, that are followed: the depth of nested
# atoms. Deeper auxiliary variables keep their units.
DEPTH = 8
# An exponent of 2: rows and columns whose largest coefficient is between 2⁻¹⁰ and 2¹⁰ stay as cvxpy made them. Units
# that differ by less cost few digits.
MODERATE = 10
SMALLEST, LARGEST = 1e-150, 1e150  # the squares of numbers between these are doubles with all digits


@dataclass(frozen=True)
class Cones:
    """K = {0}^zero × R₊^nonneg × second-order cones × PSD cones × exponential cones × power cones, in this order."""

    zero: int
    nonneg: int
    soc: tuple[int, ...] = ()
    psd: tuple[int, ...] = ()
    exp: int = 0
    power: tuple[float, ...] = ()
    generalized_power: tuple[Any, ...] = ()

    @cached_property
    def slices(self) -> list[tuple[str, slice, Any]]:
        """(kind, rows, order or exponent) of each cone; one stretch each for zero, nonnegative and exponential ones."""
        sizes: list[tuple[str, int, Any]] = [("zero", self.zero, None), ("nonneg", self.nonneg, None)]
        sizes += [("soc", n, n) for n in self.soc] + [("psd", n * (n + 1) // 2, n) for n in self.psd]
        sizes += [("exp", 3 * self.exp, None)] + [("power", 3, a) for a in self.power]
        sizes += [("generalized_power", len(a) + 1, a) for a in self.generalized_power]
        ends = np.cumsum([0, *(n for _, n, _ in sizes)])
        return [
            (kind, slice(int(i), int(i + n)), extra) for (kind, n, extra), i in zip(sizes, ends[:-1], strict=True) if n
        ]

    @cached_property
    def exponentials(self) -> Ints:
        """The first row of each exponential cone."""
        first = self.zero + self.nonneg + sum(self.soc) + sum(n * (n + 1) // 2 for n in self.psd)
        return first + 3 * np.arange(self.exp)

    @cached_property
    def kinds(self) -> tuple[Array, Ints]:
        """Names of the kinds of rows, orders and exponents included, and for each row the number of its kind."""
        named = [f"{kind} {extra!r}" if kind in ("power", "soc") else kind for kind, _, extra in self.slices]
        names, which = np.unique(np.array(named, dtype=str), return_inverse=True)
        return names, np.repeat(which, [rows.stop - rows.start for _, rows, _ in self.slices])


@dataclass(frozen=True, eq=False)
class ConicForm:
    """Cone data of the (minimized) outer problem.

    Attributes
    ----------
    P : diagonal of the quadratic form, (n,)
    c : (n,)
    offset : the constant that canonicalized atoms add to the objective; stated constants are left out
    A, b : (m, n) sparse and (m,)
    cones : K
    u : for each prediction link, the columns of u in Fortran order
    variables : the columns of each of the user's own variables, empty where one drops out; y : all of them
    t : for each norm link, its column
    sign : −1 where the stated problem is a Maximize, whose objective was negated
    divided : e for each row that was divided by 2ᵉ, since its coefficients are far from 1
    notes : facts that were found once, by name; they do not depend on costs, or tell the costs for which they hold
    """

    P: Array
    c: Array
    offset: float
    A: sp.csc_array
    b: Array
    cones: Cones
    u: tuple[Ints, ...]
    variables: tuple[Ints, ...]
    t: Ints
    sign: float
    divided: Ints | int = 0
    notes: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def y(self) -> Ints:
        return np.concatenate([np.arange(0), *self.variables]).astype(int)

    @cached_property
    def by_rows(self) -> sp.csr_array:
        return self.A.tocsr()

    @cached_property
    def owners(self) -> Ints:
        """The column of each entry of A."""
        return np.repeat(np.arange(len(self.c)), np.diff(self.A.indptr))

    @property
    def linked(self) -> Ints:
        """The columns of all u and t."""
        return np.concatenate([*self.u, self.t]).astype(int)

    def columns_of_y(self, y: Sequence[Any]) -> Array:
        """x with the values of the user's variables, 0 elsewhere."""
        x = np.zeros(len(self.c))
        for value, columns in zip(y, self.variables, strict=True):
            if len(columns) and value is not None:
                x[columns] = np.ravel(dense(value), order="F")[: len(columns)]
        return x

    @cached_property
    def stated(self) -> Array:
        """Whether a column belongs to u, t or the user's variables, not to cvxpy's auxiliaries."""
        found = np.zeros(len(self.c), dtype=bool)
        found[np.concatenate([self.linked, self.y]).astype(int)] = True
        return found

    def without(self, rows: Ints, columns: Ints) -> ConicForm:
        """The form without some linear rows, and without auxiliary columns."""
        m, n = self.A.shape
        kept, others = np.delete(np.arange(m), rows), np.delete(np.arange(n), columns)
        place = np.full(n, -1)
        place[others] = np.arange(len(others))
        equal = int(np.count_nonzero(rows < self.cones.zero))
        cones = replace(self.cones, zero=self.cones.zero - equal, nonneg=self.cones.nonneg - (len(rows) - equal))
        return replace(
            self,
            P=self.P[others],
            c=self.c[others],
            A=sp.csc_array(self.A[:, others][kept]),
            b=self.b[kept],
            cones=cones,
            u=tuple(place[u] for u in self.u),
            variables=tuple(place[y] for y in self.variables),
            t=place[self.t],
            divided=self.divided if np.ndim(self.divided) == 0 else np.asarray(self.divided)[kept],
        )

    @property
    def is_constant(self) -> bool:
        """Whether every point has the same objective: a problem of feasibility."""
        return not (self.c.any() or self.P.any())

    @cached_property
    def units(self) -> tuple[float, float]:
        """(σ, κ): the unit of x, a small right-hand side, and of the objective, max(σ|c|, σ²P) for small c, P.

        Small is the first decile of the nonzero numbers, so that a few large ones do not count. Rows and costs of t are
        left out, except that costs of t count where the objective has no others. For columns of u, `data_unit` replaces
        σ.
        """
        sigma, kappa = self._units_beside_t
        return sigma, kappa or max(typical(sigma * self.c[self.t]), typical(sigma**2 * self.P[self.t])) or 1.0

    @cached_property
    def _units_beside_t(self) -> tuple[float, float]:
        """σ, and κ of the other costs; 0 where there are none."""
        sigma = typical(np.delete(self.b, self._rows_of_t()), 0.1) or 1.0
        unit = np.full(len(self.c), sigma)
        unit[np.concatenate([np.arange(0), *self.u]).astype(int)] = self.data_unit or sigma
        c, P = np.delete(self.c * unit, self.t), np.delete(self.P * unit**2, self.t)
        return sigma, max(typical(c, 0.1), typical(P, 0.1))

    @cached_property
    def _extremes(self) -> tuple[float, float, float, float, float]:
        """The largest and least target, the least row and the largest coefficient, and the largest bound of a norm."""
        rows, b = np.zeros(len(self.b)), np.ldexp(self.b, self.divided)
        np.maximum.at(rows, self.A.indices, np.abs(self.A.data))
        rows = np.ldexp(rows, self.divided)
        whole = np.maximum(rows, np.abs(b))[: self.cones.zero + self.cones.nonneg]
        targets, bounds = np.abs(b[b != 0]), np.abs(b[self._rows_of_t()])
        least = float(targets.min(initial=inf)) if len(targets) else 0.0
        return (
            float(targets.max(initial=0.0)), least, _least(whole), float(rows.max(initial=0.0)),
            float(bounds.max(initial=0.0)),
        )  # fmt: skip

    def _rows_of_t(self) -> Ints:
        """Rows in which some t stands."""
        parts = [self.A.indices[self.A.indptr[j] : self.A.indptr[j + 1]] for j in self.t]
        return np.unique(np.concatenate([np.arange(0), *parts])).astype(int)

    @cached_property
    def data_unit(self) -> float:
        """The unit of predictions: a small |b| over the coefficient of u, for rows without a norm of θ.

        In an exponent, |b| counts as 1 at least. Where predictions have no such rows with b ≠ 0, a small |b| of all
        rows without a norm of θ; 0 where all vanish.
        """
        u = np.zeros(len(self.c))
        u[np.concatenate([np.arange(0), *self.u]).astype(int)] = 1.0
        b, size = np.abs(self.b), np.zeros(len(self.b))
        np.maximum.at(size, self.A.indices, np.abs(self.A.data) * u[self.owners])
        exponents = self.cones.exponentials
        b[exponents] = np.maximum(b[exponents], 1.0)
        without_t = np.ones(len(b), dtype=bool)
        without_t[self._rows_of_t()] = False
        touched = without_t & (size > 0)
        return typical(b[touched] / size[touched], 0.1) or typical(self.b[without_t], 0.1)


def typical(values: Array, share: float = 0.5) -> float:
    """The median, or another quantile, of the sizes of nonzero values; 0 where all are zero.

    Values whose squares vanish count only where there are no others.
    """
    sizes = np.abs(values[values != 0])
    sizes = sizes[sizes >= SMALLEST] if np.any(sizes >= SMALLEST) else sizes
    place = int((len(sizes) - 1) * share)
    return float(np.partition(sizes, place)[place]) if len(sizes) else 0.0


def require_units(form: ConicForm) -> None:
    """Raise DataError where squares of the problem's numbers over- or underflow.

    These are the largest number of the objective, all targets together, a linear row as a whole, and a bound of a norm.
    A single target or bound beside others may be of any size.
    """
    targets, least_target, row, coefficient, bound = form._extremes
    objective = float(np.abs(np.append(form.c, form.P)).max(initial=0.0))
    for what, small, large in (
        ("coefficients of the objective", objective, objective),
        ("targets and bounds", targets, least_target),
        ("coefficients of a constraint or of an atom", row, coefficient),
        ("bounds of ‖θ‖", 1.0, bound),
    ):
        if 0 < small < SMALLEST or large > LARGEST:
            raise DataError(
                f"Expected {what} between {SMALLEST:g} and {LARGEST:g}, so that a double holds their squares; got "
                f"{large if large > LARGEST else small:.3g}. Change units: multiply the objective, the constraint, or "
                "data and targets by a constant."
            )


def _least(values: Array) -> float:
    """The smallest positive number, 0 where there is none."""
    return float(values[values > 0].min(initial=inf)) if np.any(values > 0) else 0.0


def conic_form(form: CanonicalForm) -> ConicForm:
    """Cone data of the outer problem without constants of the objective, for the values that parameters have now."""
    if not form.outer.variables():
        sign = -1.0 if isinstance(form.outer.objective, cp.Maximize) else 1.0
        empty, offset = np.zeros(0), sign * float(form.bare.objective.value)
        u = tuple(np.arange(0) for _ in form.predictions)
        return ConicForm(empty, empty, offset, sp.csc_array((0, 0)), empty, Cones(0, 0), u, (), np.arange(0), sign)
    data = cone_data(form.compilable)
    dims, P, of = data.dims, data.P, data.columns
    found = ConicForm(
        P=np.zeros(len(data.c)) if P is None else P.diagonal(),
        c=data.c,
        offset=data.offset,
        A=data.A if isinstance(data.A, sp.csc_array) else sp.csc_array(data.A),
        b=data.b,
        cones=Cones(
            dims.zero, dims.nonneg, tuple(dims.soc), tuple(dims.psd), dims.exp, tuple(dims.p3d), tuple(dims.pnd)
        ),
        u=tuple(np.arange(0) if link.u is None else of(link.u) for link in form.predictions),
        variables=tuple(map(of, form.y)),
        t=np.array([of(link.t)[0] for link in form.norms], dtype=int),
        sign=-1.0 if isinstance(form.outer.objective, cp.Maximize) else 1.0,
    )
    return _divided(found if P is None else _diagonal(found, sp.csc_array(P)))


def _diagonal(form: ConicForm, P: sp.csc_array) -> ConicForm:
    """The same problem with a diagonal P: ½xᵀPx of the coupled columns becomes ½‖q‖² with q = Rx, P = RᵀR.

    Auxiliary columns that only name the argument of the form, as in x = u − f, are replaced by that argument. The
    columns q come last, and their rows after those of the zero cone.
    """
    coupled = quadratic_part.coupled(P)
    if not len(coupled):
        return form
    R = sp.csc_array(quadratic_part.root(P[:, coupled][coupled]))
    n, zero, count = len(form.c), form.cones.zero, R.shape[0]
    named, rows, sizes = _names(form, coupled)
    # Rx = R_named·x_named + R_rest·x_rest, and row i names x by size·x + A_i·others = b_i.
    per_row = R[:, named] @ sp.diags_array(1 / sizes)
    spread = sp.csc_array((np.ones(len(coupled)), (np.arange(len(coupled)), coupled)), shape=(len(coupled), n))
    new = sp.hstack([per_row @ form.by_rows[rows] - R @ spread, sp.eye_array(count)])
    old = sp.csr_array(sp.hstack([form.A, sp.csc_array((len(form.b), count))]))
    diagonal = form.P.copy()
    diagonal[coupled] = 0.0
    found = replace(
        form,
        P=np.append(diagonal, np.ones(count)),
        c=np.append(form.c, np.zeros(count)),
        A=sp.csc_array(sp.vstack([old[:zero], new, old[zero:]])),
        b=np.concatenate([form.b[:zero], per_row @ form.b[rows], form.b[zero:]]),
        cones=replace(form.cones, zero=zero + count),
    )
    return found.without(rows, coupled[named])


def _names(form: ConicForm, columns: Ints) -> tuple[Ints, Ints, Array]:
    """Which of the columns are auxiliaries with one entry, ±1 in an equation; these equations; and the entries.

    Each equation names one column.
    """
    starts, ends = form.A.indptr[columns], form.A.indptr[columns + 1]
    named = np.flatnonzero((ends == starts + 1) & ~form.stated[columns] & (form.c[columns] == 0))
    rows, sizes = form.A.indices[starts[named]], form.A.data[starts[named]]
    once = np.bincount(rows, minlength=len(form.b))[rows] == 1
    good = (np.abs(sizes) == 1) & (rows < form.cones.zero) & once
    return named[good], rows[good], sizes[good]


@np.errstate(over="ignore")  # a coefficient beyond the largest double is divided by no power of 2
def _divided(form: ConicForm) -> ConicForm:
    """The same problem with linear rows and auxiliary columns divided by powers of 2.

    The divisor of a row brings its largest coefficient of u, t or y to about 1. That of an auxiliary column then brings
    its largest coefficient in these rows to about 1, and so on. Coefficients of moderate size stay as they are, and so
    do rows and columns of other cones. Where a division would round, nothing is divided.
    """
    A, linear = form.A, np.arange(len(form.b)) < form.cones.zero + form.cones.nonneg
    sizes = np.abs(A.data)
    if np.all(np.abs(np.frexp([sizes.min(initial=1.0, where=sizes > 0), sizes.max(initial=1.0)])[1]) <= MODERATE):
        return form
    rows, columns = A.indices, form.owners
    known_rows, known = ~linear, form.stated.copy()
    known[columns[~linear[rows]]] = True
    of_rows, of_columns = np.zeros(len(form.b), dtype=int), np.zeros(len(form.c), dtype=int)
    for _ in range(DEPTH):  # rows that known columns reach, then columns that these rows reach
        new = ~known_rows & (np.bincount(rows, known[columns], len(form.b)) > 0)
        of_rows[new] = _exponents(rows, np.ldexp(sizes * known[columns], -of_columns[columns]), len(form.b))[new]
        known_rows |= new
        more = ~known & (np.bincount(columns, known_rows[rows], len(form.c)) > 0)
        of_columns[more] = _exponents(columns, np.ldexp(sizes * known_rows[rows], -of_rows[rows]), len(form.c))[more]
        known |= more
        if not (new.any() or more.any()):
            break
    if not (of_rows.any() or of_columns.any()):
        return form
    of_entries = of_rows[rows] + of_columns[columns]
    parts = ((A.data, of_entries), (form.b, of_rows), (form.c, of_columns), (form.P, 2 * of_columns))
    if any((np.ldexp(np.ldexp(part, -e), e) != part).any() for part, e in parts):
        return form
    data, right, c, P = (np.ldexp(part, -e) for part, e in parts)
    A = sp.csc_array((data, rows, A.indptr), shape=A.shape)
    return replace(form, P=P, c=c, A=A, b=right, divided=of_rows)


@np.errstate(over="ignore")
def _exponents(which: Ints, sizes: Array, count: int) -> Ints:
    """e with 2ᵉ next to the largest size, for each of `count` rows or columns; 0 where that is moderate or infinite."""
    largest = np.zeros(count)
    np.maximum.at(largest, which, sizes)
    found = np.frexp(largest)[1].astype(int)
    return np.where((np.abs(found) <= MODERATE) | ~np.isfinite(largest), 0, found)
