"""What is handed to the checker: the problem as cone data, links to θ with kernel values, and a dual point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

Array = np.ndarray[Any, Any]


class Loss(NamedTuple):
    """wₖℓₖ at two points each, the slopes there on both sides of the multipliers.

    g, h : columns of g and of h = ℓ(g); at, value, slope : points, and values and slopes of w·ℓ there, (2, n)
    """

    g: Array
    h: Array
    at: Array
    value: Array
    slope: Array


class Program(NamedTuple):
    """½xᵀPx + cᵀx + Σ wₖℓₖ(gₖ) + offset over b − Ax ∈ K: P ≥ 0 as a diagonal, K as (kind, rows, order or exponents)."""

    P: Array
    c: Array
    offset: float
    A: sp.csc_array
    b: Array
    cones: Sequence[tuple[str, slice, Any]]
    losses: Sequence[Loss] = ()


class Norm(NamedTuple):
    """‖θM − f‖ ≤ t: the column of t, the dual norm ("fro", "nuc" or 2), M (K, k), and the columns of n and f in V.

    m = (Aᵀn)Tᵀ for T (k, columns of n), the identity where there is none: fewer columns, where m has a low rank.
    """

    column: int
    dual: str | int
    M: Array
    n: slice
    f: slice
    T: Array | None = None


class Link(NamedTuple):
    """One θ: u[i, k] = (row take[i] of A)·θₖ.

    columns : (len(take), K), of u; sizes : ≥ √Qᵢᵢ of each row; norms : none where nothing binds θ
    V, gram, error : vectors over the rows, V = [n₁ … n_J, f₁ … f_J], and VᵀQV, off by at most `error` entry by entry
    shares : S (K, Σk) with SMᵀ ≈ I, M all M side by side: how what the n leave of Aᵀν is shared out among the norms
    features : (rows, p) where κ(x, z) = Σₖ φₖ(x)φₖ(z)
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


@dataclass(frozen=True, eq=False)
class Dual:
    """A dual point z, and how it can be moved so that free columns vanish.

    tangent : slope of ½Px² at the point where it is linearized, for columns of u
    radius : how far each zᵢ moves; rows, columns : that move, and the free columns that vanish so
    inverse : Z ≈ M⁻¹ for M the transposed part of A in these
    others, weights : free columns that are sums of further ones, and with what weights, (free columns, others)
    """

    z: Array
    tangent: Array
    radius: Array
    rows: Array
    columns: Array
    inverse: sp.csr_array
    others: Array
    weights: sp.csc_array


def still(z: Array, tangent: Array) -> Dual:
    """A dual point that nothing moves."""
    none = np.arange(0)
    return Dual(z, tangent, np.zeros(len(z)), none, none, sp.csr_array((0, 0)), none, sp.csc_array((0, 0)))


class Bound(NamedTuple):
    """value ≤ the optimum; rounding : what was taken from it; terms : size of its parts; missing : why it is −∞."""

    value: float
    rounding: float
    terms: float
    missing: str = ""


def nothing(why: str) -> Bound:
    return Bound(-inf, inf, inf, why)
