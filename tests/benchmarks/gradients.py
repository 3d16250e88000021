"""Gradients and tuning: against cvxpy's own derivatives, our own solves, grids, and Gaussian processes.

    python tests/benchmarks/gradients.py [--quick]

Times are medians of runs in turn, with BLAS on one thread (set OPENBLAS_NUM_THREADS=1). Errors are those of d/dλ,
relative to central differences over optima that are exact to rounding. cvxpy's row needs diffcp.
"""

from __future__ import annotations

import argparse
import importlib.util
import warnings
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import cvxpy as cp
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import kernelopt as ko


def seconds(call: Callable[[], Any], runs: int = 1) -> tuple[float, Any]:
    times, found = [], None
    for _ in range(runs):
        start = perf_counter()
        found = call()
        times.append(perf_counter() - start)
    return median(times), found


def data(N: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, d))
    return X, np.sign(np.sin(2 * X[:, 0]) + X[:, 1 % d] ** 2 - 1 + 0.3 * rng.standard_normal(N))


def logistic(N: int, kernel: Any, d: int) -> tuple[ko.Problem, cp.Expression, cp.Parameter, ko.Theta, Any]:
    """The problem, the loss of other rows, λ, θ, and the data."""
    X, y = data(N, d)
    Z, z = data(N // 4, d, seed=1)
    lam = cp.Parameter(nonneg=True, value=0.5, name="lam")
    theta = ko.Theta(kernel)
    losses = ko.losses.log_loss(y, theta(X))
    problem = ko.Problem(cp.Minimize(cp.sum(losses) + lam * ko.sum_squares(theta)))
    return problem, cp.sum(ko.losses.log_loss(z, theta(Z))), lam, theta, (X, y, Z, z)


def difference(problem: ko.Problem, criterion: Any, p: cp.Parameter, h: float = 1e-4) -> float:
    value, found = float(p.value), []
    for k in (-2, -1, 1, 2):
        p.value = value + k * h
        problem.solve()
        found.append(ko.gradient(problem, criterion, [p]).value)
    p.value = value
    problem.solve()
    return float(found[0] - 8 * found[1] + 8 * found[2] - found[3]) / (12 * h)


def against_cvxpy(N: int, runs: int) -> None:
    """d/dλ of the loss of other rows, with the solve."""
    problem, criterion, lam, theta, (X, y, Z, z) = logistic(N, ko.kernels.Gaussian(sigma=14.0), 4)
    problem.solve()

    def ours() -> Any:
        again = logistic(N, ko.kernels.Gaussian(sigma=14.0), 4)
        again[0].solve()
        return ko.gradient(again[0], again[1], [again[2]])

    took, found = seconds(ours, runs)
    known = difference(problem, criterion, lam)
    ((_, slope),) = found.items()
    factor = problem._factored.reduction.factors[theta]
    rank = factor.rank
    print(f"logistic N = {N}, r = {rank}: ours {took:.3f} s in all, error {abs(slope - known) / abs(known):.1e}")
    if importlib.util.find_spec("diffcp") is None:
        print("  cvxpy: diffcp is not installed")
        return
    B = np.sqrt(factor.scale) * factor.B
    features = theta.kernel(Z, X[factor.pivots]) @ np.linalg.inv(B[factor.pivots]).T

    def theirs() -> tuple[float, float]:
        w, l2 = cp.Variable(B.shape[1]), cp.Parameter(nonneg=True, value=0.5)
        stated = cp.Problem(cp.Minimize(cp.sum(cp.logistic(cp.multiply(-y, B @ w))) + l2 * cp.sum_squares(w)))
        stated.solve(requires_grad=True)
        margins = z * (features @ w.value)
        w.gradient = features.T @ (-z / (1 + np.exp(margins)))
        stated.backward()
        return float(l2.gradient), 0.0

    took_theirs, (slope_theirs, _) = seconds(theirs)
    error = abs(slope_theirs - known) / abs(known)
    print(f"  cvxpy + diffcp {took_theirs:.2f} s, error {error:.1e}: ours is {took_theirs / took:.0f} times faster")


def many_parameters(N: int) -> None:
    """σ, λ and a weight of each row at once, beside the solve."""
    X, y = data(N, 4)
    Z, z = data(N // 4, 4, seed=1)
    sigma, lam = (cp.Parameter(pos=True, value=v, name=n) for v, n in ((1.5, "sigma"), (0.5, "lam")))
    w = cp.Parameter(N, nonneg=True, value=np.ones(N), name="w")
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=sigma)), cp.Variable()
    losses = ko.losses.log_loss(y, theta(X) + b)
    problem = ko.Problem(cp.Minimize(w @ losses + lam * ko.sum_squares(theta)))
    forward, _ = seconds(problem.solve)
    criterion = cp.sum(ko.losses.log_loss(z, theta(Z) + b))
    backward, _ = seconds(lambda: ko.gradient(problem, criterion), 3)
    print(f"log-loss N = {N}: solve {forward:.2f} s, gradient by σ, λ and {N} weights {backward:.2f} s, "
          f"{backward / forward:.2f} ×")  # fmt: skip


def length_scales(N: int) -> None:
    """All of 50 length scales beside one."""
    times = []
    for d, kind in ((50, "ard"), (50, "one")):
        X, y = data(N, d)
        scales = cp.Parameter(d if kind == "ard" else (), pos=True, value=np.full(d, 8.0) if kind == "ard" else 8.0)
        kernel = ko.kernels.Gaussian(1.0).ard(scales) if kind == "ard" else ko.kernels.Gaussian(scales)
        theta = ko.Theta(kernel)
        problem = ko.Problem(cp.Minimize(cp.sum(ko.losses.log_loss(y, theta(X))) + 0.5 * ko.sum_squares(theta)))
        problem.solve()
        criterion = cp.sum_squares(theta(X[: N // 4] + 0.1))
        times.append(seconds(lambda: ko.gradient(problem, criterion, [scales]), 3)[0])  # noqa: B023
    print(f"50 length scales N = {N}: {times[0]:.2f} s beside {times[1]:.2f} s for one, {times[0] / times[1]:.2f} ×")


def against_grids(values: int, most: int) -> None:
    """σ and λ on breast_cancer, 5 folds: log-loss of rows left out, and a grid of SVC for scale."""
    X, y = (part[:most] for part in load_breast_cancer(return_X_y=True))
    X, y = StandardScaler().fit_transform(X), 2.0 * y - 1
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))
    sigma, lam = (cp.Parameter(pos=True, value=v, name=n) for v, n in ((5.0, "sigma"), (1.0, "lam")))
    w = cp.Parameter(len(y), nonneg=True, value=np.ones(len(y)), name="w")
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=sigma)), cp.Variable()
    losses = ko.losses.log_loss(y, theta(X) + b)
    problem = ko.Problem(cp.Minimize(w @ losses + lam * ko.sum_squares(theta)))
    took, found = seconds(
        lambda: ko.tune(problem, ko.CrossValidatedLoss(w, losses, folds), [sigma, lam],
                        {sigma: (0.5, 100.0), lam: (1e-4, 1e2)})
    )  # fmt: skip
    right = []
    for train, test in folds:
        weights = np.zeros(len(y))
        weights[train] = 1.0
        w.value = weights
        problem.solve()
        right.append(np.mean(np.sign(theta.value(X[test]) + b.value) == y[test]))
    w.value = np.ones(len(y))
    print(f"breast_cancer: tune {len(found)} evaluations, {5 * len(found)} solves, {took:.1f} s, log-loss "
          f"{found.value:.4f}, accuracy {np.mean(right):.4f}")  # fmt: skip

    def grid() -> tuple[float, int]:
        best, solves = np.inf, 0
        for value in np.geomspace(0.5, 100.0, values):
            sigma.value = value
            table = ko.cross_validate(problem, w, lam, np.geomspace(1e-4, 1e2, values), cv=folds, tol=1e-3)
            best, solves = min(best, float(table["mean"].min())), solves + 5 * values
        return best, solves

    took_grid, (best, solves) = seconds(grid)
    print(f"  our grid {values} × {values}: {solves} solves, {took_grid:.1f} s, log-loss {best:.4f}")
    parameters = {
        "gamma": 1 / (2 * np.geomspace(0.5, 100.0, values) ** 2),
        "C": 1 / (2 * np.geomspace(1e-4, 1e2, values)),
    }
    took_svc, search = seconds(lambda: GridSearchCV(SVC(), parameters, cv=folds).fit(X, y))
    print(f"  GridSearchCV(SVC): {5 * values**2} fits, {took_svc:.1f} s, accuracy {search.best_score_:.4f}")


def against_gaussian_processes(N: int, d: int) -> None:
    """A length scale for each of d columns, of which 5 tell something."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(2 * N, d))
    f = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] / 2 + np.cos(X[:, 3]) - X[:, 4] ** 2 / 4
    y = f + 0.3 * rng.standard_normal(2 * N)
    scales = cp.Parameter(d, pos=True, value=np.full(d, 3.0), name="scales")
    lam = cp.Parameter(pos=True, value=0.3, name="lam")
    theta, b = ko.Theta(ko.kernels.Gaussian(1.0).ard(scales)), cp.Variable()
    half = N // 2
    squares = cp.sum_squares(y[:half] - theta(X[:half]) - b)
    problem = ko.Problem(cp.Minimize(squares + lam * ko.sum_squares(theta)))
    criterion = cp.sum_squares(y[half:N] - theta(X[half:N]) - b) / half
    took, found = seconds(lambda: ko.tune(problem, criterion, [scales, lam], max_evaluations=60))
    final = ko.Problem(cp.Minimize(cp.sum_squares(y[:N] - theta(X[:N]) - b) + lam * ko.sum_squares(theta)))
    final.solve()
    ours = float(np.mean((theta.value(X[N:]) + b.value - f[N:]) ** 2))
    warnings.simplefilter("ignore", ConvergenceWarning)
    process = GaussianProcessRegressor(RBF(np.full(d, 3.0)) + WhiteKernel(0.1), normalize_y=True)
    took_theirs, _ = seconds(lambda: process.fit(X[:N], y[:N]))
    theirs = float(np.mean((process.predict(X[N:]) - f[N:]) ** 2))
    print(f"{d} length scales, N = {N}: tune {took:.1f} s ({len(found)} evaluations), error {ours:.4f}; "
          f"GaussianProcessRegressor {took_theirs:.1f} s, error {theirs:.4f}; {took / took_theirs:.2f} ×")  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small problems")
    quick = parser.parse_args(arguments).quick
    against_cvxpy(100 if quick else 1000, 1 if quick else 5)
    many_parameters(200 if quick else 5000)
    length_scales(150 if quick else 3000)
    against_grids(2 if quick else 12, 80 if quick else 569)
    against_gaussian_processes(60 if quick else 1000, 6 if quick else 20)


if __name__ == "__main__":
    main()
