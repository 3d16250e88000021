"""Integers: the best of several points stays, the solver's bound is its word, and enumeration is the truth."""

import itertools
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
from enumerating import Case, wrong
from inside import point_of, reduction_of

import kernelopt as ko
from kernelopt.certificate.certify import by_word
from kernelopt.driver import convex, integer_proof
from kernelopt.errors import KernelOptError, SolverError
from kernelopt.solvers import cvxpy_solvers
from kernelopt.solvers.cvxpy_solvers import BOUNDS
from kernelopt.support.clock import OutOfTimeError
from kernelopt.support.cvxpy_parts import Compiled

X, Y = np.linspace(0, 1, 6)[:, None], np.array([0.0, 1, 5, 1, 0, -1])


def outliers(goal=cp.Minimize, constant=0.0, scale=1.0, loss=cp.norm1, bound=None):
    """Residuals of up to two rows may be moved by 10; with |f| ≤ bound the optimum is not 0."""
    theta, s, z = ko.Theta(ko.kernels.Gaussian(sigma=0.4)), cp.Variable(6), cp.Variable(6, boolean=True)
    f, M, sign = theta(X), 10 * scale, 1 if goal is cp.Minimize else -1
    constraints = [s <= M * z, s >= -M * z, cp.sum(z) <= 2]
    constraints += [] if bound is None else [cp.abs(f) <= bound * scale]
    return ko.Problem(goal(sign * loss(scale * Y - f - s) + constant), constraints), theta, z


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 1e-8, 1e3])
def test_a_point_is_not_replaced_by_a_worse_one(scale):
    """θ interpolates, so that 0 is attained; solved again with z fixed, rows |s| ≤ 0 make solvers fail."""
    problem, _, z = outliers(scale=scale)
    assert problem.solve() <= 1e-9 * scale
    assert problem.status == "optimal"
    assert np.isin(z.value, (0, 1)).all()


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 1e-8])
@pytest.mark.parametrize("constant", [0.0, 7.5])
@pytest.mark.parametrize("goal", [cp.Minimize, cp.Maximize])
def test_the_solvers_bound_is_in_the_stated_units(goal, constant, scale):
    """With |f| ≤ ½ the rows that stay cost max(|y| − ½, 0) each."""
    problem, _, _ = outliers(goal, constant * scale, scale, bound=0.5)
    problem.solve()
    cost = np.maximum(np.abs(Y) - 0.5, 0)
    least = min(cost.sum() - cost[list(two)].sum() for two in itertools.combinations(range(6), 2))
    truth = scale * ((least if goal is cp.Minimize else -least) + constant)
    found = problem.certificate
    assert problem.status == "optimal"
    by_boxes = found.scope == "full kernel" and not found.solver and "branch and bound" in str(found)
    assert by_boxes or (found.scope == "solver's word" and found.solver == "HIGHS")
    assert by_boxes or scale < 1
    assert problem.value == pytest.approx(truth, rel=1e-6)
    assert found.lower == pytest.approx(truth, rel=1e-6) and found.upper == pytest.approx(truth, rel=1e-6)
    assert found.lower <= problem.value <= found.upper


@pytest.mark.slow
def test_the_word_is_told_as_such_and_proves_nothing():
    """Without bounds of the integers there are no boxes."""
    lam = cp.Parameter(nonneg=True, value=1.0)
    theta, z = ko.Theta(ko.kernels.Linear()), cp.Variable(integer=True)
    problem = ko.Problem(cp.Minimize(cp.norm1(Y - theta(X) - z) + lam * cp.abs(z)))
    problem.solve()
    told = str(problem.certificate)
    assert "by HIGHS's word, not proven" in told and "full kernel" not in told
    assert "by HIGHS's word" in str(problem.explain())
    check = problem.verify()["optimality"]
    assert check.passed is None and "HIGHS's word" in check.note
    assert np.isnan([(r.lower, r.upper) for r in problem.history.rounds]).all()  # these are proven ones
    with pytest.raises(KernelOptError, match="without integers"):
        problem.certificate_at({lam: 2.0})
    problem.solve(certify=False)
    assert problem.certificate is None


@pytest.mark.slow
def test_a_restricted_theta_has_the_bound_of_the_reduced_problem():
    problem, _, _ = outliers(bound=0.5)
    problem.solve(max_rank=2)
    assert problem.status == "optimal_inaccurate"
    assert problem.certificate.scope == "solver's word for the reduced problem"
    assert "HIGHS's word for the reduced problem, not proven" in str(problem.certificate)


@pytest.mark.skipif("ECOS_BB" not in cp.installed_solvers(), reason="ECOS is not installed")
def test_a_solver_that_tells_no_bound():
    """ECOS_BB's points are optimal as a rule, and not always."""
    theta, z = ko.Theta(ko.kernels.Linear()), cp.Variable(boolean=True)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(Y - theta(X) - z) + ko.sum_squares(theta)))
    problem.solve(solver="ECOS_BB")  # boxes prove what the solver does not tell
    assert problem.status == "optimal" and problem.certificate.scope == "full kernel"
    y = cp.Variable(integer=True)
    unbounded = ko.Problem(cp.Minimize(cp.sum_squares(Y - theta(X) - y) + ko.sum_squares(theta)))
    unbounded.solve(solver="ECOS_BB")
    assert unbounded.status == "optimal_inaccurate" and unbounded.certificate is None
    assert "tells no bound" in unbounded.verify()["optimality"].note


@pytest.mark.later
@pytest.mark.parametrize("goal", [cp.Minimize, cp.Maximize])
def test_integers_beside_losses_that_need_cones(goal):
    """Logistic losses and a norm: branch and bound of our own, beside plain cvxpy with each choice."""
    rng = np.random.default_rng(8)
    points, y, F = rng.normal(size=(6, 2)), rng.normal(size=6), rng.normal(size=(6, 3))
    kernel, sign = ko.kernels.Gaussian(sigma=1.0), 1 if goal is cp.Minimize else -1

    def objective(f, square, z):
        return cp.sum(cp.logistic(y - f - 2 * F @ z)) + cp.sum_squares(z - 0.3) + 0.4 * square

    theta, z = ko.Theta(kernel), cp.Variable(3, integer=True, bounds=[-1, 1])
    problem = ko.Problem(goal(sign * objective(theta(points), ko.sum_squares(theta), z)), [cp.sum(z) <= 1])
    problem.solve()
    B, w, values = np.linalg.cholesky(kernel(points)), cp.Variable(6), []
    for choice in itertools.product((-1, 0, 1), repeat=3):
        if sum(choice) <= 1:
            plain = objective(B @ w, cp.sum_squares(w), np.array(choice))
            values.append(cp.Problem(cp.Minimize(plain)).solve(solver="CLARABEL"))
    found = problem.certificate
    assert problem.status == "optimal" and found.scope == "full kernel" and not found.solver
    assert "branch and bound on" in str(found) and "branch and bound on" in problem.verify()["optimality"].note
    assert sign * problem.value == pytest.approx(min(values), rel=1e-6)
    assert found.lower <= problem.value <= found.upper and found.relative_gap <= 1e-6
    assert problem.solvers().chosen == "BRANCH_AND_BOUND"


def small(constraints=lambda f, z: [], norm=ko.sum_squares, loss=cp.sum_squares, **attributes):
    theta, z = ko.Theta(ko.kernels.Linear()), cp.Variable(2, **(attributes or {"integer": True}))
    f = theta(X)
    objective = loss(Y - f - 2.3 * z[0] + z[1]) + norm(theta) + 0.01 * cp.abs(z[0] - 0.4)
    return ko.Problem(cp.Minimize(objective), constraints(f, z)), z


@pytest.mark.later
def test_integers_without_bounds():
    problem, z = small()
    problem.solve()
    values = []
    for choice in itertools.product(range(-3, 4), repeat=2):
        fixed, _ = small(lambda f, z, choice=choice: [z == np.array(choice)], bounds=[-9, 9])
        values.append(fixed.solve())
    assert problem.status == "optimal" and problem.value == pytest.approx(min(values), rel=1e-6)
    np.testing.assert_array_equal(z.value, np.round(z.value))


@pytest.mark.later
def test_no_integers_are_feasible():
    assert small(lambda f, z: [z[0] >= 0.2, z[0] <= 0.8])[0].solve() == np.inf


@pytest.mark.parametrize("seed", [2, 3, 6])
def test_no_integers_are_feasible_with_any_predictions(seed):
    """B restricts θ there; the rows contradict each other whatever the predictions are."""
    points = np.sort(np.random.default_rng(seed).uniform(0, 3, (10, 1)), axis=0)
    theta, z = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(2, boolean=True)
    f = theta(points)
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta) + cp.sum(z)), [f[0] >= 1 + z[0], f[0] <= 0.5 * z[1]])
    assert problem.solve() == np.inf and problem.status == "infeasible"


@pytest.mark.later
@pytest.mark.parametrize("norm", [cp.norm1, cp.norm], ids=["linear", "cone"])  # HiGHS ends as "infeasible or unbounded"
def test_unbounded_beside_integers(norm):
    problem, _ = small(norm=lambda theta: 0, loss=lambda r: cp.sum(r) + norm(r[:2]), boolean=True)
    problem.solve()
    assert problem.status == "unbounded"


@pytest.mark.later
@pytest.mark.parametrize("seed", [10, 15, 22])
def test_unbounded_with_any_integers(seed):
    """Solvers call a point far out optimal; with its integers fixed the problem is proven unbounded."""
    X, z = np.random.default_rng(seed).normal(size=(10, 2)), cp.Variable(2, boolean=True)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Maximize(cp.sum(theta(X)) - cp.sum(z)))
    assert problem.solve() == np.inf and problem.status == "unbounded"


def test_atoms_of_logic():
    theta, a, b = ko.Theta(ko.kernels.Linear()), cp.Variable(boolean=True), cp.Variable(boolean=True)
    loss = cp.sum_squares(Y - theta(X) - a) + ko.sum_squares(theta) + b
    problem = ko.Problem(cp.Minimize(loss), [cp.logic.Or(a, b) == 1])
    problem.solve()
    assert problem.status == "optimal" and (a.value, b.value) == (1, 0)
    assert problem.solver_stats.solver_name == "BRANCH_AND_BOUND"


@pytest.mark.later
def test_branch_and_bound_by_name():
    theta = ko.Theta(ko.kernels.Linear())
    problem = ko.Problem(cp.Minimize(cp.sum_squares(Y - theta(X)) + ko.sum_squares(theta)))
    with pytest.raises(SolverError, match="BRANCH_AND_BOUND takes problems with integers"):
        problem.solve(solver="branch_and_bound")
    small()[0].solve(solver="branch_and_bound", max_iter=100)
    with pytest.raises(SolverError, match="no option"):
        small()[0].solve(solver="branch_and_bound", iterations=100)


@pytest.mark.later
def test_a_time_limit_leaves_the_best_point(monkeypatch):
    """The third relaxation has no time."""
    problem, _ = small(boolean=True)
    problem.solve()
    best, answer, calls = problem.value, Compiled.answer, []

    def limited(self, *args):
        calls.append(self.solver)
        if len(calls) == 3:
            raise OutOfTimeError
        return answer(self, *args)

    monkeypatch.setattr(Compiled, "answer", limited)
    problem, _ = small(boolean=True)
    problem.solve()
    assert problem.status == "user_limit" and problem.value >= best - 1e-9
    assert problem.certificate.lower <= best


def test_where_solvers_have_their_bound():
    """In the raw answers that cvxpy hands over; SCIP's and Gurobi's by their documentation."""
    assert BOUNDS["HIGHS"]({"info": SimpleNamespace(mip_dual_bound=2.0)}) == 2
    assert BOUNDS["SCIPY"]({"mip_dual_bound": 3.0}) == 3
    assert BOUNDS["SCIP"]({"model": SimpleNamespace(getDualbound=lambda: 4.0)}) == 4
    assert BOUNDS["GUROBI"]({"model": SimpleNamespace(ObjBound=5.0)}) == 5


@pytest.mark.slow
@pytest.mark.parametrize("price", [-1.0, 1.0])
def test_a_variable_with_integers_and_others_in_it(price):
    theta, z = ko.Theta(ko.kernels.Linear()), cp.Variable(3, boolean=[(0, 2)])
    loss = cp.norm1(Y - theta(X) - z[1]) + price * z[0] + 0.5 * z[2]
    problem = ko.Problem(cp.Minimize(loss), [cp.abs(z[1]) <= z[0] + 2 * z[2]])
    values = []
    for a, b in itertools.product((0.0, 1.0), repeat=2):
        w, c = cp.Variable(), cp.Variable()
        plain = cp.Problem(cp.Minimize(cp.norm1(Y - X[:, 0] * w - c)), [cp.abs(c) <= a + 2 * b])
        values.append(plain.solve(solver="CLARABEL") + price * a + 0.5 * b)
    assert problem.solve() == pytest.approx(min(values), abs=1e-6)
    assert problem.status == "optimal" and np.isin(z.value[[0, 2]], (0, 1)).all()


@pytest.mark.slow
def test_a_continuous_variable_between_zero_and_zero():
    """s ≤ 0 ≤ s has no terms beside which a solver's 1e-10 were small."""
    theta, s = ko.Theta(ko.kernels.Laplacian(sigma=0.5)), cp.Variable(6)
    loss = cp.norm1(Y - theta(X) - s) + ko.norm(theta)
    problem = ko.Problem(cp.Minimize(loss), [s <= 0, s >= 0])
    without = ko.Problem(cp.Minimize(cp.norm1(Y - theta(X)) + ko.norm(theta)))
    assert problem.solve() == pytest.approx(without.solve(), rel=1e-6)
    assert problem.status == "optimal"


# Those that were wrong: values at 1e-8 and 1e-4, squares there, entries that are no integers, all rows |s| ≤ 0.
FOUND = [7, 20, 37, 41, 44, 141, 1025]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*FOUND, *range(2)])
def test_enumeration_says_the_same(seed):
    assert wrong(Case(seed)) == ("optimal", None)


@pytest.mark.later
@pytest.mark.parametrize(("scale", "M"), [(1.0, 1e2), (1.0, 1e6), (1e3, 1e6)])
def test_large_constants_do_not_lose_the_best_point(scale, M):
    """Three of |fᵢ| ≤ Mzᵢ may be open; relaxations of cubes in cones, of which the solver leaves some inaccurate."""
    points = np.random.default_rng(0).normal(size=(6, 2))
    targets = scale * np.random.default_rng(1).normal(size=6)
    best = np.inf
    for open_rows in [*itertools.combinations(range(5), 3), None]:
        theta, b, z = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(), cp.Variable(5, boolean=True)
        f = theta(points)
        constraints = [cp.abs(b) <= 10 * scale]
        if open_rows is None:
            constraints += [cp.abs(f[:5]) <= M * z, cp.sum(z) == 3]
        else:
            constraints += [f[i] == 0 for i in range(5) if i not in open_rows]
        objective = cp.sum_squares(f + b - targets) + 0.001 * cp.power(ko.norm(theta), 3)
        problem = ko.Problem(cp.Minimize(objective), constraints)
        value = problem.solve()
        best = best if open_rows is None else min(best, value)
    assert value == pytest.approx(best, rel=1e-6)
    assert np.abs(f.value[:5][z.value == 0]).max() <= 1e-6 * scale
    [feasible] = [check for check in problem.verify().checks if check.name == "primal feasibility"]
    assert feasible.passed


@pytest.mark.later
@pytest.mark.parametrize("unit", [1e-8, 1e-4, 1e4])
def test_squares_of_any_unit(unit):
    """The objective has the unit of its squares: tolerances of branch and bound are absolute."""
    values = []
    for z in (cp.Variable(2, boolean=True), *map(np.array, itertools.product((0.0, 1.0), repeat=2))):
        theta = ko.Theta(ko.kernels.Gaussian(sigma=0.4))
        f, moved = theta(X), unit * (z @ np.array([1.0, -2.0]))
        objective = cp.sum_squares(f + moved - unit * Y) + 0.1 * ko.sum_squares(theta)
        problem = ko.Problem(cp.Minimize(objective), [f <= unit * (1 + z[0])])
        values.append(problem.solve())
        assert problem.status == "optimal"
    assert values[0] == pytest.approx(min(values[1:]), rel=1e-6, abs=0)


@pytest.mark.later
@pytest.mark.parametrize("unit", [1e-4, 1e6])
@pytest.mark.parametrize("name", ["logistic", "largest"])
def test_exponents_and_prices_beside_data_of_any_unit(name, unit):
    """Exponents have the unit 1 in any data, and bounds of |z| that of z."""
    rng, values = np.random.default_rng(6), []
    points, y = rng.normal(size=(8, 2)), rng.normal(size=8)
    signs, moved = np.sign(y), rng.normal(size=(8, 2)).round(1)
    for z in (cp.Variable(2, boolean=True), *map(np.array, itertools.product((0.0, 1.0), repeat=2))):
        theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
        r = theta(points) - unit * (moved @ z)
        losses = {
            "logistic": unit * cp.sum(cp.logistic(-cp.multiply(signs, r) / unit)),
            "largest": cp.sum_largest(cp.abs(r - unit * y), 2),
        }
        prices = unit * (np.array([0.3, 0.8]) @ cp.abs(z)) + 0.1 * ko.sum_squares(theta) / unit
        problem = ko.Problem(cp.Minimize(1e-5 * (losses[name] + prices)))
        values.append(problem.solve())
        assert problem.status == "optimal"
    assert values[0] == pytest.approx(min(values[1:]), rel=1e-6, abs=0)


@pytest.mark.parametrize(
    ("a", "b", "c", "status"), [(2, -2, 1, "infeasible"), (6, -9, 3, "optimal"), (0.6, -0.9, 0.4, "infeasible"),
                                (0.1, 0.2, 0.3, "optimal"), (1, 2**0.5, 0, "optimal")],
)  # fmt: skip
def test_equations_of_integers_without_bounds(a, b, c, status):
    """ax + bz = c has integer solutions only where c is a multiple of gcd(a, b): no number of boxes would tell."""
    theta, x, z = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(integer=True), cp.Variable(integer=True)
    problem = ko.Problem(
        cp.Minimize(cp.sum_squares(theta(X) - Y) + ko.sum_squares(theta) + 0.1 * cp.square(x)), [a * x + b * z == c]
    )
    problem.solve()
    assert problem.status == status


@pytest.mark.later
@pytest.mark.parametrize("redundant", [lambda s, z: [z[0] - z[1] <= 4], lambda s, z: [s == z[0], s <= 4]])
def test_rows_that_fixed_integers_leave_without_an_entry(redundant):
    """0 ≤ 4 and f ≤ 1e6 beside numbers near 1: relaxations at one point of the box are solved all the same."""
    theta, s, z = ko.Theta(ko.kernels.Gaussian(sigma=0.4)), cp.Variable(), cp.Variable(2, boolean=True)
    f, targets = theta(X[:5]), np.array([0.3, 1.0, -0.4, 1.5, 0.2])
    objective = cp.sum_squares(f - targets) + 0.2 * ko.sum_squares(theta) + 0.05 * cp.square(s) + 0.1 * cp.sum(z)
    problem = ko.Problem(cp.Minimize(objective), [cp.abs(f[[1, 3]]) <= 1e6 * z, *redundant(s, z)])
    value, best = problem.solve(), np.inf
    for fixed in itertools.product((0, 1), repeat=2):
        held = [f[i] == 0 for i, one in zip((1, 3), fixed, strict=True) if not one]
        plain = [s == fixed[0]] if len(problem.constraints) == 3 else []
        other = ko.Problem(cp.Minimize(objective - 0.1 * cp.sum(z) + 0.1 * sum(fixed)), [*held, *plain, z == fixed])
        best = min(best, other.solve())
    assert problem.status == "optimal" and value == pytest.approx(best, rel=1e-6)


def test_parameters_of_zero_in_equations_of_integers():
    """cvxpy keeps their entries in the matrix."""
    theta, z = ko.Theta(ko.kernels.Gaussian(sigma=0.4)), cp.Variable(3, integer=True, bounds=[-5, 5])
    P = cp.Parameter(3, value=[0.0, 2.0, 4.0])
    goal = cp.sum_squares(theta(X) - Y) + ko.sum_squares(theta) + cp.sum_squares(z - np.array([1.2, 0.7, 0.1]))
    problem = ko.Problem(cp.Minimize(goal), [P @ z == 2])
    problem.solve()
    assert problem.status == "optimal" and z.value.tolist() == [1, 1, 0]
    P.value = [0.0, 0.0, 0.0]
    problem.solve()
    assert problem.status == "infeasible"


def test_what_bounds_the_problem_with_integers_fixed_is_no_bound():
    """Losses that are nowhere negative bound it by what the integers of the answer cost; others may cost less."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=0.4))
    problem = ko.Problem(cp.Minimize(cp.norm1(theta(X) - Y) + ko.sum_squares(theta)))
    problem.solve()
    told = by_word(reduction_of(problem), problem._outer(), point_of(problem), -5.0, "HIGHS", confined=False)
    assert told.lower == pytest.approx(-5.0) and told.scope == "solver's word" and told.of_terms is None


@pytest.mark.parametrize("seed", [1, 6])
def test_switches_that_are_closed_close_exactly(seed):
    """|s| ≤ 1000z with z = 0: s of 1e-18 would violate a row whose terms are all 0."""
    rng = np.random.default_rng(seed)
    n = int(rng.choice([1, 2, 4]))
    points, y = rng.normal(size=(n, 1)), np.round(rng.normal(size=n), 1)
    theta, z, s = ko.Theta(ko.kernels.Linear()), cp.Variable(2, boolean=True), cp.Variable(min(2, n))
    loss = cp.sum(cp.pos(y - theta(points) - np.eye(n)[:, :2] @ s)) + 0.1 * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(loss), [cp.abs(s) <= 1000 * z[: s.size], s >= -1000 * z[: s.size], cp.sum(z) <= 1])
    assert problem.solve() == pytest.approx(0.0, abs=1e-9)
    assert problem.status == "optimal"
    assert np.isfinite(problem.certificate.upper) and not problem.certificate.assumptions
    assert not s.value[z.value[: s.size] == 0].any()


def test_a_solver_that_breaks_down_has_failed():
    """ECOS raises a RuntimeError of its own where it can't set up a problem, as of an integer that nothing limits."""
    with pytest.raises(SolverError, match="ECOS: can't set up"), cvxpy_solvers._told("ECOS", {}):
        raise RuntimeError("can't set up")
    theta, z = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(integer=True)
    problem = ko.Problem(cp.Minimize(-cp.sum(theta(X))), [z >= 0])
    problem.solve()
    assert problem.status in ("unbounded", "user_limit")


@pytest.mark.parametrize("size", [1e3, 1e6])
@pytest.mark.parametrize("misfit", [cp.norm, cp.norm_inf, cp.norm1, cp.sum_squares])
def test_integers_far_from_0(misfit, size):
    """A relaxation that is exact to 1e-8 of 1e6 would call any integers optimal, with a bound of its own."""
    rng = np.random.default_rng(4)
    points, z = rng.normal(size=(5, 1)), cp.Variable(2, integer=True)
    targets = rng.normal(size=5) + np.repeat([-0.7 * size, 0.4 * size], [2, 3])
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))

    def problem(z, constraints):
        levels = cp.hstack([z[0], z[0], z[1], z[1], z[1]])
        objective = misfit(targets - theta(points) - levels) + 0.3 * ko.sum_squares(theta)
        return ko.Problem(cp.Minimize(objective), constraints)

    stated = problem(z, [z >= -size, z <= size])
    stated.solve()
    centre = np.round([targets[:2].mean(), targets[2:].mean()])
    near = [centre + np.array([i, j]) for i in range(-2, 3) for j in range(-2, 3)]
    assert stated.value == pytest.approx(min(problem(one, []).solve() for one in near), rel=1e-6)
    assert stated.status == "optimal"


def test_a_quadratic_form_of_integers_far_from_0():
    theta, z = ko.Theta(ko.kernels.Gaussian(sigma=0.4)), cp.Variable(2, integer=True)
    M, at = np.array([[2.0, 0.9], [0.9, 1.0]]), np.array([5000.3, -3000.6])
    objective = cp.quad_form(z - at, M) + cp.sum_squares(Y - theta(X)) + ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(objective), [z >= -1e4, z <= 1e4])
    problem.solve()
    best = min(
        ((np.array([i, j]) - at) @ M @ (np.array([i, j]) - at), i, j)
        for i in range(4995, 5006)
        for j in range(-3006, -2995)
    )
    assert z.value.tolist() == list(best[1:]) and problem.status == "optimal"


@pytest.mark.parametrize("goal", [cp.Minimize, cp.Maximize])
@pytest.mark.parametrize("misfit", ["norm1", "squares"])
def test_boxes_prove_the_optimum(misfit, goal):
    """Beside the enumeration of all choices, each solved by cvxpy in coordinates of the kernel matrix."""
    rng, sign = np.random.default_rng(3), 1 if goal is cp.Minimize else -1
    points, y = rng.normal(size=(12, 2)), np.round(rng.normal(size=12), 3)
    y[:3] += 4
    loss = {"norm1": cp.norm1, "squares": cp.sum_squares}[misfit]
    rows = np.eye(12)[:, :4]
    theta, z, s = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(4, boolean=True), cp.Variable(4)
    total = loss(y - theta(points) - rows @ s) + 0.3 * ko.sum_squares(theta) + 0.9 * cp.sum(z) + 2.5
    problem = ko.Problem(goal(sign * total), [cp.abs(s) <= 8 * z])
    problem.solve()
    L, values = np.linalg.cholesky(theta.kernel(points, points)), []
    for choice in itertools.product((0, 1), repeat=4):
        v, t = cp.Variable(12), cp.Variable(4)
        misfit_ = loss(y - L @ v - rows @ t) + 0.3 * cp.sum_squares(v) + 0.9 * sum(choice) + 2.5
        values.append(cp.Problem(cp.Minimize(misfit_), [cp.abs(t) <= 8 * np.array(choice)]).solve(solver="CLARABEL"))
    found = problem.certificate
    assert problem.status == "optimal" and found.scope == "full kernel" and found.closes(1e-6)
    low, high = sorted((sign * found.lower, sign * found.upper))
    assert low - 1e-6 <= min(values) <= high + 1e-6
    assert problem.value == pytest.approx(sign * min(values), rel=1e-6)


def test_a_proof_of_boxes_ends_where_its_number_or_the_time_is_over(monkeypatch):
    """What was proven until then is told beside the solver's word."""
    problem, _, _ = outliers(bound=0.5)
    monkeypatch.setattr(integer_proof, "BOXES", 2)
    problem.solve()
    found = problem.certificate
    assert found.solver == "HIGHS" and found.scope == "solver's word"
    [beside] = [fact for fact in found.rests_on if fact.startswith("proven without it")]
    assert float(beside.rsplit(" ", 1)[1]) <= problem.value
    problem.solve(time_limit=60)  # as many boxes as it takes
    assert not problem.certificate.solver and problem.status == "optimal"


def test_a_box_without_an_answer_bounds_nothing(monkeypatch):
    """Where a solver claims that a box has no points, for a θ that is restricted, that is no proof."""

    def broken(*arguments):
        raise SolverError("no answer")

    problem, _, _ = outliers(bound=0.5)
    monkeypatch.setattr(convex, "_certified_alone", broken)
    monkeypatch.setattr(integer_proof._Boxes, "_at_once", lambda *_: None)
    problem.solve()
    assert problem.certificate.solver == "HIGHS" and not any("proven" in fact for fact in problem.certificate.rests_on)


def test_integers_that_nothing_depends_on_have_no_boxes():
    """Of 20 booleans six are used; the others would double the boxes each."""
    theta, z, s = ko.Theta(ko.kernels.Gaussian(sigma=0.4)), cp.Variable(20, boolean=True), cp.Variable(6)
    rows = np.arange(20) % 3 == 1
    chosen = z[rows][:6]
    constraints = [s <= 10 * chosen, s >= -10 * chosen, cp.sum(chosen) <= 2, cp.abs(theta(X)) <= 0.5]
    objective = cp.sum_squares(Y - theta(X) - s) + 0.01 * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(objective), constraints)
    problem.solve()
    few = cp.Variable(6, boolean=True)
    other = [s <= 10 * few, s >= -10 * few, cp.sum(few) <= 2, cp.abs(theta(X)) <= 0.5]
    same = ko.Problem(cp.Minimize(objective), other)
    same.solve()
    assert problem.status == "optimal" and problem.value == pytest.approx(same.value, rel=1e-6)
    assert problem.certificate.scope == same.certificate.scope == "full kernel"
    assert int(problem.certificate.rests_on[0].split()[4]) < 64  # boxes; 14 further booleans would take more
    assert set(np.unique(z.value)) <= {0.0, 1.0}
    impossible = cp.Variable(2, integer=True, bounds=[np.array([0.0, 0.2]), np.array([1.0, 0.8])])
    none = ko.Problem(cp.Minimize(cp.sum_squares(Y - theta(X) - impossible[0]) + ko.sum_squares(theta)))
    none.solve()
    assert none.status == "infeasible"
