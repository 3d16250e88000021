"""Derivatives to both sides, where the active constraints of an optimum may change.

With all constraints held that may be active, let K r = ∇φ, and let constraints be left by slacks Vτ, τ ≥ 0. Along a
change dp of the parameters,

    φ′(dp) = ∂φ(dp) − rᵀ∂R(dp) − (Vᵀr_ζ)ᵀτ(dp),

with τ(dp) of `directional`, whose data are M = −VᵀK⁻¹V and η₀ = −VᵀK⁻¹∂R on the equations, and c = Nᵀ∂h. They are found
for all parameters at once, by one answer of the system for each way to leave. The criterion is differentiable where φ′
is linear. For the optimal value, φ′(dp) = ∂L(dp) + min ζᵀτ.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import cvxpy as cp
import numpy as np

from kernelopt.errors import KernelOptError
from kernelopt.sensitivity import active, solution_map
from kernelopt.sensitivity.degenerate import Degenerate, degenerate
from kernelopt.sensitivity.directional import least, side
from kernelopt.sensitivity.kkt import Move
from kernelopt.sensitivity.optimum import Optimum
from kernelopt.sensitivity.solution_map import AdjointAnswer, ByParameter, Derivative
from kernelopt.support.cvxpy_parts import DataSlopes
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array, Bools, Ints

MOST = 100  # ways to leave, and dependencies, for which systems are solved: each takes about 0.05 s with 1000 rows
# Relative to the sizes of their terms: one-sided derivatives that differ by less are equal, since the answers of the
# small problem are exact to about 1e-9.
DIFFER = 1e-6
# Of a slack's cost, relative to the largest curvature and the squares of what it moves: below this, it is rounding.
COSTLESS = 1e-12
ROUNDED = 1e-9  # relative to the sizes of its terms: an effect of a parameter that is rounding
# Of a direction in which an optimum is flat, relative to its largest entry: smaller ones are errors of its curvature,
# as of exponentials, whose multipliers are exact to 1e-7.
INEXACT = 1e-4
PASSES = 3  # of what a singular system can't answer: each takes off what the one before left of the rest
TRIED = 6  # random directions of a parameter with several entries
ENTRIES = 20  # entries of such a parameter that are also tried one by one


class Sides(NamedTuple):
    """The derivatives by one parameter to the left and to the right, None where they are not known.

    owners : rows of the cone data, or −1 − j for the norm j, for which they differ or are not known
    linear : the derivative by each entry where it is linear, with what constraints that are left add; None elsewhere
    """

    left_right: tuple[float, float] | None
    owners: Ints
    linear: Array | None = None

    @property
    def differ(self) -> bool:
        return bool(len(self.owners))


class Beyond(NamedTuple):
    """What constraints that are left add to the derivative to one side, and the terms of each way to leave.

    The change is nan where the problem has no solution on this side; the terms, too, where it is not known.
    """

    change: float
    terms: Array


class Response(NamedTuple):
    """The multipliers in the answer to a slack, its derivatives by parameters, and its largest move."""

    zeta: Array
    along: ByParameter
    length: float


class OneSided:
    """What can change at an optimum, as a function of the chosen parameters; nothing is computed before it is asked."""

    def __init__(self, found: Optimum, chosen: list[cp.Parameter]) -> None:
        self.found, self.chosen = found, chosen
        self._responses: dict[int, Response] = {}
        self._shifts: dict[int, ByParameter] = {}

    @cached_property
    def at(self) -> Degenerate:
        return degenerate(self.found)

    # ---------------------------------------------------------------- criteria and the optimal value

    def of_criterion(self, derivative: Derivative, parameters: list[cp.Parameter]) -> dict[int, Sides]:
        """Both derivatives of a criterion by each parameter, by id."""
        adjoint = derivative.adjoint
        assert adjoint is not None
        self._require_determined(parameters)
        if self.at.is_regular:
            return {p.id: _both(derivative.of_parameters.get(p.id)) for p in parameters}
        r, known = self._adjoint(derivative)
        bent = self._bent_ways(derivative)
        beyond = self._undecided(adjoint)
        found = {}
        for p in parameters:
            if p.id not in known:
                found[p.id] = _both(derivative.of_parameters.get(p.id))
            else:
                found[p.id] = Sides(None, beyond) if len(beyond) else self._sides(p, r, bent, *known[p.id])
        return found

    def _bent_ways(self, derivative: Derivative) -> Bools:
        """The ways to leave along which a kink of the criterion moves: what they change depends on slopes there."""
        found = np.zeros(self.at.V.shape[1], dtype=bool)
        for pair in derivative.redrawn:
            one, other = (self._adjoint(each)[0] for each in pair)
            size = max(float(np.abs(r).max(initial=0.0)) for r in (one, other))
            found |= np.abs(self.at.V.T @ (one - other)) > solution_map.MOVED * size
        return found

    def of_value(self, derivative: Derivative, parameters: list[cp.Parameter]) -> dict[int, Sides]:
        """Both derivatives of the optimal value: they differ where multipliers, or what a parameter acts on, are not
        unique."""
        self._require_determined(parameters)
        found = {}
        for p in parameters:
            g, sizes = derivative.of_parameters.get(p.id, (np.zeros(p.shape), np.zeros(p.shape)))
            if len(loose := self._costless(p)):
                found[p.id] = Sides(None, self.at.owners[loose])
                continue
            if self.at.N.shape[1] and p.id in derivative.of_parameters:
                found[p.id] = self._sides_of_value(p, g, sizes)
            else:
                found[p.id] = _both((g, sizes))
        return found

    def _require_determined(self, parameters: list[cp.Parameter]) -> None:
        """Raise KernelOptError for a parameter that acts on what the optimum leaves open: with n of Kn = 0, nᵀ∂R ≠ 0.

        The optimum then jumps as the parameter changes, and its value has a kink.
        """
        for p in parameters:
            g, sizes = self._of_flat.get(p.id, (np.zeros(1), np.zeros(1)))
            if np.any(np.abs(g) > solution_map.MOVED * float(np.max(sizes, initial=0.0))):
                raise KernelOptError(
                    f"Expected an optimum that is unique in all that {p.name()} acts on; this one can move at no cost, "
                    "as an intercept can whose rows are all on linear stretches, and moves with the sign of a change. "
                    "Add a small penalty of the free variables, such as 1e-6·cp.square(b)."
                )

    @cached_property
    def _of_flat(self) -> ByParameter:
        """nᵀ∂R for a random n of Kn = 0, what no answer of a random right-hand side explains; empty without one."""
        system, rng = self.found.system, np.random.default_rng(4)
        x, y = np.zeros(system.H.shape[0]), np.concatenate([np.arange(0), *self.found.data.y]).astype(int)
        x[y] = rng.normal(size=len(y))  # auxiliary columns that nothing determines are none of the optimum
        rest = Move(tuple(rng.normal(size=s.w.shape) for s in system.spans), x, np.zeros(system.J.shape[0]))
        for _ in range(PASSES):
            answer, left = system.solve(rest)
            if left <= solution_map.REGULAR:
                return {}
            image = system.times(answer)
            w = tuple(a - b for a, b in zip(rest.w, image.w, strict=True))
            rest = Move(w, rest.x - image.x, rest.zeta)
        rest = system.as_move(rest)
        least = INEXACT * max(float(np.abs(part).max(initial=0.0)) for part in (*rest.w, rest.x))
        *parts, x = (np.where(np.abs(part) > least, part, 0.0) for part in (*rest.w, rest.x))
        return solution_map.along(self.found, system, Move(tuple(parts), x, rest.zeta), self.chosen)

    def _costless(self, p: cp.Parameter) -> Ints:
        """The ways to leave that cost nothing, at which the parameter acts on what moves."""
        ways = self.at.weak
        if not len(ways) or len(ways) > MOST:
            return ways
        R, E = self._answers(ways, p)
        lengths = np.array([self._responses[way].length for way in ways.tolist()])
        cost = np.abs(np.sum(self.at.V[:, ways].toarray() * R, axis=0))
        return ways[(cost <= COSTLESS * self._stiffest * lengths**2) & E.any(axis=1)]

    def _sides_of_value(self, p: cp.Parameter, g: Array, sizes: Array) -> Sides:
        c = self._shift(p)
        if c is not None and not c.any():
            return _both((g, sizes))
        owners = self._dependent
        if c is None or self.at.is_open or self._holds_some:
            return Sides(None, owners)
        zero = np.zeros(len(self.at.zeta))

        def of(u: Array) -> Beyond:
            chosen = least(self.at.zeta, self.at.C, c @ u)
            return Beyond(np.nan if chosen is None else chosen[1], zero)

        return self._compared(p, of, g, sizes, owners)

    # ---------------------------------------------------------------- one parameter

    def _sides(self, p: cp.Parameter, r: Array, bent: Bools, g: Array, sizes: Array) -> Sides:
        at, c = self.at, self._shift(p)
        if c is None or self._is_unsteady(p):
            return Sides(None, self._dependent)
        shifted = bool(c.any())
        ways = np.arange(len(at.zeta)) if shifted else at.weak
        if (at.is_open and (shifted or np.any(at.C[:, at.weak]))) or (shifted and self._holds_some):
            return Sides(None, self._dependent)
        a = np.asarray(at.V.T @ r)[ways]
        if not np.any(np.abs(a) > ROUNDED * np.abs(r).max(initial=0.0)) and not shifted and not bent[ways].any():
            return _both((g, sizes))
        owners = at.owners[ways]
        if len(ways) > MOST:
            return Sides(None, owners)
        R, E = self._answers(ways, p)
        if bent[ways].any() and (shifted or E.any()):
            return Sides(None, at.owners[ways][bent[ways]])
        M, lengths = -np.asarray(at.V[:, ways].T @ R), np.array([self._responses[way].length for way in ways.tolist()])
        M[np.abs(M) <= COSTLESS * self._stiffest * np.multiply.outer(lengths, lengths)] = 0.0
        zeta, C = at.zeta[ways], at.C[:, ways]

        def of(u: Array) -> Beyond:
            found = side(0.5 * (M + M.T), E @ u, zeta if shifted else np.zeros(len(ways)), C, c @ u)
            if found is None:
                return Beyond(np.nan, np.zeros(len(ways)))
            if np.any(np.abs(a @ found.loose) > ROUNDED * np.abs(a).max(initial=0.0)):
                return Beyond(np.nan, np.full(len(ways), np.nan))
            return Beyond(-float(a @ found.tau), a * found.tau)

        return self._compared(p, of, g, sizes, owners)

    def _compared(self, p: cp.Parameter, of: Callable[[Array], Beyond], g: Array, sizes: Array, owners: Ints) -> Sides:
        """Whether what is added to a linear derivative is linear itself, and both sides for one number."""
        floor = ROUNDED * float(sizes.max(initial=0.0))
        if p.size == 1:
            right, left = of(np.ones(1)), of(-np.ones(1))
            matter = _bent([right, left], floor, owners)
            if np.isnan([*right.terms, *left.terms]).any():
                return Sides(None, owners)
            number = float(np.ravel(g)[0])
            if not len(matter):
                middle = number + 0.5 * (right.change - left.change)
                return Sides((middle, middle), matter, np.reshape(middle, p.shape))
            return Sides((number - left.change, number + right.change), matter)
        entries, matter = self._entries(p), np.arange(0)
        directions = _directions(p.size, entries)
        for u in directions:
            matter = np.union1d(matter, _bent([of(u), of(-u)], floor, owners))
        for u, v in pairwise(directions[:TRIED]):
            matter = np.union1d(matter, _bent([of(u), of(v), of(-u - v)], floor, owners))
        if len(matter):
            return Sides(None, matter.astype(int))
        found = np.ravel(g, order="F").astype(float)
        for entry in entries.tolist():
            u = np.zeros(p.size)
            u[entry] = 1.0
            found[entry] += 0.5 * (of(u).change - of(-u).change)
        return Sides(None, matter.astype(int), found.reshape(p.shape, order="F"))

    # ---------------------------------------------------------------- the data of the small problem

    def _adjoint(self, derivative: Derivative) -> tuple[Array, ByParameter]:
        """r on the held equations, and the derivative with these held."""
        adjoint, at = derivative.adjoint, self.at
        assert adjoint is not None
        if not at.is_larger:
            return adjoint.move.zeta / at.units, derivative.of_parameters
        w = tuple(
            np.full((1, 1), derivative.of_leaving[number]) if number in at.held.leaving else part
            for number, part in enumerate(adjoint.right.w)
        )
        move = at.solve(Move(w, adjoint.right.x, np.zeros(len(at.units))))
        held, own = self._along(move), solution_map.along(self.found, self.found.system, adjoint.move, self.chosen)
        total = dict(derivative.of_parameters)
        for name, (g, size) in held.items():
            base, sizes = total.get(name, (np.zeros_like(g), size))
            total[name] = base + g - own[name][0] if name in own else base + g, np.maximum(sizes, size)
        return move.zeta, total

    def _along(self, move: Move) -> ByParameter:
        at = self.at
        return solution_map.along(at.held, at.system, move._replace(zeta=at.units * move.zeta), self.chosen)

    def _answers(self, ways: Ints, p: cp.Parameter) -> tuple[Array, Array]:
        """The multipliers in the answer to each way's slack, by columns, and what the parameter's entries change."""
        for way in ways.tolist():
            if way not in self._responses:
                move = self.at.response(way)
                length = max(float(np.abs(part).max(initial=0.0)) for part in (*move.w, move.x))
                self._responses[way] = Response(move.zeta, self._along(move), length)
        known = [self._responses[way] for way in ways.tolist()]
        R = np.column_stack([each.zeta for each in known] or [np.zeros((len(self.at.units), 0))])
        return R, _rows_of([each.along for each in known], p)

    @property
    def _stiffest(self) -> float:
        """The largest curvature, by a column or by w."""
        system = self.at.system
        curvatures = [float(abs(system.H).max()) if system.H.nnz else 0.0, *(abs(n.weight) for n in system.norms)]
        return max(curvatures)

    def _shift(self, p: cp.Parameter) -> Array | None:
        """c = Nᵀ∂h by the parameter's entries, (k, size); None where it is not 0 and has too many rows."""
        N = self.at.N
        if N.shape[1] > MOST:
            mixed = [self._of_equations(N @ u) for u in np.random.default_rng(1).normal(size=(2, N.shape[1]))]
            return None if _rows_of(mixed, p).any() else np.zeros((N.shape[1], p.size))
        for k in range(N.shape[1]):
            if k not in self._shifts:
                self._shifts[k] = self._of_equations(N[:, k])
        return -_rows_of([self._shifts[k] for k in range(N.shape[1])], p)

    def _of_equations(self, zeta: Array) -> ByParameter:
        system = self.at.system
        return self._along(Move(tuple(np.zeros_like(s.w) for s in system.spans), np.zeros(system.H.shape[0]), zeta))

    def _entries(self, p: cp.Parameter) -> Ints:
        """Entries that move the multipliers or the equations of what may change."""
        rows = [_rows_of([known.along for known in self._responses.values()], p)]
        rows.append(_rows_of(list(self._shifts.values()), p))
        return np.flatnonzero(np.vstack(rows).any(axis=0))

    @property
    def _dependent(self) -> Ints:
        takes_part = np.abs(self.at.N).max(axis=1, initial=0.0) > ROUNDED
        return np.unique(self.at.equation_owners[takes_part])

    @property
    def _holds_some(self) -> bool:
        """Whether some θ is held at 0: where equations ask for another one, it leaves, and no slack tells how."""
        return not all(self.at.held.moves(number) for number in range(len(self.at.held.form.predictions)))

    def _is_unsteady(self, p: cp.Parameter) -> bool:
        return bool(self.at.N.shape[1]) and (self._unsteady[0] or p.id in self._unsteady[1])

    @cached_property
    def _unsteady(self) -> tuple[bool, set[int]]:
        """Whether dependencies end as x moves, and the parameters with which they do: Nᵀ∂(JS) ≠ 0.

        Then the derivative is not the same for all multipliers of the optimum. Seen in a random combination, along a
        random move.
        """
        at, rng = self.at, np.random.default_rng(2)
        held, system, data = at.held, at.system, at.held.data
        nu = at.units * (at.N @ rng.normal(size=at.N.shape[1]))
        z = active.of_rows(held.equations, nu[: len(held.equations.h)], len(data.b))
        rest = np.zeros(system.H.shape[0])
        rest[system.others] = rng.normal(size=len(system.others))
        x = system.placed(tuple(rng.normal(size=s.w.shape) for s in system.spans), rest)
        s, y = data.A @ x, np.zeros(len(data.b))
        if held.equations.G.shape[0]:
            bend = active.equations(data, held.faces, held.x, z).bend
            y = bend @ s
            pulled, size = system.gathered(data.A.T @ y), np.abs(data.A).T @ (abs(bend) @ np.abs(s))
            others = (data.A.T @ y)[system.others]
            largest = max([float(np.abs(part).max(initial=0.0)) for part in (*pulled, others)])
            if largest > ROUNDED * float(size.max(initial=0.0)):
                return True, set()
        slopes = DataSlopes(
            lambda i, j: np.zeros(len(i)), np.zeros(len(data.c)), lambda i, j: z[i] * x[j] + y[i] * held.x[j], -y
        )
        found = slopes.of_parameters(data.data)
        moved = {name for name, (g, size) in found.items() if np.any(np.abs(g) > ROUNDED * size)}
        back = np.abs(system.J.T) @ np.abs(nu)
        pulled_u = system.J.T @ nu
        for number, link in enumerate(held.form.predictions):
            columns = system.spans[number].columns.ravel()
            summed = link.summed(pulled_u[columns])
            if np.any(np.abs(summed) > ROUNDED * float(back[columns].max(initial=0.0))):
                moved |= {p.id for p in link.theta.kernel.parameters()}
        return False, moved

    def _undecided(self, adjoint: AdjointAnswer) -> Ints:
        """Cones near to more than two cases, and norms near 0, that the answer of the adjoint system moves."""
        found, equations, rows = self.found, self.found.equations, self.at.undecided
        if not len(rows):
            return rows
        slack, multiplier = np.abs(found.data.A @ adjoint.x), np.zeros(len(found.data.b))
        count = len(equations.rows)
        multiplier[equations.rows] = np.abs(adjoint.move.zeta[:count])
        multiplier += abs(equations.G).T @ np.abs(adjoint.move.zeta[count:])
        moves = (slack > ROUNDED * slack.max(initial=0.0)) | (multiplier > ROUNDED * multiplier.max(initial=0.0))
        of_cone = {part.start: bool(moves[part].any()) for _, part, *_ in found.faces.cones}
        return np.array([row for row in rows.tolist() if of_cone.get(row, True)], dtype=int)


def _both(known: tuple[Array, Array] | None) -> Sides:
    """The same derivative to both sides."""
    g = np.zeros(1) if known is None else np.ravel(known[0])
    return Sides((float(g[0]), float(g[0])) if len(g) == 1 else None, np.arange(0))


def _rows_of(known: list[ByParameter], p: cp.Parameter) -> Array:
    """The derivatives by one parameter's entries, (n, size), without rounding."""
    found = np.zeros((len(known), p.size))
    for row, one in zip(found, known, strict=True):
        if p.id in one:
            g, size = (np.ravel(a, order="F") for a in one[p.id])
            row[:] = np.where(np.abs(g) > ROUNDED * size.max(initial=0.0), g, 0.0)
    return found


def _directions(size: int, entries: Ints) -> list[Array]:
    found = list(np.random.default_rng(3).normal(size=(TRIED, size)))
    for entry in entries[:ENTRIES]:
        found.append(np.zeros(size))
        found[-1][entry] = 1.0
    return found


def _bent(steps: list[Beyond], floor: float, owners: Ints) -> Ints:
    """The owners for which steps along directions that add up to 0 do not add up to 0 themselves."""
    total = sum(step.change for step in steps)
    sizes = np.sum([np.abs(step.terms) for step in steps], axis=0)
    if np.isnan(total):
        return owners
    scale = max(float(sizes.sum()), *(abs(step.change) for step in steps))
    if abs(total) <= DIFFER * scale + floor:
        return np.arange(0)
    large = sizes > DIFFER * scale
    return owners[large] if len(sizes) == len(owners) and large.any() else owners
