"""Cox's partial likelihood: the atom, its cones, and Newton's method on them."""

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import minimize

import kernelopt as ko
from kernelopt.errors import DataError, DCPError, KernelOptError, OptionError
from kernelopt.language.survival import RiskSets

RNG = np.random.default_rng(0)


def survival(N, ties=False, rng=None):
    rng = rng or np.random.default_rng(1)
    X = rng.normal(size=(N, 3))
    time, censored = rng.exponential(np.exp(-np.sin(X[:, 0]) - X[:, 1] / 2)), rng.exponential(2.0, size=N)
    event = time <= censored
    event[0] = True
    time = np.minimum(time, censored)
    return X, np.ceil(5 * time) if ties else time, event


def written_out(time, event, u):
    return sum(np.log(np.exp(u[time >= time[i]]).sum()) - u[i] for i in np.flatnonzero(event))


def efron(time, event, u):
    """Efron's terms one by one."""
    total = -u[event].sum()
    for t in np.unique(time[event]):
        own = np.exp(u[event & (time == t)])
        at_risk = np.exp(u[time >= t]).sum()
        total += sum(np.log(at_risk - before / len(own) * own.sum()) for before in range(len(own)))
    return total


FORMULAS = {"breslow": written_out, "efron": efron}


@pytest.mark.parametrize("terms", FORMULAS)
@pytest.mark.parametrize("ties", [False, True])
def test_value_and_gradient(ties, terms):
    _, time, event = survival(40, ties)
    u = cp.Variable(40, value=RNG.normal(size=40))
    loss = ko.losses.cox(time, event, 2 * u - 1, ties=terms)
    assert loss.is_convex() and loss.shape == ()
    assert loss.value == pytest.approx(FORMULAS[terms](time, event, 2 * u.value - 1), rel=1e-13)
    gradient, h, v = loss.grad[u].toarray().ravel(), 1e-6, u.value
    for i in range(40):
        ends = []
        for sign in (1, -1):
            u.value = v + sign * h * np.eye(40)[i]
            ends.append(loss.value)
        assert gradient[i] == pytest.approx((ends[0] - ends[1]) / (2 * h), abs=1e-7)


def test_far_apart():
    """Totals of risk sets neither overflow nor vanish."""
    sets = RiskSets(np.array([1.0, 2.0, 3.0]), np.array([True, True, True]))
    assert sets.log_totals(np.array([800.0, -900.0, -1000.0])) == pytest.approx([800.0, -900.0, -1000.0])
    u = cp.Variable(3, value=np.array([900.0, 899.0, 0.0]))
    gradient = ko.losses.cox([1.0, 2.0, 3.0], [1, 0, 0], u).grad[u].toarray().ravel()
    share = 1 / (1 + np.exp(-1.0))
    assert gradient == pytest.approx([share - 1, 1 - share, 0.0])


@pytest.mark.slow
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("N", [2, 5, 60, 300])
def test_solved(N, ties):
    X, time, event = survival(N, ties)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.5))
    problem = ko.Problem(cp.Minimize(ko.losses.cox(time, event, theta(X)) + 0.5 * ko.sum_squares(theta)))
    problem.solve()
    assert problem.status == "optimal" and problem.certificate.assumptions == ()
    if N > 5:
        assert problem.solver_stats.solver_name == "NEWTON"
    assert problem.verify().passed
    sizes, V = np.linalg.eigh(theta.kernel(X))
    F = V * np.sqrt(np.maximum(sizes, 0.0))
    d = time[:, None] <= time[None, :]

    def value(w):
        """In coordinates in which ‖θ‖ = ‖w‖, so that the method needs few steps."""
        u = F @ w
        totals = d @ np.exp(u)
        slope = np.exp(u) * ((event / totals) @ d) - event
        return np.log(totals)[event].sum() - u[event].sum() + 0.5 * w @ w, F.T @ slope + w

    options = {"maxfun": 10**6, "maxiter": 10**5, "ftol": 1e-15, "gtol": 1e-9}
    found = minimize(value, np.zeros(N), jac=True, method="L-BFGS-B", options=options)
    rounding = 1e-9 * abs(found.fun) + 1e-12
    assert -rounding <= problem.value - found.fun <= problem.certificate.absolute_gap + rounding
    assert problem.certificate.lower <= found.fun * (1 + 1e-12) + 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("N", [3, 60, 200])
def test_ties_by_efron(N):
    X, time, event = survival(N, ties=True)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.5))
    loss = ko.losses.cox(time, event, theta(X), ties="efron")
    problem = ko.Problem(cp.Minimize(loss + 0.5 * ko.sum_squares(theta)))
    problem.solve()
    assert problem.status == "optimal" and problem.certificate.assumptions == ()
    L = np.linalg.cholesky(theta.kernel(X) + 1e-12 * np.eye(N))
    found = minimize(lambda v: efron(time, event, L @ v) + 0.5 * v @ v, np.zeros(N), tol=1e-10)
    assert problem.value == pytest.approx(found.fun, rel=1e-6)
    other = ko.Problem(problem.objective).solve(solver="CLARABEL")
    assert other == pytest.approx(problem.value, rel=1e-6)


def test_the_terms_agree_without_ties():
    _, time, event = survival(40)
    u = cp.Constant(RNG.normal(size=40))
    values = [ko.losses.cox(time, event, u, ties=terms).value for terms in FORMULAS]
    assert values[0] == pytest.approx(values[1], rel=1e-14)
    with pytest.raises(OptionError, match='Expected ties to be "breslow" or "efron"'):
        ko.losses.cox(time, event, u, ties="exact")


@pytest.mark.slow
def test_other_terms_and_constraints():
    """Beside other losses, constraints and norms; and cvxpy's solvers agree."""
    X, time, event = survival(60)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.5))
    f = theta(X)
    loss = ko.losses.cox(time, event, f)
    for objective, constraints in (
        (loss + 0.3 * ko.sum_squares(theta) + 0.1 * cp.norm1(f), []),
        (loss + 0.3 * ko.sum_squares(theta), [f[:5] <= 0.1]),
        (loss + 2.0 * ko.norm(theta), []),
        (2 * loss + cp.sum_squares(f), [ko.norm(theta) <= 1.0]),
    ):
        problem = ko.Problem(cp.Minimize(objective), constraints)
        values = []
        for options in ({}, {"solver": "CLARABEL"}):
            problem.solve(**options)
            assert problem.status == "optimal"
            values.append(problem.value)
        assert problem.solvers().chosen != "CLARABEL"
        assert values[0] == pytest.approx(values[1], rel=2e-6)


@pytest.mark.later
def test_without_theta():
    """On a variable alone, beside θ in another term; a cp.Problem says what to write."""
    X, time, event = survival(50, ties=True)
    w, theta = cp.Variable(3), ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    loss = ko.losses.cox(time, event, X @ w) + 0.1 * cp.sum_squares(w)
    problem = ko.Problem(cp.Minimize(loss + cp.sum_squares(theta(X) - 1) + ko.sum_squares(theta)))
    problem.solve()
    found = minimize(lambda w: written_out(time, event, X @ w) + 0.1 * w @ w, np.zeros(3))
    assert loss.value == pytest.approx(found.fun, rel=1e-6)
    assert w.value == pytest.approx(found.x, abs=1e-3)
    with pytest.raises(DCPError, match="ko.Problem"):
        cp.Problem(cp.Minimize(loss)).solve()


@pytest.mark.slow
def test_in_constraints_and_functions():
    """A bound holds at the answer, by exponential cones; inside of a function that increases for positive numbers only
    it is refused, as anything of unknown sign is."""
    X, time, event = survival(30)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.5))
    loss = ko.losses.cox(time, event, theta(X))
    theta.value = ko.Function(theta.kernel, X[:1], np.zeros(1))
    most = 0.8 * loss.value
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [loss <= most])
    problem.solve()
    assert problem.status == "optimal" and loss.value == pytest.approx(most, rel=1e-5)
    with pytest.raises(DCPError, match="square|\\^2|²"):
        ko.Problem(cp.Minimize(cp.square(loss) + ko.sum_squares(theta))).solve()


@pytest.mark.later
def test_leave_one_out_is_refused():
    """Without a row its event, and its share of others' risk sets, would go too: no terms of its own hold them."""
    X, time, event = survival(30)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.5))
    f = theta(X)
    problem = ko.Problem(cp.Minimize(ko.losses.cox(time, event, f) + 0.3 * ko.sum_squares(theta)))
    problem.solve()
    with pytest.raises(KernelOptError, match="partial likelihood"):
        ko.approximate_leave_one_out(problem, f)


@pytest.mark.slow
def test_a_path():
    """Answers along λ are those of single solves."""
    X, time, event = survival(80, ties=True)
    theta, lam = ko.Theta(ko.kernels.Gaussian(sigma=1.5)), cp.Parameter(nonneg=True, name="lam")
    problem = ko.Problem(cp.Minimize(ko.losses.cox(time, event, theta(X)) + lam * ko.sum_squares(theta)))
    path = ko.path(problem, lam, [0.1, 1.0, 10.0])
    for row, value in enumerate([0.1, 1.0, 10.0]):
        assert path.solutions[row].status == "optimal"
        lam.value = value
        single = ko.Problem(problem.objective)
        assert single.solve() == pytest.approx(path["objective"][row], rel=2e-6)


@pytest.mark.later
def test_one_event_time():
    """With all events at one time the loss is d·log-sum-exp of those at risk."""
    X, _, event = survival(30)
    time = np.where(event, 2.0, 3.0)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.5))
    f, penalty = theta(X), 0.2 * ko.sum_squares(theta)
    d = int(event.sum())
    values = [
        ko.Problem(cp.Minimize(loss + penalty)).solve()
        for loss in (ko.losses.cox(time, event, f), d * cp.log_sum_exp(f) - cp.sum(f[np.flatnonzero(event)]))
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-7)


@pytest.mark.parametrize(
    ("time", "event", "shape", "message"),
    [
        ([1, 2], [1, 0], (3,), "one shape"),
        ([1, 2, 3], [[1, 0, 1]], (3,), "one shape"),
        ([1, 2, 3], [1, 2, 1], (3,), "events of 0 .censored. and 1; got 2"),
        ([1, 0, 1], [1.5, 2.5, 3.0], (3,), "The order is .time, event, f."),
        ([1, 2, 3], [0, 0, 0], (3,), "at least one"),
        ([1, np.nan, 3], [1, 0, 1], (3,), "time"),
        ([1, np.inf, 3], [1, 0, 1], (3,), "time"),
    ],
)
def test_bad_input(time, event, shape, message):
    with pytest.raises(DataError, match=message):
        ko.losses.cox(time, event, cp.Variable(shape))


@pytest.mark.slow
@pytest.mark.parametrize("shift", [1e-9, 1e-7, 1e-5])
def test_tiny_numbers_in_constraints_say_nothing_about_predictions(shift):
    """The interior point method starts beside slopes ≤ −1e-7 as beside slopes ≤ 0."""
    X, time, event = survival(60)
    kernel = ko.kernels.Gaussian(sigma=1.0)
    slope = ko.FeatureMatrix(np.linspace(-2, 2, 15)[:, None], kernel).derivative(0)
    values = []
    for least in (0.0, shift):
        theta = ko.Theta(kernel)
        loss = ko.losses.cox(time, event, theta(X[:, :1]))
        problem = ko.Problem(cp.Minimize(loss + 0.1 * ko.sum_squares(theta)), [slope @ theta >= least])
        values.append(problem.solve(solver="INTERIOR_POINT"))
        assert problem.status == "optimal"
    assert values[0] <= values[1] * (1 + 1e-7) <= values[0] + 10 * shift + 1e-4
