"""The constraints that hold with equality at an optimum, as smooth functions, with their Jacobian and curvature.

A row of a cone program that is active is an equation h(x) = 0 with a multiplier ζ: Ax − b for a linear row, and for the
boundary of a cone g(s) = 0, s = b − Ax, with

    exponential   g = s₂e^(s₁/s₂) − s₃,            ∇²g = (e^(s₁/s₂)/s₂)(1, −s₁/s₂, 0)(1, −s₁/s₂, 0)ᵀ
    second order  g = ‖s̄‖ − s₁,                    ∇²g = (I − s̄s̄ᵀ/‖s̄‖²)/‖s̄‖ on s̄
    power         g = |s₃| − s₁ᵃs₂¹⁻ᵃ
    semidefinite  g = −(S₂₂ − S₂₁S₁₁⁻¹S₁₂),        Σζ∇²g = 2Σ (ζ_b/λ_a) q qᵀ, qᵀs = u_aᵀSv_b

and z = −ζ∇g(s). Of a semidefinite S, u_a are the eigenvectors with eigenvalues λ_a > 0, S₂₂ is the part on its kernel,
entry by entry, and v_b are the eigenvectors of Z there, with eigenvalues ζ_b. A cone whose s is inside is left out, and
one with s = 0 holds with all of its rows. What remains is an equality constrained problem with the Lagrangian
½xᵀPx + cᵀx + Σ wℓ(g) + Σ ζᵢhᵢ(x).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from kernelopt.errors import KernelOptError
from kernelopt.sensitivity.stated_cones import StatedCones
from kernelopt.solvers.cones import matrix, packed
from kernelopt.support.types import Array, Bools, Ints

INSIDE, BOUNDARY, APEX = 0, 1, 2
# Relative to the units of slacks and multipliers: a slack or a multiplier up to this may be 0. Polished points are
# exact to about 1e-12 of these units.
NEAR = 1e-6
SMALL = (
    1e-2  # relative to the unit of slacks: s of a second-order cone may be 0; answers of rough solves are off by less
)


class Faces(NamedTuple):
    """Which constraints are active: the linear rows, and for each other cone its rows and where s is."""

    linear: Bools
    cones: tuple[tuple[str, slice, object, int], ...]

    @property
    def ranks(self) -> list[tuple[int, ...]]:
        """The shapes of the kernels of semidefinite cones."""
        return [np.asarray(extra).shape for kind, _, extra, _ in self.cones if kind == "psd"]

    def is_like(self, other: Faces) -> bool:
        """Whether s is on the same faces of its cones, linear ones aside."""
        places = [[where for *_, where in one.cones] for one in (self, other)]
        return places[0] == places[1] and self.ranks == other.ranks


class Near(NamedTuple):
    """Active constraints whose multiplier may be 0, and inactive ones whose slack may be: both to NEAR.

    faces : the active constraints with all of these held; rows : those among the linear rows; cones : by the first row
    of a cone, its place in `faces.cones`; undecided : first rows of cones near to more than two cases
    """

    faces: Faces
    rows: Ints
    cones: dict[int, int]
    undecided: Ints

    def without(self, rows: Bools) -> Near:
        """The same without some rows, which are known to be equations whatever their multipliers."""
        if not rows.any():
            return self
        cones = {start: number for start, number in self.cones.items() if not rows[start]}
        return self._replace(rows=self.rows[~rows[self.rows]], cones=cones)


@dataclass(frozen=True, eq=False)
class Equations:
    """h(x), its Jacobian J, and the Hessian of the Lagrangian's objective and curved constraints at a point.

    bend : the block-diagonal matrix Σ ζ∇²g on the rows of A; G : gradients ∇g, a row for each curved constraint;
    linear, apex : rows of A that are equations themselves
    """

    h: Array
    J: sp.csr_array
    H: sp.csc_array
    rows: Ints
    G: sp.csr_array
    bend: sp.csr_array


def faces(data: StatedCones, s: Array, z: Array, units: tuple[float, float]) -> Faces:
    """The active constraints at slacks s and multipliers z, measured in `units` of s and of z.

    Linear rows count in the units of their coefficients: s/‖Aᵢ‖ and ‖Aᵢ‖z.
    """
    of_s, of_z = units
    s, z = s / data.row_norms, z * data.row_norms
    m = len(data.b)
    linear = np.zeros(m, dtype=bool)
    cones: list[tuple[str, slice, object, int]] = []
    for kind, rows, extra in data.cones.slices:
        a, b = np.abs(s[rows]) / of_s, np.abs(z[rows]) / of_z
        match kind:
            case "zero":
                linear[rows] = True
            case "nonneg":
                linear[rows] = b > a
                linear[data.vacuous] = False
            case "exp":
                for first in range(rows.start, rows.stop, 3):
                    part = slice(first, first + 3)
                    held = np.abs(z[part]).max() / of_z > 1e-12 and z[first + 2] > 0
                    cones.append((kind, part, extra, BOUNDARY if held else INSIDE))
            case "soc":
                inside = s[rows.start] - np.linalg.norm(s[rows.start + 1 : rows.stop])
                at_apex = z[rows.start] - np.linalg.norm(z[rows.start + 1 : rows.stop])
                places = np.array([inside / of_s, min(s[rows.start] / of_s, z[rows.start] / of_z), at_apex / of_z])
                cones.append((kind, rows, extra, int(np.argmax(places))))
            case "power":
                size = np.abs(z[rows]).max() / of_z
                held = size > 1e-9 and z[rows.start] + z[rows.start + 1] > 0
                cones.append((kind, rows, extra, BOUNDARY if held else INSIDE))
            case "psd":
                values, vectors = np.linalg.eigh(matrix(s[rows], extra) / of_s - matrix(z[rows], extra) / of_z)
                kernel = vectors[:, values < 0]
                where = (INSIDE, APEX)[kernel.shape[1] == extra] if kernel.shape[1] in (0, extra) else BOUNDARY
                cones.append((kind, rows, kernel, where))
            case _:
                raise KernelOptError(
                    "Expected linear rows, and second-order, semidefinite, exponential and power cones; a cone of kind "
                    f"{kind} has no derivative here."
                )
    return Faces(linear, tuple(cones))


def alternatives(active: Faces, s: Array, units: tuple[float, float]) -> list[Faces]:
    """These active constraints, and those with s = 0 in second-order cones where s is small, if there are any."""

    def small(kind: str, part: slice, where: int) -> bool:
        return kind == "soc" and where != APEX and bool(s[part.start] < SMALL * units[0])

    cones = tuple((kind, part, extra, APEX if small(kind, part, where) else where)
                  for kind, part, extra, where in active.cones)  # fmt: skip
    return [active] if cones == active.cones else [active, active._replace(cones=cones)]


def near(data: StatedCones, active: Faces, s: Array, z: Array, units: tuple[float, float]) -> Near:
    """The constraints that are near the other case at slacks s and multipliers z, measured as in `faces`."""
    of_s, of_z = units
    s, z = s / data.row_norms, z * data.row_norms
    may_be = np.zeros(len(data.b), dtype=bool)
    for kind, rows, _ in data.cones.slices:
        may_be[rows] = kind == "nonneg"
    may_be[data.vacuous] = False
    linear = np.flatnonzero(may_be & (np.abs(s) < NEAR * of_s) & (np.abs(z) < NEAR * of_z))
    held = active.linear.copy()
    held[linear] = True
    cones, places, undecided = list(active.cones), dict[int, int](), list[int]()
    for number, (kind, part, extra, where) in enumerate(active.cones):
        slack, multiplier = s[part] / of_s, z[part] / of_z
        small = bool(np.abs(multiplier).max() < NEAR)
        if kind == "psd":
            n = len(np.asarray(extra))
            values = np.linalg.eigvalsh(matrix(slack, n) - matrix(multiplier, n))
            if np.abs(values).min() < NEAR:
                undecided.append(part.start)
        elif kind == "soc" and slack[0] < NEAR:
            if small:
                undecided.append(part.start)
            elif multiplier[0] - np.linalg.norm(multiplier[1:]) < NEAR:
                cones[number], places[part.start] = (kind, part, extra, APEX), number
        elif small and where != APEX and _depth(kind, slack, extra) < NEAR:
            cones[number], places[part.start] = (kind, part, extra, BOUNDARY), number
    return Near(Faces(held, tuple(cones)), linear, places, np.array(undecided, dtype=int))


def equations(data: StatedCones, active: Faces, x: Array, z: Array) -> Equations:
    """The equations at x, with curvature for the multipliers z."""
    s = data.b - data.A @ x
    by_rows = data.by_rows
    apex = [np.arange(rows.start, rows.stop) for _, rows, _, where in active.cones if where == APEX]
    rows = np.concatenate([np.flatnonzero(active.linear), *apex]).astype(int)
    gradients, values, bends = [], [], []
    curved = [(kind, part, extra) for kind, part, extra, where in active.cones if where == BOUNDARY]
    if curved and all(kind == "exp" for kind, _, _ in curved):
        found = _exponentials(np.array([part.start for _, part, _ in curved]), s, z)
        gradients, values, bends = [found[0]], [found[1]], [found[2]]
    else:
        for kind, part, extra in curved:
            if kind == "psd":
                value, gradient, bent = _semidefinite(s[part], z[part], np.asarray(extra))
            else:
                number, slope, hessian, zeta = _cone(kind, s[part], z[part], extra)
                value, gradient, bent = np.array([number]), slope[None, :], zeta * hessian
            at = np.arange(part.start, part.stop)
            gradients.append((gradient.ravel(), np.repeat(np.arange(len(value)), len(at)), np.tile(at, len(value))))
            values.append(value)
            i, j = np.meshgrid(at, at, indexing="ij")
            bends.append((bent.ravel(), i.ravel(), j.ravel()))
    m = len(data.b)
    G = _stacked(gradients, [len(v) for v in values], m)
    bend = sp.csr_array((m, m))
    for entries, i, j in bends:
        bend = bend + sp.csr_array((entries, (i, j)), shape=(m, m))
    H = data.P + sp.csc_array(by_rows.T @ bend @ by_rows) if bends else data.P
    if data.smooth:
        diagonal = np.zeros(len(x))
        for one in data.smooth:
            np.add.at(diagonal, one.g, data.c[one.h] * one.loss.hessian(x[one.g], one.data))
        H = sp.csc_array(H + sp.diags_array(diagonal))
    J = sp.csr_array(sp.vstack([by_rows[rows], -(G @ by_rows)])) if gradients else by_rows[rows]
    h = np.concatenate([-s[rows], *values])
    return Equations(h, J, H, rows, G, bend)


def gradient(data: StatedCones, x: Array) -> Array:
    """The gradient of the objective, without constraints; columns h of smooth losses have none of their own."""
    found = data.P @ x + data.c
    for part in data.smooth:
        np.add.at(found, part.g, data.c[part.h] * part.loss.gradient(x[part.g], part.data))
        found[part.h] = 0.0
    return found


def multipliers(found: Equations, z: Array) -> Array:
    """ζ of each equation, by z = −ζ∇g."""
    norms = np.asarray(found.G.multiply(found.G).sum(axis=1)).ravel()
    return np.concatenate([z[found.rows], -(found.G @ z) / np.where(norms > 0, norms, 1.0)])


def of_rows(found: Equations, zeta: Array, m: int) -> Array:
    """z of all rows for given ζ."""
    z = np.zeros(m)
    z[found.rows] = zeta[: len(found.rows)]
    return z - found.G.T @ zeta[len(found.rows) :]


def _stacked(gradients: list[tuple[Array, Ints, Ints]], counts: list[int], m: int) -> sp.csr_array:
    starts = np.cumsum([0, *counts])
    if not gradients:
        return sp.csr_array((0, m))
    entries = np.concatenate([g[0] for g in gradients])
    rows = np.concatenate([g[1] + start for g, start in zip(gradients, starts, strict=False)])
    columns = np.concatenate([g[2] for g in gradients])
    return sp.csr_array((entries, (rows, columns)), shape=(int(starts[-1]), m))


def _exponentials(first: Ints, s: Array, z: Array) -> tuple[tuple[Array, Ints, Ints], Array, tuple[Array, Ints, Ints]]:
    """All exponential cones at once: (gradients), values g, and (ζ∇²g), as entries with their rows and columns."""
    a, b, c = s[first], s[first + 1], s[first + 2]
    ratio = a / b
    e = np.exp(ratio)
    zeta, count = z[first + 2], np.arange(len(first))
    entries = np.concatenate([e, e * (1 - ratio), -np.ones(len(first))])
    gradients = entries, np.tile(count, 3), np.concatenate([first, first + 1, first + 2])
    k = zeta * e / b
    values = np.concatenate([k, -k * ratio, -k * ratio, k * ratio**2])
    rows = np.concatenate([first, first, first + 1, first + 1])
    columns = np.concatenate([first, first + 1, first, first + 1])
    return gradients, b * e - c, (values, rows, columns)


def _cone(kind: str, s: Array, z: Array, extra: object) -> tuple[float, Array, Array, float]:
    """g(s), ∇g, ∇²g and ζ of one cone."""
    if kind == "exp":
        r = s[0] / s[1]
        e = float(np.exp(r))
        d = np.array([1.0, -r, 0.0])
        return s[1] * e - s[2], np.array([e, e * (1 - r), -1.0]), e / s[1] * np.outer(d, d), float(z[2])
    if kind == "soc":
        length = float(np.linalg.norm(s[1:]))
        n = s[1:] / length
        hessian = np.zeros((len(s), len(s)))
        hessian[1:, 1:] = (np.eye(len(n)) - np.outer(n, n)) / length
        return length - s[0], np.append(-1.0, n), hessian, float(z[0])
    alpha = float(extra)  # type: ignore[arg-type]
    p = s[0] ** alpha * s[1] ** (1 - alpha)
    sign = 1.0 if s[2] >= 0 else -1.0
    gradient = np.array([-alpha * p / s[0], -(1 - alpha) * p / s[1], sign])
    d = np.array([1 / s[0], -1 / s[1], 0.0])
    return abs(s[2]) - p, gradient, alpha * (1 - alpha) * p * np.outer(d, d), float(sign * -z[2])


def _depth(kind: str, s: Array, extra: object) -> float:
    """How far s is inside of a cone: −g(s)."""
    if kind == "exp":
        return float(s[2] - s[1] * np.exp(min(s[0] / s[1], 700.0)) if s[1] > 0 else -s[0])
    if kind == "soc":
        return float(s[0] - np.linalg.norm(s[1:]))
    alpha = float(extra)  # type: ignore[arg-type]
    return float(max(s[0], 0.0) ** alpha * max(s[1], 0.0) ** (1 - alpha) - abs(s[2]))


def _semidefinite(s: Array, z: Array, kernel: Array) -> tuple[Array, Array, Array]:
    """All g(s), ∇g and Σζ∇²g of a semidefinite cone whose S has rank n − (columns of `kernel`).

    The basis of the kernel is that of S which is nearest to the given one, so that multipliers keep their meaning.
    """
    n, k = kernel.shape
    S, Z = matrix(s, n), matrix(z, n)
    values, vectors = np.linalg.eigh(S)
    U, others, lam = vectors[:, :k], vectors[:, k:], values[k:]
    left, _, right = np.linalg.svd(U.T @ kernel)
    U = U @ (left @ right)
    i, j = np.triu_indices(k)
    scale = np.where(i == j, 1.0, np.sqrt(2.0))
    gradients = -scale[:, None] * _products(U[:, i], U[:, j])
    strengths, V = np.linalg.eigh(U.T @ Z @ U)
    a, b = np.meshgrid(np.arange(n - k), np.arange(k), indexing="ij")
    q = _products(others[:, a.ravel()], (U @ V)[:, b.ravel()])
    bent = 2 * (q.T * (strengths[b.ravel()] / lam[a.ravel()])) @ q
    return gradients @ s, gradients, bent


def _products(left: Array, right: Array) -> Array:
    """The symmetric parts of uvᵀ for columns u and v, as rows of the entries that a cone holds."""
    pairs = (left[:, None, :] * right[None, :, :] + right[:, None, :] * left[None, :, :]) / 2
    return packed(pairs)
