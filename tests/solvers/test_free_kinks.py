"""Systems of free kinks from one factor: borders for kinks that joined, projections for those that left."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from kernelopt.factorization.whole import WholeMatrix
from kernelopt.solvers import free_kinks
from kernelopt.solvers.free_kinks import continued, forget, keep, kept, system
from kernelopt.solvers.kernel_space import KernelSpace
from kernelopt.support.submatrix import submatrix

N = 260


def spaces(R=1.0, signs=True, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 6))
    Q = np.exp(-((X[:, None] - X) ** 2).sum(axis=2) / 8)
    e = rng.choice([-1.0, 1.0], N) if signs else np.ones(N)
    E = sp.csr_array((e, (np.arange(N), np.arange(N))), shape=(N, N))
    return KernelSpace((WholeMatrix(Q),), np.array([R]), E, np.array([0, N]))


def sets(rng, steps=12, moved=14):
    """Sets of kinks, each with a few that joined and left."""
    inside = rng.random(N) < 0.6
    for _ in range(steps):
        yield np.flatnonzero(inside)
        inside = inside ^ (np.arange(N) == rng.integers(N)) ^ np.isin(np.arange(N), rng.integers(0, N, moved))


@pytest.mark.parametrize("signs", [False, True])
@pytest.mark.parametrize("curved", [False, True])
def test_solutions_are_those_of_new_factors(signs, curved):
    rng, space = np.random.default_rng(1), spaces(signs=signs)
    rho = rng.uniform(0.1, 1.0, N) if curved else np.zeros(N)
    K, known, again = space.among(np.arange(N)), None, 0
    for free in sets(rng):
        before, known = known, continued(known, space, np.arange(N), rho, free)
        known = known or system(space, np.arange(N), rho, free)
        again += before is not None and known.L is before.L
        rhs = rng.normal(size=(len(free), 3))
        expected = np.linalg.solve(K[np.ix_(free, free)] + np.diag(rho[free]), rhs)
        np.testing.assert_allclose(known.solve(free, rhs), expected, rtol=1e-6, atol=1e-7 * np.abs(expected).max())
    assert again >= 5


def test_the_next_strength_of_a_penalty():
    rng, space, rho = np.random.default_rng(2), spaces(), np.zeros(N)
    free = np.sort(rng.permutation(N)[:200])
    keep(system(space, np.arange(N), rho, free))
    weaker = replace(space, R=space.R / 1.7)
    found = kept(weaker, rho)
    assert found is not None
    more = np.union1d(free, np.arange(20))
    found = continued(found, weaker, np.arange(N), rho, more)
    assert found.X.shape[1] > 0
    rhs = rng.normal(size=(len(more), 1))
    expected = np.linalg.solve(weaker.among(more), rhs)
    np.testing.assert_allclose(found.solve(more, rhs), expected, rtol=1e-6, atol=1e-7 * np.abs(expected).max())


def test_what_is_not_kept():
    """Another matrix, other entries of E, or a ρ that does not scale with the penalty need a new factor."""
    space, rho, free = spaces(), np.zeros(N), np.arange(200)
    known = system(space, np.arange(N), rho, free)
    keep(known)
    assert kept(spaces(), rho) is None
    assert kept(replace(space, E=-2 * space.E), rho) is None
    assert kept(replace(space, R=2 * space.R), rho + 1) is None
    assert known.of_next(space, rho) is not None
    curved = spaces()
    keep(system(curved, np.arange(N), rho + 1, free))
    assert kept(curved, rho + 1) is None
    few = spaces()
    keep(system(few, np.arange(N), rho, np.arange(free_kinks.FEW - 1)))
    assert kept(few, rho) is None
    keep(known)
    forget(space)
    assert kept(space, rho) is None


def test_large_factors_are_not_kept(monkeypatch):
    monkeypatch.setattr(free_kinks.memory, "available_bytes", lambda: 1000.0)
    space = spaces()
    keep(system(space, np.arange(N), np.zeros(N), np.arange(200)))
    assert kept(space, np.zeros(N)) is None


def test_repeated_rows_that_join():
    """Where the border is singular up to the ridge, the solution still meets the equations."""
    space = spaces(signs=False)
    Q = space.blocks[0].array.copy()
    Q[200:] = Q[:60]
    Q[:, 200:] = Q[:, :60]
    space, rho = replace(space, blocks=(WholeMatrix(Q),)), np.zeros(N)
    known = system(space, np.arange(N), rho, np.arange(200))
    everything = np.arange(N)
    found = continued(known, space, everything, rho, everything)
    rhs = (Q @ np.ones(N))[:, None]
    np.testing.assert_allclose(Q @ found.solve(everything, rhs), rhs, rtol=1e-6)


@pytest.mark.parametrize("order", ["C", "F"])
def test_submatrix(order):
    rng = np.random.default_rng(0)
    Q = np.asarray(rng.normal(size=(150, 170)), order=order)
    for rows, columns in [(rng.permutation(150)[:99], rng.permutation(170)[:70]), (np.arange(0), np.arange(3))]:
        found = submatrix(Q, rows, columns)
        assert np.array_equal(found, Q[np.ix_(rows, columns)]) and not np.shares_memory(found, Q)
    assert np.array_equal(submatrix(Q[::2, ::3], np.arange(5), np.arange(4)), Q[:10:2, :12:3])
