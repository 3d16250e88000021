"""What an estimator costs beyond the problem that it states, and a grid search beside scikit-learn's SVC.

    python tests/benchmarks/estimators.py [--quick]

Every number is a median; runs of ours and of others take turns, with BLAS on one thread (set OPENBLAS_NUM_THREADS=1).
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import kernelopt as ko

es = ko.estimators
SIGMA = 1.0
ALPHAS, SIGMAS = np.geomspace(0.01, 100, 5), np.geomspace(1, 100, 5)


class Overhead(NamedTuple):
    """Seconds of the bare problem, of the estimator relative to it, and how far predictions are apart."""

    name: str
    bare: float
    ratio: float
    difference: float


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    gc.collect()
    start = perf_counter()
    result = call()
    return perf_counter() - start, result


def bare(loss: Callable[[Any, Any], Any], X: Any, y: Any) -> Callable[[Any], Any]:
    """State and solve, and return f: what a user would write."""
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=SIGMA)), cp.Variable()
    f = theta(X) + b
    ko.Problem(cp.Minimize(cp.sum(loss(y, f)) + ko.sum_squares(theta))).solve()
    return lambda Z: theta.value(Z) + b.value


def overheads(N: int, runs: int) -> list[Overhead]:
    """Fits of N points in 10 dimensions, stated by hand and by estimators, in turn."""
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(N, 10)) / 3, rng.normal(size=(100, 10)) / 3
    X = X[X[:, 0].argsort()]  # as estimators do, so that both solve the same problem to the last digit
    y = np.sin(3 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=N)
    labels = np.where(y > 0, 1.0, -1.0)
    kernel = ko.kernels.Gaussian(sigma=SIGMA)
    cases = [
        ("squared_error", ko.losses.squared_error, es.KernelRegressor, y),
        ("absolute_error", ko.losses.absolute_error, es.KernelRegressor, y),
        ("hinge", ko.losses.hinge, es.KernelClassifier, labels),
        ("log_loss", ko.losses.log_loss, es.KernelClassifier, labels),
    ]
    found = []
    for name, loss, estimator, target in cases:
        pairs, apart = [], 0.0

        def by_hand(loss=loss, target=target):
            return bare(loss, X, target)

        def fitted(estimator=estimator, name=name, target=target):
            return estimator(name, alpha=1.0, kernel=kernel).fit(X, target)

        for run in range(runs):
            if run % 2:  # who comes first takes turns too
                (other, model), (one, f) = seconds(fitted), seconds(by_hand)
            else:
                (one, f), (other, model) = seconds(by_hand), seconds(fitted)
            pairs.append((one, other))
            value = getattr(model, "decision_function", model.predict)(Z)
            apart = max(apart, float(np.abs(f(Z) - value).max()))
        one, other = (median(column) for column in zip(*pairs, strict=True))
        found.append(Overhead(name, one, other / one, apart))
    return found


class Search(NamedTuple):
    """A grid search: milliseconds of a fit (with its scoring), and the best accuracy of held-out rows."""

    name: str
    milliseconds: float
    score: float


def searches(rows: int, folds: int) -> list[Search]:
    """α (C = 1/(2α)) × σ on breast_cancer, standardized once."""
    data = load_breast_cancer()
    X, y = StandardScaler().fit_transform(data.data)[:rows], data.target[:rows]
    kernels = [ko.kernels.Gaussian(sigma=s) for s in SIGMAS]
    grids = {
        "SVC": (SVC(), {"C": 1 / (2 * ALPHAS), "gamma": 1 / (2 * SIGMAS**2)}),
        "KernelClassifier": (es.KernelClassifier(), {"alpha": ALPHAS, "kernel": kernels}),
        "KernelClassifier, tol=1e-3": (es.KernelClassifier(tol=1e-3), {"alpha": ALPHAS, "kernel": kernels}),
        "KernelClassifier, kernel.cached(X)": (
            es.KernelClassifier(), {"alpha": ALPHAS, "kernel": [k.cached(X) for k in kernels]},
        ),
    }  # fmt: skip
    found = []
    for name, (estimator, grid) in grids.items():
        took, search = seconds(lambda e=estimator, g=grid: GridSearchCV(e, g, cv=folds, refit=False).fit(X, y))
        fits = len(search.cv_results_["params"]) * folds
        found.append(Search(name, 1e3 * took / fits, search.best_score_))
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    quick = parser.parse_args(arguments).quick
    N, runs = (100, 1) if quick else (2000, 9)
    print(f"Estimator beside the bare problem, N = {N}, {runs} runs; target ≤ 1.05\n")
    print(f"| {'loss':<16} | bare problem | estimator/bare | predictions apart |")
    print(f"|{'-' * 18}|{'-' * 13}:|{'-' * 15}:|{'-' * 18}:|")
    for row in overheads(N, runs):
        print(f"| {row.name:<16} | {row.bare:>10.3f} s | {row.ratio:>14.3f} | {row.difference:>17.1e} |")
    rows, folds = (80, 2) if quick else (569, 5)
    print(f"\nGrid search 5 × 5, {folds} folds, breast_cancer, {rows} rows\n")
    print(f"| {'estimator':<36} | ms a fit | best accuracy |")
    print(f"|{'-' * 38}|{'-' * 9}:|{'-' * 14}:|")
    for found in searches(rows, folds):
        print(f"| {found.name:<36} | {found.milliseconds:>8.1f} | {found.score:>13.4f} |")


if __name__ == "__main__":
    main()
