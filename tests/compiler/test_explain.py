"""explain() tells the reduction, and never raises."""

import re
from dataclasses import replace
from time import perf_counter

import cvxpy as cp
import numpy as np
import pytest
from inside import reduction_of

import kernelopt as ko
from kernelopt.compiler import explain
from kernelopt.factorization import memory
from kernelopt.language.text import Notation, describe
from kernelopt.results.solution import Attempt, Status
from kernelopt.support import clock

X = np.random.default_rng(0).normal(size=(20, 2))
y = np.where(X[:, 0] > 0, 1.0, -1.0)


@pytest.fixture
def theta():
    return ko.Theta(ko.kernels.Gaussian(sigma=1.5))


def svm(theta):
    b = cp.Variable(name="b")
    return ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(y, theta(X) + b)) + 0.5 * ko.sum_squares(theta)))


@pytest.mark.later
def test_before_and_after(theta):
    problem = svm(theta)
    before = str(problem.explain())
    assert "minimize  Σ max(0, 1 − [20 data]·(A·θ + b)) + 0.5·‖θ‖²" in before
    assert "Aθ in 1 place · ‖θ‖ in 1 place, nondecreasing · the representer theorem applies" in before
    assert "N = 20 rows, p = ∞ features, Gaussian(sigma=1.5)" in before
    assert "not yet" in before
    value = problem.solve()
    after = str(problem.explain())
    rank = reduction_of(problem).factors[theta].rank
    assert f"B 20 × {rank}" in after
    assert f"{rank + 1} variables (w_θ, b)" in after
    assert "AUGMENTED_LAGRANGIAN" in after
    assert f"optimal, value {value:.7g}" in after


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda t: ko.Problem(cp.Minimize(-ko.norm(t))), "does not apply, in 1 place"),
        (lambda t: ko.Problem(cp.Minimize(cp.sqrt(ko.norm(t)))), "not convex"),
        (lambda t: ko.Problem(cp.Minimize(cp.sum(t(X) * np.nan))), "NaN"),
        (lambda t: ko.Problem(cp.Minimize(cp.Variable() ** 2)), "rules"),
        (lambda t: ko.Problem(cp.Minimize(cp.sum_squares(y[:, None] - t(X)))), "table"),
    ],
)
def test_never_raises(build, words, theta):
    assert words in str(build(theta).explain())


def test_status_carries_its_remedy(theta):
    problem = ko.Problem(cp.Minimize(cp.sum(theta(X))))
    problem.solve()
    assert problem.status == "unbounded"
    assert "penalize ko.norm(theta)" in str(problem.explain())


def ended(theta, status, claims=(), **told):
    """The last lines of explain() for a problem that ended with a status, with claims of solvers."""
    problem = svm(theta)
    problem.solve()
    found = problem._solution
    attempts = tuple(Attempt(name, 1e-6, None, (1,), claim, float("nan"), 0.0) for name, claim in claims)
    stats = replace(found.solver_stats, attempts=attempts)
    value, certificate = (None, None) if claims else (1.0, replace(found.certificate, **told))
    solution = replace(found, status=status, value=value, certificate=certificate, solver_stats=stats)
    return " ".join(text.strip() for _, text in explain.answer(solution, Notation()))


@pytest.mark.later
def test_what_does_not_help_is_not_advised(theta):
    """A claim that could not be proved is named, and a limit that was not reached is not raised."""
    infeasible = ended(theta, Status.USER_LIMIT, [("CLARABEL", "infeasible"), ("SCS", "infeasible")])
    assert "CLARABEL, SCS say that no θ meets the constraints" in infeasible
    assert "state a tolerance" in infeasible and "state the equation, f == c" in infeasible
    unbounded = ended(theta, Status.USER_LIMIT, [("ECOS", "unbounded")])
    assert "ECOS says that the objective has no lower bound" in unbounded
    assert "raise" not in (infeasible + unbounded).lower()
    limited = ended(theta, Status.USER_LIMIT, [("SCS", "user_limit")])
    assert "limit of its own" in limited


@pytest.mark.later
def test_the_reason_of_an_open_gap_is_told(theta):
    loose = ended(theta, Status.OPTIMAL_INACCURATE, is_feasible=False, violations=(1e-9,))
    assert "Constraints hold to 1.0e-09 only" in loose and "state the equation" in loose
    assumed = ended(theta, Status.OPTIMAL_INACCURATE, assumptions=("for |b| ≤ 10",))
    assert "state bounds of those that the certificate names" in assumed
    rounded = ended(theta, Status.OPTIMAL_INACCURATE, lower=0.0, upper=1.0, rounding=0.9)
    assert "an allowance for rounding, which no solver reduces" in rounded
    other = ended(theta, Status.OPTIMAL_INACCURATE, lower=0.0, upper=1.0, rounding=0.0)
    assert "Lower rank_tol or raise max_rank" in other


def test_stating_the_equation_helps(theta):
    """f = c as ‖f − c‖ ≤ 0 has no interior: constraints hold nearly, and the advice leads to an optimum."""
    problem = ko.Problem(cp.Minimize(ko.norm(theta)), [theta(X[:2]) == y[:2]])
    value = problem.solve()
    assert problem.status == "optimal"
    Q = ko.kernels.Gaussian(sigma=1.5)(X[:2])
    assert value == pytest.approx(np.sqrt(y[:2] @ np.linalg.solve(Q, y[:2])))


def test_descriptions(theta):
    assert describe(ko.norm(theta) <= 3) == "‖θ‖ ≤ 3"
    lam = cp.Parameter(name="lam_1", nonneg=True)
    assert describe(cp.square(lam) + cp.norm(theta(X)) ** 2 + cp.sum(theta(X)) ** 3) == "lam_1² + ‖A·θ‖² + (Σ A·θ)³"
    assert describe(cp.power(cp.Constant(-2), 3)) == "(−2)³"
    assert describe(theta(X) == 0) == "A·θ = 0"
    assert describe(theta(X)[[0, 2]] == 0) == "(A·θ)[0, 2] = 0"
    assert describe(theta(X)[np.arange(len(X)) % 2 == 0] == 0) == f"(A·θ)[{(len(X) + 1) // 2} of {len(X)}] = 0"
    matrix = ko.Theta(ko.kernels.Linear(), outputs=2, name="Θ")
    assert describe(ko.norm(matrix, "nuc") ** 2) == "‖Θ‖_nuc²"
    assert len(describe(cp.Minimize(sum(cp.abs(theta(X[:i]) @ y[:i]) for i in range(2, 10))))) == 120
    assert str(svm(theta)).startswith("minimize  Σ max")


@pytest.mark.later
def test_large_sparse_constants_are_not_unfolded(theta):
    import scipy.sparse as sp  # noqa: PLC0415

    D = sp.eye_array(20, format="csr")
    D.resize((10_000_000, 20))
    assert "[10000000×20 data] @ A·θ" in str(ko.Problem(cp.Minimize(cp.norm(D @ theta(X)))))


def test_unusual_statements(theta):
    p = cp.Parameter(pos=True, name="p")
    assert "^p" in str(ko.Problem(cp.Minimize(cp.sum(cp.power(cp.abs(theta(X)), p)))).explain())

    def broken(X):
        raise RuntimeError("no features today")

    problem = ko.Problem(cp.Minimize(cp.sum(ko.Theta(ko.kernels.Explicit(broken))(X))))
    assert "no features today" in str(problem.explain())


@pytest.mark.later
def test_several_thetas_are_told_apart():
    one, two = ko.Theta(ko.kernels.Linear()), ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - one(X) - two(X)) + ko.norm(one) + ko.norm(two)))
    told = str(problem.explain())
    assert "A·θ₁ − A·θ₂‖² + ‖θ₁‖ + ‖θ₂‖" in told
    assert "θ₂: N = 20 rows" in told


@pytest.mark.later
def test_parts_of_theta_and_parameters_are_named():
    theta, lam = ko.Theta(ko.kernels.Linear(), outputs=2), cp.Parameter(nonneg=True, name="lam", value=0.25)
    norms = lam * ko.norm(theta[:, 0]) + ko.norm(theta @ [1.0, -1.0])
    told = str(ko.Problem(cp.Minimize(cp.sum_squares(theta(X)[:10, 0]) + norms)).explain())
    assert "‖(A·θ)[:10, 0]‖² + lam·‖θ[:, 0]‖ + ‖θ M‖" in told
    assert "lam = 0.25" in told


@pytest.mark.slow
def test_long_objectives_are_wrapped_not_cut(theta):
    objective = sum(cp.norm(theta(X[: i + 2]) - i) for i in range(20)) + 7 * ko.norm(theta)
    told = str(ko.Problem(cp.Minimize(objective)).explain())
    assert "7·‖θ‖" in told
    assert max(map(len, told.splitlines())) < 130


def test_an_answer_for_other_parameters_is_named():
    theta, lam = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Parameter(nonneg=True, name="lam", value=0.3)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - 1.0) + lam * ko.sum_squares(theta)))
    problem.solve()
    assert "changed since" not in str(problem.explain())
    ko.path(problem, lam, [0.1, 1.0])  # puts everything back
    assert "changed since" not in str(problem.explain())
    lam.value = 3.0
    assert "lam changed since: solve again" in str(problem.explain())
    problem.solve()
    assert "changed since" not in str(problem.explain())


@pytest.mark.slow
def test_feature_matrices_are_told_apart(theta):
    A, grid = ko.FeatureMatrix(X, theta.kernel), ko.FeatureMatrix(X[:7] + 0.1, theta.kernel)
    loss = cp.sum_squares(y - theta(X)) + ko.sum_squares(theta)
    slopes = [A.derivative(0) @ theta <= 3, A.derivative(1) @ theta <= 3, A.derivative((0, 1)) @ theta <= 9]
    problem = ko.Problem(cp.Minimize(loss), [theta(X[:5]) <= 2, grid @ theta <= 1, A @ theta >= -4, *slopes])
    told = [line.strip() for line in str(problem.explain()).splitlines()]
    assert "stated       minimize  ‖[20 data] − A₁·θ‖² + ‖θ‖²" in told
    assert "subject to A₂·θ ≤ 2" in told
    for constraint in ("A₃·θ ≤ 1", "A₁·θ ≥ −4", "A′₁·θ ≤ 3", "A′₂·θ ≤ 3", "A″·θ ≤ 9"):
        assert constraint in told and constraint in str(problem)
    assert any("N = 92 rows (A₁: 20, A₂: 5, A₃: 7, A′₁: 20, A′₂: 20, A″: 20), 87 distinct" in line for line in told)
    assert r"A'_{2}\theta \leq 3" in problem._repr_latex_() and r"A_{3}\theta \leq 1" in problem._repr_latex_()
    assert "A₁" not in str(ko.Problem(cp.Minimize(loss), [theta(X)[:5] <= 2]).explain())  # one matrix


def test_feature_matrices_are_numbered_for_each_theta(theta):
    other = ko.Theta(ko.kernels.Linear(), name="φ")
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X) - other(X))), [other(X[:3]) + theta(X[:3]) >= 0])
    assert str(problem) == "minimize  ‖[20 data] − A₁·θ − A₁·φ‖²\n    subject to  A₂·φ + A₂·θ ≥ 0"


@pytest.mark.slow
def test_many_feature_matrices_are_not_all_counted(theta):
    problem = ko.Problem(cp.Minimize(sum(cp.norm(theta(X[: i + 2])) for i in range(10))))
    assert "N = 65 rows (A₁: 2, A₂: 3, A₃: 4, A₄: 5, A₅: 6, …, A₁₀: 11), 11 distinct" in str(problem.explain())


@pytest.mark.slow
def test_where_entries_of_the_kernel_matrix_come_from(monkeypatch):
    """The driver looks entries of BBᵀ up where B is wide and memory allows; explain() says so, and why not."""
    rng = np.random.default_rng(0)
    for sigma, free, words in (
        (0.3, 1e12, "entries of BBᵀ looked up, as r ≥ N/5"),
        (9.0, 1e12, "entries of BBᵀ from B, as its"),
        (0.3, 2.4e6, "entries of BBᵀ from B, as all of them take 0.00072 GB, more than 25% of the free memory"),
    ):
        monkeypatch.setattr(memory, "available_bytes", lambda free=free: free)
        theta = ko.Theta(ko.kernels.Gaussian(sigma=sigma))
        f = theta(rng.normal(size=(300, 2)))
        problem = ko.Problem(cp.Minimize(cp.sum(cp.abs(f - 1)) + ko.sum_squares(theta)))
        problem.solve(solver="AUGMENTED_LAGRANGIAN")
        assert words in str(problem.explain())
        assert problem.status == "optimal"
    problem.solve(solver="INTERIOR_POINT")
    assert "entries" not in str(problem.explain())


def test_long_sums_are_shortened(theta):
    u = theta(X)
    told = describe(sum(cp.pos(1 - u[k]) for k in range(20)), None)
    assert told.endswith("max(0, 1 − (A·θ)[2]) + … 16 more terms … + max(0, 1 − (A·θ)[19])")
    assert "16 more terms" in ko.Problem(cp.Minimize(sum(cp.pos(u[k]) for k in range(20))))._repr_latex_()


def test_long_indices_have_letters(theta):
    u, i, j = theta(X), np.tile([0, 1, 2], 10), np.tile([3, 4, 5], 10)
    assert describe(u[i] - u[j]) == f"(A·θ)[i] − (A·θ)[j]  (i, j: 30 of {len(X)} entries)"
    assert describe(u[i] - u[i]) == f"(A·θ)[30 of {len(X)}] − (A·θ)[30 of {len(X)}]"


def test_products_with_one_and_two_signs(theta):
    u, b = theta(X), cp.Variable(name="b")
    assert describe(1 - 1 * (u[0] + b)) == "1 − ((A·θ)[0] + b)"
    assert describe(1 - (-1) * (u[0] + b)) == "1 + ((A·θ)[0] + b)"


def test_the_solver_line_names_what_was_tried_before(theta):
    problem = ko.Problem(cp.Minimize(cp.sum(cp.abs(theta(X) - 1)) + ko.sum_squares(theta)))
    problem.solve()
    stats = problem.solver_stats
    earlier = Attempt("ECOS", 1e-6, None, (1,), "optimal_inaccurate", 3e-4, 0.1)
    lines = explain.solver(stats.solver_name, replace(stats, attempts=(earlier, *stats.attempts)))
    assert lines == [("solver", f"{stats.solver_name}, after ECOS (optimal_inaccurate, gap 3e-04)")]
    assert explain.solver(stats.solver_name, stats) == [("solver", stats.solver_name)]


@pytest.mark.later
def test_limits_have_the_remedy_that_fits(theta):
    problem = ko.Problem(cp.Minimize(cp.norm(theta(X) - np.arange(len(X)), 2) + ko.sum_squares(theta)))
    problem.solve(solver="CLARABEL", max_iter=1)
    assert problem.status == "user_limit"
    assert "CLARABEL reached a limit of its own" in str(problem.explain())
    late = replace(problem.solver_stats, out_of_time=True)
    (line,) = [text for label, text in explain.answer(replace(problem._solution, solver_stats=late), Notation())][-1:]
    assert line.startswith("The time limit was reached")


@pytest.mark.later
def test_the_seconds_of_each_phase(theta):
    """Every phase once, in order, and in a sum that the whole solve exceeds."""
    problem = svm(theta)
    assert "seconds" not in str(problem.explain())
    began = perf_counter()
    problem.solve()
    elapsed = perf_counter() - began
    (line,) = [text for label, text in problem.explain().lines if label == "seconds"]
    number = r"\d[\d.e+-]*"
    assert re.fullmatch(f"statement {number}, factor {number}, solver {number}, proof {number}", line)
    seconds = problem.solver_stats.seconds
    assert all(spent > 0 for spent in seconds.values())
    assert sum(seconds.values()) <= elapsed


def test_phases_within_phases_count_once():
    with clock.recorded() as seconds:
        with clock.phase(clock.SOLVER):
            with clock.phase(clock.PROOF):
                pass
            inner = seconds[clock.PROOF]
        before = dict(seconds)
    with clock.phase(clock.SOLVER):  # nothing is recorded here
        pass
    assert seconds == before
    assert seconds[clock.PROOF] == inner > 0
    assert seconds[clock.FACTOR] == 0


@pytest.mark.later
def test_where_no_factor_is_needed_one_line_says_why():
    rng = np.random.default_rng(0)
    P = rng.normal(size=(150, 12))
    labels, theta, b = np.sign(P[:, 0] + 0.3), ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable(name="b")
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(labels, theta(P) + b)) + ko.sum_squares(theta)))
    problem.solve()
    told = dict(problem.explain().lines)
    assert told["factor"].startswith(
        "θ: none, solved with Q itself, since B would take longer than Q (100% of a sample of rows are independent), "
        "150 × 150, "
    )
    assert "systems" not in told  # which says where entries of BBᵀ come from
