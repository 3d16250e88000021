"""What the checker takes for rounding: the formulas of the proof, in an arithmetic so coarse that they can be seen."""

from fractions import Fraction
from math import inf, log, sqrt

import cvxpy as cp
import numpy as np
import pytest
from coarse import ROOM, TINY, ULPS, gamma, linked, make_coarse, near, smallest, two_norms, u

import kernelopt as ko
from kernelopt.certificate import checker
from kernelopt.certificate.claim import Norm
from kernelopt.support import arithmetic


@pytest.fixture
def coarse(monkeypatch):
    make_coarse(monkeypatch)


def inside(kind, z, r, extra=None):
    z, r = np.array(z, dtype=float), np.array(r, dtype=float)
    return checker.in_dual_cone(z, r, [(kind, slice(0, len(z)), extra)])


# Numbers that everything rests on


def test_what_arithmetic_is_trusted_to():
    assert (checker.U, checker.ULPS, checker.ROOM, checker.TINY) == (2.0**-53, 2.0**-49, 1e-6, 2.0**-1000)
    assert arithmetic.gamma(3) == 3 * 2.0**-53 / (1 - 3 * 2.0**-53)
    assert arithmetic.gamma(2.0**53) == inf and arithmetic.gamma(2.0**54) == inf
    assert np.array_equal(arithmetic.gamma(np.array([0, 2**53])), [0.0, inf])


def test_where_underflow_spoils_a_product():
    a = np.array([2.0**-480, 2.0**-480, 0.0, 2.0**-700, 1.0, 1.0])
    b = np.array([2.0**-480, 2.0**-479, 2.0**-700, 2.0**-700, 0.0, 1.0])
    hi, lo, inexact = arithmetic.checked_product(a, b)
    assert inexact.tolist() == [True, False, False, True, False, False]
    assert np.array_equal(hi, a * b) and not lo.any()


def test_lengths_of_tiny_vectors():
    assert arithmetic.euclidean(np.array([[3e-300, 0.0], [0.0, -4e-300]])) == pytest.approx(5e-300, rel=1e-15)
    assert arithmetic.euclidean(np.zeros((0, 0))) == 0.0


def beside_fractions(A, B):
    """Compare the entries of `exact_product` with rational arithmetic."""
    found = arithmetic.exact_product(A, B)
    for i in range(len(A)):
        for j in range(B.shape[1]):
            exact = sum((Fraction(a) * Fraction(b) for a, b in zip(A[i], B[:, j], strict=True)), Fraction(0))
            assert abs(Fraction(found[i, j]) - exact) <= Fraction(arithmetic.UNIT) * (1 + Fraction(1, 64)) * abs(exact)


@pytest.mark.parametrize(("n", "spread"), [(1, 0), (2, 0), (5, 0), (64, 0), (65, 20), (65, 100)])
def test_products_of_matrices_are_rounded_once(n, spread):
    rng = np.random.default_rng(n)
    beside_fractions(*(rng.normal(size=s) * 10.0 ** rng.uniform(-spread, 0, s) for s in ((3, n), (n, 2))))


@pytest.mark.parametrize("left", [1e-8, 1e-16, 1e-30, 1e-60, 0.0])
def test_products_that_cancel_are_rounded_once(monkeypatch, left):
    """Each product stands there with the other sign, too. Where hardly anything is left, `fsum` sums exactly."""
    rng, exact, counted = np.random.default_rng(3), arithmetic.fsum, []
    monkeypatch.setattr(arithmetic, "fsum", lambda terms: counted.append(1) or exact(terms))
    half, b = rng.normal(size=(4, 20)), rng.normal(size=(20, 1))
    A, B = np.hstack([half, -half[:, ::-1], np.full((4, 1), left)]), np.vstack([b, b[::-1], [[1 / 3]]])
    beside_fractions(A, B)
    assert bool(counted) == (left < 1e-20)


def test_products_with_rows_of_zeros():
    rng = np.random.default_rng(5)
    A, B = rng.normal(size=(3, 9)), rng.normal(size=(9, 2)) * (np.arange(9) % 3 == 1)[:, None]
    beside_fractions(A, B)
    assert not arithmetic.exact_product(A, np.zeros((9, 2))).any()


def test_products_without_entries():
    assert arithmetic.exact_product(np.zeros((0, 3)), np.zeros((3, 2))).shape == (0, 2)
    assert arithmetic.exact_product(np.zeros((2, 0)), np.zeros((0, 1))).tolist() == [[0.0], [0.0]]


# Cones


def test_second_order_cones(coarse):
    tail, r = np.array([3.0, -4.0, 0.0]), np.array([0.5, 0.25, 0.125, 1.0])
    least = smallest(lambda z0: inside("soc", [z0, *tail], r), 0.0, 100.0)
    assert least == near(0.5 + sqrt(3.25**2 + 4.125**2 + 1) * (1 + gamma(12)))


def test_second_order_cones_near_zero():
    assert inside("soc", [1.0, 0.0], [1.0, 0.0]) and inside("soc", [1.0], [1.0])
    assert not inside("soc", [1.0, 0.0], [1.0000000001, 0.0])
    assert not inside("soc", [1.0, 1e-200], [1.0, 0.0])  # whose square underflows
    assert not inside("soc", [0.0, 0.0], [0.0, 1e-200])
    assert inside("soc", [1.001e-200, 0.0], [0.0, 1e-200])


def packed(Z):
    """The upper triangle by columns, off the diagonal times √2."""
    return np.array([Z[i, j] * (1 if i == j else sqrt(2)) for j in range(len(Z)) for i in range(j + 1)])


def test_semidefinite_cones(coarse):
    Z = np.array([[2.0, -1.0, 0.5], [-1.0, 1.0, 3.0], [0.5, 3.0, -2.0]])
    r = np.array([0.5, 0.25, 0.125, 1.0, 0.0, 0.25])
    least = smallest(lambda s: inside("psd", packed(Z + s * np.eye(3)), r, 3), 0.0, 100.0)
    shifted = Z + least * np.eye(3)
    rounding = gamma(16 * 3 + 16) * np.linalg.norm(shifted)
    lowest = np.linalg.eigvalsh(shifted)[0]
    assert lowest == near((np.linalg.norm(r) + rounding) * (1 + ROOM) + TINY)


def test_semidefinite_cones_near_zero():
    none = np.zeros(3)
    assert inside("psd", none, none, 2)
    assert not inside("psd", none, [0.0, 1e-200, 0.0], 2)  # whose square underflows
    assert not inside("psd", [1e-200, 0.0, 0.0], none, 2)
    assert not inside("psd", 1e-200 * packed(np.array([[1.0, 1.0], [1.0, 1.0]])), none, 2)
    assert inside("psd", 1e-200 * packed(np.eye(2)), none, 2)


@pytest.mark.parametrize(("p", "w"), [(2.0, 5.0), (2.0, 0.5), (1.0, 1.0), (2.0, 2 / np.e + 0.25)])
def test_exponential_cones(coarse, p, w):
    """φ at the worse end of u, and at the lower end of w."""
    r = np.array([0.5, 0.125, 0.25])
    least = smallest(lambda v: inside("exp", [-p, v, w], r), -100.0, 100.0)
    q, worst = w - 0.25, -inf
    for end in (p - 0.5, p + 0.5):
        phi = -end * (1 + log(q / end)) + 2 * ULPS * end * (2 + abs(log(q / end))) + TINY
        worst = max(worst, phi + 4 * u * abs(phi))
    assert least == near(worst + 0.125)


@pytest.mark.later
def test_the_largest_phi_is_no_less_than_any():
    rng = np.random.default_rng(2)
    for _ in range(200):
        p, w = 10.0 ** rng.uniform(-3, 3, size=2)
        rp, rw = p * rng.uniform(0, 1), w * rng.uniform(0, 1)
        found = checker.largest_phi(*(np.array([x]) for x in (-p, w, rp, rw)))[0]
        for s in np.linspace(-1, 1, 11):
            for t in np.linspace(-1, 1, 11):
                x, q = p + s * rp, w + t * rw
                if x > 0 and q > 0:
                    assert found >= -x * (1 + np.log(q / x))


def test_ends_of_exponential_cones():
    none = np.zeros(3)
    assert inside("exp", [0.0, 0.0, 0.0], none)  # u = 0: v ≥ 0 and w ≥ 0
    assert not inside("exp", [0.0, -1e-300, 1.0], none)
    assert inside("exp", [-1.0, 1e-3, 50.0], [1.0, 0.0, 0.0])
    assert not inside("exp", [-1.0, 1e-3, 50.0], [1.0 + 1e-12, 0.0, 0.0])
    assert not inside("exp", [-1.0, 1e300, 1.0], [0.0, 0.0, 1.0])  # φ is ∞ where w can be 0
    assert not inside("exp", [0.0, 1e300, 1.0], [0.0, 0.0, 2.0])
    both = [-1.0, 5.0, 1.0, -1.0, 5.0, 1.0]
    assert inside("exp", both, np.zeros(6))
    for place, value in ((0, 1.0), (1, -2.0), (2, -1.0), (3, 1.0), (4, -2.0), (5, -1.0)):
        assert not inside("exp", [*both[:place], value, *both[place + 1 :]], np.zeros(6))
        radius = np.zeros(6)
        radius[place] = 7.0
        assert not inside("exp", both, radius)


def test_a_ratio_that_underflows_has_no_logarithm():
    for u0, w, finite in (
        (-(2.0**60), 2.0**-1000, False),
        (-(2.0**60), 2.0**-940, False),
        (-(2.0**60), 2.0**-939, True),
        (-(2.0**-60), 2.0**-1000, True),
    ):
        phi = checker.largest_phi(np.array([u0]), np.array([w]), np.zeros(1), np.zeros(1))[0]
        assert np.isfinite(phi) == finite
        if finite:
            assert phi == pytest.approx(u0 * (1 + log(w) - log(-u0)), rel=1e-12)


@pytest.mark.parametrize("a", [0.3, np.array([0.5, 0.125, 0.375])])
def test_power_cones(coarse, a):
    weights = np.array([a, 1 - a]) if np.ndim(a) == 0 else a
    rest, r = np.array([2.0, 0.75, -3.0])[-len(weights) :], np.array([0.5, 0.25, 0.125, 1.0])[-len(weights) - 1 :]
    kind = "power" if np.ndim(a) == 0 else "generalized_power"
    least = smallest(lambda z0: inside(kind, [z0, *rest], r, a), 0.0, 1e6)
    logarithms = [ai * log((zi - ri) / ai) for ai, zi, ri in zip(weights, [least, *rest[:-1]], r[:-1], strict=True)]
    right = log(3.0 + 1.0)
    assert sum(logarithms) == near(right + 2 * ULPS * (sum(map(abs, logarithms)) + right + 1))


def test_ends_of_power_cones(monkeypatch):
    none = np.zeros(3)
    for z, r, expected in (
        ([0.0, 0.0, 0.0], none, True),
        ([0.0, 5.0, 1e-300], none, False),
        ([5.0, -1e-300, 0.0], none, False),
        ([5.0, 1.0, 0.0], [0.0, 1.0, 0.0], True),
        ([5.0, 1.0, 0.0], [0.0, 1.1, 0.0], False),
        ([5.0, 1.0, 0.0], [0.0, 1.0, 1e-300], False),
        ([5.0, 1.0, 1.0], [0.0, 0.0, 1.0], True),
        ([5.0, 1.0, -4.0], none, True),
        ([5.0, 1.0, -5.0], none, False),
    ):
        assert inside("power", z, r, 0.5) == expected
    assert not inside("power", [0.5, 0.5, 1.0], none, 0.5)  # on the boundary
    monkeypatch.setattr(checker, "ULPS", 0.0)
    assert inside("power", [0.5, 0.5, 1.0], none, 0.5)
    small = np.array([0.5, 0.5, 0.25])
    assert inside("power", small, none, 0.5)


def test_other_cones():
    assert inside("zero", [-1.0, 1.0], [5.0, 5.0])
    assert inside("nonneg", [1.0, 0.0], [1.0, 0.0])
    assert not inside("nonneg", [1.0, 0.0], [1.0, 1e-300])
    two = [("nonneg", slice(0, 1), None), ("nonneg", slice(1, 2), None)]
    assert not checker.in_dual_cone(np.array([-1.0, 1.0]), np.zeros(2), two)
    assert not checker.in_dual_cone(np.array([1.0, -1.0]), np.zeros(2), two)


# θ


def test_dual_norms(coarse):
    rng = np.random.default_rng(3)
    B, C = rng.normal(size=(5, 3)), rng.normal(size=(3, 3))
    G, E = B.T @ B + C - C.T, np.abs(rng.normal(size=(3, 3))) / 64
    assert checker.dual_norm(G, E, "fro") == near(sqrt(np.trace(G) + np.trace(E)) * (1 + 4 * u))
    off = (np.linalg.norm(E) + gamma(64) * np.linalg.norm(G)) * (1 + ROOM)
    eigenvalues = np.linalg.eigvalsh(B.T @ B)
    assert checker.dual_norm(G, E, 2) == near(sqrt(eigenvalues[-1] + off) * (1 + gamma(7)))
    assert checker.dual_norm(G, 0 * E, "nuc") == near(
        np.sqrt(eigenvalues + gamma(64) * np.linalg.norm(G) * (1 + ROOM)).sum() * (1 + gamma(7))
    )
    columns = np.sqrt(np.diag(G) + 7 * np.diag(E)).sum() * (1 + gamma(7))
    assert checker.dual_norm(G, 7 * E + 9 * (1 - np.eye(3)), "nuc") == near(columns)


def test_dual_norms_of_little():
    none = np.zeros((0, 0))
    assert [checker.dual_norm(none, none, kind) for kind in ("fro", 2, "nuc")] == [0.0, 0.0, 0.0]
    negative, one = np.diag([-1.0, 4.0]), np.zeros((2, 2))
    assert checker.dual_norm(-np.eye(2), one, "fro") == 0.0
    assert checker.dual_norm(negative, one, 2) == pytest.approx(2.0, rel=1e-13)
    assert checker.dual_norm(negative, one, "nuc") == pytest.approx(2.0, rel=1e-6)
    quarter, sure = np.full((2, 2), 0.25), np.zeros((2, 2))  # of rank one, shorter than its columns together
    assert checker.dual_norm(quarter, sure, "nuc") == pytest.approx(sqrt(0.5), rel=1e-6)
    assert checker.dual_norm(np.diag([0.25, 0.0]), 9.0 - 9.0 * np.eye(2), "nuc") == pytest.approx(0.5, rel=1e-14)
    for kind in ("fro", 2, "nuc"):  # squares of errors underflow
        assert checker.dual_norm(np.zeros((1, 1)), np.full((1, 1), 1e-300), kind) >= 1e-150


def test_turned_multipliers(coarse):
    rng = np.random.default_rng(4)
    M, T = rng.normal(size=(2, 3)), rng.normal(size=(3, 2))
    norm = Norm(0, "fro", M, slice(0, 3), slice(3, 3))
    assert checker.turned(norm)[1] == 1.0 and np.array_equal(checker.turned(norm)[0], M)
    turned, bound = checker.turned(norm._replace(T=T))
    assert np.array_equal(turned, M @ T)
    E = abs(T.T @ T - np.eye(2)) + gamma(5) * (abs(T).T @ abs(T) + np.eye(2))
    assert bound == near(sqrt(1 + np.linalg.norm(E) * (1 + ROOM)) * (1 + 4 * u))
    assert bound >= np.linalg.norm(T, 2)


def remainder(link, g, e):
    """What n leave of ν, and at most: by loops over the rows."""
    rows, outputs = len(link.sizes), link.columns.shape[1]
    most = max(np.bincount(link.take))
    M, N = np.hstack([norm.M for norm in link.norms]), link.V
    R = np.zeros((rows, outputs))
    for i in range(rows):
        for k in range(outputs):
            at = [link.columns[a, k] for a in range(len(link.take)) if link.take[a] == i]
            nu = -sum(g[at])
            left = abs(nu - sum(N[i, j] * M[k, j] for j in range(N.shape[1])))
            left += sum(e[c] + gamma(most) * abs(g[c]) for c in at) * (1 + ROOM)
            R[i, k] = left + gamma(M.size + N.shape[1] + 4) * sum(abs(N[i, j] * M[k, j]) for j in range(N.shape[1]))
    return R


def test_what_multipliers_leave(coarse):
    link = two_norms()
    g, e = np.array([-0.25, -1.0, 0.5, 2.0, 0.75, -2.0]), np.arange(1.0, 7.0) / 1024
    R = remainder(link, g, e)
    extra = link.sizes @ np.linalg.norm(R, axis=1) + TINY
    M, S = np.array([[1.0, 1.0, 0.0], [2.0, 0.0, 1.0]]), link.shares
    E = np.abs(np.eye(2) - S @ M.T) + gamma(M.size + 4) * (np.abs(S) @ np.abs(M).T + np.eye(2))
    eta = np.linalg.norm(E)
    assert 0.08 < eta < 0.1
    found = checker.lengths(link, g, e)
    assert checker.lengths(link._replace(shares=1.2 * S), g, e) is None
    for (norm, length, share), part, trace in zip(found, (slice(0, 1), slice(1, 3)), (4.5, 26.0), strict=True):
        assert norm in link.norms
        assert share == near(extra * np.linalg.norm(S[:, part]) / (1 - eta) * (1 + ROOM))
        assert length == near((sqrt(trace) * (1 + 4 * u) + share) * (1 + 4 * u))


def test_turned_multipliers_leave_less(coarse):
    """Of m₂ one column is known: M₂T = (0.5, 1)ᵀ."""
    T = np.array([[0.5], [1.0]])
    link = two_norms(T)
    link = link._replace(V=link.V[:, :2], gram=link.gram[:2, :2], error=link.error[:2, :2])
    g, e = np.array([-0.25, -1.0, 0.5, 2.0, 0.75, -2.0]), np.arange(1.0, 7.0) / 1024
    rights = [norm._replace(M=norm.M if norm.T is None else norm.M @ norm.T) for norm in link.norms]
    R = remainder(link._replace(norms=rights), g, e)
    found = checker.lengths(link, g, e)
    M = np.array([[1.0, 1.0, 0.0], [2.0, 0.0, 1.0]])
    R += (gamma(M.size + 6) - gamma(4 + 6)) * np.abs(link.V) @ np.abs(np.hstack([norm.M for norm in rights])).T
    extra = link.sizes @ np.linalg.norm(R, axis=1) + TINY
    E = np.abs(np.eye(2) - link.shares @ M.T) + gamma(10) * (np.abs(link.shares) @ np.abs(M).T + np.eye(2))
    share = extra * np.linalg.norm(link.shares[:, 1:]) / (1 - np.linalg.norm(E)) * (1 + ROOM)
    assert found[1][2] == near(share)
    assert found[1][1] == near((sqrt(9.5) * (1 + 4 * u) * checker.turned(link.norms[1])[1] + share) * (1 + 4 * u))


def test_outputs_that_nothing_is_left_of():
    """An output whose multipliers are told exactly needs no norm of its own."""
    first = Norm(4, "fro", np.array([[1.0], [0.0]]), slice(0, 1), slice(1, 1))
    shares = np.array([[1.0], [0.0]])
    link = linked([[0, 1], [2, 3]], [first], [[0.5], [1.0]], [[1.25]], shares=shares)
    g, e = np.array([-0.5, 0.0, -1.0, 0.0, 2.0]), np.zeros(5)
    (_, length, share), *none = checker.lengths(link, g, e)
    assert not none and 0 < share < 1e-14 and length == pytest.approx(sqrt(1.25), rel=1e-14)
    assert checker.lengths(link, g - [0, 1e-300, 0, 0, 0], e) is None  # which the norm does not bind
    unmet = link._replace(
        columns=np.zeros((0, 2), dtype=int), take=np.zeros(0, dtype=int), V=0 * link.V, gram=0 * link.gram
    )
    assert checker.lengths(unmet, g, e)[0][1:] == (0.0, 0.0)
    mixed = link._replace(norms=[first._replace(M=np.array([[1.0], [1e-3]]))], V=link.V * 0)
    assert checker.lengths(mixed, g * [1, 0, 1, 0, 1], e) is None
    nothing_left = link._replace(V=0 * link.V, gram=0 * link.gram, error=0 * link.error)
    assert checker.lengths(nothing_left, 0 * g, e)[0][1:] == (0.0, 0.0)
    tiny = checker.lengths(nothing_left, g * [1e-200, 0, 0, 0, 1], e)  # whose square underflows
    assert tiny[0][1] >= 0.5e-200


def test_many_equal_rows_cancel():
    """1 + 2000·2⁻⁵⁴ − 1 of one row: added up in floating point, 0."""
    n = 2002
    link = linked(
        np.arange(n)[:, None], [Norm(n, "fro", np.eye(1), slice(0, 1), slice(1, 1))], [[0.0]], [[0.0]],
        shares=np.eye(1), take=np.zeros(n, dtype=int), sizes=[1.0],
    )  # fmt: skip
    g = np.full(n + 1, -(2.0**-54))
    g[0], g[n - 1] = -1.0, 1.0
    assert checker.lengths(link, g, np.zeros(n + 1))[0][1] >= 2000 * 2.0**-54


def test_a_point_at_the_mean_of_a_centred_kernel():
    """κ(x, x) = 0 there, but not its terms, by which errors are measured."""
    X = np.array([[0.0], [1.0], [2.0]])
    theta, b = ko.Theta(ko.kernels.Linear().centered(X)), cp.Variable()
    f = theta(X) + b
    loss = cp.sum(cp.abs(X[:, 0] - 0.3 - f)) + 0.275 * ko.sum_squares(theta)
    for constraints, value in (([], 0.275), ([cp.sum(f) == 0], 2.12475)):
        problem = ko.Problem(cp.Minimize(loss), constraints)
        problem.solve()
        assert problem.status == "optimal"
        assert problem.value == pytest.approx(value, rel=1e-6)
