"""The structured problem with other penalties: it keeps what does not depend on them, and nothing else."""

from dataclasses import replace
from functools import cached_property
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from inside import reduction_of

import kernelopt as ko
from kernelopt.factorization.tall import DenseMatrix
from kernelopt.solvers import assemble, coupling, local_columns, structured
from kernelopt.solvers.dual_point import judged
from kernelopt.solvers.structured import WITHOUT_R, Structured

RNG = np.random.default_rng(0)
OBJECTS = ("_pairs", "dual_space", "kernel_space")  # their products are compared
X, Y = RNG.normal(size=(40, 2)), RNG.normal(size=40)


@pytest.fixture
def problem():
    """Two θ with penalties of their own, differences of predictions, an intercept, and kinks."""
    first, second = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), ko.Theta(ko.kernels.Laplacian(sigma=2.0))
    b = cp.Variable()
    u = first(X) + second(X) + b
    loss = cp.sum(cp.abs(Y - u)) + cp.sum_squares(cp.diff(first(X)))
    stated = ko.Problem(cp.Minimize(loss + 0.1 * ko.sum_squares(first) + 0.2 * ko.sum_squares(second)))
    stated.solve(certify=False)
    return assemble.structured(reduction_of(stated), stated._outer(), {0: 0.2, 1: 0.4})


def cached():
    """The names of all cached properties."""
    made = {**vars(coupling.Coupling), **vars(Structured)}
    return [name for name, one in made.items() if isinstance(one, cached_property)]


def filled(problem):
    """The problem with all cached properties in place."""
    for name in cached():
        getattr(problem, name)
    return problem


def same(one, other):
    dense = [part.toarray() if hasattr(part, "toarray") else part for part in (one, other)]
    return np.array_equal(*dense)


def test_what_is_kept(problem):
    """What is kept is the same object, and equal to what a new problem finds; all else is found again."""
    R = np.array([3.0, 0.05])
    before = filled(replace(problem))
    found, new = before.with_penalties(R), replace(problem, R=R)
    kept = {name for name in cached() if name in vars(found)}
    assert kept == set(WITHOUT_R)
    for name in kept:
        assert vars(found)[name] is vars(before)[name]
    for name in cached():
        if name not in OBJECTS:
            assert same(getattr(found, name), getattr(new, name)), name
    assert before.R.tolist() == [0.2, 0.4] and found.R is R


def test_the_objective_and_systems_are_those_of_the_new_penalties(problem):
    R, x = np.array([3.0, 0.05]), RNG.normal(size=problem.size)
    weights, rhs = RNG.uniform(0.5, 2, size=problem.m), RNG.normal(size=problem.size)
    found, new = filled(replace(problem)).with_penalties(R), replace(problem, R=R)
    s = new.products(x)
    assert found.value(x, s) == pytest.approx(new.value(x, s), rel=1e-14)
    assert found.value(x, s) != pytest.approx(problem.value(x, s), rel=1e-3)
    assert np.allclose(found.system(weights)(rhs), new.system(weights)(rhs), rtol=1e-9, atol=1e-12)
    assert np.allclose(found.row_squares, new.row_squares, rtol=1e-12)
    ones = np.ones(problem.m)
    assert np.allclose(found.dual_space.times(found._gathered(ones)), new.dual_space.times(new._gathered(ones)))


def test_the_second_of_two_follows_the_first_alone(problem):
    """Penalties of one θ do not move those of another: R is in the order of the blocks."""
    found = problem.with_penalties(np.array([1.0, 7.0]))
    ends = found.ends
    assert np.all(found.penalty[: ends[1]] == 1) and np.all(found.penalty[ends[1] : ends[2]] == 7)
    assert not found.penalty[ends[2] :].any()
    again = found.with_penalties(problem.R)
    assert np.array_equal(again.penalty, problem.penalty)


@pytest.mark.parametrize(
    ("F", "expected"),
    [(np.eye(60), True), (np.ones((60, 60)), False), (np.eye(60)[:, :2], False)],
    ids=["many columns with few entries", "full columns", "few columns"],
)
def test_f_is_sparse_where_many_columns_share_few_rows(monkeypatch, F, expected):
    asked, whole = [], SimpleNamespace(with_penalties=lambda R: R)
    monkeypatch.setattr(assemble, "_without_penalties", lambda *given: asked.append(given[-1]) or whole)
    reduction = SimpleNamespace(kept={}, form=SimpleNamespace(predictions=[]))
    assemble.structured(reduction, SimpleNamespace(split=SimpleNamespace(F=sp.csr_array(F)), common=0), {}, True)
    assert asked == [expected]


def test_constraints_are_told_from_kinks():
    """An inequality is a half-line of multipliers; a hinge has none."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    f = theta(X[:5])
    for constraints, hard in ([], False), ([f <= 1], True), ([f == 1], True):
        stated = ko.Problem(cp.Minimize(cp.sum(cp.pos(1 - f)) + ko.sum_squares(theta)), constraints)
        assert assemble.shape_of(stated.canonical_form(), stated._outer()).hard == hard


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_matrix_that_is_overwritten_gets_a_larger_diagonal_where_it_is_not_positive(order):
    """The triangle that LAPACK wrote to is as before when the next diagonal is tried."""
    G = np.random.default_rng(0).normal(size=(6, 4))
    H = np.array(G @ G.T - 1e-11 * np.eye(6), order=order)
    kept, largest = H.copy(), H.diagonal().max()
    L = np.tril(structured.factored(H)[0])
    added = (L @ L.T - kept).diagonal()
    np.testing.assert_allclose(L @ L.T - np.diag(added), kept, atol=1e-14 * largest)
    np.testing.assert_allclose(added, added[0], rtol=1e-2)
    exponents = np.log10(added.mean() / largest)
    assert abs(exponents - np.round(exponents)) < 0.01 and np.round(exponents) % 2 == 0  # one of 10^(2k − 14)
    assert -12 < exponents < -8


@pytest.mark.parametrize("odd", [False, True])
def test_multipliers_that_break_the_equation_of_the_intercept_prove_nothing(odd):
    """All at their upper ends, with one label more of one class: no entry can move, and the gap would be negative."""
    labels = np.where(np.arange(40 + odd) % 2, -1.0, 1.0)
    points = np.random.default_rng(0).normal(size=(len(labels), 3))
    theta, b, lam = ko.Theta(ko.kernels.Gaussian(sigma=2.0)), cp.Variable(), 1e3
    loss = cp.sum(ko.losses.hinge(labels, theta(points) + b))
    stated = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)))
    stated.solve()
    assert stated.status == "optimal"
    p = assemble.structured(reduction_of(stated), stated._outer(), {0: 2 * lam})
    x, a = np.append(np.zeros(p.ends[-1]), 0.5), np.where(labels > 0, p.low, p.high)  # slopes −1 and 1
    there = judged(p, x, p.products(x), a, np.zeros(p.m))
    assert np.array_equal(there.a, a)
    assert there.gap == np.inf if odd else 0 <= there.gap < 1
    a[0] = 0.5
    assert 0 <= judged(p, x, p.products(x), a, np.zeros(p.m)).gap < 1.5


@pytest.fixture
def alone(monkeypatch):
    """Two θ with losses of their own: each argument of a loss is one prediction."""
    monkeypatch.setattr(coupling, "LARGE", 0)
    first, second = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), ko.Theta(ko.kernels.Laplacian(sigma=2.0))
    losses = cp.sum(cp.abs(Y - first(X) - cp.Variable())) + 3 * cp.sum(cp.abs(Y[:30] + second(X[:30])))
    stated = ko.Problem(cp.Minimize(losses + 0.1 * ko.sum_squares(first) + 0.2 * ko.sum_squares(second)))
    stated.solve(certify=False)
    made = assemble.structured(reduction_of(stated), stated._outer(), {0: 0.2, 1: 0.4})
    assert made._one_each and made._few == 0.2 and made.m == 70
    return made


def by_products(monkeypatch):
    """The sizes of products with all rows of B."""
    made, back = [], Structured._back
    monkeypatch.setattr(Structured, "_back", lambda self, d, y: made.append(len(d)) or back(self, d, y))
    return made


def adjoint(problem, g):
    return problem._back(problem._gathered(g), problem.F.T @ g)


@pytest.mark.later
def test_adjoints_are_made_from_known_ones(alone, monkeypatch):
    """From the rows that differ, a limited number of times in turn; a g of few entries is made from its rows."""
    rng, g = np.random.default_rng(1), np.where(np.arange(70) % 2, 1.0, 0.0)
    made = by_products(monkeypatch)
    for _ in range(coupling.CHAIN + 2):
        np.testing.assert_allclose(alone.adjoint(g), adjoint(alone, g), atol=1e-12)
        made.pop()  # of the expected value
        g = g.copy()
        g[rng.permutation(70)[:10]] += rng.normal(size=10)
    assert len(made) == 2  # the first, and the one after CHAIN others
    known = [one.g for one in alone._adjoints]
    few = np.where(np.arange(70) % 10 == 3, 2.0, 0.0)
    np.testing.assert_allclose(alone.adjoint(few), adjoint(alone, few), atol=1e-12)
    assert all(one.g is g for one, g in zip(alone._adjoints, known, strict=True)) and len(made) == 3
    many = rng.normal(size=70)
    np.testing.assert_allclose(alone.adjoint(many), adjoint(alone, many), atol=1e-12)
    assert len(made) == 5 and alone._adjoints[0].after == 0


def test_no_adjoint_is_made_from_a_far_larger_one(alone):
    g = np.full(70, 1e-9)
    g[:8] = 1.0
    alone.adjoint(g)
    g = g.copy()
    g[:8] = 2e-9
    np.testing.assert_allclose(alone.adjoint(g), adjoint(alone, g), rtol=1e-12, atol=1e-20)
    assert alone._adjoints[0].after == 0


@pytest.mark.parametrize("share", [0.1, 0.4, 0.9])
def test_products_with_the_curvature(alone, share, monkeypatch):
    """By rows with a weight where these are at most half of all."""
    made = by_products(monkeypatch)
    rng = np.random.default_rng(2)
    w = rng.uniform(1, 2, size=70) * (rng.uniform(size=70) < share)
    product = alone.curved(w)
    for x in rng.normal(size=(3, alone.size)):
        np.testing.assert_allclose(product(x), alone.gram(w) @ x, atol=1e-11)
    assert bool(made) is (share > coupling.HALF)


def test_where_products_are_made_as_before(problem):
    """Where B is small, and where arguments are differences of predictions."""
    assert not problem._few
    w = np.zeros(problem.m)
    w[:3] = 1.0
    x = RNG.normal(size=problem.size)
    np.testing.assert_allclose(problem.curved(w)(x), problem.gram(w) @ x, atol=1e-11)
    assert not problem._adjoints


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("least", [0, 1e9])  # local columns, and a sparse factor
@pytest.mark.parametrize("kind", ["a variable each", "two that meet", "a chain", "none but an intercept"])
def test_systems_with_a_variable_for_each_row(monkeypatch, outputs, least, kind):
    """Beside the dense system: rows of predictions and own variables, sums of many variables, and a few others."""
    monkeypatch.setattr(local_columns, "LEAST", least)
    n, r = 60, 4
    rng = np.random.default_rng(outputs)
    B = DenseMatrix(rng.normal(size=(n, r)))
    eye, none = np.eye(n), np.zeros((n, n))
    E = np.vstack([np.hstack([eye * (k + 1) for k in range(outputs)]), np.zeros((n + 4, outputs * n))])
    E[-1] = 1.0  # a sum of all predictions
    own = np.vstack([-eye, eye, np.repeat(np.eye(2), n // 2, axis=1), np.zeros((2, n))])
    second = np.vstack([none, eye, np.zeros((4, n))])
    few = np.vstack([np.ones((n, 1)), np.zeros((n + 4, 1))]), np.vstack([np.zeros((2 * n, 1)), -np.ones((4, 1))])
    chained = np.vstack([none, eye + np.eye(n, k=1), np.zeros((4, n))])
    more = {"a variable each": [own], "two that meet": [own, second], "a chain": [own, chained]}
    F = np.hstack([*more.get(kind, []), *few])
    problem = Structured(
        (B,) * outputs, sp.csr_array(E), sp.csr_array(F), np.arange(1.0, outputs + 1), np.zeros(n * outputs),
        np.zeros(F.shape[1]), np.zeros(len(E)), np.arange(0), *np.zeros((4, 0)), (), 0.0,
    )  # fmt: skip
    weights, ridge = rng.uniform(0.5, 2.0, size=len(E)), np.full(F.shape[1], 0.1)
    weights[3] = 0.0
    C = np.hstack([E @ np.kron(np.eye(outputs), B.whole()), F])
    M = C.T @ (weights[:, None] * C) + np.diag(np.append(problem.penalty[: r * outputs], ridge))
    local = local_columns.system(problem.blocks, problem.E, problem.F, weights, ridge, problem._factored_v)
    assert (local is None) == (least > 0)
    for right in (rng.normal(size=len(M)), rng.normal(size=(len(M), 3))):
        assert problem.system(weights, ridge)(right) == pytest.approx(np.linalg.solve(M, right), rel=1e-7, abs=1e-9)
