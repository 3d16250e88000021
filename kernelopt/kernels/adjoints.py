"""Derivatives of kernel matrices by the kernels' parameters, in reverse: weights of entries go down, derivatives up."""

from __future__ import annotations

import cvxpy as cp
import numpy as np

from kernelopt.kernels.kernel import Kernel, PointSlopes
from kernelopt.support import clock
from kernelopt.support.types import Array

BLOCK = 1024  # rows and columns of kernel values at a time, 8 MB


class Pull:
    """Collects the derivative of Σ Gᵢⱼκ(xᵢ, zⱼ) by parameters, over calls for several parts and blocks."""

    def __init__(self) -> None:
        self.total: dict[cp.Parameter, Array] = {}

    def __call__(self, kernel: Kernel, X: Array, Z: Array, G: Array, points: bool = False) -> PointSlopes:
        """Add the derivative by parameters of a kernel, for weights G; with `points` return that by X and by Z."""
        if not points and not kernel.parameters():
            return None
        own, of_points = kernel._adjoint(X, Z, G, self, points)
        for name, value in own.items():
            if isinstance(name, cp.Parameter):
                old = self.total.get(name, np.zeros(name.shape))
                self.total[name] = old + np.reshape(np.asarray(value, dtype=float), name.shape)
        return of_points

    def products(self, kernel: Kernel, X: Array, Z: Array, L: Array, R: Array) -> None:
        """The same for G = LRᵀ, in blocks."""
        for i in range(0, len(X), BLOCK):
            clock.check()
            for j in range(0, len(Z), BLOCK):
                rows, columns = slice(i, i + BLOCK), slice(j, j + BLOCK)
                self(kernel, X[rows], Z[columns], L[rows] @ R[columns].T)

    def diagonal(self, kernel: Kernel, X: Array, g: Array, points: bool = False) -> Array | None:
        """The same for Σ gᵢκ(xᵢ, xᵢ); with `points` the derivative by X."""
        if not points and not kernel.parameters():
            return None
        found = np.zeros(X.shape) if points else None
        for i in range(0, len(X), 32):
            rows = slice(i, i + 32)
            both = self(kernel, X[rows], X[rows], np.diag(g[rows]), points)
            if found is not None and both is not None:
                found[rows] = both[0] + both[1]
        return found


def kernel_gradient(kernel: Kernel, X: Array, Z: Array, L: Array, R: Array) -> dict[cp.Parameter, Array]:
    """The gradient of Σ (LRᵀ)ᵢⱼ κ(xᵢ, zⱼ) by each parameter of the kernel, in its shape.

    X (n, …) and Z (m, …) are canonical rows, L (n, K) and R (m, K). It takes O(block²) memory, and for all length
    scales of a kernel about the time of two passes over kernel values: with weights M = G∘κ′(ρ) on the entries,

        Σ Mᵢⱼ(xᵢₐ − zⱼₐ)² = Σ rᵢxᵢₐ² + Σ cⱼzⱼₐ² − 2(XᵀMZ)ₐₐ,   r, c the row and column sums of M.

    Raises KernelError for a kernel without a rule, `_adjoint`.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> from kernelopt.kernels.adjoints import kernel_gradient
    >>> sigma = cp.Parameter(pos=True, value=2.0)
    >>> one = np.ones((1, 1))  # ∂/∂σ e^(−1/2σ²) = e^(−1/2σ²)/σ³
    >>> found = kernel_gradient(ko.kernels.Gaussian(sigma=sigma), 0 * one, one, one, one)
    >>> float(found[sigma].round(4)), float((np.exp(-1 / 8) / 8).round(4))
    (0.1103, 0.1103)
    """
    pull = Pull()
    pull.products(kernel, X, Z, L, R)
    return {p: pull.total.get(p, np.zeros(p.shape)) for p in kernel.parameters()}
