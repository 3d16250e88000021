"""A problem of cvxpy's read into pieces, from its tree.

Each node becomes `Entries`, from the leaves upwards: an affine part and functions of affine parts. What an atom is read
as stands in `atom_rules`. A function of what is not affine is a function of a new column z ≥ (what is not affine); an
atom without a rule takes cvxpy's graph form of it alone, which is read in the same way.

Nodes without parameters are read once: `Reader.read` with other values of parameters reads again what they touch only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.compiler import linear_maps
from kernelopt.compiler.atom_rules import RULES
from kernelopt.compiler.entries import Entries, Functions, Term, applied, constant, joined, stacked, unit, wide
from kernelopt.compiler.linear_maps import MOVES, flat
from kernelopt.errors import DCPError
from kernelopt.pieces.form import Cone, Group, Pieces
from kernelopt.pieces.function import Family
from kernelopt.pieces.ratios import SquaresOverLinear
from kernelopt.support.cvxpy_parts import distinct_nodes, graph_form, has_graph_form, in_real_numbers
from kernelopt.support.types import Array, Ints

# Squares over variables from which they are functions of the table: 1000 take 1.4 s in place of 5.3. Of fewer, cvxpy's
# graph form has multipliers that prove more where numerator and denominator are 0 together.
RATIOS = 30


class Restriction(NamedTuple):
    """Rows with a restriction: "below" (≤ 0), "equal" (= 0), or the kind of a cone.

    extra : of a cone, see `Cone`; of rows below, the columns z that they bound, if any
    """

    kind: str
    rows: Entries
    extra: Any = None


@dataclass(eq=False)
class Kept:
    """What was read of a node: its entries, and the restrictions that they rest on."""

    node: Any
    entries: Entries
    restrictions: dict[int, Restriction]


class Applied(NamedTuple):
    """A variable that stands for functions of an expression: h = ℓ(argument), entry by entry, for `restriction`'s
    variable g == argument."""

    value: cp.Variable
    family: Family
    argument: Any
    named: cp.Variable
    restriction: Any


class Use(NamedTuple):
    """Functions, and where they stand: which of them, in the objective (0) or a row below, with a weight."""

    functions: Functions
    places: list[tuple[Ints, Ints, Array]]

    @property
    def kind(self) -> Any:
        """Functions of one kind may stand in one group: those of the objective alone are apart."""
        f, outer = self.functions, not any(owners.any() for _, owners, _ in self.places)
        return None if f.family.kind is None else (f.family.kind, f.k, f.base is None, outer)


class RowLayout(NamedTuple):
    """Rows in one matrix.

    restrictions, uses : what they are made of; costly : the columns with linear costs; kept : those in use
    pieces : the rows as pieces, with these costs and without weights
    """

    restrictions: tuple[Restriction, ...]
    uses: list[list[Use]]
    costly: Array
    kept: Array
    pieces: Pieces

    def are_rows_of(self, found: Mapping[int, Restriction], uses: list[list[Use]], c: Array) -> bool:
        """Whether these very restrictions and functions, with costs of the same columns, have these rows."""
        same = len(found) == len(self.restrictions) and list(map(len, uses)) == list(map(len, self.uses))
        pairs = zip(chain(*uses), chain(*self.uses), strict=same)
        same = same and all(a.functions is b.functions for a, b in pairs)
        same = same and all(a is b for a, b in zip(found.values(), self.restrictions, strict=True))
        return same and np.array_equal(c != 0, self.costly)


class Reader:
    """Reads one problem, for the values that its parameters have at each call of `read`.

    first : variables whose columns come first, in this order; of_functions : variables that stand for functions
    """

    def __init__(
        self, problem: cp.Problem, first: Iterable[cp.Variable] = (), of_functions: Iterable[Applied] = ()
    ) -> None:
        problem, self._parts = in_real_numbers(problem)
        self._problem = problem
        ratios = [
            n for n in distinct_nodes(problem) if type(n).__name__ == "quad_over_lin" and not n.args[1].is_constant()
        ]
        self.has_many_ratios = sum(node.size for node in ratios) > RATIOS
        self._applied = {one.value.id: one for one in of_functions}
        skipped = {v.id for one in self._applied.values() for v in (one.value, one.named)}
        self._skipped = {one.restriction.id for one in self._applied.values()}
        self._lasting: dict[int, Kept] = {}  # by the ids of nodes without parameters, which are kept alive
        self._present: dict[int, Kept] = {}  # of the others, for the values that parameters have now
        self._passing = 0  # how many graph forms, whose nodes do not last, are being read
        self._bounds: dict[tuple[int, int], Ints] = {}  # columns z, by what they are made for and their order in it
        self._columns: dict[int, Ints] = {}
        self._n = 0
        self._reading: list[tuple[Any, dict[int, Restriction]]] = []
        self._order = count()
        self._found: dict[int, Restriction] = {}
        self._stated: dict[int, dict[int, Restriction]] = {}  # of constraints without parameters
        self._before: RowLayout | None = None
        for variable in (*first, *problem.variables()):
            if variable.id in skipped:
                continue
            self._columns.setdefault(variable.id, self._fresh(variable.size))

    def read(self) -> Pieces:
        """The pieces of the (minimized) problem. Raises DCPError where a node has no reading."""
        self._present, self._found, self._passing, stated = {}, {}, 0, {}
        objective = self.entries(self._problem.objective.args[0])
        if isinstance(self._problem.objective, cp.Maximize):
            objective = objective.times(-1.0)
        for restriction in self._problem.constraints:
            if restriction.id in self._skipped:
                continue
            added = self._restrictions(restriction)
            if added:  # what its arguments need was added before
                stated[restriction.id] = list(added)[-_count(restriction) :]
        return self._assembled(objective, stated)

    def _restrictions(self, stated: Any) -> dict[int, Restriction]:
        """Those of a stated constraint, which are added to the problem."""
        known = self._stated.get(id(stated))
        if known is not None:
            self._found |= known
            return known
        _, found = self._within(stated, self.restrict)
        if not stated.parameters():
            self._stated[id(stated)] = found
        return found

    def entries(self, node: Any) -> Entries:
        """What a node is."""
        known = self._present.get(id(node)) or self._lasting.get(id(node))
        if known is not None:
            for restriction in known.restrictions.values():
                self._add(restriction)
            return known.entries
        found, restrictions = self._within(node, self._new)
        for part in (found.M.data, found.M.indices, found.M.indptr, found.c):
            part.flags.writeable = False  # they are kept, and shared by what is made of them
        home = self._present if self._passing or node.parameters() else self._lasting
        home[id(node)] = Kept(node, found, restrictions)
        return found

    def _within(self, node: Any, read: Callable[[Any], Any]) -> tuple[Any, dict[int, Restriction]]:
        """What reading a node or constraint gives, and the restrictions that it adds, by their ids."""
        order, self._order = self._order, count()
        self._reading.append((node, {}))
        try:
            found = read(node)
        finally:
            _, restrictions = self._reading.pop()
            self._order = order
        for restriction in restrictions.values():
            self._add(restriction)
        return found, restrictions

    def _add(self, restriction: Restriction) -> None:
        """To what is being read, or to the problem."""
        if restriction.kind == "below" and any(_is_ratio(t) for t in restriction.rows.terms):
            restriction = restriction._replace(rows=self._with_cones(restriction.rows))
        if len(restriction.rows):
            home = self._reading[-1][1] if self._reading else self._found
            home[id(restriction)] = restriction

    def _new(self, node: Any) -> Entries:
        if node.is_complex():
            raise DCPError(f"Expected real numbers; got complex ones in {node.name()}.")
        if node.is_constant():
            return constant(flat(node.value))
        if isinstance(node, cp.Variable) and (one := self._applied.get(node.id)) is not None:
            return applied(one.family, self.flattened(self.entries(one.argument)))
        if isinstance(node, cp.Variable):
            return self._variable(node)
        name = type(node).__name__
        if name in RULES and (found := RULES[name](self, node)) is not None:
            return found
        if name in MOVES:
            return self._moved(node)
        if has_graph_form(node):
            return self._graph(node)
        return self.linear(node)

    def _bounding(self, n: int) -> Ints:
        """Columns for functions in what is being read: the same ones at each reading."""
        key = id(self._reading[-1][0]), next(self._order)
        if self._passing:  # what does not last has no id to be found by
            return self._fresh(n)
        if len(self._bounds.get(key, ())) != n:
            self._bounds[key] = self._fresh(n)
        return self._bounds[key]

    def _with_cones(self, entries: Entries) -> Entries:
        """‖x‖²/y as a column z with ‖(2x, y − z)‖ ≤ y + z: in rows below its weight may be 0, where no prox of it is in
        its domain."""
        found = Entries(entries.M, entries.c, tuple(t for t in entries.terms if not _is_ratio(t)))
        for t in entries.terms:
            if not _is_ratio(t):
                continue
            f, m = t.functions, len(t.which)
            arguments, z = Entries(f.M, f.c), unit(self._bounding(m))
            for i, one in enumerate(t.which):
                x, y = (arguments.take(one * f.k + part) for part in (np.arange(f.k - 1), np.array([f.k - 1])))
                head = z.take(np.array([i]))
                self._add(Restriction("soc", stacked([y.plus(head), y.minus(head), x.times(2.0)])))
            place = sp.csr_array((t.weight, (t.at, np.arange(m))), shape=(len(entries), m))
            found = found.plus(z.mapped(place))
        return found

    def _fresh(self, n: int) -> Ints:
        self._n += n
        return np.arange(self._n - n, self._n)

    def _variable(self, variable: cp.Variable) -> Entries:
        """Its entries, and what its attributes restrict; integers are left to their solvers.

        Of a symmetric one entries above the diagonal count, of a diagonal one those on it.
        """
        known = self._columns.get(variable.id)  # a graph form has variables of its own
        found, attributes = unit(self._fresh(variable.size) if known is None else known), variable.attributes
        if any(attributes.get(name) for name in ("symmetric", "PSD", "NSD")):
            place = np.arange(variable.size).reshape(variable.shape, order="F")
            found = found.take(flat(np.minimum(place, place.T)).astype(int))
        if attributes["diag"]:
            found = found.times(flat(np.eye(variable.shape[0])))
        if attributes["sparsity"]:
            kept = np.zeros(variable.shape)
            kept[tuple(attributes["sparsity"])] = 1.0
            found = found.times(flat(kept))
        if attributes["nonneg"] or attributes["pos"]:
            self.at_most_zero(found.times(-1.0))
        if attributes["nonpos"] or attributes["neg"]:
            self.at_most_zero(found)
        if attributes["PSD"] or attributes["NSD"]:
            self._add(semidefinite(found.times(1.0 if attributes["PSD"] else -1.0), variable.shape[0]))
        for bound, sign in zip(attributes["bounds"] or (), (-1.0, 1.0), strict=False):
            limit = flat(np.broadcast_to(bound.value if isinstance(bound, cp.Expression) else bound, variable.shape))
            finite = np.flatnonzero(np.isfinite(limit))
            self.at_most_zero(found.take(finite).plus_constant(-limit[finite]).times(sign))
        return found

    def at_most_zero(self, entries: Entries) -> None:
        """Add the restriction entries ≤ 0."""
        self._add(Restriction("below", entries))

    def _moved(self, node: Any) -> Entries:
        which, parts = linear_maps.moved(node), stacked([self.entries(a) for a in node.args])
        if which.min(initial=0) >= 0:
            return parts.take(which)
        at = np.flatnonzero(which >= 0)
        return parts.mapped(sp.csr_array((np.ones(len(at)), (at, which[at])), shape=(len(which), len(parts))))

    def linear(self, node: Any) -> Entries:
        """An affine atom by its matrix."""
        if any(a.is_complex() for a in node.args):
            raise DCPError(f"Expected real numbers; got complex ones in {node.name()}.")
        try:
            L, shift = linear_maps.matrix(node)
        except NotImplementedError as error:
            raise DCPError(f"Expected an affine atom whose matrix cvxpy tells; got {type(node).__name__}.") from error
        moving = [self.entries(a) for a in node.args if not a.is_constant()]
        return stacked(moving).mapped(L).plus_constant(shift)

    def _graph(self, node: Any) -> Entries:
        """Any other atom: cvxpy's graph form of it, of new variables in the place of what is not affine.

        That of an atom with parameters is made anew at each reading, since cvxpy may look at their values.
        """
        self._passing += 1
        arguments = []
        for a in node.args:
            argument = cp.Constant(a.value) if a.is_constant() else a
            if not a.is_constant() and not (entries := self.entries(a)).is_affine:
                argument = cp.Variable(a.shape)
                self._present[id(argument)] = Kept(argument, self.flattened(entries), {})
            arguments.append(argument)
        value, restrictions = graph_form(node, arguments)
        for restriction in restrictions:
            self._within(restriction, self.restrict)
        found = self.entries(value if isinstance(value, cp.Expression) else cp.Constant(value))
        self._passing -= 1
        alone = found.is_affine and np.all(np.diff(found.M.indptr) == 1) and np.all(found.M.data == 1)
        if not self._passing and alone and not found.c.any():
            self._add(Restriction("value", found, node))
        return found

    def flattened(self, entries: Entries) -> Entries:
        """Affine entries: columns z ≥ what is convex in them, and z ≤ what is concave.

        Where all terms of all entries have one sign, z takes an entry with its affine part.
        """
        for sign in (1.0, -1.0):
            part = [t.where(sign * t.weight > 0) for t in entries.terms]
            part = [t for t in part if len(t.at)]
            if not part:
                continue
            some = np.unique(np.concatenate([t.at for t in part]))
            place = np.full(len(entries), -1)
            place[some] = np.arange(len(some))
            whole = all(np.all(sign * t.weight >= 0) for t in entries.terms)
            z = unit(self._bounding(len(some)))
            moved = tuple(t._replace(at=place[t.at]) for t in part)
            inner = entries.M[some] if whole else sp.csr_array((len(some), 0))
            inside = Entries(inner, entries.c[some] * whole, moved).times(sign)
            self._add(Restriction("below", inside.minus(z), z.M.indices))
            keep = np.ones(len(entries))
            keep[some] = not whole
            put = sp.csr_array(
                (np.full(len(some), sign), (some, np.arange(len(some)))), shape=(len(entries), len(some))
            )
            other = tuple(o for o in (t.where(sign * t.weight < 0) for t in entries.terms) if len(o.at))
            rest = Entries(entries.M, entries.c).times(keep).plus(z.mapped(put))
            entries = Entries(rest.M, rest.c, other)
        return Entries(entries.M, entries.c)

    def restrict(self, restriction: Any) -> None:
        """A constraint."""
        kind, arguments = type(restriction).__name__, restriction.args
        if kind == "Inequality":
            self.at_most_zero(self.entries(restriction.expr))
        elif kind in ("NonPos", "NonNeg"):
            self.at_most_zero(self.entries(arguments[0]).times(1.0 if kind == "NonPos" else -1.0))
        elif kind in ("Equality", "Zero"):
            difference = restriction.expr if kind == "Equality" else arguments[0]
            self._add(Restriction("equal", self.flattened(self.entries(difference))))
        elif kind in CONES:
            for found in CONES[kind](self, restriction):
                self._add(found)
        else:
            raise DCPError(f"Expected constraints that cvxpy's atoms make; got {kind}.")

    def _assembled(self, objective: Entries, stated: Mapping[int, list[int]]) -> Pieces:
        """All rows in one matrix; stated : the restrictions that each stated constraint is.

        Rows of the same restrictions and functions as at the reading before, with costs of the same columns, stay.
        """
        number, found = 0, dict[int, Use]()
        owned = [(objective, np.zeros(1, dtype=int))]
        for kind, entries, _ in self._found.values():
            if kind == "below":
                owned.append((entries, 1 + number + np.arange(len(entries))))
                number += len(entries)
        for entries, owners in owned:
            for t in entries.terms:
                found.setdefault(id(t.functions), Use(t.functions, [])).places.append((t.which, owners[t.at], t.weight))
        uses = _alike(found.values())
        weights = [_weights(several, number) for several in uses]
        c, linear = np.zeros(self._n), sp.coo_array(wide(objective.M, self._n))
        np.add.at(c, linear.col, linear.data)
        before = self._before
        if before is None or not before.are_rows_of(self._found, uses, c):
            before = self._before = self._laid_out(uses, c, stated)
        kept, known = before.kept, before.pieces
        groups = tuple(replace(group, weights=W) for group, W in zip(known.groups, weights, strict=True))
        return known.with_costs(c[kept], float(objective.c.sum()), groups)

    def _laid_out(self, uses: list[list[Use]], c: Array, stated: Mapping[int, list[int]]) -> RowLayout:
        """Rows, and functions of them that weigh nothing yet."""
        rows, at, functions = list[Entries](), 0, [joined([use.functions for use in several]) for several in uses]

        def put(entries: Entries) -> Ints:
            nonlocal at
            rows.append(Entries(entries.M, entries.c))
            at += len(entries)
            return np.arange(at - len(entries), at)

        below, equal, cones, bounds, number = [np.arange(0)], [np.arange(0)], [], [np.zeros((0, 2), dtype=int)], 0
        places, values = dict[int, Ints](), list[tuple[Ints, Any]]()
        for key, (kind, entries, extra) in self._found.items():
            if kind == "value":
                values.append((entries.M.indices, extra))
                continue
            places[key] = put(entries)
            if kind == "below":
                below.append(places[key])
                bounds += [] if extra is None else [np.column_stack([extra, number + np.arange(len(entries))])]
                number += len(entries)
            elif kind == "equal":
                equal.append(places[key])
            else:
                cones.append(Cone(kind, places[key], extra))
        own = [put(Entries(one.M, one.c)).reshape(-1, one.k) for one in functions]
        whole = stacked(rows) if rows else constant(np.zeros(0))
        kept = self._in_use(whole.M, c)
        place = np.cumsum(kept) - 1
        S = sp.csr_array((whole.M.data, place[whole.M.indices], whole.M.indptr), shape=(len(whole), int(kept.sum())))
        pairs = np.concatenate(bounds)
        pairs[:, 0] = place[pairs[:, 0]]
        columns = {self._parts.get(number, number): place[these] for number, these in self._columns.items()}

        def based(M: sp.csr_array | None) -> sp.csr_array | None:
            if M is None:
                return None
            kept_too = kept[M.indices]  # a column that cancels in all differences may stand nowhere else
            data, indices = M.data * kept_too, np.where(kept_too, place[M.indices], 0)
            return sp.csr_array((data, indices, M.indptr), shape=(M.shape[0], S.shape[1]))

        nothing = [sp.csr_array((len(these), 1 + number)) for these in own]
        parts = zip(functions, own, nothing, strict=True)
        pieces = Pieces(
            S.shape[1], c[kept], 0.0, S, whole.c, tuple(Group(f.family, i, W, based(f.base)) for f, i, W in parts),
            np.concatenate(below), np.concatenate(equal), tuple(cones), pairs, columns,
            {name: np.concatenate([places[key] for key in keys]) for name, keys in stated.items()},
            tuple((place[own], node) for own, node in values if kept[own].all()),
        )  # fmt: skip
        return RowLayout(tuple(self._found.values()), uses, c != 0, kept, pieces)

    def _in_use(self, M: sp.csr_array, c: Array) -> Array:
        """Which columns stand anywhere, or are those of a variable: those of earlier readings do not count."""
        kept = c != 0
        kept[M.indices] = True
        kept[np.concatenate([np.arange(0), *self._columns.values()])] = True
        return kept


def _is_ratio(term: Term) -> bool:
    return isinstance(term.functions.family, SquaresOverLinear)


def _alike(uses: Iterable[Use]) -> list[list[Use]]:
    """Those of one kind together, in the order of the first of each."""
    found: dict[Any, list[Use]] = {}
    for use in uses:
        kind = use.kind
        found.setdefault(id(use) if kind is None else kind, []).append(use)
    return list(found.values())


def _weights(uses: Sequence[Use], number: int) -> sp.csr_array:
    """Weights of functions, of one use after the other, in the objective and in so many rows below."""
    counts = [len(use.functions.c) // use.functions.k for use in uses]
    first, every = np.cumsum([0, *counts]), np.arange(sum(counts))
    places = [(at + which, owners, w) for use, at in zip(uses, first, strict=False) for which, owners, w in use.places]
    which, owners, weights = (np.concatenate(part) for part in zip(*places, strict=True))
    if np.any(weights < 0):
        raise DCPError("Expected convex terms; got a concave one.")
    if np.array_equal(which, every):
        return sp.csr_array((weights, owners, np.arange(len(every) + 1)), shape=(len(every), 1 + number))
    return sp.csr_array((weights, (which, owners)), shape=(len(every), 1 + number))


Rows = Iterable[Restriction]


def _second_order(reader: Reader, restriction: Any) -> Rows:
    """tᵢ ≥ ‖Xᵢ‖ for columns of X, or rows."""
    heads, tails = (reader.flattened(reader.entries(a)) for a in restriction.args)
    shape = restriction.args[1].shape
    place = np.arange(len(tails)).reshape(shape, order="F")
    place = place.reshape(-1, 1) if len(shape) < 2 else place if restriction.axis == 0 else place.T
    for i in range(len(heads)):
        yield Restriction("soc", stacked([heads.take(np.array([i])), tails.take(place[:, i])]))


def _count(restriction: Any) -> int:
    """How many restrictions a constraint is."""
    return int(restriction.args[0].size) if type(restriction).__name__ == "SOC" else 1


def semidefinite(X: Entries, n: int) -> Restriction:
    """X ⪰ 0: its symmetric part counts."""
    i, j = np.tril_indices(n)
    both = X.take(i + n * j).plus(X.take(j + n * i))
    return Restriction("psd", both.times(np.where(i == j, 0.5, np.sqrt(0.5))), n)


def _semidefinite(reader: Reader, restriction: Any) -> Rows:
    yield semidefinite(reader.flattened(reader.entries(restriction.args[0])), restriction.args[0].shape[0])


def _triples(reader: Reader, arguments: list[Any]) -> Entries:
    """(x₁, y₁, z₁, x₂, …)."""
    parts = stacked([reader.flattened(reader.entries(a)) for a in arguments])
    return parts.take(np.arange(len(parts)).reshape(3, -1).T.ravel())


def _exponential(reader: Reader, restriction: Any) -> Rows:
    yield Restriction("exp", _triples(reader, restriction.args))


def _power(reader: Reader, restriction: Any) -> Rows:
    found = _triples(reader, restriction.args[:3])
    yield Restriction("power", found, np.broadcast_to(flat(restriction.alpha.value), (len(found) // 3,)))


def _powers(reader: Reader, restriction: Any) -> Rows:
    """Π Wᵢ^αᵢ ≥ |z| for columns of W, or rows."""
    W, z = (reader.flattened(reader.entries(a)) for a in restriction.args[:2])
    shape = restriction.args[0].shape
    place = np.arange(len(W)).reshape(shape, order="F")
    place = place.reshape(-1, 1) if len(shape) < 2 else place if restriction.axis == 0 else place.T
    alpha = np.asarray(restriction.alpha.value, dtype=float).reshape(shape, order="F")
    alpha = alpha.reshape(-1, 1) if len(shape) < 2 else alpha if restriction.axis == 0 else alpha.T
    for i in range(len(z)):
        yield Restriction("generalized_power", stacked([W.take(place[:, i]), z.take(np.array([i]))]), alpha[:, i])


CONES: Mapping[str, Any] = {
    "SOC": _second_order, "PSD": _semidefinite, "ExpCone": _exponential, "PowCone3D": _power, "PowConeND": _powers,
}  # fmt: skip


def read(problem: cp.Problem, first: Iterable[cp.Variable] = ()) -> Pieces:
    """The pieces of a problem, for the values that its parameters have now."""
    return Reader(problem, first).read()
