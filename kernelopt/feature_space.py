"""Kernel matrices and the geometry of the feature space: distances, neighbours, alignment, spectra, finite maps."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as sl

from kernelopt.errors import DataError
from kernelopt.factorization import Settings, factorize
from kernelopt.kernels import as_kernel
from kernelopt.kernels.domains import check_finite, real_array
from kernelopt.language.functions import BLOCK_BYTES, Function
from kernelopt.language.rows import Rows
from kernelopt.support.checks import is_integer, require_flag, require_number, shown
from kernelopt.support.types import Array, Ints

# Relative to the largest eigenvalue (in `quick_checks` to the largest entry): smaller eigenvalues and differences count
# as rounding. Rounding makes about N·eps; a larger tolerance accepts slightly indefinite matrices.
PSD_TOLERANCE = 1e-10


def squared_distances(kernel: Any, X: Any, Z: Any = None) -> Array:
    """‖F(x) − F(z)‖² = κ(x, x) − 2κ(x, z) + κ(z, z), shape (len(X), len(Z)).

    Parameters
    ----------
    kernel : Kernel
    X : points (n)
    Z : points (m), optional
        By default X.

    Returns
    -------
    array (n, m)

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.feature_space.squared_distances(ko.kernels.Linear(), [[0.0], [3.0]])
    array([[0., 9.],
           [9., 0.]])
    """
    kernel = as_kernel(kernel)
    D = kernel(X, Z)
    return _squared_distances(D, kernel.diag(X), None if Z is None else kernel.diag(Z))


def _squared_distances(D: Array, x: Array, z: Array | None) -> Array:
    """x + z − 2D, in place of the kernel values D."""
    D *= -2
    D += x[:, None]
    D += x if z is None else z
    if z is None:
        np.fill_diagonal(D, 0.0)
    return np.maximum(D, 0.0, out=D)


class Neighbors(NamedTuple):
    """Row numbers of the nearest points, nearest first, and their distances; both (len(X), k)."""

    indices: Ints
    distances: Array


def nearest_neighbors(kernel: Any, X: Any, Z: Any, k: int = 1) -> Neighbors:
    """For each x its k nearest rows of Z by the distance ‖F(x) − F(z)‖, in blocks of rows.

    Raises DataError unless 1 ≤ k ≤ len(Z), and KernelError where X and Z have other numbers of columns.

    Parameters
    ----------
    kernel : Kernel
    X : points (n)
    Z : points (m)
        Among these neighbours are searched.
    k : int
        From 1 to m.

    Returns
    -------
    Neighbors
        Row numbers of Z and distances, (n, k) each, nearest first.

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.feature_space.nearest_neighbors(
    ...     ko.kernels.Linear(), [[1.9]], [[0.0], [2.0], [5.0]], k=2
    ... ).indices
    array([[1, 0]])
    """
    kernel = as_kernel(kernel)
    rows, others = kernel.rows(X), kernel.rows(Z)
    kernel._require_alike(rows, others)
    if not is_integer(k) or not 1 <= k <= len(others):
        raise DataError(f"Expected k from 1 to {len(others)}, the number of points to choose from; got {shown(k)}.")
    step = max(1, BLOCK_BYTES // (8 * len(others)))
    indices, distances = [], []
    for i in range(0, len(rows), step):
        block = rows[i : i + step]
        D = _squared_distances(kernel._matrix(block, others), kernel._diagonal(block), kernel._diagonal(others))
        nearest = np.argpartition(D, k - 1, axis=1)[:, :k]
        nearest = np.take_along_axis(nearest, np.take_along_axis(D, nearest, 1).argsort(axis=1, kind="stable"), 1)
        indices.append(nearest)
        distances.append(np.sqrt(np.take_along_axis(D, nearest, 1)))
    return Neighbors(np.concatenate(indices), np.concatenate(distances))


def center(Q: Any) -> Array:
    """HQH with H = I − 11ᵀ/N: the matrix of F(x) − mean.

    Parameters
    ----------
    Q : array (n, n)

    Returns
    -------
    array (n, n)

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.feature_space.center([[1.0, 0.0], [0.0, 1.0]])
    array([[ 0.5, -0.5],
           [-0.5,  0.5]])
    """
    Q = _square(Q)
    return Q - Q.mean(axis=0) - Q.mean(axis=1)[:, None] + Q.mean()


def alignment(Q1: Any, Q2: Any, centered: bool = False) -> float:
    """⟨Q₁, Q₂⟩/(‖Q₁‖‖Q₂‖), the cosine of two kernel matrices (Cristianini et al. 2001; centered: Cortes et al. 2012).

    Parameters
    ----------
    Q1, Q2 : arrays (n, n)
    centered : bool
        Whether both are centered first.

    Returns
    -------
    float in [−1, 1]

    Examples
    --------
    >>> import kernelopt as ko
    >>> round(
    ...     ko.feature_space.alignment([[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]]),
    ...     4,
    ... )
    0.7071
    """
    require_flag(centered, "centered")
    Q1, Q2 = (center(Q) if centered else _square(Q) for Q in (Q1, Q2))
    if Q1.shape != Q2.shape:
        raise DataError(f"Expected kernel matrices of the same rows; got shapes {Q1.shape} and {Q2.shape}.")
    lengths = np.linalg.norm(Q1) * np.linalg.norm(Q2)
    return float(np.sum(Q1 * Q2) / lengths) if lengths > 0 else 0.0


def target_alignment(Q: Any, y: Any, centered: bool = False) -> float:
    """The alignment of Q with yyᵀ, or with YYᵀ for y of shape (N, K): how well the kernel fits targets, before any fit.

    The N×N matrix yyᵀ is not formed.

    Parameters
    ----------
    Q : array (n, n)
    y : array (n,)
    centered : bool
        Whether both are centered first.

    Returns
    -------
    float in [−1, 1]

    Examples
    --------
    >>> import kernelopt as ko
    >>> round(ko.feature_space.target_alignment([[1.0, -1.0], [-1.0, 1.0]], [1, -1]), 12)
    1.0
    """
    require_flag(centered, "centered")
    Q, Y = center(Q) if centered else _square(Q), real_array(y, "y")
    check_finite(Y, "y")
    if Y.ndim not in (1, 2) or len(Y) != len(Q):
        raise DataError(f"Expected y of shape ({len(Q)},) or ({len(Q)}, K); got shape {Y.shape}.")
    Y = Y.reshape(len(Y), -1)
    Y = Y - Y.mean(axis=0) if centered else Y
    lengths = np.linalg.norm(Q) * np.linalg.norm(Y.T @ Y)
    return float(np.sum(Y * (Q @ Y)) / lengths) if lengths > 0 else 0.0


class SVD(NamedTuple):
    """A = Σⱼ σⱼuⱼvⱼᵀ: `values` σⱼ, `left` the uⱼ in columns (N×r), `right` the functions vⱼᵀF(x), r outputs."""

    values: Array
    left: Array
    right: Function


def kernel_svd(kernel: Any, X: Any, rank_tol: float = 1e-12, memory_limit: float | None = None) -> SVD:
    """The singular value decomposition of the data matrix A, from Q = AAᵀ = UΣ²Uᵀ; vⱼ = Aᵀuⱼ/σⱼ.

    Parameters
    ----------
    kernel : Kernel
    X : points (n)
    rank_tol : singular values whose squares sum to less than rank_tol·trace(Q) are left out.
    memory_limit : float, optional
        Bytes that the N×N matrix may take.

    Returns
    -------
    SVD

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> svd = ko.feature_space.kernel_svd(ko.kernels.Linear(), np.diag([3.0, 2.0]))
    >>> svd.values.round(12)
    array([3., 2.])
    """
    kernel = as_kernel(kernel)
    require_number(rank_tol, "rank_tol", "a number from 0 to 1", lambda value: 0 <= value < 1)
    rows = Rows.of_points(kernel, kernel.rows(X))
    factor = factorize("eigen", rows, Settings(rank_tol, None), memory_limit)
    values = np.sqrt(factor.scale) * np.linalg.norm(factor.B, axis=0)
    left = factor.B / np.linalg.norm(factor.B, axis=0)
    return SVD(values, left, Function._of_rows(kernel, rows.points, left / values))


def is_psd(Q: Any, tolerance: float = PSD_TOLERANCE) -> bool:
    """Whether zᵀQz ≥ 0 for all z, up to tolerance·λ_max; for a matrix that is not symmetric, by (Q + Qᵀ)/2.

    Parameters
    ----------
    Q : array (n, n)
    tolerance : float
        Relative to the largest eigenvalue.

    Returns
    -------
    bool

    Examples
    --------
    >>> import kernelopt as ko
    >>> (
    ...     ko.feature_space.is_psd([[1.0, 2.0], [-2.0, 1.0]]),
    ...     ko.feature_space.is_psd([[0.0, 1.0], [1.0, 0.0]]),
    ... )
    (True, False)
    """
    Q = _square(Q)
    _require_tolerance(tolerance)
    eigenvalues = sl.eigvalsh((Q + Q.T) / 2)
    return bool(eigenvalues[0] >= -tolerance * max(eigenvalues[-1], 0.0))


class MatrixChecks(NamedTuple):
    """Necessary conditions of a kernel matrix that need no eigenvalues."""

    symmetric: bool
    diagonal: bool
    cauchy_schwarz: bool


def quick_checks(Q: Any, tolerance: float = PSD_TOLERANCE) -> MatrixChecks:
    """Symmetry, Qᵢᵢ ≥ 0, and |Qᵢⱼ| ≤ √(QᵢᵢQⱼⱼ); relative to the largest entry.

    Parameters
    ----------
    Q : array (n, n)
    tolerance : float
        Relative to the largest entry.

    Returns
    -------
    MatrixChecks

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.feature_space.quick_checks([[1.0, 2.0], [2.0, 1.0]])
    MatrixChecks(symmetric=True, diagonal=True, cauchy_schwarz=False)
    """
    Q = _square(Q)
    _require_tolerance(tolerance)
    slack, d = tolerance * float(np.abs(Q).max()), np.diag(Q)
    root = np.sqrt(d.clip(0.0))
    return MatrixChecks(
        bool(np.abs(Q - Q.T).max() <= slack),
        bool(d.min() >= -slack),
        bool((np.abs(Q) <= np.outer(root, root) + slack).all()),
    )


def rank(Q: Any, tolerance: float = PSD_TOLERANCE) -> int:
    """The number of eigenvalues larger than tolerance·λ_max, which is at most dim F.

    Parameters
    ----------
    Q : array (n, n)
    tolerance : float
        Relative to the largest eigenvalue.

    Returns
    -------
    int

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> ko.feature_space.rank(ko.kernels.Polynomial(degree=2)(X))
    6
    """
    _require_tolerance(tolerance)
    return int(np.linalg.matrix_rank(_square(Q), tol=tolerance * float(np.linalg.norm(_square(Q), 2)), hermitian=True))


def _require_tolerance(tolerance: Any) -> None:
    require_number(tolerance, "tolerance", "a number ≥ 0", lambda value: value >= 0)


def _square(Q: Any) -> Array:
    matrix = real_array(Q, "the kernel matrix")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
        raise DataError(f"Expected a square kernel matrix of shape (N, N); got shape {matrix.shape}.")
    check_finite(matrix, "the kernel matrix")
    return matrix
