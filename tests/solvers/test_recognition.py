"""What could fool the recognition of losses, and what rests on it: extreme coefficients, weights of zero, units."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt import losses

KERNEL = ko.kernels.Gaussian(sigma=1.0)
X = np.array([[0.0], [1.0], [2.0]])
Y = np.array([1.0, -2.0, 3.0])


def solved(loss, strength=0.3, constraints=lambda f, theta: [], kernel=KERNEL, **options):
    theta = ko.Theta(kernel)
    f = theta(X)
    problem = ko.Problem(cp.Minimize(loss(f) + strength * ko.sum_squares(theta)), constraints(f, theta))
    problem.solve(**options)
    return problem


@pytest.mark.later
@pytest.mark.one_row
@pytest.mark.parametrize("s", [1e-8, 1e-4, 1e4])
@pytest.mark.parametrize(
    "loss",
    [
        lambda f: cp.sum(cp.square(cp.pos(1 - f))),
        lambda f: cp.sum(cp.square(cp.pos(cp.abs(f - Y) - 0.2))),
        lambda f: cp.sum_squares(f - Y),
        lambda f: cp.sum(cp.huber(f - Y, 0.5)),
        lambda f: cp.sum(cp.maximum(cp.square(f - Y), cp.abs(f))),
        lambda f: cp.sum(cp.power(cp.abs(f - Y), 1.5)),
        lambda f: cp.sum(cp.logistic(cp.multiply(Y, f))),
    ],
)
def test_predictions_in_other_units(loss, s):
    """ℓ(f/s) + λ‖θ‖²/s² is one problem for all s."""
    reference = solved(loss, solver="CLARABEL", tol=1e-8)
    problem = solved(lambda f: loss(f / s), 0.3 / s**2)
    # Squares inside of a maximum stand in second-order cones, whose rows keep their units.
    assert problem.status == "optimal" or (s == 1e-8 and problem.certificate.relative_gap < 1e-3)
    assert problem.value == pytest.approx(reference.value, rel=1e-5)
    assert problem.certificate.lower <= reference.value * (1 + 1e-7)
    assert problem.solver_stats.solver_name != "CLARABEL"


@pytest.mark.later
@pytest.mark.parametrize("place", [0, 1])
def test_one_huge_coefficient(place):
    a = np.where(np.arange(3) == place, 1e8, 1.0)
    problem = solved(lambda f: cp.sum(cp.square(cp.pos(1 - cp.multiply(a, f)))))
    f = cp.Variable(3)
    L = np.linalg.cholesky(KERNEL(X))
    w = cp.Variable(3)
    rows = [1 - a[i] * f[i] for i in range(3) if i != place]
    plain = cp.Problem(
        cp.Minimize(cp.sum_squares(cp.pos(cp.hstack(rows))) + 0.3 * cp.sum_squares(w)), [f == L @ w, f[place] >= 1e-8]
    )
    assert problem.value == pytest.approx(plain.solve(solver="CLARABEL"), rel=1e-5)


@pytest.mark.later
@pytest.mark.one_row
@pytest.mark.parametrize("first", [0.0, 1.0])
@pytest.mark.parametrize(
    "loss",
    [
        lambda f: cp.huber(f - Y, 0.5),
        lambda f: cp.square(cp.pos(1 - f)),
        lambda f: cp.power(cp.abs(f - Y), 3),
        lambda f: cp.logistic(f),
        lambda f: cp.maximum(cp.square(f - Y), f),
    ],
)
def test_weights_of_zero(loss, first):
    """They leave a row out, and need no other solver."""
    w = np.array([first, 1.0, 1.0 - first])
    problem = solved(lambda f: w @ loss(f))
    assert problem.status == "optimal"
    assert problem.solver_stats.solver_name in ("NEWTON", "INTERIOR_POINT")
    assert problem.value == pytest.approx(solved(lambda f: w @ loss(f), solver="CLARABEL").value, rel=1e-5)


@pytest.mark.later
def test_a_loss_without_weight_does_not_recede():
    w = np.array([1.0, 0.0, 1.0])
    problem = solved(lambda f: w @ cp.logistic(-f), 0.0, lambda f, theta: [ko.norm(theta) <= 100], abs_tol=1e-9)
    assert problem.status == "optimal"


@pytest.mark.slow
def test_small_predictions_meet_their_constraints():
    """Of a sum of 1e-8, −1e-8 is far from ≥ 0."""
    s, labels = 1e-8, np.array([-1.0, -1.0, 1.0])
    for solver in (None, "SCS", "CLARABEL", "INTERIOR_POINT"):
        problem = solved(
            lambda f: cp.sum(cp.logistic(-cp.multiply(labels, f) / s)), 0.0,
            lambda f, theta: [ko.norm(theta) <= 3 * s, cp.sum(f) >= 0], solver=solver,
        )  # fmt: skip
        reference = solved(
            lambda f: cp.sum(cp.logistic(-cp.multiply(labels, f))), 0.0,
            lambda f, theta: [ko.norm(theta) <= 3, cp.sum(f) >= 0], solver="CLARABEL",
        )  # fmt: skip
        if problem.certificate is not None:
            assert problem.certificate.upper >= reference.value * (1 - 1e-6)
            assert problem.certificate.lower <= reference.value * (1 + 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [3, 8, 10])
def test_classes(classes):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(40, 2))
    labels = rng.integers(0, classes, size=40)
    theta, b = ko.Theta(ko.kernels.Linear(), outputs=classes), cp.Variable((1, classes))
    F = theta(points) + np.ones((40, 1)) @ b
    loss = cp.sum(losses.multinomial(labels, F)) + 1e-3 * cp.sum_squares(b)
    problem = ko.Problem(cp.Minimize(loss + 0.1 * ko.norm(theta, "fro")), [F[:, 0] >= -0.1])
    problem.solve(solver="INTERIOR_POINT")
    assert problem.status == "optimal"


@pytest.mark.later
@pytest.mark.parametrize(
    "loss",
    [
        lambda f: cp.sum(cp.power(cp.abs(f - Y) / 3, 1.5)),
        lambda f: cp.sum(cp.power(2 * cp.pos(f - Y), 3)),
        lambda f: sum(cp.log_sum_exp(cp.hstack([f[i], -f[i], 0.3])) for i in range(3)),
        lambda f: sum(cp.log_sum_exp(cp.hstack([f[i], 2 * f[i] + 1])) for i in range(3)),
    ],
)
def test_other_words_for_it(loss):
    problem = solved(lambda f: loss(f) - f[0])
    assert problem.solver_stats.solver_name == "NEWTON"
    assert problem.value == pytest.approx(solved(lambda f: loss(f) - f[0], solver="CLARABEL").value, rel=1e-6)


def test_p_0_is_found_where_the_loss_is_infinite_at_zero():
    theta, b = ko.Theta(KERNEL), cp.Variable()
    problem = ko.Problem(cp.Minimize(cp.sum(cp.inv_pos(theta(X) + b)) + b + ko.sum_squares(theta)))
    problem.solve()
    assert problem.status == "optimal"


@pytest.mark.slow
@pytest.mark.parametrize("S", [1e6, 1e12])
def test_a_coefficient_far_below_those_of_its_neighbours(S):
    """|S·f|/S is |f|, and other functions with the same rows keep all of their arguments."""
    kinked = lambda f, S: cp.maximum(f[0], f[1] - 1) + cp.abs(S * f[2]) / S
    value = solved(lambda f: kinked(f, S)).value
    assert value == pytest.approx(solved(lambda f: kinked(f, 1.0), solver="CLARABEL").value, rel=1e-5)


@pytest.mark.parametrize("solver", ["NEWTON", "INTERIOR_POINT"])
@pytest.mark.parametrize(
    "loss",
    [
        lambda r: 0.75 * cp.square(cp.pos(r)) + 0.25 * cp.square(cp.pos(-r)),
        lambda r: cp.square(cp.pos(r - 0.3)),
        lambda r: cp.huber(r, 0.37) / 3,
    ],
)
def test_losses_whose_slope_is_continuous_have_no_kinks(solver, loss):
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 6, size=60))[:, None]
    y = np.sin(x[:, 0]) + (0.1 + 0.1 * x[:, 0]) * rng.normal(size=60)
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum(loss(y - theta(x))) + 0.1 * ko.sum_squares(theta)))
    problem.solve(solver=solver)
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(problem.solve(solver="CLARABEL", tol=1e-8), rel=1e-6)


@pytest.mark.later
@pytest.mark.one_row
@pytest.mark.parametrize("parameter", [False, True])
@pytest.mark.parametrize("weights", [[0.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
@pytest.mark.parametrize(
    ("loss", "domain"),
    [
        (lambda f: -cp.log(f + 0.3), -0.3),
        (lambda f: -cp.entr(f + 0.3), -0.3),
        (lambda f: cp.inv_pos(f + 0.3), -0.3),
        (lambda f: cp.exp(f), -np.inf),
        (lambda f: cp.pos(1 - f), -np.inf),
    ],
)
def test_what_a_weight_of_zero_leaves_is_the_domain(loss, domain, weights, parameter):
    w = cp.Parameter(3, nonneg=True, value=np.array(weights)) if parameter else np.array(weights)
    fall = np.array([1.0, 0.0, 0.0])  # f₀ goes as low as it may
    problem = solved(lambda f: w @ loss(f) + 2 * fall @ f)
    left = np.flatnonzero(weights)
    reference = solved(
        lambda f: (np.array(weights)[left] @ loss(f[left]) if len(left) else 0.0) + 2 * fall @ f,
        constraints=lambda f, theta: [f >= domain] if np.isfinite(domain) else [], solver="CLARABEL",
    )  # fmt: skip
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(reference.value, rel=1e-5)


def test_an_exponential_of_weight_zero_may_overflow():
    """minimize −f₀ + λ‖θ‖² has f₀ = 1/2λ = 5000, of which 0·exp(f₀) is nan."""
    theta = ko.Theta(ko.kernels.Delta())
    u = theta(X)
    problem = ko.Problem(cp.Minimize(np.array([0.0, 1, 1]) @ cp.exp(u) - cp.sum(u) + 1e-4 * ko.sum_squares(theta)))
    problem.solve()
    assert problem.status == "optimal"
    assert u.value[0] == pytest.approx(5000, rel=1e-5)
    assert problem.value == pytest.approx(-2500 + 2, rel=1e-5)
