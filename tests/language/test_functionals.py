"""Rows that are combinations of rows: W @ A, sums and multiples, beside the same products written in cvxpy."""

import pickle

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import kernelopt as ko
from kernelopt import kernels, losses
from kernelopt.errors import DataError, KernelError, KernelOptError
from kernelopt.language import rows

RNG = np.random.default_rng(0)
N, G = 30, 6
X = RNG.uniform(-2, 2, size=(N, 2))
BAGS = RNG.integers(0, G, N)
MEANS = sp.csr_array((1 / np.bincount(BAGS)[BAGS], (BAGS, np.arange(N))), shape=(G, N))
Y = MEANS @ np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=G)
GAUSSIAN = kernels.Gaussian(sigma=1.0)
KERNELS = [
    GAUSSIAN,
    kernels.Polynomial(degree=3),
    kernels.Laplacian(sigma=1.0) + kernels.Linear(),
    kernels.Matern(nu=2.5, sigma=1),
]


def smooth(y, f):
    loss = ko.SmoothLoss(
        lambda u, y: np.sqrt(1 + (u - y) ** 2),
        lambda u, y: (u - y) / np.sqrt(1 + (u - y) ** 2),
        lambda u, y: (1 + (u - y) ** 2) ** -1.5,
    )
    return loss(f, y)


LOSSES = {"absolute": losses.absolute_error, "squared": losses.squared_error, "huber": losses.huber, "smooth": smooth}


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_gram_matrices(kernel):
    A = ko.FeatureMatrix(X, kernel)
    W = RNG.normal(size=(G, N))
    Q = W @ kernel(X) @ W.T
    for B in (
        W @ A,
        sp.csr_array(W) @ A,
        sp.csc_matrix(W) @ A,
        pd.DataFrame(W).to_numpy() @ A,
        cp.Constant(W).value @ A,
    ):
        assert len(B) == G and B.kernel == kernel
        np.testing.assert_allclose(B.function.gram(), Q, rtol=1e-9, atol=1e-9 * np.abs(Q).max())
        np.testing.assert_allclose(B.diag(), np.diag(Q), rtol=1e-9, atol=1e-9 * np.abs(Q).max())
    theta = ko.Theta(kernel)
    theta.value = ko.Function(kernel, X[:5] + 0.1, RNG.normal(size=5))
    np.testing.assert_allclose(((W @ A) @ theta).value, W @ theta.value(X), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(((W[0] @ A) @ theta).value, W[:1] @ theta.value(X), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose((W @ A)[[2, 0]].function.gram(), Q[np.ix_([2, 0], [2, 0])], rtol=1e-9, atol=1e-8)


@pytest.mark.slow
@pytest.mark.one_row
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_one_row_for_each_bag(kernel, loss):
    """The optimum is that of the problem with a row for each point and a product in cvxpy."""
    values = []
    for by_rows in (True, False):
        theta, b = ko.Theta(kernel), cp.Variable()
        A = ko.FeatureMatrix(X, kernel)
        f = (MEANS @ A) @ theta if by_rows else MEANS @ (A @ theta)
        problem = ko.Problem(cp.Minimize(cp.sum(LOSSES[loss](Y, f + b)) + 0.1 * ko.sum_squares(theta)), [f[0] >= f[1]])
        problem.solve(tol=1e-9)
        assert problem.status == "optimal" and problem.certificate.relative_gap <= 1e-9
        values.append(problem.value)
        if by_rows:
            assert problem.verify().passed and len(problem.canonical_form().predictions[0].rows) == G
    assert values[0] == pytest.approx(values[1], rel=1e-8)


@pytest.mark.slow
def test_a_differential_equation():
    """f″ + f = 0 at 15 points, f(0) = 1, f′(0) = 0: a row for each point, and f is the cosine."""
    T = np.linspace(0, 3, 15)[:, None]
    A = ko.FeatureMatrix(T, GAUSSIAN)
    theta = ko.Theta(GAUSSIAN)
    ode = (A.derivative((0, 0)) + A) @ theta
    start = [A[:1] @ theta == 1, A.derivative(0)[:1] @ theta == 0]
    problem = ko.Problem(cp.Minimize(cp.sum_squares(ode) + 1e-9 * ko.sum_squares(theta)), start)
    problem.solve()
    assert problem.status == "optimal" and len(problem.canonical_form().predictions[0].rows) == 17
    np.testing.assert_allclose(theta.value(T), np.cos(T[:, 0]), atol=1e-3)
    again = (A.derivative((0, 0)) @ theta + A @ theta).value
    np.testing.assert_allclose(ode.value, again, atol=1e-9)


def test_sums_differences_and_multiples():
    A, B = ko.FeatureMatrix(X[:5], GAUSSIAN), ko.FeatureMatrix(X[3:8], GAUSSIAN)
    theta = ko.Theta(GAUSSIAN)
    theta.value = ko.Function(GAUSSIAN, X[10:15], RNG.normal(size=5))
    a, b = theta.value(X[:5]), theta.value(X[3:8])
    for C, expected in [
        (A + B, a + b), (A - B, a - b), (2 * A, 2 * a), (A * -0.5 + 3 * B, -0.5 * a + 3 * b), (-A, -a),
        (np.eye(5)[::-1] @ (A - B) + A, (a - b)[::-1] + a),
        (A.derivative(0) - A, (A.derivative(0) @ theta).value - a),
    ]:  # fmt: skip
        np.testing.assert_allclose((C @ theta).value, expected, atol=1e-12)
    assert len((A - B).function._centers) == 8  # each point once
    zero = A - A
    np.testing.assert_array_equal(zero.diag(), 0)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(zero @ theta - 1) + ko.sum_squares(theta)))
    assert problem.solve() == pytest.approx(5.0)


@pytest.mark.slow
def test_several_outputs_and_inner_products():
    theta, prior = ko.Theta(GAUSSIAN, outputs=2), ko.Function(GAUSSIAN, X[:4], RNG.normal(size=(4, 2)))
    A = ko.FeatureMatrix(X, GAUSSIAN)
    f = (MEANS @ A) @ theta
    assert f.shape == (G, 2)
    targets = np.column_stack([Y, -Y])
    values = []
    for g in (f, MEANS @ (A @ theta)):
        distance = ko.sum_squares(theta - prior)
        values.append(ko.Problem(cp.Minimize(cp.sum(cp.abs(targets - g)) + 0.1 * distance)).solve(tol=1e-8))
    assert values[0] == pytest.approx(values[1], rel=1e-7)
    shifted = (MEANS @ A) @ (theta - prior)
    np.testing.assert_allclose(shifted.value, f.value - MEANS @ prior(X), atol=1e-9)


@pytest.mark.slow
def test_parameters_of_the_kernel_and_gradients():
    sigma, lam = cp.Parameter(pos=True, value=1.0), cp.Parameter(pos=True, value=0.1)
    kernel = kernels.Gaussian(sigma=sigma)
    theta = ko.Theta(kernel)
    f = (MEANS @ ko.FeatureMatrix(X, kernel)) @ theta
    problem = ko.Problem(cp.Minimize(cp.sum(losses.huber(Y, f)) + lam * ko.sum_squares(theta)))
    for value in (1.0, 0.7):
        sigma.value = value
        fixed = kernels.Gaussian(sigma=value)
        other = ko.Theta(fixed)
        g = MEANS @ other(X)
        again = ko.Problem(cp.Minimize(cp.sum(losses.huber(Y, g)) + 0.1 * ko.sum_squares(other)))
        assert problem.solve(tol=1e-9) == pytest.approx(again.solve(tol=1e-9), rel=1e-8)
    criterion = cp.sum_squares(theta(X[:5])) + cp.sum_squares(f)
    found = ko.gradient(problem, criterion, [lam])[lam]
    values = []
    for h in (-1e-4, 1e-4):
        lam.value = 0.1 + h
        problem.solve(tol=1e-10)
        values.append(ko.gradient(problem, criterion, [lam]).value)
    assert found == pytest.approx((values[1] - values[0]) / 2e-4, rel=1e-5)
    with pytest.raises(ko.errors.KernelOptError, match="Write numbers in place"):
        ko.gradient(problem, criterion, [sigma])


@pytest.mark.later
@pytest.mark.parametrize("kernel", [kernels.Precomputed(GAUSSIAN(X)), kernels.Spectrum(2)], ids=["matrix", "strings"])
def test_points_of_other_kinds(kernel):
    points = np.arange(N) if isinstance(kernel, kernels.Precomputed) else ["ab" * (1 + i % 4) + "c" for i in range(N)]
    values = []
    for by_rows in (True, False):
        theta, A = ko.Theta(kernel), ko.FeatureMatrix(points, kernel)
        f = (MEANS @ A) @ theta if by_rows else MEANS @ (A @ theta)
        values.append(ko.Problem(cp.Minimize(cp.norm1(Y - f) + 0.1 * ko.sum_squares(theta))).solve(tol=1e-8))
    assert values[0] == pytest.approx(values[1], rel=1e-7)


@pytest.mark.later
def test_kernel_values_of_all_points_are_never_in_memory(monkeypatch):
    largest = []
    matrix = kernels.Gaussian._matrix

    def counted(self, X, Z):
        largest.append(len(X) * len(X if Z is None else Z))
        return matrix(self, X, Z)

    monkeypatch.setattr(kernels.Gaussian, "_matrix", counted)
    monkeypatch.setattr(rows, "BLOCK", 64)
    many = np.random.default_rng(1).normal(size=(1000, 2))
    W = sp.csr_array((np.full(1000, 0.01), (np.arange(1000) % 10, np.arange(1000))), shape=(10, 1000))
    theta = ko.Theta(GAUSSIAN)
    f = (W @ ko.FeatureMatrix(many, GAUSSIAN)) @ theta
    ko.Problem(cp.Minimize(cp.norm1(f - 1) + 0.1 * ko.sum_squares(theta))).solve()
    assert max(largest) <= 64**2 and sum(largest) < 0.7 * 1000**2 + 50 * 1000


@pytest.mark.later
def test_files_and_pickles(tmp_path):
    theta = ko.Theta(GAUSSIAN)
    f = (MEANS @ ko.FeatureMatrix(X, GAUSSIAN)) @ theta
    problem = ko.Problem(cp.Minimize(cp.sum(losses.huber(Y, f)) + 0.1 * ko.sum_squares(theta)))
    problem.solve()
    ko.save(tmp_path / "bags.ko", f=theta.value)
    np.testing.assert_array_equal(ko.load(tmp_path / "bags.ko")["f"](X), theta.value(X))
    again = pickle.loads(pickle.dumps(problem))
    assert again.solve() == pytest.approx(problem.value, rel=1e-9)


@pytest.mark.later
@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_scales(scale):
    theta = ko.Theta(GAUSSIAN)
    f = (scale * (MEANS @ ko.FeatureMatrix(X, GAUSSIAN))) @ theta
    problem = ko.Problem(cp.Minimize(cp.sum_squares(scale * Y - f) + 0.1 * scale**2 * ko.sum_squares(theta)))
    other = ko.Theta(GAUSSIAN)
    plain = ko.Problem(cp.Minimize(cp.sum_squares(Y - MEANS @ other(X)) + 0.1 * ko.sum_squares(other)))
    assert problem.solve(tol=1e-8) / scale**2 == pytest.approx(plain.solve(tol=1e-8), rel=1e-6)


def test_bad_input():
    A, theta = ko.FeatureMatrix(X, GAUSSIAN), ko.Theta(GAUSSIAN)
    other = ko.FeatureMatrix(X, kernels.Linear())
    wrong = [
        (lambda: np.ones((2, N - 1)) @ A, "one for each row of A"),
        (lambda: sp.csr_array(np.ones((2, N + 1))) @ A, "one for each row of A"),
        (lambda: np.full((2, N), np.nan) @ A, "W in W @ A"),
        (lambda: np.ones((2, 2, N)) @ A, "one for each row of A"),
        (lambda: A + 1, "two feature matrices"),
        (lambda: A - np.ones(N), "two feature matrices"),
        (lambda: A + other, "of one kernel"),
        (lambda: A + A[:3], "equal numbers of rows"),
        (lambda: np.ones(N) * A, "with a number c"),
        (lambda: A * "2", "with a number c"),
        (lambda: (MEANS @ A).derivative(0), "Expected a column"),
        (lambda: (MEANS @ A)[G], "rows of A"),
    ]
    for call, message in wrong:
        with pytest.raises(DataError, match=message):
            call()
    masked = np.ma.masked_array(np.ones((1, N)), mask=np.arange(N) == 3)
    with pytest.raises(DataError, match="mask"):
        masked @ A
    assert theta.value is None


def test_averages():
    weights = RNG.uniform(0, 1, N)
    A = ko.average(X, GAUSSIAN, groups=BAGS, weights=weights)
    theta = ko.Theta(GAUSSIAN)
    theta.value = ko.Function(GAUSSIAN, X[:3], [1.0, -2.0, 0.5])
    f = theta.value(X)
    expected = [np.average(f[g == BAGS], weights=weights[g == BAGS]) for g in np.unique(BAGS)]
    np.testing.assert_allclose((A @ theta).value, expected, rtol=1e-12)
    np.testing.assert_allclose((ko.average(X, GAUSSIAN) @ theta).value, [f.mean()], rtol=1e-12)
    for options, message in [
        ({"groups": BAGS[1:]}, "a group for each point"),
        ({"groups": np.where(BAGS == 2, np.nan, BAGS)}, "a group for each point; got nan"),
        ({"groups": np.full(N, "NaT", dtype="datetime64[D]")}, "a group for each point; got NaT in row 0"),
        ({"groups": [None, *BAGS[1:]]}, "groups that can be sorted"),
        ({"weights": -weights}, "a weight ≥ 0"),
        ({"weights": np.full(N, np.nan)}, "a weight ≥ 0"),
        ({"groups": BAGS, "weights": (BAGS != 2) * 1.0}, "group 2 has none"),
    ]:
        with pytest.raises(DataError, match=message):
            ko.average(X, GAUSSIAN, **options)


@pytest.mark.parametrize("order", [0, 1, (0, 0), (0, 1)])
def test_derivatives_of_a_fitted_function(order):
    theta = ko.Theta(GAUSSIAN)
    y = np.sin(X[:, 0]) * X[:, 1]
    ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)) + 1e-3 * ko.sum_squares(theta))).solve()
    slope, steps = theta.value.derivative(order), (order,) if isinstance(order, int) else order
    new = X[:5] + 0.1

    def difference(points, columns):
        if not columns:
            return theta.value(points)
        h = 1e-3 * np.eye(2)[columns[0]]
        return (difference(points + h, columns[1:]) - difference(points - h, columns[1:])) / 2e-3

    np.testing.assert_allclose(slope(new), difference(new, steps), atol=1e-4)
    np.testing.assert_allclose(
        slope(new), (ko.FeatureMatrix(new, GAUSSIAN).derivative(order) @ theta).value, atol=1e-12
    )


def test_derivatives_that_do_not_exist():
    with pytest.raises(ko.errors.KernelError, match="derivatives of order 1"):
        ko.Function(kernels.Laplacian(sigma=1.0), X, np.ones(N)).derivative(0)
    with pytest.raises(DataError, match="a column from 0 to 1"):
        ko.Function(GAUSSIAN, X, np.ones(N)).derivative(2)


# ---------------------------------------------------------------- integrals

EDGES = np.linspace(0.0, 4.0, 9)
COUNTS = np.array([0.2, 0.9, 1.6, 2.2, 2.4, 1.7, 0.8, 0.3])
GRID = np.linspace(0, 4, 25)[:, None]


def quadrature(lower, upper, kernel, count=40):
    """Rows of integrals by Gauss–Legendre nodes, and the nodes of all boxes as points."""
    x, w = np.polynomial.legendre.leggauss(count)
    centre, half = (lower + upper) / 2, (upper - lower) / 2
    points = (centre[:, None] + half[:, None] * x).reshape(-1, 1)
    return sp.block_diag([w[None] * h for h in half], format="csr") @ ko.FeatureMatrix(points, kernel)


SMOOTH = [GAUSSIAN, kernels.Polynomial(degree=4), kernels.Gaussian(sigma=2.0) + 0.5 * kernels.Linear()]


@pytest.mark.later
@pytest.mark.one_row
@pytest.mark.parametrize("kernel", SMOOTH, ids=str)
@pytest.mark.parametrize("loss", LOSSES)
def test_problems_with_integrals(kernel, loss):
    """The same problem with 40 nodes for each box."""

    def solve(bins, whole):
        theta = ko.Theta(kernel)
        fit = cp.sum(LOSSES[loss](COUNTS, bins @ theta)) + 0.1 * ko.sum_squares(theta)
        problem = ko.Problem(cp.Minimize(fit), [theta(GRID) >= 0, whole @ theta == 5])
        problem.solve()
        return problem, theta

    bins, whole = ko.integral(EDGES[:-1], EDGES[1:], kernel), ko.integral([0.0], [4.0], kernel)
    problem, theta = solve(bins, whole)
    other, expected = solve(*(quadrature(*ends, kernel) for ends in ((EDGES[:-1], EDGES[1:]), (EDGES[:1], EDGES[-1:]))))
    assert problem.value == pytest.approx(other.value, rel=1e-5)
    np.testing.assert_allclose(theta.value(GRID), expected.value(GRID), atol=2e-3)
    np.testing.assert_allclose(theta.value.integral(EDGES[:-1], EDGES[1:]), (bins @ theta).value, rtol=1e-9, atol=1e-12)
    assert theta.value.integral(0.0, 4.0) == pytest.approx([5.0], rel=1e-6)
    assert problem.certificate.relative_gap < 1e-5
    assert problem.verify().passed


@pytest.mark.parametrize("kernel", [*SMOOTH, *KERNELS[2:]], ids=str)
def test_ridge_regression_on_bins(kernel):
    """(Q + λI)α = y in closed form."""
    theta, bins = ko.Theta(kernel), ko.integral(EDGES[:-1], EDGES[1:], kernel)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(bins @ theta - COUNTS) + 0.1 * ko.sum_squares(theta)))
    problem.solve()
    Q = bins.function.gram()
    alpha = np.linalg.solve(Q + 0.1 * np.eye(8), COUNTS)
    np.testing.assert_allclose((bins @ theta).value, Q @ alpha, rtol=1e-6)
    np.testing.assert_allclose(theta.value.integral(0.3, 2.1), ko.integral(0.3, 2.1, kernel).function.gram(
        bins.function) @ alpha, rtol=1e-6)  # fmt: skip
    assert problem.value == pytest.approx(0.1 * COUNTS @ alpha, rel=1e-8)
    assert problem.certificate.relative_gap < 1e-8
    assert problem.verify().passed


def test_combinations_of_integrals():
    bins, f = ko.integral(EDGES[:-1], EDGES[1:], GAUSSIAN), ko.Function(GAUSSIAN, GRID[:5], RNG.normal(size=5))
    theta = ko.Theta(GAUSSIAN)
    theta.value, values = f, f.integral(EDGES[:-1], EDGES[1:])
    W, A = RNG.normal(size=(3, 8)), ko.FeatureMatrix(GRID[:8], GAUSSIAN)
    assert len(bins) == 8 and len(bins[3]) == 1 and len(bins[2:4]) == 2
    for B, expected in (
        (W @ bins, W @ values),
        (bins - A, values - f(GRID[:8])),
        (A + 2 * bins, 2 * values + f(GRID[:8])),
        (bins[3], values[3:4]),
        (np.ones(8) @ bins, [f.integral(0.0, 4.0)[0]]),
    ):
        np.testing.assert_allclose((B @ theta).value, expected, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(B.diag(), np.diag(B.function.gram()), rtol=1e-12)
    # Adjacent boxes add up to one: both rows are the same functional.
    whole = np.ones((1, 8)) @ bins - ko.integral(0.0, 4.0, GAUSSIAN)
    assert abs(whole.diag()[0]) < 1e-12
    several = ko.Function(GAUSSIAN, GRID[:5], RNG.normal(size=(5, 2)))
    assert several.integral(EDGES[:-1], EDGES[1:]).shape == (8, 2)
    theta = ko.Theta(GAUSSIAN, outputs=2)
    theta.value = several
    np.testing.assert_allclose((bins @ theta).value, several.integral(EDGES[:-1], EDGES[1:]), rtol=1e-12)


@pytest.mark.slow
def test_problems_in_the_plane_and_with_blurred_inputs():
    lower = np.array([[i, j] for i in (0.0, 0.5) for j in (0.0, 0.5)])
    theta = ko.Theta(GAUSSIAN)
    boxes, blurred = ko.integral(lower, lower + 0.5, GAUSSIAN), ko.gaussian_mean(X, [0.1, 0.3], GAUSSIAN)
    y = np.sin(X[:, 0])
    loss = cp.sum_squares(blurred @ theta - y) + 0.01 * ko.sum_squares(theta)
    problem = ko.Problem(cp.Minimize(loss), [boxes @ theta == [0.1, 0.2, 0.1, 0.2]])
    problem.solve()
    f = theta.value
    np.testing.assert_allclose(f.integral(lower, lower + 0.5), [0.1, 0.2, 0.1, 0.2], atol=1e-8)
    u, w = np.polynomial.hermite_e.hermegauss(20)
    nodes = np.array([[a, b] for a in u for b in u]) * [0.1, 0.3]
    weights = np.outer(w, w).ravel() / w.sum() ** 2
    expected = [weights @ f(x + nodes) for x in X]
    np.testing.assert_allclose((blurred @ theta).value, expected, rtol=1e-8, atol=1e-8)
    assert problem.certificate.relative_gap < 1e-6
    assert problem.verify().passed


@pytest.mark.later
def test_distances_to_functions_of_integrals():
    """A second problem around the answer of a first."""
    theta, bins = ko.Theta(GAUSSIAN), ko.integral(EDGES[:-1], EDGES[1:], GAUSSIAN)
    ko.Problem(cp.Minimize(cp.sum_squares(bins @ theta - COUNTS) + 0.1 * ko.sum_squares(theta))).solve()
    f0, moved = theta.value, ko.Theta(GAUSSIAN)
    near = ko.Problem(cp.Minimize(ko.sum_squares(moved - f0)), [moved([[1.0]]) == f0([[1.0]])[0] + 1])
    near.solve()
    assert near.value == pytest.approx(1.0, rel=1e-6)  # 1/κ(1, 1)
    np.testing.assert_allclose(moved.value(GRID), f0(GRID) + GAUSSIAN(GRID, [[1.0]])[:, 0], rtol=1e-5, atol=1e-5)


@pytest.mark.later
def test_kernel_parameters_of_integrals():
    sigma = cp.Parameter(pos=True, value=1.0)
    kernel = kernels.Gaussian(sigma=sigma)
    bins, theta = ko.integral(EDGES[:-1], EDGES[1:], kernel), ko.Theta(kernel)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(bins @ theta - COUNTS) + 0.1 * ko.sum_squares(theta)))
    for value in (1.0, 0.4, 2.0):
        sigma.value = value
        Q = ko.integral(EDGES[:-1], EDGES[1:], kernels.Gaussian(sigma=value)).function.gram()
        expected = 0.1 * COUNTS @ np.linalg.solve(Q + 0.1 * np.eye(8), COUNTS)
        assert problem.solve() == pytest.approx(expected, rel=1e-8)
        np.testing.assert_allclose(bins.diag(), np.diag(Q), rtol=1e-14)
    with pytest.raises(KernelOptError, match="Write numbers in place of the kernel's parameters"):
        ko.gradient(problem, cp.sum(theta(GRID)), [sigma])


@pytest.mark.later
def test_integrals_and_derivatives_are_apart():
    theta, A = ko.Theta(GAUSSIAN), ko.FeatureMatrix(GRID, GAUSSIAN)
    bins = ko.integral(EDGES[:-1], EDGES[1:], GAUSSIAN)
    loss = cp.sum_squares(bins @ theta - COUNTS) + ko.sum_squares(theta)
    words = "without (derivatives and integrals|integrals and means over distributions and derivatives)"
    with pytest.raises(KernelError, match=words):
        ko.Problem(cp.Minimize(loss), [A.derivative(0) @ theta >= 0]).solve()
    with pytest.raises(KernelError, match=words):
        bins + A[:8].derivative(0)
    ko.Problem(cp.Minimize(loss)).solve()
    with pytest.raises(KernelError, match=words):
        theta.value.derivative(0)(GRID)
    slope = ko.Theta(GAUSSIAN)
    ko.Problem(cp.Minimize(cp.sum_squares(A.derivative(0) @ slope - 1) + ko.sum_squares(slope))).solve()
    with pytest.raises(KernelError, match=words):
        slope.value.integral(0.0, 1.0)


def test_shapes_of_boxes():
    one = [len(ko.integral(*ends, GAUSSIAN)) for ends in ((0.0, 1.0), ([0.0], 1.0), ([[0.0]], [[1.0]]))]
    assert one == [1, 1, 1]
    kernel, lower = GAUSSIAN, np.array([[0.0, 0.1], [0.5, 0.2], [0.6, 0.4]])
    reference = ko.integral(lower, np.array([[1.0, 2.0]] * 3), kernel).function.gram()
    for upper in ([1.0, 2.0], [[1.0, 2.0]], pd.DataFrame({"a": [1.0] * 3, "b": [2.0] * 3})):
        np.testing.assert_array_equal(ko.integral(lower, upper, kernel).function.gram(), reference)
    assert len(ko.integral(0.0, lower + 1, kernel)) == 3
    many = [ko.integral(EDGES[:-1], EDGES[1:], kernel), ko.integral(EDGES[:-1, None], EDGES[1:, None], kernel)]
    np.testing.assert_array_equal(many[0].function.gram(), many[1].function.gram())
    np.testing.assert_array_equal(many[0].diag(), ko.integral(pd.Series(EDGES[:-1]), EDGES[1:], kernel).diag())
    frame = pd.DataFrame({"a": [0.0], "b": [0.0]})
    with pytest.raises(DataError, match="in the order"):
        ko.integral(frame, frame[["b", "a"]] + 1, kernel)


@pytest.mark.parametrize(
    ("lower", "upper", "words"),
    [
        ([0.0, 2.0], [1.0, 1.0], "row 1 with lower 2 > upper 1 in column 0"),
        ([0.0], [np.inf], "upper to be finite"),
        ([np.nan], [1.0], "lower to be finite"),
        ([0.0, 1.0], [1.0, 2.0, 3.0], "as many entries in lower as in upper; got 2 and 3"),
        ([[0.0, 0.0]], [[1.0, 1.0, 1.0]], "of equal shapes"),
        ([[0.0], [1.0]], [1.0, 2.0], "of equal shapes"),
        ([[0.0]] * 2, [[1.0]] * 3, "of equal shapes"),
        ([], [], "not empty"),
        (np.zeros((0, 2)), np.ones((0, 2)), "not empty"),
        (np.zeros((1, 1, 1)), 1.0, "a vector or a matrix"),
        (cp.Parameter(1, value=[0.0]), [1.0], r"Write lower.value"),
        ([0.0], cp.Variable(1), r"Write upper.value"),
        ([-1e308], [1e308], "volume doubles can store"),
        (["a"], [1.0], "real numbers"),
    ],
)
def test_boxes_that_are_none(lower, upper, words):
    with pytest.raises(KernelOptError, match=words):
        ko.integral(lower, upper, GAUSSIAN)
    with pytest.raises(KernelOptError, match=words):
        ko.Function(GAUSSIAN, [[0.0]], [1.0]).integral(lower, upper)


@pytest.mark.parametrize(
    ("mean", "sd", "words"),
    [
        ([0.0, 1.0], [0.5, -0.5], "sd ≥ 0; got -0.5 in row 1, column 0"),
        ([np.inf], 1.0, "mean to be finite"),
        ([0.0], np.nan, "sd to be finite"),
        ([[0.0, 0.0]], [1.0, 1.0, 1.0], "of equal shapes"),
        ([0.0], cp.Parameter(value=1.0), r"Write sd.value"),
        ([], 1.0, "not empty"),
    ],
)
def test_normal_distributions_that_are_none(mean, sd, words):
    with pytest.raises(DataError, match=words):
        ko.gaussian_mean(mean, sd, GAUSSIAN)


def test_arguments_in_another_order():
    with pytest.raises(KernelError, match="The data come first"):
        ko.integral(GAUSSIAN, 0.0, 1.0)
    with pytest.raises(KernelError, match="got float and float and float"):
        ko.gaussian_mean(0.0, 1.0, 2.0)
    f = ko.Function(GAUSSIAN, [[0.0, 1.0]], [1.0])
    with pytest.raises(DataError, match="2 columns; got 1"):
        f.integral(0.0, 1.0)
    theta = ko.Theta(GAUSSIAN)
    theta(X)
    A = theta(X)  # kept: a use of θ with two columns
    with pytest.raises(DataError, match="2 columns"):
        ko.integral(0.0, 1.0, GAUSSIAN) @ theta
    assert A.shape == (N,)


def test_boxes_of_another_number_of_columns():
    theta = ko.Theta(kernels.Gaussian(sigma=1.0))
    values = theta(np.eye(2))
    with pytest.raises(DataError, match=r"2 columns; got boxes or means of 1 column\. One box in the plane is \[\[0"):
        ko.integral([0, 0], [1, 1], theta.kernel) @ theta
    assert (ko.integral([[0, 0]], [[1, 1]], theta.kernel) @ theta).shape == (1,)
    assert values.shape == (2,)
