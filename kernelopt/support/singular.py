"""Singular values with a bound on their error, which is computed and not taken from the library's documentation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernelopt.support.arithmetic import euclidean, gamma
from kernelopt.support.types import Array


class SingularValues(NamedTuple):
    """Singular values σ̂ with |σᵢ − σ̂ᵢ| ≤ relative·σ̂ᵢ + absolute, and Σ|σᵢ − σ̂ᵢ| ≤ relative·Σσ̂ᵢ + √k·absolute."""

    values: Array
    relative: float
    absolute: float

    @property
    def error_of_sum(self) -> float:
        """A bound on the error of Σσᵢ."""
        return self.relative * float(self.values.sum()) + float(np.sqrt(len(self.values))) * self.absolute


def singular_values(V: Array) -> SingularValues:
    """The singular values of V (m, k), with bounds from the residuals of its decomposition V ≈ UΣWᵀ.

    With ‖UᵀU − I‖ ≤ α and ‖WᵀW − I‖ ≤ β those of UΣWᵀ are between σ̂ᵢ√((1 − α)(1 − β)) and σ̂ᵢ√((1 + α)(1 + β)), within
    (1 ± (α + β))σ̂ᵢ (Ostrowski). Those of V differ from these by at most ‖V − UΣWᵀ‖ each (Weyl), in the sum by at most
    √k‖V − UΣWᵀ‖; see Rump, Verified bounds for singular values (BIT 51, 2011).
    """
    if not V.size:
        return SingularValues(np.zeros(0), 0.0, 0.0)
    # In a unit in which no product of entries over- or underflows; a power of 2 multiplies exactly.
    exponent = int(np.frexp(np.abs(V).max())[1])
    scaled = np.ldexp(V, -exponent)
    U, values, Wt = np.linalg.svd(scaled, full_matrices=False)
    left = scaled - (U * values) @ Wt
    left = np.abs(left) + gamma(len(values) + 4) * (np.abs(scaled) + (np.abs(U) * values) @ np.abs(Wt))
    alpha, beta = _departure(U), _departure(Wt.T)
    absolute = float(np.ldexp(euclidean(left) * (1 + gamma(left.size + 8)), exponent))
    return SingularValues(np.ldexp(values, exponent), alpha + beta if max(alpha, beta) < 1 else np.inf, absolute)


def _departure(U: Array) -> float:
    """A bound on ‖UᵀU − I‖, rounding included."""
    size, one = np.abs(U), np.eye(U.shape[1])
    return euclidean(np.abs(U.T @ U - one) + gamma(len(U) + 4) * (size.T @ size + one)) * (1 + gamma(one.size + 8))
