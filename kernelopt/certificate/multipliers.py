"""Eliminating θ from the Lagrangian: Aᵀν is split among the norms of θ, and the dual norms of the parts are computed.

Dual norms come from VᵀQV, see `gram.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelopt.certificate.gram import Gram
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.representer import Reduction
from kernelopt.language.nodes import norm_from_gram
from kernelopt.support.types import Array

# Relative room in sums of singular values ("nuc"), about the checker's allowance for errors of eigenvalues. A larger
# room costs more of the bound, a smaller one may make the proof fail.
SPARE = 1e-9
# The dual of a norm of θ, where it is not the norm itself: of the nuclear norm the spectral norm, and vice versa.
DUAL_KIND: dict[Any, Any] = {"nuc": 2, 2: "nuc"}


@dataclass(frozen=True, eq=False)
class Multipliers:
    """The split of one θ's Aᵀν among its norms: Aᵀν = Σⱼ mⱼMⱼᵀ with mⱼ = Aᵀnⱼ, the multiplier of θMⱼ − f₀ⱼ in norm j.

    stack : [n₁ … n_J, E], (n, columns) over the distinct rows, E the unit columns of functions f₀
    widths : number of columns of each nⱼ; norms : indices j in the form; kinds : dual norms
    shifts : for each norm the columns of its f₀ in `stack`, an empty slice without f₀
    free : whether ν is nonzero in some output of θ that no norm binds, so that no mⱼ add up to Aᵀν
    """

    stack: Array
    widths: tuple[int, ...]
    norms: tuple[int, ...]
    kinds: tuple[Any, ...]
    shifts: tuple[slice, ...]
    free: bool


def norm_slope(G: Array, kind: str | int) -> Array:
    """T with WT a subgradient of a norm at W, for WᵀW = G: I/‖W‖, (WᵀW)^(−½) (nuclear), v₁v₁ᵀ/σ₁ (spectral); 0 at 0."""
    if not G.any():
        return np.zeros_like(G)
    if kind not in ("nuc", 2):
        return np.asarray(np.eye(len(G)) / np.sqrt(np.trace(G)))
    squares, V = np.linalg.eigh(G)
    kept = squares > 1e-12 * squares[-1]
    if kind == 2:
        kept &= np.arange(len(squares)) == len(squares) - 1
    return np.asarray(V[:, kept] / np.sqrt(squares[kept]) @ V[:, kept].T)


def lengths_of(m: Multipliers, found: Gram) -> Array:
    """An upper bound on the dual norm of each mⱼ, from the Gram matrix of the stack."""
    ends = np.cumsum([0, *m.widths])
    kinds = m.kinds or ("fro",)
    return np.array([
        norm_from_gram(found.most(slice(a, b), kind), kind) * (1 + SPARE * (kind == "nuc"))
        for a, b, kind in zip(ends[:-1], ends[1:], kinds, strict=True)
    ])  # fmt: skip


def is_identity(M: Array) -> bool:
    """Whether M is the identity: the norm is that of θ itself."""
    return M.shape[0] == M.shape[1] and bool(np.array_equal(M, np.eye(len(M))))


def row_coefficients(reduction: Reduction, point: Iterate, number: int) -> Array:
    """The coefficients of θ̂ as a linear combination of all rows, (n, K)."""
    link = reduction.form.predictions[number]
    factor, outputs = reduction.factors[link.theta], link.theta.outputs or 1
    c = np.zeros((len(link.rows), outputs))
    if factor.rank:
        np.add.at(c, factor.pivots, factor.coefficients(point.v[number]).reshape(-1, outputs))
    return c
