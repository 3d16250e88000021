"""ko.Problem: cvxpy's surface, solvers, duals, parameters."""

import importlib.util
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from inside import reduction_of

import kernelopt as ko
from kernelopt.driver import values
from kernelopt.errors import DCPError, OptionError, ParameterError, SolverError
from kernelopt.results.solution import Status
from kernelopt.solvers import choice, cvxpy_solvers, machines

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
y = np.sign(np.sin(2 * X[:, 0]) + X[:, 1] ** 2 - 1 + 0.3 * RNG.normal(size=60))
KERNEL = ko.kernels.Gaussian(sigma=1.5)


@pytest.fixture
def theta():
    return ko.Theta(KERNEL)


def svm(theta, lam=0.5, constraints=()):
    b = cp.Variable(name="b")
    loss = cp.sum(ko.losses.hinge(y, theta(X) + b))
    return ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)), constraints), b


def by_hand(lam, weights=None, labels=y):
    """The dual-free textbook problem in the eigenbasis of Q."""
    eigenvalues, V = np.linalg.eigh(KERNEL(X))
    w, b = cp.Variable(60), cp.Variable()
    f = V @ cp.multiply(np.sqrt(np.clip(eigenvalues, 0, None)), w) + b
    losses = cp.pos(1 - cp.multiply(labels, f))
    loss = cp.sum(losses) if weights is None else weights @ losses
    problem = cp.Problem(cp.Minimize(loss + lam * cp.sum_squares(w)))
    return problem.solve("CLARABEL")


@pytest.mark.parametrize(
    "solver", ["CLARABEL", "OSQP", "ECOS", "SCS", "clarabel", "interior_point", "AUGMENTED_LAGRANGIAN", None]
)
def test_solvers_by_name(theta, solver):
    if solver == "ECOS" and "ECOS" not in cp.installed_solvers():
        pytest.skip("ECOS is not installed")
    problem, b = svm(theta)
    value = problem.solve(solver)
    assert problem.status == "optimal"
    # With scikit-learn, libsvm finds the first point of the augmented Lagrangian.
    default = "AUGMENTED_LAGRANGIAN" if importlib.util.find_spec("sklearn") else "INTERIOR_POINT"
    assert problem.solver_stats.solver_name == (solver or default).upper()
    assert problem.solver_stats.solve_time > 0
    assert abs(value - by_hand(0.5)) < 1e-5 * value
    assert value == problem.value
    f = theta(X).value + b.value
    recomputed = np.maximum(0, 1 - y * f).sum() + 0.5 * theta.value.norm**2
    assert abs(recomputed - value) < 1e-9 * value  # the value is that of this very θ


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
def test_solver_options_are_passed_on(theta):
    problem, _ = svm(theta)
    problem.solve("CLARABEL", max_iter=2)
    assert problem.status == "user_limit"
    assert problem.solver_stats.num_iters == 2
    with pytest.raises(SolverError, match="SCS.* Solvers that take the problem: "):
        problem.solve("SCS", no_such_option=3)


@pytest.mark.slow
def test_unknown_and_unfit_solvers(theta):
    problem, _ = svm(theta, constraints=[ko.norm(theta) <= 3])
    with pytest.raises(SolverError, match="NOSUCH"):
        problem.solve("NOSUCH")
    with pytest.raises(SolverError, match=r"OSQP.* Solvers that take the problem: .*CLARABEL"):
        problem.solve("OSQP")
    table = problem.solvers()
    assert table["CLARABEL"] is None
    assert "quadratic programs only" in table["OSQP"]
    assert "OSQP" not in table.applicable
    assert "applies (default)" in str(table)
    assert "differentiable" in table["NEWTON"]
    with pytest.raises(SolverError, match=r"NEWTON needs a differentiable objective.* Solvers that take the problem: "):
        problem.solve("NEWTON")
    assert svm(ko.Theta(KERNEL))[0].solvers()["OSQP"] is None


@pytest.mark.slow
def test_the_next_solver_is_tried_only_by_default(theta, monkeypatch):
    monkeypatch.setattr(choice, "_preferred", lambda *_: [])  # cvxpy's solvers alone
    problem, _ = svm(theta)
    ours = cvxpy_solvers.solve

    def breaks_down(inner, solver, *args):
        if solver == "CLARABEL":
            raise SolverError("breaks down")
        return ours(inner, solver, *args)

    monkeypatch.setattr(cvxpy_solvers, "solve", breaks_down)
    problem.solve()
    assert problem.status == "optimal"
    assert problem.solver_stats.solver_name in ("ECOS", "SCS")
    assert problem.solver_stats.attempts[0].claimed == "failed"
    with pytest.raises(SolverError, match="breaks down"):
        problem.solve("CLARABEL")

    def all_break_down(inner, solver, *args):
        raise SolverError(f"{solver} breaks down")

    monkeypatch.setattr(cvxpy_solvers, "solve", all_break_down)
    with pytest.raises(SolverError, match="CLARABEL, .*SCS were tried. Change units, .* The last one: SCS breaks down"):
        problem.solve()


@pytest.mark.slow
def test_a_method_of_first_order_is_not_asked_for_last_digits(theta, monkeypatch):
    monkeypatch.setattr(machines, "is_installed", lambda: False)  # active sets from libsvm's point reach them
    problem, _ = svm(theta)
    problem.solve(tol=1e-15)
    asked = [attempt.solver for attempt in problem.solver_stats.attempts]
    assert problem.solver_stats.attempts[0].gap < 1e-8 and asked[0] == "INTERIOR_POINT"
    assert "CLARABEL" in asked and "SCS" not in asked
    problem.solve("SCS", tol=1e-15)
    assert problem.solver_stats.solver_name == "SCS"


@pytest.mark.slow
def test_a_solver_that_lies_is_caught(theta, monkeypatch):
    """Constraints are re-evaluated at θ: a point that violates them is none."""
    monkeypatch.setattr(choice, "_preferred", lambda *_: [])  # cvxpy's solvers alone
    problem, _ = svm(theta, constraints=[theta(X) <= 0.1])
    ours = cvxpy_solvers.solve

    def lies(inner, *args):
        answer = ours(inner, *args)
        for v in inner.variables():
            v.value = v.value + 1.0
        return answer

    monkeypatch.setattr(cvxpy_solvers, "solve", lies)
    assert problem.solve() is None
    assert problem.status == "user_limit"


@pytest.mark.slow
def test_parameters_resolve_without_refactoring(theta, monkeypatch):
    lam = cp.Parameter(nonneg=True, value=0.5, name="lam")
    weights = cp.Parameter(60, nonneg=True, value=np.ones(60))
    labels = cp.Parameter(60, value=y)
    b = cp.Variable()
    losses = ko.losses.hinge(y, theta(X) + b)
    problem = ko.Problem(cp.Minimize(weights @ losses + lam * ko.sum_squares(theta)))
    assert problem.is_dpp()
    problem.solve()
    reduction, inner = reduction_of(problem), problem.reduced_problem
    monkeypatch.setattr("kernelopt.driver.refine.factorize", lambda *a: 1 / 0)
    for lam.value, weights.value in ((0.1, np.ones(60)), (0.1, np.r_[np.zeros(20), np.ones(40)])):
        assert problem.solve() == problem.value
        assert problem.status == "optimal"
    assert reduction_of(problem) is reduction
    assert problem.reduced_problem is inner
    monkeypatch.undo()
    assert abs(problem.value - by_hand(0.1, weights.value)) < 1e-6 * problem.value

    by_labels = ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(labels, theta(X) + b)) + lam * ko.sum_squares(theta)))
    assert by_labels.is_dpp()
    for labels.value in (y, -y, np.where(X[:, 0] > 0, 1.0, -1.0)):
        assert abs(by_labels.solve() - by_hand(0.1, labels=labels.value)) < 1e-6 * by_labels.value


def test_fold_weights_reproduce_subset_fits(theta):
    weights = cp.Parameter(60, nonneg=True)
    problem = ko.Problem(cp.Minimize(weights @ ko.losses.squared_error(y, theta(X)) + ko.sum_squares(theta)))
    fold = np.arange(60) % 5 == 0
    weights.value = (~fold).astype(float)
    problem.solve()
    subset = ko.Theta(KERNEL)
    small = ko.Problem(cp.Minimize(cp.sum_squares(y[~fold] - subset(X[~fold])) + ko.sum_squares(subset)))
    assert abs(problem.value - small.solve()) < 1e-7 * problem.value
    assert np.abs(theta.value(X) - subset.value(X)).max() < 1e-5


def test_surface(theta):
    lam = cp.Parameter(nonneg=True, name="lam", value=1.0)
    b = cp.Variable(name="b")
    objective = cp.Minimize(cp.sum_squares(theta(X) + b - y) + lam * ko.sum_squares(theta))
    constraints = [b >= 0.1]
    problem = ko.Problem(objective, constraints)
    assert problem.variables() == [b]
    assert problem.thetas() == [theta]
    assert problem.parameters() == [lam]
    assert problem.var_dict == {"b": b}
    assert problem.param_dict == {"lam": lam}
    assert any(np.array_equal(c.value, y) for c in problem.constants())
    assert "Prediction" in {a.__name__ for a in problem.atoms()}
    assert problem.is_dcp()
    with pytest.raises(OptionError, match="dpp"):
        problem.is_dcp(dpp="yes")
    assert problem.is_dpp()
    assert problem.is_qp()
    assert not problem.is_mixed_integer()
    assert problem.is_representable()
    assert (problem.status, problem.value, problem.solver_stats) == (None, None, None)
    data, _, _ = problem.get_problem_data("CLARABEL")
    assert data["A"].shape[1] > 60
    assert problem.solve() == problem.value
    assert b.value >= 0.1 - 1e-8
    assert constraints[0].dual_value >= 0
    assert "minimize" in repr(problem).lower()


@pytest.mark.slow
def test_maximize(theta):
    problem = ko.Problem(cp.Maximize(cp.min(cp.multiply(y, theta(X)))), [ko.norm(theta) <= 1])
    assert 0 <= problem.solve() < 1
    assert theta.value.norm <= 1 + 1e-6
    negated = ko.Problem(cp.Minimize(-cp.min(cp.multiply(y, theta(X)))), [ko.norm(theta) <= 1])
    assert negated.solve() == pytest.approx(-problem.value, abs=1e-7)


def test_problems_without_theta():
    x = cp.Variable()
    problem = ko.Problem(cp.Minimize((x - 1) ** 2), [x <= 0.5])
    assert problem.solve() == pytest.approx(0.25)
    assert problem.constraints[0].dual_value == pytest.approx(1.0, abs=1e-6)


def test_norm_without_predictions(theta):
    problem = ko.Problem(cp.Minimize(ko.norm(theta)))
    assert problem.solve() == pytest.approx(0, abs=1e-9)
    assert theta.value.norm == pytest.approx(0, abs=1e-9)
    assert np.allclose(theta.value(X), 0)


def test_duals_of_predictions(theta):
    problem, _ = svm(theta)
    problem.solve()
    nu = theta(X).dual_value
    assert nu.shape == (60,)
    assert np.array_equal((ko.FeatureMatrix(X, KERNEL) @ theta).dual_value, nu)
    assert abs(nu.sum()) < 1e-6  # the intercept
    assert (y * nu > -1e-7).all()
    assert (y * nu < 1 + 1e-7).all()
    support = np.abs(nu) > 1e-6
    margins = y * (theta(X).value + problem.variables()[0].value)
    assert (margins[~support] > 1 - 1e-6).all()
    assert theta(X[:5]).dual_value is None  # not a feature matrix of the problem
    theta.value = None
    assert theta(X).dual_value is None


@pytest.mark.slow
def test_statuses(theta):
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [theta(X) >= 1, theta(X[:1]) <= 0])
    assert problem.solve() == np.inf
    assert problem.status == "infeasible"
    assert theta.value is None
    unbounded = ko.Problem(cp.Minimize(cp.sum(theta(X))))
    assert unbounded.solve() == -np.inf
    assert unbounded.status == "unbounded"
    maximized = ko.Problem(cp.Maximize(cp.sum(theta(X)) - ko.norm(theta)))
    assert maximized.solve() == np.inf
    assert maximized.status == "unbounded"


@pytest.mark.slow
def test_a_restriction_is_not_called_infeasible(theta):
    """Interpolation is feasible at full rank, though not on the span of a few pivots."""
    interpolation = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [theta(X) == y])
    assert interpolation.solve(max_rank=5) is None
    assert interpolation.status == "user_limit"
    assert "max_rank" in str(interpolation.explain())
    narrow = ko.Theta(ko.kernels.Gaussian(sigma=0.4))
    exact = ko.Problem(cp.Minimize(ko.sum_squares(narrow)), [narrow(X) == y])
    exact.solve(rank_tol=1e-2)  # grows by itself
    assert exact.status in ("optimal", "optimal_inaccurate")
    assert np.abs(narrow.value(X) - y).max() < 1e-4


@pytest.mark.parametrize(
    "options", [{"tol": 0}, {"tol": 2}, {"rank_tol": -1}, {"max_rank": 0}, {"factorization": "qr"}, {"tol": np.nan}]
)
def test_options_are_checked(theta, options):
    problem, _ = svm(theta)
    with pytest.raises(OptionError, match=f"Expected {next(iter(options))}"):
        problem.solve(**options)


def test_parameters_need_values(theta):
    lam = cp.Parameter(nonneg=True, name="lam")
    problem = ko.Problem(cp.Minimize(cp.sum(theta(X)) + lam * ko.norm(theta)))
    with pytest.raises(ParameterError, match="lam"):
        problem.solve()
    with pytest.raises(cp.error.ParameterError):
        problem.solve()


@pytest.mark.slow
def test_a_failed_call_leaves_objects_as_they_were(theta):
    problem, b = svm(theta)
    problem.solve()
    before = problem.value, problem.status, theta.value, b.value
    for bad in ({"solver": "NOSUCH"}, {"tol": 5}, {"memory_limit": 10, "rank_tol": 1e-3}):
        with pytest.raises(ko.errors.KernelOptError):
            problem.solve(**bad)
        assert (problem.value, problem.status, theta.value, b.value) == before


@pytest.mark.later
def test_slope_constraint_at_all_points_of_a_ball(theta):
    """η‖θ‖ ≤ (Aθ)ᵢ + c, the tightening of a bound to a neighbourhood."""
    eta = np.sqrt(2 - 2 * np.exp(-(0.1**2) / (2 * 1.5**2)))  # ‖F(x) − F(z)‖ for ‖x − z‖ = 0.1
    fit = cp.sum_squares(theta(X) - y) + 0.1 * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(fit), [eta * ko.norm(theta) <= theta(X) + 0.5])
    problem.solve()
    offsets = RNG.normal(size=(60, 2))
    near = X + 0.1 * offsets / np.linalg.norm(offsets, axis=1, keepdims=True)
    assert problem.status == "optimal"
    assert theta.value(near).min() >= -0.5 - 1e-6


@pytest.mark.slow
def test_complex_mixtures_of_cones(theta):
    """SDP, exponential and second-order cones beside θ."""
    P, b = cp.Variable((2, 2), PSD=True), cp.Variable()
    problem = ko.Problem(
        cp.Minimize(cp.sum(cp.logistic(-cp.multiply(y, theta(X) + b))) + cp.trace(P) + 0.3 * ko.norm(theta)),
        [P[0, 1] == b, cp.lambda_max(P) <= 4, ko.norm(theta) <= 20],
    )
    problem.solve()
    # cvxpy's solvers meet a matrix inequality only nearly, and say so.
    assert problem.status == "optimal" or 0 < problem.certificate.violation < 1e-6
    assert np.isclose(P.value[0, 1], b.value, atol=1e-6)


@pytest.mark.later
def test_bounds_that_are_parameters(theta):
    radius, level = cp.Parameter(nonneg=True, value=2.0), cp.Parameter(value=0.3)
    fit = cp.sum_squares(theta(X) - y)
    problem = ko.Problem(cp.Minimize(fit), [ko.norm(theta) <= radius, theta(X) <= level])
    for radius.value, level.value in ((2.0, 0.3), (1.0, 0.1)):
        problem.solve()
        assert problem.status == "optimal"
        assert theta.value.norm <= radius.value + 1e-6
        assert theta.value(X).max() <= level.value + 1e-6


@pytest.mark.slow
def test_scalar_cones(theta):
    objective = cp.Minimize(cp.sum_squares(theta(X) - y) + ko.norm(theta))
    problem = ko.Problem(objective, [cp.NonNeg(theta(X)[0] - 0.5), cp.Zero(theta(X)[1] - 0.2)])
    problem.solve()
    assert problem.status == "optimal"
    assert theta(X).value[:2] == pytest.approx([max(0.5, theta(X).value[0]), 0.2], abs=1e-6)


@pytest.mark.later
def test_a_false_claim_of_infeasibility_is_checked():
    """Clarabel calls both infeasible, for their units; θ = 0 is feasible, and another solver finds an answer."""
    theta, b = ko.Theta(KERNEL), cp.Variable()
    ball = ko.Problem(cp.Minimize(cp.sum_squares(1e4 * y - theta(X) - b)), [ko.norm(theta) <= 1])
    assert np.isfinite(ball.solve())
    absolute = cp.sum(ko.losses.absolute_error(1e5 * y, theta(X) + b))
    free = ko.Problem(cp.Minimize(absolute + 0.1 * ko.sum_squares(theta)))
    assert np.isfinite(free.solve())
    assert free.status in ("optimal", "optimal_inaccurate")


def test_a_low_rank_is_not_called_optimal(theta):
    problem, _ = svm(theta, lam=1e-6)
    problem.solve(max_rank=1)
    assert problem.status == "optimal_inaccurate"
    assert "restricts θ" in str(problem.explain())
    assert "max_rank" in str(problem.explain())


@pytest.mark.slow
def test_a_widened_factor_is_kept(theta, monkeypatch):
    """An infeasible restriction is widened once, not at every re-solve."""
    narrow = ko.Theta(ko.kernels.Gaussian(sigma=0.4))
    shift = cp.Parameter(value=0.0)
    exact = ko.Problem(cp.Minimize(ko.sum_squares(narrow)), [narrow(X) == y + shift])
    exact.solve(rank_tol=1e-2)
    calls = []
    monkeypatch.setattr("kernelopt.driver.refine.factorize", lambda *a: calls.append(a))
    shift.value = 0.5
    exact.solve(rank_tol=1e-2)
    assert not calls
    assert np.abs(narrow.value(X) - y - 0.5).max() < 1e-4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_rank": 2.5}, "max_rank"),
        ({"max_rank": True}, "max_rank"),
        ({"tol": None}, "tol"),
        ({"solver": 5}, "solver"),
        ({"gp": True}, "gp=True"),
        ({"qcp": True}, "qcp=True"),
    ],
)
def test_more_options_are_checked(theta, options, words):
    with pytest.raises(OptionError, match=words):
        svm(theta)[0].solve(**options)


@pytest.mark.later
def test_options_that_a_solver_refuses(theta):
    with pytest.raises(SolverError, match=r"SCS did not take the options eps_abs"):
        svm(theta)[0].solve("SCS", eps_abs=-1)


def test_an_accuracy_by_another_name_is_refused_with_the_name_of_ours(theta):
    with pytest.raises(SolverError, match=r"no option eps\. eps is an option of SCS\. .*write tol=, which every"):
        svm(theta)[0].solve("CLARABEL", eps=1e-8)


@pytest.mark.parametrize("name", ["ignore_dpp", "enforce_dpp", "canon_backend", "solver_path", "gp"])
@pytest.mark.parametrize("solver", [None, "NEWTON", "SCS"])
def test_an_option_of_cvxpy_that_has_no_use_here(theta, name, solver):
    with pytest.raises(OptionError, match=rf"no option {name}: .* Leave it out\."):
        svm(theta)[0].solve(solver, **{name: False})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"max_iters": 5},
            "Without solver=, .* CLARABEL, .*no option max_iters.* ECOS and SCS.*CLARABEL is max_iter",
        ),
        ({"solver": "OSQP", "max_iters": 5}, "OSQP has no option max_iters.* ECOS and SCS.* OSQP is max_iter"),
        ({"eps_abs": 1e-8}, "CLARABEL.* no option eps_abs.* OSQP and SCS.* write tol="),
        ({"feastol": 1e-8}, "CLARABEL.* no option feastol.* ECOS.* write tol="),
        ({"nothing_like_it": 5, "eps": 1}, r"no options nothing_like_it, eps\. eps is"),
    ],
)
def test_an_option_that_a_solver_has_not_is_refused_before_it_is_tried(theta, monkeypatch, options, words):
    problem = svm(theta)[0]
    monkeypatch.setattr("kernelopt.driver.refine.pursue", None)
    with pytest.raises(SolverError, match=words) as refusal:
        problem.solve(**options)
    assert not getattr(refusal.value, "__notes__", [])


@pytest.mark.slow
def test_an_option_that_a_solver_refused_itself_is_explained_too(theta):
    with pytest.raises(SolverError, match=r"max_iter is an option of CLARABEL and OSQP\. That of SCS is max_iters\."):
        svm(theta)[0].solve("SCS", max_iter=5)


@pytest.mark.parametrize(
    ("solver", "options"),
    [
        ("CLARABEL", {"max_iter": 100, "use_quad_obj": True}),
        ("OSQP", {"max_iter": 10_000, "solver_type": "direct", "cg_preconditioner": None, "polishing": True}),
        ("SCS", {"max_iters": 10_000, "eps": 1e-8, "use_indirect": False, "use_quad_obj": True}),
        ("HIGHS", {"time_limit": 10.0, "parallel": "off"}),
    ],
)
def test_options_that_solvers_have_are_passed_on(solver, options):
    theta = ko.Theta(ko.kernels.Linear())
    problem = ko.Problem(cp.Minimize(cp.norm1(theta([[1.0], [2.0]]) - [1, 2])), [theta([[1.0]]) <= 3])
    assert problem.solve(solver, certify=False, **options) == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ({"tolerance": 1e-8}, "solve() has no option tolerance. Did you mean tol?"),
        ({"timelimit": 5}, "solve() has no option timelimit. Did you mean time_limit?"),
        ({"solver": "OSQP", "rank_tolerance": 5}, "solve() has no option rank_tolerance. Did you mean rank_tol?"),
        ({"solver": "SCS", "max_iter": 5}, None),
        ({"solver": "SCS", "nothing_like_it": 5}, None),
    ],
)
def test_a_mistyped_option(theta, options, note):
    with pytest.raises(SolverError) as refusal:
        svm(theta)[0].solve(**options)
    assert getattr(refusal.value, "__notes__", []) == ([] if note is None else [note])


def test_our_own_solvers_have_no_options(theta):
    with pytest.raises(OptionError, match="INTERIOR_POINT has none; got tolerance") as refusal:
        svm(theta)[0].solve("interior_point", tolerance=1e-8)
    assert refusal.value.__notes__ == ["solve() has no option tolerance. Did you mean tol?"]


def test_one_constraint_is_not_a_list(theta):
    with pytest.raises(ko.errors.DataError, match=r"\[constraint\]"):
        ko.Problem(cp.Minimize(ko.norm(theta)), theta(X) >= 1)


def test_one_theta_in_two_problems(theta):
    first, second = svm(theta, 0.5)[0], svm(theta, 5.0)[0]
    first.solve()
    norm = theta.value.norm
    second.solve()
    assert theta.value.norm < norm
    first.solve()
    assert theta.value.norm == pytest.approx(norm)


@pytest.mark.slow
@pytest.mark.parametrize("claim", ["infeasible", "unbounded", "user_limit"])
def test_a_claim_without_proof_is_not_believed(claim, theta, monkeypatch):
    """Every solver says that there is no answer; there is one. After a limit θ = 0 is the best point that is known."""
    monkeypatch.setattr(choice, "_preferred", lambda *_: [])  # cvxpy's solvers alone
    problem, b = svm(theta)
    ours = cvxpy_solvers.solve

    def claims(asked, *args):
        answer = ours(asked, *args)
        stated = any(v.name() == b.name() for v in asked.variables())
        return replace(answer, status=Status(claim), has_point=False) if stated else answer

    monkeypatch.setattr(cvxpy_solvers, "solve", claims)
    at_zero = pytest.approx(len(X)) if claim == "user_limit" else None
    assert problem.solve() == at_zero
    assert problem.status == "user_limit"
    assert {a.claimed for a in problem.solver_stats.attempts} == {claim}


@pytest.mark.later
def test_one_solver_makes_a_false_claim(theta, monkeypatch):
    monkeypatch.setattr(choice, "_preferred", lambda *_: [])  # cvxpy's solvers alone
    problem, b = svm(theta)
    ours = cvxpy_solvers.solve

    def claims(asked, solver, *args):
        answer = ours(asked, solver, *args)
        lies = any(v.name() == b.name() for v in asked.variables()) and solver == "CLARABEL"
        return replace(answer, status=Status.INFEASIBLE, has_point=False) if lies else answer

    monkeypatch.setattr(cvxpy_solvers, "solve", claims)
    problem.solve()
    assert problem.status == "optimal"
    assert problem.solver_stats.solver_name in ("ECOS", "SCS")


@pytest.mark.later
def test_nothing_is_written_before_a_solve_has_ended(theta):
    """What a solver puts on variables of its own is no business of the user's."""
    b, seen = cp.Variable(name="b"), []

    def kernel(x, z):
        seen.append((b.value, theta.value))
        return float(np.exp(-np.sum((x - z) ** 2)))

    theta = ko.Theta(ko.kernels.as_kernel(kernel))
    bound = theta(X[:10]) + b <= 2
    problem = ko.Problem(cp.Minimize(cp.norm1(theta(X[:10]) + b - y[:10]) + ko.sum_squares(theta)), [bound])
    b.value = 17.0
    problem.solve(solver="CLARABEL")
    assert {value for value, _ in seen} == {17.0} and all(f is None for _, f in seen)
    kept = b.value, bound.dual_value, theta.value
    assert kept[0] != 17.0
    with pytest.raises(SolverError):
        problem.solve(solver="CLARABEL", no_such_option=1)
    assert b.value is kept[0] and bound.dual_value is kept[1] and theta.value is kept[2]


@pytest.mark.later
def test_variables_of_a_problem_without_an_answer_are_none(theta):
    b = cp.Variable()
    bound = b >= 1
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta) + b), [bound, theta(X) + b <= 0, theta(X) >= 0])
    b.value = 3.0
    problem.solve()
    assert problem.status == "infeasible" and b.value is None and bound.dual_value is None and theta.value is None


# ---------------------------------------------------------------- sums and multiples of problems


def halves():
    """Two problems in one θ, each with a part of the rows, and a constraint that both have."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    X, y = np.arange(8.0)[:, None], np.cos(np.arange(8.0))
    shared = theta(X[:2]) <= 0.3
    parts = [cp.sum_squares(theta(X[rows]) - y[rows]) for rows in (slice(4), slice(4, 8))]
    penalty = 0.1 * ko.sum_squares(theta)
    first = ko.Problem(cp.Minimize(parts[0] + penalty), [shared])
    second = ko.Problem(cp.Minimize(parts[1]), [theta(X[6:]) >= 0, shared])
    whole = ko.Problem(cp.Minimize(parts[0] + parts[1] + penalty), [shared, theta(X[6:]) >= 0])
    return first, second, whole


@pytest.mark.later
def test_a_sum_of_problems():
    first, second, whole = halves()
    for added in (first + second, sum([first, second])):
        assert len(added.constraints) == 2
        assert added.solve() == pytest.approx(whole.solve(), rel=1e-6)
    assert first + 0 is first


@pytest.mark.slow
def test_multiples_of_problems():
    _, _, whole = halves()
    least = whole.solve()
    for made in (2 * whole, whole * np.int64(2), whole / 0.5):
        assert isinstance(made, ko.Problem)
        assert made.solve() == pytest.approx(2 * least, rel=1e-6)
    for made in (-whole, whole * -1):
        assert isinstance(made.objective, cp.Maximize)
        assert made.solve() == pytest.approx(-least, rel=1e-6)
    for made in (lambda: np.ones(3) * whole, lambda: whole * np.ones(3)):
        with pytest.raises(ko.errors.DataTypeError, match="finite number as factor"):
            made()
    assert isinstance(np.float64(2) * whole, ko.Problem)
    first, second, _ = halves()
    assert (first - -second).solve() == pytest.approx(least, rel=1e-6)


@pytest.mark.later
def test_a_sum_of_problems_with_boxes():
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    box = ko.everywhere(lambda P: theta(P) <= 0.5, 0.0, 1.0)
    first = ko.Problem(cp.Minimize(cp.sum_squares(theta([[0.0], [1.0]]) - 1)), [box])
    second = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [box])
    added = first + second
    assert added.constraints == [box]
    added.solve()
    assert added.status == "optimal" and box.least >= 0


def test_what_a_problem_is_not_added_to():
    first, second, _ = halves()
    with pytest.raises(DCPError, match=r"one of each\. Subtract"):
        first + -second
    for wrong in (lambda: first + 1, lambda: first - 1, lambda: first * "2", lambda: first * None, lambda: first / 0):
        with pytest.raises(ko.errors.DataTypeError, match="Expected .* a problem; got|ko.Problem"):
            wrong()
    with pytest.raises(ko.errors.DataTypeError, match="Write a cp.Parameter into the objective"):
        first * cp.Parameter(value=2.0)
    with pytest.raises(TypeError, match="unsupported operand"):
        1 - first


def test_values_are_restored_with_multipliers(theta):
    """Those of variables, parameters and θs, too."""
    b, lam = cp.Variable(name="b", value=1.0), cp.Parameter(name="lam", value=2.0)
    bound = b <= 1
    bound.dual_variables[0].save_value(np.array(3.0))
    restore = values.kept(values.with_values([b, lam], [bound], None), [theta])
    for leaf in (b, lam, bound.dual_variables[0]):
        leaf.save_value(np.array(7.0))
    theta.value = ko.Function(KERNEL, X[:1], [1.0])
    restore()
    assert (b.value, lam.value, bound.dual_value, theta.value) == (1.0, 2.0, 3.0, None)


@pytest.mark.parametrize(("known", "words"), [(("lam", "mu"), "there are: lam, mu"), ((), "there are: none")])
def test_a_parameter_of_another_problem_is_told_from_those_of_this_one(known, words):
    known, other = [cp.Parameter(name=name) for name in known], cp.Parameter(name="other")
    with pytest.raises(ParameterError, match=words), values.of_parameters({other: 1.0}, known):
        pass


@np.errstate(over="ignore")
def test_kernel_values_whose_trace_overflows():
    theta = ko.Theta(3e307 * ko.kernels.Gaussian(sigma=1.0))
    f = theta(np.arange(12.0)[:, None])
    problem = ko.Problem(cp.Minimize(cp.norm1(f - 1) + 1e-155 * ko.norm(theta)), [cp.sum(f) == 0.3])
    problem.solve()
    assert problem.status != "optimal"


def test_solvers_whose_points_meet_no_constraint_leave_0():
    """exp(‖θ‖²/1e-20) ≤ e: their tolerances are far above the room, and θ = 0 meets it."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    loss = cp.sum_squares(theta(np.array([[0.0], [1.0]])) - np.array([1.0, 2.0]))
    problem = ko.Problem(cp.Minimize(loss), [cp.exp(ko.sum_squares(theta) / 1e-20) <= np.e])
    problem.solve()
    assert problem.status == "user_limit" and problem.value == 5.0 and theta.value.norm == 0
    assert problem.certificate.lower <= 5.0 <= problem.certificate.upper


@pytest.mark.parametrize("size", [1e-160, 1e-300])
def test_costs_whose_products_underflow(size):
    """The size of the objective is 0 in double precision, and θ = 0 is optimal to that."""
    theta, r = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    short = cp.sum(cp.pos(r - theta(np.array([[0.0], [1.0]]))))
    problem = ko.Problem(cp.Minimize(size * short - size * r * 2 + 0.5 * ko.sum_squares(theta)))
    assert problem.solve() == pytest.approx(0.0, abs=1e-150)
    assert problem.certificate.lower <= 0 <= problem.certificate.upper


@pytest.mark.parametrize(
    ("solver", "options"),
    [
        ("CLARABEL", {"max_iter": -1}), ("CLARABEL", {"direct_solve_method": "x"}), ("SCS", {"max_iters": 10**30}),
        ("ECOS_BB", {"mi_max_iters": 0}), ("ECOS_BB", {"mi_max_iters": "many"}),
    ],
)  # fmt: skip
def test_options_that_no_solver_can_take(solver, options):
    """Whatever a solver raises, or does to the process."""
    theta, z = ko.Theta(ko.kernels.Gaussian(sigma=0.5)), cp.Variable(boolean=solver == "ECOS_BB")
    f = theta(np.linspace(0, 1, 6)[:, None])
    problem = ko.Problem(cp.Minimize(cp.sum_squares(f - z) + 0.3 * ko.sum_squares(theta)), [f <= 1])
    with pytest.raises(SolverError, match=solver):
        problem.solve(solver=solver, **options)


def test_limits_of_memory_are_checked_where_the_factor_stays():
    theta = ko.Theta(ko.kernels.Linear())
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta([[0.0], [1.0]]) - 1) + ko.sum_squares(theta)))
    problem.solve()
    for wrong in (-1, 0, "1GB", True):
        with pytest.raises(OptionError, match="memory_limit"):
            problem.solve(memory_limit=wrong)
    assert problem.status == "optimal"


def test_data_of_a_problem_without_the_value_of_a_parameter():
    theta, lam = ko.Theta(ko.kernels.Linear()), cp.Parameter(nonneg=True, name="lam")
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta([[0.0], [1.0]]) - 1) + lam * ko.sum_squares(theta)))
    with pytest.raises(ParameterError, match="lam"):
        problem.get_problem_data("CLARABEL")
