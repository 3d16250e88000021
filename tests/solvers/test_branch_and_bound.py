"""Branch and bound on relaxations that are known in closed form, beside enumeration."""

import itertools

import numpy as np
import pytest

from kernelopt.results.solution import Status
from kernelopt.solvers.branch_and_bound import Relaxed, search
from kernelopt.support.clock import OutOfTimeError

BOX = np.array([-2.0, -2.0, -2.0]), np.array([2.0, 2.0, 2.0])


def distance(center, seen=None, most=np.inf):
    """Relaxations of min Σ(zᵢ − cᵢ)², whose point is c moved into the box."""

    def relaxed(low, high):
        if seen is not None:
            seen.append((low, high))
            if len(seen) > most:
                raise OutOfTimeError
        z = np.clip(center, low, high)
        value = float(np.sum((z - center) ** 2))
        return Relaxed(Status.OPTIMAL, z, value, value, kept=z)

    return relaxed


def budget(values, weights, most):
    """Relaxations of min −vᵀz with wᵀz ≤ most, 0 ≤ z ≤ 1: a knapsack, filled by value for weight."""

    def relaxed(low, high):
        z, left = low.copy(), most - weights @ low
        if left < 0:
            return Relaxed(Status.INFEASIBLE)
        for i in np.argsort(-values / weights):
            z[i] += min(high[i] - low[i], left / weights[i])
            left -= (z[i] - low[i]) * weights[i]
        return Relaxed(Status.OPTIMAL, z, float(-values @ z), float(-values @ z), kept=z)

    return relaxed


def nothing_left(value):
    return 0.0


@pytest.mark.parametrize("seed", range(5))
def test_knapsacks(seed):
    rng = np.random.default_rng(seed)
    values, weights = rng.uniform(1, 5, 8), rng.uniform(1, 4, 8)
    found = search(budget(values, weights, 9.0), np.zeros(8), np.ones(8), nothing_left)
    choices = [np.array(one) for one in itertools.product((0, 1), repeat=8)]
    best = min(-values @ one for one in choices if weights @ one <= 9.0)
    assert found.status == Status.OPTIMAL and found.value == found.bound == pytest.approx(best, abs=1e-12)
    np.testing.assert_array_equal(found.kept, np.round(found.kept))


@pytest.mark.parametrize("bounds", [BOX, (np.full(3, -np.inf), np.full(3, np.inf))])
def test_the_nearest_integers(bounds):
    center = np.array([0.4, -1.6, 1.2])
    found = search(distance(center), *bounds, nothing_left)
    np.testing.assert_array_equal(found.kept, [0, -2, 1])
    assert found.value == pytest.approx(0.36, abs=1e-12)


def test_a_gap_ends_the_search():
    center, exact, rough = np.array([0.45, -1.45, 1.45]), [], []
    search(distance(center, exact), *BOX, nothing_left)
    found = search(distance(center, rough), *BOX, lambda value: 1.0)
    assert len(rough) == 2 < len(exact)
    assert found.bound <= found.value <= found.bound + 1.0


def test_a_limit_leaves_the_point_and_a_bound():
    center = np.array([0.45, -1.45, 1.45])
    found = search(distance(center, [], most=3), *BOX, nothing_left)
    assert found.status == Status.USER_LIMIT and found.kept is not None
    assert found.bound <= 3 * 0.45**2 <= found.value + 1e-12
    assert search(distance(center, [], most=0), *BOX, nothing_left).kept is None


def test_no_point():
    assert search(lambda low, high: Relaxed(Status.INFEASIBLE), *BOX, nothing_left).status == Status.INFEASIBLE
    assert search(lambda low, high: Relaxed(Status.UNBOUNDED), *BOX, nothing_left).status == Status.UNBOUNDED


def test_relaxations_that_fail():
    """Neither a point nor a claim: all points are tried, and where none is known nothing is said."""
    center = np.array([0.4, -1.6, 1.2])

    def relaxed(low, high):
        return distance(center)(low, high) if (low == high).all() else Relaxed(Status.USER_LIMIT)

    found = search(relaxed, *BOX, nothing_left)
    np.testing.assert_array_equal(found.kept, [0, -2, 1])
    assert found.status == Status.OPTIMAL and found.bound == found.value
    lost = search(lambda low, high: Relaxed(Status.USER_LIMIT), *BOX, nothing_left)
    assert lost.status == Status.USER_LIMIT and lost.bound == -np.inf
    open_ended = search(
        lambda low, high: Relaxed(Status.UNBOUNDED), *(np.full(2, s * np.inf) for s in (-1, 1)), nothing_left
    )
    assert open_ended.status == Status.USER_LIMIT


def test_a_point_without_a_bound_is_not_called_optimal():
    """The relaxation of one half of the box fails, also where it is a point."""
    center = np.array([0.4])

    def relaxed(low, high):
        return Relaxed(Status.USER_LIMIT) if low[0] >= 1 else distance(center)(low, high)

    found = search(relaxed, np.zeros(1), np.ones(1), nothing_left)
    assert found.status == Status.OPTIMAL_INACCURATE and found.kept is not None
    assert found.bound <= 0.16 == pytest.approx(found.value)


def test_a_gap_that_is_all_of_the_value():
    """Of values 1e-7 beside data of 1, boxes beside the point are looked at, and no more."""
    center, seen, wide = np.array([0.4, 0.4]), [], []

    def relaxed(into):
        def of_box(low, high):
            into.append((low, high))
            z = np.clip(center, low, high)
            value = 1e-7 * float(np.sum(z**2)) if (low == high).all() else 0.0
            return Relaxed(
                Status.OPTIMAL, z + (0.2 if (low == 0).all() and (high == 1).all() else 0.0), value, 0.0, kept=z
            )

        return of_box

    box = np.zeros(2), np.ones(2)
    first = search(relaxed(wide), *box, lambda value: 1e-6)
    found = search(relaxed(seen), *box, lambda value: 1e-6, lambda value: 1e-6 * value)
    assert (first.value, found.value) == (pytest.approx(2e-7), 0.0)
    assert len(wide) == 2 < len(seen) <= 2 + 2 * 2 + 2
