"""Seeded random problems, against cvxpy: losses × penalties × intercept × constraints × duplicates × kernels,
one θ, two, or a matrix."""

import cvxpy as cp
import numpy as np
import pytest
from stating import Statement, agree

import kernelopt as ko
from kernelopt import losses

pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")

COUNT = 100
REGRESSION = [
    losses.squared_error,
    losses.absolute_error,
    lambda y, f: losses.huber(y, f, 0.4),
    lambda y, f: losses.pinball(y, f, 0.3),
    lambda y, f: losses.epsilon_insensitive(y, f, 0.15),
    lambda y, f: losses.poisson(np.round(np.abs(y)), f),
    lambda y, f: cp.power(cp.abs(y - f), 1.5),
    lambda y, f: cp.maximum(cp.square(y - f), 0.2 * (y - f)),
]
CLASSIFICATION = [losses.hinge, losses.squared_hinge, losses.log_loss, lambda y, f: cp.exp(-cp.multiply(y, f))]


def random_problem(seed):
    """A builder, and the number of columns. Every problem is feasible at θ = 0, b = 0."""
    rng = np.random.default_rng(seed)
    columns = int(rng.integers(1, 4))
    kernel = [
        ko.kernels.Linear(),
        ko.kernels.Polynomial(degree=int(rng.integers(2, 4)), offset=float(rng.uniform(0, 2))),
        ko.kernels.Linear() * ko.kernels.Polynomial(degree=1) + 0.5 * ko.kernels.Polynomial(degree=2),
    ][rng.integers(3)]
    n = int(rng.integers(1, 30))
    X = rng.uniform(-1, 1, size=(n, columns))
    X = X[rng.integers(n, size=n)] if rng.random() < 0.4 else X
    y = rng.normal(size=n)
    classify = rng.random() < 0.5
    loss = [REGRESSION, CLASSIFICATION][classify][rng.integers(8 if not classify else 4)]
    y = np.where(y > 0, 1.0, -1.0) if classify else y
    weights = rng.uniform(0, 2, size=n)
    grid = rng.uniform(-1, 1, size=(int(rng.integers(2, 6)), columns))
    strength, intercept, penalty = float(rng.uniform(0.1, 2)), rng.random() < 0.5, rng.integers(3)
    bound, slope, mean, negate, second, matrix = rng.random(6) < 0.3
    second = second and not matrix

    kinds = rng.integers(3)

    def build(language):
        theta, b = language.theta(kernel, outputs=2 if matrix else None), cp.Variable()
        other = language.theta(ko.kernels.Polynomial(degree=1)) if second else None
        f = theta(X)[:, 0] + 0.5 * theta(X)[:, 1] if matrix else theta(X)
        f = f + other(X) if second else f
        f = f + b if intercept else f
        lam = cp.Parameter(nonneg=True, value=strength)
        objective = weights @ loss(y, f) + (1e-3 * cp.square(b) if intercept else 0.0)
        constraints = []
        kind = ["fro", "nuc", 2][kinds] if matrix else None
        if penalty != 1:
            objective = objective + lam * language.sum_squares(theta)
        else:
            objective = objective + lam * language.norm(theta, kind)
        if second:
            objective = objective + strength * language.sum_squares(other)
        if penalty == 2:
            constraints.append(language.norm(theta, kind) <= 1.5)
        if bound:
            constraints += [theta(grid) <= 0.3, theta(X) >= -2]
        if slope:
            constraints.append(cp.diff(theta(grid)) >= -0.1)
        if mean:
            constraints.append(cp.sum(theta(grid)) == 0)
        goal = cp.Maximize(-objective) if negate else cp.Minimize(objective)
        return Statement(goal, constraints, [theta, other] if second else [theta], (b,) if intercept else ())

    return build, columns, penalty != 1


@pytest.mark.slow
@pytest.mark.one_row
@pytest.mark.parametrize("seed", range(COUNT))
def test_random_problem(seed):
    build, columns, unique = random_problem(seed)
    X_new = np.random.default_rng(seed + 1000).uniform(-1, 1, size=(9, columns))
    agree(build, columns, X_new, unique=unique, solution=1e-4)
