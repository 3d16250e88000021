"""The outer problem for the values that its parameters have now: pieces, their sum of functions of one number each, and
cone data, which are compiled where they are asked for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import cvxpy as cp
import numpy as np

from kernelopt.compiler import exponential_sums, units
from kernelopt.compiler.canonical_form import CanonicalForm, SmoothLink
from kernelopt.compiler.conic_form import ConicForm, conic_form, require_units
from kernelopt.compiler.reader import Applied, Reader
from kernelopt.compiler.separable import CLASSES, Lengths, Separable, lengths_of_outer
from kernelopt.compiler.sums import lengths_of, separated
from kernelopt.compiler.vacuous import without_vacuous
from kernelopt.errors import DCPError
from kernelopt.kernels.domains import check_finite
from kernelopt.pieces.custom import Stated
from kernelopt.pieces.form import Group, Pieces
from kernelopt.pieces.quadratics import Piecewise
from kernelopt.support.locks import Lock
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array

# Entries of the cone data of problems whose cut outlives them, and number of such cuts. They cover the folds and label
# vectors of a grid, and take a few hundred kB each at most.
SMALL, MOST_RECENT = 20_000, 32


@dataclass(eq=False)
class Common:
    """What outer problems have in common that differ at most in what ‖θ‖ costs.

    notes : what was found out about them once, by name
    """

    notes: dict[Any, Any] = field(default_factory=dict)
    found: tuple[Separable | None] | None = None

    def split(self, form: ConicForm) -> Separable | None:
        """What they fall apart into, from the cone data of any of them."""
        if self.found is None:
            self.found = (None,)
        return self.found[0]


class Facts(NamedTuple):
    """What is known of an outer problem without its cone data.

    sign : −1 for a problem that maximizes; offset : the constant of the objective beside what was stated
    units : (σ, κ), a small right-hand side and the unit of the objective; data_unit : that of predictions, or 0
    is_constant : whether every point has the same objective; exponentials : whether there are exponentials or logs
    slopes, bends : cⱼ and Pⱼ of what each norm costs, cⱼt + ½Pⱼt²
    """

    sign: float
    offset: float
    units: tuple[float, float]
    data_unit: float
    is_constant: bool
    exponentials: bool
    slopes: Array
    bends: Array


@dataclass(frozen=True, eq=False)
class Outer:
    """The outer problem for the present values of parameters.

    common : the sum of functions, and facts that hold for other costs of norms, too
    notes : cached facts about these values, by name
    pieces : as they were read, where the problem is a sum of functions of one number each that was found in them
    data : cone data; None as long as nobody asked for them
    compiled : the cone data as compiled, before any row was left out; None where they are not kept
    stated : the form, and the values of its parameters, where cone data are compiled from them
    """

    common: Common = field(default_factory=Common)
    notes: dict[Any, Any] = field(default_factory=dict)
    pieces: Pieces | None = None
    data: ConicForm | None = None
    compiled: ConicForm | None = None
    stated: tuple[CanonicalForm, Mapping[cp.Parameter, Any]] | None = None

    @cached_property
    def form(self) -> ConicForm:
        """The cone data."""
        return self.in_cones.form if self.data is None else self.data

    @cached_property
    def in_cones(self) -> Outer:
        """The same problem by its cone data alone."""
        if self.pieces is None:
            return self
        assert self.stated is not None
        form, values = self.stated
        with _valued(values):
            return of_cones(form)

    @property
    def split(self) -> Separable | None:
        """The sum of functions of one number each; None where a part of the problem is no such function."""
        return (
            self.common.split(self.form) if self.pieces is None else self.common.found[0] if self.common.found else None
        )

    @cached_property
    def lengths(self) -> Lengths | None:
        """What the norms of a sum of functions cost, and their bounds; None where some cost is not of that kind."""
        if self.pieces is not None:
            assert self.stated is not None
            return lengths_of(self.pieces, self.stated[0])
        return None if self.split is None else lengths_of_outer(self.form, self.split)

    @cached_property
    def facts(self) -> Facts:
        if self.pieces is None:
            data = self.form
            return Facts(
                data.sign, data.offset, data.units, data.data_unit, data.is_constant, bool(data.cones.exp),
                data.c[data.t], data.P[data.t],
            )  # fmt: skip
        assert self.stated is not None
        form, pieces = self.stated[0], self.pieces
        lengths = self.lengths
        bends = np.zeros(len(form.norms)) if lengths is None else lengths.curvature
        found = units.units_of(pieces, form, bends)
        return Facts(
            -1.0 if isinstance(form.outer.objective, cp.Maximize) else 1.0, pieces.c0, found.units, found.data_unit,
            units.is_constant(pieces), units.has_exponentials(pieces), pieces.c[found.of_t], bends,
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


_alive: WeakValueDictionary[bytes, Common] = WeakValueDictionary()
_recent: OrderedDict[bytes, Common] = OrderedDict()
_lock = Lock()


def outer_of(form: CanonicalForm, before: Outer | None = None) -> Outer:
    """The outer problem of a canonical form, for the values that parameters have now.

    What was found out about `before`, the same problem for other values, is taken over where they differ in the costs
    of norms only. Raises DataError for numbers whose squares over- or underflow.
    """
    pieces = read(form) if _is_plain(form) else None
    if pieces is not None:
        units.require_units(pieces, form)
        common = _shared(form, pieces, before)
        if common.found is None:
            common.found = (separated(pieces, form),)
        if common.found[0] is not None:
            return Outer(common, pieces=pieces, stated=(form, {p: p.value for p in form.bare.parameters()}))
    return of_cones(form, before)


def of_cones(form: CanonicalForm, before: Outer | None = None) -> Outer:
    """The outer problem by its cone data, for the values that parameters have now.

    The cut of another problem with the same data is reused, whatever its penalties of ‖θ‖ and its kernels: that of the
    same problem for another λ, or of a problem stated anew.
    """
    compiled = conic_form(form)
    if before is not None and before.compiled is not None and not compiled.smooth:
        data = before.form.with_costs_of(compiled, before.compiled)
        if data is not None:
            require_units(data)
            return Outer(before.common, data=data, compiled=compiled)
    data = without_vacuous(exponential_sums.separated(compiled, CLASSES))
    return replace(outer_of_data(data), compiled=compiled)


def outer_of_data(data: ConicForm) -> Outer:
    """The outer problem of some cone data; the cut of equal data is reused."""
    require_units(data)
    return Outer(data=data) if data.smooth else Outer(_common(data), data=data)


def shifted(outer: Outer, x: Array) -> Outer:
    """An outer problem in pieces as a function of what its columns are beyond x."""
    pieces, stated = outer.pieces, outer.stated
    assert pieces is not None
    assert stated is not None
    moved = replace(pieces, s0=pieces.s0 + pieces.S @ x, c0=pieces.c0 + float(pieces.c @ x))
    return Outer(Common(found=(separated(moved, stated[0]),)), pieces=moved, stated=stated)


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
    return Applied(link.h, Stated(loss, known[1]), link.equal.args[1], link.g, link.equal)


def pieces_of(form: CanonicalForm, outer: Outer) -> Pieces | None:
    """The pieces of an outer problem, kept in its notes; None where it is not read."""
    if outer.pieces is not None:
        return outer.pieces
    if "pieces" not in outer.notes:
        outer.notes["pieces"] = read(form)
    found: Pieces | None = outer.notes["pieces"]
    return found


def _is_plain(form: CanonicalForm) -> bool:
    """Whether all variables have all of their entries."""
    structured = ("symmetric", "PSD", "NSD", "diag", "sparsity", "hermitian", "complex", "imag")
    return not any(variable.attributes.get(name) for variable in form.y for name in structured)


def _shared(form: CanonicalForm, pieces: Pieces, before: Outer | None) -> Common:
    """What is known of `before`, where that differs in the costs of norms only; else nothing."""
    if before is None or before.pieces is None or before.stated is None:
        return Common()
    old, t = before.pieces, np.concatenate([np.arange(0), *(pieces.columns[n.t.id] for n in form.norms)]).astype(int)
    known = before.stated[0]
    if [n.t.id for n in known.norms] != [n.t.id for n in form.norms] or not _same_rows(old, pieces):
        return Common()
    differ = pieces.c != old.c
    differ[t] = False
    if differ.any() or pieces.c0 != old.c0 or len(old.groups) != len(pieces.groups):
        return Common()
    on_t = np.zeros(len(pieces.s0), dtype=bool)
    on_t[pieces.owners[np.isin(pieces.S.indices, t)]] = True
    pairs = zip(old.groups, pieces.groups, strict=True)
    return before.common if all(_same_group(one, other, on_t) for one, other in pairs) else Common()


def _same_rows(one: Pieces, other: Pieces) -> bool:
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
    same = a is b or (type(a) is type(b) and not isinstance(a, (Piecewise, Stated)) and vars(a) == vars(b))
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


def _common(form: ConicForm) -> Common:
    """That of these cone data; of small problems it outlives them for a while."""
    key = _digest(form)
    with _lock:
        found = _alive.setdefault(key, Common())
        if form.A.nnz <= SMALL:
            _recent[key] = found
            _recent.move_to_end(key)
            while len(_recent) > MOST_RECENT:
                _recent.popitem(last=False)
    return found


def _digest(form: ConicForm) -> bytes:
    """A fingerprint of all cone data but what t costs."""
    rest = np.delete(np.arange(len(form.c)), form.t)
    columns = [form.t, *form.u, *form.variables]
    found = blake2b(repr((form.A.shape, form.cones, form.offset, form.sign, [len(part) for part in columns])).encode())
    for part in (
        form.A.indptr, form.A.indices, form.A.data, form.b, form.c[rest], form.P[rest], form.divided, *columns
    ):  # fmt: skip
        found.update(np.ascontiguousarray(part).tobytes() + np.asarray(part).dtype.str.encode())
    return found.digest()
