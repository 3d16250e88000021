"""A separable problem with B dense: the data that our own solvers share, and its linear algebra.

    minimize  ½ Σₖ Rₖ‖vₖ‖² + gᵀx + Σᵢ hᵢ(sᵢ) + Σⱼ sup {aⱼ(s_of(j) − anchorⱼ) − ½ρⱼaⱼ² : lowⱼ ≤ aⱼ ≤ highⱼ}

over x = (v₁ … v_K, y) with s = Cx = Σₖ EₖBₖvₖ + Fy: the hᵢ are smooth, the suprema ("kinks") piecewise
linear-quadratic. The dual variables are the kinks' a and the slopes hᵢ′(sᵢ).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from kernelopt.compiler.terms import Curved, LogSumExp
from kernelopt.solvers import local_columns
from kernelopt.solvers.coupling import Coupling, LinearMap
from kernelopt.solvers.kernel_space import KernelSpace
from kernelopt.support.arithmetic import median
from kernelopt.support.long_rows import are_long, bordered
from kernelopt.support.properties import cached_property
from kernelopt.support.threads import for_factoring
from kernelopt.support.types import Array, Bools, Ints

UNEQUAL = 1e8  # largest ratio of a kink's step to a typical one, either way: more would make systems ill-conditioned
ROUNDING = 1e-13  # relative to the sizes of the terms of a row of EB: what sums of them leave that are 0
STRETCH = 512  # rows of EB that are formed at a time where only their norms are needed: 4 MB for r = 1000
# Number of active rows n_a, relative to the unknowns p, below which systems are solved in the rows: forming and
# factoring takes n_a²p + n_a³/3 flops there, against n_a p² + p³/3.
FEW = 0.7
# Relative to the largest diagonal entry, 45 eps: the first multiple of I added where a Cholesky factorization breaks
# down.
JITTER = 1e-14
# Flops that take as long as the look-up of an entry of BBᵀ, which reads memory out of order.
LOOK_UP = 20

# Cached properties that do not depend on R: all of `Coupling`, and these.
WITHOUT_R = (
    *(name for name, made in vars(Coupling).items() if isinstance(made, cached_property)),
    "linear", "_typical", "orthonormal", "notes", "of_kinks_at",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Structured(Coupling):
    """The problem of the module's formula.

    blocks, E, F : as in `Coupling`; R : (K,); linear_d, linear_y, slope : linear costs of d = (Bₖvₖ), of y and of s;
    of, anchor, low, high, rho : kinks; smooth : hᵢ, with `at` in s; constant : added to the objective; origin : an x at
    which all hᵢ are finite, None where x = 0 is one
    """

    R: Array
    linear_d: Array
    linear_y: Array
    slope: Array
    of: Ints
    anchor: Array
    low: Array
    high: Array
    rho: Array
    smooth: tuple[Curved, ...]
    constant: float
    origin: Array | None = None

    @cached_property
    def penalty(self) -> Array:
        """R for every entry of x; 0 for y."""
        return np.concatenate(
            [np.full(B.shape[1], R) for B, R in zip(self.blocks, self.R, strict=True)] + [np.zeros(self.q)]
        )

    @property
    def first(self) -> Array:
        """The x to start from."""
        return np.zeros(self.size) if self.origin is None else self.origin

    def with_penalties(self, R: Array) -> Structured:
        """The same problem with other penalties, which keeps what does not depend on them."""
        found = replace(self, R=R)
        found.__dict__.update({name: self.__dict__[name] for name in WITHOUT_R if name in self.__dict__})
        return found

    def without_blocks(self) -> Structured:
        """The same problem in the same x, which is all y: F has the columns of EB first. For R = 0."""
        F = np.hstack([self.rows(np.arange(self.m)), self.F])
        costs, nothing = self._back(self.linear_d, self.linear_y), np.zeros(0)
        E = sp.csr_array((self.m, 0))
        return replace(self, blocks=(), E=E, F=F, R=nothing, linear_d=nothing, linear_y=costs)

    def truncated(self, rank: int) -> Structured:
        """The problem for the first columns of each B only: a coarser restriction of θ.

        It has an origin where that of this problem has θ = 0.
        """
        short = {id(B): B.first(rank) for B in self.blocks}
        found = replace(self, blocks=tuple(short[id(B)] for B in self.blocks), origin=None)
        if self.origin is None or self.origin[: self.ends[-1]].any():
            return found
        return replace(found, origin=np.append(np.zeros(found.ends[-1]), self.origin[self.ends[-1] :]))

    def lifted(self, x: Array, onto: Structured) -> Array:
        """x of a truncated problem as a point of the full one."""
        found = np.zeros(onto.size)
        for k, B in enumerate(self.blocks):
            found[onto.ends[k] : onto.ends[k] + B.shape[1]] = x[self.ends[k] : self.ends[k + 1]]
        found[onto.ends[-1] :] = x[self.ends[-1] :]
        return found

    @cached_property
    def notes(self) -> dict[str, Any]:
        """Facts that were found once, by name, and do not depend on R."""
        return {}

    @cached_property
    def linear(self) -> Array:
        """g, the linear cost of x."""
        if not (self.linear_d.any() or self.linear_y.any() or self.slope.any()):
            return np.zeros(self.size)
        return self._back(self.linear_d + self._gathered(self.slope), self.linear_y + self.F.T @ self.slope)

    @cached_property
    def of_kinks_at(self) -> Ints | None:
        """The prediction of each kink; None where some s has several."""
        return self.E.indices[self.of] if self._one_each else None

    def of_kinks(self, values: Array) -> Array:
        """The sum of values over the kinks of each sᵢ, (m,)."""
        return np.bincount(self.of, values, minlength=self.m)

    # ------------------------------------------------------------ values

    @property
    def joint(self) -> bool:
        """Whether a smooth function has several arguments."""
        return any(isinstance(h, LogSumExp) for h in self.smooth)

    def smooth_value(self, s: Array) -> float:
        return float(sum(np.sum(h.value(s[h.at])) for h in self.smooth))

    def smooth_gradient(self, s: Array) -> Array:
        found = np.zeros(self.m)
        for h in self.smooth:
            found[h.at] = h.derivative(s[h.at])
        return found

    def smooth_curvature(self, s: Array) -> Array:
        found = np.zeros(self.m)
        for h in self.smooth:
            found[h.at] = h.second(s[h.at])
        return found

    def kink_values(self, s: Array) -> Array:
        """The supremum of each kink; inf where s is outside of a domain."""
        k = s[self.of] - self.anchor
        with np.errstate(divide="ignore", invalid="ignore"):
            a = np.where(self.rho > 0, k / self.rho, np.copysign(np.inf, k))
            a = np.clip(np.where((self.rho == 0) & (k == 0), 0.0, a), self.low, self.high)
            return np.where(k == 0, 0.0, a * k) - np.where(self.rho > 0, 0.5 * self.rho * a**2, 0.0)

    @cached_property
    def orthonormal(self) -> bool:
        """Whether all vₖ are coordinates in orthonormal bases. Else ‖vₖ‖² stands for vₖᵀQvₖ, and Bₖᵀd for d."""
        return all(B.orthonormal for B in self.blocks)

    def quadratic(self, x: Array) -> float:
        """½xᵀRx."""
        if self.orthonormal:
            return 0.5 * float(self.penalty @ x**2)
        squares = [float(B.inner(x[a:b])) for B, (a, b) in zip(self.blocks, pairwise(self.ends), strict=True)]
        return 0.5 * float(self.R @ squares)

    def linear_value(self, x: Array) -> float:
        """gᵀx."""
        if self.orthonormal:
            return float(self.linear @ x)
        parts = [self.linear[a:b] @ (B @ x[a:b]) for B, (a, b) in zip(self.blocks, pairwise(self.ends), strict=True)]
        return float(sum(parts) + self.linear[self.ends[-1] :] @ x[self.ends[-1] :])

    def value(self, x: Array, s: Array) -> float:
        """The objective at x, with s = Cx."""
        return (
            self.constant
            + self.quadratic(x)
            + self.linear_value(x)
            + self.smooth_value(s)
            + float(self.kink_values(s).sum())
        )

    def dual_value(self, a: Array, smooth_slopes: Array, combined: Array) -> float:
        """The dual objective at kink multipliers a and slopes of the hᵢ, where `combined` = Cᵀ(their sum) + g:

        −Σ(anchor·a + ½ρa²) − Σh*ᵢ − ½‖combined_v‖²/R. This is a bound only if combined_y = 0, which is not checked.
        """
        conjugates = sum(float(np.sum(h.conjugate(smooth_slopes[h.at]))) for h in self.smooth)
        v, penalty = combined[: self.ends[-1]], self.penalty[: self.ends[-1]]
        if self.orthonormal:
            of_theta = 0.5 * float(np.sum(v**2 / penalty))
        else:
            of_theta = self.quadratic(np.append(v / penalty, np.zeros(self.q)))
        return self.constant - float(self.anchor @ a) - 0.5 * float(self.rho @ a**2) - conjugates - of_theta

    # ------------------------------------------------------------ second order

    @cached_property
    def row_squares(self) -> Array:
        """diag(E B R⁻¹ BᵀEᵀ): how far s moves with the slopes of its functions, (m,)."""
        found = np.zeros(self.m)
        for B, R, a, b in zip(self.blocks, self.R, self._rows[:-1], self._rows[1:], strict=True):
            E = sp.csr_array(self.E[:, a:b])
            counts = np.diff(E.indptr)
            single, several = np.flatnonzero(counts == 1), np.flatnonzero(counts > 1)
            at = E.indptr[single]
            found[single] += E.data[at] ** 2 * B.row_squares()[E.indices[at]] / R
            for start in range(0, len(several), STRETCH):
                chosen = several[start : start + STRETCH]
                found[chosen] += np.sum(B.combined(sp.csr_array(E[chosen])) ** 2, axis=1) / R
        return found

    @cached_property
    def moves_by_rounding(self) -> Bools:
        """Rows whose s moves with θ by no more than rounding, as Σ(xᵢ − x̄) = 0 leaves 1e-15, (m,)."""
        sizes = np.zeros(self.m)
        for B, R, a, b in zip(self.blocks, self.R, self._rows[:-1], self._rows[1:], strict=True):
            sizes += (abs(sp.csr_array(self.E[:, a:b])) @ np.sqrt(B.row_squares())) ** 2 / R
        return np.asarray(self.row_squares <= ROUNDING**2 * sizes)

    @cached_property
    def sigma(self) -> float:
        """A typical multiplier of a kink, half the width of a box, over a typical argument |anchor|.

        `steps` scales it for each kink.
        """
        return 0.5 * (float(self.R.max(initial=0.0)) or 1.0) if self._typical is None else self._typical

    @cached_property
    def _typical(self) -> float | None:
        """`sigma`, where it does not depend on R."""
        k = np.abs(self.anchor)
        unit = median(k[k > 0]) if np.any(k > 0) else 1.0
        width, curved = self.high - self.low, self.rho > 0
        width[curved] = np.minimum(width[curved], 2 * unit / self.rho[curved])  # beyond, no argument is
        width = width[np.isfinite(self.low) & np.isfinite(self.high)]
        if len(width):
            return 0.5 * median(width) / unit
        return 0.5 * median(1 / self.rho[curved]) if curved.any() else None

    @cached_property
    def steps(self) -> Array:
        """Factors for the step σ of each kink's multiplier, in inverse proportion to how far the multiplier moves s.

        They are about 1 for a typical loss. A constraint on differences of neighbouring predictions, whose s hardly
        moves, gets a far larger one.
        """
        squares = self.row_squares[self.of]
        losses = squares[np.isfinite(self.low) & np.isfinite(self.high)]
        typical = median(losses if len(losses) else squares) if len(squares) else 0.0
        if typical == 0.0:
            return np.ones(len(squares))
        return np.clip(typical / np.maximum(squares, typical / UNEQUAL), 1 / UNEQUAL, UNEQUAL)

    def system(self, weights: Array, ridge: Array | None = None) -> LinearMap:
        """The map rhs ↦ (R + CᵀWC)⁻¹rhs, for one right-hand side or a matrix of several.

        It has a Cholesky factor of that matrix, or of the smaller one with a row for each positive weight.

        `ridge` (q,) is added to the diagonal for y.
        """
        active = np.flatnonzero(weights > 0)
        ridge = np.zeros(self.q) if ridge is None else ridge
        if sp.issparse(self.F):
            found = local_columns.system(self.blocks, self.E, self.F, weights, ridge, self._factored_v)
            return self._without_y(weights, ridge) if found is None else found
        if self.is_small(len(active)):
            return self._in_rows(active, weights[active], ridge)
        return self.in_columns(self.gram(weights), ridge)

    def _without_y(self, weights: Array, ridge: Array) -> LinearMap:
        """With T = FᵀWF + ridge, which is sparse, and U = FᵀWEB:

        (R + BᵀEᵀWEB − UᵀT⁻¹U)v = rhs_v − UᵀT⁻¹rhs_y,  Ty = rhs_y − Uv.

        A long row of F, as of a sum of many y, would make T dense: z = w(EBv + Fy) of that row counts among y.
        """
        end, q = self.ends[-1], self.q
        long = np.flatnonzero(are_long(self.F) & (weights > 0))
        short = weights.copy()
        short[long] = 0.0
        WF = sp.csc_array(sp.diags_array(short) @ self.F)
        T = sp.csc_array(self.F.T @ WF + sp.diags_array(ridge))
        T = sp.csc_array(T + sp.diags_array(JITTER * T.diagonal()))
        try:
            factor = splu(bordered(T, self.F[long], weights[long]))
        except RuntimeError as error:  # SuperLU found a pivot of 0
            raise np.linalg.LinAlgError("The system of the free variables is singular.") from error
        D = sp.csr_array((self.E.T @ WF).T)
        parts = zip(self.blocks, self._rows[:-1], self._rows[1:], strict=True)
        U = np.hstack([B.combined(sp.csr_array(D[:, a:b])) for B, a, b in parts])
        U = np.vstack([U, self.rows(long)])
        X = factor.solve(U) if end else U
        v = replace(self, F=np.zeros((self.m, 0)), linear_y=np.zeros(0), origin=None)
        H = v.gram(short) - U.T @ X
        outer = v.in_columns(H) if end else None

        def solve(rhs: Array) -> Array:
            of_y = np.concatenate([rhs[end:], np.zeros((len(long), *rhs.shape[1:]))])
            found = rhs[:end] if outer is None else outer(rhs[:end] - X.T @ of_y)
            return np.concatenate([found, factor.solve(of_y - U @ found)[:q]])

        return solve

    def _factored_v(self, H: Array) -> LinearMap:
        """The map r ↦ (R + H)⁻¹r for v alone; H is overwritten."""
        if not len(H):
            return lambda r: r
        H[np.diag_indices_from(H)] += self.penalty[: len(H)]
        factor = factored(H)
        return lambda r: np.asarray(sl.cho_solve(factor, r, check_finite=False))

    def in_columns(self, H: Array, ridge: Array | None = None) -> LinearMap:
        """The map of `system` for H = CᵀWC, which is overwritten."""
        H[np.diag_indices_from(H)] += self.penalty
        if ridge is not None:
            H[np.arange(self.ends[-1], self.size), np.arange(self.ends[-1], self.size)] += ridge
        factor = factored(H)
        return lambda rhs: np.asarray(sl.cho_solve(factor, rhs, check_finite=False))

    def _in_rows(self, active: Ints, weights: Array, ridge: Array) -> LinearMap:
        """With z = W(Cx) on the active rows:

        (W⁻¹ + GR⁻¹Gᵀ)z − Fy = GR⁻¹rhs_v,  Fᵀz + ridge·y = rhs_y,  Rv = rhs_v − Gᵀz.
        """
        end, G, F = self.ends[-1], self.rows(active), self.F[active]
        R = self.penalty[:end]
        if self.kernel_space is not None:
            M = self.kernel_space.among(active)
        elif len(np.unique(self.R)) == 1:
            M = (G @ G.T) / self.R[0]
        else:
            scaled = G / np.sqrt(R)
            M = scaled @ scaled.T
        M[np.diag_indices_from(M)] += 1 / weights
        factor = factored(M) if len(active) else None

        def inverse(rhs: Array) -> Array:
            return rhs if factor is None else np.asarray(sl.cho_solve(factor, rhs, check_finite=False))

        MF = inverse(F)
        small = F.T @ MF + np.diag(ridge)
        if self.q:
            small[np.diag_indices_from(small)] += JITTER * max(float(np.trace(small)), float(np.finfo(float).tiny))
        border = sl.lu_factor(small, check_finite=False) if self.q and np.any(small) else None

        def solve(rhs: Array) -> Array:
            b = inverse(G @ (rhs[:end].T / R).T)
            y = (
                np.zeros((self.q, *rhs.shape[1:]))
                if border is None
                else sl.lu_solve(border, rhs[end:] - F.T @ b, check_finite=False)
            )
            z = b + MF @ y
            return np.concatenate([((rhs[:end] - G.T @ z).T / R).T, y])

        return solve

    @cached_property
    def dual_space(self) -> KernelSpace:
        """EBR⁻¹BᵀEᵀ, with products and look-ups by BBᵀ where it is at hand."""
        return KernelSpace(self.blocks, self.R, self.E, self._rows)

    @cached_property
    def kernel_space(self) -> KernelSpace | None:
        """The same where single entries can be looked up: each s is one prediction, and all BBᵀ are at hand."""
        able = self.entry_space is not None and all(B.outer() is not None for B in self.blocks)
        return self.dual_space if able else None

    @cached_property
    def entry_space(self) -> KernelSpace | None:
        """The same where each s is one prediction: entries are products of rows of B where BBᵀ is not at hand."""
        return self.dual_space if self._one_each and np.all(self.R > 0) else None

    def is_small(self, active: int) -> bool:
        """Whether a system is solved in its active rows, rather than in all unknowns."""
        return active < FEW * self.size and bool(np.all(self.R > 0)) and not sp.issparse(self.F)

    def cost(self, active: int) -> float:
        """Flops of a system with `active` positive weights, and of the four products with C per step."""
        p = self.size if not sp.issparse(self.F) else int(self.ends[-1])
        active += self.q if sp.issparse(self.F) else 0
        if self.is_small(active):  # else BBᵀ is not formed, which takes as long as several systems
            entry = p if self.kernel_space is None else LOOK_UP
            return active**2 * entry + active**3 / 3 + 4 * self.product_cost
        return active * p**2 + p**3 / 3 + 4 * self.product_cost


def factored(H: Array) -> tuple[Array, bool]:
    """The Cholesky factor of H (overwritten), for `cho_solve`; of H + 10^(2k − 14)·max(diag)·I if it breaks down.

    k is the least of 0, 1, … 6 that suffices. H may be singular up to rounding, as where columns for y depend on each
    other.
    """
    A, diagonal = H if H.flags.f_contiguous else H.T, H.diagonal().copy()  # in LAPACK's order, which needs no copy
    added, most = 0.0, float(diagonal.max(initial=0.0)) or 1.0
    for k in range(8):
        try:
            with for_factoring(len(A)):
                return sl.cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError:
            for j in range(len(A)):  # the other triangle is as it was
                A[j + 1 :, j] = A[j, j + 1 :]
            added = JITTER * 100.0**k * most
            A[np.diag_indices_from(A)] = diagonal + added
    raise np.linalg.LinAlgError("The linear system is not positive definite, even with a large diagonal added.")
