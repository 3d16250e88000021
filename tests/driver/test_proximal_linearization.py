"""Nonconvex losses beside constraints, kinks, norms and coupled rows, by convex models with certificates."""

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import NonlinearConstraint, minimize

import kernelopt as ko
from kernelopt.errors import SolverError

N = 60
RNG = np.random.default_rng(0)
X = np.linspace(0, 6, N)[:, None]
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=N)
Y[RNG.permutation(N)[: N // 5]] += RNG.uniform(3, 8, N // 5)
SIGMA, LAM, TOP = 1.0, 0.1, 0.8


def cauchy():
    return ko.SmoothLoss(
        lambda u, y: np.log1p((u - y) ** 2), lambda u, y: 2 * (u - y) / (1 + (u - y) ** 2),
        lambda u, y: (2 - 2 * (u - y) ** 2) / (1 + (u - y) ** 2) ** 2, curvature="nonconvex",
    )  # fmt: skip


def tukey():
    def clipped(u, y):
        return np.minimum((u - y) ** 2, 1)

    return ko.SmoothLoss(
        lambda u, y: 1 - (1 - clipped(u, y)) ** 3,
        lambda u, y: 6 * (u - y) * (1 - clipped(u, y)) ** 2,
        lambda u, y: np.where((u - y) ** 2 < 1, 6 * (1 - (u - y) ** 2) * (1 - 5 * (u - y) ** 2), 0.0),
        curvature="nonconvex",
    )


LOSSES = {"cauchy": (cauchy, lambda r: np.log1p(r**2)), "tukey": (tukey, lambda r: 1 - (1 - np.minimum(r**2, 1)) ** 3)}
# Terms and constraints beside the loss, of f and θ, and the same for predictions and the square of the norm.
BESIDE = {
    "bounds": (lambda f, theta: (LAM * ko.sum_squares(theta), [f <= TOP]), lambda f, q: LAM * q, lambda f, q: TOP - f),
    "a ball": (lambda f, theta: (0, [ko.norm(theta) <= 1.5]), lambda f, q: 0.0, lambda f, q: 2.25 - q),
    "a norm": (lambda f, theta: (2 * ko.norm(theta), []), lambda f, q: 2 * np.sqrt(q), None),
    "coupled rows": (
        lambda f, theta: (LAM * ko.sum_squares(theta), [cp.norm(f[:10]) <= 2]),
        lambda f, q: LAM * q, lambda f, q: 4 - f[:10] @ f[:10],
    ),
    "two-sided": (
        lambda f, theta: (LAM * ko.sum_squares(theta), [cp.sum(f) == 5, f[0] >= 0.2]),
        lambda f, q: LAM * q, lambda f, q: np.array([np.sum(f) - 5, 5 - np.sum(f), f[0] - 0.2]),
    ),
}  # fmt: skip


def stated(loss, beside, weights=None):
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=SIGMA)), cp.Variable()
    f = theta(X) + b
    extra, constraints = BESIDE[beside][0](f, theta)
    terms = LOSSES[loss][0]()(f, Y)
    misfit = cp.sum(terms) if weights is None else weights @ terms
    return ko.Problem(cp.Minimize(misfit + extra), constraints), theta, b, f


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("loss", LOSSES)
def test_no_descent_is_left(loss, beside):
    """A general solver in explicit coordinates, from the answer on, gains no more than rounding."""
    problem, theta, b, f = stated(loss, beside)
    problem.solve()
    assert problem.status == "locally_optimal" and problem.certificate is None
    assert problem.solver_stats.solver_name == "PROXIMAL_LINEARIZATION"
    report = problem.verify()
    assert report.passed and report["stationarity"].number <= 1e-6
    values, vectors = np.linalg.eigh(theta.kernel(X, X))
    B = vectors[:, values > 1e-8] * np.sqrt(values[values > 1e-8])
    cost, penalty, slack = LOSSES[loss][1], BESIDE[beside][1], BESIDE[beside][2]

    def objective(z):
        predictions = B @ z[:-1] + z[-1]
        return np.sum(cost(predictions - Y)) + penalty(predictions, z[:-1] @ z[:-1])

    start = np.append(np.linalg.lstsq(B, f.value - b.value, rcond=None)[0], b.value)
    assert objective(start) == pytest.approx(problem.value, rel=1e-5)
    limits = [] if slack is None else [
        NonlinearConstraint(lambda z: slack(B @ z[:-1] + z[-1], z[:-1] @ z[:-1]), -1e-9, np.inf)
    ]  # fmt: skip
    other = minimize(objective, start, method="SLSQP", constraints=limits, options={"maxiter": 200, "ftol": 1e-12})
    assert other.fun >= problem.value - 1e-6 * abs(problem.value)


def test_the_same_as_levenberg_and_marquardt():
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=SIGMA)), cp.Variable()
    for make, _ in LOSSES.values():
        problem = ko.Problem(cp.Minimize(cp.sum(make()(theta(X) + b, Y)) + LAM * ko.sum_squares(theta)))
        assert problem.solvers().applicable == ["LEVENBERG_MARQUARDT", "PROXIMAL_LINEARIZATION"]
        problem.solve()
        known = problem.value
        assert problem.solver_stats.solver_name == "LEVENBERG_MARQUARDT"
        problem.solve(solver="proximal_linearization")
        assert problem.status == "locally_optimal" and problem.value == pytest.approx(known, rel=1e-6)


def test_multipliers_are_those_of_the_stated_problem():
    problem, theta, b, f = stated("cauchy", "bounds")
    problem.solve(tol=1e-8)
    (top,) = problem.constraints
    r = f.value - Y
    slope = 2 * r / (1 + r**2) + top.dual_value
    assert np.all(top.dual_value >= 0) and top.dual_value @ (TOP - f.value) <= 1e-4
    assert abs(slope.sum()) <= 1e-3  # stationary in b
    gradient = theta.kernel(X, X) @ slope + 2 * LAM * (f.value - b.value)  # and in θ, at the points
    assert np.abs(gradient).max() <= 1e-3


def test_maximize_weights_outputs_and_starts():
    weights = np.linspace(0.5, 1.5, N)
    problem, theta, _, f = stated("cauchy", "bounds", weights)
    problem.solve()
    other = ko.Problem(cp.Maximize(-(weights @ cauchy()(f, Y)) - LAM * ko.sum_squares(theta)), [f <= TOP])
    other.solve()
    assert other.value == pytest.approx(-problem.value, rel=1e-6)
    values = []
    for _ in range(2):
        problem.solve(n_init=3, random_state=1)
        values.append(problem.value)
    assert values[0] == pytest.approx(values[1], rel=1e-9)
    assert values[0] <= -other.value * (1 + 1e-6)
    problem.solve(warm_start=True)
    assert problem.solver_stats.num_iters <= 2
    many = ko.Theta(ko.kernels.Gaussian(sigma=SIGMA), outputs=2)
    objective = cp.sum(cauchy()(many(X), np.stack([Y, -Y], axis=1))) + LAM * ko.sum_squares(many)
    balls = ko.Problem(cp.Minimize(objective), [cp.norm(many(X[:5]), axis=1) <= 0.5])
    balls.solve(n_init=2, random_state=0)
    assert balls.status == "locally_optimal" and balls.verify().passed
    assert np.linalg.norm(many(X[:5]).value, axis=1).max() <= 0.5 + 1e-6


def test_gradients_of_an_answer():
    """Against differences of refits."""
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=SIGMA)), cp.Variable()
    lam, f = cp.Parameter(pos=True, value=LAM), theta(X) + b
    problem = ko.Problem(cp.Minimize(cp.sum(cauchy()(f, Y)) + lam * ko.sum_squares(theta)), [f <= TOP])
    criterion, ends = cp.sum_squares(f - 1), []
    problem.solve(tol=1e-10)
    found = ko.gradient(problem, criterion)
    assert found.is_differentiable
    for value in (LAM + 1e-3, LAM - 1e-3):
        lam.value = value
        problem.solve(tol=1e-10, warm_start=True)
        ends.append(criterion.value)
    assert found[lam] == pytest.approx((ends[0] - ends[1]) / 2e-3, rel=5e-2)  # refits are as accurate


def test_no_answer_and_limits():
    problem, _, _, f = stated("tukey", "bounds")
    nothing = ko.Problem(problem.objective, [f <= TOP, f[0] >= 1])
    nothing.solve()
    assert nothing.status == "infeasible"
    problem.solve(time_limit=1e-9)
    assert problem.status == "user_limit"
    problem.solve(max_rank=3)
    assert problem.status == "user_limit" and problem.verify()["stationarity"].passed is False


def test_a_point_that_is_not_stationary_fails_its_check():
    problem, theta, _, _ = stated("cauchy", "bounds")
    problem.solve()
    theta.value = ko.Function(theta.kernel, theta.value.centers, 0.9 * theta.value.coefficients)
    assert problem.verify().passed is False


def test_what_is_refused():
    problem, theta, _, f = stated("cauchy", "bounds")
    with pytest.raises(SolverError, match="summed in the minimized objective"):
        ko.Problem(cp.Minimize(ko.sum_squares(theta)), [cp.sum(cauchy()(f, Y)) <= 10]).solve()
    with pytest.raises(SolverError, match="Solvers that take the problem: PROXIMAL_LINEARIZATION"):
        problem.solve(solver="CLARABEL")
    with pytest.raises(ko.errors.OptionError, match="no solver options, as PROXIMAL_LINEARIZATION has none"):
        problem.solve(solver="PROXIMAL_LINEARIZATION", max_iter=3)
    convex = ko.Problem(cp.Minimize(cp.sum_squares(f - Y) + ko.sum_squares(theta)))
    with pytest.raises(SolverError, match="is for losses that are declared nonconvex"):
        convex.solve(solver="PROXIMAL_LINEARIZATION")
    assert "PROXIMAL_LINEARIZATION" not in convex.solvers()
    chosen = cp.Variable(boolean=True)
    with pytest.raises(SolverError, match="integer"):
        ko.Problem(problem.objective, [f <= TOP + chosen]).solve()


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_stationary_where_predictions_are_far_from_0(offset):
    """The models' squares are large at θ = 0, which is no unit of the stated problem. One convex step, from the answer
    on, with the largest curvature of the loss, gains nothing."""
    y = offset + np.sin(X[:, 0]) + np.where(np.arange(N) % 5 == 0, 4.0, 0.0)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=SIGMA))
    f = theta(X)
    problem = ko.Problem(cp.Minimize(cp.sum(cauchy()(f, y)) + 0.01 * ko.norm(theta)), [f <= offset + TOP])
    problem.solve()
    assert problem.status == "locally_optimal" and problem.verify().passed
    values, vectors = np.linalg.eigh(theta.kernel(X, X))
    B = vectors[:, values > 1e-9] * np.sqrt(values[values > 1e-9])
    v, r = np.linalg.lstsq(B, f.value, rcond=None)[0], f.value - y
    d = cp.Variable(len(v))
    model = (2 * r / (1 + r**2)) @ (B @ d) + cp.sum_squares(B @ d) + 0.01 * cp.norm(v + d)
    cp.Problem(cp.Minimize(model), [B @ d <= offset + TOP - B @ v]).solve(solver="CLARABEL")
    moved = np.sum(np.log1p((B @ (v + d.value) - y) ** 2)) + 0.01 * np.linalg.norm(v + d.value)
    at_zero = np.sum(np.log1p(y**2))
    assert moved >= problem.value - 1e-6 * max(problem.value, at_zero - problem.value)


def test_stationary_in_the_span_of_the_factor_is_not_enough():
    theta = ko.Theta(ko.kernels.Gaussian(sigma=0.7))
    f = theta(X)
    problem = ko.Problem(cp.Minimize(cp.sum(cauchy()(f, Y))), [f <= 1.2])
    problem.solve(max_rank=3)
    assert problem.status == "user_limit" and not problem.verify().passed
