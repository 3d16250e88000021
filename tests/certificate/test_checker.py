"""The parts of the proof alone: dual cones, dual norms, and exact sums."""

from fractions import Fraction
from itertools import pairwise
from math import fsum

import numpy as np
import pytest

from kernelopt.certificate import checker
from kernelopt.support.arithmetic import checked_product, two_product

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("kind", "inside", "outside", "extra"),
    [
        ("nonneg", [0.0, 1.0], [-1e-300, 1.0], None),
        ("soc", [5.000000000001, 3.0, 4.0], [5.0 - 1e-14, 3.0, 4.0], None),
        ("psd", [1.0, 0.5 * np.sqrt(2), 1.0], [1.0, 1.0001 * np.sqrt(2), 1.0], 2),
        ("exp", [-1.0, -1 + 1e-12, 1.0], [-1.0, -1 - 1e-12, 1.0], None),
        ("exp", [0.0, 0.0, 1.0], [1e-300, 1.0, 1.0], None),
        ("exp", [-1.0, 5.0, 1e-2], [-1.0, 5.0, -1e-2], None),
        ("power", [1.0, 1.0, 1.9], [1.0, 1.0, 2.0 + 1e-9], 0.5),
        ("power", [1.0, 1.0, 0.0], [-1e-20, 1.0, 0.0], 0.5),
        ("generalized_power", [1.0, 1.0, -1.9], [1.0, 1.0, -2.0 - 1e-9], np.array([0.5, 0.5])),
    ],
)
def test_dual_cones(kind, inside, outside, extra):
    cones = [(kind, slice(0, len(inside)), extra)]
    none = np.zeros(len(inside))
    assert checker.in_dual_cone(np.array(inside), none, cones)
    assert not checker.in_dual_cone(np.array(outside), none, cones)
    if kind != "nonneg" and np.all(np.array(inside) != 0):
        assert checker.in_dual_cone(np.array(inside), none + 1e-14, cones)
    assert not checker.in_dual_cone(np.array(inside), none + 3.0, cones)


def test_points_on_a_curved_boundary_leave_room_for_rounding():
    for _ in range(200):
        u, w = -(10.0 ** RNG.uniform(-3, 3)), 10.0 ** RNG.uniform(-3, 3)
        v = u * (1 + np.log(w / -u))
        cone = [("exp", slice(0, 3), None)]
        assert not checker.in_dual_cone(np.array([u, v - 1e-12 * abs(v) - 1e-14, w]), np.zeros(3), cone)
        assert checker.in_dual_cone(np.array([u, v + 1e-12 * abs(v) + 1e-12 * -u, w]), np.zeros(3), cone)


@pytest.mark.parametrize("kind", ["fro", 2, "nuc"])
def test_dual_norms(kind):
    W = RNG.normal(size=(5, 3))
    singular = np.linalg.svd(W)[1]
    length = {"fro": np.linalg.norm(W), 2: singular[0], "nuc": singular.sum()}[kind]
    found = checker.dual_norm(W.T @ W, np.zeros((3, 3)), kind)
    assert length <= found <= length * (1 + 1e-6)
    assert checker.dual_norm(W.T @ W, np.full((3, 3), 1e-3), kind) > length


def test_products_and_sums_are_exact():
    a, b = RNG.normal(size=100) * 10.0 ** RNG.integers(-50, 50, size=100), RNG.normal(size=100)
    hi, lo = two_product(a, b)
    assert all(Fraction(x) * Fraction(y) == Fraction(p) + Fraction(q) for x, y, p, q in zip(a, b, hi, lo, strict=True))
    assert checker.gamma(10) >= 10 * checker.U


def test_the_upper_bound_is_raised():
    assert checker.upper(1.0, 1.0, 0.0, 0.0) > 1.0
    assert checker.upper(1.0, 1.0, 1e6, 0.0) > checker.upper(1.0, 1.0, 0.0, 0.0)
    assert checker.upper(1.0, 1.0, 0.0, 0.5) >= 1.5


@pytest.mark.slow
def test_sums_of_columns_are_rounded_once():
    """Short columns are added together, others one by one: both are the exact sum, rounded, as `fsum` gives it."""
    rng = np.random.default_rng(0)
    for trial in range(400):
        counts = rng.integers(0, 7, size=rng.integers(0, 12))
        starts, m = np.cumsum([0, *counts]), 10
        on_grid = trial % 2 == 0
        values = rng.choice([1.0, -1.0, 0.5, 0.0], starts[-1]) if on_grid else rng.normal(size=starts[-1])
        values *= 10.0 ** rng.integers(-140, 140, starts[-1]) if trial % 3 == 2 else 1.0
        z = np.round(rng.normal(size=m) * 2**20) / 2**20 if on_grid else rng.normal(size=m)
        free = checker.Free(rng.integers(0, m + 1, starts[-1]), values, starts, counts, counts)
        hi, lo, _ = checked_product(values, np.append(z, 1.0)[free.rows])
        both = np.column_stack([hi, lo])
        expected = [fsum(both[a:b].ravel()) for a, b in pairwise(starts)]
        np.testing.assert_array_equal(checker.sums(free, z)[0], expected)
