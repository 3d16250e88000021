"""A factor that grows where a certificate shows its gap: by pivots that reduce νᵀEν most, and by functions Aᵀν.

With E = Q − BBᵀ and multipliers ν, the gap that a restriction of θ leaves is about νᵀEν/(4λ) for a penalty λ‖θ‖². A new
column c replaces E by E − ccᵀ, and so reduces νᵀEν by (cᵀν)². There are two kinds of columns:

- pivots: of candidates drawn with probability ∝ νᵢ²Eᵢᵢ, one by one the j with the largest hⱼ²/Eⱼⱼ for h = Eν, where h
  and E are deflated after each;
- the function Aᵀν = Σᵢ νᵢF(xᵢ) itself, whose column is g/√(νᵀg) with g = Eν = Qν − B(Bᵀν). It reduces νᵀEν to 0, and
  the span then contains θ + s·Aᵀν for every s; a pivot can't do that where many rows have a multiplier. It needs Qν,
  which the certificate's pass over the kernel gives, and makes θ a combination of all rows with νᵢ ≠ 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg as sl

from kernelopt.factorization.blocked import BlockFactor, grown
from kernelopt.factorization.dense import Settings
from kernelopt.factorization.factor import Factor
from kernelopt.factorization.streamed import StreamedFactor, with_pivots
from kernelopt.factorization.tall import SPARE
from kernelopt.language.rows import Rows
from kernelopt.support import clock
from kernelopt.support.types import Array

# Relative to νᵀQν: a smaller νᵀEν may be rounding in the difference Qν − B(Bᵀν), and gives no column.
NOTHING = 1e-12


@dataclass(frozen=True, eq=False)
class Guide:
    """The multipliers of a certificate: ν (n, K) on the distinct rows, and Qν where a pass over the kernel gave it."""

    nu: Array
    products: Array | None = None

    def beside(self, other: Guide) -> Guide:
        """The columns of both guides, for θs that share rows and kernel."""
        known = self.products is not None and other.products is not None
        products = np.hstack([self.products, other.products]) if known else None  # type: ignore[list-item]
        return Guide(np.hstack([self.nu, other.nu]), products)


@dataclass(frozen=True, eq=False)
class ExpandedFactor(Factor):
    """B = [B_S, T]: the columns of pivots S, then those of the parts of functions φₖ = Aᵀνₖ outside of their span.

    pivots are S, followed by the other rows with some νₖᵢ ≠ 0.

    Attributes
    ----------
    base : the factor of the pivots
    T : (n, k)
    combinations : (n, k), the νₖ
    functions : (n, k), Qνₖ from the kernel
    """

    is_nested = False
    is_exact = False  # Eν is a difference: what rounding leaves of it, Q − BBᵀ has, however many columns there are

    base: Factor
    T: Array
    combinations: Array
    functions: Array

    grows = True

    @property
    def method(self) -> str:  # type: ignore[override]
        return f"{self.base.method}, with {self.T.shape[1]} functions Aᵀν"

    @property
    def of_pivots(self) -> Factor:
        return self.base

    def parts(self, v: Array) -> tuple[Array, Array]:
        """v_S and a with θ = Cᵀw_S + Σₖ aₖφₖ.

        φₖ has the coordinates νₖᵀB = [G, H], so that Hᵀa = v_T/scale, and v_S − scale·Gᵀa remains for the pivots.
        """
        p = self.base.rank
        G = (self.B.T @ self.combinations).T
        a = sl.solve_triangular(G[:, p:], v[p:], trans="T", lower=True) / self.scale
        return v[:p] - self.scale * (G[:, :p].T @ a), a

    def _coefficients(self, v: Array) -> Array:
        rest, a = self.parts(v)
        spread: Array = self.combinations[self.pivots] @ a
        spread[: len(self.base.pivots)] += self.base.coefficients(rest)
        return spread

    def predictions(self, rows: Rows, v: Array) -> Array:
        """r kernel values per row for the pivots, plus the known Qνₖ for the functions."""
        rest, a = self.parts(v)
        return self.base.predictions(rows, rest) + self.functions @ a

    def product(self, rows: Rows, V: Array) -> Array:
        return self.base.product(rows, V)

    def quadratic(self, rows: Rows, V: Array) -> Array:
        return self.base.quadratic(rows, V)

    def product_error(self, rows: Rows, V: Array) -> Array:
        return self.base.product_error(rows, V)

    def quadratic_error(self, rows: Rows, V: Array) -> Array:
        return self.base.quadratic_error(rows, V)


def grow(  # noqa: PLR0917
    rows: Rows, known: Factor, guide: Guide | None, count: int, functions: bool, settings: Settings,
    memory_limit: float | None = None,
) -> Factor:  # fmt: skip
    """A factor with `count` more pivots and, with `functions`, with Aᵀν among its functions where Qν is known."""
    begin = clock.now()
    if guide is None:
        return known if functions else known.of_pivots
    factor, unit = known.of_pivots, np.linalg.norm(guide.nu, axis=0)
    nu = guide.nu[:, unit > 0] / unit[unit > 0]
    products = None if guide.products is None else guide.products[:, unit > 0] / unit[unit > 0]
    count = min(count, (settings.max_rank or len(rows)) - factor.rank)
    if count > 0 and nu.size and isinstance(factor, StreamedFactor):
        combined = known.combinations.shape[1] if isinstance(known, ExpandedFactor) else 0
        spare = combined + SPARE if functions else 0
        factor = with_pivots(rows, factor, nu, products, count, spare, settings, memory_limit)
    elif count > 0 and nu.size and isinstance(factor, BlockFactor):
        factor = grown(rows, factor, nu, products, count, settings, memory_limit)
    if not functions:
        return replace(factor, why=known.why)
    V, QV = (known.combinations, known.functions) if isinstance(known, ExpandedFactor) else (nu[:, :0], nu[:, :0])
    if products is not None:
        V, QV = np.hstack([V, nu]), np.hstack([QV, products])
    most = (settings.max_rank or len(rows)) - factor.rank
    start = known if isinstance(known, ExpandedFactor) and known.base is factor else None
    found = _with_functions(factor, start, V, QV, most, memory_limit)
    return replace(found, why=known.why, factor_seconds=clock.now() - begin)


def _with_functions(  # noqa: PLR0917
    factor: Factor, start: ExpandedFactor | None, V: Array, QV: Array, most: int, memory_limit: float | None
) -> Factor:
    """Append columns t = Eν/√(νᵀEν), one ν after the other, to those of `start`; none where νᵀEν is rounding."""
    B, held = factor.B, factor if start is None else start
    columns = [] if start is None else list(start.T.T)
    known = len(columns)
    kept = list(range(known))
    left = QV[:, known:] / factor.scale - B @ (B.T @ V[:, known:])
    for j in range(known, V.shape[1]):
        t = left[:, j - known] - sum((c * (c @ V[:, j]) for c in columns), np.zeros(len(B)))
        square = float(V[:, j] @ t)
        if len(columns) < most and square > NOTHING * float(V[:, j] @ QV[:, j]) / factor.scale:
            columns.append(t / np.sqrt(square))
            kept.append(j)
    if len(kept) == known:
        return held
    T = np.column_stack(columns)
    others = np.setdiff1d(np.flatnonzero(V[:, kept].any(axis=1)), factor.pivots)
    wider, room = held.matrix.beside(T[:, known:], held.room, memory_limit)
    if room is not None:  # pivots and functions share memory from now on
        factor = replace(factor, B=room.array[:, : factor.rank])
    return ExpandedFactor(
        B=wider, scale=factor.scale, pivots=np.concatenate([factor.pivots, others]),
        residual=max(factor.residual - float(np.sum(T**2)) / len(T), 0.0), kernel_seconds=factor.kernel_seconds,
        factor_seconds=0.0, base=factor, T=T, combinations=V[:, kept], functions=QV[:, kept], room=room,
    )  # fmt: skip


def carried(old: Factor, new: Factor, v: Array) -> Array:
    """The coordinates in a new factor of the θ that has v in the old one: scale·B_newᵀc, for θ = Aᵀc."""
    c = old.coefficients(v)
    spread = np.zeros((len(new.B), *c.shape[1:]))
    spread[old.pivots] = c
    found: Array = new.scale * (new.B.T @ spread)
    return found
