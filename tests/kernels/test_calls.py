"""How often an expensive function of two points is called: once for each pair, and a few times more for symmetry."""

import pickle

import cvxpy as cp
import numpy as np
import pytest

import kernelopt as ko
from kernelopt.errors import KernelError

RNG = np.random.default_rng(0)
WORDS = sorted({"".join(RNG.choice(list("abcd"), RNG.integers(5, 12))) for _ in range(70)})
N = len(WORDS)
LABELS = np.array([1.0 if w.count("a") > w.count("b") else -1.0 for w in WORDS])
Y = np.array([w.count("a") - 0.3 * w.count("d") for w in WORDS])
PAIRS = N * (N + 1) // 2


def overlap(a, b):
    return float(sum(min(a.count(c), b.count(c)) for c in "abcd"))


class Counted:
    """A function that counts its calls, or the pairs that lists have."""

    def __init__(self, function=overlap, on_lists=False):
        self.function, self.on_lists, self.calls = function, on_lists, 0

    def __call__(self, a, b):
        if not self.on_lists:
            self.calls += 1
            return self.function(a, b)
        self.calls += len(a) * len(b)
        return np.array([[self.function(x, z) for z in b] for x in a])


def hinge(theta, b, X, lam):
    return cp.sum(ko.losses.hinge(LABELS, theta(X) + b)) + lam * ko.sum_squares(theta)


def squares(theta, b, X, lam):
    return cp.sum_squares(theta(X) + b - Y) + lam * ko.sum_squares(theta)


def absolute(theta, b, X, lam):
    return cp.norm1(theta(X) + b - Y) + lam * ko.sum_squares(theta)


def norm(theta, b, X, lam):
    return cp.norm(theta(X) + b - Y) + lam * ko.norm(theta)


LOSSES = {f.__name__: f for f in (hinge, squares, absolute, norm)}


def stated(kernel, loss=hinge, X=WORDS, lam=0.05, constrained=False):
    theta, b = ko.Theta(kernel), cp.Variable()
    constraints = [theta(WORDS[:5]) + b <= 1.5, theta(WORDS[7:9]) >= -3] if constrained else []
    return theta, ko.Problem(cp.Minimize(loss(theta, b, X, lam)), constraints)


@pytest.mark.slow
def test_the_answer_is_that_of_the_matrix():
    """An independent truth: the same problem with kernel values that were computed beforehand."""
    Q = np.array([[overlap(a, b) for b in WORDS] for a in WORDS])
    for loss in LOSSES.values():
        _, problem = stated(ko.kernels.FromFunction(overlap), loss)
        _, given = stated(ko.kernels.Precomputed(Q), loss, np.arange(N))
        assert problem.solve() == pytest.approx(given.solve(), rel=1e-6, abs=1e-9)
        low, high = given.certificate.lower, given.certificate.upper
        assert problem.certificate.lower <= high and problem.certificate.upper >= low


@pytest.mark.later
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_a_solve_calls_for_each_pair_once(name, constrained):
    k = Counted()
    _, problem = stated(ko.kernels.FromFunction(k), LOSSES[name], constrained=constrained)
    problem.solve()
    assert problem.certificate is not None
    assert PAIRS <= k.calls <= 1.1 * PAIRS


SHARED = ko.kernels.PositionMatch()
COMPOSED = {
    "a product": lambda f: f * SHARED,
    "a sum": lambda f: f + SHARED,
    "a multiple": lambda f: 2.0 * f,
    "normalized": lambda f: f.normalized(),
    "twice": lambda f: f * SHARED + f,
    "a square": lambda f: f * f,
    "a parameter": lambda f: f * cp.Parameter(nonneg=True, value=0.7) + SHARED,
}


@pytest.mark.parametrize("name", COMPOSED)
def test_compositions(name):
    k = Counted()
    _, problem = stated(COMPOSED[name](ko.kernels.FromFunction(k)), squares)
    problem.solve()
    assert PAIRS <= k.calls <= 1.1 * PAIRS


def test_vectors_with_another_kernel():
    X = RNG.normal(size=(N, 2))
    k = Counted(lambda a, b: float(np.minimum(abs(a), abs(b)).sum()))
    kernel = ko.kernels.FromFunction(k) * ko.kernels.Gaussian(sigma=1.0)
    _, problem = stated(kernel, hinge, X)
    problem.solve()
    assert PAIRS <= k.calls <= 1.1 * PAIRS


def test_repeated_rows_and_several_thetas():
    k = Counted()
    kernel = ko.kernels.FromFunction(k)
    theta, other, b = ko.Theta(kernel), ko.Theta(kernel), cp.Variable()
    twice, y = WORDS + WORDS, np.concatenate([Y, Y + 0.1])
    fit = cp.sum_squares(theta(twice) + other(twice) + b - y) + ko.sum_squares(theta) + ko.sum_squares(other)
    ko.Problem(cp.Minimize(fit)).solve()
    assert PAIRS <= k.calls <= 1.1 * PAIRS


def test_what_follows_a_solve():
    """Predictions on rows of the problem, a check of the answer, another solve, and a path call for nothing new."""
    k = Counted()
    lam = cp.Parameter(nonneg=True, value=0.05)
    theta, problem = stated(ko.kernels.FromFunction(k), squares, lam=lam)
    problem.solve()
    before = k.calls
    assert theta.value(WORDS) == pytest.approx(theta(WORDS).value, abs=1e-8)
    assert theta.value(WORDS[3:9]) == pytest.approx(theta(WORDS[3:9]).value, abs=1e-8)
    assert problem.verify().passed
    lam.value = 0.5
    problem.solve()
    ko.path(problem, lam, [0.1, 1.0])
    assert k.calls == before
    new = theta.value(["abcabc"])
    assert k.calls - before <= N  # once for each center
    assert new == pytest.approx([sum(c * overlap(z, "abcabc") for z, c in zip(
        theta.value.centers, theta.value.coefficients, strict=True))])  # fmt: skip


@pytest.mark.later
def test_folds():
    k = Counted()
    w, lam = cp.Parameter(N, nonneg=True, value=np.ones(N)), cp.Parameter(nonneg=True, value=0.1)
    theta = ko.Theta(ko.kernels.FromFunction(k))
    loss = cp.sum(cp.multiply(w, ko.losses.squared_error(Y, theta(WORDS))))
    ko.cross_validate(ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta))), w, lam, [0.1, 1.0], cv=3)
    assert PAIRS <= k.calls <= 1.1 * PAIRS


@pytest.mark.later
def test_other_values_of_parameters():
    k, mu = Counted(), cp.Parameter(nonneg=True, value=0.7)
    _, problem = stated(ko.kernels.FromFunction(k) * mu + SHARED, squares)
    problem.solve()
    before = k.calls
    mu.value = 2.0
    value = problem.solve()
    assert k.calls == before
    _, given = stated(2.0 * ko.kernels.FromFunction(overlap) + SHARED, squares)
    assert value == pytest.approx(given.solve(), rel=1e-6)


def test_functions_of_lists():
    k = Counted(on_lists=True)
    _, problem = stated(ko.kernels.FromFunction(k, on_lists=True), hinge)
    problem.solve()
    assert N**2 <= k.calls <= 1.1 * N**2


def test_the_streamed_factor_calls_for_its_columns_only():
    """Few distinct values of the function: its rank is 4, so that few columns suffice."""
    k = Counted(lambda a, b: float(sum(a.count(c) * b.count(c) for c in "abcd")))
    _, problem = stated(ko.kernels.FromFunction(k, psd=True), squares)
    problem.solve(factorization="streamed")
    assert problem.certificate.ranks[0][0] == 4
    assert k.calls <= 1.1 * PAIRS


def test_values_are_those_of_the_function_itself():
    """Nothing is remembered outside of a problem: a function that changes is called again."""
    scale = [1.0]
    kernel = ko.kernels.FromFunction(lambda a, b: scale[0] * overlap(a, b))
    first = kernel(WORDS[:4])
    _, problem = stated(kernel, squares)
    value = problem.solve()
    scale[0] = 3.0
    assert np.array_equal(kernel(WORDS[:4]), 3 * first)
    assert stated(kernel, squares)[1].solve() < value


def test_objects_that_cannot_be_hashed():
    k = Counted(lambda a, b: float(len(set(a) & set(b))))
    bags = [list(w) for w in WORDS]
    _, problem = stated(ko.kernels.FromFunction(k), squares, bags)
    problem.solve()
    assert PAIRS <= k.calls <= 1.1 * PAIRS


def test_one_row_and_two():
    for n in (1, 2):
        k = Counted()
        theta = ko.Theta(ko.kernels.FromFunction(k))
        problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(WORDS[:n]) - 1) + ko.sum_squares(theta)))
        Q = np.array([[overlap(a, b) for b in WORDS[:n]] for a in WORDS[:n]])
        assert problem.solve() == pytest.approx(np.ones(n) @ np.linalg.solve(Q + np.eye(n), np.ones(n)), rel=1e-6)
        assert k.calls <= n * (n + 1) // 2 + n - 1


@pytest.mark.parametrize("at", [(0, 1), (3, 6), (0, 60), (30, 60), (59, 60)])
def test_functions_that_are_not_symmetric(at):
    """One pair among those that are tested, anywhere in the rows."""
    i, j = at
    kernel = ko.kernels.FromFunction(lambda a, b: overlap(a, b) + 0.1 * ((a, b) == (WORDS[i], WORDS[j])))
    with pytest.raises(KernelError, match=f"symmetric; for points {i} and {j}"):
        stated(kernel, squares)[1].solve()


def test_answers_are_pickled_without_what_is_remembered():
    kernel = ko.kernels.FromFunction(overlap)
    theta, problem = stated(kernel, squares)
    problem.solve()
    copy = pickle.loads(pickle.dumps(problem))
    assert copy.thetas()[0].value(WORDS[:3]) == pytest.approx(theta.value(WORDS[:3]))
    assert len(pickle.dumps(theta.value)) < 30 * N + 4000
    assert theta.value.kernel == kernel and repr(theta.value.kernel) == repr(kernel)


def test_means_of_a_centered_kernel_are_formed_in_blocks():
    """Of rows of κ₀, and once for the same points: factors ask for a column at a time."""
    shapes = []

    class Recorded(ko.kernels.Gaussian):
        def _matrix(self, X, Z):
            shapes.append((len(X), len(X if Z is None else Z)))
            return super()._matrix(X, Z)

    X = np.random.default_rng(0).normal(size=(1700, 2))
    kernel, plain = Recorded(sigma=1.0).centered(X), ko.kernels.Gaussian(sigma=1.0)
    columns = kernel(X, X[:2])
    assert max(m * n for m, n in shapes) <= 2**21 < 1700**2
    means = plain(X).mean(axis=1)
    np.testing.assert_allclose(columns, plain(X, X[:2]) - means[:, None] - means[:2] + means.mean(), atol=1e-14)
    shapes.clear()
    kernel(X, X[:2])
    assert shapes == [(1700, 2)]
