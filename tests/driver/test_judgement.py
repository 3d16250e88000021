"""What is made of a solver's answer: values of the functions that are returned, constraints that hold, and a status."""

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
from inside import point_of, reduction_of
from sklearn.model_selection import ShuffleSplit

import kernelopt as ko
from kernelopt.compiler import representer
from kernelopt.compiler.iterate import Iterate
from kernelopt.driver import convex, judgement, refine
from kernelopt.driver.diagnosis import Diagnosis
from kernelopt.driver.options import factor_options
from kernelopt.driver.policy import Step
from kernelopt.driver.strategy import Goal, Outcome, Task, without_answer
from kernelopt.errors import SolverError
from kernelopt.results.solution import Attempt, Solution, Status
from kernelopt.solvers.cvxpy_solvers import Answer
from kernelopt.support import clock

RNG = np.random.default_rng(0)
X, NOISE = RNG.uniform(size=(40, 1)), RNG.normal(size=40)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strength", "options"),
    [
        pytest.param(1e-14, {"rank_tol": 1e-17}, id="coefficients of 1e11"),
        pytest.param(1e-9, {"dtype": "float32"}, id="a factor in single precision"),
    ],
)
def test_the_value_is_that_of_the_function(strength, options):
    """Predictions Bv may be off by far more than rounding; the value is that of f."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=0.3))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - NOISE) + strength * ko.sum_squares(theta)))
    problem.solve(tol=1e-4, **options)
    f = theta.value
    assert problem.value == pytest.approx(np.sum((f(X) - NOISE) ** 2) + strength * f.norm**2, rel=5e-9)


LABELS = np.sign(NOISE)
CONSTRAINTS = {
    "shorter": (lambda f: cp.norm(f) <= 1, "SCS"),
    "longer": (lambda f: cp.multiply(LABELS[:10], f[:10]) >= 1, None),
    "longer, for logarithms": (lambda f: cp.sum(cp.log(f[:5])) >= 1, "CLARABEL"),
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_an_answer_is_scaled_into_its_constraints(name, monkeypatch):
    """Where the steps along constraints do not help."""
    monkeypatch.setattr(ko.driver.judgement.projection, "moved", lambda *_: None)
    stated, solver = CONSTRAINTS[name]
    theta = ko.Theta(ko.kernels.Gaussian(sigma=0.3))
    f = theta(X)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(f - NOISE) + 0.1 * ko.sum_squares(theta)), [stated(f)])
    problem.solve(solver=solver, tol=1e-5 if solver == "SCS" else 1e-6)
    assert problem.status == "optimal"
    assert np.max(problem.constraints[0].violation()) == 0
    assert problem.value == pytest.approx(problem.objective.value, rel=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_first_order_solver_far_from_another_gets_no_second_run(monkeypatch):
    """SCS's second run takes seconds, and its gap would be 1e5 times another's."""
    solved, solve = [], ko.Problem.solve
    monkeypatch.setattr(ko.Problem, "solve", lambda self, *args, **kw: solved.append(self) or solve(self, *args, **kw))
    rng = np.random.RandomState(0)
    points, labels = rng.normal(loc=100, size=(100, 2)), rng.randint(2, size=100)
    train, _ = next(ShuffleSplit(test_size=0.2, random_state=rng).split(points))
    ko.estimators.NuKernelClassifier(nu=0.1).fit(points[train], labels[train])
    names = [attempt.solver for attempt in solved[0].solver_stats.attempts]
    assert ("SCS", "SCS") not in pairwise(names)
    assert solved[0].status == "optimal" and abs(solved[0].value) < 1e-8


def ridge(lam=0.1, **options):
    """A solved problem, the work that its driver does, and its point."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=0.3))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - NOISE) + lam * ko.sum_squares(theta)))
    problem.solve(**options)
    return problem, Task(reduction_of(problem), problem._outer(), Goal(1e-6)), point_of(problem)


@pytest.mark.parametrize(("options", "expected"), [({"rank_tol": 1e-14}, False), ({"dtype": "float32"}, True)])
def test_predictions_of_an_exact_factor_are_not_recomputed(options, expected):
    """Kernel values give them a second time only where Bv may differ."""
    _, task, point = ridge(**options)
    assert judgement._is_recomputed(task, point) is expected


def test_only_an_open_gap_beside_zero_moves_a_point_towards_zero(monkeypatch):
    """A closed gap, and one that is large beside the improvement on θ = 0, leave the point as it is."""
    asked = []
    monkeypatch.setattr(judgement.projection, "towards_zero", lambda *_: asked.append(1))
    problem, task, point = ridge()
    found = problem.certificate
    assert found.closes(1e-6)
    assert not asked
    wide = replace(found, lower=found.lower - 0.5 * found.unit, bare=None)
    assert not wide.closes(1e-6)
    assert judgement._is_nearly_zero(task, task.data, wide, point) is None
    assert not asked
    far = replace(found, at_zero=1e12 * found.upper, bare=None, terms=found.upper, lower=0.0)
    assert not far.closes(1e-6)
    assert judgement._is_nearly_zero(task, task.data, far, point) is None
    assert asked


def test_without_a_value_at_zero_a_gap_is_compared_with_the_value(monkeypatch):
    """θ = 0 is infeasible then: a gap of nearly tol times the value may be that of an optimum of 0."""
    _, task, point = ridge()
    value, asked = judgement._bare(task, point), []
    monkeypatch.setattr(judgement.projection, "towards_zero", lambda *_: asked.append(1))
    for share in (1.001, 0.999):
        found = SimpleNamespace(absolute_gap=share * 1e-6 * value, at_zero=None, bare=None, closes=lambda *_: False)
        assert judgement._is_nearly_zero(task, task.data, found, point) is None
        assert bool(asked) is (share < 1)


@pytest.mark.parametrize("certify", [True, "estimate"])
def test_a_known_bound_counts_after_an_interruption(certify):
    """Where a certificate without a pass over the kernel knows less, unless only an estimate is asked for."""
    problem, task, point = ridge()
    task = replace(task, goal=replace(task.goal, certify=certify, known=problem.certificate.evidence))
    without = replace(point, nu=(np.zeros_like(NOISE),))
    answer = Answer(Status.OPTIMAL, True, None, without)
    found, interrupted = judgement._certified(task, task.data, answer, without, True)
    assert interrupted
    assert found.certificate.scope == ("full kernel" if certify is True else "reduced problem")
    if certify is True:
        assert found.certificate.lower >= problem.certificate.lower - 1e-9


@pytest.mark.parametrize(("certify", "expected"), [(True, True), ("estimate", False)])
def test_a_factor_may_grow_only_with_a_certificate(certify, expected):
    """An estimate of the gap does not tell that a factor is too coarse."""
    problem, task, point = ridge(max_rank=3)
    task = replace(task, goal=replace(task.goal, certify=certify))
    best = judgement.Candidate(0.0, True, False, point, Answer(Status.OPTIMAL, True, None, point))
    inverted = judgement.Inverted(Solution(Status.OPTIMAL, point.value, {}, {}, None), point, True)
    found = replace(problem.certificate, scope=task.goal.scope)
    assert judgement._with_status(task, best, inverted, found, Diagnosis, None).may_grow is expected


PLANS = {
    "in other units": ("CLARABEL", {}, [("optimal", 1e-3)], 2),
    "ours have no second run": ("NEWTON", {}, [("optimal", 1e-3)], 1),
    "the caller's own options": ("CLARABEL", {"own_options": True}, [("optimal", 1e-3)], 1),
    "a claim that no answer exists": ("CLARABEL", {}, [("infeasible", np.nan)], 1),
    "far from another solver's gap": ("SCS", {}, [("optimal", 1e-6), ("optimal", 1e-1)], 1),
}


@pytest.mark.parametrize("name", PLANS)
def test_who_gets_a_second_run(name):
    """With a tighter tolerance: one of cvxpy's solvers that left the gap open, and may do better."""
    solver, options, attempts, expected = PLANS[name]
    work = convex.Convex(SimpleNamespace(goal=Goal(1e-6, **options), data=None), [solver], None)
    plans = work.plans()
    runs = [next(plans)]
    work.attempts += [Attempt(solver, 1e-6, None, (), claimed, gap, 0.1) for claimed, gap in attempts]
    runs += plans
    assert [run.solver for run in runs] == [solver] * expected
    assert [run.tol for run in runs] == pytest.approx([1e-6, 1e-9][:expected])


@pytest.mark.parametrize(
    ("options", "gap", "solvers"),
    [
        ({}, 1e-5, ["NEWTON"]),
        ({"own_options": True}, 1e-5, ["NEWTON", "CLARABEL", "ECOS"]),
        ({"coarse": False}, 1e-5, ["NEWTON", "CLARABEL", "ECOS"]),
        ({"certify": "estimate"}, 1e-5, ["NEWTON", "CLARABEL", "ECOS"]),
        ({}, 1e-3, ["NEWTON", "CLARABEL", "ECOS"]),
    ],
)
@pytest.mark.parametrize("ours", [True, False])
def test_a_coarse_first_factor_gets_our_own_engines_alone(options, gap, solvers, ours):
    """They left a small gap there. Once one of cvxpy's ran, the others do."""
    goal = Goal(1e-8, **({"coarse": True} | options))
    names = ["NEWTON", "CLARABEL", "ECOS"] if ours else ["CLARABEL", "ECOS"]
    work = convex.Convex(SimpleNamespace(goal=goal, data=0), names, None)
    seen = []
    for plan in work.plans():
        seen += [plan.solver] if plan.solver not in seen else []
        work.attempts.append(Attempt(plan.solver, 1e-8, None, (), "optimal", gap, 0.1))
        answer = Answer(Status.OPTIMAL, True, None, None)
        work.best = work.best or judgement.Candidate(gap, False, False, None, answer)
    assert seen == (solvers if ours else ["CLARABEL", "ECOS"])
    assert work.best.closed is (seen == ["NEWTON"])


def begun():
    """The work on a solved problem, and an answer."""
    problem, task, point = ridge(rank_tol=1e-14)
    return convex.begin(task.outer, ["CLARABEL"], task.reduction, task.goal), Answer(
        Status.OPTIMAL, True, problem.solver_stats, point
    )


@pytest.mark.later
@pytest.mark.parametrize(("known", "closed"), [(np.nan, False), (1e-6, True)])
def test_a_gap_is_closed_only_where_it_is_known(known, closed, monkeypatch):
    """By the solver's own bound, which may be tol itself; without any bound another attempt follows."""

    def slow(*_):
        raise clock.OutOfTimeError

    monkeypatch.setattr(convex.certificates, "gap_of_solver", lambda *_: known)
    monkeypatch.setattr(convex.certificates, "first_look", slow)
    work, answer = begun()
    gap = work._taken(answer)
    assert work.best is not None and work.best.closed is closed and work._is_settled() is closed
    assert gap == pytest.approx(known, nan_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("status", [None, Status.INFEASIBLE])
def test_zero_is_the_answer_of_a_solver_that_stopped_without_a_point(status):
    """At its limit on iterations, unless there is no answer."""
    work, _ = begun()
    work.attempts.append(Attempt("CLARABEL", 1e-6, None, (), "user_limit", np.nan, 0.1))
    work.diagnosed, work.status = Diagnosis(), status
    outcome = work.outcome()
    if status is None:
        assert outcome.solution.status == Status.USER_LIMIT
        assert outcome.solution.value == pytest.approx(np.sum(NOISE**2))
    else:
        assert outcome.solution.status == Status.INFEASIBLE and outcome.point is None


@pytest.mark.slow
def test_a_point_on_a_slow_fall_does_not_hide_that_a_problem_is_unbounded(monkeypatch):
    """A ray decides, although a solver has a point, and there is no time for another diagnosis."""
    monkeypatch.setattr(convex.diagnosis, "has_ray", lambda *_: True)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=0.3))
    problem = ko.Problem(cp.Minimize(cp.sum(theta(X[:3]))))
    reduction = refine.reduced(problem._private_form(), Step(factor_options()), {}).reduction
    work = convex.begin(problem._outer(), ["CLARABEL"], reduction, Goal(1e-6, deadline=0.0))
    point = representer.evaluate(reduction, replace(reduction.at_zero(()), nu=(None,)))
    answer = Answer(Status.OPTIMAL, True, None, point)
    work.best, work.diagnosed = judgement.Candidate(0.0, True, False, point, answer), Diagnosis()
    assert work.outcome().solution.status == Status.UNBOUNDED


def failed():
    raise SolverError("Made to fail.")


def without_a_point():
    return Outcome(without_answer(Status.USER_LIMIT, 1.0), (), None, False)


def infeasible():
    return Outcome(without_answer(Status.INFEASIBLE, 1.0), (), None, False, Iterate((), ()))


@pytest.mark.parametrize("end", [failed, without_a_point, infeasible])
def test_integers_are_rounded_where_no_solver_fixes_them(end, monkeypatch):
    """What remains with integers fixed may be too hard. It is solved quietly, and with its own certificate alone."""
    goals = []
    theta, k = ko.Theta(ko.kernels.Gaussian(sigma=0.3)), cp.Variable(integer=True)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X[:3]) + k - 1.3) + ko.sum_squares(theta)))
    reduction = refine.reduced(problem._private_form(), Step(factor_options()), {}).reduction
    work = convex.begin(None, ["SCIP"], reduction, Goal(1e-6, progress=True, products=True))
    monkeypatch.setattr(convex, "attempted", lambda rest: goals.append(rest.task.goal) or end())
    found = work._with_integers(representer.evaluate(reduction, reduction.at_zero((np.array(0.8),))))
    assert found.y[0] == 1 and work.rest.answer is None
    (goal,) = goals
    assert not goal.progress and not goal.products


@pytest.mark.parametrize(("seconds", "settled"), [(0.5, False), (0.0, True), (-1.0, True)])
def test_another_solver_may_run_until_the_time_is_over(seconds, settled):
    """Half a second is enough for a small problem."""
    goal = SimpleNamespace(seconds_left=lambda: seconds)
    work = convex.Convex(SimpleNamespace(goal=goal, data=None), [], None)
    assert not work._is_settled()  # the first one runs in any case
    work.attempts.append(Attempt("CLARABEL", 1e-6, None, (), "failed", np.nan, 0.1))
    assert work._is_settled() is settled


def test_units_are_sizes_of_predictions_and_multipliers():
    """Those of the point that was found, for a second run; without multipliers there are none."""
    work, answer = begun()
    work._taken(answer)
    u, nu = work.units
    assert u == answer.point.prediction_unit(work.task.data_unit) and nu == np.abs(answer.point.nu[0]).max()
    work._taken(replace(answer, point=replace(answer.point, nu=(np.zeros_like(NOISE),))))
    assert work.units is None


@pytest.mark.parametrize(("kinked", "unit", "closed"), [(True, 0.5, True), (False, 0.5, False), (True, 2.0, False)])
def test_a_tiny_gap_closes_where_kinks_leave_nothing_to_gain(kinked, unit, closed, monkeypatch):
    """That is, where the improvement on θ = 0 is as small."""
    work, answer = begun()
    nothing = convex.NOTHING_LEFT * work.task.data.form.units[1]
    found = SimpleNamespace(
        absolute_gap=0.5 * nothing, relative_gap=1.0, unit=unit * nothing, terms=0.0, evidence=None,
        closes=lambda *_: False,
    )  # fmt: skip
    monkeypatch.setattr(convex.certificates, "gap_of_solver", lambda *_: np.nan)
    monkeypatch.setattr(convex.certificates, "first_look", lambda *_: found)
    monkeypatch.setattr(convex, "shape_of", lambda *_: SimpleNamespace(free=False, kinked=kinked, hard=False))
    work._taken(answer)
    assert work.best.closed is closed


def test_a_point_that_keeps_its_value_is_no_optimum_of_zero(monkeypatch):
    """Only a move that takes nearly all of the value shows that the optimum is 0."""
    problem, task, point = ridge()
    found = problem.certificate
    far = replace(found, at_zero=1e12 * found.upper, bare=None, terms=found.upper, lower=0.0)
    monkeypatch.setattr(judgement.projection, "towards_zero", lambda *_: point)
    assert judgement._is_nearly_zero(task, task.data, far, point) is None


@pytest.mark.parametrize("share", [0.9, 1.5])
def test_an_open_gap_beyond_the_improvement_is_diagnosed(share):
    """A gap as large as the improvement on θ = 0 suggests that no answer exists."""
    problem, task, point = ridge()
    best = judgement.Candidate(0.0, False, False, point, Answer(Status.OPTIMAL, True, None, point))
    inverted = judgement.Inverted(Solution(Status.OPTIMAL, point.value, {}, {}, None), point, True)
    known, asked = problem.certificate, []
    found = replace(known, lower=known.upper - share * known.unit, bare=None)
    assert found.relative_gap == pytest.approx(share)
    judgement._with_status(task, best, inverted, found, lambda: asked.append(1) or Diagnosis(), None)
    assert len(asked) == (share > 1)
