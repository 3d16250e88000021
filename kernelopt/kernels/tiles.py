"""Kernel matrices in tiles that fit into the cache, half of them where the matrix is symmetric."""

from __future__ import annotations

from collections.abc import Callable
from math import frexp

import numpy as np
from scipy.spatial.distance import cdist

from kernelopt.kernels.rounding import spread
from kernelopt.kernels.sparse_rows import inner_products, is_sparse, squared_lengths, terms
from kernelopt.support import clock
from kernelopt.support.arithmetic import gamma
from kernelopt.support.types import Array

# Added to denominators a + b ≥ 0, so that 0/0 becomes 0. It is below the rounding of every a + b above 1e-284.
TINY = 1e-300
# Distance from the median, in scales, up to which squared distances come from a matrix product. The product's error
# grows with its square, to 1e-16·FAR² ≈ 1e-12; smaller values compute more distances by direct sums, which are slower.
FAR = 100.0
# Rows of a matrix up to which its tiles are computed without a look at the deadline: a pass over the kernel looks
# between blocks of so many rows. A matrix that is formed as a whole may take minutes.
LOOKED_AT = 1024
FOR_CENTRE = 256  # points whose median is the centre, at most; of all, it takes as long as some thousand distances each


def exp_minus(D: Array) -> Array:
    """e⁻ᴰ, in place."""
    np.negative(D, out=D)
    return np.exp(D, out=D)


def column_sums(X: Array, Z: Array | None, term: Callable[[Array, Array, Array], Array]) -> Array:
    """Σⱼ term(xⱼ, zⱼ), column by column in tiles that fit into the cache; `term` may write into the buffer it gets.

    A tile and the buffer have 0.3 MB each; in larger ones, each column would be a pass over memory.
    """
    right = X if Z is None else Z

    room = np.empty(min(192, len(X)) * min(192, len(right)))

    def tile(i: slice, j: slice, total: Array) -> Array:
        total[...], buffer = 0.0, room[: total.size].reshape(total.shape)
        for a, b in zip(X[i].T, right[j].T, strict=True):
            total += term(a[:, None], b, buffer)
        return total

    return tiled(len(X), None if Z is None else len(Z), tile, size=192)


def half_squared_distances(X: Array, Z: Array | None, scale: float, direct: bool = False) -> Array:
    """‖xᵢ − zⱼ‖²/(2·scale²)."""
    return radial(X, Z, scale, lambda rho: rho, direct)


def half_square_error(X: Array, scale: float) -> float:
    """A bound on the error of ‖x − z‖²/(2·scale²) as `radial` computes it: γ₃d₊₂₀·max‖x − c‖²/scale², at most `FAR`².

    The errors of l = (x − c)/scale and r are γ₂|l| and γ₂|r|, those of ½‖l‖² and ½‖r‖² γ_d of themselves, and that of
    the product of d + 2 terms γ_{d+2}·½(‖l‖ + ‖r‖)². c is the median of some of the points; the bound takes the worst c
    in the box that holds them all. Beyond `FAR` the error is `direct_error`, relative to the distance.
    """
    if is_sparse(X):  # c = 0
        return gamma(3 * terms(X) + 20) * float(squared_lengths(X).max()) / scale**2
    squared = float(np.sum((spread(X) / scale) ** 2, axis=1).max())
    return gamma(3 * X.shape[1] + 20) * min(squared, FAR**2)


def direct_error(X: Array) -> float:
    """The relative error of ‖x − z‖²/(2·scale²), where it is computed as a sum of (xⱼ − zⱼ)²."""
    return gamma(terms(X) + 10)


def radial(X: Array, Z: Array | None, scale: float, profile: Callable[[Array], Array], direct: bool = False) -> Array:
    """g(‖xᵢ − zⱼ‖²/(2·scale²)), with g applied in place to tiles that fit into the cache.

    ½‖x‖² + ½‖z‖² − xᵀz is one matrix product of (−x, ½‖x‖², 1) and (z, 1, ½‖z‖²). Its terms cancel, with an error of
    about 1e-16·(‖x‖² + ‖z‖²); subtracting the median from all points first makes these norms small. For points that are
    still more than `FAR` scales away, or with `direct` for all, distances are sums of (xⱼ − zⱼ)² of the given points,
    with an error relative to the distance. `half_square_error` bounds the errors.
    """
    other = X if Z is None else Z
    if not len(other):  # the centers of a function that is 0
        return np.zeros((len(X), 0))
    if is_sparse(X) or is_sparse(other):
        return profile(_of_sparse_rows(X, Z, scale))
    centre = np.median(other[:: len(other) // FOR_CENTRE + 1], axis=0)
    left = (X - centre) / scale
    right = left if Z is None else (Z - centre) / scale
    x = 0.5 * np.einsum("ij,ij->i", left, left)
    z = x if Z is None else 0.5 * np.einsum("ij,ij->i", right, right)
    L = np.column_stack([-left, x, np.ones(len(x))])
    R = np.column_stack([right, np.ones(len(z)), z])
    far = 0.5 * FAR**2
    # Division by a power of 2 near the scale is exact, and keeps the squares of ordinary distances within range.
    unit = 2.0 ** (frexp(scale)[1] - 1)

    def distances(A: Array, B: Array) -> Array:
        return 0.5 * (unit / scale) ** 2 * cdist(A / unit, B / unit, "sqeuclidean")

    def tile(i: slice, j: slice, D: Array) -> Array:
        if direct:
            return profile(distances(X[i], other[j]))
        np.matmul(L[i], R[j].T, out=D)
        np.maximum(D, 0.0, out=D)  # rounding may leave negative squares
        far_x, far_z = x[i] > far, z[j] > far
        if far_x.any():
            D[far_x] = distances(X[i][far_x], other[j])
        if far_z.any():
            D[:, far_z] = distances(X[i], other[j][far_z])
        if Z is None and i == j:
            np.fill_diagonal(D, 0.0)
        return profile(D)

    return tiled(len(x), None if Z is None else len(z), tile)


def _of_sparse_rows(X: Array, Z: Array | None, scale: float) -> Array:
    """½‖x‖² + ½‖z‖² − xᵀz in units of scale², where some points are rows of a sparse matrix: with 0 as the centre, and
    without direct sums for points that are far from it."""
    x = squared_lengths(X)
    z, D = x if Z is None else squared_lengths(Z), inner_products(X, Z)
    np.subtract(0.5 * np.add.outer(x, z), D, out=D)  # in an order that keeps it symmetric
    np.maximum(D, 0.0, out=D)  # rounding may leave negative squares
    if Z is None:
        np.fill_diagonal(D, 0.0)
    D /= scale
    D /= scale
    return D


def tiled(n: int, m: int | None, tile: Callable[[slice, slice, Array], Array], size: int = 384) -> Array:
    """An n×m matrix from its tiles; where m is None a symmetric one, from the tiles on and below the diagonal.

    `tile` may write into the array that it gets. All tiles get the same memory, because allocating it for each takes
    longer than computing the values. A tile has at most `size`² entries, by default 1.2 MB.
    """
    K = np.empty((n, n if m is None else m))
    room = np.empty(min(size, n) * min(size, K.shape[1]))
    for a in range(0, n, size):
        if a > LOOKED_AT:
            clock.check()
        i = slice(a, min(a + size, n))
        for b in range(0, a + 1 if m is None else m, size):
            j = slice(b, min(b + size, K.shape[1]))
            shape = i.stop - i.start, j.stop - j.start
            K[i, j] = tile(i, j, room[: shape[0] * shape[1]].reshape(shape))
            if m is None and a != b:
                K[j, i] = K[i, j].T
    return K
