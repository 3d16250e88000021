"""A user's own function of rows, by its value, conjugate and proximal map."""

import pickle

import cvxpy as cp
import numpy as np
import pytest
from scipy.special import wrightomega, xlogy

import kernelopt as ko
from kernelopt.errors import DataError, DCPError, KernelOptError, OptionError, SolverError
from kernelopt.language.proximal import ProximalTerm

N = 20
T = np.linspace(0, 6, N)
X, Y = T[:, None], np.column_stack([np.cos(T), np.sin(T)])


def value(S, Y):
    return np.linalg.norm(S - Y, axis=1)


def conjugate(A, w, Y):
    return np.where(np.linalg.norm(A, axis=1) <= w, np.sum(A * Y, axis=1), np.inf)


def prox(Z, t, Y):
    length = np.linalg.norm(Z - Y, axis=1)
    return Y + np.maximum(1 - t / np.maximum(length, 1e-300), 0)[:, None] * (Z - Y)


DISTANCE = ko.ProximalLoss(value, conjugate, prox, name="distance")
# s ln s − s of one number, whose domain ends; and ½‖s‖², whose conjugate is finite everywhere.
ENTROPY = ko.ProximalLoss(
    lambda S: np.where(S[:, 0] >= 0, xlogy(S[:, 0], np.maximum(S[:, 0], 0)) - S[:, 0], np.inf),
    lambda A, w: w * np.exp(A[:, 0] / w),
    lambda Z, t: t[:, None] * wrightomega(Z[:, 0] / t - np.log(t))[:, None],  # the root of x + t ln x = z
    name="entropy",
)
HALF_SQUARE = ko.ProximalLoss(
    lambda S: 0.5 * np.sum(S**2, axis=1),
    lambda A, w: np.sum(A**2, axis=1) / (2 * w),
    lambda Z, t: Z / (1 + t[:, None]),
    name="half_square",
)


def outputs(K=2):
    return ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=K)


def term(theta, is_ours):
    return DISTANCE(theta(X), Y) if is_ours else cp.norm(theta(X) - Y, axis=1)


STATED = {
    "sum": lambda theta, ours: ko.Problem(cp.Minimize(cp.sum(term(theta, ours)) + 0.1 * ko.sum_squares(theta))),
    "weights": lambda theta, ours: ko.Problem(
        cp.Minimize(np.linspace(0, 1, N) @ term(theta, ours) + 0.1 * ko.sum_squares(theta))
    ),
    "maximize": lambda theta, ours: ko.Problem(cp.Maximize(-cp.sum(term(theta, ours)) - 0.1 * ko.sum_squares(theta))),
    "one bound": lambda theta, ours: ko.Problem(cp.Minimize(ko.sum_squares(theta)), [cp.sum(term(theta, ours)) <= 5]),
    "a bound each": lambda theta, ours: ko.Problem(cp.Minimize(ko.sum_squares(theta)), [term(theta, ours) <= 0.5]),
    "the largest": lambda theta, ours: ko.Problem(cp.Minimize(cp.max(term(theta, ours)) + 0.1 * ko.sum_squares(theta))),
    "beside huber": lambda theta, ours: ko.Problem(
        cp.Minimize(cp.sum(term(theta, ours)) + cp.sum(cp.huber(theta(X) - Y)) + 0.1 * ko.sum_squares(theta))
    ),
}


@pytest.mark.later
@pytest.mark.parametrize("name", STATED)
def test_it_is_solved_and_proven_as_cvxpys_own_function(name):
    found = []
    for is_ours in (True, False):
        problem = STATED[name](outputs(), is_ours)
        problem.solve()
        assert problem.status == "optimal" and problem.certificate.relative_gap <= 1e-6
        found.append(problem)
    ours, theirs = found
    assert ours.value == pytest.approx(theirs.value, rel=1e-6)
    assert ours.solver_stats.solver_name == "METHOD_OF_MULTIPLIERS"
    assert "distance's conjugate is its own, as declared" in ours.certificate.rests_on
    assert ours.verify().passed
    assert "distance(" in str(ours.explain()) and "ProximalLoss" in ours.solvers()["CLARABEL"]


@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_units(unit):
    theta = outputs()
    problem = ko.Problem(cp.Minimize(cp.sum(DISTANCE(theta(X), unit * Y)) + 0.1 / unit * ko.sum_squares(theta)))
    problem.solve()
    assert problem.status == "optimal"
    assert problem.value / unit == pytest.approx(0.586473209, rel=1e-6)


def test_few_rows_and_one_output():
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    one = ko.Problem(cp.Minimize(cp.sum(DISTANCE(theta(X[:1]), [[2.0]])) + 0.1 * ko.sum_squares(theta)))
    one.solve()
    assert one.status == "optimal" and one.value == pytest.approx(0.4)
    repeated = np.zeros((5, 1))
    same = ko.Problem(cp.Minimize(cp.sum(DISTANCE(theta(repeated), np.ones((5, 1)))) + ko.sum_squares(theta)))
    same.solve()
    assert same.status == "optimal" and same.value == pytest.approx(1.0)


@pytest.mark.slow
def test_parameters_in_data_and_beside_it():
    P, lam, theta = cp.Parameter((N, 2), value=Y), cp.Parameter(nonneg=True, value=0.1), outputs()
    problem = ko.Problem(cp.Minimize(cp.sum(DISTANCE(theta(X), P)) + lam * ko.sum_squares(theta)))
    same = ko.Problem(cp.Minimize(cp.sum(cp.norm(theta(X) - P, axis=1)) + lam * ko.sum_squares(theta)))
    for data, penalty in ((Y, 0.1), (2 * Y, 0.1), (2 * Y, 1.0)):
        P.value, lam.value = data, penalty
        problem.solve()
        value = problem.value
        same.solve()
        assert value == pytest.approx(same.value, rel=1e-6)


@pytest.mark.slow
def test_functions_with_other_domains():
    """s ln s − s pulls s to 1, and keeps it ≥ 0; squares have a conjugate everywhere."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    targets = np.linspace(-1, 1, N)
    fit = cp.sum_squares(theta(X) - targets)
    for own, same in (
        (ENTROPY(theta(X)), -cp.entr(theta(X)) - theta(X)),
        (HALF_SQUARE(theta(X)), 0.5 * cp.square(theta(X))),
    ):
        ours = ko.Problem(cp.Minimize(fit + cp.sum(own) + 0.01 * ko.sum_squares(theta)))
        theirs = ko.Problem(cp.Minimize(fit + cp.sum(same) + 0.01 * ko.sum_squares(theta)))
        ours.solve()
        value = ours.value
        theirs.solve()
        assert ours.status == "optimal" and value == pytest.approx(theirs.value, rel=1e-6)


@pytest.mark.slow
def test_problems_without_an_answer():
    theta = outputs()
    loss = cp.sum(DISTANCE(theta(X), Y)) + ko.sum_squares(theta)
    none = ko.Problem(cp.Minimize(loss), [theta(X)[0, 0] >= 1, theta(X)[0, 0] <= 0])
    none.solve()
    assert none.status == "infeasible"
    endless = ko.Problem(cp.Minimize(loss + cp.Variable()))
    endless.solve()
    assert endless.status == "unbounded"


@pytest.mark.slow
def test_a_problem_pickles():
    theta = outputs()
    problem = ko.Problem(cp.Minimize(cp.sum(DISTANCE(theta(X), Y)) + 0.1 * ko.sum_squares(theta)))
    problem.solve()
    again = pickle.loads(pickle.dumps(problem))
    again.solve()
    assert again.value == pytest.approx(problem.value, rel=1e-9)


WRONG = {
    "another constant": (value, lambda A, w, Y: conjugate(A, w, Y) + 1, prox, r"h\(x\) \+ h\*\(a\) = a·x"),
    "another sign": (value, lambda A, w, Y: conjugate(-A, w, Y), prox, "wherever"),
    "a larger domain": (value, lambda A, w, Y: conjugate(A, 2 * w, Y), prox, "wherever"),
    "a smaller domain": (value, lambda A, w, Y: conjugate(A, 0.5 * w, Y), prox, "h"),
    "no weight": (value, lambda A, w, Y: conjugate(A, 1.0, Y), prox, r"\(wh\)\*\(wa\)"),
    "another step": (value, conjugate, lambda Z, t, Y: prox(Z, 2 * t, Y), "h"),
    "no step": (value, conjugate, lambda Z, t, Y: Z, "h"),
    "another value": (lambda S, Y: 2 * value(S, Y), conjugate, prox, "h"),
    "a concave function": (lambda S, Y: -value(S, Y), conjugate, prox, "h"),
    "an infinite value": (lambda S, Y: np.inf * np.ones(len(S)), conjugate, prox, "finite value"),
    "an infinite map": (value, conjugate, lambda Z, t, Y: np.inf * Z, "finite values"),
    "another shape": (lambda S, Y: S - Y, conjugate, prox, "shape"),
    "no numbers": (lambda S, Y: np.full(len(S), "a"), conjugate, prox, "dtype"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_functions_that_contradict_each_other_are_refused(fault):
    *functions, message = WRONG[fault]
    loss = ko.ProximalLoss(*functions, name="mine")
    with pytest.raises(DataError, match="Expected .*mine") as raised:
        loss(cp.Variable((N, 2)), Y)
    assert raised.match(message)
    with pytest.raises(DataError, match=message):
        ko.testing.check_function(loss, np.zeros((N, 2)), Y)


def test_right_functions_pass():
    for S in (np.zeros((N, 2)), np.zeros((1, 2))):
        ko.testing.check_function(DISTANCE, S, Y[: len(S)])
        ko.testing.check_function(DISTANCE, S, 1e-6 * Y[: len(S)])
        ko.testing.check_function(HALF_SQUARE, S)
    ko.testing.check_function(DISTANCE, np.zeros((0, 2)), np.zeros((0, 2)))
    ko.testing.check_function(ENTROPY, np.zeros(3))


SIGNS = np.where(T > 3, 1.0, -1.0)
HINGE = ko.ProximalLoss(
    lambda S, y: np.maximum(0, 1 - y * S[:, 0]),
    lambda A, w, y: np.where((A[:, 0] * y <= 0) & (A[:, 0] * y >= -w), A[:, 0] * y, np.inf),
    lambda Z, t, y: (y * np.where(y * Z[:, 0] >= 1, y * Z[:, 0], np.minimum(1, y * Z[:, 0] + t)))[:, None],
)


def within(r):
    """max(‖s − y‖ − r, 0)."""
    return ko.ProximalLoss(
        lambda S, Y: np.maximum(np.linalg.norm(S - Y, axis=1) - r, 0),
        lambda A, w, Y: conjugate(A, w, Y) + r * np.linalg.norm(A, axis=1),
        lambda Z, t, Y: Y + shares(np.linalg.norm(Z - Y, axis=1), t, r)[:, None] * (Z - Y),
    )


def shares(length, t, r):
    return np.where(length > r, np.maximum(length - t, r) / np.maximum(length, r), 1)


FLAT = {
    "nothing": (lambda S: np.zeros(len(S)), lambda A, w: np.where(A.any(axis=1), np.inf, 0.0), lambda Z, t: Z),
    "a box": (
        lambda S: np.where(((S >= 0) & (S <= 1)).all(axis=1), 0.0, np.inf),
        lambda A, w: np.maximum(A, 0).sum(axis=1),
        lambda Z, t: np.clip(Z, 0, 1),
    ),
    "a half": (
        lambda S: np.where((S >= 0).all(axis=1), 0.0, np.inf),
        lambda A, w: np.where((A <= 0).all(axis=1), 0.0, np.inf),
        lambda Z, t: np.maximum(Z, 0),
    ),
}


@pytest.mark.parametrize("name", FLAT)
def test_functions_that_are_flat_somewhere_pass(name):
    """Their slopes are 0, or what rounding leaves of it."""
    ko.testing.check_function(ko.ProximalLoss(*FLAT[name]), np.zeros((5, 2)))


@pytest.mark.parametrize("r", [0.05, 0.5, 1.5])
@pytest.mark.parametrize("seed", range(5))
def test_a_distance_beyond_a_ball_passes(r, seed):
    targets = Y + 0.2 * np.random.default_rng(seed).normal(size=Y.shape)
    ko.testing.check_function(within(r), Y, targets)
    ko.testing.check_function(HINGE, T, SIGNS)


def test_a_hinge():
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    ours = ko.Problem(cp.Minimize(cp.sum(HINGE(theta(X), SIGNS)) + 0.1 * ko.sum_squares(theta)))
    theirs = ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(SIGNS, theta(X))) + 0.1 * ko.sum_squares(theta)))
    value = ours.solve()
    assert ours.status == "optimal" and value == pytest.approx(theirs.solve(), rel=1e-6)


@pytest.mark.slow
def test_new_data_after_the_problem_was_looked_at():
    theta, P = outputs(), cp.Parameter((N, 2), value=Y)
    problem = ko.Problem(cp.Minimize(cp.sum(DISTANCE(theta(X), P)) + 0.1 * ko.sum_squares(theta)))
    problem.explain()
    P.value = 2 * Y
    assert problem.solve() == pytest.approx(2.28876390, rel=1e-6)


def test_data_that_come_later_are_checked():
    theta, P = outputs(), cp.Parameter((N, 2))
    wrong = ko.ProximalLoss(value, lambda A, w, Y: conjugate(A, w, Y) - 0.01 * np.abs(Y).sum(axis=1), prox)
    problem = ko.Problem(cp.Minimize(cp.sum(wrong(theta(X), P)) + 0.1 * ko.sum_squares(theta)))
    P.value = Y
    with pytest.raises(DataError, match="wherever"):
        problem.solve()


def test_no_feasible_point():
    """That there is none is not proven: cone solvers take no ProximalLoss."""
    theta, twice = outputs(), np.zeros((2, 1))
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [DISTANCE(theta(twice), [[2.0, 0], [-2.0, 0]]) <= 1])
    with pytest.raises(SolverError, match="found no feasible point; whether there is one is not known"):
        problem.solve()


def test_wrong_use():
    theta, s = outputs(), cp.Variable((N, 2))
    with pytest.raises(OptionError, match="Expected prox to be a function"):
        ko.ProximalLoss(value, conjugate, 3)
    with pytest.raises(OptionError, match="Expected name"):
        ko.ProximalLoss(value, conjugate, prox, name=3)
    with pytest.raises(OptionError, match=r"Expected a ko\.ProximalLoss"):
        ko.testing.check_function(value, np.zeros((2, 2)))
    with pytest.raises(DataError, match="with 20 rows"):
        DISTANCE(s, Y[:5])
    with pytest.raises(DataError, match="finite"):
        DISTANCE(s, np.nan * Y)
    with pytest.raises(DataError, match="predictions come first"):
        DISTANCE(s, s)
    with pytest.raises(DataError, match="shape"):
        DISTANCE(cp.Variable(), Y)
    with pytest.raises(DCPError, match="distance"):
        ko.Problem(cp.Minimize(ko.sum_squares(theta) - cp.sum(DISTANCE(theta(X), Y)))).solve()
    with pytest.raises(DCPError, match=r"Write ko\.Problem"):
        cp.Problem(cp.Minimize(cp.sum(DISTANCE(s, Y)))).solve()
    loss = cp.sum(DISTANCE(theta(X), Y))
    with pytest.raises(SolverError, match="CLARABEL takes no ProximalLoss"):
        ko.Problem(cp.Minimize(loss + ko.sum_squares(theta))).solve(solver="CLARABEL")
    with pytest.raises(SolverError, match="needs one norm of each θ"):
        ko.Problem(cp.Minimize(loss)).solve()
    with pytest.raises(SolverError, match="no solver takes both"):
        ko.Problem(
            cp.Minimize(cp.sum(DISTANCE(theta(X) + cp.Variable(boolean=True), Y)) + ko.sum_squares(theta))
        ).solve()
    lam = cp.Parameter(nonneg=True, value=0.1)
    problem = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)))
    problem.solve()
    with pytest.raises(KernelOptError, match="got distance, a ProximalLoss"):
        ko.gradient(problem, cp.sum_squares(theta(X) - Y), [lam])


def test_what_cvxpy_asks_of_its_atom():
    s = cp.Variable((3, 2), value=np.arange(6.0).reshape(3, 2))
    found = DISTANCE(s, np.zeros((3, 2)))
    assert isinstance(found, ProximalTerm) and found.shape == (3,)
    assert found.is_convex() and not found.is_concave() and found.sign == "UNKNOWN"
    np.testing.assert_allclose(found.value, np.linalg.norm(s.value, axis=1))
    [slope, *_] = found.grad.values()
    expected = s.value / np.linalg.norm(s.value, axis=1)[:, None]
    for j in range(3):
        np.testing.assert_allclose(slope[:, [j]].toarray()[[j, j + 3], 0], expected[j], atol=1e-6)
    assert repr(DISTANCE) == "ProximalLoss(distance)" and found.name().startswith("distance(")
    assert repr(ko.ProximalLoss(conjugate, conjugate, prox)) == "ProximalLoss(conjugate)"
    assert repr(ko.ProximalLoss(value, conjugate, prox)) == "ProximalLoss(ProximalLoss)"


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_within_other_functions_it_has_their_unit(unit):
    """Rows that hold functions move with their slopes: the systems that are needed do not grow with the data."""
    points = np.linspace(0, 1, 8)[:, None]
    targets = unit * np.random.default_rng(0).normal(size=8)
    squares = ko.ProximalLoss(
        lambda S, y: (S[:, 0] - y) ** 2, lambda A, w, y: A[:, 0] * y + A[:, 0] ** 2 / (4 * w),
        lambda Z, t, y: (Z + 2 * t[:, None] * y[:, None]) / (1 + 2 * t[:, None]),
    )  # fmt: skip
    values = []
    for loss in (squares, lambda f, y: cp.square(f - y)):
        theta = ko.Theta(ko.kernels.Gaussian(sigma=0.2))
        problem = ko.Problem(cp.Minimize(cp.max(loss(theta(points), targets))), [ko.norm(theta) <= 0.2 * unit])
        values.append(problem.solve(solver="METHOD_OF_MULTIPLIERS"))
        assert problem.status == "optimal" and problem.solver_stats.num_iters <= 60
    assert values[0] == pytest.approx(values[1], rel=1e-6)


def test_functions_of_other_arguments_are_named():
    theta = ko.Theta(ko.kernels.Linear())
    f = theta(np.arange(3.0)[:, None])
    of_two = ko.ProximalLoss(lambda S, y: (S[:, 0] - y) ** 2, lambda A, y: A[:, 0], lambda Z, t, y: Z)
    with pytest.raises(OptionError, match=r"conjugate of ProximalLoss to take \(A, w, \*data\), 3 arguments"):
        of_two(f, np.ones(3))
    with pytest.raises(OptionError, match=r"value of SmoothLoss to take \(u, \*data\), 2 arguments"):
        ko.SmoothLoss(lambda u: u**2, lambda u, y: 2 * u, lambda u, y: 2 + 0 * u)(f, np.ones(3))


L1 = (
    lambda S: np.abs(S).sum(axis=1),
    lambda A, w: np.where(np.abs(A).max(axis=1) <= w * (1 + 1e-12), 0.0, np.inf),
    lambda Z, t: np.sign(Z) * np.maximum(np.abs(Z) - t[:, None], 0.0),
)


@pytest.mark.parametrize(
    ("number", "wrong", "message"),
    [
        (1, lambda A, w: np.where(np.abs(A).max(axis=1) <= 1, 0.0, np.inf), r"\(wh\)\*\(wa\)"),  # no weight
        (1, lambda A, w: np.where(np.abs(A).max(axis=1) <= np.sqrt(w), 0.0, np.inf), "h"),
        (2, lambda Z, t: 0 * Z, "slopes"),
    ],
)
def test_domains_that_slopes_leave(number, wrong, message):
    """Moved into the domain, these slopes would contradict nothing."""
    ko.testing.check_function(ko.ProximalLoss(*L1, name="right"), np.zeros((N, 1)))
    functions = [wrong if k == number else one for k, one in enumerate(L1)]
    with pytest.raises(DataError, match=message):
        ko.testing.check_function(ko.ProximalLoss(*functions, name="mine"), np.zeros((N, 1)))
