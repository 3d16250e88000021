"""The Gaussian kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelopt.kernels.base import Kernel, is_number, require
from kernelopt.kernels.domains import Array


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

    Points are centred first: the cancellation in ½‖x‖² + ½‖z‖² − xᵀz then costs digits of the
    data's spread, not of its distance from the origin.
    """
    centre = X.mean(axis=0) if Z is None else Z.mean(axis=0)
    X = (X - centre) / scale
    Z_ = X if Z is None else (Z - centre) / scale
    D = X @ Z_.T
    np.negative(D, out=D)
    D += 0.5 * np.einsum("ij,ij->i", X, X)[:, None]
    D += 0.5 * np.einsum("ij,ij->i", Z_, Z_)
    np.maximum(D, 0.0, out=D)
    if Z is None:
        np.fill_diagonal(D, 0.0)
    return D
