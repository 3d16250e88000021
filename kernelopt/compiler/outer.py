"""The outer problem for the values that its parameters have now: pieces, their sum of functions of one number each, and
cone data, which are compiled where they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np

from kernelopt.compiler import units
from kernelopt.compiler.canonical_form import CanonicalForm, SmoothLink
from kernelopt.compiler.conic_form import ConicForm, conic_form, require_units
from kernelopt.compiler.reader import Applied, Reader
from kernelopt.compiler.separable import Lengths, Separable
from kernelopt.compiler.sums import lengths_of, separated
from kernelopt.errors import DCPError
from kernelopt.kernels.domains import check_finite
from kernelopt.pieces.by_size import Sorted, SortedSizes
from kernelopt.pieces.custom import StatedFunction
from kernelopt.pieces.form import Group, Pieces
from kernelopt.pieces.moreau import ProximalFunction
from kernelopt.pieces.quadratics import Piecewise
from kernelopt.pieces.spectral import Schatten
from kernelopt.support.cvxpy_parts import distinct_nodes
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array

# Attributes of variables with fewer entries than their shape.
STRUCTURED = ("symmetric", "PSD", "NSD", "diag", "sparsity", "hermitian", "complex", "imag")


@dataclass(frozen=True, eq=False)
class Common:
    """What outer problems have in common that differ at most in what ‖θ‖ costs.

    split : the sum of functions of one number each that they are; None where they are none
    notes : what was found out about them once, by name
    """

    split: Separable | None = None
    notes: dict[Any, Any] = field(default_factory=dict)


class Facts(NamedTuple):
    """What is known of an outer problem without its cone data.

    sign : −1 for a problem that maximizes; offset : the constant of the objective beside what was stated
    units : (σ, κ), a small right-hand side and the unit of the objective; least : of units of its costs, of which κ is
        the largest; data_unit : that of predictions, or 0
    is_constant : whether every point has the same objective; exponentials : whether there are exponentials or logs
    slopes, bends : cⱼ and Pⱼ of what each norm costs, cⱼt + ½Pⱼt²
    """

    sign: float
    offset: float
    units: tuple[float, float]
    least: float
    data_unit: float
    is_constant: bool
    exponentials: bool
    slopes: Array
    bends: Array


ATOMS = 150  # from which a problem is long: cvxpy compiles them in .1 s


@dataclass(frozen=True, eq=False)
class Outer:
    """The outer problem of a canonical form, for values of its parameters.

    common : the sum of functions, and facts that hold for other costs of norms, too
    pieces : as they were read; None where some part can't be read
    notes : cached facts about these values, by name
    """

    canonical: CanonicalForm
    values: Mapping[cp.Parameter, Any]
    common: Common
    pieces: Pieces | None
    notes: dict[Any, Any] = field(default_factory=dict)

    @cached_property
    def form(self) -> ConicForm:
        """The cone data, which are compiled when they are first asked for."""
        with _valued(self.values):
            found = conic_form(self.canonical)
        require_units(found)
        return found

    @property
    def has_large_cones(self) -> bool:
        """Whether singular values, eigenvalues or weights by size enter, whose cone forms are large; also where it is
        not known."""
        if self.pieces is None:
            return True
        functions = any(isinstance(group.family, (Schatten, Sorted, SortedSizes)) for group in self.pieces.groups)
        return functions or any(cone.kind == "psd" for cone in self.pieces.cones)

    @cached_property
    def is_long(self) -> bool:
        """Whether there are many atoms: cvxpy compiles each by itself, in about a millisecond."""
        return len(distinct_nodes(self.canonical.outer)) > ATOMS

    @property
    def split(self) -> Separable | None:
        """The sum of functions of one number each; None where a part of the problem is no such function."""
        return self.common.split

    @cached_property
    def lengths(self) -> Lengths | None:
        """What norms cost, and their bounds; None where some cost is not of that kind."""
        return None if self.pieces is None else lengths_of(self.pieces, self.canonical)

    @cached_property
    def facts(self) -> Facts:
        form, pieces = self.canonical, self.pieces
        if pieces is None:
            data = self.form
            return Facts(
                data.sign, data.offset, data.units, data.units[1], data.data_unit, data.is_constant,
                bool(data.cones.exp), data.c[data.t], data.P[data.t],
            )  # fmt: skip
        bends = np.zeros(len(form.norms)) if self.lengths is None else self.lengths.curvature
        found = units.units_of(pieces, form, bends)
        return Facts(
            -1.0 if isinstance(form.outer.objective, cp.Maximize) else 1.0, pieces.c0, found.units, found.least,
            found.data_unit, units.is_constant(pieces), units.has_exponentials(pieces), pieces.c[found.of_t], bends,
        )  # fmt: skip

    @property
    def sign(self) -> float:
        return self.facts.sign

    @property
    def offset(self) -> float:
        return self.facts.offset

    @property
    def units(self) -> tuple[float, float]:
        return self.facts.units

    @property
    def data_unit(self) -> float:
        return self.facts.data_unit


@contextmanager
def _valued(values: Mapping[cp.Parameter, Any]) -> Iterator[None]:
    """Parameters with some values for a while."""
    present = {p: p.value for p in values}
    try:
        for p, value in values.items():
            if value is not present[p]:
                p.save_value(value)
        yield
    finally:
        for p, value in present.items():
            p.save_value(value)


def outer_of(form: CanonicalForm, before: Outer | None = None) -> Outer:
    """The outer problem of a canonical form, for the values that parameters have now.

    What was found out about `before`, the same problem for other values, is taken over where they differ in the costs
    of norms only. Raises DataError for numbers whose squares over- or underflow.
    """
    values, pieces = {p: p.value for p in form.bare.parameters()}, read(form)
    if pieces is None:
        return Outer(form, values, Common(), None)
    units.require_units(pieces, form)
    common = None if before is None else _shared(form, pieces, before)
    if common is None:
        common = Common(separated(pieces, form) if _has_whole_variables(form) else None)
    elif before is not None and before.pieces is not None:
        pieces = before.pieces.with_costs(pieces.c, pieces.c0, pieces.groups)  # what is known of the rows stays
    return Outer(form, values, common, pieces)


def shifted(outer: Outer, x: Array) -> Outer:
    """An outer problem in pieces as a function of what its columns are beyond x."""
    pieces = outer.pieces
    assert pieces is not None
    moved = replace(pieces, s0=pieces.s0 + pieces.S @ x, c0=pieces.c0 + float(pieces.c @ x))
    return replace(outer, common=Common(separated(moved, outer.canonical)), pieces=moved, notes={})


def read(form: CanonicalForm) -> Pieces | None:
    """The pieces of a form, for the values that parameters have now; None where it has none."""
    if not form.bare.variables():
        return None
    if "reader" not in form.notes or any(link.term.parameters() for link in form.smooth):
        links = [link.u for link in form.predictions if link.u is not None] + [norm.t for norm in form.norms]
        form.notes["reader"] = Reader(form.bare, links, [_applied(link) for link in form.smooth])
    reader: Reader = form.notes["reader"]
    with suppress(DCPError):
        return reader.read()
    return None


def _applied(link: SmoothLink) -> Applied:
    """A user's loss as a family of functions. Data with parameters are checked again."""
    known, loss = link.term.data(), link.term.loss
    assert known is not None  # parameters have values by now
    if link.term.parameters():
        check_finite(np.concatenate([np.zeros(0), *known[1]]), f"the data of {loss.name}")
        loss.check(*known)
    return Applied(link.h, StatedFunction(loss, known[1]), link.equal.args[1], link.g, link.equal)


def _has_whole_variables(form: CanonicalForm) -> bool:
    """Whether all variables have all of their entries."""
    return not any(variable.attributes.get(name) for variable in form.y for name in STRUCTURED)


def _shared(form: CanonicalForm, pieces: Pieces, before: Outer) -> Common | None:
    """What is known of `before`, where that differs in the costs of norms only."""
    old = before.pieces
    if old is None or [n.t.id for n in before.canonical.norms] != [n.t.id for n in form.norms]:
        return None
    rows = units.sizes_of_rows(pieces, form)
    differ = pieces.c != old.c if _same_rows(old, pieces) else np.ones(pieces.n, dtype=bool)
    differ[rows.of_t] = False
    if differ.any() or pieces.c0 != old.c0 or len(old.groups) != len(pieces.groups):
        return None
    pairs = zip(old.groups, pieces.groups, strict=True)
    return before.common if all(_same_group(one, other, rows.on_t) for one, other in pairs) else None


def _same_rows(one: Pieces, other: Pieces) -> bool:
    if one.known is other.known:
        return True
    if one.n != other.n or one.S.shape != other.S.shape or one.cones or other.cones:
        return False
    pairs = [
        (getattr(one, name), getattr(other, name)) for name in ("s0", "below", "equal", "bounds")
    ] + [(getattr(one.S, name), getattr(other.S, name)) for name in ("indptr", "indices", "data")]  # fmt: skip
    same = all(a is b or np.array_equal(a, b) for a, b in pairs)
    known = one.columns.keys() == other.columns.keys()
    return same and known and all(np.array_equal(at, other.columns[name]) for name, at in one.columns.items())


def _same_group(one: Group, other: Group, on_t: Array) -> bool:
    """Whether both are the same functions of the same rows, but for weights of functions of norms."""
    a, b = one.family, other.family
    stated = isinstance(a, (Piecewise, StatedFunction, ProximalFunction))  # with arrays
    same = a is b or (type(a) is type(b) and not stated and vars(a) == vars(b))
    if isinstance(a, Piecewise) and isinstance(b, Piecewise) and not same:
        same = np.array_equal(a.knots, b.knots) and np.array_equal(a.coefficients, b.coefficients)
    if not same or not np.array_equal(one.rows, other.rows):
        return False
    A, B = one.weights, other.weights
    if not np.array_equal(A.indptr, B.indptr) or not np.array_equal(A.indices, B.indices):
        return False
    if np.array_equal(A.data, B.data):
        return True
    rest = np.repeat(~on_t[one.rows].all(axis=1), np.diff(A.indptr))
    return np.array_equal(A.data[rest], B.data[rest])
