"""Attributes of cvxpy's variables with each solver, beside plain cvxpy with Bw for Aθ and each choice of integers."""

import warnings

import cvxpy as cp
import numpy as np
import pytest
from border import ATTRIBUTES, WHOLE, ByHand, Draw, InKernel, attributes
from fuzzing_border import Stated, truth

import kernelopt as ko

X = np.random.default_rng(5).normal(size=(6, 2))
Y = np.random.default_rng(6).normal(size=6)
SOLVERS = ("CLARABEL", "OSQP", "ECOS", "SCS", "HIGHS", "ECOS_BB")


def test_each_attribute_has_a_row():
    assert attributes() <= set(ATTRIBUTES)


def real(v):
    return cp.imag(v) if v.is_imag() else cp.real(v) if v.is_complex() else v


def stated(language, name, size):
    d = Draw(language(ko.kernels.Gaussian(sigma=1.0), X, None), np.random.default_rng(7), name, False)
    y, lam = cp.Parameter(6, value=size * Y), cp.Parameter(nonneg=True, value=0.4)
    f = d.language.predictions(np.arange(6)) + 0.5 * d.of_v(6)
    cost = cp.sum_squares(y - f) + lam * d.language.sum_squares() + 0.1 * cp.sum(cp.abs(real(d.v)))
    return Stated(cp.Minimize(cost), [f[:2] <= 0.3, cp.sum(real(d.v)) <= 0.35], lam, d, y)


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTRIBUTES)
def test_value_bounds_and_multipliers(name):
    solved(name, [None, "HIGHS"])


@pytest.mark.slow
@pytest.mark.parametrize("solver", SOLVERS)
def test_bounds_with_each_solver(solver):
    if solver not in cp.installed_solvers():
        pytest.skip(f"{solver} is not installed")
    solved("bounds_arrays", [solver])


def solved(name, solvers):
    """Also after Parameters change: y is 50 times larger, so that the solver's units are others than the variable's."""
    by_hand, ours = stated(ByHand, name, 1.0), stated(InKernel, name, 1.0)
    problem = ko.Problem(ours.objective, ours.constraints)
    count = 0
    for size in (1.0, 50.0):
        ours.criterion.value = by_hand.criterion.value = size * Y
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of cvxpy about sparse values
            known = truth(by_hand)
        for solver in solvers:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of cvxpy, about ECOS_BB and sparse values
                    problem.solve(**({} if solver is None else {"solver": solver}))
            except ko.errors.SolverError:
                assert solver is not None  # by default some solver takes it
                continue
            count += 1
            slack = 1e-5 * abs(known.value)
            assert problem.status == "optimal" and problem.value == pytest.approx(known.value, abs=slack)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of cvxpy about sparse values
                assert all(np.max(c.violation()) <= 1e-6 * size for c in ours.constraints)
                assert all(np.max(c.violation()) <= 1e-9 * size for c in ours.draw.v.domain)
            if name not in WHOLE:
                assert problem.certificate.lower - slack <= known.value <= problem.certificate.upper + slack
                for c, d in zip(ours.constraints, by_hand.constraints, strict=True):
                    np.testing.assert_allclose(c.dual_value, d.dual_value, rtol=1e-3, atol=1e-3 * size)
    assert count >= 2
