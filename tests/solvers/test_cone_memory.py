"""Memory of cone programs is estimated before a solver takes it: without memory a solver ends the process."""

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.errors import MemoryLimitError
from kernelopt.solvers import cone_memory, on_rows


def nuclear(n, strength=0.01):
    rng = np.random.default_rng(3)
    X, Y = rng.normal(size=(n, 5)), rng.normal(size=(n, 3))
    theta = ko.Theta(ko.kernels.Gaussian(sigma=2.0), outputs=3)
    return ko.Problem(cp.Minimize(cp.normNuc(Y - theta(X)) + strength * ko.sum_squares(theta)))


def test_the_estimate_by_hand():
    """A semidefinite matrix of order 3 has 6 rows, and 21 pairs of them."""
    assert cone_memory.of_cones("CLARABEL", [3], 10) == 640 + 2100
    assert cone_memory.of_cones("CLARABEL", [3, 3], 0) == 4200
    assert cone_memory.of_cones("SCS", [3], 10) == 640 + 64 * 9
    assert cone_memory.of_cones("ECOS", [], 10) == 640


@pytest.mark.parametrize(("order", "megabytes"), [(33, 18), (48, 72), (63, 207)])
def test_the_estimate_is_near_what_was_measured(order, megabytes):
    """Clarabel on nuclear norms of 30, 45 and 60 rows with 3 columns, by the peak of a process."""
    assert cone_memory.of_cones("CLARABEL", [order], 6 * order**2) == pytest.approx(megabytes * 2**20, rel=0.25)


@pytest.mark.later
def test_residuals_are_refused_before_anything_is_taken():
    """303·304/2 = 46056 rows, of which every pair is an entry: 100·46056·46057/2 bytes. With 1000 rows it is 13 TB."""
    problem = nuclear(300)
    with pytest.raises(MemoryLimitError, match=r"CLARABEL's system .* order 303 needs about 106 GB.*SCS"):
        problem.solve(solver="CLARABEL", memory_limit=1e9)


@pytest.mark.slow
def test_a_small_limit_leaves_the_solver_that_fits(monkeypatch):
    """Clarabel would take 4 MB; SCS decomposes the matrix, and needs no pairs of rows."""
    monkeypatch.setattr(on_rows, "lacks", lambda *_: "is left out")
    problem, plain = nuclear(20, 10.0), nuclear(20, 10.0)
    problem.solve(memory_limit=2.5e6, certify=False)
    claimed = {attempt.solver: attempt.claimed for attempt in problem.solver_stats.attempts}
    assert claimed["CLARABEL"] == "memory_limit" and claimed["SCS"] == "optimal"
    assert problem.value == pytest.approx(plain.solve(solver="CLARABEL", certify=False), rel=1e-3)


def test_an_error_where_none_fits():
    with pytest.raises(MemoryLimitError, match=r"needs about .* and the limit is 1 kB"):
        nuclear(20).solve(memory_limit=1e3)


@pytest.mark.later
@pytest.mark.parametrize("loss", [ko.losses.hinge, ko.losses.log_loss, ko.losses.epsilon_insensitive])
def test_without_semidefinite_cones_a_small_limit_suffices(loss):
    """Of 200 rows, with Clarabel by name: nothing is refused that fits in 32 MB."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 2)), np.sign(rng.normal(size=200))
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    extra = (0.1,) if loss is ko.losses.epsilon_insensitive else ()
    problem = ko.Problem(cp.Minimize(cp.sum(loss(y, theta(X), *extra)) + ko.sum_squares(theta)))
    problem.solve(solver="CLARABEL", memory_limit=3.2e7)
    assert problem.value is not None
