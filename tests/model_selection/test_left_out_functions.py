"""Fits without a row or a fold, at new points, against fits that are made without them."""

import cvxpy as cp
import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge

import kernelopt as ko
from kernelopt.errors import DataError, KernelOptError, OptionError
from kernelopt.model_selection.left_out_functions import left_out_values

KERNEL = ko.kernels.Gaussian(sigma=1.0)
N = 40
rng = np.random.default_rng(3)
X = rng.normal(size=(N, 2))
X[-3:] = X[:3]
Y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * rng.normal(size=N)
Z = rng.normal(size=(7, 2))
W = rng.uniform(0.5, 2, size=N)
EACH = [np.array([i]) for i in range(N)]


def ridge(points, targets, weights, lam, intercept):
    """h with f(x) = h(x)ᵀy, by the inverse: M = (Q + λ diag(1/w))⁻¹, β = M1/(1ᵀM1), S = M − β1ᵀM."""
    M = np.linalg.inv(KERNEL(points) + lam * np.diag(1 / weights))
    beta = M.sum(axis=1) / M.sum() if intercept else np.zeros(len(M))
    S = M - np.outer(beta, M.sum(axis=0)) if intercept else M
    return lambda new: KERNEL(new, points) @ (S @ targets) + beta @ targets


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weights", [np.ones(N), W], ids=["equal", "weights"])
def test_squares_are_exact(intercept, weights):
    theta, b = ko.Theta(KERNEL), cp.Variable()
    f = (lambda P: theta(P) + b) if intercept else theta
    problem = ko.Problem(cp.Minimize(weights @ cp.square(Y - f(X)) + 0.3 * ko.sum_squares(theta)))
    problem.solve(rank_tol=1e-13)
    found = ko.leave_one_out_predictions(problem, f(X), f(Z))
    others = [np.arange(N) != i for i in range(N)]
    expected = [ridge(X[k], Y[k], weights[k], 0.3, intercept)(Z) for k in others]
    assert found == pytest.approx(np.array(expected), rel=1e-10, abs=1e-10)


def test_without_an_intercept_as_kernel_ridge():
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(Y - theta(X)) + 0.5 * ko.sum_squares(theta)))
    problem.solve(rank_tol=1e-13)
    found = ko.leave_one_out_predictions(problem, theta(X), theta(Z))
    for i in (0, 7, N - 1):
        k = np.arange(N) != i
        model = KernelRidge(alpha=0.5, kernel="rbf", gamma=0.5).fit(X[k], Y[k])
        assert found[i] == pytest.approx(model.predict(Z), rel=1e-10, abs=1e-10)


def test_from_one_decomposition_as_by_the_formula():
    """f₋ᵢ(x) = f(x) − eᵢhᵢ(x) with an intercept."""
    theta, b = ko.Theta(KERNEL), cp.Variable()
    problem = ko.Problem(cp.Minimize(W @ cp.square(Y - theta(X) - b) + 0.3 * ko.sum_squares(theta)))
    problem.solve(rank_tol=1e-13)
    M = np.linalg.inv(KERNEL(X) + 0.3 * np.diag(1 / W))
    beta = M.sum(axis=1) / M.sum()
    S = M - np.outer(beta, M.sum(axis=0))
    H, e = S @ KERNEL(X, Z) + beta[:, None], S @ Y / np.diag(S)
    found = ko.leave_one_out_predictions(problem, theta(X) + b, theta(Z) + b)
    assert found == pytest.approx(Y @ H - e[:, None] * H, rel=1e-10, abs=1e-10)


def test_at_the_rows_themselves_it_is_leave_one_out():
    theta, b = ko.Theta(KERNEL), cp.Variable()
    f = theta(X) + b
    problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.huber(Y, f, 0.5)) + 0.1 * ko.sum_squares(theta)))
    problem.solve()
    own = np.diag(ko.leave_one_out_predictions(problem, f, theta(X) + b))
    assert own == pytest.approx(ko.approximate_leave_one_out(problem, f), rel=1e-6, abs=1e-6)


@pytest.mark.later
def test_several_outputs_and_kernels():
    """A row of a matrix is left out as a whole; two θs, one of which is differentiated at a new point."""
    targets = np.column_stack([Y, Y**2])
    first, second = ko.Theta(KERNEL, outputs=2), ko.Theta(ko.kernels.Polynomial(degree=2), outputs=2)
    b = cp.Variable((1, 2))
    f = lambda P: first(P) + 2 * second(P) + b
    squares = lambda k: cp.sum_squares(targets[k] - f(X[k]))
    cost = 0.4 * ko.sum_squares(first) + 0.2 * ko.sum_squares(second)
    problem = ko.Problem(cp.Minimize(squares(np.arange(N)) + cost))
    problem.solve(rank_tol=1e-13)
    slope = ko.FeatureMatrix(Z, KERNEL).derivative(0) @ first
    found = ko.leave_one_out_predictions(problem, f(X), f(Z))
    slopes = ko.leave_one_out_predictions(problem, f(X), slope)
    assert found.shape == (N, 7, 2)
    for i in (0, 11):
        without = ko.Problem(cp.Minimize(squares(np.arange(N) != i) + cost))
        without.solve(rank_tol=1e-13, tol=1e-10)
        assert found[i] == pytest.approx(f(Z).value, rel=1e-7, abs=1e-7)
        assert slopes[i] == pytest.approx(slope.value, rel=1e-7, abs=1e-7)


@pytest.mark.later
@pytest.mark.parametrize("loss", ["squares", "huber", "absolute"])
def test_folds_left_out(loss):
    """Groups of rows leave as a whole: exactly for squares, and by refits for other losses."""
    losses = {
        "squares": lambda f: cp.square(Y - f),
        "huber": lambda f: ko.losses.huber(Y, f, 0.5),
        "absolute": lambda f: ko.losses.absolute_error(Y, f),
    }
    theta, b, w = ko.Theta(KERNEL), cp.Variable(), cp.Parameter(N, nonneg=True, value=np.ones(N))
    f = lambda P: theta(P) + b
    problem = ko.Problem(cp.Minimize(w @ losses[loss](f(X)) + 0.3 * ko.sum_squares(theta)))
    problem.solve(rank_tol=1e-13, tol=1e-10)
    groups = np.array_split(np.random.default_rng(0).permutation(N), 5)
    found = left_out_values(problem, f(X), f(Z), groups, refit=loss != "squares")
    assert found.is_exact
    for group, new in zip(groups, found.new[:, :, 0], strict=True):
        w.value = np.where(np.isin(np.arange(N), group), 0.0, 1.0)
        problem.solve(rank_tol=1e-13, tol=1e-11)
        accuracy = 1e-8 if loss == "squares" else 1e-4
        assert new == pytest.approx(f(Z).value, rel=accuracy, abs=accuracy)
        assert found.own[group, 0] == pytest.approx(f(X).value[group], rel=accuracy, abs=accuracy)


def test_one_factor_in_a_lower_rank():
    """θ stays in the span of the pivots: as a fit in these features."""
    theta = ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(Y - theta(X)) + 0.5 * ko.sum_squares(theta)))
    problem.solve(max_rank=6)
    pivots = X[theta.value.pivots]
    L = np.linalg.cholesky(KERNEL(pivots))
    Phi, new = (np.linalg.solve(L, KERNEL(pivots, P)).T for P in (X, Z))
    found = ko.leave_one_out_predictions(problem, theta(X), theta(Z))
    for i in (1, 20):
        k = np.arange(N) != i
        w = np.linalg.solve(Phi[k].T @ Phi[k] + 0.5 * np.eye(6), Phi[k].T @ Y[k])
        assert found[i] == pytest.approx(new @ w, rel=1e-8, abs=1e-8)


def test_rows_without_terms_and_rows_that_are_alone():
    theta, b = ko.Theta(ko.kernels.Delta()), cp.Variable()
    w = np.array([1.0, 0.0, 1.0, 1.0])
    P, new = np.arange(4.0)[:, None], np.array([[9.0]])
    f = theta(P) + b
    problem = ko.Problem(cp.Minimize(w @ cp.square(np.arange(4.0) - f) + ko.sum_squares(theta)))
    problem.solve()
    found = ko.leave_one_out_predictions(problem, f, theta(new) + b)
    assert found[1] == pytest.approx((theta(new) + b).value, abs=1e-9)
    assert found[[0, 2, 3], 0] == pytest.approx([2.5, 1.5, 1.0], abs=1e-9)
    only = ko.Problem(cp.Minimize(cp.square(1 - b - theta(P[:1])[0]) + ko.sum_squares(theta)))
    only.solve()
    assert np.isnan(ko.leave_one_out_predictions(only, theta(P[:1]) + b, theta(P) + b)).all()


def test_bad_inputs():
    theta, other = ko.Theta(KERNEL), ko.Theta(KERNEL)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(Y - theta(X)) + ko.sum_squares(theta)))
    with pytest.raises(KernelOptError, match="a solved problem"):
        ko.leave_one_out_predictions(problem, theta(X), theta(Z))
    problem.solve()
    call = lambda *args, **options: ko.leave_one_out_predictions(problem, *args, **options)
    for args, options, error, words in (
        ((theta(X), other(Z)), {}, DataError, "by a θ of the problem; A·.* is by another"),
        ((theta(X), theta(Z) + cp.Variable()), {}, DataError, "variables of the problem"),
        ((theta(X), Z), {}, DataError, "a real affine expression.*got array"),
        ((theta(X), cp.square(theta(Z))), {}, DataError, "a real affine expression"),
        ((theta(X), theta(Z)[:, None]), {}, DataError, "new of shape .* like f, .40,.; got .7, 1."),
        ((theta(Z), theta(Z)), {}, DataError, "predictions of the problem"),
        ((1.0, theta(Z)), {}, DataError, "a real affine expression"),
        ((theta(X), theta(Z)), {"refit": "yes"}, OptionError, "refit to be True or False"),
    ):
        with pytest.raises(error, match=words):
            call(*args, **options)
