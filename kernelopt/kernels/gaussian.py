"""The Gaussian kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from kernelopt.kernels.base import Kernel, is_number, require
from kernelopt.kernels.domains import Array

FAR = 300.0  # scales from the median; beyond, an error of 1e-16·FAR² ≈ 1e-11 would be passed


@dataclass(frozen=True)
class Gaussian(Kernel):
    """κ(x, y) = exp(−‖x − y‖² / (2σ²)), with infinitely many features.

    Parameters
    ----------
    sigma : float > 0
        Length scale, in the units of x. scikit-learn's gamma is 1/(2σ²).

    Raises
    ------
    KernelError
        For a sigma that is not a positive number.

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.kernels.Gaussian(sigma=1.0)([[0.0], [1.0]]).round(4)
    array([[1.    , 0.6065],
           [0.6065, 1.    ]])
    """

    sigma: float

    def __post_init__(self) -> None:
        require(is_number(self.sigma) and self.sigma > 0, "sigma", "a number > 0", self.sigma)

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        K = half_squared_distances(X, Z, self.sigma)
        np.negative(K, out=K)
        return np.exp(K, out=K)

    def _diagonal(self, X: Array) -> Array:
        return np.ones(len(X))


def half_squared_distances(X: Array, Z: Array | None, scale: float) -> Array:
    """‖xᵢ − zⱼ‖² / (2·scale²) by one matrix product, in one array.

    ½‖x‖² + ½‖z‖² − xᵀz cancels to an error of about 1e-16·(‖x‖² + ‖z‖²). Points are therefore taken from their
    median, and the rows of those that are still more than `FAR` scales away are computed directly.
    """
    centre = np.median(X if Z is None else Z, axis=0)
    X = (X - centre) / scale
    Z_ = X if Z is None else (Z - centre) / scale
    x, z = 0.5 * np.einsum("ij,ij->i", X, X), 0.5 * np.einsum("ij,ij->i", Z_, Z_)
    D = X @ Z_.T
    np.negative(D, out=D)
    D += x[:, None]
    D += z
    np.maximum(D, 0.0, out=D)
    far_x, far_z = x > 0.5 * FAR**2, z > 0.5 * FAR**2
    if far_x.any():
        D[far_x] = 0.5 * cdist(X[far_x], Z_, "sqeuclidean")
    if far_z.any():
        D[:, far_z] = 0.5 * cdist(X, Z_[far_z], "sqeuclidean")
    if Z is None:
        np.fill_diagonal(D, 0.0)
    return D
