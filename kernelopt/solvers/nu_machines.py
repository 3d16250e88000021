"""Support vector machines whose coefficients have a given sum, among problems that split, known by their kinks alone.

For slopes c of the functions, ½cᵀKc + (their conjugates) is minimized over Fᵀc = −(costs of y), where one column has a
cost. After division of each row by its entry of the other column of F, or of the only one, with heights J that may
differ and signs ℓ of the slopes, these are

    one kink per row, at 0, one column:              min ½αᵀKα,          0 ≤ α ≤ J, 1ᵀα = T            (one-class);
    one kink per row, at 0, the column ±ℓ:           min ½αᵀ(ℓℓᵀ∘K)α,    0 ≤ α ≤ J, ℓᵀα = 0, 1ᵀα = T   (ν-SVC);
    pairs of rows with kinks at y, the column ±ℓ:    min ½βᵀKβ + yᵀβ,    |β| ≤ J, 1ᵀβ = 0, ‖β‖₁ = T    (ν-SVR)

(Schölkopf, Smola, Williamson and Bartlett, Neural Computation 12, 2000; Schölkopf et al., Neural Computation 13, 2001).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import scipy.sparse as sp

from kernelopt.compiler.terms import Kinks
from kernelopt.solvers.machines import MOST, SAME
from kernelopt.support.types import Array, Ints


class NuForm(IntEnum):
    """The numbers that libsvm gives to these problems."""

    SVC = 1
    ONE_CLASS = 2
    SVR = 4


@dataclass(frozen=True, eq=False)
class NuMachine:
    """Rows with their signs ℓ and heights J > 0, the sum T of all |c|, and targets y of a ν-SVR.

    column : of F, by whose entries rows are divided; second : of a ν-SVR, the rows with ℓ = −1 that belong to `rows`
    """

    form: NuForm
    column: int
    rows: Ints
    second: Ints
    sign: Array
    height: Array
    total: float
    y: Array

    @property
    def nu(self) -> float:
        """T relative to the largest possible sum."""
        return min(self.total / float(self.height.sum()), 1.0)


def nu_machine_of(kinks: Kinks, slope: Array, F: Array | sp.sparray, linear_y: Array) -> NuMachine | None:
    """libsvm's problem for these functions and costs of y; None where it has none."""
    (m, q), costs = F.shape, np.flatnonzero(linear_y)
    if len(costs) != 1 or not 1 <= q <= 2 or not 0 < m <= MOST or not np.array_equal(kinks.of, np.arange(m)):
        return None
    if kinks.rho.any() or kinks.low.any() or not np.isfinite(kinks.high).all():
        return None
    dense, paid = F.toarray() if isinstance(F, sp.sparray) else np.asarray(F), int(costs[0])
    column = (1 - paid) % q
    f = dense[:, column]
    if not f.all():
        return None
    ends = np.stack([slope, slope + kinks.high]) * f
    low, high = ends.min(axis=0), ends.max(axis=0)
    sign, height, y = np.where(high > 0, 1.0, -1.0), high - low, kinks.anchor / f
    one_sided = not np.where(sign > 0, low, high).any() and height.all()
    kappa = dense[:, paid] / f * sign
    if not one_sided or np.ptp(kappa) > SAME * abs(kappa[0]) or not kappa[0]:
        return None
    total, rows = -float(linear_y[paid] / kappa[0]), np.arange(m)
    if not 0 < total <= float(height.sum()):
        return None
    if not y.any():
        form = NuForm.SVC if q > 1 else NuForm.ONE_CLASS
        return NuMachine(form, column, rows, rows[:0], sign, height, total, y)
    first, second = rows[sign > 0], rows[sign < 0]
    paired = q > 1 and np.array_equal(y[first], y[second])
    if not paired or np.any(np.abs(height[first] - height[second]) > SAME * height[first]):
        return None
    return NuMachine(NuForm.SVR, column, first, second, sign[first], height[first], total, y[first])
