"""Kernel principal component analysis, by the spectral form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import cvxpy as cp
import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.preprocessing import KernelCenterer
from sklearn.utils.validation import check_is_fitted

from kernelopt.errors import OptionError
from kernelopt.estimators import keywords
from kernelopt.estimators.model import KernelModel, side_by_side, solved, take
from kernelopt.estimators.regression import KernelRegressor
from kernelopt.estimators.sample import every_row
from kernelopt.kernels import Precomputed
from kernelopt.kernels.sparse_rows import is_sparse, width
from kernelopt.language.expressions import FeatureMatrix, Theta, norm
from kernelopt.language.functions import Function
from kernelopt.problem import Problem
from kernelopt.support.checks import is_integer, require_flag
from kernelopt.support.types import Array

# The default of rank_tol, the trace that the factor may omit relative to trace(Q). Eigenvalues and scores should have
# all digits that kernel values allow, so it is little above rounding. A larger value would give a smaller rank.
RANK_TOL = 1e-13
ROUNDING = 1e-12  # eigenvalues below this share of the largest are rounding


class KernelPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelModel):
    """Principal components: maximize ‖Aθₖ‖² with ‖θₖ‖ ≤ 1 and (Aθⱼ)ᵀAθₖ = 0 for j < k, for k = 1, 2, ….

    Scores are θₖᵀF(x), with F centered over the training rows unless `center=False`. Up to the sign they equal those of
    scikit-learn's `KernelPCA`; here the first of the training scores with the largest absolute value is positive. Each
    component takes one decomposition, so this is meant for the first few.

    Parameters
    ----------
    n_components : int ≥ 1, or None
        At most the number of training rows. None means all components whose eigenvalue is above rounding.
    kernel, gamma, degree, coef0 : as in `KernelRegressor`
    center : bool
        Whether the mean of F over the training rows is subtracted.
    fit_inverse_transform : bool
        Whether `inverse_transform` is learned: kernel ridge regression of X on the scores, with the same kernel.
    alpha : float > 0
        The coefficient of ‖θ‖² in that regression.
    tol, solve_options : as in `KernelRegressor`

    Attributes
    ----------
    eigenvalues_ : ‖Aθₖ‖², decreasing, the eigenvalues of the (centered) kernel matrix, (n_components,)
    function_ : the components, a `ko.Function` with an output for each; None for kernel="precomputed"
    pivots_, coefficients_ : as in `KernelRegressor`, of the centered kernel
    certificate_ : for each component how close it is to the optimum
    n_features_in_, feature_names_in_ : as in scikit-learn

    Raises
    ------
    ValueError
        For invalid parameters and data.

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> model = ko.estimators.KernelPCA(n_components=2).fit(X)
    >>> scores = model.transform(X)
    >>> scores.shape, bool(np.allclose((scores**2).sum(axis=0), model.eigenvalues_))
    ((40, 2), True)
    >>> model.get_feature_names_out().tolist()
    ['kernelpca0', 'kernelpca1']
    """

    _instead_of: ClassVar[Mapping[str, str]] = keywords.PCA

    def __init__(
        self, n_components: int | None = 2, *, kernel: Any = "rbf", gamma: Any = "scale", degree: int = 3,
        coef0: float = 1.0, center: bool = True, fit_inverse_transform: bool = False, alpha: float = 1.0,
        tol: float = 1e-6, solve_options: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.center = center
        self.fit_inverse_transform = fit_inverse_transform
        self.alpha = alpha
        self.tol = tol
        self.solve_options = solve_options

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to points X (n, columns), or kernel values (n, n); y is ignored."""
        if self.n_components is not None and (not is_integer(self.n_components) or self.n_components < 1):
            raise OptionError(f"Expected n_components to be an integer ≥ 1 or None; got {self.n_components!r}.")
        require_flag(self.fit_inverse_transform, "fit_inverse_transform")
        if self.fit_inverse_transform and self._is_precomputed:
            raise OptionError("Expected a kernel of points for fit_inverse_transform; got 'precomputed'.")
        X = self._read(X)
        if self.fit_inverse_transform and is_sparse(X):
            raise OptionError(
                f"Expected an array for fit_inverse_transform, which predicts all columns of X; got a sparse matrix of "
                f"{width(X)} columns. Write X.toarray(), of the columns that matter."
            )
        kernel, points = self._points(X, every_row(X))
        of_points = kernel
        if self._is_precomputed and self.center:
            self._centerer = KernelCenterer().fit(X)
            centered = self._centerer.transform(X)
            # Rounding makes the centered matrix slightly asymmetric.
            kernel = Precomputed((centered + centered.T) / 2)
        elif self.center:
            kernel = kernel.centered(points)
        theta = Theta(kernel)
        count = len(X) if self.n_components is None else min(self.n_components, len(X))
        components = self._deflated(FeatureMatrix(points, kernel), theta, count)
        self.certificate_, values, functions = (list(column) for column in zip(*components, strict=True))
        self.eigenvalues_ = np.array(values)
        self.pivots_, self.coefficients_ = side_by_side(functions)
        self.function_ = None
        if not self._is_precomputed:
            self.function_ = Function(kernel, take(points, self.pivots_), self.coefficients_)
        self._inverse = self._fit_inverse(of_points, X) if self.fit_inverse_transform else None
        return self

    def _stronger(self) -> str | None:
        return None  # components are not penalized

    def _fit_inverse(self, kernel: Any, X: Array) -> Any:
        """The regression of X on the scores."""
        ridge = KernelRegressor(alpha=self.alpha, kernel=kernel, fit_intercept=False, tol=self.tol)
        return ridge.fit(self.transform(X), X)

    def inverse_transform(self, X: Any) -> Array:
        """Points whose scores are about X (n, n_components): (n, columns). It needs fit_inverse_transform=True."""
        check_is_fitted(self)
        if self._inverse is None:
            raise OptionError("Expected KernelPCA(fit_inverse_transform=True), which learns the way back; got False.")
        found: Array = self._inverse.predict(X)
        return found.reshape(len(found), -1)

    def _deflated(self, A: FeatureMatrix, theta: Theta, count: int) -> list[tuple[Any, float, Any]]:
        """(certificate, eigenvalue, θ) of each component.

        The first rows of U are the scores of earlier components, the others zero, so that one problem serves all.
        """
        U = cp.Parameter((count, len(A)), value=np.zeros((count, len(A))))
        problem = Problem(cp.Maximize(cp.sum_squares(A @ theta)), [norm(theta) <= 1, U @ (A @ theta) == 0])
        found: list[tuple[Any, float, Any]] = []
        for k in range(count):
            certificate = solved(self, problem, tol=self.tol, rank_tol=RANK_TOL)
            if self.n_components is None and found and float(np.asarray(problem.value)) <= ROUNDING * found[0][1]:
                break
            found.append((certificate, float(np.asarray(problem.value)), theta.value))
            rows = np.array(U.value)
            rows[k] = (A @ theta).value
            U.value = rows
        return found

    def transform(self, X: Any) -> Array:
        """The scores θₖᵀF(x) of points X, or from their kernel values with the training points: (n, n_components)."""
        check_is_fitted(self)
        X = self._read(X, reset=False)
        if self.function_ is not None:
            return self.function_(X)
        return (self._centerer.transform(X) if self.center else X)[:, self.pivots_] @ self.coefficients_

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)
