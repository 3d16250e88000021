"""Constraints in a whole box: `ko.everywhere` beside a grid with the margin of the modulus, and its proofs."""

from time import perf_counter

import cvxpy as cp
import numpy as np
from statsmodels.datasets import engel

import kernelopt as ko
from kernelopt.boxes import bend, exchange


def slope(theta, P, j=0):
    return ko.FeatureMatrix(P, theta.kernel).derivative(j) @ theta


def timed(problem, **options):
    start = perf_counter()
    problem.solve(**options)
    return perf_counter() - start


def reported(name, problem, seconds, boxes):
    c = problem.certificate
    relative, solves, points = (
        (c.upper - c.lower) / abs(c.upper),
        len(problem.history.rounds),
        [len(b.points) for b in boxes],
    )
    print(
        f"{name}: {seconds:.2f} s, {solves} solves, {sum(points)} points, {problem.status}, "
        f"[{c.lower:.7g}, {c.upper:.7g}], "
        f"relative width {relative:.1e}, g ≥ {min(b.least for b in boxes):.1e}"
    )


def with_margin(objective, slopes, radius, theta):
    constraints = [A.modulus(radius)[0] * ko.norm(theta) <= A @ theta for A in slopes]
    problem = ko.Problem(objective, constraints)
    return timed(problem), problem.value


def in_one_column(rng):
    X = np.sort(rng.uniform(0, 6, 200))[:, None]
    y = np.tanh(X[:, 0] - 3) + 0.3 * rng.normal(size=200)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=0.5))
    objective = cp.Minimize(cp.sum_squares(theta(X) - y) + 0.1 * ko.sum_squares(theta))
    for tol in (1e-5, 1e-7):
        box = ko.everywhere(lambda P: slope(theta, P) >= 0, 0.0, 6.0)
        problem = ko.Problem(objective, [box])
        reported(f"rising, N = 200, tol {tol:g}", problem, timed(problem, tol=tol), [box])
    centres = np.linspace(0.015, 5.985, 200)[:, None]
    seconds, value = with_margin(objective, [ko.FeatureMatrix(centres, theta.kernel).derivative(0)], 0.015, theta)
    print(f"  200 points + margin: {seconds:.2f} s, {value:.7g}")


def in_two_columns(rng, sigma):
    X = rng.uniform(size=(100, 2))
    y = np.tanh(4 * X.sum(axis=1) - 4) + 0.2 * rng.normal(size=100)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=sigma))
    objective = cp.Minimize(cp.sum_squares(theta(X) - y) + 0.1 * ko.sum_squares(theta))
    boxes = [ko.everywhere(lambda P, j=j: slope(theta, P, j) >= 0, [0.0, 0.0], [1.0, 1.0]) for j in (0, 1)]
    problem = ko.Problem(objective, boxes)
    reported(f"rising in two columns, N = 100, sigma {sigma:g}", problem, timed(problem, tol=1e-5), boxes)
    at = (np.arange(30) + 0.5) / 30
    centres = np.stack(np.meshgrid(at, at), axis=-1).reshape(-1, 2)
    A = ko.FeatureMatrix(centres, theta.kernel)
    seconds, value = with_margin(objective, [A.derivative(0), A.derivative(1)], np.sqrt(0.5) / 30, theta)
    lost = (value - problem.value) / problem.value
    print(f"  30 × 30 points + margin: {seconds:.2f} s, {value:.5g}, {100 * lost:.0f} % of the objective lost")


def quantiles():
    data = engel.load_pandas().data
    x = (data["income"].to_numpy() / 1000)[:, None]
    y, taus = data["foodexp"].to_numpy() / 1000, np.array([0.1, 0.25, 0.5, 0.75, 0.9])
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0), outputs=5), cp.Variable((1, 5))
    f = lambda P: theta(P) + np.ones((len(P), 1)) @ b
    loss = cp.sum(ko.losses.pinball(np.tile(y[:, None], 5), f(x), taus))
    low, high = float(x.min()), float(x.max())
    boxes = [
        ko.everywhere(lambda P: f(P)[:, 1:] - f(P)[:, :-1] >= 0, low, high),
        ko.everywhere(lambda P: slope(theta, P) >= 0, low, high),
    ]
    problem = ko.Problem(cp.Minimize(loss + 0.01 * ko.sum_squares(theta)), boxes)
    reported("engel, 5 quantiles, rising and never crossing", problem, timed(problem, tol=1e-5), boxes)


def proofs(count, rng):
    """Proven least values of random functions beside those of a fine grid."""
    above, loose, seconds = 0, 0, 0.0
    for number in range(count):
        d = 1 + number % 3
        kernel = ko.kernels.Gaussian(sigma=float(rng.uniform(0.2, 1.0)) * (1 + (d == 3)))
        theta = ko.Theta(kernel)
        theta.value = ko.Function(kernel, rng.uniform(size=(10, d)), rng.normal(size=10))
        box = ko.everywhere(lambda P, theta=theta: theta(P) >= 0, np.zeros(d), np.ones(d))
        start = perf_counter()
        found = exchange.look(box, bend.structure(box))
        seconds += perf_counter() - start
        axes = [np.linspace(0, 1, [5001, 101, 31][d - 1])] * d
        least = theta.value(np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, d)).min()
        above += found.bound > least
        loose += found.bound < (1.1 + 0.05 * (d > 1)) * least if least < 0 else found.bound < 0 and least > 1e-3
    print(
        f"{count} random functions in 1 to 3 columns: {above} bounds above a grid's least value, "
        f"{loose} off by more than 10 %, {seconds:.1f} s"
    )


if __name__ == "__main__":
    in_one_column(np.random.default_rng(0))
    for width in (0.5, 0.25):
        in_two_columns(np.random.default_rng(0), width)
    quantiles()
    proofs(1000, np.random.default_rng(0))
