"""Eliminating θ from the Lagrangian: Aᵀν is split among the norms of θ, and the dual norms of the parts are computed.

Dual norms come from VᵀQV, see `gram.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

from kernelopt.certificate.gram import Gram
from kernelopt.compiler.conic_form import ConicForm
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.representer import Reduction, norm_gram
from kernelopt.language.nodes import norm_from_gram
from kernelopt.support.types import Array

# Relative room in sums of singular values ("nuc"), about the checker's allowance for errors of eigenvalues. A larger
# room costs more of the bound, a smaller one may make the proof fail.
SPARE = 1e-9
# Relative to the largest μ of the same θ: a norm with a smaller μⱼ is inactive and gets no part of Aᵀν. Larger values
# would drop active norms, smaller ones would keep the inaccuracy of a solver's μ.
NONE = 1e-9
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


def split(  # noqa: PLR0917
    reduction: Reduction, conic: ConicForm, point: Iterate, number: int, nu: Array, mu: Array, coefficients: Array,
    known: Mapping[int, Array] | None = None,
) -> Multipliers:  # fmt: skip
    """Split Aᵀν among the norms of θ.

    For several norms the nⱼ are `known`, or mⱼ = s·μⱼ·(a subgradient of norm j at θ̂) with the s ≤ 1 for which their
    sum is nearest to Aᵀν. The remainder is divided in proportion to μⱼ².
    """
    form = reduction.form
    link = form.predictions[number]
    factor = reduction.factors[link.theta]
    norms = costly_norms(reduction, conic, number)
    total = link.summed(nu)
    shifts = [form.norms[j].function_rows for j in norms]
    rights = [form.norms[j].right for j in norms]
    stacked = np.hstack(rights) if norms else np.zeros((total.shape[1], 0))
    free = not _bind(rights, np.asarray(total.any(axis=0)))
    pieces = []
    for j, M, rows in zip(norms, rights, shifts, strict=True):
        piece = np.zeros((len(total), M.shape[1]))
        if known is not None:
            piece += known[j] * (mu[j] > NONE * np.abs(mu[norms]).max())
        elif len(norms) > 1 and point.t[j] > 0:
            piece += coefficients @ M
            piece[rows, np.arange(len(rows))] -= 1.0
            piece = mu[j] * piece @ norm_slope(norm_gram(reduction, point, form.norms[j]), form.norms[j].kind)
        pieces.append(piece)
    if len(norms) == 1 and known is None and is_identity(rights[0]):
        n = total
    elif norms and not free:
        n = np.hstack(pieces)
        if len(norms) > 1 and known is None:
            n *= _fit(factor.B.T @ (n @ stacked.T), factor.B.T @ total)
        shares = (mu[norms] / (np.abs(mu[norms]).max() or 1.0)) ** 2
        shares[shares < NONE**2] = 0.0
        weights = np.concatenate([np.full(M.shape[1], w) for w, M in zip(shares, rights, strict=True)])
        enough = np.linalg.matrix_rank(stacked * weights) == np.linalg.matrix_rank(stacked)
        weights = weights if enough else np.ones_like(weights)
        n += (total - n @ stacked.T) @ np.linalg.pinv(stacked * weights @ stacked.T) @ (stacked * weights)
    else:
        n = total
    units, places, at = [], [], n.shape[1]
    for rows in shifts:
        unit = np.zeros((len(total), len(rows)))
        unit[rows, np.arange(len(rows))] = 1.0
        units.append(unit)
        places.append(slice(at, at + len(rows)))
        at += len(rows)
    return Multipliers(
        np.hstack([n, *units]),
        tuple(M.shape[1] for M in rights) if not free else (n.shape[1],),
        tuple(norms) if not free else (),
        tuple(DUAL_KIND.get(form.norms[j].kind, "fro") for j in norms) if not free else (),
        tuple(places),
        free,
    )


def _fit(part: Array, whole: Array) -> float:
    """The share s ∈ [0, 1] for which s·part is nearest to whole; 1 where part is zero."""
    square = float(np.sum(part**2))
    return min(max(float(np.sum(part * whole)) / square, 0.0), 1.0) if square else 1.0


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


def functions_part(m: Multipliers, gram: Gram) -> float:
    """Σⱼ⟨mⱼ, f₀ⱼ⟩."""
    if m.free:
        return 0.0
    ends = np.cumsum([0, *m.widths])
    return sum(
        float(np.trace(gram.value[a:b, place]))
        for a, b, place in zip(ends[:-1], ends[1:], m.shifts, strict=True)
        if place.stop > place.start
    )


def is_free(reduction: Reduction, form: ConicForm, number: int) -> bool:
    """Whether the outer problem uses some output of θ that no norm binds."""
    link, columns = reduction.form.predictions[number], form.u[number]
    rights = [reduction.form.norms[j].right for j in costly_norms(reduction, form, number)]
    if any(map(is_identity, rights)):
        return False
    used = (form.c[columns] != 0) | (form.P[columns] != 0) | (np.diff(form.A.indptr)[columns] > 0)
    return not _bind(rights, np.asarray(used.reshape(-1, link.theta.outputs or 1, order="F").any(axis=0)))


def costly_norms(reduction: Reduction, form: ConicForm, number: int) -> list[int]:
    """The norms of a θ with a cost or in a constraint; a norm with λ = 0 is left out, as if it were not stated."""
    theta = reduction.form.predictions[number].theta
    counts = form.A.indptr[form.t + 1] - form.A.indptr[form.t]
    costs = (form.c[form.t] != 0) | (form.P[form.t] != 0) | (counts > 1)
    return [j for j in reduction.form.norms_of(theta) if costs[j]]


def _bind(rights: list[Array], used: Array) -> bool:
    """Whether norms of θM₁, θM₂ … bind the used outputs: their unit vectors lie in the span of all columns of Mⱼ."""
    if not rights or any(map(is_identity, rights)):
        return bool(rights)
    stacked = np.hstack(rights)
    units = np.eye(len(stacked))[:, used]
    return bool(np.linalg.matrix_rank(np.hstack([stacked, units])) == np.linalg.matrix_rank(stacked))


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


def theta_gram(reduction: Reduction, point: Iterate, number: int) -> Array:
    """θᵀθ."""
    factor = reduction.factors[reduction.form.predictions[number].theta]
    V = point.v[number].reshape(factor.rank, -1) if factor.rank else np.zeros((1, 1))
    return np.asarray(factor.matrix.inner(V) / factor.scale)


def norm_multipliers(reduction: Reduction, form: ConicForm, point: Iterate, nu: list[Array]) -> Array:
    """μ with Aᵀν = Σ μⱼ·∂‖θMⱼ − f₀‖: the dual norm of Aᵀν for one norm, nonnegative least squares for several.

    Where tⱼ stands in the objective alone, as cⱼtⱼ + ½Pⱼtⱼ², μⱼ is its slope. Least squares cannot tell ‖θ‖ from the
    norms of all columns of θ, since their gradients add up to that of ‖θ‖.
    """
    mu = np.zeros(len(reduction.form.norms))
    alone = np.diff(form.A.indptr)[form.t] <= 1  # in no row but t ≥ 0
    for number, link in enumerate(reduction.form.predictions):
        factor = reduction.factors[link.theta]
        norms = reduction.form.norms_of(link.theta)
        if not norms or not factor.rank:
            continue
        target = np.sqrt(factor.scale) * (factor.B.T @ link.summed(nu[number]))
        (first, norm), *others = norms.items()
        if not others and norm.view.right is None:
            mu[first] = norm_from_gram(target.T @ target, DUAL_KIND.get(norm.kind, "fro"))
            continue
        w = np.sqrt(factor.scale) * (factor.B.T @ row_coefficients(reduction, point, number))
        gradients = []
        for norm in norms.values():
            shifted = w @ norm.right
            if len(norm.function_rows):
                shifted = shifted - np.sqrt(factor.scale) * factor.B[norm.function_rows].T
            slope = norm_slope(norm_gram(reduction, point, norm), norm.kind)
            gradients.append((shifted @ slope @ norm.right.T).ravel())
        columns, numbers = np.array(gradients).T, np.array(list(norms))
        priced, rest = numbers[alone[numbers]], ~alone[numbers]
        mu[priced] = form.c[form.t[priced]] + form.P[form.t[priced]] * point.t[priced]
        if rest.any():
            mu[numbers[rest]] = nnls(columns[:, rest], target.ravel() - columns[:, ~rest] @ mu[priced])[0]
    return mu
