"""The checker alone: small programs whose optimum is known exactly, and points that must be refused."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import fsum

import numpy as np
import pytest
import scipy.sparse as sp

from kernelopt.certificate import checker
from kernelopt.certificate.claim import Link, Norm, Program, still
from kernelopt.support.arithmetic import checked_product

RNG = np.random.default_rng(0)


def hinge(n=4, strength=0.25, intercept=False, kernel=None):
    """minimize Σ max(0, 1 − yᵢ(uᵢ + b)) + strength·t² as cone data: columns u, t, x, b."""
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    A = sp.lil_array((2 * n + 1, 2 * n + 1 + intercept))
    for i in range(n):
        A[i, i], A[i, n + 1 + i] = -y[i], -1.0  # 1 − y(u + b) − x ≤ 0
        A[n + i, n + 1 + i] = -1.0
        if intercept:
            A[i, 2 * n + 1] = -y[i]
    A[2 * n, n] = -1.0
    P, c = np.zeros(A.shape[1]), np.zeros(A.shape[1])
    P[n], c[n + 1 : 2 * n + 1] = 2 * strength, 1.0
    b = np.concatenate([np.full(n, -1.0), np.zeros(n + 1)])
    program = Program(P, c, 0.0, sp.csc_array(A), b, [("nonneg", slice(0, 2 * n + 1), None)])
    return program, y, np.eye(n) if kernel is None else kernel


def link(nu, Q, t, error=0.0):
    V = nu[:, None]
    n = len(nu)
    norm = Norm(t, "fro", np.eye(1), slice(0, 1), slice(1, 1))
    gram = V.T @ Q @ V
    return Link(
        np.arange(n)[:, None], np.arange(n), np.sqrt(np.diag(Q)), [norm], V, gram, np.full((1, 1), error), np.eye(1)
    )


def point(program, y, a, intercept=False):
    """z for multipliers a ∈ [0, 1] of the margins."""
    z = np.concatenate([a, 1 - a, [0.0]])
    return still(z, np.zeros(len(program.c))), y * a


def moved_along(dual, radius, rows, columns, inverse):
    return replace(dual, radius=radius, rows=np.array(rows), columns=np.array(columns), inverse=sp.csr_array(inverse))


def exact(y, a, Q, strength):
    """Σ aᵢ − νᵀQν/4λ in rationals."""
    nu = [Fraction(float(v)) for v in y * a]
    quadratic = sum(nu[i] * Fraction(float(Q[i, j])) * nu[j] for i in range(len(y)) for j in range(len(y)))
    return sum(Fraction(float(v)) for v in a) - quadratic / (4 * Fraction(strength))


@pytest.mark.slow
def test_the_dual_value_and_no_more():
    """The bound lies below the rational value of the dual, by rounding."""
    for _ in range(200):
        B = RNG.normal(size=(4, 3)) * 10.0 ** RNG.integers(-3, 4)
        program, y, Q = hinge(kernel=B @ B.T + np.eye(4))
        a = RNG.integers(0, 65, size=4) / 64.0
        dual, nu = point(program, y, a)
        rounding = 64 * checker.U * float(np.abs(nu) @ np.sqrt(np.diag(Q))) ** 2
        found = checker.lower(program, [link(nu, Q, 4, rounding)], dual)
        value = exact(y, a, Q, 0.25)
        assert Fraction(found.value) <= value
        assert found.value >= float(value) - 1e-11 * (1 + abs(float(value)))
        assert found.missing == ""
        assert found.rounding >= 0


@pytest.mark.slow
def test_perturbed_points_never_prove_more_than_the_optimum():
    """Σ max(0, 1 − yu) + ¼‖θ‖² with Q = I: each margin is 1 at a cost of ¼."""
    program, y, Q = hinge()
    optimum = 1.0
    proven, moves = 0, [0.0, 1e-16, -1e-16, 1e-9]
    for _ in range(600):
        a = np.clip(0.5 + 0.3 * RNG.normal(size=4), 0, 1)
        dual, nu = point(program, y, a)
        z = dual.z + RNG.choice(moves, p=[0.85, 0.05, 0.05, 0.05], size=len(dual.z)) * RNG.normal(size=len(dual.z))
        found = checker.lower(program, [link(nu, Q, 4, 1e-15)], replace(dual, z=z))
        assert found.value <= optimum
        proven += np.isfinite(found.value)
    assert proven > 0


def test_the_optimum_itself():
    program, y, Q = hinge()
    dual, nu = point(program, y, np.full(4, 0.5))
    found = checker.lower(program, [link(nu, Q, 4)], dual)
    assert 1 - 1e-13 <= found.value <= 1


def test_a_column_that_does_not_vanish():
    program, y, Q = hinge(intercept=True)
    a = np.array([0.5, 0.5, 0.25, 0.5])
    dual, nu = point(program, y, a)
    refused = checker.lower(program, [link(nu, Q, 4)], dual)
    assert refused.value == -np.inf
    assert "does not vanish" in refused.missing
    balanced, nu = point(program, y, np.full(4, 0.5))
    assert np.isfinite(checker.lower(program, [link(nu, Q, 4)], balanced).value)


def test_a_point_nearby_exists_where_pivots_say_so():
    """1ᵀν = 1e-12 is moved out along one margin; its slack's column follows."""
    program, y, Q = hinge(intercept=True)
    a = np.array([0.5, 0.5, 0.5, 0.5 + 1e-12])
    dual, nu = point(program, y, a)
    radius = np.zeros(9)
    # b (the third free column group: x are 0 … 3, b is 4) along margin 3, and x₃ along its own row.
    radius[3], radius[7] = 2e-12, 4e-12
    moved = moved_along(dual, radius, [3, 7], [4, 3], np.diag([-1.0, -1.0]))
    found = checker.lower(program, [link(nu, Q, 4)], moved)
    assert 1 - 1e-10 < found.value <= 1
    for wrong in (0.4, 0.0):  # too small a radius proves nothing
        assert checker.lower(program, [link(nu, Q, 4)], replace(moved, radius=wrong * radius)).value == -np.inf
    twice = replace(moved, rows=np.array([3, 3]))
    assert checker.lower(program, [link(nu, Q, 4)], twice).value == -np.inf
    elsewhere = np.full(9, 1e-12)
    assert checker.lower(program, [link(nu, Q, 4)], replace(moved, radius=elsewhere)).value == -np.inf


def test_blocks_need_an_inverse():
    """Two columns that meet in both rows: M = [1 1; 1 −1]."""
    A = sp.csc_array(np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 0.0]]))
    program = Program(
        np.zeros(2), np.array([-2.0, 0.0]), 0.0, A, np.array([1.0, 1.0, 0.0]), [("nonneg", slice(0, 3), None)]
    )
    z = np.array([1.0, 1.0 + 1e-13, 0.0])  # maximize 2x₁ over x₁ ± x₂ ≤ 1: the optimum is −2
    radius = np.array([2e-13, 2e-13, 0.0])
    Z = np.linalg.inv(np.array([[1.0, 1.0], [1.0, -1.0]]))
    dual = moved_along(still(z, np.zeros(2)), radius, [0, 1], [0, 1], Z)
    found = checker.lower(program, [], dual)
    assert -2 - 1e-11 < found.value <= -2
    assert checker.lower(program, [], replace(dual, inverse=sp.csr_array(np.eye(2)))).value == -np.inf
    assert checker.lower(program, [], replace(dual, radius=0.1 * radius)).value == -np.inf
    assert checker.lower(program, [], still(z, np.zeros(2))).value == -np.inf


def test_one_row_moves_one_column():
    """minimize 0 over x₁, x₂ with a row x₁ + x₂ ≤ 1: z = 1e-14 leaves both columns, and they are moved as one only."""
    A = sp.csc_array(np.array([[1.0, 0.5]]))
    program = Program(np.zeros(2), np.array([-1.0, -0.5 + 1e-15]), 0.0, A, np.ones(1), [("nonneg", slice(0, 1), None)])
    dual = moved_along(still(np.ones(1) + 1e-15, np.zeros(2)), np.array([1e-13]), [0], [0, 1], np.array([[0.5, 1.0]]))
    assert checker.lower(program, [], dual).value == -np.inf  # the dual is infeasible, and the problem unbounded


def test_equal_columns_vanish_together():
    A = sp.csc_array(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    program = Program(np.zeros(3), np.array([-1.0, -1.0, 0.0]), 0.0, A, np.ones(2), [("nonneg", slice(0, 2), None)])
    dual = moved_along(
        still(np.array([1.0 + 1e-14, 0.0]), np.zeros(3)), np.array([2e-14, 0.0]), [0], [0], np.ones((1, 1))
    )
    assert checker.lower(program, [], dual).value == -np.inf
    dual = replace(dual, others=np.array([1]), weights=sp.csc_array(np.array([[1.0], [0.0], [0.0]])))
    found = checker.lower(program, [], dual)
    assert -1 - 1e-12 < found.value <= -1
    other = program._replace(c=np.array([-1.0, -1.0 - 1e-15, 0.0]))  # which another cost makes unbounded
    assert checker.lower(other, [], dual).value == -np.inf


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


def test_a_norm_that_costs_too_little():
    program, y, Q = hinge()
    P, c = program.P.copy(), program.c.copy()
    P[4], c[4] = 0.0, 1.0  # ‖θ‖ instead of ¼‖θ‖²: ‖Aᵀν‖ ≤ 1
    unsquared = program._replace(P=P, c=c)
    dual, nu = point(unsquared, y, np.full(4, 0.5))
    found = checker.lower(unsquared, [link(nu, Q, 4)], dual)
    assert found.value == -np.inf and "exceeds" in found.missing  # ‖ν‖ = 1 leaves no room for rounding
    small, nu = point(unsquared, y, np.full(4, 0.49))
    assert checker.lower(unsquared, [link(nu, Q, 4)], small).value == pytest.approx(1.96, rel=1e-12)
    assert checker.lower(unsquared, [link(nu, Q, 4, error=0.1)], small).value == -np.inf


def test_errors_of_the_gram_matrix_are_charged():
    program, y, Q = hinge()
    dual, nu = point(program, y, np.full(4, 0.5))
    exactly, off = (checker.lower(program, [link(nu, Q, 4, error)], dual).value for error in (0.0, 0.01))
    assert exactly - off == pytest.approx(0.01, rel=1e-9)  # error/(4λ), λ = ¼
    other = link(nu * 1.001, Q, 4)  # vectors that do not add up to ν: the rest counts by its size
    assert checker.lower(program, [other], dual).value < exactly
    assert checker.lower(program, [other], dual).value <= 1


def test_no_norm_needs_rows_that_vanish():
    program, y, Q = hinge()
    dual, nu = point(program, y, np.full(4, 0.5))
    free = link(nu, Q, 4)._replace(norms=[])
    assert checker.lower(program, [free], dual).value == -np.inf
    zero, nu = point(program, y, np.zeros(4))
    assert checker.lower(program, [link(nu, Q, 4)._replace(norms=[])], zero).value == 0
    features = free._replace(features=np.array([[1.0], [1.0], [1.0], [1.0]]))  # Σν = 0 is all that it takes
    assert checker.lower(program, [features], dual).value == pytest.approx(2.0, rel=1e-12)
    off, nu = point(program, y, np.array([0.5, 0.5, 0.5, 0.5 + 1e-14]))
    assert checker.lower(program, [features], off).value == -np.inf  # and a way to make up for rounding
    radius = np.zeros(9)
    radius[3], radius[7] = 1e-13, 2e-13
    moved = moved_along(off, radius, [3, 7], [4, 3], np.diag([-1.0, -1.0]))
    assert checker.lower(program, [features], moved).value == pytest.approx(2.0, rel=1e-12)
    skewed = free._replace(features=np.array([[1.0], [1.0], [1.0], [2.0]]))
    assert checker.lower(program, [skewed], moved).value == -np.inf


def test_repeated_rows_cancel():
    """Equal rows with opposite labels: their multipliers add up to 0 for every kernel."""
    program, y, _Q = hinge()
    dual, _nu = point(program, y, np.full(4, 1.0))
    same = link(np.array([0.0]), np.ones((1, 1)), 4)._replace(
        columns=np.arange(4)[:, None], take=np.zeros(4, dtype=int), norms=[]
    )
    assert 4 - 1e-14 < checker.lower(program, [same], dual).value <= 4


@pytest.mark.parametrize("power", [-400, -100, 100, 400])
def test_units_of_the_objective(power):
    program, y, Q = hinge()
    dual, nu = point(program, y, np.full(4, 0.5))
    unit = 2.0**power
    scaled = program._replace(P=program.P * unit, c=program.c * unit)
    found = checker.lower(scaled, [link(nu * unit, Q, 4)], replace(dual, z=dual.z * unit))
    one = checker.lower(program, [link(nu, Q, 4)], dual)
    assert found.value / unit == pytest.approx(one.value, rel=1e-12)
    assert found.value <= unit


def test_numbers_that_no_power_of_two_brings_together():
    program, y, Q = hinge()
    dual, nu = point(program, y, np.full(4, 0.5))
    c = program.c.copy()
    c[0] = 1e300
    found = checker.lower(program._replace(c=c), [link(nu, Q, 4)], replace(dual, z=dual.z * 1e-30 + 5e-324))
    assert found.value == -np.inf


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_points_that_are_no_numbers(bad):
    program, y, Q = hinge()
    dual, nu = point(program, y, np.full(4, 0.5))
    z = dual.z.copy()
    z[0] = bad
    assert checker.lower(program, [link(nu, Q, 4)], replace(dual, z=z)).value == -np.inf


def test_tangents_of_curved_predictions():
    """minimize ½·2·u² − 2u + t²: u = (2 − ν)/2 …; a tangent stands only where P is positive."""
    program = Program(
        np.array([2.0, 2.0]), np.array([-2.0, 0.0]), 0.0, sp.csc_array(np.array([[0.0, -1.0]])), np.zeros(1),
        [("nonneg", slice(0, 1), None)],
    )  # fmt: skip
    # u = ½: 2u = 1, ν = 2 − 1 = 1, ‖θ‖ = ν/2: the value is ¼ − 1 + ¼ = −½.
    V = np.array([1.0])
    dual = still(np.zeros(1), np.array([1.0, 0.0]))
    found = checker.lower(program, [link(V, np.ones((1, 1)), 1)], dual)
    assert found.value <= -0.5
    assert found.value == pytest.approx(-0.5, abs=1e-12)
    flat = program._replace(P=np.array([0.0, 2.0]))
    assert checker.lower(flat, [link(V, np.ones((1, 1)), 1)], dual).value == -np.inf
    assert (
        checker.lower(program, [link(V, np.ones((1, 1)), 1)], replace(dual, tangent=np.array([1.0, 1.0]))).value
        == -np.inf
    )


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
    hi, lo = checker.two_product(a, b)
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
