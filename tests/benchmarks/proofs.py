"""Proofs as files: seconds to write them, and to check them with Python alone, and the widths of both enclosures.

python tests/benchmarks/proofs.py [--rows N …]
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cvxpy as cp
import numpy as np

import kernelopt as ko
from kernelopt import check


def problem(n, loss, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n)
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    f = theta(X) + b
    losses = {
        "hinge": lambda: cp.sum(ko.losses.hinge(np.sign(y), f)),
        "squares": lambda: cp.sum_squares(y - f),
        "log loss": lambda: cp.sum(ko.losses.log_loss(np.sign(y), f)),
    }
    return ko.Problem(cp.Minimize(losses[loss]() + 0.5 * ko.sum_squares(theta)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="*", default=[200, 1000, 2000])
    parser.add_argument("--tol", type=float, default=1e-9)
    given = parser.parse_args()
    for n in given.rows:
        for seed, loss in enumerate(("hinge", "squares", "log loss")):
            stated = problem(n, loss, n + seed)
            stated.solve(tol=given.tol)
            path = Path(tempfile.mkdtemp()) / "proof.jsonl"
            began = time.perf_counter()
            proof = stated.certificate.save(path)
            wrote = time.perf_counter() - began
            began = time.perf_counter()
            subprocess.run([sys.executable, "-I", check.__file__, str(path)], check=True, capture_output=True)
            took = time.perf_counter() - began
            low, high = proof.exact
            size, gap = path.stat().st_size / 1e6, stated.certificate.absolute_gap
            told = f"written in {wrote:6.2f} s, {size:.2f} MB, checked in {took:6.2f} s"
            print(f"{loss:9s} N = {n:5d}: {told}; width {float(high - low):.1e}, of the certificate {gap:.1e}")


if __name__ == "__main__":
    main()
