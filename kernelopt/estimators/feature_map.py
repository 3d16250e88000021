"""A finite feature map of a kernel, as a scikit-learn transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from kernelopt.errors import OptionError
from kernelopt.estimators import keywords
from kernelopt.estimators.kernel_names import NamesKernel, made
from kernelopt.estimators.model import dense, is_matrix, read_objects, read_table
from kernelopt.estimators.sample import explained
from kernelopt.factorization import Settings, factorize
from kernelopt.kernels import as_kernel
from kernelopt.kernels.domains import GAPPY, FrameRows
from kernelopt.kernels.sources import refuse_masked
from kernelopt.language.functions import Function
from kernelopt.language.rows import Rows
from kernelopt.support.checks import is_integer, require_number, shown
from kernelopt.support.types import Array

METHODS = ("cholesky", "streamed", "eigen")


class FeatureMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, NamesKernel):
    """A finite feature map for any kernel: F(x) = B†k(x), with Q = BBᵀ on the training points.

    For training points F(x)ᵀF(z) = κ(x, z) up to the residual of the factor, and exactly at full rank. For other points
    it is the inner product of their projections onto the span of the r functions. With `method="cholesky"`
    F(x) = L⁻¹k_S(x) costs r kernel values per point, with "eigen" N.

    Parameters
    ----------
    kernel, gamma, degree, coef0 : as in `KernelRegressor`, except "precomputed"
    rank_tol, max_rank : as in `Problem.solve`
    method : "cholesky", "streamed" or "eigen", as `factorization` in `Problem.solve`

    Attributes
    ----------
    map_ : the r functions, a `ko.Function` with r outputs
    rank_ : r

    Raises
    ------
    ValueError
        For invalid parameters and data (OptionError, DataError).

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> from kernelopt.estimators import FeatureMap
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> F = FeatureMap(ko.kernels.Polynomial(degree=2)).fit_transform(X)
    >>> F.shape, bool(np.abs(F @ F.T - ko.kernels.Polynomial(degree=2)(X)).max() < 1e-10)
    ((30, 6), True)
    """

    _instead_of: ClassVar[Mapping[str, str]] = keywords.FEATURE_MAP

    def __init__(
        self, kernel: Any = "rbf", *, gamma: Any = "scale", degree: int = 3, coef0: float = 1.0, rank_tol: float = 1e-8,
        max_rank: int | None = None, method: str = "cholesky",
    ) -> None:  # fmt: skip
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.rank_tol = rank_tol
        self.max_rank = max_rank
        self.method = method

    def fit(self, X: Any, y: Any = None) -> Self:
        """Factor the kernel matrix of X."""
        if not isinstance(self.method, str) or self.method not in METHODS:
            raise OptionError(f"Expected method to be one of {', '.join(METHODS)}; got {self.method!r}.")
        if self._is_precomputed:
            raise OptionError("Expected a kernel of points; got 'precomputed', which has none to map.")
        require_number(self.rank_tol, "rank_tol", "a number between 0 and 1", lambda value: 0 < value < 1)
        if self.max_rank is not None and not (is_integer(self.max_rank) and self.max_rank >= 1):
            raise OptionError(f"Expected max_rank to be an integer ≥ 1, or None; got {shown(self.max_rank)}.")
        X = self._read(X, True)
        kernel = self._chosen_kernel(X, np.ones(len(X)))
        rows = Rows.of_points(kernel, kernel.rows(X))
        factor = factorize(self.method, rows, Settings(self.rank_tol, self.max_rank))
        # v = √scale·w for a θ with coordinates w: unit vectors w give the r orthonormal functions.
        coefficients = factor.coefficients(np.sqrt(factor.scale) * np.eye(factor.rank))
        self.map_ = Function._of_rows(kernel, rows.points[factor.pivots], coefficients)
        self.rank_ = factor.rank
        return self

    @property
    def _n_features_out(self) -> int:
        return self.rank_

    def transform(self, X: Any) -> Array:
        """F(xᵢ)ᵀ in rows, shape (len(X), r)."""
        check_is_fitted(self)
        return self.map_(self._read(X, False))

    def _read(self, X: Any, reset: bool) -> Any:
        """A matrix of numbers, or a list of the points of kernels that take others."""
        kernel = None if isinstance(self.kernel, str) else made(self.kernel)
        if kernel is not None and isinstance(kernel.domain, FrameRows):
            return read_table(self, X, "no_validation", reset, kernel)
        refuse_masked(X, "X")
        if not self._needs_matrix and not is_matrix(X):
            return read_objects(self, X, "no_validation", reset, as_kernel(self.kernel).domain)
        gappy = kernel is not None and kernel.domain is GAPPY
        with explained("X"):
            finite = "allow-nan" if gappy else True
            return dense(
                validate_data(self, X, dtype=np.float64, accept_sparse="csr", reset=reset, ensure_all_finite=finite)
            )
