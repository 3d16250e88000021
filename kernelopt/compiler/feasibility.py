"""Auxiliary problems about a problem: is there a feasible point, and is there a direction along which f falls forever?

Both are built from the outer problem's cone data and keep its links to θ. They are canonical forms themselves, and are
reduced, solved and certified like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.canonical_form import CanonicalForm, NormLink
from kernelopt.compiler.conic_form import ConicForm
from kernelopt.language.expressions import ThetaExpression
from kernelopt.support.types import Array, Ints


@dataclass(frozen=True, eq=False)
class Question:
    """A canonical form that asks about another one, the stated form, whose x is an expression of the new variables.

    norms : for a direction, the norm that each t of the stated form bounds; sizes : the factors of the stated form's
    rows, powers of 2; unit : the factor of its objective; cones : the ids of the new constraints, each with the rows
    of the stated form that it replaces
    """

    form: CanonicalForm
    x: Any
    norms: tuple[NormLink, ...] = ()
    sizes: Array = field(default_factory=lambda: np.zeros(0))
    unit: float = 1.0
    cones: tuple[tuple[int, Ints], ...] = ()

    def prices(self, duals: Mapping[int, tuple[Any, ...]]) -> Array:
        """|multipliers| of the stated form's rows, from those of the new constraints by id; ∞ where one is unknown."""
        found = np.zeros(len(self.sizes))
        for name, rows in self.cones:
            parts = duals.get(name, (None,))
            if any(part is None for part in parts):
                found[rows] = np.inf
                continue
            values = np.abs(np.concatenate([np.ravel(np.asarray(part, dtype=float)) for part in parts]))
            # A matrix inequality has n² multipliers for n(n + 1)/2 rows: the largest stands for all.
            found[rows] = values if len(values) == len(rows) else values.max(initial=0.0)
        return found * self.sizes / self.unit


def phase_one(form: CanonicalForm, data: ConicForm) -> Question | None:
    """minimize ‖p‖² over  b + p − Ax ∈ K  and the links: 0 where the stated problem is feasible.

    A positive lower bound proves infeasibility; the multipliers are then a Farkas vector. Rows are scaled to unit size,
    and all of x and b to the size of the data, unless the length of θ − f₀ is bounded: f₀ would have to be scaled too.
    A norm without an upper bound is left out, so that θ may have any length. None where the problem has no constraints.
    """
    if not len(data.b):
        return None
    bounded = _bounded(data)
    links, x, ordered = _copies(form, data, bounded)
    around_f0 = any(norm.view.shift is not None for norm in links.norms)
    unit = 1.0 if around_f0 else _unit(data)
    return Question(replace(links, outer=_least_violation(data, x, ordered, unit)), x)


def phase_one_of_rows(form: CanonicalForm, data: ConicForm) -> Question | None:
    """The same without the links: norms are free, and so are predictions, except that equal rows have equal ones.

    A positive lower bound proves that the constraints contradict each other for every kernel. Kernel values do not
    enter, so that the proof is independent of the rank of the factor and of rounding in Q.
    """
    if not len(data.b):
        return None
    spread = _equal_rows(form, data)
    x = spread @ cp.Variable(spread.shape[1])
    return Question(CanonicalForm(_least_violation(data, x, [], _unit(data)), (), ()), x)


def phase_one_as_stated(form: CanonicalForm) -> Question | None:
    """minimize s ≥ 0 over  f ≤ s  for all stated inequalities f ≤ 0, the other constraints as they are, and the links.

    A positive lower bound proves infeasibility. The functions f stay as they are: multipliers of their cone forms may
    be degenerate where those of f itself prove a bound. None without an inequality.
    """
    inequalities = [c for c in form.outer.constraints if isinstance(c, cp.constraints.Inequality)]
    if not inequalities or not form.has_cones:
        return None
    s = cp.Variable(nonneg=True)
    relaxed = [c.expr <= s if any(c is one for one in inequalities) else c for c in form.outer.constraints]
    outer = cp.Problem(cp.Minimize(s), relaxed)
    used = {variable.id for variable in outer.variables()}
    norms = tuple(norm for norm in form.norms if norm.t.id in used)
    predictions = tuple(
        link if link.u is None or link.u.id in used else replace(link, u=None) for link in form.predictions
    )
    return Question(CanonicalForm(outer, predictions, norms), s)


def _unit(data: ConicForm) -> float:
    """A power of 2 that brings predictions to about unit size."""
    return float(power_of_2(1 / (data.data_unit or 1.0)))


def _least_violation(data: ConicForm, x: Any, ordered: list[Any], unit: float) -> cp.Problem:
    """The problem of `phase_one` for x, b and all lengths times a unit."""
    size = _sizes(data)
    A, b = sp.csr_array(sp.diags_array(size) @ data.A), data.b * size * unit
    p = cp.Variable(len(b))
    inside = [constraint for constraint, _ in _inside(b + p - A @ x, data)]
    return cp.Problem(cp.Minimize(cp.sum_squares(p)), [*ordered, *inside])


def _equal_rows(form: CanonicalForm, data: ConicForm) -> sp.csr_array:
    """(n, distinct), from free numbers to x: entries of u at equal rows share one, every other entry has its own."""
    shared = np.arange(len(data.c))
    for link, columns in zip(form.predictions, data.u, strict=True):
        if link.u is not None:
            of_outputs = columns.reshape(-1, link.theta.outputs or 1, order="F")
            _, first, which = np.unique(link.take, return_index=True, return_inverse=True)
            shared[of_outputs] = of_outputs[first][which]
    kept, at = np.unique(shared, return_inverse=True)
    return sp.csr_array((np.ones(len(shared)), (np.arange(len(shared)), at)), shape=(len(shared), len(kept)))


def recession(form: CanonicalForm, data: ConicForm) -> Question:
    """minimize cᵀd over directions −Ad ∈ K, Pd = 0, |d| ≤ 1, and the links: negative where f falls along a ray."""
    found = _directions(form, data)
    unit = power_of_2(1 / (float(np.abs(data.c).max(initial=0.0)) or 1.0))
    return found.question(cp.Problem(cp.Minimize((unit * data.c) @ found.d), found.constraints), unit)


def flat_recession(form: CanonicalForm, data: ConicForm, weights: Array) -> Question | None:
    """Directions along which exponentials tend to 0 and no cost grows: minimize Σ wₖ·(change of exponent k).

    w ≥ 0 are the multipliers of the exponentials. At a negative optimum, f falls forever along the direction and does
    not attain its infimum (as logistic regression does where classes are separable). None where all weights are 0, or
    there are no exponential cones.
    """
    if not weights.any():
        return None
    found = _directions(form, data)
    falling = (weights / weights.max()) @ found.s[data.cones.exponentials]
    # Exponentials fall by a bounded amount, while a penalized norm grows without bound: none may grow along d.
    costly = data.t[data.c[data.t] > 0]
    bounds = [found.d[costly] <= 0] if len(costly) else []
    unit = power_of_2(1 / (float(np.abs(data.c).max(initial=0.0)) or 1.0))
    outer = cp.Problem(cp.Minimize(falling), [*found.constraints, (unit * data.c) @ found.d <= 0, *bounds])
    return found.question(outer, 1.0)


@dataclass(frozen=True, eq=False)
class _Directions:
    """Links, d, s = −Ad in rows of unit size, and the constraints s ∈ K, Pd = 0, |d| ≤ 1.

    Entries of d for t have no such bound, since no problem gains from a larger t alone.
    """

    links: CanonicalForm
    norms: tuple[NormLink, ...]
    d: Any
    s: Any
    constraints: list[Any]
    sizes: Array
    cones: tuple[tuple[int, Ints], ...]

    def question(self, outer: cp.Problem, unit: float) -> Question:
        return Question(replace(self.links, outer=outer), self.d, self.norms, self.sizes, unit, self.cones)


def _directions(form: CanonicalForm, data: ConicForm) -> _Directions:
    # Along a direction ‖θ − f₀‖ grows as ‖θ‖ does, so that f₀ drops out.
    norms = tuple(
        replace(norm, view=ThetaExpression(norm.view.theta, norm.view.right, None), function_rows=np.arange(0))
        for norm in form.norms
    )
    links, d, ordered = _copies(replace(form, norms=norms), data, np.ones(len(data.t), dtype=bool))
    sizes = _sizes(data)
    s = -(sp.csr_array(sp.diags_array(sizes) @ data.A) @ d)
    boxed, inside = np.setdiff1d(np.arange(len(data.c)), data.t), _inside(s, data, recession=True)
    constraints = [*ordered, *(constraint for constraint, _ in inside), cp.abs(d[boxed]) <= 1]
    if np.any(data.P > 0):
        constraints.append(d[np.flatnonzero(data.P > 0)] == 0)
    cones = tuple((constraint.id, rows) for constraint, rows in inside)
    return _Directions(links, norms, d, s, constraints, sizes, cones)


def _bounded(data: ConicForm) -> Array:
    """Which t occur in more rows than their own t ≥ 0."""
    return np.asarray(np.diff(data.A.indptr)[data.t] > 1)


def limits_lengths(form: CanonicalForm, data: ConicForm) -> bool:
    """Whether every θ has a norm with an upper bound. Without one, a restricted θ proves nothing about longer ones."""
    bounded = _bounded(data)
    return all(any(bounded[j] for j in form.norms_of(link.theta)) for link in form.predictions)


def has_free_theta(form: CanonicalForm, data: ConicForm) -> bool:
    """Whether some θ has no norm that is penalized or bounded."""
    felt = _bounded(data) | (data.c[data.t] != 0) | (data.P[data.t] != 0)
    links = (link for link in form.predictions if link.u is not None)
    return any(not any(felt[j] for j in form.norms_of(link.theta)) for link in links)


def _copies(form: CanonicalForm, data: ConicForm, bounded: Array) -> tuple[CanonicalForm, Any, list[Any]]:
    """The links in new variables, x assembled from these, and the constraints ‖θ‖ ≤ t of `bounded` norms."""
    n = len(data.c)
    parts: list[Any] = []
    ordered: list[Any] = []
    predictions = []
    for link, columns in zip(form.predictions, data.u, strict=True):
        u = None if link.u is None else cp.Variable(link.u.shape)
        predictions.append(replace(link, u=u))
        if u is not None:
            parts.append(_place(columns, n) @ (u if u.ndim == 1 else cp.vec(u, order="F")))
    norms = []
    for norm, column, keep in zip(form.norms, data.t, bounded, strict=True):
        t = cp.Variable(1)
        if keep:
            length = cp.Variable(nonneg=True)
            norms.append(replace(norm, t=length))
            ordered.append(length <= t)
        parts.append(_place(np.array([column]), n) @ t)
    rest = np.ones(n, dtype=bool)
    rest[data.linked] = False
    if rest.any():
        parts.append(_place(np.flatnonzero(rest), n) @ cp.Variable(int(rest.sum())))
    x = sum(parts[1:], parts[0]) if parts else cp.Constant(np.zeros(n))  # none, where θ = 0 is all that there is
    return CanonicalForm(form.outer, tuple(predictions), tuple(norms)), x, ordered


def _place(columns: Array, n: int) -> Any:
    return sp.csc_array((np.ones(len(columns)), (columns, np.arange(len(columns)))), shape=(n, len(columns)))


def _sizes(data: ConicForm) -> Array:
    """Factors that bring rows of the zero and nonnegative cones, and whole second-order and matrix cones, to about unit
    size: powers of 2, which multiply exactly. Exponential and power cones keep their size."""
    A = sp.csr_array(data.A)
    size = np.abs(A).max(axis=1).toarray().ravel() if A.nnz else np.zeros(len(data.b))
    for kind, rows, _ in data.cones.slices:
        if kind not in ("zero", "nonneg"):
            size[rows] = size[rows].max() if kind in ("soc", "psd") else 1.0
    return np.asarray(power_of_2(1 / np.where(size > 0, size, 1.0)))


def power_of_2(size: Any) -> Any:
    """The largest power of 2 that is no larger than a positive number."""
    return np.ldexp(1.0, np.frexp(size)[1] - 1)


def _inside(s: Any, data: ConicForm, recession: bool = False) -> list[tuple[Any, Ints]]:
    """s ∈ K as cvxpy constraints, with the rows of each.

    For directions, y = 0 in exponential cones whose y is constant, which leaves the linear face x ≤ 0 ≤ z.
    """
    constraints: list[tuple[Any, Ints]] = []
    touched = np.diff(sp.csr_array(data.A).indptr) > 0
    for kind, rows, extra in data.cones.slices:
        part, at = s[rows], np.arange(rows.start, rows.stop)
        match kind:
            case "zero":
                constraints.append((part == 0, at))
            case "nonneg":
                constraints.append((part >= 0, at))
            case "soc":
                constraints.append((cp.SOC(part[0], part[1:]), at))
            case "psd":
                constraints.append((_packed_psd(part, extra), at))
            case "exp":
                first = data.cones.exponentials
                flat = first[~touched[first + 1]] if recession else first[:0]
                curved = np.setdiff1d(first, flat)
                if len(flat):
                    constraints += [(s[flat] <= 0, flat), (s[flat + 2] >= 0, flat + 2)]
                if len(curved):
                    cone = cp.ExpCone(s[curved], s[curved + 1], s[curved + 2])
                    constraints.append((cone, np.concatenate([curved, curved + 1, curved + 2])))
            case "power":
                constraints.append((cp.PowCone3D(part[0], part[1], part[2], extra), at))
            case _:
                constraints.append((cp.PowConeND(part[:-1], part[-1], np.asarray(extra)), at))
    return constraints


def _packed_psd(part: Any, n: int) -> Any:
    """The constraint that the matrix of a packed upper triangle (by columns, off-diagonals times √2) is positive
    semidefinite."""
    columns, rows = np.tril_indices(n)
    k, off = np.arange(len(rows)), rows != columns
    weight = np.where(off, 1 / np.sqrt(2), 1.0)
    entries = np.r_[rows + n * columns, (columns + n * rows)[off]]
    full = sp.csc_array((np.r_[weight, weight[off]], (entries, np.r_[k, k[off]])), shape=(n * n, len(k)))
    return cp.reshape(full @ part, (n, n), order="F") >> 0
