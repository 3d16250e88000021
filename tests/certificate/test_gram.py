"""‖Aᵀν‖² for rows that combine points, where it nearly cancels: against exact rationals."""

from fractions import Fraction
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
from inside import reduction_of
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

import kernelopt as ko
from kernelopt.certificate.gram import CHEAP, FEATURE, FROM_FACTOR, STREAMED, Gram, _from_features, as_computed, gram_of
from kernelopt.support.arithmetic import gamma

RNG = np.random.default_rng(3)
X = RNG.normal(size=(300, 4)) * [1.0, 30.0, 2.0, 1.0]
TARGET = X[:40] + 0.2


def statement(penalty):
    """Entropy balancing of means; its dual has a row that averages points."""
    theta = ko.Theta(ko.kernels.Linear())
    mean = cp.sum(ko.average(TARGET, theta.kernel) @ theta)
    return theta, ko.Problem(cp.Minimize(cp.log_sum_exp(theta(X)) - mean + penalty(theta)))


def test_nearly_no_penalty():
    """Kernel values of rows would round to 1e-13 of their size, and their sum is far below that."""
    theta, problem = statement(lambda t: 1e-8 * ko.sum_squares(t))
    problem.solve()
    assert problem.status == "optimal" and problem.certificate.relative_gap <= 1e-7
    centred = X - TARGET.mean(axis=0)
    scale = centred.std(axis=0)
    dual = minimize(
        lambda v: logsumexp(centred @ (v / scale)),
        np.zeros(4),
        jac=lambda v: softmax(centred @ (v / scale)) @ centred / scale,
        method="BFGS",
        options={"gtol": 1e-10},
    )
    np.testing.assert_allclose(softmax(theta(X).value), softmax(centred @ (dual.x / scale)), rtol=1e-4, atol=1e-9)


def test_lower_bound_in_rationals():
    """The certified lower bound is below the dual value at the weights that the answer gives, computed exactly."""
    theta, problem = statement(lambda t: 1e-6 * ko.norm(t))
    problem.solve()
    assert problem.certificate.relative_gap <= 1e-6
    w = softmax(theta(X).value)
    columns = [[Fraction(x) for x in column] for column in X.T]
    means = [sum(Fraction(x) for x in column) / len(TARGET) for column in TARGET.T]
    total = sum(Fraction(v) for v in w)
    residual = [
        sum(Fraction(v) / total * x for v, x in zip(w, c, strict=True)) - m for c, m in zip(columns, means, strict=True)
    ]
    assert float(sum(r * r for r in residual)) ** 0.5 == pytest.approx(1e-6, rel=1e-3)
    entropy = -np.sum(w * np.log(w))
    assert problem.certificate.lower <= entropy * (1 + 1e-9)
    assert entropy <= problem.certificate.upper * (1 + 1e-9)


@pytest.mark.parametrize("mode", ["clip", "shift"])
def test_lengths_of_rows_of_a_projected_matrix(mode):
    """Errors are allowed for in units of ‖θ‖√Qᵢᵢ, with the projected Q and its rows of any size."""
    D = np.diag(10.0 ** np.linspace(-2, 2, 30))
    V = np.linalg.qr(RNG.normal(size=(30, 30)))[0]
    K = D @ (V * np.linspace(-0.2, 1, 30)) @ V.T @ D
    theta, rows = ko.Theta(ko.kernels.Precomputed((K + K.T) / 2)), np.arange(30)
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.hinge(np.sign(V[0]), theta(rows))) + ko.sum_squares(theta)))
    problem.solve(indefinite=mode)
    reduction = reduction_of(problem)
    (link,), (factor,) = reduction.form.predictions, reduction.factors.values()
    lengths = np.sqrt(factor.scale * np.sum(factor.B**2, axis=1))
    for way in (CHEAP, FROM_FACTOR):
        sizes = gram_of(link, factor, np.ones((30, 1)), way).sizes
        assert np.all(sizes >= lengths)
        assert np.all(sizes <= (1 + 1e-12) * lengths)


def test_lengths_of_rows_count_what_a_factor_leaves():
    """Of a factor of low rank, too: errors of predictions are relative to ‖row i‖, not to its part in the factor."""
    theta, rows = ko.Theta(ko.kernels.Gaussian(sigma=0.2)), np.linspace(0, 5, 30)[:, None]
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(rows) - np.sin(rows[:, 0])) + ko.sum_squares(theta)))
    problem.solve(max_rank=5)
    reduction = reduction_of(problem)
    (link,), (factor,) = reduction.form.predictions, reduction.factors.values()
    assert factor.rank <= 6 and np.sqrt(factor.scale * np.sum(factor.B**2, axis=1)).min() < 0.9
    for way in (FROM_FACTOR, STREAMED):
        assert np.all(gram_of(link, factor, np.ones((30, 1)), way).sizes >= 1)


class Exact(list):
    """Rows of B with Q = BBᵀ, whose kernel values have no errors."""

    def lengths(self):
        return np.hypot.reduce(self, axis=1)

    def gram(self):
        return np.array(self) @ np.transpose(self)


def whole(B):
    """A link and a factor with Q = BBᵀ."""
    matrix = SimpleNamespace(inner=lambda W: W.T @ W)
    factor = SimpleNamespace(
        B=B, matrix=matrix, rank=B.shape[1], scale=1.0, is_projected=False, is_whole=True, is_exact=True
    )
    return SimpleNamespace(rows=Exact(B)), factor


def test_what_a_factor_rounds():
    """γ of two products over the rows and two over the rank, relative to SₐS_b."""
    B, V = np.array([[3.0, 0.0], [0.0, 1.0], [0.0, 4.0]]), np.array([[1.0, 0.0], [0.5, 0.25], [0.0, 1.0]])
    found = gram_of(*whole(B), V, FROM_FACTOR)
    S = np.linalg.norm(B, axis=1) @ V
    assert found.error == pytest.approx(gamma(2 * 3 + 2 * 2 + 16) * np.outer(S, S), rel=1e-9, abs=0)


def test_what_a_tiny_factor_loses_by_underflow():
    """Squares of 1e-160 keep few digits or none: an absolute error covers them."""
    found = gram_of(*whole(np.full((2, 1), 1e-160)), np.ones((2, 1)), FROM_FACTOR)
    assert found.error[0, 0] >= 2.0**-1001


def test_multipliers_of_0_have_no_error():
    """Not even that of underflow: a bound of 0 stays exact."""
    link, factor = whole(np.eye(2))
    V = np.array([[1.0, 0.0], [-2.0, 0.0]])
    of_features = _from_features(np.eye(2), V, np.abs(V), np.ones(2))
    for found in (as_computed(link, V), gram_of(link, factor, V, FROM_FACTOR), of_features):
        assert found.error[0, 0] > 0 and not found.error[1].any() and not found.error[:, 1].any()


def test_what_products_of_features_round():
    """γ of a sum over p features, beside their own errors, which are 0 here."""
    F, V = np.array([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]]), np.array([[1.0, -2.0], [0.25, 1.0]])
    found = _from_features(F, V, np.zeros((2, 2)), np.ones(2))
    W = np.abs(F.T @ V)
    assert found.error == pytest.approx(gamma(3 + 2) * (W.T @ W), rel=1e-9, abs=0)


def test_what_a_computed_matrix_rounds():
    """Two roundings of each entry of one row: of Qv, and of vᵀ(Qv)."""
    rows = SimpleNamespace(gram=lambda: np.array([[1 / 3]]), lengths=lambda: np.ones(1))
    for v in (0.1, 0.3, 0.7, 1.1):
        found = as_computed(SimpleNamespace(rows=rows), np.array([[v]]))
        exact = Fraction(v) ** 2 * Fraction(1 / 3)
        assert 0 < abs(Fraction(found.value[0, 0]) - exact) <= Fraction(found.error[0, 0])
        assert found.error[0, 0] == pytest.approx(4 * 2.0**-53 * float(exact), rel=1e-9, abs=0)


@pytest.mark.parametrize("sign", [1, -1])
def test_what_errors_of_features_change(sign):
    """Each feature is off by as much as is allowed: (ΦᵀV)ᵀ(ΦᵀV) is off by no more than its error, and by half of it."""
    F, V = np.array([[1.0, 2.0], [0.5, 4.0]]), np.array([[1.0, 2.0], [0.25, 1.0]])
    found = _from_features(F, V, np.abs(V), np.ones(2))
    true = [[Fraction(x) * (1 + sign * Fraction(FEATURE)) for x in row] for row in F]
    W = [[sum(row[k] * Fraction(v) for row, v in zip(true, column, strict=True)) for column in V.T] for k in range(2)]
    for i in range(2):
        for j in range(2):
            off = abs(sum(w[i] * w[j] for w in W) - Fraction(found.value[i, j]))
            assert 0.5 * found.error[i, j] <= off <= Fraction(found.error[i, j])


@pytest.mark.parametrize("kind", ["fro", 2, "nuc"])
def test_a_matrix_above_a_block_and_its_error(kind):
    """Whatever the signs of errors; sums of singular values take the block as it was computed."""
    value, error = np.diag([0.0, 4.0, 1.0]), np.array([[9.0, 9.0, 9.0], [9.0, 0.5, 0.25], [9.0, 0.25, 0.125]])
    found, part = Gram(value, error, np.ones(1)).most(slice(1, 3), kind), slice(1, 3)
    for signs in ([[1, 1], [1, 1]], [[1, -1], [-1, 1]]):
        least = np.linalg.eigvalsh(found - value[part, part] - signs * error[part, part])[0]
        assert least >= 0 or kind == "nuc"
    assert np.array_equal(found, value[part, part]) is (kind == "nuc")
