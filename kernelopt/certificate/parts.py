"""Aᵀν divided among several norms of one θ: Aᵀν = Σ mⱼMⱼᵀ, mⱼ = Aᵀnⱼ the multiplier of ‖θMⱼ − fⱼ‖ ≤ tⱼ.

At an optimum mⱼ = μⱼ·(a subgradient of the norm), with μⱼ the slope of what tⱼ costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import null_space
from scipy.optimize import nnls

from kernelopt.certificate.multipliers import norm_slope, row_coefficients
from kernelopt.compiler.iterate import Iterate
from kernelopt.compiler.representer import Reduction, norm_gram
from kernelopt.support.types import Array

AT_ZERO = 1e-5  # relative to the largest norm of a θ: norms below are taken for 0, where every mⱼ up to μⱼ is one
NOTHING = 1e-12  # relative to the largest part: smaller ones are 0
LEAST = 1e-3  # least weight of a norm when what other parts leave of Aᵀν is divided: it keeps MW²Mᵀ regular


class Costs(NamedTuple):
    """What each tⱼ costs: `known`, `by_rows` times how far multipliers of rows with other columns move, and any number
    ≥ 0 where it is `bounded`."""

    known: Array
    by_rows: Array
    bounded: Array


class Divided(NamedTuple):
    """[n₁ … n_J] of one θ, S with SMᵀ = I for all M side by side, which divides what they leave of ν, and the moves of
    multipliers of rows that fit them."""

    n: Array
    shares: Array
    moved: Array


def at_point(  # noqa: PLR0917
    reduction: Reduction, number: int, norms: Sequence[int], point: Iterate, nu: Array, costs: Costs
) -> Divided:  # fmt: skip
    """The parts mⱼ = μⱼ·(a subgradient at θ̂) of several norms; what is left goes to those at 0, if there are any.

    What is not known of the μⱼ is found by least squares.
    """
    link, form = reduction.form.predictions[number], reduction.form
    factor, (slopes, at_zero) = reduction.factors[link.theta], subgradients(reduction, number, norms, point)
    rights, mu = [form.norms[j].right for j in norms], costs.known
    moved = np.zeros(costs.by_rows.shape[1])
    if factor.rank and (moved.size or costs.bounded.any()):
        of_theta = np.array([(factor.B.T @ s @ M.T).ravel() for s, M in zip(slopes, rights, strict=True)]).T
        by = np.hstack([costs.by_rows, -costs.by_rows, np.eye(len(mu))[:, costs.bounded]])
        found = nnls(of_theta @ by, (factor.B.T @ nu).ravel() - of_theta @ mu)[0]
        moved, mu = found[: moved.size] - found[moved.size : 2 * moved.size], mu + by @ found
    lengths = mu * ~at_zero
    heavy = np.where(at_zero, 1.0, LEAST) if at_zero.any() else (lengths / (lengths.max() or 1.0)).clip(LEAST)
    costly = lengths > NOTHING * lengths.max(initial=0.0)
    kept = np.hstack([M * one for M, one in zip(rights, costly | at_zero, strict=True)])
    if np.linalg.matrix_rank(kept) == np.linalg.matrix_rank(np.hstack(rights)):
        heavy = heavy * (costly | at_zero)  # a norm that costs nothing has no part
    n = np.hstack([m * slope for m, slope in zip(mu, slopes, strict=True)])
    return Divided(n, _shares(rights, heavy), moved)


def subgradients(
    reduction: Reduction, number: int, norms: Sequence[int], point: Iterate
) -> tuple[list[Array], np.ndarray]:
    """Coefficients over the rows of a subgradient of each norm at θ̂, 0 for norms that are 0, and which are."""
    theta, t, slopes = row_coefficients(reduction, point, number), point.t[list(norms)], list[Array]()
    at_zero = t <= AT_ZERO * t.max(initial=0.0)
    for j, zero in zip(norms, at_zero, strict=True):
        norm = reduction.form.norms[j]
        slope = theta @ norm.right
        slope[norm.function_rows, np.arange(len(norm.function_rows))] -= 1.0
        slopes.append((1.0 - zero) * slope @ norm_slope(norm_gram(reduction, point, norm), norm.kind))
    return slopes, np.asarray(at_zero)


def _shares(rights: Sequence[Array], heavy: Array) -> Array:
    """S = (MW²Mᵀ)⁻¹MW² with a weight for each norm."""
    M = np.hstack(rights)
    MW = M * np.concatenate([np.full(one.shape[1], w) for one, w in zip(rights, heavy, strict=True)]) ** 2
    return np.asarray(np.linalg.pinv(MW @ M.T) @ MW)


def directions(M: Array, shares: Array) -> Array:
    """N with MN = 0: parts n + DNᵀ have the same sum Σ nⱼMⱼᵀ for every D. Those without a share stay as they are."""
    busy, found = shares.any(axis=0), null_space(M[:, shares.any(axis=0)])
    N = np.zeros((M.shape[1], found.shape[1]))
    N[busy] = found
    return N
