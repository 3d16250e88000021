"""exp(−D²/β) for distances D."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar, Self

import numpy as np
from scipy.spatial.distance import cdist

from kernelopt.errors import DataError, KernelError
from kernelopt.kernels.adjoints import columnwise, differences, refuse_points, share_entries, signs, total
from kernelopt.kernels.chain import Order
from kernelopt.kernels.domains import (
    ANYTHING,
    HISTOGRAMS,
    VECTORS,
    Domain,
    frozen,
    key,
    name_of,
    real_array,
    refuse_pickling,
)
from kernelopt.kernels.kernel import (
    Adjoint,
    Kernel,
    RealField,
    Verdict,
    require,
    require_positive,
    require_positive_value,
    symmetric,
)
from kernelopt.kernels.rounding import FUNCTION, Inexact, growth, spread
from kernelopt.kernels.tiles import (
    TINY,
    column_sums,
    exp_minus,
    half_square_error,
    half_squared_distances,
    radial,
)
from kernelopt.support.arithmetic import UNIT, gamma
from kernelopt.support.checks import is_function_of_two
from kernelopt.support.types import Array, Bools

# By name: scipy's name (None where the distance is computed here), positive semidefinite by rule, the reason.
DISTANCES = {
    "l1": ("cityblock", None, "the squared ℓ1 distance is not of negative type: decided for each data set"),
    "l2": ("euclidean", True, "exp(−‖x−y‖²/β) (Schoenberg 1938)"),
    "linf": ("chebyshev", None, "the squared ℓ∞ distance is not of negative type: decided for each data set"),
    "chi2": (None, True, "χ² is a sum of terms of negative type (Fowlkes et al. 2004)"),
    "hellinger": (None, True, "a Gaussian kernel of √x"),
    "mahalanobis": (None, True, "a Gaussian kernel of S^½x, S ≻ 0"),
}


@dataclass(frozen=True, eq=False)
class GeneralizedGaussian(Kernel):
    """κ(x, y) = exp(−D(x, y)²/β) for a distance D.

    Positive semidefinite by rule for "l2", "chi2", "hellinger" and "mahalanobis". The squares of "l1", "linf" and of
    metrics in general are not of negative type; definiteness is then decided for each data set.

    Parameters
    ----------
    distance : "l1", "l2", "linf", "chi2", "hellinger", "mahalanobis", or a callable (X, Z) → matrix of distances
        D² = Σⱼ(xⱼ − yⱼ)²/(xⱼ + yⱼ) for "chi2", Σⱼ(√xⱼ − √yⱼ)² for "hellinger" (histograms, entries ≥ 0),
        (x − y)ᵀS(x − y) for "mahalanobis".
    beta : float > 0
    S : matrix, for "mahalanobis"
        Symmetric positive definite.

    Raises
    ------
    KernelError
        For an unknown distance, a beta that is not positive, an S that is not positive definite.

    Examples
    --------
    >>> import kernelopt as ko
    >>> ko.kernels.GeneralizedGaussian("l1", beta=2.0)([[0.0, 0.0]], [[1.0, 1.0]]).round(4)
    array([[0.1353]])
    >>> ko.kernels.GeneralizedGaussian("l1", beta=2.0).is_psd is None
    True
    """

    distance: str | Callable[[Any, Any], Any]
    beta: float = 1.0
    S: Any = None

    _reals: ClassVar = {"beta": RealField()}

    def __post_init__(self) -> None:
        names = ", ".join(DISTANCES)
        known = is_function_of_two(self.distance) or (isinstance(self.distance, str) and self.distance in DISTANCES)
        require(known, "distance", f"one of {names}, or a callable", self.distance)
        require_positive(self, "beta")
        if self.distance == "mahalanobis":
            object.__setattr__(self, "S", positive_definite(self.S))
        else:
            require(self.S is None, "S", "None, except for the distance mahalanobis", self.S)

    @classmethod
    def from_gamma(cls, distance: str | Callable[[Any, Any], Any], gamma: float, S: Any = None) -> Self:
        """exp(−γD²): γ = 1/β."""
        require_positive_value(gamma, "gamma", "beta")
        return cls(distance, 1 / gamma, S)

    @property
    def domain(self) -> Domain:
        if callable(self.distance):
            return ANYTHING
        return HISTOGRAMS if self.distance in ("chi2", "hellinger") else VECTORS

    @property
    def is_stationary(self) -> bool:
        return self.distance in ("l1", "l2", "linf", "mahalanobis")

    @property
    def is_isotropic(self) -> bool:
        return self.distance == "l2"

    def _verdict(self) -> Verdict:
        if callable(self.distance):
            return Verdict(None, "not every metric gives a kernel: decided for each data set")
        return Verdict(*DISTANCES[self.distance][1:])

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        scale = sqrt(self.beta) * sqrt(0.5)
        if self.distance == "l2":
            return radial(X, Z, scale, exp_minus)
        if self.distance == "hellinger":
            return radial(np.sqrt(X), None if Z is None else np.sqrt(Z), scale, exp_minus)
        if self.distance == "mahalanobis":
            return radial(*self._rotated(X, Z), scale, exp_minus)
        K = self._squared(X, Z)
        K /= self.beta
        K = exp_minus(K)
        return symmetric(K, self) if callable(self.distance) and Z is None else K

    def _rotated(self, X: Array, Z: Array | None) -> tuple[Array, Array | None]:
        """(X − c)L and (Z − c)L with S = LLᵀ and c the median: points far from 0 keep their differences."""
        if X.shape[1] != len(self.S):
            raise DataError(f"Expected points with {len(self.S)} columns, as S has; got shape {X.shape}.")
        L, centre = np.linalg.cholesky(self.S), np.median(X if Z is None else Z, axis=0)
        return (X - centre) @ L, None if Z is None else (Z - centre) @ L

    def _squared(self, X: Array, Z: Array | None) -> Array:
        """D(xᵢ, zⱼ)²."""
        other = X if Z is None else Z
        if callable(self.distance):
            D = real_array(self.distance(X, other), f"the distances of {self!r}")
            if D.shape != (len(X), len(other)):
                raise KernelError(
                    f"Expected {name_of(self.distance)}(X, Z) of shape {(len(X), len(other))}; got {D.shape}."
                )
            return D**2
        if self.distance == "chi2":
            return column_sums(X, Z, chi_squared)
        D = cdist(X, other, str(DISTANCES[self.distance][0]))
        return np.square(D, out=D)

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """With t = D²/β and M = G∘e⁻ᵗ: ΣM∘t/β, and the weights −M/β on D², for points."""
        refuse_points(self, points and (callable(self.distance) or self.distance == "linf"))
        scale = sqrt(self.beta) * sqrt(0.5)
        P, R = self._mapped(X, Z)
        euclidean = self.distance in ("l2", "hellinger", "mahalanobis")
        t = half_squared_distances(P, R, scale) if euclidean else self._squared(X, Z) / self.beta
        t = np.minimum(t, 1e300)
        M = G * np.exp(-t)
        fields = {"beta": total(M, t) / self.beta} if "beta" in wanted else {}
        if not points:
            return Adjoint(fields)
        M /= -self.beta
        if self.distance == "chi2":
            return Adjoint(fields, *columnwise(M, X, Z, _chi_squared_slopes))
        if self.distance == "l1":
            return Adjoint(fields, *columnwise(2 * M * np.sqrt(t) * sqrt(self.beta), X, Z, signs))
        left, right = (2 * g for g in differences(M, P, R, scale))
        return Adjoint(fields, self._mapped_back(left, P), self._mapped_back(right, R))

    def _kinks(self, X: Array, Z: Array) -> Bools | None:
        """Of ‖x − z‖₁², where some columns are equal and others are not."""
        return share_entries(X, Z) & (cdist(X, Z, "chebyshev") > 0) if self.distance == "l1" else None

    def _mapped(self, X: Array, Z: Array) -> tuple[Array, Array]:
        """The points whose Euclidean distance D is, for Hellinger's and Mahalanobis' distances."""
        if self.distance == "hellinger":
            return np.sqrt(X), np.sqrt(Z)
        if self.distance == "mahalanobis":
            P, R = self._rotated(X, Z)
            assert R is not None
            return P, R
        return X, Z

    def _mapped_back(self, gradient: Array, P: Array) -> Array:
        """The gradient to x from that to the mapped points; 0 where √x has no derivative."""
        if self.distance == "hellinger":
            return np.divide(gradient, 2 * P, out=np.zeros_like(P), where=P > 0)
        return gradient @ np.linalg.cholesky(self.S).T if self.distance == "mahalanobis" else gradient

    def _diagonal(self, X: Array) -> Array:
        if callable(self.distance):
            return np.concatenate([np.diag(self._matrix(X[i : i + 1], None)) for i in range(len(X))])
        return np.ones(len(X))

    def _size(self, X: Array, order: Order = ()) -> Array:
        return np.ones(len(X))

    def _rounding(self, at: Inexact) -> float:
        """8u from exp, γ_{2d+20} from the relative error of t = D²/β, as te⁻ᵗ < 1, and `_exponent_error`."""
        if callable(self.distance):
            return gamma(8) + FUNCTION
        return min(gamma(2 * at.points.shape[1] + 20) + FUNCTION + self._exponent_error(at), 1.0)

    def _exponent_error(self, at: Inexact) -> float:
        """The absolute errors of D²/β and of t = D/√β that come on top; κ gets no more, as |d e^{−t²}/dt| < 1."""
        root, X = sqrt(self.beta), at.points
        if self.distance in ("l1", "linf"):
            return at.shift(1) / root
        if self.distance == "chi2":
            # (a − b)² underflows where |a − b| < 2⁻⁵¹¹, which bounds the lost term; |∂/∂a (a − b)²/(a + b)| ≤ 3.
            lost = X.shape[1] * 2.0**-510
            return (lost + 3 * at.shift(1)) / self.beta
        scale = root * sqrt(0.5)
        if self.distance == "l2":
            return growth(half_square_error(X, scale)) + at.shift() / scale
        if self.distance == "hellinger":
            Y = np.sqrt(X)
            off = UNIT * Y
            if at.error is not None:
                off = off + np.divide(at.error, Y, out=np.sqrt(at.error), where=Y > 0)
            return growth(half_square_error(Y, scale)) + Inexact(Y, off).shift() / scale
        return self._mahalanobis_error(at, scale)

    def _mahalanobis_error(self, at: Inexact, scale: float) -> float:
        """LLᵀ = S up to γ_{d+1}|L||L|ᵀ, which changes D² by at most γ_{d+1}(‖L‖‖L⁻¹‖)² of itself.

        The error of (x − c)L is γ_{d+2}|x − c||L|.
        """
        X, d = at.points, at.points.shape[1]
        L, (Y, _) = np.linalg.cholesky(self.S), self._rotated(X, None)
        off = gamma(d + 4) * spread(X) + (0.0 if at.error is None else at.error)
        condition = float(np.linalg.norm(L) * np.linalg.norm(np.linalg.inv(L))) * 1.01  # for rounding
        shifted = Inexact(Y, off @ np.abs(L)).shift() / scale
        return growth(half_square_error(Y, scale)) + shifted + gamma(d + 2) * condition**2

    def _name(self) -> object:
        return self.distance, self.beta, None if self.S is None else key(self.S)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GeneralizedGaussian) and self._name() == other._name()

    def __hash__(self) -> int:
        return hash(self._name())

    def __getstate__(self) -> dict[str, Any]:
        return refuse_pickling(self, self.distance)

    def __repr__(self) -> str:
        distance = name_of(self.distance) if callable(self.distance) else repr(self.distance)
        return (
            f"GeneralizedGaussian({distance}, beta={self.beta!r}{'' if self.S is None else f', S={self.S.tolist()}'})"
        )


def positive_definite(S: Any) -> Array:
    """S as a read-only symmetric matrix with positive eigenvalues. Raises KernelError."""
    require(S is not None, "S", "a symmetric positive definite matrix", S)
    matrix = real_array(S, "S")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size or not np.isfinite(matrix).all():
        raise KernelError(f"Expected S to be a square matrix of finite numbers; got shape {matrix.shape}.")
    if np.abs(matrix - matrix.T).max() > 1e-12 * np.abs(matrix).max():
        raise KernelError("Expected S to be symmetric positive definite; it is not symmetric.")
    eigenvalues = np.linalg.eigvalsh((matrix + matrix.T) / 2)
    if eigenvalues[0] <= 0:
        raise KernelError(
            f"Expected S to be symmetric positive definite; its smallest eigenvalue is {eigenvalues[0]:.3g}."
        )
    return frozen((matrix + matrix.T) / 2)


def _chi_squared_slopes(a: Array, b: Array) -> tuple[Array, Array]:
    """∂ₐ(a − b)²/(a + b) = q(2 − q) with q = (a − b)/(a + b), and ∂_b = −q(2 + q)."""
    q = (a - b) / (a + (b + TINY))
    return q * (2 - q), -q * (2 + q)


def chi_squared(a: Array, b: Array, buffer: Array) -> Array:
    """(a − b)²/(a + b), 0 where a = b = 0."""
    np.subtract(a, b, out=buffer)
    buffer *= buffer
    buffer /= a + (b + TINY)
    return buffer
