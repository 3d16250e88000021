"""Least squares: closed forms, one decomposition for every λ, and what is kept between solves."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from inside import reduction_of
from sklearn.kernel_ridge import KernelRidge

import kernelopt as ko
from kernelopt.compiler.outer import outer_of
from kernelopt.errors import SolverError
from kernelopt.factorization.tall import DenseMatrix
from kernelopt.solvers import assemble
from kernelopt.solvers.least_squares import ROUNDS, LeastSquares, _in_proportion, curvature, minimizer, reusable
from kernelopt.solvers.structured import Structured
from kernelopt.solvers.watch import Watch

LAPLACIAN = ko.kernels.Laplacian(sigma=1.0)
GRID = np.random.default_rng(5).normal(size=(20, 2))


def data(N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.normal(size=N)


def closed(Q, Y, R, F=None, ridge=0.0):
    """(α, β) of  minimize Σ w(y − Qα − Fβ)² + λ(αᵀQα + ridge·‖β‖²)  for R = λ·diag(1/w)."""
    F = np.zeros((len(Q), 0)) if F is None else F
    K = np.block([[Q + R, F], [F.T, -ridge * np.eye(F.shape[1])]])
    found = np.linalg.solve(K, np.concatenate([Y, np.zeros((F.shape[1], *Y.shape[1:]))]))
    return found[: len(Q)], found[len(Q) :]


def check(problem, prediction, expected, tol=1e-8):
    found = problem.certificate  # 1e-10 of what θ gains may be below the last digit of the objective
    assert problem.status == "optimal" or found.absolute_gap <= 1e-11 * found.terms, found
    assert problem.solver_stats.solver_name == "LEAST_SQUARES"
    assert np.abs(prediction - expected).max() <= tol * np.abs(expected).max()


@pytest.mark.slow
@pytest.mark.parametrize("N", [1, 2, 60])
def test_every_strength_of_the_penalty(N):
    X, y = data(N)
    theta, lam = ko.Theta(LAPLACIAN), cp.Parameter(nonneg=True)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta)))
    decomposed = []
    for value in [*10.0 ** np.arange(-8, 9), *(3 * 10.0 ** np.arange(-8, 9))]:
        lam.value = value
        problem.solve(tol=1e-10)
        alpha, _ = closed(LAPLACIAN(X), y, value * np.eye(N))
        check(problem, theta.value(GRID), LAPLACIAN(GRID, X) @ alpha)
        assert problem.solver_stats.num_iters <= 3
        decomposed.append(problem._left_off.kept.spectrum is not None)
    assert decomposed[-1]
    assert N == 1 or not decomposed[0]


@pytest.mark.parametrize("weighted", [False, True])
def test_agrees_with_kernel_ridge(weighted):
    X, y = data(80)
    w = np.random.default_rng(1).uniform(0.1, 5, size=80) if weighted else np.ones(80)
    theta = ko.Theta(LAPLACIAN)
    problem = ko.Problem(cp.Minimize(w @ ko.losses.squared_error(y, theta(X)) + 0.3 * ko.sum_squares(theta)))
    problem.solve(tol=1e-10)
    ridge = KernelRidge(alpha=0.3, kernel="precomputed").fit(LAPLACIAN(X), y, sample_weight=w)
    check(problem, theta.value(GRID), ridge.predict(LAPLACIAN(GRID, X)))


@pytest.mark.slow
@pytest.mark.parametrize("ridge", [0.0, 0.5])
def test_parametric_variables(ridge):
    X, y = data(70)
    F = np.column_stack([np.ones(70), X])
    theta, beta, lam = ko.Theta(LAPLACIAN), cp.Variable(3), cp.Parameter(nonneg=True)
    objective = cp.sum_squares(y - theta(X) - F @ beta) + lam * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(objective + ridge * cp.sum_squares(beta) if ridge else objective))
    for value in (0.01, *np.geomspace(1e-4, 1e4, 30)):
        lam.value = value
        problem.solve(tol=1e-10)
        alpha, expected = closed(LAPLACIAN(X), y, value * np.eye(70), F, ridge / value)
        check(problem, theta.value(X) + F @ beta.value, LAPLACIAN(X) @ alpha + F @ expected)
        assert beta.value == pytest.approx(expected, rel=1e-6, abs=1e-7)
    assert problem._left_off.kept.spectrum is not None


@pytest.mark.slow
def test_parametric_variables_that_repeat_each_other():
    X, y = data(50)
    theta, b, c, lam = ko.Theta(LAPLACIAN), cp.Variable(), cp.Variable(), cp.Parameter(nonneg=True)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X) - b - c) + lam * ko.sum_squares(theta)))
    for value in np.geomspace(0.1, 10, 30):
        lam.value = value
        problem.solve()
        alpha, both = closed(LAPLACIAN(X), y, value * np.eye(50), np.ones((50, 1)))
        check(problem, theta.value(X) + b.value + c.value, LAPLACIAN(X) @ alpha + both, 1e-7)
    assert problem._left_off.kept.spectrum is not None


@pytest.mark.slow
def test_several_outputs_are_decomposed_one_by_one():
    X, y = data(40)
    Y = np.column_stack([y, np.cos(y), y**2])
    theta, b, lam = ko.Theta(LAPLACIAN, outputs=3), cp.Variable((1, 3)), cp.Parameter(nonneg=True)
    F = theta(X) + np.ones((40, 1)) @ b
    problem = ko.Problem(cp.Minimize(cp.sum_squares(Y - F) + lam * ko.sum_squares(theta)))
    for value in (*np.geomspace(0.01, 1, 40), 0.2):
        lam.value = value
        problem.solve(tol=1e-10)
    alpha, intercepts = closed(LAPLACIAN(X), Y, 0.2 * np.eye(40), np.ones((40, 1)))
    check(problem, theta.value(GRID) + b.value, LAPLACIAN(GRID, X) @ alpha + intercepts)
    assert [len(part.v) for part in problem._left_off.kept.spectrum.parts] == [40, 40, 40]


@pytest.mark.later
@pytest.mark.parametrize("common", [True, False])
def test_several_thetas(common):
    X, y = data(50)
    other = ko.kernels.Gaussian(sigma=0.3)
    first, second = ko.Theta(LAPLACIAN), ko.Theta(other)
    lam, mu = cp.Parameter(nonneg=True), cp.Parameter(nonneg=True)
    penalty = lam * (ko.sum_squares(first) + 2 * ko.sum_squares(second))
    if not common:
        penalty = lam * ko.sum_squares(first) + mu * ko.sum_squares(second)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - first(X) - second(X)) + penalty))
    for value in (1.0, 0.1, 0.01):
        lam.value, mu.value = value, 0.3
        problem.solve(tol=1e-10)
        Q = LAPLACIAN(X) / value + other(X) / (2 * value if common else 0.3)
        check(problem, first.value(X) + second.value(X), Q @ closed(Q, y, np.eye(50))[0])


def test_few_features_and_repeated_rows():
    X, y = data(60)
    X[30:] = X[:30]
    theta, lam = ko.Theta(ko.kernels.Linear()), cp.Parameter(nonneg=True)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta)))
    for value in (1e-8, 1.0, 1e8):
        lam.value = value
        problem.solve(tol=1e-10)
        check(problem, theta.value(GRID), GRID @ np.linalg.solve(X.T @ X + value * np.eye(2), X.T @ y))


def test_decomposition_serves_other_targets():
    X, y = data(60)
    theta, targets = ko.Theta(LAPLACIAN), cp.Parameter(60, value=y)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(targets - theta(X)) + 0.5 * ko.sum_squares(theta)))
    problem.solve(tol=1e-10)
    kept = problem._left_off.kept
    kept.decomposed()
    targets.value = np.cos(y)
    problem.solve(tol=1e-10)
    assert problem._left_off.kept is kept
    check(problem, theta.value(X), LAPLACIAN(X) @ closed(LAPLACIAN(X), np.cos(y), 0.5 * np.eye(60))[0])


def test_decomposition_serves_a_stronger_loss_but_no_other_weights():
    X, y = data(60)
    theta, weights = ko.Theta(LAPLACIAN), cp.Parameter(60, nonneg=True, value=np.ones(60))
    loss = cp.sum(cp.multiply(weights, cp.square(y - theta(X))))
    problem = ko.Problem(cp.Minimize(loss + 0.5 * ko.sum_squares(theta)))
    problem.solve(tol=1e-10)
    kept = problem._left_off.kept
    kept.decomposed()
    for w, same in ((np.full(60, 7.0), True), (np.linspace(0.1, 1, 60), False)):
        weights.value = w
        problem.solve(tol=1e-10)
        assert (problem._left_off.kept is kept) == same
        check(problem, theta.value(X), LAPLACIAN(X) @ closed(LAPLACIAN(X), y, 0.5 * np.diag(1 / w))[0])


def test_decomposition_and_factor_solve_the_same_system():
    X, y = data(50)
    theta, beta = ko.Theta(LAPLACIAN, outputs=2), cp.Variable(2)
    f = theta(X) + cp.reshape(X @ beta, (50, 1), order="F") @ np.ones((1, 2))
    loss = cp.sum_squares(np.column_stack([y, -y]) - f)
    problem = ko.Problem(cp.Minimize(loss + ko.sum_squares(theta) + 0.1 * cp.sum_squares(beta)))
    problem.solve()
    outer = outer_of(problem.canonical_form())
    structured = assemble.structured(reduction_of(problem), outer, {0: 0.7})
    weights = curvature(structured)
    fresh, decomposed = reusable(structured, weights, None), reusable(structured, weights, None)
    decomposed.decomposed()
    rhs = np.random.default_rng(0).normal(size=(structured.size, 3))
    expected = fresh.system(structured, weights)(rhs)
    found = np.column_stack([decomposed.system(structured, weights)(part) for part in rhs.T])
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9 * np.abs(expected).max())
    assert fresh.spectrum is None
    x = minimizer(structured, weights, decomposed)
    assert x == pytest.approx(minimizer(structured, weights, fresh), abs=1e-10 * np.abs(x).max())


def test_leverages_by_solves_and_from_the_decomposition():
    """cᵀH⁻¹c for rows c of (EB, F), with two blocks of v and a free variable."""
    X, y = data(40)
    theta, other, b = ko.Theta(LAPLACIAN, outputs=2), ko.Theta(ko.kernels.Linear()), cp.Variable()
    f = theta(X) @ np.array([1.0, 0.5]) + other(X[:40]) + b
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - f) + ko.sum_squares(theta) + ko.sum_squares(other)))
    problem.solve()
    split = outer_of(problem.canonical_form())
    structured = assemble.structured(reduction_of(problem), split, {0: 0.7, 1: 0.2})
    weights = curvature(structured)
    direct, decomposed = reusable(structured, weights, None), reusable(structured, weights, None)
    decomposed.decomposed()
    E, F = structured.E, sp.csr_array(structured.F)
    identity = np.eye(structured.size)
    rows = np.stack([structured.products(e) for e in identity], axis=1)
    C = np.diag(structured.penalty) + rows.T @ (weights[:, None] * rows)
    expected = np.sum(rows * np.linalg.solve(C, rows.T).T, axis=1)
    assert decomposed.leverages(structured, weights, E, F) == pytest.approx(expected, rel=1e-8)
    assert decomposed.leverages(structured, weights, E[5:12], F[5:12]) == pytest.approx(expected[5:12], rel=1e-8)
    assert direct.leverages(structured, weights, E, F) == pytest.approx(expected, rel=1e-8)
    assert direct.spectrum is None


@pytest.mark.parametrize(("N", "made"), [(12, False), (400, True)])
def test_leverages_of_many_rows_are_those_of_the_decomposition_at_once(N, made):
    """With 5 columns one solve for each of 400 rows takes more flops than the decomposition."""
    x = np.random.default_rng(0).normal(size=(N, 5))
    theta = ko.Theta(ko.kernels.Linear())
    problem = ko.Problem(cp.Minimize(cp.sum_squares(x[:, 0] - theta(x)) + ko.sum_squares(theta)))
    problem.solve()
    structured = assemble.structured(reduction_of(problem), outer_of(problem.canonical_form()), {0: 1.0})
    weights = curvature(structured)
    kept = reusable(structured, weights, None)
    kept.leverages(structured, weights, structured.E, sp.csr_array(structured.F))
    assert (kept.spectrum is not None) is made


def in_one_memory(ranks, wide):
    """A problem of two θ and one y, whose B are the first columns of wider arrays, and its weights."""
    X, y = data(60)
    theta, other, b = ko.Theta(LAPLACIAN), ko.Theta(ko.kernels.Polynomial(2)), cp.Variable()
    problem = ko.Problem(cp.Minimize(
        cp.sum_squares(y - theta(X) - 0.5 * other(X[::-1]) - b) + ko.sum_squares(theta) + ko.sum_squares(other)
    ))  # fmt: skip
    problem.solve()
    whole = assemble.structured(reduction_of(problem), outer_of(problem.canonical_form()), {0: 0.7, 1: 0.2})
    blocks = tuple(DenseMatrix(B[:, :r]) for B, r in zip(wide, ranks, strict=True))
    return replace(whole, blocks=blocks), curvature(whole)


@pytest.mark.later
def test_a_few_more_columns_widen_the_gram_matrix():
    """CᵀWC of two blocks, which get 1 and 2 columns, is that of all products, up to rounding."""
    wide = [np.random.default_rng(k).normal(size=(60, 12)) for k in range(2)]
    before, weights = in_one_memory((8, 5), wide)
    kept = reusable(before, weights, None)
    kept._gram()
    after, _ = in_one_memory((9, 7), wide)
    found = reusable(after, 3 * weights, kept)
    expected = after.gram(3 * weights)
    assert found.spectrum is None and found.problem is after
    assert found.gram == pytest.approx(expected, rel=1e-12, abs=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("ranks", "change"),
    [
        ((9, 10), None),
        ((8, 5), None),
        ((8, 4), None),
        ((9, 5), "elsewhere"),
        ((9, 5), "other weights"),
        ((9, 5), "not known"),
    ],
)
def test_other_gram_matrices_are_computed(ranks, change):
    """More columns than pay, none or fewer, other memory, weights in no proportion, and a matrix that was let go."""
    wide = [np.random.default_rng(k).normal(size=(60, 12)) for k in range(2)]
    before, weights = in_one_memory((8, 5), wide)
    kept = reusable(before, weights, None)
    if change != "not known":
        kept._gram()
    after, _ = in_one_memory(ranks, [B.copy() for B in wide] if change == "elsewhere" else wide)
    weights = weights * np.linspace(1, 2, 60) if change == "other weights" else weights
    assert reusable(after, weights, kept).gram is None


@pytest.mark.parametrize("kind", ["penalty", "bound"])
def test_norms_that_are_no_squares(kind):
    X, y = data(60)
    theta, b = ko.Theta(LAPLACIAN), cp.Variable()
    loss = cp.sum_squares(y - theta(X) - b)
    if kind == "penalty":
        problem = ko.Problem(cp.Minimize(loss + 3 * ko.norm(theta)))
    else:
        problem = ko.Problem(cp.Minimize(loss), [ko.norm(theta) <= 1])
    problem.solve(tol=1e-8)
    norm = theta.value.norm
    lam = 3 / (2 * norm) if kind == "penalty" else 0.0
    if kind == "bound":
        assert norm == pytest.approx(1.0, abs=1e-9)
        nu = theta(X).dual_value
        lam = np.sqrt(nu @ LAPLACIAN(X) @ nu) / 2
    alpha, intercept = closed(LAPLACIAN(X), y, lam * np.eye(60), np.ones((60, 1)))
    check(problem, theta.value(X) + b.value, LAPLACIAN(X) @ alpha + intercept, 1e-5)


@pytest.mark.slow
def test_what_it_does_not_take():
    X, y = data(20)
    theta = ko.Theta(LAPLACIAN)
    f = theta(X)
    penalty = ko.sum_squares(theta)
    problems = [
        ko.Problem(cp.Minimize(cp.sum(ko.losses.huber(y, f)) + penalty)),
        ko.Problem(cp.Minimize(cp.sum(ko.losses.squared_hinge(np.sign(y), f)) + penalty)),
        ko.Problem(cp.Minimize(cp.sum_squares(y - f) + penalty), [f <= 1]),
    ]
    for problem in problems:
        assert "squares alone" in problem.solvers()["LEAST_SQUARES"]
        with pytest.raises(SolverError, match=r"LEAST_SQUARES needs an objective of squares alone"):
            problem.solve("LEAST_SQUARES")


def test_proportions_are_relative():
    small = np.array([1e-3, 2e-3])
    assert _in_proportion(small, 1e5 * small)
    assert not _in_proportion(small, small[::-1])


def test_each_solve_is_counted():
    """½‖v‖² + ½‖v − 1‖²: one system, and its refinements."""
    empty, watch = np.zeros(0), Watch("", 1e-9, 0.0, 1.0)
    problem = Structured(
        (DenseMatrix(np.eye(3)),), sp.csr_array(np.eye(3)), np.zeros((3, 0)), np.ones(1), np.zeros(3), empty,
        np.zeros(3), np.arange(3), np.ones(3), np.full(3, -np.inf), np.full(3, np.inf), np.ones(3), (), 0.0,
    )  # fmt: skip
    assert LeastSquares().solve(problem, watch).x == pytest.approx(0.5)
    assert 1 <= watch.systems <= ROUNDS
