"""Bags of points: one row for each bag against a row for each point, with the mean over bags as a product in cvxpy.

    python tests/benchmarks/bags.py [--runs 5]

Times from the statement to the certified answer, medians of runs in turn, each in a process of its own, with the memory
that the run added. BLAS on one thread (set OPENBLAS_NUM_THREADS=1).
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
from statistics import median
from time import perf_counter

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

import kernelopt as ko

CASES = [(2000, 8, "absolute"), (8000, 2, "absolute"), (8000, 2, "squared")]
BAGS, LAM = 40, 0.01


def run(N: int, d: int, loss: str, by_bags: bool) -> tuple[float, float, float, float]:
    """Seconds, megabytes, the optimal value and the certified gap."""
    rng = np.random.default_rng(0)
    X, bags = rng.normal(size=(N, d)), rng.integers(0, BAGS, N)
    means = sp.csr_array((1 / np.bincount(bags)[bags], (bags, np.arange(N))), shape=(BAGS, N))
    y = means @ np.sin(X[:, 0]) + 0.01 * rng.standard_t(2, size=BAGS)
    kernel = ko.kernels.Gaussian(sigma=np.sqrt(d))
    warm = ko.Theta(kernel)  # what is imported and compiled at a first solve
    ko.Problem(cp.Minimize(cp.norm1(warm(X[:5]) - 1) + ko.sum_squares(warm))).solve()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = perf_counter()
    theta = ko.Theta(kernel)
    f = (means @ ko.FeatureMatrix(X, kernel)) @ theta if by_bags else means @ theta(X)
    fit = cp.norm1(y - f) if loss == "absolute" else cp.sum_squares(y - f)
    problem = ko.Problem(cp.Minimize(fit + LAM * ko.sum_squares(theta)))
    problem.solve()
    took = perf_counter() - start
    added = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3
    return took, added, float(problem.value), float(problem.certificate.relative_gap)


def main() -> None:
    parser = argparse.ArgumentParser(description="Bags of points against rows for each point.")
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    print("| N, d, loss | bags: s | MB | rows: s | MB | times faster | gaps |\n|---|---|---|---|---|---|---|")
    spawned = multiprocessing.get_context("spawn")
    for N, d, loss in CASES:
        found: dict[bool, list[tuple[float, float, float, float]]] = {True: [], False: []}
        for _ in range(runs):
            for by_bags in (True, False):
                with spawned.Pool(1) as fresh:
                    found[by_bags].append(fresh.apply(run, (N, d, loss, by_bags)))
        assert np.isclose(found[True][0][2], found[False][0][2], rtol=1e-4)
        (one, more), (other, most) = ([median(r[k] for r in found[way]) for k in (0, 1)] for way in (True, False))
        gaps = f"{found[True][0][3]:.0e}, {found[False][0][3]:.0e}"
        print(f"| {N}, {d}, {loss} | {one:.3f} | {more:.0f} | {other:.3f} | {most:.0f} | {other / one:.1f} | {gaps} |")


if __name__ == "__main__":
    main()
