"""Rounding inside of losses: how far cvxpy's value at a point is from that of exact rationals, and what is allowed."""

from dataclasses import replace
from decimal import Decimal, getcontext
from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.certificate.sizes import inside
from kernelopt.compiler.conic_form import conic_form

U = 2.0**-53
N = 40
RNG = np.random.default_rng(15)
Y = RNG.normal(size=N)
W = RNG.normal(size=(3, N))
FAR, THIRD = 1e6, 1 / 3
TARGETS = FAR * Y / 3  # so much larger than differences from them
getcontext().prec = 60


def decimal(x):
    return Decimal(x.numerator) / Decimal(x.denominator) if isinstance(x, Fraction) else Decimal(x)


def differences(u):
    return [Fraction(THIRD) * Fraction(a) - Fraction(b) for a, b in zip(u, TARGETS, strict=True)]


def sums(u):
    products = [[Fraction(w) * Fraction(a) for w, a in zip(row, u, strict=True)] for row in W]
    return [sum(row) - Fraction(b) for row, b in zip(products, W @ (3 * TARGETS), strict=True)]


LOSSES = {
    "absolute values": (lambda u: cp.sum(cp.abs(THIRD * u - TARGETS)), lambda u: sum(map(abs, differences(u)))),
    "squares": (lambda u: cp.sum_squares(THIRD * u - TARGETS), lambda u: sum(d * d for d in differences(u))),
    "nested": (
        lambda u: cp.sum(cp.pos(cp.abs(THIRD * u - TARGETS) - 0.5)),
        lambda u: sum(max(abs(d) - Fraction(1, 2), 0) for d in differences(u)),
    ),
    "sums": (lambda u: cp.sum(cp.abs(W @ u - W @ (3 * TARGETS))), lambda u: sum(map(abs, sums(u)))),
    "squares of sums": (lambda u: cp.sum_squares(W @ u - W @ (3 * TARGETS)), lambda u: sum(s * s for s in sums(u))),
    "norms": (lambda u: cp.norm(THIRD * u - TARGETS), lambda u: decimal(sum(d * d for d in differences(u))).sqrt()),
    "exponentials": (
        lambda u: cp.sum(cp.exp(THIRD * u - TARGETS)),
        lambda u: sum(decimal(d).exp() for d in differences(u)),
    ),
    "powers": (
        lambda u: cp.sum(cp.power(cp.abs(THIRD * u - TARGETS), 1.5)),
        lambda u: sum((decimal(abs(d)) ** 3).sqrt() for d in differences(u)),
    ),
    "logarithms": (
        lambda u: -cp.sum(cp.log(THIRD * u - TARGETS + 4.0)),
        lambda u: -sum(decimal(d + 4).ln() for d in differences(u)),
    ),
}


def measured(name, step):
    """(the error of a value, what is allowed inside, T), in u, at a point `step` from the targets."""
    loss, exactly = LOSSES[name]
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    canonical = ko.Problem(cp.Minimize(loss(theta(np.arange(float(N))[:, None])))).canonical_form()
    form = conic_form(canonical)
    u = FAR * Y + step * RNG.uniform(-1, 1, size=N)
    canonical.predictions[0].u.value = u
    x = np.zeros(len(form.c))
    x[form.u[0]] = u
    value, exact = float(canonical.bare.objective.value), decimal(exactly(u))
    terms = float(abs(exact)) if name != "logarithms" else float(sum(abs(decimal(d + 4).ln()) for d in differences(u)))
    return float(abs(decimal(Fraction(value)) - exact)) / U, inside(form, x, terms, np.zeros(len(x))), terms


@pytest.mark.later
@pytest.mark.one_row
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("step", [3.0, 1e-3, 1e-9, 0.0])
def test_values_are_off_by_no_more_than_is_allowed(name, step):
    for _ in range(20):
        error, allowed, terms = measured(name, step)
        assert error <= 24 * terms + allowed


@pytest.mark.one_row
@pytest.mark.parametrize("name", LOSSES)
def test_the_allowance_is_for_what_happens(name):
    """Without it the bound would be off, and it is not beyond all measure."""
    found = [measured(name, 3.0) for _ in range(20)]
    assert any(error > 24 * terms for error, _, terms in found)
    assert all(allowed <= 1e4 * max(error for error, _, _ in found) for _, allowed, _ in found)


@pytest.mark.parametrize(
    ("loss", "counts"), [(lambda u: cp.max(u - FAR), True), (lambda u: cp.sum(cp.pos(u - FAR)), False)]
)
def test_a_row_far_below_0_counts_where_nothing_else_bounds_its_column(loss, counts):
    """max(u − 1e6) rounds as it is negative, and max(0, u − 1e6) is exactly 0."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    form = conic_form(ko.Problem(cp.Minimize(loss(theta(np.arange(3.0)[:, None])))).canonical_form())
    allowed = inside(form, np.zeros(len(form.c)), 1.0, np.zeros(len(form.c)))
    assert allowed >= FAR if counts else allowed == 0


@pytest.mark.parametrize("name", LOSSES)
def test_allowances_are_in_the_unit_of_the_objective(name):
    theta, unit = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), 2.0**-20
    form = conic_form(ko.Problem(cp.Minimize(LOSSES[name][0](theta(np.arange(float(N))[:, None])))).canonical_form())
    x, known = np.zeros(len(form.c)), np.zeros(len(form.c))
    x[form.u[0]] = FAR * Y
    small = replace(form, P=unit * form.P, c=unit * form.c)
    allowed = inside(form, x, 3.0, known)
    assert allowed > 0 and inside(small, x, unit * 3.0, known) == pytest.approx(unit * allowed, rel=1e-12)
