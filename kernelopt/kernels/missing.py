"""Kernels of vectors with missing values."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from kernelopt.errors import DataError, KernelError
from kernelopt.kernels.adjoints import pull, refuse_points
from kernelopt.kernels.algebra import all_psd
from kernelopt.kernels.chain import Order
from kernelopt.kernels.domains import GAPPY, SPARSE, VECTORS, Domain, distinct
from kernelopt.kernels.kernel import COMPOSITIONS, Adjoint, Kernel, Verdict, require, require_kernels
from kernelopt.kernels.rounding import FUNCTION, Inexact
from kernelopt.kernels.stationary import Gaussian
from kernelopt.support.arithmetic import gamma
from kernelopt.support.types import Array, Bools


class _OfGappy(Kernel):
    """A kernel of vectors with missing values."""

    kernel: Kernel

    @property
    def domain(self) -> Domain:
        return GAPPY


def _filled(X: Array) -> Array:
    """X with 0 in place of missing values."""
    return np.where(np.isnan(X), 0.0, X)


def _filled_errors(at: Inexact) -> Inexact:
    return at._replace(points=_filled(at.points), error=None if at.error is None else _filled(at.error))


@dataclass(frozen=True)
class MissingLevel(_OfGappy):
    """κ(x, y) = [x and y miss the same columns]·κ₀(x°, y°), where x° has 0 in place of missing values.

    Missing is a value of its own, orthogonal to all others. For a Gaussian it is Πⱼ κⱼ(xⱼ, yⱼ) with
    κⱼ(missing, missing) = 1 and κⱼ(x, missing) = 0: the distance in the columns that are present, among rows that miss
    the same ones. No larger constant κⱼ(x, missing) = m is positive semidefinite for all points x on the line, since
    constants are not in the space of a Gaussian. Rows that miss other columns share nothing; in a sum of kernels of
    single columns they still share the terms of the columns that both have.

    `kernel.with_missing("level")` makes it.

    Parameters
    ----------
    kernel : Kernel of vectors

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> kernel = ko.kernels.Linear().with_missing("level")
    >>> kernel([[1.0, 2.0], [3.0, np.nan], [5.0, np.nan]])
    array([[ 5.,  0.,  0.],
           [ 0.,  9., 15.],
           [ 0., 15., 25.]])
    """

    kernel: Kernel

    def __post_init__(self) -> None:
        require_kernels(self.kernel)
        _require_vectors(self.kernel)

    def _refuse(self, rows: Array) -> None:
        """Nothing: any value may be missing."""

    def _verdict(self) -> Verdict:
        return all_psd((self.kernel,), "[same columns missing] times κ of the others (Schur 1911)")

    @staticmethod
    def _same(X: Array, Z: Array | None) -> Bools:
        """Whether rows miss the same columns, (n, m)."""
        both = np.isnan(X if Z is None else np.concatenate([X, Z]))
        number = distinct(both).inverse
        return np.asarray(number[: len(X), None] == number[0 if Z is None else len(X) :])

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        K = self.kernel._matrix(_filled(X), None if Z is None else _filled(Z))
        K *= self._same(X, Z)
        return K

    def _diagonal(self, X: Array) -> Array:
        return self.kernel._diagonal(_filled(X))

    def _rounding(self, at: Inexact) -> float:
        """The bound of κ₀ at the filled points: products with 0 and 1 are exact."""
        return self.kernel._rounding(_filled_errors(at))

    def _size(self, X: Array, order: Order = ()) -> Array:
        return self.kernel._size(_filled(X))

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """The weights G on pairs that miss the same columns."""
        refuse_points(self, points)
        return pull(self, 1, wanted)(_filled(X), _filled(Z), G * self._same(X, Z))

    def __repr__(self) -> str:
        return f"({self.kernel!r}).with_missing('level')"


@dataclass(frozen=True)
class MissingIgnored(_OfGappy):
    """κ(x, y) = exp(−(d/|P|)·Σ_{j∈P}(xⱼ − yⱼ)²/2σ²), P the columns that both points have, of d in all.

    κ(x, y) = 0 for points without a common column. The distances are those of scikit-learn's `nan_euclidean_distances`.
    They belong to no points of a Euclidean space, and κ need not be positive semidefinite: `is_psd` is None, and each
    data set decides. `kernel.with_missing("ignore")` makes it of a `Gaussian`.

    Parameters
    ----------
    kernel : Gaussian

    Raises
    ------
    DataError
        For points without any value.

    Examples
    --------
    >>> import numpy as np, kernelopt as ko
    >>> kernel = ko.kernels.Gaussian(sigma=1.0).with_missing("ignore")
    >>> kernel([[0.0, 0.0], [1.0, np.nan]]).round(4)  # exp(−(2/1)·1²/2)
    array([[1.    , 0.3679],
           [0.3679, 1.    ]])
    >>> print(kernel.is_psd)
    None
    """

    kernel: Kernel

    def __post_init__(self) -> None:
        require_kernels(self.kernel)
        if self.kernel._kind is not Gaussian:
            raise KernelError(
                f'Expected a Gaussian for .with_missing("ignore"), whose distances leave columns out; got '
                f'{self.kernel!r}. Write Gaussian(sigma=…).with_missing("ignore").ard(scales) for length scales, or '
                '.with_missing("level").'
            )

    def _refuse(self, rows: Array) -> None:
        empty = np.flatnonzero(np.isnan(rows).all(axis=1))
        if len(empty):
            raise DataError(
                f"{self!r} expects a value in some column of each row; got none in {len(empty)} rows, first in row "
                f"{empty[0]}. Drop these rows."
            )

    def _verdict(self) -> Verdict:
        return Verdict(None, "distances over other columns for each pair: decided for each data set")

    @property
    def _sigma(self) -> float:
        present = self.kernel.at_present()
        assert isinstance(present, Gaussian)
        return present.sigma

    def _exponent(self, X: Array, Z: Array) -> Array:
        """(d/|P|)·Σ((xⱼ − zⱼ)/σ)²/2, ∞ without a common column."""
        total, count, sigma = np.zeros((len(X), len(Z))), np.zeros((len(X), len(Z))), self._sigma
        with np.errstate(all="ignore"):  # far points overflow to a distance of ∞
            for x, z in zip(X.T, Z.T, strict=True):
                present = ~np.isnan(x)[:, None] & ~np.isnan(z)
                total += np.where(present, ((x[:, None] - z) / sigma) ** 2, 0.0)
                count += present
            return np.where(count > 0, total * (X.shape[1] / np.maximum(count, 1.0)) / 2, np.inf)

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        return np.exp(-self._exponent(X, X if Z is None else Z))

    def _diagonal(self, X: Array) -> Array:
        return np.ones(len(X))

    def _rounding(self, at: Inexact) -> float:
        """γ_{d+10} + 8u, and √d·‖e‖/σ where points are off by e.

        A relative error ε of the exponent t changes e⁻ᵗ by at most ε. |d/dr exp(−r²/2)| < 1, and r is √(d/|P|) ≤ √d
        times a distance.
        """
        d = at.points.shape[1]
        moved = _filled_errors(at).shift() * sqrt(d) / self._sigma
        return gamma(d + 10) + FUNCTION + moved * (1 + gamma(d + 10))

    def _adjoint(self, X: Array, Z: Array, G: Array, wanted: frozenset[str], points: bool) -> Adjoint:
        """∂κ/∂σ = 2tκ/σ for κ = e⁻ᵗ."""
        refuse_points(self, points)
        if "k1__sigma" not in wanted:
            return Adjoint({})
        t = self._exponent(X, Z)
        slopes = np.where(t < np.inf, 2 * np.where(t < np.inf, t, 0.0) * np.exp(-t), 0.0) / self._sigma
        return Adjoint({"k1__sigma": np.asarray(np.sum(G * slopes))})

    def __repr__(self) -> str:
        return f"({self.kernel!r}).with_missing('ignore')"


def _require_vectors(kernel: Kernel) -> None:
    if kernel.domain not in (VECTORS, SPARSE):
        raise KernelError(
            f"Expected a kernel of vectors for .with_missing; got {kernel!r} on {kernel.domain.name}. Labels have a "
            'level of their own by ko.kernels.Categorical(missing="level"); write .on(names) after .with_missing.'
        )


POLICIES: dict[str, Any] = {"level": MissingLevel, "ignore": MissingIgnored}


def with_missing(kernel: Kernel, policy: str) -> Kernel:
    """The kernel with a policy for missing values. Raises KernelError for another word."""
    require(
        isinstance(policy, str) and policy in POLICIES, "the policy for missing values", '"level" or "ignore"', policy
    )
    _require_vectors(kernel)
    made: Kernel = POLICIES[policy](kernel)
    return made


COMPOSITIONS["missing"] = with_missing
