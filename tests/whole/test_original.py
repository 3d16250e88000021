"""The original problem in θ ∈ Rᵖ, solved with plain cvxpy, has our answer."""

import cvxpy as cp
import numpy as np
import pytest
from inside import reduction_of
from stating import TIGHT, Statement, agree

import kernelopt as ko
from kernelopt import losses

# Both solves ask for 1e-11, to compare solutions at 1e-5; where a solver stops at 1e-10 it says "inaccurate".
pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")

N = 40
KERNELS = {
    "polynomial, 2 columns": (ko.kernels.Polynomial(degree=3), 2),
    "polynomial, 3 columns": (ko.kernels.Polynomial(degree=3, offset=0.5, scale=0.7), 3),
    "linear": (ko.kernels.Linear(), 3),
}


def data(columns, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(N, columns))
    y = np.sin(3 * X[:, 0]) + X[:, -1] ** 2 + 0.2 * rng.standard_t(3, size=N)
    return X, y, np.where(y > np.median(y), 1.0, -1.0), rng.uniform(-1, 1, size=(15, columns))


def penalized(loss, lam=0.1, intercept=False, labels=False):
    def statement(kernel, columns):
        X, y, signs, _ = data(columns)

        def build(language):
            theta, b = language.theta(kernel), cp.Variable()
            f = theta(X) + b if intercept else theta(X)
            objective = cp.sum(loss(signs if labels else y, f)) + lam * language.sum_squares(theta)
            return Statement(cp.Minimize(objective), [], [theta], (b,) if intercept else ())

        return build

    return statement


def norm_unsquared(kernel, columns):
    X, y, _, _ = data(columns)

    def build(language):
        theta = language.theta(kernel)
        return Statement(cp.Minimize(cp.norm(y - theta(X)) + 0.3 * language.norm(theta)), [], [theta])

    return build


def norm_bounded(kernel, columns):
    X, y, _, _ = data(columns)

    def build(language):
        theta = language.theta(kernel)
        return Statement(cp.Minimize(cp.sum_squares(y - theta(X))), [language.norm(theta) <= 0.7], [theta])

    return build


def maximum_margin(kernel, columns):
    X, _, _, _ = data(columns)
    labels = np.where(X[:, 0] + 0.3 > 0, 1.0, -1.0)  # separable by every kernel here, with an intercept

    def build(language):
        theta, b = language.theta(kernel), cp.Variable()
        margins = [cp.multiply(labels, theta(X) + b) >= 1]
        return Statement(cp.Minimize(language.sum_squares(theta)), margins, [theta], (b,))

    return build


def bounded_elsewhere(kernel, columns):
    X, y, _, grid = data(columns)

    def build(language):
        theta = language.theta(kernel)
        objective = cp.sum_squares(y - theta(X)) + 0.1 * language.sum_squares(theta)
        return Statement(cp.Minimize(objective), [theta(grid) >= 0, theta(grid[:3]) <= 0.5], [theta])

    return build


def monotone(kernel, columns):
    X, y, _, _ = data(columns)
    grid = np.column_stack([np.linspace(-1, 1, 12), *np.zeros((columns - 1, 12))])

    def build(language):
        theta = language.theta(kernel)
        objective = cp.sum(losses.absolute_error(y, theta(X))) + 0.2 * language.sum_squares(theta)
        return Statement(cp.Minimize(objective), [cp.diff(theta(grid)) <= 0], [theta])

    return build


def ranking(kernel, columns):
    X, y, _, _ = data(columns)
    better, worse = np.nonzero(y[:, None] > y + 0.8)

    def build(language):
        theta = language.theta(kernel)
        f = theta(X)
        objective = cp.sum(cp.pos(1 - (f[better] - f[worse]))) + language.sum_squares(theta)
        return Statement(cp.Minimize(objective), [], [theta])

    return build


def two_kernels(power):
    def statement(kernel, columns):
        X, y, _, _ = data(columns)

        def build(language):
            one, two = language.theta(kernel), language.theta(20.0 * ko.kernels.Linear())
            norms = language.norm(one) + language.norm(two)
            objective = cp.sum_squares(y - one(X) - two(X)) + 5.0 * (norms if power == 1 else cp.square(norms))
            return Statement(cp.Minimize(objective), [], [one, two])

        return build

    return statement


def crammer_singer(kernel, columns):
    X, y, _, _ = data(columns)
    classes = np.digitize(y, np.quantile(y, [1 / 3, 2 / 3]))

    def build(language):
        theta = language.theta(kernel, outputs=3)
        objective = cp.sum(losses.crammer_singer(classes, theta(X))) + 0.5 * language.sum_squares(theta)
        return Statement(cp.Minimize(objective), [], [theta])

    return build


def several_outputs(kind):
    def statement(kernel, columns):
        X, y, _, _ = data(columns)
        Y = np.column_stack([y, y + X[:, 0], -y])

        def build(language):
            theta = language.theta(kernel, outputs=3)
            objective = cp.sum_squares(Y - theta(X)) + 0.5 * language.norm(theta, kind)
            return Statement(cp.Minimize(objective), [], [theta])

        return build

    return statement


def matrix_in_cones(kernel, columns):
    """A matrix θ beside exponential and semidefinite cones."""
    X, y, _, grid = data(columns)
    Y = np.column_stack([y, y + X[:, 0]])

    def build(language):
        theta, S = language.theta(kernel, outputs=2), cp.Variable((2, 2), symmetric=True)
        g = theta(grid[:2])
        cones = [
            cp.exp(g[:, 0]) <= 1.2 + g[:, 1],
            S >> 0,
            S[0, 0] == g[0, 0] + 1,
            S[1, 1] == 1,
            S[0, 1] == g[1, 1] + 0.6,
        ]
        objective = cp.sum_squares(Y - theta(X)) + 0.3 * language.sum_squares(theta)
        return Statement(cp.Minimize(objective), cones, [theta], (S,))

    return build


def maximize(kernel, columns):
    X, _, _, _ = data(columns)
    labels = np.where(X[:, 0] + 0.3 > 0, 1.0, -1.0)

    def build(language):
        theta, b = language.theta(kernel), cp.Variable()
        objective = cp.min(cp.multiply(labels, theta(X) + b)) - 0.01 * language.norm(theta)
        return Statement(cp.Maximize(objective), [language.norm(theta) <= 2], [theta], (b,))

    return build


def outputs_apart(kernel, columns):
    X, y, _, _ = data(columns)
    Y = np.column_stack([y, y + X[:, 0], -y])

    def build(language):
        theta = language.theta(kernel, outputs=3)
        penalty = language.norm(theta[:, 0]) + 2 * language.norm(theta[:, 1]) + 0.5 * language.norm(theta[:, 1:], "fro")
        return Statement(cp.Minimize(cp.sum_squares(Y - theta(X)) + penalty), [], [theta])

    return build


UNIQUE = {
    "regularized least squares": penalized(losses.squared_error),
    "l1": penalized(losses.absolute_error),
    "huber": penalized(lambda y, f: losses.huber(y, f, 0.3)),
    "pinball": penalized(lambda y, f: losses.pinball(y, f, 0.8)),
    "epsilon insensitive": penalized(lambda y, f: losses.epsilon_insensitive(y, f, 0.2)),
    "logistic": penalized(losses.log_loss, labels=True),
    "logistic with intercept": penalized(losses.log_loss, labels=True, intercept=True),
    "squared hinge": penalized(losses.squared_hinge, labels=True),
    "svm": penalized(losses.hinge, labels=True),
    "svm with intercept": penalized(losses.hinge, labels=True, intercept=True, lam=0.05),
    "poisson": penalized(lambda y, f: losses.poisson(np.round(np.abs(y)), f)),
    "maximum margin": maximum_margin,
    "norm unsquared": norm_unsquared,
    "norm bounded": norm_bounded,
    "bounded outside the training set": bounded_elsewhere,
    "monotone on a grid": monotone,
    "pairwise ranking": ranking,
    "two kernels": two_kernels(1),
    "two kernels, squared sum": two_kernels(2),
    "crammer singer": crammer_singer,
    "frobenius": several_outputs("fro"),
    "nuclear": several_outputs("nuc"),
    "spectral": several_outputs(2),
    "matrix in cones": matrix_in_cones,
    "maximize": maximize,
    "outputs apart": outputs_apart,
}


@pytest.mark.one_row
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("problem", UNIQUE)
def test_same_answer_as_the_original_problem(problem, name):
    kernel, columns = KERNELS[name]
    agree(UNIQUE[problem](kernel, columns), columns, data(columns)[3])


DUALS = [
    "maximum margin",
    "norm bounded",
    "bounded outside the training set",
    "matrix in cones",
    "maximize",
]


@pytest.mark.later
@pytest.mark.parametrize("problem", DUALS)
def test_duals_of_constraints(problem):
    kernel, columns = KERNELS["polynomial, 2 columns"]
    ours, explicit = agree(UNIQUE[problem](kernel, columns), columns, data(columns)[3])
    for a, b in zip(ours["duals"], explicit["duals"], strict=True):
        assert np.abs(a - b).max() <= 1e-5 * max(1.0, np.abs(b).max())


@pytest.mark.later
def test_duals_of_predictions():
    """ν is the multiplier of u == Φθ, row by row, where rows repeat too."""
    kernel, columns = KERNELS["polynomial, 2 columns"]
    X, _, labels, _ = data(columns)
    X = np.vstack([X, X[:5]])
    labels = np.concatenate([labels, -labels[:2], labels[2:5]])
    theta, b = ko.Theta(kernel), cp.Variable()
    hinge = cp.sum(losses.squared_hinge(labels, theta(X) + b))
    ko.Problem(cp.Minimize(hinge + 0.1 * ko.sum_squares(theta))).solve(**TIGHT)

    u, t = cp.Variable(len(X)), cp.Variable(10)
    link = u == kernel.features(X) @ t
    loss = cp.sum(losses.squared_hinge(labels, u + cp.Variable()))
    cp.Problem(cp.Minimize(loss + 0.1 * cp.sum_squares(t)), [link]).solve("CLARABEL", **TIGHT)
    assert np.abs(theta(X).dual_value - link.dual_value).max() < 1e-6
    assert abs(theta(X).dual_value.sum()) < 1e-8  # the intercept's stationarity


def test_unpenalized_first_coefficient():
    """Least squares on (1, x₁, …) with θ₁ left out of the penalty is a cp.Variable beside θ."""
    X, y, _, _ = data(3)
    theta, b = ko.Theta(ko.kernels.Linear()), cp.Variable()
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X) - b) + 2 * ko.sum_squares(theta)))
    value = problem.solve(**TIGHT)

    Phi, full = np.column_stack([np.ones(N), X]), cp.Variable(4)
    explicit = cp.Problem(cp.Minimize(cp.sum_squares(y - Phi @ full) + 2 * cp.sum_squares(full[1:])))
    assert abs(value - explicit.solve("CLARABEL", **TIGHT)) < 1e-7 * value
    assert abs(b.value - full.value[0]) < 1e-6
    assert np.abs(theta.value(np.eye(3)) - full.value[1:]).max() < 1e-6


@pytest.mark.parametrize("name", KERNELS)
def test_push_through(name):
    """Aᵀ(AAᵀ + λI)⁻¹y = (AᵀA + λI)⁻¹Aᵀy, and our least squares is that function."""
    kernel, columns = KERNELS[name]
    X, y, _, X_new = data(columns)
    lam, Phi = 0.1, kernel.features(X)
    dual = ko.Function(kernel, X, np.linalg.solve(kernel(X) + lam * np.eye(N), y))
    primal = kernel.features(X_new) @ np.linalg.solve(Phi.T @ Phi + lam * np.eye(Phi.shape[1]), Phi.T @ y)
    assert np.abs(dual(X_new) - primal).max() < 1e-9 * np.abs(primal).max()

    theta = ko.Theta(kernel)
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta)))
    problem.solve(**TIGHT)
    assert np.abs(theta.value(X_new) - primal).max() < 1e-8
    assert abs(theta.value.norm - dual.norm) < 1e-8 * dual.norm
    # In the factor, with v = √scale·w and BᵀB in place of AᵀA:
    factor = reduction_of(problem).factors[theta]
    B = np.sqrt(factor.scale) * factor.B
    w = np.linalg.solve(B.T @ B + lam * np.eye(factor.rank), B.T @ y)
    alpha = np.linalg.solve(B @ B.T + lam * np.eye(N), y)
    assert np.abs(w - B.T @ alpha).max() < 1e-9 * np.abs(w).max()
    assert np.abs(B @ w - Phi @ np.linalg.solve(Phi.T @ Phi + lam * np.eye(Phi.shape[1]), Phi.T @ y)).max() < 1e-9
