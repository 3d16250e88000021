"""Solves with Q itself in place of a factor: the same answers, on rows with a multiplier, and factors where needed."""

import pickle
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.driver import in_kernel_space
from kernelopt.driver.options import factor_options
from kernelopt.driver.strategy import Goal
from kernelopt.errors import KernelError, NotPSDError, SolverError
from kernelopt.factorization import Settings, carried
from kernelopt.factorization.dense import pivoted_cholesky
from kernelopt.factorization.whole import ROUNDINGS, WholeMatrix, whole
from kernelopt.language.rows import Rows
from kernelopt.results.solution import Status
from kernelopt.solvers import machines
from kernelopt.solvers.cvxpy_solvers import Answer
from kernelopt.support.arithmetic import exact_product, gamma

N = 300
LOSSES = {
    "hinge": lambda y, f: ko.losses.hinge(np.sign(y), f),
    "epsilon": lambda y, f: ko.losses.epsilon_insensitive(y, f, 0.1),
    "squares": lambda y, f: ko.losses.squared_error(y, f),
    "pinball": lambda y, f: ko.losses.pinball(y, f, 0.3),
    "huber": lambda y, f: ko.losses.huber(y, f, 0.5),
}


def data(p: int = 3, n: int = N, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, np.sin(2 * X[:, 0]) + 0.4 * rng.normal(size=n)


def stated(loss: str, p: int = 3, n: int = N, weights=1.0, lam=None):
    X, y = data(p, n)
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=np.sqrt(p) / 1.5)), cp.Variable()
    lam = cp.Parameter(nonneg=True, value=0.3) if lam is None else lam
    losses = LOSSES[loss](y, theta(X) + b)
    return ko.Problem(cp.Minimize(cp.sum(cp.multiply(weights, losses)) + lam * ko.sum_squares(theta))), theta, b, lam


def is_whole(problem: ko.Problem) -> bool:
    return "solved with Q itself" in str(problem.explain())


def by_factor(problem: ko.Problem, **options) -> float:
    return problem.solve(rank_tol=1e-12, tol=1e-9, **options)


@pytest.mark.later
@pytest.mark.parametrize("loss", ["hinge", "epsilon", "squares"])
def test_the_answer_is_that_of_a_factor(loss):
    problem, theta, _, _ = stated(loss)
    problem.solve(tol=1e-9)
    assert problem.status == "optimal" and problem.certificate.relative_gap <= 1e-9
    assert is_whole(problem)
    other, reference, _, _ = stated(loss)
    value = by_factor(other)
    assert not is_whole(other)
    assert problem.certificate.lower <= value * (1 + 1e-9) and problem.value <= other.certificate.upper + 1e-9 * value
    Z = data(seed=1)[0]
    assert np.allclose(theta.value(Z), reference.value(Z), atol=1e-4)
    assert theta.value.norm == pytest.approx(reference.value.norm, rel=1e-5)


def test_theta_stands_on_rows_with_a_multiplier():
    problem, theta, _, lam = stated("hinge")
    problem.solve()
    nu = np.concatenate(list(theta._duals.values()))
    assert np.array_equal(theta.value.pivots, np.flatnonzero(nu))
    assert len(theta.value.pivots) < 0.9 * N
    assert np.allclose(np.abs(theta.value.pivot_coefficients), np.abs(nu[nu != 0]) / (2 * lam.value), rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["pinball", "huber"])
def test_other_kinks_only_with_a_flat_spectrum(loss):
    """Where libsvm has no point, Q itself pays where a factor needs a large share of N columns."""
    steep, *_ = stated(loss, p=2, n=450)
    steep.solve()
    flat, _, _, lam = stated(loss, p=40, n=450)
    flat.solve(tol=1e-8)
    assert steep.status == flat.status == "optimal"
    assert is_whole(flat) is (loss == "pinball")  # Huber's function is smooth enough for Newton's method
    assert not is_whole(steep)
    value, lam.value = flat.value, 0.2
    again = flat.solve(tol=1e-8)
    assert flat.status == "optimal" and again < value


@pytest.mark.parametrize("loss", ["hinge", "squares"])
def test_few_columns_need_no_whole_matrix(loss):
    """On a line the factor has a few columns, which a sample of rows shows."""
    problem, *_ = stated(loss, p=1)
    problem.solve()
    assert problem.status == "optimal" and not is_whole(problem)
    assert problem.solver_stats.rounds[-1].rank < N / 10


@pytest.mark.slow
def test_rows_that_are_nearly_dependent():
    """Active sets fail from libsvm's first point, where the free rows are nearly dependent; a finer one will do."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.uniform(-2, 2, size=(100, 2)), 3, axis=0) + 1e-4 * rng.normal(size=(300, 2))
    y = np.sign(np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=300))
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=0.3)), cp.Variable()
    goal = cp.Minimize(cp.sum(ko.losses.hinge(y, theta(X) + b)) + 0.01 * ko.sum_squares(theta))
    problem, other = ko.Problem(goal), ko.Problem(goal)
    problem.solve(tol=1e-7)
    assert problem.status == "optimal"
    assert by_factor(other) == pytest.approx(problem.value, rel=1e-6)


@pytest.mark.slow
def test_changes_of_the_penalty_and_of_weights():
    weights = cp.Parameter(N, nonneg=True, value=np.ones(N))
    problem, _, _, lam = stated("hinge", weights=weights)
    rng = np.random.default_rng(0)
    for _ in range(4):
        lam.value, weights.value = 10 ** rng.uniform(-2, 1), rng.integers(0, 3, size=N).astype(float)
        problem.solve(tol=1e-8)
        assert problem.status == "optimal" and is_whole(problem)
        other, _, _, _ = stated("hinge", weights=weights.value, lam=lam.value)
        assert by_factor(other) == pytest.approx(problem.value, rel=1e-7)


@pytest.mark.later
def test_squares_get_a_decomposition_for_more_values():
    """One system with Q takes less than a factor, but from the third value of λ on a decomposition does."""
    problem, _, _, lam = stated("squares")
    found = []
    for value in (1.0, 0.5, 0.25, 0.125):
        lam.value = value
        problem.solve()
        assert problem.status == "optimal"
        found.append(is_whole(problem))
    assert found == [True, True, False, False]


@pytest.mark.slow
def test_whoever_needs_columns_gets_them():
    """Derivatives, left-out rows, the reduced problem and checks have a factor, made when it is asked for."""
    problem, theta, _, _ = stated("squares")
    problem.solve()
    f = theta.value(data(seed=2)[0])
    assert problem.verify().passed
    assert not is_whole(problem)
    assert problem.reduced_problem.solve(solver="CLARABEL") == pytest.approx(problem.value, rel=1e-6)
    assert np.array_equal(theta.value(data(seed=2)[0]), f)
    problem.solve()
    assert problem.status == "optimal" and not is_whole(problem)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["squares", "hinge"])
def test_gradients_after_a_solve_with_the_whole_matrix(loss):
    problem, theta, _, lam = stated(loss)
    problem.solve()
    assert is_whole(problem)
    Z = data(seed=3)[0][:5]
    found = ko.gradient(problem, cp.sum(theta(Z)), [lam])
    other, reference, _, strength = stated(loss)
    by_factor(other)
    known = ko.gradient(other, cp.sum(reference(Z)), [strength])
    assert found[lam] == pytest.approx(known[strength], rel=1e-6)


@pytest.mark.slow
def test_left_out_rows_after_a_solve_with_the_whole_matrix():
    problem, theta, b, _ = stated("squares")
    problem.solve()
    assert is_whole(problem)
    other, *_ = stated("squares")
    by_factor(other)
    assert np.allclose(ko.leave_one_out(problem), ko.leave_one_out(other), atol=1e-6)
    again, theta, b, _ = stated("squares")
    again.solve()
    f = ko.approximate_leave_one_out(again, theta(data()[0]) + b)
    assert np.allclose(np.abs(data()[1] - f), np.abs(ko.leave_one_out(again)), atol=1e-6)


@pytest.mark.later
@pytest.mark.parametrize("options", [{"solver": "CLARABEL"}, {"max_rank": 50}, {"rank_tol": 1e-6}, {"certify": False}])
def test_who_asks_for_a_factor_gets_it(options):
    problem, *_ = stated("hinge")
    problem.solve(**options)
    assert not is_whole(problem)


def test_indefinite_kernels_are_found():
    X, y = data()
    theta = ko.Theta(ko.kernels.Precomputed(ko.kernels.Gaussian(sigma=1.0)(X, X) - 0.5 * np.eye(N)))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(np.arange(N)) - y) + ko.sum_squares(theta)))
    with pytest.raises(NotPSDError):
        problem.solve()


def test_too_little_memory_is_told():
    problem, *_ = stated("hinge")
    problem.solve(memory_limit=20.0 * N**2)
    assert problem.status == "optimal" and not is_whole(problem)
    assert "no memory for Q itself" in str(problem.explain())


def test_without_libsvm(monkeypatch):
    """The factor is there where libsvm, whose point active sets need, is not."""
    monkeypatch.setattr(machines, "is_installed", lambda: False)
    problem, *_ = stated("hinge", p=2)
    problem.solve()
    assert problem.status == "optimal" and not is_whole(problem)


def test_a_failed_attempt_is_dropped(monkeypatch):
    """The loop over factors begins as if there had been no attempt, and lists it."""

    def fails(problem, watch, start=None):
        raise SolverError("Made to fail.")

    monkeypatch.setattr(in_kernel_space.engines, "solve", _once(in_kernel_space.engines.solve, fails))
    problem, *_ = stated("hinge")
    problem.solve()
    assert problem.status == "optimal" and not is_whole(problem)
    assert [attempt.claimed for attempt in problem.solver_stats.attempts] == ["failed", "optimal"]


def _once(call, first):
    calls = []

    def found(*args, **options):
        calls.append(args)
        return first(None, None) if len(calls) == 1 else call(*args, **options)

    return found


@pytest.mark.slow
def test_time_limits_keep_the_point(monkeypatch):
    """Out of time with Q itself: the status says so, and there is a point."""
    problem, *_ = stated("hinge")
    problem.solve(time_limit=1e-3)
    assert problem.status in {"user_limit", "optimal"} and np.isfinite(problem.value)


def test_coordinates_of_a_factor_and_back():
    """The coordinates of θ = Aᵀc with Q are c; norms and predictions agree with those of a factor."""
    X, _ = data(n=40)
    rows = Rows.of_points(ko.kernels.Gaussian(sigma=1.0), X)
    Q, factor = whole(rows), pivoted_cholesky(rows, Settings(1e-13, None))
    c = np.random.default_rng(0).normal(size=(40, 2))
    v = carried(Q, factor, c)
    assert np.allclose(Q.matrix @ c, factor.B @ v)
    assert np.allclose(Q.matrix.inner(c), factor.matrix.inner(v) / factor.scale)
    assert np.allclose(Q.coefficients(c), c)
    assert np.allclose(carried(factor, Q, v)[factor.pivots], factor.coefficients(v))
    assert np.allclose(Q.product(rows, c), rows.product(c)) and np.allclose(Q.quadratic(rows, c), rows.quadratic(c))
    assert np.all(np.abs(Q.product(rows, c) - rows.product(c)) <= Q.product_error(rows, c))
    for refused in (lambda B: B.gram(np.ones(40)), lambda B: B.spectrum(), lambda B: B.first(3)):
        with pytest.raises(SolverError, match="kernel space"):
            refused(Q.matrix)


def test_products_of_multiples_are_remembered():
    """Within the roundings that the error bounds count; other vectors get a product of their own."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(50, 50))
    Q = WholeMatrix(A @ A.T)
    v = rng.normal(size=50)
    first = Q @ v
    near = v / 3.7
    assert np.allclose(Q @ near, Q.array @ near, rtol=0, atol=60 * 2.0**-53 * (np.abs(Q.array) @ np.abs(near)).max())
    assert len(Q._last) == 1
    assert np.allclose(Q @ -v, -first, rtol=1e-15)
    assert len(Q._last) == 1
    moved = v * (1 + 1e-14 * (np.arange(50) == 7))
    assert np.array_equal(np.round(Q @ moved, 8), np.round(Q.array @ moved, 8))
    assert len(Q._last) == 2
    sparse = np.where(np.arange(50) % 5 == 0, v, 0.0)
    assert np.allclose(Q @ sparse, Q.array @ sparse, rtol=1e-12)
    for tiny in (np.zeros(50), 1e-200 * v, 1e200 * v, v * 10.0 ** -np.arange(0, 200, 4)):
        assert np.allclose(Q @ tiny, Q.array @ tiny, rtol=1e-12, atol=0)


@pytest.mark.later
def test_products_near_known_ones_are_made_from_them():
    """Rows of Q of the few entries that differ are added, with no more roundings than in a product of its own."""
    rng = np.random.default_rng(0)
    N, taken = 100, []
    A = rng.normal(size=(N, N))
    Q = A @ A.T

    class Counted(WholeMatrix):
        def _of_rows(self, some, v):
            taken.append(len(some))
            return super()._of_rows(some, v)

    B, v = Counted(Q), np.where(np.arange(N) % 2, rng.normal(size=N), 0.0)
    lengths, w = np.sqrt(Q.diagonal()), v
    assert np.array_equal(B @ v, B @ v) and not taken
    for step in range(40):  # a chain of them
        w = w.copy()
        w[rng.permutation(N)[:5]] += rng.normal(size=5)
        exact = exact_product(Q, w[:, None])[:, 0]
        allowed = gamma(N + ROUNDINGS) * lengths * (lengths @ np.abs(w))
        assert np.all(np.abs(B @ w - exact) <= allowed), step
        assert all(known.roundings <= N for known in B._last)
    assert taken and len(taken) < 40  # where roundings have added up, a product of its own is made
    before = list(taken)
    B @ w
    B @ (w * (1 + 1e-3 * rng.normal(size=N)))  # many entries differ
    assert taken == before
    step = np.where(np.arange(N) == 3, 1.0, 0.0)  # few entries: not worth keeping
    kept = [known.v for known in B._last]
    np.testing.assert_allclose(B @ step, Q[3])
    assert all(a is b.v for a, b in zip(kept, B._last, strict=True)) and taken[-1] == 1


def test_no_product_is_made_from_a_far_larger_one():
    """Its roundings would be large beside the result."""
    N = 50
    B, v = WholeMatrix(np.ones((N, N)) + np.eye(N)), (np.arange(N) < 10) * 1.0
    B @ v
    w = np.where(np.arange(N) < 4, 1e-3, 0.0)
    w[0] = 1.0
    np.testing.assert_allclose(B @ w, B.array @ w, rtol=1e-15)
    assert [known.roundings for known in B._last] == [4, 10]
    zero = WholeMatrix(np.zeros((N, N)))
    assert not np.any(zero @ v) and not np.any(zero @ w)


def test_predictions_of_a_solve_are_values():
    """Values of θ(X) after a solve are those of the function, which a copy from a file computes anew."""
    problem, theta, _, _ = stated("hinge")
    f = theta(data()[0])
    problem.solve()
    assert is_whole(problem) and theta.value._known
    assert np.allclose(f.value, theta.value(data()[0]), rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="read-only"):
        f.value[:] = 0.0
    again = pickle.loads(pickle.dumps(theta.value))
    assert not again._known
    theta.value = again
    assert np.allclose(theta(data()[0]).value, again(data()[0]), rtol=0, atol=1e-14)


def test_predictions_of_a_factor_are_values_too(monkeypatch):
    """They were computed from kernel values for the certificate; Bv alone is not kept."""
    X = np.linspace(0, 3, 30)[:, None]
    for certify in (True, False):
        theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
        f = theta(X)
        ko.Problem(cp.Minimize(cp.sum_squares(f - np.sin(X[:, 0])) + 0.1 * ko.sum_squares(theta))).solve(
            certify=certify, factorization="cholesky"
        )
        assert bool(theta.value._known) == certify
        anew = theta.value(X)
        with monkeypatch.context() as patch:
            if certify:
                patch.setattr(ko.kernels.Gaussian, "_matrix", lambda *_: pytest.fail("Kernel values were computed."))
            assert np.allclose(f.value, anew, rtol=1e-12, atol=1e-13)


def test_q_that_is_held_is_not_made_again(monkeypatch):
    """On a path Q stands for the factor and for the kernel's values, in one array."""
    problem, *_ = stated("hinge")
    (link,) = problem.canonical_form().predictions
    with link.rows.held():
        monkeypatch.setattr(ko.kernels.Gaussian, "_matrix", lambda *_: pytest.fail("Kernel values were computed."))
        factor = whole(link.rows)
        assert np.shares_memory(factor.matrix.array, link.rows._Q[0])


def reason(loss: str, names=("AUGMENTED_LAGRANGIAN", "LEAST_SQUARES", "NEWTON"), flat: str = "", **goal) -> str:
    """Why Q itself is used for 150 rows, in words; empty where it is not."""
    problem, *_ = stated(loss, n=150)
    form, outer = problem._private_form(), problem._outer()
    return in_kernel_space.reason(form, outer, list(names), factor_options(), Goal(1e-6, **goal), flat)


@pytest.mark.parametrize("rows", [120, 240])
def test_a_low_rank_is_found_in_few_rows(rows):
    """Two columns: θ stands on two pivots, and not on all rows."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(rows, 2))
    theta, b = ko.Theta(ko.kernels.Linear()), cp.Variable()
    losses = ko.losses.hinge(np.sign(points[:, 0] + rng.normal(size=rows)), theta(points) + b)
    problem = ko.Problem(cp.Minimize(cp.sum(losses) + 1e-4 * ko.sum_squares(theta)))
    problem.solve()
    assert problem.status == "optimal" and problem.certificate.ranks[0][0] == 2


@pytest.mark.parametrize(
    ("names", "goal"),
    [
        (("AUGMENTED_LAGRANGIAN", "NEWTON"), {"certify": "estimate"}),
        (("AUGMENTED_LAGRANGIAN", "NEWTON"), {"own_options": True}),
        (("AUGMENTED_LAGRANGIAN",), {}),
    ],
    ids=["no certificate", "options of a solver", "one solver"],
)
def test_whoever_is_particular_gets_a_factor(names, goal):
    """A certificate must judge the answer, and another solver must be there to follow."""
    assert reason("hinge")
    assert not reason("hinge", names, **goal)


@pytest.mark.parametrize(
    ("loss", "flat", "limit"),
    [("squares", "", "SQUARES"), ("squares", "flat", "SQUARES"), ("hinge", "flat", "FLAT"), ("hinge", "", "MANY"),
     ("pinball", "", "DENSE")],
)  # fmt: skip
def test_the_most_rows_depend_on_loss_and_spectrum(monkeypatch, loss, flat, limit):
    """One limit for each case, and no other; the spectrum of 150 rows counts as flat here."""
    monkeypatch.setattr(in_kernel_space, "_flat", lambda *_: "flat")
    monkeypatch.setattr(in_kernel_space.choice, "LARGE", 150)
    for name in ("SQUARES", "FLAT", "MANY", "DENSE"):
        monkeypatch.setattr(in_kernel_space, name, 149 if name == limit else 150)
    assert not reason(loss, flat=flat)
    for name in ("SQUARES", "FLAT", "MANY", "DENSE"):
        monkeypatch.setattr(in_kernel_space, name, 150 if name == limit else 149)
    assert reason(loss, flat=flat)


@pytest.mark.parametrize("status", [Status.OPTIMAL, Status.USER_LIMIT])
def test_a_limit_closes_no_gap(status, monkeypatch):
    """An answer whose solver stopped at a limit is judged, but not as one whose gap is closed."""
    problem, *_ = stated("squares", n=30)
    form, outer, found = problem._private_form(), problem._outer(), []
    reduction = in_kernel_space.reduced(form, factor_options(), np.inf, "asked for")
    answer = Answer(status, True, None, replace(reduction.at_zero((np.array(0.0),)), nu=(None,)), gap=0.0)

    def judged(_, candidate, *__):
        found.append(candidate)
        raise SolverError("Seen.")

    monkeypatch.setattr(in_kernel_space.engines, "solve", lambda *_: answer)
    monkeypatch.setattr(in_kernel_space.certificates, "gap_of_solver", lambda *_: 0.0)
    monkeypatch.setattr(in_kernel_space, "judged", judged)
    attempt, outcome = in_kernel_space.tried(reduction, outer, ["LEAST_SQUARES"], Goal(1e-6), None)
    assert outcome is None and attempt.claimed == status
    assert [(one.closed, one.limited) for one in found] == [(status == Status.OPTIMAL, status == Status.USER_LIMIT)]


def test_a_whole_matrix_multiplies_and_remembers():
    """Columns one by one or together; vectors with zeros are remembered, too."""
    Q = np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 0.5], [0.0, 0.5, 1.0]])
    matrix, V = WholeMatrix(Q), np.array([[1.0, 2.0], [0.0, 1.0], [-1.0, 0.0]])
    np.testing.assert_allclose(matrix @ V, Q @ V)
    assert not matrix._last
    np.testing.assert_allclose(matrix @ V[:, :1], Q @ V[:, :1])
    assert len(matrix._last) == 1
    np.testing.assert_allclose(matrix @ (-3.0 * V[:, 0]), -3.0 * Q @ V[:, 0])
    assert len(matrix._last) == 1


def test_rows_without_an_entry_are_not_read():
    """A product with few entries takes as few rows of Q."""
    Q = np.full((10, 10), np.nan)
    Q[[2, 7]] = 1.0
    v = np.zeros(10)
    v[[2, 7]] = 1.0, 2.0
    np.testing.assert_allclose(WholeMatrix(Q) @ v, np.full(10, 3.0))


def test_errors_of_products_count_all_roundings():
    """Those of a sum over all rows, and of two sums, with eight more."""
    X, _ = data(n=20)
    rows, V = Rows.of_points(ko.kernels.Gaussian(sigma=1.0), X), np.eye(20)[:, :2]
    factor = whole(rows)
    np.testing.assert_array_equal(factor.product_error(rows, V), rows.product_error(V, 28))
    np.testing.assert_array_equal(factor.quadratic_error(rows, V), rows.quadratic_error(V, 48))


def test_kernel_values_without_digits_are_refused():
    """As a factor refuses them."""
    kernel = 1e-310 * ko.kernels.Gaussian(sigma=1.0)
    with pytest.raises(KernelError, match="all digits"):
        whole(Rows.of_points(kernel, kernel.rows(data(n=5)[0])))
