"""Functions, cones and kernels of proof files: conjugates are never too small, and what is outside is refused."""

from fractions import Fraction

import numpy as np
import pytest

from kernelopt import check

H = {k: float(k).hex() for k in (-1, 0, 0.5, 1, 1.5, 2, 3, -2)}
LINES = {"knots": [H[0]], "c0": H[0], "parts": [[H[-1], H[0]], [H[1], H[0]]]}  # |q|
SQUARE = {"knots": [], "c0": H[0], "parts": [[H[0], H[2]]]}
HUBER = {"knots": [H[-1], H[1]], "c0": H[-1], "parts": [[H[-2], H[0]], [H[0], H[2]], [H[2], H[0]]]}
LENGTH = {"knots": [], "c0": H[0], "parts": [[H[1], H[0]]]}

# The function, how many numbers it takes, where these lie, and multipliers outside of the domain of (1·h)*.
CASES = {
    "lines": (check.Quadratics(**LINES), 1, (-3, 3), [[1.01], [-1.01]]),
    "square": (check.Quadratics(**SQUARE), 1, (-3, 3), []),
    "Huber": (check.Quadratics(**HUBER), 1, (-3, 3), [[2.01], [-2.01]]),
    "length": (check.Quadratics(**LENGTH, order=H[2]), 2, (-3, 3), [[0.8, 0.7], [1.01, 0.0]]),
    "length of order 1": (check.Quadratics(**LENGTH, order=H[1]), 2, (-3, 3), [[0.5, 1.01]]),
    "length of order ∞": (check.Quadratics(**LENGTH, order="inf"), 2, (-3, 3), [[0.5, 0.51]]),
    "length of order 3": (check.Quadratics(**LENGTH, order=H[3]), 2, (-3, 3), [[0.9, 0.9]]),
    "square of a length": (check.Quadratics(**SQUARE, order=H[2]), 3, (-3, 3), []),
    "exp": (check.Exp(), 1, (-3, 3), [[-0.01]]),
    "log": (check.NegativeLog(), 1, (0.01, 3), [[0.0], [0.5]]),
    "log complement": (check.NegativeLogComplement(), 1, (-3, -0.01), [[-0.01]]),
    "entropy": (check.NegativeEntropy(), 1, (0.01, 3), []),
    "power": (check.Power(H[1.5]), 1, (-3, 3), []),
    "positive power": (check.Power(H[3], True), 1, (-3, 3), [[-0.01]]),
    "inverse": (check.Power(H[-1]), 1, (0.01, 3), [[0.01]]),
    "root": (check.Power(H[0.5]), 1, (0.01, 3), [[0.0], [0.1]]),
    "log-sum-exp": (check.LogSumExp(), 2, (-3, 3), [[-0.01, 0.5], [0.5, 0.51]]),
    "largest": (check.Sorted([H[1], H[0], H[0]]), 2, (-3, 3), [[-0.01, 0.5], [0.5, 0.51], [1.01, 0.0]]),
    "two largest": (check.Sorted([H[1], H[1], H[0]]), 2, (-3, 3), [[1.01, 0.0], [0.0, 0.9], [-0.1, 1.0]]),
    "by size": (check.Sorted([H[2], H[1]], "sizes"), 2, (-3, 3), [[2.01, 0.0], [1.51, -1.51]]),
    "positive parts": (check.Sorted([H[2], H[1]], "positive"), 2, (-3, 3), [[2.01, 0.0], [1.51, 1.51], [-0.01, 1.0]]),
    "ratio": (check.SquaresOverLinear(), 2, (0.1, 3), [[1.0, -0.24], [0.0, 0.01]]),
    "nuclear norm": (check.Schatten(2, "nuclear"), 4, (-3, 3), [[1.01, 0.0, 0.0, 0.5], [0.8, 0.8, 0.8, 0.8]]),
    "spectral norm": (check.Schatten(2, "spectral"), 4, (-3, 3), [[0.6, 0.0, 0.0, 0.5]]),
}


def point(values):
    return [(Fraction(v), Fraction(v)) for v in values]


def test_all_functions_are_here():
    assert {type(f) for f, *_ in CASES.values()} == set(check.FUNCTIONS.values())


@pytest.mark.parametrize("name", CASES)
def test_conjugates_are_never_too_small(name):
    """a·s − w·h(s) ≤ (wh)*(a) for all s, and nearly equal for some: at slopes of h."""
    h, k, (low, high), _ = CASES[name]
    rng, taken, nearest = np.random.default_rng(0), 0, np.inf
    places = [rng.uniform(low, high, size=k) for _ in range(150)]
    for w in (Fraction(1), Fraction(3, 8)):
        for _ in range(40):
            a = [Fraction(v) for v in rng.uniform(-1.2, 1.2, size=k) * float(w)]
            try:
                most = h.conjugate(a, w)
            except check.Refused:
                continue
            taken += 1
            for s in places:
                value = h.value(point(s))
                gap = most - (sum(x * Fraction(v) for x, v in zip(a, s, strict=True)) - w * value)
                assert gap >= -Fraction(1, 1 << 90)
                nearest = min(nearest, float(gap))
    assert taken >= 5
    assert nearest < 0.3


@pytest.mark.parametrize("name", CASES)
def test_values_on_boxes_are_upper_bounds(name):
    h, k, (low, high), _ = CASES[name]
    rng = np.random.default_rng(1)
    for _ in range(20):
        ends = np.sort(rng.uniform(low, high, size=(2, k)), axis=0)
        most = h.value([(Fraction(a), Fraction(b)) for a, b in ends.T])
        for _ in range(10):
            assert h.value(point(rng.uniform(*ends))) <= most + Fraction(1, 1 << 90)


@pytest.mark.parametrize(("name", "a"), [(name, a) for name, (*_, outside) in CASES.items() for a in outside])
def test_multipliers_outside_of_the_domain(name, a):
    with pytest.raises(check.Refused):
        CASES[name][0].conjugate([Fraction(v) for v in a], Fraction(1))


@pytest.mark.parametrize(
    "state",
    [
        lambda: check.Quadratics([H[0]], H[0], [[H[1], H[0]], [H[-1], H[0]]]),  # a concave kink
        lambda: check.Quadratics([], H[0], [[H[0], H[-1]]]),  # a concave part
        lambda: check.Quadratics([H[1], H[0]], H[0], [[H[0], H[0]]] * 3),  # knots that fall
        lambda: check.Quadratics([H[0]], H[0], [[H[0], H[0]]]),  # a part too few
        lambda: check.Quadratics([], H[0], [[H[-1], H[0]]], order=H[2]),  # one that falls in a norm
        lambda: check.Quadratics(**LENGTH, order=H[0.5]),  # no norm
        lambda: check.Power(H[1]),
        lambda: check.Power(H[0]),
        lambda: check.Sorted([H[0], H[1]]),  # weights that rise
        lambda: check.Sorted([H[1], H[-1]], "sizes"),
        lambda: check.Sorted([H[1]], "others"),
        lambda: check.Schatten(0, "nuclear"),
        lambda: check.Schatten(2.0, "nuclear"),
        lambda: check.Term("gaussian", points=[[H[0]]], sigma=H[0]),
        lambda: check.Term("gaussian", points=[[H[0]], [H[0], H[1]]], sigma=H[1]),
        lambda: check.Term("polynomial", points=[[H[0]]], gamma=H[-1]),
        lambda: check.Term("polynomial", points=[[H[0]]], coef0=H[-1]),
        lambda: check.Term("polynomial", points=[[H[0]]], degree=0),
        lambda: check.Term("polynomial", points=[[H[0]]], degree=65),
        lambda: check.Kernel([{"name": "laplacian", "points": [[H[0]]], "sigma": H[1]}]),
        lambda: check.Kernel([{"name": "gaussian", "points": [[H[0]]], "sigma": H[1], "degree": 2}]),
        lambda: check.Kernel([{"name": "polynomial", "points": [[H[0]]], "degree": True}]),
        lambda: check.Kernel([{"name": "polynomial", "points": [["0x1/0x" + "f" * check.WIDE]]}]),
        lambda: check.Term("gram", rows=[[H[1]], [H[1]]]),
        lambda: check.Term("gram", rows=[[H[1]]], error=H[-1]),
        lambda: check.Kernel([{"name": "gaussian", "points": [[H[0]]], "sigma": H[1], "factor": H[-1]}]),
        lambda: check.Kernel([{"name": "gaussian", "points": [[H[0]]] * n, "sigma": H[1]} for n in (1, 2)]),
        lambda: check.norm([[Fraction(1)]], "other"),
        lambda: check.inverse([[Fraction(0)]]),
        lambda: check.ln(Fraction(0)),
        lambda: check.ln(Fraction(-1)),
        lambda: check.exp(Fraction(4000)),
        lambda: check.power(Fraction(0), Fraction(-1)),
        lambda: check.power(Fraction(-1), Fraction(2)),
        lambda: check.SquaresOverLinear().value(point([1.0, 0.0])),
        lambda: check.SquaresOverLinear().value(point([1.0, -1.0])),
        lambda: check.Exponential.outside(point([1.0, 0.0, 1.0])),
        lambda: check.Power(H[2], 1),
        lambda: check.Power(H[0.5], True),
        lambda: check.Schatten(1, "fro"),
        *(lambda v=v: check.num(v) for v in ("1.5", "nan", "inf", "0x", "", "1/2", "0x1/2", "0x1/0x0", "0x1/-0x2")),
        lambda: check.num(1.5),
        lambda: check.num("0x" + "1" * check.LONG),
    ],
)  # fmt: skip
def test_what_is_none(state):
    with pytest.raises(check.FAULTS):
        state()


def test_all_rows_are_taken():
    """A row that no formula reads would have a multiplier that nothing bounds."""
    taken = {name: [k for k in range(7) if h.fits(k)] for name, (h, *_) in CASES.items()}
    lengths = {name for name in taken if name.startswith(("length", "square of")) or name in {"log-sum-exp", "ratio"}}
    more = {"largest": [2], "two largest": [2], "by size": [2], "positive parts": [2]}
    matrices = {"nuclear norm": [2, 4, 6], "spectral norm": [2, 4, 6]}
    assert taken == {n: more.get(n) or matrices.get(n) or ([1, 2, 3, 4, 5, 6] if n in lengths else [1]) for n in taken}
    cones = {name: [k for k in range(11) if cone.fits(k)] for name, cone in check.CONES.items()}
    assert cones == {"soc": list(range(1, 11)), "exp": [3], "psd": [1, 3, 6, 10]}


def test_numbers_are_exact():
    for v in (1.0, -0.1, 5e-324, 1.7976931348623157e308, -0.0, 3.0):
        assert check.num(v.hex()) == Fraction(v)
    assert check.num("0x1.000000000000000001p+0") == 1 + Fraction(1, 1 << 72)
    assert check.num("-0x1p-1080") == -Fraction(1, 1 << 1080)
    assert check.num("-0x3/0x7") == Fraction(-3, 7)


def test_doubles_beside_numbers():
    most, huge = 1.7976931348623157e308, Fraction(2) ** 1100
    assert (check.rounded(huge, False), check.rounded(huge, True)) == (most, np.inf)
    assert (check.rounded(-huge, False), check.rounded(-huge, True)) == (-np.inf, -most)
    assert check.rounded(Fraction(1, 3), False) < Fraction(1, 3) < check.rounded(Fraction(1, 3), True)


def test_errors_of_kernel_values():
    """Bounds hold for every matrix within the error, and for no more."""
    kernel = check.Kernel([{"name": "gram", "rows": [[H[2]], [H[1], H[2]]], "error": (0.25).hex()}])
    check.begin()
    found = check.Products(kernel, [[Fraction(1), Fraction(-1)]])
    (low, high), tiny = found.inner(0, 0), Fraction(1, 1 << 100)
    assert abs(low - 1) < tiny
    assert abs(high - 3) < tiny
    ends = found.entries(0)
    assert all(
        abs(end - v) < tiny
        for got, values in zip(ends, ([0.5, 1.5], [-1.5, -0.5]), strict=True)
        for end, v in zip(got, values, strict=True)
    )


def test_cones():
    F = Fraction
    soc, exponential, psd = check.SecondOrder, check.Exponential, check.Semidefinite
    assert soc.holds([F(5), F(3), F(4)])
    assert not soc.holds([F(5), F(3), F(4) + F(1, 10**9)])
    assert not soc.holds([F(-5), F(3), F(4)])
    assert soc.outside(point([5, 3, 4])) <= Fraction(1, 1 << 100)
    assert float(soc.outside(point([1, 3, 4]))) == pytest.approx(4)
    assert exponential.holds([F(-1), F(0), F(1)])  # 0 + 1·(1 + ln 1) ≥ 0
    assert not exponential.holds([F(-1), F(-1) - F(1, 10**6), F(1)])
    assert not exponential.holds([F(1), F(5), F(5)])
    assert exponential.holds([F(0), F(1), F(1)])
    assert not exponential.holds([F(0), F(-1), F(1)])
    assert not exponential.holds([F(-1), F(5), F(0)])
    assert float(exponential.outside(point([1, 1, 2]))) == pytest.approx(np.e - 2)
    assert psd.holds([F(1), F(0), F(1)])
    r = check.ROOT2
    assert psd.holds([F(1), 2 / r, F(1)])  # [[1, 1], [1, 1]]
    assert not psd.holds([F(1), 2 / r * F(1001, 1000), F(1)])
    assert float(psd.outside(point([1, 0, -2]))) == pytest.approx(2)
    assert psd.outside(point([1, 0, 2])) == 0
    assert check.is_semidefinite([[F(0), F(0)], [F(0), F(1)]])
    assert not check.is_semidefinite([[F(0), F(1)], [F(1), F(1)]])


def test_sums_of_points_that_vanish():
    """Exactly: of a linear kernel, not of another."""
    X = [[H[1], H[2]], [H[2], H[1]], [H[3], H[3]]]
    linear = check.Kernel([{"name": "polynomial", "points": X}])
    squares = check.Kernel([{"name": "polynomial", "points": X, "degree": 2}])
    gaussian = check.Kernel([{"name": "gaussian", "points": X, "sigma": H[1]}])
    both = check.Kernel([{"name": "polynomial", "points": X}, {"name": "gaussian", "points": X, "sigma": H[1]}])
    v = [Fraction(1, 3), Fraction(1, 3), Fraction(-1, 3)]
    assert linear.is_zero(v)
    assert not linear.is_zero([*v[:2], v[2] + Fraction(1, 10**30)])
    assert not squares.is_zero(v)
    assert not gaussian.is_zero(v)
    assert not both.is_zero(v)
    assert gaussian.is_zero([Fraction(0)] * 3)


def box(*intervals):
    return [(Fraction(low), Fraction(high)) for low, high in intervals]


def test_cones_of_intervals():
    """How far outside a row may be, at most, where its numbers are known within intervals."""
    assert check.SecondOrder.outside(box((1, 2), (3, 4))) == pytest.approx(3, rel=1e-15)
    assert check.Semidefinite.outside(box((-1, 2))) >= 1
    assert check.Semidefinite.outside(box((1, 1), (-1, 1), (1, 1))) >= 1 / 2**0.5 - 1  # an entry of ±1/√2 is inside
    wide = check.Semidefinite.outside(box((0, 0), (0, 2**0.5), (0, 0)))
    assert wide >= 1 - 1e-15  # [[0, 1], [1, 0]] is among the matrices
    falling = check.Exponential.outside(box((-2, -1), (1, 2), (0, 0)))
    assert falling == pytest.approx(2 * np.exp(-0.5), rel=1e-15)
    rising = check.Exponential.outside(box((1, 2), (1, 2), (0, 0)))
    assert rising == pytest.approx(2 * np.exp(2), rel=1e-15)


def test_norms_and_functions_of_wide_kernel_matrices():
    """‖Aᵀn‖ and ⟨n, f⟩ are at least those of every kernel matrix within the error."""
    kernel = check.Kernel([{"name": "gram", "rows": [[H[2]], [H[1], H[2]]], "error": (0.25).hex()}])
    norm = {"t": 2, "n": [[H[1], H[-1]]], "f": [1]}
    for kind in (None, "spectral", "nuclear"):
        check.begin()
        stated = norm if kind is None else norm | {"kind": kind}
        theta = check.Theta([kernel], 0, [[0, 1]], [0, 1], [stated], [[H[0], H[0]]])
        theta.measured([Fraction(-1), Fraction(1), Fraction(9)])  # ν = n
        assert float(theta.needs[2]) >= 3**0.5 * (1 - 1e-15)
        assert float(theta.inner) == pytest.approx(-0.5, rel=1e-15)  # (1, −1)·(column of f), at most
