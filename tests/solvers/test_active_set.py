"""Kernel space: K = EBR⁻¹BᵀEᵀ by look-ups, and active sets from the solution of a neighbouring problem."""

from dataclasses import replace
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from inside import reduction_of

import kernelopt as ko
from kernelopt.factorization.tall import DenseMatrix
from kernelopt.solvers import active_set, assemble, augmented_lagrangian, libsvm
from kernelopt.solvers.coupling import MEMORY_BOUND
from kernelopt.solvers.interior_point import InteriorPoint
from kernelopt.solvers.structured import LOOK_UP, Structured
from kernelopt.solvers.watch import Watch
from kernelopt.support.clock import OutOfTimeError

RNG = np.random.default_rng(0)
N = 120
X = RNG.normal(size=(N, 10))
SCORE = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 - 1
LABELS, TARGETS = np.sign(SCORE + 0.3 * RNG.normal(size=N)), SCORE + 0.3 * RNG.standard_t(2, size=N)
WEIGHTS = RNG.integers(0, 3, size=N).astype(float)  # some rows count for nothing, as those of a fold that is left out
LOSSES = {
    "hinge": lambda f: ko.losses.hinge(LABELS, f),
    "squared hinge": lambda f: ko.losses.squared_hinge(LABELS, f),
    "pinball": lambda f: ko.losses.pinball(TARGETS, f, 0.3),
    "epsilon insensitive": lambda f: ko.losses.epsilon_insensitive(TARGETS, f, 0.1),
    "hinge and a cost": lambda f: ko.losses.hinge(LABELS, f) + 0.05 * f,
    "huber": lambda f: ko.losses.huber(TARGETS, f, 0.5),
    "squared": lambda f: ko.losses.squared_error(TARGETS, f),
}


def structured(loss, strength, free=True, points=X, constrained=False):
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=3.0)), cp.Variable()
    f = theta(points) + b if free else theta(points)
    objective = WEIGHTS @ LOSSES[loss](f) + strength * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(objective), [f[:10] <= 0.2] if constrained else [])
    problem.solve(rank_tol=1e-12)
    return assemble.structured(reduction_of(problem), problem._outer(), {0: 2 * strength})


def optimum(problem):
    point = InteriorPoint().solve(problem, Watch("", 1e-9, 1e-11, 1.0))
    assert point.gap <= 1e-7 * point.unit
    return point


@pytest.mark.later
@pytest.mark.one_row
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("free", [True, False])
@pytest.mark.parametrize("constrained", [False, True])
def test_the_optimum_of_a_neighbour(loss, free, constrained):
    """From one λ to the next the sides of all kinks are found, and with them the optimum, to many digits."""
    problem = structured(loss, 0.1, free, constrained=constrained)
    start = optimum(replace(problem, R=1.3 * problem.R))
    watch = Watch("", 1e-9, 1e-11, 1.0)
    found, expected = active_set.solve(problem, watch, start), optimum(problem)
    assert found is not None
    assert watch.systems <= 12
    assert found.gap <= max(1e-9 * found.unit, 1e-11)
    assert found.primal == pytest.approx(expected.primal, rel=1e-7)
    np.testing.assert_allclose(problem.products(found.x), found.s, atol=1e-12)
    assert np.all((problem.low <= found.a) & (found.a <= problem.high))


@pytest.mark.later
@pytest.mark.parametrize("loss", ["hinge", "pinball", "epsilon insensitive"])
def test_fewer_systems_where_a_larger_gap_suffices(loss):
    """A point with some kinks on their wrong sides is taken where its gap, judged anew, is small enough."""
    problem = structured(loss, 0.1)
    start, best = optimum(replace(problem, R=3 * problem.R)), optimum(problem).primal
    exact, loose = Watch("", 1e-9, 1e-11, 1.0), Watch("", 1e-4, 1e-11, 1.0, enough=1e-2)
    assert active_set.solve(problem, exact, start) is not None
    found = active_set.solve(problem, loose, start)
    assert found is not None
    assert loose.systems < exact.systems
    assert 1e-9 * found.unit < found.gap <= 1e-2 * found.unit
    assert best - 1e-9 <= found.primal <= best + found.gap
    np.testing.assert_allclose(problem.products(found.x), found.s, atol=1e-12)
    assert np.all((problem.low <= found.a) & (found.a <= problem.high))


@pytest.mark.later
@pytest.mark.parametrize("loss", ["hinge", "hinge and a cost", "pinball", "epsilon insensitive"])
def test_the_estimate_of_the_gap(loss):
    """It is of the size of the gap once few kinks are on a wrong side."""
    problem = structured(loss, 0.1)
    run = active_set._Run(problem, problem.kernel_space, optimum(replace(problem, R=2 * problem.R)), False)
    ratios = []
    for _ in range(10):
        assert run.step()
        estimate, (improvement, _) = run.estimated_gap(), run.values()
        gap = run.point(apart=True)
        if run.turned() == 0:
            break
        ratios.append(estimate / gap.gap)
        assert improvement == pytest.approx(gap.unit, rel=0.5)
    assert run.estimated_gap() <= 1e-12
    assert run.values()[1] == pytest.approx(run.point().primal, rel=1e-9)
    assert ratios
    assert all(0.1 < ratio < 10 for ratio in ratios[1:])


def test_repeated_rows_with_opposite_labels():
    """K is singular on the free rows."""
    twice = X.copy()
    twice[60:] = twice[:60]
    problem = structured("hinge", 0.1, points=twice)
    found = active_set.solve(problem, Watch("", 1e-6, 1e-11, 1.0), optimum(replace(problem, R=1.2 * problem.R)))
    assert found is None or found.primal == pytest.approx(optimum(problem).primal, rel=1e-6)


def test_it_gives_up_where_it_gets_nowhere(monkeypatch):
    """Then the augmented Lagrangian goes on from the same start."""
    problem = structured("epsilon insensitive", 0.01)
    far = optimum(replace(problem, R=1e3 * problem.R))
    monkeypatch.setattr(active_set, "MOST", 1)
    watch = Watch("", 1e-8, 1e-11, 1.0)
    assert active_set.solve(problem, watch, far) is None
    found = augmented_lagrangian.solve(problem, watch, far)
    assert found.primal == pytest.approx(optimum(problem).primal, rel=1e-7)


def test_a_deadline_keeps_the_point_that_it_has():
    problem = structured("hinge", 0.1)
    start = optimum(replace(problem, R=1.3 * problem.R))
    found = active_set.solve(problem, Watch("", 1e-9, 1e-11, 1.0, deadline=0.0), start)
    assert isinstance(found.stopped, OutOfTimeError)
    assert np.isfinite(found.x).all() and found.gap < np.inf


@pytest.mark.later
def test_smooth_losses_and_low_rank_are_not_its_business():
    problem = structured("hinge", 0.1)
    start = optimum(problem)
    narrow = replace(problem, blocks=(DenseMatrix(problem.blocks[0].whole()[:, :20]),))
    assert active_set.solve(narrow, Watch("", 1e-6, 1e-11, 1.0), start) is None
    logistic = structured_log_loss()
    assert active_set.solve(logistic, Watch("", 1e-6, 1e-11, 1.0), start) is None


def structured_log_loss():
    theta = ko.Theta(ko.kernels.Gaussian(sigma=3.0))
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.log_loss(LABELS, theta(X))) + ko.sum_squares(theta)))
    problem.solve()
    return assemble.structured(reduction_of(problem), problem._outer(), {0: 2.0})


def of_blocks(E, blocks, R):
    m = E.shape[0]
    empty, rows = np.zeros(0), sum(len(B) for B in blocks)
    return Structured(
        tuple(map(DenseMatrix, blocks)), sp.csr_array(E), np.zeros((m, 0)), np.array(R), np.zeros(rows), empty,
        np.zeros(m), np.arange(0), empty, empty, empty, empty, (), 0.0,
    )  # fmt: skip


def test_look_ups_of_several_blocks():
    """Rows of E in any order, with factors, of two blocks with penalties of their own."""
    B = [RNG.normal(size=(8, 6)), RNG.normal(size=(5, 5))]
    E = np.zeros((9, 13))
    E[np.arange(9), RNG.permutation(13)[:9]] = RNG.normal(size=9)
    problem = of_blocks(E, B, [2.0, 0.5])
    inner = np.zeros((13, 13))
    inner[:8, :8], inner[8:, 8:] = B[0] @ B[0].T / 2.0, B[1] @ B[1].T / 0.5
    K, space = E @ inner @ E.T, problem.kernel_space
    for rows in (np.arange(9), np.array([7, 0, 3]), np.array([], dtype=int)):
        np.testing.assert_allclose(space.among(rows), K[np.ix_(rows, rows)], atol=1e-12)
    for g in (RNG.normal(size=13), np.eye(13)[4]):  # many entries, and one
        np.testing.assert_allclose(space.times(g), inner @ g, atol=1e-12)
    W = RNG.uniform(0.5, 2, size=9) * (np.arange(9) % 2)
    C = E @ np.block([[B[0], np.zeros((8, 5))], [np.zeros((5, 6)), B[1]]])
    R, rhs = np.repeat([2.0, 0.5], [6, 5]), RNG.normal(size=11)
    np.testing.assert_allclose(problem.system(W)(rhs), np.linalg.solve(np.diag(R) + C.T @ (W[:, None] * C), rhs))


def test_rows_that_combine_predictions_are_not_looked_up():
    B = [RNG.normal(size=(8, 8))]
    assert of_blocks(np.eye(8) - np.eye(8, k=1), B, [1.0]).kernel_space is None
    assert of_blocks(np.eye(8), B, [0.0]).kernel_space is None


@pytest.mark.slow
def test_a_path_takes_few_systems(monkeypatch):
    """Along 12 values of λ: 5 to 8 systems each, but for one that is too far from the one before."""
    rng = np.random.default_rng(1)
    points = rng.normal(size=(500, 10))
    labels = np.sign(points[:, 0] + points[:, 1] ** 2 - 1 + 0.3 * rng.normal(size=500))
    totals = []
    for solve in (active_set.solve, lambda *_, **__: None):
        monkeypatch.setattr(active_set, "solve", solve)
        theta, b, lam = ko.Theta(ko.kernels.Gaussian(sigma=3.0)), cp.Variable(), cp.Parameter(nonneg=True)
        loss = cp.sum(ko.losses.hinge(labels, theta(points) + b))
        problem, taken = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta))), []
        for lam.value in np.geomspace(10, 0.1, 12):
            problem.solve(solver="AUGMENTED_LAGRANGIAN")
            assert problem.certificate.closes(1e-6)
            taken.append(problem.solver_stats.num_iters)
        totals.append(sum(taken[1:]))
    assert totals[0] <= 0.6 * totals[1], totals


@pytest.mark.parametrize(
    ("wrong", "found", "steps"),
    [
        ([9, 8, 7, 6, 5, 4, 3, 2, 1, 0], True, 10),  # each step turns fewer kinks
        ([5, 6, 7, 6, 4, 5, 6, 5, 0], True, 9),  # it pauses for less than PATIENCE steps
        ([5, 5, 5, 5, 5, 0], False, 5),
        ([5, 4, 9, 9, 4, 4, 0], False, 6),
    ],
)
def test_steps_end_where_no_fewer_kinks_are_turned(wrong, found, steps):
    class Run:
        taken = 0

        def step(self):
            self.taken += 1
            return True

        def overshoot(self):
            return 0.0

        def estimated_gap(self):
            return np.inf

        def values(self):
            return 1.0, 0.0

        def turned(self):
            return wrong[self.taken - 1]

        def point(self):
            return "the point"

        p = SimpleNamespace(size=0)

    class Watch:
        systems, enough = 0, 1e-3

        def check_time(self):
            pass

        def size(self, unit, primal):
            return unit

        def __call__(self, point, rank):
            return point == "the point"

    run, watch = Run(), Watch()
    assert active_set._found(run, watch) == ("the point" if found else None)
    assert run.taken == watch.systems == steps


def test_slopes_pull_back_with_linear_costs_of_predictions():
    """Cᵀ(slopes) + g, where d has linear costs of its own."""
    run = object.__new__(active_set._Run)
    run.p = replace(of_blocks(np.eye(6), [RNG.normal(size=(6, 4))], [1.0]), linear_d=RNG.normal(size=6))
    np.testing.assert_allclose(run._back(np.zeros(0)), run.p.linear)


def test_rows_without_weight_are_left_out_of_systems():
    """A system in the rows has one for each positive weight, and lets values that are not finite through."""
    problem = of_blocks(RNG.normal(size=(4, 8)), [RNG.normal(size=(8, 10))], [2.0])
    C, W, rhs = problem.E @ problem.blocks[0].whole(), np.array([1.0, 0.0, 2.0, 0.0]), RNG.normal(size=10)
    solve = problem.system(W)
    np.testing.assert_allclose(solve(rhs), np.linalg.solve(2 * np.eye(10) + C.T @ (W[:, None] * C), rhs))
    assert np.isnan(solve(np.full(10, np.nan))).all()


def test_the_cost_of_systems():
    """Few active rows by look-ups, many in all unknowns, and with a sparse F in those of θ alone."""
    blocks = [RNG.normal(size=(8, 6)), RNG.normal(size=(5, 5))]
    dense = replace(of_blocks(np.eye(13), blocks, [1.0, 1.0]), F=np.ones((13, 2)), linear_y=np.zeros(2))
    sparse = replace(dense, F=sp.csr_array(dense.F))
    products = 2.0 * MEMORY_BOUND * (8 * 6 + 5 * 5) + sum(B.latency for B in dense.blocks)
    assert dense.product_cost == products
    assert dense.cost(3) == pytest.approx(3**2 * LOOK_UP + 3**3 / 3 + 4 * products, rel=1e-14)
    assert dense.cost(10) == pytest.approx(10 * 13**2 + 13**3 / 3 + 4 * products, rel=1e-14)
    assert sparse.cost(3) == pytest.approx((3 + 2) * 11**2 + 11**3 / 3 + 4 * products, rel=1e-14)


def test_a_typical_step_of_multipliers():
    """Half the width of a box, over a typical argument."""
    kinks = {"of": np.arange(2), "anchor": np.array([2.0, -2.0]), "low": np.zeros(2), "rho": np.zeros(2)}
    assert replace(of_blocks(np.eye(2), [np.eye(2)], [1.0]), **kinks, high=np.full(2, 4.0)).sigma == 1.0


def test_the_matrix_of_several_blocks_for_libsvm():
    """Rows of two blocks meet nowhere, and each has the penalty of its own."""
    B = [RNG.normal(size=(3, 2)), RNG.normal(size=(2, 2))]
    problem = of_blocks(np.eye(5), B, [2.0, 0.5])
    K, scale = libsvm._kernel(problem, problem.kernel_space, np.array([4, 0, 2]), np.ones(5))
    inner = np.zeros((5, 5))
    inner[:3, :3], inner[3:, 3:] = B[0] @ B[0].T / 2.0, B[1] @ B[1].T / 0.5
    np.testing.assert_allclose(scale * K, inner[np.ix_([4, 0, 2], [4, 0, 2])], atol=1e-14)


def test_the_price_of_a_kink_on_its_wrong_side():
    """On a curved stretch k = s − anchor − ρa: at a = 1, s = 0.5 the multiplier would rather be at the lower end."""
    run = object.__new__(active_set._Run)
    run.p = SimpleNamespace(
        of=np.arange(1), anchor=np.zeros(1), rho=np.ones(1), low=np.array([-1.0]), high=np.array([1.0])
    )
    run.a, run.s, run.side, run.space = np.ones(1), np.array([0.5]), np.ones(1), SimpleNamespace(typical=1.0)
    assert run.estimated_gap() == pytest.approx(2 * 0.5)
