"""The smooth function that the inner iterations minimize."""

from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
from inside import reduction_of

import kernelopt as ko
from kernelopt import losses
from kernelopt.compiler.separable import outer_of
from kernelopt.solvers import assemble, augmented_lagrangian
from kernelopt.solvers.augmented_lagrangian import smoothed
from kernelopt.solvers.dual_point import Point
from kernelopt.solvers.watch import Watch

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 2)), RNG.normal(size=12)
LOSSES = {
    "kinks": lambda f: losses.pinball(Y, f, 0.3),
    "curved stretches": lambda f: losses.huber(Y, f, 0.4),
    "kinks and smooth functions": lambda f: losses.hinge(np.sign(Y), f) + losses.log_loss(np.sign(Y), f),
}


# Without a proximal term (σ = ∞) kinks stay kinks.
CASES = [(name, sigma) for name in LOSSES for sigma in (0.3, 5.0)] + [("curved stretches", np.inf)]


@pytest.mark.parametrize(("name", "sigma"), CASES)
def test_gradient_and_curvature_are_those_of_the_value(name, sigma):
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(cp.sum(LOSSES[name](theta(X))) + ko.sum_squares(theta)))
    problem.solve()
    structured = assemble.structured(reduction_of(problem), outer_of(problem.canonical_form()), {0: 1.0})
    rng = np.random.default_rng(1)
    a0 = rng.uniform(structured.low, structured.high)
    with np.errstate(divide="ignore", invalid="ignore"):
        function = smoothed(structured, a0, sigma)
        s, h = rng.normal(size=structured.E.shape[0]), 1e-6
        here = function(s)
        for j, e in enumerate(h * np.eye(len(s))):
            after, before = function(s + e), function(s - e)
            assert here.gradient[j] == pytest.approx((after.value - before.value) / (2 * h), rel=1e-5, abs=1e-7)
            slope = (after.gradient[j] - before.gradient[j]) / (2 * h)
            assert here.curvature[j] == pytest.approx(slope, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("first", [None, "a point of libsvm"])
def test_finer_points_of_libsvm_follow_a_first_one(monkeypatch, first):
    """Without a factor they are tried where libsvm had a point, before the proximal point method."""
    zero, called = np.zeros(1), []
    answer = Point(zero, zero, zero, zero, 0.0, 1.0, 0.0, 1.0)
    monkeypatch.setattr(augmented_lagrangian, "_by_libsvm", lambda *_: (None, first))
    monkeypatch.setattr(augmented_lagrangian, "_from_finer_points", lambda *_: called.append("finer"))
    monkeypatch.setattr(augmented_lagrangian.proximal_point, "solve", lambda *_: called.append("proximal") or answer)
    found = augmented_lagrangian.solve(SimpleNamespace(orthonormal=False), Watch("", 1e-6, 0.0, 1.0))
    assert found.primal == 1.0
    assert called == (["proximal"] if first is None else ["finer", "proximal"])


@pytest.mark.parametrize("sigma", [np.inf, 1.0])
def test_it_gives_up_where_no_gap_is_finite(monkeypatch, sigma):
    """With and without a proximal term."""
    zero, tried = np.zeros(1), []
    nowhere = Point(zero, zero, zero, zero, np.inf, 1.0, 0.0, np.inf)

    def minimized(*_):
        tried.append(1)
        assert len(tried) <= augmented_lagrangian.FLAT
        return SimpleNamespace(x=zero, s=zero, gradient=zero), 1

    monkeypatch.setattr(augmented_lagrangian, "judged", lambda *_: nowhere)
    monkeypatch.setattr(augmented_lagrangian, "next_multipliers", lambda *_: zero)
    monkeypatch.setattr(augmented_lagrangian, "_minimized", minimized)
    problem = SimpleNamespace(blocks=[np.eye(1)], products=lambda x: x, smooth_gradient=lambda s: s)
    systems = SimpleNamespace(watch=Watch("", 1e-6, 0.0, 1.0), known=None)
    found = augmented_lagrangian._at_rank(problem, systems, nowhere, sigma, np.inf, coarse=False)
    assert tried and found.stopped is None
