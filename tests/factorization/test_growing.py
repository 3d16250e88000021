"""Factors that grow by what the certificate says, against explicit kernel matrices."""

from dataclasses import replace
from types import SimpleNamespace

import cvxpy as cp
import mpmath
import numpy as np
import pytest
from inside import reduction_of

import kernelopt as ko
from kernelopt import factorization
from kernelopt.certificate import FULL, REDUCED
from kernelopt.driver import policy, refine
from kernelopt.driver.options import factor_options
from kernelopt.driver.strategy import Goal, Outcome
from kernelopt.errors import MemoryLimitError, OptionError
from kernelopt.factorization import FLOOR, Guide, Settings, carried, grow, growing, streamed
from kernelopt.factorization import factor as factor_module
from kernelopt.factorization.dense import pivoted_cholesky
from kernelopt.factorization.growing import ExpandedFactor
from kernelopt.factorization.streamed import streamed_cholesky
from kernelopt.kernels.derivatives import WithDerivatives, lifted, with_order
from kernelopt.language.functions import Function
from kernelopt.language.rows import Rows
from kernelopt.results.history import Round
from kernelopt.results.solution import Solution, Status

N, KERNEL = 300, ko.kernels.Gaussian(sigma=1.0)
SETTINGS = Settings(1e-8, None)


def points(n=N, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def values():
    rows = Rows.of_points(KERNEL, points())
    return rows, KERNEL(points())


def values_and_slopes():
    """Rows of mixed units: values, derivatives, and a function."""
    X, kernel = points(100, 2), lifted(KERNEL)
    f = Function(KERNEL, X[:4], np.array([3.0, -1.0, 2.0, 5.0]))
    rows = Rows.of_points(kernel, np.concatenate([with_order(X, ()), with_order(X[:50], (0,))]))
    rows = rows.with_functions([f._lifted(WithDerivatives)])
    return rows, np.array(rows.gram())


def coarse(rows, rank=30):
    return streamed_cholesky(rows, Settings(1e-8, rank))


def left(factor, Q):
    return Q / factor.scale - factor.B @ factor.B.T


def multipliers(n, columns=2, zeros=0, seed=1):
    nu = np.random.default_rng(seed).normal(size=(n, columns))
    nu[:zeros] = 0.0
    return nu


CASES = pytest.mark.parametrize("rows_and_gram", [values, values_and_slopes], ids=["values", "mixed"])


@CASES
@pytest.mark.parametrize("zeros", [0, 90])
def test_product(rows_and_gram, zeros):
    rows, Q = rows_and_gram()
    V = multipliers(len(rows), zeros=zeros)
    np.testing.assert_allclose(rows.product(V, block=64), Q @ V, rtol=1e-12, atol=1e-12 * np.abs(Q).max())


@CASES
def test_pivots_take_what_the_multipliers_miss(rows_and_gram):
    rows, Q = rows_and_gram()
    known, nu = coarse(rows), multipliers(len(rows), zeros=40)
    grown = grow(rows, known, Guide(nu), 20, False, SETTINGS)
    E = left(grown, Q)
    assert grown.rank == known.rank + 20
    assert np.array_equal(grown.pivots[: known.rank], known.pivots)
    np.testing.assert_allclose(grown.B[:, : known.rank], known.B, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(np.diag(E), grown.residual_diagonal, atol=1e-12 * np.diag(Q).max() / grown.scale)
    assert grown.residual == pytest.approx(np.trace(E) / (np.trace(Q) / grown.scale), rel=1e-8)
    assert np.linalg.eigvalsh(E)[0] > -1e-11 * np.abs(Q / grown.scale).max()
    by_trace = streamed_cholesky(rows, Settings(1e-13, known.rank + 20), start=known)
    assert np.trace(nu.T @ E @ nu) < np.trace(nu.T @ left(by_trace, Q) @ nu)


@CASES
def test_functions_take_all_of_it(rows_and_gram):
    rows, Q = rows_and_gram()
    known, nu = coarse(rows), multipliers(len(rows), zeros=40)
    grown = grow(rows, known, Guide(nu, Q @ nu), 0, True, SETTINGS)
    assert isinstance(grown, ExpandedFactor) and grown.rank == known.rank + 2
    E = left(grown, Q)
    assert np.abs(nu.T @ E @ nu).max() < 1e-11 * np.abs(nu.T @ Q @ nu / grown.scale).max()
    # A real θ: its coefficients on the rows give the same predictions and length as Bv and ‖v‖.
    v = np.random.default_rng(2).normal(size=(grown.rank, 2))
    c = np.zeros((len(rows), 2))
    np.add.at(c, grown.pivots, grown.coefficients(v))
    np.testing.assert_allclose(Q @ c, grown.B @ v, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(c.T @ Q @ c * grown.scale, v.T @ v, rtol=1e-7)
    np.testing.assert_allclose(grown.predictions(rows, v), grown.B @ v, rtol=1e-7, atol=1e-7)
    # It grows on, and the same θ has coordinates in what it has become.
    other = multipliers(len(rows), columns=1, seed=3)
    finer = grow(rows, grown, Guide(other, Q @ other), 15, True, SETTINGS)
    assert finer.rank == grown.rank + 16
    moved = carried(grown, finer, v)
    np.testing.assert_allclose(finer.B @ moved, grown.B @ v, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(moved.T @ moved, v.T @ v, rtol=1e-7)
    assert np.array_equal(finer.of_pivots.pivots[: known.rank], known.pivots)
    assert finer.of_pivots.rank == known.rank + 15


def test_what_is_spanned_already_adds_nothing():
    rows, Q = values()
    nu = multipliers(N)
    once = grow(rows, coarse(rows), Guide(nu, Q @ nu), 0, True, SETTINGS)
    again = grow(rows, once, Guide(3.0 * nu, 3.0 * Q @ nu), 0, True, SETTINGS)
    assert again.rank == once.rank
    assert grow(rows, once, Guide(0.0 * nu), 10, True, SETTINGS).rank == once.rank


def test_an_output_without_multipliers_adds_nothing():
    rows, Q = values()
    nu = multipliers(N)
    nu[:, 0] = 0.0
    grown = grow(rows, coarse(rows), Guide(nu, Q @ nu), 0, True, SETTINGS)
    alone = grow(rows, coarse(rows), Guide(nu[:, 1:], Q @ nu[:, 1:]), 0, True, SETTINGS)
    assert grown.rank == coarse(rows).rank + 1
    np.testing.assert_allclose(grown.B, alone.B, atol=1e-12)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_unit_of_multipliers_does_not_matter(unit):
    rows, Q = values()
    nu = multipliers(N)
    grown, other = (grow(rows, coarse(rows), Guide(c * nu, c * Q @ nu), 5, True, SETTINGS) for c in (1.0, unit))
    assert np.array_equal(grown.pivots, other.pivots)
    np.testing.assert_allclose(grown.B, other.B, atol=1e-11)


def test_memory_is_asked_for_first():
    rows, _ = values()
    with pytest.raises(MemoryLimitError, match="50 columns"):
        grow(rows, coarse(rows), Guide(multipliers(N)), 20, False, SETTINGS, memory_limit=1000.0)


# ------------------------------------------------------------ in a solve


def data(n=2500, d=5):
    X = points(n, d)
    y = np.where(np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * points(n, 1, seed=4)[:, 0] > 1, 1.0, -1.0)
    return X, y


def objective(loss, norm=ko.sum_squares, n=2500):
    X, y = data(n)
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=2.0)), cp.Variable()
    return theta, cp.Minimize(cp.sum(loss(y, theta(X) + b)) + 0.5 * norm(theta)), theta(X) + b


@pytest.mark.slow
@pytest.mark.parametrize("loss", [ko.losses.log_loss, ko.losses.hinge, ko.losses.squared_error])
def test_both_models(loss):
    """Each is optimal by a certificate of its own, and near the optimum of the whole kernel matrix."""
    theta, goal, f = objective(loss)
    whole = ko.Problem(goal).solve(factorization="cholesky", tol=1e-8)
    expanded, compact = ko.Problem(goal), ko.Problem(goal)
    for problem, model in ((expanded, "expanded"), (compact, "compact")):
        problem.solve(tol=1e-4, model=model, factorization="streamed")  # else hinge losses take Q itself
        assert problem.status == "optimal"
        certificate = problem.certificate
        assert certificate.scope == "full kernel" and certificate.relative_gap <= 1e-4
        assert certificate.lower - 1e-6 * whole <= whole <= certificate.upper
        direct = float(np.sum(loss(data()[1], f.value).value)) + 0.5 * theta.value.norm**2
        assert problem.value == pytest.approx(direct, rel=1e-9)
        assert np.all(np.diff(problem.history["lower"]) >= 0)
    assert expanded.history["rank"][-1] < compact.history["rank"][-1]
    assert compact.history["rows"][-1] == compact.history["rank"][-1] == len(theta.value.pivots)
    rank = reduction_of(expanded).factors[theta].of_pivots.rank
    expanded.solve(tol=1e-4, model="compact", factorization="streamed")  # from the same pivots
    assert expanded.history["rank"][0] == rank


@pytest.mark.slow
def test_several_thetas_and_constraints():
    X, y = data()
    first, second = ko.Theta(ko.kernels.Gaussian(sigma=2.0)), ko.Theta(ko.kernels.Matern(nu=1.5, sigma=4.0))
    u = first(X) + second(X)
    goal = cp.Minimize(cp.sum(ko.losses.huber(y, u, 0.5)) + 3 * ko.sum_squares(first) + ko.sum_squares(second))
    problem = ko.Problem(goal, [u[:50] >= -0.5])
    problem.solve(tol=1e-3)
    assert problem.status == "optimal" and len(problem.history) > 1
    assert u[:50].value.min() >= -0.5 - 1e-5
    whole = ko.Problem(goal, [u[:50] >= -0.5]).solve(factorization="cholesky", tol=1e-6)
    assert problem.certificate.lower <= whole * (1 + 1e-6)
    assert whole <= problem.certificate.upper * (1 + 1e-6)


@pytest.mark.slow
def test_an_unsquared_norm():
    theta, goal, _ = objective(lambda y, f: ko.losses.huber(y, f, 0.5), lambda theta: 60 * ko.norm(theta), n=2050)
    problem = ko.Problem(goal)
    problem.solve(tol=1e-4)
    assert problem.status == "optimal" and len(problem.history) > 1
    X, _ = data(2050)
    nu = theta(X).dual_value
    assert np.sqrt(nu @ theta.kernel(X) @ nu) == pytest.approx(30, rel=1e-2)  # ‖Aᵀν‖ = λ at an optimum with θ ≠ 0


@pytest.mark.slow
def test_several_outputs():
    X, _ = data()
    classes = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=2.0), outputs=3)
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.multinomial(classes, theta(X))) + ko.sum_squares(theta)))
    problem.solve(tol=1e-3)
    assert problem.status == "optimal" and np.mean(theta(X).value.argmax(axis=1) == classes) > 0.9


@pytest.mark.slow
def test_an_infeasible_restriction_grows():
    X = np.random.default_rng(0).uniform(0, 10, size=(2200, 2))
    y = np.sin(X[:, 0]) * np.cos(2 * X[:, 1])
    theta = ko.Theta(ko.kernels.Gaussian(sigma=0.8))
    f = theta(X)
    problem = ko.Problem(cp.Minimize(ko.sum_squares(theta)), [f[:300] <= y[:300] + 0.02, f[:300] >= y[:300] - 0.02])
    problem.solve(tol=1e-3)
    assert problem.status == "optimal"
    assert np.abs(f.value[:300] - y[:300]).max() <= 0.02 + 1e-6


@pytest.mark.slow
def test_a_limit_ends_it():
    _, goal, _ = objective(ko.losses.hinge)
    problem = ko.Problem(goal)
    problem.solve(max_rank=150, model="compact")
    assert problem.status == "optimal_inaccurate"
    assert problem.history["rank"][-1] == 150
    assert 1e-6 < problem.certificate.relative_gap < 0.5


@pytest.mark.slow
def test_history_is_a_table():
    _, goal, _ = objective(ko.losses.log_loss)
    problem = ko.Problem(goal)
    assert len(problem.history) == 0
    problem.solve(tol=1e-5)
    table = problem.history
    assert list(table) == ["rank", "rows", "lower", "upper", "gap", "seconds"]
    assert table["gap"][-1] == problem.certificate.relative_gap and np.all(np.diff(table["seconds"]) > 0)
    assert str(table).splitlines()[0].split() == list(table)
    axes = table.plot()
    assert axes.get_xlabel() == "rank" and axes.get_ylabel() == "gap"


def test_models_have_names():
    _, goal, _ = objective(ko.losses.log_loss)
    with pytest.raises(OptionError, match="expanded, compact; got 'small'"):
        ko.Problem(goal).solve(model="small")


@pytest.mark.slow
def test_where_functions_say_nothing_new_pivots_are_added(monkeypatch):
    """And where pivots don't either, a smaller trace is asked for."""
    asked, ours = [], growing.grow

    def deaf(rows, known, guide, count, *others):
        asked.append(count)
        return known if count == 0 else ours(rows, known, guide, count, *others)

    monkeypatch.setattr("kernelopt.driver.refine.grow", deaf)
    _, goal, _ = objective(ko.losses.log_loss)
    problem = ko.Problem(goal)
    problem.solve(tol=1e-4)
    assert problem.status == "optimal" and asked[0] == 0 and asked[1] > 0
    monkeypatch.setattr("kernelopt.driver.refine.grow", lambda rows, known, *others: known)
    problem = ko.Problem(goal)
    problem.solve(tol=1e-3)
    assert problem.status == "optimal" and len(problem.history) > 1


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "features", "sigma"), [(80, 3, 5.0), (100, 4, 8.0)])
def test_a_penalty_below_the_trace_that_counts_as_none(rows, features, sigma):
    """minimize ‖y − Qa‖² + λaᵀQa at λ = 1e-10: λyᵀ(Q + λI)⁻¹y, which feels 1e-13 of the trace."""
    rng, lam = np.random.default_rng(0), 1e-10
    X = rng.normal(size=(rows, features))
    y = np.sin(X[:, 0]) + X[:, 1] ** 2 + 0.3 * rng.normal(size=rows)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=sigma))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta)))
    problem.solve()
    with mpmath.workdps(40):  # in doubles the sixth digit is wrong
        Q = mpmath.matrix(theta.kernel(X).tolist()) + mpmath.mpf(lam) * mpmath.eye(rows)
        optimum = float(lam * mpmath.fdot(y.tolist(), mpmath.lu_solve(Q, mpmath.matrix(y.tolist()))))
    # What is certified goes with the errors of kernel values over λ.
    assert problem.status == "optimal" or problem.certificate.relative_gap < 1e-2
    assert problem.certificate.lower <= optimum * (1 + 1e-12)
    assert problem.value == pytest.approx(optimum, rel=1e-7)


@pytest.mark.slow
def test_a_restriction_is_refined_though_no_solver_closed_its_gap():
    """f″ = −f at 20 points: θ of rank 21 meets it at a value of 4.5, and its multipliers of 7e5 let no gap close."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 2 * np.pi, size=12)[:, None]
    y = np.sin(x[:, 0] + 0.3) + 0.05 * rng.normal(size=12)
    theta = ko.Theta(KERNEL)
    C = ko.FeatureMatrix(np.linspace(0, 2 * np.pi, 20)[:, None], KERNEL)
    equation = C.derivative((0, 0)) @ theta + C @ theta
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(x)) + 1e-3 * ko.sum_squares(theta)), [equation == 0])
    problem.solve()
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(0.0328907, rel=1e-4)


def answer(gap, value=1.0, status=Status.OPTIMAL_INACCURATE, scope=FULL, maximize=False):
    known = SimpleNamespace(scope=scope, absolute_gap=gap, relative_gap=gap, maximize=maximize)
    solution = SimpleNamespace(status=status, value=value, certificate=known)
    return SimpleNamespace(solution=solution, interrupted=False, attempts=())


def test_the_best_answer_has_the_smallest_certified_gap():
    better = refine.is_better
    assert better(answer(1e-6), answer(4e5))
    assert not better(answer(4e5), answer(1e-6))
    assert not better(answer(1e-6, scope=REDUCED), answer(1e-3))
    assert better(answer(np.inf, 1.0), answer(np.inf, 2.0))
    assert not better(answer(np.inf, 2.0), answer(np.inf, 1.0))
    assert better(answer(4e5, status=Status.OPTIMAL), answer(1e-6))
    assert not better(answer(np.inf, None), answer(np.inf))
    assert better(answer(np.inf, 2.0, maximize=True), answer(np.inf, 1.0, maximize=True))
    assert not better(answer(np.inf, 1.0, maximize=True), answer(np.inf, 2.0, maximize=True))


def test_random_starts_belong_to_the_first_round():
    """Later rounds go on from its answer, with its lower bound."""
    goal, step, evidence = Goal(1e-6, n_init=5), policy.Step(factor_options()), object()
    first = refine._aimed(goal, refine.State(None), step, step.options, True)
    assert first.n_init == 5 and first.known is None
    latest = SimpleNamespace(solution=SimpleNamespace(certificate=SimpleNamespace(evidence=evidence)))
    later = refine._aimed(goal, refine.State(None, latest=latest), step, step.options, True)
    assert later.n_init == 1 and later.known is evidence


def test_the_first_factor_is_coarse_where_a_finer_one_may_follow():
    """Not with `max_rank`, nor where it is as fine as asked for, no certificate judges it, or a round is over."""
    asked, goal = factor_options(rank_tol=1e-9), Goal(1e-6)
    coarser = replace(asked, settings=replace(asked.settings, rank_tol=1e-3))
    few = replace(asked, settings=replace(asked.settings, max_rank=21))
    before = refine.State(None)

    def coarse(state=before, options=asked, first=coarser, judged=True):
        return refine._aimed(goal, state, policy.Step(first), options, judged).coarse

    assert coarse()
    assert not coarse(options=few) and not coarse(first=asked) and not coarse(judged=False)
    certificate = SimpleNamespace(evidence=None)
    latest = SimpleNamespace(solution=SimpleNamespace(certificate=certificate))
    assert not coarse(refine.State(None, latest=latest, rounds=(object(),)))


@pytest.mark.parametrize(("seconds", "over"), [(0.5, False), (0.0, True)])
def test_an_open_gap_is_that_of_a_limit_where_the_time_is_over(seconds, over):
    """With half a second left the solvers have done what they can."""
    best = Outcome(Solution(Status.OPTIMAL_INACCURATE, 1.0, {}, {}, None), (), None, False)
    state = refine.State(None, best=best, of_best=object())
    found = refine._found(state, SimpleNamespace(seconds_left=lambda: seconds))
    assert found.outcome.solution.status == (Status.USER_LIMIT if over else Status.OPTIMAL_INACCURATE)
    assert found.out_of_time is over


def test_a_factor_is_blamed_only_for_a_gap_that_is_known():
    """Without any solver's gap nothing tells that the restriction of θ is the reason, unless constraints may be it."""
    outer, run = SimpleNamespace(constraints=[]), SimpleNamespace(gap=1e-6)
    restricted = SimpleNamespace(is_restriction=True, form=SimpleNamespace(outer=outer))
    unknown, wide, narrow = answer(np.inf), answer(1e-4), answer(2e-6)
    wide.attempts = narrow.attempts = (run,)
    assert not refine._is_too_coarse(unknown, restricted)
    outer.constraints = [True]
    assert refine._is_too_coarse(unknown, restricted)
    assert refine._is_too_coarse(wide, restricted)
    assert not refine._is_too_coarse(narrow, restricted)
    limited = answer(1e-4, status=Status.USER_LIMIT)  # of a solver's own, as the caller's time is not over
    limited.attempts = (run,)
    assert refine._is_too_coarse(limited, restricted)


def test_the_certificate_that_is_known_is_that_of_the_best_answer():
    best = answer(1e-3)
    assert refine.State(None).known is None
    assert refine.State(None, best=best).known is best.solution.certificate


@pytest.mark.parametrize(("rank_tol", "again"), [(1e-10, True), (1e-4, False)])
def test_only_a_factor_that_is_fine_enough_is_used_again(rank_tol, again):
    """For other values of parameters; a coarser one is made anew."""
    options = factor_options(tol=1e-6)
    known = replace(options, settings=replace(options.settings, rank_tol=rank_tol))
    left = refine.Left(None, refine.Factored(known, SimpleNamespace(factors={})), options)
    form = SimpleNamespace(outer=SimpleNamespace(is_mixed_integer=lambda: False), predictions=())
    step, _ = refine._first(refine.Stated(form, None, None), options, False, True, left)
    assert step.options is (known if again else options)


def test_options_differ_in_what_they_do():
    """The words that explain them, and where factors are looked up, are left out."""
    options = factor_options()
    assert replace(options, why="flat spectrum", cache=ko.FactorCache(), memory_limit=1e9) == options
    assert replace(options, growth=1) != options


@pytest.mark.parametrize("products", [None, np.ones((3, 1))])
def test_functions_alone_are_added_where_their_products_are_known(products):
    """That is, where a certificate has made its pass over the kernel."""
    outcome = SimpleNamespace(guides={object(): Guide(np.ones((3, 1)), products)})
    view = SimpleNamespace(rounds=[SimpleNamespace(gap=1e-3)], outcome=outcome, last=factor_options())
    assert policy._by_functions(view) is (products is not None)


@pytest.mark.parametrize("gap", [np.inf, 1e3, 0.2])
def test_every_round_aims_at_more_than_the_value_at_zero(gap):
    """Where θ = 0 has the relative gap 1."""
    assert 0 < policy._aim(SimpleNamespace(rounds=[SimpleNamespace(gap=gap)], tol=1e-6)) < 0.5


class Given:
    """Work whose outcome is given."""

    def __init__(self, status, runs):
        self.status, self.runs = status, runs

    def plans(self):
        return iter(())

    def outcome(self):
        self.runs.append(self.status)
        return Outcome(Solution(self.status, 1.0, {}, {}, None), (), None, True)


def small(kernel=KERNEL):
    """A problem of 20 rows as it is stated to the loop, and the statuses of all runs."""
    theta, runs = ko.Theta(kernel), []
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(points(20)) - 1) + ko.sum_squares(theta)))
    form, outer = problem._private_form(), problem._outer()
    return lambda status: refine.Stated(form, outer, lambda *_: Given(status, runs)), runs


@pytest.mark.parametrize("succeeds", [True, False])
def test_factors_follow_where_q_itself_gives_no_answer(monkeypatch, succeeds):
    """A flat spectrum is tried with Q itself; after that, a factor of full rank is a second way. The bar is closed."""
    options, seen = factor_options(), []
    steps = iter([policy.Step(replace(options, method="cholesky", why="flat spectrum"), aim=0.1), None])

    def with_q(*arguments, flat=""):
        state = arguments[3]
        return state.after(state.factored, Given(Status.OPTIMAL, []).outcome()) if flat and succeeds else state

    class Bar:
        def __init__(self, *_, **__):
            pass

        def show(self, *_):
            seen.append("shown")

        def close(self):
            seen.append("closed")

    monkeypatch.setattr(refine, "_in_kernel_space", with_q)
    monkeypatch.setattr(refine, "GapBar", Bar)
    monkeypatch.setattr(policy, "next_step", lambda _: next(steps))
    stated, runs = small()
    found = refine.pursue(stated(Status.OPTIMAL_INACCURATE), options, Goal(1e-6), True, refine.Left())
    assert len(runs) == (1 if succeeds else 2) and len(found.rounds) == 2
    assert seen[-1] == "closed"


@pytest.mark.parametrize("psd", ["known", True, None])
def test_out_of_time_nothing_is_optimal_with_a_kernel_that_was_not_checked(psd):
    """Only a rule tells that a kernel is positive semidefinite where there was no time for a factor."""
    kernel = KERNEL if psd == "known" else ko.kernels.FromFunction(lambda x, z: 1.0 + x @ z, psd=psd)
    expected = Status.OPTIMAL if psd == "known" else Status.USER_LIMIT
    stated, _ = small(kernel)
    state = refine._at_once(stated(Status.OPTIMAL), factor_options(), Goal(1e-6), refine.State(None))
    assert state.best.solution.status == expected


def test_steps_that_gain_nothing_end():
    """The same factors to the same accuracy would give the same answer."""
    options = factor_options()
    rounds = [Round(30, 30, 0.0, 1.0, gap, 1.0) for gap in (1e-3, 1e-3)]
    again = policy.Step(options, aim=1e-2)
    assert policy.progressing(again, rounds, 1e-6).aim == 1e-6
    assert policy.progressing(policy.Step(options, aim=1e-6), rounds, 1e-6) is None
    assert policy.progressing(again, [rounds[0], Round(30, 30, 0.0, 1.0, 1e-4, 1.0)], 1e-6) is again
    assert policy.progressing(policy.Step(options), rounds, 1e-6).aim == 0.0  # finer factors
    before = [Round(30, 30, 0.0, 1.0, 1e-3, 1.0), Round(20, 20, 0.0, 1.0, 1e-5, 1.0)]  # the last two decide
    assert policy.progressing(again, [*before, *(Round(40, 40, 0.0, 1.0, 1e-3, 1.0),) * 2], 1e-6).aim == 1e-6


def test_after_a_step_that_changed_no_factor():
    """Pivots follow functions; then a smaller trace, then columns that no multipliers chose, and at last nothing."""
    theta, options = object(), factor_options(tol=1e-6)
    factors, guides = {theta: SimpleNamespace(rank=40, residual=1e-3)}, {theta: object()}
    known = SimpleNamespace(relative_gap=1e-4)
    step = policy.Step(options, guides=guides, aim=1e-3)
    pivots = policy.instead(step, options, factors, known, 1e-6)
    assert pivots.columns == 20 and pivots.guides is guides and pivots.options.growth == options.growth + 1
    finer = policy.instead(pivots, options, factors, known, 1e-6)
    assert not finer.guides and finer.options.growth == 0
    assert finer.options.settings.rank_tol == pytest.approx(3e-3 * options.settings.rank_tol)  # 0.3·tol/gap
    last = replace(pivots, options=replace(options, settings=replace(options.settings, rank_tol=FLOOR)))
    others = policy.instead(last, options, factors, known, 1e-6)
    assert not others.guides and others.options.growth == 0 and others.options.settings == last.options.settings
    fine = {theta: SimpleNamespace(rank=40, residual=0.0)}
    assert policy.instead(last, options, fine, known, 1e-6) is None
    one_more = replace(options, settings=replace(options.settings, max_rank=41))
    assert policy.instead(step, one_more, factors, known, 1e-6).columns == 1
    assert policy.instead(last, one_more, factors, known, 1e-6) is not None
    full = replace(options, settings=replace(options.settings, max_rank=40))
    assert policy.instead(step, full, factors, known, 1e-6) is None


@pytest.mark.slow
def test_pivots_are_added_as_many_as_the_gap_asks_for():
    """A compact factor reaches its rank in 5 rounds; with the least number of pivots each time it would take 12."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(2500, 4))
    targets = np.sin(2 * points[:, 0]) + points[:, 1] ** 2 - 1 + 0.3 * rng.standard_t(2, size=2500)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(points) - targets) + 0.1 * ko.sum_squares(theta)))
    problem.solve(model="compact")
    assert problem.status == "optimal"
    assert len(problem.solver_stats.rounds) <= 7


def test_as_many_pivots_as_the_gap_asks_for():
    """The logarithm of the gap falls as the rank grows: tenfold per 100 columns here, and a tenth more is taken."""
    rounds = [Round(100, 100, 0.0, 1.0, 1e-1, 1.0), Round(200, 200, 0.0, 1.0, 1e-2, 1.0)]
    assert policy._more(200, rounds, 3e-3) == int(1.1 * 100 * np.log10(1e-2 / 3e-3))
    assert policy._more(200, rounds, 9e-3) == 40  # no fewer than a fifth of those that there are
    assert policy._more(200, rounds, 1e-6) == 200  # and no more than these
    assert policy._more(200, rounds[1:], 1e-6) == 100  # half of them where nothing is known of what they bring
    before = [Round(50, 50, 0.0, 1.0, 1.0, 1.0), *rounds]  # the last two decide
    assert policy._more(200, before, 3e-3) == int(1.1 * 100 * np.log10(1e-2 / 3e-3))
    few = [Round(20, 20, 0.0, 1.0, 1e-1, 1.0), Round(30, 30, 0.0, 1.0, 1e-2, 1.0)]
    assert policy._more(30, few, 9.9e-3) == 25  # and no fewer than a quarter of those of a first factor


def in_many_dimensions(monkeypatch, n=600, p=60, **options):
    """Hinge on labels that follow no direction, with a flat spectrum; 600 rows are treated as too many for N×N."""
    for module in (factorization, policy):
        monkeypatch.setattr(module, "FEW", 400)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, p)), np.sign(rng.normal(size=n))
    theta, lam = ko.Theta(ko.kernels.Gaussian(sigma=p**0.5)), cp.Parameter(nonneg=True, value=0.1)
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(y, theta(X))) + lam * ko.sum_squares(theta)))
    problem.solve(tol=1e-3, **options)
    assert problem.status == "optimal"
    return problem, theta, lam


@pytest.mark.slow
def test_a_flat_spectrum_is_factored_as_a_whole(monkeypatch):
    """At once where pivots would have to be added, round after round; and once for all that is solved after it."""
    problem, theta, lam = in_many_dimensions(monkeypatch)
    assert "flat spectrum" in str(problem.explain())
    assert len(problem.history) <= 4
    factor = reduction_of(problem).factors[theta]
    lam.value = 0.05
    problem.solve(tol=1e-3)
    assert reduction_of(problem).factors[theta] is factor
    assert problem.certificate.closes(1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"model": "compact"}, {"factorization": "streamed"}, {"memory_limit": 5.7e6}], ids=str
)
def test_a_flat_spectrum_where_the_matrix_is_not_wanted(monkeypatch, options):
    """θ on few rows, another factorization, no memory."""
    problem, _, _ = in_many_dimensions(monkeypatch, **options)
    assert "flat spectrum" not in str(problem.explain())


def test_coefficients_are_remembered_for_the_last_v():
    rows, _ = values()
    factor = streamed_cholesky(rows, SETTINGS)
    v, w = np.ones(factor.rank), np.arange(1.0, factor.rank + 1)
    first = factor.coefficients(v)
    assert factor.coefficients(v.copy()) is first
    assert not first.flags.writeable
    np.testing.assert_allclose(factor.coefficients(w), factor._coefficients(w))
    v[0] = 2.0  # another value in the same array
    np.testing.assert_allclose(factor.coefficients(v), factor._coefficients(v))


@pytest.mark.later
def test_a_factor_that_may_grow_forms_no_large_outer_product(monkeypatch):
    rows, _ = values()
    assert streamed_cholesky(rows, SETTINGS).matrix.outer() is not None
    monkeypatch.setattr(factor_module, "PASSING", 100)
    assert streamed_cholesky(rows, SETTINGS).matrix.outer() is None
    assert pivoted_cholesky(rows, SETTINGS).matrix.outer() is not None


@pytest.mark.parametrize("verbose", [True, False])
def test_what_was_asked_to_be_told_is_told(verbose):
    """An option of all solvers, which is False by default."""
    assert Goal(1e-6, options={"verbose": verbose}).verbose is verbose
    assert Goal(1e-6).verbose is False


def test_guides_beside_each_other():
    """Products are known where both know theirs."""
    one, other = Guide(np.ones((3, 1)), np.full((3, 1), 2.0)), Guide(np.zeros((3, 2)), np.full((3, 2), 3.0))
    both = one.beside(other)
    np.testing.assert_array_equal(both.nu, [[1.0, 0.0, 0.0]] * 3)
    np.testing.assert_array_equal(both.products, [[2.0, 3.0, 3.0]] * 3)
    assert one.beside(Guide(other.nu)).products is None and Guide(one.nu).beside(other).products is None


def test_no_pivots_without_a_count(monkeypatch):
    """The factor of the pivots stays the same object where functions alone are added."""
    rows, Q = values()
    nu, known = multipliers(N), coarse(rows)
    monkeypatch.setattr(growing, "with_pivots", lambda *_: pytest.fail("Pivots were added."))
    once = grow(rows, known, Guide(nu, Q @ nu), 0, True, SETTINGS)
    assert once.rank == known.rank + 2


def test_functions_count_towards_the_largest_rank():
    """One of two is added where there is room for one."""
    rows, Q = values()
    nu, known = multipliers(N), coarse(rows)
    assert grow(rows, known, Guide(nu, Q @ nu), 0, True, Settings(1e-8, known.rank + 1)).rank == known.rank + 1
    assert grow(rows, known, Guide(nu, Q @ nu), 0, True, Settings(1e-8, known.rank)).rank == known.rank


def test_pivots_are_drawn_until_all_are_there(monkeypatch):
    """In several draws where one does not give them all."""
    monkeypatch.setattr(streamed, "CHUNK", 5)
    rows, _ = values()
    known = coarse(rows)
    assert grow(rows, known, Guide(multipliers(N)), 12, False, SETTINGS).rank == known.rank + 12


def test_a_factor_grows_where_its_span_meets_constraints_at_0_alone():
    """A function that rises and has equal ends is constant, which takes all columns of a matrix of condition 1e9."""
    X = np.array([0.241, 0.574, 1.215, 1.273, 1.594, 1.78, 2.329, 3.418, 3.585, 3.814])[:, None]
    y = np.array([0.9, 0.1, -3.3, -1.8, -1.8, -2.7, -2.3, -3.8, -5.8, -5.4])
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(X)
    loss = cp.max(cp.abs(f - y)) + 0.042 * ko.norm(theta)
    problem = ko.Problem(cp.Minimize(loss), [cp.diff(f) >= 0, f[0] == f[9]])
    assert problem.solve() == pytest.approx(3.523965, rel=1e-5)


def scattered(n=2100):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5))
    return X, np.clip(np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.standard_t(2, size=n), -3, 3)


@pytest.mark.slow
def test_restrictions_that_meet_no_constraint_grow():
    """The first factor can't come within the error; its multipliers say how to grow, and no other solver is asked."""
    X, y = scattered()
    theta, most = ko.Theta(ko.kernels.Gaussian(sigma=2.0)), 0.5 * np.linalg.norm(y - y.mean())
    error = cp.norm(y - theta(X) - cp.Variable())
    problem = ko.Problem(cp.Minimize(ko.norm(theta)), [error <= most])
    problem.solve()
    claims = [(attempt.solver, attempt.claimed) for attempt in problem.solver_stats.attempts]
    assert problem.status == "optimal" and {name for name, _ in claims} == {"METHOD_OF_MULTIPLIERS"}
    assert claims[0][1] == "infeasible" and claims[-1][1] == "optimal"
    assert problem.certificate.ranks[0][0] < len(y) and error.value <= most * (1 + 1e-8)


@pytest.mark.slow
def test_several_norms_grow_where_it_matters():
    """Later rounds begin at the last point, so that they take few systems; a θ of 0 keeps its factor, and is 0."""
    X, y = scattered()
    parts = [ko.Theta(ko.kernels.Gaussian(sigma=sigma)) for sigma in (1.0, 4.0, 8.0)]
    f = sum(theta(X) for theta in parts) + cp.Variable()
    signs = np.where(y > 0, 1.0, -1.0)
    problem = ko.Problem(cp.Minimize(cp.sum(cp.logistic(-cp.multiply(signs, f))) + 3 * sum(map(ko.norm, parts))))
    problem.solve()
    first, last = (problem.solver_stats.attempts[k].ranks for k in (0, -1))
    assert problem.status == "optimal" and len(problem.history) > 2 and problem.solver_stats.num_iters <= 6
    assert parts[0].value.norm > 0 and [theta.value.norm for theta in parts[1:]] == [0, 0]
    assert last[0] > first[0] and last[1:] == first[1:]
