"""The checker's input beside the pieces: links to θ with kernel values, and multipliers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

Array = np.ndarray[Any, Any]
NO_INVERSE, NO_WEIGHTS = sp.csr_array((0, 0)), sp.csc_array((0, 0))
NO_COLUMNS = np.zeros((0, 0), dtype=int)


class Norm(NamedTuple):
    """‖θM − f‖ ≤ t: the column of t, the dual norm ("fro", "nuc" or 2), M (K, k), and the columns of n and f in V.

    m = (Aᵀn)Tᵀ for T (k, columns of n); T = None stands for the identity. With T, n needs fewer columns where m has a
    low rank.
    """

    column: int
    dual: str | int
    M: Array
    n: slice
    f: slice
    T: Array | None = None


class Link(NamedTuple):
    """One θ: u[i, k] = (row take[i] of A)·θₖ.

    columns : (len(take), K), the columns of u; sizes : ≥ √Qᵢᵢ of each row; norms : empty where no norm binds θ
    V, gram, error : V = [n₁ … n_J, f₁ … f_J] over the rows; VᵀQV, whose entries are off by at most `error`
    shares : S (K, Σk) with SMᵀ ≈ I, for all M side by side. It divides the part of Aᵀν that the n leave among the norms
    features : (rows, p) where κ(x, z) = Σₖ φₖ(x)φₖ(z)
    loose : where norms bind θM only, the link is that of ψ = θM, whose predictions w = Aψ are `columns`; these are the
        columns of u = Aθ, (len(take), K), in which Aᵀν vanishes, and rows w − uM = 0 tie both
    """

    columns: Array
    take: Array
    sizes: Array
    norms: Sequence[Norm]
    V: Array
    gram: Array
    error: Array
    shares: Array
    features: Array | None = None
    loose: Array = NO_COLUMNS


@dataclass(frozen=True, eq=False)
class Dual:
    """Multipliers z of all rows, and moves after which stationarity holds exactly in all free columns (they "vanish").

    radius : a bound on the move of each zᵢ; rows, columns : the rows that move, and the free columns solved for
    inverse : Z ≈ M⁻¹ for M = A_rows,columnsᵀ
    others, weights : free columns that are linear combinations of the remaining ones, and the weights of these
        combinations, (free columns, others)
    """

    z: Array
    radius: Array
    rows: Array
    columns: Array
    inverse: sp.csr_array
    others: Array
    weights: sp.csc_array


def still(z: Array) -> Dual:
    """Multipliers that stay where they are."""
    none = np.arange(0)
    return Dual(z, np.zeros(len(z)), none, none, NO_INVERSE, none, NO_WEIGHTS)


class Bound(NamedTuple):
    """A proven bound, value ≤ optimum.

    rounding : the allowance for rounding that was subtracted; terms : sum of the sizes of its terms; missing : the
    reason where the value is −∞
    """

    value: float
    rounding: float
    terms: float
    missing: str = ""


def nothing(why: str) -> Bound:
    return Bound(-inf, inf, inf, why)
