"""The factor Q = BBᵀ of a kernel matrix, as the rest of the package sees it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from kernelopt.factorization.tall import Room, TallMatrix, tall
from kernelopt.language.rows import Rows
from kernelopt.support.properties import cached_property
from kernelopt.support.types import Array, Ints

# The smallest residual trace(Q − scale·BBᵀ) to aim at, relative to trace(Q). It is about 450 eps: pivots below it would
# be taken from the rounding of the trace.
FLOOR = 1e-13
# Rows of a factor that may grow, up to which BBᵀ is formed: the next round replaces it. At 5000 rows it takes 1 to 3 s.
PASSING = 5000


@dataclass(frozen=True, eq=False)
class Factor(ABC):
    """Q ≈ scale·BBᵀ with B of full column rank, and θ confined to the span of the pivot rows.

    θ = Cᵀw with CCᵀ = I, so that u = Aθ = √scale·Bw and ‖θ‖ = ‖w‖ are exact for a real θ: low rank restricts
    θ, it does not approximate Q. The solvers see v = √scale·w, with u = Bv and ‖θ‖ = ‖v‖/√scale.

    Attributes
    ----------
    B : (n, r), C-ordered; or a `TallMatrix`
    scale : trace(Q)/n, 1 where that is zero
    pivots : rows whose span holds θ
    residual : trace(Q − scale·BBᵀ) / trace(Q)
    kernel_seconds, factor_seconds : wall time of kernel evaluation, and of factorization
    why : the reason for the method, where it was chosen by default
    room : the array whose first columns are B, with space for more
    """

    B: Any
    scale: float
    pivots: Ints
    residual: float
    kernel_seconds: float
    factor_seconds: float
    why: str = field(default="", kw_only=True)
    room: Room | None = field(default=None, kw_only=True, repr=False)

    method = ""
    grows = False  # whether `grow` can add columns that a certificate asks for
    is_exact = True  # whether B has no error but rounding in double precision, so that Q can be read off it
    is_projected = False  # whether Q was indefinite, and a projection of it is factored
    is_whole = False  # whether B stands for Q itself, see `whole`
    is_nested = True  # whether the columns of a finer factor begin with these

    @cached_property
    def matrix(self) -> TallMatrix:
        """B with the operations that solvers and certificates need, whatever holds it."""
        return tall(self.B, PASSING if self.grows else inf)

    @property
    def rank(self) -> int:
        return int(self.B.shape[1])

    @property
    def added(self) -> float:
        """s, where the matrix of κ(x, y) + s·[x = y] is factored instead of that of κ; else 0."""
        return float(getattr(self, "shift", 0.0))

    @property
    def departure(self) -> float:
        """‖Q − Q̃‖/‖Q‖, where Q was indefinite and Q̃ is factored; else 0."""
        return float(getattr(self, "distance", 0.0))

    @property
    def is_restriction(self) -> bool:
        """Whether θ is confined to less than the row space of A."""
        return self.residual > 10 * FLOOR

    @property
    def of_pivots(self) -> Factor:
        """The factor of the pivots alone, without functions Aᵀν."""
        return self

    def in_one_array(self, rows: Rows) -> Factor:
        """A factor of the same pivots with B as an array in double precision."""
        return self

    def coefficients(self, v: Array) -> Array:
        """c with θ = Σₛ cₛ·(row pivots[s]) = Cᵀw, for v = √scale·w of shape (r,) or (r, K); read-only.

        Those of the last v are remembered, since an answer and its certificate ask for the same.
        """
        last = self._last.get("v")
        if last is None or not np.array_equal(last[0], v):
            c = np.asarray(self._coefficients(v))
            c.flags.writeable = False
            self._last["v"] = last = (np.array(v), c)
        return last[1]

    @abstractmethod
    def _coefficients(self, v: Array) -> Array:
        """`coefficients`, computed."""

    @cached_property
    def _last(self) -> dict[str, tuple[Array, Array]]:
        return {}

    def predictions(self, rows: Rows, v: Array) -> Array:
        """Aθ on all rows, computed from kernel values instead of B."""
        return rows.combined(self.pivots, self.coefficients(v))

    def product(self, rows: Rows, V: Array) -> Array:
        """QV by a pass over kernel values, not by B."""
        return rows.product(V)

    def quadratic(self, rows: Rows, V: Array) -> Array:
        """VᵀQV by a pass over kernel values, not by B."""
        return rows.quadratic(V)

    def product_error(self, rows: Rows, V: Array) -> Array:
        """A bound on the rounding error of `product`, (n, k)."""
        return rows.product_error(V)

    def quadratic_error(self, rows: Rows, V: Array) -> Array:
        """A bound on the rounding error of `quadratic`, (k, k)."""
        return rows.quadratic_error(V)
