"""Kernel matrices against scikit-learn and scipy: time ratios in one run, and peak memory.

    python tests/benchmarks/kernels.py

BLAS on one thread; peers alternate, medians of the ratios are printed beside the targets.
"""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc

import numpy as np
import threadpoolctl
from scipy.spatial.distance import cdist
from sklearn.metrics import pairwise

import kernelopt as ko

ks = ko.kernels
RNG = np.random.default_rng(0)
N, D = 5000, 20


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def ratio(ours, theirs, runs):
    """Median of time ratios, in turn, after one run of each that is not counted."""
    ours(), theirs()
    return statistics.median(seconds(ours) / seconds(theirs) for _ in range(runs))


def peak(call, n):
    """Largest memory during the call, in n×n matrices."""
    tracemalloc.start()
    call()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most / (8 * n * n)


def direct_sum(X, Z, c):
    """Σᵢ cᵢ Σⱼ min(xⱼ, z_ij), point by point."""
    return np.array([np.minimum(x, Z).sum(axis=1) @ c for x in X])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    X = RNG.normal(size=(N, D))
    H = RNG.uniform(size=(1500, D))
    gaussian, gamma = ks.Gaussian(sigma=4.0), 1 / 32
    many = ks.Gaussian(1.0) + ks.Gaussian(2.0) * ks.Gaussian(3.0) * ks.Linear() + 2.0 * ks.Polynomial(2) ** 2
    centers, points, c = RNG.uniform(size=(5000, 50)), RNG.uniform(size=(2000, 50)), RNG.normal(size=5000)
    f = ko.Function(ks.Intersection(), centers, c)
    f(points[:1])
    direct = ks.Intersection()(points, centers) @ c
    error = np.abs(f(points) - direct).max() / np.abs(direct).max()
    laplacian, chi2 = ks.Laplacian(sigma=4.0), ks.GeneralizedGaussian("chi2", 1.0)
    rows = [
        (
            f"Gaussian Gram, N = {N}, d = {D} / rbf_kernel, time",
            ratio(lambda: gaussian(X), lambda: pairwise.rbf_kernel(X, gamma=gamma), runs),
            "≤ 0.9",
        ),
        ("  its peak memory, in N×N matrices", peak(lambda: gaussian(X), N), "≤ 1.1"),
        ("sum and product of 6 kernels, peak memory: result and 2 more", peak(lambda: many(X[:4000]), 4000), "≤ 3"),
        (
            "Laplacian, N = 1500 / laplacian_kernel, time",
            ratio(lambda: laplacian(H), lambda: pairwise.laplacian_kernel(H, gamma=0.25), runs),
            "≤ 1",
        ),
        (
            "intersection, N = 1500 / scipy's cityblock, time",
            ratio(lambda: ks.Intersection()(H), lambda: cdist(H, H, "cityblock"), runs),
            "≤ 1",
        ),
        (
            "χ², N = 1500 / chi2_kernel, time",
            ratio(lambda: chi2(H), lambda: pairwise.chi2_kernel(H, gamma=1.0), runs),
            "≤ 1",
        ),
        (
            "direct sum / intersection prediction, s = 5000, d = 50, time",
            ratio(lambda: direct_sum(points, centers, c), lambda: f(points), runs),
            "≥ 30",
        ),
        (
            "  kernel matrix by scipy's cityblock / the same, time",
            ratio(lambda: ks.Intersection()(points, centers) @ c, lambda: f(points), runs),
            "",
        ),
        ("  relative difference", error, "≤ 1e-12"),
    ]
    print(f"one BLAS thread, {runs} runs\n")
    print(f"| {'measurement':<62} | {'median':>8} | {'target':>8} |\n|{'-' * 64}|{'-' * 9}:|{'-' * 9}:|")
    for name, value, target in rows:
        print(f"| {name:<62} | {value:>8.2g} | {target:>8} |")


if __name__ == "__main__":
    with threadpoolctl.threadpool_limits(1):
        main()
