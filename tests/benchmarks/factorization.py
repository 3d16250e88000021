"""Factors of Q: time against their own arithmetic and the dense factor, and columns for a given trace.

    python tests/benchmarks/factorization.py

BLAS on one thread; peers alternate, medians of the ratios are printed beside the targets.
"""

from __future__ import annotations

import argparse
import statistics
import time
from functools import partial

import numpy as np
import threadpoolctl

import kernelopt as ko
from kernelopt.factorization import METHODS, Settings
from kernelopt.language.rows import Rows

RNG = np.random.default_rng(0)
D, BLOCK = 4, 96
GAUSSIAN = ko.kernels.Gaussian(sigma=1.5)
TRACES = (1e-1, 1e-2, 1e-4, 1e-6, 1e-8)


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def ratio(ours, theirs, runs):
    """Median of time ratios, in turn, after one run of each that is not counted."""
    ours(), theirs()
    return statistics.median(seconds(ours) / seconds(theirs) for _ in range(runs))


def factor(method, X, rank_tol=1e-8, max_rank=None):
    return METHODS[method](Rows.of_points(GAUSSIAN, GAUSSIAN.rows(X)), Settings(rank_tol, max_rank))


def arithmetic(X, f):
    """The factor's columns of kernel values, stored, and matrix products of n r² flops in blocks of columns."""
    K = GAUSSIAN(X, X[f.pivots])
    for k in range(0, f.rank, BLOCK):
        f.B[k : k + BLOCK, :k] @ f.B[:, :k].T
    return K


def columns_for(B):
    """Columns that leave at most each of the traces, for Q of unit diagonal."""
    left = 1 - np.cumsum(np.einsum("ij,ij->j", B, B)) / len(B)
    return [int(np.argmax(left <= trace)) + 1 for trace in TRACES]


def randomly_pivoted(Q, trace):
    """Randomly pivoted Cholesky, a column at a time: the law of the accelerated variant with rejection."""
    d, B, k = Q.diagonal().copy(), np.empty_like(Q), 0
    while d.sum() > trace * len(Q):
        j = RNG.choice(len(Q), p=d / d.sum())
        c = Q[j] - B[:, :k] @ B[j, :k]
        B[:, k] = c / np.sqrt(c[j])
        d, k = np.clip(d - B[:, k] ** 2, 0.0, None), k + 1
        d[j] = 0.0
    return B[:, :k]


def speed(runs):
    print(f"\nstreamed factor, N(0, I) in {D} dimensions, Gaussian kernel (σ = 1.5), {runs} runs\n")
    print("| N | rank_tol | rank | time / own arithmetic | target | rank / dense | time / dense |\n" + "|--:" * 7 + "|")
    for n in (5000, 20_000):
        X = RNG.normal(size=(n, D))
        for tol in (1e-6, 1e-8):
            f = factor("streamed", X, tol)
            ours = partial(factor, "streamed", X, tol)
            own, peer = ratio(ours, partial(arithmetic, X, f), runs), " | "
            if n <= 5000:
                dense = partial(factor, "cholesky", X, tol)
                peer = f"{f.rank / dense().rank:.3f} | {ratio(ours, dense, runs):.2f}"
            print(f"| {n} | {tol:g} | {f.rank} | {own:.2f} | {'≤ 1.5' if n > 5000 else ''} | {peer} |")
    print("\nOwn arithmetic: kernel values of the factor's columns, stored, and matrix products of N r² flops.")


def growth(runs):
    print("\nstreamed factor of rank 400 as N grows\n\n| N | seconds | µs a row |\n|--:|--:|--:|")
    for n in (5000, 10_000, 20_000, 40_000, 80_000):
        X = RNG.normal(size=(n, D))
        call = partial(factor, "streamed", X, max_rank=400)
        call()
        taken = statistics.median(seconds(call) for _ in range(runs))
        print(f"| {n} | {taken:.2f} | {taken / n * 1e6:.0f} |")


def columns():
    n = 3000
    print(f"\ncolumns that leave a trace of …, N = {n}\n")
    print("| data | by | " + " | ".join(f"{trace:g}" for trace in TRACES) + " |\n|---|---|" + "--:|" * len(TRACES))
    for name, X in (("normal", RNG.normal(size=(n, D))), ("Student t, 2", RNG.standard_t(2, size=(n, 3)))):
        Q = GAUSSIAN(X)
        eigenvalues, V = np.linalg.eigh(Q)
        factors = {
            "streamed": factor("streamed", X).B,
            "random pivots": randomly_pivoted(Q, TRACES[-1]),
            "largest residual diagonal": factor("cholesky", X).B,
            "eigenvectors": (V * np.sqrt(eigenvalues.clip(0.0)))[:, ::-1],
        }
        for by, B in factors.items():
            print(f"| {name} | {by} | " + " | ".join(map(str, columns_for(B))) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    columns()
    speed(runs)
    growth(runs)


if __name__ == "__main__":
    with threadpoolctl.threadpool_limits(1):
        main()
