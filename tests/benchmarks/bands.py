"""Jackknife+ from one decomposition, beside N fits of scikit-learn's KernelRidge that leave out a row each.

    python tests/benchmarks/bands.py [--quick]

Both give the interval of level 0.9 at 200 new points, for squares without an intercept and a Gaussian kernel. Ours is
stated, solved and certified anew in each run. The peer computes its kernel matrix once and fits with
kernel="precomputed", which is the faster way. Runs take turns, with new data each, and BLAS on one thread (set
OPENBLAS_NUM_THREADS=1). Seconds are medians; the last column is the largest difference of the ends. At 1000
rows it shows the rank of the factor: our fits stay in the span of its pivots.
"""

from __future__ import annotations

import argparse
import gc
from statistics import median
from time import perf_counter

import cvxpy as cp
import numpy as np
from sklearn.kernel_ridge import KernelRidge

import kernelopt as ko

LAM, SIGMA, LEVEL, NEW = 0.5, 1.5, 0.9, 200


def data(N: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X, Z = rng.standard_normal((N, 4)), rng.standard_normal((NEW, 4))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * rng.standard_normal(N), Z


def ours(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    theta = ko.Theta(ko.kernels.Gaussian(sigma=SIGMA))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)) + LAM * ko.sum_squares(theta)))
    problem.solve()
    band = ko.jackknife(problem, theta(X), y, theta(Z), level=LEVEL)
    return band.lower, band.upper


def by_refits(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    kernel = ko.kernels.Gaussian(sigma=SIGMA)
    Q, R, N = kernel(X), kernel(Z, X), len(X)
    low, high = np.empty((N, len(Z))), np.empty((N, len(Z)))
    for i in range(N):
        k = np.flatnonzero(np.arange(N) != i)
        model = KernelRidge(alpha=LAM, kernel="precomputed").fit(Q[np.ix_(k, k)], y[k])
        residual, new = abs(y[i] - model.predict(Q[[i]][:, k])[0]), model.predict(R[:, k])
        low[i], high[i] = new - residual, new + residual
    rank = int(np.ceil(LEVEL * (N + 1)))
    return np.sort(low, axis=0)[N - rank], np.sort(high, axis=0)[rank - 1]


def measured(N: int, runs: int) -> tuple[float, float, float]:
    """Median seconds of both, and the largest difference of the ends."""
    times: tuple[list[float], list[float]] = [], []
    apart = 0.0
    for seed in range(runs):
        rows, found = data(N, seed), []
        for method, seconds in zip((ours, by_refits), times, strict=True):
            gc.collect()
            begun = perf_counter()
            found.append(method(*rows))
            seconds.append(perf_counter() - begun)
        apart = max(apart, float(np.abs(np.array(found[0]) - np.array(found[1])).max()))
    return median(times[0]), median(times[1]), apart


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="100 and 200 rows only")
    quick = parser.parse_args().quick
    print("rows  one decomposition  N refits  ratio  difference")
    for N, runs in ((100, 5), (200, 5)) if quick else ((100, 5), (200, 5), (500, 5), (1000, 3)):
        mine, theirs, apart = measured(N, runs)
        print(f"{N:4d}  {mine:17.3f}  {theirs:8.2f}  {theirs / mine:5.0f}  {apart:10.1e}", flush=True)


if __name__ == "__main__":
    main()
