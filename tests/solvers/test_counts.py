"""Heuristics that make solvers fast, held by how many systems they solve: a heuristic that is gone takes more."""

from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
from inside import reduction_of

import kernelopt as ko
from kernelopt.factorization import tall
from kernelopt.solvers import assemble, augmented_lagrangian, engines, machines
from kernelopt.solvers.watch import Watch

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 2))
SCORE = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 - 1
LABELS, TARGETS = np.sign(SCORE + 0.3 * RNG.normal(size=300)), SCORE + 0.3 * RNG.standard_t(2, size=300)
LOSSES = {
    "hinge": lambda f: ko.losses.hinge(LABELS, f),
    "pinball": lambda f: ko.losses.pinball(TARGETS, f, 0.3),
    "epsilon insensitive": lambda f: ko.losses.epsilon_insensitive(TARGETS, f, 0.1),
    "logistic": lambda f: ko.losses.log_loss(LABELS, f),
}


def stated(loss, strength, constrained=False, points=X):
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    objective = cp.sum(LOSSES[loss](theta(points) + b)) + strength * ko.sum_squares(theta)
    return ko.Problem(cp.Minimize(objective), [theta(points[:20]) + b <= 1.0] if constrained else [])


def systems(problem, **options):
    problem.solve(**options)
    assert problem.status == "optimal"
    return problem.solver_stats.num_iters


@pytest.mark.slow
def test_steps_of_the_interior_point_method():
    """41 with Mehrotra's centring and two correctors; 52 without correctors, 160 with a centring of ½."""
    found = {loss: systems(stated(loss, 1e-2, True), solver="INTERIOR_POINT", tol=1e-8) for loss in LOSSES}
    assert sum(found.values()) <= 46, found


@pytest.mark.slow
def test_an_equation_of_many_rows_takes_no_more_systems():
    """11, where the regularization of its multiplier is in units of how far Σf moves; in those of one row it stalls."""
    rng = np.random.default_rng(0)
    points, labels = rng.normal(size=(1000, 3)), np.sign(rng.normal(size=1000))
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=2.0)), cp.Variable()
    f = theta(points) + b
    objective = cp.Minimize(cp.sum(ko.losses.hinge(labels, f)) + ko.sum_squares(theta))
    problem = ko.Problem(objective, [f[:50] >= -0.5, cp.sum(f) == 0])
    assert systems(problem, solver="INTERIOR_POINT", rank_tol=1e-8) <= 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("solver", "loss", "share"),
    [("INTERIOR_POINT", "hinge", 0.85), ("AUGMENTED_LAGRANGIAN", "hinge", 0.7), ("NEWTON", "logistic", 0.6)],
)
def test_a_warm_start_takes_fewer_systems(solver, loss, share, monkeypatch):
    """Along four values of λ, the first of which nobody has a start for, not even libsvm."""
    monkeypatch.setattr(machines, "is_installed", lambda: False)
    points, totals = np.random.default_rng(2).normal(size=(300, 8)), []
    for warm in (True, False):
        strength = cp.Parameter(nonneg=True)
        problem, found = stated(loss, strength, points=points), []
        for strength.value in (0.1, 0.11, 0.12, 0.13):
            found.append(systems(problem, solver=solver, warm_start=warm))
        totals.append(sum(found[1:]))
    assert totals[0] <= share * totals[1], totals


@pytest.mark.slow
def test_a_cold_start_goes_from_coarse_to_fine(monkeypatch):
    """Most multipliers are found with the first columns of B, in a share of the flops, if systems are formed from B."""
    monkeypatch.setattr(tall, "HELD", 0.0)
    rng, flops = np.random.default_rng(1), []
    points = rng.normal(size=(1200, 3))
    labels = np.sign(np.sin(2 * points[:, 0]) + points[:, 1] + 0.3 * rng.normal(size=1200))
    theta = ko.Theta(ko.kernels.Gaussian(sigma=0.7))
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(labels, theta(points))) + 0.05 * ko.sum_squares(theta)))
    problem.solve(solver="AUGMENTED_LAGRANGIAN", rank_tol=1e-12)
    structured = assemble.structured(reduction_of(problem), problem._outer(), {0: 0.1})
    for ranks in (augmented_lagrangian.RANKS, ()):
        monkeypatch.setattr(augmented_lagrangian, "RANKS", ranks)
        watch = Watch("", 1e-8, 1e-10, 1.0)
        augmented_lagrangian.AugmentedLagrangian().solve(structured, watch)
        flops.append(watch.flops)
    assert flops[0] < 0.95 * flops[1], flops


@pytest.mark.later
@pytest.mark.parametrize(("kind", "most"), [("penalty", 5), ("bound", 7), ("both", 6)])
def test_few_strengths_of_a_norm_that_is_no_square_are_solved(kind, most, monkeypatch):
    """Steps by secants to the strength at which R‖θ‖ = c, or ‖θ‖ = L; steps that double take 6 to 8."""
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    losses = cp.sum(LOSSES["logistic"](theta(X) + b))
    penalty = 0 if kind == "bound" else 0.5 * ko.norm(theta)
    problem = ko.Problem(cp.Minimize(losses + penalty), [] if kind == "penalty" else [ko.norm(theta) <= 4.0])
    tried, solve_at = [], engines._NormSearch.solve_at

    def noted(search, R, start):
        tried.append(R)
        return solve_at(search, R, start)

    monkeypatch.setattr(engines._NormSearch, "solve_at", noted)
    problem.solve(rank_tol=1e-12, tol=1e-8)
    assert problem.status == "optimal"
    apart = [R for k, R in enumerate(tried) if all(abs(R / other - 1) > 1e-4 for other in tried[:k])]
    assert len(apart) <= most, apart


class Search:
    """A search for a root of a given excess."""

    def __init__(self, excess):
        self.known, self.given = {}, excess

    def excess(self, at):
        self.known[at] = self.given(at)
        return self.known[at]

    def _least(self, _):
        return -np.inf


@pytest.mark.parametrize(
    "excess",
    [
        lambda r: r - 30.0,
        lambda r: 1e-3 * (r + 25.0),
        lambda r: np.tanh(r + 7.3),
        lambda r: np.inf if r > -1 else r + 3.0,
    ],
    ids=["slope 1, far away", "nearly flat", "flat on both sides", "infinite at first"],
)
def test_the_search_for_a_norm_ends_at_any_slope(excess):
    search = Search(excess)
    engines._NormSearch._bracketed(search, 0.0)
    assert abs(excess(list(search.known)[-1])) < 1e-9
    assert len(search.known) < 25


@pytest.mark.parametrize("left", [1e-2, 1e-6, 1e-9])
def test_a_search_without_a_root_takes_few_steps(left):
    """A bound that is not active: as R → 0 the excess falls to `left`, not to 0."""
    search = Search(lambda r: float(np.log1p(np.exp(r)) + left))
    engines._NormSearch._bracketed(search, np.log(1e-3))
    assert len(search.known) <= 9
    assert min(search.known) < np.log(1e-3) - engines.WIDEST


@pytest.mark.parametrize("root", [10.0, -10.0])
def test_the_second_step_along_a_line_ends_just_beyond_its_root(root):
    search = Search(lambda r: 0.5 * (r - root))
    engines._NormSearch._bracketed(search, 0.0)
    assert 10.0 < max(np.sign(root) * at for at in search.known) < 11.0


@pytest.mark.parametrize(("off", "ends"), [(5e-10, True), (5e-9, False)])
def test_a_search_ends_where_the_norm_no_longer_changes(off, ends):
    """An engine that takes no step from its start tells no finer R apart; a norm that is too far off is searched on."""
    search = SimpleNamespace(
        known={}, slope=0.0, curvature=0.0, limit=2.0, small=0.0, point=None, solve_at=lambda R, start: 2.0 * (1 + off),
        _is_infeasible=lambda: False,
    )  # fmt: skip
    assert engines._NormSearch.excess(search, 0.0) == pytest.approx(-off, rel=1e-5)
    if ends:
        with pytest.raises(engines._EndedError):
            engines._NormSearch.excess(search, 1e-9)
    else:
        assert engines._NormSearch.excess(search, 1e-9) == pytest.approx(-off, rel=1e-5)
    assert len(search.known) == 2
