"""Where the active constraints of an optimum may change in more than one way.

Two kinds of constraints make a point without a derivative: those near the other case (active with a multiplier of 0, or
about to become active), and those whose gradients depend on each other, so that multipliers are not unique. All of them
are held here as equations, rows of JS in the system of `kkt`. V has a column for each way to leave them, and N spans
the combinations with NᵀJS = 0. A θ = 0 with ‖Aᵀν‖ at the cost of its norm is held by a row of its own, t ≥ 0: it can
leave along e = Aᵀν/‖Aᵀν‖ only, θ = τe with ‖θ‖ = τ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from kernelopt.sensitivity import active
from kernelopt.sensitivity.active import APEX, BOUNDARY, Near
from kernelopt.sensitivity.kkt import Length, Move, Span, System
from kernelopt.sensitivity.natural_units import NOTHING
from kernelopt.sensitivity.optimum import Optimum, shrunken
from kernelopt.sensitivity.unpriced import loose
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array, Bools, Ints

# The part of a random right-hand side that equations with independent gradients leave unanswered, at most.
ANSWERED = 1e-6
# Relative to rows of unit size: singular values of JS up to this count as 0. The gradients of equal rows agree to
# 1e-15, and the multipliers of rows that differ by less than this have no digits.
DEPENDENT = 1e-9
MANY = 1500  # dependent rows up to which all their dependencies are found: 1 s
SOME = 3  # random dependencies that stand for all of them where rows are more
NEGLIGIBLE = 1e-9  # relative to the largest: entries of a random dependency that are rounding
EXACT = 1e-13  # the same of an orthonormal basis of them


@dataclass(frozen=True, eq=False)
class Degenerate:
    """The held system next to an optimum, with equations in units in which their gradients have size 1.

    held : the optimum with the equations of all constraints that may be active; system : with those of θs that may
    leave 0 last; units : the factors of the equations; equation_owners : as `owners`, of each equation
    is_larger : whether the optimum itself has fewer equations
    V : (equations, d), the ways to leave; zeta : (d,), their multipliers, 0 where they may be 0; owners : (d,), the row
    of the cone data that each belongs to, −1 − j for the norm j
    N : (equations, k), orthonormal; is_open : whether N is a part of all dependencies, or a cone that can be left in
    many ways takes part in it
    undecided : first rows of cones, and −1 − j for norms, near to more cases than two
    """

    held: Optimum
    system: System
    units: Array
    equation_owners: Ints
    is_larger: bool
    V: sp.csc_array
    zeta: Array
    owners: Ints
    N: Array
    is_open: bool
    undecided: Ints

    @property
    def is_regular(self) -> bool:
        """Whether the active constraints stay the same nearby."""
        return not (self.V.shape[1] or self.N.shape[1] or len(self.undecided))

    @cached_property
    def C(self) -> Array:
        """NᵀV."""
        return np.asarray(self.N.T @ self.V)

    @cached_property
    def weak(self) -> Ints:
        """The ways to leave whose multiplier is 0 for all multipliers of the optimum."""
        return np.flatnonzero(never_positive(self.zeta, self.C))

    def solve(self, right: Move) -> Move:
        """The answer of the held system."""
        found, _ = self.system.solve(right._replace(zeta=right.zeta / self.units))
        return found._replace(zeta=found.zeta / self.units)

    def response(self, way: int) -> Move:
        """The answer to a slack of one way to leave, without the part that no move can answer."""
        zero = tuple(np.zeros_like(span.w) for span in self.system.spans)
        right = self._answerable(self.V[:, [way]].toarray().ravel())
        found = self.solve(Move(zero, np.zeros(self.system.H.shape[0]), right))
        return found._replace(zeta=self._answerable(found.zeta))

    def _answerable(self, a: Array) -> Array:
        return np.asarray(a - self.N @ (self.N.T @ a))


def degenerate(found: Optimum) -> Degenerate:
    """The constraints of an optimum that may change, held."""
    data = found.data
    sizes = _unit_of_variables(found), found.units[1]
    near = active.near(data, found.faces, data.b - data.A @ found.x, found.z, sizes).without(found.tight)
    held, is_larger = found, bool(len(np.setdiff1d(near.rows, found.equations.rows)) or near.cones)
    if is_larger:
        held = replace(found, equations=active.equations(data, near.faces, found.x, found.z), faces=near.faces)
    system = _with_leaving(held)
    scaled, units = system.with_unit_rows
    rows = _rows(held, near)
    alone = _alone(scaled, data.y)
    N, is_whole = dependencies(system, np.flatnonzero(~alone))
    takes_part = np.abs(N).max(axis=1, initial=0.0) > NEGLIGIBLE
    zeta = np.concatenate([active.multipliers(held.equations, held.z), np.zeros(len(held.leaving))]) / units
    ways = [
        (np.array([i]), np.ones(1), 0.0 if rows.weak[i] else float(zeta[i]), int(rows.owners[i]))
        for i in np.flatnonzero(rows.leaves & ~alone & (rows.weak | takes_part))
    ] + _from_apexes(held, near, rows, units)  # fmt: skip
    V = sp.csc_array((scaled.J.shape[0], 0))
    if ways:
        V = sp.csc_array(
            (np.concatenate([w[1] for w in ways]),
             (np.concatenate([w[0] for w in ways]), np.repeat(np.arange(len(ways)), [len(w[0]) for w in ways]))),
            shape=(scaled.J.shape[0], len(ways)),
        )  # fmt: skip
    tiny = [-1 - j for j in shrunken(found, found.units)]
    weak = np.isin(rows.owners, [way[3] for way in ways if way[2] == 0 and way[3] >= 0 and not found.unpriced[way[3]]])
    unheld = rows.owners[weak & loose(data, system.J, found.z, rows.owners, active.NEAR * sizes[1])]
    return Degenerate(
        held, system, units, rows.owners, is_larger or bool(found.leaving), V, np.array([w[2] for w in ways]),
        np.array([w[3] for w in ways], dtype=int), N,
        not is_whole or bool(np.any(takes_part & rows.conic)),
        np.concatenate([near.undecided, tiny, unheld]).astype(int),
    )  # fmt: skip


def _unit_of_variables(found: Optimum) -> float:
    """The largest prediction or variable, where that is small beside constants: predictions of 1e-3 beside the 1 of
    hinge losses leave slacks of 1e-6 that say something. Where all of them are rounding of 0 they are no unit."""
    columns = np.concatenate([np.arange(0), *found.data.u, *found.data.y]).astype(int)
    size = float(np.abs(found.x[columns]).max(initial=0.0))
    return size if NOTHING * found.units[0] < size < found.units[0] else found.units[0]


def dependencies(system: System, some: Ints) -> tuple[Array, bool]:
    """An orthonormal N, (rows, k), with NᵀJS = 0 for rows of unit size, among some of them, and whether it has all.

    A random right-hand side shows whether there are any: the part of it in their span can't be answered. Where more
    than MANY rows take part, SOME such parts are N.
    """
    scaled = system.with_unit_rows[0]
    count, rng = scaled.J.shape[0], np.random.default_rng(0)
    rest = _unanswered(system, some, rng)
    if rest is None:
        return np.zeros((count, 0)), True
    rows = np.flatnonzero(np.abs(rest) > NEGLIGIBLE * np.abs(rest).max())
    if len(rows) > MANY:
        more = [_unanswered(system, some, rng) for _ in range(SOME - 1)]
        return np.asarray(np.linalg.qr(np.column_stack([rest, *(a for a in more if a is not None)]))[0]), False
    JS = _in_reduced_columns(scaled, rows)
    sizes = np.linalg.norm(JS, axis=1)
    sizes = np.where(sizes > DEPENDENT * sizes.max(initial=0.0), sizes, 1.0)
    U, values, _ = np.linalg.svd(JS / sizes[:, None])
    none = np.concatenate([values, np.zeros(len(rows) - len(values))]) <= DEPENDENT
    N = np.zeros((count, int(none.sum())))
    N[rows] = U[:, none] / sizes[:, None]
    return (_without_rounding(np.linalg.qr(N)[0]) if N.shape[1] else N), True


def _without_rounding(N: Array) -> Array:
    """N with zeros where it has rounding: what a parameter adds along these entries would be all that it adds."""
    return np.where(np.abs(N) > EXACT * np.abs(N).max(axis=0), N, 0.0)


def _unanswered(system: System, some: Ints, rng: np.random.Generator) -> Array | None:
    """What of a random change of some equations no move can answer; None where all of it can be."""
    units = system.with_unit_rows[1]
    probe = np.zeros(len(units))
    probe[some] = rng.normal(size=len(some))
    zero = Move(tuple(np.zeros_like(s.w) for s in system.spans), np.zeros(system.H.shape[0]), probe / units)
    found, left = system.solve(zero)
    if not len(some) or left <= ANSWERED:
        return None
    rest = np.zeros(len(units))
    rest[some] = (probe - units * system.times(found).zeta)[some]
    return rest


def _in_reduced_columns(system: System, rows: Ints) -> Array:
    """Some rows of JS, without columns that none of them meets."""
    J = sp.csc_array(system.J[rows])
    parts = []
    for number, span in enumerate(system.spans):
        for k in range(span.w.shape[1]):
            part = np.asarray(J[:, span.columns[:, k]] @ span.B)
            for n, d in zip(system.norms, system.directions, strict=True):
                if n.theta == number:
                    part = part + J[:, [n.column]] @ d[None, :, k]
            parts.append(part)
    others = system.others
    parts.append(J[:, others[np.diff(J.indptr)[others] > 0]].toarray())
    return np.hstack(parts)


def never_positive(zeta: Array, C: Array) -> Bools:
    """The entries that are 0 in all ζ + Cᵀξ ≥ 0, of which ζ is one; each round finds one with more entries > 0."""
    zero = zeta <= 0
    d, unit = len(zeta), float(np.abs(zeta).max(initial=0.0)) or 1.0
    while len(C) and np.any(zero):
        # maximize Σ min(ζ + Cᵀξ, 1) over the entries that were 0 so far
        some = np.flatnonzero(zero)
        pick = sp.csr_array((np.ones(len(some)), (np.arange(len(some)), some)), shape=(len(some), d))
        least = sp.vstack([
            sp.hstack([-sp.csr_array(C.T), sp.csr_array((d, len(some)))]),
            sp.hstack([-(pick @ C.T), sp.eye_array(len(some))]),
        ])  # fmt: skip
        cost = np.concatenate([np.zeros(len(C)), -np.ones(len(some))])
        bounds = [(None, None)] * len(C) + [(0.0, 1.0)] * len(some)
        found = linprog(cost, least, np.concatenate([zeta, zeta[some]]) / unit, bounds=bounds, method="highs")
        positive = found.x[len(C) :] > active.NEAR if found.status == 0 else np.zeros(len(some), dtype=bool)
        if not positive.any():
            break
        zero[some[positive]] = False
    return np.asarray(zero)


class _Rows(NamedTuple):
    """For each equation its owner, and whether it can be left by itself, its multiplier may be 0, it is one of several
    of a cone."""

    owners: Ints
    leaves: Bools
    weak: Bools
    conic: Bools


def _rows(held: Optimum, near: Near) -> _Rows:
    data, faces, rows = held.data, near.faces, held.equations.rows
    bound = np.zeros(len(data.b), dtype=bool)
    for kind, part, _ in data.cones.slices:
        bound[part] = kind == "nonneg"
    owners, curved = [*rows.tolist()], []
    for kind, part, extra, where in faces.cones:
        if where == BOUNDARY:
            k = np.asarray(extra).shape[1] if kind == "psd" else 1
            curved += [(part.start, kind == "psd")] * (k * (k + 1) // 2)
    of_norms = [-1 - next(j for j, n in enumerate(held.system.norms) if n.theta == k) for k in held.leaving]
    linear = int(np.count_nonzero(faces.linear))
    first = np.array([*owners, *(c[0] for c in curved), *of_norms], dtype=int)
    flat, end = np.arange(len(first)) < linear, len(rows) + len(curved)
    conic = np.concatenate([~flat[: len(rows)], [c[1] for c in curved], np.zeros(len(of_norms))]).astype(bool)
    leaves = np.where(flat, bound[np.maximum(first, 0)], ~conic)
    weak = np.where(flat, np.isin(first, near.rows), np.isin(first, list(near.cones))) & ~conic
    weak[end:] = True
    return _Rows(first, leaves.astype(bool), weak.astype(bool), conic)


def _from_apexes(held: Optimum, near: Near, rows: _Rows, units: Array) -> list[tuple[Ints, Array, float, int]]:
    """s = τ(‖z̄‖, −z̄)/‖z̄‖ for second-order cones with s = 0 and z on the boundary, the only way to leave."""
    found = []
    for start, number in near.cones.items():
        _, part, _, where = near.faces.cones[number]
        if where == APEX:
            z = held.z[part]
            at = np.flatnonzero(np.isin(rows.owners, np.arange(part.start, part.stop)) & rows.conic)
            found.append((at, units[at] * np.append(1.0, -z[1:] / np.linalg.norm(z[1:])), 0.0, start))
    return found


def _alone(system: System, y: tuple[Ints, ...]) -> Bools:
    """The equations that define an auxiliary column which nothing else depends on: their multipliers are its cost."""
    J = sp.csc_array(system.J)
    J.eliminate_zeros()
    columns = np.diff(J.indptr) == 1
    columns[np.unique(sp.coo_array(system.H).coords[0])] = False
    columns[np.concatenate([system.linked, *y])] = False
    found = np.zeros(J.shape[0], dtype=bool)
    found[J.indices[J.indptr[np.flatnonzero(columns)]]] = True
    return found


def _with_leaving(found: Optimum) -> System:
    """The system with θ = τe, ‖θ‖ = τ, and the equation −τ = 0, for each θ that may leave 0 along e."""
    system = found.system
    if found.equations.J is not system.J or found.equations.H is not system.H:
        system = System(found.equations.H, found.equations.J, system.spans, system.norms)
    if not found.leaving:
        return system
    spans, norms, held = list(system.spans), list(system.norms), []
    for number, e in found.leaving.items():
        j = next(j for j, n in enumerate(norms) if n.theta == number)
        columns = spans[number].columns.ravel(order="F")[:, None]
        image = np.ravel(found.whole[number].B @ e, order="F")[:, None]
        spans[number] = Span(image, columns, np.ones((1, 1)), {})
        norms[j] = Length(number, norms[j].column, np.eye(1), np.zeros((1, 1)), 1.0, 0.0)
        held.append(norms[j].column)
    rows = sp.csr_array((-np.ones(len(held)), (np.arange(len(held)), held)), shape=(len(held), system.H.shape[0]))
    return System(system.H, sp.csr_array(sp.vstack([system.J, rows])), tuple(spans), tuple(norms))
