"""The finest cut into functions of one number each: values, slopes, conjugates and kinks against cvxpy's own."""

from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt import losses
from kernelopt.compiler.outer import outer_of
from kernelopt.compiler.separable import Separable
from kernelopt.compiler.terms import SAME, Along, Bent, Interval, LogSumExp
from kernelopt.pieces.custom import StatedFunction
from kernelopt.pieces.elementary import (
    ROUNDED,
    AbsolutePower,
    Exp,
    InversePower,
    Logistic,
    NegativeEntropy,
    NegativeLog,
    NegativeLogComplement,
    NegativeRoot,
    PositivePower,
)
from kernelopt.pieces.inverse import _excess, attained
from kernelopt.pieces.quadratics import huber, one

RNG = np.random.default_rng(7)
N = 20
X = RNG.normal(size=(N, 2))
Y = RNG.normal(size=N)
LABELS = np.sign(Y)
BETA = cp.Variable(2)

# Objective and constraints in (f, b), and the kinds of functions that they fall apart into; a weight of 0
# leaves a line.
CUT = {
    "hinge": (lambda f, b: (cp.sum(losses.hinge(LABELS, f + b)), []), {Bent}),
    "crossing": (lambda f, b: (cp.sum(losses.pinball(Y, f + b, 0.3)), [cp.diff(f) >= -1, b <= 2]), {Bent, Interval}),
    "bounds without b": (lambda f, b: (cp.sum(losses.huber(Y, f + b, 0.3)), [f <= 1]), {Bent, Interval}),
    "equality": (lambda f, b: (cp.sum(losses.epsilon_insensitive(Y, f, 0.3)), [f[0] == f[1]]), {Bent, Interval}),
    "margin": (lambda f, b: (0 * b, [ko.margin(LABELS, f + b) >= 1]), {Interval}),
    "logistic": (lambda f, b: (np.arange(N) @ losses.log_loss(LABELS, f + b), []), {Logistic, Interval}),
    "poisson": (lambda f, b: (cp.sum(losses.poisson(np.abs(Y).round(), f + b)), []), {Exp}),
    "logarithm": (lambda f, b: (cp.sum(f - 2 * cp.log(3 * f + b + 10)), []), {NegativeLog}),
    "entropy": (lambda f, b: (-cp.sum(cp.entr(f + b + 10)) + b**2, []), {NegativeEntropy, Bent}),
    "divergence": (lambda f, b: (cp.sum(cp.kl_div(f + b + 10, np.ones(N))), []), {NegativeEntropy}),
    "divergence from": (lambda f, b: (cp.sum(cp.kl_div(np.ones(N), f + b + 10)), []), {NegativeLog}),
    "complement": (
        lambda f, b: (np.arange(N) @ -cp.log(1 - cp.exp(0.5 * f + b - 3)) + b**2, []),
        {NegativeLogComplement, Interval, Bent},
    ),
    "total variation": (lambda f, b: (cp.sum_squares(f - Y) + cp.norm1(cp.diff(f)), []), {Bent}),
    "parametric part": (lambda f, b: (cp.sum_squares(f + X @ BETA - Y), []), {Bent}),
    "two shifts": (lambda f, b: (cp.sum(cp.abs(f - Y)) + cp.sum_squares(f + 2 * b) + b, []), {Bent}),
    "a bounded loss": (lambda f, b: (cp.sum_squares(f - Y), [cp.abs(f) <= 1]), {Bent, Interval}),
    "|q|^1.5": (lambda f, b: (cp.sum(cp.power(cp.abs(2 * f + b - Y), 1.5)), []), {AbsolutePower}),
    "|q|^3": (lambda f, b: (np.arange(N) @ cp.power(cp.abs(Y - f), 3) + cp.sum(f), []), {AbsolutePower, Interval}),
    "positive part, cubed": (lambda f, b: (cp.sum(cp.power(cp.pos(1 - 3 * f - b), 3)), []), {PositivePower}),
    "fourth power": (lambda f, b: (cp.sum(cp.power(f - Y, 4)), []), {AbsolutePower}),
    "cube": (lambda f, b: (cp.sum(cp.power(f + 10, 3)) + b**2, []), {AbsolutePower, Interval, Bent}),
    "root": (lambda f, b: (cp.sum(f - 2 * cp.sqrt(3 * f + b + 20)), []), {NegativeRoot}),
    "reciprocal": (lambda f, b: (cp.sum(3 * cp.inv_pos(f + b + 10) + f), []), {InversePower}),
    "inverse power": (lambda f, b: (cp.sum(cp.power(f + 10, -2.5)), []), {InversePower}),
    "square or line": (lambda f, b: (cp.sum(cp.maximum(cp.square(2 * f - Y), 3 * f + 1)), []), {Bent}),
    "two squares": (
        lambda f, b: (np.arange(N) @ cp.maximum(cp.square(f - Y), 0.5 * cp.square(f + 2) + f), []),
        {Bent},
    ),
    "beyond a square": (lambda f, b: (cp.sum(cp.pos(cp.square(f + b) - 0.1)), []), {Bent}),
    "absolute or square": (lambda f, b: (cp.sum(cp.maximum(cp.abs(f - Y), cp.square(f - Y))), []), {Bent}),
    "log-sum-exp": (
        lambda f, b: (
            3 * cp.log_sum_exp(cp.hstack([2 * f[0] + b, f[1] - 1, 0.3]))
            + cp.sum(cp.log_sum_exp(cp.reshape(f, (10, 2), order="C"), axis=1)),
            [],
        ),
        {LogSumExp, Logistic},
    ),
    "mixed": (lambda f, b: (cp.sum(cp.exp(f)) + cp.norm1(f - Y), [cp.sum(f) == 1]), {Exp, Bent, Interval}),
}
# What is not cut: several numbers meet in one nonlinear function.
WHOLE = {
    "norm": lambda f, b: (cp.norm(f - Y), []),
    "ball of losses": lambda f, b: (cp.sum_squares(f - Y), [cp.norm1(f) <= 3]),
    "log-sum-exp of many as a bound": lambda f, b: (cp.sum_squares(f), [cp.log_sum_exp(f) <= 3]),
    "largest power": lambda f, b: (cp.max(cp.power(cp.abs(f - Y), 1.5)), []),
}


def split_of(build):
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    objective, constraints = build(theta(X), b)
    problem = ko.Problem(cp.Minimize(objective + ko.sum_squares(theta)), constraints)
    outer = outer_of(problem.canonical_form())
    return problem.canonical_form(), outer, outer.split


def kind(term):
    return type(term.family) if isinstance(term, Along) else type(term)


@pytest.mark.one_row
@pytest.mark.parametrize("name", CUT)
def test_values_are_those_of_the_statement(name):
    build, kinds = CUT[name]
    form, outer, split = split_of(build)
    assert {kind(term) for term in split.terms} == kinds
    finite = 0
    for trial in range(40):
        u = (0.05 if trial % 2 else 0.8) * RNG.normal(size=N)
        form.predictions[0].u.value, form.norms[0].t.value = u, 0.0
        for v in form.y:
            v.value = 0.5 * RNG.normal(size=v.shape)
        if name == "equality":
            u[1] = u[0]
        if name == "mixed":
            u += (1 - u.sum()) / N
        if name == "margin":
            u += 3 * LABELS * (trial % 2)
        form.predictions[0].u.value = u
        y = np.concatenate([np.zeros(0), *(np.ravel(v.value) for v in form.y)])
        s = split.arguments(u, y)
        value = split.value(s) + split.linear_u @ u + split.linear_y @ y + split.constant + outer.offset
        violated = any(np.max(c.violation()) > 1e-9 for c in form.outer.constraints)
        finite += not violated
        truth = np.inf if violated else float(form.outer.objective.value)
        assert value == pytest.approx(truth, rel=1e-11, abs=1e-11)
    assert finite


@pytest.mark.parametrize("name", CUT)
def test_slopes_curvatures_and_conjugates(name):
    split = split_of(CUT[name][0])[2]
    for term in split.terms:
        if isinstance(term, LogSumExp):
            continue
        s = 0.3 * RNG.normal(size=len(term.at))
        inside = np.isfinite(term.value(s))
        if not inside.all():
            continue
        v, h = term.derivative(s), 1e-6
        low, high = term.slopes()
        assert np.all((v >= low - 1e-9) & (v <= high + 1e-9))
        assert term.conjugate(v) == pytest.approx(v * s - term.value(s), rel=1e-8, abs=1e-9)
        slope = (term.value(s + h) - term.value(s - h)) / (2 * h)
        smooth = np.abs(term.derivative(s + h) - term.derivative(s - h)) < 1e-3
        assert v[smooth] == pytest.approx(slope[smooth], rel=1e-4, abs=1e-5)
        if isinstance(term, Along):
            bend = (term.derivative(s + h) - term.derivative(s - h)) / (2 * h)
            assert term.second(s)[smooth] == pytest.approx(bend[smooth], rel=1e-3, abs=1e-4)


@pytest.mark.parametrize(
    "name", ["logistic", "poisson", "logarithm", "entropy", "complement", "|q|^3", "fourth power", "root"]
)
def test_third_derivatives(name):
    rng = np.random.default_rng(0)
    for term in split_of(CUT[name][0])[2].terms:
        if not isinstance(term, Along):
            continue
        s, h = 0.3 * rng.normal(size=len(term.at)), 1e-5
        slope = (term.second(s + h) - term.second(s - h)) / (2 * h)
        assert np.isfinite(slope).all() and slope.any()
        assert term.third(s) == pytest.approx(slope, rel=1e-5, abs=1e-7 * np.abs(slope).max())


@pytest.mark.parametrize(("name", "most"), [("root", np.inf), ("logarithm", np.inf), ("reciprocal", 0.0)])
def test_conjugates_at_slope_zero_are_minus_the_infimum(name, most):
    """−√q and −log q fall without bound, 1/q tends to 0: none attains its infimum."""
    (term,) = split_of(CUT[name][0])[2].terms
    assert term.conjugate(np.zeros(len(term.at))).tolist() == [most] * len(term.at)


@np.errstate(invalid="ignore")
def test_growth_of_variables_that_stay_where_they_are():
    """A bound has an infinite slope on one side, which counts for nothing where its argument does not change."""
    split = split_of(lambda f, b: (cp.sum(losses.hinge(LABELS, f)) + cp.pos(-b), [b <= 2]))[2]
    assert [split.growth(np.array([d])) for d in (0.0, 1.0, -1.0)] == [0.0, np.inf, 1.0]


def test_third_derivatives_of_own_losses():
    """They come from differences of second ones."""
    own = ko.SmoothLoss(np.cosh, np.sinh, np.cosh)
    (term,) = split_of(lambda f, b: (3 * cp.sum(own(2 * f + b)), []))[2].terms
    s = RNG.normal(size=len(term.at))
    assert term.third(s) == pytest.approx(term.weight * term.rate**3 * np.sinh(term.rate * s), rel=1e-8)


def test_derivatives_of_log_sum_exp():
    """Slopes belong to the scores and curvature to their differences, EᵀDE; the conjugate lives on the simplex."""
    split = split_of(CUT["log-sum-exp"][0])[2]
    u, y, h = RNG.normal(size=N), RNG.normal(size=1), 1e-5
    s, E = split.arguments(u, y), split.E.toarray()
    curvature = np.zeros(len(s))
    for term in split.terms:
        curvature[term.at] = term.second(s[term.at])
        if not isinstance(term, LogSumExp):
            continue
        v = term.derivative(s[term.at])
        products = np.sum((v * s[term.at])[: term.shift.size].reshape(term.shift.shape), axis=0)
        assert term.conjugate(v) == pytest.approx(products - term.value(s[term.at]), rel=1e-10, abs=1e-12)
        assert np.all(np.isinf(term.conjugate(1.001 * v)))
        low, high = term.slopes()
        assert np.all((low <= v) & (v <= high))
    gradient = E.T @ split.derivative(s)
    value = [[split.value(split.arguments(u + t * h * e, y)) for t in (1, -1)] for e in np.eye(N)]
    assert gradient == pytest.approx(np.array([(a - b) / (2 * h) for a, b in value]), abs=1e-8)
    moved = [[E.T @ split.derivative(split.arguments(u + t * h * e, y)) for t in (1, -1)] for e in np.eye(N)]
    hessian = np.array([(a - b) / (2 * h) for a, b in moved])
    assert E.T @ (curvature[:, None] * E) == pytest.approx(hessian, abs=1e-8)


@pytest.mark.parametrize("name", CUT)
def test_kinks_add_up_to_the_functions(name):
    for term in split_of(CUT[name][0])[2].terms:
        if not isinstance(term, (Bent, Interval)):
            continue
        kinks = term.kinks()
        for scale in (0.1, 1.0, 10.0):
            s = scale * RNG.normal(size=len(term.at))
            k = s[kinks.of] - kinks.anchor
            # The supremum over a is attained where ρa = k, or at an end.
            with np.errstate(divide="ignore", invalid="ignore"):
                a = np.where(kinks.rho > 0, k / kinks.rho, np.where(k > 0, np.inf, -np.inf))
                a = np.clip(a, kinks.low, kinks.high)
                best = np.where(k == 0, 0.0, a * k) - np.where(kinks.rho > 0, 0.5 * kinks.rho * a**2, 0.0)
            total = kinks.value + kinks.slope * s + np.bincount(kinks.of, best, minlength=len(s))
            assert total == pytest.approx(term.value(s), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", WHOLE)
def test_what_does_not_fall_apart(name):
    assert split_of(WHOLE[name])[2] is None


# Single functions, and the inverse of a slope


def test_least_slopes_of_the_complement():
    """−log(1 − e^q) increases: its slope by s is ≥ 0 where q increases with s, and ≤ 0 where it decreases."""
    one, zero = np.ones(2), np.zeros(2)
    low, high = Along(np.arange(2), NegativeLogComplement(), one, np.array([1.0, -1.0]), zero).slopes()
    assert low.tolist() == [0.0, -np.inf] and high.tolist() == [np.inf, 0.0]


def test_kinks_of_a_stretch_without_a_left_end():
    """½s² up to 2 and 2s − 2 beyond is the tangent 2s − 2 and sup {a(s − 2) − ½a² : a ≤ 0}."""
    kinks = Bent(np.arange(1), one([2], [[0, 0, 1], [-2, 2, 0]])).kinks()
    assert (kinks.value.tolist(), kinks.slope.tolist()) == ([-2.0], [2.0])
    assert (kinks.low.tolist(), kinks.high.tolist()) == ([-np.inf], [0.0])
    assert (kinks.anchor.tolist(), kinks.rho.tolist()) == ([2.0], [1.0])


def test_intervals():
    """A half-line for each end, a line for a point, and nothing without ends."""
    inf = np.inf
    term = Interval(np.arange(4), np.array([-inf, 1.0, 2.0, -inf]), np.array([3.0, 1.0, 4.0, inf]))
    kinks = term.kinks()
    found = sorted(zip(kinks.of, kinks.anchor, kinks.low, kinks.high, strict=True))
    assert found == [(0, 3, 0, inf), (1, 1, -inf, inf), (2, 2, -inf, 0), (2, 4, 0, inf)]
    assert not (kinks.rho.any() or kinks.slope.any() or kinks.value.any())
    assert term.value(np.array([3.0, 1.0 + SAME / 2, 4.1, 5.0])).tolist() == [0, 0, inf, 0]
    assert term.conjugate(np.array([2.0, -2.0, -2.0, 0.0])).tolist() == [6, -2, -4, 0]
    assert term.conjugate(np.array([-2.0, 0.0, 0.0, 1.0])).tolist() == [inf, 0, 0, inf]
    low, high = term.slopes()
    assert low.tolist() == [0, -inf, -inf, 0] and high.tolist() == [inf, inf, inf, 0]


def test_curvatures_of_powers_at_0():
    """Below 2 they are those where |q|^p is rounding, above 2 they are 0."""
    one, zero = np.ones(1), np.zeros(1)
    below, above = (Along(np.arange(1), AbsolutePower(p), one, one, zero + 3.0) for p in (1.5, 2.5))
    assert below.second(zero - 3.0) == pytest.approx(0.75 * (3 * ROUNDED ** (1 / 1.5)) ** -0.5)
    assert above.second(zero - 3.0) == 0.0


def test_slopes_of_own_losses_are_attained():
    """The slopes of 2√(1 + (3s)²) are between −6 and 6, both left out."""
    sharp = ko.SmoothLoss(lambda q: np.sqrt(1 + q**2), lambda q: q / np.sqrt(1 + q**2), lambda q: (1 + q**2) ** -1.5)
    one = np.ones(1)
    low, high = Along(np.arange(1), StatedFunction(sharp, ()), 2 * one, 3 * one, 0 * one).slopes()
    assert -6 < low[0] == pytest.approx(-6, rel=1e-8)
    assert 6 > high[0] == pytest.approx(6, rel=1e-8)


def test_growth_is_relative_to_all_terms():
    """1 − ½ of 1 + ½."""
    empty = np.zeros(0)
    own = SimpleNamespace(slopes=lambda: (empty, empty), F=np.zeros((0, 2)), linear_y=np.array([1.0, -1.0]))
    assert Separable.growth(own, np.array([1.0, 0.5])) == 1.0
    own = SimpleNamespace(slopes=lambda: (-np.ones(1), np.ones(1)), F=np.ones((1, 1)), linear_y=np.array([-0.5]))
    assert Separable.growth(own, np.ones(1)) == pytest.approx(0.5 / 1.5)


def inverse(g, slope, z, start, ends):
    """Of increasing functions; with the arguments that were asked for."""
    asked = []
    found = attained(lambda q: asked.append(float(q[0])) or g(q), slope, np.array([z]), np.array([start]), ends)
    return found, asked


def test_bisection_where_newton_has_no_step():
    """Far from a steep step at 3, the derivative is 0."""
    steep = 50.0
    with np.errstate(all="ignore"):
        found, _ = inverse(
            lambda q: np.tanh(steep * (q - 3)), lambda q: steep / np.cosh(steep * (q - 3)) ** 2, 0.0, 9.0, (0.0, 10.0)
        )
    assert found.q == pytest.approx(3.0, rel=1e-12)


def test_the_ends_of_a_domain_are_not_asked_for():
    """There a loss may be infinite."""
    _, asked = inverse(lambda q: q, np.ones_like, 1.0, 0.5, (0.0, 1.0))
    assert min(asked) > 0 and max(asked) < 1


def test_steps_towards_an_infinite_end_are_bounded():
    """From 10 by at most 10, though Newton leads to −5."""
    found, asked = inverse(lambda q: q, np.ones_like, -5.0, 10.0, (-np.inf, np.inf))
    assert asked[:2] == [10.0, 0.0] and found.q == pytest.approx(-5.0)


@pytest.mark.parametrize(("slope", "z", "excess"), [(1.0, 1.0, 2.0), (2.0, 1.0, 1.0), (2.0, 0.0, 0.0)])
def test_the_excess_is_that_of_a_point_beyond_the_root(slope, z, excess):
    """From 0 by two Newton steps, for the slope that is told; a root that is met counts, and nothing is left at it."""
    ends = np.array([-np.inf]), np.array([np.inf])
    found = _excess(lambda q: q, lambda q: np.full(1, slope), np.array([z]), np.zeros(1), ends, np.zeros(1))
    assert found == pytest.approx(excess, rel=1e-12, abs=0)


def test_newtons_method_ends_where_only_rounding_is_left():
    """Though its steps come from one side of the root, so that the interval stays long."""
    found, asked = inverse(np.exp, np.exp, 11.0, 0.0, (-np.inf, np.inf))
    assert found.q == pytest.approx(np.log(11.0), rel=1e-14) and len(asked) < 30


def test_numbers_that_overflow():
    """They stay finite where the function is, so that steps can be compared."""
    one, big = np.ones(1), np.full(1, 1e4)
    for family in (Exp(), AbsolutePower(80.0)):
        term = Along(np.arange(1), family, one, one, 0 * one)
        for found in (term.value(big), term.derivative(big), term.second(big), term.third(big)):
            assert np.isfinite(found).all() and (found > 1e300).all()
    assert Along(np.arange(1), InversePower(2.0), one, one, 0 * one).value(-one).tolist() == [np.inf]


def test_conjugates_of_linear_functions():
    """The slope of 3·0.1s, which a division by the rate would move by a rounding."""
    line = ko.SmoothLoss(lambda q: 0.1 * q, lambda q: np.full_like(q, 0.1), np.zeros_like)
    rates = np.linspace(0.1, 3, 40)
    term = Along(np.arange(40), StatedFunction(line, ()), np.full(40, 3.0), rates, np.ones(40))
    assert term.conjugate(term.derivative(np.zeros(40))) == pytest.approx(-0.3, rel=1e-12)


def test_weights_of_0():
    """They leave the domain of their function alone."""
    term = Along(np.arange(3), NegativeLog(), np.array([1.0, 0.0, 0.0]), np.array([1.0, 2.0, -2.0]), np.ones(3))
    curved, interval = term.apart()
    assert curved.at.tolist() == [0] and interval.at.tolist() == [1, 2]
    assert interval.left.tolist() == [-0.5, -np.inf] and interval.right.tolist() == [np.inf, 0.5]
    assert Along(np.arange(1), Exp(), np.ones(1), np.ones(1), np.ones(1)).apart()[0].at.tolist() == [0]


def test_slopes_of_logarithms():
    """−log falls with its argument, and by as much as one likes."""
    low, high = Along(np.arange(2), NegativeLog(), np.ones(2), np.array([0.5, -0.5]), np.zeros(2)).slopes()
    assert low.tolist() == [-np.inf, pytest.approx(0.0)] and high.tolist() == [pytest.approx(0.0), np.inf]


def test_second_derivatives_of_own_losses():
    """Of 2·cosh(3s + 1): 18·cosh(3s + 1)."""
    own, one, s = ko.SmoothLoss(np.cosh, np.sinh, np.cosh), np.ones(2), np.array([0.1, -0.4])
    term = Along(np.arange(2), StatedFunction(own, ()), 2 * one, 3 * one, one)
    assert term.second(s) == pytest.approx(18 * np.cosh(3 * s + 1), rel=1e-12)


def test_kinks_of_a_far_threshold():
    """Huber's function with M = 1e9: one kink at 0 beside the line 0, where the first line is −1e18 − 2e9·s."""
    kinks = Bent(np.arange(1), huber(1e9)).kinks()
    assert (kinks.value.tolist(), kinks.slope.tolist()) == ([0.0], [0.0])
    assert (kinks.anchor.tolist(), kinks.rho.tolist()) == ([0.0], [0.5])
    assert (kinks.low.tolist(), kinks.high.tolist()) == ([-2e9], [2e9])


@pytest.mark.parametrize("point", [-3e8, -2.0, 0.5, 3.0, 5e8])
def test_kinks_beside_a_far_line(point):
    """max(−1e8·(s + 1e8), −s, s², s) with bends on both sides of the stretch at 0."""
    knots = [-1e8 * 1e8 / (1e8 - 1), -1.0, 0.5, 3.0]
    term = Bent(np.arange(1), one(knots, [[-1e16, -1e8, 0], [0, -1, 0], [0.5, 0, 1], [0.375, 0.5, 0], [-1.125, 1, 0]]))
    kinks, s = term.kinks(), np.array([point])
    k = s[kinks.of] - kinks.anchor
    with np.errstate(divide="ignore", invalid="ignore"):
        a = np.where(kinks.rho > 0, k / kinks.rho, np.copysign(np.inf, k))
    a = np.clip(np.where(k == 0, 0.0, a), kinks.low, kinks.high)
    found = kinks.value + kinks.slope * s + np.sum(np.where(k == 0, 0.0, a * k) - 0.5 * kinks.rho * a**2)
    assert found == pytest.approx(term.value(s), rel=1e-12)
    assert kinks.low.min() < -1e7 and kinks.value[0] == 0.5
