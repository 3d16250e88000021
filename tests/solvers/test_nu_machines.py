"""Support vector machines whose coefficients have a given sum: recognized, and begun from libsvm's point."""

import cvxpy as cp
import numpy as np
import pytest
from inside import reduction_of
from sklearn.svm import NuSVC, NuSVR, OneClassSVM

import kernelopt as ko
from kernelopt.solvers import active_set, assemble, libsvm
from kernelopt.solvers.nu_machines import NuForm, nu_machine_of
from kernelopt.solvers.watch import Watch

RNG = np.random.default_rng(0)
N, SIGMA = 150, 2.0
X = RNG.normal(size=(N, 4))
LABELS = np.sign(X[:, 0] + 0.5 * RNG.normal(size=N))
TARGET = np.sin(2 * X[:, 0]) + 0.3 * RNG.normal(size=N)
WEIGHTS = RNG.uniform(0.5, 2.0, size=N)


def classification(f, rho, weights=1.0):
    return cp.sum(cp.multiply(weights * np.ones(N), cp.pos(rho - cp.multiply(LABELS, f)))) - 0.3 * N * rho


def regression(f, width, target=TARGET):
    return cp.sum(cp.pos(target - f - width) + cp.pos(f - target - width)) + 0.3 * N * width


def one_class(f, rho):
    return cp.sum(cp.pos(rho - f)) - 0.2 * N * rho


KNOWN = {
    "nu-svc": (classification, 1.0, NuForm.SVC),
    "nu-svc with weights": (lambda f, rho: classification(f, rho, WEIGHTS), 1.0, NuForm.SVC),
    "nu-svc, another column": (classification, -2.0, NuForm.SVC),
    "nu-svc, small units": (lambda f, rho: 1e-8 * classification(f, rho), 1.0, NuForm.SVC),
    "nu-svr": (regression, 1.0, NuForm.SVR),
    "nu-svr, another column": (regression, -0.5, NuForm.SVR),
    "nu-svr, large units": (lambda f, width: 1e6 * regression(f, width, 1e6 * TARGET), 1.0, NuForm.SVR),
    "one class": (one_class, 0.0, NuForm.ONE_CLASS),
    "nu-svc without an intercept": (classification, 0.0, NuForm.ONE_CLASS),
}


def unequal(f, width, widths=1.0, heights=1.0):
    return heights * cp.sum(cp.pos(TARGET - f - width)) + cp.sum(cp.pos(f - TARGET - widths * width)) + width


UNEQUAL = {
    "two margins": (lambda f, rho: classification(f, rho) + cp.sum(cp.pos(1 - f)), 1.0),
    "a cost of b": (lambda f, rho: classification(f, rho) + 0.1 * f[0], 1.0),
    "rows of rho alone": (lambda f, rho: classification(f, rho) + cp.pos(rho - 1), 1.0),
    "unequal widths": (lambda f, width: unequal(f, width, widths=2.0), 1.0),
    "unequal heights": (lambda f, width: unequal(f, width, heights=2.0), 1.0),
}


def stated(loss, column):
    theta, b, rho = ko.Theta(ko.kernels.Gaussian(sigma=SIGMA)), cp.Variable(), cp.Variable()
    f = theta(X) + column * b if column else theta(X)
    return ko.Problem(cp.Minimize(0.5 * ko.sum_squares(theta) + loss(f, rho))), theta, b, rho


def machine_in(problem):
    split = problem._outer().split
    kinks, slope, _ = assemble._kinks(split)
    return nu_machine_of(kinks, slope, split.F, split.linear_y)


@pytest.mark.parametrize("name", KNOWN)
def test_first_point(name):
    """libsvm's point is near the optimum, and active sets end from there in a few systems."""
    loss, column, form = KNOWN[name]
    problem, *_ = stated(loss, column)
    problem.solve()
    assert machine_in(problem).form is form
    inner = assemble.structured(reduction_of(problem), problem._outer(), {0: 1.0})
    point = libsvm.first_point(inner, np.inf)
    whole = libsvm.completed(inner, point)
    assert whole.gap <= 0.1 * abs(problem.value)
    assert point.s == pytest.approx(whole.s, rel=1e-9, abs=1e-9 * np.abs(whole.s).max())
    watch = Watch("", 1e-9, 1e-12 * abs(problem.value), abs(problem.value))
    found = active_set.solve(inner, watch, point, fits=True)
    assert found is not None and watch.systems <= 6
    assert libsvm.first_point(inner, np.inf, near=whole) is None  # a neighbour leaves out no rows


@pytest.mark.parametrize("name", UNEQUAL)
def test_other_problems_are_no_machines(name):
    problem, *_ = stated(*UNEQUAL[name])
    problem.solve()
    assert problem._outer().split is not None
    assert machine_in(problem) is None


def test_answers_are_those_of_scikit_learn():
    gamma, points = 1 / (2 * SIGMA**2), RNG.normal(size=(20, 4))
    cases = (
        (classification, 1.0, NuSVC(nu=0.3, gamma=gamma, tol=1e-9).fit(X, LABELS), True),
        (regression, 1.0, NuSVR(nu=0.3, gamma=gamma, tol=1e-9).fit(X, TARGET), False),
        (one_class, 0.0, OneClassSVM(nu=0.2, gamma=gamma, tol=1e-9).fit(X), False),
    )
    for loss, column, peer, relative in cases:
        problem, theta, b, rho = stated(loss, column)
        problem.solve(tol=1e-9)
        assert problem.status == "optimal"
        f = theta.value(points) + (b.value if column else -rho.value)
        expected = peer.predict(points) if loss is regression else peer.decision_function(points)
        assert (f / rho.value if relative else f) == pytest.approx(expected, abs=1e-5 * np.abs(expected).max())


def test_without_a_point_others_answer(monkeypatch):
    """libsvm may have none: no function of that kind, a ν that is too large, coefficients that are not finite."""
    loss, column, _ = KNOWN["nu-svc"]
    problem, *_ = stated(loss, column)
    problem.solve()
    inner = assemble.structured(reduction_of(problem), problem._outer(), {0: 1.0})

    def broken(*arguments, **options):
        raise ValueError("Specified nu is infeasible")

    def unbounded(*arguments, **options):
        return np.arange(N), None, None, np.full((1, N), np.inf), np.zeros(1)

    for fit in broken, unbounded:
        monkeypatch.setattr(libsvm, "_low_level", lambda fit=fit: lambda y, K, height, options: fit())
        assert libsvm.first_point(inner, np.inf) is None
    monkeypatch.setattr(libsvm, "_low_level", lambda: None)
    assert libsvm.first_point(inner, np.inf) is None
    again, *_ = stated(loss, column)
    again.solve()
    assert again.status == "optimal" and again.value == pytest.approx(problem.value, rel=1e-5)


@pytest.mark.parametrize("share", [1.0, 1 - 1e-12])
def test_libsvm_has_no_one_class_problem_with_all_rows_at_their_ends(share):
    """Its first point would be written beyond the last row where the sum rounds."""
    weights = RNG.uniform(0.5, 2.0, size=N)

    def all_rows(f, rho):
        return weights @ cp.pos(rho - f) - share * float(weights.sum()) * rho

    problem, *_ = stated(all_rows, 0.0)
    problem.solve()
    inner = assemble.structured(reduction_of(problem), problem._outer(), {0: 1.0})
    assert libsvm.first_point(inner, np.inf) is None
