"""A combination of outputs that equations fix at all rows, as Σₖ fₖ = 1 does for probabilities, is no unknown.

With e of length 1 and equations ‖e‖-times (Be-part) = c at each row, the outputs are v = e⊗v₀ + Zv′, where Bv₀ = c and
[e, Z] is orthogonal. ‖v‖² = ‖v₀‖² + ‖v′‖², so that what remains is a problem of one output less, in E(Z⊗I). Its systems
take (1 − 1/K)³ of the time. The multipliers of the equations follow from v₀ = Bᵀα:

    R v₀ + Bᵀ(g + λ) = 0,   λ = −g − Rα,   g the part of the other slopes along e.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp
from scipy.linalg.lapack import dgetrf

from kernelopt.solvers.dual_point import Point
from kernelopt.solvers.structured import Structured
from kernelopt.support.types import Array, Bools, Ints

# What Bv₀ may miss of c, relative to the largest |c|: engines meet equations no better. Where rows outside of the
# factor's span miss more, all equations stay.
MET = 1e-10
ALIKE = 1e-15  # relative: rows of coefficients that differ by less are one direction


@dataclass(frozen=True, eq=False)
class FixedOutput:
    """The problem without the fixed combination, and the way back.

    basis : [e, Z], (K, K); v0, alpha : (r,) and (n,); lengths : of the coefficients of each equation, with their sign;
    equation : (n,), the kink of each row's equation; rows, kinks : what is kept of s and of kinks
    """

    whole: Structured
    problem: Structured
    basis: Array
    v0: Array
    alpha: Array
    lengths: Array
    equation: Ints
    rows: Bools
    kinks: Bools

    def inside(self, point: Point | None) -> Point | None:
        """A starting point of the whole problem as one of the smaller."""
        if point is None:
            return None
        end = self.whole.ends[-1]
        v = self.basis[:, 1:].T @ point.x[:end].reshape(len(self.basis), -1)
        x = np.append(v.ravel(), point.x[end:])
        return replace(
            point, x=x, s=self.problem.products(x), a=point.a[self.kinks], slopes=point.slopes[self.rows], kept=None
        )

    def back(self, point: Point) -> Point:
        """A point of the smaller problem as one of the whole."""
        whole, K, end = self.whole, len(self.basis), self.problem.ends[-1]
        v = self.basis[:, 1:] @ point.x[:end].reshape(K - 1, -1) + np.outer(self.basis[:, 0], self.v0)
        x = np.append(v.ravel(), point.x[end:])
        slopes, a = np.zeros(whole.m), np.zeros(len(whole.of))
        slopes[self.rows], a[self.kinks] = point.slopes, point.a
        g = whole.linear_d + whole.E.T @ (whole.slope + whole.of_kinks(a) + slopes)
        along = self.basis[:, 0] @ g.reshape(K, -1)
        a[self.equation] = -(along + whole.R[0] * self.alpha) / self.lengths
        unit = point.unit + 0.5 * float(whole.R[0]) * float(self.v0 @ self.v0)
        return replace(point, x=x, s=whole.products(x), a=a, slopes=slopes, unit=unit, kept=None)


def without_fixed_output(problem: Structured, pivots: Ints) -> FixedOutput | None:
    """The problem without the combination of outputs that equations fix; None where there is none.

    pivots : rows of B that are independent, as many as it has columns
    """
    K, B = len(problem.blocks), problem.blocks[0] if problem.blocks else None
    if B is None or not (problem.one_factor and problem.orthonormal) or sp.issparse(problem.F) or not problem.R[0] > 0:
        return None
    if len(np.unique(problem.R)) > 1 or len(pivots) != B.shape[1]:
        return None
    found = _equations(problem, K, len(B))
    if found is None:
        return None
    e, lengths, equation = found
    c = problem.anchor[equation] / lengths
    v0, alpha = np.zeros(B.shape[1]), np.zeros(len(B))
    if c.any():
        factor, order, singular = dgetrf(B.rows(pivots))
        if singular:
            return None
        v0 = sl.lu_solve((factor, order), c[pivots], check_finite=False)
        alpha[pivots] = sl.lu_solve((factor, order), v0, trans=1, check_finite=False)
        if not np.abs(B @ v0 - c).max() <= MET * np.abs(c).max():
            return None
    return _smaller(problem, e, lengths, equation, v0, alpha)


def _equations(problem: Structured, K: int, n: int) -> tuple[Array, Array, Ints] | None:
    """e, the lengths of the coefficients of each row's equation, and its kink; None where a row has none or two."""
    E, F = problem.E, problem.F
    kinks = np.flatnonzero(np.isinf(problem.low) & np.isinf(problem.high) & (problem.rho == 0))
    counts, free = np.diff(E.indptr), ~np.any(F != 0, axis=1)
    for h in problem.smooth:
        free[h.at] = False
    shared = np.bincount(problem.of, minlength=problem.m) > 1
    at = problem.of[kinks]
    kinks = kinks[(counts[at] == K) & free[at] & ~shared[at]]
    if len(kinks) < n:
        return None
    some = sp.csr_array(E[problem.of[kinks]])
    some.sort_indices()
    places, data = some.indices.reshape(-1, K), some.data.reshape(-1, K)
    lengths = np.linalg.norm(data, axis=1) * np.where(data[:, 0] < 0, -1.0, 1.0)
    directions, rows = data / lengths[:, None], places[:, 0]
    e = directions[0]
    ours = np.all(places == rows[:, None] + n * np.arange(K), axis=1) & (np.abs(directions - e).max(axis=1) <= ALIKE)
    kinks, lengths, rows = kinks[ours], lengths[ours], rows[ours]
    order = np.argsort(rows, kind="stable")
    if not np.array_equal(rows[order], np.arange(n)):
        return None
    return e, lengths[order], kinks[order]


def _smaller(  # noqa: PLR0917
    problem: Structured, e: Array, lengths: Array, equation: Ints, v0: Array, alpha: Array
) -> FixedOutput | None:
    basis = np.linalg.qr(e[:, None], mode="complete")[0]
    basis[:, 0] = e  # up to its sign, it is
    K, n, end = len(e), len(lengths), problem.ends[-1]
    rows, kinks = np.ones(problem.m, dtype=bool), np.ones(len(problem.of), dtype=bool)
    rows[problem.of[equation]] = kinks[equation] = False
    number = np.cumsum(rows) - 1
    turned = sp.csr_array(sp.kron(basis[:, 1:], sp.eye_array(n)))
    fixed = np.outer(e, problem.anchor[equation] / lengths).ravel()
    shift = problem.E @ fixed
    if any(shift[h.at].any() for h in problem.smooth):
        return None
    E = sp.csr_array(problem.E[np.flatnonzero(rows)] @ turned)
    E.sort_indices()
    of, origin = problem.of[kinks], problem.origin
    if origin is not None:
        v = basis[:, 1:].T @ origin[:end].reshape(K, -1)
        origin = np.append(v.ravel(), origin[end:])
    constant = problem.linear_d @ fixed + problem.slope @ shift + 0.5 * problem.R[0] * (v0 @ v0)
    smaller = Structured(
        blocks=problem.blocks[1:],
        E=E,
        F=problem.F[rows],
        R=problem.R[1:],
        linear_d=turned.T @ problem.linear_d,
        linear_y=problem.linear_y,
        slope=problem.slope[rows],
        of=number[of], anchor=problem.anchor[kinks] - shift[of],
        low=problem.low[kinks], high=problem.high[kinks], rho=problem.rho[kinks],
        smooth=tuple(replace(h, at=number[h.at]) for h in problem.smooth),
        constant=problem.constant + float(constant),
        origin=origin,
    )  # fmt: skip
    return FixedOutput(problem, smaller, basis, v0, alpha, lengths, equation, rows, kinks)
