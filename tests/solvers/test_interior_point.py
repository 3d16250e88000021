"""Central multipliers, from which the interior point starts."""

import numpy as np
import pytest

from kernelopt.solvers.interior_point import _central


@pytest.mark.parametrize("rho", [0.0, 0.7])
@pytest.mark.parametrize(("low", "high"), [(0.0, 2.0), (0.0, np.inf), (-np.inf, 1.0), (-np.inf, 50.0), (50.0, np.inf)])
def test_central_multipliers_balance_both_ends(low, high, rho):
    """k − ρa + μ/(a − low) − μ/(high − a) = 0 inside of the box."""
    mu, k = 0.1, np.array([-2.0, -0.3, 0.4, 3.0])
    if rho == 0:  # else a is bounded by `most` alone
        k = np.where(np.isfinite(high), np.where(np.isfinite(low), k, np.abs(k)), -np.abs(k))
    a = _central(k, np.full(4, low), np.full(4, high), np.full(4, rho), mu, np.full(4, 10.0))
    assert np.all((low < a) & (a < high))
    assert k - rho * a + mu / (a - low) - mu / (high - a) == pytest.approx(0.0, abs=1e-8)


def test_multipliers_without_an_end_stay_near_the_other():
    a = _central(np.zeros(1), np.zeros(1), np.full(1, np.inf), np.zeros(1), 0.1, np.full(1, 10.0))
    assert a == pytest.approx(10.0)
