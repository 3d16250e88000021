"""VᵀQV for the rows of A, with a bound on its error.

It is computed by a pass over the kernel's own values, from the factor Q ≈ scale·BBᵀ, or by sampling. With
Sₐ = Σᵢ √Qᵢᵢ|Vᵢₐ|, rounding of kernel values (relative to √(QᵢᵢQⱼⱼ)) and of sums adds (rounding + γ)·SₐS_b to the error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kernelopt.compiler.canonical_form import PredictionLink
from kernelopt.errors import KernelError
from kernelopt.factorization import Factor
from kernelopt.kernels.domains import stack
from kernelopt.kernels.lifts import lift_of
from kernelopt.support.arithmetic import UNIT, additions, exact_product, gamma, summed_inner
from kernelopt.support.types import Array, Ints

STREAMED, CHEAP, FROM_FACTOR, SAMPLED = "streamed", "trace of what the factor leaves", "factor", "sampled"
PRODUCTS = "streamed, with Qν"
FIRST_LOOK = "factor, rounding left out"
DIAGONAL = "factor, and the diagonal of what it leaves"
COMPUTED, ERRORLESS = "exact sums of computed kernel values", "streamed, errors left out"
SAMPLE = 400  # rows drawn for an estimate: its relative error is of the order of 1/√400 = 5 %
# Features up to which VᵀQV is computed as (ΦᵀV)ᵀ(ΦᵀV). Larger values cost memory, N numbers per feature; smaller ones
# cost passes over the kernel, N² kernel values each.
MOST = 500
FEATURE = 64 * UNIT  # relative error that is allowed for a computed feature: 64 roundings of its formula
# Smallest ratio of the least to the largest squared norm of the factor's columns at which the rank of Q counts as
# known. Below this ratio a column may consist of rounding.
CONDITION = 1e-8
UNDERFLOW = 2.0**-1000  # absolute; a sum of squares loses less by underflow, at most 2⁻¹⁰⁷⁴ per term
SMALLEST = 2.0**-1022  # absolute; the smallest normal double: scaling one number loses less by underflow


@dataclass(frozen=True, eq=False)
class Gram:
    """VᵀQV ≈ value with |value − VᵀQV| ≤ error entrywise; sizes ≥ √Qᵢᵢ; product = QV where a pass computed it."""

    value: Array
    error: Array
    sizes: Array
    product: Array | None = None

    def most(self, part: slice, kind: str | int = "fro") -> Array:
        """A matrix ⪰ a block of VᵀQV; for the nuclear norm ("nuc") the computed block itself.

        Singular values are square roots of eigenvalues, so that an error added to the diagonal would add its square
        root to each of them.
        """
        block, error = self.value[part, part], self.error[part, part]
        return block if kind == "nuc" else np.asarray(block + np.abs(error).sum() * np.eye(len(block)))

    def mixed(self, T: Array) -> Gram:
        """The Gram matrix of VT."""
        size = np.abs(T)
        return Gram(T.T @ self.value @ T, (size.T @ self.error @ size) * (1 + 1e-12), self.sizes)

    @np.errstate(over="ignore")  # an infinite length gives the bound −∞, which is valid
    def times(self, power: Ints) -> Gram:
        """The Gram matrix of V with columns scaled by 2^power; losses by underflow are added to the error."""
        both = power[:, None] + power
        value, error = np.ldexp(self.value, both), np.ldexp(self.error, both)
        under = (np.ldexp(value, -both) != self.value) | (np.ldexp(error, -both) != self.error)
        product = None if self.product is None else np.ldexp(self.product, power)
        return Gram(value, error + SMALLEST * under, self.sizes, product)


def gram_of(link: PredictionLink, factor: Factor, V: Array, way: str) -> Gram:
    """VᵀQV by one of the ways above; from the factor without a pass where its rank is that of Q.

    Columns of V are scaled to size 1 first, since squares of multipliers may underflow.
    """
    if way == COMPUTED:
        return as_computed(link, V)
    if way == ERRORLESS:
        found = gram_of(link, factor, V, STREAMED)
        return replace(found, error=np.zeros_like(found.error))
    scaled, power = _of_size_one(V)
    return _gram_of(link, factor, scaled, way).times(power)


def _of_size_one(V: Array) -> tuple[Array, Ints]:
    """V with columns divided by powers of two to size 1, and the exponents; V itself where division would round."""
    power = np.asarray(np.frexp(np.abs(V).max(axis=0, initial=0.0))[1])
    scaled = np.ldexp(V, -power)
    return (scaled, power) if np.array_equal(np.ldexp(scaled, power), V) else (V, np.zeros_like(power))


def _gram_of(link: PredictionLink, factor: Factor, V: Array, way: str) -> Gram:
    """VᵀQV for unscaled V."""
    n, rows = len(link.rows), link.rows
    sizes = rows.lengths()
    if factor.is_projected and n:
        sizes = np.sqrt(factor.scale * factor.matrix.row_squares()) * (1 + gamma(factor.rank + 4))
    S = (sizes @ np.abs(V)) * (1 + gamma(n + 2))
    tiny = UNDERFLOW * np.outer(S > 0, S > 0)
    if way not in (FROM_FACTOR, FIRST_LOOK, DIAGONAL, SAMPLED, PRODUCTS):
        features = _features_below(link, factor)
        if features is not None:
            return _from_features(features, rows.spread @ V, abs(rows.spread) @ np.abs(V), sizes)
    if way == SAMPLED:
        return Gram(_sampled(link, factor, V), np.zeros_like(tiny), sizes)
    if way in (FIRST_LOOK, DIAGONAL):
        left = V.T @ (_diagonal(link, factor)[:, None] * V) if way == DIAGONAL else 0.0
        return Gram(_from_factor(factor, V) + left, np.zeros_like(tiny), sizes)
    exact = spans_everything(link, factor) and factor.is_exact
    # A pass over the kernel would see the indefinite Q, not Q̃, of which a projected factor leaves `residual`.
    if way in (FROM_FACTOR, CHEAP) or not n or exact or factor.is_projected:
        alone = way == FROM_FACTOR or (factor.is_projected and not factor.is_restriction)  # BBᵀ itself is the matrix
        left = 0.0 if alone else max(factor.residual, 0.0)
        relative = gamma(2 * n + 2 * factor.rank + 16) + (0.0 if alone else rows.rounding())
        return Gram(_from_factor(factor, V), relative * np.outer(S, S) + _left(factor, V, left) + tiny, sizes)
    if way == PRODUCTS:
        product = factor.product(rows, V)
        value = summed_inner(V, product)
        error = np.abs(V).T @ factor.product_error(rows, V) + gamma(additions(n, n) + 4) * np.outer(S, S)
        return Gram((value + value.T) / 2, np.maximum(error, error.T) * (1 + 1e-12) + tiny, sizes, product)
    return Gram(factor.quadratic(rows, V), factor.quadratic_error(rows, V) + tiny, sizes)


def as_computed(link: PredictionLink, V: Array) -> Gram:
    """VᵀQV for the floating-point matrix Q as it was computed, ignoring errors of kernel values.

    Entries of QV and of VᵀQV are sums of exact products, each rounded once.
    """
    Q, sizes = link.rows.gram(), link.rows.lengths()
    V, power = _of_size_one(V)
    QV = exact_product(Q, V)
    value = exact_product(V.T, QV)
    error = 2 * UNIT * np.abs(V).T @ np.abs(QV) + 2 * UNIT * np.abs(value)
    error = np.maximum(error, error.T) * (1 + 1e-12)
    return Gram((value + value.T) / 2, error + UNDERFLOW * (error > 0), sizes).times(power)


def features_of(link: PredictionLink, factor: Factor) -> Array | None:
    """φ(x) for each row where features are few and their inner products are the kernel, else None."""
    return _features_below(link, factor) if link.rows.are_points else None


def _features_below(link: PredictionLink, factor: Factor) -> Array | None:
    """φ(x) for each point and each center that rows combine, where features are few, else None."""
    rows = link.rows
    points = stack([rows.points, rows.centers]) if len(rows.centers) else rows.points
    if factor.added or factor.is_projected or lift_of(rows.kernel) or not len(points):
        return None
    if rows.kernel._n_features(points) > min(len(rows), MOST):
        return None
    try:
        return np.asarray(rows.kernel._features(points), dtype=float)
    except KernelError:
        return None  # a precomputed kernel matrix has a number of features, but no feature map


def _from_features(F: Array, V: Array, most: Array, sizes: Array) -> Gram:
    """WᵀW for W = FᵀV with an error of D = (γ + FEATURE)|F|ᵀ·most in W.

    V (points, k) is a sum of terms whose absolute values add up to `most`. The error of WᵀW is proportional to |W|, so
    that it stays small where W ≈ 0, unlike one proportional to D's other factor.
    """
    W = F.T @ V
    D = (gamma(2 * len(F) + 4) + FEATURE) * (np.abs(F).T @ most) * (1 + 1e-12)
    both = np.abs(W).T @ D
    error = (both + both.T + D.T @ D) * (1 + 1e-12) + gamma(len(W) + 2) * (np.abs(W).T @ np.abs(W))
    return Gram(W.T @ W, error + UNDERFLOW * (error > 0), sizes)


def _from_factor(factor: Factor, V: Array) -> Array:
    """VᵀBBᵀV·scale."""
    return np.asarray(factor.scale * factor.matrix.inner(factor.B.T @ V))


def _left(factor: Factor, V: Array, residual: float) -> Array:
    """tr(Q − BBᵀ)‖Vₐ‖‖V_b‖ ≥ |Vᵀ(Q − BBᵀ)V|."""
    lengths = np.linalg.norm(V, axis=0)
    return np.asarray(residual * factor.scale * len(factor.B) * np.outer(lengths, lengths) * (1 + 1e-12))


def _diagonal(link: PredictionLink, factor: Factor) -> Array:
    """diag(Q − BBᵀ·scale), at least 0."""
    return np.clip(link.rows.diagonal() - factor.scale * factor.matrix.row_squares(), 0.0, None)


def _sampled(link: PredictionLink, factor: Factor, V: Array) -> Array:
    """VᵀQV with Vᵀ(Q − BBᵀ)V estimated from rows drawn with p ∝ |V|√diag(Q − BBᵀ)."""
    rows = link.rows
    d = _diagonal(link, factor)
    weight = np.linalg.norm(V, axis=1) * np.sqrt(d)
    if weight.sum() == 0:
        return _from_factor(factor, V)
    p = weight / weight.sum()
    drawn = np.sort(np.random.default_rng(0).choice(len(p), size=SAMPLE, p=p))
    scaled = V[drawn] / (SAMPLE * p[drawn])[:, None]
    E = rows.subset(drawn).gram() - factor.scale * factor.B[drawn] @ factor.B[drawn].T
    return np.asarray(_from_factor(factor, V) + scaled.T @ E @ scaled)


def spans_everything(link: PredictionLink, factor: Factor) -> bool:
    """Whether the factor has the rank of Q: the number of rows or of features, and no column that may be rounding."""
    if factor.is_projected:
        return not factor.is_restriction
    if factor.is_whole:
        return True
    if factor.rank not in (len(link.rows), link.rows.features):
        return False
    columns = factor.matrix.column_squares()
    return not len(columns) or bool(columns.min() >= CONDITION * columns.max())
